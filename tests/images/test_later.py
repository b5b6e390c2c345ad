"""What evaluated code leaves for programs of the person to run later is held, moved aside or told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest

import gramercy
from gramercy.images.environment import Environment
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not

BOTH = [
    pytest.param(each, marks=pytest.mark.skipif(why_not(each) is not None, reason=f"{why_not(each)}"))
    for each in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK)
]
needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason=f"{why_not(Confinement.BUBBLEWRAP)}"
)
PATIENCE = 60.0
# What lies below the top of a project and runs on the host.
DEEPER = [
    *("backend/.venv/bin/python", "backend/.mcp.json", "backend/.vscode/tasks.json", ".tox/py312/bin/pytest"),
    *(".nox/tests/bin/python", ".direnv/python-3.12/bin/python", "a/b/c/.envrc", "web/.eslintrc.cjs"),
    *("vendor/lib/.git/config", "envs/main/bin/python", "tools/mise/config.toml"),
]


@pytest.fixture
def images():
    """Make images and end them all."""
    made = []

    def make(project, confinement=Confinement.BUBBLEWRAP, language="python"):
        settings = ImageSettings(language, project, confinement, Environment())
        made.append(LiveImage("test", settings.program, timeout=PATIENCE))
        return made[-1]

    yield make
    for image in made:
        image.close()


@pytest.fixture
def project(tmp_path):
    """Return an empty project."""
    path = (tmp_path / "project").resolve()
    path.mkdir()
    return path


def put(project, *names, text="mine"):
    """Make files, and an environment of those below bin."""
    for name in names:
        place = project / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        if place.parent.name == "bin":
            (place.parent.parent / "pyvenv.cfg").write_text("home = /usr/bin\n")


def awaited(is_so):
    """Wait for something that another process or thread is about to do."""
    deadline = monotonic() + PATIENCE
    while not is_so() and monotonic() < deadline:
        sleep(0.01)
    return is_so()


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.later.held")
def test_what_runs_later_is_read_only_at_any_depth(images, project, confinement):
    """Trust: environments that are nested or have any name, nested control files, nested repositories."""
    put(project, *DEEPER)
    (project / "plain").mkdir()
    image = images(project, confinement)
    for name in DEEPER:
        assert not image.evaluate(f"open('{name}', 'a').write('evil')").ok, name
        assert not image.evaluate(f"import os; os.rename('{name}', '{name}.old')").ok, name
        assert not image.evaluate(f"os.unlink('{name}')").ok, name
    assert image.evaluate("open('plain/code.py', 'w').write('x')").ok
    image.close()
    assert {(project / name).read_text() for name in DEEPER} == {"mine"}


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.later.links")
def test_what_links_with_such_names_lead_to_is_read_only(images, project, confinement):
    """Trust: `.venv` is often a link; a chain of links is followed to its end."""
    put(project, "envs/main/bin/python", "shared/editor/tasks.json")
    (project / "current").symlink_to("envs/main")
    (project / ".venv").symlink_to("current")
    (project / ".vscode").symlink_to(project / "shared" / "editor")
    image = images(project, confinement)
    assert not image.evaluate("open('.venv/bin/python', 'w')").ok
    assert not image.evaluate("open('envs/main/bin/python', 'w')").ok
    assert not image.evaluate("open('.vscode/tasks.json', 'w')").ok
    # A link on the way can be replaced, and is then moved out of the way.
    image.evaluate("import os\nos.makedirs('evil/bin')\nopen('evil/bin/python', 'w').write('evil')")
    image.evaluate("os.unlink('current'); os.symlink('evil', 'current')")
    image.close()
    assert not (project / ".venv" / "bin" / "python").exists() or (
        (project / ".venv" / "bin" / "python").read_text() == "mine"
    )


@needs_bubblewrap
@pytest.mark.contract("trust.later.links")
def test_a_replaced_link_is_moved_aside_and_told(images, project):
    """The link of an environment and the links on its way are looked after by name."""
    put(project, "envs/main/bin/python", "evil/bin/python")
    (project / "current").symlink_to("envs/main")
    (project / ".venv").symlink_to("current")
    image = images(project)
    reply = image.evaluate("import os; os.unlink('current'); os.symlink('evil', 'current')")
    assert [note for note in reply.notes if note.startswith("current, which") and "untrusted" in note]
    assert not (project / "current").exists()


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.later.moved")
def test_what_appears_below_the_top_is_moved_aside_and_told(images, project, confinement):
    """Trust: a nested control file runs when a person opens that directory."""
    (project / "backend").mkdir()
    image = images(project, confinement)
    for name in (".mcp.json", ".envrc", "sitecustomize.py", "opencode.jsonc", ".exrc"):
        reply = image.evaluate(f"open('backend/{name}', 'w').write('evil')")
        assert [note for note in reply.notes if f"backend/{name}.untrusted" in note], (name, reply.notes)
        assert not (project / "backend" / name).exists()
    reply = image.evaluate(
        "import os\nos.makedirs('backend/.vscode')\nopen('backend/.vscode/tasks.json', 'w').write('evil')"
    )
    assert [note for note in reply.notes if "backend/.vscode.untrusted" in note], reply.notes
    assert not (project / "backend" / ".vscode").exists()
    reply = image.evaluate(
        "open('backend/x', 'w').write('evil'); os.rename('backend/x', 'backend/.mcp.json')"
    )
    assert not (project / "backend" / ".mcp.json").exists()


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.later.at-once")
def test_it_is_moved_while_the_call_still_runs(images, project, confinement):
    """A call may take minutes, in which a person opens the directory."""
    (project / "backend").mkdir()
    image = images(project, confinement)
    reply = image.evaluate(
        "import os, time\n"
        "open('backend/.mcp.json', 'w').write('evil')\n"
        f"end = time.monotonic() + {PATIENCE / 2}\n"
        "while os.path.exists('backend/.mcp.json') and time.monotonic() < end:\n    time.sleep(0.01)\n"
        "os.path.exists('backend/.mcp.json')"
    )
    assert reply.values == ["False"]
    assert [note for note in reply.notes if "backend/.mcp.json.untrusted" in note]


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.later.at-once")
def test_what_a_left_process_writes_is_moved_without_another_call(images, project, confinement, capfd):
    """Trust: a control file written by a process left running stands until the next call no more."""
    (project / "backend").mkdir()
    image = images(project, confinement)
    waits = "while not os.path.exists('go'):\n        time.sleep(0.01)"
    writes = "open('backend/.mcp.json', 'w').write('evil')\n    open('.envrc', 'w').write('evil')"
    code = f"import os, time\nif os.fork() == 0:\n    {waits}\n    {writes}\n    time.sleep(1000)"
    assert image.evaluate(code).ok
    (project / "go").touch()
    left = ("backend/.mcp.json.untrusted", ".envrc.untrusted")
    assert awaited(lambda: all((project / name).exists() for name in left))
    assert not (project / "backend" / ".mcp.json").exists()
    assert not (project / ".envrc").exists()
    # It is told at once, and again in the next reply, where the model reads it.
    said: list[str] = []

    def is_said():
        said.append(capfd.readouterr().err)
        return ".envrc.untrusted now" in "".join(said)

    assert awaited(is_said)
    told = " ".join(image.evaluate("1").notes)
    assert all(name in told for name in left), told
    image.close()
    said.append(capfd.readouterr().err)
    assert "".join(said).count("backend/.mcp.json.untrusted now") == 1


@needs_bubblewrap
@pytest.mark.contract("trust.later.held")
def test_a_directory_above_that_is_moved_away_takes_no_name_with_it(images, project):
    """A mount cannot be touched, but what lies above it can be renamed, and made anew."""
    put(project, "envs/main/bin/python")
    (project / ".venv").symlink_to("envs/main")
    image = images(project)
    image.evaluate(
        "import os\nos.rename('envs', 'away')\nos.makedirs('envs/main/bin')\n"
        "open('envs/main/bin/python', 'w').write('evil')"
    )
    image.close()
    assert not (project / ".venv" / "bin" / "python").exists()
    assert (project / "away" / "main" / "bin" / "python").read_text() == "mine"


@needs_bubblewrap
@pytest.mark.contract("trust.later.unknown")
def test_a_directory_of_an_unknown_program_is_told_once_and_stays(images, project):
    """No table is ever whole."""
    image = images(project)
    name = ".agent-of-next-year"
    code = f"import os\nos.makedirs('{name}', exist_ok=True)\nopen('{name}/x', 'a').close()"
    assert [note for note in image.evaluate(code).notes if note.startswith(".agent-of-next-year, which a")]
    assert image.evaluate(code).notes == []
    assert (project / ".agent-of-next-year" / "x").exists()
    assert image.evaluate("os.makedirs('.my_cache'); open('.my_cache/x', 'w').close()").notes == []


@needs_bubblewrap
@pytest.mark.contract("trust.later.persons")
def test_what_the_person_makes_below_the_top_stays(images, project):
    """Only what comes shortly after a system call that may write can be of evaluated code."""
    (project / "backend").mkdir()
    image = images(project)
    assert image.evaluate("1").ok
    put(project, "backend/.vscode/tasks.json", "backend/.envrc")
    old = monotonic() + 0.2
    assert awaited(lambda: monotonic() > old)
    assert image.evaluate("open('code.py', 'w').write('x')").notes == []
    image.close()
    assert (project / "backend" / ".vscode" / "tasks.json").read_text() == "mine"
    assert (project / "backend" / ".envrc").read_text() == "mine"


OWN = """
import sys
from pathlib import Path
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement
import gramercy
project = Path(sys.argv[1])
assert Path(gramercy.__file__).is_relative_to(project), gramercy.__file__
image = LiveImage("own", ImageSettings("python", project, Confinement(sys.argv[2])).program, timeout=60)
for name in ("src/gramercy/__init__.py", "src/gramercy/images/new.py"):
    print(image.evaluate(f"open('{name}', 'a').write('evil')").ok)
print(image.evaluate("open('src/other/plain.py', 'w').write('1')").ok)
image.evaluate("import os, shutil; os.rename('src', 'away'); shutil.copytree('away', 'src')")
image.evaluate("open('src/gramercy/__init__.py', 'a').write('evil')")
image.close()
"""


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.later.own-source")
def test_gramercys_own_source_in_the_project_is_read_only(project, confinement):
    """Trust: an editable install in the project that evaluated code changes escapes at the next start."""
    source = project / "src" / "gramercy"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(gramercy.__file__).parent, source, ignore=ignored)
    (project / "src" / "other").mkdir()
    before = (source / "__init__.py").read_text()
    environment = {**os.environ, "PYTHONPATH": str(project / "src")}
    command = [sys.executable, "-P", "-c", OWN, str(project), confinement.value]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert done.stdout.split() == ["False", "False", "True"], done.stderr
    init = source / "__init__.py"
    # Where the directory above it can be moved away, the copy in its place is moved aside.
    assert not init.exists() or init.read_text() == before


@pytest.fixture
def sentry(project):
    """Return what looks after a project, as an image has it, and tell it of calls by hand."""
    from gramercy.images.census import census
    from gramercy.images.sentry import Sentry

    (project / "backend").mkdir()
    sentry = Sentry(project, census(project))
    sentry.listens = True
    return sentry


@pytest.mark.contract("trust.later.unheard")
def test_what_was_written_under_another_name_than_heard_is_found(sentry, project):
    """The path of a call is read from memory that evaluated code can change: it is a hint and no more."""
    sentry.stopped([f"{project}/backend/harmless.txt"])
    put(project, "backend/.vscode/tasks.json", "new/dir/.mcp.json", text="evil")
    told = " ".join(sentry.close())
    assert "backend/.vscode.untrusted" in told
    assert "new/dir/.mcp.json.untrusted" in told
    assert not (project / "backend" / ".vscode").exists()
    assert not (project / "new" / "dir" / ".mcp.json").exists()


@pytest.mark.contract("trust.later.unheard")
def test_it_is_found_without_a_call_and_before_the_end(sentry, project):
    """A round through the directories follows each call that may write after a while."""
    sentry.stopped([f"{project}/backend/harmless.txt"])
    put(project, "backend/.vscode/tasks.json", text="evil")
    assert awaited((project / "backend" / ".vscode.untrusted").exists)
    assert [line for line in sentry.begin() if "backend/.vscode.untrusted" in line]
    sentry.close()


@pytest.mark.contract("trust.later.persons")
def test_nothing_outside_is_moved_through_a_link(sentry, project):
    """Between the look and the move evaluated code may put a link in the place of a directory."""
    outside = project.parent / "outside"
    put(outside, ".vscode/tasks.json")
    sentry.stopped([f"{project}/backend/.vscode/tasks.json"])
    (project / "backend").rmdir()
    (project / "backend").symlink_to(outside)
    sentry.close()
    assert (outside / ".vscode" / "tasks.json").read_text() == "mine"


@needs_bubblewrap
@pytest.mark.contract("trust.later.bound")
def test_a_project_too_large_to_look_through_is_told(images, project, monkeypatch):
    """The walk is bounded in entries and in time, and says so."""
    monkeypatch.setattr("gramercy.images.census.MOST_ENTRIES", 5)
    put(project, *(f"a{number}/code.py" for number in range(9)), ".envrc", "z/y/x/.mcp.json")
    image = images(project)
    reply = image.evaluate("1")
    assert [note for note in reply.notes if "too large to be looked through" in note], reply.notes
    assert not image.evaluate("open('.envrc', 'w')").ok
    # What is deeper is looked after where it is heard of.
    reply = image.evaluate("open('z/y/x/.mcp.json', 'w').write('evil')")
    assert [note for note in reply.notes if "z/y/x/.mcp.json.untrusted" in note], reply.notes


@needs_bubblewrap
@pytest.mark.contract("trust.later.bound")
def test_more_control_files_than_mounts_are_looked_after(images, project, monkeypatch):
    """Each mount takes its time at the start."""
    monkeypatch.setattr("gramercy.images.census.MOST_HELD", 5)
    put(project, *(f"pkg{number}/.npmrc" for number in range(9)))
    image = images(project)
    assert [note for note in image.evaluate("1").notes if "more than 5 control files" in note]
    for number in range(9):
        image.evaluate(f"open('pkg{number}/.npmrc', 'w').write('evil')")
    image.close()
    assert all(path.read_text() == "mine" for path in project.glob("pkg*/.npmrc"))


@needs_bubblewrap
def test_many_that_wait_for_another_call_do_not_hold_up_each_other(images, project):
    """Two images of one project look after it at the same time."""
    (project / "backend").mkdir()
    first, second = images(project), images(project)
    with ThreadPoolExecutor(2) as pool:
        code = "import os\nfor n in range(20): open(f'backend/{}-{n}.txt', 'w').close()"
        calls = [
            pool.submit(image.evaluate, code.replace("{}", name))
            for image, name in ((first, "a"), (second, "b"))
        ]
        assert all(call.result(PATIENCE).notes == [] for call in calls)
    first.close()
    second.close()
    assert len(list((project / "backend").iterdir())) == 40


@pytest.mark.contract("trust.later.own-question")
def test_file_tools_know_own_source_and_environments_by_their_place(project):
    """Who works on gramercy itself edits it with the file tools, which ask."""
    from gramercy.images.census import reader_in
    from gramercy.images.own import own_findings

    put(project, "envs/main/bin/python", "src/app.py")
    assert "run programs from" in reader_in(project, "envs/main/bin/python")
    assert "a shell reads" in reader_in(project, "backend/.envrc")
    assert reader_in(project, "src/app.py") == ""
    package = Path(gramercy.__file__).resolve().parent
    checkout = package.parent
    assert reader_in(checkout, f"{package.name}/images/sentry.py") == "gramercy itself runs from"
    assert reader_in(checkout, package.name) == "gramercy itself runs from"
    assert [finding for finding in own_findings(checkout) if package.name in finding.detail]
