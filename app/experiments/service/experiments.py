"""Experiments and interleavings: defined, sent what users did, read with their decision, ended.

Either begins a new epoch where it changes.
"""

import hashlib
import hmac
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, InvalidInputError, Problem, require_found
from app.base.texts import listed
from app.base.values import Value
from app.base.views import time_text, view_of
from app.comparison.domain.outcomes import Side
from app.experiments import store as rows
from app.experiments.documents import (
    Click,
    ExperimentDocument,
    Exposure,
    InterleavingDocument,
    ListsRequest,
    UnitOutcome,
)
from app.experiments.domain.experiments import (
    ArmCounts,
    ExperimentDecision,
    ExperimentState,
    Look,
    PreferenceDecision,
    Preferences,
    RateDifference,
    assign_arm,
    count_exposed,
    count_pending,
    decide_experiment,
    decide_preference,
    estimate_difference,
    interleave,
    log_mismatch_evidence,
    make_looks,
    sound_looks,
    thin_looks,
)
from app.experiments.domain.later_looks import hold_against_clicks, hold_against_looks, say_power_by_now
from app.experiments.store import ClickRow, CountRow, EpochRow, ExperimentRow, InterleavingRow, UnitRow
from app.experiments.views import (
    ArmView,
    EpochView,
    ExperimentDetail,
    ExperimentLook,
    ExperimentView,
    InterleavingView,
    MergedList,
    ReceivedClicks,
    ReceivedExposures,
    ReceivedOutcomes,
)

_SALT_BYTES: Final = 16
_BLOCK: Final = 2_000


def put_experiment(
    store: Store, document: ExperimentDocument, *, by: str, now: datetime, only_new: bool = False
) -> bool:
    """Create an experiment, or begin an epoch with what has changed; whether it is new.

    The same document again changes nothing, unless it was stopped. With `only_new` raises ConflictError wherever there
    is one.
    """
    with store.write() as connection:
        body, at = document.data(), to_us(now)
        salt = secrets.token_bytes(_SALT_BYTES)
        made = rows.insert_experiment(connection, slug=document.slug, salt=salt, at=at, by=by)
        if made is not None:
            rows.begin_epoch(connection, made, 1, body, at)
            return True
        if only_new:
            raise ConflictError(f"there is an experiment '{document.slug}' already")
        experiment = find_experiment(connection, document.slug, lock=True)
        current = rows.list_epochs(connection, experiment.id)[0]
        if current.document != document or current.ended_at is not None:
            rows.begin_epoch(connection, experiment.id, current.epoch + 1, body, at)
        return False


def stop_experiment(store: Store, slug: str, *, now: datetime) -> None:
    """End the epoch of an experiment: no more units are exposed, outcomes of those that were still count.

    Again it changes nothing. Raises NotFoundError.
    """
    with store.write() as connection:
        rows.end_epochs(connection, find_experiment(connection, slug, lock=True).id, to_us(now))


def restart_experiment(store: Store, slug: str, *, by: str, now: datetime) -> None:
    """Begin an epoch of a stopped experiment as it was. Raises NotFoundError."""
    with store.read() as connection:
        current = rows.list_epochs(connection, find_experiment(connection, slug).id)[0]
    put_experiment(store, current.document, by=by, now=now)


def archive_experiment(store: Store, slug: str, *, now: datetime) -> None:
    """Archive an experiment and delete its units at once; its totals stay.

    Raises NotFoundError, and ConflictError while a promotion reads it: what users showed would be forgotten.
    """
    with store.write() as connection:
        experiment = find_experiment(connection, slug, lock=True)
        if readers := [one.slug for one in rows.list_promotions(connection, limit=_ALL) if slug in one.document.reads]:
            raise ConflictError(f"promotion '{readers[0]}' reads experiment '{slug}': delete or change it first")
        rows.archive_experiment(connection, experiment.id, to_us(now))
        epoch_ids = [epoch.id for epoch in rows.list_epochs(connection, experiment.id)]
    while True:
        with store.write() as connection:
            gone = rows.units_of(connection, epoch_ids, _BLOCK)
            rows.drop_units(connection, gone)
        if len(gone) < _BLOCK:
            return


def find_experiment(connection: Connection, slug: str, *, lock: bool = False) -> ExperimentRow:
    """Return an experiment in force. Raises NotFoundError, also for an archived one."""
    return require_found(rows.find_experiment(connection, slug, lock=lock), f"experiment '{slug}'")


_ALL: Final = 1_000_000
_HASH_BYTES: Final = 8
_MOST_PROBLEMS: Final = 100


def receive_exposures(store: Store, slug: str, exposures: Sequence[Exposure], *, now: datetime) -> ReceivedExposures:
    """Store that units were exposed, in the current epoch; a unit counts once, by what came first.

    Those dated before a second or later epoch began are counted in none: the arms were those of the epoch before.
    Raises NotFoundError, ConflictError where it was stopped, and InvalidInputError for an arm that it does not have.
    """
    with store.write() as connection:
        experiment = find_experiment(connection, slug, lock=True)
        epoch = rows.list_epochs(connection, experiment.id)[0]
        if epoch.ended_at is not None:
            raise ConflictError(f"experiment '{slug}' was stopped: define it again to begin an epoch")
        arms = epoch.document.arms
        places = {arm.name: place for place, arm in enumerate(arms)}
        problems = [
            Problem(path=f"exposures[{place}].arm", message=f"is none of {', '.join(places)}")
            for place, one in enumerate(exposures)
            if one.arm is not None and one.arm not in places
        ]
        if problems:
            raise InvalidInputError(problems[:_MOST_PROBLEMS])
        shares = [arm.share for arm in arms]
        digest, latest = unit_hasher(experiment.salt), to_us(now)
        hashes = [digest(one.unit) for one in exposures]
        known = {row.unit: row.arm for row in rows.find_units(connection, [epoch.id], hashes)}
        new: list[tuple[int, int, int, int]] = []
        other = unlike = early = dealt = 0
        for one, unit in zip(exposures, hashes, strict=True):
            at = _moment(one.at, latest)
            if epoch.epoch > 1 and at < epoch.began_at:  # dealt by an epoch before, which is over
                early += 1
                continue
            assigned = assign_arm(slug, epoch.epoch, one.unit, shares)
            arm = assigned if one.arm is None else places[one.arm]
            unlike += arm != assigned
            other += known.get(unit, arm) != arm
            if unit not in known:
                known[unit] = arm
                new.append((epoch.id, unit, arm, at))
                dealt += one.arm is None
        rows.insert_units(connection, new)
        rows.tally_epoch(connection, epoch.id, dealt=dealt)
        totals = Counter((epoch.bucket(exposed_at), arm) for _, _, arm, exposed_at in new)
        counts = [CountRow(bucket, arm, number, 0) for (bucket, arm), number in totals.items()]
        rows.add_counts(connection, epoch.id, counts)
    counted = {"new": len(new), "other_arm": other, "unlike_assignment": unlike, "before_epoch": early}
    return view_of(ReceivedExposures, {"received": len(exposures)}, counted)


def receive_outcomes(store: Store, slug: str, outcomes: Sequence[UnitOutcome], *, now: datetime) -> ReceivedOutcomes:
    """Store the outcomes of units, each in the epoch that the unit was exposed in: of several, the newest before it.

    The first value of a unit stays. One later than the window after the exposure counts as the 0 that it came to mean,
    one of before the exposure not at all. Raises NotFoundError.
    """
    tally = Counter(dict.fromkeys(("new", "repeated", "second_value", "late", "early", "not_exposed"), 0))
    with store.write() as connection:
        experiment = find_experiment(connection, slug, lock=True)
        epochs = {epoch.id: epoch for epoch in rows.list_epochs(connection, experiment.id)}
        digest, latest = unit_hasher(experiment.salt), to_us(now)
        hashes = [digest(one.unit) for one in outcomes]
        exposed: dict[int, list[UnitRow]] = {}
        for known in rows.find_units(connection, list(epochs), hashes):
            exposed.setdefault(known.unit, []).append(known)
        saved: dict[tuple[int, int], tuple[int, int]] = {}
        grown: dict[int, Counter[tuple[int, int]]] = {}
        late: dict[int, Counter[int]] = {}
        for one, unit in zip(outcomes, hashes, strict=True):
            at, event = _moment(one.at, latest), digest(one.event_id)
            seen = sorted(exposed.get(unit, ()), key=lambda row: epochs[row.epoch_id].epoch)
            if not seen:
                tally["not_exposed"] += 1
                continue
            # The newest exposure before the outcome; the oldest where clocks say that all came later.
            row = next((one for one in reversed(seen) if one.exposed_at <= at), seen[0])
            epoch, key = epochs[row.epoch_id], (row.epoch_id, row.unit)
            before = saved[key][0] if key in saved else row.event
            if before is not None:
                tally["repeated" if before == event else "second_value"] += 1
            elif at > row.exposed_at + epoch.document.window_us:
                tally["late"] += 1
                late.setdefault(row.epoch_id, Counter())[row.arm] += one.value
            elif at < row.exposed_at - _CLOCKS_US:  # not of what it saw: a later outcome of it may still count
                tally["early"] += 1
            else:
                tally["new"] += 1
                saved[key] = event, one.value
                place = epoch.bucket(row.exposed_at), row.arm
                grown.setdefault(row.epoch_id, Counter())[place] += one.value
        rows.save_values(connection, [(*key, event, value) for key, (event, value) in saved.items()])
        for epoch_id, successes in sorted(grown.items()):
            counts = [CountRow(bucket, arm, 0, number) for (bucket, arm), number in successes.items() if number]
            rows.add_counts(connection, epoch_id, counts)
        for epoch_id, by_arm in sorted(late.items()):
            rows.tally_epoch(connection, epoch_id, late=(by_arm[0], by_arm[1]))
    return view_of(ReceivedOutcomes, {"received": len(outcomes)}, tally)


_CLOCKS_US: Final = 60_000_000
"""By so much the clocks that date exposures and outcomes may differ: a minute."""


def unit_hasher(salt: bytes) -> Callable[[str], int]:
    """Return the keyed hash of an id as a signed number of 64 bits."""

    def digest(text: str) -> int:
        whole = hmac.digest(salt, text.encode(), hashlib.sha256)
        return int.from_bytes(whole[:_HASH_BYTES], signed=True)

    return digest


def _moment(at: datetime | None, latest: int) -> int:
    """Return a time in microseconds; a later one than now is now."""
    return latest if at is None else min(to_us(at), latest)


MOST_LOOKS: Final = 200


def list_experiments(store: Store, *, after: str = "", limit: int, now: datetime) -> list[ExperimentView]:
    """List experiments by slug, those behind `after`."""
    with store.read() as connection:
        return [
            view_of(ExperimentView, next(read_epochs(connection, one.id, now)).view(), one, outcome="binary")
            for one in rows.list_experiments(connection, after=after, limit=limit)
        ]


def load_experiment(store: Store, slug: str, *, now: datetime) -> ExperimentDetail:
    """Return an experiment with its interval over time and its earlier epochs. Raises NotFoundError."""
    with store.read() as connection:
        experiment = find_experiment(connection, slug)
        current, *earlier = read_epochs(connection, experiment.id, now)
    first, both = current.exposed[0], sum(current.exposed)
    return view_of(
        ExperimentDetail,
        current.view(),
        experiment,
        outcome="binary",
        mismatch_evidence=log_mismatch_evidence(first, both, current.row.document.plan.share) / math.log(10),
        looks=[
            view_of(
                ExperimentLook,
                look,
                units=sum(counts.units for counts in look.counts),
                difference=estimate_difference(*look.counts),
            )
            for look in thin_looks(current.looks, MOST_LOOKS)
        ],
        epochs=[one.view() for one in earlier],
    )


class CountedEpoch(Value):
    """An epoch with all that was counted in it by now."""

    row: EpochRow
    totals: Sequence[CountRow]
    looks: Sequence[Look]
    now: int

    @property
    def exposed(self) -> tuple[int, int]:
        """Units of each arm, whether their outcome is final or not."""
        return count_exposed(self.totals)

    @property
    def decision(self) -> ExperimentDecision:
        """Where it stands: the first look at which it ends decides, and later ones that contradict it are told."""
        plan = self.row.document.plan
        return hold_against_looks(decide_experiment(self.looks, self.exposed, plan), self.looks, plan)

    @property
    def reason(self) -> str:
        """Why it stands so, and how many successes came too late where that may be why."""
        return "; ".join(filter(None, [self.decision.reason, self.late]))

    @property
    def late(self) -> str:
        """How many successes came too late to count, in words; empty where so few did that they move no decision."""
        late = [
            f"{number:,} of {arm}"
            for number, arm, units in zip(self.row.late, self.row.document.plan.names, self.exposed, strict=True)
            if number > _FEW_LATE * units
        ]
        return f"{listed(late)} succeeded after the window, which counts as no success" if late else ""

    @property
    def newest(self) -> RateDifference | None:
        """Rate of the second arm less that of the first at the newest look; None as in decisions.

        Its interval holds at every look, whatever was decided before.
        """
        if not self.looks or self.decision.state is ExperimentState.MISMATCH:
            return None
        return estimate_difference(*self.looks[-1].counts)

    @property
    def decided(self) -> ExperimentDecision:
        """The same, or where the shares mismatch by now what was decided while they did not."""
        decision, plan = self.decision, self.row.document.plan
        if decision.state is not ExperimentState.MISMATCH:
            return decision
        return decide_experiment(sound_looks(self.looks, plan), (0, 0), plan)

    @property
    def power(self) -> str:
        """What it can show, in words."""
        if self.row.ended_at is not None and not self.decision.ended:
            return "it was stopped, and no more units come"
        return say_power_by_now(self.row.document.plan, self.decision)

    @property
    def pending(self) -> tuple[int, int | None]:
        """Units whose outcome is not final yet, and when the last of them is, in microseconds."""
        return count_pending(self.totals, window=self.row.document.window_us, now=self.now)

    def view(self) -> EpochView:
        """Return it as JSON on the wire."""
        decision, document, looks = self.decision, self.row.document, self.looks
        pending, pending_until = self.pending
        newest = looks[-1].counts if looks else (ArmCounts(units=0, successes=0),) * 2
        arms = [
            view_of(ArmView, arm, counts, exposed=seen, late=late, rate=counts.rate if counts.units else None)
            for arm, seen, late, counts in zip(document.arms, self.exposed, self.row.late, newest, strict=True)
        ]
        decided = decision.look.at if decision.ended and decision.look is not None else None
        return view_of(
            EpochView,
            self.row,
            document,
            decision,
            arms=arms,
            reason=self.reason,
            pending=pending,
            pending_until=time_text(pending_until),
            power=self.power,
            winner=None if decision.winner is None else document.plan.names[list(Side).index(decision.winner)],
            decided_at=time_text(decided),
        )


_FEW_LATE: Final = 0.01
"""Share of an arm's units below which successes that came too late move no decision."""


def read_epochs(connection: Connection, experiment_id: int, now: datetime) -> Iterator[CountedEpoch]:
    """Yield the epochs of an experiment, the current one first."""
    for row in rows.list_epochs(connection, experiment_id):
        totals, at = rows.read_counts(connection, row.id), to_us(now)
        looks = make_looks(totals, window=row.document.window_us, now=at)
        yield CountedEpoch(row=row, totals=totals, looks=looks, now=at)


_CREDIT: Final = {Side.A: -1, Side.B: 1}


def put_interleaving(
    store: Store, document: InterleavingDocument, *, by: str, now: datetime, only_new: bool = False
) -> bool:
    """Create an interleaving, or begin an epoch with what has changed; whether it is new.

    The same document again changes nothing. With `only_new` raises ConflictError wherever there is one.
    """
    with store.write() as connection:
        body, at = document.data(), to_us(now)
        salt = secrets.token_bytes(_SALT_BYTES)
        if rows.insert_interleaving(connection, document.slug, body, salt=salt, at=at, by=by):
            return True
        if only_new:
            raise ConflictError(f"there is an interleaving '{document.slug}' already")
        row = _find(connection, document.slug, lock=True)
        if row.document != document:
            rows.begin_interleaving_epoch(connection, row, body, at)
        return False


def merge_lists(store: Store, slug: str, wish: ListsRequest) -> MergedList:
    """Merge two rankings for a unit; nothing is stored. Raises NotFoundError."""
    with store.read() as connection:
        row = _find(connection, slug)
    merged = interleave(slug, row.epoch, wish.unit, wish.a, wish.b)
    return {"epoch": row.epoch, "hits": merged}


def receive_clicks(store: Store, slug: str, clicks: Sequence[Click], *, now: datetime) -> ReceivedClicks:
    """Count clicks, each `event_id` of a unit once. The first look at which it ends decides. Raises NotFoundError.

    One without a team says nothing, and nothing of it is kept.
    """
    with store.write() as connection:
        row = _find(connection, slug, lock=True)
        digest = unit_hasher(row.salt)
        came = [ClickRow(digest(one.unit), digest(one.event_id), _CREDIT[one.team]) for one in clicks if one.team]
        units = {one.unit for one in came}
        before = rows.read_credits(connection, row.id, units)
        rows.insert_clicks(connection, row.id, came)
        after = rows.read_credits(connection, row.id, units)
        moved: Counter[int] = Counter()  # units that changed their preference
        for unit, credit in after.items():
            moved[(credit > 0) - (credit < 0)] += 1
            if unit in before:
                moved[(before[unit] > 0) - (before[unit] < 0)] -= 1
        found, ties = Preferences(a=row.preferences.a + moved[-1], b=row.preferences.b + moved[1]), row.ties + moved[0]
        rows.save_counts(connection, row.id, found, ties)
        if row.decided_at is None and _decide(row, found, ties).ended:
            rows.save_decision(connection, row.id, found, to_us(now))
    without_team = sum(one.team is None for one in clicks)
    return {"received": len(clicks), "without_team": without_team, "units": len(units)}


def list_interleavings(store: Store, *, after: str = "", limit: int) -> list[InterleavingView]:
    """List interleavings by slug, those behind `after`."""
    with store.read() as connection:
        return [_view(row) for row in rows.list_interleavings(connection, after=after, limit=limit)]


def load_interleaving(store: Store, slug: str) -> InterleavingView:
    """Return an interleaving with its decision. Raises NotFoundError."""
    with store.read() as connection:
        return _view(_find(connection, slug))


def delete_interleaving(store: Store, slug: str) -> None:
    """Delete an interleaving and its clicks. Raises NotFoundError."""
    with store.write() as connection:
        row = _find(connection, slug, lock=True)
        rows.delete_clicks(connection, row.id)
        rows.delete_interleaving(connection, row.id)


def _find(connection: Connection, slug: str, *, lock: bool = False) -> InterleavingRow:
    return require_found(rows.find_interleaving(connection, slug, lock=lock), f"interleaving '{slug}'")


def _decide(row: InterleavingRow, found: Preferences, ties: int) -> PreferenceDecision:
    document = row.document
    units = found.a + found.b + ties
    return decide_preference(found, (document.a, document.b), units=units, max_units=document.max_units)


def _view(row: InterleavingRow) -> InterleavingView:
    document = row.document
    found, now = row.decided or row.preferences, row.preferences
    # Ties are those of now: what matters is how many units there are.
    decision = _decide(row, found, now.a + now.b + row.ties - found.a - found.b)
    decision = hold_against_clicks(decision, now, row.decided, (document.a, document.b))
    return view_of(InterleavingView, row, document, decision, prefer_a=row.preferences.a, prefer_b=row.preferences.b)
