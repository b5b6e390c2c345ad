;;;; Code that was compiled with what a macro, an inline function, a compiler macro, a
;;;; constant or a structure was before. The compiler's cross references tell who uses
;;;; them, the numbers of code objects who was compiled before the change. A call that
;;;; redefines none of them pays nothing.

(in-package #:gramercy.image)

(defconstant +most-stale-told+ 8 "Definitions named that keep an old expansion; the rest is counted.")
(defconstant +most-stale-notes+ 4 "Sentences about changed expanders in one reply.")
(defconstant +most-rounds+ 5 "Rounds in which callers are compiled again: a macro may be used by a macro.")

(defstruct (expander (:copier nil))
  "A name whose uses are compiled in place. NAMES are those by which it is used, TEXT is how it was defined before,
and CODE the number of the next code object at its redefinition."
  space name (names '() :type list) text (code 0 :type fixnum))

(defglobal *redefined* (make-hash-table :test 'equal :synchronized t)
  "Keys (space . name), and the expanders that this call has redefined.")
(defglobal *outdated* (make-hash-table :test 'equal :synchronized t)
  "Keys (space . name), and all expanders that have changed in this image.")

;;;; What is redefined

(defun named-structure (name)
  "Return SBCL's own record of the structure NAME, or NIL."
  (let ((class (and (symbolp name) (find-class name nil))))
    (and (structure-class-p class) (structure-description class))))

(defun structure-operators (description)
  "Return the names of the functions of the structure of DESCRIPTION that the compiler puts in place."
  (remove nil (cons (structure-part "DD-PREDICATE-NAME" description)
                    (mapcar (lambda (slot) (structure-part "DSD-ACCESSOR-NAME" slot))
                            (structure-part "DD-SLOTS" description)))))

(defun settled-text (object)
  "Return the text of OBJECT, the same in every package."
  (let ((*package* (load-time-value (find-package :keyword)))) (plain-text object 10000)))

(defun layout-text (description)
  "Return a text that is another where instances of the structure of DESCRIPTION are laid out otherwise."
  (settled-text
   (mapcar (lambda (slot)
             (list (structure-part "DSD-NAME" slot) (structure-part "DSD-INDEX" slot)
                   (structure-part "DSD-TYPE" slot)))
           (structure-part "DD-SLOTS" description))))

(defun inlined-p (name)
  "Tell whether calls of the function NAME are compiled in place."
  (let ((record (compiler-fact :function :inlinep name)))
    (and (symbolp record) (member (symbol-name record) '("INLINE" "MAYBE-INLINE") :test #'string=) (fboundp name))))

(defun names-in-place (space name)
  "Return the names by which NAME of SPACE is used, where it is something that is compiled in place; else NIL."
  (case space
    (:function (and (or (and (symbolp name) (macro-function name)) (inlined-p name)) (list name)))
    (:compiler-macro (and (compiler-macro-function name) (list name)))
    (:variable (and (member (sb-cltl2:variable-information name) '(:constant :symbol-macro)) (list name)))
    (:type (and (compiler-fact :type :expander name) (list name)))
    (:setf-expander (and (compiler-fact :setf :expander name) (list name)))
    (:structure (let ((description (named-structure name)))
                  (and description (structure-operators description))))))

(defun expander-source (space name)
  "Return the definition source of NAME of SPACE, or NIL."
  (case space
    (:function (source-of (or (and (symbolp name) (macro-function name)) (fdefinition name))))
    (:compiler-macro (source-of (compiler-macro-function name)))
    (t (first (sb-introspect:find-definition-sources-by-name name (if (eq space :variable) :symbol-macro space))))))

(defun defining-text (space name)
  "Return a text that is another where NAME of SPACE is defined otherwise, or NIL where none is known."
  (ignore-errors
   (case space
     (:structure (layout-text (named-structure name)))
     (t (or (and (eq space :variable) (boundp name) (settled-text (symbol-value name)))
            (gethash (cons space name) *session-texts*)
            (let* ((source (expander-source space name))
                   (file (native-name (sb-introspect:definition-source-pathname source)))
                   (version (version-of file source)))
              (if version
                  (toplevel-text (version-octets version) (version-offset version source))
                  (newest-text file space name))))))))

(defun newest-text (file space name)
  "Return how NAME of SPACE is defined in the text of FILE that was loaded last, or NIL."
  (let ((passage (make-passage :space space :name name)))
    (and (find-by-name passage (version-octets (first (gethash file *versions*))))
         (passage-text passage))))

(defun note-expander (space name)
  "Note that NAME of SPACE is about to be redefined, where code may have it compiled in place."
  (let* ((name (if (eq space :structure) (structure-name name) name))
         (key (cons space name))
         (code (or *compiled-from* (next-code)))
         (known (gethash key *redefined*)))
    (cond ((null code))
          (known (setf (expander-code known) code))
          (t (let ((names (names-in-place space name)))
               (when names
                 (setf (gethash key *redefined*)
                       (make-expander :space space :name name :names names :code code
                                      :text (defining-text space name)))))))))

(defun changed-expanders ()
  "Return the expanders that this call has defined otherwise than before, and forget those that it has redefined."
  (let ((redefined (loop for expander being the hash-values of *redefined* collect expander)))
    (clrhash *redefined*)
    (loop for expander in redefined
          for key = (cons (expander-space expander) (expander-name expander))
          for old = (expander-text expander)
          for new = (defining-text (car key) (cdr key))
          ;; Where a text is not known, only callers that were compiled before count.
          unless (if (and old new) (equal old new) (unrecorded-p expander))
            collect (setf (gethash key *outdated*) expander))))

;;;; Who uses it

(defun code-entries (code)
  "Return the functions of the object CODE."
  (loop for index below (sb-kernel:code-n-entries code)
        collect (sb-kernel:%code-entry-point code index)))

(defun calls-out-p (name code)
  "Tell whether the object CODE calls the function NAME, which is then not compiled in place."
  (loop for index from sb-vm:code-constants-offset below (sb-kernel:code-header-words code)
        for constant = (sb-kernel:code-header-ref code index)
          thereis (and (typep constant 'sb-kernel:fdefn) (equal name (sb-kernel:fdefn-name constant)))))

(defun has-in-place-p (kind name expander code)
  "Tell whether a reference of KIND to NAME in the object CODE means that EXPANDER was compiled in place there."
  (ecase (expander-space expander)
    (:function (if (and (symbolp name) (macro-function name))
                   (eq kind :macroexpands)
                   (and (eq kind :calls) (not (calls-out-p name code)))))
    ((:compiler-macro :structure) (and (eq kind :calls) (not (calls-out-p name code))))
    (:variable (eq kind :references))
    ((:type :setf-expander) nil)))

(defun stale-uses (expanders)
  "Return conses of an expander of EXPANDERS and a definition, name and function, that was compiled before its change."
  (let ((by-name (make-hash-table :test 'equal)) (found '()))
    (dolist (expander expanders)
      (dolist (name (expander-names expander)) (push expander (gethash name by-name))))
    (loop for definition in (and expanders (later-functions))
          for code = (sb-kernel:fun-code-header (cdr definition))
          for number = (code-number (cdr definition))
          do (dolist (entry (code-entries code))
               (map-references
                (lambda (kind used form)
                  (declare (ignore form))
                  (dolist (expander (gethash used by-name))
                    (when (and (< number (expander-code expander))
                               (not (equal (car definition) (expander-name expander)))
                               (has-in-place-p kind used expander code))
                      (pushnew (cons expander definition) found :test #'equal))))
                entry)))
    (nreverse found)))

;;;; Telling

(defun use-label (definition)
  "Return how DEFINITION, a cons of name and function, is told."
  (shown-name (definition-of (car definition) (cdr definition))))

(defun named-some (names)
  "Return the first of NAMES in words, and how many more there are."
  (let ((told (subseq names 0 (min +most-stale-told+ (length names)))))
    (format nil "~{~a~^, ~}~@[ and ~d more~]" told
            (and (> (length names) (length told)) (- (length names) (length told))))))

(defun labels-of (uses)
  "Return how the definitions of USES are told, each once."
  (sort (remove-duplicates (mapcar #'use-label (mapcar #'cdr uses)) :test #'string=) #'string<))

(defun stale-note (expander uses)
  "Return the sentence about USES, which keep what EXPANDER was; NIL where there are none."
  (let ((names (labels-of (remove expander uses :key #'car :test-not #'eq)))
        (name (shown-name (expander-name expander))))
    (cond (names (format nil "~d caller~:p keep~[~;s~:;~] the old ~a: ~a. (gramercy:refresh) compiles them again."
                         (length names) (length names) name (named-some names)))
          ((unrecorded-p expander)
           (format nil "What was compiled with the old ~a keeps it; SBCL does not record where that is." name)))))

(defun unrecorded-p (expander)
  "Tell whether SBCL keeps no cross references for what EXPANDER is, and code may have used it."
  (case (expander-space expander)
    ((:type :setf-expander) t)
    (:variable (eq :symbol-macro (sb-cltl2:variable-information (expander-name expander))))))

(defun stale-notes ()
  "Return the sentences about the definitions that keep what this call has defined otherwise."
  (unless (zerop (hash-table-count *redefined*))
    (let* ((*view* (list *package*)) (*owners* nil)
           (changed (changed-expanders))
           (uses (stale-uses changed)))
      (bounded-stale (remove nil (mapcar (lambda (expander) (stale-note expander uses)) changed))))))

(defun bounded-stale (notes)
  "Return the first of NOTES, and a sentence about how many more there are."
  (let ((more (- (length notes) +most-stale-notes+)))
    (if (plusp more)
        (append (subseq notes 0 +most-stale-notes+)
                (list (format nil "~d more definitions have changed whose callers keep the old ones." more)))
        notes)))
