"""A server for approvals on each transport, people who answer, and a file that they are asked about."""

from __future__ import annotations

import asyncio
import json
from itertools import count

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.mcp.conversations import LEGACY, MODERN, HttpConversation, StdioConversation
from tests.support import port_of, said_besides, start_server

YES = {"action": "accept", "content": {"decision": "approve"}}
NO = {"action": "accept", "content": {"decision": "deny", "reason": "not today"}}
ISSUER, RESOURCE = "https://login.example.com", "https://tools.example.com/mcp"
BEFORE = "".join(f"line {number}\n" for number in range(1, 31))
AFTER = BEFORE.replace("line 3\n", "third\n").replace("line 15\n", "").replace("line 28\n", "line 28\nmore\n")
NUMBERS = count(1)


@pytest.fixture(scope="module")
def key():
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def token(key):
    """Return a function that makes somebody's token."""

    def make(subject):
        claims = {"iss": ISSUER, "aud": RESOURCE, "sub": subject, "exp": 4_000_000_000}
        return jwt.encode({**claims, "scope": "gramercy:dangerous"}, key, "ES256", headers={"kid": "one"})

    return make


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def port(project, key, tmp_path_factory):
    """Serve the project over HTTP to whoever has a token of the issuer."""
    public = jwt.get_algorithm_by_name("ES256").to_jwk(key.public_key(), as_dict=True)
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256", "use": "sig"}]}))
    about = ("--oauth-issuer", ISSUER, "--oauth-resource", RESOURCE, "--oauth-keys", str(keys))
    server = start_server(
        "--http",
        "127.0.0.1:0",
        *about,
        "--image",
        "python",
        "--toolset",
        "core",
        "--toolset",
        "project",
        cwd=project,
    )
    yield port_of(server)
    said = server.errors()
    server.close()
    assert "Traceback (" not in said


@pytest.fixture(params=[LEGACY, MODERN])
def era(request):
    return request.param


@pytest.fixture
def run():
    """Return what runs a coroutine, on one loop for the whole test."""
    with asyncio.Runner() as runner:
        yield runner.run
        # What was closed after the test needs a moment to be closed.
        runner.run(asyncio.sleep(0.001))


@pytest.fixture
def over_http(port, token, run):  # noqa: ARG001 - the loop outlives the connections
    """Return a function that brings a client of an era to the server over HTTP; `reply` is its person."""
    met = []

    def begin(era, reply=None, *, subject="alice", **options):
        met.append(HttpConversation(port, era, token=token(subject), reply=reply, **options))
        return met[-1]

    yield begin
    for one in met:
        one.close()


@pytest.fixture
def over_pipes(project):
    """Return a function that brings a client of an era to a server of its own; `reply` is its person."""
    servers = []

    def begin(era, reply=None, **options):
        servers.append(
            start_server("--image", "python", "--toolset", "core", "--toolset", "project", cwd=project)
        )
        return StdioConversation(servers[-1], era, reply=reply, **options)

    yield begin
    said = said_besides(*servers)
    for one in servers:
        one.close()
    assert said == []


@pytest.fixture(params=["over_http", "over_pipes"])
def meet(request):
    """Return what brings a client to a server, on each transport."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def file(project):
    """Return a file of the project that nobody else uses."""
    found = project / f"file-{next(NUMBERS)}.txt"
    found.write_text(BEFORE)
    return found


def arguments_for(tool, file):
    if tool == "write_file":
        return {"path": file.name, "content": AFTER}
    if tool == "edit_file":
        same = "line 1\n"
        return {"path": file.name, "old": BEFORE.removeprefix(same), "new": AFTER.removeprefix(same)}
    return {"path": file.name, "original": BEFORE, "modified": AFTER, "description": "make it better"}


def text_of(result):
    assert [block["type"] for block in result["content"]] == ["text"]
    return result["content"][0]["text"]


def calling(run, client, tool, file):
    async def main():
        await client.greet()
        return await client.call(tool, **arguments_for(tool, file))

    return run(main())
