"""Programs that run an agent are killed, and go on with the conversation beside a twin."""

from __future__ import annotations

import pytest

from tests import postgres
from tests.torture.agents import AgentCampaign
from tests.torture.stores import PostgresStore, Store

SEED = 20261117
# `scripts/torture agents` has three hundred, and one hundred on PostgreSQL.
ROUNDS = 8


@pytest.mark.contract("agents.judge.once")
@pytest.mark.slow
def test_who_goes_on_with_a_conversation_pays_nothing_twice():
    store = Store()
    found = AgentCampaign(store.place, store.verify).run(ROUNDS, SEED)
    assert found["kills"] >= ROUNDS


@pytest.mark.slow
@pytest.mark.skipif(bool(postgres.why_none()), reason=postgres.why_none())
def test_who_goes_on_with_a_conversation_on_postgresql_pays_nothing_twice():
    with postgres.PostgresServer() as server:
        store = PostgresStore(server)
        AgentCampaign(store.place, store.verify).run(ROUNDS, SEED)
