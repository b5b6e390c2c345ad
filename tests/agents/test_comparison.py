"""Comparisons: the same agent over the same cases with each library, and how sure the figures are."""

from __future__ import annotations

import asyncio
import json
from math import comb, isclose
from random import Random

import msgspec
import pytest

from gramercy import Agent, Limits, Registry, define_tool
from gramercy.agents.cases import Case, Expectation, load_cases, read_cases
from gramercy.agents.comparison import Comparison, Variant, check_bound, compare, runs, verdict
from gramercy.agents.intervals import bootstrap, mcnemar, ratio, sign_flip, wilson
from gramercy.agents.traces import Trace, TracedCall, TracedTurn, save_traces
from gramercy.agents.tracing import traced
from gramercy.errors import AgentError, BindingError, InvalidCaseError, ModelUnavailableError, ProviderError
from gramercy.providers.base import Usage
from gramercy.providers.scripted import ScriptedProvider


def library(handler, description="Return a greeting.", **options):
    tool = define_tool(
        "greet",
        description,
        [{"name": "name", "type": "string"}],
        handler=handler,
        required=["name"],
        **options,
    )
    return Registry([tool]).library()


PLAIN = library(lambda given: f"Hello, {given['name']}!")
WARM = library(lambda given: f"Hello, dear {given['name']}!")
AGENT = Agent("greeter", "Greet.", "OpenAI/gpt-4o-mini", [PLAIN["greet"]])
AGENT = Agent.from_specification(AGENT.specification)
GREET = {"name": "greet", "arguments": {"name": "Ada"}}


def last_result(request):
    """Say what the tool has given, as a model does that repeats it."""
    return request.messages[-1].text


def compared(libraries, cases, **options):
    return asyncio.run(compare(AGENT, libraries, cases, **options))


@pytest.mark.contract("agents.compare.sides")
def test_every_case_runs_with_every_library_in_turned_order():
    cases = [Case("hi", "one", script=(GREET, last_result)), Case("ho", "two", script=("no",))]
    found = compared({"plain": PLAIN, "warm": WARM}, cases, repeat=2)
    assert [(run.case, run.variant, run.repeat) for run in found.runs] == [
        ("one", "plain", 1),
        ("one", "warm", 1),
        ("two", "warm", 1),
        ("two", "plain", 1),
        ("one", "warm", 2),
        ("one", "plain", 2),
        ("two", "plain", 2),
        ("two", "warm", 2),
    ]
    assert found.of("warm", "one")[0].trace.answer == "Hello, dear Ada!"
    (case,) = found.differing()
    assert (case.case, case.repeats, case.differing) == ("one", 2, 2)
    assert [each.kind for each in case.differences] == ["result", "answer"]


@pytest.mark.contract("agents.compare.figures")
def test_figures_count_successes_calls_and_tokens_by_library():
    expect = Expectation(contains="dear", calls=("greet",))
    cases = [Case("hi", str(number), expect, (GREET, last_result)) for number in range(8)]
    found = compared({"plain": PLAIN, "warm": WARM}, cases)
    plain, warm = found.figures()
    assert (plain.successes, warm.successes, warm.runs, warm.calls) == (0, 8, 8, 1.0)
    assert warm.rate.value == 1.0
    assert warm.rate.interval == wilson(8, 8)
    low, high = warm.seconds.interval
    assert low <= warm.seconds.value <= high
    assert warm.tool_seconds.value <= warm.seconds.value
    (pair,) = found.pairs()
    assert (pair.only_one, pair.only_other, pair.both, pair.neither, pair.alike) == (0, 8, 0, 0, 0)
    assert pair.success_p == 2 / 2**8
    told = list(verdict(pair))
    assert told[0].startswith(
        "warm succeeds more often than plain: 8 of 8 beside 0; on these cases chance alone hardly"
    )
    assert not found.ok


def test_a_difference_that_few_runs_cannot_show_is_said_to_be_open():
    cases = [
        Case("hi", str(number), Expectation(contains="dear"), (GREET, last_result)) for number in range(4)
    ]
    (pair,) = compared({"plain": PLAIN, "warm": WARM}, cases).pairs()
    assert "too few runs to tell it from chance" in next(verdict(pair))
    (same,) = compared({"plain": PLAIN, "again": PLAIN}, cases).pairs()
    assert next(verdict(same)) == "again succeeds as often as plain: 0 of 4."


def test_times_are_judged_by_the_runs_that_have_some():
    """Ten pairs of which three call a tool: that their times may be chance was said as if ten had spoken."""
    cases = [Case("hi", str(n), script=(GREET, "Done") if n < 3 else ("Done",)) for n in range(10)]
    # Long enough for a clock that counts microseconds.
    slow = library(lambda given: f"{given['name']} {sum(range(10_000))}")
    (pair,) = compared({"one": slow, "other": slow}, cases).pairs()
    assert pair.tool_time is not None
    assert pair.time is not None
    assert (pair.pairs, pair.tool_time.pairs, pair.time.pairs) == (10, 3, 10)
    told = next(line for line in verdict(pair) if line.startswith("The tools of"))
    assert "too few runs to tell it from chance" in told


def test_a_run_that_ends_without_an_answer_meets_no_expectation():
    cases = [Case("hi", "one", script=(ProviderError("down"),))]
    found = compared({"plain": PLAIN}, cases)
    assert found.runs[0].failures == ("down",)
    assert found.pairs() == []


def test_what_cannot_be_bound_is_named_for_all_libraries_before_anything_runs():
    other = library(lambda _: "x", description="Say hello.")
    asked = ScriptedProvider("never")
    variants = [
        Variant("plain", AGENT, PLAIN),
        Variant("other", AGENT, other),
        Variant("none", AGENT, Registry().library()),
    ]

    async def all_runs():
        return [run async for run in runs(variants, [Case("hi", "one")], providers=lambda _: asked)]

    with pytest.raises(
        BindingError, match=r"other: (.|\n)*greet: description(.|\n)*none: (.|\n)*greet: name"
    ):
        asyncio.run(all_runs())
    assert asked.requests == []


def test_tools_that_an_agent_brings_itself_need_not_be_in_a_library():
    agent = Agent("greeter", "Greet.", "x/y", [PLAIN["greet"]])
    cases = [Case("hi", "one", script=(GREET, last_result))]
    found = asyncio.run(compare(agent, {"own": (), "warm": [WARM["greet"]]}, cases))
    assert [run.trace.answer for run in found.runs] == ["Hello, Ada!", "Hello, dear Ada!"]


def test_two_sides_of_one_name_and_a_model_that_is_not_there_are_refused():
    with pytest.raises(AgentError, match="same name"):
        check_bound([Variant("a", AGENT, PLAIN)] * 2)
    agent = Agent("a", "Help.", "Nonsense/x")
    with pytest.raises(ModelUnavailableError):
        asyncio.run(compare(agent, {"none": Registry().library()}, [Case("hi", "one")]))


@pytest.mark.contract("agents.compare.cases-of-traces")
def test_traces_are_cases_whose_model_answers_again(tmp_path):
    first = compared({"plain": PLAIN}, [Case("hi", "one", script=(GREET, last_result))])
    save_traces(tmp_path / "plain.gram", [first.runs[0].trace])
    cases = load_cases(tmp_path / "plain.gram")
    assert [(case.name, case.message) for case in cases] == [("case 1", "hi")]
    found = compared({"plain": PLAIN, "warm": WARM}, cases)
    assert [run.trace.calls[0].result for run in found.runs] == ["Hello, Ada!", "Hello, dear Ada!"]


def test_a_comparison_that_was_broken_off_pairs_only_what_has_run_on_both_sides():
    whole = compared({"plain": PLAIN, "warm": WARM}, [Case("hi", str(n), script=("x",)) for n in range(3)])
    broken = Comparison(whole.variants, whole.cases, whole.runs[:3])
    assert [pair.pairs for pair in broken.pairs()] == [1]
    assert [each.runs for each in broken.figures()] == [1, 2]
    assert Comparison(whole.variants, whole.cases, ()).figures() == []


def test_answers_that_are_there_already_cost_nothing_and_no_budget_ends_them():
    dear = ScriptedProvider(GREET, "done", usage=Usage(10**9, 10**9))
    agent = Agent("greeter", "Greet.", "OpenAI/gpt-4o-mini", [PLAIN["greet"]])
    paid, _ = asyncio.run(traced(agent, "hi", provider=dear, limits=Limits(cost=None)))
    assert paid.cost
    found = compared({"plain": PLAIN}, [Case("hi", "one", trace=paid)], limits=Limits(cost=0.01))
    assert (found.ok, found.figures()[0].cost) == (True, 0.0)
    assert found.figures()[0].usage == Usage(2 * 10**9, 2 * 10**9)


def test_cost_is_added_up_and_one_that_is_not_known_makes_the_sum_unknown():
    def model(_):
        return ScriptedProvider("done", usage=Usage(1_000_000, 0))

    found = compared({"plain": PLAIN}, [Case("hi", "one"), Case("ho", "two")], providers=model)
    each = found.runs[0].trace.cost
    assert each
    assert isclose(found.figures()[0].cost or 0, 2 * each)
    mixed = Comparison(
        found.variants,
        found.cases,
        [found.runs[0], msgspec.structs.replace(found.runs[1], trace=trace())],
    )
    assert mixed.figures()[0].cost is None


def test_json_has_figures_verdicts_and_every_run():
    found = compared({"plain": PLAIN, "warm": WARM}, [Case("hi", "one", script=(GREET, "done"))])
    told = json.loads(json.dumps(found.to_json()))
    assert [each["name"] for each in told["variants"]] == ["plain", "warm"]
    assert told["variants"][0]["cost"] == 0.0
    assert told["pairs"][0]["verdict"][0] == "warm succeeds as often as plain: 1 of 1."
    assert told["runs"][1]["trace"]["turns"][0]["calls"][0]["result"] == "Hello, dear Ada!"
    assert told["runs"][0]["trace"]["agent"] == "greeter"


def trace(answer="Hello, Ada!", calls=(("greet", '{"name": "Ada"}', "Hi"),), outcome="answered", error=""):
    made = tuple(TracedCall("1", tool, arguments, "done", result) for tool, arguments, result in calls)
    turns = (TracedTurn("greeter", calls=made),)
    return Trace(AGENT.specification, "hi", answer, outcome, error, turns=turns)


@pytest.mark.contract("agents.compare.expectations")
@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ({"contains": "Ada"}, None),
        ({"contains": ["Ada", "Bob"]}, "lacks 'Bob'"),
        ({"excludes": "Bob"}, None),
        ({"excludes": ["Ada"]}, "has 'Ada'"),
        ({"equals": " Hello, Ada!\n"}, None),
        ({"equals": "Hello"}, "is not 'Hello'"),
        ({"regex": r"^Hello, \w+!$"}, None),
        ({"regex": "^Ada"}, "does not match \\^Ada"),
        ({"calls": ["greet"]}, None),
        ({"calls": [{"tool": "greet", "arguments": {"name": "Ada"}}]}, None),
        ({"calls": [{"tool": "greet", "arguments": {"name": "Bob"}}]}, 'expected greet {"name": "Bob"}'),
        ({"calls": []}, "expected none"),
        ({"calls": ["greet", "greet"]}, "expected greet, greet"),
        ({"results": "Hi"}, None),
        ({"results": ["Ho"]}, "no call gave 'Ho'"),
    ],
)
def test_expectations_say_what_is_not_as_expected(expect, says):
    (case,) = read_cases(json.dumps({"message": "hi", "expect": expect}))
    failures = case.expect.failures(trace())
    if says is None:
        assert failures == ()
    else:
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(failures[0])


def test_nothing_is_met_by_a_run_without_an_answer_or_with_broken_arguments():
    assert Expectation().failures(trace("", outcome="limit", error="10 turns")) == ("10 turns",)
    assert Expectation().failures(trace("")) == ()
    broken = trace(calls=(("greet", "{", "Hi"),))
    wanted = read_cases(
        '{"message": "hi", "expect": {"calls": [{"tool": "greet", "arguments": {"name": 1}}]}}'
    )
    assert wanted[0].expect.failures(broken)


@pytest.mark.contract("agents.compare.bad-cases")
def test_every_line_that_is_no_case_is_named():
    text = """\
{"message": "fine"}
// a remark

{"mesage": "hi"}
{"message": "hi", "expect": {"contain": "x"}}
{"message": "hi", "expect": {"regex": "("}}
{"message": 3}
[1, 2]
{"message": "hi"
{"message": "  "}
{"message": "hi", "zebra": 1}
{"name": "x"}
"""
    with pytest.raises(InvalidCaseError) as failed:
        read_cases(text, "cases.jsonl")
    told = str(failed.value).splitlines()
    assert [line.split(" ")[0] for line in told] == [
        f"cases.jsonl:{n}:" for n in (4, 5, 6, 7, 8, 9, 10, 11, 12)
    ]
    assert "did you mean 'message'?" in told[0]
    assert "did you mean 'contains'?" in told[1]
    assert "no regular expression" in told[2]
    assert "zebra" in told[7]
    assert "missing required field `message`" in told[8]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no cases"),
        ('{"message": "a", "name": "x"}\n{"message": "b", "name": "x"}', "two cases named 'x'"),
    ],
)
def test_no_cases_and_two_of_one_name_are_refused(text, says):
    with pytest.raises(InvalidCaseError, match=says):
        read_cases(text)


@pytest.mark.contract("agents.compare.intervals")
def test_wilson_is_as_published_and_stays_between_0_and_1():
    """Figures of Newcombe, Statistics in Medicine 1998, table I, method 3."""
    for successes, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        found = wilson(successes, n)
        assert isclose(found[0], low, abs_tol=5e-5)
        assert isclose(found[1], high, abs_tol=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.contract("agents.compare.intervals")
def test_the_bootstrap_covers_the_median_about_as_often_as_it_says():
    draw = Random(7)
    hits = 0
    for _ in range(60):
        found = bootstrap([draw.lognormvariate(0, 1) for _ in range(25)])
        assert found
        hits += found[0] <= 1.0 <= found[1]
    assert hits >= 50
    assert bootstrap([1.0]) is None
    assert bootstrap([2.0, 2.0]) == (2.0, 2.0)


@pytest.mark.contract("agents.compare.paired-test")
def test_paired_tests_are_exact_for_few_pairs():
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(0, 6) == mcnemar(6, 0) == 2 / 64
    assert isclose(mcnemar(2, 8), 2 * sum(comb(10, k) for k in range(3)) / 2**10)
    assert sign_flip([1.0] * 6) == 2 / 64
    assert sign_flip([1.0, -1.0]) == 1.0
    assert sign_flip([]) == sign_flip([0.0]) == 1.0
    assert sign_flip([0.5] * 40) < 0.001
    value, interval, p = ratio([(1.0, 2.0)] * 8)
    assert interval
    assert (round(value, 9), round(interval[0], 9), p) == (2.0, 2.0, 2 / 256)


def test_chance_alone_is_called_a_difference_about_as_rarely_as_promised():
    """Pairs without a real difference: p is below 0.05 in about 5 of 100, above 12 pairs as well."""
    draw = Random(3)
    for pairs in (10, 20):
        found = sum(sign_flip([draw.gauss(0, 1) for _ in range(pairs)]) < 0.05 for _ in range(60))
        assert found <= 9
