"""Diagnoses of degraded canaries after a run: asks the retriever a few questions, and stores causes and proposals.

The questions and rules are in the domain. No question is asked within a transaction; diagnoses and proposals are
written in one, which also releases the deliveries that waited for them. `OnDemand` diagnoses on request. Which canaries
are diagnosed, and their cases from rows, stands at the end; proposals are decided in `reanchoring`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from threading import Lock
from typing import Final

from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, StoreUnavailableError
from app.base.values import (
    Answer,
    Canary,
    Cause,
    Judgment,
    Ranking,
    Reason,
    ReportProgress,
    RunStatus,
    Value,
    Verdict,
    replace,
)
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import JudgmentDocument
from app.catalog.service.references import find_check
from app.catalog.store import Definition
from app.diagnosis import store as rows
from app.diagnosis.domain.canary_causes import classify
from app.diagnosis.domain.cases import Case, Diagnosis, Question, Reanchor
from app.diagnosis.domain.evidence import questions
from app.diagnosis.domain.run_causes import RENAMING, RunCause
from app.diagnosis.rendering import judgment_name
from app.diagnosis.service import reanchoring
from app.diagnosis.service.reanchoring import outdate_overtaken
from app.diagnosis.store import DiagnosisRow, causes_of
from app.diagnosis.views import DiagnosisView, ReanchorState
from app.records.service.past_runs import (
    asked_retriever,
    degraded_states,
    last_healthy_state,
    severity_order,
    valid_diagnoses,
)
from app.records.service.plans import NotExecutableError, Planner
from app.records.store import ranking_rows, run_rows, state_rows
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import StateRow
from app.retrievers.domain.probes import CircuitBreaker
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Scorer, ScorerKind, is_external
from app.scoring.evaluation import MISSING, REGRESSED, pack_reasons
from app.scoring.rankings import match
from app.scoring.run_inputs import RunInputs


class Subject(Value):
    """A canary to be diagnosed, with its case."""

    canary_id: int
    version_id: int
    ranking_id: int | None
    case: Case


logger = logging.getLogger("coalmine.diagnosis")

PATIENCE: Final = timedelta(seconds=30)
"""Longest wait of a run's deliveries for causes."""
MOST_CANARIES: Final = 10
"""Per run."""
SECONDS: Final = 25.0
"""Of questions after a run; the rest of `PATIENCE` is for reading and writing."""
LONGEST_TEXT: Final = 4_000
"""Characters of each text that is stored with a proposal."""
_DIGEST = 16
_ENOUGH = 3
"""Questions; the most conclusive ones come first."""


class TimeBudget(Value):
    """Time limit for queries."""

    clock: Callable[[], datetime]
    until: datetime
    stopping: Callable[[], bool] = lambda: False

    @classmethod
    def of(
        cls, seconds: float, clock: Callable[[], datetime], stopping: Callable[[], bool] = lambda: False
    ) -> "TimeBudget":
        """Budget that begins now."""
        return cls(clock=clock, until=clock() + timedelta(seconds=seconds), stopping=stopping)

    def is_spent(self) -> bool:
        """Whether no more queries may be sent."""
        return self.stopping() or self.clock() >= self.until


class Outcome(Value):
    """Result of the diagnoses of a run, for the worker."""

    run_id: int
    causes: tuple[str, ...]
    released: int
    """Number of deliveries that had waited for it."""


def after_run(
    planner: Planner,
    probe: Probe,
    run: RunRow,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
    most: int = MOST_CANARIES,
    seconds: float = SECONDS,
) -> Outcome | None:
    """Diagnose the canaries that a run degraded, and release the deliveries that wait for it; None = nothing to do.

    Nothing is asked after an unknown run: its retriever may be overloaded.
    """
    store = planner.store
    found, subjects, inputs = _find_subjects(planner, run, most=most, now=clock())
    if inputs is not None and subjects:
        try:
            budget = TimeBudget.of(seconds, clock, stopping)
            found += ask_about(probe, inputs, subjects, budget, run_id=f"{run.id}-diagnosis")
        except InvalidInputError as error:  # of this retriever's configuration: rare, as the run could use it
            logger.warning("diagnosis_impossible", extra={"run": run.id, "check": run.check, "detail": str(error)})
    if not found:
        released = release(store, run.id, now=clock())
        return Outcome(run_id=run.id, causes=(), released=released) if released else None
    now = clock()
    with store.write() as connection:
        if run_rows.find_run(connection, run.id) is not None:
            for one, diagnosis in found:
                save_diagnosis(connection, run, one, diagnosis, at=to_us(now), by=None)
            reanchoring.end_decided(connection, run.check_id, at=to_us(now))
            outdate_overtaken(connection, run, {one.canary_id for one, _ in found}, at=to_us(now))
        released = rows.release_deliveries(connection, run.id, to_us(now))
    return Outcome(run_id=run.id, causes=tuple(str(one.cause) for _, one in found), released=released)


def release(store: Store, run_id: int, *, now: datetime) -> int:
    """Release the deliveries of a run that wait for a diagnosis; returns how many."""
    with store.read() as connection:
        if not rows.opened_at_run(connection, run_id):
            return 0
    with store.write() as connection:
        return rows.release_deliveries(connection, run_id, to_us(now))


def show(store: Store, slug: str, key: str) -> DiagnosisView:
    """Read the last diagnosis of a canary. Raises NotFoundError where there is none."""
    with store.read() as connection:
        check = find_check(connection, slug)
        suite = catalog.find_definition(connection, "suite", check.body["suite"])
        canary_id = catalog.find_canary_id(connection, suite.id, key) if suite else None
        if canary_id is None:
            raise NotFoundError(f"check '{slug}' has no canary '{key}'")
        found = rows.last_diagnosis(connection, check.id, canary_id)
        if found is None:
            raise NotFoundError(
                f"canary '{key}' of check '{slug}' has no diagnosis yet; POST to this URL to diagnose it"
            )
        return diagnosis_view(connection, slug, key, found)


def _find_subjects(
    planner: Planner, run: RunRow, *, most: int, now: datetime
) -> tuple[list[tuple[Subject, Diagnosis]], list[Subject], RunInputs | None]:
    """Diagnoses from rows alone, and the canaries to ask about; no inputs where there is nothing to do."""
    if run.status == RunStatus.FAILED or run.verdict == Verdict.UNKNOWN:
        return [], [], None
    with planner.store.read() as connection:
        cause = renaming_cause(connection, run)
        if not run.degraded and cause is None:
            return [], [], None
        inputs = planner.inputs(connection, run)
        from_rows = [] if cause is None else diagnose_renamed(connection, run, inputs, cause)
        without = {one.canary_id for one, _ in from_rows}
        renamed = cause is not None
        subjects = worth_asking(connection, run, inputs, limit=most, now=now, renamed=renamed, without=without)
    return from_rows, subjects, inputs


def ask_about(
    probe: Probe,
    inputs: RunInputs,
    subjects: Sequence[Subject],
    budget: TimeBudget,
    *,
    run_id: str,
    anyway: bool = False,
    progress: ReportProgress = lambda _answered, _of: None,
) -> list[tuple[Subject, Diagnosis]]:
    """Diagnose these canaries; those with too few answers for a cause are left out, unless `anyway`."""
    question_lists = [questions(one.case) for one in subjects]
    asked = [(one.case.canary, asked) for one, asked in zip(subjects, question_lists, strict=True)]
    answers = _ask_questions(probe, inputs, asked, budget, run_id=run_id, progress=progress)
    return [
        (one, classify(one.case, asked, got))
        for one, asked, got in zip(subjects, question_lists, answers, strict=True)
        if anyway or _is_conclusive(got)
    ]


def _ask_questions(
    probe: Probe,
    inputs: RunInputs,
    questions_by_canary: Sequence[tuple[Canary, Sequence[Question]]],
    budget: TimeBudget,
    *,
    run_id: str,
    progress: ReportProgress = lambda _answered, _of: None,
) -> list[list[Answer | None]]:
    """Return the answers to every canary's questions, asked as that canary is; None = not asked in time.

    The first question of every canary comes before the second of any, so that a short time yields the most telling
    answers. The retriever's own concurrency, rate and circuit breaker hold.
    """
    answers: list[list[Answer | None]] = [[None] * len(questions) for _, questions in questions_by_canary]
    retriever = inputs.retriever
    breaker = CircuitBreaker(limit=retriever.breaker)
    if is_external(retriever.scorer):  # diagnoses need ranks and own scores alone
        retriever = replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))
    queue = [
        (
            subject,
            place,
            ProbeQuery(
                query=questions[place].query, key=canary.key, vars=inputs.vars_of(canary), history=canary.history
            ),
            questions[place].k,
        )
        for place in range(max((len(questions) for _, questions in questions_by_canary), default=0))
        for subject, (canary, questions) in enumerate(questions_by_canary)
        if place < len(questions)
    ]
    answer_count = 0
    progress(answer_count, len(queue))
    for k, queued in groupby(queue, key=lambda one: one[3]):  # a probe requests one number of hits
        if budget.is_spent() or breaker.is_open:
            break
        block = list(queued)
        asking = ProbeContext(retriever=retriever, k=k, run_id=run_id)
        asks = [replace(ask, position=number) for number, (_, _, ask, _) in enumerate(block)]
        with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                for position, answer in batch:
                    subject, place, _, _ = block[position]
                    answers[subject][place] = answer
                answer_count += len(batch)
                progress(answer_count, len(queue))
                breaker = breaker.after(answer for _, answer in batch)
                if budget.is_spent() or breaker.is_open:
                    break
    return answers


def _is_conclusive(answers: Sequence[Answer | None]) -> bool:
    """Whether the answers suffice for a cause: the first questions were answered, or all failed.

    The others only confirm it; without the first ones, missing chunks would be taken for outranked ones.
    """
    put = [answer for answer in answers if answer is not None]
    failed = bool(put) and all(answer.ranking is None for answer in put)
    return failed or all(answer is not None for answer in answers[:_ENOUGH])


def save_diagnosis(
    connection: Connection, run: RunRow, one: Subject, found: Diagnosis, *, at: int, by: str | None
) -> int:
    """Store a diagnosis and its proposals; returns its id."""
    ranks = {"persistent": found.persistent, "rank_before": found.rank_before, "rank_now": found.rank_now}
    diagnosis_id = rows.save_diagnosis(
        connection,
        check_id=run.check_id,
        canary_id=one.canary_id,
        canary_version_id=one.version_id,
        run_id=run.id,
        ranking_id=one.ranking_id,
        at=at,
        requested_by=by,
        cause=found.cause,
        reason=found.reason,
        evidence={**found.evidence, **ranks},
    )
    for proposal in found.reanchors:
        _propose(connection, run, one, proposal, diagnosis_id=diagnosis_id, at=at)
    return diagnosis_id


def _propose(connection: Connection, run: RunRow, one: Subject, found: Reanchor, *, diagnosis_id: int, at: int) -> None:
    """Store a proposal for a judgment, unless the same was proposed or rejected before.

    It replaces an open proposal for the same judgment: the index changed again.
    """
    judgment = _document(found.judgment).data()
    try:
        proposals = [{**_document(one).data(), "source": found.judgment.source} for one in found.proposals]
    except ValueError:  # an id of the retriever that no canary may have
        return
    name = judgment_name(_document(found.judgment))
    earlier = [
        row
        for row in rows.proposals_of(connection, [one.canary_id], ("proposed", "rejected"))
        if judgment_name(JudgmentDocument.model_validate(row.judgment)) == name
    ]
    if any(list(row.proposals) == proposals for row in earlier):
        return
    waiting = [row.id for row in earlier if row.state == ReanchorState.PROPOSED]
    rows.decide_reanchors(connection, waiting, state=ReanchorState.OUTDATED, at=at, by=None)
    rows.propose(
        connection,
        diagnosis_id=diagnosis_id,
        check_id=run.check_id,
        canary_id=one.canary_id,
        canary_version_id=one.version_id,
        hash=blake2b(name.encode(), digest_size=_DIGEST).digest(),
        judgment=judgment,
        proposals=proposals,
        similarity=found.similarity,
        texts={"old": found.passage[:LONGEST_TEXT], "new": [one.text[:LONGEST_TEXT] for one in found.chunks]},
        created_at=at,
    )


def _document(judgment: Judgment) -> JudgmentDocument:
    return JudgmentDocument(**{name: getattr(judgment, name) for name in JudgmentDocument.model_fields})


def diagnosis_view(connection: Connection, slug: str, key: str, found: DiagnosisRow) -> DiagnosisView:
    """Return a stored diagnosis as JSON on the wire."""
    evidence = found.evidence.copy()
    proposed = [
        row for row in rows.proposals_of(connection, [found.canary_id], ("proposed",)) if row.check_id == found.check_id
    ]
    return view_of(
        DiagnosisView,
        found,
        id=str(found.id),
        check=slug,
        key=key,
        run_id=str(found.run_id),
        cause=Cause(found.cause),
        persistent=evidence.pop("persistent", None),
        rank_before=evidence.pop("rank_before", None),
        rank_now=evidence.pop("rank_now", None),
        evidence=evidence,
        reanchors=[str(row.id) for row in proposed],
    )


_SECONDS = 60.0


class OnDemand:
    """Diagnoses on request: one at a time for each canary, and for what is left open of each check."""

    def __init__(self) -> None:
        self._under_way: set[tuple[str, str | None]] = set()
        self._lock = Lock()

    def ask(
        self,
        planner: Planner,
        probe: Probe,
        slug: str,
        key: str,
        *,
        by: str,
        clock: Callable[[], datetime],
        progress: ReportProgress = lambda _answered, _of: None,
    ) -> DiagnosisView:
        """Diagnose a canary as of the newest run, by probes now; stores and returns the diagnosis.

        `progress` is called with each answer. Raises NotFoundError, and ConflictError where there is no such run, where
        the canary or retriever changed since, and while the same diagnosis is in progress.
        """
        with self._alone(slug, key, f"canary '{key}' of check '{slug}'"):
            with planner.store.read() as connection:
                run, inputs, position = _newest_inputs(planner, connection, slug, key)
                one = subject(connection, run, inputs, position)
            budget, about = TimeBudget.of(_SECONDS, clock), f"{run.id}-diagnosis"
            [(_, diagnosis)] = ask_about(probe, inputs, [one], budget, run_id=about, anyway=True, progress=progress)
            with planner.store.write() as connection:
                at = to_us(clock())
                saved = save_diagnosis(connection, run, one, diagnosis, at=at, by=by)
                reanchoring.end_decided(connection, run.check_id, at=at)
                row = rows.last_diagnosis(connection, run.check_id, one.canary_id)
                assert row is not None and row.id >= saved  # noqa: S101, PT018 - just written
                return diagnosis_view(connection, slug, key, row)

    def ask_open(self, planner: Planner, probe: Probe, slug: str, *, by: str, clock: Callable[[], datetime]) -> int:
        """Diagnose the canaries of the newest run that nothing explains yet, ten at most; returns how many it did.

        Raises as `ask` does, and ConflictError where all are explained.
        """
        with self._alone(slug, None, f"check '{slug}'"):
            with planner.store.read() as connection:
                run, inputs = _newest_run(planner, connection, find_check(connection, slug))
                left = worth_asking(connection, run, inputs, limit=MOST_CANARIES, now=clock())
            if not left:
                raise ConflictError(f"every degraded canary of run '{run.id}' is explained already")
            budget = TimeBudget.of(_SECONDS, clock)
            found = ask_about(probe, inputs, left, budget, run_id=f"{run.id}-diagnosis")
            if not found:
                raise ConflictError("the retriever answered too little to find a cause; ask again later")
            with planner.store.write() as connection:
                at = to_us(clock())
                for one, diagnosis in found:
                    save_diagnosis(connection, run, one, diagnosis, at=at, by=by)
                reanchoring.end_decided(connection, run.check_id, at=at)
            return len(found)

    @contextmanager
    def _alone(self, slug: str, key: str | None, name: str) -> Iterator[None]:
        """Refuse what is under way already. Raises ConflictError."""
        with self._lock:
            if (slug, key) in self._under_way:
                raise ConflictError(f"{name} is being diagnosed already; wait for it")
            self._under_way.add((slug, key))
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard((slug, key))


def _newest_inputs(planner: Planner, connection: Connection, slug: str, key: str) -> tuple[RunRow, RunInputs, int]:
    """Newest run with a canary in force, its inputs, and the canary's position."""
    check = find_check(connection, slug)
    suite = catalog.find_definition(connection, "suite", check.body["suite"])
    canaries = {row.key: row for row in catalog.list_canaries(connection, suite.id, keys=[key])} if suite else {}
    if key not in canaries and check.archived_at is None:
        raise NotFoundError(f"check '{slug}' has no canary '{key}'")
    run, inputs = _newest_run(planner, connection, check)
    changed = f"since run '{run.id}'; run the check, then ask again"
    if canaries[key].id not in inputs.canary_ids:
        raise ConflictError(f"canary '{key}' was added {changed}")
    position = inputs.canary_ids.index(canaries[key].id)
    if inputs.version_ids[position] != canaries[key].version_id:
        raise ConflictError(f"canary '{key}' was changed {changed}")
    if not inputs.panel.expects[position]:
        raise ConflictError(f"canary '{key}' expects no chunk, so it cannot be diagnosed")
    return run, inputs, position


def _newest_run(planner: Planner, connection: Connection, check: Definition) -> tuple[RunRow, RunInputs]:
    """Newest run of a check whose retriever is still as it was, and its inputs."""
    if check.archived_at is not None:
        raise ConflictError(f"check '{check.slug}' is archived: its retriever is not probed any more")
    newest = rows.newest_run(connection, check.id)
    run = run_rows.find_run(connection, newest) if newest is not None else None
    if run is None:
        raise ConflictError(f"check '{check.slug}' has no ended run yet; run it first")
    try:
        inputs = planner.inputs(connection, run)
    except NotExecutableError as error:
        raise ConflictError(f"run '{run.id}' cannot be diagnosed: {error}") from None
    retriever = catalog.find_definition(connection, "retriever", check.body["retriever"])
    if retriever is None or retriever.version_id != run.retriever_version_id:
        raise ConflictError(
            f"retriever '{check.body['retriever']}' was changed since run '{run.id}'; run the check, then ask again"
        )
    return run, inputs


_LEAST_SECONDS: Final = 5.0
"""Least time for questions that suffice for a cause."""


def diagnose_run(
    planner: Planner,
    probe: Probe,
    run_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Diagnose the canaries of a run, or release its deliveries where that would come too late for them.

    Canaries that are not diagnosed are after a later run. Its deliveries are released even after an error. Raises
    StoreUnavailableError: then they go when due.
    """
    with planner.store.read() as connection:
        run = run_rows.find_run(connection, run_id)
    if run is None or run.finished_at is None:
        return
    about = {"run": run_id, "check": run.check}
    seconds = SECONDS - max(0.0, (clock() - from_us(run.finished_at)).total_seconds())
    if seconds < _LEAST_SECONDS or stopping():
        if released := release(planner.store, run_id, now=clock()):
            logger.warning("news_without_causes", extra={**about, "released": released})
        return
    try:
        outcome = after_run(planner, probe, run, clock=clock, stopping=stopping, seconds=seconds)
    except StoreUnavailableError:
        raise
    except Exception:
        logger.exception("bug", extra=about)
        release(planner.store, run_id, now=clock())
    else:
        causes = dict(Counter(outcome.causes)) if outcome is not None else {}
        logger.info("diagnosis_ended", extra={**about, "causes": causes})


AGAIN_AFTER = timedelta(minutes=10)
"""Least time before the same answer is diagnosed again as a canary falls anew.

Its cause is not told until then, or until it has been degraded for two runs.
"""
_MAX_STATES = 50
_ASKABLE = pack_reasons([Reason.MISSING, Reason.BELOW_FLOOR, Reason.LOW_RELEVANCE, Reason.REGRESSED])
"""Reasons that a diagnosis can explain; a slow or forbidden answer needs none."""
_LOW = pack_reasons([Reason.LOW_RELEVANCE])


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
    before = rows.ended_before(connection, run.check_id, run.id)
    last = rows.newest_diagnoses(connection, run.check_id, [state.canary_id for state in degraded])
    explanations = valid_diagnoses(connection, {run.id: {state.canary_id: state for state in degraded}})[run.id]
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
    proposals = frozenset(rows.listed_at_run(connection, run.id))
    first = [one for one in news if canaries[positions[one[1].canary_id]].key in proposals]
    chosen = _spread(first, limit)
    chosen += _spread([one for one in news if one not in first], limit - len(chosen))
    chosen += _spread(rest, limit - len(chosen))
    others = _answers_of(connection, run, inputs) if chosen else {}
    return [
        _subject(connection, run, inputs, positions[state.canary_id], state, renamed=renamed, others=others)
        for state in chosen
    ]


def subject(connection: Connection, run: RunRow, inputs: RunInputs, position: int) -> Subject:
    """Case of one canary at a run, whatever its verdict."""
    canary_id = inputs.canary_ids[position]
    _, failures = run_rows.probes_of(connection, run.id)
    state = state_rows.states_at(connection, run.check_id, run.id).get(canary_id) if position not in failures else None
    renamed = renaming_cause(connection, run) is not None
    others = _answers_of(connection, run, inputs)
    return _subject(connection, run, inputs, position, state, renamed=renamed, others=others)


def _answers_of(connection: Connection, run: RunRow, inputs: RunInputs) -> dict[int, Ranking]:
    """Read what the first canaries of a run retrieved, by canary id; those whose probe failed are left out."""
    _, failures = run_rows.probes_of(connection, run.id)
    answered = [one for place, one in enumerate(inputs.canary_ids[:EXAMINED]) if place not in failures]
    held = state_rows.rankings_at(connection, run.check_id, run.id, answered)
    rankings = ranking_rows.load_rankings(connection, [ranking_id for ranking_id, _ in held.values()])
    return {canary_id: rankings[ranking_id] for canary_id, (ranking_id, _) in held.items()}


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
    connection: Connection,
    run: RunRow,
    inputs: RunInputs,
    position: int,
    state: StateRow | None,
    *,
    renamed: bool,
    others: Mapping[int, Ranking],
) -> Subject:
    canary = inputs.canaries[position]
    canary_id = inputs.canary_ids[position]
    past = [
        one
        for one in state_rows.timeline(connection, run.check_id, canary_id, limit=_MAX_STATES)
        if one.first_run <= run.id and (state is None or one.id != state.id)
    ]
    past, of_others = _by_retriever(connection, run, canary.query, past)
    ids = [one.ranking_id for one in [*([state] if state is not None else ()), *past]]
    rankings = ranking_rows.load_rankings(connection, [*ids, *(one.ranking_id for one in of_others)])
    prepared, k, scorer = inputs.panel.prepared(position), inputs.yardstick.k, inputs.retriever.scorer
    found = {
        ranking_id
        for ranking_id, ranking in rankings.items()
        if (rank := match(prepared, ranking).first_relevant) is not None and rank <= k
    }
    ever_passed = not found.isdisjoint(ids)
    found_before = next((one for one in of_others if one.ranking_id in found), None)
    # A state of when the canary expected something else was healthy, by what it expects now, if it found that.
    by_now = [one for one in past if one.canary_version_id == inputs.version_ids[position] or one.ranking_id in found]
    healthy = last_healthy_state(connection, state, by_now)
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
            ever_passed=ever_passed,
            found_by=None
            if ever_passed or found_before is None
            else asked_retriever(connection, found_before.first_run),
            scale=scorer.scale if scorer.kind is ScorerKind.SCORE else None,  # else it is that of another's scores
            anchor=scorer.anchor,
            too_low=state.top_score if state is not None and state.reasons & _LOW else None,
            texts=_texts(rankings[one.ranking_id] for one in (*past, *of_others) if not one.reasons),
            renamed=renamed,
            others=tuple(ranking for other, ranking in others.items() if other != canary_id),
        ),
    )


def _by_retriever(
    connection: Connection, run: RunRow, query: str, past: Sequence[StateRow]
) -> tuple[list[StateRow], list[StateRow]]:
    """Return the states that answer the same query: of the same retriever, and of others that the check asked."""
    queries = catalog.queries_of(connection, [one.canary_version_id for one in past])
    retrievers = rows.retrievers_of_runs(connection, [run.id, *(one.first_run for one in past)])
    mine = retrievers.get(run.id)
    same, others = list[StateRow](), list[StateRow]()
    for one in past:
        if queries[one.canary_version_id] == query:
            (same if retrievers.get(one.first_run, mine) == mine else others).append(one)  # runs are forgotten
    return same, others


def _texts(rankings: Iterable[Ranking]) -> dict[str, str]:
    """Texts of chunks when last retrieved, by id; rankings are given newest first."""
    texts: dict[str, str] = {}
    for ranking in rankings:
        for chunk, text in zip(ranking.ids, ranking.texts, strict=True):
            if text is not None:
                texts.setdefault(chunk, text)
    return texts


def renaming_cause(connection: Connection, run: RunRow) -> RunCause | None:
    """Read the cause of a run, where it is one after which judgments are to be re-anchored."""
    cause = causes_of(connection, [run.id]).get(run.id)
    return cause if cause is not None and cause.kind in RENAMING else None


MOST: Final = 500
"""Canaries per run; the others follow after later runs."""
EXAMINED: Final = 1_000
"""Canaries examined per run: a suite of 10,000 must not occupy a worker for a minute after each run."""


def diagnose_renamed(
    connection: Connection, run: RunRow, inputs: RunInputs, cause: RunCause
) -> list[tuple[Subject, Diagnosis]]:
    """Diagnose the canaries of a run that retrieved an expected text under another name, except diagnosed ones.

    Includes healthy canaries with a judgment to be re-anchored.
    """
    _, failures = run_rows.probes_of(connection, run.id)
    places = [place for place in range(len(inputs.canary_ids)) if inputs.panel.expects[place] and place not in failures]
    canary_ids = [inputs.canary_ids[place] for place in places]
    before = state_rows.rankings_at(connection, run.check_id, cause.before_run, canary_ids)
    now = state_rows.rankings_at(connection, run.check_id, run.id, canary_ids)
    newest = rows.newest_diagnoses(connection, run.check_id, canary_ids)
    degraded = {inputs.canary_ids[place] for place in run.degraded_places}
    left = [
        place
        for place in places
        if (canary_id := inputs.canary_ids[place]) in before
        and canary_id in now
        and before[canary_id][0] != now[canary_id][0]
        and not _is_recut(newest.get(canary_id), now[canary_id])
    ]
    diagnosed: list[tuple[Subject, Diagnosis]] = []
    start = run.id * EXAMINED % max(len(left), 1)  # another part of them after each run
    for place in (left[start:] + left[:start])[:EXAMINED]:
        canary_id = inputs.canary_ids[place]
        pair = ranking_rows.load_rankings(connection, [before[canary_id][0], now[canary_id][0]])
        case = Case(
            canary=inputs.canaries[place],
            k=inputs.yardstick.k,
            fetch_k=inputs.yardstick.fetch_k,
            now=pair[now[canary_id][0]],
            healthy=pair[before[canary_id][0]],
            ever_passed=True,
            renamed=True,
        )
        diagnosis = classify(case, (), ())
        if diagnosis.cause is Cause.RECHUNKED and (diagnosis.reanchors or canary_id in degraded):
            ranking_id, version_id = now[canary_id]
            diagnosed.append(
                (Subject(canary_id=canary_id, version_id=version_id, ranking_id=ranking_id, case=case), diagnosis)
            )
        if len(diagnosed) == MOST:
            break
    return diagnosed


def _is_recut(last: DiagnosisRow | None, now: tuple[int, int]) -> bool:
    """Whether this very answer was diagnosed as re-cut already."""
    return last is not None and last.cause == Cause.RECHUNKED and (last.ranking_id, last.canary_version_id) == now
