;;;; The loop that serves requests, the beginning of the program, and the saving of
;;;; cores from which it starts.

(in-package #:gramercy.image)

;;;; Saving: a copy of this process writes its whole state into a core, from which
;;;; the child can be started again, while this process goes on.

(defun forget-stack ()
  "Forget what lies on the stack: handlers, restarts and frames. The stack is not saved, so that SBCL would follow
these into nothing."
  (setf *floor-handlers* '() *floor-restarts* '()
        *standing-handlers* '() *standing-restarts* '()
        *choices* '() *standing-frames* '() *standing-request* '() *moment* nil))

(defun save-core (path)
  "Write this process into the core PATH and end. The core starts as the zygote."
  (forget-stack)
  (setf *objects* (make-array +most-objects+ :initial-element nil)
        *texts* '()
        *come* '()
        *later-functions* nil)
  (index-core)
  (take-snapshot)
  (index-names)
  (forget-mirror)
  (sb-ext:save-lisp-and-die path :toplevel #'main :executable nil))

(defun save-in-copy (path)
  "Write the core in a process of its own; return the status it ended with."
  (let ((process (fork-process)))
    (when (zerop process)
      (leave-parent)
      (let ((sb-ext:*invoke-debugger-hook* (lambda (condition hook)
                                             (declare (ignore hook))
                                             (format sb-sys:*stderr* "~&~a~%" (condition-message condition))
                                             (finish-output sb-sys:*stderr*)
                                             (leave 73))))
        (track-definitions nil)
        (save-core path)
        (leave 73)))
    (setf *children* (remove process *children*))
    (wait-for process)))

(defun wait-for (process)
  "Wait until PROCESS has ended; return its status."
  (loop (handler-case (return (nth-value 1 (sb-posix:waitpid process 0)))
          (sb-posix:syscall-error (condition)
            (unless (= (sb-posix:syscall-errno condition) sb-posix:eintr) (return -1))))))

(defun reply-unsaved (request place status)
  "Reply that no core was written to PLACE."
  (reply-fault request
               (list "type" "CANNOT-SAVE"
                     "message" (format nil "The core ~a could not be written (status ~d)." place status))))

(defun save-to-path (request path)
  "Write the core to the file PATH, whole or not at all."
  (let* ((partial (concatenate 'string path ".partial"))
         (status (save-in-copy partial)))
    (cond ((eql status 0)
           ;; Not RENAME-FILE, which reads meaning into dots and stars.
           (sb-posix:rename partial path)
           (reply request "bytes" (sb-posix:stat-size (sb-posix:stat path))))
          (t (ignore-errors (sb-posix:unlink partial))
             (reply-unsaved request path status)))))

(defun save-to-descriptor (request descriptor)
  "Write the core to the file that came with REQUEST as DESCRIPTOR: there is no place where both it and the parent
could reach it by name."
  (unwind-protect
       (let ((status (save-in-copy (format nil "/proc/self/fd/~d" descriptor))))
         (if (eql status 0)
             (reply request "bytes" (sb-posix:stat-size (sb-posix:fstat descriptor)))
             (reply-unsaved request "file" status)))
    (close-quietly descriptor)))

(define-operation "save" (request)
  (let* ((tag (getf request :tag))
         (descriptor (and tag (take-end tag))))
    (cond (descriptor (save-to-descriptor request descriptor))
          (tag (reply-fault request (list "type" "CANNOT-SAVE" "message" *no-end*)))
          (t (save-to-path request (request-text request :path))))))

;;;; Serving

(defun condition-members (condition)
  "Return what a reply tells of CONDITION, signalled by our own code."
  (typecase condition
    (unknown-name (unknown-name-members condition))
    (cannot-fork (list "type" "CANNOT-FORK" "message" (cannot-fork-reason condition)))
    (refusal (list "type" (refusal-type condition) "message" (refusal-reason condition)))
    ;; One that lands between the end of the guarded part and the reply is an interruption all the same.
    (interrupted (list "type" "INTERRUPTED" "message" (condition-message condition) "interrupted" t))
    (t (list "type" (condition-type-name condition) "message" (condition-message condition)))))

(defun perform (request)
  "Do what REQUEST asks and reply."
  (let ((operation (find-operation request)))
    (if operation
        (funcall (the function operation) request)
        (reply-fault request (list "type" "UNKNOWN-OP"
                                   "message" (format nil "There is no operation ~a."
                                                     (operation-name request)))))))

(defun end-request (condition hook)
  "Leave a request whose own code has failed. As a hook of the debugger it sees no condition that was handled,
and so, unlike a handler, it cannot come between user code and the handlers of the user's."
  (declare (ignore hook))
  (if (eq sb-thread:*current-thread* *main-thread*)
      (throw 'end-request condition)
      (end-thread condition)))

(defun end-thread (condition)
  "Let a fault of a thread of the user's end that thread and not the process; tell where it was."
  (ignore-errors
   (format sb-sys:*stderr* "~&Thread ~a ended: ~a~%~{  ~a~%~}"
           (thread-title sb-thread:*current-thread*) (condition-message condition)
           ;; A fault in what is told of the frames must not hide the death.
           (ignore-errors (thread-backtrace (frames-with-arguments))))
   (finish-output sb-sys:*stderr*))
  (sb-thread:abort-thread))

(defconstant +reply-arrives-nanoseconds+ 250000
  "How long to sleep after a reply at most: a kernel lets the sender go on before the receiver.")
(defconstant +quiet-nanoseconds+ 20000000
  "How long a client must be silent before the rest is done. The checkpoint that was dropped for the new one has
ended by then and can be reaped; SIGCHLD ends the wait early.")

(defun make-ready ()
  "Do after a fork what would cost the next request time, as long as that has not come."
  (unless (wait-for-request 0)
    (rehearse)
    (unless (wait-for-request +quiet-nanoseconds+)
      (reap-children)
      (start-finalizers)
      (install-interrupt-handler)
      (setf *undisturbed* t))))

(defun serve-request (start end)
  "Serve the request that stands in the inbox from START to END. Its faults are replies."
  (let* ((request '())
         (condition (catch 'end-request
                      (setf request (read-request start end))
                      (when *come* (keep-ends request))
                      (start-listening request)
                      (setf *unchanged* nil
                            *moment-tag* (getf request :keep-moment)
                            *checkpoint-tag* (let ((tag (getf request :then-fork)))
                                               (and (stringp tag) tag)))
                      (unless *moment* (setf *standing-request* request))
                      (perform request)
                      nil)))
    (when (typep condition 'condition)
      (reply-fault request (condition-members condition) (typep condition 'refusal)))
    ;; Before a copy is made: a state that is gone back to must not ask.
    (hang-up)
    (let ((tag (shiftf *checkpoint-tag* nil)))
      (when tag
        (without-hangup-signal
          (wait-for-request +reply-arrives-nanoseconds+)
          (when (fork-checkpoint tag) (make-ready)))))))

(defun serve-requests ()
  "Serve requests until the connection ends, which ends the process."
  (loop
    (multiple-value-bind (start end) (next-frame)
      (unless *undisturbed* (reap-children))
      (setf sb-ext:*invoke-debugger-hook* #'end-request
            *debugger-hook* nil)
      (serve-request start end))))

(defun serve ()
  "Serve requests as a process in which no stack stands."
  (let ((*untracked* t)) (serve-requests)))

(define-operation "ping" (request) (reply request))
(define-operation "exit" (request) (declare (ignore request)) (leave))

;;; A state whose heap has no room for a collection ends at one: better here than in a call.
(define-operation "rehearse" (request) (sb-ext:gc) (reply request))

(define-operation "state" (request)
  (put-reply-start (getf request :id) t)
  (put-state)
  (put-ascii "}")
  (send-frame))

(defun own-arguments ()
  "Return the arguments of the command line that are meant for us."
  (rest (or (member "--end-toplevel-options" sb-ext:*posix-argv* :test #'string=)
            (member "--end-runtime-options" sb-ext:*posix-argv* :test #'string=)
            sb-ext:*posix-argv*)))

(defun option (name options)
  "Return the value of the option NAME in OPTIONS, empty where it lacks one, or NIL."
  (let ((found (member name options :test #'equal)))
    (and found (or (second found) ""))))

(defun main ()
  "Start as the zygote: say hello on the inherited connection and serve. The toplevel function of the core."
  (let* ((options (take-options (own-arguments)))
         (connection (ignore-errors (parse-integer (option "--connection" options)))))
    (unless connection
      (format sb-sys:*stderr*
              "usage: sbcl --core CORE --end-runtime-options --connection DESCRIPTOR [--mirror DESCRIPTOR]~%")
      (finish-output sb-sys:*stderr*)
      (leave 64))
    (take-connection (moved-descriptor connection))
    (setf *main-thread* sb-thread:*current-thread*)
    (open-mirror (option "--mirror" options)))
  ;; What was found out about directories belongs to the machine that built the core.
  (asdf:clear-configuration)
  (uiop/configuration::compute-user-cache)
  (extend-search)
  (note-written-pages)
  (become-zygote)
  (join-parent)
  (serve))

;;;; Rehearsal. After a fork every page is shared with the copy, and the first
;;;; write to a page copies it. No request is waiting right after a fork, so what an
;;;; evaluation writes to is made this process's own again then.

(defconstant +populate-for-writing+ 23
  "MADV_POPULATE_WRITE of Linux since 5.14: pages become this process's own, and keep what is in them.")
(defconstant +page+ 4096)
(defconstant +coming-memory+ (* 256 1024) "How much of the memory that is allocated next is made ready.")

(defglobal *written-pages* '()
  "The pages of the symbols whose global values every request sets. They never move.")

(defun own-memory (address length)
  "Make LENGTH octets from ADDRESS on this process's own. Older systems refuse, and nothing is lost."
  (let ((start (logandc2 address (1- +page+))))
    (sb-alien:alien-funcall
     (sb-alien:extern-alien "madvise" (function sb-alien:int sb-alien:unsigned-long
                                                sb-alien:unsigned-long sb-alien:int))
     start (- (+ address length) start) +populate-for-writing+)))

(defun own-object (object length)
  "Make the first LENGTH octets of OBJECT this process's own. It may be moved meanwhile, and then is already."
  (own-memory (sb-kernel:get-lisp-obj-address object) length))

(defun note-written-pages ()
  "Find out on which pages the symbols stand; done once, at the start, since saving a core moves them."
  (let ((pages '())
        (home (find-package :gramercy.image)))
    (flet ((note (symbol)
             (when (sb-kernel:immobile-space-obj-p symbol)
               (pushnew (logandc2 (sb-kernel:get-lisp-obj-address symbol) (1- +page+)) pages))))
      (mapc #'note '(+ ++ +++ - * ** *** / // /// *package* *gensym-counter*))
      (do-symbols (symbol home)
        (when (and (eq (symbol-package symbol) home) (boundp symbol) (not (constantp symbol)))
          (note symbol))))
    (setf *written-pages* pages)))

(defun rehearse-tables ()
  "Write to what remembers a change, and leave it as it was."
  (dolist (table (list *definitions* *touched* *before*))
    (setf (gethash :rehearsal table) t)
    (remhash :rehearsal table))
  (let ((oldest (nthcdr (- +most-entries+ 2) *journal*)))
    (when oldest (setf (cdr oldest) (cdr oldest)))))

(defun rehearse ()
  "Evaluate something trivial, and make ready what that does not touch.
The variables that remember evaluations keep their values."
  (rehearse-tables)
  (flush-log)
  (progv '(+ ++ +++ - * ** *** / // ///)
      (list + ++ +++ - * ** *** / // ///)
    (ignore-errors (warm-up-evaluation "(+ 1 2 3)")))
  (dolist (page *written-pages*) (own-memory page +page+))
  (own-object *inbox* +page+)
  (own-object *outbox* +page+)
  (own-object (cons nil nil) +coming-memory+))

;;;; Warming up. Before a core is saved, every common path is walked once: the
;;;; object system finds its methods at the first call, and that should not be the
;;;; user's.

(defglobal *warm-up-code*
    '("(+ 1 2 3)"
      "(progn (format t \"~a~%\" \"text\") (terpri *error-output*) (values 1.5 \"two\" #\\3 'four '(5 6) #(7)))"
      "(print (make-hash-table))"
      "(defun cl-user::warm (cl-user::x) (let ((cl-user::y 1)) (cl-user::cold cl-user::x)))"
      "(cl-user::warm 1)"
      "(error \"cold ~a\" 1)"
      "(fmakunbound 'cl-user::warm)"
      "(car 1)"
      "(list 1")
  "Code whose evaluation touches what most evaluations touch.")

(defun warm-up-evaluation (code)
  "Evaluate CODE and write the reply, which is not sent."
  (let ((evaluation (make-request-evaluation (list :code code) t)))
    (with-user-streams (+default-limit+)
      (run-evaluation evaluation #'eval)
      (put-evaluation 1 evaluation)
      (reset-outbox))))

(defun socket-pair ()
  "Return the descriptors of two connected sockets."
  (sb-alien:with-alien ((both (array sb-alien:int 2)))
    (sb-alien:alien-funcall
     (sb-alien:extern-alien "socketpair" (function sb-alien:int sb-alien:int sb-alien:int sb-alien:int
                                                   sb-sys:system-area-pointer))
     1 1 0 (sb-alien:alien-sap both))
    (values (sb-alien:deref both 0) (sb-alien:deref both 1))))

(defun warm-up-start ()
  "Map a mirror and say hello, as the zygote does at its start. What cannot be tried here will cost it some time."
  (let ((file (format nil "~a/warm.mirror" (sb-posix:getcwd))))
    (unwind-protect
         (ignore-errors
          (let ((descriptor (sb-posix:open file (logior sb-posix:o-rdwr sb-posix:o-creat) #o600)))
            (sb-posix:ftruncate descriptor +mirror-size+)
            (open-mirror (princ-to-string descriptor)))
          (multiple-value-bind (parent own) (socket-pair)
            (take-connection (moved-descriptor own))
            (join-parent)
            (sb-sys:enable-interrupt +connection-signal+ :default)
            (leave-parent)
            (sb-posix:close parent)))
      (setf *connection* -1)
      (ignore-errors (sb-posix:unlink file)))))

(defun forget-warm-up ()
  "Leave no trace of the warming up."
  (setf *objects* (make-array +most-objects+ :initial-element nil)
        *object-count* 0
        *main-thread* nil
        +++ nil ++ nil + nil - nil
        *** nil ** nil * nil
        /// nil // nil / nil)
  (clrhash *touched*)
  (clrhash *definitions*)
  (forget-journal)
  (dolist (name '("WARM" "COLD" "X" "Y" "FOUR"))
    (unintern (find-symbol name :cl-user) :cl-user)))

(defun build-core (path)
  "Save a core to PATH that starts as the zygote, and end."
  (setf *main-thread* sb-thread:*current-thread*)
  (track-definitions t)
  (let ((*package* (find-package :common-lisp-user)))
    (mapc #'warm-up-evaluation *warm-up-code*))
  (warm-up-start)
  (track-definitions nil)
  (forget-warm-up)
  (setf *package* (find-package :common-lisp-user))
  (save-core path))
