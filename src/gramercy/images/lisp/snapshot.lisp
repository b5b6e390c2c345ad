;;;; What names meant when the core was saved. What came later is found by comparing,
;;;; slot by slot: SBCL's tens of thousands of names then cost microseconds, and what
;;;; remains to be looked at grows with the user's program.

(in-package #:gramercy.image)

(defstruct (snapshot (:copier nil))
  "The names of the core. RECORDS are what the compiler's database had for each of SYMBOLS, BOUND whether it named a
function. CELLS hold the functions of all names, FUNCTIONS what was in them; GENERICS are those cells with a generic
function, METHODS its methods."
  (packages (make-hash-table :test 'eq) :type hash-table)
  (symbols #() :type simple-vector) (records #() :type simple-vector) (bound #* :type simple-bit-vector)
  (cells #() :type simple-vector) (functions #() :type simple-vector)
  (generics #() :type simple-vector) (methods #() :type simple-vector))

(defglobal *snapshot* nil "What names meant when the core was saved, or NIL where this process has no such core.")
(defglobal *transformed* '() "Names of functions for which transforms were defined; the database does not show that.")

(defmacro inner ((name package) object)
  "Read what SBCL calls NAME of OBJECT, without a call where the compiler can; NIL where this SBCL has no such thing."
  (let ((reader (internal-symbol name package)))
    (if (and reader (fboundp reader)) `(,reader ,object) `(progn ,object nil))))

(defun watch-transforms ()
  "Note for which functions transforms are defined. Done once, before the core is saved."
  (wrap (internal-symbol "%DEFTRANSFORM" "SB-C")
        (lambda (original name &rest arguments)
          (setf *later-functions* nil)
          (pushnew name *transformed* :test #'equal)
          (apply original name arguments))))

;;;; Taking it

(defun map-homed-symbols (function package)
  "Call FUNCTION with each symbol of PACKAGE that is at home in it, or nowhere."
  (with-package-iterator (next package :internal :external)
    (loop (multiple-value-bind (more symbol) (next)
            (unless more (return))
            (when (member (symbol-package symbol) (list package nil)) (funcall function symbol))))))

(defun by-address (objects)
  "Return a vector of OBJECTS, neighbours in memory beside each other: it is walked much faster so."
  (sort (coerce (remove-duplicates-eq objects) 'simple-vector) #'< :key #'sb-kernel:get-lisp-obj-address))

(defun remove-duplicates-eq (objects)
  "Return OBJECTS, each once."
  (let ((seen (make-hash-table :test 'eq)))
    (dolist (object objects) (setf (gethash object seen) t))
    (loop for object being the hash-keys of seen collect object)))

(defun named-cells (walk)
  "Return the cells of all names of functions, over which WALK goes."
  (let ((cells '()))
    (funcall walk (lambda (name)
                    (let ((cell (and (sb-int:legal-fun-name-p name) (sb-int:find-fdefn name))))
                      (when cell (push cell cells)))))
    cells))

(defun generic-cell-p (cell)
  "Tell whether a generic function is in CELL."
  (generic-function-p (sb-kernel:fdefn-fun cell)))

(defun take-snapshot ()
  "Note what all names mean. Done before a core is saved; nothing is noted where this SBCL keeps names otherwise."
  (let ((walk (internal-function "CALL-WITH-EACH-GLOBALDB-NAME" "SB-INT"))
        (symbols '()))
    (setf *snapshot* nil *transformed* '())
    (when (and walk (comparable-p))
      (dolist (package (list-all-packages))
        (map-homed-symbols (lambda (symbol) (push symbol symbols)) package))
      (setf *snapshot* (noted-names (by-address symbols) (by-address (named-cells walk)))))))

(defun comparable-p ()
  "Tell whether this SBCL has all that later names are found by."
  (loop for (name package) in '(("SYMBOL-DBINFO" "SB-KERNEL") ("INFO-NAME-LIST" "SB-IMPL")
                                ("PACKAGE-HASHTABLE-MODIFIED" "SB-IMPL")
                                ("%METHOD-FUNCTION-FAST-FUNCTION" "SB-PCL") ("FUN-INFO-TRANSFORMS" "SB-C")
                                ("TRANSFORM-FUNCTION" "SB-C") ("VOP-INFO-GENERATOR-FUNCTION" "SB-C"))
        always (internal-function name package)))

(defun noted-names (symbols cells)
  "Return a snapshot of SYMBOLS and CELLS."
  (let ((generics (remove-if-not #'generic-cell-p cells))
        (packages (make-hash-table :test 'eq)))
    (dolist (package (list-all-packages)) (setf (gethash package packages) t))
    (make-snapshot :packages packages
                   :symbols symbols
                   :records (map 'simple-vector (lambda (symbol) (inner ("SYMBOL-DBINFO" "SB-KERNEL") symbol)) symbols)
                   :bound (map 'simple-bit-vector (lambda (symbol) (if (fboundp symbol) 1 0)) symbols)
                   :cells cells
                   :functions (map 'simple-vector #'sb-kernel:fdefn-fun cells)
                   :generics generics
                   :methods (map 'simple-vector #'cell-methods generics))))

(defun cell-methods (cell)
  "Return the methods of the generic function in CELL, or none."
  (if (generic-cell-p cell) (stored-methods (sb-kernel:fdefn-fun cell)) '()))

;;;; Comparing with it

(defun core-object-p (object)
  "Tell whether OBJECT was in the core that this process was started from."
  (let ((generation (load-time-value (internal-function "GENERATION-OF" "SB-KERNEL"))))
    (and generation
         (eql (funcall (the function generation) object) sb-vm:+pseudo-static-generation+))))

(defun changed-symbols (snapshot)
  "Return the symbols of SNAPSHOT for which the database has got a record since, or that name a function now."
  (let ((symbols (snapshot-symbols snapshot)) (records (snapshot-records snapshot)) (bound (snapshot-bound snapshot)))
    (loop for index of-type fixnum below (length symbols)
          for symbol of-type symbol = (svref symbols index)
          for record = (inner ("SYMBOL-DBINFO" "SB-KERNEL") symbol)
          unless (and (or (eq (svref records index) record)
                          ;; SBCL copies some records while it saves, after the snapshot; a changed one is new.
                          (core-object-p record))
                      (or (= 1 (sbit bound index)) (not (fboundp symbol))))
            collect symbol)))

(defun changed-cells (snapshot)
  "Return the cells of SNAPSHOT in which another function is now, or a generic function with other methods."
  (let ((cells (snapshot-cells snapshot)) (functions (snapshot-functions snapshot)))
    (nconc (loop for index of-type fixnum below (length cells)
                 for cell of-type sb-kernel:fdefn = (svref cells index)
                 unless (eq (svref functions index) (sb-kernel:fdefn-fun cell)) collect cell)
           (loop for cell across (snapshot-generics snapshot)
                 for methods across (snapshot-methods snapshot)
                 unless (eq methods (cell-methods cell)) collect cell))))

(defun grown-p (package)
  "Tell whether PACKAGE may have symbols that the core had not."
  (or (not (gethash package (snapshot-packages *snapshot*)))
      (inner ("PACKAGE-HASHTABLE-MODIFIED" "SB-IMPL") (inner ("PACKAGE-INTERNAL-SYMBOLS" "SB-IMPL") package))
      (inner ("PACKAGE-HASHTABLE-MODIFIED" "SB-IMPL") (inner ("PACKAGE-EXTERNAL-SYMBOLS" "SB-IMPL") package))))

(defun later-symbols ()
  "Return the symbols that the core had not."
  (let ((found '()))
    (dolist (package (list-all-packages) found)
      (when (grown-p package)
        (map-homed-symbols (lambda (symbol) (unless (core-object-p symbol) (push symbol found))) package)))))

(defun map-rare-names (function)
  "Call FUNCTION with the names that are neither symbols nor kept with one, and may not be the core's."
  (loop for cell across (first (symbol-value (internal-symbol "*FDEFNS*" "SB-IMPL")))
        when (and (typep cell 'sb-kernel:fdefn) (not (core-object-p cell)))
          do (funcall function (sb-kernel:fdefn-name cell)))
  (macrolet ((walk (name data)
               (let ((operator (internal-symbol "INFO-MAPHASH" "SB-INT"))
                     (table (internal-symbol "*INFO-ENVIRONMENT*" "SB-IMPL")))
                 (and operator table
                      `(,operator (lambda (,name ,data) (declare (ignore ,data)) (funcall function ,name)) ,table)))))
    (walk name data)))

(defun changed-names ()
  "Return the names that may mean a function which the core had not, each once."
  (let ((names (make-hash-table :test 'equal)))
    (flet ((note (name) (setf (gethash name names) t)))
      (dolist (symbol (nconc (delete nil (changed-symbols *snapshot*) :key #'symbol-package) (later-symbols)))
        (mapc #'note (inner ("INFO-NAME-LIST" "SB-IMPL") symbol)))
      (dolist (cell (changed-cells *snapshot*)) (note (sb-kernel:fdefn-name cell)))
      (map-rare-names #'note)
      (mapc #'note *transformed*))
    (loop for name being the hash-keys of names collect name)))

;;;; The functions of names

(defun method-code (method)
  "Return the function that the body of METHOD was compiled to, or NIL."
  (let ((function (stored method (pcl-symbol "%FUNCTION"))))
    (and function (kind-p function sb-pcl::%method-function)
         (inner ("%METHOD-FUNCTION-FAST-FUNCTION" "SB-PCL") function))))

(defun map-method-functions (function generic-function)
  "Call FUNCTION with name and object of the functions of the methods of GENERIC-FUNCTION."
  (dolist (method (stored-methods generic-function))
    (let ((code (method-code method)))
      (when code (funcall function (sb-kernel:%fun-name code) (sb-kernel:%fun-fun code))))))

(defun method-function-name-p (name)
  "Tell whether NAME is one that the object system gives the function of a method."
  (and (consp name) (symbolp (first name)) (member (symbol-name (first name)) '("FAST-METHOD" "SLOW-METHOD")
                                                   :test #'string=)))

(defun map-name-functions (function name)
  "Call FUNCTION with name and object of the functions that NAME means: of a macro, of methods, of transforms."
  (let ((meaning (ignore-errors (or (and (symbolp name) (macro-function name))
                                    (and (fboundp name) (fdefinition name))))))
    (cond ((generic-function-p meaning) (map-method-functions function meaning))
          ((or (null meaning) (method-function-name-p name)
               (typep meaning 'sb-kernel:funcallable-instance)))
          (t (funcall function name (sb-kernel:%fun-fun meaning)))))
  (let ((facts (compiler-fact :function :info name)))
    (when facts
      (dolist (transform (inner ("FUN-INFO-TRANSFORMS" "SB-C") facts))
        (let ((code (inner ("TRANSFORM-FUNCTION" "SB-C") transform)))
          (when (functionp code) (funcall function transform (sb-kernel:%fun-fun code))))))))

(defun map-later-functions (function)
  "Call FUNCTION with name and object of all functions that may have come after the core, as MAP-FUNCTIONS would."
  (dolist (name (changed-names)) (map-name-functions function name))
  (loop for vop being the hash-values of (symbol-value (internal-symbol "*BACKEND-TEMPLATE-NAMES*" "SB-C"))
        for code = (inner ("VOP-INFO-GENERATOR-FUNCTION" "SB-C") vop)
        when code do (funcall function vop (sb-kernel:%fun-fun code))))
