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
          (names (and (not (own-test-op-p system)) (null (test-dependencies system)))))
      (if names
          (run-loaded suite)
          (perform-test-op suite name))
      (when (= told *tests-told*)
        (setf (suite-trouble suite) (if names "nothing" "unseen"))))))

(defun perform-test-op (suite name)
  "Perform the test-op of the system NAME. An error behind tests that failed only says that they did."
  (declare (ignore suite))
  (let ((failed *tests-failed*))
    (handler-bind ((error (lambda (condition)
                            (declare (ignore condition))
                            (when (and (> *tests-failed* failed) (null *test-run*))
                              (return-from perform-test-op)))))
      (asdf:test-system name))))

(defun run-loaded (suite)
  "Run all tests of the frameworks that are loaded."
  (declare (ignore suite))
  (when (find-package +fiveam+) (run-fiveam '())))

(defun named-tests (text)
  "Return the function that runs the tests called TEXT, and their names; NIL where there are none."
  (let ((names (and (find-package +fiveam+)
                    (remove-if-not (lambda (name) (called-p name text)) (fiveam-names)))))
    (when names (values #'run-fiveam names))))

(defun all-tests ()
  "Return the names of all tests and suites that are loaded."
  (remove nil (and (find-package +fiveam+) (fiveam-names))))

(defun called-p (name text)
  "Tell whether the test NAME is called TEXT, with its package or without."
  (and name (or (string-equal text (string name)) (string-equal text (test-text name)))))

(defun known-system-p (text)
  "Tell whether TEXT names a system. A name with a package is not looked for: ASDF would read a definition again."
  (and (not (search "::" text)) (asdf:find-system (string-downcase text) nil)))

(defun run-wanted (suite text)
  "Run what TEXT names: a test or suite that is loaded, a system, or a test of the project's systems."
  (multiple-value-bind (run names) (named-tests text)
    (cond (run (funcall run names))
          ((known-system-p text) (test-system suite (string-downcase text)))
          (t (load-project-tests suite)
             (multiple-value-bind (run names) (named-tests text)
               (if run
                   (funcall run names)
                   (throw 'unknown-test text)))))))

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
             (dolist (name (suite-names suite)) (run-wanted suite name))
             (let ((systems (test-systems)))
               (when (null systems) (setf (suite-trouble suite) "nothing"))
               (dolist (name systems) (test-system suite name)))))
    (setf *runs-tests* nil)
    (leave-frameworks)))

(defun unknown-test-fault (text)
  "Return the members of an error that says that nothing called TEXT can be run."
  (list "type" "UNKNOWN-TEST"
        "message" (format nil "There is no ASDF system, file, suite or test ~a." text)
        "suggestions" (cons :array (nearest text (append (asdf:registered-systems) (mapcar #'test-text (all-tests)))))))

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

(define-operation "run_tests" (request)
  (let ((suite (make-suite :names (getf request :names) :framework (request-optional-text request :framework)))
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
