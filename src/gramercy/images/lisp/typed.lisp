;;;; The input of an evaluation for which a person types. The prompt sends an end of
;;;; a socket with its request; each line is asked for on it when code reads one. A
;;;; question is one packet, its answer one or several with the number of the question:
;;;; an answer to a question that an interrupt has ended is passed over.

(in-package #:gramercy.image)

(defconstant +answer-head+ 5 "Octets of an answer before the text: the number of the question, and what it is.")
(defconstant +longest-answer+ 65536 "Octets of one packet at most; the parent sends half of that.")
(defconstant +more-follows+ (char-code #\+) "The octet that says that this is not the last part of a line.")

(defclass typed-stream (sb-gray:fundamental-character-input-stream)
  ((descriptor :initarg :descriptor :type (or null fixnum))
   (number :initform 0 :type (unsigned-byte 32))
   (text :initform "" :type string)
   (place :initform 0 :type index))
  (:documentation "Reads lines that a person types. Once DESCRIPTOR is NIL, there are no more."))

(defun start-listening (request)
  "Let the code of REQUEST read what a person types, where an end came for that."
  (let ((descriptor (and (getf request :input) (take-end (getf request :input)))))
    (when descriptor
      (setf *typed* (make-instance 'typed-stream :descriptor descriptor)))))

(defun hang-up ()
  "Let nothing be asked for any more."
  (let ((stream (shiftf *typed* nil)))
    (when stream
      (let ((descriptor (shiftf (slot-value stream 'descriptor) nil)))
        (when descriptor (close-quietly descriptor))))))

(defun packet-number (octets)
  "Return the number at the beginning of OCTETS."
  (loop with number = 0
        for place from 0 below 4
        do (setf number (logior (ash number 8) (aref octets place)))
        finally (return number)))

(defun send-question (descriptor number)
  "Ask for a line; return false where that cannot be."
  (let ((packet (make-array +answer-head+ :element-type '(unsigned-byte 8))))
    (setf (aref packet 0) (char-code #\?))
    (loop for place from 1
          for shift from 24 downto 0 by 8
          do (setf (aref packet place) (ldb (byte 8 shift) number)))
    (sb-sys:with-pinned-objects (packet)
      (plusp (sb-alien:alien-funcall
              (sb-alien:extern-alien "send" (function sb-alien:long sb-alien:int sb-sys:system-area-pointer
                                                      sb-alien:unsigned-long sb-alien:int))
              descriptor (sb-sys:vector-sap packet) +answer-head+ +send-without-signal+)))))

(defun receive-packet (descriptor buffer)
  "Wait for a packet and put it into BUFFER; return its length, 0 where there will be none. An interrupt may come."
  (sb-sys:wait-until-fd-usable descriptor :input nil nil)
  (max 0 (sb-sys:with-pinned-objects (buffer)
           (sb-alien:alien-funcall
            (sb-alien:extern-alien "recv" (function sb-alien:long sb-alien:int sb-sys:system-area-pointer
                                                    sb-alien:unsigned-long sb-alien:int))
            descriptor (sb-sys:vector-sap buffer) (length buffer) 0))))

(defun asked-line (stream)
  "Return the next line for STREAM, with its end; an empty one where there are no more."
  (with-slots (descriptor number) stream
    (let ((buffer (make-array +longest-answer+ :element-type '(unsigned-byte 8)))
          (octets '())
          (asked (setf number (ldb (byte 32 0) (1+ number)))))
      (when (and descriptor (send-question descriptor asked))
        (loop for length = (if descriptor (receive-packet descriptor buffer) 0)
              until (< length +answer-head+)
              do (when (= (packet-number buffer) asked)
                   (push (subseq buffer +answer-head+ length) octets)
                   (when (/= (aref buffer 4) +more-follows+) (return)))))
      (sb-ext:octets-to-string (apply #'concatenate 'octets (reverse octets))
                               :external-format '(:utf-8 :replacement #\ufffd)))))

(defun have-typed (stream)
  "Ask for the next line where STREAM has none left; tell whether there is a character to read."
  (with-slots (text place) stream
    (when (= place (length text))
      (setf text "" place 0
            text (asked-line stream))
      ;; The person has begun a new line on the screen.
      (when (plusp (length text)) (setf (slot-value *standard-output-kept* 'column) 0)))
    (plusp (length text))))

(defmethod sb-gray:stream-read-char ((stream typed-stream))
  (if (have-typed stream)
      (with-slots (text place) stream
        (prog1 (char text place) (incf place)))
      :eof))

(defmethod sb-gray:stream-unread-char ((stream typed-stream) character)
  (declare (ignore character))
  (with-slots (place) stream
    (when (plusp place) (decf place))
    nil))

(defmethod sb-gray:stream-listen ((stream typed-stream))
  (with-slots (text place) stream (< place (length text))))

(defmethod sb-gray:stream-read-char-no-hang ((stream typed-stream))
  (and (sb-gray:stream-listen stream) (sb-gray:stream-read-char stream)))

(defmethod sb-gray:stream-clear-input ((stream typed-stream))
  (with-slots (text place) stream (setf text "" place 0))
  nil)

;;; SBCL asks the input half of a two-way stream first, and the output half where that says nothing.
(defmethod sb-gray:stream-line-column ((stream typed-stream)) nil)
(defmethod sb-gray:stream-line-length ((stream typed-stream)) nil)

(defmethod print-object ((stream typed-stream) output)
  (print-unreadable-object (stream output :type nil :identity t)
    (write-string "input of the evaluation" output)))
