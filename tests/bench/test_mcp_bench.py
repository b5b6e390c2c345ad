"""The tables about MCP in a quick run: every contender that is here has figures, every other one a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.mcp_contenders import contenders

ROOT = Path(__file__).parents[2]
GRAMERCY = "gramercy"
BOUND = 120


def quick_run(table: str) -> dict[str, Any]:
    """Run a table as scripts/bench does, in whatever environment this is."""
    command = [sys.executable, "-m", "bench", table, "--child", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    section: dict[str, Any] = json.loads(done.stdout)
    return section


@pytest.mark.parametrize("table", ["mcp-stdio", "mcp-http"])
@pytest.mark.slow
def test_every_server_has_figures_or_a_reason_to_have_none(table: str) -> None:
    """Benchmark: peers are measured beside us, and one that cannot be installed is told, never fatal."""
    section = quick_run(table)
    rows = {row[0]: row[1:] for row in section["rows"]}
    here, absent = contenders()
    assert float(rows[GRAMERCY][0].replace(",", "")) > 0
    assert {name for name, cells in rows.items() if cells[0] == "not installed"} == set(absent)
    told = "\n".join(section["notes"])
    assert all(f"{name} is missing: " in told for name in absent)
    assert all(f"{server.name}: " in told for server in here if server.name in rows)


@pytest.mark.slow
def test_evaluating_over_mcp_is_measured_beside_the_least_it_could_cost() -> None:
    """Benchmark: evaluate-lisp over MCP against the raw loop; where it cannot be, the reason is told."""
    section = quick_run("mcp-images")
    targets = [target for target in section["targets"] if target["text"].startswith("evaluate-lisp")]
    assert len(targets) == 1
    assert targets[0]["met"] is not None or targets[0]["measured"] in section["notes"]


def test_a_cold_call_is_measured_beside_what_could_answer_sooner() -> None:
    """Benchmark: a call after a pause; without the peer its targets are not measured, with a reason."""
    section = quick_run("mcp-cold")
    told = {target["text"]: target for target in section["targets"]}
    assert all(target["met"] is not None or target["measured"] for target in told.values())
    if "not measured" not in section["rows"][0]:
        assert float(section["rows"][0][1]) > 0
        assert "changing calls back to back: at most 2 ms" in told


@pytest.mark.slow
def test_looking_into_an_image_is_measured_beside_evaluating_in_it() -> None:
    """Benchmark: answers about names; each language has one target, or the reason why it was not measured."""
    section = quick_run("looks")
    assert len(section["targets"]) == len({"sbcl", "python"})
    for target in section["targets"]:
        assert target["met"] is not None or target["measured"] in section["notes"]
