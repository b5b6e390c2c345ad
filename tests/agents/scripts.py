"""What tests of agents share: tools, calls of a script, and who keeps a conversation."""

from __future__ import annotations

from typing import Any

from gramercy import Agent, define_tool
from gramercy.agents.base import awaited

MODEL = "Scripted/test"


def called(name, /, **arguments):
    """Return a call as a script has it."""
    return {"name": name, "arguments": arguments}


def agent_with(*tools, agents=(), name="helper", model=MODEL):
    """Return an agent of tools that bring their implementation with them."""
    return Agent(name, f"Be {name}.", model, tools, agents)


def no_parameters(name, handler, **options):
    """Return a tool that takes nothing."""
    return define_tool(name, f"Does {name}.", [], handler=lambda _: handler(), **options)


def takes(name, handler, *parameters, **options):
    """Return a tool that takes texts, all of them required."""
    given = [{"name": each, "type": "string", "description": f"The {each}."} for each in parameters]
    described = f"Does {name}."
    return define_tool(
        name,
        described,
        given,
        required=list(parameters),
        handler=lambda arguments: handler(*(arguments[each] for each in parameters)),
        **options,
    )


class Kept:
    """Keeps a conversation, and those of nested agents, as a session does."""

    model = ""
    prices: Any = None

    def __init__(self, session="session-1"):
        self.session = session
        self.messages = []
        self.inner = {}

    def add(self, message, usage=None):
        """Keep a message."""
        del usage
        self.messages.append(message)

    def spent(self):
        """Return what it has cost."""
        return 0.0

    def identity(self, call):
        """Return by what the journal knows a call."""
        return f"{self.session}/{call.id}"

    def nested(self, call, agent):
        """Return the talk of a nested agent."""
        talk = self.inner.setdefault(call.id, Kept(f"{self.session}/{agent}"))
        return talk, tuple(talk.messages)

    def waited(self):
        """Return the calls that wait for a person."""
        return awaited(self.messages)

    def called_at(self):
        """Return when the latest calls were kept."""
        return 0.0

    def asked(self):
        """Return the talks of nested agents that have something open: none."""
        return ()


def is_in_order(conversation):
    """Tell whether every call of a conversation has exactly one result, right behind it."""
    left: list[str] = []
    for message in conversation:
        if message.role == "tool":
            if message.call_id not in left:
                return False
            left.remove(message.call_id)
        elif left:
            return False
        left += [call.id for call in message.calls]
    return not left
