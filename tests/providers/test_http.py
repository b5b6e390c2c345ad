"""What goes wrong between us and a service, and what a person is told of it."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import traceback
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gramercy.errors import CutStreamError, ModelUnavailableError, ProviderError
from gramercy.providers import bodies
from gramercy.providers.anthropic import AnthropicProvider
from gramercy.providers.base import Message, Request, StopPart, TextPart
from gramercy.providers.bodies import read_events
from gramercy.providers.http import Patience
from gramercy.providers.openai import OpenAIProvider
from gramercy.providers.services import SERVICES
from tests.providers.service import Reply, Service, refusal, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "sk-test-secret-1234567890"
HELLO = Request("demo", (Message("user", "hi"),))
QUICK = Patience(first_wait=0.01, silence=0.3)
LATE = Patience(first_wait=10, silence=5, longest_wait=1)


def said(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


HI = stream(said("hi", "stop"), done="[DONE]")


def ask(provider: Any, request: Request = HELLO) -> list[Any]:
    """Ask once; an error ends what came."""

    async def asked() -> list[Any]:
        got: list[Any] = []
        try:
            async for part in provider.chat(request):
                got.append(part)  # noqa: PERF401 - what came before an error counts
        except ProviderError as error:
            got.append(error)
        await provider.aclose()
        return got

    return asyncio.run(asyncio.wait_for(asked(), 60))


def ask_openai(service: Service, patience: Patience = QUICK) -> list[Any]:
    return ask(OpenAIProvider(address=f"{service.address}/v1", key=KEY, patience=patience))


@pytest.mark.parametrize(
    "header",
    [
        {"retry_after": "0.2"},
        {"retry_after_ms": "200", "retry_after": "60"},
        {"retry_after": "at noon"},
        {"retry_after": "-3"},
    ],
)
@pytest.mark.contract("agents.wire.retries")
def test_a_service_says_how_long_to_wait(header):
    quick = Patience(first_wait=0.01, longest_wait=1)
    with Service(refusal(429, {"error": {"message": "not now"}}, **header), HI) as service:
        began = monotonic()
        assert ask_openai(service, quick)[-1] == StopPart("end")
    assert len(service.asked) == 2
    if header.get("retry_after") in ("0.2", "60"):
        assert 0.2 <= monotonic() - began < 30


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_long_wait_is_left_to_the_person(form):
    late = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True)
    wait = "3600" if form == "seconds" else late
    with Service(refusal(429, {"error": {"message": "too much"}}, retry_after=wait), HI) as service:
        (error,) = ask_openai(service)
    assert 3500 < error.retry_after <= 3600
    assert "it asks to wait 3" in str(error)
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        refusal(400, {"error": {"message": "bad schema"}}),
        refusal(429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        refusal(401, {"error": "no"}),
        refusal(402, {"error": {"message": "Insufficient credits"}}),
    ],
    ids=["malformed", "quota", "key", "credits"],
)
@pytest.mark.contract("agents.wire.retries")
def test_what_will_not_pass_is_asked_once(reply):
    with Service(reply, HI) as service:
        (error,) = ask_openai(service)
    assert isinstance(error, ProviderError)
    assert len(service.asked) == 1


@pytest.mark.contract("agents.wire.retries")
@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached on requests per min; add a payment method at https://x/account/billing.",
        "Calls have exceeded the rate limit of your tier. Retry after 9 seconds, or see https://x/quotaincrease",
        "Quota exceeded for quota metric 'Generate Content API requests per minute'",
    ],
    ids=["OpenAI", "Azure", "Google"],
)
def test_who_asks_too_often_is_not_taken_for_one_who_does_not_pay(message):
    with Service(refusal(429, {"error": {"message": message}}), HI) as service:
        assert ask_openai(service)[-1] == StopPart("end")
    assert len(service.asked) == 2


@pytest.mark.contract("agents.wire.model-names")
@pytest.mark.parametrize("kind", [OpenAIProvider, AnthropicProvider])
@pytest.mark.parametrize(
    ("models", "hint"),
    [
        ({"data": [{"id": "other"}, {"id": "demo-1"}]}, "no such model; did you mean demo-1?"),
        ({"data": [{"id": "gpt"}, {"id": "o3"}]}, "no such model; it has gpt, o3"),
        ({"data": "nonsense"}, "no such model"),
        ([], "no such model"),
    ],
)
def test_a_model_that_is_not_there_is_told_what_is(kind, models, hint):
    with Service(refusal(404, {"error": {"message": "no such model"}}), refusal(200, models)) as service:
        (error,) = ask(kind(address=f"{service.address}/v1", key=KEY, patience=QUICK))
    assert isinstance(error, ModelUnavailableError)
    assert str(error).endswith(hint)
    first, second = service.asked
    assert second.path == "/v1/models"
    name = "x-api-key" if kind is AnthropicProvider else "authorization"
    assert second.headers[name] == first.headers[name]


@pytest.mark.contract("agents.wire.silence")
def test_a_service_that_says_nothing_is_given_up():
    with Service(Reply(is_silent=True)) as service:
        (error,) = ask_openai(service)
    assert "said nothing for 0.3 seconds" in str(error)
    assert len(service.asked) == 1


@pytest.mark.contract("agents.wire.silence")
def test_how_long_silence_is_borne_can_be_set(monkeypatch):
    monkeypatch.setenv("GRAMERCY_MODEL_SILENCE", "1")
    with Service(Reply(is_silent=True)) as service:
        (error,) = ask(OpenAIProvider(address=service.address, key=KEY))
    assert "said nothing for 1 seconds" in str(error)
    for wrong in ("0", "-1", "soon", "9" * 400):
        monkeypatch.setenv("GRAMERCY_MODEL_SILENCE", wrong)
        with pytest.raises(ModelUnavailableError, match="expected seconds"):
            OpenAIProvider(key=KEY)


@pytest.mark.contract("agents.wire.silence")
def test_a_service_that_falls_silent_is_given_up():
    with Service(stream(said("Hel"), hang=True)) as service:
        first, error = ask_openai(service)
    assert first == TextPart("Hel")
    assert isinstance(error, CutStreamError)
    assert "fell silent for 0.3 seconds" in str(error)


@pytest.mark.contract("agents.wire.first-token")
def test_the_first_words_do_not_wait_for_the_next():
    with Service(stream(said("Hel"), hang=True)) as service:
        provider = OpenAIProvider(address=f"{service.address}/v1", key=KEY, patience=LATE)

        async def first() -> Any:
            parts: Any = provider.chat(HELLO)
            part = await anext(parts)
            await parts.aclose()
            await provider.aclose()
            return part

        assert asyncio.run(asyncio.wait_for(first(), 60)) == TextPart("Hel")


@pytest.mark.contract("agents.wire.silence")
def test_a_question_can_be_cancelled():
    with Service(Reply(is_silent=True)) as service:
        provider = OpenAIProvider(address=f"{service.address}/v1", key=KEY, patience=LATE)

        async def cancelled() -> None:
            task = asyncio.ensure_future(anext(aiter(provider.chat(HELLO))))
            while not service.asked:  # noqa: ASYNC110 - the service has an event loop of its own
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The service need not go on with what nobody waits for.
            assert await asyncio.to_thread(service.left.wait, 30)
            await provider.aclose()

        asyncio.run(asyncio.wait_for(cancelled(), 60))


@pytest.mark.contract("agents.wire.silence")
@pytest.mark.parametrize("kind", [OpenAIProvider, AnthropicProvider])
def test_an_answer_that_is_left_closes_its_connection(kind):
    thought = {"type": "content_block_delta", "index": 0, "delta": {"thinking": "hm"}}
    both = {**said("Hel"), **thought}
    with Service(stream(both, hang=True)) as service:
        provider = kind(address=f"{service.address}/v1", key=KEY, patience=LATE)

        async def left() -> None:
            parts: Any = provider.chat(HELLO)
            await anext(parts)
            await parts.aclose()
            assert await asyncio.to_thread(service.left.wait, 30)
            await provider.aclose()

        asyncio.run(asyncio.wait_for(left(), 60))


@pytest.mark.parametrize("kind", [OpenAIProvider, AnthropicProvider])
def test_the_questions_of_a_conversation_share_a_connection(kind):
    """A stream that is left at its end mark loses its connection: each turn had to open a new one."""
    ended = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    reply = HI if kind is OpenAIProvider else stream(*ended)
    with Service(reply) as service:
        provider = kind(address=f"{service.address}/v1", key=KEY, patience=QUICK)

        async def thrice() -> None:
            for _ in range(3):
                assert [part async for part in provider.chat(HELLO)][-1] == StopPart("end")
            await provider.aclose()

        asyncio.run(asyncio.wait_for(thrice(), 60))
    assert (len(service.asked), service.connections) == (3, 1)


def test_an_answer_does_not_wait_for_a_service_that_holds_its_connection():
    held = stream(said("hi", "stop"), b"data: [DONE] \n\n", hang=True)
    with Service(held) as service:
        provider = OpenAIProvider(address=f"{service.address}/v1", key=KEY, patience=Patience())
        assert ask(provider)[-1] == StopPart("end")


@pytest.mark.parametrize("service", [each for each in SERVICES if each.start], ids=lambda each: each.name)
def test_a_server_of_ones_own_that_does_not_run_is_told_how_to_start(service):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        (error,) = ask(OpenAIProvider(service, address=address))
    assert isinstance(error, ModelUnavailableError)
    assert service.start in str(error)
    assert address in str(error)


def test_a_service_that_cannot_be_reached_is_named():
    patience = Patience(first_wait=0.01, connecting=0.1, tries=2)
    (error,) = ask(OpenAIProvider(address="http://nowhere.invalid/v1", key=KEY, patience=patience))
    assert "OpenAI is not reached at http://nowhere.invalid/v1" in str(error)


@pytest.mark.contract("agents.wire.addresses")
def test_redirects_are_not_followed():
    with Service(HI) as other, Service(Reply([], 307, headers={"location": other.address})) as service:
        (error,) = ask_openai(service)
    assert isinstance(error, ModelUnavailableError)
    assert error.status == 307
    assert f"sends questions on to {other.address}" in str(error)
    assert "is OPENAI_BASE_URL right?" in str(error)
    assert not other.asked


def test_a_page_is_no_answer():
    with Service(Reply([b"<html>login</html>"], kind="text/html; charset=utf-8")) as service:
        (error,) = ask_openai(service)
    assert isinstance(error, ModelUnavailableError)
    assert "text/html" in str(error)
    assert "is OPENAI_BASE_URL right?" in str(error)


def test_an_answer_that_comes_at_once_is_taken():
    message = {"role": "assistant", "content": "hi", "tool_calls": []}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with Service(refusal(200, whole)) as service:
        assert ask_openai(service) == [TextPart("hi"), StopPart("end")]


@pytest.mark.parametrize(("code", "asked"), [(502, 2), (None, 2), (400, 1)])
@pytest.mark.contract("agents.wire.retries")
def test_an_error_inside_of_a_stream_is_tried_again_before_the_first_words(code, asked):
    error = {"error": {"message": "upstream failed", "code": code}}
    with Service(stream(error), HI) as service:
        got = ask_openai(service)
    assert len(service.asked) == asked
    assert asked == 2 or "upstream failed" in str(got[0])
    with Service(stream(said("Hel"), error), HI) as service:
        first, told = ask_openai(service)
    assert (first, len(service.asked)) == (TextPart("Hel"), 1)
    assert "upstream failed" in str(told)


def test_an_event_that_is_not_json_cuts_the_answer():
    with Service(stream(said("Hel"), b"data: {nonsense\n\n")) as service:
        got = ask_openai(service)
    assert isinstance(got[-1], CutStreamError)


def test_an_endless_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(bodies, "LARGEST_ANSWER", 10_000)
    with Service(stream(*[said("x" * 100)] * 200)) as service:
        got = ask_openai(service)
    assert "longer than" in str(got[-1])
    monkeypatch.setattr(bodies, "LARGEST_EVENT", 1000)
    with Service(stream(b"data: " + b"x" * 2000)) as service:
        (error,) = ask_openai(service)
    assert "longer than" in str(error)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_wherever_they_are_cut(size):
    first = 'event: x\r\n: note\r\ndata: {"a": "☃\u2028\x85"}\r\n\r\n'
    data = f"{first}\ndata:1\ndata: 2\nid: 3\n\nretry: 5\n\ndata: [DONE]".encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    async def read() -> list[bytes]:
        return [each async for each in read_events(chunks())]

    assert asyncio.run(read()) == ['{"a": "☃\u2028\x85"}'.encode(), b"1\n2", b"[DONE]"]


@pytest.mark.contract("agents.wire.keys")
def test_the_key_is_in_no_text(caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OTHER_API_KEY", "another-secret-0987")
    reply = refusal(401, {"error": {"message": f"bad {KEY} and another-secret-0987"}})
    shown = []
    for kind in (OpenAIProvider, AnthropicProvider):
        with Service(reply) as service:
            provider = kind(address=service.address, key=KEY)
            (error,) = ask(provider)
        shown += [repr(provider), *traceback.format_exception(error)]
    with Service(stream(said("Hel"), is_whole=False)) as service:
        shown += traceback.format_exception(ask_openai(service)[-1])
    text = "".join([*shown, caplog.text])
    assert "bad (key) and (key)" in text
    assert KEY not in text
    assert "another-secret-0987" not in text


def test_a_key_that_is_none_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel-42")
    with pytest.raises(ModelUnavailableError, match="OPENAI_API_KEY") as told:
        OpenAIProvider()
    assert "schl" not in str(told.value)
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    with Service(HI) as service:
        ask(OpenAIProvider(address=service.address))
    assert service.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.contract("agents.wire.keys")
def test_a_key_comes_from_the_keyring_where_there_is_one(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    ring: Any = ModuleType("keyring")
    ring.get_password = lambda service, name: {("gramercy", "ANTHROPIC_API_KEY"): KEY}.get((service, name))
    monkeypatch.setitem(sys.modules, "keyring", ring)
    with Service(refusal(400, {})) as service:
        ask(AnthropicProvider(address=service.address))
    assert service.asked[0].headers["x-api-key"] == KEY
    ring.get_password = lambda *_: SimpleNamespace().nothing
    with Service(refusal(400, {})) as service:
        ask(AnthropicProvider(address=service.address))
    assert "x-api-key" not in service.asked[0].headers


@pytest.mark.parametrize(
    "address",
    ["nonsense", "ftp://x/v1", "http://", "http://x:port/", "http://[x", "http://a b/v1", "http://a\x7fb/v1"],
)
def test_an_address_that_is_none_is_refused(address, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(ModelUnavailableError, match="set OPENAI_BASE_URL"):
        OpenAIProvider(key=KEY)


def test_a_host_that_cannot_be_looked_for_is_refused_when_it_is_asked():
    (error,) = ask(OpenAIProvider(address="http://xn--/v1", key=KEY))
    assert isinstance(error, ModelUnavailableError)
    assert "set OPENAI_BASE_URL" in str(error)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/gate", "/gate/chat/completions"),
    ],
)
@pytest.mark.contract("agents.wire.addresses")
def test_a_server_of_ones_own_is_found_below_its_path(written, asked):
    """Ollama's own programs write its address without /v1; there it knows no conversations."""
    (ollama,) = (each for each in SERVICES if each.name == "Ollama")
    with Service(HI) as service:
        ask(OpenAIProvider(ollama, address=service.address + written))
    assert service.asked[0].path == asked


def test_an_address_without_a_path_is_suspected_when_nothing_is_there():
    with Service(refusal(404, {"detail": "Not Found"})) as service:
        (error,) = ask(OpenAIProvider(address=service.address, key=KEY))
    assert "is OPENAI_BASE_URL right? https://api.openai.com/v1 has a path" in str(error)
    assert str(OpenAIProvider(address="https://api.openai.com", key=KEY)._wire.access).endswith(".com/v1")


@pytest.mark.parametrize("written", ["/gate", "/gate/", "/gate/v1", "/gate/v1/", "/gate?version=3"])
def test_addresses_are_written_in_several_ways(written):
    with Service(refusal(400, {})) as service:
        ask(AnthropicProvider(address=service.address + written, key=KEY))
    path, _, query = service.asked[0].path.partition("?")
    assert path == "/gate/v1/messages"
    assert query == ("version=3" if "?" in written else "")


def test_a_password_in_an_address_is_not_shown():
    provider = OpenAIProvider(address="http://ada:secret@127.0.0.1:9/v1?token=x", key=KEY)
    assert "secret" not in repr(provider)
    assert "token" not in repr(provider)
    (error,) = ask(provider)
    assert "secret" not in str(error)


def test_a_password_in_an_address_is_sent_and_is_in_no_log(caplog):
    """The library writes each address it asks into its log, whole."""
    caplog.set_level(logging.DEBUG)
    with Service(refusal(400, {"error": "no secret-wörd"})) as service:
        address = service.address.replace("//", "//ada:s%65cret-w%C3%B6rd@")
        (error,) = ask(OpenAIProvider(address=f"{address}/v1", key=KEY))
    word = service.asked[0].headers["authorization"].removeprefix("Basic ")
    assert b64decode(word).decode() == "ada:secret-wörd"
    assert "no (key)" in str(error)
    assert "127.0.0.1" in caplog.text
    for secret in ("s%65cret", "secret-w", word):
        assert secret not in caplog.text


def test_a_short_key_is_a_word_of_any_text():
    """Servers of one's own are told any key, such as the name of the server."""
    with Service(refusal(400, {"error": "try: ollama pull demo"})) as service:
        (error,) = ask(OpenAIProvider(address=service.address, key="ollama"))
    assert "try: ollama pull demo" in str(error)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "No such file"),
        ("HTTPS_PROXY", "gopher://ada:secret@127.0.0.1:9", "proxy"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named(name, value, reason, monkeypatch):
    monkeypatch.setenv(name, value)
    (error,) = ask(OpenAIProvider(address="https://nowhere.invalid/v1", key=KEY))
    assert isinstance(error, ModelUnavailableError)
    assert reason in str(error)
    assert name in str(error)
    assert "secret" not in str(error)


@pytest.mark.contract("agents.wire.light")
def test_without_httpx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    (error,) = ask(OpenAIProvider(key=KEY))
    assert isinstance(error, ModelUnavailableError)
    assert "pip install 'gramercy[agents]'" in str(error)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_stands_before_this_machine(host, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Service(HI) as service:
        address = service.address.replace("127.0.0.1", host)
        assert ask(OpenAIProvider(address=address, key=KEY, patience=QUICK))[-1] == StopPart("end")
