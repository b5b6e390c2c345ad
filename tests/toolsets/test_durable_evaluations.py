"""Approvals of evaluations that outlive the server, and with it the image, that asked for them."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from gramercy import Approved, Executor, Policy, Registry
from gramercy.execution.approval import decide
from gramercy.images.opening import open_image
from gramercy.journal.base import State
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.sqlite import SqliteJournal
from gramercy.tools.context import Call, enter_call, leave_call
from gramercy.toolsets.core import register_core_tools
from gramercy.workbench.recording import recorded, typed_call

ASK = Policy([{"action": "ask", "tools": ["eval_form"]}])
CALL = {"id": "1", "name": "eval_form", "arguments": {"form": "open('paid.txt', 'a').write('x')"}}


class Returning(Call):
    """A client who comes back with the same call."""

    @property
    def identity(self):
        return "the same call"


class Server:
    """The executor of a server with an image of its own."""

    def __init__(self, project, path, wait=0.2):
        self.image, self.journal = open_image("python", project=project), SqliteJournal(path)
        registry = Registry()
        register_core_tools(registry, self.image, project=project)
        self.executor = Executor(
            registry, journal=self.journal, policy=ASK, approval_wait=wait, approval_expiry=3600.0
        )

    def call(self):
        token = enter_call(Returning())
        try:
            return self.executor.execute(CALL)
        finally:
            leave_call(token)

    def end(self):
        """End as a kill does: nothing is told to the journal."""
        self.image.close()
        self.journal.close()


@contextmanager
def serving(project, path):
    server = Server(project, path)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def approve_what_waits(path):
    """Approve in a third process, and return what was asked."""
    journal = SqliteJournal(path)
    try:
        (record,) = journal.records([State.AWAITING])
        question = record.facts.question
        assert question is not None
        decide(journal, record.key, question.seal, Approved("person elsewhere"))
        return question
    finally:
        journal.close()


@pytest.mark.contract("journal.images.seal.restart")
def test_an_approval_for_a_fresh_image_holds_after_a_restart_of_the_server(project, tmp_path):
    path, paid = tmp_path / "journal.db", project / "paid.txt"
    with serving(project, path) as server:
        assert not server.call().success
    question = approve_what_waits(path)
    # What was tried in the copy is there for whoever decides, in any process.
    assert any("paid.txt" in each for each in question.effect["would_touch"])
    assert question.effect["state"].endswith(" at fresh")
    assert not paid.exists()
    with serving(project, path) as server:
        result = server.call()
        assert result.success, result.content
        assert paid.read_text() == "x"


@pytest.mark.contract("journal.images.seal.gone")
def test_an_approval_for_a_state_that_is_gone_is_asked_for_again(project, tmp_path):
    path, paid = tmp_path / "journal.db", project / "paid.txt"
    with serving(project, path) as server:
        server.image.evaluate("account = 1")
        assert not server.call().success
    approve_what_waits(path)
    with serving(project, path) as server:
        assert not server.call().success
        assert not paid.exists()
        question = approve_what_waits(path)
        assert any("acts on has changed" in change for change in question.changes)
        assert server.call().success
        assert paid.read_text() == "x"


def test_what_a_person_typed_tells_where_it_ran_too(project):
    journal, image = MemoryJournal(), open_image("python", project=project)
    try:
        call = typed_call("repl", "open('a.txt', 'w').close()", project)
        reply = recorded(journal, call, lambda: image.evaluate("open('a.txt', 'w').close()"))
    finally:
        image.close()
    facts = journal.records()[0].facts
    assert facts.files == ("created a.txt",)
    assert (facts.before, facts.after, facts.epoch) == (reply.span.before, reply.span.after, reply.span.epoch)
    assert facts.sandbox
