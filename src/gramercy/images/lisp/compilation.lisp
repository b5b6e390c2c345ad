;;;; Compilation: like evaluation, but every form goes through the compiler, its
;;;; notes are told as well, and no values are. Nothing is written to a file, so
;;;; it works where no directory is writable.

(in-package #:gramercy.image)

(defun compiled-as-a-whole-p (form)
  "Tell whether FORM is to be compiled as the body of a function. EVAL would interpret a plain call without a
look at its arguments, and would keep the compiler's notes about a definition to itself. Other forms may have to
take effect piece by piece, as toplevel forms do."
  (and (consp form) (symbolp (first form))
       (or (member (first form) '(defun defmethod))
           (not (or (special-operator-p (first form)) (macro-function (first form)))))))

(defun compile-and-run (form)
  "Evaluate FORM by way of the compiler."
  (if (compiled-as-a-whole-p form)
      (funcall (compile nil `(lambda () ,form)))
      (eval form)))

(define-operation "compile" (request)
  (serve-evaluation request :evaluate #'compile-and-run :with-notes t :without-values t))
