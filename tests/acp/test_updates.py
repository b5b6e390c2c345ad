"""What an editor is shown of calls: differences with their places, titles, kinds, fences."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.acp.updates import differences, fenced, hunk_view, kind_of, one_line, view_of
from gramercy.execution.calls import ToolResult
from gramercy.providers.base import ModelCall
from gramercy.tools.content import ImageBlock
from gramercy.toolsets import hunks
from gramercy.toolsets.documents import lines
from tests.acp.editors import tool

# Lines that look like the headings of a difference are among them.
LINES = st.lists(
    st.sampled_from(["a", "b", "-- a/x", "++ b/x", "@@ -1 +1 @@", "\\ No newline", ""]), max_size=12
)
TEXTS = st.builds(lambda found, end: "\n".join(found) + end, LINES, st.sampled_from(["", "\n"]))


@given(TEXTS, TEXTS)
def test_the_parts_of_a_difference_lead_from_one_text_to_the_other(before, after):
    """Whatever the texts hold: what is shown as old and new is what is there, at the place that is named."""
    diffs, places = differences(hunks.diff(before, after, "x.txt"), "/project")
    old_rest, new = before, lines(after)
    for diff, place in zip(diffs, places, strict=True):
        assert diff["path"] == place["path"] == "/project/x.txt"
        shown = lines(diff["newText"])
        first = place["line"] - 1
        assert new[first : first + len(shown)] == shown or not shown
        old = diff["oldText"] or ""
        assert old in old_rest
        old_rest = old_rest[old_rest.index(old) + len(old) :]
    assert bool(diffs) is (before != after)


@given(TEXTS, TEXTS)
def test_every_hunk_is_shown_with_what_stands_around_it(before, after):
    view = view_of("c", ModelCall("1", "edit", '{"path": "x.txt"}'), None, "/project")
    found, text = hunks.split(before, after), lines(before)
    for hunk in found:
        [diff] = hunk_view(view, text, hunk, len(found)).diffs
        old, new = diff["oldText"] or "", diff["newText"]
        assert old in before
        assert "".join(hunk.removed) in old
        assert "".join(hunk.added) in new
        assert new in hunks.apply(before, [hunk])


def test_a_new_file_has_no_old_text():
    [diff], [place] = differences(hunks.diff("", "one\ntwo\n", "new.txt"), "/project")
    assert diff == {"type": "diff", "path": "/project/new.txt", "oldText": None, "newText": "one\ntwo\n"}
    assert place == {"path": "/project/new.txt", "line": 1}


def test_a_line_of_the_text_that_looks_like_a_heading_is_text():
    change = hunks.diff("-- a/etc/passwd\nkept\n", "++ b/etc/shadow\nkept\n", "x.txt")
    [diff], _ = differences(change, "/project")
    assert (diff["path"], diff["oldText"]) == ("/project/x.txt", "-- a/etc/passwd\nkept\n")


@given(st.text(alphabet="`a\n", max_size=40))
def test_nothing_in_a_text_closes_its_fence(text):
    """Editors read Markdown: what a tool says must not pass for what the agent says."""
    shown = fenced(text).split("\n")
    fence = shown[0]
    assert set(fence) == {"`"}
    assert shown[-1] == fence
    assert not any(line.strip().startswith(fence) for line in shown[1:-1])


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("read_file", "safe", "read"),
        ("search_files", "safe", "search"),
        ("evaluate-lisp", "cautious", "execute"),
        ("run_tests", "cautious", "execute"),
        ("delete_note", "dangerous", "delete"),
        ("sayHello", "safe", "other"),
    ],
)
def test_a_call_has_the_symbol_of_what_it_does(name, level, kind):
    assert kind_of(tool(name, level), name) == kind


def test_a_title_is_one_line_in_which_nothing_hides():
    call = ModelCall("1", "evaluate", '{"code": "1 +\\n\\u202e2"}')
    assert view_of("c", call, None, "/project").title == "evaluate 1 + ⟦U+202E⟧2"
    assert len(one_line("x" * 1_000)) == 120
    broken = view_of("c", ModelCall("1", "evaluate", '{"code": '), None, "/project")
    assert (broken.title, broken.arguments) == ("evaluate", '{"code": ')


def test_a_long_result_is_cut_and_a_picture_is_shown():
    view = view_of("c", ModelCall("1", "draw", "{}"), None, "/project")
    blocks = (ImageBlock(b"png", "image/png"),)
    shown = view.ended(ToolResult("1", success=True, content="x" * 30_000, metadata={"blocks": blocks}))
    text, picture = (each["content"] for each in shown["content"])
    assert "20,000 of 30,000 characters shown here" in text["text"]
    assert picture == {"type": "image", "data": "cG5n", "mimeType": "image/png"}


def test_paths_outside_of_the_project_are_named_as_they_are():
    view = view_of("c", ModelCall("1", "read", '{"path": "/etc/hosts", "start": 3}'), None, "/project")
    assert view.locations == [{"path": str(Path("/etc/hosts")), "line": 3}]
