"""A model of files and states: after calls, edits of a person and ways back the disk is what it says."""

from __future__ import annotations

import os
import random
import stat

import pytest

from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings

WAIT = 60.0
NAMES = ("a", "b", "c")
FOLDERS = ("", "p/", "q/")
ABSENT = None


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def image(project):
    settings = ImageSettings("python", project)
    made = LiveImage("python", settings.program, language="python")
    yield made
    made.close()


def look(project):
    """Return what is there: kind, and content or target, and mode of each path."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(project):
        folders[:] = [each for each in folders if not each.startswith(".") and each != "commondir"]
        for name in (*folders, *names):
            path = os.path.join(folder, name)  # noqa: PTH118 - as os.walk gives it
            rest = os.path.relpath(path, project)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                found[rest] = ("link", os.readlink(path))  # noqa: PTH115 - the text itself
            elif stat.S_ISDIR(status.st_mode):
                found[rest] = ("directory", stat.S_IMODE(status.st_mode))
            else:
                with open(path, "rb") as file:  # noqa: PTH123 - as above
                    found[rest] = ("file", file.read(), stat.S_IMODE(status.st_mode))
    return found


class Model:
    """The trail as two looks tell it, and what going along it does to a look."""

    def __init__(self):
        self.links = []  # of the present state, oldest first: {path: (before, after)}
        self.kept = {}

    def call(self, before, after):
        paths = before.keys() | after.keys()
        changed = {p: (before.get(p), after.get(p)) for p in paths if before.get(p) != after.get(p)}
        if changed:
            self.links = [*self.links, changed]

    def go(self, name, now):
        """Return what is there after going to a kept state."""
        goal, now = self.kept[name], dict(now)
        common = 0
        while common < min(len(goal), len(self.links)) and goal[common] is self.links[common]:
            common += 1
        for link in reversed(self.links[common:]):
            _take_back(now, link)
        for link in goal[common:]:
            _take_back(now, {path: (after, before) for path, (before, after) in link.items()})
        self.links = goal
        return now


def _take_back(now, link):
    away = sorted((path for path, (want, _) in link.items() if want is ABSENT), reverse=True)
    rest = sorted(path for path, (want, _) in link.items() if want is not ABSENT)
    for path in [*away, *rest]:
        want, left = link[path]
        folder = path.rpartition("/")[0]
        if now.get(path) != left or (folder and now.get(folder, ("",))[0] != "directory"):
            continue
        goes = left is not ABSENT and left[0] == "directory" and (want is ABSENT or want[0] != "directory")
        if goes and any(other.startswith(f"{path}/") for other in now):
            continue
        now.pop(path, None)
        if want is not ABSENT:
            now[path] = want


def deed(dice):
    """Return code that changes files, as an evaluation might; what fails in it fails."""
    one, other = (dice.choice(FOLDERS) + dice.choice(NAMES) for _ in range(2))
    text = str(dice.randrange(1000))
    return (
        "import os, shutil, subprocess\ntry:\n    "
        + dice.choice(
            [
                f"make({one!r}); open({one!r}, 'w').write({text!r})",
                f"open({one!r}, 'a').write({text!r})",
                f"os.remove({one!r})",
                f"os.rename({one!r}, {other!r})",
                f"os.chmod({one!r}, {dice.choice([0o600, 0o644, 0o755])})",
                f"os.symlink({other!r}, {one!r})",
                "os.rename('p', 'q')",
                "shutil.rmtree('q')",
                "os.makedirs('p', exist_ok=True)",
                f"subprocess.getoutput('echo {text} >> {one}; cp {one} {other}')",
                f"os.link({one!r}, {other!r})",
                f"os.link({one!r}, {other!r}); open({other!r}, 'a').write({text!r})",
                f"os.link({one!r}, 'h'); open('h', 'a').write({text!r}); os.remove('h')",
                f"exchange({one!r}, {other!r})",
                f"exchange({one!r}, {other!r}); open({one!r}, 'a').write({text!r})",
                "exchange('p', 'q')",
                f"open('/proc/self/cwd/{one}', 'a').write({text!r})",
                f"open(f'/proc/{{os.getpid()}}/root{{os.getcwd()}}/{one}', 'a').write({text!r})",
                f"f = open({one!r}); open(f'/dev/fd/{{f.fileno()}}', 'a').write({text!r})",
                f"os.symlink('/proc/self/cwd/{other}', {one!r})",
                f"os.symlink('/proc/thread-self/cwd', 'm'); open('m/{one}', 'a').write({text!r})",
                "os.remove('m')",
                "pass",
            ]
        )
        + "\nexcept OSError: pass"
    )


def edit(project, dice):
    """Change a file as a person does."""
    path = project / (dice.choice(FOLDERS) + dice.choice(NAMES))
    if not os.path.realpath(path).startswith(os.path.realpath(project)):
        # To this process the link leads elsewhere.
        return
    try:
        if dice.random() < 0.2:
            path.unlink()
        elif dice.random() < 0.5:
            (path.parent / "saving~").write_text(f"person {dice.random()}")
            (path.parent / "saving~").rename(path)
        else:
            path.write_text(f"person {dice.random()}")
    except OSError:
        return


MAKE = """
def make(path):
    import os
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
def exchange(one, other):
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, one.encode(), -100, other.encode(), 2):
        raise OSError(ctypes.get_errno(), 'not exchanged')
"""


def play(image, project, dice, steps):
    model = Model()
    assert image.evaluate(MAKE, timeout=WAIT).ok
    model.kept[image.checkpoint("start").id] = model.links
    for step in range(steps):
        move = dice.random()
        before = look(project)
        if move < 0.55:
            assert image.evaluate(deed(dice) + f"\nvalue = {step}", timeout=WAIT).ok
            model.call(before, look(project))
            model.kept[image.checkpoint(f"s{step}").id] = model.links
        elif move < 0.75:
            edit(project, dice)
        else:
            goal = dice.choice(list(model.kept))
            told = image.rollback(goal).files
            wanted = model.go(goal, before)
            assert look(project) == wanted, (step, goal, told)


@pytest.mark.contract("trust.notify.model")
@pytest.mark.parametrize("seed", range(3))
def test_the_disk_is_what_the_model_says(image, project, seed):
    """Writes by evaluations and by a person, renames, exchanges, modes, all links; ways back and on."""
    play(image, project, random.Random(seed), 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_disk_is_what_the_model_says_for_longer(image, project, seed):
    """The same, further."""
    play(image, project, random.Random(seed), 60)
