"""The rules of a running server: the person's files are read again, those of the project are not."""

import pytest

from gramercy import Executor, Registry, create_tool
from gramercy.workbench import policies
from gramercy.workbench.policies import Rulebook, user_policy_file
from tests.support import until

DENY = '[[rules]]\naction = "deny"\n'
ALLOW = '[[rules]]\naction = "allow"\n'


@pytest.fixture(name="place")
def place_fixture(tmp_path, monkeypatch):
    """Return a directory with a project, and a file of the user's that a test may write."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(policies, "LOOK_SECONDS", 0.01)
    (tmp_path / "config" / "gramercy").mkdir(parents=True)
    (tmp_path / "garden").mkdir()
    return tmp_path


class Served:
    """An executor whose rules a rulebook keeps, and what it has told."""

    def __init__(self, project, given=None):
        self.told: list[str] = []
        self.rules = Rulebook(project, given, self.told.append)
        tool = create_tool("write_file", "It.", {"type": "object"}, dict, safety_level="dangerous")
        self.executor = Executor(Registry([tool]), policy=self.rules.policy)
        self.rules.serve(self.executor)

    def says(self):
        return str(self.executor.why("write_file", {}).action)


@pytest.fixture(name="serve")
def serve_fixture():
    """Serve, and look for changes no more after the test."""
    opened = []

    def start(*arguments):
        opened.append(Served(*arguments))
        return opened[-1]

    yield start
    for served in opened:
        served.rules.close()


@pytest.mark.contract("journal.policy.read-again")
def test_a_change_of_the_users_file_counts_without_a_restart(place, serve):
    """A rule that was written in another terminal."""
    served = serve(place / "garden")
    assert served.says() == "ask"
    user_policy_file().write_text(ALLOW)
    until(lambda: served.says() == "allow")
    until(lambda: served.told == ["the rules were read again: 1 is in force"])
    user_policy_file().unlink()
    until(lambda: served.says() == "ask")


@pytest.mark.contract("journal.policy.read-again")
def test_a_file_that_cannot_be_used_leaves_the_rules_as_they_were(place, serve):
    user_policy_file().write_text(DENY)
    served = serve(place / "garden")
    user_policy_file().write_text("[[rules]\n")
    until(lambda: served.told)
    assert served.told[0].startswith("the rules before stay in force: ")
    assert served.says() == "deny"


@pytest.mark.contract("journal.policy.read-again")
def test_the_files_of_a_project_are_not_read_again(place, serve):
    """Evaluated code could have changed them, also the one that was given."""
    own, given = place / "garden" / "gramercy-policy.toml", place / "garden" / "given.toml"
    own.write_text(DENY)
    given.write_text('[[rules]]\naction = "deny"\ntools = ["other"]\n')
    served = serve(place / "garden", str(given))
    own.unlink()
    given.write_text(ALLOW)
    user_policy_file().write_text(ALLOW)
    until(lambda: served.told)
    assert served.says() == "deny"
    assert [layer.name for layer in served.rules.policies.layers] == ["given", "project", "user"]


def test_a_project_that_becomes_known_later_brings_its_rules(place, serve):
    served = serve(None)
    (place / "garden" / "gramercy-policy.toml").write_text(DENY)
    served.rules.move(place / "garden")
    assert "rule 1 of gramercy-policy.toml:1" in served.executor.why("write_file", {}).explanation


def test_rules_of_a_late_project_that_cannot_be_read_deny_everything(place, serve):
    """Nobody sees the fault at the start, so nothing may run as if there were no rules."""
    served = serve(None)
    (place / "garden" / "gramercy-policy.toml").write_text("rules = 3")
    served.rules.move(place / "garden")
    verdict = served.executor.why("write_file", {})
    assert verdict.action == "deny"
    assert "rules must be a list" in verdict.explanation
    assert "rules must be a list" in served.told[0]
    # Nor after a change of the user's own rules; but once they can be read, they hold.
    user_policy_file().write_text(ALLOW)
    until(lambda: len(served.told) > 1)
    assert served.says() == "deny"
    (place / "garden" / "gramercy-policy.toml").write_text('[[rules]]\naction = "ask"\n')
    served.rules.read_again()
    assert served.says() == "ask"


def test_the_users_file_in_a_project_is_not_read_again(place, serve, monkeypatch):
    """There evaluated code could take away what the person wanted to be held."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "garden"))
    user_policy_file().parent.mkdir()
    user_policy_file().write_text(DENY)
    served = serve(place / "garden")
    user_policy_file().write_text("")
    served.rules.read_again()
    assert served.says() == "deny"
