;;;; From a form inside a form to a line of the text or the file it was read from.
;;;; The inner form is found by identity, which gives a path of element numbers; the
;;;; text is walked along it. A reader macro the walk does not know ends it: the line
;;;; is then that of the last form it understood, never a wrong guess beyond it.

(in-package #:gramercy.image)

(defun line-number (text position)
  "Return the number, from 1, of the line of TEXT that holds POSITION."
  (1+ (count #\Newline text :end (min position (length text)))))

(defun skip-text-blanks (text place)
  "Return the place of the next character of TEXT from PLACE that is neither blank nor comment."
  (loop
    (let ((character (and (< place (length text)) (char text place))))
      (cond ((null character) (return place))
            ((or (char<= character #\Space)) (incf place))
            ((char= character #\;)
             (setf place (or (position #\Newline text :start place) (length text))))
            ((and (char= character #\#) (eql (mismatch "#|" text :start2 place) 2))
             (setf place (skip-block-comment text place)))
            (t (return place))))))

(defun skip-block-comment (text place)
  "Return the place behind the comment #| |# that starts at PLACE."
  (loop with depth = 0
        for at = place then (1+ at)
        while (< (1+ at) (length text))
        do (cond ((and (char= (char text at) #\#) (char= (char text (1+ at)) #\|)) (incf depth) (incf at))
                 ((and (char= (char text at) #\|) (char= (char text (1+ at)) #\#))
                  (incf at)
                  (when (zerop (decf depth)) (return (1+ at)))))
        finally (return (length text))))

(defun skip-delimited (text place mark)
  "Return the place behind the closing MARK of what was opened just before PLACE."
  (loop for at = place then (1+ at)
        while (< at (length text))
        do (cond ((char= (char text at) #\\) (incf at))
                 ((char= (char text at) mark) (return (1+ at))))
        finally (return (length text))))

(defun skip-token (text place)
  "Return the place behind the symbol or number that starts at PLACE."
  (loop while (< place (length text))
        do (let ((character (char text place)))
             (cond ((char= character #\\) (incf place 2))
                   ((char= character #\|) (setf place (skip-delimited text (1+ place) #\|)))
                   ((or (char<= character #\Space) (find character "()\"';`,")) (return))
                   (t (incf place))))
        finally (return (min place (length text))))
  (min place (length text)))

(defun skip-form (text place)
  "Return the place behind the form that starts at PLACE."
  (let ((place (skip-text-blanks text place)))
    (if (>= place (length text))
        place
        (case (char text place)
          (#\( (skip-list text (1+ place)))
          (#\" (skip-delimited text (1+ place) #\"))
          ((#\' #\`) (skip-form text (1+ place)))
          (#\, (skip-form text (if (find (char-at text (1+ place)) "@.") (+ place 2) (1+ place))))
          (#\# (skip-dispatch text place))
          (#\) place)
          (t (max (1+ place) (skip-token text place)))))))

(defun char-at (text place)
  "Return the character of TEXT at PLACE, or a space behind its end."
  (if (< place (length text)) (char text place) #\Space))

(defun skip-dispatch (text place)
  "Return the place behind the form that starts with # at PLACE."
  (case (char-at text (1+ place))
    (#\\ (skip-token text (+ place 3)))
    (#\' (skip-form text (+ place 2)))
    (#\( (skip-list text (+ place 2)))
    ((#\+ #\-) (skip-form text (skip-form text (+ place 2))))
    (t (let ((open (skip-token text (1+ place))))
         (if (find (char-at text open) "(\"") (skip-form text open) open)))))

(defun skip-list (text place)
  "Return the place behind the list whose first element is sought from PLACE."
  (loop (setf place (skip-text-blanks text place))
        (cond ((>= place (length text)) (return place))
              ((char= (char text place) #\)) (return (1+ place)))
              (t (setf place (skip-form text place))))))

(defun subform-place (text place path)
  "Return where the subform of the form at PLACE lies that PATH, a list of argument numbers, leads to."
  (loop with place = (skip-text-blanks text place)
        for number in path
        do (case (char-at text place)
             (#\( (let ((next (skip-text-blanks text (1+ place))))
                    (loop repeat number do (setf next (skip-text-blanks text (skip-form text next))))
                    (when (char= (char-at text next) #\)) (return place))
                    (setf place next)))
             ;; 'X is a list of two, whose second is X.
             (#\' (if (= number 1) (setf place (skip-text-blanks text (1+ place))) (return place)))
             (t (return place)))
        finally (return place)))

(defun subform-path (form target)
  "Return the element numbers that lead from FORM to the very cons TARGET; NIL where it is not inside.
Looks at a bounded number of conses, since literal data can be large or circular."
  (let ((left 50000))
    (labels ((walk (part path)
               (loop for rest = part then (cdr rest)
                     for number from 0
                     while (and (consp rest) (plusp (decf left)))
                     do (when (eq (car rest) target)
                          (return-from subform-path (reverse (cons number path))))
                        (when (and (consp (car rest)) (< (length path) 200))
                          (walk (car rest) (cons number path))))))
      (when (and (consp form) (consp target)) (walk form '())))))

;;;; Where in a file something was said: by the compiler about a form of a file, by
;;;; the reader about what it could not read, by code while its file was loaded.
;;;; SBCL knows octets and paths of element numbers; people want lines.

(defstruct (place (:copier nil))
  "A place in a file. The line may be unknown; the column counts from 1, and stands only with TEXT, the line itself."
  (file "" :type string)
  line column text)

(defconstant +largest-source+ 4000000
  "Octets of a file in which lines are looked for: each warning reads the file again.")

(defun file-name-text (file)
  "Return the absolute native name of FILE, a pathname or a stream."
  (let ((pathname (pathname file)))
    (sb-ext:native-namestring (or (ignore-errors (probe-file pathname)) (merge-pathnames pathname)))))

(defun file-octets (file)
  "Return what stands in FILE, or NIL where it is too large or cannot be read."
  (ignore-errors
   (with-open-file (stream file :element-type '(unsigned-byte 8))
     (when (<= (file-length stream) +largest-source+)
       (let* ((octets (make-array (file-length stream) :element-type '(unsigned-byte 8)))
              (end (read-sequence octets stream)))
         (if (= end (length octets)) octets (subseq octets 0 end)))))))

(defun newlines-before (octets position)
  "Return how many lines of OCTETS, as a file has them, end before POSITION."
  (declare (type (simple-array (unsigned-byte 8) (*)) octets) (type fixnum position)
           (optimize speed))
  (loop for index of-type fixnum below (min position (length octets))
        count (= 10 (aref octets index))))

(defun octets-text (octets start end)
  "Return OCTETS from START to END as text, with marks for what is no UTF-8."
  (sb-ext:octets-to-string octets :start start :end end :external-format '(:utf-8 :replacement #\?)))

(defun file-form-line (file position path)
  "Return the line in FILE of the subform to which PATH leads from the form that starts behind octet POSITION."
  (let ((octets (file-octets file)))
    (when (and octets (<= position (length octets)))
      (let ((text (octets-text octets position (length octets))))
        (+ (newlines-before octets position)
           (line-number text (subform-place text 0 path)))))))

(defun file-line-text (file line)
  "Return the text of LINE of FILE, or NIL."
  (octets-line-text (file-octets file) line))

(defun octets-line-text (octets line)
  "Return the text of LINE in OCTETS of a file, or NIL."
  (let* ((start (and octets (loop with start = 0
                                  repeat (1- line)
                                  for newline = (position 10 octets :start start)
                                  do (if newline (setf start (1+ newline)) (return nil))
                                  finally (return start)))))
    (when start
      (let ((text (octets-text octets start (or (position 10 octets :start start) (length octets)))))
        (string-right-trim '(#\Return) (subseq text 0 (min 300 (length text))))))))

;;; The compiler

(defun context-part (name context)
  "Return what the reader NAME tells of CONTEXT, the compiler's own record of where it is."
  (let ((reader (internal-function (concatenate 'string "COMPILER-ERROR-CONTEXT-" name) "SB-C")))
    (and reader (ignore-errors (funcall reader context)))))

(defun compiler-context ()
  "Return the compiler's own record of where it is, or NIL outside of the compiler."
  (let ((find-context (internal-function "FIND-ERROR-CONTEXT" "SB-C")))
    (and find-context (ignore-errors (values (funcall find-context nil))))))

(defun context-file (context)
  "Return the name of the file that the compiler is at, as CONTEXT says, or NIL."
  (let ((file (context-part "FILE-NAME" context)))
    (and (typep file '(or pathname string)) (file-name-text file))))

(defun context-place (context)
  "Return the place of CONTEXT where the compiler is at a file, or NIL."
  (let ((file (context-file context))
        (position (context-part "FILE-POSITION" context)))
    (when file
      (make-place :file file
                  :line (and position
                             (ignore-errors
                              (file-form-line (sb-ext:parse-native-namestring file) position
                                              (rest (reverse (context-part "ORIGINAL-SOURCE-PATH" context))))))))))

;;; The reader and the loader

(defun tracked-line (stream start)
  "Return the line and the column, as a cons, that STREAM has come to, or with START those where its form begins.
NIL where SBCL does not count the lines of STREAM."
  (let ((tracking (internal-symbol "FORM-TRACKING-STREAM" "SB-IMPL"))
        (find-line (internal-function "LINE/COL-FROM-CHARPOS" "SB-IMPL"))
        (form-start (internal-function "FORM-TRACKING-STREAM-FORM-START-CHAR-POS" "SB-IMPL")))
    (ignore-errors
     (when (and tracking find-line form-start (typep stream tracking))
       (let ((start (and start (funcall form-start stream))))
         (if start (funcall find-line stream start) (funcall find-line stream)))))))

(defun loaded-stream ()
  "Return the stream of the file that is being loaded or compiled, as far as SBCL tells, or NIL."
  (let ((information (internal-symbol "*SOURCE-INFO*" "SB-C"))
        (stream (internal-function "SOURCE-INFO-STREAM" "SB-C"))
        (parent (internal-function "SOURCE-INFO-PARENT" "SB-C")))
    (when (and information stream parent (boundp information))
      (ignore-errors
       (loop for info = (symbol-value information) then (funcall parent info)
             while info
             thereis (let ((found (funcall stream info)))
                       (and (typep found 'file-stream) found)))))))

(defun loading-place ()
  "Return the place of the toplevel form of a file that is being evaluated or compiled, or NIL outside of files."
  (let ((stream (loaded-stream)))
    (cond (stream (make-place :file (file-name-text stream) :line (car (tracked-line stream t))))
          ((ignore-errors *load-truename*)
           (make-place :file (or (component-source *load-truename*) (file-name-text *load-truename*)))))))

(defun input-error-p (condition)
  "Tell whether CONDITION says that a file which is loaded or compiled could not be read."
  (typep condition '#.(or (internal-symbol "INPUT-ERROR-IN-COMPILE-FILE" "SB-C") 'null)))

(defun inner-condition (condition)
  "Return the condition that CONDITION, one of the compiler's, only carries; another is its own."
  (let ((reader (internal-function "ENCAPSULATED-CONDITION" "SB-INT")))
    (or (and reader
             (typep condition '#.(or (internal-symbol "ENCAPSULATED-CONDITION" "SB-INT") 'null))
             (ignore-errors (funcall reader condition)))
        condition)))

(defun input-error-place (condition)
  "Return the place of what could not be read: of the form that is never closed, else of the very character."
  (let* ((stream (ignore-errors (stream-error-stream condition)))
         (unclosed (typep (inner-condition condition) 'end-of-file))
         (point (tracked-line stream unclosed)))
    (when (typep stream 'file-stream)
      (let* ((file (file-name-text stream))
             (text (and point (file-line-text (pathname stream) (car point)))))
        (make-place :file file :line (car point) :text text
                    :column (and text
                                 (<= (cdr point) (length text))
                                 (max 1 (if unclosed (1+ (cdr point)) (cdr point)))))))))

(defun place-members (place)
  "Return what a reply tells of PLACE."
  (and place
       (append (list "file" (shown-file (place-file place)))
               (and (place-line place) (list "line" (place-line place)))
               (and (place-text place) (list "text" (place-text place)))
               (and (place-column place) (list "column" (place-column place))))))

(defun place-text-of (place)
  "Return FILE:LINE for people."
  (format nil "~a~@[:~d~]" (shown-file (place-file place)) (place-line place)))
