"""Conversations of agents in the sessions of a journal: begun, gone on with, resumed after a crash.

A message is there before anything follows from it, with its calls, its results and what it cost. This module
knows how messages are kept, and not what an agent does with them.
"""

from __future__ import annotations

from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gramercy.errors import JournalError
from gramercy.journal.sessions import SessionRecord, new_id
from gramercy.providers.base import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.journal.sessions import Message as KeptMessage
    from gramercy.journal.sessions import Sessions
    from gramercy.providers.base import ModelCall, Usage

# As many messages as are read at once.
PAGE = 1_000


class SessionTalk:
    """One conversation in the sessions of a journal.

    A new one is recorded with its first message, so that there are no empty ones. `model` may be changed
    while the talk goes on; every answer is kept with the model that gave it.
    """

    def __init__(
        self, sessions: Sessions, record: SessionRecord, said: Sequence[KeptMessage] | None = None
    ) -> None:
        self._sessions = sessions
        self._is_begun = said is not None
        said = said or ()
        self._record = record
        self._said = [message_of(each) for each in said]
        self._number = said[-1].number if said else 0
        self.model = record.model
        # The latest message with calls, and by what those calls are known.
        self._calls: tuple[ModelCall, ...] = ()
        self._token = ""
        for message, kept in zip(self._said, said, strict=True):
            self._note(message, kept.data.get("token", ""))

    @classmethod
    def begin(  # noqa: PLR0913 - what is known of a conversation
        cls,
        sessions: Sessions,
        title: str = "",
        *,
        agent: str = "",
        model: str = "",
        project: str = "",
        principal: str = "local",
        name: str = "",
    ) -> Self:
        """Return a new conversation; without a title it gets that of its first message."""
        if name and sessions.session(name) is not None:
            raise JournalError(f"there is a session {name} already: resume it")
        now = time()
        record = SessionRecord(name or new_id(), title, agent, model, project, principal, now, now, 0)
        return cls(sessions, record)

    @classmethod
    def resume(cls, sessions: Sessions, name: str, *, project: str = "") -> Self:
        """Return the conversation with this id, the beginning of one, or this title."""
        record = found_session(sessions, name, project=project)
        return cls(sessions, record, all_messages(sessions, record.id))

    @classmethod
    def latest(cls, sessions: Sessions, *, project: str = "", agent: str = "") -> Self:
        """Return the conversation with the latest message."""
        for record in sessions.sessions(project=project):
            if not agent or record.agent == agent:
                return cls(sessions, record, all_messages(sessions, record.id))
        raise JournalError("there is no conversation to go on with yet")

    @property
    def session(self) -> str:
        """The id of the conversation, which its calls name in the journal."""
        return self._record.id

    @property
    def record(self) -> SessionRecord:
        """What is known of the conversation: title, agent, model, project."""
        return self._record

    @property
    def conversation(self) -> tuple[Message, ...]:
        """What was said, as a run goes on from it."""
        return tuple(self._said)

    def add(self, message: Message, usage: Usage | None = None) -> None:
        """Keep the next message, with what it cost."""
        if not self._is_begun:
            self._begin(message)
        data = _data_of(message)
        if message.role == "assistant":
            data |= {"model": self.model} if self.model else {}
            data |= {"usage": msgspec.to_builtins(usage)} if usage is not None else {}
        token = token_hex(6) if message.calls else ""
        data |= {"token": token} if token else {}
        self._number = self._sessions.add(
            self.session, message.role, message.text, data=data, after=self._number
        )
        self._said.append(message)
        self._note(message, token)

    def identity(self, call: ModelCall) -> str:
        """Return by what the journal knows this call again: session, message, place of the call.

        The message has a token of its own, since the number of one that was taken back is given out again.
        """
        for place, each in enumerate(self._calls):
            if each is call:
                return f"{self.session}:{self._token}:{place}"
        for place, each in enumerate(self._calls):
            if each == call:
                return f"{self.session}:{self._token}:{place}"
        return ""

    def _begin(self, message: Message) -> None:
        about = {name: getattr(self._record, name) for name in ("agent", "model", "project", "principal")}
        self._sessions.begin(self._record.title or message.text, name=self.session, **about)
        self._record = self._sessions.session(self.session) or self._record
        self._is_begun = True

    def _note(self, message: Message, token: str) -> None:
        if message.calls:
            self._calls, self._token = message.calls, token


def found_session(sessions: Sessions, name: str, *, project: str = "") -> SessionRecord:
    """Return the conversation with this id, the beginning of one, or this title; the latest of several."""
    found = sessions.session(name)
    if found is not None:
        return found
    listed = sessions.sessions(project=project, most=PAGE)
    wanted = name.casefold().strip()
    for fits in (
        lambda each: each.title.casefold() == wanted,
        lambda each: each.id.startswith(name),
        lambda each: wanted in each.title.casefold(),
    ):
        fitting = [each for each in listed if wanted and fits(each)]
        if fitting:
            return fitting[0]
    raise JournalError(f"there is no session {name}: gramercy sessions list tells which are")


def all_messages(sessions: Sessions, name: str) -> list[KeptMessage]:
    """Return every message of a conversation."""
    said: list[KeptMessage] = []
    while True:
        page = sessions.messages(name, after=said[-1].number if said else 0, most=PAGE)
        said += page
        if len(page) < PAGE:
            return said


def message_of(kept: KeptMessage) -> Message:
    """Return a message as a model is told it."""
    fields = {name: kept.data[name] for name in Message.__struct_fields__ if name in kept.data}
    try:
        return msgspec.convert({**fields, "role": kept.role, "text": kept.text}, Message)
    except msgspec.ValidationError as error:
        raise JournalError(
            f"message {kept.number} of session {kept.session} cannot be read ({error}): "
            f"gramercy sessions show {kept.session} shows what is there"
        ) from None


def _data_of(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(message)
    del fields["role"]
    fields.pop("text", None)
    return fields
