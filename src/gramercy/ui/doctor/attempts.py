"""Escape attempts as data: code for both languages that tries to leave an image, and what must hold.

The tables are in `battery/*.toml`, one for each group. An attempt is an expression in each language, or one
system call that is written once for both. It returns evidence of success, or nothing, or fails. The arena
fills in words with a $, and also looks for evidence from outside.
"""

from __future__ import annotations

import json
import tomllib
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gramercy.images.confine.seccomp import NUMBERS
from gramercy.images.python.landlock import SCOPES_SINCE, landlock_version
from gramercy.images.sandbox import Confinement

BATTERY = Path(__file__).with_name("battery")
# The order in which the groups are tried.
ORDER = (
    "files",
    "network",
    "processes",
    "kernel",
    "project",
    "deputies",
    "later",
    "time",
    "previews",
    "keeper",
    "bounds",
    "memory",
)


class Freely(StrEnum):
    """Whether an attempt succeeds when nothing confines the image."""

    YES = "yes"
    AS_ROOT = "as root"
    DEPENDS = "depends"  # on the kernel, or an image holds itself back
    NEVER = "never"  # not tried there: it would harm the machine


class Where(StrEnum):
    """From where an attempt is made."""

    ANYWHERE = "anywhere"  # in a live process, and again in a preview
    LIVE = "live"
    PREVIEW = "preview"
    BARE = "bare"  # in a project that has none of the files that are guarded


class Deputy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool that should reach a forbidden file of the project: `target`."""

    tool: str
    target: str
    arguments: dict[str, Any]
    rules: list[dict[str, Any]] = msgspec.field(default_factory=list)
    mode: str = "ask"


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way out.

    `open` says where the attempt is known to succeed, and why: by the name of a sandbox, `landlock-5` for a
    kernel without scopes, or `preview`. `before` is evaluated in the live process before a preview, and
    `after` after it, to see the effect of the preview on the process. `stage` names a scene, where one
    evaluation is not enough. With a `deputy` a tool is called after the attempt, and `after` is evaluated
    while a person is asked about that call. `awaits` names the part of the program that is not fixed yet.
    """

    id: str
    name: str
    python: str = ""
    lisp: str = ""
    call: list[Any] = msgspec.field(default_factory=list)
    before: dict[str, str] = msgspec.field(default_factory=dict)
    after: dict[str, str] = msgspec.field(default_factory=dict)
    freely: Freely = Freely.DEPENDS
    arena: Where = Where.ANYWHERE
    stage: str = ""
    open: dict[str, str] = msgspec.field(default_factory=dict)
    awaits: str = ""
    deputy: Deputy | None = None
    group: str = ""

    @property
    def slug(self) -> str:
        """Its id in a form for file names."""
        return self.id.replace(".", "-")

    def form(self, language: str) -> str:
        """Return the expression in a language."""
        if self.call:
            return _lisp_call("sys", self.call) if language == "sbcl" else _python_call("_sys", self.call)
        return self.lisp if language == "sbcl" else self.python

    def why_open(self, confinement: Confinement, *, preview: bool = False) -> str | None:
        """Return why the attempt may succeed there, None where it must be refused."""
        if confinement is Confinement.NONE:
            return "there is no sandbox"
        if preview and "preview" in self.open:
            return self.open["preview"] or None
        if confinement is Confinement.LANDLOCK and landlock_version() < SCOPES_SINCE:
            return self.open.get("landlock-5") or self.open.get("landlock")
        return self.open.get(confinement.value)


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attempts of one kind: what must hold, and against which attacker."""

    title: str
    holds: str
    attacker: str
    attempt: list[Attempt]


@cache
def groups() -> dict[str, Group]:
    """Return the groups by name, in the order in which they are tried."""
    found = {}
    for name in ORDER:
        table = tomllib.loads((BATTERY / f"{name}.toml").read_text(encoding="utf-8"))
        for row in table["attempt"]:
            row.update(id=f"{name}.{row['id']}", group=name)
        found[name] = msgspec.convert(table, Group)
    return found


def attempts() -> tuple[Attempt, ...]:
    """Return all attempts."""
    return tuple(attempt for group in groups().values() for attempt in group.attempt)


def numbers(column: int) -> dict[str, int]:
    """Return the numbers of system calls on a machine. Missing calls get a number that fails as absent."""
    known = {name: pair[column] for name, pair in (FURTHER_NUMBERS | NUMBERS).items()}
    return {f"sys_{name}": ABSENT_NUMBER if number is None else number for name, number in known.items()}


def _python_call(function: str, words: list[Any]) -> str:
    return f"{function}({', '.join([f'$sys_{words[0]}', *map(_python_word, words[1:])])})"


def _python_word(word: Any) -> str:
    if not isinstance(word, list):
        return _word(word, "bytes({})", "{}.encode()")
    if _is_nested(word):
        return _python_call("_num", [word[0][1:], *word[1:]])
    return f"_words({', '.join(map(_python_word, word))})"


def _lisp_call(function: str, words: list[Any]) -> str:
    return f"({' '.join([function, f'$sys_{words[0]}', *map(_lisp_word, words[1:])])})"


def _lisp_word(word: Any) -> str:
    if not isinstance(word, list):
        return _word(word, "(zeros {})", "(octets {})")
    if _is_nested(word):
        return _lisp_call("num", [word[0][1:], *word[1:]])
    return f"(words {' '.join(map(_lisp_word, word))})"


def _is_nested(word: list[Any]) -> bool:
    return isinstance(word[0], str) and word[0].startswith("@")


def _word(word: Any, zeros: str, text: str) -> str:
    """Write a word for both languages.

    It is a number, `#N` for N zero bytes, `=…` for the bytes of a text, a word for a number, or a text that
    is passed with a zero at its end.
    """
    if isinstance(word, int):
        return str(word)
    if word.startswith("#"):
        return zeros.format(word[1:])
    if word.startswith("="):
        return text.format(json.dumps(word[1:]))
    return word if word in NUMERIC else json.dumps(word)


# Words of the arena that stand for numbers.
NUMERIC = frozenset(("$victim", "$keeper", "$key", "$tcp_high", "$tcp_low", "$port"))
# Larger than every system call number: the kernel answers ENOSYS.
ABSENT_NUMBER = 9999
# Numbers on x86-64 and on arm64 of calls that no filter of the sandbox names.
FURTHER_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "capset": (126, 91),
    "connect": (42, 203),
    "fallocate": (285, 47),
    "fcntl": (72, 25),
    "get_robust_list": (274, 100),
    "getppid": (110, 173),
    "inotify_add_watch": (254, 27),
    "kill": (62, 129),
    "linkat": (265, 37),
    "migrate_pages": (256, 238),
    "mkdirat": (258, 34),
    "mmap": (9, 222),
    "move_pages": (279, 239),
    "mprotect": (10, 226),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "read": (0, 63),
    "renameat2": (316, 276),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "socketpair": (53, 199),
    "statx": (332, 291),
    "symlinkat": (266, 36),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "unlinkat": (263, 35),
    "write": (1, 64),
}


def prelude(language: str) -> str:
    """Return the definitions that the attempts use."""
    return (BATTERY / ("prelude.lisp" if language == "sbcl" else "prelude.txt")).read_text(encoding="utf-8")
