;;;; From a form inside a form to a line of the text it was read from. The inner
;;;; form is found by identity, which gives a path of element numbers; the text is
;;;; walked along it. A reader macro the walk does not know ends it: the line is
;;;; then that of the last form it understood, never a wrong guess beyond it.

(in-package #:gramercy.image)

(defun line-number (text position)
  "Return the number, from 1, of the line of TEXT that holds POSITION."
  (1+ (count #\Newline text :end (min position (length text)))))

(defun skip-text-blanks (text place)
  "Return the place of the next character of TEXT from PLACE that is neither blank nor comment."
  (loop
    (let ((character (and (< place (length text)) (char text place))))
      (cond ((null character) (return place))
            ((or (char<= character #\Space)) (incf place))
            ((char= character #\;)
             (setf place (or (position #\Newline text :start place) (length text))))
            ((and (char= character #\#) (eql (mismatch "#|" text :start2 place) 2))
             (setf place (skip-block-comment text place)))
            (t (return place))))))

(defun skip-block-comment (text place)
  "Return the place behind the comment #| |# that starts at PLACE."
  (loop with depth = 0
        for at = place then (1+ at)
        while (< (1+ at) (length text))
        do (cond ((and (char= (char text at) #\#) (char= (char text (1+ at)) #\|)) (incf depth) (incf at))
                 ((and (char= (char text at) #\|) (char= (char text (1+ at)) #\#))
                  (incf at)
                  (when (zerop (decf depth)) (return (1+ at)))))
        finally (return (length text))))

(defun skip-delimited (text place mark)
  "Return the place behind the closing MARK of what was opened just before PLACE."
  (loop for at = place then (1+ at)
        while (< at (length text))
        do (cond ((char= (char text at) #\\) (incf at))
                 ((char= (char text at) mark) (return (1+ at))))
        finally (return (length text))))

(defun skip-token (text place)
  "Return the place behind the symbol or number that starts at PLACE."
  (loop while (< place (length text))
        do (let ((character (char text place)))
             (cond ((char= character #\\) (incf place 2))
                   ((char= character #\|) (setf place (skip-delimited text (1+ place) #\|)))
                   ((or (char<= character #\Space) (find character "()\"';`,")) (return))
                   (t (incf place))))
        finally (return (min place (length text))))
  (min place (length text)))

(defun skip-form (text place)
  "Return the place behind the form that starts at PLACE."
  (let ((place (skip-text-blanks text place)))
    (if (>= place (length text))
        place
        (case (char text place)
          (#\( (skip-list text (1+ place)))
          (#\" (skip-delimited text (1+ place) #\"))
          ((#\' #\`) (skip-form text (1+ place)))
          (#\, (skip-form text (if (find (char-at text (1+ place)) "@.") (+ place 2) (1+ place))))
          (#\# (skip-dispatch text place))
          (#\) place)
          (t (max (1+ place) (skip-token text place)))))))

(defun char-at (text place)
  "Return the character of TEXT at PLACE, or a space behind its end."
  (if (< place (length text)) (char text place) #\Space))

(defun skip-dispatch (text place)
  "Return the place behind the form that starts with # at PLACE."
  (case (char-at text (1+ place))
    (#\\ (skip-token text (+ place 3)))
    (#\' (skip-form text (+ place 2)))
    (#\( (skip-list text (+ place 2)))
    ((#\+ #\-) (skip-form text (skip-form text (+ place 2))))
    (t (let ((open (skip-token text (1+ place))))
         (if (find (char-at text open) "(\"") (skip-form text open) open)))))

(defun skip-list (text place)
  "Return the place behind the list whose first element is sought from PLACE."
  (loop (setf place (skip-text-blanks text place))
        (cond ((>= place (length text)) (return place))
              ((char= (char text place) #\)) (return (1+ place)))
              (t (setf place (skip-form text place))))))

(defun subform-place (text place path)
  "Return where the subform of the form at PLACE lies that PATH, a list of argument numbers, leads to."
  (loop with place = (skip-text-blanks text place)
        for number in path
        do (case (char-at text place)
             (#\( (let ((next (skip-text-blanks text (1+ place))))
                    (loop repeat number do (setf next (skip-text-blanks text (skip-form text next))))
                    (when (char= (char-at text next) #\)) (return place))
                    (setf place next)))
             ;; 'X is a list of two, whose second is X.
             (#\' (if (= number 1) (setf place (skip-text-blanks text (1+ place))) (return place)))
             (t (return place)))
        finally (return place)))

(defun subform-path (form target)
  "Return the element numbers that lead from FORM to the very cons TARGET; NIL where it is not inside.
Looks at a bounded number of conses, since literal data can be large or circular."
  (let ((left 50000))
    (labels ((walk (part path)
               (loop for rest = part then (cdr rest)
                     for number from 0
                     while (and (consp rest) (plusp (decf left)))
                     do (when (eq (car rest) target)
                          (return-from subform-path (reverse (cons number path))))
                        (when (and (consp (car rest)) (< (length path) 200))
                          (walk (car rest) (cons number path))))))
      (when (and (consp form) (consp target)) (walk form '())))))
