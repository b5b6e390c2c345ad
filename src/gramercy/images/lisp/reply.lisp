;;;; The reply to an evaluation, written member by member: it is the one reply
;;;; whose cost is felt. What is empty is left out.

(in-package #:gramercy.image)

(defun put-forms (forms)
  "Append the values of FORMS, which are in reverse."
  (put-ascii ",\"forms\":[")
  (loop for (values . more) on (reverse forms)
        do (put-ascii "{\"values\":")
           (put-items values)
           (put-ascii (if more "}," "}")))
  (put-ascii "]"))

(defun put-output ()
  "Append what the user code has printed."
  (unless (stream-empty-p *standard-output-kept*)
    (put-ascii ",\"stdout\":")
    (put-stream-text *standard-output-kept*))
  (unless (stream-empty-p *error-output-kept*)
    (put-ascii ",\"stderr\":")
    (put-stream-text *error-output-kept*)))

(defun put-warnings (source)
  "Append the warnings of SOURCE that still hold."
  (when (source-warnings source)
    (put-ascii ",\"warnings\":")
    (put-items (mapcar #'notice-object (settled-notices source)))))

(defun put-fault (evaluation)
  "Append the error that ended EVALUATION, if any."
  (let ((fault (evaluation-fault evaluation))
        (source (evaluation-source evaluation)))
    (when fault
      (put-ascii ",\"error\":")
      (put-members
       (append fault
               (list "form_index" (source-form-count source))
               ;; A line in a file is another one.
               (unless (or (getf-text fault "file") (getf-text fault "line"))
                 (list "line" (line-number (source-text source)
                                           (skip-text-blanks (source-text source)
                                                             (source-form-start source))))))))))

(defun put-changes (changes)
  "Append the list CHANGES, as far as it goes."
  (when changes
    (put-ascii ",\"changed\":")
    (put-items (if (> (length changes) +most-changes+) (subseq changes 0 +most-changes+) changes))))

(defun put-truncated (evaluation change-count)
  "Append how much there was of what had to be cut."
  (let* ((standard (stream-overflow-p *standard-output-kept*))
         (error (stream-overflow-p *error-output-kept*))
         (value (reduce #'max (mapcar #'cut-length (evaluation-cuts evaluation)) :initial-value 0))
         (warnings (source-warning-count (evaluation-source evaluation)))
         (cut (append (and standard (list "stdout" standard))
                      (and error (list "stderr" error))
                      (and (plusp value) (list "values" value))
                      (and (evaluation-deep evaluation) (list "depth" +deepest-printed+))
                      (and (> warnings +most-warnings+) (list "warnings" warnings))
                      (and (> change-count +most-changes+) (list "changed" change-count)))))
    (when cut
      (put-ascii ",\"truncated\":")
      (put-members cut))))

(defun put-state ()
  "Append how the process is."
  (put-ascii ",\"state\":{\"threads\":")
  (put-integer (1+ (length (user-threads))))
  (put-ascii ",\"heap_bytes\":")
  (put-integer (sb-kernel:dynamic-usage))
  (put-ascii ",\"pid\":")
  (put-integer *process-id*)
  (put-ascii "}"))

(defun cut-length (cut)
  "Return how many characters the value of CUT has, as far as is known; 0 for one that was not cut."
  (if cut (or (cut-text-total cut) (length (cut-text-text cut))) 0))

(defun value-number (value cut)
  "Return a number for VALUE; what was kept of its text can be read under it where it was CUT."
  (cond (cut (let ((number (remember-object value)))
               (remember-text number cut)
               number))
        (t (object-number value))))

(defun put-objects (values cuts)
  "Append the numbers of those of VALUES that can be inspected, or were cut as CUTS say, null for the others."
  (unless (and (every #'trivial-object-p values) (notany #'identity cuts))
    (put-ascii ",\"objects\":")
    (put-items (mapcar #'value-number values cuts)))
  (when (some #'identity cuts)
    (put-ascii ",\"lengths\":")
    (put-items (mapcar (lambda (cut) (and cut (or (cut-text-total cut) 0))) cuts))))

(defun put-notes (notes)
  "Append the sentences NOTES, which are in reverse."
  (when notes
    (put-ascii ",\"notes\":")
    (put-items (reverse notes))))

(defun put-ending (started)
  "Append what every reply to a call ends with: how long it took since STARTED, and how the process is."
  (put-ascii ",\"elapsed_ms\":")
  (put-thousandths (max 0 (- (microseconds) started)))
  (put-state)
  (put-unkept)
  (put-ascii "}"))

(defun put-evaluation (id evaluation &optional (with-changes t))
  "Write the whole reply to the evaluation that the request ID asked for.
WITH-CHANGES it is over; else what it has defined is told by the evaluation that it is a part of."
  (let ((changes (and with-changes (take-changes))))
    (when with-changes (close-entry (source-text (evaluation-source evaluation))))
    (put-reply-start id (null (evaluation-fault evaluation)))
    (put-forms (evaluation-forms evaluation))
    (put-output)
    (put-warnings (evaluation-source evaluation))
    (put-fault evaluation)
    (put-ascii ",\"package\":")
    (put-string (display-package-name *current-package*))
    (put-changes changes)
    (put-objects (evaluation-last-values evaluation) (evaluation-cuts evaluation))
    (put-displays (evaluation-displays evaluation))
    (put-notes (evaluation-notes evaluation))
    (when *profile* (put-more-members (list "profile" (profile-members *profile*))))
    (put-effects)
    (put-truncated evaluation (length changes))
    (when (evaluation-unchanged-p evaluation) (put-ascii ",\"unchanged\":true"))
    (put-ending (evaluation-started evaluation))))
