"""The cache of SBCL cores: whole cores or none, one line about what is wrong, and an image in any case."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.images.caches import BUILDING, cache_directory, find_core
from gramercy.images.environment import Environment
from gramercy.images.live import LiveImage
from gramercy.images.sandbox import Confinement
from gramercy.images.sbcl import find_sbcl, sbcl_program, sbcl_version, shared_core

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
SOURCE = Path(__file__).parents[2] / "src"
# Less than a core has, and far more than all other files that are written here.
SMALL = 8 << 20
BUILD = "from gramercy.images.sbcl import shared_core; print(shared_core())"
EVALUATE = """
from gramercy.images.opening import open_image
image = open_image("sbcl", sandbox=False)
print(image.evaluate("(+ 40 2)").values)
image.close()
"""


@pytest.fixture(name="cache")
def cache_fixture(tmp_path, monkeypatch):
    """Return an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gramercy"


def run(code, cwd, limit=resource.RLIM_INFINITY):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.slow
def test_a_core_that_does_not_fit_on_the_disk_is_not_kept(cache, tmp_path):
    """A cache directory that is full: SBCL leaves half a core and says that it failed."""
    done = run(BUILD, tmp_path, SMALL)
    assert done.stdout == "None\n"
    line = done.stderr.splitlines()[-1]
    assert f"the SBCL core cannot be kept in {cache}" in line
    assert "start from source" in line
    assert "XDG_CACHE_HOME" in line
    assert [path.suffix for path in cache.iterdir() if path.is_file()] == [".lock"]
    # With room again the same cache serves.
    built = Path(run(BUILD, tmp_path).stdout.strip())
    assert (built.parent, built.suffix) == (cache, ".core")
    assert built.stat().st_size > SMALL


@pytest.mark.slow
def test_an_image_starts_although_the_disk_is_full(cache, tmp_path):
    """A cache directory that is full: the image still starts, from source."""
    done = run(EVALUATE, tmp_path, SMALL)
    assert done.stdout == "['42']\n"
    assert done.stderr.count("cannot be kept") == 1
    assert [path.suffix for path in cache.iterdir() if path.is_file()] == [".lock"]


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_told_in_one_line(tmp_path, monkeypatch):
    """A cache directory that is read-only; here it is none, which root cannot write either."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    told: list[str] = []
    program = sbcl_program(tmp_path, Environment(), confinement=Confinement.NONE, tell=told.append)
    assert "--load" in program.command
    (line,) = told
    assert f"cannot be kept in {tmp_path / 'file' / 'gramercy'} (Not a directory)" in line
    image = LiveImage("test", lambda: program)
    assert image.evaluate("(+ 40 2)").values == ["42"]
    image.close()


def test_a_core_that_is_there_is_found_without_a_word():
    """What is built by scripts/setup is found by everything else."""
    shared_core()
    told: list[str] = []
    sbcl = find_sbcl()
    core = find_core(sbcl, sbcl_version(sbcl), told.append)
    assert core is not None
    assert (core.parent, told) == (cache_directory().resolve(), [])


@pytest.mark.slow
def test_building_is_told_while_it_lasts(cache):
    """Progress for anything over a second."""
    told: list[str] = []
    core = shared_core(told.append)
    assert core is not None
    assert core.parent == cache
    assert set(told) <= {BUILDING}
    assert told


@pytest.mark.slow
def test_a_build_does_not_need_the_working_directory(cache, tmp_path):
    """Clients start servers in directories that are gone."""
    (tmp_path / "lost").mkdir()
    code = f"import os; os.rmdir({str(tmp_path / 'lost')!r})\n{BUILD}"
    assert run(code, tmp_path / "lost").stdout.startswith(str(cache))


@pytest.mark.contract("trust.approval.cache")
@pytest.mark.slow
def test_nobody_else_can_write_the_core(cache, tmp_path):
    """Trust, 10: on the old code it had the mode 0666 under a umask of 0, and images run it."""
    run(f"import os; os.umask(0); {BUILD}", tmp_path)
    (core,) = cache.glob("*.core")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (cache, *cache.iterdir())}
    assert modes.pop("gramercy") == 0o700
    assert set(modes.values()) == {0o600}
    built = core.stat().st_ino
    core.chmod(0o666)
    run(BUILD, tmp_path)
    assert (core.stat().st_mode & 0o777, core.stat().st_ino != built) == (0o600, True)
