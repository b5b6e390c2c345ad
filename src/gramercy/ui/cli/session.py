"""What the entries of the prompt do: evaluate in the image, go back in its time, ask about the rules."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import GramercyError
from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.gram.suggestion import suggest
from gramercy.toolsets.rendering import evaluation_text
from gramercy.ui.cli.display import visible
from gramercy.ui.cli.evaluation import preview_text, show
from gramercy.ui.cli.tools import summary_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.images.base import Reply
    from gramercy.images.live import LiveImage
    from gramercy.tools.registry import Registry

RETRY_SECONDS = 0.05
HELP = """\
Code is evaluated in the image and its state is kept. Ctrl-C stops an evaluation, Ctrl-D leaves.
  :undo               take back the last evaluation
  :preview CODE       show what an evaluation would do, without doing it
  :checkpoints        list the states that can be gone back to
  :checkpoint LABEL   name the present state so that it is kept
  :rollback ID        go back to a state
  :why TOOL JSON      tell what the guard would say to a call, and by which rule
  :tools              list the tools a model would have
  :help               this text
  :quit               leave"""


class Session:
    """One image, its tools, and what went wrong so far."""

    def __init__(self, image: LiveImage, language: str, registry: Registry, *, interactive: bool) -> None:
        self._image = image
        self._language = language
        self._registry = registry
        self._executor = Executor(registry)
        self._interactive = interactive
        self._package = ""
        self.has_failed = False
        self._commands: dict[str, Callable[[str], None]] = {
            ":undo": lambda _: self._call("undo_last"),
            ":preview": self._preview,
            ":checkpoints": lambda _: self._call("list_checkpoints"),
            ":checkpoint": lambda rest: self._call("checkpoint_image", label=rest),
            ":rollback": lambda rest: self._call("rollback_image", checkpoint=rest),
            ":why": self._why,
            ":tools": self._tools,
            ":help": lambda _: click.echo(HELP),
        }

    @property
    def prompt(self) -> str:
        """The prompt: of Lisp it names the package."""
        return ">>> " if self._language == "python" else f"{visible(self._package) or 'CL-USER'}> "

    def handle(self, entry: str) -> bool:
        """Do what an entry says and tell whether to go on; a failure is shown, never raised."""
        word, _, rest = entry.strip().partition(" ")
        if word in {":quit", ":q", ":exit"}:
            return False
        try:
            if not entry.startswith(":"):
                self._evaluate(entry)
            elif word in self._commands:
                self._commands[word](rest.strip())
            else:
                self._fail(self._unknown(word))
        except GramercyError as error:
            self._fail(str(error))
        return True

    def _unknown(self, word: str) -> str:
        close = suggest(word, self._commands)
        hint = f"did you mean {close[0]}?" if close else ":help lists them"
        return (
            f"there is no command {word:.60}: {hint} (code begins with a space where it begins with a colon)"
        )

    def _fail(self, message: str) -> None:
        self.has_failed = True
        click.echo(visible(message), err=True)

    def _evaluate(self, code: str) -> None:
        reply = self._stoppable(code) if self._interactive else self._image.evaluate(code)
        self._package = reply.package or self._package
        self._present(reply, evaluation_text(reply))

    def _present(self, reply: Reply, text: str) -> None:
        self.has_failed |= not reply.ok
        show(text)

    def _stoppable(self, code: str) -> Reply:
        """Evaluate on another thread, so that Ctrl-C here can stop it and nothing of it is lost."""
        replies: list[Reply] = []
        has_ended = threading.Event()

        def work() -> None:
            try:
                replies.append(self._image.evaluate(code))
            finally:
                has_ended.set()

        with _interrupts() as is_unwanted:
            threading.Thread(target=work, daemon=True).start()
            while not has_ended.wait(RETRY_SECONDS):
                if is_unwanted.is_set():
                    self._image.interrupt()
        if not replies:
            raise GramercyError(
                "the evaluation ended without an answer; its state may be found by :checkpoints"
            )
        return replies[0]

    def _preview(self, code: str) -> None:
        if not code:
            self._fail(":preview needs the code to try, such as :preview (+ 1 2)")
            return
        # On this thread: Ctrl-C ends the throw-away copy and leaves the image alone.
        reply = self._image.preview(code)
        self._present(reply, preview_text(reply))

    def _call(self, name: str, **arguments: Any) -> None:
        result = self._executor.execute(ToolCall("repl", name, arguments))
        if result.success:
            show(result.content)
        else:
            self._fail(result.content)

    def _why(self, rest: str) -> None:
        name, _, arguments = rest.partition(" ")
        if not name:
            self._fail(':why needs a tool and its arguments, such as :why eval_form {"form": "1"}')
            return
        verdict = self._executor.why(name, arguments.strip() or "{}")
        show(f"{verdict.action.value}: {verdict.explanation}")

    def _tools(self, rest: str) -> None:
        del rest
        for tool in self._registry.select():
            show(summary_line(tool))


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C sets instead of raising, which might happen anywhere."""
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
