"""Re-scoring: a judgment is corrected, and history is judged anew by it as a measures version of its own.

`carry_on` is the story. The rankings are those that were stored, so the retriever gets no request, and what was written
when the runs ended stays as it is. Judging is sweeping's.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from app.base.counts import counted
from app.base.db.engine import Connection, Store, blocks, hold_content, to_us
from app.base.errors import ConflictError, NotFoundError
from app.catalog.service.lookup import find_check
from app.catalog.service.suite_snapshots import freeze_suite
from app.catalog.store import definitions, suites
from app.records.service.score_details import rescoring_shape
from app.records.store import recording, rescored_runs, rescoring
from app.records.store.rescoring import Rescoring
from app.runs.service.rejudging import BATCH_ROWS, Batch, Sweep
from app.scoring.measures import MEASURES_VERSION
from app.scoring.views import RescoringView

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
        suite = definitions.find_definition(connection, "suite", check.body["suite"])
    if suite is None or suite.archived_at is not None:
        raise ConflictError(f"suite '{check.body['suite']}' is not in force, so there is nothing to judge by")
    suite_version_id = freeze_suite(store, suite.id, now)
    with store.write() as connection:
        return rescoring.ask(
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
        waiting = rescoring.waiting(connection, now=to_us(now), only=only)
    return None if waiting is None else _claim(store, waiting, owner=owner, now=now)


def _claim(store: Store, rescoring_id: int, *, owner: str, now: datetime, but: str | None = None) -> int | None:
    with store.write() as connection:
        until = to_us(now + LEASE)
        claimed = rescoring.claim(connection, rescoring_id, owner=owner, now=to_us(now), lease_until=until, but=but)
        row = rescoring.find(connection, rescoring_id) if claimed else None
        if row is not None and row.attempts > MOST_ATTEMPTS:
            failure = f"its worker ended in the middle of {MOST_ATTEMPTS} attempts"
            rescoring.fail(connection, rescoring_id, owner=owner, failure=failure, now=to_us(now))
            return None
    return rescoring_id if claimed else None


def put_off(store: Store, rescoring_id: int, *, owner: str, error: Exception, now: datetime) -> None:
    """Let go of a re-scoring that raised, to be tried again after a pause; after `MOST_ATTEMPTS` it has failed."""
    with store.write() as connection:
        row = rescoring.find(connection, rescoring_id)
        if row is None or row.claimed_by != owner:
            return
        if row.attempts >= MOST_ATTEMPTS:
            failure = f"an error of Coalmine's own in {MOST_ATTEMPTS} attempts ({type(error).__name__}, see the log)"
            rescoring.fail(connection, rescoring_id, owner=owner, failure=failure, now=to_us(now))
        else:
            pause = _FIRST_PAUSE * 2 ** max(0, row.attempts - 1)
            rescoring.put_off(connection, rescoring_id, owner=owner, until=to_us(now + pause))


def retry(store: Store, rescoring_id: int) -> None:
    """Let a re-scoring that has failed go on where it stopped. Raises NotFoundError and ConflictError."""
    with store.write() as connection:
        row = rescoring.find(connection, rescoring_id)
        if row is None:
            raise NotFoundError(f"there is no re-scoring '{rescoring_id}'")
        if row.failure is None:
            raise ConflictError(
                f"re-scoring '{rescoring_id}' has not failed; only one that has can be retried, see its page"
            )
        rescoring.restart(connection, rescoring_id)


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
            totals = rescored_runs.summary(connection, job.id)
        with store.write() as connection:
            if rescoring.finish(connection, job, totals, note=note, now=to_us(clock())):
                return True


def release(store: Store, *, owner: str) -> None:
    """Let go of what this one is at, so that it goes on elsewhere or later."""
    with store.write() as connection:
        rescoring.release(connection, owner)


def show(store: Store, rescoring_id: int) -> RescoringView:
    """Show a re-scoring with its progress. Raises NotFoundError."""
    job = _require_rescoring(store, rescoring_id)
    with store.read() as connection:
        return _shape(connection, job)


def list_all(store: Store, slug: str, *, before: int | None, limit: int) -> list[RescoringView]:
    """List the re-scorings of a check, newest first."""
    with store.read() as connection:
        check = find_check(connection, slug)
        row = rescoring.list_all(connection, check.id, before=before, limit=limit)
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
            done = rescoring.progress(connection, job)
        moved(*done)
        with store.read() as connection:
            left = rescoring.runs_left(connection, job, after=after, limit=sweep.size)
        if not left:
            return left_out
        batch = sweep.judge(left)
        left_out += batch.left_out
        _save_scores(store, batch)
        with store.write() as connection:
            _save_runs(connection, job, batch)
            if not rescoring.renew(connection, job.id, owner=owner, lease_until=to_us(clock() + LEASE)):
                return None
        after = left[-1].id
    release(store, owner=owner)
    return None


def _save_scores(store: Store, batch: Batch) -> None:
    """Write what rankings scored, less what has been pruned meanwhile: true whatever becomes of the re-scoring.

    In blocks, since one run of a very large suite is enough to hold the writer of SQLite for seconds.
    """
    for scores in batch.scores:
        for block in blocks(scores.rows, _SAVED_AT_ONCE):
            with store.write() as connection:
                hold_content(connection)
                there = rescored_runs.rankings_there(connection, [row[0] for row in block])
                recording.save_scores(connection, scores.layout_id, [row for row in block if row[0] in there])


def _save_runs(connection: Connection, job: Rescoring, batch: Batch) -> None:
    """Write what runs amount to, less those that have been pruned or written by another meanwhile."""
    left = rescored_runs.hold(connection, job.id, [run.run_id for run, _ in batch.runs])
    rescored_runs.save(connection, job.id, [(run, at) for run, at in batch.runs if run.run_id in left])


def _note(store: Store, job: Rescoring, left_out: int) -> str | None:
    """Say what was not judged by the judgments of now; sentences without full stop, None where all was."""
    with store.read() as connection:
        now = dict(suites.members_of(connection, job.suite_version_id))
        versions = rescored_runs.suite_versions_of(connection, job.id)
        then = {member for version in versions for member in suites.members_of(connection, version)}
        gone = {canary for canary, _ in then if canary not in now}
        changed = {(canary, version) for canary, version in then if now.get(canary, version) != version}
        version_ids = {version for _, version in changed} | {now[canary] for canary, _ in changed}
        queries = suites.queries_of(connection, version_ids)
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
        row = rescoring.find(connection, rescoring_id)
    if row is None:
        raise NotFoundError(f"there is no re-scoring '{rescoring_id}'")
    return row


def _shape(connection: Connection, row: Rescoring) -> RescoringView:
    return rescoring_shape(row, *rescoring.progress(connection, row))
