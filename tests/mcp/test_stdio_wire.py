"""The wire with real processes and real pipes: what comes in wrong, what must not go out, and how it ends."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from gramercy.mcp.jsonrpc import Code
from gramercy.testing.clients import StdioClient, frame
from tests.support import until

HERE = Path(__file__).parent

SERVER = str(HERE / "stdio_server.py")
HAS_UVLOOP = importlib.util.find_spec("uvloop") is not None
BOM = b"\xef\xbb\xbf"
MEGABYTE = 1_000_000
# What goes on in these tests takes a minute or never ends. `scripts/bench mcp-stdio` measures the promised
# second: a busy machine takes longer.
SOON = 15.0


@pytest.fixture(name="command", params=["plain", "uvloop"])
def command_fixture(request):
    """Return how to start a server that echoes, on each event loop there is."""
    if request.param == "uvloop" and not HAS_UVLOOP:
        pytest.skip("uvloop is not installed: pip install uvloop")
    return [sys.executable, SERVER, request.param]


@pytest.fixture(name="client")
def client_fixture(command):
    """Return a client of such a server."""
    client = StdioClient(*command)
    yield client
    client.close()


def test_requests_are_answered(client):
    """MCP, transports: one message a line."""
    assert client.ask("echo", text="hello")["result"] == {"text": "hello"}


def test_several_frames_in_one_write_are_answered_in_order(client):
    """A pipe keeps no boundaries."""
    client.send(*(frame({"id": number, "method": "echo"}) for number in range(50)))
    assert [client.message()["id"] for _ in range(50)] == list(range(50))


def test_a_frame_in_many_writes_is_one_frame(client):
    """A pipe keeps no boundaries."""
    for byte in frame({"id": 1, "method": "echo", "params": "a ä 😀"}):
        client.send(bytes([byte]))
    assert client.message()["result"] == "a ä 😀"


@pytest.mark.parametrize("before", [b"\n", b"\r\n", b"  \n\n", BOM, BOM + b"\r\n", b"\t"])
def test_what_editors_and_shells_add_is_left_out(client, before):
    """MCP checklist 10: BOM, CRLF and empty lines are tolerated."""
    client.send(before + frame({"id": 1, "method": "echo"}).replace(b"\n", b"\r\n"))
    assert client.message()["id"] == 1


@pytest.mark.parametrize("bad", [b"{", b"nonsense", b"\xff\xfe", b'{"id":1,"method":"\xc3"}', b"\0"])
def test_a_malformed_frame_is_answered_and_the_next_one_too(client, bad):
    """MCP checklist 10: malformed frames are answered."""
    client.send(bad + b"\n", frame({"id": 2, "method": "echo"}))
    assert client.message()["error"]["code"] == -32700
    assert client.message()["id"] == 2


def test_a_frame_of_ten_megabytes_arrives(client):
    """MCP specification of this server: 10 MB per frame."""
    text = "x" * (10 * 1024 * 1024 - 60)
    client.send(frame({"id": 1, "method": "size", "params": text}))
    assert client.message()["result"] == len(text) + 2


def test_a_longer_frame_is_refused_and_the_next_one_answered(client):
    """MCP specification of this server: refused, then resynchronised at the next newline."""
    client.send(b"x" * (11 * MEGABYTE) + b"\n" + frame({"id": 2, "method": "echo"}))
    refusal = client.message()
    assert refusal["error"]["code"] == -32600
    assert "10,485,760 bytes" in refusal["error"]["message"]
    assert client.message()["id"] == 2


@pytest.mark.contract("clients.wire.salvaged-ids")
@pytest.mark.parametrize(
    ("beginning", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"echo","params":{"text":"', 7),
        (b'{"jsonrpc": "2.0", "id": "a\\"b", "params": ["', 'a"b'),
        (b'{"jsonrpc":"2.0","id":7,"result":{"text":"', None),
        (b'{"jsonrpc":"2.0","method":"echo","params":{"id":7,"text":"', None),
        (b'{"id":7.5,"method":"echo","params":"', None),
    ],
)
def test_a_longer_frame_is_refused_with_its_id_where_that_comes_first(client, beginning, ident):
    """A client waits for the answer to its id; one to an answer of its own would be taken for another."""
    client.send(beginning + b"x" * (11 * MEGABYTE) + b'"}}\n', frame({"id": 2, "method": "echo"}))
    refusal = client.message()
    assert (refusal["error"]["code"], refusal.get("id")) == (-32600, ident)
    assert client.message()["id"] == 2


def test_batches_between_frames_are_answered(client):
    """MCP 2025-03-26: batches; here that they pass as they are."""
    batch = b"[%s]\n" % frame({"id": "b", "method": "echo"}).strip()
    client.send(frame({"id": 1, "method": "echo"}), batch, frame({"id": 2, "method": "echo"}), batch)
    answers = [client.message() for _ in range(4)]
    assert [answer[0]["id"] if isinstance(answer, list) else answer["id"] for answer in answers] == [
        1,
        "b",
        2,
        "b",
    ]


def test_a_large_answer_arrives_whole(client):
    """A pipe takes 64 KB at a time."""
    client.send(frame({"id": 1, "method": "large", "params": 20 * MEGABYTE}))
    assert len(client.message()["result"]) == 20 * MEGABYTE


def test_messages_of_a_channel_come_before_the_answer(client):
    """Contract of Channel: progress belongs to a request."""
    client.send(frame({"method": "tell", "params": 1}), frame({"id": 2, "method": "echo"}))
    assert [client.message(), client.message()["id"]] == [{"told": 1}, 2]


def test_a_channel_may_be_used_from_any_thread(client):
    """A tool runs on a thread of its own."""
    client.send(frame({"method": "thread", "params": 500}))
    assert [client.message()["told"] for _ in range(500)] == list(range(500))


def test_slow_answers_do_not_hold_up_fast_ones(client):
    """JSON-RPC: answers may come in any order."""
    client.send(frame({"id": 1, "method": "wait", "params": 0.2}), frame({"id": 2, "method": "echo"}))
    assert [client.message()["id"], client.message()["id"]] == [2, 1]


def test_nothing_but_frames_is_on_the_wire(client):
    """MCP checklist 10: stdout is never polluted, stdin is nobody else's."""
    client.send(frame({"id": 1, "method": "print"}))
    assert client.message() == {"id": 1, "result": ""}
    said = client.errors()
    for origin in ("print", "the first stdout", "a descriptor", "C", "a child"):
        assert f"from {origin}\n" in said


def test_a_client_that_does_not_read_is_not_read_from(client):
    """Back-pressure: memory stays bounded when answers pile up."""
    ask = frame({"id": 1, "method": "large", "params": MEGABYTE})
    client.send(ask * 300)
    before = _settled_memory(client.process.pid)
    assert before < 100
    assert len([client.message() for _ in range(300)]) == 300


def _settled_memory(pid):
    """Return the megabytes of a process once it sleeps."""
    until(lambda: Path(f"/proc/{pid}/wchan").exists() and _state(pid) == "S")
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_messages_that_nobody_reads_are_dropped_in_the_end(client):
    """No unbounded memory: progress of a call whose client sleeps."""
    client.send(frame({"id": 1, "method": "flood", "params": 200}))
    seen = 0
    while client.message() != {"id": 1, "result": "flooded"}:
        seen += 1
    assert 64 <= seen < 80


def test_too_many_requests_at_once_are_refused_but_responses_pass(client):
    """No unbounded memory: a busy server says so."""
    waiting = [frame({"id": number, "method": "wait", "params": 60}) for number in range(256)]
    client.send(*waiting, frame({"id": "more", "method": "echo"}))
    refusal = client.message()
    assert (refusal["id"], refusal["error"]["code"]) == ("more", Code.BUSY)
    client.send(frame({"method": "tell", "params": "still here"}))
    assert client.message() == {"told": "still here"}


def test_an_answer_that_fails_is_told_to_the_person_and_the_next_is_given(client):
    """The receiver never raises; if it does, the server lives."""
    client.send(frame({"id": 1, "method": "raise"}), frame({"id": 2, "method": "echo"}))
    assert client.message()["id"] == 2
    until(lambda: "nobody should do this" in client.errors())
    assert "Traceback" not in client.errors()


def test_the_end_of_the_input_ends_the_server(client):
    """MCP checklist 10: clean exit on EOF."""
    client.ask("echo")
    seconds, code = client.hang_up()
    assert (seconds < SOON, code, client.errors()) == (True, 0, "closed\n")


def test_a_last_frame_without_a_newline_is_answered(client):
    """MCP checklist 10: malformed frames are answered, also when nothing follows."""
    client.send(frame({"id": 1, "method": "echo"}).rstrip())
    client.stdin.close()
    assert client.message()["id"] == 1
    assert client.line() is None
    assert client.process.wait(20) == 0


def test_half_a_last_frame_is_answered(client):
    """MCP checklist 10: malformed frames are answered, also when nothing follows."""
    client.send(frame({"id": 1, "method": "echo"})[:20])
    client.stdin.close()
    assert client.message()["error"]["code"] == -32700


def test_what_is_soon_ready_is_still_answered_after_the_end(client):
    """A shell that pipes requests in wants to see the answers."""
    client.send(frame({"id": 1, "method": "wait", "params": 0.05}))
    client.stdin.close()
    assert [message["id"] for message in client.rest()] == [1]


def test_what_is_under_way_at_the_end_is_cancelled(client):
    """MCP checklist 10: clean exit on EOF."""
    client.send(*(frame({"id": number, "method": "wait", "params": 60}) for number in range(3)))
    client.ask("echo")
    seconds, code = client.hang_up()
    assert (seconds < SOON, code) == (True, 0)
    assert client.errors().count("cancelled") == 3


def test_what_resists_its_cancellation_does_not_keep_the_server(client):
    """MCP checklist 10: clean exit on EOF."""
    client.send(frame({"id": 1, "method": "resist"}))
    client.ask("echo")
    seconds, code = client.hang_up()
    assert (seconds < SOON, code) == (True, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server(client, number):
    """MCP, lifecycle: a client may terminate the server."""
    client.send(frame({"id": 1, "method": "wait", "params": 60}))
    client.ask("echo")
    begun = monotonic()
    client.process.send_signal(number)
    assert client.process.wait(20) == 0
    assert monotonic() - begun < SOON
    assert "cancelled" in client.errors()


def test_a_client_that_no_longer_reads_ends_the_server(client):
    """MCP, lifecycle: whoever has gone needs no answer."""
    client.ask("echo")
    client.stdout.close()
    client.send(frame({"id": 2, "method": "echo"}))
    assert client.process.wait(20) == 0


def test_a_client_that_never_reads_does_not_keep_the_server(client):
    """MCP checklist 10: clean exit on EOF."""
    client.send(frame({"id": 1, "method": "large", "params": 10 * MEGABYTE}))
    until(lambda: _state(client.process.pid) == "S")
    seconds, code = client.hang_up()
    assert (seconds < SOON, code) == (True, 0)


def run(command, stdin, stdout):
    return subprocess.run(
        command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False
    )


def test_input_and_output_may_be_files(command, tmp_path):
    """A person tries things out with redirections."""
    (tmp_path / "in").write_bytes(b"".join(frame({"id": number, "method": "echo"}) for number in range(5000)))
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        done = run(command, given, taken)
    assert (done.returncode, (tmp_path / "out").read_bytes().count(b"\n")) == (0, 5000)


def test_without_input_or_output_the_server_ends(command):
    """A process may be started without any of the standard three."""
    assert run(command, subprocess.DEVNULL, subprocess.DEVNULL).returncode == 0
    closed = [
        sys.executable,
        "-c",
        "import os, sys\nfor n in (0, 1, 2): os.close(n)\nos.execv(sys.argv[1], sys.argv[1:])",
    ]
    assert subprocess.run([*closed, *command], timeout=60, check=False).returncode == 0


def test_the_wire_may_be_a_socket(command):
    """Node starts its servers on sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(60)
        end = theirs.fileno()
        process = subprocess.Popen(command, stdin=end, stdout=end, stderr=subprocess.DEVNULL)
        ours.sendall(frame({"id": 1, "method": "echo"}))
        assert b'"id": 1' in ours.recv(1000)
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(20) == 0


def test_no_child_of_a_tool_can_hold_the_wire(client):
    """Whoever waits for the end of the output must see it when the server has ended."""
    client.ask("echo")
    folder = Path(f"/proc/{client.process.pid}/fd")
    inherited = [file for file in folder.iterdir() if not _flags(file) & os.O_CLOEXEC]
    assert sorted(file.name for file in inherited) == ["0", "1", "2"]
    assert (folder / "0").readlink() == Path(os.devnull)
    assert (folder / "1").readlink() == (folder / "2").readlink()


def _flags(file):
    return int((file.parents[1] / "fdinfo" / file.name).read_text().partition("flags:")[2].split()[0], 8)
