"""Re-scoring: a judgment is corrected, and history is judged anew by it as a measures version of its own.

`carry_on` is the story, and `Sweep` judges. The rankings are those that were stored, so the retriever gets no request,
and what was written when the runs ended stays as it is.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, cast

from app.alerts.domain.rules import RunFacts
from app.alerts.service.transitions import baseline_latency, repeated_failures, with_recall_label
from app.base.db.engine import Connection, Store, blocks, from_us, hold_content, row_value, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.limits import SLOWED
from app.base.texts import counted
from app.base.values import Outcome, Ranking, RunStatus, Value, Verdict, replace
from app.catalog import store as catalog
from app.catalog.service.references import find_check
from app.catalog.service.versions import UnusableDefinitionError, freeze_suite, load_inputs
from app.detection import store as detector_rows
from app.index_facts.store import known_facts
from app.records.service.past_runs import embedder_finding
from app.records.service.plans import save_layouts
from app.records.service.run_views import rescoring_shape
from app.records.store import ranking_rows, rescorings, run_rows
from app.records.store.open_runs import Failure
from app.records.store.rescorings import BegunState, PendingRun, RescoredRun, Rescoring
from app.records.views import RescoringView
from app.retrievers.domain.probes import ENDED_FIRST
from app.scoring.evaluation import NamedBy, Tally, judge, named_by, pack_reasons
from app.scoring.measures import MEASURES_VERSION
from app.scoring.run_inputs import RunInputs, RunVersions, UnusableSuiteError
from app.scoring.run_outcomes import HistoryFacts, RunResponses, evaluate, finds_nothing, score
from app.scoring.verdicts import CACHED, LACKING, TOO_FEW_SCORED, UNSCORED

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


class _Judged(Value, kw_only=False):
    """The scores of a ranking for a version of a canary, as they are stored."""

    vector: bytes
    top_score: float | None
    reasons: int


class Batch(Value):
    """Runs re-scored, each with the time it ended, and the scores behind them."""

    runs: Sequence[tuple[RescoredRun, int]]
    scores: Mapping[int, Sequence[tuple[int, int, bytes, bytes]]]
    """What rankings scored that were judged for the first time, by layout, as `ranking_rows.save_scores` wants it."""
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
            canaries = len(catalog.frozen_version(connection, rescoring.suite_version_id).members)
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
        return Batch(runs=judged_runs, scores=self._scores, left_out=len(runs) - len(judged_runs))

    def _baseline_latencies(self, run_ids: Sequence[int]) -> dict[int, float | str]:
        """Return the latencies that runs were compared with: no judgment changes these."""
        with self._store.read() as connection:
            found = detector_rows.detections_of(connection, run_ids)
            return {run_id: baseline_latency(row) for run_id, row in found.items()}

    def _judged_run(self, table: _ScoreTable, run: PendingRun, usual: float | str | None) -> RescoredRun:
        failures = run.failed
        self._fill(table, failures)
        responses = _responses(table, run, failures)
        change, reason = embedder_finding(run.embedder)
        with self._store.read() as connection:
            keys = table.inputs.suite.keys
            repeated = repeated_failures(connection, self._rescoring.check_id, run.id, keys, failures)
            index = known_facts(connection, self._rescoring.check_id, [run.id]).get(run.id)
            known = RunFacts(repeated=repeated, baseline_latency=usual, index=index)
            rule_facts = with_recall_label(connection, known, table.inputs)
        facts = HistoryFacts(
            rule_facts=rule_facts,
            embedder=change,
            embedder_reason=reason,
            names_silent_rules=True,
        )
        scores = score(table.inputs, responses, table.tally)
        if finds_nothing(scores, responses, len(table.inputs.canaries)):
            responses = replace(responses, named_by=self._named_by(table, failures))
        outcome = evaluate(table.inputs, responses, facts, scores)
        aggregates, degraded = outcome.aggregates, outcome.degraded
        return row_value(
            RescoredRun,
            aggregates,
            run_id=run.id,
            verdict=str(outcome.verdict),
            reasons=outcome.reasons,
            degraded_positions=degraded.astype("<u4").tobytes() or None,
            degraded_reasons=outcome.canary_reasons[degraded].astype("<u2").tobytes() or None,
            aggregates=outcome.vector.tobytes(),
            layout_id=table.vector_layout_id,
            scores_layout_id=table.layout_id,
        )

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
        aged = changed.keys() & table.inputs.panel.aged
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


LEASE: Final = timedelta(minutes=2)
"""How long a batch may take before others think its worker gone; should they be wrong, the work is done twice."""
MOST_ATTEMPTS: Final = 5
"""In a row, without a batch that was written in between."""
_FIRST_PAUSE: Final = timedelta(minutes=1)
"""Between an attempt that failed and the next; doubled from attempt to attempt."""

_SAVED_AT_ONCE: Final = 1_000
"""Scores."""
COMMAND: Final = "rescore:"
"""How the owner of a re-scoring is named that a command carries out, beside whatever worker there is."""

Moved = Callable[[int, int], None]


def ask(store: Store, slug: str, *, since: datetime | None, now: datetime) -> int:
    """Ask for a check's runs that ended from `since` on (None: all) to be judged by the judgments in force now.

    Asked again with the same suite, it is the same re-scoring that goes on with what has come since. Raises
    NotFoundError, and ConflictError where no suite is in force.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        suite = catalog.find_definition(connection, "suite", check.body["suite"])
    if suite is None or suite.archived_at is not None:
        raise ConflictError(f"suite '{check.body['suite']}' is not in force, so there is nothing to judge by")
    suite_version_id = freeze_suite(store, suite.id, now)
    with store.write() as connection:
        return rescorings.ask(
            connection,
            check_id=check.id,
            suite_version_id=suite_version_id,
            measures_version=MEASURES_VERSION,
            since=None if since is None else to_us(since),
            now=to_us(now),
        )


def claim_as_worker(store: Store, rescoring_id: int, *, owner: str, now: datetime) -> int | None:
    """Take a re-scoring whose job this worker does, also from a worker before it; not from a command that is at it."""
    return _claim(store, rescoring_id, owner=owner, now=now, but=COMMAND)


def claim(store: Store, *, owner: str, now: datetime, only: int | None = None) -> int | None:
    """Take a re-scoring with work left at which nobody is, if there is one; or `only` this one.

    One whose workers have ended in the middle of every attempt is given up.
    """
    with store.read() as connection:
        waiting = rescorings.waiting(connection, now=to_us(now), only=only)
    return None if waiting is None else _claim(store, waiting, owner=owner, now=now)


def _claim(store: Store, rescoring_id: int, *, owner: str, now: datetime, but: str | None = None) -> int | None:
    with store.write() as connection:
        until = to_us(now + LEASE)
        claimed = rescorings.claim(connection, rescoring_id, owner=owner, now=to_us(now), lease_until=until, but=but)
        row = rescorings.find(connection, rescoring_id) if claimed else None
        if row is not None and row.attempts > MOST_ATTEMPTS:
            failure = f"its worker ended in the middle of {MOST_ATTEMPTS} attempts"
            rescorings.fail(connection, rescoring_id, owner=owner, failure=failure, now=to_us(now))
            return None
    return rescoring_id if claimed else None


def put_off(store: Store, rescoring_id: int, *, owner: str, error: Exception, now: datetime) -> None:
    """Let go of a re-scoring that raised, to be tried again after a pause; after `MOST_ATTEMPTS` it has failed."""
    with store.write() as connection:
        row = rescorings.find(connection, rescoring_id)
        if row is None or row.claimed_by != owner:
            return
        if row.attempts >= MOST_ATTEMPTS:
            failure = f"an error of Coalmine's own in {MOST_ATTEMPTS} attempts ({type(error).__name__}, see the log)"
            rescorings.fail(connection, rescoring_id, owner=owner, failure=failure, now=to_us(now))
        else:
            pause = _FIRST_PAUSE * 2 ** max(0, row.attempts - 1)
            rescorings.put_off(connection, rescoring_id, owner=owner, until=to_us(now + pause))


def retry(store: Store, rescoring_id: int) -> None:
    """Let a re-scoring that has failed go on where it stopped. Raises NotFoundError and ConflictError."""
    with store.write() as connection:
        row = rescorings.find(connection, rescoring_id)
        if row is None:
            raise NotFoundError(f"there is no re-scoring '{rescoring_id}'")
        if row.failure is None:
            raise ConflictError(
                f"re-scoring '{rescoring_id}' has not failed; only one that has can be retried, see its page"
            )
        rescorings.restart(connection, rescoring_id)


def carry_on(
    store: Store,
    rescoring_id: int,
    *,
    owner: str,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
    moved: Moved = lambda _done, _total: None,
    batch_rows: int = BATCH_ROWS,
) -> bool:
    """Judge the runs that are left, batch by batch; False where it was let go of: stopping, or taken over by another.

    The runs of each batch are a transaction of their own, so that whoever goes on after a crash does so where it
    stands. `moved` gets how many runs are done, and of how many.
    """
    while True:
        job = _require_rescoring(store, rescoring_id)
        if job.finished_at is not None:
            return True
        if job.measures_version == MEASURES_VERSION:
            sweep = Sweep(store, job, batch_rows=batch_rows)
            left_out = _judge_all(store, job, sweep, owner=owner, clock=clock, stopping=stopping, moved=moved)
            if left_out is None:
                return False
            note = _note(store, job, left_out)
        else:
            note = f"begun with measures version {job.measures_version} and not finished: ask for it again"
        with store.read() as connection:  # all runs, which may be thousands: not while the writer is held
            totals = rescorings.summary(connection, job.id)
        with store.write() as connection:
            if rescorings.finish(connection, job, totals, note=note, now=to_us(clock())):
                return True


def release(store: Store, *, owner: str) -> None:
    """Let go of what this one is at, so that it goes on elsewhere or later."""
    with store.write() as connection:
        rescorings.release(connection, owner)


def show(store: Store, rescoring_id: int) -> RescoringView:
    """Show a re-scoring with its progress. Raises NotFoundError."""
    job = _require_rescoring(store, rescoring_id)
    with store.read() as connection:
        return _shape(connection, job)


def list_all(store: Store, slug: str, *, before: int | None, limit: int) -> list[RescoringView]:
    """List the re-scorings of a check, newest first."""
    with store.read() as connection:
        check = find_check(connection, slug)
        row = rescorings.list_all(connection, check.id, before=before, limit=limit)
        return [_shape(connection, one) for one in row]


def _judge_all(
    store: Store,
    job: Rescoring,
    sweep: Sweep,
    *,
    owner: str,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
    moved: Moved,
) -> int | None:
    """Judge all runs that are left and give how many could not be read; None where it was let go of."""
    after, left_out = 0, 0
    while not stopping():
        with store.read() as connection:
            done = rescorings.progress(connection, job)
        moved(*done)
        with store.read() as connection:
            left = rescorings.runs_left(connection, job, after=after, limit=sweep.size)
        if not left:
            return left_out
        batch = sweep.judge(left)
        left_out += batch.left_out
        _save_scores(store, batch)
        with store.write() as connection:
            _save_runs(connection, job, batch)
            if not rescorings.renew(connection, job.id, owner=owner, lease_until=to_us(clock() + LEASE)):
                return None
        after = left[-1].id
    release(store, owner=owner)
    return None


def _save_scores(store: Store, batch: Batch) -> None:
    """Write what rankings scored, less what has been pruned meanwhile: true whatever becomes of the re-scoring.

    In blocks, since one run of a very large suite is enough to hold the writer of SQLite for seconds.
    """
    for layout_id, rows in batch.scores.items():
        for block in blocks(rows, _SAVED_AT_ONCE):
            with store.write() as connection:
                hold_content(connection)
                there = rescorings.rankings_there(connection, [row[0] for row in block])
                ranking_rows.save_scores(connection, layout_id, [row for row in block if row[0] in there])


def _save_runs(connection: Connection, job: Rescoring, batch: Batch) -> None:
    """Write what runs amount to, less those that have been pruned or written by another meanwhile."""
    left = rescorings.hold(connection, job.id, [run.run_id for run, _ in batch.runs])
    rescorings.save(connection, job.id, [(run, at) for run, at in batch.runs if run.run_id in left])


def _note(store: Store, job: Rescoring, left_out: int) -> str | None:
    """Say what was not judged by the judgments of now; sentences without full stop, None where all was."""
    with store.read() as connection:
        now = dict(catalog.frozen_version(connection, job.suite_version_id).members)
        versions = rescorings.suite_versions_of(connection, job.id)
        then = {member for version in versions for member in catalog.frozen_version(connection, version).members}
        gone = {canary for canary, _ in then if canary not in now}
        changed = {(canary, version) for canary, version in then if now.get(canary, version) != version}
        version_ids = {version for _, version in changed} | {now[canary] for canary, _ in changed}
        queries = catalog.queries_of(connection, version_ids)
    other = {canary for canary, version in changed if queries[version] != queries[now[canary]]}
    notes = [_kept(len(other), "asked something else then"), _kept(len(gone), "not in the suite any more")]
    if left_out:
        notes.append(f"{counted(left_out, 'run')} left out: this release cannot read how they were judged")
    return "; ".join(filter(None, notes)) or None


def _kept(count: int, why: str) -> str:
    verb = "it was" if count == 1 else "they were"
    return f"{counted(count, 'canary')} {why}: kept as {verb} judged" if count else ""


def _require_rescoring(store: Store, rescoring_id: int) -> Rescoring:
    with store.read() as connection:
        row = rescorings.find(connection, rescoring_id)
    if row is None:
        raise NotFoundError(f"there is no re-scoring '{rescoring_id}'")
    return row


def _shape(connection: Connection, row: Rescoring) -> RescoringView:
    return rescoring_shape(row, *rescorings.progress(connection, row))


class Walk:
    """Knows the ranking each canary of a check has while walking through its runs, a page of states at a time."""

    def __init__(self, store: Store, check_id: int, *, page: int) -> None:
        self._store = store
        self._page = page
        self._check_id = check_id
        self._has: dict[int, int] = {}
        self._ahead: list[BegunState] = []
        self._after: int | None = None
        """The last state read; None before the first run."""
        self._read_until = 0
        """The run up to which all states are read: else each read for more would go through those of other checks."""

    def ranking_of(self, canary_id: int) -> int | None:
        """Give the ranking a canary has at this run, or had when it was last measured."""
        return self._has.get(canary_id)

    def look_ahead(self, first: int, last: int) -> set[int]:
        """Read the states up to the run `last`, and give the rankings that will be met until then from `first` on."""
        met: set[int] = set()
        if self._after is None:
            with self._store.read() as connection:
                begun = rescorings.states_in_force(connection, self._check_id, first)
            self._has = {state.canary_id: state.ranking_id for state in begun}
            self._after = max((state.id for state in begun), default=0)
            met.update(self._has.values())
        while self._read_until < last and not (self._ahead and self._ahead[-1].first_run > last):
            with self._store.read() as connection:
                newest = run_rows.newest_ended(connection, self._check_id)
                page = rescorings.states_begun(connection, self._check_id, after=self._after, limit=self._page)
            if len(page) < self._page:
                self._read_until = newest.id if newest is not None else last
            self._after = page[-1].id if page else self._after
            self._ahead += page
        return met | {state.ranking_id for state in self._ahead if state.first_run <= last}

    def to(self, run_id: int) -> set[int]:
        """Go on to a run; gives the canaries that have had another ranking on the way."""
        passed = 0
        changed: set[int] = set()
        for state in self._ahead:
            if state.first_run > run_id:
                break
            self._has[state.canary_id] = state.ranking_id
            changed.add(state.canary_id)
            passed += 1
        del self._ahead[:passed]
        return changed
