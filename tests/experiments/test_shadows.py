"""Shadows: overlaps by hand, sums by the hour, failures apart, what is kept of queries and for how long."""

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.base.db.engine import RECEIVED_BEFORE, Store
from app.base.db.keys import Vault
from app.base.errors import ConflictError, InvalidInputError
from app.experiments.documents import HitDocument, ShadowPair
from app.experiments.domain.experiments import compare_pair, is_asked
from app.experiments.service import shadows
from app.operation.service import retention
from app.scoring.rankings import rbo
from tests.support.api_service import Api, api

NOW = datetime(2026, 11, 26, 12, 30, tzinfo=UTC)
VAULT = Vault("a key for the tests of shadows")


def pair(a: str, b: str | None, **more: Any) -> ShadowPair:
    given = {"b_failed": True} if b is None else {"b": tuple(HitDocument(id=one) for one in b)}
    return ShadowPair(query="who pays for ada?", a=tuple(HitDocument(id=one) for one in a), **given, **more)


def receive(store: Store, pairs: Sequence[ShadowPair], *, now: datetime = NOW, **more: Any) -> Any:
    return shadows.receive_pairs(store, VAULT, "hybrid", pairs, now=now, **more)


def test_overlaps_of_two_rankings() -> None:
    found = compare_pair("abcd", "abxy")
    assert (found.jaccard, found.rbo) == (2 / 6, rbo("abcd", "abxy", 0.9))
    assert compare_pair("", "").jaccard == compare_pair("abc", "abc").rbo == 1
    assert compare_pair("abc", "").jaccard == 0
    deep = [str(number) for number in range(20)]
    assert compare_pair(deep, deep[:10]).jaccard == 1, "beyond ten nothing counts"


def test_the_share_that_is_asked_is_chosen_by_the_query() -> None:
    asked = [one for one in range(4_000) if is_asked("hybrid", f"query {one}", share=0.05)]
    assert 150 <= len(asked) <= 250
    assert asked == [one for one in range(4_000) if is_asked("hybrid", f"query {one}", share=0.05)]
    assert asked != [one for one in range(4_000) if is_asked("dense", f"query {one}", share=0.05)]
    assert is_asked("hybrid", "any", share=1)
    assert not is_asked("hybrid", "any", share=0)


def test_pairs_are_summed_up_by_the_hour_and_failures_stand_apart(store: Store) -> None:
    first = [pair("ab", "ab", a_seconds=0.1, b_seconds=0.3), pair("ab", "xy"), pair("ab", None)]
    assert receive(store, first) == {"received": 3, "compared": 3, "to_ask": 0, "notes": []}
    receive(store, [pair("", "a"), pair("a", "")], now=NOW + timedelta(hours=1))
    found = shadows.load_shadow(store, "hybrid")
    assert (found["pairs"], found["failed"], found["a_empty"], found["b_empty"]) == (5, 1, 1, 1)
    assert found["jaccard"] == found["rbo"] == pytest.approx(1 / 4)
    assert found["a_seconds"] == pytest.approx(0.1)
    assert found["b_seconds"] == pytest.approx(0.3)
    assert [(hour["at"], hour["pairs"]) for hour in found["hours"]] == [
        ("2026-11-26T12:00:00Z", 3),
        ("2026-11-26T13:00:00Z", 2),
    ]
    assert [one["slug"] for one in shadows.list_shadows(store, limit=5)] == ["hybrid"]


def test_a_candidate_that_never_answers_has_no_overlap(sqlite_store: Store) -> None:
    receive(sqlite_store, [pair("ab", None)])
    found = shadows.load_shadow(sqlite_store, "hybrid")
    assert (found["failed"], found["rbo"], found["jaccard"], found["b_seconds"]) == (1, None, None, None)


@pytest.mark.both
def test_a_request_that_is_sent_again_counts_once(store: Store) -> None:
    pairs = [pair("ab", "ab"), pair("ab", "xy")]
    first = receive(store, pairs, key="part-1")
    assert receive(store, pairs, key="part-1") == {**first, "notes": [RECEIVED_BEFORE]}
    assert shadows.load_shadow(store, "hybrid")["pairs"] == 2
    with pytest.raises(ConflictError, match="used with other queries"):
        receive(store, pairs[:1], key="part-1")
    receive(store, pairs, key="part-2")
    assert shadows.load_shadow(store, "hybrid")["pairs"] == 4
    retention.prune(store, NOW + timedelta(hours=25), days=90)
    receive(store, pairs, key="part-1", now=NOW + timedelta(hours=25))
    assert shadows.load_shadow(store, "hybrid")["pairs"] == 6, "a key is known for a day"


def test_without_a_candidate_pairs_bring_its_answers(sqlite_store: Store) -> None:
    alone = ShadowPair(query="fees", a=())
    with pytest.raises(InvalidInputError) as raised:
        receive(sqlite_store, [pair("a", "a"), alone])
    (problem,) = raised.value.problems
    assert (problem.path, "PUT /v1/shadows/hybrid with `candidate`" in problem.message) == ("pairs[1]", True)
    assert shadows.list_shadows(sqlite_store, limit=5) == [], "all or none"


@pytest.mark.both
def test_hours_are_deleted_after_a_year(store: Store) -> None:
    receive(store, [pair("ab", "ab")])
    retention.prune(store, NOW + timedelta(days=365), days=90)
    assert shadows.load_shadow(store, "hybrid")["pairs"] == 1
    retention.prune(store, NOW + timedelta(days=367), days=90)
    assert shadows.list_shadows(store, limit=5) == []


def test_neither_queries_nor_chunks_are_kept_of_a_shadow_that_nobody_defined(sqlite_store: Store) -> None:
    receive(sqlite_store, [pair("ab", "cd")], key="who pays for ada?")
    path = Path(str(sqlite_store.engine.url.database))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"ada" not in path.read_bytes()
    assert b"hybrid" in path.read_bytes()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        yield opened


def test_pairs_are_taken_in_over_rest_and_wrong_ones_are_refused_whole(service: Api) -> None:
    good = {"query": "fees", "a": ["c1", {"id": "c2", "text": "Fees \f are due"}], "b": ["c2"]}
    pairs = "/v1/shadows/hybrid/pairs"
    assert service.client.post(pairs, json=[good, {"query": "fees", "a": ["c1"], "b_failed": True}]).is_success
    for wrong in (
        [good, {"query": "fees", "a": ["c1"]}],
        [good, {**good, "b_failed": True}],
        [good, {**good, "a": ["c1", "c1"]}],
        [good, {**good, "a": ["c1", {"id": "c1"}]}],
        [good, {**good, "a": [{"id": "c1", "rank": 1}]}],
        [good, {**good, "a": [5]}],
        [good, {**good, "a_seconds": -1}],
        [good, {**good, "a": ["c"] * 201}],
        [good] * 1_001,
        good,
    ):
        assert service.client.post(pairs, json=wrong).status_code == 422
    assert service.client.post("/v1/shadows/Not%20a%20slug/pairs", json=[good]).status_code == 422
    assert (service.get("/v1/shadows/hybrid")["pairs"], service.get("/v1/shadows/hybrid")["failed"]) == (2, 1)
    once = {"idempotency-key": "part-1"}
    for _ in range(2):
        assert service.client.post(pairs, json=[good], headers=once).is_success
    assert service.client.post(pairs, json=[good] * 2, headers=once).status_code == 409
    assert service.get("/v1/shadows/hybrid")["pairs"] == 3
    assert service.client.delete("/v1/shadows/hybrid").status_code == 204
    assert service.client.get("/v1/shadows/hybrid").status_code == 404


def test_a_shadow_is_defined_and_keeps_its_candidate(service: Api) -> None:
    service.docs()
    address = "/v1/shadows/hybrid"
    unknown = service.client.put(address, json={"candidate": "nobody"})
    assert (unknown.status_code, unknown.json()["errors"][0]["path"]) == (422, "candidate")
    made = service.client.put(address, json={"candidate": "search", "share": 0.1})
    assert made.status_code == 201
    assert (made.json()["candidate"], made.json()["share"], made.json()["k"], made.json()["keep"]) == (
        "search",
        0.1,
        10,
        50,
    )
    assert service.client.put(address, json={**made.json(), "keep": 0}).status_code == 200, "an answer can be sent back"
    assert service.get(address)["keep"] == 0
    assert service.client.put(address, json={"share": 0.1}).status_code == 409
    assert service.client.put(address, json={"candidate": "search", "share": 2}).status_code == 422
    assert [one["slug"] for one in service.get("/v1/shadows")["items"]] == ["hybrid"]
    assert service.client.delete(address).status_code == 204
    assert service.client.get(address).status_code == 404
