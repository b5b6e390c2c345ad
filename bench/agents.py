"""What an agent's loop adds to the model and the tool, and how soon a piece of text is passed on."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.measure import Contender, repeat_await, take_turns
from bench.peers import OPENAI_AGENTS, PYDANTIC_AI, try_peers
from bench.report import Section, Target, absent_rows, at_least, at_most, show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.measure import Effort, Reading

    Loop = asyncio.AbstractEventLoop

# Tool turns of one run; a final text ends it.
TURNS = 20
ARGUMENTS = '{"name": "Ada"}'
GREETING = "Hello, Ada!"
OURS = "gramercy Agent"
STREAM = "gramercy Agent.stream"
PLAIN = "gramercy Agent, plain function on a thread"
KEPT = "gramercy Agent, journal and session in a file"
ONCE = "gramercy Agent, one tool turn"
TESTED = "pydantic-ai Agent, its TestModel, one tool turn"
NOTES = (
    (
        "CPU time of a tool turn, median of interleaved rounds: question, answer with a call as JSON text, "
        "guard or validation, tool, result. The models answer from a script and cost next to nothing."
    ),
    (
        f"One run has {TURNS} tool turns; its set-up, the binding of the tools and the final text are spread "
        "over them. The rows with one tool turn carry all of it, and two questions."
    ),
    (
        "gramercy: limits, estimate of tokens, prices, policy, deadline of 30 s for the tool, journal in "
        "memory, the conversation; the tool is asynchronous, as those of the peers. In the row with the file "
        "every message is one transaction, and a safe call one more."
    ),
    (
        "Peers: their own Agent or Runner with a model that is a function; tracing is off. What they count, "
        "check and keep besides differs from ours."
    ),
)


def measure(effort: Effort) -> Section:
    """Run everybody in turns."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        ours = our_loops(loop, Path(directory))
        peers = {PYDANTIC_AI: partial(pydantic_ai_loops, loop), OPENAI_AGENTS: partial(openai_loops, loop)}
        made, absent = try_peers(peers)
        readings = take_turns([*ours, *(each for loops in made for each in loops)], effort)
        wall = loop.run_until_complete(_wall(5 if effort.quick else 51))
        passed = loop.run_until_complete(_passed_on(20 if effort.quick else 500))
    loop.close()
    rows = [_row(reading, readings) for reading in readings.values()]
    rows.append(("gramercy, on the clock", show(wall * 1e3), ""))
    rows.append(("gramercy, a piece of text from the model to the listener", show(passed * 1e3), ""))
    return Section(
        name="agents",
        title="The loop of an agent",
        intro="A scripted model calls a tool with one argument that returns a short string.",
        columns=("loop", "ms a tool turn", "x gramercy"),
        rows=(*rows, *absent_rows(absent, 3)),
        targets=_targets(readings, wall, passed),
        notes=(*NOTES, *(f"{name}: {reason}" for name, reason in absent.items())),
    )


def _row(reading: Reading, readings: dict[str, Reading]) -> tuple[str, ...]:
    single = reading.name in {ONCE, TESTED}
    ratio = reading.ratio_to(readings[ONCE if single else OURS])
    return reading.name, show(reading.median * 1e3 / (1 if single else TURNS)), show(ratio)


def _targets(readings: dict[str, Reading], wall: float, passed: float) -> tuple[Target, ...]:
    # A person does not feel a millisecond beside the second that a model takes.
    found = [at_most("a tool turn of gramercy on the clock", wall * 1e3, 1, " ms")]
    theirs = [name for name in readings if not name.startswith("gramercy")]
    for name in theirs:
        ours = readings[ONCE if name == TESTED else OURS]
        found.append(at_least(f"gramercy against {name}", readings[name].ratio_to(ours), 5, "x"))
    if not theirs:
        found.append(Target("gramercy against its peers: at least 5x", "no peer installed", met=None))
    found.append(at_most("a piece of text from the model to the listener", passed * 1e3, 1, " ms"))
    return tuple(found)


def our_loops(loop: Loop, directory: Path) -> list[Contender]:
    """Our own contenders."""
    from gramercy import Executor, Registry
    from gramercy.agents.talks import SessionTalk
    from gramercy.journal.sessions import sessions_of
    from gramercy.journal.sqlite import SqliteJournal

    agent = _agent()
    journal = SqliteJournal(directory / "journal.db")
    executor, sessions = Executor(Registry(), journal=journal), sessions_of(journal)

    async def plain(turns: int) -> str:
        return (await agent.arun("hi", **_options(turns))).content  # type: ignore[no-any-return]

    threaded = _agent(is_plain=True)

    async def on_a_thread(turns: int) -> str:
        return (await threaded.arun("hi", **_options(turns))).content  # type: ignore[no-any-return]

    async def streamed(turns: int) -> str:
        last: Any = None
        async for event in agent.stream("hi", **_options(turns)):
            last = event
        return last.response.content  # type: ignore[no-any-return]

    async def kept(turns: int) -> str:
        talk = SessionTalk.begin(sessions, agent=agent.name)
        return (await agent.arun("hi", talk=talk, executor=executor, **_options(turns))).content  # type: ignore[no-any-return]

    return [
        _contender(loop, OURS, plain),
        _contender(loop, STREAM, streamed),
        _contender(loop, PLAIN, on_a_thread),
        _contender(loop, KEPT, kept),
        _contender(loop, ONCE, plain, 1),
    ]


def _contender(loop: Loop, name: str, run: Callable[[int], Awaitable[str]], turns: int = TURNS) -> Contender:
    assert loop.run_until_complete(run(2)) == "done", name  # type: ignore[arg-type]
    return Contender(name, repeat_await(loop, lambda: run(turns)))


def _agent(*, is_plain: bool = False) -> Any:
    from gramercy import Agent, tool

    async def say_hello(name: str) -> str:
        """Greets a person."""
        return f"Hello, {name}!"

    def say_hello_plainly(name: str) -> str:
        """Greets a person."""
        return f"Hello, {name}!"

    greet = tool(say_hello_plainly, name="say_hello") if is_plain else tool(say_hello)
    return Agent("greeter", "Greet.", "Scripted/bench", [greet])


def _options(turns: int) -> dict[str, Any]:
    from gramercy import Limits
    from gramercy.providers.base import ModelCall
    from gramercy.providers.scripted import ScriptedProvider

    calls = [ModelCall(f"c{number}", "say_hello", ARGUMENTS) for number in range(turns)]
    return {"provider": ScriptedProvider(*calls, "done"), "limits": Limits(turns=turns + 1, calls=turns)}


async def _wall(rounds: int) -> float:
    """Return the seconds of a tool turn on the clock, the median of several runs."""
    agent, taken = _agent(), []
    for _ in range(rounds):
        options = _options(TURNS)
        began = perf_counter()
        response = await agent.arun("hi", **options)
        taken.append((perf_counter() - began) / TURNS)
        assert [made.result.content for made in response.calls] == [GREETING] * TURNS
    return statistics.median(taken)


async def _passed_on(pieces: int) -> float:
    """Return the seconds from a piece of text in the provider to the same piece at the listener."""
    from gramercy import Agent
    from gramercy.providers.base import StopPart, TextPart
    from gramercy.providers.scripted import ScriptedProvider

    given: list[float] = []

    class Pieces(ScriptedProvider):
        async def chat(self, request: Any) -> Any:
            del request
            for _ in range(pieces):
                given.append(perf_counter())
                yield TextPart("word ")
                await asyncio.sleep(0)
            yield StopPart("end")

    taken = []
    async for event in Agent("talker", "Talk.", "Scripted/bench").stream("hi", provider=Pieces()):
        if isinstance(event, TextPart):
            taken.append(perf_counter() - given[len(taken)])
    return statistics.median(taken)


def pydantic_ai_loops(loop: Loop) -> list[Contender]:
    """Run pydantic-ai's Agent with a model that is a function, and with its own test model."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import UsageLimits

    wanted = [0]

    def answer(messages: list[Any], info: Any) -> Any:
        del info
        done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        if done < wanted[0]:
            return ModelResponse(parts=[ToolCallPart("say_hello", ARGUMENTS, tool_call_id=f"c{done}")])
        return ModelResponse(parts=[TextPart("done")])

    async def say_hello(name: str) -> str:
        """Greet a person."""
        return f"Hello, {name}!"

    scripted = Agent(FunctionModel(answer), tools=[say_hello])
    tested = Agent(TestModel(custom_output_text="done"), tools=[say_hello])

    async def run(turns: int) -> str:
        wanted[0] = turns
        return (await scripted.run("hi", usage_limits=UsageLimits(request_limit=None))).output

    async def run_tested(turns: int) -> str:
        del turns
        return (await tested.run("hi")).output

    return [
        _contender(loop, "pydantic-ai Agent, FunctionModel", run),
        _contender(loop, TESTED, run_tested, 1),
    ]


def openai_loops(loop: Loop) -> list[Contender]:
    """Run the Runner of openai-agents with a model of our own."""
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        turns = 0

        async def get_response(self, *_: Any, **asked: Any) -> ModelResponse:
            given = asked["input"]
            done = 0
            if not isinstance(given, str):
                done = sum(each.get("type") == "function_call_output" for each in given)
            made: Any
            if done < self.turns:
                made = ResponseFunctionToolCall(
                    name="say_hello", arguments=ARGUMENTS, call_id=f"c{done}", type="function_call"
                )
            else:
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                made = ResponseOutputMessage(
                    id="m", role="assistant", status="completed", type="message", content=[text]
                )
            return ModelResponse(output=[made], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    @function_tool
    async def say_hello(name: str) -> str:
        """Greet a person."""
        return f"Hello, {name}!"

    model = Scripted()
    agent = Agent(name="greeter", model=model, tools=[say_hello])
    config = RunConfig(tracing_disabled=True)

    async def run(turns: int) -> str:
        model.turns = turns
        found = await Runner.run(agent, "hi", max_turns=turns + 5, run_config=config)
        return str(found.final_output)

    return [_contender(loop, "openai-agents Runner", run)]
