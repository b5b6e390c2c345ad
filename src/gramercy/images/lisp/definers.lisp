;;;; Where definitions happen: SBCL's own definers are wrapped, so that a change
;;;; is seen however it was made (inside PROGN, LET, a macro, a loaded file), and
;;;; an evaluation that defines nothing pays nothing. A definer that another
;;;; release of SBCL lacks is simply not wrapped.

(in-package #:gramercy.image)

(defun wrap (name wrapper)
  "Let WRAPPER run in place of the function called NAME; it gets the original and the arguments."
  (when (and name (fboundp name))
    (sb-int:encapsulate name 'gramercy wrapper)))

(defmacro define-watch ((name &optional package) lambda-list &body body)
  "Run BODY, with the arguments bound by LAMBDA-LIST, before each tracked call of the function NAME.
NAME is a function name, or with PACKAGE the name of a symbol that may be missing."
  `(wrap ,(if package `(internal-symbol ,name ,package) `',name)
         (lambda (original &rest arguments)
           (unless *untracked*
             ;; To ask what a name means can make SBCL define a class, and that is watched too.
             (let ((*untracked* t))
               (ignore-errors (destructuring-bind (,@lambda-list &rest rest) arguments
                                (declare (ignore rest))
                                ,@body))))
           (apply original arguments))))

(defmacro define-untracked (name &optional package)
  "Let definitions made inside of NAME count as somebody else's."
  `(wrap ,(if package `(internal-symbol ,name ,package) `',name)
         (lambda (original &rest arguments)
           (let ((*untracked* t)) (apply original arguments)))))

(defun touch-variable (symbol)
  "Note that the variable SYMBOL is about to be defined."
  (touch :variable symbol)
  (when (eq :unbound (gethash (cons :variable symbol) *definitions*))
    (setf (gethash (cons :variable symbol) *definitions*) t)))

(defun touch-known (test)
  "Touch every recorded definition whose home symbol satisfies TEST."
  (loop for (space . name) in (known-definitions)
        for symbol = (home-symbol space name)
        when (and symbol (funcall test symbol))
          do (touch space name)))

(defun touch-method (generic-function method)
  "Note that METHOD is about to be added to GENERIC-FUNCTION, or removed from it."
  (if (typep method 'sb-mop:standard-accessor-method)
      (touch :function (sb-mop:generic-function-name generic-function))
      (touch :method (method-name generic-function method))))

(defun watch-operators ()
  "Watch functions and macros."
  (define-watch ("%DEFUN" "SB-IMPL") (name) (touch :function name))
  (define-watch ("%DEFMACRO" "SB-C") (name) (touch :function name))
  (define-watch ("%DEFMACRO" "SB-IMPL") (name) (touch :function name))
  (define-watch ((setf fdefinition)) (function name) function (touch :function name))
  (define-watch ((setf symbol-function)) (function name) function (touch :function name))
  (define-watch ((setf macro-function)) (function name) function (touch :function name))
  (define-watch (fmakunbound) (name) (touch :function name))
  (define-watch ("%DEFINE-COMPILER-MACRO" "SB-C") (name) (touch :compiler-macro name))
  (define-watch ((setf compiler-macro-function)) (function name) function (touch :compiler-macro name))
  (define-watch ("%DEFSETF" "SB-IMPL") (name) (touch :setf-expander name)))

(defun watch-variables ()
  "Watch variables and constants. A DEFVAR of what has a value changes nothing."
  (define-watch ("%DEFVAR" "SB-IMPL") (name &optional location (value nil value-p))
    location value
    (unless (if value-p (boundp name) (variable-kind name)) (touch-variable name)))
  (define-watch ("%DEFPARAMETER" "SB-IMPL") (name) (touch-variable name))
  (define-watch ("%DEFGLOBAL" "SB-IMPL") (name) (unless (boundp name) (touch-variable name)))
  (define-watch ("%DEFCONSTANT" "SB-IMPL") (name &optional value)
    (unless (and (boundp name) (eql (symbol-value name) value)) (touch-variable name)))
  (define-watch ("%DEFCONSTANT" "SB-C") (name &optional value)
    (unless (and (boundp name) (eql (symbol-value name) value)) (touch-variable name)))
  (define-watch ("%DEFINE-SYMBOL-MACRO" "SB-C") (name) (touch-variable name))
  (define-watch ("%DEFINE-SYMBOL-MACRO" "SB-IMPL") (name) (touch-variable name))
  (define-watch (makunbound) (name)
    (when (boundp name)
      (touch :variable name)
      (setf (gethash (cons :variable name) *definitions*) :unbound))))

(defun watch-types ()
  "Watch classes, structures, conditions and named types."
  (define-watch ("%DEFTYPE" "SB-IMPL") (name) (touch :type name))
  ;; COMPILE-FILE makes structures and conditions known to the compiler, and so to the image.
  (define-watch ("%COMPILER-DEFSTRUCT" "SB-KERNEL") (description) (touch :type (structure-name description)))
  (define-watch ("%COMPILER-DEFINE-CONDITION" "SB-KERNEL") (name) (touch :type name))
  (define-watch ("%DEFSTRUCT" "SB-KERNEL") (description) (touch :type (structure-name description)))
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
      (setf (gethash key *touched*) (list nil (definition-name symbol))))))
