"""Exposures and outcomes taken in: once however often they are sent, in the epoch they belong to, never by their id."""

import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, NotFoundError
from app.experiments.documents import ExperimentDocument, ExposureBatch, OutcomeBatch
from app.experiments.domain.experiments import ExperimentState, assign_arm
from app.experiments.service import experiments
from app.experiments.tables import experiment_units
from app.experiments.tables import experiments as experiment_rows
from app.experiments.views import ExperimentDetail, ReceivedExposures, ReceivedOutcomes
from app.operation.service import retention

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def put(store: Store, *, now: datetime = NOW, shares: Sequence[float] = (0.5, 0.5), **more: Any) -> bool:
    arms = [{"name": name, "share": share} for name, share in zip(("vector", "hybrid"), shares, strict=True)]
    document = parse_document(ExperimentDocument, {"slug": "search", "arms": arms, "window": "24h", **more})
    return experiments.put_experiment(store, document, by="ana", now=now)


def expose(store: Store, *units: Any, now: datetime = NOW) -> ReceivedExposures:
    given = [unit if isinstance(unit, dict) else {"unit": unit} for unit in units]
    batch = parse_document(ExposureBatch, {"exposures": given})
    return experiments.receive_exposures(store, "search", batch.exposures, now=now)


def outcome(unit: str, value: int = 1, event: str | None = None, at: datetime | None = None) -> dict[str, Any]:
    given: dict[str, Any] = {"event_id": event or f"event of {unit}", "unit": unit, "value": value}
    return given if at is None else {**given, "at": at.isoformat()}


def tell(store: Store, *outcomes: dict[str, Any], now: datetime = NOW) -> ReceivedOutcomes:
    batch = parse_document(OutcomeBatch, {"outcomes": list(outcomes)})
    return experiments.receive_outcomes(store, "search", batch.outcomes, now=now)


def load(store: Store, *, now: datetime = NOW + 3 * DAY) -> ExperimentDetail:
    return experiments.load_experiment(store, "search", now=now)


def arm_of(unit: str, epoch: int = 1, shares: Sequence[float] = (0.5, 0.5)) -> int:
    return assign_arm("search", epoch, unit, shares)


def test_units_get_the_arm_of_the_published_function(sqlite_store: Store) -> None:
    assert put(sqlite_store)
    names = [f"user-{number}" for number in range(300)]
    none = dict.fromkeys(("other_arm", "unlike_assignment", "before_epoch"), 0)
    assert expose(sqlite_store, *names) == {"received": 300, "new": 300, **none}
    second = sum(map(arm_of, names))
    assert [arm["exposed"] for arm in load(sqlite_store)["arms"]] == [300 - second, second]


def test_exposures_of_before_a_new_epoch_are_counted_in_none(sqlite_store: Store) -> None:
    put(sqlite_store)
    early = {"unit": "early", "at": (NOW - timedelta(hours=1)).isoformat()}
    assert expose(sqlite_store, early)["new"] == 1, "what came before the first epoch may be sent"
    put(sqlite_store, now=NOW + DAY, delta=0.03)
    late = [{"unit": f"late-{one}", "at": NOW.isoformat()} for one in range(3)]
    found = expose(sqlite_store, *late, {"unit": "new", "at": (NOW + DAY).isoformat()}, now=NOW + DAY)
    assert (found["received"], found["new"], found["before_epoch"], found["unlike_assignment"]) == (4, 1, 3, 0)
    current, before = load(sqlite_store), load(sqlite_store)["epochs"][0]
    assert [sum(arm["exposed"] for arm in one["arms"]) for one in (current, before)] == [1, 1]


def test_what_is_sent_again_counts_once(store: Store) -> None:
    put(store)
    for new in (2, 0):
        assert expose(store, "u1", "u2", "u1")["new"] == new
    first = tell(store, outcome("u1"), outcome("u1"), outcome("u2", 0))
    assert (first["new"], first["repeated"]) == (2, 1)
    again = tell(store, outcome("u1"), outcome("u2", 0))
    assert (again["new"], again["repeated"]) == (0, 2)
    arms = load(store)["arms"]
    assert sum(arm["units"] for arm in arms) == 2
    assert sum(arm["successes"] for arm in arms) == 1


def test_what_is_stored_and_not_counted_yet_is_pending(sqlite_store: Store) -> None:
    put(sqlite_store, window="1m")
    begin = NOW + timedelta(seconds=20)
    expose(sqlite_store, *(f"early-{number}" for number in range(1000)), now=begin)
    last = begin + timedelta(seconds=60)
    expose(sqlite_store, *(f"late-{number}" for number in range(255)), now=last)
    soon = load(sqlite_store, now=last + timedelta(seconds=75))
    assert [sum(arm[name] for arm in soon["arms"]) for name in ("exposed", "units")] == [1255, 1000]
    assert (soon["pending"], soon["pending_until"]) == (255, "2026-11-26T12:03:00Z")
    later = load(sqlite_store, now=NOW + timedelta(minutes=3))
    assert (sum(arm["units"] for arm in later["arms"]), later["pending"], later["pending_until"]) == (1255, 0, None)


def test_the_first_value_of_a_unit_stays(sqlite_store: Store) -> None:
    put(sqlite_store)
    expose(sqlite_store, "u1")
    tell(sqlite_store, outcome("u1", 0, "first"))
    second = tell(sqlite_store, outcome("u1", 1, "second"), outcome("u1", 1, "third"))
    assert second["second_value"] == 2
    assert sum(arm["successes"] for arm in load(sqlite_store)["arms"]) == 0


@pytest.mark.both
def test_no_outcome_within_the_window_is_a_zero_and_a_late_one_changes_nothing(store: Store) -> None:
    put(store)
    expose(store, "u1", "u2")
    assert sum(arm["units"] for arm in load(store, now=NOW + DAY)["arms"]) == 0
    found = tell(
        store, outcome("u1", at=NOW + DAY), outcome("u2", at=NOW + DAY + timedelta(seconds=1)), now=NOW + 2 * DAY
    )
    assert (found["new"], found["late"]) == (1, 1)
    arms = load(store)["arms"]
    assert (sum(arm["units"] for arm in arms), sum(arm["successes"] for arm in arms)) == (2, 1)


@pytest.mark.both
def test_an_outcome_of_before_the_exposure_is_told_and_a_later_one_of_the_unit_counts(store: Store) -> None:
    put(store)
    expose(store, "u1", "u2")
    early = tell(
        store, outcome("u1", at=NOW - timedelta(seconds=61)), outcome("u2", at=NOW - timedelta(seconds=60)), now=NOW
    )
    assert (early["new"], early["early"]) == (1, 1), "clocks differ by a minute at most"
    assert sum(arm["successes"] for arm in load(store)["arms"]) == 1
    assert tell(store, outcome("u1", at=NOW + timedelta(seconds=5)), now=NOW + DAY)["new"] == 1
    assert sum(arm["successes"] for arm in load(store)["arms"]) == 2


def test_an_outcome_without_an_exposure_is_told_and_not_kept(sqlite_store: Store) -> None:
    put(sqlite_store)
    assert tell(sqlite_store, outcome("u1"))["not_exposed"] == 1
    expose(sqlite_store, "u1")
    assert tell(sqlite_store, outcome("u1"))["new"] == 1


def test_an_arm_of_a_team_s_own_flags_is_taken_and_counted_where_it_is_another(sqlite_store: Store) -> None:
    put(sqlite_store)
    names = ("vector", "hybrid")
    found = expose(
        sqlite_store, {"unit": "u1", "arm": names[1 - arm_of("u1")]}, {"unit": "u2", "arm": names[arm_of("u2")]}
    )
    assert found["unlike_assignment"] == 1
    assert expose(sqlite_store, {"unit": "u2", "arm": names[1 - arm_of("u2")]})["other_arm"] == 1
    with pytest.raises(InvalidInputError, match="none of vector, hybrid"):
        expose(sqlite_store, {"unit": "u3", "arm": "keyword"})


def test_a_change_begins_an_epoch_that_counts_alone(store: Store) -> None:
    put(store)
    expose(store, "u1", "u2")
    assert not put(store)
    assert load(store)["epoch"] == 1
    put(store, shares=(0.95, 0.05), now=NOW + timedelta(hours=1))
    after = NOW + timedelta(hours=2)
    expose(store, "u1", now=after)
    assert tell(store, outcome("u1"), outcome("u2"), now=after)["new"] == 2
    detail = load(store)
    assert (detail["epoch"], sum(arm["exposed"] for arm in detail["arms"])) == (2, 1)
    assert sum(arm["successes"] for arm in detail["arms"]) == 1
    (earlier,) = detail["epochs"]
    assert (earlier["epoch"], sum(arm["successes"] for arm in earlier["arms"])) == (1, 1)
    assert earlier["ended_at"] is not None


def test_an_outcome_before_the_newer_exposure_belongs_to_the_older_epoch(sqlite_store: Store) -> None:
    put(sqlite_store)
    expose(sqlite_store, "u1")
    put(sqlite_store, shares=(0.95, 0.05), now=NOW + timedelta(hours=1))
    expose(sqlite_store, "u1", now=NOW + timedelta(hours=3))
    tell(sqlite_store, outcome("u1", at=NOW + timedelta(hours=2)), now=NOW + timedelta(hours=4))
    detail = load(sqlite_store)
    assert sum(arm["successes"] for arm in detail["arms"]) == 0
    assert sum(arm["successes"] for arm in detail["epochs"][0]["arms"]) == 1


def test_a_winner_is_found_and_stays_whatever_comes_later(store: Store) -> None:
    put(store)
    names = [f"user-{number}" for number in range(1_200)]
    expose(store, *names)
    tell(store, *(outcome(name, int(number % 10 < (3 if arm_of(name) else 7))) for number, name in enumerate(names)))
    found = load(store)
    assert (found["state"], found["winner"]) == (ExperimentState.WINNER, "vector")
    assert found["reason"].startswith("after 1,200 units vector beats hybrid by")
    assert found["looks"][-1]["difference"] == found["difference"]
    later = [f"later-{number}" for number in range(1_200)]
    expose(store, *later, now=NOW + 2 * DAY)
    tell(store, *(outcome(name, arm_of(name)) for name in later), now=NOW + 2 * DAY)
    assert load(store, now=NOW + 9 * DAY)["winner"] == "vector"


def test_unit_ids_are_nowhere_in_the_database(sqlite_store: Store) -> None:
    put(sqlite_store)
    expose(sqlite_store, "anna@example.org")
    tell(sqlite_store, outcome("anna@example.org", event="click-of-anna"))
    path = Path(str(sqlite_store.engine.url.database))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    assert b"anna" not in content
    assert b"vector" in content  # what is kept in the clear is found so


def test_the_same_unit_has_another_hash_in_another_experiment(sqlite_store: Store) -> None:
    put(sqlite_store)
    expose(sqlite_store, "u1")
    with sqlite_store.read() as connection:
        before = connection.execute(sa.select(experiment_units.c.unit)).scalar_one()
    experiments.archive_experiment(sqlite_store, "search", now=NOW)
    put(sqlite_store)
    expose(sqlite_store, "u1")
    with sqlite_store.read() as connection:
        assert connection.execute(sa.select(experiment_units.c.unit)).scalar_one() != before


@pytest.mark.both
def test_archiving_deletes_units_and_their_key_and_frees_the_name(store: Store) -> None:
    put(store)
    expose(store, *(f"user-{number}" for number in range(2_500)))
    experiments.archive_experiment(store, "search", now=NOW)
    with store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(experiment_units)).scalar_one() == 0
        assert bytes(connection.execute(sa.select(experiment_rows.c.salt)).scalar_one()) == b""
    with pytest.raises(NotFoundError):
        load(store)
    assert put(store)


def test_units_of_an_ended_epoch_are_deleted_after_90_days_and_its_totals_stay(store: Store) -> None:
    put(store)
    expose(store, "u1", "u2")
    put(store, shares=(0.95, 0.05))
    expose(store, "u3")
    retention.prune(store, NOW + 89 * DAY, days=90)
    assert count_units(store) == 3
    retention.prune(store, NOW + 91 * DAY, days=90)
    assert count_units(store) == 1
    assert sum(arm["exposed"] for arm in load(store)["epochs"][0]["arms"]) == 2


def test_requests_at_the_same_time_count_every_unit_once(store: Store) -> None:
    put(store)
    names = [f"user-{number}" for number in range(400)]
    with ThreadPoolExecutor(4) as threads:
        given = list(threads.map(lambda part: expose(store, *names[part * 50 : part * 50 + 250]), range(4)))
        told = list(threads.map(lambda _: tell(store, *map(outcome, names)), range(3)))
    assert sum(one["new"] for one in given) == 400
    assert sum(one["new"] for one in told) == 400
    arms = load(store)["arms"]
    assert sum(arm["exposed"] for arm in arms) == sum(arm["successes"] for arm in arms) == 400


def test_a_time_in_the_future_is_now(sqlite_store: Store) -> None:
    put(sqlite_store)
    expose(sqlite_store, {"unit": "u1", "at": (NOW + 400 * DAY).isoformat()})
    assert sum(arm["units"] for arm in load(sqlite_store)["arms"]) == 1


def count_units(store: Store) -> int:
    with store.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(experiment_units)).scalar_one())
