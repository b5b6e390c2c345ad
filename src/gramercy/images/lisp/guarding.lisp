;;;; Running user code so that it always comes back: with a report when it fails,
;;;; and at once when SIGINT asks for it. SIGINT means something only while user
;;;; code runs; at any other moment it does nothing.

(in-package #:gramercy.image)

(defglobal *evaluating* nil "True while user code runs on the main thread.")
(defglobal *interruptions* 0 "How often the running code was asked to stop.")
(defglobal *fault* nil "The members of the error object of the running code, or NIL.")
(defglobal *main-thread* nil "The thread that serves requests.")

(defun bare-fault (condition interrupted)
  "Return the members of an error object for CONDITION, made without running any user code."
  (list "type" (condition-type-name condition)
        "message" (if (typep condition 'interrupted)
                      "The evaluation was interrupted."
                      "The report of this condition failed.")
        "restarts" #() "backtrace" #()
        "interrupted" (if interrupted t :false)))

(defun end-evaluation (condition)
  "Tell of CONDITION and leave the running code."
  ;; A report method may fail, or run until it is interrupted: then the bare fault stands.
  (flet ((give-up (second-condition hook)
           (declare (ignore hook))
           (setf *fault* (bare-fault condition (typep second-condition 'interrupted)))
           (throw 'end-evaluation nil)))
    (let ((sb-ext:*invoke-debugger-hook* #'give-up)
          (*debugger-hook* nil))
      (setf *fault* (condition-report condition)))
    (when *moment-tag*
      (setf *standing-handlers* sb-kernel:*handler-clusters*
            *standing-restarts* sb-kernel:*restart-clusters*))
    (keep-moment condition))
  (throw 'end-evaluation nil))

(defun end-evaluation-by-force ()
  "Leave the running code, which did not let a first interruption end it."
  (let ((condition (make-condition 'interrupted)))
    (setf *fault* (bare-fault condition t)
          (getf-text *fault* "backtrace") (cons :array (user-backtrace condition))))
  (throw 'end-evaluation nil))

(defun debugger-replacement (condition hook)
  "Stand in for the debugger: let the user's own hook decide first, as the standard has it."
  (declare (ignore hook))
  (let ((user-hook *debugger-hook*))
    (when user-hook
      (let ((*debugger-hook* nil)) (funcall user-hook condition user-hook))))
  (end-evaluation condition))

(defun stop-running-code ()
  "Interrupt the user code that runs on this thread: first politely, then for good, then not at all.
Interruptions nest, and SBCL ends the process when they nest too deep."
  (when *evaluating*
    (case (incf *interruptions*)
      (1 (sb-sys:with-interrupts
           (with-simple-restart (continue "Go on with what was interrupted.") (error 'interrupted))))
      (2 (end-evaluation-by-force)))))

(defun on-interrupt (signal info context)
  "Handle SIGINT, which the system may deliver to any thread."
  (declare (ignore signal info context))
  (when (and *evaluating* (< *interruptions* 2))
    (sb-thread:interrupt-thread *main-thread* #'stop-running-code)))

(defun install-interrupt-handler ()
  "Make SIGINT ours."
  (sb-sys:enable-interrupt sb-unix:sigint #'on-interrupt))

(defglobal *undisturbed* nil
  "True while no user code can have run, and nothing was forked, since these were last seen to.")

(defun prepare-for-user-code ()
  "See to what user code may have changed, and now may change again: the handler of SIGINT, and the connection.
After a fork there is no finalizer thread either."
  (unless *undisturbed*
    (start-finalizers)
    (install-interrupt-handler)
    (watch-connection))
  (setf *undisturbed* nil))

(defun watch-connection-later ()
  "Where code that keeps signals off is about to go on, let the connection be watched as soon as that has ended."
  (unless sb-sys:*interrupts-enabled*
    ;; What came before the fork was deferred. Two of them are one too many, so it is handled first: here is no code
    ;; of the user's to be interrupted.
    (let ((receive (internal-function "RECEIVE-PENDING-INTERRUPT" "SB-UNIX")))
      (when (and receive sb-sys:*interrupt-pending*)
        (let ((sb-sys:*interrupts-enabled* t)) (funcall receive))))
    (sb-thread:interrupt-thread sb-thread:*current-thread* (lambda () (set-connection-flags +signal-me+)))))

(defun call-aborting (function)
  "Call FUNCTION with an ABORT restart that counts as a fault."
  (with-simple-restart (abort "End the evaluation.")
    (setf *floor-restarts* sb-kernel:*restart-clusters*
          *floor-handlers* sb-kernel:*handler-clusters*)
    (funcall function)
    (return-from call-aborting))
  (setf *fault* (list "type" "ABORT" "message" "The code invoked the ABORT restart."
                      "restarts" #() "backtrace" #() "interrupted" :false)))

(defun call-guarded (function)
  "Call FUNCTION, which runs user code; return NIL, or the members of the error that ended it."
  (setf *fault* nil *moment-told* '() *interruptions* 0)
  ;; Interrupts are off wherever *EVALUATING* is true and the catch tag is not there, or the other way round.
  (sb-sys:without-interrupts
    (catch 'end-evaluation
      (unwind-protect
           (progn
             (setf *evaluating* t)
             (sb-sys:with-local-interrupts
               (let ((sb-ext:*invoke-debugger-hook* #'debugger-replacement)
                     (*debugger-hook* nil)
                     (*untracked* (sb-ext:symbol-global-value '*untracked*)))
                 (call-aborting function))))
        (setf *evaluating* nil))))
  (shiftf *fault* nil))

(defun keep-debugger-enabled ()
  "Take the effect out of functions that would let the next fault end the process."
  (wrap 'sb-ext:disable-debugger (constantly nil))
  (wrap 'sb-ext:enable-debugger (constantly nil)))
