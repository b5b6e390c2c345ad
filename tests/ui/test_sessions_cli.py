"""`gramercy sessions`: conversations as a person finds them again."""

import json

import pytest

from gramercy.agents.talks import SessionTalk
from gramercy.journal.base import NewCall, State
from gramercy.journal.opening import default_place, open_journal
from gramercy.journal.sessions import sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.base import Message, ModelCall, Usage


@pytest.fixture(name="talk")
def talk_fixture(tmp_path, monkeypatch):
    """Fill the user's own journal with two conversations; return the id of the first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    journal = open_journal()
    sessions = sessions_of(journal)
    name = sessions.begin("Mend the fence", agent="mender", model="m-1", project="/garden")
    sessions.add(name, "user", "Mend the fence by the gate")
    sessions.add(name, "assistant", "Done; password = 'rose bush 7' is in the shed", call=7)
    journal.note(NewCall("1", "read_file", "safe", {}, session=name), State.DONE)
    other = sessions.begin("Paint it")
    sessions.add(other, "user", "the fence in green")
    journal.close()
    return name


@pytest.mark.contract("journal.policy.sessions")
def test_conversations_are_listed_and_shown(inside, talk):
    lines = inside("sessions", "list").stdout.splitlines()
    assert lines[0].split() == ["session", "age", "messages", "agent", "title"]
    assert [line.split()[-1] for line in lines[1:]] == ["it", "fence"]
    shown = inside("sessions", "show", talk)
    assert shown.stdout.startswith("Mend the fence, with mender (m-1), in /garden, since 20")
    assert "\n1  user, 20" in shown.stdout
    assert "assistant, 20" in shown.stdout
    assert ", call 7\nDone; password = " in shown.stdout
    assert "rose bush" not in shown.stdout
    assert f"gramercy audit show --session {talk}" in shown.stderr
    assert "Mend" not in inside("sessions", "show", talk, "--after", "1").stdout.partition("\n")[2]


@pytest.mark.contract("journal.policy.sessions-search")
def test_words_are_found_with_the_conversation_above_them(inside, talk):
    lines = inside("sessions", "search", "fence").stdout.splitlines()
    assert lines[0].endswith("  Paint it")
    assert lines[1] == "     1  user: the fence in green"
    assert lines[2] == f"{talk}  Mend the fence"
    assert inside("sessions", "search", "the fence by").stdout.splitlines()[0].startswith(talk)
    assert inside("sessions", "search", "fence the").stderr == "nothing was found\n"
    assert len(inside("sessions", "search", "fence", "--project", "/garden").stdout.splitlines()) == 2


@pytest.mark.usefixtures("talk")
def test_a_journal_that_is_not_there_is_told_and_not_made(inside, tmp_path):
    """A mistyped place gave an empty list, and left directories and a database behind."""
    done = inside("sessions", "list", "--journal", "missing/journal.db")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"there is no journal {tmp_path}/missing/journal.db yet" in done.stderr
    assert not (tmp_path / "missing").exists()
    assert (
        inside("sessions", "list", "--project", "/other").stderr == "there are no conversations in /other\n"
    )


def test_programs_get_no_secrets_unless_they_are_asked_for(inside, talk):
    for words in (
        ["show", talk, "--json"],
        ["search", "shed", "--json"],
        ["export", talk, "--format", "json"],
    ):
        text = inside("sessions", *words).stdout
        assert "password" in text
        assert "rose bush" not in text
    assert "rose bush" in inside("sessions", "export", talk, "--format", "json", "--secrets").stdout


def test_programs_get_all_of_it(inside, talk):
    assert {each["title"] for each in json.loads(inside("sessions", "list", "--json").stdout)} == {
        "Mend the fence",
        "Paint it",
    }
    whole = json.loads(inside("sessions", "show", talk, "--json").stdout)
    assert [message["call"] for message in whole["said"]] == [0, 7]
    (found,) = json.loads(inside("sessions", "search", "gate", "--json").stdout)
    assert (found["session"]["id"], found["message"]["number"]) == (talk, 1)


def test_a_conversation_is_removed_only_when_the_person_says_so(inside, talk):
    assert inside("sessions", "remove", talk).returncode == 2
    assert inside("sessions", "remove", talk, "--yes").returncode == 0
    gone = inside("sessions", "show", talk)
    assert (gone.returncode, f"there is no session {talk}" in gone.stderr) == (1, True)
    assert inside("sessions", "remove", talk, "--yes").returncode == 1


def test_without_any_that_is_told(inside, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = inside("sessions", "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "there are no conversations yet\n")


@pytest.fixture(name="used")
def used_fixture(tmp_path, monkeypatch):
    """Fill the user's own journal with two talks of agents that have used tools; return their ids."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    journal = open_journal()
    sessions = sessions_of(journal)
    for name, model in (("one-1", "Local/small"), ("two-2", "Nobody/large")):
        talk = SessionTalk.begin(sessions, agent="mender", model=model, project="/garden", name=name)
        call = ModelCall("c", "look", '{"at": "shed"}')
        talk.add(Message("user", f"Mend the fence of {name}; token=sk-live-0123456789abcdefghij"))
        talk.add(Message("assistant", "", (call, call)), Usage(1_000, 20, 600))
        talk.add(Message("tool", "nothing", call_id="c"))
        talk.add(Message("tool", "nothing", call_id="c"))
        inner, _ = talk.nested(call, "helper")
        inner.add(Message("assistant", "helped"), Usage(100, 10))
        talk.add(Message("assistant", "Done."), Usage(1_100, 5))
    journal.close()
    return "one-1", "two-2"


@pytest.mark.contract("agents.memory.stats")
def test_what_was_used_is_counted(inside, used):
    """Observability: gramercy sessions stats."""
    lines = inside("sessions", "stats").stdout.splitlines()
    assert lines[0].split() == [
        "day", "sessions", "answers", "tokens", "in", "cached", "tokens", "out", "calls", "cost",
    ]  # fmt: skip
    assert lines[2].split()[:7] == ["all", "2", "6", "4,400", "1,200", "70", "4"]
    assert "tools: look 4" in lines
    by = inside("sessions", "stats", "--by", "session").stdout
    assert [line.split()[:4] for line in by.splitlines()[1:3]] == [
        [used[0], "1", "3", "2,200"],
        [used[1], "1", "3", "2,200"],
    ]
    tools = inside("sessions", "stats", "--by", "tool").stdout.splitlines()
    assert tools[:2] == ["tool  calls", "look  4"]
    one = json.loads(inside("sessions", "stats", "one-1", "--by", "model", "--json").stdout)
    assert one["all"]["usage"] == {"input": 2200, "output": 35, "cached": 600, "cache_written": 0}
    assert one["groups"]["Local/small"]["tools"] == {"look": 2}
    inside("sessions", "fork", "one-1")
    assert inside("sessions", "stats").stdout.splitlines() == lines
    assert inside("sessions", "stats", "--since", "2099-01-01").stderr == "no agent has answered yet\n"
    assert inside("sessions", "stats", "--project", "/other").stderr == "no agent has answered yet\n"


@pytest.mark.contract("agents.memory.export")
def test_a_conversation_is_exported(inside, used, tmp_path):
    text = inside("sessions", "export", "one").stdout
    assert text.startswith("# Mend the fence of one-1")
    assert "calls `look`" in text
    assert "sk-live" not in text
    whole = json.loads(inside("sessions", "export", used[0], "--format", "json", "--secrets").stdout)
    assert "sk-live-0123456789abcdefghij" in whole["said"][0]["text"]
    file = tmp_path / "talk.md"
    done = inside("sessions", "export", used[0], "-o", str(file))
    assert (done.stdout, done.stderr) == ("", f"5 messages in {file}\n")
    assert file.read_text() == text
    failed = inside("sessions", "export", used[0], "-o", str(tmp_path / "no" / "where"))
    assert (failed.returncode, "cannot be written" in failed.stderr) == (1, True)


@pytest.mark.contract("agents.memory.fork")
def test_a_conversation_is_forked_and_renamed(inside, used):
    new = inside("sessions", "fork", used[0], "--at", "1").stdout.strip()
    assert json.loads(inside("sessions", "show", new, "--json").stdout)["messages"] == 1
    assert inside("sessions", "rename", new, "Paint it").returncode == 0
    assert inside("sessions", "show", "paint it").stdout.startswith("Paint it, with mender")
    assert inside("sessions", "search", "paint").stdout.splitlines() == [f"{new}  Paint it"]
    failed = inside("sessions", "fork", used[0], "--at", "99")
    assert (failed.returncode, "messages 1 to 5" in failed.stderr) == (1, True)


def test_calls_are_shown_and_nested_conversations_are_not_listed(inside, used):
    shown = inside("sessions", "show", used[0]).stdout
    assert '-> look {"at": "shed"}' in shown
    assert "sk-live" not in shown
    listed = inside("sessions", "list").stdout
    assert len(listed.splitlines()) == 3
    assert "sk-live" not in listed


@pytest.mark.contract("agents.memory.damaged")
def test_a_damaged_conversation_is_named(inside, used):
    journal = SqliteJournal(default_place())
    with_damage = "UPDATE messages SET data = '{' WHERE session = 'one-1' AND number IN (1, 2)"
    journal._write(lambda: journal._run(with_damage, ()), is_lasting=False)
    journal.close()
    for command in (["stats"], ["search", "fence"]):
        done = inside("sessions", *command)
        assert (done.returncode, "warning: session one-1 has messages" in done.stderr) == (0, True)
        assert "two-2" in done.stdout or "all" in done.stdout
    assert "(damaged: " in inside("sessions", "show", used[0]).stdout
