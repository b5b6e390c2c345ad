"""Options that several commands share."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from functools import wraps
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.errors import InvalidArgumentsError, InvalidSettingError
from gramercy.images.environment import LANGUAGES
from gramercy.ui.cli.terminal import visible
from gramercy.workbench.plugins import load_plugins
from gramercy.workbench.settings import KEYS, May, Settings, options_of, spelling
from gramercy.workbench.sources import Origin
from gramercy.workbench.values import Takes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.images.environment import Environment
    from gramercy.tools.tool import Tool
    from gramercy.workbench.values import Kind


class Language(click.Choice):  # type: ignore[type-arg]  # generic in newer releases only
    """A language of images, or a kind of image that a plug-in has added."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word; plug-ins are looked at for one that is not a language."""
        if value in self.choices:
            return value
        return click.Choice([*self.choices, *load_plugins().images()]).convert(value, param, ctx)


LANGUAGE = Language(LANGUAGES)
LEVELS = click.Choice(["safe", "cautious", "dangerous"])


def origin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where tools come from; the command gets them as `origin`."""

    @wraps(command)
    def wrapped(  # noqa: PLR0913 - one parameter per option
        *,
        sources: tuple[str, ...],
        image: str | None,
        project: str,
        sandbox: bool,
        environment: Environment,
        timeout: float,
        **rest: Any,
    ) -> Any:
        if not sources and image is None:
            raise click.UsageError("say where the tools are: --from FILE.py, --image sbcl|python, or both")
        return command(origin=Origin(sources, image, project, sandbox, environment, timeout), **rest)

    return _sources(required=False)(image_option(place_options(environment_options(wrapped))))


def sources_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the files with tools."""
    return _sources(required=True)(command)


def _sources(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--from",
        "sources",
        multiple=True,
        required=required,
        envvar="GRAMERCY_TOOLS",
        metavar="FILE.py|MODULE|plugin:NAME",
        help="Where the tools are defined; may be given several times (or GRAMERCY_TOOLS).",
    )


def image_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the one live image of a command."""
    return click.option(
        "--image",
        type=LANGUAGE,
        multiple=True,
        callback=_only_one,
        help="Also the tools of a live image of this language.",
    )(command)


def _only_one(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """Return the one that was given; a server has several, so that people try it."""
    if len(set(given)) > 1:
        raise click.BadParameter(
            f"{' and '.join(given)}: there is one image here, so name one; gramercy serve has several"
        )
    return given[0] if given else None


def language_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that chooses the language of an image."""
    return click.option(
        "--language",
        type=LANGUAGE,
        help="Of the image; by default that of the project, else SBCL where it is installed.",
    )(command)


def place_options(command: Callable[..., Any], *, exists: bool = True) -> Callable[..., Any]:
    """Add the options that say where an image works and how it is confined.

    Without `exists` the command itself says what is wrong with a project that is not there.
    """
    project = click.option(
        "--project",
        default=".",
        show_default=True,
        type=click.Path(exists=exists, file_okay=False),
        help="The directory an image works in, and all it may write.",
    )
    sandbox = click.option(
        "--no-sandbox",
        "sandbox",
        flag_value=False,
        default=True,
        type=bool,
        help="Let evaluated code do all that you may do.",
    )
    return project(sandbox(command))


def environment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what an image has beside its project.

    What they and the configuration files say together goes to the command as `environment` and `timeout`, and
    as its `language` or `images` where it has such an option and it was not given.
    """

    @wraps(command)
    def wrapped(**options: Any) -> Any:
        from gramercy.workbench.configuration import read_configuration
        from gramercy.workbench.recording import recording_of

        told_names = frozenset(options)
        told = told_settings(options)
        configuration = read_configuration(options["project"], told)
        for remark in configuration.remarks:
            click.echo(visible(f"warning: {remark}"), err=True)
        if "journal" in told_names:
            options["recording"] = recording_of(configuration.settings)
        if "model" in options:
            options["model"] = options["model"] or configuration.settings.model
        if "language" in options:
            options["language"] = options["language"] or configuration.language
        if options.get("images") == () and not any(map(options.get, ("sources", "fixtures", "foreign"))):
            options["images"] = configuration.images
        if "timeout_limit" in told_names:
            options["timeout_limit"] = configuration.timeout_limit
        environment = configuration.environment
        if "images" not in options:
            # The person has just read it; only the clients of a server have to be told as well.
            environment = msgspec.structs.replace(environment, notes=())
        return command(environment=environment, timeout=configuration.timeout, **options)

    return add_environment_options(wrapped)


def add_environment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the bare options, for a command that makes of them what it likes."""
    of_images = [key for key, about in KEYS.items() if about.help and not about.apart]
    of_images.sort(key=lambda key: KEYS[key].place)
    # What is added last comes first in the help.
    for key in reversed(of_images):
        command = setting_option(key)(command)
    return command


def setting_option(key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what adds the option of a setting; the command gets it under the name of the key."""
    about = KEYS[key]
    is_told = about.apart and about.otherwise is not None
    return click.option(
        *options_of(key),
        key,
        multiple=about.kind.gather is not None,
        type=_type(about.kind),
        # The help of an option of images tells the default in its own words.
        show_default=f"{about.default}, or what a configuration file says" if is_told else None,
        metavar=about.kind.metavar,
        help=about.help,
    )


def _type(kind: Kind) -> click.ParamType | None:  # type: ignore[type-arg]  # generic in newer releases only
    if kind.choices:
        return click.Choice(kind.choices)
    if kind.takes is Takes.WHOLE:
        return click.IntRange(*kind.range)
    if kind.takes is Takes.NUMBER:
        return click.FloatRange(min=0, min_open=True)
    if kind.takes in (Takes.FILE, Takes.DIRECTORY):
        is_file = kind.takes is Takes.FILE
        return click.Path(exists=True, file_okay=is_file, dir_okay=not is_file)
    return None


def told_settings(options: dict[str, Any]) -> Settings:
    """Take what was said about an image out of the options of a command."""
    found: dict[str, Any] = {}
    for key, given in _taken(options):
        gather = KEYS[key].kind.gather
        found[key] = gather(_told(key, word) for word in given) if gather else _told(key, given)
    return Settings(**found)


def _taken(options: dict[str, Any]) -> list[tuple[str, Any]]:
    """Take the options of settings that were given out of those of a command."""
    found = [(key, options.pop(key, None)) for key, about in KEYS.items() if about.help]
    return [(key, given) for key, given in found if given not in (None, ())]


def _told(key: str, word: Any) -> Any:
    try:
        return KEYS[key].kind.told(word)
    except InvalidSettingError as error:
        raise click.BadParameter(str(error), param_hint=spelling(key)) from None


def given_words(options: dict[str, Any]) -> list[str]:
    """Take the same options and write them again as words, with paths that hold in every directory."""
    words: list[str] = []
    # In the order of entries that are already written, so that the same options make the same entry.
    for key, given in sorted(_taken(options), key=_order_of_words):
        for each in given if isinstance(given, tuple) else (given,):
            word = _told(key, each) if KEYS[key].kind.is_place else each
            words += [spelling(key), f"{word:g}" if isinstance(word, float) else str(word)]
    return words


def _order_of_words(taken: tuple[str, Any]) -> tuple[bool, bool]:
    project = KEYS[taken[0]].project
    return project is May.NOTHING, project is May.MORE


journal_option = setting_option("journal")
timeout_option = setting_option("timeout")
timeout_limit_option = setting_option("timeout_limit")


def approval_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how long a person may take, and where that is recorded."""
    return journal_option(setting_option("approval_wait")(setting_option("approval_expiry")(command)))


def policy_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names a file with rules."""
    return click.option(
        "--policy",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE.toml",
        help="Rules that allow, ask or deny; without any, dangerous tools ask.",
    )(command)


def mode_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that says how much a server asks; without it, as the rules say."""
    return click.option(
        "--mode",
        type=click.Choice(["ask", "careful", "edits"]),
        help="How much is asked: as the rules say, while evaluated code writes files of the project unasked; "
        "about all that may change something, evaluations too; or not about edits of files, which undo_last "
        "takes back (control files still ask).",
    )(command)


def foreign_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of other servers; the command gets them under the names of the service."""
    for option in reversed(
        (
            click.option(
                "--foreign",
                multiple=True,
                metavar="NAME=COMMAND|URL",
                help="Also the accepted tools of another MCP server, as NAME__TOOL; may be given "
                "several times. They are dangerous unless a rule says otherwise.",
            ),
            click.option(
                "--foreign-pins",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Where their accepted definitions are kept (see gramercy foreign).",
            ),
            click.option(
                "--foreign-rule",
                "foreign_rules",
                multiple=True,
                metavar="NAME__TOOL=LEVEL",
                help="The level of one of their tools; may be given several times.",
            ),
            click.option(
                "--foreign-env",
                multiple=True,
                metavar="VARIABLE",
                help="A variable of the environment that they may see; may be given several times.",
            ),
        )
    ):
        command = option(command)
    return command


def restore_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names a saved state to begin with."""
    return click.option(
        "--restore",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Begin with a saved state; the language must be the one it was saved from.",
    )(command)


def save_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names where to save the state."""
    return click.option(
        "--save",
        type=click.Path(dir_okay=False, writable=True),
        callback=a_whole_file,
        metavar="FILE",
        help="Write the state after the evaluation, unless that failed.",
    )(command)


def in_a_directory(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Refuse at once what would fail only after the evaluation."""
    if path is not None and not Path(path).parent.is_dir():
        raise click.BadParameter(f"there is no directory {Path(path).parent}", context, parameter)
    return path


def a_whole_file(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Refuse a device or a pipe too: a file that is replaced as a whole would take its place."""
    if path is not None and Path(path).exists() and not Path(path).is_file():
        raise click.BadParameter(f"{path} is no regular file", context, parameter)
    return in_a_directory(context, parameter, path)


def read_words(tool: Tool, words: Sequence[str]) -> Any:
    """Read the arguments of a call as they were typed."""
    if len(words) == 1 and words[0] == "-":
        return sys.stdin.read()
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return words[0]
    pairs: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise click.UsageError(f"{word!r} is neither a JSON object nor key=value")
        if key in pairs:
            raise click.UsageError(f"{key} is given twice")
        pairs[key] = _read_value(tool, key, value)
    return pairs


def _read_value(tool: Tool, key: str, text: str) -> Any:
    """Read a value as JSON where the tool does not want text; what is not JSON the checker will name."""
    from gramercy.execution.calls import parse_arguments

    kinds = {parameter.name: parameter.type for parameter in tool.parameters}
    if kinds.get(key, "string") == "string":
        return text
    try:
        return parse_arguments(text)
    except InvalidArgumentsError:
        return text


def json_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what adds --json; the shapes are documented beside the exit codes, and errors have one too."""
    return click.option("--json", "as_json", is_flag=True, help=about)


_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """A time: so long ago (30m, 12h, 7d, 2w), or a date with or without the time of day."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds since the epoch."""
        if isinstance(value, float):
            return value
        if found := _SPAN.fullmatch(value):
            return time() - float(found[1]) * _SECONDS[found[2]]
        # Not needed for a span, and costs a millisecond.
        from datetime import datetime

        try:
            # Without a zone it is the time of this machine, as everything that is shown.
            return datetime.fromisoformat(value).astimezone().timestamp()
        except ValueError:
            self.fail(
                f"{value!r} is neither so long ago, as 12h or 7d, nor a date, as 2026-05-01", param, ctx
            )


MOMENT = Moment()


def of_project_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a command show what was recorded in one project: with its whole path, whatever a person types."""
    return click.option(
        "--project",
        default="",
        metavar="DIRECTORY",
        callback=lambda _ctx, _param, value: value and str(Path(value).resolve()),
        help=f"Only {what} of this project.",
    )


def kept_journal_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the journal; the command gets it opened, as `journal`, if there is one."""
    return _kept(command, is_look=False)


def seen_journal_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same option to a command that only looks: nothing is changed, not even beside the file."""
    return _kept(command, is_look=True)


def _kept(command: Callable[..., Any], *, is_look: bool) -> Callable[..., Any]:
    @wraps(command)
    def wrapped(*, journal: str | None, **options: Any) -> Any:
        from gramercy.journal.audit import open_kept

        with closing(open_kept(journal_place(journal), is_look=is_look)) as opened:
            return command(journal=opened, **options)

    return place_of_journal_option(wrapped)


def journal_place(told: str | None) -> str | None:
    """Return where the journal is: as told, or as the user's configuration says; None for the usual place.

    So that a person at another terminal looks where servers record without saying it each time.
    """
    from gramercy.workbench.configuration import read_configuration

    place = None if told is None else _told("journal", told)
    return read_configuration(".", Settings(journal=place)).settings.journal


def place_of_journal_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names a journal to look at."""
    return click.option(
        "--journal",
        envvar="GRAMERCY_JOURNAL",
        metavar="FILE|postgresql://…",
        callback=_place_of_journal,
        help="Where calls are recorded; by default in your state directory.",
    )(command)


def _place_of_journal(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the place that was told, else the one that the user's own settings name."""
    del ctx, param
    if value is not None:
        return str(_told("journal", value))
    from gramercy.workbench.configuration import read_configuration

    return read_configuration(Path.cwd()).settings.journal
