"""Rules that allow one call: no argument is free, and types count."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import Policy, tool
from gramercy.errors import InvalidPolicyError
from gramercy.execution.policy import Rule

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([0.0, 1.0, 2.5])
    | st.sampled_from("019a"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@tool(safety_level="dangerous")
def run_command(command: str, *, sudo: bool = False, user: str | None = None) -> str:
    """Run a command."""
    return f"{command} {sudo} {user}"


@tool(safety_level="dangerous")
def take(value: Any) -> str:
    """Take any value."""
    return str(value)


def decided(rule, tool=run_command, **arguments):
    return Policy([rule]).why(tool, tool.checker.check(arguments)).action.value


def exactly(**arguments):
    return {"action": "allow", "tools": ["run_command", "take"], "exactly": arguments}


@pytest.mark.contract("trust.answers.exactly")
@pytest.mark.parametrize(
    ("given", "action"),
    [
        ({"command": "ls"}, "allow"),
        ({"command": "ls", "sudo": False}, "allow"),
        ({"command": "ls", "sudo": True}, "ask"),
        ({"command": "ls", "user": "root"}, "ask"),
        ({"command": "ls "}, "ask"),
        ({"command": "LS"}, "ask"),
    ],
)
def test_what_a_closed_rule_does_not_name_has_its_default(given, action):
    """An argument with its default and an absent one are the same call."""
    assert decided(exactly(command="ls"), **given) == action
    assert decided(exactly(command="ls", sudo=False), **given) == action


def test_a_closed_rule_names_a_default_so_that_another_default_ends_it():
    """A tool may change; what was allowed with False is not allowed with True for that."""
    rule = Policy([exactly(command="ls", sudo=False)])
    assert rule.why(run_command, {"command": "ls", "sudo": True}).action == "ask"


def test_an_empty_closed_rule_allows_a_call_without_arguments():
    """It is a condition, unlike an empty list."""

    @tool(safety_level="dangerous")
    def restart(mode: str | None = None) -> str:
        """Restart."""
        return str(mode)

    rule = {"action": "allow", "exactly": {}}
    assert decided(rule, restart) == "allow"
    assert decided(rule, restart, mode="hard") == "ask"
    assert decided(rule, command="ls") == "ask"


@pytest.mark.contract("trust.answers.exactly-types")
@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        (3, "3", False),
        (3, 3.0, True),
        (3, 3, True),
        (1, True, False),
        (True, 1, False),
        (False, 0.0, False),
        ("true", True, False),
        (None, "null", False),
        ([1], [True], False),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ("*", "anything", False),
        ("[1]", [1], False),
    ],
)
def test_types_of_json_are_kept_apart(wanted, given, same):
    assert decided(exactly(value=wanted), take, value=given) == ("allow" if same else "ask")


@pytest.mark.contract("trust.answers.exactly-types")
@given(JSON, JSON)
def test_two_values_are_one_call_where_their_json_is(wanted, given):
    """JSON writes 1.0 and 1 for one number; nothing else that differs is the same."""
    same = written(wanted) == written(given)
    assert decided(exactly(value=wanted), take, value=given) == ("allow" if same else "ask")


def written(value):
    """Write a value so that equal texts are equal JSON."""
    if isinstance(value, dict):
        return {name: written(each) for name, each in value.items()}
    if isinstance(value, list):
        return [written(each) for each in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(float(value)) if is_number else repr(value)


@pytest.mark.contract("trust.answers.exactly-refused")
@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"action": "deny", "exactly": {"a": 1}}, "exactly in a rule is for one that allows"),
        ({"action": "ask", "exactly": {"a": 1}}, "needs arguments = {…}"),
        ({"action": "allow", "exactly": {"a": 1}, "arguments": {"b": "*"}}, "without arguments beside it"),
        ({"action": "allow", "exactly": ["a"]}, "exactly in a rule must map names to values of JSON"),
        ({"action": "allow", "exactly": "a"}, "such as { command"),
        ({"action": "allow", "exactly": {"a": date(2026, 1, 2)}}, "must map names to values of JSON"),
        ({"action": "allow", "exactly": {"a": float("nan")}}, "must map names to values of JSON"),
        ({"action": "allow", "exactly": None}, "exactly in a rule is empty"),
        ({"action": "allow", "exacly": {}}, "did you mean 'exactly'?"),
    ],
)
def test_a_closed_rule_that_would_not_hold_is_refused(rule, told):
    """One more argument would take a call out of a rule that denies."""
    with pytest.raises(InvalidPolicyError) as refused:
        Rule.from_data(rule)
    assert told in str(refused.value)


@pytest.mark.contract("trust.answers.exactly-written")
def test_the_version_of_a_policy_sees_the_values_and_their_types():
    rules = [exactly(a=1), exactly(a="1"), exactly(a=True), exactly(), {"action": "allow"}]
    assert len({Policy([rule]).version for rule in rules}) == len(rules)
    assert Policy([exactly(a=1)]).version == Policy([Rule.from_data(exactly(a=1)).to_data()]).version


def test_a_closed_rule_cannot_be_changed_from_outside():
    """A policy has a version by which approvals notice a change."""
    inside = {"value": ["a"]}
    rule = Rule.from_data(exactly(**inside))
    inside["value"].append("b")
    rule.to_data()["exactly"]["value"].append("c")
    assert decided(rule, take, value=["a"]) == "allow"
    with pytest.raises(AttributeError):
        rule.exactly["value"].append("d")  # type: ignore[index]  # on purpose


def test_a_rule_with_globs_leaves_other_arguments_free_as_before():
    """Files that are there keep their meaning."""
    rule = {"action": "allow", "arguments": {"command": "ls"}}
    assert decided(rule, command="ls", sudo=True) == "allow"
