"""The method tools/call: find the tool, have the executor run it, shape the result for the client."""

from __future__ import annotations

import re
from base64 import b64encode
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType, field

from gramercy.errors import ProtocolError
from gramercy.execution.calls import ToolResult
from gramercy.gram.suggestion import suggest
from gramercy.journal.base import FINAL, State
from gramercy.mcp.clients import ServedCall
from gramercy.mcp.conversation import AsTask
from gramercy.mcp.jsonrpc import LATEST_LEGACY, TASKS, Code, invalid_params, missing_capability
from gramercy.mcp.listing import AS_TASK, ONLY_AS_TASK, STRUCTURED_SINCE, task_support
from gramercy.tools.content import (
    AudioBlock,
    Block,
    ImageBlock,
    ResourceBlock,
    ResourceLink,
    TextBlock,
    blocks_text,
)
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Mapping

    from gramercy.execution.executor import Executor
    from gramercy.execution.policy import Policy
    from gramercy.journal.base import CallRecord
    from gramercy.mcp.base import Peer, Preface
    from gramercy.mcp.jsonrpc import Request, Shaper
    from gramercy.mcp.listing import ToolListing
    from gramercy.mcp.tasks import TaskName
    from gramercy.tools.library import ToolLibrary
    from gramercy.tools.safety import Safety
    from gramercy.tools.tool import Tool

SUGGESTIONS = 3
# How much the clock of the process that began a task may have differed.
CLOCK_SECONDS = 60.0


class ToolCalls:
    """Runs the calls of all clients through one executor."""

    def __init__(self, executor: Executor, listing: ToolListing, shaper: Shaper, *, strict: bool) -> None:
        self._executor = executor
        self._listing = listing
        self._shaper = shaper
        self._strict = strict
        # Random enough that calls of two servers never collide in one journal, and cheap to make.
        self._prefix = token_hex(6)
        self._numbers = count(1)
        # The tools for clients of the last ceiling, valid while neither tools nor policy change.
        self._library: ToolLibrary | None = None
        self._policy: Policy | None = None
        self._ceiling: Safety | None = None
        self._shown: dict[str, Tool] = {}
        self.preface: Preface | None = None
        # The text for clients that call a tool that is not served here, by its name.
        self.elsewhere: Mapping[str, str] = {}
        # Clients that have had their first reply: sessions, or principals if there are no sessions.
        self._told: set[Peer | str] = set()

    def call(self, request: Request) -> CallResult | AsTask | Coroutine[Any, Any, CallResult]:
        """Return the result, or a coroutine for it if the tool has to be awaited."""
        tool = self.find(request)
        arguments = request.params.get("arguments", {})
        if type(arguments) is not dict:
            raise invalid_params("arguments must be an object")
        given = {"id": f"{self._prefix}-{next(self._numbers)}", "name": tool.name, "arguments": arguments}
        may_be_task = request.modern or "task" in request.params or ONLY_AS_TASK in tool.categories
        if may_be_task and _wants_task(request, tool):
            return AsTask(self._later(given, request))
        if self.preface is not None and self._is_first(request):
            return self._later(given, request)
        outcome = self._executor.begin(given)
        return self._shaped(outcome, request) if type(outcome) is ToolResult else self._rest(outcome, request)

    def returned(self, name: TaskName, request: Request) -> Coroutine[Any, Any, CallResult] | None:
        """Return a coroutine that resumes a task's call of an earlier process; None if there is no trace."""
        journal = self._executor.journal
        record = journal.find(name.identity) or self._delivered(name, request)
        if record is None:
            return None
        call = record.call
        if record.delivered and record.state in FINAL:
            return self._told_again(record, request)
        given = {"id": call.call_id, "name": call.tool, "arguments": dict(call.arguments)}
        return self._rest(self._executor.aexecute(given), request)

    async def _told_again(self, record: CallRecord, request: Request) -> CallResult:
        facts = record.facts
        text = facts.content or facts.detail or "The answer of this call is no longer kept."
        success = record.state is State.DONE
        return self._shaped(
            ToolResult(record.call.call_id, success, text, None if success else text), request
        )

    def _delivered(self, name: TaskName, request: Request) -> CallRecord | None:
        """Find a call whose answer was delivered, for a client that fetches it again."""
        since, principal = name.created_ms / 1000 - CLOCK_SECONDS, request.peer.principal
        for record in self._executor.journal.records(principal=principal, since=since):
            if record.call.identity == name.identity:
                return record
        return None

    def find(self, request: Request) -> Tool:
        """Return the tool that a request names, or raise the error of the seed: Unknown tool."""
        name = request.params.get("name")
        if type(name) is not str or not name:
            raise invalid_params("name must be the name of a tool")
        ceiling = request.peer.ceiling
        settings = self._executor.settings
        library = settings.registry.library()
        if (
            library is not self._library
            or settings.policy is not self._policy
            or ceiling is not self._ceiling
        ):
            self._library, self._policy, self._ceiling = library, settings.policy, ceiling
            self._shown.clear()
        tool = self._shown.get(name)
        if tool is None:
            tool = settings.registry.find(name)
            if tool is None or self._listing.why_hidden(tool, ceiling) is not None:
                raise self._unknown(name, tool, request)
            if name == tool.name:  # the other spellings are many
                self._shown[name] = tool
        return tool

    def _unknown(self, name: str, tool: Tool | None, request: Request) -> ProtocolError:
        """Return the error; the hint is in its message too, since models see nothing else of it."""
        message, ceiling = f"Unknown tool: {name[:100]}", request.peer.ceiling
        reason = self.elsewhere.get(name) or self.elsewhere.get(name.replace("-", "_"))
        if tool is not None:
            reason = self._listing.why_hidden(tool, ceiling)
        if reason:
            return ProtocolError(Code.INVALID_PARAMS, f"{message}\n{reason}", {"reason": reason})
        names = [known.name for known in self._listing.visible(ceiling)]
        near = suggest(name[:100], names, most=SUGGESTIONS)
        if not near:
            return ProtocolError(Code.INVALID_PARAMS, message, {"hint": "tools/list names the tools"})
        told = f"{message}\nDid you mean {' or '.join(near)}?"
        return ProtocolError(Code.INVALID_PARAMS, told, {"didYouMean": list(near)})

    async def _later(self, given: dict[str, Any], request: Request) -> CallResult:
        is_first = self._is_first(request)
        if is_first and self.preface is not None:
            await self.preface.settle()
        shaped = await self._rest(self._executor.aexecute(given), request)
        request = getattr(current_call(), "request", request)
        return self._with_note(shaped, request) if is_first else shaped

    def _is_first(self, request: Request) -> bool:
        return self.preface is not None and self._teller(request) not in self._told

    @staticmethod
    def _teller(request: Request) -> Peer | str:
        # Over HTTP, every modern request is a peer of its own.
        return request.peer.principal if request.modern else request.peer

    def _with_note(self, result: CallResult, request: Request) -> CallResult:
        """Add the note for the client to its first reply, after the tool's own text."""
        teller = self._teller(request)
        if self.preface is not None and self.preface.note and teller not in self._told:
            result.content.append(TextContent("text", without_controls(self.preface.note)))
            self._told.add(teller)
        return result

    def forget(self, peer: Peer) -> None:
        """Forget a client that has gone."""
        self._told.discard(peer)

    async def _rest(self, outcome: Awaitable[ToolResult], request: Request) -> CallResult:
        result = await outcome
        # If a client was asked something, another request than the first one gets the answer.
        return self._shaped(result, getattr(current_call(), "request", request))

    def _shaped(self, result: ToolResult, request: Request) -> CallResult:
        # A call in doubt is not over: a client that returns after it was resolved gets the answer.
        if "journal_key" in result.metadata and "in_doubt" not in result.metadata:
            call = current_call()
            if isinstance(call, ServedCall):
                call.result = result
        if not result.success:
            self._raise_protocol_errors(result)
        return call_result(result, request, self._shaper.meta)

    def _raise_protocol_errors(self, result: ToolResult) -> None:
        fault = getattr(current_call(), "fault", None)
        if fault is not None:
            raise fault
        ran_or_was_denied = "execution_time_ms" in result.metadata or "denied" in result.metadata
        if self._strict and not ran_or_was_denied:
            raise ProtocolError(Code.INVALID_PARAMS, result.content)


def _wants_task(request: Request, tool: Tool) -> bool:
    """Tell whether a call is a task from the start; raise if it must be one and cannot."""
    required = ONLY_AS_TASK in tool.categories
    if request.modern:
        if required and not request.declares_tasks:
            raise missing_capability({"extensions": {TASKS: {}}})
        return request.declares_tasks and (required or AS_TASK in tool.categories)
    if request.version != LATEST_LEGACY:
        return False
    wanted = "task" in request.params
    if (required and not wanted) or (wanted and task_support(tool) is None):
        must = "must be called as a task" if required else "cannot be called as a task"
        raise ProtocolError(Code.METHOD_NOT_FOUND, f"Method not found: {tool.name} {must}")
    return wanted


# Match whole sequences first, so that no harmless-looking rest of one stays.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
AUDIO_SINCE = "2025-03-26"
LINKS_SINCE = "2025-06-18"


class TextContent(msgspec.Struct):
    """A text block on the wire."""

    type: str
    text: str


class CallResult(msgspec.Struct):
    """The result of tools/call on the wire."""

    content: list[Any]
    is_error: bool = field(name="isError")
    structured: Any = field(default=UNSET, name="structuredContent")
    result_type: str | UnsetType = field(default=UNSET, name="resultType")
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


def call_result(result: ToolResult, request: Request, meta: dict[str, Any]) -> CallResult:
    """Shape the result of a call; `meta` is what modern clients want with every result."""
    found = result.metadata
    # Nearly every result is plain text; the guard has put anything else beside it.
    content = (
        contents(result.content, found["blocks"], request.version)
        if "blocks" in found
        else [TextContent("text", without_controls(result.content))]
    )
    if "note" in found:
        content[:1] = _parted(content[0], found["note"])
    shaped = CallResult(content, not result.success)
    if "structured" in found and _may_be_structured(found["structured"], request):
        shaped.structured = found["structured"]
    if request.modern:
        shaped.result_type, shaped.meta = "complete", meta
    return shaped


def _parted(whole: Any, note: str) -> list[Any]:
    """Return a text and the note after it as two: the first is the text of the tool's contract."""
    if not isinstance(whole, TextContent):
        return [whole]
    text, gap, rest = whole.text.rpartition(f"\n\n{without_controls(note)}")
    return [TextContent("text", text), TextContent("text", f"{gap[2:]}{rest}")] if gap else [whole]


def _may_be_structured(value: Any, request: Request) -> bool:
    return request.modern or (request.version >= STRUCTURED_SINCE and isinstance(value, dict))


def contents(text: str, blocks: tuple[Block, ...], version: str) -> list[Any]:
    """Return the text and the blocks for the client's revision; the text once, if the blocks say the same."""
    shown = [as_content(block, version) for block in blocks]
    if text == blocks_text(blocks):
        return shown
    return [TextContent("text", without_controls(text)), *shown]


def without_controls(text: str) -> str:
    """Remove control sequences of terminals; tabs, line ends and form feeds are text."""
    # As a plain str: a tool may return a subclass that the encoder does not know.
    return str(text) if text.isprintable() or _CONTROLS.search(text) is None else _CONTROLS.sub("", text)


def as_content(block: Block, version: str) -> Any:
    """Return one block on the wire; kinds that the client's revision lacks become text."""
    if (isinstance(block, AudioBlock) and version < AUDIO_SINCE) or (
        isinstance(block, ResourceLink) and version < LINKS_SINCE
    ):
        return TextContent("text", blocks_text((block,)))
    content = _content(block)
    if block.annotations:
        content["annotations"] = block.annotations
    return content


def _content(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": without_controls(block.text)}
    if isinstance(block, ImageBlock | AudioBlock):
        kind = "image" if isinstance(block, ImageBlock) else "audio"
        return {"type": kind, "data": b64encode(block.data).decode(), "mimeType": block.mime_type}
    if isinstance(block, ResourceBlock):
        return {"type": "resource", "resource": resource_content(block.uri, block.content, block.mime_type)}
    link = {"type": "resource_link", "uri": block.uri, "name": block.name}
    if block.description:
        link["description"] = block.description
    return link if block.mime_type is None else {**link, "mimeType": block.mime_type}


def resource_content(uri: str, content: str | bytes, mime_type: str | None) -> dict[str, Any]:
    """Return the content of a resource on the wire."""
    named = {"uri": uri} if mime_type is None else {"uri": uri, "mimeType": mime_type}
    if isinstance(content, str):
        return {**named, "text": content}
    return {**named, "blob": b64encode(content).decode()}
