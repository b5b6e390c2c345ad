"""Rules from a file: read whole or refused with the place of the fault."""

import pytest

from gramercy.errors import InvalidPolicyError
from gramercy.workbench.sources import load_policy

GOOD = """
max_safety_level = "cautious"

[[rules]]
action = "deny"
tools = ["write_*"]
reason = "read-only today"
"""


def test_rules_and_ceiling_are_read(tmp_path):
    """Guard, Policy: rules are data."""
    file = tmp_path / "policy.toml"
    file.write_text(GOOD)
    policy = load_policy(str(file))
    assert [rule.reason for rule in policy.rules] == ["read-only today"]
    assert policy.max_safety_level == "cautious"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules = 3", "rules must be a list"),
        ("[[rule]]\naction = 'deny'", "did you mean 'rules'"),
        ("[[rules]]\naction = 'forbid'", "forbid"),
        ("[[rules]\n", "is not TOML.*line 1"),
        ("max_safety_level = 'low'", "low"),
    ],
)
def test_a_fault_is_told_with_the_file(tmp_path, text, told):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InvalidPolicyError, match=told) as caught:
        load_policy(str(file))
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InvalidPolicyError, match="cannot be read"):
        load_policy(str(tmp_path / "absent.toml"))
