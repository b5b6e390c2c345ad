"""Traces: what was recorded is read back as it was, compared, and run again without a model."""

from __future__ import annotations

import asyncio
import os
import resource
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramercy import Agent, Limits, define_tool
from gramercy.agents.differences import MOST_LINES, differences, line_differences
from gramercy.agents.traces import Trace, TracedCall, TracedTurn, load_traces, read_traces, save_traces
from gramercy.agents.traces import traces_text as text_of
from gramercy.agents.tracing import AgentNames, ReplayProvider, recorded_tools, replay_executor, traced
from gramercy.errors import ModelUnavailableError, ProviderError, SpecificationError, UnreadableFileError
from gramercy.gram.lint.linter import lint
from gramercy.gram.syntax.reader import read
from gramercy.providers.base import ModelCall, Request, StopPart, TextPart, Usage
from gramercy.providers.scripted import ScriptedProvider


def add(arguments):
    return str(arguments["a"] + arguments["b"])


def agent_of(handler=add, **options):
    parameters = [{"name": name, "type": "integer"} for name in "ab"]
    return Agent(
        "adder",
        "Add numbers with the tool.",
        "OpenAI/gpt-4o-mini",
        [define_tool("add", "Add two numbers.", parameters, required=["a", "b"], handler=handler, **options)],
        description="Adds",
    )


def recorded(*answers, agent=None, message="What is 1 + 2?", **options):
    model = ScriptedProvider(*answers, usage=Usage(10, 4, 2))
    trace, _ = asyncio.run(traced(agent or agent_of(), message, provider=model, **options))
    return trace


def replayed(trace, library=None, executor=None):
    library = recorded_tools(trace) if library is None else library
    work = traced(
        Agent.from_specification(trace.agent),
        trace.message,
        library,
        provider=ReplayProvider(trace),
        executor=executor or replay_executor(),
        limits=Limits(turns=max(1, len(trace.turns))),
    )
    return asyncio.run(work)[0]


SUM = {"name": "add", "arguments": {"a": 1, "b": 2}}


@pytest.mark.contract("agents.compare.trace")
def test_a_run_is_recorded_with_its_turns_calls_results_and_tokens():
    trace = recorded(["Let me add. ", SUM, {"name": "add", "arguments": '{"a": 1'}], "It is 3.")
    assert (trace.outcome, trace.answer, trace.usage) == ("answered", "It is 3.", Usage(20, 8, 4))
    assert [turn.stop for turn in trace.turns] == ["calls", "end"]
    assert trace.turns[0].text == "Let me add. "
    done, failed = trace.calls
    assert (done.tool, done.outcome, done.result) == ("add", "done", "3")
    assert (failed.outcome, failed.arguments) == ("failed", '{"a": 1')
    assert "stops being JSON" in failed.result
    assert trace.seconds > 0


@pytest.mark.contract("agents.compare.trace-gram")
def test_a_trace_is_gram_that_reads_back_equal_and_lints_clean():
    one = recorded([SUM], "It is 3.\nReally.")
    other = recorded("I will not.", message='Say `no` to "me"\n```\nfenced\n```')
    text = text_of([one, other])
    assert read_traces(text) == (one, other)
    assert "[run:Trace {" in text
    assert [each.code for each in lint(text)] == []
    assert len(read(text, strict=True).patterns) == 3


texts = st.text(max_size=60)
calls = st.builds(
    TracedCall,
    texts,
    texts,
    st.one_of(texts, st.just('{"a": [1, "`x` \\u0000"]}')),
    st.sampled_from(["done", "failed", "denied", "waiting", "missing"]),
    texts,
    st.floats(0, 1e6).map(lambda x: round(x, 6)),
)
turns = st.builds(
    TracedTurn,
    texts,
    texts,
    st.sampled_from(["", "end", "calls", "length", "refused", "other"]),
    st.builds(Usage, *[st.integers(0, 2**40)] * 4),
    st.floats(0, 1e6).map(lambda x: round(x, 6)),
    st.lists(calls, max_size=3).map(tuple),
    texts,
)


@settings(max_examples=60, deadline=None)
@given(texts, texts, st.lists(turns, max_size=3).map(tuple), st.one_of(st.none(), st.floats(0, 1e3)))
def test_whatever_was_said_reads_back_as_it_was(message, answer, made, cost):
    """Quotes, fences, controls, comments of any text; and a cost of 0 is not the same as none."""
    trace = Trace(agent_of().specification, message, answer, turns=made, cost=cost)
    assert read_traces(trace.to_gram()) == (trace.without_secrets(),)


def test_half_of_a_surrogate_pair_is_replaced_since_no_file_can_hold_it():
    trace = Trace(agent_of().specification, "a\ud800b")
    assert read_traces(trace.to_gram())[0].message == "a\N{REPLACEMENT CHARACTER}b"


def test_names_of_the_agent_do_not_clash_with_those_of_the_trace():
    agent = Agent("run", "Turn.", "a/b", [define_tool("turn", "Turn.", [], handler=lambda _: "turned")])
    trace = recorded([{"name": "turn"}], "done", agent=agent)
    (again,) = read_traces(trace.to_gram())
    assert again == trace
    assert "[run_2:Trace" in trace.to_gram()


@pytest.mark.contract("agents.compare.trace-secrets")
def test_secrets_are_masked_in_the_text_of_a_trace():
    parameters = [{"name": name, "type": "string"} for name in ("password", "user")]
    tool = define_tool("log_in", "Log in.", parameters, handler=lambda given: f"in with {given['password']}")
    agent = Agent("porter", "Log in.", "a/b", [tool])
    secret = {"password": "rose bush 7", "user": "ann"}
    trace = recorded([{"name": "log_in", "arguments": secret}], "key sk-abcdefghijklmnop1234", agent=agent)
    text = trace.to_gram()
    assert "rose bush" not in text
    assert "sk-abcdefghijklmnop" not in text
    assert "ann" in text
    assert "rose bush 7" in trace.calls[0].result


@pytest.mark.contract("agents.compare.trace-files")
def test_a_file_is_written_whole_for_its_owner_alone(tmp_path):
    trace, place = recorded("yes"), tmp_path / "run.gram"
    place.write_text("old")
    save_traces(place, [trace])
    assert load_traces(place) == (trace,)
    assert place.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["run.gram"]
    with pytest.raises(UnreadableFileError, match="cannot be written"):
        save_traces(tmp_path / "none" / "run.gram", [trace])


def test_a_file_that_cannot_be_written_leaves_nothing_and_no_device_is_replaced(tmp_path):
    """A full disk left the beginning of a trace behind, and /dev/stdout became a file."""
    trace, place = recorded("yes" * 10_000), tmp_path / "run.gram"
    place.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        with pytest.raises(UnreadableFileError, match=r"run\.gram cannot be written: File too large"):
            save_traces(place, [trace])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("run.gram", "old")]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(UnreadableFileError, match="cannot be written: it is no regular file"):
            save_traces(tmp_path / name, [trace])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_goes_on_leading_to_the_file_that_is_written(tmp_path):
    (tmp_path / "link").symlink_to("run.gram")
    save_traces(tmp_path / "link", [recorded("yes")])
    assert (tmp_path / "link").is_symlink()
    assert load_traces(tmp_path / "run.gram")[0].answer == "yes"


AGENT = '[a:Agent {instruction: "Help.", model: "x/y"}]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (AGENT, "there is no trace in this text"),
        ('[run:Trace {agent: "a", message: "hi"}]', "1:1: the agent of this trace is not in the text"),
        (AGENT + '[run:Trace {agent: "a"}]', "2:1: Object missing required field `message`"),
        (AGENT + '[run:Trace {agent: "a", mesage: "hi"}]', "2:1: unknown property 'mesage': did you mean"),
        (AGENT + '[run:Trace {agent: "a", message: 3}]', r"2:1: Expected `str`, got `int`"),
        (AGENT + '[run:Trace {agent: "a", message: "hi", outcome: "so so"}]', "2:1: Invalid enum value"),
        (AGENT + '[run:Trace {agent: "a", message: "hi"} | (b)]', "2:42: expected a turn"),
        (AGENT + '[run:Trace {agent: "a", message: "hi"} | [t:Turn {agent: "a"} | (b)]]', "expected a call"),
        (AGENT + '[run:Trace {agent: "a", message: "hi"} | [t:Turn {text: "b"}]]', "2:42: Object missing"),
        ("[run", "1:5"),
    ],
)
def test_what_is_no_trace_is_named_with_its_place(tmp_path, text, says):
    place = tmp_path / "run.gram"
    place.write_text(text)
    with pytest.raises(SpecificationError, match=says) as failed:
        load_traces(place)
    assert str(failed.value).startswith(str(place))


def test_a_file_that_is_no_text_is_refused(tmp_path):
    place = tmp_path / "run.gram"
    place.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        load_traces(place)
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        load_traces(tmp_path / "none.gram")


@pytest.mark.contract("agents.compare.replay")
def test_a_trace_replayed_without_tools_gives_the_same_run_and_runs_nothing():
    ran = []

    def counted(given):
        ran.append(1)
        return add(given)

    agent = agent_of(counted, safety_level="dangerous")
    trace = recorded(["So. ", SUM, SUM], "It is 3.", agent=agent, approval_handler=lambda *_: "approved")
    assert len(ran) == 2
    again = replayed(trace)
    assert differences(trace, again) == ()
    assert len(ran) == 2


@pytest.mark.contract("agents.compare.replay")
def test_a_trace_replayed_with_other_tools_shows_what_they_give():
    trace = recorded([SUM], "It is 3.")
    library = agent_of(lambda given: str(given["a"] + given["b"] + 1)).library
    (found,) = differences(trace, replayed(trace, library))
    assert (found.kind, found.before, found.after) == ("result", "3", "4")
    assert found.place == "result of call 1, add"


def test_failures_and_limits_are_replayed_too():
    def fail(_):
        raise ValueError("no sums today")

    trace = recorded([SUM], "I cannot.", agent=agent_of(fail))
    assert differences(trace, replayed(trace)) == ()
    assert "no sums today" in replayed(trace).calls[0].result
    limited = recorded([SUM], [SUM], [SUM], limits=Limits(turns=2))
    assert (limited.outcome, len(limited.turns), limited.answer) == ("limit", 2, "")
    assert differences(limited, replayed(limited)) == ()


class Cut(ScriptedProvider):
    """A provider whose stream ends without a stop."""

    async def chat(self, request):
        """Stream half of an answer."""
        async for part in super().chat(request):
            if not isinstance(part, StopPart):
                yield part


def test_a_stream_that_was_cut_is_recorded_and_its_call_is_missing_a_result():
    trace, _ = asyncio.run(traced(agent_of(), "hi", provider=Cut(["Hm. ", SUM])))
    assert (trace.outcome, trace.turns[0].stop, trace.calls[0].outcome) == ("failed", "", "missing")
    assert trace.error
    again = replayed(trace)
    assert (again.outcome, again.calls[0].outcome) == ("failed", "missing")


def test_a_provider_that_fails_in_the_middle_leaves_what_was_done():
    trace = recorded([SUM], ProviderError("the service is down"))
    assert (trace.outcome, trace.error, trace.calls[0].result) == ("failed", "the service is down", "3")
    assert read_traces(trace.to_gram()) == (trace,)
    assert replayed(trace).error == "the service is down"


def test_a_run_that_cannot_begin_raises_instead_of_being_recorded():
    with pytest.raises(ModelUnavailableError):
        asyncio.run(traced(Agent("a", "Help.", "Nonsense/x"), "hi"))
    with pytest.raises(ModelUnavailableError):
        recorded(ModelUnavailableError("no such model"))


def test_a_replay_that_leaves_the_recorded_run_says_so():
    trace = recorded([SUM], "It is 3.")
    shorter = Trace(trace.agent, trace.message, turns=trace.turns[:1])
    provider = ReplayProvider(shorter)
    work = traced(Agent.from_specification(trace.agent), "hi", recorded_tools(shorter), provider=provider)
    again = asyncio.run(work)[0]
    assert "the trace has no further answer for adder" in again.error
    other = TracedCall("1", "add", '{"a": 5, "b": 5}')
    strange = Trace(
        trace.agent, "hi", turns=(TracedTurn("adder", "", "calls", calls=(other,)), trace.turns[1])
    )
    tools = recorded_tools(trace)
    assert "the trace has no such call" in replayed(strange, tools).calls[0].result


@pytest.mark.contract("agents.compare.diff")
def test_differences_align_calls_as_lines_of_a_text():
    def of(*calls, answer="x"):
        made = tuple(TracedCall("1", tool, arguments, "done", result) for tool, arguments, result in calls)
        return Trace(agent_of().specification, "hi", answer, turns=(TracedTurn("adder", calls=made),))

    one = of(("a", "{}", "1"), ("b", '{"x": 1}', "2"), ("c", "{}", "3"))
    same = of(("a", " { } ", "1"), ("b", '{"x":1}', "2"), ("c", "{}", "3"))
    assert differences(one, same) == ()
    without = of(("a", "{}", "1"), ("c", "{}", "4"), answer="y")
    found = [(each.kind, each.place, each.before, each.after) for each in differences(one, without)]
    assert found == [
        ("call", "call 2", 'b {"x": 1}', ""),
        ("result", "result of call 3, c", "3", "4"),
        ("answer", "answer", "x", "y"),
    ]
    changed = of(("a", "{}", "1"), ("b", '{"x": 2}', "2"), ("c", "{}", "3"))
    assert [(each.kind, each.after) for each in differences(one, changed)] == [("call", 'b {"x": 2}')]


def test_a_stream_passes_a_tracer_without_being_held_back():
    """The tracer yields each part before it asks for the next one."""
    from gramercy.agents.tracing import Tracer

    seen = []

    class Slow(ScriptedProvider):
        async def chat(self, request):
            del request
            yield TextPart("one")
            seen.append("asked for more")
            yield StopPart("end")

    async def first():
        tracer = Tracer(agent_of().specification, "hi")
        stream = tracer.provider(Slow()).chat(_request())
        return await anext(stream)

    assert asyncio.run(first()) == TextPart("one")
    assert seen == []


def _request():
    from gramercy.providers.base import Message, Request

    return Request("x", (Message("user", "hi"),), "Add numbers with the tool.")


def test_calls_of_one_name_and_id_find_their_own_results():
    """Some servers number calls anew in every answer."""
    same = ModelCall("call_0", "add", '{"a": 1, "b": 2}')
    numbers = iter(range(9))
    trace = recorded([same], [same], "done", agent=agent_of(lambda _: str(next(numbers))))
    assert [call.result for call in trace.calls] == ["0", "1"]
    assert differences(trace, replayed(trace)) == ()


@pytest.mark.contract("agents.compare.replay")
def test_nested_agents_are_recorded_and_each_gets_its_own_answers_again():
    """Two runs of one nested agent may take turns in any order."""
    inner = Agent(
        "inner", "Shout.", "x/inner", [define_tool("loud", "Be loud.", [], handler=lambda _: "LOUD")]
    )
    outer = Agent("outer", "Ask inner.", "x/outer", agents=[inner])
    models = {
        "outer": ScriptedProvider(
            [{"name": "inner", "arguments": {"message": word}} for word in ("one", "two")], "both"
        ),
        "inner": ScriptedProvider(*[_shouting] * 4),
    }
    work = traced(outer, "go", providers=lambda model: models[model.id])
    trace = asyncio.run(work)[0]
    asked = sorted((turn.agent, turn.message) for turn in trace.turns)
    assert asked == [("inner", "one")] * 2 + [("inner", "two")] * 2 + [("outer", "")] * 2
    assert [call.result for call in trace.calls if call.tool == "inner"] == ["said one", "said two"]
    assert read_traces(trace.to_gram()) == (trace,)
    again = replayed(trace)
    assert [call.result for call in again.calls if call.tool == "inner"] == ["said one", "said two"]
    assert again.answer == "both"


def _shouting(request):
    if request.messages[-1].role == "tool":
        return f"said {request.messages[0].text}"
    return {"name": "loud"}


def test_a_call_without_its_optional_arguments_gets_what_was_recorded():
    """The guard fills defaults in and makes 2.0 of an integer 2: the trace has what the model wrote."""
    parameters: list[dict[str, object]] = [{"name": "a", "type": "integer"}]
    parameters.append({"name": "b", "type": "integer", "default": 10})
    tool = define_tool("add", "Add two numbers.", parameters, required=["a"], handler=add)
    agent = Agent("adder", "Add numbers with the tool.", "OpenAI/gpt-4o-mini", [tool])
    calls = [{"name": "add", "arguments": text} for text in ('{"a": 2.0}', '{"b": 1, "a": 2}', "{}")]
    trace = recorded(calls, "Done.", agent=agent)
    assert [call.outcome for call in trace.calls] == ["done", "done", "failed"]
    assert differences(trace, replayed(trace)) == ()


def test_a_result_that_was_cut_is_not_cut_again():
    trace = recorded([SUM], "Much.", agent=agent_of(lambda _: "x" * 500_000))
    assert "output cut" in trace.calls[0].result
    assert differences(trace, replayed(trace)) == ()


def test_long_results_are_compared_by_lines_soon_and_in_few_words():
    """Two results without a line in common took minutes, and all of their lines were shown."""
    one, other = ("\n".join(f"{word} {n * 7919 % 1499}" for n in range(1_500)) for word in ("sun", "rain"))
    began = perf_counter()
    told = list(line_differences(one, other))
    assert perf_counter() - began < 10
    assert (len(told), told[-1]) == (MOST_LINES + 1, "  … and 2,960 more lines")
    assert next(iter(line_differences("x" * 9_000, ""))).endswith("x…")


def test_differing_lines_have_some_equal_ones_around_them():
    before = [str(number) for number in range(5_000)]
    after = [*before[:4_000], "new", *before[4_001:]]
    told = list(line_differences("\n".join(before), "\n".join(after)))
    assert told == ["  …", "  3997", "  3998", "  3999", "- 4000", "+ new", "  4001", "  4002", "  4003"]
    assert list(line_differences("a\nb", "a\nc")) == ["  a", "- b", "+ c"]
    assert list(line_differences("a\r\n", "a\n")) == ["  (the lines are the same, and end otherwise)"]


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
@settings(max_examples=100, deadline=None)
def test_marked_lines_are_what_two_texts_do_not_share(one, other):
    told = list(line_differences("\n".join(one), "\n".join(other), most=10_000))
    kept = [line[2:] for line in told if line != "  …" and line[0] == " " and line[2] != "("]
    assert sum(line[0] == "-" for line in told) - sum(line[0] == "+" for line in told) == len(one) - len(
        other
    )
    assert len(kept) <= min(len(one), len(other))


def test_an_agent_is_known_by_its_whole_instruction():
    """What a chat adds to an instruction made the outer agent look like one whose words it repeats."""
    inner = Agent("inner", "Be brief.", "x/y", description="Is brief")
    outer = Agent("outer", "Keep notes. Be brief.", "x/y", agents=[inner])
    names = AgentNames(outer.specification)
    asked = {
        "Keep notes. Be brief.\n\nYou are kind.": "outer",
        "Be brief.\n\nYou are kind.": "inner",
        "Be brief.": "inner",
        "Something else": "outer",
    }
    assert {text: names.of(Request("y", (), text)) for text in asked} == asked
