"""How calls of the journal are shown: a line for each, or the whole story of one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.journal.base import State
from gramercy.journal.texts import canonical_text
from gramercy.text import listed, reveal_line, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.journal.audit import Step
    from gramercy.journal.base import CallRecord
    from gramercy.journal.chain import Event, Told

WORDS = {State.AWAITING: "awaiting approval", State.READY: "approved", State.IN_DOUBT: "in doubt"}
# Enough to distinguish digests. --json has them in full.
SHORT = 16
_COLUMNS = ("key", "time", "tool", "level", "state", "decided by", "ms", "size")
# Keys that fit on a line with the rest.
MOST_KEYS = 10
# Host, boot, namespace, process, start, nonce.
OWNER_PARTS = 6
# Indents an answer, a question or a text below its heading.
INDENT = "    "


def when(at: float) -> str:
    """Format a time by the clock of this machine."""
    return strftime("%Y-%m-%d %H:%M:%S", localtime(at))


def word(state: str) -> str:
    """Return the word for a state."""
    return WORDS.get(State(state), state)


def call_table(records: Sequence[CallRecord]) -> str:
    """Format calls as a table, one call per line."""
    return table([_COLUMNS, *map(_row, records)], rights={0, 6, 7})


def _row(record: CallRecord) -> tuple[str, ...]:
    facts, call = record.facts, record.call
    ruling = facts.ruling
    by = (ruling.by or ruling.refuser) if ruling else ""
    elapsed = f"{facts.elapsed_ms:.1f}" if facts.elapsed_ms else ""
    size = f"{facts.size:,}" if facts.size else ""
    return str(record.key), when(record.at), call.tool, call.level, word(record.state), by, elapsed, size


def call_facts(record: CallRecord, *, with_contents: bool) -> dict[str, Any]:
    """Return a call for --json."""
    call, facts = record.call, record.facts
    told: dict[str, Any] = {
        "key": record.key,
        "at": _stamp(record.at),
        "changed_at": _stamp(record.changed_at),
        "state": record.state.value,
        "tool": call.tool,
        "level": call.level,
        "call_id": call.call_id,
        "principal": call.principal,
        "client": call.client,
        "session": call.session,
        "project": call.project,
        "elapsed_ms": facts.elapsed_ms,
        "size": facts.size,
        "failure": facts.failure,
    }
    if facts.ruling is not None:
        told |= {
            "decided_by": facts.ruling.by,
            "approved": facts.ruling.approved,
            "refuser": facts.ruling.refuser,
        }
    if with_contents:
        told |= {"arguments": call.arguments, "content": facts.content, "detail": facts.detail}
    return told


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def own_line(event: Event, told: Told) -> str:
    """Describe an operation on the journal itself."""
    parts = []
    if told.by:
        parts.append(f"by {told.by}")
    if told.masked:
        keys = dict.fromkeys(name.partition(".")[0] for name in told.masked)
        parts.append(f"{len(told.masked):,} contents of call {listed(keys, MOST_KEYS)}")
    if told.before_at:
        parts.append(f"contents from before {when(told.before_at)}")
    if told.reason:
        parts.append(told.reason)
    place = f"(event {event.chain}.{event.number})"
    return reveal_line(f"{when(event.at)}  {event.state}: {'; '.join(parts)}  {place}")


def own_facts(event: Event, told: Told) -> dict[str, Any]:
    """Return an operation on the journal itself, for --json."""
    place = f"{event.chain}.{event.number}"
    return {"event": place, "state": event.state, "at": _stamp(event.at), "facts": msgspec.to_builtins(told)}


def steps_facts(steps: Sequence[Step], *, with_contents: bool) -> dict[str, Any]:
    """Return the whole story of a call for --json."""
    first = steps[0]
    call = first.told.call
    about = {} if call is None else msgspec.to_builtins(call)
    return {
        "key": first.event.key,
        **about,
        "state": steps[-1].event.state,
        "steps": [_step_facts(step, with_contents=with_contents) for step in steps],
    }


def _step_facts(step: Step, *, with_contents: bool) -> dict[str, Any]:
    event = step.event
    told = msgspec.to_builtins(step.told)
    told.pop("call", None)
    found = {
        "step": event.step,
        "state": event.state,
        "at": _stamp(event.at),
        "event": f"{event.chain}.{event.number}",
        "hash": event.hash,
        "facts": told,
        "contents": {"digest": event.contents, "fate": step.fate, "size": step.size},
    }
    return found | ({"kept": msgspec.to_builtins(step.kept)} if with_contents else {})


def story_text(steps: Sequence[Step], *, with_contents: bool) -> str:
    """Format the whole story of a call."""
    first = steps[0]
    call = first.told.call
    lines = [f"call {first.event.key}"]
    if call is not None:
        lines[0] += f": {call.tool} ({call.level}), {word(steps[-1].event.state)}"
        came = (call.client, call.session and f"session {call.session}", f"call id {call.call_id}")
        lines.append(f"asked by {', '.join([call.principal, *filter(None, came)])}")
        if call.project:
            lines.append(f"project {call.project}")
    lines = list(map(reveal_line, lines))
    before = None
    for step in steps:
        lines += _step_lines(step, before, with_contents=with_contents)
        before = step
    return "\n".join(lines)


def _step_lines(step: Step, before: Step | None, *, with_contents: bool) -> Iterator[str]:
    event = step.event
    told = reveal_line("; ".join(_told(step, before)))
    head = f"{when(event.at)}  {word(event.state)}"
    yield f"{head}: {told}" if told else head
    place = f"event {event.chain}.{event.number}, {event.hash[:SHORT]}"
    fates = {
        "": "no contents",
        "whole": f"contents of {step.size:,} characters, {event.contents[:SHORT]}",
        "masked": f"contents masked, {step.size:,} characters; before {event.contents[:SHORT]}",
        "deleted": f"contents deleted, {event.contents[:SHORT]}",
    }
    yield f"{INDENT}{place}; {fates[step.fate]}"
    if with_contents:
        yield from _content_lines(step)


def _told(step: Step, before: Step | None) -> Iterator[str]:
    """Describe the facts of a step in words."""
    told = step.told
    if told.seal:
        yield f"question {told.seal[:SHORT]}"
    if told.expires_at:
        yield f"can be decided until {when(told.expires_at)}"
    if told.approved is not None:
        # The clock may have been set back between the two. The time must not become negative.
        seconds = max(0.0, step.event.at - before.event.at) if before is not None else 0.0
        waited = f" after {seconds:.1f} s" if before is not None else ""
        yield f"by {told.by or told.refuser or 'nobody'}{waited}"
        if told.named:
            yield f"for question {told.named[:SHORT]}"
    yield from _ran(step)
    if told.failure:
        yield f"failed by {told.failure}"
    if told.masked:
        yield "secrets of earlier steps masked"


def _ran(step: Step) -> Iterator[str]:
    told = step.told
    named = {"image": told.image, "epoch": told.epoch, "sandbox": told.sandbox}
    yield from (f"{name} {value}" for name, value in named.items() if value)
    if told.before or told.after:
        yield f"checkpoint {told.before or 'none'} → {told.after or 'none'}"
    if told.owner:
        yield f"in process {_process(told.owner)}"
    if told.elapsed_ms:
        yield f"{told.elapsed_ms:.1f} ms"
    if told.size:
        yield f"{told.size:,} characters came back"
    if told.digest:
        yield f"digest {told.digest[:SHORT]}"
    if told.files:
        yield f"files {', '.join(told.files)}"


def _process(owner: str) -> str:
    """Describe the process. --json has its unique name."""
    parts = owner.split("/")
    return f"{parts[3]} of {parts[0]}" if len(parts) == OWNER_PARTS else owner


def _content_lines(step: Step) -> Iterator[str]:
    """Show the contents of a step, each with its name."""
    kept = step.kept
    ran = "ran with" if step.event.state == State.EXECUTING else "arguments by then"
    texts = {
        "arguments": _json(kept.arguments),
        ran: _json(kept.changed),
        "arguments as approved": _json(kept.approved),
        "question": kept.question.text if kept.question else "",
        "shown": kept.shown,
        "reason": kept.reason,
        "note": kept.note,
        "detail": "" if kept.detail == kept.reason else kept.detail,
        "result": kept.content,
    }
    for name, text in texts.items():
        if text:
            first, *rest = map(reveal_line, text.split("\n"))
            yield f"{INDENT}{name}: {first}"
            yield from (f"{INDENT}{INDENT}{line}" for line in rest)


def _json(value: Any) -> str:
    if value is None:
        return ""
    try:
        return canonical_text(value)
    except TypeError:
        return json.dumps(value, default=repr)
