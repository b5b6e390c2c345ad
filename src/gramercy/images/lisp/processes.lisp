;;;; The processes of an image: the zygote that only forks, and its descendants.
;;;; Each has one connection of its own, and ends when that is closed.

(in-package #:gramercy.image)

(defglobal *role* "zygote" "What this process is for.")
(defglobal *process-id* 0 "The number of this process as it sees it itself.")
(defglobal *children* '() "Processes forked from this one that were not reaped yet.")

(defconstant +be-subreaper+ 36 "PR_SET_CHILD_SUBREAPER of Linux.")

(define-condition cannot-fork (error)
  ((reason :initarg :reason :reader cannot-fork-reason))
  (:report (lambda (condition stream) (write-string (cannot-fork-reason condition) stream)))
  (:documentation "Signalled where a copy of this process would lack its threads."))

(defun process-control (option argument)
  "Make the prctl call OPTION with ARGUMENT; return its result."
  (sb-alien:alien-funcall
   (sb-alien:extern-alien "prctl" (function sb-alien:int sb-alien:int sb-alien:unsigned-long
                                            sb-alien:unsigned-long sb-alien:unsigned-long
                                            sb-alien:unsigned-long))
   option argument 0 0 0))

(defun threads-reason ()
  "Return why this process cannot be forked, or NIL when it can."
  (let ((names (mapcar (lambda (thread)
                         (let ((name (sb-thread:thread-name thread)))
                           (if (stringp name) name "unnamed")))
                       (user-threads))))
    (when names
      (format nil "~d user thread~:p ~:*~[~;is~:;are~] running: ~{~a~^, ~}" (length names) names))))

;;; SBCL ends its finalizer thread before a fork and starts one on both sides after it. That takes half as long as
;;; the fork itself, and most copies only sleep: a thread is started where user code is about to run, not before.

(defglobal *forking* nil "True during a fork, when no finalizer thread is to be started.")

(defun finalizer-thread-p ()
  "Tell whether the finalizer thread of this process runs."
  (let ((thread (internal-symbol "*FINALIZER-THREAD*" "SB-IMPL")))
    (and thread (boundp thread) (typep (symbol-value thread) 'sb-thread:thread))))

(defun start-finalizers ()
  "Start the finalizer thread where there is none."
  (let ((start (internal-function "FINALIZER-THREAD-START" "SB-IMPL")))
    (when (and start (not (finalizer-thread-p))) (funcall start))))

(defun start-finalizers-late ()
  "Let a fork start no finalizer thread, and let SBCL end only one that runs."
  (wrap (internal-symbol "FINALIZER-THREAD-START" "SB-IMPL")
        (lambda (original &rest arguments)
          (unless *forking* (apply original arguments))))
  (wrap (internal-symbol "FINALIZER-THREAD-STOP" "SB-IMPL")
        (lambda (original &rest arguments)
          (when (finalizer-thread-p) (apply original arguments)))))

(defglobal *fork-microseconds* 0 "Of a copy: how long its fork took.")

(defun fork-process ()
  "Fork; return 0 in the copy and its number in this process, or signal CANNOT-FORK."
  (let ((reason (threads-reason)))
    (when reason (error 'cannot-fork :reason reason)))
  (flush-log)
  (let* ((began (microseconds))
         (process (unwind-protect
                       (handler-case (progn (setf *forking* t) (sb-posix:fork))
                         (error (condition)
                           (error 'cannot-fork :reason (condition-message condition))))
                    (setf *forking* nil))))
    (setf *undisturbed* nil)
    (if (zerop process)
        (setf *fork-microseconds* (- (microseconds) began))
        (push process *children*))
    process))

(defun fork-with-end (tag)
  "Fork; return 0 and the end for its connection in the copy, and in this process the number of the copy.
The end belongs to the copy alone."
  (let ((end (or (take-end tag) (error 'cannot-fork :reason *no-end*)))
        (process -1))
    (unwind-protect (values (setf process (fork-process)) end)
      (unless (eql process 0) (close-quietly end)))))

(defun leave-parent-in-copies ()
  "Let a copy that user code forks leave the mirror and the connection to this process. Our own copies take up the
mirror at their next request."
  (wrap 'sb-posix:fork
        (lambda (original &rest arguments)
          (let ((process (apply original arguments)))
            (when (eql process 0)
              (setf *mirror-in-use* nil)
              (unless *forking* (leave-parent)))
            process))))

(defun flush-c-output ()
  "Write out what functions of C have printed on their standard output: they keep it to themselves as long as that is
no terminal. Another thread may hold its lock for long."
  (unless (user-threads)
    (sb-alien:alien-funcall
     (sb-alien:extern-alien "fflush" (function sb-alien:int sb-sys:system-area-pointer))
     (sb-alien:extern-alien "stdout" sb-sys:system-area-pointer))))

(defun flush-log ()
  "Write out what is buffered for the log, or a copy would write it again."
  (ignore-errors (flush-c-output))
  (ignore-errors (finish-output sb-sys:*stdout*))
  (ignore-errors (finish-output sb-sys:*stderr*)))

;;; Beginnings

(defun become-zygote ()
  "Set this process up as the one that only forks."
  (setf *role* "zygote" *children* '())
  (forget-ends)
  (process-control +be-subreaper+ 1)
  (sb-sys:enable-interrupt sb-unix:sigint :ignore)
  ;; The system ends the process, here and in every copy, as it does at the end of the connection: without hooks.
  ;; SBCL's own handler calls EXIT on the thread that the signal came to. Where that is the finalizer thread, only
  ;; that thread ends, and leaves a lock held for which every later EXIT waits for ever.
  (sb-sys:enable-interrupt sb-unix:sigterm :default)
  (sb-sys:enable-interrupt sb-unix:sigchld #'on-child-signal))

(defun become-copy (role end)
  "Set this process, just forked, up for ROLE: its own connection, which END is, its own state."
  (leave-parent)
  (take-connection end)
  ;; A process group of its own: code that kills its group must not take its checkpoints along.
  (ignore-errors (sb-posix:setpgid 0 0))
  (setf *role* role
        *children* '()
        *main-thread* sb-thread:*current-thread*)
  (track-definitions t)
  (forget-ends)
  (forget-programs)
  (sb-sys:enable-interrupt sb-unix:sigchld (or (internal-function "SIGCHLD-HANDLER" "SB-UNIX") :default))
  (install-interrupt-handler)
  (setf *start-notes* '())
  (unless (member role '("checkpoint" "moment") :test #'string=) (start-finalizers))
  (when (string= role "live") (load-init-file))
  (join-parent))

(defun put-hello (notes)
  "Write who this process is, with NOTES about how it began."
  (put-json (list :object
                  "hello" 1
                  "role" *role*
                  "language" "sbcl"
                  "version" (lisp-implementation-version)
                  "capabilities" #("fork" "preview" "save" "compile" "xref" "macroexpand" "inspect"
                                   "definitions" "undo_definitions" "load_system" "interrupt")
                  "notes" (cons :array notes)
                  "fork_us" *fork-microseconds*)))

(defun join-parent ()
  "Say hello to the parent."
  (setf *process-id* (sb-posix:getpid))
  (handler-case (prepare-hangup-signal)
    (sb-posix:syscall-error (condition)
      (format sb-sys:*stderr* "The connection to the parent is of no use: ~a~%" condition)
      (flush-log)
      (leave 69)))
  (put-hello *start-notes*)
  (when (> *outbox-end* +largest-hello+)
    (reset-outbox)
    (put-hello '("What is to be said of the start is too long to be told.")))
  (send-hello))

;;; Forking on request: this process replies, the copy says hello.

(define-operation "fork" (request)
  (let ((role (request-text request :role))
        (tag (request-text request :tag)))
    (unless (member role (if *moment* '("moment" "attempt") '("live" "checkpoint" "preview")) :test #'string=)
      (malformed (if *moment* "role must be moment or attempt" "role must be live, checkpoint or preview")))
    (multiple-value-bind (process end) (fork-with-end tag)
      (if (zerop process)
          (progn (when (getf request :plain) (setf *init-file* nil))
                 (become-copy role end))
          (reply request "pid" process)))))

(defun fork-checkpoint (tag)
  "Fork a checkpoint unasked, after a reply. Return true in the process that went on and has a copy now.
Of one that cannot be made the end is closed, which tells the parent."
  (handler-case
      (multiple-value-bind (process end) (fork-with-end tag)
        (cond ((zerop process) (become-copy "checkpoint" end) nil)
              (t t)))
    (cannot-fork () nil)))

;;;; How processes ended. Each process reaps what it has forked, and remembers the
;;;; status for a while: the program that asks is not their parent.

(defconstant +most-ended+ 64
  "Wait statuses that are kept: the parent asks for one right after EOF, so only the latest matter.")

;;; Written where SIGCHLD is handled, so there is nothing to allocate.
(declaim (type (simple-array (signed-byte 64) (*)) *ended*) (type (unsigned-byte 61) *ended-count*))
(defglobal *ended* (make-array (* 2 +most-ended+) :element-type '(signed-byte 64) :initial-element 0)
  "The number and the status of each of the latest processes reaped, in a circle.")
(defglobal *ended-count* 0 "How many processes were reaped.")
(defglobal *ended-lock* (sb-thread:make-mutex :name "reaping")
  "Held from the reaping of a process until its end is remembered: any thread may have to handle SIGCHLD.")

(defun remember-end (process status)
  "Remember that PROCESS has ended with STATUS."
  (let ((place (* 2 (mod *ended-count* +most-ended+))))
    (setf (aref *ended* place) process
          (aref *ended* (1+ place)) status)
    (incf *ended-count*)))

(defun forget-ends ()
  "Forget the ends of processes that were children of another process, of which this is a copy."
  (setf *ended-count* 0))

(defun forget-programs ()
  "Forget the running programs of another process, of which this is a copy: they are no children of this one.
RUN-PROGRAM would look for their end for ever, at each end of another."
  (let ((programs (internal-symbol "*ACTIVE-PROCESSES*" "SB-IMPL")))
    (when (and programs (boundp programs)) (setf (symbol-value programs) '()))))

(defun ended-status (process)
  "Return the status PROCESS has ended with, or NIL where that is not known. The latest counts: numbers come again."
  (loop for count from *ended-count* above (max 0 (- *ended-count* +most-ended+))
        for place = (* 2 (mod (1- count) +most-ended+))
        when (= process (aref *ended* place))
          return (aref *ended* (1+ place))))

(defun reap-process (process)
  "Reap PROCESS if it has ended, without waiting. Return its number; 0 while it runs, NIL if it is not ours."
  ;; Not interrupted, or the handler of SIGCHLD would wait for a lock that its own thread holds.
  (sb-sys:without-interrupts
    (sb-thread:with-mutex (*ended-lock*)
      (multiple-value-bind (ended status)
          (handler-case (sb-posix:waitpid process sb-posix:wnohang)
            (sb-posix:syscall-error () nil))
        (when (and ended (plusp ended)) (remember-end ended status))
        ended))))

(defconstant +any-process+ 0 "P_ALL of Linux.")
(defconstant +only-look-for-ended+ #x01000005 "WNOHANG, WEXITED and WNOWAIT of Linux.")

(defun child-ended-p ()
  "Tell whether any child of this process has ended. One system call, however many children there are."
  (sb-alien:with-alien ((information (array sb-alien:int 32)))
    (setf (sb-alien:deref information 0) 0)
    (sb-alien:alien-funcall
     (sb-alien:extern-alien "waitid" (function sb-alien:int sb-alien:int sb-alien:int
                                               sb-sys:system-area-pointer sb-alien:int))
     +any-process+ 0 (sb-alien:alien-sap information) +only-look-for-ended+)
    (/= 0 (sb-alien:deref information 0))))

(defun reap-children ()
  "Reap the ended forks of this process, and only those: others belong to the user's RUN-PROGRAM."
  (when (and *children* (child-ended-p))
    (setf *children* (delete-if-not (lambda (process) (eql 0 (reap-process process))) *children*))))

(defun reap-everything ()
  "Reap whatever has ended: the zygote inherits the forks of processes that died."
  (loop for process = (reap-process -1)
        while (and process (plusp process))))

(defun on-child-signal (signal info context)
  "Handle SIGCHLD in the zygote."
  (declare (ignore signal info context))
  (reap-everything))

;;; Telling

(defun running-child-p (process)
  "Tell whether PROCESS is a child of this one that has not ended; if it has, its end is remembered."
  (cond ((string= *role* "zygote")
         (reap-everything)
         (and (typep process '(signed-byte 32)) (eql 0 (reap-process process))))
        (t (reap-children)
           (member process *children*))))

(defun status-members (status)
  "Return what a reply tells of STATUS, which the system gave for a process that ended."
  (let ((signal (ldb (byte 7 0) status)))
    (if (zerop signal)
        (list "kind" "exited" "code" (ldb (byte 8 8) status))
        (list "kind" "signaled" "signal" signal))))

(define-operation "fate" (request)
  (let ((process (getf request :pid)))
    (unless (typep process '(integer 1)) (malformed "pid must be the number of a process"))
    (reply request
           "status" (cons :object
                          (if (running-child-p process)
                              (list "kind" "running")
                              (let ((status (ended-status process)))
                                (if status (status-members status) (list "kind" "unknown"))))))))
