;;;; Who uses a name, from the cross references that the compiler keeps with every
;;;; function. Those of the functions that came with the core are known beforehand, so
;;;; a question costs what the user has loaded.

(in-package #:gramercy.image)

(defconstant +most-places-told+ 4 "Lines told of one definition that uses a name several times.")

(defstruct (use (:copier nil))
  "One definition that uses a name: FUNCTION is called NAME; HOW it uses it, and the numbers of the forms where."
  name function (how '() :type list) (forms '() :type list))

(defun map-functions (function)
  "Call FUNCTION with the name and the object of every function, method and macro of the image."
  (let ((walk (internal-function "MAP-SIMPLE-FUNS" "SB-C")))
    (when walk (funcall walk function))))

(defun map-references (function code)
  "Call FUNCTION with the kind, the name and the form number of each reference that the function CODE keeps."
  (let ((references (ignore-errors (sb-kernel:%simple-fun-xrefs code)))
        (walk (internal-function "MAP-PACKED-XREF-DATA" "SB-C")))
    (when (and references walk) (funcall walk function references))))

(defun definition-of (name code)
  "Return what the definition is called whose function CODE is known under NAME, which can be an object of the compiler."
  (let ((vop-name (internal-function "VOP-INFO-NAME" "SB-C"))
        (vop-p (internal-function "VOP-INFO-P" "SB-C")))
    (cond ((or (symbolp name) (consp name)) name)
          ((and vop-name vop-p (funcall vop-p name)) (list 'sb-c:define-vop (funcall vop-name name)))
          (t (sb-kernel:%fun-name code)))))

;;; What came with the core

(defglobal *core-functions* #() "Conses of name and function, of all functions that were there when the core was saved.")
(defglobal *core-references* (make-hash-table :test 'equal)
  "For each name, the places in *CORE-FUNCTIONS* of the functions that refer to it.")

(defun index-core ()
  "Note who refers to what. Done before a core is saved: from then on its functions are known by their generation."
  (let ((functions '()) (count 0) (table (make-hash-table :test 'equal)))
    (map-functions
     (lambda (name code)
       (push (cons name code) functions)
       (map-references (lambda (kind used form)
                         (declare (ignore kind form))
                         ;; One function refers to a name many times, one after the other.
                         (unless (eql count (first (gethash used table)))
                           (push count (gethash used table))))
                       code)
       (incf count)))
    (clrhash *core-references*)
    (loop for name being the hash-keys of table using (hash-value places)
          do (setf (gethash name *core-references*)
                   (coerce (remove-duplicates places) '(simple-array (unsigned-byte 32) (*)))))
    (setf *core-functions* (coerce (nreverse functions) 'simple-vector))))

(defun core-code-p (code)
  "Tell whether the function CODE was in the core that this process was started from."
  (and (plusp (length *core-functions*)) (core-object-p code)))

(defun current-p (name code)
  "Tell whether NAME, of a function of the core, still means CODE: the user may have defined it anew."
  (if (or (symbolp name) (setf-name-p name))
      (and (fboundp name)
           (eq code (sb-kernel:%fun-fun (or (and (symbolp name) (macro-function name)) (fdefinition name)))))
      t))

(defun map-core-referrers (function name)
  "Call FUNCTION with name and object of the functions of the core that refer to NAME."
  (loop for place across (gethash name *core-references* #())
        for (known . code) = (svref *core-functions* place)
        when (ignore-errors (current-p known code))
          do (funcall function known code)))

;;; What came later

(defun next-code ()
  "Return the number that the next code object gets, or NIL where this SBCL does not number them."
  (let ((counter (load-time-value (internal-symbol "*CODE-SERIALNO*" "SB-C"))))
    (and counter (boundp counter) (symbol-value counter))))

(defun later-functions ()
  "Return conses of name and function of all functions that came after the core. They are looked for again where code
was made or a definer has run since, or where threads of the user's may define some at any time."
  (let ((latest (next-code)))
    (if (and latest (eql latest (first *later-functions*)) (null (user-threads)))
        (rest *later-functions*)
        (let ((found '()))
          (flet ((look (name code) (unless (core-code-p code) (push (cons name code) found))))
            (if *snapshot* (map-later-functions #'look) (map-functions #'look)))
          (setf *later-functions* (cons latest found))
          found))))

(defun collect-uses (name kinds)
  "Return the uses of NAME as KINDS say, ours left out; each definition once."
  (let ((uses '()))
    (flet ((look (known code)
             (let ((use nil))
               (map-references
                (lambda (kind used form)
                  (when (and (member kind kinds) (equal used name))
                    (unless use
                      (setf use (make-use :name (definition-of known code) :function code))
                      (push use uses))
                    (pushnew kind (use-how use))
                    (push form (use-forms use))))
                code))))
      (map-core-referrers #'look name)
      (loop for (known . code) in (later-functions) do (look known code)))
    (remove :ours (merged-uses uses) :key (lambda (use) (name-owner (use-name use))))))

(defun merged-uses (uses)
  "Return USES with those of one name made one: a definition can consist of several functions."
  (let ((table (make-hash-table :test 'equal)))
    (dolist (use uses)
      (let ((first (gethash (use-name use) table)))
        (if (and first (eq (use-function first) (use-function use)))
            (setf (use-how first) (union (use-how first) (use-how use)))
            (unless first (setf (gethash (use-name use) table) use)))))
    (loop for use being the hash-values of table collect use)))

;;;; Their text

(defun use-source (use)
  "Return the definition source of USE, or NIL."
  (source-of (use-function use)))

(defun use-place (use)
  "Return FILE:LINE of USE, with the lines of further uses, or NIL."
  (let* ((source (use-source use))
         (pathname (and source (sb-introspect:definition-source-pathname source))))
    (if (null pathname)
        (and (users-definition-p (use-name use)) "session")
        (let* ((file (native-name pathname))
               (lines (use-lines file source (use-forms use)))
               (told (subseq lines 0 (min +most-places-told+ (length lines)))))
          (format nil "~a~@[:~{~d~^,~}~]~:[~;,…~]~:[~; (the file has changed since)~]" (shown-file file) told
                  (> (length lines) (length told))
                  (changed-since-p file source))))))

(defun use-lines (file source forms)
  "Return the lines of FILE in which the FORMS, numbers in the toplevel form of SOURCE, stand."
  (let ((source (copy-structure source)))
    (sort (remove-duplicates
           (remove nil
                   (mapcar (lambda (form)
                             (setf (sb-introspect:definition-source-form-number source) form)
                             (ignore-errors (source-line file source)))
                           (remove-duplicates forms))))
          #'<)))

(defun users-definition-p (name)
  "Tell whether NAME was defined in the session."
  (or (gethash (cons :function name) *definitions*)
      (and (consp name) (eq :user (name-owner name)))))

(defun how-text (use)
  "Return in what ways USE uses a variable, or NIL where it calls."
  (let ((words (loop for (kind word) in '((:references "reads") (:sets "sets") (:binds "binds"))
                     when (member kind (use-how use)) collect word)))
    (and words (format nil "(~{~a~^, ~})" words))))

(defun use-line (use)
  "Return the line about USE."
  (format nil "  ~a~@[ ~a~]~@[  ~a~]" (shown-name (use-name use)) (how-text use) (use-place use)))

(defun sorted-uses (uses)
  "Return lists of the rank of the owner, the name and the use, of USES, the user's first."
  (sort (mapcar (lambda (use) (list (owner-rank (name-owner (use-name use))) (definition-name (use-name use)) use))
                uses)
        (lambda (one other)
          (or (< (first one) (first other))
              (and (= (first one) (first other)) (string< (second one) (second other)))))))

(defun shown-uses (sorted package)
  "Return the uses of SORTED that are told one by one: all but SBCL's, and those of PACKAGE where it is asked for.
Where there are few, SBCL's too."
  (if (<= (length sorted) 15)
      (mapcar #'third sorted)
      (loop for (rank nil use) in sorted
            when (or (< rank 2) (and package (eq package (name-package (use-name use)))))
              collect use)))

(defun use-lines-fitting (uses)
  "Return the lines about the first of USES, as far as there is room."
  (loop with room = (- +longest-text+ 1000)
        for use in uses
        for line = (use-line use)
        do (decf room (1+ (length line)))
        while (>= room 0)
        collect line))

(defun asked-package (request)
  "Return the package that REQUEST names, or NIL."
  (let ((name (request-optional-text request :package))) (and name (resolve-package name))))

(defun answer-uses (request name verb uses)
  "Answer REQUEST with USES of NAME, which is used as VERB says."
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (sorted (sorted-uses uses))
         (lines (use-lines-fitting (shown-uses sorted (asked-package request))))
         (told (subseq (shown-uses sorted (asked-package request)) 0 (length lines)))
         (folded (set-difference (mapcar #'third sorted) told)))
    (answer request
            (joined (append
                     (list (format nil "~a is ~a by ~:[no known definition.~;~:*~:d definition~:p:~]"
                                   (shown-name name) verb (and uses (length uses))))
                     lines
                     (and folded
                          (list (format nil "  … ~:[~;and ~]~a: give package to see those of one" lines
                                        (counts-text (mapcar #'use-name folded)))))
                     (list (missed-line name))))
            "name" (definition-name name)
            "references" (map 'vector #'second sorted))))

(defun missed-line (name)
  "Return the line about uses of NAME that the list cannot have."
  (format nil "Not seen: ~@[~a, ~]code that uses the symbol at run time, code compiled without cross references."
          (and (fboundp name)
               (not (and (symbolp name) (macro-function name)))
               (if (or (compiler-fact :function :inlinep name) (compiler-fact :function :source-transform name))
                   "calls that were compiled inline (this function is)"
                   nil))))

(defun variable-name-p (name)
  "Tell whether NAME is that of a global variable, a constant or a symbol macro."
  (and (symbolp name) (or (boundp name) (not (null (sb-cltl2:variable-information name))))))

(define-question "who_calls" (request package)
  (let ((name (resolve-function-name (request-text request :function) package)))
    (cond ((and (not (fboundp name)) (variable-name-p name))
           (answer-uses request name "a variable, referred to" (collect-uses name '(:references :sets :binds))))
          ((and (symbolp name) (macro-function name))
           (answer-uses request name "called" (collect-uses name '(:calls :macroexpands))))
          (t (answer-uses request name "called" (collect-uses name '(:calls)))))))

(define-question "who_references" (request package)
  (let ((name (resolve-symbol (request-text request :variable) package)))
    (answer-uses request name "referred to" (collect-uses name '(:references :sets :binds)))))
