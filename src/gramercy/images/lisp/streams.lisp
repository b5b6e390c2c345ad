;;;; Streams for what user code prints: they keep the beginning, count the rest,
;;;; and never grow beyond their limit. Nothing is cut afterwards, since fifty
;;;; megabytes that are cut afterwards have been in memory before.

(in-package #:gramercy.image)

(defclass bounded-stream (sb-gray:fundamental-character-output-stream)
  ((text :initform (make-string 256) :type (simple-array character (*)))
   (kept :initform 0 :type index)
   (total :initform 0 :type (unsigned-byte 62))
   (column :initform 0 :type index)
   (limit :initform 100000 :initarg :limit :type index))
  (:documentation "Keeps the first LIMIT characters of what is written, and counts all of them."))

(defclass stopping-stream (bounded-stream) ()
  (:documentation "A bounded stream that ends the work of its writer by THROW once it is full."))

(defgeneric overflow (stream)
  (:documentation "Do what is to be done when a character no longer fits into STREAM.")
  (:method ((stream bounded-stream)) nil)
  (:method ((stream stopping-stream)) (throw stream :overflow)))

(defun reset-stream (stream limit)
  "Empty STREAM for another use, with room for LIMIT characters."
  (with-slots (text kept total column (room limit)) stream
    (when (> (length text) 65536) (setf text (make-string 256)))
    (setf kept 0 total 0 column 0 room limit)
    stream))

(defun stream-text (stream)
  "Return a copy of what STREAM has kept."
  (with-slots (text kept) stream (subseq text 0 kept)))

(defun put-stream-text (stream)
  "Append what STREAM has kept to the reply."
  (with-slots (text kept) stream (put-string text 0 kept)))

(defun stream-overflow-p (stream)
  "Return how many characters were written in all when STREAM could not keep them, else NIL."
  (with-slots (total limit) stream (and (> total limit) total)))

(defun ensure-text-room (stream wanted)
  "Let the text of STREAM hold WANTED characters; doubling, but never beyond the limit."
  (with-slots (text kept limit) stream
    (when (> wanted (length text))
      (setf text (replace (make-string (max wanted (min limit (* 2 (length text)))))
                          text :end2 kept)))))

(defmethod sb-gray:stream-write-char ((stream bounded-stream) character)
  (with-slots (text kept total column limit) stream
    (incf total)
    (setf column (if (char= character #\Newline) 0 (1+ column)))
    (cond ((< kept limit)
           (when (= kept (length text)) (ensure-text-room stream (1+ kept)))
           (setf (schar text kept) character)
           (incf kept))
          (t (overflow stream))))
  character)

(defmethod sb-gray:stream-write-string ((stream bounded-stream) string &optional (start 0) end)
  (with-slots (text kept total column limit) stream
    (let* ((end (or end (length string)))
           (count (min (- end start) (- limit kept)))
           (newline (position #\Newline string :from-end t :start start :end end)))
      (when (plusp count)
        (ensure-text-room stream (+ kept count))
        (replace text string :start1 kept :start2 start :end2 (+ start count))
        (incf kept count))
      (incf total (- end start))
      (setf column (if newline (- end newline 1) (+ column (- end start))))
      (when (< count (- end start)) (overflow stream))))
  string)

(defmethod sb-gray:stream-line-column ((stream bounded-stream))
  (slot-value stream 'column))

(defmethod sb-gray:stream-start-line-p ((stream bounded-stream))
  (zerop (slot-value stream 'column)))

;;; User code may close its standard output; the next evaluation needs it open.
(defmethod close ((stream bounded-stream) &key abort)
  (declare (ignore abort))
  t)

(defmethod open-stream-p ((stream bounded-stream))
  t)

(defmethod print-object ((stream bounded-stream) output)
  (print-unreadable-object (stream output :type nil :identity t)
    (write-string "output of the evaluation" output)))

(defglobal *standard-output-kept* (make-instance 'bounded-stream)
  "Where the standard output of every evaluation goes; made once, since making it costs more than an evaluation.")
(defglobal *error-output-kept* (make-instance 'bounded-stream)
  "Where the error output of every evaluation goes.")
(defglobal *print-target* (make-instance 'stopping-stream)
  "Where values are printed.")

(defmacro with-user-streams ((limit) &body body)
  "Run BODY with empty input and with output that is kept up to LIMIT characters."
  `(let* ((*standard-output* (reset-stream *standard-output-kept* ,limit))
          (*error-output* (reset-stream *error-output-kept* ,limit))
          (*trace-output* *error-output*)
          (*standard-input* (make-concatenated-stream))
          (*terminal-io* (make-two-way-stream *standard-input* *standard-output*))
          (*query-io* *terminal-io*)
          (*debug-io* *terminal-io*))
     ,@body))
