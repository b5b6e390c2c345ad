;;;; Questions about classes, functions, variables, packages, and about what the user
;;;; has defined. None of them runs user code: values are shown by their structure,
;;;; never by the user's methods.

(in-package #:gramercy.image)

;;;; Classes. Initial forms are shown, never run.

(defun class-names (classes)
  "Return the texts of the names of CLASSES."
  (mapcar (lambda (class) (definition-name (class-name class))) classes))

(defun direct-superclasses (class)
  "Return the direct superclasses of CLASS."
  (sb-mop:class-direct-superclasses class))

(defun direct-subclasses (class)
  "Return the direct subclasses of CLASS."
  (sb-mop:class-direct-subclasses class))

(defun resolve-class (request)
  "Return the class that REQUEST names, finalized if that is possible."
  (let* ((text (request-text request :class))
         (package (question-package request))
         (name (resolve-symbol text package))
         (class (find-class name nil)))
    (unless class
      (error 'unknown-name :kind "class" :text text :suggestions (near-classes (symbol-name name) package)))
    (unless (sb-mop:class-finalized-p class)
      (ignore-errors (sb-mop:finalize-inheritance class)))
    class))

(defun near-classes (text package)
  "Return the names of classes of PACKAGE that are close to TEXT."
  (nearest text (let ((names '()))
                  (do-symbols (symbol package)
                    (when (find-class symbol nil) (push (symbol-name symbol) names)))
                  names)))

(defun class-all-slots (class)
  "Return the slots of CLASS, or only its own while a superclass is missing."
  (if (sb-mop:class-finalized-p class)
      (sb-mop:class-slots class)
      (sb-mop:class-direct-slots class)))

(defun direct-slot (class name)
  "Return the nearest definition of the slot NAME that CLASS inherits, which knows its accessors."
  (loop for super in (if (sb-mop:class-finalized-p class) (sb-mop:class-precedence-list class) (list class))
        thereis (find name (sb-mop:class-direct-slots super) :key #'sb-mop:slot-definition-name)))

(defun slot-accessors (slot)
  "Return the texts of the functions that read or write the direct slot SLOT."
  (and slot
       (mapcar #'definition-name
               (append (ignore-errors (sb-mop:slot-definition-readers slot))
                       (ignore-errors (sb-mop:slot-definition-writers slot))))))

(defun slot-object (class slot)
  "Return what there is to say about SLOT of CLASS."
  (let ((direct (direct-slot class (sb-mop:slot-definition-name slot))))
    (list :object
          "name" (definition-name (sb-mop:slot-definition-name slot))
          "type" (plain-text (sb-mop:slot-definition-type slot) 200)
          "initform" (and (sb-mop:slot-definition-initfunction slot)
                          (plain-text (sb-mop:slot-definition-initform slot) 200))
          "initargs" (map 'vector #'definition-name (sb-mop:slot-definition-initargs slot))
          "allocation" (string-downcase (princ-to-string (sb-mop:slot-definition-allocation slot)))
          "accessors" (coerce (slot-accessors direct) 'vector)
          "documentation" (and direct (ignore-errors (documentation direct t))))))

(defun slot-line (slot)
  "Return one line about the object SLOT made by SLOT-OBJECT."
  (flet ((part (key) (getf-text (rest slot) key)))
    (format nil "~a~@[  type ~a~]~@[  initform ~a~]~@[  initargs ~{~a~^ ~}~]~@[  accessors ~{~a~^ ~}~]"
            (part "name")
            (and (string/= (part "type") "T") (part "type"))
            (part "initform")
            (coerce (part "initargs") 'list)
            (coerce (part "accessors") 'list))))

(define-operation "class_slots" (request)
  (let* ((class (resolve-class request))
         (slots (mapcar (lambda (slot) (slot-object class slot)) (class-all-slots class))))
    (answer request
            (format nil "~a has ~:[no slots~;~:*~d slot~:p:~%~a~]" (definition-name (class-name class))
                    (and slots (length slots)) (lines "  ~a" (mapcar #'slot-line slots)))
            "class" (definition-name (class-name class))
            "slots" (coerce slots 'vector))))

(define-operation "class_hierarchy" (request)
  (let* ((class (resolve-class request))
         (precedence (class-names (if (sb-mop:class-finalized-p class)
                                      (sb-mop:class-precedence-list class)
                                      (cons class (direct-superclasses class)))))
         (above (class-names (direct-superclasses class)))
         (below (sort (class-names (direct-subclasses class)) #'string<)))
    (answer request
            (lines "~a" (list (definition-name (class-name class))
                              (format nil "Superclasses: ~:[none~;~:*~{~a~^, ~}~]" above)
                              (format nil "Subclasses: ~:[none~;~:*~{~a~^, ~}~]" below)
                              (format nil "Precedence: ~{~a~^ > ~}" precedence)))
            "class" (definition-name (class-name class))
            "superclasses" (coerce above 'vector)
            "subclasses" (coerce below 'vector)
            "precedence" (coerce precedence 'vector))))

;;;; Functions, variables and packages

(defconstant +longest-value+ 500 "Characters shown of the value of a variable.")

(defun lines (format items)
  "Return one line for each of ITEMS, formatted with FORMAT."
  (format nil "~{~a~^~%~}" (mapcar (lambda (item) (format nil format item)) items)))

(defun arglist-text (name)
  "Return the text of the lambda list of the function or macro NAME."
  (plain-text-of-list
   (plain-parameters
    (sb-introspect:function-lambda-list
     (if (and (symbolp name) (macro-function name)) (macro-function name) (fdefinition name))))))

(defun plain-parameters (parameters)
  "Return PARAMETERS with ((:KEY variable) default) written as people write it."
  (if (listp (cdr (last parameters)))
      (mapcar (lambda (parameter)
                (if (typep parameter '(cons (cons keyword (cons symbol null))))
                    (destructuring-bind ((keyword variable) &optional default &rest more) parameter
                      (declare (ignore more))
                      (cond ((string/= keyword variable) parameter)
                            (default (list variable default))
                            (t variable)))
                    parameter))
              parameters)
      parameters))

(defun plain-text-of-list (list)
  "Return the text of LIST, which is () when empty."
  (if list (plain-text list 1000) "()"))

(defun require-function (name text)
  "Return NAME, or signal that TEXT names no function."
  (unless (fboundp name)
    (error 'unknown-name :kind "function" :text text
                         :suggestions (near-symbols (string (if (consp name) (second name) name))
                                                    (question-home name))))
  name)

(defun question-home (name)
  "Return the package to look for names like NAME."
  (or (symbol-package (if (consp name) (second name) name)) *current-package*))

;;; Describing

(defun function-lines (name)
  "Return what there is to say about NAME as an operator."
  (when (fboundp name)
    (append
     (list (format nil "~a names a ~a:" (definition-name name)
                   (if (and (symbolp name) (special-operator-p name)) "special operator" (function-kind name)))
           (format nil "  Lambda-list: ~a" (arglist-text name)))
     (type-line name)
     (documentation-lines name 'function)
     (source-lines name))))

(defun type-line (name)
  "Return the line about the type of the function NAME, when one is known."
  (let ((type (ignore-errors (sb-introspect:function-type name))))
    (when (consp type) (list (format nil "  Type: ~a" (plain-text type 300))))))

(defun documentation-lines (name kind)
  "Return the line about the documentation of NAME as KIND, when there is one."
  (let ((text (ignore-errors (documentation name kind))))
    (when (stringp text) (list (format nil "  Documentation: ~a" text)))))

(defun source-lines (name)
  "Return the line about the file that defines the function NAME, when there is one."
  (let ((source (ignore-errors (first (sb-introspect:find-definition-sources-by-name name :function)))))
    (when (and source (sb-introspect:definition-source-pathname source))
      (list (format nil "  Source: ~a" (namestring (sb-introspect:definition-source-pathname source)))))))

(defun variable-lines (name)
  "Return what there is to say about NAME as a variable."
  (let ((kind (and (symbolp name) (variable-kind name))))
    (when kind
      (append (list (format nil "~a names a ~a:" (definition-name name) kind))
              (list (if (boundp name)
                        (format nil "  Value: ~a" (plain-text (symbol-value name) +longest-value+))
                        "  It has no value."))
              (documentation-lines name 'variable)))))

(defun type-lines (name)
  "Return what there is to say about NAME as a type."
  (let ((kind (and (symbolp name) (type-kind name)))
        (class (and (symbolp name) (find-class name nil))))
    (when kind
      (append (list (format nil "~a names a ~a:" (definition-name name) kind))
              (when class
                (list (format nil "  Direct superclasses: ~{~a~^, ~}" (class-names (direct-superclasses class)))
                      (format nil "  Direct subclasses: ~{~a~^, ~}" (class-names (direct-subclasses class)))))
              (documentation-lines name 'type)))))

(defun symbol-lines (symbol)
  "Return where SYMBOL lives."
  (let ((package (symbol-package symbol)))
    (list (if package
              (format nil "~a is ~(~a~) in ~a." (definition-name symbol)
                      (nth-value 1 (find-symbol (symbol-name symbol) package)) (display-package-name package))
              (format nil "~a has no package." (definition-name symbol))))))

(defun nothing-lines (name)
  "Return what there is to say about NAME, which means nothing: what may have been meant instead."
  (let ((near (near-names name)))
    (cons "It means nothing yet."
          (and near (list (format nil "Names like it: ~{~a~^, ~}" near))))))

(define-operation "describe" (request)
  (let* ((name (resolve-function-name (request-text request :symbol) (question-package request)))
         (meanings (append (function-lines name) (variable-lines name) (type-lines name)))
         (home (if (consp name) '() (symbol-lines name))))
    (answer request (lines "~a" (append home (or meanings (nothing-lines name))))
            "name" (definition-name name)
            "function" (and (fboundp name) (function-kind name))
            "variable" (and (symbolp name) (variable-kind name))
            "type" (and (symbolp name) (type-kind name)))))

(define-operation "arglist" (request)
  (let* ((text (request-text request :function))
         (name (require-function (resolve-function-name text (question-package request)) text))
         (arglist (arglist-text name)))
    (answer request (format nil "(~a~:[ ~a~;~])" (definition-name name) (string= arglist "()")
                            (string-trim "()" arglist))
            "name" (definition-name name) "arglist" arglist "kind" (function-kind name))))

;;; Searching

(defun symbol-meanings (symbol)
  "Return the kinds of SYMBOL's definitions."
  (remove nil (list (function-kind symbol) (variable-kind symbol) (type-kind symbol))))

(defun matching-symbols (pattern package)
  "Return the symbols of PACKAGE, or of all packages, whose names hold PATTERN, in the order of their names."
  (let ((seen (make-hash-table :test 'eq)))
    (dolist (symbol (apropos-list pattern package))
      (setf (gethash symbol seen) (qualified-name symbol)))
    (mapcar #'car (sort (loop for symbol being the hash-keys of seen using (hash-value name)
                              collect (cons symbol name))
                        #'string< :key #'cdr))))

(define-operation "apropos" (request)
  (let* ((pattern (request-text request :pattern))
         (package (request-optional-text request :package))
         (limit (min 1000 (request-count request :limit 100)))
         (sorted (matching-symbols pattern (and package (resolve-package package))))
         (shown (subseq sorted 0 (min limit (length sorted)))))
    (answer request
            (format nil "~:[No symbol matches.~;~:*~a~]~@[~%... ~d more~]"
                    (and shown (lines "~a" (mapcar #'symbol-summary shown)))
                    (and (> (length sorted) limit) (- (length sorted) limit)))
            "symbols" (map 'vector (lambda (symbol)
                                     (list :object "name" (qualified-name symbol)
                                                   "kinds" (coerce (symbol-meanings symbol) 'vector)))
                           shown)
            "total" (length sorted))))

(defun symbol-summary (symbol)
  "Return one line about SYMBOL."
  (format nil "~a~@[ (~{~a~^, ~})~]" (qualified-name symbol) (symbol-meanings symbol)))

(define-operation "package_symbols" (request)
  (let* ((package (resolve-package (request-text request :package)))
         (internal (getf request :include-internal))
         (names (sort (package-symbol-names package internal) #'string<))
         (shown (subseq names 0 (min 2000 (length names)))))
    (answer request
            (format nil "Package ~a~@[ (nicknames ~{~a~^, ~})~], ~d ~:[external~;own~] symbol~:p~:*~*~%~a"
                    (package-name package) (package-nicknames package) (length names) internal
                    (lines "~a" shown))
            "package" (package-name package)
            "symbols" (coerce shown 'vector)
            "total" (length names))))

(defun package-symbol-names (package internal)
  "Return the names of the symbols PACKAGE exports, or with INTERNAL of all that are at home in it."
  (let ((names '()))
    (if internal
        (do-symbols (symbol package)
          (when (eq (symbol-package symbol) package) (pushnew (symbol-token symbol) names :test #'string=)))
        (do-external-symbols (symbol package) (push (symbol-token symbol) names)))
    names))

;;; Cross references

(defun reference-names (references)
  "Return the names in REFERENCES, a list made by SB-INTROSPECT, sorted and without repetition."
  (sort (remove-duplicates (mapcar (lambda (reference) (definition-name (car reference))) references)
                           :test #'string=)
        #'string<))

(defun answer-references (request name verb references)
  "Answer REQUEST with REFERENCES, the definitions by which NAME is used as VERB says."
  (let ((names (reference-names references))
        (what (format nil "~a is ~a" (definition-name name) verb)))
    (answer request
            (if names
                (format nil "~a by ~d definition~:p:~%~a" what (length names) (lines "  ~a" names))
                (format nil "~a by no known definition." what))
            "name" (definition-name name)
            "references" (coerce names 'vector))))

(define-operation "who_calls" (request)
  (let ((name (resolve-function-name (request-text request :function) (question-package request))))
    (answer-references request name "called"
                       (append (sb-introspect:who-calls name)
                               (when (and (symbolp name) (macro-function name))
                                 (sb-introspect:who-macroexpands name))))))

(define-operation "who_references" (request)
  (let ((name (resolve-symbol (request-text request :variable) (question-package request))))
    (answer-references request name "referred to"
                       (append (sb-introspect:who-references name)
                               (sb-introspect:who-sets name)
                               (sb-introspect:who-binds name)))))

;;;; What the user has defined and what still exists of it

(defun plural (kind)
  "Return the key under which definitions of KIND are listed."
  (cond ((string= kind "class") "classes")
        (t (concatenate 'string (substitute #\_ #\- kind) "s"))))

(defun detail-members (space name)
  "Return what is told of the definition of NAME in SPACE besides its name."
  (case space
    (:function (list "arglist" (or (ignore-errors (arglist-text name)) "()")))
    (:variable (list "value" (if (and (symbolp name) (boundp name))
                                 (plain-text (symbol-value name) 200)
                                 nil)))))

(defun listed-definitions ()
  "Return the user's definitions that still exist: lists of key, text of the name, and object; sorted."
  (sort (loop for (space . name) in (known-definitions)
              for kind = (current-kind space name)
              for text = (name-text space name)
              for symbol = (home-symbol space name)
              when kind
                collect (list (plural kind) text
                              (list* :object "name" text
                                             "symbol" (if (consp name) text (if symbol (symbol-token symbol) text))
                                             (detail-members space name))))
        #'string< :key #'second))

(defglobal *listed-kinds*
    '("functions" "generic_functions" "variables" "constants" "macros" "classes" "structures"
      "conditions" "types" "methods" "packages" "symbol_macros" "compiler_macros" "setf_expanders"
      "method_combinations")
  "The keys of a listing, in the order they are shown.")

(defun listing-line (entry)
  "Return one line about ENTRY of LISTED-DEFINITIONS."
  (let ((members (rest (third entry))))
    (format nil "~a~@[ ~a~]~@[ = ~a~]" (second entry)
            (getf-text members "arglist") (getf-text members "value"))))

(defun wanted-kinds (request)
  "Return the keys that REQUEST asks for."
  (let ((kind (request-optional-text request :kind)))
    (cond ((null kind) *listed-kinds*)
          ((find kind *listed-kinds* :test #'string-equal) (list (string-downcase kind)))
          ((find (plural (string-downcase kind)) *listed-kinds* :test #'string=)
           (list (plural (string-downcase kind))))
          (t (error 'unknown-name :kind "kind" :text kind :suggestions *listed-kinds*)))))

(define-operation "definitions" (request)
  ;; What threads have done since the last evaluation.
  (take-changes)
  (close-entry "a thread, between two calls")
  (let* ((kinds (wanted-kinds request))
         (entries (remove-if-not (lambda (entry) (member (first entry) kinds :test #'string=))
                                 (listed-definitions))))
    (flet ((of-kind (kind) (remove kind entries :test-not #'string= :key #'first)))
      (apply #'answer request
             (format nil "~{~a~^~%~%~}"
                     (loop for kind in kinds
                           for these = (of-kind kind)
                           when these
                             collect (format nil "[~:(~a~)]~%~a" (substitute #\Space #\_ kind)
                                             (lines "- ~a" (mapcar #'listing-line these)))))
             "package" (display-package-name *current-package*)
             (loop for kind in kinds
                   append (list kind (map 'vector #'third (of-kind kind))))))))
