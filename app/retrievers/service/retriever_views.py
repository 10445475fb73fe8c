"""Checks that use a retriever, with the probe outcomes of their last runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.base.db.engine import Store, from_us
from app.catalog.store import definitions
from app.records.domain.run_views import RunDetails
from app.records.store import results
from app.retrievers.domain.views import LatencyView


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverCheck:
    """A check that uses a retriever, with its last ended run."""

    check: str
    suite: str
    run_id: str | None
    """None before the first."""
    ended_at: datetime | None
    outcomes: Mapping[str, int]
    """Number of probes by outcome; empty where the run could not be executed."""
    latency: LatencyView | None


def checks_by_retriever(store: Store) -> dict[str, list[RetrieverCheck]]:
    """Return the checks in force by the slug of their retriever."""
    checks: dict[str, list[RetrieverCheck]] = {}
    with store.read() as connection:
        newest = results.latest_bodies(connection)
        times = results.run_times(connection, [run_id for run_id, _ in newest.values()])
        for check in definitions.list_definitions(connection, "check"):
            run_id, body = newest.get(check.id, (None, RunDetails()))
            checks.setdefault(str(check.body["retriever"]), []).append(
                _retriever_check(check.slug, check.body, run_id, body, times)
            )
    return checks


def _retriever_check(
    check: str,
    definition: Mapping[str, Any],
    run_id: int | None,
    body: RunDetails,
    times: Mapping[int, int],
) -> RetrieverCheck:
    at = times.get(run_id) if run_id is not None else None
    return RetrieverCheck(
        check=check,
        suite=str(definition["suite"]),
        run_id=None if run_id is None else str(run_id),
        ended_at=None if at is None else from_us(at),
        outcomes=body.get("probes", {}),
        latency=body.get("latency_seconds"),
    )
