"""The tool that shows the rest of what an evaluation printed, where an answer had to be cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.tools.content import ToolOutput
from gramercy.toolsets.rendering import MOST_OUTPUT, STREAMS
from gramercy.toolsets.source import text, whole

if TYPE_CHECKING:
    from gramercy.images.base import Image, Reply
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.source import Workshop

FARTHEST = 50


def output_tool(workshop: Workshop) -> Tool:
    """Make the tool."""
    return workshop.make(
        "read_output",
        "Read on in what an evaluation printed, from an offset: an answer shows only the beginning of a long "
        "output and says where it was cut. Runs nothing again.",
        {
            "stream": text("Which stream", enum=list(STREAMS), default="stdout"),
            "offset": whole("Characters to skip, as the answer that was cut says", minimum=0, default=0),
            "evaluation": whole(
                "Which evaluation: 1 is the latest, 2 the one before", minimum=1, maximum=FARTHEST, default=1
            ),
        },
        _read,
        categories=["execution"],
    )


def _read(image: Image, arguments: dict[str, Any]) -> Any:
    history, back = image.history(), arguments.get("evaluation", 1)
    if back > len(history):
        return ToolOutput(None, error=f"There are {len(history)} evaluations to read from, not {back}.")
    stream, offset = arguments.get("stream", "stdout"), arguments.get("offset", 0)
    return _part(history[-back].reply, stream, offset)


def _part(reply: Reply, stream: str, offset: int) -> str:
    kept = str(getattr(reply, stream))
    total = max(reply.truncated.get(stream, 0), len(kept))
    if offset >= len(kept):
        return f"[{stream} has no more: {len(kept):,} of {total:,} characters were kept]"
    shown = kept[offset : offset + MOST_OUTPUT]
    end = offset + len(shown)
    if end < len(kept):
        return f"{shown}\n… [characters {offset:,} to {end:,} of {total:,}; go on with offset {end}]"
    if end < total:
        return f"{shown}\n… [characters {offset:,} to {end:,} of {total:,}; the rest was not kept]"
    return shown
