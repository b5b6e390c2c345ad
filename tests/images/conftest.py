"""One image of each language for the conformance tests, and the words in which they say the same."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest

from gramercy.images.opening import open_image


@dataclass(frozen=True)
class Words:
    """Code that means the same in every language."""

    language: str
    define: str
    change: str
    look: str
    six: str
    fail: str
    loop: str
    stubborn_loop: str
    leave: str
    kill_self: str
    shout: str
    start_thread: str
    write_file: str
    recurse: str


LISP = Words(
    language="sbcl",
    define="(defvar *x* 41)",
    change="(setf *x* {})",
    look="*x*",
    six="(+ 1 2 3)",
    fail='(error "it ~a" \'failed)',
    loop="(loop)",
    stubborn_loop="(sb-sys:without-interrupts (loop))",
    leave="(sb-ext:exit :code 3 :abort t)",
    kill_self="(sb-posix:kill (sb-posix:getpid) 9)",
    shout='(format t "{}~%")',
    start_thread='(sb-thread:make-thread (lambda () (sleep 1000)) :name "mine")',
    write_file='(with-open-file (s "{}" :direction :output) (print 1 s))',
    recurse="(labels ((f (n) (+ 1 (f n)))) (f 1))",
)
PYTHON = Words(
    language="python",
    define="x = 41",
    change="x = {}",
    look="x",
    six="1 + 2 + 3",
    fail="raise ValueError('it failed')",
    loop="while True: pass",
    stubborn_loop="import signal as s\ns.pthread_sigmask(s.SIG_BLOCK, [s.SIGINT])\nwhile True: pass",
    leave="import os; os._exit(3)",
    kill_self="import os; os.kill(os.getpid(), 9)",
    shout="print('{}')",
    start_thread="import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()",
    write_file="open('{}', 'w').write('1')",
    recurse="def f(n): return 1 + f(n)\nf(1)",
)


@pytest.fixture(scope="session", params=[LISP, PYTHON], ids=["sbcl", "python"])
def words(request):
    """Say the same in the language of a test."""
    if request.param.language == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    return request.param


@pytest.fixture(scope="session")
def shared_image(words, tmp_path_factory):
    """One image for all tests of a language; each test gets it fresh."""
    image = open_image(words.language, project=tmp_path_factory.mktemp(f"project-{words.language}"))
    yield image
    image.close()


@pytest.fixture
def image(shared_image):
    """Return a fresh image."""
    shared_image.reset()
    return shared_image
