"""Many clients at once on several images, with questions in between and trouble all around.

`GRAMERCY_LOAD_SECONDS=60` makes it a full minute; the figures are printed with `-s`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pytest

from tests.mcp.conversations import LEGACY, MODERN, HttpConversation
from tests.support import children_of, memory, port_of, start_server

SECONDS = float(os.environ.get("GRAMERCY_LOAD_SECONDS", "8"))
CLIENTS = 64
IMAGES = {
    "lisp-1": "sbcl",
    "lisp-2": "sbcl",
    "lisp-3": "sbcl",
    "snake-1": "python",
    "snake-2": "python",
    "killed": "python",
    "flooded": "python",
    "hanging": "sbcl",
}
BEGIN = {"sbcl": "(defvar *log* nil)", "python": "log = []"}
# Every value says for whom it is, and which one it is for its image.
COUNT = {
    "sbcl": '(progn (push t *log*) (format nil "{}:{}:~d" (length *log*)))',
    "python": "globals().setdefault('log', []).append(1); '{}:{}:%d' % len(log)",
}
MARK = "import ctypes; ctypes.CDLL(None).prctl(15, b'victim', 0, 0, 0)"
FLOOD = "for _ in range(30_000): print('x' * 1000)"
VALUE = re.compile(r"""=> ["'](\d+):(\d+):(\d+)["']""")
YES = {"action": "accept", "content": {"decision": "approve"}}
NO = {"action": "decline"}
QUESTION_EVERY = 5
TIMEOUT = 20
# A call that has to wait for one that hangs, and is not called off, waits for its whole timeout.
LONGEST_WAIT = 0.75 * TIMEOUT
MOST_GROWTH = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """One call as its client saw it; `place` is what the image counted."""

    image: str
    client: int
    number: int
    place: int
    begun: float
    ended: float


class Caller:
    """A client with one image and one file, which checks that all it hears is meant for it."""

    def __init__(self, load, client):
        self.load, self.client, self.number = load, client, 0
        self.image = tuple(IMAGES)[client % len(IMAGES)]
        era = LEGACY if client // len(IMAGES) % 2 else MODERN
        self.talk = HttpConversation(load.port, era, reply=self.reply)

    @property
    def text(self):
        return f"client {self.client} number {self.number}."

    @property
    def is_agreed(self):
        return self.number % (3 * QUESTION_EVERY) != 0

    def reply(self, params):
        """Decide about a question, which must be about the file and the call of this client."""
        assert f"client-{self.client}.txt" in params["message"]
        assert self.text in params["message"]
        return YES if self.is_agreed else NO

    async def work(self):
        await self.talk.greet()
        while perf_counter() < self.load.end:
            self.number += 1
            begun = perf_counter()
            try:
                await (self.write() if self.number % QUESTION_EVERY == 0 else self.count(begun))
            except (AssertionError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self.load.faults.append(f"{self.image} {self.text} {error!r}"[:500])
                return
        self.talk.close()

    async def count(self, begun):
        code = COUNT[IMAGES[self.image]].format(self.client, self.number)
        result = await self.talk.call("eval_form", form=code, image=self.image)
        text = result["content"][0]["text"]
        found = VALUE.match(text)
        # After a death the first answers also say what has come back. On a machine that is busy with other
        # things a copy may come too late, and then a later answer says that.
        if found is not None and self.image != "killed":
            more = text[found.end() :].strip()
            assert not more or more.startswith("No state was kept after"), text
        if found is None and self.image == "killed":
            self.load.losses.append(text)
            return
        assert found is not None, text
        client, number, place = map(int, found.groups())
        assert (client, number) == (self.client, self.number), text
        self.load.samples.append(Sample(self.image, client, number, place, begun, perf_counter()))

    async def write(self):
        begun = perf_counter()
        result = await self.talk.call("write_file", path=f"client-{self.client}.txt", content=self.text)
        text = result["content"][0]["text"]
        if self.is_agreed:
            assert text == f"Wrote {len(self.text)} bytes to client-{self.client}.txt"
            assert (self.load.project / f"client-{self.client}.txt").read_text() == self.text
        else:
            assert "the client declined after" in text
        self.load.approvals.append(perf_counter() - begun)


class Load:
    """All clients, all troublemakers, and what became of them."""

    def __init__(self, port, server, project):
        self.port, self.server, self.project = port, server, project
        self.end = 0.0
        self.samples, self.approvals, self.glances = [], [], []
        self.said, self.is_alive = "", False
        self.faults, self.losses = [], []
        self.kills = self.floods = self.hangs = 0

    async def run(self):
        setter = HttpConversation(self.port, MODERN)
        for image, language in IMAGES.items():
            assert not (await setter.call("eval_form", form=BEGIN[language], image=image))["isError"]
        setter.close()
        self.before = memory(self.server.process.pid)
        self.end = perf_counter() + SECONDS
        trouble = [asyncio.create_task(one()) for one in (self.kill, self.flood, self.hang, self.glance)]
        await asyncio.gather(*(Caller(self, client).work() for client in range(CLIENTS)))
        await asyncio.gather(*trouble)
        self.after = memory(self.server.process.pid)
        await asyncio.sleep(0.01)

    async def glance(self):
        """See how long somebody waits who wants nothing from any image."""
        talk = HttpConversation(self.port, MODERN)
        while perf_counter() < self.end:
            begun = perf_counter()
            await talk.ask("tools/list")
            self.glances.append(perf_counter() - begun)
            await asyncio.sleep(0.02)
        talk.close()

    async def kill(self):
        """Kill an image from outside, with all its processes that can be told from others."""
        talk = HttpConversation(self.port, MODERN)
        while perf_counter() < self.end - 1:
            await asyncio.sleep(1)
            assert not (await talk.call("eval_form", form=MARK, image="killed"))["isError"]
            self.kills += kill_marked(self.server.process.pid)
        talk.close()

    async def flood(self):
        """Have an image print more than anybody wants to read."""
        talk = HttpConversation(self.port, LEGACY)
        await talk.greet()
        while perf_counter() < self.end - 2:
            await asyncio.sleep(1)
            result = await talk.call("eval_form", form=FLOOD, image="flooded")
            assert len(result["content"][0]["text"]) < 110_000
            self.floods += 1
        talk.close()

    async def hang(self):
        """Have an image hang, and call that off: by a message in the older era, by leaving in the newer."""
        while perf_counter() < self.end - 2:
            await asyncio.sleep(0.7)
            era = (LEGACY, MODERN)[self.hangs % 2]
            talk = HttpConversation(self.port, era)
            await talk.greet()
            given = {"name": "eval_form", "arguments": {"form": "(loop)", "image": "hanging"}}
            waiting = asyncio.create_task(talk.post(talk.message("tools/call", given, 77)))
            await asyncio.sleep(0.3)
            if era == LEGACY:
                await talk.tell("notifications/cancelled", requestId=77)
                assert [message async for message in (await waiting).messages()] == []
            else:
                waiting.cancel()
                await asyncio.wait([waiting])
            talk.close()
            self.hangs += 1


def kill_marked(server):
    """Kill all processes of a server that bear the mark; tell whether there was one."""
    killed = False
    for pid in children_of(server):
        with suppress(OSError):  # it may have ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text() == "victim\n":
                os.kill(pid, signal.SIGKILL)
                killed = True
    return killed


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Return what became of everybody."""
    project = tmp_path_factory.mktemp("project")
    images = [f"--image={name}={language}" for name, language in IMAGES.items()]
    server = start_server(
        "--http",
        "127.0.0.1:0",
        "--no-auth",
        *images,
        "--timeout",
        str(TIMEOUT),
        "--toolset",
        "core",
        cwd=project,
    )
    try:
        found = Load(port_of(server), server, project)
        asyncio.run(found.run())
        found.said = server.errors()
        found.is_alive = server.process.poll() is None
    finally:
        server.close()
    report(found)
    return found


def quantile(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def report(load):
    """Print the figures, for whoever wants them."""
    for title, times in (
        ("evaluations", [one.ended - one.begun for one in load.samples]),
        ("approvals", load.approvals),
        ("listings", load.glances),
    ):
        shown = " ".join(f"p{share} {quantile(times, share / 100) * 1000:.0f} ms" for share in (50, 95, 99))
        sys.stdout.write(f"\n{len(times)} {title} in {SECONDS:g} s: {shown}, max {max(times) * 1000:.0f} ms")
    sys.stdout.write(
        f"\n{len(load.faults)} faults, {len(load.losses)} losses with {load.kills} kills, "
        f"{load.floods} floods, {load.hangs} hangs called off; "
        f"memory {load.before:.0f} MB before, {load.after:.0f} MB after\n"
    )


@pytest.mark.undisturbed
def test_every_reply_arrives_and_is_for_its_own_caller(load):
    """MCP server, checklist 1 and 4: both eras, evaluations and approvals; each client checked its own."""
    assert load.faults == []
    assert len({sample.client for sample in load.samples}) == CLIENTS
    assert len(load.approvals) > CLIENTS


@pytest.mark.undisturbed
def test_an_image_does_what_it_is_told_once_and_in_order(load):
    """Images are one call at a time: nothing is lost or done twice, and what was answered came before."""
    for image in set(IMAGES) - {"killed"}:
        done = sorted((s for s in load.samples if s.image == image), key=lambda sample: sample.place)
        assert [sample.place for sample in done] == list(range(1, len(done) + 1))
        last_begun = 0.0
        for sample in done:
            assert sample.ended > last_begun, "it was answered before the one that was done before had begun"
            last_begun = max(last_begun, sample.begun)


@pytest.mark.undisturbed
def test_trouble_with_one_image_is_no_trouble_with_another(load):
    """MCP server, checklist 9: one image is killed, one floods, one hangs and is called off."""
    assert min(load.kills, load.floods, load.hangs) >= 1
    calm = [one.ended - one.begun for one in load.samples if one.image.startswith(("lisp", "snake"))]
    assert max(*calm, *load.glances) < LONGEST_WAIT


@pytest.mark.undisturbed
def test_an_image_that_is_killed_says_so_and_comes_back(load):
    """A death is told to whoever waits, and to nobody else."""
    assert len(load.losses) <= load.kills
    assert all("[ERROR]" in text or "image" in text for text in load.losses)
    ends = [sample.ended for sample in load.samples if sample.image == "killed"]
    assert max(ends) > load.end - SECONDS / 2


@pytest.mark.undisturbed
def test_the_server_is_none_the_worse_for_it(load):
    """No unbounded memory, no traceback."""
    assert load.is_alive
    assert "Traceback" not in load.said
    assert load.after - load.before < MOST_GROWTH


@pytest.mark.slow
def test_large_evaluations_are_not_kept_for_ever(tmp_path):
    """No unbounded memory: what was evaluated long ago is not in the way."""
    server = start_server("--image", "python", cwd=tmp_path)
    try:
        server.initialize()
        for number in range(40):
            assert not server.call("evaluate-python", code=f"x = len('{number} {'a' * 5_000_000}')")[
                "isError"
            ]
        assert memory(server.process.pid) < 42 + 2 * MOST_GROWTH
    finally:
        server.close()
