"""A small journal with everything in it that a verification looks at: as rows, and in a real database."""

from typing import NamedTuple

from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.chain import (
    PRUNED,
    REDACTED,
    Content,
    Event,
    Head,
    Told,
    kept_text,
    linked,
    opened,
    salted,
    text_of,
    told_text,
)
from gramercy.journal.opening import open_journal
from gramercy.journal.verify import Pruning, Report, Verifier

QUESTION = Question("pay 1?", "5ea1", {"tool": "d"}, "dangerous tools are asked about")
ASKED = Facts(question=QUESTION, expires_at=4e9)
YES = Facts(ruling=Ruling(approved=True, by="ada", seal="5ea1", reason="fine"))
NO = Facts(ruling=Ruling(approved=False, by="ada", seal="5ea1", refuser="person"))
PAY = NewCall("1", "pay", "dangerous", {"amount": 1, "password": "hush-hush"}, session="s", identity="i")
CALL = NewCall("1", "pay", "dangerous", {"amount": 1, "token": "hush"}, session="s")
LOOK = NewCall("2", "look", "safe", {"at": "here"})


class Book(NamedTuple):
    """The rows of a journal."""

    events: list[Event]
    contents: dict[tuple[int, int], Content]
    heads: list[Head]

    def report(self, pruned_before: float = 0.0, anchors: tuple[Head, ...] = ()) -> Report:
        verifier = Verifier(lambda: Pruning(pruned_before), anchors)
        for event in self.events:
            verifier.add((*event, *self.contents.get((event[2], event[3]), (None, None))))
        return verifier.finish(self.heads)


class Writer:
    """Writes into a book, on a chain of its own."""

    def __init__(self, book: Book) -> None:
        self.book = book
        previous = next((event.hash for event in book.events[::-1] if event.number == 1), "")
        event, head = opened(len(book.heads) + 1, 1.0, "host/1", previous)
        book.events.append(event)
        book.heads.append(head)
        self.chain = head.chain

    def write(self, move: tuple[int, int, str], facts: str, kept: str = "", at: float = 10.0) -> None:
        key, step, state = move
        digest = ""
        if kept:
            content = self.book.contents[key, step] = salted(kept)
            digest = content.digest
        head = self.book.heads[self.chain - 1]
        event, self.book.heads[self.chain - 1] = linked(head, key, step, state, at, facts, digest)
        self.book.events.append(event)

    def move(self, key: int, step: int, state: State, facts: Facts, call: NewCall | None = None) -> None:
        self.write(
            (key, step, state.value), told_text(facts, call), kept_text(facts, call), 10.0 * key + step
        )

    def mask(self, key: int, step: int, text: str) -> str:
        """Put another text for contents; return what an event must say about it."""
        content = self.book.contents[key, step] = salted(text)
        return content.digest


def small_book() -> Book:
    """Return a journal of three processes: one asks and runs, one decides, one redacts and prunes."""
    book = Book([], {}, [])
    server, desk = Writer(book), Writer(book)
    server.move(1, 1, State.DONE, Facts(elapsed_ms=0.5, size=2, digest="d1", content="ok"), LOOK)
    server.move(2, 1, State.REQUESTED, Facts(), CALL)
    server.move(2, 2, State.AWAITING, Facts(question=QUESTION, expires_at=99.0))
    desk.move(2, 3, State.READY, Facts(ruling=Ruling(approved=True, by="ada", seal="5ea1", reason="fine")))
    server.move(2, 4, State.EXECUTING, Facts(owner="host/1", fence=1, sandbox="bubblewrap"))
    masked = {"2.1": server.mask(2, 1, '{"arguments":{"amount":1,"token":"…"}}')}
    end = Facts(elapsed_ms=3.0, size=4, digest="d2", content="paid", files=("a.txt",))
    server.write((2, 5, "done"), told_text(end, masked=masked), kept_text(end), 25.0)
    server.move(3, 1, State.REQUESTED, Facts(), CALL)
    server.move(3, 2, State.AWAITING, Facts(question=QUESTION))
    desk.move(
        3, 3, State.DENIED, Facts(ruling=Ruling(approved=False, by="ada", seal="5ea1", refuser="person"))
    )
    cleaner = Writer(book)
    redacted = {"2.5": cleaner.mask(2, 5, '{"content":"…"}'), "3.1": ""}
    del book.contents[3, 1]
    cleaner.write((0, 0, REDACTED), text_of(Told(masked=redacted, by="ada", reason="a leaked name")))
    del book.contents[1, 1]
    cleaner.write((0, 0, PRUNED), text_of(Told(before_at=15.0, by="ada")))
    book.events.sort()
    return book


def fill(where):
    """Record something of everything, by two writers; return the keys of one that ran and of an open one."""
    server, desk = open_journal(where), open_journal(where)
    server.note(LOOK, State.DONE, Facts(elapsed_ms=0.5, size=2, content="ok"))
    key = server.begin(PAY, State.AWAITING, ASKED)
    desk.move(key, State.READY, YES)
    fence = server.claim(key, Facts(image="main", epoch="e1", sandbox="bubblewrap"))
    server.move(key, State.DONE, Facts(fence=fence, elapsed_ms=3.0, size=4, content="paid", files=("a.txt",)))
    refused = server.begin(PAY, State.AWAITING, ASKED)
    desk.move(refused, State.DENIED, NO)
    waiting = server.begin(PAY, State.AWAITING, ASKED)
    server.note(LOOK, State.FAILED, Facts(detail="no such place", failure="ValueError"))
    server.close()
    desk.close()
    return key, waiting
