;;;; Streams for what user code prints: they keep the beginning, count the rest,
;;;; and never grow beyond their limit. Nothing is cut afterwards, since fifty
;;;; megabytes that are cut afterwards have been in memory before. Threads of the
;;;; user's may write at once: they may lose each other's text, and nothing else,
;;;; since each writes into the vector that it has measured.

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

(defclass mirrored-stream (bounded-stream)
  ((area :initarg :area :type bit))
  (:documentation "A bounded stream that shows the parent what is written as it comes."))

(defun reset-stream (stream limit)
  "Empty STREAM for another use, with room for LIMIT characters."
  (with-slots (text kept total column (room limit)) stream
    (when (> (length text) 65536) (setf text (make-string 256)))
    (setf kept 0 total 0 column 0 room limit)
    stream))

(defun stream-text (stream)
  "Return a copy of what STREAM has kept."
  (with-slots (text kept) stream (subseq text 0 (min kept (length text)))))

(defun stream-empty-p (stream)
  "Tell whether nothing was kept by STREAM."
  (zerop (the index (slot-value stream 'kept))))

(defun put-stream-text (stream)
  "Append what STREAM has kept to the reply."
  (with-slots (text kept) stream (put-string text 0 (min kept (length text)))))

(defun stream-overflow-p (stream)
  "Return how many characters were written in all when STREAM could not keep them, else NIL."
  (with-slots (total limit) stream (and (> total limit) total)))

(defun grown-text (stream text wanted)
  "Return TEXT, or a copy that holds WANTED characters for STREAM; doubling, but never beyond the limit."
  (declare (type (simple-array character (*)) text) (type index wanted))
  (if (> wanted (length text))
      (with-slots ((current text) limit) stream
        (setf current (replace (make-string (max wanted (min limit (* 2 (length text))))) text)))
      text))

(defmethod sb-gray:stream-write-char ((stream bounded-stream) character)
  (with-slots (text kept total column limit) stream
    (incf total)
    (setf column (if (char= character #\Newline) 0 (1+ column)))
    (let ((place kept))
      (cond ((< place limit)
             (setf (schar (grown-text stream text (1+ place)) place) character
                   kept (1+ place)))
            (t (overflow stream)))))
  character)

(defmethod sb-gray:stream-write-string ((stream bounded-stream) string &optional (start 0) end)
  (with-slots (text kept total column limit) stream
    (let* ((end (or end (length string)))
           (place kept)
           (count (min (- end start) (- limit place)))
           (newline (position #\Newline string :from-end t :start start :end end)))
      (when (plusp count)
        (replace (grown-text stream text (+ place count)) string
                 :start1 place :start2 start :end2 (+ start count))
        (setf kept (+ place count)))
      (incf total (- end start))
      (setf column (if newline (- end newline 1) (+ column (- end start))))
      (when (< count (- end start)) (overflow stream))))
  string)

(defmethod sb-gray:stream-write-char :after ((stream mirrored-stream) character)
  (when *mirror-in-use*
    (with-slots (area total) stream (mirror-character character area total))))

(defmethod sb-gray:stream-write-string :after ((stream mirrored-stream) string &optional (start 0) end)
  (when *mirror-in-use*
    (with-slots (area total) stream
      (mirror-text string start (or end (length string)) area total))))

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

(defglobal *standard-output-kept* (make-instance 'mirrored-stream :area 0)
  "Where the standard output of every evaluation goes; made once, since making it costs more than an evaluation.")
(defglobal *error-output-kept* (make-instance 'mirrored-stream :area 1)
  "Where the error output of every evaluation goes.")
(defglobal *print-target* (make-instance 'stopping-stream)
  "Where values are printed.")

(defglobal *terminal-kept* nil "The stream that is both, over empty input, or NIL where there is none yet.")

(defun terminal-stream ()
  "Return the stream that reads nothing and writes standard output: the last one, unless user code has closed it."
  (let ((kept *terminal-kept*))
    (if (and kept (open-stream-p kept) (open-stream-p (two-way-stream-input-stream kept)))
        kept
        (setf *terminal-kept*
              (make-two-way-stream (make-string-input-stream "") *standard-output-kept*)))))

(defmacro with-user-streams ((limit &optional id) &body body)
  "Run BODY with empty input and with output that is kept up to LIMIT characters, and mirrored for the request ID."
  `(let* ((*standard-output* (reset-stream *standard-output-kept* ,limit))
          (*error-output* (reset-stream *error-output-kept* ,limit))
          (*trace-output* *error-output*)
          (*terminal-io* (terminal-stream))
          (*standard-input* (two-way-stream-input-stream *terminal-io*))
          (*query-io* *terminal-io*)
          (*debug-io* *terminal-io*))
     (begin-mirror ,id)
     ,@body))
