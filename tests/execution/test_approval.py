"""Approval: who may answer, what counts as a yes, and that only what was approved runs."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
import tomllib
from typing import Any, cast

import pytest

from gramercy import Approved, Denied, Executor, Modified, Policy, Registry, define_tool
from gramercy.execution.approval import read_decision
from gramercy.execution.results import ADVICE
from gramercy.journal.base import State

PARAMETERS: list[dict[str, Any]] = [
    {"name": "path", "type": "string"},
    {"name": "lines", "type": "array", "items": {"type": "string"}, "default": []},
]


class Shop:
    """A dangerous tool that notes what it was run with, and an executor around it."""

    def __init__(self, approval_handler=None, level="dangerous", **settings):
        self.ran = []
        self.tool = define_tool(
            "write_file", "Write.", PARAMETERS, required=["path"], safety_level=level, handler=self.write
        )
        self.registry = Registry([self.tool])
        self.executor = Executor(self.registry, approval_handler, **settings)

    def write(self, arguments):
        self.ran.append(arguments)
        return f"wrote {arguments['path']}"

    def states(self):
        return [entry.state.value for entry in self.executor.journal.entries()]


def call(**changes):
    return {"id": "call_1", "name": "write_file", "arguments": {"path": "a.txt", "lines": ["x"]} | changes}


def asynchronous(function):
    @functools.wraps(function)
    async def wrapper(*given):
        await asyncio.sleep(0)
        return function(*given)

    return wrapper


WAYS = pytest.mark.parametrize("made", [lambda function: function, asynchronous], ids=["plain", "async"])


@WAYS
@pytest.mark.parametrize("answer", ["approved", ":approved", Approved(), Approved("Ann")])
def test_an_approved_call_runs(run, made, answer):
    """Seed 002, Approval Handler Protocol: :approved."""
    shop = Shop(made(lambda _tool, _arguments: answer))
    result = run(shop.executor, call())
    assert (result.success, result.content) == (True, "wrote a.txt")
    assert shop.ran == [{"path": "a.txt", "lines": ["x"]}]
    assert result.metadata["approved"] is True
    assert result.metadata["approved_by"] == ("Ann" if answer == Approved("Ann") else "person")
    assert result.metadata["approval_wait_ms"] >= 0
    assert "denied" not in result.metadata
    assert shop.states() == ["requested", "awaiting", "ready", "executing", "done"]


@WAYS
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("denied", "User denied tool execution"),
        (":denied", "User denied tool execution"),
        (Denied(), "User denied tool execution"),
        (Denied("too risky"), "User denied tool execution: too risky"),
        (("denied", "not now"), "User denied tool execution: not now"),
    ],
)
def test_a_denied_call_does_not_run(run, made, answer, text):
    """Seed 002: :denied returns the error "User denied tool execution"."""
    shop = Shop(made(lambda _tool, _arguments: answer))
    result = run(shop.executor, call())
    assert (result.success, result.error) == (False, text)
    assert result.content == f"{text}\n{ADVICE['person']}"
    assert shop.ran == []
    assert result.metadata["approved"] is False
    assert "execution_time_ms" not in result.metadata
    assert "approved_by" not in result.metadata
    assert shop.states() == ["requested", "awaiting", "denied"]


class Mute:
    def __repr__(self):
        raise RuntimeError


NONSENSE: list[Any] = [
    None,
    True,
    False,
    1,
    "yes",
    "APPROVED",
    "approved ",
    "",
    "modified",
    ("modified",),
    ("modified", None),
    ("modified", ["path"]),
    ("approved", {}),
    ["approved"],
    {"decision": "approved"},
    Approved,
    Approved(by=cast("Any", 3)),
    Denied(reason=cast("Any", 3)),
    Denied("no", "somebody"),
    Denied("no", cast("Any", ["person"])),
    Modified(cast("Any", None)),
    Modified(cast("Any", "path")),
    Modified({}, by=cast("Any", None)),
    Mute(),
    ("modified", {}, "extra"),
    object(),
]


@pytest.mark.parametrize("answer", NONSENSE, ids=[type(answer).__name__ for answer in NONSENSE])
def test_an_unknown_answer_is_a_refusal_that_says_so(run, answer):
    """Decision 6: an unknown answer is denied."""
    shop = Shop(lambda _tool, _arguments: answer)
    result = run(shop.executor, call())
    assert result.success is False
    assert result.error.startswith("write_file was not run: the approval handler answered")
    assert "which is neither 'approved', 'denied' nor ('modified', arguments)" in result.error
    assert shop.ran == []


def test_reading_a_decision_never_turns_doubt_into_a_yes():
    """Decision 6."""
    for answer in NONSENSE:
        assert isinstance(read_decision(answer), Denied)
    assert read_decision(Denied("x" * 100_000, "client")) == Denied("x" * 2_000, "client")
    assert read_decision(Denied("\ud800")) == Denied("\ufffd")


@WAYS
@pytest.mark.parametrize(
    "error", [ValueError("no screen"), SystemExit(1), asyncio.CancelledError(), StopIteration()]
)
def test_a_handler_that_raises_is_a_refusal(run, made, error):
    """Decision 6: a handler that raises is denied."""

    def approve(_tool, _arguments):
        raise error

    shop = Shop(made(approve))
    result = run(shop.executor, call())
    assert result.error.startswith("write_file was not run: the approval handler failed: ")
    assert shop.ran == []
    assert shop.states()[-1] == "denied"


def test_nobody_to_ask_is_a_refusal(run):
    """Decision 6: no handler is denied; metadata has `approved` only when approval was asked."""
    shop = Shop()
    result = run(shop.executor, call())
    assert result.error == (
        "write_file was not run: it needs approval (no rule matches; the default for dangerous tools is "
        "ask), but nobody can be asked: no approval handler is set"
    )
    assert "approved" not in result.metadata
    assert (shop.ran, shop.states()) == ([], ["requested", "denied"])


def failing(*_):
    raise ValueError("no screen")


async def silent(*_):
    await asyncio.sleep(30)


DENIES = Policy([{"action": "deny", "tools": "write_file", "reason": "not here"}])
REFUSALS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "person": (lambda *_: Denied("not now"), {}, "User denied tool execution: not now"),
    "rule": (None, {"policy": DENIES}, "The policy denies write_file: rule 1 says deny (not here)"),
    "client": (
        lambda *_: Denied("the window was closed", "client"),
        {},
        "write_file was not run: the window",
    ),
    "nobody": (None, {}, "write_file was not run: it needs approval"),
    "timeout": (silent, {"approval_deadline": 0.05}, "write_file was not run: nobody answered within 0.05 s"),
    "approver": (failing, {}, "write_file was not run: the approval handler failed: no screen (ValueError)"),
    "guard": (lambda *_: Modified({}), {}, "the edited arguments cannot be used, so nothing was run."),
}


@pytest.mark.contract(
    "decision.06.refusal-everywhere",
    "decision.06.refused-by-person",
    "decision.06.refused-by-rule",
    "decision.06.refused-by-client",
    "decision.06.refused-by-timeout",
    "decision.06.refused-by-approver",
)
@pytest.mark.parametrize("refuser", REFUSALS)
def test_a_refusal_says_who_refused_and_what_to_do_now(run, refuser):
    """Answers, refusals: error, content, metadata, journal and figures tell the same."""
    handler, settings, text = REFUSALS[refuser]
    shop = Shop(handler, **settings)
    result = run(shop.executor, call())
    assert result.error.startswith(text)
    assert ("User denied" in result.content) is (refuser == "person")
    assert result.content == f"{result.error}\n{ADVICE[refuser].format(tool='write_file')}"
    assert (result.metadata["denied"], result.metadata["denied_by"]) == (True, refuser)
    assert (shop.ran, shop.executor.journal.entries()[-1].detail) == ([], result.error)
    assert shop.executor.metrics()["write_file"].denied_by == {refuser: 1}


@pytest.mark.contract("decision.06.refused-by-nobody")
def test_a_call_that_nobody_decided_can_be_allowed_by_the_rule_that_is_told(run):
    """Answers, refusals: the exact lines of a rule."""
    content = run(Shop().executor, call()).content
    rules = tomllib.loads(content[content.index("[[rules]]") :])["rules"]
    assert run(Shop(policy=Policy(rules)).executor, call()).success


@pytest.mark.parametrize("given", [(), (1,), (1, 2, 3, 4)])
def test_a_handler_that_takes_other_arguments_is_a_refusal(run, given):
    """Decision 6: what fails is no approval."""
    handlers = {0: lambda: "approved", 1: lambda _: "approved", 4: lambda _a, _b, _c, _d: "approved"}
    shop = Shop(handlers[len(given)])
    assert "the approval handler failed" in run(shop.executor, call()).error
    assert shop.ran == []


@WAYS
def test_a_handler_may_take_the_whole_request(run, made):
    """Guard design, Approval: the person sees call, final arguments and why it is asked."""
    seen: list[Any] = []

    def approve(tool, arguments, request):
        seen.append((tool, arguments, request))
        return "approved"

    shop = Shop(made(approve))
    assert run(shop.executor, call()).success
    ((tool, arguments, request),) = seen
    assert (tool, request.tool, request.arguments) == (shop.tool, shop.tool, arguments)
    assert (request.verdict.action, request.changes) == ("ask", ())
    assert len(request.seal.digest) == 64


def test_callable_objects_and_optional_third_parameters_are_handlers(run):
    """Seed 002: any function of tool and arguments."""

    class Prompt:
        def __call__(self, _tool, _arguments):
            return "approved"

    def optional(_tool, _arguments, request=None):
        return "approved" if request is not None else "denied"

    for handler in (
        Prompt(),
        Prompt().__call__,
        optional,
        lambda *given: "approved" if len(given) == 3 else 0,
    ):
        assert run(Shop(handler).executor, call()).success


@pytest.mark.usefixtures("no_workers_left")
def test_a_handler_that_does_not_answer_in_time_is_a_refusal(run):
    """Decision 6: a timeout is denied."""
    release = threading.Event()

    def approve(_tool, _arguments):
        release.wait(30)
        return "approved"

    async def approve_async(_tool, _arguments):
        await asyncio.sleep(30)
        return "approved"

    for handler in (approve, approve_async):
        shop = Shop(handler, approval_deadline=0.05)
        result = run(shop.executor, call())
        assert result.error == "write_file was not run: nobody answered within 0.05 s"
        assert (shop.ran, shop.states()[-1]) == ([], "denied")
    release.set()


def test_an_answer_that_comes_late_is_not_counted(run):
    """Guard design: a seal expires."""
    late = threading.Event()

    def approve(_tool, _arguments):
        late.wait(30)
        return "approved"

    shop = Shop(approve, approval_deadline=0.05)
    result = run(shop.executor, call())
    late.set()
    assert result.success is False
    assert shop.ran == []


@WAYS
@pytest.mark.parametrize(
    "answer", [("modified", {"path": "b.txt"}), [":modified", {"path": "b.txt"}], Modified({"path": "b.txt"})]
)
def test_a_modified_call_runs_with_the_new_arguments_and_the_model_is_told(run, made, answer):
    """Seed 002: (:modified new-args-hash); guard design: the model is told of an edit."""
    shop = Shop(made(lambda _tool, _arguments: answer))
    result = run(shop.executor, call())
    assert shop.ran == [{"path": "b.txt", "lines": []}]
    note = '[A person changed the arguments before approving; the tool ran with {"lines":[],"path":"b.txt"}]'
    assert result.content == f"{note}\nwrote b.txt"
    assert result.metadata["arguments_edited"] is True
    assert result.metadata["approved"] is True


def test_the_model_is_told_of_an_edit_also_when_the_call_fails(run):
    """Guard design: when the person edited the call, the model is told so."""
    shop = Shop(lambda *_: ("modified", {"path": "b.txt"}))
    shop.registry.register(
        define_tool(
            "write_file", "W.", PARAMETERS, safety_level="dangerous", handler=lambda a: 1 / len(a["lines"])
        )
    )
    result = run(shop.executor, call())
    assert result.error == "Tool error: division by zero"
    assert result.content.startswith("[A person changed the arguments before approving")
    assert result.content.endswith(result.error)


def test_a_long_edit_is_told_in_short(run):
    """The output cap must not be spent on repeating arguments."""
    shop = Shop(lambda *_: Modified({"path": "b" * 50_000}))
    assert len(run(shop.executor, call()).content) < 60_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "path: expected string, received nothing"),
        ({"path": 5}, "path: expected string, received integer 5"),
        ({"path": "a", "extra": 1}, "extra: expected only these names"),
        ({"path": "a", "lines": [object()]}, "lines[0]: expected a JSON value"),
        ({1: 2}, "names that are text"),
    ],
)
def test_an_edit_that_does_not_fit_is_not_run(run, arguments, text):
    """Guard design: edited arguments are validated like any others."""
    shop = Shop(lambda *_: Modified(arguments))
    result = run(shop.executor, call())
    assert result.error.startswith("the edited arguments cannot be used, so nothing was run.")
    assert text in result.error
    assert (shop.ran, result.metadata["approved"]) == ([], False)


def test_an_edit_that_meets_a_deny_rule_is_not_run(run):
    """Guard design: an approval does not lift a rule."""
    policy = Policy([{"action": "deny", "arguments": {"path": "/etc/**"}, "reason": "system files"}])
    shop = Shop(lambda *_: Modified({"path": "/tmp/../etc/passwd"}), policy=policy)
    result = run(shop.executor, call())
    refusal = "write_file was not run: the policy denies the edited call: rule 1 says deny (system files)"
    assert result.error.startswith(refusal)
    assert (shop.ran, result.metadata["approved"]) == ([], False)


def test_a_policy_decides_who_is_asked(run):
    """Guard design, Policy: allow, ask, deny."""
    asked: list[Any] = []

    def approve(tool, _arguments):
        asked.append(tool.name)
        return "approved"

    trusting = Shop(approve, policy=Policy([{"action": "allow", "tools": "write_file"}]))
    result = run(trusting.executor, call())
    assert (result.success, asked, "approved" in result.metadata) == (True, [], False)
    careful = Shop(approve, level="safe", policy=Policy([{"action": "ask"}]))
    result = run(careful.executor, call())
    assert (result.success, asked, result.metadata["approved"]) == (True, ["write_file"], True)
    assert careful.states() == ["requested", "awaiting", "ready", "executing", "done"]


def test_the_approver_sees_the_final_arguments_and_exactly_these_run(run):
    """Guard design: no hook rewrites arguments after the approval."""
    shown: list[Any] = []

    def transform(_tool, arguments):
        arguments["lines"].append("transformed")
        return arguments

    def approve(_tool, arguments, request):
        shown.append(repr(arguments))
        arguments["path"] = "changed by the approver"
        arguments["lines"].append("approver")
        request.arguments["lines"].append("approver")
        return "approved"

    def hook(_phase, _tool, arguments, result):
        arguments["path"] = "changed by a hook"
        arguments["lines"].clear()
        if result is not None:
            result.metadata["approved"] = "forged"

    shop = Shop(approve, hooks=[hook, hook], transforms=[transform])
    given = call()
    result = run(shop.executor, given)
    assert shown == ["{'path': 'a.txt', 'lines': ['x', 'transformed']}"]
    assert shop.ran == [{"path": "a.txt", "lines": ["x", "transformed"]}]
    assert result.metadata["approved"] is True
    assert given == call()


def test_edited_arguments_are_the_executors_own_from_then_on(run):
    """What the approver keeps a reference to cannot be changed after the check."""
    mine: dict[str, Any] = {"path": "b.txt", "lines": ["x"]}

    def hook(_phase, _tool, arguments, _result):
        arguments["lines"].append("changed by a hook")
        mine["path"] = "c.txt"
        mine["lines"].append("y")

    shop = Shop(lambda *_: Modified(mine), hooks=[hook])
    run(shop.executor, call())
    assert shop.ran == [{"path": "b.txt", "lines": ["x"]}]


def test_what_the_caller_does_to_its_arguments_during_the_approval_changes_nothing(run):
    """Guard design: what was validated is what is approved and what runs."""
    given = call()

    def approve(_tool, _arguments):
        given["arguments"]["path"] = "/etc/passwd"
        given["arguments"]["lines"].append(object())
        return "approved"

    shop = Shop(approve)
    assert run(shop.executor, given).success
    assert shop.ran == [{"path": "a.txt", "lines": ["x"]}]


def test_the_waiting_time_is_measured_apart_from_the_running_time(run):
    """Decision 13: approval wait."""
    took = []

    def approve(_tool, arguments):
        started = time.perf_counter()
        sum(range(len(arguments["path"]) * 20_000))
        took.append((time.perf_counter() - started) * 1000)
        return "approved"

    shop = Shop(approve)
    metadata = run(shop.executor, call()).metadata
    assert metadata["approval_wait_ms"] >= took[0]
    assert metadata["execution_time_ms"] >= 0
    figures = shop.executor.metrics()["write_file"]
    assert figures.mean_approval_wait_ms == pytest.approx(metadata["approval_wait_ms"])
    assert figures.p50_ms == pytest.approx(metadata["execution_time_ms"])


def test_a_denial_is_a_state_of_the_journal_and_a_figure():
    """Guard design, Journal: requested, awaiting, denied."""
    shop = Shop(lambda *_: Denied("no"))
    shop.executor.execute(call())
    last = shop.executor.journal.entries()[-1]
    assert (last.state, last.detail) == (State.DENIED, "User denied tool execution: no")
    figures = shop.executor.metrics()["write_file"]
    assert (figures.calls, figures.denied, figures.failed, figures.succeeded) == (1, 1, 0, 0)
