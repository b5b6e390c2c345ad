"""`gramercy policy`: the rules that hold in a project with their origins, and what they say to a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import InvalidArgumentsError, UnknownToolError
from gramercy.execution.calls import read_arguments
from gramercy.ui.cli.options import LEVELS, json_option, policy_option, read_words
from gramercy.ui.cli.terminal import json_text, show, tell
from gramercy.workbench.policies import GENERAL, GIVEN, PROJECT, SPECIAL, read_policies, user_policy_file
from gramercy.workbench.sources import known_tools, stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gramercy.execution.policy import Rule, RuleOrigin
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool
    from gramercy.workbench.policies import Layer, Policies

TITLES = {
    GIVEN: "given with --policy",
    SPECIAL: "yours, for this project",
    PROJECT: "the project's, which may only tighten what follows",
    GENERAL: "yours, for every project",
}
BUILT_IN = "built in, where no rule matches"
DEFAULTS = {"safe": "allow", "cautious": "allow", "dangerous": "ask"}


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
    """Return the layers of a project; what of them counts for less than it says is told."""
    found = read_policies(project, given)
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
    """Say where a rule stands."""
    return str(rule.origin) if rule.origin is not None else ""


def conditions(rule: Rule) -> str:
    """Write what a rule asks for on one line, and its reason."""
    parts = [*([" or ".join(rule.tools)] if rule.tools else ["every tool"])]
    parts += [f"in {' or '.join(rule.categories)}"] if rule.categories else []
    parts += [f"that is {' or '.join(rule.safety)}"] if rule.safety else []
    if rule.arguments:
        parts.append("where " + " and ".join(f"{name} is {glob}" for name, glob in rule.arguments.items()))
    return " ".join(parts) + (f" ({rule.reason})" if rule.reason else "")


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
    """Return where a rule stands, as plain data."""
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
    verdict = found.policy.why(tool, given)
    layers = [(layer, _said_by(layer, tool, given)) for layer in found.layers]
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
    """Return the arguments as a call would have them; what is missing for one need not be typed here."""
    given, _ = tool.renamed(read_arguments(words))
    try:
        return tool.checker.check(given)
    except InvalidArgumentsError:
        tell("judged by the arguments that are given; a call would need others, too")
        return dict(given)


def _said_by(layer: Layer, tool: Tool, arguments: dict[str, Any]) -> Rule | None:
    """Return the rule of a layer that would decide if there were no others."""
    matching = (rule for rule in layer.rules if rule.matches_tool(tool) and rule.matches_arguments(arguments))
    return next(matching, None)


def _find_tool(registry: Registry, name: str, level: str | None) -> Tool:
    try:
        return registry.resolve(name)
    except UnknownToolError:
        if level is None:
            tell("a tool of another server can be judged by its name with --level dangerous")
            raise
        return stand_in(name, level)
