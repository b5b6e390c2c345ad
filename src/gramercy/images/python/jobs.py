"""Background jobs: code that a thread of this process evaluates while other requests are answered.

Its output goes to a ring in the memory shared with the parent, and its reply into the room behind the ring,
so that the parent can read both at any moment, even after this process was killed.
"""

import ctypes
import threading
import time
from types import ModuleType

from .anatomy import raw_space
from .diagnostics import failure
from .evaluation import Evaluator, Loop, Run
from .operations import add_objects, enter
from .protocol import Request, RequestError, encode, text
from .session import Reply, Session
from .streams import Ring, rings

_ident, _clock = threading.get_ident, time.perf_counter
_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = [ctypes.c_ulong, ctypes.py_object]
# Characters of the value: the room for a reply is 64 KB.
_VALUE = 8_000
_NO_ROOM = "Its reply has no room in the memory for it: keep the result in a variable, and look at that."


class Job:
    """One job: its code, its namespace, and the ring for its output."""

    def __init__(self, session: Session, code: str, module: ModuleType, number: int, ring: Ring) -> None:
        self._session = session
        self._code = code
        self._module = module
        self._number = number
        self._ring = ring
        # Its own loop: that of the session belongs to the main thread.
        self._evaluator = Evaluator(session.sources, Loop())
        # Whether it runs code that can be interrupted, and whether it should stop.
        self.is_at_work = self.is_stopped = False
        self.thread = threading.Thread(target=self._run, name=f"job {number}", daemon=True)

    def _run(self) -> None:
        run, error, started = Run(_VALUE, remembers=False), None, _clock()
        rings[_ident()] = self._ring
        try:
            self.is_at_work = True
            if self.is_stopped:
                raise KeyboardInterrupt  # noqa: TRY301 - as where it is stopped later
            self._evaluator.run(self._code, self._session.current, raw_space(self._module), run)
        except BaseException as problem:  # noqa: BLE001 - whatever ends the work is its outcome
            error = failure(problem, len(run.forms), self._session.sources)
        self.is_at_work = False
        elapsed = (_clock() - started) * 1000
        for _attempt in range(3):
            try:
                self._ring.end(self._reply(run, error, elapsed))
                break
            except BaseException:  # noqa: BLE001, S112 - an interrupt that came late
                continue
        rings.pop(_ident(), None)
        _jobs.pop(self._number, None)

    def _reply(self, run: Run, error: Reply | None, elapsed: float) -> bytes:
        """Format the reply as for an evaluation, without the facts that only the main thread has."""
        reply: Reply = {"id": self._number, "ok": error is None, "elapsed_ms": elapsed}
        reply["forms"] = run.forms[-1:]
        if error is not None:
            reply["error"] = error
        else:
            add_objects(self._session, reply, run)
        if not run.last and error is None:
            reply["statement"] = True
        written = encode(reply)
        if len(written) <= self._ring.room:
            return written
        return encode({"id": self._number, "ok": error is None, "notes": [_NO_ROOM], "elapsed_ms": elapsed})


_jobs: dict[int, Job] = {}


def start_job(session: Session, request: Request) -> Reply:
    """Start a job. Code that cannot be parsed is reported at once."""
    code, number, slot = text(request, "code"), request.get("job"), request.get("slot")
    mirror = session.console.mirror
    if type(number) is not int or type(slot) is not int or mirror is None:
        raise RequestError("NOT-SUPPORTED", "This image has no memory for work in the background.")
    module = enter(session, request)
    job = Job(session, code, module, number, mirror.ring(slot, number))

    def work(run: Run) -> None:
        session.evaluator.parse(code, session.sources.add(code), session.current)
        _jobs[number] = job
        job.thread.start()
        run.add([])

    reply, _run = session.perform(work, module, request)
    return reply


def stop_job(session: Session, request: Request) -> Reply:
    """Interrupt a job where it next runs Python code."""
    del session
    number = request.get("job")
    job = _jobs.get(number) if type(number) is int else None
    if job is not None:
        # A thread that has not reached its code yet finds this there.
        job.is_stopped = True
        if job.is_at_work and job.thread.ident is not None:
            _raise_in(job.thread.ident, KeyboardInterrupt)
    return {"ok": True, "text": "", "data": {}}
