;;;; After a fork every page is shared with the copy, and the first to write to a
;;;; page pays for it. Nobody waits right after a fork; somebody does at the next
;;;; request. So what an evaluation writes to is made this process's own again.

(in-package #:gramercy.image)

(defconstant +populate-for-writing+ 23
  "MADV_POPULATE_WRITE of Linux since 5.14: pages become this process's own, and keep what is in them.")
(defconstant +page+ 4096)
(defconstant +coming-memory+ (* 256 1024) "How much of the memory that is allocated next is made ready.")

(defglobal *written-pages* '()
  "The pages of the symbols whose global values every request sets. They never move.")

(defun own-memory (address length)
  "Make LENGTH octets from ADDRESS on this process's own. Older systems refuse, and nothing is lost."
  (let ((start (logandc2 address (1- +page+))))
    (sb-alien:alien-funcall
     (sb-alien:extern-alien "madvise" (function sb-alien:int sb-alien:unsigned-long
                                                sb-alien:unsigned-long sb-alien:int))
     start (- (+ address length) start) +populate-for-writing+)))

(defun own-object (object length)
  "Make the first LENGTH octets of OBJECT this process's own. It may be moved meanwhile, and then is already."
  (own-memory (sb-kernel:get-lisp-obj-address object) length))

(defun note-written-pages ()
  "Find out on which pages the symbols stand; done once, at the start, since saving a core moves them."
  (let ((pages '())
        (home (find-package :gramercy.image)))
    (flet ((note (symbol)
             (when (sb-kernel:immobile-space-obj-p symbol)
               (pushnew (logandc2 (sb-kernel:get-lisp-obj-address symbol) (1- +page+)) pages))))
      (mapc #'note '(+ ++ +++ - * ** *** / // /// *package* *gensym-counter*))
      (do-symbols (symbol home)
        (when (and (eq (symbol-package symbol) home) (boundp symbol) (not (constantp symbol)))
          (note symbol))))
    (setf *written-pages* pages)))

(defun rehearse ()
  "Evaluate something trivial, and make ready what that does not touch.
The variables that remember evaluations keep their values."
  (progv '(+ ++ +++ - * ** *** / // ///)
      (list + ++ +++ - * ** *** / // ///)
    (ignore-errors (warm-up-evaluation "(+ 1 2 3)")))
  (dolist (page *written-pages*) (own-memory page +page+))
  (own-object *inbox* +page+)
  (own-object *outbox* +page+)
  (own-object (cons nil nil) +coming-memory+))
