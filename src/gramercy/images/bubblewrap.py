"""The policy in the words of bubblewrap. Knows no languages; what is not bound does not exist inside."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.images.environment import Network
from gramercy.images.protection import protected_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.images.sandbox import Grants

# Programs and libraries, and the few files of /etc that they need to start. The rest of /etc holds secrets.
SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")))
SYSTEM_FILES = tuple(
    Path("/etc", name) for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
)
# Where names are looked up and whose certificates are trusted; not all of /etc/ssl, which has private keys.
NETWORK_FILES = tuple(
    Path("/etc", name)
    for name in (
        "resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "services", "protocols",
        "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted",
    )
)  # fmt: skip
TEMPORARY_BYTES = 512 * 1024 * 1024
SHARED_MEMORY_BYTES = 64 * 1024 * 1024
# Whoever runs it outside, inside there is one user, with a name: many programs ask for that.
INNER_ID = "1000"
PEOPLE = Path(__file__).resolve().parent / "confine"


def policy(grants: Grants, *, seccomp: int | None = None, options: int | None = None) -> list[str]:
    """Return the options for the grants.

    `seccomp` is a descriptor to read a filter of system calls from, `options` one to read more options from.
    """
    words = ["--unshare-all", "--unshare-user", *_if_known("--disable-userns")]
    is_open = grants.network is Network.OPEN
    words += ["--share-net"] if is_open else []
    words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "image"]
    words += ["--uid", INNER_ID, "--gid", INNER_ID]
    words += ["--args", str(options)] if options is not None else []
    network = [word for path in NETWORK_FILES for word in _if_there(path)] if is_open else []
    words += [*_system(), *network, *_devices(), *_paths(grants), "--remount-ro", "/"]
    return words + (["--seccomp", str(seccomp)] if seccomp is not None else [])


def environment_options(environment: Mapping[str, str]) -> bytes:
    """Return the options that set the environment, as bubblewrap reads them from a descriptor.

    Never on its command line: that can be read by every user of the machine, and values may be secret.
    """
    words = ["--clearenv"]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _system() -> list[str]:
    words = []
    for path in SYSTEM:
        is_link = path.is_symlink()
        words += ["--symlink", str(path.readlink()), str(path)] if is_link else _if_there(path)
    for path in SYSTEM_FILES:
        words += _if_there(path)
    for name in ("passwd", "group"):
        words += ["--ro-bind", str(PEOPLE / name), f"/etc/{name}"]
    return words


def _if_there(path: Path) -> list[str]:
    return ["--ro-bind-try", str(path), str(path)]


def _devices() -> list[str]:
    shared = [*_if_known("--size", str(SHARED_MEMORY_BYTES)), "--tmpfs", "/dev/shm"]  # noqa: S108 - private
    temporary = [*_if_known("--size", str(TEMPORARY_BYTES)), "--tmpfs", "/tmp"]  # noqa: S108 - private
    # Root outside owns the settings of the kernel under /proc and could write them without any capability.
    processes = ["--proc", "/proc", "--remount-ro", "/proc"]
    return [*processes, "--dev", "/dev", *shared, "--remount-ro", "/dev", *temporary]


def _paths(grants: Grants) -> list[str]:
    """Bind what is granted, after /tmp since it may be inside, and narrower places on top of wider ones."""
    binds = [(path, "--bind") for path in grants.writable]
    binds += [(path, "--ro-bind") for path in grants.readable]
    sources = {name: path for path, name in grants.aliases}
    binds += [(name, "--ro-bind") for name in sources]
    if grants.private is not None:
        # A socket can be connected to on a read-only mount, but not replaced.
        binds.append((grants.private, "--ro-bind"))
    if grants.temporary is not None:
        # What the image hands over, such as a core that was saved.
        binds.append((grants.temporary, "--bind"))
    if grants.project is not None:
        binds.append((grants.project, "--bind"))
        binds += [(path, "--ro-bind") for path in protected_paths(grants.project)]
    words = []
    for path, option in sorted(binds, key=lambda bind: len(bind[0].parts)):
        words += [option, str(sources.get(path, path)), str(path)]
    return [*words, "--chdir", str(grants.project or "/tmp")]  # noqa: S108 - private


def _if_known(option: str, *values: str) -> list[str]:
    return [option, *values] if option in _help() else []


@cache
def _help() -> frozenset[str]:
    """Return the options of the installed version; the older ones lack some that are good to have."""
    program = shutil.which("bwrap")
    if program is None:
        return frozenset()
    try:
        done = subprocess.run([program, "--help"], capture_output=True, timeout=10, check=False)  # noqa: S603 - as found
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(done.stdout.decode("utf-8", "replace").split())
