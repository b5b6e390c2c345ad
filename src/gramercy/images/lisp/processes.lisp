;;;; The processes of an image: the zygote that only forks, and its descendants.
;;;; Each has one connection of its own, and ends when that is closed.

(in-package #:gramercy.image)

(defglobal *socket-path* "" "Where the parent listens.")
(defglobal *token* "" "What proves to the parent that a connection is one of ours.")
(defglobal *role* "zygote" "What this process is for.")
(defglobal *tag* "" "The name the parent gave to the fork that made this process.")
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

(defun fork-process ()
  "Fork; return 0 in the copy and its number in this process, or signal CANNOT-FORK."
  (let ((reason (threads-reason)))
    (when reason (error 'cannot-fork :reason reason)))
  (flush-log)
  (let ((process (handler-case (sb-posix:fork)
                   (error (condition)
                     (error 'cannot-fork :reason (condition-message condition))))))
    (setf *undisturbed* nil)
    (unless (zerop process) (push process *children*))
    process))

(defun flush-log ()
  "Write out what is buffered for the log, lest a copy write it again."
  (ignore-errors (finish-output sb-sys:*stdout*))
  (ignore-errors (finish-output sb-sys:*stderr*)))

;;; Beginnings

(defun become-zygote ()
  "Set this process up as the one that only forks."
  (setf *role* "zygote" *tag* "" *children* '())
  (forget-ends)
  (process-control +be-subreaper+ 1)
  (sb-sys:enable-interrupt sb-unix:sigint :ignore)
  (sb-sys:enable-interrupt sb-unix:sigchld #'on-child-signal))

(defun become-copy (role tag)
  "Set this process, just forked, up for ROLE: its own connection, its own state."
  (sb-posix:close *connection*)
  ;; A process group of its own: code that kills its group must not take its checkpoints along.
  (ignore-errors (sb-posix:setpgid 0 0))
  (setf *role* role
        *tag* tag
        *children* '()
        *main-thread* sb-thread:*current-thread*)
  (track-definitions t)
  (forget-ends)
  (forget-programs)
  (sb-sys:enable-interrupt sb-unix:sigchld (or (internal-function "SIGCHLD-HANDLER" "SB-UNIX") :default))
  (install-interrupt-handler)
  (setf *start-notes* '())
  (when (string= role "live") (load-init-file))
  (join-parent))

(defun join-parent ()
  "Connect to the parent and say hello."
  (setf *process-id* (sb-posix:getpid))
  (handler-case (progn (connect-to-parent *socket-path*)
                       (prepare-hangup-signal))
    (error (condition)
      (format sb-sys:*stderr* "The parent does not answer on ~a: ~a~%" *socket-path* condition)
      (flush-log)
      (leave 69)))
  (put-json (list :object
                  "hello" 1
                  "role" *role*
                  "language" "sbcl"
                  "version" (lisp-implementation-version)
                  "pid" *process-id*
                  "capabilities" #("fork" "preview" "save" "compile" "xref" "macroexpand" "inspect"
                                   "definitions" "undo_definitions" "load_system" "interrupt")
                  "notes" (cons :array *start-notes*)
                  "token" *token*
                  "tag" *tag*))
  (send-frame))

;;; Forking on request: this process replies, the copy says hello.

(define-operation "fork" (request)
  (let ((role (request-text request :role))
        (tag (or (request-optional-text request :tag) "")))
    (unless (member role '("live" "checkpoint" "preview") :test #'string=)
      (malformed "role must be live, checkpoint or preview"))
    (let ((process (fork-process)))
      (if (zerop process)
          (progn (when (getf request :plain) (setf *init-file* nil))
                 (become-copy role tag))
          (reply request "pid" process)))))

(defun fork-checkpoint (tag)
  "Fork a checkpoint unasked, after a reply. Return true in the process that went on and has a copy now.
One that cannot be made is missed by the parent, who says so."
  (handler-case
      (if (zerop (fork-process))
          (progn (become-copy "checkpoint" tag) nil)
          t)
    (cannot-fork () nil)))
