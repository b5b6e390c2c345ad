"""What a handler can tell while it runs, and how it is stopped."""

import asyncio
import threading

import pytest

from gramercy import define_tool, tool
from gramercy.tools.context import current_call

MODERN = "2026-07-28"
KEY = "io.modelcontextprotocol/"


@tool
async def count() -> str:
    """Report three times, and once backwards."""
    for step in (1, 2, 2, 1, 3):
        current_call().report(step, 3, f"step {step}")
        await asyncio.sleep(0)
    return "counted"


@tool
def count_on_a_thread() -> str:
    """Report from a worker thread."""
    assert threading.current_thread() is not threading.main_thread()
    for step in (1, 2, 3):
        current_call().report(step)
    return "counted"


@tool(inline=True)
def count_inline() -> str:
    """Report without ever waiting."""
    for step in (1, 2, 3):
        current_call().report(step)
    return "counted"


@pytest.mark.parametrize("name", ["count", "count_on_a_thread", "count_inline"])
def test_progress_reaches_a_client_that_asked_for_it_and_never_goes_back(serve, desk, version, name):
    """MCP specification, Progress."""

    async def main():
        client = desk(serve(count, count_on_a_thread, count_inline), version)
        await client.call(name, _meta={"progressToken": "t"})
        return client.of("notifications/progress")

    found = asyncio.run(main())
    assert [(params["progressToken"], params["progress"]) for params in found] == [
        ("t", 1),
        ("t", 2),
        ("t", 3),
    ]


def test_nobody_is_bothered_with_progress_that_was_not_asked_for(serve, desk, version):
    """MCP specification, Progress."""

    async def main():
        client = desk(serve(count), version)
        await client.call("count")
        return client.sent

    assert asyncio.run(main()) == []


@tool(inline=True)
def talk() -> str:
    """Log at four levels."""
    for level in ("debug", "info", "warning", "error"):
        current_call().log(level, {"at": level}, logger="talker")
    return "talked"


@pytest.mark.parametrize("version", ["2025-11-25", "2024-11-05"])
def test_log_lines_respect_the_level_of_the_session(serve, desk, version):
    """MCP specification 2025-11-25, Logging."""
    client = desk(serve(talk), version)
    client.now("tools/call", {"name": "talk"})
    assert len(client.of("notifications/message")) == 4
    client.sent.clear()
    assert client.now("logging/setLevel", {"level": "warning"}) == {}
    client.now("tools/call", {"name": "talk"})
    assert [params["level"] for params in client.of("notifications/message")] == ["warning", "error"]
    assert client.now("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602


def test_modern_clients_get_log_lines_only_when_they_ask(serve, desk):
    """MCP specification 2026-07-28, Logging: the client opts in per request."""
    client = desk(serve(talk), MODERN)
    client.now("tools/call", {"name": "talk"})
    assert client.sent == []
    client.now("tools/call", {"name": "talk", "_meta": {f"{KEY}logLevel": "error"}})
    assert [params["level"] for params in client.of("notifications/message")] == ["error"]


def test_a_handler_outside_of_the_server_talks_to_nobody():
    """gramercy.tools.context: a no-op outside of a conversation."""
    call = current_call()
    call.report(1)
    call.log("info", "x")
    call.close_stream()
    assert (call.is_cancelled, call.can("sampling"), asyncio.run(call.detach())) == (False, False, False)


class Long:
    """A tool that waits until it is stopped, and tells how that went."""

    def __init__(self):
        self.started, self.stopped = asyncio.Event(), []
        self.tool = tool(name="long", description="Wait.")(self.run)

    async def run(self) -> str:
        """Wait for ever."""
        call = current_call()
        call.on_cancel(lambda: self.stopped.append("told"))
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.append(call.is_cancelled)
        return ""


def test_a_cancelled_request_stops_its_handler_and_gets_no_answer(serve, desk, version):
    """MCP specification, Cancellation."""

    async def main():
        long = Long()
        client = desk(serve(long.tool), version)
        answer = client.begin("tools/call", {"name": "long"}, id="x")
        await long.started.wait()
        client.tell("notifications/cancelled", {"requestId": "x", "reason": "enough"})
        assert await answer is None
        await asyncio.sleep(0)
        client.tell("notifications/cancelled", {"requestId": "x"})
        return long.stopped

    assert asyncio.run(main()) == ["told", True]


@pytest.mark.parametrize("how", ["disconnect", "close", "shutdown"])
def test_a_client_that_goes_away_stops_its_handlers(serve, desk, version, how):
    """MCP specification 2026-07-28, Transport-Specific Cancellation; base.py, Receiver.close."""

    async def main():
        long = Long()
        client = desk(serve(long.tool), version)
        answer = client.begin("tools/call", {"name": "long"})
        await long.started.wait()
        if how == "disconnect":
            answer.cancel()
        elif how == "close":
            client.engine.close(client.peer)
        else:
            client.engine.shutdown()
        for _ in range(5):
            await asyncio.sleep(0)
        assert answer.done()
        return long.stopped

    assert asyncio.run(main()) == ["told", True]


def test_a_call_that_is_cancelled_before_it_began_leaves_nothing_behind(serve, desk, version):
    """MCP specification, Cancellation: the notification may come right behind the request."""

    async def main():
        client = desk(serve(Long().tool), version)
        answer = client.begin("tools/call", {"name": "long"}, id=7)
        client.tell("notifications/cancelled", {"requestId": 7})
        assert await answer is None
        assert len(client.engine._clients.all()) == (0 if version == MODERN else 1)

    asyncio.run(main())


def test_an_id_that_is_under_way_cannot_be_used_again(serve, desk, version):
    """MCP specification, Requests: the id must not match one that is unanswered."""

    async def main():
        long = Long()
        client = desk(serve(long.tool), version)
        answer = client.begin("tools/call", {"name": "long"}, id=7)
        again = client.read("tools/call", client.begin("tools/call", {"name": "long"}, id=7))
        answer.cancel()
        await asyncio.sleep(0)
        return again["error"]["code"]

    assert asyncio.run(main()) == -32600


def test_a_handler_may_end_its_request_with_an_error_of_the_protocol(serve, desk, version):
    """gramercy.tools.context, Call.fail."""

    @tool
    async def refuse() -> str:
        """Refuse."""
        current_call().fail("not today", code=-32050, data={"until": "tomorrow"})

    async def main():
        return (await desk(serve(refuse), version).call("refuse"))["error"]

    assert asyncio.run(main()) == {"code": -32050, "message": "not today", "data": {"until": "tomorrow"}}


def test_an_inline_handler_that_returns_something_to_await_is_waited_for(serve, desk, version, text_of):
    """The surprise that the express lane allows for."""

    async def later():
        await asyncio.sleep(0)
        return "later"

    sly = define_tool("sly", "Be sly.", [], handler=lambda _: later(), inline=True)

    async def main():
        return await desk(serve(sly), version).call("sly")

    assert text_of(asyncio.run(main())) == "later"


def test_calls_of_one_client_do_not_wait_for_each_other(serve, desk, version, text_of):
    """mcp.md: one dispatcher, no head-of-line blocking."""

    async def main():
        long = Long()
        client = desk(serve(long.tool, talk), version)
        answer = client.begin("tools/call", {"name": "long"})
        await long.started.wait()
        result = client.now("tools/call", {"name": "talk"})
        answer.cancel()
        await asyncio.sleep(0)
        return result

    assert text_of(asyncio.run(main())) == "talked"


def test_a_flood_of_reports_is_thinned_out_but_its_end_is_told(serve, desk):
    """style.md: never unbounded memory."""

    @tool(inline=True)
    def flood() -> str:
        """Report ten thousand times, and nonsense."""
        for step in range(1, 10_001):
            current_call().report(step, 10_000)
        current_call().report(float("nan"))
        current_call().report(float("inf"))
        return ""

    client = desk(serve(flood), MODERN)
    client.now("tools/call", {"name": "flood", "_meta": {"progressToken": 1}})
    found = client.of("notifications/progress")
    assert 100 <= len(found) < 1_000
    assert found[-1]["progress"] == 10_000


def test_log_lines_that_cannot_be_written_do_not_fail_the_call(serve, desk, text_of):
    """A log line is never worth a failure."""

    @tool(inline=True)
    def mumble() -> str:
        """Log an odd thing at an odd level."""
        current_call().log("loud", object())  # type: ignore[arg-type]
        return "mumbled"

    client = desk(serve(mumble), "2025-11-25")
    assert text_of(client.now("tools/call", {"name": "mumble"})) == "mumbled"
    (line,) = client.of("notifications/message")
    assert (line["level"], line["data"][:8]) == ("info", "<object ")


def test_text_cannot_steer_the_terminal_of_whoever_reads_it(serve, desk, version, text_of):
    """mcp.md, checklist 11: control characters stripped from output."""

    @tool(inline=True)
    def paint() -> str:
        """Return text with control characters."""
        return "a\x1b[31mb\x1b]0;title\x07c\x00\td\r\ne\x0cf\x9bg\x7f"

    assert (
        text_of(desk(serve(paint), version).now("tools/call", {"name": "paint"}))
        == "ab]0;titlec\td\r\ne\x0cfg"
    )


def test_a_plain_handler_is_interrupted_too(serve, desk, version):
    """mcp.md, checklist 9: cancellation that really interrupts."""
    running, ended = threading.Event(), threading.Event()

    @tool
    def spin() -> str:
        """Spin until interrupted."""
        running.set()
        try:
            while True:
                pass
        finally:
            ended.set()

    async def main():
        client = desk(serve(spin), version)
        answer = client.begin("tools/call", {"name": "spin"}, id=1)
        assert await asyncio.to_thread(running.wait, 5)
        client.tell("notifications/cancelled", {"requestId": 1})
        assert await answer is None
        return await asyncio.to_thread(ended.wait, 5)

    assert asyncio.run(main()) is True


def test_nobody_can_be_asked_after_the_end(serve, desk, version):
    """A handler that cleans up talks to nobody."""
    problems: list[str] = []

    @tool
    async def cling() -> str:
        """Ask while being cancelled."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await current_call().ask("why?", {"type": "object", "properties": {}})
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not wait
                problems.append(str(error))
            raise
        return ""

    async def main():
        client = desk(serve(cling), version, {"elicitation": {}})
        answer = client.begin("tools/call", {"name": "cling"}, id=1)
        for _ in range(3):
            await asyncio.sleep(0)
        client.engine.close(client.peer)
        assert await answer is None
        for _ in range(3):
            await asyncio.sleep(0)
        return client.engine._clients.all()

    assert asyncio.run(main()) == []
    assert problems == ["nobody can be asked: the call is cancelled"]
