;;;; The threads of the user's beside the one that evaluates: a list of them, and where each of them stands.

(in-package #:gramercy.image)

(defconstant +most-threads+ 50 "Threads that are listed.")
(defconstant +most-thread-frames+ 12 "Frames told of each thread.")
(defconstant +stack-seconds+ 1 "How long to wait for the stacks: a thread that allows no interrupts does not tell its own.")

(defun thread-title (thread)
  "Return the name of THREAD."
  (let ((name (sb-thread:thread-name thread)))
    (if (stringp name) name "unnamed")))

(defun thread-floor-p (name)
  "Tell whether a function called NAME is the one of the system's that every thread begins with."
  (name-mentions-p name (lambda (symbol)
                          (and (member (symbol-name symbol) '("RUN" "NEW-LISP-THREAD-TRAMPOLINE" "*RUN") :test #'string=)
                               (eq (symbol-package symbol) (load-time-value (find-package "SB-THREAD")))))))

(defun frames-with-arguments ()
  "Return the frames of this stack, of a thread that has called us, as lists of a name and arguments."
  (sb-debug:list-backtrace :count (* 4 +most-thread-frames+)))

(defun frames-without-arguments ()
  "Return the frames of this stack as lists of a name and dots.
Code that was stopped between two instructions may have reused the places of its arguments: what stands there
may be no object at all, and would break the next garbage collection."
  (let ((map-frames (internal-function "MAP-BACKTRACE" "SB-DEBUG"))
        (frames '()))
    (when map-frames
      (funcall map-frames
               (lambda (frame) (push (list (sb-di:debug-fun-name (sb-di:frame-debug-fun frame)) '|...|) frames))
               :count +most-walked+))
    (nreverse frames)))

(defun thread-backtrace (frames)
  "Return the numbered texts of the user's frames among FRAMES, those of a whole thread."
  (let ((frames (user-frames (subseq frames 0 (position-if #'thread-floor-p frames :key #'frame-name)))))
    (loop for frame in (remove "bogus stack frame" frames :key #'frame-name :test #'equal)
          for number from 0 below +most-thread-frames+
          collect (format nil "~d: ~a" number (frame-text frame)))))

(defun ask-for-stack (thread told)
  "Let THREAD tell its stack and signal TOLD; return a function that gives the texts of its frames, or NIL."
  (let ((lines '()))
    (handler-case
        (sb-thread:interrupt-thread
         thread
         (lambda ()
           ;; Without arguments: it was stopped between any two instructions.
           (setf lines (or (ignore-errors (thread-backtrace (frames-without-arguments))) '("no frames are known")))
           (sb-thread:signal-semaphore told)))
      ;; It has ended meanwhile.
      (sb-thread:interrupt-thread-error () (sb-thread:signal-semaphore told)))
    (lambda () lines)))

(defun wait-for-stacks (told count)
  "Wait until TOLD was signalled COUNT times, within a second for all."
  (let ((deadline (+ (microseconds) (* 1000000 +stack-seconds+))))
    (loop repeat count
          for left = (- deadline (microseconds))
          while (and (plusp left) (sb-thread:wait-on-semaphore told :timeout (/ left 1000000))))))

(define-look "threads" (request)
  (let* ((threads (user-threads))
         (shown (subseq threads 0 (min +most-threads+ (length threads))))
         (told (sb-thread:make-semaphore))
         (stacks (mapcar (lambda (thread) (ask-for-stack thread told)) shown)))
    (wait-for-stacks told (length shown))
    (let ((rows (loop for thread in shown
                      for stack in stacks
                      collect (list (thread-title thread) (funcall stack)))))
      (answer request
              (format nil "~:[No other thread of Lisp code is there.~;~:*~{~{~a runs:~%~:[  It allows no interrupts, so that its ~
stack is not known.~;~:*~{  ~a~^~%~}~]~}~^~%~}~]~@[~%… ~d more threads~]"
                      rows (and (> (length threads) (length shown)) (- (length threads) (length shown))))
              "threads" (cons :array (loop for (name frames) in rows
                                           collect (list :object "name" name "frames" (cons :array frames))))))))
