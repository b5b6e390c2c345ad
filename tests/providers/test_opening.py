"""Which provider a name means, and what a person is told when there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.agents.prices import _TABLE
from gramercy.errors import ModelUnavailableError
from gramercy.gram.agents import ModelName
from gramercy.providers import opening
from gramercy.providers.anthropic import AnthropicProvider
from gramercy.providers.models import context_window
from gramercy.providers.openai import OpenAIProvider
from gramercy.providers.opening import THROUGH_PYDANTIC_AI, open_provider, provider_names
from gramercy.providers.scripted import ScriptedProvider
from gramercy.providers.services import SERVICES


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for service in SERVICES:
        monkeypatch.delenv(service.key_variable, raising=False)
        monkeypatch.delenv(service.address_variable, raising=False)
    monkeypatch.delenv("GRAMERCY_CONTEXT_WINDOW", raising=False)


def opened(name):
    return open_provider(ModelName.parse(name))


@pytest.mark.parametrize(
    ("written", "name", "address"),
    [
        ("Ollama/llama3.2", "Ollama", "http://localhost:11434/v1"),
        ("ollama/hf.co/x/y:Q4", "Ollama", "http://localhost:11434/v1"),
        ("LM Studio/qwen", "LMStudio", "http://localhost:1234/v1"),
        ("LLAMA.CPP/any", "llama.cpp", "http://localhost:8080/v1"),
        ("llamacpp/any", "llama.cpp", "http://localhost:8080/v1"),
        ("vllm/Qwen/Qwen3-8B", "vLLM", "http://localhost:8000/v1"),
    ],
)
@pytest.mark.contract("agents.wire.addresses", "agents.wire.names")
def test_servers_of_ones_own_need_no_key(written, name, address):
    provider = opened(written)
    assert provider.name == name
    assert address in repr(provider)


@pytest.mark.parametrize("service", [each for each in SERVICES if each.needs_key], ids=lambda each: each.name)
@pytest.mark.contract("agents.wire.no-key")
def test_a_service_wants_its_key(service, monkeypatch):
    with pytest.raises(ModelUnavailableError) as told:
        opened(f"{service.name.upper()}/some-model")
    text = str(told.value)
    assert f"set {service.key_variable}" in text
    assert "gramercy models install" in text
    assert "Ollama" in text
    assert "\n" not in text
    monkeypatch.setenv(service.key_variable, "sk-0123456789")
    kind = AnthropicProvider if service.format == "anthropic" else OpenAIProvider
    assert isinstance(opened(f"{service.name.lower()}/some-model"), kind)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("OpnAI", "OpenAI"), ("Antropic", "Anthropic"), ("olama", "Ollama"), ("Gogle", "Google")],
)
@pytest.mark.contract("agents.wire.names")
def test_a_misspelt_provider_is_suggested(wrong, right):
    with pytest.raises(ModelUnavailableError, match=f"did you mean {right}/some-model"):
        opened(f"{wrong}/some-model")


def test_a_provider_that_resembles_none_is_told_what_there_is():
    with pytest.raises(ModelUnavailableError) as told:
        opened("zzz/model")
    assert all(name in str(told.value) for name in provider_names())


def test_what_plug_ins_add_is_found(monkeypatch):
    double = ScriptedProvider("hi")
    monkeypatch.setitem(opening.ADDED, "ours", lambda: double)
    assert opened("Ours/model") is double


@pytest.mark.contract("agents.wire.pydantic-ai")
def test_a_missing_package_or_key_behind_pydantic_ai_is_named(monkeypatch):
    pytest.importorskip("pydantic_ai")
    pytest.importorskip("openai")
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    with pytest.raises(ModelUnavailableError, match="DEEPSEEK_API_KEY"):
        opened("DeepSeek/deepseek-chat")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-0123456789")
    assert opened("DeepSeek/deepseek-chat").name == "DeepSeek"
    with pytest.raises(ModelUnavailableError, match="pydantic-ai/NAME:ID"):
        opened("pydantic-ai/gpt")
    with pytest.raises(ModelUnavailableError, match="Unknown model"):
        opened("pydantic-ai/nobody:gpt")


def test_every_name_behind_pydantic_ai_is_one_of_its_own():
    providers = pytest.importorskip("pydantic_ai.providers")
    for name in THROUGH_PYDANTIC_AI:
        try:
            providers.infer_provider_class(name.lower())
        except ImportError:
            continue  # its package is not installed, but it is known


@pytest.mark.contract("agents.wire.light")
def test_without_pydantic_ai_the_extra_is_named(monkeypatch):
    for name in ("pydantic_ai", "pydantic_ai.models"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModelUnavailableError, match=r"pip install 'gramercy\[pydantic-ai\]'"):
        opened("Google/gemini-2.5-flash")


@pytest.mark.contract("agents.wire.light")
def test_nothing_heavy_is_imported_before_a_question():
    code = (
        "import sys; from gramercy.gram.agents import ModelName; "
        "from gramercy.providers.opening import open_provider; open_provider(ModelName.parse('ollama/x')); "
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"httpx", "pydantic_ai", "openai", "anthropic", "xllamacpp"}.intersection(done.stdout.split())


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("OpenAI/gpt-4o-mini", 128_000),
        ("OpenAI/gpt-4.1-nano", 1_047_576),
        ("OpenAI/gpt-4-0613", 8_192),
        ("Anthropic/claude-sonnet-4-5", 200_000),
        ("OpenRouter/anthropic/claude-sonnet-4.5", 200_000),
        ("Anthropic/claude-opus-4-20250514", 200_000),
        ("Anthropic/claude-opus-4-6", 1_000_000),
        ("OpenRouter/anthropic/claude-opus-4.6", 1_000_000),
        ("OpenAI/gpt-4-32k", 32_768),
        ("OpenAI/gpt-5.4-mini", 400_000),
        ("OpenAI/gpt-6-sol", 1_050_000),
        ("Ollama/deepseek-r1", None),
        ("LM Studio/deepseek-r1", None),
        ("llama-cpp/deepseek-r1", None),
        ("Local/deepseek-r1", 4_096),
        ("OpenAI/something-new", None),
    ],
)
@pytest.mark.contract("agents.wire.window")
def test_how_much_a_model_reads_is_known_or_not_guessed(name, window, monkeypatch):
    assert context_window(ModelName.parse(name)) == window
    monkeypatch.setenv("GRAMERCY_CONTEXT_WINDOW", "4096")
    assert context_window(ModelName.parse(name)) == 4096


def test_the_windows_are_those_that_are_published_with_the_prices():
    """The prices come from this collection; its windows are round where ours are exact."""
    collected = pytest.importorskip("genai_prices.data_snapshot").get_snapshot().providers
    services = {"openai": "OpenAI", "anthropic": "Anthropic"}
    told = {
        f"{services[each.id]}/{model.id}": model.context_window
        for each in collected
        if each.id in services
        for model in each.models
        if f"{model.id}" in _TABLE and model.context_window
    }
    assert len(told) > 40
    for name, window in told.items():
        assert context_window(ModelName.parse(name)) == pytest.approx(window, rel=0.1), name


@pytest.mark.parametrize("wrong", ["0", "200k", "-1"])
def test_a_window_that_is_none_is_refused(wrong, monkeypatch):
    """With 0 the first question divided by it; what is no number was passed over."""
    monkeypatch.setenv("GRAMERCY_CONTEXT_WINDOW", wrong)
    with pytest.raises(ModelUnavailableError, match=r"GRAMERCY_CONTEXT_WINDOW is .*: expected tokens"):
        context_window(ModelName.parse("OpenAI/gpt-4o"))


def test_the_pages_name_every_provider():
    pages = Path(__file__).parents[2] / "docs" / "how-to"
    servers = (pages / "use-ollama-and-others.md").read_text("utf-8")
    for service in SERVICES[2:]:
        assert f"`{service.name}/" in servers
        assert service.address_variable in servers
        assert service.address in servers or service.needs_key
    through = (pages / "use-any-model-through-pydantic-ai.md").read_text("utf-8")
    assert ", ".join(THROUGH_PYDANTIC_AI) in " ".join(through.split())


@pytest.mark.parametrize(
    ("opened", "says"),
    [
        (lambda: 1 / 0, "cannot open it: ZeroDivisionError: division by zero"),
        (lambda: None, "it gives NoneType"),
    ],
)
def test_a_provider_of_a_plug_in_that_cannot_be_opened_is_named(monkeypatch, opened, says):
    """People were told of an unexpected ZeroDivisionError, and not whose it was."""
    monkeypatch.setitem(opening.ADDED, "theirs", opened)
    with pytest.raises(ModelUnavailableError, match=f"the provider Theirs .*{says}"):
        open_provider(ModelName("Theirs", "x"))
