"""Landlock: give up every right to files and to processes outside, except those that are listed.

Rights are only ever granted, never subtracted, so a directory that is writable but for one entry is granted
entry by entry. Changing modes, owners and times, and connecting to unix sockets by path, are not seen by it.

As a program, `… COMMAND…`, it gives up the abstract unix sockets outside and becomes the command: those
belong to the network, which an image may share while everything else is held back by namespaces.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION, PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, CONTROL_DEVICE = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIRECTORY
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | CONTROL_DEVICE
BASE_RIGHTS = (1 << 13) - 1
# Since which version there is which right: to link across directories, to cut, to control devices.
LATER_RIGHTS = ((2, 1 << 13), (3, TRUNCATE), (5, CONTROL_DEVICE))
TCP_RIGHTS, TCP_SINCE = 0b11, 4
SCOPES, SCOPES_SINCE = 0b11, 6
ABSTRACT_SOCKETS = 0b01
TRUNCATE_SINCE = 3

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


class Ruleset(ctypes.Structure):
    """What a set of rules is about: files, TCP ports, and processes outside."""

    _fields_ = (("files", ctypes.c_uint64), ("ports", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathRule(ctypes.Structure):
    """The rights beneath one path."""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Return the version of the kernel's Landlock, 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(int(_syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))), 0)


def restrict(readable: list[str], writable: list[str], *, network: bool = False) -> None:
    """Keep the rights to these paths, where they exist, and to the network if so; give up all others."""
    version = landlock_version()
    if not version:
        raise OSError("this kernel has no Landlock")
    rights = BASE_RIGHTS | sum(right for since, right in LATER_RIGHTS if version >= since)
    ports = TCP_RIGHTS if version >= TCP_SINCE and not network else 0
    scopes = SCOPES if version >= SCOPES_SINCE else 0
    size = 24 if scopes else 16 if ports else 8
    ruleset = _check(
        _syscall(CREATE_RULESET, ctypes.byref(Ruleset(rights, ports, scopes)), ctypes.c_size_t(size), 0)
    )
    for path in readable:
        _grant(ruleset, path, READ)
    for path in writable:
        _grant(ruleset, path, rights)
    _give_up(ruleset)


def restrict_sockets() -> None:
    """Give up the abstract unix sockets of other processes for good, where the kernel can do that."""
    if landlock_version() >= SCOPES_SINCE:
        wanted = Ruleset(0, 0, ABSTRACT_SOCKETS)
        _give_up(_check(_syscall(CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(24), 0)))


def _give_up(ruleset: int) -> None:
    _check(_libc.prctl(38, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))
    _check(_syscall(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_FILES
        rule = PathRule(rights, place)
        _check(
            _syscall(ADD_RULE, ctypes.c_int(ruleset), PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
        )
    finally:
        os.close(place)


def _check(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock refuses: {os.strerror(error)}")
    return int(result)


if __name__ == "__main__":
    restrict_sockets()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - running a command is what this program is for
