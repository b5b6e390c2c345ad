"""The journal against a model of it: moves, crashes, recoveries in any order, two workers, wrong clocks."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import postgres
from tests.torture.stores import PostgresStore, Store

# `scripts/torture journal` has ten thousand.
EXAMPLES = 100
THOROUGH = 1_000


def hold_against_the_model(store: Store, examples: int) -> None:
    checks = list(HealthCheck)
    chosen = settings(max_examples=examples, deadline=None, suppress_health_check=checks, database=None)
    run_state_machine_as_test(store.machine(), settings=chosen)


@pytest.mark.contract("journal.torture.model")
@pytest.mark.slow
def test_a_journal_in_a_file_does_what_the_model_does():
    hold_against_the_model(Store(), EXAMPLES)


@pytest.mark.slow
def test_it_does_so_for_long():
    hold_against_the_model(Store(), THOROUGH)


@pytest.mark.skipif(bool(postgres.why_none()), reason=postgres.why_none())
@pytest.mark.slow
def test_a_journal_on_postgresql_does_what_the_model_does():
    with postgres.PostgresServer() as server:
        hold_against_the_model(PostgresStore(server), EXAMPLES)
