"""Traces: the message, answers, calls and results of one run, written as gram and read again.

A file of traces begins with the agent that made them, so that the file is enough to run it again. Secrets are
masked when a trace is written, as the journal masks them.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from gramercy.errors import GramError, SpecificationError, UnreadableFileError
from gramercy.execution.calls import clean
from gramercy.gram.agents import AgentSpecification, read_agents
from gramercy.gram.patterns import STEP, block_text, brackets_in, fault_at, label_of, misspelt, text_of
from gramercy.gram.syntax.printer import print_name
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.tree import Bracket, Reference, Tagged
from gramercy.images.files.whole import write_whole
from gramercy.journal.masking import Masking
from gramercy.journal.texts import masked
from gramercy.providers.base import StopReason, Usage
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gramercy.gram.syntax.tree import Document, Value

    Specification: TypeAlias = AgentSpecification
else:
    # msgspec reads the types of fields, and cannot handle those of a specification.
    Specification = Any

# `missing`: the run ended before the call had a result.
CallOutcome: TypeAlias = Literal["done", "failed", "denied", "waiting", "missing"]
RunOutcome: TypeAlias = Literal["answered", "limit", "failed", "cancelled"]
TRACE_LABEL: Final = "Trace"
TURN_LABEL: Final = "Turn"
CALL_LABEL: Final = "Call"
# Written even if they are empty: a run that costs nothing differs from a run of unknown cost.
ALWAYS: Final = frozenset({"agent", "id", "tool", "arguments", "cost"})
T = TypeVar("T")


class TracedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, and the result that the model got; `seconds` are those of the tool, without approval."""

    id: str
    tool: str
    arguments: str = "{}"
    outcome: CallOutcome = "missing"
    result: str = ""
    seconds: float = 0.0

    @property
    def said(self) -> str:
        """The tool with its arguments, in canonical form."""
        return f"{self.tool} {_canonical(self.arguments)}"


class TracedTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of the model; without `stop` it was cut off, and none of its calls was run.

    `message` is the question to a nested agent.
    """

    agent: str
    text: str = ""
    stop: StopReason | Literal[""] = ""
    usage: Usage = Usage()
    seconds: float = 0.0
    calls: tuple[TracedCall, ...] = ()
    message: str = ""


class Trace(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run: the message, every answer of the model with its calls, and the outcome."""

    agent: Specification
    message: str
    answer: str = ""
    outcome: RunOutcome = "answered"
    error: str = ""
    started: str = ""
    seconds: float = 0.0
    usage: Usage = Usage()
    # In US dollars; None if a price is unknown.
    cost: float | None = None
    session: str = ""
    turns: tuple[TracedTurn, ...] = ()

    @property
    def calls(self) -> tuple[TracedCall, ...]:
        """The calls of all turns, in the order in which the model made them."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def tool_seconds(self) -> float:
        """The seconds of the run that its tools took."""
        return sum(call.seconds for call in self.calls)

    def to_gram(self) -> str:
        """Write the agent and the trace."""
        return traces_text([self])

    def without_secrets(self) -> Trace:
        """Return the trace with dots for texts that look like secrets."""
        return replace(
            self,
            message=masked(self.message),
            answer=masked(self.answer),
            error=masked(self.error),
            turns=tuple(_masked_turn(turn) for turn in self.turns),
        )


def traces_text(traces: Sequence[Trace]) -> str:
    """Write the runs of one agent; runs of another agent, or of a changed one, need another text."""
    if not traces:
        raise SpecificationError("there is no trace to write")
    agent = traces[0].agent
    if any(each.agent != agent for each in traces):
        raise SpecificationError(f"these traces are not all of the same agent {agent.name!r}")
    names = _Names(_names_of(agent))
    parts = [agent.to_gram(), *(_trace_text(each.without_secrets(), names) for each in traces)]
    return "\n\n".join(parts) + "\n"


def read_traces(text: str) -> tuple[Trace, ...]:
    """Return the traces of a text; SpecificationError says what is wrong, with line and column."""
    document = read(text)
    agents = {agent.name: agent for agent in read_agents(document)}
    found = [b for b in brackets_in(document.patterns) if label_of(b, {TRACE_LABEL})]
    if not found:
        raise SpecificationError("there is no trace in this text: it has no [run:Trace {…} | …]")
    return tuple(_trace_of(bracket, document, agents) for bracket in found)


def load_traces(path: str | Path) -> tuple[Trace, ...]:
    """Read a file of traces."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFileError(f"{path} cannot be read: {error}") from None
    try:
        return read_traces(text)
    except GramError as error:
        raise SpecificationError(f"{path}:{error}") from None


def save_traces(path: str | Path, traces: Sequence[Trace]) -> None:
    """Write a file of traces that only its owner can read, completely or not at all."""
    text = traces_text(traces)
    if Path(path).exists() and not Path(path).is_file():
        # A rename would replace the device or the pipe by a file.
        raise UnreadableFileError(f"{path} cannot be written: it is no regular file")
    try:
        write_whole(Path(path), text, mode=0o600)
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be written: {reason_of(error)}") from None


class _Names:
    """Names for patterns, each unique in a text."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._counts: Counter[str] = Counter()

    def new(self, word: str) -> str:
        while True:
            self._counts[word] += 1
            number = self._counts[word]
            name = word if number == 1 else f"{word}_{number}"
            if name not in self._taken:
                return name


def _names_of(agent: AgentSpecification) -> Iterator[str]:
    yield agent.name
    yield from (tool.name for tool in agent.tools)
    for nested in agent.agents:
        yield from _names_of(nested)


def _trace_text(trace: Trace, names: _Names) -> str:
    name = names.new("run")
    values = {
        "agent": trace.agent.name,
        "model": str(trace.agent.model),
        "message": trace.message,
        "answer": trace.answer,
        "outcome": trace.outcome,
        "error": trace.error,
        "started": trace.started,
        "seconds": trace.seconds,
        **msgspec.structs.asdict(trace.usage),
        "cost": trace.cost,
        "session": trace.session,
    }
    turns = [_turn_text(turn, names) for turn in trace.turns]
    present = {"message": "", **_present(values)}
    return block_text(name, TRACE_LABEL, present, [print_name(trace.agent.name), *turns])


def _turn_text(turn: TracedTurn, names: _Names) -> str:
    values = {
        "agent": turn.agent,
        "message": turn.message,
        "text": turn.text,
        "stop": turn.stop,
        "seconds": turn.seconds,
        **msgspec.structs.asdict(turn.usage),
    }
    calls = [_call_text(call, names) for call in turn.calls]
    return block_text(names.new("turn"), TURN_LABEL, _present(values), calls, indent=STEP)


def _call_text(call: TracedCall, names: _Names) -> str:
    values = {
        "id": call.id,
        "tool": call.tool,
        "arguments": Tagged("json", call.arguments) if _is_json(call.arguments) else call.arguments,
        "outcome": call.outcome,
        "result": call.result,
        "seconds": call.seconds,
    }
    return block_text(names.new("call"), CALL_LABEL, _present(values), [], indent=STEP * 2)


def _present(values: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values that are not empty; half of a surrogate pair cannot be written."""
    return {
        key: clean(value) if isinstance(value, str) else value
        for key, value in values.items()
        if value is not None and (key in ALWAYS or value not in ("", 0))
    }


def _trace_of(bracket: Bracket, document: Document, agents: Mapping[str, AgentSpecification]) -> Trace:
    values = _values_of(bracket, document, Trace)
    agent = agents.get(str(text_of(bracket.subject.properties, "agent")))
    if agent is None:
        raise fault_at(
            bracket, document.source, "the agent of this trace is not in the text: [name:Agent {…} | …]"
        )
    turns = []
    for element in bracket.elements:
        if isinstance(element, Bracket) and label_of(element, {TURN_LABEL}):
            turns.append(_turn_of(element, document))
        elif not (isinstance(element, Reference) and element.identity == agent.name):
            raise fault_at(element, document.source, "expected a turn: [turn:Turn {…} | …]")
    return _made(bracket, document, {**values, "turns": turns, "agent": agent}, Trace)


def _turn_of(bracket: Bracket, document: Document) -> TracedTurn:
    calls = []
    for element in bracket.elements:
        if not isinstance(element, Bracket) or not label_of(element, {CALL_LABEL}):
            raise fault_at(element, document.source, "expected a call: [call:Call {…}]")
        calls.append(_made(element, document, _values_of(element, document, TracedCall), TracedCall))
    return _made(bracket, document, {**_values_of(bracket, document, TracedTurn), "calls": calls}, TracedTurn)


def _values_of(bracket: Bracket, document: Document, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the properties of a pattern as the fields of a struct, with those of the usage combined."""
    found = bracket.subject.properties
    counts = Usage.__struct_fields__ if "usage" in kind.__struct_fields__ else ()
    wrong = misspelt(found, {*kind.__struct_fields__, *counts})
    if wrong:
        raise fault_at(bracket, document.source, f"unknown property {wrong[0]!r}: did you mean {wrong[1]!r}?")
    values: dict[str, Any] = {}
    for key in found:
        value = text_of(found, key)
        values[key] = value.text if isinstance(value, Tagged) else value
    if counts:
        values["usage"] = {key: values.pop(key) for key in counts if key in values}
    return values


def _made(bracket: Bracket, document: Document, values: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise fault_at(bracket, document.source, str(error)) from None


def _masked_turn(turn: TracedTurn) -> TracedTurn:
    calls = tuple(map(_masked_call, turn.calls))
    return replace(turn, text=masked(turn.text), calls=calls, message=masked(turn.message))


def _masked_call(call: TracedCall) -> TracedCall:
    arguments = _parsed(call.arguments)
    if not isinstance(arguments, dict):
        return replace(call, arguments=masked(call.arguments), result=masked(call.result))
    kept = [json.dumps({"arguments": arguments}), json.dumps({"result": call.result})]
    given, result = Masking()(call.tool, kept)
    text = call.arguments if given == kept[0] else json.dumps(json.loads(given)["arguments"])
    return replace(call, arguments=text, result=json.loads(result)["result"])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_json(text: str) -> bool:
    return isinstance(_parsed(text), dict | list)


def _canonical(arguments: str) -> str:
    found = _parsed(arguments)
    return arguments if found is None else json.dumps(found, sort_keys=True, ensure_ascii=False)
