"""The projects of the days: real sources at pinned versions, and the mistake that breaks each.

Python sources come from the index of packages, Lisp ones from Debian; none is kept in the repository.
`Project` says what differs between the days; the steps, the same for all, are in `bench.day_steps`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEBIAN = Path("/usr/share/common-lisp/source")
FETCHING = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project, and a mistake in it: `right` is what the source has, `wrong` what an edit makes of it."""

    name: str
    language: str = "python"
    # A source distribution, or a directory of Debian; without either the files below are all of it.
    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    file: str
    right: str
    wrong: str
    # What is asked for before anything is changed, and what the answer must have.
    symbol: str
    # The lines of its definition after the first: a shell reads these, and no more.
    after: int
    # Loads the project and holds what the mistake is in, as a registry or a route would.
    opening: str
    call: str
    error: str
    value: str
    # The frame of the error that is in the project.
    frame: int = 0
    # What run_tests is asked for, and the same for a shell.
    tests: str
    shell_tests: str
    # Threads run, beside which no state is kept: frames are text, undo runs calls again, nothing is redone.
    has_threads: bool = False
    # Lisp: the system that is loaded first.
    system: str = ""
    # Why the day takes more characters than with a shell, if so.
    limit: str = ""

    def make(self, directory: Path, sources: Path, environment: Path) -> None:
        """Write the project as its makers left it, with its environment, under git."""
        if self.source.startswith("/"):
            shutil.copytree(self.source, directory, dirs_exist_ok=True)
        elif self.source:
            shutil.copytree(sources / self.source.replace("==", "-"), directory, dirs_exist_ok=True)
        for name, text in self.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8")
        text = (directory / self.file).read_text(encoding="utf-8")
        if text.count(self.right) != 1:
            raise ValueError(f"{self.file} of {self.name} is not the one that the day was written for")
        if self.language == "python":
            (directory / ".venv").symlink_to(environment.resolve())
        _git(directory, "init", "--quiet")
        (directory / ".git/info/exclude").write_text(".venv\n__pycache__\n*.fasl\n", encoding="utf-8")
        _git(directory, "add", "--all")
        _git(directory, "commit", "--quiet", "--message", "As it came")


def contents(directory: Path) -> dict[str, bytes]:
    """Return what git knows of a project, and what each file has."""
    names = [name for name in _git(directory, "ls-files", "-z").split("\0") if name]
    files = {name: directory / name for name in names}
    return {name: file.read_bytes() for name, file in files.items() if file.is_file()}


def _git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=day", "-c", "user.email=day@localhost")
    done = subprocess.run(
        ["git", "-C", str(directory), *who, *words], check=True, capture_output=True, timeout=FETCHING
    )
    return done.stdout.decode()


def fetch_sources(directory: Path, fetch: Callable[..., Any]) -> None:
    """Fetch the source distributions of the Python projects, and unpack them; `fetch` runs a command."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps")
    for package in (each.source for each in PROJECTS if "==" in each.source):
        fetch(*pip, "--no-binary", ":all:", "--dest", directory, package)
        with tarfile.open(directory / f"{package.replace('==', '-')}.tar.gz") as packed:
            # Debian's Python 3.11.2 has no filters yet.
            safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            packed.extractall(directory, **safely)


def _suite(name: str, needs: str, tests: str) -> dict[str, str]:
    """Write a system with a few tests, for a library whose own are not in Debian."""
    definition = f"""\
(defsystem "{name}"
  :depends-on ("{needs}" "fiveam")
  :components ((:file "{name}"))
  :perform (test-op (o c) (unless (uiop:symbol-call :fiveam :run! :{name}) (error "Tests have failed."))))
"""
    head = f"""\
(defpackage :{name} (:use :common-lisp :fiveam))
(in-package :{name})

(def-suite :{name})
(in-suite :{name})
"""
    return {f"{name}.asd": definition, f"{name}.lisp": f"{head}\n{tests}"}


def _by_pytest(what: str, before: str = "") -> str:
    return f"{before}.venv/bin/python -m pytest -q {what} 2>&1 | tail -40"


def _by_asdf(system: str) -> str:
    return (
        'sbcl --noinform --non-interactive --eval "(require :asdf)" '
        "--eval '(push #p\"./\" asdf:*central-registry*)' "
        f"--eval '(asdf:test-system \"{system}\")' 2>&1 | tail -60"
    )


SHOP = {
    "manage.py": """\
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
""",
    "site_settings.py": """\
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent
SECRET_KEY = "for the day only"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
""",
    "shop/__init__.py": "",
    "shop/models.py": '''\
from django.db import models


class Plant(models.Model):
    """What the shop sells."""

    name = models.CharField(max_length=40)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    stock = models.IntegerField(default=0)

    def worth(self):
        """Return what the stock of it is worth."""
        return self.price * self.stock

    @classmethod
    def total(cls):
        """Return what the whole stock is worth."""
        return sum(plant.worth() for plant in cls.objects.all())
''',
    "shop/migrations/__init__.py": "",
    "shop/migrations/0001_initial.py": """\
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            "Plant",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=40)),
                ("price", models.DecimalField(max_digits=8, decimal_places=2)),
                ("stock", models.IntegerField(default=0)),
            ],
        )
    ]
""",
    "shop/tests.py": """\
from decimal import Decimal

from django.test import TestCase

from shop.models import Plant


class Worth(TestCase):
    def test_the_whole_stock(self):
        Plant.objects.create(name="rose", price=Decimal("4.50"), stock=2)
        Plant.objects.create(name="fern", price=Decimal("3.00"), stock=1)
        self.assertEqual(Plant.total(), Decimal("12.00"))

    def test_an_empty_shop(self):
        self.assertEqual(Plant.total(), 0)
""",
}
ANALYSIS = {
    "analysis.py": '''\
"""Yields of beds, week by week."""

import numpy as np
import pandas as pd


def measured(beds=200, weeks=52, seed=7):
    """Return made-up measurements: one row for each bed and week."""
    chance = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "bed": np.repeat(np.arange(beds), weeks),
        "week": np.tile(np.arange(weeks), beds),
        "grams": chance.normal(1000, 120, beds * weeks).round(1),
    })
    return frame.assign(season=pd.cut(frame["week"], [-1, 12, 25, 38, 51], labels=["w", "sp", "su", "a"]))


def by_season(frame):
    """Return the mean yield of each season, the best first."""
    means = frame.groupby("season", observed=True)["grams"].mean()
    return means.sort_values(ascending=False).round(1)
''',
    "test_analysis.py": """\
from analysis import by_season, measured


def test_every_season_has_a_mean():
    assert len(by_season(measured(beds=4))) == 4


def test_the_best_is_first():
    found = by_season(measured(beds=4))
    assert found.iloc[0] == found.max()
""",
}

PROJECTS = (
    Project(
        name="click",
        source="click==8.5.1",
        file="src/click/utils.py",
        right="    last_index = len(words) - 1\n",
        wrong="    last_index = len(words)\n",
        symbol="click.utils._make_default_short_help",
        after=38,
        opening=(
            "import sys; sys.path.insert(0, 'src')\nimport click\n"
            "@click.command(help='Say hello to all.')\ndef hello(): pass"
        ),
        call="hello.get_short_help_str()",
        error=r"IndexError",
        value=r"Say hello to all\.",
        tests="tests/test_commands.py",
        shell_tests=_by_pytest("tests/test_commands.py", "PYTHONPATH=src "),
    ),
    Project(
        name="itsdangerous",
        source="itsdangerous==2.2.0",
        file="src/itsdangerous/encoding.py",
        right='urlsafe_b64encode(string).rstrip(b"=")',
        wrong='urlsafe_b64encode(string).rstrip("=")',
        symbol="itsdangerous.encoding.base64_encode",
        after=5,
        opening=(
            "import sys; sys.path.insert(0, 'src')\nimport itsdangerous\n"
            "signer = itsdangerous.Signer('a key'); sign = signer.sign"
        ),
        call="sign('value')",
        error=r"TypeError",
        value=r"b'value\.",
        tests="tests/test_itsdangerous/test_encoding.py",
        shell_tests=_by_pytest("tests/test_itsdangerous/test_encoding.py", "PYTHONPATH=src "),
    ),
    Project(
        name="starlette",
        source="starlette==1.10.0",
        file="starlette/routing.py",
        right='match.groups("str")',
        wrong="match.groups()",
        symbol="starlette.routing.compile_path",
        after=57,
        opening="from starlette.routing import Route, compile_path\nmakers = {'path': compile_path}",
        call="makers['path']('/plants/{name}')[1]",
        error=r"AttributeError",
        value=r"/plants/\{name\}",
        tests="tests/test_routing.py",
        shell_tests=_by_pytest("tests/test_routing.py"),
    ),
    Project(
        name="networkx",
        source="networkx==3.6.1",
        file="networkx/algorithms/centrality/degree_alg.py",
        right="    s = 1.0 / (len(G) - 1.0)\n    centrality = {n: d * s for n, d in G.degree()}\n",
        wrong="    s = 1.0 / (len(G) - G.order())\n    centrality = {n: d * s for n, d in G.degree()}\n",
        symbol="networkx.degree_centrality",
        after=40,
        opening="import networkx as nx\nmeasures = [nx.degree_centrality]\ngraph = nx.star_graph(3)",
        call="measures[0](graph)",
        error=r"ZeroDivisionError",
        value=r"\{0: 1\.0, 1: 0\.333",
        limit="four tests fail, and all are shown; the shell's output is cut to 40 lines",
        tests="networkx/algorithms/centrality/tests/test_degree_centrality.py",
        shell_tests=_by_pytest("networkx/algorithms/centrality/tests/test_degree_centrality.py"),
    ),
    Project(
        name="tqdm",
        source="tqdm==4.70.1",
        # Its own settings of pytest ask for a plug-in that stands in the way of the other projects' tests.
        files={"pytest.ini": "[pytest]\npython_files = tests_*.py\n"},
        file="tqdm/std.py",
        right="mins, s = divmod(abs(int(t)), 60)",
        wrong="mins, s = divmod(abs(t), 60)",
        symbol="tqdm.std.tqdm.format_interval",
        after=17,
        opening="from tqdm import tqdm\nshown = tqdm.format_interval",
        # A bar starts a thread that watches over bars.
        call="[shown(61.5), len(list(tqdm(range(3))))]",
        error=r"ValueError",
        value=r"\['01:01', 3\]",
        tests="tests/tests_tqdm.py::test_leave_option",
        shell_tests=_by_pytest("tests/tests_tqdm.py::test_leave_option"),
    ),
    Project(
        name="FastAPI",
        source="fastapi==0.162.7",
        file="fastapi/utils.py",
        right="list(route.methods)[0].lower()",
        wrong="route.methods[0].lower()",
        symbol="fastapi.utils.generate_unique_id",
        after=5,
        opening=(
            "from fastapi import FastAPI\n"
            "def paths():\n    app = FastAPI()\n    app.get('/plants')(lambda: ['rose'])\n"
            "    return list(app.openapi()['paths'])"
        ),
        call="paths()",
        error=r"TypeError",
        value=r"\['/plants'\]",
        tests="tests/test_generate_unique_id_function.py",
        shell_tests=_by_pytest("tests/test_generate_unique_id_function.py"),
    ),
    Project(
        name="Django",
        files=SHOP,
        file="shop/models.py",
        right="        return self.price * self.stock\n",
        wrong="        return self.price * self.stocked\n",
        symbol="shop.models.Plant.worth",
        after=2,
        opening=(
            "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'site_settings'\n"
            "import django; django.setup()\n"
            "from django.core.management import call_command\ncall_command('migrate', verbosity=0)\n"
            "from shop.models import Plant\n"
            "rose, _ = Plant.objects.get_or_create(name='rose', defaults={'price': 4, 'stock': 2})"
        ),
        call="Plant.total()",
        error=r"AttributeError",
        value=r"\b8\b|8\.00",
        tests="shop",
        shell_tests=".venv/bin/python manage.py test shop 2>&1 | tail -40",
    ),
    Project(
        name="data science",
        files=ANALYSIS,
        file="analysis.py",
        right='frame.groupby("season", observed=True)',
        wrong='frame.groupby("seasons", observed=True)',
        symbol="analysis.by_season",
        after=3,
        opening="import analysis\nframe = analysis.measured()\nsteps = [analysis.by_season]",
        call="steps[0](frame)",
        error=r"KeyError",
        value=r"season",
        frame=4,
        tests="test_analysis.py",
        shell_tests=_by_pytest("test_analysis.py"),
    ),
    Project(
        name="cl-ppcre",
        language="sbcl",
        source=str(DEBIAN / "cl-ppcre"),
        file="api.lisp",
        right='(regex-replace-all non-word-char-scanner string "\\\\\\\\\\\\&"',
        wrong='(regex-replace-all string non-word-char-scanner "\\\\\\\\\\\\&"',
        symbol="cl-ppcre:quote-meta-chars",
        after=3,
        system="cl-ppcre",
        opening="(defvar *quote* #'cl-ppcre:quote-meta-chars)",
        call='(cl-ppcre:quote-meta-chars "a.b")',
        error=r"not of type|no applicable",
        value=r'"a\\\\\.b"',
        tests="quoting",
        files=_suite(
            "quoting",
            "cl-ppcre",
            '(test a-dot\n  (is (equal "a\\\\.b" (cl-ppcre:quote-meta-chars "a.b"))))\n',
        ),
        shell_tests=_by_asdf("quoting"),
    ),
    Project(
        name="hunchentoot",
        language="sbcl",
        source=str(DEBIAN / "hunchentoot"),
        file="util.lisp",
        right="(svref +month-names+ (1- month))",
        wrong="(svref +month-names+ month)",
        symbol="hunchentoot:rfc-1123-date",
        after=14,
        system="hunchentoot",
        opening="(defvar *december* (encode-universal-time 0 0 0 25 12 2025 0))",
        call="(hunchentoot:rfc-1123-date *december*)",
        error=r"[Ii]nvalid index|out of bounds",
        value=r'"Thu, 25 Dec 2025 00:00:00 GMT"',
        tests="dates",
        files=_suite(
            "dates",
            "hunchentoot",
            '(test december\n  (is (search "25 Dec" (hunchentoot:rfc-1123-date\n'
            "                             (encode-universal-time 0 0 0 25 12 2025 0)))))\n",
        ),
        shell_tests=_by_asdf("dates"),
    ),
    Project(
        name="lparallel",
        language="sbcl",
        source=str(DEBIAN / "lparallel"),
        file="src/cognate/pcount.lisp",
        right="    (if (zerop subsize)\n        0",
        wrong="    (if (minusp subsize)\n        0",
        symbol="lparallel:pcount-if",
        after=24,
        system="lparallel",
        has_threads=True,
        # A kernel is a pool of threads.
        opening="(setf lparallel:*kernel* (lparallel:make-kernel 2))",
        call="(list (lparallel:pcount 1 '(1 2 1)) (lparallel:pcount 1 '()))",
        error=r"zero-length sequence",
        value=r"\(2 0\)",
        tests="counting",
        files=_suite(
            "counting",
            "lparallel",
            "(test nothing\n  (let ((lparallel:*kernel* (lparallel:make-kernel 1)))\n"
            "    (unwind-protect (is (= 0 (lparallel:pcount 1 '())))\n      (lparallel:end-kernel))))\n",
        ),
        shell_tests=_by_asdf("counting"),
    ),
    Project(
        name="ironclad",
        language="sbcl",
        source=str(DEBIAN / "ironclad"),
        file="src/util.lisp",
        right="(char-to-digit (char string (1+ j)))",
        wrong="(char-to-digit (char string (+ 2 j)))",
        symbol="ironclad:hex-string-to-byte-array",
        after=18,
        system="ironclad/core",
        opening='(defvar *keys* (list "00ff"))',
        call="(ironclad:hex-string-to-byte-array (first *keys*))",
        error=r"[Ii]nvalid index|out of bounds",
        value=r"#\(0 255\)",
        tests="hexing",
        files=_suite(
            "hexing",
            "ironclad/core",
            '(test two-bytes\n  (is (equalp #(0 255) (ironclad:hex-string-to-byte-array "00ff"))))\n',
        ),
        shell_tests=_by_asdf("hexing"),
    ),
)
