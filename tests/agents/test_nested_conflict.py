"""Two programs on one conversation with a nested agent: who comes second ends, and answers nothing."""

from __future__ import annotations

import pytest

from gramercy import Executor, Registry
from gramercy.agents.talks import SessionTalk
from gramercy.errors import JournalError
from gramercy.journal.sessions import sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.base import Message
from gramercy.testing.provider import ScriptedProvider
from tests.agents.scripts import agent_with, called, no_parameters


@pytest.mark.contract("journal.faults.nested")
@pytest.mark.parametrize("depth", [1, 2])
def test_a_conflict_in_a_nested_conversation_ends_the_outer_run(tmp_path, depth):
    """As the answer of the worker it would drop what the other program does."""
    journal = SqliteJournal(tmp_path / "journal.db")
    sessions = sessions_of(journal)

    def dig():
        # Another program goes on with the worker's conversation.
        ids = [name for (name,) in journal._run("SELECT id FROM sessions ORDER BY LENGTH(id)", ())]
        SessionTalk.resume(sessions, ids[-1]).add(Message("user", "from there"))
        return "a hole"

    inner = agent_with(no_parameters("dig", dig), name="worker")
    for _ in range(depth - 1):
        inner = agent_with(agents=[inner], name="foreman")
    boss = agent_with(agents=[inner], name="boss")
    asks = [called("foreman", message="have it dug")] if depth > 1 else []
    model = ScriptedProvider(*asks, called("worker", message="dig"), called("dig"), "never said", "nor this")
    talk = SessionTalk.begin(sessions, agent="boss", model="Scripted/test")
    with pytest.raises(JournalError, match="another program has gone on with it"):
        boss.run("a hole!", executor=Executor(Registry([]), journal=journal), provider=model, talk=talk)
    assert [each.role for each in sessions.messages(talk.session)] == ["user", "assistant"]
    assert len(model.requests) == depth + 1
    journal.close()
