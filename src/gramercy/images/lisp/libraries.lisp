;;;; What an image has beside its project: Quicklisp, which is set up when it is
;;;; first needed; systems that came to be after ASDF had looked for them; and the
;;;; user's init file. Where all that is, the parent says in the command line.

(in-package #:gramercy.image)

(defglobal *quicklisp-setup* nil "The file that sets up Quicklisp, or NIL where there is none or it was loaded.")
(defglobal *init-file* nil "The file to load before the first request, or NIL.")
(defglobal *start-notes* '() "What the user should know of how this process began.")

(defconstant +init-seconds+ 120
  "Seconds for the init file: it runs before the hello, so the parent cannot interrupt it.")

(defun take-options (words)
  "Note the options among WORDS, names and values in turn; return those that are not known here."
  (setf *quicklisp-setup* nil *init-file* nil *start-notes* '())
  (loop for (name value) on words by #'cddr
        if (string= name "--quicklisp") do (setf *quicklisp-setup* value)
        else if (string= name "--init") do (setf *init-file* value)
        ;; A declaration of the user's counts more, as the later one.
        else if (string= name "--debug") do (proclaim `(optimize (debug ,(parse-integer value))))
        else append (list name value)))

(defun load-plainly (file)
  "Load FILE, a native name, as definitions that are not the user's."
  (let ((*untracked* t)
        (*package* (find-package :common-lisp-user))
        (*readtable* *readtable*)
        (*compile-verbose* nil) (*compile-print* nil) (*load-verbose* nil) (*load-print* nil))
    (load (sb-ext:parse-native-namestring file))))

;;; Quicklisp

(defun quicklisp-there-p ()
  "Tell whether Quicklisp is loaded; where it can be, load it first."
  ;; Tried once: what fails now would fail at every search.
  (let ((setup (and (not (find-package "QUICKLISP-CLIENT")) (shiftf *quicklisp-setup* nil))))
    (when setup
      (handler-case (handler-bind ((warning #'muffle-warning)
                                   (sb-ext:compiler-note #'muffle-warning))
                      (load-plainly setup))
        (error (condition)
          (format *error-output* "~&Quicklisp cannot be set up by ~a: ~a~%" setup (condition-message condition))))
      (search-without-index))
    (and (find-package "QUICKLISP-CLIENT") t)))

(defun search-without-index ()
  "Let Quicklisp go on where it may not write the index of its local projects: ASDF finds them by itself."
  (wrap (internal-symbol "LOCAL-PROJECTS-SEARCHER" "QUICKLISP-CLIENT")
        (lambda (original &rest arguments)
          (handler-case (apply original arguments)
            ((or file-error stream-error sb-posix:syscall-error) () nil)))))

(defun quicklisp-name-p (name)
  "Tell whether NAME, of a package, is one of Quicklisp's."
  (and (stringp name) (member name '("QL" "QUICKLISP" "QUICKLISP-CLIENT" "QL-DIST" "QL-SETUP") :test #'string=)))

(defun watch-quicklisp-names ()
  "Set Quicklisp up when the reader meets QL: for the first time."
  (wrap (internal-symbol "READER-FIND-PACKAGE" "SB-IMPL")
        (lambda (original name &rest arguments)
          (when (and *quicklisp-setup* (quicklisp-name-p name)) (quicklisp-there-p))
          (apply original name arguments))))

(defun with-quicklisp-hint (condition text)
  "Return TEXT, of CONDITION; where a package of Quicklisp's is missing, with what loads systems without it."
  (if (and (typep condition 'package-error) (quicklisp-name-p (ignore-errors (package-error-package condition))))
      (format nil "~a~%There is no Quicklisp here. The tool load-system, or (asdf:load-system \"NAME\"), loads what ~
                   lies where ASDF looks." (without-position text))
      text))

(defun lacking-releases (name)
  "Return the systems that Quicklisp would have to install before it could load the system NAME."
  (let ((find (internal-function "FIND-SYSTEM" "QL-DIST"))
        (installed-p (internal-function "INSTALLEDP" "QL-DIST"))
        (required (internal-function "REQUIRED-SYSTEMS" "QL-DIST"))
        (seen '()) (lacking '()))
    (labels ((look (name)
               (unless (member name seen :test #'equal)
                 (push name seen)
                 (let ((system (funcall find name)))
                   (when system
                     (unless (funcall installed-p system) (push name lacking))
                     (mapc #'look (funcall required system)))))))
      (when (and find installed-p required) (ignore-errors (look name))))
    (nreverse lacking)))

;;; What ASDF does not find

(defun project-directories ()
  "Return the native names of the directories of the project in which ASDF looks for systems."
  (ignore-errors
   (let ((*read-eval* nil))
     (loop for entry in (read-from-string (sb-posix:getenv "CL_SOURCE_REGISTRY"))
           when (and (consp entry) (eq (first entry) :directory) (stringp (second entry)))
             collect (second entry)))))

(defun find-new-definition (name)
  "Return the file that defines the system NAME, where it is newer than ASDF's list of files."
  (let ((file (concatenate 'string (asdf:primary-system-name name) ".asd")))
    (loop for directory in (project-directories)
          thereis (ignore-errors
                   (probe-file (sb-ext:parse-native-namestring (concatenate 'string directory file)))))))

(defun find-late-system (name)
  "Find the system NAME for ASDF where its own functions did not."
  (or (find-new-definition name)
      (let ((before asdf:*system-definition-search-functions*))
        (when (and *quicklisp-setup* (quicklisp-there-p))
          (some (lambda (function) (and (not (member function before)) (funcall function name)))
                asdf:*system-definition-search-functions*)))))

(defun extend-search ()
  "Let ASDF ask us last."
  (setf asdf:*system-definition-search-functions*
        (append (remove 'find-late-system asdf:*system-definition-search-functions*) '(find-late-system))))

;;; The init file

(defun load-init-file ()
  "Load the user's init file, if there is one; note in one line what went wrong."
  (let ((file (shiftf *init-file* nil)))
    (when file
      (let ((reason (init-failure file)))
        (when reason (setf *start-notes* (list (format nil "The init file ~a ~a" file reason))))))))

(defun init-failure (file)
  "Load FILE; return NIL, or the words that say what ended it."
  (block loading
    (flet ((fail (condition &optional hook)
             (declare (ignore hook))
             (return-from loading (failure-words file condition))))
      (let ((sb-ext:*invoke-debugger-hook* #'fail))
        (handler-bind ((sb-ext:timeout
                         (lambda (condition)
                           (declare (ignore condition))
                           (return-from loading
                             (format nil "was stopped after ~d s; what it did before stays." +init-seconds+))))
                       (serious-condition #'fail))
          (catch (internal-symbol "%END-OF-THE-WORLD" "SB-IMPL")
            (sb-ext:with-timeout +init-seconds+ (load-plainly file))
            (return-from loading nil))
          (let ((mark (internal-symbol "*EXIT-IN-PROGRESS*" "SB-IMPL")))
            (when mark (setf (symbol-value mark) nil)))
          "called EXIT; what it did before stays.")))))

(defun failure-words (file condition)
  "Return in one line where and how CONDITION ended the loading of FILE."
  (let ((place (fault-place condition)))
    (format nil "failed~@[ ~a~]; what came before it is loaded. ~a: ~a"
            (cond ((null place) nil)
                  ((string/= (place-file place) file) (format nil "at ~a" (place-text-of place)))
                  ((place-line place) (format nil "in line ~d" (place-line place))))
            (condition-type-name condition) (one-line (condition-message condition)))))

(defun one-line (text)
  "Return TEXT with single spaces in place of line ends and more."
  (string-trim " " (with-output-to-string (result)
                     (loop for character across text
                           for last = #\Space then told
                           for told = (if (char<= character #\Space) #\Space character)
                           unless (and (char= told #\Space) (char= last #\Space))
                             do (write-char told result)))))

;;; Faults that have to do with it

(defun library-fault (name fault)
  "Return FAULT, which ended the loading of the system NAME, in plainer words where Quicklisp is to blame, else NIL."
  (let ((lacking (and (not (eq t (getf-text fault "interrupted"))) (lacking-releases name))))
    (and lacking (lacking-release-fault fault lacking))))

(defun lacking-release-fault (fault lacking)
  "Return FAULT with a sentence about the systems LACKING, which Quicklisp knows and has not installed."
  (list "type" (getf-text fault "type")
        "message" (format nil "Quicklisp has not installed ~{~a~^, ~} yet, and this image could not do it (~a). ~
                               An image has no network and only reads Quicklisp, unless it was started otherwise: ~
                               call (ql:quickload ~s) in an SBCL of your own first."
                          lacking (one-line (or (getf-text fault "message") "")) (first lacking))))

;;; What is being compiled

(defconstant +most-announced+ 500 "Files that the watcher is told of: the memory for it is bounded.")

(defconstant +long-compilation+ 5 "Seconds from which on a reply tells of it: the user may wonder what took so long.")

(defglobal *compiled-count* 0 "How many files were compiled in this request.")
(defglobal *compiled-last* nil "The last of them.")

(defvar *compiler-output* nil "The file that is being compiled to, or NIL.")

(defun watch-compilation ()
  "Show the parent what is being compiled. The reply has none of it, since it was not written to a stream."
  (wrap (internal-symbol "COMPILE-FILE*" "UIOP")
        (lambda (original input &rest arguments)
          (ignore-errors (announce-compilation (sb-ext:native-namestring input)))
          (let ((*compiler-output* (getf arguments :output-file)))
            (apply original input arguments)))))

(defun keep-until-replaced ()
  "Let ASDF not delete a compiled file before it renames the new one to it: another image may be about to load it."
  (wrap (internal-symbol "DELETE-FILE-IF-EXISTS" "UIOP")
        (lambda (original file)
          (unless (and file *compiler-output*
                       (ignore-errors (equal (sb-ext:native-namestring file)
                                             (sb-ext:native-namestring *compiler-output*))))
            (funcall original file)))))

(defun name-temporary-files-apart ()
  "Let each image choose other names for its temporary files: they share a cache, and all begin with one random state."
  (wrap (internal-symbol "TMPIZE-PATHNAME" "UIOP")
        (lambda (original &rest arguments)
          (let ((*random-state* (make-random-state t)))
            (apply original arguments)))))

(defun announce-compilation (file)
  "Write into the mirror that FILE is being compiled."
  (setf *compiled-last* file)
  (when (<= (incf *compiled-count*) +most-announced+)
    (let ((line (format nil "compiling ~a~%" file)))
      (mirror-text line 0 (length line) 1 (slot-value *error-output-kept* 'total)))))

(defun watch-libraries ()
  "Wrap what tells of libraries. Done once, before the core is saved."
  (watch-quicklisp-names)
  (watch-compilation)
  (keep-until-replaced)
  (name-temporary-files-apart))

(defun compilation-notes (seconds)
  "Return what is worth telling of the files that were compiled in this request, which took SECONDS."
  (and (plusp *compiled-count*)
       (> seconds +long-compilation+)
       (list (format nil "~d file~:p ~:*~[~;was~:;were~] compiled, which took ~d s; the last was ~a."
                     *compiled-count* (round seconds) *compiled-last*))))

(defun forget-compilation ()
  "Begin to count anew."
  (setf *compiled-count* 0 *compiled-last* nil))
