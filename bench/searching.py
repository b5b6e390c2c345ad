"""Searching the files of a large project beside ripgrep and grep."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.facts import load_teller
from bench.mcp_stdio import in_turns
from bench.report import Section, Target, at_most, show
from gramercy.execution.executor import Executor
from gramercy.testing.image import MemoryImage
from gramercy.tools.registry import Registry
from gramercy.toolsets.project import register_project_tools
from gramercy.toolsets.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Effort, Reading

FILES, FEW = 50_000, 2_000
IN_ONE = 50
# One search of each takes a second or two where the machine is busy.
ROUNDS = 11
IGNORED = (
    "__pycache__/\n*.py[cod]\n*.so\n/build/\ndist/\n*.egg-info/\n.venv/\ndocs/_build/\n*.log\n!keep.log\n"
)
NEEDLE = "rare_needle_here"
OURS, RIPGREP, GREP = "gramercy", "ripgrep", "grep -r"
LIMITS = {RIPGREP: 2.0, GREP: 3.0}
# By title: the arguments of search_files, and the options of the two programs.
CASES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "a text in 100 files": ({"pattern": NEEDLE}, ["-F", NEEDLE], ["-F", NEEDLE]),
    "a text in no file": ({"pattern": "absent_needle"}, ["-F", "absent_needle"], ["-F", "absent_needle"]),
    "the text, any case": (
        {"pattern": NEEDLE.upper(), "ignore_case": True},
        ["-i", "-F", NEEDLE.upper()],
        ["-i", "-F", NEEDLE.upper()],
    ),
    "an expression": (
        {"pattern": "^ +return [a-z]+_needle", "regex": True},
        ["^ +return [a-z]+_needle"],
        ["-E", "^ +return [a-z]+_needle"],
    ),
    "a text in one file of 50": (
        {"pattern": NEEDLE, "glob": "f7.py"},
        ["-F", NEEDLE, "--glob", "f7.py"],
        ["-F", NEEDLE, "--include", "f7.py"],
    ),
}
COLUMNS = ("search", "gramercy ms", "ripgrep ms", "grep -r ms", "x ripgrep", "x grep -r")


def measure(effort: Effort) -> Section:
    """Make a project and search it, everybody in turns."""
    load = load_teller()
    count = FEW if effort.quick else FILES
    others = {name: found for name, found in ((RIPGREP, _program("rg")), (GREP, _program("grep"))) if found}
    with tempfile.TemporaryDirectory(prefix="bench-files-") as directory:
        project = Path(directory)
        size = grow(project, count)
        rounds = effort.process_rounds if effort.quick else ROUNDS
        readings = {title: _searched(title, project, others, rounds) for title in CASES}
    notes = [
        (
            f"{count:,} files of {size / 1e6:.0f} MB with a .gitignore, read before, so that no disk is "
            "measured; wall time of whole answers, in turns. Medians; a ratio is the median of the rounds'."
        ),
        (
            "gramercy: search_files through an executor, in one thread of its own process. ripgrep uses all "
            "cores; both programs are started for every search, as a shell would. grep knows no .gitignore."
        ),
        *(f"{name} is not installed: not measured" for name in LIMITS if name not in others),
    ]
    return Section(
        name="search",
        title="Searching files",
        intro="What a model waits for the lines of a large project that have a text.",
        columns=COLUMNS,
        rows=tuple(_row(title, found) for title, found in readings.items()),
        targets=_targets(readings, count),
        notes=(*notes, load()),
    )


def _program(name: str) -> str | None:
    return shutil.which(name)


def grow(project: Path, count: int) -> int:
    """Write the files of a project, the same each time; return their size."""
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz_"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(4_000)]
    (project / ".gitignore").write_text(IGNORED)
    size = 0
    for number in range(count):
        folder = project / f"p{number // IN_ONE % 20}" / f"m{number // IN_ONE // 20}"
        if number % IN_ONE == 0:
            folder.mkdir(parents=True)
        lines = [
            "    " * chance.randint(0, 3) + " ".join(chance.choices(words, k=chance.randint(1, 9)))
            for _ in range(int(chance.lognormvariate(3.9, 0.9)) + 1)
        ]
        if number % 500 == 7:
            lines.insert(len(lines) // 2, f"    return {NEEDLE}(x)")
        text = "\n".join(lines) + "\n"
        size += len(text)
        (folder / f"f{number % IN_ONE}.py").write_text(text)
    return size


def _searched(title: str, project: Path, others: dict[str, str], rounds: int) -> dict[str, Reading]:
    arguments, rg, grep = CASES[title]
    registry = Registry()
    register_project_tools(registry, MemoryImage("python"), Workspace(project))
    executor = Executor(registry)
    commands = {
        RIPGREP: ["--no-config", "--no-require-git", "--hidden", "--line-number", *rg, "."],
        GREP: ["-r", "-n", *grep, "."],
    }

    def take(name: str) -> float:
        started = perf_counter()
        if name == OURS:
            result = executor.execute({"id": "1", "name": "search_files", "arguments": arguments})
            assert result.success, result.content
        else:
            _run([others[name], *commands[name]], project)
        return perf_counter() - started

    names: Sequence[str] = [OURS, *others]
    for name in names:
        take(name)  # what is read for the first time comes from the disk
    return in_turns({name: [] for name in names}, rounds, take)


def _run(command: list[str], project: Path) -> None:
    # Exit code 1 says that nothing was found.
    done = subprocess.run(command, cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode > 1:
        raise RuntimeError(f"exit code {done.returncode} from {command[0]}")


def _row(title: str, found: dict[str, Reading]) -> tuple[str, ...]:
    ours = found[OURS]
    times = [show(found[name].median * 1e3) if name in found else "not installed" for name in (RIPGREP, GREP)]
    ratios = [f"{ours.ratio_to(found[name]):.2f}" if name in found else "" for name in (RIPGREP, GREP)]
    return (title, show(ours.median * 1e3), *times, *ratios)


def _targets(readings: dict[str, dict[str, Reading]], count: int) -> tuple[Target, ...]:
    """Hold the slowest search against ripgrep; where there is none, against grep."""
    first = next(iter(readings.values()))
    name = next((name for name in LIMITS if name in first), None)
    if name is None:
        return (Target("search_files against ripgrep or grep", "neither is installed", met=None),)
    ratios = {title: found[OURS].ratio_to(found[name]) for title, found in readings.items()}
    slowest = max(ratios, key=lambda title: ratios[title])
    text = f"search_files over {count:,} files against {name}, the slowest ({slowest})"
    return (at_most(text, ratios[slowest], LIMITS[name], "x"),)
