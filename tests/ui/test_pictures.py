"""Pictures and tables at the command line: files, inline graphics of terminals, and JSON."""

import base64
import json
import re

import pytest

from gramercy.images.base import Display
from gramercy.images.pictures import Picture, check
from gramercy.ui.cli.pictures import Graphics, drawn, terminal_graphics
from tests.support import png

pytestmark = pytest.mark.usefixtures("no_orphans")
PICTURE = png(30, 20)
CODE = (
    "class Plot:\n    def __init__(self, data): self.data = data\n    def __repr__(self): return 'Plot()'\n"
    "    def _repr_png_(self): return self.data\n"
)
SHOWN = f"{CODE}Plot({PICTURE!r})"
# Without the variables of the terminal in which the tests run.
PLAIN = {"TERM": "xterm", "TERM_PROGRAM": "", "LC_TERMINAL": ""}


@pytest.mark.contract("day.pictures.files")
def test_a_picture_goes_to_a_file_and_the_place_is_told(gramercy, tmp_path):
    """Pictures and tables: a file, where the terminal cannot show it."""
    done = gramercy("eval", "--language", "python", SHOWN, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "Plot()\n")
    told = re.search(r"Plot, 30x20 px, PNG 72 bytes: (.+)\n", done.stderr)
    assert told is not None, done.stderr
    (file,) = tmp_path.glob("gramercy-pictures-*/plot.png")
    assert told[1] == str(file)
    assert file.read_bytes() == PICTURE
    assert file.parent.stat().st_mode & 0o77 == 0


@pytest.mark.contract("day.pictures.files")
def test_pictures_never_replace_a_file_in_the_directory_that_was_chosen(gramercy, tmp_path):
    for _ in range(2):
        done = gramercy("eval", "--language", "python", "--pictures", "shown/here", SHOWN)
        assert done.returncode == 0
    assert {file.name for file in (tmp_path / "shown/here").iterdir()} == {"plot.png", "plot-2.png"}
    (tmp_path / "taken").write_text("a file")
    done = gramercy("eval", "--language", "python", "--pictures", "taken/below", SHOWN)
    assert done.returncode == 1
    assert "a picture cannot be written to taken/below" in done.stderr


def test_a_name_cannot_leave_the_directory(gramercy, tmp_path):
    """What a picture is called comes from evaluated code."""
    code = f"{CODE}Plot.__name__ = '../../etc/x\\x1b[31m'\nPlot({PICTURE!r})"
    done = gramercy("eval", "--language", "python", "--pictures", "shown", code)
    assert done.returncode == 0
    assert [file.name for file in (tmp_path / "shown").iterdir()] == ["etc-x-u-1b-31m.png"]
    assert "\x1b" not in done.stderr


def test_no_control_sequence_goes_into_a_pipe(gramercy):
    done = gramercy("eval", "--language", "python", SHOWN, TERM="xterm-kitty", KITTY_WINDOW_ID="1")
    assert done.stdout == "Plot()\n"
    assert "\x1b" not in done.stderr


@pytest.mark.contract("day.pictures.inline")
def test_kitty_gets_its_own_sequences(terminal):
    """Pictures and tables: inline graphics in a terminal that can."""
    screen = terminal("eval", "--language", "python", SHOWN, **{**PLAIN, "TERM": "xterm-kitty"})
    assert screen.end() == 0
    assert received(screen.screen, r"\x1b_Ga=T,f=100,q=2,m=0;([^\x1b]*)\x1b\\") == [PICTURE]
    assert "Plot, 30x20 px, PNG 72 bytes\n" in screen.screen
    assert "gramercy-pictures" not in screen.screen


@pytest.mark.contract("day.pictures.inline")
def test_iterm_gets_its_own_sequences(terminal):
    screen = terminal("eval", "--language", "python", SHOWN, **{**PLAIN, "TERM_PROGRAM": "iTerm.app"})
    assert screen.end() == 0
    sent = received(screen.screen, r"\x1b]1337;File=inline=1;size=72;preserveAspectRatio=1:([^\x07]*)\x07")
    assert sent == [PICTURE]


def test_a_chosen_directory_and_a_plain_terminal_get_no_sequences(terminal, tmp_path):
    for words, environment in (
        (("--pictures", "shown"), {**PLAIN, "TERM": "xterm-kitty"}),
        ((), {**PLAIN, "TMPDIR": str(tmp_path)}),
    ):
        screen = terminal("eval", "--language", "python", *words, SHOWN, **environment)
        assert screen.end() == 0
        assert "\x1b_G" not in screen.screen
        assert "\x1b]1337" not in screen.screen
        assert "plot.png" in screen.screen


def test_the_prompt_shows_pictures_too(terminal):
    screen = terminal("repl", "--language", "python", **{**PLAIN, "TERM": "xterm-kitty"})
    screen.expect(">>> ")
    screen.send(f"class P: _repr_png_ = lambda self: {PICTURE!r}\n\n")
    screen.expect(">>> ")
    screen.send("P()\n")
    screen.expect("P, 30x20 px, PNG 72 bytes")
    assert received(screen.screen, r"\x1b_Ga=T,f=100,q=2,m=0;([^\x1b]*)\x1b\\") == [PICTURE]
    screen.expect(">>> ")
    screen.send("\x04")
    assert screen.end() == 0


def test_a_long_picture_is_sent_in_pieces_that_kitty_takes():
    data = bytes(range(256)) * 100
    sent = drawn(Graphics.KITTY, Display("picture", "image/png", data))
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sent)
    assert pieces[0][0] == "a=T,f=100,q=2,m=1"
    assert {control for control, _ in pieces[1:-1]} == {"m=1"}
    assert pieces[-1][0] == "m=0"
    assert max(len(text) for _, text in pieces) == 4096
    assert base64.b64decode("".join(text for _, text in pieces)) == data
    assert drawn(Graphics.KITTY, Display("picture", "image/jpeg", data)) == ""
    assert drawn(Graphics.ITERM, Display("picture", "image/svg+xml", data)) == ""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-kitty"}, Graphics.KITTY),
        ({"TERM": "xterm-ghostty", "TERM_PROGRAM": "ghostty"}, Graphics.KITTY),
        ({"TERM": "xterm", "KITTY_WINDOW_ID": "3"}, Graphics.KITTY),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "3"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, None),
        ({"TERM": "screen", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, Graphics.ITERM),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, Graphics.ITERM),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, None),
    ],
)
def test_a_terminal_is_known_by_its_environment(environment, expected):
    assert terminal_graphics(environment) is expected


@pytest.mark.contract("day.pictures.files")
def test_json_has_pictures_in_base64(gramercy):
    done = gramercy("eval", "--language", "python", "--json", SHOWN)
    (shown,) = json.loads(done.stdout)["displays"]
    assert check(base64.b64decode(shown["data"])) == Picture("image/png", 30, 20)


def test_a_call_of_a_tool_shows_its_pictures_too(gramercy, tmp_path):
    """A tool's pictures are beside its text; as JSON they are in its metadata."""
    words = ("tools", "call", "evaluate-python", "--image", "python")
    done = gramercy(*words, json.dumps({"code": SHOWN}), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "[picture] Plot, 30x20 px" in done.stdout
    (file,) = tmp_path.glob("gramercy-pictures-*/picture.png")
    assert file.read_bytes() == PICTURE
    done = gramercy(*words, "--json", json.dumps({"code": SHOWN}))
    (block,) = json.loads(done.stdout)["metadata"]["blocks"]
    assert base64.b64decode(block["data"]) == PICTURE


def test_a_preview_shows_its_pictures(gramercy, tmp_path):
    done = gramercy("eval", "--language", "python", "--preview", "--pictures", "shown", SHOWN)
    assert "[picture] Plot, 30x20 px" in done.stdout
    assert (tmp_path / "shown/plot.png").read_bytes() == PICTURE


def test_a_table_follows_its_value(gramercy):
    code = "class T:\n    def _repr_html_(self): return '<table><tr><td>1<td>2</table>'\nT()"
    done = gramercy("eval", "--language", "python", code)
    assert done.stdout.splitlines()[1:] == ["1  2"]


def test_a_picture_that_is_none_is_told_and_not_written(gramercy, tmp_path):
    done = gramercy("eval", "--language", "python", "--pictures", "shown", f"{CODE}Plot(b'garbage')")
    assert done.returncode == 0
    assert "Plot (not shown: it is neither PNG, JPEG, GIF, WebP nor SVG)" in done.stderr
    assert not (tmp_path / "shown").exists()


def received(screen, pattern):
    """Return the pictures that a terminal was sent."""
    return [base64.b64decode(text) for text in re.findall(pattern, screen)]
