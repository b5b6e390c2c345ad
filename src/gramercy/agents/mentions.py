"""Mentions with an @ in a message: files, names of the image, states, results, errors, sent along with it.

Mentions are resolved when the message is sent, so that the model gets the contents of that moment. If a
mention with a kind (`@file:notes.md`) cannot be resolved, the message is not sent. A bare mention
(`@notes.md`) that names no file is plain text, since people also write @ for other reasons.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.context import LANGUAGES, fenced
from gramercy.errors import GramercyError, InvalidMessageError, WorkspaceError
from gramercy.gram.suggestion import suggest
from gramercy.images.files.states import is_secret
from gramercy.text import cut
from gramercy.toolsets.errors import frames_text
from gramercy.toolsets.rendering import definitions_text, fault_text
from gramercy.toolsets.time_travel import comparison_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gramercy.images.image import Image
    from gramercy.journal.base import Journal
    from gramercy.providers.base import Message
    from gramercy.toolsets.workspace import Workspace

# The bytes of one mention: about 16,000 tokens, as much as a model reads with care.
LONGEST = 50 * 1024
# The mentions of one message: a message with more was not written by hand.
MOST_MENTIONS = 20
# Evaluations that are sent with an image: the latest ones.
LATEST = 5
KINDS = {
    "file": "a file of the project, or some of its lines: @file:src/a.py:10-20",
    "symbol": "a name in the image: @symbol:json.loads",
    "image": "what is defined in the image, and its latest evaluations",
    "checkpoint": "how a kept state differs from the present one: @checkpoint:c3",
    "result": "the last result of a tool, or that of a call in the journal: @result:42",
    "error": "the last error, with its stack",
}
NAMED = frozenset({"file", "symbol"})
_KINDS = "|".join(KINDS)
# A mention does not begin inside of a word, so an e-mail address is not one; a kind ends with its word.
_MENTION = re.compile(
    rf'(?<![\w@/.`])@(?:(?P<kind>{_KINDS})(?:(?!\w|[-./])|(?=:\S))(?::(?:"(?P<quoted>[^"\n]+)"|(?P<name>[^\s"`]+)))?'
    r'|"(?P<path>[^"\n]+)"|(?P<word>[\w.~/-][^\s"`]*))'
)
# Pasted code has @ signs of its own.
_CODE = re.compile(r"(?P<fence>`{3,})[\s\S]*?(?:(?P=fence)|\Z)|`[^`\n]*`")
# No file has more lines than nine digits can count, and Python refuses to parse thousands of digits.
_RANGE = re.compile(r"^(?P<path>.+?):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?$")
# The keys of calls fit into eight bytes.
_KEY = re.compile(r"\d{1,18}")
# The length of a mention in a note that it was taken for text: one line of a terminal.
LONGEST_NOTED = 60
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ENDS = ".,;:!?)]}>'"


class Attached(msgspec.Struct, frozen=True):
    """The content of a mention; `size` is in bytes, before it was cut."""

    mention: str
    title: str
    text: str
    size: int
    is_cut: bool = False
    language: str = ""


class Resolved(msgspec.Struct, frozen=True):
    """A message with its mentions. `notes` tell the person what was cut, and what was taken for text."""

    message: str
    attached: tuple[Attached, ...] = ()
    notes: tuple[str, ...] = ()


class Mentions:
    """Resolves the mentions of messages; kinds whose source is not given cannot be mentioned."""

    def __init__(
        self,
        workspace: Workspace | None = None,
        images: Iterable[Image] = (),
        journal: Journal | None = None,
        conversation: Callable[[], Sequence[Message]] = tuple,
    ) -> None:
        self._workspace = workspace
        self._images = tuple(images)
        self._journal = journal
        self._conversation = conversation
        self._look: dict[str, Callable[[str], tuple[str, str]]] = {
            "symbol": self._symbol,
            "image": self._image,
            "checkpoint": self._checkpoint,
            "result": self._result,
            "error": self._error,
        }

    def resolve(self, message: str) -> Resolved:
        """Return a message with its mentions; InvalidMessageError names every unresolved mention."""
        attached: dict[str, Attached] = {}
        notes, faults = [], []
        for mention, kind, name in found_mentions(message):
            try:
                if mention in attached:
                    continue
                found = self._found(mention, kind, name)
            except GramercyError as error:
                faults.append(f"{mention}: {error}")
                continue
            if isinstance(found, str):
                notes.append(found)
            else:
                attached[mention] = found
                notes += [f"{mention} was cut: {_cut_note(found)}"] if found.is_cut else []
        if len(attached) > MOST_MENTIONS:
            faults.append(f"a message can mention {MOST_MENTIONS} things, and this one has {len(attached)}")
        if faults:
            raise InvalidMessageError("\n".join(faults))
        return Resolved(_joined(message, attached.values()), tuple(attached.values()), tuple(notes))

    def completions(self, word: str) -> list[str]:
        """Return the mentions with this prefix: kinds, checkpoints and images, but no files."""
        offered = [f"@{kind}:" if kind in NAMED else f"@{kind}" for kind in KINDS]
        if word.startswith("@checkpoint:"):
            infos = [info for image in self._images for info in image.checkpoints()]
            offered = [f"@checkpoint:{info.id}" for info in infos]
        elif word.startswith("@image:"):
            offered = [f"@image:{image.name}" for image in self._images]
        return [each for each in offered if each.startswith(word)]

    def _found(self, mention: str, kind: str, name: str) -> Attached | str:
        """Return the content of a mention, or a note why a bare mention is taken for text."""
        if kind in {"file", ""}:
            return self._file(mention, name, is_named=bool(kind))
        if kind in NAMED and not name:
            raise InvalidMessageError(f"say which: {KINDS[kind]}")
        title, text = self._look[kind](name)
        return _attached(mention, title, text)

    def _file(self, mention: str, name: str, *, is_named: bool) -> Attached | str:
        if not name:
            raise InvalidMessageError(f"say which: {KINDS['file']}")
        if self._workspace is None:
            if is_named:
                raise WorkspaceError("there is no project here, so that no file can be mentioned")
            return f"{mention} was sent as text"
        path, first, last = name, 0, 0
        if (parts := _RANGE.match(name)) is not None and not self._is_there(name):
            path, first = parts["path"], int(parts["first"])
            last = int(parts["last"] or first)
        if not is_named and not self._is_there(path):
            shown = cut(mention, LONGEST_NOTED)
            return f"{shown} is no file of the project, and was sent as text{self._close(path)}"
        real = self._workspace.name_of(path)
        if not is_named and (is_secret(path.rpartition("/")[2]) or is_secret(real.rpartition("/")[2])):
            # Check the real name too: evaluated code may have replaced a known file by a link.
            raise WorkspaceError(
                f"keys are kept in files of such a name: say @file:{real} if the model shall see it"
            )
        document = self._workspace.document(path)
        text, title = document.text, self._workspace.name_of(path)
        if first:
            # Count as editors do: a form feed, which Lisp files have between sections, does not end a line.
            lines = _LINE.findall(text)
            if not 1 <= first <= last or first > len(lines):
                raise WorkspaceError(f"{path} has lines 1 to {len(lines)}, and not {first}-{last}")
            text = "".join(lines[first - 1 : last])
            title += f", lines {first}-{min(last, len(lines))}"
        return _attached(mention, title, text, language=_language(path))

    def _is_there(self, path: str) -> bool:
        try:
            return self._workspace is not None and self._workspace.resolve(path).exists()
        except (WorkspaceError, OSError):
            return False

    def _close(self, path: str) -> str:
        """Suggest a similar file in the folder of one that does not exist."""
        if self._workspace is None:
            return ""
        folder, _, name = path.rpartition("/")
        try:
            beside = [each.name for each in self._workspace.resolve(folder or ".").iterdir()]
        except (WorkspaceError, OSError):
            return ""
        # A file of that very name exists and leads out of the project, so do not suggest it.
        close = suggest(name, [each for each in beside if each != name])
        return f": did you mean @{f'{folder}/' if folder else ''}{close[0]}?" if close else ""

    def _one_image(self, name: str = "") -> Image:
        if not self._images:
            raise InvalidMessageError("there is no image here: start with --image")
        found = [image for image in self._images if name in {"", image.name}]
        if not found:
            names = ", ".join(image.name for image in self._images)
            raise InvalidMessageError(f"there is no image {name!r:.50}: there are {names}")
        return found[0]

    def _symbol(self, name: str) -> tuple[str, str]:
        self._one_image()
        answers = []
        for image in self._images:
            answer = image.ask("describe", symbol=name)
            if answer.error is None:
                return f"{name} in {image.name}", answer.text
            answers.append(answer.error)
        raise InvalidMessageError(answers[0].message)

    def _image(self, name: str) -> tuple[str, str]:
        image = self._one_image(name)
        answer = image.ask("definitions")
        if answer.error is not None:
            raise InvalidMessageError(answer.error.message)
        latest = [_evaluation(entry) for entry in image.history()[-LATEST:] if not entry.undone]
        parts = [definitions_text(answer.data), *(["Latest evaluations:", *latest] if latest else [])]
        return f"the image {image.name} ({image.language})", "\n\n".join(parts)

    def _checkpoint(self, name: str) -> tuple[str, str]:
        image = self._one_image()
        if name:
            return f"state {name} of {image.name}", comparison_text(image.compare(name))
        told = [f"{info.id} {info.label}".strip() for info in image.checkpoints()]
        return f"kept states of {image.name}", "\n".join(told) or "none"

    def _result(self, name: str) -> tuple[str, str]:
        if not name:
            for message in reversed(self._conversation()):
                if message.role == "tool":
                    return "the last result", message.text
            raise InvalidMessageError("no tool has given a result yet")
        if self._journal is None or _KEY.fullmatch(name) is None:
            raise InvalidMessageError(f"a result has the number of its call in the journal, not {name!r:.50}")
        record = self._journal.record(int(name))
        if record is None:
            raise InvalidMessageError(f"the journal has no call {name}: gramercy audit show lists them")
        return f"result of call {name}, {record.call.tool}", record.facts.content or record.facts.detail

    def _error(self, name: str) -> tuple[str, str]:
        for image in self._images:
            if name or image.moments():
                moment = name or image.moments()[-1].id
                answer = image.ask_moment("frames", moment)
                if answer.error is not None:
                    raise InvalidMessageError(answer.error.message)
                known = {info.id: info for info in image.moments()}
                return f"error {moment} in {image.name}", frames_text(answer, None, known.get(moment))
            for entry in reversed(image.history()):
                if entry.reply.error is not None:
                    return f"the last error in {image.name}", fault_text(entry.reply.error)
        for message in reversed(self._conversation()):
            if message.role == "tool" and message.is_error:
                return "the last failed call", message.text
        raise InvalidMessageError("there was no error yet")


def found_mentions(message: str) -> list[tuple[str, str, str]]:
    """Return the mentions of a message as written, with their kind and name; code has none."""
    bare = _CODE.sub(lambda code: " " * len(code[0]), message)
    found = []
    for match in _MENTION.finditer(bare):
        kind, quoted = match["kind"] or "", match["quoted"] or match["path"]
        written = match["name"] or match["word"] or ""
        # Punctuation that ends a sentence is not part of a name, though Lisp and Ruby names may end with a
        # sign.
        name = quoted or written.rstrip(
            _ENDS.replace("!", "").replace("?", "") if kind == "symbol" else _ENDS
        )
        if kind or name:
            cut = 0 if quoted else len(written) - len(name)
            found.append((match[0][: len(match[0]) - cut], kind, name))
    return found


def _attached(mention: str, title: str, text: str, *, language: str = "") -> Attached:
    data = text.encode(errors="replace")
    if len(data) <= LONGEST:
        return Attached(mention, title, text, len(data), language=language)
    # Cut at the end of a line, if there is one not far before.
    shown = data[:LONGEST].decode(errors="ignore")
    end = shown.rfind("\n", len(shown) // 2) + 1 or len(shown)
    return Attached(mention, title, shown[:end], len(data), is_cut=True, language=language)


def _cut_note(found: Attached) -> str:
    shown = len(found.text.encode(errors="replace"))
    return f"the first {shown:,} of {found.size:,} bytes"


def _joined(message: str, attached: Iterable[Attached]) -> str:
    sections = [message]
    for each in attached:
        cut = f"\n[cut: {_cut_note(each)} are shown]" if each.is_cut else ""
        sections.append(f"### {each.mention}: {each.title}\n\n{fenced(each.text, each.language)}{cut}")
    return "\n\n".join(sections)


def _evaluation(entry: Any) -> str:
    outcome = (
        fault_text(entry.reply.error) if entry.reply.error is not None else "; ".join(entry.reply.values)
    )
    return f"{entry.code}\n=> {outcome}"


def _language(path: str) -> str:
    return LANGUAGES.get(f".{path.rpartition('.')[2]}", "")
