"""Bearer tokens: missing, wrong, right, and what they allow."""

import pytest

from gramercy.mcp.http import Caller, HttpSettings, OpenGate, ServingError, TokenGate
from gramercy.tools.safety import Safety

TOKEN = "correct-horse-battery-staple"
READER = "somebody-who-only-may-read"


@pytest.fixture(scope="module")
def gate():
    return TokenGate({TOKEN: Caller("owner"), READER: Caller("reader", Safety.SAFE)})


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer wrong",
    ],
)
def test_without_the_token_nobody_comes_in(start, tools, gate, authorization):
    """Seed of the protocol: servers should authenticate all connections; RFC 6750, 3."""
    site = start(gate=gate)
    answer = site.post(
        tools.modern_message("echo"), authorization=authorization, **tools.modern_headers("echo")
    )
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert TOKEN not in answer.text
    assert site.toy.taken == []


def test_the_scheme_is_read_in_any_case_and_the_token_to_the_letter(start, tools, gate):
    """RFC 9110, 11.1."""
    site = start(gate=gate)
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = site.post(
            tools.modern_message("whoami"),
            authorization=f"{scheme} {TOKEN}",
            **tools.modern_headers("whoami"),
        )
        assert answer.json()["result"] == {"principal": "owner", "ceiling": "dangerous"}


def test_a_token_has_its_ceiling_in_both_eras(start, tools, gate):
    """Safety ceilings belong to callers."""
    site = start(gate=gate)
    site.headers["authorization"] = f"Bearer {READER}"
    assert site.post_modern("whoami").json()["result"] == {"principal": "reader", "ceiling": "safe"}
    session = site.initialize()
    assert site.post(tools.message("whoami"), **session).json()["result"]["ceiling"] == "safe"


def test_a_token_in_the_address_is_not_looked_at(start, gate):
    """Addresses end up in logs."""
    site = start(gate=gate)
    assert site.client.post(f"{site.url}?access_token={TOKEN}", json={}).status_code == 401


def test_a_generated_token_is_long_new_and_told_once():
    """The default: a random token, printed for the person who started the server."""
    first, second = TokenGate.generate().describe(), TokenGate.generate().describe()
    assert first != second
    assert len(first.removeprefix("token: ")) >= 43


def test_a_configured_token_is_never_printed():
    """Who set it knows it."""
    assert TOKEN not in TokenGate.of(TOKEN, source="the token in GRAMERCY_TOKEN").describe()


@pytest.mark.parametrize(
    "token", ["short", "with spaces in the middle", "grüße aus der Ferne!", "line\nbreak-in-the-token"]
)
def test_tokens_that_are_no_good_are_refused_at_the_start(token):
    """The message says what to take instead."""
    with pytest.raises(ServingError, match="token"):
        TokenGate.of(token)


def test_a_token_is_asked_for_by_default():
    """Nothing is open because nobody thought of it."""
    assert not HttpSettings().gate.is_open


def test_an_open_gate_may_have_a_ceiling(start):
    """Everybody may look, nobody may break."""
    site = start(gate=OpenGate(Safety.SAFE))
    assert site.post_modern("whoami").json()["result"] == {"principal": "anonymous", "ceiling": "safe"}
