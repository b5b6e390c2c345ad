"""Every fenced block of the documentation is run, and must do what the page says it does."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest

from tests.docs import model, pages, walkthrough
from tests.postgres import PostgresServer, why_none
from tests.providers.real_model import DATA, have_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.pages import Page


# What a page needs that runs the small model itself.
MODEL = "model"
# Pages that say so get a service that plays every model.
SERVICE = "service"
PAGES = {page.name: page for page in pages.all_pages() if page.blocks}
# They start programs by the hundred.
LONG = ("docs/how-to/", "docs/reference/cli.md")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name.startswith(LONG) else []) for name in PAGES],
)
def test_every_block_does_what_the_page_says(name: str, tmp_path: Path) -> None:
    """Style: every code block in README and docs is executed by a test."""
    page = PAGES[name]
    needed = {block.options["needs"] for block in page.blocks if "needs" in block.options}
    missing = [word for word in sorted(needed) if not _is_there(word)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    with _server_of(page) as environment:
        assert walkthrough.Walkthrough(page, tmp_path, environment).run() == len(page.blocks)


def _is_there(word: str) -> bool:
    """Tell whether there is a program, or a module of Python that is named with `python:`."""
    if word in (MODEL, SERVICE):
        return True
    module = word.removeprefix("python:")
    return bool(find_spec(module) if module != word else which(word))


@contextmanager
def _server_of(page: Page) -> Iterator[dict[str, str]]:
    """Start PostgreSQL for a page that makes a database, and have a model where it is asked.

    Gives what the programs of the page must know.
    """
    needed = {block.options.get("needs") for block in page.blocks}
    if MODEL in needed:
        have_model()
        yield {"XDG_DATA_HOME": str(DATA)}
        return
    if SERVICE in needed:
        with model.played() as service:
            yield model.environment(service)
        return
    if "createdb" not in needed:
        yield {}
        return
    if reason := why_none():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield {"PGHOST": str(server.directory), "PGUSER": "gramercy"}


def run_text(text: str, directory: Path) -> int:
    page: Page = pages.Page.parse(Path("page.md"), text)
    executed: int = walkthrough.Walkthrough(page, directory).run()
    return executed


GOOD = """
```python
answer = 6 * 7
```

They share a namespace.

```python
print(answer, "and more")
```

```text
42 …
```

```console
$ gramercy tools call read_note title=welcome \\
> --from examples/notes.py
Read me first.
$ gramercy --nonsense
…
Error: No such option …
$ echo $?
2
$ scripts/test
```

```gram finds="A105, A111"
[sayHello:Tool | (name::Text)==>(::String)]
```

```json title="kept.json"
{"kept": true}
```

```toml
kept = true
```

```console
$ cat kept.json
{"kept": true}
```

```lisp file="garden/src/beds.lisp"
(this is not run
```

```console
$ cat garden/src/beds.lisp
(this is not run
```
"""


def test_a_true_page_passes(tmp_path: Path) -> None:
    """Style: blocks of one page are run in order, in one place."""
    assert run_text(GOOD, tmp_path) == 10


PROMPT = """
```console answers="d|not today"
$ gramercy tools call save_notes path=x.md --from examples/notes.py
save_notes (dangerous)
…
approve, deny or edit? [a/d/e]: d
reason: not today
User denied …not today
$ echo $?
4
```
"""


def test_a_conversation_at_a_terminal_is_held(tmp_path: Path) -> None:
    """Style: what a person types is part of the example."""
    assert run_text(PROMPT, tmp_path) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```", "but what was printed is"),
        ("```python\nprint(1)\n```\nAs one would think.\n\n```text\n1\n```", "must directly follow"),
        ("```python\nprint(1)\n```\n", "does not show what was printed"),
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
        ("```python\nraise SystemExit\n```", "SystemExit"),
        ("```python\nimport os; os._exit(0)\n```", "ended the process"),
        ("```python\nimport warnings; warnings.warn('old')\n```", "UserWarning"),
        ("```text\n1\n```", "must directly follow"),
        ("```console\n$ echo 1\n2\n```", "but the output is"),
        ("```console\n$ false\n```", "failed with 1"),
        ("```console\n$ false\n$ true\n```", "a command failed"),
        ("```console\necho 1\n```", "starts with a command"),
        ("```console\n$ scripts/dance\n```", "does not exist"),
        ("```gram\n[hello:Tool | (name::Text)==>(::String)]\n```", "A105"),
        ('```gram finds="A105"\n(a)\n```', "A105"),
        ("```json\n{\n```", "not json"),
        ("```toml\n=\n```", "not toml"),
        ("```cobol\n```", "unknown language 'cobol'"),
        ("```\nanything\n```", "unknown language ''"),
    ],
)
def test_a_page_that_says_something_else_fails(text: str, complaint: str, tmp_path: Path) -> None:
    """Style: every test can fail, this machinery included."""
    with pytest.raises(walkthrough.DifferenceError, match=complaint):
        run_text(text, tmp_path)


def test_a_block_that_is_never_closed_is_refused(tmp_path: Path) -> None:
    """Style: every test can fail, this machinery included."""
    with pytest.raises(ValueError, match="never closed"):
        run_text("```python\n1", tmp_path)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a", "a\nb", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nd", True),
        ("a … c", "a b b c", True),
        ("a … c", "a b\nc", False),
        ("a.c", "abc", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_an_ellipsis_stands_for_anything_within_a_line_or_for_lines(
    expected: str, actual: str, *, same: bool
) -> None:
    """Style: wording that a page does not quote does not matter."""
    assert walkthrough.matches(expected, actual) is same
