"""One line of help in an error whose cause is how the image was started, or what it is."""

from __future__ import annotations

import sys

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.images.sandbox import Confinement, why_not

needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason="only bubblewrap has a network of its own"
)
UNKNOWN = {
    "sbcl": '(sb-bsd-sockets:get-host-by-name "example.com")',
    "python": "import urllib.request; urllib.request.urlopen('http://example.com')",
}
# A server and its client, both on localhost.
SERVES = {
    "sbcl": "(let ((s (make-instance 'sb-bsd-sockets:inet-socket :type :stream))"
    " (c (make-instance 'sb-bsd-sockets:inet-socket :type :stream))"
    ' (home (first (sb-bsd-sockets:host-ent-addresses (sb-bsd-sockets:get-host-by-name "localhost")))))'
    " (sb-bsd-sockets:socket-bind s home 0) (sb-bsd-sockets:socket-listen s 1)"
    " (sb-bsd-sockets:socket-connect c home (nth-value 1 (sb-bsd-sockets:socket-name s))) (length home))",
    "python": "import socket\ns = socket.create_server(('localhost', 0))\n"
    "c = socket.create_connection(('localhost', s.getsockname()[1]))\nlen(c.getpeername()) + 2",
}


@pytest.fixture
def image(words, tmp_path):
    opened = open_image(words.language, project=tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def python(tmp_path):
    opened = open_image("python", project=tmp_path)
    yield opened
    opened.close()


@needs_bubblewrap
@pytest.mark.contract("day.long.hints")
def test_an_error_of_the_network_names_the_option_that_opens_it(image, words):
    """W2: no hint at no network in the image."""
    message = image.evaluate(UNKNOWN[words.language]).error.message
    assert message.endswith("the image has no network: start it with --network open for one")


@needs_bubblewrap
@pytest.mark.contract("day.long.localhost")
def test_localhost_is_known_and_reaches_servers_of_the_image(image, words):
    """W2: localhost does not resolve."""
    assert image.evaluate(SERVES[words.language]).values == ["4"]


@pytest.mark.contract("day.long.hints")
def test_a_missing_module_names_the_environment_and_how_to_install(python, tmp_path):
    """W2: which environment, how to install. Where there is none, how to make one."""
    message = python.evaluate("import certainly_missing").error.message
    assert message.startswith("No module named 'certainly_missing'; it is not in /")
    assert f"python3 -m venv {tmp_path / '.venv'}" in message
    assert "--python" in message


@pytest.mark.contract("day.long.hints")
def test_a_missing_module_of_an_environment_comes_with_the_command(tmp_path):
    """The command of that environment, by the name of the package."""
    image = open_image("python", project=tmp_path, environment=Environment(python=made_environment(tmp_path)))
    try:
        error = image.evaluate("import sklearn").error
    finally:
        image.close()
    message = error.message if error is not None else ""
    assert f"it is not in {tmp_path / '.venv'}" in message
    assert message.endswith(" scikit-learn")


def made_environment(project):
    """Make an environment with a pip that is never run."""
    import venv

    place = project / ".venv"
    venv.create(place, with_pip=False, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    pip = place / "lib" / version / "site-packages" / "pip"
    pip.mkdir()
    (pip / "__main__.py").touch()
    return str(place)


@pytest.mark.contract("day.long.hints")
def test_no_installation_is_offered_for_a_module_of_the_project(python, tmp_path):
    """A name of the project's own must not be fetched from an index."""
    (tmp_path / "orchard.py").touch()
    error = python.evaluate("import sys; sys.path.clear(); import orchard").error
    assert error.message == "No module named 'orchard'"


@pytest.mark.contract("day.long.hints")
def test_input_says_that_there_is_none(python):
    """W2: a bare EOFError."""
    message = python.evaluate("input('name? ')").error.message
    assert (
        message == "EOF when reading a line; evaluated code has no standard input: put the value in the code"
    )


@pytest.mark.contract("day.long.breakpoint")
def test_a_breakpoint_keeps_the_moment_at_its_line(python):
    """W2: BdbQuit. The frames can be looked at as those of an error, and handlers do not hide it."""
    code = "def f(a):\n  b = a + 1\n  try: breakpoint()\n  except Exception: pass\n  return b\nf(1)"
    error = python.evaluate(code).error
    assert (error.type, error.backtrace[0]) == ("Breakpoint", "0: f(a=1) at <image 1>:3: try: breakpoint()")
    assert error.moment is not None
    assert python.evaluate_in_frame("a + b").values == ["3"]


SENDS = """
import multiprocessing
def area(side): return side * side
context = multiprocessing.get_context({!r})
with context.Pool(1) as pool: found = pool.map(area, [3])
found
"""
STARTS = """
process = context.Process(target=area, args=(3,))
process.start()
process.join()
process.exitcode
"""


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
@pytest.mark.contract("day.long.spawn")
def test_a_function_of_the_session_is_not_sent_where_it_cannot_be_found(python, way):
    """W2: a pool started by spawn hung to the timeout."""
    for code in (SENDS.format(way), STARTS):
        reply = python.evaluate(code)
        assert reply.error.type == "TypeError"
        assert "area is defined in this session" in reply.error.message
        assert "get_context('fork')" in reply.error.message
    assert python.evaluate(SENDS.format("fork")).values == ["[9]"]


@pytest.mark.contract("day.long.spawn")
def test_a_function_of_a_module_is_sent_to_a_spawned_process(python):
    """Only what cannot work is refused."""
    code = SENDS.format("spawn").replace("area, [3]", "abs, [-9]")
    assert python.evaluate(code).values == ["[9]"]
