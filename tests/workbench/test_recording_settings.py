"""What a user can set about the contents that a journal keeps; a project has no say in it."""

import json
from pathlib import Path
from time import time
from typing import Any

import pytest

from gramercy.errors import InvalidSettingError
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import Facts, NewCall, State
from gramercy.journal.opening import open_journal
from gramercy.workbench.configuration import read_configuration
from gramercy.workbench.recording import Ledger, Recording, recording_of
from gramercy.workbench.settings import KEYS, Settings, read_settings

OWN = 'mask = ["deploy.pin", "*.place"]\nmask_patterns = ["ACME-[0-9]+"]\nretention = 30\n'
CALL = NewCall("1", "deploy", "safe", {"pin": 4711, "place": "the-old-mill", "text": "see ACME-12"})


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Return the user's own file of settings."""
    for key in KEYS:
        monkeypatch.delenv(f"GRAMERCY_{key.upper()}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "config" / "gramercy" / "gramercy.toml"
    file.parent.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    return file


@pytest.mark.contract("journal.audit.settings")
def test_masks_of_the_user_hold_for_what_is_recorded(user, tmp_path):
    user.write_text(OWN)
    recording = recording_of(read_configuration(tmp_path / "project").settings)
    assert recording.retention == 30.0
    journal = recording.open(tmp_path / "project", print)
    journal.note(CALL, State.DONE, Facts(content="moved to the-old-mill"))
    (record,) = journal.records()
    assert record.call.arguments == {"pin": "…", "place": "…", "text": "see …"}
    assert record.facts.content == "moved to …"
    journal.close()


@pytest.mark.contract("journal.audit.settings-of-projects")
def test_a_project_can_neither_hide_nor_delete_what_is_recorded(user, tmp_path):
    user.write_text('mask = ["a.b"]\n')
    (tmp_path / "project" / "gramercy.toml").write_text(OWN)
    found = read_configuration(tmp_path / "project")
    assert (found.settings.mask, found.settings.mask_patterns, found.settings.retention) == (
        ("a.b",),
        (),
        None,
    )
    assert {each.key for each in found.refused} == {"mask", "mask_patterns", "retention"}


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"mask": ["deploy"]}, "is not TOOL.ARGUMENT"),
        ({"mask": "deploy.pin"}, "must be a list"),
        ({"mask_patterns": ["("]}, "is no regular expression"),
        ({"retention": 0}, "must be a number of days above 0"),
        ({"retention": "soon"}, "must be a number of days above 0"),
    ],
)
def test_what_cannot_be_used_is_told(table, fault):
    settings, wrong = read_settings(table, Path("/"))
    assert settings == Settings()
    assert fault in wrong[0]


def test_a_pattern_that_comes_another_way_is_refused():
    with pytest.raises(InvalidSettingError, match="no regular expression"):
        Recording(mask_patterns=("(",)).open("/project", print)


@pytest.mark.contract("journal.audit.retention")
def test_a_server_deletes_contents_that_are_older_than_they_are_kept(tmp_path, monkeypatch):
    place = tmp_path / "journal.db"
    journal: Any = open_journal(place)
    monkeypatch.setattr(journal, "_now", lambda: time() - 40 * 86_400)
    journal.note(CALL, State.DONE)
    waiting = journal.begin(CALL)
    monkeypatch.undo()
    journal.note(CALL, State.DONE)
    ledger = Ledger(Recording(str(place), retention=30.0), str(tmp_path / "project"))
    thread = ledger.tidy()
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    assert [bool(record.call.arguments) for record in journal.records()] == [True, True, False]
    assert journal.record(waiting).call.arguments["place"] == "the-old-mill"
    assert verify_journal(journal).flaws == ()
    ledger.close()
    journal.close()


def test_without_a_retention_nothing_is_deleted(tmp_path):
    ledger = Ledger(Recording(str(tmp_path / "journal.db")), str(tmp_path / "project"))
    assert ledger.tidy() is None
    ledger.close()


def test_the_audit_looks_where_the_user_records(user, tmp_path, monkeypatch, capfd):
    import sys

    from gramercy.ui.cli.main import main

    journal = open_journal(tmp_path / "elsewhere.db")
    journal.note(CALL, State.DONE)
    journal.close()
    user.write_text(f'journal = "{tmp_path / "elsewhere.db"}"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gramercy", "audit", "show", "--json"])
    with pytest.raises(SystemExit):
        main()
    assert [call["tool"] for call in json.loads(capfd.readouterr().out)] == ["deploy"]
