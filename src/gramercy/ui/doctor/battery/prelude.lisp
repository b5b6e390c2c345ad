;;;; Evaluated in a Lisp image before the attempts; words with a dollar are filled in first.

(defun native (path) (sb-ext:parse-native-namestring path))

(defun %read (path)
  (with-open-file (stream (native path) :external-format :latin-1)
    (let* ((text (make-string 65536)) (end (read-sequence text stream)))
      (and (search "$mark" text :end2 end) (format nil "read ~a" path)))))

(defun %write (path &optional (text "escaped"))
  (with-open-file (stream (native path) :direction :output :if-exists :append :if-does-not-exist :create)
    (write-string text stream))
  (format nil "wrote ~a" path))

(defun %open (path)
  (sb-posix:close (sb-posix:open path sb-posix:o-wronly))
  (format nil "opened ~a" path))

(defun entries (path)
  (let ((directory (sb-posix:opendir path)))
    (unwind-protect (loop for entry = (sb-posix:readdir directory)
                          until (sb-alien:null-alien entry) collect (sb-posix:dirent-name entry))
      (sb-posix:closedir directory))))

(defun %send (class type &rest address)
  (let ((plug (make-instance class :type type)))
    (unwind-protect (progn (apply #'sb-bsd-sockets:socket-connect plug address)
                           (sb-bsd-sockets:socket-send plug "escaped" nil) nil)
      (sb-bsd-sockets:socket-close plug))))

(defvar *listener* nil)

(defun %listen (port)
  (setf *listener* (make-instance 'sb-bsd-sockets:inet-socket :type :stream))
  (sb-bsd-sockets:socket-bind *listener* #(127 0 0 1) port)
  (sb-bsd-sockets:socket-listen *listener* 1)
  nil)

;;; System calls: integers are passed as they are, texts and octets by their address.

(define-condition wrong-call (error) ((words :initarg :words :reader words-of))
  (:report (lambda (condition stream) (write-string (words-of condition) stream))))

(defun zeros (count) (make-array count :element-type '(unsigned-byte 8) :initial-element 0))

(defun words (bits &rest values)
  (apply #'concatenate '(vector (unsigned-byte 8))
         (loop for value in values
               collect (if (vectorp value)
                           value
                           (loop for place below bits by 8 collect (ldb (byte 8 place) value))))))

(defun place-of (octets)
  (let ((place (sb-alien:make-alien (sb-alien:unsigned 8) (max 1 (length octets)))))
    (loop for octet across octets for index from 0 do (setf (sb-alien:deref place index) octet))
    (sb-sys:sap-int (sb-alien:alien-sap place))))

(defun word-of (word)
  (etypecase word
    (integer word)
    (string (place-of (concatenate '(vector (unsigned-byte 8)) (map 'list #'char-code word) '(0))))
    (vector (place-of word))))

(defun num (number &rest words)
  (destructuring-bind (&optional (a 0) (b 0) (c 0) (d 0) (e 0) (f 0)) (mapcar #'word-of words)
    (let ((result (sb-alien:alien-funcall
                   (sb-alien:extern-alien "syscall" (function sb-alien:long sb-alien:long sb-alien:long
                                                              sb-alien:long sb-alien:long sb-alien:long
                                                              sb-alien:long sb-alien:long))
                   number a b c d e f)))
      (when (minusp result)
        (let ((errno (sb-alien:get-errno)))
          ;; Errors of a call that was written wrongly prove nothing: EINVAL EFAULT EBADF E2BIG ENOTTY.
          (if (member errno '(22 14 9 7 25))
              (error 'wrong-call :words (sb-int:strerror errno))
              (error "~a" (sb-int:strerror errno)))))
      result)))

(defun sys (&rest words)
  (format nil "the call succeeded (~d)" (apply #'num words)))

;;; What is made for all processes is removed again: it would stay on a machine that let it be made.

(defun made (remove &rest words)
  (let ((made (apply #'num words)))
    (ignore-errors (num remove made 0 0))
    (format nil "the call succeeded (~d)" made)))

(defun own-pipe (process number)
  (multiple-value-bind (reading writing) (sb-posix:pipe)
    (num $sys_fcntl reading 10 number)
    (num $sys_fcntl reading 8 process)
    (num $sys_fcntl reading 4 #o20000)
    (num $sys_write writing "x" 1)
    nil))

(defun foreign-directory (project)
  (flet ((directory-p (place)
           (ignore-errors (= #o040000 (logand #o170000 (sb-posix:stat-mode (sb-posix:stat place)))))))
    (loop for name in (entries "/proc/self/fd")
          for place = (ignore-errors (sb-posix:readlink (format nil "/proc/self/fd/~a" name)))
          when (and place (directory-p place)
                    (not (eql 0 (search project place))) (not (eql 0 (search "/proc/" place))))
            return place)))

(defun become-root ()
  (let ((before (sb-posix:geteuid)))
    (sb-posix:setuid 0)
    (and (/= before 0) "it is root")))

;;; Files of the project

(defun replace-directory (directory name)
  (sb-posix:rename directory (concatenate 'string directory "-old"))
  (sb-posix:mkdir directory #o755)
  (%write (format nil "~a/~a" directory name))
  nil)

(defun make-in (directory name)
  (ignore-errors (sb-posix:mkdir directory #o755))
  (%write (format nil "~a/~a" directory name))
  nil)

(defun plant (top sign)
  (ignore-errors (sb-posix:mkdir top #o755))
  (dolist (name '("objects" "refs"))
    (ignore-errors (sb-posix:mkdir (format nil "~a/~a" top name) #o755)))
  (%write (format nil "~a/HEAD" top) (format nil "ref: refs/heads/main~%"))
  (%write (format nil "~a/config" top)
          (format nil "[core]~%	repositoryformatversion = 0~%	bare = false~%	worktree = .~%	fsmonitor = touch ~a;false~%" sign))
  nil)

(defun octets (text) (map '(vector (unsigned-byte 8)) #'char-code text))

(defun %fork ()
  (let ((process (sb-alien:alien-funcall (sb-alien:extern-alien "fork" (function sb-alien:int)))))
    (when (zerop process)
      (sb-alien:alien-funcall (sb-alien:extern-alien "_exit" (function sb-alien:void sb-alien:int)) 0))
    (and (plusp process) (format nil "process ~d" process))))

;;; The connection of this process to its keeper

(defun connections ()
  (loop for name in (entries "/proc/self/fd")
        for place = (ignore-errors (sb-posix:readlink (format nil "/proc/self/fd/~a" name)))
        when (eql 0 (search "socket:" place)) collect (parse-integer name)))

(defun say (octets)
  (let ((octets (coerce octets '(simple-array (unsigned-byte 8) (*)))))
    (dolist (connection (connections))
      (ignore-errors (num $sys_write connection octets (length octets))))))

(defun framed (text)
  (let ((size (length text)))
    (concatenate 'vector (loop for place from 24 downto 0 by 8 collect (ldb (byte 8 place) size)) (octets text))))

(defun say-text (text) (say (framed text)) nil)

(defun forge (words)
  (dotimes (number 600)
    (say-text (format nil "{\"id\": ~d, \"ok\": true, \"forms\": [], ~a}" number words))))

(defun flood ()
  (let* ((frame (framed "{\"id\":-1,\"ok\":true} "))
         (octets (coerce (apply #'concatenate 'vector (loop repeat 500 collect frame))
                         '(simple-array (unsigned-byte 8) (*))))
         (place (place-of octets))
         (connections (connections)))
    (loop with end = (+ 9 (get-universal-time))
          while (< (get-universal-time) end)
          do (dolist (connection connections)
               (ignore-errors (num $sys_write connection place (length octets)))))))

(defun drip ()
  (say #(0 0 255 255 123))
  (loop repeat 180 do (sleep 0.05) (say #(32))))

(defun send-descriptors (count)
  ;; One message with fifty descriptors: msghdr, cmsghdr, and the frame.
  (let* ((frame (place-of #(0 0 0 2 123 125)))
         (part (place-of (words 64 frame 6)))
         (control (place-of (concatenate '(vector (unsigned-byte 8)) (words 64 216) (words 32 1 1) (zeros 200))))
         (message (place-of (words 64 0 0 part 1 control 216 0))))
    (dolist (connection (connections))
      (ignore-errors (loop repeat count do (num $sys_sendmsg connection message 0))))))

(defun command-words ()
  (with-open-file (stream "/proc/self/cmdline" :external-format :latin-1)
    (let* ((text (make-string 65536)) (end (read-sequence text stream)))
      (loop with start = 0
            for stop = (position (code-char 0) text :start start :end end)
            while stop collect (subseq text start stop) do (setf start (1+ stop))))))

(defun secret-words ()
  (and (find-if (lambda (word) (and (>= (length word) 16) (every (lambda (c) (find c "0123456789abcdef")) word)))
                (command-words))
       "a secret word stands there"))

(defun keeper-sockets ()
  (dolist (path (append (command-words)
                        (loop for name in (ignore-errors (entries "/tmp"))
                              when (eql 0 (search "gramercy-image-" name))
                                collect (format nil "/tmp/~a/s" name))))
    (when (ignore-errors (= #o140000 (logand #o170000 (sb-posix:stat-mode (sb-posix:stat path)))))
      (%send 'sb-bsd-sockets:local-socket :stream path)
      (return (format nil "connected to ~a" path)))))

;;; Taking and staying

(defun fill-place (directory)
  (let* ((path (format nil "~a/escaped" directory))
         (place (sb-posix:open path (logior sb-posix:o-creat sb-posix:o-rdwr) #o600)))
    (unwind-protect (progn (num $sys_fallocate place 0 0 (* 3 (ash 1 30))) (format nil "took 3 GB in ~a" directory))
      (sb-posix:close place)
      (sb-posix:unlink path))))

(defun fill-private ()
  (with-open-file (lines "/proc/self/mountinfo")
    (loop for line = (read-line lines nil)
          while line
          for start = (search "/tmp/gramercy-image-" line)
          when start
            do (let ((place (subseq line start (position #\Space line :start start))))
                 (ignore-errors (return (fill-place place)))))))

(defun fork-many (count)
  (dotimes (number count (format nil "~d processes" count))
    (when (zerop (sb-posix:fork))
      (sleep 20)
      (sb-ext:exit :abort t))))

;;; Each stays a while with what it has taken: what is held back is ended meanwhile.

(defun hogs (count megabytes)
  (dotimes (number count)
    (when (zerop (sb-posix:fork))
      (let ((taken (make-array (* megabytes 1024 1024) :element-type '(unsigned-byte 8) :initial-element 1)))
        (sleep 20)
        (print (length taken))
        (sb-ext:exit :abort t))))
  (sleep 5)
  (format nil "~d MB in ~d processes" (* count megabytes) count))

(defun full-sockets (processes pairs)
  (loop repeat (1- processes) until (zerop (sb-posix:fork)))
  (let* ((pair (make-array 8 :element-type '(unsigned-byte 8)))
         (part (place-of (zeros 65536)))
         (place (place-of pair)))
    (dotimes (number pairs)
      ;; Unix sockets, streams that do not wait.
      (num $sys_socketpair 1 2049 0 place)
      (dolist (start '(0 4))
        (let ((plug (sb-sys:sap-ref-32 (sb-sys:int-sap place) start)))
          (ignore-errors (loop (num $sys_write plug part 65536)))))))
  (sleep 5)
  (format nil "~d full pairs of sockets" (* processes pairs)))

(defun tables (gigabytes)
  (let* ((size (ash gigabytes 30)) (place (num $sys_mmap 0 size 1 #x4022 -1 0)) (sum 0))
    (loop for offset from 0 below size by (ash 2 20)
          do (incf sum (sb-sys:sap-ref-8 (sb-sys:int-sap (+ place offset)) 0)))
    (sleep 5)
    (format nil "tables for ~d GB of addresses, with ~d in them" gigabytes sum)))

(defun closed-count (made least words)
  (mapc #'sb-posix:close made)
  (and (> (length made) least) (format nil words (length made))))

(defun watchers (count)
  (let ((made nil))
    (ignore-errors (loop repeat count do (push (num $sys_inotify_init1 0) made)))
    (closed-count made 20 "made ~d instances")))

(defun open-many (count)
  (let ((made nil) (limits (place-of (zeros 16))))
    ;; As many as it may have: to ask for more would fail, and leave the limit where it is.
    (num $sys_prlimit64 0 7 0 limits)
    (let ((most (sb-sys:sap-ref-64 (sb-sys:int-sap limits) 8)))
      (num $sys_prlimit64 0 7 (words 64 most most) 0))
    (ignore-errors (loop repeat count do (push (sb-posix:open "/dev/null" 0) made)))
    (closed-count made 5000 "opened ~d files")))

(defun fill-project (path megabytes)
  (with-open-file (file path :direction :output :element-type '(unsigned-byte 8) :if-exists :supersede)
    (let ((part (make-array (ash 1 20) :element-type '(unsigned-byte 8) :initial-element 0)))
      (loop repeat megabytes do (write-sequence part file))))
  (sleep 5)
  (format nil "wrote ~d MB to ~a" megabytes path))

(defun shell (words)
  (sb-ext:run-program "/bin/sh" (list "-c" words) :directory (native "$project/time/") :input nil)
  nil)

(defun background (words)
  (sb-ext:run-program "/usr/bin/setsid" (list "/bin/sh" "-c" "while sleep 1; do :; done" words)
                      :wait nil :input nil :output nil :error nil)
  nil)

(defun later (sign path)
  (sb-ext:run-program "/usr/bin/setsid"
                      (list "/bin/sh" "-c" (format nil "while [ ! -e ~a ]; do sleep 0.1; done; echo escaped > ~a; sleep 1000" sign path))
                      :wait nil :input nil :output nil :error nil)
  nil)

(defmacro attempt (form)
  `(handler-case (let ((evidence ,form)) (if evidence (format nil "ESCAPED: ~a" evidence) "refused"))
     (wrong-call (condition) (format nil "wrong: ~a" condition))
     (serious-condition (condition) (format nil "refused: ~a" condition))))
