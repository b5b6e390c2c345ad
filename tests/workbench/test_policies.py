"""Rules from files: read whole or refused with the place of the fault, in layers, each with its origin."""

import os

import pytest

from gramercy import create_tool
from gramercy.errors import InvalidPolicyError, UntrustedFileError
from gramercy.images import trust
from gramercy.workbench.policies import read_policies, user_policy_file

GOOD = """
max_safety_level = "cautious"

[[rules]]
action = "deny"
tools = ["write_*"]
reason = "read-only today"
"""


@pytest.fixture(name="project")
def project_fixture(tmp_path, monkeypatch):
    """Return a project, and let the user's own file be one that a test may write."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "gramercy").mkdir(parents=True)
    (tmp_path / "garden").mkdir()
    return tmp_path / "garden"


def make(name="write_file", level="dangerous"):
    return create_tool(name, "It.", {"type": "object"}, dict, safety_level=level)


def rule(action, glob="**", header="rules"):
    return f'[[{header}]]\naction = "{action}"\narguments = {{ path = "{glob}" }}\n\n'


def judged(project, path="a/b.txt", given=None):
    return read_policies(project, given).policy.why(make(), {"path": path})


def test_rules_and_ceiling_are_read(tmp_path):
    """Guard, Policy: rules are data."""
    file = tmp_path / "policy.toml"
    file.write_text(GOOD)
    policy = read_policies(None, str(file)).policy
    assert [rule.reason for rule in policy.rules] == ["read-only today"]
    assert policy.max_safety_level == "cautious"
    told = policy.why(make(), {}).explanation
    assert told == f"write_file is dangerous, above the ceiling cautious of {file}:2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules = 3", r"rules must be a list: write \[\[rules\]\]"),
        ("[[rule]]\naction = 'deny'", "did you mean 'rules'"),
        ("\n[[rules]]\naction = 'forbid'", "policy.toml:2: rule 1: .*forbid"),
        ("[[rules]\n", "is not TOML.*line 1"),
        ("max_safety_level = 'low'", "policy.toml:1: .*low"),
        ("projects = 1", "there is no 'projects' in a policy"),
    ],
)
def test_a_fault_is_told_with_the_file(tmp_path, text, told):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InvalidPolicyError, match=told) as caught:
        read_policies(tmp_path, str(file))
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InvalidPolicyError, match="cannot be read"):
        read_policies(tmp_path, str(tmp_path / "absent.toml"))


def test_a_pipe_is_no_policy_and_nothing_waits_for_it(project):
    """A project's file may be anything that evaluated code can make."""
    os.mkfifo(project / "gramercy-policy.toml")
    with pytest.raises(InvalidPolicyError, match="it is not a file"):
        read_policies(project)


@pytest.mark.contract("journal.policy.layers")
@pytest.mark.parametrize(
    ("user", "project_says", "decided"),
    [
        (None, "allow", "ask"),
        (None, "deny", "deny"),
        ("allow", None, "allow"),
        ("allow", "ask", "ask"),
        ("allow", "deny", "deny"),
        ("ask", "allow", "ask"),
        ("deny", "allow", "deny"),
        ("deny", "ask", "deny"),
    ],
)
def test_a_project_may_only_tighten_what_the_user_says(project, user, project_says, decided):
    """Policy: a project's file may only tighten, since evaluated code can write it; the user's may allow."""
    if user:
        user_policy_file().write_text(rule(user))
    if project_says:
        (project / "gramercy-policy.toml").write_text(rule(project_says))
    assert judged(project).action == decided


@pytest.mark.contract("journal.policy.layers")
def test_the_nearest_word_of_the_person_counts_first(project):
    """Given with a command, then the user's rules for this project, then the project's own."""
    given = project.parent / "given.toml"
    given.write_text(rule("allow", "given/**"))
    user_policy_file().write_text(
        rule("deny", "given/**")
        + rule("allow", "here/**", f'projects."{project}".rules')
        + rule("allow", "there/**", 'projects."/somewhere/else".rules')
    )
    (project / "gramercy-policy.toml").write_text(rule("ask"))
    found = {path: judged(project, path, str(given)) for path in ("given/a", "here/a", "there/a")}
    assert {path: str(verdict.action) for path, verdict in found.items()} == {
        "given/a": "allow",
        "here/a": "allow",
        "there/a": "ask",
    }
    assert [verdict.rule.origin.layer for verdict in found.values()] == ["given", "user-project", "project"]


@pytest.mark.contract("journal.policy.origin")
def test_the_verdict_tells_file_line_and_number_of_its_rule(project):
    """Policy: the origin of each rule."""
    first = '# rules of this project\n\n[[rules]]\naction = "ask"\ntools = ["x"]\n'
    text = f'{first}\n  [[rules]]  # the second\naction = "deny"\n'
    (project / "gramercy-policy.toml").write_text(text)
    verdict = judged(project)
    assert verdict.explanation.startswith("rule 2 of gramercy-policy.toml:7 says deny: ")
    origin = verdict.rule.origin
    assert (origin.layer, origin.line, origin.number, origin.tightens) == ("project", 7, 2, True)


@pytest.mark.parametrize(
    "text",
    [
        'rules = [{ action = "deny" }]\n',
        '[[rules]]\naction = "deny"\nreason = """\n[[rules]]\n"""\n',
    ],
)
def test_no_line_is_told_rather_than_a_wrong_one(project, text):
    (project / "gramercy-policy.toml").write_text(text)
    assert judged(project).explanation.startswith("rule 1 of gramercy-policy.toml says deny")


def test_a_milder_rule_of_the_project_is_told_to_count_for_nothing(project):
    (project / "gramercy-policy.toml").write_text(rule("allow"))
    told = judged(project).explanation
    assert told.endswith("(rule 1 of gramercy-policy.toml:1 says less, but may only tighten)")


@pytest.mark.contract("journal.policy.layers")
def test_the_settings_of_a_project_can_hold_rules_and_no_file_takes_from_another(project):
    """A new file with a rule that allows must not undo what the other one asks for."""
    (project / "gramercy.toml").write_text("timeout = 30\n\n" + rule("deny", "**", "policy.rules"))
    verdict = judged(project)
    assert verdict.explanation.startswith("rule 1 of gramercy.toml:3 says deny")
    (project / "gramercy-policy.toml").write_text(rule("allow"))
    assert judged(project).action == "deny"


def test_settings_with_rules_are_no_remark(project):
    from gramercy.workbench.configuration import read_configuration

    (project / "gramercy.toml").write_text("timeout = 30\n" + rule("deny", "**", "policy.rules"))
    assert read_configuration(project).remarks == ()


def test_the_lowest_ceiling_counts_and_is_told(project):
    user_policy_file().write_text('max_safety_level = "dangerous"\n')
    (project / "gramercy-policy.toml").write_text('max_safety_level = "safe"\n')
    verdict = judged(project)
    assert verdict.explanation == "write_file is dangerous, above the ceiling safe of gramercy-policy.toml:1"


def test_a_link_that_leads_out_of_the_project_is_refused(project, tmp_path):
    (tmp_path / "other.toml").write_text(rule("allow"))
    (project / "gramercy-policy.toml").symlink_to(tmp_path / "other.toml")
    with pytest.raises(InvalidPolicyError, match="leads out of the project"):
        read_policies(project)


@pytest.mark.contract("journal.policy.written-by-code")
def test_the_users_file_in_a_project_only_tightens(project, monkeypatch):
    """Evaluated code could have written it: then it must not be able to allow itself anything."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "config"))
    user_policy_file().parent.mkdir(parents=True)
    user_policy_file().write_text(rule("allow") + rule("allow", "**", f'projects."{project}".rules'))
    found = read_policies(project)
    assert found.policy.why(make(), {"path": "a"}).action == "ask"
    assert "may only tighten" in found.remarks[0]


@pytest.mark.contract("journal.policy.written-by-code")
def test_a_projects_rules_that_changed_while_an_image_ran_are_refused(project):
    """Trust, control files: else code takes the rules away that hold it."""
    file = project / "gramercy-policy.toml"
    file.write_text(rule("deny"))
    read_policies(project)
    witness = trust.Witness(project.resolve())
    file.write_text("")
    witness.close()
    with pytest.raises(UntrustedFileError):
        read_policies(project)


@pytest.mark.contract("journal.policy.written-by-code")
def test_a_projects_rules_that_were_removed_while_an_image_ran_are_missed(project):
    file = project / "gramercy-policy.toml"
    file.write_text(rule("deny"))
    read_policies(project)
    witness = trust.Witness(project.resolve())
    file.unlink()
    witness.close()
    with pytest.raises(UntrustedFileError):
        read_policies(project)
    trust.accept_file(file)
    assert read_policies(project).layers == ()
