;;;; Loads the child in order. From the result a core can be saved, from which the
;;;; child starts in a few milliseconds.
;;;;
;;;; Build a core:
;;;;   sbcl --noinform --no-sysinit --no-userinit --disable-debugger \
;;;;        --load build.lisp --eval '(gramercy.image:build-core "CORE")'
;;;; Run from the core:
;;;;   sbcl --core CORE --noinform --disable-ldb --dynamic-space-size 512MB \
;;;;        --end-runtime-options --connection DESCRIPTOR [--mirror DESCRIPTOR] [--quicklisp FILE] [--init FILE]
;;;; Run from source (slower to start, otherwise the same):
;;;;   sbcl --noinform --disable-ldb --dynamic-space-size 512MB --end-runtime-options \
;;;;        --no-sysinit --no-userinit --disable-debugger \
;;;;        --load build.lisp --eval '(gramercy.image:main)' --end-toplevel-options \
;;;;        --connection DESCRIPTOR
;;;; The first FILE sets up Quicklisp, the other is loaded in the live copy when it begins.
;;;; The connection is an inherited end of a socket pair, the mirror is memory to show the parent
;;;; what is printed.
;;;; Not --lose-on-corruption: a full control stack would end the process.

(require :asdf)
(require :sb-posix)
(require :sb-bsd-sockets)
(require :sb-introspect)
(require :sb-cltl2)
;; For profiles; not every installation has it.
(ignore-errors (require :sb-sprof))

;; Read in a package that is deleted again: what users find in theirs should be their own.
(defpackage #:gramercy.image.build (:use #:common-lisp))
(in-package #:gramercy.image.build)

(let ((here *load-truename*)
      (files '("package" "metaobjects" "json" "frames" "handover" "requests" "streams" "typed" "printing" "places" "conditions"
               "definitions" "journal" "diagnostics" "guarding" "libraries" "processes" "confinement" "watching"
               "evaluation" "symbols" "intruders"
               "owners" "origins" "versions" "classes" "arglists" "describing" "sourcing" "methods" "manuals" "inventory"
               "snapshot" "references" "expansions" "loading" "searching"
               "profiling"
               "displays" "reply" "jobs" "listing" "inspection" "undo" "systems" "frameworks" "observers"
               "prove" "testing"
               "stack" "backtraces" "moments" "threads" "server")))
  ;; One unit, so that a function may be used before the file that defines it.
  (with-compilation-unit ()
    (dolist (file files)
      (load (merge-pathnames (concatenate 'string file ".lisp") here) :external-format :utf-8))))

(gramercy.image::watch-definers)
(gramercy.image::watch-reader)
(gramercy.image::drop-needless-prefixes)
(gramercy.image::keep-debugger-enabled)
(gramercy.image::silence-aborted-units)
(gramercy.image::sharpen-dates)
(gramercy.image::leave-parent-in-copies)
(gramercy.image::watch-libraries)
(gramercy.image::watch-loading)
(gramercy.image::watch-transforms)
(gramercy.image::start-finalizers-late)
(gramercy.image::note-system-packages)
(gramercy.image::note-documentation-methods)
(gramercy.image::note-guarded)
(sb-ext:lock-package '#:gramercy)
(sb-ext:lock-package '#:gramercy.image)
(pushnew :gramercy *features*)
(in-package #:common-lisp-user)
(delete-package '#:gramercy.image.build)
