"""Filter system calls that an image never needs, or that the rest of its confinement does not cover.

One table serves the sandbox of an image and, with stricter rules, its previews. A filter is a program of the
kernel's BPF machine, written here instruction by instruction. Refused calls fail with EPERM; those whose
arguments are behind a pointer, which a filter cannot read, fail with ENOSYS, so that programs take the older
call.
"""

from __future__ import annotations

import os
import struct

Instruction = tuple[int, int, int, int]

LOAD, EQUAL, AT_LEAST, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW = (ANSWER, 0, 0, 0x7FFF0000)
REFUSE = (ANSWER, 0, 0, 0x00050001)
PRETEND_ABSENT = (ANSWER, 0, 0, 0x00050026)
PRETEND_DONE = (ANSWER, 0, 0, 0x00050000)
NUMBER, ARCHITECTURE = (LOAD, 0, 0, 0), (LOAD, 0, 0, 4)
X32 = 0x40000000

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
NEW_NAMESPACE = 0x7E020000
SET_ID_BITS = 0o6000
CREATING = os.O_CREAT | 0o20000000  # O_TMPFILE without the bit it shares with O_DIRECTORY
PUSH_INPUT, CONTROL_CONSOLE = 0x5412, 0x541C
THREAD = 0x00010000
# Queries about a descriptor that change no file: whether it is a terminal and its size (TCGETS, TCGETS2,
# TIOCGWINSZ), how much can be read (FIONREAD), own flags (FIONBIO, FIONCLEX, FIOCLEX).
HARMLESS_CONTROLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# F_SETOWN and F_SETOWN_EX send signals to other processes. F_SETLEASE blocks any process that opens the file.
SET_OWNER, SET_OWNER_EXTENDED, SET_LEASE = 8, 15, 1024
# Levels of setsockopt: a socket that joins a multicast group sends packets before it is connected.
LEVEL_IP, LEVEL_IPV6 = 0, 41

REFUSED = (
    "acct", "add_key", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module",
    "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "ioperm",
    "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "mount", "mount_setattr", "move_mount",
    "msgget", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open", "pidfd_getfd",
    "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl",
    "reboot", "request_key", "semget", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff",
    "swapon", "syslog", "umount2", "unshare", "userfaultfd", "vhangup", "vmsplice",
)  # fmt: skip
# Memory without an owning process is invisible to a watch: queues and semaphores of System V, pages held by a
# pipe (all refused above), files in memory (below), and segments of System V. Of these only small ones can be
# created, which databases lock with.
ABSENT = (
    "clone3", "io_uring_enter", "io_uring_register", "io_uring_setup", "memfd_create", "memfd_secret",
    "openat2",
)  # fmt: skip
LARGEST_SEGMENT = 4096
# An option of prctl(2). The process could then not be inspected, nor its memory be counted.
SET_DUMPABLE = 4

# Without namespaces: file attributes that Landlock does not guard, and ways to reach other processes.
REFUSED_WITHOUT_NAMESPACES = (
    "chmod", "chown", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "file_setattr",
    "fremovexattr", "fsetxattr", "futimesat", "lchown", "lremovexattr", "lsetxattr", "mq_open",
    "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "removexattr", "removexattrat", "semctl",
    "semget", "semop", "semtimedop", "setxattr", "setxattrat", "shmat", "shmctl", "shmget", "utime",
    "utimensat", "utimes",
)  # fmt: skip
# In addition, for a preview: other processes, other ends of sockets, and queues.
REFUSED_IN_PREVIEW = (
    *REFUSED_WITHOUT_NAMESPACES,
    "bind", "connect", "execve", "execveat", "fork", "listen", "mq_notify", "mq_timedreceive", "mq_timedsend",
    "open_tree_attr", "pidfd_send_signal", "process_mrelease", "quotactl_fd", "rt_sigqueueinfo",
    "rt_tgsigqueueinfo", "sendmmsg", "sendmsg", "tkill", "vfork",
)  # fmt: skip
OWN_PROCESS_ONLY = (
    "migrate_pages", "move_pages", "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler",
)  # fmt: skip
# The first argument gives the meaning of the second. This value means a process, others a group or a user.
OWN_PRIORITY_ONLY = {"setpriority": 0, "ioprio_set": 1}
MODES = {"chmod": 1, "creat": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2}
OPENS = {"open": 1, "openat": 2}


def build_filter(
    machine: str, *, namespaces: bool, truncation: bool = True, network: bool = False
) -> bytes | None:
    """Return the filter, or None for an unknown machine.

    With `namespaces` the process has its own network, processes and file system. Without `truncation` the
    kernel's Landlock cannot forbid truncating a read-only file, so the filter does. `network` means the
    network of the machine.
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
    rules["shmget"] = _refuse_above(1, LARGEST_SEGMENT)
    rules["prctl"] = [_load_argument(0), (EQUAL, 0, 1, SET_DUMPABLE), PRETEND_DONE, ALLOW]
    # Without namespaces every unix socket of the host has a reachable path, and Landlock has no rule about
    # connecting to it. Pairs of sockets are another call.
    families = (*((UNIX,) if namespaces else ()), *((INET, INET6, NETLINK) if namespaces or network else ()))
    rules["socket"] = _allow_values(0, *families)
    if not namespaces:
        rules |= {name: [REFUSE] for name in REFUSED_WITHOUT_NAMESPACES}
        # A process that leaves the session would outlive a killed host: the session is used to find and end
        # all of them. Programs that start others in a new session go on, since for them the call succeeds.
        rules["setsid"] = [PRETEND_DONE]
        rules |= _own_process_only(0)
    if not truncation:
        rules["truncate"] = [REFUSE]
    return _assemble(architecture, column, rules)


def build_preview_filter(machine: str, process: int, *, truncation: bool = True) -> bytes | None:
    """Return the filter for a preview whose own pid is `process`, or None for an unknown machine.

    Threads, signals to itself and reading still work. Landlock blocks changes by path: opening for writing,
    creating, renaming and removing. The filter is complete, since an image may run without a sandbox.
    """
    if machine not in MACHINES:
        return None
    architecture, column = MACHINES[machine]
    rules: dict[str, list[Instruction]] = {name: [REFUSE] for name in (*REFUSED, *REFUSED_IN_PREVIEW)}
    rules |= {name: [PRETEND_ABSENT] for name in ABSENT}
    rules |= _own_process_only(0, process)
    rules |= {name: _allow_values(0, process) for name in ("kill", "tgkill")}
    tests = [(ANY_BIT, 1, 0, NEW_NAMESPACE), (ANY_BIT, 1, 0, THREAD)]
    rules["clone"] = [_load_argument(0), *tests, REFUSE, ALLOW]
    rules["ioctl"] = _allow_values(1, *HARMLESS_CONTROLS)
    rules["fcntl"] = _refuse_values(1, SET_OWNER, SET_OWNER_EXTENDED, SET_LEASE)
    # A socket can be created, so that its address is known when the connection is refused.
    rules["socket"] = _allow_values(0, UNIX, INET, INET6)
    rules["setsockopt"] = _refuse_values(1, LEVEL_IP, LEVEL_IPV6)
    # Without an address length the data goes to the other end, which is this process.
    rules["sendto"] = _allow_values(5, 0)
    if not truncation:
        rules |= {name: _open_rule(flags, truncation) for name, flags in OPENS.items()}
        rules["truncate"] = [REFUSE]
    return _assemble(architecture, column, rules)


def _own_process_only(*processes: int) -> dict[str, list[Instruction]]:
    rules = {name: _allow_values(0, *processes) for name in OWN_PROCESS_ONLY}
    for name, word in OWN_PRIORITY_ONLY.items():
        whose = _allow_values(1, *processes)
        rules[name] = [_load_argument(0), (EQUAL, 1, 0, word), REFUSE, *whose]
    return rules


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
    """Load the lower half of an argument. The numbers that are checked here fit into it."""
    return (LOAD, 0, 0, 16 + 8 * index)


def _refuse_bits(index: int, bits: int) -> list[Instruction]:
    return [_load_argument(index), (ANY_BIT, 0, 1, bits), REFUSE, ALLOW]


def _refuse_above(index: int, most: int) -> list[Instruction]:
    """Refuse a 64-bit number above a 32-bit one."""
    upper = (LOAD, 0, 0, 16 + 8 * index + 4)
    return [upper, (EQUAL, 0, 2, 0), _load_argument(index), (AT_LEAST, 0, 1, most + 1), REFUSE, ALLOW]


def _refuse_values(index: int, *values: int) -> list[Instruction]:
    tests = [(EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load_argument(index), *tests, ALLOW, REFUSE]


def _allow_values(index: int, *values: int) -> list[Instruction]:
    tests = [(EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load_argument(index), *tests, REFUSE, ALLOW]


def _open_rule(flags: int, truncation: bool) -> list[Instruction]:  # noqa: FBT001 - passed on
    # The mode matters only when a file is created.
    rule = [_load_argument(flags), (ANY_BIT, 0, 3, CREATING)]
    rule += [_load_argument(flags + 1), (ANY_BIT, 0, 1, SET_ID_BITS), REFUSE]
    if not truncation:
        writing = (ANY_BIT, 1, 0, os.O_WRONLY | os.O_RDWR)
        rule += [_load_argument(flags), (ANY_BIT, 0, 2, os.O_TRUNC), writing, REFUSE]
    return [*rule, ALLOW]


# Name of the machine -> its number in a filter, and the column below.
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Numbers on x86-64 and on arm64, None where a machine does not have the call.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bind": (49, 200),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "creat": (85, None),
    "delete_module": (176, 106),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fork": (57, None),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "ftruncate": (77, 46),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, None),
    "link": (86, None),
    "linkat": (265, 37),
    "listen": (50, 201),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_notify": (244, 184),
    "mq_open": (240, 180),
    "mq_timedreceive": (243, 183),
    "mq_timedsend": (242, 182),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "request_key": (249, 218),
    "rmdir": (84, None),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "setsockopt": (54, 208),
    "setsid": (112, 157),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vfork": (58, None),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
