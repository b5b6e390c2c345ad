"""Always allow this: narrow offers, one rule in the user's file, and nothing else changed there."""

import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import Policy, create_tool
from gramercy.errors import InvalidPolicyError
from gramercy.execution.policy import Action, Rule, RuleOrigin, Verdict
from gramercy.workbench.always import offered_rules, remember, why_not
from gramercy.workbench.policies import read_policies, user_policy_file


@pytest.fixture(name="project")
def project_fixture(tmp_path, monkeypatch):
    """Return a project, and let the user's own file be one that a test may write."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "garden").mkdir()
    return str(tmp_path / "garden")


def make(name="write_file"):
    return create_tool(name, "It.", {"type": "object"}, dict, safety_level="dangerous")


def allowed(rule, **arguments):
    return Policy([rule]).why(make(), arguments).action is Action.ALLOW


def written(project, arguments, number=0):
    rule = offered_rules("write_file", arguments)[number].rule
    return remember(rule, make(), arguments, project)


@pytest.mark.contract("journal.policy.always")
def test_a_path_is_offered_then_its_directory_then_the_tool():
    offers = offered_rules("write_file", {"path": "notes/old/today.md", "content": "x" * 9_000})
    assert [(offer.name, dict(offer.rule.arguments)) for offer in offers] == [
        ("this path", {"path": "notes/old/today.md"}),
        ("this directory", {"path": "notes/old/**"}),
        ("this tool", {}),
    ]
    assert offers[1].words == "write_file where path is notes/old/**"
    assert all(offer.rule.tools == ("write_file",) for offer in offers)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"path": "a.md"}, ["this path", "this tool"]),
        ({"path": "/a.md"}, ["this path", "this tool"]),
        ({"path": "notes/*.md"}, ["this tool"]),
        ({"path": "notes/../a.md"}, ["this tool"]),
        ({"path": "./notes/a.md"}, ["this path", "this tool"]),
        ({"path": "a\nb"}, ["this tool"]),
        ({"path": ""}, ["these arguments", "this tool"]),
        ({"to": "ann", "amount": 3}, ["these arguments", "this tool"]),
        ({"to": "ann", "note": "why?"}, ["these arguments", "this tool"]),
        ({"to": "ann", "note": "two\nlines"}, ["these arguments", "this tool"]),
        ({"to": "ann", "note": None}, ["this tool"]),
        ({"to": ["ann", {"or": None}]}, ["this tool"]),
        ({"to": "x" * 300}, ["this tool"]),
        ({"path": "a\ud800"}, ["this tool"]),
        ({"to": "ann", "a\ud800": 1}, ["this tool"]),
        ({"to": "ann", "password": "correct-horse"}, ["this tool"]),
        ({"to": "https://ann:correct-horse@example.org"}, ["this tool"]),
        ({}, ["this tool"]),
    ],
)
def test_nothing_is_offered_that_would_allow_more_than_its_words(arguments, names):
    """A path with a wildcard would match others; a secret would be kept; TOML has no null."""
    assert [offer.name for offer in offered_rules("write_file", arguments)] == names


@pytest.mark.contract("journal.policy.always")
@given(
    st.dictionaries(st.sampled_from(["path", "to", "n"]), st.one_of(st.text(max_size=12), st.integers())),
    st.dictionaries(st.sampled_from(["path", "to", "n"]), st.one_of(st.text(max_size=12), st.integers())),
)
def test_the_narrowest_offer_allows_this_call_and_no_other(asked, other):
    """A path is compared as text; of other calls every argument counts, with its type."""
    first, *more = offered_rules("write_file", asked)
    assert allowed(first.rule, **asked)
    if more and first.name == "this path":
        assert allowed(first.rule, **other) == ("path" in other and str(other["path"]) == asked["path"])
    elif more:
        assert allowed(first.rule, **other) == (other == asked)


@pytest.mark.contract("trust.answers.exactly")
@pytest.mark.parametrize(
    "other",
    [{"command": "ls", "sudo": True}, {"command": "ls", "n": "3"}, {"command": "ls"}, {"n": 3}],
)
def test_exactly_these_arguments_leaves_no_argument_free(project, other):
    """An argument that was not there when the person chose the rule is another call."""
    asked = {"command": "ls", "n": 3}
    rule = remember(offered_rules("run_it", asked)[0].rule, make("run_it"), asked, project)
    policy = read_policies(project).policy
    assert rule.exactly == asked
    assert policy.why(make("run_it"), asked).action == "allow"
    assert policy.why(make("run_it"), other).action == "ask"


@pytest.mark.contract("trust.answers.exactly-written")
@pytest.mark.parametrize(
    "value",
    [
        "*?",
        "a\n\tb",
        "\u202egpj.exe",
        "\x7f\x00",
        '"\\"',
        [1, "1", True, 2.5, []],
        {"a b": {}, "": -1e22},
        2**53 - 1,
    ],
)
def test_a_closed_rule_is_read_as_it_was_written(project, value):
    """What does not print is escaped in the file, so that a person who reads it sees the rule."""
    asked = {"to": value}
    rule = remember(offered_rules("run_it", asked)[0].rule, make("run_it"), asked, project)
    text = user_policy_file().read_text()
    assert text.replace("\n", "").isprintable()
    assert rule.to_data()["exactly"] == asked
    assert read_policies(project).policy.why(make("run_it"), asked).action == "allow"


@pytest.mark.contract("journal.policy.always")
def test_the_rule_is_written_for_this_project_and_decides(project):
    rule = written(project, {"path": "notes/a.md"}, 1)
    file = user_policy_file()
    assert (rule.origin.layer, rule.origin.line) == ("user-project", 3)
    assert file.stat().st_mode & 0o777 == 0o600
    data = tomllib.loads(file.read_text())
    (found,) = data["projects"][project]["rules"]
    assert found["arguments"] == {"path": "notes/**"}
    assert found["reason"].startswith("always allowed by a person, 20")
    here, elsewhere = read_policies(project).policy, read_policies(Path(project).parent).policy
    assert here.why(make(), {"path": "notes/b.md"}).action == "allow"
    assert elsewhere.why(make(), {"path": "notes/b.md"}).action == "ask"


@pytest.mark.contract("journal.policy.always")
def test_what_stands_in_the_file_stays_as_it_is(project):
    before = (
        "# mine\n\n[[rules]]\naction = 'deny'   # never\ntools = ['delete_*']\n\n"
        f'# here\n[[projects."{project}".rules]]\naction = "ask"\ntools = ["write_*"]\n'
        "\n[projects.'/other']\nmax_safety_level = 'safe'\n"
    )
    user_policy_file().parent.mkdir(parents=True)
    user_policy_file().write_text(before)
    user_policy_file().chmod(0o644)
    rule = written(project, {"path": "a.md"})
    text = user_policy_file().read_text()
    # Before the rule that asks, and the remark above that.
    assert rule.origin.line == text[: text.index("# here")].count("\n") - 5
    assert text.replace(text[text.index("[[projects") : text.index("# here")], "") == before
    assert user_policy_file().stat().st_mode & 0o777 == 0o644
    assert read_policies(project).policy.why(make(), {"path": "b.md"}).action == "ask"


def test_a_rule_of_the_project_that_asks_gives_way_to_the_word_of_the_person(project):
    """The person was shown it, and the rule is for this project alone."""
    Path(project, "gramercy-policy.toml").write_text('[[rules]]\naction = "ask"\n')
    written(project, {"path": "a.md"})
    assert read_policies(project).policy.why(make(), {"path": "a.md"}).action == "allow"


def test_a_file_that_cannot_take_a_rule_is_left_alone(project):
    """Rules on one line cannot be added to by another table: the person is told what to write."""
    before = f'projects."{project}".rules = [{{ action = "ask" }}]\n'
    user_policy_file().parent.mkdir(parents=True)
    user_policy_file().write_text(before)
    with pytest.raises(InvalidPolicyError, match=r"was left as it is; add by hand:\n(?s:.*)tools = "):
        written(project, {"path": "a.md"})
    assert user_policy_file().read_text() == before


def test_a_link_to_the_file_stays_a_link(project, tmp_path):
    """People keep such files elsewhere."""
    (tmp_path / "dotfiles").mkdir()
    user_policy_file().parent.mkdir(parents=True)
    user_policy_file().symlink_to(tmp_path / "dotfiles" / "policy.toml")
    (tmp_path / "dotfiles" / "policy.toml").write_text("")
    written(project, {"path": "a.md"})
    assert user_policy_file().is_symlink()
    assert "a.md" in (tmp_path / "dotfiles" / "policy.toml").read_text()


def test_a_directory_that_cannot_be_written_is_told(project):
    user_policy_file().parent.parent.write_text("no directory")
    with pytest.raises(InvalidPolicyError, match="no rule can be written into"):
        written(project, {"path": "a.md"})


def test_two_who_write_at_once_lose_nothing(project):
    paths = [f"notes/{number}.md" for number in range(8)]
    threads = [threading.Thread(target=written, args=(project, {"path": path})) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    rules = tomllib.loads(user_policy_file().read_text())["projects"][project]["rules"]
    assert sorted(rule["arguments"]["path"] for rule in rules) == paths


def test_where_a_rule_would_not_help_that_is_said(project, monkeypatch):
    """What is given with --policy comes first; and a file in the project may only tighten."""
    origin = RuleOrigin("given", "strict.toml", 4, 1)
    asking = Verdict(Action.ASK, Rule(Action.ASK, origin=origin), "")
    assert "asked because of strict.toml:4, given with --policy" in why_not(asking, project)
    assert why_not(Verdict(Action.ASK, None, ""), project) == ""
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{project}/config")
    assert "may only tighten" in why_not(None, project)


def test_a_rule_comes_before_the_one_that_asks_whatever_its_remarks_hold(project):
    """TOML ends a line at a newline alone."""
    mine = user_policy_file()
    mine.parent.mkdir(parents=True)
    header = f'[[projects."{project}".rules]]'
    text = f'# one\u2028two\x85three\n\n{header}\naction = "ask"\ntools = ["write_file"]\n'
    mine.write_text(text, encoding="utf-8")
    rule = written(project, {"path": "a.md"})
    assert rule.origin.line == 3
    assert mine.read_text(encoding="utf-8").endswith(text.partition("\n\n")[2])
