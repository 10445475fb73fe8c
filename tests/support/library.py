"""A tiny real search over texts, and a world whose runs are diagnosed as a worker diagnoses them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.base.db.engine import Store
from app.base.values import Answer, Outcome, Ranking
from app.catalog.store import API, FILE
from app.definitions.service import applying
from app.diagnosis.service import diagnoses
from app.diagnosis.service.diagnoses import PATIENCE
from app.diagnosis.views import DiagnosisView
from app.records.service.plans import Planner
from app.records.store import run_rows
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.runs.service.execution import execute
from app.runs.service.finalising import EndedRun
from tests.support.fakes import answered, failed
from tests.support.present import present
from tests.support.world import CHECK, RETRIEVER, World, documents, page

TEXTS: Mapping[str, str] = {
    "retention": "Usage data is kept for thirty days after an account closes and then it is erased from every backup.",
    "invoices": "Invoices are sent on the first day of each month to the billing address of the owner of the account.",
    "refunds": "A refund is paid within ten working days to the card that was charged when the order was placed.",
    "tokens": "An access token lives for one hour and is renewed with the refresh token that came along with it.",
    "limits": "Every key may send six hundred requests per minute before the gateway answers with status 429.",
    "export": "Exports are written as CSV files into the bucket that the workspace has configured for its reports.",
}
QUERIES: Mapping[str, str] = {
    "retention": "how long is usage data kept after an account closes",
    "invoices": "when are invoices sent to the billing address",
    "refunds": "when is a refund paid to the card",
    "tokens": "how long lives an access token",
    "limits": "how many requests per minute may a key send",
    "export": "where are exports written as CSV files",
}


@dataclass(kw_only=True)
class Library:
    """Finds chunks by the share of a query's words they hold; a probe that remembers what it was asked."""

    chunks: dict[str, str] = field(default_factory=lambda: dict(TEXTS))
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    """(run id, query, k), in order of asking."""
    dead: Outcome | None = None
    index_version: str | None = None
    shown: Callable[[str], str | None] = str
    """What is returned of the text of a chunk."""

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Answer one query after the other."""
        for item in queries:
            self.asked.append((context.run_id, item.query, context.k))
            if self.dead is not None:
                yield [(item.position, failed(self.dead))]
                continue
            yield [(item.position, answered(self.search(item.query, context.k), index_version=self.index_version))]

    def search(self, query: str, k: int) -> Ranking:
        """Rank by shared words, then by id."""
        words = set(query.casefold().split())
        scores = {name: len(words & set(text.casefold().split())) / len(words) for name, text in self.chunks.items()}
        best = sorted((name for name in scores if scores[name]), key=lambda name: (-scores[name], name))[:k]
        return Ranking(
            ids=tuple(best),
            documents=(None,) * len(best),
            texts=tuple(self.shown(self.chunks[name]) for name in best),
            scores=tuple(round(scores[name], 6) for name in best),
            returned=len(best),
        )

    def questions(self) -> list[tuple[str, int]]:
        """List what was asked beyond runs: (query, k)."""
        return [(query, k) for run_id, query, k in self.asked if run_id.endswith("-diagnosis")]


def shelf(*keys: str, **more: Any) -> list[dict[str, Any]]:
    """Describe canaries over the library, by default one for each of its chunks."""
    return [
        {"key": key, "query": QUERIES[key], "expected_chunks": [key], "min_relevance_score": 0.0, **more}
        for key in keys or QUERIES
    ]


@dataclass(kw_only=True)
class Diagnosed:
    """A world over a library, the runs of which are diagnosed."""

    world: World
    library: Library = field(default_factory=Library)
    files: str = "canaries.yaml"

    @classmethod
    def of(
        cls, store: Store, canaries: Sequence[Mapping[str, Any]] = (), *, owner: str = FILE, **check: Any
    ) -> "Diagnosed":
        """Put these canaries in force; one missing of them makes an alert at once."""
        made = cls(world=World(store=store))
        made.apply(canaries or shelf(), owner=owner, **check)
        return made

    def apply(
        self,
        canaries: Sequence[Mapping[str, Any]],
        *,
        owner: str = FILE,
        file: str = "canaries.yaml",
        checks: Sequence[str] = (CHECK,),
        **check: Any,
    ) -> None:
        """Put canaries in force, with a rule that opens at the first bad run."""
        rule = {"kind": "threshold", "measure": "coverage", "critical": {"below": 1.0}, "open": {"bad": 1, "of": 1}}
        described = page(canaries, k=3, **{"rules": [{**rule, "close": 1}], **check})
        described["checks"] = [{**described["checks"][0], "slug": slug} for slug in checks]
        response = {"hits": "hits", "id": "id", "score": "score", "text": "text"}
        slugs = dict.fromkeys((RETRIEVER["slug"], check.get("retriever", RETRIEVER["slug"])))
        described["retrievers"] = [{**RETRIEVER, "slug": slug, "response": response} for slug in slugs]
        world = self.world
        now = world.clock.advance(1)
        applying.apply(world.store, world.vault, documents(described, file=file), managed_by=owner, now=now)

    def run(self, slug: str = CHECK, *, diagnosed: bool = True, **more: Any) -> EndedRun:
        """Run the check a minute later, and find out why its canaries degraded."""
        world = self.world
        world.clock.advance(60)
        world.wish(slug)
        claimed = world.claim()
        assert claimed is not None
        ended = execute(
            self.planner,
            self.library,
            claimed,
            owner="worker",
            clock=world.clock,
            stopping=lambda: False,
            hold=PATIENCE,
        )
        assert ended is not None
        if diagnosed:
            self.diagnose(ended, **more)
        return ended

    def diagnose(self, ended: EndedRun, **more: Any) -> diagnoses.Outcome | None:
        """Do what a worker does after a run."""
        with self.world.store.read() as connection:
            run = present(run_rows.find_run(connection, ended.id))
        return diagnoses.after_run(self.planner, self.library, run, clock=self.world.clock, **more)

    def why(self, key: str, slug: str = CHECK) -> DiagnosisView:
        """Read the last diagnosis of a canary."""
        return diagnoses.show(self.world.store, slug, key)

    @property
    def planner(self) -> Planner:
        """Plan as a process that remembers nothing."""
        return Planner(self.world.store, self.world.vault)

    @property
    def store(self) -> Store:
        """The world's."""
        return self.world.store


__all__ = ["API", "FILE", "QUERIES", "TEXTS", "Diagnosed", "Library", "shelf"]
