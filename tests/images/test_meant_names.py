"""A misspelled name in evaluated code comes back with the names that may have been meant."""

from __future__ import annotations

import pytest

CASES = {
    "sbcl": [
        ("(defun grow (x) x)\n(grwo 1)", "GROW"),
        ("(defun grow (x) x)\n(grov 1)", "GROW"),
        ("(defvar *plants* 1)\n*palnts*", "*PLANTS*"),
    ],
    "python": [
        ("def grow(x): return x\ngrwo(1)", "grow"),
        ("plants = 1\nplnats", "plants"),
        ("import json\njson.dmups(1)", "dumps"),
        ("'x'.spilt()", "split"),
        ("class Plant:\n  def __init__(self): self.height = 1\nPlant().hieght", "height"),
        ("def f(amount):\n  return amuont\nf(1)", "amount"),
        ("class A:\n  tall = 1\nclass B(A): pass\nB.tlal", "tall"),
    ],
}
SLY = """
class Sly:
    def __dir__(self): raise SystemExit
    def __getattr__(self, name): raise AttributeError(name=name, obj=self)
Sly().zzzzzzzzz
"""
SILENT = {
    "sbcl": [
        "(qwertyuiopasdf 1)",
        "m",
        "(xy 1)",
        "import",
        "(*features* 1)",
        "(error 'undefined-function :name 3)",
    ],
    "python": [
        "qwertyuiopasdf",
        "raise AttributeError('none of ours')",
        "raise NameError('none', name=3)",
        "class Odd(AttributeError):\n  @property\n  def name(self): raise SystemExit\nraise Odd('x')",
        SLY,
    ],
}


@pytest.mark.contract("answers.meant")
def test_a_slip_is_recognized(image):
    """Answers: did-you-mean also for evaluated code, where two letters have changed places as well."""
    for code, meant in CASES[image.language]:
        reply = image.evaluate(code)
        assert not reply.ok
        assert meant in reply.error.suggestions, code


def test_nothing_is_guessed_where_nothing_is_near(image):
    """Bad input: objects that lie about their names, and errors that name nothing."""
    for code in SILENT[image.language]:
        reply = image.evaluate(code)
        assert (reply.ok, reply.error.suggestions) == (False, []), code
        assert reply.error.type != "SystemExit"
