"""A number is the same to a rule however a model writes it."""

from __future__ import annotations

import pytest

from gramercy.execution.executor import Executor
from gramercy.execution.policy import Policy
from gramercy.tools.definition import create_tool
from gramercy.tools.registry import Registry


@pytest.fixture
def pay():
    """Return what makes a call of a tool that pays, under one rule about the amount."""
    schema = {"type": "object", "properties": {"amount": {}}}
    tool = create_tool("pay", "Pay.", schema, lambda a: f"paid {a['amount']}", safety_level="cautious")

    def call(action, glob, arguments):
        executor = Executor(Registry([tool]))
        executor.policy = Policy([{"action": action, "arguments": {"amount": glob}}])
        return executor.execute({"id": "1", "name": "pay", "arguments": arguments}).success

    return call


@pytest.mark.contract("trust.beyond.numbers")
@pytest.mark.parametrize("glob", ["999", "999.0"])
@pytest.mark.parametrize("written", ["999", "999.0", "9.99e2", "[999.0]"])
def test_a_number_that_is_denied_is_denied_in_every_spelling(pay, glob, written):
    """The tool that gets 999.0 pays as much."""
    assert not pay("deny", glob, f'{{"amount": {written}}}')


@pytest.mark.contract("trust.beyond.numbers")
@pytest.mark.parametrize("written", ["99", "999.5", "true", "9990"])
def test_another_number_is_not_denied(pay, written):
    """Nor is a truth value."""
    assert pay("deny", "999", f'{{"amount": {written}}}')
