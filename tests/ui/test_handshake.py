"""A server that is not well is told from one that is, in bounded time, and nothing of it is left."""

from __future__ import annotations

import sys
from time import monotonic

import pytest

from gramercy.errors import HandshakeError
from gramercy.ui.doctor.handshake import ERAS, Conversation, converse

CALL = ("evaluate-python", {"code": "6 * 7"})
BOUND = 60
# Answers every request with the result that its method has in RESULTS.
ANSWERING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = RESULTS[message["method"]]
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **result}), flush=True)
"""
WELL = {
    "initialize": {"result": {"protocolVersion": "2025-11-25"}},
    "server/discover": {"result": {"supportedVersions": ["2026-07-28"]}},
    "tools/list": {"result": {"tools": [{"name": "evaluate-python"}]}},
    "tools/call": {"result": {"content": [{"text": "=> 42"}]}},
}


def hold(program, era, seconds=BOUND):
    conversation = Conversation([sys.executable, "-c", program], "/", seconds)
    try:
        return converse(conversation, era, CALL, "=> 42")
    finally:
        conversation.close()
        assert conversation._process.returncode is not None


@pytest.mark.parametrize("era", ERAS)
def test_a_server_that_is_well_is_recognised(era):
    """MCP checklist 13: doctor starts, lists, calls."""
    assert hold(f"RESULTS = {WELL!r}{ANSWERING}", era) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tools/list": {"result": {"tools": []}}}, "not among the 0 tools"),
        ({"tools/list": {"error": {"message": "no"}}}, "tools/list was answered with no"),
        ({"tools/call": {"result": {"content": [{"text": "=> 41"}]}}}, "said '=> 41'"),
        (
            {
                "initialize": {"result": {"protocolVersion": "1999"}},
                "server/discover": {"result": {"supportedVersions": ["1999"]}},
            },
            "speaks 1999 only",
        ),
    ],
)
def test_a_server_that_answers_wrongly_is_told(era, change, words):
    """A check that cannot fail proves nothing."""
    with pytest.raises(HandshakeError, match=words):
        hold(f"RESULTS = {WELL | change!r}{ANSWERING}", era)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit(3)", "ended"),
        ("print('starting', flush=True); input()", "no message: b'starting'"),
        ("print([], flush=True); input()", "no message"),
        ("print('x' * (1 << 23)); input()", "sent no line"),
    ],
)
def test_a_server_that_does_not_speak_the_protocol_is_told(program, words):
    """Whatever it is that was started."""
    with pytest.raises(HandshakeError, match=words):
        hold(program, ERAS[0])


def test_a_server_that_never_answers_does_not_keep_anybody_waiting():
    """Brief: within a bound."""
    started = monotonic()
    with pytest.raises(HandshakeError, match="initialize was not answered in time"):
        hold("import signal\nwhile True: signal.pause()", ERAS[0], seconds=0.3)
    assert monotonic() - started < 10
