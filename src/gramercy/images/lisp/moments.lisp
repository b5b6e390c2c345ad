;;;; The moment of an error. Where an evaluation fails, and before anything is
;;;; unwound, a copy of this process is made in which the stack stands: it serves
;;;; questions about its frames and restarts on top of that stack. A copy of the
;;;; copy, an attempt, goes on with a restart, finishes the evaluation, replies to
;;;; it, and is a whole image then. Nothing is copied for conditions that are handled.

(in-package #:gramercy.image)

(defglobal *standing-request* '() "The request whose evaluation runs, or stands.")
(defglobal *stack-is-full* nil "Whether the stack that stands has no room for code of the user's.")

;;; Keeping

(defun why-no-moment (condition)
  "Return why the stack of CONDITION is not kept, or NIL."
  (cond ((typep condition '#.(or (internal-symbol "HEAP-EXHAUSTED-ERROR" "SB-KERNEL") 'null))
         "the heap is exhausted, and a copy would keep all of it alive")
        ((typep condition 'sb-sys:memory-fault-error) "the stack may not be intact after a memory fault")
        ((and (or (unreadable-code-p condition) (input-error-p condition)) (null *choices*))
         "the code could not be read, so nothing of it ran")))

(defun told-choices ()
  "Return the member of a fault that tells its restarts, where there are any."
  (and *choices* (list "choices" (cons :array (choice-objects)))))

(defun keep-moment (condition)
  "Leave a copy of this process, in which the stack stands, if the parent wants one. Tell in the fault what became
of it. There is one for an evaluation: a cleanup form that fails while this process unwinds leaves no other."
  (let ((tag (shiftf *moment-tag* nil)))
    (when tag
      ;; Handlers of the user's are on the stack that stands; what we signal is not for them.
      (let* ((sb-kernel:*handler-clusters* *floor-handlers*)
             (reason (why-no-moment condition)))
        (multiple-value-bind (process end)
            (unless reason
              (handler-case (fork-with-end tag)
                ((or error storage-condition) (refusal)
                  (setf reason (condition-message refusal))
                  nil)))
          (when (eql process 0) (become-moment condition end)))
        (setf *moment-told* (if reason (list "no_moment" reason) (list* "moment" t (told-choices))))))
    (when *moment-told*
      ;; Where a cleanup form has failed too, that fault is told, with what the first one has left.
      (setf *fault* (append (fault-beside *fault*) *moment-told*)))))

(defun become-moment (condition end)
  "Set this process, just forked, up to keep the stack that CONDITION has stopped, and serve it."
  (setf *moment* condition
        *standing-frames* '()
        *stack-is-full* (typep condition 'storage-condition)
        *evaluating* nil)
  (become-copy "moment" end)
  (let ((sb-kernel:*restart-clusters* '())
        (sb-ext:*invoke-debugger-hook* #'end-request)
        (*debugger-hook* nil)
        (*untracked* t))
    (serve-requests)))

;;;; Evaluation in a frame

(defmacro with-output-put-aside (&body body)
  "Run BODY, which prints to the streams of an evaluation, and leave in them what the standing one has printed."
  `(let ((standard (stream-contents *standard-output-kept*))
         (error (stream-contents *error-output-kept*)))
     (unwind-protect (progn ,@body)
       (setf (stream-contents *standard-output-kept*) standard
             (stream-contents *error-output-kept*) error))))

(defun call-with-room (function)
  "Call FUNCTION: where the stack that stands is full, on a thread of its own, which sees none of its bindings."
  (if *stack-is-full*
      (let ((package *package*) (main *main-thread*)
            (streams (list *standard-output* *error-output* *trace-output* *terminal-io* *standard-input*
                           *query-io* *debug-io*)))
        (sb-thread:join-thread
         (sb-thread:make-thread
          (lambda ()
            (progv '(*package* *standard-output* *error-output* *trace-output* *terminal-io* *standard-input*
                     *query-io* *debug-io* *untracked*)
                (append (list package) streams (list t))
              (setf *main-thread* sb-thread:*current-thread*)
              (unwind-protect (funcall function) (setf *main-thread* main))))
          :name "in a frame")
         :default nil))
      (funcall function)))

(defun run-beside (evaluation evaluate)
  "Evaluate EVALUATION, with the function EVALUATE, on top of the stack that stands, which it cannot leave."
  (let ((restarts *floor-restarts*) (handlers *floor-handlers*) (choices *choices*) (left t)
        ;; What goes on wants a moment, should it fail again; this does not.
        (tag (shiftf *moment-tag* nil)))
    (block stay
      (unwind-protect
           (progn (call-with-room (lambda () (run-evaluation evaluation evaluate)))
                  (setf left nil))
        (setf *floor-restarts* restarts *floor-handlers* handlers *choices* choices *evaluating* nil
              *moment-tag* tag
              (evaluation-fault evaluation) (fault-beside (evaluation-fault evaluation)))
        (when left
          (setf (evaluation-fault evaluation)
                (list "type" "LEFT-MOMENT"
                      "message" "The code tried to leave the stack of the error, by THROW, GO or RETURN-FROM."
                      "restarts" #() "backtrace" #() "interrupted" :false))
          (return-from stay))))))

(defun fault-beside (fault)
  "Return FAULT, of code that ran beside the stack that stands: it leaves no moment, so there is no going on from it,
and the frames that lead from here to the code tell nothing."
  (loop for (key value) on fault by #'cddr
        unless (string= key "choices")
          collect key
          and collect (if (and (string= key "backtrace") (consp value))
                          (remove-if (lambda (text) (and (stringp text) (search "COMPILED-FRAME>" text))) value)
                          value)))

(defun frame-package (frame)
  "Return the package that the code of FRAME was written in, by the name of its function, or the current one."
  (let ((found *package*))
    (name-mentions-p (sb-di:debug-fun-name (sb-di:frame-debug-fun frame))
                     (lambda (symbol)
                       (let ((package (symbol-package symbol)))
                         (when (and package (not (keywordp symbol)) (not (own-package-p package))
                                    (not (system-package-p package)))
                           (setf found package)))))
    found))

(defun evaluating-frame (number)
  "Return SBCL's own object for the frame NUMBER, or for the next one that has variables: that of an undefined function
stands for a call that never was."
  (let ((standing (standing-frame number)))
    (standing-object (if (typep (sb-di:frame-debug-fun (standing-object standing))
                                '#.(or (internal-symbol "BOGUS-DEBUG-FUN" "SB-DI") 'null))
                         (or (nth (1+ number) (standing-frames)) standing)
                         standing))))

(defun explain-fault (fault frame)
  "Say in FAULT, of code in FRAME, that a variable which seems unbound has lost its value there."
  (setf (getf-text fault "restarts") #())
  (let ((standing (find frame (standing-frames) :key #'standing-object))
        (location (sb-di:frame-code-location frame)))
    (dolist (variable (and standing (ignore-errors (standing-variables standing))))
      (let ((name (local-name variable)))
        (when (and (not (variable-readable-p variable location))
                   (string= (getf-text fault "message") (format nil "The variable ~a is unbound." name)))
          (setf (getf-text fault "message")
                (format nil "The variable ~a has no value any more at this point of the frame: the code does not need ~
                             it. Declare (optimize (debug 3)) in its function to keep it." name)))))))

(define-operation "eval_in_frame" (request)
  (need-moment)
  (let* ((frame (evaluating-frame (request-count request :frame 0)))
         (evaluation (make-request-evaluation request nil))
         ;; The variables of a frame are named as its code names them.
         (*package* (frame-package frame)))
    (setf (evaluation-pure evaluation) nil)
    (with-output-put-aside
      (with-user-streams (+default-limit+ (getf request :id))
        (prepare-for-user-code)
        (run-beside evaluation (lambda (form) (sb-di:eval-in-frame frame form)))
        (leave-if-forked)
        (when (evaluation-fault evaluation) (explain-fault (evaluation-fault evaluation) frame))
        (put-evaluation (getf request :id) evaluation nil)
        (send-frame)))))

;;;; Going on

(define-look "restarts" (request)
  (need-moment)
  (answer request (format nil "~:[There are no restarts.~;~:*~{~a~^~%~}~]" (mapcar #'shown-choice *choices*))
          "restarts" (cons :array (choice-objects))))

(defun shown-choice (choice)
  "Return the line that shows CHOICE."
  (format nil "~d: ~a~@[ (~{~a~^ ~})~] ~a" (choice-number choice) (choice-name choice)
          (choice-parameters choice) (choice-report choice)))

(defun find-choice (word)
  "Return the restart that WORD, a number or a name, means, or refuse it. Of several with one name, the innermost."
  (let ((number (if (stringp word) (ignore-errors (parse-integer word)) word))
        (name (and (stringp word) (string-upcase (string-left-trim ":'" word)))))
    (or (if (integerp number)
            (find number *choices* :key #'choice-number)
            (or (find name *choices* :key #'choice-name :test #'string=)
                (find (subseq name (1+ (or (position #\: name :from-end t) -1))) *choices*
                      :key (lambda (choice) (string (or (restart-name (choice-restart choice)) "")))
                      :test #'string=)))
        (refuse "NO-RESTART" (format nil "There is no restart ~a: ~:[there are none~;~:*there are ~{~a~^, ~}~]."
                                     (plain-text word 60)
                                     (mapcar (lambda (choice)
                                               (format nil "~d ~a" (choice-number choice) (choice-name choice)))
                                             *choices*))))))

(defun check-arguments (choice count)
  "Refuse COUNT arguments where CHOICE takes more or less."
  (let* ((parameters (choice-parameters choice))
         (optional (position #\& parameters :key (lambda (name) (char name 0))))
         (required (or optional (length parameters)))
         (most (cond ((null optional) required)
                     ((intersection '("&REST" "&KEY" "&BODY") parameters :test #'string=) nil)
                     (t (1- (length parameters))))))
    (when (or (< count required) (and most (> count most)))
      (refuse "RESTART-ARGUMENTS"
              (format nil "The restart ~a takes ~:[no arguments~;~:*the arguments (~{~a~^ ~})~], and ~d ~:*~[were~;was~:;were~] ~
                           given. Give each as code."
                      (choice-name choice) parameters count)))))

(defun restart-arguments (texts request)
  "Return the values of TEXTS, code for the arguments of a restart, or reply to REQUEST why there are none and NIL."
  (let ((evaluation (make-request-evaluation
                     (list :code (format nil "(common-lisp:list ~{~%~a~})" texts)) nil)))
    (with-output-put-aside
      (with-user-streams (+default-limit+)
        (prepare-for-user-code)
        (run-beside evaluation #'eval)))
    (let ((fault (evaluation-fault evaluation)))
      (cond (fault
             (setf fault (copy-list fault)
                   (getf-text fault "message")
                   (format nil "The arguments of the restart cannot be had: ~a" (getf-text fault "message")))
             (reply-unchanged-fault request fault)
             (values nil nil))
            (t (values (first (evaluation-last-values evaluation)) t))))))

(define-operation "invoke" (request)
  (need-moment)
  (let* ((choice (find-choice (getf request :restart)))
         (texts (getf request :arguments)))
    (unless (every #'stringp texts) (malformed "arguments must be a list of strings"))
    (unless texts (check-arguments choice 0))
    (multiple-value-bind (arguments there) (if texts (restart-arguments texts request) (values '() t))
      (when there
        (check-arguments choice (length arguments))
        (go-on request choice arguments)))))

(defun go-on (request choice arguments)
  "Go on with CHOICE and ARGUMENTS: the evaluation that stands is finished, and replied to as REQUEST."
  (let ((cleanups (ignore-errors (count-cleanups))))
    (setf (second (member :id *standing-request*)) (getf request :id)
          *moment* nil
          *standing-frames* '()
          *fault* nil
          *moment-told* '()
          *interruptions* 0)
    (when *standing-evaluation*
      (setf (evaluation-started *standing-evaluation*) (microseconds))
      (when (and cleanups (plusp cleanups))
        (add-note *standing-evaluation*
                  (format nil "~d cleanup form~:p of the code ran in the image after the error, and run~[~;s~:;~] again ~
                               here: what ~:*~[~;it has~:;they have~] closed, deleted or unlocked there stays so."
                          cleanups cleanups)))))
  (show-again *standard-output-kept* *error-output-kept* (getf request :id))
  (prepare-for-user-code)
  (watch-connection-later)
  (setf *evaluating* t)
  (let ((sb-kernel:*handler-clusters* *standing-handlers*)
        (sb-kernel:*restart-clusters* *standing-restarts*)
        (sb-ext:*invoke-debugger-hook* #'debugger-replacement)
        (*untracked* (sb-ext:symbol-global-value '*untracked*)))
    (apply #'invoke-restart (choice-restart choice) arguments))
  ;; A function of RESTART-BIND may return, and then nothing has gone on.
  (setf *evaluating* nil)
  (reply-unchanged-fault request
                         (list "type" "RESTART-RETURNED"
                               "message" (format nil "The restart ~a returned without going on." (choice-name choice)))))

(defun count-cleanups ()
  "Return how many cleanup forms of the user's code stand on this stack: they run when it is unwound."
  (flet ((slot (name) (* sb-vm:n-word-bytes (symbol-value (internal-symbol name "SB-VM")))))
    (let ((link (slot "UNWIND-BLOCK-UWP-SLOT"))
          (entry (slot "UNWIND-BLOCK-ENTRY-PC-SLOT"))
          (first (funcall (internal-function "CURRENT-THREAD-OFFSET-SAP" "SB-VM")
                          (symbol-value (internal-symbol "THREAD-CURRENT-UNWIND-PROTECT-BLOCK-SLOT" "SB-VM")))))
      (loop for block = first then (sb-sys:sap-ref-sap block link)
            until (zerop (sb-sys:sap-int block))
            count (user-address-p (sb-sys:sap-ref-sap block entry))))))

(defun user-address-p (address)
  "Tell whether the code at ADDRESS is neither SBCL's nor ours."
  (let* ((code (funcall (internal-function "CODE-HEADER-FROM-PC" "SB-DI") address))
         (information (and (typep code 'sb-kernel:code-component) (sb-kernel:%code-debug-info code)))
         (source (and (typep information '#.(or (internal-symbol "COMPILED-DEBUG-INFO" "SB-C") 'null))
                      (source-part "DEBUG-INFO-SOURCE" information)))
         (name (and source (source-part "DEBUG-SOURCE-NAMESTRING" source))))
    (and source
         (not (and (stringp name)
                   (or (eql (mismatch "SYS:" name) 4)
                       (search (load-time-value (directory-namestring (or *load-truename* "/"))) name)))))))
