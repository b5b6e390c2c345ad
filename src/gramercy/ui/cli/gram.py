"""`gramercy gram`: check, format and translate gram files.

Exit codes: 0 clean, 1 something was found, 2 wrong usage or an unreadable file, 3 tools that do not load.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from gramercy.errors import GramError, PositionedGramError, UnreadableFileError
from gramercy.text import counted
from gramercy.ui.cli.files import STDIN, Reader, TextFile, print_line, read_text, replace_text
from gramercy.ui.cli.options import json_option, sources_option
from gramercy.ui.cli.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gramercy.gram.lint.diagnostics import Diagnostic
    from gramercy.gram.lint.linter import Mismatch
    from gramercy.gram.specification import ToolSpecification

FOUND, UNUSABLE = 1, 2
GRAM_SUFFIXES: Final = (".gram",)
LINTED_SUFFIXES: Final = (".gram", ".md", ".markdown")

_paths = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
_as_json = json_option("Print JSON.")


@click.group()
def group() -> None:
    """Check, format and translate gram files; - is standard input."""


@group.command()
@_paths
@_as_json
@click.pass_context
def lint(context: click.Context, paths: Sequence[str], *, as_json: bool) -> None:
    """Report what is wrong with gram files and with the gram blocks of Markdown files."""
    context.exit(_lint(paths, as_json=as_json))


@group.command()
@_paths
@sources_option
@_as_json
@click.pass_context
def check(context: click.Context, paths: Sequence[str], sources: Sequence[str], *, as_json: bool) -> None:
    """Lint, and report every tool that the given Python tools do not implement."""
    from gramercy.workbench.sources import load_tools

    library = load_tools(*sources).library()
    context.exit(_lint(paths, as_json=as_json, explain=library.explain_binding))


def _lint(
    paths: Sequence[str],
    *,
    as_json: bool,
    explain: Callable[[ToolSpecification], Iterable[Mismatch]] | None = None,
) -> int:
    from gramercy.gram.lint.diagnostics import is_clean
    from gramercy.gram.lint.linter import lint as lint_text

    reader = Reader(LINTED_SUFFIXES)
    found = [
        (file.name, lint_text(file.text, path=file.path, explain=explain)) for file in reader.read(paths)
    ]
    if as_json:
        _show_report(found)
    else:
        _show_lines(found)
    if reader.problems:
        return UNUSABLE
    return 0 if all(is_clean(diagnostics) for _, diagnostics in found) else FOUND


def _show_report(found: Sequence[tuple[str, Sequence[Diagnostic]]]) -> None:
    from gramercy import __version__
    from gramercy.gram.lint.diagnostics import make_report

    _show_json(make_report(found, tool=f"gramercy/{__version__}"))


def _show_lines(found: Sequence[tuple[str, Sequence[Diagnostic]]]) -> None:
    counts: Counter[str] = Counter()
    for name, diagnostics in found:
        for item in diagnostics:
            counts[item.severity.value] += 1
            place = f"{name}:{item.start.line + 1}:{item.start.character + 1}"
            print_line(visible(f"{place}: {item.severity.value} {item.code}: {item.message}"))
    total = ", ".join(f"{count} {severity}" for severity, count in counts.items()) or "nothing found"
    print_line(f"{counted(len(found), 'file')}: {total}", err=True)


@group.command()
@_paths
@click.option("--check", "only_check", is_flag=True, help="Change nothing; list the files that would change.")
@_as_json
@click.pass_context
def fmt(context: click.Context, paths: Sequence[str], *, only_check: bool, as_json: bool) -> None:
    """Lay gram files out in the one canonical way; comments and spelling stay."""
    if as_json and not only_check and "-" in paths:
        raise click.UsageError("standard output cannot hold both the formatted text of - and --json")
    reader = Reader(GRAM_SUFFIXES)
    outcomes: dict[str, list[str]] = {"changed": [], "unchanged": [], "failed": []}
    for file in reader.read(paths):
        try:
            outcomes[_format(file, only_check=only_check)].append(file.name)
        except UnreadableFileError as error:
            reader.report(str(error))
    if as_json:
        _show_json(outcomes)
    elif only_check:
        for name in outcomes["changed"]:
            print_line(name)
    if reader.problems:
        context.exit(UNUSABLE)
    context.exit(FOUND if outcomes["failed"] or (only_check and outcomes["changed"]) else 0)


def _format(file: TextFile, *, only_check: bool) -> str:
    """Format one file. Return a description of the result."""
    from gramercy.gram.syntax.formatter import format_gram
    from gramercy.gram.syntax.reader import MARKDOWN_SUFFIXES

    if file.path.lower().endswith(MARKDOWN_SUFFIXES):
        raise UnreadableFileError(f"{file.name}: Markdown is linted but not formatted; give .gram files")
    try:
        formatted = format_gram(file.text)
    except GramError as error:
        print_line(_error_text(file.name, error), err=True)
        return "failed"
    if not only_check:
        _put(file, formatted)
    return "unchanged" if formatted == file.text else "changed"


def _put(file: TextFile, formatted: str) -> None:
    if file.path == STDIN:
        click.echo(formatted.encode("utf-8"), nl=False)
    elif formatted != file.text:
        replace_text(file.path, formatted)
        print_line(f"formatted {file.name}", err=True)


@group.command()
@click.argument("path", metavar="FILE")
@click.argument("name", required=False)
@_as_json
@click.pass_context
def schema(context: click.Context, path: str, name: str | None, *, as_json: bool) -> None:
    """Print the JSON Schemas of a file's tools by name, or that of the one tool NAME.

    A file that holds nothing but a type signature gives the schema of its arguments.
    """
    del as_json  # The output is JSON in any case.
    try:
        file = read_text(path)
        schemas = _schemas(file)
        if not schemas and name is None:
            schemas = _signature_schema(file)
    except UnreadableFileError as error:
        print_line(str(error), err=True)
        context.exit(UNUSABLE)
    except GramError as error:
        print_line(_error_text(path, error), err=True)
        context.exit(FOUND)
    if name is not None:
        schemas = _one_schema(file.name, schemas, name)
    _show_json(schemas)


def _schemas(file: TextFile) -> dict[str, Any]:
    from gramercy.gram.specification import specifications_in
    from gramercy.gram.syntax.reader import gram_sources, read

    found: dict[str, Any] = {}
    for source in gram_sources(file.text, file.path):
        # Blank lines in front keep the line numbers of the file in error messages.
        document = read("\n" * source.first_line + source.text)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found |= {item.name: item.schema for item in specifications_in(document)}
        for warning in caught:
            print_line(f"{file.name}: warning: {visible(str(warning.message))}", err=True)
    return found


def _signature_schema(file: TextFile) -> dict[str, Any]:
    from gramercy.gram.signatures.signature import type_signature_to_json_schema

    if not file.text.lstrip().startswith("("):
        raise UnreadableFileError(f"{file.name}: no tool specification and no type signature in it")
    return type_signature_to_json_schema(file.text)


def _one_schema(file_name: str, schemas: dict[str, Any], name: str) -> Any:
    from gramercy.gram.suggestion import did_you_mean

    if name not in schemas:
        hint = did_you_mean(name, schemas, before="; ")
        raise click.UsageError(f"{file_name} has no tool {name!r}{hint}")
    return schemas[name]


def _error_text(name: str, error: GramError) -> str:
    separator = ":" if isinstance(error, PositionedGramError) else ": "
    return visible(f"{name}{separator}{error}")


def _show_json(value: Any) -> None:
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print_line(json.dumps(value, indent=2, ensure_ascii=not is_unicode))
