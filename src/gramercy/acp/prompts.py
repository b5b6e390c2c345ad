"""What a person sends from an editor as one message of text: words, and the files that they point to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gramercy.acp.updates import fenced
from gramercy.mcp.jsonrpc import invalid_params

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

# As with files that are mentioned in a message: about 16,000 tokens each.
LONGEST_FILE = 50_000


async def message_of(
    blocks: Sequence[dict[str, Any]],
    read: Callable[[Path], Awaitable[str | None]],
    resolve: Callable[[str], Awaitable[str]],
) -> str:
    """Return the message; `read` gives the text of a file, as the editor has it, or None.

    `resolve` adds what the words themselves mention.
    """
    parts: list[str] = []
    files: list[str] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            parts.append(_text(block, "text"))
        elif kind == "resource_link":
            name = _text(block, "uri")
            parts.append(_named(name))
            files.append(await _linked(name, read))
        elif kind == "resource" and isinstance(block.get("resource"), dict):
            resource = block["resource"]
            name = _text(resource, "uri")
            parts.append(_named(name))
            if "text" not in resource:
                raise invalid_params(f"{_shown(name)} is not text: this agent reads text only")
            files.append(_section(name, _text(resource, "text")))
        else:
            raise invalid_params(
                f"this agent reads text, not {kind!r:.40}, as it has declared: save it as a file and name "
                "its path, for tools that read it"
            )
    words = "".join(parts).strip()
    return "\n\n".join(filter(None, [await resolve(words) if words else "", *files]))


def _named(uri: str) -> str:
    """Name a file within the words; as code, so that it is not taken for a mention of its own."""
    return f"`{_shown(uri).replace('`', '')}`"


def _text(block: dict[str, Any], name: str) -> str:
    found = block.get(name)
    if not isinstance(found, str):
        raise invalid_params(f"{name} of a part of the prompt must be a string")
    return found


def path_of(uri: str) -> Path | None:
    """Return the file of an address; None where it is no file of this machine."""
    try:
        found = urlsplit(uri)
    except ValueError:
        # Such as half of an IPv6 address.
        return None
    return Path(unquote(found.path)) if found.scheme == "file" and found.path.startswith("/") else None


def _shown(uri: str) -> str:
    path = path_of(uri)
    return uri[:300] if path is None else str(path)


async def _linked(uri: str, read: Callable[[Path], Awaitable[str | None]]) -> str:
    path = path_of(uri)
    text = None if path is None else await read(path)
    return "" if text is None else _section(uri, text)


def _section(uri: str, text: str) -> str:
    cut = f"\n… [{LONGEST_FILE:,} of {len(text):,} characters shown]" if len(text) > LONGEST_FILE else ""
    fragment = "" if path_of(uri) is None else urlsplit(uri).fragment
    where = f" ({fragment})" if fragment else ""
    return f"{_shown(uri)}{where}:\n{fenced(text[:LONGEST_FILE])}{cut}"
