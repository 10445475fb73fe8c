"""Traffic from spans that retrievers of LangChain, LlamaIndex and Haystack send, the real packages, until reach."""

import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from app.base.db import keys
from app.base.db.keys import Scope
from app.demo.server import create_demo
from tests.support.demo_suite import document
from tests.support.living import coalmine, serving, until
from tests.support.servers import ENVIRONMENT, PROGRAMS

pytestmark = pytest.mark.systems

ASKED = {"How do I rotate an API key?": 3, "What is the rate limit of the API?": 1}
"""How often each question is asked of each of the four."""


def ask(variables: Mapping[str, str]) -> None:
    questions = [question for question, times in ASKED.items() for _ in range(times)]
    done = subprocess.run(  # noqa: S603 - the program beside this test
        [ENVIRONMENT / "bin/python", PROGRAMS / "traced_retrievers.py", *questions],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HAYSTACK_TELEMETRY_ENABLED": "False", "LANGSMITH_TRACING": "false", **variables},
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to export" not in done.stderr, done.stderr


@pytest.mark.parametrize("compression", ["gzip", "deflate", "none"])
def test_spans_of_real_retrievers_become_traffic_whose_reach_is_measured(tmp_path: Path, compression: str) -> None:
    with (
        serving(create_demo()) as demo,
        coalmine(tmp_path) as (url, service),
        httpx2.Client(base_url=url, trust_env=False) as client,
    ):
        admin = keys.create_key(service.store, name="admin", scope=Scope.ADMIN, now=datetime.now(UTC))
        exporter = keys.create_key(service.store, name="app", scope=Scope.INGEST, now=datetime.now(UTC))
        client.headers["authorization"] = f"Bearer {admin}"
        (retriever,) = document()["retrievers"]
        path = retriever.pop("url").partition("8001")[2]
        slug = retriever.pop("slug")
        client.put(f"/v1/retrievers/{slug}", json={**retriever, "url": f"{demo}{path}"}).raise_for_status()
        client.put("/v1/suites/docs", json={"canaries": document()["canaries"]}).raise_for_status()
        variables = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/otlp/docs/v1/traces?retriever={slug}",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"authorization=Bearer%20{exporter}",
            "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": compression,
        }
        ask(variables)
        (traffic,) = client.get("/v1/suites/docs/traffic").json()["items"]
        assert (traffic["retriever"], traffic["distinct"], traffic["traffic"]) == (slug, 2, 4 * sum(ASKED.values()))
        told = client.get("/metrics").text
        assert 'coalmine_trace_spans_total{outcome="rejected"} 0.0' in told

        def reach() -> dict[str, object] | None:
            found: dict[str, object] = client.get("/v1/suites/docs/reach", params={"retriever": slug}).json()
            return found if found["state"] == "asked" else None

        client.post("/v1/suites/docs/reach", json={"retriever": slug}).raise_for_status()
        found = until(reach, seconds=60)
        assert (found["sample"], found["answered"], found["unanswered"]) == (2, 2, 0)
        assert found["value"] == 1, "the shipped canaries expect both documents"
        kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert b"rotate an api key" in kept
        assert b"Lovelace" not in kept
