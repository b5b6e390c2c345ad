"""Load the tools that a Python file or module defines."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.errors import InvalidToolError, SourceError
from gramercy.tools.library import ToolLibrary
from gramercy.tools.registry import Registry, default_registry
from gramercy.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType


def load_tools(*sources: str) -> Registry:
    """Return a registry of everything the sources define; each is a path to a .py file or a module name."""
    registry = Registry()
    for source in sources:
        before = dict(default_registry().library())
        module = _run(source)
        found = [*_tools_in(module), *_added(before)]
        if not found:
            raise SourceError(
                f"{source} defines no tools: decorate a function with @tool or call define_tool"
            )
        try:
            registry.register_all(dict.fromkeys(found))
        except InvalidToolError as error:
            raise SourceError(f"{source}: {error}") from None
    return registry


def _run(source: str) -> ModuleType:
    """Run a file or module; whatever it prints goes to standard error, where it cannot be taken for data."""
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
        raise SourceError(f"{source} needs a module that is not installed: {error.name}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a stranger's file may raise anything, SystemExit too
        raise SourceError(
            f"{source} cannot be loaded: {_where(error)}{type(error).__name__}: {error}"
        ) from None


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise SourceError(f"{path} {what}: expected a Python file that defines tools")
    name = f"gramercy_source_{abs(hash(path.resolve()))}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceError(f"{path} is not a Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    # Registered first: dataclasses and type hints look their module up by name while it is being run.
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


def _where(error: BaseException) -> str:
    """Name the line of the user's own file that failed."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: "
    frames = traceback.extract_tb(error.__traceback__)
    return f"line {frames[-1].lineno} of {Path(frames[-1].filename).name}: " if frames else ""


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
