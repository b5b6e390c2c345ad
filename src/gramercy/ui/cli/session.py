"""Handle an entry of the prompt: evaluate it or execute a command, and show the result."""

from __future__ import annotations

import contextlib
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from gramercy.errors import GramercyError, SourceError
from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.gram.suggestion import suggest
from gramercy.toolsets.jobs import LASTING
from gramercy.toolsets.rendering import preview_text
from gramercy.toolsets.time_travel import comparison_text
from gramercy.ui.cli.forms import split_forms
from gramercy.ui.cli.pictures import show_pictures
from gramercy.ui.cli.reading import (
    Completer,
    Entries,
    offer_names,
    piped_line,
    remembered,
    show_prompt,
    terminal_line,
    typed_line,
)
from gramercy.ui.cli.terminal import show, stoppable, summary_line, tell, visible
from gramercy.ui.cli.transcript import Transcript, other_language
from gramercy.workbench.recording import recorded, typed_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.images.base import MomentQuestion, Reply
    from gramercy.images.lines import Wanted
    from gramercy.images.live import LiveImage
    from gramercy.journal.base import Journal
    from gramercy.tools.registry import Registry

T = TypeVar("T")
INTRODUCTION = """\
Code is evaluated in the image and its state is kept. Ctrl-C stops an evaluation, Ctrl-D leaves,
Tab completes names, files inside of strings, and commands; Ctrl-R searches what was typed before."""


class Command(NamedTuple):
    """How a command is written, what it does, and what it cannot do without."""

    usage: str
    does: str
    needs: str = ""


COMMANDS = (
    Command(
        ":undo [HOW]",
        "take back the last change and its files; `keep` leaves those; or by `replay` or `definitions`",
    ),
    Command(":preview CODE", "show what an evaluation would do, without doing it", "code: :preview (+ 1 2)"),
    Command(":background CODE", "evaluate it as a job, beside what you enter next", "code: :background f()"),
    Command(":jobs [N]", "list the jobs, or show what is new of one"),
    Command(":stop N", "stop a job", "the number of a job: :stop 1"),
    Command(":edit [FILE|NAME]", "change the last entry, a file or a definition in your editor, and load it"),
    Command(":load FILE", "load a file of the project", "a file: :load src/beds.py"),
    Command(":tests [WHAT]", "run the tests: all, those of a file or name, or `failed` again"),
    Command(":files [GLOB]", "list the files of the project: all, or those that fit"),
    Command(":search TEXT", "find a text in the files of the project", "a text: :search area"),
    Command(":frames", "show the stack of the last error; frame 0 is where it failed"),
    Command(":locals [N]", "show the variables of a frame"),
    Command(":in N CODE", "evaluate with the variables of a frame", "a frame and code: :in 0 x"),
    Command(":restart [N ARGS]", "list the restarts of the last error, or go on with one in a copy"),
    Command(":checkpoints", "list the states that can be gone back to"),
    Command(":compare ID [ID]", "show how a state differs from another, or from now", "a state: :compare c2"),
    Command(":checkpoint LABEL", "name the present state so that it is kept", "a name: :checkpoint planted"),
    Command(
        ":rollback ID",
        "go back to a state, or make what a restart gave the image",
        "a state: :rollback c2; :checkpoints lists them",
    ),
    Command(":save FILE", "write the state to a file", "a file: :save work.state"),
    Command(":restore FILE", "go on with the state in a file", "a file: :restore work.state"),
    Command(
        ":why TOOL JSON",
        "tell what the guard would say to a call, and by which rule",
        "a tool: :why eval_form {}",
    ),
    Command(":tools", "list the tools a model would have"),
    Command(":help", "this text"),
    Command(":quit", "leave, as exit() does in Python and (exit) in Lisp"),
)
NAMES = {command.usage.partition(" ")[0]: command for command in COMMANDS}
# Commands that other programs have under another name.
ELSEWHERE = {":redo": ":rollback with the state that :undo names goes forward again"}
SUFFIXES = {"sbcl": ".lisp", "python": ".py"}
LEAVING = {":quit", ":q", ":exit"}
# Words that may follow :undo: keep the files, and the ways back that need no kept state.
KEEP, UNDO_WAYS = "keep", ("replay", "definitions")
# Words that people type to leave such a prompt. In the image they would end the process and lose its state.
ENDING = {
    "python": re.compile(r"(exit|quit)(\(\s*\))?"),
    "sbcl": re.compile(r"\(\s*(sb-ext:)?(exit|quit)\s*\)", re.IGNORECASE),
}


def help_text() -> str:
    """Return the text of :help."""
    return "\n".join([INTRODUCTION, *(f"  {each.usage:<19} {each.does}" for each in COMMANDS)])


def at_terminal(image: LiveImage, registry: Registry, project: str, journal: Journal) -> None:
    """Run the prompt with a person until they leave. Ctrl-C only discards the line that is being typed."""
    session = Session(image, registry, project, journal)
    entries = Entries(image.language, typed_line, interactive=True)
    completer = Completer(image, Path(project), tuple(NAMES))
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


def from_pipe(image: LiveImage, registry: Registry, project: str, journal: Journal) -> bool:
    """Handle the entries of standard input to its end. Return whether one of them failed."""
    entries = Entries(image.language, piped_line, interactive=False)
    session = Session(image, registry, project, journal, entries.line)
    _converse(session, entries)
    return session.has_failed


def _converse(session: Session, entries: Entries) -> None:
    """Handle entries to the end."""
    with contextlib.suppress(EOFError):
        while True:
            entry = entries.read(session.prompt)
            if entry.strip() and not session.handle(entry):
                return


@contextlib.contextmanager
def _editor() -> Iterator[None]:
    """Report an error of the person's editor."""
    try:
        yield
    except click.ClickException as error:
        raise SourceError(f"the editor failed: {error.message} (VISUAL or EDITOR names another)") from None


class Session:
    """One image, its tools, and whether an entry has failed.

    `piped` returns the next line of the pipe that the entries come from. It is None at a terminal.
    """

    def __init__(
        self,
        image: LiveImage,
        registry: Registry,
        project: str,
        journal: Journal,
        piped: Callable[[], str | None] | None = None,
    ) -> None:
        self._image = image
        self._project = Path(project)
        self._language = image.language
        self._registry = registry
        self._journal = journal
        self._executor = Executor(registry, journal=journal)
        self._piped = piped
        self._interactive = piped is None
        # Unknown after a state was restored, until an evaluation reports it.
        self._package: str | None = None
        self.has_failed = False
        self._last = ""
        self._knows_frames = False
        self._commands: dict[str, Callable[[str], None]] = {
            ":undo": self._undo,
            ":preview": self._preview,
            ":background": self._background,
            ":jobs": self._jobs,
            ":stop": lambda rest: self._on_job("stop_job", rest),
            ":edit": self._edit,
            ":load": self._load,
            ":tests": self._tests,
            ":files": lambda rest: self._call("list_files", **({"glob": rest} if rest else {})),
            ":search": lambda rest: self._call("search_files", pattern=rest),
            ":frames": lambda _: self._look("frames"),
            ":locals": self._locals,
            ":in": self._in_frame,
            ":restart": self._restart,
            ":checkpoints": lambda _: self._call("list_checkpoints"),
            ":compare": self._compare,
            ":checkpoint": lambda rest: self._call("checkpoint_image", label=rest),
            ":rollback": lambda rest: self._go("rollback_image", checkpoint=rest),
            ":save": self._save,
            ":restore": self._restore,
            ":why": self._why,
            ":tools": lambda _: self._tools(),
            ":help": lambda _: click.echo(help_text()),
        }

    @property
    def prompt(self) -> str:
        """The prompt. In Lisp it names the package."""
        if self._language == "python" or not self._interactive:
            return ">>> "
        return f"{visible(self.package)}> "

    @property
    def package(self) -> str:
        """The package for evaluations."""
        if self._package is None:
            try:
                self._package = self._image.ask("definitions").data.get("package", "")
            except GramercyError:
                self._package = ""
        return self._package or "CL-USER"

    def handle(self, entry: str) -> bool:
        """Handle an entry. Return whether to go on. A failure is shown, never raised."""
        word, _, rest = entry.strip().partition(" ")
        if word in LEAVING or ENDING[self._language].fullmatch(entry.rstrip()):
            return False
        try:
            if not entry.startswith(":"):
                self._evaluate(entry)
            elif word not in NAMES:
                self._fail(self._unknown(word))
            elif NAMES[word].needs and not rest.strip():
                self._fail(f"{word} needs {NAMES[word].needs}")
            else:
                self._commands[word](rest.strip())
        except GramercyError as error:
            self._fail(str(error))
        return True

    def _unknown(self, word: str) -> str:
        begun = [name for name in NAMES if name.startswith(word) and word != ":"]
        close = begun or suggest(word, NAMES)
        hint = f"did you mean {' or '.join(close[:3])}?" if close else ":help lists them"
        hint = ELSEWHERE.get(word, hint)
        return (
            f"there is no command {word:.60}: {hint} (code begins with a space where it begins with a colon)"
        )

    def _fail(self, message: str) -> None:
        self.has_failed = True
        click.echo(visible(message), err=True)

    def _evaluate(self, code: str) -> None:
        self._last = code
        transcript = Transcript(self._language, "=> ")
        watch = transcript.watch if self._interactive else None
        call = typed_call("repl", code, self._project)
        typist = partial(self._type, transcript)
        reply = self._run(
            lambda: recorded(
                self._journal, call, lambda: self._image.evaluate(code, watch=watch, typist=typist)
            )
        )
        self._package = reply.package or self._package
        self._close(transcript, reply)
        if self._interactive and reply.error is not None and reply.error.moment and not self._knows_frames:
            self._knows_frames = True
            show("(:frames shows where it stands, :help what can be done there)", err=True, dim=True)
        if hint := other_language(code, self._language, reply):
            tell(hint)

    def _type(self, transcript: Transcript, wanted: Wanted) -> str | None:
        """Return the next line for an evaluation. None at the end."""
        if self._piped is not None:
            show_prompt(wanted)
            try:
                return self._piped()
            except GramercyError as error:
                self._fail(str(error))
                return None
        transcript.pause()
        line = terminal_line(wanted)
        if line is None:
            # Ctrl-D and Ctrl-C leave the cursor behind the question.
            click.echo(err=not sys.stdout.isatty())
        return line

    def _close(self, transcript: Transcript, reply: Reply) -> None:
        self.has_failed |= not reply.ok
        transcript.close(reply)

    def _run(self, work: Callable[[], T]) -> T:
        return stoppable(work, self._image.interrupt) if self._interactive else work()

    def _undo(self, rest: str) -> None:
        words = rest.split()
        ways = [word for word in words if word in UNDO_WAYS]
        for word in words:
            if word != KEEP and word not in UNDO_WAYS:
                close = suggest(word, [KEEP, *UNDO_WAYS]) or [KEEP, *UNDO_WAYS]
                self._fail(f":undo knows no {word:.60}: say :undo, or :undo {' or :undo '.join(close)}")
                return
        self._go("undo_last", files=KEEP not in words, **({"by": ways[-1]} if ways else {}))

    def _preview(self, code: str) -> None:
        # Run it on this thread: Ctrl-C ends the throw-away copy and leaves the image alone.
        reply = self._image.preview(code)
        self.has_failed |= not reply.ok
        show(preview_text(reply))
        show_pictures(reply.displays)

    def _background(self, code: str) -> None:
        call = typed_call("repl", code, self._project)
        reply = recorded(self._journal, call, lambda: self._image.start_job(code))
        if reply.job is None:
            self._close(Transcript(self._language), reply)
            return
        show(f"job {reply.job} has begun: :jobs {reply.job} shows what it prints, :stop {reply.job} stops it")
        if reply.unkept is not None:
            tell(LASTING)

    def _jobs(self, rest: str) -> None:
        if rest:
            self._on_job("read_output", rest)
        for job in [] if rest else self._image.jobs():
            show(job.shown)

    def _on_job(self, tool: str, number: str) -> None:
        if not number.isdecimal():
            self._fail(f"{number:.40} is not the number of a job: :jobs lists them")
        else:
            self._call(tool, job=int(number))

    def _compare(self, rest: str) -> None:
        show(comparison_text(self._run(lambda: self._image.compare(*rest.split(maxsplit=1)))))

    def _save(self, path: str) -> None:
        show(self._run(lambda: self._image.save(path)))

    def _restore(self, path: str) -> None:
        show(self._run(lambda: self._image.restore(path)))
        self._package = None

    def _edit(self, path: str) -> None:
        """Let the person change code in their editor, and evaluate it if they saved it."""
        if not self._interactive:
            self._fail(":edit needs a terminal")
        elif path:
            self._edit_file(path if (self._project / path).exists() else self._file_of(path))
        else:
            with _editor():
                text = click.edit(self._last, extension=SUFFIXES[self._language])
            if text is None or not text.strip():
                tell("nothing was saved, so nothing is evaluated")
            else:
                show(text.rstrip("\n"), dim=True)
                self._evaluate(text)

    def _edit_file(self, path: str) -> None:
        file = self._project / Path(path).expanduser()
        before = file.stat().st_mtime_ns if file.exists() else None
        with _editor():
            click.edit(filename=str(file))
        if not file.exists() or file.stat().st_mtime_ns == before:
            tell("the file was not changed, so it is not loaded")
        else:
            self._load(path)

    def _file_of(self, name: str) -> str:
        """Return the file of the project that defines a name. An unknown name may be a new file."""
        answer = self._image.ask("find_definition", symbol=name)
        for definition in answer.data.get("definitions", []):
            place = str(definition.get("place", "")).removeprefix("at ")
            file = place.rpartition(":")[0]
            if file and (self._project / file).is_file():
                tell(f"{name} is at {place}")
                return file
        if not Path(name).suffix:
            raise SourceError(f"there is no file {name}, and no file of the project that defines it")
        return name

    def _load(self, path: str) -> None:
        self._go("load_file", path=path)

    def _tests(self, what: str) -> None:
        arguments: dict[str, Any] = (
            {"last_failed": True} if what == "failed" else {"what": what} if what else {}
        )
        self._run(lambda: self._call("run_tests", **arguments))

    def _look(self, question: MomentQuestion, **details: Any) -> None:
        answer = self._image.ask_moment(question, **details)
        if answer.error is not None:
            self._fail(answer.error.message)
        else:
            show(answer.text)

    def _locals(self, frame: str) -> None:
        if frame and not frame.isdecimal():
            self._fail(":locals needs the number of a frame, such as :locals 1: :frames lists them")
        else:
            self._look("locals", frame=int(frame or 0))

    def _in_frame(self, rest: str) -> None:
        frame, _, code = rest.partition(" ")
        if not frame.isdecimal() or not code.strip():
            self._fail(":in needs the number of a frame and code, such as :in 0 x")
            return
        reply = self._run(lambda: self._image.evaluate_in_frame(code, frame=int(frame)))
        self._close(Transcript(self._language, "=> "), reply)

    def _restart(self, rest: str) -> None:
        name, _, arguments = rest.partition(" ")
        if not name:
            self._look("restarts")
            return
        chosen = int(name) if name.isdecimal() else name
        reply = self._run(lambda: self._image.invoke_restart(chosen, split_forms(arguments)))
        self._close(Transcript(self._language, "=> "), reply)

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
        verdict = self._executor.why(name, arguments.strip() or "{}")
        show(f"{verdict.action.value}: {verdict.explanation}")

    def _tools(self) -> None:
        for tool in self._registry.select():
            show(summary_line(tool))
