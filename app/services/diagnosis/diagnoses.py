"""Why canaries degraded: found out after a run by asking the retriever a little more, or when somebody wants to know.

What is asked and concluded is the domain's. No question is asked within a transaction; what was found is written in
one, together with what is proposed, and the news that waited for it is let go.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from threading import Lock
from typing import Final, cast

from app.domain.diagnosis.causes import classify
from app.domain.diagnosis.questions import questions
from app.domain.diagnosis.values import Diagnosis, Reanchor
from app.domain.diagnosis.views import DiagnosisEvidence, DiagnosisView, ReanchorState
from app.domain.errors import ConflictError, InvalidInputError, NotFoundError
from app.domain.model import Answer, Cause, Judgment, RunStatus, Verdict
from app.domain.probing.retrievers import Probe
from app.domain.runs.run_inputs import RunInputs
from app.formats.catalog.canary_documents import JudgmentDocument
from app.formats.diagnosis.judgment_patch import judgment_name
from app.formats.history import shapes
from app.services.diagnosis import reanchoring
from app.services.diagnosis.bulk_reanchoring import diagnose_renamed
from app.services.diagnosis.cases import Subject, subject, worth_asking
from app.services.diagnosis.returned_chunks import outdate_overtaken
from app.services.lookup import find_check
from app.services.probing.diagnosis_queries import ReportProgress, TimeBudget, ask_questions
from app.services.runs.plans import NotExecutableError, Planner
from app.services.runs.run_causes import renaming_cause
from app.services.runs.runs import EndedRun
from app.store.catalog import definitions, suites
from app.store.diagnosis import diagnoses as stored
from app.store.diagnosis.diagnoses import DiagnosisRow
from app.store.engine import Connection, Store, to_us
from app.store.runs import results
from app.store.runs.results import RunRow

logger = logging.getLogger("coalmine.diagnosis")

PATIENCE: Final = timedelta(seconds=30)
"""How long the news of a run waits for names and causes."""
MOST_CANARIES: Final = 10
"""Per run."""
SECONDS: Final = 25.0
"""Of asking after a run; the rest of the patience is for reading and writing."""
KEPT: Final = 4_000
"""Characters of each text that is kept with a proposal."""
_SECONDS_ON_DEMAND = 60.0
_DIGEST = 16
_ENOUGH = 3
"""Questions; the most telling ones come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a worker hears of the diagnoses of a run."""

    run_id: int
    causes: tuple[str, ...]
    released: int
    """Deliveries that had waited for it."""


def after_run(
    planner: Planner,
    probe: Probe,
    ended: EndedRun,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
    most: int = MOST_CANARIES,
    seconds: float = SECONDS,
) -> Outcome | None:
    """Find out why canaries that a run degraded are so, and let go of the news that waits for it.

    None where there was nothing to do. Of a run that is unknown nothing is asked: the retriever has trouble enough.
    """
    store = planner.store
    found, subjects, inputs = _worth_asking(planner, ended, most=most, now=clock())
    if inputs is not None and subjects:
        try:
            budget = TimeBudget.of(seconds, clock, stopping)
            found += _ask(probe, inputs, subjects, budget, run_id=f"{ended.id}-diagnosis")
        except InvalidInputError as error:  # of this retriever: the run that just asked it could, so it is rare
            logger.warning("diagnosis_impossible", extra={"run": ended.id, "check": ended.check, "detail": str(error)})
    if not found:
        released = release(store, ended.id, now=clock())
        return Outcome(run_id=ended.id, causes=(), released=released) if released else None
    now = clock()
    with store.write() as connection:
        run = results.find_run(connection, ended.id)
        if run is not None:
            for one, diagnosis in found:
                _save(connection, run, one, diagnosis, at=to_us(now), by=None)
            _settle(connection, run.check_id, at=to_us(now))
            outdate_overtaken(connection, run, {one.canary_id for one, _ in found}, at=to_us(now))
        released = stored.release_deliveries(connection, ended.id, to_us(now))
    return Outcome(run_id=ended.id, causes=tuple(str(one.cause) for _, one in found), released=released)


def is_wanted(store: Store, ended: EndedRun) -> bool:
    """Whether anything may be found out after a run: canaries degraded or chunks were renamed; it answered."""
    if ended.status is RunStatus.FAILED or ended.verdict is Verdict.UNKNOWN:
        return False
    with store.read() as connection:
        run = results.find_run(connection, ended.id)
        return run is not None and (bool(run.degraded) or renaming_cause(connection, run) is not None)


def release(store: Store, run_id: int, *, now: datetime) -> int:
    """Let go of the news of a run that waits for a diagnosis; gives how many deliveries that were."""
    with store.read() as connection:
        if not stored.opened_at_run(connection, run_id):
            return 0
    with store.write() as connection:
        return stored.release_deliveries(connection, run_id, to_us(now))


def show(store: Store, slug: str, key: str) -> DiagnosisView:
    """Read the last diagnosis of a canary. Raises NotFoundError where there is none."""
    with store.read() as connection:
        check = find_check(connection, slug)
        suite = definitions.find_definition(connection, "suite", check.body["suite"])
        canary_id = suites.find_canary_id(connection, suite.id, key) if suite else None
        if canary_id is None:
            raise NotFoundError(f"check '{slug}' has no canary '{key}'")
        found = stored.last_diagnosis(connection, check.id, canary_id)
        if found is None:
            told = f"nobody has asked yet why canary '{key}' of check '{slug}' is as it is"
            raise NotFoundError(f"{told}; POST to this address asks the retriever now")
        return _shape(connection, slug, key, found)


class OnDemand:
    """Diagnoses somebody asks for: one at a time for each canary, however often and by whomever it is wanted."""

    def __init__(self) -> None:
        self._under_way: set[tuple[str, str]] = set()
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
        told: ReportProgress = lambda _answered, _of: None,
    ) -> DiagnosisView:
        """Ask the retriever now why a canary is as it was in the newest run; stores and gives the diagnosis.

        `told` hears of each answer as it comes. Raises NotFoundError, and ConflictError where no run tells, where
        things were changed since, and while the same is being asked already.
        """
        with self._lock:
            if (slug, key) in self._under_way:
                raise ConflictError(f"canary '{key}' of check '{slug}' is being asked about just now; wait for it")
            self._under_way.add((slug, key))
        try:
            return _on_demand(planner, probe, slug, key, by=by, clock=clock, told=told)
        finally:
            with self._lock:
                self._under_way.discard((slug, key))


def _on_demand(
    planner: Planner, probe: Probe, slug: str, key: str, *, by: str, clock: Callable[[], datetime], told: ReportProgress
) -> DiagnosisView:
    store = planner.store
    with store.read() as connection:
        run, inputs, position = _newest(planner, connection, slug, key)
        one = subject(connection, run, inputs, position)
    budget = TimeBudget.of(_SECONDS_ON_DEMAND, clock)
    [(_, found)] = _ask(probe, inputs, [one], budget, run_id=f"{run.id}-diagnosis", anyway=True, told=told)
    with store.write() as connection:
        at = to_us(clock())
        saved = _save(connection, run, one, found, at=at, by=by)
        _settle(connection, run.check_id, at=at)
        row = stored.last_diagnosis(connection, run.check_id, one.canary_id)
        assert row is not None and row.id >= saved  # noqa: S101, PT018 - just written
        return _shape(connection, slug, key, row)


def _newest(planner: Planner, connection: Connection, slug: str, key: str) -> tuple[RunRow, RunInputs, int]:
    """Find the newest run that tells of a canary in force, and what it worked with."""
    check = find_check(connection, slug)
    if check.archived_at is not None:
        raise ConflictError(f"check '{slug}' is archived: nobody is asked for it any more")
    suite = definitions.find_definition(connection, "suite", check.body["suite"])
    known = {row.key: row for row in suites.list_canaries(connection, suite.id, keys=[key])} if suite else {}
    if key not in known:
        raise NotFoundError(f"check '{slug}' has no canary '{key}'")
    newest = stored.newest_run(connection, check.id)
    run = results.find_run(connection, newest) if newest is not None else None
    if run is None:
        raise ConflictError(f"check '{slug}' has no ended run yet; run it first")
    try:
        inputs = planner.inputs(connection, run)
    except NotExecutableError as error:
        raise ConflictError(f"run '{run.id}' cannot be asked about: {error}") from None
    retriever = definitions.find_definition(connection, "retriever", check.body["retriever"])
    changed = f"since run '{run.id}'; run the check, then ask again"
    if retriever is None or retriever.version_id != run.retriever_version_id:
        raise ConflictError(f"retriever '{check.body['retriever']}' was changed {changed}")
    if known[key].id not in inputs.canary_ids:
        raise ConflictError(f"canary '{key}' came {changed}")
    position = inputs.canary_ids.index(known[key].id)
    if inputs.version_ids[position] != known[key].version_id:
        raise ConflictError(f"canary '{key}' was changed {changed}")
    if not inputs.panel.expects[position]:
        raise ConflictError(f"canary '{key}' expects no chunk, so there is none to look for")
    return run, inputs, position


def _worth_asking(
    planner: Planner, ended: EndedRun, *, most: int, now: datetime
) -> tuple[list[tuple[Subject, Diagnosis]], list[Subject], RunInputs | None]:
    """Diagnose what rows tell, and pick the canaries to ask about; no inputs where there is nothing to do."""
    if ended.status is RunStatus.FAILED or ended.verdict is Verdict.UNKNOWN:
        return [], [], None
    with planner.store.read() as connection:
        run = results.find_run(connection, ended.id)
        cause = None if run is None else renaming_cause(connection, run)
        if run is None or (not run.degraded and cause is None):
            return [], [], None
        inputs = planner.inputs(connection, run)
        known = [] if cause is None else diagnose_renamed(connection, run, inputs, cause)
        without = {one.canary_id for one, _ in known}
        renamed = cause is not None
        subjects = worth_asking(connection, run, inputs, limit=most, now=now, renamed=renamed, without=without)
    return known, subjects, inputs


def _ask(
    probe: Probe,
    inputs: RunInputs,
    subjects: Sequence[Subject],
    budget: TimeBudget,
    *,
    run_id: str,
    anyway: bool = False,
    told: ReportProgress = lambda _answered, _of: None,
) -> list[tuple[Subject, Diagnosis]]:
    """Ask about these canaries; those of which too little was learned to tell are left out, unless `anyway`."""
    asked = [questions(one.case) for one in subjects]
    keyed = [(one.case.canary.key, wanted) for one, wanted in zip(subjects, asked, strict=True)]
    answers = ask_questions(probe, inputs.retriever, keyed, budget, run_id=run_id, told=told)
    return [
        (one, classify(one.case, wanted, got))
        for one, wanted, got in zip(subjects, asked, answers, strict=True)
        if anyway or _tells(got)
    ]


def _tells(answers: Sequence[Answer | None]) -> bool:
    """Whether enough was asked to name a cause: the first few questions, or as many as the retriever failed to answer.

    The rest only makes surer; without the first ones, what is gone would be taken for what is outranked.
    """
    put = [answer for answer in answers if answer is not None]
    failed = bool(put) and all(answer.ranking is None for answer in put)
    return failed or all(answer is not None for answer in answers[:_ENOUGH])


def _save(connection: Connection, run: RunRow, one: Subject, found: Diagnosis, *, at: int, by: str | None) -> int:
    """Write a diagnosis and what it proposes."""
    told = {"persistent": found.persistent, "rank_before": found.rank_before, "rank_now": found.rank_now}
    diagnosis_id = stored.save_diagnosis(
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
        evidence={**found.evidence, **told},
    )
    for proposal in found.reanchors:
        _propose(connection, run, one, proposal, diagnosis_id=diagnosis_id, at=at)
    return diagnosis_id


def _propose(connection: Connection, run: RunRow, one: Subject, found: Reanchor, *, diagnosis_id: int, at: int) -> None:
    """Propose what should stand in a judgment's place, unless just that was proposed or rejected before.

    Another proposal for the same judgment takes the place of one that nobody has answered yet: the index moved on.
    """
    judgment = _document(found.judgment).data()
    try:
        proposals = [_document(proposal).data() for proposal in found.proposals]
    except ValueError:  # a retriever may name chunks in ways no canary can: there is nothing to propose
        return
    name = judgment_name(_document(found.judgment))
    earlier = [
        row
        for row in stored.proposals_of(connection, [one.canary_id], ("proposed", "rejected"))
        if judgment_name(JudgmentDocument.model_validate(row.judgment)) == name
    ]
    if any(list(row.proposals) == proposals for row in earlier):
        return
    waiting = [row.id for row in earlier if row.state == ReanchorState.PROPOSED]
    stored.decide_reanchors(connection, waiting, state=ReanchorState.OUTDATED, at=at, by=None)
    stored.propose(
        connection,
        diagnosis_id=diagnosis_id,
        check_id=run.check_id,
        canary_id=one.canary_id,
        canary_version_id=one.version_id,
        hash=blake2b(name.encode(), digest_size=_DIGEST).digest(),
        judgment=judgment,
        proposals=proposals,
        similarity=found.similarity,
        texts={"old": found.passage[:KEPT], "new": [one.text[:KEPT] for one in found.found]},
        created_at=at,
    )


def _settle(connection: Connection, check_id: int, *, at: int) -> None:
    check = definitions.definition_by_id(connection, check_id)
    reanchoring.settle(connection, check_id, check.body["suite"], at=at)


def _document(judgment: Judgment) -> JudgmentDocument:
    return JudgmentDocument(id=judgment.id, document=judgment.document, text=judgment.text, grade=judgment.grade)


def _shape(connection: Connection, slug: str, key: str, found: DiagnosisRow) -> DiagnosisView:
    evidence = dict(found.evidence)
    proposed = [
        row
        for row in stored.proposals_of(connection, [found.canary_id], ("proposed",))
        if row.check_id == found.check_id
    ]
    return DiagnosisView(
        id=str(found.id),
        check=slug,
        key=key,
        run_id=str(found.run_id),
        at=shapes.time_text(found.at),
        requested_by=found.requested_by,
        cause=Cause(found.cause),
        reason=found.reason,
        persistent=evidence.pop("persistent", None),
        rank_before=evidence.pop("rank_before", None),
        rank_now=evidence.pop("rank_now", None),
        evidence=cast("DiagnosisEvidence", evidence),
        reanchors=[str(row.id) for row in proposed],
    )
