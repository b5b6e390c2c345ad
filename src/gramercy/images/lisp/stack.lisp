;;;; The stack that stands in a moment: its frames with their places, and the variables
;;;; in them. A look runs no code of the user's, and the stack stays as it is.

(in-package #:gramercy.image)

(defglobal *standing-frames* '() "The frames of the user's on the stack that stands, newest first.")
(defglobal *frames-complete* nil "Whether those are all.")

(defconstant +most-walked+ 2000 "Frames looked at: a full stack has hundreds of thousands, most of them alike.")
(defconstant +most-told+ 40 "Frames told in one answer, where the request does not say.")
(defconstant +longest-local+ 400 "Characters told of the value of a variable.")
(defconstant +most-locals+ 60 "Variables told of a frame: macros can bind hundreds.")

;;; Frames

(defstruct (standing (:copier nil))
  "A frame of the user's on the stack that stands: SBCL's own object, and the name and arguments of its call."
  object call)

(defun standing-name (standing)
  "Return the name of the function of STANDING."
  (frame-name (standing-call standing)))

(defun frame-arguments (frame condition)
  "Return the call of FRAME as a list of a name and arguments, without the arguments where CONDITION may have stopped
code between two instructions: it may have reused their places, and what stands there may be no object at all, which
would break the next garbage collection."
  (let ((call (internal-function "FRAME-CALL" "SB-DEBUG")))
    (if (or (null call) (stopped-anywhere-p condition))
        (list (sb-di:debug-fun-name (sb-di:frame-debug-fun frame)) '|...|)
        (multiple-value-bind (name arguments) (funcall call frame)
          (cons name arguments)))))

(defun find-standing-frames (condition)
  "Return the frames of the user's on this stack, which CONDITION has stopped, and whether those are all."
  (let ((map-frames (internal-function "MAP-BACKTRACE" "SB-DEBUG"))
        (count 0) (frames '()))
    (when map-frames
      (funcall map-frames
               (lambda (frame)
                 (incf count)
                 (let ((call (handler-case (frame-arguments frame condition) (error () (list "unknown")))))
                   (push (make-standing :object frame :call call) frames)))
               :count +most-walked+))
    (values (user-frames (nreverse frames) #'standing-name) (< count +most-walked+))))

(defun standing-frames ()
  "Return the frames of the user's on the stack that stands; found once, since it stands."
  (or *standing-frames*
      (multiple-value-bind (frames complete) (find-standing-frames *moment*)
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

(define-look "frames" (request)
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

(defun source-part (name source)
  "Return what the reader NAME of the compiler's tells of SOURCE, its own record of where code came from."
  (let ((reader (internal-function name "SB-C")))
    (and reader (funcall reader source))))

(defun standing-place (standing)
  "Return the place, of a file or of evaluated code, at which STANDING stands, or NIL."
  (let* ((location (sb-di:frame-code-location (standing-object standing)))
         (source (sb-di:code-location-debug-source location))
         (evaluated (getf (source-part "DEBUG-SOURCE-PLIST" source) :evaluated))
         (form (and evaluated (ignore-errors (source-part "CORE-DEBUG-SOURCE-FORM" source)))))
    (cond (form (evaluated-place evaluated form (location-form-number location)))
          (t (file-place standing (source-part "DEBUG-SOURCE-NAMESTRING" source) location)))))

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
    (let ((file (native-name (pathname name))))
      (multiple-value-bind (octets source) (running-text file (standing-source standing))
        (located-place file octets (and octets (toplevel-octet source octets location)) location)))))

(defun standing-source (standing)
  "Return the definition source of the function of STANDING, or NIL."
  (let ((function (ignore-errors (sb-di:debug-fun-fun (sb-di:frame-debug-fun (standing-object standing))))))
    (and function (source-of function))))

(defun running-text (file source)
  "Return the octets in which the form of SOURCE stands that runs, and SOURCE as it counts there: those of FILE now, or
where the form is another by now those that were loaded."
  (let ((present (and source (present-source file source)))
        (version (and source (version-of file source))))
    (if (or present (null version))
        (values (source-octets file) (or present source))
        (values (version-octets version) source))))

(defun located-place (file octets start location)
  "Return the place of LOCATION in FILE with OCTETS, whose toplevel form begins at START; NIL without START."
  (when start
    (let* ((text (octets-text octets start (min (length octets) (+ start +longest-toplevel-form+))))
           (line (+ (newlines-before octets start)
                    (line-number text (numbered-place text (first-read-place text)
                                                      (or (location-form-number location) 0))))))
      (make-place :file file :line line :text (octets-line-text octets line)))))

(defun toplevel-octet (source octets location)
  "Return where in OCTETS, of a file, the toplevel form of SOURCE begins, in which LOCATION lies, or NIL."
  (let ((offset (and source (sb-introspect:definition-source-character-offset source))))
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
  (if (and (or (kind-p value standard-object) (kind-p value structure-object)) (not (own-type-text-p value)))
      (text-within limit (lambda (stream) (print-slots value stream)))
      (plain-text value limit)))

(defun own-type-text-p (value)
  "Tell whether VALUE is of a class of the system's, whose slots tell the user nothing."
  (let ((package (ignore-errors (symbol-package (stored-name (class-of value))))))
    (or (null package) (own-package-p package) (system-package-p package))))

(defun print-slots (value stream)
  "Print VALUE, an object of a class of the user's, with what is stored in its slots."
  (put (format nil "#<~a" (plain-type-name value)) stream)
  (loop for (name . content) in (slot-parts value)
        do (put (format nil " ~a=" name) stream)
           (print-plainly content stream 4))
  (put ">" stream))

(define-look "locals" (request)
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
