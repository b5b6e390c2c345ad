"""The reference is complete and up to date, the README is short, and every link leads somewhere."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import gramercy
from gramercy import errors
from gramercy.gram.lint.diagnostics import RULES
from gramercy.ui.cli.main import cli
from tests.docs import pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.pages import Page


ROOT = Path(__file__).resolve().parents[2]
PAGES: dict[str, Page] = {page.name: page for page in pages.all_pages()}


def headings(name: str) -> set[str]:
    return {line.lstrip("#").strip() for _, line in PAGES[name].prose if line.startswith("#")}


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_generated_pages_are_up_to_date() -> None:
    """Style: the reference is generated and checked for drift."""
    done = generate("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_generator_refuses_what_it_does_not_know() -> None:
    """Style: a misspelt --check must not write."""
    assert generate("--chek").returncode == 2


def test_every_public_name_is_documented() -> None:
    """Style: a test fails when something is undocumented."""
    assert sorted(set(gramercy.__all__) - headings("docs/reference/api.md")) == []


def test_every_command_is_documented() -> None:
    """Style: a test fails when something is undocumented."""
    assert sorted(set(commands("gramercy", cli)) - headings("docs/reference/cli.md")) == []


def test_every_option_is_under_its_command_or_in_the_section_that_it_names() -> None:
    """The page tells the options of images once; a command that has them refers to that section."""
    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    shared = listed_options(sections["Options of images"])
    missing, referring = [], 0
    for names, command in every_command("gramercy", cli):
        own, reference, excepted = sections[names].partition("[options of images](#options-of-images)")
        told = listed_options(own)
        if reference:
            told |= shared - set(re.findall(r"`(--[\w-]+)`", excepted))
            referring += 1
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                words = {word for word in (*option.opts, *option.secondary_opts) if word.startswith("--")}
                missing += [(names, word) for word in sorted(words - told)]
    assert missing == []
    assert min(len(shared), referring) > 10


def listed_options(section: str) -> set[str]:
    """Return the options that begin a line of a help or a row of a table; not those that prose names."""
    rows = re.findall(r"^(?:  |\| `)(--?[a-zA-Z].*?)(?:  |`|$)", section, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"--[\w-]+", row)}


def commands(names: str, command: click.Command) -> Iterator[str]:
    yield from (words for words, _ in every_command(names, command))


def every_command(names: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from every_command(f"{names} {name}", inner)


def test_every_error_is_documented() -> None:
    """Style: a test fails when something is undocumented."""
    classes = inspect.getmembers(errors, inspect.isclass)
    found = {name for name, kind in classes if issubclass(kind, errors.GramercyError)}
    assert sorted(found - headings("docs/reference/errors.md")) == []


def test_every_lint_code_is_documented() -> None:
    """Style: a test fails when something is undocumented."""
    assert sorted(RULES.keys() - headings("docs/reference/lint-codes.md")) == []


def test_every_page_is_listed_in_the_index() -> None:
    """Style: a page that nobody can find is not documentation."""
    listed = {target.partition("#")[0] for _, target in PAGES["docs/index.md"].links()}
    written = {name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")} - {"index.md"}
    assert sorted(written - listed) == []


def test_the_readme_is_short_and_shows_an_example_at_once() -> None:
    """Style: README has at most 150 lines and a ten-line example before line 30."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    first = next(block for block in PAGES["README.md"].blocks if block.language == "python")
    assert len([line for line in first.text.splitlines() if line.strip()]) <= 10
    assert first.line + first.text.count("\n") + 1 < 30


def broken_links(page: Page) -> list[str]:
    found = []
    for line, target in page.links():
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        linked = (page.path.parent / path).resolve()
        if path and not linked.exists():
            found.append(f"{page.name}:{line}: {target} does not exist")
        elif anchor and anchor not in (pages.Page.read(linked) if path else page).anchors():
            found.append(f"{page.name}:{line}: {target} has no such heading")
    return found


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    """Style: links and anchors are part of what is checked."""
    assert broken_links(PAGES[name]) == []


def test_links_that_lead_nowhere_are_found() -> None:
    """Style: every test can fail, this machinery included."""
    text = "# Here\n\n[a](gone.md) [b](README.md#nowhere) [c](#here) [d](#there) `[e](gone.md)` [f](https://x.org)\n"
    page = pages.Page.parse(ROOT / "CHANGELOG.md", text)
    assert [link.rpartition(": ")[2].split()[0] for link in broken_links(page)] == [
        "gone.md",
        "README.md#nowhere",
        "#there",
    ]
