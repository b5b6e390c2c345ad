"""Servers over HTTP that send us elsewhere, shut us out, flood, compress or forget."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gramercy.mcp.foreign import ForeignError, connect_server

ECHO = {"name": "echo", "description": "Say it.", "inputSchema": {"type": "object"}}


class Host(ThreadingHTTPServer):
    """A server of the older era, whose behaviour is a function."""

    daemon_threads = True

    def __init__(self, behave):
        super().__init__(("127.0.0.1", 0), Desk)
        self.behave = behave
        self.seen = []
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"


class Desk(BaseHTTPRequestHandler):
    """One connection."""

    server: Host

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((body, dict(self.headers)))
        self.server.behave(self, body)

    def do_GET(self):
        self.server.seen.append(({"method": "GET"}, dict(self.headers)))
        self.server.behave(self, {"method": "GET"})

    def do_DELETE(self):
        self.server.seen.append(({"method": "DELETE"}, dict(self.headers)))
        self.reply(204, b"")

    def reply(self, status, body, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        given = {"content-type": "application/json", "content-length": str(len(content))}
        for name, value in (given | {key.replace("_", "-"): text for key, text in headers.items()}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def result(self, body, result, **headers):
        self.reply(200, {"jsonrpc": "2.0", "id": body["id"], "result": result}, **headers)

    def events(self, *events):
        text = "".join(f"{event}\n\n" for event in events).encode()
        self.reply(200, text, content_type="text/event-stream; charset=utf-8")

    def log_message(self, *_):
        """Be quiet."""


def polite(desk, body):
    """Greet, list and echo, as a server with sessions does it."""
    method = body.get("method")
    if method == "server/discover":
        desk.reply(400, b"Bad Request: no session", content_type="text/plain")
    elif method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "host"}}
        desk.result(body, result, mcp_session_id="s1")
    elif method == "tools/list":
        desk.result(body, {"tools": [ECHO]})
    elif method == "tools/call":
        desk.result(body, {"content": [{"type": "text", "text": "done"}]})
    else:
        desk.reply(202, b"")


@pytest.fixture
def host():
    """Return a function that runs a server with a behaviour."""
    hosts = []

    def run(behave):
        server = Host(behave)
        hosts.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    yield run
    for server in hosts:
        server.shutdown()
        server.server_close()


def only(method, behave):
    """Behave oddly for one method, and politely otherwise."""
    return lambda desk, body: (behave if body.get("method") == method else polite)(desk, body)


def test_an_older_server_is_recognised_by_its_refusal_and_its_session_kept(host):
    """MCP server: both eras over HTTP."""
    server = host(polite)
    with connect_server(url=server.url, name="web", headers={"authorization": "Bearer t"}) as web:
        assert web.version == "2025-06-18"
        assert web.call("echo", {})["content"][0]["text"] == "done"
    methods = [body["method"] for body, _ in server.seen]
    assert methods == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
        "DELETE",
    ]
    for body, headers in server.seen[2:]:
        told = {name.lower(): value for name, value in headers.items()}
        assert told["mcp-session-id"] == "s1", body
        assert told["mcp-protocol-version"] == "2025-06-18", body
        assert told["authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("behave", "complaint"),
    [
        (lambda desk, _: desk.reply(401, b""), "does not let us in .status 401."),
        (
            lambda desk, _: desk.reply(307, b"", location="http://10.0.0.1/"),
            "redirects to http://10.0.0.1/",
        ),
        (lambda desk, _: desk.reply(500, b"oops\x1b", content_type="text/html"), r"status 500 .*oops\\u{1b}"),
        (lambda desk, _: desk.reply(200, b"[" * 11_000_000), "more than 10,485,760 bytes"),
        (lambda desk, _: desk.reply(200, b"{}", content_encoding="gzip"), "compresses its answers"),
        (lambda desk, _: desk.events("data: x"), "ended the stream before the answer"),
        (lambda desk, _: desk.events("data: " + "x" * 11_000_000), "more than 10,485,760 bytes"),
        (
            lambda desk, _: desk.events(*['data: {"jsonrpc":"2.0","method":"n"}'] * 10_001),
            "it floods: more than 10,000 messages",
        ),
        (lambda desk, body: desk.result(body, {"tools": 7}), "its list of tools is no list"),
    ],
)
def test_an_odd_answer_is_an_error_that_says_what_is_odd(host, behave, complaint):
    """Style: never a hang, never unbounded memory, never a traceback."""
    server = host(only("tools/list", behave))
    with pytest.raises(ForeignError, match=complaint):
        connect_server(url=server.url, name="web")


def test_our_headers_never_follow_a_redirect(host):
    """Other servers: a stranger does not decide where a token goes."""
    elsewhere = host(polite)
    server = host(lambda desk, _: desk.reply(308, b"", location=elsewhere.url))
    with pytest.raises(ForeignError, match="which is not followed"):
        connect_server(url=server.url, name="web", headers={"authorization": "Bearer secret"})
    assert elsewhere.seen == []


def test_a_forgotten_session_is_begun_anew_and_the_refused_call_sent_again(host):
    """MCP server: a session that has expired is answered with 404, and nothing was done."""
    calls = []

    def forgetful(desk, body):
        calls.append(body["id"])
        if len(calls) == 1:
            desk.reply(404, b"")
        else:
            polite(desk, body)

    with connect_server(url=host(only("tools/call", forgetful)).url, name="web") as web:
        assert web.call("echo", {})["content"][0]["text"] == "done"
    assert len(calls) == 2


def test_a_server_that_always_forgets_is_not_asked_for_ever(host):
    """Style: never a hang."""
    server = host(only("tools/call", lambda desk, _: desk.reply(404, b"")))
    with connect_server(url=server.url, name="web") as web, pytest.raises(ForeignError, match="forgotten"):
        web.call("echo", {})
    assert sum(body["method"] == "tools/call" for body, _ in server.seen) == 2


def test_a_stream_that_ends_early_is_resumed_where_it_ended(host):
    """MCP server: streams of the older era can be resumed."""
    answered = []

    def early(desk, body):
        answered.append(body["id"])
        desk.events("id: 1-1\nretry: 10\ndata: ")

    def behave(desk, body):
        if body.get("method") == "GET":
            rest = {"jsonrpc": "2.0", "id": answered[-1], "result": {"content": []}}
            desk.events(f"id: 1-2\r\ndata: {json.dumps(rest)}")
        else:
            only("tools/call", early)(desk, body)

    server = host(behave)
    with connect_server(url=server.url, name="web") as web:
        assert web.call("echo", {}) == {"content": []}
    resumed = [headers for body, headers in server.seen if body["method"] == "GET"]
    assert [headers["last-event-id"] for headers in resumed] == ["1-1"]


def test_marked_arguments_are_repeated_in_headers():
    """MCP server: x-mcp-header in a schema, newer era."""
    from gramercy.mcp.foreign.definitions import read_definition
    from gramercy.mcp.foreign.web import repeated_arguments

    properties = {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "flag": {"type": "boolean", "x-mcp-header": "Flag"},
        "evil": {"type": "string", "x-mcp-header": "X\r\nHost: evil"},
        "absent": {"type": "string", "x-mcp-header": "Absent"},
    }
    schema = {"type": "object", "properties": properties}
    found = repeated_arguments(
        read_definition({"name": "grüß", "inputSchema": schema}),
        {"region": "eu\r\nX-Evil: 1", "count": 3, "flag": True, "evil": "x"},
    )
    assert found == {
        "mcp-name": "=?base64?Z3LDvMOf?=",
        "mcp-param-region": "=?base64?ZXUNClgtRXZpbDogMQ==?=",
        "mcp-param-count": "3",
        "mcp-param-flag": "true",
    }


@pytest.mark.contract("trust.looks.foreign")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_answer_over_http_that_is_nested_too_deeply_is_told_at_once(host, kind):
    """Minor faults: such an answer was waited for, or asked for again."""

    def deep(desk, body):
        nested = "[" * 100_000 + "]" * 100_000
        text = f'{{"jsonrpc":"2.0","id":{body["id"]},"result":{{"structuredContent":{nested}}}}}'
        lines = f"data: {text}\n\n" if kind == "text/event-stream" else text
        desk.reply(200, lines.encode(), content_type=kind)

    server = host(only("tools/call", deep))
    with (
        connect_server(url=server.url, name="web", timeout=50.0) as web,
        pytest.raises(ForeignError) as raised,
    ):
        web.call("echo", {})
    assert "nested too deeply" in str(raised.value)
    assert sum(body.get("method") == "tools/call" for body, _ in server.seen) == 1
