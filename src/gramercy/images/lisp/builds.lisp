;;;; What ASDF does when it builds a system: when it takes a file for changed, and
;;;; which files it has loaded anew.

(in-package #:gramercy.image)

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

(defmethod asdf:perform :before ((operation asdf:load-op) (component asdf:cl-source-file))
  (setf *component-file* (asdf:component-pathname component)))

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
    (if (gethash file *loaded-files*)
        (push loaded *loaded-again*)
        (setf (gethash file *loaded-files*) t))))

(defun begin-build ()
  "Forget what earlier calls have loaded."
  (setf *loaded-now* '() *loaded-again* '()))

(defconstant +most-files+ 8 "Files named of a system that was loaded again.")

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
