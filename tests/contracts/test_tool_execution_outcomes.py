"""Seed 002, tool execution, as tests: formatting, errors, hooks, metrics and the invariants."""

from __future__ import annotations

from typing import Any

import pytest

from gramercy import Executor, Registry, Tool, ToolOutput, ToolResult, define_tool, format_tool_result

Arguments = dict[str, Any]


def call(name: str, identity: str = "call_1", /, **arguments: Any) -> dict[str, Any]:
    return {"id": identity, "name": name, "arguments": arguments}


def answering(value: Any, name: str = "act", **options: Any) -> Tool:
    return define_tool(name, "Answer.", [], handler=lambda _: value, **options)


def raising(error: BaseException, name: str = "fail") -> Tool:
    def handler(_: Arguments) -> None:
        raise error

    return define_tool(name, "Fail.", [], handler=handler)


def outcome(tool: Tool) -> ToolResult:
    return Executor(Registry([tool])).execute(call(tool.name))


# Result Formatting


class Symbol:
    """Prints itself as the object of the example does."""

    def __repr__(self) -> str:
        return "#<SYMBOL COMMON-LISP:CAR>"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("as\n it (is)", "as\n it (is)", marks=pytest.mark.contract("002.format.string")),
        pytest.param("", "", marks=pytest.mark.contract("002.format.string")),
        pytest.param(None, "nil", marks=pytest.mark.contract("002.format.nil")),
        pytest.param([1, [2, None]], "(1 (2 nil))", marks=pytest.mark.contract("002.format.list")),
        pytest.param([1, 2, 3], "(1 2 3)", marks=pytest.mark.contract("002.format.example-list")),
        pytest.param(42, "42", marks=pytest.mark.contract("002.format.number")),
        pytest.param(-2.5, "-2.5", marks=pytest.mark.contract("002.format.number")),
        pytest.param(1 + 2j, "(1+2j)", marks=pytest.mark.contract("002.format.object")),
        pytest.param(
            Symbol(), "#<SYMBOL COMMON-LISP:CAR>", marks=pytest.mark.contract("002.format.example-object")
        ),
    ],
)
def test_a_raw_result_is_formatted_by_its_type(value: Any, text: str) -> None:
    """Seed 002, format-tool-result."""
    assert format_tool_result(value) == text


@pytest.mark.contract("002.format.for-model")
@pytest.mark.parametrize("value", ["text", None, [1, "a"], 2.5, Symbol()])
def test_the_formatted_result_is_what_the_model_gets(value: Any) -> None:
    """Seed 002, Result Formatting, LLM Context."""
    assert outcome(answering(value)).content == format_tool_result(value)


# Error Handling


@pytest.mark.contract("002.errors.all-caught", "002.errors.formatted", "002.errors.without-success")
@pytest.mark.parametrize("kind", [ValueError, OSError, RecursionError, MemoryError, SystemExit])
def test_an_error_of_a_handler_becomes_a_tool_error(kind: type[BaseException]) -> None:
    """Seed 002, Handler Errors."""
    result = outcome(raising(kind("the disk is on fire")))
    assert result.success is False
    assert (result.error, result.content) == ("Tool error: the disk is on fire",) * 2


@pytest.mark.contract("002.errors.agent-continues")
@pytest.mark.parametrize("level", ["safe", "cautious"])
def test_the_calls_after_a_failed_one_still_run(level: str) -> None:
    """Seed 002, Handler Errors."""
    executor = Executor(Registry([raising(ValueError("no")), answering("done", safety_level=level)]))
    results = executor.execute_tool_calls([call("fail", "1"), call("act", "2"), call("fail", "3")])
    assert [result.success for result in results] == [False, True, False]
    assert results[1].content == "done"


@pytest.mark.contract("002.unknown.error-result", "002.unknown.text", "002.unknown.can-retry")
def test_a_call_of_an_unknown_tool_is_an_error_from_which_the_model_can_recover(
    describe_symbol: Tool,
) -> None:
    """Seed 002, Unknown Tool."""
    executor = Executor(Registry([describe_symbol]))
    result = executor.execute(call("describe_simbol", symbol="len"))
    assert result.success is False
    assert result.error == "Unknown tool: describe_simbol"
    assert "describe_symbol" in result.content
    assert executor.execute(call("describe_symbol", symbol="len")).success


# Observability Hooks


@pytest.mark.contract("002.hooks.list", "002.hooks.added-later", "002.hooks.usage")
def test_the_example_hook_logs_the_name_of_every_tool_before_it_runs() -> None:
    """Seed 002, Observability Hooks, Hook Usage: the list is empty at first and can be added to."""
    executor = Executor(Registry([answering("one", "one"), answering("two", "two")]))
    assert list(executor.hooks) == []
    log: list[str] = []

    def log_tools(phase: str, tool: Tool, _arguments: Arguments, _result: ToolResult | None) -> None:
        if phase == "before":
            log.append(f"Executing tool: {tool.name}")

    executor.hooks.append(log_tools)
    executor.execute(call("two"))
    executor.execute(call("one"))
    assert log == ["Executing tool: two", "Executing tool: one"]


@pytest.mark.contract("002.hooks.signature", "002.hooks.before", "002.hooks.after", "002.hooks.error")
def test_hooks_are_called_before_and_after_and_on_errors() -> None:
    """Seed 002, Observability Hooks, Phases."""
    seen: list[tuple[str, str, Arguments, bool | None]] = []

    def hook(phase: str, tool: Tool, arguments: Arguments, result: ToolResult | None) -> None:
        seen.append((phase, tool.name, arguments, None if result is None else result.success))

    parameters = [{"name": "what", "type": "string"}]
    tool = define_tool("act", "Act.", parameters, handler=lambda a: a["what"])
    executor = Executor(Registry([tool, raising(ValueError("no"))]), hooks=[hook])
    executor.execute(call("act", what="this"))
    executor.execute(call("fail"))
    assert seen == [
        ("before", "act", {"what": "this"}, None),
        ("after", "act", {"what": "this"}, True),
        ("before", "fail", {}, None),
        ("error", "fail", {}, False),
    ]


@pytest.mark.contract("002.hooks.before")
def test_before_comes_just_before_the_handler_and_not_for_a_denied_call() -> None:
    """Seed 002, Observability Hooks, Phases."""
    lines: list[str] = []
    decisions = iter(["approved", "denied"])

    def approve(*_: Any) -> str:
        lines.append("asked")
        return next(decisions)

    tool = define_tool("act", "Act.", [], safety_level="dangerous", handler=lambda _: lines.append("ran"))
    executor = Executor(Registry([tool]), approve, [lambda phase, *_: lines.append(phase)])
    executor.execute(call("act"))
    executor.execute(call("act"))
    assert lines == ["asked", "before", "ran", "after", "asked"]


# Execution Metrics


@pytest.mark.contract("002.metrics.time", "002.metrics.result-size")
def test_the_time_of_a_call_and_the_size_of_its_result_are_measured() -> None:
    """Seed 002, Execution Metrics."""
    tool = define_tool("count_up", "Count.", [], handler=lambda _: sum(range(100_000)))
    executor = Executor(Registry([tool, answering("x" * 10)]))
    result = executor.execute(call("count_up"))
    executor.execute(call("act"))
    figures = executor.metrics()
    assert figures["count_up"].p50_ms == result.metadata["execution_time_ms"] > 0
    assert figures["act"].mean_result_size == 10


@pytest.mark.contract("002.metrics.success-rate", "002.metrics.frequency")
def test_successes_failures_and_frequency_are_known_for_each_tool() -> None:
    """Seed 002, Execution Metrics."""
    outcomes = iter([True, False, True, True])

    def handler(_: Arguments) -> str:
        if not next(outcomes):
            raise ValueError("no")
        return "yes"

    tool = define_tool("now_and_then", "Fail now and then.", [], handler=handler)
    executor = Executor(Registry([tool, answering(1)]))
    for name in ("now_and_then", "now_and_then", "act", "now_and_then", "now_and_then"):
        executor.execute(call(name))
    figures = executor.metrics()
    used = figures["now_and_then"]
    assert (used.calls, used.succeeded, used.failed, used.success_rate) == (4, 3, 1, 0.75)
    assert max(figures.values(), key=lambda tool_figures: tool_figures.calls).tool == "now_and_then"


# Invariants

TROUBLE: list[Any] = [
    call("act", "good"),
    call("fail", "raises"),
    call("half", "reports an error"),
    call("delete", "dangerous"),
    call("nonexistent", "unknown"),
    call("act", "extra argument", surprise=1),
    {"id": "no name"},
    {"id": "no object", "name": "act", "arguments": [1]},
    {"id": "no JSON", "name": "act", "arguments": "{"},
    {"id": "", "name": "act"},
]


def troubled(approve: Any) -> Executor:
    """Make an executor whose tools and hooks do everything that can go wrong."""

    def hook(*_: Any) -> None:
        raise RuntimeError("a hook that always fails")

    half = answering(ToolOutput(None, "half"), "half")
    dangerous = answering("deleted", "delete", safety_level="dangerous")
    return Executor(Registry([answering(1), raising(SystemExit(1)), half, dangerous]), approve, [hook])


def broken(*_: Any) -> Any:
    raise RuntimeError("an approver that always fails")


@pytest.mark.contract(
    "002.invariant.result-id",
    "002.invariant.success-xor-error",
    "002.invariant.content-is-text",
    "002.invariant.error-recovery",
)
@pytest.mark.parametrize("approve", [None, broken, lambda *_: "denied", lambda *_: "approved"])
@pytest.mark.parametrize("request_", TROUBLE, ids=lambda request_: request_["id"] or "no id")
def test_whatever_happens_there_is_a_proper_result(approve: Any, request_: dict[str, Any]) -> None:
    """Seed 002, Invariants 1, 2, 3 and 5."""
    [result] = troubled(approve).execute_tool_calls([request_])
    assert result.id == request_["id"]
    assert result.success is (result.error is None)
    assert isinstance(result.content, str)


@pytest.mark.contract("002.invariant.error-recovery")
@pytest.mark.parametrize("thing", [None, 7, "delete", [], {}])
def test_what_is_no_call_at_all_gets_a_result_too(thing: Any) -> None:
    """Seed 002, Invariant 5."""
    [result] = troubled(None).execute_tool_calls([thing])
    assert result.success is False
    assert result.error


@pytest.mark.contract("002.invariant.approval-blocks")
@pytest.mark.parametrize("answer", ["denied", "yes", "", True, 1, None, (), ("approved",), ["approved"]])
def test_a_dangerous_tool_never_runs_without_approval(answer: Any) -> None:
    """Seed 002, Invariant 4: whatever is not clearly an approval is none."""
    ran: list[Arguments] = []
    tool = define_tool("delete", "Delete.", [], safety_level="dangerous", handler=ran.append)
    result = Executor(Registry([tool]), lambda *_: answer).execute(call("delete"))
    assert not result.success
    assert ran == []
