"""Quality report of a check: the checklist of the domain, filled from stored rows. It only reads."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import NotFoundError
from app.base.texts import counted
from app.base.values import Canary, Value
from app.base.views import time_text, view_of
from app.catalog.domain import PooledNote
from app.catalog.service import references
from app.catalog.service.judges import Judge, find_judges, pooled_notes
from app.detection import store as detector_rows
from app.diagnosis.domain.quality import (
    DAYS,
    Answered,
    chunks_of,
    embedding_quality,
    precision,
    recall,
    slow_drift,
    spread_over,
    suite_power,
)
from app.diagnosis.domain.quality_texts import chunk_boundaries, chunk_quality, vocabulary
from app.diagnosis.views import QualityReport, QualitySection
from app.records.service import past_runs
from app.records.store import ranking_rows, run_rows, series, state_rows
from app.records.store.run_rows import RunRow
from app.records.store.series import DAY
from app.records.store.state_rows import StateRow
from app.scoring.rankings import Match
from app.scoring.run_inputs import Yardstick
from app.scoring.suites import power_of

MOST_CANARIES: Final = 500
MOST_HITS: Final = 5_000
"""Canaries and hits evaluated at most, evenly spaced over the suite."""
MOST_CHARACTERS: Final = 10_000_000
"""Of retrieved and expected texts together; where they are longer, fewer canaries are evaluated."""
READ_OF_ONE: Final = 20_000
"""Characters of one text that are evaluated."""
_FEWEST_CANARIES = 50
_BLOCK = 10
"""Canaries whose answers are read at once."""
_STEP = 0.618033988749895
"""The golden ratio's: stepping by it, any number of first steps is spread over the whole (Weyl 1916)."""


class _Evidence(Value):
    """Inputs of a report, read from rows."""

    run: RunRow
    canaries: tuple[Canary, ...]
    """All of the suite."""
    retriever: str
    yardstick: Yardstick
    answered: tuple[Answered, ...]
    """The evaluated ones."""
    most_characters: int | None
    """The limit of characters, where canaries were left out for it."""
    measured: int
    """Number of canaries with a stored answer, evaluated or not."""
    series: Mapping[str, Sequence[tuple[float, float]]]
    changed: str | None
    judges: Sequence[Judge]
    """The retrievers that brought up much of what is expected, each alone."""
    pooled: Sequence[PooledNote]
    """Pooled recall of its retriever over its suite."""


def report(
    store: Store,
    slug: str,
    *,
    now: datetime,
    most_canaries: int = MOST_CANARIES,
    most_characters: int = MOST_CHARACTERS,
) -> QualityReport:
    """Evaluate the checklist for a check, by the last answer of each canary, or of a sample of many canaries.

    Very long texts reduce the sample, to at least one canary; the notes state it. So a report takes seconds and some
    tens of megabytes at most. Raises NotFoundError where there is no such check, or no run of it has probed anything.
    """
    with store.read() as connection:
        evidence = _read(connection, slug, now, most_canaries, most_characters)
    answered, yardstick = evidence.answered, evidence.yardstick
    chunks = chunks_of(answered)
    sections = (
        suite_power(power_of(evidence.canaries)),
        chunk_quality(chunks),
        embedding_quality(evidence.run.embedder),
        recall(
            answered,
            k=yardstick.k,
            fetch_k=yardstick.fetch_k,
            self_judged=any(one.retriever == evidence.retriever for one in evidence.judges),
            judged_before_edit=any(one.retriever == evidence.retriever and one.edited_since for one in evidence.judges),
            judged_by=[one.retriever for one in evidence.judges if one.retriever != evidence.retriever],
            pooled=evidence.pooled,
        ),
        precision(answered, yardstick.scorer),
        vocabulary(answered, chunks, k=yardstick.k),
        chunk_boundaries(answered),
        slow_drift(evidence.series, changed=evidence.changed),
    )
    return {
        "check": slug,
        "run": str(evidence.run.id),
        "at": time_text(evidence.run.finished_at),
        "k": yardstick.k,
        "fetch_k": yardstick.fetch_k,
        "canaries": {"total": len(evidence.canaries), "measured": evidence.measured, "looked_at": len(answered)},
        "chunks": {"looked_at": len(chunks)},
        "notes": _notes(evidence),
        "sections": [view_of(QualitySection, section, rounding=True) for section in sections],
    }


def _read(connection: Connection, slug: str, now: datetime, most_canaries: int, most_characters: int) -> _Evidence:
    check = references.find_check(connection, slug)
    row = run_rows.newest_ended(connection, check.id)
    if row is None or row.suite_version_id is None:
        raise NotFoundError(f"check '{slug}' has no ended run yet that asked anything")
    inputs = past_runs.inputs_of_run(connection, row)
    judged = state_rows.versions_at(connection, check.id, row.id)
    measured = [one for one in inputs.suite.members if judged.get(one.canary_id) == one.version_id]
    most = min(most_canaries, max(_FEWEST_CANARIES, MOST_HITS // inputs.yardstick.fetch_k))
    chosen = [measured[place] for place in spread_over(len(measured), most)]
    states = state_rows.states_of(connection, check.id, row.id, [one.canary_id for one in chosen])
    sampled = [(one.canary, states[one.canary_id]) for one in chosen]
    answered, cut = _answered(connection, sampled, most_characters)
    start = to_us(now - timedelta(days=DAYS))
    return _Evidence(
        run=row,
        canaries=inputs.canaries,
        yardstick=inputs.yardstick,
        answered=answered,
        most_characters=most_characters if cut else None,
        measured=len(measured),
        series=_series(connection, check.id, inputs.yardstick, start, to_us(now)),
        changed=_changed(connection, row, start),
        retriever=inputs.retriever.slug,
        judges=find_judges(
            connection,
            inputs.suite.judgment_shares,
            {inputs.retriever.slug: row.retriever_version_id},
            suite=inputs.suite_slug,
        ),
        pooled=pooled_notes(connection, inputs.suite_slug, inputs.retriever.slug),
    )


def _answered(
    connection: Connection, sampled: Sequence[tuple[Canary, StateRow]], most_characters: int
) -> tuple[tuple[Answered, ...], bool]:
    """Read answers within the limit of characters, evenly spaced, and whether some were left out.

    In blocks, so that at most one block is read in vain.
    """
    order = sorted(range(len(sampled)), key=lambda place: place * _STEP % 1)
    taken: dict[int, Answered] = {}
    room = most_characters
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        rankings = ranking_rows.load_rankings(connection, [sampled[place][1].ranking_id for place in block])
        for place in block:
            canary, state = sampled[place]
            ranking = rankings[state.ranking_id]
            one = Answered(canary=canary, ranking=ranking, match=Match.from_bytes(state.matched))
            room -= _characters(one)
            if room < 0 and taken:
                return tuple(taken[place] for place in sorted(taken)), True
            taken[place] = one
    return tuple(taken[place] for place in sorted(taken)), False


def _characters(one: Answered) -> int:
    texts = [*one.ranking.texts, *(judgment.text for _, judgment in one.expected)]
    return sum(min(len(text), READ_OF_ONE) for text in texts if text is not None)


def _series(
    connection: Connection, check_id: int, yardstick: Yardstick, start: int, end: int
) -> dict[str, list[tuple[float, float]]]:
    """Read daily means of coverage and NDCG, as (day, mean)."""
    names = {str(measure) for measure in yardstick.measures}
    ndcg = "NDCG@10" if "NDCG@10" in names and yardstick.fetch_k >= 10 else f"NDCG@{yardstick.k}"  # noqa: PLR2004 - the 10 of the name
    day, source = DAY * 1_000_000, series.Source(check_id=check_id)
    first = start - start % day
    return {
        name: [
            (point.at / day, point.mean)
            for point in series.series_of_rollups(connection, source, name, first, end, seconds=DAY)
        ]
        for name in ("coverage", ndcg)
    }


def _changed(connection: Connection, row: RunRow, start: int) -> str | None:
    first = detector_rows.first_suite(connection, row.check_id, start)
    if first is None or first == row.suite_version_id:
        return None
    return "the suite has changed since, so part of it may be another question"


def _notes(evidence: _Evidence) -> list[str]:
    """Return the notes on what the report leaves out; sentences without their full stop."""
    notes: list[str] = []
    unmeasured = len(evidence.canaries) - evidence.measured
    if unmeasured:
        notes.append(f"no answer is known of {counted(unmeasured, 'canary')} of {len(evidence.canaries):,}")
    if len(evidence.answered) < evidence.measured:
        text = f"{len(evidence.answered):,} of {evidence.measured:,} answered canaries are evaluated"
        notes.append(f"{text}, evenly spaced over the suite")
    if evidence.most_characters is not None:
        text = f"texts are so long that canaries were left out: {evidence.most_characters:,} characters are evaluated"
        notes.append(f"{text}, of one text the first {READ_OF_ONE:,}")
    if evidence.run.failed:
        text = f"{counted(evidence.run.failed, 'probe')} of the newest run failed"
        notes.append(f"{text}; the last answers before are evaluated")
    return notes
