"""For pages: an experiment with a winner, a promotion that reads it, and a shadow whose pairs are compared."""

from datetime import datetime, timedelta

from app.annotation.documents import TaskDocument
from app.annotation.service import annotations, tasks
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.experiments.documents import (
    ExperimentDocument,
    Exposure,
    HitDocument,
    PromotionDocument,
    ShadowDocument,
    ShadowPair,
    UnitOutcome,
)
from app.experiments.domain.experiments import assign_arm
from app.experiments.service import experiments, promotions, shadows
from tests.support.world import World

_ARMS = [{"name": "vector", "share": 0.5}, {"name": "hybrid", "share": 0.5}]


def make_experiment(store: Store, current: str, candidate: str, *, now: datetime) -> None:
    """Make the experiment `search`, of the two days before `now`, and the promotion `hybrid` of a check."""
    begin = now - timedelta(days=2)
    document = parse_document(ExperimentDocument, {"slug": "search", "arms": _ARMS, "window": "1h"})
    experiments.put_experiment(store, document, by="ana", now=begin)
    for hour in range(0, 40, 10):
        at = begin + timedelta(hours=hour)
        units = [f"user-{hour}-{number}" for number in range(300)]
        experiments.receive_exposures(store, "search", [Exposure(unit=unit) for unit in units], now=at)
        outcomes = [
            UnitOutcome(
                event_id=unit, unit=unit, value=int(number % 10 < 8 - 3 * assign_arm("search", 1, unit, (0.5, 0.5)))
            )
            for number, unit in enumerate(units)
        ]
        experiments.receive_outcomes(store, "search", outcomes, now=at)
    wish = {"slug": "hybrid", "current": current, "candidate": candidate, "experiment": "search"}
    promotions.put_promotion(store, parse_document(PromotionDocument, wish), by="ana", now=now)


def make_shadow(world: World, suite: str) -> None:
    """Make the shadow `hybrid` of two hours, and the task `sides` in which people compare its pairs."""
    store, now = world.store, world.clock()
    shadows.put_shadow(store, ShadowDocument(slug="hybrid"), by="ana", now=now)
    for hour in (1, 2):
        pairs = [
            ShadowPair(
                query=f"How long is kind {number} kept?",
                a=(HitDocument(id="a", text="It is kept for 30 days."),),
                b=(
                    HitDocument(id="b", text=f"Kind {number} is kept for {hour} years."),
                    HitDocument(id="a", text="30"),
                ),
            )
            for number in range(10 * hour)
        ]
        shadows.receive_pairs(store, world.vault, "hybrid", pairs, now=now - timedelta(hours=hour))
    described = {"slug": "sides", "suite": suite, "pairs": {"shadow": "hybrid", "count": 6}, "overlap": 0}
    tasks.put_task(store, parse_document(TaskDocument, described), by="ana", now=now)
    tasks.request_pool(store, "sides", now=now)
    with store.read() as connection:
        task = tasks.find_task(connection, "sides")
    shadows.draw_pairs(store, task.id, now=now)
    item = annotations.next_item(store, "sides", annotator="Ann", now=now)["item"]
    if item is not None:
        annotations.annotate(store, "sides", item["id"], annotator="Ann", grade=2, seconds=4.0, now=now)
