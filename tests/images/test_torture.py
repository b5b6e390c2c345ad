"""Hostile code, one form after the other: afterwards the image answers, with the state of before."""

import pytest

LISP_FORMS = [
    "(", ")", "#<unreadable>", "(foo", '"open', "#.(+ 1 2)", "no-such-package:foo", "cl:no-such", "|", "#\\nosuchchar",
    "(undefined-function-here)", "undefined-variable-here", "(car 1)", "(error 'no-such-condition)", "(signal 'error)",
    "(break)", "(invoke-debugger (make-condition 'error))", "(abort)", "(throw 'nowhere 1)", "(return-from nil 1)",
    "(sb-ext:exit)", "(sb-ext:exit :abort t)", "(sb-ext:quit)", "(sb-posix:kill (sb-posix:getpid) 15)",
    "(sb-posix:kill (sb-posix:getpid) 9)", "(sb-posix:kill (sb-posix:getpid) 11)", "(sb-posix:kill 0 9)",
    "(loop)", "(sleep 1000)", "(handler-case (loop) (error () (loop)))", "(ignore-errors (loop))",
    "(unwind-protect (loop) (loop))", "(sb-sys:without-interrupts (loop))", "(labels ((f (n) (+ 1 (f n)))) (f 1))",
    "(make-array 10000000000)", "(let ((l nil)) (loop (push (make-array 100000) l)))",
    "(make-string 400000000 :initial-element #\\a)", "(expt 7 (expt 7 9))",
    "(sb-sys:with-pinned-objects () (setf (sb-sys:sap-ref-64 (sb-sys:int-sap 8) 0) 1))",
    "(sb-kernel:%primitive print 1)", "(setf *print-circle* nil) (let ((x (list 1))) (setf (cdr x) x) x)",
    "(defclass rude () ()) (defmethod print-object ((o rude) s) (error \"no\")) (make-instance 'rude)",
    "(defmethod print-object ((o rude) s) (loop)) (make-instance 'rude)", "(setf *standard-output* 5) (print 1)",
    "(setf *package* 7)", "(setf *readtable* nil)", "(delete-package :gramercy.image)", "(in-package :no-such)",
    "(setf *error-output* (make-broadcast-stream))", "(close *standard-output*)", "(close *terminal-io*)",
    "(loop repeat 300 do (format t \"~80,,,'xa~%\" 1))", "(dotimes (i 2000000) (write-char #\\x))",
    "(write-sequence (map 'string #'code-char (loop for i below 256 collect i)) *standard-output*)",
    "(read)", "(read-line)", "(y-or-n-p)", '(sb-thread:join-thread (sb-thread:make-thread (lambda () (error "in thread"))))',
    "(sb-posix:close 0)", "(loop for fd from 3 below 400 do (ignore-errors (sb-posix:close fd)))",
    "(sb-posix:fork)", '(setf sb-ext:*invoke-debugger-hook* nil) (error "x")', '(sb-ext:disable-debugger) (error "x")',
    "(setf sb-ext:*evaluator-mode* :interpret) (+ 1 1)", "(sb-ext:gc :full t)", "(trace car) (car '(1))", "(room)",
    "(defun cl:car (x) x)", "(setf (symbol-function 'cl:print) nil)", "(sb-ext:run-program \"/bin/sh\" '(\"-c\" \"kill -9 $PPID\"))",
    "(proclaim '(optimize (safety 0))) (defun bad (x) (declare (fixnum x)) (car x)) (bad 5)", "(require :no-such-module)",
    '(load "/no/such/file")', "(sb-sys:enable-interrupt 2 :ignore) (loop)", "(compile nil '(lambda (x) (+ x \"a\")))",
]  # fmt: skip
PYTHON_FORMS = [
    "(", ")", "def f(:", "'open", "x = = 1", "\x00", "\ud800", "if True:", "return 1", "yield 1", "await x", "break",
    "undefined_name", "1/0", "raise BaseException('x')", "raise SystemExit(3)", "raise KeyboardInterrupt", "raise GeneratorExit",
    "exit()", "quit()", "import os; os._exit(1)", "import os; os.abort()", "import os; os.kill(os.getpid(), 15)",
    "import os; os.kill(os.getpid(), 9)", "import os; os.kill(0, 9)", "import ctypes; ctypes.string_at(0)",
    "while True: pass", "import time; time.sleep(1000)", "while True:\n try:\n  while True: pass\n except BaseException: pass",
    "import re; re.match('(a+)+$', 'a' * 40 + 'b')", "def f(n): return f(n)\nf(1)", "import sys; sys.setrecursionlimit(10**9)\ndef f(n): return f(n)\nf(1)",
    "'a' * 10**12", "[0] * 10**12", "l = []\nwhile True: l.append(bytearray(10**7))", "10 ** 10 ** 8", "x9 = []; x9.append(x9); x9",
    "class R:\n def __repr__(self): raise ValueError('no')\nR()", "class R:\n def __repr__(self):\n  while True: pass\nR()",
    "class R:\n def __repr__(self): return 7\nR()", "class M(type):\n def __repr__(c): raise ValueError\nclass C(metaclass=M): pass\nC",
    "import sys; sys.stdout = None\nprint(1)", "import sys; sys.stdout.close()\nprint(1)", "import sys; sys.stdout.buffer.write(bytes(range(256)))",
    "import builtins; builtins.print = None", "import builtins; del builtins.len", "import builtins; builtins.__import__ = None",
    "import sys; sys.modules.clear()", "import sys; sys.meta_path.clear()", "import json; json.dumps = json.loads = None",
    "import os; os.write = os.read = os.fork = None", "import os; os.close(0); os.close(1); os.close(2)", "import os; os.closerange(3, 10000)",
    "print('x' * 5_000_000)", "for i in range(3000): print('y' * 100)", "input()", "import sys; sys.stdin.read()",
    "import os; os.fork()", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "import signal; signal.alarm(1)\nwhile True: pass", "import sys; sys.settrace(lambda *a: 1/0)", "import sys; sys.setprofile(lambda *a: 1/0)",
    "import gc; gc.disable(); gc.set_threshold(1)", "import warnings; warnings.warn('careful')", "del __builtins__", "globals().clear()",
    "import threading; t = threading.Thread(target=lambda: 1/0); t.start(); t.join()", "import os; os.chdir('/')", "import os; os.environ.clear()",
    "__name__ = None", "import subprocess; subprocess.run(['/bin/sh', '-c', 'kill -9 $PPID'])", "exec('1/0')", "eval('(')", "compile('x', '', 'nope')",
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", "import faulthandler; faulthandler._sigsegv()", "raise ExceptionGroup('g', [ValueError(1)])",
]  # fmt: skip
FORMS = {"sbcl": LISP_FORMS, "python": PYTHON_FORMS}


def test_the_list_is_long_enough():
    assert all(len(forms) >= 60 for forms in FORMS.values())


@pytest.mark.slow
def test_after_every_hostile_form_the_image_answers_with_the_state_of_before(image, words):
    """Some forms damage their own process for good (they clear builtins): an undo must bring all back."""
    image.evaluate(words.define)
    home = image.checkpoint("home")
    damaged = []
    for form in FORMS[words.language]:
        image.evaluate(form, timeout=1.0)
        look = image.evaluate(words.look)
        if look.values != ["41"]:
            damaged.append(form)
            image.rollback(home.id)
        assert image.evaluate(words.look).values == ["41"], form
        assert image.evaluate(words.six).values == ["6"], form
    # What is damaged is the user's own world, by its own code; nobody else's, and it can be taken back.
    assert len(damaged) < len(FORMS[words.language]) // 4, damaged


def test_hostile_forms_leave_no_process_behind(image, words):
    image.evaluate(words.define)
    pids = image.processes()
    assert len(pids) <= 2 + 17


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_huge_forms_are_answered(image, words, size):
    code = '(length "' + "a" * size + '")' if words.language == "sbcl" else "len('" + "a" * size + "')"
    assert image.evaluate(code).values == [str(size)]
