"""A call may ask for more time, and is told of long work without repetition."""

from __future__ import annotations

import pytest

from gramercy.execution.executor import Executor
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_session_tools
from gramercy.toolsets.factory import Quiet

WAITS = {"sbcl": "(progn (sleep 3) :done)", "python": "import time; time.sleep(3)"}


@pytest.mark.contract("day.long.time.argument")
def test_a_call_has_the_time_that_it_asks_for_up_to_the_limit(desk):
    """W2: the text named an argument that the server refused."""
    registry = Registry()
    register_session_tools(registry, desk.image, language=desk.language, longest_timeout=90.0)
    name = next(name for name in registry.names() if name.startswith("evaluate-"))

    def called(timeout):
        arguments = {"code": WAITS[desk.language], "timeout": timeout}
        return Executor(registry).execute({"id": "1", "name": name, "arguments": arguments})

    short, enough, refused = called(0.5), called(80), called(91)
    assert not short.success
    assert "argument timeout" in short.content
    assert enough.success
    assert not refused.success
    assert "90" in refused.content


@pytest.mark.contract("day.long.progress.quiet")
def test_progress_repeats_no_words_four_times_a_second():
    """W2: a client's log filled with "running for 3 s"."""
    quiet = Quiet()
    silent = [seconds / 4 for seconds in range(1, 101) if quiet.is_news("", seconds / 4)]
    assert silent == [1.0, 11.0, 21.0]
    assert [quiet.is_news(words, 26.0) for words in ("a", "a", "b", "", "b")] == [
        True,
        False,
        True,
        False,
        False,
    ]
