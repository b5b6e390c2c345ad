"""Answers about the user's own Lisp code: what comes first, what is folded, where it is, and odd names."""

import os
import re
import time

import pytest

from tests.images import children

family, live = children.lisp_family, children.live

pytestmark = pytest.mark.skipif(not children.SBCL, reason="sbcl is not installed")

FILE = """(in-package :cl-user)
;; Ein Umlaut vor den Formen: ä ö ü
(defvar *stock* 1 "What is there.")

(defun buy (n)
  "Buy some."
  (list n *stock*))

#+sbcl
(defun sell (n)
  (let ((all (buy n)))
    (mapcar #'buy
            (list all (buy 2)))))

(defclass shop () ((goods :initarg :goods :accessor goods)) (:default-initargs :goods nil))
(defmethod print-object ((shop shop) stream)
  (buy 3))
(defmacro with-shop (&body body)
  `(progn (buy 1) ,@body))
(defun visit ()
  (with-shop
    (setf *stock* 2)))
"""


def text(live, question, **details):
    reply = live.ask(question, **details)
    assert reply["ok"], reply
    assert len(reply["text"]) <= 8_000
    assert "GRAMERCY" not in reply["text"].upper()
    return reply["text"]


@pytest.fixture
def project(live, tmp_path):
    """Load a file of the directory that the image works in."""
    file = tmp_path / "shop.lisp"
    file.write_text(FILE, "utf-8")
    live.eval(f'(require :sb-posix) (sb-posix:chdir "{tmp_path}")')
    assert live.eval(f'(load "{file}")')["ok"]
    return file


@pytest.mark.contract("answers.lisp.places")
@pytest.mark.usefixtures("project")
def test_every_use_is_told_with_its_file_and_line(live):
    """Answers: every place has file:line; files of the project are named from its directory."""
    lines = text(live, "who_calls", function="buy").splitlines()
    assert lines[0] == "BUY is called by 3 definitions:"
    assert lines[1:4] == [
        "  (METHOD PRINT-OBJECT (SHOP T))  shop.lisp:17",
        "  SELL  shop.lisp:11,12,13",
        "  VISIT  shop.lisp:21",
    ]
    assert text(live, "who_calls", function="with-shop").splitlines()[1] == "  VISIT  shop.lisp:21"
    assert "  VISIT (sets)  shop.lisp:22" in text(live, "who_references", variable="*stock*")
    for name, line in {"buy": 5, "*stock*": 3, "sell": 10, "shop": 15, "with-shop": 18}.items():
        assert f"  shop.lisp:{line}" in text(live, "describe", symbol=name).splitlines()


def test_a_file_that_was_changed_since_is_marked(live, project):
    """Answers: a line of another version would mislead. The text of the definition counts, not the date."""
    later = time.time() + 100
    os.utime(project, (later, later))
    assert text(live, "describe", symbol="buy").endswith("shop.lisp:5")
    project.write_text(";; Above.\n" + FILE, "utf-8")
    assert text(live, "describe", symbol="buy").endswith("shop.lisp:6")
    project.write_text(FILE.replace("(defun buy (n)", "(defun buy (n &optional m)"), "utf-8")
    assert "shop.lisp:5 (the file has changed since)" in text(live, "describe", symbol="buy")


@pytest.mark.usefixtures("project")
def test_a_name_of_an_answer_can_be_given_back(live):
    """Answers: names can be followed up exactly as printed."""
    for line in text(live, "who_calls", function="buy").splitlines()[1:4]:
        name = line.strip().rsplit("  ", 1)[0]
        assert live.ask("describe", symbol=name)["ok"]
        assert live.ask("who_calls", function=name)["ok"]


@pytest.mark.contract("answers.lisp.order")
def test_the_users_names_come_first_and_internals_are_folded(live):
    """Answers: the user's code first, SBCL's internals folded into counts."""
    live.eval('(defun my-parse () (error "no")) (defun parse () 1)')
    callers = text(live, "who_calls", function="error").splitlines()
    assert callers[1] == "  MY-PARSE  session"
    assert re.fullmatch(
        r"  … and [\d,]+ in \d+ packages \(SB-IMPL \d+, .*: give package to see those of one", callers[2]
    )
    assert "SB-POSIX:FORK  " in text(live, "who_calls", function="error", package="sb-posix")
    found = text(live, "apropos", pattern="parse").splitlines()
    assert found[:2] == ["PARSE (function)", "MY-PARSE (function)"]
    assert "PARSE-INTEGER (function)" in found
    assert not any(line.startswith(("SB-IMPL:", "SB-KERNEL:", "SB-C:")) for line in found)
    assert re.match(r"… \d+ in \d+ packages \(", found[-1])
    assert "SB-KERNEL:%CHECK-BOUND (" in text(live, "apropos", pattern="%check-bound")


@pytest.mark.parametrize("pattern", ["a", "image", "evaluation", "gram"])
def test_our_own_names_are_never_told(live, pattern):
    """Answers: our own internals never appear."""
    text(live, "apropos", pattern=pattern)
    text(live, "apropos", pattern=pattern, package="cl-user")


@pytest.mark.parametrize(
    "name", ["standard-object", "structure-object", "serious-condition", "stream", "error", "t"]
)
def test_a_class_with_many_subclasses_is_folded_and_shows_none_of_ours(live, name):
    """Answers: class_hierarchy."""
    live.eval(f"(defclass mine ({name if name == 'standard-object' else 'standard-object'}) ())")
    told = text(live, "class_hierarchy", **{"class": name})
    assert len(told) < 4_000


def test_a_name_of_two_packages_is_told_with_the_others(live):
    """Bad input: names in two packages."""
    live.eval(
        "(defpackage :one (:use :cl) (:export #:shared)) (defpackage :two (:use :cl))"
        "(defun one:shared (a) a) (defun two::shared (b) b)"
    )
    error = live.ask("describe", symbol="shared")["error"]
    assert error["suggestions"] == ["ONE:SHARED", "TWO::SHARED"]
    live.eval("(defun shared (c) c)")
    assert text(live, "describe", symbol="shared").endswith("Others of that name: ONE:SHARED, TWO::SHARED")
    assert text(live, "arglist", function="shared", package="two").splitlines()[0] == "(TWO::SHARED B)"


@pytest.mark.parametrize("name", ["|foo bar|", "|a\nb|", "|123|", "|x:y|", "|\\||", "||", "|.|"])
def test_odd_names_are_found_and_told_as_they_can_be_given_back(live, name):
    """Bad input: odd symbols."""
    live.eval(f"(defun {name} (x) x) (defun caller () ({name} 1))")
    told = text(live, "arglist", function=name)
    assert told == f"({name} X)"
    assert "CALLER  session" in text(live, "who_calls", function=name)


def test_a_huge_name_does_not_flood_an_answer(live):
    """Bad input: huge names."""
    name = "x" * 100_000
    live.eval(f"(defun {name} () 1) (defclass {name} () ({name}))")
    for question, field in (("describe", "symbol"), ("arglist", "function"), ("class_slots", "class")):
        assert "[300 of 100,000 characters]" in text(live, question, **{field: name})
    text(live, "apropos", pattern="xxxx")
    error = live.ask("describe", symbol="y" * 100_000)["error"]
    assert len(error["message"]) < 500


def test_thousands_of_callers_are_counted_and_told_within_the_limit(live):
    """Bad input: many callers."""
    live.eval(
        "(defun target () 1) (eval `(progn ,@(loop for i below 1000 collect"
        ' `(setf (symbol-function (intern (format nil "CALLER-~d" ,i))) (lambda () (target))))))'
        '(dotimes (i 1000) (compile (intern (format nil "NAMED-~d" i)) \'(lambda () (target))))',
    )
    told = text(live, "who_calls", function="target")
    assert re.match(r"TARGET is called by [\d,]+ definitions:", told)
    assert re.search(r"… and [\d,]+ in 1 package \(CL-USER [\d,]+\)", told)


def test_unfinished_and_broken_classes_are_told_as_what_they_are(live):
    """Bad input: unfinalised, forward-referenced and circular classes; nothing is finalized by a look."""
    live.eval(
        "(defclass base () ((a :initarg :a :initform 1 :reader base-a)))"
        "(defclass derived (base) ((b :allocation :class) (a :type integer :initarg :other)))"
        "(defclass orphan (nowhere) ((c)))"
        "(defclass loop-a (loop-b) ())"
    )
    told = text(live, "class_slots", **{"class": "derived"})
    assert "Not finalized yet" in told
    assert "  A  type INTEGER  initarg :OTHER :A  initform 1  reader BASE-A" in told
    assert "  B  allocation :CLASS" in told
    assert "Precedence: DERIVED > BASE > STANDARD-OBJECT" in text(
        live, "class_hierarchy", **{"class": "derived"}
    )
    assert live.value("(sb-mop:class-finalized-p (find-class 'derived))") == "NIL"
    assert "Not complete: NOWHERE is not defined." in text(live, "class_slots", **{"class": "orphan"})
    assert "NOWHERE, named as a superclass and not defined" in text(
        live, "class_hierarchy", **{"class": "nowhere"}
    )
    text(live, "class_hierarchy", **{"class": "loop-a"})


@pytest.mark.usefixtures("project")
def test_a_structure_a_condition_and_a_class_are_told_as_they_are_made(live):
    """Answers: function_arglist of a class."""
    live.eval(
        "(defstruct (box (:conc-name bx-) (:constructor wrap (held &optional other)))"
        " (held 3 :type fixnum) other)"
        "(define-condition oops (error) ((why :initarg :why :reader why)))"
    )
    assert text(live, "arglist", function="shop") == "(MAKE-INSTANCE 'SHOP &KEY GOODS)"
    assert text(live, "arglist", function="oops") == "(MAKE-CONDITION 'OOPS &KEY WHY)"
    assert text(live, "arglist", function="box") == "(WRAP HELD &OPTIONAL OTHER)"
    assert "default initargs: :GOODS NIL" in text(live, "class_slots", **{"class": "shop"})
    slots = text(live, "class_slots", **{"class": "box"})
    assert "  HELD  type FIXNUM  initform 3  accessor BX-HELD" in slots


@pytest.mark.contract("answers.lisp.no-user-code")
def test_no_code_of_the_users_is_run_to_describe(live):
    """Answers: no print-object, no expander of a type, no documentation method, no finalization."""
    live.eval(
        "(defvar *ran* 0) (deftype trap () (incf *ran*) 'integer)"
        "(deftype trap-with (&optional (n (incf *ran*))) (incf *ran*) `(integer 0 ,n))"
        "(defclass loud () ((a :initform (incf *ran*))))"
        "(defmethod print-object ((o loud) s) (incf *ran*)) (defvar *loud* (make-instance 'loud))"
        "(define-symbol-macro sm (incf *ran*)) (defun f (&optional (x (incf *ran*))) x)"
        "(defmethod documentation ((o (eql 'f)) (k (eql 'function))) (incf *ran*) \"x\") (setf *ran* 0)"
    )
    for name in ("trap", "trap-with", "loud", "*loud*", "sm", "f"):
        text(live, "describe", symbol=name)
        live.ask("arglist", function=name)
        live.ask("class_slots", **{"class": name})
    text(live, "apropos", pattern="trap")
    text(live, "package_symbols", package="cl-user", include_internal=True)
    assert live.value("*ran*") == "0"


def test_a_value_that_is_too_long_is_cut_and_says_so(live):
    """Answers: a value that was cut says so; a huge number is not even printed."""
    live.eval("(defvar *long* (make-list 1000)) (defvar *huge* (expt 7 100000))")
    assert "[cut after 500 characters; evaluate it to read on]" in text(live, "describe", symbol="*long*")
    assert "#<INTEGER of 280,736 bits>" in text(live, "describe", symbol="*huge*")


def test_callers_follow_redefinitions(live):
    """Answers: what is kept between questions is never stale."""
    live.eval("(defun target () 1) (defun one () (target))")
    assert "  ONE  session" in text(live, "who_calls", function="target")
    live.eval("(defun two () (target)) (defun one () 2)")
    told = text(live, "who_calls", function="target")
    assert "  TWO  session" in told
    assert "ONE" not in told
    live.eval(
        "(sb-ext:without-package-locks (defun asdf:system-version-old () (asdf:system-source-file :x)))"
    )
    live.eval("(fmakunbound 'two)")
    assert "no known definition" in text(live, "who_calls", function="target")


# Each defines one caller of TARGET where the core had no function, had another, or had no such name.
CALLERS = {
    "CALLER": "(defun caller () (target))",
    "(SETF CALLER)": "(defun (setf caller) (new) (target) new)",
    "CALLING-MACRO": "(defmacro calling-macro () (target))",
    "SAME-CALLER": "(setf (symbol-function 'same-caller) #'caller)",
    ":KEYED": "(defun :keyed () (target))",
    "ELSEWHERE::CALLER": '(make-package "ELSEWHERE")'
    ' (eval `(defun ,(intern "CALLER" "ELSEWHERE") () (target)))',
    "(METHOD PRINT-OBJECT (SOME-CLASS T))": "(defclass some-class () ())"
    " (defmethod print-object ((it some-class) stream) (target) stream)",
    "(SETF ODDP)": "(sb-ext:with-unlocked-packages (:cl)"
    " (eval '(defun (setf oddp) (new n) (target) (list new n))))",
    "SB-IMPL::TARGET-CALLER": "(sb-ext:with-unlocked-packages (:sb-impl)"
    ' (eval `(defun ,(intern "TARGET-CALLER" "SB-IMPL") () (target))))',
    "SB-INT:PROPER-LIST-P": "(sb-ext:with-unlocked-packages (:sb-int)"
    " (eval '(defun sb-int:proper-list-p (x) (target) (consp x))))",
    "(SB-C:DEFTRANSFORM ODDP)": "(sb-c:deftransform oddp ((x) (string)) (target) 'x)",
}


def told_callers(live):
    """Return the definitions that are told to call TARGET."""
    lines = text(live, "who_calls", function="target").splitlines()[1:-1]
    return {line.strip().removesuffix("  session") for line in lines}


def test_callers_are_found_wherever_they_were_defined_after_the_core(live):
    """Also under names that the core has; an evaluation that defines nothing changes nothing."""
    live.eval("(defun target () 1)")
    assert told_callers(live) == set()
    for done, code in enumerate(CALLERS.values()):
        assert live.eval(code)["ok"], code
        assert told_callers(live) == set(list(CALLERS)[: done + 1])
    live.eval("(+ 1 2 3)")
    assert told_callers(live) == set(CALLERS)
    live.eval("(fmakunbound 'caller) (unintern 'same-caller)")
    assert told_callers(live) == set(CALLERS) - {"CALLER", "SAME-CALLER"}


def test_what_came_after_the_core_is_what_a_walk_of_all_names_finds(live):
    """The walk is SBCL's own, over every name there is."""
    live.eval("(defun target () 1)")
    for code in CALLERS.values():
        live.eval(code)
    found = live.eval(
        """(flet ((later (walk)
             (let ((found '()))
               (funcall walk (lambda (name code)
                               (unless (gramercy.image::core-code-p code)
                                 (pushnew (cons name code) found :test #'equal))))
               found)))
      (list (not (null gramercy.image::*snapshot*))
            (set-exclusive-or (later #'gramercy.image::map-functions)
                              (later #'gramercy.image::map-later-functions)
                              :test #'equal)
            (<= 11 (length (later #'gramercy.image::map-later-functions)))
            ;; SBCL copies records while it saves: were they taken for changed, questions would be slow.
            (<= (length (gramercy.image::changed-names)) 60)))"""
    )
    assert found["forms"][0]["values"] == ["(T NIL T T)"], found


# Of the core and of later packages, in both cases, with and without three characters, and in no name at all.
PATTERNS = [
    "area",
    "String",
    "with-",
    "*print-",
    "ab",
    "%",
    "",
    "make-instance",
    "größe",
    "ße",
    "a\\nb",
    "xyzzy-no",
]


def test_a_search_finds_what_a_walk_of_all_packages_finds(live):
    """The core has its names indexed; later names are found as well, in packages of any age."""
    live.eval(
        """(make-package "LATER" :use '()) (intern "MY-STRING-AREA" "LATER") (intern "größe" "LATER")
           (intern (format nil "a~%b") "LATER")
           (sb-ext:with-unlocked-packages (:sb-impl :sb-posix)
             (intern "A-LATER-STRING" "SB-IMPL")
             (unintern (find-symbol "MKFIFO" "SB-POSIX") "SB-POSIX"))"""
    )
    patterns = " ".join(f'"{pattern}"' for pattern in PATTERNS).replace("\\n", "\n")
    found = live.eval(
        f"""(flet ((found (pattern)
                     (sort (mapcar (lambda (finding)
                                     (let ((symbol (gramercy.image::finding-symbol finding)))
                                       (list (symbol-name symbol) (package-name (symbol-package symbol))
                                             (gramercy.image::finding-rank finding))))
                                   (gramercy.image::find-symbols pattern nil))
                           #'string< :key #'prin1-to-string)))
              (let* ((index gramercy.image::*symbol-index*)
                     (patterns (list {patterns} "mkfifo" "a-later-string"))
                     (quick (mapcar #'found patterns)))
                (setf gramercy.image::*symbol-index* nil)
                (unwind-protect (list (hash-table-p index) (equal quick (mapcar #'found patterns))
                                      (mapcar #'length (last quick 3)) (plusp (length (first quick))))
                  (setf gramercy.image::*symbol-index* index))))"""
    )
    assert found["forms"][0]["values"] == ["(T T (0 0 1) T)"], found


def test_a_search_follows_names_of_the_core_that_come_and_go(live):
    """A name is told in a package of SBCL's where it was made later, and not where it was taken away."""
    assert "SB-POSIX:MKFIFO (function)" in text(live, "apropos", pattern="mkfifo")
    live.eval("(sb-ext:with-unlocked-packages (:sb-posix) (unintern 'sb-posix:mkfifo :sb-posix))")
    assert "MKFIFO (" not in text(live, "apropos", pattern="mkfifo")
    live.eval(
        "(sb-ext:with-unlocked-packages (:sb-posix)"
        ' (setf (symbol-value (intern "A-MKFIFO" :sb-posix)) 1)'
        ' (export (find-symbol "A-MKFIFO" :sb-posix) :sb-posix))'
    )
    assert "SB-POSIX:A-MKFIFO (variable)" in text(live, "apropos", pattern="mkfifo")


def test_an_object_with_long_parts_is_told_within_the_limit(live):
    """Answers: what was left out of an object is counted."""
    number = live.eval("(loop repeat 150 collect (make-string 500))")["objects"][0]
    told = text(live, "inspect", object=number).splitlines()
    assert told[2] == "Size: 150"
    shown = [line for line in told if re.match(r"  \d+: ", line)]
    assert 10 < len(shown) < 150
    assert told[-1] == f"  ... {150 - len(shown)} more of 150 parts are not shown"


@pytest.mark.contract("answers.lisp.places")
def test_frames_name_what_can_be_looked_up_and_where_it_is(live, tmp_path):
    """Answers: names as they can be given back, also of methods; each with its place."""
    file = tmp_path / "yard.lisp"
    file.write_text(
        "(defpackage :yard (:use :cl))\n(in-package :yard)\n(defclass bed () ())\n"
        '(defmethod dig ((bed bed)\n                (depth (eql 3)))\n  (error "Rock."))\n'
        "(defun work () (list (dig (make-instance 'bed) 3)))\n"
    )
    live.eval(f'(require :sb-posix) (sb-posix:chdir "{tmp_path}")')
    assert live.eval(f'(load (compile-file "{file}"))')["ok"]
    frames = live.eval("(yard::work)")["error"]["backtrace"]
    assert frames[:2] == [
        "0: ((:METHOD YARD::DIG (YARD::BED (EQL 3))) #<unavailable> #<unavailable>) in yard.lisp:6",
        "1: (YARD::WORK) in yard.lisp:7",
    ]
    assert live.eval("(in-package :yard) (work)")["error"]["backtrace"][1] == "1: (WORK) in yard.lisp:7"


@pytest.mark.contract("answers.lisp.places")
def test_a_name_that_was_meant_is_told_with_its_package(live):
    """Answers: names can be followed up as they are printed."""
    live.eval("(defpackage :yard (:use :cl)) (defun yard::work ())")
    assert live.eval("(yard::wrok)")["error"]["suggestions"][0] == "YARD::WORK"
    assert live.eval("(in-package :yard) (wrok)")["error"]["suggestions"][0] == "WORK"


def test_the_compiler_is_quoted_without_its_manual(live):
    """Answers: what a model cannot look up costs characters and says nothing."""
    reply = live.eval('(defun add (x) (+ x "a")) (add 1)')
    assert "See also" not in str(reply["warnings"])
    assert reply["error"]["backtrace"][0] == "0: (ADD 1)"


def test_a_class_names_the_slots_that_it_inherits(live):
    """Answers: describing a class tells all its slots."""
    live.eval("(defclass plant () (name)) (defclass rose (plant) (thorns))")
    assert "inherited slots: NAME" in text(live, "describe", symbol="rose")
