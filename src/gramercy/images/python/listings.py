"""List names: those that contain a text, those of a module, those that evaluations have defined.

The user's names come first, then those of libraries, then Python's own. Names that do not fit are counted by
module.
"""

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from .anatomy import (
    FUNCTIONS,
    MISSING,
    class_name,
    class_space,
    is_class,
    is_module,
    module_of,
    module_space,
    plain,
    raw_space,
)
from .classes import MACHINERY
from .corpus import Loaded, Texts, shelf
from .names import find_module
from .places import USERS, tier_of
from .printing import preview, shorten
from .protocol import Request, RequestError, count, flag, optional_text, text
from .session import Reply, Session
from .shapes import view_of
from .signatures import arglist
from .words import Page, coarse, folded, what_is

_modules = sys.modules
_listdir = os.listdir
# Matches unless more are requested, and at most; symbols of one module in the data of an answer.
_MATCHES = 50
_MOST = 1000
# Characters of a module's listing up to which argument lists are shown, and of one line of it.
_DETAILED = 6000
_LONGEST = 160
# Submodules that are listed by name.
_SUBMODULES = 60
_PLURAL = {"function": "functions", "variable": "variables", "class": "classes", "import": "imports"}
_EVERY_MODULE = frozenset(
    (
        *(
            "__name__",
            "__doc__",
            "__package__",
            "__loader__",
            "__spec__",
            "__path__",
            "__file__",
            "__cached__",
        ),
        *(
            "__builtins__",
            "__annotations__",
            "__annotate__",
            "__conditional_annotations__",
            "__warningregistry__",
        ),
    )
)
_texts = Texts()
_GROUPS = (("class", "Classes"), ("function", "Functions"), ("variable", "Values"), ("module", "Modules"))


class Match(NamedTuple):
    """A name that contains the pattern, and its holder. The order decides which comes first."""

    order: tuple[bool, int, int, int, str]
    module: str
    value: object
    owner: object = MISSING

    @property
    def name(self) -> str:
        """The full name."""
        return self.order[-1]


def apropos(session: Session, request: Request) -> Reply:
    """Find the names that contain the pattern, in one module or in all that are loaded."""
    pattern = text(request, "pattern")
    limit = count(request, "limit", _MATCHES, _MOST)
    package = optional_text(request, "package")
    found = _matches(session, pattern.strip().lower(), package)
    # By the order alone: values may define their own comparison.
    found.sort(key=lambda match: match.order)
    page = Page()
    rows = []
    for match in found[:limit]:
        word = what_is(match.value, match.owner)
        page.add(f"{match.name}  [{word}]")
        rows.append({"name": match.name, "kind": coarse(match.value, match.owner, word)})
    if not found:
        where = f"in {package}" if package is not None else f"in the {len(_modules)} modules that are loaded"
        page.add(f"No names contain '{pattern[:100]}' {where}.")
    rest: dict[str, int] = {}
    for match in found[min(limit, len(found)) - page.left_out :]:
        rest[match.module] = rest.get(match.module, 0) + 1
    way = "narrow the pattern" if package is not None else "give package to see one of them"
    hint = f"in {len(rest)} module{'' if len(rest) == 1 else 's'} ({folded(rest)}): {way}"
    answer = page.end(hint, more=max(len(found) - limit, 0))
    return {"ok": True, "text": answer, "data": {"matches": rows, "total": len(found)}}


def _matches(session: Session, pattern: str, package: str | None) -> list[Match]:
    """Return each name once: an imported function or class counts in its home module."""
    found: list[Match] = []
    best: dict[int, Match] = {}
    modules = [_only(session, package)] if package is not None else shelf.modules(session)
    named = _texts.holding(pattern, modules)
    for module in modules:
        if package is None and pattern in module.leaf and module.name != "__main__":
            found.append(_match(pattern, "", module.name, _modules.get(module.name), module.tier))
        if module.tier == USERS:
            found += _in_classes(pattern, module.name, plain(module.space))
        for name, value in named.get(module.name, ()):
            if _is_noise(name, pattern):
                continue
            if id(type(value)) in FUNCTIONS or is_class(value):
                known = best.get(id(value))
                if known is None or _distance(module.name, value) < _distance(known.module, value):
                    best[id(value)] = _match(pattern, module.name, name, value, module.tier)
            elif package is not None or not is_module(value):
                found.append(_match(pattern, module.name, name, value, module.tier))
    return [*found, *best.values()]


def _only(session: Session, package: str) -> Loaded:
    module = find_module(session, package)
    return Loaded(package, module, raw_space(module), tier_of(package), "")


def _is_noise(name: str, pattern: str) -> bool:
    return name.startswith("__") and name.endswith("__") and not pattern.startswith("_")


def _distance(module: str, value: object) -> tuple[bool, bool, int]:
    """Order the modules that hold a thing: a public package of its home, its home, others."""
    home = module_of(value)
    is_near = module == home or home.startswith(module + ".")
    return not is_near, module.startswith("_") and module != "__main__", len(module)


def _match(pattern: str, module: str, name: str, value: object, tier: int) -> Match:
    is_inner = "." in name
    leaf = (name.rpartition(".")[2] if is_inner else name).lower()
    rank = 0 if leaf == pattern else 1 if leaf.startswith(pattern) else 2
    full = f"{module}.{name}" if module else name
    is_hidden = (full.startswith("_") and module != "__main__") or "._" in full
    # A function of a module comes before a method of the same name.
    order = (tier != USERS, rank, tier, 2 * is_hidden + (is_inner and bool(module)), full)
    return Match(order, module or name, value)


def _in_classes(pattern: str, module: str, space: dict[str, object]) -> Iterator[Match]:
    """Give the members of the user's own classes that contain the pattern."""
    for name, cls in space.items():
        if is_class(cls) and module_of(cls) == module:
            for key, value in class_space(cls).items():  # type: ignore[arg-type]  # seen to be a class
                if pattern in key.lower() and not key.startswith("__") and key not in MACHINERY:
                    yield _match(pattern, module, f"{name}.{key}", value, USERS)._replace(owner=cls)


def package_symbols(session: Session, request: Request) -> Reply:
    """List a module's names: those it exports, or all of them."""
    name = text(request, "package")
    module = find_module(session, name)
    space = module_space(module)
    shown = sorted(space if flag(request, "include_internal") else exported_names(space))
    entries = [{"name": key, "kind": coarse(space[key])} for key in shown]
    page = Page()
    way = f" of {len(space)}: include_internal shows all" if len(shown) < len(space) else ""
    page.add(f"{name} has {len(shown)} {'exported names' if way else 'names'}{way}.")
    for line in _grouped(space, [key for key in shown if key not in _EVERY_MODULE]):
        page.add(line)
    inner = submodules(name, module)
    if inner:
        page.add(
            "Submodules: " + ", ".join(inner[:_SUBMODULES]) + (", …" if len(inner) > _SUBMODULES else "")
        )
    usual = [key for key in shown if key in _EVERY_MODULE]
    if usual:
        page.add("As in every module: " + " ".join(usual))
    data = {"package": name, "symbols": entries[:_MOST], "total": len(shown)}
    return {
        "ok": True,
        "text": page.end("lines: apropos_search with this package finds the rest"),
        "data": data,
    }


def exported_names(space: dict[str, object]) -> list[str]:
    """Return the names of `__all__`, else those without a leading underscore that are not modules."""
    declared = space.get("__all__")
    if type(declared) is list or type(declared) is tuple:
        return [key for key in declared if type(key) is str and key in space]
    return [key for key, value in space.items() if not key.startswith("_") and not is_module(value)]


def _grouped(space: dict[str, object], shown: list[str]) -> list[str]:
    """Return the names by kind: with arguments and values where that fits, else by name alone."""
    groups: dict[str, list[str]] = {}
    for key in shown:
        kind = coarse(space[key])
        groups.setdefault(kind if any(kind == known for known, _title in _GROUPS) else "variable", []).append(
            key
        )
    detailed = [
        line
        for kind, title in _GROUPS
        if kind in groups
        for line in (f"{title}:", *(f"  {_detail(key, space[key])}" for key in groups[kind][:_MOST]))
    ]
    if sum(map(len, detailed)) <= _DETAILED:
        return detailed
    return [
        line
        for kind, title in _GROUPS
        if kind in groups
        for line in (f"{title} ({len(groups[kind])}):", *_in_rows(groups[kind]))
    ]


def _in_rows(names: list[str]) -> Iterator[str]:
    row = ""
    for name in names:
        if row and len(row) + len(name) > 100:  # noqa: PLR2004 - characters of a row
            yield f"  {row},"
            row = ""
        row = f"{row}, {name}" if row else name
    yield f"  {row}"


def _detail(name: str, value: object) -> str:
    if is_module(value):
        return name
    if coarse(value) in ("class", "function"):
        return shorten(f"{name}{arglist(value) or ''}", _LONGEST)
    shown = preview(value, 80)
    is_bare = shown.startswith("<") and view_of(value) is None
    return f"{name}: {class_name(type(value))}" if is_bare else f"{name} = {shown}"


def submodules(name: str, module: object) -> list[str]:
    """Return the modules in a package, loaded or only present as files. Nothing is imported."""
    space = module_space(module)
    places = space.get("__path__")
    if type(places) is not list:
        return []
    prefix = name + "."
    found = {key[len(prefix) :] for key in list(_modules) if type(key) is str and key.startswith(prefix)}
    loaded = {key for key in found if "." not in key}
    files: set[str] = set()
    for place in places[:3]:
        try:
            files.update(
                entry.partition(".")[0] for entry in _listdir(place) if entry.endswith((".py", ".so"))
            )
        except (OSError, TypeError, ValueError):
            continue
    rest = sorted(key for key in files - loaded if key.isidentifier() and not key.startswith("_"))
    return [
        *sorted(key for key in loaded if not key.startswith("_")),
        *(f"{key} (not loaded)" for key in rest),
    ]


def definitions(session: Session, request: Request) -> Reply:
    """List the user's definitions that still exist."""
    wanted = optional_text(request, "kind")
    data: dict[str, list[dict[str, str]]] = {plural: [] for plural in (*_PLURAL.values(), "macros")}
    for kind, entries in session.definitions.listing().items():
        data[_PLURAL[kind]] = [_entry(kind, name, value) for name, value in entries]
    if wanted is not None:
        plural = wanted if wanted in data else _PLURAL.get(wanted, "")
        if plural not in data:
            known = ", ".join(data)
            raise RequestError("INVALID-REQUEST", f"No kind '{wanted}'. Expected one of {known}.", list(data))
        data = {plural: data[plural]}
    return {"ok": True, "text": _listing(data), "data": data}


def _entry(kind: str, name: str, value: object) -> dict[str, str]:
    if kind in ("function", "class"):
        return {"name": name, "arglist": arglist(value) or "(…)"}
    return {"name": name, "value": preview(value, 100)}


def _listing(data: dict[str, list[dict[str, str]]]) -> str:
    page = Page()
    for plural, entries in data.items():
        if entries:
            page.add(f"{plural}:")
        for entry in entries:
            page.add(f"  {entry['name']}{entry.get('arglist') or ' = ' + entry['value']}")
    return page.end("definitions: name a kind to see fewer") or "Nothing has been defined."
