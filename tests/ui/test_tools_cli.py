"""The command line as a person uses it: real processes, real exit codes, data on stdout, the rest not."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.execution.shown import read_back
from gramercy.toolsets import hunks
from tests.support import reap

ROOT = Path(__file__).resolve().parents[2]
NOTES = str(ROOT / "examples" / "notes.py")
BOUND = 60
LOUD = '''
from gramercy import tool


@tool
def double(x: int) -> int:
    """Double a number."""
    print("doubling", x, flush=True)
    return 2 * x
'''


def gramercy(*arguments, stdin="", **environment):
    return subprocess.run(
        [sys.executable, "-m", "gramercy", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )


def test_help_lists_every_command_with_its_own_summary():
    """The static table that keeps help fast must say what the commands themselves say."""
    import importlib

    from gramercy.ui.cli.main import COMMANDS

    shown = " ".join(gramercy("--help").stdout.split())
    for name, (home, text) in COMMANDS.items():
        module, _, attribute = home.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert command.get_short_help_str(limit=200).rstrip(".") == text.rstrip(".")
        assert name in shown
        assert text in shown


def test_version_is_printed():
    import gramercy as package

    assert package.__version__ in gramercy("--version").stdout


def test_list_shows_name_level_and_summary_in_order():
    done = gramercy("tools", "list", "--from", NOTES)
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert (done.returncode, names) == (0, ["read_note", "save_notes", "write_note"])


def test_list_filters_by_level_and_category():
    by_level = gramercy("tools", "list", "--from", NOTES, "--max-safety", "cautious").stdout
    by_category = gramercy("tools", "list", "--from", NOTES, "--category", "files").stdout
    assert "save_notes" not in by_level
    assert by_category.split()[0] == "save_notes"


@pytest.mark.parametrize(
    ("style", "key"), [("openai", "function"), ("anthropic", "input_schema"), ("mcp", "inputSchema")]
)
def test_list_prints_provider_schemas_as_json(style, key):
    done = gramercy("tools", "list", "--from", NOTES, "--json", "--style", style)
    assert all(key in entry for entry in json.loads(done.stdout))


def test_tools_can_come_from_the_environment():
    assert "read_note" in gramercy("tools", "list", GRAMERCY_TOOLS=NOTES).stdout


def test_show_describes_the_arguments():
    shown = gramercy("tools", "show", "write_note", "--from", NOTES).stdout
    assert "title: string, required  The title of the note" in shown
    assert "mode: string, optional" in shown


def test_show_gram_binds_to_the_tool_it_was_made_from():
    """Seed 004, Serialization: what is printed can be read back and bound."""
    from gramercy import ToolSpecification
    from gramercy.workbench.sources import load_tools

    text = gramercy("tools", "show", "write_note", "--gram", "--from", NOTES).stdout
    library = load_tools(NOTES).library()
    assert library.explain_binding(ToolSpecification.from_gram(text)) == ()


@pytest.mark.parametrize("words", [["title=welcome"], ['{"title": "welcome"}'], ["-"]])
def test_call_takes_pairs_json_or_standard_input(words):
    done = gramercy("tools", "call", "read_note", *words, "--from", NOTES, stdin='{"title": "welcome"}')
    assert (done.returncode, done.stdout) == (0, "Read me first.\n")


def test_call_prints_the_whole_result_as_json():
    done = gramercy("tools", "call", "read_note", "title=welcome", "--json", "--from", NOTES)
    result = json.loads(done.stdout)
    assert (result["success"], result["content"], result["error"]) == (True, "Read me first.", None)


def test_what_a_tool_prints_is_not_taken_for_its_result(tmp_path):
    file = tmp_path / "loud.py"
    file.write_text(LOUD)
    done = gramercy("tools", "call", "double", "x=4", "--from", str(file), "--json")
    assert json.loads(done.stdout)["content"] == "8"
    assert "doubling 4" in done.stderr
    assert gramercy("tools", "call", "double", "x=4", "--from", str(file)).stdout == "8\n"


def test_values_are_read_by_the_type_the_tool_wants(tmp_path):
    source = tmp_path / "typed.py"
    source.write_text(
        "from gramercy import tool\n"
        "@tool\n"
        "def repeat(text: str, times: int, loud: bool = False) -> str:\n"
        '    """Repeat."""\n'
        "    return (text.upper() if loud else text) * times\n"
    )
    done = gramercy("tools", "call", "repeat", "text=12", "times=3", "loud=true", "--from", str(source))
    assert done.stdout == "121212\n"
    wrong = gramercy("tools", "call", "repeat", "text=12", "times=three", "--from", str(source))
    assert wrong.returncode == 1
    assert 'times: expected integer, received string "three"' in wrong.stderr


def test_wrong_arguments_are_explained_on_standard_error():
    done = gramercy("tools", "call", "write_note", "titel=x", "text=y", "--from", NOTES)
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean title?" in done.stderr
    assert "Corrected example" in done.stderr


def test_a_failing_tool_gives_exit_code_1_without_traceback():
    done = gramercy("tools", "call", "read_note", "title=nope", "--from", NOTES)
    assert done.returncode == 1
    assert "no note titled 'nope'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dangerous_tool_is_denied_where_nobody_can_type(tmp_path):
    target = tmp_path / "out.txt"
    done = gramercy("tools", "call", "save_notes", f"path={target}", "--from", NOTES)
    assert (done.returncode, target.exists()) == (4, False)
    assert "--approve" in done.stderr
    assert "gramercy approvals approve" in done.stderr


def test_the_person_who_types_can_approve(tmp_path):
    target = tmp_path / "out.txt"
    done = gramercy("tools", "call", "save_notes", f"path={target}", "--approve", "--from", NOTES)
    assert (done.returncode, target.read_text()) == (0, "# welcome\nRead me first.\n")


def test_a_ceiling_holds_even_against_approve(tmp_path):
    target = tmp_path / "out.txt"
    words = ["save_notes", f"path={target}", "--approve", "--max-safety", "cautious", "--from", NOTES]
    done = gramercy("tools", "call", *words)
    assert (done.returncode, target.exists()) == (4, False)
    assert "above the ceiling" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["tools", "list"], 2, "--from"),
        (["tools", "list", "--from", "missing.py"], 3, "does not exist"),
        (["tools", "show", "read_nte", "--from", NOTES], 2, "Did you mean read_note"),
        (["tools", "call", "read_note", "title", "--from", NOTES], 2, "neither a JSON object nor key=value"),
        (["tools", "call", "read_note", '{"title": ', "--from", NOTES], 1, "expected a JSON object"),
        (["tools", "call", "read_note", "--deadline", "0", "--from", NOTES], 2, "deadline"),
        (["tools", "call", "read_note", "title=a", "title=b", "--from", NOTES], 2, "title is given twice"),
        (
            ["tools", "show", "read_note", "--style", "mcp", "--gram", "--from", NOTES],
            2,
            "say one of --json, --gram",
        ),
        (["tools", "list", "--category", "none", "--from", NOTES], 0, "no tool is so safe, or in such a"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_bad_command_lines_get_one_clear_message(words, code, told):
    done = gramercy(*words)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tool_that_hangs_is_given_up_at_its_deadline(tmp_path):
    source = tmp_path / "hanging.py"
    source.write_text(
        'from gramercy import tool\n@tool\ndef spin() -> None:\n    """Never end."""\n    while True: pass\n'
    )
    done = gramercy("tools", "call", "spin", "--deadline", "0.2", "--from", str(source))
    assert done.returncode == 1
    assert "did not finish within 0.2 s" in done.stderr


def test_escape_sequences_of_a_tool_do_not_reach_standard_error(tmp_path):
    source = tmp_path / "loud.py"
    source.write_text(
        "from gramercy import tool\n"
        "@tool\n"
        "def loud() -> None:\n"
        '    """Fail loudly."""\n'
        "    raise ValueError('\\x1b[2Jgone')\n"
    )
    done = gramercy("tools", "call", "loud", "--from", str(source))
    assert "\x1b" not in done.stderr
    assert "gone" in done.stderr


def at_terminal(answers, *arguments):
    """Run the command on a real pseudo-terminal, answer each prompt; return exit code and screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "gramercy", *arguments], {**os.environ, "EDITOR": "true"}
        )
    screen, left = b"", list(answers)
    while select.select([terminal], [], [], 60)[0]:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other end is closed: the process is gone
            break
        if not chunk:
            break
        screen += chunk
        if left and screen.endswith(b": "):
            os.write(terminal, left.pop(0).encode())
    os.close(terminal)
    return reap(pid), screen.decode()


def test_a_person_at_a_terminal_sees_the_call_and_approves(tmp_path):
    target = tmp_path / "out.txt"
    code, screen = at_terminal(["a\n"], "tools", "call", "save_notes", f"path={target}", "--from", NOTES)
    assert (code, target.exists()) == (0, True)
    assert "save_notes (dangerous)" in screen
    assert str(target) in screen
    assert "asks because" in screen


def test_a_person_at_a_terminal_denies_with_a_reason(tmp_path):
    target = tmp_path / "out.txt"
    code, screen = at_terminal(
        ["d\n", "not there\n"], "tools", "call", "save_notes", f"path={target}", "--from", NOTES
    )
    assert (code, target.exists()) == (4, False)
    assert "User denied tool execution: not there" in screen


def test_a_person_at_a_terminal_edits_the_arguments(tmp_path, monkeypatch):
    asked, chosen = tmp_path / "asked.txt", tmp_path / "chosen.txt"
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\nsed -i 's#{asked}#{chosen}#' \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    code, screen = at_terminal(["e\n"], "tools", "call", "save_notes", f"path={asked}", "--from", NOTES)
    assert (code, asked.exists(), chosen.exists()) == (0, False, True)
    assert "changed the arguments before approving" in screen


LEAVING = {
    "Ctrl-C": (["\x03"], 130, "gramercy: interrupted"),
    "Ctrl-D": (["\x04"], 4, "at most once."),
    "Enter": (["\n", "\n"], 4, "User denied tool execution"),
    "Ctrl-C for a reason": (["d\n", "\x03"], 130, "gramercy: interrupted"),
    "Ctrl-D for a reason": (["d\n", "\x04"], 4, "User denied tool execution"),
}


@pytest.mark.parametrize("way", LEAVING)
@pytest.mark.parametrize("columns", [24, 120])
def test_a_person_who_leaves_the_question_has_not_approved(terminal, tmp_path, way, columns):
    """People, approval at the terminal; answers, refusals: who refused, also when nobody did."""
    typed, code, said = LEAVING[way]
    screen = terminal("tools", "call", "save_notes", "path=out.txt", "--from", NOTES)
    screen.resize(columns)
    for prompt, keys in zip(("[a/d/e]: ", "reason: "), typed, strict=False):
        screen.expect(prompt)
        screen.send(keys)
    assert (screen.end(), (tmp_path / "out.txt").exists()) == (code, False)
    # On a line of its own, with the whole call above it.
    assert screen.screen.rstrip("\n").rpartition("\n")[2].endswith(said)
    assert "Traceback" not in screen.screen
    assert 'path: "out.txt"' in screen.screen


@pytest.mark.contract("trust.approval.terminal")
def test_a_long_argument_is_shown_page_by_page_before_anybody_is_asked(terminal, tmp_path):
    """Trust, 7: nothing is cut, and the question comes after the last page."""
    path = "".join(f"{number:05}" for number in range(1_800))
    screen = terminal("tools", "call", "save_notes", f"path={path}", "--from", NOTES)
    screen.expect("leave it -- ")
    screen.send("\n")
    screen.expect("leave it -- ")
    screen.send("r\n")
    screen.expect("approve, deny or edit?")
    lines = [line for line in screen.screen.split("\n") if line.startswith(("| ", "↪"))]
    assert read_back("\n".join(lines)) == f"| {path}"
    screen.send("d no\n")
    assert (screen.end(), list(tmp_path.iterdir())) == (4, [])


@pytest.mark.contract("trust.approval.terminal")
def test_nobody_approves_from_the_middle_of_a_long_call(terminal, tmp_path):
    """Trust, 7: whoever leaves before the end has approved nothing."""
    screen = terminal("tools", "call", "save_notes", f"path={'x' * 9_000}", "--from", NOTES)
    screen.expect("leave it -- ")
    screen.send("q\n")
    assert (screen.end(), list(tmp_path.iterdir())) == (4, [])
    assert "approve, deny or edit?" not in screen.screen
    assert "the question was left without an answer" in screen.screen


@pytest.mark.contract("trust.approval.reason")
def test_a_reason_beside_an_approval_at_the_terminal_is_told(terminal, tmp_path):
    """Trust, 7: the reason that a person gives is kept."""
    screen = terminal("tools", "call", "save_notes", "path=out.txt", "--from", NOTES)
    screen.expect("[a/d/e]: ")
    screen.send("a: but only once\n")
    assert (screen.end(), (tmp_path / "out.txt").exists()) == (0, True)
    assert "[The person who approved it says: but only once]" in screen.screen


EDITOR = """
from pathlib import Path
from gramercy import create_tool
from gramercy.toolsets import hunks

TEXT = {"type": "string"}
edit = create_tool(
    "edit",
    "Edit a text.",
    {"type": "object", "properties": {"original": TEXT, "modified": TEXT}},
    lambda given: Path("out.txt").write_text(given["modified"]) and "edited",
    safety_level="dangerous",
    effect=lambda given: hunks.diff(given["original"], given["modified"], "a.txt"),
    edits=("original", "modified"),
)
"""
BEFORE = "".join(f"line {number}\n" for number in range(1, 501))
EDITS = {
    "a hundred hunks": BEFORE.replace("5\n", "5, changed\n").replace("8\n", "8, changed\n"),
    "one long hunk": BEFORE.replace("line 7\n", "".join(f"new {number}\n" for number in range(500))),
    "one long line": BEFORE.replace("line 7\n", "x" * 9_000 + "\n"),
}


PROMPT, PAGE = "[n p a r SPC A K v q ?] ", "leave it -- "
KEYS = {
    "a hundred hunks": [(PROMPT, "A"), (PAGE, "r"), (PROMPT, "A"), (PROMPT, "q")],
    "one long hunk": [(PAGE, ""), (PAGE, "r"), (PROMPT, "A"), (PROMPT, "q")],
    "one long line": [(PAGE, "r"), (PROMPT, "a"), (PROMPT, "q")],
}


def changes_on(screen):
    """Return the lines that came and went on a screen, in order, each once."""
    lines = [line for line in screen.split("\n") if line.startswith(("+", "-l", "↪"))]
    return list(dict.fromkeys(read_back("\n".join(lines)).split("\n")))


@pytest.mark.contract("trust.approval.terminal")
@pytest.mark.parametrize("case", EDITS)
def test_all_hunks_are_accepted_only_after_all_were_shown(terminal, tmp_path, case):
    """Trust, 7: on the old code A accepted hunks that nobody had seen."""
    (tmp_path / "editor.py").write_text(EDITOR)
    given = json.dumps({"original": BEFORE, "modified": EDITS[case]})
    screen = terminal("tools", "call", "edit", given, "--from", "editor.py")
    for prompt, key in KEYS[case]:
        assert not (tmp_path / "out.txt").exists()
        screen.expect(prompt)
        screen.send(f"{key}\n")
    assert screen.end() == 0
    assert (tmp_path / "out.txt").read_text() == EDITS[case]
    lines = hunks.diff(BEFORE, EDITS[case], "a").split("\n")[2:]
    assert changes_on(screen.screen) == [line for line in lines if line[:1] in {"+", "-"}]


def test_rules_from_a_file_decide_about_a_call(tmp_path):
    """Guard, Policy: first match wins, and the reason is told."""
    target, rules = tmp_path / "notes.md", tmp_path / "policy.toml"
    rules.write_text('[[rules]]\naction = "deny"\ntools = ["save_*"]\nreason = "not on Sundays"\n')
    words = ["save_notes", f"path={target}", "--approve", "--policy", str(rules), "--from", NOTES]
    done = gramercy("tools", "call", *words)
    assert done.returncode != 0
    assert "not on Sundays" in done.stderr
    assert not target.exists()
