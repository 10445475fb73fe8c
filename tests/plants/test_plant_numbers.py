"""What is exported and shown of planted documents."""

from app.reports.metrics import state_families
from app.reports.service.metrics_snapshot import read_state
from tests.plants.test_plant_alerts import plant
from tests.plants.test_planting import Planted, planted

__all__ = ["planted"]


def series(planted: Planted) -> dict[tuple[str, str], float]:
    """Give the values of the series of plants, by name and problem."""
    return {
        (sample.name, sample.labels.get("problem", "")): sample.value
        for family in state_families(read_state(planted.world.store))
        for sample in family.samples
        if "plant" in sample.name
    }


def test_a_check_without_planted_documents_has_no_series(planted: Planted) -> None:
    assert series(planted) == {}


def test_times_and_problems_are_exported(planted: Planted) -> None:
    plant(planted)
    found = series(planted)
    assert found["coalmine_plant_found_seconds", ""] == 0
    assert found["coalmine_plant_gone_seconds", ""] == 0
    assert {name[1]: value for name, value in found.items() if name[1]} == dict.fromkeys(
        ("left_behind", "not_gone", "not_found", "slow"), 0
    )
    planted.source.stopped = True
    plant(planted)
    found = series(planted)
    assert ("coalmine_plant_found_seconds", "") not in found, "what was not found took no time"
    assert found["coalmine_plant_problem", "not_found"] == 1
