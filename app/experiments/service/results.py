"""What an experiment came to: the decision of each epoch from its running totals, never from its units."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.comparison.domain.outcomes import Side
from app.experiments.documents.experiment_documents import ExperimentDocument
from app.experiments.domain.confidence_sequence import ArmCounts, RateDifference, estimate_difference
from app.experiments.domain.decision import ExperimentDecision, Look, decide_experiment
from app.experiments.domain.looks import count_exposed, count_pending, make_looks, thin_looks
from app.experiments.domain.sample_ratio import log_mismatch_evidence
from app.experiments.domain.views import (
    ArmView,
    EpochView,
    ExperimentDetail,
    ExperimentLook,
    ExperimentView,
    RateDifferenceView,
)
from app.experiments.service.experiments import document_of, find_experiment
from app.experiments.store import experiments as rows
from app.experiments.store import units
from app.experiments.store.experiments import EpochRow, ExperimentRow
from app.experiments.store.units import CountRow
from app.records import documents as shapes

MOST_LOOKS: Final = 200


def list_experiments(store: Store, *, after: str = "", limit: int, now: datetime) -> list[ExperimentView]:
    """List experiments by slug, those behind `after`."""
    with store.read() as connection:
        return [
            _experiment_view(one, _load_epoch(connection, rows.list_epochs(connection, one.id)[0], now))
            for one in rows.list_experiments(connection, after=after, limit=limit)
        ]


def load_experiment(store: Store, slug: str, *, now: datetime) -> ExperimentDetail:
    """Return an experiment with its interval over time and its earlier epochs. Raises NotFoundError."""
    with store.read() as connection:
        experiment = find_experiment(connection, slug)
        current, *earlier = rows.list_epochs(connection, experiment.id)
        totals = units.read_counts(connection, current.id)
        document = document_of(current)
        looks = _looks(totals, document, now)
        exposed = count_exposed(totals)
        epochs = [_load_epoch(connection, one, now) for one in earlier]
    share = document.plan.share
    return {
        **_experiment_view(experiment, _epoch_view(current, document, totals, looks, now)),
        "mismatch_evidence": log_mismatch_evidence(exposed[0], sum(exposed), share) / math.log(10),
        "looks": [_look_view(look) for look in thin_looks(looks, MOST_LOOKS)],
        "epochs": epochs,
    }


def decide_current(
    connection: Connection, slug: str, *, now: datetime
) -> tuple[ExperimentDocument, ExperimentDecision]:
    """Return the decision of the current epoch of an experiment, with its document. Raises NotFoundError."""
    current = rows.list_epochs(connection, find_experiment(connection, slug).id)[0]
    document, totals = document_of(current), units.read_counts(connection, current.id)
    return document, decide_experiment(_looks(totals, document, now), count_exposed(totals), document.plan)


def _load_epoch(connection: Connection, row: EpochRow, now: datetime) -> EpochView:
    totals = units.read_counts(connection, row.id)
    document = document_of(row)
    return _epoch_view(row, document, totals, _looks(totals, document, now), now)


def _looks(totals: Sequence[CountRow], document: ExperimentDocument, now: datetime) -> list[Look]:
    return make_looks(totals, window=_window_us(document), now=to_us(now))


def _window_us(document: ExperimentDocument) -> int:
    return round(document.window * 1_000_000)


def _experiment_view(row: ExperimentRow, epoch: EpochView) -> ExperimentView:
    return {
        **epoch,
        "slug": row.slug,
        "outcome": "binary",
        "created_at": shapes.time_text(row.created_at),
        "created_by": row.created_by,
    }


def _epoch_view(
    row: EpochRow, document: ExperimentDocument, totals: Sequence[CountRow], looks: Sequence[Look], now: datetime
) -> EpochView:
    plan, exposed = document.plan, count_exposed(totals)
    pending, pending_until = count_pending(totals, window=_window_us(document), now=to_us(now))
    decision = decide_experiment(looks, exposed, plan)
    newest = looks[-1].counts if looks else (ArmCounts(units=0, successes=0),) * 2
    winner = None if decision.winner is None else plan.names[list(Side).index(decision.winner)]
    return {
        "epoch": row.epoch,
        "began_at": shapes.time_text(row.began_at),
        "ended_at": shapes.time_text(row.ended_at),
        "arms": [
            _arm_view(arm.name, arm.share, seen, counts)
            for arm, seen, counts in zip(document.domain_arms, exposed, newest, strict=True)
        ],
        "pending": pending,
        "pending_until": shapes.time_text(pending_until),
        "delta": document.delta,
        "window": document.window,
        "max_units": document.max_units,
        "state": decision.state,
        "reason": decision.reason,
        "winner": winner,
        "decided_at": shapes.time_text(decision.look.at) if decision.ended and decision.look is not None else None,
        "difference": _difference_view(decision.difference),
    }


def _arm_view(name: str, share: float, exposed: int, counts: ArmCounts) -> ArmView:
    return {
        "name": name,
        "share": share,
        "exposed": exposed,
        "units": counts.units,
        "successes": counts.successes,
        "rate": counts.rate if counts.units else None,
    }


def _difference_view(found: RateDifference | None) -> RateDifferenceView | None:
    return None if found is None else {"value": found.value, "low": found.low, "high": found.high}


def _look_view(look: Look) -> ExperimentLook:
    return {
        "at": shapes.time_text(look.at),
        "units": sum(counts.units for counts in look.counts),
        "difference": _difference_view(estimate_difference(*look.counts)),
    }
