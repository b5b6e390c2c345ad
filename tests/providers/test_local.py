"""Models inside the process: what is asked of the library, what comes of its answers, what it lacks."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from gramercy.errors import CutStreamError, ModelUnavailableError, ProviderError
from gramercy.gram.agents import ModelName
from gramercy.providers import local
from gramercy.providers.base import (
    CallPart,
    Message,
    ModelCall,
    OfferedTool,
    Request,
    StopPart,
    TextPart,
    ThoughtPart,
    Usage,
    UsagePart,
)
from gramercy.providers.grammar import ANSWERING
from gramercy.providers.model_files import find_model
from gramercy.providers.opening import open_provider
from tests.providers.library import Library, chunk, said

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
HELLO = OfferedTool("sayHello", "Greets", NAMED)
ASKED = Request("demo", (Message("user", "Hello, I am Ada"),), "Greet.", (HELLO,))
CALL = '{"tool": "sayHello", "arguments": {"name": "Ada"}}'
BOUND = 60


def answered(library, request=ASKED):
    async def asked():
        return [part async for part in library.provider().chat(request)]

    return asyncio.run(asyncio.wait_for(asked(), BOUND))


def after(result, *, is_error=False):
    """Return the request after the call of Ada's greeting."""
    made = Message("assistant", "", (ModelCall("call_1", "sayHello", '{"name":"Ada"}'),))
    told = Message("tool", result, call_id="call_1", is_error=is_error)
    return Request("demo", (*ASKED.messages, made, told), "Greet.", (HELLO,))


def test_a_call_comes_whole_with_a_name_that_no_other_has():
    library = Library(said('{"tool": "say', 'Hello", "arguments": {"na', 'me": "Ada"}}'))
    assert answered(library) == [
        CallPart(ModelCall("call_1", "sayHello", '{"name":"Ada"}')),
        UsagePart(Usage(11, 7)),
        StopPart("calls"),
    ]


def test_the_text_of_an_answer_streams_without_its_json():
    library = Library(said('{"answer": "Hel', "lo, A", 'da!"}'))
    parts = answered(library)
    assert [part.text for part in parts if isinstance(part, TextPart)] == ["Hel", "lo, A", "da!"]
    assert parts[-1] == StopPart("end")


def test_the_library_is_asked_with_the_grammar_at_no_temperature():
    library = Library(said(CALL), said("plain"))
    answered(library)
    answered(library, Request("demo", ASKED.messages, max_tokens=9, temperature=0.5))
    with_tools, without = library.bodies
    assert with_tools["json_schema"]["anyOf"][0]["properties"]["tool"] == {"const": "sayHello"}
    assert (with_tools["temperature"], with_tools["max_tokens"]) == (0, local.MOST_TOKENS)
    assert "json_schema" not in without
    assert (without["temperature"], without["max_tokens"]) == (0.5, 9)


def test_what_a_model_thinks_aloud_is_no_part_of_its_answer():
    thinking = [chunk({"reasoning_content": "hm"}), *said("Hello")]
    parts = answered(Library(thinking), Request("demo", ASKED.messages))
    assert parts[0] == ThoughtPart("hm")
    assert [part.text for part in parts if isinstance(part, TextPart)] == ["Hello"]


@pytest.mark.contract("agents.local.half")
def test_a_call_that_was_cut_off_says_so():
    """The loop answers it as malformed, and does not run it."""
    parts = answered(Library(said('{"tool": "sayHello", "arguments": {"name": "Ad', reason="length")))
    assert parts[0] == CallPart(ModelCall("call_1", "sayHello", '{"name": "Ad'))
    assert parts[-1] == StopPart("length")


def test_an_answer_without_a_reason_is_cut():
    with pytest.raises(CutStreamError):
        answered(Library(said(CALL)[:2]))


def test_a_call_that_was_just_made_is_not_made_again_but_told():
    """Small models go in circles otherwise; the tokens of both questions are counted."""
    library = Library(said(CALL), said('{"answer": "Hello, Ada!"}'))
    parts = answered(library, after("Hello, Ada!"))
    assert parts == [TextPart("Hello, Ada!"), UsagePart(Usage(22, 14)), StopPart("end")]
    assert library.bodies[1]["json_schema"] == ANSWERING


@pytest.mark.parametrize(
    ("written", "request_"),
    [
        (CALL, after("no such person", is_error=True)),
        (CALL.replace("Ada", "Bob"), after("Hello, Ada!")),
        (CALL, Request("demo", (*after("Hello, Ada!").messages, Message("user", "Again")), "", (HELLO,))),
    ],
    ids=["after-a-failure", "another-call", "asked-again"],
)
def test_other_calls_are_made(written, request_):
    library = Library(said(written))
    assert answered(library, request_)[-1] == StopPart("calls")


def test_a_question_that_is_too_long_is_told_with_the_way_out():
    fault = {
        "code": 400,
        "message": "x",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9,
        "n_ctx": 8,
    }
    with pytest.raises(ProviderError, match=r"9 tokens, .* reads 8: .*GRAMERCY_LOCAL_CONTEXT") as caught:
        answered(Library([{"error": fault}]))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "answer", [[{"error": {"code": 500, "message": "out of order"}}], ValueError("out of order")]
)
def test_what_the_library_says_is_wrong_is_told(answer):
    with pytest.raises(ProviderError, match=r"the local model demo\.gguf failed: out of order"):
        answered(Library(answer))


@pytest.mark.contract("agents.local.stopped")
def test_the_event_loop_goes_on_while_the_model_thinks():
    gate = threading.Event()
    library = Library(said('{"answer": "Hi"}'), gate=gate)

    async def asked():
        got = []
        async for part in library.provider().chat(ASKED):
            # Only this event loop can open the gate: the first part has come before the last one was there.
            gate.set()
            got.append(part)
        return got

    assert asyncio.run(asyncio.wait_for(asked(), BOUND))[0] == TextPart("Hi")
    assert library.threads[0] is not threading.main_thread()


@pytest.mark.contract("agents.local.stopped")
def test_an_answer_that_nobody_waits_for_is_stopped():
    library = Library([*said(*["word "] * 100_000)[:-2], *said("end")])

    async def asked():
        parts: Any = library.provider().chat(Request("demo", ASKED.messages))
        async for _ in parts:
            break
        await parts.aclose()

    asyncio.run(asyncio.wait_for(asked(), BOUND))
    library.threads[0].join(BOUND)
    assert not library.threads[0].is_alive()
    assert library.told < 100_000


def test_a_cancelled_run_stops_the_model():
    library = Library(said(*["word "] * 100_000))

    async def asked(began):
        async for _ in library.provider().chat(Request("demo", ASKED.messages)):
            began.set()

    async def cancelled():
        began = asyncio.Event()
        task = asyncio.create_task(asked(began))
        await began.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(cancelled(), BOUND))
    library.threads[0].join(BOUND)
    assert library.told < 100_000


def test_without_the_package_the_way_to_get_it_is_told(monkeypatch, tmp_path):
    (tmp_path / "my.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelUnavailableError, match=r"pip install 'gramercy\[local\]'"):
        open_provider(ModelName("local", f"{tmp_path}/my.gguf"))


@pytest.mark.parametrize("value", ["0", "many", "-1"])
def test_a_wrong_setting_is_named(monkeypatch, tmp_path, value):
    pytest.importorskip("xllamacpp")
    (tmp_path / "my.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("GRAMERCY_LOCAL_THREADS", value)
    with pytest.raises(ModelUnavailableError, match=f"GRAMERCY_LOCAL_THREADS is '{value}'"):
        open_provider(ModelName("Local", f"{tmp_path}/my.gguf"))


@pytest.fixture(name="models")
def models_fixture(monkeypatch, tmp_path):
    """Return an empty directory of models."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    directory = tmp_path / "gramercy" / "models"
    directory.mkdir(parents=True)
    return directory


def test_a_model_is_found_by_its_name_or_the_beginning_of_it(models):
    for name in ("SmolLM2-135M-Instruct", "Qwen-1", "Qwen-1-Coder"):
        (models / f"{name}.gguf").write_bytes(b"GGUF")
    assert find_model("smollm2").stem == "SmolLM2-135M-Instruct"
    assert find_model("QWEN-1").stem == "Qwen-1"
    with pytest.raises(ModelUnavailableError, match="there is no local model 'Qwen': "):
        find_model("Qwen")


def test_a_model_is_found_by_its_path(models, monkeypatch):
    (models / "my.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(models)
    assert find_model("my.gguf").name == "my.gguf"
    assert find_model(str(models / "my.gguf")) == models / "my.gguf"


def test_a_model_that_can_be_fetched_says_how(models):
    del models
    with pytest.raises(ModelUnavailableError, match=r"`gramercy models install` \(93 MB, once\)"):
        find_model("SmolLM2-135M-instruct")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SmalLM2-135M-Instruct", "did you mean Local/SmolLM2-135M-Instruct?"),
        ("nothing", "there are SmolLM2-135M-Instruct; or give a path"),
        ("nothing.gguf", "cannot be read: No such file"),
        ("../text.gguf", "is no model: expected a file in the format gguf"),
    ],
)
def test_a_wrong_name_is_told_in_one_line(models, monkeypatch, name, text):
    monkeypatch.chdir(models)
    (models.parent / "text.gguf").write_text("hello")
    with pytest.raises(ModelUnavailableError) as caught:
        find_model(name)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x.gguf", "a\0b.gguf", "x" * 5000 + ".gguf"])
def test_a_path_that_can_be_none_is_told_in_one_line(name):
    with pytest.raises(ModelUnavailableError, match="cannot be read") as told:
        find_model(name)
    assert "\n" not in str(told.value)


def test_a_damaged_file_is_told_in_one_line(models):
    pytest.importorskip("xllamacpp")
    (models / "bad.gguf").write_bytes(b"GGUF" + b"x" * 100)
    request = Request("bad", ASKED.messages)

    async def asked():
        return [part async for part in open_provider(ModelName("Local", "bad")).chat(request)]

    with pytest.raises(ModelUnavailableError, match="cannot be loaded: the file is damaged"):
        asyncio.run(asyncio.wait_for(asked(), BOUND))
