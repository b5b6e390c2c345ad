;;;; What the user has defined: a record of the definitions that were touched in
;;;; this evaluation, and of all that were made since the image started. Truth is
;;;; asked of the image itself, before and after; definers.lisp says when to ask.

(in-package #:gramercy.image)

(defvar *untracked* t
  "True while definitions are not the user's own: in the zygote, while a system is loaded, and in our own code,
since a mere question can make SBCL define a class. Its global value counts for user code.")

(defun track-definitions (tracked)
  "Let definitions of user code count from now on, or with NIL no longer. The threads of the user's see that too."
  (setf (sb-ext:symbol-global-value '*untracked*) (not tracked)))

(defglobal *definitions* (make-hash-table :test 'equal :synchronized t)
  "Keys (space . name) of the user's definitions; the value is :UNBOUND for a variable without value.")

(defglobal *touched* (make-hash-table :test 'equal :synchronized t)
  "Keys of what this evaluation has touched; the value is a list of the kind before and the text of the name.")

(defconstant +most-changes+ 1000 "Changes told in one reply.")

;;; Kinds: what a name means now, in one of the spaces of names

(defun function-kind (name)
  "Return what NAME means as an operator, or NIL."
  (cond ((not (fboundp name)) nil)
        ((consp name) (if (typep (fdefinition name) 'generic-function) "generic-function" "function"))
        ((macro-function name) "macro")
        ((typep (fdefinition name) 'generic-function) "generic-function")
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
    (cond ((typep class 'structure-class) "structure")
          ((and class (subtypep class 'condition)) "condition")
          (class "class")
          ((ignore-errors (sb-ext:valid-type-specifier-p name)) "type")
          ;; A type that needs arguments is no specifier by its name alone.
          ((and (symbolp name) (nth-value 1 (ignore-errors (sb-ext:typexpand-1 (list name))))) "type"))))

(defun specializer-name (specializer)
  "Return how SPECIALIZER is written in a lambda list."
  (if (typep specializer 'class)
      (class-name specializer)
      (list 'eql (sb-mop:eql-specializer-object specializer))))

(defun method-name (generic-function method)
  "Return the list that names METHOD of GENERIC-FUNCTION."
  (list (sb-mop:generic-function-name generic-function)
        (method-qualifiers method)
        (mapcar #'specializer-name (sb-mop:method-specializers method))))

(defun find-named-method (name)
  "Return the method that METHOD-NAME calls NAME, or NIL."
  (let ((function (and (fboundp (first name)) (fdefinition (first name)))))
    (and (typep function 'generic-function)
         (find name (sb-mop:generic-function-methods function)
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
           (and symbol (symbolp symbol) (symbol-package symbol)
                (not (sb-ext:package-locked-p (symbol-package symbol))))))
    (case space
      (:package (stringp name))
      (:method (or (symbolp (first name)) (setf-name-p (first name))))
      (t (or (own-p name) (and (setf-name-p name) (own-p (second name))))))))

(defun known-definitions ()
  "Return the keys of all recorded definitions."
  (sb-ext:with-locked-hash-table (*definitions*)
    (loop for key being the hash-keys of *definitions* collect key)))

(defun setf-name-p (name)
  "Tell whether NAME is a list (SETF symbol)."
  (and (consp name) (eq (first name) 'setf) (consp (cdr name)) (symbolp (second name)) (null (cddr name))))

(defun touch (space name)
  "Note that the definition of NAME in SPACE is about to change. Call it before the change."
  (when (trackable-p space name)
    (let ((key (cons space name)))
      (unless (gethash key *touched*)
        (remember-meaning space name)
        (setf (gethash key *touched*)
              (list (if (and (member space '(:setf-expander :method-combination))
                             (not (gethash key *definitions*)))
                        nil
                        (current-kind space name))
                    (name-text space name)))))))

(defun change-of (key before text)
  "Settle what became of KEY; return the change as an object, or NIL where nothing changed."
  ;; Class names and the like can be methods of the user's; their faults are not this reply's.
  (let ((after (ignore-errors (current-kind (car key) (cdr key)))))
    (if after
        (unless (gethash key *definitions*) (setf (gethash key *definitions*) t))
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
        (sort (loop for (key before text) in touched
                    for change = (change-of key before text)
                    when change collect change)
              #'string< :key #'fifth))))
