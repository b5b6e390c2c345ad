"""`gramercy plugins`: the plug-ins of this environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gramercy.images.environment import Finding, Status
from gramercy.ui.cli.main import COMMANDS
from gramercy.ui.cli.options import json_option
from gramercy.ui.cli.terminal import json_text, show, tell
from gramercy.workbench.plugins import KINDS_ADDED, load_plugins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.workbench.plugins import Plugin


@click.command()
@json_option("Print a list of objects with what each adds.")
def plugins(*, as_json: bool) -> None:
    """List the plug-ins of this environment, what they add, and what is wrong with them."""
    found = looked_at()
    if as_json:
        click.echo(json_text([_facts(each) for each in found]))
    elif not found:
        tell("no plug-ins are installed in this environment")
    for plugin in () if as_json else found:
        show(f"{plugin.name} ({_package(plugin)}): {_added(plugin)}")
        for fault in plugin.faults:
            show(f"  {fault}")


def looked_at() -> list[Plugin]:
    """Load all plug-ins and use every one of their hooks, so that all faults are found."""
    loaded = load_plugins()
    for plugin in loaded.plugins:
        plugin.added("tools")
    loaded.images(), loaded.providers(), loaded.commands(COMMANDS)
    return loaded.plugins


def plugin_findings() -> Iterator[Finding]:
    """Yield a line of the doctor for each plug-in. A broken one is left out, so it is only a warning."""
    for plugin in looked_at():
        name = f"plug-in {plugin.name}"
        if not plugin.faults:
            yield Finding(name, Status.OK, f"{_package(plugin)}: {_added(plugin)}")
            continue
        advice = f"update it, or remove it with 'pip uninstall {plugin.entry.package}'"
        yield Finding(name, Status.WARNING, f"{_package(plugin)}: {'; '.join(plugin.faults)}", advice)


def _package(plugin: Plugin) -> str:
    return f"{plugin.entry.package} {plugin.entry.version}".strip()


def _added(plugin: Plugin) -> str:
    """List the names of everything that a plug-in adds."""
    kinds = ((kind, plugin.added(kind)) for kind in KINDS_ADDED)
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds if names) or "adds nothing"


def _facts(plugin: Plugin) -> dict[str, object]:
    """Return the stable shape of --json."""
    added = {kind: sorted(plugin.added(kind)) for kind in KINDS_ADDED}
    entry = plugin.entry
    return {
        "name": entry.name,
        "package": entry.package,
        "version": entry.version,
        **added,
        "faults": plugin.faults,
    }
