"""The channel from a running handler to its caller: progress, log lines, questions.

The handler gets it with `current_call()`. The caller implements the transport; this module knows no protocol,
and outside of a conversation every method does nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from gramercy.errors import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Call:
    """The call that is being handled, as its handler sees it; this one has no client."""

    __slots__ = ()

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller has cancelled the call or has gone."""
        return False

    @property
    def is_called_off(self) -> bool:
        """Whether the caller has cancelled the call and did not just disconnect: it will not return."""
        return False

    @property
    def principal(self) -> str:
        """The caller, as the transport has authenticated it."""
        return "local"

    @property
    def client(self) -> str:
        """The caller's program, by the name that it gives itself; empty if it gives none."""
        return ""

    @property
    def session(self) -> str:
        """The conversation or the serving process through which the call came; empty if there is none."""
        return ""

    @property
    def project(self) -> str:
        """The directory that the call is about; empty if that is unknown."""
        return ""

    @property
    def identity(self) -> str:
        """The identity by which a returning caller finds this call after a restart; empty if none returns."""
        return ""

    @property
    def is_unique(self) -> bool:
        """Whether no other call has this identity, so that a call with it in another process is this one."""
        return False

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the caller has declared."""
        return {}

    @property
    def version(self) -> str | None:
        """The revision of the protocol that the caller speaks; None if there is no protocol."""
        return None

    def can(self, capability: str) -> bool:
        """Tell whether the caller can be asked: `elicitation`, `sampling` or `roots`."""
        del capability
        return False

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress; dropped if the caller did not ask for progress."""

    def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a line to the caller's log; dropped below the level that the caller wants."""

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """Have `stop` called if the call is cancelled while the handler runs; it must not block."""

    def close_stream(self) -> None:
        """Release the connection while the work continues, if the caller can return for the result."""

    async def detach(self) -> bool:
        """Say that the rest takes long: the caller may fetch the result later. Tell whether it will."""
        return False

    def fail(self, message: str, *, code: int = -32603, data: Any = None) -> NoReturn:
        """End the request with an error of the protocol; a failure of the tool itself is simply raised."""
        del code, data
        raise ExecutionError(message)

    async def ask(self, message: str, schema: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Ask the person with a form; return `{"action": "accept", "content": {…}}` or a refusal."""
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
# The same as `current_call`, for code that runs with every call: a function around it doubles the cost.
find_call = _current.get


def current_call() -> Call:
    """Return the call that is being handled here."""
    return _current.get()


# The journal's key of the running call; 0 if no call runs, or the call is recorded later.
running_key: ContextVar[int] = ContextVar("gramercy_running_key", default=0)
