"""Figures per tool: calls, success, time, size, waiting."""

from __future__ import annotations

import threading

import pytest

from gramercy import Denied, Executor, Registry, ToolOutput, define_tool
from gramercy.execution.metrics import SAMPLES, Metrics, metrics_table
from gramercy.execution.results import Refuser
from gramercy.journal.statistics import percentile


def test_figures_are_those_of_the_calls(run):
    """Decision 13: per tool calls, success rate, time, result size, approval wait."""
    answers = iter([Denied("no"), "approved", "approved"])

    def handle(arguments):
        if arguments["text"] == "fail":
            raise ValueError("x" * 1_000)
        return ToolOutput("y" * 500, error="bad") if arguments["text"] == "output" else arguments["text"]

    parameters = [{"name": "text", "type": "string"}]
    tools = [
        define_tool("free", "It.", parameters, handler=handle),
        define_tool("asked", "It.", parameters, safety_level="dangerous", handler=handle),
        define_tool("unused", "It.", parameters, handler=handle),
    ]
    executor = Executor(Registry(tools), lambda *_: next(answers))
    for name, text in [
        ("free", "12345"),
        ("free", "123"),
        ("free", "fail"),
        ("free", "output"),
        ("free", 5),
        ("asked", "denied"),
        ("asked", "1234"),
        ("asked", "fail"),
        ("unknown", "x"),
    ]:
        run(executor, {"id": "1", "name": name, "arguments": {"text": text}})
    figures = executor.metrics()
    assert list(figures) == ["asked", "free"]
    free, asked = figures["free"], figures["asked"]
    assert (free.calls, free.succeeded, free.failed, free.denied) == (5, 2, 3, 0)
    assert (asked.calls, asked.succeeded, asked.failed, asked.denied) == (3, 1, 1, 1)
    assert free.success_rate == pytest.approx(0.4)
    assert (free.mean_result_size, asked.mean_result_size) == (4.0, 4.0)
    assert 0 < free.p50_ms <= free.p95_ms
    assert free.mean_approval_wait_ms == 0
    assert asked.mean_approval_wait_ms > 0


@pytest.mark.parametrize(
    ("values", "median", "high"),
    [
        ([], 0.0, 0.0),
        ([7.0], 7.0, 7.0),
        ([1.0, 2.0], 1.0, 2.0),
        ([1.0, 2.0, 3.0], 2.0, 3.0),
        ([float(n) for n in range(1, 21)], 10.0, 19.0),
        ([float(n) for n in range(1, 101)], 50.0, 95.0),
    ],
)
def test_percentiles_are_nearest_ranks(values, median, high):
    """Decision 13: time p50 and p95."""
    assert (percentile(values, 0.50), percentile(values, 0.95)) == (median, high)


def test_counts_are_exact_and_memory_is_bounded_over_many_calls():
    """Style: never unbounded memory; percentiles are of the latest calls."""
    metrics = Metrics()
    for number in range(5 * SAMPLES):
        metrics.record("it", 1.0 if number < 3 * SAMPLES else 2.0, 10)
        assert len(metrics.recent) <= SAMPLES + 1
    figures = metrics.snapshot()["it"]
    assert (figures.calls, figures.succeeded, figures.mean_result_size) == (5 * SAMPLES, 5 * SAMPLES, 10.0)
    assert figures.p50_ms == 2.0
    assert len(metrics._tallies["it"].times) == SAMPLES
    assert metrics.snapshot() == metrics.snapshot()


def test_no_call_is_lost_between_threads():
    """Recording takes no lock, and looking does not disturb it."""
    metrics = Metrics()
    start = threading.Barrier(5)

    def record(name):
        start.wait(10)
        for number in range(3_000):
            metrics.record(name, 1.0, None if number % 3 else 2)
            metrics.record("shared", 1.0, 1)

    threads = [threading.Thread(target=record, args=(f"t{n}",), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    start.wait(10)
    while any(thread.is_alive() for thread in threads):
        metrics.snapshot()
    figures = metrics.snapshot()
    assert figures["shared"].calls == 12_000
    assert [(figures[f"t{n}"].calls, figures[f"t{n}"].failed) for n in range(4)] == [(3_000, 2_000)] * 4


def test_the_table_lines_up():
    """Guard design: one table of timing, success, frequency and result size."""
    metrics = Metrics()
    metrics.record("long_tool_name", 1234.5678, 100)
    metrics.record("a", 0.5, None)
    metrics.record_refusal("a", Refuser.RULE)
    metrics.record_approval("a", 1500.0)
    assert metrics_table(metrics.snapshot()).splitlines() == [
        "tool            calls  ok  failed  denied  success    p50 ms    p95 ms  size  wait ms",
        "a                   2   0       1       1       0%     0.500     0.500     0   1500.0",
        "long_tool_name      1   1       0       0     100%  1234.568  1234.568   100      0.0",
    ]
    assert metrics_table({}).startswith("tool")
    assert Executor(Registry()).metrics_table() == metrics_table({})
