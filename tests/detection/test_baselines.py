"""Baselines: what a check is compared with is shown, pinned, accepted, followed; every choice stays on record."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from app.alerts.service import transitions
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.detection.domain.views import BaselineView
from app.detection.service import baselines
from app.operation.service import retention
from tests.conftest import DIALECTS, Databases
from tests.support.api_service import api, bearer
from tests.support.present import present
from tests.support.watched import KEYS, LEARNED, carry_out, define, expect_retraced, learned_world, seen, until_open
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.databases

DROP = {"kind": "drop", "measure": "coverage", "critical": {"by": 0.2}}


@pytest.fixture(params=DIALECTS)
def world(request: pytest.FixtureRequest, databases: Databases, stores: Callable[..., Store]) -> World:
    """Give a world in which a baseline has just been learned."""
    url, clock = learned_world(databases, request.param)
    return World(store=stores(url), clock=clock)


@pytest.fixture
def alone(databases: Databases, stores: Callable[..., Store]) -> World:
    """Give the same on SQLite alone, for what does not depend on the database."""
    url, clock = learned_world(databases, "sqlite")
    return World(store=stores(url), clock=clock)


def _show(world: World) -> BaselineView:
    return baselines.show(world.store, CHECK)


def _accept(world: World, note: str | None = None) -> None:
    transitions.accept_baseline(world.store, CHECK, by="ops", note=note, now=world.clock.advance(1))


def _pin(world: World, run: int | str) -> None:
    baselines.pin(world.store, CHECK, str(run), by="ops", note=None, now=world.clock.advance(1))


def _follow(world: World) -> None:
    baselines.follow(world.store, CHECK, by="ops", now=world.clock.advance(1))


def test_a_check_without_runs_is_shown_as_warming_up(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    define(world)
    shown = _show(world)
    assert (shown.mode, shown.learned, shown.detector) == ("moving", None, None)
    assert asdict(present(shown.warm_up)) == {
        "summary": "no baseline yet: 0 of 20 identical runs",
        "identical_runs": 0,
        "identical_runs_needed": 20,
        "runs": 0,
        "runs_needed": 300,
        "note": "the next run begins to learn what is normal",
    }
    with pytest.raises(ConflictError, match="no ended run"):
        _accept(world)
    carry_out(world, 3)
    warm_up = present(_show(world).warm_up)
    assert (warm_up.identical_runs, warm_up.runs) == (3, 3)
    assert "3 of 20 identical runs, or 3 of 300 runs" in present(warm_up.note)


def test_what_was_learned_is_shown(alone: World) -> None:
    shown = _show(alone)
    runs = list(seen(alone))
    assert asdict(present(shown.learned)) == {
        "runs": LEARNED,
        "deterministic": True,
        "first_run": str(runs[0]),
        "last_run": str(runs[-1]),
        "at": present(shown.learned).at,
    }
    assert shown.warm_up is None
    assert shown.choices == []
    until_open(alone, KEYS[:3])
    detector = present(_show(alone).detector)
    assert detector.open
    assert detector.threshold == pytest.approx(10_000)
    assert present(detector.evidence) >= detector.threshold
    assert set(detector.scopes) == {"canaries", "several", "groups", "check"}
    assert detector.culprits["total"] == len(detector.culprits["named"])


def test_accepting_resolves_the_alert_at_once_and_begins_anew(world: World) -> None:
    broken = until_open(world, KEYS[:3])
    assert [alert["state"] for alert in world.alerts()] == ["firing"]
    _accept(world, "new index")
    (alert,) = world.alerts()
    assert alert["state"] == "resolved"
    assert "baseline accepted" in alert["reason"]
    shown = _show(world)
    assert shown.since == shown.choices[0]
    assert (shown.since.action, shown.since.by, shown.since.note) == ("accepted", "ops", "new index")
    assert shown.since.run == str(broken[-1].id)
    assert (shown.learned, shown.detector) == (None, None)
    last = carry_out(world, LEARNED, KEYS[:3])
    assert not any(seen(world)[run.id].open for run in last)
    learned = present(_show(world).learned)
    assert (learned.first_run, learned.last_run) == (str(last[0].id), str(last[-1].id))
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]
    until_open(world, KEYS[:6])  # what is normal now is not what was accepted to be
    expect_retraced(world)


def test_a_loss_after_accepting_is_told_against_what_was_accepted(world: World) -> None:
    accepted = until_open(world, KEYS[:3])[-1]
    _accept(world)
    first, _ = carry_out(world, 2, KEYS[:8])
    assert world.shown(first)["verdict"] == "degraded"
    (alert,) = world.alerts(state="firing")
    assert alert["rule"] == "guard"
    assert alert["reason"].startswith("coverage 0.600 is below 80 % of the accepted run's 0.850 (run ")
    assert f"(run {accepted.id})" in alert["reason"]


def test_after_accepting_a_better_run_is_the_measure(world: World) -> None:
    until_open(world, KEYS[:12])
    _accept(world)
    (mended,) = carry_out(world, 1)
    carry_out(world, 2, KEYS[:5])
    (alert,) = world.alerts(state="firing")
    assert alert["reason"].startswith(f"coverage 0.750 is below 80 % of the first run's 1.000 (run {mended.id})")


def test_what_learning_waits_for_is_shown(alone: World) -> None:
    below = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}}
    define(alone, rules=[{"kind": "regression"}, below])
    assert _show(alone).waits is None
    carry_out(alone, 3, KEYS[:3])
    assert _show(alone).waits == "the baseline is frozen while alerts regression, threshold-coverage are open"
    _accept(alone)
    note = present(present(_show(alone).warm_up).note)
    assert note.startswith("the baseline is frozen while alert threshold-coverage is open; the next")
    carry_out(alone, 1, KEYS[:3])
    warm_up = present(_show(alone).warm_up)
    assert (warm_up.identical_runs, warm_up.runs) == (0, 0)
    assert warm_up.summary == "no baseline yet: 0 of 20 identical runs"
    assert present(warm_up.note).startswith(
        "the baseline is frozen while alert threshold-coverage is open; "
        "no baseline yet: 0 of 20 identical runs, or 0 of 300 runs of any kind; until then "
        "only large losses are noticed, and stable canaries that fail 3 runs in a row"
    )
    carry_out(alone, 3)
    assert _show(alone).waits is None


def test_a_pinned_run_freezes_what_is_learned(alone: World) -> None:
    world, runs = alone, list(seen(alone))
    carry_out(world, 1)
    _pin(world, runs[-1])
    shown = _show(world)
    assert (shown.mode, shown.run, shown.pending) == ("pinned", str(runs[-1]), True)
    carry_out(world, LEARNED + 5)  # enough to learn anew
    shown = _show(world)
    assert not shown.pending
    assert (present(shown.learned).first_run, present(shown.learned).last_run) == (str(runs[0]), str(runs[-1]))
    _follow(world)
    carry_out(world, 1)
    shown = _show(world)
    assert (shown.mode, shown.run) == ("moving", None)
    assert int(present(shown.learned).last_run) > runs[-1]
    assert [choice.action for choice in shown.choices] == ["moving", "pinned"]
    expect_retraced(world)


def test_drops_are_told_against_the_pinned_run(alone: World) -> None:
    define(alone, rules=[DROP])
    (low,) = carry_out(alone, 1, KEYS[:8])
    carry_out(alone, 1)
    _pin(alone, low.id)
    (run,) = carry_out(alone, 1)
    told = seen(alone)[run.id].body["drops"]["drop-coverage"]
    assert (told["before"], told["now"]) == pytest.approx((0.6, 1.0))


def test_drops_are_told_on_once_a_pinned_baseline_moves_again(alone: World) -> None:
    define(alone, rules=[DROP])
    _pin(alone, next(reversed(seen(alone))))
    carry_out(alone, 2)
    _follow(alone)
    (run,) = carry_out(alone, 1, KEYS[:8])
    told = seen(alone)[run.id].body["drops"]["drop-coverage"]
    assert (told["before"], told["now"]) == pytest.approx((1.0, 0.6))


def test_a_pinned_run_that_is_gone_is_still_what_drops_are_told_against(alone: World) -> None:
    define(alone, rules=[DROP])
    _pin(alone, next(reversed(seen(alone))))
    alone.clock.advance(40 * 86_400)
    carry_out(alone, 2, KEYS[:9])
    assert [alert["state"] for alert in alone.alerts()] == ["firing"]
    pinned = int(present(_show(alone).run))
    retention.prune(alone.store, alone.clock(), days=30)
    assert pinned not in seen(alone)
    (run,) = carry_out(alone, 1, KEYS[:9])
    told = seen(alone)[run.id].body["drops"]["drop-coverage"]
    assert (told["before"], told["now"], told["pairs"]) == pytest.approx((1.0, 0.55, 20))
    assert [alert["state"] for alert in alone.alerts()] == ["firing"]


def test_a_run_pinned_with_another_k_is_no_measure_of_drops(alone: World) -> None:
    define(alone, rules=[DROP])
    _pin(alone, next(reversed(seen(alone))))
    carry_out(alone, 1)
    define(alone, rules=[DROP], k=3)
    (run,) = carry_out(alone, 1)
    assert "judged otherwise (k 5" in seen(alone)[run.id].body["drops"]["drop-coverage"]["unknown"]


def test_too_few_runs_up_to_the_pinned_one_leave_the_detector_what_it_knows(alone: World) -> None:
    runs = list(seen(alone))
    _pin(alone, runs[3])
    carry_out(alone, 1)
    shown = _show(alone)
    assert present(shown.learned).last_run == str(runs[-1])
    assert not shown.pending
    until_open(alone, KEYS[:3])
    expect_retraced(alone)


def test_a_choice_is_written_once_however_often_it_is_said(alone: World) -> None:
    runs = list(seen(alone))
    _follow(alone)
    assert _show(alone).choices == []
    for _ in range(2):
        _pin(alone, runs[-1])
    for _ in range(2):
        _follow(alone)
    assert [choice.action for choice in _show(alone).choices] == ["moving", "pinned"]


def test_a_run_nothing_can_be_compared_with_is_refused(alone: World) -> None:
    other = {**page([canary("x")], slug="other", suite="other"), "retrievers": [], "hooks": []}
    mine = page([canary(key) for key in KEYS])
    alone.apply(mine, other)
    foreign = alone.run("other")
    alone.probe.all_fail()
    unknown = alone.run()
    alone.probe.all_answer()
    alone.clock.advance(60)
    queued = alone.wish()
    for run, why in (
        ("99999", "there is no run"),
        ("nonsense", "there is no run"),
        ("9" * 40, "there is no run"),
        (foreign.id, "is one of check 'other'"),
        (unknown.id, "is unknown"),
        (queued, "has not ended"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            _pin(alone, run)
    good = next(iter(seen(alone)))
    alone.apply(page([canary(key) for key in KEYS], k=3), other)
    with pytest.raises(InvalidInputError, match="judged with k 5, and the check has k 3"):
        _pin(alone, good)
    assert _show(alone).choices == []
    with pytest.raises(NotFoundError):
        baselines.show(alone.store, "nobody")


def test_after_a_pin_a_run_that_was_under_way_already_heeds_it(world: World) -> None:
    runs = list(seen(world))
    world.clock.advance(60)
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    world.probe.before_batch = lambda _: _pin(world, runs[-1]) if _show(world).mode == "moving" else None
    world.execute(claimed)
    shown = _show(world)
    assert (shown.mode, shown.pending) == ("pinned", False)
    assert shown.choices[0].after_run == str(runs[-1])
    expect_retraced(world)


# --- over the API --------------------------------------------------------------------------------------------


def test_who_chose_a_baseline_is_on_record_over_the_api(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs(rules=[{"kind": "regression"}])
        path = "/v1/checks/docs/baseline"
        assert service.client.put(path, json={"accept": True}).status_code == 409
        runs = [service.run() for _ in range(LEARNED + 1)]
        assert service.get(path)["learned"]["runs"] == LEARNED
        service.refresh()
        told = [line for line in service.client.get("/metrics").text.splitlines() if "detector_evidence{" in line]
        assert {line.partition("scope=")[2].partition(",")[0] for line in told} >= {
            f'"{scope}"' for scope in ("average", "canaries", "check")
        }
        who = bearer(service.key(Scope.WRITE))
        pinned = service.client.put(path, json={"run": runs[2]["id"], "note": "good"}, headers=who)
        assert pinned.status_code == 200
        assert (pinned.json()["mode"], pinned.json()["run"]) == ("pinned", runs[2]["id"])
        assert service.client.delete(path, headers=who).status_code == 204
        accepted = service.client.put(path, json={"accept": True}, headers=who).json()
        assert [(one["action"], one["by"], one["note"]) for one in accepted["choices"]] == [
            ("accepted", "a write key", None),
            ("moving", "a write key", None),
            ("pinned", "a write key", "good"),
        ]
        for body in ({}, {"run": "1", "accept": True}, {"accept": False}, {"run": 1}, {"run": "77"}, {"baseline": 1}):
            refused = service.client.put(path, json=body, headers=who)
            assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json"), body
        assert service.client.get("/v1/checks/nobody/baseline", headers=who).status_code == 404
