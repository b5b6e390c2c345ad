"""What callers of a server read of a journal that all processes share."""

import pytest

from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.opening import open_journal
from gramercy.workbench.audit import Audit

QUESTION = Question("pay?", "s", {}, "it is dangerous")


def pay(principal, session, word):
    return NewCall("1", "pay", "dangerous", {"word": word}, principal=principal, session=session)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    opened = open_journal("memory" if request.param == "memory" else tmp_path / "journal.db")
    yield opened
    opened.close()


def asked(journal, call, *, approved, reason):
    key = journal.begin(call, State.AWAITING, Facts(question=QUESTION))
    ruling = Ruling(approved=approved, by="ada", seal="s", reason=reason)
    journal.move(key, State.READY if approved else State.DENIED, Facts(ruling=ruling, detail="said no"))


@pytest.mark.contract("journal.audit.resource")
def test_callers_see_the_calls_of_their_server_and_the_contents_of_their_own(journal):
    asked(journal, pay("me", "here", "mine"), approved=True, reason="fine")
    asked(journal, pay("you", "here", "yours"), approved=True, reason="hidden")
    asked(journal, pay("me", "elsewhere", "other"), approved=True, reason="else")
    first, second = Audit(journal, "here").text("me").splitlines()
    assert "pay: requested → awaiting approval → approved; " in first
    assert '{"word":"mine"}; approved with the words: fine' in first
    assert second.endswith("pay: requested → awaiting approval → approved")


def test_the_words_of_a_refusal_are_not_told_as_an_approval(journal):
    asked(journal, pay("me", "here", "mine"), approved=False, reason="never")
    assert "approved with" not in Audit(journal, "here").text("me")
