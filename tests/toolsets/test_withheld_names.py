"""What rules withhold stays withheld after a question, in errors and behind links."""

from __future__ import annotations

import shutil

import pytest

from gramercy.agents.mentions import Mentions
from gramercy.errors import InvalidMessageError
from gramercy.execution.policy import Policy

RULES = (
    {"action": "deny", "tools": ["read_file"], "arguments": {"path": ".env"}},
    {"action": "deny", "tools": ["read_file"], "arguments": {"path": "secrets/**"}},
)


@pytest.fixture
def secrets(project):
    """Put two files that rules deny into a project, and one that they do not."""
    (project / "secrets").mkdir()
    (project / "secrets/prod.pem").write_text("TOKEN\n")
    (project / ".env").write_text("TOKEN=1\n")
    (project / "notes.md").write_text("TOKEN?\n")
    return project


@pytest.mark.contract("trust.beyond.withheld")
def test_a_search_that_was_asked_about_shows_no_more_than_one_that_was_not(paper_desk, secrets):
    """The places of a call are found again when a person has decided."""
    del secrets
    paper_desk.executor.policy = Policy([*RULES, {"action": "ask", "tools": ["search_files", "list_files"]}])
    found = paper_desk.text("search_files", pattern="TOKEN")
    assert "notes.md" in found
    assert ".env" not in found
    assert "prod.pem" not in found
    assert "2 files withheld by rules" in found
    listed = paper_desk.text("list_files")
    assert "notes.md" in listed
    assert ".env" not in listed
    assert "prod.pem" not in listed


@pytest.mark.contract("trust.beyond.withheld")
def test_an_error_names_no_file_that_a_rule_withholds(paper_desk, secrets):
    """What is there instead of a file is told for the model to go on."""
    del secrets
    paper_desk.executor.policy = Policy(RULES)
    assert paper_desk.failure("read_file", path="secrets").endswith("it has 1 withheld by rules")
    assert ".env" not in paper_desk.failure("read_file", path=".en")
    assert "did you mean notes.md?" in paper_desk.failure("read_file", path="nots.md")
    listed = paper_desk.failure("read_file", path=".")
    assert listed.endswith("it has notes.md, secrets and 1 withheld by rules")


@pytest.mark.contract("trust.beyond.withheld")
def test_a_directory_that_becomes_a_link_is_not_listed(paper_desk, project, tmp_path):
    """Evaluated code could have names of another directory told."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/id_rsa").touch()
    (project / "d").mkdir()
    place = paper_desk.workspace.place("d")
    shutil.rmtree(project / "d")
    (project / "d").symlink_to(tmp_path / "home")
    with place.opened() as folder:
        assert place.names_in(folder) is None


@pytest.mark.contract("trust.beyond.mentions")
def test_a_bare_mention_of_a_link_to_secrets_is_held_back(paper_desk, secrets):
    """A person knows the name that they type, not where evaluated code has led it."""
    (secrets / "todo.md").symlink_to(".env")
    with pytest.raises(InvalidMessageError, match=r"keys are kept in files of such a name: say @file:\.env"):
        Mentions(paper_desk.workspace).resolve("look at @todo.md")
    assert "TOKEN" in Mentions(paper_desk.workspace).resolve("look at @file:todo.md").message


@pytest.mark.contract("trust.beyond.deep")
def test_links_that_lead_through_thousands_of_steps_are_refused(paper_desk, project):
    """Three of them made six thousand directories in a minute, each with an open descriptor."""
    for number in range(3):
        (project / f"l{number}").symlink_to(f"l{number + 1}/{'b/' * 1900}")
    before = sorted(project.iterdir())
    text = paper_desk.failure("write_file", path="l0/x.md", content="x")
    assert "l0/x.md cannot be used: its links lead through too many steps" in text
    text = paper_desk.failure("write_file", path=f"{'a/' * 900}x.md", content="x")
    assert "901 directories deep" in text
    assert sorted(project.iterdir()) == before
