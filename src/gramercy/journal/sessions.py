"""Conversations between people and agents, message by message, searchable by their words.

They are in the same database as the calls, which name their session.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from itertools import islice
from secrets import token_hex
from threading import RLock
from time import strftime, time
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import JournalError
from gramercy.journal.tables import Tables
from gramercy.journal.words import excerpt, phrases_of, words_of, writable
from gramercy.text import cut_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gramercy.journal.base import Journal

# A title is one line of a list: 120 characters with the ellipsis.
LONGEST_TITLE = 119
# Titles are searched one by one: of more conversations, only the latest are searched.
MOST_TITLES = 10_000
# Separates the id of a conversation from the place in it where another agent was called.
NESTED = "+"
_NESTED = re.compile(r"\+[0-9a-f]{12}\.\d+$")
# The roles that answer: the model itself, and the model when it summarizes.
ANSWERING = ("assistant", "summary")


class SessionRecord(msgspec.Struct, frozen=True):
    """A conversation, without its messages. Calls of the journal name it by its id."""

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
    """One message. `data` is further data of the message, `call` the key of the call that it is about.

    If the stored message cannot be decoded, `fault` says so and `data` is empty.
    """

    session: str
    number: int
    at: float
    role: str
    text: str
    data: dict[str, Any] = {}
    call: int = 0
    fault: str = ""


class Found(msgspec.Struct, frozen=True):
    """A message in which words were found, and its text around the first of them."""

    session: SessionRecord
    message: Message
    excerpt: str


class Sessions(ABC):
    """A store of conversations. Every method may be called from any thread.

    The fields of a conversation and of a message are decided here, for every store alike.
    """

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
        about = writable(agent), writable(model), writable(project), writable(principal)
        new = _new_record(name, title, about, self._now())
        if not self._begin(new, token_hex(12)):
            raise JournalError(f"there is a session {new.id} already")
        return new.id

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

        With `after`, the message must follow this number: JournalError if another program has added one.
        """
        said = Message(session, 0, 0.0, writable(role), writable(text), dict(data or {}), call)
        return self._add(said, after)

    def titled(self, question: str, *, project: str = "", most: int = 50) -> list[SessionRecord]:
        """Return the latest conversations whose title has all words of a question."""
        phrases = phrases_of(question)
        if not phrases:
            return []
        listed = self.sessions(project=project, most=MOST_TITLES)
        found = (each for each in listed if all(phrase.is_in(words_of(each.title)) for phrase in phrases))
        return list(islice(found, most))

    def rename(self, name: str, title: str) -> None:
        """Give a conversation another title."""
        if not self._rename(name, title_of(title)):
            raise missing(name)

    @abstractmethod
    def session(self, name: str) -> SessionRecord | None:
        """Return a conversation."""

    @abstractmethod
    def secret(self, name: str) -> str:
        """Return the secret of this conversation, which is never shown and is removed with it."""

    @abstractmethod
    def unsettled(self, name: str, beginning: str) -> str:
        """Return the latest identity with this prefix among calls that are not over or not delivered.

        Only calls of this conversation and of those nested in it count; empty if there is none.
        """

    @abstractmethod
    def sessions(self, *, project: str = "", before: float = 0.0, most: int = 100) -> list[SessionRecord]:
        """Return conversations, the one with the latest message first; with `before`, only earlier ones.

        Those that are nested in another one are left out.
        """

    @abstractmethod
    def messages(self, session: str, *, after: int = 0, most: int = 1_000) -> list[Message]:
        """Return the messages of a conversation after a number, in their order."""

    @abstractmethod
    def search(self, question: str, *, project: str = "", most: int = 50) -> list[Found]:
        """Return the latest messages that have all words of a question."""

    @abstractmethod
    def answers(self, session: str = "", *, since: float = 0.0) -> Iterator[Message]:
        """Yield the answers and summaries of assistants, oldest first, of one conversation or of all."""

    @abstractmethod
    def cut(self, name: str, after: int) -> int:
        """Remove the messages after a number; return how many. The next message gets the next number."""

    @abstractmethod
    def remove(self, name: str) -> bool:
        """Remove a conversation, its messages and those nested in it; tell whether it existed."""

    @abstractmethod
    def _now(self) -> float:
        """Return the time of the store's clock."""

    @abstractmethod
    def _begin(self, new: SessionRecord, secret: str) -> bool:
        """Record a conversation with its secret; tell whether its name was free."""

    @abstractmethod
    def _add(self, said: Message, after: int | None) -> int:
        """Record a message, which has no time and no number yet; return its number."""

    @abstractmethod
    def _rename(self, name: str, title: str) -> bool:
        """Change the title; tell whether there is such a conversation."""


def sessions_of(journal: Journal) -> Sessions:
    """Return the conversations that are kept beside the calls of a journal."""
    if not isinstance(journal, Tables):
        return MemorySessions()
    from gramercy.journal.sql_sessions import SqlSessions

    return SqlSessions(journal)


class MemorySessions(Sessions):
    """Conversations that end with the process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._sessions: dict[str, SessionRecord] = {}
        self._messages: dict[str, list[Message]] = {}
        self._secrets: dict[str, str] = {}

    def _now(self) -> float:
        return time()

    def _begin(self, new: SessionRecord, secret: str) -> bool:
        with self._lock:
            if new.id in self._sessions:
                return False
            self._sessions[new.id], self._messages[new.id], self._secrets[new.id] = new, [], secret
            return True

    def _add(self, said: Message, after: int | None) -> int:
        with self._lock:
            found, now = self._known(said.session), time()
            number = next_number(found.id, found.messages, after)
            self._messages[found.id].append(msgspec.structs.replace(said, number=number, at=now))
            self._sessions[found.id] = msgspec.structs.replace(found, changed_at=now, messages=number)
            return number

    def _known(self, name: str) -> SessionRecord:
        found = self._sessions.get(name)
        if found is None:
            raise missing(name)
        return found

    def session(self, name: str) -> SessionRecord | None:
        """Return a conversation."""
        return self._sessions.get(name)

    def secret(self, name: str) -> str:
        """Return the secret of this conversation."""
        with self._lock:
            return self._secrets[self._known(name).id]

    def unsettled(self, name: str, beginning: str) -> str:
        """Return nothing: no caller returns to a journal in memory."""
        del name, beginning
        return ""

    def sessions(self, *, project: str = "", before: float = 0.0, most: int = 100) -> list[SessionRecord]:
        """Return conversations, the one with the latest message first."""
        with self._lock:
            found = [each for each in self._sessions.values() if not project or each.project == project]
        found = [each for each in found if not before or each.changed_at < before]
        found = [each for each in found if not is_nested(each.id)]
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

    def answers(self, session: str = "", *, since: float = 0.0) -> Iterator[Message]:
        """Yield the answers and summaries of assistants."""
        with self._lock:
            said = [each for name, said in self._messages.items() if session in {"", name} for each in said]
        wanted = (each for each in said if each.role in ANSWERING and each.at >= since)
        yield from sorted(wanted, key=lambda each: each.at)

    def _rename(self, name: str, title: str) -> bool:
        with self._lock:
            found = self._sessions.get(name)
            if found is not None:
                self._sessions[name] = msgspec.structs.replace(found, title=title)
            return found is not None

    def cut(self, name: str, after: int) -> int:
        """Remove the messages after a number."""
        with self._lock:
            found, said = self._known(name), self._messages[name]
            self._messages[name] = said[:after]
            self._sessions[name] = msgspec.structs.replace(found, messages=len(self._messages[name]))
            return len(said[after:])

    def remove(self, name: str) -> bool:
        """Remove a conversation, its messages and those nested in it."""
        with self._lock:
            there = name in self._sessions
            for each in [each for each in self._sessions if each == name or is_nested(each, name)]:
                del self._messages[each], self._sessions[each], self._secrets[each]
            return there


def nested_id(session: str, token: str, place: int) -> str:
    """Return the id of the conversation with an agent that another conversation has called."""
    return f"{session}{NESTED}{token}.{place}"


def is_nested(name: str, within: str = "") -> bool:
    """Tell whether a conversation is nested in any other one, or in `within`."""
    return bool(_NESTED.search(name)) and name.startswith(f"{within}{NESTED}" if within else "")


def root_of(name: str) -> str:
    """Return the conversation in which another one is nested, however deep; else itself."""
    while is_nested(name):
        name = name.rpartition(NESTED)[0]
    return name


def new_id() -> str:
    """Return the id of a new conversation: its time of creation and a unique part."""
    return f"{strftime('%Y%m%d-%H%M%S')}-{token_hex(3)}"


def next_number(session: str, messages: int, after: int | None) -> int:
    """Return the number of the next message, if it is the number that its writer expects."""
    if after is not None and after != messages:
        raise JournalError(
            f"session {session} has {messages} messages and not {after}: another program has gone on with "
            "it. Resume it again, or fork it"
        )
    return messages + 1


def _new_record(name: str, title: str, about: tuple[str, str, str, str], now: float) -> SessionRecord:
    """Return a conversation without messages, or refuse its name."""
    name = name or new_id()
    if not re.fullmatch(r"[\w.:@/+-]{1,200}", name):
        raise JournalError(
            f"{name!r:.60} cannot name a session: letters, digits and . : @ / + - _, at most 200"
        )
    return SessionRecord(name, title_of(title), *about, now, now, 0)


def missing(name: str) -> JournalError:
    """Return the error for a conversation that does not exist."""
    return JournalError(f"there is no session {name}")


def title_of(text: str) -> str:
    """Return a text as one line of a list."""
    return cut_line(writable(text), LONGEST_TITLE)
