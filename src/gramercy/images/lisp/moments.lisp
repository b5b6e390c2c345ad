;;;; The moment of an error. Where an evaluation fails, and before anything is
;;;; unwound, a copy of this process is made in which the stack stands: it serves
;;;; questions about its frames and restarts on top of that stack. A copy of the
;;;; copy, an attempt, goes on with a restart, finishes the evaluation, replies to
;;;; it, and is a whole image then. Nothing is copied for conditions that are handled.

(in-package #:gramercy.image)

(defglobal *standing-request* '() "The request whose evaluation runs, or stands.")
(defglobal *standing-frames* '() "The frames of the user's on the stack that stands, newest first.")
(defglobal *frames-complete* nil "Whether those are all.")
(defglobal *stack-is-full* nil "Whether the stack that stands has no room for code of the user's.")

(defconstant +most-walked+ 2000 "Frames looked at: a full stack has hundreds of thousands, most of them alike.")
(defconstant +most-told+ 40 "Frames told in one answer, where the request does not say.")
(defconstant +longest-local+ 400 "Characters told of the value of a variable.")
(defconstant +most-locals+ 60 "Variables told of a frame: macros can bind hundreds.")

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
             (reason (why-no-moment condition))
             (process (unless reason
                        (handler-case (fork-process)
                          ((or error storage-condition) (refusal)
                            (setf reason (condition-message refusal))
                            nil)))))
        (when (eql process 0) (become-moment condition tag))
        (setf *moment-told* (if reason (list "no_moment" reason) (list* "moment" t (told-choices))))))
    (when *moment-told*
      ;; Where a cleanup form has failed too, that fault is told, with what the first one has left.
      (setf *fault* (append (fault-beside *fault*) *moment-told*)))))

(defun become-moment (condition tag)
  "Set this process, just forked, up to keep the stack that CONDITION has stopped, and serve it."
  (setf *moment* condition
        *standing-frames* '()
        *stack-is-full* (typep condition 'storage-condition)
        *evaluating* nil)
  (become-copy "moment" tag)
  (let ((sb-kernel:*restart-clusters* '())
        (sb-ext:*invoke-debugger-hook* #'end-request)
        (*debugger-hook* nil)
        (*untracked* t))
    (serve-requests)))

;;; Frames

(defstruct (standing (:copier nil))
  "A frame of the user's on the stack that stands: SBCL's own object, and the name and arguments of its call."
  object call)

(defun standing-name (standing)
  "Return the name of the function of STANDING."
  (frame-name (standing-call standing)))

(defun frame-arguments (frame)
  "Return the call of FRAME as a list of a name and arguments, without the arguments where they cannot be trusted."
  (let ((call (internal-function "FRAME-CALL" "SB-DEBUG")))
    (if (or (null call) (stopped-anywhere-p *moment*))
        (list (sb-di:debug-fun-name (sb-di:frame-debug-fun frame)) '|...|)
        (multiple-value-bind (name arguments) (funcall call frame)
          (cons name arguments)))))

(defun find-standing-frames ()
  "Return the frames of the user's on this stack, and whether those are all."
  (let ((map-frames (internal-function "MAP-BACKTRACE" "SB-DEBUG"))
        (count 0) (frames '()))
    (when map-frames
      (funcall map-frames
               (lambda (frame)
                 (incf count)
                 (push (make-standing :object frame
                                      :call (handler-case (frame-arguments frame) (error () (list "unknown"))))
                       frames))
               :count +most-walked+))
    (values (user-frames (nreverse frames) #'standing-name) (< count +most-walked+))))

(defun standing-frames ()
  "Return the frames of the user's on the stack that stands; found once, since it stands."
  (or *standing-frames*
      (multiple-value-bind (frames complete) (find-standing-frames)
        (setf *frames-complete* complete
              *standing-frames* frames))))

(defun standing-frame (number)
  "Return the frame NUMBER of the stack that stands, or refuse it."
  (let ((frames (standing-frames)))
    (unless frames (refuse "NO-FRAME" "There are no frames: nothing of the code ran."))
    (or (and (< -1 number (length frames)) (nth number frames))
        (refuse "NO-FRAME" (format nil "There is no frame ~a: there are 0 to ~d." (plain-text number 20)
                                   (1- (length frames)))))))

(define-condition refusal (error)
  ((type :initarg :type :reader refusal-type)
   (reason :initarg :reason :reader refusal-reason))
  (:report (lambda (condition stream) (write-string (refusal-reason condition) stream)))
  (:documentation "Signalled by our own code for what a moment cannot do."))

(defun refuse (type reason)
  "Refuse what a request asks of a moment."
  (error 'refusal :type type :reason reason))

(defun frame-members (standing number)
  "Return what an answer tells of STANDING, the frame NUMBER."
  (let ((place (ignore-errors (or (called-form-place standing) (standing-place standing)))))
    (append (list "number" number
                  "name" (let ((*plain-symbols* #'seen-symbol)) (plain-text (standing-name standing) 200))
                  "call" (frame-text (named-frame (standing-call standing) *moment*)))
            (and place (string/= "" (place-file place)) (list "file" (shown-file (place-file place))))
            (and place (place-line place) (list "line" (place-line place)))
            (and place (place-text place) (list "source" (place-text place)))
            (list "locals" (cons :array (mapcar #'local-name (standing-variables standing)))))))

(defun shown-frame (members)
  "Return the lines that show a frame of which MEMBERS tell."
  (let ((file (getf-text members "file")) (line (getf-text members "line")) (source (getf-text members "source"))
        (locals (rest (getf-text members "locals"))))
    (format nil "~d: ~a~@[~%     ~a~]~@[~%     locals: ~{~a~^ ~}~]"
            (getf-text members "number") (getf-text members "call")
            (and (or file source)
                 (format nil "~:[line~;~:*~a~]~:[ ~;:~]~@[~d~]~@[  ~a~]" file file line
                         (and source (string-left-trim " 	" source))))
            (subseq locals 0 (min 12 (length locals))))))

(define-operation "frames" (request)
  (need-moment)
  (let* ((frames (standing-frames))
         (limit (min 200 (request-count request :limit +most-told+)))
         (start (min (request-count request :offset 0) (length frames)))
         (told (progv '(*file-texts*) (list (make-hash-table :test 'equal))
                 (loop for standing in (nthcdr start frames)
                       for number from start
                       repeat limit
                       collect (frame-members standing number)))))
    (answer request (format nil "~{~a~^~%~}" (mapcar #'shown-frame told))
            "frames" (cons :array (mapcar (lambda (members) (cons :object members)) told))
            "total" (length frames)
            "complete" (if *frames-complete* t :false))))

;;; Places

(defun location-form-number (location)
  "Return which subform of its toplevel form LOCATION is at, or NIL."
  (let ((number (ignore-errors (sb-di:code-location-form-number location))))
    (and (typep number '(integer 0 100000)) number)))

(defun standing-place (standing)
  "Return the place, of a file or of evaluated code, at which STANDING stands, or NIL."
  (let* ((location (sb-di:frame-code-location (standing-object standing)))
         (source (sb-di:code-location-debug-source location))
         (evaluated (getf (sb-c::debug-source-plist source) :evaluated))
         (form (and evaluated (ignore-errors (sb-c::core-debug-source-form source)))))
    (cond (form (evaluated-place evaluated form (location-form-number location)))
          (t (file-place standing (sb-c::debug-source-namestring source) location)))))

(defun called-form-place (standing)
  "Return the place of the form that STANDING, a call of EVAL by us, evaluates, or NIL."
  (let ((source (and *standing-evaluation* (evaluation-source *standing-evaluation*)))
        (form (and (eq 'eval (standing-name standing)) (second (standing-call standing)))))
    (when (and source (consp form) (eq form (source-form source)))
      (text-place (source-text source) (skip-text-blanks (source-text source) (source-form-start source))))))

(defun evaluated-place (evaluated form number)
  "Return the place of the subform NUMBER of FORM in the text of which EVALUATED tells: text, start, toplevel form.
The compiler wraps what it compiles: of the subforms on the way the last one counts that was read from the text."
  (destructuring-bind (text start toplevel) evaluated
    (let* ((paths (sb-di:form-number-translations form 0))
           (path (and number (< number (length paths)) (reverse (rest (butlast (aref paths number))))))
           (best (and (eq form toplevel) '())))
      (loop for found = (if (eq form toplevel) '() (subform-path toplevel form))
            do (when (or found (eq form toplevel)) (setf best found))
            while (and path (consp form))
            do (setf form (ignore-errors (nth (pop path) form))))
      (when (or best (eq form toplevel))
        (text-place text (subform-place text start best))))))

(defun text-place (text position)
  "Return the place of POSITION in TEXT, which was evaluated."
  (let* ((start (1+ (or (position #\Newline text :end position :from-end t) -1)))
         (end (or (position #\Newline text :start position) (length text))))
    (make-place :file "" :line (line-number text position) :text (subseq text start (min end (+ start 300))))))

(defun file-place (standing name location)
  "Return the place in the file NAME at which STANDING stands, or NIL. SBCL's own files are not told."
  (when (and (stringp name) (not (eql (mismatch "SYS:" name) 4)))
    (let* ((file (native-name (pathname name)))
           (octets (source-octets file))
           (start (and octets (toplevel-octet standing octets location))))
      (when start
        (let* ((text (octets-text octets start (min (length octets) (+ start +longest-toplevel-form+))))
               (line (+ (newlines-before octets start)
                        (line-number text (numbered-place text (first-read-place text)
                                                          (or (location-form-number location) 0))))))
          (make-place :file file :line line :text (file-line-text file line)))))))

(defun toplevel-octet (standing octets location)
  "Return where in OCTETS, of a file, the toplevel form begins whose code STANDING is at, or NIL."
  (let* ((function (ignore-errors (sb-di:debug-fun-fun (sb-di:frame-debug-fun (standing-object standing)))))
         (source (and function (ignore-errors (sb-introspect:find-definition-source function))))
         (offset (and source (sb-introspect:definition-source-character-offset source))))
    (if (and offset (<= offset (length octets)))
        offset
        (let* ((number (ignore-errors (sb-di:code-location-toplevel-form-offset location)))
               (text (octets-text octets 0 (length octets)))
               (place (and (typep number '(integer 0 100000)) (toplevel-place text number))))
          (and place (length (sb-ext:string-to-octets text :end place :external-format :utf-8)))))))

;;; Variables

(defun standing-variables (standing)
  "Return the variables that the code of STANDING knows by name, those of the user's, each name once."
  (let* ((debug-fun (sb-di:frame-debug-fun (standing-object standing)))
         (variables (ignore-errors (funcall (internal-function "DEBUG-FUN-DEBUG-VARS" "SB-DI") debug-fun)))
         (location (sb-di:frame-code-location (standing-object standing)))
         (found '()))
    (loop for variable across (or variables #())
          for symbol = (sb-di:debug-var-symbol variable)
          when (users-variable-p symbol)
            do (let ((known (find symbol found :key #'sb-di:debug-var-symbol)))
                 (cond ((null known) (push variable found))
                       ;; Of several with one name, the one that is readable here is the inner one.
                       ((variable-readable-p variable location)
                        (setf found (substitute variable known found))))))
    (let ((all (nreverse found)))
      (subseq all 0 (min +most-locals+ (length all))))))

(defun users-variable-p (symbol)
  "Tell whether SYMBOL can be a variable that the user has written: people call them LIST and SEQUENCE, too."
  (let ((package (symbol-package symbol)))
    (and package
         (not (own-package-p package))
         (or (eq package (load-time-value (find-package "COMMON-LISP")))
             (not (system-package-p package))))))

(defun variable-readable-p (variable location)
  "Tell whether VARIABLE has a value at LOCATION."
  (eq :valid (ignore-errors (sb-di:debug-var-validity variable location))))

(defun local-name (variable)
  "Return the name of VARIABLE as the code writes it."
  (seen-symbol (sb-di:debug-var-symbol variable)))

(defun interrupted-frame-p (standing)
  "Tell whether the code of STANDING may have been stopped between any two instructions, its variables half set."
  (let ((escaped (internal-function "COMPILED-FRAME-ESCAPED" "SB-DI")))
    (and (stopped-anywhere-p *moment*)
         (or (null escaped) (funcall escaped (standing-object standing))))))

(defun local-members (variable standing)
  "Return what an answer tells of VARIABLE in STANDING."
  (let ((location (sb-di:frame-code-location (standing-object standing)))
        (*plain-symbols* #'seen-symbol))
    (append (list "name" (local-name variable))
            (cond ((interrupted-frame-p standing)
                   (list "value" "(not readable: the code was stopped between two instructions)" "type" ""))
                  ((not (variable-readable-p variable location))
                   ;; Not bound yet at this point, or not needed any more: the compiler does not tell which.
                   (list "value" "(no value here)" "type" "" "unset" t))
                  (t (let ((value (sb-di:debug-var-value variable (standing-object standing))))
                       (list "value" (structure-text value +longest-local+)
                             "type" (plain-type-name value))))))))

(defun structure-text (value limit)
  "Return the text of VALUE by its structure; of an object of a class of the user's with its slots."
  (if (and (typep value '(or structure-object standard-object)) (not (own-type-text-p value)))
      (let ((stream (make-instance 'stopping-stream :limit limit)))
        (if (eq :overflow (catch stream (print-slots value stream) nil))
            (concatenate 'string (stream-text stream) "...")
            (stream-text stream)))
      (plain-text value limit)))

(defun own-type-text-p (value)
  "Tell whether VALUE is of a class of the system's, whose slots tell the user nothing."
  (let ((package (ignore-errors (symbol-package (class-name (class-of value))))))
    (or (null package) (own-package-p package) (system-package-p package))))

(defun print-slots (value stream)
  "Print VALUE, an object of a class of the user's, with what is stored in its slots."
  (format stream "#<~a" (plain-type-name value))
  (loop for (name . content) in (slot-parts value)
        do (format stream " ~a=" name)
           (print-plainly content stream 4))
  (write-string ">" stream))

(define-operation "locals" (request)
  (need-moment)
  (let* ((number (request-count request :frame 0))
         (standing (standing-frame number))
         (locals (mapcar (lambda (variable) (local-members variable standing)) (standing-variables standing)))
         (members (frame-members standing number)))
    (answer request
            (format nil "~a~%~:[(no variables are known by name)~;~:*~{~a~^~%~}~]" (shown-frame members)
                    (mapcar (lambda (local) (format nil "  ~a = ~a" (getf-text local "name") (getf-text local "value")))
                            locals))
            "frame" (cons :object members)
            "locals" (cons :array (mapcar (lambda (local) (cons :object local)) locals)))))

(defun need-moment ()
  "Refuse what only a moment can do."
  (unless *moment* (refuse "NO-MOMENT" "No stack stands in this process.")))

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
        (put-evaluation (getf request :id) evaluation nil)
        (send-frame)))))

;;;; Going on

(define-operation "restarts" (request)
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
  (loop with floor = 0
        for block = (sb-sys:sap-int (sb-vm::current-thread-offset-sap sb-vm::thread-current-unwind-protect-block-slot))
          then (sb-sys:sap-ref-word (sb-sys:int-sap block) (* sb-vm:n-word-bytes sb-vm::unwind-block-uwp-slot))
        until (= block floor)
        count (user-address-p (sb-sys:sap-ref-word (sb-sys:int-sap block)
                                                   (* sb-vm:n-word-bytes sb-vm::unwind-block-entry-pc-slot)))))

(defun user-address-p (address)
  "Tell whether the code at ADDRESS is neither SBCL's nor ours."
  (let* ((code (sb-di::code-header-from-pc (sb-sys:int-sap address)))
         (information (and (typep code 'sb-kernel:code-component) (sb-kernel:%code-debug-info code)))
         (name (and (typep information 'sb-c::compiled-debug-info)
                    (sb-c::debug-source-namestring (sb-c::debug-info-source information)))))
    (and (typep information 'sb-c::compiled-debug-info)
         (not (and (stringp name)
                   (or (eql (mismatch "SYS:" name) 4)
                       (search (load-time-value (directory-namestring (or *load-truename* "/"))) name)))))))
