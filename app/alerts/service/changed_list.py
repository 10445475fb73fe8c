"""Lists of changed canaries for transitions, notices and pages: the worst first, with ranks and lost chunks."""

from collections.abc import Sequence
from dataclasses import replace
from heapq import nsmallest

from app.alerts.domain.evidence import ChangedCanary, Degradation, ListedCanaries, LowerChunk
from app.alerts.domain.lost_chunks import lost_chunks
from app.alerts.service.changed_canaries import load_changes
from app.base.db.engine import Connection
from app.base.values import Ranking
from app.catalog.domain.suite_snapshot import Member
from app.detection.store import detectors
from app.records.store import canary_states, ranking_rows
from app.records.store.canary_states import StateRow
from app.records.store.degraded_at_run import DegradedRow
from app.scoring.matching import Match
from app.scoring.tally import MISSING, REGRESSED, RELEVANCE, unpack_reasons

_LISTED = 10
_MAX_STATES = 20
_MOST_LOWER = 3


def list_changed(
    connection: Connection,
    run_id: int,
    first_run: int | None,
    *,
    category: str | None = None,
    canary: str | None = None,
    unchanged: bool = False,
    limit: int = _LISTED,
) -> ListedCanaries:
    """List the canaries of a run that changed since before a first bad run, those of a category or a single one only.

    Those that the detector names come first, then the most degraded; with `unchanged` those that were failing before
    follow. `rank_before` is the rank of the first expected chunk when the canary was last healthy or, if it lost its
    chunk, last found it; None = not in the ranking, or not within the last states. `lower` lists the expected chunks
    that rank lower than then, or are not retrieved any more.
    """
    (change,) = load_changes(connection, [(run_id, first_run)])
    if change is None:
        return {"canaries": [], "changed": 0, "failing_before": 0}
    members = {canary_id: change.suite.members[change.suite.positions[canary_id]] for canary_id in change.degraded}
    concerned = {
        canary_id
        for canary_id, member in members.items()
        if (category is None or member.canary.category == category) and (canary is None or member.key == canary)
    }
    changed_ids = concerned if canary is not None else concerned & change.changed_ids
    order = {key: place for place, key in enumerate(change.named)}
    unscored = {change.members[place].canary_id for place in change.missing.unscored}
    rows = {one: change.degraded[one] for one in (concerned if unchanged else changed_ids)}
    rows |= {one: _without_relevance(rows[one]) for one in unscored & rows.keys()}
    worst = nsmallest(
        limit,
        rows.values(),
        key=lambda row: (
            row.canary_id not in changed_ids,
            order.get(members[row.canary_id].key, len(order)),
            not row.reasons & REGRESSED,
            severity_order(row, members[row.canary_id].key),
        ),
    )
    states = canary_states.states_of(connection, change.run.check_id, run_id, [row.canary_id for row in worst])
    now = [replace(states[row.canary_id], reasons=row.reasons) for row in worst if row.canary_id in states]
    before = [_read_last_healthy(connection, change.run.check_id, state) for state in now]
    rankings = ranking_rows.load_rankings(connection, [one.ranking_id for one in before if one is not None])
    return {
        "canaries": [
            _listed(members[state.canary_id], state, past, rankings.get(past.ranking_id) if past is not None else None)
            for state, past in zip(now, before, strict=True)
        ],
        "changed": len(changed_ids),
        "failing_before": len(concerned) - len(changed_ids),
    }


def _without_relevance(row: DegradedRow) -> DegradedRow:
    return replace(row, top_score=None, reasons=row.reasons & ~RELEVANCE)


def _listed(member: Member, state: StateRow, before: StateRow | None, ranking: Ranking | None) -> ChangedCanary:
    """Describe a canary; `ranking` is that of `before`."""
    lost = _lost(member, before, state, ranking)
    found: ChangedCanary = {
        "key": member.key,
        "query": member.canary.query,
        "reasons": list(unpack_reasons(state.reasons)),
        "rank_before": _rank(before),
        "rank_now": _rank(state),
        "lower": [] if before is None else _lower(member, before, state, ranking),
        "lost": lost["lost"],
        "lost_total": lost["lost_total"],
    }
    if "lost_documents" in lost:
        found["lost_documents"] = lost["lost_documents"]
    return found


def _lost(member: Member, before: StateRow | None, now: StateRow, ranking: Ranking | None) -> Degradation:
    chunks = member.canary.judgments
    today = Match.from_bytes(now.matched).first
    then = None
    if before is not None and before.canary_version_id == now.canary_version_id:
        then = Match.from_bytes(before.matched).first
    if len(today) != len(chunks) or (then is not None and len(then) != len(chunks)):
        then, today = None, (None,) * len(chunks)
    documents = () if ranking is None else ranking.documents
    return lost_chunks(chunks, today, then, missing=bool(now.reasons & MISSING), documents=documents)


def _lower(member: Member, before: StateRow, now: StateRow, ranking: Ranking | None) -> list[LowerChunk]:
    """List expected chunks that a canary ranks lower than before, those it does not retrieve any more first.

    A chunk without an expected document has that of the hit that matched it before.
    """
    documents = () if ranking is None else ranking.documents
    chunks = member.canary.judgments
    then, today = (Match.from_bytes(state.matched).first for state in (before, now))
    if before.canary_version_id != now.canary_version_id or not len(chunks) == len(then) == len(today):
        return []
    lower: list[LowerChunk] = [
        {
            "id": chunk.id,
            "document": chunk.document or (documents[was - 1] if was <= len(documents) else None),
            "rank_before": was,
            "rank_now": rank,
        }
        for chunk, was, rank in zip(chunks, then, today, strict=True)
        if chunk.grade >= 1 and was is not None and (rank is None or rank > was)
    ]
    lower.sort(key=lambda one: (one["rank_now"] is not None, one["rank_before"]))
    return lower[:_MOST_LOWER]


def severity_order(state: StateRow | DegradedRow, key: str) -> tuple[int, float, str]:
    """Sort key as in shapes.worst_first: most reasons first, then the lowest top score, unknown ones last."""
    return -state.reasons.bit_count(), 1.0 if state.top_score is None else state.top_score, key


def last_healthy_state(connection: Connection, now: StateRow | None, past: Sequence[StateRow]) -> StateRow | None:
    """Newest of these states, given newest first, in which a canary was healthy; None = there is none.

    A canary that lost its chunk counts as healthy as long as it found it, whatever else was wrong then. Where the
    detector names it now, the state is one from before the fault with another ranking: without a limit of its own a
    canary stays healthy until the detector has enough runs. If it never was healthy, the newest one before the fault.
    """
    relevant_reasons = MISSING if now is not None and now.reasons & MISSING else -1
    healthy = [state for state in past if not state.reasons & relevant_reasons]
    if now is None or not now.reasons & REGRESSED:
        return next(iter(healthy), None)
    detection = detectors.detections_of(connection, [now.first_run]).get(now.first_run)
    since = now.first_run if detection is None or detection.since_run is None else detection.since_run
    not_regressed = [state for state in past if not state.reasons & REGRESSED]
    return next(
        (one for one in (*healthy, *not_regressed) if one.first_run < since and one.ranking_id != now.ranking_id), None
    )


def _read_last_healthy(connection: Connection, check_id: int, now: StateRow) -> StateRow | None:
    past = canary_states.timeline(connection, check_id, now.canary_id, limit=_MAX_STATES)
    return last_healthy_state(connection, now, [state for state in past if state.first_run < now.first_run])


def _rank(state: StateRow | None) -> int | None:
    return Match.from_bytes(state.matched).first_relevant if state is not None else None
