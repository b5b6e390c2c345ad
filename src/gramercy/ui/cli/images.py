"""`gramercy images`: look at the live images of all processes that serve, without disturbing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.errors import ControlError, ImageError
from gramercy.images.views import ImageView
from gramercy.text import reveal_line, table
from gramercy.ui.cli.inbox import age, journal_option, label, moment
from gramercy.ui.cli.options import json_option
from gramercy.ui.cli.terminal import json_text, show, tell
from gramercy.workbench.control import asked_at_once, serving_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.journal.base import Journal

COLUMNS = ("process", "image", "language", "state", "memory", "states", "project", "what")
# Earlier states to show. `list_checkpoints` has them all.
MOST_STATES = 20


@click.command()
@journal_option
@click.argument("name", required=False)
@click.option("--process", type=int, metavar="PID", help="Only the images of this process.")
@json_option("Print them as a list of processes, each with all that is known of its images.")
def images(journal: Journal, name: str | None, process: int | None, *, as_json: bool) -> None:
    """Look at the live images of all serving processes.

    What runs in them and since when, their memory and states; with NAME, all about the images of that name.
    Nothing is waited for, and no image is started for it.
    """
    found = [each for each in _served(journal) if process in {None, each["pid"]}]
    for each in found:
        each["images"] = [view for view in each["images"] if name in {None, view["name"]}]
    if as_json:
        click.echo(json_text(found))
    elif not any(each["images"] for each in found):
        _tell_none(name)
    elif name is None:
        show(_table(found))
    else:
        show("\n\n".join(_whole(each, _view(view)) for each in found for view in each["images"]))


def _tell_none(name: str | None) -> None:
    if name is not None:
        raise ImageError(f"no process serves an image {name}: gramercy images lists those that are served")
    tell("no process serves an image with this journal")


def _served(journal: Journal) -> Iterator[dict[str, Any]]:
    for _, told in asked_at_once(serving_processes(journal.run_directory), "about", "images"):
        if isinstance(told, ControlError):
            tell(str(told))
        else:
            yield {**told["about"], "images": told["images"]}


def _view(told: dict[str, Any]) -> ImageView:
    return msgspec.convert(told, ImageView)


def _table(found: list[dict[str, Any]]) -> str:
    return table([COLUMNS, *(_row(each, _view(view)) for each in found for view in each["images"])])


def _row(served: dict[str, Any], view: ImageView) -> tuple[str, ...]:
    memory = f"{view.memory_bytes / 1e6:.0f} MB" if view.memory_bytes else ""
    states = str(len(view.checkpoints) or "")
    place = (str(served["pid"]), view.name, view.language, view.state)
    return (*place, memory, states, served["project"], _doing(view))


def _doing(view: ImageView) -> str:
    if view.running is not None:
        return f"for {age(view.running.seconds)}: {label({'code': view.running.code or view.running.op})}"
    return f"last: {label({'code': view.latest.code})}" if view.latest is not None else ""


def _whole(served: dict[str, Any], view: ImageView) -> str:
    sandbox = f", sandbox {view.sandbox}" if view.sandbox else ""
    lines = [f"{view.name} ({view.language}), {view.state}{sandbox}, in process {served['pid']}"]
    lines.append(f"project {served['project']}, served since {moment(served['since'])}")
    if view.memory_bytes:
        lines.append(f"memory {view.memory_bytes / 1e6:.0f} MB, evaluations remembered: {view.calls}")
    if view.running is not None:
        lines += [f"running since {moment(view.running.since)}:", *_barred(view.running.code)]
        printed = view.running.stdout + view.running.stderr
        lines += ["printed so far:", *_barred(printed)] if printed else []
    lines += [f"in the background: {job}" for job in view.jobs]
    if view.latest is not None:
        ended = "ended well" if view.latest.reply.ok else "failed"
        lines += [f"last evaluation, at {moment(view.latest.at)}, {ended}:", *_barred(view.latest.code)]
    if view.unkept:
        lines.append(f"the present state is not kept: {view.unkept}")
    return "\n".join(map(reveal_line, [*lines, *_states(view)]))


def _states(view: ImageView) -> list[str]:
    shown = view.checkpoints[-MOST_STATES:]
    more = len(view.checkpoints) - len(shown)
    lines = [f"… {more} earlier states"] if more else []
    for state in shown:
        here = " (now)" if state.is_current else ""
        parent = f" from {state.parent}" if state.parent else ""
        lines.append(f"{state.id}{here}{parent} at {moment(state.at)}: {state.label or 'no label'}")
    return [f"states: {len(view.checkpoints)}", *lines] if view.checkpoints else []


def _barred(text: str) -> list[str]:
    return [f"| {line}" for line in text.rstrip("\n").split("\n")]
