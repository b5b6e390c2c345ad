"""Agent files with every fault: each is named by line, column and code, with a hint, before anything runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.hello import HELLO, TOOLS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIGNATURE = '(::Text {paramName:"name"})==>(::String)'
ABOUT = 'description: "Returns a friendly greeting message for the given name"'


@pytest.fixture
def run(inside, tmp_path):
    """Run an agent of this text on a message, with the tool that greets."""

    def start(text, *words, level="safe"):
        (tmp_path / "hello.gram").write_text(text)
        (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", level))
        (tmp_path / "script.jsonl").write_text('"done"\n')
        return inside("run", "hello.gram", "hi", "--tools", "hello.py", "--journal", "memory", *words)

    return start


FAULTS = [
    ("A101", (1, 2), HELLO.replace("  instruction", "  instructions"), "instruction"),
    ("A101", (4, 10), HELLO.replace("Scripted/script.jsonl", "gpt"), "Provider/id"),
    ("A102", None, HELLO.replace("  ]\n]", "  ],\n  sayHello\n]"), "'sayHello'"),
    ("A103", None, HELLO.replace("::Text", "::Txt"), "did you mean Text?"),
    ("A104", None, HELLO.replace('"name"}', '"name", default:1}'), "default of 'name'"),
    ("A105", None, HELLO.replace(ABOUT, 'safety: "safe"'), "no description"),
    ("A107", None, HELLO.replace("  ]\n]", "  ],\n  sayHelo\n]"), "did you mean 'sayHello'"),
    ("A109", (6, 4), HELLO.replace("friendly greeting", "rude greeting"), "rude greeting"),
    ("A109", (6, 4), HELLO.replace("[sayHello", "[sayGoodbye"), "'sayGoodbye'"),
    ("A112", (6, 4), HELLO.replace(ABOUT, f'{ABOUT}, safety: "safe"'), "safe"),
    ("syntax-error", None, HELLO.replace(" |\n  [say", " ;\n  [say"), "expected"),
    ("missing-node", None, HELLO.removesuffix("]\n"), "]"),
    ("duplicate-key", None, HELLO.replace("model:", 'instruction: "x", model:'), "instruction"),
]


@pytest.mark.contract("agents.chat.faults")
@pytest.mark.parametrize(("code", "place", "text", "hint"), FAULTS)
def test_a_fault_of_an_agent_file_is_named_with_its_place(run, code, place, text, hint):
    """Bad input: agent files with every fault A101 to A112."""
    done = run(text, level="dangerous" if code == "A112" else "safe")
    assert (done.returncode, done.stdout) == (3, "")
    told = next(line for line in done.stderr.splitlines() if f" {code} " in line)
    found = re.search(r"hello\.gram:(\d+):(\d+): ", told)
    assert found is not None
    assert place in (None, (int(found[1]), int(found[2])))
    assert hint in told


WARNINGS = [
    ("A106", HELLO.replace('(::Text {paramName:"name"})', "(::Text)"), "'input'"),
    ("A108", HELLO.replace('"name"}', '"name", examples:[["a"]]}'), "not portable"),
]


@pytest.mark.parametrize(("code", "text", "hint"), WARNINGS)
def test_a_warning_is_told(run, code, text, hint):
    done = run(text)
    told = next(line for line in done.stderr.splitlines() if f" {code} " in line)
    assert told.startswith("warning: hello.gram:")
    assert hint in told


def test_a_name_that_is_only_unusual_is_not_told(run):
    """A111 is information: the seed's own agent has such a name."""
    done = run(HELLO)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "A111" not in done.stderr


def test_a_stored_schema_that_differs_is_told_and_the_signature_counts(run):
    done = run(HELLO.replace(ABOUT, f'{ABOUT}, schema:json`{{"type":"object"}}`'))
    assert "warning: hello.gram:7:76:" in done.stderr
    assert " A110 " in done.stderr
    assert done.stdout == "done\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00binary", "hello.gram is not UTF-8 at byte 0"),
        (b"", "there is no agent in this text"),
        (b"[t:Tool]", "hello.gram:"),
    ],
)
def test_what_is_no_agent_is_said_in_one_line(inside, tmp_path, content, says):
    (tmp_path / "hello.gram").write_bytes(content)
    done = inside("run", "hello.gram", "hi", "--journal", "memory")
    assert (done.returncode, done.stdout) == (3, "")
    assert says in done.stderr


@pytest.mark.contract("agents.chat.no-key")
def test_a_missing_key_is_one_line_with_the_ways_to_get_a_model(run, monkeypatch):
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    done = run(HELLO, "--model", "OpenAI/gpt-4o-mini")
    assert (done.returncode, done.stdout) == (3, "")
    told = [line for line in done.stderr.splitlines() if line.startswith("gramercy: ")]
    assert len(told) == 1
    for way in ("OPENAI_API_KEY", "gramercy models install", "Ollama"):
        assert way in told[0]


def test_the_model_of_the_settings_answers_and_that_of_a_project_does_not(run, tmp_path, monkeypatch):
    (tmp_path / "other.jsonl").write_text('"of the setting"\n')
    monkeypatch.setenv("GRAMERCY_MODEL", "Scripted/other.jsonl")
    assert run(HELLO).stdout == "of the setting\n"
    monkeypatch.delenv("GRAMERCY_MODEL")
    (tmp_path / "gramercy.toml").write_text('model = "Scripted/other.jsonl"\n')
    done = run(HELLO)
    assert done.stdout == "done\n"
    assert "model is refused, since a file of the project has no say in who reads along" in done.stderr


@pytest.mark.contract("agents.chat.examples")
@pytest.mark.parametrize(
    ("name", "language", "count"), [("lisp_pair", "sbcl", 18), ("python_pair", "python", 16)]
)
def test_the_pair_programmers_find_all_their_tools(inside, tmp_path, name, language, count):
    """What the examples say about tools must be what the tools are: bound by name, description and schema."""
    if language == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    shutil.copy(EXAMPLES / f"{name}.gram", tmp_path)
    (tmp_path / "script.jsonl").write_text('"ready"\n')
    words = ("run", f"{name}.gram", "hi", "--model", "Scripted/script.jsonl", "--journal", "memory", "--json")
    told = json.loads(inside(*words, "--image", language).stdout)
    assert told["content"] == "ready"
    assert (tmp_path / f"{name}.gram").read_text().count(":ToolSpecification {") == count
    without = inside(*words)
    assert without.returncode == 3
    assert "uses tools of a live image" in json.loads(without.stdout)["error"]["message"]


@pytest.mark.contract("agents.chat.light")
def test_help_does_not_load_what_agents_need(gramercy):
    """A start of `gramercy --help` must not get slower."""
    done = gramercy("--help", PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    heavy = {name for name in loaded if name.startswith(("httpx", "gramercy.agents", "gramercy.providers"))}
    assert done.returncode == 0
    assert heavy == set()
