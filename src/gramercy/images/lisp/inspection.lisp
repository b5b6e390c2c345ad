;;;; Looking into objects by number. The table is bounded: the oldest are forgotten,
;;;; and so can be collected. Shows structure only: no method of the user's runs, and
;;;; every part that has parts of its own gets a number too.

(in-package #:gramercy.image)

;;;; The table of objects

(defconstant +most-objects+ 1000 "Objects remembered at a time: a person looks into the latest ones.")

(defglobal *objects* (make-array +most-objects+ :initial-element nil)
  "The remembered objects; number N stands at N modulo the size.")
(defglobal *object-count* 0 "How many objects were ever remembered.")

(defun remember-object (object)
  "Return a number under which OBJECT can be found for a while."
  (let ((number (incf *object-count*)))
    (setf (svref *objects* (mod number +most-objects+)) object)
    number))

(defun trivial-object-p (object)
  "Tell whether the text of OBJECT says all there is to know."
  (typep object '(or number character symbol string)))

(defun object-number (object)
  "Return a number for OBJECT, or NIL where its text is enough."
  (if (trivial-object-p object) nil (remember-object object)))

(defun find-object (number)
  "Return the object remembered under NUMBER and true, or NIL and NIL when it is gone."
  (if (and (integerp number)
           (<= 1 number *object-count*)
           (< (- *object-count* number) +most-objects+))
      (values (svref *objects* (mod number +most-objects+)) t)
      (values nil nil)))

;;;; Texts of values that were cut, as they were printed when they were returned: to
;;;; print them again would run methods of the user's, and could give another text.

(defconstant +most-texts+ 8 "Texts kept at a time: of two hundred thousand characters each, at most.")

(defglobal *texts* '() "Conses of the number of an object and its CUT-TEXT, newest first.")

(defun remember-text (number cut)
  "Keep CUT as the text of the object NUMBER; the oldest one is forgotten."
  (push (cons number cut) *texts*)
  (let ((last (nthcdr (1- +most-texts+) *texts*)))
    (when last (setf (cdr last) '()))))

(define-look "print_value" (request)
  (let* ((number (getf request :object))
         (offset (request-count request :offset 0))
         (limit (min 100000 (request-count request :limit +default-value-limit+)))
         (cut (cdr (assoc number *texts*))))
    (unless cut
      (error 'unknown-name :kind "object" :text (plain-text number 40)
                           :reason (if (nth-value 1 (find-object number))
                                       "its value was told as a whole, or others have been cut since"
                                       "there is no such object")))
    (let* ((text (cut-text-text cut))
           (start (min offset (length text)))
           (end (min (length text) (+ start limit))))
      (reply request "text" (subseq text start end)
                     "data" (list :object "total" (cut-text-total cut) "kept" (length text))))))

;;;; Looking into an object

(defconstant +most-parts+ 200 "Parts shown of one object, so that the answer fits the reader's context.")

(defun collect-parts (count function)
  "Return at most COUNT bounded parts made by FUNCTION from their number, each a cons of label and value."
  (loop for number from 0 below (min count +most-parts+)
        collect (funcall function number)))

(defun list-parts (list)
  "Return the elements of LIST, and its tail if it is dotted; a circular one ends with the limit."
  (loop for number from 0 below +most-parts+
        for rest = list then (cdr rest)
        while (consp rest)
        collect (cons (princ-to-string number) (car rest)) into parts
        finally (return (if (and rest (atom rest))
                            (append parts (list (cons "tail" rest)))
                            parts))))

(defun array-parts (array)
  "Return the elements of ARRAY."
  (collect-parts (array-total-size array)
                 (lambda (number)
                   (cons (princ-to-string number) (row-major-aref array number)))))

(defun table-parts (table)
  "Return the entries of TABLE."
  (loop for key being the hash-keys of table using (hash-value value)
        repeat +most-parts+
        collect (cons (plain-text key 80) value)))

(defun slot-parts (instance)
  "Return the slots of INSTANCE. Reads what is stored, not what a method would say."
  (loop for slot in (class-all-slots (class-of instance))
        repeat +most-parts+
        collect (cons (symbol-token (stored-name slot)) (slot-content instance slot))))

(defun slot-content (instance slot)
  "Return the value stored in SLOT of INSTANCE, or a word that there is none."
  (handler-case
      (cond ((kind-p instance structure-object)
             (funcall (the function (stored slot (pcl-symbol "INTERNAL-READER-FUNCTION"))) instance))
            ((kind-p instance condition)
             (funcall (internal-function "CONDITION-SLOT-VALUE" "SB-KERNEL") instance (stored-name slot)))
            (t (let ((place (slot-place instance (stored-name slot))))
                 (cond (place (held instance place '|unbound|))
                       ;; Of an instance that was made before its class was redefined, or of a slot that a
                       ;; metaclass keeps elsewhere, only running code can tell.
                       (t '|not shown|)))))
    (error () '|unbound|)))

(defun symbol-parts (symbol)
  "Return what SYMBOL holds."
  (append (when (boundp symbol) (list (cons "value" (symbol-value symbol))))
          (when (fboundp symbol) (list (cons "function" (fdefinition symbol))))
          (list (cons "package" (symbol-package symbol)))
          (when (symbol-plist symbol) (list (cons "plist" (symbol-plist symbol))))))

(defun slotted-p (object)
  "Tell whether OBJECT has slots with names."
  (or (kind-p object standard-object) (kind-p object structure-object) (kind-p object condition)))

(defun object-parts (object)
  "Return the parts of OBJECT: conses of a label and a value."
  (typecase object
    (cons (list-parts object))
    (symbol (symbol-parts object))
    (array (array-parts object))
    (hash-table (table-parts object))
    ((satisfies slotted-p) (slot-parts object))
    (function (list (cons "lambda-list" (ignore-errors (parameters-of object)))))
    (complex (list (cons "real" (realpart object)) (cons "imaginary" (imagpart object))))
    (ratio (list (cons "numerator" (numerator object)) (cons "denominator" (denominator object))))))

(defun object-size (object)
  "Return how many parts OBJECT has in all, or NIL where counting them could take for ever."
  (typecase object
    (array (array-total-size object))
    (hash-table (hash-table-count object))
    (cons (ignore-errors (list-length object)))))

(defun follow-path (object path)
  "Return the part of OBJECT that PATH, a list of part numbers, leads to."
  (loop for number in path
        for parts = (object-parts object)
        do (unless (and (typep number 'unsigned-byte) (< number (length parts)))
             (error 'unknown-name :kind "part" :text (plain-text number 40)))
           (setf object (cdr (nth number parts)))
        finally (return object)))

(defun part-lines (parts)
  "Return the lines about PARTS, as far as there is room in an answer."
  (fitting (mapcar (lambda (part) (format nil "  ~a: ~a" (car part) (plain-text (cdr part) 200))) parts)
           (- +longest-text+ 1500)))

(defun unshown-line (shown parts size)
  "Return the line that says how much is missing where SHOWN of PARTS are told, or NIL. SIZE is how many the object
has in all, or NIL where that is not known."
  (let ((total (or size (and (< parts +most-parts+) parts))))
    (cond ((null total) "  ... further parts are not shown")
          ((> total shown) (format nil "  ... ~:d more of ~:d parts are not shown" (- total shown) total)))))

(defun part-object (part)
  "Return PART, a cons of label and value, as an object of the answer."
  (destructuring-bind (label . value) part
    (list :object "label" label "value" (plain-text value 200) "id" (object-number value))))

(define-look "inspect" (request)
  (let ((number (getf request :object)))
    (multiple-value-bind (root found) (find-object number)
      (unless found
        (error 'unknown-name :kind "object" :text (plain-text number 40)))
      (let* ((path (getf request :path))
             (object (if (listp path) (follow-path root path) (malformed "path must be a list of part numbers")))
             (parts (object-parts object))
             (lines (part-lines parts))
             (size (object-size object)))
        (answer request
                (format nil "~a~%Type: ~a~@[~%Size: ~d~]~@[~%~a~]~@[~%~a~]" (plain-text object 1000)
                        (plain-text (type-of object) 200) size
                        (and lines (joined lines))
                        (unshown-line (length lines) (length parts) size))
                "id" (if path (remember-object object) number)
                "type" (plain-text (type-of object) 200)
                "size" size
                "parts" (map 'vector #'part-object parts))))))
