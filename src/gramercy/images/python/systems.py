"""Import modules on request, and reload those whose source has changed, in place: all of them or none.

A reload runs the new source in the module itself, as `importlib.reload` does. It never uses a compiled file,
which knows only the second of an edit.
"""

import importlib
import importlib.util
import os
import pkgutil
import sys
import types
from contextlib import suppress
from importlib.machinery import FileFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from .anatomy import is_class, is_module, kinds, module_of, raw_space, short_name
from .definitions import is_users
from .evaluation import Run
from .names import near
from .origins import Graph, Origins, Source, source_of
from .protocol import Request, RequestError, text
from .session import Reply, Session

_modules = sys.modules
_exec, _compile = exec, compile
_unlink, _cached = os.unlink, importlib.util.cache_from_source
_DEFINED = kinds(types.FunctionType)
# Names in a note. The rest is counted.
_TOLD = 5
_import = importlib.import_module
_HOME = __file__.rpartition("/")[0] + "/"
_IMPORTLIB = importlib.__file__
# Directories of editable installs that the user has not granted.
not_granted: list[str] = []


class Reload:
    """One reload of everything that depends on a system's changed sources."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._before: dict[str, dict[str, object]] = {}
        self.names: list[str] = []
        self._passed_over: list[str] = []

    def run(self, system: str, *, anew: bool = False) -> None:
        """Reload the changed modules of the system, their imports, and the modules that import them.

        With `anew` it runs even if it has not changed.
        """
        changed = self._origins.changed()
        if not changed and not anew:
            return
        names = self._origins.names()
        graph = Graph(names)
        own = [name for name in names if name == system or name.startswith(system + ".")]
        concerned = graph.below([system] if anew else own) & set(changed)
        if anew:
            concerned.add(system)
        order = graph.ordered(graph.above(concerned)) if concerned else []
        try:
            for name in order:
                self._load(name, changed.get(name))
        except BaseException:
            self._take_back()
            raise
        self.names = order
        self._passed_over = sorted(set(changed) - set(order))

    def _load(self, name: str, source: Source | None) -> None:
        module: Any = _modules.get(name)
        source = source or source_of(module)
        if source is None or not is_module(module):
            return
        space = raw_space(module)
        code = _compiled(space, source)
        self._before[name] = dict(space)
        space.pop("__warningregistry__", None)
        with suppress(OSError, NotImplementedError):
            _unlink(_cached(source.file))
        _exec(code, space)
        self._origins.settle(name, source)

    def _take_back(self) -> None:
        """Restore every module, marked as not loaded from the current text of its file."""
        for name, before in self._before.items():
            space = raw_space(_modules.get(name)) if is_module(_modules.get(name)) else {}
            space.clear()
            space.update(before)
            self._origins.forget(name)

    def notes(self, main: dict[str, object]) -> list[str]:
        """Describe the limits of a reload: objects keep their classes, other names their values."""
        old, left = self._replaced()
        found = []
        classes = sorted({short_name(value) for value in old.values() if is_class(value)})  # type: ignore[arg-type]  # seen to be classes
        if classes:
            found.append(f"Objects made before keep their old class: {_listed(classes)}.")
        held = sorted(key for key, value in list(main.items()) if type(key) is str and id(value) in old)
        if held:
            found.append(f"Still the old ones in __main__: {_listed(held)}. Import them again.")
        if left:
            found.append(f"No longer in the source, but still defined: {_listed(left)}.")
        if self._passed_over:
            listed = _listed(self._passed_over)
            found.append(f"Not concerned, but their files have changed too: {listed}. Load them by name.")
        return found

    def _replaced(self) -> tuple[dict[int, object], list[str]]:
        """Return the replaced functions and classes, and the names of the rest."""
        found, left = {}, []
        for name in self.names:
            now = raw_space(_modules.get(name))
            for key, value in self._before.get(name, {}).items():
                if module_of(value) == name and (id(type(value)) in _DEFINED or is_class(value)):
                    if now.get(key) is value:
                        left.append(f"{name}.{key}")
                    else:
                        found[id(value)] = value
        return found, left


def _compiled(space: dict[str, object], source: Source) -> types.CodeType:
    """Compile the source by the module's own loader, which may treat it specially."""
    loader = getattr(space.get("__spec__"), "loader", None)
    make: Any = getattr(loader, "source_to_code", None)
    code: types.CodeType = (make or _compiled_plainly)(source.data, source.file)
    return code


def _compiled_plainly(data: bytes, file: str) -> types.CodeType:
    code: types.CodeType = _compile(data, file, "exec", dont_inherit=True)
    return code


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return ", ".join(names[:_TOLD]) + more


def add_path(directory: str) -> None:
    """Put a directory on the import path, and the directories in its .pth files.

    Lines of code in .pth files are not run: the zygote never runs user code.
    """
    home = Path(directory).absolute()
    _append(home)
    for file in sorted(home.glob("*.pth")):
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                _append(home / line.strip())


def _append(directory: Path) -> None:
    if str(directory) not in sys.path and directory.is_dir():
        sys.path.append(str(directory))


class Loading:
    """One request to load a system, and its result."""

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.module_name = name.replace("-", "_")
        self.module: object = None
        self.missing: str | None = None
        self.session = session
        self._reload = Reload(session.definitions.origins)

    def run(self, _run: Run) -> None:
        """Import the module, or reload its changed parts."""
        _see_new_files()
        before = set(sys.modules)
        try:
            self.module = self._imported()
            is_old = self._notes_old([name for name in list(sys.modules) if name not in before])
            if self.module_name in before or is_old:
                self._reload.run(self.module_name)
        except ImportError as error:
            self.missing = error.name if type(error.name) is str else None
            _tell_who_wanted(error, self.module_name)
            raise

    def _notes_old(self, names: list[str]) -> bool:
        """Note the sources of new modules. Return whether one of them came from an older source."""
        own = [name for name in names if is_module(sys.modules[name]) and is_users(sys.modules[name])]
        # A list, not any() of a generator: each module has to be noted.
        found = [self.session.definitions.origins.note(name, sys.modules[name]) for name in own]
        return any(found)

    def _imported(self) -> ModuleType:
        try:
            return _import(self.module_name)
        except ModuleNotFoundError as error:
            known_as = _import_name(self.name) if error.name == self.module_name else None
            if known_as is None:
                raise
        self.module_name = known_as
        return _import(known_as)

    def tell(self, reply: Reply) -> None:
        """Add the reloaded modules and further remarks to the reply."""
        notes = self._reload.notes(raw_space(self.session.main))
        if self.module_name != self.name.replace("-", "_"):
            notes.insert(0, f"{self.name} is imported as {self.module_name}.")
        if self._reload.names:
            reply["reloaded"] = self._reload.names
        if notes:
            reply["notes"] = notes


class FileLoading(Loading):
    """One request to load a file, as its module on the import path."""

    def __init__(self, file: str, session: Session) -> None:
        super().__init__(file.rpartition("/")[2].removesuffix(".py"), session)
        self.name = self.module_name
        self._file = file

    def run(self, _run: Run) -> None:
        """Import the file, or run it again in the module that came from it."""
        _see_new_files()
        loaded = [name for name, module in list(_modules.items()) if self._is_from_here(name, module)]
        if loaded:
            self.name = self.module_name = loaded[0]
            self.module = _modules[self.name]
            self._reload.run(self.name, anew=True)
            return
        before = set(_modules)
        self.module = self._imported()
        self._notes_old([name for name in list(_modules) if name not in before])

    def _is_from_here(self, name: str, module: object) -> bool:
        space = raw_space(module) if is_module(module) else {}
        file = space.get("__file__")
        return name != "__main__" and type(file) is str and os.path.realpath(file) == self._file

    def _imported(self) -> ModuleType:
        for name in _names_on_path(self._file):
            try:
                spec = importlib.util.find_spec(name)
            except (ImportError, ValueError):
                continue
            if spec is not None and spec.origin and os.path.realpath(spec.origin) == self._file:
                self.name = self.module_name = name
                return _import(name)
        return self._imported_alone()

    def _imported_alone(self) -> ModuleType:
        """Make a module of a file that no import finds. It has the name of the file."""
        spec: Any = importlib.util.spec_from_file_location(self.name, self._file)
        if self.name in _modules:
            raise ImportError(f"{self._file} is not on the import path, and there is another {self.name}")
        module = importlib.util.module_from_spec(spec)
        _modules[self.name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            _modules.pop(self.name, None)
            raise
        return module


def _names_on_path(file: str) -> list[str]:
    """Return the names under which a file could be imported, from the innermost directory of the path."""
    homes = {os.path.realpath(home or ".") for home in sys.path if type(home) is str}
    found = []
    for home in sorted(homes, key=len, reverse=True):
        if file.startswith(home.rstrip("/") + "/"):
            parts = file[len(home.rstrip("/")) + 1 :].removesuffix(".py").split("/")
            if parts[-1] == "__init__":
                parts.pop()
            if parts and all(part.isidentifier() for part in parts):
                found.append(".".join(parts))
    return found


def load_system(session: Session, request: Request) -> Reply:
    """Import a module, or reload it if its source has changed, and report its version.

    In place of a name there may be the absolute path of a Python file, which is run again in any case.
    """
    name = text(request, "system").strip()
    if name.startswith("/") and name.endswith(".py"):
        return _load(FileLoading(os.path.realpath(name), session), request)
    if not name or any(not part.isidentifier() for part in name.replace("-", "_").split(".")):
        raise RequestError("ModuleNotFoundError", f"'{name[:100]}' is not the name of a module.")
    return _load(Loading(name, session), request)


def _load(loading: Loading, request: Request) -> Reply:
    session = loading.session
    reply, _run = session.perform(loading.run, session.main, request)
    reply.pop("forms")
    reply["name"], reply["version"] = loading.module_name, None
    if reply["ok"]:
        reply["version"] = _version(loading.module_name, loading.module)
        loading.tell(reply)
    else:
        _suggest(reply, loading.missing or loading.module_name)
    return reply


def _see_new_files() -> None:
    """Drop cached directory listings: a file may be newer than the clock of its directory shows."""
    for finder in list(sys.path_importer_cache.values()):
        if type(finder) is FileFinder:
            finder.invalidate_caches()


def _tell_who_wanted(error: ImportError, name: str) -> None:
    """Add the importing module to the error about a missing one."""
    trace, place = error.__traceback__, None
    while trace is not None:
        frame = trace.tb_frame
        if not frame.f_code.co_filename.startswith(("<frozen ", _HOME, _IMPORTLIB)):
            place = f"{frame.f_globals.get('__name__')} ({frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    if place is not None and error.name != name:
        error.add_note(f"It is wanted by {place}.")


def _import_name(distribution: str) -> str | None:
    """Return the module of a distribution, where its metadata names it."""
    from importlib import metadata

    try:
        found = metadata.distribution(distribution)
        listed = (found.read_text("top_level.txt") or "").split()
        if not listed:
            listed = [
                file.parts[0] for file in found.files or () if len(file.parts) > 1 or file.suffix == ".py"
            ]
    except Exception:  # noqa: BLE001 - there is none, or its metadata are broken
        return None
    names = dict.fromkeys(name.removesuffix(".py") for name in listed)
    public = [name for name in names if name.isidentifier() and not name.startswith("_")]
    return min(public, key=lambda name: name.lower() not in distribution.lower()) if public else None


def _version(name: str, module: object) -> str | None:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "{}.{}.{}".format(*sys.version_info)
    try:
        # It loads the e-mail package, among others: 25 ms that a start should not pay.
        from importlib import metadata

        try:
            return metadata.version(top)
        except metadata.PackageNotFoundError:
            for distribution in metadata.packages_distributions().get(top, ()):
                return metadata.version(distribution)
    except Exception:  # noqa: BLE001, S110 - broken metadata is no reason to fail an import that worked
        pass
    found = vars(module).get("__version__") if type(module) is ModuleType else None
    return found if type(found) is str else None


def hint_at_outside(reply: Reply) -> None:
    """If a module is not found or not accessible, list the environment's directories that are not granted."""
    error = reply.get("error")
    if not not_granted or type(error) is not dict or not _may_be_outside(error):
        return
    listed = ", ".join(not_granted)
    error["message"] = (
        f"{error.get('message')}. Editable installs of the environment lead to {listed}, outside of the "
        f"project: if it is there, open the image with --path {not_granted[0]}."
    )


def _may_be_outside(error: dict[str, object]) -> bool:
    """Return whether a grant may help: the weaker sandbox shows a file there, but does not let it be read."""
    kind, message = error.get("type"), str(error.get("message"))
    is_kept_out = kind == "PermissionError" and any(place in message for place in not_granted)
    return kind == "ModuleNotFoundError" or is_kept_out


def _suggest(reply: Reply, name: str) -> None:
    error = reply.get("error")
    hint_at_outside(reply)
    if type(error) is dict and error.get("type") == "ModuleNotFoundError":
        known = {entry.name for entry in pkgutil.iter_modules()} | set(sys.stdlib_module_names)
        error["suggestions"] = near(name.partition(".")[0], known)


def take_up(session: Session, request: Request) -> Reply:
    """Apply the edit, or import the file if no module came from it yet."""
    file = os.path.realpath(text(request, "system"))
    module = session.reloading.module_of(file) if session.reloading.is_on else ""
    if not module:
        return _load(FileLoading(file, session), request)
    reply, run = session.perform(lambda _run: None, session.main, request)
    reply.pop("forms")
    reply["name"], reply["version"] = module, None
    if not run.edits and reply["ok"]:
        reply["unchanged"] = True
    return reply


def loaded_from(session: Session, request: Request) -> Reply:
    """Return the module that runs the text of a file, and how an edit of it is treated."""
    name = session.reloading.module_of(os.path.realpath(text(request, "file")))
    return {"ok": True, "text": name, "data": {"module": name, "reload": session.reloading.mode}}
