;;;; Frameworks for tests, as far as their own functions tell what happens in a run:
;;;; these are watched while a run is under way, whoever started it. Nothing of a
;;;; framework is needed for this to be loaded: names are looked up when it runs.

(in-package #:gramercy.image)

;;;; Tests under way

(defconstant +longest-failure+ 6000 "Characters told of a failed test; an answer shows less.")
(defconstant +longest-test-output+ 4000 "Characters kept of what a test prints, for the same reason.")
(defconstant +most-failed-checks+ 20 "Failed checks told of one test, for the same reason.")

(defstruct (test-run (:copier nil))
  "One test under way, by the symbol or string that names it."
  (name "" :type (or symbol string))
  (failures '() :type list)
  (failed 0 :type index)
  (checks 0 :type index)
  (skipped 0 :type index)
  (output (make-instance 'bounded-stream :limit +longest-test-output+)))

(defvar *test-run* nil "The test under way, or NIL.")
(defglobal *tests-told* 0 "How many tests of this run have ended.")
(defglobal *tests-failed* 0 "How many of them failed.")
(defglobal *frameworks-seen* '() "Names of the frameworks whose tests were seen in this run.")

(defun tell-event (kind &rest members)
  "Send the parent an event of the run. A signal must not cut its frame in two."
  (sb-sys:without-interrupts
    (put-json (list :object "id" 0 "ok" t "event" (list* :object "kind" kind members)))
    (send-frame)))

(defun test-text (name)
  "Return the text by which the test called NAME can be asked for."
  (if (and (symbolp name) (symbol-package name))
      (string-downcase (concatenate 'string (package-name (symbol-package name)) "::" (symbol-name name)))
      (string name)))

(defun note-failure (text)
  "Remember that a check of the test under way failed."
  (let ((run *test-run*))
    (when run
      (incf (test-run-checks run))
      (when (<= (incf (test-run-failed run)) +most-failed-checks+)
        (push text (test-run-failures run))))))

(defun note-check ()
  "Count a check that passed."
  (when *test-run* (incf (test-run-checks *test-run*))))

(defun note-skip ()
  "Count a check that was skipped."
  (when *test-run* (incf (test-run-skipped *test-run*))))

(defun test-outcome (run)
  "Return how RUN ended."
  (cond ((plusp (test-run-failed run)) "failed")
        ((and (plusp (test-run-skipped run)) (zerop (test-run-checks run))) "skipped")
        (t "passed")))

(defun failure-text (run)
  "Return what is told of the failed checks of RUN, and where the test is."
  (let* ((more (- (test-run-failed run) (length (test-run-failures run))))
         (text (format nil "~@[~a~%~]~{~a~^~%~}~@[~%... and ~d more failed checks~]"
                       (ignore-errors (test-place (test-run-name run)))
                       (reverse (test-run-failures run)) (and (plusp more) more))))
    (if (> (length text) +longest-failure+) (subseq text 0 +longest-failure+) text)))

(defun tell-result (run)
  "Tell how RUN ended."
  (let ((outcome (test-outcome run))
        (name (test-text (test-run-name run))))
    (incf *tests-told*)
    (apply #'tell-event "result" "name" name "outcome" outcome "checks" (test-run-checks run)
           (when (string= outcome "failed")
             (incf *tests-failed*)
             (list "text" (failure-text run) "output" (stream-text (test-run-output run)))))
    (tell-event "end" "name" name)))

(defun call-as-test (framework name function &optional (counted (constantly t)))
  "Call FUNCTION, which runs the test NAME of FRAMEWORK, and tell how it ended, where COUNTED says so.
What ends it by a jump, as an interruption does, leaves it without a result."
  (pushnew framework *frameworks-seen* :test #'string=)
  (tell-event "begin" "name" (test-text name))
  (let* ((run (make-test-run :name name))
         (values (let ((*test-run* run)
                       (*standard-output* (test-run-output run))
                       (*error-output* (test-run-output run))
                       (*trace-output* (test-run-output run)))
                   (multiple-value-list (funcall function)))))
    (when (funcall counted run) (tell-result run))
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

(defun test-place (name)
  "Return the place FILE:LINE of the test called NAME, or NIL."
  (loop for file being the hash-keys of *loaded-files*
        for place = (and (editable-p file) (test-line file (string name)))
        when place return place))

(defun test-line (file name)
  "Return the place of the test NAME in FILE, or NIL."
  (with-open-file (stream file :external-format '(:utf-8 :replacement #\?) :if-does-not-exist nil)
    (when stream
      (loop for line = (read-line stream nil)
            for number from 1
            while line
            when (test-definition-p line name)
              return (format nil "~a:~d" (project-name file) number)))))

(defun project-name (file)
  "Return FILE as it is called in the project, or as it is."
  (let ((home (concatenate 'string (sb-posix:getcwd) "/")))
    (if (eql (length home) (mismatch home file)) (subseq file (length home)) file)))

;;;; Watching

(defglobal *observers* '() "Lists of a package, the name of a function in it, and what runs in its place.")

(defmacro define-observer ((function package) lambda-list &body body)
  "Run BODY in place of FUNCTION of PACKAGE while tests run. In it, (GO-ON) calls the function with its arguments."
  `(push (list ,package ,function
               (lambda (original &rest arguments)
                 (flet ((go-on () (apply original arguments)))
                   (declare (ignorable #'go-on))
                   (destructuring-bind ,lambda-list arguments ,@body))))
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
  (loop for word in '(" %TEST-" "FIVEAM::" "ROVE/" "PARACHUTE:" "CALL-AS-TEST") thereis (search word text)))

(defun error-text (condition)
  "Return what is told of CONDITION, which ended a test, with the innermost frames of what it called."
  (let* ((frames (ignore-errors (user-backtrace condition)))
         (own (subseq frames 0 (or (position-if #'framework-frame-p frames) (length frames)))))
    (format nil "~a: ~a~{~%  ~a~}" (condition-type-name condition) (condition-message condition)
            (subseq own 0 (min +most-test-frames+ (length own))))))

(defun one-line (text)
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

;;; FiveAM

(defconstant +fiveam+ "IT.BESE.FIVEAM")

(define-observer ("RUN-TEST-LAMBDA" +fiveam+) (test)
  (call-as-test "fiveam" (call-of "NAME" +fiveam+ test) #'go-on))

(define-observer ("RUN-RESOLVING-DEPENDENCIES" +fiveam+) (test)
  (let ((before (call-of "STATUS" +fiveam+ test)))
    (multiple-value-prog1 (go-on)
      (when (and (eq before :unknown)
                 (member (call-of "STATUS" +fiveam+ test) '(:depends-not-satisfied :circular)))
        (tell-result (make-test-run :name (call-of "NAME" +fiveam+ test) :skipped 1))))))

(define-observer ("ADD-RESULT" +fiveam+) (type &key test-expr reason ((:condition condition)) &allow-other-keys)
  (let ((kind (symbol-name type)))
    (cond ((string= kind "TEST-PASSED") (note-check))
          ((string= kind "TEST-SKIPPED") (note-skip))
          ((string= kind "UNEXPECTED-TEST-FAILURE") (note-failure (error-text condition)))
          (t (note-failure (format nil "~a~@[~%~a~]" (form-text test-expr)
                                   (and reason (one-line reason)))))))
  (go-on))

(define-observer ("RUN" +fiveam+) (tests &key &allow-other-keys)
  (tell-event "found" "total" (fiveam-count tests))
  (progv (list (internal-symbol "*TEST-DRIBBLE*" +fiveam+)) (list (make-broadcast-stream))
    (go-on)))

(defun fiveam-count (tests)
  "Return how many tests TESTS, a name, an object or a list, stands for."
  (let ((object (if (and tests (listp tests)) tests (if (symbolp tests) (call-of "GET-TEST" +fiveam+ tests) tests))))
    (cond ((null object) 0)
          ((consp object) (reduce #'+ (mapcar #'fiveam-count object)))
          ((typep object (internal-symbol "TEST-SUITE" +fiveam+))
           (loop for inner being the hash-values of (call-of "TESTS" +fiveam+ object) sum (fiveam-count inner)))
          (t 1))))

(defun fiveam-names ()
  "Return the names of all tests and suites."
  (call-of "TEST-NAMES" +fiveam+))

(defun run-fiveam (names)
  "Run the tests and suites NAMES; without any, all."
  (if names
      (dolist (name names) (call-of "RUN" +fiveam+ name))
      (dolist (suite (cons nil (copy-list (symbol-value (internal-symbol "*TOPLEVEL-SUITES*" +fiveam+)))))
        (when (plusp (fiveam-count suite)) (call-of "RUN" +fiveam+ suite)))))
