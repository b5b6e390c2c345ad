"""The operations that run user code: eval, compile, load_system.

Each takes the session and a request and returns a reply; none of them knows frames or processes.
"""

import builtins
from types import ModuleType

from .anatomy import raw_space
from .compilation import check
from .evaluation import Run
from .looks import only_reads
from .names import unknown_module
from .printing import is_trivial
from .requests import text
from .session import Reply, Session
from .systems import hint_at_outside


def evaluate(session: Session, request: Reply) -> Reply:
    """Evaluate code form by form and return every form's values."""
    code, before = text(request, "code"), session.current
    module = enter(session, request)
    space = raw_space(module)

    def work(run: Run) -> None:
        released = _release(session, code)
        try:
            session.evaluator.run(code, session.current, space, run)
        finally:
            # What was released may have run code at its end, and another module stays the current one.
            run.pure = run.pure and not released and session.current == before
            run.reads = not run.pure and only_reads(code)

    reply, run = session.perform(work, module, request)
    if not reply["ok"]:
        hint_at_outside(reply)
    objects = [session.table.number(value) for value in run.last]
    if any(objects):
        reply["objects"] = objects
    if run.pure and reply["ok"]:
        reply["unchanged"] = True
    elif run.reads and reply["ok"]:
        # Whoever undoes after an error means the call that failed.
        reply["look"] = True
    return reply


def _release(session: Session, code: str) -> bool:
    """Let go of a big value before the last one, if the code has no use for it; tell whether it was done.

    Beside it and the last one a third would have no room.
    """
    space = vars(builtins)
    value = space.get("__")
    if is_trivial(value) or "__" in code or not session.table.is_big(value):
        return False
    del space["__"]
    return True


def compile_code(session: Session, request: Reply) -> Reply:
    """Compile code with every warning, run it so that its definitions take effect, return no values."""
    code = text(request, "code")
    module = enter(session, request)
    space = raw_space(module)

    def work(run: Run) -> None:
        name = session.sources.add(code)
        session.evaluator.parse(code, name, session.current)
        check(code, name, session.sources, session.cautions, space)
        session.evaluator.run(code, session.current, space, run)

    reply, _run = session.perform(work, module, request)
    del reply["forms"]
    if "warnings" in reply:
        reply["warnings"] = _without_repetition(reply["warnings"])
    return reply


def _without_repetition(found: object) -> list[object]:
    """Drop what the compiler said twice: once when checking, once when the form was compiled."""
    seen: list[object] = []
    for record in found if type(found) is list else []:
        if record not in seen:
            seen.append(record)
    return seen


def enter(session: Session, request: Reply) -> ModuleType:
    """Make the module the request names the current one; it stays so."""
    name = request.get("package") or session.current
    module = session.module(name) if type(name) is str else None
    if module is None:
        raise unknown_module(str(name))
    session.definitions.follow(str(name), module)
    session.current = str(name)
    return module
