"""Conversations of agents in the sessions of a journal: begun, continued, resumed after a crash, forked.

A message is recorded before anything is done about it, with its calls, its results and its cost. This module
knows how messages are stored, and not what an agent does with them.
"""

from __future__ import annotations

import hmac
from itertools import takewhile
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gramercy.agents.base import awaited, unanswered
from gramercy.agents.prices import Prices, user_prices
from gramercy.errors import GramercyError, JournalError
from gramercy.gram.agents import ModelName
from gramercy.journal.sessions import Message as KeptMessage
from gramercy.journal.sessions import SessionRecord, nested_id, new_id, root_of
from gramercy.journal.texts import canonical_text, masked
from gramercy.providers.base import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gramercy.images.image import Image
    from gramercy.journal.sessions import Sessions
    from gramercy.providers.base import ModelCall, Usage

# How many messages are read at once, and how many conversations are searched for a title.
PAGE = 1_000
# The role of a stored summary of earlier messages; models get it as a message of the user.
SUMMARY = "summary"
SUMMARY_BEGINS = "This is a summary of our conversation so far, in place of its earlier messages:"
# The mark of a message that was copied by a fork.
COPIED = "copied"
# The result of a call that was running elsewhere: it must not run a second time here.
NOT_RUN_HERE = "This call belongs to the conversation from which this one was forked. It was not run here."


class TakenBack(msgspec.Struct, frozen=True):
    """The messages that were taken back: the user's message, their number, and the states of images."""

    text: str
    messages: int
    states: dict[str, str]


class SessionTalk:
    """One conversation in the sessions of a journal.

    A new conversation is recorded with its first message, so that there are no empty ones. `model` may change
    during the conversation; every answer is stored with its model. With every message of the user the states
    of the `images` are stored, so that both can be taken back together.
    """

    def __init__(
        self,
        sessions: Sessions,
        record: SessionRecord,
        said: Sequence[KeptMessage] | None = None,
        *,
        images: Iterable[Image] = (),
    ) -> None:
        self._sessions = sessions
        self._record = record
        self._is_begun = said is not None
        self._kept = list(said or ())
        self._said = [message_of(each) for each in self._kept]
        self.model = record.model
        self.prices: Prices | None = None
        self._secret = ""
        self.images = tuple(images)

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
        images: Iterable[Image] = (),
    ) -> Self:
        """Return a new conversation; without a title it takes the title from its first message."""
        if name and sessions.session(name) is not None:
            raise JournalError(f"there is a session {name} already: resume it")
        now = time()
        record = SessionRecord(name or new_id(), title, agent, model, project, principal, now, now, 0)
        return cls(sessions, record, images=images)

    @classmethod
    def resume(
        cls, sessions: Sessions, name: str, *, project: str = "", images: Iterable[Image] = ()
    ) -> Self:
        """Return the conversation with this id, this prefix of an id, or this title."""
        record = found_session(sessions, name, project=project)
        return cls(sessions, record, all_messages(sessions, record.id), images=images)

    @classmethod
    def latest(
        cls, sessions: Sessions, *, project: str = "", agent: str = "", images: Iterable[Image] = ()
    ) -> Self:
        """Return the conversation with the latest message."""
        for record in sessions.sessions(project=project):
            if not agent or record.agent == agent:
                return cls(sessions, record, all_messages(sessions, record.id), images=images)
        raise JournalError("there is no conversation to go on with yet")

    @property
    def session(self) -> str:
        """The id of the conversation, which its calls name in the journal."""
        return self._record.id

    @property
    def record(self) -> SessionRecord:
        """The data of the conversation: title, agent, model, project."""
        return self._record

    @property
    def kept(self) -> tuple[KeptMessage, ...]:
        """Every message as stored, also those that a summary replaces."""
        return tuple(self._kept)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The messages that a run continues from: the latest summary replaces the messages before it."""
        for place in range(len(self._kept) - 1, -1, -1):
            if self._kept[place].role == SUMMARY:
                until = self._kept[place].data.get("until", 0)
                return (self._said[place], *self._since(until))
        return tuple(self._said)

    def _since(self, number: int) -> Iterable[Message]:
        pairs = zip(self._kept, self._said, strict=True)
        return (said for kept, said in pairs if kept.number > number and kept.role != SUMMARY)

    def earlier(self, keep: int) -> tuple[int, tuple[Message, ...]]:
        """Return the messages before the latest turns, as a run would get them, and the last number.

        Return all of them if there are no more turns than `keep`, and none while a call has no result.
        """
        said = self.conversation
        numbers = [kept.number for kept in self._kept[-1:]]
        if not numbers or unanswered(said):
            return 0, ()
        asked = [kept for kept in self._kept if kept.role == "user" and kept.number > self._summarized()]
        if 0 < keep < len(asked):
            until = asked[-keep].number - 1
            later = sum(kept.number > until and kept.role != SUMMARY for kept in self._kept)
            return until, said[: len(said) - later]
        return numbers[0], said

    def _summarized(self) -> int:
        """Return the number of the last message that the latest summary replaces."""
        found = [kept.data.get("until", 0) for kept in self._kept if kept.role == SUMMARY]
        return int(found[-1]) if found else 0

    def add(self, message: Message, usage: Usage | None = None) -> None:
        """Record the next message, with its usage."""
        data = _data_of(message)
        if message.role == "assistant":
            data |= self._costs(usage)
        elif message.role == "user" and self.images:
            data["states"] = {image.name: image.epoch() for image in self.images}
        if message.calls:
            data["token"] = token_hex(6)
        self._keep(message.role, message.text, data, message)

    def summarize(self, text: str, until: int, usage: Usage | None = None) -> None:
        """Record a summary that replaces the messages up to a number; those stay in the journal."""
        self._keep(SUMMARY, text, {"until": until, **self._costs(usage)}, None)

    def _costs(self, usage: Usage | None) -> dict[str, Any]:
        """Return the stored data of an answer: its model, its tokens, and its price today, if known."""
        told: dict[str, Any] = {"model": self.model} if self.model else {}
        if usage is None:
            return told
        told["usage"] = msgspec.to_builtins(usage)
        try:
            self.prices = self.prices or user_prices()
            price = self.prices.find(ModelName.parse(self.model))
        except GramercyError:
            # The model's name is invalid, or the file of prices has a mistake, which the run itself reports.
            return told
        return told if price is None else {**told, "cost": price.of(usage)}

    def _keep(self, role: str, text: str, data: dict[str, Any], message: Message | None) -> None:
        if not self._is_begun:
            self._begin(text)
        after = self._kept[-1].number if self._kept else 0
        number = self._sessions.add(self.session, role, text, data=data, after=after)
        kept = KeptMessage(self.session, number, time(), role, text, data)
        self._kept.append(kept)
        self._said.append(message or message_of(kept))

    def _begin(self, text: str) -> None:
        about = {name: getattr(self._record, name) for name in ("agent", "model", "project", "principal")}
        # A title is in every list, so secrets are masked; mentioned contents come below the first paragraph.
        title = self._record.title or masked(text.strip().partition("\n\n")[0])
        self._sessions.begin(title, name=self.session, **about)
        self._record = self._sessions.session(self.session) or self._record
        self._is_begun = True

    def spent(self) -> float:
        """Return the cost of the conversation and those nested in it, as far as prices are known."""
        if not self._is_begun:
            return 0.0
        root, costs = root_of(self.session), []
        for each in self._sessions.answers(since=self._record.at):
            is_own = root_of(each.session) == root and not each.data.get(COPIED)
            cost = each.data.get("cost") if is_own else None
            if isinstance(cost, int | float):
                costs.append(cost)
        return float(sum(costs))

    def identity(self, call: ModelCall) -> str:
        """Return the identity of this call in the journal: from conversation, tool, arguments and its place.

        If a call is made again while an earlier one like it is open, in doubt or not delivered, it is that
        earlier call: it resumes the question, and does not repeat an effect. The digest has a key, since it
        outlives the arguments in the audit.
        """
        root = root_of(self.session)
        self._secret = self._secret or self._sessions.secret(root)
        said = f"{call.name}\0{_canonical(call.arguments)}".encode(errors="replace")
        like = f"{root}:{hmac.digest(self._secret.encode(), said, 'sha256')[:16].hex()}:"
        token, place = self._place(call)
        return self._sessions.unsettled(root, like) or f"{like}{token}.{place}"

    def nested(self, call: ModelCall, agent: str) -> tuple[Self, tuple[Message, ...]]:
        """Return the talk of the nested agent that this call asks, and its earlier messages."""
        name = nested_id(self.session, *self._place(call))
        if self._sessions.session(name) is not None:
            talk = type(self).resume(self._sessions, name)
        else:
            mine = self._record
            talk = type(self).begin(
                self._sessions, agent=agent, name=name, project=mine.project, principal=mine.principal
            )
        return talk, talk.conversation

    def waited(self) -> list[tuple[ModelCall, int]]:
        """Return the calls whose result says that they wait for a person, with their keys in the journal."""
        return awaited(self._said)

    def called_at(self) -> float:
        """Return when the latest message with calls was recorded."""
        pairs = zip(reversed(self._kept), reversed(self._said), strict=True)
        return next((kept.at for kept, said in pairs if said.calls), 0.0)

    def asked(self) -> Iterator[tuple[str, Self]]:
        """Return the names of nested agents that this conversation has called, each with its talk."""
        root = root_of(self.session)
        if not self._is_begun or not self._sessions.unsettled(root, f"{root}:"):
            return
        for kept, said in zip(list(self._kept), list(self._said), strict=True):
            for place in range(len(said.calls) if "token" in kept.data else 0):
                name = nested_id(self.session, str(kept.data["token"]), place)
                if (record := self._sessions.session(name)) is not None:
                    yield record.agent, type(self).resume(self._sessions, name)

    def _place(self, call: ModelCall) -> tuple[str, int]:
        """Return the token of the latest message with calls, and the place of this call in it.

        The token is the message's own, since the number of a message that was taken back is reused.
        """
        for kept, said in zip(reversed(self._kept), reversed(self._said), strict=True):
            if said.calls:
                same = [place for place, each in enumerate(said.calls) if each is call]
                same += [place for place, each in enumerate(said.calls) if each == call]
                if same and "token" in kept.data:
                    return str(kept.data["token"]), same[0]
                break
        return token_hex(6), 0

    def rename(self, title: str) -> None:
        """Give the conversation another title."""
        if self._is_begun:
            self._sessions.rename(self.session, title)
        self._record = msgspec.structs.replace(self._record, title=title)

    def take_back(self) -> TakenBack | None:
        """Take back the last message of the user and all that followed; None if there is no such message."""
        for place in range(len(self._kept) - 1, -1, -1):
            kept = self._kept[place]
            if kept.role == "user":
                record = self._sessions.session(self.session)
                if record is None or record.messages != self._kept[-1].number:
                    raise JournalError(
                        f"another program has gone on with session {self.session}: resume it again"
                    )
                count = self._sessions.cut(self.session, kept.number - 1)
                del self._kept[place:], self._said[place:]
                return TakenBack(kept.text, count, kept.data.get("states", {}))
        return None

    def states(self, number: int | None = None) -> dict[str, str]:
        """Return the states of the images when the user's last message up to this number was sent."""
        for kept in reversed(self._kept):
            if kept.role == "user" and (number is None or kept.number <= number) and "states" in kept.data:
                return dict(kept.data["states"])
        return {}

    def fork(self, number: int | None = None, title: str = "") -> Self:
        """Return a new conversation that continues from a message of this one; see `fork_session`."""
        name = fork_session(self._sessions, self.session, number, title)
        return type(self).resume(self._sessions, name, images=self.images)


def fork_session(sessions: Sessions, name: str, number: int | None = None, title: str = "") -> str:
    """Begin a conversation with the messages of another one up to a number; return its id.

    Calls stay together with their results: the results of the last message are copied too, and a call without
    one gets a result that says why. `go_back` restores the images.
    """
    record, said = found_session(sessions, name), all_messages(sessions, name)
    last = said[-1].number if said else 0
    number = last if number is None else number
    if not 1 <= number <= last:
        raise JournalError(f"session {name} has messages 1 to {last}: it cannot be forked at {number}")
    wanted = [each for each in said if each.number <= number]
    wanted += takewhile(lambda each: each.role == "tool", said[len(wanted) :])
    messages = [message_of(each) for each in wanted]
    about = {name: getattr(record, name) for name in ("agent", "model", "project", "principal")}
    new = sessions.begin(title or f"{record.title} (fork)", **about)
    for each in wanted:
        # Mark them as copied: their usage counts only once.
        sessions.add(new, each.role, each.text, data={**each.data, COPIED: True}, call=each.call)
    for call in unanswered(messages):
        sessions.add(new, "tool", NOT_RUN_HERE, data={"call_id": call.id, "is_error": True})
    return new


def go_back(images: Iterable[Image], states: dict[str, str], *, files: bool = True) -> list[str]:
    """Restore images to the states that a talk has stored; return a line for each, also if it fails."""
    told = []
    for image in images:
        epoch = states.get(image.name)
        if epoch is None:
            told.append(f"{image.name}: its state at that message is not known; it stays as it is")
            continue
        if image.epoch() == epoch:
            continue
        there = [info for info in image.checkpoints() if info.epoch == epoch]
        if not there:
            told.append(f"{image.name}: its state at that message is not kept any more; it stays as it is")
            continue
        info = image.rollback(there[-1].id, files=files)
        count = f", {info.taken_back} calls taken back" if info.taken_back else ""
        told.append(f"{image.name}: back at {info.id}{count}")
        told += info.notes
    return told


def found_session(sessions: Sessions, name: str, *, project: str = "") -> SessionRecord:
    """Return the latest conversation with this id, this title, or this prefix of an id."""
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
    """Return a message as a model gets it; JournalError if the stored message cannot be decoded."""
    if kept.role == SUMMARY and not kept.fault:
        return Message("user", f"{SUMMARY_BEGINS}\n\n{kept.text}")
    fields = {name: kept.data[name] for name in Message.__struct_fields__ if name in kept.data}
    fault = kept.fault
    try:
        if not fault:
            return msgspec.convert({**fields, "role": kept.role, "text": kept.text}, Message)
    except msgspec.ValidationError as error:
        fault = f"{error}"
    raise JournalError(
        f"session {kept.session} cannot be gone on with: message {kept.number} is damaged ({fault}). "
        f"`gramercy sessions show {kept.session}` shows what is there, `sessions fork {kept.session} --at "
        f"{kept.number - 1}` goes on before it"
    )


def _canonical(arguments: str) -> str:
    """Return arguments in canonical form; text that is not JSON is returned unchanged."""
    try:
        return canonical_text(msgspec.json.decode(arguments))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return arguments


def calls_of(kept: KeptMessage) -> tuple[ModelCall, ...]:
    """Return the calls of a message; none if they cannot be decoded."""
    try:
        return message_of(kept).calls
    except JournalError:
        return ()


def _data_of(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(message)
    del fields["role"]
    fields.pop("text", None)
    return fields | ({"calls": list(fields["calls"])} if message.calls else {})
