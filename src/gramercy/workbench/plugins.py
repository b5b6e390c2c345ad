"""Plug-ins: installed packages that add tools, kinds of images, providers and commands.

A package names its module in the entry point group `gramercy`. The module adds things by pluggy hooks. A
plug-in that fails is left out and named by the doctor: it never ends a command that does not need it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gramercy.errors import InvalidToolError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import click

    from gramercy.images.opening import ImageKind
    from gramercy.providers.base import Provider
    from gramercy.tools.tool import Tool

GROUP = "gramercy"
# The names of the plug-ins to load, separated by commas. Empty loads none. Use it to find a faulty one.
CHOICE = "GRAMERCY_PLUGINS"
# Real ones have a few lines, and those of all packages are read.
LARGEST_METADATA = 1 << 20
# Three lines of a terminal: a pointer to the fault, not a whole report.
LONGEST_FAULT = 240
_OURS = __file__.rpartition("/workbench/")[0]


class Hooks:
    """The hooks of a plug-in. Each takes no arguments and is called once, when it is first needed."""

    def gramercy_tools(self) -> Iterable[Tool | Callable[..., Any]]:  # type: ignore[empty-body]
        """Return tools, or functions to make tools from."""

    def gramercy_images(self) -> Mapping[str, ImageKind]:  # type: ignore[empty-body]
        """Return kinds of images, by the name that is given as a language."""

    def gramercy_providers(self) -> Mapping[str, Callable[[], Provider]]:  # type: ignore[empty-body]
        """Return functions that open a provider, by the name before the slash of a model's name."""

    def gramercy_commands(self) -> Iterable[click.Command]:  # type: ignore[empty-body]
        """Return subcommands of `gramercy`."""


class Entry(NamedTuple):
    """A plug-in as its package names it. Not a struct: every help of the command line looks for plug-ins."""

    name: str
    module: str
    package: str
    version: str


class Plugin:
    """A plug-in with the things that it adds, and its faults."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.faults: list[str] = []
        self._hooks: dict[str, Callable[[], Any]] = {}
        self._added: dict[str, dict[str, Any]] = {}

    @property
    def name(self) -> str:
        """The name of its entry point."""
        return self.entry.name

    def load(self) -> None:
        """Import the module and see which hooks it has."""
        self._hooks = self._tried("it cannot be loaded", lambda: _hooks_of(self.entry)) or {}

    def added(self, kind: str) -> dict[str, Any]:
        """Return the things of one kind that it adds, by name. Empty where its hook fails."""
        if kind not in self._added:
            self._added[kind] = {}
            hook = self._hooks.get(f"gramercy_{kind}")
            if hook is not None:
                read = _READERS[kind]
                self._added[kind] = self._tried(f"gramercy_{kind} failed", lambda: read(hook())) or {}
        return self._added[kind]

    def refuse(self, kind: str, name: str, why: str) -> None:
        """Leave out one thing that it adds."""
        del self._added[kind][name]
        self.faults.append(f"{kind}: {name!r:.60} is left out, since {why}")

    def _tried(self, what: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        try:
            # Output of a module must not mix with the output of a command.
            with redirect_stdout(sys.stderr):
                return work()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the code of others may raise anything, SystemExit too
            said = " ".join(str(error).split())[:LONGEST_FAULT]
            self.faults.append(f"{what}: {type(error).__name__}: {said}{_line_of(error, self.entry)}")
            return None


class Plugins:
    """The plug-ins of this environment, imported. Their hooks are called when first needed."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self.plugins = list(plugins)
        self._joined: dict[str, dict[str, Any]] = {}

    def tools(self, name: str) -> list[Tool]:
        """Return the tools of one plug-in, or raise SourceError with the valid names or with its faults."""
        found = next((each for each in self.plugins if each.name == name), None)
        if found is None:
            from gramercy.gram.suggestion import did_you_mean

            names = [each.name for each in self.plugins]
            there = f"there are {', '.join(names)}" if names else "none is installed in this environment"
            raise SourceError(f"there is no plug-in {name!r:.60}: {did_you_mean(name, names, there)}")
        tools = list(found.added("tools").values())
        if not tools:
            raise SourceError(
                f"the plug-in {name} has no tools{''.join(f': {each}' for each in found.faults)}"
            )
        return tools

    def images(self) -> dict[str, ImageKind]:
        """Return all kinds of images by name."""
        from gramercy.images.environment import LANGUAGES

        return self._all("images", LANGUAGES)

    def providers(self) -> dict[str, Callable[[], Provider]]:
        """Return the function that opens each provider, by its name in lower case."""
        from gramercy.providers.opening import ADDED, provider_names

        return self._all("providers", {name.lower() for name in provider_names()} - {*ADDED})

    def commands(self, own: Iterable[str] = ()) -> dict[str, click.Command]:
        """Return all commands by name, except for those with the name of a built-in command."""
        return self._all("commands", own)

    def _all(self, kind: str, own: Iterable[str]) -> dict[str, Any]:
        """Join the things of one kind from all plug-ins. The first owner of a name keeps it.

        Providers are found by their names in lower case.
        """
        if kind not in self._joined:
            taken, found = set(own), self._joined.setdefault(kind, {})
            for plugin in self.plugins:
                for name, value in list(plugin.added(kind).items()):
                    key = name.lower() if kind == "providers" else name
                    if key in taken:
                        plugin.refuse(kind, name, "another plug-in has it" if key in found else "it is ours")
                    else:
                        taken.add(key)
                        found[key] = value
        return self._joined[kind]


@cache
def load_plugins() -> Plugins:
    """Import the plug-ins of this environment, once. Unusable ones keep their faults.

    From then on `open_image` and `open_provider` know the kinds and providers that they add.
    """
    plugins = Plugins(map(Plugin, find_plugins()))
    if plugins.plugins:
        # An editable install refers to files that evaluated code may have changed.
        from gramercy.workbench.sources import guard_imports

        guard_imports()
        for plugin in plugins.plugins:
            plugin.load()
        _make_known(plugins)
    return plugins


def language_of(kind: str) -> str:
    """Return the language of a kind of image. A language is a kind of its own."""
    added = load_plugins().images().get(kind)
    return kind if added is None else added.language


def _make_known(plugins: Plugins) -> None:
    from gramercy.images.opening import KINDS
    from gramercy.providers.opening import ADDED

    KINDS.update(plugins.images())
    ADDED.update(plugins.providers())


def find_plugins(places: Iterable[str] | None = None) -> list[Entry]:
    """Return the installed and selected plug-ins by name, without importing any.

    Only those in the environment that runs this program: another directory on the import path, as the current
    one is for `python -m gramercy`, may have been written by evaluated code. importlib.metadata would cost 30
    ms at every start of the command line, this 1 ms.
    """
    chosen = os.environ.get(CHOICE)
    names = None if chosen is None else {word.strip() for word in chosen.split(",")}
    found: dict[str, Entry] = {}
    for place in dict.fromkeys(_installed() if places is None else places):
        for entry in _entries_in(place):
            if names is None or entry.name in names:
                found.setdefault(entry.name, entry)
    return [found[name] for name in sorted(found)]


def _installed() -> Iterator[str]:
    return (place for place in sys.path if is_installed(f"{place}/"))


def is_installed(file: str) -> bool:
    """Return whether a module belongs to Python, to the environment that runs us, or to us."""
    return file.startswith(tuple(f"{place}/" for place in _places()))


@cache
def _places() -> tuple[str, ...]:
    import site

    # Not with pathlib: it alone costs more than the whole search for plug-ins.
    ours, library = _OURS, os.__file__.rpartition("/")[0]
    return (sys.prefix, sys.base_prefix, site.getusersitepackages(), ours, library)


def _entries_in(place: str) -> Iterator[Entry]:
    try:
        names = sorted(os.listdir(place))  # noqa: PTH208 - a Path for each of hundreds of names costs more
    except OSError:
        return
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            yield from _entries_of(f"{place}/{name}")


def _entries_of(metadata: str) -> Iterator[Entry]:
    try:
        with open(f"{metadata}/entry_points.txt", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            text = file.read(LARGEST_METADATA)
    except OSError:
        return
    if f"[{GROUP}]" not in text:
        return
    package, _, version = metadata.rpartition("/")[2].rpartition(".")[0].partition("-")
    for line in text.partition(f"[{GROUP}]")[2].partition("\n[")[0].splitlines():
        name, equals, module = (part.strip() for part in line.partition("="))
        if equals and name and not name.startswith(("#", ";")):
            yield Entry(name, module, package.replace("_", "-"), version)


def _hooks_of(entry: Entry) -> dict[str, Callable[[], Any]]:
    """Import a plug-in and return its hooks by name. pluggy refuses unknown hooks and arguments."""
    try:
        import pluggy
    except ModuleNotFoundError:
        raise SourceError("plug-ins need pluggy: pip install 'gramercy[plugins]'") from None
    specify = pluggy.HookspecMarker(GROUP)
    manager = pluggy.PluginManager(GROUP)
    names = [name for name in vars(Hooks) if name.startswith(f"{GROUP}_")]
    for name in names:
        specify(getattr(Hooks, name))
    manager.add_hookspecs(Hooks)
    module, _, attribute = entry.module.partition(":")
    plugin: Any = importlib.import_module(module.strip())
    for part in attribute.strip().split(".") if attribute else ():
        plugin = getattr(plugin, part)
    manager.register(plugin, entry.name)
    manager.check_pending()
    impls = {name: getattr(manager.hook, name).get_hookimpls() for name in names}
    return {name: found[0].function for name, found in impls.items() if found}


def _line_of(error: BaseException, entry: Entry) -> str:
    """Return the line of the plug-in's own files where it failed."""
    root = entry.module.partition(":")[0].partition(".")[0]
    trace, found = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == root:
            found = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    return found


def _tools(given: Any) -> dict[str, Tool]:
    from gramercy.tools.definition import tool as as_tool
    from gramercy.tools.library import ToolLibrary
    from gramercy.tools.tool import Tool

    values = given.values() if isinstance(given, Mapping) else given
    made: list[Tool] = []
    for each in values:
        if not isinstance(each, Tool) and not callable(each):
            raise InvalidToolError(f"expected tools and functions, not {type(each).__name__}")
        made.append(each if isinstance(each, Tool) else as_tool(each))
    return dict(ToolLibrary.of(made))


def _images(given: Any) -> dict[str, ImageKind]:
    from gramercy.images.environment import LANGUAGES
    from gramercy.images.opening import ImageKind

    for name, kind in dict(given).items():
        if not isinstance(kind, ImageKind):
            raise TypeError(f"{name!r:.60} is no ImageKind but {type(kind).__name__}")
        if kind.language not in LANGUAGES:
            raise ValueError(f"{name!r:.60} speaks {kind.language!r:.60}: expected {' or '.join(LANGUAGES)}")
    return dict(given)


def _providers(given: Any) -> dict[str, Callable[[], Provider]]:
    for name, opened in dict(given).items():
        if not callable(opened):
            raise TypeError(f"{name!r:.60} is no function that opens a provider")
    return dict(given)


def _commands(given: Any) -> dict[str, click.Command]:
    import click

    found = {}
    for each in given:
        if not isinstance(each, click.Command) or not each.name:
            raise TypeError(f"expected commands of click with names, not {type(each).__name__}")
        found[each.name] = each
    return found


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tools": _tools,
    "images": _images,
    "providers": _providers,
    "commands": _commands,
}
KINDS_ADDED = tuple(_READERS)
