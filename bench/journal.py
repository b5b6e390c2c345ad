"""What the journal in a file costs a call, and whether it stays quick when it has grown."""

# ruff: noqa: SLF001 - to fill a journal through its interface would take minutes

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time, time, time_ns
from typing import TYPE_CHECKING, Any

import gramercy
from bench.report import Section, Target, at_least, at_most, show
from gramercy import Executor, Registry, define_tool
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.export import export_lines, verify_lines
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.sessions import sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.journal.texts import masked
from gramercy.journal.words import words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort

FEW, MANY = 10_000, 1_000_000
# For a smoke run; two events of each pending approval are among them.
QUICK_FEW, QUICK_MANY = 4_000, 20_000
PENDING = 1_000
# Calls in one transaction while a journal is filled: to commit each would take minutes.
AT_ONCE = 5_000
TOOLS, SESSIONS = 40, 50
CALLS, BATCHES, LOOKS = 4_000, 20, 200
DANGEROUS_CALLS = 20
CONVERSATIONS, MESSAGES = 1_000, 30
EFFECT = "".join(f"-line {number} as it was\n+line {number} as it would be\n" for number in range(20))
SYNCED = """
import sys
from bench.journal import dangerous_calls
dangerous_calls(sys.argv[1], int(sys.argv[2]))
"""
# Waits for a move in another process, and tells when it was woken.
WAITER = """
import sys
from time import time_ns
from gramercy.journal.sqlite import SqliteJournal
from gramercy.journal.words import words_of
journal = SqliteJournal(sys.argv[1])
with journal.bell() as bell:
    # The poll has begun when the bell is silent for longer than it pauses.
    while bell.wait(1.5):
        pass
    for _ in sys.stdin:
        print("waits", flush=True)
        bell.wait()
        print(time_ns(), flush=True)
"""
RINGS = 50
MASKED = 3_000_000
# Repetitions that have a great many places where a secret might begin: the slowest of the tests' list.
HOSTILE = (
    "token=zz-",
    "token=",
    "password ",
    "PASSWORD_",
    "token   ",
    " --token ",
    " sk-",
    " AKIA",
    "eyJaaaa-",
)


def measure(effort: Effort) -> Section:
    """Measure calls, then look-ups in a small and in a large journal."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        directory = Path(name)
        safe = _safe_call(directory, CALLS // 10 if effort.quick else CALLS)
        fsyncs = _fsyncs(directory)
        few, many = (QUICK_FEW, QUICK_MANY) if effort.quick else (FEW, MANY)
        small, large = _look_ups({directory / "small.db": few, directory / "large.db": many})
        proved, exported = _proofs(directory / "large.db")
        searched = _searches(directory / "sessions.db", CONVERSATIONS)
        woken = _woken(directory / "woken.db")
    ordinary, hostile = _masks(MASKED // 10 if effort.quick else MASKED)
    rows = [
        ("a safe call, added", "", show(safe * 1e3), ""),
        ("another process is woken by a move", "", show(woken * 1e3), ""),
    ]
    rows += [
        (what, show(small[what] * 1e3), show(large[what] * 1e3), show(large[what] / small[what]))
        for what in large
    ]
    rows += [
        ("verify, events a second", "", show(proved), ""),
        ("verify an export, events a second", "", show(exported), ""),
        ("mask 3 MB of code", "", show(ordinary * 1e3), ""),
        ("mask 3 MB of the worst repetition", "", show(hostile * 1e3), ""),
    ]
    rows += [(f"search {what}", "", show(seconds * 1e3), "") for what, seconds in searched.items()]
    slowest = max(large[what] / small[what] for what in large)
    return Section(
        name="journal",
        title="The journal in a file",
        intro=f"Milliseconds, median; look-ups among {few:,} and among {many:,} events.",
        columns=("what", "few, ms", "many, ms", "ratio"),
        rows=tuple(rows),
        targets=(
            at_most("a safe call, added by the journal", safe * 1e3, 0.15, " ms"),
            fsyncs,
            at_most(f"list {PENDING:,} pending approvals", large["list what is pending"] * 1e3, 50, " ms"),
            at_most(f"a look-up among {many:,} events against {few:,}", slowest, 2, "x"),
            at_most("another process is woken by a move", woken * 1e3, 5, " ms"),
            at_least(f"verify {many:,} events, in a second", proved, 50_000),
            at_most("3 MB of code masked", ordinary * 1e3, 300, " ms"),
            at_most("3 MB of the worst repetition masked", hostile * 1e3, 300, " ms"),
            at_most(f"search {CONVERSATIONS:,} conversations", max(searched.values()) * 1e3, 50, " ms"),
        ),
        notes=(
            "The same tool through the executor with a journal in memory and in a file, in turns.",
            f"Pending: {PENDING:,} whole questions of {len(EFFECT):,} characters, read and decoded.",
            "Verify: every event, chain, record and content, in the journal of many events.",
            f"Mask, CPU time: the code of gramercy; {len(HOSTILE)} texts that repeat one piece each.",
            f"Search: {CONVERSATIONS:,} conversations of {MESSAGES} messages, the latest 50 that fit.",
            "fsyncs are counted by strace; a checkpoint of the log, every few hundred calls, adds two.",
        ),
    )


def _executor(journal: Any, level: str = "safe") -> Executor:
    tool = define_tool(
        "read_note", "Read a note.", [{"name": "title", "type": "string"}], handler=str, safety_level=level
    )
    return Executor(Registry([tool]), lambda _tool, _arguments: "approved", journal=journal)


def _safe_call(directory: Path, calls: int) -> float:
    """Return what a file adds to the median of a safe call, in seconds."""
    journal = SqliteJournal(directory / "safe.db")
    executors = _executor(MemoryJournal()), _executor(journal)
    call = {"id": "c1", "name": "read_note", "arguments": {"title": "shopping"}}
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(BATCHES):
        for executor, taken in zip(executors, samples, strict=True):
            for _ in range(calls // BATCHES):
                taken.append(_timed(lambda executor=executor: executor.execute(call)))
    journal.close()
    return statistics.median(samples[1]) - statistics.median(samples[0])


def _timed(work: Callable[[], Any]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def _computed(work: Callable[[], Any]) -> float:
    started = process_time()
    work()
    return process_time() - started


def dangerous_calls(path: str, count: int) -> None:
    """Run approved calls with a journal in a file."""
    journal = SqliteJournal(path)
    executor = _executor(journal, "dangerous")
    for number in range(count):
        call = {"id": f"c{number}", "name": "read_note", "arguments": {"title": "shopping"}}
        assert executor.execute(call).success
    journal.close()


def _fsyncs(directory: Path) -> Target:
    """Count the fsyncs of dangerous calls: those of many without those of opening and closing."""
    text = "fsyncs of a dangerous call"
    if shutil.which("strace") is None:
        return Target(f"{text}: at most 3", "strace is not installed", None)
    counts = []
    for number in (1, 1 + DANGEROUS_CALLS):
        log = directory / f"fsyncs-{number}"
        command = [
            "strace",
            "-f",
            "-e",
            "trace=fsync,fdatasync",
            "-o",
            str(log),
            sys.executable,
            "-c",
            SYNCED,
        ]
        done = subprocess.run([*command, str(directory / f"{number}.db"), str(number)], check=False)
        if done.returncode != 0:
            return Target(f"{text}: at most 3", f"strace failed with {done.returncode}", None)
        counts.append(log.read_text().count("sync("))
    return at_most(text, (counts[1] - counts[0]) / DANGEROUS_CALLS, 3)


def fill(journal: SqliteJournal, events: int) -> None:
    """Record calls of several tools and sessions, then approvals that wait."""
    facts = Facts(elapsed_ms=1.5, size=400, digest="d" * 64, image="python", epoch="e1")
    for first in range(0, events - 2 * PENDING, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, events - 2 * PENDING))
        journal._write(lambda numbers=numbers: _note(journal, numbers, facts), is_lasting=False)
    journal._write(lambda: _ask(journal), is_lasting=False)


def _note(journal: SqliteJournal, numbers: range, facts: Facts) -> None:
    for number in numbers:
        tool, session = f"tool_{number % TOOLS}", f"session-{number % SESSIONS}"
        call = NewCall(f"c{number}", tool, "safe", {"path": "notes.txt"}, "local", "bench", session, "/p")
        journal._note(call, State.DONE, facts)


def _ask(journal: SqliteJournal) -> None:
    for number in range(PENDING):
        question = Question(EFFECT, f"seal-{number}", {"arguments": "d" * 64}, "it is dangerous")
        call = NewCall(
            f"p{number}", "write_file", "dangerous", {"path": "a.txt", "text": "x"}, identity=f"i{number}"
        )
        journal._begin(call, State.AWAITING, Facts(question=question, expires_at=time() + 86_400))


def _look_ups(sizes: dict[Path, int]) -> list[dict[str, float]]:
    """Return the median seconds of each look-up, in journals of these sizes.

    They are measured in turns: a machine that becomes slower meanwhile would make the larger one look slow.
    """
    journals = {SqliteJournal(path): events for path, events in sizes.items()}
    for journal, events in journals.items():
        fill(journal, events)
    looks = [_looks(journal, events) for journal, events in journals.items()]
    found: list[dict[str, float]] = [{} for _ in looks]
    for what in looks[0]:
        taken = [[_timed(look[what]) for look in looks] for _ in range(LOOKS)]
        for each, seconds in zip(found, zip(*taken, strict=True), strict=True):
            each[what] = statistics.median(seconds)
    for journal in journals:
        journal.close()
    return found


def _looks(journal: SqliteJournal, events: int) -> dict[str, Callable[[], Any]]:
    """Return the look-ups in a journal of that many events, by what they look for."""
    middle = (events - 2 * PENDING) // 2
    awaiting = [State.AWAITING]
    return {
        "list what is pending": lambda: journal.records(awaiting, most=PENDING),
        "how a call stands": lambda: journal.record(middle),
        "the moves of a call": lambda: journal.entries(middle),
        "the call of an identity": lambda: journal.find("i500"),
        "no call of an identity": lambda: journal.find("unknown"),
        "the latest of a tool": lambda: journal.records(tool="tool_7", most=20),
        "the latest of a session": lambda: journal.records(session="session-7", most=20),
        "the latest that failed": lambda: journal.records([State.FAILED], most=20),
        "the latest of all": lambda: journal.records(most=20),
        "what was left behind": lambda: journal.recover(lambda _: False),
        "decide, run, end": lambda: _live(journal),
    }


def _searches(path: Path, count: int) -> dict[str, float]:
    """Return the median of searches among conversations, in seconds."""
    journal = SqliteJournal(path)
    journal._write(lambda: _talk(journal, count), is_lasting=False)
    sessions, found = sessions_of(journal), {}
    questions = {"a word of every message": "garden", "a rare one": "plot777", "a phrase": '"bed 7 of"'}
    for what, question in questions.items():
        taken = [_timed(lambda question=question: sessions.search(question)) for _ in range(LOOKS)]
        found[what] = statistics.median(taken)
    found["a word of a title"] = statistics.median(
        _timed(lambda: sessions.titled("title777")) for _ in range(LOOKS)
    )
    journal.close()
    return found


def _talk(journal: SqliteJournal, count: int) -> None:
    for number in range(count):
        name = f"s{number}"
        row = (name, f"title{number} of plot{number}", "", "", "", "", 0.0, float(number), MESSAGES, name)
        journal._run(f"INSERT INTO sessions VALUES ({', '.join('?' * 10)})", row)
        for place in range(1, MESSAGES + 1):
            text = f"bed {place} of plot{number} in the garden, with some {number * place} words more of it"
            said = (name, place, 0.0, "user", text, "{}", 0, f"{name}/{place}")
            columns = "session, number, at, role, text, data, call, token"
            marks = ", ".join("?" * 8)
            key = journal._insert(f"INSERT INTO messages ({columns}) VALUES ({marks})", said)
            journal._run(journal.WORDS["add_words"], (key, " ".join(words_of(text))))


def _woken(path: Path) -> float:
    """Return the median seconds from the commit of a move to who waits for it in another process."""
    journal = SqliteJournal(path)
    command = [sys.executable, "-c", WAITER, str(path)]
    taken = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdin is not None
        assert waiter.stdout is not None
        for _ in range(RINGS):
            waiter.stdin.write("\n")
            waiter.stdin.flush()
            assert waiter.stdout.readline() == "waits\n"
            journal.begin(NewCall("c1", "write_file", "dangerous", {"path": "a.txt"}), State.AWAITING)
            committed = time_ns()
            taken.append((int(waiter.stdout.readline()) - committed) / 1e9)
        waiter.stdin.close()
    journal.close()
    return max(0.0, statistics.median(taken))


def _proofs(path: Path) -> tuple[float, float]:
    """Return how many events are verified in a second, in the journal and in an export of it."""
    journal = SqliteJournal(path)
    started = perf_counter()
    report = verify_journal(journal)
    seconds = perf_counter() - started
    assert report.is_intact
    lines = export_lines(journal, 0.0, with_contents=True)
    file = path.with_suffix(".jsonl")
    with file.open("wb") as written:
        written.writelines(line + b"\n" for line in lines)
    journal.close()
    started = perf_counter()
    with file.open("rb") as kept:
        assert verify_lines(kept).is_intact
    return report.events / seconds, report.events / (perf_counter() - started)


def _masks(length: int) -> tuple[float, float]:
    """Return the seconds in which code is masked, and the slowest hostile text, of this length."""
    files = sorted(Path(gramercy.__file__).parent.rglob("*.py"))
    code = "".join(file.read_text() for file in files)
    ordinary, *hostile = (
        statistics.median(_computed(lambda text=text: masked(text)) for _ in range(5))
        for text in ((piece * (length // len(piece) + 1))[:length] for piece in (code, *HOSTILE))
    )
    return ordinary, max(hostile)


def _live(journal: SqliteJournal) -> None:
    call = NewCall("c1", "write_file", "dangerous", {"path": "a.txt"})
    key = journal.begin(call, State.AWAITING, Facts(question=Question("?", "s", {}, "")))
    journal.move(key, State.READY, Facts(ruling=Ruling(approved=True, by="person", seal="s")))
    journal.move(key, State.DONE, Facts(fence=journal.claim(key)))
