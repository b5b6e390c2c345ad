"""Confine an image: its view, its writes and its network. Safety levels are consent; this is confinement.

Bubblewrap gives a read-only system, a private /tmp, no network, no other processes, and a writable project
directory whose .git is read-only. Without bubblewrap Landlock and seccomp do what they can. Without those an
image is refused unless the user says that it may run unconfined.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import SandboxError
from gramercy.images.census import census
from gramercy.images.confine.seccomp import MACHINES
from gramercy.images.environment import DISK_MB, Files, Network, Sandbox
from gramercy.images.groups import told_bound
from gramercy.images.guarded import GIT
from gramercy.images.programs import find_program, none_on_path, passed_over
from gramercy.images.python.landlock import SCOPES_SINCE, landlock_version

if TYPE_CHECKING:
    from collections.abc import Mapping

# bwrap takes milliseconds to run `true` or to print its help.
PROBE_SECONDS = 10.0
ENVIRONMENT = MappingProxyType({"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
# Programs and libraries, and the few files of /etc that they need to start, and to find fonts. The rest of
# /etc holds secrets.
SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")))
SYSTEM_FILES = tuple(
    Path("/etc", name)
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "fonts")
)
# The files for name lookups and trusted certificates. Not all of /etc/ssl, which has private keys.
NETWORK_FILES = tuple(
    Path("/etc", name)
    for name in (
        "resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "services", "protocols",
        "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted",
    )
)  # fmt: skip
# The tmpfs at /tmp and /dev/shm use memory of the machine beyond RLIMIT_DATA.
TEMPORARY_BYTES = 512 * 1024 * 1024
SHARED_MEMORY_BYTES = 64 * 1024 * 1024
# There is one user inside, with a name, since many programs look themselves up in /etc/passwd.
INNER_ID = "1000"
OWN_FILES = Path(__file__).resolve().parent / "confine"
NAME_FILES = ("hosts", "nsswitch.conf")
# For Landlock. Bubblewrap makes its own devices.
DEVICES = ("/dev/full", "/dev/null", "/dev/zero")
READABLE_DEVICES = ("/dev/random", "/dev/urandom", "/proc")
# Run by our own interpreter: that of the image must not run unconfined, and need not have this package.
_CONFINE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from gramercy.images.confine.program import main; main()"
)


class Confinement(StrEnum):
    """How an image is confined."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


class Grants(msgspec.Struct, frozen=True):
    """The grants of a particular image beside the system.

    `private` is its own directory, with one for temporary files where /tmp is not private. `memory_mb` limits
    the private writable memory of each process. `aliases` are (real path, name) of paths that are readable
    under a name that goes through symbolic links outside. `kept` is read-only although it is in the project,
    with `reasons` by path. So is `held`: files that the person's programs run later. It is searched where it
    is not given. `disk_mb` limits the writes of one call to the project.
    """

    readable: tuple[Path, ...] = ()
    aliases: tuple[tuple[Path, Path], ...] = ()
    writable: tuple[Path, ...] = ()
    project: Path | None = None
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    private: Path | None = None
    memory_mb: int | None = None
    network: Network = Network.NONE
    files: Files = Files.WRITE
    kept: tuple[Path, ...] = ()
    reasons: Mapping[str, str] = msgspec.field(default_factory=dict)
    held: tuple[Path, ...] | None = None
    disk_mb: int = DISK_MB

    @property
    def temporary(self) -> Path | None:
        """The directory for temporary files where /tmp is not private."""
        return self.private / "tmp" if self.private else None


def find_confinement(*, allow_none: bool = False, required: Sandbox | None = None) -> Confinement:
    """Return the best confinement that works on this machine, or raise with what to install."""
    lacking = why_not(Confinement.BUBBLEWRAP)
    if lacking is None:
        return Confinement.BUBBLEWRAP
    if required is Sandbox.BUBBLEWRAP:
        raise SandboxError(
            f"bubblewrap is required, so no image is started: {lacking}. Install it with 'apt-get install "
            "bubblewrap', or accept the weaker sandbox with --require-sandbox landlock"
        )
    if why_not(Confinement.LANDLOCK) is None:
        return Confinement.LANDLOCK
    if allow_none:
        return Confinement.NONE
    raise SandboxError(
        f"no sandbox works here, so the image is not started: {lacking}; {why_not(Confinement.LANDLOCK)}. "
        "Install one with 'apt-get install bubblewrap', or accept the risk with --no-sandbox"
    )


def in_force(*, sandbox: bool, required: Sandbox | None = None) -> Confinement:
    """Return the confinement of images. A required sandbox that is switched off is an error."""
    if sandbox:
        return find_confinement(required=required)
    if required is not None:
        raise SandboxError(f"{required} is required, which --no-sandbox switches off: leave out one of them")
    return Confinement.NONE


def told_confinement(confinement: Confinement) -> str:
    """Describe the confinement of images in one line, with stronger words for a weaker one."""
    if confinement is Confinement.BUBBLEWRAP:
        return f"sandbox: bubblewrap, {told_bound()}"
    open_ways = "; ".join(weaknesses(confinement))
    if confinement is Confinement.NONE:
        return f"WARNING, no sandbox: {open_ways}"
    lacking = why_not(Confinement.BUBBLEWRAP)
    told = f"WARNING, the weaker sandbox, landlock ({lacking}); it does not hold back: {open_ways}"
    return f"{told}; {told_bound()}"


def why_not(confinement: Confinement) -> str | None:
    """Return why a confinement cannot be used here, or None when it can. Tried once in each process."""
    if confinement is Confinement.BUBBLEWRAP:
        return _why_not_bubblewrap(find_program("bwrap"))
    if confinement is Confinement.LANDLOCK:
        return _why_not_landlock()
    return None


@cache
def _why_not_bubblewrap(program: str | None) -> str | None:
    """Run `true` under the real options: user namespaces may be disabled."""
    if program is None:
        return "; ".join(["bubblewrap is not installed", *passed_over("bwrap")])
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [program, *bubblewrap_options(Grants()), "--", "true"],
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
            env=child_environment(Confinement.BUBBLEWRAP, Grants()),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run ({error})"
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
        return f"bubblewrap does not work here ({said})"
    return None


@cache
def _why_not_landlock() -> str | None:
    if landlock_version() == 0:
        return "this kernel has no Landlock"
    if platform.machine() not in MACHINES:
        return f"no filter of system calls is known for {platform.machine()}"
    return None


def weaknesses(confinement: Confinement) -> tuple[str, ...]:
    """List the gaps of a confinement, in words for the user."""
    if confinement is Confinement.BUBBLEWRAP:
        return ()
    if confinement is Confinement.NONE:
        return ("nothing is held back: evaluated code has all the rights of the user",)
    signals = () if landlock_version() >= SCOPES_SINCE else ("signals to other processes",)
    return (
        "names and command lines of other processes",
        "names, sizes and times of files outside that are guessed",
        "making .git where there is none, until it is moved aside",
        "filling the disk with temporary files",
        *signals,
    )


def confined_command(
    command: list[str],
    confinement: Confinement,
    grants: Grants,
    *,
    seccomp: int | None = None,
    options: int | None = None,
) -> list[str]:
    """Return the command that runs another one inside the confinement.

    `seccomp` and `options` are descriptors that bubblewrap reads: its filter, and options that must not be on
    its command line.
    """
    if confinement is Confinement.BUBBLEWRAP:
        words = bubblewrap_options(grants, seccomp=seccomp, options=options)
        program = find_program("bwrap")
        if program is None:
            raise SandboxError(f"bubblewrap is gone: {none_on_path('bwrap')}")
        return [program, *words, "--", *command]
    if confinement is Confinement.LANDLOCK:
        return [*_landlock(grants), "--", *command]
    return command


def child_environment(confinement: Confinement, grants: Grants) -> dict[str, str]:
    """Return the whole environment of the processes: an allow-list, so that no secret is inherited."""
    temporary = "/tmp"  # noqa: S108 - private inside bubblewrap
    if confinement is not Confinement.BUBBLEWRAP and grants.temporary is not None:
        temporary = str(grants.temporary)
    return {**ENVIRONMENT, "HOME": temporary, "TMPDIR": temporary, **grants.environment}


def _landlock(grants: Grants) -> list[str]:
    source = str(Path(__file__).resolve().parents[2])
    words = [sys.executable, "-I", "-S", "-c", _CONFINE, source]
    is_open = grants.network is Network.OPEN
    words += ["--network"] if is_open else []
    private = (grants.private,) if grants.private else ()
    for path in (*SYSTEM, *SYSTEM_FILES, *READABLE_DEVICES, *grants.readable, *private):
        words += ["--read", str(path)]
    # The links exist outside. Landlock checks only their targets.
    for path, _ in grants.aliases:
        words += ["--read", str(path)]
    for path in (*DEVICES, *grants.writable, *((grants.temporary,) if grants.temporary else ())):
        words += ["--write", str(path)]
    for path in NETWORK_FILES if is_open else ():
        # Landlock checks the target of a link. Reading the link itself needs no right.
        words += ["--read", os.path.realpath(path)]
    return words + _landlock_project(grants)


def _landlock_project(grants: Grants) -> list[str]:
    """Grant the project, entry by entry where it has protected ones, so that its top is not writable."""
    project = grants.project
    if project is None:
        return []
    if grants.files is Files.READ:
        return ["--read", str(project)]
    return ["--read", str(project), *_landlock_below(project, set(_read_only(project, grants)))]


def _read_only(project: Path, grants: Grants) -> tuple[Path, ...]:
    """Return the read-only paths of the project."""
    held = grants.held
    if held is None:
        held = tuple(project / name for name in census(project).held)
    return (*held, *grants.kept)


def _landlock_below(place: Path, kept: set[Path]) -> list[str]:
    """Grant a place, or its entries except for kept ones: a right cannot be removed below a granted one."""
    if place in kept or place.is_symlink() or place.name == GIT:
        return []
    if not any(path.is_relative_to(place) for path in kept):
        return ["--write", str(place)]
    return [word for entry in sorted(place.iterdir()) for word in _landlock_below(entry, kept)]


def bubblewrap_options(
    grants: Grants, *, seccomp: int | None = None, options: int | None = None
) -> list[str]:
    """Return the options of bubblewrap for the grants. Paths that are not bound do not exist inside.

    `seccomp` is a descriptor to read a filter of system calls from, `options` one to read more options from.
    """
    words = ["--unshare-all", "--unshare-user", *_if_known("--disable-userns")]
    is_open = grants.network is Network.OPEN
    words += ["--share-net"] if is_open else []
    words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "image"]
    words += ["--uid", INNER_ID, "--gid", INNER_ID]
    words += ["--args", str(options)] if options is not None else []
    # Without a network only our own name files are there: servers in the image listen on localhost.
    network = [word for path in NETWORK_FILES for word in _if_there(path)] if is_open else _own(*NAME_FILES)
    words += [*_system(), *network, *_devices(grants.memory_mb), *_paths(grants), "--remount-ro", "/"]
    return words + (["--seccomp", str(seccomp)] if seccomp is not None else [])


def environment_options(environment: Mapping[str, str]) -> bytes:
    """Return the options that set the environment, as bubblewrap reads them from a descriptor.

    Never on its command line, which every user of the machine can read: values may be secret.
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
    return words + _own("passwd", "group")


def _own(*names: str) -> list[str]:
    """Bind our own files below /etc."""
    return [word for name in names for word in ("--ro-bind", str(OWN_FILES / name), f"/etc/{name}")]


def _if_there(path: Path) -> list[str]:
    return ["--ro-bind-try", str(path), str(path)]


def _devices(memory_mb: int | None) -> list[str]:
    # Files there are memory that outlives its process: never more than the image may use.
    most = TEMPORARY_BYTES if memory_mb is None else min(TEMPORARY_BYTES, memory_mb << 20)
    shared = [*_if_known("--size", str(SHARED_MEMORY_BYTES)), "--tmpfs", "/dev/shm"]  # noqa: S108 - private
    temporary = [*_if_known("--size", str(most)), "--tmpfs", "/tmp"]  # noqa: S108 - private
    # For root outside, files below /proc/sys are its own, writable without any capability.
    processes = ["--proc", "/proc", "--remount-ro", "/proc"]
    return [*processes, "--dev", "/dev", *shared, "--remount-ro", "/dev", *temporary]


def _paths(grants: Grants) -> list[str]:
    """Bind the grants: after /tmp, since they may be below it, and inner directories over outer ones."""
    binds = [(path, "--bind") for path in grants.writable]
    binds += [(path, "--ro-bind") for path in grants.readable]
    sources = {name: path for path, name in grants.aliases}
    binds += [(name, "--ro-bind") for name in sources]
    if grants.project is not None:
        binds.append((grants.project, "--ro-bind" if grants.files is Files.READ else "--bind"))
        binds += [(path, "--ro-bind") for path in _read_only(grants.project, grants)]
    words = []
    for path, option in sorted(binds, key=lambda bind: len(bind[0].parts)):
        words += [option, str(sources.get(path, path)), str(path)]
    return [*words, "--chdir", str(grants.project or "/tmp")]  # noqa: S108 - private


def _if_known(option: str, *values: str) -> list[str]:
    return [option, *values] if option in _help() else []


@cache
def _help() -> frozenset[str]:
    """Return the words of bwrap --help: older versions lack some options."""
    program = find_program("bwrap")
    if program is None:
        return frozenset()
    try:
        done = subprocess.run([program, "--help"], capture_output=True, timeout=PROBE_SECONDS, check=False)  # noqa: S603 - as found
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(done.stdout.decode("utf-8", "replace").split())


def inner_command(program: Path) -> list[str]:
    """Return the command that runs a program of ours inside a sandbox, before the image starts there.

    Under our own interpreter: an SBCL image has no Python, and that of a project may be any version.
    """
    return [_executable(), "-I", "-S", str(program.resolve())]


def inner_places(program: Path) -> tuple[Path, ...]:
    """Return the paths that must be readable for that: program, interpreter and its standard library."""
    executable = Path(_executable())
    library = Path(os.__file__).resolve().parent
    found = [executable, library, *(executable.parents[1] / "lib").glob("libpython3*.so*")]
    return (*(path for path in found if not path.is_relative_to("/usr")), program.resolve())


def _executable() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
