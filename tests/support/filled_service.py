"""A service in-process of which everything that can be shown is there, and the names its parts go by."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from app.base.documents.fields import parse_document
from app.base.values import Outcome
from app.experiments.documents import ExperimentDocument
from app.experiments.service import experiments
from app.runs.service import rescoring
from tests.support.api_service import CHECK, RETRIEVER, Api, api

_AT_ONCE: Mapping[str, Any] = {"open": {"bad": 1, "of": 1}, "close": 1}
RULES = [
    {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}},
    {"kind": "canary", "canary": "oauth", **_AT_ONCE},
    {"kind": "latency", "critical": {"above": "1ms"}, **_AT_ONCE},
    {"kind": "probe_errors", "failed_share": 0.2, **_AT_ONCE},
    {"kind": "drop", "measure": "coverage", "critical": {"by": 0.2}, **_AT_ONCE},
]


CORPUS = {"files": {"corpus.jsonl": '{"_id": "d1", "title": "Fees", "text": "Fees are due monthly."}'}}

EXPERIMENT = {"arms": [{"name": "vector", "share": 0.95}, {"name": "hybrid", "share": 0.05}], "window": "1h"}
PROMOTION = {"current": "docs", "candidate": "docs-hybrid", "experiment": "docs"}


@contextmanager
def filled_api(data_dir: Path, **settings: Any) -> Iterator[Api]:
    """Open a service with a check that degraded, an open alert, deliveries, a diagnosis, a re-scoring and a silence."""
    with api(data_dir, **settings) as opened:
        opened.docs(rules=RULES)
        opened.put("/v1/retrievers/search", {**RETRIEVER, "facts": {"documents": {"url": "/stats", "path": "count"}}})
        opened.put("/v1/checks/docs-hybrid", {**CHECK, "hooks": []})
        opened.put("/v1/judges/reader", {"url": "http://judge.test/v1", "model": "small"})
        opened.put("/v1/silences/night", {"checks": ["docs-hybrid"], "ends": "2099-01-01T00:00:00Z"})
        opened.run(index_version="v1")
        opened.retriever.found = {"How do I set up OAuth2?": ["c9"], "How long is data kept?": []}
        opened.run(index_version="v2")
        opened.retriever.outcomes = {"Who lives on the moon?": Outcome.REFUSED}
        opened.run()
        opened.deliver()
        for path in ("checks/docs/canaries/oauth/diagnosis", "checks/docs/rescorings", "hooks/ops/test"):
            assert opened.client.post(f"/v1/{path}").is_success
        assert rescored(opened) == 1
        alert = opened.get("/v1/alerts", state="firing")["items"][0]["id"]
        assert opened.client.post(f"/v1/alerts/{alert}/acknowledge", json={"note": "on it"}).is_success
        opened.put("/v1/checks/docs/baseline", {"accept": True, "note": "new index"})
        item = opened.pooled_task()
        for name, grade in (("Ann", 0), ("Bob", 2)):
            said = {"annotator": name, "grade": grade, "seconds": 4}
            opened.put(f"/v1/tasks/truth/items/{item}/annotation", said)
        opened.reached()
        assert opened.client.post("/v1/corpora/handbook", json=CORPUS).is_success
        for more in ({}, {"delta": 0.01}):  # an earlier epoch, and this one, to which users came last month
            document = parse_document(ExperimentDocument, {"slug": "docs", **EXPERIMENT, **more})
            experiments.put_experiment(opened.service.store, document, by="Ada", now=datetime(2026, 10, 1, tzinfo=UTC))
        exposed = [{"unit": f"user-{number}", "at": "2026-11-01T12:00:00Z"} for number in range(40)]
        assert opened.client.post("/v1/experiments/docs/exposures", json=exposed).is_success
        assert opened.client.post("/v1/checks/docs/public-link").is_success
        opened.put("/v1/promotions/docs", PROMOTION)
        opened.put("/v1/interleavings/docs", {"a": "old", "b": "new"})
        opened.put("/v1/shadows/docs", {"candidate": "search", "share": 1})
        pairs = [{"query": "How long is data kept?", "a": ["c1"], "b": ["c2"], "a_seconds": 0.1, "b_seconds": 0.2}]
        texts = {"a": [{"id": "c1", "text": "30 days"}], "b": [{"id": "c2", "text": "a year"}]}
        pairs += [{"query": "Who pays?", **texts}, {"query": "Is there an SLA?", "a": ["c1"]}]
        assert opened.client.post("/v1/shadows/docs/pairs", json=pairs).is_success
        opened.put("/v1/promotions/docs/waivers/judge", {"reason": "no budget for a judge"})
        yield opened


def rescored(service: Api) -> int:
    """Carry out every re-scoring that is due; gives how many there were."""
    store, count = service.service.store, 0
    while (found := rescoring.claim(store, owner="test", now=datetime.now(UTC))) is not None:
        assert rescoring.carry_on(store, found, owner="test", clock=lambda: datetime.now(UTC))
        count += 1
    return count


@dataclass(frozen=True)
class Names:
    """What stands for the parameters in the paths of a filled service."""

    values: Mapping[str, str]
    slugs: Mapping[str, str]
    """By how a path begins."""

    def of(self, path: str) -> dict[str, str]:
        """Give the names of the parameters of a path."""
        own = next((slug for start, slug in self.slugs.items() if path.startswith(start)), None)
        values = {**self.values, "slug": own or self.values["slug"]}
        return {name: value for name, value in values.items() if f"{{{name}}}" in path}

    def queries_of(self, path: str) -> dict[str, str]:
        """Give the parameters that a path needs behind its question mark."""
        if path.endswith(("/next", "/items/{item}")):
            return {"annotator": "Ann"}
        if path.endswith(("/traffic", "/reach", "/suggestions")):
            return {"retriever": "search"}
        return {name: f"run:{number}" for name, number in (("a", 1), ("b", 2))} if path == "/v1/compare" else {}

    def address(self, path: str) -> str:
        """Fill the parameters of a path in."""
        for name, value in self.of(path).items():
            path = path.replace(f"{{{name}}}", value)
        return path


def names_of(service: Api) -> Names:
    """Give the names of what a filled service shows."""
    alert, delivery = (service.get(f"/v1/{kind}")["items"][0] for kind in ("alerts", "deliveries"))
    runs = [run["id"] for run in service.get("/v1/checks/docs/runs")["items"]]
    return Names(
        values={
            "slug": "docs",
            "suite": "docs",
            "key": "oauth",
            "run_id": runs[0],
            "before": runs[1],
            "now": runs[0],
            "alert_id": alert["id"],
            "delivery_id": delivery["id"],
            "item": service.get("/v1/tasks/truth/disagreements")["items"][0]["id"],
            "corpus": "handbook",
            "gate": "judge",
            "rescoring_id": service.get("/v1/checks/docs/rescorings")["items"][0]["id"],
        },
        slugs={
            "/v1/judges/": "reader",
            "/v1/retrievers/": "search",
            "/v1/hooks/": "ops",
            "/v1/silences/": "night",
            "/v1/tasks/": "truth",
        },
    )


def app_of(service: Api) -> FastAPI:
    """Give the app behind the client of a service."""
    found: FastAPI = service.client.app  # type: ignore[assignment] # it is a FastAPI
    return found
