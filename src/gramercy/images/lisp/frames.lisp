;;;; Frames on a connected unix socket: four octets of length, then the payload.
;;;; Reads and writes the descriptor directly, because a stream would cost more
;;;; than an evaluation. Descriptors may come with a frame. Sees EOF also while user
;;;; code runs. Knows nothing of what a frame says.

(in-package #:gramercy.image)

(declaim (type octets *inbox*) (type index *inbox-start* *inbox-end*) (type fixnum *connection*))
(defglobal *connection* -1
  "The descriptor of this process's own connection to the parent.")
(defglobal *inbox* (make-array +usual-buffer+ :element-type '(unsigned-byte 8))
  "What has been received and not yet consumed, between *INBOX-START* and *INBOX-END*.")
(defglobal *inbox-start* 0 "First octet of *INBOX* that was not consumed.")
(defglobal *inbox-end* 0 "First octet of *INBOX* that was not received.")

(defconstant +send-without-signal+ #x4000
  "MSG_NOSIGNAL of Linux: a vanished parent is an error code, not a SIGPIPE.")

(defun leave (&optional (code 0))
  "End this process at once: no hooks, no unwinding, no flushing."
  (sb-ext:exit :code code :abort t))

(defconstant +signal-me+ #o20000 "O_ASYNC of Linux: SIGIO when something comes.")
(defconstant +would-block+ 11 "EAGAIN of Linux.")

(defun set-connection-flags (flags)
  "Set the status FLAGS of the connection. User code may have closed it; then reading will tell."
  (sb-alien:alien-funcall
   (sb-alien:extern-alien "fcntl" (function sb-alien:int sb-alien:int sb-alien:int sb-alien:long))
   *connection* sb-posix:f-setfl flags))

(defun watch-connection ()
  "Let the kernel signal this process what comes, unless code that keeps signals off stands on the stack: SBCL defers
the first, and gives up at the second if the mask of an error's context, which lets it in, is restored in between."
  (set-connection-flags (if sb-sys:*interrupts-enabled* +signal-me+ 0)))

(defun worth-another-try-p ()
  "Tell whether the last system call on the connection has to be made again."
  (let ((reason (sb-alien:get-errno)))
    (cond ((= reason sb-unix:eintr))
          ;; It always waits, unless user code has changed that.
          ((= reason +would-block+) (zerop (watch-connection))))))

;;; Messages with descriptors. What the system calls want is laid out by hand, as 64-bit Linux has it: a msghdr of 56
;;; octets, an iovec of 16, then a cmsghdr, whose length counts its 16 octets and the descriptors behind them.

(declaim (type (simple-array (unsigned-byte 64) (*)) *message*) (type list *come*))
(defglobal *message* (make-array 20 :element-type '(unsigned-byte 64) :initial-element 0)
  "Room for the description of one message.")
(defglobal *come* '() "Descriptors that came with what was received.")

(defconstant +iovec+ 56 "Place of the iovec in *MESSAGE*.")
(defconstant +control+ 72 "Place of the cmsghdr.")
(defconstant +first-descriptor+ 88 "Place of the descriptors.")
(defconstant +most-descriptors+ 4 "How many may come with one request: one for a checkpoint, for a moment, for an input.")
(defconstant +close-on-exec+ #x40000000 "MSG_CMSG_CLOEXEC of Linux.")

(defun lay-out-message (start length count)
  "Describe, in *MESSAGE*, LENGTH octets at START and room for COUNT descriptors. All of it must be pinned."
  (declare (type sb-sys:system-area-pointer start) (type index length) (type (integer 0 4) count) (optimize speed))
  (let ((base (sb-sys:vector-sap *message*)))
    (fill *message* 0)
    (setf (sb-sys:sap-ref-sap base 16) (sb-sys:sap+ base +iovec+)
          (sb-sys:sap-ref-64 base 24) 1
          (sb-sys:sap-ref-sap base +iovec+) start
          (sb-sys:sap-ref-64 base (+ +iovec+ 8)) length)
    (when (plusp count)
      (setf (sb-sys:sap-ref-sap base 32) (sb-sys:sap+ base +control+)
            (sb-sys:sap-ref-64 base 40) (* 8 (ceiling (+ 16 (* 4 count)) 8))
            (sb-sys:sap-ref-64 base +control+) (+ 16 (* 4 count))
            ;; SOL_SOCKET and SCM_RIGHTS.
            (sb-sys:sap-ref-32 base (+ +control+ 8)) 1
            (sb-sys:sap-ref-32 base (+ +control+ 12)) 1))
    base))

(defconstant +too-many-on-their-way+ 109 "ETOOMANYREFS of Linux.")
(defconstant +send-turns+ 500
  "How often a message is tried for which there is no room, a hundredth of a second apart; the parent waits longer.")

(defun send-message (message turns)
  "Send MESSAGE; return the count of octets, or -1. All processes of a user may have only so many descriptors on
their way together, and others may use that up for a moment: then it is tried again, TURNS times in all."
  (declare (type sb-sys:system-area-pointer message) (type fixnum turns))
  (loop
    (let ((count (sb-alien:alien-funcall
                  (sb-alien:extern-alien "sendmsg" (function sb-alien:long sb-alien:int
                                                             sb-sys:system-area-pointer sb-alien:int))
                  *connection* message +send-without-signal+)))
      (unless (and (minusp count)
                   (= (sb-alien:get-errno) +too-many-on-their-way+)
                   (plusp (decf turns)))
        (return count))
      (sb-unix:nanosleep 0 10000000))))

(defun note-descriptors (message)
  "Note the descriptors that came with MESSAGE."
  (let ((length (sb-sys:sap-ref-64 message +control+)))
    (when (and (<= 20 length (+ 16 (* 4 +most-descriptors+)))
               (= 1 (sb-sys:sap-ref-32 message (+ +control+ 8)))
               (= 1 (sb-sys:sap-ref-32 message (+ +control+ 12))))
      (setf *come* (append *come* (loop for place from +first-descriptor+ by 4
                                        repeat (floor (- length 16) 4)
                                        collect (sb-sys:sap-ref-32 message place)))))))

(defun receive-part ()
  "Read what has come into the free part of *INBOX*; return the count of octets, or -1. A plain read would close the
descriptors that come along."
  (declare (optimize speed))
  (sb-sys:with-pinned-objects (*inbox* *message*)
    (let* ((message (lay-out-message (sb-sys:sap+ (sb-sys:vector-sap *inbox*) *inbox-end*)
                                     (- (length *inbox*) *inbox-end*)
                                     +most-descriptors+))
           (count (sb-alien:alien-funcall
                   (sb-alien:extern-alien "recvmsg" (function sb-alien:long sb-alien:int
                                                              sb-sys:system-area-pointer sb-alien:int))
                   *connection* message +close-on-exec+)))
      (declare (type (signed-byte 62) count))
      (when (and (plusp count) (plusp (sb-sys:sap-ref-64 message 40)))
        (note-descriptors message))
      count)))

(defun receive-more ()
  "Read what has come, at least one octet; at the end of the connection end the process."
  (declare (optimize speed))
  (loop
    (let ((count (receive-part)))
      (declare (type (signed-byte 62) count))
      (cond ((plusp count)
             (incf *inbox-end* count)
             (return))
            ((and (minusp count) (worth-another-try-p)))
            (t (leave))))))

(defun make-inbox-room (needed)
  "Move what was not consumed to the front of a buffer that can hold NEEDED octets."
  (let* ((size (if (<= needed +usual-buffer+) +usual-buffer+ needed))
         (target (if (= size (length *inbox*))
                     *inbox*
                     (make-array size :element-type '(unsigned-byte 8)))))
    (replace target *inbox* :start2 *inbox-start* :end2 *inbox-end*)
    (setf *inbox-end* (- *inbox-end* *inbox-start*)
          *inbox-start* 0
          *inbox* target)))

(declaim (inline have-octets))
(defun have-octets (needed)
  "Wait until NEEDED octets stand in *INBOX*."
  (declare (type index needed))
  (when (> (+ *inbox-start* needed) (length *inbox*))
    (make-inbox-room needed))
  (loop while (< (- *inbox-end* *inbox-start*) needed)
        do (receive-more)))

(defun next-frame ()
  "Wait for a frame; return the start and the end of its payload in *INBOX*.
A frame beyond the limit cannot be skipped safely, so it ends the process."
  (when (= *inbox-start* *inbox-end*)
    (setf *inbox-start* 0 *inbox-end* 0)
    (when (/= (length *inbox*) +usual-buffer+)
      (make-inbox-room +usual-buffer+)))
  (have-octets +header-length+)
  (let ((length (loop with length of-type (unsigned-byte 32) = 0
                      for place from *inbox-start* repeat +header-length+
                      do (setf length (logior (ash (ldb (byte 24 0) length) 8)
                                              (aref *inbox* place)))
                      finally (return length))))
    (when (> length +largest-frame+) (leave 65))
    (have-octets (+ +header-length+ length))
    (let* ((start (+ *inbox-start* +header-length+))
           (end (+ start length)))
      (setf *inbox-start* end)
      (values start end))))

(defun send-octets (octets end)
  "Write OCTETS up to END on the connection, all of them, or end the process."
  (declare (type octets octets) (type index end) (optimize speed))
  (let ((start 0))
    (declare (type index start))
    (sb-sys:with-pinned-objects (octets)
      (loop while (< start end)
            do (let ((count (sb-alien:alien-funcall
                             (sb-alien:extern-alien
                              "send" (function sb-alien:long sb-alien:int sb-sys:system-area-pointer
                                               sb-alien:unsigned-long sb-alien:int))
                             *connection* (sb-sys:sap+ (sb-sys:vector-sap octets) start)
                             (- end start) +send-without-signal+)))
                 (declare (type (signed-byte 62) count))
                 (cond ((plusp count) (incf start count))
                       ((worth-another-try-p))
                       (t (leave 66))))))))

(defun set-frame-length ()
  "Write the length of what was put into the outbox in front of it."
  (let ((length (- *outbox-end* +header-length+)))
    (loop for place from 0 below +header-length+
          for shift from 24 downto 0 by 8
          do (setf (aref *outbox* place) (ldb (byte 8 shift) length)))))

(defun send-frame ()
  "Send what was put into the outbox as one frame, and start the next."
  (set-frame-length)
  (send-octets *outbox* *outbox-end*)
  (reset-outbox))

(defun wait-for-request (nanoseconds)
  "Wait for the next request, at most so long or until a signal comes; return true when it has come."
  (sb-alien:with-alien ((descriptor (array (sb-alien:unsigned 32) 2))
                        (patience (array (sb-alien:signed 64) 2)))
    (setf (sb-alien:deref descriptor 0) *connection*
          ;; POLLIN; what comes back stands in the upper half.
          (sb-alien:deref descriptor 1) 1
          (sb-alien:deref patience 0) 0
          (sb-alien:deref patience 1) nanoseconds)
    (plusp (sb-alien:alien-funcall
            (sb-alien:extern-alien "ppoll" (function sb-alien:int sb-sys:system-area-pointer
                                                     sb-alien:unsigned-long sb-sys:system-area-pointer
                                                     sb-sys:system-area-pointer))
            (sb-alien:alien-sap descriptor) 1 (sb-alien:alien-sap patience) (sb-sys:int-sap 0)))))

(defconstant +duplicate-closing+ 1030
  "F_DUPFD_CLOEXEC of Linux: a copy that is closed when another program is executed.")
(defconstant +first-private-descriptor+ 200
  "Connections are kept at or above it, out of the way of programs that count from 3.")

(defun private-descriptor (descriptor)
  "Return a copy of DESCRIPTOR that is out of the way, as far as the limits of the process allow."
  (handler-case (sb-posix:fcntl descriptor +duplicate-closing+ +first-private-descriptor+)
    (sb-posix:syscall-error () (sb-posix:fcntl descriptor +duplicate-closing+ 3))))

(defun moved-descriptor (descriptor)
  "Move DESCRIPTOR out of the way and return what it is now."
  (prog1 (private-descriptor descriptor) (sb-posix:close descriptor)))

(defun take-connection (descriptor)
  "Let DESCRIPTOR be the connection of this process, and forget whatever an earlier owner left in the buffers."
  (setf *connection* descriptor
        *come* '()
        *inbox-start* 0
        *inbox-end* 0)
  (reset-outbox))

;;;; The end of the connection while user code runs. Between requests the read
;;;; returns EOF; a loop of the user's reads nothing and would outlive the parent,
;;;; so the kernel sends SIGIO. It does so only while this process does not wait in
;;;; the read: a request that is waited for costs nothing more.

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
  (watch-connection))

(defmacro without-hangup-signal (&body body)
  "Run BODY, which forks while the next request may come, without being signalled about that."
  `(unwind-protect (progn (set-connection-flags 0) ,@body)
     (watch-connection)))
