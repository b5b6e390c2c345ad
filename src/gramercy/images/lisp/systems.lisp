;;;; Loading systems: through Quicklisp where it is installed, else through ASDF.
;;;; What a system defines is not the user's own definition.

(in-package #:gramercy.image)

;;;; What ASDF does when it builds a system: when it takes a file for changed, and
;;;; which files it has loaded anew.

(defglobal *loaded-files* (make-hash-table :test 'equal :synchronized t)
  "The names of the source files of systems that were loaded into this image.")
(defglobal *loaded-now* '()
  "Conses of a system's name and a file, newest first, that this call has loaded.")
(defglobal *loaded-again* '()
  "Those of them that had been loaded before.")

;;; Dates

(defconstant +file-status-size+ 256 "Octets of struct statx of Linux.")
(defconstant +write-time-offset+ 112 "Where the time of the last change stands in it: seconds, then nanoseconds.")
(defconstant +here+ -100 "AT_FDCWD of Linux.")
(defconstant +wanted-times+ #x40 "STATX_MTIME of Linux.")

(defun write-nanoseconds (file)
  "Return the part of a second in which FILE was written, in nanoseconds; 0 where the system does not tell."
  (sb-alien:with-alien ((status (array (sb-alien:unsigned 8) #.+file-status-size+)))
    (if (zerop (sb-alien:alien-funcall
                (sb-alien:extern-alien "statx" (function sb-alien:int sb-alien:int sb-alien:c-string sb-alien:int
                                                         sb-alien:unsigned-int sb-sys:system-area-pointer))
                +here+ (sb-ext:native-namestring file) 0 +wanted-times+ (sb-alien:alien-sap status)))
        (sb-sys:sap-ref-32 (sb-alien:alien-sap status) (+ +write-time-offset+ 8))
        0)))

(defun sharpen-dates ()
  "Let ASDF compare the dates of files by nanoseconds, not seconds: an edit right after a build is an edit.
Done once, before the core is saved. ASDF compares these dates with each other and with nothing else."
  (wrap (internal-symbol "COMPUTE-FILE-STAMP" "ASDF/SESSION")
        (lambda (original file)
          (let ((date (funcall original file)))
            (if (integerp date)
                (+ (* date 1000000000) (or (ignore-errors (write-nanoseconds file)) 0))
                date)))))

;;; What was loaded

(defglobal *component-file* nil "The source of the component that ASDF has begun to load last, or NIL.")

(defglobal *component-code* nil "The number of the first code object that it makes.")

(defmethod asdf:perform :before ((operation asdf:load-op) (component asdf:cl-source-file))
  (setf *component-file* (asdf:component-pathname component)
        *component-code* (next-code)))

(defun component-source (compiled)
  "Return the native name of the source of the file COMPILED, where it is a component's that ASDF loads now; else NIL."
  (let ((source *component-file*))
    (and source
         (string/= (pathname-type compiled) (pathname-type source))
         (equal (pathname-name compiled) (pathname-name source))
         (sb-ext:native-namestring source))))

(defmethod asdf:perform :after ((operation #.(or (internal-symbol "BASIC-LOAD-OP" "ASDF/LISP-ACTION") 'asdf:load-op))
                                (component asdf:cl-source-file))
  (let* ((file (sb-ext:native-namestring (asdf:component-pathname component)))
         (loaded (cons (asdf:component-name (asdf:component-system component)) file)))
    (push loaded *loaded-now*)
    (when (kept-file-p file)
      (keep-version file (file-octets (asdf:component-pathname component)) *component-code* t))
    (if (gethash file *loaded-files*)
        (push loaded *loaded-again*)
        (setf (gethash file *loaded-files*) t))))

(defun begin-build ()
  "Forget what earlier calls have loaded."
  (setf *loaded-now* '() *loaded-again* '()))

(defconstant +most-files+ 8 "Files named of a system that was loaded again; the rest is counted.")

(defun base-name (file)
  "Return FILE, a native name, without its directory."
  (subseq file (1+ (or (position #\/ file :from-end t) -1))))

(defun reloaded-texts ()
  "Return for each system that this call has loaded again its name and those of its files, in the order of loading."
  (loop with pairs = (reverse *loaded-again*)
        for system in (remove-duplicates (mapcar #'car pairs) :test #'string= :from-end t)
        for files = (loop for (name . file) in pairs when (string= name system) collect (base-name file))
        collect (format nil "~a (~{~a~^, ~}~@[ and ~d more~])" system
                        (subseq files 0 (min +most-files+ (length files)))
                        (and (> (length files) +most-files+) (- (length files) +most-files+)))))

;;; Which warnings are worth telling

(defun editable-p (file)
  "Tell whether FILE, a native name, is for the user to edit: not where packages of the system are installed."
  (and (not (eql 5 (mismatch "/usr/" file)))
       (ignore-errors (sb-posix:access file sb-posix:w-ok) t)))

(defun inside-p (file directory)
  "Tell whether FILE, a native name, lies below DIRECTORY, a pathname."
  (let ((prefix (ignore-errors (sb-ext:native-namestring (truename directory)))))
    (and prefix (eql (length prefix) (mismatch prefix file)))))

(defun own-file-p (file system)
  "Tell whether FILE is the user's own: one to be edited, of the project or of the SYSTEM that was asked for."
  (and file
       (editable-p file)
       (or (inside-p file (concatenate 'string (sb-posix:getcwd) "/"))
           (inside-p file (ignore-errors (asdf:system-source-directory system))))))

;;;; Loading

(defun quicklisp-loader ()
  "Return the function that loads a system with Quicklisp, or NIL where there is no Quicklisp."
  (quicklisp-there-p)
  (internal-function "QUICKLOAD" "QUICKLISP-CLIENT"))

(defstruct (build (:copier nil))
  "What is to be told of the loading of one system."
  (name "" :type string)
  (source (make-source) :type source)
  (left-out 0 :type index)
  condition)

(defun wanted-notice-p (build kind file)
  "Tell whether a notice of KIND about FILE is to be told: of libraries only what is more than a matter of style."
  (or (not (member kind '("style-warning" "note") :test #'string=))
      (own-file-p file (build-name build))
      (progn (when (string= kind "style-warning") (incf (build-left-out build))) nil)))

(defun name-cache ()
  "Let UIOP name the directory where compiled files really go: libraries find the source of one by it."
  (let ((place (asdf:apply-output-translations (parse-namestring "/x.lisp"))))
    (setf uiop:*user-cache* (make-pathname :name nil :type nil :version nil :defaults place))))

(defun load-quietly (build)
  "Load the system of BUILD, and keep the warnings and the latest error."
  (let ((*untracked* t)
        (*compile-verbose* nil) (*compile-print* nil) (*load-verbose* nil)
        (quickload (quicklisp-loader))
        (name (build-name build)))
    (ignore-errors (name-cache))
    (setf (source-wanted (build-source build)) (lambda (kind file) (wanted-notice-p build kind file)))
    (call-collecting-warnings
     (build-source build)
     (lambda ()
       (handler-bind ((error (lambda (condition) (setf (build-condition build) condition))))
         (if quickload
             ;; Quicklisp muffles warnings unless it is verbose; what it says then is kept off the output.
             (funcall quickload name :silent t :verbose t :allow-other-keys t)
             (asdf:load-system name :verbose nil)))))))

(defun system-version (name)
  "Return the version that the system NAME declares, or NIL."
  (let ((system (ignore-errors (asdf:find-system name nil))))
    (and system
         (let ((version (ignore-errors (asdf:component-version system))))
           (and (stringp version) version)))))

(defun missing-p (name fault)
  "Tell whether FAULT says that the system NAME itself does not exist."
  (and (member (getf-text fault "type")
               '("QUICKLISP-CLIENT:SYSTEM-NOT-FOUND" "ASDF/FIND-COMPONENT:MISSING-COMPONENT")
               :test #'equal)
       (null (ignore-errors (asdf:find-system name nil)))))

(defun near-systems (name)
  "Return the names of systems that are close to NAME."
  (ignore-errors (nearest name (known-systems))))

(defun known-systems ()
  "Return the names of systems that are loaded, or whose definitions lie where ASDF looks."
  (let ((registry (internal-symbol "*SOURCE-REGISTRY*" "ASDF/SOURCE-REGISTRY")))
    (remove-duplicates
     (append (asdf:registered-systems)
             (loop for directory in (project-directories)
                   append (mapcar #'pathname-name
                                  (directory (merge-pathnames "*.asd" (sb-ext:parse-native-namestring directory)))))
             (let ((table (and registry (boundp registry) (symbol-value registry))))
               (and (hash-table-p table) (loop for name being the hash-keys of table collect name))))
     :test #'string=)))

(defun missing-fault (name fault)
  "Return FAULT as a plain sentence: there is no system NAME."
  (list "type" (getf-text fault "type")
        "message" (format nil "System \"~a\" not found." name)
        "suggestions" (cons :array (near-systems name))))

(defun missing-part (name condition)
  "Return what the reader NAME of ASDF's, which it does not export, tells of CONDITION."
  (let ((reader (internal-function name "ASDF/FIND-COMPONENT")))
    (and reader (funcall reader condition))))

(defun dependency-fault (condition fault)
  "Return FAULT, made of CONDITION, as a plain sentence: a system that another needs is missing."
  (let ((missing (string-downcase (princ-to-string (missing-part "MISSING-REQUIRES" condition))))
        (wanting (asdf:component-name (asdf:component-system (missing-part "MISSING-REQUIRED-BY" condition)))))
    (list "type" (getf-text fault "type")
          "message" (format nil "System \"~a\" not found; system \"~a\" needs it." missing wanting)
          "suggestions" (cons :array (near-systems missing)))))

(defun failures (source)
  "Return those notices of SOURCE for which a file does not count as compiled; errors first."
  (let ((notices (settled-notices source)))
    (append (remove "error" notices :key #'notice-kind :test-not #'string=)
            (remove "warning" notices :key #'notice-kind :test-not #'string=))))

(defun compilation-fault (build fault)
  "Return FAULT, which says that a file of BUILD was not compiled, with what is wrong in it and where."
  (let* ((failures (failures (build-source build)))
         (first (first failures)))
    (if (null first)
        fault
        (append (list "type" (getf-text fault "type")
                      "message" (format nil "System \"~a\" was not loaded: it could not be compiled.~%~{~a~^~%~}"
                                        (build-name build)
                                        (append (mapcar #'notice-line-text (told-failures failures))
                                                (structure-advice failures))))
                (place-members (notice-source-place first))))))

(defun told-failures (failures)
  "Return those of FAILURES that the message of a failed compilation tells."
  (subseq failures 0 (min 10 (length failures))))

(defun structure-advice (failures)
  "Return what to do where FAILURES say that a structure is laid out otherwise than in this image."
  (and (find-if (lambda (notice) (search "layout of #<STRUCTURE" (notice-message notice))) failures)
       (list "The image has this structure with other slots. Begin anew with reset-session; or evaluate the new
DEFSTRUCT by itself, go on with its restart CONTINUE, which invalidates the instances that there are, and load again.")))

;;; Each warning once

(defglobal *told-notices* (make-hash-table :test 'equal)
  "Lists of the file, line and message of warnings that were told, and the octets that the file had.")

(defun news-p (notice)
  "Tell whether NOTICE was not told before about the same text of its file, and note that it is told."
  (let* ((file (notice-file notice))
         (octets (and file (source-octets file)))
         (key (list file (notice-line notice) (notice-message notice))))
    (or (null octets)
        (not (equalp octets (shiftf (gethash key *told-notices*) octets))))))

(defun forget-repetitions (build fault)
  "Let the warnings of BUILD be those that neither an earlier reply nor the message of FAULT tells."
  (let* ((source (build-source build))
         (failed (and fault (typep (build-condition build) 'uiop:compile-file-error)
                      (told-failures (failures source)))))
    (progv '(*file-texts*) (list (make-hash-table :test 'equal))
      (when (> (hash-table-count *told-notices*) 2000) (clrhash *told-notices*))
      (setf (source-warnings source)
            (remove-if (lambda (notice) (or (member notice failed) (not (news-p notice))))
                       (source-warnings source))))))

(defun notice-line-text (notice)
  "Return one line that tells where NOTICE is and what it says."
  (let* ((message (string-right-trim " " (substitute #\Space #\Newline (notice-message notice))))
         (file (notice-file notice)))
    (if (or (null file) (starts-with-p (shown-file file) message))
        message
        (format nil "~a~@[:~d~]: ~a" (shown-file file) (notice-line notice) message))))

(defun notice-source-place (notice)
  "Return the place of NOTICE with the text of its line, or NIL where it is in no file."
  (when (notice-file notice)
    (let ((file (sb-ext:parse-native-namestring (notice-file notice)))
          (line (notice-line notice)))
      (make-place :file (notice-file notice) :line line
                  :text (and line (file-line-text file line))))))

(defun definition-fault (build condition fault)
  "Return FAULT, made of CONDITION, with the place in the file that should define the system of BUILD."
  (let* ((reader (internal-function "ERROR-CONDITION" "ASDF/FIND-SYSTEM"))
         (inner (and reader (ignore-errors (funcall reader condition)))))
    (if (typep inner 'condition)
        (append (list "type" (getf-text fault "type")
                      "message" (format nil "The definition of system \"~a\" cannot be loaded: ~a"
                                        (build-name build) (condition-message inner)))
                (if (input-error-p inner)
                    (place-members (ignore-errors (input-error-place inner)))
                    (list "file" (getf-text fault "file") "line" (getf-text fault "line"))))
        fault)))

(defun system-fault (build fault)
  "Return FAULT, which ended BUILD, in plain sentences as far as its kind is known."
  (let ((condition (build-condition build)))
    (cond ((library-fault (build-name build) fault))
          ((missing-p (build-name build) fault) (missing-fault (build-name build) fault))
          ((or (null condition) (not (equal (condition-type-name condition) (getf-text fault "type")))) fault)
          ((and (typep condition 'asdf:missing-dependency)
                (not (typep condition 'asdf:missing-dependency-of-version))
                (missing-part "MISSING-REQUIRED-BY" condition))
           (dependency-fault condition fault))
          ((typep condition 'uiop:compile-file-error) (compilation-fault build fault))
          ((typep condition 'asdf:load-system-definition-error) (definition-fault build condition fault))
          (t (placed-fault fault)))))

(defun placed-fault (fault)
  "Return FAULT, of a form of a file, with the place first in its message."
  (let ((file (getf-text fault "file")) (line (getf-text fault "line")) (message (getf-text fault "message")))
    (when (and file line (not (starts-with-p file message)))
      (setf (getf-text fault "message") (format nil "~a:~d: ~a" file line message)
            (getf-text fault "text") nil))
    fault))

(defun note-build (build)
  "Put into the journal that BUILD has changed the image, and that this is not taken back."
  (when *loaded-now*
    (add-entry (make-entry :label (build-name build)
                           :notes (list (format nil "The loading of the system ~a is not taken back."
                                                (build-name build)))))))

(defun put-build (request build fault started)
  "Write the reply to REQUEST about BUILD, which FAULT has ended or nothing."
  (put-reply-start (getf request :id) (null fault))
  (put-more-members (list "error" (and fault (cons :object (or (ignore-errors (system-fault build fault)) fault)))
                          "name" (build-name build)
                          "version" (and (null fault) (system-version (build-name build)))
                          "package" (display-package-name *current-package*)))
  (put-output)
  (ignore-errors (forget-repetitions build fault))
  (put-warnings (build-source build))
  (put-notes (append (ignore-errors (stale-notes))
                     (remove nil (list (counted-notes (build-source build))))
                     (compilation-notes (/ (- (microseconds) started) 1e6))))
  (when *loaded-again* (put-more-members (list "reloaded" (cons :array (reloaded-texts)))))
  (put-effects)
  (let ((warnings (+ (build-left-out build) (source-warning-count (build-source build)))))
    (when (or (plusp (build-left-out build)) (> warnings +most-warnings+))
      (put-more-members (list "truncated" (list :object "warnings" warnings)))))
  (put-ending started))

(define-operation "load_system" (request)
  (let ((build (make-build :name (string-downcase (trimmed-system (request-text request :system)))))
        (started (microseconds))
        (*package* (user-package)))
    (with-user-streams ((request-count request :limit +default-limit+) (getf request :id))
      (prepare-for-user-code)
      (begin-build)
      (forget-compilation)
      (let ((fault (call-guarded (lambda () (load-quietly build)))))
        (note-build build)
        (flush-log)
        (put-build request build fault started)))
    (send-frame)))

(defun trimmed-system (text)
  "Return the name of a system without the marks of a symbol or a string around it."
  (string-trim '(#\Space #\Tab #\Newline #\: #\# #\") text))
