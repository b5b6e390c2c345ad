"""A day's work in a live image beside the same work with a shell and file tools, counted in characters.

`python -m bench.days` prints the tables; `--write` makes docs/reference/days.md and `--texts` prints every
call with its answer. tests/projects/test_days.py walks the same days. The Python days need an environment
with the packages of `bench/day-requirements.txt`, which `--python DIR` names.

Two days are written out below: a copy of Debian's alexandria, and one of the module statistics of the
standard library, each with a mistake and some tests. The others go through the same steps in the projects
of `bench.day_projects`.
"""

from __future__ import annotations

import argparse
import inspect
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.day_projects import PROJECTS, Project, contents, fetch_sources
from bench.day_steps import ours, theirs
from bench.facts import machine_facts
from bench.ways import PATIENCE, Desk, Done, Image, Step, walk, written

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCUMENT = Path(__file__).parents[1] / "docs" / "reference" / "days.md"
ALEXANDRIA = Path("/usr/share/common-lisp/source/alexandria")
# The usual estimate for English, code and JSON.
CHARACTERS_PER_TOKEN = 4
# ---- Lisp

LISP_MISTAKE = (
    "(let ((m (mod (1- n) (proper-list-length sequence))))",
    "(let ((m (mod (1- m) (proper-list-length sequence))))",
)
LISP_FILE = "alexandria-1/sequences.lisp"
LISP_SYSTEM = """
(defsystem "rotations"
  :depends-on ("alexandria" "fiveam")
  :components ((:file "rotations"))
  :perform (test-op (o c) (unless (uiop:symbol-call :fiveam :run! :rotations) (error "Tests have failed."))))
"""
LISP_TESTS = """
(defpackage :rotations (:use :common-lisp :fiveam))
(in-package :rotations)

(def-suite :rotations)
(in-suite :rotations)

(test to-the-right
  (is (equal '(3 1 2) (alexandria:rotate (list 1 2 3) 1))))

(test to-the-left
  (is (equal '(2 3 1) (alexandria:rotate (list 1 2 3) -1))))

(test not-at-all
  (is (equal '(1 2 3) (alexandria:rotate (list 1 2 3) 0))))
"""
LISP_NEW = """\
(defun rotations (sequence)
  "Return all rotations of SEQUENCE, beginning with itself."
  (loop for n from 0 below (length sequence)
        collect (rotate (copy-seq sequence) n)))"""
LISP_TABLE = """\
(defstruct heights list)
(defmethod gramercy:table ((heights heights))
  (values (heights-list heights) '("bed" "cm")))
(make-heights :list '(("rose" 120) ("fern" 80) ("lily" 95)))"""


def lisp_project(directory: Path) -> None:
    """Write the project of the Lisp day."""
    shutil.copytree(ALEXANDRIA, directory, dirs_exist_ok=True)
    right, wrong = LISP_MISTAKE
    file = directory / LISP_FILE
    text = file.read_text(encoding="utf-8")
    if text.count(right) != 1:
        raise ValueError(f"{file} is not the one that the day was written for")
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    (directory / "rotations.asd").write_text(LISP_SYSTEM, encoding="utf-8")
    (directory / "rotations.lisp").write_text(LISP_TESTS, encoding="utf-8")


LISP_DAY = [
    Step("load the system", "load-system", {"system": "alexandria"}, "Loaded"),
    Step("run the tests", "run_tests", {"what": "rotations"}, r"1 failed.*to-the-left"),
    Step(
        "see the failure",
        "evaluate-lisp",
        {"code": "(alexandria:rotate (list 1 2 3) -1)"},
        r"The variable ALEXANDRIA::M is unbound.*USE-VALUE",
        fails=True,
    ),
    Step("see the failure", "error_frames", {"frame": 0}, r"sequences\.lisp:48.*SEQUENCE = \(1 2 3\)"),
    Step("try a repair", "invoke_restart", {"restart": "USE-VALUE", "arguments": "1"}, r"=> \(2 3 1\)"),
    Step(
        "repair",
        "edit_file",
        {"path": LISP_FILE, "old": "(mod (1- m)", "new": "(mod (1- n)"},
        r"sequences\.lisp:48",
    ),
    Step(
        "add a function",
        "edit_definition",
        {"path": LISP_FILE, "name": "rotate", "action": "insert_after", "code": LISP_NEW},
        r"sequences\.lisp",
    ),
    Step(
        "preview",
        "preview_form",
        {"code": f'(load "{LISP_FILE}") (alexandria::rotations (list 1 2 3))'},
        r"=> \(\(1 2 3\) \(3 1 2\) \(2 3 1\)\)",
    ),
    Step("load it", "load_file", {"path": LISP_FILE}, r"Defined: function ALEXANDRIA::ROTATIONS"),
    Step("run the tests again", "run_tests", {"what": "rotations"}, r"3 passed"),
    Step(
        "try and take back",
        "evaluate-lisp",
        {"code": "(defun spin (list) (alexandria:rotate list 2))"},
    ),
    Step("try and take back", "undo_last", {}, "back at"),
    Step("show", "evaluate-lisp", {"code": LISP_TABLE}, r"rose"),
    Step("save", "save_state", {"name": "day"}, "day"),
]
LISP_TEST = (
    'sbcl --noinform --non-interactive --eval "(require :asdf)" '
    "--eval '(push #p\"./\" asdf:*central-registry*)' --eval '(asdf:test-system \"rotations\")' 2>&1"
)
LISP_SHELL = [
    Step(
        "run the tests",
        "Bash",
        {"command": f"{LISP_TEST} | tail -60"},
        r"variable ALEXANDRIA::M is\s+unbound",
    ),
    Step("see the failure", "Bash", {"command": f"grep -n rotate {LISP_FILE}"}, "rotate-head-to-tail"),
    Step("see the failure", "Read", {"file_path": LISP_FILE, "offset": 45, "limit": 16}, r"\(1- m\)"),
    Step(
        "repair",
        "Edit",
        {"file_path": LISP_FILE, "old_string": "(mod (1- m)", "new_string": "(mod (1- n)"},
    ),
    Step(
        "add a function",
        "Edit",
        {
            "file_path": LISP_FILE,
            "old_string": "          sequence)))\n\n(defun shuffle",
            "new_string": f"          sequence)))\n\n{LISP_NEW}\n\n(defun shuffle",
        },
    ),
    Step(
        "preview",
        "Bash",
        {
            "command": 'sbcl --noinform --non-interactive --eval "(require :asdf)" '
            "--eval '(push #p\"./\" asdf:*central-registry*)' --eval '(asdf:load-system \"alexandria\")' "
            "--eval '(print (alexandria::rotations (list 1 2 3)))' 2>&1 | tail -60"
        },
        r"\(\(1 2 3\) \(3 1 2\) \(2 3 1\)\)",
    ),
    Step("run the tests again", "Bash", {"command": f"{LISP_TEST} | tail -60"}, r"Pass: 3"),
]

# ---- Python

PYTHON_MISTAKE = (
    "        for i in range(1, n):\n            j, delta",
    "        for i in range(1, n + 1):\n            j, delta",
)
PYTHON_FILE = "src/figures.py"
PYTHON_TESTS = """
import figures


def test_quartiles_of_a_sample():
    assert figures.quantiles([1, 2, 3, 4]) == [1.25, 2.5, 3.75]


def test_quartiles_of_a_population():
    assert figures.quantiles([1, 2, 3, 4], method="inclusive") == [1.75, 2.5, 3.25]


def test_median():
    assert figures.median_high([1, 3, 5, 7]) == 5
"""
PYTHON_NEW = '''\
def spread(data):
    """Return the difference between the largest and the smallest value."""
    ordered = sorted(data)
    if not ordered:
        raise StatisticsError("no spread for empty data")
    return ordered[-1] - ordered[0]'''
PYTHON_PLOT = """\
import matplotlib.pyplot as plt
plt.bar(["q1", "q2", "q3"], figures.quantiles(range(1, 101), method="inclusive"))
plt.title("quartiles")"""


def python_project(directory: Path, environment: Path) -> None:
    """Write the project of the Python day."""
    right, wrong = PYTHON_MISTAKE
    text = inspect.getsource(statistics)
    if text.count(right) != 1:
        raise ValueError("the module statistics is not the one that the day was written for")
    (directory / "src").mkdir(parents=True)
    (directory / "tests").mkdir()
    (directory / PYTHON_FILE).write_text(text.replace(right, wrong), encoding="utf-8")
    (directory / "tests/test_figures.py").write_text(PYTHON_TESTS, encoding="utf-8")
    (directory / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["src"]\n')
    (directory / ".venv").symlink_to(environment.resolve())


PYTHON_DAY = [
    Step("run the tests", "run_tests", {}, r"1 failed, 2 passed.*test_quartiles_of_a_population"),
    Step(
        "see the failure",
        "evaluate-python",
        {"code": 'import figures\nfigures.quantiles([1, 2, 3, 4], method="inclusive")'},
        "IndexError",
        fails=True,
    ),
    Step("see the failure", "error_frames", {"frame": 0}, r"\bi\b.*\bn\b|\bn\b.*\bi\b"),
    Step(
        "try a repair",
        "eval_in_frame",
        {"code": "[divmod(i * m, n) for i in range(1, n)]", "frame": 0},
        r"=> \[\(0, 3\), \(1, 2\), \(2, 1\)\]",
    ),
    Step(
        "repair",
        "edit_file",
        {"path": PYTHON_FILE, "old": "range(1, n + 1)", "new": "range(1, n)"},
        r"figures\.py",
    ),
    Step(
        "add a function",
        "edit_definition",
        {"path": PYTHON_FILE, "name": "median_high", "action": "insert_after", "code": PYTHON_NEW},
        r"figures\.py",
    ),
    Step(
        "preview",
        "preview_form",
        {"code": "import importlib\nimportlib.reload(figures)\nfigures.spread([4, 9, 2])"},
        r"=> 7",
    ),
    Step("load it", "load_file", {"path": PYTHON_FILE}, r"Defined: function figures\.spread"),
    Step("run the tests again", "run_tests", {}, r"3 passed"),
    Step("try and take back", "evaluate-python", {"code": "figures.spread = lambda data: 0"}),
    Step("try and take back", "undo_last", {}, "back at"),
    Step("show", "evaluate-python", {"code": PYTHON_PLOT}, r"640"),
    Step("save", "save_state", {"name": "day"}, "day"),
]
PYTHON_SHELL = [
    Step("run the tests", "Bash", {"command": ".venv/bin/python -m pytest -q --showlocals"}, "1 failed"),
    Step(
        "see the failure",
        "Bash",
        {"command": f"sed -n '/^def quantiles/,/raise ValueError/p' {PYTHON_FILE}"},
        r"n \+ 1",
    ),
    Step(
        "repair",
        "Edit",
        {"file_path": PYTHON_FILE, "old_string": "range(1, n + 1)", "new_string": "range(1, n)"},
    ),
    Step("add a function", "Bash", {"command": f'grep -n -A 20 "def median_high" {PYTHON_FILE}'}),
    Step(
        "add a function",
        "Edit",
        {
            "file_path": PYTHON_FILE,
            "old_string": "    return data[n // 2]\n\n\ndef median_grouped",
            "new_string": f"    return data[n // 2]\n\n\n{PYTHON_NEW}\n\n\ndef median_grouped",
        },
    ),
    Step(
        "preview",
        "Bash",
        {"command": 'cd src && ../.venv/bin/python -c "import figures; print(figures.spread([4, 9, 2]))"'},
        "7",
    ),
    Step("run the tests again", "Bash", {"command": ".venv/bin/python -m pytest -q"}, "3 passed"),
    Step(
        "show",
        "Bash",
        {
            "command": f"cd src && ../.venv/bin/python - <<'END'\nimport figures\n{PYTHON_PLOT}\n"
            "plt.savefig('../quartiles.png')\nEND"
        },
    ),
    Step("show", "Read", {"file_path": "quartiles.png"}),
]


# ---- the tables


@dataclass(frozen=True, slots=True)
class Day:
    """A language or a project, and the steps of both ways."""

    name: str
    ours: tuple[Done, ...]
    theirs: tuple[Done, ...]


def lisp_day() -> Day:
    """Walk the Lisp day both ways, each in a project of its own."""
    with tempfile.TemporaryDirectory(prefix="day-") as directory:
        mine, shells = Path(directory, "ours"), Path(directory, "theirs")
        lisp_project(mine)
        lisp_project(shells)
        desk = Desk(shells)
        # Compiles; a developer has done so before.
        desk.call(LISP_SHELL[0])
        return _day("Lisp", Image("sbcl", mine), LISP_DAY, desk, LISP_SHELL)


def python_day(environment: Path) -> Day:
    """Walk the Python day both ways."""
    with tempfile.TemporaryDirectory(prefix="day-") as directory:
        mine, shells = Path(directory, "ours"), Path(directory, "theirs")
        python_project(mine, environment)
        python_project(shells, environment)
        return _day(
            "Python",
            Image("python", mine, "--python", str(environment)),
            PYTHON_DAY,
            Desk(shells),
            PYTHON_SHELL,
        )


def project_day(project: Project, sources: Path, environment: Path) -> Day:
    """Walk the day of a project both ways; each must leave what git knows as it was."""
    with tempfile.TemporaryDirectory(prefix="day-") as directory:
        mine, shells = Path(directory, "ours"), Path(directory, "theirs")
        for place in (mine, shells):
            project.make(place, sources, environment)
        before = contents(mine)
        options = ("--python", str(environment)) if project.language == "python" else ()
        image = Image(project.language, mine, *options, sets=("default",))
        day = _day(project.name, image, ours(project), Desk(shells), theirs(project))
        for place in (mine, shells):
            after = contents(place)
            if changed := [name for name in before if after.get(name) != before[name]]:
                raise AssertionError(f"the day of {project.name} has changed {changed}")
        return day


def _day(name: str, image: Image, mine: list[Step], desk: Desk, shells: list[Step]) -> Day:
    try:
        return Day(name, tuple(walk(image, mine)), tuple(walk(desk, shells)))
    finally:
        image.client.close()


# ---- the page

HEAD = """\
# A day beside a shell

The same work twice: in a live image with the tools of gramercy, and with a shell and the file tools that a
client brings along. Made by `python -m bench.days --write --python DIR`, where DIR is an environment with
the packages of `bench/day-requirements.txt`; `--texts` prints every call and answer. Characters are those
that a model writes (name and arguments of a call) and reads (the text of the answer); a picture is counted
apart. The lists of tools stand in the model's context both ways and are not counted: see
[answers](answers.md) for ours.

The other way is counted as leanly as it can be: it knows where to look and reads no more than it needs, its
edits answer with one word, its compiled files are there already, and its outputs are cut with `tail`. What it
cannot do is marked with a dash: to go on from the moment of the error with another value, to take an
evaluation back, to keep a state of the program.

The two days below the table of projects are told part by part: a copy of Debian's alexandria with a wrong
variable in `sequences.lisp` (25 KB), and a copy of the standard library's `statistics` with a wrong bound in
it (47 KB), each with a few tests.
"""


PROJECTS_HEAD = """\
## In real projects

The same steps in each: open the project, ask for a definition, break it with an edit, run the tests, look at
the error, fix it, call again what was held before the edits, run the tests, change a value and write a file,
take both back, go forward, and back again. The tools are those of the default set. Each answer is checked: no
step may be stale or falsely green, and git finds the project as it was. Sources come from the index of
packages at the versions of `bench/day_projects.py`, and from Debian. What a shell cannot do is counted apart,
as beyond a shell: to hold what was opened, to look into a frame, to see a value that was undone.

| project | gramercy: calls | characters | shell: calls | characters | beyond a shell | why not fewer |
|---|---:|---:|---:|---:|---:|---|
"""


def page(days: Sequence[Day], projects: Sequence[Day]) -> str:
    """Write the page."""
    limits = {project.name: project.limit for project in PROJECTS}
    facts = "\n".join(f"- {fact}" for fact in machine_facts())
    rows = "".join(f"{_row(day, limits[day.name])}\n" for day in projects)
    return "\n".join([HEAD, facts, "", PROJECTS_HEAD + rows, *(line for day in days for line in _table(day))])


def _row(day: Day, limit: str) -> str:
    shared = {done.step.part for done in day.ours} & {done.step.part for done in day.theirs}
    mine = [done for done in day.ours if done.step.part in shared]
    beyond = sum(done.characters for done in day.ours) - sum(done.characters for done in mine)
    cells = [f"{len(way)} | {sum(done.characters for done in way):,}" for way in (mine, day.theirs)]
    return f"| {day.name} | {cells[0]} | {cells[1]} | {beyond:,} | {limit} |"


def _table(day: Day) -> list[str]:
    parts = list(dict.fromkeys(done.step.part for done in (*day.ours, *day.theirs)))
    rows = [
        f"## {day.name}",
        "",
        "| part | gramercy: calls | characters | shell: calls | characters |",
        "|---|---|---:|---|---:|",
    ]
    rows += [f"| {part} | {_cells(day.ours, part)} | {_cells(day.theirs, part)} |" for part in parts]
    ours, theirs = (sum(done.characters for done in way) for way in (day.ours, day.theirs))
    tokens = f"about {ours // CHARACTERS_PER_TOKEN:,} and {theirs // CHARACTERS_PER_TOKEN:,} tokens"
    return [
        *rows,
        f"| sum | {len(day.ours)} | {ours:,} | {len(day.theirs)} | {theirs:,} |",
        "",
        f"That is {tokens}.",
        "",
    ]


def _cells(way: Sequence[Done], part: str) -> str:
    done = [each for each in way if each.step.part == part]
    if not done:
        return "- | -"
    pictures = sum(len(each.pictures) for each in done)
    shown = f" + {pictures} picture{'s' if pictures > 1 else ''}" if pictures else ""
    return f"{', '.join(each.step.tool for each in done)} | {sum(each.characters for each in done):,}{shown}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="bench.days", description=__doc__)
    parser.add_argument("--python", type=Path, metavar="DIR", help="environment of the Python days")
    parser.add_argument("--write", action="store_true", help=f"make {DOCUMENT.name}")
    parser.add_argument("--texts", action="store_true", help="print every call and answer")
    options = parser.parse_args()
    if options.python is None:
        parser.error("--python DIR is needed: an environment with the packages of bench/day-requirements.txt")
    with tempfile.TemporaryDirectory(prefix="days-") as sources:
        fetch_sources(Path(sources), lambda *words: subprocess.run(words, check=True, timeout=PATIENCE))
        projects = [project_day(each, Path(sources), options.python) for each in PROJECTS]
    days = [lisp_day(), python_day(options.python)]
    if options.texts:
        for done in (each for day in (*projects, *days) for each in (*day.ours, *day.theirs)):
            print(f"===== {done.step.part}: {done.step.tool} {written(done.step)}\n{done.answer}\n")
    text = page(days, projects)
    if options.write:
        DOCUMENT.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
