"""The control group of an image: where systemd gives one the kernel bounds the memory, else that is told."""

import os
import stat
from pathlib import Path
from time import monotonic, sleep

import pytest

from gramercy.images import bounds, groups
from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.images.sandbox import Confinement, told_confinement, why_not

WAIT = 60.0
# Where neither sandbox works, as in some virtual machines, a group still does.
IS_CONFINED = any(why_not(each) is None for each in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK))
needs_group = pytest.mark.skipif(groups.why_none() is not None, reason=groups.told_bound())
HOGS = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        held = b"x" * (40 << 20)
        time.sleep(1000)
status = 0
while status != 9:
    _, status = os.wait()
"""
SOCKETS = """
import os, socket, time
held = []
for _ in range(3):
    if os.fork() == 0:
        break
for _ in range(500):
    held += socket.socketpair()
    for plug in held[-2:]:
        plug.setblocking(False)
        try:
            while plug.send(bytes(65536)):
                pass
        except BlockingIOError:
            pass
time.sleep(1000)
"""


def opened(project, memory_mb=64):
    environment = Environment(memory_mb=memory_mb)
    return open_image("python", project=project, sandbox=IS_CONFINED, environment=environment, timeout=WAIT)


def group_of(process):
    path = Path(f"/proc/{process}/cgroup").read_text().rpartition("0::")[2].strip()
    return groups.ROOT / path.lstrip("/")


def wait_until(holds):
    deadline = monotonic() + WAIT
    while not holds():
        assert monotonic() < deadline
        sleep(0.05)


@pytest.fixture(autouse=True)
def allowed():
    """Forget, after a test, that groups were refused in it."""
    yield
    groups.allow()


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """Put a program in the place of systemd-run; a test writes what it does."""
    root, program = tmp_path / "groups", tmp_path / "bin" / "systemd-run"
    user = os.geteuid()
    above = root / f"user.slice/user-{user}.slice/user@{user}.service" if user else root
    above.mkdir(parents=True)
    program.parent.mkdir()
    for place in (root, above):
        (place / "cgroup.controllers").write_text("cpu memory pids\n")
    monkeypatch.setattr(groups, "ROOT", root)
    monkeypatch.setattr(groups, "RUNNING", tmp_path)
    monkeypatch.setattr(groups, "PLACES", str(program.parent))
    monkeypatch.setenv(groups.RUNTIME, str(tmp_path))
    (tmp_path / "systemd").mkdir()

    def write(words):
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    write("exit 1")
    return write


@pytest.mark.contract("trust.memory.group-told")
def test_which_bound_is_in_force_is_told_with_the_sandbox():
    """A person must know whether the kernel holds or a watch looks."""
    groups.refuse("systemd gives no group")
    assert told_confinement(Confinement.BUBBLEWRAP) == (
        "sandbox: bubblewrap, memory watched (systemd gives no group)"
    )
    assert told_confinement(Confinement.LANDLOCK).endswith("memory watched (systemd gives no group)")


@pytest.mark.contract("trust.memory.group-told")
@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("cgroup.controllers", "no control groups of version 2 are at"),
        ("systemd-run", "systemd does not run here"),
        ("memory", "systemd may not bound the memory of this user's programs"),
    ],
)
def test_why_there_is_no_group_is_one_sentence(manager, missing, words):
    assert groups.why_none() is None
    if missing == "systemd-run":
        manager("").unlink()
    for path in list(groups.ROOT.rglob("cgroup.controllers")):
        if missing == "memory":
            path.write_text("cpu pids\n")
        elif missing == "cgroup.controllers":
            path.unlink()
    assert words in (groups.why_none() or "")
    assert groups.scope(64) == []


@pytest.mark.contract("trust.memory.group-refused")
def test_an_image_that_systemd_refuses_a_group_starts_without_one(manager, tmp_path):
    """An older systemd, or a bus that does not answer, must not cost the image."""
    manager("echo 'Failed to start transient scope unit' >&2; exit 1")
    image = opened(tmp_path)
    try:
        assert image.evaluate("6 * 7").values == ["42"]
        assert groups.told_bound() == "memory watched (systemd gives no group)"
    finally:
        image.close()


@pytest.mark.contract("trust.memory.group-refused")
def test_what_systemd_needs_does_not_reach_the_image(manager, tmp_path):
    """The command runs with the descriptors of the image, and without the address of the user's manager."""
    manager('echo "$@" > $(dirname "$0")/said\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"')
    image = opened(tmp_path)
    try:
        assert image.evaluate("import os; [name for name in os.environ if 'XDG' in name]").values == ["[]"]
        said = (tmp_path / "bin" / "said").read_text()
        assert "--scope" in said
        assert "MemoryMax=256M" in said
        assert ("--user" in said) == (os.geteuid() != 0)
    finally:
        image.close()


@needs_group
@pytest.mark.contract("trust.memory.group")
@pytest.mark.parametrize("code", [HOGS, SOCKETS])
def test_the_kernel_ends_what_passes_the_bound_and_the_state_before_is_back(code, tmp_path, monkeypatch):
    """The watch is taken away: only the group holds."""
    image = opened(tmp_path)
    try:
        assert image.evaluate("x = 41").ok
        group = group_of(image.processes()["zygote"])
        assert group.name.startswith(groups.PREFIX)
        assert (group / "memory.max").read_text().strip() == str(256 << 20)
        assert group_of(os.getpid()) != group
        monkeypatch.setattr(bounds, "TIMES_MEMORY", 1000)
        reply = image.evaluate(code)
        told = [*reply.notes, reply.error.message if reply.error is not None else ""]
        # Of helpers that were ended beside the live process, the watch hears a moment later.
        deadline = monotonic() + WAIT
        while not any("reached 256 MB together" in each for each in told):
            assert monotonic() < deadline, reply
            told += image.evaluate("time.time()").notes
        assert image.evaluate("x").values == ["41"]
    finally:
        image.close()
    wait_until(lambda: not group.exists())
