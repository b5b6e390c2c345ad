"""The real client programs without a person: what they list, what their model is told, what they refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from dataclasses import dataclass

import pytest

from tests.mcp.programs.clients import ClaudeCode, Codex, Gemini, Opencode, Place
from tests.mcp.programs.edits import AFTER, BEFORE, EDIT, FILE, RULES
from tests.mcp.programs.stand_in import Call, Script
from tests.support import png

pytestmark = [pytest.mark.slow, pytest.mark.programs]


@dataclass(frozen=True)
class Story:
    """A run that has ended: what the model has seen, and where."""

    script: Script
    place: Place

    @property
    def file(self) -> str:
        return (self.place.project / FILE).read_text("utf-8")


@pytest.fixture(scope="module")
def tell(program, run, make_place):
    """Return a function that runs a program to the end of a script, in a project with a file."""

    def tell(*calls, rules="", trusted=True, options=()):
        script, place = make_place(*calls)
        (place.project / FILE).write_text(BEFORE)
        (place.home / "rules.toml").write_text(rules)
        program.set_up(place, *options, *(["--policy", str(place.home / "rules.toml")] if rules else []))
        said = run(program, place, program.headless(trusted=trusted))
        assert script.turns, f"its model was not asked: {said[-2000:]}"
        return Story(script, place)

    return tell


@pytest.fixture(scope="module")
def story(tell, evaluation):
    """Run a program whose person trusts the server and lets it edit by a rule."""
    return tell(
        evaluation("half = 21"),
        evaluation("half * 2"),
        Call("describe_symbol", {"symbl": "half"}),
        EDIT,
        Call("write_file", {"path": "b.py", "content": "b = 1\n"}),
        rules=RULES,
    )


@pytest.mark.contract("clients.programs.entry")
def test_its_own_list_shows_the_server_that_install_has_entered(program, run, make_place):
    """Each program reads the entry; all but Codex start the server and say that it answers."""
    _, place = make_place()
    program.set_up(place)
    said = run(program, place, [*program.command(), "mcp", "list"])
    assert "gramercy" in said
    assert ("enabled" if isinstance(program, Codex) else "connected") in said.lower()


@pytest.mark.contract("clients.programs.model")
def test_its_model_is_offered_every_tool_of_the_list(story, served):
    """No program drops a tool, or cuts a description."""
    offered = story.script.offered()
    assert set(offered) == set(served)
    for name, tool in served.items():
        assert tool["description"] in offered[name]["description"]


@pytest.mark.contract("clients.programs.model")
def test_its_model_evaluates_in_a_live_image(story):
    """State stays between the calls of a run."""
    assert "=> 42" in story.script.results[1]


def test_its_model_is_told_what_is_wrong_with_the_arguments(program, story):
    """Every fault with what to write instead; Gemini CLI goes by the schema and does not call."""
    told = "required property 'symbol'" if isinstance(program, Gemini) else "did you mean symbol"
    assert told in story.script.results[2]


def test_an_edit_that_a_rule_allows_is_made(story):
    """Where a person has written a rule, a run without anybody edits."""
    assert story.file == AFTER


@pytest.mark.contract("clients.programs.unattended")
def test_what_needs_a_person_is_refused_and_the_model_is_told_that_no_person_decided(program, story):
    """Claude Code answers the form by itself, and Codex says that it is alone; the others show none."""
    told = story.script.results[4]
    assert not (story.place.project / "b.py").exists()
    assert "write_file was not run" in told
    is_known = isinstance(program, ClaudeCode | Codex)
    assert ("nobody is there to give it" if is_known else "nobody can be asked") in told
    assert "User denied" not in told


@pytest.mark.contract("clients.programs.annotations")
def test_without_the_line_that_trusts_the_server_the_program_decides(program, tell, evaluation):
    """Codex goes by the annotations: it evaluates where files are safe, and leaves edits to a person."""
    story = tell(evaluation("6 * 7"), EDIT, trusted=False, options=("--files", "read"))
    assert story.file == BEFORE
    if isinstance(program, Gemini):
        assert story.script.offered() == {}
    elif isinstance(program, ClaudeCode):
        assert "haven't granted" in story.script.results[0]
    else:
        assert "=> 42" in story.script.results[0]


@pytest.mark.parametrize("program", [ClaudeCode], indirect=True, ids=["claude-code"])
def test_claude_code_finds_deferred_tools_by_what_they_do(program, run, make_place, evaluation):
    """By default its model sees names and our instructions, and searches for the rest."""
    call = evaluation("6 * 7")
    search = Call("ToolSearch", {"query": "evaluate python code in the image", "max_results": 3})
    script, place = make_place(search, call)
    program.set_up(place)
    settings = place.home / ".claude.json"
    settings.write_text(settings.read_text().replace('"alwaysLoad": true', '"alwaysLoad": false'))
    run(program, place, program.headless())
    assert call.tool.replace("-", "_") in script.results[0].replace("-", "_")
    assert "=> 42" in script.results[1]


# Longer than a program needs to its first turn.
LATE = '#!/bin/sh\nsleep 3\nexec {command} "$@"\n'


@pytest.mark.contract("clients.programs.first")
@pytest.mark.parametrize("program", [ClaudeCode, Codex], indirect=True, ids=["claude-code", "codex"])
def test_the_first_turn_waits_for_a_server_that_starts_late(program, run, make_place, evaluation):
    """How, is on the page of the client: a variable for one, an option for the other."""
    script, place = make_place(evaluation("6 * 7"))
    late = place.home / "late"
    late.write_text(LATE.format(command=sys.executable))
    late.chmod(0o700)
    program.set_up(place)
    settings = place.home / (".claude.json" if isinstance(program, ClaudeCode) else ".codex/config.toml")
    entered = f'"{sys.executable}"'
    assert settings.read_text().count(entered) == 1
    settings.write_text(settings.read_text().replace(entered, f'"{late}"'))
    run(program, place, program.headless())
    assert "=> 42" in script.results[0]


@pytest.mark.contract("clients.programs.mute")
@pytest.mark.parametrize("program", [Gemini, Opencode], indirect=True, ids=["gemini", "opencode"])
def test_without_questions_the_model_is_told_how_an_edit_is_decided(program, tell, run):
    """It is told instead of left waiting; decided at a terminal, the same call runs when it is made again."""
    story = tell(EDIT)
    told = story.script.results[0]
    assert story.file == BEFORE
    assert "this client cannot show questions" in told
    assert "Started with --mode edits" in told
    assert "`gramercy approvals approve 1`" in told
    shown = _gramercy(story.place, program, "approvals", "show", "1")
    code = re.findall(r"--seal (\S+)", shown)[-1]
    _gramercy(story.place, program, "approvals", "approve", "1", "--seal", code)
    run(program, story.place, program.headless())
    assert story.file == AFTER
    assert "Edited a.py:2" in story.script.results[0]


@pytest.mark.contract("clients.programs.mute")
@pytest.mark.parametrize("program", [Gemini, Opencode], indirect=True, ids=["gemini", "opencode"])
@pytest.mark.usefixtures("program")
def test_without_questions_the_offered_mode_makes_edits_at_once(tell):
    """It is what install offers for these: the client's own question is the approval."""
    new = Call("write_file", {"path": "b.py", "content": "b = 1\n"})
    story = tell(EDIT, new, options=("--mode", "edits"))
    assert story.file == AFTER
    assert (story.place.project / "b.py").read_text() == "b = 1\n"


@pytest.mark.contract("clients.prompts.template")
@pytest.mark.parametrize("program", [Opencode], indirect=True, ids=["opencode"])
def test_opencode_fills_a_prompt_with_what_its_person_types(program, run, make_place):
    """It asks for the prompt as a template, and refuses the command where it gets none."""
    script, place = make_place()
    program.set_up(place)
    *command, _ = program.headless()
    run(program, place, [*command, "--command", "gramercy:work-in-the-image", "Sort", "beds."])
    assert "Work in the live image python (Python). The goal: Sort beds." in json.dumps(script.turns[0].body)


def _gramercy(place, program, *words):
    """Run a command as the person does at another terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "gramercy", *words],
        env=program.environment(place),
        cwd=place.project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# A library of figures in a few lines: what stands in for matplotlib, of which only this much is looked at.
FIGURES = f"""
import sys, types
class Figure:
    stale = True
    def get_children(self): return [1, 2]
    def get_label(self): return ""
    def get_dpi(self): return 100
    def get_size_inches(self): return (3, 2)
    def savefig(self, file, **options): file.write({png(300, 200)!r})
class Manager:
    def __init__(self): self.canvas = types.SimpleNamespace(figure=Figure())
helpers = types.ModuleType("matplotlib._pylab_helpers")
helpers.Gcf = types.SimpleNamespace(figs={{1: Manager()}}, destroy=lambda n: helpers.Gcf.figs.pop(n))
sys.modules["matplotlib.pyplot"] = types.ModuleType("matplotlib.pyplot")
sys.modules["matplotlib._pylab_helpers"] = helpers
"""


@pytest.mark.contract("day.pictures.programs")
def test_its_model_is_shown_a_picture(program, tell, evaluation):
    """Each hands image content on; of a call that fails Claude Code and opencode give the text alone."""
    story = tell(evaluation(f"{FIGURES}\n6 * 7"), evaluation("helpers.Gcf.figs[1] = Manager(); 1 / 0"))
    first, second = story.script.results[:2]
    picture = b64encode(png(300, 200)).decode()
    sent = [json.dumps(turn.body) for turn in story.script.turns]
    assert "figure 1, 300x200 px, PNG" in first
    assert picture in sent[1]
    assert "ZeroDivisionError" in second
    assert "figure 1, 300x200 px, PNG" in second
    assert sent[2].count(picture) == (2 if isinstance(program, Codex | Gemini) else 1)
