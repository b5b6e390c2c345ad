;;;; Confinement of a preview: it gives up, for good, every way to change the
;;;; world outside, before it evaluates anything. The kernel refuses; what was tried
;;;; is recorded, also when the user's code handles the refusal. The filter of system
;;;; calls and the places of shared memory come from the parent, which looks from
;;;; outside at what came of it.

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

(defun refuse-pipe (name)
  "Refuse to read NAME where it is a pipe: what is read there is gone for all others."
  (when (and name
             (ignore-errors
              (= #o010000 (logand #o170000 (sb-posix:stat-mode (sb-posix:stat name))))))
    (record-effect "read" name)
    (error "A preview may not read the pipe ~a: that would empty it." name)))

(defun watch-files ()
  "Record attempts to change files, and refuse those to read a pipe."
  (wrap 'open
        (lambda (original file &rest options)
          (let ((name (ignore-errors (file-text file))))
            (cond ((not (member (getf options :direction) '(:output :io))) (refuse-pipe name))
                  (name (record-effect "write" name))))
          (apply original file options)))
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
  (wrap (internal-symbol "OPEN" "SB-POSIX")
        (lambda (original file flags &rest more)
          (let ((name (ignore-errors (file-text file))))
            (cond ((not (logtest flags (logior sb-posix:o-wronly sb-posix:o-rdwr sb-posix:o-creat)))
                   (refuse-pipe name))
                  (name (record-effect "write" name))))
          (apply original file flags more))))

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
  "Record attempts to start other programs, and refuse them; a fork is refused by the system."
  (define-effect ("FORK" "SB-POSIX") "process" () "fork")
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

;;;; A filter of system calls for what Landlock does not cover: other processes,
;;;; sockets, and the attributes of files. It is a program of the kernel's own
;;;; machine, eight octets an instruction; refused calls fail with EPERM.

(defconstant +set-seccomp+ 22 "PR_SET_SECCOMP of Linux.")
(defconstant +filter-mode+ 2 "SECCOMP_MODE_FILTER of Linux.")

(defun hexadecimal-octets (text)
  "Return the octets that TEXT spells with two digits each."
  (let ((octets (make-array (floor (length text) 2) :element-type '(unsigned-byte 8))))
    (dotimes (place (length octets) octets)
      (flet ((digit (offset)
               (or (digit-char-p (char text (+ (* 2 place) offset)) 16)
                   (malformed "filter must be in hexadecimal"))))
        (setf (aref octets place) (+ (* 16 (digit 0)) (digit 1)))))))

(defun filter-system-calls (program)
  "Install PROGRAM, the octets of a filter, or signal why that was not possible. Needs +NO-NEW-PRIVILEGES+."
  (sb-alien:with-alien ((description (array (sb-alien:unsigned 64) 2)))
    (sb-sys:with-pinned-objects (program)
      (setf (sb-alien:deref description 0) (floor (length program) 8)
            (sb-alien:deref description 1) (sb-sys:sap-int (sb-sys:vector-sap program)))
      (unless (zerop (sb-alien:alien-funcall
                      (sb-alien:extern-alien "prctl" (function sb-alien:int sb-alien:int sb-alien:unsigned-long
                                                               sb-alien:unsigned-long))
                      +set-seccomp+ +filter-mode+ (sb-sys:sap-int (sb-alien:alien-sap description))))
        (error "the filter of system calls is refused (~a)" (sb-int:strerror))))))

;;;; What a copy shares with the process it was forked from, made its own: open
;;;; files, whose offsets are shared, and memory.

(defconstant +access-mode+ 3 "O_ACCMODE of Linux.")
(defconstant +only-a-path+ #o10000000 "O_PATH of Linux.")

(defun open-descriptors ()
  "Return the numbers of the open descriptors of this process."
  (let ((directory (sb-posix:opendir "/proc/self/fd")))
    (unwind-protect
         (loop for entry = (sb-posix:readdir directory)
               until (sb-alien:null-alien entry)
               for number = (parse-integer (sb-posix:dirent-name entry) :junk-allowed t)
               when number collect number)
      (sb-posix:closedir directory))))

(defun memory-device-p (status)
  "Tell whether STATUS is of null, zero, full, random or urandom: what is read there is shared with no process."
  (and (= (logand (sb-posix:stat-mode status) sb-posix:s-ifmt) sb-posix:s-ifchr)
       (member (sb-posix:stat-rdev status) '(#x103 #x105 #x107 #x108 #x109))))

(defun opened-again (descriptor)
  "Return a descriptor of the same file with an offset of its own, or NIL where it may not be opened."
  (let ((again (ignore-errors (sb-posix:open (format nil "/proc/self/fd/~d" descriptor) sb-posix:o-rdonly))))
    (when again
      ;; Where there are no offsets there is nothing shared.
      (ignore-errors (sb-posix:lseek again (sb-posix:lseek descriptor 0 sb-posix:seek-cur) sb-posix:seek-set)))
    again))

(defun own-descriptor (descriptor null-device)
  "Open the file of DESCRIPTOR again; let it be NULL-DEVICE where it is no file, or is only written."
  (let ((flags (ignore-errors (sb-posix:fcntl descriptor sb-posix:f-getfl)))
        (status (ignore-errors (sb-posix:fstat descriptor))))
    ;; The directory that listed it is closed by now.
    (unless (or (null flags) (null status) (logtest flags +only-a-path+) (memory-device-p status))
      (let ((again (and (or (sb-posix:s-isreg (sb-posix:stat-mode status))
                            (sb-posix:s-isdir (sb-posix:stat-mode status)))
                        (/= (logand flags +access-mode+) sb-posix:o-wronly)
                        (opened-again descriptor))))
        (sb-posix:dup2 (or again null-device) descriptor)
        (when again (sb-posix:close again))))))

(defun own-descriptors ()
  "Open files again, and let all other descriptors but our connection be /dev/null.
A copy shares offsets and queues with the process that it was forked from: what it read would be missing there."
  (flush-log)
  (let ((null-device (sb-posix:open "/dev/null" sb-posix:o-rdwr)))
    (dolist (descriptor (open-descriptors))
      (unless (or (= descriptor *connection*) (= descriptor null-device))
        (own-descriptor descriptor null-device)))
    (sb-posix:close null-device)))

(defconstant +private-and-anonymous+ #x22 "MAP_PRIVATE and MAP_ANONYMOUS of Linux.")
(defconstant +move-to+ 3 "MREMAP_MAYMOVE and MREMAP_FIXED of Linux.")
(defconstant +mapping-failed+ (1- (ash 1 64)) "MAP_FAILED.")

(defun own-shared-memory (start size rights)
  "Put a private copy in the place of the memory of SIZE octets from START on, with RIGHTS, bits of mprotect.
Nothing else keeps shared memory from being written to."
  (flet ((call (name &rest arguments)
           (let ((result (apply #'memory-call name arguments)))
             (when (= result +mapping-failed+) (error "shared memory cannot be copied (~a)" (sb-int:strerror)))
             result)))
    (let ((copy (call "mmap" 0 size 3 +private-and-anonymous+ +mapping-failed+ 0)))
      (call "memcpy" copy start size)
      (memory-call "mprotect" copy size rights)
      (call "mremap" copy size size +move-to+ start))))

(defun memory-call (name &rest arguments)
  "Call the function NAME of the C library with ARGUMENTS, all of them words."
  (destructuring-bind (one two three &optional (four 0) (five 0) (six 0)) arguments
    (sb-alien:alien-funcall
     (sb-alien:sap-alien (sb-sys:int-sap (sb-sys:find-foreign-symbol-address name))
                         (function sb-alien:unsigned-long sb-alien:unsigned-long sb-alien:unsigned-long
                                   sb-alien:unsigned-long sb-alien:unsigned-long sb-alien:unsigned-long
                                   sb-alien:unsigned-long))
     one two three four five six)))

;;;; Confining this process

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

(defun confine (program areas mirror)
  "Give up all rights; return the name of the level reached, or signal why it was not possible.
PROGRAM is the filter of system calls, AREAS lists start, size and rights of shared memory, one after the other,
MIRROR is the descriptor of an output mirror of its own, or NIL."
  (when mirror (move-mirror mirror))
  (own-descriptors)
  (call-single-threaded
   (lambda ()
     (loop for (start size rights) on areas by #'cdddr
           do (own-shared-memory start size rights))
     (let ((version (give-up-rights)))
       (filter-system-calls program)
       (format nil "landlock-~d+seccomp" version)))))

(define-operation "confine" (request)
  (cond ((string/= *role* "preview") (malformed "only a preview can be confined"))
        (*confined* (reply request "confined" t "level" "already"))
        (t (handler-case (let ((level (confine (hexadecimal-octets (request-text request :filter))
                                               (getf request :areas)
                                               (take-end (getf request :tag)))))
                           (watch-effects)
                           (reply request "confined" t "level" level))
             (error (condition)
               (reply request "confined" :false "reason" (condition-message condition)))))))
