;;;; What a preview tried to do to the world outside. The kernel refuses it; here
;;;; it is written down, also when the user's code handles the refusal.

(in-package #:gramercy.image)

(defglobal *confined* nil "True once this process has given up its rights.")
(defglobal *effects* '() "The effects attempted in this evaluation, newest first.")

(defconstant +most-effects+ 100 "Effects told in one reply.")

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
