;;;; Loading only some forms of a file: those that have changed since it was loaded, and
;;;; those that keep an old expansion. The other forms are blanked out of a copy, so that
;;;; places and lines are those of the file. What a partial load could get wrong (syntax
;;;; that the file changes, packages) is left to a load of the whole file.

(in-package #:gramercy.image)

(defun always-read-p (form)
  "Tell whether later forms depend on FORM, a text, so that it is loaded along: IN-PACKAGE, IN-SUITE of test frameworks."
  (let ((operator (form-operator form)))
    (or (equal operator "declaim") (eql 3 (mismatch "in-" operator)))))
(defglobal *whole-file* '("in-package" "in-readtable" "declaim" "defpackage" "define-package")
  "Operators of forms after whose change the other forms may mean something else.")
(defglobal *compiled-alone* '("defun" "defmethod" "defmacro" "define-compiler-macro")
  "Operators of forms that have no effect but to define: such a form can be loaded at any time.")

;;;; Forms of a text

(defun form-places (text)
  "Return conses of start and end of the toplevel forms of TEXT."
  (let ((place (skip-text-blanks text 0)) (found '()))
    (loop (when (>= place (length text)) (return (nreverse found)))
          (let ((end (min (length text) (skip-form text place))))
            (when (<= end place) (return (nreverse found)))
            (push (cons place end) found)
            (setf place (skip-text-blanks text end))))))

(defun form-operator (form)
  "Return the operator of FORM, a text, in lower case and without package; or NIL."
  (when (char= (char-at form 0) #\()
    (let* ((start (skip-text-blanks form 1))
           (word (subseq form start (skip-token form start))))
      (string-downcase (subseq word (1+ (or (position #\: word :from-end t) -1)))))))

(defun operator-in-p (form operators)
  "Tell whether the operator of FORM, a text, is one of OPERATORS."
  (member (form-operator form) operators :test #'equal))

(defun plain-syntax-p (text)
  "Tell whether the forms of TEXT can be told apart without its reader: it does not change what characters mean."
  (and (not *reader-changed*)
       (not (strange-syntax-p text))
       (notany (lambda (word) (search word text :test #'char-equal))
               '("macro-character" "syntax-from-char" "-syntax" "*readtable*" "in-readtable"))))

(defun form-texts (text)
  "Return the texts of the toplevel forms of TEXT."
  (loop for (start . end) in (form-places text) collect (subseq text start end)))

(defun changed-places (old new)
  "Return the places of the toplevel forms of the text NEW that OLD has not, and the texts of those that only OLD has."
  (let ((left (make-hash-table :test 'equal)) (changed '()))
    (dolist (form (form-texts old)) (incf (gethash form left 0)))
    (dolist (place (form-places new))
      (let ((form (subseq new (car place) (cdr place))))
        (if (plusp (gethash form left 0))
            (decf (gethash form left))
            (push place changed))))
    (values (nreverse changed)
            (loop for form being the hash-keys of left using (hash-value count) when (plusp count) collect form))))

;;;; Loading some forms

(defun left-out-p (text place places)
  "Tell whether the toplevel form of TEXT at PLACE is not to be loaded, where those in PLACES are. What features rule
out may stay."
  (not (or (member (car place) places :key #'car)
           (always-read-p (subseq text (car place) (cdr place)))
           (and (char= (char text (car place)) #\#) (find (char-at text (1+ (car place))) "+-")
                (eq :skip (feature-p text (car place)))))))

(defun blanked (octets places)
  "Return a copy of OCTETS without the toplevel forms outside of PLACES and those that later forms depend on. Each
leaves a zero at its end, so that the others keep their numbers and begin where SBCL says that they do."
  (let ((copy (copy-seq octets)) (text (latin-text octets)))
    (dolist (place (form-places text) copy)
      (when (left-out-p text place places)
        (loop for index from (car place) below (cdr place)
              unless (= 10 (aref copy index)) do (setf (aref copy index) 32))
        (setf (aref copy (1- (cdr place))) 48)))))

(defun octets-stream (octets file)
  "Return a stream from which OCTETS are read as if they stood in FILE, a native name; SBCL keeps the places."
  (multiple-value-bind (descriptor name) (sb-posix:mkstemp "/tmp/forms-XXXXXX")
    (sb-posix:unlink name)
    (let ((out (sb-sys:make-fd-stream descriptor :output t :element-type '(unsigned-byte 8) :buffering :full)))
      (write-sequence octets out)
      (finish-output out))
    (sb-posix:lseek descriptor 0 sb-posix:seek-set)
    (sb-sys:make-fd-stream descriptor :input t :input-buffer-p t :element-type 'character :buffering :full
                                      :auto-close t :external-format :default
                                      :class (or (internal-symbol "FORM-TRACKING-STREAM" "SB-IMPL") 'sb-sys:fd-stream)
                                      :file file :pathname (sb-ext:parse-native-namestring file))))

(defun load-forms (file octets places)
  "Load those toplevel forms of OCTETS, the text of FILE, that stand in PLACES."
  (with-open-stream (stream (octets-stream (blanked octets places) file))
    (load stream)))

;;;; What has changed in a file

(defun partly-loadable-p (text changed removed)
  "Tell whether the forms CHANGED of TEXT, beside those REMOVED from it, can be loaded alone."
  (and (plain-syntax-p text)
       (notany (lambda (form) (operator-in-p form *whole-file*))
               (append removed (loop for (start . end) in changed collect (subseq text start end))))))

;;;; What a file has no longer

(defun utf-8-text (text)
  "Return what TEXT, one character for each octet, says in UTF-8."
  (let ((octets (sb-ext:string-to-octets text :external-format :latin-1)))
    (octets-text octets 0 (length octets))))

(defun parts-of (form &optional (start 1))
  "Return the texts of the elements of FORM, the text of a list whose first element is sought from START."
  (loop for place = (skip-text-blanks form start)
        until (char= (char-at form place) #\))
        for end = (min (length form) (skip-form form place))
        while (< place end)
        collect (subseq form place end)
        do (setf start end)))

(defun list-text-p (part)
  "Tell whether PART is the text of a list."
  (char= (char-at part 0) #\())

(defun method-heading (parts)
  "Return the name, qualifiers and specializers of a DEFMETHOD, whose elements after the operator are PARTS."
  (let* ((rest (member-if #'list-text-p (rest parts)))
         (required (loop for part in (and rest (parts-of (first rest)))
                         until (char= (char-at part 0) #\&)
                         collect (or (and (list-text-p part) (second (parts-of part))) "t"))))
    (format nil "~{~a ~}(~{~a~^ ~})" (ldiff parts rest) required)))

(defun form-heading (form)
  "Return the operator and the name of FORM, the text of a toplevel form that is known by them and was read; or NIL."
  (cond ((and (char= (char-at form 0) #\#) (find (char-at form 1) "+-"))
         (let ((start (skip-text-blanks form (skip-form form 2))))
           (and (eq :read (feature-p form 0)) (form-heading (subseq form start)))))
        ((list-text-p form)
         (let* ((parts (parts-of form)) (operator (form-operator form)) (name (second parts)))
           (cond ((null name) nil)
                 ((string= operator "defmethod") (format nil "defmethod ~a" (method-heading (rest parts))))
                 ((not (list-text-p name)) (format nil "~a ~a" operator name))
                 ((eql 3 (mismatch "def" operator))
                  (format nil "~a ~{~a~^ ~}" operator
                          (if (string-equal "(setf" (subseq name 0 (min 5 (length name))))
                              (list name)
                              (subseq (parts-of name) 0 (min 1 (length (parts-of name))))))))))))

(defun gone-text (text removed)
  "Return the sentence about those of the forms REMOVED whose names TEXT has no longer, or NIL: their effects stay."
  (let* ((kept (and removed (mapcar #'form-heading (form-texts text))))
         (gone (loop for form in removed
                     for heading = (form-heading form)
                     when (and heading (not (member heading kept :test #'string-equal))) collect heading)))
    (when gone (format nil "Not taken back, though the file has it no longer: ~a." (utf-8-text (named-some gone))))))

(defun take-up-changes (file)
  "Load what has changed in FILE, a native name, since it was loaded: some forms, or all. Return the sentences to say."
  (let* ((version (find-if #'version-complete (gethash file *versions*)))
         (octets (and version (file-octets (sb-ext:parse-native-namestring file))))
         (text (and octets (latin-text octets))))
    (multiple-value-bind (changed removed)
        (and text (changed-places (latin-text (version-octets version)) text))
      (cond ((or (null text) (not (partly-loadable-p text changed removed)))
             (load (sb-ext:parse-native-namestring file))
             (list (and text (plain-syntax-p text) (gone-text text removed))))
            (t (let ((code (next-code)))
                 (when changed (load-forms file octets changed))
                 (keep-version file octets code t)
                 (list (taken-up-text text changed) (gone-text text removed))))))))

(defun taken-up-text (text changed)
  "Return the sentence about the forms CHANGED of TEXT, which were loaded alone."
  (let ((lines (mapcar (lambda (place) (line-number text (car place))) changed)))
    (if lines
        (format nil "Only what changed was loaded: ~d of ~d forms, line~p ~a." (length lines)
                (length (form-places text)) (length lines) (named-some lines))
        "No form of it is new: nothing was loaded.")))

(defun common-length (one other from-end)
  "Return how many octets ONE and OTHER have in common at their beginning, or with FROM-END at their end."
  (declare (type octets one other) (optimize speed))
  (let ((most (min (length one) (length other))) (first (1- (length one))) (second (1- (length other))))
    (declare (type fixnum first second))
    (if from-end
        (loop for count of-type fixnum from 0 below most
              while (= (aref one (- first count)) (aref other (- second count)))
              finally (return count))
        (loop for count of-type fixnum from 0 below most
              while (= (aref one count) (aref other count))
              finally (return count)))))

(defun line-start-p (octets place)
  "Tell whether a line of OCTETS begins at PLACE."
  (or (zerop place) (= 10 (aref octets (1- place)))))

(defun remarks-p (octets start end)
  "Tell whether the lines of OCTETS from START to END, if there are any, are empty or comments."
  (let* ((first (1+ (or (position 10 octets :end start :from-end t) -1)))
         (last (if (line-start-p octets end) end (or (position 10 octets :start end) (length octets)))))
    (every (lambda (line)
             (let ((text (string-left-trim '(#\Space #\Tab) line))) (or (string= text "") (char= (char text 0) #\;))))
           (split-lines (latin-text octets first (max first last))))))

(defun behind-p (file)
  "Tell whether FILE, a native name, has another text than was loaded of it, beside comments."
  (let* ((version (find-if #'version-complete (gethash file *versions*)))
         (now (and version (source-octets file)))
         (then (and now (version-octets version))))
    (and now
         (not (and (= (length now) (length then)) (= (common-length now then nil) (length now))))
         (let* ((start (common-length now then nil))
                (rest (min (common-length now then t) (- (min (length now) (length then)) start))))
           (not (and (remarks-p now start (- (length now) rest))
                     (remarks-p then start (- (length then) rest))))))))

(define-look "loaded_file" (request)
  (let ((file (ignore-errors (sb-ext:native-namestring
                              (truename (sb-ext:parse-native-namestring (request-text request :file)))))))
    (answer request "" "behind" (if (and file (behind-p file)) t :false))))

;;;; Compiling callers again

(defun caller-form (definition)
  "Return the file of DEFINITION, its text as it was loaded, and the place of the form, where that can be loaded alone."
  (let* ((source (source-of (cdr definition)))
         (pathname (and source (sb-introspect:definition-source-pathname source)))
         (file (and pathname (native-name pathname)))
         (version (and file (version-of file source))))
    (when version
      (let* ((offset (version-offset version source))
             (form (toplevel-text (version-octets version) offset))
             (newest (version-octets (first (gethash file *versions*))))
             (place (and form (nearest-place form (latin-text newest) offset))))
        (when (and place (operator-in-p form *compiled-alone*) (plain-syntax-p (latin-text newest)))
          (values file newest (cons place (+ place (length form)))))))))

(defun compile-callers (uses)
  "Compile the definitions of USES again, file by file; return those for which that was done."
  (let ((files '()) (done '()))
    (loop for (nil . definition) in uses
          do (multiple-value-bind (file octets place) (ignore-errors (caller-form definition))
               (when file
                 (let ((entry (or (assoc file files :test #'string=) (first (push (list file octets) files)))))
                   (pushnew place (cddr entry) :test #'equal))
                 (push definition done))))
    (loop for (file octets . places) in files do (load-forms file octets places))
    done))

(defun compile-stale-callers ()
  "Compile what keeps an old expansion again, callers of macros among it too; return the names of what was compiled."
  (let ((done '()))
    (loop repeat +most-rounds+
          do (changed-expanders)
             (let* ((uses (stale-uses (loop for expander being the hash-values of *outdated* collect expander)))
                    (compiled (compile-callers uses)))
               (when (null compiled) (return))
               (setf done (union done (mapcar #'use-label compiled) :test #'string=))
               (mapc #'mark-outdated (mapcar #'car compiled))))
    (sort done #'string<)))

(defun mark-outdated (name)
  "Take the macro or inline function NAME, which was compiled again, for changed: what it is made of has."
  (let ((names (ignore-errors (names-in-place :function name))))
    (when names
      (setf (gethash (cons :function name) *outdated*)
            (make-expander :space :function :name name :names names :code (next-code))))))

(defun say (control &rest arguments)
  "Add a sentence to what the reply to the evaluation that runs tells."
  (when *standing-evaluation* (add-note *standing-evaluation* (apply #'format nil control arguments))))

(defun gramercy:refresh ()
  "Compile the definitions again that keep an old macro, inline function, constant or structure; return their names."
  (let* ((*view* (list *package*))
         (names (compile-stale-callers))
         (left (stale-uses (loop for expander being the hash-values of *outdated* collect expander))))
    (when names (say "Compiled again, as they had an old expansion: ~a." (named-some names)))
    (when left
      (say "Still with an old expansion, since no file has them as a form of their own: ~a."
           (named-some (labels-of left))))
    names))

(defun gramercy:load-changes (file)
  "Load what has changed in FILE since it was loaded here, all of it the first time, and then REFRESH."
  (dolist (said (take-up-changes (sb-ext:native-namestring (truename file))))
    (when said (say "~a" said)))
  (gramercy:refresh)
  (truename file))
