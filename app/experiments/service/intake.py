"""Exposures and outcomes taken in: idempotent, each request one transaction, with running totals.

What is committed is counted, and what is sent again after a lost answer counts once. Unit ids are kept as 64 bits of
SHA-256 keyed by the experiment's random salt.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import InvalidInputError, Problem
from app.experiments.documents.experiment_documents import ExperimentDocument, Exposure, UnitOutcome
from app.experiments.domain.assignment import assign_arm
from app.experiments.domain.looks import bucket_of, bucket_us
from app.experiments.domain.views import ReceivedExposures, ReceivedOutcomes
from app.experiments.service.experiments import document_of, find_experiment
from app.experiments.store import experiments as rows
from app.experiments.store import units
from app.experiments.store.experiments import EpochRow
from app.experiments.store.units import CountRow, UnitRow

_HASH_BYTES: Final = 8
_MOST_PROBLEMS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """An epoch with what it takes to count in it."""

    row: EpochRow
    document: ExperimentDocument

    @property
    def window(self) -> int:
        """How long after its exposure an outcome counts, in microseconds."""
        return round(self.document.window * 1_000_000)

    def bucket(self, exposed_at: int) -> int:
        """Begin of the span of time that a unit is counted in."""
        return bucket_of(exposed_at, bucket_us(self.window))


def receive_exposures(store: Store, slug: str, exposures: Sequence[Exposure], *, now: datetime) -> ReceivedExposures:
    """Store that units were exposed, in the current epoch; a unit counts once, by what came first.

    Raises NotFoundError, and InvalidInputError for an arm that the experiment does not have.
    """
    with store.write() as connection:
        experiment = find_experiment(connection, slug, lock=True)
        epoch = _epochs(connection, experiment.id)[0]
        arms = epoch.document.domain_arms
        places = {arm.name: place for place, arm in enumerate(arms)}
        _require_arms(exposures, places)
        shares = [arm.share for arm in arms]
        digest, latest = unit_hasher(experiment.salt), to_us(now)
        hashes = [digest(one.unit) for one in exposures]
        known = {row.unit: row.arm for row in units.find_units(connection, [epoch.row.id], hashes)}
        new: list[tuple[int, int, int, int]] = []
        other = unlike = 0
        for one, unit in zip(exposures, hashes, strict=True):
            assigned = assign_arm(slug, epoch.row.epoch, one.unit, shares)
            arm = assigned if one.arm is None else places[one.arm]
            unlike += arm != assigned
            other += known.get(unit, arm) != arm
            if unit not in known:
                known[unit] = arm
                new.append((epoch.row.id, unit, arm, _moment(one.time, latest)))
        units.insert_units(connection, new)
        totals = Counter((epoch.bucket(exposed_at), arm) for _, _, arm, exposed_at in new)
        counts = [CountRow(bucket, arm, number, 0) for (bucket, arm), number in totals.items()]
        units.add_counts(connection, epoch.row.id, counts)
    return {"received": len(exposures), "new": len(new), "other_arm": other, "unlike_assignment": unlike}


def receive_outcomes(store: Store, slug: str, outcomes: Sequence[UnitOutcome], *, now: datetime) -> ReceivedOutcomes:
    """Store the outcomes of units, each in the epoch that the unit was exposed in: of several, the newest before it.

    The first value of a unit stays. One later than the window after the exposure counts as the 0 that it came to mean.
    Raises NotFoundError.
    """
    tally: Counter[str] = Counter()
    with store.write() as connection:
        experiment = find_experiment(connection, slug, lock=True)
        epochs = {epoch.row.id: epoch for epoch in _epochs(connection, experiment.id)}
        digest, latest = unit_hasher(experiment.salt), to_us(now)
        hashes = [digest(one.unit) for one in outcomes]
        exposed: dict[int, list[UnitRow]] = {}
        for known in units.find_units(connection, list(epochs), hashes):
            exposed.setdefault(known.unit, []).append(known)
        saved: dict[tuple[int, int], tuple[int, int]] = {}
        grown: dict[int, Counter[tuple[int, int]]] = {}
        for one, unit in zip(outcomes, hashes, strict=True):
            at, event = _moment(one.time, latest), digest(one.event_id)
            row = _exposure_before(exposed.get(unit, ()), at, epochs)
            if row is None:
                tally["not_exposed"] += 1
                continue
            epoch, key = epochs[row.epoch_id], (row.epoch_id, row.unit)
            before = saved[key][0] if key in saved else row.event
            if before is not None:
                tally["repeated" if before == event else "second_value"] += 1
            elif at > row.exposed_at + epoch.window:
                tally["late"] += 1
            else:
                tally["new"] += 1
                saved[key] = event, one.value
                place = epoch.bucket(row.exposed_at), row.arm
                grown.setdefault(row.epoch_id, Counter())[place] += one.value
        units.save_values(connection, [(*key, event, value) for key, (event, value) in saved.items()])
        for epoch_id, successes in sorted(grown.items()):
            counts = [CountRow(bucket, arm, 0, number) for (bucket, arm), number in successes.items() if number]
            units.add_counts(connection, epoch_id, counts)
    return {
        "received": len(outcomes),
        "new": tally["new"],
        "repeated": tally["repeated"],
        "second_value": tally["second_value"],
        "late": tally["late"],
        "not_exposed": tally["not_exposed"],
    }


def _exposure_before(found: Sequence[UnitRow], at: int, epochs: dict[int, _Epoch]) -> UnitRow | None:
    """Return the newest exposure of a unit before an outcome; the oldest where clocks say that all came later."""
    ordered = sorted(found, key=lambda row: epochs[row.epoch_id].row.epoch)
    before = [row for row in ordered if row.exposed_at <= at]
    return before[-1] if before else next(iter(ordered), None)


def _epochs(connection: Connection, experiment_id: int) -> list[_Epoch]:
    return [_Epoch(row=row, document=document_of(row)) for row in rows.list_epochs(connection, experiment_id)]


def unit_hasher(salt: bytes) -> Callable[[str], int]:
    """Return the keyed hash of an id as a signed number of 64 bits."""

    def digest(text: str) -> int:
        whole = hmac.digest(salt, text.encode(), hashlib.sha256)
        return int.from_bytes(whole[:_HASH_BYTES], signed=True)

    return digest


def _moment(at: datetime | None, latest: int) -> int:
    """Return a time in microseconds; a later one than now is now."""
    return latest if at is None else min(to_us(at), latest)


def _require_arms(exposures: Sequence[Exposure], places: dict[str, int]) -> None:
    problems = [
        Problem(path=f"exposures[{place}].arm", message=f"is none of {', '.join(places)}")
        for place, one in enumerate(exposures)
        if one.arm is not None and one.arm not in places
    ]
    if problems:
        raise InvalidInputError(problems[:_MOST_PROBLEMS])
