;;;; The ends of sockets that come from the parent. With a request that asks for a
;;;; copy of this process comes the end on which that copy is to say hello; ends that
;;;; are not used wait here. There is nothing to connect to, and no secret to tell.

(in-package #:gramercy.image)

(defglobal *ends* '() "Lists of a tag, a descriptor, and the device and the number of the socket behind it.")

(defglobal *no-end*
    "the descriptor for its copy is gone: evaluated code has closed it, or too many files are open"
  "Why there is no copy where there is no end for it.")

(defun socket-identity (descriptor)
  "Return the device and the number of what is open as DESCRIPTOR, or NIL."
  ;; Not by SB-POSIX, which makes an instance of a class for it: that runs methods which the user may have added.
  (multiple-value-bind (found device number) (sb-unix:unix-fstat descriptor)
    (and found (list device number))))

(defun close-quietly (descriptor)
  "Close DESCRIPTOR, which user code may have closed before."
  (handler-case (sb-posix:close descriptor)
    (sb-posix:syscall-error () nil)))

(defun end-there-p (tag)
  "Tell whether there is an end for the copy TAG, and user code has not closed it."
  (let ((end (assoc tag *ends* :test #'equal)))
    (and end (equal (socket-identity (second end)) (cddr end)))))

(defun take-end (tag)
  "Return the end for the copy TAG, which belongs to the caller now, or NIL where there is none any more."
  (let ((end (and (end-there-p tag) (assoc tag *ends* :test #'equal))))
    (setf *ends* (remove tag *ends* :key #'first :test #'equal))
    (second end)))

(defun keep-only-ends (tags)
  "Close the ends that are not for one of TAGS."
  (dolist (tag (mapcar #'first *ends*))
    (unless (member tag tags :test #'equal)
      (let ((descriptor (take-end tag)))
        (when descriptor (close-quietly descriptor))))))

(defun keep-end (tag descriptor)
  "Keep DESCRIPTOR, just received, as the end for the copy TAG."
  (let ((moved (moved-descriptor descriptor)))
    (push (list* tag moved (socket-identity moved)) *ends*)))

(defun keep-ends (request)
  "Keep the ends that came with REQUEST; an evaluation names all that are still wanted."
  (let ((come (shiftf *come* '()))
        (tags (getf request :ends)))
    (when (or (getf request :then-fork) (getf request :keep-moment))
      (keep-only-ends (list (getf request :then-fork) (getf request :keep-moment) (getf request :input))))
    (dolist (descriptor come)
      (let ((tag (and (consp tags) (pop tags))))
        (if (stringp tag) (keep-end tag descriptor) (close-quietly descriptor))))))

(defun leave-parent ()
  "Close, in a copy that user code has forked, what leads to the parent."
  (keep-only-ends '())
  (hang-up)
  (close-quietly (shiftf *connection* -1)))

;;; Hello

(defconstant +largest-hello+ 4096 "Octets of a hello; the parent refuses a longer one.")
(defconstant +open-process+ 434 "The system call pidfd_open of Linux, the same on all machines.")

(defun own-handle ()
  "Return a pidfd of this process, by which the parent can signal it; -1 where none can be had."
  (sb-alien:alien-funcall
   (sb-alien:extern-alien "syscall" (function sb-alien:long sb-alien:long sb-alien:long sb-alien:long))
   +open-process+ (sb-posix:getpid) 0))

(defconstant +names-senders+ 76 "SO_PASSPIDFD of Linux 6.5.")

(defun senders-named-p ()
  "Tell whether the kernel itself can give the parent a handle of the process that sends."
  (sb-alien:with-alien ((value sb-alien:int 0)
                        (size (sb-alien:unsigned 32) 4))
    (zerop (sb-alien:alien-funcall
            (sb-alien:extern-alien "getsockopt" (function sb-alien:int sb-alien:int sb-alien:int sb-alien:int
                                                          (* sb-alien:int) (* (sb-alien:unsigned 32))))
            *connection* 1 +names-senders+ (sb-alien:addr value) (sb-alien:addr size)))))

(defun send-outbox-with (handle turns)
  "Send what stands in the outbox in one message, with HANDLE unless that is negative; try so often, see SEND-MESSAGE."
  (sb-sys:with-pinned-objects (*outbox* *message*)
    (let ((message (lay-out-message (sb-sys:vector-sap *outbox*) *outbox-end* (if (minusp handle) 0 1))))
      (unless (minusp handle) (setf (sb-sys:sap-ref-32 message +first-descriptor+) handle))
      (send-message message turns))))

(defun send-hello ()
  "Send what was put into the outbox as the first frame, with a handle of this process.
Where there is no room for the handle, and the kernel can tell the parent by itself, it is left out."
  (set-frame-length)
  (let* ((handle (own-handle))
         (named (senders-named-p))
         (sent (send-outbox-with handle (if named 1 +send-turns+))))
    (when (and named (minusp sent)) (setf sent (send-outbox-with -1 1)))
    (unless (minusp handle) (close-quietly handle))
    (unless (= sent *outbox-end*) (leave 66))
    (reset-outbox)))
