;;;; What went wrong, told before the stack is unwound: the type and text of a
;;;; condition, its restarts, and the frames that belong to the user.

(in-package #:gramercy.image)

(define-condition interrupted (serious-condition) ()
  (:report "The evaluation was interrupted.")
  (:documentation "Signalled in user code by SIGINT. Not an ERROR, so that handlers of errors let it pass."))

(defconstant +most-frames+ 20 "Lines told of a stack, as the protocol bounds them: the reader's context is small.")
(defconstant +longest-frame+ 300 "Characters told of a frame, for the same reason.")
(defconstant +longest-message+ 4000 "Characters told of a condition's report, for the same reason.")

(defvar *prefix-dropped* nil
  "True while symbols of the current package are written without it, in places where SBCL would write it.")

(defun bounded-text (writer limit)
  "Return what the function WRITER writes on the stream it is given, at most LIMIT characters.
User code may run in it: its errors and its full stack end the text, and nothing else."
  (let ((stream (make-instance 'stopping-stream :limit limit)))
    (handler-case
        (if (eq :overflow (catch stream (funcall writer stream) nil))
            (concatenate 'string (stream-text stream) "...")
            (stream-text stream))
      ((or error storage-condition) (condition)
        (format nil "~a#<cannot be printed: ~a>" (stream-text stream) (condition-type-name condition))))))

(defun condition-message (condition &optional compiling)
  "Return the report of CONDITION, in plainer words where SBCL speaks of its own streams.
COMPILING tells that the compiler has signalled it, who chooses the words then."
  (cond ((unreadable-code-p condition)
         (if (typep condition 'end-of-file)
             (unclosed-message)
             (with-quicklisp-hint condition (without-stream (reported-message condition)))))
        ((input-error-p condition) (input-error-message condition))
        ((empty-input-p condition) "Evaluated code has no standard input: put the value in the code.")
        ((ended-input-p condition) "The standard input has ended.")
        ((typep condition 'reader-error) (with-quicklisp-hint condition (without-stream (reported-message condition))))
        (t (reported-message condition compiling))))

(defun exhausted-input (condition)
  "Return the stream that CONDITION says is at its end, of a two-way stream the half that is read, or NIL."
  (let ((stream (and (typep condition 'end-of-file) (ignore-errors (stream-error-stream condition)))))
    (if (typep stream 'two-way-stream) (two-way-stream-input-stream stream) stream)))

(defun empty-input-p (condition)
  "Tell whether CONDITION says that there is nothing to be read from the input that evaluations have."
  (let ((stream (exhausted-input condition))
        (terminal *terminal-kept*))
    (and stream
         (or (and terminal (eq stream (two-way-stream-input-stream terminal)))
             (and (typep stream 'typed-stream) (null (slot-value stream 'descriptor)))))))

(defun ended-input-p (condition)
  "Tell whether CONDITION says that a person types no more lines."
  (typep (exhausted-input condition) 'typed-stream))

(defun without-stream (text)
  "Return TEXT up to the paragraph that names a stream."
  (string-right-trim '(#\Newline #\Space) (subseq text 0 (search "Stream: #<" text))))

(defun without-position (text)
  "Return TEXT, a reader's complaint, up to the paragraph that tells lines and streams."
  (string-right-trim '(#\Newline #\Space) (subseq text 0 (or (search "  Line: " text) (search "Stream: #<" text)))))

(defun input-error-message (condition)
  "Return why a file cannot be read, and where, as CONDITION says."
  (let ((place (ignore-errors (input-error-place condition)))
        (inner (inner-condition condition)))
    (format nil "~:[The file cannot be read~;~:*~a cannot be read~]: ~a" (and place (place-text-of place))
            (if (typep inner 'end-of-file)
                (format nil "the file ends inside of the form that begins ~:[there~;on line ~:*~d~]~@[. ~a~]."
                        (and place (place-line place)) (ignore-errors (lost-thread place)))
                (without-position (reported-message inner))))))

(defun lost-thread (place)
  "Return where the reader took the next toplevel form for a part of the one that begins at PLACE, in words, or NIL."
  (let* ((octets (file-octets (sb-ext:parse-native-namestring (place-file place))))
         (line (loop for number from (1+ (place-line place))
                     for text = (octets-line-text octets number)
                     while text
                     when (and (string/= text "") (char= (char text 0) #\()) return number)))
    (and line (format nil "Line ~d already is inside of it: what is open before that is not closed" line))))

(defun reported-message (condition &optional compiling)
  "Return what CONDITION's report method writes."
  (let* ((*print-readably* nil) (*print-length* 50) (*print-level* 8) (*print-circle* nil)
         (*prefix-dropped* (or compiling (system-worded-p condition)))
         (text (bounded-text (lambda (stream) (princ condition stream)) +longest-message+)))
    (if (string= text "") (format nil "~a was signalled." (condition-type-name condition)) text)))

(defun system-worded-p (condition)
  "Tell whether SBCL, not the user, chose the words of CONDITION's report."
  (and (not (typep condition '(or simple-error simple-warning)))
       (let ((package (symbol-package (type-of condition))))
         (and package (sb-ext:package-locked-p package)))))

(defun drop-needless-prefixes ()
  "Let SBCL's own reports name symbols as the user writes them. Done once, before the core is saved."
  (wrap (internal-symbol "PRINT-SYMBOL-WITH-PREFIX" "SB-EXT")
        (lambda (original stream symbol &rest options)
          (if *prefix-dropped*
              (write symbol :stream stream :escape t)
              (apply original stream symbol options)))))

(defun restart-names (condition)
  "Return the names of the restarts that CONDITION offers, ours left out."
  (loop for restart in (compute-restarts condition)
        for name = (restart-name restart)
        when (and name (not (eq name 'end-evaluation)) (not (member (symbol-name name) names :test #'string=)))
          collect (symbol-name name) into names
        finally (return (subseq names 0 (min 20 (length names))))))

;;; The restarts that the code of the user's has around itself, which it can go on with

(defglobal *moment-tag* nil "The name of the copy to be left behind where the running code fails, or NIL.")
(defglobal *moment-told* '() "What the error of the running code is to tell of that copy.")
(defglobal *floor-handlers* '() "The handlers outside of the running code.")
(defglobal *floor-restarts* '() "The restarts outside of the running code: our own and those of the toplevel.")
(defglobal *standing-handlers* '() "The handlers around the code that has failed.")
(defglobal *standing-restarts* '() "The restarts around it.")
(defglobal *moment* nil "The condition whose stack stands in this process, see moments.lisp, or NIL.")

(defconstant +most-choices+ 20 "Restarts told of an error: code that nests more of them has lost count itself.")

(defstruct (choice (:copier nil))
  "A restart inside of the evaluation, and what is told of it."
  number name report parameters asks restart)

(defglobal *choices* '() "The restarts that the last error offered, as they are told.")

(defun inner-restarts (condition)
  "Return the restarts that CONDITION offers and the code of the user's, or what it calls, has set up: not ours."
  (let ((outer (loop for cluster in *floor-restarts* append cluster)))
    (remove-if (lambda (restart) (member restart outer)) (compute-restarts condition))))

(defun make-choices (condition)
  "Return what is told of the restarts that CONDITION offers."
  (loop for restart in (inner-restarts condition)
        for number from 0 below +most-choices+
        collect (make-choice :number number
                             :name (if (restart-name restart) (qualified-choice (restart-name restart)) "NIL")
                             :report (substitute #\Space #\Newline
                                                 (bounded-text (lambda (stream) (princ restart stream)) 200))
                             :parameters (ignore-errors (restart-parameters restart))
                             :asks (and (restart-part "INTERACTIVE-FUNCTION" restart) t)
                             :restart restart)))

(defun restart-part (name restart)
  "Return what the reader NAME tells of RESTART, SBCL's own record, or NIL."
  (let ((reader (internal-function (concatenate 'string "RESTART-" name) "SB-KERNEL")))
    (and reader (funcall reader restart))))

(defun qualified-choice (name)
  "Return NAME, of a restart, as it is told: without package where it is visible or the system's."
  (let ((package (symbol-package name)))
    (if (and package (sb-ext:package-locked-p package)) (symbol-token name) (seen-symbol name))))

(defun restart-parameters (restart)
  "Return the texts of what RESTART takes, as far as SBCL keeps that: of RESTART-CASE only whether it takes none or one."
  (loop for parameter in (sb-introspect:function-lambda-list (restart-part "FUNCTION" restart))
        for name = (symbol-token (if (consp parameter) (first parameter) parameter))
        collect (if (string= name "TEMP") "VALUE" name)))

(defun choice-objects ()
  "Return what a reply tells of the restarts of the last error."
  (loop for choice in *choices*
        collect (list* :object "number" (choice-number choice) "name" (choice-name choice)
                       "report" (choice-report choice)
                       (append (and (choice-parameters choice)
                                    (list "parameters" (cons :array (choice-parameters choice))))
                               (and (choice-asks choice) (list "asks" t))))))

;;; Frames

(defglobal *signalling-functions*
    (remove nil
            (list 'error 'cerror 'signal 'warn 'break 'invoke-debugger
                  (internal-symbol "%BREAK" "SB-KERNEL")
                  (internal-symbol "%BREAK" "SB-IMPL")
                  (internal-symbol "%BREAK" "SB-DEBUG")
                  (internal-symbol "RUN-HOOK" "SB-DEBUG")
                  (internal-symbol "INTERNAL-ERROR" "SB-KERNEL")
                  (internal-symbol "WITH-SIMPLE-CONDITION-RESTARTS" "SB-KERNEL")
                  (internal-symbol "%SIGNAL" "SB-KERNEL")
                  (internal-symbol "%COMPILE-TIME-TYPE-ERROR" "SB-C")
                  (internal-symbol "CASE-BODY-ERROR" "SB-KERNEL")
                  (internal-symbol "CHECK-TYPE-ERROR" "SB-KERNEL")
                  (internal-symbol "ASSERT-ERROR" "SB-KERNEL")
                  (internal-symbol "CONTROL-STACK-EXHAUSTED-ERROR" "SB-KERNEL")
                  (internal-symbol "HEAP-EXHAUSTED-ERROR" "SB-KERNEL")
                  (internal-symbol "MEMORY-FAULT-ERROR" "SB-KERNEL")
                  (internal-symbol "MEMORY-FAULT-ERROR" "SB-SYS")
                  (internal-symbol "INVOKE-INTERRUPTION" "SB-SYS")
                  (internal-symbol "RUN-INTERRUPTION" "SB-THREAD")
                  (internal-symbol "SIGINT-HANDLER" "SB-UNIX")))
  "Functions on top of a stack that lead from the fault to us and tell the user nothing.")

(defun name-mentions-p (name test)
  "Tell whether TEST accepts a symbol that occurs in the function name NAME."
  (cond ((and name (symbolp name)) (funcall test name))
        ((consp name) (loop for part on name
                            thereis (name-mentions-p (car part) test)
                            while (listp (cdr part))))))

(defun own-frame-p (name)
  "Tell whether a function called NAME belongs to this program."
  (name-mentions-p name (lambda (symbol) (eq (symbol-package symbol) (load-time-value *package*)))))

(defun signalling-frame-p (name)
  "Tell whether a function called NAME stands between the fault and us."
  (or (own-frame-p name)
      (and (stringp name) (search "foreign function" name))
      (name-mentions-p name (lambda (symbol) (member symbol *signalling-functions*)))
      (name-mentions-p name (lambda (symbol) (search "WITHOUT-INTERRUPTS-BODY" (symbol-name symbol))))
      (and (consp name)
           (find-if (lambda (part) (and (stringp part) (search "INTERRUPTS-BODY" part))) name))))

(defun floor-frame-p (name)
  "Tell whether a function called NAME is the one of ours that user code runs upon."
  (name-mentions-p name (lambda (symbol) (member symbol '(call-guarded run-job-code)))))

(defun user-frames (frames &optional (key #'frame-name))
  "Return those of FRAMES, newest first, that stand between the fault and our own call of EVAL; KEY tells their names."
  (let* ((below (member-if-not #'signalling-frame-p frames :key key))
         (bottom (position-if #'floor-frame-p below :key key)))
    (collapse-evaluator (remove-if (lambda (name) (or (own-frame-p name) (machinery-frame-p name)))
                                   (subseq below 0 bottom) :key key)
                        key)))

(defun machinery-frame-p (name)
  "Tell whether a function called NAME only leads from a fault to the handlers of the user's."
  (or (and (stringp name) (search "foreign function" name))
      (and (symbolp name)
           (member name (load-time-value
                         (remove nil (list (internal-symbol "INTERNAL-ERROR" "SB-KERNEL")
                                           (internal-symbol "%SIGNAL" "SB-KERNEL")
                                           (internal-symbol "WITH-SIMPLE-CONDITION-RESTARTS" "SB-KERNEL"))))))))

(defun frame-name (frame)
  "Return the name of the function of FRAME, a list made by SB-DEBUG."
  (if (consp frame) (car frame) frame))

(defun collapse-evaluator (frames key)
  "Drop the inner functions of EVAL from FRAMES, whose names KEY tells."
  (let ((inner (load-time-value
                (remove nil (list (internal-symbol "SIMPLE-EVAL-IN-LEXENV" "SB-INT")
                                  (internal-symbol "SIMPLE-EVAL-IN-LEXENV" "SB-IMPL")
                                  (internal-symbol "EVAL-IN-LEXENV" "SB-INT")
                                  (internal-symbol "EVAL-IN-LEXENV" "SB-IMPL")
                                  (internal-symbol "%SIMPLE-EVAL" "SB-IMPL")
                                  (internal-symbol "SIMPLE-EVAL-PROGN-BODY" "SB-IMPL"))))))
    (remove-if (lambda (name) (and (symbolp name) (member name inner))) frames :key key)))

(defun frame-text (frame)
  "Return the text of FRAME. Arguments are shown by their structure: the user's print methods may be what failed."
  (let ((*plain-symbols* #'seen-symbol) (*plain-length* +most-elements+))
    (substitute #\Space #\Newline (plain-text frame +longest-frame+))))

(defun seen-symbol (symbol)
  "Return SYMBOL as it can be given back: with its package, unless the evaluated code sees it without."
  (when (eq symbol '|...|) (return-from seen-symbol "..."))
  (if (and (symbol-package symbol) (packagep *package*) (package-name *package*)
           (eq symbol (find-symbol (symbol-name symbol) *package*)))
      (symbol-token symbol)
      (qualified-name symbol)))

(defun named-frame (frame condition)
  "Return FRAME with the name of the function that CONDITION calls undefined in place of SBCL's remark."
  (if (and (consp frame) (equal (car frame) "undefined function") (typep condition 'undefined-function))
      (cons (cell-error-name condition) (cdr frame))
      frame))

(defun stopped-anywhere-p (condition)
  "Tell whether CONDITION can have stopped the code between any two instructions."
  (typep condition '(or interrupted storage-condition)))

(defun condition-suggestions (condition)
  "Return names that may have been meant where CONDITION is about an unknown one."
  (ignore-errors
   (typecase condition
     (undefined-function (near-names (cell-error-name condition) #'fboundp))
     (unbound-variable (near-names (cell-error-name condition) #'boundp))
     (package-error (let ((package (package-error-package condition)))
                      (when (typep package '(or string symbol))
                        (near-packages (string package))))))))

(defun near-names (name &optional (meaning (constantly t)))
  "Return names that are close to NAME and have a MEANING, seen from the current package."
  (let* ((symbol (if (consp name) (second name) name))
         (package (or (symbol-package symbol) *package*)))
    (loop for near in (near-symbols (symbol-name symbol) package)
          for found = (find-symbol near package)
          when (and (not (eq found symbol)) (funcall meaning found))
            collect (seen-symbol found))))

(defun fault-place (condition)
  "Return the place in a file of what CONDITION is about, or of the form of a file that was being loaded; else NIL."
  (ignore-errors
   (let ((place (if (input-error-p condition) (input-error-place condition) (loading-place))))
     (if (or (null place) (place-line place))
         place
         ;; SBCL keeps no line for what a compiled file does while it is loaded; the stack tells.
         (or (ignore-errors (toplevel-call-place condition)) place)))))

(defun condition-report (condition)
  "Return what a reply tells of CONDITION, as members of an object. Call it before unwinding."
  (append (list "type" (condition-type-name condition)
                "message" (condition-message condition)
                "restarts" (cons :array (restart-names condition))
                "backtrace" (cons :array (if (untraceable-p condition) '() (user-backtrace condition)))
                "interrupted" (if (typep condition 'interrupted) t :false))
          (let ((suggestions (condition-suggestions condition)))
            (and suggestions (list "suggestions" (cons :array suggestions))))
          (progn (setf *choices* (make-choices condition))
                 (told-choices))
          (place-members (fault-place condition))))

(defun untraceable-p (condition)
  "Tell whether walking the stack would be useless or dangerous after CONDITION."
  (or (unreadable-code-p condition)
      (input-error-p condition)
      (typep condition '(or #.(or (internal-symbol "HEAP-EXHAUSTED-ERROR" "SB-KERNEL") 'null)
                         sb-sys:memory-fault-error))))
