;;;; What the user has defined and what still exists of it.

(in-package #:gramercy.image)

(defun plural (kind)
  "Return the key under which definitions of KIND are listed."
  (cond ((string= kind "class") "classes")
        (t (concatenate 'string (substitute #\_ #\- kind) "s"))))

(defun detail-members (space name)
  "Return what is told of the definition of NAME in SPACE besides its name."
  (case space
    (:function (list "arglist" (or (ignore-errors (arglist-text name)) "()")))
    (:variable (list "value" (if (and (symbolp name) (boundp name))
                                 (plain-text (symbol-value name) 200)
                                 nil)))))

(defun listed-definitions ()
  "Return the user's definitions that still exist: lists of key, text of the name, and object; in their order."
  (loop for (space . name) in (known-definitions)
        for place from 0
        for kind = (current-kind space name)
        for text = (name-text space name)
        for symbol = (home-symbol space name)
        when kind
          collect (list (plural kind) text
                        (list* :object "name" text "place" place
                                       "symbol" (if (consp name) text (if symbol (symbol-token symbol) text))
                                       (detail-members space name)))))

(defglobal *listed-kinds*
    '("functions" "generic_functions" "variables" "constants" "macros" "classes" "structures"
      "conditions" "types" "methods" "packages" "symbol_macros" "compiler_macros" "setf_expanders"
      "method_combinations")
  "The keys of a listing, in the order they are shown.")

(defun listing-line (entry)
  "Return one line about ENTRY of LISTED-DEFINITIONS."
  (let ((members (rest (third entry))))
    (format nil "~a~@[ ~a~]~@[ = ~a~]" (second entry)
            (getf-text members "arglist") (getf-text members "value"))))

(defun wanted-kinds (request)
  "Return the keys that REQUEST asks for."
  (let ((kind (request-optional-text request :kind)))
    (cond ((null kind) *listed-kinds*)
          ((find kind *listed-kinds* :test #'string-equal) (list (string-downcase kind)))
          ((find (plural (string-downcase kind)) *listed-kinds* :test #'string=)
           (list (plural (string-downcase kind))))
          (t (error 'unknown-name :kind "kind" :text kind :suggestions *listed-kinds*)))))

(define-look "definitions" (request)
  ;; What threads have done since the last evaluation.
  (take-changes)
  (close-entry "a thread, between two calls")
  (let* ((kinds (wanted-kinds request))
         (entries (remove-if-not (lambda (entry) (member (first entry) kinds :test #'string=))
                                 (listed-definitions))))
    (flet ((of-kind (kind) (remove kind entries :test-not #'string= :key #'first)))
      (apply #'answer request
             (format nil "~{~a~^~%~%~}"
                     (loop for kind in kinds
                           for these = (of-kind kind)
                           when these
                             collect (format nil "[~:(~a~)]~%~a" (substitute #\Space #\_ kind)
                                             (lines "- ~a" (mapcar #'listing-line these)))))
             "package" (display-package-name *current-package*)
             (loop for kind in kinds
                   append (list kind (map 'vector #'third (of-kind kind))))))))
