"""Commands that look at a journal make none: a mistyped place is told."""

import click
import pytest

from gramercy.ui.cli.main import cli

LOOKING = [
    "approvals list",
    "approvals show 1",
    "approvals approve 1 --seal 3F2A-91BC",
    "approvals deny 1",
    "approvals edit 1 --arguments {} --seal 3F2A-91BC",
    "approvals resolve 1 done --reason x",
    "approvals watch --json",
    "audit show",
    "audit verify",
    "audit export -",
    "audit redact 1 --yes",
    "audit prune --before 1d --yes",
    "images",
    "policy try",
    "sessions list",
    "sessions show x",
    "sessions search x",
    "sessions rename x y",
    "sessions fork x",
    "sessions export x",
    "sessions stats",
    "sessions remove x --yes",
    "tools stats",
]


@pytest.mark.contract("trust.answers.look")
@pytest.mark.parametrize("by", ["option", "environment"])
@pytest.mark.parametrize("words", LOOKING)
def test_a_mistyped_journal_is_told_and_not_made(inside, tmp_path, monkeypatch, words, by):
    place = tmp_path / "jurnal.db"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    if by == "environment":
        monkeypatch.setenv("GRAMERCY_JOURNAL", str(place))
    done = inside(*words.split(), *(["--journal", str(place)] if by == "option" else []))
    assert done.returncode == 1
    assert f"there is no journal {place} yet" in done.stderr + done.stdout
    assert not list(tmp_path.glob("jurnal*"))


def test_every_command_that_looks_is_tried():
    """A new one must not slip in."""
    found = set()
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        below = getattr(command, "commands", None) or {"": command}
        for inner, each in below.items():
            options = [option for option in each.params if option.name == "journal"]
            if options and options[0].help and options[0].help.startswith("Where calls are recorded; by"):
                found.add(f"{name} {inner}".strip())
    tried = {" ".join(words.split()[:2]) if words.split()[0] != "images" else "images" for words in LOOKING}
    assert found == tried
