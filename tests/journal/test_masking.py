"""Secrets: whole while a call may still have to run, dots when it is over, and no trace in the file."""

import pytest

from gramercy.errors import InvalidSettingError
from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.masking import Masking
from gramercy.journal.sqlite import SqliteJournal

SECRET = "correct-horse-battery"
CALL = NewCall("1", "deploy", "dangerous", {"target": "web", "password": SECRET})
QUESTION = Question(f"deploy with {SECRET}?", "s", {}, "it is dangerous")
YES = Facts(ruling=Ruling(approved=True, by="ada", seal="s", reason=f"{SECRET} is right", shown=SECRET))


@pytest.fixture
def journal(tmp_path):
    opened = SqliteJournal(tmp_path / "journal.db")
    yield opened
    opened.close()


def texts_of(journal):
    return [text for (text,) in journal._run("SELECT text FROM contents ORDER BY key, step", ())]


@pytest.mark.contract("journal.audit.masked-at-the-end")
@pytest.mark.parametrize("end", [State.DONE, State.FAILED])
def test_what_runs_is_whole_and_what_has_run_is_masked(journal, end):
    key = journal.begin(CALL, State.AWAITING, Facts(question=QUESTION))
    journal.move(key, State.READY, YES)
    fence = journal.claim(key)
    assert journal.record(key).call.arguments["password"] == SECRET
    assert journal.record(key).facts.question.text == QUESTION.text
    journal.move(key, end, Facts(fence=fence, detail=f"used {SECRET}", content=f"ok {SECRET}"))
    record = journal.record(key)
    assert record.call.arguments == {"target": "web", "password": "…"}
    assert record.facts.question.text == "deploy with …?"
    assert record.facts.content == "ok …"
    assert SECRET not in "".join(texts_of(journal))


def test_a_call_in_doubt_keeps_what_its_probe_needs(journal):
    key = journal.begin(CALL, State.EXECUTING)
    journal.move(key, State.IN_DOUBT)
    assert journal.record(key).call.arguments["password"] == SECRET
    journal.move(key, State.DONE)
    assert journal.record(key).call.arguments["password"] == "…"


@pytest.mark.contract("journal.audit.masked-before")
def test_a_safe_call_is_written_masked(journal, tmp_path):
    journal.note(CALL, State.DONE, Facts(content=f'export API_KEY="{SECRET}"'))
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert journal.records()[0].call.arguments["password"] == "…"


def masked(arguments, masking=None, tool="deploy", **others):
    from gramercy.journal.chain import kept_text, read_kept

    call = NewCall("1", tool, "safe", arguments)
    (text,) = (masking or Masking())(tool, [kept_text(Facts(**others), call)])
    return read_kept(text)


def test_secrets_are_known_by_the_names_of_arguments_and_members():
    kept = masked({"api_key": 12345, "nested": {"token": "abc"}, "tokens": ["a", "b"], "path": "a.txt"})
    assert kept.arguments == {"api_key": "…", "nested": {"token": "…"}, "tokens": ["…", "…"], "path": "a.txt"}
    assert masked({"password": "", "secret": None, "token": False}).arguments == {
        "password": "",
        "secret": None,
        "token": False,
    }


@pytest.mark.parametrize(
    "text",
    [
        'password = "hunter2hunter2"',
        "Authorization: Bearer abcdefgh12345678",
        "https://ada:pa55word@example.org/",
        "sk-abcdefghijklmnopqrstuv",
        "ghp_abcdefghijklmnopqrstuvwxyz",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    ],
)
def test_secrets_are_known_by_their_form(text):
    kept = masked({"code": text}, content=text)
    assert "…" in kept.arguments["code"]
    assert "…" in kept.content


@pytest.mark.contract("journal.audit.masked-per-tool")
def test_a_setting_names_arguments_of_tools():
    masking = Masking(["deploy.target", "*.place"])
    assert masked({"target": "web-server"}, masking, content="to web-server").content == "to …"
    assert masked({"target": "web"}, masking, tool="other").arguments == {"target": "web"}
    assert masked({"place": {"a": ["here"]}}, masking, tool="other").arguments == {"place": {"a": ["…"]}}


def test_a_setting_gives_patterns():
    kept = masked({"text": "order 4711-22"}, Masking(patterns=[r"\d{4}-\d\d"]))
    assert kept.arguments == {"text": "order …"}
    with pytest.raises(InvalidSettingError, match="no regular expression"):
        Masking(patterns=["("])


def test_what_has_no_secret_is_kept_in_the_very_words():
    text = '{"arguments": {"key": [1, 2.50, null, true]},  "content": "\\ud800 keyboard"}'
    assert Masking()("look", [text]) == [text]


def test_short_values_are_masked_in_their_place_only():
    kept = masked({"password": "on"}, content="the light is on")
    assert kept.arguments == {"password": "…"}
    assert kept.content == "the light is on"
