"""The demo's traffic and annotations fit its retriever: one document is not covered, and two grades are disputed."""

import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pytest

from app.annotation.documents import TaskDocument, read_annotations
from app.annotation.service import annotations, results, tasks
from app.annotation.store import task_rows as rows
from app.base.db.engine import Store
from app.base.texts import Source
from app.base.values import Answer, Outcome, Ranking
from app.catalog.documents.canary_documents import CanaryDocument
from app.demo.corpus import read_corpus
from app.demo.retriever import Retriever
from app.demo.server import create_demo
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.scoring.suites import SEGMENT_TARGETS, compose
from app.traffic.commands import begin_demo, seed_demo
from app.traffic.documents.queries import read_traffic
from app.traffic.service import intake, reach
from tests.support import demo_suite
from tests.support.asgi_client import TestClient
from tests.support.present import present
from tests.support.world import RETRIEVER, World, page
from tests.support.world import canary as described_canary

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def retriever() -> Retriever:
    """Give the demo's retriever, healthy."""
    return Retriever(read_corpus())


def sample(name: str) -> list[Source]:
    """Give a file that the demo serves."""
    with TestClient(create_demo()) as demo:
        answer = demo.get(f"/{name}")
    assert answer.is_success
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    return [Source(name=name, lines=partial(io.StringIO, answer.text))]


def test_of_the_traffic_the_command_line_alone_is_not_covered(retriever: Retriever) -> None:
    found = read_traffic(sample("traffic.csv"), now=NOW)
    assert (len(found.queries), found.too_long, found.empty) == (55, 0, 0)
    names = {chunk.id: chunk.document for chunk in retriever.chunks}
    canaries = demo_suite.canaries()
    expected = {chunk.get("id") for canary in canaries for chunk in canary.expected}
    covered = {names[one] for one in expected if one in names}
    for canary in canaries:  # what a passing canary finds first is covered too, however it is expected
        answer = [hit.chunk for hit in retriever.search(canary.query, 5)]
        ranks = [rank for rank in demo_suite.found(answer, canary) if rank is not None]
        covered |= {answer[min(ranks) - 1].document} if ranks else set()
    hits = {one.query: retriever.search(one.query, 1) for one in found.queries}
    left_out = {found[0].chunk.document for found in hits.values() if found and found[0].chunk.document not in covered}
    assert left_out == {"cli/commands"}


def test_two_annotators_graded_the_first_hits_and_dispute_two(retriever: Retriever) -> None:
    grades: dict[tuple[str, str], dict[str, int | None]] = defaultdict(dict)
    for line in read_annotations(sample("annotations.csv"), highest=2):
        grades[line.canary, line.chunk_id][line.annotator] = line.grade
    queries = {canary.key: canary.query for canary in demo_suite.canaries()}
    keys = {canary for canary, _ in grades}
    assert grades.keys() == {(key, hit.chunk.id) for key in keys for hit in retriever.search(queries[key], 5)}
    assert all(said.keys() == {"Ann", "Bob"} for said in grades.values())
    assert sum(len(set(said.values())) > 1 for said in grades.values()) == 2


def test_the_shipped_canaries_satisfy_the_notes_of_the_product() -> None:
    canaries = [CanaryDocument.model_validate(one).to_domain() for one in demo_suite.document()["canaries"]]
    composition = compose(canaries)
    assert composition.notes == ()
    assert all(composition.total(segment) >= target for segment, target in SEGMENT_TARGETS.items())


# --- put in by `serve --with-demo` -----------------------------------------------------------------------------


@dataclass
class Demo:
    """A world with the suite and the retriever of the demo, and its sample files."""

    world: World
    found: Retriever

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Answer as the demo does."""
        for item in queries:
            hits = self.found.search(item.query, context.k)
            ranking = Ranking(
                ids=tuple(hit.chunk.id for hit in hits),
                documents=tuple(hit.chunk.document for hit in hits),
                texts=tuple(hit.chunk.text for hit in hits),
                scores=tuple(hit.score for hit in hits),
                returned=len(hits),
            )
            yield [(item.position, Answer(outcome=Outcome.OK, latency_seconds=0.01, ranking=ranking))]

    def seed(self, *, waits: int = 3) -> int:
        """Put the samples in, as a process does while a worker makes the pool; how often it waited."""
        waited = 0

        def wait() -> bool:
            nonlocal waited
            waited += 1
            self.make_pool()
            return waited < waits

        seed_demo(
            self.world.store,
            traffic_file=sample("traffic.csv")[0],
            annotations_file=sample("annotations.csv")[0],
            clock=self.world.clock,
            wait=wait,
            wake=lambda: None,
        )
        return waited

    def make_pool(self) -> None:
        """Make the pool of the task, as a worker does."""
        with self.world.store.read() as connection:
            task = present(rows.find_task(connection, "demo"))
        tasks.make_pool(self.world.store, self.world.vault, self, task.id, clock=self.world.clock)


@pytest.fixture
def demo(sqlite_store: Store, retriever: Retriever) -> Demo:
    """Give the shipped suite and retriever in force."""
    world = World(store=sqlite_store)
    keys = ("oauth2-setup", "data-retention", "api-rate-limit", "trial-length")
    queries = {one.key: one.query for one in demo_suite.canaries() if one.key in keys}
    described = page(
        [described_canary(key, query=query) for key, query in queries.items()], retriever="docs-search", hooks=[]
    )
    described |= {"suite": "dataforge", "retrievers": [{**RETRIEVER, "slug": "docs-search"}]}
    described["checks"][0]["suite"] = "dataforge"
    world.apply(described)
    return Demo(world=world, found=retriever)


def test_the_demo_has_traffic_and_a_finished_task_without_a_command(demo: Demo) -> None:
    assert demo.seed() == 1
    store = demo.world.store
    (shown,) = intake.load_traffic(store, "dataforge")
    assert (shown["retriever"], shown["distinct"]) == ("docs-search", 55)
    task = tasks.load_task(store, "demo")
    assert (task["state"], task["items"], task["created_by"]) == ("pooled", 20, "demo")
    assert results.load_agreement(store, "demo")["annotators"] == ["Ann", "Bob"]
    assert len(annotations.list_disagreements(store, "demo")) == 2


def test_started_again_nothing_comes_twice(demo: Demo) -> None:
    demo.seed()
    before = intake.load_traffic(demo.world.store, "dataforge")
    assert demo.seed() == 0
    assert intake.load_traffic(demo.world.store, "dataforge") == before
    intake.forget_traffic(demo.world.store, "dataforge")
    tasks.archive_task(demo.world.store, "demo", now=demo.world.clock.advance(1))
    assert demo.seed() == 0, "what somebody deleted stays away"
    assert intake.load_traffic(demo.world.store, "dataforge") == []


def test_traffic_that_was_put_in_before_a_crash_is_measured_at_the_next_start(demo: Demo) -> None:
    store = demo.world.store
    found = read_traffic(sample("traffic.csv"), now=demo.world.clock())
    intake.add_traffic(store, "dataforge", "docs-search", found, now=demo.world.clock())
    demo.seed()
    assert intake.load_traffic(store, "dataforge")[0]["traffic"] == 1817
    assert reach.load_reach(store, "dataforge", "docs-search")["sample"] == 55


def test_what_was_cut_short_is_finished_at_the_next_start(demo: Demo) -> None:
    assert begin_demo(demo.world.store, sample("traffic.csv"), now=demo.world.clock())
    demo.make_pool()
    assert demo.seed() == 0
    assert results.load_agreement(demo.world.store, "demo")["annotators"] == ["Ann", "Bob"]


def test_other_suites_get_no_samples(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([described_canary("a")]))
    assert not begin_demo(sqlite_store, sample("traffic.csv"), now=world.clock())
    assert tasks.list_tasks(sqlite_store, limit=5) == []


def test_a_task_of_somebody_else_of_that_name_stays_as_it_is(demo: Demo) -> None:
    document = TaskDocument(slug="demo", suite="dataforge", retrievers=("docs-search",))
    tasks.put_task(demo.world.store, document, by="Ada", now=demo.world.clock())
    assert demo.seed() == 0
    assert tasks.load_task(demo.world.store, "demo")["state"] == "created"
