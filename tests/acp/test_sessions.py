"""Sessions of an editor: listed, loaded, resumed, closed, deleted; and frames that are none."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy.acp.editor import Editor as RealEditor
from gramercy.acp.engine import AcpEngine
from gramercy.errors import ExecutionError, SourceError
from tests.acp.editors import Editor, Host, Refused, call, script, tool


def hello(host, **params):
    """Return an editor that has shaken hands with an engine of this host."""

    async def shaken():
        editor = Editor(AcpEngine(host))
        editor.greeting = await editor.request("initialize", protocolVersion=1, **params)
        return editor

    return shaken()


def test_the_handshake_tells_version_agent_and_what_it_can():
    """Issue: initialize; a version that we do not speak is answered with the one we do."""

    async def talk():
        editor = await hello(Host(script()))
        again = await editor.request("initialize", protocolVersion=7, clientInfo=None)
        return editor.greeting, again

    found, again = asyncio.run(talk())
    assert found["protocolVersion"] == again["protocolVersion"] == 1
    assert found["agentInfo"]["title"] == "tester"
    assert found["agentCapabilities"]["loadSession"]
    assert set(found["agentCapabilities"]["sessionCapabilities"]) == {
        *("list", "resume", "fork", "close", "delete"),
    }


@pytest.mark.contract("agents.acp.sessions")
def test_a_conversation_is_found_again_and_gone_on_with(tmp_path):
    """Issue: session/list, load with what was said before, resume without it."""
    answers = (["Let me. ", call("look", text="up")], "Seen.")
    host = Host(script(*answers, "Again.", "And again."), [tool("look")])

    async def talk():
        first = await hello(host)
        session = (await first.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        await first.say(session, "look up")
        *shown, title = first.updates
        assert title == {"sessionUpdate": "session_info_update", "title": "look up"}
        # Another process: nothing but the host's memory is the same.
        second = await hello(host)
        [listed] = (await second.request("session/list", cwd=str(tmp_path)))["sessions"]
        assert (listed["sessionId"], listed["title"], listed["cwd"]) == (session, "look up", str(tmp_path))
        await second.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        asked = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "look up"}}
        assert second.updates == [asked, *shown]
        await second.say(session, "and now?")
        third = await hello(host)
        await third.request("session/resume", sessionId=session, cwd=str(tmp_path))
        assert third.updates == []
        await third.say(session, "and then?")

    asyncio.run(talk())
    said = [message.text for message in host.model.requests[3].messages]
    assert said == ["look up", "Let me. ", "done up", "Seen.", "and now?", "Again.", "and then?"]


def test_sessions_are_listed_page_by_page_newest_first(tmp_path):
    host = Host(script())
    for number in range(60):
        host.sessions.begin(f"talk {number}", agent="tester", project=str(tmp_path))
    host.sessions.begin("of another agent", agent="other", project=str(tmp_path))

    async def talk():
        editor = await hello(host)
        first = await editor.request("session/list", cwd=None)
        second = await editor.request("session/list", cursor=first["nextCursor"])
        with pytest.raises(Refused, match="cursor"):
            await editor.request("session/list", cursor="nonsense")
        return first["sessions"], second

    first, second = asyncio.run(talk())
    titles = [each["title"] for each in [*first, *second["sessions"]]]
    assert titles == [f"talk {number}" for number in reversed(range(60))]
    assert "nextCursor" not in second


def test_a_deleted_conversation_is_gone_and_a_closed_one_ends_its_place(tmp_path):
    host = Host(script("Yes.", "Yes."))

    async def talk():
        editor = await hello(host)
        kept = (await editor.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        await editor.say(kept, "stay")
        await editor.request("session/close", sessionId=kept)
        assert host.closed == [str(tmp_path)]
        gone = (await editor.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        await editor.say(gone, "go")
        await editor.request("session/delete", sessionId=gone)
        assert host.closed == [str(tmp_path)] * 2
        listed = (await editor.request("session/list"))["sessions"]
        assert [each["sessionId"] for each in listed] == [kept]
        with pytest.raises(Refused, match="there is no session"):
            await editor.say(kept, "are you there?")

    asyncio.run(talk())


@pytest.mark.contract("agents.acp.unknown-session")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/prompt", {"prompt": []}),
        ("session/load", {"cwd": "/", "mcpServers": []}),
        ("session/resume", {"cwd": "/"}),
        ("session/close", {}),
        ("session/delete", {}),
        ("session/set_mode", {"modeId": "plan"}),
    ],
)
def test_an_unknown_session_is_an_error_that_says_so(method, params):
    """Issue: unknown session; a conversation with another agent is none of this one's."""
    host = Host(script())
    other = host.sessions.begin("private", agent="other")

    async def talk():
        editor = await hello(host)
        for name in ("nobody", other):
            with pytest.raises(Refused, match="there is no session") as found:
                await editor.request(method, sessionId=name, **params)
            assert found.value.code == -32002

    asyncio.run(talk())
    assert host.sessions.session(other) is not None


@pytest.mark.contract("agents.acp.frames")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"nonsense", -32700),
        (b"\xff\xfe", -32700),
        (b"7", -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"session/list"}]', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"here","mcpServers":[]}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/no/such"}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"authenticate","params":{"methodId":"x"}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1"}}', -32602),
        (b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":7}}', None),
        (b'{"jsonrpc":"2.0","method":"session/cancel"}', None),
        (b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":[]}}', None),
        (b'{"jsonrpc":"2.0","method":"_ours/unknown"}', None),
        (b'{"jsonrpc":"2.0","id":99,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":"99","error":"odd"}', None),
    ],
)
def test_every_frame_gets_the_answer_that_it_deserves(frame, code):
    """Issue: bad frames; the engine serves on after each of them."""

    async def talk():
        editor = await hello(Host(script()))
        answer = await editor.frame(frame)
        assert (await editor.request("session/list"))["sessions"] == []
        return answer

    answer = asyncio.run(talk())
    assert (answer and answer["error"]["code"]) == code


def test_nothing_is_served_before_the_handshake(tmp_path):
    async def talk():
        editor = Editor(AcpEngine(Host(script())))
        with pytest.raises(Refused, match="initialize comes first"):
            await editor.request("session/new", cwd=str(tmp_path), mcpServers=[])

    asyncio.run(talk())


@pytest.mark.contract("agents.acp.message")
def test_a_message_is_text_with_the_files_it_points_to(tmp_path):
    """Issue: files by the client's fs, with what is not saved yet; what is no text is refused."""
    model = script("Read.")
    link = {"type": "resource_link", "uri": f"file://{tmp_path}/a%20b.txt", "name": "a b.txt"}
    inside = {"type": "resource", "resource": {"uri": "file:///x.py#L1:2", "text": "```\ncode"}}
    picture = {"type": "image", "data": "", "mimeType": "image/png"}

    async def talk():
        editor = Editor(AcpEngine(Host(model)), {"fs/read_text_file": lambda _: {"content": "unsaved"}})
        session = await editor.begin(tmp_path, {"fs": {"readTextFile": True}})
        words = [{"type": "text", "text": "see "}, link, {"type": "text", "text": " and "}, inside]
        await editor.request("session/prompt", sessionId=session, prompt=words)
        assert editor.asked == [
            ("fs/read_text_file", {"sessionId": session, "path": str(tmp_path / "a b.txt")})
        ]
        with pytest.raises(Refused, match="reads text, not 'image'"):
            await editor.request("session/prompt", sessionId=session, prompt=[picture])
        with pytest.raises(Refused, match="the message is empty"):
            await editor.say(session, "  ")

    asyncio.run(talk())
    said = model.requests[0].messages[0].text
    assert said.startswith(f"see `{tmp_path}/a b.txt` and `/x.py`\n\n")
    assert f"{tmp_path}/a b.txt:\n```\nunsaved\n```" in said
    assert "/x.py (L1:2):\n````\n```\ncode\n````" in said


@pytest.mark.parametrize("uri", ["http://[::1", "file://[x/y", "", "#", "file:relative"])
def test_an_address_that_is_no_file_is_only_named(tmp_path, uri):
    model = script("Read.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        session = await editor.begin(tmp_path, {"fs": {"readTextFile": True}})
        inside = {"type": "resource", "resource": {"uri": uri, "text": "its text"}}
        words = [{"type": "text", "text": "see "}, {"type": "resource_link", "uri": uri, "name": "x"}, inside]
        await editor.request("session/prompt", sessionId=session, prompt=words)

    asyncio.run(talk())
    assert "its text" in model.requests[0].messages[0].text


@pytest.mark.parametrize("cwd", ["/a\0b", "/" + "x" * 5_000, "relative", ""])
def test_a_directory_that_cannot_be_one_is_refused_in_words(cwd):
    """Never as an internal error: it is the editor's request that is wrong."""

    async def talk():
        editor = await hello(Host(script()))
        with pytest.raises(Refused, match=r"cwd must be|there is no directory") as refused:
            await editor.request("session/new", cwd=cwd, mcpServers=[])
        assert refused.value.code == -32602
        if cwd:
            answers = await asyncio.gather(editor.request("session/list", cwd=cwd), return_exceptions=True)
            assert [getattr(each, "code", -32602) for each in answers] == [-32602]

    asyncio.run(talk())


def test_a_conversation_that_another_program_went_on_with_is_loaded_again(tmp_path):
    """The error says «resume it again», and so it can be done without closing it."""
    host = Host(script("One.", "Elsewhere.", "Three."))

    async def talk():
        here, there = await hello(host), await hello(host)
        params = {"cwd": str(tmp_path), "mcpServers": []}
        session = (await here.request("session/new", **params))["sessionId"]
        await here.say(session, "first")
        await there.request("session/load", sessionId=session, **params)
        await there.say(session, "second")
        with pytest.raises(Refused, match="another program has gone on"):
            await here.say(session, "third")
        await here.request("session/load", sessionId=session, **params)
        await here.say(session, "third")

    asyncio.run(talk())
    said = [message.text for message in host.model.requests[-1].messages]
    assert said == ["first", "One.", "second", "Elsewhere.", "third"]


@pytest.mark.contract("agents.acp.sessions")
def test_a_fork_goes_on_from_a_session_and_leaves_it_as_it_is(tmp_path):
    """Protocol, draft: session/fork."""
    host = Host(script("One.", "Two.", "Other two.", "New."))

    async def talk():
        editor = await hello(host)
        params = {"cwd": str(tmp_path), "mcpServers": []}
        first = (await editor.request("session/new", **params))["sessionId"]
        empty = (await editor.request("session/fork", sessionId=first, **params))["sessionId"]
        await editor.say(first, "first")
        made = await editor.request("session/fork", sessionId=first, cwd=str(tmp_path))
        assert made["modes"]["currentModeId"] == "ask"
        await editor.say(first, "second")
        await editor.say(made["sessionId"], "other")
        await editor.say(empty, "new")
        with pytest.raises(Refused, match="there is no session"):
            await editor.request("session/fork", sessionId="nothing", **params)
        return first, made["sessionId"], empty

    kept = [[each.text for each in host.sessions.messages(name)] for name in asyncio.run(talk())]
    assert kept == [
        ["first", "One.", "second", "Two."],
        ["first", "One.", "other", "Other two."],
        ["new", "New."],
    ]


class SlowHost(Host):
    """Opens a place on a thread that waits until it is let go."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.begun, self.goes_on, self.ended = (threading.Event() for _ in range(3))
        self.is_broken = False

    @contextmanager
    def open(self, *about):
        self.begun.set()
        assert self.goes_on.wait(60)
        if self.is_broken:
            raise SourceError("nothing opens here")
        with super().open(*about) as place:
            yield place
        self.ended.set()


@pytest.mark.parametrize("method", ["session/new", "session/fork"])
def test_what_is_opened_for_a_request_that_was_cancelled_is_closed(tmp_path, method):
    host = SlowHost(script())
    host.sessions.begin("old", agent="tester", name="known")
    host.sessions.add("known", "user", "hello")

    async def talk():
        editor = await hello(host)
        params = {"sessionId": "known", "cwd": str(tmp_path), "mcpServers": []}
        message = {"jsonrpc": "2.0", "id": "mine", "method": method, "params": params}
        waiting = asyncio.ensure_future(editor.frame(json.dumps(message).encode()))
        await asyncio.to_thread(host.begun.wait, 10)
        editor.notify("$/cancel_request", requestId="mine")
        answer = await asyncio.wait_for(waiting, 60)
        assert answer["error"]["code"] == -32800
        host.goes_on.set()
        assert await asyncio.to_thread(host.ended.wait, 10)
        host.is_broken = True
        with pytest.raises(Refused, match="nothing opens here"):
            await editor.request(method, **params)

    asyncio.run(talk())
    assert host.closed == [str(tmp_path)]
    assert [each.id for each in host.sessions.sessions()] == ["known"]


def test_nobody_waits_for_an_editor_that_has_gone():
    async def talk():
        editor = RealEditor()
        with pytest.raises(ExecutionError, match="has gone"):
            await asyncio.wait_for(editor.ask("fs/read_text_file", {}), 60)

    asyncio.run(talk())


def test_a_request_that_the_editor_cancels_stops(tmp_path):
    """Protocol: $/cancel_request."""
    begun = asyncio.Event()

    async def wait(_):
        begun.set()
        await asyncio.Event().wait()

    host = Host(script(call("erase", text="all")), [tool("erase", "dangerous")])

    async def talk():
        editor = Editor(AcpEngine(host), {"session/request_permission": wait})
        session = await editor.begin(tmp_path)
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        message = {"jsonrpc": "2.0", "id": "mine", "method": "session/prompt", "params": prompt}
        waiting = asyncio.ensure_future(editor.frame(json.dumps(message).encode()))
        await asyncio.wait_for(begun.wait(), 60)
        editor.notify("$/cancel_request", requestId="mine")
        answer = await asyncio.wait_for(waiting, 60)
        editor.drop()
        return answer

    answer = asyncio.run(talk())
    assert answer["error"]["code"] == -32800


def test_a_session_that_answers_is_neither_loaded_nor_left_behind(tmp_path):
    """Two windows of an editor may know the same session; one that is closed meanwhile ends in order."""
    begun = asyncio.Event()

    async def wait(_):
        begun.set()
        await asyncio.Event().wait()

    host = Host(script(call("erase", text="all"), "Gone."), [tool("erase", "dangerous")])

    async def talk():
        editor = Editor(AcpEngine(host), {"session/request_permission": wait})
        session = await editor.begin(tmp_path)
        waiting = asyncio.ensure_future(editor.say(session, "erase"))
        await asyncio.wait_for(begun.wait(), 60)
        with pytest.raises(Refused, match="is being answered"):
            await editor.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        await editor.request("session/close", sessionId=session)
        assert await asyncio.wait_for(waiting, 60) == "cancelled"
        editor.drop()
        return session

    session = asyncio.run(talk())
    assert host.closed == [str(tmp_path)]
    roles = [each.role for each in host.sessions.messages(session)]
    assert roles == ["user", "assistant", "tool"]


def test_a_session_is_opened_once_however_often_that_is_asked(tmp_path):
    host = Host(script("Hello."))
    session = host.sessions.begin("old", agent="tester", project=str(tmp_path))

    async def talk():
        editor = await hello(host)
        params = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        asked = [editor.request("session/load", **params) for _ in range(5)]
        asked.append(editor.say(session, "hello"))
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(talk())
    assert sum(isinstance(each, dict) for each in found) == 1
    told = [str(each) for each in found if isinstance(each, Refused)]
    assert len(told) == 5
    assert all("being opened" in each or "there is no session" in each for each in told)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
METHODS = [
    "initialize",
    "authenticate",
    "session/new",
    "session/load",
    "session/resume",
    "session/fork",
    "session/list",
    "session/close",
    "session/delete",
    "session/set_mode",
    "session/prompt",
    "session/cancel",
    "$/cancel_request",
]
NAMES = ["sessionId", "cwd", "mcpServers", "prompt", "modeId", "cursor", "protocolVersion", "requestId"]
PARAMS = st.dictionaries(st.sampled_from(NAMES), JSON | st.just("known") | st.just("/"), max_size=5)


@pytest.mark.contract("agents.acp.frames")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(METHODS), PARAMS | JSON, JSON), min_size=1, max_size=6))
def test_whatever_is_asked_gets_one_answer(frames):
    """Issue: bad frames; a request has an answer with its id, a notification has none."""
    host = Host(script(*["Hm."] * 10))
    host.sessions.begin("old", agent="tester", name="known")

    async def talk():
        editor = await hello(host)
        for method, params, number in frames:
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            answer = await editor.frame(json.dumps(message).encode())
            assert answer is not None
            assert ("result" in answer) is not ("error" in answer)
            if isinstance(number, str) or (isinstance(number, int) and not isinstance(number, bool)):
                assert answer.get("id") == number
            assert answer.get("error", {}).get("code") != -32603, answer
            message.pop("id")
            assert await editor.frame(json.dumps(message).encode()) is None
        await editor.request("session/list")

    asyncio.run(talk())
