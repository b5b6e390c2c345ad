;;;; Confinement of a preview: it gives up, for good, every way to change the
;;;; world outside, before it evaluates anything. The kernel refuses; what was tried
;;;; is recorded, also when the user's code handles the refusal.

(in-package #:gramercy.image)

(defglobal *confined* nil "True once this process has given up its rights.")
(defglobal *effects* '() "The effects attempted in this evaluation, newest first.")

(defconstant +most-effects+ 100 "Effects told in one reply: a loop of attempts must not fill it.")

(defun record-effect (kind target)
  "Write down that the user's code attempted KIND on TARGET."
  (let ((effect (list :object "kind" kind "target" target "outcome" "refused")))
    (when (and (< (length *effects*) +most-effects+)
               (not (member effect *effects* :test #'equal)))
      (push effect *effects*))))

(defun put-effects ()
  "Append the effects of this evaluation, in a process that can have none."
  (when *effects*
    (put-ascii ",\"effects\":")
    (put-items (reverse (shiftf *effects* '())))))

(defmacro define-effect ((name &optional package) kind lambda-list target)
  "Record KIND with the text TARGET before each call of the function NAME; no record where TARGET is NIL."
  `(wrap ,(if package `(internal-symbol ,name ,package) `',name)
         (lambda (original &rest arguments)
           (let ((target (ignore-errors
                          (destructuring-bind (,@lambda-list &rest rest) arguments
                            (declare (ignorable rest))
                            ,target))))
             (when target (record-effect ,kind target)))
           (apply original arguments))))

(defun file-text (designator)
  "Return the native name of the file that DESIGNATOR names, as an absolute one."
  (if (streamp designator)
      (plain-type-name designator)
      (sb-ext:native-namestring (merge-pathnames designator))))

(defun address-text (address)
  "Return the text of ADDRESS, the arguments that name the other end of a socket."
  (destructuring-bind (&optional host port &rest more) address
    (declare (ignore more))
    (format nil "~a~@[:~a~]"
            (if (and (vectorp host) (not (stringp host)))
                (format nil "~{~d~^.~}" (coerce host 'list))
                host)
            port)))

(defun watch-files ()
  "Record attempts to change files."
  (define-effect (open) "write" (file)
    (and (member (getf rest :direction) '(:output :io)) (file-text file)))
  (define-effect (delete-file) "write" (file) (file-text file))
  (define-effect (rename-file) "write" (file) (file-text file))
  (define-effect (sb-ext:delete-directory) "write" (file) (file-text file))
  (define-effect (ensure-directories-exist) "write" (file)
    (let ((directory (make-pathname :name nil :type nil :version nil :defaults (merge-pathnames file))))
      (and (not (probe-file directory)) (file-text directory)))))

(defun watch-posix-files ()
  "Record attempts to change files through the system's own calls."
  (dolist (name '("MKDIR" "RMDIR" "UNLINK" "RENAME" "LINK" "SYMLINK" "CHMOD" "CHOWN" "TRUNCATE"
                  "MKNOD" "MKFIFO" "UTIME" "UTIMES" "MKSTEMP" "MKDTEMP" "CREAT"))
    (let ((symbol (internal-symbol name "SB-POSIX")))
      (when (and symbol (fboundp symbol) (not (macro-function symbol)))
        (wrap symbol (lambda (original &rest arguments)
                       (ignore-errors (record-effect "write" (file-text (first arguments))))
                       (apply original arguments))))))
  (define-effect ("OPEN" "SB-POSIX") "write" (file flags)
    (and (logtest flags (logior sb-posix:o-wronly sb-posix:o-rdwr sb-posix:o-creat)) (file-text file))))

(defun watch-connections ()
  "Record attempts to reach other processes."
  (define-effect (sb-bsd-sockets:socket-connect) "connect" (socket)
    (progn socket (address-text rest)))
  (define-effect (sb-bsd-sockets:socket-bind) "connect" (socket)
    (progn socket (format nil "listen on ~a" (address-text rest))))
  (define-effect (sb-bsd-sockets:socket-send) "connect" (socket buffer length)
    (progn socket buffer length
           (let ((address (getf rest :address))) (and address (address-text address)))))
  (define-effect ("KILL" "SB-POSIX") "process" (process signal)
    (and (/= process *process-id*) (format nil "signal ~a to process ~a" signal process))))

(defun refuse-programs ()
  "Record attempts to start other programs, and refuse them."
  (wrap 'sb-ext:run-program
        (lambda (original program arguments &rest options)
          (declare (ignore original options))
          (record-effect "process" (format nil "~a~{ ~a~}" program arguments))
          (error "A preview may not start the program ~a." program))))

(defun watch-effects ()
  "Record attempted effects from now on."
  (setf *confined* t *effects* '())
  (watch-files)
  (watch-posix-files)
  (watch-connections)
  (refuse-programs))

;;;; Landlock: this process, and all it will ever start, gives up every right to
;;;; change a file or to open a TCP connection. By system call numbers, which are
;;;; the same on x86-64 and arm64: the C library has no functions for them.

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

;;;; A filter of system calls for what Landlock does not cover: other programs,
;;;; signals to other processes, datagrams, and the attributes of files. Refused
;;;; calls fail with EPERM. Known for x86-64 and arm64; elsewhere there is none.

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

;;;; Confining this process

(defun open-descriptors ()
  "Return the numbers of the open descriptors of this process."
  (let ((directory (sb-posix:opendir "/proc/self/fd")))
    (unwind-protect
         (loop for entry = (sb-posix:readdir directory)
               until (sb-alien:null-alien entry)
               for number = (parse-integer (sb-posix:dirent-name entry) :junk-allowed t)
               when number collect number)
      (sb-posix:closedir directory))))

(defun writable-descriptor-p (descriptor)
  "Tell whether DESCRIPTOR is open for writing."
  (let ((flags (ignore-errors (sb-posix:fcntl descriptor sb-posix:f-getfl))))
    (and flags (logtest flags (logior sb-posix:o-wronly sb-posix:o-rdwr)))))

(defun silence-descriptors ()
  "Replace every descriptor open for writing, except our connection, by /dev/null.
Rights that are given up concern what is opened later; these are open already."
  (flush-log)
  (let ((null-device (sb-posix:open "/dev/null" sb-posix:o-rdwr)))
    (dolist (descriptor (open-descriptors))
      (when (and (/= descriptor *connection*) (/= descriptor null-device)
                 (writable-descriptor-p descriptor))
        (sb-posix:dup2 null-device descriptor)))
    (sb-posix:close null-device)))

(defun task-count ()
  "Return how many threads this process has, of whatever language."
  (count-if (lambda (name) (digit-char-p (char name 0)))
            (let ((directory (sb-posix:opendir "/proc/self/task")))
              (unwind-protect
                   (loop for entry = (sb-posix:readdir directory)
                         until (sb-alien:null-alien entry)
                         collect (sb-posix:dirent-name entry))
                (sb-posix:closedir directory)))))

(defun call-single-threaded (function)
  "Call FUNCTION while no other thread exists: rights are given up by one thread and inherited by later ones.
SBCL's finalizer thread would keep its rights, and it runs user code."
  (let ((stop (or (internal-function "FINALIZER-THREAD-STOP" "SB-IMPL") (constantly nil)))
        (start (or (internal-function "FINALIZER-THREAD-START" "SB-IMPL") (constantly nil))))
    (funcall stop)
    (unwind-protect
         (if (single-task-p)
             (funcall function)
             (error "other threads are running"))
      (funcall start))))

(defun single-task-p ()
  "Tell whether this thread is the only one; one that has just ended is counted by the kernel for a moment."
  (loop repeat 500
        thereis (= 1 (task-count))
        do (sleep 0.001)))

(defun confine ()
  "Give up all rights; return the name of the level reached, or signal why it was not possible."
  (silence-descriptors)
  (call-single-threaded
   (lambda ()
     (let ((version (give-up-rights)))
       (format nil "landlock-~d~:[~;+seccomp~]" version (filter-system-calls))))))

(define-operation "confine" (request)
  (cond ((string/= *role* "preview") (malformed "only a preview can be confined"))
        (*confined* (reply request "confined" t "level" "already"))
        (t (handler-case (let ((level (confine)))
                           (watch-effects)
                           (reply request "confined" t "level" level))
             (error (condition)
               (reply request "confined" :false "reason" (condition-message condition)))))))
