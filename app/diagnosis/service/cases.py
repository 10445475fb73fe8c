"""Cases for diagnosis: which degraded canaries to diagnose after a run, and their case from rows. It only reads."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.alerts.service.changes import last_healthy_state, severity_order
from app.alerts.service.evidence import degraded_states, valid_diagnoses
from app.base.db.engine import Connection, to_us
from app.base.values import Judgment, Ranking, Reason
from app.catalog.store import suites
from app.diagnosis import store as diagnoses
from app.diagnosis.domain.chunks import is_back
from app.diagnosis.domain.run_causes import RENAMING, RunCause
from app.diagnosis.domain.values import Case
from app.diagnosis.domain.views import ReanchorState
from app.diagnosis.store import DiagnosisRow, ReanchorRow, causes_of
from app.records.store import results
from app.records.store.results import RunRow, StateRow
from app.retrievers.domain.retrievers import ScorerKind
from app.scoring.evaluation import MISSING, REGRESSED, pack_reasons
from app.scoring.matching import match
from app.scoring.runs import RunInputs

AGAIN_AFTER = timedelta(hours=6)
"""Least time before the same answer of a canary is diagnosed again."""
_MAX_STATES = 50
_ASKABLE = pack_reasons([Reason.MISSING, Reason.BELOW_FLOOR, Reason.LOW_RELEVANCE, Reason.REGRESSED])
"""Reasons that a diagnosis can explain; a slow or forbidden answer needs none."""
_LOW = pack_reasons([Reason.LOW_RELEVANCE])


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A canary to be diagnosed, with its case."""

    canary_id: int
    version_id: int
    ranking_id: int | None
    case: Case


def worth_asking(
    connection: Connection,
    run: RunRow,
    inputs: RunInputs,
    *,
    limit: int,
    now: datetime,
    renamed: bool = False,
    without: Collection[int] = (),
) -> list[Subject]:
    """Choose the canaries to diagnose after a run: those its notice lists, then the worst, spread over categories.

    First those that newly degraded, lost their chunk, or are named as culprits; then, as far as there is room, those
    that degraded before and are not diagnosed: after a large event, the others follow after later runs. `without`: the
    ids of canaries that need no questions; `renamed` is that of their cases.
    """
    positions = {canary_id: position for position, canary_id in enumerate(inputs.canary_ids)}
    canaries = inputs.canaries
    degraded = [
        state
        for state in degraded_states(connection, run, positions)
        if state.reasons & _ASKABLE
        and inputs.panel.expects[positions[state.canary_id]]
        and state.canary_id not in without
    ]
    degraded.sort(key=lambda state: severity_order(state, canaries[positions[state.canary_id]].key))
    before = diagnoses.ended_before(connection, run.check_id, run.id)
    last = diagnoses.newest_diagnoses(connection, run.check_id, [state.canary_id for state in degraded])
    explanations = valid_diagnoses(connection, run, {state.canary_id: state for state in degraded})
    horizon = to_us(now - AGAIN_AFTER)
    news: list[tuple[str, StateRow]] = []
    rest: list[tuple[str, StateRow]] = []
    for state in degraded:
        category = str(canaries[positions[state.canary_id]].category)
        if state.first_run == run.id and _is_news(state, before.get(state.canary_id, 0)):
            if not _is_diagnosed(state, last.get(state.canary_id), horizon):
                news.append((category, state))
        elif state.canary_id not in explanations:
            rest.append((category, state))
    proposals = frozenset(diagnoses.listed_at_run(connection, run.id))
    first = [one for one in news if canaries[positions[one[1].canary_id]].key in proposals]
    chosen = _spread(first, limit)
    chosen += _spread([one for one in news if one not in first], limit - len(chosen))
    chosen += _spread(rest, limit - len(chosen))
    return [_subject(connection, run, inputs, positions[state.canary_id], state, renamed=renamed) for state in chosen]


def subject(connection: Connection, run: RunRow, inputs: RunInputs, position: int) -> Subject:
    """Case of one canary at a run, whatever its verdict."""
    canary_id = inputs.canary_ids[position]
    _, failures = results.probes_of(connection, run.id)
    state = results.states_at(connection, run.check_id, run.id).get(canary_id) if position not in failures else None
    renamed = renaming_cause(connection, run) is not None
    return _subject(connection, run, inputs, position, state, renamed=renamed)


def _is_news(state: StateRow, reasons_before: int) -> bool:
    return not reasons_before or bool(state.reasons & (REGRESSED | MISSING) & ~reasons_before)


def _is_diagnosed(state: StateRow, last: DiagnosisRow | None, horizon: int) -> bool:
    """Whether the same answer was diagnosed within `AGAIN_AFTER`."""
    if last is None or last.at < horizon or last.evidence.get("persistent") is None:
        return False
    return (last.canary_version_id, last.ranking_id) == (state.canary_version_id, state.ranking_id)


def _spread(ranked: Sequence[tuple[str, StateRow]], limit: int) -> list[StateRow]:
    """Take the first of each category, then the second of each, and so on."""
    turns: dict[str, int] = {}
    placed: list[tuple[int, int, StateRow]] = []
    for place, (category, state) in enumerate(ranked):
        turns[category] = turns.get(category, -1) + 1
        placed.append((turns[category], place, state))
    return [state for _, _, state in sorted(placed, key=lambda one: one[:2])][:limit]


def _subject(
    connection: Connection, run: RunRow, inputs: RunInputs, position: int, state: StateRow | None, *, renamed: bool
) -> Subject:
    canary = inputs.canaries[position]
    canary_id = inputs.canary_ids[position]
    past = [
        one
        for one in results.timeline(connection, run.check_id, canary_id, limit=_MAX_STATES)
        if one.first_run <= run.id and (state is None or one.id != state.id)
    ]
    past = _of_the_same(connection, run, canary.query, past)
    ids = [one.ranking_id for one in [*([state] if state is not None else ()), *past]]
    rankings = results.load_rankings(connection, ids)
    healthy = last_healthy_state(connection, state, past)
    prepared, k, scorer = inputs.panel.prepared(position), inputs.yardstick.k, inputs.retriever.scorer
    passed = any(
        (rank := match(prepared, rankings[ranking_id]).first_relevant) is not None and rank <= k
        for ranking_id in dict.fromkeys(ids)
    )
    return Subject(
        canary_id=canary_id,
        version_id=inputs.version_ids[position],
        ranking_id=None if state is None else state.ranking_id,
        case=Case(
            canary=canary,
            k=k,
            fetch_k=inputs.yardstick.fetch_k,
            now=None if state is None else rankings[state.ranking_id],
            healthy=None if healthy is None else rankings[healthy.ranking_id],
            ever_passed=passed,
            scale=scorer.scale if scorer.kind is ScorerKind.SCORE else None,  # else it is that of another's scores
            anchor=scorer.anchor,
            too_low=state.top_score if state is not None and state.reasons & _LOW else None,
            texts=_texts(rankings[one.ranking_id] for one in past if not one.reasons),
            renamed=renamed,
        ),
    )


def _of_the_same(connection: Connection, run: RunRow, query: str, past: Sequence[StateRow]) -> list[StateRow]:
    """Keep the states that answer the same query, of the same retriever."""
    queries = suites.queries_of(connection, [one.canary_version_id for one in past])
    retrievers = diagnoses.retrievers_of_runs(connection, [run.id, *(one.first_run for one in past)])
    mine = retrievers.get(run.id)
    return [
        one
        for one in past
        if queries[one.canary_version_id] == query and retrievers.get(one.first_run, mine) == mine  # runs are forgotten
    ]


def _texts(rankings: Iterable[Ranking]) -> dict[str, str]:
    """Texts of chunks when last retrieved, by id; rankings are given newest first."""
    texts: dict[str, str] = {}
    for ranking in rankings:
        for chunk, text in zip(ranking.ids, ranking.texts, strict=True):
            if text is not None:
                texts.setdefault(chunk, text)
    return texts


_PAGE = 1_000


def outdate_returned(
    connection: Connection, check_id: int, ranking_of: Callable[[int], Ranking | None], *, at: int
) -> None:
    """End the proposals of a check whose chunk is in the current ranking of its canary.

    `ranking_of` gives the ranking of a canary, by its id; None where it is as it was before.
    """
    back = [
        row.id for row in _proposed(connection, check_id) if (one := ranking_of(row.canary_id)) and _is_back(row, one)
    ]
    if back:
        diagnoses.decide_reanchors(connection, back, state=ReanchorState.OUTDATED, at=at, by=None)


def outdate_overtaken(connection: Connection, run: RunRow, canary_ids: Collection[int], *, at: int) -> None:
    """End the proposals of canaries diagnosed after a run whose chunk came back in a run that ended meanwhile.

    That later run had no proposals to end, and the runs after it have the same ranking.
    """
    newest = diagnoses.newest_run(connection, run.check_id)
    if newest is None or newest <= run.id or not canary_ids:
        return
    now = results.rankings_at(connection, run.check_id, newest, list(canary_ids))
    rankings = results.load_rankings(connection, [ranking_id for ranking_id, _ in now.values()])
    rankings_now = {canary: rankings[ranking_id] for canary, (ranking_id, _) in now.items()}
    outdate_returned(connection, run.check_id, rankings_now.get, at=at)


def _proposed(connection: Connection, check_id: int) -> Iterator[ReanchorRow]:
    """Yield all open proposals, newest first, in pages: large suites may have one for nearly every canary."""
    below: int | None = None
    while rows := diagnoses.list_reanchors(
        connection, check_id, state=ReanchorState.PROPOSED, before=below, limit=_PAGE
    ):
        yield from rows
        if len(rows) < _PAGE:
            return
        below = rows[-1].id


def _is_back(row: ReanchorRow, ranking: Ranking) -> bool:
    old = Judgment(id=row.judgment.get("id"), document=row.judgment.get("document"), text=row.judgment.get("text"))
    return is_back(old, None if row.texts is None else row.texts["old"], ranking)


def renaming_cause(connection: Connection, run: RunRow) -> RunCause | None:
    """Read the cause of a run, where it is one after which judgments are to be re-anchored."""
    cause = causes_of(connection, [run.id]).get(run.id)
    return cause if cause is not None and cause.kind in RENAMING else None
