;;;; What the user has defined: a record of the definitions that were touched in
;;;; this evaluation, and of all that were made since the image started. Kinds are
;;;; read from the image itself, before and after; the wrapped definers say when.

(in-package #:gramercy.image)

(defvar *untracked* t
  "True while definitions are not the user's own: in the zygote, while a system is loaded, and in our own code,
since a mere question can make SBCL define a class. Its global value counts for user code.")

(defun track-definitions (tracked)
  "Let definitions of user code count from now on, or with NIL no longer. The threads of the user's see that too."
  (setf (sb-ext:symbol-global-value '*untracked*) (not tracked)))

(defglobal *definitions* (make-hash-table :test 'equal :synchronized t)
  "Keys (space . name) of the user's definitions; the value is the place in their order, or :UNBOUND for a variable
without value.")

(declaim (type fixnum *touches*))
(defglobal *touches* 0 "How often a definition was touched: the order in which the user defined things.")

(defglobal *touched* (make-hash-table :test 'equal :synchronized t)
  "Keys of what this evaluation has touched; the value is a list of the kind before, the text of the name, and when.")

(defconstant +most-changes+ 1000 "Changes told in one reply: it is bounded for code that defines in a loop.")

;;; Kinds: what a name means now, in one of the spaces of names

(defun function-kind (name)
  "Return what NAME means as an operator, or NIL."
  (cond ((not (fboundp name)) nil)
        ((consp name) (if (generic-function-p (fdefinition name)) "generic-function" "function"))
        ((macro-function name) "macro")
        ((generic-function-p (fdefinition name)) "generic-function")
        (t "function")))

(defun variable-kind (name)
  "Return what NAME means as a variable, or NIL."
  (case (sb-cltl2:variable-information name)
    (:constant "constant")
    (:symbol-macro "symbol-macro")
    ((:special :global) (unless (and (not (boundp name))
                                     (eq :unbound (gethash (cons :variable name) *definitions*)))
                          "variable"))
    (t (and (boundp name) "variable"))))

(defun type-kind (name)
  "Return what NAME means as a type, or NIL."
  (let ((class (find-class name nil)))
    (cond ((structure-class-p class) "structure")
          ((and class (condition-class-p class)) "condition")
          (class "class")
          ;; Not by asking for the type itself: that would run an expander of the user's.
          ((and (symbolp name) (member (compiler-fact :type :kind name) '(:defined :primitive))) "type"))))

(defun specializer-name (specializer)
  "Return how SPECIALIZER is written in a lambda list."
  (if (class-p specializer)
      (stored-name specializer)
      (list 'eql (stored-object specializer))))

(defun method-name (generic-function method)
  "Return the list that names METHOD of GENERIC-FUNCTION."
  (list (stored-name generic-function)
        (stored-qualifiers method)
        (mapcar #'specializer-name (stored-specializers method))))

(defun find-named-method (name)
  "Return the method that METHOD-NAME calls NAME, or NIL."
  (let ((function (and (fboundp (first name)) (fdefinition (first name)))))
    (and (generic-function-p function)
         (find name (stored-methods function)
               :test #'equal :key (lambda (method) (method-name function method))))))

(defun home-symbol (space name)
  "Return the symbol whose package a definition lives in, or NIL."
  (case space
    (:package nil)
    (:method (home-symbol :function (first name)))
    (t (if (consp name) (second name) name))))

(defun current-kind (space name)
  "Return the kind of the definition of NAME in SPACE as it is now, or NIL."
  (let ((symbol (home-symbol space name)))
    (cond ((and symbol (null (symbol-package symbol))) nil)
          (t (ecase space
               (:function (function-kind name))
               (:variable (variable-kind name))
               (:type (type-kind name))
               (:method (and (find-named-method name) "method"))
               (:package (and (find-package name) "package"))
               (:compiler-macro (and (compiler-macro-function name) "compiler-macro"))
               (:setf-expander "setf-expander")
               (:method-combination "method-combination"))))))

;;; Recording

(defun name-text (space name)
  "Return how the definition of NAME in SPACE is written for people."
  (case space
    (:package name)
    (:method (destructuring-bind (function qualifiers specializers) name
               (format nil "(~a~{ ~a~} (~{~a~^ ~}))" (definition-name function)
                       (mapcar #'definition-name qualifiers)
                       (mapcar #'definition-name specializers))))
    (t (definition-name name))))

(defun trackable-p (space name)
  "Tell whether NAME can be the user's; the object system makes names of its own as it runs."
  (flet ((own-p (symbol)
           ;; Not whether its package is locked: people lock theirs too.
           (and symbol (symbolp symbol) (symbol-package symbol)
                (not (own-package-p (symbol-package symbol)))
                (not (system-package-p (symbol-package symbol))))))
    (case space
      (:package (stringp name))
      (:method (or (symbolp (first name)) (setf-name-p (first name))))
      (t (or (own-p name) (and (setf-name-p name) (own-p (second name))))))))

(defun known-definitions ()
  "Return the keys of all recorded definitions, in the order in which they were made."
  (let ((entries (sb-ext:with-locked-hash-table (*definitions*)
                   (loop for key being the hash-keys of *definitions* using (hash-value place)
                         collect (cons (if (integerp place) place most-positive-fixnum) key)))))
    (mapcar #'cdr (sort entries #'< :key #'car))))

(defun setf-name-p (name)
  "Tell whether NAME is a list (SETF symbol)."
  (and (consp name) (eq (first name) 'setf) (consp (cdr name)) (symbolp (second name)) (null (cddr name))))

(defglobal *latest-source* nil "The source of the latest evaluation: what is defined meanwhile may stand in its text.")

(defun touch (space name)
  "Note that the definition of NAME in SPACE is about to change. Call it before the change."
  (when (trackable-p space name)
    (keep-session-text space name)
    (let ((key (cons space name)))
      (unless (gethash key *touched*)
        (remember-meaning space name)
        (setf (gethash key *touched*)
              (list (if (and (member space '(:setf-expander :method-combination))
                             (not (gethash key *definitions*)))
                        nil
                        (current-kind space name))
                    (name-text space name)
                    (incf *touches*)))))))

(defun change-of (key before text place)
  "Settle what became of KEY, which was touched at PLACE; return the change as an object, or NIL where nothing changed."
  ;; Class names and the like can be methods of the user's; their faults are not this reply's.
  (let ((after (ignore-errors (current-kind (car key) (cdr key)))))
    (if after
        (unless (gethash key *definitions*) (setf (gethash key *definitions*) place))
        (unless (eq :unbound (gethash key *definitions*)) (remhash key *definitions*)))
    (when (or before after)
      (list :object "kind" (or after before) "name" text
            "change" (cond ((null before) "defined") ((null after) "removed") (t "redefined"))))))

(defun take-changes ()
  "Return the changes made since the last call, as objects in the order of their names, and forget them."
  (if (zerop (hash-table-count *touched*))
      '()
      (let ((touched (sb-ext:with-locked-hash-table (*touched*)
                       (prog1 (loop for key being the hash-keys of *touched* using (hash-value state)
                                    collect (cons key state))
                         (clrhash *touched*)))))
        (sort (loop for (key before text place) in touched
                    for change = (change-of key before text place)
                    when change collect change)
              #'string< :key #'fifth))))

;;;; Where definitions happen: SBCL's own definers are wrapped, so that a change
;;;; is seen however it was made (inside PROGN, LET, a macro, a loaded file), and
;;;; an evaluation that defines nothing pays nothing. A definer that another
;;;; release of SBCL lacks is not wrapped.

(defun wrap (name wrapper)
  "Let WRAPPER run in place of the function called NAME; it gets the original and the arguments."
  (when (and name (fboundp name))
    (sb-int:encapsulate name 'gramercy wrapper)))

(defglobal *later-functions* nil
  "Conses of name and function, of all that came after the core, behind the number of the code object that was the
latest then; NIL where a definer has run since.")

(defun call-checked (original arguments key since)
  "Call ORIGINAL, a definer that refuses a change before it makes it: where it does not return, KEY was not touched.
SINCE is the number of the latest touch before this one."
  (let ((returned nil))
    (unwind-protect (multiple-value-prog1 (apply original arguments) (setf returned t))
      (when (and (not returned) (> (or (third (gethash key *touched*)) 0) since))
        (remhash key *touched*)
        (forget-meaning key)))))

(defmacro define-watch ((name &optional package expands checks) lambda-list &body body)
  "Run BODY, with the arguments bound by LAMBDA-LIST, before each tracked call of the function NAME.
NAME is a function name, or with PACKAGE the name of a symbol that may be missing. EXPANDS is the space of names in
which the first argument may get another expansion, which compiled code would not have. CHECKS is true for a function
that refuses a change before it makes it, and is then the key of what it defines."
  `(wrap ,(if package `(internal-symbol ,name ,package) `',name)
         (lambda (original &rest arguments ,@(and checks '(&aux (since *touches*))))
           (setf *later-functions* nil)
           ,@(and expands `((ignore-errors (note-expander ,expands (first arguments)))))
           (unless *untracked*
             ;; To ask what a name means can make SBCL define a class, and that definer is wrapped too.
             (let ((*untracked* t))
               (ignore-errors (destructuring-bind (,@lambda-list &rest rest) arguments
                                (declare (ignore rest))
                                ,@body))))
           ,(if checks
                `(call-checked original arguments ,checks since)
                '(apply original arguments)))))

(defmacro define-untracked (name &optional package)
  "Let definitions made inside of NAME not count as the user's."
  `(wrap ,(if package `(internal-symbol ,name ,package) `',name)
         (lambda (original &rest arguments)
           (let ((*untracked* t)) (apply original arguments)))))

(defun touch-variable (symbol)
  "Note that the variable SYMBOL is about to be defined."
  (touch :variable symbol)
  (when (eq :unbound (gethash (cons :variable symbol) *definitions*))
    (setf (gethash (cons :variable symbol) *definitions*) (incf *touches*))))

(defun touch-known (test)
  "Touch every recorded definition whose home symbol satisfies TEST."
  (loop for (space . name) in (known-definitions)
        for symbol = (home-symbol space name)
        when (and symbol (funcall test symbol))
          do (touch space name)))

(defun touch-method (generic-function method)
  "Note that METHOD is about to be added to GENERIC-FUNCTION, or removed from it."
  (if (accessor-method-p method)
      (touch :function (stored-name generic-function))
      (touch :method (method-name generic-function method))))

(defun watch-operators ()
  "Watch functions and macros."
  (define-watch ("%DEFUN" "SB-IMPL" :function) (name) (touch :function name))
  (define-watch ("%DEFMACRO" "SB-C" :function) (name) (touch :function name))
  (define-watch ("%DEFMACRO" "SB-IMPL" :function) (name) (touch :function name))
  (define-watch ((setf fdefinition)) (function name) function (touch :function name))
  (define-watch ((setf symbol-function)) (function name) function (touch :function name))
  (define-watch ((setf macro-function)) (function name) function (touch :function name))
  (define-watch (fmakunbound) (name) (touch :function name))
  (define-watch ("%DEFINE-COMPILER-MACRO" "SB-C" :compiler-macro) (name) (touch :compiler-macro name))
  (define-watch ((setf compiler-macro-function)) (function name) function (touch :compiler-macro name))
  (define-watch ("%DEFSETF" "SB-IMPL" :setf-expander) (name) (touch :setf-expander name)))

(defun watch-variables ()
  "Watch variables and constants. A DEFVAR of what has a value changes nothing."
  (define-watch ("%DEFVAR" "SB-IMPL") (name &optional location (value nil value-p))
    location value
    (unless (if value-p (boundp name) (variable-kind name)) (touch-variable name)))
  (define-watch ("%DEFPARAMETER" "SB-IMPL") (name) (touch-variable name))
  (define-watch ("%DEFGLOBAL" "SB-IMPL") (name) (unless (boundp name) (touch-variable name)))
  (define-watch ("%DEFCONSTANT" "SB-IMPL" :variable (cons :variable (first arguments))) (name &optional value)
    (unless (and (boundp name) (eql (symbol-value name) value)) (touch-variable name)))
  (define-watch ("%DEFCONSTANT" "SB-C" :variable (cons :variable (first arguments))) (name &optional value)
    (unless (and (boundp name) (eql (symbol-value name) value)) (touch-variable name)))
  (define-watch ("%DEFINE-SYMBOL-MACRO" "SB-C" :variable) (name) (touch-variable name))
  (define-watch ("%DEFINE-SYMBOL-MACRO" "SB-IMPL" :variable) (name) (touch-variable name))
  (define-watch (makunbound) (name)
    (when (boundp name)
      (touch :variable name)
      (setf (gethash (cons :variable name) *definitions*) :unbound))))

(defun watch-types ()
  "Watch classes, structures, conditions and named types."
  (define-watch ("%DEFTYPE" "SB-IMPL" :type) (name) (touch :type name))
  ;; COMPILE-FILE makes structures and conditions known to the compiler, and so to the image.
  (define-watch ("%COMPILER-DEFSTRUCT" "SB-KERNEL" :structure (cons :type (structure-name (first arguments))))
      (description)
    (touch :type (structure-name description)))
  (define-watch ("%COMPILER-DEFINE-CONDITION" "SB-KERNEL") (name) (touch :type name))
  (define-watch ("%DEFSTRUCT" "SB-KERNEL" :structure (cons :type (structure-name (first arguments)))) (description)
    (touch :type (structure-name description)))
  (define-watch ("%DEFINE-CONDITION" "SB-KERNEL") (name) (touch :type name))
  (define-watch ("LOAD-DEFCLASS" "SB-PCL") (name) (touch :type name))
  (define-watch (sb-mop:ensure-class) (name) (touch :type name))
  (define-watch ((setf find-class)) (class name) class (touch :type name)))

(defun structure-name (description)
  "Return the name of the structure of which DESCRIPTION is SBCL's own record."
  (let ((reader (or (internal-function "DD-NAME" "SB-KERNEL") #'identity)))
    (funcall reader description)))

(defun watch-generic-functions ()
  "Watch generic functions, methods and method combinations."
  (define-watch ("LOAD-DEFGENERIC" "SB-PCL") (name) (touch :function name))
  (define-watch (ensure-generic-function) (name) (unless (fboundp name) (touch :function name)))
  (define-watch (add-method) (function method) (touch-method function method))
  (define-watch (remove-method) (function method) (touch-method function method))
  (define-watch ("LOAD-SHORT-DEFCOMBIN" "SB-PCL") (name) (touch :method-combination name))
  (define-watch ("LOAD-LONG-DEFCOMBIN" "SB-PCL") (name) (touch :method-combination name)))

(defun watch-packages ()
  "Watch packages, and definitions that disappear with their names."
  (define-watch ("%DEFPACKAGE" "SB-IMPL") (name) (touch :package (string name)))
  (define-watch (make-package) (name) (touch :package (string name)))
  (define-watch (delete-package) (designator)
    (let ((package (find-package designator)))
      (when package
        (touch :package (package-name package))
        (touch-known (lambda (symbol) (eq (symbol-package symbol) package))))))
  (define-watch (unintern) (symbol) (touch-known (lambda (known) (eq known symbol)))))

(defun watch-definers ()
  "Wrap all definers. Done once, before the core is saved."
  (watch-operators)
  (watch-variables)
  (watch-types)
  (watch-generic-functions)
  (watch-packages)
  (define-untracked require)
  (define-untracked "OPERATE" "ASDF"))

(defun note-assigned (symbol)
  "Record SYMBOL, which was assigned without having been defined, as a variable of the user's."
  (let ((key (cons :variable symbol)))
    (when (and (boundp symbol) (trackable-p :variable symbol)
               (not (gethash key *definitions*)) (not (gethash key *touched*)))
      (setf (gethash key *touched*) (list nil (definition-name symbol) (incf *touches*))))))
