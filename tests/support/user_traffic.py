"""Users of experiments: so many of each arm, of whom so many in a hundred are served well."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.experiments.documents import ExperimentDocument, Exposure, PromotionDocument, UnitOutcome
from app.experiments.service import experiments, promotions
from app.experiments.views import ExperimentDetail, PromotionView
from tests.support.world import RETRIEVER, World, canary, page

_UNITS: Final = 3_000
"""Of each arm: a difference of .1 is shown by so many."""
_LATER: Final = timedelta(minutes=10)


def _yesterday() -> datetime:
    return datetime.now(UTC) - timedelta(days=1)


@dataclass
class Users:
    """Users of a service, and the time that they live in."""

    store: Store
    at: datetime = field(default_factory=_yesterday)

    @classmethod
    def of_two_checks(cls, store: Store) -> "Users":
        """Give users of a service that has two checks over one suite, of which one is called `candidate`."""
        made = page([canary("c1")], rules=[], hooks=[])
        made["checks"].append({**made["checks"][0], "slug": "candidate"})
        World(store=store).apply(made)
        return cls(store)

    def split(self, slug: str, current: str, candidate: str, **more: Any) -> None:
        """Create an experiment of two equal arms, or begin an epoch of it."""
        arms = [{"name": name, "share": 0.5} for name in (current, candidate)]
        document = parse_document(ExperimentDocument, {"slug": slug, "arms": arms, "window": "1s", **more})
        experiments.put_experiment(self.store, document, by="ana", now=self.at)

    def serve(self, slug: str, rates: Mapping[str, int], *, units: int = _UNITS) -> ExperimentDetail:
        """Expose so many units of each arm, of whom so many in a hundred are served well; what is said of it then."""
        at = self.at
        name = f"{slug} {at:%H:%M}"
        sent = [(f"{name} {arm} {one}", arm, int(one % 100 < rates[arm])) for arm in rates for one in range(units)]
        exposures = [Exposure(unit=unit, arm=arm, at=at) for unit, arm, _ in sent]
        experiments.receive_exposures(self.store, slug, exposures, now=at)
        outcomes = [UnitOutcome(event_id=unit, unit=unit, value=value, at=at) for unit, _, value in sent]
        experiments.receive_outcomes(self.store, slug, outcomes, now=at)
        self.at = at + _LATER
        return self.load(slug)

    def load(self, slug: str) -> ExperimentDetail:
        """Return an experiment as it stands."""
        return experiments.load_experiment(self.store, slug, now=self.at)

    def promote(self, slug: str = "hybrid", *, admin: bool = True, **described: Any) -> PromotionView:
        """Define a promotion, with a key of scope admin or of less, and return it as it stands."""
        document = parse_document(PromotionDocument, {"slug": slug, **described})
        promotions.put_promotion(self.store, document, by="ana", now=self.at, may_waive_harm=admin)
        return self.promotion(slug)

    def promotion(self, slug: str = "hybrid") -> PromotionView:
        """Return a promotion as it stands."""
        return promotions.load_promotion(self.store, slug, now=self.at)


def measured_checks(store: Store) -> tuple[dict[str, Any], World, Users]:
    """Give two checks that have run, as they are described, their world, and users who come after that."""
    made = page([canary("c1")], rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    made["checks"].append({**made["checks"][0], "slug": "candidate"})
    world = World(store=store)
    world.apply(made)
    world.run()
    world.run("candidate")
    return made, world, Users(store, world.clock.advance(60))
