"""Show what an evaluation prints while it runs, and at its end only what has not been shown yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from gramercy.toolsets.rendering import MOST_OUTPUT, STREAMS, evaluation_text, output_text
from gramercy.ui.cli.display import show

if TYPE_CHECKING:
    from gramercy.images.base import Progress, Reply


class Transcript:
    """One evaluation on the screen. What is there at the end looks as if it had been shown at once."""

    def __init__(self) -> None:
        self._shown = dict.fromkeys(STREAMS, 0)
        # The stream under whose heading the cursor stands, if any has been shown.
        self._stream = ""
        self._is_line_open = False

    def watch(self, progress: Progress) -> None:
        """Show what is new, as much of it as would be shown at the end."""
        for stream in STREAMS:
            text = getattr(progress, stream)[: MOST_OUTPUT - self._shown[stream]]
            self._shown[stream] += len(text)
            self._write(stream, text)

    def close(self, reply: Reply) -> None:
        """Show the rest."""
        if not self._stream:
            show(evaluation_text(reply))
            return
        for stream in STREAMS:
            self._write(stream, output_text(reply, stream)[self._shown[stream] :])
        self._part()
        show(evaluation_text(msgspec.structs.replace(reply, stdout="", stderr="")))

    def _write(self, stream: str, text: str) -> None:
        if not text:
            return
        if stream != self._stream:
            self._part()
            self._stream = stream
            show(f"[{stream}]")
        show(text, ends_line=False)
        self._is_line_open = not text.endswith("\n")

    def _part(self) -> None:
        """Leave an empty line between two sections."""
        if self._stream:
            click.echo("\n" if self._is_line_open else "")
