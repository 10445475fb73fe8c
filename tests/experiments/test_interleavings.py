"""Interleavings: lists by the published function, clicks counted once, and the first look that ends decides."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from app.base.db.engine import Store
from app.base.errors import ConflictError, NotFoundError
from app.comparison.domain.outcomes import Side
from app.experiments.documents import Click, InterleavingDocument, ListsRequest
from app.experiments.domain.experiments import ExperimentState, Preferences, decide_preference, interleave
from app.experiments.service import experiments
from tests.support.api_service import Api, api

NOW = datetime(2026, 11, 26, 12, 30, tzinfo=UTC)
NAMES = ("vector", "hybrid")


def put(store: Store, **more: int) -> bool:
    document = InterleavingDocument(slug="search", a="vector", b="hybrid", **more)
    return experiments.put_interleaving(store, document, by="Ada", now=NOW)


def click(store: Store, *clicks: tuple[str, str, Side], now: datetime = NOW) -> None:
    sent = [Click(event_id=event, unit=unit, team=team) for event, unit, team in clicks]
    experiments.receive_clicks(store, "search", sent, now=now)


def counts(store: Store) -> tuple[int, int, int]:
    found = experiments.load_interleaving(store, "search")
    return found["prefer_a"], found["prefer_b"], found["ties"]


def test_a_decision_says_who_is_preferred_or_what_is_missing() -> None:
    few = decide_preference(Preferences(a=29, b=400), NAMES, units=429, max_units=20_000)
    assert (few.state, few.reason) == (
        ExperimentState.RUNNING,
        "each ranking needs 30 units that prefer it; 29 and 400 do",
    )
    won = decide_preference(Preferences(a=40, b=160), NAMES, units=500, max_units=20_000)
    assert (won.state, won.winner) == (ExperimentState.WINNER, "hybrid")
    assert won.reason.startswith("hybrid is preferred to vector: +0.600 (95 % interval ")
    assert decide_preference(Preferences(a=160, b=40), NAMES, units=200, max_units=20_000).winner == "vector"
    open_ = decide_preference(Preferences(a=95, b=105), NAMES, units=200, max_units=20_000)
    assert open_.state is ExperimentState.RUNNING
    ended = decide_preference(Preferences(a=95, b=105), NAMES, units=20_000, max_units=20_000)
    assert ended.state is ExperimentState.INCONCLUSIVE
    assert ended.reason.startswith("20,000 units or more came, as many as it waits for, and no preference is shown")


def test_a_unit_counts_for_what_it_clicked_more_each_event_once(store: Store) -> None:
    assert put(store)
    click(store, ("1", "ann", Side.A))
    assert counts(store) == (1, 0, 0)
    click(store, ("1", "ann", Side.A), ("2", "bob", Side.B))
    assert counts(store) == (1, 1, 0), "sent again, nothing counts twice"
    click(store, ("3", "ann", Side.B))
    assert counts(store) == (0, 1, 1)
    click(store, ("4", "ann", Side.B), ("4", "ann", Side.B))
    assert counts(store) == (0, 2, 0)
    assert not put(store), "the same document again changes nothing"
    assert counts(store) == (0, 2, 0)


@pytest.mark.both
def test_the_first_look_that_ends_decides_whatever_comes_later(store: Store) -> None:
    put(store)
    click(store, *(("1", f"unit {one}", Side.B if one % 5 else Side.A) for one in range(300)))
    won = experiments.load_interleaving(store, "search")
    assert (won["state"], won["winner"], won["decided_at"]) == ("winner", "hybrid", "2026-11-26T12:30:00Z")
    later = NOW + timedelta(hours=1)
    click(store, *(("2", f"other {one}", Side.A) for one in range(2_000)), now=later)
    still = experiments.load_interleaving(store, "search")
    assert (still["winner"], still["difference"], still["decided_at"]) == (
        "hybrid",
        won["difference"],
        won["decided_at"],
    )
    assert still["prefer_a"] == won["prefer_a"] + 2_000


@pytest.mark.both
def test_what_changes_begins_an_epoch_without_counts(store: Store) -> None:
    put(store)
    wish = ListsRequest(unit="ann", a=("1", "2", "3", "4"), b=("5", "6", "7", "8"))
    first = [experiments.merge_lists(store, "search", wish.model_copy(update={"unit": str(one)})) for one in range(20)]
    click(store, ("1", "ann", Side.A))
    assert not put(store, max_units=5_000)
    found = experiments.load_interleaving(store, "search")
    assert (found["epoch"], found["max_units"], counts(store)) == (2, 5_000, (0, 0, 0))
    again = [experiments.merge_lists(store, "search", wish.model_copy(update={"unit": str(one)})) for one in range(20)]
    assert [one["hits"] for one in first] != [one["hits"] for one in again], "all units are dealt anew"
    document = InterleavingDocument(slug="search", a="vector", b="hybrid")
    with pytest.raises(ConflictError):
        experiments.put_interleaving(store, document, by="Ada", now=NOW, only_new=True)
    experiments.delete_interleaving(store, "search")
    with pytest.raises(NotFoundError):
        experiments.load_interleaving(store, "search")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        yield opened


def test_users_who_prefer_a_ranking_decide_over_rest(service: Api) -> None:
    address = "/v1/interleavings/search"
    made = service.client.put(address, json={"a": "vector", "b": "hybrid"})
    assert made.status_code == 201
    assert service.client.put(address, json=made.json()).status_code == 200, "an answer can be sent back"
    random = np.random.default_rng(7)
    clicks = []
    a, b = ["x", "y", "z"], ["good", "x", "y"]
    for unit in range(400):
        hits = [asdict(hit) for hit in interleave("search", 1, f"user-{unit}", a, b)]
        if unit < 5:  # as clients merge that ask
            merged = service.client.post(f"{address}/lists", json={"unit": f"user-{unit}", "a": a, "b": b}).json()
            assert merged == {"epoch": 1, "hits": hits}
        clicks += [
            {"event_id": f"{unit}-{hit['id']}", "unit": f"user-{unit}", "team": hit["team"]}
            for hit in hits
            if hit["team"] is not None and random.random() < (0.7 if hit["id"] == "good" else 0.2)
        ]
    for _ in range(2):
        answer = service.client.post(f"{address}/clicks", json=clicks)
        assert answer.json()["received"] == len(clicks)
    found = service.get(address)
    assert (found["state"], found["winner"]) == ("winner", "hybrid")
    assert found["prefer_a"] + found["prefer_b"] + found["ties"] == answer.json()["units"]
    assert [one["slug"] for one in service.get("/v1/interleavings")["items"]] == ["search"]
    shown = service.client.get("/experiments").text
    assert "hybrid is preferred to vector" in shown.casefold()
    assert service.client.delete(address).status_code == 204


def test_wrong_lists_and_clicks_are_refused(service: Api) -> None:
    address = "/v1/interleavings/search"
    assert service.client.put(address, json={"a": "same", "b": "same"}).status_code == 422
    assert service.client.post(f"{address}/lists", json={"unit": "u", "a": ["x"], "b": ["y"]}).status_code == 404
    service.put(address, {"a": "vector", "b": "hybrid"})
    for wrong in ({"unit": "u", "a": ["x", "x"], "b": ["y"]}, {"unit": "u", "a": [], "b": ["y"]}, {"unit": "u"}):
        assert service.client.post(f"{address}/lists", json=wrong).status_code == 422
    good = {"event_id": "1", "unit": "u", "team": "a"}
    for bad in ([{**good, "team": "c"}], [{**good, "team": ""}], [{"unit": "u", "team": "a"}], good, [good] * 10_001):
        assert service.client.post(f"{address}/clicks", json=bad).status_code == 422
    assert service.get(address)["prefer_a"] == 0


def test_clicks_without_a_team_say_nothing_and_refuse_none_of_the_others(service: Api) -> None:
    address = "/v1/interleavings/search"
    service.put(address, {"a": "vector", "b": "hybrid"})
    merged = service.client.post(f"{address}/lists", json={"unit": "u", "a": ["x", "y", "z"], "b": ["x"]}).json()
    teams = [hit["team"] for hit in merged["hits"]]
    assert None in teams
    clicks = [{"event_id": str(place), "unit": "u", "team": team} for place, team in enumerate(teams)]
    absent = {"event_id": "absent", "unit": "only fillers"}
    answer = service.client.post(f"{address}/clicks", json=[*clicks, absent])
    assert answer.status_code == 200, answer.text
    none = teams.count(None) + 1
    assert answer.json() == {"received": len(teams) + 1, "without_team": none, "units": 1}
    credit = teams.count("b") - teams.count("a")
    found = service.get(address)
    assert (found["prefer_a"], found["prefer_b"], found["ties"]) == (credit < 0, credit > 0, credit == 0)


def test_units_that_come_are_counted_once_after_an_end_without_a_preference(sqlite_store: Store) -> None:
    put(sqlite_store, max_units=200)
    sides = (Side.A, Side.B)
    click(sqlite_store, *((f"first {one}", f"user-{one}", sides[one % 2]) for one in range(250)))
    assert experiments.load_interleaving(sqlite_store, "search")["state"] is ExperimentState.INCONCLUSIVE
    click(sqlite_store, *((f"second {one}", f"user-{one}", sides[one % 2 == 0]) for one in range(250)))
    assert counts(sqlite_store) == (0, 0, 250)
    reason = experiments.load_interleaving(sqlite_store, "search")["reason"]
    assert reason.startswith("200 units or more came, as many as it waits for, and no preference is shown: 0.000 ")
    assert "250 units" not in reason.partition(" over ")[0], "what came after the decision is no part of it"
