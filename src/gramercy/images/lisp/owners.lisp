;;;; To whom a name belongs (to the user, to a library, to SBCL, or to us), how it is
;;;; written so that it can be given back as it is, and how long lists of names are
;;;; folded into counts. What is ours is never told.

(in-package #:gramercy.image)

(defconstant +longest-name+ 300 "Characters shown of one name; people's own are far shorter.")
(defconstant +most-packages-told+ 6 "Packages named where names are folded into counts: the largest say enough.")

;;;; Owners

(defglobal *system-packages* (make-hash-table :test 'eq)
  "The packages that were there before any code of the user's: those of SBCL and ASDF.")

(defun note-system-packages ()
  "Take all packages for SBCL's that exist now. Done once, before the core is saved."
  (dolist (package (list-all-packages))
    (unless (or (own-package-p package) (string= (package-name package) "COMMON-LISP-USER"))
      (setf (gethash package *system-packages*) t))))

(defvar *owners* nil "Packages and their owners as far as this question has asked for them, or NIL.")
(defvar *view* '() "The packages from which the names of this answer have to be understood.")

(defun own-package-p (package)
  "Tell whether PACKAGE is ours."
  (eq package (load-time-value *package*)))

(defun starts-with-p (start text)
  "Tell whether TEXT begins with START."
  (let ((end (mismatch start text)))
    (or (null end) (= end (length start)))))

(defun project-file-p (file)
  "Tell whether the native name FILE lies in the directory that the image works in."
  (starts-with-p (concatenate 'string (string-right-trim "/" (sb-posix:getcwd)) "/") file))

(defun users-package-p (package)
  "Tell whether the user has made PACKAGE, in the session or in a file of the project."
  (or (string= (package-name package) "COMMON-LISP-USER")
      (gethash (cons :package (package-name package)) *definitions*)
      (let ((source (source-of package)))
        (and source
             (sb-introspect:definition-source-pathname source)
             (project-file-p (native-name (sb-introspect:definition-source-pathname source)))))))

(defun find-owner (package)
  "Return :USER, :LIBRARY, :SYSTEM or :OURS for PACKAGE."
  (cond ((or (null package) (null (package-name package))) :user)
        ((own-package-p package) :ours)
        ((system-package-p package) :system)
        ((users-package-p package) :user)
        (t :library)))

(defun system-package-p (package)
  "Tell whether PACKAGE is one of SBCL's or ASDF's, also of a part that was loaded later."
  (or (gethash package *system-packages*) (starts-with-p "SB-" (package-name package))))

(defun package-owner (package)
  "Return the owner of PACKAGE; a question asks for it once."
  (if *owners*
      (or (gethash package *owners*) (setf (gethash package *owners*) (find-owner package)))
      (find-owner package)))

(defun owner-rank (owner)
  "Return the place of OWNER in lists: what is the user's own comes first."
  (ecase owner (:user 0) (:library 1) (:system 2) (:ours 3)))

(defun name-symbols (name)
  "Return the symbols that the function name NAME mentions."
  (let ((symbols '()))
    (name-mentions-p name (lambda (symbol) (push symbol symbols) nil))
    symbols))

(defun name-owner (name)
  "Return the owner of what is called NAME, a symbol or a list. A method of PRINT-OBJECT on a class of the user's is
the user's."
  (let ((owners (mapcar (lambda (symbol) (package-owner (symbol-package symbol))) (name-symbols name))))
    (cond ((member :ours owners) :ours)
          ((null owners) :user)
          (t (first (sort owners #'< :key #'owner-rank))))))

(defun name-package (name)
  "Return the package under which NAME, a symbol or a list, is counted: that of its owner."
  (let ((owner (name-owner name)))
    (loop for symbol in (reverse (name-symbols name))
          when (eq owner (package-owner (symbol-package symbol)))
            return (symbol-package symbol))))

;;;; Names as they are shown

(defun visible-p (symbol package)
  "Tell whether SYMBOL is what its name means in PACKAGE."
  (multiple-value-bind (found status) (find-symbol (symbol-name symbol) package)
    (and status (eq found symbol))))

(defun shown-symbol (symbol)
  "Return SYMBOL as it can be given back: with its package, unless this question sees it without."
  (let ((package (symbol-package symbol)))
    (cond ((or (keywordp symbol) (null package)) (qualified-name symbol))
          ((every (lambda (view) (visible-p symbol view)) *view*) (symbol-token symbol))
          ((eq package (find-package :common-lisp)) (concatenate 'string "CL:" (symbol-token symbol)))
          (t (qualified-name symbol)))))

(defun shown-name (name)
  "Return the function name NAME as it can be given back. What a method compiles to is told as the method."
  (cond ((symbolp name) (shorten (shown-symbol name) +longest-name+))
        ((typep name '(cons symbol))
         (shorten (if (and (rest name) (member (symbol-name (first name)) '("FAST-METHOD" "SLOW-METHOD")
                                               :test #'string=))
                      (format nil "(METHOD ~{~a~^ ~})" (mapcar #'expression-text (rest name)))
                      (expression-text name))
                  +longest-name+))
        (t (plain-text name +longest-name+))))

(defun shorten (text limit)
  "Return TEXT, or its first LIMIT characters and how many there are."
  (if (<= (length text) limit)
      text
      (format nil "~a… [~:d of ~:d characters]" (subseq text 0 limit) limit (length text))))

(defun expression-text (form &optional (limit +longest-name+))
  "Return the text of FORM, a piece of code, with names as they can be given back and 'X for (QUOTE X)."
  (let ((*plain-symbols* #'shown-symbol))
    (plain-text form limit)))

(defun class-label (class)
  "Return how CLASS is called for people, also one without a proper name."
  (let ((name (ignore-errors (stored-name class))))
    (if (and name (symbolp name)) (shown-name name) "an anonymous class")))

;;;; Documentation. The standard's function is generic, and may have methods of the
;;;; user's on names of theirs; SBCL's own methods only read what is stored.

(defglobal *documentation-methods* '()
  "What SBCL's own methods of DOCUMENTATION are: lists of the class or the object for each argument, and the function.")

(defun note-documentation-methods ()
  "Take the methods of DOCUMENTATION that exist now for SBCL's. Done once, before the core is saved."
  (setf *documentation-methods*
        (loop for method in (stored-methods #'documentation)
              collect (list (mapcar #'specializer-test (stored-specializers method))
                            (sb-mop:method-function method)))))

(defun specializer-test (specializer)
  "Return a function that tells whether SPECIALIZER, one of SBCL's own, means an object."
  (if (class-p specializer)
      (let ((classoid (sb-kernel:find-classoid (stored-name specializer))))
        (if (eq specializer (find-class t))
            (constantly t)
            (lambda (object)
              (if (eq specializer (find-class 'list)) (listp object) (of-classoid-p object classoid)))))
      (let ((own (stored-object specializer))) (lambda (object) (eql object own)))))

(defun documented-object (object kind)
  "Return the generic function that OBJECT names as KIND, which holds its documentation itself; else OBJECT."
  (let ((function (and (eq kind 'function) (or (symbolp object) (consp object)) (fboundp object)
                       (not (and (symbolp object) (or (macro-function object) (special-operator-p object))))
                       (fdefinition object))))
    (if (generic-function-p function) function object)))

(defun holds-documentation-p (object)
  "Tell whether OBJECT is a metaobject that holds its documentation in a slot."
  (or (kind-p object sb-mop:standard-slot-definition)
      (kind-p object standard-method)
      (kind-p object generic-function)
      (kind-p object method-combination)
      (and (class-p object) (not (structure-class-p object)) (not (condition-class-p object)))))

(defun plain-documentation (object kind)
  "Return the documentation string of OBJECT as KIND, or NIL. Runs no method of the user's."
  (let ((object (documented-object object kind)))
    (cond ((holds-documentation-p object) (stored-documentation object))
          ((class-p object) (stored-documentation-of-type (stored-name object)))
          (t (loop for (tests function) in *documentation-methods*
                   for text = (and (funcall (first tests) object) (funcall (second tests) kind)
                                   (ignore-errors
                                    (handler-bind ((warning #'muffle-warning))
                                      (funcall (the function function) (list object kind) '()))))
                   when (and (stringp text) (string/= text "")) return text)))))

(defun stored-documentation-of-type (name)
  "Return the documentation that the compiler's database has for the type NAME: that of structures and conditions."
  (let ((look-up (internal-function "INFO" "SB-INT")))
    (and look-up (ignore-errors (values (funcall look-up :type :documentation name))))))

;;;; Folding

(defun lines (format items)
  "Return one line for each of ITEMS, formatted with FORMAT."
  (format nil "~{~a~^~%~}" (mapcar (lambda (item) (format nil format item)) items)))

(defun joined (texts)
  "Return TEXTS, NIL among them left out, as lines."
  (format nil "~{~a~^~%~}" (remove nil texts)))

(defun package-counts (names)
  "Return lists of a package and how many of NAMES, symbols or lists, belong to it; the largest first."
  (let ((counts (make-hash-table :test 'eq)))
    (dolist (name names)
      (incf (gethash (if (symbolp name) (symbol-package name) (name-package name)) counts 0)))
    (sort (loop for package being the hash-keys of counts using (hash-value count) collect (list package count))
          (lambda (one other)
            (or (> (second one) (second other))
                (and (= (second one) (second other))
                     (string< (package-label (first one)) (package-label (first other)))))))))

(defun package-label (package)
  "Return how PACKAGE, or none, is called."
  (if package (display-package-name package) "no package"))

(defun counts-text (names)
  "Return how many of NAMES belong to which packages, in words."
  (let* ((counts (package-counts names))
         (told (subseq counts 0 (min +most-packages-told+ (length counts)))))
    (format nil "~:d in ~d package~:p (~{~a ~:d~^, ~}~:[~;, …~])" (length names) (length counts)
            (loop for (package count) in told collect (package-label package) collect count)
            (> (length counts) (length told)))))

(defun fitting (lines room)
  "Return the first of LINES, strings, that fit into ROOM characters, and how many do."
  (let ((shown (loop for line in lines
                     do (decf room (1+ (length line)))
                     while (>= room 0)
                     collect line)))
    (values shown (length shown))))

(defvar *hidden* nil "Packages and whether they are hidden, as far as this question has asked, or NIL.")

(defun hidden-package-p (package)
  "Tell whether PACKAGE is one of those of SBCL that it calls private or internal itself, for all that they export.
A question looks it up once."
  (flet ((hidden-p ()
           (let ((text (and (gethash package *system-packages*) (plain-documentation package t))))
             (and (stringp text) (or (starts-with-p "private" text) (starts-with-p "internal" text))))))
    (if *hidden*
        (multiple-value-bind (known found) (gethash package *hidden*)
          (if found known (setf (gethash package *hidden*) (hidden-p))))
        (hidden-p))))

(defun exported-p (symbol)
  "Tell whether SYMBOL is exported from its own package, for others to use."
  (let ((package (symbol-package symbol)))
    (and package
         (eq :external (nth-value 1 (find-symbol (symbol-name symbol) package)))
         (not (hidden-package-p package)))))

(defun internal-name-p (name)
  "Tell whether NAME is one of SBCL's, and no symbol in it is exported."
  (and (eq :system (name-owner name)) (notany #'exported-p (name-symbols name))))

(defmacro define-question (name (request package) &body body)
  "Define what is answered to requests whose op is NAME, seen from PACKAGE; BODY has to reply. It runs no user code."
  `(define-look ,name (,request)
     (let* ((,package (question-package ,request))
            (*view* (adjoin ,package (if (package-name *current-package*) (list *current-package*) '())))
            (*owners* (make-hash-table :test 'eq))
            (*hidden* (make-hash-table :test 'eq)))
       ,@body)))
