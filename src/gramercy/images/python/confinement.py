"""Give up rights: to signal outsiders, for a live process; to write, connect and signal, for a preview.

Landlock takes the rights to new files. Descriptors and shared mappings that are open already are beyond it,
so descriptors are pointed at the null device and a writable shared mapping, but for the mirror of the output,
means: not confined.
"""

import ctypes
import fcntl
import os
import sys

from .mirror import Device

_CREATE, _RESTRICT = 444, 446
_NO_NEW_PRIVILEGES = 38
_ABI_QUESTION = 1
# Everything but execute (1<<0), read a file (1<<2) and read a directory (1<<3).
_BASE_WRITES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
_LATER_WRITES = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
_NETWORK, _NETWORK_ABI = 0b11, 4
_SCOPES, _SIGNALS, _SCOPES_ABI = 0b11, 0b10, 6

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
prctl = _libc.prctl


class NotConfinedError(Exception):
    """Confinement is not complete, with the reason."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def landlock_version() -> int:
    """Return the version of Landlock in this kernel, 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(int(_syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ABI_QUESTION))), 0)


def confine(keep: int, mirror: Device | None) -> str:
    """Give up the rights of this process except its connection and its mirror; return the level, or raise."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    sys.dont_write_bytecode = True
    try:
        _silence_descriptors(null, keep)
    finally:
        os.close(null)
    version = landlock_version()
    if not version:
        raise NotConfinedError("This kernel has no Landlock: writes of evaluated code cannot be held back.")
    _restrict(version)
    shared = _shared_mapping(mirror)
    if shared is not None:
        raise NotConfinedError(f"Evaluated code has mapped {shared} for shared writing before the fork.")
    return f"landlock-{version}"


def shield() -> bool:
    """Give up signalling processes outside: a live process must not kill the zygote, nor its siblings."""
    if landlock_version() < _SCOPES_ABI:
        return False
    try:
        _enforce(_Ruleset(0, 0, _SIGNALS), 24)
    except NotConfinedError:
        return False
    return True


def _restrict(version: int) -> None:
    rights = _BASE_WRITES | sum(right for since, right in _LATER_WRITES if version >= since)
    net = _NETWORK if version >= _NETWORK_ABI else 0
    scoped = _SCOPES if version >= _SCOPES_ABI else 0
    _enforce(_Ruleset(rights, net, scoped), 24 if scoped else 16 if net else 8)


def _enforce(rules: _Ruleset, size: int) -> None:
    ruleset = _check(_syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0)))
    try:
        _check(prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _check(_syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _check(result: int) -> int:
    if result < 0:
        raise NotConfinedError(f"Landlock refused: {os.strerror(ctypes.get_errno())}.")
    return int(result)


def _silence_descriptors(null: int, keep: int) -> None:
    """Point every descriptor that can be written to at the null device."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is not loaded here
        number = int(name)
        if number in (null, keep):
            continue
        try:
            mode = fcntl.fcntl(number, fcntl.F_GETFL)
        except OSError:
            continue
        if mode & os.O_ACCMODE != os.O_RDONLY:
            os.dup2(null, number, inheritable=number <= 2)  # noqa: PLR2004 - the standard three


def _shared_mapping(mirror: Device | None) -> str | None:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - no pathlib here
        for line in lines:
            words = line.split(None, 5)
            if len(words) < 6 or not words[1].startswith("rw") or not words[1].endswith("s"):  # noqa: PLR2004 - unnamed
                continue
            if mirror is None or (words[3], words[4]) != mirror:
                return words[5].strip()
    return None
