;;;; Requests and replies. A request is a property list in the standard syntax of
;;;; Lisp, read by a small reader of our own: the real one would intern what it
;;;; meets, obey the user's readtable, and cost more than the evaluation that is
;;;; asked for.

(in-package #:gramercy.image)

(define-condition malformed-request (error)
  ((reason :initarg :reason :reader malformed-request-reason))
  (:report (lambda (condition stream)
             (format stream "The request cannot be read: ~a." (malformed-request-reason condition))))
  (:documentation "Signalled for a frame that holds no property list."))

(defun malformed (reason)
  "Refuse the frame, saying the REASON."
  (error 'malformed-request :reason reason))

(defconstant +deepest-request+ 32
  "Lists nested deeper than this are refused before they can exhaust the stack.")

(declaim (type index *request-place* *request-end*))
(defglobal *request-place* 0 "The octet of *INBOX* to be read next.")
(defglobal *request-end* 0 "The end of the request in *INBOX*.")

(declaim (inline peek-octet))
(defun peek-octet ()
  "Return the next octet of the request, or 0 at its end."
  (if (< *request-place* *request-end*) (aref *inbox* *request-place*) 0))

(defun skip-blanks ()
  "Go to the next octet that is not white space."
  (loop while (and (< *request-place* *request-end*) (<= (aref *inbox* *request-place*) 32))
        do (incf *request-place*)))

(defun string-end ()
  "Return where the string that starts here is closed, and whether it holds only plain ASCII."
  (declare (optimize speed))
  (let ((plain t))
    (loop with place of-type index = *request-place*
          do (when (>= place *request-end*) (malformed "a string is not closed"))
             (let ((octet (aref *inbox* place)))
               (cond ((= octet 34) (return (values place plain)))
                     ((= octet 92) (setf plain nil) (incf place))
                     ((> octet 127) (setf plain nil))))
             (incf place))))

(defun unescape (octets)
  "Return OCTETS without the backslashes that protect the octet behind them."
  (declare (type octets octets) (optimize speed))
  (let ((result (make-array (length octets) :element-type '(unsigned-byte 8)))
        (count 0))
    (declare (type index count))
    (loop with place of-type index = 0
          while (< place (length octets))
          do (when (= (aref octets place) 92) (incf place))
             (setf (aref result count) (aref octets place))
             (incf count)
             (incf place))
    (sb-ext:octets-to-string result :end count :external-format '(:utf-8 :replacement #\ufffd))))

(defun read-request-string ()
  "Read a string, behind its opening quote."
  (multiple-value-bind (end plain) (string-end)
    (declare (type index end))
    (let ((start *request-place*))
      (setf *request-place* (1+ end))
      (if plain
          (let ((text (make-string (- end start))))
            (loop for place from start below end
                  for to of-type index from 0
                  do (setf (schar text to) (code-char (aref *inbox* place))))
            text)
          (unescape (subseq *inbox* start end))))))

;;; Words. Nearly every word was met before, and is known again by its octets.

(defconstant +remembered-words+ 64 "Places for words that were met before, a power of two.")
(defconstant +longest-word+ 64 "Octets of a keyword or a number; all that the protocol has are shorter.")

(declaim (type simple-vector *words*))
(defglobal *words* (make-array +remembered-words+ :initial-element nil)
  "Pairs of the octets of a word and the symbol it means, at the place that the octets add up to.")

(defun word-end ()
  "Return where the word that starts here ends, and the place that its octets add up to."
  (declare (optimize speed))
  (let ((place *request-place*)
        (sum 0))
    (declare (type index place) (type (unsigned-byte 16) sum))
    (loop while (< place *request-end*)
          do (let ((octet (aref *inbox* place)))
               (when (or (<= octet 32) (= octet 34) (<= 40 octet 41)) (return))
               (setf sum (ldb (byte 16 0) (+ (* 31 sum) octet)))
               (incf place)))
    (values place (mod sum +remembered-words+))))

(defun small-number (start end)
  "Return the natural number that stands from START to END, or NIL where something else does, or a large one."
  (declare (type index start end) (optimize speed))
  (when (<= (- end start) 18)
    (let ((number 0))
      (declare (type (unsigned-byte 62) number))
      (loop for place from start below end
            do (let ((octet (aref *inbox* place)))
                 (unless (<= 48 octet 57) (return-from small-number nil))
                 (setf number (+ (* 10 number) (- octet 48)))))
      number)))

(defun known-word (start end place)
  "Return the symbol that the octets from START to END were found to mean before, or NIL."
  (declare (type index start end place) (optimize speed))
  (let ((known (svref *words* place)))
    (when known
      (let ((octets (car known)))
        (declare (type octets octets))
        (when (and (= (length octets) (- end start))
                   (loop for octet across octets
                         for from of-type index from start
                         always (= octet (aref *inbox* from))))
          (cdr known))))))

(defun new-word (start end place)
  "Return what the octets from START to END mean, and remember it at PLACE where that is a symbol."
  (let* ((octets (subseq *inbox* start end))
         (value (word-value (map 'string
                                 (lambda (octet)
                                   (if (= octet 95) #\- (char-upcase (code-char octet))))
                                 octets))))
    (when (and value (symbolp value))
      (setf (svref *words* place) (cons octets value)))
    value))

(defun read-request-word ()
  "Read an unquoted word: a keyword, T, NIL, or a decimal number. An underscore counts as a hyphen."
  (multiple-value-bind (end place) (word-end)
    (declare (type index end))
    (let ((start *request-place*))
      (unless (< 0 (- end start) (1+ +longest-word+))
        (malformed "a keyword, a string, a number or a list was expected"))
      (setf *request-place* end)
      (or (small-number start end)
          (known-word start end place)
          (new-word start end place)))))

(defun word-value (word)
  "Return what WORD means. An unknown keyword is its own name: nothing is ever interned."
  (cond ((string= word "NIL") nil)
        ((string= word "T") t)
        ((char= (char word 0) #\:)
         (or (find-symbol (subseq word 1) :keyword) (subseq word 1)))
        ((and (string/= word "-")
              (every #'digit-char-p (if (char= (char word 0) #\-) (subseq word 1) word)))
         (parse-integer word))
        (t (malformed "a keyword, a string, a number or a list was expected"))))

(defun read-request-list (depth)
  "Read the elements of a list, behind its opening parenthesis."
  (when (> depth +deepest-request+) (malformed "its lists are nested too deep"))
  (loop do (skip-blanks)
        until (= (peek-octet) 41)
        when (>= *request-place* *request-end*) do (malformed "a list is not closed")
          collect (read-request-value depth)
        finally (incf *request-place*)))

(defun read-request-value (depth)
  "Read the next value of the request."
  (case (peek-octet)
    (40 (incf *request-place*) (read-request-list (1+ depth)))
    (34 (incf *request-place*) (read-request-string))
    (t (read-request-word))))

(defun read-request (start end)
  "Return the property list that stands in *INBOX* from START to END."
  (setf *request-place* start *request-end* end)
  (skip-blanks)
  (unless (= (peek-octet) 40) (malformed "it does not start with a parenthesis"))
  (let ((request (read-request-value 0)))
    (unless (and (evenp (length request))
                 (loop for key in request by #'cddr always (or (keywordp key) (stringp key))))
      (malformed "it is not a property list"))
    request))

(defun request-text (request key)
  "Return the string under KEY of REQUEST, or refuse the request."
  (let ((value (getf request key)))
    (if (stringp value)
        value
        (malformed (format nil "~(~a~) must be a string" key)))))

(defun request-optional-text (request key)
  "Return the string under KEY of REQUEST, or NIL where there is none."
  (and (getf request key) (request-text request key)))

(defun request-count (request key default)
  "Return the count under KEY of REQUEST, or DEFAULT where there is none."
  (let ((value (getf request key)))
    (cond ((null value) default)
          ((typep value '(integer 0 #.(ash 1 40))) value)
          (t (malformed (format nil "~(~a~) must be a count" key))))))

;;;; The table of operations, and the ways to reply. What each operation does is
;;;; in the file of its subject.

(defglobal *operations* (make-hash-table :test 'equal)
  "Functions of one request by the name of their operation.")

(defglobal *checkpoint-tag* nil
  "The name of the checkpoint to fork after the reply, or NIL where there will be none.")

(defmacro define-operation (name (request) &body body)
  "Define what is done for requests whose op is NAME; BODY has to reply."
  `(setf (gethash ,name *operations*)
         (sb-int:named-lambda (operation ,name) (,request) ,@body)))

(defun operation-name (request)
  "Return the operation that REQUEST names, as the table spells it."
  (let ((operation (getf request :op)))
    (if (or (stringp operation) (keywordp operation))
        (substitute #\_ #\- (string-downcase (string operation)))
        (malformed "op must be the name of an operation"))))

(defun find-operation (request)
  "Return the function of the operation that REQUEST names, or NIL."
  ;; The parent spells names as the table does, others need not.
  (or (gethash (getf request :op) *operations*)
      (gethash (operation-name request) *operations*)))

(defun put-reply-start (id ok)
  "Begin the reply to the request ID."
  (put-ascii "{\"id\":")
  (put-json (if (or (integerp id) (stringp id)) id nil))
  (put-ascii (if ok ",\"ok\":true" ",\"ok\":false")))

(defun put-unkept ()
  "Append why no checkpoint will be forked after this reply, where one is wanted and cannot be.
Without threads of the user's none can start between the reply and the fork."
  (let ((reason (and *checkpoint-tag*
                     (or (threads-reason) (unless (end-there-p *checkpoint-tag*) *no-end*)))))
    (when reason
      (setf *checkpoint-tag* nil)
      (put-ascii ",\"unkept\":")
      (put-string reason))))

(defun put-more-members (members)
  "Append the plist MEMBERS to an object that has members already."
  (loop for (key value) on members by #'cddr
        do (put-ascii ",")
           (put-string key)
           (put-ascii ":")
           (put-json value)))

(defun reply (request &rest members)
  "Reply to REQUEST with success and MEMBERS, a plist of keys and values."
  (put-reply-start (getf request :id) t)
  (put-more-members members)
  (put-ascii "}")
  (send-frame))

(defun reply-unchanged-fault (request members)
  "Reply to REQUEST, for which nothing was done, with the error object made of MEMBERS."
  (setf *checkpoint-tag* nil)
  (reply-fault request members t))

(defun reply-fault (request members &optional unchanged)
  "Reply to REQUEST with the error object made of MEMBERS."
  (reset-outbox)
  (put-reply-start (getf request :id) nil)
  (put-ascii ",\"error\":")
  (put-members members)
  (put-unkept)
  (when unchanged (put-ascii ",\"unchanged\":true"))
  (put-ascii "}")
  (send-frame))

(defconstant +longest-text+ 8000
  "Characters of an answer to a question: more would crowd out what else a model has to read.")

(defun answer (request text &rest data)
  "Answer the question REQUEST with TEXT for people and DATA, a plist, for programs. What is cut of TEXT is told."
  (reply request
         "text" (if (> (length text) +longest-text+)
                    (let ((end (- +longest-text+ 80)))
                      (format nil "~a~%… [~:d of ~:d characters shown]" (subseq text 0 end) end (length text)))
                    text)
         "data" (cons :object data)))
