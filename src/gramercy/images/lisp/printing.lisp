;;;; Values as text. Two ways: as the user's program prints them, guarded and
;;;; bounded (PRINTED-VALUE); and without running any user code (PLAIN-TEXT), for
;;;; the questions that are promised to be harmless.

(in-package #:gramercy.image)

(defconstant +deepest-printed+ 60
  "Lists nested deeper than this are shown as #: the printer recurs.")

(defun display-package-name (package)
  "Return the name under which people know PACKAGE."
  (let ((name (package-name package)))
    (cond ((null name) "deleted package")
          ((string= name "COMMON-LISP-USER") "CL-USER")
          (t name))))

(defglobal *user-package-uses* (mapcar #'package-name (package-use-list "COMMON-LISP-USER"))
  "The names of the packages that CL-USER uses from the start.")

(defun user-package-p ()
  "Tell whether there is a package CL-USER."
  (member "COMMON-LISP-USER" (list-all-packages) :key #'package-name :test #'equal))

(defun user-package ()
  "Return the package CL-USER. Where user code has deleted it a fresh one is made: code has to be read somewhere."
  ;; Not by FIND-PACKAGE: compiled code remembers what that found for a constant, also once it is deleted.
  (or (first (user-package-p))
      (make-package "COMMON-LISP-USER" :nicknames '("CL-USER")
                                       :use (remove-if-not #'find-package *user-package-uses*))))

(defun qualified-name (symbol)
  "Return the name of SYMBOL with its package: bare for the standard and for our own conditions."
  (let ((package (symbol-package symbol))
        (name (symbol-token symbol)))
    (cond ((null package) (concatenate 'string "#:" name))
          ((eq package (load-time-value (find-package :common-lisp))) name)
          ((eq package (load-time-value *package*)) name)
          ((keywordp symbol) (concatenate 'string ":" name))
          (t (concatenate 'string (name-token (display-package-name package))
                          (if (eq (nth-value 1 (find-symbol (symbol-name symbol) package)) :external)
                              ":" "::")
                          name)))))

(defun symbol-token (symbol)
  "Return the name of SYMBOL, with bars where the reader would need them."
  (name-token (symbol-name symbol)))

(defun plain-character-p (character)
  "Tell whether the reader takes CHARACTER as it is, wherever it stands in a name."
  (and (graphic-char-p character)
       (char= character (char-upcase character))
       (not (find character "()\"';`,|\\: "))))

(defglobal *plain-codes*
    (let ((codes (make-array 128 :element-type 'bit :initial-element 0)))
      (dotimes (code 128 codes)
        (when (plain-character-p (code-char code)) (setf (sbit codes code) 1))))
  "Which of the ASCII characters are plain: nearly all names consist of them, and answers are full of names.")
(declaim (type (simple-bit-vector 128) *plain-codes*))

(defun plain-name-p (name)
  "Tell whether the reader finds NAME again without bars."
  (let ((name (coerce name 'simple-string)))
    (and (plusp (length name))
         (loop for character across (the simple-string name)
               for code = (char-code character)
               always (if (< code 128) (= 1 (sbit *plain-codes* code)) (plain-character-p character)))
         (char/= (char name 0) #\#)
         (loop for character across (the simple-string name) thereis (char/= character #\.))
         (not (number-like-p name)))))

(defun number-like-p (name)
  "Tell whether the reader would see a number in NAME, an integer, a ratio or a float."
  (when (alpha-char-p (char name 0)) (return-from number-like-p nil))
  (let* ((digits (string-left-trim "+-" name))
         (last (and (plusp (length digits)) (char digits (1- (length digits))))))
    (and last
         (<= (- (length name) (length digits)) 1)
         (find (char digits 0) "0123456789.")
         (find last "0123456789.")
         (every (lambda (character) (find character "0123456789./+-DEFLS")) digits)
         (some #'digit-char-p digits))))

(defun name-token (name)
  "Return NAME, with bars where the reader would need them to find the same name again."
  (if (plain-name-p name) name (bar-quoted name)))

(defun bar-quoted (name)
  "Return NAME between bars."
  (with-output-to-string (text)
    (write-char #\| text)
    (loop for character across name
          do (when (find character "|\\") (write-char #\\ text))
             (write-char character text))
    (write-char #\| text)))

(defun definition-name (name)
  "Return the text of a function name: a symbol, or a list such as (SETF FOO)."
  (cond ((symbolp name) (qualified-name name))
        ((consp name) (format nil "(~{~a~^ ~})" (mapcar #'definition-name name)))
        (t (plain-text name 100))))

(defconstant +most-looked-at+ 20000 "Parts of a value that are looked at to learn its shape.")

(defun circular-p (object)
  "Tell whether OBJECT is a structure of conses and vectors that holds itself.
Looks at a bounded number of parts, and not too deep, so that a large value costs little and no stack."
  (let ((above (make-hash-table :test 'eq))
        (left +most-looked-at+))
    (labels ((enter (part)
               (when (gethash part above) (return-from circular-p t))
               (decf left)
               (setf (gethash part above) t))
             (walk (part depth)
               (cond ((or (minusp left) (> depth 500)))
                     ((consp part) (walk-list part depth))
                     ((simple-vector-p part)
                      (enter part)
                      (loop for item across part do (walk item (1+ depth)))
                      (remhash part above))))
             ;; Along a list by a loop: a list may be long.
             (walk-list (list depth)
               (loop for rest = list then (cdr rest)
                     while (and (consp rest) (plusp left))
                     do (enter rest)
                        (walk (car rest) (1+ depth))
                     collect rest into entered
                     finally (unless (consp rest) (walk rest (1+ depth)))
                             (dolist (cons entered) (remhash cons above)))))
      (walk object 0)
      nil)))

(defun parts-to-print (object)
  "Return a list of the first parts that OBJECT is printed with, one level below it."
  (typecase object
    (cons (loop for rest = object then (cdr rest)
                repeat +most-looked-at+
                while (consp rest) collect (car rest)))
    (simple-vector (loop for part across object
                         repeat +most-looked-at+
                         collect part))
    (structure-object (ignore-errors
                       (mapcar (lambda (slot) (slot-value object (stored-name slot)))
                               (stored-slots (class-of object)))))))

(defun deeper-than-p (object levels)
  "Tell whether OBJECT is nested deeper than LEVELS, as far as a bounded number of its parts shows."
  (let ((left +most-looked-at+))
    (labels ((walk (part level)
               (when (and (typep part '(or cons simple-vector structure-object)) (plusp (decf left)))
                 (when (>= level levels) (return-from deeper-than-p t))
                 (dolist (inner (parts-to-print part)) (walk inner (1+ level))))))
      (walk object 0)
      nil)))

(defun lone-hash-p (text)
  "Tell whether TEXT has a # that stands for what is too deep to be shown, and does not begin anything."
  (loop for place = (position #\# text) then (position #\# text :start (1+ place))
        while place
        thereis (or (= (1+ place) (length text))
                    (find (char text (1+ place)) '(#\Space #\) #\Newline)))))

(defconstant +most-kept+ 200000
  "Characters kept of a value that is too long to be told as a whole, to be read on without printing it again.")
(defconstant +printing-microseconds+ 25000
  "How long a value is printed beyond what is told of it, so that a caller hardly waits for what may never be read.")

(defun print-bounded (value limit)
  "Return the text of VALUE as the user's program prints it, as far as it is kept, and whether that is all of it.
LIMIT characters are there in any case, where there are so many."
  (let ((stream (reset-stream *print-target* (max limit +most-kept+))))
    (setf (slot-value stream 'enough) limit
          (slot-value stream 'deadline) (+ (microseconds) +printing-microseconds+))
    (let ((cut (eq :overflow (catch stream (prin1 value stream) nil))))
      (setf (slot-value stream 'enough) nil)
      (values (stream-text stream) (not cut)))))

(defun print-carefully (value limit)
  "Like PRINT-BOUNDED; a structure that holds itself is shown with its labels."
  (multiple-value-bind (text whole) (print-bounded value limit)
    (if (or whole *print-circle* (not (circular-p value)))
        (values text whole)
        (let ((*print-circle* t) (*print-length* 100))
          (print-bounded value limit)))))

(defstruct (cut-text (:copier nil))
  "What is kept of the text of a value that was cut, and its whole length, or NIL where printing did not come to
an end."
  (text "" :type string) total)

(defun printed-value (value limit)
  "Return the text of VALUE, at most LIMIT characters of it; where there are more, a CUT-TEXT; and whether VALUE is
nested deeper than is shown. Errors of a print method become part of the text."
  (if (and (typep value 'fixnum) (eql *print-base* 10) (not *print-radix*))
      (fixnum-text value)
      (let* ((*print-readably* nil)
             (ours (or (null *print-level*) (> *print-level* +deepest-printed+)))
             (*print-level* (if ours +deepest-printed+ *print-level*)))
        (handler-case (multiple-value-bind (text whole) (print-carefully value limit)
                        (let ((shown (if (> (length text) limit) (subseq text 0 limit) text)))
                          (values shown
                                  (and (not (and whole (eq shown text)))
                                       (make-cut-text :text (compact text) :total (and whole (length text))))
                                  (and ours (lone-hash-p shown) (deeper-than-p value +deepest-printed+)))))
          ((or error storage-condition) (condition)
            (values (format nil "#<~a that cannot be printed: ~a>"
                            (plain-type-name value) (condition-type-name condition))
                    nil nil))))))

(defun compact (text)
  "Return TEXT in a quarter of the memory where it is plain ASCII."
  (if (every (lambda (character) (< (char-code character) 128)) text) (coerce text 'simple-base-string) text))

(defun fixnum-text (value)
  "Return the decimal digits of VALUE."
  (declare (type fixnum value) (optimize speed))
  (let ((buffer (make-string 21))
        (place 21)
        (rest (abs value)))
    (declare (type index place) (type (unsigned-byte 62) rest) (dynamic-extent buffer))
    (loop (multiple-value-bind (quotient digit) (truncate rest 10)
            (setf (schar buffer (decf place)) (code-char (+ 48 digit))
                  rest quotient))
          (when (zerop rest) (return)))
    (when (minusp value) (setf (schar buffer (decf place)) #\-))
    (subseq buffer place)))

(defun plain-type-name (value)
  "Return the name of the class of VALUE."
  (let ((name (stored-name (class-of value))))
    (if (symbolp name) (qualified-name name) "object")))

(defun condition-type-name (condition)
  "Return the name of the type of CONDITION."
  (plain-type-name condition))

(defvar *room* 0 "Characters that the text which is being made may still have.")
(declaim (type fixnum *room*))

(defun put (text stream)
  "Write TEXT on STREAM as far as there is room; where there is not, the text ends here."
  (declare (type string text))
  (if (<= (length text) *room*)
      (progn (write-string text stream) (decf *room* (length text)))
      (progn (write-string text stream :end *room*) (throw 'no-room t))))

(defun put-character (character stream)
  "Write CHARACTER on STREAM where there is room."
  (when (minusp (decf *room*)) (throw 'no-room t))
  (write-char character stream))

(defun text-within (limit writer)
  "Return what the function WRITER puts on the stream it is given, at most LIMIT characters. The stream is none of
those that generic functions write on: these can have methods of the user's."
  (let* ((stream (make-string-output-stream))
         (cut (catch 'no-room
                (let ((*room* limit)) (funcall (the function writer) stream))
                nil))
         (text (get-output-stream-string stream)))
    (if cut (concatenate 'string text "...") text)))

(defun plain-text (value limit)
  "Return the text of VALUE, at most LIMIT characters, without calling any method of the user's."
  (text-within limit (lambda (stream) (print-plainly value stream 0))))

(defvar *plain-symbols* nil
  "A function from a symbol to its text while code is printed, with 'X for (QUOTE X); NIL for symbols without packages.")

(defvar *plain-length* nil
  "How many elements of a vector are printed, so that what stands beside it has room too; NIL for all.")

(defconstant +most-elements+ 6 "Elements of an array, or entries of a hash table, that are printed.")

(defconstant +most-bits+ 20000 "Bits of an integer that is still printed: the time grows with the square of them.")

(defun print-plainly (value stream depth)
  "Print VALUE on STREAM by its structure alone."
  (typecase value
    (keyword (put-character #\: stream) (put (symbol-token value) stream))
    (symbol (put (if *plain-symbols* (funcall *plain-symbols* value) (symbol-token value)) stream))
    ((satisfies huge-number-p)
     (put (format nil "#<INTEGER of ~:d bits>" (integer-length (huge-number-p value))) stream))
    ((or number character) (put (with-standard-io-syntax (prin1-to-string value)) stream))
    (pathname (print-plain-pathname value stream))
    (package (put (format nil "#<PACKAGE ~:[that was deleted~;~:*\"~a\"~]>" (package-name value)) stream))
    (string (print-plain-string value stream))
    (cons (or (print-abbreviated value stream depth) (print-plain-list value stream depth)))
    (simple-vector (print-plain-vector value stream depth))
    (array (print-plain-array value stream depth))
    (hash-table (print-plain-table value stream depth))
    (function (put (format nil "#<FUNCTION ~a>" (definition-name (or (function-name value) 'lambda))) stream))
    (t (cond ((and *plain-symbols* (sb-int:comma-p value)) (print-comma value stream depth))
             ((lost-argument-p value) (put "#<unavailable>" stream))
             (t (put (format nil "#<~a>" (plain-type-name value)) stream))))))

(defun print-plain-pathname (value stream)
  "Print the pathname VALUE. Not all have a text."
  (let ((text (ignore-errors (namestring value))))
    (cond (text (put "#P" stream) (print-plain-string text stream))
          (t (put "#<PATHNAME>" stream)))))

(defun lost-argument-p (value)
  "Tell whether VALUE is what SB-DEBUG puts in place of an argument that the code no longer keeps."
  (typep value '#.(or (internal-symbol "UNPRINTABLE-OBJECT" "SB-DEBUG") 'null)))

(defun print-comma (comma stream depth)
  "Print COMMA, SBCL's own record of a comma inside of a backquote."
  (put (case (sb-int:comma-kind comma) (0 ",") (1 ",.") (t ",@")) stream)
  (print-plainly (sb-int:comma-expr comma) stream (1+ depth)))

(defun huge-number-p (value)
  "Return VALUE, or a part of it, where that is an integer too long to be printed; else NIL."
  (typecase value
    (integer (and (> (integer-length value) +most-bits+) value))
    (ratio (or (huge-number-p (numerator value)) (huge-number-p (denominator value))))))

(defun print-abbreviated (value stream depth)
  "Print the list VALUE with the reader's own sign where code is printed and there is one; tell whether there was."
  (let ((sign (and *plain-symbols*
                   (typep value '(cons symbol (cons t null)))
                   (case (first value)
                     (quote "'")
                     (function "#'")
                     (sb-int:quasiquote "`")))))
    (when sign
      (put sign stream)
      (print-plainly (second value) stream (1+ depth))
      t)))

(defun print-plain-string (value stream)
  "Print the string VALUE with its quotes."
  (put-character #\" stream)
  (loop for character across value
        do (when (find character "\"\\") (put-character #\\ stream))
           (put-character character stream))
  (put-character #\" stream))

(defun print-plain-list (value stream depth)
  "Print the list VALUE, as deep as is sensible."
  (if (> depth 8)
      (put "#" stream)
      (loop initially (put-character #\( stream)
            do (print-plainly (car value) stream (1+ depth))
               (setf value (cdr value))
            while (consp value)
            do (put-character #\Space stream)
            finally (when value
                      (put " . " stream)
                      (print-plainly value stream (1+ depth)))
                    (put-character #\) stream))))

(defun print-plain-vector (value stream depth)
  "Print the simple vector VALUE, as deep as is sensible."
  (if (> depth 8)
      (put "#" stream)
      (loop initially (put "#(" stream)
            for item across value
            for place from 0
            until (and *plain-length* (>= place *plain-length*))
            do (unless (zerop place) (put-character #\Space stream))
               (print-plainly item stream (1+ depth))
            finally (put (if (and *plain-length* (> (length value) *plain-length*)) " ...)" ")") stream))))

(defun print-plain-array (value stream depth)
  "Print the array VALUE: its size, the type of its elements, and the first of them."
  (when (> depth 8) (return-from print-plain-array (put "#" stream)))
  (put (format nil "#<ARRAY ~{~d~^x~}" (or (array-dimensions value) '(0))) stream)
  (put-character #\Space stream)
  (print-plainly (array-element-type value) stream (1+ depth))
  (loop for place from 0 below (min (array-total-size value) +most-elements+)
        do (put (if (zerop place) ": " " ") stream)
           (print-plainly (row-major-aref value place) stream (1+ depth)))
  (put (if (> (array-total-size value) +most-elements+) " ...>" ">") stream))

(defun print-plain-table (value stream depth)
  "Print the hash table VALUE: its test, how many entries it has, and the first of them. No hash function runs."
  (when (> depth 8) (return-from print-plain-table (put "#" stream)))
  (put (format nil "#<HASH-TABLE ~a ~d" (symbol-token (hash-table-test value)) (hash-table-count value)) stream)
  (with-hash-table-iterator (next value)
    (loop for place from 0 below +most-elements+
          do (multiple-value-bind (found key held) (next)
               (unless found (return))
               (put (if (zerop place) ": " ", ") stream)
               (print-plainly key stream (1+ depth))
               (put-character #\Space stream)
               (print-plainly held stream (1+ depth)))))
  (put (if (> (hash-table-count value) +most-elements+) ", ...>" ">") stream))
