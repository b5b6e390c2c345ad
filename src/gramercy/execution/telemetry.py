"""OpenTelemetry spans, if the program has set telemetry up. Only this module has the names.

The API's own no-op spans cost several microseconds, so nothing is done until a real provider is installed.
Telemetry is a copy of what the journal records: a tracer that fails is logged, and the call goes on.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.execution.calls import ToolResult
    from gramercy.tools.tool import Tool

API = "opentelemetry.trace"
# Looked up once: reading the environment costs a microsecond, and every call would do it.
PROVIDER_IS_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
OPERATION = "gen_ai.operation.name"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUESTED = "gen_ai.request.model"
FINISH = "gen_ai.response.finish_reasons"
FIRST_PART = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITTEN = "gen_ai.usage.cache_creation.input_tokens"
SAFETY = "gramercy.tool.safety_level"
APPROVED = "gramercy.approval.approved"
APPROVAL_WAIT = "gramercy.approval.wait_ms"
DENIED_BY = "gramercy.approval.denied_by"
# The metadata of a call that was unsuccessful although its tool has not failed.
NOT_RUN = ("denied", "awaiting", "in_doubt")
# In US dollars; the conventions have no name for it.
COST = "gramercy.usage.cost"

log = logging.getLogger("gramercy")


def active_tracer() -> Any | None:
    """Return a tracer when this process has a real tracer provider, else None."""
    api = sys.modules.get(API)
    # Asking the API itself costs as much as a call of a tool. It is only asked if the private name is
    # missing, or if the environment names a provider that is not loaded yet.
    if api is None or (getattr(api, "_TRACER_PROVIDER", api) is None and not PROVIDER_IS_NAMED):
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return api.get_tracer("gramercy")


class CallTrace:
    """The spans of one call: one for the wait for approval, if any, and one for the run, linked to it."""

    __slots__ = ("call_id", "last", "tool", "tracer")

    def __init__(self, tool: Tool, call_id: str) -> None:
        self.tracer = active_tracer()
        self.tool = tool
        self.call_id = call_id
        self.last: Any = None

    @contextmanager
    def span(self) -> Iterator[None]:
        """Cover a part of the call; the span stays open until the next one starts or the call is finished."""
        if self.tracer is None:
            yield
            return
        with self._begun():
            try:
                yield
            except BaseException:
                self._end()
                raise

    def _begun(self) -> Any:
        """Start a span linked to the previous one; return the context in which it is current."""
        try:
            before, self.last = self.last, self._start()
            if before is not None:
                before.end()
            api = sys.modules[API]
            return api.use_span(self.last, record_exception=False, set_status_on_exception=False)
        except Exception as error:  # noqa: BLE001 - the tracer is not ours
            log.warning("no span for %s: %s", self.tool.name, type(error).__name__)
            return nullcontext()

    def _start(self) -> Any:
        api = sys.modules[API]
        attributes = {
            OPERATION: "execute_tool",
            TOOL_NAME: self.tool.name,
            TOOL_TYPE: "function",
            CALL_ID: self.call_id,
            SAFETY: self.tool.safety_level.value,
        }
        links = [api.Link(self.last.get_span_context())] if self.last is not None else None
        tracer: Any = self.tracer
        return tracer.start_span(f"execute_tool {self.tool.name}", attributes=attributes, links=links)

    def finished(self, result: ToolResult) -> ToolResult:
        """End the last span with the outcome of the call. Arguments and results are never recorded."""
        if self.last is not None:
            with suppress(Exception):
                self._describe(result)
            self._end()
        return result

    def _describe(self, result: ToolResult) -> None:
        approved = result.metadata.get("approved")
        if approved is not None:
            self.last.set_attribute(APPROVED, approved)
            self.last.set_attribute(APPROVAL_WAIT, result.metadata["approval_wait_ms"])
        if not result.success:
            if "denied_by" in result.metadata:
                self.last.set_attribute(DENIED_BY, result.metadata["denied_by"])
            kind = next((word for word in NOT_RUN if word in result.metadata), "tool_error")
            self.last.set_attribute(ERROR_TYPE, kind)
            self.last.set_status(sys.modules[API].StatusCode.ERROR)

    def _end(self) -> None:
        try:
            self.last.end()
        except Exception as error:  # noqa: BLE001 - the exporter is not ours
            log.warning("the span of %s was not ended: %s", self.tool.name, type(error).__name__)


class Span:
    """One span around a piece of work, current inside of it; does nothing if telemetry is not set up."""

    __slots__ = ("_attributes", "_context", "_is_remote", "_name", "_span")

    def __init__(self, name: str, attributes: dict[str, Any], *, is_remote: bool = False) -> None:
        self._name, self._attributes, self._is_remote = name, attributes, is_remote
        self._span: Any = None
        self._context: Any = None

    def __enter__(self) -> None:
        tracer = active_tracer()
        if tracer is None:
            return
        try:
            api = sys.modules[API]
            kind = api.SpanKind.CLIENT if self._is_remote else api.SpanKind.INTERNAL
            self._span = tracer.start_span(self._name, kind=kind, attributes=self._attributes)
            self._context = api.use_span(self._span, record_exception=False, set_status_on_exception=False)
            self._context.__enter__()
        except Exception as error:  # noqa: BLE001 - the tracer is not ours
            log.warning("no span for %s: %s", self._name, type(error).__name__)

    def end(self, error: BaseException | None, attributes: dict[str, Any]) -> None:
        """End the span with the outcome of the work; only the class of an error is recorded."""
        if self._span is None:
            return
        try:
            if self._context is not None:
                self._context.__exit__(None, None, None)
            self._span.set_attributes(attributes)
            if error is not None:
                self._span.set_attribute(ERROR_TYPE, type(error).__name__)
                self._span.set_status(sys.modules[API].StatusCode.ERROR)
            self._span.end()
        except Exception as problem:  # noqa: BLE001 - the exporter is not ours
            log.warning("the span of %s was not ended: %s", self._name, type(problem).__name__)
