;;;; Tells which forms cannot change anything, whatever their arguments are. After
;;;; such a form the last checkpoint still is the state of the image.

(in-package #:gramercy.image)

(defglobal *pure-functions*
    (let ((table (make-hash-table :test #'eq)))
      (dolist (name '(+ - * / 1+ 1- = /= < > <= >= max min abs mod rem floor ceiling truncate round
                      zerop plusp minusp evenp oddp numberp integerp stringp symbolp consp listp atom
                      not null eq eql list cons car cdr first second third rest values identity
                      logand logior logxor ash length char-code code-char boundp fboundp)
                    table)
        (setf (gethash name table) t)))
  "Standard functions that call no code of the user's and write nothing. Their package is locked.")

(defun pure-form-p (form)
  "Tell whether evaluating FORM can be known to leave the image as it is."
  (typecase form
    (symbol (or (keywordp form)
                (and (boundp form)
                     (not (eq (sb-cltl2:variable-information form) :symbol-macro)))))
    (cons (let ((operator (first form)) (arguments (rest form)))
            (cond ((eq operator 'quote) t)
                  ((symbolp operator)
                   (and (gethash operator *pure-functions*)
                        (ignore-errors (list-length arguments))
                        (every #'pure-form-p arguments)))
                  (t nil))))
    (t t)))
