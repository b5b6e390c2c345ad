;;;; Warnings and notes of the reader, the compiler and the user's own code, and
;;;; code that cannot be read, with their place in a file or in the code that was
;;;; sent. Warnings are collected and kept off our own error output; a stream that
;;;; user code has made its error output gets them as the standard says. The
;;;; compiler counts them as it always does.

(in-package #:gramercy.image)

(defstruct (source (:copier nil))
  "The code being evaluated, and how far the evaluation has come."
  (text "" :type simple-string)
  (stream nil :type (or null stream))
  (form-start 0 :type index)
  form
  (form-count 0 :type index)
  (warnings '() :type list)
  ;; The condition collected last: layers of the compiler signal the same one again.
  (latest nil :type (or null condition))
  ;; A function that tells from its kind and its file whether a notice is wanted, or NIL where all are.
  (wanted nil :type (or null function))
  (warning-count 0 :type index)
  (assigned '() :type list)
  (with-notes nil :type boolean)
  (note-count 0 :type index))

(defconstant +most-warnings+ 100 "Warnings told in one reply: of a warning in a loop the first hundred say enough.")

(defstruct (notice (:copier nil))
  "One warning as it will be told."
  (kind "" :type string)
  (type "" :type string)
  (message "" :type string)
  form line file
  ;; For what is undefined so far: the space and the name, to be asked again at the end.
  space name)

(defun warning-kind (condition)
  "Return the kind of CONDITION as a reply names it."
  (typecase condition
    (sb-ext:compiler-note "note")
    (style-warning "style-warning")
    (warning "warning")
    (t "error")))

(defun undefined-thing (condition)
  "Return the space and the name of what CONDITION calls undefined, or NIL.
SBCL has no type for it in all releases, but it has always been a format with these arguments."
  (when (typep condition '(and simple-condition warning))
    (let ((arguments (simple-condition-format-arguments condition)))
      (when (and (= 2 (length arguments)) (member (first arguments) '(:function :variable :type)))
        (values (first arguments) (second arguments))))))

(defun form-line (source form)
  "Return the line of FORM in SOURCE, or that of the toplevel form where the compiler made FORM itself."
  (let ((text (source-text source)))
    (unless (string= text "")
      (line-number text (subform-place text (source-form-start source)
                                       (subform-path (source-form source) form))))))

(defun notice-place (condition context)
  "Return the place in a file that CONDITION is about, signalled where CONTEXT says; NIL for code that was sent."
  (let ((inner (inner-condition condition)))
    (or (and (input-error-p inner) (input-error-place inner))
        (and context (context-place context))
        (loading-place))))

(defun make-source-notice (source condition)
  "Return the notice of CONDITION, placed in a file or in SOURCE."
  (let* ((context (compiler-context))
         (form (and context (context-part "ORIGINAL-FORM" context)))
         (place (ignore-errors (notice-place condition context))))
    (multiple-value-bind (space name) (and context (undefined-thing condition))
      (when (and (eq space :variable) (symbolp name)) (push name (source-assigned source)))
      (make-notice
       :kind (warning-kind condition)
       :type (condition-type-name (inner-condition condition))
       :message (let ((message (condition-message (inner-condition condition) (and context t))))
                  (if context (without-references message) message))
       :form (and context (plain-text form 200))
       :file (and place (place-file place))
       :line (if place (place-line place) (form-line source form))
       :space space :name name))))

(defun without-references (text)
  "Return TEXT, of the compiler, without the chapters of manuals that it adds to its words."
  (string-right-trim '(#\Newline #\Space) (subseq text 0 (search (format nil "~%See also:") text))))

(defun repetition-p (condition)
  "Tell whether CONDITION only says what the list of changes, or the other warnings about a file, say anyway."
  (typep condition '(or #.(or (internal-symbol "REDEFINITION-WARNING" "SB-KERNEL") 'null)
                     uiop:compile-warned-warning uiop:compile-failed-warning)))

(defun add-notice (source condition)
  "Add CONDITION to the warnings of SOURCE, once."
  (unless (or (repetition-p condition) (eq condition (source-latest source)))
    (setf (source-latest source) condition)
    (when (and (wanted-p source condition)
               (<= (incf (source-warning-count source)) +most-warnings+))
      (push (make-source-notice source condition) (source-warnings source)))))

(defun wanted-p (source condition)
  "Tell whether SOURCE is to be told of CONDITION. Its line would cost more to find than this."
  (let ((wanted (source-wanted source)))
    (or (null wanted)
        (funcall wanted (warning-kind condition)
                 (let ((context (compiler-context)))
                   (ignore-errors (or (and context (context-file context)) (place-file (loading-place)))))))))

(defun count-for-compiler (condition)
  "Count CONDITION, which is to be muffled, as the compiler does where it is not: COMPILE and COMPILE-FILE
tell their callers. Return false where this SBCL keeps its counts elsewhere: then the compiler has to see it."
  (let ((warnings (internal-symbol "*WARNINGS-P*" "SB-C"))
        (failure (internal-symbol "*FAILURE-P*" "SB-C")))
    (cond ((typep condition 'sb-ext:compiler-note) t)
          ((and warnings failure)
           (when (boundp warnings) (setf (symbol-value warnings) t))
           (when (and (boundp failure) (not (typep condition 'style-warning))) (setf (symbol-value failure) t))
           t)
          (t (not (or (compiling-p) (compiler-context)))))))

(defun unread-output-p ()
  "Tell whether what is printed on the error output now would only repeat what the reply tells."
  (eq *error-output* *error-output-kept*))

(defun silence-aborted-units ()
  "Take the effect out of the remark that a compilation was left early, where a reply tells why.
Done once, before the core is saved."
  (wrap (internal-symbol "SUMMARIZE-COMPILATION-UNIT" "SB-C")
        (lambda (original aborted)
          (unless (and aborted (unread-output-p)) (funcall original aborted)))))

(defun collect-warning (source condition)
  "Add CONDITION to the warnings of SOURCE, and muffle it unless user code wants to see it printed."
  (add-notice source condition)
  (when (and (unread-output-p) (count-for-compiler condition))
    (let ((restart (find-restart 'muffle-warning condition)))
      (when restart (invoke-restart restart)))))

(defconstant +most-notes+ 3 "Compiler notes told of an evaluation or a load; the rest is counted.")

(defconstant +longest-note+ 150 "Characters of each of them.")

(defun collect-note (source condition)
  "Add the compiler note CONDITION: where notes are wanted each, else the first few. Muffle it unless user code wants
to see it printed. That code is deleted is only told where notes are wanted: macros have much of it."
  (cond ((source-with-notes source) (collect-warning source condition))
        ((unread-output-p)
         (when (and (not (typep condition 'sb-ext:code-deletion-note))
                    (not (eq condition (source-latest source)))
                    (wanted-p source condition))
           (setf (source-latest source) condition)
           (incf (source-note-count source))
           (when (< (told-notes source) +most-notes+) (keep-note source (make-source-notice source condition))))
         (muffle-warning condition))))

(defun told-notes (source)
  "Return how many compiler notes of SOURCE are told one by one."
  (count "note" (source-warnings source) :key #'notice-kind :test #'string=))

(defun keep-note (source note)
  "Tell NOTE among the warnings of SOURCE, in short, unless the same is told already."
  (setf (notice-message note) (cut-note (one-line (notice-message note))))
  (unless (find-if (lambda (known) (and (equal (notice-line note) (notice-line known))
                                        (string= (notice-message note) (notice-message known))))
                   (source-warnings source))
    (push note (source-warnings source))))

(defun cut-note (text)
  "Return the beginning of TEXT, of a compiler note."
  (if (> (length text) +longest-note+) (format nil "~a…" (subseq text 0 +longest-note+)) text))

(defun counted-notes (source)
  "Return the sentence about compiler notes of SOURCE that are not told one by one, as others are; or NIL."
  (let* ((told (told-notes source))
         (more (- (source-note-count source) told)))
    (and (plusp told) (plusp more) (format nil "~d more compiler note~:p." more))))

(defun compiling-p ()
  "Tell whether the compiler is at work and can go on behind a form that is wrong."
  (let ((bailout (internal-symbol "*COMPILER-ERROR-BAILOUT*" "SB-C")))
    (and bailout (boundp bailout))))

(defun collect-compile-error (source condition)
  "Add the compiler's error CONDITION once, and let the compiler go on: the form will fail when it is run.
Every layer of the compiler signals it anew, and the outermost would print it."
  (let ((restart (find-restart 'continue condition)))
    (when (and restart (compiling-p))
      (add-notice source condition)
      (when (and (unread-output-p) (count-for-compiler condition))
        (invoke-restart restart)))))

(defun still-true-p (notice)
  "Tell whether NOTICE still holds: a later form may have defined what was missing."
  (not (member (notice-space notice) '(:function :type))))

(defun settled-notices (source)
  "Return the warnings of SOURCE that still hold, in the order they came."
  (remove-if (lambda (notice)
               (and (not (still-true-p notice))
                    (ignore-errors (current-kind (notice-space notice) (notice-name notice)))))
             (reverse (source-warnings source))))

(defun notice-object (notice)
  "Return NOTICE as an object of the reply."
  (list :object "kind" (notice-kind notice) "type" (notice-type notice)
                "message" (notice-message notice)
                "form" (notice-form notice)
                "file" (and (notice-file notice) (shown-file (notice-file notice))) "line" (notice-line notice)))

;;;; Code that cannot be read: what is wrong with the text that was sent, and where
;;;; it begins. Streams that user code reads are not looked at.

(declaim (type (or null source) *reading*))
(defglobal *reading* nil "The source whose forms are being read, or were read last.")

(defun read-form (source end-mark)
  "Read the next form of SOURCE, or return END-MARK."
  (let* ((stream (source-stream-to-read source))
         (start (file-position stream)))
    (setf (source-form-start source) start)
    (if (< start (length (source-text source)))
        (read stream nil end-mark)
        end-mark)))

(defun source-stream-to-read (source)
  "Return the stream from which SOURCE is read, and take note that it is."
  (setf *reading* source)
  (or (source-stream source)
      (setf (source-stream source) (make-string-input-stream (source-text source)))))

(defun unreadable-code-p (condition)
  "Tell whether CONDITION says that the code that was sent cannot be read. User code may read too, and fail."
  (and (typep condition '(or reader-error end-of-file))
       *reading*
       (source-stream *reading*)
       (eq (source-stream *reading*) (ignore-errors (stream-error-stream condition)))))

;;; What is open at the end of a text

(defun open-pieces (text start)
  "Return what is not closed at the end of TEXT, from START on, innermost first: conses of a word and a place."
  (let ((open '()) (place start))
    (flet ((skip (word to)
             (cond ((and (>= to (length text)) (not (closed-p text word)))
                    (return-from open-pieces (cons (cons word place) open)))
                   (t (setf place to)))))
      (loop while (< place (length text))
            do (case (char text place)
                 (#\( (push (cons "list" place) open) (incf place))
                 (#\) (pop open) (incf place))
                 (#\" (skip "string" (skip-delimited text (1+ place) #\")))
                 (#\| (skip "symbol" (skip-delimited text (1+ place) #\|)))
                 (#\; (setf place (or (position #\Newline text :start place) (length text))))
                 (#\\ (incf place 2))
                 (#\# (case (char-at text (1+ place))
                        (#\| (skip "comment" (skip-block-comment text place)))
                        (#\\ (incf place 3))
                        (t (incf place))))
                 (t (incf place)))))
    open))

(defun closed-p (text word)
  "Tell whether TEXT ends with the mark that closes what WORD names."
  (let ((mark (cond ((string= word "string") "\"") ((string= word "symbol") "|") (t "|#"))))
    (and (> (length text) (length mark)) (string= mark (subseq text (- (length text) (length mark)))))))

(defun unclosed-message ()
  "Return where the form begins that the code which was sent does not close, and what is open in it."
  (let* ((text (source-text *reading*))
         (start (skip-text-blanks text (source-form-start *reading*)))
         (innermost (first (open-pieces text start))))
    (format nil "The code ends inside of the form that begins on line ~d~@[: ~a~]."
            (line-number text start)
            (and innermost
                 (format nil "the ~a that begins on line ~d is not closed"
                         (car innermost) (line-number text (cdr innermost)))))))
