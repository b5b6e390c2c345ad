"""Globs over argument values: exact, without prefix surprises, and harder to satisfy for allowing."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.execution.policy import possibly_matches, surely_matches


@pytest.mark.parametrize(
    ("glob", "value", "matches"),
    [
        ("notes.txt", "notes.txt", True),
        ("notes.txt", "notes.txt.bak", False),
        ("notes.txt", "my-notes.txt", False),
        ("notes", "Notes", False),
        ("*.txt", "a.txt", True),
        ("*.txt", ".txt", True),
        ("*.txt", "dir/a.txt", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a?c", "ac", False),
        ("notes/*", "notes/a", True),
        ("notes/*", "notes/a/b", False),
        ("notes/*", "notes", False),
        ("notes/**", "notes/a/b", True),
        ("notes/**", "notes/", True),
        ("notes/**", "notes", False),
        ("notes/**", "notesx/a", False),
        ("**", "", True),
        ("**", "any/thing", True),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("**/secret", "secret", True),
        ("**/secret", "a/b/secret", True),
        ("**/secret", "a/notsecret", False),
        ("**/*.py", "src/a/b.py", True),
        ("**/*.py", "b.py", True),
        ("src/**/test_*.py", "src/test_a.py", True),
        ("src/**/test_*.py", "src/a/b/test_c.py", True),
        ("src/**/test_*.py", "src/a/btest_c.py", False),
        ("a**b", "a/x/b", True),
        ("***", "a/b", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a*b*c", "axxbyyc", True),
        ("a*b*c", "acb", False),
    ],
)
def test_globs_cover_whole_values(glob, value, matches):
    """Guard design, Policy: exact globs, no prefix surprise."""
    assert surely_matches(glob, value) is matches
    assert possibly_matches(glob, value) is matches


@pytest.mark.parametrize(
    "value",
    [
        "notes/../etc/passwd",
        "notes/a/..",
        "notes/..",
        "notes\\..\\etc",
        "notes/a\\..\\..\\b",
        "notes/a\nb",
        "notes/a\rb",
        "notes/a\x00",
        "notes/a\u2028b",
        "notes/" + "a" * 10_001,
    ],
)
def test_a_wildcard_never_allows_what_leads_out_of_it(value):
    """Guard design, Policy: doubt counts against allowing."""
    assert not surely_matches("notes/**", value)


def test_a_value_written_out_in_the_rule_is_what_its_author_saw():
    """An exact value is no wildcard."""
    assert surely_matches("notes/../a", "notes/../a")
    assert surely_matches("*", "*")
    assert surely_matches("a..b/**", "a..b/c")


@pytest.mark.parametrize(
    ("glob", "value"),
    [
        ("/etc/**", "/etc/../etc/passwd"),
        ("/etc/**", "/tmp/../etc/passwd"),
        ("/etc/**", "//etc/passwd"),
        ("/etc/**", "///etc//passwd"),
        ("/etc/**", "/./etc/passwd"),
        ("/etc/passwd", "/etc/x/../passwd"),
        ("secrets/**", "./secrets/a"),
        ("secrets/**", "a/../secrets/b"),
        ("secrets/**", "secrets\\key"),
        ("secrets/**", "a\\..\\secrets\\key"),
        ("**/.env", "./.env"),
        ("secrets/**", "secrets/a\nb"),
        ("secrets/**", "x" * 10_001),
        ("secrets/**", ["ok", "secrets/a"]),
        ("secrets/**", {"from": {"path": ["secrets/a"]}}),
    ],
)
def test_a_rule_that_restricts_is_not_evaded_by_another_spelling(glob, value):
    """Guard design, Policy: doubt counts for asking and denying."""
    assert possibly_matches(glob, value)


@pytest.mark.parametrize("value", [["secrets/a"], {"path": "secrets/a"}, ["notes/a", "secrets/a"]])
def test_a_list_is_not_surely_what_one_of_its_items_is(value):
    """Allowing a value must not allow a list that holds it and more."""
    assert not surely_matches("secrets/**", value)


@pytest.mark.parametrize("value", ["", ".", "a/b", 3, None, True, [], {}, 2.5])
def test_any_value_can_be_compared(value):
    """Values are whatever the schema allows."""
    assert possibly_matches("**", value)
    assert not surely_matches("nothing", value)


def test_the_worst_value_for_the_worst_glob_is_answered():
    """The matcher walks a value once, so no value can make it slow."""
    assert not surely_matches("*a" * 20 + "b", "a" * 5_000)
    assert not possibly_matches("**a" * 20 + "b", "a" * 5_000)


@given(st.text("ab/*?.", max_size=8), st.text("ab/.", max_size=8))
def test_without_slashes_and_dots_globs_agree_with_the_shell(glob, value):
    """The wildcards mean within one segment what they mean elsewhere."""
    glob, value = glob.replace("/", "").replace("**", "*"), value.replace("/", "").replace(".", "a")
    assert surely_matches(glob, value) == (glob == value or fnmatch.fnmatchcase(value, glob))


@given(st.text("ab/*?.", max_size=8), st.text("ab/.\\\n", max_size=8))
def test_whatever_is_surely_a_match_is_possibly_one(glob, value):
    """A deny rule covers at least what the same allow rule covers."""
    assert possibly_matches(glob, value) or not surely_matches(glob, value)
