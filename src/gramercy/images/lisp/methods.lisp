;;;; The methods of a generic function and of a class, with those that a class inherits
;;;; and those that are replaced below it.

(in-package #:gramercy.image)

(defconstant +methods-page+ 7300 "Characters for the lines about methods.")

(defun plain-class-p (class)
  "Tell whether CLASS is of SBCL's own kinds: others may answer what is asked of them by the user's methods."
  (member (class-name (class-of class))
          '(standard-class structure-class built-in-class sb-pcl::condition-class sb-mop:funcallable-standard-class
            sb-pcl:system-class)))

(defun direct-methods (class)
  "Return the methods that are specialized on CLASS, of generic functions that are neither ours nor SBCL's internals."
  (when (plain-class-p class)
    (loop for method in (ignore-errors (sb-mop:specializer-direct-methods class))
          for generic = (sb-mop:method-generic-function method)
          for name = (and generic (sb-mop:generic-function-name generic))
          unless (or (null name)
                     (not (eq (class-of generic) (load-time-value (find-class 'standard-generic-function))))
                     (eq :ours (name-owner name))
                     (internal-name-p name))
            collect method)))

(defun method-place-text (method)
  "Return where METHOD was defined: FILE:LINE, the session, or nothing."
  (let ((generic (sb-mop:method-generic-function method)))
    (or (source-place (ignore-errors (sb-introspect:find-definition-source method)))
        (and (gethash (cons :method (method-name generic method)) *definitions*) "in the session")
        "")))

(defun method-words (method)
  "Return what is to be said of METHOD beside its name: lambda list, and the slot it reads or writes."
  (if (typep method 'sb-mop:standard-accessor-method)
      (format nil "~:[writer~;reader~] of slot ~a" (typep method 'sb-mop:standard-reader-method)
              (ignore-errors
               (shown-name (sb-mop:slot-definition-name (sb-mop:accessor-method-slot-definition method)))))
      (let ((text (plain-documentation method t)))
        (and (stringp text) (format nil "~s" (shorten (first (split-lines text)) 100))))))

(defun listed-method-line (method &optional (relation ""))
  "Return the line about METHOD by the name of its generic function."
  (format nil "  ~a ~a  ~a~@[  ~a~]~a"
          (shown-name (sb-mop:generic-function-name (sb-mop:method-generic-function method)))
          (method-label method) (method-place-text method) (method-words method) relation))

;;;; Of a generic function

(defun generic-lines (name)
  "Return the lines about the generic function NAME and each of its methods, the user's first."
  (let* ((function (fdefinition name))
         (methods (told-methods function))
         (combination (ignore-errors (sb-mop:generic-function-method-combination function)))
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
  (and (eq (sb-mop:method-generic-function one) (sb-mop:method-generic-function other))
       (equal (method-qualifiers one) (method-qualifiers other))
       (every (lambda (mine theirs) (or (eq mine theirs) (and (eq mine class) (eq theirs above))))
              (sb-mop:method-specializers one) (sb-mop:method-specializers other))))

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
  (sort (direct-methods class) #'string<
        :key (lambda (method)
               (format nil "~:[0~;1~]~a" (typep method 'sb-mop:standard-accessor-method)
                       (definition-name (sb-mop:generic-function-name (sb-mop:method-generic-function method)))))))

(defun methods-of-class-lines (class)
  "Return the lines about the methods for CLASS, and those it inherits, SBCL's own classes aside."
  (let* ((ancestry (class-ancestry class))
         (below (classes-below class))
         (own (sorted-methods class))
         (bases (remove :system (rest ancestry) :key (lambda (base) (name-owner (ignore-errors (class-name base))))))
         ;; Most methods have a T somewhere, which says nothing.
         (system (loop for base in (set-difference (rest ancestry) (cons (find-class t) bases))
                       sum (length (direct-methods base)))))
    (append
     (list (format nil "~a: ~a~@[ at ~a~], ~a" (class-label class) (class-kind-text class) (class-place class)
                   (if (plain-class-p class)
                       (format nil "~:[no methods~;~:*~:d method~:p~] of its own" (and own (length own)))
                       "whose methods could only be asked for by running code of its metaclass")))
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
                      (typep (fdefinition name) 'generic-function)))
        (setter (and (symbolp name) (fboundp (list 'setf name))
                     (typep (fdefinition (list 'setf name)) 'generic-function)))
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
         (text (request-text request :name))
         (name (resolve-function-name text package)))
    (answer request
            (joined (append (methods-lines name text) (other-symbols-lines name text)))
            "name" (definition-name name))))
