"""The linter: every code, every place, in gram and in Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.gram.lint.diagnostics import RULES, Position, Severity, is_clean, make_report
from gramercy.gram.lint.linter import lint, lint_bindings
from gramercy.gram.syntax.reader import read

if TYPE_CHECKING:
    from gramercy.gram.specification import ToolSpecification

CLEAN = """\
[helper:Agent {instruction: "Help.", model: "OpenAI/gpt-4o-mini"} |
  [say_hello:Tool {description: "Says hello"} | (name::Text)==>(::String)]
]
"""


def codes(text: str, path: str = "") -> list[str]:
    return [item.code for item in lint(text, path=path)]


def tool(inside: str = 'description:"d"', signature: str = "(a::Text)==>(::String)", name: str = "t") -> str:
    return f"[{name}:Tool {{{inside}}} | {signature}]"


def agent(*elements: str, inside: str = 'instruction:"i", model:"A/b"', name: str = "g") -> str:
    return f"[{name}:Agent {{{inside}}} | {', '.join(elements)}]"


def test_a_clean_text_has_no_findings():
    """Nothing to say is said with nothing."""
    assert lint(CLEAN) == []
    assert lint("") == []


@pytest.mark.parametrize(
    ("text", "code", "fragment"),
    [
        ("[a:Tool ]]", "syntax-error", "found ']'"),
        ("[a:Tool {", "missing-node", "found the end of the text"),
        ("(a::Text", "missing-node", "')'"),
        ("(a:P)-->(b) (a:P)", "duplicate-element", "'a'"),
        ("[x | (a:P), (a:P)]", "duplicate-element", "'a'"),
        (tool() + tool(), "duplicate-element", "'t'"),
        (agent(tool()) + agent(tool(), name="h"), "duplicate-element", "'t'"),
        ("({a:1, a:2})", "duplicate-key", "'a'"),
        ("{a:1, a:2}", "duplicate-key", "'a'"),
        ("(x)-[{a:1, a:2}]->(y)", "duplicate-key", "'a'"),
        ("[g:Agent]", "A101", "no instruction"),
        (agent(tool(), inside='instruction:"i"'), "A101", "no model"),
        (agent(tool(), inside='model:"A/b"'), "A101", "no instruction"),
        (agent(tool(), inside='instruction:"i", model:"gpt"'), "A101", "Provider/id"),
        (agent(tool(), inside='instruction:"i", modle:"A/b"'), "A101", "did you mean 'model'"),
        (agent("t", "t") + tool(), "A102", "'t'"),
        (agent(tool(), tool()), "A102", "'t'"),
        (tool(signature="(a::Txt)==>(::String)"), "A103", "did you mean Text?"),
        (tool(signature="(a::Text)<==(::String)"), "A103", "points left"),
        (tool(signature="a, b"), "A103", "one element"),
        (tool('description:"d", safety:danger'), "A103", "did you mean 'dangerous'"),
        (tool('description:"d", safty:safe'), "A103", "did you mean 'safety'"),
        (tool(signature='(a::Int {default:"x"})==>(::String)'), "A104", "default of 'a'"),
        (tool('safety:"safe"'), "A105", "no description"),
        (tool('description:" "'), "A105", "no description"),
        (tool(signature="(::Text)==>(::String)"), "A106", "'input'"),
        (agent("nobody"), "A107", "'nobody'"),
        (agent("tt") + tool(name="t1t"), "A107", "did you mean"),
        (agent("(t)") + tool(), "A107", "expected a tool"),
        (agent("g"), "A107", "circle: g > g"),
        (
            tool(signature='(a::Object {fields:[{name:"x", type:"Int"}]})==>(::String)'),
            "A113",
            "not portable",
        ),
        (tool(signature="(a::Text {examples:[{a:1}]})==>(::String)"), "A108", "not portable"),
        (tool(signature="(a::`[Int]` {default:[]})==>(::String)"), "A108", "not portable"),
        (tool('description:"d", schema:json`{"type":"object"}`'), "A110", "stored schema differs"),
        (tool(name="sayHello"), "A111", "snake_case"),
    ],
)
def test_every_fault_has_its_code(text, code, fragment):
    """Design of the gram layer, Ecosystem fit."""
    assert any(fragment in item.message for item in lint(text) if item.code == code)


def test_all_faults_are_found_at_once_and_in_order():
    """A linter does not stop at the first fault."""
    text = agent(
        "nobody",
        tool("", "(::Txt)==>(::String)", "one"),
        tool('description:"d"', '(::Int {default:"x"})==>(b::Int {default:"y"})==>(::String)', "two"),
        inside="",
    )
    assert codes(text) == ["A101", "A101", "A107", "A105", "A103", "A106", "A104", "A104"]
    starts = [item.start for item in lint(text)]
    assert starts == sorted(starts)


def test_positions_count_utf16_units_from_zero():
    """Design of the gram layer: 0-based UTF-16 ranges."""
    second = '  (a::Text {description:"\N{GRINNING FACE}é"})==>(b::Txt)==>(::String)]'
    text = f'[say:Tool {{description:"x"}} |\n{second}'
    (found,) = lint(text)
    assert found.start == Position(1, second.index("::Txt") + 1)
    assert found.end == Position(1, second.index("::Txt") + 2)


def test_a_report_has_the_shape_other_gram_programs_print():
    """Design of the gram layer, Ecosystem fit."""
    report = make_report([("a.gram", lint("[t:Tool {")), ("b.gram", [])], tool="gramercy/1")
    place = {"line": 0, "character": 9}
    assert report == {
        "schema_version": 1,
        "tool": "gramercy/1",
        "files": [
            {
                "path": "a.gram",
                "diagnostics": [
                    {
                        "severity": "error",
                        "message": "expected a property name, found the end of the text",
                        "range": {"start": place, "end": place},
                        "code": "missing-node",
                    }
                ],
            },
            {"path": "b.gram", "diagnostics": []},
        ],
    }


def test_information_alone_leaves_a_text_clean():
    """The seed's own sayHello is no snake_case, and is right."""
    found = lint(tool(name="sayHello"))
    assert [item.severity for item in found] == [Severity.INFORMATION]
    assert is_clean(found)
    assert not is_clean(lint("("))


MARKDOWN = """\
# Title

```gram
[t:Tool {description:"d"} | (a::Txt)==>(::String)]
```

```python
[t:Tool {
```

`````markdown
```gram
(
```
`````

1. In a list:
   ```GRAM title="x"
   ]
   ```

~~~~gram
[u:Tool {description: ```
several
lines
```} | (::Text)==>(::String)]
~~~~

Text with ```gram ( ``` inside.

```gram
(
"""


def test_only_the_gram_blocks_of_markdown_are_read_with_the_lines_of_the_file():
    """Design of the gram layer: reads Markdown fences."""
    found = lint(MARKDOWN, path="notes.MD")
    lines = MARKDOWN.split("\n")
    assert [(item.code, lines[item.start.line].strip()) for item in found] == [
        ("A103", '[t:Tool {description:"d"} | (a::Txt)==>(::String)]'),
        ("syntax-error", "]"),
        ("A106", "```} | (::Text)==>(::String)]"),
        ("missing-node", ""),
    ]
    assert found[1].start.character == 3


def test_markdown_without_gram_is_clean():
    """Other text is none of our business."""
    assert lint("# [a:Tool {\n\n    (\n", path="x.md") == []


@dataclass(frozen=True)
class Difference:
    path: str
    text: str

    def __str__(self) -> str:
        return self.text


def test_bindings_are_explained_by_whoever_knows_the_tools():
    """Design of the gram layer, A109 and A112."""

    def explain(specification: ToolSpecification) -> list[Difference]:
        if specification.name == "unknown":
            return [Difference("name", "nothing of that name")]
        if specification.name == "milder":
            return [Difference("safety", "safe is lower than dangerous")]
        return []

    text = "\n".join(tool(name=name) for name in ("known", "unknown", "milder"))
    found = lint_bindings(read(text), explain)
    assert [(item.code, item.start.line) for item in found] == [("A109", 1), ("A112", 2)]
    assert "nothing of that name" in found[0].message
    assert lint(text, explain=explain) == found


def test_a_tool_that_cannot_be_read_is_not_bound():
    """Its own faults are reported instead."""
    assert (
        lint_bindings(read(tool(signature="(a::Txt)==>(::String)")), lambda _: [Difference("x", "x")]) == []
    )


def test_every_rule_has_a_summary():
    """The table is what the reference is made from."""
    assert [code for code in RULES if code.startswith("A")] == [f"A{number}" for number in range(101, 114)]
    assert all(rule.summary and rule.code == code for code, rule in RULES.items())


def test_a_large_file_of_agents_is_linted_in_linear_time():
    """A circle is looked for once, not once for each agent."""
    count = 1500
    text = "".join(agent(f"a{(number + 1) % count}", name=f"a{number}") for number in range(count))
    assert codes(text) == ["A107"]


@given(st.text(alphabet='[]{}()|:,=>-<~"`\n atTolgen1descripmuf.Å😀', max_size=60))
def test_any_text_can_be_linted(text):
    """A linter never fails, whatever it reads."""
    for item in [*lint(text), *lint(f"```gram\n{text}", path="x.md")]:
        assert item.start <= item.end
        assert item.to_json()["code"] in RULES
