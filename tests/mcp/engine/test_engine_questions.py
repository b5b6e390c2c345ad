"""Handlers that ask the person, the model or for the roots of the client, legacy and modern."""

import asyncio

import pytest

from gramercy import tool
from gramercy.mcp.catalogue import Catalog
from gramercy.mcp.parked import MOST_PARKED_OF_ONE
from gramercy.tools.context import current_call

MODERN, LEGACY = "2026-07-28", "2025-11-25"
EVERYTHING: dict[str, object] = {"elicitation": {}, "sampling": {}, "roots": {}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ALICE = {"action": "accept", "content": {"name": "Alice"}}
PARIS = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
PROMPT = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 9}
ROOTS = {"roots": [{"uri": "file:///a"}]}


@tool
async def greet() -> str:
    """Ask for a name."""
    answer = await current_call().ask("Who are you?", NAME, key="who")
    return f"Hello, {answer['content']['name']}!" if answer["action"] == "accept" else answer["action"]


@tool
async def interview() -> str:
    """Ask everything at once, then once more."""
    call = current_call()
    person, model, roots = await asyncio.gather(
        call.ask("Who?", NAME, key="a"), call.sample(PROMPT, key="b"), call.roots(key="c")
    )
    again = await call.ask("Sure?", NAME)
    return f"{person['content']} {model['content']['text']} {roots[0]['uri']} {again['content']}"


@tool
async def need_sampling() -> str:
    """Ask a model."""
    return str(await current_call().sample(PROMPT))


TOOLS = (greet, interview, need_sampling)


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
def test_a_legacy_client_is_asked_and_waited_for(serve, desk, version, text_of):
    """MCP specification 2025-11-25, Elicitation, Sampling, Roots."""

    async def main():
        client = desk(serve(*TOOLS), version, EVERYTHING)
        client.answers = {
            "elicitation/create": ALICE,
            "sampling/createMessage": PARIS,
            "roots/list": ROOTS,
        }
        return text_of(await client.call("interview")), [message["method"] for message in client.sent]

    said, asked = asyncio.run(main())
    assert said == "{'name': 'Alice'} Paris file:///a {'name': 'Alice'}"
    assert asked == ["elicitation/create", "sampling/createMessage", "roots/list", "elicitation/create"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
        ({"action": "maybe"}, "Tool error: the client answered the question with action 'maybe'"),
        ({"action": "accept", "content": {"name": 5}}, "Tool error: the answer does not fit the question."),
        ({"action": "accept"}, "Tool error: the answer does not fit the question."),
    ],
)
def test_odd_answers_are_told_to_the_handler(serve, desk, text_of, answer, said):
    """MCP specification 2025-11-25, Elicitation, Response Actions."""

    async def main():
        client = desk(serve(greet), LEGACY, EVERYTHING)
        client.answers = {"elicitation/create": answer}
        return text_of(await client.call("greet"))

    assert asyncio.run(main()).startswith(said)


def test_a_client_that_refuses_or_never_answers_is_not_waited_for_without_end(serve, desk, text_of):
    """style.md: every wait bounded."""

    async def main():
        client = desk(serve(greet, patience=0.05), LEGACY, EVERYTHING)
        silent = text_of(await client.call("greet"))
        answer = client.begin("tools/call", {"name": "greet"})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        refusal = '{"jsonrpc":"2.0","id":"%s","error":{"code":-1,"message":"busy"}}' % client.sent[-1]["id"]  # noqa: UP031 - braces
        assert client.raw(refusal) is None
        return silent, text_of(client.read("tools/call", await answer)), client.engine._clients.all()

    silent, refused, clients = asyncio.run(main())
    assert silent == "Tool error: the client did not answer elicitation/create within 0.05 s"
    assert refused == "Tool error: the client refused to answer: busy"
    assert [client.requests for client in clients] == [{}]


def test_a_client_that_leaves_ends_its_questions(serve, desk):
    """base.py, Receiver.close."""

    async def main():
        client = desk(serve(greet), LEGACY, EVERYTHING)
        answer = client.begin("tools/call", {"name": "greet"})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        client.engine.close(client.peer)
        return await asyncio.wait_for(answer, 5)

    assert asyncio.run(main()) is None


def test_a_modern_client_gets_its_questions_as_the_result(serve, desk, text_of):
    """MCP specification 2026-07-28, Multi Round-Trip Requests."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, EVERYTHING)
        first = await client.call("interview")
        assert {key: asked["method"] for key, asked in first["inputRequests"].items()} == {
            "a": "elicitation/create",
            "b": "sampling/createMessage",
            "c": "roots/list",
        }
        answers = {"a": ALICE, "b": PARIS, "c": ROOTS, "unasked": {}}
        second = await client.call("interview", inputResponses=answers, requestState=first["requestState"])
        (key,) = second["inputRequests"]
        last = await client.call(
            "interview", inputResponses={key: ALICE}, requestState=second["requestState"]
        )
        assert first["requestState"] != second["requestState"]
        assert (len(client.engine._conversations.parked), client.sent) == (0, [])
        return text_of(last)

    assert asyncio.run(main()) == "{'name': 'Alice'} Paris file:///a {'name': 'Alice'}"


def test_what_was_not_answered_is_asked_again(serve, desk, text_of):
    """MCP specification 2026-07-28, Multi Round-Trip Requests, Error Handling."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, EVERYTHING)
        first = await client.call("interview")
        second = await client.call(
            "interview", inputResponses={"a": ALICE}, requestState=first["requestState"]
        )
        assert set(second["inputRequests"]) == {"b", "c"}
        third = await client.call("greet", inputResponses={"wrong": ALICE})
        assert set(third["inputRequests"]) == {"who"}
        return text_of(await client.call("greet", inputResponses={"who": ALICE, "extra": {}}))

    assert asyncio.run(main()) == "Hello, Alice!"


@pytest.mark.parametrize("answers", [None, 5, [], {"who": 12345}, {"who": None}])
def test_answers_of_the_wrong_shape_are_invalid_params(serve, desk, answers):
    """MCP specification 2026-07-28, Multi Round-Trip Requests, Error Handling."""

    async def main():
        return await desk(serve(greet), MODERN, EVERYTHING).call("greet", inputResponses=answers)

    assert asyncio.run(main())["error"]["code"] == -32602


def test_the_state_of_a_question_is_signed_single_use_and_bound(serve, desk, text_of):
    """mcp.md, checklist 4; MCP specification 2026-07-28, Server Requirements."""

    @tool
    async def hail(title: str) -> str:
        """Ask for a name."""
        answer = await current_call().ask("Who?", NAME, key="who")
        return f"{title} {answer['content']['name']}"

    async def main():
        engine = serve(hail, greet)
        client, other = desk(engine, MODERN, EVERYTHING), desk(engine, MODERN, EVERYTHING, principal="eve")
        asked = await client.call("hail", {"title": "Dr"})
        state = {"inputResponses": {"who": ALICE}, "requestState": asked["requestState"]}
        refused = [
            await client.call(
                "hail", {"title": "Dr"}, **{**state, "requestState": state["requestState"] + "x"}
            ),
            await client.call("hail", {"title": "Dr"}, **{**state, "requestState": "x"}),
            await client.call("hail", {"title": "Dr"}, **{**state, "requestState": 5}),
            await client.call("hail", {"title": "Mr"}, **state),
            await client.call("greet", {}, **state),
            await other.call("hail", {"title": "Dr"}, **state),
        ]
        done = text_of(await client.call("hail", {"title": "Dr"}, **state))
        refused.append(await client.call("hail", {"title": "Dr"}, **state))
        return done, [found["error"]["code"] for found in refused], refused[-1]["error"]["message"]

    done, codes, last = asyncio.run(main())
    assert (done, codes) == ("Dr Alice", [-32602] * 7)
    assert "send the request without it" in last


def test_a_parked_call_survives_its_connection_but_not_for_ever(serve, desk, text_of):
    """mcp.md, checklist 7: protocol sessions are never the key."""

    async def main():
        client = desk(serve(greet, patience=0.2), MODERN, EVERYTHING)
        asked = await client.call("greet")
        client.engine.close(client.peer)
        again = desk(client.engine, MODERN, EVERYTHING)
        state = {"inputResponses": {"who": ALICE}}
        done = text_of(await again.call("greet", **state, requestState=asked["requestState"]))
        forgotten = await client.call("greet")
        parking = client.engine._conversations.parked
        async with asyncio.timeout(5):
            while len(parking):  # noqa: ASYNC110 - nobody is told when a question expires
                await asyncio.sleep(0.02)
        late = await client.call("greet", **state, requestState=forgotten["requestState"])
        # A conversation that is over may have a step left, as on Python 3.11.2.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=60)
        return done, late["error"]["code"], asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == ("Hello, Alice!", -32602, set())


def test_a_handler_that_stopped_waiting_gives_its_result_to_the_retry(serve, desk, text_of):
    """A question with a deadline of the handler's own."""

    @tool
    async def impatient() -> str:
        """Wait a moment for a name."""
        try:
            await asyncio.wait_for(current_call().ask("Who?", NAME, key="who"), 0.01)
        except TimeoutError:
            return "too late"
        return "in time"

    async def main():
        client = desk(serve(impatient), MODERN, EVERYTHING)
        asked = await client.call("impatient")
        await asyncio.sleep(0.05)
        answers = {"inputResponses": {"who": ALICE}, "requestState": asked["requestState"]}
        return text_of(await client.call("impatient", **answers))

    assert asyncio.run(main()) == "too late"


def test_the_number_of_parked_calls_is_bounded(serve, desk, text_of):
    """style.md: never unbounded memory."""

    async def main():
        client = desk(serve(greet), MODERN, EVERYTHING)
        for _ in range(MOST_PARKED_OF_ONE):
            assert (await client.call("greet"))["resultType"] == "input_required"
        refused = await client.call("greet")
        other = desk(client.engine, MODERN, EVERYTHING, principal="somebody else")
        assert (await other.call("greet"))["resultType"] == "input_required"
        client.engine.shutdown()
        await asyncio.sleep(0)
        return text_of(refused)

    assert "try again later" in asyncio.run(main())


def test_a_client_that_cannot_be_asked_is_told_which_capability_is_missing(serve, desk, version, text_of):
    """MCP specification 2026-07-28, MissingRequiredClientCapabilityError."""

    async def main():
        return await desk(serve(*TOOLS), version).call("need_sampling")

    result = asyncio.run(main())
    if version == MODERN:
        assert (result["error"]["code"], result["error"]["data"]) == (
            -32021,
            {"requiredCapabilities": {"sampling": {}}},
        )
    else:
        assert "declares the capability 'sampling'" in text_of(result)


@pytest.mark.parametrize(("modes", "can"), [({}, True), ({"form": {}}, True), ({"url": {}}, False)])
def test_a_client_that_only_opens_addresses_is_not_shown_forms(serve, desk, text_of, modes, can):
    """MCP specification 2025-11-25, Elicitation, Capabilities."""

    @tool(inline=True)
    def look() -> str:
        """Look at what the client can."""
        return str(current_call().can("elicitation"))

    client = desk(serve(look), MODERN, {"elicitation": modes})
    assert text_of(client.now("tools/call", {"name": "look"})) == str(can)


def test_prompts_may_ask_too(serve, desk):
    """MCP specification 2026-07-28: prompts/get and resources/read may need input."""
    catalog = Catalog()

    async def get(_arguments):
        answer = await current_call().ask("Which?", NAME, key="who")
        return f"Talk to {answer['content']['name']}"

    catalog.prompt("talk", get)
    catalog.resource("test://who", "who", lambda: get({}))

    async def main():
        client = desk(serve(greet, catalog=catalog), MODERN, EVERYTHING)
        found = []
        for method, params in (("prompts/get", {"name": "talk"}), ("resources/read", {"uri": "test://who"})):
            asked = await client.ask(method, params)
            answers = {"inputResponses": {"who": ALICE}, "requestState": asked["requestState"]}
            found.append(await client.ask(method, {**params, **answers}))
        return found

    prompt, resource = asyncio.run(main())
    assert prompt["messages"][0]["content"]["text"] == "Talk to Alice"
    assert resource["contents"][0]["text"] == "Talk to Alice"


def test_questions_with_one_key_at_the_same_time_are_refused(serve, desk, text_of):
    """The keys of inputRequests are names."""

    @tool
    async def twice() -> str:
        """Ask twice under one key."""
        call = current_call()
        await asyncio.gather(call.ask("a", NAME, key="k"), call.ask("b", NAME, key="k"))
        return ""

    async def main():
        client = desk(serve(twice), MODERN, EVERYTHING)
        asked = await client.call("twice")
        again = await client.call("twice", inputResponses={}, requestState=asked["requestState"])
        await asyncio.sleep(0)
        return text_of(again), asyncio.all_tasks() - {asyncio.current_task()}

    said, left = asyncio.run(main())
    assert "give another key" in said
    assert left == set()
