"""Variables and the network of an image are what the user says, and nothing more."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from gramercy.errors import ImageStartError
from gramercy.images.environment import Environment, Files, Network
from gramercy.images.live import LiveImage
from gramercy.images.opening import LONGEST_VALUE, REFUSED, ImageSettings
from gramercy.images.processes import Family
from gramercy.images.python.landlock import SCOPES_SINCE, landlock_version
from gramercy.images.sandbox import Confinement, why_not
from gramercy.ui.doctor.escapes import Arena, attempts_from, run_escapes
from tests.support import files_of_processes

needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
LANGUAGES = [pytest.param("sbcl", marks=needs_sbcl), "python"]
CONFINEMENTS = [
    pytest.param(each, marks=pytest.mark.skipif(why_not(each) is not None, reason=f"{why_not(each)}"))
    for each in Confinement
]
SANDBOXES = [each for each in CONFINEMENTS if each.values[0] is not Confinement.NONE]
SECRET = "s3cret-of-the-user"


@pytest.fixture
def images(tmp_path):
    """Make images with an environment, and end them all."""
    made = []

    def make(language, confinement, **environment):
        settings = ImageSettings(language, tmp_path, confinement, Environment(**environment))
        made.append(LiveImage("test", settings.program, timeout=60))
        return made[-1]

    yield make
    for image in made:
        image.close()


def command_lines():
    for file in files_of_processes("cmdline"):
        try:
            yield file.read_bytes()
        except OSError:
            continue


@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_variables_reach_the_image_and_no_command_line(images, language, confinement):
    """A command line can be read by every user of the machine."""
    variables = {"API_TOKEN": SECRET, "EMPTY": "", "WORDS": "two words\nand 'more' ü"}
    image = images(language, confinement, variables=variables)
    code = {
        "python": f"import os; {variables} == {{n: os.environ.get(n) for n in {list(variables)}}}",
        "sbcl": f'(string= (sb-posix:getenv "API_TOKEN") "{SECRET}")',
    }[language]
    assert image.evaluate(code).values[-1] in ("True", "T")
    assert [line for line in command_lines() if SECRET.encode() in line] == []


@pytest.mark.parametrize("confinement", SANDBOXES)
def test_variables_reach_the_programs_that_the_image_starts_and_no_others(images, confinement, monkeypatch):
    """An allow-list: what the user did not name stays outside."""
    monkeypatch.setenv("NOT_NAMED", SECRET)
    image = images("python", confinement, variables={"NAMED": "1"})
    listed = image.evaluate("import subprocess; subprocess.run(['env'], capture_output=True).stdout.decode()")
    names = {line.partition("=")[0] for line in listed.values[0].strip("'").split("\\n") if line}
    assert names - {"_", "LC_CTYPE"} == {"HOME", "LANG", "MPLBACKEND", "NAMED", "PATH", "PWD", "TMPDIR"}


@pytest.mark.parametrize(
    "name", [*REFUSED, "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "1A", "A-B", "A=B", ""]
)
def test_names_that_would_break_the_image_are_refused_in_one_line(tmp_path, name):
    """Bad input: which name, why, and what to try; never the value."""
    settings = ImageSettings("python", tmp_path, Confinement.NONE, Environment(variables={name: SECRET}))
    with pytest.raises(ImageStartError) as caught:
        settings.program()
    assert str(caught.value).startswith(f"the variable {name!r} cannot be given to the image: ")
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["a\0b", "x" * (LONGEST_VALUE + 1)])
def test_values_that_no_process_can_have_are_refused(tmp_path, value):
    """Bad input: execve would fail."""
    settings = ImageSettings("python", tmp_path, Confinement.NONE, Environment(variables={"NAME": value}))
    with pytest.raises(ImageStartError, match="the variable 'NAME' cannot be given to the image: its value"):
        settings.program()


def test_the_longest_value_can_be_had(images):
    """What the message promises."""
    image = images("python", None, variables={"NAME": "x" * LONGEST_VALUE})
    assert image.evaluate("import os; len(os.environ['NAME'])").values == [str(LONGEST_VALUE)]


CONNECT = """
import socket
def says(port):
    try:
        with socket.create_connection(('127.0.0.1', port), 5) as line:
            return line.recv(99).decode()
    except OSError as error:
        return 'refused'
"""
LISP_CONNECT = """
(defun says (port)
  (handler-case
      (let ((line (make-instance 'sb-bsd-sockets:inet-socket :type :stream :protocol :tcp)))
        (sb-bsd-sockets:socket-connect line #(127 0 0 1) port)
        (read-line (sb-bsd-sockets:socket-make-stream line :input t)))
    (error () "refused")))
"""


@pytest.mark.parametrize("network", Network)
@pytest.mark.parametrize("confinement", SANDBOXES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_server_of_this_machine_is_reached_with_an_open_network_only(
    images, language, confinement, network
):
    """Off by default."""
    image = images(language, confinement, network=network)
    assert image.evaluate({"python": CONNECT, "sbcl": LISP_CONNECT}[language]).ok
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(0)
        if network is Network.NONE:
            said = image.evaluate({"python": f"says({port})", "sbcl": f"(says {port})"}[language])
            assert said.values[0].strip("'\"") == "refused"
            with pytest.raises(BlockingIOError):
                server.accept()
            return
        # The connection is made before it is accepted: first the client, whose answer is awaited later.
        begin = {
            "python": f"line = socket.create_connection(('127.0.0.1', {port}), 5); 'made'",
            "sbcl": (
                "(progn (defvar *line*"
                " (make-instance 'sb-bsd-sockets:inet-socket :type :stream :protocol :tcp))"
                f" (sb-bsd-sockets:socket-connect *line* #(127 0 0 1) {port}) 'made)"
            ),
        }[language]
        assert image.evaluate(begin).values[-1].strip("'").lower() == "made"
        client, _ = server.accept()
        client.close()


@pytest.mark.parametrize("confinement", SANDBOXES)
def test_an_open_network_is_told_and_brings_what_names_need(images, confinement):
    """Names can be looked up and certificates checked; private keys stay outside."""
    image = images("python", confinement, network=Network.OPEN)
    assert image.evaluate("import socket; socket.gethostbyname('localhost')").values == ["'127.0.0.1'"]
    there = {name for name in ("hosts", "nsswitch.conf", "ssl/certs") if Path("/etc", name).exists()}
    code = f"import os; [n for n in {sorted(there)} if not os.access('/etc/' + n, os.R_OK)]"
    assert image.evaluate(code).values == ["[]"]
    secret = (
        "def reads(path):\n    try: return bool(os.listdir(path))\n    except OSError: return False\n"
        "reads('/etc/ssl/private')"
    )
    assert image.evaluate(secret).values == ["False"]
    (note,) = image.program().notes
    assert note.startswith("The network is open: evaluated code can reach this machine's own servers")


def test_without_a_word_there_is_no_note_and_no_network_file(images):
    """The default."""
    image = images("python", None)
    assert image.program().notes == ()
    assert image.evaluate("import os; os.path.exists('/etc/resolv.conf')").values == ["False"]


@needs_sbcl
@pytest.mark.slow
def test_a_saved_state_begins_with_the_same_equipment(images, tmp_path):
    """Saved and restored: variables, network and limit stay."""
    image = images("sbcl", None, variables={"NAMED": "kept"}, network=Network.OPEN, memory_mb=300)
    assert image.evaluate("(defvar *x* 42)").ok
    image.save(str(tmp_path / "state.core"))
    image.restore(str(tmp_path / "state.core"))
    assert image.evaluate('(list *x* (sb-posix:getenv "NAMED"))').values == ['(42 "kept")']
    program = image.program()
    assert (program.memory_mb, program.grants.network, len(program.notes)) == (300, Network.OPEN, 1)


def test_the_notes_of_a_program_are_those_of_its_family(tmp_path):
    """The keeper tells them with the first reply."""
    program = ImageSettings("python", tmp_path, None, Environment(network=Network.OPEN)).program()
    family = Family(program)
    family.close()
    assert family.notes == list(program.notes)


@pytest.mark.parametrize("confinement", SANDBOXES)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.slow
def test_an_open_network_opens_nothing_else(language, confinement):
    """The escape suite with an open network: what is IP gets out, and what does without it."""
    chosen = [each for each in attempts_from(preview=False) if each.group in ("files", "network")]
    with Arena() as arena:
        settings = ImageSettings(language, arena.project, confinement, Environment(network=Network.OPEN))
        image = LiveImage("test", settings.program, timeout=60)
        results = list(run_escapes(image, arena, confinement, chosen=chosen))
        image.close()
    assert [result for result in results if not result.escaped and not result.tried] == []
    escaped = {result.attempt.id for result in results if result.escaped}
    by_ip = {f"network.{name}" for name in ("tcp", "tcp6", "udp", "udp6", "fast-open", "multipath", "listen")}
    sockets = {"network.abstract", "network.abstract-datagram"}
    open_ways = by_ip | (set() if landlock_version() >= SCOPES_SINCE else sockets)
    open_ways |= {each.id for each in chosen if each.why_open(confinement) is not None}
    assert escaped - open_ways == set()
    assert {"network.tcp", "network.udp", "network.listen"} <= escaped


@pytest.mark.parametrize("confinement", SANDBOXES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_files_that_may_only_be_read_cannot_be_changed(images, tmp_path, language, confinement):
    """What is true of the annotations then: evaluated code can lose no file of the project."""
    (tmp_path / "garden").mkdir()
    for name in ("beds.txt", "garden/rose.txt"):
        (tmp_path / name).write_text("rose")
    image = images(language, confinement, files=Files.READ)
    tries = {
        "python": (
            "open('beds.txt').read() == 'rose'",
            ("open('beds.txt', 'w')", "open('new.txt', 'w')", "import os; os.remove('garden/rose.txt')"),
        ),
        "sbcl": (
            '(equal (with-open-file (s "beds.txt") (read-line s)) "rose")',
            (
                '(with-open-file (s "beds.txt" :direction :output :if-exists :supersede) (print 1 s))',
                '(with-open-file (s "new.txt" :direction :output) (print 1 s))',
                '(delete-file "garden/rose.txt")',
            ),
        ),
    }
    reading, writing = tries[language]
    assert image.evaluate(reading).values in (["True"], ["T"])
    for code in writing:
        assert not image.evaluate(code).ok
    assert sorted(path.name for path in tmp_path.rglob("*.txt")) == ["beds.txt", "rose.txt"]
    assert (tmp_path / "beds.txt").read_text() == "rose"


def test_without_a_sandbox_files_cannot_be_kept_from_evaluated_code(images):
    """A promise that cannot be kept is refused."""
    reply = images("python", Confinement.NONE, files=Files.READ).evaluate("1")
    assert not reply.ok
    assert "only a sandbox can keep evaluated code from writing" in reply.error.message
