"""The service in-process for tests of its outside: an app over a store of its own, and a retriever that obeys."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.alerts.service.shown_alerts import Links
from app.annotation.service import results, tasks
from app.annotation.store import task_rows
from app.annotation.store.task_rows import ItemRow, TaskRow
from app.base.db import keys
from app.base.db.keys import Scope
from app.base.values import Answer, Outcome, Ranking
from app.catalog import store as catalog
from app.config import Settings
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import deliveries
from app.hooks.service.deliveries import SentDelivery
from app.main import Service, create_app, open_service
from app.records.service.plans import Planner
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.runs.service import execution
from app.traffic import store as traffic_rows
from app.traffic.service import reach
from tests.support.asgi_client import TestClient
from tests.support.described_answers import watched
from tests.support.migrated_files import prepare_database
from tests.support.present import present
from tests.support.world import World

BASE = "http://127.0.0.1:8000"
RETRIEVER = {
    "url": "http://127.0.0.1:1/search",
    "response": {"hits": "hits", "id": "id", "score": "score", "text": "text"},
    "scorer": {"kind": "score", "scale": "similarity"},
}
CANARIES: list[dict[str, Any]] = [
    {"key": "retention", "query": "How long is data kept?", "expected_chunks": ["c1"], "tags": ["legal", "data"]},
    {
        "key": "oauth",
        "query": "How do I set up OAuth2?",
        "expected_chunks": ["c2", "c3"],
        "category": "procedural",
        "tags": ["legal"],
    },
    {"key": "moon", "query": "Who lives on the moon?", "category": "negative"},
]
CHECK = {
    "suite": "docs",
    "retriever": "search",
    "schedule": {"every": "1h"},
    "k": 3,
    "rules": [{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}}],
}
HOOK_SECRET = "whsec_" + "c2VjcmV0LW9mLXRoZS1ob29rLXRlc3RzLTAxMjM0NQ=="


@dataclass
class Obedient:
    """A retriever that finds what it is told to (chunk ids by query), c1 to c3 when told nothing."""

    found: dict[str, list[str]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    index_version: str | None = "v1"
    asked: int = 0

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Answer one query after the other."""
        reads = context.retriever.reads
        if reads is not None:  # numbers of its index
            none = (None,) * len(reads)
            told = Ranking(ids=tuple(reads), documents=none, texts=none, scores=(1_000.0,) * len(reads), returned=1)
            yield [(0, Answer(outcome=Outcome.OK, latency_seconds=0.25, ranking=told))]
            return
        for item in queries:
            self.asked += 1
            yield [(item.position, self._answer(item.query, context.k))]

    def _answer(self, query: str, k: int) -> Answer:
        outcome = self.outcomes.get(query, Outcome.OK)
        if outcome is not Outcome.OK:
            return Answer(outcome=outcome, latency_seconds=0.5, http_status=503, detail="The retriever is ill.")
        ids = tuple(self.found.get(query, ["c1", "c2", "c3"]))[:k]
        top = 0.25 if "moon" in query else 0.75
        ranking = Ranking(
            ids=ids,
            documents=(None,) * len(ids),
            texts=tuple(f"text of {one}" for one in ids),
            scores=tuple(top - place / 16 for place in range(len(ids))),
            returned=len(ids),
        )
        return Answer(outcome=Outcome.OK, latency_seconds=0.25, ranking=ranking, index_version=self.index_version)


@dataclass
class Mailbox:
    """Where hooks lead: keeps messages and answers as told, 204 when told nothing."""

    receipts: list[Receipt] = field(default_factory=list)
    messages: list[tuple[Hook, Message]] = field(default_factory=list)

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:  # noqa: ARG002 - the shape of the seam
        """Take a message."""
        self.messages.append((hook, message))
        return self.receipts.pop(0) if self.receipts else Receipt(ok=True, http_status=204, latency_seconds=0.125)


@dataclass(frozen=True)
class Api:
    """A client of the service, and the hands that do what a worker does."""

    client: TestClient
    service: Service
    retriever: Obedient
    mailbox: Mailbox

    def docs(self, *, canaries: Sequence[Mapping[str, Any]] = CANARIES, **check: Any) -> None:
        """Define the suite `docs`, the retriever `search`, the hook `ops` and the check `docs` over them."""
        self.put("/v1/suites/docs", {"canaries": list(canaries)})
        self.put("/v1/retrievers/search", RETRIEVER)
        self.put("/v1/hooks/ops", {"kind": "webhook", "url": "http://127.0.0.1:1/", "secret": HOOK_SECRET})
        self.put("/v1/checks/docs", {**CHECK, "hooks": ["ops"], **check})

    def put(self, path: str, body: Any) -> dict[str, Any]:
        """Put and expect success."""
        answer = self.client.put(path, json=body)
        assert answer.status_code in {200, 201}, answer.text
        shape: dict[str, Any] = answer.json()
        return shape

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        """Get and expect success."""
        answer = self.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        shape: dict[str, Any] = answer.json()
        return shape

    def run(self, slug: str = "docs", **wish: Any) -> dict[str, Any]:
        """Run a check now, to its end."""
        answer = self.client.post(f"/v1/checks/{slug}/runs", json=wish)
        assert answer.status_code == 202, answer.text
        self.work()
        return self.get(answer.headers["location"])

    def work(self) -> None:
        """Carry out every run that is due."""
        store = self.service.store
        world = World(store=store, vault=self.service.vault)
        world.clock.now = _now()
        while claimed := world.claim("test"):
            ended = execution.execute(
                Planner(store, self.service.vault),
                self.retriever,
                claimed,
                owner="test",
                clock=_now,
                stopping=lambda: False,
            )
            assert ended is not None
            self.service.exposition.process.run_ended(ended)

    def pooled_task(self, slug: str = "truth") -> str:
        """Define a task over the suite `docs` and make its pool; gives an item of the canary `oauth`."""
        self.pooled_task_of_any(slug)
        found = self.get(f"/v1/tasks/{slug}/next", annotator="Ann")
        while found["item"]["query"] != "How do I set up OAuth2?":
            path = f"/v1/tasks/{slug}/items/{found['item']['id']}/annotation"
            found = self.put(path, {"grade": 1, "annotator": "Ann", "seconds": 3})
        return str(found["item"]["id"])

    def pooled_task_of_any(self, slug: str) -> None:
        """Define a task over whatever the suite `docs` holds, and make its pool."""
        self.put(f"/v1/tasks/{slug}", {"suite": "docs", "retrievers": ["search"], "overlap": 1})
        assert self.client.post(f"/v1/tasks/{slug}/pool").status_code == 202
        self.make_pool(slug)

    def make_pool(self, slug: str) -> None:
        """Make the pool of a task that was asked for, as a worker does."""
        store, task = self.service.store, self._task(slug)
        assert tasks.make_pool(store, self.service.vault, self.retriever, task.id, clock=_now)

    def annotated_task(self, slug: str = "truth") -> None:
        """Define a task over the suite `docs`, grade everything, and compute its pooled recall, as a worker does."""
        self.pooled_task_of_any(slug)
        self.grade_all(slug)

    def grade_all(self, slug: str) -> None:
        """Call everything of a pooled task relevant, and compute its pooled recall, as a worker does."""
        found = self.get(f"/v1/tasks/{slug}/next", annotator="Ann")
        while found["item"] is not None:
            path = f"/v1/tasks/{slug}/items/{found['item']['id']}/annotation"
            found = self.put(path, {"grade": 1, "annotator": "Ann", "seconds": 3})
        self.recall(slug)

    def recall(self, slug: str) -> None:
        """Compute the pooled recall of a task, as a worker does."""
        results.compute_recall(self.service.store, self._task(slug).id, now=_now())

    def reached(self, *queries: str) -> None:
        """Send some traffic of the suite `docs`, and ask a sample of it, as a worker does.

        Unless said otherwise no canary stands for the last query.
        """
        found = self.retriever.found
        sent = queries or ("How long is data kept?", "<script>alert(1)</script>", "=cmd()", "Who pays?")
        lines = "\n".join(json.dumps({"query": query, "count": max(1, 90 - place)}) for place, query in enumerate(sent))
        body = {"files": {"traffic.jsonl": lines}}
        assert self.client.post("/v1/suites/docs/traffic", params={"retriever": "search"}, json=body).is_success
        asked = self.client.post("/v1/suites/docs/reach", json={"retriever": "search"})
        assert asked.status_code == 202, asked.text
        self.retriever.found = {"who pays?": ["c9"], **found}
        self.ask_sample()
        self.retriever.found = found

    def ask_sample(self) -> None:
        """Ask the sample that the suite `docs` has, as a worker does."""
        store = self.service.store
        with store.read() as connection:
            suite = present(catalog.find_definition(connection, "suite", "docs"))
            sample = present(traffic_rows.find_reach(connection, suite.id, "search"))
        assert reach.ask_sample(store, self.service.vault, self.retriever, sample.id, clock=_now)

    def items(self, slug: str) -> list[ItemRow]:
        """Read the items of a task."""
        with self.service.store.read() as connection:
            return task_rows.list_items(connection, self._task(slug).id)

    def _task(self, slug: str) -> TaskRow:
        with self.service.store.read() as connection:
            return present(task_rows.find_task(connection, slug))

    def deliver(self) -> int:
        """Send every delivery that is due; gives how many attempts that took."""
        attempts = 0
        links = Links(public_url=BASE)
        while sent := self._deliver_one(links):
            self.service.exposition.process.delivered(sent)
            attempts += 1
        return attempts

    def _deliver_one(self, links: Links) -> SentDelivery | None:
        store, vault = self.service.store, self.service.vault
        world = World(store=store, vault=vault)
        world.clock.now = _now()
        attempted = (
            deliveries.deliver_next(store, vault, self.mailbox, hook_id, owner="test", links=links, clock=_now)
            for hook_id in world.due_hooks()
        )
        return next(filter(None, attempted), None)

    def refresh(self) -> None:
        """Take the metrics snapshot anew."""
        self.service.exposition.snapshot.refresh(self.service.store)

    def key(self, scope: Scope) -> str:
        """Create a key."""
        return keys.create_key(self.service.store, name=f"a {scope} key", scope=scope, now=_now())


@contextmanager
def api(
    data_dir: Path, *, with_worker: bool = False, environment: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[Api]:
    """Open the service on a store in `data_dir`, by default without a worker: `Api` does its work when told."""
    retriever, mailbox = Obedient(), Mailbox()
    configured = Settings(data_dir=data_dir, **settings)
    prepare_database(configured)
    service = open_service(
        configured, environment=environment or {}, with_worker=with_worker, probe=retriever, send=mailbox
    )
    with TestClient(create_app(service), base_url=BASE) as client:
        yield Api(watched(client), service, retriever, mailbox)


def bearer(key: str) -> dict[str, str]:
    """Give the header that presents a key."""
    return {"authorization": f"Bearer {key}"}


def _now() -> datetime:
    return datetime.now(UTC)


if __name__ == "__main__":
    with TemporaryDirectory() as folder, api(Path(folder)) as described:
        print(described.client.get("/openapi.json").text)  # noqa: T201 - for `make client`
