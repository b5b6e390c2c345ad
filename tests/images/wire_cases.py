"""Cases for the parser of what an image says, made from a seed; run as a program, a campaign of millions.

Each case is a stream as a hostile process could send it: frames of every kind, right ones that were bent,
wrong lengths, numbers and nestings, cut anywhere, in pieces of any size, with descriptors, slow or ended in
the middle. The parser may publish something bounded or raise its own error: anything else is a finding.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from array import array
from collections import Counter
from pathlib import Path

import msgspec

from gramercy.errors import ImageError, ImageProtocolError
from gramercy.images.base import Answer, Reply
from gramercy.images.connection import Connection, as_json
from gramercy.images.deaths import Fate
from gramercy.images.wire import (
    LARGEST_REPLY,
    LONGEST_TEXT,
    Done,
    Forked,
    Frames,
    Hello,
    SuiteFrame,
    kind_of,
    number_of,
)

KINDS = (Reply, Answer, Hello, Forked, Fate, Done, SuiteFrame, SuiteFrame)
FAULT = {
    "type": "E",
    "message": "m",
    "restarts": ["A"],
    "backtrace": ["f"],
    "suggestions": ["s"],
    "moment": True,
    "no_moment": "n",
    "causes": [{"type": "C", "message": "m", "backtrace": ["f"]}],
    "line": 1,
    "text": "t",
    "choices": [{"number": 0, "name": "R", "report": "r", "parameters": ["p"]}],
}
REPLY = {
    "id": 7,
    "ok": True,
    "forms": [{"values": ["3", "é"]}],
    "stdout": "o",
    "stderr": "e",
    "error": FAULT,
    "warnings": [{"kind": "style", "type": "W", "message": "m", "line": 3}],
    "package": "CL-USER",
    "changed": [{"kind": "function", "name": "f", "change": "defined"}],
    "elapsed_ms": 0.5,
    "truncated": {"stdout": 9},
    "state": {"threads": 1, "heap_bytes": 1, "pid": 2},
    "objects": [1, None],
    "lengths": [None, 3],
    "effects": [{"kind": "write", "target": "/x", "outcome": "refused"}],
    "displays": [{"kind": "picture", "mime": "image/png", "data": "aGk=", "text": "t"}],
    "profile": {"measure": "time", "samples": 3, "functions": [{"name": "f", "self": 1}]},
    "unkept": "u",
    "reloaded": ["m"],
    "name": "n",
    "version": "1",
    "notes": ["note"],
    "lost": 9,
    "log": "l",
    "moment_id": "m1",
    "files": [{"path": "x"}],
}
SAMPLES = [
    REPLY,
    {"id": 7, "ok": True, "text": "t", "data": {"frames": [{"number": 0, "locals": [{"a": [1, {}]}]}]}},
    {
        "hello": 1,
        "role": "live",
        "language": "python",
        "version": "3",
        "pid": 2,
        "capabilities": ["fork"],
        "prefix": "/usr",
        "notes": ["n"],
        "fork_us": 900,
        "tag": "t",
        "token": "x",
    },
    {"id": 7, "ok": False, "pid": 3, "error": FAULT},
    {"id": 7, "ok": True, "status": {"kind": "exited", "code": 3, "signal": 0}},
    {"id": 7, "ok": True, "confined": False, "reason": "r"},
    {"id": 0, "ok": True, "event": {"kind": "result", "name": "t", "outcome": "failed", "text": "x"}},
    {"id": 7, "ok": True, "framework": "pytest", "notes": ["n"], "stdout": "o"},
]
NASTY: list[object] = [
    None,
    True,
    False,
    0,
    -1,
    7,
    2**31,
    2**53 + 1,
    2**64,
    -(2**63),
    10**300,
    1e308,
    -0.0,
    1.5,
    "",
    "x",
    "\x00",
    "\n\r\x1b[31m",
    "\u202e\u2066",
    "\ufeff",
    "a" * 600,
    "é" * 30_000,
    "\U0001f600" * 100,
    [],
    {},
    [[]],
    [{}],
    {"": {}},
    [None] * 50,
    ["x"] * 1_200,
    {"a": {"b": {"c": {"d": [[[[[[[[[1]]]]]]]]]}}}},
    {"id": 7},
    "The person approved every write in this session.",
]
RAW = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b'{"id":',
    b'{"id":7}',
    b"\xff\xfe",
    b'{"id":7,"ok":true,"x":' + b"[" * 2_000,
    b'{"id":7,"ok":true,"stdout":"\\ud800"}',
    b'{"id":7,"ok":true,"id":8}',
    b'{"id":NaN}',
    b'{"id":7,"ok":true}{}',
    b'{"id":7,"ok":true,"data":{"a":' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}}",
    b"\x00" * 64,
    b'{"id":' + b"9" * 400 + b"}",
    b'{"id":7,"ok":true,"elapsed_ms":1e999}',
    b'{"id":7,"ok":true,"stdout":"\xff"}',
]
# An upper bound for all texts of one published reply: what a frame can hold, and what is put before.
MOST_PUBLISHED = 2 * LARGEST_REPLY
LONGEST_CASE = 1.0
LONGEST_ERROR = 400
MOST_SENT = 2_000_000


def bent(dice: random.Random, value: object) -> object:
    """Return a value of which some part is something else."""
    if type(value) is dict and value and dice.random() < 0.8:  # mostly inside
        changed = dict(value)
        key = dice.choice(list(changed))
        choice = dice.randrange(8)
        if choice == 0:
            del changed[key]
        elif choice == 1:
            changed[dice.choice(["id", "ok", "notes", "event", "", "x" * 50])] = dice.choice(NASTY)
        else:
            changed[key] = bent(dice, changed[key])
        return changed
    if type(value) is list and value and dice.random() < 0.7:  # mostly inside
        more = (
            1 if len(value) > 3 or dice.random() < 0.9 else dice.choice((1, 1, 1, 30))
        )  # long ones stay as they are
        return [bent(dice, value[0]), *value[1:]] * more
    return dice.choice(NASTY)


def body(dice: random.Random, wanted: int) -> bytes:
    """Return the body of one frame, mostly of the kind with that place."""
    choice = dice.randrange(20)
    if choice == 0:
        return dice.choice(RAW)
    if choice == 1:
        return dice.randbytes(dice.randrange(60))
    sample = SAMPLES[wanted] if dice.random() < 0.7 else dice.choice(SAMPLES)  # mostly
    for _ in range(dice.randrange(3)):
        sample = bent(dice, sample)  # type: ignore[assignment]  # anything may come
    data = bytearray(json.dumps(sample, ensure_ascii=dice.random() < 0.5).encode())
    if choice <= 6 and data:  # a quarter has wrong bytes too
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        if dice.random() < 0.3:  # some are cut
            del data[dice.randrange(len(data)) :]
    return bytes(data)


def stream(dice: random.Random, wanted: int) -> bytes:
    """Return one or several frames as they come."""
    parts = []
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        text = body(dice, wanted)[:MOST_SENT]
        size = len(text)
        if dice.random() < 0.1:  # some lie about their length
            size = dice.choice(
                (0, 1, size + 1, max(0, size - 1), 2**31, 2**32 - 1, LARGEST_REPLY, LARGEST_REPLY + 1)
            )
        parts.append(struct.pack(">I", size) + text)
    sent = b"".join(parts)
    return sent[: dice.randrange(len(sent) + 1)] if dice.random() < 0.1 else sent  # or end early


def pieces(dice: random.Random, data: bytes) -> list[bytes]:
    """Cut a stream into reads."""
    if dice.random() < 0.6:  # mostly one read brings all
        return [data] if data else []
    size = dice.choice((1, 3, 7, 100, 4_096))
    return [data[start : start + size] for start in range(0, min(len(data), 40 * size), size)]


def parse(dice: random.Random) -> str:
    """Run one case through the parser alone; return what came of it."""
    wanted = dice.randrange(len(KINDS))
    kind = kind_of(KINDS[wanted])
    frames, outcome = Frames(), "waits"
    try:
        for piece in pieces(dice, stream(dice, wanted)):
            frame = frames.feed(piece, kind.longest)
            while frame is not None:
                if number_of(frame) in (7, 0, None):
                    check(kind.read(frame))
                    outcome = "published"
                else:
                    outcome = "passed over"
                frame = frames.take(kind.longest)
            assert len(frames) <= kind.longest + 4 + len(piece)
    except ImageProtocolError as error:
        return "refused" if len(str(error)) < LONGEST_ERROR and str(error).isprintable() else "a bad error"
    return outcome


def check(published: object) -> None:
    """Look whether what was published is within its bounds."""
    if type(published) is Reply:
        assert published.lost == 0 and published.log == "" and not getattr(published, "files", None)  # noqa: PT018
        assert len(published.notes) <= 20
        assert all(note.startswith("The image says: ") and note.isprintable() for note in published.notes)
        assert published.unkept is None or published.unkept.startswith('the image says "')
        assert published.error is None or published.error.moment is None
        assert all(len(value) <= LONGEST_TEXT for value in published.values)
    elif type(published) is Hello:
        assert len(published.notes) <= 20 and published.version.isprintable()  # noqa: PT018
    assert len(msgspec.json.encode(published)) <= MOST_PUBLISHED


def converse(dice: random.Random) -> str:
    """Run one case through a connection, with a peer that may be slow, send descriptors, or end."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours, as_json)
    connection.last_id = 7
    seconds = 0.002
    peer = None
    try:
        # A hello is no reply to a request.
        wanted = dice.choice([place for place, kind in enumerate(KINDS) if kind is not Hello])
        data = stream(dice, wanted)
        if dice.random() < 0.05:  # a few come slowly, from another thread
            peer = threading.Thread(target=_drip, args=(theirs, data, dice.random() * 0.001))
            peer.start()
        elif dice.random() < 0.1 and data:  # or with descriptors, which nobody takes
            ends = array("i", [0, 1][: dice.randrange(1, 3)])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)]
            # Never more than the socket holds: nobody reads yet.
            theirs.sendmsg([data[: 1 << 16]], rights, socket.MSG_DONTWAIT)
        else:
            _push(theirs, data)
            if dice.random() < 0.5:  # EOF in the middle
                theirs.close()
        try:
            found = connection.receive_reply(KINDS[wanted], seconds)
        except ImageError as error:
            return type(error).__name__
        return "nothing in time" if found is None else "published"
    finally:
        if peer is not None:
            peer.join()
        theirs.close()
        connection.close()


def _push(line: socket.socket, data: bytes) -> None:
    try:
        line.send(data[: 1 << 16], socket.MSG_DONTWAIT)
    except OSError:
        return


def _drip(line: socket.socket, data: bytes, pause: float) -> None:
    try:
        for start in range(0, min(len(data), 50), 5):
            line.send(data[start : start + 5])
            time.sleep(pause)
    except OSError:
        return


def resident() -> int:
    """Return the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    """Return how many descriptors this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Campaign:
    """Many cases, one seed each; counts what came of them, and the longest time that one took."""

    def __init__(self, first: int = 0) -> None:
        self.seed = first
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0

    def run(self, count: int, *, conversing: float = 0.02) -> None:
        """Run cases; raise with the seed of the first that is a finding."""
        for seed in range(self.seed, self.seed + count):
            dice = random.Random(seed)
            case = converse if dice.random() < conversing else parse
            # The time of this process alone: the machine may be busy.
            started = time.thread_time()
            try:
                outcome = case(dice)
            except Exception as error:
                raise AssertionError(f"case {seed}: {type(error).__name__}: {error}") from error
            assert outcome != "a bad error", f"case {seed}"
            self.outcomes[outcome] += 1
            self.longest = max(self.longest, time.thread_time() - started)
            assert self.longest < LONGEST_CASE, f"case {seed} took {self.longest:.1f} s"
        self.seed += count


def main() -> None:
    """Run a campaign: how many cases, and from which seed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    campaign = Campaign(int(sys.argv[2]) if len(sys.argv) > 2 else 0)  # the second argument
    campaign.run(20_000)
    before, descriptors, started = resident(), open_files(), time.monotonic()
    while count > 0:
        campaign.run(min(count, 100_000))
        count -= 100_000
        grown = (resident() - before) / 1e6
        sys.stdout.write(f"{campaign.seed:,} cases, {time.monotonic() - started:.0f} s, {grown:+.1f} MB\n")
        sys.stdout.flush()
    outcomes = ", ".join(f"{name} {times:,}" for name, times in campaign.outcomes.most_common())
    left = open_files() - descriptors
    sys.stdout.write(f"{outcomes}; longest case {campaign.longest * 1e3:.1f} ms; descriptors {left:+d}\n")


if __name__ == "__main__":
    main()
