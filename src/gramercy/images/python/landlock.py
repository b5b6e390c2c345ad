"""Give up rights for good: to files, TCP ports and other processes by Landlock, to system calls by a filter.

Part of two programs, the one inside a Python image and the one that confines an image before it starts. So it
imports the standard library alone. Rights are only ever granted, never subtracted: a directory that is
writable except for one entry is granted entry by entry. Not covered: modes, owners and times of files, and
connections to unix sockets by path. The filter refuses those.

As a program, `… COMMAND…`, it gives up the abstract unix sockets outside and executes the command: those
belong to the network, which an image may share while namespaces block everything else.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION, PATH_BENEATH = 1, 1
NO_NEW_PRIVILEGES = 38
SET_SECCOMP, FILTER_MODE = 22, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, CONTROL_DEVICE = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIRECTORY
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | CONTROL_DEVICE
BASE_RIGHTS = (1 << 13) - 1
# The version that introduced each right: to link across directories, to truncate, to control devices.
LATER_RIGHTS = ((2, 1 << 13), (3, TRUNCATE), (5, CONTROL_DEVICE))
TRUNCATE_SINCE = 3
TCP_RIGHTS, TCP_SINCE = 0b11, 4
ABSTRACT_SOCKETS, SIGNALS = 0b01, 0b10
SCOPES, SCOPES_SINCE = ABSTRACT_SOCKETS | SIGNALS, 6

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
prctl = _libc.prctl


class Ruleset(ctypes.Structure):
    """The subjects of a set of rules: files, TCP ports, and processes outside."""

    _fields_ = (("files", ctypes.c_uint64), ("ports", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathRule(ctypes.Structure):
    """The rights beneath one path."""

    _pack_ = 1
    # The permanent meaning of `_pack_`. Python 3.14 wants it explicit.
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Return the version of the kernel's Landlock, 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(int(_syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))), 0)


def restrict(readable: list[str], writable: list[str], *, network: bool = False) -> None:
    """Keep the rights to these paths, where they exist, and to the network if wanted. Give up all others."""
    rights, ruleset = _create(network=network)
    for path in readable:
        _grant(ruleset, path, READ)
    for path in writable:
        _grant(ruleset, path, rights)
    _enforce(ruleset)


def restrict_writes() -> None:
    """Keep the right to read and run files. Give up all others."""
    _, ruleset = _create(handled=~READ)
    _enforce(ruleset)


def restrict_scopes(scopes: int) -> bool:
    """Give up SIGNALS to, or ABSTRACT_SOCKETS of, processes outside. Return whether the kernel can."""
    if landlock_version() < SCOPES_SINCE:
        return False
    _enforce(_ruleset(Ruleset(0, 0, scopes)))
    return True


def _create(*, handled: int = -1, network: bool = False) -> tuple[int, int]:
    """Return the handled rights to files that this kernel knows, and a set of rules that grants none."""
    version = landlock_version()
    if not version:
        raise OSError("this kernel has no Landlock")
    rights = handled & (BASE_RIGHTS | sum(right for since, right in LATER_RIGHTS if version >= since))
    ports = TCP_RIGHTS if version >= TCP_SINCE and not network else 0
    return rights, _ruleset(Ruleset(rights, ports, SCOPES if version >= SCOPES_SINCE else 0))


def _ruleset(rules: Ruleset) -> int:
    # An older kernel takes a shorter structure only.
    size = 24 if rules.scoped else 16 if rules.ports else 8
    return _check(_syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0)))


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


def install_filter(program: bytes) -> None:
    """Filter the system calls of this thread and of all its future children."""
    code = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    mode, zero = ctypes.c_ulong(FILTER_MODE), ctypes.c_ulong(0)
    _give_up_privileges()
    _check(prctl(SET_SECCOMP, mode, ctypes.c_char_p(description), zero, zero), "the filter of system calls")


def _give_up_privileges() -> None:
    zero = ctypes.c_ulong(0)
    _check(prctl(NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero))


def _enforce(ruleset: int) -> None:
    try:
        _give_up_privileges()
        _check(_syscall(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _check(result: int, what: str = "Landlock") -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what} is refused: {os.strerror(error)}")
    return int(result)


if __name__ == "__main__":
    restrict_scopes(ABSTRACT_SOCKETS)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - running a command is what this program is for
