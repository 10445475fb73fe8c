"""A small world for the services: definitions as data, a fake retriever, runs carried out step by step by hand."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from app.alerts.service import shown_alerts, transitions
from app.alerts.service.shown_alerts import Links
from app.base.db.engine import Store, to_us
from app.base.db.keys import Vault
from app.base.db.rows import metadata
from app.base.documents.fields import parse_document
from app.base.values import Trigger
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import CanaryFile, Documents, Source
from app.catalog.service.suites import Change
from app.catalog.store import FILE
from app.definitions.service import applying
from app.hooks import store as outbox
from app.hooks.domain import Send
from app.hooks.service import deliveries
from app.hooks.service.deliveries import SentDelivery
from app.hooks.tables import deliveries as delivery_rows
from app.records.service import run_views
from app.records.service.plans import Planner
from app.records.store import open_runs
from app.records.store.open_runs import ClaimedRun
from app.records.tables import runs as rows
from app.retrievers.domain.retrievers import Embed
from app.runs.service import due_checks, execution
from app.runs.service.due_checks import DueChecks
from app.runs.service.finalising import EndedRun
from tests.support.fakes import FakeClock, FakeProbe, FakeSend
from tests.support.present import present

LINKS = Links(public_url="http://coalmine.test")
SECRET = "whsec_d29ybGQtc2VjcmV0LTAxMjM0NTY3ODktMDEyMzQ1"
CHECK = "watch"
ResultT = TypeVar("ResultT")


def canary(key: str, **more: Any) -> dict[str, Any]:
    """Describe a canary whose query is its key and which expects the chunk `doc-<key>`."""
    return {"key": key, "query": key, "expected_chunks": [f"doc-{key}"], **more}


RETRIEVER: Mapping[str, Any] = {
    "slug": "search",
    "preset": "generic",
    "url": "http://search.test/",
    "request": {"method": "POST", "json": {"q": "{{ query }}", "k": "{{ k }}"}},
    "response": {"hits": "hits", "id": "id", "score": "score"},
    "scorer": {"kind": "score", "scale": "similarity"},
}
HOOK: Mapping[str, Any] = {"slug": "ops", "kind": "webhook", "url": "http://hook.test/", "secret": SECRET}
COVERAGE: Mapping[str, Any] = {
    "kind": "threshold",
    "measure": "coverage",
    "warning": {"below": 0.9},
    "critical": {"below": 0.5},
}
AT_ONCE: Mapping[str, Any] = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
"""One bad run opens its alert, and one good run resolves it."""


def page(canaries: Sequence[Mapping[str, Any]] = (), **check: Any) -> dict[str, Any]:
    """Describe a suite, a retriever, a hook and a check; `check` changes fields of the check."""
    fields: dict[str, Any] = {
        "slug": CHECK,
        "suite": "suite",
        "retriever": "search",
        "schedule": {"every": "5m"},
        "rules": [COVERAGE],
        "hooks": ["ops"],
    }
    fields |= check
    return {
        "suite": fields["suite"],
        "canaries": list(canaries),
        "retrievers": [RETRIEVER],
        "hooks": [HOOK],
        "checks": [fields],
    }


def documents(*pages: Mapping[str, Any], file: str = "canaries.yaml") -> Documents:
    """Turn pages, one suite each, into documents as if read from a file."""
    read = [parse_document(CanaryFile, one) for one in pages]
    sources: dict[tuple[str, ...], Source] = {}
    for line, one in enumerate(read, 1):
        names = [("suite", one.suite or "")] + [("canary", one.suite or "", each.key) for each in one.canaries]
        names += [("retriever", each.slug) for each in one.retrievers] + [("hook", each.slug) for each in one.hooks]
        names += [("check", each.slug) for each in one.checks] + [("silence", each.slug) for each in one.silences]
        names += [("judge", each.slug) for each in one.judges]
        sources |= {name: Source(file=file, line=line) for name in names}
    return Documents(
        suites=tuple(
            parse_document(SuiteDocument, {"slug": one.suite, "canaries": one.canaries})
            for one in read
            if one.suite is not None
        ),
        retrievers=tuple(each for one in read for each in one.retrievers),
        checks=tuple(each for one in read for each in one.checks),
        hooks=tuple(each for one in read for each in one.hooks),
        judges=tuple(each for one in read for each in one.judges),
        silences=tuple(each for one in read for each in one.silences),
        sources=sources,
    )


@dataclass(kw_only=True)
class World:
    """The services over a store, with every step taken by hand and every moment set."""

    store: Store
    vault: Vault = field(default_factory=lambda: Vault("a key for the tests of this world"))
    clock: FakeClock = field(default_factory=FakeClock)
    probe: FakeProbe = field(default_factory=FakeProbe)
    send: FakeSend = field(default_factory=FakeSend)
    embed: Embed | None = None
    let_go: set[int] = field(default_factory=set)
    """Runs whose worker stopped or died: their jobs are there again."""

    def apply(self, *pages: Mapping[str, Any]) -> list[Change]:
        """Put these pages in force as canary files."""
        return applying.apply(self.store, self.vault, documents(*pages), managed_by=FILE, now=self.clock.advance(1))

    def degrade(self) -> None:
        """Carry out a run that finds nothing it should."""
        self.probe.all_miss()
        self.run()

    def heal(self) -> None:
        """Carry out a run that finds everything."""
        self.probe.all_answer()
        self.run()

    def told(self) -> list[tuple[str, str]]:
        """List type and state of every delivery, oldest first."""
        return [(one["type"], one["state"]) for one in self.deliveries()]

    def received(self) -> list[str]:
        """List the types of all messages that were sent."""
        return [str(json.loads(message.body)["type"]) for _, message in self.send.sent]

    def wish(self, slug: str = CHECK, **more: Any) -> int:
        """Ask for a run now."""
        wish = {"trigger": Trigger.API, "index_version": None, "idempotency_key": None, **more}
        return due_checks.run_now(self.store, slug, now=self.clock(), **wish)[0]

    def claim(self, owner: str = "worker") -> ClaimedRun | None:
        """Begin the run that is due, and for longest of several, or carry on one that was let go of."""
        for run_id in [*self.due_runs(), *sorted(self.let_go)]:
            if claimed := execution.begin(self.store, run_id, owner=owner, now=self.clock()):
                return claimed
        return None

    def take_over(self, run_id: int, owner: str = "worker") -> ClaimedRun:
        """Begin a run, whatever else is due, or carry on one whose worker others take for dead."""
        return present(execution.begin(self.store, run_id, owner=owner, now=self.clock()))

    def due_runs(self) -> list[int]:
        """Give the runs that may begin, the one that may for longest first."""
        with self.store.read() as connection:
            since = sa.case((rows.c.not_before > rows.c.created_at, rows.c.not_before), else_=rows.c.created_at)
            due = sa.select(rows.c.id).where(open_runs.startable(to_us(self.clock()))).order_by(since, rows.c.id)
            return list(connection.execute(due).scalars())

    def queue_due(self, *, anew: bool = False) -> int:
        """Let the clock look at the checks, in a process that remembers nothing; gives how many runs were queued.

        `anew`: as at the start of a worker, or after its clock was set.
        """
        due = DueChecks(self.store)
        followed, _ = due.follow(self.clock(), anew=anew)
        return len([*followed, *due.queue_due(self.clock())])

    def execute(
        self, claimed: ClaimedRun, owner: str = "worker", *, stopping: Callable[[], bool] = lambda: False
    ) -> EndedRun | None:
        """Carry out a claimed run in a process that remembers nothing."""
        planner = Planner(self.store, self.vault)
        self.let_go.add(claimed.id)
        ended = execution.execute(
            planner, self.probe, claimed, embed=self.embed, owner=owner, clock=self.clock, stopping=stopping
        )
        if ended is not None:
            self.let_go.discard(claimed.id)
        return ended

    def run(self, slug: str = CHECK, **more: Any) -> EndedRun:
        """Ask for a run and carry it out, a minute after the last."""
        self.clock.advance(60)
        ended = self.execute(self.take_over(self.wish(slug, **more)))
        assert ended is not None
        return ended

    def deliver(self, owner: str = "worker", send: Send | None = None) -> SentDelivery | None:
        """Attempt the next delivery that is due, of whatever hook."""
        return self._first_sent(deliveries.deliver_next, owner, send)

    def attempt(self, owner: str = "worker", send: Send | None = None) -> SentDelivery | None:
        """Attempt the next delivery that is due or tell one that stands again, whichever comes first."""
        return self._first_sent(deliveries.attempt_next, owner, send)

    def _first_sent(
        self, attempt: Callable[..., SentDelivery | None], owner: str, send: Send | None
    ) -> SentDelivery | None:
        attempts = (
            attempt(self.store, self.vault, send or self.send, hook_id, owner=owner, links=LINKS, clock=self.clock)
            for hook_id in self.due_hooks()
        )
        return next((sent for sent in attempts if sent is not None), None)

    def due_hooks(self) -> list[int]:
        """Give the hooks to which something is due, the one to which it is for longest first."""
        moments: dict[int, int] = {}
        with self.store.read() as connection:
            for hook_id in connection.execute(sa.select(delivery_rows.c.hook_id).distinct()).scalars():
                at = outbox.next_attempt(connection, hook_id, now=to_us(self.clock()))
                if at is not None and at <= to_us(self.clock()):
                    moments[hook_id] = at
        return sorted(moments, key=lambda hook_id: (moments[hook_id], hook_id))

    def deliver_all(self) -> list[SentDelivery]:
        """Attempt everything that is due."""
        return list(iter(self.deliver, None))

    def tick(self) -> int:
        """Let the clock tick for what fires: silences end, reminders come due. Gives how many checks that told of."""
        checks = transitions.checks_at_tick(self.store)
        return sum(transitions.at_tick(self.store, check, now=self.clock()) for check in sorted(checks))

    def shown(self, run: EndedRun | int) -> dict[str, Any]:
        """Read a run as people do."""
        return {**run_views.run(self.store, str(run if isinstance(run, int) else run.id))}

    def results(self, run: EndedRun | int, **filters: Any) -> dict[str, dict[str, Any]]:
        """Read the results of a run by canary key; no key may come twice."""
        found, following = run_views.results(self.store, str(run if isinstance(run, int) else run.id), **filters)
        assert following is None
        keyed: dict[str, dict[str, Any]] = {result["key"]: {**result} for result in found}
        assert len(keyed) == len(found)
        return keyed

    def alerts(self, **filters: Any) -> list[dict[str, Any]]:
        """List alerts, oldest first."""
        wanted = {"check": None, "state": None, "before": None, "limit": 100, **filters}
        return [{**one} for one in shown_alerts.list_alerts(self.store, **wanted)[::-1]]

    def deliveries(self, **filters: Any) -> list[dict[str, Any]]:
        """List deliveries, oldest first."""
        wanted = {"hook": None, "state": None, "before": None, "limit": 100, **filters}
        return [{**one} for one in shown_alerts.list_deliveries(self.store, **wanted)[::-1]]

    def count(self, *names: str) -> dict[str, int]:
        """Count the rows of these tables, or of all."""
        with self.store.read() as connection:
            return {
                name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
                for name, table in metadata.tables.items()
                if not names or name in names
            }

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Read every row of every table, in no particular order but always the same."""
        with self.store.read() as connection:
            return {
                name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=repr)
                for name, table in metadata.tables.items()
            }


@contextmanager
def statements(store: Store, before: Callable[[str], None]) -> Iterator[None]:
    """Call `before` with every statement, COMMIT included, that this store is about to send; it may raise."""

    def listen(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        before(statement)

    def commit(_connection: Any) -> None:
        before("COMMIT")

    sa.event.listen(store.engine, "before_cursor_execute", listen)
    sa.event.listen(store.engine, "commit", commit)
    try:
        yield
    finally:
        sa.event.remove(store.engine, "commit", commit)
        sa.event.remove(store.engine, "before_cursor_execute", listen)


def race(count: int, act: Callable[[int], ResultT]) -> list[ResultT]:
    """Let this many threads act at once, and give their results; the first error is raised."""
    together = threading.Barrier(count)

    def start(number: int) -> ResultT:
        together.wait(20)
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))
