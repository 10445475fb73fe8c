"""Shadows: overlaps by hand, sums by the hour, failures apart, and nothing kept of queries."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.domain.experiments.shadow import compare_pair
from app.domain.runs.rankings import rbo
from app.formats.experiments.shadow_documents import ShadowPair
from app.services.experiments import shadows
from app.services.history import retention
from app.store.engine import Store
from tests.support.api_service import Api, api

NOW = datetime(2026, 11, 26, 12, 30, tzinfo=UTC)


def pair(a: str, b: str | None, **more: Any) -> ShadowPair:
    given = {"b_failed": True} if b is None else {"b": tuple(b)}
    return ShadowPair(query="who pays for ada?", a=tuple(a), **given, **more)


def test_overlaps_of_two_rankings() -> None:
    found = compare_pair("abcd", "abxy")
    assert (found.jaccard, found.rbo) == (2 / 6, rbo("abcd", "abxy", 0.9))
    assert compare_pair("", "").jaccard == compare_pair("abc", "abc").rbo == 1
    assert compare_pair("abc", "").jaccard == 0
    deep = [str(number) for number in range(20)]
    assert compare_pair(deep, deep[:10]).jaccard == 1, "beyond ten nothing counts"


def test_pairs_are_summed_up_by_the_hour_and_failures_stand_apart(store: Store) -> None:
    first = [pair("ab", "ab", a_seconds=0.1, b_seconds=0.3), pair("ab", "xy"), pair("ab", None)]
    assert shadows.receive_pairs(store, "hybrid", first, now=NOW) == {"received": 3}
    shadows.receive_pairs(store, "hybrid", [pair("", "a"), pair("a", "")], now=NOW + timedelta(hours=1))
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


def test_a_candidate_that_never_answers_has_no_overlap(store: Store) -> None:
    shadows.receive_pairs(store, "hybrid", [pair("ab", None)], now=NOW)
    found = shadows.load_shadow(store, "hybrid")
    assert (found["failed"], found["rbo"], found["jaccard"], found["b_seconds"]) == (1, None, None, None)


def test_hours_are_deleted_after_a_year(store: Store) -> None:
    shadows.receive_pairs(store, "hybrid", [pair("ab", "ab")], now=NOW)
    retention.prune(store, NOW + timedelta(days=365), days=90)
    assert shadows.load_shadow(store, "hybrid")["pairs"] == 1
    retention.prune(store, NOW + timedelta(days=367), days=90)
    assert shadows.list_shadows(store, limit=5) == []


def test_neither_queries_nor_chunks_are_kept(sqlite_store: Store) -> None:
    shadows.receive_pairs(sqlite_store, "hybrid", [pair("ab", "cd")], now=NOW)
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
    good = {"query": "fees", "a": ["c1", "c2"], "b": ["c2"]}
    pairs = "/v1/shadows/hybrid/pairs"
    assert service.client.post(pairs, json=[good, {"query": "fees", "a": ["c1"], "b_failed": True}]).is_success
    for wrong in (
        [good, {"query": "fees", "a": ["c1"]}],
        [good, {**good, "b_failed": True}],
        [good, {**good, "a": ["c1", "c1"]}],
        [good, {**good, "a_seconds": -1}],
        [good, {**good, "a": ["c"] * 201}],
        [good] * 1_001,
        good,
    ):
        assert service.client.post(pairs, json=wrong).status_code == 422
    assert service.client.post("/v1/shadows/Not%20a%20slug/pairs", json=[good]).status_code == 422
    assert (service.get("/v1/shadows/hybrid")["pairs"], service.get("/v1/shadows/hybrid")["failed"]) == (2, 1)
    assert service.client.delete("/v1/shadows/hybrid").status_code == 204
    assert service.client.get("/v1/shadows/hybrid").status_code == 404
