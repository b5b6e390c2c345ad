"""The real client programs in a terminal: a person approves, declines and interrupts with their keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mcp.programs.clients import ClaudeCode, Codex, Gemini, Opencode
from tests.mcp.programs.edits import AFTER, BEFORE, EDIT, FILE, RULES

pytestmark = [pytest.mark.slow, pytest.mark.programs]

BACK = replace(EDIT, arguments={**EDIT.arguments, "old": "x + 2", "new": "x + 1"})
# Long enough that no test waits for its end, and it tells when it is interrupted.
LONG = """\
import pathlib, time
steps = 0
try:
    pathlib.Path("begun").touch()
    for steps in range(6000):
        time.sleep(0.1)
finally:
    pathlib.Path("ended").touch()
"""
# What each program shows when it asks, and when it was interrupted.
QUESTION = {
    ClaudeCode: "Accept    Decline",
    Codex: "1. approve",
    Gemini: "Allow once",
    Opencode: "Allow once",
}
INTERRUPTED = {ClaudeCode: "Interrupted", Codex: "interrupted", Gemini: "cancelled", Opencode: "interrupted"}
# What the model is told of a no.
TOLD = {ClaudeCode: "User denied", Codex: "User denied", Opencode: "The user rejected"}
# The keys for no, and for a halt.
DECLINE = {ClaudeCode: ["Right", "Enter"], Codex: ["Down", "Enter"], Gemini: ["Escape"], Opencode: ["Escape"]}
INTERRUPT = {ClaudeCode: ["Escape"], Codex: ["Escape"], Gemini: ["Escape"], Opencode: ["Escape", "Escape"]}


@pytest.fixture
def asks(program):
    """Tell whether the program asks by itself: those that show no forms do, and a rule leaves it to them."""
    return isinstance(program, Gemini | Opencode)


@pytest.fixture
def begin(program, asks, make_place, open_screen):
    """Return a function that starts a program in a terminal, with a file in its project."""

    def begin(*calls):
        script, place = make_place(*calls)
        (place.project / FILE).write_text(BEFORE)
        rules = place.home / "rules.toml"
        rules.write_text(RULES)
        # What ends an evaluation before ten minutes is the person; Gemini CLI does not tell of the key.
        limit = "8" if isinstance(program, Gemini) else "600"
        program.set_up(place, "--timeout", limit, *(["--policy", str(rules)] if asks else []))
        return script, place.project, open_screen(program, place)

    return begin


def first(screen, text):
    """Wait for a text; ask again while the model has no tools: Claude Code does not wait for servers."""
    for turn in range(1, 20):
        seen = screen.expect(text, f"not offered in turn {turn}.")
        if text in seen:
            return seen
        screen.type(f"Try again after turn {turn}.")
    raise AssertionError(screen.text())


@pytest.mark.contract("clients.programs.terminal", "clients.programs.interrupt")
def test_a_person_approves_with_one_key_declines_and_interrupts(program, asks, begin, evaluation):
    """One conversation, since programs take long to start; the screen shows the difference before the key."""
    kind = type(program)
    forgets = kind is Gemini
    script, project, screen = begin(EDIT, BACK, evaluation(LONG), evaluation("steps < 5999"))
    file = project / FILE

    seen = first(screen, QUESTION[kind])
    if not asks:
        assert "-    return x + 1" in seen
        assert "+    return x + 2" in seen
    screen.press("Enter")
    screen.until(lambda _: script.results, "the model was told nothing")
    assert file.read_text() == AFTER

    screen.expect(QUESTION[kind])
    script.forgotten = 2 * forgets
    screen.press(*DECLINE[kind])
    if kind is ClaudeCode:  # a second form, where a reason can be given
        screen.expect("Not approved as it is")
        screen.press("Escape")
    screen.until(lambda seen: QUESTION[kind] not in seen, "it still asks")
    if asks:  # the turn of the model has ended
        screen.type("Go on.")
    allow(program, screen)
    screen.until(lambda _: (project / "begun").exists(), "nothing is evaluated")
    assert file.read_text() == AFTER
    if not forgets:
        assert TOLD[kind] in script.results[1]

    screen.press(*INTERRUPT[kind])
    screen.until(lambda _: (project / "ended").exists(), "the evaluation goes on")
    screen.expect(INTERRUPTED[kind])
    screen.type("And now.")
    allow(program, screen)
    screen.until(
        lambda _: len(script.results) == (2 if forgets else 4), "the model was not told about the last call"
    )
    assert "=> True" in script.results[-1]


def allow(program, screen):
    """Press the key that Gemini CLI wants for every tool that is not read-only."""
    if isinstance(program, Gemini):
        screen.expect(QUESTION[Gemini])
        screen.press("Enter")
