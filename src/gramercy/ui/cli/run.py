"""`gramercy run`: an agent of a gram file answers messages; each of several is a turn of one conversation."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from gramercy.agents.base import Finished, Response
from gramercy.errors import AgentError, GramercyError
from gramercy.ui.cli.agents import (
    Asking,
    agent_options,
    debug_option,
    may_run,
    stoppable_runner,
    talk_options,
    watching_options,
)
from gramercy.ui.cli.answers import Answers, response_data, watched
from gramercy.ui.cli.composing import read_standard_input
from gramercy.ui.cli.main import DENIED, FAILED, code_of
from gramercy.ui.cli.options import json_option
from gramercy.ui.cli.terminal import json_text, prints_aside, tell
from gramercy.workbench.agents import Plan, open_workplace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.agents.talks import SessionTalk
    from gramercy.ui.cli.agents import Talking
    from gramercy.workbench.workplace import Workplace


@click.command()
@click.argument("file", metavar="AGENT.gram", type=click.Path(exists=True, dir_okay=False))
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@agent_options
@watching_options
@talk_options
@debug_option
@json_option("Print the answers with calls, usage and conversation as JSON.")
def run(plan: Plan, talking: Talking, messages: Sequence[str], *, debug: bool, as_json: bool) -> int:
    """Run an agent of a gram file on messages, one after the other; - is standard input.

    The answer goes to standard output, what the agent calls to standard error. With --continue or --session
    and no message it goes on where a conversation was interrupted; no dangerous call is made a second time.
    """
    if not messages and not (talking.session or talking.is_continued):
        raise click.UsageError("say something: a MESSAGE, or - for standard input")
    given = [read_standard_input() if message == "-" else message for message in messages]
    with prints_aside(), open_workplace(plan, Asking(), tell, may_run=may_run) as place:
        if debug:
            place.open_provider = watched(place.open_provider)
        work = Run(place, talking.talk(place), Answers(quiet=as_json))
        try:
            with stoppable_runner() as runner:
                runner.run(work.all(given or [None]))
        except GramercyError as error:
            if not as_json:
                raise
            work.error = error
    if as_json:
        click.echo(json_text(work.data()))
    return work.code()


class Run:
    """One conversation of a command: messages, responses, and the error that ended it."""

    def __init__(self, place: Workplace, talk: SessionTalk, answers: Answers) -> None:
        self._place = place
        self._talk = talk
        self._answers = answers
        self.responses: list[Response] = []
        self.error: GramercyError | None = None

    async def all(self, messages: Sequence[str | None]) -> None:
        """Answer the messages in order. None resumes the conversation where it stopped."""
        try:
            for message in messages:
                await self._one(message)
        finally:
            await self._place.aclose()

    async def _one(self, message: str | None) -> None:
        try:
            text = None if message is None else self._whole(message)
            events = self._place.stream(text, self._talk.conversation, talk=self._talk)
            async with aclosing(events):
                async for event in events:
                    self._answers.take(event)
                    if isinstance(event, Finished):
                        self.responses.append(event.response)
        except AgentError as error:
            if isinstance(error.response, Response):
                self.responses.append(error.response)
            raise
        finally:
            self._answers.end_line()

    def _whole(self, message: str) -> str:
        """Return a message with its mentions expanded."""
        whole = self._place.mentions(lambda: self._talk.conversation).resolve(message)
        for note in whole.notes:
            tell(note)
        return whole.message

    def code(self) -> int:
        """Return the exit code. It reports refused calls and answers to scripts, even with some text."""
        if self.error is not None:
            return code_of(self.error)
        if any(response.stop == "refused" for response in self.responses):
            return FAILED
        made = [call.result.metadata for response in self.responses for call in response.calls]
        return DENIED if any("awaiting" in each or each.get("denied") for each in made) else 0

    def data(self) -> dict[str, Any]:
        """Return the stable shape of --json."""
        last = self.responses[-1] if self.responses else None
        found: dict[str, Any] = {
            "agent": self._place.agent.name,
            "model": str(self._place.model),
            "session": self._talk.session if self._talk.kept else "",
            "content": last.content if last else "",
            "responses": [response_data(each) for each in self.responses],
        }
        if self.error is not None:
            kind, code = type(self.error).__name__, code_of(self.error)
            found["error"] = {"type": kind, "message": str(self.error), "exit_code": code}
        return found
