"""Run all tables or the named ones, each in a process of its own, and print or write them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec

from bench.facts import machine_facts, version_facts
from bench.measure import Effort
from bench.report import Section, to_markdown, to_text

TABLES = {
    "call": "call_cost",
    "import": "import_cost",
    "growth": "growth",
    "gram": "gram_speed",
    "validation": "validation",
    "errors": "error_texts",
    "images": "images",
    "moments": "moments",
    "looks": "looks",
    "projects": "projects",
    "search": "searching",
    "journal": "journal",
    "journal-shared": "journal_shared",
    "agents": "agents",
    "mcp-stdio": "mcp_stdio",
    "mcp-http": "mcp_http",
    "mcp-images": "mcp_images",
    "mcp-cold": "mcp_cold",
}
DOCUMENT = Path("docs/reference/benchmarks.md")
HEAD = """# Benchmarks

Made by `scripts/bench --write`, which installs the peers into an environment of their own and measures
everybody in turns. Absolute figures differ from machine to machine; the ratios are what counts.
`scripts/bench` prints the same tables, `scripts/bench NAME` one of them ({names}),
and both exit with 1 when a target is missed. The versions of the peers are pinned in `bench/constraints.txt`,
whose head says where they are not the newest and why.
"""


def main() -> int:
    """Run the command line."""
    options = _options()
    if options.child:
        sys.stdout.buffer.write(msgspec.json.encode(_measure(options.tables[0], quick=options.quick)))
        return 0
    sections = []
    for name in options.tables or TABLES:
        section = _measure_apart(name, quick=options.quick)
        print(to_text(section), flush=True)
        sections.append(section)
    if options.write:
        DOCUMENT.parent.mkdir(parents=True, exist_ok=True)
        DOCUMENT.write_text(document(sections), encoding="utf-8")
    targets = [target for section in sections for target in section.targets]
    missed = [target for target in targets if target.met is False]
    print(
        f"{sum(target.met is True for target in targets)} of {len(targets)} targets met, {len(missed)} missed"
    )
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure gramercy beside its peers.")
    parser.add_argument("tables", nargs="*", metavar="NAME", help=f"one of {', '.join(TABLES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT}")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"unknown table {unknown[0]!r}; expected one of {', '.join(TABLES)}")
    if options.write and (options.quick or options.tables):
        parser.error("--write publishes every table at full length: leave out --quick and NAME")
    return options


def _measure(name: str, *, quick: bool) -> Section:
    section: Section = import_module(f"bench.{TABLES[name]}").measure(
        Effort.smoke() if quick else Effort.full()
    )
    return section


def _measure_apart(name: str, *, quick: bool) -> Section:
    """Measure in a new process, so that no table pays for what another one loaded."""
    command = [sys.executable, "-m", "bench", name, "--child", *(["--quick"] if quick else [])]
    child = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if child.returncode != 0:
        sys.exit(
            f"scripts/bench: table {name} failed with exit code {child.returncode}; its message is above"
        )
    return msgspec.json.decode(child.stdout, type=Section)


def document(sections: list[Section]) -> str:
    """Lay out the page of the documentation."""
    facts = [*machine_facts(), ", ".join(version_facts())]
    parts = [
        HEAD.format(names=", ".join(f"`{name}`" for name in TABLES)),
        *(f"- {fact}" for fact in facts),
        "",
    ]
    return "\n".join(parts) + "\n" + "\n".join(to_markdown(section) for section in sections)


if __name__ == "__main__":
    sys.exit(main())
