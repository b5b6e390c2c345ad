;;;; What the documentation says: the strings of a name in every space of names, of a
;;;; package, and of a system that ASDF knows. Signature and place come first.

(in-package #:gramercy.image)

(defun documented (head place text)
  "Return the lines about one meaning of a name: HEAD, PLACE and the documentation TEXT, or that there is none."
  (list (format nil "~a~@[  ~a~]" head place)
        (if (and (stringp text) (string/= "" (string-trim '(#\Space #\Newline) text)))
            (indented (shorten (string-trim '(#\Newline #\Space) text) +longest-documentation+))
            "  It has no documentation.")))

(defun documented-methods (function)
  "Return the lines about those methods of the generic FUNCTION that have documentation."
  (bounded-lines (loop for (nil . method) in (told-methods function)
                       for text = (plain-documentation method t)
                       when (stringp text)
                         collect (format nil "  method ~a: ~a" (method-label method)
                                         (shorten (first (split-lines text)) 200)))
                 +system-methods-room+ "methods"))

(defun operator-manual (name)
  "Return the lines of documentation about the operator NAME."
  (when (fboundp name)
    (append (documented (format nil "~a ~a" (operator-word name) (operator-call-text name)) (operator-place name)
                        (plain-documentation name 'function))
            (and (not (and (symbolp name) (or (macro-function name) (special-operator-p name))))
                 (generic-function-p (fdefinition name))
                 (documented-methods (fdefinition name))))))

(defun class-manual (symbol)
  "Return the lines of documentation about the class or type SYMBOL, and about its own slots."
  (let ((class (find-class symbol nil)))
    (cond (class
           (append (documented (format nil "~a ~a" (class-kind-text class) (shown-name symbol)) (class-place class)
                               (plain-documentation class t))
                   (loop for slot in (own-slots class)
                         when (slot-fact-documentation slot)
                           collect (format nil "  slot ~a: ~a" (shown-name (slot-fact-name slot))
                                           (shorten (slot-fact-documentation slot) 400)))))
          ((type-kind symbol)
           (documented (format nil "type ~a" (shown-name symbol)) (definition-place symbol :type)
                       (plain-documentation symbol 'type))))))

(defun variable-manual (symbol)
  "Return the lines of documentation about the variable SYMBOL."
  (let ((word (and (not (keywordp symbol)) (variable-kind symbol) (variable-word symbol))))
    (and word
         (documented (format nil "~a ~a" word (shown-name symbol))
                     (definition-place symbol :variable :constant :symbol-macro)
                     (plain-documentation symbol 'variable)))))

(defun other-manuals (symbol)
  "Return the lines of documentation about SYMBOL in the rarer spaces of names."
  (loop for (kind word) in '((setf "setf of") (compiler-macro "compiler macro") (method-combination "method combination"))
        for text = (plain-documentation symbol kind)
        when (stringp text)
          append (documented (format nil "~a ~a" word (shown-name symbol)) nil text)))

(defun name-manual (name)
  "Return the lines of documentation about all that NAME means."
  (if (consp name)
      (operator-manual name)
      (append (operator-manual name)
              (let ((setter (list 'setf name)))
                (and (fboundp setter) (stringp (plain-documentation setter 'function)) (operator-manual setter)))
              (variable-manual name)
              (class-manual name)
              (other-manuals name))))

(defun package-manual (text)
  "Return the lines of documentation about the package that TEXT names, and its exports that have documentation."
  (let ((package (find-named-package (string-left-trim "#:" (trimmed text)))))
    (when (and package (not (own-package-p package)))
      (let ((exports '()))
        (do-external-symbols (symbol package)
          (let ((text (or (and (fboundp symbol) (plain-documentation symbol 'function))
                          (plain-documentation symbol 'variable)
                          (let ((class (find-class symbol nil))) (and class (plain-documentation class t))))))
            (push (format nil "  ~a~@[  ~a~]" (symbol-token symbol)
                          (and (stringp text) (shorten (first (split-lines text)) 100)))
                  exports)))
        (append (documented (format nil "package ~a" (package-name package))
                            (source-place (source-of package))
                            (plain-documentation package t))
                (and exports
                     (cons (format nil "~:d exported names:" (length exports))
                           (bounded-lines (sort exports #'string<) 4500
                                          "names: list_package_symbols lists them"))))))))

(defun system-slot (system name)
  "Return what the slot NAME, a string, of the ASDF component SYSTEM holds, or NIL. Accessors may be the user's methods."
  (let ((symbol (loop for slot in (class-all-slots (class-of system))
                      for symbol = (stored-name slot)
                      when (string= name (symbol-name symbol)) return symbol)))
    (stored system symbol)))

(defun known-system (text)
  "Return the system called TEXT that ASDF has read the definition of, or NIL."
  (ignore-errors (asdf:registered-system (string-downcase (string-left-trim "#:" (trimmed text))))))

(defun system-manual (text)
  "Return the lines of documentation about the system that TEXT names, where ASDF has read its definition."
  (let ((system (known-system text)))
    (and system
         (documented (format nil "system ~a" (system-slot system "NAME"))
                     (let ((file (system-slot system "SOURCE-FILE"))) (and file (shown-file (native-name file))))
                     (format nil "~@[~a~]~@[~%~a~]" (system-slot system "DESCRIPTION")
                             (system-slot system "LONG-DESCRIPTION"))))))

(define-question "look_up_documentation" (request package)
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (text (request-text request :name))
         (others (and (null (package-marker (trimmed text)))
                      (append (package-manual text) (system-manual text))))
         (names (handler-case (own-names text package (request-optional-text request :package))
                  (unknown-name (condition) (if others '() (error condition)))))
         (lines (loop for name in names append (name-manual name))))
    (answer request
            (joined (cond ((or lines others)
                           (append lines others
                                   (and names (null (rest names)) (other-symbols-lines (first names) text))))
                          (t (nothing-lines (first names)))))
            "name" (if names (definition-name (first names)) text)
            "standard" (and names (symbolp (first names))
                            (eq (symbol-package (first names)) (find-package :common-lisp))
                            (symbol-name (first names))))))
