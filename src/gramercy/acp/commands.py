"""What a person types after a slash in an editor: things to do with the conversation, not to say in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gramercy.agents.compaction import compact
from gramercy.execution.shown import revealed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.acp.base import Place, Rewinding
    from gramercy.agents.talks import SessionTalk

UNDO, COMPACT, MODEL = "undo", "compact", "model"
COMMANDS = {
    UNDO: "Take back the last message and what came of it: talk, image and files",
    COMPACT: "Let a summary stand for what was said so far",
    MODEL: "Let another model answer from now on",
}
HINTS = {MODEL: "PROVIDER/ID, such as OpenAI/gpt-4o-mini"}
# Of a message that was taken back, to know it by.
LONGEST_QUOTED = 80


def commands_update() -> dict[str, Any]:
    """Return the update by which an editor offers them."""
    listed: list[dict[str, Any]] = [
        {"name": name, "description": text} | ({"input": {"hint": HINTS[name]}} if name in HINTS else {})
        for name, text in COMMANDS.items()
    ]
    return {"sessionUpdate": "available_commands_update", "availableCommands": listed}


def command_of(blocks: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the command that a message is, and what stands after it; both empty where it is a message."""
    text = blocks[0].get("text") if len(blocks) == 1 and blocks[0].get("type") == "text" else None
    if not isinstance(text, str) or not text.lstrip().startswith("/"):
        return "", ""
    word, _, rest = text.strip().removeprefix("/").partition(" ")
    is_command = word in HINTS or (word in COMMANDS and not rest.strip())
    return (word, rest.strip()) if is_command else ("", "")


async def do_command(command: tuple[str, str], place: Place, talk: SessionTalk, rewinding: Rewinding) -> str:
    """Do what a command says; return what is told about it."""
    name, rest = command
    if name == MODEL:
        if rest:
            place.use_model(rest)
        return f"{place.agent.model} answers."
    if name == UNDO:
        # Going back in an image, and writing files, takes a while.
        return await asyncio.to_thread(_undo, talk, rewinding)
    model = place.agent.model
    made = await compact(talk, place.provider(model), model)
    size = f"about {made.tokens_before:,} tokens before, {made.tokens_after:,} now"
    return f"A summary stands for {made.messages} messages: {size}.\n\n{made.summary}"


def _undo(talk: SessionTalk, rewinding: Rewinding) -> str:
    said = talk.conversation
    taken = talk.take_back()
    if taken is None:
        return "There is nothing to take back."
    asked = max((number for number, each in enumerate(said) if each.role == "user"), default=len(said))
    told = rewinding.back(len(talk.kept), said[asked:], taken.states)
    line = " ".join(revealed(taken.text).split())
    quoted = line if len(line) <= LONGEST_QUOTED else f"{line[:LONGEST_QUOTED]}…"
    return "\n".join([f"Taken back: {quoted}", *(f"- {each}" for each in told)])
