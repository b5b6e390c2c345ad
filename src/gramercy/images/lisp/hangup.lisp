;;;; The end of the connection while user code runs. Between requests the end is
;;;; seen by reading; a loop of the user's reads nothing and would outlive the
;;;; parent for ever, so for its time the kernel is asked to signal.

(in-package #:gramercy.image)

(defconstant +connection-signal+ 29 "SIGIO of Linux.")
(defconstant +signal-me+ #o20000 "O_ASYNC of Linux.")
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
  "Let the kernel know whom to signal about this process's own connection."
  (sb-sys:enable-interrupt +connection-signal+ #'on-connection-signal)
  (sb-posix:fcntl *connection* sb-posix:f-setown (sb-posix:getpid)))

(defun set-connection-flags (flags)
  "Set the status FLAGS of the connection. User code may have closed it; then reading will tell."
  (sb-alien:alien-funcall
   (sb-alien:extern-alien "fcntl" (function sb-alien:int sb-alien:int sb-alien:int sb-alien:long))
   *connection* sb-posix:f-setfl flags))

(defmacro with-hangup-signal (&body body)
  "Run BODY, user code, so that it ends with the connection."
  `(progn
     (set-connection-flags +signal-me+)
     (unwind-protect (progn ,@body)
       (set-connection-flags 0))))
