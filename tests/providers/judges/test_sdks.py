"""Our client and the official SDKs read the same answers of the same server, fault by fault.

The server is aimock, which plays the models of both formats.
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gramercy.providers.anthropic import AnthropicProvider
from gramercy.providers.base import Message, OfferedTool, Request
from gramercy.providers.openai import OpenAIProvider
from tests.providers.backends import Answer, anthropic_reply, openai_reply
from tests.providers.judges import sdks
from tests.providers.service import Service
from tests.providers.test_conformance import CALL, OTHER
from tests.support import ROOT, install

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = ROOT / ".venv-judges"
ASKING = 30
KEY = "sk-judges-0123456789"
CASES = ["plain", "parallel", "both", "limited", "broken", "busy", "malformed", "slow"]
FAULTS = ["denied", "unknown", "cut text", "cut call"]
OWN = {"openai": OpenAIProvider, "anthropic": AnthropicProvider}
REPLIES = {"openai": openai_reply, "anthropic": anthropic_reply}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("openai", "anthropic"))),
        reason="the SDKs are not installed: scripts/setup dev",
    ),
]


@pytest.fixture(scope="session")
def judges() -> Path:
    """Install the judges, which costs nothing when they are there."""
    install("judges")
    return HOME


@contextmanager
def models(judges: Path) -> Iterator[str]:
    """Serve the models of one client: the server counts repeated questions of all its clients together."""
    text = Path(__file__).with_name("models.mjs").read_text("utf-8")
    command: list[str | Path] = [judges / "bin" / "node", "--input-type=module", "--eval", text]
    with subprocess.Popen(
        command, cwd=judges, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            server.wait(10)


def request_for(said: str) -> Request:
    tools = tuple(OfferedTool(name, name, schema) for name, schema in sdks.TOOLS.items())
    return Request("demo", (Message("user", said),), tools=tools)


def ask_ours(kind: str, address: str, said: str) -> sdks.Heard:
    provider = OWN[kind](address=f"{address}/v1", key=KEY)
    return asyncio.run(asyncio.wait_for(sdks.ours(provider, request_for(said)), ASKING))


def ask_sdk(kind: str, address: str, said: str) -> sdks.Heard:
    asked = sdks.openai if kind == "openai" else sdks.anthropic
    return asyncio.run(asyncio.wait_for(asked(address, KEY, said), ASKING))


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def heard(
    request: pytest.FixtureRequest, judges: Path
) -> tuple[str, dict[str, sdks.Heard], dict[str, sdks.Heard]]:
    """Ask every case with both clients, each of a server of its own, side by side."""
    kind: str = request.param

    def all_of(ask):
        with models(judges) as address:
            return {case: ask(kind, address, case) for case in CASES + FAULTS}

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(all_of, (ask_ours, ask_sdk)))
    return kind, both[0], both[1]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.contract("agents.wire.judged")
def test_an_answer_is_read_as_the_sdk_reads_it(heard, case):
    _, own, sdk = heard
    assert own[case].error is None
    assert own[case] == sdk[case]


def test_the_answers_are_those_of_the_server(heard):
    _, own, _ = heard
    assert own["plain"].text == "Hello, Ada! Nice to meet you. ☃"
    assert own["plain"].pieces > 3
    assert own["plain"].tokens == (11, 7)
    assert own["plain"].reason == "end"
    assert own["parallel"].calls[0] == ("call_1", "sayHello", '{"name":"Ada Lovelace"}')
    assert "né ☃ 😀" in own["parallel"].calls[1][2]
    assert own["parallel"].reason == "calls"
    assert [own[case].text for case in ("limited", "broken", "busy")] == [
        "after 429",
        "after 500",
        "after 529",
    ]


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.contract("agents.wire.judged")
def test_a_fault_is_an_error_where_it_is_one_of_the_sdk(heard, case):
    _, own, sdk = heard
    assert sdk[case].error
    assert own[case].error
    assert own[case].reason is None
    assert own[case].text == sdk[case].text
    assert not own[case].calls
    assert KEY not in own[case].error


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.contract("agents.wire.half")
def test_half_a_call_comes_through_the_sdk_and_not_through_ours(kind):
    """A body that is complete for HTTP, without the end mark of its format: the SDKs raise nothing."""
    half = REPLIES[kind](Answer(("Let me. ",), (CALL,), is_cut=True))
    with Service(half) as service:
        own, sdk = ask_ours(kind, service.address, "hi"), ask_sdk(kind, service.address, "hi")
    assert (sdk.error, sdk.reason) == (None, None)
    assert sdk.calls[0][2] in CALL.arguments
    assert own.error is not None
    assert own.error.startswith("CutStreamError")
    assert own.calls == []


def in_pieces(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


def over_lines(body: bytes) -> bytes:
    """Write the data of each event over several lines, as the format allows it."""
    return body.replace(b'{"', b'{\ndata: "')


ODD = {
    "CRLF": lambda body: [body.replace(b"\n", b"\r\n")],
    "CR": lambda body: [body.replace(b"\n", b"\r")],
    "cut in characters": lambda body: in_pieces(body, 3),
    "CRLF, cut": lambda body: in_pieces(body.replace(b"\n", b"\r\n"), 1),
    "comments": lambda body: [body.replace(b"\n\n", b"\n\n: ping\n\n\n:\n\n")],
    "no blank": lambda body: [body.replace(b"data: ", b"data:")],
    "other fields": lambda body: [body.replace(b"data: ", b"id: 7\nretry: 10\nx: y\ndata: ")],
    "several lines": lambda body: [over_lines(body)],
}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.contract("agents.wire.judged")
def test_an_odd_stream_is_read_as_the_sdk_reads_it(kind, odd):
    answer = Answer(("Hello, ", "né ☃ 😀\u2028\x85!"), (CALL, OTHER), "calls")
    reply = REPLIES[kind](answer)
    reply.pieces = ODD[odd](b"".join(reply.pieces))
    with Service(reply) as service:
        own, sdk = ask_ours(kind, service.address, "hi"), ask_sdk(kind, service.address, "hi")
    assert own.error is None
    assert own == sdk
    assert len(own.calls) == 2
