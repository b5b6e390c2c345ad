;;;; The ends of processes. Each process reaps what it has forked, and remembers
;;;; for a while how it ended: the parent, who wants to know, is not their parent.

(in-package #:gramercy.image)

(defconstant +most-ended+ 64 "Ends that are remembered.")

;;; Written where SIGCHLD is handled, so there is nothing to allocate.
(declaim (type (simple-array (signed-byte 64) (*)) *ended*) (type (unsigned-byte 61) *ended-count*))
(defglobal *ended* (make-array (* 2 +most-ended+) :element-type '(signed-byte 64) :initial-element 0)
  "The number and the status of each of the latest processes reaped, in a circle.")
(defglobal *ended-count* 0 "How many processes were reaped.")
(defglobal *ended-lock* (sb-thread:make-mutex :name "reaping")
  "Held from the reaping of a process until its end is remembered: any thread may have to handle SIGCHLD.")

(defun remember-end (process status)
  "Remember that PROCESS has ended with STATUS."
  (let ((place (* 2 (mod *ended-count* +most-ended+))))
    (setf (aref *ended* place) process
          (aref *ended* (1+ place)) status)
    (incf *ended-count*)))

(defun forget-ends ()
  "Forget the ends of processes that were children of another process, of which this is a copy."
  (setf *ended-count* 0))

(defun forget-programs ()
  "Forget the running programs of another process, of which this is a copy: they are no children of this one.
RUN-PROGRAM would look for their end for ever, at each end of another."
  (let ((programs (internal-symbol "*ACTIVE-PROCESSES*" "SB-IMPL")))
    (when (and programs (boundp programs)) (setf (symbol-value programs) '()))))

(defun ended-status (process)
  "Return the status PROCESS has ended with, or NIL where that is not known. The latest counts: numbers come again."
  (loop for count from *ended-count* above (max 0 (- *ended-count* +most-ended+))
        for place = (* 2 (mod (1- count) +most-ended+))
        when (= process (aref *ended* place))
          return (aref *ended* (1+ place))))

(defun reap-process (process)
  "Reap PROCESS if it has ended, without waiting. Return its number; 0 while it runs, NIL if it is not ours."
  ;; Not interrupted, or the handler of SIGCHLD would wait for a lock that its own thread holds.
  (sb-sys:without-interrupts
    (sb-thread:with-mutex (*ended-lock*)
      (multiple-value-bind (ended status)
          (handler-case (sb-posix:waitpid process sb-posix:wnohang)
            (sb-posix:syscall-error () nil))
        (when (and ended (plusp ended)) (remember-end ended status))
        ended))))

(defconstant +any-process+ 0 "P_ALL of Linux.")
(defconstant +only-look-for-ended+ #x01000005 "WNOHANG, WEXITED and WNOWAIT of Linux.")

(defun child-ended-p ()
  "Tell whether any child of this process has ended. One system call, however many children there are."
  (sb-alien:with-alien ((information (array sb-alien:int 32)))
    (setf (sb-alien:deref information 0) 0)
    (sb-alien:alien-funcall
     (sb-alien:extern-alien "waitid" (function sb-alien:int sb-alien:int sb-alien:int
                                               sb-sys:system-area-pointer sb-alien:int))
     +any-process+ 0 (sb-alien:alien-sap information) +only-look-for-ended+)
    (/= 0 (sb-alien:deref information 0))))

(defun reap-children ()
  "Reap the ended forks of this process, and only those: others belong to the user's RUN-PROGRAM."
  (when (and *children* (child-ended-p))
    (setf *children* (delete-if-not (lambda (process) (eql 0 (reap-process process))) *children*))))

(defun reap-everything ()
  "Reap whatever has ended: the zygote inherits the forks of processes that died."
  (loop for process = (reap-process -1)
        while (and process (plusp process))))

(defun on-child-signal (signal info context)
  "Handle SIGCHLD in the zygote."
  (declare (ignore signal info context))
  (reap-everything))

;;; Telling

(defun running-child-p (process)
  "Tell whether PROCESS is a child of this one that has not ended; if it has, its end is remembered."
  (cond ((string= *role* "zygote")
         (reap-everything)
         (and (typep process '(signed-byte 32)) (eql 0 (reap-process process))))
        (t (reap-children)
           (member process *children*))))

(defun status-members (status)
  "Return what a reply tells of STATUS, which the system gave for a process that ended."
  (let ((signal (ldb (byte 7 0) status)))
    (if (zerop signal)
        (list "kind" "exited" "code" (ldb (byte 8 8) status))
        (list "kind" "signaled" "signal" signal))))

(define-operation "fate" (request)
  (let ((process (getf request :pid)))
    (unless (typep process '(integer 1)) (malformed "pid must be the number of a process"))
    (reply request
           "status" (cons :object
                          (if (running-child-p process)
                              (list "kind" "running")
                              (let ((status (ended-status process)))
                                (if status (status-members status) (list "kind" "unknown"))))))))
