"""A model that plays a script: a server on loopback that speaks the four dialects of the client programs.

The programs send it their conversation; it answers with the next call of its script, and keeps what it was
sent: the tools that were offered, and what came back from each call. It knows nothing about the programs but
the dialects of their models.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the model says when its script is over, and to everything that is no turn of the script.
LAST_WORD = "That was all."


@dataclass(frozen=True)
class Call:
    """A step of the script: a call of one of the server's tools, by the server's own name for it."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """What a program sent for one answer of the model."""

    offers: dict[str, dict[str, Any]]
    results: list[str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the model answers: a text, or a call of a tool that the program has offered."""

    number: int
    text: str = ""
    name: str = ""
    offer: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def call_id(self) -> str:
        return f"call_{self.number}"

    @property
    def json_arguments(self) -> str:
        return json.dumps(self.arguments)


class Script:
    """The calls to ask for in their order, and every turn so far.

    `server` is what the programs call the server: it is a part of their names for its tools.
    """

    def __init__(self, *calls: Call, server: str = "gramercy") -> None:
        self._calls = calls
        self._server = server
        self.turns: list[Turn] = []
        # Gemini CLI leaves the calls of a turn that ends with a no out of the conversation: so many.
        self.forgotten = 0

    @property
    def results(self) -> list[str]:
        """Return what the program has told the model about each call so far."""
        return self.turns[-1].results if self.turns else []

    def offered(self) -> dict[str, dict[str, Any]]:
        """Return the server's tools as the latest turn had them, by the server's names but for hyphens."""
        found = ((self._plain(name), offer) for name, offer in self.turns[-1].offers.items())
        return {name: offer for name, offer in found if name is not None}

    def answer(self, turn: Turn) -> Answer:
        """Return what comes next; the conversation tells how far the script has come."""
        number = len(turn.results) + self.forgotten
        # A title, a summary, a check of the quota: no tools, or another conversation.
        if not turn.offers or self._server not in json.dumps(turn.body):
            return Answer(number, LAST_WORD)
        self.turns.append(turn)
        if number >= len(self._calls):
            return Answer(number, LAST_WORD)
        call = self._calls[number]
        ours = {self._plain(name): name for name in turn.offers}
        # Tools of the program itself may have the names of ours.
        name = ours.get(call.tool.replace("-", "_"), call.tool)
        if name not in turn.offers:
            return Answer(number, f"{call.tool} is not offered in turn {len(self.turns)}.")
        return Answer(number, "", name, turn.offers[name], call.arguments)

    def _plain(self, name: str) -> str | None:
        """Return the server's own name of a tool, or nothing for tools of the program."""
        before, server, after = name.partition(self._server)
        return after.strip("_").replace("-", "_") if server and before.strip("_") in {"", "mcp"} else None


# --- the dialects: each reads a turn from a body, and tells an answer as the events of a stream ---


def _text(content: Any) -> str:
    """Return the text of what a program sends as a result: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", json.dumps(part))) for part in content)
    return json.dumps(content)


def read_anthropic(body: dict[str, Any]) -> Turn:
    offers = {tool["name"]: tool for tool in body.get("tools", ())}
    parts = [
        part
        for message in body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "tool_result"
    ]
    return Turn(offers, [_text(part.get("content", "")) for part in parts], body)


def tell_anthropic(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in", "content": []}
    yield (
        "message_start",
        {"message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
    )
    if answer.name:
        block = {"type": "tool_use", "id": f"toolu_{answer.call_id}", "name": answer.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": answer.json_arguments}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": answer.text}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "tool_use" if answer.name else "end_turn"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}


def read_responses(body: dict[str, Any]) -> Turn:
    offers: dict[str, dict[str, Any]] = {}
    for tool in body.get("tools", ()):
        if tool.get("type") == "namespace":
            space = tool["name"]
            offers |= {f"{space}__{one['name']}": {**one, "namespace": space} for one in tool["tools"]}
        else:
            offers[tool.get("name", tool["type"])] = tool
    results = [item for item in body["input"] if item.get("type") == "function_call_output"]
    return Turn(offers, [_text(item["output"]) for item in results], body)


def tell_responses(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    response = {"id": f"resp_{answer.number}", "object": "response", "output": []}
    if answer.name:
        item: dict[str, Any] = {
            "type": "function_call",
            "id": f"fc_{answer.number}",
            "call_id": answer.call_id,
        }
        item |= {"name": answer.offer["name"], "arguments": answer.json_arguments}
        item |= {key: answer.offer[key] for key in ("namespace",) if key in answer.offer}
    else:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        item = {"type": "message", "id": f"msg_{answer.number}", "role": "assistant", "content": content}
    yield "response.created", {"response": response}
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield "response.completed", {"response": {**response, "status": "completed", "usage": usage}}


def read_chat(body: dict[str, Any]) -> Turn:
    offers = {tool["function"]["name"]: tool["function"] for tool in body.get("tools", ())}
    results = [message for message in body["messages"] if message["role"] == "tool"]
    return Turn(offers, [_text(message["content"]) for message in results], body)


def tell_chat(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    def chunk(delta: dict[str, Any], reason: str | None) -> tuple[str, dict[str, Any]]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return "", {
            "id": "chat_1",
            "object": "chat.completion.chunk",
            "model": "stand-in",
            "choices": [choice],
        }

    if answer.name:
        function = {"name": answer.name, "arguments": answer.json_arguments}
        call = {"index": 0, "id": answer.call_id, "type": "function", "function": function}
        yield chunk({"role": "assistant", "tool_calls": [call]}, None)
        yield chunk({}, "tool_calls")
    else:
        yield chunk({"role": "assistant", "content": answer.text}, None)
        yield chunk({}, "stop")


def read_gemini(body: dict[str, Any]) -> Turn:
    declared = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    parts = [part for content in body.get("contents", ()) for part in content.get("parts", ())]
    results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    return Turn({one["name"]: one for one in declared}, [_gemini_text(one) for one in results], body)


def _gemini_text(response: dict[str, Any]) -> str:
    return _text(next(iter(response.values()))) if len(response) == 1 else json.dumps(response)


def tell_gemini(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    call = {"functionCall": {"name": answer.name, "args": answer.arguments}}
    content = {"role": "model", "parts": [call if answer.name else {"text": answer.text}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    yield (
        "",
        {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}], "usageMetadata": usage},
    )


DIALECTS = {
    "/v1/messages": (read_anthropic, tell_anthropic),
    "/v1/responses": (read_responses, tell_responses),
    "/v1/chat/completions": (read_chat, tell_chat),
    ":streamGenerateContent": (read_gemini, tell_gemini),
    ":generateContent": (read_gemini, tell_gemini),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        path = self.path.partition("?")[0]
        known = [both for ending, both in DIALECTS.items() if path.endswith(ending)]
        if not known:
            return self._send(404, "application/json", b'{"error": {"message": "not here"}}')
        read, tell = known[0]
        events = list(tell(self.script.answer(read(body))))
        if body.get("stream") is False or path.endswith(":generateContent"):
            return self._send(200, "application/json", json.dumps(events[0][1]).encode())
        return self._send(200, "text/event-stream", "".join(map(_event, events)).encode())

    def do_GET(self) -> None:
        self._send(404, "application/json", b'{"error": {"message": "not here"}}')

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def _send(self, status: int, kind: str, payload: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Keep quiet: what came is in the script's turns."""


def _event(event: tuple[str, dict[str, Any]]) -> str:
    name, data = event
    if not name:
        return f"data: {json.dumps(data)}\n\n"
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"


class StandIn:
    """The model at an address of this machine, as a context manager."""

    def __init__(self, script: Script) -> None:
        handler = type("Handler", (_Handler,), {"script": script})
        self.script = script
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
