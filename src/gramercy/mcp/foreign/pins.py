"""The file of a person's approvals of other servers' tools: each definition with its digest."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.directories import config_home
from gramercy.errors import ForeignError
from gramercy.mcp.foreign.definitions import PARTS, Definition, read_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

FORMAT = 1
# A thousand tools of the largest size; a larger file is not ours, and is not read into memory.
LARGEST_FILE = 64 * 1024 * 1024

Servers = dict[str, dict[str, Definition]]


def default_pins() -> Path:
    """Return where the pins of this user are kept unless another file is named."""
    return config_home() / "gramercy" / "foreign.json"


class PinFile:
    """Accepted definitions by server and tool. Every change is written at once, completely or not at all."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = default_pins() if path is None else Path(path)

    def servers(self) -> list[str]:
        """List the servers with accepted definitions."""
        return sorted(self._read())

    def accepted(self, server: str) -> dict[str, Definition]:
        """Return the accepted definitions of a server, by the name of the tool."""
        return self._read().get(server, {})

    def accept(self, server: str, definitions: Iterable[Definition]) -> None:
        """Accept exactly these definitions of a server's tools."""
        taken = {definition.name: definition for definition in definitions}
        self._change(lambda servers: servers.setdefault(server, {}).update(taken))

    def forget(self, server: str, tools: Iterable[str]) -> None:
        """Revoke the acceptance of a server's tools."""
        names = set(tools)

        def drop(servers: Servers) -> None:
            kept = {name: pin for name, pin in servers.pop(server, {}).items() if name not in names}
            if kept:
                servers[server] = kept

        self._change(drop)

    def _change(self, change: Callable[[Servers], None]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.parent):
                servers = self._read()
                change(servers)
                _replace(self.path, _written(servers))
        except OSError as error:
            raise ForeignError(f"the pins cannot be written to {self.path}: {error}") from None

    def _read(self) -> Servers:
        try:
            content = msgspec.json.decode(_bounded(self.path))
            return _servers(content)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ForeignError(f"the pins in {self.path} cannot be read: {error}") from None
        except (msgspec.MsgspecError, RecursionError, ValueError, KeyError, TypeError, AttributeError):
            raise ForeignError(
                f"{self.path} is no file with pins: expected what `gramercy foreign accept` writes"
            ) from None
        except ForeignError as error:
            raise ForeignError(f"{self.path}: {error}") from None


def _bounded(path: Path) -> bytes:
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise ForeignError(f"this is no file with pins: it has {size:,} bytes")
    return path.read_bytes()


def _servers(content: Any) -> Servers:
    if content["version"] != FORMAT:
        raise ForeignError(f"the file is of version {content['version']!r:.40}: expected {FORMAT}")
    return {
        server: {name: _pin(server, name, entry) for name, entry in tools.items()}
        for server, tools in content["servers"].items()
    }


def _pin(server: str, name: str, entry: Mapping[str, Any]) -> Definition:
    definition = read_definition(entry["definition"])
    if definition.digest != entry["digest"] or definition.name != name:
        raise ForeignError(
            f"the pin of {server} {name!r:.100} was changed by hand, its digest does not fit: remove the "
            "entry, and accept the tool again"
        )
    return definition


def _written(servers: Servers) -> bytes:
    shown = {
        server: {
            name: {
                "digest": pin.digest,
                "definition": {key: pin.parts[key] for key in PARTS if key in pin.parts},
            }
            for name, pin in sorted(tools.items())
        }
        for server, tools in sorted(servers.items())
    }
    text = msgspec.json.encode({"version": FORMAT, "servers": shown})
    return msgspec.json.format(text, indent=2) + b"\n"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep two programs from losing each other's changes; the lock ends with its holder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
