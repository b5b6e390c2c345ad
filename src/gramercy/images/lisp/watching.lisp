;;;; Lets the parent hear of every call that is about to change a file, before user
;;;; code exists. The filter comes from the parent, which alone knows what it stops;
;;;; its descriptor goes to the parent and is not kept here, so that evaluated code
;;;; cannot answer in the parent's place.

(in-package #:gramercy.image)

(defconstant +set-filter+ 1 "SECCOMP_SET_MODE_FILTER of Linux.")
(defconstant +with-listener+ #b001000 "SECCOMP_FILTER_FLAG_NEW_LISTENER.")
(defconstant +undisturbed-listener+ #b101000
  "The same with WAIT_KILLABLE_RECV, since Linux 5.19: a signal does not begin a call anew while it is looked at.")

(defun install-listener (number instructions)
  "Install the filter INSTRUCTIONS by the system call NUMBER; return the descriptor of its listener, or signal why not."
  (let ((code (make-array (length instructions) :element-type '(unsigned-byte 64)
                                                :initial-contents instructions)))
    (sb-alien:with-alien ((program (array (sb-alien:unsigned 64) 2)))
      (sb-sys:with-pinned-objects (code)
        (setf (sb-alien:deref program 0) (length instructions)
              (sb-alien:deref program 1) (sb-sys:sap-int (sb-sys:vector-sap code)))
        (process-control +no-new-privileges+ 1)
        (dolist (flags (list +undisturbed-listener+ +with-listener+)
                       (error "~a" (sb-int:strerror)))
          (let ((descriptor (system-call number +set-filter+ flags
                                         (sb-sys:sap-int (sb-alien:alien-sap program)))))
            (unless (minusp descriptor) (return descriptor))))))))

(defun send-frame-with (descriptor)
  "Send what was put into the outbox as one frame, together with DESCRIPTOR, or end the process: without its listener
the filter lets every call fail that it stops.
A msghdr of 56 octets, its iovec of 16, and a cmsghdr of 16 with one descriptor, as on every 64-bit Linux."
  (let ((message (make-array 12 :element-type '(unsigned-byte 64) :initial-element 0))
        (length (- *outbox-end* +header-length+)))
    (loop for place from 0 below +header-length+
          for shift from 24 downto 0 by 8
          do (setf (aref *outbox* place) (ldb (byte 8 shift) length)))
    (sb-sys:with-pinned-objects (message *outbox*)
      (let ((start (sb-sys:sap-int (sb-sys:vector-sap message))))
        (setf (aref message 2) (+ start 56) (aref message 3) 1
              (aref message 4) (+ start 72) (aref message 5) 24
              (aref message 7) (sb-sys:sap-int (sb-sys:vector-sap *outbox*))
              (aref message 8) *outbox-end*
              ;; The length of the cmsghdr, then SOL_SOCKET and SCM_RIGHTS.
              (aref message 9) 20
              (aref message 10) (logior 1 (ash 1 32))
              (aref message 11) descriptor))
      (unless (= (send-message (sb-sys:vector-sap message) (* 4 +send-turns+)) *outbox-end*) (leave 66))))
  (reset-outbox))

(define-operation "watch_files" (request)
  (unless (string= *role* "zygote") (malformed "only the zygote is watched, and all that come from it"))
  (let ((descriptor (handler-case (install-listener (getf request :call) (getf request :filter))
                      (error (condition)
                        (reply request "watched" :false "reason" (condition-message condition))
                        nil))))
    (when descriptor
      (put-reply-start (getf request :id) t)
      (put-more-members (list "watched" t))
      (put-ascii "}")
      (unwind-protect (send-frame-with descriptor)
        (sb-posix:close descriptor)))))
