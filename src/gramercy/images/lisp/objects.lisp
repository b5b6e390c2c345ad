;;;; Objects that a caller may ask about later, by number. The table is bounded:
;;;; the oldest are forgotten, and so can be collected.

(in-package #:gramercy.image)

(defconstant +most-objects+ 1000 "Objects remembered at a time.")

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
