;;;; Evaluate and measure: where the time goes, or what is allocated where. Samples
;;;; are taken by the contribution SB-SPROF, where there is one; time, allocation
;;;; and garbage collection are told in any case.

(in-package #:gramercy.image)

(defconstant +most-profiled+ 40 "Functions told of a profile; the others take next to nothing.")
(defconstant +sample-seconds+ 1/1000 "Seconds between two samples; most kernels make 4 ms of it.")
(defconstant +deepest-sample+ 200 "Frames of one sample that are counted: below that a recursion repeats itself.")
(defconstant +most-samples+ 100000 "Samples of one evaluation: memory for them is there beforehand.")

(defglobal +evaluated-code+ "the evaluated code itself" "How a function is told that the evaluation itself is.")

(defstruct (profile (:copier nil))
  "What was measured while an evaluation ran. The functions are counted by name."
  (measure "time" :type string)
  ;; The times are in microseconds.
  (wall 0) (cpu 0) (collection 0) (bytes 0) (samples 0)
  (self (make-hash-table :test 'equal))
  (total (make-hash-table :test 'equal))
  (mine (make-hash-table :test 'equal)))

(defglobal *profile* nil "The profile of the evaluation under way, or NIL.")

(defun sampler (name)
  "Return the function of the sampling profiler that is called NAME, or NIL where there is no profiler."
  (let ((symbol (and (find-package "SB-SPROF") (find-symbol name "SB-SPROF"))))
    (and symbol (fboundp symbol) (fdefinition symbol))))

;;; Sampling

(defun start-sampling (measure)
  "Begin to take samples for MEASURE."
  (let ((start (sampler "START-PROFILING")) (reset (sampler "RESET")))
    (when (and start reset)
      (funcall reset)
      (funcall start :mode (if (string= measure "allocation") :alloc :cpu)
                     :max-samples +most-samples+
                     :sample-interval (float +sample-seconds+)
                     :threads (list sb-thread:*current-thread*)))))

(defun fdefn-at (code address)
  "Return the name of the function through whose FDEFN the function CODE calls ADDRESS, or NIL."
  (loop for place from sb-vm:code-constants-offset below (sb-kernel:code-header-words code)
        for constant = (sb-kernel:code-header-ref code place)
        when (and (typep constant 'sb-kernel:fdefn)
                  (<= 0 (- address (logandc2 (sb-kernel:get-lisp-obj-address constant) sb-vm:lowtag-mask)) 31))
          return (sb-kernel:fdefn-name constant)))

(defun called-at (info pc)
  "Return the name of the function that the call before PC in the function INFO is of, or NIL where it is not known.
On x86-64 a call is MOV EAX, address; CALL RAX, or CALL with a distance."
  #+x86-64
  (ignore-errors
   (let ((code (sb-di::compiled-debug-fun-component info)))
     (sb-sys:with-pinned-objects (code)
       (let ((start (sb-kernel:code-instructions code)))
         (flet ((octet (place) (sb-sys:sap-ref-8 start place)))
           ;; Some versions tell the place before the one that is returned to.
           (loop for end from pc to (+ pc 3)
                 thereis (cond ((and (= (octet (- end 2)) #xff) (= (octet (- end 1)) #xd0) (= (octet (- end 7)) #xb8))
                                (fdefn-at code (sb-sys:sap-ref-32 start (- end 6))))
                               ((= (octet (- end 5)) #xe8)
                                (fdefn-at code (+ (sb-sys:sap-int start) end
                                                  (sb-sys:signed-sap-ref-32 start (- end 4)))))))))))))

(defun trace-names (trace)
  "Return the names of the functions of TRACE, innermost first, down to our own call. A routine of the runtime, which
has no frame of its own, hides the function that has called it: that is found by the call one frame below."
  (let ((places '()))
    (funcall (sampler "MAP-TRACE-PC-LOCS") (lambda (info pc) (push (cons info pc) places)) trace)
    (let* ((names (loop for (info) in places
                        collect (if (typep info 'sb-di:debug-fun) (sb-di:debug-fun-name info) info)))
           (below (second places))
           (hidden (and (symbolp (first names)) (not (users-function-p (first names)))
                        (typep (car below) 'sb-di:debug-fun)
                        (called-at (car below) (cdr below)))))
      (when (and hidden (not (eq hidden (first names))))
        (push hidden (rest names)))
      (subseq names 0 (or (position-if #'own-frame-p names :end (min +deepest-sample+ (length names)))
                          (min +deepest-sample+ (length names)))))))

(defun count-name (name table)
  "Count NAME once more in TABLE."
  (incf (gethash name table 0)))

(defun count-trace (names profile)
  "Add one sample, whose functions have the NAMES, to PROFILE."
  (incf (profile-samples profile))
  (let* ((names (remove-if #'evaluator-name-p (mapcar #'told-function names)))
         (own (find-if #'users-function-p names)))
    (when names
      (count-name (first names) (profile-self profile))
      (dolist (name (remove-duplicates names :test #'equal)) (count-name name (profile-total profile)))
      (when own (count-name own (profile-mine profile))))))

(defun told-function (name)
  "Return the name under which a function called NAME is told: what is local to a function belongs to it, and what
was evaluated has no name of its own."
  (let ((inside (and (consp name) (ignore-errors (list-length name)) (member :in name))))
    (cond ((and inside (consp (rest inside))) (told-function (second inside)))
          ((and (consp name) (eq (first name) 'lambda)) +evaluated-code+)
          (t name))))

(defun evaluator-name-p (name)
  "Tell whether NAME is that of a function of the evaluator, or of no function."
  (or (null name)
      (own-frame-p name)
      (and (stringp name) (search "foreign function" name))
      (member name '("elsewhere" eval) :test #'equal)
      (member name (load-time-value
                    (remove nil (list (internal-symbol "SIMPLE-EVAL-IN-LEXENV" "SB-INT")
                                      (internal-symbol "%SIMPLE-EVAL" "SB-IMPL")
                                      (internal-symbol "ALLOC-TRAMP" "SB-VM")
                                      (internal-symbol "LIST-ALLOC-TRAMP" "SB-VM")))))))

(defun users-function-p (name)
  "Tell whether NAME is that of a function of the user's."
  (if (stringp name)
      (eq name +evaluated-code+)
      (eq :user (ignore-errors (name-owner name)))))

(defun told-name (name)
  "Return the text of NAME."
  (shorten (if (stringp name) name (shown-name name)) 200))

(defun taken-samples ()
  "Return the samples that were taken, or NIL."
  (let* ((variable (and (find-package "SB-SPROF") (find-symbol "*SAMPLES*" "SB-SPROF")))
         (samples (and variable (boundp variable) (symbol-value variable)))
         (convert (sampler "CONVERT-RAW-DATA")))
    ;; The profiler itself does this where it makes a report.
    (when (and samples convert)
      (setf (slot-value samples 'vector) (values (funcall convert))))
    samples))

(defun stop-sampling (profile)
  "End the samples and count them in PROFILE."
  (let ((stop (sampler "STOP-PROFILING")) (map (sampler "MAP-TRACES"))
        (*owners* (make-hash-table :test 'eq)))
    (when stop
      ;; In a copy of the process, which has no timer, there is nothing to stop.
      (ignore-errors (funcall stop))
      (ignore-errors
       (funcall map (lambda (thread trace)
                      (declare (ignore thread))
                      (count-trace (trace-names trace) profile))
                (taken-samples)))
      (ignore-errors (funcall (sampler "RESET"))))))

;;; Measuring

(declaim (notinline stay))
(defun stay ()
  "Do nothing, after what would be a tail call otherwise: its caller has a frame that way."
  nil)

(defun thunk-of (form)
  "Return a function that evaluates FORM, compiled beforehand where that makes no difference."
  (if (compiled-as-a-whole-p form)
      (compile nil `(lambda () (multiple-value-prog1 ,form (stay))))
      (lambda () (eval form))))

(defun in-microseconds (units)
  "Return UNITS of internal time in microseconds."
  (max 0 (round (* units 1000000) internal-time-units-per-second)))

(defun evaluate-measured (form)
  "Evaluate FORM and add what it takes to the profile."
  (let* ((profile *profile*)
         (thunk (thunk-of form))
         (bytes (sb-ext:get-bytes-consed))
         (collection sb-ext:*gc-run-time*)
         (cpu (get-internal-run-time))
         (start (microseconds)))
    (unwind-protect
         (progn
           (start-sampling (profile-measure profile))
           (setf start (microseconds) cpu (get-internal-run-time) bytes (sb-ext:get-bytes-consed))
           (funcall thunk))
      (incf (profile-wall profile) (- (microseconds) start))
      (incf (profile-cpu profile) (in-microseconds (- (get-internal-run-time) cpu)))
      (incf (profile-bytes profile) (- (sb-ext:get-bytes-consed) bytes))
      (incf (profile-collection profile) (in-microseconds (- sb-ext:*gc-run-time* collection)))
      (stop-sampling profile))))

;;; Telling

(defun function-object (name)
  "Return the function or method that NAME is the name of, or NIL."
  (ignore-errors
   (cond ((typep name '(cons (eql :method))) (frame-method name))
         ((and (or (symbolp name) (setf-name-p name)) (fboundp name)) (fdefinition name)))))

(defun function-file-line (name)
  "Return FILE:LINE of the definition of the function NAME, or NIL."
  (ignore-errors
   (let ((source (sb-introspect:find-definition-source (function-object name))))
     (and source (sb-introspect:definition-source-pathname source) (source-place source)))))

(defun profile-row (name profile)
  "Return what is told of the function NAME."
  (let ((place (function-file-line name)))
    (list* :object
           "name" (told-name name)
           "self" (gethash name (profile-self profile) 0)
           "total" (gethash name (profile-total profile) 0)
           "own" (if (users-function-p name) t :false)
           (and place (list "place" place)))))

(defun ordered-names (table)
  "Return the keys of TABLE, those with the largest counts first."
  (let ((names (sort (loop for name being the hash-keys of table using (hash-value count) collect (cons count name))
                     #'> :key #'car)))
    (mapcar #'cdr (subseq names 0 (min +most-profiled+ (length names))))))

(defun profile-rows (profile)
  "Return what is told of the functions of PROFILE, those with the most of their own first."
  (let ((names (remove-duplicates (append (ordered-names (profile-self profile)) (ordered-names (profile-total profile)))
                                  :test #'equal :from-end t)))
    (map 'vector (lambda (name) (profile-row name profile)) names)))

(defun mine-rows (profile)
  "Return what is told of the user's functions, with the parts of other code that they called."
  (map 'vector
       (lambda (name)
         (let ((place (function-file-line name)))
           (list* :object "name" (told-name name)
                          "count" (gethash name (profile-mine profile))
                          (and place (list "place" place)))))
       (ordered-names (profile-mine profile))))

(defun profile-members (profile)
  "Return PROFILE as it stands in a reply."
  (let ((*owners* (make-hash-table :test 'eq))
        (*hidden* (make-hash-table :test 'eq))
        (*view* (if (package-name *current-package*) (list *current-package*) '())))
    (list :object
          "measure" (profile-measure profile)
          "microseconds" (profile-wall profile)
          "cpu_microseconds" (profile-cpu profile)
          "gc_microseconds" (profile-collection profile)
          "allocated_bytes" (profile-bytes profile)
          "samples" (profile-samples profile)
          "sampled" (if (sampler "START-PROFILING") t :false)
          "mine" (mine-rows profile)
          "functions" (profile-rows profile))))

(define-operation "profile" (request)
  (let ((measure (or (request-optional-text request :measure) "time")))
    (if (member measure '("time" "allocation") :test #'string=)
        (unwind-protect
             (progn (setf *profile* (make-profile :measure measure))
                    (serve-evaluation request :evaluate #'evaluate-measured))
          (setf *profile* nil))
        (reply-unchanged-fault
         request
         (list "type" "NOT-SUPPORTED"
               "message" (format nil "Lisp code is measured by time or by allocation, not by ~a." (shorten measure 40))
               "suggestions" (list :array "time" "allocation"))))))
