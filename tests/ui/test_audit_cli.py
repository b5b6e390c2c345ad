"""`gramercy audit`: what a person sees of the journal, and what they can prove and delete."""

import json
import sqlite3

import pytest

from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from tests.journal.books import LOOK, fill


@pytest.fixture
def audit(inside, tmp_path):
    """Run `gramercy audit` on a journal with something of everything."""
    place = tmp_path / "kept" / "journal.db"
    fill(place)

    def run(*words, code=0):
        done = inside("audit", words[0], "--journal", str(place), *map(str, words[1:]))
        assert done.returncode == code, done.stderr
        return done

    run.place = place  # type: ignore[attr-defined]
    return run


@pytest.mark.contract("journal.audit.show")
def test_calls_are_listed_oldest_first_with_who_decided(audit):
    lines = audit("show").stdout.splitlines()
    assert lines[0].split() == ["key", "time", "tool", "level", "state", "decided", "by", "ms", "size"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3", "4", "5"]
    assert lines[2].split()[3:] == ["pay", "dangerous", "done", "ada", "3.0", "4"]
    assert "awaiting approval" in lines[4]


def test_calls_are_chosen_by_what_is_known_of_them(audit):
    def keys(*words):
        return [call["key"] for call in json.loads(audit("show", "--json", *words).stdout)]

    assert keys() == [5, 4, 3, 2, 1]
    assert keys("--tool", "pay") == [4, 3, 2]
    assert keys("--state", "denied", "--state", "failed") == [5, 3]
    assert keys("--session", "s", "--most", "1") == [4]
    assert keys("--since", "1h") == [5, 4, 3, 2, 1]
    assert keys("--since", "2999-01-01") == []
    assert "neither so long ago" in audit("show", "--since", "soon", code=2).stderr


@pytest.mark.contract("journal.audit.show")
def test_a_story_tells_who_asked_what_was_shown_who_decided_and_what_came_back(audit):
    told = audit("show", 2).stdout
    for words in (
        "call 2: pay (dangerous), done",
        "asked by local, session s, call id 1",
        "awaiting approval: question 5ea1",
        "approved: by ada after 0.",
        "executing: image main; epoch e1; sandbox bubblewrap; in process ",
        "done: 3.0 ms; 4 characters came back; files a.txt; secrets of earlier steps masked",
    ):
        assert words in told
    assert "pay 1?" not in told
    assert "result: paid" not in told


@pytest.mark.contract("journal.audit.show-contents")
def test_contents_are_shown_by_choice(audit):
    told = audit("show", 2, "--contents").stdout
    for words in (
        'arguments: {"amount":1,"password":"…"}',
        "question: pay 1?",
        "reason: fine",
        "result: paid",
    ):
        assert words in told
    (facts,) = json.loads(audit("show", 2, "--contents", "--json").stdout)
    assert [step["state"] for step in facts["steps"]] == [
        "requested",
        "awaiting",
        "ready",
        "executing",
        "done",
    ]
    assert facts["steps"][4]["kept"] == {"content": "paid"}


def test_an_unknown_call_and_a_missing_journal_are_told(audit, inside, tmp_path):
    assert "there is no call 99" in audit("show", 99, code=1).stderr
    done = inside("audit", "verify", "--journal", str(tmp_path / "none.db"))
    assert (done.returncode, "no call was recorded there" in done.stderr) == (1, True)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.contract("journal.audit.verify")
def test_an_intact_journal_is_said_to_be_so(audit):
    done = audit("verify")
    assert done.stdout.startswith(
        "intact: 14 events of 5 calls in 2 chains\ncontents: 2 masked, as events say\n"
    )
    facts = json.loads(audit("verify", "--json").stdout)
    assert (facts["intact"], facts["flaws"], facts["chains"]) == (True, [], 2)
    assert f"digest: {facts['digest']}" in done.stdout
    assert audit("verify", "--expect", facts["digest"]).stdout == done.stdout


@pytest.mark.contract("journal.audit.verify")
def test_the_first_bad_record_is_named_and_the_exit_code_is_1(audit):
    with sqlite3.connect(audit.place) as book:
        book.execute("UPDATE events SET at = at - 5 WHERE chain = 1 AND number = 4")
    book.close()
    assert audit("verify", code=1).stdout.startswith("BROKEN: event 1.4 (call 2): it was changed")
    facts = json.loads(audit("verify", "--json", code=1).stdout)
    assert facts["intact"] is False


@pytest.mark.contract("journal.audit.expect")
def test_an_anchor_that_was_kept_elsewhere_proves_what_was_before_it(audit, tmp_path):
    anchor, other = tmp_path / "anchor", tmp_path / "other.db"
    digest = json.loads(audit("verify", "--anchor", anchor, "--json").stdout)["digest"]
    assert anchor.stat().st_mode & 0o777 == 0o600
    assert "cannot be written" in audit("verify", "--anchor", anchor, code=2).stderr
    audit("redact", 2, "--yes")
    assert audit("verify", "--expect", anchor).stdout.startswith("intact")
    assert "NOT AS EXPECTED" in audit("verify", "--expect", digest, code=1).stdout
    fill(other)
    audit.place.write_bytes(other.read_bytes())
    told = audit("verify", "--expect", anchor, code=1).stdout
    assert "not the event that the anchor knows" in told
    assert "is no digest, and no file" in audit("verify", "--expect", "nothing", code=2).stderr


@pytest.mark.contract("journal.audit.export")
def test_an_export_is_private_new_and_proves_itself(audit, inside, tmp_path):
    file = tmp_path / "audit.jsonl"
    audit("export", file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "cannot be written" in audit("export", file, code=2).stderr
    assert inside("audit", "verify", str(file)).stdout.startswith("intact: 14 events")
    assert audit("export", "-", "--contents").stdout.count("\n") == 16
    file.write_text(file.read_text().replace('"state":"denied"', '"state":"ready"'))
    assert inside("audit", "verify", str(file)).stdout.startswith("BROKEN: event 2.3 (call 3)")
    file.write_text("hello\n")
    assert "neither an export" in inside("audit", "verify", str(file)).stderr


def test_a_redaction_is_asked_about_recorded_and_shown(audit):
    assert "say --yes" in audit("redact", 2, code=2).stderr
    assert "say what" in audit("redact", "--yes", code=2).stderr
    assert "an empty text" in audit("redact", "--text", " ", "--yes", code=2).stderr
    assert "call 4 is awaiting" in audit("redact", 4, "--yes", code=1).stderr
    assert audit("redact", 2, "--yes", "--reason", "a name").stderr == "4 contents redacted\n"
    assert audit("show", 2).stdout.count("contents deleted") == 4
    assert audit("verify").stdout.startswith("intact: 16 events")
    audit("prune", "--before", "0s", "--yes")
    redacted, pruned = audit("show", "--changes").stdout.splitlines()
    assert "  redacted: by " in redacted
    assert "; 4 contents of call 2; a name  (event 3.2)" in redacted
    assert "; contents from before 20" in pruned
    facts = json.loads(audit("show", "--changes", "--json").stdout)
    assert [each["state"] for each in facts] == ["redacted", "pruned"]


def test_a_text_is_redacted_wherever_it_stands(audit):
    done = audit("redact", "--text", "pay 1?", "--yes")
    assert "until these calls are over: 4\n2 contents redacted" in done.stderr
    assert "pay 1?" not in audit("show", 2, "--contents").stdout
    assert "pay 1?" in audit("show", 4, "--contents").stdout
    assert audit("verify").stdout.startswith("intact")


def test_old_contents_are_pruned_and_open_calls_keep_theirs(audit):
    assert "that time is yet to come" in audit("prune", "--before", "2999-01-01", "--yes", code=1).stderr
    assert audit("prune", "--before", "1h", "--yes").stderr == "0 contents deleted\n"
    assert audit("prune", "--before", "0s", "--yes").stderr == "8 contents deleted\n"
    assert "contents: 2 masked, 8 deleted, as events say" in audit("verify").stdout
    assert "pay 1?" in audit("show", 4, "--contents").stdout


def test_a_look_while_another_process_writes_is_a_look_at_one_state(audit):
    journal = open_journal(audit.place)
    for _ in range(20):
        journal.note(LOOK, State.DONE)
    assert audit("verify").stdout.startswith("intact: 35 events")
    journal.close()


@pytest.mark.contract("journal.audit.figures")
def test_tools_stats_tells_of_all_processes(audit, gramercy):
    done = gramercy("tools", "stats", GRAMERCY_JOURNAL=str(audit.place))
    head, look, pay, *classes = done.stdout.splitlines()
    assert head.split()[:4] == ["tool", "calls", "ok", "failed"]
    assert look.split() == ["look", "2", "1", "1", "0", "0", "0", "50%", "0.5", "0.5", "2"]
    assert pay.split()[:8] == ["pay", "3", "1", "0", "1", "0", "1", "100%"]
    assert classes == ["look failed by: ValueError (1)", "pay refused by: person (1)"]
    done = gramercy("tools", "stats", "pay", "--json", GRAMERCY_JOURNAL=str(audit.place))
    (facts,) = json.loads(done.stdout)
    assert (facts["approvals"], facts["refusals"]) == (2, {"person": 1})
