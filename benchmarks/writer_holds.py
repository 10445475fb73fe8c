"""How long re-scoring, retention and reports hold the writer, over a suite of 10,000 canaries.

    python -m benchmarks.writer_holds [--canaries 10000] [--runs 6] [--url postgresql://...]

Every answer of every run is new, so that each run has as many rankings to judge and to forget as the suite has
canaries. Without `--url` the database is a SQLite file, which has one writer. What is printed is the longest writing
transaction of each service function, by the clock and of the processor, beside the goal.
"""

import argparse
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.documents.validation_messages import parse_document
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.documents import CheckDocument
from app.catalog.service import applying
from app.catalog.service.references import API
from app.config import Settings
from app.hooks.tables import reports
from app.main import open_service
from app.operation.service import retention
from app.reports.service import reports as scheduled_reports
from app.reports.service.reports import DueReports
from app.runs.service import rescoring
from benchmarks.scale import Scale, Table, WriteTimes, check_of
from benchmarks.storage import documents

GOAL = 50.0
"""Milliseconds."""
OWNER = "bench"


def main() -> None:
    """Print a line for each step."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--canaries", type=int, default=10_000)
    options.add_argument("--runs", type=int, default=6)
    options.add_argument("--url", default="")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.url:
            migrate(Store(given.url))
        url = given.url or f"sqlite:///{folder}/coalmine.db"
        service = open_service(Settings(data_dir=Path(folder), database_url=url), environment={}, with_worker=False)
        scale = Scale(service.store, service.vault, given.canaries)
        print(f"{given.canaries:,} canaries, {given.runs} runs on {service.store.dialect}", flush=True)
        for number in range(given.runs):
            scale.probe.change(1.0)
            scale.execute()
            print(f"  run {number + 1} has ended", flush=True)
        correct(scale, given.canaries)
        for name, step in (("re-scoring", rescore), ("report", report), ("retention", forget)):
            scale.writes.forget()
            step(scale)
            print_longest(name, scale.writes)


def print_longest(name: str, writes: WriteTimes) -> None:
    """Print the longest writing transaction of each function that opened one, the longest of all first."""
    table = Table()
    ordered = sorted(writes.held.items(), key=lambda one: max(one[1]), reverse=True)
    for function, times in ordered:
        note = f"{len(times):,} transactions, none above {max(one.processor for one in times):.1f} cpu"
        table.line(f"{name}, {function}", max(times), GOAL, note=note)
    if not ordered:
        print(f"{name}: no writing transaction")


def correct(scale: Scale, canaries: int) -> None:
    """Have every canary expect another chunk too, and the check send a report."""
    plain = documents(canaries)
    suite = plain.suites[0].data()
    for number, canary in enumerate(suite["canaries"]):
        canary["expected_chunks"].append({"id": f"c{number}-7"})
    check = {**check_of(canaries), "report": {"cron": "0 * * * *", "hooks": ["ops"]}}
    changed = replace(
        plain, suites=(parse_document(SuiteDocument, suite),), checks=(parse_document(CheckDocument, check),)
    )
    applying.apply(scale.store, scale.vault, changed, managed_by=API, now=scale.now)


def rescore(scale: Scale) -> None:
    """Score all runs again."""
    rescoring_id = rescoring.ask(scale.store, "bench", since=None, now=scale.now)
    claimed = rescoring.claim(scale.store, owner=OWNER, now=scale.now, only=rescoring_id)
    assert claimed == rescoring_id
    assert rescoring.carry_on(scale.store, rescoring_id, owner=OWNER, clock=lambda: scale.now)


def report(scale: Scale) -> None:
    """Write the report that is due, with its delivery."""
    due = scale.now + timedelta(hours=2)
    assert DueReports(scale.store).queue_due(due) == 1
    with scale.store.read() as connection:
        report_id = connection.execute(sa.select(reports.c.id)).scalar_one()
    assert scheduled_reports.write_report(scale.store, report_id, now=due)


def forget(scale: Scale) -> None:
    """Forget all runs but the newest, and what they alone had."""
    assert retention.prune(scale.store, scale.now + timedelta(days=100), days=1) > 0


if __name__ == "__main__":
    main()
