"""What a running handler can tell and ask its caller: progress, log lines, questions.

The handler asks for it with `current_call()`. Who calls knows how to bring it to the other side; this module
knows no protocol, and outside of a conversation every method does nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from gramercy.errors import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Call:
    """The call that is being handled, as its handler sees it; this one has no client behind it."""

    __slots__ = ()

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller has given the call up."""
        return False

    @property
    def is_called_off(self) -> bool:
        """Whether the caller has said so itself, and did not just go away: it will not come back."""
        return False

    @property
    def principal(self) -> str:
        """The caller, as the transport has authenticated it."""
        return "local"

    @property
    def client(self) -> str:
        """The program through which the caller calls, as it names itself; empty when it does not say."""
        return ""

    @property
    def session(self) -> str:
        """The conversation or the serving process through which the call came; empty where there is none."""
        return ""

    @property
    def project(self) -> str:
        """The directory that the call is about; empty when that is not known."""
        return ""

    @property
    def identity(self) -> str:
        """By what a caller that comes back after a restart is given this call; empty if it never does."""
        return ""

    @property
    def is_unique(self) -> bool:
        """Whether no other call has this identity, so that one which is being made elsewhere is this one."""
        return False

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the caller has declared that it can do."""
        return {}

    @property
    def version(self) -> str | None:
        """The revision of the protocol in which the caller speaks; None when there is no protocol."""
        return None

    def can(self, capability: str) -> bool:
        """Tell whether the caller can be asked: `elicitation`, `sampling` or `roots`."""
        del capability
        return False

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far the work is; dropped when the caller did not ask for progress."""

    def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a line to the caller's log; dropped below the level that the caller wants."""

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """Have `stop` called when the call is cancelled while the handler runs; it must not block."""

    def close_stream(self) -> None:
        """Let the connection go while the work goes on, where the caller can come back for the result."""

    async def detach(self) -> bool:
        """Say that the rest takes long: a caller that can fetches the result later. Tell whether it will."""
        return False

    def fail(self, message: str, *, code: int = -32603, data: Any = None) -> NoReturn:
        """End the request with an error of the protocol; a tool's own failure is simply raised."""
        del code, data
        raise ExecutionError(message)

    async def ask(self, message: str, schema: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Ask the person a form of flat fields; give `{"action": "accept", "content": {…}}` or a refusal."""
        del message, schema, key
        raise self._no_conversation("asked")

    async def sample(self, params: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Have the caller's model answer; `params` and result are those of sampling/createMessage."""
        del params, key
        raise self._no_conversation("asked for a completion")

    async def roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """Return the folders that the caller works in."""
        del key
        raise self._no_conversation("asked for roots")

    def _no_conversation(self, what: str) -> ExecutionError:
        return ExecutionError(
            f"the caller cannot be {what}: this call has no conversation; look at current_call().can(…) first"
        )


NO_CONVERSATION = Call()
_current: ContextVar[Call] = ContextVar("gramercy-call", default=NO_CONVERSATION)
enter_call = _current.set
leave_call = _current.reset
# What `current_call` returns, for those who ask with every call: a function around it costs as much again.
find_call = _current.get


def current_call() -> Call:
    """Return the call that is being handled here."""
    return _current.get()


# The key under which the journal knows the call that runs; 0 where none does, or the call is recorded later.
running_key: ContextVar[int] = ContextVar("gramercy_running_key", default=0)
