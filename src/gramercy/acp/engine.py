"""The agent's side of the Agent Client Protocol: which method does what, for one editor on one stream.

Every frame gets its answer, even if it is invalid. This module knows no transport.
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from gramercy import __version__
from gramercy.acp.base import (
    CANCELLED,
    PROTOCOL,
    InitializeParams,
    ListParams,
    LoadParams,
    ModeParams,
    NewParams,
    PromptParams,
    SessionParams,
    read_params,
)
from gramercy.acp.editor import Editor
from gramercy.acp.session import BUSY_SESSION, EditorSession
from gramercy.agents.talks import SessionTalk, fork_session
from gramercy.errors import (
    GramercyError,
    InvalidFrameError,
    InvalidMessageError,
    ProtocolError,
    SilentFrameError,
)
from gramercy.mcp.jsonrpc import Code, Message, failure, invalid_params, read_frame, success

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gramercy.acp.base import Host, ServerWords
    from gramercy.journal.sessions import SessionRecord
    from gramercy.mcp.base import Answer, Channel, Peer

log = logging.getLogger("gramercy.acp")
# Each has tools, a journal and maybe an image; an editor that opens more does not close them.
MOST_SESSIONS = 32
# How many sessions an editor lists before a person asks for more.
PAGE = 50
CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    # Forks are not in the stable protocol yet; editors that do not know the word ignore it.
    "sessionCapabilities": {"list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {}},
}


class AcpEngine:
    """Serves one editor. It is a Receiver for the transport."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._editor = Editor()
        self._sessions: dict[str, EditorSession] = {}
        self._opening: set[str] = set()
        self._running: dict[int | str, asyncio.Task[Any]] = {}
        self._called_off: set[asyncio.Task[Any]] = set()
        self._is_introduced = False
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/prompt": self._prompt,
        }

    def handle(self, peer: Peer, frame: bytes, channel: Channel | None = None) -> Answer:
        """Take one frame and return its answer, or an awaitable of it."""
        self._editor.channel = channel or peer.channel
        received = read_frame(frame)
        if isinstance(received, SilentFrameError):
            return None
        if isinstance(received, InvalidFrameError):
            return failure(received, received.id)
        if isinstance(received, list):
            return failure(ProtocolError(Code.INVALID_REQUEST, "Invalid request: there are no batches here"))
        if received.method is UNSET:
            self._editor.answered(received)
            return None
        if received.id is UNSET:
            self._notified(received)
            return None
        return self._answered(received)

    def close(self, peer: Peer) -> None:
        """Forget the editor; the transport cancels the pending requests."""
        del peer
        self._editor.leave()
        for session in self._sessions.values():
            session.cancel()

    def end(self) -> None:
        """End the places of all sessions, when nothing is served any more."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    async def _answered(self, message: Message) -> bytes:
        assert message.id is not UNSET  # noqa: S101 - a request has one; this tells mypy
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - what the transport awaits is a task
        self._running[message.id] = task
        try:
            return success(message.id, await self._result(message))
        except asyncio.CancelledError:
            if task not in self._called_off:
                raise
            return failure(ProtocolError(CANCELLED, "Request cancelled"), message.id)
        except ProtocolError as error:
            return failure(error, message.id)
        except GramercyError as error:
            return failure(_failure_of(error), message.id)
        except Exception as error:
            log.exception("%s failed", message.method)
            told = f"Internal error: {type(error).__name__}: {error}"
            return failure(ProtocolError(Code.INTERNAL_ERROR, told[:1_000]), message.id)
        finally:
            self._running.pop(message.id, None)
            self._called_off.discard(task)

    async def _result(self, message: Message) -> dict[str, Any]:
        method = self._methods.get(str(message.method))
        if method is None:
            told = f"Method not found: {message.method!r:.100}"
            raise ProtocolError(Code.METHOD_NOT_FOUND, told)
        if not self._is_introduced and message.method != "initialize":
            raise ProtocolError(Code.INVALID_REQUEST, "Invalid request: initialize comes first")
        return await method({} if message.params is UNSET else message.params)

    def _notified(self, message: Message) -> None:
        """Take a notification; an invalid one is ignored, since notifications get no answer."""
        params = {} if message.params is UNSET else message.params
        if message.method == "session/cancel":
            session = self._sessions.get(str(params.get("sessionId")))
            if session is not None:
                session.cancel()
        elif message.method == "$/cancel_request":
            name = params.get("requestId")
            running = self._running.get(name) if isinstance(name, int | str) else None
            if running is not None:
                self._called_off.add(running)
                running.cancel()

    async def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        given = read_params(params, InitializeParams)
        self._editor.introduce(given.client_info, given.client_capabilities)
        self._is_introduced = True
        return {
            "protocolVersion": PROTOCOL,
            "agentInfo": {"name": "gramercy", "title": self._host.agent, "version": __version__},
            "agentCapabilities": CAPABILITIES,
            "authMethods": [],
        }

    async def _authenticate(self, params: dict[str, Any]) -> dict[str, Any]:
        del params
        raise invalid_params("there is nothing to authenticate with: keys come from the environment")

    async def _new(self, params: dict[str, Any]) -> dict[str, Any]:
        given = read_params(params, NewParams)
        project = _directory(given.cwd)
        talk = SessionTalk.begin(self._host.sessions, agent=self._host.agent, project=project)
        session = await self._opened(talk, project, given.mcp_servers)
        return {"sessionId": session.id, "modes": _modes(session)}

    async def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        session = await self._gone_on(params)
        session.replay()
        return {"modes": _modes(session)}

    async def _resume(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"modes": _modes(await self._gone_on(params))}

    async def _gone_on(self, params: dict[str, Any]) -> EditorSession:
        given = read_params(params, LoadParams)
        project = _directory(given.cwd)
        known = self._sessions.get(given.session_id)
        if known is not None and known.is_busy:
            raise ProtocolError(Code.INVALID_REQUEST, BUSY_SESSION)
        record = self._record(given.session_id)
        if known is not None and known.place.project == project:
            if record is not None:
                known.catch_up(SessionTalk.resume(self._host.sessions, known.id))
            return known
        if record is None:
            raise _unknown(given.session_id)
        if known is not None:
            await self._end(known)
        talk = SessionTalk.resume(self._host.sessions, given.session_id)
        return await self._opened(talk, project, given.mcp_servers)

    async def _fork(self, params: dict[str, Any]) -> dict[str, Any]:
        """Open a session that continues from another one, which stays as it is."""
        given = read_params(params, LoadParams)
        project, sessions = _directory(given.cwd), self._host.sessions
        record, known = self._record(given.session_id), self._sessions.get(given.session_id)
        if record is None and known is None:
            raise _unknown(given.session_id)
        if record is None or not record.messages:
            # There are no messages to copy yet.
            return await self._new(params)
        name = fork_session(sessions, record.id)
        try:
            session = await self._opened(SessionTalk.resume(sessions, name), project, given.mcp_servers)
        except BaseException:
            sessions.remove(name)
            raise
        return {"sessionId": session.id, "modes": _modes(session)}

    async def _opened(self, talk: SessionTalk, project: str, servers: Sequence[ServerWords]) -> EditorSession:
        if len(self._sessions) + len(self._opening) >= MOST_SESSIONS:
            raise ProtocolError(Code.BUSY, f"{MOST_SESSIONS} sessions are open: close one of them first")
        if talk.session in self._opening:
            raise ProtocolError(Code.INVALID_REQUEST, "this session is being opened: wait for that")
        session = EditorSession(self._editor, talk, self._host.modes)
        self._opening.add(session.id)
        try:
            await session.open(self._host, project, servers)
        finally:
            self._opening.discard(session.id)
        self._sessions[session.id] = session
        return session

    async def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        given = read_params(params, ListParams)
        try:
            before = float(given.cursor) if given.cursor else 0.0
        except ValueError:
            raise invalid_params("the cursor is none that was given") from None
        project = _real(given.cwd) if given.cwd else ""
        found = self._host.sessions.sessions(project=project, before=before, most=PAGE)
        page = {"nextCursor": repr(found[-1].changed_at)} if len(found) == PAGE else {}
        return {"sessions": [_info(each) for each in found if each.agent == self._host.agent], **page}

    async def _close(self, params: dict[str, Any]) -> dict[str, Any]:
        await self._end(self._session(read_params(params, SessionParams).session_id))
        return {}

    async def _delete(self, params: dict[str, Any]) -> dict[str, Any]:
        name = read_params(params, SessionParams).session_id
        known = self._sessions.get(name)
        if known is None and self._record(name) is None:
            raise _unknown(name)
        if known is not None:
            await self._end(known)
        self._host.sessions.remove(name)
        return {}

    async def _set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        given = read_params(params, ModeParams)
        session = self._session(given.session_id)
        session.set_mode(given.mode_id)
        return {}

    async def _prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        given = read_params(params, PromptParams)
        return await self._session(given.session_id).prompt(given.prompt)

    def _session(self, name: str) -> EditorSession:
        found = self._sessions.get(name)
        if found is None:
            raise _unknown(name)
        return found

    def _record(self, name: str) -> SessionRecord | None:
        """Return a conversation with this agent; those with other agents are not this editor's."""
        found = self._host.sessions.session(name)
        return found if found is not None and found.agent == self._host.agent else None

    async def _end(self, session: EditorSession) -> None:
        del self._sessions[session.id]
        await session.end()


def _directory(cwd: str) -> str:
    if not os.path.isabs(cwd):  # noqa: PTH117 - as below
        raise invalid_params(f"cwd must be an absolute path, not {cwd!r:.100}")
    # Unlike Path, it returns False for an impossible path, such as one with a NUL or one that is too long.
    if not os.path.isdir(cwd):  # noqa: PTH112
        raise invalid_params(f"there is no directory {cwd!r:.200}")
    return _real(cwd)


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        raise invalid_params(f"{path!r:.200} is not a usable path") from None


def _modes(session: EditorSession) -> dict[str, Any]:
    listed = [
        {"id": name, "name": name.capitalize(), "description": mode.does}
        for name, mode in session.modes.items()
    ]
    return {"currentModeId": session.mode.value, "availableModes": listed}


def _info(record: SessionRecord) -> dict[str, Any]:
    changed = datetime.fromtimestamp(record.changed_at, UTC).isoformat(timespec="milliseconds")
    info = {"sessionId": record.id, "cwd": record.project or "/", "updatedAt": changed}
    return {**info, "title": record.title} if record.title else info


def _unknown(name: str) -> ProtocolError:
    return ProtocolError(
        Code.RESOURCE_NOT_FOUND, f"there is no session {name!r:.100}: session/list tells which are"
    )


def _failure_of(error: GramercyError) -> ProtocolError:
    """Return the error for a failed request; the editor shows its message to the person."""
    code = Code.INVALID_PARAMS if isinstance(error, InvalidMessageError) else Code.INTERNAL_ERROR
    return ProtocolError(code, str(error), {"type": type(error).__name__})
