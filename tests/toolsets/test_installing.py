"""install_packages with real environments and a local index: what a person sees is what runs."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from gramercy.errors import ImageError
from gramercy.images.connection import as_json
from gramercy.images.environment import Environment
from gramercy.images.installing import installation_for
from gramercy.images.opening import open_image
from gramercy.images.processes import Program
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import SANDBOX, Desk

BASE = getattr(sys, "_base_executable", sys.executable)


def wheel(directory, name, version):
    """Write a wheel with one module into a directory."""
    home = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f'VERSION = "{version}"\n',
        f"{home}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{home}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as file:
        for path, content in files.items():
            file.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(content)}\n")
        file.writestr(f"{home}/RECORD", "".join([*record, f"{home}/RECORD,,\n"]))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Make a local index, as a person configures it, with two packages."""
    directory = tmp_path / "index"
    directory.mkdir()
    wheel(directory, "plums", "1.0")
    wheel(directory, "plums", "2.0")
    wheel(directory, "pears", "0.5")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    return directory


@pytest.fixture
def python_on(project):
    """Open a Python image of the project, with a desk."""
    opened = []

    def desk(**options):
        options = {"sandbox": SANDBOX, **options}
        opened.append(open_image("python", project=project, **options))
        return Desk(opened[-1], Workspace(project), "python")

    yield desk
    for image in opened:
        image.close()


@pytest.mark.slow
@pytest.mark.contract("day.runs.install")
@pytest.mark.usefixtures("index")
def test_packages_come_into_the_environment_and_the_image_sees_them_at_once(project, python_on):
    """By the pip of the environment, with what the person has configured for it."""
    subprocess.run([BASE, "-m", "venv", project / ".venv"], check=True, timeout=120)
    desk = python_on()
    assert "ModuleNotFoundError" in desk.failure("evaluate-python", code="import plums")
    answer = desk.text("install_packages", packages=["plums<2", "pears"])
    assert answer.startswith("Installed in ")
    assert "plums 1.0" in answer.splitlines()[0]
    assert "pears 0.5" in answer.splitlines()[0]
    assert "'1.0'" in desk.text("evaluate-python", code="import plums; plums.VERSION")
    assert "Everything was there already." in desk.text("install_packages", packages=["pears"])
    failed = desk.failure("install_packages", packages=["cherries"])
    assert "ended with status 1" in failed
    assert "cherries" in failed
    # Its own rights do not suffice for that: the environment is not writable in the sandbox.
    if SANDBOX:
        place = project / ".venv" / "x"
        assert "Read-only" in desk.failure("evaluate-python", code=f"open({str(place)!r}, 'w')")


@pytest.mark.contract("day.runs.install-shown")
def test_a_person_sees_the_exact_command_and_a_refusal_runs_nothing(project, python_on):
    """It is in the effect that the question shows."""
    subprocess.run([BASE, "-m", "venv", "--without-pip", project / ".venv"], check=True, timeout=120)
    packages = next((project / ".venv/lib").glob("python*")) / "site-packages"
    (packages / "pip").mkdir()
    ran = project / ".venv" / "ran"
    (packages / "pip" / "__init__.py").touch()
    (packages / "pip" / "__main__.py").write_text(f"import sys; open({str(ran)!r}, 'w').write(str(sys.argv))")
    asked = []

    def refuse(tool, arguments):
        asked.append(tool.effect(dict(arguments)).text())
        return "rejected"

    desk = python_on()
    refusing = Desk(desk.image, desk.workspace, "python", approver=refuse)
    refusing.failure("install_packages", packages=["plums"])
    assert f"{project}/.venv/bin/python -I -m pip install" in asked[0]
    assert asked[0].splitlines()[1].endswith(" plums")
    assert not ran.exists()
    desk.text("install_packages", packages=["plums"])
    assert "'install'" in ran.read_text()


@pytest.mark.contract("day.runs.install-nowhere")
def test_without_an_environment_nothing_is_installed(python_on):
    """Neither the system's Python nor the environment of gramercy itself is one of the project's."""
    desk = python_on()
    assert "python3 -m venv" in desk.failure("install_packages", packages=["plums"])
    chosen = python_on(environment=Environment(python=sys.executable))
    assert "python3 -m venv" in chosen.failure("install_packages", packages=["plums"])


@pytest.mark.parametrize(
    "package",
    [
        *(
            "-e",
            "--index-url=http://x",
            "-r requirements.txt",
            "; rm -rf /",
            "a b",
            "./here",
            "/etc",
            "..",
            "",
        ),
        *("git+https://x/y", "https://x/y.whl", "plums @ https://x", "plums; os_name", "plums\n--pre", "-"),
        *("plums==1 --pre", "$(id)", "`id`", "plums[--x]--y", "x" * 300, "plums\0"),
    ],
)
@pytest.mark.contract("day.runs.install-names")
def test_what_is_not_the_name_of_a_package_is_refused(package, tmp_path):
    """No option, path or address can be smuggled in, for either language."""
    for language, command in (
        ("python", [str(tmp_path / ".venv/bin/python")]),
        ("sbcl", ["sbcl", "--quicklisp", str(tmp_path / "setup.lisp")]),
    ):
        program = Program(language, command, as_json)
        with pytest.raises(ImageError, match="is not the name of a package"):
            installation_for(program, tmp_path, [package])


@pytest.mark.parametrize(
    "package", ["plums", "plums==1.0", "plums[dev,test]>=1,<2", "Zope.Interface", "a ~= 1.*"]
)
def test_names_with_extras_and_versions_are_taken(package, tmp_path):
    """As PEP 508 writes them."""
    environment = tmp_path / ".venv"
    (environment / "lib/python3.12/site-packages/pip").mkdir(parents=True)
    (environment / "lib/python3.12/site-packages/pip/__main__.py").touch()
    (environment / "pyvenv.cfg").touch()
    program = Program("python", [str(environment / "bin/python")], as_json)
    assert installation_for(program, tmp_path, [package]).command[-1] == package


def test_an_environment_without_pip_is_uvs(tmp_path, monkeypatch):
    """And where there is no uv either, the answer says how to get pip."""
    environment = tmp_path / ".venv"
    environment.mkdir()
    (environment / "pyvenv.cfg").touch()
    program = Program("python", [str(environment / "bin/python")], as_json)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ImageError, match="ensurepip"):
        installation_for(program, tmp_path, ["plums"])
    (programs / "uv").write_text("#!/bin/sh\necho ' + plums==1.0'\n")
    (programs / "uv").chmod(0o755)
    command = installation_for(program, tmp_path, ["plums"]).command
    assert command == (
        *(str(programs / "uv"), "pip", "install", "--no-progress"),
        *("--python", str(environment / "bin/python"), "plums"),
    )


@pytest.mark.contract("day.points.uv")
def test_uv_is_found_where_it_installs_itself(tmp_path, monkeypatch):
    """A server that a desktop program starts has a short PATH; an environment of uv has no pip."""
    environment, programs = tmp_path / ".venv", tmp_path / "home" / ".local" / "bin"
    environment.mkdir()
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9.1\n")
    program = Program("python", [str(environment / "bin/python")], as_json)
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    typed = f"`uv pip install --python {environment}/bin/python plums` where you have it"
    with pytest.raises(ImageError, match=re.escape(typed)):
        installation_for(program, tmp_path, ["plums"])
    (programs / "uv").write_text("#!/bin/sh\necho ' + plums==1.0'\n")
    (programs / "uv").chmod(0o755)
    installation = installation_for(program, tmp_path, ["plums"])
    assert installation.command[0] == str(programs / "uv")
    assert installation.run(60).lines == (" + plums==1.0",)


@pytest.mark.contract("day.runs.install-quicklisp")
def test_quicklisp_loads_systems_in_a_process_of_its_own(tmp_path):
    """A stand-in for Quicklisp says what it was asked for; without one the answer says so."""
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed")
    setup = tmp_path / "setup.lisp"
    setup.write_text("(defpackage :ql (:use :cl) (:export #:quickload)) (defun ql:quickload (x) (print x))")
    program = Program("sbcl", ["sbcl", "--core", "x", "--quicklisp", str(setup)], as_json)
    done = installation_for(program, tmp_path, ["Alexandria", "cl-ppcre"]).run(60)
    assert done.status == 0
    assert '("alexandria" "cl-ppcre")' in "\n".join(done.lines)
    with pytest.raises(ImageError, match="there is no Quicklisp here"):
        installation_for(Program("sbcl", ["sbcl"], as_json), tmp_path, ["alexandria"])


def test_a_command_that_takes_too_long_or_is_cancelled_is_ended(tmp_path):
    """With all that it has started; what it printed is bounded."""
    environment = tmp_path / ".venv"
    (environment / "lib/python3/site-packages/pip").mkdir(parents=True)
    (environment / "lib/python3/site-packages/pip/__main__.py").touch()
    (environment / "pyvenv.cfg").touch()
    (environment / "bin").mkdir()
    program = environment / "bin" / "python"
    program.write_text("#!/bin/sh\nseq 1 100000\nsleep 60 & sleep 60\n")
    program.chmod(0o755)
    installation = installation_for(Program("python", [str(program)], as_json), tmp_path, ["plums"])
    done = installation.run(1.0)
    assert done.status is None
    assert done.lines[-1] == "100000"
    assert len(done.lines) == 200
    seen: list[tuple[float, str]] = []

    def watch(seconds, line):
        seen.append((seconds, line))
        installation.cancel()

    done = installation.run(60, watch)
    assert done.status is None
    assert seen
