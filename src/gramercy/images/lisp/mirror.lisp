;;;; The mirror: memory shared with the parent, where stands what the running
;;;; evaluation has printed so far. The parent may look at any moment, also when
;;;; this process hangs or has been killed. Knows nothing of streams. Only one
;;;; process of an image evaluates at a time, so nobody locks.

(in-package #:gramercy.image)

(defconstant +mirror-header+ 4096 "Octets before the areas; the counts stand in the first of them.")
(defconstant +mirror-area+ 131072 "Octets of the area that each stream has.")
(defconstant +mirror-size+ (+ +mirror-header+ (* 2 +mirror-area+)) "Octets in all.")

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

(defun forget-mirror ()
  "Forget the mapping: a core that is started later has none at that address."
  (setf *mirror* nil *mirror-in-use* nil))

(defun leave-mirror-in-copies ()
  "Let a copy that user code forks leave the mirror to this process. Our own copies take it up at their next request."
  (wrap 'sb-posix:fork
        (lambda (original &rest arguments)
          (let ((process (apply original arguments)))
            (when (eql process 0) (setf *mirror-in-use* nil))
            process))))

;;; Writing

(declaim (inline write-count))
(defun write-count (memory place count)
  "Write COUNT at PLACE of the header."
  (declare (type (integer 0 4) place))
  ;; On machines that reorder writes, the octets must be there before their count is.
  (sb-thread:barrier (:write))
  (setf (sb-sys:sap-ref-32 memory (* 4 place)) (ldb (byte 32 0) count)))

(defun begin-mirror (id)
  "Empty the mirror for the request ID. What is printed for nobody, without an ID, leaves the mirror as it is."
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
             ;; Full is full: a later character must not stand where an earlier one found no room.
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
