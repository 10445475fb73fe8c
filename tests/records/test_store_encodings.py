"""What every run adds is stored packed, and reads back as it was; rows of before it was packed read as ever."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from app.alerts.service import transitions
from app.base.db.engine import Connection, Store, to_us
from app.base.values import Answer, Outcome
from app.catalog.service.references import find_check
from app.detection import store as detector_rows
from app.detection.tables import detections
from app.records.domain import probe_summary
from app.records.store import ranking_rows, run_endings, run_rows, series
from app.records.store.encodings import (
    pack_figures,
    pack_latencies,
    pack_numbers,
    pack_words,
    unpack_latencies,
    unpack_numbers,
    unpack_summary,
    unpack_vector,
    unpack_words,
    with_vector,
)
from app.records.store.series import HOUR, fill_rollups, unpack_bucket
from app.records.tables import rollups, run_probes, runs
from app.reports.service import charts
from tests.support.fakes import answered, hits
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.both

SLOW = 65_504.0
"""The longest a float16 holds, in seconds."""


@given(st.lists(st.floats(), max_size=80))
def test_numbers_read_back_bit_by_bit(numbers: list[float]) -> None:
    vector = np.array(numbers, dtype=np.float64).tobytes()
    assert unpack_numbers(pack_numbers(vector)) == vector


@given(st.lists(st.just(0.0) | st.floats(1e-4, SLOW), max_size=300))
def test_latencies_read_back_within_one_percent_and_none_as_none(seconds: list[float]) -> None:
    given_ = np.array(seconds, dtype=np.float16)
    packed = pack_latencies(given_)
    assert packed is not None
    read = unpack_latencies(b"", packed)
    assert read.dtype == np.float16
    assert ((read == 0) == (given_ == 0)).all()
    off = np.abs(read.astype(np.float64) - given_)
    assert (off <= 0.01 * given_.astype(np.float64)).all()


def test_the_shortest_and_longest_latency_read_back_together() -> None:
    shortest = float(np.finfo(np.float16).smallest_subnormal)
    given_ = np.array([shortest, 0.0, SLOW, 0.02, 0.021], dtype=np.float16)
    read = unpack_latencies(b"", pack_latencies(given_)).astype(np.float64)
    assert read.tolist() == pytest.approx(given_.astype(np.float64).tolist(), rel=0.01)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -0.01])
def test_latencies_that_are_no_time_are_not_packed(odd: float) -> None:
    assert pack_latencies(np.array([0.02, odd], dtype=np.float16)) is None


def test_a_usual_run_takes_a_byte_for_a_latency_at_most() -> None:
    seconds = np.random.default_rng(7).lognormal(-3.5, 0.4, 500).astype(np.float16)
    assert len(pack_latencies(seconds) or b"") <= len(seconds)


@given(st.lists(st.floats(0, 4_000), min_size=1), st.lists(st.floats(), max_size=20))
def test_figures_hold_the_vector_and_the_percentiles_of_a_run_without_failures(
    seconds: list[float], numbers: list[float]
) -> None:
    summary = probe_summary({"ok": len(seconds)}, seconds, [])
    vector = np.array(numbers, dtype=np.float64).tobytes()
    figures, left = pack_figures(vector, summary, len(seconds))
    assert left is None
    assert unpack_summary(figures, len(seconds)) == summary
    assert unpack_vector(None, figures) == vector
    other = np.array([0.25, np.nan]).tobytes()
    assert unpack_vector(None, with_vector(figures, other)) == other
    assert unpack_summary(with_vector(figures, other), len(seconds)) == summary


@pytest.mark.parametrize(
    ("probes", "seconds"),
    [({"ok": 2, "timeout": 1}, [0.1, 0.2]), ({"timeout": 3}, []), ({"ok": 2}, [0.1, 1e5]), ({}, [])],
)
def test_what_else_became_of_probes_is_kept_beside_the_figures(probes: dict[str, int], seconds: list[float]) -> None:
    summary = probe_summary(probes, seconds, [])
    figures, left = pack_figures(b"", summary, probes.get("ok", 0))
    assert left == summary
    assert unpack_summary(figures, probes.get("ok", 0)) is None
    assert unpack_vector(None, figures) == b""


def test_words_are_packed_and_what_is_decided_by_is_not() -> None:
    body = {"reason": "0 of 5 lost; ünïcode", "unknown": 5, "first": {"run": "1", "coverage": 1.0}, "alerted": True}
    words, left = pack_words(body)
    assert left == {"first": {"run": "1", "coverage": 1.0}, "alerted": True}
    assert {**unpack_words(words), **left} == body
    assert pack_words({}) == (None, {})
    assert unpack_words(None) == {}


def test_forms_that_were_written_once_stay_readable() -> None:
    """Bytes of the first release that packed: whoever changes a dictionary or a step finds out here."""
    assert unpack_latencies(b"", bytes.fromhex(PACES)).tolist() == pytest.approx([0.02, 0.0, 0.035], rel=0.01)
    assert np.frombuffer(unpack_vector(None, bytes.fromhex(FIGURES)) or b"").tolist() == pytest.approx(
        [1.0, 0.5, float("nan")], nan_ok=True
    )
    assert unpack_summary(bytes.fromhex(FIGURES), 3) == {
        "probes": {"ok": 3},
        "probes_by_step": {},
        "latency_seconds": {"p50": 0.02, "p95": 0.035, "max": 0.036},
    }
    assert unpack_words(bytes.fromhex(WORDS)) == {"reason": "0 of 9 canaries without an expected chunk; warming up"}


PACES = "0126036364500000"
FIGURES = "02204e0000b8880000a08c000043a51fd8c3d40100"
WORDS = "01c308234b5243a81600"


# --- a database of before ---

RULES = [
    {"kind": "threshold", "measure": "NDCG@10", "warning": {"below": 0.9}},
    {"kind": "latency", "percentile": "p95", "critical": {"above": 2}},
]
TIMEOUT = Answer(outcome=Outcome.TIMEOUT, latency_seconds=9.0)


@pytest.fixture
def world(store: Store) -> World:
    """Give a world with three canaries of two categories."""
    return _world(store, [canary("a", category="procedural"), canary("b"), canary("c")])


def _world(store: Store, canaries: Sequence[Mapping[str, Any]]) -> World:
    made = World(store=store)
    made.apply(page(canaries, rules=RULES))
    return made


@pytest.mark.databases
def test_runs_of_before_read_as_they_did_and_go_on(world: World) -> None:
    _mixed_runs(world)
    with world.store.read() as connection:
        stored = connection.execute(sa.select(runs.c.figures, runs.c.aggregates).order_by(runs.c.id)).all()
        assert all(figures is not None and aggregates is None for figures, aggregates in stored)
    before = _shown(world)
    _write_as_before(world.store)
    assert _shown(world) == before
    world.run()
    assert [len(one) for one in _shown(world)["series"].values()] == [4, 4]
    assert _shown(world)["hours"]["procedural/coverage"] == [(0.75, 0.0, 1.0, 4)]


@pytest.mark.databases
def test_an_hour_of_which_the_previous_release_wrote_a_part_is_summed_up(world: World) -> None:
    _mixed_runs(world)
    _write_as_before(world.store)
    world.run()
    assert world.count("rollups") == {"rollups": 4}  # an hour and a day of each kind
    with world.store.read() as connection:
        run = run_rows.find_run(connection, 4)
        assert run is not None
        names = ranking_rows.layout_names(connection, run.layout_id or 0)
    late = np.array([0.25 if name == "coverage" else np.nan for name in names])
    with world.store.write() as connection:
        fill_rollups(connection, run.check_id, run.layout_id or 0, run.finished_at or 0, late)
    coverage = [1.0, 2 / 3, 1.0, 1.0, 0.25]
    assert _shown(world)["hours"]["coverage"] == [(pytest.approx(sum(coverage) / 5), 0.25, 1.0, 5)]


def test_numbers_that_come_late_are_filled_in_whichever_way_a_run_is_stored(world: World) -> None:
    _mixed_runs(world)
    _write_as_before(world.store)
    world.run()
    with world.store.write() as connection:
        for run_id in (1, 4):
            names = ranking_rows.layout_names(connection, connection.scalar(sa.select(runs.c.layout_id)) or 0)
            run_endings.fill_aggregates(connection, run_id, names, {"MRR": 0.125})
    for run_id in (1, 4):
        assert world.shown(run_id)["measures"]["MRR"] == 0.125
        assert world.shown(run_id)["coverage"] == 1.0
        assert world.shown(run_id)["latency_seconds"]["max"] > 0


def test_latencies_of_a_suite_with_a_maximum_of_latency_are_kept_exact(store: Store) -> None:
    """A re-scoring compares them with it."""
    limited = _world(store, [canary("a", max_latency=0.5), canary("b")])
    limited.probe.answers = {"a": answered(hits("doc-a"), seconds=0.4995)}
    ended = limited.run()
    with limited.store.read() as connection:
        row = connection.execute(sa.select(run_probes)).one()
    assert row.paces is None
    assert limited.results(ended)["a"]["latency_seconds"] == round(float(np.float16(0.4995)), 6)


def test_a_rule_of_latency_goes_by_what_the_run_said_however_latencies_are_stored(world: World) -> None:
    world.probe.answers = {key: answered(hits(f"doc-{key}"), seconds=1.995) for key in "abc"}
    ended = world.run()
    exact = world.shown(ended)["latency_seconds"]
    assert exact["p95"] == round(float(np.float16(1.995)), 6)
    with world.store.read() as connection:
        check = find_check(connection, CHECK)
        facts = transitions.load_facts(connection, check.id, transitions._rules(check))
    assert facts.run_facts[ended.id].latencies == exact
    assert world.results(ended)["a"]["latency_seconds"] == pytest.approx(1.995, rel=0.01)


def _mixed_runs(world: World) -> None:
    """Carry out three runs: all found, one lost, one timed out."""
    world.run()
    world.probe.answers = {"a": answered(hits("noise"))}
    world.run()
    world.probe.answers = {"b": TIMEOUT}
    world.run()


def _shown(world: World) -> dict[str, Any]:
    """Read all that is shown of what is packed."""
    end = to_us(world.clock())
    start = end - 86_400_000_000
    with world.store.read() as connection:
        check = find_check(connection, CHECK)
        ids = list(connection.execute(sa.select(runs.c.id).order_by(runs.c.id)).scalars())
        recent = run_rows.recent_runs(connection, [check.id], limit=9)
        said = detector_rows.all_detections(connection, check.id)
        hours = {name: _hours(connection, check.id, name) for name in ("coverage", "procedural/coverage")}
    return {
        "runs": [world.shown(run_id) for run_id in ids],
        "results": [world.results(run_id) for run_id in ids],
        "series": {category: _points(world, category, start, end) for category in (None, "procedural")},
        "recent": recent,
        "said": said,
        "hours": hours,
    }


def _points(world: World, category: str | None, start: int, end: int) -> list[Any]:
    found = charts.series(world.store, CHECK, measure="coverage", category=category, points=300, start=start, end=end)
    return [*found["points"]]


def _hours(connection: Connection, check_id: int, name: str) -> list[tuple[float, float, float, int]]:
    hourly = series.series_of_rollups(connection, series.Source(check_id=check_id), name, 0, 2**62, seconds=HOUR)
    return [(point.mean, point.min, point.max, point.runs) for point in hourly]


def _write_as_before(store: Store) -> None:
    """Write all rows as they were before anything of them was packed."""
    with store.write() as connection:
        for row in connection.execute(sa.select(runs)).all():
            found = run_rows.find_run(connection, row.id)
            assert found is not None
            vector = unpack_vector(row.aggregates, row.figures)
            plain = {"aggregates": vector, "figures": None, "probes": json.dumps(found.probes)}
            connection.execute(sa.update(runs).where(runs.c.id == row.id).values(plain))
        for row in connection.execute(sa.select(run_probes)).all():
            latencies = unpack_latencies(row.latencies, row.paces).tobytes()
            mine = sa.update(run_probes).where(run_probes.c.run_id == row.run_id)
            connection.execute(mine.values(latencies=latencies, paces=None))
        for row in connection.execute(sa.select(detections)).all():
            body = json.dumps({**unpack_words(row.words), **json.loads(row.body or "{}")})
            mine = sa.update(detections).where(detections.c.run_id == row.run_id)
            connection.execute(mine.values(body=body, words=None))
        for row in connection.execute(sa.select(rollups)).all():
            mine = sa.update(rollups).where(rollups.c.seconds == row.seconds, rollups.c.bucket == row.bucket)
            numbers = unpack_bucket(row.seconds, row.body).tobytes()
            connection.execute(mine.values(seconds=abs(row.seconds), body=numbers))
