"""Evaluations that take long: what they print is seen as they run and is never lost. Real processes only."""

import asyncio
import threading
from time import monotonic
from typing import Any

import pytest

from gramercy.images.base import Reply
from gramercy.images.connection import PATIENCE
from gramercy.images.requests import Evaluate
from tests.support import until

SLOWLY = {
    "sbcl": '(dotimes (i 3) (format t "turn ~d~%" i) (sleep 0.4))',
    "python": "import time\nfor i in range(3):\n    print('turn', i)\n    time.sleep(0.4)",
}
NOTHING_PRINTED = {"sbcl": "(sleep 0.7)", "python": "import time; time.sleep(0.7)"}
COMPLAIN = {
    "sbcl": '(format *error-output* "watch out~%")',
    "python": "import sys\nprint('watch out', file=sys.stderr)",
}


def joined(words, *codes):
    return ("\n" if words.language == "python" else " ").join(codes)


def test_output_is_told_while_the_evaluation_runs(image, words):
    """Images, Timeouts and deaths: long evaluations report progress."""
    seen: list[Any] = []
    reply = image.evaluate(SLOWLY[words.language], watch=seen.append)
    early = "".join(progress.stdout for progress in seen)
    assert early.startswith("turn 0\n")
    assert reply.stdout == "turn 0\nturn 1\nturn 2\n"
    assert [progress.seconds for progress in seen] == sorted(progress.seconds for progress in seen)


def test_a_silent_evaluation_gives_signs_of_life(image, words):
    seen: list[Any] = []
    image.evaluate(NOTHING_PRINTED[words.language], watch=seen.append)
    assert seen
    assert {progress.stdout for progress in seen} == {""}


def test_a_watcher_that_fails_does_not_fail_the_evaluation(image, words):
    told = []

    def fail(progress):
        told.append(progress)
        raise RuntimeError("nobody shall know")

    reply = image.evaluate(SLOWLY[words.language], watch=fail)
    assert reply.ok
    assert len(told) == 1


def test_what_was_printed_survives_the_end_of_the_process_by_force(image, words):
    """Images, Timeouts and deaths: always return the partial output."""
    code = joined(words, words.shout.format("grüße ☃"), COMPLAIN[words.language], words.stubborn_loop)
    reply = image.evaluate(code, timeout=5)
    assert reply.error.type == "TIMEOUT"
    assert reply.stdout == "grüße ☃\n"
    assert reply.stderr == "watch out\n"


def test_what_was_printed_survives_a_sudden_death(image, words):
    reply = image.evaluate(joined(words, words.shout.format("last words"), words.kill_self))
    assert reply.error.type == "IMAGE-DIED"
    assert reply.stdout == "last words\n"


def test_an_early_death_does_not_show_the_output_of_the_call_before(image, words):
    image.evaluate(words.shout.format("not mine"))
    assert image.evaluate(words.leave).stdout == ""


def test_much_output_before_a_death_is_cut_and_counted(image, words):
    much = {
        "sbcl": '(dotimes (i 40000) (format t "1234567890~%"))',
        "python": "for _ in range(40000): print('1234567890')",
    }[words.language]
    reply = image.evaluate(joined(words, much, words.kill_self))
    assert len(reply.stdout) <= 128 * 1024
    assert reply.stdout.startswith("1234567890\n1234567890\n")
    assert reply.truncated == {"stdout": 440_000}


def test_a_preview_that_dies_tells_what_it_had_printed(image, words):
    reply = image.preview(joined(words, words.shout.format("trying"), words.leave))
    assert reply.error.type == "PREVIEW-DIED"
    assert reply.stdout == "trying\n"


@pytest.mark.parametrize(
    ("ending", "told"), [("leave", "status 3"), ("kill_self", "SIGKILL")], ids=["exit", "signal"]
)
def test_a_death_is_told_with_its_status(image, words, ending, told):
    """Images, Timeouts and deaths: a death report has the wait status."""
    message = image.evaluate(getattr(words, ending)).error.message
    assert told in message


def test_the_status_is_known_also_after_the_checkpoint_it_came_from_is_gone(image, words):
    """The zygote inherits the orphans and their ends."""
    image.evaluate(words.define)
    image.undo()
    parent = image.checkpoints()[0]
    image._lifecycle.timeline.forget(image._lifecycle.timeline.get(parent.id))
    assert "status 3" in image.evaluate(words.leave).error.message


def test_an_evaluation_is_awaited_without_holding_up_the_loop(image, words):
    """Performance: no thread on the fast path, and none of the loop's time on the slow one."""

    async def main():
        slow = asyncio.ensure_future(image.aevaluate(SLOWLY[words.language]))
        turns = 0
        while not slow.done():
            await asyncio.sleep(0.01)
            turns += 1
        return turns, await slow, await image.aevaluate(words.six)

    image.evaluate(words.six)
    turns, slow, swift = asyncio.run(main())
    # A loop that is held up has one turn or two; a busy machine gives it fewer than a hundred.
    assert turns > 5
    assert slow.stdout.endswith("turn 2\n")
    assert swift.values == ["6"]


def test_the_first_call_of_all_can_be_awaited(image, words):
    image.reset()
    assert asyncio.run(image.aevaluate(words.six)).values == ["6"]


def test_a_quick_evaluation_needs_no_thread(image, words):
    async def main():
        coroutine = image.aevaluate(words.six)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value.values
        coroutine.close()
        return None

    image.evaluate(words.six)
    # On a busy machine an answer rarely comes within the short wait before a thread takes over.
    until(lambda: asyncio.run(main()) == ["6"])


def test_cancelling_interrupts_the_evaluation_and_nothing_else(image, words):
    """MCP, item 9: cancellation that really interrupts the image."""

    async def main():
        endless = asyncio.ensure_future(image.aevaluate(words.loop))
        await asyncio.sleep(0.1)
        queued = asyncio.ensure_future(image.aevaluate(words.change.format(1)))
        last = asyncio.ensure_future(image.aevaluate(words.look))
        await asyncio.sleep(0.05)
        queued.cancel()
        endless.cancel()
        for gone in (endless, queued):
            with pytest.raises(asyncio.CancelledError):
                await gone
        return await last

    image.evaluate(words.define)
    started = monotonic()
    assert asyncio.run(main()).values == ["41"]
    assert monotonic() - started < image.timeout / 2


def test_a_death_is_awaited_like_any_reply(image, words):
    image.evaluate(words.define)
    reply = asyncio.run(image.aevaluate(words.kill_self))
    assert reply.error.type == "IMAGE-DIED"
    assert image.evaluate(words.look).values == ["41"]


def test_calls_from_many_sides_are_answered_each_to_its_own_caller(image, words):
    def code(number):
        return words.six.replace("3", str(number))

    async def main():
        return await asyncio.gather(*(image.aevaluate(code(number)) for number in range(40)))

    threaded = {}

    def from_a_thread(number):
        threaded[number] = image.evaluate(code(number)).values

    threads = [threading.Thread(target=from_a_thread, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    replies = asyncio.run(main())
    for thread in threads:
        thread.join(20 + PATIENCE)
    assert [reply.values for reply in replies] == [[str(3 + number)] for number in range(40)]
    assert threaded == {number: [str(3 + number)] for number in range(10)}


def test_a_brief_evaluation_gives_its_reply_without_a_wait(image, words):
    """Cold call: on an event loop a reply that comes within a moment needs no coroutine."""

    async def begun():
        # On a loaded machine a moment may pass before the process gets its turn.
        for _ in range(200):
            reply = image.begin(Evaluate(words.six))
            if isinstance(reply, Reply):
                return reply
            await reply
        return None

    assert image.evaluate(words.six).ok
    assert asyncio.run(begun()).values == ["6"]


def test_what_takes_longer_than_a_moment_is_awaited(image, words):
    """Cold call: the rest is waited for on a thread, and cancelling that interrupts the evaluation."""

    async def waited():
        reply = image.begin(Evaluate(SLOWLY[words.language]))
        assert not isinstance(reply, Reply)
        first = await reply
        endless = image.begin(Evaluate(words.loop))
        endless.cancel()
        return first, await image.aevaluate(words.six)

    first, last = asyncio.run(waited())
    assert first.ok
    assert last.values == ["6"]
