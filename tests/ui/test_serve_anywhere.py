"""`gramercy serve` where there is no project: it starts, says so, and finds another place to work in."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gramercy.errors import SandboxError
from gramercy.images.sandbox import Confinement, why_not
from gramercy.testing.clients import StdioClient, frame
from gramercy.workbench.selection import CLOSING
from gramercy.workbench.site import path_of
from tests.support import until

SERVE = [sys.executable, "-m", "gramercy", "serve"]
GO = 'cd "$0" && exec "$@"'
GO_AND_LOSE_IT = 'cd "$0" && rmdir "$0" && exec "$@"'
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
WHERE = "import os; os.getcwd()"
ERAS = ["2024-11-05", "2025-11-25", MODERN]
needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason=f"{why_not(Confinement.BUBBLEWRAP)}"
)


class Visitor:
    """A client of either era, which names folders when it has any."""

    def __init__(self, era, *command, folders=None, cwd=None, **environment):
        self.raw = StdioClient(*command, cwd=cwd, env={"NO_COLOR": "1", **environment})
        self.era = era
        self.folders = folders
        self.times_asked = 0
        self.capabilities: dict[str, dict[str, str]] = {} if folders is None else {"roots": {}}
        if era == MODERN:
            self.instructions = self.ask("server/discover")["result"]["instructions"]
        else:
            self.instructions = self.raw.initialize(era, **self.capabilities)["instructions"]

    def ask(self, method, **params):
        if self.era == MODERN:
            params["_meta"] = {
                f"{PREFIX}protocolVersion": MODERN,
                f"{PREFIX}clientCapabilities": self.capabilities,
                f"{PREFIX}clientInfo": {"name": "visitor", "version": "1"},
            }
        number = self.raw.begin(method, **params)
        while (message := self.raw.message()).get("id") != number:
            if message.get("method") == "roots/list":
                self.times_asked += 1
                self.raw.send(frame({"id": message["id"], **self.folders}))
        questions = message.get("result", {}).get("inputRequests")
        if questions is None:
            return message
        ((key, question),) = questions.items()
        assert question["method"] == "roots/list"
        self.times_asked += 1
        answers = {key: self.folders["result"]}
        return self.ask(
            method, **params, requestState=message["result"]["requestState"], inputResponses=answers
        )

    def call(self, tool, **arguments):
        """Call a tool and return the texts of its result."""
        result = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return [block["text"] for block in result["content"]]

    def where(self):
        """Return the directory that code is evaluated in, and what else was told."""
        value, *more = self.call("evaluate-python", code=WHERE)
        return value.removeprefix("=> ").strip("'"), " ".join(more)


def roots(*uris):
    return {"result": {"roots": [{"uri": uri} for uri in uris]}}


@pytest.fixture(name="home")
def home_fixture(tmp_path):
    """Return an empty home directory."""
    place = tmp_path / "home"
    place.mkdir()
    return place


@pytest.fixture(name="visit")
def visit_fixture(home):
    """Start servers and be their client; what a test leaves running is ended."""
    opened = []

    def start(era, *options, place=home, script=GO, folders=None):
        words = ["/bin/sh", "-c", script, str(place), *SERVE, *(options or ("--image", "python"))]
        opened.append(Visitor(era, *words, folders=folders, HOME=str(home)))
        return opened[-1]

    yield start
    said = [visitor.raw.errors() for visitor in opened]
    for visitor in opened:
        visitor.raw.close()
    assert "Traceback (" not in "".join(said)


def check_scratch(visitor, reason):
    """Check that a server has told of its empty directory, uses it for everything, and removes it."""
    assert reason in visitor.instructions
    assert visitor.instructions.endswith(CLOSING)
    assert reason in visitor.raw.errors()
    place, told = visitor.where()
    # An image keeps the places of what programs of the person would run.
    kept = {".git", "commondir", ".vscode", ".cursor", ".claude"}
    assert {path.name for path in Path(place).iterdir()} <= kept
    assert reason in told
    assert f"work in {place}, an empty directory that is removed" in told
    assert "--project DIR" in told
    assert visitor.where() == (place, "")
    visitor.call("evaluate-python", code="open('made.txt', 'w').write('made here')")
    assert "made here" in visitor.call("read_file", path="made.txt")[0]
    assert "outside the project" in visitor.call("read_file", path="/etc/passwd")[0]
    assert visitor.raw.hang_up()[1] == 0
    assert not Path(place).parent.exists()


@pytest.mark.parametrize("era", ERAS)
def test_in_the_home_directory_it_serves_an_empty_directory_and_says_why(visit, home, era):
    """Starting anywhere: in $HOME the server starts, serves what it can, and says why."""
    check_scratch(visit(era), f"{home} cannot be the project of an image")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("era", ERAS[1:])
def test_at_the_root_it_serves_an_empty_directory_and_says_why(visit, era):
    """Starting anywhere: in /."""
    check_scratch(visit(era, place="/"), "/ cannot be the project of an image")


@pytest.mark.parametrize("era", ERAS[1:])
def test_in_a_directory_that_is_gone_it_serves_an_empty_one_and_says_why(visit, tmp_path, era):
    """Starting anywhere: in a directory that cannot be a project."""
    (tmp_path / "lost").mkdir()
    visitor = visit(era, place=tmp_path / "lost", script=GO_AND_LOSE_IT)
    check_scratch(visitor, "the directory that this was started in was removed")


@needs_bubblewrap
def test_in_a_directory_that_cannot_be_read_it_serves_an_empty_one(visit, tmp_path):
    """Starting anywhere: without the rights of root, as a person has them."""
    (tmp_path / "closed").mkdir()
    close = """sh -c 'chmod 0 . && exec "$@"' sh"""
    script = f'exec bwrap --dev-bind / / --cap-drop ALL --chdir "$0" -- {close} "$@"'
    visitor = visit("2025-11-25", place=tmp_path / "closed", script=script)
    assert f"{tmp_path / 'closed'} cannot be read" in visitor.instructions
    place, told = visitor.where()
    assert f"work in {place}, an empty directory" in told


@needs_bubblewrap
def test_in_a_directory_that_cannot_be_written_the_folders_of_the_client_come_first(visit, tmp_path):
    """Starting anywhere: programs with windows start servers where they are installed."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "note.txt").write_text("to be read")
    (tmp_path / "garden").mkdir()
    script = 'exec bwrap --dev-bind / / --ro-bind "$0" "$0" --chdir "$0" -- "$@"'
    closed = {"place": tmp_path / "closed", "script": script}
    guided = visit("2025-11-25", folders=roots((tmp_path / "garden").as_uri()), **closed)
    assert guided.where()[0] == str(tmp_path / "garden")
    alone = visit("2025-11-25", **closed)
    text, told = alone.call("read_file", path="note.txt")
    assert "to be read" in text
    assert f"started in {tmp_path / 'closed'}, where nothing can be written" in told


@needs_bubblewrap
def test_where_nothing_can_be_written_at_all_the_tools_say_so(visit):
    """Starting anywhere: a full or read-only disk ends no server."""
    script = 'exec bwrap --ro-bind / / --dev /dev --proc /proc --chdir / -- "$@"'
    visitor = visit("2025-11-25", script=script)
    for tool, arguments in (("evaluate-python", {"code": "1"}), ("read_file", {"path": "x"})):
        (text,) = visitor.call(tool, **arguments)
        assert "No other directory can be made" in text


@pytest.mark.parametrize("era", ERAS)
def test_the_first_usable_folder_of_the_client_is_the_project(visit, home, tmp_path, era):
    """Starting anywhere: the server uses the client's roots when there are any."""
    garden = tmp_path / "größer garden"
    garden.mkdir()
    (garden / "note.txt").write_text("seen")
    (tmp_path / "other").mkdir()
    named = roots(home.as_uri(), "https://example.org/", garden.as_uri(), (tmp_path / "other").as_uri())
    visitor = visit(era, folders=named)
    assert "first folder of the client (roots)" in visitor.instructions
    text, told = visitor.call("read_file", path="note.txt")
    assert "seen" in text
    assert f"The project is {garden}, folder 3 of the 4 that the client names" in told
    assert f"not {home} cannot be the project" in told
    assert visitor.where() == (str(garden), "")
    assert visitor.times_asked == 1


@pytest.mark.contract("journal.policy.layers")
def test_the_rules_of_the_folder_that_the_client_names_hold_from_the_first_call_on(visit, tmp_path):
    """The project is known only then, and so are its rules."""
    garden = tmp_path / "garden"
    garden.mkdir()
    (garden / "gramercy-policy.toml").write_text('[[rules]]\naction = "deny"\ntools = ["evaluate-*"]\n')
    visitor = visit("2025-11-25", folders=roots(garden.as_uri()))
    assert "rule 1 of gramercy-policy.toml:1 says deny" in visitor.call("evaluate-python", code="1")[0]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (roots(), "The client names no folder (roots)"),
        (roots("file:///"), "No folder that the client names (roots) can be a project: / cannot be"),
        (roots("file://elsewhere/home"), "is not a file: URI of this machine"),
        ({"result": {"roots": "/"}}, "The client names no folder"),
        ({"result": {"roots": [1, {}, {"uri": 5}, {"uri": "x" * 9000}]}}, "a root has no uri"),
        ({"result": []}, "the client's answer is no object"),
        ({"error": {"code": -32601, "message": "Method not found"}}, "refused to answer: Method not found"),
    ],
)
def test_folders_that_cannot_be_used_leave_an_empty_directory(visit, answer, told):
    """Roots are the words of a stranger: whatever they are, the call is run and the reply tells."""
    visitor = visit("2025-11-25", folders=answer)
    place, note = visitor.where()
    assert told in note
    assert f"work in {place}, an empty directory" in note


@pytest.mark.slow
def test_a_client_without_an_answer_is_not_waited_for_for_ever(visit):
    """Every wait is bounded, and a program that answers needs no minutes."""
    visitor = visit("2025-11-25", folders=roots())
    number = visitor.raw.begin("tools/call", name="evaluate-python", arguments={"code": WHERE})
    assert visitor.raw.message()["method"] == "roots/list"
    assert visitor.raw.message()["method"] == "notifications/cancelled"
    answer = visitor.raw.message()
    assert answer["id"] == number
    assert "no answer came within 10 s" in answer["result"]["content"][1]["text"]


def test_calls_that_come_together_agree_on_one_place(visit, tmp_path):
    """Both ask, since neither may wait for the other's client; the first answer counts for both."""
    for name in "ab":
        (tmp_path / name).mkdir()
    visitor = visit("2025-11-25", folders=roots())
    calls = [visitor.raw.begin("tools/call", name="evaluate-python", arguments={"code": WHERE}) for _ in "ab"]
    questions = [visitor.raw.message() for _ in "ab"]
    for question, name in zip(questions, "ab", strict=True):
        visitor.raw.send(frame({"id": question["id"], **roots((tmp_path / name).as_uri())}))
    answers = {answer["id"]: answer["result"]["content"] for answer in (visitor.raw.message() for _ in "ab")}
    assert sorted(answers) == calls
    assert all(str(tmp_path / "a") in content[0]["text"] for content in answers.values())


@pytest.mark.parametrize("era", ERAS[1:])
def test_in_a_project_nothing_is_asked_and_nothing_told(visit, tmp_path, era):
    """The place that a person has chosen counts."""
    for name in ("garden", "other"):
        (tmp_path / name).mkdir()
    visitor = visit(era, place=tmp_path / "garden", folders=roots((tmp_path / "other").as_uri()))
    assert visitor.where() == (str(tmp_path / "garden"), "")
    said = [line for line in visitor.raw.errors().splitlines() if "sandbox" not in line]
    assert (visitor.times_asked, said) == (0, [])


@pytest.mark.parametrize("project", ["/", "/nowhere", "~"])
def test_a_chosen_project_that_cannot_be_used_is_told_to_the_client(visit, tmp_path, project):
    """A client shows nothing of a server that does not start; its folders are not what was chosen."""
    (tmp_path / "other").mkdir()
    folders = roots((tmp_path / "other").as_uri())
    visitor = visit("2025-11-25", "--image", "python", "--project", project, folders=folders)
    check_scratch(visitor, "The project cannot be used: ")
    assert visitor.times_asked == 0


@pytest.mark.parametrize("project", ["", "${workspaceFolder}"])
def test_a_folder_that_the_client_has_not_filled_in_was_not_chosen(visit, tmp_path, project):
    """Settings for all projects name the open folder by a variable of the client."""
    (tmp_path / "garden").mkdir()
    folders = roots((tmp_path / "garden").as_uri())
    visitor = visit("2025-11-25", "--image", "python", "--project", project, folders=folders)
    assert visitor.where()[0] == str(tmp_path / "garden")


def test_images_that_a_caller_opens_work_in_the_same_place(visit, tmp_path):
    """One place for all that a server serves."""
    (tmp_path / "garden").mkdir()
    options = ("--image", "python", "--toolset", "session", "--toolset", "images")
    visitor = visit("2025-11-25", *options, folders=roots((tmp_path / "garden").as_uri()))
    handle, told = visitor.call("open_image", language="python")
    assert str(tmp_path / "garden") in told
    (value,) = visitor.call("evaluate-python", code=WHERE, image=handle)
    assert value == f"=> '{tmp_path / 'garden'}'"


def test_a_server_of_files_alone_needs_no_project(home):
    """Tools that need no project are served as everywhere."""
    (home / "mine.py").write_text(
        "from gramercy import tool\n@tool\ndef echo(text: str) -> str:\n    'Repeat it.'\n    return text\n"
    )
    client = StdioClient(*SERVE, "--from", "mine.py", cwd=home, env={"HOME": str(home)})
    try:
        assert "instructions" not in client.initialize(roots={})
        assert client.call("echo", text="x")["content"] == [{"type": "text", "text": "x"}]
        assert client.errors() == ""
    finally:
        client.close()


def test_over_http_the_folders_of_a_client_do_not_count(home):
    """A client over HTTP may be on another machine: its folders mean nothing here."""
    client = StdioClient(
        *SERVE, "--http", "127.0.0.1:0", "--no-auth", "--image", "python", cwd=home, env={"HOME": str(home)}
    )
    try:
        until(lambda: "http://" in client.errors())
        url = re.findall(r"http://\S+", client.errors())[0]
        first, second = (_post(url) for _ in range(2))
    finally:
        client.close()
    assert "an empty directory that is removed" in first["result"]["content"][1]["text"]
    assert "roots" not in first["result"]["content"][1]["text"]
    assert len(second["result"]["content"]) == 1


def _post(url):
    meta = {
        f"{PREFIX}protocolVersion": MODERN,
        f"{PREFIX}clientCapabilities": {"roots": {}},
        f"{PREFIX}clientInfo": {"name": "visitor", "version": "1"},
    }
    call = {"name": "evaluate-python", "arguments": {"code": WHERE}, "_meta": meta}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "evaluate-python",
    }
    body = frame({"id": 1, "method": "tools/call", "params": call})
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b", "/a/b"),
        ("file://localhost/a%20b/%C3%B6", "/a b/ö"),
        ("FILE:///a", "/a"),
        ("file:/a", "/a"),
        ("file:///a%FF", "/a\udcff"),
    ],
)
def test_the_path_of_a_root_is_read_as_it_is_meant(uri, path):
    """RFC 8089: a file URI has an empty or local authority and an encoded path."""
    assert path_of({"uri": uri}) == path


@pytest.mark.parametrize(
    "root",
    [
        *("", "/a", "a", "file:a", "file:", "file://host/a", "http:///a", "file://[/a", "file:///a%00b"),
        *("file:///a?b", "file:///a#b", "x" * 5000, None, 5, ["file:///a"]),
    ],
)
def test_a_root_that_names_no_directory_here_is_refused(root):
    """Roots are the words of a stranger."""
    with pytest.raises(SandboxError):
        path_of({"uri": root})
    with pytest.raises(SandboxError):
        path_of(root)


@pytest.mark.parametrize("place", ["home", "/"])
def test_a_command_in_no_project_evaluates_in_an_empty_directory(home, place):
    """The first thing that people try, in the directory that a terminal opens in."""
    done = subprocess.run(
        [sys.executable, "-m", "gramercy", "eval", WHERE, "--language", "python"],
        cwd=home if place == "home" else place,
        env={**os.environ, "HOME": str(home), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = re.fullmatch(r"'(/.*)'\n", done.stdout)
    assert found, done
    assert f"Images and file tools work in {found[1]}, an empty directory" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path(found[1]).exists()


@pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
@pytest.mark.slow
def test_a_core_that_must_be_built_is_reported_as_progress(tmp_path):
    """Starting anywhere: if the core must be built later, the client gets progress."""
    (tmp_path / "garden").mkdir()
    client = StdioClient(
        *SERVE, "--image", "sbcl", cwd=tmp_path / "garden", env={"XDG_CACHE_HOME": str(tmp_path / "cache")}
    )
    try:
        client.initialize()
        params = {"name": "evaluate-lisp", "arguments": {"code": "(+ 1 2)"}, "_meta": {"progressToken": "p"}}
        number = client.begin("tools/call", **params)
        told = []
        while (message := client.message()).get("id") != number:
            told.append(message["params"])
        text = message["result"]["content"][0]["text"]
        note = r"The SBCL core was built first, once, which took \d+ s: later images start at once\."
        assert re.fullmatch(rf"=> 3\n\n{note}", text)
        again = client.call("evaluate-lisp", code="(+ 1 2)")["content"][0]["text"]
        assert again == "=> 3"
        assert told[0]["message"].startswith("building the SBCL core, once")
        assert [report["progress"] for report in told] == sorted({report["progress"] for report in told})
        assert client.errors().count("building the SBCL core") == 1
    finally:
        client.close()
