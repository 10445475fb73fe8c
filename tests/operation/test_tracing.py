"""Traces: spans of runs and probes at a real receiver of OTLP, and the retriever that is told which span it serves."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from app.base.addresses import hook_policy, retriever_policy
from app.base.errors import ConfigurationError, InvalidInputError, StoreUnavailableError
from app.base.values import Answer, Outcome, RunStatus, Verdict, replace
from app.config import read_trace_endpoint
from app.records.store.open_runs import ClaimedRun
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import (
    Dialect,
    Probe,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
)
from app.runs.service.finalising import EndedRun
from app.tracing import Tracing
from tests.support.fakes import FakeProbe
from tests.support.fakes import failed as failed_answer
from tests.support.http_servers import HANG, Peer, Reply, Seen, closed_port, peer, reply
from tests.support.living import until
from tests.support.mcp_peers import Tool, result
from tests.support.probed import retriever_at
from tests.support.processes import ROOT, free_ports, started

pytestmark = pytest.mark.systems

GOOD = reply(b'{"results": [{"id": "doc-alpha", "text": "a text that was retrieved"}]}')
ACCEPTED = reply(b"")
CLAIMED = ClaimedRun(id=812, check_id=1, check="watch", trigger="update", resumed=False, started_at=0, created_at=0)
ENDED = EndedRun(
    id=812,
    check_id=1,
    check="watch",
    suite="handbook",
    retriever="docs",
    status=RunStatus.FINISHED,
    verdict=Verdict.DEGRADED,
    probes={"ok": 1, "timeout": 1},
    latencies=(0.1,),
    duration_seconds=1.0,
    degraded=1,
)
WATCH = """
suite: handbook
canaries:
  - {key: first, query: what is asked first, expected_chunks: [doc-alpha]}
  - {key: second, query: what is asked second, expected_chunks: [doc-beta]}
retrievers:
  - slug: docs
    url: "%s/search?token=in-the-url"
    response: {hits: results, id: id, text: text}
checks:
- slug: watch
  suite: handbook
  retriever: docs
  schedule: {every: 1d}
  rules: [{kind: threshold, measure: coverage, critical: {below: 0.9}}]
"""


# --- a receiver ----------------------------------------------------------------------------------------------


@dataclass
class Collector:
    """What a collector was sent, decoded by the protocol's own package."""

    peer: Peer

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        """Give what came."""
        return [ExportTraceServiceRequest.FromString(seen.body) for seen in self.peer.seen]

    @property
    def spans(self) -> list[Span]:
        """Give every span, first come first."""
        return [
            span
            for request in self.requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    @property
    def run(self) -> Span:
        """Give the span of the only run."""
        (found,) = [span for span in self.spans if span.name == "run"]
        return found

    @property
    def probes(self) -> dict[str, Span]:
        """Give the spans of probes by canary."""
        spans = [span for span in self.spans if span.name == "probe"]
        found = {str(told(span.attributes)["coalmine.canary"]): span for span in spans}
        assert len(found) == len(spans)
        return found


@contextmanager
def collector(answer: Callable[[Seen], Reply] | Reply = ACCEPTED) -> Iterator[Collector]:
    with peer(answer) as server:
        yield Collector(server)


def told(attributes: Sequence[KeyValue]) -> dict[str, Any]:
    """Read attributes."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in attributes}


def parent_of(span: Span) -> str:
    """Write what the retriever must have been sent by the probe of this span: sampled, of a random trace id."""
    return f"00-{span.trace_id.hex()}-{span.span_id.hex()}-03"


@contextmanager
def tracing(url: str, **more: Any) -> Iterator[Tracing]:
    made = Tracing(Resource({"service.name": "coalmine"}), endpoint=f"{url}/v1/traces", **more)
    try:
        yield made
    finally:
        made.close()


@dataclass
class Running:
    """A run as the worker carries it out, of nothing but its probes."""

    tracing: Tracing
    retriever: Retriever
    keys: Sequence[str] = ("first", "second")
    probe: Probe = field(default_factory=lambda: RetrieverProbe(retriever_policy(), "coalmine/1.0"))
    stop: Callable[[], bool] = lambda: False

    def __call__(self) -> dict[int, Answer]:
        """Carry it out and give the answers."""
        answers: dict[int, Answer] = {}

        def execute() -> EndedRun:
            answers.update(self.ask())
            return ENDED

        assert self.tracing.run(CLAIMED, execute) is ENDED
        return answers

    def ask(self) -> dict[int, Answer]:
        """Ask, by the probe that traces."""
        asking = ProbeContext(retriever=self.retriever, k=3, run_id="812")
        asks = [ProbeQuery(position=position, query=f"asked {key}", key=key) for position, key in enumerate(self.keys)]
        found: dict[int, Answer] = {}
        with closing(self.tracing.probe(self.probe)(asking, asks)) as batches:  # type: ignore[type-var] # see Probe
            for batch in batches:
                found |= dict(batch)
                if self.stop():
                    break
        return found


def docs(url: str, **changes: Any) -> Retriever:
    response = ResponseMapping(hits="results", id="id", text="text")
    return retriever_at(url, **{"json": {"q": "{{ query }}"}, "response": response, **changes})


# --- the whole of it -----------------------------------------------------------------------------------------


def test_a_service_traces_its_runs_and_the_retriever_hears_of_its_span(tmp_path: Path) -> None:
    with collector() as traces, peer(GOOD) as retriever, closed_port() as nobody:
        files = tmp_path / "canaries.yaml"
        files.write_text(WATCH % retriever.url, encoding="utf-8")
        port = free_ports()
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": traces.peer.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=search",
            "OTEL_SERVICE_NAME": "coalmine-staging",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=staging",
            "HTTP_PROXY": f"http://127.0.0.1:{nobody}",
            "http_proxy": f"http://127.0.0.1:{nobody}",
            "NO_PROXY": "",
            "no_proxy": "",
        }
        data = ("--data-dir", tmp_path / "data", "--canaries", files)
        with started(tmp_path, "serve", "--port", port, *data, **environment) as process:
            process.wait_for("is serving")
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=90) as client:
                wish = {"trigger": "update", "wait_seconds": 30}
                run = client.post("/v1/checks/watch/runs", json=wish).raise_for_status().json()
            assert process.end(signal.SIGTERM) == 0
        (of_run,) = [one for one in traces.spans if told(one.attributes).get("coalmine.run.id") == run["id"]]
        probes = [one for one in traces.spans if one.parent_span_id == of_run.span_id]
        assert told(of_run.attributes) == {
            "coalmine.run.id": run["id"],
            "coalmine.check": "watch",
            "coalmine.suite": "handbook",
            "coalmine.retriever": "docs",
            "coalmine.run.trigger": "update",
            "coalmine.run.resumed": False,
            "coalmine.run.status": "finished",
            "coalmine.verdict": "degraded",
            "coalmine.canaries.degraded": 1,
            "coalmine.probes.ok": 2,
        }
        assert of_run.status.code == Status.STATUS_CODE_UNSET
        assert of_run.parent_span_id == b""
        assert {one.trace_id for one in probes} == {of_run.trace_id}
        assert {told(one.attributes)["coalmine.canary"] for one in probes} == {"first", "second"}
        # Every question told the retriever which span it is, those of the first scheduled run and diagnoses included.
        sent = [seen.headers["traceparent"] for seen in retriever.seen]
        assert sorted(sent) == sorted(parent_of(one) for one in traces.spans if one.name == "probe")
        resource = told(traces.requests[0].resource_spans[0].resource.attributes)
        assert resource["service.name"] == "coalmine-staging"
        assert resource["deployment.environment"] == "staging"
        assert {seen.headers["x-tenant"] for seen in traces.peer.seen} == {"search"}
        assert {seen.target for seen in traces.peer.seen} == {"/v1/traces"}
        for secret in (b"what is asked", b"in-the-url", b"retrieved", retriever.url.encode(), b"doc-alpha"):
            assert not any(secret in seen.body for seen in traces.peer.seen)


def test_a_service_whose_collector_is_dead_runs_and_stops_as_ever_and_says_so_once(tmp_path: Path) -> None:
    with peer(GOOD) as retriever, closed_port() as nobody:
        files = tmp_path / "canaries.yaml"
        files.write_text(WATCH % retriever.url, encoding="utf-8")
        port = free_ports()
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{nobody}/?key=in-the-url",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        data = ("--data-dir", tmp_path / "data", "--canaries", files)
        with started(tmp_path, "serve", "--port", port, *data, **environment) as process:
            process.wait_for("is serving")
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=90) as client:
                for _ in range(2):
                    run = client.post("/v1/checks/watch/runs", json={"wait_seconds": 30}).raise_for_status().json()
                    assert run["status"] == "finished"
                    process.wait_for("traces_not_sent")
            assert process.end(signal.SIGTERM) == 0
        assert process.said.count("traces_not_sent") == 1
        assert "in-the-url" not in process.said
        assert "opentelemetry" not in process.said


# --- a probe -------------------------------------------------------------------------------------------------


def test_each_way_a_probe_ends_is_told_by_its_span() -> None:
    def answer(seen: Seen) -> Reply:
        return reply(b"{}", 503) if b"second" in seen.body else GOOD

    with collector() as traces, peer(answer) as retriever:
        with tracing(traces.peer.url) as made:
            answers = Running(made, docs(retriever.url))()
        good, bad = traces.probes["first"], traces.probes["second"]
        assert told(good.attributes) == {
            "coalmine.canary": "first",
            "peer.service": "docs",
            "coalmine.probe.outcome": "ok",
            "coalmine.probe.latency_seconds": answers[0].latency_seconds,
            "http.response.status_code": 200,
        }
        assert good.kind == Span.SPAN_KIND_CLIENT
        assert good.status.code == Status.STATUS_CODE_UNSET
        assert told(bad.attributes)["http.response.status_code"] == 503
        assert (bad.status.code, bad.status.message) == (Status.STATUS_CODE_ERROR, "refused")
        run = traces.run
        for probe in (good, bad):
            assert probe.parent_span_id == run.span_id
            lasted = probe.end_time_unix_nano - probe.start_time_unix_nano
            assert lasted >= told(probe.attributes)["coalmine.probe.latency_seconds"] * 1e9
            assert run.start_time_unix_nano <= probe.start_time_unix_nano
            assert probe.end_time_unix_nano <= run.end_time_unix_nano
        sent = {json.loads(seen.body)["q"]: seen.headers["traceparent"] for seen in retriever.seen}
        assert sent == {"asked first": parent_of(good), "asked second": parent_of(bad)}


def test_a_probe_that_never_left_has_a_span_too() -> None:
    with collector() as traces:
        with tracing(traces.peer.url) as made:
            probe = RetrieverProbe(hook_policy(()), "coalmine/1.0")
            Running(made, docs("http://127.0.0.1:1/"), probe=probe)()
            fake = FakeProbe(otherwise=lambda _: failed_answer(Outcome.TIMEOUT))
            Running(made, docs("http://search.test/"), keys=["third"], probe=fake)()
        assert {key: span.status.message for key, span in traces.probes.items()} == {
            "first": "blocked",
            "second": "blocked",
            "third": "timeout",
        }
        third = traces.probes["third"]
        assert third.end_time_unix_nano - third.start_time_unix_nano == 250_000_000  # as long as its answer took


def test_a_traceparent_of_ones_own_is_left_alone() -> None:
    with collector() as traces, peer(GOOD) as retriever, peer(Tool(call=lambda _: result({"results": []}))) as tool:
        mine = {"Traceparent": "00-1"}
        with tracing(traces.peer.url) as made:
            Running(made, docs(retriever.url, headers=mine))()
            Running(made, mcp(tool.url, headers=mine), keys=["third"])()
        assert {seen.headers["traceparent"] for seen in (*retriever.seen, *tool.seen)} == {"00-1"}
        assert set(traces.probes) == {"first", "second", "third"}


def mcp(url: str, **changes: Any) -> Retriever:
    return docs(f"{url}/mcp", dialect=Dialect.MCP, tool="search", **changes)


def test_a_tool_is_told_in_the_call_and_in_its_header_which_span_it_serves() -> None:
    with collector() as traces, peer(Tool(call=lambda _: result({"results": []}))) as tool:
        with tracing(traces.peer.url) as made:
            Running(made, mcp(tool.url))()
        calls = [seen for seen in tool.seen if b"tools/call" in seen.body]
        sent = {}
        for seen in calls:
            params = json.loads(seen.body)["params"]
            assert params["_meta"]["traceparent"] == seen.headers["traceparent"]
            sent[params["arguments"]["q"]] = seen.headers["traceparent"]
        assert sent == {f"asked {key}": parent_of(span) for key, span in traces.probes.items()}
        others = {seen.headers["traceparent"] for seen in tool.seen if seen not in calls}
        assert others == {parent_of(traces.run)}


def test_probes_whose_answers_nobody_waited_for_are_closed_with_the_run() -> None:
    def answer(seen: Seen) -> Reply:
        return HANG if b"second" in seen.body else GOOD

    with collector() as traces, peer(answer) as retriever:
        with tracing(traces.peer.url) as made:
            answers = Running(made, docs(retriever.url), stop=lambda: len(retriever.seen) == 2)()
        assert 1 not in answers
        assert told(traces.probes["second"].attributes) == {"coalmine.canary": "second", "peer.service": "docs"}
        assert parent_of(traces.probes["second"]) in {seen.headers["traceparent"] for seen in retriever.seen}


def test_what_is_asked_when_a_run_is_over_has_a_trace_of_its_own() -> None:
    with collector() as traces, peer(GOOD) as retriever:
        with tracing(traces.peer.url) as made:
            assert len(Running(made, docs(retriever.url)).ask()) == 2
        (diagnosis,) = [span for span in traces.spans if span.name == "diagnosis"]
        assert told(diagnosis.attributes) == {"coalmine.run.id": "812", "coalmine.retriever": "docs"}
        assert {span.parent_span_id for span in traces.probes.values()} == {diagnosis.span_id}
        assert sorted(map(parent_of, traces.probes.values())) == sorted(
            seen.headers["traceparent"] for seen in retriever.seen
        )


def test_a_retriever_that_cannot_be_asked_is_refused_at_once() -> None:
    with collector() as traces:
        with tracing(traces.peer.url) as made:
            nonsense = docs("http://search.test/", method="SHOUT")
            with pytest.raises(InvalidInputError, match="method"):
                made.probe(RetrieverProbe(retriever_policy(), "coalmine/1.0"))(
                    ProbeContext(retriever=nonsense, k=3, run_id="812"), []
                )
        assert [span.name for span in traces.spans] == ["diagnosis"]


# --- a run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [RunStatus.PARTIAL, RunStatus.FAILED])
def test_a_run_that_did_not_come_to_its_end_is_an_error(status: RunStatus) -> None:
    with collector() as traces:
        with tracing(traces.peer.url) as made:
            made.run(CLAIMED, lambda: replace(ENDED, status=status))
        assert (traces.run.status.code, traces.run.status.message) == (Status.STATUS_CODE_ERROR, str(status))


def test_a_run_that_was_let_go_of_says_no_verdict() -> None:
    with collector() as traces:
        with tracing(traces.peer.url) as made:
            assert made.run(replace(CLAIMED, resumed=True), lambda: None) is None
        attributes = told(traces.run.attributes)
        assert attributes["coalmine.run.resumed"] is True
        assert "coalmine.verdict" not in attributes


def test_an_error_of_our_own_is_raised_and_its_text_stays_here() -> None:
    def execute() -> EndedRun:
        raise StoreUnavailableError("postgresql://user:password@db/coalmine")

    with collector() as traces:
        with tracing(traces.peer.url) as made, pytest.raises(StoreUnavailableError):
            made.run(CLAIMED, execute)
        assert (traces.run.status.code, traces.run.status.message) == (Status.STATUS_CODE_ERROR, "")
        assert list(traces.run.events) == []


def test_a_run_that_is_not_sampled_is_not_sent_and_the_retriever_is_told_so() -> None:
    with collector() as traces, peer(GOOD) as retriever:
        with tracing(traces.peer.url, sampler=ALWAYS_OFF) as made:
            assert len(Running(made, docs(retriever.url))()) == 2
        assert traces.peer.seen == []
        assert {seen.headers["traceparent"][-2:] for seen in retriever.seen} == {"02"}


# --- a collector that is away --------------------------------------------------------------------------------


def test_an_outage_of_the_collector_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    refused = reply(b"", 401)
    answers = [refused, refused, ACCEPTED, ACCEPTED, refused]
    with collector(lambda _: answers.pop(0)) as traces, caplog.at_level(logging.INFO, "coalmine.tracing"):
        with tracing(traces.peer.url) as made:
            for _ in range(5):
                made.run(CLAIMED, lambda: ENDED)
                made._provider.force_flush()
        assert len(traces.peer.seen) == 5
    said = [(record.getMessage(), getattr(record, "detail", None)) for record in caplog.records]
    why = "Failed to export spans batch code: 401, reason: Whatever"
    assert said == [("traces_not_sent", why), ("traces_sent_again", None), ("traces_not_sent", why)]


def test_spans_that_find_no_room_are_dropped_and_that_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with collector(HANG) as traces:
        made = Tracing(Resource({}), endpoint=f"{traces.peer.url}/v1/traces")
        for _ in range(2048 + 512 + 100):  # what waits, what is under way, and more
            made.run(CLAIMED, lambda: ENDED)
        until(lambda: traces.peer.seen)
        assert [record.getMessage() for record in caplog.records] == ["tracing"]
        assert getattr(caplog.records[0], "detail", None) == "Queue full, dropping Span."
        traces.peer.released.set()
        made.close(timeout=0.1)


def test_a_collector_that_hangs_holds_up_neither_a_run_nor_the_end() -> None:
    with collector(HANG) as traces, peer(GOOD) as retriever:
        made = Tracing(Resource({}), endpoint=f"{traces.peer.url}/v1/traces")
        assert len(Running(made, docs(retriever.url))()) == 2
        made.close(timeout=0.1)
        assert len(Running(made, docs(retriever.url))()) == 2
        assert not traces.peer.released.is_set()


# --- on and off ----------------------------------------------------------------------------------------------

ON = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, None),
        (ON, "http://collector:4318"),
        (ON | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://traces/v1/traces"}, "https://traces/v1/traces"),
        (ON | {"OTEL_SDK_DISABLED": "True"}, None),
        (ON | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (ON | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http://collector:4318"),
    ],
)
def test_the_variables_of_opentelemetry_say_whether_runs_are_traced(
    environment: dict[str, str], endpoint: str | None
) -> None:
    assert read_trace_endpoint(environment) == endpoint


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (
            ON | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf, which is all Coalmine speaks",
        ),
        (
            ON | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: must be http/protobuf, which is all Coalmine speaks",
        ),
        (ON | {"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER: must be otlp or none"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: must be an address that begins with http:// or https:// and names a host",
        ),
    ],
)
def test_a_variable_nobody_could_follow_stops_the_start(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_trace_endpoint(environment)
    assert str(refused.value) == problem


def run_python(program: str) -> str:
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return ended.stdout


def test_without_the_extra_the_start_says_what_to_install() -> None:
    said = run_python(
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from app.base.errors import ConfigurationError\n"
        "from app.wiring import build_tracing\n"
        "assert build_tracing({}) is None\n"
        "try: build_tracing({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://collector:4318'})\n"
        "except ConfigurationError as error: print(error)"
    )
    assert said == (
        "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is an extra that is not installed: "
        "pip install 'coalmine[otel]'\n"
    )


def test_nothing_of_it_is_even_imported_where_it_is_off() -> None:
    said = run_python(
        "import sys, app.cli\n"
        "NAMES = ('opentelemetry.sdk', 'opentelemetry.exporter', 'app.tracing', 'requests')\n"
        "print([name for name in sys.modules if name.startswith(NAMES)])"
    )
    assert said == "[]\n"
