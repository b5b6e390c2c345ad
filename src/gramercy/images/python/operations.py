"""The operations on code: evaluate, compile, expand, undo definitions.

Each takes the session and a request and returns a reply. None of them knows frames or processes.
"""

import ast
import builtins
import dis
import io
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from .anatomy import MISSING, class_space, is_class, is_module, raw_space
from .diagnostics import CollectedWarnings, Sources, failure
from .evaluation import Run
from .journal import CALLS, Binding, Step
from .looks import only_reads
from .names import unknown_module
from .printing import is_trivial, shorten
from .protocol import Request, RequestError, flag, text
from .session import Reply, Session
from .systems import hint_at_outside

if TYPE_CHECKING:
    from .profiling import Probe

_LOADS = frozenset(("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_STORES = frozenset(("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"))
_IMPLICIT = {
    *("__name__", "__file__", "__doc__", "__module__", "__qualname__", "__class__"),
    *("__annotations__", "__builtins__", "__spec__", "__loader__", "__package__"),
}
# Characters of an expansion and of its instructions, so that the answer fits the reader's context.
_TEXT = 50_000
_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_bind, _unbind = type.__setattr__, type.__delattr__
# Names that could not be restored, in one message. More would not help.
_TOLD = 10
_NOTHING = (
    f"There is no call to take back: of the last {CALLS} calls that may have changed something "
    "none is left. Definitions made earlier can be made again."
)


def evaluate(session: Session, request: Reply, probe: "Probe | None" = None) -> Reply:
    """Evaluate code form by form and return every form's values. A probe measures it."""
    code, before = text(request, "code"), session.current
    module = enter(session, request)
    space = raw_space(module)

    def work(run: Run) -> None:
        released = _release(session, code)
        try:
            if probe is None:
                session.evaluator.run(code, session.current, space, run)
            else:
                # Showing a picture takes time too, which does not count as the code's.
                probe.around(lambda: session.evaluator.run(code, session.current, space, run))
        finally:
            # The finalizer of a released value may have run, and another module stays the current one.
            run.pure = run.pure and not released and session.current == before and probe is None
            run.reads = not run.pure and only_reads(code)

    reply, run = session.perform(work, module, request)
    if not reply["ok"]:
        hint_at_outside(reply)
    add_objects(session, reply, run)
    if not run.last and reply["ok"]:
        reply["statement"] = True
    if run.pure and reply["ok"]:
        reply["unchanged"] = True
    elif run.reads and reply["ok"]:
        # An undo after an error reverts the failed call, so that call is not a look.
        reply["look"] = True
    return reply


def add_objects(session: Session, reply: Reply, run: Run) -> None:
    """Add the numbers of the values, and the lengths of cut ones, which can be read further."""
    lengths = [one.length for one in run.printed]
    objects = [
        session.table.number(value, always=length is not None)
        for value, length in zip(run.last, lengths, strict=True)
    ]
    if any(objects):
        reply["objects"] = objects
    if any(length is not None for length in lengths):
        reply["lengths"] = lengths
    for number, one in zip(objects, run.printed, strict=True):
        if number is not None and one.kept:
            session.table.keep_text(number, one.kept, one.length)


def _release(session: Session, code: str) -> bool:
    """Release a large value before the last one, if the code does not use it. Return whether it was done.

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
        check(code, name, session.sources, session.warnings, space)
        session.evaluator.run(code, session.current, space, run)

    reply, _run = session.perform(work, module, request)
    del reply["forms"]
    if "warnings" in reply:
        reply["warnings"] = _without_repetition(reply["warnings"])
    return reply


def _without_repetition(found: object) -> list[object]:
    """Drop messages that the compiler issued twice: once when checking, once when compiling the form."""
    seen: list[object] = []
    for record in found if type(found) is list else []:
        if record not in seen:
            seen.append(record)
    return seen


def enter(session: Session, request: Reply) -> ModuleType:
    """Make the module of the request the current one. It stays so."""
    name = request.get("package") or session.current
    module = session.module(name) if type(name) is str else None
    if module is None:
        raise unknown_module(str(name))
    session.definitions.follow(str(name), module)
    session.current = str(name)
    return module


def check(
    code: str, name: str, sources: Sources, collected: CollectedWarnings, known: dict[str, object]
) -> None:
    """Warn about names that neither the code, the module nor Python defines."""
    compiled = compile(code, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if _has_star_import(code, name):
        return
    stored = {step.argval for unit in _units(compiled) for step in _steps(unit) if step.opname in _STORES}
    defined = stored | _IMPLICIT | set(known) | set(vars(builtins))
    for missing, line in _missing(compiled, defined):
        collected.add(
            "warning",
            "UndefinedName",
            f"undefined name '{missing}'",
            line=line,
            form=sources.line(name, line),
        )


def _has_star_import(code: str, name: str) -> bool:
    tree = compile(code, name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    imports = [node for node in ast.walk(tree) if type(node) is ast.ImportFrom]
    return any(alias.name == "*" for node in imports for alias in node.names)


def _missing(compiled: CodeType, defined: set[str]) -> Iterator[tuple[str, int | None]]:
    seen = set()
    for unit in _units(compiled):
        for step in _steps(unit):
            if step.opname in _LOADS and step.argval not in defined and step.argval not in seen:
                seen.add(step.argval)
                yield step.argval, step.positions.lineno if step.positions is not None else None


def _steps(code: CodeType) -> Iterator[dis.Instruction]:
    return dis.get_instructions(code)


def _units(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _units(constant)


def expand(session: Session, request: Request) -> Reply:
    """Return the form with its sugar normalised; in full, also its instructions."""
    form = text(request, "form")
    try:
        tree: ast.Module = compile(form, "<form>", "exec", _FLAGS, dont_inherit=True)
        source = ast.unparse(tree)
        instructions = _instructions(tree) if flag(request, "full") else None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        record = failure(error, 0, session.sources)
        raise RequestError(str(record["type"]), str(record["message"])) from None
    shown = source if instructions is None else f"{source}\n\n{instructions}"
    data = {"expansion": shorten(source, _TEXT), "instructions": instructions}
    return {"ok": True, "text": shorten(shown, _TEXT), "data": data}


def _instructions(tree: ast.Module) -> str:
    code = compile(tree, "<form>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    written = io.StringIO()
    dis.dis(code, file=written)
    return shorten(written.getvalue(), _TEXT)


class Undo:
    """One undo."""

    def __init__(self, step: Step, session: Session) -> None:
        self._step = step
        self._session = session
        self.changed: list[dict[str, object]] = []
        self.notes: list[str] = []

    def run(self, _run: Run) -> None:
        """Put every name back, the last one first."""
        for binding in reversed(self._step.bindings):
            self._put_back(binding)
        for name in self._step.reloaded:
            # The old module is restored, but its file has another text.
            self._session.definitions.origins.forget(name)
        self._tell_limits()

    def _put_back(self, binding: Binding) -> None:
        owner = self._owner(binding)
        if owner is None:
            self.notes.append(f"{binding.path}: what it belonged to has gone.")
            return
        now = _space(owner).get(binding.key, MISSING)
        if (None if now is MISSING else id(now)) != binding.now:
            self.notes.append(f"{binding.path} has been bound again since, and is left as it is.")
            return
        old = MISSING if binding.old is None else binding.old.value()
        if binding.old is not None and old is MISSING:
            self.notes.append(f"{binding.path}: its old value is not there any more, {binding.old.reason}.")
            return
        _restore(owner, binding.key, old)
        change = "removed" if old is MISSING else "restored"
        self.changed.append({"kind": binding.kind, "name": binding.path, "change": change})

    def _owner(self, binding: Binding) -> object:
        if type(binding.owner) is str:
            return self._session.module(binding.owner)
        follow: Any = binding.owner
        return follow()  # a weak reference to a class

    def _tell_limits(self) -> None:
        self.changed.reverse()
        if len(self.notes) > _TOLD:
            self.notes[_TOLD:] = [f"… {len(self.notes) - _TOLD} more names could not be put back."]
        if not self._step.bindings:
            self.notes.append("The last call bound no name.")
        if self._step.modules or any(binding.kind == "import" for binding in self._step.bindings):
            self.notes.append("Modules that it imported stay loaded.")
        self.notes.append(
            "Objects that it changed in place stay changed, and so do files and all else outside."
        )


def undo_definitions(session: Session, request: Request) -> Reply:
    """Undo the bindings of the last call. Each time goes one call further back."""
    journal = session.definitions.journal
    step = journal.pop()
    if step is None:
        raise RequestError("NothingToUndo", _NOTHING)
    undo = Undo(step, session)
    reply, _run = session.perform(undo.run, session.main, {**request, "id": None})
    reply.pop("forms")
    reply.pop("changed", None)
    if undo.changed:
        reply["changed"] = undo.changed
    reply["notes"] = undo.notes
    return reply


def _space(owner: object) -> dict[str, object]:
    if is_module(owner):
        return raw_space(owner)
    return class_space(owner) if is_class(owner) else {}  # type: ignore[arg-type]  # seen to be one


def _restore(owner: object, key: str, old: object) -> None:
    if type(owner) is ModuleType or is_module(owner):
        space = raw_space(owner)
        if old is MISSING:
            space.pop(key, None)
        else:
            space[key] = old
    elif old is MISSING:
        _unbind(owner, key)
    else:
        _bind(owner, key, old)
