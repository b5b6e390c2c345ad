;;;; Methods of the user's that apply to objects of SBCL's own and ours, such as one of
;;;; PRINT-OBJECT for T. They run whenever the server itself writes a text. A look runs
;;;; no code of the user's, so it is refused while there is one, and the answer names it.

(in-package #:gramercy.image)

(defglobal *unused-generics*
    '(documentation (setf documentation) describe-object make-load-form slot-unbound slot-missing no-applicable-method
      no-next-method update-instance-for-different-class update-instance-for-redefined-class change-class)
  "Generic functions of SBCL's that no look calls: methods of them do not matter.")

(defglobal *samples* '() "Objects of each kind that the server handles while it answers a look.")
(defglobal *guarded* #() "The generic functions of SBCL's that a look might call, with their methods in the core.")

(defstruct (guarded (:copier nil))
  "A generic FUNCTION, the CELL it is in, the place of its methods, METHODS of the core, and those looked at last."
  function (cell nil :type sb-kernel:fdefn) (place 0 :type index) methods (seen '()))

(defun note-guarded ()
  "Take the methods that exist now for SBCL's. Done once, before the core is saved."
  (setf *samples* (list "a" (coerce "a" 'simple-base-string) 'car :key nil 1 (expt 2 80) 1/2 1.5 1.5d0 #c(1 2) #\a
                        (list 1) (vector 1) (make-condition 'unknown-name) (make-condition 'simple-error)
                        *print-target* (make-string-output-stream) *unbound-sample* (find-class 'standard-class)
                        (find-class 'stopping-stream) #'print-object (first (stored-methods #'print-object))
                        (first (stored-slots (find-class 'standard-class))))
        *guarded* (let ((found '()))
                    (do-all-symbols (symbol (coerce found 'simple-vector))
                      (dolist (name (list symbol (list 'setf symbol)))
                        (let ((guarded (and (fboundp name) (guard name))))
                          (when guarded (pushnew guarded found :key #'guarded-function))))))))

(defun guard (name)
  "Return the record of the generic function NAME, or NIL where it is none or no look calls it."
  (let ((function (fdefinition name)))
    (when (and (generic-function-p function) (guarded-name-p name))
      (make-guarded :function function
                    :cell (sb-int:find-fdefn name)
                    :place (slot-place function (pcl-symbol "METHODS"))
                    :methods (stored-methods function)
                    :seen (stored-methods function)))))

(defun guarded-name-p (name)
  "Tell whether a look might call the generic function NAME: one of SBCL itself, and not of ASDF or its other modules."
  (and (not (member name *unused-generics* :test #'equal))
       (let ((symbol (first (name-symbols name))))
         (and symbol (symbol-package symbol)
              (member (package-name (symbol-package symbol))
                      '("COMMON-LISP" "SB-MOP" "SB-PCL" "SB-GRAY" "SB-IMPL" "SB-KERNEL" "SB-INT" "SB-EXT" "SB-SYS")
                      :test #'string=)))))

(defun covers-p (specializer)
  "Tell whether SPECIALIZER means one of the objects that the server handles."
  (cond ((eq specializer (load-time-value (find-class t))) t)
        ((class-p specializer)
         (let* ((layout (stored specializer (pcl-symbol "WRAPPER")))
                (classoid (and layout (of-layout ("WRAPPER-CLASSOID" "LAYOUT-CLASSOID") layout))))
           (and classoid (some (lambda (sample) (of-classoid-p sample classoid)) *samples*))))
        ((kind-p specializer sb-mop:eql-specializer)
         (let ((object (stored-object specializer)))
           (typecase object
             (symbol (and (symbol-package object)
                          (or (keywordp object) (system-package-p (symbol-package object)))))
             ((or number character) t))))
        ;; A specializer of the user's decides by code of the user's what it means.
        (t t)))

(defun intruder-in (guarded)
  "Return the first later method in GUARDED that applies to objects that the server handles, or NIL."
  (find-if (lambda (method)
             (and (not (member method (guarded-methods guarded))) (every #'covers-p (stored-specializers method))))
           (stored-methods (guarded-function guarded))))

(defun intruder ()
  "Return a text that names a method or function of the user's which looks would run, or NIL. Costs microseconds:
what has not changed since the last look is not looked at again."
  (loop for guarded across (the simple-vector *guarded*)
        for function = (guarded-function guarded)
        for methods = (svref (the simple-vector (sb-pcl::fsc-instance-slots function)) (guarded-place guarded))
        do (cond ((not (eq function (sb-kernel:fdefn-fun (guarded-cell guarded))))
                  (return (concatenate 'string "the function that stands in place of "
                                       (definition-name (sb-kernel:fdefn-name (guarded-cell guarded))))))
                 ((not (eq methods (guarded-seen guarded)))
                  (let ((found (intruder-in guarded)))
                    (when found
                      (return (concatenate 'string "the method " (definition-name (stored-name function)) " "
                                           (plain-text (mapcar #'specializer-name (stored-specializers found)) 200))))
                    (setf (guarded-seen guarded) methods))))))

(defun intruded-p (request)
  "Refuse REQUEST, a look, where methods of the user's would run in it; tell whether that was done."
  (let ((found (intruder)))
    (when found
      (reply-fault request
                   (list "type" "LOOKS-WOULD-RUN-CODE"
                         "message" (concatenate 'string "A look runs no code of yours, and " found
                                                " would run in it, since it is for objects of SBCL's own. Remove it, "
                                                "or evaluate what you want to know."))
                   t)
      t)))

(defmacro define-look (name (request) &body body)
  "Define what is answered to requests whose op is NAME; BODY has to reply. It runs no user code."
  `(define-operation ,name (,request) (unless (intruded-p ,request) ,@body)))
