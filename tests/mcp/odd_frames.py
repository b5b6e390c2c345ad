"""Frames that no honest client sends, made from a seed, and what may be said to each of them."""

from __future__ import annotations

import json
from random import Random

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientCapabilities": {}}
METHODS = (
    "ping", "tools/list", "tools/call", "initialize", "server/discover", "logging/setLevel", "tasks/get",
    "tasks/cancel", "completion/complete", "resources/list", "resources/read", "prompts/get", "no/such", "",
    "notifications/cancelled", "notifications/initialized", "notifications/progress", "\u202e", "ping\0",
)  # fmt: skip
DEEP = 100_000
MEGABYTE = 1_000_000
# Longer than any id that is taken back to its sender.
LONGEST_ID = 1_000

# Written out, since most of them are no JSON that a library would write.
HANDMADE = (
    b"", b" ", b"null", b"0",
    b'""', b"true", b"[]", b"[[]]", b"{}", b"[{}]", b"nul", b"{", b"}", b'"', b"[1,]",
    b"NaN", b"-Infinity", b"1e999", b"\xff\xfe", b"\0", b"\x1b[2J", b"\xef\xbb\xbf{}", b"{'id': 1}", b"// x",
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}',
    b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":-0,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * MEGABYTE + b',"method":"ping"}',
    b'{"jsonrpc":"2.0","id":"' + b"x" * MEGABYTE + b'","method":"ping"}',
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    b'{"jsonrpc":"2.0","id":7,"method":"\\udfff\\ud800"}',
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\\ud83d","arguments":{}}}',
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\xed\xa0\x80"}}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","id":null}',
    b'{"jsonrpc":"2.0","method":"ping","params":{},"params":[]}',
    b'{"jsonrpc":"2.0","jsonrpc":"1.0","id":3,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{},"error":{}}',
    b'{"jsonrpc":"2.0","id":"gramercy-1","result":{"action":"accept","content":{"decision":"approve"}}}',
    b'{"jsonrpc":"2.0","id":"gramercy-1","error":{"code":"x"}}',
    b'{"jsonrpc":"2.0","id":null,"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[[[]]]}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}',
    b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}',
    b'{"jsonrpc":"2.0","method":"initialize"}',
    b"[" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP,
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":'
    + b"[" * 900 + b"]" * 900 + b"}}}",
    b"[" + b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 1_000) + b"]",
    b"[" + b",".join([b'{"jsonrpc":"2.0","method":"ping"}'] * 50) + b"]",
    b"[" + b"1," * 99 + b"1]",
    b'{"jsonrpc":"2.0","id":1,"method":"ping","x":{' + b'"k":0,' * 50_000 + b'"k":1}}',
)  # fmt: skip
LONG = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"'
    + b"x" * (10 * MEGABYTE)
    + b'"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[' + b"0," * (5 * MEGABYTE - 60) + b"0]}}",
    b"[" * (10 * MEGABYTE),
    b"\xff" * (10 * MEGABYTE),
    b'"' + b"\\u0000" * 1_600_000 + b'"',
)


def odd_frames(seed, number):
    """Make frames: some with odd values in them, some of them damaged afterwards."""
    random = Random(seed)
    for _ in range(number):
        made = json.dumps(_message(random)).encode()
        if random.random() < 0.1:
            made = b"[" + b",".join([made] * random.randrange(4)) + b"]"
        yield _damaged(random, made) if random.random() < 0.5 else made


def _message(random):
    message = {"jsonrpc": "2.0", "id": random.randrange(1000), "method": random.choice(METHODS)}
    if random.random() < 0.4:
        del message["id"]
    if random.random() < 0.7:
        message["params"] = _params(random)
    if random.random() < 0.4:
        message[random.choice((*message, "result", "error"))] = _value(random)
    if random.random() < 0.2:
        del message[random.choice(tuple(message))]
    return message


def _params(random):
    params = {
        "_meta": META,
        "name": "echo",
        "arguments": {"text": "x"},
        "protocolVersion": MODERN,
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
        "requestId": random.randrange(1000),
        "requestState": "x.y",
        "inputResponses": {"elicitation-1": {"action": "accept"}},
        "level": "debug",
        "task": {"ttl": 1},
        "taskId": "x",
        "cursor": "x",
        "uri": "x://y",
    }
    kept = {name: value for name, value in params.items() if random.random() < 0.5}
    if kept and random.random() < 0.6:
        kept[random.choice(tuple(kept))] = _value(random)
    return kept


def _value(random, depth=3):
    kind = random.randrange(12 if depth else 10)
    if kind < 10:
        return (
            None, True, -1, 10**30, 1.5, "", "\0\u2028\u202e", "x" * 5_000, random.randrange(5), MODERN
        )[kind]  # fmt: skip
    inner = [_value(random, depth - 1) for _ in range(random.randrange(4))]
    return inner if kind == 10 else {str(value)[:20]: value for value in inner}


def _damaged(random, frame):
    data = bytearray(frame)
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0:
                del data[place:]
            case 1:
                del data[place : place + random.randrange(1, 20)]
            case 2:
                data[place:place] = bytes([random.choice(range(11, 256))])
            case 3:
                data[place:place] = data[random.randrange(len(data) + 1) :][:40]
            case _:
                data[place : place + 1] = random.choice((b"{", b"}", b'"', b"\\u", b"\\ud8", b",", b":"))
    return bytes(data)


def is_silent(frame):
    """Tell whether a frame must not be answered: beyond doubt it is a notification or a response."""
    message = strictly_read(frame)
    if isinstance(message, list):
        return bool(message) and all(_is_silent(one) for one in message)
    return _is_silent(message)


def _is_silent(message):
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return False
    if isinstance(message.get("method"), str):
        return "id" not in message
    return "method" not in message and ("result" in message) is not ("error" in message)


def wanted_id(frame):
    """Return the id that an answer must have; None when the frame is no plain request."""
    message = strictly_read(frame)
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return None
    found = message.get("id")
    is_usable = type(found) in {int, str} and len(str(found)) <= LONGEST_ID
    return found if is_usable and message.get("jsonrpc") == "2.0" else None


def is_unreadable(frame):
    """Tell whether a frame is no JSON to anybody; bad UTF-8 where nobody looks is read by some."""
    try:
        json.loads(frame)
    except UnicodeDecodeError:
        return False
    except ValueError:
        return True
    except RecursionError:
        return False
    return False


def strictly_read(frame):
    """Return what a frame says if everybody would read the same from it, else None."""

    def refuse(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key comes twice")
        return dict(pairs)

    try:
        found = json.loads(frame, parse_constant=int, object_pairs_hook=refuse)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found
