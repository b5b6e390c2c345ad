"""Serve requests one at a time, fork on request, and set up the copy for its role.

The zygote never runs user code, so a live process sets up its environment (packages, project, init file)
right after its fork. Every process ends when its own connection ends.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from . import (
    classes,
    frame_code,
    introspection,
    inventory,
    jobs,
    listings,
    manuals,
    members,
    moments,
    objects,
    operations,
    places,
    profiling,
    references,
    sourcing,
    systems,
    testing,
    watching,
)
from .anatomy import short_name
from .confinement import NotConfinedError, Witness, confine, shield
from .diagnostics import message_of
from .displays import PLOTS, Follower, hook
from .evaluation import Run
from .landlock import prctl
from .names import complete, near
from .processes import SPAWNERS, CannotForkError, Family, end_all, refuse_session, state
from .protocol import (
    Connection,
    Ends,
    Options,
    Request,
    RequestError,
    close_quietly,
    decode,
    encode,
    greet,
    text,
)
from .session import Reply, Session, hold, ignore_interrupts
from .streams import open_mirror
from .suites import Event
from .typed import PASSWORDS, TypedBytes, hide_passwords

_exit, _yield, _gettrace, _getprofile = os._exit, os.sched_yield, sys.gettrace, sys.getprofile
_ROLES = ("live", "checkpoint", "preview")
_OPERATIONS: dict[str, Callable[[Session, Request], Reply]] = {
    "eval": operations.evaluate,
    "compile": operations.compile_code,
    "start_job": jobs.start_job,
    "stop_job": jobs.stop_job,
    "profile": profiling.profile,
    "load_system": systems.load_system,
    "take_up": systems.take_up,
    "loaded_from": systems.loaded_from,
    "undo_definitions": operations.undo_definitions,
    "describe": introspection.describe,
    "apropos": listings.apropos,
    "arglist": introspection.show_arglist,
    "complete": complete,
    "package_symbols": listings.package_symbols,
    "definitions": listings.definitions,
    "who_calls": references.who_calls,
    "who_references": references.who_references,
    "class_slots": classes.class_slots,
    "class_hierarchy": classes.class_hierarchy,
    "macroexpand": operations.expand,
    "inspect": objects.inspect_object,
    "print_value": objects.print_value,
    "find_definition": sourcing.find_definition,
    "find_methods": members.find_methods,
    "look_up_documentation": manuals.look_up_documentation,
    "describe_system": inventory.describe_system,
    "frames": moments.tell_frames,
    "locals": moments.tell_locals,
    "threads": moments.tell_threads,
    "eval_in_frame": frame_code.evaluate_in_frame,
    "restarts": moments.tell_restarts,
    "invoke": moments.refuse_restart,
}
_RUNNING = ("eval", "start_job", "compile", "profile", "load_system", "take_up", "undo_definitions")
_NO_END = "the descriptor for its copy is gone: evaluated code has closed it, or too many files are open"
_UNSUPPORTED = "A Python process cannot be saved to a file; evaluate its definitions again in a new one."
_signal, _timer = signal.signal, signal.setitimer
_mask, _EVERY = signal.pthread_sigmask, signal.valid_signals()
_ALARM, _REAL, _DEFAULT = signal.SIGALRM, signal.ITIMER_REAL, signal.SIG_DFL
# Seconds for .pth files and sitecustomize, and for the init file; the parent waits twice as long.
_PATIENCE = 5
_INIT_PATIENCE = 30
# Bytes of an init file. More is treated as a mistake, and cut off.
_LARGEST = 16 * 1024 * 1024


class Server:
    """One process of an image family."""

    def __init__(self, options: Options, connection: Connection) -> None:
        self._environment = Environment(options)
        self._connection = connection
        self._role = "zygote"
        self._mirror = open_mirror(options.mirror)
        self._session = Session(self._mirror)
        self._session.keep = self._keep_moment
        self._ends = Ends()
        # Whether this is a copy that keeps a moment, until the request is over.
        self._begins_as_moment = False
        self.family = Family()
        self._own: dict[str, Callable[[Request], Reply | None]] = {
            "fork": self._fork,
            "ping": self._ping,
            "rehearse": self._rehearse_now,
            "state": self._state,
            "save": self._save,
            "exit": self._exit,
            "confine": self._confine,
            "fate": self._fate,
            "run_tests": self._run_tests,
            "watch_files": self._watch_files,
        }

    def serve(self) -> None:
        """Answer requests until the connection ends. The process ends with it."""
        while True:
            body = self._connection.receive()
            if not self._session.is_undisturbed:
                self.family.reap()
                self._session.reloading.following.doubt_queue()
            self._session.is_undisturbed = False
            try:
                self._one(body)
            except BaseException:  # noqa: BLE001 - out of memory while answering: nothing left to say
                _exit(1)

    def _one(self, body: bytes) -> None:
        request: Request = {}
        try:
            request = decode(body)
            if self._connection.come:
                self._take_ends(request)
            reply = self._answer(request)
        except RequestError as error:
            # A refused request was not begun, so nothing has changed.
            reply = {"ok": False, "error": error.record(), "unchanged": True}
        except ValueError as error:
            reply = {"ok": False, "error": {"type": "MALFORMED-REQUEST", "message": message_of(error)}}
        except BaseException as error:  # noqa: BLE001 - a fault of ours, or of the stdlib under user patches
            self._session.drop_ballast()
            reply = {"ok": False, "error": _internal(error)}
        if self._begins_as_moment:
            self._begins_as_moment = False
            self._become("moment")
            return
        if reply is None:
            return
        tag = request.get("then_fork")
        keeps = type(tag) is str and request.get("op") in _RUNNING and not reply.get("unchanged")
        # The process is abandoned, so its state is not kept.
        keeps = keeps and not reply.get("spoiled")
        if keeps:
            # Without other threads of Python code no thread can start between the reply and the fork.
            reason = self.family.why_not() or (None if self._ends.has(str(tag)) else _NO_END)
            if reason is not None:
                reply["unkept"], keeps = reason, False
        reply["id"] = request.get("id")
        self._connection.send(reply, sure=self._session.is_undisturbed)
        if keeps:
            self._fork_afterwards(str(tag))

    def _take_ends(self, request: Request) -> None:
        come, self._connection.come = self._connection.come, []
        self._ends.keep(request, come)

    def _answer(self, request: Request) -> Reply | None:
        op = request.get("op")
        if type(op) is not str:
            raise RequestError("INVALID-REQUEST", '"op" must be a string.')
        own = self._own.get(op)
        if own is not None:
            return own(request)
        work = _OPERATIONS.get(op)
        if work is None:
            known = sorted([*self._own, *_OPERATIONS])
            raise RequestError("UNKNOWN-OP", f"There is no operation '{op[:100]}'.", near(op, known))
        if self._role == "zygote":
            raise RequestError("ZYGOTE", "The zygote never evaluates; fork a live process and ask that.")
        if self.family.asleep:
            self.family.wake()
        if "input" in request:
            return self._with_input(work, request)
        return work(self._session, request)

    def _with_input(self, work: Callable[[Session, Request], Reply], request: Request) -> Reply:
        """Run code for which a person types. It asks them on the end that came with the request."""
        end, console = self._ends.take(request["input"]), self._session.console
        if end is not None:
            console.listen(TypedBytes(end))
        try:
            return work(self._session, request)
        finally:
            # Before any copy is made: a restored state must not ask.
            console.hang_up()

    def _ping(self, _request: Request) -> Reply:
        return {"ok": True}

    def _rehearse_now(self, _request: Request) -> Reply:
        """Do the work that every call needs: a state without memory for it dies here, and not in a call."""
        gc.collect()
        self._rehearse()
        return {"ok": True}

    def _state(self, _request: Request) -> Reply:
        return {"ok": True, "state": state()}

    def _save(self, _request: Request) -> Reply:
        raise RequestError("NOT-SUPPORTED", _UNSUPPORTED)

    def _exit(self, _request: Request) -> Reply:
        _exit(0)

    def _confine(self, request: Request) -> Reply:
        """Give up rights. Only a copy that is discarded afterwards may."""
        if self._role != "preview":
            message = f"Only a preview process confines itself; this is a {self._role} process."
            raise RequestError("INVALID-REQUEST", message)
        try:
            witness = Witness(lambda: self._session.gate.open)
            heard = witness.install()
            self._session.effects = witness.take
            mirror = self._ends.take(request.get("tag"))
            if mirror is not None and self._mirror is not None:
                self._mirror.move(mirror)
            level = confine(self._connection.fd, request)
        except (NotConfinedError, OSError) as error:
            return {"ok": True, "confined": False, "reason": str(error)}
        return {"ok": True, "confined": True, "level": level, "effects_seen": heard}

    def _watch_files(self, request: Request) -> Reply | None:
        """Let the parent hear of file changes, in this process and all its descendants."""
        if self._role != "zygote":
            raise RequestError("INVALID-REQUEST", "Only the zygote is watched, and all that come from it.")
        call, instructions = request.get("call"), request.get("filter")
        try:
            descriptor = watching.install(call, instructions)  # type: ignore[arg-type]  # the parent's own words
        except OSError as error:
            return {"ok": True, "watched": False, "reason": message_of(error)}
        reply = encode({"id": request.get("id"), "ok": True, "watched": True})
        watching.send(self._connection.fd, len(reply).to_bytes(4, "big") + reply, descriptor)
        return None

    def _fate(self, request: Request) -> Reply:
        pid = request.get("pid")
        if type(pid) is not int or pid < 1:
            raise RequestError("INVALID-REQUEST", '"pid" must be the number of a process.')
        return {"ok": True, "status": self.family.fate(pid)}

    def _run_tests(self, request: Request) -> Reply:
        if self._role == "zygote":
            raise RequestError("ZYGOTE", "The zygote never evaluates; fork a live process and ask that.")
        return testing.run_tests(self._session, request, self._tell)

    def _tell(self, event: Event) -> None:
        """Send an event of the running request. A signal must not split its frame."""
        held = _mask(signal.SIG_BLOCK, _EVERY)
        try:
            # No request has this number, so a parent that waits for the reply alone skips it.
            self._connection.send({"id": 0, "ok": True, "event": event})
        finally:
            _mask(signal.SIG_SETMASK, held)

    def _fork(self, request: Request) -> Reply | None:
        role, tag = request.get("role"), text(request, "tag")
        roles = _ROLES if self._session.moment is None else ("moment",)
        if role not in roles:
            raise RequestError("INVALID-REQUEST", f'"role" must be one of {", ".join(roles)}.')
        try:
            pid = self._forked(tag)
        except CannotForkError as error:
            raise RequestError("CANNOT-FORK", str(error)) from None
        if pid == 0:
            self._become(str(role), plain=request.get("plain") is True)
            return None
        return {"ok": True, "pid": pid}

    def _forked(self, tag: str, *, is_asked: bool = False) -> int:
        """Fork. Return 0 in the copy. Its connection is the end that the parent sent for this copy alone."""
        end = self._ends.take(tag)
        if end is None:
            raise CannotForkError(_NO_END)
        pid = -1
        try:
            pid = self.family.fork(is_asked=is_asked)
        finally:
            if pid != 0:
                close_quietly(end)
        if pid == 0:
            self._connection.close()
            self._ends.close()
            self._session.console.hang_up()
            self._connection = Connection(end)
        return pid

    def _keep_moment(self, error: BaseException, tag: str) -> Reply:
        """Keep an exception in a copy, and report whether there is one. This process releases the exception.

        It is done here, where the exception still exists: holding it until after the reply would let the
        finalizers of objects in its frames run outside of the guard. The copy runs to the end of the request,
        then says hello.
        """
        reason = moments.why_none(error)
        if reason is None:
            reason = self.family.why_not()
        if reason is not None:
            return {"no_moment": reason} if reason else {}
        gate = self._session.gate
        gate.open = False
        hold()
        try:
            pid = self._forked(tag, is_asked=True)
        except CannotForkError as problem:
            return {"no_moment": str(problem)}
        finally:
            gate.reopen()
        if pid == 0:
            gate.leave()
            self._session.moment, self._begins_as_moment = moments.Moment(error), True
        return {"moment": True}

    def _fork_afterwards(self, tag: str) -> None:
        # The parent should read the reply before this processor is busy with the fork.
        _yield()
        try:
            pid = self._forked(tag, is_asked=True)
        except CannotForkError:
            return  # its end is closed, and the parent notices that
        if pid == 0:
            self._become("checkpoint")
        else:
            self._rehearse()

    def _rehearse(self) -> None:
        """Evaluate nothing at all, so that the next evaluation finds its memory ready.

        After a fork every page is shared, and the first write to a page copies it. No request is waiting now;
        at the next one the parent is.
        """
        if _gettrace() is not None or _getprofile() is not None:
            return  # a tracer of the user would see code that was never sent
        # Without the shortcuts: the next evaluation may not be able to use them.
        self._session.unsettle()
        with suppress(BaseException):  # the next reply shows what user code has broken
            encode(operations.evaluate(self._session, {"op": "eval", "code": "None\npass"}))

    def _become(self, role: str, *, plain: bool = False) -> None:
        """Set up a copy in its role and say hello. `plain` skips the init file."""
        if self._role == "zygote":
            self.family.stop_adopting()
            shield()
            self._environment.set_up()
            self._session.begin()
            if not plain:
                # A process for tests is fresh, and is discarded before anything is edited.
                self._session.reloading.begin(self._environment.reload)
            show = partial(hook, gallery=self._session.gallery)
            sys.meta_path[:0] = [
                Follower(PLOTS, show),
                Follower(PASSWORDS, partial(hide_passwords, console=self._session.console)),
                *(Follower(name, refuse_session) for name in SPAWNERS),
            ]
            if not plain:
                self._environment.run_init(self._session)
        self._session.loop.forget()
        self._session.reloading.following.forget_queue()
        self._session.unsettle()
        self._role = role
        try:
            greet(self._connection, role, self.family.fork_us)
        except OSError:
            _exit(2)

    def left_by_user_code(self) -> None:
        """Close the connection and stop mirroring, in a child that user code forked."""
        self._connection.close()
        self._ends.close()
        self._session.console.hang_up()
        self._session.console.leave_mirror()
        self._session.reloading.following.forget_queue()


def _internal(error: BaseException) -> Reply:
    return {"type": "INTERNAL-ERROR", "message": f"{short_name(type(error))}: {message_of(error)}"}


def serve(options: Options, connection: Connection) -> None:
    """Serve as the zygote until the parent disconnects."""
    for directory in options.paths:
        systems.add_path(directory)
    server = Server(options, connection)
    connection.at_end = end_all
    ignore_interrupts()
    server.family.adopt_orphans(prctl)
    os.register_at_fork(after_in_child=server.left_by_user_code)
    gc.collect()
    gc.freeze()
    server.serve()


class TooSlow(BaseException):
    """The startup code takes too long. No handler in it should catch this by chance."""


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def give_up(_number: int, _frame: object) -> None:
        raise TooSlow(f"it takes more than {seconds} seconds")

    _signal(_ALARM, give_up)
    _timer(_REAL, seconds)
    try:
        yield
    finally:
        _timer(_REAL, 0)
        _signal(_ALARM, _DEFAULT)


class Environment:
    """The command line's options about packages, project and the file to run first."""

    def __init__(self, options: Options) -> None:
        self._first = options.first
        self._init = options.init
        self.reload = options.reload
        self._site = None
        systems.not_granted.extend(options.outside)
        places.project.extend(options.first[:1])
        if options.site:
            # With -S it does nothing by itself. Its modules are loaded once, for all live processes.
            import site

            self._site = site

    def set_up(self) -> None:
        """Add the packages of the environment, then put the project first.

        In this order a sitecustomize of the project does not run, as with `python script.py`. The code of
        .pth files and the environment's own sitecustomize do.
        """
        if self._site is not None:
            try:
                with _limited(_PATIENCE):
                    self._site.main()
            except BaseException as error:  # noqa: BLE001 - code of the environment, which may do anything
                _tell(f"the environment {sys.prefix} could not be taken up: {type(error).__name__}: {error}")
        sys.path[:0] = [path for path in self._first if path not in sys.path]

    def run_init(self, session: Session) -> None:
        """Run the user's file in `__main__`. Its errors go to the log."""
        if self._init is None:
            return
        name = self._init

        def work(_run: Run) -> None:
            with open(name, "rb") as file:  # noqa: PTH123 - pathlib may be patched by now
                source = file.read(_LARGEST)
            exec(compile(source, name, "exec", dont_inherit=True), vars(session.main))  # noqa: S102 - the user's file

        with _limited(_INIT_PATIENCE):
            reply, _ = session.perform(work, session.main, {})
        error = reply.get("error")
        if type(error) is dict:
            kind = str(error.get("type")).rpartition(".")[2]
            _tell(f"{name} failed: {kind}: {error.get('message')}")
        for printed in (reply.get("stdout"), reply.get("stderr")):
            if type(printed) is str and printed:
                _tell(printed.rstrip("\n"))


def _tell(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"{text}\n".encode("utf-8", "replace"))
