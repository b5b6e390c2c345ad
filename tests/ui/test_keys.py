"""Keys while an answer comes: Esc stops it, and what is typed meanwhile is not lost."""

from __future__ import annotations

import asyncio
import signal
import termios
import threading
from pathlib import Path

import pytest

from gramercy.ui.cli.agents import stoppable_runner
from gramercy.ui.cli.keys import Ahead
from tests.hello import GREETING, TOOLS
from tests.providers.service import Service, stream
from tests.ui.conftest import BOUND, until
from tests.ui.test_chat import chat, left, piece, said, state

__all__ = ["chat", "state"]
ESC, UP, STOP = "\x1b", "\x1b[A", "\x03"
# Says when it runs, and waits to be let go.
SLOW = """\
from pathlib import Path
from time import monotonic, sleep

def wait():
    Path("runs").touch()
    end = monotonic() + 60
    while not Path("go").exists() and monotonic() < end:
        sleep(0.01)

"""


@pytest.mark.contract("agents.chat.stopped")
@pytest.mark.parametrize("key", [ESC, ESC + ESC, UP + ESC, STOP])
def test_esc_stops_an_answer_and_the_talk_goes_on(chat, key):
    half, whole = (
        stream(piece("The first words"), hang=True),
        stream(piece("Going on.", "stop"), done="[DONE]"),
    )
    with Service(half, whole) as service:
        address = {"OPENAI_BASE_URL": f"{service.address}/v1", "OPENAI_API_KEY": "sk-not-a-key"}
        opened = chat(options=("--model", "OpenAI/gpt-4o-mini"), TERM="xterm", **address)
        assert "Esc or Ctrl-C stops an answer" in opened.screen
        opened.settle()
        opened.send("tell me\n")
        opened.expect("The first words")
        until(lambda: not shows_keys(opened))
        opened.send(f"dropped\n{key}")
        opened.expect("(stopped)")
        opened.expect("> ")
        opened.settle()
        said(opened, "go on", "Going on.")
        left(opened)
        assert [each["content"] for each in service.asked[-1].body["messages"]][-1] == "go on"
        assert len(service.asked) == 2


@pytest.mark.contract("agents.chat.stopped")
def test_ctrl_c_stops_a_loop_that_waits_already_and_was_not_woken():
    """A signal between Python's last look and the wait interrupts nothing; so does one to another thread."""
    is_waiting, is_over, came_late = threading.Event(), threading.Event(), threading.Event()

    async def hang():
        loop = asyncio.get_running_loop()
        loop.call_soon(is_waiting.set)
        threading.Thread(target=interrupt, args=(loop,), daemon=True).start()
        await asyncio.Event().wait()

    def interrupt(loop):
        is_waiting.wait(BOUND)
        main = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat")
        until(lambda: main.read_text().rpartition(") ")[2][0] == "S")
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not is_over.wait(BOUND):
            came_late.set()
            loop.call_soon_threadsafe(int)

    with stoppable_runner() as runner, pytest.raises(KeyboardInterrupt):
        runner.run(hang())
    is_over.set()
    assert not came_late.is_set()


def shows_keys(opened):
    """Tell whether the terminal shows what is typed, and gives it line by line."""
    flags = termios.tcgetattr(opened._fd)[3]
    return bool(flags & termios.ECHO and flags & termios.ICANON)


@pytest.fixture
def slow(chat, tmp_path):
    """Start a chat in which a tool waits, until the test lets it go."""

    def start(*answers):
        return chat(*answers, TERM="xterm", options=("--tools", "slow.py"))

    tools = TOOLS.replace("arguments: f", "arguments: wait() or f")
    (tmp_path / "slow.py").write_text(SLOW + tools.replace("LEVEL", "dangerous"))
    return start


def test_other_keys_do_not_stop_it_and_what_is_typed_comes_to_the_next_prompt(slow, tmp_path):
    """Arrows, function keys and Alt begin with Esc too. A line that was entered is said."""
    opened = slow(GREETING, "Called.", "Heard.", "Heard again.")
    opened.settle()
    opened.send("call it\n")
    opened.expect("[a/d/e]: ")
    opened.send("a\n")
    until((tmp_path / "runs").exists)
    until(lambda: not shows_keys(opened))
    opened.send(f"{UP}\x1bOP\x1b[15~\x1bbnot this\x15said firzt\x7f\x7fst\nand th")
    (tmp_path / "go").touch()
    opened.expect("Called.")
    opened.expect("> said first\n")
    opened.expect("Heard.")
    opened.expect("and th")
    opened.settle()
    opened.send("is\n")
    opened.expect("Heard again.")
    said(opened, "/export -", "and this")
    assert "stopped" not in opened.screen
    left(opened)


def test_what_was_typed_before_a_question_is_no_answer_to_it(slow, tmp_path):
    """Nobody approves what they have not seen."""
    opened = slow(GREETING, GREETING, "Done.", "Heard.")
    opened.settle()
    opened.send("call it\n")
    opened.expect("[a/d/e]: ")
    assert shows_keys(opened)
    opened.send("a\n")
    until((tmp_path / "runs").exists)
    until(lambda: not shows_keys(opened))
    opened.send("a\n")
    (tmp_path / "go").touch()
    opened.expect("[a/d/e]: ")
    opened.send("d not again\n")
    opened.expect("not again")
    opened.expect("Done.")
    opened.expect("> a\n")
    opened.expect("Heard.")
    left(opened)


@pytest.mark.parametrize(
    ("typed", "lines", "rest"),
    [
        ("one\ntwo\r\rthree", ["one", "two", ""], "three"),
        ("\x7f\x7fa\n\x7fb", ["a"], "b"),
        ("one two \x17three", [], "one three"),
        ("one\n \x17", ["one"], " "),
        ("one\ntwo\x15", ["one"], ""),
        ("a\x04\x01\tb\0", [], "a\tb"),
        ("grün", [], "grün"),
    ],
)
def test_what_is_typed_ahead_is_edited_as_a_terminal_does(typed, lines, rest):
    ahead = Ahead()
    for byte in typed.encode():
        ahead.add(bytes([byte]))
    found = []
    while (line := ahead.line()) is not None:
        found.append(line)
    assert (found, ahead.rest()) == (lines, rest)
    assert ahead.rest() == ""
