;;;; Where a definition stands: FILE:LINE, as far as SBCL has kept it. Files of the
;;;; project are named from its directory. SBCL tells the number of a form inside of
;;;; a toplevel form, in the order in which conses are met; the text is walked along.

(in-package #:gramercy.image)

(defconstant +most-files-kept+ 60 "Files that are kept while one question is answered: a few megabytes.")
(defconstant +deepest-form+ 400 "Levels of a form in a file that are walked: each costs stack.")

(defconstant +longest-toplevel-form+ 100000 "Octets of a toplevel form that are looked into.")

(defvar *file-texts* nil "A table of the octets of files that this answer has looked into, or NIL.")

(defun native-name (pathname)
  "Return the absolute native name of PATHNAME, also of a logical one of SBCL's own sources."
  (let ((pathname (or (ignore-errors (translate-logical-pathname pathname)) pathname)))
    (or (ignore-errors (sb-ext:native-namestring (merge-pathnames pathname))) (namestring pathname))))

(defun shown-file (file)
  "Return the native name FILE, from the directory of the project on where it lies inside."
  (if (project-file-p file)
      (subseq file (1+ (length (string-right-trim "/" (sb-posix:getcwd)))))
      file))

(defun source-octets (file)
  "Return the octets of FILE, a native name, or NIL; an answer reads it once."
  (flet ((read-them () (file-octets (sb-ext:parse-native-namestring file))))
    (if (or (null *file-texts*) (> (hash-table-count *file-texts*) +most-files-kept+))
        (read-them)
        (multiple-value-bind (octets found) (gethash file *file-texts*)
          (if found octets (setf (gethash file *file-texts*) (read-them)))))))

;;; Forms by number

(defun feature-p (text place)
  "Tell what #+ or #- at PLACE decides: :READ or :SKIP, or NIL where the feature is no plain word."
  (let* ((end (skip-token text (+ place 2)))
         (word (string-left-trim ":" (subseq text (min (+ place 2) end) end))))
    (and (plusp (length word))
         (if (eq (char= (char text (1+ place)) #\+)
                 (and (find word *features* :test #'string-equal) t))
             :read
             :skip))))

(defun value-conses (name)
  "Return how many conses the reader has put in place of #. and the variable called NAME, or NIL where that is not
known. Declarations are often written so."
  (let* ((name (fold-name (subseq name (1+ (or (position #\: name :from-end t) -1)))))
         (symbols (remove-if-not #'boundp (remove-duplicates (loop for package in (list-all-packages)
                                                                   for symbol = (find-symbol name package)
                                                                   when symbol collect symbol))))
         (left 1000))
    (labels ((conses (part)
               (cond ((or (atom part) (minusp (decf left))) 0)
                     ((eq (car part) 'quote) 1)
                     (t (1+ (loop for rest = part then (cdr rest)
                                  while (consp rest)
                                  sum (conses (car rest))))))))
      (and symbols (null (rest symbols)) (conses (symbol-value (first symbols)))))))

(defun numbered-place (text start number)
  "Return where in TEXT the cons with NUMBER stands, counted in the form at START; START where that is not known."
  (let ((count -1) (seen '()))
    (labels ((meet (place)
               (when (= (incf count) number) (return-from numbered-place place)))
             (give-up () (return-from numbered-place start))
             (walk (place depth)
               (when (> depth +deepest-form+) (give-up))
               (case (char-at text place)
                 (#\( (walk-list place depth))
                 (#\' (meet place) (skip-form text (1+ place)))
                 (#\` (meet place) (walk-next (1+ place) depth))
                 (#\, (walk-next (if (find (char-at text (1+ place)) "@.") (+ place 2) (1+ place)) depth))
                 (#\# (walk-dispatch place depth))
                 (t (skip-form text place))))
             (walk-next (place depth) (walk (skip-text-blanks text place) (1+ depth)))
             (walk-dispatch (place depth)
               (case (char-at text (1+ place))
                 (#\' (meet place) (walk-next (+ place 2) depth))
                 ((#\+ #\-)
                  (let ((next (skip-text-blanks text (skip-token text (+ place 2)))))
                    (ecase (or (feature-p text place) (give-up))
                      (:read (walk next (1+ depth)))
                      (:skip (skip-form text next)))))
                 (#\. (let* ((end (skip-token text (+ place 2)))
                             (name (subseq text (min end (+ place 2)) end)))
                        ;; The same conses are counted once.
                        (unless (member name seen :test #'string=)
                          (push name seen)
                          (loop repeat (or (value-conses name) (give-up)) do (meet place)))
                        end))
                 (t (skip-form text place))))
             (walk-list (place depth)
               (let ((next (skip-text-blanks text (1+ place))))
                 (cond ((char= (char-at text next) #\)) (1+ next))
                       (t (meet place)
                          (loop (cond ((>= next (length text)) (give-up))
                                      ((char= (char text next) #\)) (return (1+ next))))
                                (setf next (skip-text-blanks text (walk next (1+ depth))))))))))
      (walk (skip-text-blanks text start) 0)
      start)))

;;; Places

(defun first-read-place (text)
  "Return where in TEXT the first form begins that is read, behind those that features rule out."
  (loop with place = (skip-text-blanks text 0)
        while (and (char= (char-at text place) #\#) (find (char-at text (1+ place)) "+-")
                   (eq :skip (feature-p text place)))
        do (setf place (skip-text-blanks text (skip-form text place)))
        finally (return place)))

(defun strange-syntax-p (text)
  "Tell whether TEXT has a sharp sign before a character for which the standard has no reader macro: what the user's
own reads cannot be known."
  (loop for place = (position #\# text) then (position #\# text :start (1+ place))
        while (and place (< (1+ place) (length text)))
          thereis (let ((next (char text (1+ place))))
                    (and (graphic-char-p next)
                         (not (alphanumericp next))
                         (not (find next "\\'(+-|:.*=# \")<`;,_/"))
                         ;; A part of a symbol, as in A#?, is none.
                         (or (zerop place) (find (char text (1- place)) " '`,(\"
"))))))

(defun toplevel-place (text number)
  "Return where in TEXT the toplevel form NUMBER, counted from 0, begins, or NIL where that cannot be known: what is
read depends on features that are no plain words, or on reader macros of the user's."
  (let ((place (if (strange-syntax-p text) (length text) (skip-text-blanks text 0))))
    (loop (when (>= place (length text)) (return nil))
          (let ((decision (and (char= (char text place) #\#) (find (char-at text (1+ place)) "+-.")
                               (or (and (char/= (char text (1+ place)) #\.) (feature-p text place))
                                   (return nil)))))
            (unless (eq decision :skip)
              (when (zerop number)
                (return (if decision (skip-text-blanks text (skip-token text (+ place 2))) place)))
              (decf number))
            (let ((end (skip-form text place)))
              (when (<= end place) (return nil))
              (setf place (skip-text-blanks text end)))))))

(defun path-line (octets source)
  "Return the line of the toplevel form that the path of SOURCE names, in the file with OCTETS, or NIL."
  (let ((number (first (sb-introspect:definition-source-form-path source))))
    (when (typep number '(integer 0 100000))
      (let* ((text (octets-text octets 0 (length octets)))
             (place (toplevel-place text number)))
        ;; SBCL does not note when the file was read, which may be another by now: only what looks like a
        ;; definition counts.
        (and place
             (eql (mismatch "(def" text :start2 place :test #'char-equal) 4)
             (line-number text place))))))

(defun source-line (file source)
  "Return the line in FILE that SOURCE, of SB-INTROSPECT, means, or NIL. What it calls characters are octets."
  (let* ((source (or (present-source file source) source))
         (offset (sb-introspect:definition-source-character-offset source))
         (number (sb-introspect:definition-source-form-number source))
         (octets (source-octets file)))
    (cond ((or (null octets) (and offset (> offset (length octets)))) nil)
          ((null offset) (path-line octets source))
          (t (let* ((text (octets-text octets offset (min (length octets) (+ offset +longest-toplevel-form+))))
                    (start (first-read-place text)))
               (+ (newlines-before octets offset)
                  (line-number text (if (typep number '(integer 0 100000))
                                        (numbered-place text start number)
                                        start))))))))

(defun written-since-p (file source)
  "Tell whether FILE was written after SOURCE, of SB-INTROSPECT, was compiled from it."
  (let ((then (sb-introspect:definition-source-file-write-date source))
        (now (ignore-errors (file-write-date (sb-ext:parse-native-namestring file)))))
    (and then now (not (system-source-p source)) (> now then))))

(defun system-source-p (source)
  "Tell whether SOURCE lies in SBCL's own sources, whose dates mean nothing."
  (typep (sb-introspect:definition-source-pathname source) 'logical-pathname))

(defun source-place (source)
  "Return FILE:LINE of SOURCE, a definition source of SB-INTROSPECT or NIL; NIL where no file is known."
  (let ((pathname (and source (sb-introspect:definition-source-pathname source))))
    (when pathname
      (let ((file (native-name pathname)))
        (format nil "~a~@[:~d~]~:[~; (the file has changed since)~]" (shown-file file)
                (ignore-errors (source-line file source))
                (changed-since-p file source))))))

(defun definition-place (name &rest types)
  "Return FILE:LINE of the definition of NAME as the first of TYPES, of SB-INTROSPECT, that has a source."
  (loop for type in types
        thereis (source-place (first (ignore-errors (sb-introspect:find-definition-sources-by-name name type))))))
