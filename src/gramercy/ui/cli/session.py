"""What the prompt does with an entry: evaluate it, or do what a command says, and show what came of it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gramercy.errors import GramercyError
from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.gram.suggestion import suggest
from gramercy.toolsets.rendering import preview_text
from gramercy.ui.cli.reading import Completer, Entries, offer_names, piped_line, remembered, typed_line
from gramercy.ui.cli.terminal import show, stoppable, summary_line, tell, visible
from gramercy.ui.cli.transcript import Transcript, other_language

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.live import LiveImage
    from gramercy.tools.registry import Registry

T = TypeVar("T")
HELP = """\
Code is evaluated in the image and its state is kept. Ctrl-C stops an evaluation, Ctrl-D leaves,
Tab completes names, files inside of strings, and commands; Ctrl-R searches what was typed before.
  :undo               take back the last evaluation
  :preview CODE       show what an evaluation would do, without doing it
  :checkpoints        list the states that can be gone back to
  :checkpoint LABEL   name the present state so that it is kept
  :rollback ID        go back to a state
  :save FILE          write the state to a file
  :restore FILE       go on with the state in a file instead of this one
  :why TOOL JSON      tell what the guard would say to a call, and by which rule
  :tools              list the tools a model would have
  :help               this text
  :quit               leave, as exit() does in Python and (exit) in Lisp"""
LEAVING = {":quit", ":q", ":exit"}
# What people type to leave such a prompt; in the image it would end the process and lose its state.
ENDING = {
    "python": re.compile(r"(exit|quit)(\(\s*\))?"),
    "sbcl": re.compile(r"\(\s*(sb-ext:)?(exit|quit)\s*\)", re.IGNORECASE),
}


def at_terminal(image: LiveImage, registry: Registry, project: str) -> None:
    """Talk with a person until they leave; Ctrl-C only gives up what is being typed."""
    session = Session(image, registry, interactive=True)
    entries = Entries(image.language, typed_line, interactive=True)
    completer = Completer(image, Path(project), session.commands)
    completer.begun = lambda: entries.begun
    offer_names(completer, image.language)
    with remembered(image.language):
        while True:
            try:
                _converse(session, entries)
            except KeyboardInterrupt:
                entries.forget()
                click.echo("", err=True)
                continue
            click.echo("", err=True)
            return


def from_pipe(image: LiveImage, registry: Registry) -> bool:
    """Take the entries of standard input to their end; tell whether one of them failed."""
    session = Session(image, registry, interactive=False)
    _converse(session, Entries(image.language, piped_line, interactive=False))
    return session.has_failed


def _converse(session: Session, entries: Entries) -> None:
    """Take entries to their end."""
    with contextlib.suppress(EOFError):
        while True:
            entry = entries.read(session.prompt)
            if entry.strip() and not session.handle(entry):
                return


class Session:
    """One image, its tools, and what went wrong so far."""

    def __init__(self, image: LiveImage, registry: Registry, *, interactive: bool) -> None:
        self._image = image
        self._language = image.language
        self._registry = registry
        self._executor = Executor(registry)
        self._interactive = interactive
        # Not known where a state was taken up that an evaluation has told nothing about yet.
        self._package: str | None = None
        self.has_failed = False
        self._commands: dict[str, Callable[[str], None]] = {
            ":undo": lambda _: self._go("undo_last"),
            ":preview": self._preview,
            ":checkpoints": lambda _: self._call("list_checkpoints"),
            ":checkpoint": lambda rest: self._call("checkpoint_image", label=rest),
            ":rollback": lambda rest: self._go("rollback_image", checkpoint=rest),
            ":save": self._save,
            ":restore": self._restore,
            ":why": self._why,
            ":tools": self._tools,
            ":help": lambda _: click.echo(HELP),
        }

    @property
    def commands(self) -> list[str]:
        """The names of the commands, with their colon."""
        return [*self._commands, ":quit"]

    @property
    def prompt(self) -> str:
        """The prompt: of Lisp it names the package."""
        if self._language == "python" or not self._interactive:
            return ">>> "
        return f"{visible(self.package)}> "

    @property
    def package(self) -> str:
        """The package that code is evaluated in."""
        if self._package is None:
            try:
                self._package = self._image.ask("definitions").data.get("package", "")
            except GramercyError:
                self._package = ""
        return self._package or "CL-USER"

    def handle(self, entry: str) -> bool:
        """Do what an entry says and tell whether to go on; a failure is shown, never raised."""
        word, _, rest = entry.strip().partition(" ")
        if word in LEAVING or ENDING[self._language].fullmatch(entry.rstrip()):
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
        begun = [name for name in self.commands if name.startswith(word) and word != ":"]
        close = begun or suggest(word, self.commands)
        hint = f"did you mean {' or '.join(close[:3])}?" if close else ":help lists them"
        return (
            f"there is no command {word:.60}: {hint} (code begins with a space where it begins with a colon)"
        )

    def _fail(self, message: str) -> None:
        self.has_failed = True
        click.echo(visible(message), err=True)

    def _evaluate(self, code: str) -> None:
        transcript = Transcript(self._language, "=> ")
        watch = transcript.watch if self._interactive else None
        reply = self._run(lambda: self._image.evaluate(code, watch=watch))
        self._package = reply.package or self._package
        self.has_failed |= not reply.ok
        transcript.close(reply)
        if hint := other_language(code, self._language, reply):
            tell(hint)

    def _run(self, work: Callable[[], T]) -> T:
        return stoppable(work, self._image.interrupt) if self._interactive else work()

    def _preview(self, code: str) -> None:
        if not code:
            self._fail(":preview needs the code to try, such as :preview (+ 1 2)")
            return
        # On this thread: Ctrl-C ends the throw-away copy and leaves the image alone.
        reply = self._image.preview(code)
        self.has_failed |= not reply.ok
        show(preview_text(reply))

    def _save(self, path: str) -> None:
        if not path:
            self._fail(":save needs the file to write, such as :save work.state")
            return
        show(self._run(lambda: self._image.save(path)))

    def _restore(self, path: str) -> None:
        if not path:
            self._fail(":restore needs a file that :save has written, such as :restore work.state")
            return
        show(self._run(lambda: self._image.restore(path)))
        self._package = None

    def _go(self, name: str, **arguments: Any) -> None:
        self._call(name, **arguments)
        self._package = None

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
