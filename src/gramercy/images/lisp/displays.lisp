;;;; What an evaluation shows beside its printed values. Objects of the user's give
;;;; pictures and tables of themselves by methods of two generic functions; hash
;;;; tables and large matrices, whose text says little, are shown as tables.

(in-package #:gramercy.image)

(defgeneric gramercy:picture (object)
  (:documentation "Return a picture of OBJECT, to be shown when it is a value of an evaluation: a vector of octets
(PNG, JPEG, GIF or WebP), the pathname of such a file, a string that is SVG, or NIL for none. A second value says what
it is. Without a method there is none."))

(defgeneric gramercy:table (object)
  (:documentation "Return a table of OBJECT, to be shown when it is a value of an evaluation: a sequence of rows, each
a sequence of cells, or NIL for none; as a second value a sequence of headings. Without a method there is none."))

(defconstant +largest-picture+ 750000 "Octets of a picture: one megabyte in base64, which is what the parent accepts.")
(defconstant +most-shown-values+ 4 "Values of one form that are shown: a model pays some 1,500 tokens for a picture.")
(defconstant +most-shown-rows+ 24 "Rows of a table that is shown as a whole; of a longer one the ends are shown.")
(defconstant +rows-at-each-end+ 6 "Rows shown at each end of a longer table.")
(defconstant +most-shown-columns+ 12 "Columns of a table.")
(defconstant +widest-cell+ 40 "Characters of a cell.")
(defconstant +largest-table+ 2600 "Characters of a table, some 800 tokens.")
(defconstant +widest-line+ 118 "Characters of a line of a table: what fits a wide terminal.")
(defconstant +small-matrix+ 100 "Elements of a matrix whose text is enough.")

;;; Which values are shown

(defun methods-for (function object)
  "Tell whether the generic FUNCTION has a method for OBJECT. Most images have no method at all."
  (and (sb-mop:generic-function-methods function)
       (compute-applicable-methods function (list object))))

(defun matrix-p (object)
  "Tell whether OBJECT is a matrix that is too large to be read in print."
  (and (typep object '(array * (* *))) (> (array-total-size object) +small-matrix+)))

(defun value-text (value limit)
  "Return the text of VALUE as PRINTED-VALUE does; a matrix that is shown as a table has one line."
  (if (matrix-p value)
      (format nil "#<~s>" (type-of value))
      (printed-value value limit)))

(defun show-values (evaluation)
  "Show those of EVALUATION's last values that give a picture or a table of themselves."
  (loop for value in (evaluation-last-values evaluation)
        repeat +most-shown-values+
        unless (trivial-object-p value)
          do (show-value evaluation value)))

(defun show-value (evaluation value)
  "Show VALUE, as far as it can be shown."
  (flet ((show (function kind make)
           (when (methods-for function value)
             (setf (evaluation-pure evaluation) nil)
             (let ((display (handler-case (funcall make value)
                              (error (condition) (failed-display value kind condition)))))
               (when display (push display (evaluation-displays evaluation)))))))
    (show #'gramercy:picture "picture" #'picture-display)
    ;; A method of the user's stands in for our own table.
    (unless (show #'gramercy:table "table" #'table-display)
      (typecase value
        (hash-table (when (plusp (hash-table-count value))
                      (push (hash-table-display value) (evaluation-displays evaluation))))
        (array (when (matrix-p value) (push (matrix-display value) (evaluation-displays evaluation))))))))

(defun failed-display (value kind condition)
  "Return what is told where the method of VALUE that gives its KIND of display signals CONDITION."
  (let ((told (format nil "~a: ~a" (condition-type-name condition) (shorten (condition-message condition) 300))))
    (if (string= kind "table")
        (list :object "kind" kind "text" (format nil "(it gives no table: ~a)" told))
        (picture-note (plain-type-name value) "not shown: ~a" told))))

;;; Pictures

(defun picture-note (name control &rest arguments)
  "Return what is told of the picture NAME, which is not there."
  (list :object "kind" "picture" "text" (shorten (string name) 100) "note" (apply #'format nil control arguments)))

(defun picture-display (object)
  "Return the picture that OBJECT gives of itself, or NIL."
  (multiple-value-bind (picture told) (gramercy:picture object)
    (let ((name (if (stringp told) told (plain-type-name object))))
      (typecase picture
        (null nil)
        (pathname (file-picture picture name))
        (string (octets-picture (sb-ext:string-to-octets picture :external-format :utf-8) name))
        (vector (octets-picture picture name))
        (t (picture-note name "not shown: GRAMERCY:PICTURE returned ~a, neither octets, a pathname nor a string"
                         (plain-type-name picture)))))))

(defun file-picture (file name)
  "Return the picture in FILE."
  (with-open-file (stream file :element-type '(unsigned-byte 8))
    (let ((size (file-length stream)))
      (if (> size +largest-picture+)
          (too-large-picture size name)
          (let ((octets (make-array size :element-type '(unsigned-byte 8))))
            (read-sequence octets stream)
            (octets-picture octets name))))))

(defun octets-picture (vector name)
  "Return the picture whose octets VECTOR has."
  (cond ((> (length vector) +largest-picture+) (too-large-picture (length vector) name))
        ((notevery (lambda (octet) (typep octet '(unsigned-byte 8))) vector)
         (picture-note name "not shown: GRAMERCY:PICTURE returned a vector that holds more than octets"))
        (t (list :object "kind" "picture" "text" (shorten name 100)
                         "data" (base64 (coerce vector 'octets))))))

(defun too-large-picture (size name)
  "Return what is told of a picture of SIZE octets."
  (picture-note name "not shown: it has ~:d octets, and at most ~:d are shown: make it smaller, or write it to a file"
                size +largest-picture+))

(defun base64 (octets)
  "Return OCTETS in base64."
  (declare (type octets octets))
  (let* ((alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
         (size (length octets))
         (text (make-string (* 4 (ceiling size 3)) :initial-element #\= :element-type 'base-char)))
    (loop for place from 0 below size by 3
          for out from 0 by 4
          for left = (min 3 (- size place))
          for bits = (loop for offset below 3
                           sum (ash (if (< offset left) (aref octets (+ place offset)) 0) (* 8 (- 2 offset))))
          do (loop for digit to left
                   do (setf (schar text (+ out digit))
                            (schar alphabet (ldb (byte 6 (* 6 (- 3 digit))) bits)))))
    text))

;;; Tables

(defun table-display (object)
  "Return the table that OBJECT gives of itself, or NIL."
  (multiple-value-bind (rows headings) (gramercy:table object)
    (and rows (list :object "kind" "table" "text" (table-text rows headings)))))

(defun hash-table-display (table)
  "Return the entries of TABLE."
  (let* ((count (hash-table-count table))
         (shown (if (<= count +most-shown-rows+) count (* 2 +rows-at-each-end+)))
         (rows (with-hash-table-iterator (next table)
                 (loop repeat shown
                       for (more key value) = (multiple-value-list (next))
                       while more collect (list key value)))))
    (list :object "kind" "table"
                  "text" (format nil "~a~@[~%… ~:d entries not shown~]" (table-text rows '("key" "value"))
                                 (and (< shown count) (- count shown))))))

(defun matrix-display (matrix)
  "Return the corners of MATRIX."
  (let* ((rows (ends (array-dimension matrix 0) +most-shown-rows+ +rows-at-each-end+))
         (columns (ends (array-dimension matrix 1) (1- +most-shown-columns+) (floor (1- +most-shown-columns+) 2)))
         (shown (loop for row in rows
                      collect (loop for column in columns
                                    collect (if (and row column) (aref matrix row column) '|…|)))))
    (list :object "kind" "table"
                  "text" (with-left-out (grid-text shown '())
                           (- (array-dimension matrix 0) (count-if #'identity rows))
                           (- (array-dimension matrix 1) (count-if #'identity columns))))))

(defun with-left-out (text rows columns)
  "Return TEXT with how many ROWS and COLUMNS it leaves out."
  (format nil "~a~[~:;~:*~%… ~:d row~:p not shown~]~[~:;~:*~%… ~:d column~:p not shown~]" text rows columns))

(defun ends (count most each)
  "Return the numbers below COUNT; where there are more than MOST, EACH at the ends, and NIL for those between."
  (if (<= count most)
      (loop for number below count collect number)
      (append (loop for number below each collect number)
              '(nil)
              (loop for number from (- count each) below count collect number))))

(defun table-text (rows headings)
  "Return ROWS under HEADINGS as text; what is left out is counted."
  (let* ((numbers (ends (length rows) +most-shown-rows+ +rows-at-each-end+))
         (shown (loop for number in numbers
                      collect (if number (coerce (elt rows number) 'list) '(|…|))))
         (headings (coerce headings 'list))
         (columns (reduce #'max (mapcar #'length (cons headings shown)))))
    (with-left-out (grid-text shown headings)
      (- (length rows) (count-if #'identity numbers))
      (max 0 (- columns +most-shown-columns+)))))

(defun cell-text (cell)
  "Return CELL as text: a string as it is, anything else in print."
  (let* ((text (typecase cell
                 (string cell)
                 ((eql |…|) "…")
                 (t (values (printed-value cell (* 2 +widest-cell+))))))
         (line (substitute-if #\Space (lambda (character) (find character '(#\Newline #\Return #\Tab)))
                              (subseq text 0 (min (length text) (* 2 +widest-cell+))))))
    (if (<= (length line) +widest-cell+)
        line
        (concatenate 'string (subseq line 0 (1- +widest-cell+)) "…"))))

(defun grid-text (rows headings)
  "Return ROWS under HEADINGS in columns; those that hold numbers are set to the right."
  (flet ((cells (row) (loop for cell in row repeat +most-shown-columns+ collect (cell-text cell))))
    (let* ((texts (mapcar #'cells rows))
           (all (if headings (cons (cells headings) texts) texts))
           (columns (reduce #'max (mapcar #'length all) :initial-value 0))
           (widths (loop for column below columns
                         collect (reduce #'max (mapcar (lambda (row) (length (nth column row))) all))))
           (right (loop for column below columns
                        collect (loop for row in rows
                                      for cell = (nth column row)
                                      always (or (numberp cell) (member cell '(nil |…|)))))))
      (fitting-lines (mapcar (lambda (row) (line-text row widths right)) all)))))

(defun line-text (cells widths right)
  "Return CELLS on one line."
  (let ((line (string-right-trim
               " " (format nil "~{~a~^  ~}"
                           (loop for cell in cells
                                 for width in widths
                                 for to-the-right in right
                                 collect (format nil (if to-the-right "~v@a" "~va") width cell))))))
    (if (<= (length line) +widest-line+)
        line
        (concatenate 'string (subseq line 0 (1- +widest-line+)) "…"))))

(defun fitting-lines (lines)
  "Return as many of LINES as fit into a table, and how many do not."
  (let ((left +largest-table+))
    (format nil "~{~a~^~%~}"
            (loop for (line . more) on lines
                  do (decf left (1+ (length line)))
                  if (minusp left)
                    collect (format nil "… ~d more lines" (1+ (length more))) and do (loop-finish)
                  else
                    collect line))))

(defun put-displays (displays)
  "Append DISPLAYS, which are in reverse."
  (when displays
    (put-ascii ",\"displays\":")
    (put-items (reverse displays))))
