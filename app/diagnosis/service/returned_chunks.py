"""Outdated proposals: their old chunk was retrieved again, so accepting them would break a healed canary."""

from collections.abc import Callable, Collection, Iterator

from app.base.db.engine import Connection
from app.base.values import Judgment, Ranking
from app.diagnosis.domain.reanchoring import is_back
from app.diagnosis.domain.views import ReanchorState
from app.diagnosis.store import diagnoses
from app.diagnosis.store.diagnoses import ReanchorRow
from app.records.store import canary_states, results
from app.records.store.results import RunRow

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
    now = canary_states.rankings_at(connection, run.check_id, newest, list(canary_ids))
    rankings = results.read_rankings(connection, [ranking_id for ranking_id, _ in now.values()])
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
