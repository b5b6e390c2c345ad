"""An editor in this process, and a host whose agents have scripted models and real tools."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from itertools import count
from typing import Any

from gramercy import Agent, create_tool
from gramercy.agents.base import Limits
from gramercy.execution.executor import Executor
from gramercy.images.base import Gallery
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.sessions import MemorySessions
from gramercy.mcp.base import Peer
from gramercy.providers.scripted import ScriptedProvider
from gramercy.testing.image import MemoryImage
from gramercy.tools.registry import Registry
from gramercy.toolsets.editing import edit_tools
from gramercy.toolsets.factory import Workshop
from gramercy.toolsets.files import file_tools
from gramercy.toolsets.planning import plan_tool
from gramercy.toolsets.workspace import Workspace
from gramercy.workbench.modes import Mode
from gramercy.workbench.rewinding import Rewinding
from gramercy.workbench.workplace import Tools, Workplace

# Longer than anything takes on a busy machine.
BOUND = 60.0
FULL = {"fs": {"readTextFile": True, "writeTextFile": True}, "elicitation": {"form": {}}}


class Refused(Exception):  # noqa: N818 - an answer, not a fault of the test
    """The agent answered with an error."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.code = error["code"]
        self.data = error.get("data")


class Editor:
    """Sends frames to an engine, keeps what comes, and answers questions by a table of functions."""

    def __init__(self, engine, answers=None):
        self.engine = engine
        self.peer = Peer(channel=self)
        self.answers = answers or {}
        self.updates: list[dict[str, Any]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.withdrawn: list[int] = []
        self.commands: list[str] = []
        self.greeting: dict[str, Any] = {}
        self._numbers = count(100)
        self._tasks: set[asyncio.Future[None]] = set()

    def send(self, message):
        frame = json.loads(message)
        if frame["method"] == "session/update":
            update = frame["params"]["update"]
            if update["sessionUpdate"] == "available_commands_update":
                # When it comes depends on the clock.
                self.commands = [each["name"] for each in update["availableCommands"]]
                return
            self.updates.append(frame["params"]["update"])
        elif frame["method"] == "$/cancel_request":
            self.withdrawn.append(frame["params"]["requestId"])
        else:
            self.asked.append((frame["method"], frame["params"]))
            task = asyncio.ensure_future(self._answer(frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, frame):
        answer = self.answers.get(frame["method"])
        if answer is None:
            given = {"error": {"code": -32601, "message": "not here"}}
        else:
            found = answer(frame["params"])
            given = {"result": await found if asyncio.iscoroutine(found) else found}
        self.give({"id": frame["id"], **given})

    def give(self, message):
        """Hand over a message that needs no answer."""
        return self.engine.handle(self.peer, json.dumps({"jsonrpc": "2.0", **message}).encode(), self)

    async def frame(self, data):
        """Send bytes and return what they are answered with."""
        answer = self.engine.handle(self.peer, data, self)
        if answer is not None and not isinstance(answer, bytes):
            answer = await asyncio.wait_for(answer, BOUND)
        return None if answer is None else json.loads(answer)

    async def request(self, method, **params):
        """Return the result of a request; raise Refused for an error."""
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        answer = await self.frame(json.dumps(message).encode())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def notify(self, method, **params):
        """Send a notification."""
        self.give({"method": method, "params": params})

    async def begin(self, cwd, capabilities=None):
        """Shake hands and open a session; return its id."""
        info = {"name": "probe", "title": "Probe"}
        await self.request(
            "initialize", protocolVersion=1, clientCapabilities=capabilities or {}, clientInfo=info
        )
        return (await self.request("session/new", cwd=str(cwd), mcpServers=[]))["sessionId"]

    async def say(self, session, text):
        """Send a message and return why its answer ended."""
        prompt = [{"type": "text", "text": text}]
        return (await self.request("session/prompt", sessionId=session, prompt=prompt))["stopReason"]

    def drop(self):
        """Leave questions unanswered that are still open."""
        for task in self._tasks:
            task.cancel()

    def kinds(self):
        """Return what was told, in order."""
        return [update["sessionUpdate"] for update in self.updates]

    def text(self):
        """Return what the agent has said."""
        return "".join(
            update["content"]["text"]
            for update in self.updates
            if update["sessionUpdate"] == "agent_message_chunk"
        )


class Host:
    """Opens places with these tools and this model; what they record is kept in memory."""

    agent = "tester"
    modes = tuple(Mode)

    def __init__(self, model, tools=(), policy=None):
        self.model = model
        self.tools = tools
        self.policy = policy
        self.sessions = MemorySessions()
        self.journal: Any = MemoryJournal()
        self.agents: list[Agent] = []
        self.remarks: list[str] = []
        self.closed: list[str] = []

    @staticmethod
    def rewinding(place):
        """Return what takes back what was done in a place."""
        return Rewinding(place)

    @staticmethod
    def edit_tools(workspace):
        """Make the tools that read and edit files of a directory."""
        shop = Workshop(Gallery((MemoryImage(),)))
        wanted = {"read_buffer", "write_file"}
        read = [each for each in file_tools(shop, workspace) if each.name in wanted]
        return [*edit_tools(shop, workspace), *read]

    @contextmanager
    def open(self, project, approver, tell):
        for remark in self.remarks:
            tell(remark)
        workspace = Workspace(project)
        own = self.edit_tools(workspace)
        tools = [*self.tools, *own, plan_tool()]
        agent = Agent(self.agent, "Work.", "Scripted/test", tools, self.agents)
        executor = Executor(Registry(), approver, policy=self.policy, journal=self.journal)
        undoable = frozenset(each.name for each in own)
        parts = Tools(agent.library, workspace=workspace, of_image=undoable)
        place = Workplace(agent, parts, executor, project=project, limits=Limits())
        place.open_provider = lambda _: self.model
        yield place
        self.closed.append(project)


def tool(name, level="safe", answer="done", seen=None):
    """Make a tool with one argument that notes its calls."""

    def run(arguments):
        if seen is not None:
            seen.append(arguments["text"])
        return f"{answer} {arguments['text']}"

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return create_tool(name, f"{name} a text", schema, run, safety_level=level)


def call(name, **arguments):
    """Return a call for a script."""
    return {"name": name, "arguments": arguments}


def script(*answers):
    """Return a model with a script."""
    return ScriptedProvider(*answers)


def choose(*options):
    """Answer permission requests with these options, in order; the last one again and again."""
    given = list(options)

    def answer(_):
        option = given.pop(0) if len(given) > 1 else given[0]
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option}}

    return {"session/request_permission": answer}
