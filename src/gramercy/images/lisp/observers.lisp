;;;; What is watched in each framework for tests, and how its tests are listed and run (for Prove see prove.lisp).

(in-package #:gramercy.image)

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
         (note-failure (told-error (call-of "ACTUAL-CONDITION" *fiveam* result))))
        (t (note-failure (fiveam-failure (ignore-errors (call-of "TEST-EXPR" *fiveam* result))
                                         (call-of "REASON" *fiveam* result))))))

(defun fiveam-failure (form reason)
  "Return what is told of a check of FORM that failed for REASON."
  (format nil "~@[~a~%~]~@[~a~]" (and form (form-text form)) (and (stringp reason) (framework-line reason))))

(define-observer ("ADD-RESULT" *fiveam*) (type &key ((:condition condition)) &allow-other-keys)
  (declare (ignore type))
  (when condition (note-error condition))
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
        (pushnew "fiveam" *frameworks-seen* :test #'string=)
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

(defvar *rove-suite* "rove" "The name of the suite under way.")

(defvar *rove-stats* nil "Where the test under way in this thread is recorded, or NIL.")

(defun rove-subject-p (stats)
  "Tell whether what is recorded in STATS is the subject of the test under way, which has others of its own."
  (and *rove-stats* (not (eq stats *rove-stats*))))

(define-observer ("CALL-WITH-TESTING-WITH-OPTIONS" "ROVE/CORE/TEST") (description name function)
  (declare (ignore function))
  ;; What TESTING describes is a part of a test, and a test where it stands in none.
  (let ((stats (symbol-value (internal-symbol "*STATS*" "ROVE/CORE/STATS")))
        (test (or name (and (null (test-under-way)) description))))
    (cond ((rove-subject-p stats) (let ((*unobserved* t)) (go-on)))
          (test (let ((*rove-stats* stats)) (call-as-test "rove" test #'go-on)))
          (t (go-on)))))

(define-observer ("RECORD" "ROVE/CORE/STATS") (stats object)
  (flet ((is (class) (typep object (internal-symbol class "ROVE/CORE/RESULT"))))
    (cond ((rove-subject-p stats))
          ((is "PENDING") (note-skip))
          ((is "ASSERTION") (if (is "FAILED") (note-rove-failure (rove-failure object)) (note-check)))
          ;; A test none of whose parts failed.
          ((and (is "FAILED") (null (call-of "FAILED-TESTS" "ROVE/CORE/RESULT" object)))
           (note-rove-failure "It did not run as many checks as it had planned." :check nil))))
  (go-on))

(defun note-rove-failure (text &rest options)
  "Note a failure for TEXT, in a test or outside of all."
  (if (test-under-way)
      (apply #'note-failure text options)
      (tell-outside "rove" *rove-suite* text)))

(define-observer ("RUN-SUITE" *rove*) (suite)
  (if (typep suite (internal-symbol "SUITE" *rove*))
      (let ((*rove-suite* (call-of "SUITE-NAME" *rove* suite)))
        (pushnew "rove" *frameworks-seen* :test #'string=)
        (tell-event "found" "total" (length (call-of "SUITE-TESTS" *rove* suite)))
        (go-on))
      (go-on)))

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

(defglobal *parachute-told* (make-hash-table :test #'eq :weakness :key)
  "The results of tests that were told: a dependency, or a child in its package, is met again.")

(defun parachute-p (object class)
  "Tell whether OBJECT is of the class of Parachute that is called CLASS."
  (typep object (internal-symbol class *parachute*)))

(define-observer ("EVAL-IN-CONTEXT" *parachute*) (context result)
  (cond ((parachute-p result "TEST") (call-noting-errors #'go-on))
        ((not (parachute-p result "RESULT")) (go-on))
        ((parachute-p result "TEST-RESULT") (parachute-test result #'go-on))
        ((parachute-p context "CONTROLLING-RESULT") (parachute-forced context result #'go-on))
        (t (watch-parachute-body result)
           (multiple-value-prog1 (go-on)
             (unless (parachute-p result "PARENT-RESULT")
               (note-parachute (call-of "STATUS" *parachute* result) result))))))

(defun watch-parachute-body (result)
  "Have the frames of an error remembered in RESULT, of a check or a group: what calls its function handles the error."
  (let* ((slot (internal-symbol "BODY" *parachute*))
         (body (slot-value result slot)))
    (when (functionp body)
      (setf (slot-value result slot) (lambda () (call-noting-errors body))))))

(defun parachute-forced (context result function)
  "Call FUNCTION for RESULT of a check that stands in CONTEXT, a form such as SKIP, which gives it a status unrun."
  (if (parachute-p result "PARENT-RESULT")
      (funcall function)
      (multiple-value-prog1 (let ((*unobserved* t)) (funcall function))
        ;; By what the form says: some versions forget it, and count the check as passed.
        (note-parachute (call-of "CHILD-STATUS" *parachute* context) result))))

(defun note-parachute (status result)
  "Note the STATUS of RESULT, of a check."
  (case status
    (:passed (note-check))
    (:failed (note-failure (parachute-failure result)))
    (:skipped (note-skip))))

(defun parachute-failure (result)
  "Return what is told of RESULT, of a check that failed: for an error the frames, which Parachute does not know."
  (let* ((slot (internal-symbol "VALUE" *parachute*))
         (value (and (slot-boundp result slot) (slot-value result slot)))
         (told (noted-error (if (consp value) (first value) value))))
    (if told
        (format nil "~a~@[~%~a~]~%~a" (form-text (call-of "EXPRESSION" *parachute* result))
                (call-of "DESCRIPTION" *parachute* result) told)
        (string-trim '(#\Newline #\Space) (call-of "FORMAT-RESULT" *parachute* result :extensive)))))

(defun parachute-test (result function)
  "Call FUNCTION, which runs the test whose result RESULT will be."
  (let* ((test (call-of "EXPRESSION" *parachute* result))
         (name (call-of "NAME" *parachute* test))
         (status (call-of "STATUS" *parachute* result))
         (told (gethash result *parachute-told*)))
    (setf (gethash result *parachute-told*) t)
    (cond ((and (eq status :skipped) (not told))
           (tell-result (make-test-run :name (test-text name (call-of "HOME" *parachute* test)) :skipped 1))
           (funcall function))
          ((eq status :unknown)
           (call-as-test "parachute" name
                         (lambda () (multiple-value-prog1 (funcall function) (conclude-parachute result)))
                         (call-of "HOME" *parachute* test)))
          (t (funcall function)))))

(defun conclude-parachute (result)
  "Note what only RESULT, of the test under way, tells: that it was skipped, or has failed by more than its checks."
  (let ((run *test-run*))
    (case (call-of "STATUS" *parachute* result)
      (:skipped (note-skip))
      (:failed
       (unless (plusp (test-run-failed run))
         (let ((errors (test-run-errors run))
               (below (find-if (lambda (each)
                                 (and (parachute-p each "TEST-RESULT") (eq :failed (call-of "STATUS" *parachute* each))))
                               (call-of "RESULTS" *parachute* result))))
           (cond (errors (note-failure (second errors) :check nil))
                 ((null below)
                  (note-failure (princ-to-string (or (call-of "DESCRIPTION" *parachute* result) "Parachute says so."))
                                :check nil))
                 ((plusp (test-run-checks run)) (note-failure "A test below it failed." :check nil)))))))))

(defun parachute-tests ()
  "Return all tests, and the packages that have some."
  (loop for package being the hash-keys of (symbol-value (internal-symbol "*TEST-INDEXES*" *parachute*))
          using (hash-value index)
        collect (cons (string-downcase (package-name package)) package)
        append (loop for test being the hash-values of index
                     collect (cons (test-text (call-of "NAME" *parachute* test) package) test))))

(define-framework "parachute" *parachute* #'parachute-tests
  ;; At once, so that a test on which others depend, or a child of another, runs once.
  (lambda (objects) (call-of "TEST" *parachute* objects)))

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
                  (pushnew "rt" *frameworks-seen* :test #'string=)
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

;;; lisp-unit2

(defglobal *lisp-unit2* "LISP-UNIT2" "The package of lisp-unit2.")

(defun unit2-list (name object)
  "Return as a list what the accessor NAME has collected in OBJECT."
  (let ((collected (call-of name *lisp-unit2* object)))
    (if (listp collected) collected (call-of "HEAD" *lisp-unit2* collected))))

(define-observer ("%RUN-TEST" *lisp-unit2*) (test &key test-contexts)
  (if *test-run*
      ;; A test that calls another: its checks are counted for both, by lisp-unit2 too.
      (go-on)
      (call-as-test "lisp-unit2" (call-of "NAME" *lisp-unit2* test)
                    (lambda ()
                      (let ((result (funcall original test :test-contexts (list #'call-noting-errors test-contexts))))
                        (note-unit2-result result)
                        result)))))

(defun note-unit2-result (result)
  "Note what RESULT, of a test, has collected. Warnings are failures, as in what lisp-unit2 writes for TAP."
  (mapc (lambda (pass) (declare (ignore pass)) (note-check)) (unit2-list "PASSED" result))
  (dolist (failure (unit2-list "FAILED" result)) (note-failure (unit2-failure failure)))
  (dolist (condition (unit2-list "ERRORS" result)) (note-failure (told-error condition) :check nil))
  (dolist (condition (unit2-list "WARNINGS" result)) (note-failure (told-error condition) :check nil)))

(defun unit2-failure (failure)
  "Return what is told of FAILURE, of a check."
  (flet ((part (name) (call-of name *lisp-unit2* failure)))
    (format nil "~a~%expected ~{~a~^; ~}, but saw ~{~a~^; ~}~{~%  ~a~}" (form-text (part "FORM"))
            (mapcar #'form-text (part "EXPECTED")) (mapcar #'form-text (part "ACTUAL"))
            (loop for (form value) on (part "EXTRAS") by #'cddr
                  collect (format nil "~a~@[ = ~a~]" (form-text form)
                                  (and (not (equalp form value)) (form-text value)))))))

(define-observer ("RUN-TESTS" *lisp-unit2*) (&key &allow-other-keys)
  (if *test-run*
      (go-on)
      (let ((start (internal-symbol "ALL-TESTS-START" *lisp-unit2*)))
        (pushnew "lisp-unit2" *frameworks-seen* :test #'string=)
        (progv (list (internal-symbol "*TEST-STREAM*" *lisp-unit2*)) (list (make-broadcast-stream))
          (handler-bind ((condition (lambda (condition)
                                      (when (and (null *test-run*) (typep condition start))
                                        (let ((results (call-of "RESULTS" *lisp-unit2* condition)))
                                          (tell-event "found" "total"
                                                      (length (call-of "TESTS" *lisp-unit2* results))))))))
            (go-on))))))

(defun unit2-tests ()
  "Return all tests, and the packages that have some."
  (let ((tests (call-of "LIST-TESTS" *lisp-unit2*)))
    (flet ((name (test) (call-of "NAME" *lisp-unit2* test)))
      (append (loop for package in (remove-duplicates (mapcar (lambda (test) (symbol-package (name test))) tests))
                    when package collect (cons (string-downcase (package-name package)) package))
              (loop for test in tests collect (cons (test-text (name test)) test))))))

(define-framework "lisp-unit2" *lisp-unit2* #'unit2-tests
  (lambda (objects)
    (let ((packages (remove-if-not #'packagep objects))
          (tests (remove-if #'packagep objects)))
      (call-of "RUN-TESTS" *lisp-unit2* :tests tests :package packages))))
