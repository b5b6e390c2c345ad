;;;; The texts of files as they were loaded. With them it is known by content, not by
;;;; date, whether a definition still stands in its file and where, and which forms of a
;;;; file have changed since. SBCL numbers code objects: the number of a function tells
;;;; from which of several texts it came.

(in-package #:gramercy.image)

(defconstant +most-versions+ 6 "Texts kept of one file; functions of older ones are placed by date.")
(defconstant +most-version-octets+ 32000000 "Octets kept of all files together.")

(defstruct (version (:copier nil))
  "What a file held when it was loaded. CODE is the number of its first code object, COMPLETE whether all
forms were loaded."
  (code 0 :type fixnum) (octets nil :type octets) (complete t :type boolean))

(defglobal *versions* (make-hash-table :test 'equal :synchronized t)
  "The native names of files, and their versions, newest first.")
(defglobal *version-octets* 0 "Octets of all versions together.")
(defglobal *compiled-texts* '() "Lists of a compiled file, its source and the octets of that, newest first.")

(defun keep-version (file octets code complete)
  "Keep OCTETS as the text of FILE whose code objects have numbers from CODE on."
  (let ((newest (first (gethash file *versions*))))
    (cond ((or (null octets) (null code)))
          ((and newest (equalp octets (version-octets newest)))
           (setf (version-complete newest) (or complete (version-complete newest))))
          ((< (+ *version-octets* (length octets)) +most-version-octets+)
           (add-version file (make-version :code code :octets octets :complete complete))))))

(defun add-version (file version)
  "Make VERSION the newest of FILE; the oldest is forgotten where there are many."
  (let ((versions (cons version (gethash file *versions*))))
    (incf *version-octets* (length (version-octets version)))
    (dolist (dropped (nthcdr +most-versions+ versions))
      (decf *version-octets* (length (version-octets dropped))))
    (setf (gethash file *versions*) (subseq versions 0 (min +most-versions+ (length versions))))))

(defun kept-file-p (file)
  "Tell whether texts of FILE, a native name, are kept: of the user's own files."
  (and (project-file-p file) (editable-p file)))

;;; When files are loaded

(defun source-to-load (file)
  "Return the native name of the source that LOAD of FILE is about to load, and its octets; else NIL."
  (when (typep file '(or string pathname))
    (let* ((found (or (probe-file file) (probe-file (merge-pathnames file (make-pathname :type "lisp")))))
           (name (and found (sb-ext:native-namestring found)))
           (compiled (and found (assoc name *compiled-texts* :test #'string=))))
      (cond (compiled (values (second compiled) (third compiled)))
            ((or (null name) (equal (pathname-type found) "fasl") (not (kept-file-p name))) nil)
            (t (values name (file-octets found)))))))

(defvar *compiled-from* nil
  "The number of the first code object of the compiled file that is being loaded, or NIL. SBCL may make all code of
such a file before it runs the first form.")

(defun compiled-file-p (file)
  "Tell whether FILE, the argument of LOAD, is a compiled file by its name."
  (typecase file
    ((or string pathname) (equal (pathname-type file) "fasl"))
    (file-stream (equal (ignore-errors (pathname-type file)) "fasl"))))

(defun load-keeping-text (original file &rest arguments)
  "Load FILE by ORIGINAL, and keep the text that was loaded."
  (multiple-value-bind (name octets) (ignore-errors (source-to-load file))
    (let* ((code (next-code))
           (*compiled-from* (and (ignore-errors (compiled-file-p file)) code))
           (complete nil))
      (unwind-protect (multiple-value-prog1 (apply original file arguments)
                        (setf complete t))
        (when name (ignore-errors (keep-version name octets code complete)))))))

(defun compile-without-evaluation (original file &rest arguments)
  "Compile FILE by ORIGINAL. What is evaluated meanwhile must not get into the compiled file: it may be secret, and
not everything can be written there."
  (let* ((plist (internal-symbol "*SOURCE-PLIST*" "SB-C"))
         (name (ignore-errors (sb-ext:native-namestring (truename file))))
         (octets (and name (ignore-errors (kept-file-p name)) (file-octets file)))
         (code (next-code))
         (results (multiple-value-list
                   (progv (and plist (list plist)) (and plist (list (without-evaluation (symbol-value plist))))
                     (apply original file arguments)))))
    (when (and octets (first results))
      (ignore-errors
       ;; The compiler defines macros and types at once.
       (keep-version name octets code nil)
       (push (list (sb-ext:native-namestring (first results)) name octets) *compiled-texts*)
       (setf *compiled-texts* (subseq *compiled-texts* 0 (min 20 (length *compiled-texts*))))))
    (values-list results)))

(defun without-evaluation (plist)
  "Return PLIST without what we have put there, see EVALUATE-FORMS."
  (loop for (key value) on plist by #'cddr
        unless (eq key :evaluated) append (list key value)))

(defun watch-loading ()
  "Keep what is loaded. Done once, before the core is saved."
  (wrap 'load #'load-keeping-text)
  (wrap 'compile-file #'compile-without-evaluation))

;;; Which text a definition came from

(defun code-number (function)
  "Return the number of the code object of FUNCTION, or NIL where this SBCL does not number them."
  (let ((reader (load-time-value (internal-function "%CODE-SERIALNO" "SB-KERNEL"))))
    (and reader (functionp function)
         (ignore-errors
          (funcall (the function reader) (sb-kernel:fun-code-header (sb-kernel:%fun-fun function)))))))

(defun numbered-source (source function)
  "Return SOURCE, of SB-INTROSPECT, with the number of the code of FUNCTION, which it is the source of."
  (let ((number (and source (code-number function))))
    (when number
      (setf (getf (sb-introspect:definition-source-plist source) :code) number))
    source))

(defun version-of (file source)
  "Return the version of FILE from which SOURCE came, or NIL where that is not known."
  (let ((number (getf (sb-introspect:definition-source-plist source) :code)))
    (and number (find-if (lambda (version) (<= (version-code version) number)) (gethash file *versions*)))))

(defun loaded-text-p (file text)
  "Tell whether TEXT stands in what was loaded of FILE last."
  (let ((version (first (gethash file *versions*))))
    (and version (search text (octets-text (version-octets version) 0 (length (version-octets version)))))))

(defun version-offset (version source)
  "Return where in VERSION the toplevel form of SOURCE begins, or NIL. SBCL notes only its number for methods."
  (let ((number (first (sb-introspect:definition-source-form-path source))))
    (or (sb-introspect:definition-source-character-offset source)
        (and (typep number '(integer 0 100000)) (toplevel-place (latin-text (version-octets version)) number)))))

(defun latin-text (octets &optional (start 0) (end (length octets)))
  "Return OCTETS from START to END as a text in which each is one character."
  (sb-ext:octets-to-string octets :start start :end end :external-format :latin-1))

(defun toplevel-text (octets offset)
  "Return the text, one character for each octet, of the form of OCTETS that begins behind OFFSET, and its place."
  (when (< offset (length octets))
    (let* ((text (latin-text octets offset (min (length octets) (+ offset +longest-toplevel-form+))))
           (start (first-read-place text))
           (end (min (length text) (skip-form text start))))
      (and (< start end) (values (subseq text start end) (+ offset start))))))

(defun nearest-place (form text near)
  "Return where FORM stands in TEXT, nearest to the place NEAR, or NIL."
  (let ((best nil))
    (loop for place = (search form text) then (search form text :start2 (1+ place))
          while place
          do (when (or (null best) (< (abs (- place near)) (abs (- best near)))) (setf best place)))
    best))

(defun present-offset (file source)
  "Return where in FILE, as it is now, the toplevel form of SOURCE begins, and whether that is known by content."
  (let* ((version (version-of file source))
         (offset (and version (version-offset version source)))
         (now (and offset (source-octets file))))
    (cond ((null now) (values nil nil))
          ((equalp now (version-octets version)) (values offset t))
          (t (let ((form (toplevel-text (version-octets version) offset)))
               (values (and form (nearest-place form (latin-text now) offset)) t))))))

(defun present-source (file source)
  "Return SOURCE with the offset that its form has in FILE now. NIL where the text of the form is another by now."
  (multiple-value-bind (offset known) (present-offset file source)
    (cond ((not known) (if (written-since-p file source) nil source))
          ((null offset) nil)
          (t (let ((moved (copy-structure source)))
               (setf (sb-introspect:definition-source-character-offset moved) offset)
               moved)))))

(defun changed-since-p (file source)
  "Tell whether the toplevel form of SOURCE, of SB-INTROSPECT, is another in FILE than when it was loaded."
  (null (present-source file source)))
