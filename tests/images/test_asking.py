"""Questions to kept states, and the difference between two of them."""

from __future__ import annotations

import pytest

from gramercy.errors import CheckpointError

CODE = {
    "sbcl": {
        "one": "(defun area (a) (* a a))",
        "two": "(defun area (a) (+ a a))",
        "three": "(defun area (a b) (* a b))",
        "more": "(defun girth (a) a)",
        "list": "(defvar *items* (list 1))",
        "grow": "(push 2 *items*)",
        "remove": "(fmakunbound 'area)",
        "write": '(with-open-file (s "notes.txt" :direction :output) (write-line "x" s))',
        "name": "AREA",
    },
    "python": {
        "one": "def area(a): return a * a",
        "two": "def area(a): return a + a",
        "three": "def area(a, b): return a * b",
        "more": "def girth(a): return a",
        "list": "items = [1]",
        "grow": "items.append(2)",
        "remove": "del area",
        "write": "open('notes.txt', 'w').write('x')",
        "name": "area",
    },
}


@pytest.fixture
def code(words):
    return CODE[words.language]


def state_after(image, text):
    reply = image.evaluate(text)
    assert reply.ok, reply
    return reply.span.after


def found(comparison):
    """Return what differs, with the plain names."""
    return {
        each.name.rpartition(":")[2].strip("*").lower(): (each.change, each.before, each.after)
        for each in comparison.definitions
    }


@pytest.mark.contract("journal.images.ask.kept")
def test_a_kept_state_answers_as_it_was(image, code):
    then = state_after(image, code["one"])
    state_after(image, code["three"])
    kept = image.ask("arglist", function=code["name"], at=then).text.splitlines()[0]
    present = image.ask("arglist", function=code["name"]).text.splitlines()[0]
    assert ("b" in kept.lower(), "b" in present.lower()) == (False, True)


@pytest.mark.contract("journal.images.ask.untouched")
def test_to_ask_a_kept_state_changes_nothing(image, code, words):
    then = state_after(image, code["one"])
    image.evaluate(words.define)
    before, processes = image.span(), set(image.processes())
    for _ in range(3):
        assert image.ask("definitions", at=then).ok
    assert image.span() == before
    assert set(image.processes()) == processes
    assert image.evaluate(words.look).values == ["41"]


def test_a_state_can_be_asked_by_its_name(image, code):
    image.evaluate(code["one"])
    image.checkpoint("small")
    image.evaluate(code["remove"])
    assert image.ask("arglist", function=code["name"], at="small").ok
    assert not image.ask("arglist", function=code["name"]).ok


def test_a_state_that_is_not_there_is_refused(image):
    with pytest.raises(CheckpointError, match="there is no checkpoint 'c77'"):
        image.ask("definitions", at="c77")
    with pytest.raises(CheckpointError, match="there is no checkpoint 'c77'"):
        image.compare("c77")


def test_a_state_can_be_asked_while_threads_forbid_new_ones(image, code, words):
    then = state_after(image, code["one"])
    assert image.evaluate(words.start_thread).unkept
    assert image.ask("arglist", function=code["name"], at=then).ok


@pytest.mark.contract("journal.images.compare.definitions")
def test_states_differ_by_what_is_defined_redefined_changed_and_removed(image, code):
    image.evaluate(code["one"])
    image.evaluate(code["list"])
    first = state_after(image, code["more"])
    image.evaluate(code["two"])
    second = state_after(image, code["grow"])
    told = image.compare(first, second)
    assert (told.a, told.b) == (first, second)
    differences = found(told)
    assert differences.pop("items")[1:] in {("(1)", "(2 1)"), ("[1]", "[1, 2]")}
    # Its parameters are the same: only the calls on the way tell.
    assert differences.pop("area")[0] == "redefined"
    assert differences == {}
    assert (told.left, told.taken) == ([], [code["two"], code["grow"]])
    third = state_after(image, code["remove"])
    assert found(image.compare(second, third)) == {"area": ("removed", *found(told)["area"][2:], "")}
    assert found(image.compare(third, second))["area"][0] == "defined"


def test_branches_are_compared_from_where_they_part(image, code):
    image.evaluate(code["one"])
    one = state_after(image, code["more"])
    image.undo()
    other = state_after(image, code["two"])
    told = image.compare(one, other)
    assert (told.left, told.taken) == ([code["more"]], [code["two"]])
    assert {name: each[0] for name, each in found(told).items()} == {"area": "redefined", "girth": "removed"}


def test_a_state_is_compared_with_the_present_which_need_not_be_kept(image, code, words):
    first = state_after(image, code["one"])
    assert image.evaluate(words.start_thread).unkept
    image.evaluate(code["more"])
    told = image.compare(first)
    assert told.b == "now"
    assert found(told)["girth"][0] == "defined"
    assert len(told.taken) == 2


def test_a_state_is_the_same_as_itself(image, code):
    first = state_after(image, code["one"])
    assert image.compare(first).is_same
    assert image.compare(first, first).is_same


@pytest.mark.contract("journal.images.compare.files")
def test_files_that_calls_have_changed_are_compared_too(image, code):
    first = state_after(image, code["one"])
    second = state_after(image, code["write"])
    assert [(each.change, each.path) for each in image.compare(first, second).files] == [
        ("created", "notes.txt")
    ]
    assert [each.path for each in image.compare(second, first).files_left] == ["notes.txt"]
    image.undo()
