"""The forms of secrets, as data: where one may stand in a text, and where it begins and ends there.

A text is looked at while other processes wait for the journal, and may have millions of characters. So places
are found by a plain search for cues, patterns are tried there only, and none of them looks further than a few
hundred characters before the secret begins. What a secret is replaced with is not known here.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# What the name of a secret has in it.
_WORDS = (
    *("passw", "passphrase", "secret", "token", "credential", "accountkey"),
    *(f"{what}{gap}key" for what in ("api", "private", "access") for gap in ("", "-", "_", " ")),
)
# Names of headers, whose values have more forms.
_HEADERS = ("authorisation", "authorization")
# What the name of a secret may end with.
_ENDINGS = tuple(f"{gap}{word}" for word in ("pwd", "pass") for gap in "_-")
SECRET_NAME = f"(?:{'|'.join((*_WORDS, *_HEADERS))}|[_-](?:pwd|pass)(?![a-z])|^(?:pwd|pass)$)"
CUES = {
    **dict.fromkeys(_WORDS, "name"),
    **dict.fromkeys(_HEADERS, "name of header"),
    **dict.fromkeys(_ENDINGS, "ending"),
    "-----begin ": "key",
    "://": "address",
    **dict.fromkeys(("?key=", "&key=", "?sig=", "&sig="), "query"),
    **dict.fromkeys((" -u ", " --user ", " --user="), "user"),
    "bearer": "bearer",
    "cookie": "cookie",
    **dict.fromkeys(('"auth\\"', '"auth"', "_auth="), "auth"),
    ":aa": "telegram",
    **dict.fromkeys(("/webhooks/", "/services/t"), "hook"),
    **dict.fromkeys(("sk-", "sk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), "form"),
    **dict.fromkeys(
        ("glpat-", "akia", "asia", "xox", "xapp-", "eyj", "aiza", "hf_", "npm_", "pypi-"), "form"
    ),
    **dict.fromkeys(("sg.", "hvs.", "hvb.", "hvr.", "dop_v1_", "doo_v1_", "dor_v1_"), "form"),
    **dict.fromkeys(("shpat_", "shpca_", "shppa_", "shpss_", "lin_api_", "lin_oauth_", "key-"), "form"),
    "age-secret-key-": "form",
}
# Signs that cues have in common: without one of them, those cues need not be looked for. A cue is put to the
# first sign that it has, so the rare ones come first.
_SIGNS = (
    *("private", "access", "api", "_v1_", "shp", "lin_", "hv", "sig=", " --user"),
    *("key", "auth", "pass", "_", "-", "/", "."),
)
_CUES_BY_SIGN: dict[str, list[str]] = {}
for _cue in CUES:
    _CUES_BY_SIGN.setdefault(next((sign for sign in _SIGNS if sign in _cue), ""), []).append(_cue)
# To look for one character takes a tenth of the time that a word takes. In a long text the characters are
# looked for first, and words only where all of their characters are there.
_CHARACTERS = "".join(sorted(set("".join(CUES))))
_LONG = 10_000
# To parse and search every text would cost more than to record it; hardly any has one of these, of which each
# cue has one. Those of the second and third row are looked for where the sign before them is in the text.
HINTS = (
    *("pass", "secret", "token", "credential", "key", "auth", "bearer", "cookie", "://", "sig=", " -u "),
    *(" --user", ":aa", "akia", "asia", "xox", "eyj", "aiza"),
)
MORE_HINTS = tuple(
    {
        "_": (
            "_pwd",
            "sk_",
            "rk_",
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "_pat_",
            "hf_",
            "npm_",
            "_v1_",
            "shp",
            "lin_",
        ),
        "-": ("-pwd", "sk-", "glpat-", "xapp-", "pypi-", "-----begin "),
        ".": ("sg.", "hvs.", "hvb.", "hvr."),
        "/": ("/webhooks/", "/services/t"),
    }.items()
)
# These have no cue: they are known by their digits, or by the distance of their dots.
TWILIO, DISCORD = re.compile(r"SK[0-9a-f]{32}(?!\w)"), re.compile(r"\.[\w-]{6}\.[\w-]{27}")
# That of Discord is no shorter than this.
SHORTEST_DOTTED = 58
# A text with more places is cut off there: it could be made so that to look at all takes minutes.
MOST_PLACES = 20_000
# How far a value in quotes is followed, and what a pattern sees of the text behind its place.
LONGEST_QUOTED, _WINDOW = 4_000, 600
# What stands before a place and is looked at.
_FARTHEST_BACK = 110
# Values are not numbers alone: `max_tokens = 500` is no secret, and neither is the group in `-u 1000:1000`.
_NO_NUMBER = r"(?!\d{1,60}+(?:[^\w-]|\Z))"
# In code a name often stands for the value: password=password, token=self._token, secret=None.
_NO_NAME = (
    r"(?!(?:none|null|nil|true|false|yes|no|str|int|bytes)(?:[^\w]|\Z))"
    r"(?![\w.]{0,60}(?:passw|token|secret|key|credential|pwd)[\w.]{0,60}+(?:[^\w.]|\Z))"
)
# All that is a space, written out: in a set with others, Python's `\s` is looked up for each character apart,
# which takes four times as long.
SPACES = r"\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_OPEN = r"(?P<open>\\{0,8}(?:\"\"\"|'''|[\"']))(?!(?P=open))"


def _is_in_capitals(text: str, place: int) -> bool:
    return "A" <= text[place - 1 : place] <= "Z"


def _is_option(text: str, place: int) -> bool:
    words = text[max(0, place - 80) : place].rsplit(None, 1)
    return bool(words) and words[-1].lstrip("\"'").startswith("-")


def _is_parameter(text: str, place: int) -> bool:
    back = text[max(0, place - 62) : place]
    start = max(back.rfind("?"), back.rfind("&"))
    return start >= 0 and not _NOT_IN_NAMES.search(back, start + 1)


def _is_element(text: str, place: int) -> bool:
    back = text[max(0, place - 62) : place]
    start = back.rfind("<")
    return start >= 0 and not _NOT_IN_NAMES.search(back, start + 1)


def _is_login(text: str, place: int) -> bool:
    back = text[max(0, place - _FARTHEST_BACK) : place]
    words = back.rsplit(None, 2)
    # The pattern is tried at every letter, so the ends of the words are compared before.
    if len(words) < 3 or len(words[2]) != 5 or words[0][-1] not in "nN":  # noqa: PLR2004 - login, name, passw
        return False
    return _LOGIN.search(back) is not None


def _is_number(text: str, place: int) -> bool:
    return text[max(0, place - 8) : place].isdecimal() and place >= 8  # noqa: PLR2004 - as long as Telegram's


def _is_start(text: str, place: int) -> bool:
    return _IN_WORD.search(text[max(0, place - 2) : place]) is None


# A key begins in no word, but after the letter of an escape in JSON or code, such as that of a line break,
# and after the last letter of a sequence that colours a terminal.
_IN_WORD = re.compile(r"(?:(?<!\\)[nrtbf]|(?<![\d;\[])m|[^\Wnrtbfm])\Z", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^\w:.-]")
_LOGIN = re.compile(r"\blogin\s{1,9}\S{1,80}\s{1,9}passw\Z", re.IGNORECASE)


class Run(NamedTuple):
    """Characters that a value begins with, how many there are at most, and what comes after them.

    Many places may stand in one run. Its end is found once for all of them, and a value is tried only where
    the run fits; otherwise each place would look at the same thousand characters again.
    """

    characters: str
    most: int
    after: str


class Form(NamedTuple):
    """A form of a secret: what must stand before its place, how it begins there, and what it is.

    Without a `value` it is what stands in quotes, of which `begin` has the first.
    """

    begin: str
    value: str = ""
    before: Callable[[str, int], bool] | None = None
    run: Run | None = None


# What a setting may have in its value, and what follows it.
_SET, _SET_END = rf"[^{SPACES}\"'&;|$()`\\,<>\[\]{{}}:]", r"[\s;&\"'\\]|\Z"


_NAME_FORMS = (
    # A member of a JSON object.
    Form(
        r"[^\"\\]{0,60}+\"\s{0,9}:\s{0,9}",
        r"\"(?:[^\"\\]|\\.){0,100000}+\"?|[^\s\",{}\[\]\\]++",
    ),
    # An assignment in code, a member of a dictionary, a keyword of Lisp.
    Form(rf"[\w-]{{0,40}}\\{{0,8}}\W{{0,2}}\s{{0,9}}(?:[:=]{{1,2}}>?\s{{0,99}}|\s){_OPEN}"),
    # A variable of a shell; one that refers to another one has no secret in it.
    Form(r"(?-i:[A-Z0-9_]{0,40}=)", rf"{_NO_NUMBER}[^\s\"'&;|$()`\\]++", _is_in_capitals),
    # A parameter of an address.
    Form(r"[\w.-]{0,40}+=", r"[^&\s\"'#\\]++", _is_parameter),
    # A setting, a part of a connection string; in code a comma or a parenthesis follows.
    Form(
        r"[\w-]{0,40}+=",
        rf"{_NO_NUMBER}{_NO_NAME}{_SET}{{4,1000}}+(?={_SET_END})",
        run=Run(_SET, 1_000, _SET_END),
    ),
    # An option of a program, unless it names where the secret is.
    Form(
        r"(?!\S{0,40}-(?:file|stdin|path|env))[\w-]{0,40}[=\s]\s{0,9}",
        rf"{_NO_NUMBER}[^\s\"'\\$-][^\s\"'\\]*+",
        _is_option,
    ),
    # A line of YAML or of settings, a header: a word with a digit, which no type and hardly a name has.
    Form(
        r"[\w-]{0,40}\s{0,9}[:=][ \t]{1,9}",
        rf"{_NO_NUMBER}(?=[^\s\"'\d]{{0,200}}+\d)[\w/+=@!#%^&*~$.-]{{6,1000}}+(?=[\"'\\\s,]|\Z)",
    ),
    # An element of XML, a line of .netrc.
    Form(r"[\w-]{0,40}+>", r"[^<]{1,4000}+", _is_element),
    Form(r"ord\s{1,9}", r"\S++", _is_login),
)
# Keys that are known by how they begin. One pattern has them all: what stands before is looked at once.
_KEYS = (
    r"(?:sk-|pypi-|glpat-|xapp-)[\w-]{16,}+",
    r"(?:gh[a-z]|github_pat|npm|hf|shp(?:at|ca|pa|ss)|lin_(?:api|oauth)|do[opr]_v1)_\w{20,}+",
    r"[sr]k_(?:live|test)_\w{10,}+|xox[a-z]-[\w-]{10,}+",
    r"(?-i:A(?:KIA|SIA)[0-9A-Z]{16}|SK[0-9a-f]{32}\b|key-[0-9a-f]{32}\b)",
    r"(?-i:AIza[\w-]{30,}+|hv[sbr]\.[\w-]{20,}+)",
    r"(?-i:SG\.[\w-]{16,40}+\.[\w-]{16,}+|AGE-SECRET-KEY-1[0-9A-Z]{40,}+)",
)
_HEADER_FORM = Form(
    r"\\{0,8}[\"']?\s{0,9}[:=]\s{0,9}\\{0,8}[\"']?(?:\w{1,40}+\s{1,9})?", r"[^\s\"'\\,;]{8,}+"
)
FORMS: dict[str, tuple[Form, ...]] = {
    "name": _NAME_FORMS,
    "name of header": (_NAME_FORMS[0], _HEADER_FORM, *_NAME_FORMS[1:]),
    "ending": tuple(Form(f"(?![a-z]){form.begin}", *form[1:]) for form in _NAME_FORMS[:-1]),
    "key": (Form(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,9}-----", r"[^-]++"),),
    "address": (
        # The key of a Sentry project, with its secret where there is one.
        Form("://", r"[0-9a-f]{32}(?::[0-9a-f]{32})?(?=@)"),
        # The last @ before a slash ends the password, which may have others.
        Form(r"://[^/\s:@\"']{0,80}+:", r"[^/\s\"']{1,200}(?=@)"),
    ),
    "query": (Form(r"[?&]\w{1,9}=", r"[^&\s\"'#\\]{8,}+"),),
    "user": (Form(r" \S{1,9}[ =]\s{0,9}\\{0,8}[\"']?[^\s:\"'\\/]{1,80}+:", rf"{_NO_NUMBER}[^\s\"'\\]++"),),
    "bearer": (Form(r"bearer\s{1,9}", r"[\w.~+/-]{8,}+=*+"),),
    # All of them, to the end of the line; a parameter or a type has no pair.
    "cookie": (
        Form(r"cookie2?[\"']?\s{0,9}[:=]\s{0,9}[\"']?", r"[\w.-]{1,80}+=[^\s;\"'\\]{6}[^\n\r\"'\\]*+"),
    ),
    "auth": (Form(r"[\"_]auth(?:\\{0,8}\"\s{0,9}:\s{0,9}\\{0,8}\"|=)", r"[\w+/-]{8,}+=*+"),),
    "telegram": (Form(":", r"AA[\w-]{31,}+", _is_number),),
    "hook": (Form(r"/webhooks/\d{5,25}+/|/services/T\w{5,20}+/B\w{5,20}+/", r"[\w-]{16,}+"),),
    "form": (
        Form("", "|".join(_KEYS), _is_start),
        Form("", r"(?-i:eyJ[\w-]{8,600}+\.[\w.-]{8,}+)", _is_start, Run(r"[\w-]", 603, r"\.")),
    ),
    "discord": (Form("", r"[MNO][\w-]{22,28}\.[\w-]{6}\.[\w-]{27,}+"),),
}
# The first part of a token of Discord, which stands before its first dot.
_DISCORD_START = re.compile(r"[MNO][\w-]{22,28}\Z")


class Places(NamedTuple):
    """Where secrets may begin in a text, by what kind of cue, and where to stop if there are too many."""

    found: list[tuple[int, str]]
    end: int


def places(text: str, lowered: str) -> Places:
    """Return where secrets may begin; `lowered` is the text in small letters, of the same length."""
    found: list[tuple[int, str]] = []
    for cue in _cues_in(lowered):
        kind = CUES[cue]
        place, after = lowered.find(cue), len(cue) if kind in {"name", "name of header", "ending"} else 0
        for _ in range(MOST_PLACES + 1):
            if place < 0:
                break
            found.append((place + after, kind))
            place = lowered.find(cue, place + len(cue))
    found += [(key.start(), "form") for key in islice(TWILIO.finditer(text), MOST_PLACES + 1)]
    for dots in islice(DISCORD.finditer(text), MOST_PLACES + 1):
        back = max(0, dots.start() - 29)
        if start := _DISCORD_START.search(text[back : dots.start()]):
            found.append((back + start.start(), "discord"))
    found.sort()
    if len(found) <= MOST_PLACES:
        return Places(found, len(text))
    return Places(found[:MOST_PLACES], found[MOST_PLACES][0])


def _cues_in(lowered: str) -> list[str]:
    """Return the cues that a text has; a long text may lack some of them."""
    if len(lowered) < _LONG:
        signs = [sign for sign in _CUES_BY_SIGN if sign in lowered]
        return [cue for sign in signs for cue in _CUES_BY_SIGN[sign] if cue in lowered]
    there = {character for character in _CHARACTERS if character in lowered}
    signs = [sign for sign in _CUES_BY_SIGN if there.issuperset(sign) and sign in lowered]
    # To ask for the cue itself would be to go through the text twice.
    return [cue for sign in signs for cue in _CUES_BY_SIGN[sign] if there.issuperset(cue)]


def secret_at(text: str, place: int, forms: tuple[Compiled, ...], runs: Runs) -> tuple[int, int] | None:
    """Return where a secret begins and ends, by the first form that fits at a place.

    `runs` are those of this text that were found for earlier places.
    """
    for begin, value, before, run in forms:
        head = begin.match(text, place, place + _WINDOW)
        if head is None or (before is not None and not before(text, place)):
            continue
        if value is None:
            return head.end(), _closing(text, head.end(), head["open"])
        if run is not None and not _fits(text, head.end(), run, runs):
            continue
        body = value.match(text, head.end())
        if body is not None:
            return body.span()
    return None


def _fits(text: str, start: int, run: CompiledRun, runs: Runs) -> bool:
    """Tell whether a run in which a value begins ends as a value must."""
    characters, most, after = run
    first, end = runs.get(characters.pattern, (0, 0))
    if not first <= start < end:
        found = characters.match(text, start)
        end = found.end() if found else start
        runs[characters.pattern] = start, end
    return end - start <= most and after.match(text, end) is not None


def _closing(text: str, start: int, quotes: str) -> int:
    """Return where quotes end that have begun; at the end of the line where they do not."""
    place, last = text.find(quotes, start, start + LONGEST_QUOTED), start + LONGEST_QUOTED
    while place > 0 and text[place - 1] == "\\":
        place = text.find(quotes, place + 1, last)
    if place > start:
        return place
    line = text.find("\n", start)
    return len(text) if line < 0 else max(line, start + 1)


# Where the last run began and ended in a text, by its characters.
Runs = dict[str, tuple[int, int]]
CompiledRun = tuple[re.Pattern[str], int, re.Pattern[str]]
Compiled = tuple[
    re.Pattern[str], "re.Pattern[str] | None", "Callable[[str, int], bool] | None", CompiledRun | None
]


@cache
def compiled() -> dict[str, tuple[Compiled, ...]]:
    """Compile the patterns when they are first used: most programs mask nothing."""
    return {kind: tuple(map(_compiled, forms)) for kind, forms in FORMS.items()}


def _compiled(form: Form) -> Compiled:
    value = re.compile(form.value, re.IGNORECASE) if form.value else None
    run = None
    if form.run is not None:
        characters, most, after = form.run
        run = re.compile(f"{characters}*+"), most, re.compile(after)
    return re.compile(form.begin, re.IGNORECASE), value, form.before, run
