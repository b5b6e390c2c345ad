"""`gramercy serve` as a client meets it: a real process, real images, bytes on pipes."""

from __future__ import annotations

import json
import sys

import pytest

from gramercy.testing.clients import StdioClient, frame
from tests.support import children_of

TOOL = {"sbcl": "evaluate-lisp", "python": "evaluate-python"}
SIX = {"sbcl": "(+ 1 2 3)", "python": "1 + 2 + 3"}
SET = {"sbcl": "(defvar *x* 1)", "python": "x = 1"}
CHANGE = {"sbcl": "(setf *x* 2)", "python": "x = 2"}
LOOK = {"sbcl": "*x*", "python": "x"}
LOOP = {"sbcl": "(loop)", "python": "while True: pass"}
SHOUT = {"sbcl": '(format t "shouted~%") (finish-output)', "python": "print('shouted', flush=True)"}
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": MODERN,
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}clientInfo": {"name": "raw", "version": "1"},
}
NOISY = '''
import ctypes, os, subprocess
from gramercy import tool

print("said while loading")
os.write(1, b"written while loading\\n")

@tool
def shout(text: str) -> str:
    """Print in every way there is, and read in one."""
    print(text)
    ctypes.CDLL(None).puts(text.encode())
    ctypes.CDLL(None).fflush(None)
    subprocess.run(["echo", text], check=True)
    try:
        return input()
    except EOFError:
        return f"nothing to read, {text}"

@tool(inline=True)
def echo(text: str) -> str:
    """Give a text back."""
    return text

@tool(safety_level="dangerous", categories=["danger"])
def launch() -> str:
    """Do what cannot be undone."""
    return "launched"
'''


@pytest.fixture(name="serve")
def serve_fixture(tmp_path):
    """Start a server in an empty project; what a test leaves running is ended."""
    clients = []

    def start(*options, hands=True):
        words = [sys.executable, "-m", "gramercy", "serve", *options]
        client = StdioClient(*words, cwd=tmp_path, env={"NO_COLOR": "1"})
        clients.append(client)
        if hands:
            client.initialize()
        return client

    yield start
    said = [client.errors() for client in clients]
    for client in clients:
        client.close()
    assert "Traceback (" not in "".join(said)


@pytest.fixture(name="noisy")
def noisy_fixture(tmp_path):
    """Return a file with tools that print."""
    file = tmp_path / "noisy.py"
    file.write_text(NOISY)
    return str(file)


def text_of(result):
    assert [block["type"] for block in result["content"]] == ["text"]
    return result["content"][0]["text"]


def names_of(answer):
    return [tool["name"] for tool in answer["result"]["tools"]]


def evaluate(client, language, code, **more):
    return text_of(client.call(TOOL[language], code=code, **more))


@pytest.mark.parametrize("version", LEGACY)
def test_every_revision_with_a_handshake_is_served(serve, version):
    """MCP checklist 1: both eras."""
    client = serve("--image", "python", hands=False)
    greeting = client.initialize(version)
    assert greeting["protocolVersion"] == version
    assert greeting["serverInfo"]["name"] == "gramercy"
    assert "evaluate-python" in names_of(client.ask("tools/list"))


def test_the_stateless_revision_is_served(serve):
    """MCP checklist 1: both eras."""
    client = serve("--image", "python", hands=False)
    found = client.ask("server/discover", _meta=META)["result"]
    assert MODERN in found["supportedVersions"]
    assert "evaluate-python" in names_of(client.ask("tools/list", _meta=META))
    call = {"name": "evaluate-python", "arguments": {"code": SIX["python"]}, "_meta": META}
    result = client.ask("tools/call", **call)["result"]
    assert (text_of(result), result["resultType"]) == ("=> 6", "complete")


def test_both_eras_are_served_on_one_wire(serve):
    """MCP checklist 1: same process."""
    client = serve("--image", "python")
    assert "resultType" in client.ask("tools/list", _meta=META)["result"]
    assert "resultType" not in client.ask("tools/list")["result"]


def test_the_instructions_teach_the_workflow_and_are_short(serve):
    """MCP checklist 6: instructions well under 2 KB."""
    client = serve("--image", "sbcl", "--image", "second=python", hands=False)
    text = client.initialize()["instructions"]
    places = [text.index(word) for word in ("Look first", "Preview", "Evaluate", "Change files", "Undo")]
    assert places == sorted(places)
    assert "sbcl (Common Lisp (SBCL)), second (Python)" in text
    assert len(text.encode()) < 2000


def test_the_first_tools_of_a_session_need_not_be_searched(serve):
    """Claude Code shows the model only names of tools otherwise, until it has searched for one."""
    client = serve("--image", "python")
    tools = client.ask("tools/list")["result"]["tools"]
    foremost = {tool["name"] for tool in tools if tool["_meta"].get("anthropic/alwaysLoad")}
    assert foremost == {"evaluate-python", "find_definition", "edit_definition"}


def test_the_instructions_name_only_tools_that_are_there(serve):
    """A model must not be sent to tools it does not have."""
    client = serve("--image", "python", "--toolset", "session", hands=False)
    text = client.initialize()["instructions"]
    assert "evaluate-python" in text
    for missing in ("preview_form", "undo_last", "describe_symbol", "eval_form"):
        assert missing not in text


def test_listing_starts_no_image_and_loads_no_code_for_one(tmp_path):
    """Performance: discovery never waits for an image; everything else is imported lazily."""
    words = [sys.executable, "-X", "importtime", "-m", "gramercy", "serve", "--image", "sbcl"]
    client = StdioClient(*words, cwd=tmp_path)
    try:
        client.initialize()
        assert len(names_of(client.ask("tools/list"))) == 26
        assert children_of(client.process.pid) == set()
        loaded = {line.rpartition("|")[2].strip() for line in client.errors().splitlines()}
    finally:
        client.close()
    assert "gramercy.mcp.engine" in loaded
    for heavy in ("gramercy.images.live", "gramercy.images.opening", "gramercy.mcp.http", "pydantic", "mcp"):
        assert heavy not in loaded


def test_evaluations_are_answered_and_state_is_kept(serve, language):
    """Seed 003, Success Response Format."""
    client = serve("--image", language)
    assert client.call(TOOL[language], code=SIX[language]) == {
        "content": [{"type": "text", "text": "=> 6"}],
        "isError": False,
    }
    evaluate(client, language, SET[language])
    assert evaluate(client, language, LOOK[language]) == "=> 1"
    evaluate(client, language, CHANGE[language])
    client.call("undo_last")
    assert evaluate(client, language, LOOK[language]) == "=> 1"


def test_what_evaluated_code_prints_is_in_the_answer_and_not_on_the_wire(serve, language):
    """Seed 003, Results with Output."""
    client = serve("--image", language)
    assert evaluate(client, language, SHOUT[language]).startswith("[stdout]\nshouted")


def test_an_unknown_tool_is_a_protocol_error(serve):
    """Seed 003, Protocol Errors."""
    answer = serve("--image", "python").ask("tools/call", name="invalid-tool-name", arguments={})
    assert answer["error"]["code"] == -32602
    assert answer["error"]["message"].startswith("Unknown tool: invalid-tool-name")


def test_several_images_live_side_by_side(serve):
    """Contracts, decision 2: an optional image handle when more than one image is configured."""
    client = serve("--image", "a=python", "--image", "b=python")
    evaluate(client, "python", "x = 'first'")
    evaluate(client, "python", "x = 'second'", image="b")
    assert evaluate(client, "python", "x") == "=> 'first'"
    assert evaluate(client, "python", "x", image="a") == "=> 'first'"
    assert evaluate(client, "python", "x", image="b") == "=> 'second'"
    assert text_of(client.call("evaluate_python", code="x", image="b")).startswith("=> 'second'")


def test_each_language_has_its_tool_and_its_default_image(serve):
    """Contracts, decision 2, with images of two languages."""
    client = serve("--image", "sbcl", "--image", "python")
    assert evaluate(client, "python", SIX["python"]) == "=> 6"
    assert evaluate(client, "sbcl", SIX["sbcl"]) == "=> 6"
    wrong = client.call("evaluate-python", code="1", image="sbcl")
    assert wrong["isError"]
    assert "name another image" in text_of(wrong)
    unknown = client.call("evaluate-python", code="1", image="ruby")
    assert unknown["isError"]
    assert "image" in text_of(unknown)


def test_only_the_image_that_is_used_is_started(serve):
    """Images start when they are first used."""
    client = serve("--image", "a=python", "--image", "b=python")
    evaluate(client, "python", "1")
    one = len(children_of(client.process.pid))
    evaluate(client, "python", "1", image="b")
    assert len(children_of(client.process.pid)) > one


def test_tools_of_files_are_served_and_nothing_they_print_is_on_the_wire(serve, noisy):
    """MCP checklist 10: stdout is never polluted."""
    client = serve("--from", noisy)
    assert names_of(client.ask("tools/list")) == ["echo", "launch", "shout"]
    assert text_of(client.call("shout", text="LOUD")) == "nothing to read, LOUD"
    assert client.errors().count("LOUD\n") == 3
    assert "said while loading\n" in client.errors()
    assert "written while loading\n" in client.errors()


def test_tools_of_files_and_images_are_served_together(serve, noisy):
    """One registry for everything."""
    names = names_of(serve("--from", noisy, "--image", "python").ask("tools/list"))
    assert {"echo", "evaluate-python"} <= set(names)
    assert names == sorted(names)


def test_a_dangerous_tool_does_not_run_when_nobody_can_be_asked(serve, noisy):
    """Contracts, decision 6."""
    result = serve("--from", noisy).call("launch")
    assert result["isError"]
    assert "launched" not in text_of(result)


def test_a_ceiling_a_category_and_a_toolset_choose_the_tools(serve, noisy):
    """Guard: a ceiling hides and refuses what is above it."""
    capped = serve("--from", noisy, "--max-safety", "cautious")
    assert names_of(capped.ask("tools/list")) == ["echo", "shout"]
    assert capped.ask("tools/call", name="launch", arguments={})["error"]["code"] == -32602
    assert names_of(serve("--from", noisy, "--category", "danger").ask("tools/list")) == ["launch"]
    session = names_of(serve("--image", "sbcl", "--toolset", "session").ask("tools/list"))
    assert session == ["evaluate-lisp", "list-definitions", "load-system", "reset-session"]


def test_invalid_arguments_are_a_result_unless_strictness_is_wanted(serve, noisy):
    """Contracts, decision 8."""
    lenient = serve("--from", noisy).ask("tools/call", name="echo", arguments={"txt": 1})
    assert lenient["result"]["isError"]
    strict = serve("--from", noisy, "--strict").ask("tools/call", name="echo", arguments={"txt": 1})
    assert strict["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"{", -32700),
        (b"nonsense", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xc3\x28"}}', -32700),
        (b"3", -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602),
        (b"[" * 100_000, -32700),
    ],
)
def test_malformed_frames_are_answered_and_the_next_one_too(serve, noisy, bad, code):
    """MCP checklist 10: malformed frames are answered."""
    client = serve("--from", noisy)
    client.send(bad + b"\n" + frame({"id": "next", "method": "ping"}))
    assert client.message()["error"]["code"] == code
    assert client.message()["id"] == "next"


def test_notifications_are_never_answered(serve, noisy):
    """JSON-RPC: not even faulty ones."""
    client = serve("--from", noisy)
    client.tell("no/such")
    client.send(b'{"jsonrpc":"2.0","method":"tools/call","params":[]}\n')
    client.send(b'{"jsonrpc":"2.0","id":"unasked","result":{}}\n')
    number = client.begin("ping")
    assert client.message() == {"jsonrpc": "2.0", "id": number, "result": {}}


def test_batches_between_requests_are_answered(serve, noisy):
    """MCP 2025-03-26: batching."""
    client = serve("--from", noisy, hands=False)
    client.initialize("2025-03-26")
    call = {"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}}
    parts = [json.loads(frame({"id": f"b{number}", **call})) for number in range(3)]
    batch = json.dumps(parts).encode() + b"\n"
    client.send(frame({"id": "p", "method": "ping"}) + batch + frame({"id": "q", "method": "ping"}) + batch)
    answers = [client.message() for _ in range(4)]
    assert [answer["id"] for answer in answers if isinstance(answer, dict)] == ["p", "q"]
    for answer in answers:
        if isinstance(answer, list):
            assert sorted(part["id"] for part in answer) == ["b0", "b1", "b2"]


def test_a_frame_of_ten_megabytes_reaches_a_tool(serve, noisy):
    """MCP specification of this server: 10 MB per frame."""
    client = serve("--from", noisy)
    text = "x" * (10 * 1024 * 1024 - 200)
    result = client.call("echo", text=text)
    assert text_of(result).startswith("x" * 1000)


def test_a_cancelled_evaluation_is_interrupted(serve, language):
    """MCP checklist 9: cancellation that really interrupts the image."""
    client = serve("--image", language)
    evaluate(client, language, SET[language])
    number = client.begin("tools/call", name=TOOL[language], arguments={"code": LOOP[language]})
    assert client.ask("ping")["result"] == {}
    client.tell("notifications/cancelled", requestId=number)
    assert evaluate(client, language, LOOK[language]) == "=> 1"


def test_requests_piped_in_from_a_shell_are_answered(gramercy, noisy):
    """A person tries things out with a pipe."""
    call = {"id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hello"}}}
    done = gramercy("serve", "--from", noisy, stdin=frame(call))
    assert done.returncode == 0
    assert json.loads(done.stdout)["result"]["content"][0]["text"] == "hello"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--image", "sblc"], 3, "did you mean 'sbcl'?"),
        (["--image", "x=ruby"], 3, "there are sbcl and python"),
        (["--image", "python", "--image", "python"], 3, "--image first=python --image second=python"),
        (["--image", "9=python"], 3, "beginning with a letter"),
        (["--from", "missing.py"], 3, "missing.py does not exist"),
        (["--toolset", "cor"], 2, "is not one of"),
        (["--http", "nowhere"], 2, "expected something like 127.0.0.1:8000"),
        (["--http", "1.2.3.4:99999"], 2, "expected something like 127.0.0.1:8000"),
        (["--no-auth"], 2, "add --http HOST:PORT"),
        (["--stdio", "--http", ":0"], 2, "exclude each other"),
        (["--http", ":0", "--no-auth", "--oauth-issuer", "https://x"], 2, "exclude each other"),
        (["--http", ":0", "--oauth-issuer", "https://x"], 2, "--oauth-keys and --oauth-resource"),
        (["--http", ":0", "--project", "/", "--image", "python"], 3, "choose a directory below it"),
        (["--http", ":0", "--project", "/nowhere", "--image", "python"], 3, "is not a directory"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_message(gramercy, options, status, words):
    """Style: one line and an exit code, nothing on standard output."""
    done = gramercy("serve", *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr


def test_a_name_that_files_and_images_share_is_refused(gramercy, tmp_path):
    """One registry for everything: nothing is replaced silently."""
    (tmp_path / "mine.py").write_text(
        "from gramercy import tool\n@tool\ndef read_file(x: str) -> str:\n    'Mine.'\n"
    )
    done = gramercy("serve", "--from", "mine.py", "--image", "python")
    assert (done.returncode, "defines read_file" in done.stderr) == (3, True)


def test_callers_can_open_images_of_their_own_where_that_is_served(serve):
    """MCP, item 7: images are addressed by an explicit optional handle."""
    client = serve("--image", "python", "--toolset", "session", "--toolset", "images")
    handle = client.call("open_image", language="python")["content"][0]["text"]
    client.call("evaluate-python", code="x = 5", image=handle)
    assert client.call("evaluate-python", code="x", image=handle)["content"][0]["text"] == "=> 5"
    assert client.call("evaluate-python", code="x")["isError"]
