"""Take back what the last call bound, in the modules and classes themselves.

This is the way back where no copy of the process can be made. It knows names; what a call changed inside
objects, in files or elsewhere stays, and the reply says so.
"""

from types import ModuleType
from typing import Any

from .anatomy import MISSING, class_space, is_class, is_module, raw_space
from .evaluation import Run
from .journal import CALLS, Binding, Step
from .requests import Request, RequestError
from .session import Reply, Session

_bind, _unbind = type.__setattr__, type.__delattr__
_TOLD = 10
_NOTHING = (
    f"There is no call to take back: of the last {CALLS} calls that may have changed something "
    "none is left. Definitions made earlier can be made again."
)


class Return:
    """One taking back."""

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
            # The old module is there again; its file says something else.
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
    """Take back the names that the last call bound; each time one call further back."""
    journal = session.definitions.journal
    step = journal.pop()
    if step is None:
        raise RequestError("NothingToUndo", _NOTHING)
    way = Return(step, session)
    reply, _run = session.perform(way.run, session.main, {**request, "id": None})
    reply.pop("forms")
    reply.pop("changed", None)
    if way.changed:
        reply["changed"] = way.changed
    reply["notes"] = way.notes
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
