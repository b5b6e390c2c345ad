"""Describe a Python distribution and its parts by the files of its installation.

Only files are read: nothing is imported, and no finder of the user is asked.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from .anatomy import is_module
from .names import near
from .places import USERS, file_of, shown_file, tier_of
from .protocol import Request, RequestError, text
from .session import Reply, Session
from .words import Page

_modules = sys.modules
_listdir, _isfile, _isdir, _open = os.listdir, os.path.isfile, os.path.isdir, open
# Bytes of a file of metadata: the text of a long description included.
_LARGEST = 4 * 1024 * 1024
# Names told in one line, and distributions followed below one.
_TOLD = 40
_FOLLOWED = 500
_FOLDERS = (".dist-info", ".egg-info")
_split = re.compile(r"[-_.]+").sub
_required = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?").match


class Distribution(NamedTuple):
    """Where a distribution is installed: its folded name, the directory, the folder of its metadata."""

    name: str
    directory: str
    folder: str

    def read(self, name: str) -> str:
        """Return a file of the metadata; an egg may be one file only."""
        whole = f"{self.directory}/{self.folder}"
        return _read(whole) if _isfile(whole) and name == "PKG-INFO" else _read(f"{whole}/{name}")

    def fields(self) -> dict[str, list[str]]:
        """Return the fields of the metadata, up to the description."""
        found: dict[str, list[str]] = {}
        for line in (self.read("METADATA") or self.read("PKG-INFO")).splitlines():
            if not line.strip():
                break
            key, colon, value = line.partition(":")
            if colon and not line[0].isspace():
                found.setdefault(key.lower(), []).append(value.strip())
        return found


def describe_system(session: Session, request: Request) -> Reply:
    """Describe a distribution by its name or that of a module in it; else a module without one."""
    name = text(request, "system").strip()
    known = dict(_installed())
    wanted = known.get(_folded(name)) or _holding(name, known)
    page = Page()
    if wanted is not None:
        _add_distribution(page, wanted, known)
    elif not _add_module(page, session, name):
        raise RequestError(
            "ModuleNotFoundError",
            f"No distribution and no module on the path is called '{name[:100]}'.",
            near(name, [*known, *_tops(), *sys.stdlib_module_names]),
        )
    return {"ok": True, "text": page.end("lines"), "data": {"system": name}}


def _folded(name: str) -> str:
    return _split("-", name).lower()


def _read(file: str) -> str:
    try:
        with _open(file, "rb") as stream:
            return stream.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _folders() -> Iterator[tuple[str, list[str]]]:
    for place in list(sys.path):
        if type(place) is str:
            try:
                yield place or ".", _listdir(place or ".")
            except (OSError, ValueError):
                continue


def _installed() -> Iterator[tuple[str, Distribution]]:
    """Yield every distribution on the path. The first of a name counts, so the last are yielded first."""
    for place, entries in reversed(list(_folders())):
        for entry in sorted(entries):
            if entry.endswith(_FOLDERS):
                name = _folded(entry.rpartition(".")[0].partition("-")[0])
                yield name, Distribution(name, place, entry)


def _holding(name: str, known: dict[str, Distribution]) -> Distribution | None:
    """Return the distribution that installed a module of that name."""
    top = name.partition(".")[0]
    if not top.isidentifier():
        return None
    return next((each for each in known.values() if top in _top_names(each)), None)


def _top_names(each: Distribution) -> list[str]:
    declared = each.read("top_level.txt").split()
    if declared:
        return declared
    found: dict[str, None] = {}
    for file in _files(each):
        first, slash, _rest = file.partition("/")
        stem = first if slash else first.partition(".")[0]
        if stem.isidentifier() and (slash or first.endswith((".py", ".so"))):
            found[stem] = None
    return [stem for stem in found if stem != "__pycache__"] or _editable_names(each)


def _editable_names(each: Distribution) -> list[str]:
    """Return the modules in the directory that an editable installation points to."""
    place = _origin(each)
    for root in (f"{place}/src", place):
        if place and _isdir(root):
            return [entry for entry in sorted(_listdir(root)) if _isfile(f"{root}/{entry}/__init__.py")]
    return []


def _files(each: Distribution) -> list[str]:
    return [line.partition(",")[0].strip('"') for line in each.read("RECORD").splitlines() if line]


def _origin(each: Distribution) -> str:
    """Return the directory that an editable installation points to, or nothing."""
    try:
        found = json.loads(each.read("direct_url.json") or "{}")
    except ValueError:
        return ""
    url, info = found.get("url", ""), found.get("dir_info", {})
    return url.removeprefix("file://") if url.startswith("file://") and info.get("editable") else ""


# A distribution


def _add_distribution(page: Page, each: Distribution, known: dict[str, Distribution]) -> None:
    fields = each.fields()

    def first(*names: str) -> str:
        return next((fields[name][0] for name in names if fields.get(name)), "")

    origin = _origin(each)
    where = f"editable, from {shown_file(origin)}" if origin else f"in {shown_file(each.directory)}"
    page.add(
        f"{first('name') or each.name}: distribution, version {first('version') or '?'}, installed {where}"
    )
    page.add(first("summary"))
    author = first("author", "author-email", "maintainer", "maintainer-email")
    facts = [("author", author), ("license", first("license-expression", "license")[:100])]
    facts += [("Python", first("requires-python")), ("home", first("home-page", "project-url"))]
    page.add(", ".join(f"{word} {value}" for word, value in facts if value))
    for line in _requirement_lines(fields.get("requires-dist", []), known):
        page.add(line)
    _add_contents(page, each)


def _add_contents(page: Page, each: Distribution) -> None:
    names = _top_names(each)
    told = [name if name in _modules else f"{name} (not loaded)" for name in names]
    page.add(f"Modules: {_listed(told) or 'none'}")
    points = [line.strip() for line in each.read("entry_points.txt").splitlines() if line.strip()]
    if points:
        page.add(f"Entry points: {_listed(points)}")
    files = [file for file in _files(each) if not file.startswith("..") and ".dist-info/" not in file]
    sources = [file for file in files if "__pycache__" not in file]
    if sources:
        page.add(f"Files ({len(sources)}): {_listed(sources)}")


def _requirement_lines(lines: list[str], known: dict[str, Distribution]) -> Iterator[str]:
    needed: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in lines:
        match = _required(line)
        if match is None:
            continue
        name, wanted, marker = match[1], (match[3] or "").strip(), match[4] or ""
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if extra is not None:
            extras.setdefault(extra[1], []).append(name)
        else:
            condition = f" [{marker.strip('; ')}]" if marker else ""
            needed.append(f"{name}{wanted and ' ' + wanted}{_state(name, known)}{condition}")
    yield f"Requires: {_listed(needed) or 'nothing'}"
    below = _below([_folded(_required(each)[1]) for each in needed], known)  # type: ignore[index]  # begins with a name
    if below:
        yield f"and these: {_listed(below)}"
    if extras:
        yield "Extras: " + "; ".join(f"{extra} ({', '.join(names[:10])})" for extra, names in extras.items())


def _state(name: str, known: dict[str, Distribution]) -> str:
    each = known.get(_folded(name))
    if each is None:
        return " (not installed)"
    version = each.fields().get("version", ["?"])[0]
    return f" ({version} is installed)"


def _below(names: list[str], known: dict[str, Distribution]) -> list[str]:
    """Return the requirements of the named distributions, recursively."""
    seen = dict.fromkeys(names)
    waiting = list(names)
    while waiting and len(seen) < _FOLLOWED:
        each = known.get(waiting.pop())
        for line in each.fields().get("requires-dist", []) if each is not None else ():
            match = _required(line)
            if match is not None and "extra" not in (match[4] or "") and _folded(match[1]) not in seen:
                seen[_folded(match[1])] = None
                waiting.append(_folded(match[1]))
    return sorted(name for name in seen if name not in names)


def _listed(names: list[str]) -> str:
    more = f", … {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return ", ".join(names[:_TOLD]) + more


# A module that no distribution has


def _tops() -> Iterator[str]:
    """Give the names of the modules and packages on the path."""
    for place, entries in _folders():
        for entry in entries:
            stem = entry.removesuffix(".py")
            if stem.isidentifier() and (entry.endswith(".py") or _isfile(f"{place}/{entry}/__init__.py")):
                yield stem


def _add_module(page: Page, session: Session, name: str) -> bool:
    module = session.module(name)
    file = file_of(module) if is_module(module) else file_on_path(name)
    is_standard = name.partition(".")[0] in sys.stdlib_module_names
    if module is None and not file and not is_standard:
        return False
    version = ".".join(map(str, sys.version_info[:3]))
    owner = f"of the standard library of Python {version}" if is_standard else "of no distribution"
    if module is not None and tier_of(name) == USERS:
        owner = "of the project, which is not installed"
    state = "loaded" if module is not None else "not loaded"
    word = "package" if file.endswith("__init__.py") else "module"
    page.add(f"{name}: {word} {owner}, {state}{', ' + shown_file(file) if file else ', built in'}")
    if file.endswith("__init__.py"):
        inner = sorted(
            entry.removesuffix(".py")
            for entry in _listdir(file.rpartition("/")[0])
            if entry.endswith(".py") and entry != "__init__.py"
        )
        page.add(f"Submodules: {_listed(inner) or 'none'}")
    return True


def file_on_path(name: str) -> str:
    """Return the file from which a module of that name would be loaded, or nothing. No finder is asked."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return ""
    for place in list(sys.path):
        if type(place) is str:
            base = "/".join([place or ".", *parts])
            for file in (f"{base}/__init__.py", f"{base}.py"):
                if _isfile(file):
                    return file
    return ""
