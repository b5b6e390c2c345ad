"""How well each library tells a model what is wrong with its call."""

from __future__ import annotations

import asyncio
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from bench.bad_calls import BAD_CALLS, BadCall
from bench.bad_tools import GOOD_CALLS, RAN
from bench.our_texts import gramercy_ask
from bench.peer_texts import ASKS, answer_of
from bench.peers import PEERS, try_peers
from bench.report import Section, Target, absent_rows, at_least
from bench.scoring import CRITERIA, score, total

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort
    from bench.scoring import Answer, Score

    Ask = Callable[[BadCall], Answer | None]

OURS = "gramercy"
NOTES = (
    (
        "Per cent of what applies to each call; the total is the mean over the calls, 'if refused' the same "
        "without the calls that ran anyway."
    ),
    (
        "'Ran anyway' counts bad calls that the library carried out, most of them after converting a value: "
        "a string of digits or a boolean became a number. They earn nothing further, since nothing was said."
    ),
    (
        "The rules read words, places and JSON objects, not a format: a place counts however its steps are "
        "joined, an example is any JSON object in the text that validates, and a repetition of the call "
        "names no fault."
    ),
    (
        "Each library is used with its defaults; the second row, where there is one, with the documented "
        "settings that show the model the most. openai-agents and pydantic-ai run their own agent loop with "
        "a scripted model, FastMCP an in-memory client and server. langchain-core has no look-up by name, "
        "and over MCP a malformed request reaches no tool: those calls are left out there."
    ),
)


def measure(_effort: Effort) -> Section:
    """Make every bad call through everybody and score the texts."""
    loop = asyncio.new_event_loop()
    results = {OURS: _scores(OURS, gramercy_ask())}
    made, absent = try_peers({peer: ASKS[peer] for peer in PEERS})
    for asks in made:
        for name, ask in asks.items():
            results[name] = _scores(name, partial(answer_of, loop, ask))
    loop.close()
    return Section(
        name="errors",
        title="What the model is told",
        intro=f"{len(BAD_CALLS)} bad calls; what each text contains, in per cent.",
        columns=("library", "total", "if refused", "calls", "ran anyway", *CRITERIA),
        rows=(
            *(_row(name, scores) for name, scores in results.items()),
            *absent_rows(absent, len(CRITERIA) + 5),
        ),
        targets=_targets(results),
        notes=(*NOTES, *(f"{name}: {text}" for name, text in (CRITERIA | absent).items())),
    )


def _scores(name: str, ask: Ask) -> list[Score]:
    """Score all bad calls, once the good ones have run: a broken set-up must not pass for poor texts."""
    for tool, arguments in GOOD_CALLS.items():
        answer = ask(BadCall("good", tool, arguments, ()))
        if answer is None or answer.text != RAN:
            raise RuntimeError(f"{name} does not run a good call of {tool}: {answer}")
    answers = ((call, ask(call)) for call in BAD_CALLS)
    return [score(call, answer) for call, answer in answers if answer is not None]


def _row(name: str, scores: list[Score]) -> tuple[str, ...]:
    refused = [one for one in scores if one["refused"]]
    figures = (total(scores), total(refused))
    ran = len(scores) - len(refused)
    criteria = (_share(scores, criterion) for criterion in CRITERIA)
    return (name, *(f"{figure:.1f}" for figure in figures), str(len(scores)), str(ran), *criteria)


def _share(scores: list[Score], criterion: str) -> str:
    values = [value for one in scores if (value := one[criterion]) is not None]
    return f"{100 * fmean(values):.1f}" if values else ""


def _targets(results: dict[str, list[Score]]) -> tuple[Target, ...]:
    ours = total(results[OURS])
    full = at_least("gramercy, of the full score", ours, 100, " %")
    peers = {name: total(scores) for name, scores in results.items() if name != OURS}
    if not peers:
        return (full, Target("gramercy ahead of every peer", "no peer installed", met=None))
    best = max(peers, key=lambda name: peers[name])
    lead = Target(
        f"gramercy ahead of the best peer ({best})",
        f"{ours:.1f} against {peers[best]:.1f}",
        met=ours > peers[best],
    )
    return (full, lead)
