;;;; Frameworks for tests, as far as their own functions tell what happens in a run:
;;;; these are watched while a run is under way, whoever started it. Nothing of a
;;;; framework is needed for this to be loaded: names are looked up when it runs.

(in-package #:gramercy.image)

;;;; Tests under way

(defconstant +longest-failure+ 6000 "Characters told of a failed test; an answer shows less.")
(defconstant +longest-test-output+ 4000 "Characters kept of what a test prints, for the same reason.")
(defconstant +most-failed-checks+ 20 "Failed checks told of one test, for the same reason.")

(defstruct (test-run (:copier nil))
  "One test under way: the text that names it, and the object that its framework knows it by."
  (name "" :type string)
  (title "" :type string)
  (inner 0 :type index)
  (failures '() :type list)
  (failed 0 :type index)
  (checks 0 :type index)
  (skipped 0 :type index)
  (unknown nil)
  (remark nil :type (or null string))
  (errors '() :type list)
  (output (make-instance 'bounded-stream :limit +longest-test-output+)))

(defvar *test-run* nil "The test under way in this thread, or NIL.")
(defglobal *current-test* nil "The test under way, for threads that it has started; or NIL.")
(defvar *unobserved* nil "True while tests run that are the subject of a test themselves.")
(defglobal *tests-told* 0 "How many tests of this run have ended.")
(defglobal *tests-failed* 0 "How many of them failed.")
(defglobal *frameworks-seen* '() "Names of the frameworks whose tests were seen in this run.")

(defun tell-event (kind &rest members)
  "Send the parent an event of the run. A signal must not cut its frame in two."
  (sb-sys:without-interrupts
    (put-json (list :object "id" 0 "ok" t "event" (list* :object "kind" kind members)))
    (send-frame)))

(defun test-text (name &optional (package (and (symbolp name) (symbol-package name))))
  "Return the text by which the test called NAME, of PACKAGE, can be asked for."
  (let ((title (if (or (symbolp name) (stringp name)) (string name) (princ-to-string name))))
    (cond ((keywordp name) (string-downcase title))
          ((symbolp name) (string-downcase (format nil "~@[~a::~]~a" (and package (package-name package)) title)))
          (t (format nil "~@[~(~a~)::~]~a" (and package (package-name package)) title)))))

(defun test-under-way ()
  "Return the test under way, also in a thread that it has started; or NIL."
  (or *test-run* *current-test*))

(defun note-failure (text &key (check t))
  "Remember that a check of the test under way failed; or, without CHECK, the test by another rule of its framework."
  (let ((run (test-under-way)))
    (when run
      (when check (incf (test-run-checks run)))
      (when (<= (incf (test-run-failed run)) +most-failed-checks+)
        (push text (test-run-failures run))))))

(defun note-check ()
  "Count a check that passed."
  (let ((run (test-under-way)))
    (when run (incf (test-run-checks run)))))

(defun note-skip ()
  "Count a check that was skipped."
  (let ((run (test-under-way)))
    (when run (incf (test-run-skipped run)))))

(defun test-outcome (run)
  "Return how RUN ended."
  (cond ((plusp (test-run-failed run)) "failed")
        ((test-run-unknown run) "unknown")
        ((and (plusp (test-run-skipped run)) (zerop (test-run-checks run))) "skipped")
        (t "passed")))

(defun failure-text (run)
  "Return what is told of the failed checks of RUN, and where the test is."
  (let* ((more (- (test-run-failed run) (length (test-run-failures run))))
         (text (format nil "~@[~a~%~]~{~a~^~%~}~@[~%... and ~d more failed checks~]"
                       (ignore-errors (test-place (test-run-title run) (test-package (test-run-name run))))
                       (reverse (test-run-failures run)) (and (plusp more) more))))
    (if (> (length text) +longest-failure+) (subseq text 0 +longest-failure+) text)))

(defun tell-result (run)
  "Tell how RUN ended."
  (let ((outcome (test-outcome run))
        (name (test-run-name run)))
    (incf *tests-told*)
    (apply #'tell-event "result" "name" name "outcome" outcome "checks" (test-run-checks run)
           (cond ((string= outcome "failed")
                  (incf *tests-failed*)
                  (list "text" (failure-text run) "output" (stream-text (test-run-output run))))
                 ((test-run-remark run)
                  (list "text" (test-run-remark run) "output" (stream-text (test-run-output run))))))
    (tell-event "end" "name" name)))

(defun tell-outside (framework name text)
  "Tell that a check failed for TEXT outside of all tests of FRAMEWORK, in the file, package or suite NAME."
  (pushnew framework *frameworks-seen* :test #'string=)
  (tell-result (make-test-run :name name :title name :checks 1 :failed 1 :failures (list text))))

(defun begun-test (framework name package)
  "Tell that the test called NAME, of PACKAGE, begins; return it as a run."
  (pushnew framework *frameworks-seen* :test #'string=)
  (when *test-run* (incf (test-run-inner *test-run*)))
  (let ((text (test-text name package)))
    (tell-event "begin" "name" text)
    (make-test-run :name text :title (if (or (symbolp name) (stringp name)) (string name) text))))

(defun call-as-test (framework name function &optional (package (and (symbolp name) (symbol-package name))))
  "Call FUNCTION, which runs the test NAME of FRAMEWORK, and tell how it ended.
What ends it by a jump, as an interruption does, leaves it without a result. A test that only holds others has none."
  (let* ((run (begun-test framework name package))
         (outer *current-test*)
         (values (let ((*test-run* run)
                       (*standard-output* (test-run-output run))
                       (*error-output* (test-run-output run))
                       (*trace-output* (test-run-output run)))
                   (setf *current-test* run)
                   (unwind-protect (multiple-value-list (funcall function))
                     (setf *current-test* outer)))))
    (when (or (plusp (+ (test-run-checks run) (test-run-skipped run) (test-run-failed run)))
              (zerop (test-run-inner run)))
      (tell-result run))
    (values-list values)))

;;; Where a test is. Frameworks do not know: its name is looked for in the files of the project.

(defun test-definition-p (line name)
  "Tell whether LINE begins the definition of the test NAME."
  (let* ((start (position #\( line))
         (word (and start (search "test" line :start2 start :test #'char-equal)))
         (place (and word (search name line :start2 (+ word 4) :test #'char-equal)))
         (end (and place (+ place (length name)))))
    (and place
         (not (position #\( (string-left-trim " " line) :start 1 :end (max 1 (- word start))))
         (find (char line (1- place)) " (:'\"")
         (or (= end (length line)) (find (char line end) " )\"")))))

(defun test-package (name)
  "Return the package that NAME, the text of a test, begins with; or NIL."
  (let ((marker (search "::" name)))
    (and marker (find-package (string-upcase (subseq name 0 marker))))))

(defun test-place (title package)
  "Return the place FILE:LINE of the test called TITLE, of PACKAGE if known; or NIL.
Of several that are called so, the one in that package: another one's place would be wrong."
  (let ((places (loop for file being the hash-keys of *loaded-files*
                      when (editable-p file)
                        append (test-lines file title))))
    (car (or (find package places :key #'cdr)
             (and (null (rest places)) (first places))))))

(defun test-lines (file name)
  "Return conses of place and package for everything in FILE that defines a test called NAME."
  (with-open-file (stream file :external-format '(:utf-8 :replacement #\?) :if-does-not-exist nil)
    (when stream
      (loop with package = nil
            for line = (read-line stream nil)
            for number from 1
            while line
            when (eql 11 (mismatch "(in-package" line :test #'char-equal))
              do (setf package (find-package (string-upcase (string-trim "#:'\"()| " (subseq line 11)))))
            when (test-definition-p line name)
              collect (cons (format nil "~a:~d" (project-name file) number) package)))))

(defun in-file-p (file name)
  "Tell whether FILE defines the test that is called NAME, a text with its package."
  (let ((package (test-package name))
        (places (test-lines file (title-of name))))
    (and places (or (null package) (find package places :key #'cdr) (notany #'cdr places)))))

(defun project-name (file)
  "Return FILE as it is called in the project, or as it is."
  (let ((home (concatenate 'string (sb-posix:getcwd) "/")))
    (if (eql (length home) (mismatch home file)) (subseq file (length home)) file)))

;;;; Watching

(defglobal *observers* '() "Lists of a package, the name of a function in it, and what runs in its place.")

(defmacro define-observer ((function package) lambda-list &body body)
  "Run BODY in place of FUNCTION of PACKAGE while tests run. In it, (GO-ON) calls ORIGINAL, the function, as it was."
  `(push (list ,package ,function
               (lambda (original &rest arguments)
                 (flet ((go-on () (apply original arguments)))
                   (declare (ignorable #'go-on))
                   (if *unobserved*
                       (go-on)
                       (destructuring-bind ,lambda-list arguments ,@body)))))
         *observers*))

(defun watched-name (observer)
  "Return the symbol of the function that OBSERVER watches, or NIL where there is none."
  (let ((symbol (internal-symbol (second observer) (first observer))))
    (and symbol (fboundp symbol) symbol)))

(defun watch-frameworks ()
  "Watch the frameworks that are loaded by now."
  (dolist (observer *observers*)
    (let ((name (watched-name observer)))
      (when (and name (not (sb-int:encapsulated-p name 'tests)))
        (sb-int:encapsulate name 'tests (third observer))))))

(defun leave-frameworks ()
  "Watch no longer."
  (dolist (observer *observers*)
    (let ((name (watched-name observer)))
      (when name (sb-int:unencapsulate name 'tests)))))

(defun call-of (name package &rest arguments)
  "Call the function NAME of PACKAGE, which is loaded, with ARGUMENTS."
  (apply (internal-symbol name package) arguments))

(defconstant +most-test-frames+ 6 "Frames told of an error in a test: the innermost say where it was.")

(defun framework-frame-p (text)
  "Tell whether TEXT is a frame of the test itself, or of the framework below it."
  (loop for word in '(" %TEST-" "FIVEAM::" "ROVE/" "PARACHUTE:" "LISP-UNIT2:" "PROVE." "CALL-AS-TEST" "ASDF/")
        thereis (search word text)))

(defun error-text (condition)
  "Return what is told of CONDITION, which ended a test, with the innermost frames of what it called."
  (let* ((frames (ignore-errors (user-backtrace condition)))
         (own (subseq frames 0 (or (position-if #'framework-frame-p frames) (length frames)))))
    (format nil "~a: ~a~{~%  ~a~}" (condition-type-name condition) (condition-message condition)
            (subseq own 0 (min +most-test-frames+ (length own))))))

(defun note-error (condition)
  "Remember the frames of CONDITION while the stack is still that of the error."
  (let ((run (test-under-way)))
    (when run (setf (getf (test-run-errors run) condition) (error-text condition)))))

(defun call-noting-errors (function)
  "Call FUNCTION, a part of a test; remember the frames of an error that nothing in it handles."
  (handler-bind ((error #'note-error)) (funcall function)))

(defun noted-error (condition)
  "Return what was remembered of CONDITION in the test under way, or NIL."
  (let ((run (test-under-way)))
    (and run (getf (test-run-errors run) condition))))

(defun told-error (condition)
  "Return what is told of CONDITION, which a framework has kept."
  (or (noted-error condition)
      (format nil "~a: ~a" (condition-type-name condition) (condition-message condition))))

(defun framework-line (text)
  "Return TEXT, in which a framework has put every value on lines of its own, on one line; a long one as it is."
  (let ((trimmed (string-trim '(#\Newline #\Space) text)))
    (if (> (length trimmed) 500)
        trimmed
        (with-output-to-string (line)
          (loop for (character next) on (coerce trimmed 'list)
                for space = (member character '(#\Newline #\Space #\Tab))
                unless (and space (member next '(#\Newline #\Space #\Tab)))
                  do (write-char (if space #\Space character) line))))))

(defun form-text (form)
  "Return FORM on one line."
  (let ((*print-pretty* nil) (*print-case* :downcase)) (printed-value form 500)))

;;;; The frameworks (see observers.lisp)

(defglobal *frameworks* '()
  "Lists of a name, a package, and two functions: one returns conses of text and object for all tests and suites that are
loaded, the other runs a list of such objects.")

(defmacro define-framework (name package list run)
  "Define how tests of the framework NAME, whose package is PACKAGE, are listed and run."
  `(push (list ,name ,package ,list ,run) *frameworks*))

(defun loaded-frameworks (&optional wanted)
  "Return the frameworks that are loaded; only the one called WANTED where that is given."
  (remove-if-not (lambda (framework)
                   (and (find-package (second framework))
                        (or (null wanted) (string-equal wanted (first framework)))))
                 *frameworks*))
