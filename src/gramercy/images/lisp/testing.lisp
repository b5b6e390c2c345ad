;;;; Running tests: what is wanted is looked for among systems, files, and the tests
;;;; of the frameworks that are loaded; what is run is told test by test.

(in-package #:gramercy.image)

(defglobal *runs-tests* nil "True while tests run: then frameworks that are loaded are watched at once.")

(defmethod asdf:perform :after ((operation asdf:load-op) (component asdf:system))
  (when *runs-tests* (watch-frameworks)))

(defglobal *tested-systems* '() "Names of the systems whose test-op was performed in this run.")

(defun tested-p (name)
  "Tell whether the test-op of the system NAME was performed in this run."
  (member name *tested-systems* :test #'string=))

(defmethod asdf:perform :around ((operation asdf:test-op) (component asdf:system))
  ;; Once in a run: the test-op of a library often performs that of its tests, which is one of the project's too.
  (let ((name (asdf:component-name component)))
    (unless (and *runs-tests* (tested-p name))
      (when *runs-tests* (push name *tested-systems*))
      (call-next-method))))

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
    ;; Systems of tests last: those that they test may lead to them.
    (mapcar #'asdf:component-name (if chosen
                                      (stable-sort chosen #'< :key (lambda (system) (if (named-like-tests-p system) 1 0)))
                                      (remove-if-not #'named-like-tests-p systems)))))

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
  (let ((system (asdf:find-system name))
        (told *tests-told*))
    (dolist (needed (cons name (test-dependencies system)))
      (load-for-tests suite needed))
    (watch-frameworks)
    (cond ((or (own-test-op-p system) (test-dependencies system)) (perform-test-op name))
          (t (run-loaded suite)
             (when (= told *tests-told*) (setf (suite-trouble suite) "nothing"))))))

;;;; The verdict of a test-op: what a framework tells, or the status with which it ends the process. What it
;;;; returns or prints is no verdict.

(defvar *test-op* nil "The performing of a test-op under way in this thread, or NIL.")

(defstruct (performing (:copier nil))
  "A test-op under way: of which system, how many tests had been told and had failed before, and what it prints.
LAST is the end of that where a jump has ended it: on its way the compiler prints too."
  (name "" :type string)
  (told *tests-told*)
  (failed *tests-failed*)
  (printed (make-instance 'ending-stream :limit (* 2 +longest-test-output+)))
  (last nil :type (or null string)))

(defun printed-end (performing)
  "Return the end of what PERFORMING has printed."
  (or (performing-last performing)
      (let ((text (stream-text (performing-printed performing))))
        (subseq text (max 0 (- (length text) +longest-test-output+))))))

(defun leave-test-op (end)
  "Jump out of the test-op under way, which ends in END."
  (setf (performing-last *test-op*) (printed-end *test-op*))
  (throw *test-op* end))

(define-observer ("EXIT" "SB-EXT") (&key (code 0 coded) abort &allow-other-keys)
  ;; In a test it is the end of the process; behind the tests it is how many suites tell their verdict.
  (if (and *test-op* (not *test-run*))
      (leave-test-op (cond ((integerp code) code) ((and abort (not coded)) 1) (t 0)))
      (go-on)))

(defun perform-test-op (name)
  "Perform the test-op of the system NAME, and tell of it as a test where no framework has told its verdict."
  (let* ((performing (make-performing :name name))
         (both (make-broadcast-stream (performing-printed performing) *standard-output*))
         (ended nil))
    (unwind-protect
         (let* ((*test-op* performing)
                (*standard-output* both)
                (*error-output* (make-broadcast-stream (performing-printed performing) *error-output*))
                (end (catch performing (call-test-op name) nil)))
           (setf ended t)
           (conclude-test-op performing end))
      (unless ended (tell-stopped performing)))))

(defun tell-stopped (performing)
  "Tell what PERFORMING, which does not come to its end, has printed."
  (let ((text (printed-end performing)))
    (when (find #\Newline text :test-not #'eql)
      (tell-event "stopped" "text" (format nil "It had printed:~%~a" text)))))

(defun call-test-op (name)
  "Perform the test-op of the system NAME; throw the text of an error that ends it outside of tests."
  (handler-bind ((error (lambda (condition)
                          (unless *test-run* (leave-test-op (error-text condition))))))
    (asdf:test-system name)))

(defun conclude-test-op (performing end)
  "Tell how PERFORMING ended: END is the status with which it ended the process, the text of an error, or NIL.
An error or a status behind tests that failed only says that they did."
  (cond ((> *tests-failed* (performing-failed performing)))
        ((stringp end) (tell-test-op performing :failures (list end)))
        ((and end (plusp end))
         (tell-test-op performing :failures (list (format nil "It ended with exit status ~d." end))))
        ((> *tests-told* (performing-told performing)))
        (end (tell-test-op performing :remark "It ended with exit status 0; no known framework reported a test."))
        (t (tell-test-op performing :remark (silence-text) :unknown t))))

(defun silence-text ()
  "Say why a test-op that has returned tells nothing."
  (if *frameworks-seen*
      (format nil "~{~a~^, ~} ran no test." *frameworks-seen*)
      "It returned, and no known framework reported a test."))

(defun tell-test-op (performing &key failures remark unknown)
  "Tell of PERFORMING as of a test."
  (let ((output (make-instance 'bounded-stream :limit +longest-test-output+))
        (name (performing-name performing)))
    (write-string (printed-end performing) output)
    (tell-result (make-test-run :name name :title name :failed (length failures) :failures failures
                                :remark remark :unknown unknown :output output))))

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
  ;; For some frameworks a file is a test.
  (unless (run-named suite (project-name file)) (run-tests-in suite file)))

(defun component-file-p (component file)
  "Tell whether FILE is that of COMPONENT, a system or a part of one, or of a part of it."
  (if (typep component 'asdf:parent-component)
      (some (lambda (child) (component-file-p child file)) (asdf:component-children component))
      (let ((path (asdf:component-pathname component)))
        (and path (string= file (sb-ext:native-namestring path))))))

(defun run-tests-in (suite file)
  "Run those of the tests that are loaded which FILE defines."
  (unless (gethash file *loaded-files*)
    (let ((system (find-if (lambda (system) (component-file-p system file)) (project-systems))))
      (if system
          (load-for-tests suite (asdf:component-name system))
          (load (sb-ext:parse-native-namestring file))))
    (watch-frameworks))
  (let ((found nil))
    (dolist (framework (loaded-frameworks (suite-framework suite)))
      (let ((tests (remove-if-not (lambda (test) (in-file-p file (car test)))
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
  "Run what TEXT names: a file, a test or suite that is loaded, a system, a test of the project's systems, or several."
  (let ((file (source-file text)))
    (cond (file (run-file suite file))
          ((progn (load-changes suite) (run-named suite text)))
          ((tested-p (string-downcase text)))
          ((known-system-p text) (test-system suite (string-downcase text)))
          ((progn (load-project-tests suite) (run-named suite text)))
          ((progn (load-systems-like-tests suite) (run-named suite text)))
          ((find #\Space text)
           (mapc (lambda (name) (run-wanted suite name)) (remove "" (uiop:split-string text) :test #'string=)))
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

(defun load-systems-like-tests (suite)
  "Load the systems of the project that are called as systems of tests are: a test-op may load them itself."
  (dolist (system (remove-if-not #'named-like-tests-p (project-systems)))
    (load-for-tests suite (asdf:component-name system)))
  (watch-frameworks))

(defun run-suite (suite)
  "Run what SUITE wants."
  (setf *tests-told* 0 *tests-failed* 0 *frameworks-seen* '() *tested-systems* '() *runs-tests* t)
  (unwind-protect
       (let ((*untracked* t))
         (watch-frameworks)
         (if (suite-names suite)
             (mapc (lambda (name) (run-wanted suite name)) (left-after-tests suite))
             (let ((systems (test-systems)))
               (when (null systems) (setf (suite-trouble suite) "nothing"))
               (dolist (name systems) (unless (tested-p name) (test-system suite name))))))
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

(defconstant +most-left-threads+ 5 "Threads that tests have left, by name.")

(defun left-threads-notes ()
  "Return a list of a sentence about threads that the tests have left, or NIL. A copy begins without any."
  (let* ((names (mapcar #'sb-thread:thread-name (user-threads)))
         (shown (subseq names 0 (min +most-left-threads+ (length names)))))
    (when names
      (list (format nil "the tests left threads running: ~{~a~^, ~}~@[ and ~d more~]" shown
                    (and (> (length names) (length shown)) (- (length names) (length shown))))))))

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
                                "trouble" (suite-trouble suite)
                                "notes" (cons :array (left-threads-notes))))
        (put-output)
        (put-ascii "}")))
    (send-frame)))
