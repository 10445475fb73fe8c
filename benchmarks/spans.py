"""Spans received by OTLP over HTTP: `python -m benchmarks.spans`, half a minute.

Exports of 512 spans as a batch processor sends them, a quarter of them retrievals with ten documents, the others calls
of a model with a prompt; read alone, and sent packed to the service with 100,000 distinct queries stored.
"""

import gzip
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.traffic.documents.queries import AskedQuery, ReadTraffic
from app.traffic.documents.spans import SpanReader
from app.traffic.service import intake
from tests.support.api_service import api

SPANS, RETRIEVALS, EXPORTS, STORED = 512, 4, 20, 98_000
DOCUMENTS = {
    f"retrieval.documents.{place}.document.{name}": "text " * 160 if name == "content" else f"d{place}"
    for place in range(10)
    for name in ("id", "content", "score")
}
PROMPT = {"openinference.span.kind": "LLM", "llm.input_messages.0.message.content": "word " * 600}


def export(number: int) -> bytes:
    """Return one export in protobuf."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("benchmark")
    for place in range(SPANS):
        query: dict[str, Any] = {"openinference.span.kind": "RETRIEVER", "input.value": f"query {number} {place % 99}"}
        with tracer.start_as_current_span("step", attributes=PROMPT if place % RETRIEVALS else {**query, **DOCUMENTS}):
            pass
    message: bytes = encode_spans(exporter.get_finished_spans()).SerializeToString()
    return message


def read(message: bytes) -> None:
    """Print what reading costs."""
    began = time.process_time()
    for _ in range(EXPORTS):
        found = len(list(SpanReader().from_protobuf(message)))
    spent = (time.process_time() - began) / EXPORTS
    tracemalloc.start()
    list(SpanReader().from_protobuf(message))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{SPANS} spans, {len(message) / 1e6:.1f} MB, {found} retrievals: {spent * 1e3:.0f} ms, {peak / 1e3:.0f} KB")


def send(folder: Path, messages: list[bytes]) -> None:
    """Print what an export takes with all that the service does."""
    with api(folder) as service:
        service.docs()
        now = datetime.now(UTC)
        known = tuple(AskedQuery(query=f"known {place}", count=1, first=now, last=now) for place in range(STORED))
        intake.add_traffic(service.service.store, "docs", "search", ReadTraffic(queries=known), now=now)
        packed = [gzip.compress(message) for message in messages]
        headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
        began = time.process_time()
        for body in packed:
            answer = service.client.post("/v1/otlp/docs/v1/traces", content=body, headers=headers)
            assert (answer.status_code, answer.content) == (200, b"")
        spent = (time.process_time() - began) / len(packed)
        (shown,) = service.get("/v1/suites/docs/traffic")["items"]
        assert shown["traffic"] == STORED + len(messages) * SPANS // RETRIEVALS
    print(f"received, {shown['distinct']:,} distinct queries then: {spent * 1e3:.0f} ms of one core each")


if __name__ == "__main__":
    sent = [export(number) for number in range(EXPORTS)]
    read(sent[0])
    with TemporaryDirectory() as made:
        send(Path(made), sent)
