# ruff: noqa: E501 - a form is easier to read on one line
"""What both image programs must do, said in the language of each: single forms, and tables of cases."""

from types import SimpleNamespace
from typing import Any

Table = dict[str, list[Any]]
LANGUAGES = ("sbcl", "python")

# By name: the form of Lisp, the form of Python.
FORMS = {
    "six": ("(+ 1 2 3)", "1 + 2 + 3"),
    "define": ("(defvar *k* 41)", "k = 41"),
    "change": ("(setf *k* 0)", "k = 0"),
    "look": ("*k*", "k"),
    "seed": ("(setf *random-state* (sb-ext:seed-random-state 3))", "import random; random.seed(3)"),
    "draw": ("(random 1000000)", "random.random()"),
    "loop": ("(loop)", "while True: pass"),
    "stubborn_loop": (
        "(sb-sys:without-interrupts (loop))",
        "import time\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except BaseException: pass",
    ),
    "start_thread": (
        '(defvar *go* nil) (defvar *t* (sb-thread:make-thread (lambda () (loop until *go* do (sleep 0.01))) :name "worker"))',
        "import threading\ngo = threading.Event()\nt = threading.Thread(target=go.wait, args=(20,), name='worker')\nt.start()",
    ),
    "end_thread": ("(setf *go* t) (sb-thread:join-thread *t*)", "go.set(); t.join(20)"),
    "run_program": (
        '(defvar *p* (sb-ext:run-program "/bin/sh" (list "-c" "exit 7") :wait nil))',
        "import subprocess\np = subprocess.Popen(['sh', '-c', 'exit 7'])",
    ),
    "program_status": ("(progn (sb-ext:process-wait *p*) (sb-ext:process-exit-code *p*))", "p.wait(20)"),
    "print_both": (
        '(format t "out~%") (format *error-output* "err~%")',
        "import sys\nprint('out')\nprint('err', file=sys.stderr)",
    ),
    "print_outside": (
        '(sb-ext:run-program "/bin/echo" (list "from-echo") :output t) (write-string "raw-write" sb-sys:*stdout*) (finish-output sb-sys:*stdout*)',
        "import os, subprocess, sys\nsubprocess.run(['echo', 'from-echo'], stdout=sys.stdout)\nos.write(1, b'raw-write')",
    ),
    "read_input": ("(read-line *standard-input*)", "input()"),
    "print_500_and_300": (
        '(dotimes (i 50) (write-string "0123456789")) (dotimes (i 30) (write-string "0123456789" *error-output*))',
        "import sys\nfor i in range(50): print('0123456789', end='')\nfor i in range(30): sys.stderr.write('0123456789')",
    ),
    "print_50_megabytes": (
        "(let ((line (make-string 99 :initial-element #\\x))) (dotimes (i 500000) (write-line line)))",
        "for i in range(500_000): print('x' * 99)",
    ),
    "print_50_megabytes_at_once": (
        "(progn (write-string (make-string 50000000 :initial-element #\\x)) nil)",
        "print('x' * 50_000_000, end='')",
    ),
    "print_many_small_pieces": (
        '(dotimes (i 2000000) (write-string "ab"))',
        "import sys\nfor i in range(2_000_000): sys.stdout.write('ab')",
    ),
    # Each of these characters takes six octets in JSON.
    "print_too_much_for_a_frame": (
        "(let ((s (make-string 16000000 :initial-element (code-char 1)))) (write-string s) (write-string s *error-output*) 1)",
        "for i in range(17): print(chr(1) * 1_000_000)",
    ),
    "print_odd_characters": (
        "(dolist (k (list 0 1 8 9 10 13 27 31 127 133 #xd800 #xdfff #x2028 #x10ffff)) (write-char (code-char k)))",
        "for k in (0, 1, 8, 9, 10, 13, 27, 31, 127, 133, 0xD800, 0xDFFF, 0x2028, 0x10FFFF): print(chr(k), end='')",
    ),
    "print_text": ('(write-string "{}")', "print('{}', end='')"),
    "length": ('(length "{}")', "len('{}')"),
    "repeat_text": ('(identity "{}")', "'{}'"),
    "values_of_four": ('(+ 1 2) (values) "three" (list 4)', "1 + 2\nx = 0\n'three'\n[4]"),
    "fail_third": (
        "(princ :one) 42 (car 3) (princ :never)",
        "print('ONE', end='')\n42\n1 / 0\nprint('never')",
    ),
    "nested_functions": (
        '(defun inner (n) (error "bad ~a" n)) (defun outer (n) (list (inner (1- n))))',
        "def inner(n):\n    raise ValueError(f'bad {n}')\n\ndef outer(n):\n    return [inner(n - 1)]",
    ),
    "call_outer": ("(outer 1)", "outer(1)"),
    "recurse": (
        f"(defun deep ({'n' * 400}) (list (deep {'n' * 400}))) (deep 0)",
        f"def deep({'n' * 400}): return [deep({'n' * 400})]\ndeep(0)",
    ),
    "make_package": (
        "(defpackage :other (:use :cl))",
        "import sys, types\nsys.modules['other'] = types.ModuleType('other')",
    ),
    "set_x": ("(defparameter x {})", "x = {}"),
    "warn_on_line_3": ('\n\n(warn "careful ~a" 1)', "import warnings\n\nwarnings.warn('careful 1')"),
    "compile_with_warning_on_line_3": (
        "(defun f (x)\n  (declare (ignore x))\n  (car 1 2 3))\n(defun g () 1)",
        "def f(x):\n    'A comment.'\n    return x + missing\n\ndef g(): return 1",
    ),
    "circle": ("(let ((x (list 1 2))) (setf (cddr x) x) x)", "l = [1]; l.append(l); l"),
    "huge_form": ("(length '({}))", "len([{}])"),
    "huge_part": ("a ", "0,"),
    "define_f": ("(defun f () {})", "def f(): return {}"),
    "call_f": ("(f)", "f()"),
    "search": ('(push #p"{}/" asdf:*central-registry*)', "import sys; sys.path.insert(0, '{}')"),
    "look_into_system": ("cl-user::*price*", "__import__('shop').price"),
    "define_function": ("(defun later () 1)", "def later(): return 1"),
    "define_many": (
        "(defun zebra (a &optional b) (list a b)) (defun ape () 1) (defvar *v* 42) (defun gone () 1)",
        "def zebra(a, b=2): pass\ndef ape(): pass\nv = 42\ndef gone(): pass",
    ),
    "remove_one": ("(fmakunbound 'gone)", "del gone"),
    "many_objects": ("(values-list (loop repeat {} collect (list 1)))", "[[i] for i in range({})]"),
    "million": ("(loop for i below 1000000 collect i)", "list(range(10**6))"),
    "nested_object": (
        '(defstruct point x y) (list (make-point :x 1 :y (list 2 3)) "text" 5)',
        "class Point:\n    def __init__(self): self.x = 1; self.y = [2, 3]\n[Point(), 'text', 5]",
    ),
    "open_file": (
        '(defvar *f* (open "{}" :direction :output :if-does-not-exist :create))',
        "already = open('{}', 'w', buffering=1)",
    ),
    "write_line": ('(write-line "{}" *f*) (finish-output *f*)', "print('{}', file=already)"),
    "read_file": ('(with-open-file (s "{}") (read-line s))', "open('{}').read()"),
    "write_handled": (
        '(ignore-errors (open "{}" :direction :output))',
        "try: open('{}', 'w')\nexcept OSError: pass",
    ),
    "kill_other": ("(sb-posix:kill {} sb-posix:sigkill)", "import os; os.kill({}, 9)"),
    "write_behind_the_witness": (
        """(list (sb-alien:alien-funcall (sb-alien:extern-alien "creat" (function sb-alien:int sb-alien:c-string sb-alien:int)) "{0}/new" 384)
                 (sb-alien:alien-funcall (sb-alien:extern-alien "unlink" (function sb-alien:int sb-alien:c-string)) "{0}/file")
                 (sb-alien:alien-funcall (sb-alien:extern-alien "kill" (function sb-alien:int sb-alien:int sb-alien:int)) 1 0))""",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n[libc.creat(b'{0}/new', 0o600), libc.unlink(b'{0}/file'), libc.kill(1, 0)]",
    ),
}

# The files of a system called shop that sets a price.
SYSTEM = {
    "sbcl": {
        "shop.asd": '(defsystem "shop" :components ((:file "prices")))',
        "prices.lisp": "(defparameter cl-user::*price* {})",
    },
    "python": {"shop.py": "price = {}"},
}


def forms(language):
    """Return the forms of one language, by name."""
    place = LANGUAGES.index(language)
    return SimpleNamespace(language=language, **{name: pair[place] for name, pair in FORMS.items()})


def both(table):
    """Return the cases of both languages, each with its language before it."""
    return [
        (language, *(row if isinstance(row, tuple) else (row,)))
        for language in LANGUAGES
        for row in table[language]
    ]


# What a frame holds, and the type of the error that answers it.
BAD_REQUESTS: Table = {
    "sbcl": [
        (b"", "MALFORMED-REQUEST"),
        (b" ", "MALFORMED-REQUEST"),
        (b"x", "MALFORMED-REQUEST"),
        (b"(", "MALFORMED-REQUEST"),
        (b"()", "MALFORMED-REQUEST"),
        (b"(1 2)", "MALFORMED-REQUEST"),
        (b"(:op)", "MALFORMED-REQUEST"),
        (b"(:op 5)", "MALFORMED-REQUEST"),
        (b"(:op :eval", "MALFORMED-REQUEST"),
        (b'(:op :eval :code "', "MALFORMED-REQUEST"),
        (b"(:op :eval)", "MALFORMED-REQUEST"),
        (b"(:op :eval :code 5)", "MALFORMED-REQUEST"),
        (b'(:op :eval :code "1" :limit "x")', "MALFORMED-REQUEST"),
        (b"(:op :eval :code #.(exit))", "MALFORMED-REQUEST"),
        (b"(:op . :eval)", "MALFORMED-REQUEST"),
        (b"(:op nil)", "MALFORMED-REQUEST"),
        (b"'(:op :ping)", "MALFORMED-REQUEST"),
        (b"(:op (:eval))", "MALFORMED-REQUEST"),
        (b"(" * 1000, "MALFORMED-REQUEST"),
        (b"(:op :no-such-op :id 5)", "UNKNOWN-OP"),
        (b'(:op :eval :package 5 :code "1")', "MALFORMED-REQUEST"),
        (b"(:op :inspect)", "OBJECT-NOT-FOUND"),
        (b"(:op :fork)", "MALFORMED-REQUEST"),
        (b'(:op :fork :role "king")', "MALFORMED-REQUEST"),
        (b"(:op :describe)", "MALFORMED-REQUEST"),
        (b"(:op :confine)", "MALFORMED-REQUEST"),
        (b"(:op |eval|)", "MALFORMED-REQUEST"),
        (b"\x00\x01", "MALFORMED-REQUEST"),
        (b"(:op :inspect :object 1 :path 5)", "OBJECT-NOT-FOUND"),
        (b"(:op :inspect :object -1)", "OBJECT-NOT-FOUND"),
        (b"(:op :save)", "MALFORMED-REQUEST"),
        (b"(:op :load-system)", "MALFORMED-REQUEST"),
    ],
    "python": [
        (b"", "MALFORMED-REQUEST"),
        (b"{", "MALFORMED-REQUEST"),
        (b"nonsense", "MALFORMED-REQUEST"),
        (b"[1]", "MALFORMED-REQUEST"),
        (b'{"op":"ping"} {}', "MALFORMED-REQUEST"),
        (b"\xff\xfe", "MALFORMED-REQUEST"),
        (b"[" * 200_000, "MALFORMED-REQUEST"),
        (b"{}", "INVALID-REQUEST"),
        (b'{"op":7}', "INVALID-REQUEST"),
        (b'{"op":"eval"}', "INVALID-REQUEST"),
        (b'{"op":"eval","code":7}', "INVALID-REQUEST"),
        (b'{"op":"describe"}', "INVALID-REQUEST"),
        (b'{"op":"fork","role":"king"}', "INVALID-REQUEST"),
        (b'{"op":"package_symbols","package":"json","include_internal":"yes"}', "INVALID-REQUEST"),
        (b'{"op":"apropos","pattern":"a","limit":-1}', "INVALID-REQUEST"),
        (b'{"op":"confine"}', "INVALID-REQUEST"),
        (b'{"op":"evil"}', "UNKNOWN-OP"),
        (b'{"op":"save","path":"x"}', "NOT-SUPPORTED"),
    ],
}

# Code that cannot be read, and the line that is told.
UNREADABLE: Table = {
    "sbcl": [
        ("(list 1", 1),
        ("1\n\n(list\n 2", 3),
        ('"abc', 1),
        ("1\n(car\n |abc", 2),
        ("1\n)", 2),
        ("1\n2\n #<x>", 3),
    ],
    "python": [
        ("1 +", 1),
        ("x = 1\n\nif x:\n  )", 4),
        ("def f(:\n pass", 1),
        ("'abc", 1),
        ("x = (1,\n2", 1),
        (" 1", 1),
    ],
}

# Values, and how they are printed.
PRINTED: Table = {
    "sbcl": [
        ("(list 1 (list 2 #(3)))", "(1 (2 #(3)))"),
        ('"é漢😀"', '"é漢😀"'),
        (
            "(expt 10 100)",
            "10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        ),
        (":key", ":KEY"),
        ("nil", "NIL"),
        ("#\\a", "#\\a"),
        ("1.5d0", "1.5d0"),
        ("2/4", "1/2"),
        ("'|Odd Name|", "|Odd Name|"),
    ],
    "python": [
        ("'\\ud800'", "'\\ud800'"),
        ("'é漢😀'", "'é漢😀'"),
        ("float('nan'), float('inf')", "(nan, inf)"),
        ("'\\x00\\x1f\\x7f'", "'\\x00\\x1f\\x7f'"),
        ("[1, [2, (3,)], {'a': {4}}, frozenset(), set()]", "[1, [2, (3,)], {'a': {4}}, frozenset(), set()]"),
        ("frozenset({1})", "frozenset({1})"),
        ("l = [1]; l.append(l); l", "[1, [...]]"),
        ("d = {}; d['d'] = d; d", "{'d': {...}}"),
        ("()", "()"),
        ("10**100", str(10**100)),
        ("...", "Ellipsis"),
        ("range(3)", "range(0, 3)"),
        ("b'\\xff'", "b'\\xff'"),
    ],
}

# Values that take more than a reply has room for.
HUGE: Table = {
    "sbcl": [
        "(make-list 1000000 :initial-element 7)",
        "(make-string 10000000)",
        "(make-array 1000000)",
        "(expt 7 100000)",
        "(let ((h (make-hash-table))) (list h (make-list 1000000)))",
        '(defclass r () ()) (defmethod print-object ((x r) s) (dotimes (i 10000000) (write-string "rrrrrrrrrr" s))) (make-instance \'r)',
    ],
    "python": [
        "'a' * 10**8",
        "b'a' * 10**8",
        "list(range(10**6))",
        "dict.fromkeys(range(10**6))",
        "set(range(10**6))",
        "10**100_000",
        "x = []\nfor _ in range(100_000): x = [x]\nx",
        "['a' * 10**6] * 1000",
        "class R:\n    def __repr__(self): return 'r' * 10**8\nR()",
    ],
}

# Code, and the changes that are told of it: in Lisp among others, in Python these and no others.
DEFINED: Table = {
    "sbcl": [
        ("(defun f (x) x)", [("function", "CL-USER::F", "defined")]),
        ("(progn (progn (defun f (x) x)))", [("function", "CL-USER::F", "defined")]),
        ("(let ((n 0)) (defun f () (incf n)))", [("function", "CL-USER::F", "defined")]),
        ("(macrolet ((d (n) `(defun ,n () 1))) (d f))", [("function", "CL-USER::F", "defined")]),
        ("(defmacro def (n) `(defun ,n () 1)) (def f)", [("function", "CL-USER::F", "defined")]),
        ("(eval '(defun f () 1))", [("function", "CL-USER::F", "defined")]),
        ("(funcall (compile nil '(lambda () (defun f () 1))))", [("function", "CL-USER::F", "defined")]),
        ("(compile 'f '(lambda () 1))", [("function", "CL-USER::F", "defined")]),
        ("(setf (symbol-function 'f) #'car)", [("function", "CL-USER::F", "defined")]),
        ("(setf (fdefinition 'f) #'car)", [("function", "CL-USER::F", "defined")]),
        ("(setf (fdefinition '(setf f)) #'cons)", [("function", "(SETF CL-USER::F)", "defined")]),
        ("(defun (setf f) (v x) v x)", [("function", "(SETF CL-USER::F)", "defined")]),
        ("(defmacro m (x) x)", [("macro", "CL-USER::M", "defined")]),
        ("(setf (macro-function 'm) (lambda (a b) a b nil))", [("macro", "CL-USER::M", "defined")]),
        ("(define-modify-macro m (x) list)", [("macro", "CL-USER::M", "defined")]),
        ("(define-compiler-macro f (x) x)", [("compiler-macro", "CL-USER::F", "defined")]),
        ("(define-symbol-macro sm 3)", [("symbol-macro", "CL-USER::SM", "defined")]),
        ("(defvar *v* 1)", [("variable", "CL-USER::*V*", "defined")]),
        ("(defvar *v*)", [("variable", "CL-USER::*V*", "defined")]),
        ("(defparameter *v* 1)", [("variable", "CL-USER::*V*", "defined")]),
        ("(sb-ext:defglobal *v* 1)", [("variable", "CL-USER::*V*", "defined")]),
        ("(setq v 1)", [("variable", "CL-USER::V", "defined")]),
        ("(defconstant +c+ 1)", [("constant", "CL-USER::+C+", "defined")]),
        ("(defstruct s a)", [("structure", "CL-USER::S", "defined")]),
        ("(defstruct s a)", [("function", "CL-USER::MAKE-S", "defined")]),
        ("(defclass c () ())", [("class", "CL-USER::C", "defined")]),
        ("(sb-mop:ensure-class 'c)", [("class", "CL-USER::C", "defined")]),
        ("(defclass c () ((a :accessor c-a)))", [("generic-function", "CL-USER::C-A", "defined")]),
        ("(define-condition c (error) ())", [("condition", "CL-USER::C", "defined")]),
        ("(deftype ty () 'integer)", [("type", "CL-USER::TY", "defined")]),
        ("(deftype ty (x) `(integer 0 ,x))", [("type", "CL-USER::TY", "defined")]),
        ("(defgeneric g (x))", [("generic-function", "CL-USER::G", "defined")]),
        ("(defmethod g ((x integer)) x)", [("generic-function", "CL-USER::G", "defined")]),
        ("(defmethod g ((x integer)) x)", [("method", "(CL-USER::G (INTEGER))", "defined")]),
        ("(defmethod g :around ((x (eql 3))) x)", [("method", "(CL-USER::G :AROUND ((EQL 3)))", "defined")]),
        (
            "(defclass c () ()) (defmethod print-object ((c c) s) s)",
            [("method", "(PRINT-OBJECT (CL-USER::C T))", "defined")],
        ),
        ("(defpackage :p)", [("package", "P", "defined")]),
        ("(make-package :p)", [("package", "P", "defined")]),
        ("(defsetf acc upd)", [("setf-expander", "CL-USER::ACC", "defined")]),
        ("(define-method-combination mc)", [("method-combination", "CL-USER::MC", "defined")]),
    ],
    "python": [
        ("def f(): pass", [("function", "f", "defined")]),
        ("class C:\n    def m(self): pass", [("class", "C", "defined")]),
        ("x = 1", [("variable", "x", "defined")]),
        ("import json", [("import", "json", "defined")]),
        ("if True:\n    def f(): pass", [("function", "f", "defined")]),
        ("exec('def f(): pass')", [("function", "f", "defined")]),
        ("globals()['g'] = lambda: 0", [("function", "g", "defined")]),
        ("def mk():\n    global made\n    made = 1\nmk()\ndel mk", [("variable", "made", "defined")]),
        ("f = 1\ndel f", []),
        ("for i in range(3): pass", [("variable", "i", "defined")]),
        ("setattr(__import__('sys').modules['__main__'], 'late', 5)", [("variable", "late", "defined")]),
        ("def f(): pass\n1 / 0", [("function", "f", "defined")]),
        (
            "from os.path import join, split",
            [("function", "join", "defined"), ("function", "split", "defined")],
        ),
        (
            "a, (b, *c) = 1, (2, 3)",
            [("variable", "a", "defined"), ("variable", "b", "defined"), ("variable", "c", "defined")],
        ),
    ],
}

# What was defined before, code, and the changes that are told of it.
CHANGED: Table = {
    "sbcl": [
        ("(defun f () 1)", "(fmakunbound 'f)", [("function", "CL-USER::F", "removed")]),
        ("(defvar *v* 1)", "(makunbound '*v*)", [("variable", "CL-USER::*V*", "removed")]),
        ("(defun f () 1)", "(unintern 'f)", [("function", "CL-USER::F", "removed")]),
        ("(defmacro m () 1)", "(fmakunbound 'm)", [("macro", "CL-USER::M", "removed")]),
        ("(defclass c () ())", "(setf (find-class 'c) nil)", [("class", "CL-USER::C", "removed")]),
        ("(defpackage :p)", "(delete-package :p)", [("package", "P", "removed")]),
        ("(defpackage :p) (defun p::f () 1)", "(delete-package :p)", [("function", "P::F", "removed")]),
        (
            "(defmethod g ((x integer)) x)",
            "(remove-method #'g (find-method #'g nil (list (find-class 'integer))))",
            [("method", "(CL-USER::G (INTEGER))", "removed")],
        ),
        ("(defun f () 1)", "(defun f () 2)", [("function", "CL-USER::F", "redefined")]),
        ("(defun f () 1)", "(defmacro f () 2)", [("macro", "CL-USER::F", "redefined")]),
        ("(defparameter *v* 1)", "(defparameter *v* 2)", [("variable", "CL-USER::*V*", "redefined")]),
        ("(defclass c () ())", "(defclass c () (a))", [("class", "CL-USER::C", "redefined")]),
        ("(defmethod g ((x t)) 1)", "(defmethod g ((x t)) 2)", [("method", "(CL-USER::G (T))", "redefined")]),
        ("(defvar *v* 1)", "(defvar *v* 2)", []),
        (
            "(defvar *v* 1)",
            "(setf *v* 3) (+ 1 2) (let ((f (lambda () 1))) (funcall f)) (make-hash-table)",
            [],
        ),
        ("1", "(defun f () 1) (fmakunbound 'f)", []),
    ],
    "python": [
        (
            "def f(): pass\nclass C:\n    def m(self): pass\nx = 1",
            "def f(): return 2",
            [("function", "f", "redefined")],
        ),
        (
            "def f(): pass\nclass C:\n    def m(self): pass\nx = 1",
            "C.m = lambda self: 1\nC.k = 3",
            [("method", "C.m", "redefined"), ("attribute", "C.k", "defined")],
        ),
        (
            "def f(): pass\nclass C:\n    def m(self): pass\nx = 1\nC.k = 3",
            "del C.k",
            [("attribute", "C.k", "removed")],
        ),
        (
            "def f(): pass\nclass C:\n    def m(self): pass\nx = 1",
            "del f, x",
            [("function", "f", "removed"), ("variable", "x", "removed")],
        ),
        ("x = object()", "del x; x = object()", [("variable", "x", "redefined")]),
        ("def f(): pass\nclass C:\n    def m(self): pass\nx = 1", "1 + 1\nC().m()", []),
        ("f = 1\ndel f", "1", []),
    ],
}

# Code that is interrupted, once or twice.
INTERRUPTED: Table = {
    "sbcl": [
        "(loop)",
        "(sleep 100)",
        "(defun spin () (loop)) (spin)",
        "(handler-case (loop) (error () :swallowed))",
        "(ignore-errors (loop))",
        "(loop (handler-case (loop) (serious-condition () nil)))",
        "(unwind-protect (loop) (loop))",
        "(sb-thread:with-mutex ((sb-thread:make-mutex)) (sb-thread:wait-on-semaphore (sb-thread:make-semaphore)))",
        "(let ((m (sb-thread:make-mutex))) (sb-thread:join-thread (sb-thread:make-thread (lambda () (sb-thread:grab-mutex m) (sleep 100)))))",
        '(sb-ext:run-program "/bin/sleep" (list "100"))',
        "(read-char (sb-sys:make-fd-stream (sb-posix:pipe)))",
        "(defclass slow () ()) (defmethod print-object ((x slow) s) (loop)) (make-instance 'slow)",
        "(define-condition slow (error) () (:report (lambda (c s) (loop)))) (error 'slow)",
        "(macrolet ((m () (loop))) (m))",
        "#.(loop)",
        "#1=(a . #1#)",
        "(defclass b () ()) (defmethod print-object ((x b) s) (print-object x s)) (make-instance 'b)",
        "(sb-ext:gc :full t) (loop (make-list 1000))",
        "(sb-sys:enable-interrupt sb-unix:sigint :ignore) (sleep 0) (print 1)",
    ],
    "python": [
        "while True: pass",
        "import time; time.sleep(60)",
        "import threading; threading.Lock().acquire() and None; l = threading.Lock(); l.acquire(); l.acquire()",
        "import asyncio; await asyncio.sleep(60)",
        "class R:\n    def __repr__(self):\n        while True: pass\nR()",
        "import signal; signal.signal(signal.SIGUSR1, lambda *a: None); signal.pause()",
        "import select; select.select([], [], [], 60)",
        "sum(i for i in iter(int, 1))",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "input\nfor x in iter(lambda: 1, 2): str(x)",
    ],
}

# Codes that take a moment, to be interrupted at any point.
SHORT: Table = {
    "sbcl": [
        (
            [
                "(+ 1 2)",
                "(loop repeat 50000 do (list 1))",
                "(gc)",
                "(defun f (x) (+ x 1))",
                "(defclass c () (a))",
                '(error "x")',
            ],
        )
    ],
    "python": [
        (["y = 1 + 2", "print('a' * 1000)\n1 / 0", "[x for x in range(2000)]", "def f(): f()\nf()"],),
    ],
}

# Code that ends the process.
DEADLY: Table = {
    "sbcl": [
        "(exit)",
        "(sb-ext:exit :code 3 :abort t)",
        "(sb-ext:exit :code 3)",
        "(sb-posix:kill (sb-posix:getpid) sb-posix:sigkill)",
        "(let ((x nil)) (loop (push (make-list 1000) x)))",
        "(loop for k from 3 below 1000 do (ignore-errors (sb-posix:close k)))",
        '(sb-alien:alien-funcall (sb-alien:extern-alien "_exit" (function sb-alien:void sb-alien:int)) 9)',
        '(sb-alien:alien-funcall (sb-alien:extern-alien "abort" (function sb-alien:void)))',
    ],
    "python": [
        "import os; os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; os.abort()",
        "import ctypes; ctypes.string_at(0)",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.closerange(0, 70000)",
        "import sys\nsys.setrecursionlimit(10**8)\nl = []\nfor _ in range(10**6): l = [l]\nrepr(l)",
    ],
}

# Code after which the process still answers.
HOSTILE: Table = {
    "sbcl": [
        '(error "x")',
        "(error 'no-such-condition)",
        "(/ 1 0)",
        "(car 1)",
        "(aref #(1 2) 5)",
        "(funcall 'undefined-thing)",
        "undefined-variable",
        "(",
        ")",
        "(list 1",
        '"never closed',
        "#| never closed",
        "|never closed",
        "#<unreadable>",
        '#.(error "while reading")',
        "#.(car 1)",
        "(no-such-package:symbol)",
        "(cl:no-such-external)",
        "(cl::no-such-internal)",
        "#\\no-such-character",
        "(quote #1=(#1# . #1#))",
        "(let ((x (make-array 1))) (setf (aref x 0) x) x)",
        "(break)",
        '(break "stop ~a" 1)',
        '(invoke-debugger (make-condition \'simple-error :format-control "x"))',
        "(abort)",
        "(invoke-restart 'abort)",
        "(throw 'no-such-tag 1)",
        "(throw 'sb-impl::toplevel-catcher 1)",
        "(return-from nowhere)",
        "(go nowhere)",
        "(defun inf (x) (1+ (inf x))) (inf 1)",
        "(labels ((deep (n) (list (deep (1+ n))))) (deep 0))",
        "(let ((x nil)) (dotimes (i 1000000) (setf x (list x))) x)",
        "(make-array (expt 10 10))",
        "(make-string (expt 10 9))",
        "(expt 7 100000)",
        "(sb-sys:int-sap 0)",
        "(sb-sys:sap-ref-8 (sb-sys:int-sap 0) 0)",
        '(sb-kernel:%primitive print "x")',
        '(defclass b () ()) (defmethod print-object ((x b) s) (error "no")) (make-instance \'b)',
        "(defclass b () ()) (defmethod print-object ((x b) s) (list (print-object x s))) (make-instance 'b)",
        '(sb-ext:save-lisp-and-die "/nowhere/x.core")',
        '(defclass b () ()) (defmethod print-object ((x b) s) (loop repeat 1000000 do (write-string "xxxxxxxxxx" s))) (make-instance \'b)',
        "(defclass b () ()) (defmethod print-object ((x b) s) (throw 'nothing 1)) (make-instance 'b)",
        '(define-condition b (error) () (:report (lambda (c s) (error "no")))) (error \'b)',
        "(define-condition b (error) () (:report (lambda (c s) (car 1)))) (error 'b)",
        "(close *standard-output*) (print 1)",
        "(close *standard-input*) (read-line)",
        "(setf *standard-output* 5) (print 1)",
        '(setf *standard-output* nil *error-output* nil *terminal-io* nil) (error "x")',
        "(setf *package* 5)",
        "(setf *readtable* nil)",
        '(setf *print-pprint-dispatch* (copy-pprint-dispatch)) (set-pprint-dispatch \'integer (lambda (s x) (error "no ~a ~a" s x))) (list 1)',
        "(setf *print-readably* t) (list (make-hash-table) #'car)",
        "(setf *print-length* 0 *print-level* 0) (list 1 2)",
        '(setf *invoke-debugger-hook* nil *debugger-hook* nil) (error "x")',
        '(setf sb-ext:*invoke-debugger-hook* nil *debugger-hook* nil) (error "x")',
        '(setf sb-ext:*invoke-debugger-hook* (lambda (c h) (error "again"))) (error "x")',
        '(setf *debugger-hook* (lambda (c h) (error "again"))) (error "x")',
        '(sb-ext:disable-debugger) (error "x")',
        "(delete-package :gramercy.image)",
        "(defun gramercy.image:main () 1)",
        "(fmakunbound 'gramercy.image::serve)",
        "(setf (symbol-function 'gramercy.image::reply) #'car)",
        "(unlock-package :nothing)",
        "(delete-package :cl)",
        "(defun car (x) x)",
        "(setf (symbol-value 'nil) 1)",
        "(defconstant pi 3)",
        "(rename-package :cl-user :mine) (rename-package :mine :common-lisp-user '(:cl-user))",
        "(in-package :nowhere)",
        '(loop repeat 200 do (warn "again and again"))',
        '(sb-thread:join-thread (sb-thread:make-thread (lambda () (error "in a thread"))))',
        '(sb-thread:make-thread (lambda () (error "in a thread")))',
        "(sb-thread:make-thread (lambda () (loop repeat 1000 do (print 1)))) (print 2)",
        "(sb-posix:close 0)",
        "(sb-posix:close 1) (sb-posix:close 2) (print 1 sb-sys:*stdout*)",
        '(write-string "raw" sb-sys:*stdout*) (finish-output sb-sys:*stdout*)',
        '(sb-ext:run-program "/bin/echo" (list "hello") :output t)',
        '(sb-ext:run-program "/no/such/program" nil)',
        "(sb-posix:setrlimit 1 2 3)",
        "(sb-posix:kill (sb-posix:getpid) sb-posix:sigchld)",
        "(sb-ext:with-timeout 0.05 (loop))",
        '(sb-ext:schedule-timer (sb-ext:make-timer (lambda () (error "timer"))) 0.01) (sleep 0.05)',
        '(push (lambda () (error "after gc")) sb-ext:*after-gc-hooks*) (gc)',
        '(handler-bind ((error (lambda (c) (error "nested ~a" c)))) (error "x"))',
        '(handler-bind ((condition (lambda (c) (print c)))) (warn "x"))',
        "(signal 'sb-sys:interactive-interrupt)",
        "(error 'sb-sys:interactive-interrupt)",
        "(error 'gramercy.image:interrupted)",
        "(error 'storage-condition)",
        "(setf (sb-ext:bytes-consed-between-gcs) 1000) (dotimes (i 10000) (list i))",
        "(trace car) (untrace)",
        "(coerce (loop for k from 0 below 1000 collect (code-char k)) 'string)",
        "(list #\\Nul (code-char #xd800) (string (code-char #xdfff)))",
        "(list sb-ext:double-float-positive-infinity sb-ext:single-float-negative-infinity)",
        "(sb-int:with-float-traps-masked (:invalid :divide-by-zero) (/ 0d0 0d0))",
        '(make-symbol "odd name|\\\\")',
        '(intern "lower")',
        "(defstruct (s (:print-function (lambda (o s d) (car 1)))) a) (make-s)",
        "(let ((h (make-hash-table))) (setf (gethash h h) h) h)",
        "(setf - 5 + 6 * 7 / 8)",
        "(makunbound '*package*)",
        "(makunbound '*standard-output*)",
        "(makunbound '*print-base*)",
    ],
    "python": [
        "import os; os.closerange(3, 1000)",
        "import os; os.closerange(0, os.sysconf('SC_OPEN_MAX'))",
        "import os; [os.close(n) for n in (0, 1, 2)]",
        "import os; os.dup2(os.open('/dev/null', os.O_RDWR), 1); print('x', flush=True)",
        "import sys; sys.exit(3)",
        "exit()",
        "quit(1)",
        "raise SystemExit",
        "raise KeyboardInterrupt",
        "raise GeneratorExit",
        "class B(BaseException): pass\nraise B",
        "class E(Exception):\n    def __str__(self): raise self\nraise E",
        "class E(Exception):\n    __str__ = __repr__ = lambda self: 5\nraise E",
        "class M(type):\n    def __getattribute__(c, n): raise ValueError\nclass E(Exception, metaclass=M): pass\nraise E",
        "class R:\n    def __repr__(self): raise SystemExit\nR()",
        "class R:\n    def __repr__(self): return 7\nR()",
        "class R:\n    def __repr__(self): return repr(self)\nR()",
        "class R:\n    __class__ = property(lambda s: 1/0)\nR()",
        "class S(str):\n    def __getitem__(self, i): raise ValueError\n    def __len__(self): return -5\nprint(S('x')); S('y')",
        "class S(str):\n    __repr__ = lambda s: s\nS('\\ud800')",
        "import builtins\nfor n in ('len', 'print', 'type', 'isinstance', 'repr', 'str', 'dict', 'open', 'compile', 'exec', 'eval', 'min', 'max', 'list'): setattr(builtins, n, None)",
        "import builtins; builtins.__dict__.clear()",
        "import builtins; builtins.__import__ = None",
        "__builtins__ = {}",
        "globals().clear()",
        "import json\njson.dumps = json.loads = None; json.encoder.c_make_encoder = None; json.JSONEncoder.encode = lambda *a: 'x'",
        "import os\nos.write = os.read = os.fork = os._exit = os.getpid = None",
        "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
        "import sys\nsys.stdout.write = lambda s: 1/0\nprint('x')",
        "import sys\nsys.stdout.close(); sys.stderr.close(); sys.stdin.close(); print('still')",
        "import sys\ndel sys.stdout",
        "import sys\nsys.stdout.buffer.raw.write(b'\\xff' * 100)",
        "import sys\nsys.modules.clear()",
        "import sys\nsys.modules = None",
        "import sys\ndel sys.modules['__main__']",
        "import sys\nfor n in list(sys.modules): sys.modules[n] = None",
        "import sys\nsys.modules[5] = sys.modules[''] = object()",
        "import sys\nsys.path = None; sys.meta_path = []; sys.path_hooks = None",
        "import sys\nsys.settrace(lambda *a: 1/0)",
        "import sys\nsys.setprofile(lambda *a: 1/0)",
        "import sys\ndef t(*a): return t\nsys.settrace(t); sys.setprofile(t)",
        "import sys\nsys.setrecursionlimit(60)",
        "import sys\nsys.setrecursionlimit(5)",
        "import sys\nsys.excepthook = sys.displayhook = sys.unraisablehook = None\n1/0",
        "import sys\nsys.getrecursionlimit = sys.settrace = sys.setprofile = None",
        "def f(): return f()\nf()",
        "def f(n): return [f(n)]\nf(1)",
        "l = []\nfor _ in range(10**5): l = [l]\nl == l\nl",
        "x = {}\nfor _ in range(2000): x = {'x': x}\nx",
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1/0); signal.setitimer(signal.ITIMER_REAL, 0.001)\nwhile True: pass",
        "import signal\nsignal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
        "import signal, os\nos.kill(os.getpid(), signal.SIGINT)",
        "import signal\nsignal.signal = signal.pthread_sigmask = None",
        "import os\npid = os.fork()\nif pid: print(os.waitpid(pid, 0))",
        "import os\nif os.fork() == 0: raise ValueError('in the child')",
        "import os\nif os.fork() == 0: import sys; sys.exit(1)",
        "import os\nfor _ in range(3): os.fork()",
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))",
        "import threading\nt = threading.Thread(target=lambda: print('t')); t.start(); t.join()",
        "import threading\nthreading.Thread(target=lambda: 1/0).start()",
        "import threading, time\nfor _ in range(5): threading.Thread(target=lambda: [print('noise') for _ in range(10**4)], daemon=True).start()",
        "import os\nos.chdir('/')\nos.environ.clear()\nos.umask(0o777)",
        "import gc\ngc.disable(); gc.set_threshold(0)",
        "import gc\nfor o in gc.get_objects():\n    if type(o) is list and len(o) < 3: pass",
        "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('x')",
        "import warnings\nwarnings.showwarning = lambda *a: 1/0\nwarnings.warn('x')",
        "import warnings\ndel warnings.showwarning",
        "import linecache\nlinecache.cache = None\n1/0",
        "import linecache\nlinecache.clearcache()\ndef f(): 1/0\nf()",
        "input()",
        "breakpoint()",
        "help()",
        "import pdb; pdb.set_trace()",
        "print(b'\\xff\\x00', '\\x00\\ud800', sep='\\udfff')",
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100)",
        "import sys; sys.stdout.write(5)",
        "import sys; sys.stdout.buffer.write('text')",
        "import os; os.write(1, b'\\x00\\x00\\x00\\x05hello')",
        "import sys; sys.stdout.reconfigure(encoding='ascii'); print('é'); sys.stdout.detach()",
        "class D:\n    def __del__(self): raise ValueError\nD()\n1",
        "class W:\n    def __del__(self): print('del')\nw = W(); w.w = w; del w",
        "globals()[5] = 1\nglobals()[None] = 2",
        "class K(str):\n    def __eq__(self, o): raise ValueError\n    __hash__ = str.__hash__\nglobals()[K('code')] = 1\ndel K",
        "__name__ = 5; __doc__ = 6; __annotations__ = 7; __warningregistry__ = 8",
        "__import__('sys').modules['__main__'].__class__ = type('M', (type(__import__('sys')),), {'__getattribute__': lambda s, n: 1/0})",
        "import atexit; atexit.register(lambda: 1/0)",
        "import os; os.register_at_fork(before=lambda: 1/0, after_in_child=lambda: 1/0, after_in_parent=lambda: 1/0)",
        "import faulthandler; faulthandler.enable()",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
        "bytearray(10**13)",
        "'x' * 10**18",
        "[0] * 10**15",
        "1 << 10**6",
        "int('9' * 5000)",
        "10 ** 5000",
        "eval('(' * 1000)",
        "eval('[' * 90 + ']' * 90)",
        "compile('1' + '+1' * 100000, 'x', 'exec')",
        "exec('x = ' + '-' * 50000 + '1')",
        "'\\N{BAD}'",
        "import ctypes; ctypes.pythonapi.PyErr_SetInterrupt()",
        "raise ExceptionGroup('g', [ExceptionGroup('h', [ValueError(1)] * 100)] * 100)",
        "e = ValueError(); e.__context__ = f = KeyError(); f.__context__ = e; raise e",
        "e = ValueError(); e.__notes__ = 5; raise e",
        "def g():\n    try: yield\n    except GeneratorExit: raise RuntimeError\nx = g(); next(x); del x",
        "import asyncio; asyncio.run(asyncio.sleep(0)); await asyncio.sleep(0)",
        "import asyncio; asyncio.get_event_loop_policy(); loop = asyncio.new_event_loop(); loop.run_until_complete(asyncio.sleep(0)); loop.close()",
        "await 5",
        "async def f():\n    while True:\n        try: await __import__('asyncio').sleep(0.01)\n        except BaseException: break\nt = __import__('asyncio').ensure_future(f(), loop=__import__('asyncio').new_event_loop()); t.cancel()",
        "yield 1",
        "return 5",
        "break",
        "\x00",
        "\ufeff1",
        "#" * 100000,
        "",
        "\n\n",
        "x = 1;" * 5000,
        "'" + "a" * 3_000_000 + "'",
        "(" * 5000,
        "import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\nlist(f.f_globals)",
        "import _thread; _thread.interrupt_main()",
        "import os; os.nice(5)",
        "import time; time.perf_counter = None; time.sleep = None",
        "type('X' * 10**6, (), {})()",
        "type('a\\ud800b', (), {})()",
        "raise type('E\\ud800', (Exception,), {})('m')",
        "import sys; sys.set_int_max_str_digits(640); 10**3000",
        "import sys; sys.set_int_max_str_digits(0); 10**60000",
    ],
}

# What a preview may not do to a directory with a file in it: code, the kind of the effect, and its target where that is told.
EFFECTS: Table = {
    "sbcl": [
        ('(with-open-file (s "{0}/new" :direction :output) (print 1 s))', "write", "{0}/new"),
        (
            '(with-open-file (s "{0}/file" :direction :io :if-exists :append) (print 1 s))',
            "write",
            "{0}/file",
        ),
        (
            '(with-open-file (s "{0}/file" :direction :output :if-exists :supersede) (print 1 s))',
            "write",
            "{0}/file",
        ),
        ('(delete-file "{0}/file")', "write", "{0}/file"),
        ('(rename-file "{0}/file" "{0}/other")', "write", "{0}/file"),
        ('(ensure-directories-exist "{0}/sub/")', "write", "{0}/sub/"),
        ('(sb-posix:mkdir "{0}/sub" #o700)', "write", "{0}/sub"),
        ('(sb-posix:unlink "{0}/file")', "write", "{0}/file"),
        ('(sb-posix:chmod "{0}/file" #o000)', "write", "{0}/file"),
        ('(sb-posix:truncate "{0}/file" 0)', "write", "{0}/file"),
        ('(sb-posix:symlink "{0}/file" "{0}/link")', "write", "{0}/file"),
        ('(sb-posix:open "{0}/file" sb-posix:o-wronly)', "write", "{0}/file"),
        ('(sb-ext:run-program "/bin/sh" (list "-c" "echo x > {0}/file"))', "process", None),
        (
            "(sb-bsd-sockets:socket-connect (make-instance 'sb-bsd-sockets:inet-socket :type :stream) #(127 0 0 1) 9)",
            "connect",
            "127.0.0.1:9",
        ),
    ],
    "python": [
        ("open('{0}/new1', 'w')", "write", None),
        ("open('{0}/file', 'a')", "write", None),
        ("import os; os.remove('{0}/file')", "write", None),
        ("import os; os.rename('{0}/file', '{0}/new1')", "write", None),
        ("import os; os.mkdir('{0}/new1')", "write", None),
        ("import os; os.symlink('x', '{0}/new1')", "write", None),
        ("import os; os.truncate('{0}/file', 0)", "write", None),
        ("import os; os.chmod('{0}/file', 0)", "write", None),
        ("import pathlib; pathlib.Path('{0}/new1').write_text('x')", "write", None),
        ("import os; os.open('{0}/new1', os.O_CREAT | os.O_WRONLY)", "write", None),
        ("import tempfile; tempfile.mkdtemp(dir='{0}')", "write", None),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "connect", None),
        ("import socket; socket.socket(socket.AF_UNIX).connect('{0}/socket')", "connect", None),
        (
            "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
            "connect",
            None,
        ),
        ("import subprocess; subprocess.run(['touch', '{0}/new1'])", "process", None),
        ("import os; os.system('touch ' + '{0}/new1')", "process", None),
        ("import os; os.kill(os.getppid(), 9)", "process", None),
        ("import os; os.fork()", "process", None),
    ],
}

# What the questions below are about.
WORLD = {
    "sbcl": """
(defvar *limit* 10) (defvar both 5)
(defun both (x) "Doc of it." x)
(defclass both () ())
(defclass base () ((a :initarg :a :accessor base-a :type integer :initform (error "ran"))))
(defclass derived (base) ((b :initform 2)))
(defclass orphan (not-yet) ((c)))
(defun helper (n &optional (m 3) &key k) "Help out." (list n m k *limit*))
(defun caller () (helper 1))
(defun indirect () (loop for i below 3 collect (helper i)))
(defun setter () (setf *limit* 11))
(defun |Mixed Case| (x) x)
(defun (setf thing) (v) v)
(defvar zebra-two 2) (defun zebra-one () 1)
(defmacro bad () (error "in the macro"))
(defpackage :shop (:use :cl) (:export #:buy)) (defun shop::buy () 1) (defun shop::stock () 2)
""",
    "python": '''
import dataclasses, functools
LIMIT = 10
class Base:
    """The base."""
    kind: str = "b"
class Thing(Base):
    __slots__ = ("a",)
    def __init__(self, a, *, b: int = 2): self.a = a
    def method(self, x): return helper(x)
    @property
    def prop(self): return 1 / 0
    @staticmethod
    def static(q): return LIMIT
    @classmethod
    def make(cls, n): return cls(n)
@dataclasses.dataclass
class Data(Base):
    x: int
    y: list[int] = dataclasses.field(default_factory=list)
    z: "str" = "zed"
def helper(n, /, m=3, *rest, k: int | None = None, **more) -> int:
    """Help out."""
    return n + LIMIT
def caller(): return helper(1)
def indirect(): return [helper(i) for i in range(3)]
def by_name(obj): return obj.method(1)
def setter():
    global LIMIT
    LIMIT = 11
alias = helper
def uses_alias(): return alias(2)
cached = functools.lru_cache(helper)
part = functools.partial(helper, 1)
zebra_two = 2
def zebra_one(): pass
''',
}

# A name, what is told for programs, and a part of what is told for people.
DESCRIBED: Table = {
    "sbcl": [
        ("both", {}, "function (BOTH X)"),
        ("both", {}, "Doc of it."),
        ("both", {}, "Value: 5"),
        ("both", {}, "\nclass"),
        ("car", {"name": "CAR"}, "CAR"),
        ("CAR", {"name": "CAR"}, "CAR"),
        ("cl:car", {"name": "CAR"}, "CAR"),
        ("common-lisp::car", {"name": "CAR"}, "CAR"),
        ("#'car", {"name": "CAR"}, "CAR"),
        ("'car", {"name": "CAR"}, "CAR"),
        (" car ", {"name": "CAR"}, "CAR"),
        ("Cl:Car", {"name": "CAR"}, "CAR"),
    ],
    "python": [
        ("helper", {"kind": "function"}, "Help out."),
        ("Thing", {"kind": "class"}, "(a, *, b: int = 2)"),
        ("LIMIT", {"kind": "variable"}, "10"),
        ("Base", {"kind": "class"}, "The base."),
        ("Thing.method", {"kind": "method"}, "(self, x)"),
        ("Thing.prop", {"kind": "property"}, "property"),
        ("__main__:Thing.method", {"kind": "method"}, "(self, x)"),
        ("__main__.helper", {"kind": "function"}, "Help out."),
        ("json.dumps", {"kind": "function"}, "Serialize"),
        ("json:dumps", {"kind": "function"}, "Serialize"),
        ("len", {"kind": "function"}, "(obj, /)"),
        ("dict", {"kind": "class"}, "dict"),
        ("json", {"kind": "module"}, "is a package"),
        ("os.path.join", {"kind": "function"}, "(a, *p)"),
    ],
}

# A function, and its argument list.
ARGLISTS: Table = {
    "sbcl": [
        ("both", "(X)"),
        ("helper", "(N &OPTIONAL (M 3) &KEY K)"),
        ("|Mixed Case|", "(X)"),
        ("cl-user::|Mixed Case|", "(X)"),
        ("(setf thing)", "(V)"),
    ],
    "python": [
        ("helper", "helper(n, /, m=3, *rest, k: int | None = None, **more) -> int"),
        ("Thing", "Thing(a, *, b: int = 2)"),
        ("Thing.make", "make(n)"),
        ("Thing.static", "static(q)"),
        ("cached", "cached(n, /, m=3, *rest, k: int | None = None, **more) -> int"),
        ("part", "part(m=3, *rest, k: int | None = None, **more) -> int"),
        (
            "Data",
            "Data(x: int, y: list[int] = <factory>, z: str = 'zed') -> None",
        ),
        ("len", "len(obj, /)"),
        ("print", "print(*args, sep=' ', end='\\n', file=None, flush=False)"),
        ("str.upper", "upper(self, /)"),
        ("Base", "Base()"),
        (
            "dict",
            (
                "dict: no argument list is known. Its documentation says:\n  dict() -> new empty dictionary\n"
                "  dict(mapping) -> new dictionary initialized from a mapping object's\n"
                "  dict(iterable) -> new dictionary initialized as if via:\n"
                "  dict(**kwargs) -> new dictionary initialized with the name=value pairs"
            ),
        ),
    ],
}

# A question about what is not there, the type of the error, and a suggestion.
UNKNOWN: Table = {
    "sbcl": [
        ("describe", {"symbol": "mapcarr"}, "SYMBOL-NOT-FOUND", "MAPCAR"),
        ("describe", {"symbol": "sb-possix:x"}, "PACKAGE-NOT-FOUND", "SB-POSIX"),
        ("arglist", {"function": "helpr"}, "SYMBOL-NOT-FOUND", "HELPER"),
        ("arglist", {"function": "(setf)"}, "FUNCTION-NOT-FOUND", None),
        ("who_calls", {"function": "helpr"}, "SYMBOL-NOT-FOUND", "HELPER"),
        ("who_references", {"variable": "*limitt*"}, "SYMBOL-NOT-FOUND", "*LIMIT*"),
        ("class_slots", {"class": "standard-objekt"}, "SYMBOL-NOT-FOUND", "STANDARD-OBJECT"),
        ("class_slots", {"class": "derivd"}, "SYMBOL-NOT-FOUND", "DERIVED"),
    ],
    "python": [
        ("describe", {"symbol": "helpr"}, "NameError", "helper"),
        ("describe", {"symbol": "json.dmps"}, "NameError", "json.dumps"),
        ("describe", {"symbol": "not a name("}, "NameError", None),
        ("describe", {"symbol": "x", "package": "jsonn"}, "ModuleNotFoundError", "json"),
        ("arglist", {"function": "helpr"}, "NameError", "helper"),
        ("arglist", {"function": "json.dmps"}, "NameError", "json.dumps"),
        ("arglist", {"function": "not a name("}, "NameError", None),
        ("arglist", {"function": "x", "package": "jsonn"}, "ModuleNotFoundError", "json"),
        ("who_calls", {"function": "helpr"}, "NameError", "helper"),
        ("who_calls", {"function": "json.dmps"}, "NameError", "json.dumps"),
        ("who_calls", {"function": "not a name("}, "NameError", None),
        ("who_calls", {"function": "x", "package": "jsonn"}, "ModuleNotFoundError", "json"),
        ("who_references", {"variable": "helpr"}, "NameError", "helper"),
        ("who_references", {"variable": "json.dmps"}, "NameError", "json.dumps"),
        ("who_references", {"variable": "not a name("}, "NameError", None),
        ("who_references", {"variable": "x", "package": "jsonn"}, "ModuleNotFoundError", "json"),
        ("class_slots", {"class": "helpr"}, "NameError", "helper"),
        ("class_slots", {"class": "json.dmps"}, "NameError", "json.dumps"),
        ("class_slots", {"class": "not a name("}, "NameError", None),
        ("class_slots", {"class": "x", "package": "jsonn"}, "ModuleNotFoundError", "json"),
    ],
}

# A question about uses, and the functions that are told.
REFERENCES: Table = {
    "sbcl": [
        ("who_calls", {"function": "helper"}, ["CL-USER::CALLER", "CL-USER::INDIRECT"]),
        ("who_references", {"variable": "*limit*"}, ["CL-USER::HELPER", "CL-USER::SETTER"]),
    ],
    "python": [
        (
            "who_calls",
            {"function": "helper"},
            ["__main__.Thing.method", "__main__.caller", "__main__.indirect", "__main__.uses_alias"],
        ),
        ("who_calls", {"function": "Thing.method"}, ["__main__.by_name"]),
        (
            "who_references",
            {"variable": "LIMIT"},
            ["__main__.Thing.static", "__main__.helper", "__main__.setter"],
        ),
    ],
}

# A package, names that it exports, and one that it keeps to itself.
SYMBOLS: Table = {
    "sbcl": [
        ("shop", ["BUY"], "STOCK"),
        ("SHOP", ["BUY"], "STOCK"),
    ],
    "python": [
        ("json", ["dumps", "loads", "JSONEncoder"], "_default_encoder"),
    ],
}

# A class, and what is told of its slots.
SLOTS: Table = {
    "sbcl": [
        (
            "derived",
            {
                "CL-USER::A": {
                    "initform": '(ERROR "ran")',
                    "type": "INTEGER",
                    "initargs": [":A"],
                    "accessors": ["CL-USER::BASE-A", "(SETF CL-USER::BASE-A)"],
                },
                "CL-USER::B": {"initform": "2"},
            },
        ),
        ("orphan", {"CL-USER::C": {}}),
    ],
    "python": [
        (
            "Thing",
            {
                "kind": {"class": "Base", "source": "annotation", "type": "str", "default": "'b'"},
                "a": {"source": "__slots__", "default": "a"},
                "prop": {"source": "property"},
            },
        ),
        (
            "Data",
            {
                "kind": {},
                "x": {"source": "field", "type": "int"},
                "y": {"type": "list[int]"},
                "z": {"default": "'zed'"},
            },
        ),
    ],
}

# A class, what is above it, and what is below it.
HIERARCHIES: Table = {
    "sbcl": [
        ("base", ["STANDARD-OBJECT"], ["CL-USER::DERIVED"]),
        ("derived", ["CL-USER::BASE"], []),
        ("orphan", ["CL-USER::NOT-YET"], []),
    ],
    "python": [
        ("Base", ["object"], ["Data", "Thing"]),
        ("Thing", ["Base", "object"], []),
    ],
}

# A form, whether it is expanded in full, and the text.
EXPANSIONS: Table = {
    "sbcl": [
        ("(when a (unless b c))", False, "(IF A\n    (UNLESS B C))"),
        ("(when a (unless b c))", True, "(IF A\n    (IF B\n        NIL\n        C))"),
        ("(list 1)", False, "(LIST 1)"),
    ],
    "python": [
        ("if(x):y=( 1 )", False, "if x:\n    y = 1"),
        ("y=( 1 )", True, "y = 1\n\n"),
    ],
}

# A form that cannot be expanded, and the type of the error.
NOT_EXPANDED: Table = {
    "sbcl": [
        ("(bad)", "SIMPLE-ERROR"),
        ("(when", "END-OF-FILE"),
    ],
    "python": [
        ("1 +", "SyntaxError"),
    ],
}

# Code that counts how often it runs, the names to ask about, the one for all, the count, and how to reset it.
TRAPS = {
    "sbcl": (
        """
(defvar *ran* 0) (defvar *value* nil)
(defclass trap () ((a :initform 1)))
(defmethod print-object ((x trap) s) (incf *ran*) (write 1 :stream s))
(defmethod describe-object ((x trap) s) (incf *ran*))
(defmethod documentation ((x trap) k) (incf *ran*) nil)
(defstruct (box (:print-function (lambda (o s d) (incf *ran*)))) content)
(defvar *trap* (make-instance 'trap)) (defvar *box* (make-box :content *trap*))
(defun taking (&optional (x (progn (incf *ran*) 1))) x)
(defmacro expanding () (incf *ran*) 1)
(defclass holder () ((field :initform (incf *ran*))))
(defvar *everything* (list *trap* *box* (vector *trap*) (let ((h (make-hash-table))) (setf (gethash :k h) *trap*) h)))
(setf *ran* 0)
""",
        ("*trap*", "trap", "*box*", "box", "taking", "expanding", "holder", "*everything*", "nothing"),
        "*everything*",
        "*ran*",
        "(setf *ran* 0)",
    ),
    "python": (
        """
count = 0
def touch(*a, **k):
    global count
    count += 1
    raise RuntimeError("touched")
class Meta(type):
    __repr__ = __instancecheck__ = __subclasscheck__ = __iter__ = __len__ = touch
    __getattr__ = touch
    def __getattribute__(cls, name): return touch()
    def __eq__(cls, other): return touch()
    def __hash__(cls): return touch()
    __name__ = __doc__ = __mro__ = __dict__ = property(touch)
class Spy(metaclass=Meta):
    __repr__ = __str__ = __eq__ = __len__ = __iter__ = __bool__ = __getattr__ = __dir__ = __format__ = __call__ = touch
    def __getattribute__(self, name): return touch()
    def __hash__(self): return touch()
    __class__ = __doc__ = __signature__ = __wrapped__ = __name__ = property(touch)
    prop = property(touch)
class Listing(list):
    __iter__ = __len__ = __getitem__ = __repr__ = __getattribute__ = touch
class Mapping(dict):
    __iter__ = __len__ = __getitem__ = __repr__ = items = keys = get = __getattribute__ = touch
class Key(str):
    def __eq__(self, other): return touch()
    __hash__ = str.__hash__
class Descriptor:
    __get__ = __set__ = __set_name__ = touch
    def __set_name__(self, owner, name): pass
class Holder:
    field = Descriptor()
    other: int = 3
    def __init__(self): self.__dict__["plain"] = spy
class Answer(__import__("types").ModuleType):
    __getattribute__ = __getattr__ = __repr__ = touch
import sys
spy = object.__new__(Spy)
listing = Listing([1, spy]); mapping = Mapping(a=spy); holder = Holder()
sys.modules["trap"] = Answer("trap")
globals()[Key("needle")] = 1
table = {Key("k"): spy, "s": spy}
def taking(a=spy, *, b=listing) -> spy: return spy
taking.__wrapped__ = spy
def calls(): return spy.method() or Spy.other or taking()
everything = [spy, listing, mapping, holder, table, Spy, Holder]
count = 0
None
""",
        (
            "spy",
            "Spy",
            "listing",
            "mapping",
            "holder",
            "Holder",
            "Holder.field",
            "taking",
            "everything",
            "trap",
            "needle",
            "holder.plain",
            "spy.prop",
            "Spy.prop",
            "nothing",
        ),
        "everything",
        "count",
        "count = 0",
    ),
}
