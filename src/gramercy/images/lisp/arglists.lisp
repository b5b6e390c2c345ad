;;;; How things are called: functions, macros, special operators, SETF of a place, and
;;;; classes, with the types that SBCL knows. Written as a call, so that it can be
;;;; filled in.

(in-package #:gramercy.image)

(defconstant +longest-arglist+ 1500 "Characters shown of a lambda list: the longest of the standard have half of it.")
(defconstant +most-methods-told+ 12 "Methods told with a lambda list; describe_symbol tells more of them.")

(defun compiler-fact (category kind name)
  "Return what SBCL's own database says of NAME in the place KIND of CATEGORY, or NIL."
  (let ((look-up (internal-function "INFO" "SB-INT")))
    (and look-up (ignore-errors (values (funcall look-up category kind name))))))

;;;; Lambda lists. Names of parameters stand without packages; a default value is code.

(defun lambda-keyword-p (item)
  "Tell whether ITEM is a word such as &KEY."
  (and (symbolp item) (plusp (length (symbol-name item))) (char= (char (symbol-name item) 0) #\&)))

(defun parameter-name (variable)
  "Return the text of VARIABLE, the name of a parameter: a symbol, a list (key symbol), or a lambda list of a macro.
Of a key that is a keyword only the name is told: what stands behind it is nothing to a caller."
  (cond ((atom variable) (plain-text variable +longest-name+))
        ((typep variable '(cons keyword (cons t null))) (symbol-token (first variable)))
        ((typep variable '(cons symbol (cons symbol null))) (format nil "(~a)" (plain-text variable +longest-name+)))
        (t (lambda-list-text variable))))

(defun parameter-text (parameter)
  "Return the text of PARAMETER behind &OPTIONAL or &KEY. NIL as a default, and the variable that tells whether an
argument was given, say nothing to a caller."
  (if (atom parameter)
      (plain-text parameter +longest-name+)
      (destructuring-bind (variable &optional default &rest more) parameter
        (declare (ignore more))
        (if default
            (format nil "(~a ~a)" (parameter-name variable) (expression-text default))
            (parameter-name variable)))))

(defun lambda-list-items (parameters)
  "Return the texts of the items of the lambda list PARAMETERS. What no caller gives is left out."
  (loop with section = nil
        for rest = parameters then (cdr rest)
        while (consp rest)
        for item = (car rest)
        append (cond ((and (lambda-keyword-p item)
                           (member (symbol-name item) '("&WHOLE" "&ENVIRONMENT") :test #'string=))
                      (setf rest (cdr rest))
                      '())
                     ((and (lambda-keyword-p item) (string= (symbol-name item) "&AUX")) (return texts))
                     ((lambda-keyword-p item) (setf section (symbol-name item)) (list (symbol-token item)))
                     ((member section '("&OPTIONAL" "&KEY") :test #'equal) (list (parameter-text item)))
                     ((consp item) (list (lambda-list-text item)))
                     (t (list (plain-text item +longest-name+))))
          into texts
        finally (return (if rest (append texts (list "." (plain-text rest +longest-name+))) texts))))

(defun lambda-list-text (parameters)
  "Return the text of the lambda list PARAMETERS with its parentheses."
  (shorten (format nil "(~{~a~^ ~})" (lambda-list-items parameters)) +longest-arglist+))

(defun call-text (operator items)
  "Return the call of OPERATOR, a text, with ITEMS, the texts of its parameters."
  (shorten (format nil "(~a~{ ~a~})" operator items) +longest-arglist+))

(defglobal *special-syntax*
    '(("SETQ" . "{variable value}*") ("LET" . "({variable | (variable [value])}*) &BODY body")
      ("LET*" . "({variable | (variable [value])}*) &BODY body")
      ("FLET" . "({(name lambda-list &BODY body)}*) &BODY body")
      ("LABELS" . "({(name lambda-list &BODY body)}*) &BODY body")
      ("MACROLET" . "({(name lambda-list &BODY body)}*) &BODY body")
      ("SYMBOL-MACROLET" . "({(symbol expansion)}*) &BODY body")
      ("TAGBODY" . "{tag | statement}*") ("FUNCTION" . "name-or-lambda-expression")
      ("EVAL-WHEN" . "({:COMPILE-TOPLEVEL | :LOAD-TOPLEVEL | :EXECUTE}*) &BODY forms"))
  "What special operators take, where SBCL's own lambda list of them says less than their syntax.")

(defun function-parameters (name)
  "Return the lambda list of the operator NAME, and whether there is none, since it was compiled without."
  (let ((converter (and (symbolp name) (special-operator-p name) (compiler-fact :function :ir1-convert name))))
    (parameters-of (or converter (and (symbolp name) (macro-function name)) (fdefinition name)))))

(defun parameters-of (function)
  "Return the lambda list of FUNCTION, and whether there is none, since it was compiled without."
  (if (generic-function-p function) (pretty-parameters function) (sb-introspect:function-lambda-list function)))

(defun function-items (name)
  "Return the texts of the parameters of the operator NAME."
  (let ((syntax (and (symbolp name) (special-operator-p name)
                     (assoc (symbol-name name) *special-syntax* :test #'string=))))
    (if syntax
        (list (string-upcase (cdr syntax)))
        (multiple-value-bind (parameters unknown) (function-parameters name)
          (if unknown '("...") (lambda-list-items parameters))))))

(defun arglist-text (name)
  "Return the text of the lambda list of the operator NAME, with its parentheses."
  (shorten (format nil "(~{~a~^ ~})" (function-items name)) +longest-arglist+))

(defun operator-call-text (name)
  "Return how the operator NAME is called; (SETF NAME) as the place that is set."
  (let ((items (function-items name)))
    (if (consp name)
        (format nil "(SETF ~a ~a)" (call-text (shown-name (second name)) (rest items)) (or (first items) "..."))
        (call-text (shown-name name) items))))

;;;; Types of functions

(defun result-text (type)
  "Return the text of TYPE, of the values of a function."
  (if (typep type '(cons (eql values)))
      (let* ((types (rest type))
             (end (last types)))
        (cond ((equal types '(&optional)) "no values")
              ;; Exactly these values.
              ((eq (first end) '&optional)
               (let ((exact (butlast types)))
                 (if (rest exact)
                     (expression-text (cons 'values exact) +longest-arglist+)
                     (expression-text (first exact) +longest-arglist+))))
              (t (expression-text type +longest-arglist+))))
      (expression-text type +longest-arglist+)))

(defun function-type-text (type)
  "Return the text of TYPE, (FUNCTION arguments values), as ARGUMENTS -> VALUES."
  (if (typep type '(cons (eql function) (cons t (cons t null))))
      (format nil "~a -> ~a"
              (if (eq (second type) '*)
                  "(...)"
                  (format nil "(~{~a~^ ~})"
                          (mapcar (lambda (part) (expression-text part +longest-arglist+)) (second type))))
              (result-text (third type)))
      (expression-text type +longest-arglist+)))

(defun telling-type-p (type)
  "Tell whether TYPE of a function says more than that it takes and returns something."
  (and (typep type '(cons (eql function)))
       (let ((told nil))
         (labels ((look (part)
                    (cond ((consp part) (look (car part)) (look (cdr part)))
                          ((keywordp part))
                          ((member part '(t * nil function values &optional &rest &key &allow-other-keys)))
                          (t (setf told t)))))
           (look (rest type))
           told))))

(defun function-type-of (name)
  "Return the type of the function NAME, declared or derived, or NIL."
  (and (not (and (symbolp name) (or (macro-function name) (special-operator-p name))))
       (or (not (symbolp (compiler-fact :function :type name)))
           ;; SBCL works it out when it is first asked for, by generic readers; it says what the lambda list says.
           (and (fboundp name) (own-metaobjects-p (fdefinition name))))
       (ignore-errors (sb-introspect:function-type name))))

(defun own-metaobjects-p (function)
  "Tell whether FUNCTION and, where it is generic, its methods are of SBCL's own kinds."
  (or (not (generic-function-p function))
      (every #'own-metaobject-p (cons function (stored-methods function)))))

;;;; Methods

(defun specializer-text (specializer)
  "Return how SPECIALIZER is written in a lambda list. It is asked for no method of the user's."
  (cond ((class-p specializer) (class-label specializer))
        ((kind-p specializer sb-mop:eql-specializer)
         (format nil "(EQL ~a)" (expression-text (stored-object specializer) 80)))
        (t (plain-text specializer 80))))

(defun method-label (method)
  "Return the qualifiers and specializers of METHOD."
  (format nil "~{~a ~}(~{~a~^ ~})"
          (mapcar #'expression-text (stored-qualifiers method))
          (mapcar #'specializer-text (stored-specializers method))))

(defun method-owner (generic-function method)
  "Return the owner of METHOD: that of its classes, or of GENERIC-FUNCTION where they are SBCL's."
  (let ((owners (cons (name-owner (stored-name generic-function))
                      (loop for specializer in (stored-specializers method)
                            when (class-p specializer)
                              collect (name-owner (ignore-errors (stored-name specializer)))))))
    (if (member :ours owners) :ours (first (sort owners #'< :key #'owner-rank)))))

(defun told-methods (generic-function)
  "Return conses of owner and method of GENERIC-FUNCTION, the user's first, ours left out."
  (stable-sort (loop for method in (stored-methods generic-function)
                     for owner = (method-owner generic-function method)
                     unless (eq owner :ours) collect (cons owner method))
               #'< :key (lambda (pair) (owner-rank (car pair)))))

(defun telling-method-p (method)
  "Tell whether METHOD has a qualifier, or a specializer that says more than its parameter."
  (or (stored-qualifiers method)
      (find (load-time-value (find-class 't)) (stored-specializers method) :test-not #'eq)))

(defun methods-line (name)
  "Return a line about the methods of the generic function NAME, where they say what it takes."
  (let* ((function (and (not (and (symbolp name) (or (macro-function name) (special-operator-p name))))
                        (fdefinition name)))
         (methods (and (generic-function-p function)
                       (remove-if-not #'telling-method-p (told-methods function) :key #'cdr)))
         (worthy (if (> (length methods) +most-methods-told+) (remove :system methods :key #'car) methods))
         (told (subseq worthy 0 (min +most-methods-told+ (length worthy)))))
    (and methods
         (format nil "methods: ~{~a~^, ~}~@[~a: see describe_symbol~]"
                 (mapcar #'method-label (mapcar #'cdr told))
                 (and (> (length methods) (length told))
                      (format nil "~:[~;, ~]~:d more" told (- (length methods) (length told))))))))

;;;; Classes, as they are made

(defun initarg-text (initarg default default-p)
  "Return the text of INITARG as a parameter, with DEFAULT where DEFAULT-P."
  (let ((name (if (keywordp initarg) (symbol-token initarg) (format nil "((~a ~:*~a))" (shown-symbol initarg)))))
    (if (and default-p default) (format nil "(~a ~a)" name (expression-text default)) name)))

(defun class-initargs (class)
  "Return the texts of what MAKE-INSTANCE takes for CLASS, as its slots and default initial arguments say."
  (let ((defaults (ignore-errors (and (finalized-p class) (stored-default-initargs class))))
        (texts '()))
    (dolist (slot (told-slots class))
      (dolist (initarg (remove-if #'internal-name-p (slot-initargs slot)))
        (let ((default (assoc initarg defaults)))
          (push (initarg-text initarg
                              (if default (second default) (slot-fact-initform slot))
                              (or default (slot-fact-initform-p slot)))
                texts))))
    (remove-duplicates (nreverse texts) :test #'string= :from-end t)))

(defun structure-constructors (class)
  "Return the names of the constructors of the structure CLASS."
  (let ((description (ignore-errors (structure-description class)))
        (constructors (internal-function "DD-CONSTRUCTORS" "SB-KERNEL")))
    (and description constructors
         (remove-if-not #'fboundp (mapcar (lambda (entry) (if (consp entry) (car entry) entry))
                                          (funcall constructors description))))))

(defun class-call-texts (class)
  "Return the texts of the calls that make an instance of CLASS."
  (let ((maker (cond ((structure-class-p class) nil)
                     ((built-in-class-p class) nil)
                     ((condition-class-p class) "MAKE-CONDITION")
                     (t "MAKE-INSTANCE"))))
    (cond ((structure-class-p class) (mapcar #'operator-call-text (structure-constructors class)))
          (maker (let ((initargs (class-initargs class)))
                   (list (shorten (format nil "(~a '~a~@[ &KEY~{ ~a~}~])" maker (class-label class) initargs)
                                  +longest-arglist+)))))))

;;;; The question

(defun named-class (name)
  "Return the class called NAME, or NIL."
  (and (symbolp name) (find-class name nil)))

(defun operator-lines (name)
  "Return what there is to say about calling the operator NAME."
  (when (fboundp name)
    (let ((type (function-type-of name)))
      (list (operator-call-text name)
            (and (telling-type-p type) (format nil "type ~a" (function-type-text type)))
            (methods-line name)))))

(defun arglist-lines (name)
  "Return what there is to say about calling NAME: as an operator, as a place, as a class, as a type."
  (let ((class (named-class name))
        (setter (and (symbolp name) (list 'setf name))))
    (remove nil
            (append (operator-lines name)
                    (and setter (fboundp setter) (list (operator-call-text setter)))
                    (and class (class-call-texts class))
                    (and (symbolp name) (not (fboundp name)) (type-call-lines name))))))

(defun type-call-lines (name)
  "Return the line about NAME as a type that takes arguments, or NIL."
  (multiple-value-bind (parameters known) (ignore-errors (sb-introspect:deftype-lambda-list name))
    (and known parameters (list (format nil "type ~a" (call-text (shown-name name) (lambda-list-items parameters)))))))

(defun no-function (name text)
  "Signal that TEXT, which is NAME, cannot be called."
  (error 'unknown-name :kind "function" :text text
                       :reason (and (symbolp name) (other-meaning name))
                       :suggestions (near-symbols (string (if (consp name) (second name) name))
                                                  (question-home name))))

(defun other-meaning (symbol)
  "Return what SYMBOL means instead of a function, in words, or NIL."
  (let ((kinds (remove nil (list (variable-kind symbol) (type-kind symbol)))))
    (and kinds (format nil "it names a ~{~a~^ and a ~}" kinds))))

(defun question-home (name)
  "Return the package to look for names like NAME."
  (or (symbol-package (if (consp name) (second name) name)) *current-package*))

(define-question "arglist" (request package)
  (let* ((text (request-text request :function))
         (name (resolve-function-name text package))
         (lines (or (arglist-lines name) (no-function name text))))
    (answer request (joined (append lines (other-symbols-lines name text)))
            "name" (definition-name name)
            "arglist" (if (fboundp name) (arglist-text name) (first lines))
            "kind" (or (function-kind name) (type-kind name)))))
