"""Conversations: who talked with which agent about what, message by message, found again by their words.

They stand in the same database as the calls, which name their session. Words are split here and not by the
database, so that every store finds the same: letters and digits, in small letters, without accents.
"""

from __future__ import annotations

import re
import unicodedata
from secrets import token_hex
from threading import RLock
from time import strftime, time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from gramercy.errors import JournalError
from gramercy.journal.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.journal.base import Journal

T = TypeVar("T")
# What is found by its words of one message; PostgreSQL takes 1 MB of words in a document.
LONGEST_SEARCHED = 200_000
# PostgreSQL takes 2 KB for a word; longer ones are no words that somebody types.
LONGEST_WORD = 100
# A title is one line of a list.
LONGEST_TITLE = 120
# To each side of the first word that was found.
EXCERPT = 70
# A part of a question: a phrase in quotes, or what stands between spaces.
_PARTS = re.compile(r'"([^"]*)"|(\S+)')
_WORDS = re.compile(r"[^\W_]+")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


class SessionRecord(msgspec.Struct, frozen=True):
    """A conversation, without what was said in it. Calls of the journal name it by its id."""

    id: str
    title: str
    agent: str
    model: str
    project: str
    principal: str
    at: float
    changed_at: float
    messages: int


class Message(msgspec.Struct, frozen=True):
    """One message. `data` is what else belongs to it, `call` the key of the call that it is about."""

    session: str
    number: int
    at: float
    role: str
    text: str
    data: dict[str, Any] = {}
    call: int = 0


class Found(msgspec.Struct, frozen=True):
    """A message in which words were found, and its text around the first of them."""

    session: SessionRecord
    message: Message
    excerpt: str


class Phrase(msgspec.Struct, frozen=True):
    """Words that follow each other; of the last one the beginning is enough where `is_open`."""

    words: tuple[str, ...]
    is_open: bool = False

    def is_in(self, text: Sequence[str]) -> bool:
        """Tell whether a text has these words."""
        size = len(self.words)
        return any(self._fits(text[place : place + size]) for place in range(len(text) - size + 1))

    def _fits(self, part: Sequence[str]) -> bool:
        *first, last = zip(self.words, part, strict=True)
        ends = last[1].startswith(last[0]) if self.is_open else last[0] == last[1]
        return ends and all(wanted == word for wanted, word in first)


def words_of(text: str) -> list[str]:
    """Split a text into the words by which it is found."""
    plain = unicodedata.normalize("NFKD", text[:LONGEST_SEARCHED])
    bare = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return [word[:LONGEST_WORD] for word in _WORDS.findall(bare.casefold())]


def phrases_of(question: str) -> list[Phrase]:
    """Read what a person looks for: words, phrases in quotes, and beginnings of words with a star."""
    found = []
    for quoted, plain in _PARTS.findall(question):
        words = tuple(words_of(quoted or plain))
        if words:
            found.append(Phrase(words, is_open=plain.endswith("*")))
    return found


class Sessions(Protocol):
    """Who remembers conversations. Every method may be called from any thread."""

    def begin(  # noqa: PLR0913 - what is known of a conversation
        self,
        title: str = "",
        *,
        agent: str = "",
        model: str = "",
        project: str = "",
        principal: str = "local",
        name: str = "",
    ) -> str:
        """Record a new conversation; return its id."""

    def add(  # noqa: PLR0913 - what belongs to a message
        self,
        session: str,
        role: str,
        text: str,
        *,
        data: Mapping[str, Any] | None = None,
        call: int = 0,
        after: int | None = None,
    ) -> int:
        """Record the next message of a conversation; return its number, from 1 on.

        With `after` only as the one that follows this number: JournalError if another program has gone on.
        """

    def session(self, name: str) -> SessionRecord | None:
        """Return a conversation."""

    def sessions(self, *, project: str = "", before: float = 0.0, most: int = 100) -> list[SessionRecord]:
        """Return conversations, the one with the latest message first; `before` is where to go on."""

    def messages(self, session: str, *, after: int = 0, most: int = 1_000) -> list[Message]:
        """Return the messages of a conversation after a number, in their order."""

    def search(self, question: str, *, project: str = "", most: int = 50) -> list[Found]:
        """Return the latest messages that have all words of a question."""

    def rename(self, name: str, title: str) -> None:
        """Give a conversation another title."""

    def remove(self, name: str) -> bool:
        """Remove a conversation and all that was said in it; tell whether there was one."""


def sessions_of(journal: Journal) -> Sessions:
    """Return the conversations that are kept beside the calls of a journal."""
    return SqlSessions(journal) if isinstance(journal, Tables) else MemorySessions()


class MemorySessions:
    """Conversations that end with the process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._sessions: dict[str, SessionRecord] = {}
        self._messages: dict[str, list[Message]] = {}

    def begin(  # noqa: PLR0913 - as the protocol has it
        self,
        title: str = "",
        *,
        agent: str = "",
        model: str = "",
        project: str = "",
        principal: str = "local",
        name: str = "",
    ) -> str:
        """Record a new conversation; return its id."""
        with self._lock:
            new = _new(name, title, (agent, model, project, principal), time())
            if new.id in self._sessions:
                raise JournalError(f"there is a session {new.id} already")
            self._sessions[new.id], self._messages[new.id] = new, []
            return new.id

    def add(  # noqa: PLR0913 - as the protocol has it
        self,
        session: str,
        role: str,
        text: str,
        *,
        data: Mapping[str, Any] | None = None,
        call: int = 0,
        after: int | None = None,
    ) -> int:
        """Record the next message of a conversation; return its number."""
        with self._lock:
            found, now = _known(self._sessions.get(session), session), time()
            number = _next(found.id, found.messages, after)
            self._messages[session].append(
                Message(session, number, now, role, _writable(text), dict(data or {}), call)
            )
            self._sessions[session] = msgspec.structs.replace(found, changed_at=now, messages=number)
            return number

    def session(self, name: str) -> SessionRecord | None:
        """Return a conversation."""
        return self._sessions.get(name)

    def sessions(self, *, project: str = "", before: float = 0.0, most: int = 100) -> list[SessionRecord]:
        """Return conversations, the one with the latest message first."""
        with self._lock:
            found = [each for each in self._sessions.values() if not project or each.project == project]
        found = [each for each in found if not before or each.changed_at < before]
        return sorted(found, key=lambda each: each.changed_at, reverse=True)[:most]

    def messages(self, session: str, *, after: int = 0, most: int = 1_000) -> list[Message]:
        """Return the messages of a conversation after a number."""
        with self._lock:
            return self._messages.get(session, [])[after : after + most]

    def search(self, question: str, *, project: str = "", most: int = 50) -> list[Found]:
        """Return the latest messages that have all words of a question."""
        phrases = phrases_of(question)
        with self._lock:
            said = [message for each in self._messages.values() for message in each] if phrases else []
            known = dict(self._sessions)
        found = []
        for message in sorted(said, key=lambda each: each.at, reverse=True):
            words = words_of(message.text)
            is_wanted = not project or known[message.session].project == project
            if is_wanted and all(phrase.is_in(words) for phrase in phrases):
                found.append(Found(known[message.session], message, excerpt(message.text, phrases)))
        return found[:most]

    def rename(self, name: str, title: str) -> None:
        """Give a conversation another title."""
        with self._lock:
            found = _known(self._sessions.get(name), name)
            self._sessions[name] = msgspec.structs.replace(found, title=_title(title))

    def remove(self, name: str) -> bool:
        """Remove a conversation and all that was said in it."""
        with self._lock:
            self._messages.pop(name, None)
            return self._sessions.pop(name, None) is not None


_SESSION = "s.id, s.title, s.agent, s.model, s.project, s.principal, s.at, s.changed_at, s.messages"
_MESSAGE = "m.session, m.number, m.at, m.role, m.text, m.data, m.call"
_FOUND = (
    f"SELECT {_SESSION}, {_MESSAGE} FROM {{found}} w JOIN messages m ON m.key = w.key "  # noqa: S608 - our own names
    "JOIN sessions s ON s.id = m.session WHERE m.number > 0{more} ORDER BY w.key DESC LIMIT ?"
)


class SqlSessions:
    """Conversations in the database of a journal."""

    def __init__(self, journal: Tables) -> None:
        self._journal = journal
        # Of one room: the same connection and transactions.
        self._run, self._change = journal._run, journal._change  # noqa: SLF001
        self._insert = journal._insert  # noqa: SLF001

    def _write(self, work: Callable[[], T]) -> T:
        return self._journal._write(work, is_lasting=False)  # noqa: SLF001 - of one room

    def _read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        return self._journal._read(lambda: self._run(statement, values))  # noqa: SLF001 - of one room

    def begin(  # noqa: PLR0913 - as the protocol has it
        self,
        title: str = "",
        *,
        agent: str = "",
        model: str = "",
        project: str = "",
        principal: str = "local",
        name: str = "",
    ) -> str:
        """Record a new conversation; return its id."""
        about = _writable(agent), _writable(model), _writable(project), _writable(principal)
        token = token_hex(12)
        new = _new(name, title, about, self._journal._now())  # noqa: SLF001 - of one room
        row = msgspec.structs.astuple(new)
        names = "id, title, agent, model, project, principal, at, changed_at, messages, token"
        statement = f"INSERT INTO sessions ({names}) VALUES ({', '.join('?' * 10)})"  # noqa: S608 - our own names

        def begin() -> str:
            found = self._run("SELECT token FROM sessions WHERE id = ?", (new.id,))
            if found and found[0][0] != token:
                raise JournalError(f"there is a session {new.id} already")
            if not found:
                self._change(statement, (*row, token))
            return new.id

        return self._write(begin)

    def add(  # noqa: PLR0913 - as the protocol has it
        self,
        session: str,
        role: str,
        text: str,
        *,
        data: Mapping[str, Any] | None = None,
        call: int = 0,
        after: int | None = None,
    ) -> int:
        """Record the next message of a conversation; return its number."""
        text, about = _writable(text), _writable(msgspec.json.encode(dict(data or {})).decode())
        words, token = " ".join(words_of(text)), token_hex(12)

        def add() -> int:
            # A transaction whose answer was lost is made again.
            made = self._run("SELECT number FROM messages WHERE token = ?", (token,))
            if made:
                return int(made[0][0])
            locking = self._journal.LOCKING
            rows = self._run(f"SELECT messages FROM sessions WHERE id = ?{locking}", (session,))  # noqa: S608 - our own words
            if not rows:
                raise JournalError(f"there is no session {session}")
            number, now = _next(session, int(rows[0][0]), after), self._journal._now()  # noqa: SLF001 - of one room
            statement = (
                "INSERT INTO messages (session, number, at, role, text, data, call, token) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            )
            row = (session, number, now, _writable(role), text, about, call, token)
            key = self._insert(statement, row)
            self._change(self._journal.WORDS["add_words"], (key, words))
            changed = "UPDATE sessions SET messages = ?, changed_at = ? WHERE id = ?"
            self._change(changed, (number, now, session))
            return number

        return self._write(add)

    def session(self, name: str) -> SessionRecord | None:
        """Return a conversation."""
        rows = self._read(f"SELECT {_SESSION} FROM sessions s WHERE s.id = ?", (name,))  # noqa: S608 - our own names
        return SessionRecord(*rows[0]) if rows else None

    def sessions(self, *, project: str = "", before: float = 0.0, most: int = 100) -> list[SessionRecord]:
        """Return conversations, the one with the latest message first."""
        filters = {"s.project = ?": project, "s.changed_at < ?": before}
        wanted, values = _wanted(filters)
        statement = (
            f"SELECT {_SESSION} FROM sessions s WHERE s.messages >= 0{wanted} "  # noqa: S608 - our own names
            "ORDER BY s.changed_at DESC LIMIT ?"
        )
        return [SessionRecord(*row) for row in self._read(statement, (*values, most))]

    def messages(self, session: str, *, after: int = 0, most: int = 1_000) -> list[Message]:
        """Return the messages of a conversation after a number."""
        statement = (
            f"SELECT {_MESSAGE} FROM messages m WHERE m.session = ? AND m.number > ? "  # noqa: S608 - our own names
            "ORDER BY m.number LIMIT ?"
        )
        return [_message(row) for row in self._read(statement, (session, after, most))]

    def search(self, question: str, *, project: str = "", most: int = 50) -> list[Found]:
        """Return the latest messages that have all words of a question."""
        phrases, words = phrases_of(question), self._journal.WORDS
        if not phrases:
            return []
        wanted, values = _wanted({"s.project = ?": project})
        statement = _FOUND.format(more=wanted, **words)
        asked = words["all_of"].join(_asked(phrase, words) for phrase in phrases)
        rows = self._read(statement, (asked, *values, most))
        size = len(SessionRecord.__struct_fields__)
        found = [(SessionRecord(*row[:size]), _message(row[size:])) for row in rows]
        return [Found(session, said, excerpt(said.text, phrases)) for session, said in found]

    def rename(self, name: str, title: str) -> None:
        """Give a conversation another title."""
        statement, values = "UPDATE sessions SET title = ? WHERE id = ?", (_title(title), name)
        if not self._write(lambda: self._change(statement, values)):
            raise JournalError(f"there is no session {name}")

    def remove(self, name: str) -> bool:
        """Remove a conversation and all that was said in it."""

        def remove() -> bool:
            for key, text in self._run("SELECT key, text FROM messages WHERE session = ?", (name,)):
                self._change(self._journal.WORDS["remove_words"], (key, " ".join(words_of(text))))
            self._change("DELETE FROM messages WHERE session = ?", (name,))
            return self._change("DELETE FROM sessions WHERE id = ?", (name,)) > 0

        return self._write(remove)


def _wanted(filters: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the conditions that were given a value, and the values."""
    given = {condition: value for condition, value in filters.items() if value}
    return "".join(f" AND {condition}" for condition in given), list(given.values())


def _asked(phrase: Phrase, words: Mapping[str, str]) -> str:
    """Write a phrase in the language of the index; words have letters and digits alone."""
    *first, last = phrase.words
    parts = [words["one_word"].format(word) for word in first]
    parts.append(words["open_word" if phrase.is_open else "one_word"].format(last))
    return words["open_phrase" if phrase.is_open else "phrase"].format(words["next_to"].join(parts))


def _message(row: Sequence[Any]) -> Message:
    session, number, at, role, text, data, call = row
    return Message(session, number, at, role, text, msgspec.json.decode(data), call)


def new_id() -> str:
    """Return the id of a new conversation: when it was begun, and something that no other one has."""
    return f"{strftime('%Y%m%d-%H%M%S')}-{token_hex(3)}"


def _next(session: str, messages: int, after: int | None) -> int:
    """Return the number of the next message, if it is the one that its writer thinks of."""
    if after is not None and after != messages:
        raise JournalError(
            f"session {session} has {messages} messages and not {after}: another program has gone on with "
            "it. Resume it again, or fork it"
        )
    return messages + 1


def _new(name: str, title: str, about: tuple[str, str, str, str], now: float) -> SessionRecord:
    name = name or new_id()
    if not re.fullmatch(r"[\w.:@/+-]{1,200}", name):
        raise JournalError(
            f"{name!r:.60} cannot name a session: letters, digits and . : @ / + - _, at most 200"
        )
    return SessionRecord(name, _title(title), *about, now, now, 0)


def _known(found: SessionRecord | None, name: str) -> SessionRecord:
    if found is None:
        raise JournalError(f"there is no session {name}")
    return found


def _title(text: str) -> str:
    line = " ".join(_writable(text).split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"


def _writable(text: str) -> str:
    """Return a text that every store takes; a NUL and half of a pair become a mark."""
    return _UNWRITABLE.sub("\ufffd", text)


def excerpt(text: str, phrases: Sequence[Phrase]) -> str:
    """Return the text around the first word that was looked for, on one line."""
    pattern = "|".join(re.escape(phrase.words[0]) for phrase in phrases)
    found = re.search(pattern, text, re.IGNORECASE)
    place = found.start() if found else 0
    start, end = max(0, place - EXCERPT), place + EXCERPT
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"
