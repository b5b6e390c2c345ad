"""Processes that work on a journal are killed: at every named point, and at random."""

from __future__ import annotations

import pytest

from tests import postgres
from tests.torture.campaign import Campaign, at_points, at_random
from tests.torture.doom import POINTS
from tests.torture.stores import PostgresStore, Store

SEED = 20261116
# `scripts/torture journal` has a thousand, and three hundred on PostgreSQL.
ROUNDS = 25
needs_postgres = pytest.mark.skipif(bool(postgres.why_none()), reason=postgres.why_none())
# Where a process that dies leaves the most behind.
HARDEST = tuple(point for point in POINTS if "claim" in point or "effect" in point or "ready" in point)


@pytest.mark.contract("journal.torture.points")
@pytest.mark.slow
def test_who_is_killed_around_an_effect_leaves_nothing_wrong():
    store = Store()
    campaign = Campaign(store.place, store.verify)
    at_points(campaign, HARDEST)
    campaign.close()
    assert campaign.found["server killed"] >= 3


@pytest.mark.slow
def test_who_is_killed_at_any_point_leaves_nothing_wrong():
    store = Store()
    campaign = Campaign(store.place, store.verify)
    at_points(campaign)
    campaign.close()


@pytest.mark.slow
@needs_postgres
def test_who_is_killed_at_any_point_leaves_nothing_wrong_on_postgresql():
    with postgres.PostgresServer() as server:
        store = PostgresStore(server)
        campaign = Campaign(store.place, store.verify)
        at_points(campaign)
        campaign.close()


@pytest.mark.contract("journal.torture.random")
@pytest.mark.slow
def test_who_is_killed_at_random_leaves_nothing_wrong():
    store = Store()
    campaign = Campaign(store.place, store.verify)
    at_random(campaign, ROUNDS, SEED)
    campaign.close()


@needs_postgres
@pytest.mark.slow
def test_who_is_killed_at_random_leaves_nothing_wrong_on_postgresql():
    with postgres.PostgresServer() as server:
        store = PostgresStore(server)
        campaign = Campaign(store.place, store.verify)
        at_random(campaign, ROUNDS, SEED)
        campaign.close()
