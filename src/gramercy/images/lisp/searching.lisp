;;;; Questions that find names: by a part of them, by their package, by their beginning.

(in-package #:gramercy.image)

(defconstant +most-rows+ 100 "Names found by a search that are told, where the request does not say.")

(defun symbol-meanings (symbol)
  "Return the kinds of SYMBOL's definitions."
  (remove nil (list (if (special-operator-p symbol) "special-operator" (function-kind symbol))
                    (and (not (fboundp symbol)) (fboundp (list 'setf symbol)) "setf-function")
                    (and (not (keywordp symbol)) (variable-kind symbol))
                    (type-kind symbol))))

;;;; By a part of the name

(declaim (inline upper))
(defun upper (character)
  "Return CHARACTER in upper case; of ASCII without a look into tables."
  (let ((code (char-code character)))
    (cond ((<= 97 code 122) (code-char (- code 32)))
          ((< code 128) character)
          (t (char-upcase character)))))

(defmacro define-finder (name type)
  "Define the function NAME of a pattern in upper case and a string of TYPE: where the first stands in the second."
  `(defun ,name (pattern name)
     (declare (type (simple-array character (*)) pattern) (type ,type name) (optimize speed (safety 0)))
     (let ((width (length pattern))
           (first (schar pattern 0)))
       (loop for start of-type fixnum from 0 to (- (length name) width)
             when (and (char= first (upper (schar name start)))
                       (loop for index of-type fixnum from 1 below width
                             always (char= (schar pattern index) (upper (schar name (+ start index))))))
               return start))))

;; One for each kind of string: which it is need not be asked for each character.
(define-finder find-in-base simple-base-string)
(define-finder find-in-characters (simple-array character (*)))

(defun holds-p (pattern name)
  "Return where PATTERN, in upper case, stands in NAME, or NIL; upper and lower case are the same."
  (declare (type (simple-array character (*)) pattern) (type simple-string name))
  (cond ((zerop (length pattern)) 0)
        ((typep name 'simple-base-string) (find-in-base pattern name))
        (t (find-in-characters pattern name))))

(defstruct (finding (:copier nil))
  "A symbol that a search has found; RANK orders it."
  symbol (rank 0 :type fixnum) owner externalp)

(defun rank-of (owner externalp match)
  "Return the place of a finding: whole names first, then by OWNER, what is exported, and names that begin so."
  (+ (if (eq match :whole) 0 1000)
     (* 100 (owner-rank owner))
     (if externalp 0 10)
     (if (eq match :inside) 1 0)))

;;; The names of the core, by the runs of three characters in them

(defglobal *indexed-symbols* #() "The symbols of the core that a search for a part of a name finds.")
(defglobal *symbol-index* nil
  "For each run of three characters, in upper case, the places in *INDEXED-SYMBOLS* of the names that hold it, or NIL.")

(defun run-key (name start)
  "Return the number under which the three characters of NAME from START are indexed. Others can share it."
  (flet ((code (offset) (char-code (upper (schar name (+ start offset))))))
    (logxor (ash (code 0) 32) (ash (code 1) 16) (code 2))))

(defun searched-package-p (package)
  "Tell whether names of PACKAGE are found: not ours, and no keywords."
  (not (or (own-package-p package) (eq package (load-time-value (find-package :keyword))))))

(defun index-names ()
  "Note which names hold what. Done before a core is saved."
  (let ((index (make-hash-table)) (symbols '()) (count 0))
    (dolist (package (remove-if-not #'searched-package-p (list-all-packages)))
      (map-home-symbols
       (lambda (symbol)
         (push symbol symbols)
         (loop with name = (symbol-name symbol)
               for start to (- (length name) 3)
               for key = (run-key name start)
               unless (eql count (first (gethash key index))) do (push count (gethash key index)))
         (incf count))
       package))
    (let ((place (if (< count (expt 2 16)) '(unsigned-byte 16) '(unsigned-byte 32))))
      (loop for key being the hash-keys of index using (hash-value places)
            do (setf (gethash key index) (coerce places `(simple-array ,place (*))))))
    (setf *indexed-symbols* (coerce (nreverse symbols) 'simple-vector)
          *symbol-index* (and *snapshot* index))))

(defun indexed-candidates (pattern)
  "Return the places of the names of the core that may hold PATTERN: those with the rarest run of three in it."
  (loop with fewest = nil
        for start to (- (length pattern) 3)
        for places = (gethash (run-key pattern start) *symbol-index* #())
        when (or (null fewest) (< (length places) (length fewest))) do (setf fewest places)
        finally (return fewest)))

(defun map-home-symbols (function package)
  "Call FUNCTION with each symbol that is at home in PACKAGE."
  (with-package-iterator (next package :internal :external)
    (loop (multiple-value-bind (more symbol) (next)
            (unless more (return))
            (when (eq (symbol-package symbol) package) (funcall function symbol))))))

(defun map-candidates (function pattern)
  "Call FUNCTION with all symbols whose names may hold PATTERN. Of the core's, most are left out; packages that have
got symbols since are walked."
  (let ((indexed (and *symbol-index* (>= (length pattern) 3))))
    (when indexed
      (loop for place across (indexed-candidates pattern)
            for symbol = (svref *indexed-symbols* place)
            ;; One that is at home nowhere was uninterned.
            when (symbol-package symbol) do (funcall function symbol)))
    (dolist (package (list-all-packages))
      (when (and (searched-package-p package) (or (not indexed) (grown-p package)))
        (map-home-symbols function package)))))

(defun find-symbols (pattern package)
  "Return findings for PATTERN in all packages but ours, or among the symbols that PACKAGE sees; unsorted."
  (let ((pattern (coerce (string-upcase pattern) '(simple-array character (*))))
        (seen (make-hash-table :test 'eq)))
    (flet ((look (symbol)
             (let ((place (holds-p pattern (symbol-name symbol))))
               (when place
                 (setf (gethash symbol seen)
                       (cond ((plusp place) :inside)
                             ((= (length pattern) (length (symbol-name symbol))) :whole)
                             (t :beginning)))))))
      (if package
          (do-symbols (symbol package) (look symbol))
          (map-candidates #'look pattern)))
    (loop for symbol being the hash-keys of seen using (hash-value match)
          unless (own-package-p (symbol-package symbol))
            collect (make-symbol-finding symbol match))))

(defun make-symbol-finding (symbol match)
  "Return the finding of SYMBOL, which was found as MATCH says."
  (let* ((owner (package-owner (symbol-package symbol)))
         (externalp (exported-p symbol)))
    (make-finding :symbol symbol :owner owner :externalp externalp :rank (rank-of owner externalp match))))

(defun internal-finding-p (finding)
  "Tell whether FINDING is one of SBCL's internals and not the very name that was sought."
  (and (eq (finding-owner finding) :system) (not (finding-externalp finding)) (>= (finding-rank finding) 1000)))

(defun finding-before-p (one other)
  "Order findings by rank, name and package."
  (let ((first (finding-symbol one)) (second (finding-symbol other)))
    (cond ((/= (finding-rank one) (finding-rank other)) (< (finding-rank one) (finding-rank other)))
          ((string/= (symbol-name first) (symbol-name second))
           (and (string< (symbol-name first) (symbol-name second)) t))
          (t (and (string< (package-label (symbol-package first)) (package-label (symbol-package second))) t)))))

(defun sorted-findings (findings)
  "Return FINDINGS in their order, without SBCL's internals where anything else is found."
  (sort (or (remove-if #'internal-finding-p findings) (copy-list findings)) #'finding-before-p))

(defun symbol-summary (symbol)
  "Return one line about SYMBOL, or NIL where it means nothing."
  (let ((meanings (symbol-meanings symbol)))
    (and meanings (format nil "~a (~{~a~^, ~})" (shown-name symbol) meanings))))

(defun take-findings (sorted limit)
  "Return, of the findings SORTED, the symbols that mean something and are told, and their lines."
  (let ((room (- +longest-text+ 500)) (symbols '()) (lines '()))
    (dolist (finding sorted)
      (when (>= (length lines) limit) (return))
      (let ((line (symbol-summary (finding-symbol finding))))
        (when line
          (when (minusp (decf room (1+ (length line)))) (return))
          (push (finding-symbol finding) symbols)
          (push line lines))))
    (values (nreverse symbols) (nreverse lines))))

(defun rest-line (findings told package)
  "Return the line about those of FINDINGS that are not TOLD and mean something, or NIL."
  (let ((rest (loop with known = (make-hash-table :test 'eq)
                      initially (dolist (symbol told) (setf (gethash symbol known) t))
                    for finding in findings
                    for symbol = (finding-symbol finding)
                    when (and (not (gethash symbol known)) (likely-meaningful-p symbol))
                      collect symbol)))
    (and rest
         (format nil "… ~a~:[: give package to see those of one~;: give a longer pattern~]" (counts-text rest) package))))

(defun likely-meaningful-p (symbol)
  "Tell, quickly, whether SYMBOL means something. Types that are no classes are few, and may be missed."
  (or (fboundp symbol) (boundp symbol) (find-class symbol nil)))

(define-question "apropos" (request view)
  (let* ((pattern (request-text request :pattern))
         (package (and (request-optional-text request :package) view))
         (limit (min 1000 (request-count request :limit +most-rows+)))
         (findings (find-symbols pattern package)))
    (multiple-value-bind (told lines) (take-findings (sorted-findings findings) limit)
      (answer request
              (joined (or (append lines (remove nil (list (rest-line findings told package))))
                          (list (format nil "No name that means something holds ~s~@[ in ~a~]."
                                        (shorten pattern 100) (and package (display-package-name package))))))
              "symbols" (map 'vector (lambda (symbol)
                                       (list :object "name" (qualified-name symbol)
                                                     "kinds" (coerce (symbol-meanings symbol) 'vector)))
                             told)
              "total" (length findings)))))

;;;; By package

(defglobal *groups*
    '(("special-operator" . "Special operators") ("function" . "Functions") ("generic-function" . "Generic functions")
      ("setf-function" . "Setf functions")
      ("macro" . "Macros") ("variable" . "Variables") ("constant" . "Constants") ("symbol-macro" . "Symbol macros")
      ("class" . "Classes") ("structure" . "Structures") ("condition" . "Conditions") ("type" . "Types")
      ("" . "Only names"))
  "The headings under which the symbols of a package are listed, by kind, in their order.")

(defun package-own-symbols (package internal)
  "Return the symbols PACKAGE exports, or with INTERNAL all that are at home in it, in the order of their names."
  (let ((symbols '()))
    (if internal
        (do-symbols (symbol package)
          (when (eq (symbol-package symbol) package) (pushnew symbol symbols)))
        (do-external-symbols (symbol package) (push symbol symbols)))
    (sort symbols #'string< :key #'symbol-name)))

(defun grouped-symbols (symbols)
  "Return lists of a heading and those of SYMBOLS that belong under it; one with two meanings stands under both."
  (let ((table (make-hash-table :test 'equal)))
    (dolist (symbol symbols)
      (dolist (kind (or (symbol-meanings symbol) '("")))
        (push symbol (gethash kind table))))
    (loop for (kind . heading) in *groups*
          for members = (reverse (gethash kind table))
          when members collect (list heading kind members))))

(defun group-entry (symbol kind with-arglists)
  "Return how SYMBOL is listed under KIND."
  (shorten (if (and with-arglists (member kind '("function" "generic-function" "macro") :test #'string=))
               (format nil "~a ~a" (symbol-token symbol) (or (ignore-errors (arglist-text symbol)) "(...)"))
               (symbol-token symbol))
           +longest-name+))

(defun group-text (group with-arglists room)
  "Return the text of GROUP in at most about ROOM characters; what does not fit is counted."
  (destructuring-bind (heading kind symbols) group
    (let* ((listed (and with-arglists (member kind '("function" "generic-function" "macro") :test #'string=)))
           (entries (mapcar (lambda (symbol) (group-entry symbol kind with-arglists)) symbols)))
      (multiple-value-bind (shown count) (fitting entries (if (string= kind "") (min room 300) room))
        (let ((items (if (< count (length entries))
                         (append shown (list (format nil "… ~:d more" (- (length entries) count))))
                         shown)))
          (format nil (if listed "~a (~:d):~%~{  ~a~^~%~}" "~a (~:d): ~{~a~^ ~}") heading (length symbols) items))))))

(defun groups-text (groups)
  "Return the text of GROUPS, with lambda lists where there is room for all of them."
  (let* ((room (- +longest-text+ 600))
         (full (format nil "~{~a~^~%~}" (mapcar (lambda (group) (group-text group t most-positive-fixnum)) groups))))
    (if (<= (length full) room)
        full
        (let ((short (format nil "~{~a~^~%~}"
                             (mapcar (lambda (group) (group-text group nil most-positive-fixnum)) groups))))
          (if (<= (length short) room)
              (format nil "~a~%describe_symbol shows parameters." short)
              (format nil "~{~a~^~%~}~%apropos_search with this package finds the others." (shared-room groups room)))))))

(defun shared-room (groups room)
  "Return the texts of GROUPS in ROOM characters together; each has at least a few names."
  (let ((total (reduce #'+ groups :key (lambda (group) (length (third group))))))
    (mapcar (lambda (group)
              (group-text group nil (max 100 (floor (* (- room (* 130 (length groups))) (length (third group))) total))))
            groups)))

(defun package-heading (package symbols internal)
  "Return the line about PACKAGE itself, of which SYMBOLS are listed."
  (let ((uses (mapcar #'display-package-name (package-use-list package))))
    (format nil "Package ~a~@[ (nicknames ~{~a~^, ~})~]~@[, uses ~{~a~^, ~}~]: ~:d ~:[external~;own~] symbol~:[s~;~]~
                 ~:[, to be written ~a~:[:~;::~]NAME or given with this package~;~]"
            (package-name package) (package-nicknames package)
            (if (> (length uses) 12) (append (subseq uses 0 12) '("…")) uses)
            (length symbols) internal (= 1 (length symbols))
            (every (lambda (symbol) (visible-p symbol *current-package*)) symbols)
            (name-token (display-package-name package)) internal)))

(define-look "package_symbols" (request)
  (let* ((package (resolve-package (request-text request :package)))
         (internal (getf request :include-internal))
         (symbols (package-own-symbols package internal))
         (*view* (list package))
         (*owners* (make-hash-table :test 'eq)))
    (answer request
            (joined (list (package-heading package symbols internal)
                          (let ((text (plain-documentation package t)))
                            (and (stringp text) (shorten (format nil "~s" text) 400)))
                          (and symbols (groups-text (grouped-symbols symbols)))))
            "package" (package-name package)
            "symbols" (map 'vector #'symbol-token (subseq symbols 0 (min 2000 (length symbols))))
            "total" (length symbols))))

;;;; By the beginning of the name, for a prompt

(defconstant +most-offered+ 100 "Names offered for one beginning: more are not looked through at a prompt.")

(defun token-start (text)
  "Return where the token at the end of TEXT begins, or NIL inside of a string, a comment or a character."
  (let ((start 0) (state :code))
    (loop with place = 0
          while (< place (length text))
          do (let ((character (char text place)))
               (ecase state
                 (:code (cond ((char= character #\") (setf state :string))
                              ((char= character #\;) (setf state :comment))
                              ((and (char= character #\|) (plusp place) (char= (char text (1- place)) #\#))
                               (setf state :block))
                              ((char= character #\\) (incf place))
                              ((find character "()'`, 	
") (setf start (1+ place)))))
                 (:string (cond ((char= character #\\) (incf place))
                                ((char= character #\") (setf state :code start (1+ place)))))
                 (:comment (when (char= character #\Newline) (setf state :code start (1+ place))))
                 (:block (when (and (char= character #\#) (char= (char text (1- place)) #\|))
                           (setf state :code start (1+ place))))))
             (incf place))
    (and (eq state :code)
         (<= start (length text))
         (not (and (< start (length text)) (char= (char text start) #\#)))
         start)))

(defun map-offered-symbols (function token view)
  "Call FUNCTION with the symbols that TOKEN, seen from the package VIEW, may be the beginning of. Return where in
TOKEN the name of the symbol begins."
  (let* ((marker (package-marker token))
         (name (if marker (position #\: token :start marker :test #'char/=) 0))
         (place (or name (length token)))
         (home (cond ((null marker) view)
                     ((zerop marker) (find-package :keyword))
                     (t (find-named-package (subseq token 0 marker))))))
    (cond ((null home))
          ((and marker (or (zerop marker) (= 1 (- place marker))))
           (do-external-symbols (symbol home) (funcall function symbol)))
          (t (do-symbols (symbol home) (funcall function symbol))))
    place))

(defun offered-packages (token)
  "Return the names of packages that TOKEN may be the beginning of, with the colon that comes next."
  (let ((begin (string-upcase token)))
    (loop for package in (list-all-packages)
          unless (or (own-package-p package) (zerop (length token)))
            append (loop for name in (cons (package-name package) (package-nicknames package))
                         when (and (starts-with-p begin name) (plain-name-p name))
                           collect (concatenate 'string name ":")))))

(defun offered-kind (symbol)
  "Return what SYMBOL is, in a word, or NIL where it means nothing."
  (if (keywordp symbol) "keyword" (first (symbol-meanings symbol))))

(defun offered-names (token view)
  "Return pairs of a name and its kind that TOKEN may go on as, in upper case, and where in TOKEN the name begins."
  (let* ((found (make-hash-table :test 'equal))
         (symbols '())
         (place (map-offered-symbols (lambda (symbol) (push symbol symbols)) token view))
         (begin (string-upcase (subseq token place))))
    (dolist (symbol symbols)
      (when (and (starts-with-p begin (symbol-name symbol)) (plain-name-p (symbol-name symbol))
                 (not (own-package-p (symbol-package symbol))))
        (let ((kind (offered-kind symbol)))
          (when kind (setf (gethash (symbol-name symbol) found) kind)))))
    (unless (package-marker token)
      (dolist (name (offered-packages token)) (setf (gethash name found) "package")))
    (values (sort (loop for name being the hash-keys of found using (hash-value kind) collect (cons name kind))
                  #'string< :key #'car)
            place)))

(define-question "complete" (request view)
  (let* ((text (request-text request :text))
         (limit (min +most-offered+ (request-count request :limit +most-offered+)))
         (start (token-start text))
         (token (subseq text (or start (length text)))))
    (multiple-value-bind (names place) (if start (offered-names token view) (values '() 0))
      (let* ((case (if (some #'upper-case-p token) #'identity #'string-downcase))
             (shown (loop for (name . kind) in names
                          repeat limit
                          collect (list :object "name" (funcall case name) "kind" kind))))
        (answer request (joined (mapcar #'third shown))
                "start" (+ (or start (length text)) place)
                "matches" (coerce shown 'vector)
                "total" (length names))))))
