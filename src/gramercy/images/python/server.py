"""Serve requests one at a time, fork when asked, and become what the fork was asked for.

The zygote never evaluates. Every process ends when its own connection ends.
"""

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from . import classes, expansion, inspection, introspection, operations, references, systems, undoing
from .anatomy import short_name
from .arrival import Address, Options, greet
from .confinement import NotConfinedError, confine, prctl, shield
from .effects import Witness
from .failures import message_of
from .frames import Connection, decode, encode
from .household import Household
from .interrupts import ignore_interrupts
from .mirror import open_mirror
from .names import near
from .processes import CannotForkError, Family, end_all, state
from .requests import Request, RequestError, optional_text
from .session import Reply, Session

_exit, _yield, _gettrace, _getprofile = os._exit, os.sched_yield, sys.gettrace, sys.getprofile
_ROLES = ("live", "checkpoint", "preview")
_OPERATIONS: dict[str, Callable[[Session, Request], Reply]] = {
    "eval": operations.evaluate,
    "compile": operations.compile_code,
    "load_system": systems.load_system,
    "undo_definitions": undoing.undo_definitions,
    "describe": introspection.describe,
    "apropos": introspection.apropos,
    "arglist": introspection.show_arglist,
    "package_symbols": introspection.package_symbols,
    "definitions": introspection.definitions,
    "who_calls": references.who_calls,
    "who_references": references.who_references,
    "class_slots": classes.class_slots,
    "class_hierarchy": classes.class_hierarchy,
    "macroexpand": expansion.expand,
    "inspect": inspection.inspect_object,
}
_RUNNING = ("eval", "compile", "load_system", "undo_definitions")
_UNSUPPORTED = "A Python process cannot be saved to a file; evaluate its definitions again in a new one."


class Server:
    """One process of an image family."""

    def __init__(self, options: Options, connection: Connection) -> None:
        self._address: Address = options.address
        self._household = Household(options)
        self._connection = connection
        self._role = "zygote"
        self._mirror = open_mirror(options.mirror)
        self._session = Session(self._mirror)
        self.family = Family()
        self._own: dict[str, Callable[[Request], Reply | None]] = {
            "fork": self._fork,
            "ping": self._ping,
            "state": self._state,
            "save": self._save,
            "exit": self._exit,
            "confine": self._confine,
            "fate": self._fate,
        }

    def serve(self) -> None:
        """Answer requests until the connection ends; the process ends with it."""
        while True:
            body = self._connection.receive()
            if not self._session.is_undisturbed:
                self.family.reap()
            self._session.is_undisturbed = False
            try:
                self._one(body)
            except BaseException:  # noqa: BLE001 - out of memory while answering: nothing left to say
                _exit(1)

    def _one(self, body: bytes) -> None:
        request: Request = {}
        try:
            request = decode(body)
            reply = self._answer(request)
        except RequestError as error:
            # What cannot be answered was not begun either.
            reply = {"ok": False, "error": error.record(), "unchanged": True}
        except ValueError as error:
            reply = {"ok": False, "error": {"type": "MALFORMED-REQUEST", "message": message_of(error)}}
        except BaseException as error:  # noqa: BLE001 - a fault of ours, or of the stdlib under user patches
            self._session.drop_ballast()
            reply = {"ok": False, "error": _internal(error)}
        if reply is None:
            return
        tag = request.get("then_fork")
        keeps = type(tag) is str and request.get("op") in _RUNNING and not reply.get("unchanged")
        if keeps:
            # Without threads of Python code nobody can start one between the reply and the fork.
            reason = self.family.why_not()
            if reason is not None:
                reply["unkept"], keeps = reason, False
        reply["id"] = request.get("id")
        self._connection.send(reply, sure=self._session.is_undisturbed)
        if keeps:
            self._fork_afterwards(str(tag))

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
        return work(self._session, request)

    def _ping(self, _request: Request) -> Reply:
        return {"ok": True}

    def _state(self, _request: Request) -> Reply:
        return {"ok": True, "state": state()}

    def _save(self, _request: Request) -> Reply:
        raise RequestError("NOT-SUPPORTED", _UNSUPPORTED)

    def _exit(self, _request: Request) -> Reply:
        _exit(0)

    def _confine(self, _request: Request) -> Reply:
        """Give up rights; only a copy that is thrown away afterwards may."""
        if self._role != "preview":
            message = f"Only a preview process confines itself; this is a {self._role} process."
            raise RequestError("INVALID-REQUEST", message)
        try:
            witness = Witness(lambda: self._session.gate.open)
            heard = witness.install()
            self._session.effects = witness.take
            level = confine(self._connection.fd, self._mirror.device if self._mirror else None)
        except (NotConfinedError, OSError) as error:
            return {"ok": True, "confined": False, "reason": str(error)}
        return {"ok": True, "confined": True, "level": level, "effects_seen": heard}

    def _fate(self, request: Request) -> Reply:
        pid = request.get("pid")
        if type(pid) is not int or pid < 1:
            raise RequestError("INVALID-REQUEST", '"pid" must be the number of a process.')
        return {"ok": True, "status": self.family.fate(pid)}

    def _fork(self, request: Request) -> Reply | None:
        role, tag = request.get("role"), optional_text(request, "tag")
        if role not in _ROLES:
            raise RequestError("INVALID-REQUEST", f'"role" must be one of {", ".join(_ROLES)}.')
        try:
            pid = self.family.fork()
        except CannotForkError as error:
            raise RequestError("CANNOT-FORK", str(error)) from None
        if pid == 0:
            self._become(str(role), tag, plain=request.get("plain") is True)
            return None
        return {"ok": True, "pid": pid}

    def _fork_afterwards(self, tag: str) -> None:
        # Whoever waits for the reply shall have it before this processor is busy with the fork.
        _yield()
        try:
            pid = self.family.fork(is_asked=True)
        except CannotForkError:
            return  # the parent misses the copy, and says so
        if pid == 0:
            self._become("checkpoint", tag)
        else:
            self._rehearse()

    def _rehearse(self) -> None:
        """Evaluate nothing at all, so that the next evaluation finds its memory ready.

        After a fork every page is shared, and the first one to write to a page pays for its copy. Nobody
        waits now; somebody will then.
        """
        if _gettrace() is not None or _getprofile() is not None:
            return  # user code would watch, and nothing was asked for
        # The whole way, not the short ones: the next evaluation may have to go it.
        self._session.unsettle()
        with suppress(BaseException):  # whatever user code has broken shows up where somebody sees it
            encode(operations.evaluate(self._session, {"op": "eval", "code": "None\npass"}))

    def _become(self, role: str, tag: str | None, *, plain: bool = False) -> None:
        """Start the life of a copy: a connection of its own and nothing pending; `plain`, without init."""
        self._connection.close()
        if self._role == "zygote":
            self.family.stop_adopting()
            shield()
            self._household.move_in()
            self._session.begin()
            if not plain:
                self._household.run_init(self._session)
        self._session.loop.forget()
        self._session.unsettle()
        self._role = role
        try:
            self._connection = greet(self._address, role, tag)
        except OSError:
            _exit(2)

    def left_by_user_code(self) -> None:
        """Close the connection and leave the mirror, in a copy that user code forked."""
        self._connection.close()
        self._session.console.leave_mirror()


def _internal(error: BaseException) -> Reply:
    return {"type": "INTERNAL-ERROR", "message": f"{short_name(type(error))}: {message_of(error)}"}


def serve(options: Options, connection: Connection) -> None:
    """Serve as the zygote until the parent goes."""
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
