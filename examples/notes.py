"""A small notebook of tools: one safe, one cautious, one dangerous.

Try it: gramercy tools list --from examples/notes.py
"""

from pathlib import Path
from typing import Annotated, Literal

from gramercy import tool

NOTES: dict[str, str] = {"welcome": "Read me first."}


@tool(categories=["notes"])
def read_note(title: Annotated[str, "The title of the note"]) -> str:
    """Return the text of a note."""
    if title not in NOTES:
        raise KeyError(f"no note titled {title!r}; there are: {', '.join(NOTES)}")
    return NOTES[title]


@tool(safety_level="cautious", categories=["notes"])
def write_note(
    title: Annotated[str, "The title of the note"],
    text: Annotated[str, "What it should say"],
    mode: Annotated[Literal["replace", "append"], "Whether to keep what is there"] = "replace",
) -> str:
    """Write a note into memory."""
    NOTES[title] = NOTES.get(title, "") + text if mode == "append" else text
    return f"{title!r} now has {len(NOTES[title])} characters"


@tool(safety_level="dangerous", categories=["notes", "files"])
def save_notes(path: Annotated[str, "The file to write"]) -> str:
    """Write all notes to a file, replacing it. Needs approval."""
    text = "".join(f"# {title}\n{body}\n" for title, body in NOTES.items())
    Path(path).write_text(text)
    return f"wrote {len(text)} characters to {path}"
