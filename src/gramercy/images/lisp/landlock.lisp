;;;; Landlock: this process, and all it will ever start, gives up every right to
;;;; change a file or to open a TCP connection. Spoken by system call numbers,
;;;; which are the same on x86-64 and arm64; the C library has no names for them.

(in-package #:gramercy.image)

(defconstant +create-ruleset+ 444 "The system call landlock_create_ruleset.")
(defconstant +restrict-self+ 446 "The system call landlock_restrict_self.")
(defconstant +version-query+ 1 "The flag that asks landlock_create_ruleset for its version.")
(defconstant +no-new-privileges+ 38 "PR_SET_NO_NEW_PRIVS, without which neither filter is accepted.")

(defun system-call (number &optional (one 0) (two 0) (three 0))
  "Make the Linux system call NUMBER; return its result, -1 for failure."
  (sb-alien:alien-funcall
   (sb-alien:extern-alien "syscall" (function sb-alien:long sb-alien:long sb-alien:unsigned-long
                                              sb-alien:unsigned-long sb-alien:unsigned-long))
   number one two three))

(defun landlock-version ()
  "Return the version of the kernel's Landlock, or NIL where there is none."
  (let ((version (system-call +create-ruleset+ 0 0 +version-query+)))
    (and (plusp version) version)))

(defun file-rights (version)
  "Return the bits of all rights to change files that Landlock VERSION knows."
  (logior #b1111111110010                    ; write, remove and make, but not execute and read
          (if (>= version 2) (ash 1 13) 0)   ; link or rename across directories
          (if (>= version 3) (ash 1 14) 0)   ; truncate
          (if (>= version 5) (ash 1 15) 0))) ; control devices

(defun network-rights (version)
  "Return the bits of the rights to bind and to connect TCP sockets."
  (if (>= version 4) #b11 0))

(defun scopes (version)
  "Return the bits that keep abstract unix sockets and signals inside."
  (if (>= version 6) #b11 0))

(defun ruleset-size (version)
  "Return the size in octets of the attributes that Landlock VERSION knows."
  (cond ((>= version 6) 24) ((>= version 4) 16) (t 8)))

(defun give-up-rights ()
  "Give up all rights to write; return the version of Landlock used, or signal why it was not possible."
  (let ((version (or (landlock-version) (error "this kernel has no Landlock"))))
    (sb-alien:with-alien ((attributes (array (sb-alien:unsigned 64) 3)))
      (setf (sb-alien:deref attributes 0) (file-rights version)
            (sb-alien:deref attributes 1) (network-rights version)
            (sb-alien:deref attributes 2) (scopes version))
      (let ((ruleset (system-call +create-ruleset+
                                  (sb-sys:sap-int (sb-alien:alien-sap attributes))
                                  (ruleset-size version))))
        (when (minusp ruleset) (error "Landlock refuses the rules (~a)" (sb-int:strerror)))
        (unless (and (zerop (process-control +no-new-privileges+ 1))
                     (zerop (system-call +restrict-self+ ruleset)))
          (error "Landlock refuses to confine this process (~a)" (sb-int:strerror)))
        (sb-posix:close ruleset)))
    version))
