"""Walking through past runs and judging each anew: the rankings are those that were stored, and nobody is asked.

`Sweep.judge` is the story. Which runs are left, and what is written, is rescoring's.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from app.domain.alerts.rule_facts import NO_FACTS, RunFacts, needs_facts, unsaid
from app.domain.model import Aggregates, Outcome, Ranking, RunStatus, Verdict
from app.domain.probing.circuit_breaker import ENDED_FIRST
from app.domain.runs.aggregate_vectors import aggregate_vector
from app.domain.runs.evaluation import Tally, Timing, judge, judge_timings, pack_reasons
from app.domain.runs.measures import MEASURES_VERSION
from app.domain.runs.run_inputs import RunInputs, RunVersions
from app.domain.runs.suite_snapshot import UnusableSuiteError
from app.domain.runs.verdicts import LACKING, TOO_FEW_SCORED, UNSCORED, remarks, run_verdict
from app.services.aggregates import failure_summary, with_embedder
from app.services.alerts.rule_facts import facts_of
from app.services.catalog.run_inputs import UnusableDefinitionError, load_inputs
from app.services.runs.ranking_cursor import Walk
from app.store.catalog import suites
from app.store.engine import Store, from_us
from app.store.runs import recording
from app.store.runs.queue import Failure
from app.store.runs.rescored_runs import RescoredRun
from app.store.runs.rescoring import LeftRun, Rescoring

BATCH_ROWS = 20_000
"""How many results of runs are judged at once, at most: what a sweep keeps in memory, and what a crash costs."""
_MOST_RUNS = 200
_PAGE = 2_000
_BLOCK = 1_000
_MOST_RANKINGS = 4_000
_KEPT_RESULTS = 50_000
_KEPT_SHEETS = 8


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a ranking means for a version of a canary, as a store keeps it."""

    vector: bytes
    top_score: float | None
    reasons: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What rankings scored that were judged for the first time: rows as `recording.save_scores` wants them."""

    layout_id: int
    rows: Sequence[tuple[int, int, bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Runs judged anew, each with the time it ended, and the scores behind them."""

    runs: Sequence[tuple[RescoredRun, int]]
    scores: Sequence[Scores]
    left_out: int
    """Runs that cannot be judged any more, because this release does not read what they worked with."""


@dataclass(kw_only=True)
class _Sheet:
    """The results of runs that asked and were judged alike, kept up to date while walking through them."""

    inputs: RunInputs
    layout_id: int
    vector_layout_id: int
    tally: Tally
    ranking_ids: dict[int, int] = field(default_factory=dict)
    """What the tally holds, by position."""
    pending: set[int] = field(default_factory=set)
    """Canaries that may have another ranking than the tally holds; it is judged once it was this run's answer."""
    aged: dict[int, Ranking] = field(default_factory=dict)
    """Rankings whose age matters, by position."""
    sum_of: tuple[object, "_Sum"] | None = None
    """What the results came to, and of what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    aggregates: Aggregates
    vector: bytes
    positions: bytes | None
    reasons: bytes | None


class Sweep:
    """Judges the runs of a check in the order they ran, by the judgments of a re-scoring.

    What it remembers is bounded: the ranking each canary has, results of recent rankings, and sheets of recent suites.
    """

    def __init__(self, store: Store, asked: Rescoring, *, batch_rows: int = BATCH_ROWS) -> None:
        self._store = store
        self._rescoring = asked
        with store.read() as connection:
            canaries = len(suites.members_of(connection, asked.suite_version_id))
        self.size = max(1, min(_MOST_RUNS, batch_rows // max(1, canaries)))
        """How many runs to judge at once."""
        self._walk = Walk(store, asked.check_id, page=min(_PAGE, batch_rows))
        self._sheets: OrderedDict[RunVersions, _Sheet] = OrderedDict()
        self._sheet: _Sheet | None = None
        self._judged: OrderedDict[tuple[int, int, int], _Judged] = OrderedDict()
        self._rankings: dict[int, Ranking] = {}
        self._scores: dict[int, list[tuple[int, int, bytes, bytes]]] = {}

    def judge(self, runs: Sequence[LeftRun]) -> Batch:
        """Judge the next runs anew; they are in order and later than those before."""
        self._scores = {}
        self._rankings = {}
        ahead = self._walk.look_ahead(runs[0].id, runs[-1].id)
        known = {ranking_id for ranking_id, _, _ in self._judged}
        self._read_rankings(list(ahead - known)[:_MOST_RANKINGS])
        found: list[tuple[RescoredRun, int]] = []
        for run in runs:
            changed = self._walk.to(run.id)
            try:
                sheet = self._sheet_of(run)
            except (UnusableDefinitionError, UnusableSuiteError):  # of documents this release refuses
                self._sheet = None
                continue
            sheet.pending |= changed if sheet is self._sheet else sheet.inputs.suite.positions.keys()
            self._sheet = sheet
            found.append((self._judged_run(sheet, run), run.finished_at))
        scores = [Scores(layout_id=layout, rows=rows) for layout, rows in self._scores.items()]
        return Batch(runs=found, scores=scores, left_out=len(runs) - len(found))

    def _judged_run(self, sheet: _Sheet, run: LeftRun) -> RescoredRun:
        failures = run.failed
        self._fill(sheet, failures)
        timings = self._timings(sheet, run, failures)
        found = self._sum(sheet, run, failures, timings)
        aggregates = with_embedder(found.aggregates, run.embedder)
        ended_early = _ended_early(run, failures)
        too_few = next((reason for reason in run.reasons if reason.startswith(TOO_FEW_SCORED)), None)
        rules = sheet.inputs.yardstick.rules
        facts = _facts(sheet, run, failures) if needs_facts(rules) else NO_FACTS
        facts = replace(facts, failure=failure_summary(failures.values(), aggregates.total))
        verdict, reasons = run_verdict(aggregates, rules, ended_early=ended_early, too_few_scored=too_few, facts=facts)
        reasons += unsaid(rules, facts) if verdict is not Verdict.UNKNOWN else []
        reasons += [told for told in run.reasons if told.startswith(UNSCORED) or told.endswith(LACKING)]
        undated = sum(timing.undated for timing in timings.values())
        reasons += remarks(aggregates, unscored=0, why_unscored=None, undated=undated)
        return RescoredRun(
            run_id=run.id,
            verdict=str(verdict),
            reasons=reasons,
            total=aggregates.total,
            measured=aggregates.measured,
            failed=aggregates.failed,
            undefined=aggregates.undefined,
            degraded=aggregates.degraded,
            degraded_positions=found.positions,
            degraded_reasons=found.reasons,
            aggregates=found.vector,
            layout_id=sheet.vector_layout_id,
            scores_layout_id=sheet.layout_id,
        )

    def _sum(self, sheet: _Sheet, run: LeftRun, failures: Mapping[int, Failure], timings: Mapping[int, Timing]) -> _Sum:
        """Amount a run to its aggregates; those of the run before where nothing has changed since."""
        key = (run.failures, run.unscored, [timing.reasons for timing in timings.values()])
        if sheet.sum_of is not None and sheet.sum_of[0] == key:
            return sheet.sum_of[1]
        outcomes = [Outcome.OK] * len(sheet.inputs.panel)
        for position in sheet.inputs.suite.positions.values():
            if position not in sheet.ranking_ids:
                outcomes[position] = Outcome.SKIPPED
        for position, failure in failures.items():
            outcomes[position] = Outcome(failure.outcome)
        sheet.tally.time(timings)
        tally = sheet.tally.without_relevance(run.unscored_at)
        aggregates = tally.aggregates(outcomes)
        measured = np.array([outcome is Outcome.OK for outcome in outcomes], dtype=np.bool_)
        places = np.flatnonzero((tally.reasons != 0) & measured)
        found = _Sum(
            aggregates=aggregates,
            vector=aggregate_vector(sheet.inputs.vector_names, aggregates).tobytes(),
            positions=places.astype("<u4").tobytes() or None,
            reasons=tally.reasons[places].astype("<u2").tobytes() or None,
        )
        sheet.sum_of = (key, found)
        return found

    def _timings(self, sheet: _Sheet, run: LeftRun, failures: Mapping[int, Failure]) -> dict[int, Timing]:
        """Judge the moment of the answers, by what the canaries want of it now."""
        latencies = np.frombuffer(run.latencies, dtype=np.float16)
        measured = {
            position: float(latencies[position])
            for position in sheet.inputs.panel.timed
            if position in sheet.ranking_ids and position not in failures and position < len(latencies)
        }
        return judge_timings(sheet.inputs.yardstick, sheet.inputs.panel, measured, sheet.aged, from_us(run.started_at))

    def _fill(self, sheet: _Sheet, failures: Mapping[int, Failure]) -> None:
        """Bring the results of a run's canaries up to date with the rankings they have now.

        Where a probe failed, what the canary has is older, perhaps of another retriever, and not judged by this one.
        """
        changed: dict[int, int] = {}
        waiting: set[int] = set()
        positions = sheet.inputs.suite.positions
        for canary_id in sheet.pending:
            position, ranking_id = positions.get(canary_id), self._walk.ranking_of(canary_id)
            if position is None or ranking_id is None or sheet.ranking_ids.get(position) == ranking_id:
                continue
            if position in failures:
                waiting.add(canary_id)
            else:
                changed[position] = ranking_id
        sheet.pending = waiting
        if not changed:
            return
        sheet.sum_of = None
        places = sorted(changed)
        for start in range(0, len(places), _BLOCK):
            self._judge(sheet, {place: changed[place] for place in places[start : start + _BLOCK]})

    def _judge(self, sheet: _Sheet, changed: Mapping[int, int]) -> None:
        """Put the results of these rankings, by position, into the tally; those not judged before are judged."""
        unknown = {place: one for place, one in changed.items() if self._key(sheet, place, one) not in self._judged}
        aged = {place for place in changed if sheet.inputs.canaries[place].max_age_seconds is not None}
        self._read_rankings({changed[place] for place in unknown.keys() | aged})
        found = judge(
            sheet.inputs.yardstick, sheet.inputs.panel, {place: self._rankings[one] for place, one in unknown.items()}
        )
        rows = self._scores.setdefault(sheet.layout_id, [])
        for place, result in found.items():
            vector, reasons = result.vector.tobytes(), pack_reasons(result.reasons)
            self._judged[self._key(sheet, place, changed[place])] = _Judged(vector, result.top_score, reasons)
            rows.append((changed[place], sheet.inputs.version_ids[place], result.match.to_bytes(), vector))
        sheet.tally.take_over({place: self._judged[self._key(sheet, place, one)] for place, one in changed.items()})
        sheet.aged.update((place, self._rankings[changed[place]]) for place in aged)
        sheet.ranking_ids.update(changed)
        while len(self._judged) > _KEPT_RESULTS:
            self._judged.popitem(last=False)

    def _key(self, sheet: _Sheet, place: int, ranking_id: int) -> tuple[int, int, int]:
        return ranking_id, sheet.inputs.version_ids[place], sheet.layout_id

    def _read_rankings(self, ranking_ids: Collection[int]) -> None:
        """Have these rankings at hand."""
        unread = [one for one in ranking_ids if one not in self._rankings]
        if len(self._rankings) + len(unread) > _MOST_RANKINGS:
            self._rankings, unread = {}, list(ranking_ids)
        if unread:
            with self._store.read() as connection:
                self._rankings |= recording.load_rankings(connection, unread)

    def _sheet_of(self, run: LeftRun) -> _Sheet:
        """Return the sheet of a run. Raises UnusableDefinitionError and UnusableSuiteError."""
        sheet = self._sheets.get(run.versions)
        if sheet is None:
            sheet = self._sheets[run.versions] = self._new_sheet(run.versions)
            while len(self._sheets) > _KEPT_SHEETS:
                self._sheets.popitem(last=False)
        return sheet

    def _new_sheet(self, versions: RunVersions) -> _Sheet:
        with self._store.read() as connection:
            inputs = load_inputs(connection, versions, judged_by=self._rescoring.suite_version_id)
            inputs.suite.prepare()
        measures = [str(measure) for measure in inputs.yardstick.measures]
        with self._store.write() as connection:
            layout_id = recording.layout_id(connection, measures, MEASURES_VERSION, str(inputs.yardstick))
            vector_layout_id = recording.layout_id(connection, inputs.vector_names, MEASURES_VERSION, "")
        return _Sheet(
            inputs=inputs,
            layout_id=layout_id,
            vector_layout_id=vector_layout_id,
            tally=Tally(inputs.yardstick, inputs.panel),
        )


def _facts(sheet: _Sheet, run: LeftRun, failures: Mapping[int, Failure]) -> RunFacts:
    """Give what rules look at besides; detectors do not look at judgments of another day, so theirs say nothing."""
    failed = failures.keys() | {
        place for place in sheet.inputs.suite.positions.values() if place not in sheet.ranking_ids
    }
    latencies = np.frombuffer(run.latencies, dtype=np.float16).astype(np.float64).tolist()
    return facts_of(
        sheet.inputs.yardstick.rules,
        sheet.inputs.panel,
        reasons=sheet.tally.reasons,
        failed=failed,
        unscored=run.unscored_at,
        latencies=[seconds for place, seconds in enumerate(latencies) if place not in failed],
    )


def _ended_early(run: LeftRun, failures: Mapping[int, Failure]) -> str | None:
    """Say why the breaker ended a run, if it did: the reason stands at the probes that were not made."""
    if run.status != RunStatus.PARTIAL or run.verdict != Verdict.UNKNOWN:
        return None
    skipped = [failure.detail for failure in failures.values() if failure.outcome == Outcome.SKIPPED]
    return next((detail for detail in skipped if detail is not None and detail != ENDED_FIRST), None)
