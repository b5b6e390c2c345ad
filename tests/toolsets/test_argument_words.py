"""One word for the name of a thing: tools take the words that other tools have for it."""

import pytest


@pytest.mark.contract("day.eyes.words")
@pytest.mark.parametrize(
    ("tool", "own", "given"),
    [
        ("describe_symbol", "symbol", "name"),
        ("who_calls", "function", "symbol"),
        ("function_arglist", "function", "name"),
        ("class_hierarchy", "class", "symbol"),
        ("who_references", "variable", "name"),
    ],
)
def test_a_tool_takes_the_word_of_another_tool_and_says_so(paper_desk, tool, own, given):
    """A day's work: symbol, function and name are one thing to a model."""
    answer = paper_desk.call(tool, **{given: "car"}).content
    assert answer.endswith(f"{given} was taken as {own}.")
    assert (
        answer.removesuffix(f"\n\n{given} was taken as {own}.")
        == paper_desk.call(tool, **{own: "car"}).content
    )


@pytest.mark.contract("day.eyes.words")
def test_two_words_for_one_name_are_refused(paper_desk):
    """Which of them is meant cannot be told."""
    assert "Invalid arguments" in paper_desk.failure("who_calls", symbol="car", name="cdr")
