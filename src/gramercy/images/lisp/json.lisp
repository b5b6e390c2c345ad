;;;; Replies as JSON, written straight into the octets of the next frame.
;;;; Knows nothing of what a reply means. Never calls the printer: the user's
;;;; *print-base* and friends must not change the protocol.

(in-package #:gramercy.image)

(defconstant +largest-frame+ (* 64 1024 1024)
  "Longest request, in octets, that this side accepts.")

(defconstant +largest-reply+ (* 16 1024 1024)
  "Longest reply, in octets, that the parent accepts: it ends a process that announces more.")

(defconstant +header-length+ 4
  "Octets of the length that stands before each payload.")

(defconstant +usual-buffer+ 65536
  "Octets kept between replies; a larger buffer is given back after use.")

(define-condition frame-too-large (error) ()
  (:report "The reply is longer than 16 MB, the longest one of the protocol.")
  (:documentation "Signalled while a reply is being written that no parent would accept."))

(declaim (type octets *outbox*) (type index *outbox-end*))
(defglobal *outbox* (make-array +usual-buffer+ :element-type '(unsigned-byte 8))
  "The frame being written; its first four octets are left for the length.")
(defglobal *outbox-end* +header-length+
  "Where the next octet of the frame goes.")

(defun reset-outbox ()
  "Start a new frame, and give back a buffer that one long reply had swollen."
  (when (> (length *outbox*) (* 16 +usual-buffer+))
    (setf *outbox* (make-array +usual-buffer+ :element-type '(unsigned-byte 8))))
  (setf *outbox-end* +header-length+))

(defun grow-outbox (needed)
  "Make room for NEEDED more octets, or refuse."
  (declare (type index needed))
  (let ((wanted (+ *outbox-end* needed)))
    (when (> wanted (+ +header-length+ +largest-reply+))
      (error 'frame-too-large))
    (when (> wanted (length *outbox*))
      ;; Never beyond the limit, or the next check would come too late.
      (let ((size (min (max wanted (* 2 (length *outbox*))) (+ +header-length+ +largest-reply+))))
        (setf *outbox* (replace (make-array size :element-type '(unsigned-byte 8))
                                *outbox* :end2 *outbox-end*))))))

(declaim (inline ensure-room put-octet))
(defun ensure-room (needed)
  "See to it that NEEDED octets can be put without a check."
  (declare (type index needed))
  (when (> (+ *outbox-end* needed) (length *outbox*))
    (grow-outbox needed)))

(defun put-octet (octet)
  "Append OCTET, for which there is room."
  (declare (type (unsigned-byte 8) octet))
  (setf (aref *outbox* *outbox-end*) octet)
  (incf *outbox-end*))

(defun put-ascii (text)
  "Append TEXT, a simple string of ASCII characters, as it is."
  (declare (type simple-string text) (optimize speed))
  (ensure-room (length text))
  (macrolet ((copy (type)
               `(loop with outbox = *outbox*
                      for character across (the (simple-array ,type (*)) text)
                      for place of-type index from *outbox-end*
                      do (setf (aref outbox place) (logand 127 (char-code character)))
                      finally (incf *outbox-end* (length text)))))
    (if (typep text '(simple-array character (*)))
        (copy character)
        (copy base-char))))

(defun put-escaped (code)
  "Append CODE, a character that JSON wants escaped."
  (declare (type (unsigned-byte 8) code))
  (put-octet (char-code #\\))
  (let ((short (position code #(34 92 10 13 9))))
    (cond (short (put-octet (char-code (char "\"\\nrt" short))))
          (t (put-ascii "u00")
             (put-octet (char-code (char-downcase (digit-char (ash code -4) 16))))
             (put-octet (char-code (char-downcase (digit-char (logand code 15) 16))))))))

(declaim (inline put-utf8))
(defun put-utf8 (code)
  "Append the character CODE, above ASCII, in UTF-8."
  (declare (type (integer 128 #x10ffff) code))
  (flet ((tail (shift) (put-octet (logior #x80 (ldb (byte 6 shift) code)))))
    (declare (inline tail))
    (cond ((< code #x800) (put-octet (logior #xc0 (ash code -6))) (tail 0))
          ((< code #x10000) (put-octet (logior #xe0 (ash code -12))) (tail 6) (tail 0))
          (t (put-octet (logior #xf0 (ash code -18))) (tail 12) (tail 6) (tail 0)))))

(defun put-string (text &optional (start 0) (end (length text)))
  "Append the characters of TEXT from START to END as a JSON string.
A lone surrogate, which UTF-8 cannot carry, becomes U+FFFD."
  (declare (type string text) (type index start end) (optimize speed))
  (sb-kernel:with-array-data ((data text) (start start) (end end))
    (ensure-room 2)
    (put-octet (char-code #\"))
    (macrolet ((copy (type)
                 `(loop for place of-type index from start below end
                        for code = (char-code (aref (the (simple-array ,type (*)) data) place))
                        do (ensure-room 8)
                           (cond ((or (< code 32) (= code 34) (= code 92) (= code 127))
                                  (put-escaped code))
                                 ((< code 128) (put-octet code))
                                 ((<= #xd800 code #xdfff) (put-utf8 #xfffd))
                                 (t (put-utf8 code))))))
      (etypecase data
        ((simple-array character (*)) (copy character))
        ((simple-array base-char (*)) (copy base-char))
        ((simple-array nil (*)) nil)))
    (ensure-room 2)
    (put-octet (char-code #\"))))

(defun put-integer (integer)
  "Append INTEGER in decimal."
  (declare (type (signed-byte 64) integer) (optimize speed))
  (ensure-room 24)
  (when (minusp integer) (put-octet (char-code #\-)))
  (labels ((digits (rest)
             (declare (type (unsigned-byte 64) rest))
             (multiple-value-bind (quotient digit) (truncate rest 10)
               (unless (zerop quotient) (digits quotient))
               (put-octet (+ 48 digit)))))
    (digits (abs integer))))

(defun put-thousandths (thousandths)
  "Append a whole number of THOUSANDTHS as a decimal fraction."
  (declare (type (unsigned-byte 62) thousandths))
  (multiple-value-bind (whole rest) (truncate thousandths 1000)
    (put-integer whole)
    (ensure-room 4)
    (put-octet (char-code #\.))
    (put-octet (+ 48 (truncate rest 100)))
    (put-octet (+ 48 (mod (truncate rest 10) 10)))
    (put-octet (+ 48 (mod rest 10)))))

(defun put-json (value)
  "Append VALUE: NIL is null, T true, :FALSE false; a vector, or a list that starts with :ARRAY,
is an array; a list (:OBJECT key value ...) is an object whose keys are ASCII strings."
  (etypecase value
    (null (put-ascii "null"))
    ((eql t) (put-ascii "true"))
    ((eql :false) (put-ascii "false"))
    (string (put-string value))
    ((signed-byte 64) (put-integer value))
    (integer (put-string (bignum-text value)))
    ((cons (eql :object)) (put-members (rest value)))
    ((cons (eql :array)) (put-items (rest value)))
    (vector (put-items (coerce value 'list)))))

(defun bignum-text (integer)
  "Return the decimal digits of INTEGER, which is too large for a JSON number."
  (with-standard-io-syntax (princ-to-string integer)))

(defun put-items (items)
  "Append the list ITEMS as an array."
  (put-ascii "[")
  (loop for (item . more) on items
        do (put-json item)
           (when more (put-ascii ",")))
  (put-ascii "]"))

(defun put-members (members)
  "Append the keys and values of the plist MEMBERS as an object."
  (put-ascii "{")
  (loop for (key value . more) on members by #'cddr
        do (put-string key)
           (put-ascii ":")
           (put-json value)
           (when more (put-ascii ",")))
  (put-ascii "}"))

(defun getf-text (members key)
  "Return the value under the string KEY of the plist MEMBERS."
  (loop for (name value) on members by #'cddr
        when (string= name key) return value))

(defun (setf getf-text) (value members key)
  "Replace the value under the string KEY, which is there, of the plist MEMBERS."
  (setf (second (member key members :test #'equal)) value))
