;;;; Evaluation, compilation and macro expansion. Forms are read one after the
;;;; other, each in the world that the ones before it have made; every value of
;;;; every form is told.

(in-package #:gramercy.image)

;;;; Which code cannot change anything, neither when it is read nor when it is
;;;; evaluated. After such code the last checkpoint still is the state of the image.

(defglobal *pure-functions*
    (let ((table (make-hash-table :test #'eq)))
      (dolist (name '(+ - * / 1+ 1- = /= < > <= >= max min abs mod rem floor ceiling truncate round
                      zerop plusp minusp evenp oddp numberp integerp stringp symbolp consp listp atom
                      not null eq eql list cons car cdr first second third rest values identity
                      logand logior logxor ash length char-code code-char boundp fboundp)
                    table)
        (setf (gethash name table) t)))
  "Standard functions that call no code of the user's and write nothing. Their package is locked.")

(defun pure-form-p (form)
  "Tell whether evaluating FORM can be known to leave the image as it is."
  (typecase form
    (symbol (or (keywordp form)
                (and (boundp form)
                     (not (eq (sb-cltl2:variable-information form) :symbol-macro)))))
    (cons (let ((operator (first form)) (arguments (rest form)))
            (cond ((eq operator 'quote) t)
                  ((symbolp operator)
                   (and (gethash operator *pure-functions*)
                        (ignore-errors (list-length arguments))
                        (every #'pure-form-p arguments)))
                  (t nil))))
    (t t)))

;;; Reading

(defglobal *usual-readtable* *readtable* "The readtable that an image starts with.")
(defglobal *reader-changed* nil "True once that readtable may call functions of the user's.")

(defun pure-text-p (text)
  "Tell whether reading TEXT can be known to run no code of the user's. What a sharp sign does is not known."
  (declare (type simple-string text))
  (and (eq *readtable* *usual-readtable*)
       (not *reader-changed*)
       (not (if (typep text '(simple-array character (*)))
                (find #\# text)
                (find #\# (the simple-base-string text))))))

(defun note-reader-change (readtable)
  "Note that READTABLE is given functions."
  (when (eq readtable *usual-readtable*) (setf *reader-changed* t)))

(defun watch-reader ()
  "Note changes of the readtable that an image starts with."
  (flet ((watch (name target)
           (wrap name (lambda (original &rest arguments)
                        (note-reader-change (funcall target arguments))
                        (apply original arguments)))))
    (watch 'set-macro-character (lambda (arguments) (or (fourth arguments) *readtable*)))
    (watch 'set-dispatch-macro-character (lambda (arguments) (or (fourth arguments) *readtable*)))
    (watch 'set-syntax-from-char (lambda (arguments) (or (third arguments) *readtable*)))
    (watch 'copy-readtable #'second)))

;;;; Evaluation

(defglobal *current-package* (find-package :common-lisp-user)
  "The package in which the next code is read, where a request names none.")

(defglobal *user-package* *current-package*
  "The package CL-USER as it was last seen.")

(defconstant +default-limit+ 100000 "Characters kept of each output, where the request does not say.")
(defconstant +default-value-limit+ 20000 "Characters kept of each value, where the request does not say.")

(defstruct (evaluation (:copier nil))
  "What is to be told of one evaluation."
  (source nil :type source)
  (value-limit +default-value-limit+ :type index)
  (forms '() :type list)
  (last-values '() :type list)
  ;; For each of the last values NIL, or its CUT-TEXT.
  (cuts '() :type list)
  (deep nil :type boolean)
  (started 0 :type (unsigned-byte 62))
  (pure t :type boolean)
  (notes '() :type list)
  ;; Pictures and tables, the last one first.
  (displays '() :type list)
  fault)

(defun evaluation-unchanged-p (evaluation)
  "Tell whether the image certainly is as it was before EVALUATION."
  (and (evaluation-pure evaluation) (null (evaluation-fault evaluation))))

(defun evaluation-undisturbed-p (evaluation)
  "Tell whether no code of the user's can have run in EVALUATION or beside it, also not to print a value."
  (and (evaluation-unchanged-p evaluation)
       (null (rest (evaluation-forms evaluation)))
       (every #'trivial-object-p (evaluation-last-values evaluation))
       (null (user-threads))))

(defglobal *standing-evaluation* nil "What is to be told of the evaluation that runs, or stands, or NIL.")
(defglobal *unchanged* nil "Whether the last request left the image as it was.")

(defun microseconds ()
  "Return the time of a clock that never goes back."
  ;; The standard's own clock moves in steps of milliseconds on Linux.
  (multiple-value-bind (seconds nanoseconds)
      (#.(or (internal-symbol "CLOCK-GETTIME" "SB-UNIX") (error "This SBCL has no CLOCK-GETTIME.")) 1)
    (declare (type (unsigned-byte 40) seconds) (type (unsigned-byte 32) nanoseconds))
    (+ (* seconds 1000000) (truncate nanoseconds 1000))))

(defun user-threads ()
  "Return the threads of the user's: neither ours nor those of the system."
  (let ((ephemeral-p (load-time-value
                      (or (internal-function "THREAD-EPHEMERAL-P" "SB-THREAD") (constantly nil)))))
    (declare (type function ephemeral-p))
    (loop for thread in (sb-thread:list-all-threads)
          unless (or (eq thread sb-thread:*current-thread*) (funcall ephemeral-p thread))
            collect thread)))

;;; Evaluating

(defun remember-values (form values)
  "Set the variables that hold the history of a session."
  (shiftf +++ ++ + form)
  (shiftf /// // / values)
  (shiftf *** ** * (first values)))

(defun add-note (evaluation text)
  "Add the sentence TEXT to what is told of EVALUATION, once."
  (pushnew text (evaluation-notes evaluation) :test #'string=))

(defun note-depth (evaluation)
  "Tell that a value is nested deeper than it is shown."
  (setf (evaluation-deep evaluation) t)
  (add-note evaluation (format nil "A value is nested deeper than ~d levels: # stands for what lies below them."
                               +deepest-printed+)))

(defun print-values (evaluation values)
  "Return the texts of VALUES, each within the limit."
  (setf (evaluation-cuts evaluation) '())
  (loop for value in values
        collect (multiple-value-bind (text cut deep) (value-text value (evaluation-value-limit evaluation))
                  (push cut (evaluation-cuts evaluation))
                  (when deep (note-depth evaluation))
                  text)
          into texts
        finally (setf (evaluation-cuts evaluation) (nreverse (evaluation-cuts evaluation)))
                (return texts)))

(defun evaluate-forms (evaluation evaluate)
  "Read and evaluate, with the function EVALUATE, the forms of EVALUATION's source."
  (let* ((source (evaluation-source evaluation))
         (end-mark source))
    (loop for form = (read-form source end-mark)
          until (eq form end-mark)
          do (setf (source-form source) form
                   - form
                   (evaluation-pure evaluation) (and (evaluation-pure evaluation) (pure-form-p form)))
             (unless (evaluation-pure evaluation) (remember-assigned form))
             (let ((values (multiple-value-list
                            ;; From here the lines of frames are found.
                            (let ((#.(or (internal-symbol "*SOURCE-PLIST*" "SB-C") '*unused-plist*)
                                    (list :evaluated (list (source-text source) (source-form-start source) form))))
                              (funcall evaluate form)))))
               (remember-values form values)
               (push (print-values evaluation values) (evaluation-forms evaluation))
               (setf (evaluation-last-values evaluation) values)
               (incf (source-form-count source))))))

(defun call-collecting-warnings (source function)
  "Call FUNCTION; its warnings become those of SOURCE."
  (handler-bind ((warning (lambda (condition) (collect-warning source condition)))
                 (sb-ext:compiler-note (lambda (condition) (collect-note source condition)))
                 (sb-c:compiler-error (lambda (condition) (collect-compile-error source condition))))
    (funcall function)))

(defun run-evaluation (evaluation evaluate)
  "Evaluate EVALUATION's source as user code and keep what ended it."
  (let ((source (evaluation-source evaluation)))
    (setf (evaluation-fault evaluation)
          (call-guarded
           (lambda ()
             (call-collecting-warnings
              source (lambda ()
                       (evaluate-forms evaluation evaluate)
                       (show-values evaluation))))))
    (mapc #'note-assigned (source-assigned source))))

;;; Requests

(defun replace-user-package (evaluation)
  "See to a package CL-USER after EVALUATION, which has deleted it."
  (unless (user-package-p)
    (add-note evaluation "The package CL-USER was deleted: there is a fresh one now, with no symbols of its own."))
  (setf *user-package* (user-package))
  ;; Threads begin in the package that is current outside of evaluations.
  (unless (package-name (sb-ext:symbol-global-value '*package*))
    (setf (sb-ext:symbol-global-value '*package*) *user-package*)))

(defun keep-package (evaluation start)
  "Make the package the user has gone to the current one. A deleted one is left, and CL-USER is never missing."
  (unless (package-name *user-package*) (replace-user-package evaluation))
  (cond ((null (package-name *package*)) (setf *current-package* *user-package*))
        ((not (eq *package* start)) (setf *current-package* *package*))))

(defun start-package (name)
  "Return the package called NAME, or the current one; a deleted one counts as none."
  (cond (name (resolve-package name))
        ((package-name *current-package*) *current-package*)
        (t (setf *current-package* (user-package)))))

(defun make-request-evaluation (request with-notes)
  "Return the evaluation that REQUEST asks for."
  (let ((text (coerce (request-text request :code) 'simple-string)))
    (make-evaluation :source (setf *latest-source* (make-source :text text :with-notes with-notes))
                     :value-limit (min (request-count request :value-limit +default-value-limit+)
                                       (ash +largest-reply+ -1))
                     :pure (pure-text-p text)
                     :started (microseconds))))

(defun leave-if-forked ()
  "End a copy of this process that user code has made: the connection is not its own."
  (unless (= (sb-posix:getpid) *process-id*) (leave)))

(defun serve-evaluation (request &key (evaluate #'eval) with-notes without-values)
  "Evaluate the code of REQUEST and reply with all that came of it."
  (let* ((evaluation (make-request-evaluation request with-notes))
         (*package* (start-package (request-optional-text request :package)))
         (start *package*))
    (with-user-streams ((min (request-count request :limit +default-limit+) (ash +largest-reply+ -1))
                        (getf request :id))
      (prepare-for-user-code)
      (setf *standing-evaluation* evaluation)
      (run-evaluation evaluation evaluate)
      (setf *standing-evaluation* nil)
      (keep-package evaluation start)
      ;; Where nothing has changed, the last checkpoint is as good as a new one.
      (when (setf *unchanged* (evaluation-unchanged-p evaluation))
        (setf *checkpoint-tag* nil))
      (setf *undisturbed* (evaluation-undisturbed-p evaluation))
      (leave-if-forked)
      ;; What threads have printed past these streams belongs before the reply.
      (unless *undisturbed* (flush-log))
      (when without-values
        (setf (evaluation-forms evaluation) '()
              (evaluation-last-values evaluation) '()
              (evaluation-cuts evaluation) '())
        (conclude-compilation evaluation))
      (note-compile-errors evaluation)
      (dolist (note (ignore-errors (stale-notes))) (add-note evaluation note))
      (let ((more (counted-notes (evaluation-source evaluation)))) (when more (add-note evaluation more)))
      (put-evaluation (getf request :id) evaluation)))
  (send-frame))

(define-operation "eval" (request)
  (serve-evaluation request))

;;; The verdict of the compiler

(defun counted-notices (evaluation)
  "Return how many errors, warnings and style warnings of EVALUATION still hold, in words, and whether any is an error."
  (let ((counts (loop for (kind word) in '(("error" "error") ("warning" "warning") ("style-warning" "style warning"))
                      collect (cons word (count kind (settled-notices (evaluation-source evaluation))
                                                :key #'notice-kind :test #'string=)))))
    (values (format nil "~{~a~^, ~}" (loop for (word . count) in counts
                                           when (plusp count) collect (format nil "~d ~a~p" count word count)))
            (plusp (cdr (first counts))))))

(defun conclude-compilation (evaluation)
  "Let EVALUATION, a compilation, fail where the compiler has found errors."
  (unless (or (evaluation-fault evaluation) (null (source-warnings (evaluation-source evaluation))))
    (multiple-value-bind (counts failed) (counted-notices evaluation)
      (when failed (setf (evaluation-fault evaluation) (failed-compilation evaluation counts))))))

(defun failed-compilation (evaluation counts)
  "Return the members of the error that a compilation with COUNTS of notices is."
  (let ((first (find "error" (settled-notices (evaluation-source evaluation)) :key #'notice-kind :test #'string=)))
    (append (list "type" "COMPILATION-FAILED"
                  "message" (format nil "Compilation failed: ~a. What was defined with an error signals it when it is run."
                                    counts)
                  "restarts" #() "backtrace" #() "interrupted" :false)
            (and (notice-file first) (list "file" (notice-file first)))
            (and (notice-line first) (list "line" (notice-line first))))))

(defun note-compile-errors (evaluation)
  "Say in one line that the compiler has found errors in EVALUATION, which has gone on in spite of them."
  (when (and (source-warnings (evaluation-source evaluation)) (null (evaluation-fault evaluation)))
    (multiple-value-bind (counts failed) (counted-notices evaluation)
      (when failed
        (add-note evaluation (format nil "Compilation failed: ~a. What was defined with an error signals it when it ~
                                          is run." counts))))))

;;;; Compilation: like evaluation, but every form goes through the compiler, its
;;;; notes are told as well, and no values are. Nothing is written to a file, so
;;;; it works where no directory is writable.

(defun compiled-as-a-whole-p (form)
  "Tell whether FORM is to be compiled as the body of a function. EVAL would interpret a plain call without a
look at its arguments, and would keep the compiler's notes about a definition to itself. Other forms may have to
take effect piece by piece, as toplevel forms do."
  (and (consp form) (symbolp (first form))
       (or (member (first form) '(defun defmethod))
           (not (or (special-operator-p (first form)) (macro-function (first form)))))))

(defun compile-and-run (form)
  "Evaluate FORM by way of the compiler."
  (if (compiled-as-a-whole-p form)
      (funcall (compile nil `(lambda () ,form)))
      (eval form)))

(define-operation "compile" (request)
  (serve-evaluation request :evaluate #'compile-and-run :with-notes t :without-values t))

;;;; Macro expansion. It runs the macros of the user, so it is guarded like an
;;;; evaluation, and can be interrupted like one.

(defun expand-everywhere (form)
  "Expand FORM and all forms inside of it."
  (sb-cltl2:macroexpand-all form))

(defun all-forms (text)
  "Return the forms that TEXT spells, at least one."
  (let* ((source (make-source :text (coerce text 'simple-string)))
         (*read-eval* nil))
    (or (loop for form = (read-form source source) until (eq form source) collect form)
        (error "There is no form in ~s." text))))

(defun expansion-text (text full)
  "Return the printed expansions of the forms that TEXT spells, and whether there was anything to expand."
  (let ((forms (all-forms text)) (*print-pretty* t) (*print-right-margin* 100) (any nil))
    (values (format nil "~{~a~^~%~%~}"
                    (loop for form in forms
                          collect (multiple-value-bind (once expanded) (macroexpand-1 form)
                                    (let ((result (if full (expand-everywhere form) once)))
                                      (when (or expanded (not (equal result form))) (setf any t))
                                      (whole-text result)))))
            any)))

(defun whole-text (value)
  "Return the text of VALUE, as much as is kept of it."
  (multiple-value-bind (text cut) (printed-value value +default-value-limit+)
    (if cut (cut-text-text cut) text)))

(define-operation "macroexpand" (request)
  (let ((*package* (question-package request))
        (text (request-text request :form))
        expansion expanded)
    (with-user-streams (+default-limit+)
      (prepare-for-user-code)
      (let ((fault (call-guarded
                    (lambda ()
                      (handler-bind ((warning #'muffle-warning))
                        (setf (values expansion expanded)
                              (expansion-text text (getf request :full))))))))
        (if fault
            (reply-fault request fault)
            (answer request expansion "expanded" (if expanded t :false)))))))
