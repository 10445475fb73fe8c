"""Traces: a span for each run or diagnosis and one for each of its probes, sent to a collector by OTLP over HTTP.

The only module that needs the extra `otel`, so it is imported where traces are configured. All variables of
OpenTelemetry hold, because its own SDK reads them. Spans hold outcomes, never queries or answers.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from typing import Final

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from app.base.values import Answer, Outcome, RunStatus, replace
from app.records.store.open_runs import ClaimedRun
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery
from app.runs.service.finalising import EndedRun

logger = logging.getLogger("coalmine.tracing")

CLOSE_SECONDS: Final = 5.0
"""Time for sending the last spans when the process ends."""
_SECOND: Final = 1_000_000_000

Answers = Sequence[tuple[int, Answer]]

_NOTHING = Context()
_RUN: ContextVar[Span | None] = ContextVar("run", default=None)
"""Parent of probes. Not OpenTelemetry's own context: other libraries would send that along, as of the run."""


def open_tracing(user_agent: str) -> "Tracing":
    """Start tracing as the variables of OpenTelemetry say."""
    name, _, version = user_agent.partition("/")
    # Merged in this order, what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say wins.
    resource = Resource({SERVICE_NAME: name, SERVICE_VERSION: version}).merge(OTELResourceDetector().detect())
    return Tracing(resource)


class Tracing:
    """Traces runs and their probes. Without `endpoint` and `sampler` those of the environment hold."""

    def __init__(self, resource: Resource, *, endpoint: str | None = None, sampler: Sampler | None = None) -> None:
        self._log_handler = _SdkLogHandler()  # first: the SDK speaks while it is built
        session = requests.Session()
        session.trust_env = False  # as everywhere here the environment's proxy is ignored, and so is .netrc
        self._exporter = _ReportingExporter(OTLPSpanExporter(endpoint=endpoint, session=session), self._log_handler)
        self._provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("coalmine")

    def run(self, claimed: ClaimedRun, execute: Callable[[], EndedRun | None]) -> EndedRun | None:
        """Execute a run within a span, which stays open until the run ended or was released."""
        attributes: Mapping[str, str | bool] = {
            "coalmine.run.id": str(claimed.id),
            "coalmine.check": claimed.check,
            "coalmine.run.trigger": claimed.trigger,
            "coalmine.run.resumed": claimed.resumed,
        }
        span = self._tracer.start_span("run", context=_NOTHING, attributes=attributes)
        entered = _RUN.set(span)
        try:
            ended = execute()
        except BaseException:
            span.set_status(Status(StatusCode.ERROR))  # a bug or a store out of reach; the log says which
            raise
        else:
            if ended is not None:
                _set_run_attributes(span, ended)
            return ended
        finally:
            span.end()
            _RUN.reset(entered)

    def probe(self, probe: Probe) -> Probe:
        """Wrap the probe, so that each query has a span below that of its run or diagnosis."""

        def probe_with_spans(context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Answers]:
            run = _RUN.get()
            parent = self._diagnosis(context) if run is None else run
            probe_spans = _ProbeSpans(self._tracer, parent, context)
            try:
                answers = probe(replace(context, trace=probe_spans), queries)
            except BaseException:  # it cannot be asked at all
                if run is None:
                    parent.end()
                raise
            return probe_spans.answers(answers, queries, last=parent if run is None else None)

        return probe_with_spans

    def _diagnosis(self, context: ProbeContext) -> Span:
        """Open the span of a diagnosis, which queries after its run has ended."""
        attributes = {"coalmine.run.id": context.run_id, "coalmine.retriever": context.retriever.slug}
        return self._tracer.start_span("diagnosis", context=_NOTHING, attributes=attributes)

    def close(self, *, timeout: float = CLOSE_SECONDS) -> None:
        """Send the remaining spans, up to a time limit."""
        last = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        last.start()
        last.join(timeout)
        if last.is_alive():
            self._exporter.shutdown()
        self._log_handler.close()


class _ProbeSpans:
    """Spans of the probes of one run or diagnosis: begun in the threads of transports, ended with their answers."""

    def __init__(self, tracer: Tracer, run: Span, context: ProbeContext) -> None:
        self._tracer = tracer
        self._run = run
        self._retriever = context.retriever.slug
        self._context = trace.set_span_in_context(run)
        self._open: dict[int, Span] = {}

    @property
    def traceparent(self) -> str:
        """The run's; see `Trace`."""
        return _traceparent(self._run)

    def begin(self, item: ProbeQuery) -> str:
        """Open the span of a probe, once; see `Trace`."""
        span = self._open.get(item.position)
        if span is None:
            span = self._open[item.position] = self._span(item, time.time_ns())
        return _traceparent(span)

    def answers(
        self, answers: Iterator[Answers], queries: Sequence[ProbeQuery], *, last: Span | None
    ) -> Iterator[Answers]:
        """Yield the answers, and end their spans; `last` is one to be ended after all of them."""
        by_position = {item.position: item for item in queries}
        try:
            with closing(answers) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
                for batch in batches:
                    for position, answer in batch:
                        self._end(by_position[position], answer)
                    yield batch
        finally:
            while self._open:  # nobody waited for the rest
                self._open.popitem()[1].end()
            if last is not None:
                last.end()

    def _end(self, item: ProbeQuery, answer: Answer) -> None:
        now = time.time_ns()
        span = self._open.pop(item.position, None)
        if span is None:  # a retriever that takes no headers, or one that was never reached
            span = self._span(item, now - int(answer.latency_seconds * _SECOND))
        if span.is_recording():
            span.set_attribute("coalmine.probe.outcome", str(answer.outcome))
            span.set_attribute("coalmine.probe.latency_seconds", answer.latency_seconds)
            if answer.http_status is not None:
                span.set_attribute("http.response.status_code", answer.http_status)
            if answer.outcome is not Outcome.OK:
                span.set_status(Status(StatusCode.ERROR, str(answer.outcome)))
        span.end(now)

    def _span(self, item: ProbeQuery, start: int) -> Span:
        attributes = {"coalmine.canary": item.key, "peer.service": self._retriever}
        return self._tracer.start_span(
            "probe", context=self._context, kind=SpanKind.CLIENT, attributes=attributes, start_time=start
        )


def _set_run_attributes(span: Span, ended: EndedRun) -> None:
    span.set_attribute("coalmine.suite", ended.suite)
    span.set_attribute("coalmine.retriever", ended.retriever)
    span.set_attribute("coalmine.run.status", str(ended.status))
    span.set_attribute("coalmine.verdict", str(ended.verdict))
    span.set_attribute("coalmine.canaries.degraded", ended.degraded)
    for outcome, count in ended.probes.items():
        span.set_attribute(f"coalmine.probes.{outcome}", count)
    if ended.status is not RunStatus.FINISHED:
        span.set_status(Status(StatusCode.ERROR, str(ended.status)))


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


# --- an unreachable collector ------------------------------------------------------------------------------------


class _SdkLogHandler(logging.Handler):
    """Keeps the last line the SDK logs about sending, and logs its other lines once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._logged: set[str] = set()
        self._logger = logging.getLogger("opentelemetry")
        self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Handle one line."""
        if record.name.startswith("opentelemetry.exporter.") and record.levelno < logging.ERROR:
            self.last = record.getMessage()  # why it is tried again, which the last line does not repeat
        elif record.name.startswith("opentelemetry.exporter."):
            self.last = self.last or record.getMessage()
        elif str(record.msg) not in self._logged:
            self._logged.add(str(record.msg))
            logger.warning("tracing", extra={"detail": record.getMessage()})

    def reset(self) -> None:
        """Forget the lines so far: the error is over."""
        self.last = ""
        self._logged.clear()

    def close(self) -> None:
        """Let the SDK log as it likes."""
        self._logger.removeHandler(self)
        self._logger.propagate = True
        super().close()


class _ReportingExporter(SpanExporter):
    """Sends spans; logs once that they do not arrive, and once that they do again."""

    def __init__(self, exporter: SpanExporter, log_handler: _SdkLogHandler) -> None:
        self._exporter = exporter
        self._log_handler = log_handler
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; see SpanExporter."""
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            logger.warning("traces_not_sent", extra={"detail": self._log_handler.last})
        elif self._failing and not failed:
            logger.info("traces_sent_again")
        if not failed:
            self._log_handler.reset()
        self._failing = failed
        return result

    def shutdown(self) -> None:
        """Give up the spans that are left; see SpanExporter."""
        self._exporter.shutdown()
