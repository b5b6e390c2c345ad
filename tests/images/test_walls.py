"""What evaluated code leaves in a project does not run on the host: git, control files, placeholders."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from gramercy.images.census import census
from gramercy.images.environment import Environment
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.project import check_project
from gramercy.images.sandbox import Confinement, why_not
from tests.support import files_of_processes

needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason=f"{why_not(Confinement.BUBBLEWRAP)}"
)
needs_landlock = pytest.mark.skipif(
    why_not(Confinement.LANDLOCK) is not None, reason=f"{why_not(Confinement.LANDLOCK)}"
)
needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
BOTH = [
    pytest.param(Confinement.BUBBLEWRAP, marks=needs_bubblewrap),
    pytest.param(Confinement.LANDLOCK, marks=needs_landlock),
]

# A bare repository at the top whose config names programs: one for each status, one as an alias.
PLANT = """
import os, pathlib
top = pathlib.Path({top!r})
for name in ('objects', 'refs'):
    (top / name).mkdir(exist_ok=True)
(top / 'HEAD').write_text('ref: refs/heads/x\\n')
(top / 'config').write_text('''[core]
repositoryformatversion = 0
bare = false
worktree = {top}
fsmonitor = "touch {marker}; false"
[alias]
hello = "!touch {marker}"
''')
"""
# Around the placeholder: HEAD with a file `commondir` needs neither objects nor refs.
PLANT_COMMON = """
import os, pathlib
top = pathlib.Path({top!r})
other = top / 'other'
for name in ('objects', 'refs'):
    (other / name).mkdir(parents=True, exist_ok=True)
(other / 'config').write_text('''[core]
repositoryformatversion = 0
[alias]
hello = "!touch {marker}"
''')
(top / 'HEAD').write_text('ref: refs/heads/x\\n')
(top / 'commondir').write_text('other\\n')
"""


@pytest.fixture
def images():
    """Make Python images and end them all."""
    made = []

    def make(project, confinement=Confinement.BUBBLEWRAP, environment=None):
        settings = ImageSettings("python", project, confinement, environment or Environment())
        made.append(LiveImage("test", settings.program, timeout=60))
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


def names(place):
    """List what is in a directory."""
    return sorted(path.name for path in place.iterdir())


def git(project, *words):
    """Run git of the host with settings of nobody, and return its status and all it says."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(project.parent / "home"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", "-C", str(project), *words],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def use_git(project):
    for words in (("status",), ("hello",), ("diff",), ("add", "-A"), ("log",)):
        git(project, *words)


def larger_repository(project):
    """Make the project a package inside a repository with one commit."""
    git(project.parent, "init", "-q")
    (project / "code.py").write_text("x = 1\n")
    git(project.parent, "add", "project/code.py")
    status, said = git(project.parent, "commit", "-qm", "first")
    assert status == 0, said


@needs_git
@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.parametrize("plant", [PLANT, PLANT_COMMON])
@pytest.mark.parametrize("is_package", [False, True])
@pytest.mark.contract("trust.walls.git")
def test_a_planted_repository_runs_nothing_on_the_host(images, project, confinement, plant, is_package):
    """Trust, host code through git: a repository at the top names a program for the next git command."""
    if is_package:
        larger_repository(project)
    marker = project.parent / "RAN"
    code = plant.format(top=str(project), marker=marker)
    image = images(project, confinement)
    reply = image.evaluate(code)
    use_git(project)
    assert not marker.exists()
    image.evaluate(code)
    image.close()
    use_git(project)
    assert not marker.exists()
    told = " ".join(reply.notes)
    assert "HEAD.untrusted" in told or not reply.ok, told


@needs_git
@needs_bubblewrap
def test_a_repository_planted_by_a_call_that_never_ends_runs_nothing(images, project):
    """The look after the end comes when every process is gone, and before the placeholders are."""
    marker = project.parent / "RAN"
    code = PLANT.format(top=str(project), marker=marker)
    again = f"import os\nif os.fork() == 0:\n    while True:\n        exec({code!r})"
    image = images(project)
    assert image.evaluate(again).ok
    image.close()
    use_git(project)
    assert not marker.exists()
    assert not (project / "HEAD").exists()
    assert not (project / "commondir").exists()


@needs_git
@needs_bubblewrap
@pytest.mark.parametrize("is_package", [False, True])
@pytest.mark.contract("trust.walls.git-works")
def test_the_persons_own_git_works_while_an_image_runs(images, project, is_package):
    """Trust, wire, git: the two placeholders are not seen by git, and init makes a repository."""
    if is_package:
        larger_repository(project)
    image = images(project)
    assert image.evaluate("open('new.py', 'w').write('y = 2')").ok
    if is_package:
        status, said = git(project, "status", "--short")
        assert (status, said.split()) == (0, ["??", "new.py"])
        assert git(project, "log", "--oneline", "HEAD")[0] == 0
        assert git(project, "add", "new.py")[0] == 0
        assert git(project, "commit", "-qm", "second")[0] == 0
    status, said = git(project, "init", "-q")
    assert (status, (project / ".git" / "HEAD").exists()) == (0, True), said
    assert git(project, "add", "new.py")[0] == 0
    assert not image.evaluate("open('.git/config', 'a')").ok
    image.close()
    assert git(project, "status")[0] == 0
    assert not (project / "commondir").exists()


@needs_bubblewrap
@pytest.mark.contract("trust.walls.clean")
def test_nothing_is_left_of_the_placeholders(images, project):
    """Trust, control files: the project looks as it did, also with two images."""
    (project / ".cursor").mkdir()
    (project / ".cursor" / "mcp.json").write_text("{}")
    first, second = images(project), images(project)
    assert first.evaluate("1").ok
    assert second.evaluate("1").ok
    first.close()
    assert names(project) == [".claude", ".cursor", ".git", ".vscode", "commondir"]
    second.close()
    assert names(project) == [".cursor"]


def killed_host(project, *, before=""):
    """Start an image in a process of its own, and kill that."""
    code = (
        f"import os, sys\n{before}\nfrom gramercy.images.opening import open_image\n"
        "image = open_image('python', project=sys.argv[1])\nimage.evaluate('1')\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(project)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def until(condition):
    """Wait for something that another process does."""
    end = monotonic() + 60
    while not condition():
        assert monotonic() < end, "it never happened"
        threading.Event().wait(0.01)


def heirs(project):
    """List the processes that would remove placeholders of a project."""
    found = []
    for file in files_of_processes("cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes()
            found += [file] if b"flock -n -x" in words and os.fsencode(project) in words else []
    return found


# As where there is no program that can lock.
NO_HEIR = "import gramercy.images.walls as walls\nwalls.find_program = lambda name: None"


@needs_bubblewrap
@pytest.mark.contract("trust.walls.clean", "clients.walls.kill")
@pytest.mark.parametrize("confinement", BOTH)
def test_what_a_killed_process_left_is_tidied_by_the_next_start(images, project, confinement):
    """Trust, control files: kill -9 leaves empty directories, which the next image takes over or removes."""
    killed_host(project, before=NO_HEIR)
    assert (project / ".vscode").is_dir()
    image = images(project, confinement)
    assert image.evaluate("1").ok
    if confinement is Confinement.LANDLOCK:
        assert names(project) == []
    image.close()
    assert names(project) == []


@needs_bubblewrap
@pytest.mark.contract("clients.walls.kill")
@pytest.mark.skipif(not shutil.which("flock"), reason="flock is not installed")
def test_the_placeholders_of_a_killed_process_are_gone_soon(project):
    """A day's real work: kill -9 left them for the person's own tools to stop at."""
    (project / ".cursor").mkdir()
    killed_host(project)
    until(lambda: names(project) == [".cursor"])


@needs_bubblewrap
@pytest.mark.contract("clients.walls.kill")
@pytest.mark.skipif(not shutil.which("flock"), reason="flock is not installed")
def test_a_process_that_is_killed_takes_nothing_from_an_image_of_another(images, project):
    """To remove the directory would lift the protection inside the other sandbox."""
    image = images(project)
    assert image.evaluate("1").ok
    killed_host(project)
    # What it left behind has tried: only that of the living image is left.
    until(lambda: len(heirs(project)) == 1)
    assert (project / ".git").is_dir()
    assert not image.evaluate("import os; os.mkdir('.git/hooks')").ok
    image.close()
    assert names(project) == []


@needs_bubblewrap
def test_an_empty_directory_of_the_person_stays(images, project):
    """Only what was made as a placeholder is removed."""
    (project / ".vscode").mkdir()
    image = images(project)
    assert not image.evaluate("open('.vscode/tasks.json', 'w')").ok
    image.close()
    assert names(project) == [".vscode"]


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.parametrize("name", [".vscode", ".cursor", ".claude", ".idea", ".husky"])
@pytest.mark.contract("trust.walls.control-directories")
def test_a_control_directory_cannot_be_written(images, project, confinement, name):
    """Trust, control files: what editors and agents run when a folder is opened."""
    (project / name).mkdir()
    (project / name / "settings.json").write_text("{}")
    image = images(project, confinement)
    assert not image.evaluate(f"open('{name}/settings.json', 'w')").ok
    assert not image.evaluate(f"open('{name}/new.json', 'w')").ok
    assert not image.evaluate(f"import os; os.rename('{name}', 'other')").ok
    image.close()
    assert (project / name / "settings.json").read_text() == "{}"
    assert names(project) == [name]


@needs_bubblewrap
@pytest.mark.parametrize("name", [".vscode", ".cursor", ".claude"])
@pytest.mark.contract("trust.walls.control-directories")
def test_an_absent_control_directory_cannot_be_made(images, project, name):
    """Trust, control files: the placeholder takes the name."""
    image = images(project)
    assert not image.evaluate(f"import os; os.makedirs('{name}/x')").ok
    assert not image.evaluate(f"open('{name}/settings.json', 'w')").ok
    assert not image.evaluate(f"os.rmdir('{name}')").ok
    # The person can, and then it is protected all the same.
    (project / name / "settings.json").write_text("{}")
    assert not image.evaluate(f"open('{name}/settings.json', 'w')").ok
    image.close()
    assert (project / name / "settings.json").read_text() == "{}"


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.parametrize("name", [".mcp.json", ".envrc", ".pre-commit-config.yaml"])
@pytest.mark.contract("trust.walls.control-files")
def test_a_new_control_file_is_moved_out_of_the_way_and_told(images, project, confinement, name):
    """Trust, control files: no mount can keep an absent name free, so it is looked for after each call."""
    image = images(project, confinement)
    reply = image.evaluate(f"open('{name}', 'w').write('evil')")
    assert sorted(path.name for path in project.glob(f"{name}*")) == [f"{name}.untrusted"]
    assert any(f"{name}.untrusted" in note for note in reply.notes)
    # Once told it is not told again, and a second one does not overwrite the first.
    assert not any("untrusted" in note for note in image.evaluate("1").notes)
    image.evaluate(f"open('{name}', 'w').write('worse')")
    assert not (project / name).exists()
    assert (project / f"{name}.untrusted").read_text() == "evil"


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.walls.control-files")
def test_a_control_file_that_is_there_cannot_be_written(images, project, confinement):
    """Trust, control files: bound where it exists."""
    (project / ".mcp.json").write_text("mine")
    image = images(project, confinement)
    assert not image.evaluate("open('.mcp.json', 'w')").ok
    assert not image.evaluate("import os; os.unlink('.mcp.json')").ok
    assert not image.evaluate("open('x', 'w').close(); os.rename('x', '.mcp.json')").ok
    assert (project / ".mcp.json").read_text() == "mine"


@needs_bubblewrap
@pytest.mark.contract("trust.walls.control-files")
def test_a_save_by_rename_is_the_persons_and_what_comes_after_is_moved(images, project):
    """Wire, control files: a read-only bind of a file ends when an editor saves by rename."""
    (project / ".envrc").write_text("mine")
    image = images(project)
    assert image.evaluate("1").ok
    (project / "new").write_text("mine again")
    (project / "new").rename(project / ".envrc")
    assert not any(".envrc" in note for note in image.evaluate("2").notes)
    assert (project / ".envrc").read_text() == "mine again"
    reply = image.evaluate("open('.envrc', 'w').write('evil')")
    assert any(".envrc.untrusted" in note for note in reply.notes)
    assert not (project / ".envrc").exists()


@pytest.fixture
def without_listener(monkeypatch):
    """Let no system call be heard of, as on an older kernel."""
    monkeypatch.setattr("gramercy.images.files.ledger.listen", lambda *_: "the kernel has none")
    monkeypatch.setattr("gramercy.images.sentry.PAUSE_SECONDS", 0.0)


@needs_bubblewrap
@pytest.mark.usefixtures("without_listener")
@pytest.mark.contract("trust.walls.persons-files")
def test_without_a_listener_what_changes_between_calls_is_told_and_stays(images, project):
    """Who made it cannot be told: during a call it is moved, between two it is most often the person."""
    image = images(project)
    assert image.evaluate("1").ok
    (project / ".envrc").write_text("mine")
    reply = image.evaluate("2")
    assert (project / ".envrc").read_text() == "mine"
    assert [note for note in reply.notes if ".envrc" in note]
    assert not [note for note in image.evaluate("3").notes if ".envrc" in note]
    reply = image.evaluate("open('.envrc', 'w').write('evil'); open('.mcp.json', 'w').write('evil')")
    assert sorted(path.name for path in project.glob("*.untrusted")) == [
        ".envrc.untrusted",
        ".mcp.json.untrusted",
    ]
    assert len([note for note in reply.notes if "untrusted" in note]) == 2


@needs_bubblewrap
@pytest.mark.contract("trust.walls.persons-files")
def test_with_a_listener_the_persons_files_stay_and_nothing_is_said(images, project):
    """Evaluated code that makes no system call that writes cannot have made a file, also during its call."""
    image = images(project)
    assert image.evaluate("import os, time").ok
    assert image._lifecycle.family.sentry.listens
    (project / ".envrc").write_text("mine")
    assert image.evaluate("2").notes == []
    waiting = "while not os.path.exists('.mcp.json'): time.sleep(0.01)"
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(image.evaluate, waiting)
        (project / ".mcp.json").write_text("mine")
        assert call.result(60).notes == []
    assert names(project) == sorted(
        [".claude", ".cursor", ".envrc", ".git", ".mcp.json", ".vscode", "commondir"]
    )
    # What it does write after that is moved, and the person's other file is still left alone.
    reply = image.evaluate("open('.mcp.json', 'w').write('evil')")
    assert [note for note in reply.notes if ".mcp.json.untrusted" in note]
    assert (project / ".envrc").read_text() == "mine"
    image.close()
    assert names(project) == [".envrc", ".mcp.json.untrusted"]


@needs_bubblewrap
@pytest.mark.contract("trust.walls.persons-files")
def test_what_a_process_left_running_writes_between_calls_is_moved(images, project):
    """Trust, control files: a background process does not wait for the next call."""
    image = images(project)
    writing = "while True:\n        time.sleep(0.01)\n        open('.mcp.json', 'w').close()"
    code = f"import os, time\nif os.fork() == 0:\n    {writing}"
    assert image.evaluate(code).ok
    deadline = monotonic() + 60
    while not list(project.glob(".mcp.json.untrusted*")) and monotonic() < deadline:
        image.evaluate("1")
    image.close()
    assert list(project.glob(".mcp.json.untrusted*"))
    assert not (project / ".mcp.json").exists()


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.walls.nested-git")
def test_a_repository_made_deeper_is_disarmed_and_told(images, project, confinement):
    """Wire, git: no mount can name it, and it runs when the person goes there."""
    (project / "sub").mkdir()
    image = images(project, confinement)
    marker = project.parent / "RAN"
    reply = image.evaluate(PLANT.format(top=str(project / "sub"), marker=marker))
    assert [note for note in reply.notes if "directory sub was made a git repository" in note], reply.notes
    assert not (project / "sub" / "HEAD").exists()
    reply = image.evaluate("os.makedirs('deep/er/.git'); open('deep/er/.git/config', 'w').write('x')")
    assert [note for note in reply.notes if "deep/er/.git, which git reads" in note], reply.notes
    assert not (project / "deep" / "er" / ".git").exists()
    assert image.evaluate("open('sub/code.py', 'w').write('x')").notes == []


# One of each: what agents obey, and what a service runs after a push, at the top and deeper.
OBEYED = (
    *("AGENTS.md", "CLAUDE.local.md", ".cursorrules", ".github/copilot-instructions.md", "lib/GEMINI.md"),
    *(".github/workflows/ci.yml", ".gitlab-ci.yml", "Jenkinsfile", ".circleci/config.yml", "lib/.drone.yml"),
)
WRITING = {
    "python": "import os; os.makedirs(os.path.dirname({name!r}) or '.', exist_ok=True)\n"
    "open({name!r}, 'w').write('obey')",
    "sbcl": '(progn (ensure-directories-exist "{name}") (with-open-file (stream "{name}" :direction :output '
    ':if-exists :supersede) (write-string "obey" stream)))',
}


def opened(project, language, confinement=Confinement.BUBBLEWRAP):
    """Start an image of a language."""
    settings = ImageSettings(language, project, confinement, Environment())
    return contextlib.closing(LiveImage("test", settings.program, timeout=60))


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.parametrize("language", ["python", pytest.param("sbcl", marks=needs_sbcl)])
@pytest.mark.contract("trust.roads.inside")
def test_what_agents_obey_and_services_run_cannot_be_written(project, language, confinement):
    """Trust: the file tools asked about a workflow, and an evaluation wrote it unasked."""
    for name in OBEYED:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("mine")
    with opened(project, language, confinement) as image:
        written = [name for name in OBEYED if image.evaluate(WRITING[language].format(name=name)).ok]
        assert written == []
        read = "open('AGENTS.md').read()" if language == "python" else '(probe-file "AGENTS.md")'
        assert image.evaluate(read).ok
    assert {(project / name).read_text() for name in OBEYED} == {"mine"}
    assert not list(project.rglob("*.untrusted*"))


@needs_bubblewrap
@pytest.mark.parametrize("language", ["python", pytest.param("sbcl", marks=needs_sbcl)])
@pytest.mark.contract("trust.roads.inside")
def test_new_ones_are_moved_aside_and_told(project, language):
    """As for the other classes: no mount can keep an absent name free."""
    with opened(project, language) as image:
        for name in OBEYED:
            reply = image.evaluate(WRITING[language].format(name=name))
            aside = [note for note in reply.notes if ".untrusted now" in note]
            assert aside, (name, reply.notes)
            assert "agents obey as instructions" in aside[0] or "a service runs after a push" in aside[0]
            assert not (project / name).exists()
            assert "rename it back" in aside[0]


@needs_bubblewrap
@pytest.mark.contract("trust.roads.inside")
def test_ordinary_work_with_such_names_goes_on(images, project):
    """Reading, pages of a manual, templates of issues, and tests in a directory of their own."""
    (project / "AGENTS.md").write_text("mine")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    image = images(project)
    code = """
import pathlib, tempfile
assert open('AGENTS.md').read() == open('CLAUDE.md').read() == 'mine'
for name in ('docs/agents.md', '.github/ISSUE_TEMPLATE/bug.md', 'workflows/ci.yml', 'agents/x.py'):
    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(name).write_text('page')
with tempfile.TemporaryDirectory() as place:
    pathlib.Path(place, 'AGENTS.md').write_text('a test')
    pathlib.Path(place, '.github/workflows').mkdir(parents=True)
    assert pathlib.Path(place, 'AGENTS.md').exists()
"""
    reply = image.evaluate(code)
    assert reply.ok, reply.error
    assert reply.notes == []
    assert (project / "docs/agents.md").read_text() == "page"
    assert not image.evaluate("open('CLAUDE.md', 'w')").ok


@pytest.mark.contract("trust.roads.inside")
def test_instructions_in_every_directory_leave_room_for_what_runs_here(project, monkeypatch):
    """Mounts are bounded: an environment deeper down counts for more than a text."""
    monkeypatch.setattr("gramercy.images.census.MOST_HELD", 2)
    for name in ("AGENTS.md", "a/AGENTS.md", ".gitlab-ci.yml", "a/b/c/.envrc", "a/b/c/.mcp.json"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("mine")
    found = census(project)
    assert sorted(found.held) == ["a/b/c/.envrc", "a/b/c/.mcp.json"]
    assert "AGENTS.md" in found.loose
    assert "more than 2 control files" in found.bound


def test_what_a_link_with_a_protected_name_leads_to_is_held(project):
    """The link itself can be replaced, so it is looked after."""
    (project / "elsewhere").mkdir()
    (project / ".vscode").symlink_to(project / "elsewhere")
    found = census(project)
    assert (list(found.held), list(found.loose)) == (["elsewhere"], [".vscode"])


def test_a_bare_repository_cannot_be_a_project(project):
    """Its settings lie at the top, where evaluated code could write them."""
    from gramercy.errors import SandboxError

    for name in ("objects", "refs"):
        (project / name).mkdir()
    (project / "HEAD").write_text("ref: refs/heads/x\n")
    with pytest.raises(SandboxError, match="bare git repository"):
        check_project(project)
    (project / ".git").write_text("gitdir: objects\n")
    assert check_project(project) == project
