"""Secrets: whole while a call may still have to run, dots when it is over, and no trace in the file."""

import json
from time import process_time

import pytest

from gramercy.errors import InvalidSettingError
from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.forms import CUES
from gramercy.journal.masking import Masking
from gramercy.journal.sqlite import SqliteJournal
from gramercy.journal.texts import masked as masked_text

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


NESTED = json.dumps({"body": json.dumps({"password": "hunter22", "more": json.dumps({"token": "hunter22"})})})


@pytest.mark.parametrize(
    "text",
    [
        r"{\"password\": \"hunter22\"}",
        NESTED,
        json.dumps(NESTED),
        "postgresql://ada:pass@hunter22@host/db",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEhunter22\nhunter22\n-----END RSA PRIVATE KEY-----",
        json.dumps("-----BEGIN PRIVATE KEY-----\nMIIEhunter22\nhunter22\n"),
        "PGPASSWORD=hunter22 psql",
        "curl -H 'Authorization: Basic hunter22=='",
        "curl -H 'X-Api-Key: hunter22abc' https://example.org",
        'curl -u "ada:hunter22" https://example.org',
        "https://example.org/?page=1&access_token=hunter22&more=1",
        "deploy --token=hunter22 --password hunter22",
        "aws_secret_access_key = abc/hunter22+d",
        "database:\n  password: hunter22\n  port: 1",
        r"password = 'it\'s hunter22'",
        """password = "it's hunter22" """,
        'password = """hunter22"""',
        '{"password" => "hunter22"}',
        "machine h login ada password hunter22",
        "<password>hunter22</password>",
        "glpat-hunter22hunter22hunter22",
        "github_pat_11AAAhunter22hunter22hunter22",
        "sk_live_hunter22hunter22",
    ],
)
def test_secrets_are_known_in_code_settings_commands_and_escaped_texts(text):
    kept = masked({"code": text}, content=text)
    assert "hunter22" not in kept.arguments["code"]
    assert "hunter22" not in kept.content


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=500, tokens: 1500",
        "token = next(tokens)",
        "def login(password: str, token: Token) -> None:",
        "docker run -u 1000:1000 --password-file /run/one --max-tokens 500",
        "TOKEN=$OTHER",
        "see http://localhost:8080/@ada",
        "\u0130 the password is not here",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text):
    assert masked({"code": text}).arguments["code"] == text


def test_no_cue_is_passed_over_before_the_search():
    assert [cue for cue in CUES if not Masking()._is_suspect(cue)] == []


@pytest.mark.parametrize("piece", ["--token", '"token\\"', "authorization: a ", "secret = '", "token   "])
def test_a_long_text_is_masked_in_a_time_that_grows_with_its_length(piece):
    """It is masked while other processes wait for the journal."""
    times = []
    for size in (20_000, 200_000):
        text = piece * (size // len(piece))
        begun = process_time()
        masked_text(text)
        times.append(process_time() - begun)
    assert times[1] < 40 * times[0] + 0.2


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
