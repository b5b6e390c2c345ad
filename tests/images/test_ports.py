"""A server inside an image is reached from this machine, and this machine not from inside."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gramercy.images.environment import Environment, Network, PublishedPort
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.ports import MOST_CONNECTIONS
from gramercy.images.processes import Family
from gramercy.images.sandbox import Confinement, why_not
from tests.support import files_of_processes, free_port

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE = 60.0
pytestmark = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason=f"{why_not(Confinement.BUBBLEWRAP)}"
)
needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")

PYTHON_SERVER = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'x' * int(self.path[1:])
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
server = Server(('127.0.0.1', 8000), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""
LISP_SERVER = """
(defun answer (client)
  (let ((stream (sb-bsd-sockets:socket-make-stream client :input t :output t :buffering :full)))
    (loop for line = (string-right-trim '(#\\Return) (read-line stream)) until (string= line ""))
    (format stream "HTTP/1.0 200 OK~c~%Content-Length: 2~c~%~c~%ok" #\\Return #\\Return #\\Return)
    (finish-output stream)
    (close stream)))
(defvar *server* (make-instance 'sb-bsd-sockets:inet-socket :type :stream :protocol :tcp))
(setf (sb-bsd-sockets:sockopt-reuse-address *server*) t)
(sb-bsd-sockets:socket-bind *server* #(127 0 0 1) 8000)
(sb-bsd-sockets:socket-listen *server* 50)
(sb-thread:make-thread (lambda () (loop (answer (sb-bsd-sockets:socket-accept *server*)))))
"""
# A server without a thread, in a state that can be copied: what is sent comes back when `echo` is called.
QUEUE = "import socket; queue = socket.create_server(('127.0.0.1', 8000), backlog=200)"
TRY = """
import socket
def tries(address, kind=socket.SOCK_STREAM):
    try:
        with socket.socket(type=kind) as tried:
            tried.settimeout(2)
            tried.connect(address)
            tried.send(b'x')
            return True
    except OSError:
        return False
"""


def publishing(language, project, port, confinement=Confinement.BUBBLEWRAP, **more):
    environment = Environment(publish=(PublishedPort(port, 8000),), **more)
    return ImageSettings(language, project, confinement, environment)


@pytest.fixture
def images(tmp_path):
    """Make images that publish their port 8000, and end them all."""
    made = []

    def make(language, port, confinement=Confinement.BUBBLEWRAP, **more):
        settings = publishing(language, tmp_path, port, confinement, **more)
        made.append(LiveImage("test", settings.program, timeout=60))
        return made[-1]

    yield make
    for image in made:
        image.close()


def fetch(port, size, data=None):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{size}", data, timeout=PATIENCE) as answer:
        return answer.read()


def run(image, code):
    reply = image.evaluate(code)
    assert reply.ok, reply.error
    return reply.values


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return condition()


def is_closed(connection):
    """Tell whether the other side hangs up without a word."""
    connection.settimeout(PATIENCE)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def dialers(project):
    """Return the pids of the dialers of the images of a project, as this machine numbers them."""
    found = []
    for file in files_of_processes("cmdline"):
        try:
            words, place = file.read_bytes().split(b"\0"), file.with_name("cwd").readlink()
        except OSError:
            continue
        if len(words) > 3 and words[3].endswith(b"dialer.py") and place == project:
            found.append(int(file.parent.name))
    return found


def names_of_threads():
    return [thread.name for thread in threading.enumerate()]


def test_two_hundred_requests_reach_a_server_of_python(images):
    """Environments, section 6: 200 of 200 requests, each with a connection of its own."""
    port = free_port()
    run(images("python", port), PYTHON_SERVER)
    assert [fetch(port, 2) for _ in range(200)] == [b"xx"] * 200


@needs_sbcl
def test_two_hundred_requests_reach_a_server_of_lisp(images):
    """An SBCL image has no Python of its own that could forward."""
    port = free_port()
    run(images("sbcl", port), LISP_SERVER)
    assert [fetch(port, "") for _ in range(200)] == [b"ok"] * 200


def test_many_connections_at_once_are_served_and_more_than_the_bound_wait(images):
    """The bound holds: one connection more is taken up when another one ends."""
    port = free_port()
    image = images("python", port)
    run(image, QUEUE)
    clients = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(MOST_CONNECTIONS + 1)]
    pipes = image._lifecycle.family.relay._pipes
    assert wait_for(lambda: len(pipes) == MOST_CONNECTIONS)
    assert run(image, f"taken = [queue.accept()[0] for _ in range({MOST_CONNECTIONS})]; len(taken)") == [
        str(MOST_CONNECTIONS)
    ]
    assert run(image, "queue.settimeout(0.2)\ntry: queue.accept(); n = 1\nexcept TimeoutError: n = 0\nn") == [
        "0"
    ]
    clients.pop(0).close()
    run(image, "for each in taken: each.shutdown(2)")
    assert run(image, "queue.settimeout(50); taken = queue.accept()[0]; taken.send(b'late')") == ["4"]
    assert clients[-1].recv(4) == b"late"
    for client in clients:
        client.close()


def test_a_thousand_requests_on_fifty_threads_are_all_answered(images):
    """None is lost or mixed up with another."""
    port = free_port()
    run(images("python", port), PYTHON_SERVER)
    with ThreadPoolExecutor(50) as pool:
        sizes = list(pool.map(lambda size: len(fetch(port, size)), range(1000)))
    assert sizes == list(range(1000))


def test_much_data_goes_through_both_ways_unchanged(images):
    """More than any buffer holds."""
    port = free_port()
    run(images("python", port), PYTHON_SERVER)
    data = os.urandom(1 << 20) * 40
    assert fetch(port, "", data) == data


def test_one_side_may_end_what_it_says_and_still_listen(images):
    """Half-closed connections, as of HTTP/1.0 clients and of netcat."""
    port = free_port()
    image = images("python", port)
    run(image, QUEUE)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        run(image, "taken = queue.accept()[0]; said = b''\nwhile part := taken.recv(99): said += part")
        assert run(image, "taken.sendall(said.upper()); taken.shutdown(2); said") == ["b'question'"]
        assert client.recv(99) == b"QUESTION"
        assert client.recv(99) == b""


def test_a_client_that_does_not_read_holds_up_nobody_else(images):
    """Backpressure is per connection."""
    port = free_port()
    run(images("python", port), PYTHON_SERVER)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(b"GET /100000000 HTTP/1.0\r\n\r\n")
        assert [fetch(port, 2) for _ in range(20)] == [b"xx"] * 20


def test_where_nothing_listens_the_connection_is_closed_at_once(images):
    """Bad input: no hang."""
    port = free_port()
    run(images("python", port), "1")
    began = time.monotonic()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            assert is_closed(client)
    assert time.monotonic() - began < PATIENCE


def test_a_port_that_is_taken_is_told_and_the_image_starts(images):
    """Bad input: a port already taken."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        image = images("python", port)
        assert run(image, "6 * 7") == ["42"]
    told = f"Port 8000 of the image is not published: port {port} of this machine is taken by another program"
    assert image._lifecycle.family.notes == [f"{told}. Choose another with --publish OUTER:8000."]


def test_a_port_that_is_published_twice_is_told(tmp_path):
    """Bad input: the other program is this one."""
    port = free_port()
    environment = Environment(publish=(PublishedPort(port, 1), PublishedPort(port, 2)))
    family = Family(ImageSettings("python", tmp_path, Confinement.BUBBLEWRAP, environment).program())
    family.close()
    assert "Port 2 of the image is not published" in family.notes[0]
    assert "taken by this image" in family.notes[0]


@pytest.mark.parametrize(
    ("confinement", "network", "told"),
    [
        (Confinement.NONE, Network.NONE, "without a sandbox a port of the image is this machine's own"),
        (Confinement.BUBBLEWRAP, Network.OPEN, "with an open network a port of the image is this machine's"),
        pytest.param(
            Confinement.LANDLOCK,
            Network.NONE,
            "that needs bubblewrap",
            marks=pytest.mark.skipif(why_not(Confinement.LANDLOCK) is not None, reason="no Landlock"),
        ),
    ],
)
def test_where_nothing_can_be_relayed_that_is_told(tmp_path, confinement, network, told):
    """The image starts all the same."""
    port = free_port()
    family = Family(publishing("python", tmp_path, port, confinement, network=network).program())
    try:
        assert family.relay is None
        assert any(told in note for note in family.notes)
        assert "8000" in family.notes[-1]
    finally:
        family.close()


def test_only_the_loopback_of_this_machine_listens(images):
    """A published port is not for other machines."""
    port = free_port()
    run(images("python", port), "1")
    listening = Path("/proc/net/tcp").read_text("ascii")
    found = [line.split()[1] for line in listening.splitlines() if f":{port:04X} 00000000:0000 0A" in line]
    assert found == [f"0100007F:{port:04X}"]


def test_this_machine_is_out_of_reach_from_inside(images):
    """Publishing opens a way in, none out: not to the published port either."""
    port = free_port()
    image = images("python", port)
    run(image, TRY)
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        assert run(image, f"[tries(('127.0.0.1', n)) for n in ({number}, {port})]") == ["[False, False]"]
        assert run(image, "tries(('192.0.2.1', 80)), tries(('192.0.2.1', 53), socket.SOCK_DGRAM)") == [
            "(False, False)"
        ]
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_an_image_that_publishes_can_be_copied_and_undone(images):
    """The dialer is no thread and no child of the image."""
    image = images("python", free_port())
    run(image, "x = 42")
    reply = image.evaluate("x = 0")
    assert reply.unkept is None
    image.undo()
    assert run(image, "x") == ["42"]
    assert run(image, "import os; os.listdir('/proc/self/task') == [str(os.getpid())]") == ["True"]


def test_a_server_made_in_one_call_can_be_undone_and_made_again(images):
    """The page promises it: no state is kept in which its socket is open."""
    port = free_port()
    image = images("python", port)
    run(image, "import socket")
    run(image, PYTHON_SERVER)
    assert fetch(port, 3) == b"xxx"
    image.undo()
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        assert is_closed(client)
    run(image, PYTHON_SERVER)
    assert fetch(port, 3) == b"xxx"


def test_without_its_dialer_an_image_has_no_ports_and_goes_on(images, tmp_path):
    """Evaluated code shares the sandbox with it, and may end it where Landlock cannot scope signals."""
    port = free_port()
    image = images("python", port)
    run(image, PYTHON_SERVER)
    assert fetch(port, 3) == b"xxx"
    (dialer,) = dialers(tmp_path)
    os.kill(dialer, signal.SIGSTOP)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        assert is_closed(client)
    os.kill(dialer, signal.SIGKILL)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        assert is_closed(client)
    assert run(image, "6 * 7") == ["42"]


def test_what_is_handed_over_is_looked_at(tmp_path):
    """A file, a unix socket or a UDP socket in the place of a connection is not written to."""
    port = free_port()
    family = Family(publishing("python", tmp_path, port).program())
    relay = family.relay
    assert relay is not None
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    things = [(tmp_path / "file").open("wb+"), *socket.socketpair(), socket.socket(type=socket.SOCK_DGRAM)]
    try:
        # The line of the image is replaced by one whose other end is here: a dialer that lies.
        relay._selector.unregister(relay._line)
        relay._line.close()
        relay._line = mine
        relay._selector.register(mine, 1)
        for thing in things:
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                client.sendall(b"secret")
                theirs.settimeout(PATIENCE)
                request = theirs.recv(6)
                socket.send_fds(theirs, [request[:4]], [thing.fileno()])
                assert is_closed(client)
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            theirs.recv(6)
            theirs.send(b"nonsense that is long")
            socket.send_fds(theirs, [b"\0"], [])
            theirs.close()
            assert is_closed(client)
        assert (tmp_path / "file").read_bytes() == b""
    finally:
        family.close()
        for thing in things:
            thing.close()


def test_an_heir_takes_over_the_port_of_the_image_before(tmp_path):
    """A restored image starts before the other one is closed."""
    port = free_port()
    program = publishing("python", tmp_path, port).program()
    first = Family(program)
    second = Family(program, heir_of=first)
    try:
        assert second.notes == []
        first.close()
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            assert is_closed(client)  # by the second one, in which nothing listens
    finally:
        second.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), PATIENCE)


def test_closing_the_image_closes_the_port_and_its_connections(images):
    """Nothing is left: no thread, no listener, no connection."""
    port = free_port()
    image = images("python", port)
    run(image, QUEUE)
    assert "gramercy-ports" in names_of_threads()
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        run(image, "taken = queue.accept()[0]")
        image.close()
        assert is_closed(client)
    assert "gramercy-ports" not in names_of_threads()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), PATIENCE)


def test_without_published_ports_there_is_no_thread_for_them(tmp_path):
    """Nobody pays for what is not used."""
    image = LiveImage("test", ImageSettings("python", tmp_path, Confinement.BUBBLEWRAP).program)
    try:
        assert image.evaluate("1").ok
        assert "gramercy-ports" not in names_of_threads()
        assert image._lifecycle.family is not None
        assert image._lifecycle.family.relay is None
    finally:
        image.close()


KILLED = """
import sys
from pathlib import Path
from gramercy.images.environment import Environment, PublishedPort
from gramercy.images.processes import Family
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement
environment = Environment(publish=(PublishedPort(int(sys.argv[2]), 8000),))
family = Family(ImageSettings(sys.argv[3], Path(sys.argv[1]), Confinement.BUBBLEWRAP, environment).program())
print(family.zygote.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("language", [pytest.param("sbcl", marks=needs_sbcl), "python"])
def test_no_dialer_is_left_when_the_keeper_is_killed(tmp_path, language):
    """Images, Process model: no orphans."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(free_port()), language]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline().strip()
        assert dialers(tmp_path)
        keeper.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not dialers(tmp_path)), dialers(tmp_path)
