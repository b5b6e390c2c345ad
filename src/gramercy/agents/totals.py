"""The usage of conversations: tokens, money, models and tools, by day, session, model, agent or tool."""

from __future__ import annotations

from collections import Counter
from time import localtime, strftime
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from gramercy.agents.talks import COPIED, calls_of
from gramercy.journal.sessions import root_of
from gramercy.providers.base import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gramercy.journal.sessions import Message, SessionRecord, Sessions

Grouping: TypeAlias = Literal["day", "session", "model", "agent", "tool"]
GROUPINGS: tuple[str, ...] = get_args(Grouping)


class Total(msgspec.Struct):
    """The summed usage of answers. `unpriced` counts answers with an unknown price, which `cost` leaves out.

    `sessions` are conversations; those of nested agents count as part of the outer one.
    """

    answers: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: int = 0
    sessions: set[str] = msgspec.field(default_factory=set)
    models: Counter[str] = msgspec.field(default_factory=Counter)
    tools: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, message: Message) -> None:
        """Count one answer."""
        data = message.data
        self.answers += 1
        self.usage += usage_of(message)
        self.sessions.add(root_of(message.session))
        self.models[str(data.get("model", ""))] += 1
        self.tools.update(_tools(message))
        if isinstance(data.get("cost"), int | float):
            self.cost += data["cost"]
        else:
            self.unpriced += 1


class Totals(msgspec.Struct):
    """Totals by group, and of all together; `damaged` are conversations that were left out."""

    groups: dict[str, Total]
    all: Total
    damaged: tuple[str, ...] = ()


def totals(
    sessions: Sessions, by: Grouping = "day", *, session: str = "", project: str = "", since: float = 0.0
) -> Totals:
    """Sum up the usage of conversations' answers; a message that cannot be decoded does not count."""
    known: dict[str, SessionRecord | None] = {}
    groups: dict[str, Total] = {}
    everything, damaged = Total(), set()
    for message in sessions.answers(since=since):
        name = message.session
        if (session and root_of(name) != session) or message.data.get(COPIED):
            continue
        if name not in known:
            known[name] = sessions.session(name)
        record = known[name]
        if project and (record is None or record.project != project):
            continue
        if message.fault:
            damaged.add(name)
            continue
        everything.add(message)
        for key in _keys(message, record, by):
            groups.setdefault(key, Total()).add(message)
    return Totals(groups, everything, tuple(sorted(damaged)))


def _keys(message: Message, record: SessionRecord | None, by: Grouping) -> Iterable[str]:
    if by == "day":
        return (strftime("%Y-%m-%d", localtime(message.at)),)
    if by == "session":
        return (root_of(message.session),)
    if by == "model":
        return (str(message.data.get("model", "")),)
    if by == "agent":
        return (record.agent if record else "",)
    return set(_tools(message))


def _tools(message: Message) -> list[str]:
    return [call.name for call in calls_of(message)]


def usage_of(message: Message) -> Usage:
    """Return the tokens of a message; zero if they are unknown."""
    try:
        return msgspec.convert(message.data.get("usage", {}), Usage)
    except msgspec.ValidationError:
        return Usage()
