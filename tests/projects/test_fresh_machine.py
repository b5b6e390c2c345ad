"""scripts/fresh: a bare machine that has this commit and nothing else, and of which nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import BOUND, ROOT, children_of, until

FRESH = ROOT / "scripts" / "fresh"
# Once a day it is made, for which apt fetches a hundred megabytes.
MAKING = 900.0
UNAVAILABLE = 69
# What no bare machine has, and what every use begins without.
LOOK = """
command -v sbcl; command -v bwrap; command -v node; ls /.old /root/left 2>/dev/null
touch /root/left; git rev-parse --verify --quiet HEAD^{tree}; id -u; env | cut -d= -f1 | sort | xargs
sh -c 'sleep 0 & exec true'; exit 7
"""
PASSED = {"PIP_NO_INPUT", "CI", "SSL_CERT_FILE"}
OWN = {"HOME", "USER", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}


def run_fresh(*words, **options):
    """Run the script; return what it did."""
    return subprocess.run(
        [FRESH, *words], capture_output=True, text=True, check=False, timeout=MAKING, **options
    )


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Return the environment for a bare machine in a cache of its own, or skip where none can be made."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    cache = tmp_path_factory.mktemp("cache")
    variables = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/root"), **kept}
    variables |= {"XDG_CACHE_HOME": str(cache), "SECRET_TOKEN": "x", "CI": "true", "PIP_NO_INPUT": "1"}
    done = run_fresh("true", env=variables)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return variables


def left_of(variables):
    """Return what is left of uses: their directories, and mounts that this machine sees."""
    cache = Path(variables["XDG_CACHE_HOME"]) / "gramercy-fresh"
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(cache) in line]
    return [path.name for path in cache.glob("use.*")] + mounts


def test_what_the_script_takes_is_told():
    """The first thing that a person tries."""
    done = run_fresh("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: scripts/fresh [--user] [command …]\n")


def test_an_unknown_option_is_one_sentence():
    """Bad input gets one clear line, and makes nothing."""
    done = run_fresh("--usr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "scripts/fresh: unknown option '--usr'; see scripts/fresh --help\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_who_cannot_make_one_is_told_in_one_sentence():
    """The status tells .ci/run to do without."""
    # Another user may not be able to reach the checkout, so the script comes on standard input.
    with FRESH.open("rb") as script:
        done = subprocess.run(
            ["bash", "-s", "--", "true"],
            stdin=script,
            cwd="/",
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
            timeout=BOUND,
        )
    assert (done.returncode, done.stdout) == (UNAVAILABLE, "")
    assert done.stderr == "scripts/fresh: no bare machine here: only root can make one\n"


@pytest.mark.slow
def test_a_bare_machine_has_the_commit_and_nothing_else(bare):
    """Twice, since the second use must not see what the first one has done."""
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND,
    ).stdout.strip()
    for _ in range(2):
        done = run_fresh("bash", "-c", LOOK, env=bare)
        assert done.returncode == 7, done.stderr
        found, user, names = done.stdout.splitlines()
        assert (found, user) == (tree, "0")
        assert {"CI", "PIP_NO_INPUT"} <= set(names.split())
        strange = {name for name in names.split() if not name.startswith(("PIP_", "SSL_"))}
        assert strange <= {*OWN, *PASSED}
        assert left_of(bare) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_bare_machine_that_is_interrupted(bare, number):
    """Neither processes nor mounts nor the directory."""
    words = [str(FRESH), "bash", "-c", "sleep 1000 & setsid sleep 1001 & wait"]
    with subprocess.Popen(words, env=bare, stderr=subprocess.PIPE, start_new_session=True) as process:
        below: set[int] = set()

        def has_both():
            below.update(children_of(process.pid))
            lines = (Path(f"/proc/{pid}/cmdline") for pid in children_of(process.pid))
            return sum(b"sleep\x00100" in line.read_bytes() for line in lines if line.exists()) == 2

        until(has_both)
        process.send_signal(number)
        assert process.wait(BOUND) == 130
    assert not [pid for pid in below if Path(f"/proc/{pid}/status").exists() and is_alive(pid)]
    assert left_of(bare) == []


def is_alive(pid):
    """Tell whether a process is more than an entry that waits for its parent."""
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
