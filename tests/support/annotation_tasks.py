"""A suite, two retrievers with many hits, and a task over both, for the tests of annotation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.annotation.documents import TaskDocument
from app.annotation.service import annotations, tasks
from app.annotation.store import task_rows as rows
from app.annotation.store.task_rows import ItemRow
from app.annotation.views import NextItem, TaskDetail
from app.base.db.engine import Store, to_us
from app.base.documents.fields import parse_document
from app.base.values import Answer, Outcome, Ranking
from app.catalog.store import API
from app.definitions.service import applying
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from tests.support.present import present
from tests.support.world import RETRIEVER, World, canary, documents, page

TASK: dict[str, Any] = {
    "slug": "truth",
    "suite": "suite",
    "retrievers": ["bm25", "dense"],
    "pool": 3,
    "strata": [{"to": 10, "sample": 2}, {"to": 30, "sample": 2}],
    "overlap": 0.3,
    "seed": 7,
}
QUERIES = ("refunds", "invoices", "exports", "quotas")


RETRIEVERS: Final = [{**RETRIEVER, "slug": slug, "url": f"{RETRIEVER['url']}?{slug}"} for slug in ("bm25", "dense")]


@dataclass
class Shelves:
    """Two retrievers over numbered texts per query: `dense` has them in another order and under other ids."""

    failing: dict[str, Outcome] = field(default_factory=dict)
    """Outcomes by `retriever` or `retriever/query`."""
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    texts: bool = True
    odd_texts: dict[int, str] = field(default_factory=dict)
    """Other texts of some numbers."""
    empty: set[str] = field(default_factory=set)
    """Retrievers that answer and find nothing."""
    counted: bool = False
    """Whether both name their chunks 1, 2, 3, ... by place, so that an id stands for different texts."""

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Answer one query after the other."""
        for item in queries:
            slug = context.retriever.slug
            self.asked.append((slug, item.query, context.k))
            outcome = self.failing.get(slug) or self.failing.get(f"{slug}/{item.query}")
            if outcome is not None:
                yield [(item.position, Answer(outcome=outcome, latency_seconds=0.1, http_status=503, detail="is ill"))]
                continue
            yield [
                (
                    item.position,
                    Answer(outcome=Outcome.OK, latency_seconds=0.1, ranking=self.ranking(slug, item.query, context.k)),
                )
            ]

    def ranking(self, retriever: str, query: str, k: int) -> Ranking:
        """Return what a retriever answers: numbers 0, 1, 2, ...; `dense` in pairs swapped, from number 2 on."""
        k = 0 if retriever in self.empty else k
        numbers = range(k) if retriever == "bm25" else [2 + (number ^ 1) for number in range(k)]
        return Ranking(
            ids=tuple(
                str(place) if self.counted else f"{retriever}-{query}-{number}"
                for place, number in enumerate(numbers, start=1)
            ),
            documents=tuple(f"{query}.md" for _ in numbers),
            texts=tuple(
                self.odd_texts.get(number, f"Text {number} about {query}.") if self.texts else None
                for number in numbers
            ),
            scores=(None,) * k,
            returned=k,
        )


@dataclass(kw_only=True)
class Desk:
    """A store with the task `truth`, and what annotators do at it."""

    world: World
    shelves: Shelves = field(default_factory=Shelves)

    @classmethod
    def of(
        cls,
        store: Store,
        *,
        owner: str = API,
        file: str = "canaries.yaml",
        queries: Sequence[str] = QUERIES,
        canaries: Sequence[Mapping[str, Any]] = (),
        counted: bool = False,
        **changes: Any,
    ) -> "Desk":
        """Put suite, retrievers and task in force, with a canary of each query or these; nobody asked for the pool."""
        desk = cls(world=World(store=store), shelves=Shelves(counted=counted))
        described = page(list(canaries) or [canary(key) for key in queries], retriever="bm25", hooks=[])
        described["retrievers"] = RETRIEVERS
        applying.apply(
            store, desk.world.vault, documents(described, file=file), managed_by=owner, now=desk.world.clock.advance(1)
        )
        desk.put(**changes)
        return desk

    @property
    def store(self) -> Store:
        """The store."""
        return self.world.store

    def put(self, **changes: Any) -> TaskDetail:
        """Create or change the task."""
        document = parse_document(TaskDocument, {**TASK, **changes})
        return tasks.put_task(self.store, document, by="Ada", now=self.world.clock())[0]

    def make_pool(self, **more: Any) -> bool:
        """Ask for the pool and make it, as a worker does."""
        tasks.request_pool(self.store, "truth", now=self.world.clock())
        return self.work(**more)

    def work(self, **more: Any) -> bool:
        """Go on with the pool."""
        with self.store.read() as connection:
            task = present(rows.find_task(connection, "truth"))
        return tasks.make_pool(self.store, self.world.vault, self.shelves, task.id, clock=self.world.clock, **more)

    def items(self) -> list[ItemRow]:
        """Read all items of the task."""
        with self.store.read() as connection:
            return rows.list_items(connection, present(rows.find_task(connection, "truth")).id)

    def next(self, annotator: str) -> NextItem:
        """Look at the next item of an annotator."""
        return annotations.next_item(self.store, "truth", annotator=annotator, now=self.world.clock())

    def say(self, annotator: str, token: str, grade: int | None, seconds: float | None = 4.0) -> NextItem:
        """Annotate an item."""
        now = self.world.clock.advance(5)
        return annotations.annotate(
            self.store, "truth", token, annotator=annotator, grade=grade, seconds=seconds, now=now
        )

    def grade_all(self, annotator: str, *, flip: int = 0) -> None:
        """Grade at once everything that is left for an annotator, as `work_through` does one by one."""
        with self.store.write() as connection:
            task = present(rows.find_task(connection, "truth"))
            texts = {one.id: one.text for one in rows.list_items(connection, task.id)}
            left = [
                item_id
                for canary_id in rows.open_canaries(connection, task.id, annotator, now=to_us(self.world.clock()))
                for item_id in rows.open_items(
                    connection, task.id, annotator, canary_id, to_us(self.world.clock())
                ).values()
            ]
            for number, item_id in enumerate(left, start=1):
                relevant, wrong = int(texts[item_id].split()[1]) < 5, bool(flip) and number % flip == 0
                rows.save_annotation(
                    connection,
                    task_id=task.id,
                    item_id=item_id,
                    annotator=annotator,
                    grade=int(relevant != wrong),
                    seconds=4.0,
                    at=to_us(self.world.clock.advance(5)),
                )
            rows.defer_results(connection, task, to_us(self.world.clock()))

    def work_through(self, annotator: str, *, flip: int = 0) -> list[str]:
        """Grade everything that is left for an annotator: texts 0 to 4 are relevant; every `flip`th one is wrong."""
        order: list[str] = []
        found = self.next(annotator)
        while (item := found["item"]) is not None:
            order.append(item["id"])
            relevant = int(item["text"].split()[1]) < 5
            wrong = bool(flip) and len(order) % flip == 0
            found = self.say(annotator, item["id"], int(relevant != wrong))
        return order
