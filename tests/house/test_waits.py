"""What tests start can be interrupted and hung up on, and no test waits for a process without a bound."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.support import BOUND, ROOT

OTHERS = "(signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)"
TOLD = f"import signal; print([signal.getsignal(n).name for n in {OTHERS}])"
IGNORING = "trap '' INT HUP QUIT TERM; exec \"$@\""
TESTS = ROOT / "tests"
# The bounded wait itself; and a program whose parent kills it.
EXEMPT = {"support.py", "agents/killing.py"}
RUNNING = {"run", "check_output", "check_call", "call"}


def test_what_a_test_starts_has_the_usual_signals():
    """A program that ignores SIGINT and SIGHUP hangs in every test that sends them."""
    code = f"{TOLD}; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=BOUND
    )
    assert (done.stdout, done.stderr) == ("['SIG_DFL', 'SIG_DFL', 'SIG_DFL']\n", "")


def test_signals_that_a_shell_ignores_are_usual_for_what_a_test_starts():
    """Under `nohup`, and in the background of a shell script, the suite hung."""
    name = f"{__file__}::{test_what_a_test_starts_has_the_usual_signals.__name__}"
    words = ["sh", "-c", IGNORING, "sh", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * BOUND)
    assert done.returncode == 0, done.stdout


def unbounded(call: ast.Call) -> bool:
    """Tell whether a call waits for a process for ever, as far as its words tell."""
    if not isinstance(call.func, ast.Attribute):
        return False
    name, owner = call.func.attr, ast.unparse(call.func.value).rpartition(".")[2]
    bounds = {word.arg for word in call.keywords} & {"timeout", None}
    if owner == "subprocess":
        return name in RUNNING and not bounds
    if (owner, name) == ("os", "waitpid"):
        return ast.unparse(call.args[1]) == "0"
    if name == "communicate":
        return not bounds and len(call.args) < 2
    return name == "wait" and owner in {"process", "child", "each"} and not (bounds or call.args)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("subprocess.run(words)", True),
        ("subprocess.run(words, timeout=60)", False),
        ("self.process.wait()", True),
        ("process.wait(60)", False),
        ("process.communicate(b'x')", True),
        ("os.waitpid(pid, 0)", True),
        ("os.waitpid(pid, os.WNOHANG)", False),
    ],
)
def test_a_wait_without_a_bound_is_recognized(text, expected):
    """The next test can fail."""
    (statement,) = ast.parse(text).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert unbounded(statement.value) is expected


def test_no_test_waits_for_a_process_without_a_bound():
    """CONTRIBUTING.md: every wait is bounded."""
    found = [
        f"{file.relative_to(TESTS)}:{node.lineno}"
        for file in sorted(TESTS.rglob("*.py"))
        if str(file.relative_to(TESTS)) not in EXEMPT
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and unbounded(node)
    ]
    assert found == []


def test_files_of_all_processes_are_not_found_by_a_pattern():
    """`Path.glob` raises ProcessLookupError for a process that ends after it was listed."""
    pattern = "[0-9]*" + "/"
    files = [file for room in ("src", "tests", "bench") for file in (ROOT / room).rglob("*.py")]
    assert [
        str(file.relative_to(ROOT)) for file in files if f'glob("{pattern}' in file.read_text("utf-8")
    ] == []
