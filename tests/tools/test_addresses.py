"""The log of httpx has no query of an address of ours: that may be a key."""

import asyncio
import logging

import httpx
import pytest

from gramercy.mcp.foreign.web import WebLink
from gramercy.tools.addresses import hide_query_of

SECRET = "sk-very-secret"


def answer(_request):
    return httpx.Response(200)


@pytest.mark.contract("trust.answers.log")
def test_a_query_of_ours_is_not_logged_and_that_of_others_is(caplog):
    """The transport answers in this process; the line in the log is httpx's own."""
    hide_query_of("https://ours.example/mcp")
    with (
        caplog.at_level(logging.INFO, "httpx"),
        httpx.Client(transport=httpx.MockTransport(answer)) as client,
    ):
        client.get(f"https://ann:{SECRET}@ours.example/mcp?key={SECRET}")
        client.get("https://theirs.example/?page=2")
    assert SECRET not in caplog.text
    assert "https://ours.example/mcp?…" in caplog.text
    assert "https://theirs.example/?page=2" in caplog.text


@pytest.mark.contract("trust.answers.log")
def test_a_link_to_another_server_hides_its_query(caplog):
    async def main():
        link = WebLink(f"http://127.0.0.1:9/mcp?key={SECRET}", {})
        await link.open(lambda _: None)
        await link.close(1)

    asyncio.run(main())
    with (
        caplog.at_level(logging.INFO, "httpx"),
        httpx.Client(transport=httpx.MockTransport(answer)) as client,
    ):
        client.get(f"http://127.0.0.1:9/mcp?key={SECRET}")
    assert "127.0.0.1:9/mcp" in caplog.text
    assert SECRET not in caplog.text
