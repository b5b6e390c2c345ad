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

(defmacro attempt (form)
  `(handler-case (let ((evidence ,form)) (if evidence (format nil "ESCAPED: ~a" evidence) "refused"))
     (wrong-call (condition) (format nil "wrong: ~a" condition))
     (serious-condition (condition) (format nil "refused: ~a" condition))))
