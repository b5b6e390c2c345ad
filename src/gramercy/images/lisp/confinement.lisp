;;;; Confinement of a preview: it gives up, for good, every way to change the
;;;; world outside, before it evaluates anything.

(in-package #:gramercy.image)

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
