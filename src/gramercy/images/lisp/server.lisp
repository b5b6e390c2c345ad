;;;; The loop that serves requests, and the beginning of the program.

(in-package #:gramercy.image)

(defun condition-members (condition)
  "Return what a reply tells of CONDITION, signalled by our own code."
  (typecase condition
    (unknown-name (unknown-name-members condition))
    (cannot-fork (list "type" "CANNOT-FORK" "message" (cannot-fork-reason condition)))
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
  "Let a fault of a thread of the user's end that thread and not the process."
  (ignore-errors
   (format sb-sys:*stderr* "~&Thread ~a ended: ~a~%"
           (sb-thread:thread-name sb-thread:*current-thread*) (condition-message condition))
   (finish-output sb-sys:*stderr*))
  (sb-thread:abort-thread))

(defun serve-request (start end)
  "Serve the request that stands in the inbox from START to END. Its faults are replies."
  (let* ((request '())
         (condition (catch 'end-request
                      (setf request (read-request start end)
                            *unchanged* nil
                            *checkpoint-tag* (let ((tag (getf request :then-fork)))
                                               (and (stringp tag) tag)))
                      (perform request)
                      nil)))
    (when (typep condition 'condition)
      (reply-fault request (condition-members condition)))
    (let ((tag (shiftf *checkpoint-tag* nil)))
      (when tag
        (without-hangup-signal
          (let-reply-arrive)
          (when (fork-checkpoint tag) (rehearse)))))))

(defun serve ()
  "Serve requests until the connection ends, which ends the process."
  (let ((*untracked* t))
    (loop
      (multiple-value-bind (start end) (next-frame)
        (unless *undisturbed* (reap-children))
        (setf sb-ext:*invoke-debugger-hook* #'end-request
              *debugger-hook* nil)
        (serve-request start end)))))

(define-operation "ping" (request) (reply request))
(define-operation "exit" (request) (declare (ignore request)) (leave))

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

(defun main ()
  "Start as the zygote: connect to the socket and serve. The toplevel function of the core."
  (destructuring-bind (&optional path token &rest options) (take-options (own-arguments))
    (unless token
      (format sb-sys:*stderr*
              "usage: sbcl --core CORE --end-runtime-options SOCKET TOKEN [--mirror DESCRIPTOR]~%")
      (finish-output sb-sys:*stderr*)
      (leave 64))
    (setf *socket-path* path
          *token* token
          *main-thread* sb-thread:*current-thread*)
    (let ((mirror (member "--mirror" options :test #'string=)))
      (open-mirror (and mirror (or (second mirror) "")))))
  ;; What was found out about directories belongs to the machine that built the core.
  (asdf:clear-configuration)
  (uiop/configuration::compute-user-cache)
  (extend-search)
  (note-written-pages)
  (become-zygote)
  (join-parent)
  (serve))
