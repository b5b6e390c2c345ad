"""The entry point: finds the subcommand, imports only its modules, turns every failure into one message."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import NoReturn

import click

from gramercy import __version__
from gramercy.errors import (
    BudgetExceededError,
    GramercyError,
    ImageError,
    InvalidCaseError,
    InvalidMessageError,
    InvalidPolicyError,
    ModelUnavailableError,
    SourceError,
    UnknownToolError,
    WorkspaceError,
)

# The help must not import the commands that it lists: name -> (module, description).
COMMANDS = {
    "acp": (
        "gramercy.ui.cli.acp:acp",
        "Let an editor talk with an agent of a gram file (Zed, Emacs, Neovim, JetBrains).",
    ),
    "approvals": (
        "gramercy.ui.cli.approvals:group",
        "Decide about calls that wait for a person, in whatever process they were made.",
    ),
    "audit": (
        "gramercy.ui.cli.audit:group",
        "Look at what was recorded of calls, prove that nobody has changed it, delete contents.",
    ),
    "chat": (
        "gramercy.ui.cli.chat:chat",
        "Talk with an agent: of a gram file, or an assistant that has all tools of a live image.",
    ),
    "compare": (
        "gramercy.ui.cli.compare:compare",
        "Run an agent on the same cases with several libraries, and tell what differs and how sure that is.",
    ),
    "config": (
        "gramercy.ui.cli.config:group",
        "Show the settings of images, and where each comes from.",
    ),
    "doctor": (
        "gramercy.ui.doctor.checks:doctor",
        "Check live images by starting, crashing and attacking them, and the server by being its client.",
    ),
    "eval": (
        "gramercy.ui.cli.evaluation:evaluate",
        "Evaluate code in a fresh live image; - is standard input.",
    ),
    "foreign": (
        "gramercy.ui.cli.foreign:group",
        "Look at the tools of other MCP servers, and say which may be used.",
    ),
    "gram": ("gramercy.ui.cli.gram:group", "Check, format and translate gram files; - is standard input."),
    "images": (
        "gramercy.ui.cli.images:images",
        "Look at the live images of all serving processes.",
    ),
    "install": (
        "gramercy.ui.cli.install:install",
        "Show what an MCP client needs to use this server, or write it into the client's settings.",
    ),
    "plugins": (
        "gramercy.ui.cli.plugins:plugins",
        "List the plug-ins of this environment, what they add, and what is wrong with them.",
    ),
    "models": (
        "gramercy.ui.cli.models:group",
        "Show which models can be asked here, and fetch a small one that needs no key.",
    ),
    "policy": (
        "gramercy.ui.cli.policy:group",
        "Show the rules that hold here and where they stand, ask what they say to a call, try others.",
    ),
    "repl": ("gramercy.ui.cli.repl:repl", "Work in a live image: evaluate, preview, undo."),
    "run": (
        "gramercy.ui.cli.run:run",
        "Run an agent of a gram file on messages, one after the other; - is standard input.",
    ),
    "serve": (
        "gramercy.ui.cli.serve:serve",
        "Serve the tools of files and live images to MCP clients.",
    ),
    "sessions": (
        "gramercy.ui.cli.sessions:group",
        "List, show, search, fork, export and count conversations with agents.",
    ),
    "tools": (
        "gramercy.ui.cli.tools:group",
        "List, show and call the tools of Python files and of a live image.",
    ),
    "tour": ("gramercy.ui.cli.tour:tour", "Show in under a minute what gramercy does."),
    "traces": (
        "gramercy.ui.cli.traces:group",
        "Show recorded runs of agents, compare them, and run them again without a model.",
    ),
    "trust": (
        "gramercy.ui.cli.trust:trust",
        "Show what changed in files that run or rule here, and accept them; without PATH, list them.",
    ),
}

# The exit codes of all commands, as documented in docs/reference/cli.md; 130 is that of a shell after SIGINT.
FAILED, USAGE, CONFIGURATION, DENIED, BUDGET, INTERRUPTED = 1, 2, 3, 4, 5, 130


# The start of click's message about an unknown command, in all of its releases.
NO_COMMAND = "No such command '"
# Click's message about a word in place of a number, and our wording.
RANGES = {
    "is not a valid float range.": "is not a number.",
    "is not a valid integer range.": "is not a whole number.",
}
# Options with the same meaning, where a command has one of them: the images of a server, or one language.
SAME = {"--image": "--language", "--language": "--image"}
# An error about an unknown command lists the commands of a group up to this size. --help lists more.
FEW = 12


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is run, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table, then those of plug-ins."""
        del ctx
        return [*COMMANDS, *added_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand."""
        del ctx
        if cmd_name not in COMMANDS:
            return added_commands().get(cmd_name)
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        # Imported modules stay. Looking for garbage among them takes a tenth of the time of the imports.
        gc.disable()
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table, then those of plug-ins."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
        if added := added_commands():
            with formatter.section("Commands of plug-ins"):
                formatter.write_dl([(name, each.get_short_help_str(90)) for name, each in added.items()])


def added_commands() -> dict[str, click.Command]:
    """Return the commands that plug-ins add. Without plug-ins this needs no imports."""
    from gramercy.workbench.plugins import find_plugins, load_plugins

    return load_plugins().commands(COMMANDS) if find_plugins() else {}


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gramercy")
def cli() -> None:
    """Typed tools for LLM agents that a person can see, approve, edit and undo."""


def main() -> NoReturn:
    """Run the command line and exit with one of its documented codes."""
    _open_standard_streams()
    sys.exit(_run())


def _open_standard_streams() -> None:
    """Open the null device for each closed standard stream, as `<&-` in a shell and some services leave it.

    Otherwise the next file to be opened, such as the journal, gets its number, and output goes into that
    file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The system assigns the lowest free number: that of the closed stream. Child processes get it
            # too.
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # noqa: FBT003 - it has no name
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _run() -> int:  # noqa: PLR0911 - one return for each way to end
    try:
        _observe()
        outcome = cli.main(standalone_mode=False, color=None if may_color() else False)
    except click.exceptions.Abort:
        click.echo("gramercy: interrupted", err=True)
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.ClickException as error:
        told = _with_near_names(error)
        if not _told_as_json(error, told.format_message(), told.exit_code):
            told.show()
        return told.exit_code
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except GramercyError as error:
        if not _told_as_json(error, str(error), code_of(error)):
            click.echo(f"gramercy: {error}", err=True)
        return code_of(error)
    except Exception as error:
        if os.environ.get("GRAMERCY_DEBUG"):
            raise
        click.echo(
            f"gramercy: unexpected {type(error).__name__}: {error} (set GRAMERCY_DEBUG=1 for details)",
            err=True,
        )
        return FAILED
    return outcome if isinstance(outcome, int) else 0


def _observe() -> None:
    """Write the events of agents, models and tools to the file that the environment names."""
    if file := os.environ.get("GRAMERCY_OBSERVE"):
        from gramercy.agents.observability import setup_observability

        setup_observability(level=None, file=file)


def _with_near_names(error: click.ClickException) -> click.ClickException:
    """Suggest similar commands or options. Releases of click differ in that."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None:
        return error
    if isinstance(error, click.BadParameter):
        plain = next((said for words, said in RANGES.items() if error.message.endswith(words)), "")
        head = error.message.rpartition(" is not ")[0]
        return click.BadParameter(f"{head} {plain}", ctx, error.param, error.param_hint) if plain else error
    if isinstance(error, click.NoSuchOption):
        what, word = "option", error.option_name
        names = [name for each in ctx.command.params for name in (*each.opts, *each.secondary_opts)]
    elif isinstance(ctx.command, click.Group) and error.message.startswith(NO_COMMAND):
        what, word = "command", error.message.removeprefix(NO_COMMAND).partition("'")[0]
        names = ctx.command.list_commands(ctx)
    else:
        return error
    from gramercy.gram.suggestion import suggest

    close = suggest(word, [name for name in names if name.startswith("--") or what == "command"], most=2)
    if not close and SAME.get(word) in names:
        close = [SAME[word]]
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    if not close and what == "command" and len(names) <= FEW:
        hint = f" There are {', '.join(names)}."
    return click.UsageError(f"No such {what} '{word:.60}'.{hint}", ctx)


def _told_as_json(error: Exception, message: str, code: int) -> bool:
    """Write an error as JSON if --json was given. Return whether it was."""
    # An option that was not understood is never parsed, so look at the words themselves.
    words = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if "--json" not in words:
        return False
    # Help and successful commands do not need it.
    import json

    fault = {"type": type(error).__name__, "message": message, "exit_code": code}
    click.echo(json.dumps({"error": fault}, indent=2))
    return True


def may_color() -> bool:
    """Return whether output may have colours. Only a terminal gets them."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def code_of(error: GramercyError) -> int:
    """Return the exit code for an error that ended a command."""
    if isinstance(error, BudgetExceededError):
        return BUDGET
    if isinstance(error, UnknownToolError | InvalidMessageError | InvalidCaseError):
        return USAGE
    # An error inside a call is a failed result. These errors concern the things that a call needs.
    needed = SourceError | ImageError | WorkspaceError | InvalidPolicyError | ModelUnavailableError
    return CONFIGURATION if isinstance(error, needed) else FAILED
