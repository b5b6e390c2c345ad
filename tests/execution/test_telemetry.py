"""Spans: one per run, linked to the wait for approval, without values, and only when telemetry is set up.

A tracer provider can be set once per process, so every test runs in one of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from gramercy import Executor, Registry, define_tool

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))

def handle(arguments):
    with trace.get_tracer("test").start_as_current_span("inner"):
        if arguments["text"] == "fail":
            raise ValueError("SECRET failure")
    return "SECRET result"

async def handle_async(arguments):
    return handle(arguments)

PARAMETERS = [{"name": "text", "type": "string"}]
registry = Registry([
    define_tool("safe_one", "It.", PARAMETERS, handler=handle),
    define_tool("async_one", "It.", PARAMETERS, handler=handle_async, deadline=30),
    define_tool("asked", "It.", PARAMETERS, safety_level="dangerous", handler=handle),
])
executor = Executor(registry, lambda tool, arguments: "denied" if arguments["text"] == "deny" else "approved")

def run(name, text):
    call = {"id": "call_1", "name": name, "arguments": {"text": text}}
    return [executor.execute(call), asyncio.run(executor.aexecute(call))]

def spans():
    found = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
    exporter.clear()
    return found
"""


def answer_of(program):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def outer(spans):
    return [span for span in spans if span["name"] != "inner"]


def test_a_run_is_a_span_with_the_pinned_names():
    """Guard design, Telemetry."""
    spans = answer_of("""
trace.set_tracer_provider(provider)
run("safe_one", "SECRET")
print(json.dumps(spans()))
""")
    assert [span["name"] for span in outer(spans)] == ["execute_tool safe_one"] * 2
    attributes = outer(spans)[0]["attributes"]
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "safe_one",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "gramercy.tool.safety_level": "safe",
    }
    assert outer(spans)[0]["status"]["status_code"] == "UNSET"
    assert "SECRET" not in json.dumps(spans)


def test_spans_made_by_a_handler_are_inside():
    """The handler runs in the span's context, on whatever thread it runs."""
    spans = answer_of("""
trace.set_tracer_provider(provider)
run("safe_one", "x")
run("async_one", "x")
print(json.dumps(spans()))
""")
    parents = {span["context"]["span_id"] for span in outer(spans)}
    inner = [span for span in spans if span["name"] == "inner"]
    assert len(inner) == 4
    assert {span["parent_id"] for span in inner} == parents


def test_a_failure_is_an_error_without_its_text():
    """Guard design, Telemetry: error.type; results are not recorded."""
    spans = answer_of("""
trace.set_tracer_provider(provider)
run("safe_one", "fail")
print(json.dumps(outer := [span for span in spans() if span["name"] != "inner"]))
""")
    for span in spans:
        assert span["attributes"]["error.type"] == "tool_error"
        assert span["status"]["status_code"] == "ERROR"
        assert span["events"] == []
    assert "SECRET" not in json.dumps(spans)


def test_an_approval_wait_is_a_span_of_its_own_linked_to_the_run():
    """Guard design, Telemetry: after an approval wait a new span linked to the first."""
    spans = answer_of("""
trace.set_tracer_provider(provider)
run("asked", "x")
print(json.dumps(spans()))
""")
    waits_and_runs = outer(spans)
    assert len(waits_and_runs) == 4
    for wait, ran in (waits_and_runs[:2], waits_and_runs[2:]):
        assert [link["context"]["span_id"] for link in ran["links"]] == [wait["context"]["span_id"]]
        assert wait["links"] == []
        assert ran["attributes"]["gramercy.approval.approved"] is True
        assert ran["attributes"]["gramercy.approval.wait_ms"] >= 0
        assert wait["end_time"] <= ran["end_time"]


def test_a_denied_call_has_one_span_that_says_so():
    """Guard design, Telemetry: approval decision."""
    spans = answer_of("""
trace.set_tracer_provider(provider)
run("asked", "deny")
executor = executor.with_approver(None)
run("asked", "x")
print(json.dumps(spans()))
""")
    assert len(spans) == 4
    assert [span["attributes"].get("gramercy.approval.approved") for span in spans] == [
        False,
        False,
        None,
        None,
    ]
    assert {span["attributes"]["error.type"] for span in spans} == {"denied"}


def test_a_call_that_waits_for_a_decision_is_not_called_denied(tmp_path):
    """Nobody has refused it: it may run yet."""
    spans = answer_of(f"""
from gramercy.journal.opening import open_journal
trace.set_tracer_provider(provider)
executor = Executor(registry, journal=open_journal({str(tmp_path / "journal.db")!r}), approval_wait=0)
result, _ = run("asked", "x")
assert result.metadata["awaiting"], result
print(json.dumps(spans()))
""")
    assert [span["attributes"]["error.type"] for span in spans] == ["awaiting"] * 2
    assert all("gramercy.approval.denied_by" not in span["attributes"] for span in spans)


def test_every_span_is_ended_also_when_the_caller_goes_away():
    """A span that is never ended is never seen."""
    spans = answer_of("""
trace.set_tracer_provider(provider)

async def main():
    ready = asyncio.Event()
    async def wait(arguments):
        ready.set()
        await asyncio.sleep(30)
    registry.register(define_tool("waiting", "It.", PARAMETERS, handler=wait))
    task = asyncio.create_task(executor.aexecute({"id": "1", "name": "waiting", "arguments": {"text": "x"}}))
    await asyncio.wait_for(ready.wait(), 10)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass

asyncio.run(main())
print(json.dumps(spans()))
""")
    assert [span["name"] for span in spans] == ["execute_tool waiting"]
    assert spans[0]["end_time"]


@pytest.mark.parametrize(
    "setup",
    ["", "trace.set_tracer_provider(trace.NoOpTracerProvider())", "del sys.modules['opentelemetry.trace']"],
)
def test_without_a_provider_there_are_no_spans(setup):
    """Guard design, Telemetry: no-op when nothing is set up."""
    program = f"""
{setup}
from gramercy.execution import telemetry
assert telemetry.active_tracer() is None
results = run("safe_one", "x") + run("asked", "x")
print(json.dumps([[result.success for result in results], spans()]))
"""
    assert answer_of(program) == [[True] * 4, []]


def test_a_provider_that_is_set_later_is_noticed():
    """A program may set telemetry up after its executor."""
    before, after = answer_of("""
run("safe_one", "x")
before = spans()
trace.set_tracer_provider(provider)
run("safe_one", "x")
print(json.dumps([before, spans()]))
""")
    assert before == []
    assert len(outer(after)) == 2


@pytest.mark.parametrize("where", ["on_start", "on_end"])
def test_a_tracer_that_fails_fails_no_call(where):
    """The journal is the record, telemetry a copy."""
    answers = answer_of(f"""
from opentelemetry.sdk.trace import SpanProcessor
class Broken(SpanProcessor):
    def {where}(self, *given, **more):
        raise RuntimeError("broken exporter")
provider.add_span_processor(Broken())
trace.set_tracer_provider(provider)
registry.register(define_tool("plain", "It.", PARAMETERS, handler=lambda arguments: "fine"))
registry.register(define_tool("risky", "It.", PARAMETERS, safety_level="dangerous", handler=lambda _: "fine"))
results = run("plain", "x") + run("risky", "x")
print(json.dumps([result.content for result in results]))
""")
    assert answers == ["fine"] * 4
