"""Run the public ANSI test suite of Common Lisp form by form, in plain SBCL and in a live image, and compare.

`python tests/images/ansi_forms.py DIRECTORY` where DIRECTORY is a checkout of the suite; it is copied first.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.images.environment import DEFAULT_DEBUG
from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from gramercy.images.base import Reply
    from gramercy.images.live import LiveImage

PLACE = '(setf *load-truename* (truename "{0}") *load-pathname* (pathname "{0}"))'
SET_UP = '(load "gclload1.lsp")'
# Code of an image is compiled with this quality of debugging, on which results of SBCL depend: `map` with a
# union of vector types fails in SBCL with 1, and not with 2.
POLICY = f"(proclaim '(optimize (debug {DEFAULT_DEBUG})))\n"
PLAIN = r"""
(defvar *files* (with-open-file (in "files.txt")
                  (loop for line = (read-line in nil) while line collect line)))
(defvar *report* (open "plain.txt" :direction :output :if-exists :supersede))
(load "gclload1.lsp")
(in-package :cl-test)
(load "helpers.lsp")
(setf sb-ext:*invoke-debugger-hook*
      (lambda (condition hook)
        (declare (ignore hook))
        ;; The standard lets the user's own hook decide first; nobody is there for a debugger.
        (let ((own *debugger-hook*))
          (when own (let ((*debugger-hook* nil)) (funcall own condition own))))
        (throw 'cl-user::ended condition)))
(defun cl-user::outcome (form)
  (let* ((name (or (and (consp form) (eq (car form) 'deftest) (second form)) "-"))
         (ended (catch 'cl-user::ended
                  (handler-case
                      (sb-ext:with-timeout 30
                        (return-from cl-user::outcome (values name (cl-user::run-form form name))))
                    (serious-condition (condition) condition)))))
    (values name (format nil "~a" (type-of ended)))))
(defun cl-user::run-form (form name)
  (eval form)
  (cond ((stringp name) "done")
        ((let ((*standard-output* (make-broadcast-stream))) (regression-test:do-test name)) "pass")
        (t "fail")))
(defun cl-user::run-file (file)
  (with-open-file (in file :external-format :utf-8)
    ;; Set and not bound, as it can be in an image too: some forms load their neighbours.
    (setf *load-truename* (truename file) *load-pathname* (pathname file))
    (let ((*package* *package*))
      (loop for start = (file-position in)
            for form = (handler-case (read in nil in) (error () in))
            until (eq form in)
            do (let ((end (file-position in)))
                 (multiple-value-bind (name result) (cl-user::outcome form)
                   (let ((*package* (find-package :cl-test)))
                     (format cl-user::*report* "~a~c~d~c~d~c~(~s~)~c~a~%" file #\Tab start #\Tab end #\Tab
                             name #\Tab result))
                   (finish-output cl-user::*report*)))))))
(mapc #'cl-user::run-file cl-user::*files*)
(close cl-user::*report*)
(sb-ext:exit :abort t)
"""


@dataclass(frozen=True)
class Form:
    """One form of the suite, with what plain SBCL made of it."""

    file: str
    text: str
    name: str
    result: str


def test_files(suite: Path) -> list[str]:
    """Return the files that the chapters of the suite load, in their order."""
    chapters = re.findall(r'"([^"]+/load\.lsp)"', (suite / "gclload2.lsp").read_text("utf-8"))
    found = []
    for chapter in chapters:
        text = re.sub(r"(?m);.*$", "", (suite / chapter).read_text("utf-8"))
        for name in re.findall(r'\(load "([^"]+)"\)', text):
            place = Path(chapter).parent / name
            if (suite / place).is_file():
                found.append(str(place))
    return found


def helpers(suite: Path) -> str:
    """Return the forms that load what the tests of the chapters have in common."""
    texts = [path.read_text("utf-8") for path in sorted(suite.glob("*/load.lsp"))]
    found = [
        form for text in texts for form in re.findall(r'\(compile-and-load "ANSI-TESTS:AUX;[^"]+"\)', text)
    ]
    return "\n".join(["(in-package :cl-test)", *dict.fromkeys(found), ""])


def plain_forms(suite: Path) -> list[Form]:
    """Run every form in plain SBCL."""
    (suite / "files.txt").write_text("\n".join(test_files(suite)), "utf-8")
    (suite / "plain.lisp").write_text(POLICY + PLAIN, "utf-8")
    command = [
        "sbcl",
        "--noinform",
        "--no-sysinit",
        "--no-userinit",
        "--load",
        "plain.lisp",
    ]
    with (suite / "plain.log").open("wb") as log:
        subprocess.run(
            command, cwd=suite, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=1800, check=False
        )
    forms = []
    for line in (suite / "plain.txt").read_text("utf-8", "replace").splitlines():
        words = line.split("\t")
        if len(words) == 5:
            file, start, end, name, result = words
            text = (suite / file).read_bytes()[int(start) : int(end)].decode("utf-8", "replace")
            forms.append(Form(file, text, name, result))
    return forms


def run_in_image(image: LiveImage, form: Form) -> str:
    """Run one form in the image and return the same word as plain SBCL."""
    ask = f"\n(if (regression-test:do-test '{form.name}) :pass :fail)" if form.name != '"-"' else ""
    reply = image.evaluate(form.text + ask)
    if reply.error is not None:
        return reply.error.type.rpartition(":")[2]
    if not ask:
        return "done"
    return reply.values[0].strip(":").lower() if reply.values else "no values"


def compare(source: Path) -> tuple[Counter[str], list[str]]:
    """Return how many forms there were of each outcome, and every difference."""
    with tempfile.TemporaryDirectory(prefix="ansi-") as directory:
        suite = Path(directory) / "suite"
        shutil.copytree(source, suite, ignore=shutil.ignore_patterns(".git"))
        (suite / "helpers.lsp").write_text(helpers(suite), "utf-8")
        # Each has a copy of its own, since forms leave files behind.
        other = Path(directory) / "plain"
        shutil.copytree(suite, other)
        forms = plain_forms(other)
        image = open_image("sbcl", project=suite, timeout=30)
        counts: Counter[str] = Counter()
        different = []
        try:
            _expect(image.evaluate(SET_UP))
            _expect(image.evaluate('(load "helpers.lsp")'))
            _expect(image.evaluate("(in-package :cl-test)"))
            file = ""
            for form in forms:
                if form.file != file:
                    file = form.file
                    _expect(image.evaluate(PLACE.format(file)))
                got = run_in_image(image, form)
                counts["forms"] += 1
                counts[form.result if form.result in ("pass", "fail", "done") else "error"] += 1
                if got != form.result:
                    different.append(f"{form.file} {form.name}: plain {form.result}, image {got}")
        finally:
            image.close()
        return counts, different


def _expect(reply: Reply) -> None:
    if not reply.ok:
        raise SystemExit(f"the suite cannot be set up in the image: {reply.error}")


if __name__ == "__main__":
    counted, differing = compare(Path(sys.argv[1]))
    sys.stdout.write("\n".join([*differing, f"{dict(counted)}, {len(differing)} differences", ""]))
