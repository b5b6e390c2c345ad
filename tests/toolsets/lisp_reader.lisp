;;;; Tells where the reader of SBCL finds the top-level forms of files, and what they define: both branches of
;;;; conditionals are read, nothing is evaluated, and missing packages are made. Standard input has the names of
;;;; files; standard output one line for each form, with its end, operator and name, and one for each file.

(dolist (package (list-all-packages)) (sb-ext:unlock-package package))

(defpackage #:plain (:use #:cl))
(in-package #:plain)

(defvar *plain* (copy-readtable nil))

(flet ((replace-macro (character function)
         (set-dispatch-macro-character #\# character function *plain*)))
  (flet ((conditional (stream mark number)
           (declare (ignore mark number))
           (let ((*read-suppress* t)) (read stream t nil t))
           (read stream t nil t))
         (plainly (stream mark number)
           (declare (ignore mark number))
           (read stream t nil t)))
    (replace-macro #\+ #'conditional)
    (replace-macro #\- #'conditional)
    (dolist (mark '(#\. #\S #\A #\P #\C)) (replace-macro mark #'plainly))))

(defun file-text (file)
  (handler-case (uiop-text file :utf-8)
    (error () (uiop-text file :latin-1))))

(defun uiop-text (file format)
  (with-open-file (stream file :external-format format)
    (let* ((text (make-string (file-length stream)))
           (end (read-sequence text stream)))
      (subseq text 0 end))))

(defun make-missing (condition)
  "Make the package that CONDITION misses, or use the symbol that it is about."
  (let ((package (ignore-errors (package-error-package condition))))
    (cond ((and (stringp package) (not (find-package package)))
           (make-package package :use '())
           (throw 'again :again))
          ((find-restart 'continue condition) (continue condition)))))

(defun read-really (text start)
  (loop for result = (catch 'again
                       (handler-bind ((package-error #'make-missing)
                                      (sb-int:simple-reader-package-error #'make-missing))
                         (ignore-errors (list (read-from-string text nil nil :start start)))))
        while (eq result :again)
        finally (return (first result))))

(defun name-text (name)
  (cond ((null name) "NIL")
        ((symbolp name) (symbol-name name))
        ((stringp name) (string-upcase name))
        ((and (consp name) (eq (first name) 'setf) (consp (rest name)))
         (format nil "(SETF ~a)" (name-text (second name))))
        ((and (consp name) (eq (first name) 'quote)) (name-text (second name)))
        ((consp name) (name-text (first name)))
        (t (string-upcase (prin1-to-string name)))))

(defun tell-forms (file)
  (let ((text (file-text file))
        (*readtable* *plain*)
        (*package* (find-package '#:plain)))
    (with-input-from-string (stream text)
      (loop
        (let* ((start (file-position stream))
               (end (handler-case (let ((*read-suppress* t))
                                    (if (eq (read-preserving-whitespace stream nil stream) stream)
                                        nil
                                        (file-position stream)))
                      (error () :error))))
          (cond ((null end) (return (format t "end~%")))
                ((eq end :error) (return (format t "error~%"))))
          (let ((form (read-really text start)))
            (if (and (consp form) (symbolp (first form)) (consp (rest form)))
                (format t "~d ~a ~a~%" end (symbol-name (first form)) (name-text (second form)))
                (format t "~d~%" end))))))))

(loop for file = (read-line *standard-input* nil)
      while file
      do (format t "file ~a~%" file)
         (tell-forms (sb-ext:parse-native-namestring file)))
