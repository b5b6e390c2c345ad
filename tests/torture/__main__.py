"""Torture the journal, or agents that go on after a kill, on the real stores, and print figures."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.torture.agents import AgentCampaign
from tests.torture.campaign import Campaign, at_points, at_random
from tests.torture.stores import Store, stores

if TYPE_CHECKING:
    from collections.abc import Callable

# Rounds of killing on each store.
ROUNDS = {"sqlite": 1_000, "postgres": 300}
AGENT_ROUNDS = {"sqlite": 300, "postgres": 100}
EXAMPLES = 10_000
SEED = 20261116


def main() -> int:
    """Run what was asked for; the exit code tells whether every promise was kept."""
    options = _options()
    with ExitStack() as stack:
        for store in stores(options.store, stack):
            TORTURES[options.what](store, options)
    return 0


def _torture(store: Store, options: argparse.Namespace) -> None:
    rounds = options.rounds or ROUNDS[store.name]
    _timed(f"{store.name}: every named point", partial(_points, store))
    title = f"{store.name}: {rounds} rounds of killing, seed {options.seed}"
    _timed(title, partial(_random, store, rounds, options.seed))
    _timed(f"{store.name}: a machine against the model", partial(_machine, store, options.examples))


def _torture_agents(store: Store, options: argparse.Namespace) -> None:
    rounds = options.rounds or AGENT_ROUNDS[store.name]
    campaign = AgentCampaign(store.place, store.verify)
    title = f"{store.name}: {rounds} conversations of an agent, seed {options.seed}"
    _timed(title, partial(campaign.run, rounds, options.seed))


TORTURES = {"journal": _torture, "agents": _torture_agents}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("torture", description=__doc__)
    parser.add_argument("what", choices=list(TORTURES))
    parser.add_argument("--store", choices=["sqlite", "postgres", "all"], default="all")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--seed", type=int, default=SEED)
    return parser.parse_args()


def _timed(title: str, run: Callable[[], dict[str, Any]]) -> None:
    begun = monotonic()
    figures = run()
    sys.stdout.write(f"{title} ({monotonic() - begun:.0f} s)\n")
    sys.stdout.writelines(f"  {name}: {value}\n" for name, value in figures.items())
    sys.stdout.flush()


def _points(store: Store) -> dict[str, Any]:
    campaign = Campaign(store.place, store.verify)
    at_points(campaign)
    campaign.close()
    return campaign.figures()


def _random(store: Store, rounds: int, seed: int) -> dict[str, Any]:
    campaign = Campaign(store.place, store.verify)
    at_random(campaign, rounds, seed)
    campaign.close()
    return campaign.figures()


def _machine(store: Store, examples: int) -> dict[str, Any]:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    chosen = settings(max_examples=examples, deadline=None, suppress_health_check=checks, database=None)
    run_state_machine_as_test(store.machine(), settings=chosen)
    return {"examples": examples, "differences": 0}


if __name__ == "__main__":
    sys.exit(main())
