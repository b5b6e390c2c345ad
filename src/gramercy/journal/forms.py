"""The forms of secrets, as data: where a secret may be in a text, and where it begins and ends.

A text may have millions of characters and is searched while other processes wait for the journal. So a plain
search for cues finds the places, and patterns are tried only there. No pattern looks further than a few
hundred characters before the secret begins. This module does not know what replaces a secret.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# Words that occur in the name of a secret.
_WORDS = (
    *("passw", "passphrase", "secret", "token", "credential", "accountkey"),
    *(f"{what}{gap}key" for what in ("api", "private", "access") for gap in ("", "-", "_", " ")),
)
# Names of headers, whose values have more forms.
_HEADERS = ("authorisation", "authorization")
# Endings of the name of a secret.
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
# Parts that cues have in common: if a text lacks the sign, its cues need not be searched for. A cue is filed
# under the first sign that it contains, so the rare signs come first.
_SIGNS = (
    *("private", "access", "api", "_v1_", "shp", "lin_", "hv", "sig=", " --user"),
    *("key", "auth", "pass", "_", "-", "/", "."),
)
_CUES_BY_SIGN: dict[str, list[str]] = {}
for _cue in CUES:
    _CUES_BY_SIGN.setdefault(next((sign for sign in _SIGNS if sign in _cue), ""), []).append(_cue)
# Searching for one character takes a tenth of the time of searching for a word. In a long text, search for
# the characters first, and for words only if all of their characters occur.
_CHARACTERS = "".join(sorted(set("".join(CUES))))
_LONG = 10_000
# Parsing and searching every text would cost more than recording it. Every cue contains one of these hints,
# and hardly any text does. The hints of the second and third row are searched for only if the sign before
# them is in the text.
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
# These have no cue: they are recognised by their digits, or by the distance of their dots.
TWILIO, DISCORD = re.compile(r"SK[0-9a-f]{32}(?!\w)"), re.compile(r"\.[\w-]{6}\.[\w-]{27}")
# A Discord token is no shorter than this.
SHORTEST_DOTTED = 58
# A text with more places is cut off there: a crafted text could otherwise take minutes to search.
MOST_PLACES = 20_000
# How far a quoted value is followed, and how much of the text after its place a pattern sees.
LONGEST_QUOTED, _WINDOW = 4_000, 600
# How much of the text before a place is looked at.
_FARTHEST_BACK = 110
# Pure numbers are not values of secrets: not in `max_tokens = 500`, and not the group in `-u 1000:1000`.
_NO_NUMBER = r"(?!\d{1,60}+(?:[^\w-]|\Z))"
# In code, the value is often a name: password=password, token=self._token, secret=None.
_NO_NAME = (
    r"(?!(?:none|null|nil|true|false|yes|no|str|int|bytes)(?:[^\w]|\Z))"
    r"(?![\w.]{0,60}(?:passw|token|secret|key|credential|pwd)[\w.]{0,60}+(?:[^\w.]|\Z))"
)
# All characters that count as space, written out. Within a character set, Python looks up `\s` separately for
# each character, which takes four times as long.
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
    # The pattern would be tried at every letter, so compare the ends of the words first.
    if len(words) < 3 or len(words[2]) != 5 or words[0][-1] not in "nN":  # noqa: PLR2004 - login, name, passw
        return False
    return _LOGIN.search(back) is not None


def _is_number(text: str, place: int) -> bool:
    return text[max(0, place - 8) : place].isdecimal() and place >= 8  # noqa: PLR2004 - as long as Telegram's


def _is_start(text: str, place: int) -> bool:
    return _IN_WORD.search(text[max(0, place - 2) : place]) is None


# A key does not begin inside a word. It may follow the letter of an escape in JSON or code, such as a line
# break, and the last letter of a terminal colour sequence.
_IN_WORD = re.compile(r"(?:(?<!\\)[nrtbf]|(?<![\d;\[])m|[^\Wnrtbfm])\Z", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^\w:.-]")
_LOGIN = re.compile(r"\blogin\s{1,9}\S{1,80}\s{1,9}passw\Z", re.IGNORECASE)


class Run(NamedTuple):
    """The characters that a value begins with, their maximum number, and what follows them.

    Many places may be in one run. Its end is found once for all of them, and a value is tried only where the
    run fits; otherwise each place would look at the same thousand characters again.
    """

    characters: str
    most: int
    after: str


class Form(NamedTuple):
    """A form of a secret: the text before its place, its beginning there, and its value.

    Without a `value`, the secret is the quoted text whose opening quote `begin` matches.
    """

    begin: str
    value: str = ""
    before: Callable[[str, int], bool] | None = None
    run: Run | None = None


# The characters of a setting's value, and what follows the value.
_SET, _SET_END = rf"[^{SPACES}\"'&;|$()`\\,<>\[\]{{}}:]", r"[\s;&\"'\\]|\Z"


_NAME_FORMS = (
    # A member of a JSON object.
    Form(
        r"[^\"\\]{0,60}+\"\s{0,9}:\s{0,9}",
        r"\"(?:[^\"\\]|\\.){0,100000}+\"?|[^\s\",{}\[\]\\]++",
    ),
    # An assignment in code, a member of a dictionary, a keyword of Lisp.
    Form(rf"[\w-]{{0,40}}\\{{0,8}}\W{{0,2}}\s{{0,9}}(?:[:=]{{1,2}}>?\s{{0,99}}|\s){_OPEN}"),
    # A variable of a shell; a variable that refers to another one holds no secret.
    Form(r"(?-i:[A-Z0-9_]{0,40}=)", rf"{_NO_NUMBER}[^\s\"'&;|$()`\\]++", _is_in_capitals),
    # A parameter of an address.
    Form(r"[\w.-]{0,40}+=", r"[^&\s\"'#\\]++", _is_parameter),
    # A setting, or a part of a connection string; in code a comma or a parenthesis would follow.
    Form(
        r"[\w-]{0,40}+=",
        rf"{_NO_NUMBER}{_NO_NAME}{_SET}{{4,1000}}+(?={_SET_END})",
        run=Run(_SET, 1_000, _SET_END),
    ),
    # An option of a program, unless the option names the place of the secret.
    Form(
        r"(?!\S{0,40}-(?:file|stdin|path|env))[\w-]{0,40}[=\s]\s{0,9}",
        rf"{_NO_NUMBER}[^\s\"'\\$-][^\s\"'\\]*+",
        _is_option,
    ),
    # A line of YAML or of settings, or a header: a word with a digit, which no type and hardly any name has.
    Form(
        r"[\w-]{0,40}\s{0,9}[:=][ \t]{1,9}",
        rf"{_NO_NUMBER}(?=[^\s\"'\d]{{0,200}}+\d)[\w/+=@!#%^&*~$.-]{{6,1000}}+(?=[\"'\\\s,]|\Z)",
    ),
    # An element of XML, a line of .netrc.
    Form(r"[\w-]{0,40}+>", r"[^<]{1,4000}+", _is_element),
    Form(r"ord\s{1,9}", r"\S++", _is_login),
)
# Keys recognised by their beginning. One pattern has them all, so that the text before is checked once.
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
        # The last @ before a slash ends the password, which may contain an @.
        Form(r"://[^/\s:@\"']{0,80}+:", r"[^/\s\"']{1,200}(?=@)"),
    ),
    "query": (Form(r"[?&]\w{1,9}=", r"[^&\s\"'#\\]{8,}+"),),
    "user": (Form(r" \S{1,9}[ =]\s{0,9}\\{0,8}[\"']?[^\s:\"'\\/]{1,80}+:", rf"{_NO_NUMBER}[^\s\"'\\]++"),),
    "bearer": (Form(r"bearer\s{1,9}", r"[\w.~+/-]{8,}+=*+"),),
    # All cookies, to the end of the line; a parameter or a type has no name=value pair.
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
# The first part of a Discord token, before its first dot.
_DISCORD_START = re.compile(r"[MNO][\w-]{22,28}\Z")


class Places(NamedTuple):
    """Where secrets may begin in a text, by the kind of cue, and where to cut if there are too many."""

    found: list[tuple[int, str]]
    end: int


def places(text: str, lowered: str) -> Places:
    """Return where secrets may begin; `lowered` is the text in lower case, of the same length."""
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
    """Return cues to search for in a text; a long text may turn out to lack some of them."""
    if len(lowered) < _LONG:
        signs = [sign for sign in _CUES_BY_SIGN if sign in lowered]
        return [cue for sign in signs for cue in _CUES_BY_SIGN[sign] if cue in lowered]
    there = {character for character in _CHARACTERS if character in lowered}
    signs = [sign for sign in _CUES_BY_SIGN if there.issuperset(sign) and sign in lowered]
    # Searching for the cue itself here would go through the text twice.
    return [cue for sign in signs for cue in _CUES_BY_SIGN[sign] if there.issuperset(cue)]


def secret_at(text: str, place: int, forms: tuple[Compiled, ...], runs: Runs) -> tuple[int, int] | None:
    """Return where a secret begins and ends, by the first form that fits at a place.

    `runs` are the runs of this text that were found for earlier places.
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
    """Tell whether the run in which a value begins has the ending that a value must have."""
    characters, most, after = run
    first, end = runs.get(characters.pattern, (0, 0))
    if not first <= start < end:
        found = characters.match(text, start)
        end = found.end() if found else start
        runs[characters.pattern] = start, end
    return end - start <= most and after.match(text, end) is not None


def _closing(text: str, start: int, quotes: str) -> int:
    """Return where an opened quote ends; the end of the line if it is not closed."""
    place, last = text.find(quotes, start, start + LONGEST_QUOTED), start + LONGEST_QUOTED
    while place > 0 and text[place - 1] == "\\":
        place = text.find(quotes, place + 1, last)
    if place > start:
        return place
    line = text.find("\n", start)
    return len(text) if line < 0 else max(line, start + 1)


# Where the last run began and ended in a text, by the characters of the run.
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
