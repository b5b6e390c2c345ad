"""Draw docs/tour.svg, the picture in the README, from a real run of the tour; `--check` only compares.

Every line is a text element, so that the picture can be searched, read aloud and checked. Needs nothing but
gramercy itself, and a sandbox for its live image.
"""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

import re
import subprocess
import sys
from html import escape, unescape
from pathlib import Path

PICTURE = Path(__file__).with_name("tour.svg")
COMMAND = "gramercy tour --language python"
# What is drawn of the tour; the rest is an ellipsis.
SCENES = ("An approval is sealed", "What breaks can be taken back", "The image is crashed")
# Different from run to run: a time of day, the memory of a process, the number of a checkpoint.
VARYING = re.compile(r"\d\d:\d\d:\d\d|\d+(\.\d+)? [KMG]B|\bc\d+\b")
SECONDS = 60

# In pixels. A letter of a fixed-width font is 0.6 of its size wide; each line is fitted to that.
SIZE, LETTER, LINE, MARGIN = 14, 8.4, 20, 16
COLORS = {
    "$": "#8b949e",
    "──": "#ffffff",
    "person": "#e3b341",
    "meanwhile": "#e3b341",
    "error": "#ff7b72",
    "result": "#7ee787",
}
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
PLAIN, PAPER = "#c9d1d9", "#0d1117"


def run_tour() -> str:
    """Return what the tour prints."""
    command = [sys.executable, "-m", *COMMAND.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)  # noqa: S603 - our own words
    return done.stdout


def lines_of(printed: str) -> list[str]:
    """Return the lines of the picture: the command, and the chosen scenes."""
    lines = [f"$ {COMMAND}"]
    for scene in printed.split("\n── ")[1:]:
        if scene.startswith(SCENES):
            lines += ["…" if len(lines) == 1 else "", *f"── {scene.rstrip()}".splitlines()]
    return lines


def draw(lines: list[str]) -> str:
    """Write the picture."""
    width = round(max(map(len, lines)) * LETTER) + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
        f'<g font-family="{FONTS}" font-size="{SIZE}" xml:space="preserve">',
    ]
    color = PLAIN
    for number, line in enumerate(lines):
        # A line that is empty or indented goes on with what the line above says.
        color = color if line[:1] in ("", " ") else _color(line)
        drawn += _text(line, MARGIN + number * LINE + SIZE, color)
    return "\n".join([*drawn, "</g>", "</svg>", ""])


def _color(line: str) -> str:
    return next((color for start, color in COLORS.items() if line.startswith(start)), PLAIN)


def _text(line: str, y: int, color: str) -> list[str]:
    text = line.lstrip()
    if not text:
        return []
    x = MARGIN + (len(line) - len(text)) * LETTER
    weight = ' font-weight="bold"' if line.startswith("──") else ""
    fit = f'textLength="{len(text) * LETTER:.1f}" lengthAdjust="spacingAndGlyphs"'
    return [f'<text x="{x:.1f}" y="{y}" fill="{color}"{weight} {fit}>{escape(text)}</text>']


def drawn_lines(picture: str) -> list[str]:
    """Return the texts in a picture, without their indentation."""
    return [unescape(text) for text in re.findall(r"<text [^>]*>([^<]*)</text>", picture)]


def constant(lines: list[str]) -> list[str]:
    """Return what has to be the same in every run."""
    return [VARYING.sub("#", line.strip()) for line in lines if line.strip()]


def main(arguments: list[str]) -> int:
    """Draw the picture, or tell whether it still shows what the tour prints."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: docs/picture.py [--check]\n")
        return 2
    lines = lines_of(run_tour())
    if not arguments:
        PICTURE.write_text(draw(lines), encoding="utf-8")
    elif constant(drawn_lines(PICTURE.read_text(encoding="utf-8"))) != constant(lines):
        sys.stderr.write(f"{PICTURE} does not show what the tour prints: run docs/picture.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
