"""Side-by-side tasks: the most different pairs of a shadow as blind items, and what people preferred."""

from datetime import datetime
from hashlib import sha256
from typing import Final

from app.annotation.domain.consensus import hash_share, is_overlap
from app.annotation.service.results import read_grades
from app.annotation.service.tasks import document_of
from app.annotation.store import pair_items, tasks
from app.annotation.store.pair_items import PairItem
from app.annotation.store.tasks import NewItem, TaskRow
from app.answers.service.calibrating import proportion_view
from app.base.db.engine import Connection, Store, to_us
from app.experiments.domain.preferences import ComparedPair, count_preferences
from app.experiments.domain.views import ComparisonView
from app.experiments.store import shadow_pairs, shadows
from app.experiments.store.shadow_pairs import PairRow
from app.experiments.store.shadows import DefinedShadow

_HALF: Final = 0.5


def draw_pairs(store: Store, task_id: int, *, now: datetime) -> None:
    """Make the most different pairs of a shadow the items of a task, once; without pairs it can be asked for again.

    Which side is the candidate's is decided by a hash, and stands neither on the page nor in a token.
    """
    with store.write() as connection:
        task = tasks.read_task(connection, task_id, lock=True)  # archiving waits, and forgets what is drawn
        if task is None or task.archived_at is not None:
            return
        wanted = document_of(task).pairs
        if wanted is None:
            return
        shadow = shadows.find_shadow(connection, wanted.shadow)
        if shadow is not None and not tasks.count_pool(connection, task_id).items:
            found = shadow_pairs.list_pairs(connection, shadow.id, wanted.count)
            made = [_item(task, pair) for pair in found]
            pairs = {item.token: pair for item, pair in made}
            pair_items.save_pair_items(connection, task_id, pairs, [item for item, _ in made])
        tasks.finish_pool(connection, task_id, to_us(now))


def load_comparisons(connection: Connection, shadow: DefinedShadow) -> list[ComparisonView]:
    """Return the tasks of a shadow with what people preferred, the newest first; not those of one that it replaced."""
    found = []
    for task in pair_items.list_pair_tasks(connection, shadow.slug, since=shadow.created_at):
        grades = read_grades(connection, task)
        pairs = pair_items.read_pair_items(connection, task.id)
        counts = count_preferences(
            ComparedPair(grade=grades.consensus(item_id).grade, candidate_right=pair.candidate_right)
            for item_id, pair in pairs.items()
        )
        view: ComparisonView = {
            "task": task.slug,
            "state": task.state,
            "pairs": len(pairs),
            "candidate": counts.candidate,
            "current": counts.current,
            "alike": counts.alike,
            "undecided": counts.undecided,
            "share": proportion_view(counts.share),
        }
        found.append(view)
    return found


def _item(task: TaskRow, pair: PairRow) -> tuple[NewItem, PairItem]:
    document = document_of(task)
    identity = f"{task.id}:pair:{pair.id}"
    item = NewItem(
        canary_id=None,
        token=sha256(f"{document.seed}:{identity}".encode()).hexdigest()[:20],
        key=str(pair.id),
        text="",
        document=None,
        stratum=0,
        ranks={},
        chunks=(("", f"pair-{pair.id}"),),
        overlap=is_overlap(identity, share=document.overlap, seed=document.seed),
    )
    right = hash_share(f"side:{document.seed}:{identity}") < _HALF
    left, other = (pair.a, pair.b) if right else (pair.b, pair.a)
    return item, PairItem(query=pair.query, left=left, right=other, candidate_right=right)
