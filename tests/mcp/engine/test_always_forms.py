"""Always allow this, in the form of a client: which rules are offered, and what choosing one means."""

import asyncio

import pytest

from gramercy import tool
from gramercy.errors import InvalidPolicyError
from gramercy.mcp.question_files import Nearby
from gramercy.mcp.questions import ONCE

MODERN, LEGACY = "2026-07-28", "2025-11-25"


class Offers:
    """Two rules, and which of them were written."""

    names = ("this path", "this tool")
    description = "Allow such calls in /garden without asking. this path: …"

    def __init__(self, fault=None):
        self.written = []
        self.fault = fault

    def write(self, name):
        if self.fault:
            raise InvalidPolicyError(self.fault)
        self.written.append(name)
        return "always, by policy.toml:3"


class Garden:
    """A dangerous tool, a server of it, and a person who answers."""

    def __init__(self, serve, desk, text_of, offers):
        self.done: list[tuple[str, int]] = []
        self.offers = offers
        self.asked = []
        self._made = serve, desk, text_of

        @tool(safety_level="dangerous")
        def dig(path: str, depth: int = 1) -> str:
            """Dig."""
            self.done.append((path, depth))
            return "dug"

        self._tool = dig

    def call(self, client, *replies):
        serve, desk, text_of = self._made

        def reply(params):
            self.asked.append(params)
            return replies[len(self.asked) - 1]

        async def main():
            nearby = Nearby(rules=lambda _request: self.offers)
            made = desk(serve(self._tool, nearby=nearby), LEGACY, {"elicitation": {}}, name=client)
            made.answers = {"elicitation/create": reply}
            return text_of(await made.call("dig", {"path": "a"}))

        return asyncio.run(main())


@pytest.fixture(name="garden")
def garden_fixture(serve, desk, text_of, monkeypatch):
    """Make a server whose person is offered rules."""
    monkeypatch.setattr("gramercy.mcp.approval.PERSON_SECONDS", 0.0)
    monkeypatch.setattr("gramercy.mcp.approval.MOST_SECONDS", 0.0)
    return lambda **about: Garden(serve, desk, text_of, Offers(**about))


def filled(**content):
    return {"action": "accept", "content": content}


@pytest.mark.contract("journal.policy.always")
def test_a_rule_is_written_when_the_person_chooses_it(garden):
    here = garden()
    said = here.call("somebody", filled(decision="approve", always="this path"))
    assert (here.done, here.offers.written) == ([("a", 1)], ["this path"])
    assert "[The person who approved it says: always, by policy.toml:3]" in said
    field = here.asked[0]["requestedSchema"]["properties"]["always"]
    assert field["enum"] == [ONCE, "this path", "this tool"]
    assert (field["default"], field["description"]) == (ONCE, Offers.description)


@pytest.mark.parametrize("content", [{}, {"always": ONCE}, {"decision": "deny", "always": "this tool"}])
def test_no_rule_is_written_that_nobody_has_chosen(garden, content):
    """To accept a form as it comes approves once; who denies allows nothing."""
    here = garden()
    here.call("somebody", filled(**content))
    assert here.offers.written == []
    assert bool(here.done) == ("decision" not in content)


def test_a_changed_call_is_allowed_only_once(garden):
    """A rule allows calls as they were shown; the person is told, and asked again."""
    here = garden()
    first = filled(decision="approve", always="this tool", arguments='{"depth": 3}')
    here.call("somebody", first, filled(decision="approve", arguments='{"depth": 3}'))
    assert (here.done, here.offers.written) == ([("a", 3)], [])
    assert "a rule allows whole calls" in here.asked[1]["message"]


@pytest.mark.parametrize(
    ("client", "first"),
    [("claude-code", {"action": "decline"}), ("codex-mcp-client", filled(decision="allow from now on"))],
)
def test_clients_with_small_forms_offer_it_in_the_second(garden, client, first):
    here = garden()
    here.call(client, first, filled(always="this tool"))
    assert (here.done, here.offers.written) == ([("a", 1)], ["this tool"])
    assert "always" not in here.asked[0]["requestedSchema"]["properties"]


def test_an_approval_stands_also_where_the_rule_cannot_be_written(garden):
    here = garden(fault="the disk is full")
    said = here.call("somebody", filled(decision="approve", always="this path"))
    assert here.done == [("a", 1)]
    assert "the rule was not written: the disk is full" in said


def test_without_rules_the_form_is_as_it_was(garden):
    here = garden()
    here.offers = None
    here.call("somebody", filled(decision="approve"))
    assert list(here.asked[0]["requestedSchema"]["properties"]) == ["decision", "reason", "arguments"]
