"""How an event is encoded and hashed, so that its chain proves it. Uses no database and no clock.

An event has two texts. `facts` says what happened and stays for ever; `contents` (arguments, questions, the
words of people, results) is kept apart, and the event holds a salted digest of it: so contents can be masked
or deleted later, and cannot be guessed from the digest. Each writing process has a chain of its own, whose
first event holds the first hash of the chain that was opened before it, and the ends of the chains that have
grown since: so no chain can be cut off before that.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from hashlib import sha256
from os import urandom
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gramercy.journal.base import NOTHING, Facts, NewCall, Question, Ruling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The states of events that belong to no call; their key is 0.
OPENED, REDACTED, PRUNED, LATE = "opened", "redacted", "pruned", "late"
# 128 bits: too many salts to try them all for a guessed text.
SALT_BYTES = 16
# Greater than the key of any call.
_LAST_KEY = 1 << 63


class Event(NamedTuple):
    """A row of the table `events`, its columns in this order; `hash` covers all the others.

    `contents` is the digest of the text that is kept apart, empty where there is none.
    """

    chain: int
    number: int
    key: int
    step: int
    state: str
    at: float
    facts: str
    contents: str
    previous: str
    hash: str


class Head(NamedTuple):
    """The end of a chain, to which the next event is linked. The table `chains` stores it."""

    chain: int
    number: int
    hash: str


class Content(NamedTuple):
    """A row of the table `contents`, beside the event it belongs to."""

    salt: str
    text: str

    @property
    def digest(self) -> str:
        """The digest that the event holds of these contents."""
        return content_digest(self.salt, self.text)


class CallFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts about a call in its first event. Its arguments are contents."""

    call_id: str
    tool: str
    level: str
    principal: str = "local"
    client: str = ""
    session: str = ""
    project: str = ""
    identity: str = ""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts of an event that are kept: `Facts` without contents, and actions of the journal itself.

    `seal` is that of the question, `approved`, `by`, `named` and `refuser` are the ruling's. `masked` maps
    "key.step" of an earlier event to the digest of its new contents, or to an empty text if they were
    deleted. `pruned` names the calls whose contents were all deleted, as `KeySet` writes them. Events of old
    prunings have only `before_at`: contents older than that may be gone. `heads` maps "chain.number" to the
    hash of the end of another chain.
    """

    call: CallFacts | None = None
    seal: str = ""
    expires_at: float | None = None
    approved: bool | None = None
    by: str = ""
    named: str = ""
    refuser: str = ""
    owner: str = ""
    fence: int = 0
    image: str = ""
    epoch: str = ""
    sandbox: str = ""
    before: str = ""
    after: str = ""
    files: tuple[str, ...] = ()
    elapsed_ms: float | None = None
    size: int = 0
    digest: str = ""
    failure: str = ""
    masked: dict[str, str] = {}
    before_at: float | None = None
    reason: str = ""
    heads: dict[str, str] = {}
    pruned: str = ""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of an event, which can be masked and deleted without breaking its chain."""

    detail: str = ""
    arguments: dict[str, Any] | None = None
    changed: dict[str, Any] | None = None
    question: Question | None = None
    reason: str = ""
    shown: str = ""
    note: str = ""
    approved: dict[str, Any] | None = None
    content: str = ""


_NO_CONTENTS = Kept()
_encode = msgspec.json.Encoder().encode
_decode_told = msgspec.json.Decoder(Told).decode
_decode_kept = msgspec.json.Decoder(Kept).decode


def told_text(
    facts: Facts = NOTHING, call: NewCall | None = None, masked: Mapping[str, str] | None = None
) -> str:
    """Encode the facts of an event that are kept. The first event of a call includes the call."""
    question, ruling = facts.question, facts.ruling
    return text_of(
        Told(
            call=None if call is None else _call_facts(call),
            seal=question.seal if question else "",
            expires_at=facts.expires_at or None,
            approved=ruling.approved if ruling else None,
            by=ruling.by if ruling else "",
            named=ruling.seal if ruling else "",
            refuser=ruling.refuser if ruling else "",
            owner=facts.owner,
            fence=facts.fence,
            image=facts.image,
            epoch=facts.epoch,
            sandbox=facts.sandbox,
            before=facts.before,
            after=facts.after,
            files=facts.files,
            elapsed_ms=facts.elapsed_ms or None,
            size=facts.size,
            digest=facts.digest,
            failure=facts.failure,
            masked=dict(masked or {}),
        )
    )


def kept_text(facts: Facts = NOTHING, call: NewCall | None = None) -> str:
    """Encode the contents of an event; empty if it has none."""
    ruling = facts.ruling
    kept = Kept(
        detail=facts.detail,
        arguments=None if call is None else dict(call.arguments),
        changed=None if facts.arguments is None else dict(facts.arguments),
        question=facts.question,
        reason=ruling.reason if ruling else "",
        shown=ruling.shown if ruling else "",
        note=ruling.note if ruling else "",
        approved=ruling.arguments if ruling else None,
        content=facts.content,
    )
    return "" if kept == _NO_CONTENTS else text_of(kept)


def _call_facts(call: NewCall) -> CallFacts:
    return CallFacts(
        call.call_id,
        call.tool,
        call.level,
        call.principal,
        call.client,
        call.session,
        call.project,
        call.identity,
    )


def text_of(part: Told | Kept) -> str:
    """Encode a part of an event as JSON on one line."""
    try:
        return _encode(part).decode()
    except UnicodeError:
        # The text has half of a surrogate pair, which JSON can write only as an escape.
        return json.dumps(msgspec.to_builtins(part), separators=(",", ":"))


def read_told(text: str) -> Told:
    """Decode what `told_text` wrote."""
    return _decode_told(text)


def read_kept(text: str) -> Kept:
    """Decode what `kept_text` wrote; empty if the contents were deleted."""
    if not text:
        return _NO_CONTENTS
    try:
        return _decode_kept(text)
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(text), Kept)


def read_facts(told: Told, kept: Kept) -> Facts:
    """Return the facts of a move as they were given, except for deleted contents."""
    ruling = question = None
    if told.approved is not None:
        ruling = Ruling(
            told.approved,
            told.by,
            told.named,
            kept.reason,
            told.refuser,
            kept.shown,
            kept.note,
            kept.approved,
        )
    if told.seal:
        question = kept.question or Question(text="", seal=told.seal, parts={}, explanation="")
    return Facts(
        kept.detail,
        kept.changed,
        question,
        told.expires_at or 0.0,
        ruling,
        told.owner,
        told.fence,
        told.image,
        told.epoch,
        told.sandbox,
        told.before,
        told.after,
        told.files,
        told.elapsed_ms or 0.0,
        told.size,
        told.digest,
        kept.content,
        told.failure,
    )


def salted(text: str) -> Content:
    """Return contents with a salt of their own."""
    return Content(urandom(SALT_BYTES).hex(), text)


def content_digest(salt: str, text: str) -> str:
    """Return the digest by which an event refers to its contents."""
    return sha256(f"{salt}\n{text}".encode()).hexdigest()


def event_hash(  # noqa: PLR0913, PLR0917 - the columns of an event
    chain: int,
    number: int,
    key: int,
    step: int,
    state: str,
    at: float,
    facts: str,
    contents: str,
    previous: str,
) -> str:
    """Return the hash of an event: SHA-256 of its other columns, one on a line.

    No column that gramercy writes has a newline in it, so the lines cannot be confused.
    """
    # Hash the columns as they are, whatever type an edited row has: then the hash differs, without an error.
    line = f"{chain}\n{number}\n{key}\n{step}\n{state}\n{at!r}\n{facts}\n{contents}\n{previous}"
    return sha256(line.encode("utf-8", "surrogatepass")).hexdigest()


def linked(  # noqa: PLR0913, PLR0917 - the columns of an event
    head: Head, key: int, step: int, state: str, at: float, facts: str, contents: str = ""
) -> tuple[Event, Head]:
    """Return the event that comes next in a chain, and the new end of the chain."""
    number = head.number + 1
    made = event_hash(head.chain, number, key, step, state, at, facts, contents, head.hash)
    event = Event(head.chain, number, key, step, state, at, facts, contents, head.hash, made)
    return event, Head(head.chain, number, made)


def opened(  # noqa: PLR0913 - what the event says
    chain: int,
    at: float,
    owner: str,
    previous: str = "",
    *,
    reason: str = "",
    heads: Iterable[Head] = (),
) -> tuple[Event, Head]:
    """Return the first event of a chain; `previous` is the first hash of the chain opened before it."""
    ends = {f"{head.chain}.{head.number}": head.hash for head in heads}
    told = Told(owner=owner, reason=reason, heads=ends)
    return linked(Head(chain, 0, previous), 0, 0, OPENED, at, text_of(told))


class KeySet:
    """A set of call keys, written as runs: "1-4,7". Neighbours are pruned together, so it is short."""

    def __init__(self, text: str = "") -> None:
        """Parse a set; ValueError if the text is not one."""
        self._runs: list[tuple[int, int]] = []
        for word in filter(None, text.split(",")):
            first, _, last = word.partition("-")
            self._runs.append((int(first), int(last or first)))
        self._runs.sort()

    @classmethod
    def of(cls, keys: Iterable[int]) -> KeySet:
        """Return the set of these keys."""
        runs: list[tuple[int, int]] = []
        for key in sorted(keys):
            if runs and key <= runs[-1][1] + 1:
                runs[-1] = runs[-1][0], key
            else:
                runs.append((key, key))
        return cls(",".join(f"{first}-{last}" for first, last in runs))

    def __contains__(self, key: int) -> bool:
        place = bisect_right(self._runs, (key, _LAST_KEY)) - 1
        # Runs of one set do not overlap. Those of several prunings may at most touch.
        return place >= 0 and self._runs[place][0] <= key <= self._runs[place][1]

    def __str__(self) -> str:
        return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in self._runs)


def digest_of_heads(heads: list[Head]) -> str:
    """Return one digest for the ends of all chains, to be kept in a place that cannot be changed."""
    lines = "".join(f"{head.chain} {head.number} {head.hash}\n" for head in sorted(heads))
    return sha256(lines.encode()).hexdigest()
