"""`--json`: every command that prints facts has it, and errors have a shape too."""

import json

import click
import pytest

from gramercy.ui.cli.main import cli
from gramercy.ui.cli.terminal import json_text

# A prompt, a server and a show print no facts; to accept is to look and answer, or to say --yes.
# What deletes, renames, forks or installs says so in a sentence or with a name; an export has its own format.
WITHOUT = {
    "acp",
    "chat",
    "models install",
    "repl",
    "serve",
    "sessions export",
    "sessions fork",
    "sessions rename",
    "tools export",
    "tour",
    "trust",
    "foreign accept",
    "audit export",
    "audit prune",
    "audit redact",
    "sessions remove",
}
NOTES = (
    "from gramercy import tool\n\n\n@tool\ndef read_note(title: str) -> str:\n"
    '    """Return a note.\n\n    Args:\n        title: Which one.\n    """\n    return title\n'
)


def commands(names, command):
    if not isinstance(command, click.Group):
        yield names, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(f"{names} {name}".strip(), command.get_command(context, name))


@pytest.mark.contract("day.prompt.json")
def test_every_command_that_prints_facts_has_json():
    found = {
        names: any("--json" in parameter.opts for parameter in command.params)
        for names, command in commands("", cli)
    }
    assert {names for names, has_json in found.items() if not has_json} == WITHOUT


@pytest.mark.contract("day.prompt.json")
@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["eval", "1", "--json", "--language", "cobol"], "BadParameter", 2),
        (["eval", "1", "--json", "--project", "/"], "SandboxError", 3),
        (["eval", "--json"], "MissingParameter", 2),
        (["tools", "show", "red_note", "--from", "notes.py", "--json"], "UnknownToolError", 2),
        (["tools", "list", "--from", "none.py", "--json"], "SourceError", 3),
        (["config", "show", "--json", "--tiemout", "1"], "NoSuchOption", 2),
        (["install", "--client", "generic", "--write", "--json"], "UsageError", 2),
    ],
)
def test_what_cannot_be_done_is_an_object_on_standard_output(inside, tmp_path, words, kind, code):
    (tmp_path / "notes.py").write_text(NOTES)
    done = inside(*words)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, done.stderr) == (code, "")
    assert (error["type"], error["exit_code"], bool(error["message"])) == (kind, code, True)


def test_words_after_two_dashes_ask_for_nothing(inside):
    done = inside("eval", "--language", "cobol", "--", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_tool_is_shown_with_its_schema(inside, tmp_path):
    (tmp_path / "notes.py").write_text(NOTES)
    shown = json.loads(inside("tools", "show", "read_note", "--from", "notes.py", "--json").stdout)
    assert list(shown) == ["name", "description", "safety_level", "categories", "schema"]
    assert shown["schema"]["properties"]["title"]["type"] == "string"


def test_what_a_client_needs_is_an_entry_and_a_file(inside, home, tmp_path):
    words = ["install", "--client", "claude-code", "--scope", "project", "--project", "garden", "--json"]
    shown = json.loads(inside(*words).stdout)
    file = tmp_path / "garden" / ".mcp.json"
    assert (shown["client"], shown["file"], shown["changed"]) == ("claude-code", str(file), False)
    assert "serve" in shown["entry"]["args"]
    assert json.loads(shown["text"])["mcpServers"]["gramercy"] == shown["entry"]
    done = json.loads(inside(*words, "--write", "--no-check").stdout)
    assert (done["changed"], done["backup"], file.exists()) == (True, None, True)
    done = json.loads(inside(*words, "--remove", "--write").stdout)
    assert (done["changed"], done["backup"]) == (True, f"{file}.gramercy.bak")
    assert home.exists()


def test_no_accepted_tools_are_an_empty_list(inside, tmp_path):
    done = inside("foreign", "list", "--pins", str(tmp_path / "pins.json"), "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    told = inside("foreign", "list", "--pins", str(tmp_path / "pins.json"))
    assert (told.stdout, "nothing was accepted yet" in told.stderr) == ("", True)


@pytest.mark.parametrize("text", ["\x85", "\u202e", "\x1b[31m", "é\n\t", "\U000e0001", "a\x00"])
def test_what_does_not_print_is_json_all_the_same(text):
    written = json_text({"text": text})
    assert json.loads(written) == {"text": text}
    assert written.replace("\n", "").isprintable()


def test_why_names_the_decision_and_runs_nothing(inside, tmp_path):
    text = NOTES.replace("@tool", "@tool(safety_level='dangerous')").replace(
        "return title", "raise SystemExit"
    )
    (tmp_path / "notes.py").write_text(text)
    (tmp_path / "policy.toml").write_text('[[rules]]\naction = "deny"\ntools = ["read_*"]\nreason = "no"\n')
    words = ["tools", "why", "read_note", "title=a", "--from", "notes.py"]
    assert inside(*words).stdout.startswith("ask: no rule matches")
    done = inside(*words, "--policy", "policy.toml", "--json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["tool"], shown["action"]) == (0, "read_note", "deny")
    assert "rule 1" in shown["explanation"]
    assert json.loads(inside(*words, "--max-safety", "safe", "--json").stdout)["action"] == "deny"
    assert inside("tools", "why", "read_note", "titel=a", "--from", "notes.py").returncode == 1
