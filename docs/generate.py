"""Write the generated pages of docs/reference from the program itself; --check only compares.

api.md comes from `gramercy.__all__`, attempts.md from the battery of the doctor, cli.md from the commands,
configuration.md from the table of settings, errors.md from the error tree, lint-codes.md from the linter's
table, tools.md from the tools.
Everything that can be run is run: the messages are real.
"""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

import contextlib
import io
import sys
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import click
from attempts import attempts_page
from configuration import configuration_page
from interface import describe_name
from listing import tools_page
from samples import ERROR_IMPORTS, ERRORS, GRAM, GRAM_OF_NOTES, RESULTS, UNSHOWN

import gramercy
from gramercy import errors
from gramercy.gram.lint.diagnostics import RULES
from gramercy.gram.lint.linter import lint
from gramercy.ui.cli.main import cli
from gramercy.ui.cli.options import add_environment_options, place_options
from gramercy.workbench.sources import load_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.gram.lint.diagnostics import Diagnostic

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
NOTES = ROOT / "examples" / "notes.py"
NOTE = "<!-- Made by docs/generate.py from the program itself; change that, not this page. -->\n"
# What is left of a terminal of 80 columns.
WIDTH = 78
IMAGE_OPTIONS = "Options of images"
LEFT_OUT = "  …"


def main() -> int:
    """Write every page, or with --check tell which would change."""
    if sys.argv[1:] not in ([], ["--check"]):
        sys.stderr.write("usage: python docs/generate.py [--check]\n")
        return 2
    stale = [
        name for name, page in PAGES.items() if _put(REFERENCE / name, NOTE + page(), write=not sys.argv[1:])
    ]
    for name in stale:
        sys.stdout.write(f"docs/reference/{name}\n")
    return 1 if stale and sys.argv[1:] else 0


def _put(path: Path, text: str, *, write: bool) -> bool:
    """Tell whether a page differs, and bring it up to date when asked to."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    if write:
        path.write_text(text, encoding="utf-8")
    return True


def api_page() -> str:
    """Describe every public name, room by room."""
    parts = [
        "\n# API\n",
        "Every name here is imported from the package itself: `from gramercy import tool`. Other names can",
        "be imported from their modules, but may move from one version to the next.\n",
    ]
    for room in ("agents", "tools", "execution", "journal", "images", "toolsets", "gram", "errors"):
        module = import_module(f"gramercy.{room}")
        parts += [f"## {room}\n", f"{(module.__doc__ or '').splitlines()[0]}\n"]
        names = [name for name in gramercy.__all__ if _room(name) == room]
        parts += [describe_name(name, getattr(gramercy, name)) for name in names]
    return "\n".join(parts)


def _room(name: str) -> str:
    return str(getattr(gramercy, name).__module__).split(".")[1]


JSON_SHAPES = """\
With `--json` standard output is one JSON value, whose keys stay; more may come.

| command | with `--json` |
|---|---|
| `approvals list` | list: `key`, `state`, `tool`, `level`, `what`, `principal`, `client`, `code`, … |
| `approvals show` | the same object with `text`, `arguments`, `effect`, `explanation`, `schema`, `seal`, … |
| `approvals approve`, `deny`, `edit`, `resolve` | the object of `list` as it is then, with `detail` |
| `approvals watch` | an object on a line after each change: `pending`, the list of `approvals list` |
| `audit show` | list of calls; with KEY a list of stories, each with `steps` |
| `audit verify` | object: `intact`, `flaws`, `events`, `calls`, `chains`, `masked`, `deleted`, `digest` |
| `compare` | object: `variants` with figures, `pairs` with `verdict`, `differences`, `runs` with `trace` |
| `config show` | object: `project`, `files`, `settings`, `refused`, `remarks` ([more](configuration.md)) |
| `doctor` | object: `ok`, `checks`, each with `status`, `name` and `detail` |
| `eval` | object, the whole reply: `ok`, `forms` with `values`, `stdout`, `stderr`, `warnings`, `error`, … |
| `foreign list`, `show` | list: `server`, `tool`, `standing`, `hidden`, `problem`; `show` adds `text` |
| `gram lint`, `gram check` | object: a report of diagnostics by file ([how](../how-to/check-gram-files.md)) |
| `gram fmt` | object: names of files that are `changed`, `unchanged`, `failed` |
| `gram schema` | object: schemas by name of tool, or one |
| `images` | list of processes: `pid`, `project`, `since`, `images`, each with all that is known of it |
| `install` | object: `client`, `scope`, `name`, `file`, `entry`, `changed`, `backup`, `text` |
| `models list` | object: `models_directory`, `providers`, each with `state`, `told`, `models`, `lacks` |
| `policy show` | object: `project`, `version`, `max_safety_level`, `layers`, `defaults`, `remarks` |
| `policy why` | object: `tool`, `action`, `explanation`, `origin` of the rule, `layers` |
| `policy try` | object: `counts` by what was decided then, and `calls` |
| `sessions list`, `search` | list of conversations, or of messages with `session`, `message`, `excerpt` |
| `sessions show` | object: the conversation, with its messages in `said` |
| `tools list` | list of schemas in the shape of `--style` |
| `tools show` | object: `name`, `description`, `safety_level`, `categories`, `schema` |
| `tools stats` | list: `tool`, `day`, `calls`, `done`, `failed`, `p50_ms`, `wait_p50`, `failures`, … |
| `tools why` | object: `tool`, `action` (`allow`, `ask` or `deny`), `explanation` |
| `tools call` | object: `id`, `success`, `content`, `error`, `metadata` |
| `run` | object: `agent`, `model`, `session`, `content`, `responses` with `calls`, `usage`, … |
| `traces show` | list of runs: `agent`, `model`, `message`, `answer`, `outcome`, `turns` with `calls`, … |
| `traces diff`, `replay` | object: `runs`, `pairs`, each with `run` and `differences` |
| any of them that cannot be done | object: `error` with `type`, `message` and `exit_code` |
"""


def cli_page() -> str:
    """Show the help of every command."""
    parts = [
        "\n# Command line\n",
        "Data goes to standard output, everything else to standard error.\n",
        "| exit code | meaning |\n|---|---|",
        "| 0 | done |",
        "| 1 | a tool or agent failed; `gram`: findings, `audit verify`: not intact, `traces`: they differ |",
        "| 2 | wrong usage, an unknown tool; for `gramercy gram` also: an unreadable file |",
        "| 3 | a file with tools, rules or agents, an image, a client or a model cannot be used |",
        "| 4 | the call was refused: by a person, by a rule, or because nobody could be asked |",
        "| 5 | a run has used up its budget |",
        "| 130 | interrupted |\n",
        JSON_SHAPES,
        "`GRAMERCY_TOOLS` stands in for `--from` in `gramercy tools`. With `GRAMERCY_DEBUG=1` an unexpected",
        "failure shows its traceback. `GRAMERCY_OBSERVE=FILE` has what agents, models and tools do appended",
        "to [a file](../how-to/observe-agents.md). `GRAMERCY_PLUGINS` names the",
        "[plug-ins](../how-to/write-a-plug-in.md) to load, with commas; empty for none.\n",
    ]
    shared = _image_options()
    parts += [
        f"## {IMAGE_OPTIONS}\n",
        "Every command that works with an image takes these. In its help below, `…` stands for them.",
        "[Configuration](configuration.md) has the defaults, and keys that say the same in a file.\n",
        "| option | meaning |\n|---|---|",
        *(_option_row(option) for option in shared),
        "",
    ]
    for names, command in commands("gramercy", cli):
        left_out = _left_out(command, shared)
        shown = _without(_help(names, command), left_out)
        parts += [f"## {names}\n", _block("console", f"$ {names} --help\n{shown}")]
        if left_out:
            parts.append(_reference_to_shared(shared, left_out))
    return "\n".join(parts)


def _image_options() -> list[click.Option]:
    """Return the options that all commands with an image share, in the order of their help."""
    command = click.command()(place_options(add_environment_options(lambda: None)))
    return [each for each in command.params if isinstance(each, click.Option)]


def _left_out(command: click.Command, shared: list[click.Option]) -> list[click.Option]:
    """Return the shared options of a command; none where it has few of them, as --project alone."""
    own = [each.to_info_dict() for each in command.params]
    found = [option for option in shared if option.to_info_dict() in own]
    return found if len(found) > len(shared) // 2 else []


def _without(text: str, options: list[click.Option]) -> str:
    """Return a help with `…` in the place of options that stand together."""
    starts = tuple(f"  {', '.join(each.opts)} " for each in options)
    lines: list[str] = []
    is_left_out = False
    for line in text.splitlines():
        # Two spaces and the names begin an option; the rest of its text is indented further.
        if not line.startswith("    "):
            is_left_out = f"{line} ".startswith(starts)
        if not is_left_out:
            lines.append(line)
        elif lines[-1] != LEFT_OUT:
            lines.append(LEFT_OUT)
    return "\n".join(lines)


def _reference_to_shared(shared: list[click.Option], left_out: list[click.Option]) -> str:
    """Say which options are told elsewhere on the page."""
    anchor = IMAGE_OPTIONS.lower().replace(" ", "-")
    missing = [f"`{each.opts[0]}`" for each in shared if each not in left_out]
    but = f" other than {' and '.join(missing)}" if missing else ""
    return f"`…` stands for the [options of images](#{anchor}){but}.\n"


def _option_row(option: click.Option) -> str:
    """Write an option as a row of a table: its names and values, and what it means."""
    record = option.get_help_record(click.Context(click.Command("any")))
    if record is None:
        raise SystemExit(f"{option.opts[0]} is hidden, and cannot be shown")
    names, meaning = (" ".join(part.replace("|", "\\|").split()) for part in record)
    return f"| `{names}` | {meaning} |"


def commands(names: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with the words that call it, groups before their commands."""
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from commands(f"{names} {name}", inner)


def _help(names: str, command: click.Command) -> str:
    settings = {**cli.context_settings, **command.context_settings}
    with click.Context(command, info_name=names, terminal_width=WIDTH, **settings) as context:
        return command.get_help(context)


def errors_page() -> str:
    """Show every error class with a message that it really gave."""
    tree = (errors.__doc__ or "").split("\n\n")[1]
    parts = [
        "\n# Errors\n",
        "Every failure that gramercy reports on purpose is one of these. `Executor.execute` raises none of",
        "them: a call that fails gives a failed `ToolResult` with the same text.\n",
        indent(tree, "    ") + "\n",
        "The examples below need these imports:\n",
        _block("python", ERROR_IMPORTS),
    ]
    for kind in _error_classes(errors.GramercyError):
        parts += [f"## {kind.__name__}\n", f"{(kind.__doc__ or '').strip()}\n"]
        if kind.__name__ in ERRORS or kind.__name__ in RESULTS:
            code = RESULTS.get(kind.__name__) or _catching(kind.__name__)
            parts += [_block("python", code), _block("text", _printed(code))]
        elif not kind.__subclasses__() and kind.__name__ not in UNSHOWN:
            raise SystemExit(f"docs/samples.py: {kind.__name__} has no sample")
    return "\n".join(parts)


def _error_classes(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for inner in kind.__subclasses__():
        if inner.__module__ == errors.__name__:
            yield from _error_classes(inner)


def _catching(name: str) -> str:
    return f"try:\n    {ERRORS[name]}\nexcept errors.{name} as error:\n    print(error)\n"


def _printed(code: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.chdir(ROOT):
        exec(ERROR_IMPORTS + code, {})  # noqa: S102 - the samples are our own
    return output.getvalue()


def lint_page() -> str:
    """Show every lint code with a text in which it is found."""
    parts = [
        "\n# Lint codes\n",
        "`gramercy gram lint` and `gramercy gram check` report these. Errors and warnings make the exit code",
        "1, information alone does not. See [how to check gram files](../how-to/check-gram-files.md).\n",
        "| code | severity | meaning |\n|---|---|---|",
        *(f"| [{r.code}](#{r.code.lower()}) | {r.severity.value} | {r.summary} |" for r in RULES.values()),
        "",
    ]
    for code, rule in RULES.items():
        parts += [f"## {code}\n", f"{rule.summary[0].upper()}{rule.summary[1:]} ({rule.severity.value}).\n"]
        parts.append(_bound_sample(code) if code in GRAM_OF_NOTES else _gram_sample(code))
    return "\n".join(parts)


def _gram_sample(code: str) -> str:
    text = GRAM[code]
    return _block(f'gram finds="{code}"', text) + "\n" + _messages(code, lint(text))


def _bound_sample(code: str) -> str:
    text = GRAM_OF_NOTES[code]
    found = lint(text, explain=load_tools(str(NOTES)).library().explain_binding)
    return f"With the tools of `examples/notes.py`:\n\n{_block('gram', text)}\n{_messages(code, found)}"


def _messages(code: str, found: list[Diagnostic]) -> str:
    lines = [item.message for item in found if item.code == code]
    if len(lines) != len(found) or not lines:
        raise SystemExit(
            f"docs/samples.py: the sample of {code} finds {sorted({item.code for item in found})}"
        )
    return "\n".join(f"    {line}" for line in lines) + "\n"


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


PAGES: dict[str, Callable[[], str]] = {
    "attempts.md": attempts_page,
    "api.md": api_page,
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "lint-codes.md": lint_page,
    "tools.md": tools_page,
}

if __name__ == "__main__":
    sys.exit(main())
