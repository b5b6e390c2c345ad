;;;; Running tests: what is wanted is looked for among systems, files, and the tests
;;;; of the frameworks that are loaded; what is run is told test by test.

(in-package #:gramercy.image)

(defglobal *runs-tests* nil "True while tests run: then frameworks that are loaded are watched at once.")

(defmethod asdf:perform :after ((operation asdf:load-op) (component asdf:system))
  (when *runs-tests* (watch-frameworks)))

;;;; The systems of the project that have tests

(defun definition-files ()
  "Return the files of the project that define systems: at its top and one level below."
  (append (directory "*.asd") (directory "*/*.asd")))

(defun project-systems ()
  "Return the systems that the project defines, in the order of their files."
  (let ((files (mapcar #'sb-ext:native-namestring (definition-files))))
    ;; A definition that is read again makes ASDF load the system again, over what was defined in the image.
    (dolist (file files)
      (unless (asdf:find-system (pathname-name file) nil) (asdf:load-asd file)))
    (loop for file in files
          append (loop for name in (sort (copy-list (asdf:registered-systems)) #'string<)
                       for system = (asdf:find-system name nil)
                       for source = (and system (asdf:system-source-file system))
                       when (and source (string= file (sb-ext:native-namestring source)))
                         collect system))))

(defun test-dependencies (system)
  "Return the names of the systems to which the test-op of SYSTEM leads."
  (let ((reader (internal-function "COMPONENT-IN-ORDER-TO" "ASDF/COMPONENT")))
    (loop for (operation . needs) in (and reader (funcall reader system))
          when (string-equal operation "TEST-OP")
            append (loop for (nil . names) in needs append (mapcar #'string-downcase (mapcar #'string names))))))

(defun own-test-op-p (system)
  "Tell whether SYSTEM says itself what its test-op does."
  (loop for method in (compute-applicable-methods #'asdf:perform (list (asdf:make-operation 'asdf:test-op) system))
        thereis (typep (second (sb-mop:method-specializers method)) 'sb-mop:eql-specializer)))

(defun named-like-tests-p (system)
  "Tell whether SYSTEM is called as systems of tests are."
  (search "test" (asdf:component-name system)))

(defun test-systems ()
  "Return the names of those systems of the project whose test-op is to be performed, so that none runs twice."
  (let* ((systems (project-systems))
         (leading (remove-if-not #'test-dependencies systems))
         (reached (mapcan #'test-dependencies (copy-list leading)))
         (chosen (remove-if (lambda (system) (member (asdf:component-name system) reached :test #'string=))
                            (remove-if-not (lambda (system) (or (test-dependencies system) (own-test-op-p system)))
                                           systems))))
    (mapcar #'asdf:component-name (or chosen (remove-if-not #'named-like-tests-p systems)))))

;;;; Loading and running

(defstruct (suite (:copier nil))
  "What is wanted, and what there is to say about it."
  (names '() :type list)
  (framework nil :type (or null string))
  (trouble "" :type string)
  (build nil))

(defun load-for-tests (suite name)
  "Load the system NAME, or what has changed of it."
  (let ((build (make-build :name name)))
    (setf (suite-build suite) build)
    (load-quietly build)
    (setf (suite-build suite) nil)))

(defun test-system (suite name)
  "Perform the test-op of the system NAME, with everything loaded that it leads to."
  (let ((system (asdf:find-system name)))
    (dolist (needed (cons name (test-dependencies system)))
      (load-for-tests suite needed))
    (watch-frameworks)
    (let ((told *tests-told*)
          (has-test-op (or (own-test-op-p system) (test-dependencies system))))
      (if has-test-op
          (perform-test-op name)
          (run-loaded suite))
      (when (= told *tests-told*)
        (setf (suite-trouble suite) (if has-test-op "unseen" "nothing"))
        (when has-test-op (tell-result (make-test-run :name name :title name)))))))

(defun perform-test-op (name)
  "Perform the test-op of the system NAME. It counts as a test itself where it fails, or runs none that is seen.
An error behind tests that failed only says that they did."
  (let ((failed *tests-failed*))
    (block performing
      (handler-bind ((error (lambda (condition)
                              (unless *test-run*
                                (unless (> *tests-failed* failed) (tell-failed-system name condition))
                                (return-from performing)))))
        (asdf:test-system name)))))

(defun tell-failed-system (name condition)
  "Tell that CONDITION has ended the test-op of the system NAME."
  (tell-result (make-test-run :name name :title name :failed 1 :failures (list (error-text condition))
                              :output (tail-stream *standard-output-kept*))))

(defun tail-stream (stream)
  "Return a stream that holds the end of what STREAM has kept."
  (let* ((text (stream-text stream))
         (tail (make-instance 'bounded-stream :limit +longest-test-output+)))
    (write-string text tail :start (max 0 (- (length text) +longest-test-output+)))
    tail))

(defun run-loaded (suite)
  "Run all tests of the frameworks that are loaded."
  (dolist (framework (loaded-frameworks (suite-framework suite)))
    (funcall (fourth framework) (mapcar #'cdr (outermost (funcall (third framework)))))))

(defun outermost (tests)
  "Return TESTS without suites of others of them, and without what others of them hold: a test is run once."
  (remove-if (lambda (test)
               (or (suite-object-p (cdr test))
                   (let ((parent (parachute-parent (cdr test)))) (and parent (find parent tests :key #'cdr)))))
             tests))

(defun parachute-parent (object)
  "Return the test that holds the test OBJECT, where it is one of Parachute's and inside of another."
  (let ((class (internal-symbol "TEST" *parachute*)))
    (and class (find-class class nil) (typep object class) (call-of "PARENT" *parachute* object))))

(defun suite-object-p (object)
  "Tell whether OBJECT stands for several tests."
  (cond ((packagep object) t)
        ((symbolp object)
         (and (find-package *fiveam*)
              (let ((suite (internal-symbol "TEST-SUITE" *fiveam*)))
                (and suite (typep (call-of "GET-TEST" *fiveam* object) suite)))))
        (t (let ((suite (internal-symbol "SUITE" *rove*))) (and suite (typep object suite))))))

(defun named-tests (suite text)
  "Return the function that runs the tests called TEXT, and these; NIL where there are none."
  (loop for framework in (loaded-frameworks (suite-framework suite))
        for tests = (funcall (third framework))
        for exact = (remove text tests :key #'car :test-not #'string-equal)
        for meant = (or exact (remove-if-not (lambda (test) (called-p (car test) text)) tests))
        when meant return (values (fourth framework) (mapcar #'cdr meant))))

(defun all-tests ()
  "Return the names of all tests and suites that are loaded."
  (loop for framework in (loaded-frameworks) append (mapcar #'car (funcall (third framework)))))

(defun called-p (name text)
  "Tell whether the test NAME, a text with its package, is called TEXT without it."
  (string-equal text (title-of name)))

(defun known-system-p (text)
  "Tell whether TEXT names a system. A name with a package is not looked for: ASDF would read a definition again."
  (and (not (search "::" text)) (asdf:find-system (string-downcase text) nil)))

(defun source-file (text)
  "Return the native name of the file TEXT of the project, or NIL."
  (let ((file (ignore-errors (probe-file (sb-ext:parse-native-namestring text)))))
    (and file (pathname-name file) (sb-ext:native-namestring file))))

(defun run-file (suite file)
  "Run the tests that FILE defines; it is loaded by itself where no system has it."
  (load-project-tests suite)
  (unless (gethash file *loaded-files*)
    (load (sb-ext:parse-native-namestring file))
    (watch-frameworks))
  (let ((found nil))
    (dolist (framework (loaded-frameworks (suite-framework suite)))
      (let ((tests (remove-if-not (lambda (test) (test-line file (title-of (car test))))
                                  (outermost (funcall (third framework))))))
        (when tests
          (setf found t)
          (funcall (fourth framework) (mapcar #'cdr tests)))))
    (unless found (setf (suite-trouble suite) "nothing"))))

(defun title-of (name)
  "Return NAME, of a test, without its package."
  (let ((marker (search "::" name)))
    (if marker (subseq name (+ marker 2)) name)))

(defun run-named (suite text)
  "Run the tests or suites called TEXT that are loaded; return false where there are none."
  (multiple-value-bind (run tests) (named-tests suite text)
    (when run
      (funcall run tests)
      t)))

(defun left-after-tests (suite)
  "Run those of several names that are of tests, each framework's at once; return the others."
  (when (rest (suite-names suite))
    (load-project-tests suite)
    (dolist (framework (loaded-frameworks (suite-framework suite)))
      (let ((tests (remove-if-not (lambda (test) (member (car test) (suite-names suite) :test #'string-equal))
                                  (funcall (third framework)))))
        (when tests
          (funcall (fourth framework) (mapcar #'cdr tests))
          (setf (suite-names suite)
                (set-difference (suite-names suite) (mapcar #'car tests) :test #'string-equal))))))
  (suite-names suite))

(defun run-wanted (suite text)
  "Run what TEXT names: a file, a test or suite that is loaded, a system, or a test of the project's systems."
  (let ((file (source-file text)))
    (cond (file (run-file suite file))
          ((progn (load-changes suite) (run-named suite text)))
          ((known-system-p text) (test-system suite (string-downcase text)))
          ((progn (load-project-tests suite) (run-named suite text)))
          (t (throw 'unknown-test text)))))

(defun load-changes (suite)
  "Load what has changed of the systems with tests, where these are loaded."
  (dolist (name (test-systems))
    (when (asdf:component-loaded-p name) (load-for-tests suite name))))

(defun load-project-tests (suite)
  "Load the systems of the project that have tests."
  (dolist (name (test-systems))
    (dolist (needed (cons name (test-dependencies (asdf:find-system name))))
      (load-for-tests suite needed)))
  (watch-frameworks))

(defun run-suite (suite)
  "Run what SUITE wants."
  (setf *tests-told* 0 *tests-failed* 0 *frameworks-seen* '() *runs-tests* t)
  (unwind-protect
       (let ((*untracked* t))
         (watch-frameworks)
         (if (suite-names suite)
             (mapc (lambda (name) (run-wanted suite name)) (left-after-tests suite))
             (let ((systems (test-systems)))
               (when (null systems) (setf (suite-trouble suite) "nothing"))
               (dolist (name systems) (test-system suite name)))))
    (setf *runs-tests* nil)
    (leave-frameworks)))

(defun unknown-test-fault (text)
  "Return the members of an error that says that nothing called TEXT can be run."
  (list "type" "UNKNOWN-TEST"
        "message" (format nil "There is no ASDF system, file, suite or test ~a." text)
        "suggestions" (cons :array (nearest text (append (asdf:registered-systems) (mapcar #'title-of (all-tests)))))))

(defun run-guarded (suite)
  "Run what SUITE wants as user code; return the members of the error that ended it, or NIL."
  (let ((unknown nil))
    (or (call-guarded (lambda ()
                        (setf unknown (catch 'unknown-test (run-suite suite) nil))))
        (and unknown (unknown-test-fault unknown)))))

(defun suite-fault (suite fault)
  "Return FAULT, which ended SUITE, in plain sentences where a system could not be loaded."
  (if (suite-build suite)
      (or (ignore-errors (system-fault (suite-build suite) fault)) fault)
      fault))

(defun wanted-suite (request)
  "Return what REQUEST wants to be run, or refuse it."
  (let ((names (getf request :names))
        (framework (request-optional-text request :framework)))
    (unless (and (listp names) (every #'stringp names)) (malformed "names must be a list of strings"))
    (when (and framework (not (member framework (list* "asdf" (mapcar #'first *frameworks*)) :test #'string=)))
      (error "There is no framework ~a for Lisp: ~{~a~^, ~} and asdf are known." framework
             (remove-duplicates (mapcar #'first *frameworks*) :test #'string=)))
    (make-suite :names names :framework (and framework (string/= framework "asdf") framework))))

(define-operation "run_tests" (request)
  (let ((suite (wanted-suite request))
        (*package* (user-package)))
    (with-user-streams ((request-count request :limit +default-limit+) (getf request :id))
      (prepare-for-user-code)
      (let ((fault (run-guarded suite)))
        (flush-log)
        (put-reply-start (getf request :id) (null fault))
        (put-more-members (list "error" (and fault (cons :object (suite-fault suite fault)))
                                "framework" (format nil "~{~a~^, ~}" (or (reverse *frameworks-seen*) '("asdf")))
                                "trouble" (suite-trouble suite)))
        (put-output)
        (put-ascii "}")))
    (send-frame)))
