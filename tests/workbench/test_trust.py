"""Files that run or rule on the host: a change that evaluated code could have made is not used unseen."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gramercy.errors import UntrustedFileError
from gramercy.images import trust
from gramercy.images.opening import open_image
from gramercy.images.sandbox import Confinement, why_not
from gramercy.ui.cli.main import cli
from gramercy.workbench.policies import read_policies
from gramercy.workbench.sources import load_tools

needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason=f"{why_not(Confinement.BUBBLEWRAP)}"
)
TOOLS = """
from gramercy import tool
import {module}

@tool
def greet(name: str) -> str:
    '''Greet.'''
    return {module}.word + name
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Keep what is accepted in a directory of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def project(tmp_path, request):
    """Return a project with a file of tools that imports a module beside it."""
    path = (tmp_path / "project").resolve()
    path.mkdir()
    module = f"words_{abs(hash(request.node.name))}"
    (path / f"{module}.py").write_text("word = 'Hello, '\n")
    (path / "tools.py").write_text(TOOLS.format(module=module))
    yield path
    for name in [name for name in sys.modules if name.startswith("words_")]:
        del sys.modules[name]


@pytest.fixture
def image(project):
    """Return an image of the project."""
    image = open_image("python", project=project)
    yield image
    image.close()


def load(project):
    for name in [name for name in sys.modules if name.startswith("words_")]:
        del sys.modules[name]
    # A finder lists each directory once, until its time has changed.
    importlib.invalidate_caches()
    return load_tools(str(project / "tools.py"))


def module_of(project):
    return next(project.glob("words_*.py"))


@needs_bubblewrap
@pytest.mark.contract("trust.walls.changed-files")
def test_a_module_that_evaluated_code_changed_is_not_run(project, image):
    """Trust, control files: a changed --from file ran on the host at the next start."""
    load(project)
    marker = project.parent / "RAN"
    code = f"open({module_of(project).name!r}, 'a').write({f'open({str(marker)!r}, chr(119))'!r})"
    assert image.evaluate(code).ok
    image.close()
    with pytest.raises(UntrustedFileError, match="gramercy trust"):
        load(project)
    assert not marker.exists()


@needs_bubblewrap
@pytest.mark.contract("trust.walls.changed-files")
def test_a_module_that_was_put_beside_the_tools_is_not_run(project, image):
    """A file in the directory of the tools is imported before one of the library of the same name."""
    load(project)
    assert image.evaluate("open('colorsys.py', 'w').write('word = 1')").ok
    image.close()
    (project / "tools.py").write_text((project / "tools.py").read_text() + "\nimport colorsys\n")
    sys.modules.pop("colorsys", None)
    with pytest.raises(UntrustedFileError, match=r"colorsys\.py"):
        load(project)


@needs_bubblewrap
@pytest.mark.contract("trust.walls.changed-files")
def test_a_cache_beside_the_tools_is_not_run(project, image):
    """Python runs a cached file whose header fits the time and size of its source."""
    load(project)
    source = project / "tools.py"
    status = source.stat()
    evil = project.parent / "evil.py"
    marker = project.parent / "RAN"
    text = f"open({str(marker)!r}, 'w')\n"
    evil.write_text(text + "#" * (status.st_size - len(text)))
    os.utime(evil, ns=(status.st_mtime_ns, status.st_mtime_ns))
    cache = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(evil), cfile=str(project.parent / "evil.pyc"))
    data = (project.parent / "evil.pyc").read_bytes()
    code = f"import os; os.makedirs('__pycache__', exist_ok=True); open({cache!r}, 'wb').write({data!r})"
    assert image.evaluate(code).ok
    image.close()
    load(project)
    assert not marker.exists()


@needs_bubblewrap
@pytest.mark.contract("trust.walls.person-edits")
def test_the_persons_own_changes_need_no_question(project, image):
    """Between sessions, and beside an image that wrote nothing, a change is the person's."""
    load(project)
    module_of(project).write_text("word = 'Bye, '\n")
    assert load(project)
    assert image.evaluate("1").ok
    module_of(project).write_text("word = 'Again, '\n")
    (project / "tools.py").write_text((project / "tools.py").read_text() + "\n")
    image.close()
    assert load(project)
    assert trust.doubtful_files() == []


@needs_bubblewrap
@pytest.mark.contract("trust.walls.changed-files")
def test_what_a_killed_keeper_left_is_in_doubt(project):
    """Nothing was noted at the end of the image, so what differs from its start is in doubt."""
    load(project)
    code = (
        "import os, sys\nfrom gramercy.images.opening import open_image\n"
        "image = open_image('python', project=sys.argv[1])\n"
        'image.evaluate(f\'open({sys.argv[2]!r}, "a").write("x = 1")\')\nos.kill(os.getpid(), 9)'
    )
    command = [sys.executable, "-c", code, str(project), module_of(project).name]
    subprocess.run(command, check=False, timeout=60)
    with pytest.raises(UntrustedFileError):
        load(project)


@needs_bubblewrap
@pytest.mark.contract("trust.walls.accepting")
def test_a_person_sees_the_difference_and_accepts(project, image):
    """The command shows what changed, and lists what is in doubt."""
    load(project)
    module = module_of(project)
    assert image.evaluate(f"open({module.name!r}, 'a').write('more = 2\\n')").ok
    image.close()
    runner = CliRunner()
    assert str(module) in runner.invoke(cli, ["trust"]).output
    refused = runner.invoke(cli, ["trust", str(module)])
    assert "nobody can be asked" in refused.output
    shown = runner.invoke(cli, ["trust", "--yes", str(module)])
    assert "+more = 2" in shown.output
    assert "-word" not in shown.output
    assert load(project)
    assert "nothing is in doubt" in runner.invoke(cli, ["trust"]).output


@needs_bubblewrap
@pytest.mark.contract("trust.walls.changed-files")
def test_a_policy_that_evaluated_code_changed_is_refused(project, image):
    """A rule that allows everything would be in force at the next start."""
    policy = project / "policy.toml"
    policy.write_text("max_safety_level = 'safe'\n")
    read_policies(project, str(policy))
    assert image.evaluate("open('policy.toml', 'w').write('')").ok
    image.close()
    with pytest.raises(UntrustedFileError):
        read_policies(project, str(policy))


def test_what_is_kept_only_its_owner_can_read(project, state):
    """It holds copies of files."""
    load(project)
    kept = list((state / "gramercy" / "trust").iterdir())
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert (state / "gramercy" / "trust").stat().st_mode & 0o777 == 0o700
    shutil.rmtree(state)
    (state.parent / "state").write_text("no directory")
    assert load(project)
