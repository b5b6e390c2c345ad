;;;; All that a name means, in every space of names: at least what DESCRIBE tells, in
;;;; fewer words, and without running any method of the user's.

(in-package #:gramercy.image)

(defconstant +longest-value+ 500 "Characters shown of the value of a variable.")
(defconstant +longest-documentation+ 5500 "Characters shown of a documentation string.")
(defconstant +longest-expansion+ 1000 "Characters shown of what a macro or a type stands for.")
(defconstant +methods-room+ 3000 "Characters for the methods of a generic function.")
(defconstant +system-methods-room+ 1200 "Characters for those of them that are SBCL's own.")
(defconstant +most-others+ 8 "Symbols of the same name in other packages that are told.")

(defun indented (text)
  "Return TEXT with two blanks before each line, without those that its lines have in common."
  (let* ((lines (split-lines text))
         (common (loop for line in (rest lines)
                       for place = (position #\Space line :test-not #'char=)
                       when place minimize place)))
    (format nil "~{  ~a~^~%~}"
            (cons (first lines)
                  (mapcar (lambda (line) (if common (subseq line (min common (length line))) line)) (rest lines))))))

(defun split-lines (text)
  "Return the lines of TEXT without the blanks at their ends."
  (loop with start = 0
        for end = (position #\Newline text :start start)
        collect (string-right-trim '(#\Space #\Return #\Tab) (subseq text start end))
        while end
        do (setf start (1+ end))))

(defun documentation-line (object kind)
  "Return the lines about the documentation of OBJECT as KIND, or NIL."
  (let ((text (plain-documentation object kind)))
    (and (stringp text) (string/= text "")
         (indented (shorten (string-trim '(#\Newline #\Space) text) +longest-documentation+)))))

(defun origin-line (place space name)
  "Return the line that tells PLACE, or that NAME in SPACE was defined in the session; NIL where neither is known."
  (cond (place (format nil "  ~a" place))
        ((gethash (cons space name) *definitions*) "  defined in the session")))

(defun deprecation-line (space name)
  "Return the line that says that NAME in SPACE should no longer be used, or NIL."
  (let ((ask (internal-function "DEPRECATED-THING-P" "SB-INT")))
    (when ask
      (multiple-value-bind (state since replacements) (ignore-errors (funcall ask space name))
        (and state
             (format nil "  deprecated (~(~a~)) since ~{~a~^ ~}~@[, use ~{~a~^ or ~}~]" state (remove nil since)
                     (mapcar #'shown-name replacements)))))))

(defun bounded-expression (form limit)
  "Return the text of FORM; where LIMIT cuts it, that is said."
  (let ((text (expression-text form limit)))
    (if (> (length text) limit)
        (format nil "~a [cut after ~:d characters; evaluate it to read on]" text limit)
        text)))

;;;; Operators

(defun operator-word (name)
  "Return what kind of operator NAME is."
  (cond ((and (symbolp name) (special-operator-p name)) "special operator")
        ((and (symbolp name) (macro-function name)) "macro")
        ((generic-function-p (fdefinition name)) "generic function")
        ((compiled-function-p (fdefinition name)) "function")
        (t "interpreted function")))

(defun operator-function (name)
  "Return the function object that stands for the operator NAME."
  (or (and (symbolp name)
           (if (special-operator-p name) (compiler-fact :function :ir1-convert name) (macro-function name)))
      (fdefinition name)))

(defun derived-type (function)
  "Return the type that the compiler has derived for FUNCTION itself, or NIL."
  (let ((ask (or (internal-function "%FUN-FTYPE" "SB-IMPL") (internal-function "%FUN-FTYPE" "SB-KERNEL"))))
    ;; That of a generic function says what its lambda list says, and would be worked out by generic readers.
    (and ask (not (generic-function-p function)) (ignore-errors (funcall ask function)))))

(defun operator-type-lines (name)
  "Return the lines about the declared and the derived type of the function NAME."
  (unless (and (symbolp name) (or (special-operator-p name) (macro-function name)))
    (let* ((known (function-type-of name))
           (declared (and (eq :declared (compiler-fact :function :where-from name)) known))
           (from (compiler-fact :function :where-from name))
           (derived (or (and (not declared) (member from '(:defined-method :defined)) known)
                        (derived-type (fdefinition name)))))
      (remove nil
              (list (and (consp declared) (format nil "  declared type ~a" (function-type-text declared)))
                    ;; One of nothing but T says no more than the lambda list.
                    (and (telling-type-p derived) (not (equal derived declared))
                         (format nil "  ~:[type~;derived type~] ~a" declared (function-type-text derived))))))))

(defun proclamation-lines (name)
  "Return the lines about what the compiler does with calls of NAME."
  (let* ((inline (compiler-fact :function :inlinep name))
         (expansion (let ((ask (internal-function "FUN-NAME-INLINE-EXPANSION" "SB-INT")))
                      (and ask (ignore-errors (funcall ask name)))))
         (extent (let ((ask (internal-function "FUN-NAME-DX-ARGS" "SB-C")))
                   (and ask (ignore-errors (funcall ask name)))))
         (attributes (function-attributes name)))
    (remove nil
            (list (and inline (format nil "  ~(~a~)~:[, no inline expansion~;~]" inline expansion))
                  (and extent (format nil "  dynamic-extent arguments: ~{~a~^, ~}" (mapcar #'plain-word extent)))
                  (and attributes (format nil "  attributes: ~(~{~a~^, ~}~)" attributes))))))

(defun plain-word (item)
  "Return the text of ITEM, a number or a keyword."
  (plain-text item 40))

(defun function-attributes (name)
  "Return the words by which the compiler knows NAME."
  (let ((info (compiler-fact :function :info name))
        (read-attributes (internal-function "FUN-INFO-ATTRIBUTES" "SB-C"))
        (decode (internal-function "DECODE-IR1-ATTRIBUTES" "SB-C")))
    (and info read-attributes decode
         (ignore-errors (funcall decode (funcall read-attributes info))))))

(defun method-line (method)
  "Return the line about METHOD."
  (let ((documentation (plain-documentation method t)))
    (format nil "    ~a~@[  ~a~]~@[  ~s~]" (method-label method)
            (source-place (source-of method))
            (and (stringp documentation) (shorten documentation 200)))))

(defun system-method-line (methods)
  "Return the line about METHODS that are SBCL's own, without their places."
  (multiple-value-bind (shown count)
      (fitting (mapcar (lambda (method)
                         (let ((documentation (plain-documentation method t)))
                           (format nil "~a~@[ ~s~]" (method-label method)
                                   (and (stringp documentation) (shorten documentation 200)))))
                       methods)
               +system-methods-room+)
    (and methods
         (format nil "    ~{~a~^, ~}~@[, … ~:d more~]" shown
                 (and (< count (length methods)) (- (length methods) count))))))

(defun method-lines (function)
  "Return the lines about the generic FUNCTION itself and its methods."
  (let* ((methods (told-methods function))
         (combination (ignore-errors (stored-combination function)))
         (order (ignore-errors (precedence-order function)))
         (usual (ignore-errors (subseq (generic-parameters function) 0 (length order)))))
    (append
     (remove nil
             (list (and (not (equal order usual))
                        (format nil "  argument precedence ~{~a~^ ~}" (mapcar #'symbol-token order)))
                   (format nil "  ~:[no methods~;~:*~:d method~:p~]~@[, combination ~a~]" (and methods (length methods))
                           (unusual-combination combination))))
     (bounded-lines (loop for (owner . method) in methods
                          unless (eq owner :system) collect (method-line method))
                    +methods-room+ "methods: (sb-mop:generic-function-methods #'f) gives all")
     (let ((line (system-method-line (loop for (owner . method) in methods
                                           when (eq owner :system) collect method))))
       (and line (list line))))))

(defun unusual-combination (combination)
  "Return the name of the method COMBINATION where it is not the standard one."
  (let ((name (and combination (stored-combination-name combination))))
    (and name (not (eq name 'standard)) (shown-name name))))

(defun operator-place (name)
  "Return FILE:LINE of the operator NAME, or NIL."
  (source-place (source-of (operator-function name))))

(defun operator-description (name)
  "Return the lines about NAME as an operator."
  (if (fboundp name)
      (remove nil
              `(,(format nil "~a ~a" (operator-word name) (operator-call-text name))
                ,(deprecation-line 'function name)
                ,@(operator-type-lines name)
                ,@(proclamation-lines name)
                ,(documentation-line name 'function)
                ,@(and (not (and (symbolp name) (or (macro-function name) (special-operator-p name))))
                       (generic-function-p (fdefinition name))
                       (method-lines (fdefinition name)))
                ,(origin-line (operator-place name) :function name)))
      (undefined-description name)))

(defun undefined-description (name)
  "Return the lines about NAME as a function that is declared or called and not defined."
  (let* ((from (compiler-fact :function :where-from name))
         (type (and (member from '(:declared :assumed))
                    (let ((ask (internal-function "GLOBAL-FTYPE" "SB-INT"))
                          (specify (internal-function "TYPE-SPECIFIER" "SB-KERNEL")))
                      (and ask specify (ignore-errors (funcall specify (funcall ask name))))))))
    (when (and (eq from :declared) (consp type))
      (list (format nil "function, declared and not defined, type ~a" (function-type-text type))))))

(defun compiler-macro-description (name)
  "Return the lines about the compiler macro of NAME."
  (let ((function (compiler-macro-function name)))
    (when function
      (remove nil
              (list (format nil "compiler macro~:[~; (SETF ~a)~]" (consp name)
                            (and (consp name) (shown-name (second name))))
                    (documentation-line function t)
                    (origin-line (source-place (source-of function))
                                :compiler-macro name))))))

;;; Places

(defun setf-description (symbol)
  "Return the lines about (SETF (SYMBOL ...) ...)."
  (let ((expander (compiler-fact :setf :expander symbol))
        (setter (list 'setf symbol)))
    (append
     (when expander
       (remove nil
               (list (if (typep expander '(cons symbol))
                         (format nil "(SETF (~a ...) ...) calls ~a" (shown-name symbol) (shown-name (car expander)))
                         (format nil "setf expander ~a"
                                 (call-text (shown-name symbol)
                                            (ignore-errors
                                             (lambda-list-items
                                              (sb-introspect:function-lambda-list
                                               (if (consp expander) (cdr expander) expander)))))))
                     (documentation-line symbol 'setf)
                     (origin-line (definition-place symbol :setf-expander) :setf-expander symbol))))
     (operator-description setter)
     (compiler-macro-description setter))))

;;;; Variables

(defun variable-word (symbol)
  "Return what kind of variable SYMBOL is, or NIL."
  (case (compiler-fact :variable :kind symbol)
    (:special "special variable")
    (:global "global variable")
    (:constant "constant")
    (:macro "symbol macro")
    (:alien "alien variable")
    (t (and (boundp symbol) "undeclared variable"))))

(defun variable-content (symbol)
  "Return the line about the value of the variable SYMBOL, or about what stands for it."
  (case (compiler-fact :variable :kind symbol)
    (:macro (format nil "  stands for ~a"
                    (bounded-expression (compiler-fact :variable :macro-expansion symbol) +longest-expansion+)))
    (:alien nil)
    (t (if (boundp symbol)
           (format nil "  Value: ~a" (bounded-expression (symbol-value symbol) +longest-value+))
           "  unbound"))))

(defun variable-description (symbol)
  "Return the lines about SYMBOL as a variable."
  (let ((word (and (or (variable-kind symbol) (variable-word symbol)) (variable-word symbol))))
    (when (and word (not (keywordp symbol)))
      (remove nil
              (list (format nil "~a~:[~;, always bound~]" word (compiler-fact :variable :always-bound symbol))
                    (deprecation-line 'variable symbol)
                    (variable-type-line symbol)
                    (variable-content symbol)
                    (documentation-line symbol 'variable)
                    (origin-line (definition-place symbol :variable :constant :symbol-macro) :variable symbol))))))

(defun variable-type-line (symbol)
  "Return the line about the declared type of the variable SYMBOL, or NIL."
  (let ((specify (internal-function "TYPE-SPECIFIER" "SB-KERNEL"))
        (type (compiler-fact :variable :type symbol)))
    (and specify (eq :declared (compiler-fact :variable :where-from symbol))
         (format nil "  declared type ~a" (ignore-errors (expression-text (funcall specify type)))))))

;;;; Types and classes

(defun sealed-p (class)
  "Tell whether CLASS may have no further subclasses."
  (let ((layout (stored class (pcl-symbol "WRAPPER")))
        (state (internal-function "CLASSOID-STATE" "SB-KERNEL")))
    (and layout state
         (eq :sealed (ignore-errors
                      (funcall state (of-layout ("WRAPPER-CLASSOID" "LAYOUT-CLASSOID") layout)))))))

(defconstant +methods-named+ 12 "Generic functions named in what is told of a class; the others are counted.")

(defun class-methods-line (class)
  "Return the line about generic functions with methods for CLASS, accessors and SBCL's own aside, or NIL."
  (let* ((names (loop for method in (stored-direct-methods class)
                      for generic = (stored-generic-function method)
                      unless (or (null generic)
                                 (accessor-method-p method)
                                 (member (method-owner generic method) '(:system :ours)))
                        collect (expression-text (stored-name generic))))
         (sorted (sort (remove-duplicates names :test #'string=) #'string<))
         (told (subseq sorted 0 (min +methods-named+ (length sorted)))))
    (and told
         (format nil "  methods: ~{~a~^, ~}~[~:;~:*, … ~:d more~]" told (- (length sorted) (length told))))))

(defun class-description (symbol)
  "Return the lines about the class SYMBOL."
  (let ((class (find-class symbol nil)))
    (when class
      (let ((slots (own-slots class)))
        (remove nil
                `(,(format nil "~a~:[~;, sealed~]" (class-kind-text class) (sealed-p class))
                  ,(deprecation-line 'type symbol)
                  ,(documentation-line class t)
                  ,(let ((unfinished (unfinished-line class))) (and unfinished (format nil "  ~a" unfinished)))
                  ,(and (direct-superclasses class)
                        (format nil "  superclasses: ~{~a~^, ~}" (mapcar #'class-label (direct-superclasses class))))
                  ,(and (cddr (class-ancestry class)) (ordered-p class)
                        (format nil "  precedence: ~{~a~^ > ~}" (mapcar #'class-label (rest (class-ancestry class)))))
                  ,(let ((line (subclasses-line class)))
                     (and (direct-subclasses class) (format nil "  s~a" (subseq line 1))))
                  ,(and slots (format nil "  ~:[own slots~;slots~]:" (structure-class-p class)))
                  ,@(bounded-lines (slot-lines slots class "    ") +methods-room+ "slots")
                  ,(inherited-slots-line class slots)
                  ,(class-methods-line class)
                  ,(origin-line (class-place class) :type symbol)))))))

(defun inherited-slots-line (class own)
  "Return the line with the names of the slots of CLASS that are not among its OWN, nor SBCL's; or NIL."
  (let* ((slots (remove-if (lambda (slot)
                             (let ((origin (slot-fact-origin slot)))
                               (or (member (slot-fact-name slot) own :key #'slot-fact-name)
                                   (and origin (eq :system (name-owner (stored-name origin)))))))
                           (told-slots class)))
         (told (subseq slots 0 (min +methods-named+ (length slots)))))
    (and told
         (format nil "  inherited slots: ~{~a~^, ~}~[~:;~:*, … ~:d more~]"
                 (mapcar (lambda (slot) (shown-name (slot-fact-name slot))) told)
                 (- (length slots) (length told))))))

(defun type-description (symbol)
  "Return the lines about SYMBOL as a type that is no class, or that can be more than one."
  (let* ((kind (compiler-fact :type :kind symbol))
         (expander (and kind (compiler-fact :type :expander symbol)))
         (function (if (listp expander) (car expander) expander)))
    (cond ((functionp function)
           (multiple-value-bind (parameters known) (ignore-errors (sb-introspect:deftype-lambda-list symbol))
             (remove nil
                     (list (format nil "~:[~;primitive ~]type ~a" (eq kind :primitive)
                                   (call-text (shown-name symbol) (and known (lambda-list-items parameters))))
                           (deprecation-line 'type symbol)
                           (expansion-line symbol)
                           (and (not (find-class symbol nil)) (documentation-line symbol 'type))
                           (origin-line (definition-place symbol :type) :type symbol)))))
          (function (remove nil (list (format nil "~:[~;primitive ~]type" (eq kind :primitive))
                                      (and (not (find-class symbol nil)) (documentation-line symbol 'type))))))))

(defun expansion-line (symbol)
  "Return the line about what the type SYMBOL stands for without arguments, or NIL. SBCL keeps no text of what is
computed, so the expander has to be asked; one that is not SBCL's own is not."
  (if (eq :system (name-owner symbol))
      (multiple-value-bind (expansion expanded) (ignore-errors (sb-ext:typexpand-1 symbol))
        (and expanded (format nil "  stands for ~a" (bounded-expression expansion +longest-expansion+))))
      (let ((known (constant-expansion symbol)))
        (if known
            (format nil "  stands for ~a" (bounded-expression (first known) +longest-expansion+))
            (format nil "  its expansion is computed: (sb-ext:typexpand-1 '~a)" (shown-name symbol))))))

(defun constant-expansion (symbol)
  "Return a list of what the type SYMBOL always stands for, read from its expander without running it, or NIL."
  (let ((expander (compiler-fact :type :expander symbol)))
    (and (functionp expander)
         (sb-kernel:closurep expander)
         (ignore-errors
          (name-mentions-p (sb-kernel:%fun-name (sb-kernel:%closure-fun expander))
                           (lambda (name) (string= (symbol-name name) "CONSTANT-TYPE-EXPANDER"))))
         (ignore-errors (list (sb-kernel:%closure-index-ref expander 0))))))

(defun declaration-description (symbol)
  "Return the lines about SYMBOL as a declaration or a quality of optimization."
  (let ((quality (let ((ask (internal-function "POLICY-QUALITY-NAME-P" "SB-C")))
                   (and ask (ignore-errors (funcall ask symbol))))))
    (remove nil
            (list (cond ((member symbol '(ignore ignorable dynamic-extent special type ftype optimize inline notinline
                                          declaration))
                         "standard declaration")
                        ((member symbol '(sb-ext:global sb-ext:always-bound sb-ext:freeze-type
                                          sb-ext:muffle-conditions sb-ext:unmuffle-conditions
                                          sb-ext:disable-package-locks sb-ext:enable-package-locks
                                          sb-ext:maybe-inline sb-ext:deprecated))
                         "declaration of SBCL")
                        ((compiler-fact :declaration :known symbol) "declaration"))
                  (and quality (format nil "~:[~;dependent ~]optimization quality"
                                       (and (integerp quality) (minusp quality))))
                  (and quality (documentation-line symbol 'optimize))))))

(defun plist-line (symbol)
  "Return the line about the properties of SYMBOL that are not SBCL's or ours."
  (let ((told (loop for (key value) on (ignore-errors (symbol-plist symbol)) by #'cddr
                    unless (and (symbolp key) (symbol-package key)
                                (member (package-owner (symbol-package key)) '(:system :ours))
                                (not (keywordp key)))
                      collect (format nil "~a ~a" (expression-text key) (expression-text value 100)))))
    (and told (format nil "properties: ~{~a~^, ~}" (subseq told 0 (min 20 (length told)))))))

;;;; The question

(defun home-text (symbol)
  "Return the line that says which symbol SYMBOL is. A name that stands with its package says where it is at home."
  (let* ((package (symbol-package symbol))
         (name (shown-name symbol))
         (status (and package (nth-value 1 (find-symbol (symbol-name symbol) package)))))
    (cond ((null package) (format nil "~a: in no package" name))
          ((string= name (symbol-token symbol))
           (format nil "~a: ~(~a~) in ~a" name status (display-package-name package)))
          (t (format nil "~a: ~(~a~)" name status)))))

(defun meaningful-p (symbol)
  "Tell whether SYMBOL means something as an operator, a variable or a type."
  (or (fboundp symbol) (and (boundp symbol) (not (keywordp symbol))) (fboundp (list 'setf symbol))
      (find-class symbol nil) (type-kind symbol) (variable-kind symbol)))

(defun other-symbols-lines (name text)
  "Return the line about symbols of other packages called as NAME, which TEXT spells without a package."
  (let ((others (and (symbolp name) (null (package-marker (trimmed text)))
                     (remove name (namesakes (symbol-name name))))))
    (and others
         (list (format nil "Others of that name: ~{~a~^, ~}~:[~;, …~]"
                       (mapcar #'shown-name (subseq others 0 (min +most-others+ (length others))))
                       (> (length others) +most-others+))))))

(defun symbol-description (symbol)
  "Return the lines about all that SYMBOL means."
  (append (variable-description symbol)
          (operator-description symbol)
          (compiler-macro-description symbol)
          (setf-description symbol)
          (class-description symbol)
          (type-description symbol)
          (declaration-description symbol)))

(defun name-description (name)
  "Return the lines about all that NAME means."
  (if (consp name)
      (or (append (operator-description name) (compiler-macro-description name))
          (let ((expander (and (eq (first name) 'setf) (compiler-fact :setf :expander (second name)))))
            (and expander (setf-description (second name)))))
      (symbol-description name)))

(defun nothing-lines (name)
  "Return what there is to say about NAME, which means nothing: what may have been meant instead."
  (let ((near (and (or (consp name) (not (exported-p name))) (near-names name))))
    (cons "It has no definition."
          (and near (list (format nil "Names like it: ~{~a~^, ~}" near))))))

(define-question "describe" (request package)
  (let* ((*file-texts* (make-hash-table :test 'equal))
         (text (request-text request :symbol))
         (name (resolve-function-name text package)))
    (answer request
            (joined (append (and (symbolp name) (list (home-text name)))
                            (or (name-description name) (nothing-lines name))
                            (and (symbolp name) (list (plist-line name)))
                            (other-symbols-lines name text)))
            "name" (definition-name name)
            "function" (and (fboundp name) (function-kind name))
            "variable" (and (symbolp name) (variable-kind name))
            "type" (and (symbolp name) (type-kind name)))))
