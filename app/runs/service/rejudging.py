"""Scores of past runs by corrected judgments, from their stored rankings; no retriever is queried.

`Sweep.judge` is the entry point. `rescoring` chooses the runs and writes their results; only the layouts of the scores
are stored here.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from app.alerts.domain.rule_facts import RepeatedFailures, RunFacts
from app.alerts.service.rule_facts import baseline_latency, repeated_failures
from app.base.db.engine import Store, from_us
from app.base.rate_control import SLOWED
from app.base.values import Outcome, Ranking, RunStatus, Verdict
from app.catalog.domain.suite_snapshot import UnusableSuiteError
from app.catalog.service.run_inputs import UnusableDefinitionError, load_inputs
from app.catalog.store import suites
from app.detection.store import detectors
from app.records.service.aggregates import embedder_finding
from app.records.store import ranking_rows
from app.records.store.rescored_runs import RescoredRun
from app.records.store.rescoring import PendingRun, Rescoring
from app.records.store.shards import Failure
from app.retrievers.domain.circuit_breaker import ENDED_FIRST
from app.runs.service.layouts import save_layouts
from app.runs.service.ranking_cursor import Walk
from app.scoring.evaluation import judge
from app.scoring.run_inputs import RunInputs, RunVersions
from app.scoring.run_outcomes import HistoryFacts, evaluate, finds_nothing, score
from app.scoring.run_responses import RunResponses
from app.scoring.tally import Tally, pack_reasons
from app.scoring.verdicts import CACHED, LACKING, TOO_FEW_SCORED, UNSCORED
from app.scoring.wrong_fields import NamedBy, named_by

BATCH_ROWS = 20_000
"""How many results of runs are judged at once, at most: what a sweep keeps in memory, and what a crash costs."""
_MOST_RUNS = 200
_PAGE = 2_000
_BLOCK = 1_000
_MOST_RANKINGS = 4_000
_KEPT_RESULTS = 50_000
_KEPT_TABLES = 8
_LOST: Final = Failure(outcome=str(Outcome.SKIPPED))
"""Of a canary whose ranking is not there any more."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """The scores of a ranking for a version of a canary, as they are stored."""

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
    """Runs re-scored, each with the time it ended, and the scores behind them."""

    runs: Sequence[tuple[RescoredRun, int]]
    scores: Sequence[Scores]
    left_out: int
    """Number of runs whose definitions this release cannot read any more; they are not re-scored."""


@dataclass(kw_only=True)
class _ScoreTable:
    """The results of runs of the same versions, kept up to date while walking through the runs."""

    inputs: RunInputs
    layout_id: int
    vector_layout_id: int
    tally: Tally
    ranking_ids: dict[int, int] = field(default_factory=dict)
    """What the tally holds, by position."""
    named_by: dict[int, NamedBy | None] = field(default_factory=dict)
    """Of what the tally holds, as far as a run found nothing: see `named_by`; by position."""
    pending: set[int] = field(default_factory=set)
    """Canaries whose ranking may differ from the one in the tally; scored at the next run that measured them."""
    aged: dict[int, Ranking] = field(default_factory=dict)
    """Rankings whose age matters, by position."""


class Sweep:
    """Judges the runs of a check in the order they ran, by the judgments of a re-scoring.

    What it keeps is bounded: the ranking each canary has, results of recent rankings, score tables of recent suites.
    """

    def __init__(self, store: Store, rescoring: Rescoring, *, batch_rows: int = BATCH_ROWS) -> None:
        self._store = store
        self._rescoring = rescoring
        with store.read() as connection:
            canaries = len(suites.members_of(connection, rescoring.suite_version_id))
        self.size = max(1, min(_MOST_RUNS, batch_rows // max(1, canaries)))
        """How many runs to judge at once."""
        self._walk = Walk(store, rescoring.check_id, page=min(_PAGE, batch_rows))
        self._tables: OrderedDict[RunVersions, _ScoreTable] = OrderedDict()
        self._table: _ScoreTable | None = None
        self._judged: OrderedDict[tuple[int, int, int], _Judged] = OrderedDict()
        self._vectors: dict[bytes, bytes] = {}
        """Each of a batch once: most canaries score as others do."""
        self._rankings: dict[int, Ranking] = {}
        self._scores: dict[int, list[tuple[int, int, bytes, bytes]]] = {}

    def judge(self, runs: Sequence[PendingRun]) -> Batch:
        """Return the next runs re-scored; they are in order and later than those before."""
        self._scores = {}
        self._rankings = {}
        self._vectors = {}
        ahead = self._walk.look_ahead(runs[0].id, runs[-1].id)
        known = {ranking_id for ranking_id, _, _ in self._judged}
        self._read_rankings(list(ahead - known)[:_MOST_RANKINGS])
        usual = self._baseline_latencies([run.id for run in runs])
        judged_runs: list[tuple[RescoredRun, int]] = []
        for run in runs:
            changed = self._walk.to(run.id)
            try:
                table = self._table_of(run)
            except (UnusableDefinitionError, UnusableSuiteError):  # of documents this release refuses
                self._table = None
                continue
            table.pending |= changed if table is self._table else table.inputs.suite.positions.keys()
            self._table = table
            judged_runs.append((self._judged_run(table, run, usual.get(run.id)), run.finished_at))
        scores = [Scores(layout_id=layout, rows=rows) for layout, rows in self._scores.items()]
        return Batch(runs=judged_runs, scores=scores, left_out=len(runs) - len(judged_runs))

    def _baseline_latencies(self, run_ids: Sequence[int]) -> dict[int, float | str]:
        """Return the latencies that runs were compared with: no judgment changes these."""
        with self._store.read() as connection:
            found = detectors.detections_of(connection, run_ids)
            return {run_id: baseline_latency(row) for run_id, row in found.items()}

    def _judged_run(self, table: _ScoreTable, run: PendingRun, usual: float | str | None) -> RescoredRun:
        failures = run.failed
        self._fill(table, failures)
        responses = _responses(table, run, failures)
        change, reason = embedder_finding(run.embedder)
        facts = HistoryFacts(
            rule_facts=RunFacts(repeated=self._repeated(table, run, failures), baseline_latency=usual),
            embedder=change,
            embedder_reason=reason,
            names_silent_rules=True,
        )
        scores = score(table.inputs, responses, table.tally)
        if finds_nothing(scores, responses, len(table.inputs.canaries)):
            responses = replace(responses, named_by=self._named_by(table, failures))
        outcome = evaluate(table.inputs, responses, facts, scores)
        aggregates, degraded = outcome.aggregates, outcome.degraded
        return RescoredRun(
            run_id=run.id,
            verdict=str(outcome.verdict),
            reasons=outcome.reasons,
            total=aggregates.total,
            measured=aggregates.measured,
            failed=aggregates.failed,
            undefined=aggregates.undefined,
            degraded=aggregates.degraded,
            degraded_positions=degraded.astype("<u4").tobytes() or None,
            degraded_reasons=outcome.canary_reasons[degraded].astype("<u2").tobytes() or None,
            aggregates=outcome.vector.tobytes(),
            layout_id=table.vector_layout_id,
            scores_layout_id=table.layout_id,
        )

    def _repeated(
        self, table: _ScoreTable, run: PendingRun, failures: Mapping[int, Failure]
    ) -> RepeatedFailures | None:
        """Return the canaries that a run and the ones before it did not measure."""
        by_key = {table.inputs.canaries[place].key: failure for place, failure in sorted(failures.items())}
        with self._store.read() as connection:
            return repeated_failures(connection, self._rescoring.check_id, run.id, by_key)

    def _named_by(self, table: _ScoreTable, failures: Mapping[int, Failure]) -> dict[int, NamedBy | None]:
        """Return what explains that nothing was found, by position; see `named_by`."""
        places = [place for place in table.ranking_ids if place not in failures]
        unread = [place for place in places if place not in table.named_by]
        for start in range(0, len(unread), _BLOCK):
            block = unread[start : start + _BLOCK]
            self._read_rankings({table.ranking_ids[place] for place in block})
            table.named_by.update(
                (place, named_by(table.inputs.canaries[place], self._rankings[ranking_id]))
                for place in block
                if (ranking_id := table.ranking_ids[place]) in self._rankings  # unless it was pruned meanwhile
            )
        return {place: one for place in places if (one := table.named_by.get(place)) is not None}

    def _fill(self, table: _ScoreTable, failures: Mapping[int, Failure]) -> None:
        """Bring the results of a run's canaries up to date with the rankings they have now.

        Where a probe failed, what the canary has is older, perhaps of another retriever, and not judged by this one.
        """
        changed: dict[int, int] = {}
        waiting: set[int] = set()
        positions = table.inputs.suite.positions
        for canary_id in table.pending:
            position, ranking_id = positions.get(canary_id), self._walk.ranking_of(canary_id)
            if position is None or ranking_id is None or table.ranking_ids.get(position) == ranking_id:
                continue
            if position in failures:
                waiting.add(canary_id)
            else:
                changed[position] = ranking_id
        table.pending = waiting
        if not changed:
            return
        places = sorted(changed)
        for start in range(0, len(places), _BLOCK):
            self._judge(table, {place: changed[place] for place in places[start : start + _BLOCK]})

    def _judge(self, table: _ScoreTable, changed: Mapping[int, int]) -> None:
        """Put the results of these rankings, by position, into the tally; those not judged before are judged."""
        unknown = {place: one for place, one in changed.items() if self._key(table, place, one) not in self._judged}
        aged = {place for place in changed if table.inputs.canaries[place].max_age_seconds is not None}
        self._read_rankings({changed[place] for place in unknown.keys() | aged})
        results = judge(
            table.inputs.yardstick, table.inputs.panel, {place: self._rankings[one] for place, one in unknown.items()}
        )
        rows = self._scores.setdefault(table.layout_id, [])
        for place, result in results.items():
            vector = result.vector.tobytes()
            vector = self._vectors.setdefault(vector, vector)
            judged = _Judged(vector, result.top_score, pack_reasons(result.reasons))
            self._judged[self._key(table, place, changed[place])] = judged
            rows.append((changed[place], table.inputs.version_ids[place], result.match.to_bytes(), vector))
        table.tally.add_stored({place: self._judged[self._key(table, place, one)] for place, one in changed.items()})
        table.aged.update((place, self._rankings[changed[place]]) for place in aged)
        table.ranking_ids.update(changed)
        for place in changed:
            table.named_by.pop(place, None)
        while len(self._judged) > _KEPT_RESULTS:
            self._judged.popitem(last=False)

    def _key(self, table: _ScoreTable, place: int, ranking_id: int) -> tuple[int, int, int]:
        return ranking_id, table.inputs.version_ids[place], table.layout_id

    def _read_rankings(self, ranking_ids: Collection[int]) -> None:
        """Load these rankings into the cache."""
        unread = [one for one in ranking_ids if one not in self._rankings]
        if len(self._rankings) + len(unread) > _MOST_RANKINGS:
            self._rankings, unread = {}, list(ranking_ids)
        if unread:
            with self._store.read() as connection:
                self._rankings |= ranking_rows.load_rankings(connection, unread)

    def _table_of(self, run: PendingRun) -> _ScoreTable:
        """Return the table of a run. Raises UnusableDefinitionError and UnusableSuiteError."""
        table = self._tables.get(run.versions)
        if table is None:
            table = self._tables[run.versions] = self._new_table(run.versions)
            while len(self._tables) > _KEPT_TABLES:
                self._tables.popitem(last=False)
        return table

    def _new_table(self, versions: RunVersions) -> _ScoreTable:
        with self._store.read() as connection:
            inputs = load_inputs(connection, versions, judged_by=self._rescoring.suite_version_id)
            inputs.suite.prepare()
        with self._store.write() as connection:
            layouts = save_layouts(connection, inputs)
        return _ScoreTable(
            inputs=inputs,
            layout_id=layouts.scores,
            vector_layout_id=layouts.aggregates,
            tally=Tally(inputs.yardstick, inputs.panel),
        )


def _responses(table: _ScoreTable, run: PendingRun, failures: Mapping[int, Failure]) -> RunResponses:
    """Return the recorded responses of a run."""
    lost = [place for place in range(len(table.inputs.canaries)) if place not in table.ranking_ids]
    return RunResponses(
        started_at=from_us(run.started_at),
        aged=table.aged,
        latencies=run.latency_seconds,
        percentiles=None if run.probes is None else cast("Mapping[str, float | None]", run.probes["latency_seconds"]),
        failures={**dict.fromkeys(lost, _LOST), **failures},
        unscored=run.unscored_at,
        too_few_scored=next((reason for reason in run.reasons if reason.startswith(TOO_FEW_SCORED)), None),
        remarks=tuple(
            one for one in run.reasons if one.startswith((UNSCORED, SLOWED)) or one.endswith(LACKING) or CACHED in one
        ),
        ended_early=_ended_early(run, failures),
    )


def _ended_early(run: PendingRun, failures: Mapping[int, Failure]) -> str | None:
    """Say why the breaker ended a run, if it did: the reason stands at the probes that were not made."""
    if run.status != RunStatus.PARTIAL or run.verdict != Verdict.UNKNOWN:
        return None
    skipped = [failure.detail for failure in failures.values() if failure.outcome == Outcome.SKIPPED]
    return next((detail for detail in skipped if detail is not None and detail != ENDED_FIRST), None)
