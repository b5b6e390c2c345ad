"""One reader for a person's answers: every place that reads the keyboard is known, and says what it reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "gramercy"
READER = "ui/cli/asking.py"
# What else reads standard input, and what it is: never the answer to a question.
OTHERS = {
    "images/output.py:Log": "nothing: it counts what an image has printed",
    "images/python/streams.py:Console": "nothing: it gives evaluated code its input",
    "ui/cli/approval.py:edited_by_hand": "arguments in an editor, which are asked about again",
    "ui/cli/approvals.py:edit": "arguments for --arguments -, beside a seal",
    "ui/cli/composing.py:edited": "a message, in an editor",
    "ui/cli/composing.py:line_ahead": "nothing: it puts what was typed for a message into the next prompt",
    "ui/cli/composing.py:read_standard_input": "a message",
    "ui/cli/evaluation.py:_standard_input": "code",
    "ui/cli/files.py:_read_stdin": "gram, for -",
    "ui/cli/keys.py:Keys": "Esc, and what is typed for the next prompt",
    "ui/cli/options.py:read_words": "arguments of a call, for -",
    "ui/cli/reading.py:before_cursor": "nothing: what stands before the cursor",
    "ui/cli/reading.py:input_waits": "nothing: whether more of a paste waits",
    "ui/cli/reading.py:offer_names": "nothing: it names what Tab completes",
    "ui/cli/reading.py:piped_line": "code",
    "ui/cli/reading.py:remembered": "the history of a prompt",
    "ui/cli/reading.py:_unseen": "nothing: it hides what is typed for code",
    "ui/cli/reading.py:terminal_line": "lines that evaluated code reads as its input",
    "ui/cli/reading.py:typed_line": "code and messages",
    "ui/cli/session.py:Session": "code, in an editor",
}
# Who may use the reader of code and messages.
PROMPTS = {"ui/cli/chat.py", "ui/cli/composing.py", "ui/cli/session.py"}
ASKING = {"confirm", "prompt", "getchar", "pause", "edit", "get_text_stream", "get_binary_stream"}
MODULES = {"getpass", "fileinput", "tty", "curses", "termios", "readline"}


def is_stdin(node):
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"stdin", "__stdin__"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    )


def readings(tree):
    """Yield the nodes that read what a person types."""
    nodes = list(ast.walk(tree))
    harmless = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "isatty"}
    harmless |= {id(node.left) for node in nodes if isinstance(node, ast.Compare)}
    yield from (node for node in nodes if reads(node) and id(node) not in harmless)


def reads(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "input"
    if isinstance(node, ast.Constant):
        return node.value == "/dev/tty"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module, name = node.value.id, node.attr
        return is_stdin(node) or (module == "click" and name in ASKING) or module in MODULES
    return False


def files():
    """Yield the path and the tree of every module."""
    for file in SOURCE.rglob("*.py"):
        yield file.relative_to(SOURCE).as_posix(), ast.parse(file.read_text())


def reading_places(path, tree):
    """Name the outermost functions and classes in which something is read."""
    return {f"{path}:{getattr(each, 'name', '')}" for each in tree.body if any(True for _ in readings(each))}


@pytest.mark.contract("trust.answers.one-reader")
def test_every_answer_is_read_by_the_one_reader():
    """A question that has its own way to read takes what was typed before it was there."""
    found = set().union(*(reading_places(path, tree) for path, tree in files() if path != READER))
    assert found == set(OTHERS), "read answers with gramercy.ui.cli.asking, or say here what else is read"


@pytest.mark.contract("trust.answers.one-reader")
def test_the_reader_of_messages_reads_no_answers():
    used = {
        path
        for path, tree in files()
        if any(isinstance(node, ast.Name) and node.id == "typed_line" for node in ast.walk(tree))
    }
    assert used == PROMPTS


@pytest.mark.parametrize(
    "text",
    [
        "def ask(): return input('sure? ')",
        "def ask(): return click.confirm('sure?')",
        "def ask(): return click.prompt('sure?')",
        "def ask(): return sys.stdin.readline()",
        "def ask(): return next(iter(sys.stdin))",
        "def ask(): return os.read(sys.stdin.fileno(), 1)",
        "def ask(): return getpass.getpass()",
        "def ask(): return open('/dev/tty').readline()",
    ],
)
def test_another_way_to_read_is_found(text):
    """The test above can fail."""
    assert reading_places("x.py", ast.parse(text)) == {"x.py:ask"}
    assert not reading_places("x.py", ast.parse("def ask(): return sys.stdin is None or sys.stdin.isatty()"))
