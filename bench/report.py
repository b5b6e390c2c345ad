"""What a measurement reports: a table, notes on fairness, targets met or not; as text or as Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field

CELL_GAP = "  "


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach. `met` is None when it could not be measured here, and `measured` says why."""

    text: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """Say met, NOT met or not measured."""
        return {True: "met", False: "NOT met", None: "not measured"}[self.met]


@dataclass(frozen=True, slots=True)
class Section:
    """One table of results."""

    name: str
    title: str
    intro: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = field(default=())


def at_most(text: str, measured: float, limit: float, unit: str = "") -> Target:
    """Make a target that is met at or below the limit."""
    return Target(f"{text}: at most {limit:g}{unit}", f"{show(measured)}{unit}", measured <= limit)


def at_least(text: str, measured: float, limit: float, unit: str = "") -> Target:
    """Make a target that is met at or above the limit."""
    return Target(f"{text}: at least {limit:g}{unit}", f"{show(measured)}{unit}", measured >= limit)


def absent_rows(absent: dict[str, str], columns: int) -> list[tuple[str, ...]]:
    """Make a row for each peer that is not there; the reason belongs into the notes."""
    return [(name, "not installed", *[""] * (columns - 2)) for name in absent]


def show(figure: float) -> str:
    """Print a figure with three significant digits and without an exponent."""
    size = abs(figure)
    if size >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if size >= 10 else f"{figure:.2f}" if size >= 0.1 else f"{figure:.4f}"


def to_text(section: Section) -> str:
    """Lay a section out for a terminal."""
    lines = [f"== {section.title}", section.intro, "", *_aligned(section.columns, section.rows), ""]
    lines += [
        f"  {t.verdict.upper() if t.met is False else t.verdict}: {t.text} ({t.measured})"
        for t in section.targets
    ]
    lines += [f"  - {note}" for note in section.notes]
    return "\n".join(lines) + "\n"


def _aligned(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = []
    for row in (columns, *rows):
        head, *rest = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(CELL_GAP.join((head, *rest)).rstrip())
    return lines


def to_markdown(section: Section) -> str:
    """Lay a section out for the documentation."""
    lines = [f"## {section.title}", "", section.intro, ""]
    lines += [_row(section.columns), "|---|" + "---:|" * (len(section.columns) - 1)]
    lines += [_row(row) for row in section.rows]
    if section.targets:
        lines += ["", "| target | measured | |", "|---|---:|---|"]
        lines += [_row((t.text, t.measured, t.verdict)) for t in section.targets]
    if section.notes:
        lines += ["", *(f"- {note}" for note in section.notes)]
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
