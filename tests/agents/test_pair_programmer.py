"""An agent in a live Lisp image: it looks, previews, has its fix approved, tests, takes a step back."""

from __future__ import annotations

import re
import shutil

import pytest

from gramercy import Agent, Approved, Executor, Limits, Modified
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import State
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.scripted import ScriptedProvider
from gramercy.toolsets import hunks
from gramercy.workbench.sources import image_registry, live_image

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
SHOP = """\
(defpackage shop (:use :cl) (:export #:*rate* #:discounted #:total))
(in-package :shop)

(defvar *rate* 25)

(defun discounted (price &optional (percent *rate*))
  (* price (/ percent 100)))

(defun total (prices)
  (reduce #'+ (mapcar #'discounted prices)))
"""
FIXED = SHOP.replace("(/ percent 100)", "(- 1 (/ percent 100))")
# The model would also do what nobody has asked for.
PROPOSED = FIXED.replace(
    "(reduce #'+ (mapcar #'discounted prices))", "(loop for p in prices sum (discounted p))"
)
SYSTEM = """\
(defsystem "shop" :components ((:file "shop")) :in-order-to ((test-op (test-op "shop/tests"))))
(defsystem "shop/tests" :depends-on ("shop") :components ((:file "tests"))
  :perform (test-op (o c) (uiop:symbol-call :shop-tests :check)))
"""
TESTS = """\
(defpackage shop-tests (:use :cl))
(in-package :shop-tests)
(defun check ()
  (assert (= 150 (shop:discounted 200)))
  (assert (= 225 (shop:total '(100 200))))
  (uiop:quit 0))
"""
USED = [
    "load-system",
    "eval_form",
    "describe_symbol",
    "who_calls",
    "read_file",
    "preview_form",
    "propose_file_edit",
    "load_file",
    "run_tests",
    "undo_last",
]
NEW_DEFINITION = (
    "(defun shop:discounted (price &optional (percent shop:*rate*))\n  (* price (- 1 (/ percent 100))))"
)


def result(request):
    """Return the text of the latest result, as the model reads it."""
    assert request.messages[-1].role == "tool"
    return request.messages[-1].text


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


class Pair:
    """The model's part, one step for each answer; every step looks at what the last one has brought."""

    def __init__(self):
        self.undone = ""

    def steps(self):
        return [
            call("load-system", system="shop"),
            call("eval_form", form="(shop:discounted 200)"),
            self.look,
            self.preview,
            self.propose,
            self.load,
            call("run_tests"),
            self.try_another_rate,
            self.take_back,
            call("eval_form", form="shop:*rate*"),
            self.answer,
        ]

    def look(self, request):
        assert result(request) == "=> 50"
        return [
            "A quarter off 200 should be 150. ",
            call("describe_symbol", symbol="shop:discounted"),
            call("who_calls", function="shop:discounted"),
            call("read_file", path="shop.lisp"),
        ]

    def preview(self, request):
        described, callers, text = [message.text for message in request.messages[-3:]]
        assert "DISCOUNTED" in described
        assert "TOTAL" in callers
        assert "(* price (/ percent 100))" in text
        return call(
            "preview_form", form=f"{NEW_DEFINITION} (list (shop:discounted 200) (shop:total '(100 200)))"
        )

    def propose(self, request):
        assert "(150 225)" in result(request)
        edit = {
            "path": "shop.lisp",
            "original": SHOP,
            "modified": PROPOSED,
            "description": "Take off the rate.",
        }
        return call("propose_file_edit", **edit)

    def load(self, request):
        assert "A person accepted hunk 1 of 2 and rejected hunk 2" in result(request)
        return call("load_file", path="shop.lisp")

    def try_another_rate(self, request):
        assert re.search(r"1 passed|passed", result(request)), result(request)
        return call("eval_form", form="(setf shop:*rate* 99)")

    def take_back(self, request):
        assert result(request) == "=> 99"
        return call("undo_last")

    def answer(self, request):
        self.undone = result(request)
        return "The discount was the part that was left out; it is repaired and tested."


def person(tool, arguments, request):
    """Accept the fix and not the rest, and let the other calls pass."""
    if tool.name != "propose_file_edit":
        return Approved(shown=None)
    original, modified = arguments["original"], arguments["modified"]
    assert request.effect.count("@@") >= 2
    taken = hunks.accepted(original, modified, [1])
    return Modified({**arguments, "modified": taken}, note=hunks.applied_note(original, modified, [1]))


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "shop"
    place.mkdir()
    for name, text in {"shop.asd": SYSTEM, "shop.lisp": SHOP, "tests.lisp": TESTS}.items():
        (place / name).write_text(text)
    return place


@pytest.mark.contract("agents.pair.scenario")
def test_a_bug_is_found_previewed_fixed_by_hunk_tested_and_a_step_taken_back(project, tmp_path):
    pair = Pair()
    model = ScriptedProvider(*pair.steps())
    journal = SqliteJournal(tmp_path / "state" / "journal.db")
    with live_image("sbcl", project=str(project)) as image:
        registry = image_registry(image, "sbcl", str(project))
        agent = Agent(
            "lisp_pair", "Find the bug and repair it.", "scripted/pair", map(registry.resolve, USED)
        )
        executor = Executor(registry, person, journal=journal)
        limits = Limits(turns=20, tool_seconds=None)
        response = agent.run("A quarter off 200 gives 50?", provider=model, executor=executor, limits=limits)
    assert response.content.endswith("repaired and tested.")
    assert [made.call.name for made in response.calls if not made.result.success] == []
    assert pair.undone == "=> 25"
    assert (project / "shop.lisp").read_text() == FIXED
    edit = next(each for each in journal.records() if each.call.tool == "propose_file_edit")
    assert edit.state is State.DONE
    assert edit.facts.files == ("changed shop.lisp",)
    decided = [entry.facts.ruling for entry in journal.entries(edit.key) if entry.facts.ruling is not None]
    assert [dict(ruling.arguments or {})["modified"] for ruling in decided] == [FIXED]
    assert verify_journal(journal).flaws == ()
    journal.close()
