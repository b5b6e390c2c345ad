"""One call to an image on its way: what was asked, since when, and who is waited for."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.images.replay import Step, digest

if TYPE_CHECKING:
    from gramercy.images.awaiting import Wait
    from gramercy.images.base import Reply, Watcher

# What a request names its text, where that is not code.
FIELDS = {"load_system": "system"}


class Call(msgspec.Struct, eq=False):
    """A request that runs code of the user's."""

    op: str
    code: str
    seconds: float
    package: str | None = None
    watch: Watcher | None = None
    tag: str | None = None
    wait: Wait | None = None
    is_cancelled: bool = False
    started: float = msgspec.field(default_factory=perf_counter)

    def fields(self) -> dict[str, Any]:
        """Return what the request says."""
        fields: dict[str, Any] = {"op": self.op, FIELDS.get(self.op, "code"): self.code}
        if self.tag is not None:
            fields["then_fork"] = self.tag
        if self.package is not None:
            fields["package"] = self.package
        return fields

    def elapsed_ms(self) -> float:
        """Return how long the call has taken so far."""
        return (perf_counter() - self.started) * 1000.0

    def as_step(self, reply: Reply, *, look: bool = False) -> Step:
        """Return what it takes to do the same again."""
        interrupted = reply.error is not None and reply.error.interrupted
        return Step(self.op, self.code, self.package, reply.ok, interrupted, digest(reply), look)

    def cancel(self) -> None:
        """Stop the call, or let it never begin."""
        self.is_cancelled = True
        if self.wait is not None:
            self.wait.cut_short()
