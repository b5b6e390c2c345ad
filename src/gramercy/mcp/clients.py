"""What is remembered about one client between its frames, and the questions that it has been sent."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from msgspec import UNSET

from gramercy.mcp.wire import INVALID_REQUEST, Id, Message, ProtocolError, request

if TYPE_CHECKING:
    from gramercy.mcp.base import Channel, Peer
    from gramercy.mcp.work import Flight, Question

_numbers = count(1)
MOST_FLIGHTS = 1_000


class Client:
    """One peer: its requests under way and, in the older era, what it has set for the whole session."""

    __slots__ = ("_questions", "flights", "is_session", "log_rank", "peer", "uris")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.is_session = False
        self.flights: dict[Id, Flight] = {}
        self.log_rank = 0
        self.uris: set[str] | None = None
        self._questions: dict[str, Question] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost by forgetting this client."""
        return not (self.is_session or self.flights or self._questions)

    def ask(self, channel: Channel, question: Question, patience: float) -> None:
        """Send a question as a request of our own; it is given up when no answer comes in time."""
        if self._questions is None:
            self._questions = {}
        name = f"gramercy-{next(_numbers)}"
        self._questions[name] = question
        text = f"the client did not answer {question.method} within {patience:g} s"
        timer = asyncio.get_running_loop().call_later(patience, question.give_up, text)
        question.answer.add_done_callback(lambda _: self._settled(name, timer))
        channel.send(request(name, question.method, question.params))

    def _settled(self, name: str, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        if self._questions is not None:
            self._questions.pop(name, None)

    def answered(self, message: Message) -> None:
        """Take the answer to a question; answers to nothing are dropped."""
        question = self._questions.get(message.id) if self._questions and type(message.id) is str else None
        if question is None:
            return
        if message.error is not UNSET:
            found = message.error.get("message") if isinstance(message.error, dict) else None
            question.give_up(f"the client refused to answer: {str(found)[:500]}")
        elif isinstance(message.result, dict):
            question.take(message.result)
        else:
            question.give_up("the client's answer is no object")

    def close(self) -> None:
        """End everything that this client waits for or is waited for."""
        for flight in list(self.flights.values()):
            flight.withdraw()
        for question in list((self._questions or {}).values()):
            question.give_up("the client has gone away")


class Clients:
    """All clients that something must be remembered about; the others cost nothing."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Peer, Client] = {}

    def get(self, peer: Peer) -> Client | None:
        """Return what is remembered about a peer, if anything."""
        return self._known.get(peer)

    def of(self, peer: Peer) -> Client:
        """Return what is remembered about a peer; from now on it is."""
        client = self._known.get(peer)
        if client is None:
            client = self._known[peer] = Client(peer)
        return client

    def all(self) -> list[Client]:
        """List everybody."""
        return list(self._known.values())

    def depart(self, peer: Peer, id: Id, flight: Flight) -> None:  # noqa: A002 - its wire name
        """Note a request that is under way, so that its client can call it off."""
        client = self.of(peer)
        if id in client.flights or len(client.flights) >= MOST_FLIGHTS:
            problem = "this id is already under way" if id in client.flights else "too many are under way"
            self.forget_if_idle(client)
            raise ProtocolError(INVALID_REQUEST, f"Invalid request: {problem}")
        client.flights[id] = flight

    def land(self, peer: Peer, id: Id) -> None:  # noqa: A002 - its wire name
        """Note that a request is over."""
        client = self._known.get(peer)
        if client is not None:
            client.flights.pop(id, None)
            self.forget_if_idle(client)

    def forget_if_idle(self, client: Client) -> None:
        """Drop what nobody would miss."""
        if client.is_idle:
            self._known.pop(client.peer, None)

    def close(self, peer: Peer) -> None:
        """Forget a client for good."""
        client = self._known.pop(peer, None)
        if client is not None:
            client.close()
