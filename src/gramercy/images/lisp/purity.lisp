;;;; Tells which code cannot change anything, neither when it is read nor when it is
;;;; evaluated. After such code the last checkpoint still is the state of the image.

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

;;; Reading

(defglobal *usual-readtable* *readtable* "The readtable that an image starts with.")
(defglobal *reader-changed* nil "True once that readtable may call functions of the user's.")

(defun pure-text-p (text)
  "Tell whether reading TEXT can be known to run no code of the user's. What a sharp sign does is not known."
  (declare (type simple-string text))
  (and (eq *readtable* *usual-readtable*)
       (not *reader-changed*)
       (not (if (typep text '(simple-array character (*)))
                (find #\# text)
                (find #\# (the simple-base-string text))))))

(defun note-reader-change (readtable)
  "Note that READTABLE is given functions."
  (when (eq readtable *usual-readtable*) (setf *reader-changed* t)))

(defun watch-reader ()
  "Note changes of the readtable that an image starts with."
  (flet ((watch (name target)
           (wrap name (lambda (original &rest arguments)
                        (note-reader-change (funcall target arguments))
                        (apply original arguments)))))
    (watch 'set-macro-character (lambda (arguments) (or (fourth arguments) *readtable*)))
    (watch 'set-dispatch-macro-character (lambda (arguments) (or (fourth arguments) *readtable*)))
    (watch 'set-syntax-from-char (lambda (arguments) (or (third arguments) *readtable*)))
    (watch 'copy-readtable #'second)))
