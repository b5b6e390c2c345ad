"""Images that are hostile from the first byte, opened and closed in one process, which must not grow."""

from __future__ import annotations

import gc
import sys
import threading
import time

import pytest

from gramercy.errors import ImageError
from gramercy.images.connection import as_json
from gramercy.images.live import LiveImage
from gramercy.images.processes import Program
from gramercy.images.sandbox import Confinement
from tests.images.wire_cases import open_files, resident

# In the place of an interpreter: says something on its connection, in one of these ways, and stays or ends.
RAW = r"""
import os, socket, sys, time
way = sys.argv[1]
line = socket.socket(fileno=int(sys.argv[sys.argv.index('--connection') + 1]))
hello = b'{"hello": 1, "role": "zygote", "language": "python", "version": "3", "capabilities": ["fork"]}'
frame = lambda body: len(body).to_bytes(4, 'big') + body
if way == 'garbage':
    line.sendall(os.urandom(5000))
elif way == 'ends':
    line.sendall(frame(hello)[:20])
    sys.exit(0)
elif way == 'huge':
    line.sendall(b'\x7f\xff\xff\xff' + b'x' * 60000)
elif way == 'descriptors':
    socket.send_fds(line, [frame(hello)], [0, 1, 2])
elif way == 'another':
    socket.send_fds(line, [frame(hello)], [0])
elif way == 'drip':
    for byte in frame(hello):
        line.sendall(bytes([byte]))
        time.sleep(0.05)
elif way == 'flood':
    line.sendall(frame(hello))
    while True:
        line.sendall(frame(b'{"id": 99999, "ok": true}'))
elif way == 'words':
    line.sendall(frame(hello))
    line.sendall(frame(b'{"id": 1, "ok": true, "pid": -5, "watched": true}') * 3)
time.sleep(20)
"""
# The last two pass for a zygote, which is then waited for.
WAYS = ("garbage", "ends", "huge", "descriptors", "drip", "flood")
SLOW_WAYS = ("another", "words")


def meet(script, way):
    """Open one hostile image, try to evaluate in it, and close it."""
    command = [sys.executable, "-ISE", str(script), way]
    program = Program("python", command, as_json, confinement=Confinement.NONE)
    image = LiveImage("hostile", lambda: program, language="python", timeout=1.0)
    try:
        assert not image.evaluate("1").ok
    except ImageError:
        pass
    finally:
        image.close()


def is_more_than(before):
    """Tell whether there are more descriptors or threads than before."""
    return open_files() > before[0] or threading.active_count() > before[1]


def run(tmp_path, monkeypatch, ways):
    """Open and close an image for each of the ways, after some that load what is loaded once."""
    monkeypatch.setattr("gramercy.images.processes.START_SECONDS", 1.0)
    monkeypatch.setattr("gramercy.images.files.listener.START_SECONDS", 1.0)
    script = tmp_path / "raw.py"
    script.write_text(RAW)
    for way in (*WAYS, *set(ways)):
        meet(script, way)
    gc.collect()
    before = open_files(), threading.active_count(), resident()
    for way in ways:
        meet(script, way)
    # The threads of an image end a moment after it, of the first ones perhaps after they were counted.
    deadline = time.monotonic() + 60
    while is_more_than(before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert not is_more_than(before)
    assert resident() - before[2] < 30_000_000


@pytest.mark.contract("trust.wire.hostile")
def test_hostile_images_leave_nothing(tmp_path, monkeypatch):
    """Trust, group 4: descriptors and memory back to where they were."""
    run(tmp_path, monkeypatch, WAYS)


@pytest.mark.slow
@pytest.mark.contract("trust.wire.hostile")
def test_a_thousand_hostile_images_leave_nothing(tmp_path, monkeypatch):
    """Issue, Proof: 1,000 hostile images in one process, descriptors and memory back."""
    run(tmp_path, monkeypatch, [WAYS[number % len(WAYS)] for number in range(1_000)])


@pytest.mark.slow
@pytest.mark.contract("trust.wire.hostile")
def test_what_passes_for_a_zygote_leaves_nothing_either(tmp_path, monkeypatch):
    """Trust, group 4: a forged hello, and answers that nobody asked for."""
    run(tmp_path, monkeypatch, SLOW_WAYS)
