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
  (errors '() :type list)
  (output (make-instance 'bounded-stream :limit +longest-test-output+)))

(defvar *test-run* nil "The test under way, or NIL.")
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
                       (ignore-errors (test-place (test-run-title run)))
                       (reverse (test-run-failures run)) (and (plusp more) more))))
    (if (> (length text) +longest-failure+) (subseq text 0 +longest-failure+) text)))

(defun tell-result (run)
  "Tell how RUN ended."
  (let ((outcome (test-outcome run))
        (name (test-run-name run)))
    (incf *tests-told*)
    (apply #'tell-event "result" "name" name "outcome" outcome "checks" (test-run-checks run)
           (when (string= outcome "failed")
             (incf *tests-failed*)
             (list "text" (failure-text run) "output" (stream-text (test-run-output run)))))
    (tell-event "end" "name" name)))

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
         (values (let ((*test-run* run)
                       (*standard-output* (test-run-output run))
                       (*error-output* (test-run-output run))
                       (*trace-output* (test-run-output run)))
                   (multiple-value-list (funcall function)))))
    (when (or (plusp (+ (test-run-checks run) (test-run-skipped run))) (zerop (test-run-inner run)))
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

(defun test-place (title)
  "Return the place FILE:LINE of the test called TITLE, or NIL."
  (loop for file being the hash-keys of *loaded-files*
        for place = (and (editable-p file) (test-line file title))
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
  (loop for word in '(" %TEST-" "FIVEAM::" "ROVE/" "PARACHUTE:" "CALL-AS-TEST" "ASDF/") thereis (search word text)))

(defun error-text (condition)
  "Return what is told of CONDITION, which ended a test, with the innermost frames of what it called."
  (let* ((frames (ignore-errors (user-backtrace condition)))
         (own (subseq frames 0 (or (position-if #'framework-frame-p frames) (length frames)))))
    (format nil "~a: ~a~{~%  ~a~}" (condition-type-name condition) (condition-message condition)
            (subseq own 0 (min +most-test-frames+ (length own))))))

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

;;;; The frameworks

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

;;; FiveAM

(defglobal *fiveam* "IT.BESE.FIVEAM" "The package of FiveAM.")

(define-observer ("RUN-TEST-LAMBDA" *fiveam*) (test)
  (call-as-test "fiveam" (call-of "NAME" *fiveam* test)
                (lambda ()
                  (let ((before (length (fiveam-results))))
                    (multiple-value-prog1 (go-on)
                      (mapc #'note-fiveam-result (reverse (nthcdr before (fiveam-results)))))))))

(defun fiveam-results ()
  "Return the results of the run under way, as FiveAM keeps them."
  (let ((symbol (internal-symbol "RESULT-LIST" *fiveam*)))
    (and symbol (boundp symbol) (symbol-value symbol))))

(defun note-fiveam-result (result)
  "Note how RESULT, of a check, has turned out."
  (cond ((call-of "TEST-PASSED-P" *fiveam* result) (note-check))
        ((call-of "TEST-SKIPPED-P" *fiveam* result) (note-skip))
        ((typep result (internal-symbol "UNEXPECTED-TEST-FAILURE" *fiveam*))
         (let ((condition (call-of "ACTUAL-CONDITION" *fiveam* result)))
           (note-failure (or (getf (test-run-errors *test-run*) condition) (princ-to-string condition)))))
        (t (note-failure (fiveam-failure (ignore-errors (call-of "TEST-EXPR" *fiveam* result))
                                         (call-of "REASON" *fiveam* result))))))

(defun fiveam-failure (form reason)
  "Return what is told of a check of FORM that failed for REASON."
  (format nil "~@[~a~%~]~@[~a~]" (and form (form-text form)) (and (stringp reason) (framework-line reason))))

(define-observer ("ADD-RESULT" *fiveam*) (type &key ((:condition condition)) &allow-other-keys)
  (declare (ignore type))
  ;; Now, while the stack is still that of the error.
  (when (and condition *test-run*)
    (setf (getf (test-run-errors *test-run*) condition) (error-text condition)))
  (go-on))

(define-observer ("RUN-RESOLVING-DEPENDENCIES" *fiveam*) (test)
  (let ((before (call-of "STATUS" *fiveam* test)))
    (multiple-value-prog1 (go-on)
      (when (and (eq before :unknown)
                 (member (call-of "STATUS" *fiveam* test) '(:depends-not-satisfied :circular)))
        (tell-result (make-test-run :name (test-text (call-of "NAME" *fiveam* test)) :skipped 1))))))

(define-observer ("RUN" *fiveam*) (tests &key &allow-other-keys)
  (if *test-run*
      ;; A test that runs others as its subject.
      (let ((*test-run* nil) (*unobserved* t)) (go-on))
      (progv (list (internal-symbol "*TEST-DRIBBLE*" *fiveam*)) (list (make-broadcast-stream))
        (tell-event "found" "total" (fiveam-count tests))
        (go-on))))

(defun fiveam-count (tests)
  "Return how many tests TESTS, a name, an object or a list, stands for."
  (let ((object (if (and tests (listp tests)) tests (if (symbolp tests) (call-of "GET-TEST" *fiveam* tests) tests))))
    (cond ((null object) 0)
          ((consp object) (reduce #'+ (mapcar #'fiveam-count object)))
          ((typep object (internal-symbol "TEST-SUITE" *fiveam*))
           (loop for inner being the hash-values of (call-of "TESTS" *fiveam* object) sum (fiveam-count inner)))
          (t 1))))

(defun fiveam-tests ()
  "Return all tests and suites."
  (loop for name in (call-of "TEST-NAMES" *fiveam*)
        when name collect (cons (test-text name) name)))

(define-framework "fiveam" *fiveam* #'fiveam-tests
  ;; At once, so that a test on which others depend runs once.
  (lambda (names) (call-of "RUN" *fiveam* names)))

;;; Rove

(defglobal *rove* "ROVE/CORE/SUITE/PACKAGE" "The package of Rove that knows its tests.")

(define-observer ("CALL-WITH-TESTING-WITH-OPTIONS" "ROVE/CORE/TEST") (description name function)
  (declare (ignore description function))
  (if name (call-as-test "rove" name #'go-on) (go-on)))

(define-observer ("RECORD" "ROVE/CORE/STATS") (stats object)
  (declare (ignore stats))
  (flet ((is (class) (typep object (internal-symbol class "ROVE/CORE/RESULT"))))
    (when (is "ASSERTION")
      (cond ((is "FAILED") (note-failure (rove-failure object)))
            ((is "PENDING") (note-skip))
            (t (note-check)))))
  (go-on))

(define-observer ("RUN-SUITE" *rove*) (suite)
  (when (typep suite (internal-symbol "SUITE" *rove*))
    (tell-event "found" "total" (length (call-of "SUITE-TESTS" *rove* suite))))
  (go-on))

(define-observer ("MAKE-REPORTER" "ROVE/REPORTER") (style &rest options)
  ;; What a test prints is told; what the reporter prints between is told better.
  (apply original style :stream (make-broadcast-stream) options))

(defun run-rove-suite (suite)
  "Run the tests of SUITE, without a reporter."
  (progv (list (internal-symbol "*STATS*" "ROVE/CORE/STATS"))
      (list (make-instance (internal-symbol "STATS" "ROVE/CORE/STATS")))
    (call-of "RUN-SUITE" *rove* suite)))

(defun rove-part (name assertion)
  "Return the part NAME of ASSERTION."
  (call-of (concatenate 'string "ASSERTION-" name) "ROVE/CORE/RESULT" assertion))

(defun rove-failure (assertion)
  "Return what is told of ASSERTION, which failed."
  (let ((reason (rove-part "REASON" assertion))
        (place (ignore-errors (rove-part "SOURCE-LOCATION" assertion))))
    (format nil "~a~@[ (~a)~]~{~@[~%  ~a~]~}~@[~%~a~]"
            (framework-line (rove-part "DESCRIPTION" assertion))
            (and (consp place) (stringp (first place)) (integerp (second place))
                 (format nil "~a:~d" (project-name (first place)) (second place)))
            (loop for argument in (rove-part "ARGS" assertion)
                  for value in (rove-part "VALUES" assertion)
                  unless (constantp argument)
                    collect (format nil "~a = ~a" (form-text argument) (form-text value)))
            (and (typep reason 'condition) (error-text reason)))))

(defun rove-tests ()
  "Return all tests, and the packages that are suites."
  (loop for suite in (call-of "ALL-SUITES" *rove*)
        collect (cons (call-of "SUITE-NAME" *rove* suite) suite)
        append (loop for name in (call-of "SUITE-TESTS" *rove* suite) collect (cons (test-text name) name))))

(define-framework "rove" *rove* #'rove-tests
  (lambda (objects)
    (dolist (object objects)
      (if (symbolp object)
          (call-of "RUN-TEST" "ROVE" object)
          (run-rove-suite object)))))

;;; Parachute

(defglobal *parachute* "ORG.SHIRAKUMO.PARACHUTE" "The package of Parachute.")

(define-observer ("EVAL-IN-CONTEXT" *parachute*) (context result)
  (declare (ignore context))
  (flet ((is (class) (typep result (internal-symbol class *parachute*))))
    (cond ((not (is "RESULT")) (go-on))
          ((is "TEST-RESULT") (parachute-test result #'go-on))
          ((is "PARENT-RESULT") (go-on))
          (t (multiple-value-prog1 (go-on) (parachute-check result))))))

(defun parachute-test (result function)
  "Call FUNCTION, which runs the test whose result RESULT will be."
  (let ((test (call-of "EXPRESSION" *parachute* result)))
    (if (eq :unknown (call-of "STATUS" *parachute* result))
        (call-as-test "parachute" (call-of "NAME" *parachute* test)
                      (lambda ()
                        (multiple-value-prog1 (funcall function)
                          (when (eq :skipped (call-of "STATUS" *parachute* result)) (note-skip))))
                      (call-of "HOME" *parachute* test))
        (funcall function))))

(defun parachute-check (result)
  "Note how RESULT, of a check, has turned out."
  (case (call-of "STATUS" *parachute* result)
    (:passed (note-check))
    (:failed (note-failure (string-trim '(#\Newline #\Space) (call-of "FORMAT-RESULT" *parachute* result :extensive))))
    (:skipped (note-skip))))

(defun parachute-tests ()
  "Return all tests, and the packages that have some."
  (loop for package being the hash-keys of (symbol-value (internal-symbol "*TEST-INDEXES*" *parachute*))
          using (hash-value index)
        collect (cons (string-downcase (package-name package)) package)
        append (loop for test being the hash-values of index
                     collect (cons (test-text (call-of "NAME" *parachute* test) package) test))))

(define-framework "parachute" *parachute* #'parachute-tests
  (lambda (objects) (dolist (object objects) (call-of "TEST" *parachute* object))))

;;; RT, the oldest, in its two packages

(defun call-as-entry (package original entry)
  "Run ENTRY of PACKAGE by ORIGINAL, whose stream gets what is told of a failure."
  (let ((told (make-instance 'bounded-stream :limit +longest-failure+)))
    (call-as-test "rt" (call-of "NAME" package entry)
                  (lambda ()
                    (multiple-value-prog1 (funcall original entry told)
                      (if (call-of "PEND" package entry) (note-failure (stream-text told)) (note-check)))))))

(defun rt-entries (package)
  "Return the entries of PACKAGE."
  (rest (symbol-value (internal-symbol "*ENTRIES*" package))))

(macrolet ((define-rt (package)
             `(progn
                (define-observer ("DO-ENTRY" ,package) (entry &optional stream)
                  (declare (ignore stream))
                  (call-as-entry ,package original entry))
                (define-observer ("DO-ENTRIES" ,package) (stream)
                  (declare (ignore stream))
                  (tell-event "found" "total" (length (rt-entries ,package)))
                  (go-on))
                (define-framework "rt" ,package
                  (lambda ()
                    (loop for entry in (rt-entries ,package)
                          for name = (call-of "NAME" ,package entry)
                          collect (cons (test-text name) name)))
                  (lambda (names) (dolist (name names) (call-of "DO-TEST" ,package name)))))))
  (define-rt "REGRESSION-TEST")
  (define-rt "SB-RT"))
