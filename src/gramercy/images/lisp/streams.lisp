;;;; What user code prints: bounded streams, and the mirror of them in memory shared
;;;; with the parent, which may read it at any moment, also when this process hangs
;;;; or has been killed. Only one process of an image evaluates at a time, so the
;;;; mirror needs no lock.

(in-package #:gramercy.image)

(defconstant +mirror-header+ 4096 "Octets before the areas; the counts stand in the first of them.")
(defconstant +mirror-area+ 131072 "Octets of the area that each stream has.")
(defconstant +mirror-job+ (+ +mirror-header+ 131072 65536) "Octets of the place of a job: see jobs.lisp.")
(defconstant +mirror-size+ (+ +mirror-header+ (* 2 +mirror-area+) (* 4 +mirror-job+)) "Octets in all.")

;;; The counts, of 32 bits each.
(defconstant +mirror-request+ 0 "Place of the number of the request that wrote last.")
(defconstant +mirror-octets+ 1 "Place of the octets in the first area; those in the second follow.")
(defconstant +mirror-characters+ 3 "Place of the characters of the first stream; those of the second follow.")

(deftype mirror-place ()
  "A place in an area, or its end."
  '(integer 0 #.+mirror-area+))

(declaim (type (or null sb-sys:system-area-pointer) *mirror* *mirror-in-use*)
         (type (simple-array (unsigned-byte 32) (2)) *mirror-places*))
(defglobal *mirror* nil "Where the memory is mapped, or NIL in an image without a mirror.")
(defglobal *mirror-in-use* nil "The same while what is printed goes there, otherwise NIL.")
(defglobal *mirror-places* (make-array 2 :element-type '(unsigned-byte 32) :initial-element 0)
  "Where the next octet goes in each area.")

;;; Mapping

(defun mapped-memory (descriptor)
  "Map the file behind DESCRIPTOR and close it, or signal why it is of no use."
  (let ((status (and (typep descriptor '(integer 3 #x7fffffff)) (sb-posix:fstat descriptor))))
    (unless (and status (sb-posix:s-isreg (sb-posix:stat-mode status)))
      (error "descriptor ~d is not a file made for it" descriptor))
    (unwind-protect
         (if (>= (sb-posix:stat-size status) +mirror-size+)
             (sb-posix:mmap nil +mirror-size+ (logior sb-posix:prot-read sb-posix:prot-write)
                            sb-posix:map-shared descriptor 0)
             (error "descriptor ~d has ~d octets, expected ~d"
                    descriptor (sb-posix:stat-size status) +mirror-size+))
      (sb-posix:close descriptor))))

(defun open-mirror (word)
  "Map the descriptor that WORD of the command line names, if any. One that is of no use means no mirror."
  (setf *mirror-in-use* nil
        *mirror* (handler-case (and word (mapped-memory (parse-integer word)))
                   (error (condition)
                     (format sb-sys:*stderr* "No mirror of the output: ~a~%" condition)
                     (flush-log)
                     nil))))

(defun move-mirror (descriptor)
  "Write to the file behind DESCRIPTOR from now on; the one before stays with the process that this is a copy of."
  (when *mirror*
    (sb-posix:mmap *mirror* +mirror-size+ (logior sb-posix:prot-read sb-posix:prot-write)
                   (logior sb-posix:map-shared sb-posix:map-fixed) descriptor 0))
  (sb-posix:close descriptor))

(defun forget-mirror ()
  "Forget the mapping: a core that is started later has none at that address."
  (setf *mirror* nil *mirror-in-use* nil))

;;; Writing

(declaim (inline write-count))
(defun write-count (memory place count)
  "Write COUNT at PLACE of the header."
  (declare (type (integer 0 4) place))
  ;; On machines that reorder writes, the octets must be there before their count is.
  (sb-thread:barrier (:write))
  (setf (sb-sys:sap-ref-32 memory (* 4 place)) (ldb (byte 32 0) count)))

(defun begin-mirror (id)
  "Empty the mirror for the request ID. Without an ID, for no request of the parent, it is left as it is."
  (let ((memory (and (integerp id) *mirror*)))
    (setf *mirror-in-use* memory)
    (when memory
      (fill *mirror-places* 0)
      (loop for place from +mirror-octets+ to (1+ +mirror-characters+)
            do (write-count memory place 0))
      (write-count memory +mirror-request+ id))))

(declaim (inline code-width write-code))
(defun code-width (code)
  "Return how many octets the character CODE has in UTF-8."
  (cond ((< code #x80) 1) ((< code #x800) 2) ((< code #x10000) 3) (t 4)))

(defun write-code (memory offset code width)
  "Write the character CODE, of WIDTH octets in UTF-8, at OFFSET."
  (declare (type index offset) (type (unsigned-byte 21) code))
  (flet ((put (distance octet) (setf (sb-sys:sap-ref-8 memory (+ offset distance)) octet))
         (tail (shift) (logior #x80 (ldb (byte 6 shift) code))))
    (declare (inline put tail))
    (ecase width
      (1 (put 0 (ldb (byte 7 0) code)))
      (2 (put 0 (logior #xc0 (ldb (byte 5 6) code))) (put 1 (tail 0)))
      (3 (put 0 (logior #xe0 (ldb (byte 4 12) code))) (put 1 (tail 6)) (put 2 (tail 0)))
      (4 (put 0 (logior #xf0 (ldb (byte 3 18) code))) (put 1 (tail 12)) (put 2 (tail 6)) (put 3 (tail 0))))))

(defmacro with-mirror-place ((memory offset place area total) &body body)
  "Run BODY, which writes to MEMORY from PLACE of AREA on, counted from OFFSET, and returns the place it has come to
and whether everything fitted. Threads of the user's may write too, so there is one reading of the place."
  `(let ((,memory *mirror-in-use*))
     (when ,memory
       (let ((,place (aref *mirror-places* ,area))
             (,offset (+ +mirror-header+ (* ,area +mirror-area+))))
         (declare (type mirror-place ,place) (type index ,offset))
         (when (< ,place +mirror-area+)
           (multiple-value-bind (end complete) (progn ,@body)
             ;; Once full it stays full: a short character must not follow a longer one that found no room.
             (setf (aref *mirror-places* ,area) (if complete end +mirror-area+))
             (write-count ,memory (+ +mirror-octets+ ,area) end)))
         (write-count ,memory (+ +mirror-characters+ ,area) ,total)))))

(defun mirror-text (text start end area total)
  "Show the characters of TEXT from START to END in AREA; TOTAL counts those of the whole evaluation."
  (declare (type string text) (type index start end) (type bit area) (type (unsigned-byte 62) total)
           (optimize speed))
  (with-mirror-place (memory offset place area total)
    (sb-kernel:with-array-data ((data text) (start start) (end end))
      (macrolet ((copy (type)
                   `(loop for from of-type index from start below end
                          for code = (char-code (aref (the (simple-array ,type (*)) data) from))
                          ;; UTF-8 has no way to write a lone surrogate.
                          for told = (if (<= #xd800 code #xdfff) #xfffd code)
                          for width of-type (integer 1 4) = (code-width told)
                          do (when (> width (- +mirror-area+ place)) (return (values place nil)))
                             (write-code memory (+ offset place) told width)
                             (incf place width)
                          finally (return (values place t)))))
        (etypecase data
          ((simple-array character (*)) (copy character))
          ((simple-array base-char (*)) (copy base-char))
          ((simple-array nil (*)) (values place t)))))))

(defun mirror-character (character area total)
  "Show CHARACTER in AREA; TOTAL counts the characters of the whole evaluation."
  (declare (type character character) (type bit area) (type (unsigned-byte 62) total) (optimize speed))
  (with-mirror-place (memory offset place area total)
    (let* ((code (char-code character))
           (told (if (<= #xd800 code #xdfff) #xfffd code))
           (width (code-width told)))
      (cond ((> width (- +mirror-area+ place)) (values place nil))
            (t (write-code memory (+ offset place) told width)
               (values (+ place width) t))))))

;;;; Streams that keep the beginning, count the rest, and never grow beyond their
;;;; limit: fifty megabytes that are cut afterwards have been in memory before.
;;;; Threads of the user's may write at once: they may lose each other's text, and
;;;; nothing else, since each writes into the vector that it has measured.

(defclass bounded-stream (sb-gray:fundamental-character-output-stream)
  ((text :initform (make-string 256) :type (simple-array character (*)))
   (kept :initform 0 :type index)
   (total :initform 0 :type (unsigned-byte 62))
   (column :initform 0 :type index)
   (limit :initform 100000 :initarg :limit :type index))
  (:documentation "Keeps the first LIMIT characters of what is written, and counts all of them."))

(defclass stopping-stream (bounded-stream)
  ((enough :initform nil :type (or null index))
   (deadline :initform 0 :type (unsigned-byte 62)))
  (:documentation "A bounded stream that ends the work of its writer by THROW once it is full. Once it holds more than
ENOUGH characters, it does so too when it has to grow behind the DEADLINE."))

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

(defgeneric overdue-p (stream wanted)
  (:documentation "Tell whether STREAM, which is to hold WANTED characters, has taken too long to get them.")
  (:method ((stream bounded-stream) wanted) (declare (ignore wanted)) nil)
  (:method ((stream stopping-stream) wanted)
    (with-slots (enough deadline) stream
      (and enough (> wanted enough) (> (microseconds) deadline)))))

(defun grown-text (stream text wanted)
  "Return TEXT, or a copy that holds WANTED characters for STREAM; doubling, but never beyond the limit."
  (declare (type (simple-array character (*)) text) (type index wanted))
  (if (> wanted (length text))
      (with-slots ((current text) limit) stream
        (when (overdue-p stream wanted) (overflow stream))
        (setf current (replace (make-string (max wanted (min limit (* 2 (length text))))) text)))
      text))

(defmethod sb-gray:stream-write-char ((stream bounded-stream) character)
  (with-slots (text kept total column limit) stream
    (incf total)
    (case character
      (#\Newline (setf column 0))
      ;; YES-OR-NO-P rings, and a bell moves no cursor.
      (#.(code-char 7))
      (t (incf column)))
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

;;; What is kept of an output whose end says most.

(defclass ending-stream (bounded-stream) ()
  (:documentation "Keeps the end of what is written: between half of the limit and the whole."))

(defun drop-beginning (stream count)
  "Make room for COUNT characters, at most half of the limit, in STREAM."
  (declare (type index count))
  (with-slots (text kept limit) stream
    (when (> (+ kept count) limit)
      (let ((left (min kept (- limit (ceiling limit 2)))))
        (replace text text :start2 (- kept left) :end2 kept)
        (setf kept left)))))

(defmethod sb-gray:stream-write-char :before ((stream ending-stream) character)
  (declare (ignore character))
  (drop-beginning stream 1))

(defmethod sb-gray:stream-write-string :around ((stream ending-stream) string &optional (start 0) end)
  (let* ((end (or end (length string)))
         (from (max start (- end (floor (slot-value stream 'limit) 2)))))
    (drop-beginning stream (- end from))
    (call-next-method stream string from end)
    string))

;;; User code may close its standard output; the next evaluation needs it open.
(defmethod close ((stream bounded-stream) &key abort)
  (declare (ignore abort))
  t)

(defmethod open-stream-p ((stream bounded-stream))
  t)

(defun stream-contents (stream)
  "Return what STREAM keeps and has counted, to be put back."
  (with-slots (text kept total column limit) stream
    (list (subseq text 0 kept) total column limit)))

(defun (setf stream-contents) (contents stream)
  "Let STREAM be as CONTENTS, of STREAM-CONTENTS, say."
  (destructuring-bind (old-text old-total old-column old-limit) contents
    (with-slots (text kept total column limit) stream
      (setf text (replace (make-string (max 256 (length old-text))) old-text)
            kept (length old-text)
            total old-total
            column old-column
            limit old-limit)))
  contents)

(defun show-again (standard error id)
  "Show in the mirror, for the request ID, what the streams STANDARD and ERROR keep."
  (begin-mirror id)
  (when *mirror-in-use*
    (loop for stream in (list standard error)
          do (with-slots (text kept total area) stream
               (mirror-text text 0 kept area total)))))

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

(defglobal *typed* nil "The stream that reads what a person types, or NIL where nobody can be asked: see typed.lisp.")

(defun empty-terminal ()
  "Return the stream that reads nothing and writes standard output: the last one, unless user code has closed it."
  (let ((kept *terminal-kept*))
    (if (and kept (open-stream-p kept) (open-stream-p (two-way-stream-input-stream kept)))
        kept
        (setf *terminal-kept*
              (make-two-way-stream (make-string-input-stream "") *standard-output-kept*)))))

(defun terminal-stream ()
  "Return the stream that writes standard output and reads what a person types, or nothing."
  (if *typed* (make-two-way-stream *typed* *standard-output-kept*) (empty-terminal)))

(defmacro with-user-streams ((limit &optional id) &body body)
  "Run BODY with the input that a person types, or none, and with output that is kept up to LIMIT characters, and mirrored for the request ID."
  `(let* ((*standard-output* (reset-stream *standard-output-kept* ,limit))
          (*error-output* (reset-stream *error-output-kept* ,limit))
          (*trace-output* *error-output*)
          (*terminal-io* (terminal-stream))
          (*standard-input* (two-way-stream-input-stream *terminal-io*))
          (*query-io* *terminal-io*)
          (*debug-io* *terminal-io*))
     (begin-mirror ,id)
     ,@body))
