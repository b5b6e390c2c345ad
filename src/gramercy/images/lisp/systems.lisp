;;;; Loading systems: through Quicklisp where it is installed, else through ASDF.
;;;; What a system defines is not the user's own definition.

(in-package #:gramercy.image)

(defun quicklisp-loader ()
  "Return the function that loads a system with Quicklisp, or NIL where there is no Quicklisp."
  (quicklisp-there-p)
  (internal-function "QUICKLOAD" "QUICKLISP-CLIENT"))

(defun load-quietly (name)
  "Load the system NAME."
  (let ((*untracked* t)
        (*compile-verbose* nil) (*compile-print* nil) (*load-verbose* nil)
        (quickload (quicklisp-loader)))
    (handler-bind ((warning #'muffle-warning))
      (if quickload
          (funcall quickload name :silent t)
          (asdf:load-system name :verbose nil)))))

(defun system-version (name)
  "Return the version that the system NAME declares, or NIL."
  (let ((system (ignore-errors (asdf:find-system name nil))))
    (and system
         (let ((version (ignore-errors (asdf:component-version system))))
           (and (stringp version) version)))))

(defun missing-p (name fault)
  "Tell whether FAULT says that the system NAME itself does not exist."
  (and (member (getf-text fault "type")
               '("QUICKLISP-CLIENT:SYSTEM-NOT-FOUND" "ASDF/FIND-COMPONENT:MISSING-COMPONENT")
               :test #'equal)
       (null (ignore-errors (asdf:find-system name nil)))))

(defun near-systems (name)
  "Return the names of systems that are close to NAME."
  (ignore-errors (nearest name (asdf:registered-systems))))

(defun system-fault (name fault)
  "Return FAULT with a plain sentence where the system NAME does not exist."
  (cond ((library-fault name fault))
        ((missing-p name fault)
         (list "type" (getf-text fault "type")
               "message" (format nil "System \"~a\" not found." name)
               "suggestions" (cons :array (near-systems name))))
        (t fault)))

(define-operation "load_system" (request)
  (let ((name (string-downcase (trimmed-system (request-text request :system))))
        (started (microseconds))
        (*package* (find-package :common-lisp-user)))
    (with-user-streams ((request-count request :limit +default-limit+) (getf request :id))
      (prepare-for-user-code)
      (forget-compilation)
      (let ((fault (call-guarded (lambda () (load-quietly name)))))
        (put-reply-start (getf request :id) (null fault))
        (put-more-members (list "error" (and fault (cons :object (system-fault name fault)))
                                "name" name
                                "version" (and (null fault) (system-version name))
                                "package" (display-package-name *current-package*)
                                "notes" (cons :array (compilation-notes (/ (- (microseconds) started) 1e6)))))
        (put-output)
        (put-effects)
        (put-ascii ",\"elapsed_ms\":")
        (put-thousandths (max 0 (- (microseconds) started)))
        (put-state)
        (put-unkept)
        (put-ascii "}")))
    (send-frame)))

(defun trimmed-system (text)
  "Return the name of a system without the marks of a symbol or a string around it."
  (string-trim '(#\Space #\Tab #\Newline #\: #\# #\") text))
