"""Pages of other places cannot call a server on this machine."""

import pytest

from gramercy.errors import HttpError
from gramercy.mcp.http import HttpSettings, OpenGate
from gramercy.mcp.http.auth import Origins


@pytest.fixture(scope="module")
def origins():
    return Origins(
        HttpSettings(
            gate=OpenGate(),
            hosts=("tools.example.com", "other.example.com:8443"),
            origins=("https://app.example.com",),
        )
    )


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:80",
        "localhost.evil.example.com",
        "127.0.0.1.evil.example.com",
        "127.0.0.1@evil.example.com",
        "evil.example.com#localhost",
        "localhost/evil",
        "other.example.com",
        "other.example.com:80",
        "0.0.0.0",
        "",
        "localhost:port",
        "[::1",
        "127.0.0.1, evil.example.com",
    ],
)
def test_foreign_hosts_are_refused(origins, host):
    """Streamable HTTP, Security Warning: DNS rebinding."""
    with pytest.raises(HttpError) as refusal:
        origins.check({b"host": host.encode()})
    assert refusal.value.status == 403


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:8000",
        "[::1]",
        "[::1]:80",
        "tools.example.com",
        "Tools.example.com:1",
        "other.example.com:8443",
    ],
)
def test_names_of_this_machine_and_configured_ones_pass(origins, host):
    """A host without a port stands for all its ports."""
    origins.check({b"host": host.encode()})


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.com",
        "null",
        "",
        "file://",
        "chrome-extension://localhost",
        "http://localhost.evil.example.com",
        "https://app.example.com.evil.example.com",
        "http://app.example.com",
        "http://localhost@evil.example.com",
    ],
)
def test_foreign_origins_are_refused(origins, origin):
    """Streamable HTTP, Security Warning 1."""
    with pytest.raises(HttpError) as refusal:
        origins.check({b"host": b"localhost", b"origin": origin.encode()})
    assert refusal.value.status == 403


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:6274", "http://127.0.0.1", "https://app.example.com", "https://tools.example.com"],
)
def test_pages_of_this_machine_and_configured_ones_pass(origins, origin):
    """The name of the server itself is one of them."""
    origins.check({b"host": b"localhost", b"origin": origin.encode()})


def test_a_rebound_page_is_refused_before_the_engine_sees_anything(start, tools):
    """The whole way, as a browser would do it."""
    site = start()
    answer = site.post(
        tools.modern_message("echo"),
        host="evil.example.com",
        origin="http://evil.example.com",
        **tools.modern_headers("echo"),
    )
    assert answer.status_code == 403
    assert "evil.example.com" in answer.json()["error"]["message"]
    assert site.toy.taken == []


def test_browsers_are_told_that_a_configured_origin_may_read(start, tools):
    """CORS: only for origins that were configured, not for every page on this machine."""
    site = start(origins=("https://app.example.com",))
    asked = site.client.options(site.url, headers={"origin": "https://app.example.com"})
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == "https://app.example.com"
    read = site.post(tools.message("echo"), origin="https://app.example.com")
    assert read.headers["access-control-allow-origin"] == "https://app.example.com"
    local = site.client.options(site.url, headers={"origin": "http://localhost:5173"})
    assert "access-control-allow-origin" not in local.headers
