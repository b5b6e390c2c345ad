"""What `gramercy serve` offers beside tools, as a client of either era meets it, over real pipes."""

from __future__ import annotations

import re
import sys

import pytest

from gramercy.gram.specification import specifications_in
from gramercy.gram.syntax.reader import read
from gramercy.testing.clients import StdioClient
from tests.support import children_of

LEGACY, MODERN = "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": MODERN,
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}clientInfo": {"name": "raw", "version": "1"},
}
EVALUATE = {"sbcl": "evaluate-lisp", "python": "evaluate-python"}
DEFINE = {"sbcl": "(defun cube-of (x) (* x x x))", "python": "def cube_of(x): return x ** 3"}
CUBE = {"sbcl": "cube-of", "python": "cube_of"}
TEMPLATE = "image://{name}/symbol/{symbol}"
DANGER = '''
from gramercy import tool

@tool(safety_level="dangerous")
def launch(target: str) -> str:
    """Do what cannot be undone."""
    return "launched"
'''


class Conversation:
    """A client of one era."""

    def __init__(self, client, era):
        self.client = client
        self.meta = {"_meta": META} if era == MODERN else {}
        method = "server/discover" if era == MODERN else "initialize"
        greeting = self.ask(method) if era == MODERN else {"result": client.initialize(era)}
        self.capabilities = greeting["result"]["capabilities"]

    def ask(self, method, **params):
        return self.client.ask(method, **params, **self.meta)

    def begin(self, method, **params):
        return self.client.begin(method, **params, **self.meta)

    def call(self, tool, **arguments):
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def read(self, uri):
        (content,) = self.ask("resources/read", uri=uri)["result"]["contents"]
        assert (content["uri"], content["mimeType"]) == (uri, "text/plain")
        return content["text"]

    def prompt(self, name, **arguments):
        (message,) = self.ask("prompts/get", name=name, arguments=arguments)["result"]["messages"]
        assert (message["role"], message["content"]["type"]) == ("user", "text")
        return message["content"]["text"]

    def complete(self, argument, typed, **known):
        reference = {"type": "ref/resource", "uri": TEMPLATE}
        given = {"name": argument, "value": typed}
        answer = self.ask("completion/complete", ref=reference, argument=given, context={"arguments": known})
        return answer["result"]["completion"]["values"]


@pytest.fixture(name="talk", params=[LEGACY, MODERN])
def talk_fixture(request, tmp_path):
    """Start a server in an empty project and talk to it in one era; what a test leaves running is ended."""
    clients = []

    def start(*options):
        words = [sys.executable, "-m", "gramercy", "serve", *options]
        clients.append(StdioClient(*words, cwd=tmp_path, env={"NO_COLOR": "1"}))
        return Conversation(clients[-1], request.param)

    yield start
    said = [client.errors() for client in clients]
    for client in clients:
        client.close()
    assert "Traceback (" not in "".join(said)


@pytest.fixture(name="danger")
def danger_fixture(tmp_path):
    """Return a file with a tool that needs approval."""
    file = tmp_path / "danger.py"
    file.write_text(DANGER)
    return str(file)


def test_resources_prompts_and_completions_are_declared_and_listed(talk):
    """MCP checklist 12, in both eras."""
    client = talk("--image", "python")
    assert {"resources", "prompts", "completions"} <= set(client.capabilities)
    uris = [each["uri"] for each in client.ask("resources/list")["result"]["resources"]]
    assert uris == [
        "gramercy://audit",
        "gramercy://tools.gram",
        "image://python/definitions",
        "image://python/transcript",
    ]
    (template,) = client.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert template["uriTemplate"] == TEMPLATE
    prompts = client.ask("prompts/list")["result"]["prompts"]
    names = [each["name"] for each in prompts]
    assert names == ["explain-symbol", "repair-last-error", "review-changes", "work-in-the-image"]
    assert all(each["description"] for each in prompts)


def test_a_server_without_images_offers_tools_alone(talk, danger):
    """Resources and prompts are about images."""
    client = talk("--from", danger)
    assert not {"resources", "prompts", "completions"} & set(client.capabilities)
    assert client.ask("resources/list")["error"]["code"] == -32601
    assert client.ask("prompts/list")["error"]["code"] == -32601


def test_looking_starts_no_image(talk):
    """Performance: an image starts when a tool first uses it."""
    client = talk("--image", "python")
    for uri in ("definitions", "transcript", "symbol/len"):
        assert "not started yet" in client.read(f"image://python/{uri}")
    assert client.read("gramercy://audit") == "No tool has been called yet."
    assert client.complete("name", "py") == ["python"]
    assert client.complete("symbol", "le", name="python") == []
    assert "Explain len" in client.prompt("explain-symbol", symbol="len")
    assert children_of(client.client.process.pid) == set()


def test_what_an_image_holds_can_be_read(talk, language):
    """MCP checklist 12: definitions, transcript, symbols."""
    client = talk("--image", f"main={language}")
    client.call(EVALUATE[language], code=DEFINE[language])
    assert CUBE[language] in client.read("image://main/definitions").lower()
    assert client.read("image://main/transcript").startswith(f"> {DEFINE[language]}")
    (name,) = client.complete("symbol", CUBE[language], name="main")
    assert CUBE[language] in client.read(f"image://main/symbol/{name}").lower()
    client.call("undo_last")
    assert CUBE[language] not in client.read("image://main/definitions").lower()


def test_what_is_not_there_is_an_error_with_a_hint(talk):
    """Errors say what to try next."""
    client = talk("--image", "python")
    client.call("evaluate-python", code="1")
    unknown = client.ask("resources/read", uri="image://pyton/symbol/len")["error"]
    assert unknown == {"code": -32602, "message": "there is no image 'pyton': did you mean 'python'?"}
    missing = client.ask("resources/read", uri="image://python/symbol/nosuch")["error"]
    assert (missing["code"], "nosuch" in missing["message"]) == (-32602, True)
    assert client.ask("resources/read", uri="image://pyton/transcript")["error"]["code"] in {-32602, -32002}
    assert client.ask("prompts/get", name="explain-symbol", arguments={})["error"]["code"] == -32602


def test_the_audit_tells_what_was_called_and_decided(talk, danger):
    """MCP checklist 12: audit."""
    client = talk("--image", "python", "--from", danger)
    client.call("evaluate-python", code="1 + 1")
    client.call("launch", target="moon")
    client.call("get_repl_history")
    evaluated, launched, looked = client.read("gramercy://audit").splitlines()
    assert re.search(
        r'evaluate-python: executing → done; [a-z ]*sandbox[a-z ]*; \{"code":"1 \+ 1"\}', evaluated
    )
    assert "launch: requested → awaiting approval;" in launched
    assert re.search("get_repl_history: done; .*sandbox", looked)


def test_a_ceiling_and_categories_hide_tools_but_no_resources(talk):
    """Guard: what is hidden are tools; the specifications are of those that are served."""
    client = talk("--image", "python", "--max-safety", "safe", "--category", "introspection")
    listed = [each["name"] for each in client.ask("tools/list")["result"]["tools"]]
    specified = [each.name for each in specifications_in(read(client.read("gramercy://tools.gram")))]
    assert specified == listed
    assert len(client.ask("resources/list")["result"]["resources"]) == 4
    assert "evaluate-python" not in client.prompt("work-in-the-image", goal="x")


def test_those_who_watch_an_image_hear_that_it_was_changed(talk):
    """MCP: resources/subscribe in the older era, subscriptions/listen in the newer one."""
    client = talk("--image", "a=python", "--image", "b=python")
    uri = "image://b/definitions"
    if client.meta:
        client.begin("subscriptions/listen", notifications={"resourceSubscriptions": [uri]})
        assert client.client.message()["method"] == "notifications/subscriptions/acknowledged"
    else:
        client.ask("resources/subscribe", uri=uri)
    client.call("evaluate-python", code="x = 1", image="a")
    number = client.begin("tools/call", name="evaluate-python", arguments={"code": "x = 1", "image": "b"})
    heard = [client.client.message(), client.client.message()]
    assert [each["params"]["uri"] for each in heard if "method" in each] == [uri]
    assert number in {each.get("id") for each in heard}


def test_offers_cost_nothing_before_they_are_asked_for(tmp_path):
    """Performance: a server that is only asked for its tools loads nothing more."""
    words = [sys.executable, "-X", "importtime", "-m", "gramercy", "serve", "--image", "python"]
    client = StdioClient(*words, cwd=tmp_path)
    try:
        client.initialize()
        client.ask("tools/list")
        before = client.errors()
        client.ask("prompts/list")
        after = client.errors()
    finally:
        client.close()
    assert "gramercy.workbench.offers" not in before
    assert "gramercy.workbench.offers" in after
