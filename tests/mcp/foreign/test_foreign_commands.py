"""`gramercy foreign` and `gramercy serve --foreign`, as people use them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.mcp.foreign import connect_server

HERE = Path(__file__).parent
GRAMERCY = [sys.executable, "-W", "error", "-m", "gramercy"]


@pytest.fixture
def word(traces):
    """Return a function that names a stranger on the command line."""
    return lambda mode: (
        f"odd={shlex.join([sys.executable, str(HERE / 'stranger.py'), mode, str(traces.path)])}"
    )


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a command of `gramercy foreign` with a file of pins."""

    def command(*words):
        return subprocess.run(
            [*GRAMERCY, "foreign", *words, "--pins", str(tmp_path / "pins.json")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return command


def test_a_tool_is_new_then_accepted_and_listed_without_its_server(run, word, tmp_path):
    """MCP server, checklist 14: list, accept."""
    assert run("list").stdout == ""
    assert run("list", word("good")).stdout == "new        odd echo\n"
    done = run("accept", word("good"), "echo", "--yes")
    assert (done.returncode, done.stderr) == (0, "accepted odd echo\n")
    assert '"description": "Say it again."' in done.stdout
    assert run("list", word("good")).stdout == "accepted   odd echo\n"
    assert run("list").stdout == "accepted   odd echo\n"
    assert "there is nothing to accept" in run("accept", word("good")).stderr
    assert json.loads((tmp_path / "pins.json").read_text("utf-8"))["servers"]["odd"]["echo"]["digest"]


@pytest.mark.contract("trust.approval.names")
def test_a_name_with_line_breaks_stays_on_its_line(run, word):
    """Trust, 10: on the old code a tool could write a line of the list of its own."""
    name = r"echo\u{a}accepted   odd trusted\u{9}\u{1b}[2J"
    listed = run("list", word("lines")).stdout.splitlines()
    assert [line.partition("  (")[0].partition("  !")[0] for line in listed] == [
        r"unusable   odd bad\u{a}news",
        f"new        odd {name}",
    ]
    for words in (("show",), ("accept", "--yes")):
        done = run(*words, word("lines"))
        assert f"odd {name}" in done.stdout
        assert not [
            line for line in (done.stdout + done.stderr).splitlines() if line.startswith("accepted   odd")
        ]
    assert json.loads(run("list", word("lines"), "--json").stdout)[1]["tool"] == name
    refused = run("show", word("lines"), "nothing").stderr
    assert name in refused
    assert len(refused.splitlines()) == 1


def test_nothing_is_accepted_when_nobody_can_be_asked(run, word):
    """Guard: nothing is approved because nobody could be asked."""
    done = run("accept", word("good"))
    assert done.returncode == 2
    assert "nobody can be asked here" in done.stderr
    assert run("list").stdout == ""


def test_a_change_is_shown_with_what_hides_in_it(run, word):
    """Other servers: a difference, hidden characters written out and flagged."""
    run("accept", word("good"), "--yes")
    assert run("list", word("hidden")).stdout == "changed    odd echo  ! hidden characters\n"
    shown = run("show", word("hidden"), "echo").stdout
    assert "odd echo: changed" in shown
    assert '  -  "description": "Say it again.",' in shown
    assert '  +  "description": "Say\\u{200b} it \\u{202e}again.' in shown
    assert "  ! hidden: U+202E RIGHT-TO-LEFT OVERRIDE (once)" in shown
    assert shown.isascii()


def test_a_tool_that_is_gone_is_told_and_forgotten(run, word):
    """Other servers: removed tools are told."""
    run("accept", word("good"), "--yes")
    assert "removed    odd echo" in run("list", word("odd")).stdout
    assert "forgot odd echo" in run("accept", word("odd"), "echo", "--yes").stderr
    assert run("list").stdout == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["list", "nonsense"], "expected NAME=COMMAND or NAME=URL"),
        (["list", "odd='"], "cannot be read: No closing quotation"),
        (["list", "odd=/nowhere/at/all"], "cannot be started"),
        (["list", "odd=http://127.0.0.1:9/"], "there is no connection"),
    ],
)
def test_a_server_that_cannot_be_reached_is_one_message_and_a_code(run, words, complaint):
    """Style: never a traceback to a user."""
    done = run(*words)
    assert done.returncode == 3
    assert done.stderr.startswith("gramercy: ")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_tool_that_is_not_there_is_told_with_those_that_are(run, word):
    """Style: messages say what to try."""
    done = run("show", word("good"), "ecko")
    assert done.returncode == 3
    assert "the server has no tool 'ecko'; there are: echo" in done.stderr


def served(tmp_path, word, *words):
    # The clients here pass no variables on, and nobody decides.
    pins = ("--foreign-pins", str(tmp_path / "pins.json"), "--approval-wait", "0.2")
    return [*GRAMERCY, "serve", "--foreign", word, *pins, *words]


def test_serve_passes_accepted_tools_on(run, word, tmp_path):
    """MCP server, checklist 14: another server's tool, through two servers, at the level of a rule."""
    run("accept", word("good"), "--yes")
    command = served(tmp_path, word("good"), "--foreign-rule", "odd__echo=safe")
    with connect_server(command, name="outer") as outer:
        (tool,) = outer.tools()
        assert (tool.name, tool.parts["annotations"]["readOnlyHint"]) == ("odd__echo", True)
        assert outer.call("odd__echo", {"text": "through"})["content"][0]["text"] == "through"


def test_serve_has_them_dangerous_and_only_when_accepted(run, word, tmp_path):
    """MCP server, checklist 14: dangerous unless a rule says otherwise."""
    with connect_server(served(tmp_path, word("good")), name="outer") as outer:
        assert outer.tools() == []
    run("accept", word("good"), "--yes")
    with connect_server(served(tmp_path, word("good")), name="outer") as outer:
        (tool,) = outer.tools()
        assert tool.parts["annotations"]["destructiveHint"] is True
        assert outer.call("odd__echo", {})["isError"] is True
    with connect_server(served(tmp_path, word("good"), "--max-safety", "safe"), name="outer") as outer:
        assert outer.tools() == []


def test_serve_tells_what_it_refuses_and_ends_with_its_client(run, word, tmp_path, traces):
    """MCP server, checklist 10: a clean end in under a second, children reaped."""
    run("accept", word("hidden"), "--yes")
    traces.path.unlink()
    with subprocess.Popen(
        served(tmp_path, word("good"), "--foreign-rule", "odd__ecko=safe"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "gramercy: odd: changed since you accepted them, refused until you accept the change: echo\n"
        )
        assert process.stderr.readline() == (
            "gramercy: the rule for odd__ecko has no effect: no such tool was accepted\n"
        )
        process.communicate(timeout=5)
        assert process.returncode == 0
    assert traces.lines() == ["started"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--foreign-rule", "odd__echo"], "expected SERVER__TOOL=LEVEL"),
        (["--foreign-rule", "odd__echo=sfae"], "unknown safety level 'sfae'"),
        (["--foreign-rule", "other__echo=safe"], "fits no server"),
        (["--foreign", "odd=true"], "two servers have the same name"),
    ],
)
def test_serve_refuses_rules_and_names_that_make_no_sense(word, words, complaint, tmp_path):
    """Style: messages say what, which, expected."""
    done = subprocess.run(
        served(tmp_path, word("good"), *words),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 3
    assert complaint in done.stderr


def test_a_token_for_an_address_comes_from_the_environment(tmp_path):
    """MCP server, checklist 11: servers over HTTP want a token by default."""
    (tmp_path / "token").write_text("a-token-of-sufficient-length-1234", encoding="utf-8")
    (tmp_path / "token").chmod(0o600)
    notes = str(HERE.parents[2] / "examples" / "notes.py")
    words = ["serve", "--from", notes, "--http", "127.0.0.1:0", "--token-file", str(tmp_path / "token")]
    with subprocess.Popen(
        [*GRAMERCY, *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        pins = ["--pins", str(tmp_path / "pins.json")]
        command = [*GRAMERCY, "foreign", "list", f"my-notes={url}", *pins]
        outside = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        known = {**os.environ, "GRAMERCY_FOREIGN_TOKEN_MY_NOTES": "a-token-of-sufficient-length-1234"}
        inside = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=known)
        process.terminate()
        process.wait(20)
    assert (outside.returncode, outside.stdout) == (3, "")
    assert "does not let us in (status 401)" in outside.stderr
    assert "new        my-notes read_note" in inside.stdout
