;;;; Code that cannot be read: what is wrong with the text that was sent, and where
;;;; it begins. Streams of the user's own are none of its business.

(in-package #:gramercy.image)

(declaim (type (or null source) *reading*))
(defglobal *reading* nil "The source whose forms are being read, or were read last.")

(defun read-form (source end-mark)
  "Read the next form of SOURCE, or return END-MARK."
  (let* ((stream (source-stream-to-read source))
         (start (file-position stream)))
    (setf (source-form-start source) start)
    (if (< start (length (source-text source)))
        (read stream nil end-mark)
        end-mark)))

(defun source-stream-to-read (source)
  "Return the stream from which SOURCE is read, and take note that it is."
  (setf *reading* source)
  (or (source-stream source)
      (setf (source-stream source) (make-string-input-stream (source-text source)))))

(defun unreadable-code-p (condition)
  "Tell whether CONDITION says that the code that was sent cannot be read. User code may read too, and fail."
  (and (typep condition '(or reader-error end-of-file))
       *reading*
       (source-stream *reading*)
       (eq (source-stream *reading*) (ignore-errors (stream-error-stream condition)))))

;;; What is open at the end of a text

(defun open-pieces (text start)
  "Return what is not closed at the end of TEXT, from START on, innermost first: conses of a word and a place."
  (let ((open '()) (place start))
    (flet ((skip (word to)
             (cond ((and (>= to (length text)) (not (closed-p text word)))
                    (return-from open-pieces (cons (cons word place) open)))
                   (t (setf place to)))))
      (loop while (< place (length text))
            do (case (char text place)
                 (#\( (push (cons "list" place) open) (incf place))
                 (#\) (pop open) (incf place))
                 (#\" (skip "string" (skip-delimited text (1+ place) #\")))
                 (#\| (skip "symbol" (skip-delimited text (1+ place) #\|)))
                 (#\; (setf place (or (position #\Newline text :start place) (length text))))
                 (#\\ (incf place 2))
                 (#\# (case (char-at text (1+ place))
                        (#\| (skip "comment" (skip-block-comment text place)))
                        (#\\ (incf place 3))
                        (t (incf place))))
                 (t (incf place)))))
    open))

(defun closed-p (text word)
  "Tell whether TEXT ends with the mark that closes what WORD names."
  (let ((mark (cond ((string= word "string") "\"") ((string= word "symbol") "|") (t "|#"))))
    (and (> (length text) (length mark)) (string= mark (subseq text (- (length text) (length mark)))))))

(defun unclosed-message ()
  "Return where the form begins that the code which was sent does not close, and what is open in it."
  (let* ((text (source-text *reading*))
         (start (skip-text-blanks text (source-form-start *reading*)))
         (innermost (first (open-pieces text start))))
    (format nil "The code ends inside of the form that begins on line ~d~@[: ~a~]."
            (line-number text start)
            (and innermost
                 (format nil "the ~a that begins on line ~d is not closed"
                         (car innermost) (line-number text (cdr innermost)))))))
