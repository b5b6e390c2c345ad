"""The one error tree. Messages say what is wrong, which, and what to try: their reader is often a model.

GramercyError
├── GramError                   text in gram notation
│   ├── PositionedGramError     with the place of the fault
│   │   ├── GramSyntaxError     the text is not gram
│   │   └── TypeSignatureError  the gram is not a usable type signature
│   └── SpecificationError      the pattern is not a usable tool or agent
├── ToolError                   what a tool is
│   ├── InvalidToolError        a definition is refused
│   ├── InvalidSchemaError      a JSON Schema is refused
│   ├── InvalidArgumentsError   a call does not fit the tool's schema
│   ├── UnknownToolError        nothing is registered under that name
│   └── BindingError            no implementation fits a specification
├── ExecutionError              how a call runs
│   ├── InvalidCallError        the call itself is malformed
│   ├── InvalidPolicyError      a rule is refused
│   ├── DeadlineExceededError   a handler, hook or approver took too long
│   └── JournalError            calls cannot be recorded or looked up
│       ├── MovedError          somebody else was first to move a call
│       └── ForgedRecordError   what was recorded about a call was changed from outside
├── SourceError                 a file or module with tools cannot be loaded
│   ├── UntrustedFileError      a file that runs or rules here was changed while an image could have done it
│   └── ForeignError            another MCP server, or the file of its pins, cannot be used
│       ├── ServerGoneError     the connection to it has ended
│       ├── SessionLostError    it has dropped our session; the request was not carried out
│       ├── RemoteError         it answered with an error of the protocol
│       └── ChangedError        a tool of it is no longer what a person accepted
├── ServingError                a server cannot be started as asked
│   ├── KeysUnavailableError    the keys of an authorization server cannot be read now
│   └── ControlError            a process that serves cannot do what another terminal asks of it
├── ProtocolError               a request of a client is answered with a JSON-RPC error
│   └── InvalidFrameError       what a client sent is no message
│       ├── DeepFrameError      its JSON is nested too deeply to be read
│       └── SilentFrameError    nor is it a request, so that it must not be answered
├── HttpError                   the HTTP transport answers a request itself
├── JsonTextError               a text is not strict JSON
├── WorkspaceError              a file of the project cannot be read or written
│   ├── NotAFileError           the name belongs to a directory, a pipe, a device or a socket
│   └── FileTooLargeError       it has more bytes than are read
├── FileStoreError              what a project's files held cannot be kept or is kept no more
├── InvalidSettingError         a value in a configuration or an option cannot be used
├── ClientSettingsError         the settings of an MCP client cannot be read or changed
├── UnreadableFileError         a file that a command names cannot be read or written
├── HandshakeError              a server did not do what its client needs
├── ProviderError               a model cannot be asked, or does not answer
│   ├── ModelUnavailableError   no such provider or model, no key, or a package is missing
│   └── CutStreamError          the answer ended in the middle: none of its calls was run
├── AgentError                  an agent cannot be run as asked
│   ├── InvalidCaseError        a case to compare implementations with cannot be read
│   ├── InvalidMessageError     a message is empty, too long or not text
│   └── LimitReachedError       it has used up its turns, calls, time or tokens
│       └── BudgetExceededError the next question would cost more than is left
└── ImageError                  a live image cannot be used
    ├── ImageStartError         its processes do not come up
    ├── ImageGoneError          a process of it has ended or does not answer
    ├── ImageProtocolError      a process of it sent or would get something malformed
    ├── CheckpointError         there is no such state to go back to
    └── SandboxError            it cannot be confined as asked

StoredSchemaWarning is no error but a warning: a stored schema says something else than its type signature.
This module knows no room: it carries fields and builds texts, nothing else.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gramercy.text import counted, is_hidden

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class GramercyError(Exception):
    """Any failure that gramercy reports on purpose."""


class GramError(GramercyError):
    """Text in gram notation cannot be used."""


@dataclass(frozen=True, slots=True)
class TextPosition:
    """A place in a source text: 1-based line and column, 0-based offset, and the line itself."""

    offset: int
    line: int
    column: int
    source_line: str

    @classmethod
    def at(cls, text: str, offset: int) -> TextPosition:
        """Locate an offset in a text; only errors pay for this."""
        start = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", offset)
        line = text[start : len(text) if end < 0 else end]
        return cls(offset, text.count("\n", 0, offset) + 1, offset - start + 1, line)

    def caret(self, width: int = 100) -> str:
        """Show the line with a caret under the place, cut to a window so that huge lines stay readable."""
        first = max(0, self.column - 1 - width // 2)
        window = self.source_line[first : first + width]
        shown = "".join("\N{REPLACEMENT CHARACTER}" if is_hidden(c) else c for c in window)
        return f"  {shown}\n  {' ' * (self.column - 1 - first)}^"


class PositionedGramError(GramError):
    """A gram error that can point at its place."""

    def __init__(self, reason: str, text: str, offset: int, *, hint: str | None = None) -> None:
        self.reason = reason
        self.position = TextPosition.at(text, offset)
        self.hint = hint
        lines = [f"{self.line}:{self.column}: {reason}", self.position.caret()]
        if hint:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))

    @property
    def line(self) -> int:
        """The 1-based line of the fault."""
        return self.position.line

    @property
    def column(self) -> int:
        """The 1-based column of the fault."""
        return self.position.column

    @property
    def offset(self) -> int:
        """The 0-based offset of the fault."""
        return self.position.offset


class GramSyntaxError(PositionedGramError):
    """The text is not gram."""


class TypeSignatureError(PositionedGramError):
    """The gram is well-formed but is not a usable type signature."""


class SpecificationError(GramError):
    """A pattern or JSON object is not a usable tool specification or agent."""


class StoredSchemaWarning(UserWarning):
    """A schema stored beside a type signature says something else than the signature."""


class JsonTextError(GramercyError, ValueError):
    """The text is not strict JSON: what was expected, what was found, and the name it is about, if any."""

    def __init__(self, expected: str, found: str, name: str | None = None) -> None:
        self.expected = expected
        self.found = found
        self.name = name
        about = f"{name!r:.60}: " if name is not None else ""
        super().__init__(f"not valid JSON: {about}expected {expected}, found {found}")


class ToolError(GramercyError):
    """A tool, its schema or its arguments cannot be used."""


class InvalidToolError(ToolError):
    """A tool definition is refused; the message says what to change."""


class InvalidSchemaError(ToolError):
    """A JSON Schema is refused."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the arguments of a call."""

    path: str
    expected: str
    received: str
    suggestion: str | None = None

    def __str__(self) -> str:
        text = f"{self.path}: expected {self.expected}, received {self.received}"
        return f"{text}; did you mean {self.suggestion}?" if self.suggestion else text


class InvalidArgumentsError(ToolError):
    """A call does not fit the tool's schema; carries every fault and a corrected example."""

    def __init__(
        self, faults: Sequence[Fault], *, tool: str | None = None, example: str | None = None
    ) -> None:
        self.faults = tuple(faults)
        self.tool = tool
        self.example = example
        head = f"Invalid arguments{f' for {tool}' if tool else ''} ({counted(len(self.faults), 'fault')}):"
        lines = [head, *(f"- {fault}" for fault in self.faults)]
        if example:
            lines.append(f"Corrected example: {example}")
        super().__init__("\n".join(lines))


class UnknownToolError(ToolError):
    """Nothing is registered under that name."""

    def __init__(self, name: str, suggestions: Sequence[str] = ()) -> None:
        self.name = name
        self.suggestions = tuple(suggestions)
        self.hint = f"\nDid you mean {' or '.join(self.suggestions)}?" if self.suggestions else ""
        super().__init__(f"Unknown tool: {name}{self.hint}")


class BindingError(ToolError):
    """No implementation in the library fits a specification."""


class ExecutionError(GramercyError):
    """A call could not be carried out."""


class InvalidCallError(ExecutionError):
    """The call itself is malformed: no name, arguments that are not an object."""


class InvalidPolicyError(ExecutionError):
    """A policy rule is refused."""


class DeadlineExceededError(ExecutionError):
    """A handler, hook or approver took longer than it may."""

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.seconds = seconds
        super().__init__(f"{what} did not finish within {seconds:g} s")


class JournalError(ExecutionError):
    """Calls cannot be recorded or looked up."""


class MovedError(JournalError):
    """Somebody else was first: a call is not in the state that a move comes from, or another runs it.

    `record` tells how it stands, where that is known.
    """

    def __init__(self, message: str, record: Any = None) -> None:
        super().__init__(message)
        self.record = record


class ForgedRecordError(JournalError):
    """What the journal holds about a call is not what was recorded: it was changed from outside."""


class SourceError(GramercyError):
    """A file or module that should define tools cannot be loaded."""


class UntrustedFileError(SourceError):
    """A file that runs or rules on the host was changed while an image of its project could have done it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path} was changed or made while evaluated code could have done that, so it is not used. A "
            f"person can look at it and accept it with: gramercy trust {shlex.quote(str(path))}"
        )


class ForeignError(SourceError):
    """Another MCP server, or the file with the pins of its tools, cannot be used as asked."""


class ServerGoneError(ForeignError):
    """The connection to another server has ended."""


class SessionLostError(ForeignError):
    """A server over HTTP has dropped our session; the request was not carried out."""


class RemoteError(ForeignError):
    """Another server has answered with an error of the protocol."""

    def __init__(self, message: str, code: int, data: object = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


class ChangedError(ForeignError):
    """A tool is no longer what a person accepted."""


class ServingError(GramercyError):
    """A server cannot be started as asked; the message says what to change."""


class KeysUnavailableError(ServingError):
    """The keys of an authorization server cannot be read now, and none are left from before."""


class ControlError(ServingError):
    """A process that serves cannot do what another terminal asks of it; the message says why."""


class ProtocolError(GramercyError):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class InvalidFrameError(ProtocolError):
    """A frame that is no message. `id` is that of the request, if it can be told; `found` is its JSON."""

    def __init__(
        self,
        code: int,
        message: str,
        id: int | str | None = None,  # noqa: A002 - its wire name
        found: object = None,
    ) -> None:
        super().__init__(code, message)
        self.id = id
        self.found = found


class DeepFrameError(InvalidFrameError):
    """A frame whose JSON is nested too deeply to be read: the request that it answers is not known."""


class SilentFrameError(InvalidFrameError):
    """A faulty notification or response: JSON-RPC forbids to answer these."""


class HttpError(GramercyError):
    """The HTTP transport answers a request itself: a status, a JSON-RPC error and headers."""

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        code: int = -32600,  # JSON-RPC's Invalid Request
        headers: tuple[tuple[bytes, bytes], ...] = (),
        data: object = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.code = code
        self.headers = headers
        self.data = data
        super().__init__(reason)


class WorkspaceError(GramercyError):
    """A file of the project cannot be read or written as asked."""


class NotAFileError(WorkspaceError):
    """The name belongs to a directory, a pipe, a device or a socket."""


class FileTooLargeError(WorkspaceError):
    """The file has more bytes than are read."""


class FileStoreError(GramercyError):
    """What a project's files held cannot be kept, or is kept no more."""


class InvalidSettingError(GramercyError):
    """A value in a configuration file or an option cannot be used; the text says what was expected."""


class ClientSettingsError(GramercyError):
    """The settings of an MCP client cannot be read or changed; nothing was written."""

    @classmethod
    def at(cls, reason: str, text: str, offset: int) -> ClientSettingsError:
        """Point at a place in a text."""
        place = TextPosition.at(text, offset)
        return cls(f"line {place.line}, column {place.column}: {reason}\n{place.caret()}")


class UnreadableFileError(GramercyError):
    """A file that a command names cannot be read or written; the message is one line that names it."""


class HandshakeError(GramercyError):
    """A server did not do what its client needs."""


class ProviderError(GramercyError):
    """A model cannot be asked, or does not answer.

    `status` is that of HTTP, if there was one; `retry_after` the seconds that the service asks to wait.
    `response` is what an agent had done before, if one was running.
    """

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.response: Any = None


class ModelUnavailableError(ProviderError):
    """There is no such provider or model, no key, or a package is missing; the text says what to do."""


class CutStreamError(ProviderError):
    """The answer of a model ended without its end mark: what came can be shown, its calls are not run."""


class AgentError(GramercyError):
    """An agent cannot be run as asked. `response` is what was done before, if it had begun."""

    def __init__(self, message: str, response: Any = None) -> None:
        super().__init__(message)
        self.response = response


class InvalidCaseError(AgentError):
    """A case to compare implementations with cannot be read."""


class InvalidMessageError(AgentError):
    """A message is empty, too long, or not text."""


class LimitReachedError(AgentError):
    """A run has used up its turns, its calls, its time or its tokens; `response` is what was done so far."""


class BudgetExceededError(LimitReachedError):
    """The next question of a run would cost more money than is left of its budget; it was not asked."""


class ImageError(GramercyError):
    """A live image cannot be used."""


class ImageStartError(ImageError):
    """The processes of an image do not come up; the message has the end of their log."""


class ImageGoneError(ImageError):
    """A process of an image has ended or does not answer."""


class ImageProtocolError(ImageError):
    """A process of an image sent, or would be sent, something malformed."""


class CheckpointError(ImageError):
    """There is no such state to go back to, or it cannot be made."""


class SandboxError(ImageError):
    """An image cannot be confined as asked; the message says what to install."""
