"""The bad calls of the benchmark through gramercy alone, and proof that the scoring can fail."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import jsonschema_rs
import pytest

from bench import bad_calls, bad_tools, our_texts, scoring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask: TypeAlias = Callable[[Any], Any]


CALLS = {call.title: call for call in bad_calls.BAD_CALLS}
CITY_MISSING = "city: expected string, received nothing: it is required"


@pytest.fixture(scope="module")
def ask() -> Ask:
    return cast("Ask", our_texts.gramercy_ask())


def lost(title: str, text: str, *, aborted: bool = False) -> set[str]:
    marks = scoring.score(CALLS[title], scoring.Answer(text, aborted))
    return {criterion for criterion, value in marks.items() if value is not None and value < 1}


@pytest.mark.parametrize("title", CALLS)
def test_every_bad_call_is_answered_with_all_a_model_needs_to_repair_it(ask: Ask, title: str) -> None:
    """Guard design: invalid arguments are a tool error that names every fault and shows a call that fits."""
    answer = ask(CALLS[title])
    assert lost(title, answer.text, aborted=answer.aborted) == set(), answer.text


@pytest.mark.parametrize("tool", bad_tools.GOOD_CALLS)
def test_good_calls_of_the_same_tools_run(ask: Ask, tool: str) -> None:
    """Benchmark: a set-up that refuses everything must not look like one that explains well."""
    assert ask(bad_calls.BadCall("good", tool, bad_tools.GOOD_CALLS[tool], ())).text == bad_tools.RAN


def test_there_are_enough_bad_calls_and_their_titles_differ() -> None:
    """Benchmark: at least 40 bad calls."""
    assert len(CALLS) == len(bad_calls.BAD_CALLS) >= 40


def judged_by_schema() -> list[str]:
    return [title for title, call in CALLS.items() if call.tool in bad_tools.SCHEMAS and is_plain(call)]


def is_plain(call: Any) -> bool:
    numbers = [v for v in call.arguments.values() if isinstance(v, float)] if not call.is_malformed else []
    return not call.is_malformed and all(map(isfinite, numbers))


def found_by_validator(call: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    validator = jsonschema_rs.Draft202012Validator(bad_tools.SCHEMAS[call.tool], validate_formats=True)
    for error in validator.iter_errors(call.arguments):
        path, detail = tuple(error.instance_path), error.kind.as_dict()
        names: dict[str, Any] = {
            "required": [detail.get("property")],
            "additionalProperties": detail.get("unexpected"),
        }
        steps = names.get(error.kind.name)
        yield from (
            (((*path, step), error.kind.name) for step in steps) if steps else [(path, error.kind.name)]
        )


@pytest.mark.parametrize("title", judged_by_schema())
def test_the_faults_listed_are_exactly_those_the_schema_has(title: str) -> None:
    """Benchmark: the expectations come from the schema, not from our own texts."""
    call = CALLS[title]
    assert sorted(found_by_validator(call), key=str) == sorted(
        ((f.path, f.keyword) for f in call.faults), key=str
    )


def test_a_text_that_says_nothing_gets_a_poor_score() -> None:
    """Benchmark: the scoring can fail."""
    scores = [scoring.score(call, scoring.Answer("Invalid input.")) for call in CALLS.values()]
    assert scoring.total(scores) < 50


def test_an_aborted_run_earns_only_that_nothing_was_run() -> None:
    """Benchmark: a call must not end the run."""
    marks = scoring.score(
        CALLS["everything missing"], scoring.Answer("city and days are required", aborted=True)
    )
    assert [criterion for criterion, value in marks.items() if value] == ["refused"]


def test_a_bad_call_that_ran_earns_only_that_there_was_an_answer() -> None:
    """Benchmark: nothing is silently converted."""
    marks = scoring.score(CALLS["boolean for integer"], scoring.Answer(bad_tools.RAN))
    assert [criterion for criterion, value in marks.items() if value] == ["answered"]


def test_naming_only_the_first_fault_loses_the_others() -> None:
    """Benchmark: every fault is named, not only the first."""
    assert {"place", "every fault", "expected"} <= lost("everything missing", CITY_MISSING)


def test_repeating_the_call_names_no_fault() -> None:
    """Benchmark: an echo of the arguments is no explanation."""
    echo = json.dumps(CALLS["word for integer"].arguments)
    assert "place" in lost("word for integer", f"Something is wrong with {echo}")


def test_an_example_that_does_not_fit_is_none() -> None:
    """Benchmark: the corrected call must itself validate."""
    text = f"{CITY_MISSING}; days: expected integer, required. Example: "
    assert "example" in lost("everything missing", text + '{"city": "Lyon", "days": "3"}')
    assert "example" not in lost("everything missing", text + '{"city": "Lyon", "days": 3}')


@pytest.mark.parametrize(
    "place", ["contact.email", "/contact/email", '["contact","email"]', "contact -> email"]
)
def test_a_place_counts_however_its_steps_are_joined(place: str) -> None:
    """Benchmark: the scoring knows nobody's format."""
    assert "place" not in lost("nested argument missing", f"{place}: Field required")


def test_another_place_does_not_count() -> None:
    """Benchmark: the scoring can fail."""
    assert "place" in lost("nested argument missing", "contact: email_address is required")


@pytest.mark.parametrize(
    ("criterion", "text"),
    [
        ("no links", "See https://example.org/errors"),
        ("no noise", 'Traceback (most recent call last):\n  File "tool.py", line 3'),
        ("no noise", "some_library.core.checks.ValidationError: city"),
        ("no noise", "<class 'int'> is not allowed"),
    ],
)
def test_links_and_noise_are_held_against_a_text(criterion: str, text: str) -> None:
    """Benchmark: no library URL, no traceback, no class path."""
    assert criterion in lost("everything missing", text)
    assert criterion not in lost("everything missing", CITY_MISSING)


def test_a_list_of_options_is_no_suggestion() -> None:
    """Benchmark: did-you-mean names the one that was meant."""
    text = "unit: expected one of celsius, fahrenheit, kelvin, received 'celcius'"
    assert "meant" in lost("misspelled option", text)
    assert "meant" not in lost("misspelled option", text + "; did you mean celsius?")
