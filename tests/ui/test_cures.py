"""Each newer attempt of the doctor succeeds where its cure is taken out, and is held where it is in.

A suite that cannot fail proves nothing. The table says for every attempt what holds it and takes just that
out of this process; the sandbox stays, but where it is the cure itself.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import resource
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gramercy.errors import FileStoreError
from gramercy.images import bounds, spawning
from gramercy.images.bounds import Bounds, Usage
from gramercy.images.census import Entries
from gramercy.images.descriptors import Held
from gramercy.images.files import holding, listener, resolving, restoring
from gramercy.images.files.changes import Collector
from gramercy.images.files.doubts import Doubts
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not
from gramercy.tools.registry import Registry
from gramercy.toolsets.paths import RealPlace
from gramercy.ui.doctor import scenes
from gramercy.ui.doctor.attempts import Where, groups
from gramercy.ui.doctor.escapes import ATTEMPT_SECONDS, Arena, run_escapes
from gramercy.workbench.sources import image_registry

if TYPE_CHECKING:
    from collections.abc import Callable

# As many as the attempt opens, with some of the image's own.
DESCRIPTORS = 12_000
# RENAME_WHITEOUT
WHITEOUT = 4

# How cures are taken out.


def take_out_nothing(_patch):
    """Leave all as it is: the sandbox itself is the cure, and the image starts without one."""


def take_out_declarations(patch):
    def undeclared(*given):
        tools = image_registry(*given).library().values()
        return Registry([dataclasses.replace(tool, paths=None) for tool in tools])

    patch.setattr(scenes, "image_registry", undeclared)


def take_out_names(patch):
    """Let a question not name the real file, by which the person knows it."""
    take_out_declarations(patch)
    patch.setattr(RealPlace, "shown", property(str))


def take_out_moving(patch):
    patch.setattr(Entries, "put_aside", lambda _self, name: name)


def take_out_own(patch):
    """Take it out of the host of that scene, which is a process of its own."""
    lines = "import gramercy.images.census as census", "census.own_places = lambda project: {}"
    patch.setattr(scenes, "_HOST", "\n".join((*lines, scenes._HOST)))


def lift(**fields):
    """Return what lifts some of the bounds of an image."""

    def take_out(patch):
        before = vars(Usage)["bounds"].fget
        lifted = property(lambda self: Bounds(**{**_fields(before(self)), **fields}))
        patch.setattr(Usage, "bounds", lifted)

    return take_out


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def take_out_sockets(patch):
    patch.setattr(bounds, "held", lambda *_: Held())


def take_out_tables(patch):
    patch.setattr(bounds, "table_bytes", lambda _process: 0)


def take_out_watchers(patch):
    patch.setattr(Usage, "may_watch", lambda _self: True)


def take_out_descriptors(patch):
    patch.setattr(spawning, "MOST_DESCRIPTORS", DESCRIPTORS)


def take_out_looks(patch):
    """Look not through the project after a call in which several processes moved names."""
    patch.setattr(Doubts, "_is_moved", lambda *_: False)


def take_out_walk(patch):
    take_out_looks(patch)
    patch.setattr(resolving.Places, "_walked", lambda *_: [])


def shorten_chains(patch):
    take_out_looks(patch)
    patch.setattr(resolving, "MOST_LINKS", 8)


def take_out_links(patch):
    patch.setattr(Collector, "note_links", lambda *_: None)


def take_out_linked_names(patch):
    take_out_links(patch)
    for call, ways in (("link", ((None, 1),)), ("linkat", ((2, 3),))):
        patch.setitem(listener.CALLS, call, ways)


def take_out_exchange(patch):
    patch.setattr(listener, "EXCHANGE", 0)


def take_out_stranded(patch):
    patch.setattr(restoring, "_stranded", lambda _steps: frozenset())


def take_out_removed_names(patch):
    place = resolving._place

    def believed(link):
        try:
            return place(link)
        except FileStoreError:
            return str(Path(link).readlink()).removesuffix(resolving.DELETED)

    patch.setattr(resolving, "_place", believed)


def take_out_children(patch):
    patch.setattr(holding.Held, "look", lambda *_: None)


def take_out_addresses(patch):
    patch.setattr(listener.Listener, "_bound", lambda *_: [])


class Cure(NamedTuple):
    """What takes out that which holds some attempts, and in which sandbox they are made then."""

    take_out: Callable[[pytest.MonkeyPatch], None]
    confinement: Confinement = Confinement.BUBBLEWRAP
    is_slow: bool = False
    # Why success cannot be shown on this machine; empty where it can.
    lacking: Callable[[], str] = str


def too_few_descriptors():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return f"this process may have {hard} descriptors" if hard < DESCRIPTORS else ""


def no_whiteouts():
    """Say where the file system cannot leave a device in the place of a file; overlayfs cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        (Path(place) / "one").touch()
        names = [os.fsencode(f"{place}/{name}") for name in ("one", "two")]
        if libc.renameat2(-100, names[0], -100, names[1], WHITEOUT) == 0:
            return ""
    return f"no device can be left in the place of a file below /tmp: {os.strerror(ctypes.get_errno())}"


SANDBOX = Cure(take_out_nothing, Confinement.NONE)
PATHS = Cure(take_out_declarations)
NAMES = Cure(take_out_names)
SENTRY = Cure(take_out_moving)
WALK = Cure(take_out_walk)
LINKS = Cure(take_out_links)
CURES = {
    "deputies": {
        "link": NAMES,
        "link-new": NAMES,
        "directory": PATHS,
        "always": PATHS,
        "dots": NAMES,
        "swap-new": NAMES,
        "swap-equal": PATHS,
        "swap-directory": PATHS,
        "mode": PATHS,
        "mode-link": PATHS,
        "wide-rule": PATHS,
        "mode-instructions": PATHS,
        "mode-workflow": PATHS,
        "link-instructions": PATHS,
        "wide-rule-workflow": PATHS,
        "absolute": PATHS,
        "linked-read": PATHS,
        "search": PATHS,
    },
    "later": {
        "nested-environment": SANDBOX,
        "linked-environment": SANDBOX,
        "named-environment": SANDBOX,
        "tox": SANDBOX,
        "nested-agent": SANDBOX,
        "nested-editor": SANDBOX,
        "nested-git": SANDBOX,
        "move-above": SENTRY,
        "make-nested-agent": SENTRY,
        "make-nested-editor": SENTRY,
        "make-nested-environment": SENTRY,
        "make-nested-git": SENTRY,
        "make-agent-file": SENTRY,
        "make-editor-file": SENTRY,
        "make-rc-file": SENTRY,
        "make-hooks-file": SENTRY,
        "make-start-file": SENTRY,
        "instructions": SANDBOX,
        "nested-instructions": SANDBOX,
        "workflow": SANDBOX,
        "make-workflow": SANDBOX,
        "make-instructions": SENTRY,
        "make-service-file": SENTRY,
        "left-process": Cure(take_out_moving, is_slow=True),
        "own-source": Cure(take_out_own, is_slow=True),
    },
    "memory": {
        "heaps": Cure(lift(memory_bytes=None), is_slow=True),
        "segment": SANDBOX,
        "message-queue": SANDBOX,
        "memfd": SANDBOX,
        "sockets": Cure(take_out_sockets, is_slow=True),
        "tables": Cure(take_out_tables, is_slow=True),
        "inotify": Cure(take_out_watchers),
        "descriptors": Cure(take_out_descriptors, lacking=too_few_descriptors),
        "disk": Cure(lift(written_bytes=None), is_slow=True),
    },
    "time": {
        "magic-link": WALK,
        "thread-link": WALK,
        "root-link": WALK,
        "other-process": WALK,
        "descriptor-link": WALK,
        "chain": Cure(shorten_chains),
        "hard-link": Cure(take_out_linked_names),
        "hard-link-gone": LINKS,
        "hard-link-before": LINKS,
        "hard-link-later": LINKS,
        "exchange": Cure(take_out_exchange),
        "whiteout": Cure(take_out_stranded, lacking=no_whiteouts),
        "removed-name": Cure(take_out_removed_names),
        "child": Cure(take_out_children),
        "far": WALK,
        "socket": Cure(take_out_addresses),
    },
}
TABLE = {f"{group}.{name}": cure for group, cures in CURES.items() for name, cure in cures.items()}
ATTEMPTS = {each.id: each for group in CURES for each in groups()[group].attempt}


def evidence(attempt, language, cure=None):
    """Make an attempt as the doctor does; return the evidence that it succeeded, None where it was held."""
    with pytest.MonkeyPatch.context() as patch:
        confinement = Confinement.BUBBLEWRAP
        if cure is not None:
            cure.take_out(patch)
            confinement = cure.confinement
        if attempt.stage in scenes.SCENES:
            with scenes.Scene(language, confinement, attempt) as scene:
                return scenes.SCENES[attempt.stage](scene)
        result = in_one_image(language, confinement, attempt.arena, cure)[attempt.id]
    assert result.escaped or result.tried, result.detail
    return result.detail if result.escaped else None


@cache
def in_one_image(language, confinement, where, cure):
    """Make all attempts that need no scene one after the other; those that a cure holds, or all."""
    chosen = [
        each
        for each in ATTEMPTS.values()
        if not each.stage and each.arena is where and cure in (None, TABLE[each.id])
    ]
    with Arena(bare=where is Where.BARE) as arena:
        settings = ImageSettings(language, arena.project, confinement)
        image = LiveImage("test", settings.program, timeout=ATTEMPT_SECONDS)
        try:
            results = list(run_escapes(image, arena, confinement, chosen=chosen))
        finally:
            image.close()
    return {result.attempt.id: result for result in results}


def cases():
    """Give every attempt in both languages; in Lisp, and what fills memory, with the slow tests."""
    for name, cure in TABLE.items():
        for language in ("python", "sbcl"):
            marks = [pytest.mark.slow] if cure.is_slow or language == "sbcl" else []
            yield pytest.param(name, language, marks=marks, id=f"{name}-{language}")


def needs(language):
    """Skip where an attempt cannot be made at all."""
    lacking = why_not(Confinement.BUBBLEWRAP)
    if lacking is not None:
        pytest.skip(lacking)
    if language == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed")


@pytest.mark.contract("trust.attack.cures", "trust.paths.deputies")
@pytest.mark.parametrize(("name", "language"), list(cases()))
@pytest.mark.slow
def test_an_attempt_succeeds_without_its_cure_and_is_held_with_it(name, language):
    """Trust: what is held is held by the cure that the table names."""
    needs(language)
    attempt, cure = ATTEMPTS[name], TABLE[name]
    assert evidence(attempt, language) is None
    lacking = cure.lacking()
    if lacking:
        pytest.skip(lacking)
    assert evidence(attempt, language, cure) is not None


@pytest.mark.contract("trust.attack.cures")
def test_every_attempt_of_these_groups_stands_in_the_table():
    """An attempt that nothing has shown to succeed proves nothing."""
    assert set(TABLE) == set(ATTEMPTS)


@pytest.mark.parametrize(("name", "kind"), [("memory.segment", "shm"), ("memory.message-queue", "msg")])
def test_an_attempt_that_succeeds_leaves_no_memory_of_the_kernel_behind(name, kind):
    """Segments and queues stay on the machine after the last process that used them."""
    needs("python")
    (number,) = re.findall(r"the call succeeded \((\d+)\)", evidence(ATTEMPTS[name], "python", SANDBOX))
    lines = Path("/proc/sysvipc", kind).read_text(encoding="ascii").splitlines()[1:]
    assert number not in [line.split()[1] for line in lines]
