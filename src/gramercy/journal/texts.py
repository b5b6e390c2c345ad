"""Texts of the journal: values written so that equal ones have equal texts, and what is shown of them.

What is shown of a call outside of the journal goes through `without_secrets`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import msgspec

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
# What is looked at of a text that is shown without its secrets, so that megabytes of code cost nothing.
LONGEST_SEARCHED = 4_000
# What the name of a secret has in it.
_WORDS = (
    *("passw", "passphrase", "secret", "token", "credential", "authorisation", "authorization"),
    *(f"{what}{gap}key" for what in ("api", "private", "access") for gap in ("", "-", "_", " ")),
)
SECRET_NAME = f"(?:{'|'.join(_WORDS)})"
# Where a secret may stand: after such a word, or where a token of a known form begins. These are found by a
# plain search, and patterns are tried there only: a result may have millions of characters, and it is masked
# while other processes wait for the journal.
CUES = {
    **dict.fromkeys(_WORDS, "name"),
    "-----begin ": "key",
    "://": "address",
    **dict.fromkeys(("?key=", "&key=", "?sig=", "&sig="), "query"),
    **dict.fromkeys((" -u ", " --user ", " --user="), "user"),
    "bearer": "bearer",
    **dict.fromkeys(("sk-", "sk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), "form"),
    **dict.fromkeys(("glpat-", "akia", "asia", "xox", "eyj", "aiza", "hf_", "npm_", "pypi-"), "form"),
}
# Values are not numbers alone: `max_tokens = 500` is no secret, and neither is the group in `-u 1000:1000`.
_NO_NUMBER = r"(?!\d+(?:[^\w]|\Z))"
# Up to the same quotes, escaped as often as the first; without them, to the end of the line.
_QUOTED = (
    r"(?P<open>\\*(?:\"\"\"|'''|[\"']))(?!(?P=open))(?P<secret>[\s\S]{1,4000}?(?=(?<!\\)(?P=open)|\Z)|[^\n]+)"
)
# What stands before a place, and what begins there: after a word of the above, or at any other cue.
_FORMS: dict[str, tuple[tuple[str, str], ...]] = {
    "name": (
        # A member of a JSON object.
        ("", r"[^\"\\]{0,60}\"\s*:\s*(?P<secret>\"(?:[^\"\\]|\\.)*\"?|[^\s\",{}\[\]\\]+)"),
        # A header.
        (r"authori[sz]ation", r"\\*[\"']?\s*[:=]\s*\\*[\"']?(?:\w+\s+)?(?P<secret>[^\s\"'\\,;]{8,})"),
        # An assignment in code, a member of a dictionary, a keyword of Lisp.
        ("", rf"[\w-]{{0,40}}\\*\W{{0,2}}\s{{0,9}}(?:[:=]{{1,2}}>?\s{{0,99}}|\s){_QUOTED}"),
        # A variable of a shell; one that refers to another one has no secret in it.
        (r"(?-i:[A-Z])", rf"(?-i:[A-Z0-9_]{{0,40}}=)(?P<secret>{_NO_NUMBER}[^\s\"'&;|$()`\\]+)"),
        # A parameter of an address.
        (r"[?&][\w.-]{1,60}", r"[\w.-]{0,40}=(?P<secret>[^&\s\"'#\\]+)"),
        # An option of a program, unless it names where the secret is.
        (
            r"(?:^|[\s\"'])--?[\w-]{1,60}",
            (
                r"(?!\S{0,40}-(?:file|stdin|path|env))[\w-]{0,40}[=\s]\s{0,9}"
                rf"(?P<secret>{_NO_NUMBER}[^\s\"'\\$-][^\s\"'\\]*)"
            ),
        ),
        # A line of YAML or of settings, a header: a word with a digit, which no type and hardly a name has.
        (
            "",
            (
                r"[\w-]{0,40}\s{0,9}[:=][ \t]{1,9}"
                rf"(?P<secret>{_NO_NUMBER}(?=[^\s\"'\d]*\d)[\w/+=@!#%^&*~$.-]{{6,}})(?=[\"'\\\s,]|\Z)"
            ),
        ),
        # An element of XML, a line of .netrc.
        (r"<[\w:.-]{1,60}", r"[\w-]{0,40}>(?P<secret>[^<]{1,4000})"),
        (r"\blogin\s{1,9}\S{1,80}\s{1,9}passw", r"ord\s+(?P<secret>\S+)"),
    ),
    "key": (
        ("", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,9}-----(?P<secret>[\s\S]+?)(?=-----END|\Z)"),
    ),
    # The last @ before a slash ends the password, which may have others.
    "address": (("", r"://[^/\s:@\"']{0,80}:(?P<secret>[^/\s\"']{1,200}(?=@))"),),
    "query": (("", r"[?&]\w+=(?P<secret>[^&\s\"'#\\]{8,})"),),
    "user": (("", rf" \S+[ =]\s*\\*[\"']?[^\s:\"'\\/]{{1,80}}:(?P<secret>{_NO_NUMBER}[^\s\"'\\]+)"),),
    "bearer": (("", r"bearer\s+(?P<secret>[\w.~+/-]{8,}=*)"),),
    "form": (
        ("", r"(?P<secret>\b(?:sk-|pypi-|glpat-)[\w-]{16,})"),
        ("", r"(?P<secret>\b(?:gh[a-z]|github_pat|npm|hf)_\w{20,})"),
        ("", r"(?P<secret>\b(?:[sr]k_(?:live|test)_\w{10,}|xox[a-z]-[\w-]{10,}))"),
        ("", r"(?P<secret>\b(?:A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w.-]{8,}))"),
    ),
}
_Forms = tuple[tuple["re.Pattern[str] | None", "re.Pattern[str]"], ...]
# What a `before` above looks back at.
_FARTHEST_BACK = 110
DOTS = "…"


def canonical_text(value: Any) -> str:
    """Write JSON values so that equal values have equal texts."""
    try:
        return _encode_sorted(value).decode()
    except (OverflowError, UnicodeError):
        # It cannot write an integer of more than 64 bits, nor half of a surrogate pair.
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without_secrets(text: str, longest: int) -> str:
    """Return the beginning of a text, with dots for what looks like a secret, on one line."""
    shown = " ".join(masked(text[:LONGEST_SEARCHED]).split())
    return shown if len(shown) <= longest and len(text) <= LONGEST_SEARCHED else f"{shown[:longest]}…"


def masked(text: str) -> str:
    """Return a text with dots for what looks like a secret."""
    # The one letter of Unicode that two stand for in small letters would move all places after it.
    places = _places(text.replace("\u0130", "I").lower())
    if not places:
        return text
    forms = _forms()
    parts, done = [], 0
    for place, kind in places:
        found = _secret_at(text, place, forms[kind]) if place >= done else None
        if found is not None:
            start, end = found.span("secret")
            parts += [text[done:start], f'"{DOTS}"' if text[start] == '"' else DOTS]
            done = end
    return "".join([*parts, text[done:]])


def _places(lowered: str) -> list[tuple[int, str]]:
    """Return where secrets may begin, and after what."""
    found = []
    # Most texts have none, and to ask for each is a tenth of looking for its place.
    for cue in [cue for cue in CUES if cue in lowered]:
        kind = CUES[cue]
        place, after = lowered.find(cue), len(cue) if kind == "name" else 0
        while place >= 0:
            found.append((place + after, kind))
            place = lowered.find(cue, place + len(cue))
    return sorted(found)


def _secret_at(text: str, place: int, forms: _Forms) -> re.Match[str] | None:
    """Return the first form that fits at a place."""
    for before, form in forms:
        found = form.match(text, place)
        if found is not None and (
            before is None or before.search(text[max(0, place - _FARTHEST_BACK) : place])
        ):
            return found
    return None


@cache
def _forms() -> dict[str, _Forms]:
    """Compile the patterns when they are first used: most programs mask nothing."""
    return {
        kind: tuple((_ending(before), re.compile(form, re.IGNORECASE)) for before, form in forms)
        for kind, forms in _FORMS.items()
    }


def _ending(before: str) -> re.Pattern[str] | None:
    return re.compile(rf"(?:{before})\Z", re.IGNORECASE) if before else None
