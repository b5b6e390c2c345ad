;;;; Questions about classes: their slots and their place among other classes. Reads
;;;; what is stored and finalizes nothing: that could run methods of the user's.
;;;; Initial forms are shown, never run.

(in-package #:gramercy.image)

(defconstant +most-subclasses-told+ 40 "Subclasses named; of the others the packages are told.")
(defconstant +few-subclasses+ 12 "Up to so many subclasses, SBCL's internal ones are named too.")

(defun direct-superclasses (class)
  "Return the direct superclasses of CLASS."
  (stored-superclasses class))

(defun direct-subclasses (class)
  "Return the direct subclasses of CLASS that are not ours."
  (remove :ours (stored-subclasses class)
          :key (lambda (subclass) (name-owner (ignore-errors (stored-name subclass))))))

(defun unknown-class-p (class)
  "Tell whether CLASS was only named so far, as a superclass of another."
  (kind-p class sb-mop:forward-referenced-class))

(defun computed-precedence (class)
  "Return the precedence list that the standard gives CLASS, which is not finalized; NIL where it has none so far.
SBCL's own function for it calls readers that can be the user's."
  (let* ((left (all-superclasses class))
         (pairs (loop for each in left
                      append (loop for (one other) on (cons each (stored-superclasses each))
                                   while other collect (cons one other))))
         (found '()))
    (loop while left
          do (let* ((free (remove-if (lambda (each) (find each pairs :key #'cdr)) left))
                    ;; Of several that could come next: the superclass of what was taken last.
                    (next (or (and (null (rest free)) (first free))
                              (loop for taken in found
                                      thereis (find-if (lambda (super) (member super free))
                                                       (stored-superclasses taken))))))
               (unless next (return-from computed-precedence nil))
               (push next found)
               (setf left (remove next left)
                     pairs (remove next pairs :key #'car))))
    (nreverse found)))

(defun ordered-p (class)
  "Tell whether the order in which CLASS inherits is known."
  (or (finalized-p class)
      (and (notany #'unknown-class-p (all-superclasses class)) (computed-precedence class) t)))

(defun all-superclasses (class)
  "Return CLASS and all superclasses of it, in no particular order."
  (let ((found '()))
    (labels ((walk (class)
               (unless (member class found)
                 (push class found)
                 (mapc #'walk (direct-superclasses class)))))
      (walk class))
    (reverse found)))

(defun class-ancestry (class)
  "Return CLASS and what it inherits from, nearest first: the precedence list, or where there is none all
superclasses."
  (cond ((finalized-p class) (stored-precedence class))
        ((ordered-p class) (computed-precedence class))
        (t (all-superclasses class))))

(defun resolve-class (request package)
  "Return the class that REQUEST names, seen from PACKAGE."
  (let* ((text (request-text request :class))
         (name (resolve-symbol text package)))
    (or (find-class name nil)
        (error 'unknown-name :kind "class" :text text
                             :reason (let ((kinds (remove nil (list (function-kind name) (variable-kind name)
                                                                    (type-kind name)))))
                                       (and kinds (format nil "it names a ~{~a~^ and a ~}" kinds)))
                             :suggestions (near-classes (symbol-name name) package)))))

(defun near-classes (text package)
  "Return the names of classes of PACKAGE that are close to TEXT."
  (nearest text (let ((names '()))
                  (do-symbols (symbol package)
                    (when (find-class symbol nil) (push (symbol-name symbol) names)))
                  names)))

(defun class-all-slots (class)
  "Return the slots of CLASS, or only its own while a superclass is missing."
  (if (finalized-p class)
      (stored-slots class)
      (stored-direct-slots class)))

;;;; Slots

(defstruct (slot-fact (:copier nil))
  "What is told of one slot. ORIGIN is the class whose definition is the nearest."
  name (type t) initform initform-p (initargs '()) (allocation :instance)
  (readers '()) (writers '()) documentation origin unboxed read-only)

(defun slot-initargs (slot)
  "Return the initial arguments of the fact SLOT."
  (slot-fact-initargs slot))

(defun direct-slots-named (name ancestry)
  "Return conses of class and direct slot, for the slots NAME of the classes ANCESTRY, nearest first."
  (loop for class in ancestry
        for slot = (find name (stored-direct-slots class) :key #'stored-name)
        when slot collect (cons class slot)))

(defun slot-documentation (slot)
  "Return the documentation string of SLOT, or NIL."
  (let ((text (plain-documentation slot t))) (and (stringp text) (string/= text "") text)))

(defun plain-slot-fact (name effective ancestry)
  "Return what there is to say about the slot NAME, whose definition is EFFECTIVE where there is one already."
  (let* ((direct (direct-slots-named name ancestry))
         (slot (or effective (cdr (first direct))))
         (slots (mapcar #'cdr direct))
         ;; The nearest initial form counts.
         (given (or effective (find-if #'stored-initfunction slots) slot)))
    (flet ((gather (reader) (remove-duplicates (loop for slot in slots append (ignore-errors (funcall reader slot)))
                                               :test #'equal :from-end t)))
      (make-slot-fact
       :name name :type (stored-type slot)
       :initform (stored-initform given)
       :initform-p (and (stored-initfunction given) t)
       :initargs (if effective (stored-initargs slot) (gather #'stored-initargs))
       :allocation (stored-allocation slot)
       :readers (gather #'stored-readers)
       :writers (gather #'stored-writers)
       :documentation (some #'slot-documentation slots)
       :origin (car (first direct))))))

(defun structure-description (class)
  "Return SBCL's own record of the structure CLASS, or NIL."
  (let ((find-description (internal-function "FIND-DEFSTRUCT-DESCRIPTION" "SB-KERNEL")))
    (and find-description (ignore-errors (funcall find-description (stored-name class) nil)))))

(defun structure-part (reader record)
  "Return what READER, a name in SB-KERNEL, tells of RECORD, or NIL."
  (let ((function (internal-function reader "SB-KERNEL"))) (and function (ignore-errors (funcall function record)))))

(defun structure-slot-facts (class description)
  "Return what there is to say about the slots of the structure CLASS, which has DESCRIPTION."
  (let ((ancestry (class-ancestry class)))
    (loop for record in (structure-part "DD-SLOTS" description)
          for name = (structure-part "DSD-NAME" record)
          for accessor = (structure-part "DSD-ACCESSOR-NAME" record)
          for read-only = (structure-part "DSD-READ-ONLY" record)
          collect (make-slot-fact
                   :name name :type (structure-part "DSD-TYPE" record)
                   :initform (structure-part "DSD-DEFAULT" record)
                   :initform-p (structure-part "DSD-DEFAULT" record)
                   :readers (and accessor (list accessor))
                   :writers (and accessor (not read-only) (list (list 'setf accessor)))
                   :read-only read-only
                   :unboxed (not (eq t (structure-part "DSD-RAW-TYPE" record)))
                   :origin (loop for above in (reverse ancestry)
                                 for record = (and (structure-class-p above) (structure-description above))
                                 when (find name (structure-part "DD-SLOTS" record)
                                            :key (lambda (slot) (structure-part "DSD-NAME" slot)))
                                   return above)))))

(defun told-slots (class)
  "Return the facts about all slots of CLASS. While a superclass is missing they are those that are known."
  (let ((description (and (structure-class-p class) (structure-description class)))
        (ancestry (class-ancestry class)))
    (cond (description (structure-slot-facts class description))
          ((finalized-p class)
           (mapcar (lambda (slot) (plain-slot-fact (stored-name slot) slot ancestry))
                   (stored-slots class)))
          (t (mapcar (lambda (name) (plain-slot-fact name nil ancestry))
                     ;; Inherited ones first, as in a class that is finalized.
                     (remove-duplicates (loop for above in (reverse ancestry)
                                              append (mapcar #'stored-name
                                                             (stored-direct-slots above)))
                                        :from-end t))))))

(defun own-slots (class)
  "Return the facts about the slots that the definition of CLASS itself names; of a structure, all."
  (let ((slots (told-slots class)))
    (if (structure-class-p class)
        slots
        (let ((own (mapcar #'stored-name (stored-direct-slots class))))
          (remove-if-not (lambda (slot) (member (slot-fact-name slot) own)) slots)))))

;;; Their text

(defun accessor-texts (slot)
  "Return the texts about the functions that read and write SLOT: one word where both have one name."
  (flet ((named (word names)
           ;; Those of SBCL that nobody outside of it calls say nothing to the user.
           (let ((names (remove-if #'internal-name-p names)))
             (and names (format nil "~a ~{~a~^ ~}" word (mapcar #'shown-name names))))))
    (let* ((writers (slot-fact-writers slot))
           (both (remove-if-not (lambda (reader) (member (list 'setf reader) writers :test #'equal))
                                (slot-fact-readers slot))))
      (remove nil
              (list (named "accessor" both)
                    (named "reader" (set-difference (slot-fact-readers slot) both))
                    (named "writer" (remove-if (lambda (writer) (and (consp writer) (member (second writer) both)))
                                               writers)))))))

(defun slot-line (slot)
  "Return one line about SLOT."
  (format nil "~a~@[  type ~a~]~:[~;  unboxed~]~@[  allocation ~a~]~@[  initarg ~{~a~^ ~}~]~@[  initform ~a~]~
               ~@[  ~{~a~^  ~}~]~:[~;  read-only~]~@[  ~s~]"
          (shown-name (slot-fact-name slot))
          (and (not (eq t (slot-fact-type slot))) (expression-text (slot-fact-type slot) 200))
          (slot-fact-unboxed slot)
          (and (not (eq :instance (slot-fact-allocation slot))) (expression-text (slot-fact-allocation slot)))
          (mapcar #'shown-symbol (slot-fact-initargs slot))
          (and (slot-fact-initform-p slot) (expression-text (slot-fact-initform slot) 200))
          (accessor-texts slot)
          (slot-fact-read-only slot)
          (and (slot-fact-documentation slot) (shorten (slot-fact-documentation slot) 400))))

(defun slot-lines (slots class indent)
  "Return the lines about SLOTS of CLASS, each behind INDENT: its own ones first, then by the class they come from."
  (flet ((from (origin)
           (loop for slot in slots
                 when (eq origin (slot-fact-origin slot))
                   collect (concatenate 'string indent (slot-line slot)))))
    (let ((origins (remove class (remove-duplicates (mapcar #'slot-fact-origin slots) :from-end t))))
      (append (from class)
              (loop for origin in origins
                    collect (format nil "~afrom ~:[an unknown class~;~:*~a~]:" (subseq indent 2)
                                    (and origin (class-label origin)))
                    append (from origin))))))

(defun slot-object (slot)
  "Return SLOT as an object of the answer."
  (list :object
        "name" (definition-name (slot-fact-name slot))
        "type" (plain-text (slot-fact-type slot) 200)
        "initform" (and (slot-fact-initform-p slot) (plain-text (slot-fact-initform slot) 200))
        "initargs" (map 'vector #'definition-name (slot-fact-initargs slot))
        "allocation" (string-downcase (princ-to-string (slot-fact-allocation slot)))
        "accessors" (map 'vector #'definition-name (append (slot-fact-readers slot) (slot-fact-writers slot)))
        "origin" (and (slot-fact-origin slot) (definition-name (stored-name (slot-fact-origin slot))))
        "documentation" (slot-fact-documentation slot)))

(defun class-place (class)
  "Return FILE:LINE of CLASS, or NIL."
  (source-place (source-of class)))

(defun class-origin (class)
  "Return FILE:LINE of CLASS, or that it was defined in the session, or NIL."
  (or (class-place class)
      (and (not (unknown-class-p class))
           (gethash (cons :type (stored-name class)) *definitions*)
           "defined in the session")))

(defun class-kind-text (class)
  "Return what kind of class CLASS is."
  (cond ((unknown-class-p class) "named as a superclass and not defined")
        ((structure-class-p class) "structure")
        ((condition-class-p class) "condition")
        ((built-in-class-p class) "built-in class")
        ((eq (class-of class) (load-time-value (find-class 'standard-class))) "class")
        (t (format nil "class of metaclass ~a" (class-label (class-of class))))))

(defun unfinished-line (class)
  "Return the line about superclasses of CLASS that do not exist, or that nothing has finalized it yet; else NIL."
  (let ((missing (remove-if-not #'unknown-class-p (rest (class-ancestry class)))))
    (cond ((unknown-class-p class) nil)
          (missing (format nil "Not complete: ~{~a~^, ~} ~:[is~;are~] not defined." (mapcar #'class-label missing)
                           (rest missing)))
          ((not (finalized-p class)) "Not finalized yet: no instance was made so far."))))

(defun default-initargs-line (class)
  "Return the line about the default initial arguments of CLASS, inherited ones too, or NIL."
  (let ((told (remove-duplicates
               (loop for above in (class-ancestry class)
                     append (ignore-errors (stored-direct-initargs above)))
               :key #'first :from-end t)))
    (and told
         (format nil "default initargs: ~{~a~^, ~}"
                 (loop for (initarg form) in told
                       collect (format nil "~a ~a" (shown-symbol initarg) (expression-text form)))))))

(defun bounded-lines (lines room what)
  "Return LINES as far as they fit into ROOM characters, and a line that counts the others, which are WHAT."
  (multiple-value-bind (shown count) (fitting lines room)
    (if (= count (length lines))
        shown
        (append shown (list (format nil "… ~:d more ~a" (- (length lines) count) what))))))

(define-question "class_slots" (request package)
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (class (resolve-class request package))
         (slots (told-slots class)))
    (answer request
            (joined (list* (format nil "~a, ~a~@[, ~a~]: ~:[no slots~;~:*~:d slot~:p~]" (class-label class)
                                   (class-kind-text class) (class-origin class) (and slots (length slots)))
                           (unfinished-line class)
                           (default-initargs-line class)
                           (bounded-lines (slot-lines slots class "  ") (- +longest-text+ 500)
                                          "slots: class_slots of a superclass shows its own")))
            "class" (definition-name (stored-name class))
            "slots" (map 'vector #'slot-object slots))))

;;;; The place among other classes

(defun sorted-classes (classes)
  "Return CLASSES, the user's first, in the order of their names."
  (mapcar #'second
          (sort (mapcar (lambda (class) (list (owner-rank (name-owner (ignore-errors (stored-name class)))) class
                                              (class-label class)))
                        classes)
                (lambda (one other)
                  (or (< (first one) (first other))
                      (and (= (first one) (first other)) (string< (third one) (third other))))))))

(defun descendants (class)
  "Return how many classes are below CLASS, at most a thousand."
  (let ((seen (list class)))
    (labels ((walk (class)
               (dolist (below (direct-subclasses class))
                 (when (and (< (length seen) 1000) (not (member below seen)))
                   (push below seen)
                   (walk below)))))
      (walk class)
      (1- (length seen)))))

(defun subclass-text (class)
  "Return the name of CLASS, and how many are below it."
  (let ((below (descendants class)))
    (format nil "~a~[~:;~:* (~:d below)~]" (class-label class) below)))

(defun subclasses-line (class)
  "Return the line about the subclasses of CLASS."
  (let* ((below (sorted-classes (direct-subclasses class)))
         (worthy (if (> (length below) +few-subclasses+)
                     (remove-if #'internal-name-p below :key #'stored-name)
                     below))
         (told (subseq worthy 0 (min +most-subclasses-told+ (length worthy))))
         (rest (set-difference below told)))
    (format nil "Subclasses: ~:[none~;~{~a~^, ~}~]~@[~a~]" below (mapcar #'subclass-text told)
            (and rest
                 (format nil " and ~a: (sb-mop:class-direct-subclasses (find-class '~a)) gives all"
                         (counts-text (mapcar #'stored-name rest)) (class-label class))))))

(define-question "class_hierarchy" (request package)
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (class (resolve-class request package))
         (ancestry (class-ancestry class))
         (above (direct-superclasses class))
         (below (sort (class-names (direct-subclasses class)) #'string<)))
    (answer request
            (joined (list (format nil "~a, ~a~@[, ~a~]" (class-label class) (class-kind-text class) (class-origin class))
                          (unfinished-line class)
                          (format nil "Superclasses: ~:[none~;~:*~{~a~^, ~}~]" (mapcar #'class-label above))
                          (subclasses-line class)
                          (format nil "~:[All superclasses, not in order~;Precedence~]: ~{~a~^ > ~}"
                                  (ordered-p class) (mapcar #'class-label ancestry))))
            "class" (definition-name (stored-name class))
            "superclasses" (coerce (class-names above) 'vector)
            "subclasses" (coerce below 'vector)
            "precedence" (coerce (class-names ancestry) 'vector))))

(defun class-names (classes)
  "Return the texts of the names of CLASSES."
  (mapcar (lambda (class) (definition-name (stored-name class))) classes))
