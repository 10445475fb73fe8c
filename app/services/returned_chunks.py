"""Proposed judgments whose old chunk was retrieved again: accepting them now would break what has healed."""

from collections.abc import Collection, Iterator

from app.domain.diagnosis.expected import MOSTLY
from app.domain.diagnosis.texts import held
from app.domain.model import Ranking
from app.services.plans import Plan
from app.services.reanchoring import State
from app.services.staging import Gathered
from app.store import diagnosis
from app.store.diagnosis import ReanchorRow
from app.store.engine import Connection

_PAGE = 1_000


def outdate_returned(
    connection: Connection, plan: Plan, gathered: Gathered, changed: Collection[int], *, at: int
) -> None:
    """End the proposals of a check whose chunk is back; `changed` are the positions that retrieved something else."""
    if not changed:
        return
    places = {plan.canary_ids[place]: place for place in changed}
    back: list[int] = []
    for row in _proposed(connection, plan.run.check_id):
        place = places.get(row.canary_id)
        ranking_id = None if place is None else gathered.rankings[place]
        ranking = None if ranking_id is None else plan.seen.get(ranking_id)
        if ranking is not None and _is_back(row, ranking):
            back.append(row.id)
    if back:
        diagnosis.decide_reanchors(connection, back, state=State.OUTDATED, at=at, by=None)


def _proposed(connection: Connection, check_id: int) -> Iterator[ReanchorRow]:
    """Read all proposals that wait, newest first: of a large suite there is one for nearly every canary."""
    below: int | None = None
    while rows := diagnosis.list_reanchors(connection, check_id, state=State.PROPOSED, before=below, limit=_PAGE):
        yield from rows
        if len(rows) < _PAGE:
            return
        below = rows[-1].id


def _is_back(row: ReanchorRow, ranking: Ranking) -> bool:
    """Whether a ranking holds the chunk, under its id and with its text, that a proposal would replace."""
    chunk = row.judgment.get("id")
    if chunk is None or chunk not in ranking.ids or row.texts is None:
        return False
    text = ranking.texts[ranking.ids.index(chunk)]
    return text is not None and held(row.texts["old"], text) >= MOSTLY
