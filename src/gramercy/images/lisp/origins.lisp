;;;; Where a definition stands: FILE:LINE, as far as SBCL has kept it. Files of the
;;;; project are named from its directory. SBCL tells the number of a form inside of
;;;; a toplevel form, in the order in which conses are met; the text is walked along.

(in-package #:gramercy.image)

(defconstant +most-files-kept+ 60 "Files whose text is kept while one question is answered: a few megabytes.")
(defconstant +deepest-form+ 400 "Levels of a form in a file that are walked: each costs stack.")

(defvar *file-texts* nil "A table of the texts of files that this answer has looked into, or NIL.")

(defun native-name (pathname)
  "Return the absolute native name of PATHNAME, also of a logical one of SBCL's own sources."
  (let ((pathname (or (ignore-errors (translate-logical-pathname pathname)) pathname)))
    (or (ignore-errors (sb-ext:native-namestring (merge-pathnames pathname))) (namestring pathname))))

(defun shown-file (file)
  "Return the native name FILE, from the directory of the project on where it lies inside."
  (if (project-file-p file)
      (subseq file (1+ (length (string-right-trim "/" (sb-posix:getcwd)))))
      file))

(defun read-source-text (file)
  "Return the text of the file with the native name FILE, or NIL."
  (let ((octets (file-octets (sb-ext:parse-native-namestring file))))
    (and octets (octets-text octets 0 (length octets)))))

(defun source-text-of (file)
  "Return the text of FILE, or NIL; an answer reads it once."
  (if (or (null *file-texts*) (> (hash-table-count *file-texts*) +most-files-kept+))
      (read-source-text file)
      (multiple-value-bind (text found) (gethash file *file-texts*)
        (if found text (setf (gethash file *file-texts*) (read-source-text file))))))

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

(defun numbered-place (text start number)
  "Return where in TEXT the cons with NUMBER stands, counted in the form at START; START where that is not known."
  (let ((count -1))
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
                 (#\. (give-up))
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

(defun toplevel-place (text number)
  "Return where the form with NUMBER, counted from 0, begins in TEXT, or NIL. Only what looks like a definition
counts: of classes and methods SBCL does not note when they were compiled, and the text may be another by now."
  (loop with place = (skip-text-blanks text 0)
        with count = 0
        while (< place (length text))
        do (let ((decided (and (find (char-at text (1+ place)) "+-") (char= (char text place) #\#)
                               (or (feature-p text place) (return nil)))))
             (when (and (= count number) (not (eq decided :skip)))
               (let ((start (if decided (skip-text-blanks text (skip-token text (+ place 2))) place)))
                 (return (and (eql (mismatch "(def" text :start2 start :test #'char-equal) 4) start))))
             (unless (eq decided :skip) (incf count))
             (setf place (skip-text-blanks text (skip-form text place))))))

(defun source-offset (text source)
  "Return where in TEXT the top-level form begins that SOURCE, of SB-INTROSPECT, means, or NIL."
  (or (sb-introspect:definition-source-character-offset source)
      (let ((number (first (sb-introspect:definition-source-form-path source))))
        (and text (typep number '(integer 0 100000)) (toplevel-place text number)))))

(defun source-line (file source)
  "Return the line in FILE that SOURCE, of SB-INTROSPECT, means, or NIL."
  (let* ((number (sb-introspect:definition-source-form-number source))
         (text (source-text-of file))
         (offset (source-offset text source)))
    (when (and text offset (<= offset (length text)))
      (line-number text (let ((start (skip-text-blanks text offset)))
                          (if (typep number '(integer 1 100000)) (numbered-place text start number) start))))))

(defun changed-since-p (file source)
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
