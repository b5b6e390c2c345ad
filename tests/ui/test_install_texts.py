"""Settings are changed as a careful person would: one entry, and not a letter besides."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import ClientSettingsError
from gramercy.ui.clients.json_settings import JsonSettings, JsonText
from gramercy.ui.clients.toml_settings import TomlSettings

STRICT = JsonSettings("servers")
LOOSE = JsonSettings("servers", frozenset({"comments", "commas"}))
TOML = TomlSettings("servers")
ENTRY = {"command": "/x/gramercy", "args": ["serve"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "servers": {\n    "g": {"n": 1}\n  }\n}\n'),
        ("{}", '{\n  "servers": {\n    "g": {"n": 1}\n  }\n}'),
        ('{"servers": {"a": {}}}', '{"servers": {"a": {}, "g": {"n": 1}}}'),
        ('{"servers": {"a": {},}}', '{"servers": {"a": {}, "g": {"n": 1},}}'),
        ('{\n\t"servers": {\n\t}\n}', '{\n\t"servers": {\n\t\t"g": {"n": 1}\n\t}\n}'),
        ('{\r\n "servers": {}\r\n}', '{\r\n "servers": {\r\n  "g": {"n": 1}\r\n }\r\n}'),
        (
            '{"servers": {\n  "a": {} // a, not b\n  /* and } */\n}}',
            '{"servers": {\n  "a": {}, // a, not b\n  /* and } */\n  "g": {"n": 1}\n}}',
        ),
        (
            '{"servers": {\n  "a": {}, // trailing\n}}',
            '{"servers": {\n  "a": {}, // trailing\n  "g": {"n": 1},\n}}',
        ),
        (
            '// 1\n{\n  // 2\n  "x": "// \\" no"\n}\n// 3\n',
            '// 1\n{\n  // 2\n  "x": "// \\" no",\n  "servers": {\n    "g": {"n": 1}\n  }\n}\n// 3\n',
        ),
        ("// nothing\n", '// nothing\n{\n  "servers": {\n    "g": {"n": 1}\n  }\n}\n'),
        ('\ufeff{"servers": {"g": null}}', '\ufeff{"servers": {"g": {"n": 1}}}'),
    ],
)
def test_an_entry_goes_where_a_person_would_put_it(before, after):
    """MCP checklist 13: order and comments stay."""
    changed = LOOSE.put(before, "g", {"n": 1})
    # What is inside the entry is the same in all cases, and shown once below.
    one_line = changed.replace("\r\n", "\n")
    for indentation in ("      ", "   ", "\t\t\t", "    "):
        outer = {"      ": "    ", "   ": "  ", "\t\t\t": "\t\t", "    ": "  "}[indentation]
        one_line = one_line.replace(f'{{\n{indentation}"n": 1\n{outer}}}', '{"n": 1}')
    assert one_line == after.replace("\r\n", "\n")
    assert ("\r\n" in changed) == ("\r\n" in before)
    assert LOOSE.put(changed, "g", {"n": 1}) == changed


def test_an_entry_is_written_in_the_indentation_of_the_file():
    """MCP checklist 13."""
    changed = STRICT.put('{\n    "servers": {\n    }\n}', "g", ENTRY)
    assert changed == (
        '{\n    "servers": {\n        "g": {\n            "command": "/x/gramercy",\n'
        '            "args": [\n                "serve"\n            ]\n        }\n    }\n}'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"servers": {"g": {}}}', '{"servers": {}}'),
        ('{"servers": {"g": {}, "a": 1}}', '{"servers": {"a": 1}}'),
        ('{"servers": {"a": 1, "g": {}}}', '{"servers": {"a": 1}}'),
        ('{"servers": {"a": 1, "g": {},}}', '{"servers": {"a": 1, }}'),
        ('{"servers": {\n  "g": {}, // ours\n  "a": 1\n}}', '{"servers": {\n  // ours\n  "a": 1\n}}'),
        ('{"servers": {\n  "a": 1, // a\n  "g": {}\n}}', '{"servers": {\n  "a": 1 // a\n}}'),
        (
            '{"servers": {\n  "a": 1, // a\n  "g": {}, "b": 2\n}}',
            '{"servers": {\n  "a": 1, // a\n  "b": 2\n}}',
        ),
        ('{"servers": {\r\n "a": 1,\r\n "g": {}\r\n}}', '{"servers": {\r\n "a": 1\r\n}}'),
        ('{"g": {}}', '{"g": {}}'),
        ("", ""),
    ],
)
def test_an_entry_goes_without_a_trace(before, after):
    """MCP checklist 13: only our entry is taken out."""
    assert LOOSE.drop(before, "g") == after


NAMES = st.text(max_size=4).filter(lambda name: name not in ("servers", "g"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.builds(
    lambda rest, servers: {**rest, **({} if servers is None else {"servers": servers})},
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.none() | st.dictionaries(NAMES, VALUES, max_size=3),
)


@given(DOCUMENTS, st.sampled_from([None, 0, 2, "\t"]), st.booleans(), st.booleans())
def test_whatever_else_is_there_stays(document, indent, is_ascii, has_spaces):
    """MCP checklist 13: everything that is there is kept."""
    separators = (", ", ": ") if has_spaces else (",", ":")
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii, separators=separators)
    changed = STRICT.put(text, "g", ENTRY)
    servers = {**document.get("servers", {}), "g": ENTRY}
    assert json.dumps(json.loads(changed)) == json.dumps({**document, "servers": servers})
    emptied = STRICT.drop(changed, "g")
    assert json.dumps(json.loads(emptied)) == json.dumps({**document, "servers": document.get("servers", {})})
    if "servers" in document and has_spaces:
        assert emptied == text


@given(st.text(alphabet='{}[]",:/* \n\\ab1', max_size=40))
def test_no_text_is_too_odd(text):
    """Bad input is refused, or changed into something that is still readable."""
    try:
        changed = LOOSE.put(text, "g", ENTRY)
    except ClientSettingsError:
        return
    assert LOOSE.get(changed, "g") == ENTRY
    assert LOOSE.get(LOOSE.drop(changed, "g"), "g") is None


def test_a_large_file_is_no_matter():
    """Performance: the settings of a busy client have megabytes."""
    document = {"history": [{"text": "x" * 100, "n": n} for n in range(20_000)], "servers": {"a": {}}}
    text = json.dumps(document, indent=2)
    assert json.loads(STRICT.put(text, "g", ENTRY))["servers"] == {"a": {}, "g": ENTRY}
    assert STRICT.drop(STRICT.put(text, "g", ENTRY), "g") == text


def test_places_are_those_of_the_real_text():
    """Comments are blanked, not cut."""
    with pytest.raises(ClientSettingsError, match="line 3, column 8: expecting value"):
        JsonText('{ /* a\n b */\n  "a": ?\n}', frozenset({"comments"}))


SNIPPET = '[servers.g]\ncommand = "/x/gramercy"\nargs = ["serve"]\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", SNIPPET),
        ("a = 1\n", f"a = 1\n\n{SNIPPET}"),
        ("a = 1 # no newline", f"a = 1 # no newline\n\n{SNIPPET}"),
        ("[servers]\n[servers.b]\nx = 1\n", f"[servers]\n[servers.b]\nx = 1\n\n{SNIPPET}"),
        (
            '[servers."g"] # ours\nargs = [ # old\n  "x", # ]\n] # z\nenv = {}\n\n# next\n[z]\n',
            '[servers."g"] # ours\ncommand = "/x/gramercy"\nargs = ["serve"] # z\nenv = {}\n\n# next\n[z]\n',
        ),
        (
            "[ servers . g ]\ncommand = '''\n[z]\n'''",
            '[ servers . g ]\nargs = ["serve"]\ncommand = "/x/gramercy"',
        ),
        ("a = 1\r\n", "a = 1\r\n\r\n" + SNIPPET.replace("\n", "\r\n")),
    ],
)
def test_a_table_is_added_or_brought_up_to_date(before, after):
    """MCP checklist 13: TOML for Codex."""
    changed = TOML.put(before, "g", ENTRY)
    assert changed == after
    assert TOML.put(changed, "g", ENTRY) == changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"a = 1\n\n{SNIPPET}", "a = 1\n"),
        (f"{SNIPPET}\n# next\n[z]\n", "\n# next\n[z]\n"),
        (f"a = 1\n\n{SNIPPET}\n[z]\nb = 2\n\n[servers.g.env]\nA = '1'\n", "a = 1\n\n[z]\nb = 2\n"),
        (
            "a = [\n  [1],\n  [2]\n]\n[servers.g]\nx = '''\n[servers.h]\n'''\n[servers.h]\n",
            "a = [\n  [1],\n  [2]\n]\n[servers.h]\n",
        ),
        ("[servers.h]\n", "[servers.h]\n"),
    ],
)
def test_a_table_goes_with_those_below_it(before, after):
    """MCP checklist 13: --remove."""
    assert TOML.drop(before, "g") == after


@pytest.mark.parametrize(
    "text",
    [
        "servers = {}\n",
        "servers = 3\n",
        "[[servers]]\n",
        "servers.g.command = 'x'\n",
        "[servers]\ng = {command = 'x'}\n",
        "[servers]\ng.command = 'x'\n",
    ],
)
def test_a_form_that_cannot_be_changed_safely_is_left_to_the_person(text):
    """Rather no change than a wrong one."""
    tomllib.loads(text)
    with pytest.raises(ClientSettingsError, match=r"by hand|is not a table"):
        TOML.put(text, "g", ENTRY)


@given(st.lists(st.text(max_size=6), max_size=3))
def test_every_word_of_a_command_survives_in_toml(words):
    """Paths may have quotes, backslashes and line breaks."""
    entry = {"command": "x", "args": words}
    assert tomllib.loads(TOML.put("", "g", entry))["servers"]["g"] == entry
