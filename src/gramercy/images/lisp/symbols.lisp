;;;; From the text of a name to what it names. One resolver for all operations:
;;;; SYM, PKG:SYM, PKG::SYM, |Mixed|, (setf SYM). It never interns; a name it
;;;; cannot find is answered with the nearest ones there are.

(in-package #:gramercy.image)

(define-condition unknown-name (error)
  ((kind :initarg :kind :reader unknown-name-kind)
   (text :initarg :text :reader unknown-name-text)
   (place :initarg :place :initform nil :reader unknown-name-place)
   (reason :initarg :reason :initform nil :reader unknown-name-reason)
   (suggestions :initarg :suggestions :initform '() :reader unknown-name-suggestions))
  (:report (lambda (condition stream)
             (format stream "~a ~a not found~@[ in package ~a~]~@[: ~a~]."
                     (string-capitalize (unknown-name-kind condition))
                     (shorten (unknown-name-text condition) 200)
                     (unknown-name-place condition)
                     (unknown-name-reason condition))))
  (:documentation "Signalled for a name that names nothing of the kind that was asked for."))

(defun unknown-name-members (condition)
  "Return what a reply tells of CONDITION."
  (list "type" (format nil "~:@(~a~)-NOT-FOUND" (unknown-name-kind condition))
        "message" (condition-message condition)
        "suggestions" (cons :array (unknown-name-suggestions condition))))

;;; Near matches

(defconstant +most-suggestions+ 5 "Near matches told; more would be guesses.")

(defconstant +longest-misspelt+ 100 "Characters of a name to which near ones are looked for: the time grows with the square.")

(defun edit-distance (one other limit)
  "Return how many characters have to be changed, added or dropped between ONE and OTHER; beyond LIMIT any number."
  (let* ((width (1+ (length other)))
         (row (make-array width)))
    (dotimes (column width) (setf (svref row column) column))
    (loop for here across one
          for number from 1
          do (let ((diagonal (svref row 0)) (best number))
               (setf (svref row 0) number)
               (loop for column from 1 below width
                     for cost = (min (1+ (svref row column))
                                     (1+ (svref row (1- column)))
                                     (+ diagonal (if (char-equal here (char other (1- column))) 0 1)))
                     do (setf diagonal (svref row column)
                              (svref row column) cost
                              best (min best cost)))
               (when (> best limit) (return-from edit-distance best))))
    (svref row (1- width))))

(defun swapped-p (one other)
  "Tell whether two neighbours have changed places between ONE and OTHER, and nothing else: the commonest slip."
  (let ((place (mismatch one other :test #'char-equal)))
    (and place
         (= (length one) (length other))
         (< (1+ place) (length one))
         (char-equal (char one place) (char other (1+ place)))
         (char-equal (char one (1+ place)) (char other place))
         (string-equal one other :start1 (+ place 2) :start2 (+ place 2)))))

(defun nearest (text candidates)
  "Return those of the strings CANDIDATES that differ little from TEXT, the nearest first."
  ;; Of one or two characters nothing is close: any other name would be.
  (let ((limit (floor (length text) 3)))
    (loop with candidates = (if (> (length text) +longest-misspelt+) '() candidates)
          with found = '()
          for candidate in candidates
          do (when (<= (abs (- (length candidate) (length text))) limit)
               (let ((distance (if (swapped-p text candidate) 1 (edit-distance text candidate limit))))
                 (when (<= distance limit) (push (cons distance candidate) found))))
          finally (setf found (sort (remove-duplicates found :test #'equal) #'near-before-p))
                  (return (mapcar #'cdr (subseq found 0 (min +most-suggestions+ (length found))))))))

(defun near-before-p (one other)
  "Order pairs of distance and text."
  (or (< (car one) (car other))
      (and (= (car one) (car other)) (string< (cdr one) (cdr other)))))

(defun near-symbols (text package)
  "Return the names of symbols of PACKAGE, own or inherited, that are close to TEXT and mean something."
  (nearest text (let ((names '()))
                  (do-symbols (symbol package)
                    (when (or (fboundp symbol) (boundp symbol) (find-class symbol nil))
                      (push (symbol-name symbol) names)))
                  names)))

(defun near-packages (text)
  "Return the names of packages that are close to TEXT."
  (nearest text (loop for package in (list-all-packages)
                      append (cons (package-name package) (package-nicknames package)))))

;;; Parsing

(defun fold-name (text)
  "Return TEXT, part of a name as it is typed, as the reader would fold it: upper case outside of bars."
  (with-output-to-string (name)
    (loop with barred = nil
          with place = 0
          while (< place (length text))
          do (let ((character (char text place)))
               (cond ((and (char= character #\\) (< (1+ place) (length text)))
                      (write-char (char text (incf place)) name))
                     ((char= character #\|) (setf barred (not barred)))
                     (t (write-char (if barred character (char-upcase character)) name))))
             (incf place))))

(defun package-marker (text)
  "Return the place of the first colon of TEXT outside of bars, or NIL."
  (loop with barred = nil
        for character across text
        for place from 0
        do (case character
             (#\| (setf barred (not barred)))
             (#\: (unless barred (return place))))))

(defun trimmed (text)
  "Return TEXT without the blanks around it, and without the quote of #'NAME or 'NAME."
  (string-left-trim "#'" (string-trim '(#\Space #\Tab #\Newline #\Return) text)))

(defun find-named-package (text)
  "Return the package called TEXT, as given, or folded, or as a nickname of the current one; else NIL."
  (let ((*package* *current-package*))
    (or (find-package text)
        (find-package (fold-name text))
        (find-package (string-upcase text)))))

(defun resolve-package (text)
  "Return the package called TEXT, or signal UNKNOWN-NAME with near matches."
  (let ((name (string-left-trim "#:" (trimmed text))))
    (or (find-named-package name)
        (error 'unknown-name :kind "package" :text name :suggestions (near-packages (string-upcase name))))))

(defun question-package (request)
  "Return the package in which the names of REQUEST are to be read."
  (let ((name (request-optional-text request :package)))
    (cond (name (resolve-package name))
          ((package-name *current-package*) *current-package*)
          (t (user-package)))))

(defun resolve-symbol (text package)
  "Return the symbol called TEXT, seen from PACKAGE, or signal UNKNOWN-NAME with near matches."
  (let* ((text (trimmed text))
         (marker (package-marker text))
         (home (cond ((null marker) package)
                     ((zerop marker) (find-package :keyword))
                     (t (resolve-package (subseq text 0 marker)))))
         (name (fold-name (if marker (string-left-trim ":" (subseq text marker)) text))))
    (multiple-value-bind (symbol status) (find-symbol name home)
      (cond (status symbol)
            ((find-exact text marker home))
            (t (error 'unknown-name :kind "symbol" :text text :place (display-package-name home)
                                    :suggestions (suggested-symbols name home marker)))))))

(defun suggested-symbols (name home marker)
  "Return what may be meant by NAME, which HOME does not have: the same name in other packages, unless MARKER says
that one was given, and near names."
  (let ((same (and (null marker) (mapcar #'shown-name (namesakes name))))
        (near (near-symbols name home)))
    (append (subseq same 0 (min +most-suggestions+ (length same)))
            (if marker
                (mapcar (lambda (near) (let ((symbol (find-symbol near home))) (if symbol (shown-symbol symbol) near)))
                        near)
                near))))

(defun namesakes (name)
  "Return the symbols of all packages called NAME that mean something, the user's first; no internals of SBCL or ours."
  (let ((found '()))
    (dolist (package (list-all-packages))
      (multiple-value-bind (symbol status) (find-symbol name package)
        (when (and (member status '(:internal :external)) (not (keywordp symbol))
                   (not (eq :ours (package-owner package)))
                   (or (eq status :external) (not (eq :system (package-owner package))))
                   (meaningful-p symbol))
          (pushnew symbol found))))
    ;; By name where owners are the same: packages are listed in no order that lasts.
    (stable-sort (sort found #'string< :key (lambda (symbol) (package-name (symbol-package symbol))))
                 #'< :key (lambda (symbol) (owner-rank (package-owner (symbol-package symbol)))))))

(defun find-exact (text marker package)
  "Return the symbol of PACKAGE spelled exactly as TEXT, for names typed without their bars."
  (values (find-symbol (if marker (string-left-trim ":" (subseq text marker)) text) package)))

(defun list-words (text)
  "Return the words and inner lists, as texts, of TEXT, which is a list as tools print the names of definitions."
  (let ((place 1) (words '()))
    (loop (setf place (skip-text-blanks text place))
          (when (or (>= place (length text)) (char= (char text place) #\))) (return (nreverse words)))
          (let ((end (skip-form text place)))
            (when (<= end place) (return (nreverse words)))
            (push (subseq text place end) words)
            (setf place end)))))

(defun listed-name (words)
  "Return the word of WORDS, of a list that names a definition, under which that can be found; NIL where none is.
(METHOD NAME ...), (MACRO-FUNCTION NAME) and (FLET X :IN NAME) lead to NAME."
  (let ((inside (member ":in" words :test #'string-equal)))
    (cond (inside (second inside))
          ((member (first words) '("method" "macro-function" "compiler-macro-function" "fast-method" "slow-method"
                                   "sb-pcl::fast-method" "sb-pcl::slow-method")
                   :test #'string-equal)
           (second words)))))

(defun resolve-function-name (text package)
  "Return the function name, a symbol or a list (SETF symbol), that TEXT spells."
  (let ((text (trimmed text)))
    (if (and (plusp (length text)) (char= (char text 0) #\())
        (let* ((words (list-words text))
               (inner (listed-name words)))
          (cond (inner (resolve-function-name inner package))
                ((and (= (length words) 2) (string-equal (first words) "setf"))
                 (list 'setf (resolve-symbol (second words) package)))
                (t (error 'unknown-name :kind "function" :text text))))
        (resolve-symbol text package))))
