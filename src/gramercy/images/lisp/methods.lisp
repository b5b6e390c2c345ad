;;;; The methods of a generic function and of a class, with those that a class inherits
;;;; and those that are replaced below it.

(in-package #:gramercy.image)

(defconstant +methods-page+ 7300 "Characters for the lines about methods.")

(defvar *direct-methods* (make-hash-table :test 'eq)
  "The methods of classes as far as this question has asked for them: those of one are compared with many others.")

(defun direct-methods (class)
  "Return the methods that are specialized on CLASS, of generic functions that are neither ours nor SBCL's internals."
  (multiple-value-bind (known found) (gethash class *direct-methods*)
    (if found
        known
        (setf (gethash class *direct-methods*)
              (loop for method in (stored-direct-methods class)
                    for generic = (stored-generic-function method)
                    for name = (and generic (stored-name generic))
                    ;; Other lists than (SETF NAME) name the accessors by which SBCL reaches a slot of any class.
                    unless (or (null name)
                               (and (consp name) (not (eq 'setf (first name))))
                               (eq :ours (name-owner name))
                               (internal-name-p name))
                      collect method)))))

(defun method-place-text (method)
  "Return where METHOD was defined: FILE:LINE, the session, or nothing."
  (let ((generic (stored-generic-function method)))
    (or (source-place (source-of method))
        (and (gethash (cons :method (method-name generic method)) *definitions*) "in the session")
        "")))

(defun method-words (method)
  "Return what is to be said of METHOD beside its name: lambda list, and the slot it reads or writes."
  (if (accessor-method-p method)
      (format nil "~:[writer~;reader~] of slot ~a" (kind-p method sb-mop:standard-reader-method)
              (ignore-errors
               (shown-name (stored-name (stored-slot-definition method)))))
      (let ((text (plain-documentation method t)))
        (and (stringp text) (format nil "~s" (shorten (first (split-lines text)) 100))))))

(defun listed-method-line (method &optional (relation ""))
  "Return the line about METHOD by the name of its generic function."
  (format nil "  ~a ~a  ~a~@[  ~a~]~a"
          (shown-name (stored-name (stored-generic-function method)))
          (method-label method) (method-place-text method) (method-words method) relation))

;;;; Of a generic function

(defun generic-lines (name)
  "Return the lines about the generic function NAME and each of its methods, the user's first."
  (let* ((function (fdefinition name))
         (methods (told-methods function))
         (combination (ignore-errors (stored-combination function)))
         (own (remove :system methods :key #'car))
         (system (remove :system methods :key #'car :test-not #'eq))
         (all (append own (if (or (null own) (<= (length methods) 40)) system '()))))
    (append
     (list (format nil "~a: generic function~@[ at ~a~], ~:[no methods~;~:*~:d method~:p~]~@[, combination ~a~]"
                   (operator-call-text name) (operator-place name) (and methods (length methods))
                   (unusual-combination combination)))
     (bounded-lines (loop for (nil . method) in all
                          collect (format nil "  ~a  ~a~@[  ~a~]" (method-label method)
                                          (method-place-text method) (method-words method)))
                    +methods-page+ "methods")
     (and (< (length all) (length methods))
          (list (format nil "  … ~:d more, SBCL's own" (- (length methods) (length all))))))))

;;;; Of a class

(defun same-but-for-p (one other class above)
  "Tell whether ONE, a method for CLASS, stands in for OTHER, a method for ABOVE, of the same generic function."
  (and (eq (stored-generic-function one) (stored-generic-function other))
       (equal (stored-qualifiers one) (stored-qualifiers other))
       (every (lambda (mine theirs) (or (eq mine theirs) (and (eq mine class) (eq theirs above))))
              (stored-specializers one) (stored-specializers other))))

(defun classes-below (class)
  "Return the classes below CLASS, at most a thousand."
  (let ((found '()))
    (labels ((walk (class)
               (dolist (below (direct-subclasses class))
                 (when (and (< (length found) 1000) (not (member below found)))
                   (push below found)
                   (walk below)))))
      (walk class)
      (nreverse found))))

(defun relation-text (method class ancestry below)
  "Return whether METHOD, for CLASS, replaces one of ANCESTRY, and which classes of BELOW replace it."
  (let ((above (loop for base in (rest ancestry)
                     when (find-if (lambda (other) (same-but-for-p method other class base)) (direct-methods base))
                       return base))
        (under (loop for sub in below
                     when (find-if (lambda (other) (same-but-for-p other method sub class)) (direct-methods sub))
                       collect (class-label sub))))
    (format nil "~@[  overrides that of ~a~]~@[  overridden for ~{~a~^, ~}~]" (and above (class-label above))
            (and under
                 (if (> (length under) 4)
                     (append (subseq under 0 4) (list (format nil "~d more" (- (length under) 4))))
                     under)))))

(defun inherited-lines (class base)
  "Return the lines about the methods that CLASS inherits from BASE; those it replaces are marked."
  (let ((methods (sorted-methods base)) (own (direct-methods class)))
    (when methods
      (cons (format nil "From ~a~@[ at ~a~]:" (class-label base) (class-place base))
            (mapcar (lambda (method)
                      (listed-method-line
                       method (if (find-if (lambda (mine) (same-but-for-p mine method class base)) own)
                                  "  overridden"
                                  "")))
                    methods)))))

(defun sorted-methods (class)
  "Return the methods for CLASS in the order of the names of their generic functions; accessors last."
  (sort (copy-list (direct-methods class)) #'string<
        :key (lambda (method)
               (format nil "~:[0~;1~]~a" (accessor-method-p method)
                       (definition-name (stored-name (stored-generic-function method)))))))

(defun methods-of-class-lines (class)
  "Return the lines about the methods for CLASS, and those it inherits, SBCL's own classes aside."
  (let* ((ancestry (class-ancestry class))
         (below (classes-below class))
         (own (sorted-methods class))
         (bases (remove :system (rest ancestry) :key (lambda (base) (name-owner (ignore-errors (stored-name base))))))
         ;; Most methods have a T somewhere, which says nothing.
         (system (loop for base in (set-difference (rest ancestry) (cons (find-class t) bases))
                       sum (length (direct-methods base)))))
    (append
     (list (format nil "~a: ~a~@[ at ~a~], ~a" (class-label class) (class-kind-text class) (class-place class)
                   (format nil "~:[no methods~;~:*~:d method~:p~] of its own" (and own (length own)))))
     (bounded-lines (append (mapcar (lambda (method)
                                      (listed-method-line method (relation-text method class ancestry below)))
                                    own)
                            (loop for base in bases append (inherited-lines class base)))
                    +methods-page+ "lines: ask for the superclass")
     (and (plusp system) (list (format nil "… and ~:d for SBCL's own classes above it" system))))))

(defun meaningful-name-p (name)
  "Tell whether NAME, a symbol or a list, means something."
  (if (symbolp name) (meaningful-p name) (fboundp name)))

(defun methods-lines (name text)
  "Return the lines about NAME, given as TEXT, as a generic function and as a class."
  (let ((generic (and (fboundp name) (not (and (symbolp name) (or (macro-function name) (special-operator-p name))))
                      (generic-function-p (fdefinition name))))
        (setter (and (symbolp name) (fboundp (list 'setf name))
                     (generic-function-p (fdefinition (list 'setf name)))))
        (class (and (symbolp name) (find-class name nil))))
    (unless (or generic setter class)
      (error 'unknown-name :kind "class" :text text
                           :reason (format nil "it names ~:[nothing~;~:*a ~a~], neither a class nor a generic function"
                                           (or (function-kind name)
                                               (and (symbolp name) (or (variable-kind name) (type-kind name)))))
                           :suggestions (and (not (meaningful-name-p name)) (near-names name))))
    (append (and generic (generic-lines name))
            (and setter (generic-lines (list 'setf name)))
            (and class (methods-of-class-lines class)))))

(define-question "find_methods" (request package)
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (*direct-methods* (make-hash-table :test 'eq))
         (text (request-text request :name))
         (name (resolve-function-name text package)))
    (answer request
            (joined (append (methods-lines name text) (other-symbols-lines name text)))
            "name" (definition-name name))))
