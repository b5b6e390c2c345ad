"""The file with the pins: what was accepted is kept whole, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gramercy import Registry
from gramercy.mcp.foreign import ForeignError, PinFile, Standing, default_pins, register_foreign
from gramercy.mcp.foreign.definitions import read_definition, read_listing, review_tools


def definition(name, description="Do it."):
    return read_definition({"name": name, "description": description, "inputSchema": {"type": "object"}})


def test_nothing_is_accepted_at_first_sight(stranger, pins):
    """Other servers: unpinned tools are refused until accepted, and their words reach no model."""
    registry = Registry()
    done = register_foreign(registry, stranger("good"), pins=pins)
    assert (done.registered, len(registry)) == ((), 0)
    assert done.lines() == ["odd: refused until you accept them (gramercy foreign accept): echo"]
    assert not pins.path.exists()


def test_what_was_accepted_is_found_again(pins):
    """Other servers: a pin holds the definition and its digest."""
    pins.accept("b", [definition("two"), definition("one")])
    pins.accept("a", [definition("one", "Other.\u200b")])
    again = PinFile(pins.path)
    assert again.servers() == ["a", "b"]
    assert list(again.accepted("b")) == ["one", "two"]
    assert again.accepted("a")["one"].digest == definition("one", "Other.\u200b").digest
    assert again.accepted("c") == {}
    assert [path.name for path in pins.path.parent.iterdir()] == ["pins.json"]


def test_what_is_forgotten_is_gone(pins):
    """Other servers: removed tools."""
    pins.accept("a", [definition("one"), definition("two")])
    pins.forget("a", ["one", "nothing"])
    assert list(pins.accepted("a")) == ["two"]
    pins.forget("a", ["two"])
    assert pins.servers() == []


def test_every_tool_stands_somewhere():
    """Other servers: new, changed, removed and unusable tools are told."""
    accepted = {name: definition(name) for name in ("same", "changed", "removed", "broken")}
    offered = [definition("same"), definition("changed", "Else."), definition("new")]
    listing = read_listing([dict(one.parts) for one in offered] + [{"name": "broken"}])
    found = {review.tool: review.standing for review in review_tools("s", listing, accepted)}
    assert found == {
        "broken": Standing.UNUSABLE,
        "changed": Standing.CHANGED,
        "new": Standing.NEW,
        "removed": Standing.REMOVED,
        "same": Standing.ACCEPTED,
    }


def test_a_pin_that_was_changed_by_hand_is_refused(pins):
    """Other servers: the digest is checked."""
    pins.accept("a", [definition("one")])
    pins.path.write_text(pins.path.read_text("utf-8").replace("Do it.", "Do more."), encoding="utf-8")
    with pytest.raises(ForeignError, match="the pin of a 'one' was changed by hand"):
        pins.accepted("a")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is no file with pins"),
        ("[]", "is no file with pins"),
        ("{}", "is no file with pins"),
        ('{"version": 2, "servers": {}}', "of version 2: expected 1"),
        ('{"version": 1, "servers": {"a": {"b": {"digest": ""}}}}', "is no file with pins"),
        ('{"version": 1, "servers": {"a": 1}}', "is no file with pins"),
        ("[" * 100_000, "is no file with pins"),
    ],
)
def test_a_file_that_holds_no_pins_is_refused_and_not_replaced(content, complaint, pins):
    """Style: messages say what, which, expected."""
    pins.path.parent.mkdir()
    pins.path.write_text(content, encoding="utf-8")
    with pytest.raises(ForeignError, match=complaint):
        pins.accept("a", [definition("one")])
    assert pins.path.read_text("utf-8") == content


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    """Style: never a traceback."""
    (tmp_path / "folder").write_text("in the way", encoding="utf-8")
    with pytest.raises(ForeignError, match="cannot be"):
        PinFile(tmp_path / "folder" / "pins.json").accept("a", [definition("one")])


def test_programs_that_accept_at_once_lose_nothing(pins):
    """Other servers: atomic writes."""
    code = (
        "import sys\n"
        "from gramercy.mcp.foreign import PinFile\n"
        "from gramercy.mcp.foreign.definitions import read_definition\n"
        "for n in range(20):\n"
        "    raw = {'name': f'{sys.argv[2]}{n}', 'inputSchema': {}}\n"
        "    PinFile(sys.argv[1]).accept('s', [read_definition(raw)])\n"
    )
    programs = [subprocess.Popen([sys.executable, "-c", code, str(pins.path), letter]) for letter in "ab"]
    assert [program.wait(60) for program in programs] == [0, 0]
    assert len(pins.accepted("s")) == 40


def test_pins_are_kept_in_the_users_configuration_by_default(tmp_path, monkeypatch):
    """Other servers: a project that one has only downloaded must not bring its own yes."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_pins() == tmp_path / "gramercy" / "foreign.json"


def test_the_file_can_be_read_by_people(pins):
    """Other servers: JSON, in an order that does not change."""
    pins.accept("a", [definition("one")])
    text = pins.path.read_text("utf-8")
    assert text.endswith("}\n")
    assert json.loads(text)["servers"]["a"]["one"]["definition"]["description"] == "Do it."
