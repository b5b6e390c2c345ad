"""How long it takes to read large gram files, find the tools and bind each; and whether time is linear."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bench.measure import Contender, take_turns
from bench.report import Section, Target, at_most, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort

SIZES_MB = (0.25, 0.5, 1.0, 2.0)
LINEAR_WITHIN = 1.5
TOOL = """[tool_{number:06d}:ToolSpecification {{description:"Look up entry {number}, say how it stands."}} |
  (::Text {{paramName:"name", description:"Whose entry"}})
    ==>(::Int {{paramName:"limit", default:10}})
    ==>(::Bool {{paramName:"exact", optional:true}})
    ==>(::String)
]
"""


def make_file(megabytes: float) -> str:
    """Write a file of tools of about that size."""
    return "".join(
        TOOL.format(number=number) for number in range(round(megabytes * 1e6 / len(TOOL.format(number=0))))
    )


def measure(effort: Effort) -> Section:
    """Read, derive and bind, or say which part is not there."""
    texts = {f"{size:g} MB": make_file(size) for size in (SIZES_MB[:2] if effort.quick else SIZES_MB)}
    try:
        stages = _stages()
    except ImportError as error:
        return _empty(f"not available: {error}")
    rows = []
    per_megabyte: list[float] = []
    for label, text in texts.items():
        seconds = _time_stages(stages, text, effort)
        megabytes = len(text) / 1e6
        per_megabyte.append(sum(seconds) / megabytes)
        rows.append((label, *map(show, (*seconds, sum(seconds), per_megabyte[-1]))))
    growth = max(after / before for before, after in pairwise(per_megabyte))
    text = "time per MB when a file doubles"
    return _section(tuple(rows), (at_most(text, growth, LINEAR_WITHIN, "x"),))


def _stages() -> tuple[Callable[[Any], Any], ...]:
    from gramercy import ToolLibrary, create_tool
    from gramercy.gram.specification import specifications_in
    from gramercy.gram.syntax.reader import read

    def bind(specifications: Any) -> int:
        tools = [
            create_tool(s.name, s.description, s.schema, lambda arguments: arguments) for s in specifications
        ]
        library = ToolLibrary.of(tools)
        bound = [library.bind(specification) for specification in specifications]
        assert all(tool is not None for tool in bound)
        return len(bound)

    return (read, lambda document: list(specifications_in(document)), bind)


def _time_stages(stages: tuple[Callable[[Any], Any], ...], text: str, effort: Effort) -> list[float]:
    """Time each stage on what the stage before it made: the median of a few runs, for one takes long."""
    few = type(effort)(
        rounds=1 if effort.quick else 3, batch_seconds=0.0, process_rounds=1, quick=effort.quick
    )
    made: Any = text
    seconds = []
    for stage in stages:
        contender = Contender("stage", _once(stage, made))
        seconds.append(take_turns([contender], few)["stage"].median)
        made = stage(made)
    return seconds


def _once(stage: Callable[[Any], Any], value: Any) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            stage(value)

    return run


def _section(rows: tuple[tuple[str, ...], ...], targets: tuple[Target, ...]) -> Section:
    return Section(
        name="gram",
        title="Reading gram",
        intro="Generated files of tools: CPU seconds to read, to derive the specifications, to bind.",
        columns=("file", "read", "specifications", "make and bind", "all", "s per MB"),
        rows=rows,
        targets=targets,
        notes=("Binding includes making one implementation per specification, its schema checked.",),
    )


def _empty(reason: str) -> Section:
    target = Target(f"time per MB when a file doubles: at most {LINEAR_WITHIN:g}x", reason, met=None)
    return _section((), (target,))
