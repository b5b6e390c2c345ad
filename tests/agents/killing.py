"""A program that runs an agent and is killed at a point that its caller chooses.

It reads lines of JSON, `[JOURNAL, LEDGER, POINT, CALLS, KIND]`, and each is done by a process that it
forks: one start of Python for all of them. The agent pays so often, each payment is a line in the ledger,
and the conversation is the session `pay`; where that is there already it goes on. It prints how the process
ended, and the answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

from gramercy import Agent, Executor, Limits, Registry, create_tool
from gramercy.agents.talks import SessionTalk
from gramercy.execution.approval import Approved
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import is_nested, sessions_of
from gramercy.providers.base import CallPart, ModelCall, Provider, StopPart, TextPart

NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


def die():
    """End as by a power cut: no handler runs, nothing is closed."""
    os.kill(os.getpid(), signal.SIGKILL)


class Points:
    """Dies at one point, in its own process."""

    def __init__(self, wanted):
        self.wanted = wanted

    def reached(self, point):
        """Die if it is this one."""
        if point == self.wanted:
            die()


class DyingTalk(SessionTalk):
    """A talk that dies before or after it has kept something."""

    points = Points("")

    def add(self, message, usage=None):
        """Keep a message, and die around that."""
        what = "calls" if message.calls else message.role
        self.points.reached(f"before {what} is kept")
        if not is_nested(self.session):
            self.points.reached(f"before {what} of the outer agent is kept")
        super().add(message, usage)
        self.points.reached(f"after {what} is kept")


class Paying:
    """A model that pays so often and then says what it has read; it knows nothing but the conversation."""

    name = "paying"

    def __init__(self, points, calls, tool="pay", number=None):
        self.points, self.calls, self.tool, self.number = points, calls, tool, number

    async def chat(self, request):
        """Ask for the next payment."""
        last = max(place for place, each in enumerate(request.messages) if each.role == "user")
        done = [message for message in request.messages[last:] if message.role == "tool"]
        if len(done) < self.calls and self.tool in {each.name for each in request.tools}:
            number = self.number or len(done) + 1
            # Each in a turn of its own, all with the same id, as some servers have it.
            given = f'{{"number": {number}}}' if self.tool == "pay" else '{"message": "pay"}'
            yield CallPart(ModelCall("call_0", self.tool, given))
            yield StopPart("calls")
            return
        yield TextPart("I have paid: ")
        self.points.reached("in the middle of an answer")
        yield TextPart(" / ".join(message.text for message in done))
        yield StopPart("end")

    async def aclose(self):
        """Do nothing."""


class Both:
    """Two models as one: the outer agent asks the inner one, which pays."""

    name = "both"

    def __init__(self, points, calls):
        self.outer, self.inner = Paying(points, 1, "payer"), Paying(points, calls)

    def chat(self, request):
        """Let the model answer whose tools these are."""
        is_inner = any(tool.name == "pay" for tool in request.tools)
        return (self.inner if is_inner else self.outer).chat(request)

    async def aclose(self):
        """Do nothing."""


def run(place, ledger, point, calls, kind):
    """Run the agent or go on with it; return its answer."""
    points = DyingTalk.points = Points(point)

    def pay(arguments):
        points.reached("before the effect")
        with Path(ledger).open("a") as file:
            file.write(f"{arguments['number']}\n")
        points.reached("after the effect")
        return f"paid {arguments['number']}"

    def approve(*_):
        points.reached("while a person is asked")
        return Approved()

    tool = create_tool(
        "pay",
        "Pays.",
        NUMBER,
        pay,
        safety_level="cautious" if kind in {"cautious", "idempotent"} else "dangerous",
        idempotent=kind == "idempotent",
    )
    agent = Agent("payer", "Pay.", "Scripted/x", [tool])
    provider: Provider = Paying(points, calls, number=1 if kind in {"stubborn", "unattended"} else None)
    if kind == "nested":
        agent, provider = Agent("boss", "Have it paid.", "Scripted/x", [], [agent]), Both(points, calls)
    journal = open_journal(place)
    sessions = sessions_of(journal)
    is_attended = kind != "unattended"
    executor = Executor(
        Registry(),
        approve if is_attended else None,
        journal=journal,
        approval_wait=5.0 if is_attended else 0.001,
    )
    opened = DyingTalk.begin if sessions.session("pay") is None else DyingTalk.resume
    talk = opened(sessions, name="pay")
    # It may have been killed between the conversation and its first message.
    message = None if talk.conversation and is_attended else "Pay, please"
    response = agent.run(
        message,
        provider=provider,
        conversation=talk.conversation,
        talk=talk,
        executor=executor,
        limits=Limits(turns=1_000, calls=None),
    )
    journal.close()
    return response.content


def forked(words):
    """Do one line in a process of its own; return how that ended and what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, run(*words).encode())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - this is the end of the process
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    # Whoever wants to kill it from outside is told which one.
    sys.stdout.write(f"{child}\n")
    sys.stdout.flush()
    with os.fdopen(reading) as file:
        said = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(forked(json.loads(line))) + "\n")
        sys.stdout.flush()
