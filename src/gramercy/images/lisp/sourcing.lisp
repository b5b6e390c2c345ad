;;;; The text of a definition, with its file and line, as far as a file or an
;;;; evaluation of the session has it. SBCL tells where in a file a form stood when
;;;; it was read; what stands there must name what is sought, or the file is searched.

(in-package #:gramercy.image)

(defconstant +longest-kept-text+ 20000 "Characters of a definition made in the session that are kept.")
(defconstant +most-kept-texts+ 5000 "Definitions of the session whose text is kept: some megabytes at most.")
(defconstant +most-passages+ 30 "Definitions of one name that are looked for in files.")
(defconstant +sources-room+ 7400 "Characters for definitions; the rest is for what is said about them.")

;;;; Texts of the session

(defglobal *session-texts* (make-hash-table :test 'equal :synchronized t)
  "Keys (space . name), and the text of the toplevel form that defined it in an evaluation.")

(defun mentions-p (text name)
  "Tell whether TEXT has what the definition called NAME, a symbol, a string or a list, must mention."
  (let ((word (typecase name
                (string name)
                (symbol (symbol-name name))
                (cons (return-from mentions-p (mentions-p text (if (setf-name-p name) (second name) (first name))))))))
    (and word (search word text :test #'char-equal) t)))

(defun evaluated-form-text ()
  "Return the text of the toplevel form under way, or NIL where a file is loaded or nothing is evaluated."
  (let ((source *latest-source*))
    (when (and source (null *load-truename*) (null *compile-file-truename*))
      (let* ((text (source-text source))
             (start (skip-text-blanks text (min (source-form-start source) (length text))))
             (end (min (skip-form text start) (+ start +longest-kept-text+))))
        (and (< start end) (subseq text start end))))))

(defun keep-session-text (space name)
  "Keep the text of the evaluation that defines NAME in SPACE; forget it where a file does."
  (let ((text (evaluated-form-text)) (key (cons space name)))
    (if (and text (mentions-p text name) (< (hash-table-count *session-texts*) +most-kept-texts+))
        (setf (gethash key *session-texts*) text)
        (remhash key *session-texts*))))

(defun forget-session-text (space name)
  "Forget the text of NAME in SPACE, whose meaning is another now."
  (remhash (cons space name) *session-texts*))

;;;; Forms in texts

(defun definer-p (text place)
  "Tell whether the list at PLACE of TEXT begins with the name of a definer, or is a method in a DEFGENERIC."
  (when (char= (char-at text place) #\()
    (let* ((start (skip-text-blanks text (1+ place)))
           (word (subseq text start (skip-token text start)))
           (marker (package-marker word)))
      (or (string-equal word ":method")
          (and (or (null marker) (plusp marker))
               (let ((bare (if marker (string-left-trim ":" (subseq word marker)) word)))
                 (or (starts-with-p "DEF" (string-upcase bare)) (starts-with-p "CREATE-" (string-upcase bare)))))))))

(defun element-places (text place)
  "Return conses of start and end of the elements of the list at PLACE of TEXT."
  (let ((next (skip-text-blanks text (1+ place))) (found '()))
    (loop (when (or (>= next (length text)) (char= (char text next) #\)) (> (length found) 2000))
            (return (nreverse found)))
          (let ((end (skip-form text next)))
            (when (<= end next) (return (nreverse found)))
            (push (cons next end) found)
            (setf next (skip-text-blanks text end))))))

(defun word-names-p (word name)
  "Tell whether WORD, as it stands in a text, is the symbol or string NAME, in whatever package."
  (let* ((marker (package-marker word))
         (bare (if marker (string-left-trim ":" (subseq word marker)) word)))
    (string= (fold-name (string-left-trim "#'" bare)) (string name))))

(defun form-names-p (text place name)
  "Tell whether the definer at PLACE of TEXT defines NAME: its second element is it, or a list that begins with it."
  (let ((second (second (element-places text place))))
    (when second
      (destructuring-bind (start . end) second
        (if (char= (char-at text start) #\()
            (let ((words (list-words (subseq text start end))))
              (if (setf-name-p name)
                  (and (string-equal (first words) "setf") (second words) (word-names-p (second words) (second name)))
                  (and words (word-names-p (first words) name))))
            (and (atom name) (word-names-p (subseq text start end) name)))))))

(defun read-place (text place)
  "Return where the form at PLACE of TEXT begins behind #+ and #-; NIL where features rule it out."
  (loop while (and (char= (char-at text place) #\#) (find (char-at text (1+ place)) "+-"))
        do (when (eq :skip (feature-p text place)) (return nil))
           (setf place (skip-text-blanks text (skip-form text (+ place 2))))
        finally (return place)))

(defun inner-definition (text place test &optional (depth 0))
  "Return the place of the first definer in the form at PLACE of TEXT that satisfies TEST, a function of its place."
  (let ((place (read-place text place)))
    (when (and place (char= (char-at text place) #\() (< depth 12))
      (if (and (definer-p text place) (funcall test place))
          place
          (loop for (start) in (element-places text place)
                  thereis (inner-definition text start test (1+ depth)))))))

(defun enclosing-definition (text place target)
  "Return the place of the innermost definer that holds TARGET in the form at PLACE of TEXT; PLACE where none does."
  (let ((found place))
    (loop (let ((inner (find-if (lambda (element) (and (<= (car element) target) (< target (cdr element))))
                                (element-places text place))))
            (when (definer-p text place) (setf found place))
            (when (or (null inner) (char/= (char-at text (car inner)) #\() (>= (car inner) target))
              (when (and inner (definer-p text (car inner))) (setf found (car inner)))
              (return found))
            (setf place (car inner))))))

;;;; Passages

(defstruct (passage (:copier nil))
  "A definition: what it is, under which key the session knows it, and SBCL's own record of its source."
  (label "" :type string)
  space name source
  ;; Where it was found: the file or NIL for the session, the lines, the text, and what is to be said about them.
  file line text note)

(defun method-passage (generic-function method)
  "Return the passage of METHOD of GENERIC-FUNCTION."
  (make-passage :label (format nil "method ~a" (method-label method)) :space :method
                :name (method-name generic-function method)
                :source (source-of method)))

(defun accessor-passage (method)
  "Return the passage of METHOD, which reads or writes a slot: the class that has it."
  (let ((class (car (last (stored-specializers method)))))
    (make-passage :label (format nil "accessor of a slot of ~a" (class-label class)) :space :type
                  :name (stored-name class)
                  :source (source-of class))))

(defun condition-accessor-p (method)
  "Tell whether METHOD reads or writes a slot of a condition, as DEFINE-CONDITION has made it."
  (let ((class (car (last (stored-specializers method))))
        (name (ignore-errors (stored-name (stored-generic-function method)))))
    (and (class-p class) (condition-class-p class)
         (ignore-errors
          (some (lambda (fact) (member name (append (slot-fact-readers fact) (slot-fact-writers fact)) :test #'equal))
                (told-slots class))))))

(defvar *methods-left-out* 0 "How many methods the answer leaves out.")

(defun method-passages (function)
  "Return the passages of the methods of the generic FUNCTION; SBCL's own, where there are many, are left out."
  (let* ((methods (told-methods function))
         (worthy (if (> (length methods) +most-methods-told+) (remove :system methods :key #'car) methods))
         (told (subseq worthy 0 (min +most-passages+ (length worthy)))))
    (incf *methods-left-out* (- (length methods) (length told)))
    (loop for (nil . method) in told
          collect (if (or (accessor-method-p method) (condition-accessor-p method))
                      (accessor-passage method)
                      (method-passage function method)))))

(defun operator-passages (name)
  "Return the passages of NAME as an operator. A generic function that only its methods have made is told by them."
  (when (fboundp name)
    (let* ((function (operator-function name))
           (source (source-of function))
           (methods (and (not (and (symbolp name) (macro-function name)))
                         (generic-function-p function)
                         (method-passages function)))
           (own (make-passage :label (operator-word name) :space :function :name name :source source)))
      (if (and methods
               (not (and source (sb-introspect:definition-source-pathname source)))
               (null (gethash (cons :function name) *session-texts*)))
          methods
          (cons own methods)))))

(defun named-passage (label space name &rest types)
  "Return a list of the passage of NAME as one of TYPES, of SB-INTROSPECT; it is called LABEL."
  (list (make-passage :label label :space space :name name
                      :source (loop for type in types
                                    thereis (first (ignore-errors
                                                    (sb-introspect:find-definition-sources-by-name name type)))))))

(defun symbol-passages (symbol)
  "Return the passages of all that SYMBOL means."
  (let ((class (find-class symbol nil))
        (variable (and (not (keywordp symbol)) (variable-kind symbol) (variable-word symbol))))
    (append (operator-passages symbol)
            (and (compiler-macro-function symbol)
                 (named-passage "compiler macro" :compiler-macro symbol :compiler-macro))
            (operator-passages (list 'setf symbol))
            (and (compiler-fact :setf :expander symbol)
                 (named-passage "setf expander" :setf-expander symbol :setf-expander))
            (and variable (named-passage variable :variable symbol :variable :constant :symbol-macro))
            (cond ((and class (not (unknown-class-p class)))
                   (list (make-passage :label (class-kind-text class) :space :type :name symbol
                                       :source (source-of class))))
                  ((type-kind symbol) (named-passage "type" :type symbol :type)))
            (and (sb-introspect:find-definition-sources-by-name symbol :method-combination)
                 (named-passage "method combination" :method-combination symbol :method-combination)))))

(defun package-passages (text)
  "Return the passage of the package that TEXT names, or NIL."
  (let ((package (find-named-package (string-left-trim "#:" (trimmed text)))))
    (and package (not (own-package-p package))
         (list (make-passage :label "package" :space :package :name (package-name package)
                             :source (source-of package))))))

(defun passages-of (name)
  "Return the passages of NAME, a symbol or a list (SETF symbol)."
  (if (consp name) (operator-passages name) (symbol-passages name)))

;;;; From a passage to its text

(defun method-form-p (text place passage)
  "Tell whether the definer at PLACE of TEXT has the qualifiers and specializers of the method PASSAGE."
  (destructuring-bind (qualifiers specializers) (rest (passage-name passage))
    (let* ((elements (loop for (start . end) in (element-places text place) collect (subseq text start end)))
           (behind (if (string-equal (first elements) ":method") (rest elements) (cddr elements)))
           (list-place (position #\( behind :key (lambda (text) (char-at text 0))))
           (parameters (and list-place (list-words (nth list-place behind)))))
      (flet ((specializer-matches-p (parameter specializer)
               (let ((words (and (char= (char-at parameter 0) #\() (list-words parameter))))
                 (cond ((null words) (eq specializer t))
                       ((consp specializer) (char= (char-at (or (second words) "") 0) #\())
                       (t (word-names-p (or (second words) "T") (symbol-name specializer)))))))
        (and list-place
             (= list-place (length qualifiers))
             (every (lambda (word qualifier) (word-names-p word (princ-to-string qualifier)))
                    (subseq behind 0 list-place) qualifiers)
             (>= (length parameters) (length specializers))
             (every #'specializer-matches-p parameters specializers))))))

(defun fits-p (text place passage)
  "Tell whether the definer at PLACE of TEXT defines PASSAGE."
  (if (eq :method (passage-space passage))
      (and (not (eql (mismatch "(defgeneric" text :start2 place :test #'char-equal) 11))
           (or (form-names-p text place (first (passage-name passage)))
               (eql (mismatch "(:method" text :start2 place :test #'char-equal) 8))
           (method-form-p text place passage))
      (form-names-p text place (passage-name passage))))

(defun set-text (passage text place line)
  "Make the form at PLACE of TEXT, which stands in LINE, the text of PASSAGE."
  (let* ((start (1+ (or (position #\Newline text :end place :from-end t) -1)))
         (margin (and (every (lambda (character) (char<= character #\Space)) (subseq text start place)) start)))
    (setf (passage-line passage) line
          (passage-text passage) (subseq text (or margin place) (form-end text place)))))

(defun form-end (text place)
  "Return where the form at PLACE of TEXT ends; with reader macros of the user's in it, at latest before the next line
that begins a definition."
  (let* ((end (min (length text) (skip-form text place)))
         (next (search (format nil "~%(def") text :start2 place :end2 end :test #'char-equal)))
    (if (and next (strange-syntax-p (subseq text place end))) next end)))

(defun find-at-offset (passage octets)
  "Look for PASSAGE where SBCL says it stood in the file with OCTETS; return whether it is there."
  (let* ((source (passage-source passage))
         (offset (sb-introspect:definition-source-character-offset source))
         (number (sb-introspect:definition-source-form-number source)))
    (when (and offset (<= offset (length octets)))
      (let* ((text (octets-text octets offset (min (length octets) (+ offset +longest-toplevel-form+))))
             (start (first-read-place text))
             (target (if (typep number '(integer 0 100000)) (numbered-place text start number) start))
             (place (enclosing-definition text start target)))
        (unless (fits-p text place passage)
          (let ((inner (inner-definition text start (lambda (place) (fits-p text place passage)))))
            (if inner
                (setf place inner)
                (setf (passage-note passage) "This form has made it."))))
        (set-text passage text place (+ (newlines-before octets offset) (line-number text place)))
        t))))

(defun find-by-name (passage octets)
  "Look for PASSAGE among all forms of the file with OCTETS; return whether it is there."
  (let* ((text (octets-text octets 0 (length octets)))
         (place (skip-text-blanks text 0)))
    (loop (when (>= place (length text)) (return nil))
          (let* ((end (skip-form text place))
                 (found (and (mentions-p (subseq text place (min end (+ place +longest-toplevel-form+)))
                                         (passage-name passage))
                             (inner-definition text place (lambda (place) (fits-p text place passage))))))
            (when found
              (set-text passage text found (line-number text found))
              (return t))
            (when (<= end place) (return nil))
            (setf place (skip-text-blanks text end))))))

(defun dated-source (passage)
  "Return a source that tells when the file of PASSAGE was compiled: its own, or that of a function of the same file.
SBCL notes no date for classes, methods and generic functions."
  (let* ((source (passage-source passage))
         (pathname (sb-introspect:definition-source-pathname source))
         (name (passage-name passage))
         (symbol (find-if #'symbolp (list name (and (consp name) (first name)) (and (consp name) (second name))))))
    (if (or (sb-introspect:definition-source-file-write-date source) (null symbol) (null (symbol-package symbol)))
        source
        (do-symbols (other (symbol-package symbol) source)
          (when (and (eq (symbol-package other) (symbol-package symbol)) (fboundp other)
                     (not (special-operator-p other)))
            (let ((near (source-of (operator-function other))))
              (when (and near (sb-introspect:definition-source-file-write-date near)
                         (equal pathname (sb-introspect:definition-source-pathname near)))
                (return near))))))))

(defun settle-source (passage file)
  "Let the source of PASSAGE tell where its form stands in FILE now; return whether the form is another by now."
  (let ((present (if (version-of file (passage-source passage))
                     (present-source file (passage-source passage))
                     (and (not (changed-since-p file (dated-source passage))) (passage-source passage)))))
    (when present (setf (passage-source passage) present))
    (null present)))

(defun find-in-file (passage file)
  "Look for PASSAGE in FILE, a native name."
  (let* ((octets (source-octets file))
         (changed (and octets (settle-source passage file)))
         (found (and octets
                     (or (and (not changed) (ignore-errors (find-at-offset passage octets)))
                         (ignore-errors (find-by-name passage octets)))))
         (changed (and changed (not (and found (loaded-text-p file (passage-text passage))))))
         (shown (shown-file file)))
    (setf (passage-file passage) shown
          (passage-note passage)
          (cond ((null octets) (format nil "~a cannot be read." shown))
                ((and changed found)
                 (format nil "~a has changed since it was loaded: this is its text now, not what is loaded." shown))
                (changed (format nil "~a has changed since it was loaded, and has no such definition any more." shown))
                ((not found) (format nil "It was not found in ~a." shown))
                (t (passage-note passage))))
    (unless found (setf (passage-line passage) (ignore-errors (source-line file (passage-source passage)))))))

(defun find-in-session (passage)
  "Look for PASSAGE among the texts of the session."
  (let ((text (gethash (cons (passage-space passage) (passage-name passage)) *session-texts*)))
    (if text
        (let ((place (or (ignore-errors (inner-definition text 0 (lambda (place) (fits-p text place passage)))) 0)))
          (set-text passage text place nil))
        (setf (passage-note passage)
              (if (gethash (cons (passage-space passage) (passage-name passage)) *definitions*)
                  "defined in the session; its text is not kept."
                  "SBCL has not kept where it was defined.")))))

(defun find-text (passage)
  "Find the text of PASSAGE, or say why there is none."
  (let ((pathname (and (passage-source passage)
                       (sb-introspect:definition-source-pathname (passage-source passage)))))
    (if pathname
        (find-in-file passage (native-name pathname))
        (find-in-session passage))
    passage))

;;;; The answer

(defun passage-place (passage)
  "Return the place of PASSAGE as it is told, or NIL."
  (cond ((passage-file passage) (format nil "at ~a~@[:~d~]" (passage-file passage) (passage-line passage)))
        ((passage-text passage) "in the session")))

(defun passage-head (passage name)
  "Return the line about PASSAGE, of what is called NAME."
  (let ((lines (and (passage-text passage) (1+ (count #\Newline (passage-text passage))))))
    (format nil "~a: ~a~@[ ~a~]~@[, ~d line~:p~]~@[~%[~a]~]"
            name (passage-label passage) (passage-place passage) lines (passage-note passage))))

(defun same-text-p (one other)
  "Tell whether ONE and OTHER are one and the same form."
  (and (passage-text one)
       (equal (passage-file one) (passage-file other))
       (if (passage-line one)
           (equal (passage-line one) (passage-line other))
           (equal (passage-text one) (passage-text other)))))

(defun cut-lines (passage room)
  "Return the text of PASSAGE as far as ROOM lets it, whole lines, with a line about the rest."
  (let ((text (passage-text passage)))
    (if (<= (length text) room)
        text
        (let* ((end (or (position #\Newline text :end (max 0 room) :from-end t) 0))
               (shown (count #\Newline text :end end)) (all (count #\Newline text)))
          (format nil "~a~%… ~d more lines~@[: see ~a~]" (subseq text 0 end) (- all shown)
                  (and (passage-line passage)
                       (format nil "~a:~d-~d" (passage-file passage) (+ (passage-line passage) shown 1)
                               (+ (passage-line passage) all))))))))

(defun called (passage name)
  "Return how what PASSAGE defines is called, where NAME was asked for."
  (case (passage-space passage)
    (:package name)
    (:method (shown-name (first (passage-name passage))))
    (:function (shown-name (passage-name passage)))
    (t (shown-name name))))

(defun passages-lines (passages name)
  "Return the lines about PASSAGES of NAME: the head of each, and the text of each form once, as there is room."
  (let ((room (- +sources-room+ (loop for passage in passages
                                      sum (1+ (length (passage-head passage (called passage name)))))))
        (seen '()) (silent 0))
    (append
     (loop for passage in passages
           for known = (find passage seen :test #'same-text-p)
           collect (if known
                       (format nil "~a: ~a, by the same form" (called passage name) (passage-label passage))
                       (passage-head passage (called passage name)))
           when (and (passage-text passage) (not known))
             if (> room 80)
               collect (let ((text (cut-lines passage room))) (decf room (length text)) text)
             else do (incf silent)
           end
           do (push passage seen))
     (and (plusp silent)
          (list (format nil "… no room for the text of ~d of these: ask for one, as in (method ~a (CLASS))" silent
                        (shown-name name)))))))

(defun bare-label (text)
  "Return TEXT, the label of a method, in upper case and without packages."
  (with-output-to-string (bare)
    (loop with place = 0
          while (< place (length text))
          do (let* ((end (max (1+ place) (skip-token text place)))
                    (word (subseq text place end))
                    (marker (position #\: word :from-end t)))
               (write-string (string-upcase (if (and marker (plusp (position #\: word)))
                                                (subseq word (1+ marker))
                                                word))
                             bare)
               (setf place end)))))

(defun asked-method (text passages)
  "Return those of PASSAGES that TEXT, a list as tools print the names of methods, means; all where it is none."
  (let* ((text (trimmed text))
         (words (and (char= (char-at text 0) #\() (list-words text)))
         (label (and (string-equal (or (first words) "") "method") (cddr words)
                     (bare-label (format nil "method ~{~a~^ ~}" (cddr words))))))
    (or (and label
             (remove-if-not (lambda (passage) (string= (bare-label (passage-label passage)) label)) passages))
        passages)))

(defun own-names (text package given)
  "Return the names that TEXT means, seen from PACKAGE. Where that has none and GIVEN says that no package was asked
for, those of the user's other packages."
  (handler-case
      (let ((name (resolve-function-name text package)))
        (if (or given (consp name) (passages-of name) (package-marker (trimmed text)))
            (list name)
            (or (users-namesakes (symbol-name name)) (list name))))
    (unknown-name (condition)
      (or (and (not given) (null (package-marker (trimmed text)))
               (users-namesakes (fold-name (trimmed text))))
          (and (package-passages text) '())
          (if (package-passages text) '() (error condition))))))

(defun users-namesakes (name)
  "Return the symbols called NAME of the user's packages that mean something."
  (remove :user (namesakes name) :test-not #'eq
                                 :key (lambda (symbol) (package-owner (symbol-package symbol)))))

(defun name-lines (name text)
  "Return the lines about the definitions of NAME, which is asked for as TEXT, and those definitions."
  (let* ((*methods-left-out* 0)
         (passages (mapcar #'find-text (asked-method text (passages-of name)))))
    (values (if passages
                (append (passages-lines passages name)
                        (and (plusp *methods-left-out*)
                             (list (format nil "… ~:d more methods" *methods-left-out*))))
                (list (format nil "~a has no definition." (shown-name name))))
            passages)))

(defun passage-object (passage)
  "Return PASSAGE as an object of the answer."
  (list :object "what" (passage-label passage) "place" (passage-place passage) "note" (passage-note passage)))

(define-question "find_definition" (request package)
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (text (request-text request :symbol))
         (names (own-names text package (request-optional-text request :package)))
         (lines '()) (found '()))
    (dolist (name names)
      (multiple-value-bind (told passages) (name-lines name text)
        (setf lines (append lines told) found (append found passages))))
    (unless found
      (let ((package (mapcar #'find-text (package-passages text))))
        (when package
          (setf found package
                lines (passages-lines package (passage-name (first package)))))))
    (answer request
            (joined (append lines (and names (null (rest names)) (other-symbols-lines (first names) text))
                            (and (null found) names (rest (nothing-lines (first names))))))
            "definitions" (map 'vector #'passage-object found))))
