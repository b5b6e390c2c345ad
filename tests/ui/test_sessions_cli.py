"""`gramercy sessions`: conversations as a person finds them again."""

import json

import pytest

from gramercy.journal.base import NewCall, State
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import sessions_of


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
