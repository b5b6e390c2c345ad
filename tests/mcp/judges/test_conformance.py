"""The official conformance suite judges both eras and the tasks extension over HTTP."""

from __future__ import annotations

import json
import re

import pytest

TASKS = re.compile("tasks-")
VERDICT = re.compile(r"^([✓✗]) ([\w/-]+): \d+ passed", re.MULTILINE)
UNSCORED = re.compile(r"^  [✓✗] ([\w/-]+) \(", re.MULTILINE)


@pytest.fixture(scope="session")
def verdicts(judge, server_url, tmp_path_factory):
    """Return a function from a revision to the checks of every scenario, which is run once."""
    known = {}

    def look(revision):
        if revision not in known:
            known[revision] = _run(judge, server_url, tmp_path_factory.mktemp(revision), revision)
        return known[revision]

    return look


def _run(judge, server_url, results, revision):
    """Run the suite; return the checks of every scenario, the required ones and the others."""
    done = judge(
        "node_modules/.bin/conformance",
        "server",
        "--url",
        server_url,
        "--requirements",
        revision,
        "-o",
        results,
    )
    names = [name for _, name in VERDICT.findall(done.stdout)]
    assert names, done.stdout[-2000:] + done.stderr[-2000:]
    extra = set(UNSCORED.findall(done.stdout))
    checks = {name: _checks(results, name, done) for name in names}
    required = {name: found for name, found in checks.items() if name not in extra}
    return required, {name: checks[name] for name in extra}


def _checks(results, name, done):
    # One folder for each scenario: server-<scenario>-<time>.
    (folder,) = (f for f in results.iterdir() if re.fullmatch(rf"server-{name}-\d{{4}}-.*", f.name))
    try:
        return json.loads((folder / "checks.json").read_text("utf-8"))
    except FileNotFoundError:
        # A scenario that breaks off says why on standard error alone.
        return [{"id": name, "status": "FAILURE", "errorMessage": done.stderr[-2000:]}]


def _complaints(scenarios, *statuses):
    """Say what the suite found wrong, as it says it."""
    return [
        f"{name}: {check['id']}: {check.get('errorMessage')}"
        for name, checks in scenarios.items()
        for check in checks
        if check["status"] in statuses
    ]


@pytest.mark.parametrize(("revision", "scenarios"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_every_scenario_that_a_revision_requires_passes(verdicts, revision, scenarios):
    """MCP server, checklist 1: conformance in both eras."""
    required, _ = verdicts(revision)
    assert _complaints(required, "FAILURE") == []
    assert len(required) == scenarios


def test_every_scenario_of_the_tasks_extension_passes(verdicts):
    """MCP server, checklist 1: tasks 10/10."""
    _, extra = verdicts("2026-07-28")
    tasks = {name: checks for name, checks in extra.items() if TASKS.match(name)}
    assert _complaints(tasks, "FAILURE") == []
    assert len(tasks) == 10


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_scenarios_that_the_suite_does_not_score_pass_too(verdicts, revision):
    """MCP server, checklist 1: schemas, headers, polling, the end of sessions."""
    _, extra = verdicts(revision)
    assert _complaints(extra, "FAILURE") == []
    assert len(extra) == {"2025-11-25": 3, "2026-07-28": 13}[revision]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_suite_has_nothing_to_recommend(verdicts, revision):
    """MCP server, checklist 1: a warning is something that the protocol says should be so."""
    required, extra = verdicts(revision)
    assert _complaints(required | extra, "WARNING") == []
