;;;; Questions about functions, variables and packages. None of them runs user
;;;; code: values are shown by their structure, never by the user's methods.

(in-package #:gramercy.image)

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
