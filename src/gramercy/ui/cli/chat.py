"""`gramercy chat`: talk with an agent at the terminal; what it does there can be stopped and taken back.

What is typed with a slash is in `chat_commands`, how a message is written in `composing`.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gramercy.agents.base import Finished, Response
from gramercy.agents.context import ContextWindow
from gramercy.errors import AgentError, GramercyError, ProviderError
from gramercy.ui.cli.agents import (
    Asking,
    agent_options,
    debug_option,
    may_run,
    new_talk,
    stoppable_runner,
    talk_options,
    watching_options,
)
from gramercy.ui.cli.answers import Answers, figures_line, watched
from gramercy.ui.cli.chat_commands import COMMANDS, Commands
from gramercy.ui.cli.composing import Composer, MessageCompleter, line_ahead, read_standard_input
from gramercy.ui.cli.keys import Ahead, Keys, can_watch
from gramercy.ui.cli.main import FAILED
from gramercy.ui.cli.reading import offer_names, remembered, typed_line
from gramercy.ui.cli.terminal import in_background, show, tell, visible
from gramercy.workbench.agents import Plan, open_workplace
from gramercy.workbench.modes import Mode
from gramercy.workbench.rewinding import Rewinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.agents.talks import SessionTalk
    from gramercy.ui.cli.agents import Talking
    from gramercy.workbench.workplace import Workplace

WELCOME = "{agent} of {model}; /help lists the commands, {stop} stops an answer, Ctrl-D leaves"


@click.command()
@click.argument("file", metavar="[AGENT.gram]", required=False, type=click.Path(exists=True, dir_okay=False))
@agent_options
@watching_options
@talk_options
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.ASK.value,
    show_default=True,
    help="How much is asked; /mode changes it.",
)
@click.option(
    "--role", metavar="NAME", help="A role of yours: a file NAME.md in roles of your configuration."
)
@click.option(
    "--message", "-m", "messages", multiple=True, help="What to say first; may be given repeatedly."
)
@debug_option
def chat(  # noqa: PLR0913 - one parameter per option
    plan: Plan, talking: Talking, mode: str, role: str | None, messages: Sequence[str], *, debug: bool
) -> int:
    """Talk with an agent: of a gram file, or an assistant that has all tools of a live image.

    Standard input that is no terminal is one message.
    """
    asking = Asking()
    with open_workplace(plan, asking, tell, may_run=may_run) as place, stoppable_runner() as runner:
        if debug:
            place.open_provider = watched(place.open_provider)
        place.use_mode(Mode(mode))
        # Open it now, so that an error is not first seen after the first message.
        place.provider(place.model)
        talk = Chat(place, runner, asking)
        try:
            talk.talk = talking.talk(place)
            if role is not None:
                talk.commands.do(f"/role {role}")
            if sys.stdin.isatty():
                return talk.at_terminal(messages)
            return talk.from_pipe(messages)
        finally:
            runner.run(place.aclose())


class Chat:
    """One person, one agent, and the conversation that they are in."""

    def __init__(self, place: Workplace, runner: asyncio.Runner, asking: Asking) -> None:
        self.place = place
        self.first_model = place.model
        self.runner = runner
        self._asking = asking
        self.talk = new_talk(place)
        self.rewinding = Rewinding(place)
        self.commands = Commands(self)
        self.context = ContextWindow()
        # Messages as they were typed, without the expanded mentions, by the number of messages before them.
        self.typed: dict[int, str] = {}
        # The answers of this process.
        self.responses: list[Response] = []
        self.has_failed = False
        self._ahead = Ahead()
        self._watches_keys = False
        # The task that Esc cancels. A finished task is not affected.
        self._task: asyncio.Task[None] | None = None

    def at_terminal(self, messages: Sequence[str]) -> int:
        """Run the chat with a person until they leave."""
        mentions = self.place.mentions().completions
        project = Path(self.place.project)
        offer_names(MessageCompleter(project, tuple(COMMANDS), self.commands.words, mentions), "chat")
        self._watches_keys = can_watch()
        stop = "Esc or Ctrl-C" if self._watches_keys else "Ctrl-C"
        welcome = WELCOME.format(agent=self.place.agent.name, model=self.place.model, stop=stop)
        show(welcome, err=True, dim=True)
        if self.talk.kept:
            self.commands.show_end()
        if self.place.image is not None:
            # Start the image now: it is ready when the first message needs it.
            in_background(self.place.image.checkpoints)
        with remembered("chat"):
            for message in messages:
                self.say(message)
            self._converse(Composer(line_ahead(self._ahead, typed_line)))
        click.echo("", err=True)
        return 0

    def _converse(self, composer: Composer) -> None:
        while True:
            try:
                entry = composer.read(self.prompt)
                if not self.handle(entry):
                    return
            except EOFError:
                return
            except KeyboardInterrupt:
                # Only the text of this line is discarded.
                click.echo("", err=True)
            except GramercyError as error:
                self.fail(error)

    @property
    def prompt(self) -> str:
        """The prompt. It names the mode unless it is the usual one."""
        return "> " if self.place.mode is Mode.ASK else f"{self.place.mode.value}> "

    def from_pipe(self, messages: Sequence[str]) -> int:
        """Answer the messages of the command line, together with standard input."""
        piped = read_standard_input()
        *first, last = messages or ("",)
        for message in [*first, "\n\n".join(filter(None, (last, piped.strip())))]:
            if _is_command(message):
                self.commands.do(message)
            else:
                self.say(message, is_raised=True)
        return FAILED if self.has_failed else 0

    def handle(self, entry: str) -> bool:
        """Handle one entry. Return whether to go on."""
        if not entry.strip():
            return True
        if _is_command(entry):
            return self.commands.do(entry)
        # A message that starts with a slash is typed after a space.
        self.say(entry)
        return True

    def say(self, message: str, *, is_raised: bool = False) -> None:
        """Let the agent answer. Esc or Ctrl-C stops the answer; the text so far is kept."""
        answers = Answers()
        try:
            with self._until_stopped():
                self.runner.run(self._answer(message, answers))
        except (KeyboardInterrupt, asyncio.CancelledError):
            self._ahead.forget()
            if self.place.image is not None:
                # Work on a thread is not stopped by cancelling the task that awaits it.
                self.place.image.interrupt()
            answers.end_line()
            tell("(stopped)")
            if is_raised:
                raise
        except GramercyError as error:
            answers.end_line()
            if is_raised:
                raise
            self.fail(error)
            if isinstance(error, ProviderError):
                tell("(/again says it once more, /model chooses another model)")

    async def _answer(self, message: str, answers: Answers) -> None:
        self._task = asyncio.current_task()
        whole = self.place.mentions(lambda: self.talk.conversation).resolve(message)
        for note in whole.notes:
            tell(note)
        before = len(self.talk.kept)
        self.typed[before] = message
        self.rewinding.mark(before)
        self.talk.model = str(self.place.model)
        text = self.context.with_message(whole.message)
        try:
            events = self.place.stream(text, self.talk.conversation, talk=self.talk)
            async with aclosing(events):
                async for event in events:
                    answers.take(event)
                    if isinstance(event, Finished):
                        self._finished(event.response)
        except AgentError as error:
            if isinstance(error.response, Response):
                self.responses.append(error.response)
            raise

    @contextmanager
    def _until_stopped(self) -> Iterator[None]:
        """Allow questions until the block ends, and stop the answer at Esc where keys can be watched."""
        with self._asking.until_stopped():
            if not self._watches_keys:
                yield
                return
            loop = self.runner.get_loop()
            with Keys(lambda: loop.call_soon_threadsafe(self._cancel), self._ahead) as keys:
                self._asking.around = keys.paused
                yield

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finished(self, response: Response) -> None:
        self.responses.append(response)
        self.has_failed |= response.stop == "refused"
        if sys.stdout.isatty():
            show(figures_line(response, str(self.place.model)), err=True, dim=True)

    def begin(self) -> None:
        """Begin a new conversation."""
        self.use(new_talk(self.place))

    def use(self, talk: SessionTalk) -> None:
        """Continue a conversation."""
        self.talk = talk
        self.typed.clear()
        self.context.tell_again()
        self.rewinding.forget()

    def fail(self, error: Exception) -> None:
        """Show an error. The conversation goes on."""
        self.has_failed = True
        show(visible(str(error)), err=True, fg="red")


def _is_command(entry: str) -> bool:
    return entry.startswith("/") and "\n" not in entry
