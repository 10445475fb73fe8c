"""An experiment with a winner and a promotion that reads it, for pages that show them."""

from datetime import datetime, timedelta

from app.domain.experiments.assignment import assign_arm
from app.formats.experiments.experiment_documents import ExperimentDocument, Exposure, UnitOutcome
from app.formats.experiments.promotion_documents import PromotionDocument
from app.formats.validation_messages import parse_document
from app.services.experiments import experiments, intake, promotions
from app.store.engine import Store

_ARMS = [{"name": "vector", "share": 0.5}, {"name": "hybrid", "share": 0.5}]


def make_experiment(store: Store, check: str, *, now: datetime) -> None:
    """Make the experiment `search`, of the two days before `now`, and the promotion `hybrid` of a check."""
    begin = now - timedelta(days=2)
    document = parse_document(ExperimentDocument, {"slug": "search", "arms": _ARMS, "window": "1h"})
    experiments.put_experiment(store, document, by="ana", now=begin)
    for hour in range(0, 40, 10):
        at = begin + timedelta(hours=hour)
        units = [f"user-{hour}-{number}" for number in range(300)]
        intake.receive_exposures(store, "search", [Exposure(unit=unit) for unit in units], now=at)
        outcomes = [
            UnitOutcome(
                event_id=unit, unit=unit, value=int(number % 10 < 8 - 3 * assign_arm("search", 1, unit, (0.5, 0.5)))
            )
            for number, unit in enumerate(units)
        ]
        intake.receive_outcomes(store, "search", outcomes, now=at)
    wish = {"slug": "hybrid", "current": check, "candidate": check, "experiment": "search"}
    promotions.put_promotion(store, parse_document(PromotionDocument, wish), by="ana", now=now)
