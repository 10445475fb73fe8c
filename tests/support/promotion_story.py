"""The story of three strategies: hybrid wins offline on 500 queries, loses with users, and its promotion is stopped.

Everything but the retrievers and the users is the service's own. Canaries are the questions that somebody thought of;
one user in three asks an edge case, a code or a rare name, where hybrid's words bring noise to the top.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.statistics import hash_share
from app.base.values import Answer
from app.comparison.service import comparisons
from app.comparison.views import ComparisonPage
from app.experiments.documents import ExperimentDocument, Exposure, PromotionDocument, UnitOutcome
from app.experiments.domain.experiments import assign_arm
from app.experiments.domain.promotions import GateName
from app.experiments.service import experiments, promotions
from app.experiments.views import ExperimentDetail, PromotionView
from app.retrievers.domain.retrievers import ProbeQuery
from tests.support.fakes import answered, hits
from tests.support.world import RETRIEVER, World, canary, page

CANARIES: Final = 500
UNITS: Final = 12_000
SHARES: Final = (0.95, 0.05)
EDGE_CASES: Final = 0.33
RANKS: Final[Mapping[str, tuple[float, ...]]] = {
    "keyword": (0.42, 0.58, 0.68, 0.74, 0.78),
    "vector": (0.52, 0.68, 0.76, 0.82, 0.86),
    "hybrid": (0.60, 0.76, 0.84, 0.89, 0.92),
}
"""Share of canaries that each strategy answers by rank 1, 2, 3, 4, 5."""
SATISFIED: Final[Mapping[str, tuple[float, float]]] = {"vector": (0.68, 0.62), "hybrid": (0.71, 0.22)}
"""Share of users who are satisfied: with ordinary questions, with edge cases."""
NAME: Final = "hybrid-search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the service says at the end."""

    comparison: ComparisonPage
    """Vector as A, hybrid as B."""
    experiment: ExperimentDetail
    promotion: PromotionView


def tell_story(store: Store) -> Story:
    """Play the story through the services and return what they say."""
    world = World(store=store)
    world.apply(_definitions())
    for strategy in RANKS:
        world.probe.otherwise = _answers(strategy)
        world.run(strategy)
    now = world.clock()
    arms = [{"name": name, "share": share} for name, share in zip(SATISFIED, SHARES, strict=True)]
    document = parse_document(ExperimentDocument, {"slug": NAME, "arms": arms, "window": "24h"})
    experiments.put_experiment(store, document, by="ana", now=now)
    _expose(store, world)
    wish = {"slug": "hybrid", "current": "vector", "candidate": "hybrid", "experiment": NAME}
    promotions.put_promotion(store, parse_document(PromotionDocument, wish), by="ana", now=now)
    reason = "over 100 answers the judge sees little difference, and people have not confirmed it yet"
    promotions.waive_gate(store, "hybrid", GateName.JUDGE, reason=reason, by="ana", may_waive_harm=False, now=now)
    later = now + timedelta(days=30)
    return Story(
        comparison=comparisons.compare_references(store, "check:vector", "check:hybrid")[0],
        experiment=experiments.load_experiment(store, NAME, now=later),
        promotion=promotions.load_promotion(store, "hybrid", now=later),
    )


def _expose(store: Store, world: World) -> None:
    """Let users come for ten days and be satisfied or not."""
    begin = world.clock()
    for day in range(10):
        units = [f"user-{number}" for number in range(day, UNITS, 10)]
        at = begin + timedelta(days=day)
        exposures = [Exposure(unit=unit, at=_spread(at, unit)) for unit in units]
        experiments.receive_exposures(store, NAME, exposures, now=at + timedelta(days=1))
        outcomes = [
            UnitOutcome(event_id=f"thumb-{unit}", unit=unit, value=int(_is_satisfied(unit)), at=_spread(at, unit))
            for unit in units
        ]
        experiments.receive_outcomes(store, NAME, outcomes, now=at + timedelta(days=1))


def _spread(at: datetime, unit: str) -> datetime:
    return at + timedelta(hours=24 * hash_share(f"hour:{unit}"))


def _is_satisfied(unit: str) -> bool:
    strategy = list(SATISFIED)[assign_arm(NAME, 1, unit, SHARES)]
    rate = SATISFIED[strategy][hash_share(f"question:{unit}") < EDGE_CASES]
    return hash_share(f"satisfied:{unit}") < rate


def _definitions() -> dict[str, Any]:
    """Describe one suite, a retriever and a check for each strategy."""
    made = page([canary(f"question-{number:03}") for number in range(CANARIES)], k=5, rules=[], hooks=[])
    made["hooks"] = []  # one with a secret would need the key of this world to be served
    made["retrievers"] = [{**RETRIEVER, "slug": strategy} for strategy in RANKS]
    made["checks"] = [{**made["checks"][0], "slug": strategy, "retriever": strategy} for strategy in RANKS]
    return made


def _answers(strategy: str) -> Any:
    """Return what a strategy answers: what is expected at some rank, or not, mostly as the others do."""

    def answer(item: ProbeQuery) -> Answer:
        hardness = 0.8 * hash_share(item.query) + 0.2 * hash_share(f"{strategy}:{item.query}")
        rank = sum(hardness >= share for share in RANKS[strategy])
        ids = list(_noise(strategy))
        if rank < len(ids):
            ids[rank] = f"doc-{item.query}"
        return answered(hits(*ids))

    return answer


def _noise(strategy: str) -> Iterator[str]:
    return (f"{strategy}-noise-{number}" for number in range(10))
