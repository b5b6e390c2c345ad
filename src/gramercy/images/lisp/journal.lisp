;;;; What names meant before each of the latest calls, so that definitions can be
;;;; taken back while threads run, when no copy of the process can be kept. Old
;;;; meanings are put back by identity. Objects that were changed stay changed.

(in-package #:gramercy.image)

(defconstant +most-entries+ 20 "Calls whose definitions can be taken back: their old values stay in memory as long.")

(defstruct (meaning (:copier nil))
  "What a name meant: KNOWN tells how it was listed as the user's, RECORDS what the compiler knew of it."
  space name text known content records)

(defstruct (entry (:copier nil))
  "The meanings that one call has changed, and what else is to be said when they are put back."
  (label "" :type string)
  (meanings '() :type list)
  (notes '() :type list))

(defglobal *before* (make-hash-table :test 'equal :synchronized t)
  "Meanings, from before this evaluation, of what it has touched.")
(defglobal *journal* '() "The entries of the latest calls, newest first.")

;;; What the compiler knows of names

(defglobal *recorded-kinds*
    '(:function ((:function :where-from) (:function :inlining-data) (:function :inlinep))
      :variable ((:variable :kind) (:variable :macro-expansion) (:variable :always-bound) (:variable :type)
                 (:variable :where-from) (:variable :documentation))
      :type ((:type :kind) (:type :expander) (:type :lambda-list) (:type :documentation))
      :setf-expander ((:setf :expander)))
  "Where SBCL's own database keeps what belongs to the meaning of a name, by space.")

(defun compiler-records (space name)
  "Return lists of category, kind, whether there is a record, and the record, of NAME in SPACE."
  (let ((look-up (internal-function "INFO" "SB-INT")))
    (loop for (category kind) in (and look-up (getf *recorded-kinds* space))
          for (record found) = (ignore-errors (multiple-value-list (funcall look-up category kind name)))
          collect (list category kind found record))))

(defun put-records-back (name records)
  "Make RECORDS what the compiler knows of NAME."
  (let ((store (list 'setf (internal-symbol "INFO" "SB-INT")))
        (clear (internal-function "CLEAR-INFO" "SB-INT")))
    (loop for (category kind found record) in records
          do (ignore-errors
              (if found
                  (funcall (fdefinition store) record category kind name)
                  (funcall clear category kind name))))))

;;; Remembering

(defun operator-content (name)
  "Return what NAME means as an operator: NIL, or the kind of it, the function, and the methods of a generic one."
  (cond ((not (fboundp name)) nil)
        ((and (symbolp name) (macro-function name)) (list :macro (macro-function name)))
        (t (let ((function (fdefinition name)))
             (list :function function
                   (and (generic-function-p function)
                        (copy-list (stored-methods function))))))))

(defconstant +heavy+ 100000
  "Elements from which on an old value is not kept alive: twenty of them could fill the heap.")

(defun heavy-p (value)
  "Tell whether VALUE is so large that twenty of its kind could fill the memory."
  (typecase value
    (array (>= (array-total-size value) +heavy+))
    (hash-table (>= (hash-table-count value) +heavy+))
    (cons (loop for rest = value then (cdr rest)
                repeat +heavy+
                always (consp rest)))))

(defun global-content (symbol)
  "Return NIL, or a list of the global value of SYMBOL, or :LOST for one that is too large to be kept."
  (handler-case (let ((value (sb-ext:symbol-global-value symbol)))
                  (if (heavy-p value) :lost (list value)))
    (unbound-variable () nil)))

(defun content (space name)
  "Return what NAME means in SPACE, or NIL for nothing."
  (case space
    (:function (operator-content name))
    (:variable (global-content name))
    (:type (find-class name nil))
    (:method (find-named-method name))
    (:compiler-macro (compiler-macro-function name))))

(defun remember-meaning (space name)
  "Remember what NAME means in SPACE, unless this evaluation has changed it already."
  (let ((key (cons space name)))
    (unless (gethash key *before*)
      (setf (gethash key *before*)
            (make-meaning :space space :name name :text (name-text space name)
                          :known (gethash key *definitions*)
                          :content (content space name)
                          :records (compiler-records space name))))))

(defun forget-meaning (key)
  "Forget what KEY meant before this evaluation, which did not change it."
  (remhash key *before*))

(defun assigned-symbols (form)
  "Return the variables that FORM, a toplevel form, plainly assigns."
  (remove-if-not
   (lambda (place) (and place (symbolp place) (not (eq :symbol-macro (sb-cltl2:variable-information place)))))
   (case (first form)
     ((setf setq psetf psetq) (loop for place in (rest form) by #'cddr collect place))
     ((incf decf pop) (list (second form)))
     ((push pushnew) (list (third form)))
     (progn (mapcan (lambda (part) (and (consp part) (assigned-symbols part))) (rest form))))))

(defun remember-assigned (form)
  "Remember the values of the variables that FORM is about to assign."
  (when (consp form)
    (dolist (symbol (ignore-errors (assigned-symbols form)))
      (when (trackable-p :variable symbol) (remember-meaning :variable symbol)))))

(defun add-entry (entry)
  "Make ENTRY the newest of the journal; the oldest is forgotten."
  (push entry *journal*)
  (let ((last (nthcdr (1- +most-entries+) *journal*)))
    (when last (setf (cdr last) '()))))

(defun label-of (code)
  "Return the beginning of CODE, to tell calls apart."
  (let* ((text (string-trim '(#\Space #\Newline #\Tab) code))
         (line (subseq text 0 (position #\Newline text))))
    (if (and (= (length line) (length text)) (<= (length line) 60))
        line
        (concatenate 'string (string-right-trim " " (subseq line 0 (min 60 (length line)))) " ..."))))

(defun close-entry (code)
  "Put what this evaluation of CODE has touched into the journal."
  (unless (zerop (hash-table-count *before*))
    (add-entry (make-entry :label (label-of code)
                           :meanings (sb-ext:with-locked-hash-table (*before*)
                                       (prog1 (loop for meaning being the hash-values of *before* collect meaning)
                                         (clrhash *before*)))))))

(defun forget-journal ()
  "Forget all meanings."
  (setf *journal* '())
  (clrhash *before*))
