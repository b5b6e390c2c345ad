;;;; A filter of system calls for what Landlock does not see: other programs,
;;;; signals to other processes, datagrams, and the attributes of files. Refused
;;;; calls fail with EPERM. Known for x86-64 and arm64; elsewhere there is none.

(in-package #:gramercy.image)

(defconstant +set-seccomp+ 22 "PR_SET_SECCOMP of Linux.")
(defconstant +filter-mode+ 2 "SECCOMP_MODE_FILTER of Linux.")
(defconstant +allow+ #x7fff0000 "SECCOMP_RET_ALLOW.")
(defconstant +refuse+ #x00050001 "SECCOMP_RET_ERRNO with EPERM.")

(defglobal *machine*
    #+x86-64
    '(:architecture #xc000003e
      ;; connect bind listen sendmsg sendmmsg, execve execveat, ptrace process_vm_writev
      ;; pidfd_getfd, chmod fchmod chown fchown lchown fchownat fchmodat fchmodat2, utime utimes
      ;; futimesat utimensat, [lf]setxattr, [lf]removexattr, mount umount2 unshare setns,
      ;; tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal, io_uring_setup
      :refused (42 49 50 46 307 59 322 101 311 438 90 91 92 93 94 260 268 452 132 235 261 280
                188 189 190 197 198 199 165 166 272 308 200 129 297 424 425)
      :own-process-only (62 234)          ; kill tgkill
      :unaddressed-only (44)              ; sendto
      :foreign-numbers #x40000000)        ; the x32 calls
    #+arm64
    '(:architecture #xc00000b7
      :refused (203 200 201 211 269 221 281 117 271 438 52 53 54 55 452 88
                5 6 7 14 15 16 40 39 97 268 130 138 240 424 425)
      :own-process-only (129 131)
      :unaddressed-only (206)
      :foreign-numbers nil)
    #-(or x86-64 arm64)
    nil
  "Numbers of system calls by what becomes of them, for this machine.")

;;; Instructions of the filter: (code jump-if-true jump-if-false operand)

(defun load-word (offset)
  "Load the word at OFFSET of the description of the call."
  (list #x20 0 0 offset))

(defun answer-with (verdict)
  "End with VERDICT."
  (list #x06 0 0 verdict))

(defun refuse-number (number)
  "Refuse the call NUMBER."
  (list (list #x15 0 1 number) (answer-with +refuse+)))

(defun allow-only-argument (number offset value)
  "Refuse the call NUMBER unless the argument at OFFSET is VALUE."
  (list (list #x15 0 4 number)
        (load-word offset)
        (list #x15 0 1 value)
        (answer-with +allow+)
        (answer-with +refuse+)))

(defun filter-instructions (machine process)
  "Return the filter for MACHINE; signals may go to PROCESS alone."
  (append (list (load-word 4)
                (list #x15 1 0 (getf machine :architecture))
                (answer-with +refuse+)
                (load-word 0))
          (when (getf machine :foreign-numbers)
            (list (list #x35 0 1 (getf machine :foreign-numbers)) (answer-with +refuse+)))
          (mapcan #'refuse-number (copy-list (getf machine :refused)))
          (loop for number in (getf machine :own-process-only)
                append (allow-only-argument number 16 process))
          ;; The address of a datagram is the fifth argument of sendto.
          (loop for number in (getf machine :unaddressed-only)
                append (allow-only-argument number (+ 16 (* 8 4)) 0))
          (list (answer-with +allow+))))

(defun encode-filter (instructions)
  "Return INSTRUCTIONS as the octets the kernel wants."
  (let ((octets (make-array (* 8 (length instructions)) :element-type '(unsigned-byte 8))))
    (sb-sys:with-pinned-objects (octets)
      (loop with address = (sb-sys:vector-sap octets)
            for (code true false operand) in instructions
            for place from 0 by 8
            do (setf (sb-sys:sap-ref-16 address place) code
                     (sb-sys:sap-ref-8 address (+ place 2)) true
                     (sb-sys:sap-ref-8 address (+ place 3)) false
                     (sb-sys:sap-ref-32 address (+ place 4)) operand)))
    octets))

(defun filter-system-calls ()
  "Install the filter; tell whether that was possible. Needs +NO-NEW-PRIVILEGES+."
  (when *machine*
    (let* ((instructions (filter-instructions *machine* (sb-posix:getpid)))
           (octets (encode-filter instructions)))
      (sb-alien:with-alien ((program (array (sb-alien:unsigned 64) 2)))
        (sb-sys:with-pinned-objects (octets)
          (setf (sb-alien:deref program 0) (length instructions)
                (sb-alien:deref program 1) (sb-sys:sap-int (sb-sys:vector-sap octets)))
          (zerop (sb-alien:alien-funcall
                  (sb-alien:extern-alien "prctl" (function sb-alien:int sb-alien:int sb-alien:unsigned-long
                                                           sb-alien:unsigned-long))
                  +set-seccomp+ +filter-mode+ (sb-sys:sap-int (sb-alien:alien-sap program)))))))))
