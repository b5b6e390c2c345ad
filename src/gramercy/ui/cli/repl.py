"""`gramercy repl`: a prompt on a live image, where every evaluation can be previewed and taken back.

What a person types is read in `reading`; here is what it does, and what is shown of it.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from gramercy.errors import GramercyError
from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.gram.suggestion import suggest
from gramercy.toolsets.rendering import MOST_OUTPUT, STREAMS, evaluation_text, output_text, preview_text
from gramercy.ui.cli.evaluation import start
from gramercy.ui.cli.options import (
    environment_options,
    language_option,
    place_options,
    restore_option,
    timeout_option,
)
from gramercy.ui.cli.reading import Completer, Entries, offer_names, piped_line, remembered, typed_line
from gramercy.ui.cli.terminal import show, stoppable, summary_line, tell, visible
from gramercy.workbench.site import usable_project
from gramercy.workbench.sources import image_registry, live_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.base import Progress, Reply
    from gramercy.images.environment import Environment
    from gramercy.images.live import LiveImage
    from gramercy.tools.registry import Registry


T = TypeVar("T")
HELP = """\
Code is evaluated in the image and its state is kept. Ctrl-C stops an evaluation, Ctrl-D leaves,
Tab completes names.
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
  :quit               leave"""


@click.command()
@language_option
@place_options
@environment_options
@timeout_option
@restore_option
def repl(  # noqa: PLR0913 - one parameter per option
    language: str | None,
    project: str,
    timeout: float,
    restore: str | None,
    *,
    sandbox: bool,
    environment: Environment,
) -> int:
    """Work in a live image: evaluate, preview, undo."""
    is_interactive = sys.stdin.isatty()
    with (
        usable_project(project, sandbox=sandbox, tell=tell) as place,
        live_image(
            language, project=place, sandbox=sandbox, timeout=timeout, environment=environment
        ) as image,
    ):
        start(image, restore)
        chosen = image.language
        session = Session(image, chosen, image_registry(image, chosen, place), interactive=is_interactive)
        line = typed_line if is_interactive else piped_line
        entries = Entries(chosen, line, interactive=is_interactive)
        if not is_interactive:
            _converse(session, entries)
            return int(session.has_failed)
        click.echo(f"{chosen} image; :help lists the commands, Ctrl-D leaves", err=True)
        offer_names(Completer(image, chosen, lambda: session.package), chosen)
        with remembered(chosen):
            _chat(session, entries)
    return 0


def _converse(session: Session, entries: Entries) -> None:
    """Take entries to their end."""
    with contextlib.suppress(EOFError):
        while True:
            entry = entries.read(session.prompt)
            if entry.strip() and not session.handle(entry):
                return


def _chat(session: Session, entries: Entries) -> None:
    """Do the same with a person, whose Ctrl-C only gives up what is being typed."""
    while True:
        try:
            _converse(session, entries)
        except KeyboardInterrupt:
            click.echo("", err=True)
            continue
        click.echo("", err=True)
        return


class Session:
    """One image, its tools, and what went wrong so far."""

    def __init__(self, image: LiveImage, language: str, registry: Registry, *, interactive: bool) -> None:
        self._image = image
        self._language = language
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
        transcript = Transcript()
        watch = transcript.watch if self._interactive else None
        reply = self._run(lambda: self._image.evaluate(code, watch=watch))
        self._package = reply.package or self._package
        self.has_failed |= not reply.ok
        transcript.close(reply)

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


class Transcript:
    """One evaluation on the screen. What is there at the end looks as if it had been shown at once."""

    def __init__(self) -> None:
        self._shown = dict.fromkeys(STREAMS, 0)
        # The stream under whose heading the cursor stands, if any has been shown.
        self._stream = ""
        self._is_line_open = False

    def watch(self, progress: Progress) -> None:
        """Show what is new, as much of it as would be shown at the end."""
        for stream in STREAMS:
            text = getattr(progress, stream)[: MOST_OUTPUT - self._shown[stream]]
            self._shown[stream] += len(text)
            self._write(stream, text)

    def close(self, reply: Reply) -> None:
        """Show the rest."""
        if not self._stream:
            show(evaluation_text(reply))
            return
        for stream in STREAMS:
            self._write(stream, output_text(reply, stream)[self._shown[stream] :])
        self._part()
        show(evaluation_text(msgspec.structs.replace(reply, stdout="", stderr="")))

    def _write(self, stream: str, text: str) -> None:
        if not text:
            return
        if stream != self._stream:
            self._part()
            self._stream = stream
            show(f"[{stream}]")
        show(text, ends_line=False)
        self._is_line_open = not text.endswith("\n")

    def _part(self) -> None:
        """Leave an empty line between two sections."""
        if self._stream:
            click.echo("\n" if self._is_line_open else "")
