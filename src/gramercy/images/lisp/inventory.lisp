;;;; What a system of ASDF is and consists of. One whose definition ASDF has read is
;;;; asked slot by slot; of another the .asd file is read as text: to load it would
;;;; run what stands in it.

(in-package #:gramercy.image)

(defconstant +most-names-told+ 60 "Files, and systems it depends on, that are named; the rest is counted.")

(defun folded-names (names &optional (most +most-names-told+))
  "Return NAMES, strings, as one text; what is beyond MOST is counted."
  (format nil "~{~a~^, ~}~@[, … ~:d more~]" (subseq names 0 (min most (length names)))
          (and (> (length names) most) (- (length names) most))))

(defun system-label (text)
  "Return TEXT, as it is typed or stands in a .asd file, as the name of a system."
  (string-downcase (string-trim "\"" (string-left-trim "#:'" (string-trim '(#\Space #\Newline #\Tab) text)))))

(defun dependency-name (item)
  "Return the name of the system that ITEM of a list of dependencies means, or NIL. Some are lists with conditions."
  (typecase item
    (string (string-downcase item))
    (symbol (and item (string-downcase (symbol-name item))))
    (cons (case (first item)
            (:feature (dependency-name (third item)))
            (:version (dependency-name (second item)))
            (:require (dependency-name (second item)))))))

;;;; A system that ASDF knows

(defun component-children (component)
  "Return the components inside of COMPONENT, of ASDF."
  (let ((children (system-slot component "CHILDREN"))) (and (listp children) children)))

(defun component-files (component)
  "Return the native names of the files of COMPONENT."
  (if (component-children component)
      (mapcan #'component-files (component-children component))
      (let ((file (or (system-slot component "ABSOLUTE-PATHNAME"))))
        (and (pathnamep file) (pathname-name file) (list (shown-file (native-name file)))))))

(defun direct-dependencies (system)
  "Return the names of the systems that SYSTEM, of ASDF, names itself."
  (remove-duplicates (remove nil (mapcar #'dependency-name
                                         (append (system-slot system "DEFSYSTEM-DEPENDS-ON")
                                                 (system-slot system "SIDEWAY-DEPENDENCIES"))))
                     :test #'string= :from-end t))

(defun all-dependencies (names)
  "Return NAMES and the names of all systems that these depend on, as far as ASDF knows them."
  (let ((found '()))
    (labels ((walk (name)
               (unless (or (member name found :test #'string=) (> (length found) 500))
                 (push name found)
                 (let ((system (known-system name)))
                   (when system (mapc #'walk (direct-dependencies system)))))))
      (mapc #'walk names)
      (nreverse found))))

(defun tested-by (system)
  "Return the names of the systems that test SYSTEM, as its IN-ORDER-TO says."
  (loop for (operation . needs) in (let ((order (system-slot system "IN-ORDER-TO"))) (and (listp order) order))
        when (and (symbolp operation) (string= (symbol-name operation) "TEST-OP"))
          append (loop for need in needs
                       when (consp need) append (remove nil (mapcar #'dependency-name (rest need))))))

(defun siblings (name names)
  "Return those of NAMES that belong to the same file as the system NAME."
  (let ((primary (subseq name 0 (position #\/ name))))
    (sort (remove name (remove-if-not (lambda (other) (string= primary (subseq other 0 (position #\/ other)))) names)
                  :test #'string=)
          #'string<)))

(defun facts-line (label &rest facts)
  "Return a line with LABEL and those of FACTS, strings or NIL, that are there; NIL where none is."
  (let ((told (remove nil facts))) (and told (format nil "~a~{~a~^, ~}" label told))))

(defun text-fact (format value)
  "Return FORMAT with VALUE, where that is a text."
  (and (stringp value) (string/= value "") (format nil format (shorten value 300))))

(defun dependency-lines (direct)
  "Return the lines about the dependencies DIRECT, and those below them."
  (let ((below (set-difference (all-dependencies direct) direct :test #'string=))
        (unknown (remove-if #'known-system direct)))
    (list (format nil "Depends on: ~:[nothing~;~:*~a~]" (and direct (folded-names direct)))
          (and below (format nil "and these on: ~a" (folded-names (sort below #'string<) 30)))
          (and unknown (format nil "not known to ASDF yet: ~a" (folded-names unknown))))))

(defun loaded-system-p (system)
  "Tell whether ASDF has loaded SYSTEM: it notes when it did so, in a table by operations."
  (let ((times (system-slot system "OPERATION-TIMES")))
    (and (hash-table-p times)
         (loop for operation being the hash-keys of times
                 thereis (eq (class-of operation) (find-class 'asdf:load-op))))))

(defun system-lines (system)
  "Return the lines about SYSTEM, whose definition ASDF has read."
  (let* ((name (princ-to-string (system-slot system "NAME")))
         (files (component-files system))
         (file (system-slot system "SOURCE-FILE"))
         (tests (tested-by system))
         (others (siblings name (asdf:registered-systems))))
    (append
     (list (format nil "~a: ASDF system~@[, ~a~], ~:[not loaded~;loaded~]~@[, ~a~]" name
                   (text-fact "version ~a" (system-slot system "VERSION"))
                   (loaded-system-p system)
                   (and file (shown-file (native-name file))))
           (text-fact "~a" (system-slot system "DESCRIPTION"))
           (facts-line "" (text-fact "author ~a" (author-text (system-slot system "AUTHOR")))
                       (text-fact "license ~a" (system-slot system "LICENCE"))
                       (text-fact "~a" (system-slot system "HOMEPAGE"))))
     (dependency-lines (direct-dependencies system))
     (list (and files (format nil "Files (~d): ~a" (length files) (folded-names files)))
           (and tests (format nil "Tests: ~a" (folded-names tests)))
           (and others (format nil "Also in that file: ~a" (folded-names others)))))))

(defun author-text (author)
  "Return AUTHOR, a text or a list of them, as one text."
  (if (and (consp author) (every #'stringp author)) (format nil "~{~a~^, ~}" author) author))

;;;; A definition that is only a text

(defun registry-settings ()
  "Return what ASDF makes its source registry of: functions and lists, which the user may have changed."
  (loop for name in '("*DEFAULT-SOURCE-REGISTRIES*" "*SOURCE-REGISTRY-PARAMETER*")
        for symbol = (internal-symbol name "ASDF/SOURCE-REGISTRY")
        collect (and symbol (boundp symbol) (symbol-value symbol))))

(defglobal *own-registries* (registry-settings) "The settings of the source registry before any code of the user's.")

(defun own-registries-p ()
  "Tell whether the source registry can be made without functions of the user's."
  (tree-equal *own-registries* (registry-settings)))

(defun registry-file (name)
  "Return the native name of the .asd file that the source registry of ASDF has for the system NAME, or NIL."
  (let ((primary (subseq name 0 (position #\/ name)))
        (registry (internal-symbol "*SOURCE-REGISTRY*" "ASDF/SOURCE-REGISTRY")))
    (when (own-registries-p) (ignore-errors (asdf:ensure-source-registry)))
    (or (let ((table (and registry (boundp registry) (symbol-value registry))))
          (and (hash-table-p table)
               (let ((file (gethash primary table))) (and file (native-name file)))))
        (loop for place in asdf:*central-registry*
              for file = (and (typep place '(or string pathname))
                              (ignore-errors (probe-file (merge-pathnames (concatenate 'string primary ".asd") place))))
              when file return (native-name file)))))

(defun registry-names ()
  "Return the names of the systems that ASDF knows or could find."
  (let* ((registry (internal-symbol "*SOURCE-REGISTRY*" "ASDF/SOURCE-REGISTRY"))
         (table (and registry (boundp registry) (symbol-value registry))))
    (append (asdf:registered-systems)
            (and (hash-table-p table) (loop for name being the hash-keys of table collect name)))))

(defun system-form-place (text name)
  "Return where in TEXT, of a .asd file, the definition of the system NAME stands, or NIL."
  (let ((place (skip-text-blanks text 0)))
    (loop (when (>= place (length text)) (return nil))
          (let ((found (inner-definition
                        text place
                        (lambda (place)
                          (let ((elements (element-places text place)))
                            (and (second elements)
                                 (search "defsystem" (subseq text (car (first elements)) (cdr (first elements)))
                                         :test #'char-equal)
                                 (string= name (system-label (subseq text (car (second elements))
                                                                     (cdr (second elements)))))))))))
            (when found (return found)))
          (let ((end (skip-form text place)))
            (when (<= end place) (return nil))
            (setf place (skip-text-blanks text end))))))

(defun text-options (text place)
  "Return conses of option and value, as texts, of the definition at PLACE of TEXT."
  (loop for (key value) on (cddr (element-places text place)) by #'cddr
        while value
        collect (cons (string-downcase (subseq text (car key) (cdr key))) (subseq text (car value) (cdr value)))))

(defun option-text (options &rest names)
  "Return the value of the first of NAMES in OPTIONS, without quotes; NIL where there is none."
  (loop for name in names
        for value = (cdr (assoc name options :test #'string=))
        when value return (shorten (string-trim "\"" value) 300)))

(defun read-words (text)
  "Return the words and inner lists, as texts, of TEXT, a list; without those that features rule out."
  (loop for (start . end) in (element-places text 0)
        for place = (read-place text start)
        when (and place (< place end)) collect (subseq text place end)))

(defun text-files (list directory)
  "Return the files that LIST, the text of a list of components in DIRECTORY, names."
  (loop for component in (read-words list)
        for words = (and (char= (char-at component 0) #\() (list-words component))
        for kind = (string-downcase (or (first words) ""))
        for name = (and (second words) (string-trim "\"" (second words)))
        for inner = (second (member ":components" words :test #'string-equal))
        when name
          append (cond (inner (text-files inner (format nil "~a~a/" directory name)))
                       ((string= kind ":file") (list (format nil "~a~a.lisp" directory name)))
                       (t (list (format nil "~a~a" directory name))))))

(defun text-lines (name file)
  "Return the lines about the system NAME, whose definition stands in FILE and was not read by ASDF; NIL without one."
  (let* ((octets (source-octets file))
         (text (and octets (octets-text octets 0 (length octets))))
         (place (and text (system-form-place text name))))
    (when place
      (let* ((options (text-options text place))
             (direct (mapcar #'system-label
                             (append (read-words (or (cdr (assoc ":defsystem-depends-on" options :test #'string=)) "()"))
                                     (read-words (or (cdr (assoc ":depends-on" options :test #'string=)) "()")))))
             (files (text-files (or (cdr (assoc ":components" options :test #'string=)) "()") "")))
        (list (format nil "~a: ASDF system~@[, version ~a~], not loaded, ~a:~d" name (option-text options ":version")
                      (shown-file file) (line-number text place))
              "[read as text: ASDF has not loaded this file, and a look runs no code]"
              (option-text options ":description")
              (facts-line "" (text-fact "author ~a" (option-text options ":author"))
                          (text-fact "license ~a" (option-text options ":license" ":licence")))
              (format nil "Depends on: ~:[nothing~;~:*~a~]" (and direct (folded-names direct)))
              (format nil "Files (~d): ~a" (length files) (folded-names files))
              (text-fact "In order to: ~a" (option-text options ":in-order-to")))))))

;;;; The question

(defun unknown-system (name)
  "Signal that no system is called NAME, with near ones."
  (error 'unknown-name :kind "system" :text name
                       :reason (and (find-named-package (string-upcase name))
                                    "it is a package, not a system")
                       :suggestions (nearest name (registry-names))))

(define-question "describe_system" (request package)
  (declare (ignorable package))
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (name (system-label (request-text request :system)))
         (system (and (string/= name "") (known-system name)))
         (file (and (null system) (string/= name "") (registry-file name)))
         (lines (cond (system (system-lines system))
                      (file (or (text-lines name file)
                                (list (format nil "~a may be defined in ~a: no form there plainly does so." name
                                              (shown-file file)))))
                      (t (unknown-system name)))))
    (answer request (joined lines) "system" name "known" (if system t :false))))
