;;;; The end of the connection while user code runs. Between requests the end is
;;;; seen by reading; a loop of the user's reads nothing and would outlive the
;;;; parent for ever, so the kernel is asked to signal. It does so only while this
;;;; process does not wait for the connection: a request that is waited for costs
;;;; nothing more.

(in-package #:gramercy.image)

(defconstant +connection-signal+ 29 "SIGIO of Linux.")
(defconstant +look-without-waiting+ #x42 "MSG_PEEK and MSG_DONTWAIT of Linux.")

(defun connection-ended-p ()
  "Tell whether the parent has hung up."
  (sb-alien:with-alien ((octet (sb-alien:unsigned 8)))
    (zerop (sb-alien:alien-funcall
            (sb-alien:extern-alien "recv" (function sb-alien:long sb-alien:int sb-sys:system-area-pointer
                                                    sb-alien:unsigned-long sb-alien:int))
            *connection* (sb-alien:alien-sap (sb-alien:addr octet)) 1 +look-without-waiting+))))

(defun on-connection-signal (signal info context)
  "Handle SIGIO: end with the connection."
  (declare (ignore signal info context))
  (when (connection-ended-p) (leave)))

(defun prepare-hangup-signal ()
  "Let the kernel signal this process about its own connection."
  (sb-sys:enable-interrupt +connection-signal+ #'on-connection-signal)
  (sb-posix:fcntl *connection* sb-posix:f-setown (sb-posix:getpid))
  (set-connection-flags +signal-me+))

(defmacro without-hangup-signal (&body body)
  "Run BODY, which forks while the next request may come, without being signalled about that."
  `(unwind-protect (progn (set-connection-flags 0) ,@body)
     (set-connection-flags +signal-me+)))
