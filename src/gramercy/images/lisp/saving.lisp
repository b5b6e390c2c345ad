;;;; Saving: a copy of this process writes its whole state into a core, from which
;;;; the child can be started again, while this process goes on.

(in-package #:gramercy.image)

(defun save-core (path)
  "Write this process into the core PATH and end. The core starts as the zygote."
  (setf *objects* (make-array +most-objects+ :initial-element nil))
  (forget-mirror)
  (sb-ext:save-lisp-and-die path :toplevel #'main :executable nil))

(defun save-in-copy (path)
  "Write the core in a process of its own; return the status it ended with."
  (let ((process (fork-process)))
    (when (zerop process)
      (sb-posix:close *connection*)
      (let ((sb-ext:*invoke-debugger-hook* (lambda (condition hook)
                                             (declare (ignore hook))
                                             (format sb-sys:*stderr* "~&~a~%" (condition-message condition))
                                             (finish-output sb-sys:*stderr*)
                                             (leave 73))))
        (track-definitions nil)
        (save-core path)
        (leave 73)))
    (setf *children* (remove process *children*))
    (wait-for process)))

(defun wait-for (process)
  "Wait until PROCESS has ended; return its status."
  (loop (handler-case (return (nth-value 1 (sb-posix:waitpid process 0)))
          (sb-posix:syscall-error (condition)
            (unless (= (sb-posix:syscall-errno condition) sb-posix:eintr) (return -1))))))

(define-operation "save" (request)
  (let* ((path (request-text request :path))
         (partial (concatenate 'string path ".partial"))
         (status (save-in-copy partial)))
    (cond ((eql status 0)
           ;; Not RENAME-FILE, which reads meaning into dots and stars.
           (sb-posix:rename partial path)
           (reply request "bytes" (sb-posix:stat-size (sb-posix:stat path))))
          (t (ignore-errors (sb-posix:unlink partial))
             (reply-fault request
                          (list "type" "CANNOT-SAVE"
                                "message" (format nil "The core ~a could not be written (status ~d)." path status)))))))
