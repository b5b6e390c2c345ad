;;;; The packages of the child. The first is for user code: methods on its two generic
;;;; functions (see displays.lisp) show what an object looks like, and two functions load
;;;; what has changed (see loading.lisp). The second holds the child itself, and user code
;;;; never needs to name it. Both are locked once everything is loaded (see build.lisp).

(defpackage #:gramercy
  (:use)
  (:documentation "How an object shows itself in an image of gramercy, and how changed code gets there. Where there is
none, :GRAMERCY is not among the features: write #+gramercy before such methods.")
  (:export #:picture #:table #:refresh #:load-changes))

(defpackage #:gramercy.image
  (:use #:common-lisp)
  (:documentation "The inside of a live SBCL image: it serves requests, and nothing else.")
  (:export #:main #:build-core #:interrupted))

(in-package #:gramercy.image)

(deftype octets ()
  "What travels on a socket."
  '(simple-array (unsigned-byte 8) (*)))

(deftype index ()
  "A place in an array."
  'sb-int:index)

(defmacro defglobal (name value documentation)
  "Define a variable that no thread can bind; cheaper to reach than a special one."
  `(sb-ext:defglobal ,name ,value ,documentation))

(defun internal-symbol (name package-name)
  "Return the symbol NAME of PACKAGE-NAME, or NIL where this SBCL has no such symbol.
Internal names move between releases, so none is written where the reader would have to find it."
  (let ((package (find-package package-name)))
    (and package (values (find-symbol name package)))))

(defun internal-function (name package-name)
  "Return the function called NAME in PACKAGE-NAME, or NIL where this SBCL has none."
  (let ((symbol (internal-symbol name package-name)))
    (and symbol (fboundp symbol) (not (macro-function symbol)) (fdefinition symbol))))
