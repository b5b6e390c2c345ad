"""`gramercy policy`: the rules of a project with their origins, and their verdict on a call."""

from __future__ import annotations

from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import InvalidArgumentsError, UnknownToolError
from gramercy.execution.calls import read_arguments
from gramercy.execution.exact import plain_arguments
from gramercy.execution.policy import Action
from gramercy.execution.shown import on_one_line
from gramercy.journal.texts import canonical_text, without_secrets
from gramercy.text import counted, listed, reveal_line
from gramercy.ui.cli.inbox import journal_option
from gramercy.ui.cli.options import LEVELS, json_option, policy_option, read_words
from gramercy.ui.cli.terminal import json_text, show, tell
from gramercy.workbench.policies import GENERAL, GIVEN, PROJECT, SPECIAL, read_policies, user_policy_file
from gramercy.workbench.replay import EXPECTED, Past, recorded, replay, tallied
from gramercy.workbench.sources import known_tools, stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gramercy.execution.policy import Rule, RuleOrigin
    from gramercy.journal.base import Journal
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Place, Tool
    from gramercy.workbench.policies import Layer, Policies
    from gramercy.workbench.replay import Replayed

TITLES = {
    GIVEN: "given with --policy",
    SPECIAL: "yours, for this project",
    PROJECT: "the project's, which may only tighten what follows",
    GENERAL: "yours, for every project",
}
BUILT_IN = "built in, where no rule matches"
DEFAULTS = {"safe": "allow", "cautious": "allow", "dangerous": "ask"}
# A journal may hold a million calls; these take some seconds.
MOST_TRIED = 50_000
# Calls of one kind on a screen. LONGEST_SHOWN limits the arguments of one call.
MOST_SHOWN = 10
LONGEST_SHOWN = 90
DONE = {Action.ALLOW: "allowed", Action.ASK: "asked about", Action.DENY: "denied"}
# Differences that a person should look at, the worst first.
SURPRISES = [
    (past, action)
    for past in (Past.DENIED, Past.REFUSED, Past.UNDECIDED, Past.UNASKED, Past.APPROVED)
    for action in Action
    if action not in EXPECTED[past]
]


@click.group()
def group() -> None:
    """Show the rules that hold here and where they stand, ask what they say to a call, try others."""


def _project_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--project",
        default=".",
        show_default=True,
        type=click.Path(exists=True, file_okay=False),
        help="The directory whose rules count.",
    )(command)


def sources_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names files with tools beside those of images."""
    return click.option(
        "--from",
        "sources",
        multiple=True,
        envvar="GRAMERCY_TOOLS",
        metavar="FILE.py|MODULE",
        help="Also the tools defined there; may be given several times (or GRAMERCY_TOOLS).",
    )(command)


@group.command("show")
@_project_option
@policy_option
@json_option("Print the layers, their rules and the ceiling as JSON.")
def show_rules(*, project: str, policy: str | None, as_json: bool) -> None:
    """Show the rules that hold in a project, in the order in which they count, with the place of each."""
    found = read_layers(project, policy)
    if as_json:
        click.echo(json_text(_report(found)))
        return
    for line in _lines(found):
        show(line)
    if not found.layers:
        tell(f"there are no rules yet: yours go into {user_policy_file()}")


def read_layers(project: str, given: str | None) -> Policies:
    """Return the layers of a project. Rules that have less effect than they say are reported."""
    return told_remarks(read_policies(project, given))


def told_remarks(found: Policies) -> Policies:
    """Report the rules that have less effect than they say."""
    for remark in found.remarks:
        tell(f"warning: {remark}")
    return found


def _lines(found: Policies) -> Iterator[str]:
    for layer in found.layers:
        yield f"{TITLES[layer.name]} ({layer.path})"
        if layer.ceiling is not None:
            yield f"  {_line_of(layer.ceiling_origin):<10} nothing above {layer.ceiling.value}"
        yield from (
            f"  {_line_of(rule.origin):<10} {rule.action.value:<6} {conditions(rule)}" for rule in layer.rules
        )
        yield ""
    yield BUILT_IN
    yield from (f"  {level:<10} {action}" for level, action in DEFAULTS.items())
    if found.policy.max_safety_level != "dangerous":
        yield f"\nWhat is above {found.policy.max_safety_level.value} is denied, whatever the rules say."


def _line_of(origin: RuleOrigin | None) -> str:
    return f"line {origin.line}" if origin is not None and origin.line else ""


def place_of(rule: Rule) -> str:
    """Return the file and line of a rule."""
    return str(rule.origin) if rule.origin is not None else ""


def conditions(rule: Rule) -> str:
    """Format the conditions of a rule on one line, with its reason."""
    parts = [*([" or ".join(rule.tools)] if rule.tools else ["every tool"])]
    parts += [f"in {' or '.join(rule.categories)}"] if rule.categories else []
    parts += [f"that is {' or '.join(rule.safety)}"] if rule.safety else []
    if rule.arguments:
        parts.append("where " + " and ".join(f"{name} is {glob}" for name, glob in rule.arguments.items()))
    if rule.exactly is not None:
        values = ", ".join(on_one_line(name, each) for name, each in plain_arguments(rule.exactly).items())
        parts.append(f"with exactly {values}" if values else "without arguments")
    return reveal_line(" ".join(parts) + (f" ({rule.reason})" if rule.reason else ""))


def _report(found: Policies) -> dict[str, Any]:
    return {
        "project": str(found.project),
        "version": found.policy.version,
        "max_safety_level": found.policy.max_safety_level.value,
        "layers": [_layer_report(layer) for layer in found.layers],
        "defaults": DEFAULTS,
        "remarks": list(found.remarks),
    }


def _layer_report(layer: Layer) -> dict[str, Any]:
    rules = [{"origin": origin_report(rule), **rule.to_data()} for rule in layer.rules]
    ceiling = layer.ceiling.value if layer.ceiling is not None else None
    only_tightens = any(rule.tightens for rule in layer.rules) or layer.name == PROJECT
    return {
        "layer": layer.name,
        "file": str(layer.path),
        "only_tightens": only_tightens,
        "max_safety_level": ceiling,
        "rules": rules,
    }


def origin_report(rule: Rule | None) -> dict[str, Any] | None:
    """Return the origin of a rule, as plain data."""
    if rule is None or rule.origin is None:
        return None
    origin = rule.origin
    return {"layer": origin.layer, "file": origin.file, "line": origin.line, "number": origin.number}


@group.command("why")
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[JSON | - | key=value ...]")
@_project_option
@policy_option
@sources_option
@click.option("--level", type=LEVELS, help="Of a tool that is not known here, such as one of another server.")
@json_option("Print the verdict, the rule with its origin, and what each layer says as JSON.")
def why(  # noqa: PLR0913 - one parameter per option
    *,
    name: str,
    arguments: Sequence[str],
    project: str,
    policy: str | None,
    sources: tuple[str, ...],
    level: str | None,
    as_json: bool,
) -> None:
    """Tell what the rules say to a call, which of them decides, and what the others would say."""
    found = read_layers(project, policy)
    tool = _find_tool(known_tools(project, sources), name, level)
    given = _as_checked(tool, read_words(tool, arguments))
    places = tool.places(given)
    verdict = found.policy.why(tool, given, places)
    layers = [(layer, _said_by(layer, tool, given, places)) for layer in found.layers]
    if as_json:
        click.echo(
            json_text(
                {
                    "tool": tool.name,
                    "action": verdict.action.value,
                    "explanation": verdict.explanation,
                    "origin": origin_report(verdict.rule),
                    "layers": [
                        {
                            "layer": layer.name,
                            "says": said and said.action.value,
                            "origin": origin_report(said),
                        }
                        for layer, said in layers
                    ],
                }
            )
        )
        return
    show(f"{verdict.action.value}: {verdict.explanation}")
    for layer, said in layers:
        if said is not None:
            show(f"  {TITLES[layer.name]}: {said.action.value}, by {place_of(said)}")
    show(f"  {BUILT_IN}: {DEFAULTS[tool.safety_level.value]}, since {tool.name} is {tool.safety_level.value}")


def _as_checked(tool: Tool, words: Any) -> dict[str, Any]:
    """Return the arguments as a call would have them. Missing ones need not be typed here."""
    given, _ = tool.renamed(read_arguments(words))
    try:
        return tool.checker.check(given)
    except InvalidArgumentsError:
        tell("judged by the arguments that are given; a call would need others, too")
        return dict(given)


def _said_by(layer: Layer, tool: Tool, arguments: dict[str, Any], places: Mapping[str, Place]) -> Rule | None:
    """Return the rule of a layer that would decide if there were no other layers."""
    matching = (rule for rule in layer.rules if rule.matches_tool(tool))
    return next((rule for rule in matching if rule.matches_arguments(arguments, tool, places)), None)


def _find_tool(registry: Registry, name: str, level: str | None) -> Tool:
    try:
        return registry.resolve(name)
    except UnknownToolError:
        if level is None:
            tell("a tool of another server can be judged by its name with --level dangerous")
            raise
        return stand_in(name, level)


@group.command("try")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False), metavar="[FILE.toml]")
@_project_option
@policy_option
@sources_option
@click.option("--everywhere", is_flag=True, help="Also calls of other projects, by the rules of this one.")
@click.option("--tool", default="", metavar="NAME", help="Only calls of this tool.")
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), default=90, show_default=True, help="How far back."
)
@journal_option
@json_option("Print the counts and every call as JSON.")
def try_rules(  # noqa: PLR0913 - one parameter per option
    *,
    file: str | None,
    project: str,
    policy: str | None,
    sources: tuple[str, ...],
    everywhere: bool,
    tool: str,
    days: float,
    journal: Journal,
    as_json: bool,
) -> None:
    """Judge the calls of the past by the rules as they are now, or as they would be with FILE for your own.

    Tells what would have been allowed, asked about and denied, beside what was decided then. Nothing runs.
    """
    found = told_remarks(read_policies(project, policy, instead=file))
    where = "" if everywhere else str(found.project)
    records = recorded(journal, project=where, tool=tool, since=time() - days * 86_400, most=MOST_TRIED)
    replayed = list(replay(records, known_tools(project, sources), found.policy))
    if as_json:
        click.echo(json_text(_trial_report(replayed)))
        return
    if not replayed:
        tell(f"no calls of {where or 'any project'} are recorded in the last {days:g} days")
        return
    for line in _trial(replayed):
        show(line)


def _trial(replayed: Sequence[Replayed]) -> Iterator[str]:
    """Format a table of the verdicts, and the calls whose verdict differs from the recorded decision."""
    yield f"{counted(len(replayed), 'call')} since {when(replayed[-1].record.at)}, by these rules:"
    yield ""
    yield f"{'':<26}{'allowed':>9}{'asked':>9}{'denied':>9}"
    for past, counts in tallied(replayed).items():
        yield f"{past.value:<26}" + "".join(f"{counts[action] or '-':>9}" for action in Action)
    for past, action in SURPRISES:
        some = [each for each in replayed if each.past is past and each.verdict.action is action]
        if some:
            yield f"\nwould be {DONE[action]}, {past.value} then:"
            yield from (f"  {_call_line(each)}" for each in some[:MOST_SHOWN])
        if len(some) > MOST_SHOWN:
            yield f"  … and {len(some) - MOST_SHOWN:,} more, which --json lists"
    strangers = sorted({each.record.call.tool for each in replayed if not each.is_known})
    if strangers:
        names = listed(strangers, MOST_SHOWN)
        yield f"\nJudged by name and level alone, since --from names no file with them: {names}"


def _call_line(each: Replayed) -> str:
    call = each.record.call
    arguments = without_secrets(canonical_text(dict(call.arguments)), LONGEST_SHOWN)
    rule = f" ({each.verdict.rule.origin})" if each.verdict.rule is not None else ""
    return reveal_line(f"{each.record.key:>6} {when(each.record.at)} {call.tool} {arguments}{rule}")


def when(at: float) -> str:
    """Format a time."""
    return strftime("%Y-%m-%d %H:%M", localtime(at))


def _trial_report(replayed: Sequence[Replayed]) -> dict[str, Any]:
    counts = {
        past.name.lower(): {action.value: found[action] for action in Action}
        for past, found in tallied(replayed).items()
    }
    calls = [
        {
            "key": each.record.key,
            "at": each.record.at,
            "tool": each.record.call.tool,
            "project": each.record.call.project,
            "then": each.past.name.lower(),
            "action": each.verdict.action.value,
            "explanation": each.verdict.explanation,
            "differs": each.is_surprise,
        }
        for each in replayed
    ]
    return {"counts": counts, "calls": calls}
