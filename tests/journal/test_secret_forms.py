"""The forms of secrets, one text for each; texts that only look like one; and what it costs to look."""

from __future__ import annotations

import base64
import random
import re
import string
import sys
from time import process_time

import pytest

from gramercy.journal.base import Facts, NewCall
from gramercy.journal.chain import kept_text
from gramercy.journal.forms import MOST_PLACES, SPACES
from gramercy.journal.masking import Masking
from gramercy.journal.texts import masked

HEX = "0123456789abcdef" * 4
WORD = "".join(random.Random(4).choices(string.ascii_letters + string.digits, k=64))
B64 = base64.b64encode(b"user:hunter2-hunter2").decode()
# The secret in each is what stands between the marks.
SHAPES = {
    "setting in small letters": "password=«hunter2hunter2»",
    "setting without a digit": "db.password=«letmeinplease»\n",
    "connection string": "Server=h;User=u;Password=«hunter2;»Timeout=3",
    "connection string of libpq": "host=h password=«hunter2hunter2» user=u",
    "ending _pwd": "mysql_pwd=«hunter2hunter2»",
    "ending _PWD": "MYSQL_PWD=«hunter2hunter2» mysql",
    "ending _PASS": "DB_PASS=«hunter2hunter2»",
    "ending _PASS of YAML": "SMTP_PASS: «hunter2hunter2»",
    "ending _pass of JSON": '{"db_pass": «"hunter2hunter2"»}',
    "ending _pass in code": "db_pass = '«hunter2hunter2»'",
    "option --db-pass": "run --db-pass «hunter2hunter2» now",
    "Cookie": "Cookie: «session=0123456789abcdef; other=1»\nHost: h",
    "Set-Cookie": "Set-Cookie: «sid=0123456789abcdef; Path=/; HttpOnly»",
    "cookie of curl": "curl -H 'cookie: «sid=0123456789abcdef»' h",
    "AccountKey": f"AccountName=a;AccountKey=«{WORD}==»;EndpointSuffix=core.windows.net",
    "SharedAccessKey": f"Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=«{WORD[:43]}=»",
    "Docker": f'{{"auths": {{"r.io": {{"auth": "«{B64}»"}}}}}}',
    "npm _auth": f"//registry.example/:_auth=«{B64}»",
    "npm _authToken": "//registry.example/:_authToken=«01234567-89ab-cdef-0123-456789abcdef»",
    "Sentry": f"https://«{HEX[:32]}»@o123.ingest.sentry.io/456",
    "Sentry with a secret": f"https://«{HEX[:32]}:{HEX[:32]}»@sentry.example/2",
    "Slack app": "«xapp-1-A0123456789-0123456789012-abcdef0123456789»",
    "Slack bot": "«xoxb-0123456789-0123456789012-abcdefABCDEF»",
    "Slack hook": "https://hooks.slack.com/services/T01234567/B01234567/«abcdefABCDEF0123456789ab»",
    "SendGrid": "«SG.abcdefghijklmnop0123.abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG»",
    "Vault": "«hvs.CAESIJabcdefghijklmnopqrstuvwxyz0123456789»",
    "Vault batch": "«hvb.AAAAAQabcdefghijklmnopqrstuvwxyz0123456789»",
    "DigitalOcean": f"«dop_v1_{HEX}»",
    "Shopify": f"«shpat_{HEX[:32]}»",
    "Linear": "«lin_api_abcdefghijklmnopqrstuvwxyz0123456789ABCD»",
    "Mailgun": f"«key-{HEX[:32]}»",
    "Twilio": f"«SK{HEX[:32]}»",
    "Telegram": "bot 123456789:«AAabcdefghijklmnopqrstuvwxyz0123456»",
    "Discord": "«MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs»",
    "Discord hook": "https://discord.com/api/webhooks/123456789012345678/«abcdefABCDEF0123456789abcdef»",
    "age": "«AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ»",
    "OpenAI": "«sk-proj-abcdefghijklmnopqrstuv»",
    "GitHub": "«ghp_abcdefghijklmnopqrstuvwxyz0123456789»",
    "AWS": "«AKIAABCDEFGHIJKLMNOP»",
    "Google": "«AIzaSyabcdefghijklmnopqrstuvwxyz0123456»",
    "token of JSON": "«eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc»",
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----«\nb3BlbnNzaC1r\n»-----END OPENSSH PRIVATE KEY-----",
}
INNOCENT = [
    "login(user, password=password, token=self._token)",
    "self.password=password\n",
    "password=None, secret=True",
    "password=getpass()",
    "connect(password=settings.db_password)",
    "n_passes=12 test_passed=3 bypass_cache=yes",
    "PWD=/home/ada/project OLDPWD=/home/ada",
    "the cookie: a small text that a server sets",
    "cookie: str = ''",
    'assert response.headers["Set-Cookie"]',
    '"auth": null, "authors": ["Ada Lovelace"]',
    "https://example.org/a@b and ssh://git@github.com/a/b.git",
    "the class Task-list has a sk-ip and an ask_for",
    "1.2.3 and v10.20.30 and foo.bar_baz.quux",
    "import os.environ.get",
    "at 12:30:45 on 2026-11-17",
    "monkey-patching, turkey-0123",
    "lin_space(0, 1, 100) and shp_file.read()",
    "public key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIabcdefghijklmnopqrstuvwxyz",
    "tokens = tokenize(text); token_type = kinds[0]",
    "MASKED SKILLS and SKa",
    "/webhooks/ and /services/tools",
    "max_tokens=500 key=value sort_key=name",
    "{:aa 1 :bb 2}",
]


@pytest.mark.contract("journal.faults.secrets")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("around", ["{}", "before {} after", 'x = "y"\n{}\n', "\u0130 {}"])
def test_a_secret_of_each_form_is_masked_and_nothing_else(shape, around):
    """As the only text of a call, too: a form that no hint tells of would be kept."""
    marked = around.format(SHAPES[shape])
    before, _, rest = marked.partition("«")
    secret, _, after = rest.partition("»")
    text = masked(before + secret + after)
    assert secret.strip('";\n') not in text
    assert "…" in text
    assert text.startswith(before.rstrip('"'))
    kept = kept_text(Facts(content=before + secret + after), NewCall("1", "t", "safe", {}))
    assert Masking()("t", [kept]) != [kept]


@pytest.mark.contract("journal.faults.secrets")
@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_text_stays(text):
    assert masked(text) == text


PIECES = [
    *("password ", "eyJ", "token=", "token=zz-", "://", 'secret"', " -u a", " --token ", "<token", "bearer "),
    *("-----BEGIN ", "password='", "api_key: a", "authorization: a ", " sk-", "password\\", " AKIA", "ghp_"),
    *(
        "PASSWORD_",
        "?token",
        "://aaaaaaaaaaaa:b",
        "&key=a",
        "a",
        "_",
        "a.bbbbbb.",
        "SK0",
        ":aa",
        "cookie: a=",
    ),
    *(
        '"auth":"',
        "/webhooks/1",
        "eyJaaaaaaaaa.",
        '"token\\"',
        "secret = '\n",
        "token   ",
        "def f(token, x):\n",
        "eyJaaaaaaaa-",
        "://a:",
        "TOKEN=$",
    ),
]
# Ten times the text takes ten times as long, and on a busy machine up to twice that; the square is a hundred.
MOST_GROWTH = 30


def _ratio(piece, small, large):
    """Return how much more CPU time the larger text takes, by the best of each; stop when it is in order."""
    best = [float("inf"), float("inf")]
    texts = [f"{piece * (size // len(piece))})" for size in (small, large)]
    for turn in range(10):
        for place, text in enumerate(texts):
            begun = process_time()
            masked(text)
            best[place] = min(best[place], process_time() - begun)
        if turn >= 2 and best[1] <= MOST_GROWTH * best[0]:
            break
    return best[1] / best[0]


@pytest.mark.contract("journal.faults.masking-time")
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("small", [6_000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_a_text_of_ten_times_the_length_takes_no_hundred_times_to_mask(piece, small):
    """Other processes wait for the journal meanwhile; evaluated code may have made the text for that.

    All places of the smaller texts are looked at, and of the larger ones no more than the most.
    """
    assert _ratio(piece, small, 10 * small) <= MOST_GROWTH


@pytest.mark.contract("journal.faults.secrets")
def test_a_text_that_ends_with_an_open_quote_is_masked():
    assert masked("password='") == "password='…"


def test_all_that_is_a_space_is_written_out():
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    assert re.findall(rf"[{SPACES}]", "".join(every)) == re.findall(r"\s", "".join(every))


@pytest.mark.contract("journal.faults.secrets")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"token={'a' * 1_000} b", "token=… b"),
        (f"token={'a' * 1_001} b", f"token={'a' * 1_001} b"),
        # Of many settings in one run, the first whose value is short enough.
        (f"{'token=zz-' * 300} c", f"{'token=zz-' * 189}token=… c"),
        # A run that ends as no value does, and the next one, which does.
        ("token=aaaa-token=bbbb(token=cccc d", "token=aaaa-token=bbbb(token=… d"),
        (f"-eyJ{'a' * 600}.{'b' * 8}", "-…"),
        (f"-eyJ{'a' * 601}.{'b' * 8}", f"-eyJ{'a' * 601}.{'b' * 8}"),
        (f"-eyJ{'a' * 600}-eyJ{'c' * 9}.{'b' * 8}", f"-eyJ{'a' * 600}-…"),
    ],
)
def test_every_place_in_a_run_is_looked_at(text, kept):
    """Its end is found once for all of them."""
    assert masked(text) == kept


@pytest.mark.contract("journal.faults.masking-time")
def test_a_text_with_too_many_places_is_cut_off_and_says_so():
    """What is not looked at is not kept."""
    text = "the password " * (MOST_PLACES + 500) + "password=hunter2hunter2"
    kept = masked(text)
    assert "hunter2" not in kept
    assert kept.endswith("characters, is not kept: too many places look like secrets)")
    assert kept.startswith("the password the password")
