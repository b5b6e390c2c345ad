;;;; Work in the background: code that a thread evaluates while other requests are
;;;; served. What it prints goes to a ring in the memory shared with the parent, and
;;;; its reply into the room behind the ring, so that the parent reads both at any
;;;; moment, also after this process was killed. Nothing here uses what belongs to
;;;; the main thread: neither its streams nor the frame in which replies are written.

(in-package #:gramercy.image)

(defconstant +ring+ 131072 "Octets of the ring of a job.")
(defconstant +reply-room+ 65536 "Octets for the reply of a job.")
(defconstant +longest-job-value+ 4000 "Characters told of a value of a job.")
(defconstant +first-job+ (+ +mirror-header+ (* 2 +mirror-area+)) "Where the first job begins in the mirror.")

;;; The header of a job has its number, whether it runs (1) or is over (2) and the octets of its reply, of 32 bits
;;; each; at octet 16 the octets that it has printed, of 64 bits.

(defstruct (job (:copier nil))
  "One piece of work: its number, its place in the mirror, its code, and whether it is to stop."
  (number 0 :type unsigned-byte)
  (place 0 :type index)
  (text "" :type simple-string)
  package
  (stopped nil :type boolean)
  thread)

(defglobal *jobs* '() "The jobs that run.")
(defvar *in-job* nil "True in the thread of a job while its code runs, where it can be stopped.")

(defclass job-stream (sb-gray:fundamental-character-output-stream)
  ((place :initarg :place :type index)
   (written :initform 0 :type (unsigned-byte 62))
   (column :initform 0 :type index)
   (lock :initform (sb-thread:make-mutex :name "job output")))
  (:documentation "Writes to the ring of a job."))

(defun write-octets (octets start end place)
  "Write the part of OCTETS from START to END to the mirror from PLACE on."
  (declare (type octets octets) (type index start end place))
  (let ((memory *mirror*))
    (when memory
      (loop for from of-type index from start below end
            for to of-type index from place
            do (setf (sb-sys:sap-ref-8 memory to) (aref octets from))))))

(defun write-ring (stream text start end)
  "Write the characters of TEXT from START to END over what is oldest in the ring of STREAM."
  (with-slots (place written column lock) stream
    (let* ((octets (sb-ext:string-to-octets text :start start :end end
                                                 :external-format '(:utf-8 :replacement #\?)))
           (newline (position #\Newline text :from-end t :start start :end end))
           (size (length octets)))
      (sb-thread:with-recursive-lock (lock)
        (let* ((first (max 0 (- size +ring+)))
               (at (mod (+ written first) +ring+))
               (middle (min size (+ first (- +ring+ at))))
               (ring (+ place +mirror-header+)))
          (write-octets octets first middle (+ ring at))
          (write-octets octets middle size ring)
          (incf written size)
          (setf column (if newline (- end newline 1) (+ column (- end start))))
          (sb-thread:barrier (:write))
          (when *mirror* (setf (sb-sys:sap-ref-64 *mirror* (+ place 16)) written)))))))

(defmethod sb-gray:stream-write-char ((stream job-stream) character)
  (write-ring stream (string character) 0 1)
  character)

(defmethod sb-gray:stream-write-string ((stream job-stream) string &optional (start 0) end)
  (write-ring stream string start (or end (length string)))
  string)

(defmethod sb-gray:stream-line-column ((stream job-stream))
  (slot-value stream 'column))

;;; The reply

(defun write-json-text (text stream)
  "Write TEXT as a string of JSON."
  (write-char #\" stream)
  (loop for character across text
        for code = (char-code character)
        do (cond ((or (< code 32) (<= #xd800 code #xdfff) (find character "\"\\"))
                  (format stream "\\u~4,'0x" (if (<= #xd800 code #xdfff) #xfffd code)))
                 (t (write-char character stream))))
  (write-char #\" stream))

(defun write-json-texts (texts stream)
  "Write TEXTS as an array."
  (write-char #\[ stream)
  (loop for (text . more) on texts
        do (write-json-text text stream)
           (when more (write-char #\, stream)))
  (write-char #\] stream))

(defun job-value-text (value)
  "Return VALUE as it is printed, within the limit."
  (bounded-text (lambda (stream) (let ((*print-circle* t)) (prin1 value stream))) +longest-job-value+))

(defun job-reply (number values fault started)
  "Return the reply of the job NUMBER, which gave the texts VALUES or has ended by FAULT."
  (with-output-to-string (stream)
    (format stream "{\"id\":~d,\"ok\":~:[false~;true~],\"elapsed_ms\":~d" number (null fault)
            (truncate (- (microseconds) started) 1000))
    (if fault
        (destructuring-bind (type message backtrace interrupted) fault
          (write-string ",\"error\":{\"type\":" stream)
          (write-json-text type stream)
          (write-string ",\"message\":" stream)
          (write-json-text message stream)
          (write-string ",\"backtrace\":" stream)
          (write-json-texts backtrace stream)
          (format stream ",\"interrupted\":~:[false~;true~]}" interrupted))
        (progn (write-string ",\"forms\":[{\"values\":" stream)
               (write-json-texts values stream)
               (write-string "}]" stream)))
    (write-char #\} stream)))

(defun end-job (place reply)
  "Leave REPLY in the mirror for the job at PLACE, and say that it is over."
  (let ((octets (sb-ext:string-to-octets reply :external-format :utf-8)))
    (when (and *mirror* (<= (length octets) +reply-room+))
      (write-octets octets 0 (length octets) (+ place +mirror-header+ +ring+))
      (setf (sb-sys:sap-ref-32 *mirror* (+ place 8)) (length octets))
      (sb-thread:barrier (:write))
      (setf (sb-sys:sap-ref-32 *mirror* (+ place 4)) 2))))

;;; Running

(defun fault-of-job (condition)
  "Return what is told of CONDITION, which ends a job: type, message, frames, and whether it was stopped."
  (list (condition-type-name condition) (condition-message condition)
        (if (untraceable-p condition) '() (user-backtrace condition))
        (typep condition 'interrupted)))

(defun run-job-code (text)
  "Evaluate the forms of TEXT, each read in the world that those before it have made; return the last values."
  (let ((values '()) (source (make-string-input-stream text)))
    (loop for form = (handler-bind ((end-of-file (lambda (condition)
                                                   (when (eq (stream-error-stream condition) source)
                                                     (error "The code ends inside of a form.")))))
                       (read source nil source))
          until (eq form source)
          do (setf values (multiple-value-list (eval form))))
    (mapcar #'job-value-text values)))

(defun job-outcome (job)
  "Run the code of JOB; return the texts of its values, or NIL and what ended it."
  (let ((fault nil) (values '()))
    (catch 'end-job
      (let ((sb-ext:*invoke-debugger-hook*
              (lambda (condition hook)
                (declare (ignore hook))
                (setf fault (fault-of-job condition))
                (throw 'end-job nil)))
            (*debugger-hook* nil)
            (*in-job* t)
            (*untracked* (sb-ext:symbol-global-value '*untracked*)))
        (with-simple-restart (abort "End the job.")
          (when (job-stopped job) (invoke-debugger (make-condition 'interrupted)))
          (setf values (run-job-code (job-text job)))
          (throw 'end-job nil))
        (setf fault (list "ABORT" "The code invoked the ABORT restart." '() nil))))
    (values values fault)))

(defun run-job (job)
  "Run JOB and leave its reply."
  (let* ((stream (make-instance 'job-stream :place (job-place job)))
         (started (microseconds))
         (*standard-output* stream) (*error-output* stream) (*trace-output* stream)
         (*standard-input* (make-instance 'typed-stream :descriptor nil))
         (*terminal-io* (make-two-way-stream *standard-input* stream))
         (*query-io* *terminal-io*) (*debug-io* *terminal-io*)
         (*package* (job-package job))
         (- -) (+ +) (++ ++) (+++ +++) (* *) (** **) (*** ***) (/ /) (// //) (/// ///))
    (multiple-value-bind (values fault) (job-outcome job)
      (end-job (job-place job) (job-reply (job-number job) values fault started)))
    (setf *jobs* (remove job *jobs*))))

(defun begin-job (job &aux (place (job-place job)))
  "Start the thread of JOB."
  (setf (sb-sys:sap-ref-64 *mirror* (+ place 16)) 0
        (sb-sys:sap-ref-32 *mirror* (+ place 8)) 0
        (sb-sys:sap-ref-32 *mirror* place) (ldb (byte 32 0) (job-number job))
        (sb-sys:sap-ref-32 *mirror* (+ place 4)) 1)
  (push job *jobs*)
  (setf (job-thread job) (sb-thread:make-thread #'run-job :name (format nil "job ~d" (job-number job))
                                                          :arguments (list job))))

(define-operation "start_job" (request)
  (let ((text (coerce (request-text request :code) 'simple-string))
        (number (getf request :job))
        (slot (getf request :slot))
        (history (list - + ++ +++ * ** *** / // ///)))
    (unless (and *mirror* (integerp number) (typep slot '(mod 4)))
      (malformed "this image has no memory for work in the background"))
    ;; PROGN is no call that is known to change nothing, so the state is not taken to be the one before.
    (serve-evaluation (list* :code "(progn)" request)
                      :evaluate (lambda (form)
                                  (declare (ignore form))
                                  (begin-job (make-job :number number :text text :package *package*
                                                       :place (+ +first-job+ (* slot +mirror-job+))))
                                  (values)))
    (setf (values - + ++ +++ * ** *** / // ///) (values-list history))))

(define-operation "stop_job" (request)
  (let ((job (find (getf request :job) *jobs* :key #'job-number)))
    (when job
      ;; A thread that has not come to its code yet finds this there.
      (setf (job-stopped job) t)
      (ignore-errors
       (sb-thread:interrupt-thread (job-thread job)
                                   (lambda () (when *in-job* (invoke-debugger (make-condition 'interrupted)))))))
    (reply request)))
