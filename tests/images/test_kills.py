"""Kill the evaluating process at random moments: after every recovery the state is what the model says."""

import contextlib
import os
import random
import signal
import sys
import threading

import pytest

ROUNDS = 300
SEED = int(os.environ.get("GRAMERCY_SEED", "20261115"))


def kill_soon(pid, seconds):
    """Kill a process after a while, on a thread that ends by itself."""

    def strike():
        threading.Event().wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


@pytest.mark.slow
def test_random_kills_never_lose_more_than_the_call_they_hit(image, words):
    """A call that answered has happened and one that was hit has not.

    The checkpoint comes after the reply. A kill from outside within that millisecond takes the call with it,
    and the next reply says so.
    """
    chance = random.Random(SEED)
    image.evaluate(words.define)
    model, hit, announced = "41", 0, 0
    for number in range(ROUNDS):
        moment = chance.choice([0.0, 0.0002, 0.0005, 0.001, 0.002, 0.004])
        striker = kill_soon(image.processes()["live"], moment)
        reply = image.evaluate(words.change.format(number))
        striker.join()
        if not reply.ok:
            assert reply.error.type == "IMAGE-DIED", reply
            hit += 1
        look = image.evaluate(words.look)
        lost = look.lost
        if not look.ok:  # the kill was slower than the reply, and hit the look instead
            look = image.evaluate(words.look)
            lost += look.lost
        assert lost <= 1
        announced += lost
        if reply.ok and not lost:
            model = str(number)
        assert look.values == [model], f"round {number}, seed {SEED}, {reply} {look}"
    figures = f"{ROUNDS} kills, {hit} during a call, {announced} before its checkpoint, seed {SEED}"
    sys.stderr.write(f"{words.language}: {figures}\n")
