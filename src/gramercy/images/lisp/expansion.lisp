;;;; Macro expansion. It runs the macros of the user, so it is guarded like an
;;;; evaluation, and can be interrupted like one.

(in-package #:gramercy.image)

(defun expand-everywhere (form)
  "Expand FORM and all forms inside of it."
  (sb-cltl2:macroexpand-all form))

(defun sole-form (text)
  "Return the first form that TEXT spells."
  (let* ((source (make-source :text (coerce text 'simple-string)))
         (form (read-form source source)))
    (if (eq form source) (error "There is no form in ~s." text) form)))

(defun expansion-text (text full)
  "Return the printed expansion of the form that TEXT spells, and whether there was anything to expand."
  (let* ((form (let ((*read-eval* nil)) (sole-form text)))
         (expanded (multiple-value-list (macroexpand-1 form)))
         (result (if full (expand-everywhere form) (first expanded)))
         (*print-pretty* t)
         (*print-right-margin* 100))
    (values (printed-value result +default-value-limit+)
            (or (second expanded) (not (equal result form))))))

(define-operation "macroexpand" (request)
  (let ((*package* (question-package request))
        (text (request-text request :form))
        expansion expanded)
    (with-user-streams (+default-limit+)
      (prepare-for-user-code)
      (let ((fault (call-guarded
                    (lambda ()
                      (handler-bind ((warning #'muffle-warning))
                        (setf (values expansion expanded)
                              (expansion-text text (getf request :full))))))))
        (if fault
            (reply-fault request fault)
            (answer request expansion "expanded" (if expanded t :false)))))))
