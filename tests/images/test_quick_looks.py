"""The short look for edits before each call: the kernel says that nothing changed, and is right about it."""

import os
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest

from gramercy.images.opening import open_image
from tests.images.test_taking_up import Desk

# By then each file is older than the grain of its times, so that only the kernel tells of a change.
QUIET = "import time; time.sleep(0.05)"
# Two calls that run no code of the user's: only after such a call is the descriptor taken for granted.
PLAIN = ("1 + 2", "1 + 2")
LIMIT = Path("/proc/sys/fs/inotify/max_queued_events")
MOST_QUEUED = 200_000


@pytest.fixture
def desk(tmp_path):
    with closing(open_image("python", project=tmp_path)) as image:
        yield Desk(image, tmp_path)


def settle(desk):
    """Leave nothing to look at before the kernel tells of a change."""
    for code in (QUIET, *PLAIN):
        desk.evaluate(code)


@pytest.mark.parametrize("before", [(QUIET,), (QUIET, *PLAIN)], ids=["after_code", "after_none"])
@pytest.mark.parametrize(
    "other", ["os.pipe()[0]", "os.eventfd(0, os.EFD_NONBLOCK)", "os.open('/dev/null', 0)"]
)
def test_edits_are_seen_after_code_has_put_another_file_in_place_of_the_queue(desk, other, before):
    """A pipe without data says nothing, which must not be taken for the word of the kernel."""
    name = desk.load("def f(): return 1\n", "h = m.f")
    for each in before:
        desk.evaluate(each)
    code = f"""
        import os, resource
        def is_queue(n):
            return os.path.islink(f'/proc/self/fd/{{n}}') and 'inotify' in os.readlink(f'/proc/self/fd/{{n}}')
        queues = [int(n) for n in os.listdir('/proc/self/fd') if is_queue(n)]
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        other = {other}
        for n in queues: os.dup2(other, n)
        len(queues)
        """
    assert desk.evaluate(dedent(code))[0] == "1"
    for number in (2, 3):
        desk.write(f"{name}.py", f"def f(): return {number}\n")
        assert desk.evaluate("h()")[0] == str(number)


def test_an_edit_is_seen_after_more_changes_than_the_queue_holds(desk):
    """Then the kernel drops the word about the edit itself, and says that it dropped something."""
    most = int(LIMIT.read_text())
    if most > MOST_QUEUED:
        pytest.skip(f"the queue holds {most} changes")
    name = desk.load("def f(): return 1\n", "h = m.f")
    beside = [desk.project / each for each in ("one.txt", "two.txt")]
    for each in beside:
        each.touch()
    settle(desk)
    for number in range(most + 2):
        # In turns, as the kernel puts equal changes in a row together.
        beside[number % 2].touch()
    desk.write(f"{name}.py", "def f(): return 22\n")
    assert desk.evaluate("h()")[0] == "22"
    desk.write(f"{name}.py", "def f(): return 333\n")
    assert desk.evaluate("h()")[0] == "333"


def test_a_module_that_is_imported_and_edited_in_one_call_is_taken_up_by_the_next(desk):
    """Other modules are followed already, and the kernel was not asked to watch the folder of this one."""
    desk.load("def f(): return 1\n")
    desk.write("sub/late.py", "def f(): return 1\n")
    settle(desk)
    edit = "_ = open('sub/late.py', 'w').write('def f(): return 2\\n')"
    desk.evaluate(f"from sub import late; h = late.f; {edit}")
    assert desk.evaluate("h()") == ("2", "took up sub/late.py: f")


def test_a_module_that_takes_the_place_of_another_is_followed(desk):
    """There are as many modules as before, of the same names."""
    name = desk.load("def f(): return 1\n")
    settle(desk)
    desk.evaluate(f"import sys; del sys.modules['{name}']; import {name} as m; h = m.f")
    settle(desk)
    desk.write(f"{name}.py", "def f(): return 22\n")
    assert desk.evaluate("h()")[0] == "22"


@pytest.mark.parametrize("way", ["in place", "renamed", "same size and time"])
def test_an_edit_after_plain_calls_is_seen_at_once(desk, way):
    """No code of the user's ran since the last look, which is when the look is the shortest."""
    name = desk.load("def f(): return 1\n", "h = m.f")
    settle(desk)
    file, new = desk.project / f"{name}.py", desk.project / "new.txt"
    for number in (2, 3, 4):
        if way == "renamed":
            new.write_text(f"def f(): return {number}\n")
            new.rename(file)
        else:
            times = file.stat()
            desk.write(file.name, f"def f(): return {number}\n")
            if way != "in place":
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert desk.evaluate("h()")[0] == str(number)
        settle(desk)
