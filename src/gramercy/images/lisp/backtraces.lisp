;;;; The frames of an error as lines for a reader: each with the line of the call, not
;;;; of the definition, where it lies in a file of the project. The frames of what loads
;;;; files, and those of one function that calls itself, are one line each.

(in-package #:gramercy.image)

(defconstant +shortest-run+ 4 "Frames of one function after each other that are put together.")
(defconstant +shortest-loading+ 2 "Frames of what loads files that are put together.")

(defun user-backtrace (condition)
  "Return the lines about the user's frames of this stack, which CONDITION has stopped."
  (multiple-value-bind (frames complete) (ignore-errors (find-standing-frames condition))
    ;; A file is read once for all frames; where memory is short, or code was stopped anywhere, not at all.
    (progv '(*file-texts*) (list (make-hash-table :test 'equal))
      (backtrace-lines (frame-runs frames) condition complete (length frames)))))

;;; Runs

(defun builder-symbol-p (symbol)
  "Tell whether SYMBOL belongs to what builds systems: ASDF, its parts and Quicklisp."
  (let ((name (and (symbol-package symbol) (package-name (symbol-package symbol)))))
    (and name (or (starts-with-p "ASDF" name) (starts-with-p "UIOP" name) (starts-with-p "QUICKLISP" name)))))

(defun loader-symbol-p (symbol)
  "Tell whether SYMBOL names a part of LOAD or COMPILE-FILE."
  (let ((package (symbol-package symbol)))
    (or (member symbol '(load compile-file))
        (and package (string= (package-name package) "SB-FASL"))
        (and package (system-package-p package)
             (member (symbol-name symbol) '("CALL-WITH-LOADER-PACKAGE-NAMES" "%WITH-COMPILATION-UNIT" "EVAL-TLF")
                     :test #'string=)))))

(defun loading-frame-p (name)
  "Tell whether a function called NAME is one of ASDF's, of the loader's or of COMPILE-FILE's."
  (name-mentions-p name (lambda (symbol) (or (builder-symbol-p symbol) (loader-symbol-p symbol)))))

(defun frame-kind (standing)
  "Return what STANDING has in common with frames that are put together with it: :LOADING, or its name."
  (let ((name (standing-name standing)))
    (if (loading-frame-p name) :loading name)))

(defun frame-runs (frames)
  "Return lists of a number, and the frames from there on that have their kind in common, of FRAMES."
  (let ((runs '()))
    (loop for frame in frames
          for number from 0
          for kind = (frame-kind frame)
          for before = nil then last
          for last = kind
          do (if (and runs (equal kind before)) (push frame (cdr (first runs))) (push (list number frame) runs)))
    (mapcar (lambda (run) (cons (first run) (reverse (rest run)))) (nreverse runs))))

;;; Lines

(defun frame-line (standing number condition)
  "Return the line about STANDING, the frame NUMBER of the stack that CONDITION has stopped."
  (let ((place (unless (stopped-anywhere-p condition) (call-place standing))))
    (format nil "~d: ~a~@[ in ~a~]" number
            ;; SBCL calls all forms of a compiled file by the first of them.
            (if (and place (toplevel-frame-p standing))
                "a toplevel form"
                (frame-text (named-frame (standing-call standing) condition)))
            place)))

(defun toplevel-frame-p (standing)
  "Tell whether STANDING is a toplevel form of a compiled file that is being loaded."
  (let ((name (standing-name standing)))
    (and (consp name) (symbolp (first name)) (string= (symbol-name (first name)) "TOP-LEVEL-FORM"))))

(defun toplevel-call-place (condition)
  "Return the place of the toplevel form of a compiled file that CONDITION has stopped, or NIL."
  (let ((frame (find-if #'toplevel-frame-p (find-standing-frames condition))))
    (and frame (standing-place frame))))

(defun run-lines (run condition)
  "Return the lines about RUN, a number and the frames from there on."
  (destructuring-bind (number . frames) run
    (let ((count (length frames)) (last (+ number (length frames) -1)))
      (cond ((and (eq :loading (frame-kind (first frames))) (>= count +shortest-loading+))
             (list (format nil "~d-~d: ~:[~;ASDF and ~]the loader" number last
                           (some (lambda (frame) (name-mentions-p (standing-name frame) #'builder-symbol-p)) frames))))
            ((>= count +shortest-run+)
             (list (frame-line (first frames) number condition)
                   (format nil "~d-~d: ~d more calls of ~a" (1+ number) last (1- count)
                           (plain-text (standing-name (first frames)) 100))))
            (t (loop for frame in frames
                     for number from number
                     collect (frame-line frame number condition)))))))

(defun backtrace-lines (runs condition complete total)
  "Return lines about RUNS, and one about how many of TOTAL frames are left out. Where they are not COMPLETE, there
are more."
  (let ((lines '()) (told 0))
    (loop for run in runs
          for new = (run-lines run condition)
          while (< (+ (length lines) (length new)) +most-frames+)
          do (setf lines (append lines new) told (+ (first run) (length (rest run))))
          finally (when (and run (< told total))
                    (loop for line in new
                          while (< (length lines) (1- +most-frames+))
                          do (setf lines (append lines (list line))) (incf told))))
    (if (and (= told total) complete)
        lines
        (append lines (list (if (= told total)
                                "… more frames"
                                (format nil "… ~:[at least ~;~]~:d more frames" complete (- total told))))))))

;;; Places

(defun call-place (standing)
  "Return FILE:LINE at which STANDING stands in a file of the project; else NIL."
  (ignore-errors
   (let* ((place (ignore-errors (standing-place standing)))
          (file (and place (place-file place))))
     (cond ((or (null file) (string= file "")) (frame-place (standing-name standing)))
           ((project-file-p file) (format nil "~a~@[:~d~]" (shown-file file) (place-line place)))))))

(defun frame-place (name)
  "Return FILE:LINE of the definition of the function NAME, of a frame, where it lies in the project; else NIL."
  (ignore-errors
   (let* ((inner (and (consp name) (member :in name)))
          (name (if inner (second inner) name))
          (defined (if (typep name '(cons (eql :method)))
                       (frame-method name)
                       (and (or (symbolp name) (setf-name-p name)) (fboundp name) (fdefinition name))))
          (source (and defined (sb-introspect:find-definition-source defined)))
          (pathname (and source (sb-introspect:definition-source-pathname source))))
     (and pathname (project-file-p (native-name pathname)) (source-place source)))))

(defun frame-method (name)
  "Return the method that SB-DEBUG calls NAME: (:METHOD FUNCTION QUALIFIER... (SPECIALIZER...)); else NIL.
Generic functions of a class of the user's are not asked for theirs."
  (and (eq (class-of (fdefinition (second name))) (load-time-value (find-class 'standard-generic-function)))
       (find-named-method (list (second name) (butlast (cddr name)) (car (last name))))))

