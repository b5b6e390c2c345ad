"""One conversation of an editor with an agent: messages, what is shown of their runs, modes, its end."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.acp.approval import EditorApprover
from gramercy.acp.prompts import message_of
from gramercy.acp.updates import CallView, chunk, view_of
from gramercy.agents.base import CallBegun, CallEnded
from gramercy.errors import ExecutionError, LimitReachedError, ProtocolError
from gramercy.execution.calls import ToolResult
from gramercy.execution.policy import Action, Rule, RuleOrigin
from gramercy.mcp.jsonrpc import Code, invalid_params
from gramercy.providers.base import ModelCall, TextPart, ThoughtPart
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.acp.base import Host, Place
    from gramercy.acp.editor import Editor
    from gramercy.agents.base import AgentEvent
    from gramercy.agents.talks import SessionTalk
    from gramercy.execution.policy import Policy
    from gramercy.tools.tool import Tool


class Mode(msgspec.Struct, frozen=True):
    """How much an agent may do by itself; `rule` can only make the rules of the person stricter."""

    id: str
    name: str
    description: str
    rule: Rule | None = None


def _strict(mode: str, safety: tuple[Safety, ...], reason: str) -> Rule:
    origin = RuleOrigin("mode", f"the mode {mode}", number=1, tightens=True)
    return Rule(Action.DENY, safety=safety, reason=reason, origin=origin)


MODES = (
    Mode("ask", "Ask", "The rules decide; what they ask about is put to you"),
    Mode(
        "plan",
        "Plan",
        "Only safe tools run, and nothing is changed",
        _strict(
            "plan",
            (Safety.CAUTIOUS, Safety.DANGEROUS),
            "nothing is changed in this mode: say what you would do, and the person decides",
        ),
    ),
    Mode(
        "auto-safe",
        "No questions",
        "Nothing is asked: what would be asked about is refused",
        _strict("auto-safe", (Safety.DANGEROUS,), "nobody is asked in this mode: go on without it"),
    ),
)


class EditorSession:
    """A session with its place of work. One message is answered at a time."""

    def __init__(self, editor: Editor, talk: SessionTalk) -> None:
        self.id = talk.session
        self.mode = MODES[0]
        self.talk = talk
        self._editor = editor
        self._stack = ExitStack()
        self._place: Place | None = None
        self._policy: Policy | None = None
        self._run: asyncio.Future[str] | None = None
        self._is_stopped = False
        self._views: dict[tuple[str, int], CallView] = {}
        self._count = 0

    @property
    def place(self) -> Place:
        """Where it works; there once it was opened."""
        assert self._place is not None  # noqa: S101 - opened before it is known to the engine
        return self._place

    async def open(self, host: Host, project: str) -> None:
        """Open the place of work; that may load files of the user's, which takes a while."""
        approver = EditorApprover(self._editor, self.id, self._asked_view)
        opened = host.open(project, approver)
        self._place = await asyncio.to_thread(self._stack.enter_context, opened)
        self._policy = self._place.executor.policy

    async def prompt(self, blocks: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        """Answer one message; returns why it ended."""
        if self._run is not None:
            raise ProtocolError(
                Code.INVALID_REQUEST,
                "a message of this session is being answered: wait for that, or cancel it",
            )
        self._is_stopped = False
        run = self._run = asyncio.ensure_future(self._answer(blocks))
        try:
            return {"stopReason": await run}
        except asyncio.CancelledError:
            run.cancel()
            await asyncio.wait({run})
            if not self._is_stopped:
                raise
            return {"stopReason": "cancelled"}
        finally:
            self._run = None
            self._end_views()

    def cancel(self) -> None:
        """Stop the answer; what was said and done so far stays."""
        if self._run is not None:
            self._is_stopped = True
            self._run.cancel()

    def set_mode(self, name: str) -> None:
        """Go on in another mode, from the next message on."""
        found = next((mode for mode in MODES if mode.id == name), None)
        if found is None:
            known = ", ".join(mode.id for mode in MODES)
            raise invalid_params(f"there is no mode {name!r:.60}: expected {known}")
        self.mode = found

    def close(self) -> None:
        """End what it works with, and wait for that."""
        self.cancel()
        self._stack.close()

    async def _answer(self, blocks: tuple[dict[str, Any], ...]) -> str:
        message = await message_of(blocks, self._read)
        self.place.executor.policy = self._ruled()
        try:
            async for event in self.place.stream(message, self.talk.conversation, talk=self.talk):
                self._show(event)
        except LimitReachedError as error:
            self._tell(f"\n\n{error}")
            return "max_turn_requests"
        return "end_turn"

    def _ruled(self) -> Policy:
        assert self._policy is not None  # noqa: S101 - set with the place
        return self._policy if self.mode.rule is None else self._policy.with_rule(self.mode.rule)

    async def _read(self, path: Path) -> str | None:
        """Return the text of a file as the editor has it; None where it offers no files."""
        if not self._editor.can("fs", "readTextFile"):
            return None
        params = {"sessionId": self.id, "path": str(path)}
        try:
            found = (await self._editor.ask("fs/read_text_file", params)).get("content")
        except ExecutionError:
            return None
        return found if isinstance(found, str) else None

    def _tell(self, text: str) -> None:
        self._editor.update(self.id, chunk("agent_message", text))

    def _show(self, event: AgentEvent) -> None:
        """Tell the editor of an event of the run."""
        if isinstance(event, TextPart):
            self._tell(event.text)
        elif isinstance(event, ThoughtPart):
            self._editor.update(self.id, chunk("agent_thought", event.text))
        elif isinstance(event, CallBegun):
            self._view(event.call, event.depth, event.agent)
        elif isinstance(event, CallEnded):
            view = self._view(event.call, event.depth, event.agent)
            self._editor.update(self.id, view.ended(event.result))
            del self._views[event.call.id, event.depth]

    def _view(self, call: ModelCall, depth: int = 0, agent: str = "") -> CallView:
        """Return the view of a call; one that the editor does not know yet is shown to it."""
        known = self._views.get((call.id, depth))
        if known is not None:
            return known
        self._count += 1
        tool = self._tool(call.name)
        made = view_of(f"call-{self._count}", call, tool, self.place.project, agent if depth else "")
        self._views[call.id, depth] = made
        self._editor.update(self.id, made.begun())
        return made

    def _asked_view(self, call_id: str, tool: Tool) -> CallView:
        """Return the view of a call that is asked about: the innermost of that id, as it waits for this."""
        found = [view for (known, _), view in self._views.items() if known == call_id and not view.is_over]
        return found[-1] if found else self._view(ModelCall(call_id, tool.name))

    def _tool(self, name: str) -> Tool | None:
        return self.place.library.get(name)

    def _end_views(self) -> None:
        """Show calls as ended that were cut off."""
        for view in self._views.values():
            result = ToolResult("", success=False, content="It was stopped.")
            self._editor.update(self.id, view.ended(result))
        self._views.clear()

    def replay(self) -> None:
        """Show the editor what was said before."""
        for message in self.talk.conversation:
            if message.role == "tool":
                self._replay_result(message.call_id, message.text, is_error=message.is_error)
            elif message.text:
                kind = "user_message" if message.role == "user" else "agent_message"
                self._editor.update(self.id, chunk(kind, message.text))
            for call in message.calls:
                self._view(call)
        self._end_views()

    def _replay_result(self, call_id: str, text: str, *, is_error: bool) -> None:
        view = self._views.pop((call_id, 0), None)
        if view is not None:
            result = ToolResult(call_id, success=not is_error, content=text)
            self._editor.update(self.id, view.ended(result))
