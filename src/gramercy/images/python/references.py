"""The code that calls a function or uses a variable, read from the byte code of all loaded modules.

A use is exact when names lead to the very object, and by name when only an attribute's name is the same.
Modules are read from the files they were loaded from, so that the bodies of modules and classes count too.
Evaluated code is read from its functions. No code runs.
"""

import builtins
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from .anatomy import (
    ATOMS,
    MISSING,
    WRAPPERS,
    attribute,
    class_name,
    class_space,
    code_file,
    code_name,
    function_name,
    is_class,
    is_module,
    kinds,
    module_space,
    mro_of,
    raw_space,
)
from .codes import (
    ATTRIBUTE,
    CALL,
    CONSTANT,
    FROM,
    GLOBAL,
    IMPORT,
    LOCAL,
    NULL,
    SET_ATTRIBUTE,
    SET_GLOBAL,
    SET_LOCAL,
    SUPER,
    Step,
    Unit,
    line_at,
    steps,
)
from .corpus import Corpus, Loaded, Names, evaluated_units, shelf
from .names import Found, resolve
from .places import USERS, shown_file, tier_of
from .protocol import Request, RequestError, optional_text, text
from .session import Reply, Session
from .words import Page, folded, unwrapped, with_article

_modules = sys.modules
# Uses in the data of an answer; shown uses outside of the user's code; uses by name; lines of one use.
_SHOWN, _OTHERS, _BY_NAME, _LINES = 200, 25, 15, 5
# Characters of a file name that may be repeated.
_SHORT = 25
_CALLABLE = WRAPPERS | kinds(property, functools.cached_property, types.ClassMethodDescriptorType)
_WRAPPING = WRAPPERS | kinds(
    functools.partial,
    functools._lru_cache_wrapper,  # noqa: SLF001 - the type has no public name
    types.MethodType,
)
# The kinds of uses. The first of these in a definition is the most important.
_WAYS = ("calls", "sets", "reads", "decorates", "imports")
_NULL_FOLLOWS = sys.version_info >= (3, 13)
_corpus = Corpus()
Row = dict[str, object]
Space = dict[str, object]


class Self(NamedTuple):
    """The meaning of a method's first argument: an instance of the class, or the result of `super()`."""

    cls: type
    is_super: bool = False


class Hit(NamedTuple):
    """One use."""

    line: int
    is_exact: bool
    how: str


def who_calls(session: Session, request: Request) -> Reply:
    """List the code that calls a function, method or class."""
    found = resolve(session, text(request, "function"), optional_text(request, "package"))
    if not callable(found.value) and id(type(found.value)) not in _CALLABLE:
        kind = with_article(class_name(type(found.value)))
        raise RequestError("TypeError", f"{found.name} is not callable: it is {kind}, and has no callers.")
    return _report(found.name, "called by", _search(session, found, ("calls", "decorates", "reads")))


def who_references(session: Session, request: Request) -> Reply:
    """List the code that reads, sets, calls or imports what a name stands for."""
    found = resolve(session, text(request, "variable"), optional_text(request, "package"))
    return _report(found.name, "referenced by", _search(session, found, _WAYS))


class Target:
    """The target of a search, in all its forms."""

    def __init__(self, found: Found) -> None:
        self.value, self.leaf = found.value, found.leaf
        self.inner = unwrapped(found.value)
        self.owner: type | None = found.owner if is_class(found.owner) else None  # type: ignore[assignment]  # a class
        self.home: object = found.owner if is_module(found.owner) else MISSING
        self.names = {found.leaf}
        if type(self.inner) is types.FunctionType:
            self.names.add(function_name(self.inner))
        # Small numbers, strings and None are shared: identity proves nothing.
        self._is_common = id(type(self.value)) in ATOMS or type(self.value) is tuple
        self._maker = self.owner if self.leaf in ("__init__", "__new__") else None
        self.is_definition = is_class(self.value) or type(self.inner) is types.FunctionType
        if self._maker is not None:
            self.names.add(class_name(self._maker).rpartition(".")[2])

    def is_met(self, thing: object) -> bool:
        """Return whether the thing is the target, or wraps the same function."""
        if thing is MISSING or self._is_common:
            return False
        if thing is self.value or thing is self.inner or (thing is self._maker and thing is not None):
            return True
        if id(type(thing)) in _WRAPPING or (type(thing) is types.FunctionType and thing.__dict__):
            return unwrapped(thing) is self.inner
        return False

    def is_in(self, names: Names) -> bool:
        """Return whether a module may hold it."""
        return id(self.value) in names.held or id(self.inner) in names.held

    def aliases(self, names: Names) -> set[str]:
        """Return the names under which a module holds it."""
        found = {*names.held.get(id(self.value), ()), *names.held.get(id(self.inner), ())}
        return {name for name in found if self.is_met(names.space[name])}

    def is_at(self, space: Space, name: object) -> bool:
        """Return whether the name in this namespace is the very variable in question."""
        return name == self.leaf and self.home is not MISSING and self._space() is space

    def _space(self) -> object:
        return _raw(self.home)


def _raw(module: object) -> object:
    return vars(types.ModuleType)["__dict__"].__get__(module)


class Trace:
    """One pass through a unit of code, which follows globals, imports, `self` and attributes."""

    def __init__(self, target: Target, module: object, space: Space, aliases: set[str]) -> None:
        self._target, self._module, self._space, self._aliases = target, module, space, aliases
        self._home = _raw(module)
        self._is_deep = False
        # The meanings of imports in the body of the module, also in branches that were not taken.
        self._imports: Space = {}
        self.hits: list[Hit] = []

    def run(self, unit: Unit, cls: object) -> list[Hit]:
        """Return the uses in the unit. The class is the one whose method or body it is, if any."""
        self.hits = []
        # Code inside of the body of a class or module is a separate unit.
        self._is_deep = not unit.is_body
        receiver = _receiver(unit, cls)
        known: Space = {receiver: Self(cls)} if receiver else {}  # type: ignore[arg-type]  # a class
        self._walk(unit.code, known, cls if unit.is_body else None)
        return self.hits

    def _walk(self, code: types.CodeType, known: Space, body: object) -> None:
        state = _State(known, body)
        todo = list(steps(code))
        for place, step in enumerate(todo):
            hit = self._step(step, state)
            if hit is not None:
                following = todo[place + 1] if place + 1 < len(todo) else None
                how = hit if hit in ("sets", "imports") else _how(step, following, state)
                self.hits.append(Hit(line_at(code, step.place), hit != "?", how))
            state.after(step)
        for part in code.co_consts if self._is_deep else ():
            if type(part) is types.CodeType:
                inner = {name: value for name, value in state.known.items() if name in part.co_freevars}
                self._walk(part, inner, None)

    def _step(self, step: Step, state: "_State") -> str | None:
        """Process one step. Return how it uses the target, `?` where only its name matches."""
        kind, name = step.kind, str(step.name)
        if kind == GLOBAL:
            return self._load(name, state)
        if kind == LOCAL:
            state.holder = state.known.get(name, MISSING)
            return "" if self._target.is_met(state.holder) else None
        if kind == SET_GLOBAL:
            return self._store(name, state)
        if kind in (ATTRIBUTE, SET_ATTRIBUTE, SUPER):
            return self._attribute(kind, name, state)
        if kind == IMPORT:
            state.imported = state.holder = self._import(name, state)
        elif kind == FROM:
            state.holder = _member(state.imported, name)
            if self._is_the_one(state.imported, name) or self._target.is_met(state.holder):
                return "imports"
        return None

    def _load(self, name: str, state: "_State") -> str | None:
        own = class_space(state.body).get(name, MISSING) if is_class(state.body) else MISSING  # type: ignore[arg-type]  # a class
        if own is not MISSING:
            state.holder = own
            return "" if self._target.is_met(own) else None
        value = self._space.get(name, vars(builtins).get(name, MISSING))
        state.holder = self._imports.get(name, MISSING) if value is MISSING else value
        is_named = self._target.is_at(self._home, name) or name in self._aliases  # type: ignore[arg-type]  # a dict
        return "" if is_named or self._target.is_met(state.holder) else None

    def _store(self, name: str, state: "_State") -> str | None:
        if self._is_the_one(state.imported, state.taken):
            self._aliases.add(name)
        if state.imported is not MISSING and state.holder is not MISSING:
            self._imports[name] = state.holder
        is_here = self._target.is_at(self._home, name) and not is_class(state.body)  # type: ignore[arg-type]  # a dict
        return "sets" if is_here and not self._target.is_definition and not state.taken else None

    def _is_the_one(self, module: object, name: str) -> bool:
        return is_module(module) and self._target.is_at(_raw(module), name)  # type: ignore[arg-type]  # a dict

    def _attribute(self, kind: int, name: str, state: "_State") -> str | None:
        before = state.holder
        if kind == SUPER and type(before) is Self:
            before = Self(before.cls, is_super=True)
        state.holder = _member(before, name)
        if self._is_the_one(before, name) or self._target.is_met(state.holder):
            return "sets" if kind == SET_ATTRIBUTE else ""
        if name != self._target.leaf or self._target.owner is None:
            return None
        if before is MISSING or (state.holder is MISSING and type(before) is not Self):
            return "?"
        # A subclass may have replaced the class's own attribute by the target.
        return "?" if type(before) is Self and _is_below(self._target.owner, before.cls) else None

    def _import(self, name: str, state: "_State") -> object:
        """Return the module of an import statement: the last one of the path where names are imported."""
        level, names = [*state.constants, 0, None][:2] if len(state.constants) > 1 else (0, None)
        full = name
        if type(level) is int and level > 0:
            package = self._space.get("__package__")
            parts = package.split(".") if type(package) is str and package else []
            base = ".".join(parts[: len(parts) - level + 1])
            full = f"{base}.{name}" if base and name else base or name
        found = _modules.get(full if names else full.partition(".")[0])
        state.path = full
        return found if is_module(found) else MISSING


class _State:
    """The known facts at one place of a trace."""

    def __init__(self, known: Space, body: object) -> None:
        self.known, self.body = dict(known), body
        self.holder: object = MISSING
        self.imported: object = MISSING
        self.path = ""
        self.taken = ""
        self.null = 0
        # Whether the arguments of `super(…)` are being loaded.
        self.is_super = False
        self.constants: list[object] = []

    def after(self, step: Step) -> None:
        """Drop the facts that the step has used."""
        kind = step.kind
        if kind == SET_LOCAL:
            name = str(step.name)
            if self.holder is not MISSING and self.imported is not MISSING:
                self.known[name] = self.holder
            elif type(self.known.get(name)) is not Self:
                self.known.pop(name, None)
        if kind == CONSTANT:
            self.constants = [*self.constants[-1:], step.name]
        # 1 right after the mark of a call, 2 while the called function is being loaded, 3 while it is loaded
        # from the result of another call, as in `super().name(*rest)`.
        if kind in (GLOBAL, LOCAL):
            self.null = 3 if self.null == 1 and step.is_call else 2 if self.null == 1 or step.is_call else 0
        elif kind != ATTRIBUTE:
            self.null = int(kind == NULL) or (3 if kind == CALL and self.null > 2 else 0)  # noqa: PLR2004 - see above
        self.taken = str(step.name) if kind == FROM else ""
        if kind == CALL:
            self.holder = self._called()
        elif kind not in (GLOBAL, LOCAL, ATTRIBUTE, SUPER, IMPORT, FROM, NULL):
            self.holder = MISSING
            if kind not in (SET_LOCAL, SET_GLOBAL):
                self.imported = MISSING
        self.is_super = self.holder is super or (self.is_super and kind in (GLOBAL, LOCAL))

    def _called(self) -> object:
        """Return the known value of a call: only that of `super()`."""
        if type(self.holder) is Self and self.holder.is_super:
            return self.holder  # 3.11 has two instructions for a call
        owner = next((each for each in self.known.values() if type(each) is Self), None)
        return Self(owner.cls, is_super=True) if self.is_super and owner is not None else MISSING


def _how(step: Step, following: Step | None, state: _State) -> str:
    if step.kind == SET_ATTRIBUTE:
        return "sets"
    if following is not None and following.kind in (ATTRIBUTE, SET_ATTRIBUTE):
        return "reads"
    if step.is_call or (following is not None and following.kind == NULL and _NULL_FOLLOWS):
        return "calls"
    if (state.null > 1 if step.kind == ATTRIBUTE else state.null == 1) and not _NULL_FOLLOWS:
        return "calls"
    code = following.name if following is not None and following.kind == CONSTANT else None
    is_decorator = type(code) is types.CodeType and not code_name(code).startswith("<")
    return "decorates" if is_decorator else "reads"


def _member(holder: object, name: str) -> object:
    """Return the target of an attribute, without running code of the object."""
    if holder is MISSING:
        return MISSING
    if type(holder) is Self:
        bases = mro_of(holder.cls)[1:] if holder.is_super else mro_of(holder.cls)
        return next((class_space(base)[name] for base in bases if name in class_space(base)), MISSING)
    if is_module(holder):
        found = module_space(holder).get(name, MISSING)
        return found if found is not MISSING else _submodule(holder, name)
    return attribute(holder, name)


def _submodule(module: object, name: str) -> object:
    home = module_space(module).get("__name__")
    found = _modules.get(f"{home}.{name}") if type(home) is str else None
    return found if is_module(found) else MISSING


def _is_below(cls: type, base: type) -> bool:
    return any(each is base for each in mro_of(cls))


def _receiver(unit: Unit, cls: object) -> str:
    """Return the name of the first argument of a method, or nothing."""
    if not is_class(cls) or unit.is_body or not unit.code.co_argcount:
        return ""
    held = class_space(cls).get(code_name(unit.code))  # type: ignore[arg-type]  # seen to be a class
    is_static = type(held) is staticmethod and code_name(unit.code) != "__new__"
    return "" if is_static else unit.code.co_varnames[0]


def _search(session: Session, found: Found, ways: tuple[str, ...]) -> list[Row]:
    """Return the definitions that use the target in one of these ways."""
    target = Target(found)
    rows: dict[tuple[str, str], tuple[Unit, list[Hit]]] = {}
    modules = list(_loaded(session))
    aliases = {
        name: target.aliases(_corpus.sure(name, module, names))
        for name, module, names in modules
        if target.is_in(names)
    }
    # Code may use it through a module by a name that another module gave it.
    inner = id(target.inner)
    renamed = [names.renamed[inner] for _name, _module, names in modules if inner in names.renamed]
    everywhere = target.names.union(*aliases.values(), *renamed)
    for name, module, known in modules:
        if _corpus.is_without(name, known, everywhere):
            continue
        names, own, wanted = _corpus.sure(name, module, known), aliases.get(name, set()), set(everywhere)
        trace = Trace(target, module, names.space, own)
        for unit in _units(session, name, module, names, wanted):
            if not wanted.isdisjoint(unit.names):
                hits = [hit for hit in trace.run(unit, _class_of(unit, name, names.space)) if hit.how in ways]
                if hits:
                    # One name may be defined twice, in both branches of a condition.
                    rows.setdefault((unit.label, code_file(unit.code)), (unit, []))[1].extend(hits)
                wanted |= own
    return [_row(unit, hits) for unit, hits in rows.values()]


def _row(unit: Unit, hits: list[Hit]) -> Row:
    exact = [hit for hit in hits if hit.is_exact] or hits
    row: Row = {"name": unit.label, "file": code_file(unit.code), "line": exact[0].line}
    row["lines"] = sorted({hit.line for hit in exact})
    ways = sorted({hit.how for hit in exact}, key=_WAYS.index)
    match = "exact" if exact[0].is_exact else "by-name"
    return {**row, "match": match, "how": ways[0], "ways": ways}


def _class_of(unit: Unit, module: str, space: Space) -> object:
    """Return the class whose body, or whose method, a unit is; None where it is neither."""
    path = unit.label[len(module) + 1 :].split(".")
    path = path if unit.is_body else path[:-1]
    if not path or not path[0]:
        return None
    found: object = space.get(path[0], MISSING)
    for part in path[1:]:
        found = class_space(found).get(part, MISSING) if is_class(found) else MISSING  # type: ignore[arg-type]  # a class
    return found if is_class(found) else None


def _loaded(session: Session) -> Iterator[tuple[str, object, Names]]:
    """Yield every module with its names, once, though some are loaded under two names."""
    seen: set[int] = set()
    modules = shelf.modules(session)
    if modules[0].module is not session.main:
        modules.insert(0, Loaded("__main__", session.main, raw_space(session.main), USERS, ""))
    for name, module, names in _corpus.read(modules):
        if id(module) not in seen:
            own = names.space.get("__name__")
            if type(own) is not str or own == name or _modules.get(own) is not module:
                seen.add(id(module))
                yield name, module, names


def _units(session: Session, name: str, module: object, known: Names, wanted: set[str]) -> Iterable[Unit]:
    """Return the code of a module: from its file, else from the functions that it holds."""
    file = known.space.get("__file__")
    source = file if type(file) is str and name != "__main__" else ""
    found = _corpus.units(name, module, source, session.definitions.origins)
    if found is not None:
        units, names = found
        _corpus.note(name, known, names)
        return [] if wanted.isdisjoint(names) else units
    is_compiled = source.endswith(".so") or name in sys.builtin_module_names
    if is_compiled:
        _corpus.note(name, known, frozenset())
        return []
    return evaluated_units(name, known.space)


def _report(name: str, verb: str, found: list[Row]) -> Reply:
    found.sort(key=lambda row: (row["match"] != "exact", tier_of(_home(row)), str(row["name"])))
    exact = [row for row in found if row["match"] == "exact"]
    by_name = found[len(exact) :]
    page = Page()
    count = f"{len(exact)} definition{'' if len(exact) == 1 else 's'}"
    page.add(f"{name} is {verb} {count}:" if exact else f"{name} is not {verb} any code that was found.")
    usual = "calls" if verb == "called by" else "reads"
    _add(page, exact, _OTHERS, usual)
    if by_name:
        page.add(f"By name alone, on objects that are not known ({len(by_name)}):")
        _add(page, by_name, _BY_NAME, usual)
    page.add(
        f"Searched: {len(_modules)} loaded modules and the functions that were evaluated. Not seen: uses by C"
        " code, by getattr or eval, at the top level of an evaluation, in modules that are not loaded."
    )
    data = {"name": name, "found": found[:_SHOWN], "total": len(found)}
    return {"ok": True, "text": page.end("lines"), "data": data}


def _home(row: Row) -> str:
    """Return the module of a use."""
    label = str(row["name"])
    while label and label not in _modules:
        label = label.rpartition(".")[0]
    return label or "__main__"


def _add(page: Page, rows: list[Row], others: int, usual: str) -> None:
    """Add the user's uses, the first of others, and the number of the rest by module."""
    rest: dict[str, int] = {}
    room = _SHOWN // 2
    shown: list[Row] = []
    for row in rows:
        is_users = tier_of(_home(row)) == USERS
        others -= not is_users
        room -= is_users
        if (room if is_users else others) >= 0:
            shown.append(row)
        else:
            rest[_home(row)] = rest.get(_home(row), 0) + 1
    for file, group in groupby(shown, key=lambda row: str(row["file"])):
        _add_file(page, shown_file(file), list(group), usual)
    if rest:
        noun = "module" if len(rest) == 1 else "modules"
        page.add(f"  … {sum(rest.values())} more in {len(rest)} {noun} ({folded(rest)})")


def _add_file(page: Page, file: str, rows: list[Row], usual: str) -> None:
    """Add the uses in one file. Its name is shown once where it would be long and frequent."""
    is_once = len(rows) > 1 and len(file) > _SHORT
    if is_once:
        page.add(f"  in {file}:")
    for row in rows:
        numbers = row["lines"] if type(row["lines"]) is list else []
        lines = ", ".join(map(str, numbers[:_LINES])) + (", …" if len(numbers) > _LINES else "")
        ways: list[str] = row["ways"]  # type: ignore[assignment]  # a row of ours
        how = "" if ways == [usual] else f"  [{', '.join(ways)}]"
        place = f"    {row['name']} :{lines}" if is_once else f"  {row['name']} at {file}:{lines}"
        page.add(place + how)
