"""The input of a person from an editor: a message of words and files, or a command after a slash.

A command acts on the conversation; it is not a part of it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gramercy.acp.updates import fenced
from gramercy.agents.compaction import compact
from gramercy.execution.shown import revealed
from gramercy.mcp.jsonrpc import invalid_params
from gramercy.text import cut_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from gramercy.acp.base import Place, Rewinding
    from gramercy.agents.talks import SessionTalk

# As for files that are mentioned in a message: about 16,000 tokens each.
LONGEST_FILE = 50_000


async def message_of(
    blocks: Sequence[dict[str, Any]],
    read: Callable[[Path], Awaitable[str | None]],
    resolve: Callable[[str], Awaitable[str]],
) -> str:
    """Return the message; `read` returns the text of a file as the editor has it, or None.

    `resolve` adds the mentions in the words themselves.
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
    """Name a file within the words; as code, so that it is not taken for a mention."""
    return f"`{_shown(uri).replace('`', '')}`"


def _text(block: dict[str, Any], name: str) -> str:
    found = block.get(name)
    if not isinstance(found, str):
        raise invalid_params(f"{name} of a part of the prompt must be a string")
    return found


def path_of(uri: str) -> Path | None:
    """Return the file of an address; None if it is not a file of this machine."""
    try:
        found = urlsplit(uri)
    except ValueError:
        # For example, half of an IPv6 address.
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


UNDO, COMPACT, MODEL = "undo", "compact", "model"
COMMANDS = {
    UNDO: "Take back the last message and what came of it: talk, image and files",
    COMPACT: "Let a summary stand for what was said so far",
    MODEL: "Let another model answer from now on",
}
HINTS = {MODEL: "PROVIDER/ID, such as OpenAI/gpt-4o-mini"}
# The quoted length of a message that was taken back, so that a person recognises it.
LONGEST_QUOTED = 80


def commands_update() -> dict[str, Any]:
    """Return the update by which an editor offers the commands."""
    listed: list[dict[str, Any]] = [
        {"name": name, "description": text} | ({"input": {"hint": HINTS[name]}} if name in HINTS else {})
        for name, text in COMMANDS.items()
    ]
    return {"sessionUpdate": "available_commands_update", "availableCommands": listed}


def command_of(blocks: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the command of a message and the text after it; both empty if it is not a command."""
    text = blocks[0].get("text") if len(blocks) == 1 and blocks[0].get("type") == "text" else None
    if not isinstance(text, str) or not text.lstrip().startswith("/"):
        return "", ""
    word, _, rest = text.strip().removeprefix("/").partition(" ")
    is_command = word in HINTS or (word in COMMANDS and not rest.strip())
    return (word, rest.strip()) if is_command else ("", "")


async def do_command(command: tuple[str, str], place: Place, talk: SessionTalk, rewinding: Rewinding) -> str:
    """Run a command; return a message about it."""
    name, rest = command
    if name == MODEL:
        if rest:
            place.use_model(rest)
        return f"{place.agent.model} answers."
    if name == UNDO:
        # Restoring an image and writing files takes a while.
        return await _to_its_end(asyncio.to_thread(_undo, talk, rewinding))
    model = place.agent.model
    made = await compact(talk, place.provider(model), model)
    size = f"about {made.tokens_before:,} tokens before, {made.tokens_after:,} now"
    return f"A summary stands for {made.messages} messages: {size}.\n\n{made.summary}"


async def _to_its_end(work: Coroutine[Any, Any, str]) -> str:
    """Await work that must not be left half done, even if cancelled; then note that in its message."""
    running, is_cancelled = asyncio.ensure_future(work), False
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            is_cancelled = True
    told = running.result()
    return (
        f"{told}\n- It was to be stopped in the middle of it, and was brought to its end."
        if is_cancelled
        else told
    )


def _undo(talk: SessionTalk, rewinding: Rewinding) -> str:
    said = talk.conversation
    taken = talk.take_back()
    if taken is None:
        return "There is nothing to take back."
    asked = max((number for number, each in enumerate(said) if each.role == "user"), default=len(said))
    told = rewinding.back(len(talk.kept), said[asked:], taken.states)
    quoted = cut_line(revealed(taken.text), LONGEST_QUOTED)
    return "\n".join([f"Taken back: {quoted}", *(f"- {each}" for each in told)])
