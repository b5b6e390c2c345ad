"""One conversation of an editor with an agent: messages, the display of their runs, modes, its end.

An editor can pass MCP servers on with a session. Tools that a person has accepted before (`gramercy foreign
accept`) are used as they are. New tools are shown to the person, once for each server, and accepted for this
session alone; every call of them asks.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.acp.approval import EditorApprover, ask_permission, option
from gramercy.acp.editor import EditorFiles
from gramercy.acp.prompts import command_of, commands_update, do_command, message_of
from gramercy.acp.updates import CallView, chunk, one_line, plan_update, text_content, view_of
from gramercy.agents.base import CallBegun, CallEnded, Finished, TurnEnded, Warned
from gramercy.errors import ExecutionError, GramercyError, LimitReachedError, ProtocolError
from gramercy.execution.calls import ToolResult
from gramercy.mcp.foreign import PinFile, Standing, connect_server, register_foreign, review_tools
from gramercy.mcp.foreign.server import LONGEST_SERVER_NAME
from gramercy.mcp.jsonrpc import Code, invalid_params
from gramercy.providers.base import ModelCall, TextPart, ThoughtPart
from gramercy.providers.models import context_window
from gramercy.tools.registry import Registry
from gramercy.toolsets.planning import PLAN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from gramercy.acp.base import Host, Mode, Place, ServerWords
    from gramercy.acp.editor import Editor
    from gramercy.agents.base import AgentEvent
    from gramercy.agents.talks import SessionTalk
    from gramercy.execution.approval import ApprovalRequest
    from gramercy.mcp.foreign import Definition, ForeignServer, Review
    from gramercy.tools.tool import Tool

# A model's reason to stop, in the words of the protocol, unless it is the end of the turn.
REASONS = {"length": "max_tokens", "refused": "refusal"}
BUSY_SESSION = "a message of this session is being answered: wait for that, or cancel it"
# For a cancelled run to leave its conversation consistent.
ENDING_SECONDS = 5.0
# Seconds after which an editor is told of commands: it then knows its session.
AFTERWARDS = 0.01
# Steps of the event loop from the event that a call has begun until it is shown; more than it takes.
MOST_STEPS = 100


class EditorSession:
    """A session with its place of work. One message is answered at a time."""

    def __init__(self, editor: Editor, talk: SessionTalk, modes: Sequence[Mode]) -> None:
        self.id = talk.session
        self.modes = {mode.value: mode for mode in modes}
        self.mode = modes[0]
        self.talk = talk
        self._editor = editor
        self._files = EditorFiles(editor, self.id) if editor.can("fs", "readTextFile") else None
        self._stack = ExitStack()
        self._place: Place | None = None
        self._servers: HandedServers | None = None
        self._has_title = bool(talk.conversation)
        self._cost: float | None = 0.0
        # Messages from its opening, before the editor knew the session.
        self._remarks: list[str] = []
        self._run: asyncio.Future[str] | None = None
        self._is_stopped = False
        self._views: dict[tuple[str, int], CallView] = {}
        self._count = 0

    @property
    def place(self) -> Place:
        """The place of work; set once the session is open."""
        assert self._place is not None  # noqa: S101 - opened before it is known to the engine
        return self._place

    async def open(self, host: Host, project: str, servers: Sequence[ServerWords]) -> None:
        """Open the place of work; that may load files of the user, which takes a while."""
        self._servers = HandedServers(servers, project) if servers else None
        approver = EditorApprover(self._editor, self.id, self._asked_view)
        opened = host.open(project, approver, self._remarks.append)
        entering = asyncio.ensure_future(asyncio.to_thread(self._stack.enter_context, opened))
        try:
            self._place = await asyncio.shield(entering)
        except asyncio.CancelledError:
            # The thread continues: its place is closed as soon as it is open.
            entering.add_done_callback(self._unwanted)
            raise
        self._rewinding = host.rewinding(self._place)
        # The editor must know the session before it gets messages about it.
        asyncio.get_running_loop().call_later(AFTERWARDS, self._editor.update, self.id, commands_update())
        if self._servers is not None:
            self._stack.callback(self._servers.close)
        if self._files is not None and self._place.workspace is not None:
            self._place.workspace.editor = self._files

    def _unwanted(self, entered: asyncio.Future[Place]) -> None:
        if not entered.cancelled() and entered.exception() is None:
            entered.get_loop().run_in_executor(None, self.close)

    def catch_up(self, talk: SessionTalk) -> None:
        """Reload the recorded conversation, if another program has continued it meanwhile."""
        if _words(talk) != _words(self.talk):
            self.talk = talk
            self._rewinding.forget()

    async def prompt(self, blocks: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        """Answer one message; return why it ended."""
        if self._run is not None:
            raise ProtocolError(Code.INVALID_REQUEST, BUSY_SESSION)
        self._is_stopped = False
        run = self._run = asyncio.ensure_future(self._answer(blocks))
        try:
            reason = await run
        except asyncio.CancelledError:
            run.cancel()
            await asyncio.wait({run})
            if not self._is_stopped:
                raise
            return {"stopReason": "cancelled"}
        else:
            # A command that must not be left half done is completed all the same.
            return {"stopReason": "cancelled" if self._is_stopped else reason}
        finally:
            self._run = None
            self._end_views()

    def cancel(self) -> None:
        """Stop the answer; messages and effects so far stay."""
        if self._run is not None:
            self._is_stopped = True
            self._run.cancel()

    def set_mode(self, name: str) -> None:
        """Change the mode, from the next message on."""
        if name not in self.modes:
            raise invalid_params(f"there is no mode {name!r:.60}: expected {', '.join(self.modes)}")
        self.mode = self.modes[name]
        self.place.use_mode(self.mode)

    @property
    def is_busy(self) -> bool:
        """Whether a message is being answered."""
        return self._run is not None

    async def end(self) -> None:
        """Stop the answer, close the providers, and end the place of work."""
        run = self._run
        if run is not None:
            self.cancel()
            await asyncio.wait({run}, timeout=ENDING_SECONDS)
        await self.place.aclose()
        # An image takes a moment to end.
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the place of work, and wait for that."""
        self._stack.close()

    async def _answer(self, blocks: tuple[dict[str, Any], ...]) -> str:
        command = command_of(blocks)
        if command[0]:
            self._tell(await do_command(command, self.place, self.talk, self._rewinding))
            return "end_turn"
        message = await message_of(blocks, self._read, self._resolved)
        while self._remarks:
            self._notice(self._remarks.pop(0))
        await self._join_servers()
        await asyncio.to_thread(self._rewinding.mark, len(self.talk.kept))
        self.talk.model = str(self.place.agent.model)
        reason = "end_turn"
        try:
            async with aclosing(self.place.stream(message, self.talk.conversation, talk=self.talk)) as events:
                async for event in events:
                    self._show(event)
                    if isinstance(event, Finished):
                        reason = REASONS.get(event.response.stop, reason)
        except LimitReachedError as error:
            self._notice(str(error))
            reason = "max_turn_requests"
        self._show_title()
        return reason

    async def _resolved(self, text: str) -> str:
        """Return the person's text, with the contents of its mentions."""
        mentions = self.place.mentions(lambda: self.talk.conversation)
        # This may query an image.
        found = await asyncio.to_thread(mentions.resolve, text)
        for note in found.notes:
            self._notice(note)
        return found.message

    async def _read(self, path: Path) -> str | None:
        return None if self._files is None else await self._files.read(path)

    async def _join_servers(self) -> None:
        """Give the agent the tools of the servers that the editor has passed on, once."""
        servers, self._servers = self._servers, None
        if servers is not None:
            found = await servers.tools(self._accepted, self._notice)
            for line in self.place.add_tools(found):
                self._notice(line)

    async def _accepted(self, server: str, reviews: Sequence[Review]) -> bool:
        """Have the person review tools that were not accepted yet."""
        view = CallView(f"server-{server}", one_line(f"Use the tools of the MCP server {server}"))
        self._editor.update(self.id, view.begun("pending"))
        content = [text_content("\n\n".join(review.text() for review in reviews))]
        options = [
            option("once", "Use them in this session", "allow_once"),
            option("reject", "Leave them out", "reject_once"),
        ]
        try:
            chosen = await ask_permission(self._editor, self.id, view, content, options)
        except ExecutionError:
            chosen = ""
        self._editor.update(self.id, view.changed("completed" if chosen == "once" else "failed"))
        return chosen == "once"

    def _notice(self, text: str) -> None:
        """Tell the person something that is not part of the answer."""
        if self._editor.can("session", "notices"):
            notice = {"sessionUpdate": "notice", "severity": "warning", "title": text}
            self._editor.update(self.id, notice)
        else:
            self._tell(f"\n\n> {text}\n\n")

    def _show_title(self) -> None:
        if not self._has_title and self.talk.record.title:
            self._has_title = True
            self._editor.update(
                self.id, {"sessionUpdate": "session_info_update", "title": self.talk.record.title}
            )

    def _show_usage(self, event: TurnEnded) -> None:
        """Show how full the model's window is, and the cost of the session since it was opened."""
        known = self._cost is not None and event.cost is not None
        self._cost = (self._cost or 0.0) + (event.cost or 0.0) if known else None
        size = context_window(self.place.agent.model)
        if size is None or event.depth or not event.usage.total:
            return
        update: dict[str, Any] = {
            "sessionUpdate": "usage_update",
            "used": event.usage.total,
            "size": size,
        }
        if self._cost is not None:
            update["cost"] = {"amount": self._cost, "currency": "USD"}
        self._editor.update(self.id, update)

    def _tell(self, text: str) -> None:
        self._editor.update(self.id, chunk("agent_message", text))

    def _show(self, event: AgentEvent) -> None:
        """Show an event of the run in the editor."""
        if isinstance(event, TextPart):
            self._tell(event.text)
        elif isinstance(event, ThoughtPart):
            self._editor.update(self.id, chunk("agent_thought", event.text))
        elif isinstance(event, TurnEnded):
            self._show_usage(event)
        elif isinstance(event, Warned):
            self._notice(event.text)
        elif isinstance(event, CallBegun | CallEnded) and event.call.name == PLAN:
            self._show_plan(event)
        elif isinstance(event, CallBegun):
            self._view(event.call, event.depth, event.agent)
        elif isinstance(event, CallEnded):
            view = self._view(event.call, event.depth, event.agent)
            self._editor.update(self.id, view.ended(event.result))
            del self._views[event.call.id, event.depth]

    def _show_plan(self, event: CallBegun | CallEnded) -> None:
        """Show the plan of an agent as a plan and not as a call; an invalid plan is not shown."""
        if isinstance(event, CallEnded) and event.result.success:
            self._editor.update(self.id, plan_update(event.call))

    def _view(self, call: ModelCall, depth: int = 0, agent: str = "") -> CallView:
        """Return the view of a call; show the call first if the editor does not know it yet."""
        known = self._views.get((call.id, depth))
        if known is not None:
            return known
        self._count += 1
        tool = self._tool(call.name)
        made = view_of(f"call-{self._count}", call, tool, self.place.project, agent if depth else "")
        self._views[call.id, depth] = made
        self._editor.update(self.id, made.begun())
        return made

    async def _asked_view(self, request: ApprovalRequest) -> CallView:
        """Return the view of the call in question; a nested agent may have a call of the same id."""
        name = _spelt(request.tool.name)
        for _ in range(MOST_STEPS):
            for (known, _depth), view in self._views.items():
                if known == request.call_id and _spelt(view.name) == name:
                    return view
            # The event of its beginning is still on its way.
            await asyncio.sleep(0)
        arguments = msgspec.json.encode(request.arguments).decode()
        return self._view(ModelCall(request.call_id, request.tool.name, arguments))

    def _tool(self, name: str) -> Tool | None:
        return self.place.library.get(name)

    def _end_views(self) -> None:
        """Show interrupted calls as ended."""
        for view in self._views.values():
            result = ToolResult("", success=False, error="It was stopped.")
            self._editor.update(self.id, view.ended(result))
        self._views.clear()

    def replay(self) -> None:
        """Show the earlier messages in the editor."""
        for message in self.talk.conversation:
            if message.role == "tool":
                self._replay_result(message.call_id, message.text, is_error=message.is_error)
            elif message.text:
                kind = "user_message" if message.role == "user" else "agent_message"
                self._editor.update(self.id, chunk(kind, message.text))
            for call in message.calls:
                if call.name != PLAN:
                    self._view(call)
        self._end_views()

    def _replay_result(self, call_id: str, text: str, *, is_error: bool) -> None:
        view = self._views.pop((call_id, 0), None)
        if view is not None:
            result = ToolResult(call_id, not is_error, text, text if is_error else None)
            self._editor.update(self.id, view.ended(result))


def _words(talk: SessionTalk) -> list[tuple[str, str]]:
    return [(each.role, each.text) for each in talk.kept]


def _spelt(name: str) -> str:
    """Return the name of a tool in one spelling: models write either."""
    return name.replace("-", "_")


# An editor passes on the servers of its settings; a person did not write a list of this length.
MOST_SERVERS = 20


class SessionPins(PinFile):
    """The accepted tools of a server for one session; nothing is written."""

    def __init__(self, accepted: dict[str, Definition]) -> None:
        super().__init__()
        self._accepted = accepted

    def accepted(self, server: str) -> dict[str, Definition]:
        """Return the accepted definitions of its one server."""
        del server
        return self._accepted


class HandedServers:
    """The servers of one session. They start with the first message."""

    def __init__(self, words: Sequence[ServerWords], project: str) -> None:
        if len(words) > MOST_SERVERS:
            raise invalid_params(f"{len(words)} MCP servers are handed over: at most {MOST_SERVERS}")
        self._servers: list[ForeignServer] = []
        for each in words:
            try:
                self._servers.append(_server(each, project, [known.name for known in self._servers]))
            except GramercyError as error:
                raise invalid_params(f"the MCP server {each.name!r:.60} cannot be used: {error}") from None

    async def tools(
        self,
        accept: Callable[[str, Sequence[Review]], Awaitable[bool]],
        tell: Callable[[str], object],
    ) -> list[Tool]:
        """Return the usable tools; `accept` asks about new ones, `tell` says which are left out."""
        found: list[Tool] = []
        listings = [asyncio.to_thread(server.listing) for server in self._servers]
        for server, listing in zip(
            self._servers, await asyncio.gather(*listings, return_exceptions=True), strict=True
        ):
            if isinstance(listing, GramercyError | OSError):
                tell(f"The MCP server {server.name} cannot be used: {listing}")
                continue
            if isinstance(listing, BaseException):
                raise listing
            accepted = await asyncio.to_thread(PinFile().accepted, server.name)
            reviews = review_tools(server.name, listing, accepted)
            new = [each for each in reviews if each.standing is Standing.NEW]
            if new and await accept(server.name, new):
                accepted |= {each.tool: each.offered for each in new if each.offered is not None}
            found += await asyncio.to_thread(_registered, server, accepted, tell)
        return found

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.close()


def _registered(
    server: ForeignServer, accepted: dict[str, Definition], tell: Callable[[str], object]
) -> Iterable[Tool]:
    registry = Registry()
    for line in register_foreign(registry, server, pins=SessionPins(accepted)).lines():
        tell(line)
    return registry.library().values()


def _server(words: ServerWords, project: str, taken: list[str]) -> ForeignServer:
    name = _name(words.name, taken)
    if words.type == "http":
        headers = {each.name: each.value for each in words.headers}
        return connect_server(url=words.url, name=name, headers=headers, defer=True)
    if words.type != "stdio":
        raise GramercyError(f"its kind is {words.type!r:.40}: expected a program, or an address of kind http")
    env = {each.name: each.value for each in words.env}
    return connect_server([words.command, *words.args], name=name, env=env, folder=project, defer=True)


def _name(text: str, taken: list[str]) -> str:
    """Return a name in our form: lower-case letters and digits, different from other servers' names."""
    name = re.sub("[^a-z0-9]+", "-", text.casefold()).strip("-")
    name = (name if name[:1].isalpha() else f"server-{name}".strip("-"))[: LONGEST_SERVER_NAME - 3]
    found = name = name.strip("-")
    number = 2
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found
