"""A request that cannot be read is answered with its id where that can be told."""

from __future__ import annotations

import pytest

from gramercy.errors import DeepFrameError, InvalidFrameError
from gramercy.mcp.jsonrpc import Code, failure, read_frame
from gramercy.mcp.salvage import READ_AGAIN, id_at_start

LONE = rb"\ud800"
RAW = b"\xed\xa0\x80"
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%s"}}'
AT_END = b'{"method":"tools/call","params":{"name":"%s"},"jsonrpc":"2.0","id":"a-1"}'


def answered(frame: bytes) -> InvalidFrameError:
    """Return what is wrong with a frame, after its answer was written."""
    found = read_frame(frame)
    assert isinstance(found, InvalidFrameError)
    assert failure(found, found.id)
    return found


@pytest.mark.contract("clients.wire.salvaged-ids")
@pytest.mark.parametrize("bad", [LONE, RAW, b"\xff"])
@pytest.mark.parametrize(("frame", "ident"), [(CALL, 7), (AT_END, "a-1")])
def test_a_lone_surrogate_does_not_hide_the_id(bad, frame, ident):
    """A client that gets no answer to its id waits for ever."""
    found = answered(frame.replace(b"%s", bad))
    assert (found.code, found.id) == (Code.PARSE_ERROR, ident)


@pytest.mark.contract("clients.wire.salvaged-ids")
def test_of_a_large_message_only_the_beginning_is_looked_at():
    """To read it again as a whole would take long."""
    filled = LONE + b"x" * READ_AGAIN
    assert answered(CALL.replace(b"%s", filled)).id == 7
    assert answered(AT_END.replace(b"%s", filled)).id is None


@pytest.mark.contract("clients.wire.salvaged-ids")
def test_a_message_that_is_nested_too_deeply_is_answered_with_its_id():
    found = answered(CALL.replace(b'"%s"', b"[" * 100_000 + b"]" * 100_000))
    assert isinstance(found, DeepFrameError)
    assert found.id == 7


@pytest.mark.contract("clients.wire.salvaged-ids")
@pytest.mark.parametrize(
    "frame",
    [
        # Answers to us: an error with their id would be taken for one of the client's own requests.
        b'{"jsonrpc":"2.0","id":7,"result":{"text":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":7,"error":{"message":"\\ud800"}}',
        # Ids that could not be sent back as they came.
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}',
        b'{"jsonrpc":"2.0","id":' + b"9" * 30 + b',"method":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":"' + b"x" * 1_001 + b'","method":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":true,"method":"\\ud800"}',
        # No JSON: where it was cut off is not known.
        b'{"jsonrpc":"2.0","id":7,"method":"ping"',
        b'[{"jsonrpc":"2.0","id":7,"method":"\\ud800"}]',
    ],
)
def test_an_id_that_is_not_sure_is_left_out(frame):
    """A wrong id is worse than none."""
    found = answered(frame)
    assert (found.code, found.id) == (Code.PARSE_ERROR, None)


@pytest.mark.parametrize(
    ("frame", "ident"),
    [
        (b"", None),
        (b"[", None),
        (b'{"id":', None),
        (b'{"id":1', None),
        (b'{"id":1,"method"', None),
        (b'{"id":1,"method":"x', 1),
        (b'\xef\xbb\xbf { "id" : -1 , "params" : [', -1),
        (b'{"params":{"id":1},"method":"x"', None),
        (b'{"id":"' + b"x" * 5_000 + b'","method":"x"', None),
    ],
)
def test_the_id_at_the_start_of_a_part_of_a_message(frame, ident):
    assert id_at_start(frame) == ident
