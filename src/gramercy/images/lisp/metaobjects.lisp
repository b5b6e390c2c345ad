;;;; What classes, slots, generic functions and methods hold, read from where SBCL
;;;; stores it. The readers of the object system are generic: those of a metaclass or
;;;; of a generic-function class of the user's would run the user's methods, which a
;;;; look must not. Nothing here dispatches on anything, and an instance of a class
;;;; that was redefined is left as it is.

(in-package #:gramercy.image)

(defmacro of-layout ((&rest names) object)
  "Read of OBJECT what SBCL calls by the first of NAMES that it has: layouts were called wrappers for some years."
  (let ((reader (some (lambda (name) (or (internal-symbol name "SB-KERNEL") (internal-symbol name "SB-PCL"))) names)))
    (if (and reader (fboundp reader)) `(,reader ,object) (error "This SBCL has none of ~{~a~^, ~}." names))))

(defmacro pcl-symbol (name)
  "Return the symbol NAME of the object system, or NIL where this SBCL has none."
  `(load-time-value (internal-symbol ,name "SB-PCL")))

(defun layout (object)
  "Return the layout that OBJECT was made with."
  (of-layout ("WRAPPER-OF" "LAYOUT-OF") object))

(defun of-classoid-p (object classoid)
  "Tell whether OBJECT is an instance of the class of CLASSOID, or of a subclass."
  (let ((layout (layout object)))
    (or (eq classoid (of-layout ("WRAPPER-CLASSOID" "LAYOUT-CLASSOID") layout))
        (loop for above across (the simple-vector (of-layout ("WRAPPER-INHERITS" "LAYOUT-INHERITS") layout))
                thereis (eq classoid (of-layout ("WRAPPER-CLASSOID" "LAYOUT-CLASSOID") above))))))

(defmacro kind-p (object name)
  "Tell whether OBJECT is an instance of the class NAME, one of SBCL's. TYPEP would bring an instance of a class that
was redefined up to date, which runs methods of the user's."
  `(of-classoid-p ,object (load-time-value (sb-kernel:find-classoid ',name))))

(declaim (inline instance-slots))
(defun instance-slots (object)
  "Return the vector of the slots of OBJECT, or NIL where it has none."
  (sb-pcl::get-slots-or-nil object))

(defclass unbound-sample () ((slot))
  (:documentation "A class whose instances show what an unbound slot holds."))

(defglobal *unbound-sample* (allocate-instance (find-class 'unbound-sample))
  "An instance whose slot is unbound. The mark itself may not be kept in a variable.")

(defun unbound-mark-p (value)
  "Tell whether VALUE is the mark of an unbound slot."
  (eq value (svref (sb-pcl::std-instance-slots *unbound-sample*) 0)))

(defun at-location (object location)
  "Return what stands at LOCATION of OBJECT: an index of its slots, or the cell of a slot that all instances share."
  (let ((slots (instance-slots object)))
    (cond ((consp location) (cdr location))
          ((and (typep location 'index) (simple-vector-p slots) (< location (length slots))) (svref slots location))
          (t (svref (sb-pcl::std-instance-slots *unbound-sample*) 0)))))

(defglobal *own-places* (make-hash-table :test 'eq)
  "For the layouts of SBCL's own metaobjects, a list of conses: the name of a slot and its location.")

(defun note-own-places (class)
  "Note where instances of CLASS, one of SBCL's own for metaobjects, and of those below it hold their slots."
  (when (sb-mop:class-finalized-p class)
    (setf (gethash (of-layout ("CLASS-WRAPPER" "CLASS-LAYOUT") class) *own-places*)
          (loop for slot in (sb-mop:class-slots class)
                collect (cons (sb-mop:slot-definition-name slot) (sb-mop:slot-definition-location slot)))))
  (mapc #'note-own-places (sb-mop:class-direct-subclasses class)))

;; Done while this file is loaded, before any code of the user's.
(note-own-places (find-class 'sb-mop:metaobject))

(defun own-metaobject-p (object)
  "Tell whether OBJECT is a metaobject of one of SBCL's own kinds."
  (nth-value 1 (gethash (layout object) *own-places*)))

(defun slot-place (object name &optional (depth 0))
  "Return the location of the slot NAME in OBJECT, or NIL. Layouts leave it out where the class is not a plain one:
then the definition of the slot knows it."
  (let ((layout (layout object)))
    (or (car (sb-pcl::find-slot-cell layout name))
        (cdr (assoc name (gethash layout *own-places*)))
        (and (< depth 6) (defined-place layout (class-of object) name (1+ depth))))))

(defun defined-place (layout class name depth)
  "Return the location of the slot NAME in instances of CLASS with LAYOUT; NIL where CLASS was redefined since."
  (flet ((part (object slot) (held object (slot-place object slot depth))))
    (when (eq layout (part class (pcl-symbol "WRAPPER")))
      (let ((slot (find name (part class (pcl-symbol "SLOTS"))
                        :key (lambda (slot) (part slot (pcl-symbol "NAME"))))))
        (and slot (part slot (pcl-symbol "LOCATION")))))))

(defun held (object place &optional default)
  "Return what stands at PLACE, a location or NIL, of OBJECT; DEFAULT where nothing does."
  (if (null place)
      default
      (let ((value (at-location object place))) (if (unbound-mark-p value) default value))))

(defun stored (object name &optional default)
  "Return what OBJECT holds in the slot NAME, a symbol; DEFAULT where it has no such slot or nothing in it."
  (held object (and name (slot-place object name)) default))

(defmacro define-stored (&rest readers)
  "Define functions that return what SBCL stores in a slot of a metaobject: lists of name, slot and documentation."
  `(progn ,@(loop for (name slot documentation) in readers
                  collect `(defun ,name (object) ,documentation (stored object (pcl-symbol ,slot))))))

(define-stored
  (stored-name "NAME" "Return the name of OBJECT: a class, a slot or a generic function.")
  (stored-documentation "%DOCUMENTATION" "Return the documentation of OBJECT.")
  (stored-source "SOURCE" "Return SBCL's own record of the source of OBJECT.")
  (stored-properties "PLIST" "Return the property list of OBJECT.")
  ;; Classes
  (stored-superclasses "DIRECT-SUPERCLASSES" "Return the direct superclasses of the class OBJECT.")
  (stored-subclasses "DIRECT-SUBCLASSES" "Return the direct subclasses of the class OBJECT.")
  (stored-direct-slots "DIRECT-SLOTS" "Return the slots that the definition of the class OBJECT names.")
  (stored-slots "SLOTS" "Return all slots of the class OBJECT, once it is finalized.")
  (stored-precedence "%CLASS-PRECEDENCE-LIST" "Return the precedence list of the class OBJECT, once it is finalized.")
  (finalized-p "FINALIZED-P" "Tell whether the class OBJECT is finalized.")
  ;; Slots
  (stored-type "%TYPE" "Return the type of the slot OBJECT.")
  (stored-initform "INITFORM" "Return the initial form of the slot OBJECT.")
  (stored-initfunction "INITFUNCTION" "Return the function for the initial value of the slot OBJECT.")
  (stored-initargs "INITARGS" "Return the initial arguments of the slot OBJECT.")
  (stored-readers "READERS" "Return the names of the readers of the slot OBJECT.")
  (stored-writers "WRITERS" "Return the names of the writers of the slot OBJECT.")
  (stored-location "LOCATION" "Return where instances hold the slot OBJECT.")
  ;; Generic functions and methods
  (stored-methods "METHODS" "Return the methods of the generic function OBJECT.")
  (stored-combination "%METHOD-COMBINATION" "Return the method combination of the generic function OBJECT.")
  (stored-arguments "ARG-INFO" "Return SBCL's own record of what the generic function OBJECT takes.")
  (stored-combination-name "TYPE-NAME" "Return the name of the method combination OBJECT.")
  (stored-generic-function "%GENERIC-FUNCTION" "Return the generic function of the method OBJECT.")
  (stored-qualifiers "QUALIFIERS" "Return the qualifiers of the method OBJECT.")
  (stored-specializers "SPECIALIZERS" "Return the specializers of the method OBJECT.")
  (stored-lambda-list "LAMBDA-LIST" "Return the lambda list of the method OBJECT.")
  (stored-slot-definition "%SLOT-DEFINITION" "Return the slot that the method OBJECT reads or writes.")
  (stored-object "OBJECT" "Return the object of the eql specializer OBJECT."))

(defun stored-allocation (slot)
  "Return how the slot SLOT is allocated; those of structures do not say so."
  (stored slot (pcl-symbol "ALLOCATION") :instance))

(defun stored-direct-methods (specializer)
  "Return the methods that are specialized on SPECIALIZER."
  (let ((known (stored specializer (pcl-symbol "DIRECT-METHODS")))) (and (consp known) (car known))))

(defun stored-direct-initargs (class)
  "Return the default initial arguments that the definition of CLASS names."
  (getf (stored-properties class) (pcl-symbol "DIRECT-DEFAULT-INITARGS")))

(defun stored-default-initargs (class)
  "Return the default initial arguments of CLASS, inherited ones too, once it is finalized."
  (getf (stored-properties class) (pcl-symbol "DEFAULT-INITARGS")))

;;;; Kinds

(defun class-p (object) "Tell whether OBJECT is a class." (kind-p object class))
(defun structure-class-p (object) "Tell whether OBJECT is the class of a structure." (kind-p object structure-class))
(defun built-in-class-p (object) "Tell whether OBJECT is a class built into SBCL." (kind-p object built-in-class))
(defun condition-class-p (object) "Tell whether OBJECT is the class of a condition." (kind-p object sb-pcl::condition-class))
(defun generic-function-p (object) "Tell whether OBJECT is a generic function."
  (and (functionp object) (kind-p object generic-function)))
(defun accessor-method-p (object) "Tell whether OBJECT is a method that reads or writes a slot."
  (kind-p object sb-mop:standard-accessor-method))

(defun function-name (function)
  "Return the name of FUNCTION, or NIL."
  (cond ((generic-function-p function) (stored-name function))
        ((kind-p function sb-mop:funcallable-standard-object) nil)
        (t (sb-kernel:%fun-name function))))

;;;; Lambda lists of generic functions

(defun split-parameters (parameters)
  "Return of the lambda list PARAMETERS what stands before &REST and &KEY, the variable of &REST in a list, whether
there is &KEY, the parameters behind it, and whether other keys are allowed."
  (let* ((rest (member '&rest parameters))
         (keys (member '&key parameters))
         (allow (member '&allow-other-keys parameters)))
    (values (ldiff parameters (or rest keys allow (member '&aux parameters)))
            (and rest (list (second rest)))
            (and keys t)
            (ldiff (rest keys) (or allow (member '&aux keys)))
            (and allow t))))

(defun key-parameter (parameter)
  "Return PARAMETER, which is behind &KEY, without its default."
  (let ((name (if (consp parameter) (car parameter) parameter))) (if (consp name) (list name) name)))

(defun parameter-key (parameter)
  "Return the key by which callers give PARAMETER, a symbol or ((key variable)); as text where it is a keyword."
  (let ((key (if (consp parameter) (car (first parameter)) parameter)))
    (if (or (atom parameter) (keywordp key)) (symbol-name key) key)))

(defun generic-parameters (function)
  "Return the lambda list of the generic FUNCTION as it was defined, or as its methods have it."
  (let ((known (of-layout ("ARG-INFO-LAMBDA-LIST") (stored-arguments function)))
        (create (internal-function "CREATE-GF-LAMBDA-LIST" "SB-PCL"))
        (method (first (last (stored-methods function)))))
    (cond ((listp known) known)
          ((and create method) (values (funcall create (stored-lambda-list method)))))))

(defun pretty-parameters (function)
  "Return the lambda list of the generic FUNCTION with the keys that its methods take as well."
  (multiple-value-bind (first rest key-p keys allow-p) (split-parameters (generic-parameters function))
    (dolist (method (stored-methods function))
      (multiple-value-bind (mine rest key-p more more-allow-p) (split-parameters (stored-lambda-list method))
        (declare (ignore mine rest key-p))
        (setf keys (append keys more)
              allow-p (or allow-p more-allow-p))))
    (let ((all (remove-duplicates (mapcar #'key-parameter keys) :key #'parameter-key :test #'equal :from-end t)))
      (append first
              (and rest (cons '&rest rest))
              (and (or key-p all) (cons '&key all))
              (and allow-p '(&allow-other-keys))))))

(defun precedence-order (function)
  "Return the required parameters of the generic FUNCTION in the order in which its methods are chosen."
  (let* ((known (stored-arguments function))
         (parameters (of-layout ("ARG-INFO-LAMBDA-LIST") known)))
    (and (listp parameters)
         (loop for place in (of-layout ("ARG-INFO-PRECEDENCE") known) collect (nth place parameters)))))

;;;; Sources

(defun source-record (object)
  "Return SBCL's own record of the source of the metaobject OBJECT, or NIL."
  (if (or (structure-class-p object) (condition-class-p object))
      (let ((classoid (sb-kernel:find-classoid (stored-name object) nil))
            (ask (internal-function "CLASSOID-SOURCE-LOCATION" "SB-KERNEL")))
        (and classoid ask (funcall ask classoid)))
      (stored-source object)))

(defun source-of (object)
  "Return the definition source, of SB-INTROSPECT, of OBJECT: a metaobject, a function or a package."
  (cond ((and (functionp object) (not (sb-kernel:funcallable-instance-p object)))
         ;; As nearly all are; they are no metaobjects.
         (numbered-source (ignore-errors (sb-introspect:find-definition-source object)) object))
        ((or (class-p object) (kind-p object method) (generic-function-p object))
         (let ((translate (internal-function "TRANSLATE-SOURCE-LOCATION" "SB-INTROSPECT")))
           (numbered-source (and translate (ignore-errors (funcall translate (source-record object))))
                            (and (kind-p object method) (method-code object)))))
        ((kind-p object sb-mop:funcallable-standard-object) nil)
        (t (ignore-errors (sb-introspect:find-definition-source object)))))
