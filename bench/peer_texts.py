"""What a model reads after a bad call through each peer: the text of the next request, or how the run ends.

Every call is driven through the peer's own loop with a scripted model where it has one. None in place of an
answer means that such a call cannot exist there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import TYPE_CHECKING, Any

from bench.bad_tools import DESCRIPTIONS
from bench.peers import FASTMCP, LANGCHAIN, OPENAI_AGENTS, PYDANTIC_AI
from bench.scoring import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.bad_calls import BadCall
    from bench.peers import Peer

    Ask = Callable[[BadCall], Awaitable[Answer | None]]

# Read by openai-agents when it is imported: without it even a custom error function sees no detail.
os.environ["OPENAI_AGENTS_DONT_LOG_TOOL_DATA"] = "0"


def argument_text(call: BadCall) -> str:
    """Return the arguments as the JSON text that a model would have written."""
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def pydantic_ai_asks() -> dict[str, Ask]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    from bench.peer_tools import FUNCTIONS

    async def ask(call: BadCall) -> Answer:
        seen: list[str] = []

        def model(messages: list[Any], _info: Any) -> ModelResponse:
            if len(messages) == 1:
                return ModelResponse(parts=[ToolCallPart(call.tool, argument_text(call))])
            parts = messages[-1].parts
            seen.extend(p.model_response_str() for p in parts if isinstance(p, ToolReturnPart))
            return ModelResponse(parts=[TextPart("done")])

        await Agent(FunctionModel(model), tools=list(FUNCTIONS.values())).run("go")
        return Answer("\n".join(seen))

    return {"pydantic-ai": ask}


def _scripted_model(call: BadCall, seen: list[str]) -> Any:
    from agents import Model, ModelResponse, Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        async def get_response(self, *_args: Any, **request: Any) -> ModelResponse:
            outputs = [i["output"] for i in request["input"] if isinstance(i, dict) and "output" in i]
            if outputs:
                seen.extend(outputs)
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                said: Any = ResponseOutputMessage(
                    id="1", role="assistant", status="completed", type="message", content=[text]
                )
            else:
                said = ResponseFunctionToolCall(
                    name=call.tool, arguments=argument_text(call), call_id="1", type="function_call"
                )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_more: Any) -> Any:
            raise NotImplementedError

    return Scripted()


def openai_agents_asks() -> dict[str, Ask]:
    from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled

    from bench.peer_tools import FUNCTIONS

    set_tracing_disabled(disabled=True)
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL)
    functions = FUNCTIONS.values()
    plain = [function_tool(f, strict_mode=False) for f in functions]
    told = [
        function_tool(f, strict_mode=False, failure_error_function=lambda _context, error: str(error))
        for f in functions
    ]

    def asker(tools: list[Any], config: RunConfig) -> Ask:
        async def ask(call: BadCall) -> Answer:
            seen: list[str] = []
            agent = Agent("bench", model=_scripted_model(call, seen), tools=tools)
            await Runner.run(agent, "go", run_config=config)
            return Answer("\n".join(seen))

        return ask

    detailed = RunConfig(tool_not_found_behavior="return_error_to_model")
    return {
        "openai-agents": asker(list(plain), RunConfig()),
        "openai-agents, errors shown to the model": asker(list(told), detailed),
    }


def langchain_asks() -> dict[str, Ask]:
    from langchain_core.tools import StructuredTool

    from bench.peer_tools import FUNCTIONS

    def asker(handler: Any) -> Ask:
        tools = {
            name: StructuredTool.from_function(
                coroutine=function,
                name=name,
                description=DESCRIPTIONS[name],
                handle_validation_error=handler,
                handle_tool_error=True,
            )
            for name, function in FUNCTIONS.items()
        }

        async def ask(call: BadCall) -> Answer | None:
            if call.tool not in tools:
                return None  # looking a tool up is left to the caller
            if isinstance(arguments := _langchain_arguments(call), Answer):
                return arguments
            request = {"type": "tool_call", "id": "1", "name": call.tool, "args": arguments}
            return Answer((await tools[call.tool].ainvoke(request)).content)

        return ask

    return {
        "langchain-core": asker(handler=True),
        "langchain-core, errors shown to the model": asker(handler=str),
    }


def _langchain_arguments(call: BadCall) -> Any:
    """Parse the arguments as its chat models do; their complaint is what such a call carries as its error."""
    from langchain_core.exceptions import OutputParserException
    from langchain_core.output_parsers.openai_tools import parse_tool_call

    function = {"name": call.tool, "arguments": argument_text(call)}
    try:
        parsed = parse_tool_call({"id": "1", "type": "function", "function": function}, strict=False)
    except OutputParserException as error:
        return Answer(str(error))
    return parsed["args"] if parsed else None


def fastmcp_asks() -> dict[str, Ask]:
    from fastmcp import Client, FastMCP

    from bench.peer_tools import FUNCTIONS

    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)

    def asker(server: Any) -> Ask:
        for function in FUNCTIONS.values():
            server.tool(function)

        async def ask(call: BadCall) -> Answer | None:
            if call.is_malformed:
                return None  # the protocol's own envelope would be broken; no tool sees it
            async with Client(server) as client:
                result = await client.call_tool(call.tool, call.arguments, raise_on_error=False)
            return Answer("\n".join(part.text for part in result.content if part.type == "text"))

        return ask

    return {
        "fastmcp": asker(FastMCP("bench")),
        "fastmcp, strict_input_validation": asker(FastMCP("bench", strict_input_validation=True)),
    }


ASKS: dict[Peer, Callable[[], dict[str, Ask]]] = {
    OPENAI_AGENTS: openai_agents_asks,
    PYDANTIC_AI: pydantic_ai_asks,
    LANGCHAIN: langchain_asks,
    FASTMCP: fastmcp_asks,
}


def answer_of(loop: asyncio.AbstractEventLoop, ask: Ask, call: BadCall) -> Answer | None:
    """Make one call; an exception is an aborted run, whatever its kind."""
    try:
        return loop.run_until_complete(asyncio.wait_for(ask(call), timeout=30))
    except Exception as error:  # noqa: BLE001 - what escapes here would have ended the peer's run
        return Answer(str(error), aborted=True)
