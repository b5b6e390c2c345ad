;;;; Questions about classes. Initial forms are shown, never run.

(in-package #:gramercy.image)

(defun class-names (classes)
  "Return the texts of the names of CLASSES."
  (mapcar (lambda (class) (definition-name (class-name class))) classes))

(defun direct-superclasses (class)
  "Return the direct superclasses of CLASS."
  (sb-mop:class-direct-superclasses class))

(defun direct-subclasses (class)
  "Return the direct subclasses of CLASS."
  (sb-mop:class-direct-subclasses class))

(defun resolve-class (request)
  "Return the class that REQUEST names, finalized if that is possible."
  (let* ((text (request-text request :class))
         (package (question-package request))
         (name (resolve-symbol text package))
         (class (find-class name nil)))
    (unless class
      (error 'unknown-name :kind "class" :text text :suggestions (near-classes (symbol-name name) package)))
    (unless (sb-mop:class-finalized-p class)
      (ignore-errors (sb-mop:finalize-inheritance class)))
    class))

(defun near-classes (text package)
  "Return the names of classes of PACKAGE that are close to TEXT."
  (nearest text (let ((names '()))
                  (do-symbols (symbol package)
                    (when (find-class symbol nil) (push (symbol-name symbol) names)))
                  names)))

(defun class-all-slots (class)
  "Return the slots of CLASS, or only its own while a superclass is missing."
  (if (sb-mop:class-finalized-p class)
      (sb-mop:class-slots class)
      (sb-mop:class-direct-slots class)))

(defun direct-slot (class name)
  "Return the nearest definition of the slot NAME that CLASS inherits, which knows its accessors."
  (loop for super in (if (sb-mop:class-finalized-p class) (sb-mop:class-precedence-list class) (list class))
        thereis (find name (sb-mop:class-direct-slots super) :key #'sb-mop:slot-definition-name)))

(defun slot-accessors (slot)
  "Return the texts of the functions that read or write the direct slot SLOT."
  (and slot
       (mapcar #'definition-name
               (append (ignore-errors (sb-mop:slot-definition-readers slot))
                       (ignore-errors (sb-mop:slot-definition-writers slot))))))

(defun slot-object (class slot)
  "Return what there is to say about SLOT of CLASS."
  (let ((direct (direct-slot class (sb-mop:slot-definition-name slot))))
    (list :object
          "name" (definition-name (sb-mop:slot-definition-name slot))
          "type" (plain-text (sb-mop:slot-definition-type slot) 200)
          "initform" (and (sb-mop:slot-definition-initfunction slot)
                          (plain-text (sb-mop:slot-definition-initform slot) 200))
          "initargs" (map 'vector #'definition-name (sb-mop:slot-definition-initargs slot))
          "allocation" (string-downcase (princ-to-string (sb-mop:slot-definition-allocation slot)))
          "accessors" (coerce (slot-accessors direct) 'vector)
          "documentation" (and direct (ignore-errors (documentation direct t))))))

(defun slot-line (slot)
  "Return one line about the object SLOT made by SLOT-OBJECT."
  (flet ((part (key) (getf-text (rest slot) key)))
    (format nil "~a~@[  type ~a~]~@[  initform ~a~]~@[  initargs ~{~a~^ ~}~]~@[  accessors ~{~a~^ ~}~]"
            (part "name")
            (and (string/= (part "type") "T") (part "type"))
            (part "initform")
            (coerce (part "initargs") 'list)
            (coerce (part "accessors") 'list))))

(define-operation "class_slots" (request)
  (let* ((class (resolve-class request))
         (slots (mapcar (lambda (slot) (slot-object class slot)) (class-all-slots class))))
    (answer request
            (format nil "~a has ~:[no slots~;~:*~d slot~:p:~%~a~]" (definition-name (class-name class))
                    (and slots (length slots)) (lines "  ~a" (mapcar #'slot-line slots)))
            "class" (definition-name (class-name class))
            "slots" (coerce slots 'vector))))

(define-operation "class_hierarchy" (request)
  (let* ((class (resolve-class request))
         (precedence (class-names (if (sb-mop:class-finalized-p class)
                                      (sb-mop:class-precedence-list class)
                                      (cons class (direct-superclasses class)))))
         (above (class-names (direct-superclasses class)))
         (below (sort (class-names (direct-subclasses class)) #'string<)))
    (answer request
            (lines "~a" (list (definition-name (class-name class))
                              (format nil "Superclasses: ~:[none~;~:*~{~a~^, ~}~]" above)
                              (format nil "Subclasses: ~:[none~;~:*~{~a~^, ~}~]" below)
                              (format nil "Precedence: ~{~a~^ > ~}" precedence)))
            "class" (definition-name (class-name class))
            "superclasses" (coerce above 'vector)
            "subclasses" (coerce below 'vector)
            "precedence" (coerce precedence 'vector))))
