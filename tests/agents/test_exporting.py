"""Conversations as documents."""

from __future__ import annotations

import msgspec
import pytest

from gramercy.agents.exporting import export_json, export_markdown
from gramercy.agents.talks import SessionTalk
from gramercy.journal.sessions import MemorySessions
from gramercy.providers.base import Message, ModelCall, Usage


@pytest.fixture(name="talk")
def talk_fixture():
    """Return a talk with a call that failed, a summary and a password."""
    talk = SessionTalk.begin(MemorySessions(), "Mend it", agent="mender", model="Scripted/one", name="m-1")
    talk.add(Message("user", "password = 'rose bush 7' is in the shed"))
    talk.add(Message("assistant", "I *look*.", (ModelCall("c", "look", '{"at":"shed"}'),)), Usage(1_000, 20))
    talk.add(Message("tool", "```no```", call_id="c", is_error=True))
    talk.summarize("They looked.", 3)
    return talk


@pytest.mark.contract("agents.memory.export")
def test_a_conversation_is_a_document_to_read(talk):
    text = export_markdown(talk.record, talk.kept)
    assert text.startswith("# Mend it\n\nSession m-1, with mender (Scripted/one), since 20")
    assert "\n\n## 2. assistant, 20" in text
    assert ", Scripted/one, 1,000 tokens in, 20 out\n\nI *look*.\n\ncalls `look`" in text
    assert '```json\n{"at":"shed"}\n```' in text
    assert "## 3. result of look (failed), 20" in text
    assert "````\n```no```\n````" in text
    assert "## 4. summary of the messages up to 3, 20" in text
    assert "rose bush" not in text
    assert "rose bush 7" in export_markdown(talk.record, talk.kept, is_masked=False)


@pytest.mark.contract("agents.memory.export")
def test_a_conversation_is_an_object_for_programs(talk):
    whole = export_json(talk.record, talk.kept)
    assert msgspec.json.decode(msgspec.json.encode(whole)) == whole
    assert (whole["format"], whole["id"], len(whole["said"])) == (1, "m-1", 4)
    assert whole["said"][1]["data"]["calls"][0]["name"] == "look"
    assert "rose bush" not in str(whole)
    assert "rose bush 7" in str(export_json(talk.record, talk.kept, is_masked=False))
