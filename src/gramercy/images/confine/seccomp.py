"""Filter system calls: what an image never needs, and what the rest of its confinement does not see.

A filter is a little program for the kernel, written here instruction by instruction. Refused calls fail as if
for lack of rights; those whose arguments cannot be looked into fail as if the kernel did not have them, so
that programs take the older call.
"""

from __future__ import annotations

import ctypes
import os
import struct

from gramercy.images.confine.calls import MACHINES, NUMBERS

Instruction = tuple[int, int, int, int]

LOAD, EQUAL, AT_LEAST, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW = (ANSWER, 0, 0, 0x7FFF0000)
REFUSE = (ANSWER, 0, 0, 0x00050001)
PRETEND_ABSENT = (ANSWER, 0, 0, 0x00050026)
NUMBER, ARCHITECTURE = (LOAD, 0, 0, 0), (LOAD, 0, 0, 4)
X32 = 0x40000000

SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER_MODE = 38, 22, 2

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
NEW_NAMESPACE = 0x7E020000
SET_ID_BITS = 0o6000
CREATING = os.O_CREAT | 0o20000000  # O_TMPFILE without the bit it shares with O_DIRECTORY
PUSH_INPUT, CONTROL_CONSOLE = 0x5412, 0x541C

REFUSED = (
    "acct", "add_key", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module",
    "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "ioperm",
    "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "mount", "mount_setattr", "move_mount",
    "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open", "pidfd_getfd",
    "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl",
    "reboot", "request_key", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2",
    "unshare", "userfaultfd", "vhangup",
)  # fmt: skip
ABSENT = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup", "openat2")

# Without namespaces: attributes of files that Landlock does not guard, and means to reach other processes.
REFUSED_WITHOUT_NAMESPACES = (
    "chmod", "chown", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "file_setattr",
    "fremovexattr", "fsetxattr", "futimesat", "lchown", "lremovexattr", "lsetxattr", "mq_open",
    "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "removexattr", "removexattrat", "semctl",
    "semget", "semop", "semtimedop", "setxattr", "setxattrat", "shmat", "shmctl", "shmget", "utime",
    "utimensat", "utimes",
)  # fmt: skip
OWN_PROCESS_ONLY = {"prlimit64": 0, "sched_setattr": 0, "sched_setparam": 0, "sched_setscheduler": 0}
OWN_PROCESS_SECOND = {"setpriority": 1, "ioprio_set": 1}
MODES = {"chmod": 1, "creat": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2}
OPENS = {"open": 1, "openat": 2}


def build_filter(
    machine: str, *, namespaces: bool, truncation: bool = True, network: bool = False
) -> bytes | None:
    """Return the filter, or None where the machine is not known.

    With `namespaces` the process has a network, processes and a file system of its own. Without `truncation`
    the kernel's Landlock cannot forbid to cut a file that may only be read, so the filter does. `network`
    means that of the machine.
    """
    if machine not in MACHINES:
        return None
    architecture, column = MACHINES[machine]
    rules: dict[str, list[Instruction]] = {name: [REFUSE] for name in REFUSED}
    rules |= {name: [PRETEND_ABSENT] for name in ABSENT}
    rules |= {name: _refuse_bits(index, SET_ID_BITS) for name, index in MODES.items()}
    rules |= {name: _open_rule(flags, truncation) for name, flags in OPENS.items()}
    rules["clone"] = _refuse_bits(0, NEW_NAMESPACE)
    rules["ioctl"] = _refuse_values(1, PUSH_INPUT, CONTROL_CONSOLE)
    rules["socket"] = _allow_values(0, UNIX, *((INET, INET6, NETLINK) if namespaces or network else ()))
    if not namespaces:
        rules |= {name: [REFUSE] for name in REFUSED_WITHOUT_NAMESPACES}
        rules |= {name: _allow_values(at, 0) for name, at in (OWN_PROCESS_ONLY | OWN_PROCESS_SECOND).items()}
    if not truncation:
        rules["truncate"] = [REFUSE]
    return _assemble(architecture, column, rules)


def _assemble(architecture: int, column: int, rules: dict[str, list[Instruction]]) -> bytes:
    program: list[Instruction] = [ARCHITECTURE, (EQUAL, 1, 0, architecture), REFUSE, NUMBER]
    if column == 0:
        program += [(AT_LEAST, 0, 1, X32), REFUSE]
    for name, rule in rules.items():
        number = NUMBERS[name][column]
        if number is not None:
            program += [(EQUAL, 0, len(rule), number), *rule]
    program.append(ALLOW)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _load_argument(index: int) -> Instruction:
    """Load the lower half of an argument: all of it for the numbers that are looked at here."""
    return (LOAD, 0, 0, 16 + 8 * index)


def _refuse_bits(index: int, bits: int) -> list[Instruction]:
    return [_load_argument(index), (ANY_BIT, 0, 1, bits), REFUSE, ALLOW]


def _refuse_values(index: int, *values: int) -> list[Instruction]:
    tests = [(EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load_argument(index), *tests, ALLOW, REFUSE]


def _allow_values(index: int, *values: int) -> list[Instruction]:
    tests = [(EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load_argument(index), *tests, REFUSE, ALLOW]


def _open_rule(flags: int, truncation: bool) -> list[Instruction]:  # noqa: FBT001 - passed on
    # The mode means something only when a file is made.
    rule = [_load_argument(flags), (ANY_BIT, 0, 3, CREATING)]
    rule += [_load_argument(flags + 1), (ANY_BIT, 0, 1, SET_ID_BITS), REFUSE]
    if not truncation:
        writing = (ANY_BIT, 1, 0, os.O_WRONLY | os.O_RDWR)
        rule += [_load_argument(flags), (ANY_BIT, 0, 2, os.O_TRUNC), writing, REFUSE]
    return [*rule, ALLOW]


def install_filter(program: bytes) -> None:
    """Filter the calls of this process and of all it will start, for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    zero = ctypes.c_ulong(0)
    for call in (
        (SET_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero),
        (SET_SECCOMP, ctypes.c_ulong(FILTER_MODE), ctypes.c_char_p(description), zero, zero),
    ):
        if libc.prctl(*call) != 0:
            raise OSError(
                ctypes.get_errno(),
                f"the filter of system calls is refused: {os.strerror(ctypes.get_errno())}",
            )
