"""The sources of tools: Python files, modules and plug-ins, a live image.

Output of a file while it is loaded goes to standard error, and an image ends with the block that opened it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from collections import Counter
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import InvalidToolError, SourceError
from gramercy.images.trust import check_file
from gramercy.tools.definition import create_tool
from gramercy.tools.library import ToolLibrary
from gramercy.tools.registry import Registry, default_registry
from gramercy.tools.tool import Tool
from gramercy.workbench.plugins import is_installed, load_plugins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import CodeType, ModuleType

    from gramercy.execution.policy import Policy
    from gramercy.images.environment import Environment
    from gramercy.images.live import LiveImage
    from gramercy.toolsets.workspace import Workspace

# An image that ends a call itself can report more than a guard that times out.
GRACE_SECONDS = 5.0
_OURS = str(Path(__file__).parents[1])
_LIBRARY = str(Path(contextlib.__file__).parent)


class Origin(msgspec.Struct, frozen=True):
    """The sources of tools: files or modules, and an image if a language is given."""

    sources: tuple[str, ...] = ()
    language: str | None = None
    project: str = "."
    sandbox: bool = True
    environment: Environment | None = None
    timeout: float = 60.0
    timeout_limit: float | None = None

    def patience(self, deadline: float) -> float:
        """Return the timeout for a call that may take `deadline` seconds."""
        return deadline if self.language is None else deadline + GRACE_SECONDS


@contextmanager
def live_image(
    language: str | None,
    *,
    project: str = ".",
    sandbox: bool = True,
    timeout: float = 60.0,
    environment: Environment | None = None,
) -> Iterator[LiveImage]:
    """Yield an image that starts on first use. All its processes end with the block."""
    from gramercy.images.descriptors import raise_limit
    from gramercy.images.opening import open_image

    raise_limit()
    image = open_image(language, project=project, sandbox=sandbox, timeout=timeout, environment=environment)
    try:
        yield image
    finally:
        # A cancelled call holds the image until it ends.
        image.interrupt()
        image.close()


@contextmanager
def assembled(
    origin: Origin, *, timeout: float = 60.0, policy: Policy | None = None, own: Sequence[str | None] = ()
) -> Iterator[Registry]:
    """Yield a registry of all tools of an origin.

    Evaluated code cannot write paths that the policy protects, the sources, or `own`: further files of ours.
    """
    registry = load_tools(*origin.sources)
    if origin.language is None:
        yield registry
        return
    taken = set(registry.names())
    environment = origin.environment
    if policy is not None and origin.sandbox:
        from gramercy.workbench.keeping import walled

        environment = walled(environment, Path(origin.project).resolve(), (*own, *origin.sources), policy)
    with live_image(
        origin.language,
        project=origin.project,
        sandbox=origin.sandbox,
        timeout=timeout,
        environment=environment,
    ) as image:
        for tool in image_registry(image, image.language, origin.project).library().values():
            if tool.name in taken:
                raise SourceError(
                    f"{', '.join(origin.sources)} defines {tool.name}, which the image has too: rename it"
                )
            registry.register(tool)
        yield registry


def image_registry(
    image: LiveImage, language: str, project: str | Workspace, longest_timeout: float | None = None
) -> Registry:
    """Return the tools of one image, of every set. The image is not started for that."""
    from gramercy.tools.registry import Registry
    from gramercy.toolsets.core import register_core_tools, register_session_tools
    from gramercy.toolsets.project import register_project_tools
    from gramercy.toolsets.workspace import Workspace

    registry = Registry()
    workspace = Workspace(project) if isinstance(project, str) else project
    register_project_tools(registry, image, workspace, longest_timeout=longest_timeout)
    register_session_tools(
        registry, image, language=language, workspace=workspace, longest_timeout=longest_timeout
    )
    # Last, since their texts name only tools that are registered.
    register_core_tools(registry, image, project=workspace, longest_timeout=longest_timeout)
    return registry


def known_tools(project: str, sources: Sequence[str] = ()) -> Registry:
    """Return the tools of images in all languages, without starting any, and those of files."""
    from gramercy.images.environment import LANGUAGES
    from gramercy.images.opening import open_image

    registry = load_tools(*sources)
    for language in LANGUAGES:
        # Nothing is run, so even a directory that is unusable as a project will do.
        image = open_image(language, project=project, sandbox=False)
        tools = image_registry(image, language, project).library().values()
        registry.register_all(tool for tool in tools if tool.name not in registry)
    return registry


def stand_in(name: str, level: str) -> Tool:
    """Return a tool of which only name and level are known, such as one of another server."""
    return create_tool(name, "Not known here.", {"type": "object"}, dict, safety_level=level)


def load_tools(*sources: str) -> Registry:
    """Return a registry of all tools that the sources define.

    Each is a path to a .py file, a module name, or the name of a plug-in as `plugin:NAME`.
    """
    guard_imports()
    registry = Registry()
    for source in sources:
        found = _found_in(source)
        if not found:
            raise SourceError(
                f"{source} defines no tools: decorate a function with @tool or call define_tool"
            )
        try:
            registry.register_all(dict.fromkeys(found))
        except InvalidToolError as error:
            raise SourceError(f"{source}: {error}{_where_defined(found)}") from None
    return registry


def _found_in(source: str) -> list[Tool]:
    if source.startswith("plugin:"):
        return load_plugins().tools(source.removeprefix("plugin:"))
    before = dict(default_registry().library())
    module = _run(source)
    return [*_tools_in(module), *_added(before)]


def _run(source: str) -> ModuleType:
    """Run a file or module. Its output goes to standard error: it must not mix with data."""
    is_file = source.endswith(".py") or "/" in source or Path(source).exists()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return _run_file(Path(source)) if is_file else importlib.import_module(source)
    except SourceError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (source == error.name or source.startswith(f"{error.name}.")):
            raise SourceError(
                f"there is no module {source!r}: give a path to a .py file or an importable name"
            ) from None
        told = f"{source} needs a module that is not installed: {error.name}"
        raise SourceError(f"{told}{place_of(error, source)}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a user's file may raise anything, SystemExit too
        said = error.msg if isinstance(error, SyntaxError) else error
        told = f"{source} cannot be loaded: {type(error).__name__}: {said}"
        raise SourceError(f"{told}{place_of(error, source)}") from None


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise SourceError(f"{path} {what}: expected a Python file that defines tools")
    # The same in every process: an approval is also sealed to the name of the function.
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    name = f"gramercy_source_{place}_{path.stem}"
    if path.suffix != ".py":
        raise SourceError(f"{path} is not a Python file: its name should end in .py")
    spec = importlib.util.spec_from_file_location(name, path, loader=_Checked(name, str(path)))
    if spec is None or spec.loader is None:
        raise SourceError(f"{path} is not a Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    # Registered first: dataclasses and type hints look up their module by name while it runs.
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


class _Checked(SourceFileLoader):
    """Runs a file as it was checked, never a cache beside it: evaluated code can write that."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        data = check_file(path, self.get_data(path))
        try:
            code: CodeType = self.source_to_code(data, path)
        except ValueError as error:  # Python before 3.11.4 raises it for a null byte
            raise SyntaxError(str(error), (path, None, None, None)) from None
        return code


class _Guard(MetaPathFinder):
    """Finds modules as usual, and checks those outside of Python and its environments."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        others = (each for each in sys.meta_path if each is not self)
        found = (each.find_spec(fullname, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is None or not spec.has_location or spec.origin is None or is_installed(spec.origin):
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Checked(fullname, spec.origin)
        else:
            check_file(spec.origin)
        return spec


def guard_imports() -> None:
    """Check all imports from now on: evaluated code may have put a module beside a file of tools."""
    if not any(isinstance(finder, _Guard) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Guard())


def place_of(error: BaseException, source: str = "") -> str:
    """Show the user's line that failed, with a caret. Lines of ours and of libraries are skipped."""
    if isinstance(error, SyntaxError):
        # The unreadable file may be another one, which the source imports.
        return _shown_line(error.filename or source, error.lineno, error.text or "", error.offset)
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_of_others(each.filename)]
    if not frames:
        return ""
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0)
    return _shown_line(last.filename, last.lineno, line, None if last.colno is None else last.colno + 1)


def _is_of_others(file: str) -> bool:
    """Return whether a frame belongs to this package, the import machinery, or an installed library."""
    return file.startswith(("<", _OURS, _LIBRARY)) or "/site-packages/" in file or "/dist-packages/" in file


def _shown_line(file: str, number: int | None, line: str, column: int | None) -> str:
    place = Path(file)
    name = place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place
    # A binary file has no line to show.
    shown, text = f"\n  {name}" if number is None else f"\n  {name}:{number}", line.strip()
    if not text:
        return shown
    before = (column or 0) - 1 - (len(line) - len(line.lstrip()))
    caret = f"\n    {' ' * before}^" if 0 <= before <= len(text) else ""
    return f"{shown}\n    {text}{caret}"


def _where_defined(tools: Sequence[Tool]) -> str:
    """Show where the tools with the same name were defined."""
    counts = Counter(tool.name for tool in dict.fromkeys(tools))
    places = [tool.function for tool in dict.fromkeys(tools) if counts[tool.name] > 1]
    codes = [getattr(function, "__code__", None) for function in places]
    return "".join(_shown_line(code.co_filename, code.co_firstlineno, "", None) for code in codes if code)


def _tools_in(module: ModuleType) -> Iterator[Tool]:
    for value in list(vars(module).values()):
        yield from _tools_of(value)


def _tools_of(value: Any) -> Iterable[Tool]:
    if isinstance(value, Tool):
        return [value]
    if isinstance(value, Registry):
        return value.library().values()
    return value.values() if isinstance(value, ToolLibrary) else ()


def _added(before: dict[str, Tool]) -> Iterator[Tool]:
    for name, tool in default_registry().library().items():
        if before.get(name) is not tool:
            yield tool
