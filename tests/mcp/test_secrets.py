"""Canaries in every place where a secret can be: none may be heard of in a reply, a log or a process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gramercy.errors import ServingError
from gramercy.testing.clients import request_head
from gramercy.ui.cli.serve import _file_gate
from tests.mcp.conversations import LEGACY, MODERN, HttpConversation, StdioConversation
from tests.support import children_of, port_of, start_server, until, wire_to

TOKEN = "canary-of-the-token-2f9b1c7e5a"
ENVIRONMENT = "canary-of-the-environment-8d31"
FILE = "canary-of-a-file-outside-77ab"
ARGUMENT = "canary-of-an-argument-c04d"
WRONG = "canary-of-a-wrong-token-91e0"
# Nobody may ever see these; what a caller says itself must not be in a log.
NEVER = (TOKEN, ENVIRONMENT, FILE)
NOT_LOGGED = (*NEVER, ARGUMENT, WRONG)
TOOLS = '''
from gramercy import tool

class Unprintable:
    def __init__(self, text):
        self.text = text
    def __str__(self):
        raise RuntimeError(self.text)
    __repr__ = __str__

@tool
def explode(text: str) -> str:
    """Fail with what it was given."""
    raise RuntimeError(text)

@tool
def unprintable(text: str) -> str:
    """Return what cannot be shown."""
    return Unprintable(text)

@tool
async def explode_late(text: str) -> str:
    """Fail in a way that nobody expects."""
    raise BaseExceptionGroup(text, [ValueError(text)])
'''
SPYING = {
    "snake": (
        "import os; dict(os.environ)",
        "open('/proc/self/environ').read()",
        "open('/proc/1/environ').read() + open('/proc/1/cmdline').read()",
        "open({outside!r}).read()",
        "open('link.txt').read()",
        "open({token!r}).read()",
        "raise KeyError(os.environ.get('SECRET_KEY', 'nothing'))",
    ),
    "lisp": (
        "(sb-ext:posix-environ)",
        '(sb-ext:posix-getenv "SECRET_KEY")',
        '(with-open-file (s "{outside}") (read-line s))',
        '(with-open-file (s "link.txt") (read-line s))',
        '(with-open-file (s "/proc/self/environ") (read-line s))',
        '(load "{outside}")',
    ),
}
BROKEN = (
    f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":"{ARGUMENT}"',
    f'{{"jsonrpc":"2.0","id":1,"method":["{ARGUMENT}"]}}',
    f'{{"jsonrpc":"2.0","id":{{"{ARGUMENT}":1}},"method":"ping"}}',
    f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":["{ARGUMENT}"]}}',
    f'{{"jsonrpc":"{ARGUMENT}","id":1,"method":"ping"}}',
    f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":7,"x":"{ARGUMENT}"}}}}',
    f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"explode","arguments":"{ARGUMENT}"}}}}',
    f'"{ARGUMENT}',
)


class House:
    """A project, and what lies around it that is nobody's business."""

    def __init__(self, folder):
        self.project, self.outside, self.token = folder / "project", folder / "secret.txt", folder / "token"
        self.project.mkdir()
        (self.project / "tools.py").write_text(TOOLS)
        self.outside.write_text(FILE)
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        (self.project / "link.txt").symlink_to(self.outside)

    def serve(self, *options, **environment):
        images = (
            "--image",
            "snake=python",
            "--image",
            "lisp=sbcl",
            "--from",
            "tools.py",
            "--toolset",
            "core",
        )
        given = {"SECRET_KEY": ENVIRONMENT, **environment}
        return start_server(*images, *options, cwd=self.project, **given)

    def calls(self):
        """Give calls that try to get at a secret, or to have one written down."""
        for path in ("../secret.txt", str(self.outside), "link.txt", "../token", "/proc/self/environ"):
            yield "read_file", {"path": path}
            yield "write_file", {"path": path, "content": ARGUMENT}
            yield (
                "propose_file_edit",
                {"path": path, "original": "", "modified": ARGUMENT, "description": ""},
            )
        for image, codes in SPYING.items():
            for code in codes:
                written = code.replace("{outside!r}", repr(str(self.outside)))
                written = written.replace("{token!r}", repr(str(self.token)))
                yield "eval_form", {"form": written.replace("{outside}", str(self.outside)), "image": image}
        for name in ("explode", "unprintable", "explode_late"):
            yield name, {"text": ARGUMENT}
        yield "search_in_buffer", {"pattern": ARGUMENT}
        yield "eval_form", {"form": ARGUMENT, "image": "nobody"}


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


def check_processes(server):
    """Check that no process of an image was told a secret."""
    children = children_of(server.process.pid)
    assert children
    for pid in children:
        try:
            told = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        assert found_in(told.decode("utf-8", "replace"), NEVER) == []


def found_in(text, canaries):
    return [canary for canary in canaries if canary in text]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_no_secret_is_told_on_pipes(house, era):
    """MCP server, checklist 11: nothing in replies, nothing on standard error."""
    server = house.serve()
    talk = StdioConversation(server, era)
    try:
        replies = asyncio.run(spy(house, talk))
        check_processes(server)
        broken = []
        for frame in BROKEN:
            server.send(frame.encode() + b"\n")
            broken.append(server.line())
        assert found_in(b"".join(broken).decode(), NOT_LOGGED) == []
        assert found_in(replies, NEVER) == []
        assert found_in(server.errors(), NOT_LOGGED) == []
    finally:
        server.close()


async def spy(house, talk):
    """Make all the calls and return all that was answered."""
    await talk.greet()
    answers = [
        await talk.ask("tools/call", name=name, arguments=arguments) for name, arguments in house.calls()
    ]
    # Otherwise there would have been nothing to tell.
    assert sum("result" in answer for answer in answers) > 20
    return json.dumps(answers, ensure_ascii=False)


TOKENS = {
    "file": (lambda house: ("--token-file", str(house.token)), {}),
    "environment": (lambda _: (), {"GRAMERCY_TOKEN": TOKEN}),
}


@pytest.mark.parametrize("source", TOKENS)
def test_no_secret_is_told_over_http(house, source):
    """MCP server, checklist 11: neither to callers with the token nor to those without."""
    options, environment = TOKENS[source]
    server = house.serve("--http", "127.0.0.1:0", *options(house), **environment)
    try:
        port = port_of(server)
        replies, sessions = asyncio.run(visit(house, port))
        check_processes(server)
        assert found_in(replies, (*NEVER, WRONG)) == []
        assert found_in(server.errors(), (*NOT_LOGGED, *sessions)) == []
        assert len(server.errors().splitlines()) == 3
    finally:
        server.close()


async def visit(house, port):
    """Come with the token, without it and with wrong ones; return what was said, and the session ids."""
    said, sessions = [], []
    for era in (LEGACY, MODERN):
        talk = HttpConversation(port, era, token=TOKEN)
        said.append(await spy(house, talk))
        sessions += [talk.headers({"method": "x", "params": {}}).get("mcp-session-id")]
        talk.close()
    assert sessions[0]
    wire = wire_to(port)
    for authorization in (
        f"Bearer {WRONG}",
        f"Basic {WRONG}",
        WRONG,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
    ):
        for frame in BROKEN:
            body = frame.encode()
            head = request_head(body, authorization=authorization, mcp_session_id=WRONG)
            response = await wire.send(head + body)
            said += [json.dumps(response.headers), (await response.body()).decode()]
            assert response.status == 401
    for frame in BROKEN:
        body = frame.encode()
        head = request_head(body, authorization=f"Bearer {TOKEN}", mcp_session_id=sessions[0])
        response = await wire.send(head + body)
        answer = (await response.body()).decode()
        assert ARGUMENT not in answer
        said += [json.dumps(response.headers), answer]
    wire.close()
    await asyncio.sleep(0.01)
    return "\n".join(said), [one for one in sessions if one]


def test_a_generated_token_is_told_once_to_the_person_and_to_nobody_else(house):
    """MCP server, checklist 11: printed once to standard error; images cannot see it."""
    server = house.serve("--http", "127.0.0.1:0")
    try:
        port = port_of(server)
        until(lambda: "token: " in server.errors())
        token = server.errors().partition("token: ")[2].split()[0]

        async def main():
            talk = HttpConversation(port, MODERN, token=token)
            said = await spy(house, talk)
            talk.close()
            await asyncio.sleep(0.01)
            return said

        assert found_in(asyncio.run(main()), (*NEVER, token)) == []
        assert server.errors().count(token) == 1
    finally:
        server.close()


@pytest.mark.contract("trust.approval.token-file")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o666, 0o602])
def test_a_token_file_that_others_can_read_is_made_private_and_told(house, mode):
    """Trust, 10: on the old code it was taken without a word."""
    house.token.chmod(mode)
    server = house.serve("--http", "127.0.0.1:0", "--token-file", str(house.token))
    try:
        port_of(server)
        said = server.errors()
    finally:
        server.close()
    assert f"can be read or written by others (mode {mode:04o}): now only you can" in said
    assert house.token.stat().st_mode & 0o777 == 0o600
    assert TOKEN not in said


@pytest.mark.contract("trust.approval.token-file")
def test_a_file_without_a_token_stays_as_it_is(tmp_path):
    """Trust, 10: named by mistake, it may be one that others have to read."""
    file = tmp_path / "notes"
    file.write_text("many words\nof mine\n")
    file.chmod(0o644)
    with pytest.raises(ServingError, match="visible ASCII"):
        _file_gate(file)
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.contract("trust.approval.token-file")
def test_a_token_file_that_cannot_be_made_private_is_refused(tmp_path, monkeypatch):
    """Trust, 10: with what to do."""

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    monkeypatch.setattr("gramercy.ui.cli.serve.os.fchmod", refuse)
    with pytest.raises(ServingError, match=r"can be read or written by others \(mode 0644\).*chmod 600"):
        _file_gate(file)
