"""Tokens and money: counted as the provider counts, estimated before a question, and ended in time."""

from __future__ import annotations

import asyncio

import pytest

from gramercy import Limits
from gramercy.agents.base import TurnEnded, Warned
from gramercy.agents.limits import about_tokens
from gramercy.agents.prices import Price, Prices, read_prices
from gramercy.agents.talks import SessionTalk
from gramercy.errors import BudgetExceededError, CutStreamError, InvalidSettingError, LimitReachedError
from gramercy.gram.agents import ModelName
from gramercy.journal.sessions import sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.base import Usage, UsagePart
from gramercy.testing.provider import ScriptedProvider
from tests.agents.scripts import agent_with, called, is_in_order, no_parameters

MODEL = "Acme/one"
# A dollar for a token that goes in, two for one that comes out, a tenth for one of the cache.
DEAR = Prices({MODEL: Price(1e6, 2e6, 1e5, 3e6)})


def stepping(model=MODEL):
    return agent_with(no_parameters("step", lambda: "stepped", safety_level="cautious"), model=model)


def price(name):
    return Prices().find(ModelName.parse(name))


@pytest.mark.parametrize(
    "name", ["LM Studio/qwen3", "LMStudio/qwen3", "llama-cpp/any", "llama.cpp/any", "vLLM/a/b"]
)
def test_servers_of_ones_own_are_free_however_they_are_spelt(name):
    found = price(name)
    assert found is not None
    assert found.is_free


def test_versions_may_be_written_with_a_dot():
    """As OpenRouter has them: no price was found, and no budget held."""
    assert price("OpenRouter/anthropic/claude-sonnet-4.5") == price("Anthropic/claude-sonnet-4-5") is not None


def test_what_a_run_costs_is_counted_with_its_cache():
    model = ScriptedProvider(called("step"), "done", usage=Usage(10, 3, cached=4, cache_written=1))
    response = stepping().run("go", provider=model, prices=DEAR, limits=Limits(cost=1e9))
    # Five plain, four of the cache, one written to it, three out; twice.
    assert response.cost == pytest.approx(2 * (5 * 1 + 4 * 0.1 + 1 * 3 + 3 * 2))
    assert response.usage == Usage(20, 6, 8, 2)


def test_each_turn_tells_its_cost():
    model = ScriptedProvider("done", usage=Usage(10, 3))

    async def watch():
        agent = stepping()
        events = agent.stream("go", provider=model, prices=DEAR, limits=Limits(cost=1e9))
        return [event async for event in events]

    (turn,) = [event for event in asyncio.run(watch()) if isinstance(event, TurnEnded)]
    assert (turn.cost, turn.model, turn.stop) == (16.0, MODEL, "end")


@pytest.mark.contract("agents.loop.budget")
def test_a_question_that_would_go_beyond_the_budget_is_not_asked():
    model = ScriptedProvider(*[called("step")] * 9, usage=Usage(100, 10))
    with pytest.raises(
        BudgetExceededError, match=r"budget of \$300\.00 is used up: \$240\.00 are spent"
    ) as caught:
        stepping().run("go", provider=model, prices=DEAR, limits=Limits(cost=300))
    assert "the next question costs about $1" in str(caught.value)
    assert len(model.requests) == 2
    assert (caught.value.response.cost, len(caught.value.response.calls)) == (240.0, 2)
    assert is_in_order(caught.value.response.conversation)


def test_the_first_question_is_estimated_before_it_is_sent():
    model = ScriptedProvider("never")
    with pytest.raises(BudgetExceededError, match=r"\$0\.0000 are spent, and the next question costs about"):
        stepping().run("x" * 32_000, provider=model, prices=DEAR, limits=Limits(cost=9_000))
    assert model.requests == []


@pytest.mark.contract("agents.loop.budget")
def test_calls_of_an_answer_that_has_used_up_the_budget_are_not_run():
    """The limit holds in the middle of a turn, and not only before the next question."""
    ran = []
    agent = agent_with(no_parameters("step", lambda: ran.append(1)), model=MODEL)
    model = ScriptedProvider(called("step"), usage=Usage(1_000, 10))
    with pytest.raises(BudgetExceededError) as caught:
        agent.run("go", provider=model, prices=DEAR, limits=Limits(cost=500))
    assert ran == []
    assert caught.value.response.conversation[-1].text.startswith("step was not run: the budget of $500.00")


def test_an_answer_that_is_there_is_given_whatever_it_has_cost():
    model = ScriptedProvider("done", usage=Usage(1_000, 10))
    assert stepping().run("go", provider=model, prices=DEAR, limits=Limits(cost=500)).cost == 1_020.0


@pytest.mark.contract("agents.loop.nested-limits")
def test_a_nested_agent_spends_the_budget_of_its_run_at_its_own_price():
    worker = agent_with(name="worker", model="Acme/two")
    agent = agent_with(agents=[worker], model=MODEL)
    prices = Prices({MODEL: Price(1e6, 1e6), "Acme/two": Price(1e5, 1e5)})
    model = ScriptedProvider(called("worker", message="go"), "1", "2", usage=Usage(100, 0))
    response = agent.run("go", provider=model, prices=prices, limits=Limits(cost=1e9))
    assert response.cost == pytest.approx(100 + 10 + 100)


@pytest.mark.contract("agents.loop.session-budget")
def test_a_session_has_a_budget_of_its_own_with_its_nested_agents(tmp_path, monkeypatch):
    """Run after run, also where the conversation is gone on with in another process."""
    journal = SqliteJournal(tmp_path / "journal.db")
    sessions = sessions_of(journal)
    talk = SessionTalk.begin(sessions)
    prices = tmp_path / "prices.toml"
    prices.write_text(f'["{MODEL}"]\ninput = 1e6\noutput = 2e6\n')
    monkeypatch.setenv("GRAMERCY_PRICES", str(prices))
    agent = agent_with(agents=[agent_with(name="worker", model=MODEL)], model=MODEL)
    limits = Limits(cost=None, session_cost=900)
    model = ScriptedProvider(called("worker", message="go"), "1", "2", usage=Usage(200, 0))
    agent.run("go", provider=model, talk=talk, limits=limits)
    again = SessionTalk.resume(sessions, talk.session)
    assert again.spent() == 600.0
    model = ScriptedProvider("3", "4", usage=Usage(200, 0))
    agent.run("on", provider=model, talk=again, conversation=again.conversation, limits=limits)
    with pytest.raises(
        BudgetExceededError, match=r"budget of \$900\.00 for the session is used up: \$800\.00"
    ):
        agent.run("on " * 200, provider=model, talk=again, conversation=again.conversation, limits=limits)
    other = SessionTalk.begin(sessions)
    assert agent.run("hi", provider=model, talk=other, limits=limits).content == "4"
    journal.close()


def test_the_budget_of_a_session_counts_at_the_prices_of_its_runs(tmp_path):
    """Prices that are given with a run hold for what is kept of it, nested agents included."""
    journal = SqliteJournal(tmp_path / "journal.db")
    talk = SessionTalk.begin(sessions_of(journal))
    agent = agent_with(agents=[agent_with(name="worker", model=MODEL)], model=MODEL)
    limits = Limits(cost=None, session_cost=350)
    model = ScriptedProvider(called("worker", message="go"), "1", "2", "3", usage=Usage(100, 0))
    agent.run("go", provider=model, talk=talk, prices=DEAR, limits=limits)
    assert talk.spent() == 300.0
    with pytest.raises(BudgetExceededError, match=r"for the session is used up: \$300\.00 are spent"):
        agent.run(
            "on " * 200, provider=model, talk=talk, conversation=talk.conversation, prices=DEAR, limits=limits
        )
    # A fork has spent nothing yet: what it took over was paid there.
    assert talk.fork().spent() == 0.0
    journal.close()


@pytest.mark.contract("agents.loop.unknown-price")
def test_an_answer_that_was_cut_is_counted():
    model = ScriptedProvider(["Well", UsagePart(Usage(10, 3)), ...])
    with pytest.raises(CutStreamError) as caught:
        stepping().run("go", provider=model, prices=DEAR, limits=Limits(cost=1e9))
    assert (caught.value.response.cost, caught.value.response.usage) == (16.0, Usage(10, 3))


def test_an_unknown_price_is_told_and_does_not_end_the_run():
    model = ScriptedProvider("done", usage=Usage(10, 3))

    async def watch():
        return [event async for event in stepping("Acme/unheard-of").stream("go", provider=model)]

    events = asyncio.run(watch())
    (warned,) = [event for event in events if isinstance(event, Warned)]
    assert warned.text.startswith(
        "the price of Acme/unheard-of is not known: the budget of $1.00 does not hold"
    )
    assert events[-1].response.cost is None
    assert events[-1].response.usage == Usage(10, 3)


def test_without_a_count_of_the_provider_the_estimate_holds_the_limit():
    model = ScriptedProvider(*["x" * 3_200] * 9)
    agent = agent_with(model="Scripted/test")
    said = agent.run("go", provider=model, limits=Limits(tokens=1_500))
    with pytest.raises(LimitReachedError, match="limit of 1,500 tokens"):
        agent.run("go on " + "y" * 3_200, provider=model, conversation=said, limits=Limits(tokens=1_500))
    assert said.usage == Usage()


def test_what_a_model_says_is_estimated_too():
    """The first answer has about 1,000 tokens, and so has the next question."""
    model = ScriptedProvider(["x" * 3_200, called("step")], "done")
    with pytest.raises(LimitReachedError, match="limit of 2,000 tokens"):
        stepping("Scripted/test").run("go", provider=model, limits=Limits(tokens=2_000))


def test_tokens_are_estimated_at_three_characters_and_a_fifth():
    assert 999 <= about_tokens(3_200) <= 1_001


@pytest.mark.parametrize(("said", "warns"), [(100, False), (2_500, False), (3_000, True)])
@pytest.mark.contract("agents.loop.window")
def test_a_context_that_gets_full_is_told_once(said, warns):
    model = ScriptedProvider(called("step"), "done")
    agent = stepping("Scripted/test")
    response = agent.run("x" * said, provider=model, windows=lambda _: 1_100)
    told = [text for text in response.warnings if "tokens that Scripted/test reads" in text]
    assert len(told) == warns
    assert all("(9" in text or "(8" in text for text in told)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OpenAI/gpt-4o-mini", 0.15),
        ("openai/GPT-4o-mini-2024-07-18", 0.15),
        ("Anthropic/claude-sonnet-4-5-20250929", 3.0),
        ("Anthropic/claude-3-5-haiku-latest", 0.8),
        ("OpenRouter/openai/gpt-4.1", 2.0),
        ("Ollama/llama3.2", 0.0),
        ("Local/smollm2", 0.0),
    ],
)
def test_known_models_have_a_price(name, expected):
    assert price(name).input == expected


@pytest.mark.parametrize("name", ["OpenAI/gpt-99", "OpenAI/gpt-4o-mini-tts", "Bedrock/gpt-4o", "Acme/gpt-4o"])
def test_no_price_is_guessed(name):
    assert price(name) is None


def test_a_person_sets_prices_in_a_file(tmp_path, monkeypatch):
    path = tmp_path / "prices.toml"
    path.write_text('["openai/gpt-4o-mini"]\ninput = 1\noutput = 2.5\n')
    assert read_prices(path).find(ModelName("OpenAI", "gpt-4o-mini")) == Price(1, 2.5)
    assert read_prices(path).find(ModelName("OpenAI", "gpt-4o")) == price("OpenAI/gpt-4o")
    monkeypatch.setenv("GRAMERCY_PRICES", str(path))
    model = ScriptedProvider("done", usage=Usage(1_000_000, 0))
    response = agent_with(model="OpenAI/gpt-4o-mini").run("go", provider=model, limits=Limits(cost=None))
    assert response.cost == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "[",
        '["a/b"]\ninput = -1\noutput = 1',
        '["a/b"]\ninput = 1',
        '["a/b"]\ninput=1\noutput=1\nx=1',
        "a = 1",
    ],
)
def test_a_file_of_prices_that_cannot_be_used_is_named(tmp_path, text):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(InvalidSettingError, match=r"the prices in .*prices\.toml cannot be used"):
        read_prices(path)


def test_a_file_of_prices_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAMERCY_PRICES", str(tmp_path / "none.toml"))
    with pytest.raises(InvalidSettingError, match="No such file"):
        agent_with().run("go", provider=ScriptedProvider("done"))
