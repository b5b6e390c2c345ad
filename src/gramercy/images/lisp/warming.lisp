;;;; Before a core is saved, every common path is walked once: the object system
;;;; finds its methods at the first call, and that should not be the user's.

(in-package #:gramercy.image)

(defglobal *warm-up-code*
    '("(+ 1 2 3)"
      "(progn (format t \"~a~%\" \"text\") (terpri *error-output*) (values 1.5 \"two\" #\\3 'four '(5 6) #(7)))"
      "(print (make-hash-table))"
      "(defun cl-user::warm (cl-user::x) (let ((cl-user::y 1)) (cl-user::cold cl-user::x)))"
      "(cl-user::warm 1)"
      "(error \"cold ~a\" 1)"
      "(fmakunbound 'cl-user::warm)"
      "(car 1)"
      "(list 1")
  "Code whose evaluation touches what most evaluations touch.")

(defun warm-up-evaluation (code)
  "Evaluate CODE and write the reply that nobody will read."
  (let ((evaluation (make-request-evaluation (list :code code) t)))
    (with-user-streams (+default-limit+)
      (run-evaluation evaluation #'eval)
      (put-evaluation 1 evaluation)
      (reset-outbox))))

(defun forget-warm-up ()
  "Leave no trace of the warming up."
  (setf *objects* (make-array +most-objects+ :initial-element nil)
        *object-count* 0
        *main-thread* nil
        +++ nil ++ nil + nil - nil
        *** nil ** nil * nil
        /// nil // nil / nil)
  (clrhash *touched*)
  (clrhash *definitions*)
  (forget-journal)
  (dolist (name '("WARM" "COLD" "X" "Y" "FOUR"))
    (unintern (find-symbol name :cl-user) :cl-user)))

(defun build-core (path)
  "Save a core to PATH that starts as the zygote, and end."
  (setf *main-thread* sb-thread:*current-thread*)
  (track-definitions t)
  (let ((*package* (find-package :common-lisp-user)))
    (mapc #'warm-up-evaluation *warm-up-code*))
  (track-definitions nil)
  (forget-warm-up)
  (setf *package* (find-package :common-lisp-user))
  (save-core path))
