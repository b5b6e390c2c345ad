;;;; What is watched in Prove. Its tests are files, which run while they are loaded: what is called a test here is
;;;; one of them, or what DEFTEST has defined.

(in-package #:gramercy.image)

(defglobal *prove* "PROVE.TEST" "The package of Prove that makes its checks.")
(defvar *prove-runs* nil "True while Prove loads files of tests.")

(define-observer ("RUN" "PROVE.ASDF") (object &key &allow-other-keys)
  (declare (ignore object))
  (call-in-prove #'go-on))

(define-observer ("RUN-TEST-SYSTEM" "PROVE.ASDF") (system)
  (declare (ignore system))
  (call-in-prove #'go-on))

(defun call-in-prove (function)
  "Call FUNCTION, which loads files of tests."
  (pushnew "prove" *frameworks-seen* :test #'string=)
  (let ((*prove-runs* t)) (funcall function)))

(define-observer ("LOAD" "COMMON-LISP") (file &rest options)
  (declare (ignore options))
  (if (and *prove-runs* (null *test-run*) (prove-file-p file))
      (call-as-test "prove" (prove-file-name file) (lambda () (call-as-prove-file #'go-on)))
      (go-on)))

(defun call-as-prove-file (function)
  "Call FUNCTION, which loads a file of tests. An error outside of its checks ends the file, and not the others."
  (handler-bind ((error (lambda (condition)
                          (note-failure (error-text condition) :check nil)
                          (return-from call-as-prove-file nil))))
    (call-silencing-prove function))
  (conclude-prove)
  t)

(defun prove-file-p (file)
  "Tell whether FILE, which is loaded while Prove runs, is one of tests: the others are of ASDF."
  (and (or (stringp file) (pathnamep file))
       (not (member (pathname-type file) '("asd" "fasl") :test #'equalp))))

(defun prove-file-name (file)
  "Return FILE as it can be asked for."
  (project-name (sb-ext:native-namestring (or (probe-file file) file))))

(defun call-silencing-prove (function)
  "Call FUNCTION without the reports of Prove, which are told better."
  (progv (list (internal-symbol "*TEST-RESULT-OUTPUT*" "PROVE.OUTPUT")) (list (make-broadcast-stream))
    (funcall function)))

(defun conclude-prove ()
  "Note what only the end of a file tells, by the rules of Prove."
  (let ((report (symbol-value (internal-symbol "*LAST-SUITE-REPORT*" "PROVE.ASDF"))))
    (cond ((null report) (note-failure "It did not call FINALIZE: Prove counts the file as failed." :check nil))
          ((and (plusp (getf report :failed 0)) (zerop (test-run-failed *test-run*)))
           (note-failure (format nil "Prove counts ~d failures in the suite that it has finalized." (getf report :failed))
                         :check nil)))))

(define-observer ("%SUBTEST" *prove*) (description function)
  (flet ((run () (funcall original description (lambda () (call-noting-errors function)))))
    (if (test-under-way)
        (run)
        (let ((name (prove-name description)))
          (call-as-test "prove" name (lambda () (call-silencing-prove #'run))
                        (if (symbolp name) (symbol-package name) *package*))))))

(defun prove-name (description)
  "Return the name of the test that DEFTEST has made of DESCRIPTION, or this itself."
  (let ((tests (gethash *package* (symbol-value (internal-symbol "*PACKAGE-TESTS*" *prove*)))))
    (or (car (assoc description tests :test #'string=)) description)))

(define-observer ("ADD-REPORT" "PROVE.SUITE") (report suite)
  ;; That of a subtest holds what came into a suite of its own. Other suites are subjects of tests themselves.
  (when (typep suite (internal-symbol "PACKAGE-SUITE" "PROVE.SUITE")) (note-prove report '()))
  (go-on))

(defun prove-part (name report)
  "Return the part NAME of REPORT."
  (slot-value report (internal-symbol name "PROVE.REPORT")))

(defun note-prove (report subtests)
  "Note how REPORT, of a check or of a subtest in SUBTESTS, has turned out."
  (flet ((is (class) (typep report (internal-symbol class "PROVE.REPORT"))))
    (cond ((is "COMPOSED-TEST-REPORT")
           (let ((inner (append subtests (list (prove-part "DESCRIPTION" report)))))
             (map nil (lambda (child) (note-prove child inner)) (prove-part "CHILDREN" report))))
          ((is "SKIPPED-TEST-REPORT") (note-skip))
          ((is "PASSED-TEST-REPORT") (note-check))
          ((not (is "FAILED-TEST-REPORT")))
          ((test-under-way) (note-failure (prove-failure report subtests)))
          (t (tell-outside "prove" (string-downcase (package-name *package*)) (prove-failure report subtests))))))

(defun prove-failure (report subtests)
  "Return what is told of REPORT, of a check in SUBTESTS that failed."
  (flet ((part (name) (prove-part name report)))
    (let ((got (part "GOT"))
          (form (part "GOT-FORM")))
      (format nil "~{~a: ~}~@[~a~%~]~@[~a~]"
              (if (and (test-under-way) (equal (first subtests) (test-run-title (test-under-way))))
                  (rest subtests)
                  subtests)
              (part "DESCRIPTION")
              (cond ((typep report (internal-symbol "ERROR-TEST-REPORT" "PROVE.REPORT")) (told-error got))
                    ((part "PRINT-ERROR-DETAIL")
                     (format nil "~a is ~:[~;not ~]expected to ~a ~a~@[ (got ~a)~]" (form-text form) (part "NOTP")
                             (or (part "REPORT-EXPECTED-LABEL") "be") (form-text (part "EXPECTED"))
                             (and (not (eq got form)) (form-text got)))))))))

(defun prove-tests ()
  "Return the files of the systems that are loaded, and all that DEFTEST has defined."
  (append (loop for files being the hash-values of (symbol-value (internal-symbol "*SYSTEM-TEST-FILES*" "PROVE.ASDF"))
                append (loop for file in (reverse files)
                             for path = (asdf:component-pathname file)
                             collect (cons (prove-file-name path) path)))
          (loop for package being the hash-keys of (symbol-value (internal-symbol "*PACKAGE-TESTS*" *prove*))
                  using (hash-value tests)
                append (loop for (name . function) in (reverse tests)
                             collect (cons (test-text name package) (cons package function))))))

(define-framework "prove" *prove* #'prove-tests
  (lambda (objects)
    (dolist (object objects)
      (if (pathnamep object)
          (call-of "RUN" "PROVE.ASDF" object)
          (let ((*package* (car object))) (funcall (cdr object)))))))
