"""Policies: rules as data, first match wins, and no rule says more than its author meant."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import Executor, Policy, Registry, Rule, create_tool, define_tool
from gramercy.errors import InvalidPolicyError
from gramercy.execution.policy import STRICTNESS, Action, RuleOrigin
from gramercy.tools.safety import Safety
from gramercy.tools.tool import Likeness


def make(name="write_file", level="dangerous", categories=("files",)):
    return create_tool(name, "It.", {"type": "object"}, dict, safety_level=level, categories=categories)


def decided(rules: Any, tool=None, ceiling="dangerous", **arguments):
    return Policy(rules, ceiling).why(tool or make(), arguments).action.value


@pytest.mark.parametrize(
    ("level", "action"), [("safe", "allow"), ("cautious", "allow"), ("dangerous", "ask")]
)
def test_without_rules_the_level_decides(level, action):
    """Guard design, Policy: defaults."""
    verdict = Policy().why(make(level=level), {})
    assert (verdict.action, verdict.rule) == (action, None)
    assert verdict.explanation == f"no rule matches; the default for {level} tools is {action}"


def test_the_first_matching_rule_wins():
    """Guard design, Policy."""
    rules: list[dict[str, Any]] = [
        {"action": "deny", "tools": ["delete_*"]},
        {"action": "allow", "tools": ["write_*"], "reason": "trusted"},
        {"action": "deny"},
    ]
    policy = Policy(rules)
    verdict = policy.why(make(), {})
    assert verdict.action is Action.ALLOW
    assert verdict.rule is policy.rules[1]
    assert verdict.explanation == (
        'rule 2 says allow (trusted): {"action":"allow","tools":["write_*"],"reason":"trusted"}'
    )
    assert policy.why(make("delete_all"), {}).explanation.startswith("rule 1 says deny")
    assert policy.why(make("read"), {}).explanation.startswith("rule 3 says deny")


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({}, True),
        ({"tools": "write_file"}, True),
        ({"tools": ["write_*"]}, True),
        ({"tools": ["writ?_file"]}, True),
        ({"tools": ["write"]}, False),
        ({"tools": ["read_*", "*_file"]}, True),
        ({"tools": ["WRITE_FILE"]}, False),
        ({"categories": ["files"]}, True),
        ({"categories": [":files", "other"]}, True),
        ({"categories": "other"}, False),
        ({"safety": "dangerous"}, True),
        ({"safety": ["safe", ":dangerous"]}, True),
        ({"safety": ["safe", "cautious"]}, False),
        ({"tools": ["write_*"], "categories": ["other"]}, False),
        ({"tools": ["write_*"], "safety": "dangerous", "categories": "files"}, True),
    ],
)
def test_every_condition_of_a_rule_must_hold(rule, matches):
    """Guard design, Policy: tool name, categories, safety."""
    assert decided([{"action": "deny", **rule}]) == ("deny" if matches else "ask")


def test_argument_conditions_need_the_argument():
    """Guard design, Policy: argument values."""
    rules = [{"action": "allow", "arguments": {"path": "notes/**", "mode": "append"}}]
    assert decided(rules, path="notes/a.txt", mode="append") == "allow"
    assert decided(rules, path="notes/a.txt", mode="overwrite") == "ask"
    assert decided(rules, path="notes/a.txt") == "ask"


@pytest.mark.parametrize(("value", "action"), [(3, "allow"), ("3", "allow"), (True, "ask"), (4, "ask")])
def test_other_values_are_compared_as_their_json(value, action):
    """A glob is text; a number is compared as JSON writes it."""
    assert decided([{"action": "allow", "arguments": {"n": "3"}}], n=value) == action


def test_a_ceiling_refuses_what_is_above_it_whatever_the_rules_say():
    """Guard design, Policy: max_safety_level hides and refuses."""
    policy = Policy([{"action": "allow"}], "cautious")
    verdict = policy.why(make(), {})
    assert verdict.action is Action.DENY
    assert verdict.explanation == "write_file is dangerous, above the ceiling cautious"
    assert policy.why(make(level="cautious"), {}).action is Action.ALLOW


@pytest.mark.parametrize("action", ["ask", "deny"])
def test_a_rule_that_restricts_matches_either_spelling_of_a_tool(action):
    """Decision 4: a call may use either spelling, so a rule must stop both."""
    for rule_name in ("evaluate-lisp", "evaluate_lisp", "evaluate_*"):
        assert decided([{"action": action, "tools": rule_name}], make("evaluate-lisp", "safe")) == action
        assert decided([{"action": action, "tools": rule_name}], make("evaluate_lisp", "safe")) == action


def test_a_rule_that_allows_matches_the_exact_name_only():
    """Two tools may differ in nothing but their hyphens."""
    assert decided([{"action": "allow", "tools": "write-file"}]) == "ask"
    assert decided([{"action": "allow", "tools": "write_file"}]) == "allow"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("allow", "a rule is an object such as {'action': 'ask', 'tools': ['write_*']}, not 'allow'"),
        (None, "a rule is an object"),
        ({}, "unknown action None in a rule: expected allow, ask or deny"),
        (
            {"action": "alow"},
            "unknown action 'alow' in a rule: expected allow, ask or deny; did you mean 'allow'?",
        ),
        ({"action": 1}, "unknown action 1"),
        ({"action": "deny", "tool": "a"}, "unknown key 'tool' in a rule; did you mean 'tools'?"),
        (
            {"action": "deny", "zzz": 1},
            "unknown key 'zzz' in a rule: expected action, tools, categories, safety",
        ),
        ({"action": "deny", "tools": 3}, "tools in a rule must be a word or a list of words, not 3"),
        ({"action": "deny", "tools": [3]}, "tools in a rule must be a word or a list of words"),
        ({"action": "deny", "tools": {"a": 1}}, "tools in a rule must be a word or a list of words"),
        ({"action": "deny", "safety": "dangerus"}, "unknown safety level 'dangerus'"),
        ({"action": "deny", "arguments": ["path"]}, "arguments in a rule must map names to globs"),
        ({"action": "deny", "arguments": {"n": 3}}, "arguments in a rule must map names to globs"),
        ({"action": "allow", "tools": []}, "tools in a rule is empty: leave it out to match all calls"),
        ({"action": "allow", "arguments": {}}, "arguments in a rule is empty"),
        ({"action": "allow", "categories": ""}, "categories in a rule is empty"),
    ],
)
def test_a_bad_rule_is_refused_with_what_to_change(rule, text):
    """Errors say what to try; an empty list must not mean everything."""
    with pytest.raises(InvalidPolicyError) as caught:
        Policy([rule])
    assert text in str(caught.value)


@pytest.mark.parametrize("rules", ["deny", {"action": "deny"}, 3, None])
def test_rules_must_be_a_list(rules):
    """Errors say what to try."""
    with pytest.raises(InvalidPolicyError, match="rules must be a list of rules"):
        Policy(rules)
    with pytest.raises(InvalidPolicyError, match="unknown safety level"):
        Policy([], "severe")


def test_rules_made_in_python_are_read_like_rules_made_of_data():
    """A rule's words mean the same wherever they are written."""
    written: dict[str, Any] = {"tools": "write_*", "safety": "dangerous", "arguments": {"path": "*"}}
    rule = Rule(Action("deny"), **written)
    assert (rule.action, rule.tools) == (Action.DENY, ("write_*",))
    assert rule == Rule.from_data(rule.to_data())
    assert hash(rule) == hash(Rule.from_data(rule.to_data()))
    assert decided([rule], path="x") == "deny"
    with pytest.raises(InvalidPolicyError, match="did you mean 'deny'"):
        Rule("denny")  # type: ignore[arg-type]  # on purpose


def test_a_rule_cannot_be_changed_after_its_policy_got_a_version():
    """Guard design: an approval is bound to the policy's version."""
    rule = Rule(Action.ALLOW, arguments={"path": "notes/**"})
    with pytest.raises(TypeError):
        rule.arguments["path"] = "**"  # type: ignore[index]  # on purpose


def test_the_version_changes_with_every_rule_and_ceiling():
    """Guard design: sealed to the policy version."""
    rules = [{"action": "deny", "tools": ["a"]}]
    versions = [
        Policy().version,
        Policy(rules).version,
        Policy([{"action": "ask", "tools": ["a"]}]).version,
        Policy([*rules, {"action": "allow"}]).version,
        Policy([{"action": "allow"}, *rules]).version,
        Policy(rules, "cautious").version,
    ]
    assert len(set(versions)) == len(versions)
    assert Policy(rules).version == Policy(tuple(rules)).version


def test_an_added_rule_is_tried_first_and_the_old_policy_stays():
    """Guard design: «always allow this» writes a rule."""
    policy = Policy([{"action": "deny"}], "dangerous")
    wider = policy.with_rule({"action": "allow", "tools": ["write_file"]})
    assert wider.why(make(), {}).action is Action.ALLOW
    assert policy.why(make(), {}).action is Action.DENY
    assert (wider.version != policy.version, wider.max_safety_level) == (True, "dangerous")


def test_verdicts_are_not_mixed_up_between_tools_of_one_name():
    """A re-registered tool may be more dangerous than the one before."""
    policy = Policy([{"action": "deny", "categories": ["secret"]}])
    assert policy.why(make("it", "safe", ()), {}).action is Action.ALLOW
    assert policy.why(make("it", "dangerous", ()), {}).action is Action.ASK
    assert policy.why(make("it", "safe", ("secret",)), {}).action is Action.DENY


def test_remembered_verdicts_are_bounded(monkeypatch):
    """Style: never unbounded memory."""
    monkeypatch.setattr("gramercy.execution.policy.MOST_REMEMBERED", 10)
    policy = Policy([{"action": "deny", "arguments": {"a": "b"}, "tools": "odd_*"}])
    for number in range(50):
        tool = define_tool(f"{'odd' if number % 2 else 'even'}_{number}", "It.", [], handler=dict)
        assert policy.why(tool, {"a": "b"}).action is (Action.DENY if number % 2 else Action.ALLOW)
    assert len(policy.settled) <= 10
    assert len(policy._relevant) <= 10


TWIN = Likeness("run", ("running",), {"form": "code"})


@pytest.mark.contract("trust.preview.rules")
@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ([], "allow"),
        ([{"action": "deny", "tools": ["run"]}], "deny"),
        ([{"action": "ask", "tools": ["r*"]}], "ask"),
        ([{"action": "ask", "categories": ["running"]}], "ask"),
        ([{"action": "deny", "tools": ["run"], "arguments": {"form": "*danger*"}}], "deny"),
        ([{"action": "deny", "tools": ["run"], "arguments": {"form": "*other*"}}], "allow"),
        # What is said of the tool itself holds as before.
        ([{"action": "deny", "tools": ["try"]}], "deny"),
        ([{"action": "allow", "tools": ["run"]}, {"action": "deny"}], "deny"),
        # A wildcard or a category was not meant to take the tool out of a rule about its twin; its name was.
        ([{"action": "allow", "tools": ["t*"]}, {"action": "deny", "tools": ["run"]}], "deny"),
        ([{"action": "allow", "categories": ["trying"]}, {"action": "ask", "tools": ["run"]}], "ask"),
        ([{"action": "allow", "tools": ["try"]}, {"action": "deny", "tools": ["run"]}], "allow"),
        # Allowed as its twin is, and not more.
        ([{"action": "allow", "tools": ["run"]}, {"action": "deny", "tools": ["run"]}], "allow"),
    ],
)
def test_a_tool_that_can_do_what_another_can_is_judged_by_its_rules_too(rules, action):
    """Ways that close them: a preview has the rules of an evaluation."""
    schema = {"type": "object"}
    tool = create_tool("try", "It.", schema, dict, safety_level="cautious", categories=["trying"])
    tool = dataclasses.replace(tool, judged_as=(TWIN,))
    policy = Policy(rules)
    verdict = policy.why(tool, {"code": "some danger"})
    assert verdict.action.value == action
    assert policy.why(tool, {"code": "some danger"}) == verdict
    assert policy.may_ask(tool) == any(rule.action is Action.ASK for rule in policy.rules)


@pytest.mark.contract("trust.preview.rules")
def test_the_verdict_names_the_tool_by_whose_rules_it_was_judged():
    """Guard design, Policy: why."""
    tool = dataclasses.replace(make("try", "cautious"), judged_as=(TWIN,))
    verdict = Policy([{"action": "deny", "tools": ["run"]}]).why(tool, {})
    assert verdict.explanation == (
        'try is judged as run is: rule 1 says deny: {"action":"deny","tools":["run"]}'
    )


def tightening(action, file="project.toml", **conditions):
    """Return a rule of a file that may only tighten."""
    rule = Rule.from_data({"action": action, **conditions})
    return dataclasses.replace(rule, origin=RuleOrigin("project", file, 3, 1, tightens=True))


ACTIONS = st.sampled_from(["allow", "ask", "deny"])
GLOBS = st.sampled_from(["**", "a/**", "a/b", "c"])
NAMES = st.sampled_from([None, "*", "try", "run", "tr*"])
RULES = st.lists(st.tuples(ACTIONS, GLOBS, NAMES), max_size=4)


def told(rules, make_rule):
    """Make rules of actions, globs and names."""
    found = []
    for action, glob, name in rules:
        conditions: dict[str, Any] = {"arguments": {"path": glob}}
        conditions |= {} if name is None else {"tools": [name]}
        found.append(make_rule(action, **conditions))
    return found


@pytest.mark.contract("journal.policy.layers")
@given(RULES, RULES, RULES, st.sampled_from(["a/b", "a/c", "c", "d"]), st.sampled_from(list(Safety)))
def test_no_rule_that_only_tightens_makes_a_verdict_milder(own, first, second, path, level):
    """A project's file may only tighten, whatever is in it, also for a tool that is judged as another."""
    mine = told(own, lambda action, **conditions: Rule.from_data({"action": action, **conditions}))
    one = told(first, lambda action, **conditions: tightening(action, "one", **conditions))
    two = told(second, lambda action, **conditions: tightening(action, "two", **conditions))
    like = Likeness("run", ("files",), {"path": "path"})
    plain = make("try", level.value)
    tool, arguments = dataclasses.replace(plain, judged_as=(like,)), {"path": path}
    before = Policy(mine).why(tool, arguments)
    after = Policy([*one, *two, *mine]).why(tool, arguments)
    assert STRICTNESS[after.action] >= STRICTNESS[before.action]
    # And no more than the strictest of what each file says by itself.
    alone = (Policy(rules).why(tool, arguments).action for rules in (one, two))
    assert STRICTNESS[after.action] <= max(STRICTNESS[before.action], *(STRICTNESS[each] for each in alone))


def test_a_project_lets_no_tool_pass_where_those_that_it_is_like_are_held():
    """A rule that allows a tool by its own name is what its author meant: but that must be the person."""
    like = Likeness("run", ("files",), {"path": "path"})
    tool = dataclasses.replace(make("try", "cautious"), judged_as=(like,))
    mine, theirs = Rule(Action.DENY, ("run",)), tightening("allow", tools=["try"])
    assert Policy([mine]).why(tool, {}).action == "deny"
    assert Policy([theirs, mine]).why(tool, {}).action == "deny"
    assert Policy([Rule(Action.ALLOW, ("try",)), mine]).why(tool, {}).action == "allow"


def test_a_project_that_asks_about_a_tool_does_not_put_it_back_under_the_rules_of_its_like():
    """A file that only tightens adds its own word, and not what the person's rules say of another tool."""
    like = Likeness("run", ("files",), {"path": "path"})
    tool = dataclasses.replace(make("try", "cautious"), judged_as=(like,))
    mine = [Rule(Action.ALLOW, ("try",)), Rule(Action.DENY)]
    assert Policy([tightening("ask"), *mine]).why(tool, {}).action == "ask"


def test_rules_that_only_tighten_hold_against_what_comes_after_them_alone():
    """What the person gives with a command comes before a project's rules."""
    deny, allow = tightening("deny"), Rule(Action.ALLOW)
    assert decided([deny, allow]) == "deny"
    assert decided([allow, deny]) == "allow"


def test_the_version_tells_whether_a_rule_only_tightens_but_not_its_line():
    """Approvals are asked again when what decides has changed, not when a comment was added above it."""
    plain, tight = Rule(Action.ASK), tightening("ask")
    moved = dataclasses.replace(tight, origin=RuleOrigin("project", "project.toml", 9, 1, tightens=True))
    assert Policy([plain]).version != Policy([tight]).version
    assert Policy([tight]).version == Policy([moved]).version


@pytest.mark.contract("journal.policy.origin")
def test_a_refusal_tells_the_origin_of_the_rule():
    """The model tells the person what decided, and they find it."""
    rule = dataclasses.replace(
        Rule(Action.DENY, reason="generated"), origin=RuleOrigin("user", "~/policy.toml", 4, 2)
    )
    executor = Executor(Registry([make()]), policy=Policy([rule]))
    result = executor.execute({"id": "1", "name": "write_file", "arguments": {}})
    assert "rule 2 of ~/policy.toml:4 says deny (generated)" in result.content


def test_the_first_rule_of_a_file_that_only_tightens_decides_for_that_file():
    """So that it can make exceptions to its own rules, and to no others."""
    rules = [
        tightening("allow", arguments={"path": "notes/**"}),
        tightening("deny"),
        tightening("ask", "other.toml", arguments={"path": "notes/b.md"}),
        Rule(Action.ALLOW),
    ]
    assert [decided(rules, path=path) for path in ("notes/a.md", "notes/b.md", "c.md")] == [
        "allow",
        "ask",
        "deny",
    ]
