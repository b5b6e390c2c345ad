"""A real server for a client that cannot show questions: what it is told and when; the modes of a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from time import monotonic

import pytest

from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from gramercy.journal.watchers import is_watched, watching
from gramercy.testing.clients import StdioClient
from gramercy.ui.cli.inbox import code_of, seal_of, waiting_calls

BOUND = 60
# Far below the 50 s that a call waits for a person who watches, far above what an answer takes.
AT_ONCE = 30


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    # As a person has it: the wait is not set.
    monkeypatch.delenv("GRAMERCY_APPROVAL_WAIT", raising=False)
    opened = open_journal()
    yield opened
    opened.close()


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    (place / "notes.txt").write_text("one\ntwo\n")
    return place


@pytest.fixture
def serve(journal, project):
    """Return what serves the project to a client without elicitation."""
    assert journal.run_directory is not None
    met = []

    def start(*options):
        met.append(StdioClient.serve("--image", "python", *options, cwd=project))
        met[-1].initialize()
        return met[-1]

    yield start
    for client in met:
        said = client.errors()
        client.close()
        assert "Traceback (" not in said


def begin(client, tool, **arguments):
    return client.begin("tools/call", name=tool, arguments=arguments)


def called(client, tool, **arguments):
    number = begin(client, tool, **arguments)
    answer = client.message()
    assert answer["id"] == number
    return answer["result"]["isError"], answer["result"]["content"][0]["text"]


def edited(client, path="notes.txt", old="two", new="2"):
    return called(client, "edit_file", path=path, old=old, new=new)


@pytest.mark.contract("clients.mute.at-once")
def test_a_client_that_cannot_ask_is_told_at_once_where_to_decide(serve, journal, project, gramercy):
    """A day's real work: every edit of such a client hung for 50 s, though no person looked."""
    client = serve()
    begun = monotonic()
    is_error, text = edited(client)
    assert monotonic() - begun < AT_ONCE
    [record] = waiting_calls(journal)
    assert is_error
    assert f"gramercy approvals approve {record.key}" in text
    assert "--mode edits" in text
    assert (project / "notes.txt").read_text() == "one\ntwo\n"
    done = gramercy("approvals", "approve", str(record.key), "--seal", code_of(seal_of(record)))
    assert done.returncode == 0, done.stderr
    assert edited(client)[0] is False
    assert (project / "notes.txt").read_text() == "one\n2\n"
    # A lasting condition is told once.
    assert "--mode edits" not in edited(client, old="one", new="1")[1]


@pytest.mark.contract("clients.mute.watched")
def test_a_call_waits_for_a_person_who_watches_its_project(serve, journal, project, until, gramercy):
    """A day's real work: where a person looks, the call waits for them."""
    words = [sys.executable, "-m", "gramercy", "approvals", "watch", "--json", "--project", str(project)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ}) as watcher:
        try:
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == b'{"pending": []}\n'
            client = serve()
            number = begin(client, "edit_file", path="notes.txt", old="two", new="2")
            until(lambda: waiting_calls(journal))
            [record] = waiting_calls(journal)
            assert gramercy("approvals", "deny", str(record.key)).returncode == 0
            answer = client.message()
            assert answer["id"] == number
            assert "User denied tool execution" in answer["result"]["content"][0]["text"]
            assert journal.record(record.key).state is State.DENIED
        finally:
            watcher.kill()


def test_a_watcher_that_was_killed_watches_no_longer(tmp_path):
    """The file of a process that could not remove it counts for nothing, and is removed."""
    place = tmp_path / "run"
    code = (
        "import os, signal, pathlib\nfrom gramercy.journal.watchers import watching\n"
        f"with watching(pathlib.Path({str(place)!r})): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=BOUND)
    assert len(list(place.iterdir())) == 1
    assert not is_watched(place, "/a")
    assert list(place.iterdir()) == []


def test_a_person_who_watches_one_project_does_not_watch_another(tmp_path):
    """`approvals watch --project` shows no question of other projects."""
    with watching(tmp_path, "/a"):
        assert is_watched(tmp_path, "/a")
        assert not is_watched(tmp_path, "/b")
    with watching(tmp_path):
        assert is_watched(tmp_path, "/b")
    assert not is_watched(tmp_path, "/a")


@pytest.mark.contract("clients.mode.edits")
def test_in_the_mode_edits_a_file_is_edited_as_freely_as_evaluated_code_writes_it(serve, journal, project):
    """A day's real work: one rule for both roads, and undo takes both back."""
    client = serve("--mode", "edits")
    assert edited(client)[0] is False
    assert called(client, "write_file", path="new.txt", content="new\n")[0] is False
    assert called(client, "write_file", path="notes.txt", content="all new\n")[0] is False
    assert (project / "notes.txt").read_text() == "all new\n"
    called(client, "undo_last")
    assert (project / "notes.txt").read_text() == "one\n2\n"
    called(client, "undo_last")
    assert not (project / "new.txt").exists()
    record = journal.records([State.DONE])[-1]
    assert record.facts.ruling is None or record.facts.ruling.by == "the mode edits"


@pytest.mark.contract("clients.mode.edits")
def test_the_mode_edits_leaves_control_files_and_rules_as_they_are(serve, journal, project):
    """Control files always ask; what a person has written a rule about is decided by the rule."""
    (project / "gramercy-policy.toml").write_text(
        '[[rules]]\naction = "deny"\ntools = ["edit_file"]\narguments = { path = "notes.txt" }\n'
        '[[rules]]\naction = "ask"\ntools = ["write_file"]\narguments = { path = "asked.txt" }\n'
    )
    client = serve("--mode", "edits")
    assert "says deny" in edited(client)[1]
    assert "was not run yet" in called(client, "write_file", path="asked.txt", content="x\n")[1]
    assert "was not run yet" in called(client, "write_file", path=".envrc", content="x\n")[1]
    assert sorted(record.call.arguments["path"] for record in waiting_calls(journal)) == [
        ".envrc",
        "asked.txt",
    ]
    assert not (project / ".envrc").exists()


@pytest.mark.contract("clients.mode.edits")
def test_the_mode_edits_allows_nothing_where_undo_is_not_served(serve, project):
    """The mode is for edits that can be taken back; without undo_last none can."""
    client = serve("--mode", "edits", "--toolset", "core", "--toolset", "project")
    assert "was not run yet" in edited(client)[1]
    assert (project / "notes.txt").read_text() == "one\ntwo\n"


@pytest.mark.contract("clients.mode.careful")
def test_in_the_mode_careful_an_evaluation_asks_as_an_edit_does(serve):
    """A day's real work: one rule for both roads."""
    client = serve("--mode", "careful")
    assert "was not run yet" in called(client, "evaluate-python", code="1 + 1")[1]
    assert "was not run yet" in edited(client)[1]


@pytest.mark.contract("clients.mute.install")
@pytest.mark.parametrize("client", ["gemini", "opencode", "qwen", "cline"])
def test_install_says_that_a_client_cannot_show_questions(inside, home, client):
    """A day's real work: install knows the client and said nothing."""
    del home
    words = ("install", "--client", client, "--image", "python", "--no-check")
    plain = inside(*words)
    assert "cannot show gramercy's questions" in plain.stderr
    assert "--mode edits" in plain.stderr
    chosen = inside(*words, "--mode", "edits")
    assert "undo_last takes them back" in chosen.stderr
    assert "Control files and other dangerous calls still ask" in chosen.stderr
    assert json.dumps("edits") in chosen.stdout
    assert "cannot show" not in inside("install", "--client", "claude-code", "--no-check").stderr


@pytest.mark.contract("clients.mute.install")
@pytest.mark.parametrize(("typed", "mode"), [("y", "edits"), ("n", "ask")])
def test_install_asks_a_person_at_the_terminal_who_approves_edits(terminal, tmp_path, typed, mode):
    """A day's real work: install offers the rule."""
    words = ("install", "--client", "gemini", "--image", "python", "--no-check", "--write")
    screen = terminal(*words, HOME=str(tmp_path), GEMINI_CLI_HOME=str(tmp_path))
    screen.expect("run after that alone? [y/N]: ")
    screen.send(f"{typed}\n")
    assert screen.end() == 0
    entry = json.loads((tmp_path / ".gemini" / "settings.json").read_text())["mcpServers"]["gramercy"]
    assert entry["args"][-2:] == ["--mode", mode]


@pytest.mark.contract("clients.acp.one-image")
@pytest.mark.parametrize("command", [("acp",), ("tools", "list")])
def test_two_images_where_there_is_one_are_refused(gramercy, command):
    """A day's real work: `acp --image python --image sbcl` kept the last without a word."""
    done = gramercy(*command, "--image", "python", "--image", "sbcl")
    assert done.returncode != 0
    assert "python and sbcl: there is one image here, so name one" in done.stderr


UNASKED = "Evaluated code writes files of the project without a question"


@pytest.mark.contract("trust.roads.chosen")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), UNASKED),
        (("--mode", "ask"), UNASKED),
        (("--mode", "edits"), UNASKED),
        (("--mode", "careful"), "Evaluations ask as edits do."),
        (("--files", "read"), "Evaluated code writes no file of the project."),
        (("--project-access", "read-only"), "Evaluated code writes no file of the project."),
        (("--max-safety", "safe"), ""),
    ],
)
def test_install_says_what_evaluated_code_writes_unasked(inside, home, words, says):
    """Trust: a person who chooses a mode should know that edits ask and evaluations do not."""
    del home
    told = inside("install", "--client", "claude-code", "--image", "python", "--no-check", *words).stderr
    lines = [line for line in told.splitlines() if line.startswith("Evaluat")]
    assert [line.startswith(says) for line in lines] == ([True] if says else [])
    if says == UNASKED:
        assert "--mode careful" in lines[0]
        assert "--files read" in lines[0]


@pytest.mark.contract("trust.roads.chosen")
@pytest.mark.parametrize(("mode", "is_asked"), [("ask", False), ("edits", False), ("careful", True)])
def test_an_evaluation_that_writes_is_asked_about_as_install_says(serve, tmp_path, mode, is_asked):
    """What is written unasked is named in the reply, and undo_last takes it back."""
    client = serve("--mode", mode)
    said = called(client, "evaluate-python", code="open('made.txt', 'w').write('x')")[1]
    assert ("was not run yet" in said) is is_asked
    if not is_asked:
        assert "made.txt" in said
        called(client, "undo_last")
    assert not list(tmp_path.rglob("made.txt"))
