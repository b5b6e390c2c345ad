;;;; Taking definitions back: the newest entry of the journal is put back, and what
;;;; cannot be put back is said.

(in-package #:gramercy.image)

(defun put-methods-back (function methods)
  "Give the generic FUNCTION exactly METHODS again."
  (let ((now (stored-methods function)))
    (dolist (method (set-difference now methods)) (remove-method function method))
    (dolist (method (set-difference methods now)) (add-method function method))))

(defun put-operator-back (meaning)
  "Let the name of MEANING be the operator again that it was."
  (let ((name (meaning-name meaning)))
    (destructuring-bind (&optional kind function methods) (meaning-content meaning)
      (ecase kind
        ((nil) (when (fboundp name) (fmakunbound name)))
        (:macro (setf (macro-function name) function))
        (:function
         (when (and (symbolp name) (macro-function name)) (fmakunbound name))
         (setf (fdefinition name) function)
         (when (generic-function-p function) (put-methods-back function methods))))
      (when kind
        (put-records-back name (meaning-records meaning))
        (forget-derived-type name)))))

(defun forget-derived-type (name)
  "Let the compiler assume nothing of the function NAME but what was declared.
It has derived a type from the new definition before that was made, and would believe it of the old one."
  (let ((look-up (internal-function "INFO" "SB-INT"))
        (parse (internal-function "SPECIFIER-TYPE" "SB-KERNEL")))
    (when (and look-up parse (eq :defined (ignore-errors (funcall look-up :function :where-from name))))
      (put-records-back name (list (list :function :type t (funcall parse 'function)))))))

(defun put-variable-back (meaning)
  "Let the name of MEANING be the variable again that it was; return false where its value is lost."
  (let ((name (meaning-name meaning))
        (store (or (internal-function "%SET-SYMBOL-GLOBAL-VALUE" "SB-KERNEL") #'set)))
    (unless (eq :lost (meaning-content meaning))
      (when (meaning-content meaning) (funcall store name (first (meaning-content meaning))))
      (put-records-back name (meaning-records meaning))
      (unless (meaning-content meaning) (makunbound name))
      t)))

(defun put-method-back (meaning)
  "Let the method be the one again that MEANING tells, or be gone."
  (let* ((name (meaning-name meaning))
         (function (and (fboundp (first name)) (fdefinition (first name))))
         (present (find-named-method name)))
    (when (and (generic-function-p function) (not (eq present (meaning-content meaning))))
      (when present (remove-method function present))
      (when (meaning-content meaning) (add-method function (meaning-content meaning))))))

(defun put-type-back (meaning)
  "Let the name of MEANING be the type again that it was; return false for a class that stays redefined."
  (let* ((name (meaning-name meaning))
         (present (find-class name nil))
         (class (meaning-content meaning)))
    (cond ((and class (eq class present)) nil)
          (class (setf (find-class name) class) t)
          (t (when present (setf (find-class name) nil))
             (put-records-back name (meaning-records meaning))
             ;; SBCL remembers what names of types were found to mean.
             (funcall (or (internal-function "DROP-ALL-HASH-CACHES" "SB-IMPL") (constantly nil)))
             t))))

(defun put-back (meaning)
  "Put MEANING back; return whether that was possible."
  (forget-session-text (meaning-space meaning) (meaning-name meaning))
  (ecase (meaning-space meaning)
    (:function (put-operator-back meaning) t)
    (:variable (put-variable-back meaning))
    (:method (put-method-back meaning) t)
    (:type (put-type-back meaning))
    (:compiler-macro (setf (compiler-macro-function (meaning-name meaning)) (meaning-content meaning)) t)
    (:setf-expander (put-records-back (meaning-name meaning) (meaning-records meaning)) t)
    ((:package :method-combination) nil)))

;;; Telling

(defun left-note (meaning)
  "Return the sentence about MEANING, which was not put back."
  (let ((text (meaning-text meaning)))
    (ecase (meaning-space meaning)
      (:variable (format nil "~a keeps its new value: the old one was too large to be remembered." text))
      (:type (format nil "~a keeps its new definition: what a call made of an existing class is not taken back." text))
      (:package (if (find-package (meaning-name meaning))
                    (format nil "The package ~a is left." text)
                    (format nil "The package ~a stays deleted." text)))
      (:method-combination (format nil "The method combination ~a is left." text)))))

(defun homeless-p (meaning)
  "Tell whether the symbol of MEANING was taken out of its package since."
  (let ((symbol (home-symbol (meaning-space meaning) (meaning-name meaning))))
    (and symbol (null (symbol-package symbol)))))

(defun settle-known (meaning)
  "List the name of MEANING as the user's own as it was listed before."
  (let ((key (cons (meaning-space meaning) (meaning-name meaning))))
    (if (meaning-known meaning)
        (setf (gethash key *definitions*) (meaning-known meaning))
        (remhash key *definitions*))))

(defun take-meaning-back (meaning)
  "Put MEANING back; return the change as an object, or NIL, and the sentence that tells why not, or NIL."
  (let ((space (meaning-space meaning)) (name (meaning-name meaning)))
    (handler-case
        (let ((kind (ignore-errors (current-kind space name))))
          (cond ((homeless-p meaning)
                 (values nil (format nil "~a is left: its symbol is no longer in a package." (meaning-text meaning))))
                ((put-back meaning)
                 (settle-known meaning)
                 (let ((after (ignore-errors (current-kind space name))))
                   (values (and (or kind after)
                                (list :object "kind" (or after kind) "name" (meaning-text meaning)
                                              "change" (if after "restored" "removed")))
                           nil)))
                (t (values nil (left-note meaning)))))
      (error (condition)
        (values nil (format nil "~a could not be put back: ~a" (meaning-text meaning) (condition-message condition)))))))

(defun put-back-order (meaning)
  "Return a number by which MEANING is put back early or late: methods need their functions, accessors their classes."
  (or (position (meaning-space meaning) '(:function :method :compiler-macro :setf-expander :variable :type)) 9))

(defglobal *stays-changed*
    "Objects that were changed in place, and variables that were set inside of functions, stay as they are."
  "What is true of every call that is taken back.")

(defun take-entry-back (entry)
  "Put all meanings of ENTRY back; return the changes, sorted by name, and what is to be said, newest first."
  (let ((changes '())
        (left '())
        (notes (and (entry-meanings entry)
                    (list *stays-changed*
                          (format nil "Taken back: the definitions of ~a" (entry-label entry))))))
    (dolist (meaning (stable-sort (copy-list (entry-meanings entry)) #'< :key #'put-back-order))
      (multiple-value-bind (change note) (take-meaning-back meaning)
        (when change (push change changes))
        (when note (push note left))))
    (values (sort changes #'string< :key #'fifth)
            (append (bounded-notes (reverse left)) notes))))

(defconstant +most-left+ 20 "Definitions that are named when they could not be put back; the rest is counted.")

(defun bounded-notes (notes)
  "Return the first of NOTES, newest first, and how many more there are."
  (let ((more (- (length notes) +most-left+)))
    (if (plusp more)
        (cons (format nil "~d more definitions could not be put back." more)
              (reverse (subseq notes 0 +most-left+)))
        (reverse notes))))

(defun put-taken-back (request changes notes started)
  "Reply to REQUEST, like to an evaluation, with CHANGES and NOTES."
  (put-reply-start (getf request :id) t)
  (put-ascii ",\"forms\":[]")
  (put-output)
  (put-more-members (list "package" (display-package-name *current-package*)))
  (put-changes changes)
  (put-notes notes)
  (put-ending started))

(define-operation "undo_definitions" (request)
  (let ((entry (pop *journal*))
        (started (microseconds))
        changes notes)
    (if (null entry)
        (reply-unchanged-fault
                     request
                     (list "type" "NOTHING-TO-UNDO"
                           "message" (format nil "None of the latest ~d calls that changed definitions is left ~
                                                  to take back."
                                             +most-entries+)))
        (with-user-streams (+default-limit+ (getf request :id))
          (prepare-for-user-code)
          (let ((fault (call-guarded
                        (lambda ()
                          (let ((*untracked* t))
                            (handler-bind ((warning #'muffle-warning))
                              (setf (values changes notes) (take-entry-back entry))))))))
            (if fault
                ;; What is left of it can be taken back by the next request.
                (progn (push entry *journal*) (reply-fault request fault))
                (progn (put-taken-back request changes (append notes (reverse (entry-notes entry))) started)
                       (send-frame))))))))
