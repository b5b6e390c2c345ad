;;;; Warnings and notes of the reader, the compiler and the user's own code, with
;;;; the line of the code that was sent. They are collected, and kept off the
;;;; error output.

(in-package #:gramercy.image)

(defstruct (source (:copier nil))
  "The code being evaluated, and how far the evaluation has come."
  (text "" :type simple-string)
  (form-start 0 :type index)
  form
  (form-count 0 :type index)
  (warnings '() :type list)
  (warning-count 0 :type index)
  (assigned '() :type list)
  (with-notes nil :type boolean))

(defconstant +most-warnings+ 100 "Warnings told in one reply.")

(defstruct (notice (:copier nil))
  "One warning as it will be told."
  (kind "" :type string)
  (type "" :type string)
  (message "" :type string)
  form line
  ;; For what is undefined so far: the space and the name, to be asked again at the end.
  space name)

(defun compiler-form ()
  "Return the form of the user's that the compiler is at, and true; NIL and NIL outside of the compiler."
  (let* ((find-context (internal-function "FIND-ERROR-CONTEXT" "SB-C"))
         (original-form (internal-function "COMPILER-ERROR-CONTEXT-ORIGINAL-FORM" "SB-C"))
         (context (and find-context original-form (ignore-errors (funcall find-context nil)))))
    (if context
        (values (ignore-errors (funcall original-form context)) t)
        (values nil nil))))

(defun warning-kind (condition)
  "Return the kind of CONDITION as a reply names it."
  (typecase condition
    (sb-ext:compiler-note "note")
    (style-warning "style-warning")
    (warning "warning")
    (t "error")))

(defun undefined-thing (condition)
  "Return the space and the name of what CONDITION calls undefined, or NIL.
SBCL has no type for it in all releases, but it has always been a format with these arguments."
  (when (typep condition '(and simple-condition warning))
    (let ((arguments (simple-condition-format-arguments condition)))
      (when (and (= 2 (length arguments)) (member (first arguments) '(:function :variable :type)))
        (values (first arguments) (second arguments))))))

(defun form-line (source form)
  "Return the line of FORM in SOURCE, or that of the toplevel form where the compiler made FORM itself."
  (let ((text (source-text source)))
    (line-number text (subform-place text (source-form-start source)
                                     (subform-path (source-form source) form)))))

(defun make-source-notice (source condition)
  "Return the notice of CONDITION, placed in SOURCE."
  (multiple-value-bind (form compiling) (compiler-form)
    (multiple-value-bind (space name) (and compiling (undefined-thing condition))
      (when (and (eq space :variable) (symbolp name)) (push name (source-assigned source)))
      (make-notice
       :kind (warning-kind condition)
       :type (condition-type-name condition)
       :message (if compiling
                    (without-current-package (condition-message condition))
                    (condition-message condition))
       :form (and compiling (plain-text form 200))
       :line (form-line source form)
       :space space :name name))))

(defun redefinition-p (condition)
  "Tell whether CONDITION only says what the list of changes says anyway."
  (typep condition '#.(or (internal-symbol "REDEFINITION-WARNING" "SB-KERNEL") 'null)))

(defun collect-warning (source condition)
  "Add CONDITION to the warnings of SOURCE, and muffle it."
  (unless (redefinition-p condition)
    (when (<= (incf (source-warning-count source)) +most-warnings+)
      (push (make-source-notice source condition) (source-warnings source))))
  (let ((restart (find-restart 'muffle-warning condition)))
    (when restart (invoke-restart restart))))

(defun collect-note (source condition)
  "Add the compiler note CONDITION where notes are wanted, and muffle it."
  (if (source-with-notes source)
      (collect-warning source condition)
      (muffle-warning condition)))

(defun collect-compile-error (source condition)
  "Add the compiler's error CONDITION once, and let the compiler go on: the form will fail when it is run.
Every layer of the compiler signals it anew, and the outermost would print it."
  (let ((restart (find-restart 'continue condition)))
    (when (and restart (nth-value 1 (compiler-form)))
      (collect-warning source condition)
      (invoke-restart restart))))

(defun still-true-p (notice)
  "Tell whether NOTICE still holds: a later form may have defined what was missing."
  (not (member (notice-space notice) '(:function :type))))

(defun settled-notices (source)
  "Return the warnings of SOURCE that still hold, in the order they came."
  (remove-if (lambda (notice)
               (and (not (still-true-p notice))
                    (ignore-errors (current-kind (notice-space notice) (notice-name notice)))))
             (reverse (source-warnings source))))

(defun notice-object (notice)
  "Return NOTICE as an object of the reply."
  (list :object "kind" (notice-kind notice) "type" (notice-type notice)
                "message" (notice-message notice)
                "form" (notice-form notice) "line" (notice-line notice)))
