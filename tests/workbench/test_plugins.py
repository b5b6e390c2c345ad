"""Plug-ins: found without imports, used by every command, and harmless when they are broken.

Each test has an environment of its own, which borrows the packages of the one that runs the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gramercy.testing.clients import StdioClient
from gramercy.workbench.plugins import find_plugins
from tests.support import fetch

ROOT = Path(__file__).parents[2]
HOOKS = "import pluggy\nhookimpl = pluggy.HookimplMarker('gramercy')\n"


class Home:
    """A scratch environment in which packages are installed."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(directory)]
        subprocess.run(command, check=True, timeout=60)
        self.directory = directory
        self.environment = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "HOME": str(directory)}
        self.packages = next(directory.glob("lib/python3*/site-packages"))
        borrowed = f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n"
        (self.packages / "borrowed.pth").write_text(borrowed)

    def add(self, name: str, code: str, module: str | None = None, place: Path | None = None) -> None:
        """Write a package of one module as an installer would."""
        packages = place or self.packages
        (packages / f"{module or name}.py").write_text(HOOKS + code)
        metadata = packages / f"gramercy_{name}-1.2.dist-info"
        metadata.mkdir()
        text = f"[console_scripts]\nx = y:z\n\n[gramercy]\n{name} = {module or name}\n\n[other]\na = b\n"
        (metadata / "entry_points.txt").write_text(text)

    def run(self, *words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of Python, or the command line with `-m gramercy`."""
        return subprocess.run(
            [self.directory / "bin/python", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=cwd or self.directory,
            env={**self.environment, **variables},
        )

    def gramercy(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "gramercy", *words, **options)

    def plugins(self, **variables: str) -> dict[str, dict[str, Any]]:
        """Return what `gramercy plugins --json` tells, by name."""
        done = self.gramercy("plugins", "--json", **variables)
        assert done.returncode == 0, done.stderr
        return {each["name"]: each for each in json.loads(done.stdout)}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def lay_out(home: Home, package: Path) -> None:
    """Put a package where an installer would, with what its pyproject.toml says."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    subprocess.run(["cp", "-r", *(package / "src").iterdir(), home.packages], check=True, timeout=60)
    metadata = home.packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    lines = [f"{name} = {module}" for name, module in project["entry-points"]["gramercy"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[gramercy]", *lines, ""]))


def install(home: Home, package: Path) -> None:
    """Install a package with pip, as a person does; its build fetches a build backend."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    fetch(*pip, "--prefix", home.directory, package)


@pytest.mark.parametrize("install", [lay_out, pytest.param(install, marks=pytest.mark.slow)])
@pytest.mark.contract("agents.interop.plugin-example")
def test_the_example_adds_one_thing_of_every_kind(home, tmp_path, install):
    """Issue of agents: one example plug-in package in examples/, installed in a test."""
    package = tmp_path / "plugin"
    subprocess.run(["cp", "-r", ROOT / "examples/plugin", package], check=True, timeout=60)
    install(home, package)
    assert home.plugins()["example"] == {
        "name": "example",
        "package": "gramercy-example",
        "version": "0.1.0",
        "tools": ["count_words"],
        "images": ["statistics"],
        "providers": ["Echo"],
        "commands": ["words"],
        "faults": [],
    }
    assert home.gramercy("words", "one two three").stdout == "3\n"
    assert "\nEcho         installed  of the plug-in example" in home.gramercy("models", "list").stdout
    assert "words  Count the words of a text." in home.gramercy("--help").stdout
    called = home.gramercy("tools", "call", "count_words", "text=a b", "--from", "plugin:example")
    assert called.stdout == "2\n"
    mean = "statistics.mean([1, 2])"
    project = tmp_path / "project"
    project.mkdir()
    evaluated = home.gramercy("eval", "--language", "statistics", mean, cwd=project)
    assert evaluated.stdout == "1.5\n", evaluated.stderr
    served = [str(home.directory / "bin/python"), "-m", "gramercy", "serve", "--image", "s=statistics"]
    with StdioClient(*served, cwd=project, env=home.environment) as client:
        client.initialize()
        described = client.call("describe_symbol", symbol="statistics.mean")
    assert "arithmetic mean" in described["content"][0]["text"], described
    program = (
        "from gramercy import Agent\n"
        "from gramercy.workbench.plugins import load_plugins\n"
        "load_plugins()\n"
        "print(Agent('parrot', 'Repeat.', 'Echo/loud').run('hello there').content)\n"
    )
    assert home.run("-c", program).stdout == "hello there \n"


BROKEN = {
    "raises": ("1 / 0", "ZeroDivisionError: division by zero", "raises.py:3"),
    "leaves": ("raise SystemExit(7)", "SystemExit: 7", "leaves.py:3"),
    "lacks": ("import no_such_module", "No module named 'no_such_module'", "lacks.py:3"),
    "garbled": ("def (", "SyntaxError", ""),
    "unknown": ("@hookimpl\ndef gramercy_tool():\n    return []", "gramercy_tool", ""),
    "hook": ("@hookimpl\ndef gramercy_tools():\n    raise OSError('gone')", "OSError: gone", "hook.py:5"),
    "wrong": ("@hookimpl\ndef gramercy_tools():\n    return [3]", "int", ""),
    "language": (
        "@hookimpl\ndef gramercy_images():\n    return {'perl': 'perl'}",
        "'perl' is no ImageKind but str",
        "",
    ),
    "provider": ("@hookimpl\ndef gramercy_providers():\n    return {'X': 'x'}", "'X' is no function", ""),
    "command": ("@hookimpl\ndef gramercy_commands():\n    return [print]", "commands of click", ""),
}
GOOD = (
    "import click\nprint('loaded')\n"
    "@hookimpl\ndef gramercy_commands():\n"
    "    return [click.Command('good', callback=lambda: print('fine')), click.Command('tools')]\n"
)


@pytest.mark.contract("agents.interop.plugin-broken")
@pytest.mark.slow
def test_a_broken_plug_in_is_named_and_ends_nothing(home):
    """Issue of agents: a broken plug-in is listed by the doctor, and never fatal."""
    for name, (code, _, _) in BROKEN.items():
        home.add(name, code)
    home.add("good", GOOD, module="good_plugin")
    done = home.gramercy("good")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    assert home.gramercy("--help").returncode == 0
    found = home.plugins()
    for name, (_, said, place) in BROKEN.items():
        faults = " ".join(map(str, found[name]["faults"]))
        assert said in faults, (name, faults)
        assert place in faults, (name, faults)
    assert found["good"]["commands"] == ["good"]
    assert found["good"]["faults"] == ["commands: 'tools' is left out, since it is ours"]
    program = (
        "from gramercy.ui.doctor.checks import examine\n"
        "from itertools import takewhile\n"
        "for each in takewhile(lambda each: not each.name.endswith('image'), examine()):\n"
        "    print(each.status, each.name, each.advice)\n"
    )
    # Without SBCL, of which the doctor would build a core first.
    told = home.run("-c", program, PATH="/nonexistent").stdout
    assert "warning plug-in raises update it, or remove it with 'pip uninstall gramercy-raises'" in told


def test_two_plug_ins_with_one_name_for_a_command_leave_it_to_the_first(home):
    same = "import click\n@hookimpl\ndef gramercy_commands():\n    return [click.Command('same')]\n"
    home.add("first", same)
    home.add("second", same)
    found = home.plugins()
    assert found["first"]["faults"] == []
    assert found["second"]["faults"] == ["commands: 'same' is left out, since another plug-in has it"]


def test_a_provider_of_ours_is_not_replaced(home):
    """Whoever writes OpenAI/… means the service, and its key goes to no other."""
    home.add("thief", "@hookimpl\ndef gramercy_providers():\n    return {'openai': object}")
    found = home.plugins()["thief"]
    assert found["providers"] == []
    assert found["faults"] == ["providers: 'openai' is left out, since it is ours"]


def test_tools_of_a_plug_in_that_is_not_there_are_explained(home):
    home.add("weather", "@hookimpl\ndef gramercy_tools():\n    raise OSError('no network')")
    asked = home.gramercy("tools", "list", "--from", "plugin:wether")
    assert (asked.returncode, "did you mean 'weather'?" in asked.stderr) == (3, True), asked.stderr
    asked = home.gramercy("tools", "list", "--from", "plugin:weather")
    assert (asked.returncode, "OSError: no network" in asked.stderr) == (3, True), asked.stderr


@pytest.mark.contract("agents.interop.plugin-installed")
def test_only_what_is_installed_is_loaded(home, tmp_path):
    """Threat model: evaluated code writes files into a project, where somebody starts a command."""
    project = tmp_path / "project"
    project.mkdir()
    home.add("planted", "open('loaded', 'w').close()", place=project)
    assert home.gramercy("plugins", cwd=project).stderr == "no plug-ins are installed in this environment\n"
    assert home.gramercy("--help", cwd=project, PYTHONPATH=str(project)).returncode == 0
    assert not (project / "loaded").exists()
    assert [entry.name for entry in find_plugins([str(project)])] == ["planted"]


def test_a_person_chooses_which_plug_ins_are_loaded(home):
    for name in ("one", "two"):
        home.add(name, f"print('{name} is here')")
    assert set(home.plugins()) == {"one", "two"}
    assert set(home.plugins(GRAMERCY_PLUGINS="two")) == {"two"}
    assert set(home.plugins(GRAMERCY_PLUGINS="")) == set()


def test_without_pluggy_it_is_said_how_to_get_it(home):
    home.add("one", "")
    (home.packages / "one.py").write_text("")
    program = (
        "import sys; sys.modules['pluggy'] = None\n"
        "from gramercy.workbench.plugins import load_plugins\nprint(load_plugins().plugins[0].faults)\n"
    )
    assert "pip install 'gramercy[plugins]'" in home.run("-c", program).stdout


@pytest.mark.contract("agents.interop.plugin-start")
def test_help_without_plug_ins_imports_nothing_for_them(home):
    """Style: the start of the command line must not get slower."""
    program = (
        "import sys\nfrom gramercy.ui.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\nprint(*sys.modules, file=sys.stderr)\n"
    )
    loaded = set(home.run("-c", program).stderr.split())
    assert "gramercy.workbench.plugins" in loaded
    assert not loaded & {"pluggy", "importlib.metadata", "msgspec", "gramercy.workbench.sources"}


def test_entry_points_are_read_as_installers_write_them(tmp_path):
    metadata = tmp_path / "Some_Package-2.0.dist-info"
    metadata.mkdir()
    text = "[a]\nx = y\n[gramercy]\n# a remark\nfirst=some.module\n second = other : Plugin \n\n[z]\nq = r\n"
    (metadata / "entry_points.txt").write_text(text)
    (tmp_path / "broken-1.dist-info").mkdir()
    first, second = find_plugins([str(tmp_path), str(tmp_path / "missing")])
    assert first == ("first", "some.module", "Some-Package", "2.0")
    assert (second.name, second.module) == ("second", "other : Plugin")
