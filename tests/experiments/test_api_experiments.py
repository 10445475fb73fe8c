"""Experiments and promotions over REST: defined and sent back as answered, refused naming the field, waived by name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.base.db.keys import Scope
from tests.support.api_service import CHECK, Api, api, bearer

ARMS = [{"name": "vector", "share": 0.95}, {"name": "hybrid", "share": 0.05}]
EXPERIMENT: dict[str, Any] = {"arms": ARMS, "window": "1h", "delta": 0.02, "max_units": 20_000}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        yield opened


def test_an_experiment_is_made_changed_by_an_epoch_listed_and_archived(service: Api) -> None:
    made = service.client.put("/v1/experiments/search", json=EXPERIMENT)
    assert (made.status_code, made.json()["epoch"], made.json()["state"]) == (201, 1, "running")
    again = service.client.put("/v1/experiments/search", json=made.json())
    assert (again.status_code, again.json()["epoch"]) == (200, 1), "an answer can be sent back"
    changed = service.client.put("/v1/experiments/search", json={**EXPERIMENT, "max_units": 5_000})
    assert (changed.json()["epoch"], [one["epoch"] for one in changed.json()["epochs"]]) == (2, [1])
    assert [one["slug"] for one in service.get("/v1/experiments")["items"]] == ["search"]
    assert service.client.delete("/v1/experiments/search").status_code == 204
    assert service.client.get("/v1/experiments/search").status_code == 404


def test_a_wrong_experiment_is_refused_naming_the_field(service: Api) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"arms": ARMS[:1]}, "arms"),
        ({"arms": [*ARMS, ARMS[0]]}, "arms"),
        ({"arms": [ARMS[0], {"name": "hybrid", "share": 0.06}]}, "arms"),
        ({"arms": [ARMS[0], {"name": "vector", "share": 0.05}]}, "arms"),
        ({"arms": [{"name": "vector", "share": 1}, {"name": "hybrid", "share": 0}]}, "arms[0].share"),
        ({"delta": 0}, "delta"),
        ({"window": "100d"}, "window"),
        ({"max_units": 10}, "max_units"),
        ({"outcome": "revenue"}, "outcome"),
        ({"max_unit": 1_000}, "max_unit"),
    ]
    for change, path in cases:
        answer = service.client.put("/v1/experiments/search", json={**EXPERIMENT, **change})
        assert answer.status_code == 422
        assert path in {error["path"] for error in answer.json()["errors"]}


def test_exposures_and_outcomes_are_taken_in_and_hostile_ones_are_refused_whole(service: Api) -> None:
    service.put("/v1/experiments/search", EXPERIMENT)
    at = "2026-11-01T12:00:00Z"
    exposed = [{"unit": unit, "at": at} for unit in ("u1", "<script>", "'; drop table experiment_units; --")]
    assert service.client.post("/v1/experiments/search/exposures", json=exposed).json()["new"] == 3
    outcomes = [{"event_id": "e1", "unit": "u1", "value": 1, "at": at}]
    assert service.client.post("/v1/experiments/search/outcomes", json=outcomes).json()["new"] == 1
    found = service.get("/v1/experiments/search")
    assert (sum(arm["units"] for arm in found["arms"]), sum(arm["successes"] for arm in found["arms"])) == (3, 1)
    for wrong in (
        [{"event_id": "e2", "unit": "u2", "value": 2}],
        [{"event_id": "e2", "unit": "u2", "value": True}],
        [{"event_id": "e2", "unit": "", "value": 1}],
        [{"event_id": "e2", "unit": "x" * 201, "value": 1}],
        [{"event_id": "e2", "unit": "u2", "value": 1, "at": "yesterday"}],
        {"event_id": "e2", "unit": "u2", "value": 1},
        [{"event_id": "e", "unit": "u", "value": 1}] * 10_001,
    ):
        answer = service.client.post("/v1/experiments/search/outcomes", json=wrong)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["path"].startswith("outcomes")


def test_a_promotion_says_why_it_is_open_and_takes_waivers_by_name(service: Api) -> None:
    service.docs()
    service.put("/v1/checks/docs-hybrid", {**CHECK, "hooks": []})
    service.run()
    service.run("docs-hybrid")
    service.put("/v1/experiments/search", EXPERIMENT)
    made = service.client.put(
        "/v1/promotions/hybrid", json={"current": "docs", "candidate": "docs-hybrid", "experiment": "search"}
    )
    assert made.status_code == 201
    found = made.json()
    assert [(gate["gate"], gate["result"]) for gate in found["gates"]] == [
        ("offline", "inconclusive"),
        ("judge", "inconclusive"),
        ("exposure", "inconclusive"),
    ]
    assert found["gates"][0]["reason"].endswith("of at least 500: add canaries to the suite")
    assert found["gates"][1]["reason"] == (
        "no judge rates the answers of checks 'docs' and 'docs-hybrid': name one as `judge` of each check, and run it"
    )
    assert "with probability 0.8" in found["gates"][2]["reason"]
    headers = bearer(service.key(Scope.WRITE))
    waivers, why = "/v1/promotions/hybrid/waivers/", "no budget for a judge this year"
    for reason in ("x", "no budget", "aaaaaaaaaaaaaaaaaaaaaaaa"):
        refused = service.client.put(f"{waivers}judge", json={"reason": reason}, headers=headers)
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "reason")
    waived = service.client.put(f"{waivers}judge", json={"reason": why}, headers=headers)
    gate = waived.json()["gates"][1]
    assert (gate["result"], gate["evidence"]) == ("waived", "inconclusive")
    assert (gate["waiver"]["by"], gate["waiver"]["reason"]) == ("a write key", why)
    assert (gate["waiver"]["finding"], gate["waiver"]["found"]) == ("inconclusive", gate["reason"])
    assert service.client.put("/v1/promotions/hybrid", json=waived.json(), headers=headers).json() == waived.json()
    changed = {"current": "docs", "candidate": "docs-hybrid"}
    forgotten = service.client.put("/v1/promotions/hybrid", json=changed, headers=headers).json()
    assert forgotten["gates"][1]["waiver"] is None, "it was given for another experiment"
    assert service.client.delete("/v1/promotions/hybrid", headers=headers).status_code == 204


def test_a_promotion_of_a_check_to_itself_is_refused_naming_the_candidate(service: Api) -> None:
    """It would show no loss, whatever the candidate is."""
    service.docs()
    answer = service.client.put("/v1/promotions/hybrid", json={"current": "docs", "candidate": "docs"})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["path"], error["message"]) == ("candidate", "must be another check than the current one, 'docs'")
    assert service.client.get("/v1/promotions/hybrid").status_code == 404


def test_a_promotion_of_what_does_not_exist_is_refused_naming_each_field(service: Api) -> None:
    service.docs()
    answer = service.client.put(
        "/v1/promotions/hybrid",
        json={
            "current": "docs",
            "candidate": "nowhere",
            "experiment": "nothing",
            "guards": [{"measure": "faithfulness"}, {"experiment": "none"}],
        },
    )
    assert answer.status_code == 422
    paths = {error["path"] for error in answer.json()["errors"]}
    assert paths == {"candidate", "experiment", "guards[1].experiment"}
    for guard in ({}, {"measure": "faithfulness", "experiment": "none"}, {"measure": "mrr"}):
        body = {"current": "docs", "candidate": "nowhere", "guards": [guard]}
        answer = service.client.put("/v1/promotions/hybrid", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["path"][:9]) == (422, "guards[0]")
