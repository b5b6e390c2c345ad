"""Clients that come back: servers killed with SIGKILL and started again, people who decide elsewhere.

The servers are real, on pipes and over HTTP; the person who decides elsewhere has opened the journal in this
process. What a tool does is counted in a file.
"""

from __future__ import annotations

import asyncio
from itertools import count
from textwrap import dedent

import pytest

from gramercy.execution.approval import Approved, Denied, decide, resolve
from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from tests.mcp.conversations import LEGACY, MODERN, HttpConversation, StdioConversation
from tests.support import port_of, start_server, until

YES = {"action": "accept", "content": {"decision": "approve"}}
TASKS: dict[str, object] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ASKABLE: dict[str, object] = {"elicitation": {}}
TOOLS = '''
    import time
    from pathlib import Path

    from gramercy import tool


    def note(path: str, word: str) -> None:
        with Path(path).open("a") as file:
            file.write(f"{word}\\n")


    @tool(safety_level="dangerous")
    def strike(path: str) -> str:
        """Do something that must not be done twice."""
        note(path, "struck")
        return "it is done"


    @tool(safety_level="dangerous", categories=["task"])
    def toil(path: str) -> str:
        """Do something that may be a task."""
        note(path, "struck")
        return "it is done"


    @tool(safety_level="dangerous")
    def linger(path: str) -> str:
        """Begin something and never end."""
        note(path, "struck")
        time.sleep(600)
        return "never"
'''
NUMBERS = count(1)


@pytest.fixture
def run():
    """Return what runs a coroutine, on one loop for the whole test."""
    with asyncio.Runner() as runner:
        yield runner.run
        runner.run(asyncio.sleep(0.001))


class Place:
    """A project with its journal, whose server is killed and started again."""

    def __init__(self, directory, transport):
        self.project = directory / "project"
        self.project.mkdir()
        (self.project / "tools.py").write_text(dedent(TOOLS))
        self.state = directory / "state"
        self.path = directory / "journal.db"
        self.done = directory / "done.txt"
        self.transport = transport
        self.journal = open_journal(self.path)
        self.servers = []
        self.met = []

    def serve(self, *options):
        """Start a server."""
        transport = ("--http", "127.0.0.1:0", "--no-auth") if self.transport == "http" else ()
        server = start_server(
            *transport,
            *("--from", "tools.py", "--journal", str(self.path), *options),
            cwd=self.project,
            XDG_STATE_HOME=str(self.state),
        )
        self.servers.append(server)
        return server

    async def meet(self, server, era, *, reply=None, capabilities=None, **about):
        """Bring a client to a server."""
        client: HttpConversation | StdioConversation
        options = {"reply": reply, "capabilities": capabilities, **about}
        if self.transport == "http":
            client = HttpConversation(port_of(server), era, **options)
        else:
            client = StdioConversation(server, era, **options)
        self.met.append(client)
        await client.greet()
        return client

    def kill(self, server):
        """End a server with SIGKILL."""
        self.servers.remove(server)
        said = server.errors()
        server.close()
        assert "Traceback" not in said, said

    def record(self, *states):
        """Wait for the one call in one of these states."""
        until(lambda: self.journal.records(states))
        (found,) = self.journal.records(states)
        return found

    def decide(self, decision):
        """Decide as a person in another process does."""
        record = self.record(State.AWAITING)
        return decide(self.journal, record.key, record.facts.question.seal, decision)

    def strikes(self):
        """Count what was done."""
        return self.done.read_text().count("struck") if self.done.exists() else 0

    def close(self):
        for one in self.met:
            one.close()
        for one in list(self.servers):
            self.kill(one)
        self.journal.close()


@pytest.fixture(params=["stdio", "http"])
def place(request, tmp_path, run):  # noqa: ARG001 - the loop outlives the connections
    found = Place(tmp_path, request.param)
    yield found
    found.close()


@pytest.fixture(params=[LEGACY, MODERN])
def era(request):
    return request.param


def said(result):
    return result["content"][0]["text"]


@pytest.mark.contract("journal.served.nobody")
def test_a_client_that_cannot_ask_is_told_how_to_go_on_and_then_runs_the_call_once(place, run, era):
    """Journal: nobody at the client; the approval is pending, and the same call again is that call."""
    server = place.serve("--approval-wait", "0.1")

    async def main():
        client = await place.meet(server, era)
        first = await client.call("strike", path=str(place.done))
        key = place.record(State.AWAITING).key
        assert first["isError"]
        assert f"gramercy approvals approve {key}" in said(first)
        assert "declares no elicitation" in said(first)
        again = await client.call("strike", path=str(place.done))
        assert f"call {key}," in said(again)
        place.decide(Approved(by="ann"))
        return await client.call("strike", path=str(place.done))

    result = run(main())
    assert (said(result), place.strikes()) == ("it is done", 1)
    until(lambda: place.record(State.DONE).delivered)
    assert place.record(State.DONE).facts.ruling.by == "ann"


def test_the_next_call_with_the_same_arguments_is_a_new_one(place, run):
    """Journal: what was delivered is over."""
    server = place.serve("--approval-wait", "0.1")

    async def main():
        client = await place.meet(server, LEGACY)
        await client.call("strike", path=str(place.done))
        place.decide(Approved(by="ann"))
        await client.call("strike", path=str(place.done))
        until(lambda: place.record(State.DONE).delivered)
        return await client.call("strike", path=str(place.done))

    assert "waits for a person" in said(run(main()))
    assert place.strikes() == 1
    assert place.record(State.AWAITING).key > place.record(State.DONE).key


@pytest.mark.contract("journal.served.woken")
def test_a_call_that_waits_is_woken_by_a_decision_in_another_process(place, run, era):
    """Journal: the waiting caller gets the answer at once when alive."""
    server = place.serve("--approval-wait", "50")

    async def main():
        client = await place.meet(server, era)
        # A client on pipes blocks while it reads, so that the person is on another thread.
        deciding = asyncio.get_running_loop().run_in_executor(None, place.decide, Denied("not today"))
        result = await client.call("strike", path=str(place.done))
        await deciding
        return result

    assert said(run(main())).startswith("User denied tool execution: not today")
    assert place.strikes() == 0


@pytest.mark.contract("journal.served.restart")
@pytest.mark.parametrize("when", ["before the kill", "between", "after the start"])
@pytest.mark.slow
def test_an_approval_outlives_the_server_that_asked(place, run, era, when):
    """Journal: kill -9 loses nothing and repeats nothing."""
    server = place.serve("--approval-wait", "0.1")

    async def main():
        client = await place.meet(server, era)
        await client.call("strike", path=str(place.done))
        if when == "before the kill":
            place.decide(Approved(by="ann"))
        place.kill(server)
        if when == "between":
            place.decide(Approved(by="ann"))
        second = place.serve("--approval-wait", "0.1")
        client = await place.meet(second, era)
        if when == "after the start":
            assert "waits for a person" in said(await client.call("strike", path=str(place.done)))
            place.decide(Approved(by="ann"))
        return await client.call("strike", path=str(place.done))

    result = run(main())
    assert (said(result), place.strikes()) == ("it is done", 1)
    assert len(place.journal.records()) == 1


async def parked(client, place, tool="strike"):
    """Call a tool in the newer era up to its question; return the call and what would answer it."""
    given = {"name": tool, "arguments": {"path": str(place.done)}}
    asked = (await client.round("tools/call", given))["result"]
    assert asked["resultType"] == "input_required", asked
    return given, client.retry(asked)


@pytest.mark.contract("journal.served.parked")
@pytest.mark.parametrize("name", ["desk", "claude-code"])
def test_the_answer_to_a_parked_question_counts_after_a_restart_and_counts_once(place, run, name):
    """Journal: parked calls outlive the process; mcp.md, checklist 4: approvals are single-use.

    How fast it was given is not known any more.
    """
    server = place.serve()

    async def main():
        client = await place.meet(server, MODERN, reply=lambda _: YES, name=name)
        given, brought = await parked(client, place)
        place.kill(server)
        client = await place.meet(place.serve(), MODERN, reply=lambda _: YES, name=name)
        done = await client.round("tools/call", {**given, **brought})
        replayed = await client.round("tools/call", {**given, **brought})
        return done["result"], replayed["result"]

    done, replayed = run(main())
    assert (said(done), place.strikes()) == ("it is done", 1)
    # The state is spent: the same request is a new call, which is asked about.
    assert replayed["resultType"] == "input_required"
    assert place.strikes() == 1


@pytest.mark.contract("journal.served.stale")
def test_an_answer_to_what_has_changed_meanwhile_is_asked_for_again(place, run):
    """Journal: stale approvals are asked again with what changed."""
    server = place.serve()

    async def main():
        client = await place.meet(server, MODERN, reply=lambda _: YES)
        given, brought = await parked(client, place)
        place.kill(server)
        source = place.project / "tools.py"
        source.write_text(source.read_text().replace('return "it is done"', 'return "it is done otherwise"'))
        client = await place.meet(place.serve(), MODERN, reply=lambda _: YES)
        again = (await client.round("tools/call", {**given, **brought}))["result"]
        assert again["resultType"] == "input_required", again
        ((_, question),) = again["inputRequests"].items()
        done = await client.round("tools/call", {**given, **client.retry(again)})
        return question["params"]["message"], done["result"]

    question, done = run(main())
    assert "Asked again: the tool's implementation has changed" in question
    assert (said(done), place.strikes()) == ("it is done otherwise", 1)


def test_a_parked_call_that_was_decided_elsewhere_has_its_answer_ready(place, run):
    """Journal: approval from elsewhere and the caller's own channel race."""
    server = place.serve()

    async def main():
        client = await place.meet(server, MODERN, reply=lambda _: {"action": "decline"})
        given, brought = await parked(client, place)
        place.decide(Approved(by="ann"))
        until(place.strikes)
        return await client.round("tools/call", {**given, **brought})

    assert said(run(main())["result"]) == "it is done"
    assert place.strikes() == 1


@pytest.mark.contract("journal.served.answer")
def test_an_answer_that_nobody_fetched_is_there_after_a_restart(place, run):
    """Journal: on retry when it was restarted; it says that it did not run again."""
    server = place.serve()

    async def main():
        client = await place.meet(server, MODERN, reply=lambda _: YES)
        given, brought = await parked(client, place)
        place.decide(Approved(by="ann"))
        place.record(State.DONE)
        place.kill(server)
        client = await place.meet(place.serve(), MODERN, reply=lambda _: YES)
        return await client.round("tools/call", {**given, **brought})

    result = run(main())["result"]
    assert said(result).startswith("[This call was made before and has run at ")
    assert said(result).endswith("it is done")
    assert place.strikes() == 1


@pytest.mark.contract("journal.served.tasks")
@pytest.mark.parametrize("fetched", ["running", "finished", "fetched before"])
@pytest.mark.slow
def test_a_task_outlives_the_server_that_began_it(place, run, fetched):
    """Journal: tasks outlive the process."""
    server = place.serve()
    capabilities = {**TASKS, **ASKABLE}

    async def main():
        client = await place.meet(server, MODERN, capabilities=capabilities)
        given = {"name": "toil", "arguments": {"path": str(place.done)}}
        task = (await client.round("tools/call", given))["result"]
        assert task["resultType"] == "task", task
        place.record(State.AWAITING)
        if fetched != "running":
            place.decide(Approved(by="ann"))
            place.record(State.DONE)
        if fetched == "fetched before":
            got = (await client.round("tasks/get", {"taskId": task["taskId"]}))["result"]
            assert got["status"] == "completed", got
            until(lambda: place.record(State.DONE).delivered)
        place.kill(server)
        client = await place.meet(place.serve(), MODERN, capabilities=capabilities)
        if fetched == "running":
            found = (await client.round("tasks/get", {"taskId": task["taskId"]}))["result"]
            assert found["status"] in {"working", "input_required"}, found
            place.decide(Approved(by="ann"))
        async with asyncio.timeout(20):
            while True:
                found = (await client.round("tasks/get", {"taskId": task["taskId"]}))["result"]
                if found["status"] not in {"working", "input_required"}:
                    return found
                await asyncio.sleep(0.02)

    found = run(main())
    assert found["status"] == "completed"
    assert said(found["result"]).endswith("it is done")
    assert place.strikes() == 1


def test_the_task_of_another_principal_is_not_known_after_a_restart(place, run):
    """Tasks belong to their principal; an id that was forged is none."""
    server = place.serve()

    async def main():
        client = await place.meet(server, MODERN, capabilities={**TASKS, **ASKABLE})
        given = {"name": "toil", "arguments": {"path": str(place.done)}}
        task = (await client.round("tools/call", given))["result"]["taskId"]
        place.kill(server)
        client = await place.meet(place.serve(), MODERN, capabilities={**TASKS, **ASKABLE})
        forged = [task[:-1] + ("A" if task[-1] != "A" else "B"), "B" + task[1:], task.partition(".")[0]]
        return [(await client.round("tasks/get", {"taskId": one}))["error"]["code"] for one in forged]

    assert run(main()) == [-32602] * 3


@pytest.mark.contract("journal.served.doubt")
def test_a_call_that_was_killed_while_it_ran_is_in_doubt_and_never_run_again(place, run, era):
    """Journal: at most once for dangerous tools; in doubt is told, and resolved by a person."""
    server = place.serve("--approval-wait", "0.1")

    async def main():
        client = await place.meet(server, era)
        await client.call("linger", path=str(place.done))
        place.decide(Approved(by="ann"))
        given = {"name": "linger", "arguments": {"path": str(place.done)}}
        if place.transport == "stdio":
            server.send(client._line(client.message("tools/call", given, 99)))
        else:
            running = asyncio.create_task(client.round("tools/call", given))
            await asyncio.sleep(0)
        await asyncio.to_thread(until, place.strikes)
        place.kill(server)
        if place.transport == "http":
            with pytest.raises((AssertionError, OSError, EOFError, asyncio.IncompleteReadError)):
                await running
        second = place.serve("--approval-wait", "0.1")
        client = await place.meet(second, era)
        doubtful = await client.call("linger", path=str(place.done))
        record = place.record(State.IN_DOUBT)
        until(lambda: f"in doubt, since they were cut off while they ran: {record.key}" in second.errors())
        resolve(place.journal, record.key, happened=True, by="ann")
        return record.key, doubtful, await client.call("linger", path=str(place.done))

    key, doubtful, resolved = run(main())
    assert doubtful["isError"]
    assert f"gramercy approvals resolve {key}" in said(doubtful)
    assert said(resolved).startswith("[This call was made before and has run at ")
    assert place.strikes() == 1


@pytest.mark.contract("journal.served.withdrawn")
def test_a_question_at_the_client_is_withdrawn_when_another_process_decides(place, run):
    """Journal: first wins, the other question is withdrawn (notifications/cancelled)."""
    if place.transport == "http":
        pytest.skip("the stream of a request is read in tests/mcp/engine")
    server = place.serve()

    async def main():
        client = await place.meet(server, LEGACY, capabilities=ASKABLE)
        given = {"name": "strike", "arguments": {"path": str(place.done)}}
        server.send(client._line(client.message("tools/call", given, 99)))
        question = server.message()
        assert question["method"] == "elicitation/create"
        place.decide(Approved(by="ann"))
        return question["id"], server.message(), server.message()

    name, withdrawn, answer = run(main())
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", name)
    assert (answer["id"], said(answer["result"])) == (99, "it is done")
    assert place.strikes() == 1


@pytest.mark.contract("journal.served.expiry")
def test_a_question_expires_and_counts_as_denied(place, run):
    """Journal: expiry."""
    server = place.serve("--approval-wait", "20", "--approval-expiry", "0.3")

    async def main():
        client = await place.meet(server, LEGACY)
        return await client.call("strike", path=str(place.done))

    result = run(main())
    assert result["isError"]
    assert "nobody decided until" in said(result)
    assert place.record(State.DENIED).facts.ruling.refuser == "timeout"
    assert place.strikes() == 0


def test_of_two_deciders_one_wins_and_the_other_is_told(place, run):
    """Journal: several approvers racing."""
    server = place.serve("--approval-wait", "0.1")

    async def main():
        client = await place.meet(server, LEGACY)
        await client.call("strike", path=str(place.done))
        place.decide(Denied("no"))
        return await client.call("strike", path=str(place.done))

    assert "User denied tool execution: no" in said(run(main()))
    assert place.strikes() == 0


def test_without_a_lasting_journal_all_is_as_it_was(place, run, era):
    """Journal: with the one in memory nobody else can decide, so that the call is denied at once."""
    server = place.serve("--journal", "memory")

    async def main():
        client = await place.meet(server, era)
        return await client.call("strike", path=str(place.done))

    text = said(run(main()))
    assert "nobody can be asked: this client cannot show questions" in text
    assert "gramercy approvals" not in text
