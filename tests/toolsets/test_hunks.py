"""Hunks: every choice of them gives a text, and the texts at both ends are exact."""

from __future__ import annotations

import shutil
import subprocess
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import WorkspaceError
from gramercy.toolsets import hunks

ORIGINAL = "one\ntwo\nthree\nfour\nfive\n"
MODIFIED = "one\nTWO\nthree\nfour\nfive\nsix\n"
TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\r\n", "\x0c\n", "\u2028"]), max_size=12).map(
    "".join
)


def test_a_change_is_split_where_lines_stay_the_same():
    """Decision 12: hunk by hunk."""
    first, second = hunks.split(ORIGINAL, MODIFIED)
    assert (first.number, first.removed, first.added) == (1, ("two\n",), ("TWO\n",))
    assert (second.number, second.removed, second.added) == (2, (), ("six\n",))


def test_the_same_text_has_no_hunks():
    """Decision 12."""
    assert hunks.split(ORIGINAL, ORIGINAL) == []


@given(TEXTS, TEXTS)
def test_all_hunks_make_the_modified_text_and_none_the_original(original, modified):
    """Decision 12: what is accepted is exactly what is applied."""
    numbers = [hunk.number for hunk in hunks.split(original, modified)]
    assert hunks.accepted(original, modified, numbers) == modified
    assert hunks.accepted(original, modified, []) == original


@given(TEXTS, TEXTS, st.data())
def test_a_choice_changes_exactly_what_its_hunks_say(original, modified, data):
    """Decision 12: nothing but the accepted hunks is applied."""
    every = hunks.split(original, modified)
    chosen = data.draw(st.sets(st.sampled_from([hunk.number for hunk in every]))) if every else set()
    taken = [hunk for hunk in every if hunk.number in chosen]
    growth = sum(len("".join(hunk.added)) - len("".join(hunk.removed)) for hunk in taken)
    partly = hunks.accepted(original, modified, chosen)
    assert len(partly) == len(original) + growth
    assert all("".join(hunk.added) in partly for hunk in taken)


@pytest.mark.parametrize("numbers", [[1], [2], [1, 2]])
def test_only_accepted_hunks_are_applied(numbers):
    """Decision 12: per-hunk decisions."""
    text = hunks.accepted(ORIGINAL, MODIFIED, numbers)
    assert ("TWO" in text) is (1 in numbers)
    assert ("six" in text) is (2 in numbers)


def test_a_number_that_is_no_hunk_is_refused():
    """Errors say what there is."""
    with pytest.raises(WorkspaceError, match="there is no hunk 3: there are 1 to 2"):
        hunks.accepted(ORIGINAL, MODIFIED, [1, 3])
    with pytest.raises(WorkspaceError, match="the texts are the same"):
        hunks.accepted(ORIGINAL, ORIGINAL, [1])


def test_the_note_names_what_was_accepted_and_rejected():
    """Decision 12: the model is told, and told not to retry."""
    note = hunks.applied_note(ORIGINAL, MODIFIED, [1])
    assert note.startswith("A person accepted hunk 1 of 2 and rejected hunk 2.")
    assert "Do not propose again what was rejected" in note
    assert "+six" in note
    assert "TWO" not in note


def test_the_note_of_a_full_acceptance_is_short():
    """Decision 12."""
    assert hunks.applied_note(ORIGINAL, MODIFIED, [1, 2]) == "A person accepted hunks 1 and 2 of 2."


def test_the_note_of_a_full_rejection_carries_the_reason():
    """Decision 12."""
    note = hunks.applied_note(ORIGINAL, MODIFIED, [], "wrong file")
    assert note.startswith("A person accepted no hunk of 2 and rejected hunks 1 and 2 (wrong file).")


def test_a_long_hunk_is_shortened_in_the_note():
    """Results stay readable."""
    note = hunks.applied_note("", "".join(f"{n}\n" for n in range(500)), [])
    assert "more lines" in note
    assert len(note) < 1000


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@given(TEXTS, TEXTS)
def test_the_diff_is_one_that_patch_applies(tmp_path_factory, original, modified):
    """Seed 002, Diff Approval: a unified diff."""
    if original == modified:
        assert hunks.diff(original, modified, "file") == ""
        return
    directory = tmp_path_factory.mktemp("patch")
    (directory / "file").write_bytes(original.encode())
    change = hunks.diff(original, modified, "file").encode()
    command = ["patch", "--binary", "-p1", "-s", "-d", str(directory)]
    done = subprocess.run(command, input=change, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = (directory / "file").read_bytes() if (directory / "file").exists() else b""
    assert after == modified.encode()


def test_a_text_without_a_last_newline_is_marked_in_the_diff():
    """As in every unified diff."""
    assert hunks.diff("a", "b", "f").endswith(
        "-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("".join(f"{n}\n" for n in range(60_000)), "".join(f"{n + 7}x\n" for n in range(60_000))),
        ("x\n" * 5000 + "p\n", "q\n" + "x\n" * 4999),
        ("a\nb\n" * 3000, "b\nb\na\n" * 2500),
    ],
)
def test_texts_that_are_hard_to_compare_are_compared_in_a_moment(before, after):
    """Never a hang: past a bound the change is one hunk."""
    started = perf_counter()
    found = hunks.split(before, after)
    assert perf_counter() - started < 5
    assert hunks.apply(before, found) == after


def test_changes_at_both_ends_of_a_long_text_are_two_hunks():
    """A person must not have to decide about a whole file."""
    middle = "".join(f"{n}\n" for n in range(30_000))
    assert len(hunks.split(f"a\n{middle}b\n", f"c\n{middle}d\n")) == 2


def test_one_changed_line_in_a_long_text_is_one_small_hunk():
    """Common beginnings and ends cost nothing."""
    lines = [f"{n}\n" for n in range(100_000)]
    changed = [*lines[:50_000], "new\n", *lines[50_001:]]
    (hunk,) = hunks.split("".join(lines), "".join(changed))
    assert (hunk.start, hunk.removed, hunk.added) == (50_000, ("50000\n",), ("new\n",))
