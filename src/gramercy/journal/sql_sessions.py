"""Conversations in the database of a journal, in the SQL of its dialect."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.journal.sessions import (
    ANSWERING,
    NESTED,
    Found,
    Message,
    SessionRecord,
    Sessions,
    is_nested,
    missing,
    next_number,
)
from gramercy.journal.words import excerpt, phrases_of, words_of, writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gramercy.journal.tables import Tables
    from gramercy.journal.words import Phrase

T = TypeVar("T")
# Messages per page, when all messages are read.
PAGE = 1_000
# Matches conversations that are nested in others: twelve digits, each any character.
_NESTED_LIKE = f"%{NESTED}{'_' * 12}.%"
_DATA = msgspec.json.Decoder(dict[str, Any])
_SESSION = "s.id, s.title, s.agent, s.model, s.project, s.principal, s.at, s.changed_at, s.messages"
_MESSAGE = "m.session, m.number, m.at, m.role, m.text, m.data, m.call"
_FOUND = (
    f"SELECT {_SESSION}, {_MESSAGE} FROM {{found}} w JOIN messages m ON m.key = w.key "  # noqa: S608 - our own names
    "JOIN sessions s ON s.id = m.session WHERE m.number > 0{more} ORDER BY w.key DESC LIMIT ?"
)


class SqlSessions(Sessions):
    """Conversations in the database of a journal."""

    def __init__(self, journal: Tables) -> None:
        self._journal = journal
        # The journal is of the same package: share its connection and transactions.
        self._run, self._change = journal._run, journal._change  # noqa: SLF001
        self._insert = journal._insert  # noqa: SLF001

    def _write(self, work: Callable[[], T]) -> T:
        return self._journal._write(work, is_lasting=False)  # noqa: SLF001 - of one room

    def _read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        return self._journal._read(lambda: self._run(statement, values))  # noqa: SLF001 - of one room

    def _now(self) -> float:
        return self._journal._now()  # noqa: SLF001 - of one room

    def _begin(self, new: SessionRecord, secret: str) -> bool:
        row = msgspec.structs.astuple(new)
        names = "id, title, agent, model, project, principal, at, changed_at, messages, token"
        marks = ", ".join("?" * 10)
        # Two programs may begin it at once: one waits for the other's commit, and learns that it lost.
        statement = f"INSERT INTO sessions ({names}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"  # noqa: S608 - our own names

        def begin() -> bool:
            self._change(statement, (*row, secret))
            # After a lost answer the transaction is retried: the token tells whether we made the row.
            return bool(self._run("SELECT token FROM sessions WHERE id = ?", (new.id,))[0][0] == secret)

        return self._write(begin)

    def _add(self, said: Message, after: int | None) -> int:
        session, about = said.session, _json(said.data)
        words, token = " ".join(words_of(said.text)), token_hex(12)

        def add() -> int:
            # After a lost answer the transaction is retried: the token tells whether the message was added.
            made = self._run("SELECT number FROM messages WHERE token = ?", (token,))
            if made:
                return int(made[0][0])
            locking = self._journal.LOCKING
            rows = self._run(f"SELECT messages FROM sessions WHERE id = ?{locking}", (session,))  # noqa: S608 - our own words
            if not rows:
                raise missing(session)
            number, now = next_number(session, int(rows[0][0]), after), self._now()
            statement = (
                "INSERT INTO messages (session, number, at, role, text, data, call, token) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            )
            row = (session, number, now, said.role, said.text, about, said.call, token)
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

    def secret(self, name: str) -> str:
        """Return the secret of this conversation."""
        rows = self._read("SELECT token FROM sessions WHERE id = ?", (name,))
        if not rows:
            raise missing(name)
        return str(rows[0][0])

    def unsettled(self, name: str, beginning: str) -> str:
        """Return the latest identity with this prefix among calls that are not over or not delivered."""
        # Find calls by their session: not in every locale does a comparison of prefixes use an index.
        statement = (
            "SELECT identity FROM calls "
            "WHERE session IN (SELECT id FROM sessions WHERE substr(id, 1, ?) = ?) "
            "AND substr(identity, 1, ?) = ? AND (delivered = 0 OR state NOT IN ('done', 'failed', 'denied')) "
            "ORDER BY key DESC LIMIT 1"
        )
        rows = self._read(statement, (len(name), name, len(beginning), beginning))
        return str(rows[0][0]) if rows else ""

    def sessions(self, *, project: str = "", before: float = 0.0, most: int = 100) -> list[SessionRecord]:
        """Return conversations, the one with the latest message first."""
        filters = {"s.project = ?": project, "s.changed_at < ?": before}
        wanted, values = _wanted(filters)
        statement = (
            f"SELECT {_SESSION} FROM sessions s WHERE s.id NOT LIKE ?{wanted} "  # noqa: S608 - our own names
            "ORDER BY s.changed_at DESC LIMIT ?"
        )
        return [SessionRecord(*row) for row in self._read(statement, (_NESTED_LIKE, *values, most))]

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

    def answers(self, session: str = "", *, since: float = 0.0) -> Iterator[Message]:
        """Yield the answers and summaries of assistants, page by page."""
        wanted, values = _wanted({"m.session = ?": session, "m.at >= ?": since})
        statement = (
            f"SELECT m.key, {_MESSAGE} FROM messages m WHERE m.key > ? AND m.role IN {ANSWERING}{wanted} "  # noqa: S608 - our own names
            "ORDER BY m.key LIMIT ?"
        )
        key = 0
        while rows := self._read(statement, (key, *values, PAGE)):
            key = rows[-1][0]
            yield from (_message(row[1:]) for row in rows)

    def _rename(self, name: str, title: str) -> bool:
        statement = "UPDATE sessions SET title = ? WHERE id = ?"
        return bool(self._write(lambda: self._change(statement, (title, name))))

    def cut(self, name: str, after: int) -> int:
        """Remove the messages after a number."""

        def cut() -> int:
            count = self._forget(name, after)
            number = self._run("SELECT COUNT(*) FROM messages WHERE session = ?", (name,))[0][0]
            if not self._change("UPDATE sessions SET messages = ? WHERE id = ?", (number, name)):
                raise missing(name)
            return count

        return self._write(cut)

    def remove(self, name: str) -> bool:
        """Remove a conversation, its messages and those nested in it."""

        def remove() -> bool:
            there = False
            beginning = f"{name}{NESTED}"
            statement = "SELECT id FROM sessions WHERE id = ? OR substr(id, 1, ?) = ?"
            for (found,) in self._run(statement, (name, len(beginning), beginning)):
                if found == name or is_nested(found, name):
                    self._forget(found, 0)
                    self._change("DELETE FROM sessions WHERE id = ?", (found,))
                    there = there or found == name
            return there

        return self._write(remove)

    def _forget(self, session: str, after: int) -> int:
        """Delete messages with their words, inside a transaction."""
        values = (session, after)
        for key, text in self._run("SELECT key, text FROM messages WHERE session = ? AND number > ?", values):
            self._change(self._journal.WORDS["remove_words"], (key, " ".join(words_of(text))))
        return self._change("DELETE FROM messages WHERE session = ? AND number > ?", values)


def _wanted(filters: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the conditions of the filters that have a value, and the values."""
    given = {condition: value for condition, value in filters.items() if value}
    return "".join(f" AND {condition}" for condition in given), list(given.values())


def _asked(phrase: Phrase, words: Mapping[str, str]) -> str:
    """Write a phrase in the query language of the index; words have only letters and digits."""
    *first, last = phrase.words
    parts = [words["one_word"].format(word) for word in first]
    parts.append(words["open_word" if phrase.is_open else "one_word"].format(last))
    return words["open_phrase" if phrase.is_open else "phrase"].format(words["next_to"].join(parts))


def _message(row: Sequence[Any]) -> Message:
    session, number, at, role, text, data, call = row
    try:
        return Message(session, number, at, role, text, _DATA.decode(data), call)
    except (msgspec.DecodeError, TypeError) as error:
        return Message(session, number, at, str(role), str(text), {}, call, f"{error}")


def _json(data: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(data).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(data)).decode()


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {_cleaned(name): _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list | tuple) else value
