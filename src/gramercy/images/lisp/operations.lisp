;;;; The table of operations, and the ways to reply to a request. What each
;;;; operation does stands in the file of its subject.

(in-package #:gramercy.image)

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
Without threads of the user's there is nobody who could start one between the reply and the fork."
  (let ((reason (and *checkpoint-tag* (threads-reason))))
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

(defconstant +longest-answer+ 100000 "Characters of the text that answers a question.")

(defun answer (request text &rest data)
  "Answer the question REQUEST with TEXT for people and DATA, a plist, for programs."
  (reply request
         "text" (if (> (length text) +longest-answer+)
                    (concatenate 'string (subseq text 0 +longest-answer+) "...")
                    text)
         "data" (cons :object data)))
