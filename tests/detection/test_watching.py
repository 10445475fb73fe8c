"""The detector in the service: it looks at runs as they end, learns of the good ones, and keeps all of it in rows."""

import json
from collections.abc import Callable, Iterable

import pytest

from app.alerts.service import explanations, transitions
from app.base.db.engine import Store
from app.base.values import Canary, Category, Judgment, Outcome
from app.detection import store as detection
from app.detection.service import baselines
from app.operation.service import retention
from app.records.service.plans import Planner
from app.runs.service.execution import execute
from app.runs.service.finalising import EndedRun
from app.scoring.run_inputs import Panel, watched_members
from tests.conftest import DIALECTS, Databases
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import Site
from tests.support.present import present
from tests.support.watched import (
    KEYS,
    LEARNED,
    REGRESSION,
    Interrupted,
    carry_out,
    define,
    expect_retraced,
    learned_world,
    regressed,
    seen,
    until_open,
)
from tests.support.world import CHECK, World, canary, page


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world of twenty canaries in two topics, watched for regressions."""
    world = World(store=sqlite_store)
    define(world)
    return world


@pytest.fixture
def on_sqlite(databases: Databases, stores: Callable[..., Store]) -> World:
    """Give the same on SQLite alone, for what does not depend on the database and takes many runs."""
    url, clock = learned_world(databases, "sqlite")
    return World(store=stores(url), clock=clock)


@pytest.fixture(params=DIALECTS)
def learned(request: pytest.FixtureRequest, databases: Databases, stores: Callable[..., Store]) -> World:
    """Give such a world in which a baseline has just been learned."""
    url, clock = learned_world(databases, request.param)
    return World(store=stores(url), clock=clock)


@pytest.mark.parametrize("lost", [0, 3])
def test_a_first_run_says_how_many_canaries_are_without_an_expected_chunk(world: World, lost: int) -> None:
    (run,) = carry_out(world, 1, KEYS[:lost])
    found = seen(world)[run.id]
    failing = (
        f"{lost} of 20 questions do not find their document; " if lost else "all 20 questions find their document; "
    )
    assert found.body["reason"].startswith(failing)
    assert not found.open


def test_a_fault_opens_an_alert_that_names_who_fell_and_recovery_closes_it(learned: World) -> None:
    assert present(baselines.show(learned.store, CHECK).learned).runs == LEARNED
    broken = until_open(learned, KEYS[:3])
    (alert,) = learned.alerts()
    assert (alert["kind"], alert["rule"], alert["state"], alert["severity"]) == (
        "regression",
        "regression",
        "firing",
        "critical",
    )
    newest = seen(learned)[broken[-1].id]
    assert newest.since_run == broken[0].id
    assert f"since run {broken[0].id}" in newest.body["reason"]
    assert {one["key"] for one in newest.body["culprits"]["named"]} <= set(KEYS[:3])
    carry_out(learned, 2, KEYS[:3])
    standing = learned.run()
    assert regressed(learned, standing) == set(KEYS[:3])
    assert learned.shown(standing)["verdict"] == "degraded"
    healed = carry_out(learned, 2)
    assert [learned.shown(run)["verdict"] for run in healed] == ["healthy", "healthy"]
    assert regressed(learned, healed[-1]) == set()
    (alert,) = learned.alerts()
    assert alert["state"] == "resolved"
    assert learned.alerts()[0]["transitions"][-1]["run_id"] == str(healed[-1].id)
    assert (
        f"2 good runs in a row end the alarm, open for {len(broken) + 5} runs; the alert is resolved."
        in alert["reason"]
    )
    shown = Site(world=learned).page("/alerts/1").text
    assert "Opened by the alarm of the detector." in shown
    assert "had been good in a row" not in shown, "the reason says how many: the detector counts them"
    expect_retraced(learned)


def test_the_first_good_run_after_a_heal_calls_nobody_regressed_who_finds_its_chunk_again(on_sqlite: World) -> None:
    until_open(on_sqlite, KEYS[:6])
    carry_out(on_sqlite, 2, KEYS[:6])
    (half,) = carry_out(on_sqlite, 1, KEYS[:2])
    named = {one["key"] for one in seen(on_sqlite)[half.id].body["culprits"]["named"]}
    assert named == set(KEYS[:6])  # their accounts are still high
    assert regressed(on_sqlite, half) == set(KEYS[:2])
    (healed,) = carry_out(on_sqlite, 1)
    assert seen(on_sqlite)[healed.id].open
    assert (regressed(on_sqlite, healed), healed.degraded) == (set(), 0)
    expect_retraced(on_sqlite)


def test_runs_of_an_alarm_are_never_learned_of(on_sqlite: World) -> None:
    broken = until_open(on_sqlite, KEYS[:3]) + carry_out(on_sqlite, 2, KEYS[:3])
    healed = carry_out(on_sqlite, 3)
    learns = {run_id: row.learns for run_id, row in seen(on_sqlite).items()}
    assert not any(learns[run.id] for run in (*broken, *healed[:2]))
    assert learns[healed[2].id]
    assert all(learns[run_id] for run_id in list(learns)[:LEARNED])
    carry_out(on_sqlite, LEARNED)  # as many as it takes to learn anew
    assert int(present(baselines.show(on_sqlite.store, CHECK).learned).last_run) > healed[2].id
    with on_sqlite.store.read() as connection:
        (row,) = detection.newest_detections(connection).values()
        assert not {run.id for run in broken} & set(detection.learnable(connection, row.check_id))
    expect_retraced(on_sqlite)


@pytest.mark.both
def test_what_is_old_goes_with_its_runs_and_the_detector_goes_on(learned: World) -> None:
    carry_out(learned, LEARNED)  # as many as it takes to learn anew
    assert learned.count("baselines", "detections") == {"baselines": 2, "detections": 2 * LEARNED}
    learned.clock.advance(40 * 86_400)
    retention.prune(learned.store, learned.clock(), days=30)
    assert learned.count("baselines", "detections", "runs") == {"baselines": 1, "detections": 1, "runs": 1}
    (run,) = carry_out(learned, 1)
    assert seen(learned)[run.id].evidence is not None
    until_open(learned, KEYS[:3])


def test_a_run_during_which_another_alert_stands_is_not_learned_of(world: World) -> None:
    define(world, rules=[{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}}])
    carry_out(world, 3)
    carry_out(world, 3, KEYS[:4])
    carry_out(world, 3)
    rows = list(seen(world).values())
    assert [row.learns for row in rows] == [True, True, True, True, False, False, False, True, True]
    expect_retraced(world)


def test_what_cannot_be_compared_does_not_keep_a_baseline_from_being_learned(on_sqlite: World) -> None:
    drop = {"kind": "drop", "measure": "coverage", "critical": {"by": 0.1}, "open": {"bad": 1, "of": 1}}
    define(on_sqlite, rules=[drop])
    broken = carry_out(on_sqlite, 2, KEYS[:12])
    told = seen(on_sqlite)[broken[-1].id].body["drops"]["drop-coverage"]
    assert (told["before"], told["now"], told["pairs"]) == pytest.approx((1.0, 0.4, 20))
    assert [alert["kind"] for alert in on_sqlite.alerts()] == ["drop"]
    define(on_sqlite, rules=[drop], k=3)  # nothing to compare with any more, though its alert stands
    last = carry_out(on_sqlite, LEARNED, KEYS[:12])
    assert present(baselines.show(on_sqlite.store, CHECK).learned).first_run == str(last[0].id)
    carry_out(on_sqlite, 2, KEYS[:12])
    assert [alert["state"] for alert in on_sqlite.alerts()] == ["resolved"]


def test_an_unknown_run_is_no_observation(world: World) -> None:
    carry_out(world, 3)
    world.probe.all_fail()
    unknown = world.run()
    world.probe.all_answer()
    known = world.run()
    assert unknown.id not in seen(world)
    assert known.id in seen(world)
    world.probe.answers = {key: failed(Outcome.TIMEOUT) for key in KEYS[:2]}
    partly = world.run()
    assert (seen(world)[partly.id].lost, seen(world)[partly.id].learns) == (0, True)
    expect_retraced(world)


def test_an_alarm_says_when_the_index_version_changed(on_sqlite: World) -> None:
    def answers(version: str, missing: Iterable[str] = ()) -> None:
        found = {key: hits("noise") if key in missing else hits(f"doc-{key}") for key in KEYS}
        on_sqlite.probe.answers = {key: answered(hit, index_version=version) for key, hit in found.items()}

    answers("v41")
    on_sqlite.run()
    answers("v42", KEYS[:6])
    run = on_sqlite.run()
    while not seen(on_sqlite)[run.id].open:
        run = on_sqlite.run()
    row = seen(on_sqlite)[run.id]
    assert f"since run {row.since_run}, when index version v41 -> v42" in row.body["reason"]
    assert "v41 -> v42" in on_sqlite.alerts()[0]["reason"]


@pytest.mark.both
def test_a_changed_canary_is_a_new_one_and_the_others_go_on(learned: World) -> None:
    changed = [canary(key, tags=["billing" if place < 10 else "legal"]) for place, key in enumerate(KEYS)]
    changed[0] = canary(KEYS[0], min_relevance_score=0.4)
    changed[1]["query"] = "another"
    learned.apply(page(changed, rules=[REGRESSION]))
    learned.probe.answers = {"another": answered(hits("noise"))}
    run = learned.run()
    assert seen(learned)[run.id].body["unknown"] == 1, "who asks and expects the same goes on, with other limits too"
    assert seen(learned)[run.id].lost == 1
    assert not seen(learned)[run.id].open
    broken: list[EndedRun] = []
    while not broken or not seen(learned)[broken[-1].id].open:
        learned.probe.answers = {key: answered(hits("noise")) for key in ("another", *KEYS[2:5])}
        broken.append(learned.run())
        assert len(broken) < 7
    assert {one["key"] for one in seen(learned)[broken[-1].id].body["culprits"]["named"]} <= set(KEYS[2:5])
    expect_retraced(learned)


LABELS = [
    {"tags": ["x"]},
    {"segment": "edge"},
    {"category": "procedural"},
    {"expected_answer": "yes"},
    {"min_relevance_score": 0.2, "max_latency": "9s"},
]


@pytest.mark.parametrize("more", LABELS)
def test_labels_and_limits_of_canaries_are_no_new_beginning(on_sqlite: World, more: dict[str, object]) -> None:
    on_sqlite.apply(page([canary(key, **more) for key in KEYS], rules=[REGRESSION]))
    (run,) = carry_out(on_sqlite, 1)
    assert "unknown" not in seen(on_sqlite)[run.id].body
    broken = until_open(on_sqlite, KEYS[:3], at_most=3)
    assert regressed(on_sqlite, broken[-1]) == set(KEYS[:3])
    expect_retraced(on_sqlite)


def test_a_baseline_is_learned_of_runs_from_before_a_label_changed(world: World) -> None:
    carry_out(world, LEARNED - 5)
    sourced = [canary(key, expected_chunks=[{"id": f"doc-{key}", "source": "task:z"}], tags=["x"]) for key in KEYS]
    world.apply(page(sourced, rules=[REGRESSION]))
    carry_out(world, 5)
    assert present(baselines.show(world.store, CHECK).learned).runs == LEARNED
    (run,) = carry_out(world, 1)
    assert "unknown" not in seen(world)[run.id].body
    until_open(world, KEYS[:3], at_most=3)
    expect_retraced(world)


@pytest.mark.parametrize(("missing", "severity", "bound"), [(18, "critical", "half"), (6, "warning", "80 %")])
def test_where_most_canaries_expect_something_else_large_losses_are_guarded_again(
    on_sqlite: World, missing: int, severity: str, bound: str
) -> None:
    others = [canary(key, expected_chunks=[{"id": f"doc-{key}", "grade": 3}]) for key in KEYS]
    on_sqlite.apply(page(others, rules=[REGRESSION]))
    first, *_ = carry_out(on_sqlite, 3)
    said = explanations.explain_rules(on_sqlite.store, CHECK, now=on_sqlite.clock())
    assert "the detector watches" not in json.dumps(said)
    reason = seen(on_sqlite)[first.id].body["reason"]
    assert reason.endswith(
        "; 20 of 20 canaries are unknown to the baseline (new, changed, restless or measured seldom) and watched less "
        "closely"
    )
    carry_out(on_sqlite, 2, KEYS[:missing])
    (alert,) = on_sqlite.alerts(state="firing")
    assert (alert["rule"], alert["severity"]) == ("guard", severity)
    assert f"is below {bound} of the first run's 1.000 (run {first.id}); half of the canaries or" in alert["reason"]
    shown = Site(world=on_sqlite).page(f"/checks/{CHECK}").text
    assert (
        "Protected now: alerts when coverage falls below 80 % of the first run's in 2 of 3 runs. 20 canaries" in shown
    )
    assert "20 canaries are unknown to the baseline (new, changed, restless or measured seldom): smaller" in shown


def _retired_reason(world: World) -> str:
    (alert,) = [one for one in world.alerts() if one["kind"] == "regression"]
    assert alert["state"] == "resolved"
    return str(alert["transitions"][-1]["reason"])


def test_an_alert_ends_when_every_canary_that_it_names_is_retired(on_sqlite: World) -> None:
    until_open(on_sqlite, KEYS[:3])
    on_sqlite.apply(page([canary(key) for key in KEYS[1:]], rules=[REGRESSION]))
    carry_out(on_sqlite, 1, KEYS[1:3])
    assert [one["state"] for one in on_sqlite.alerts()] == ["firing"], "two that it names are left"
    on_sqlite.apply(page([canary(key) for key in KEYS[3:]], rules=[REGRESSION]))
    carry_out(on_sqlite, 1)
    assert _retired_reason(on_sqlite) == "canaries_retired: its canaries are no longer in the suite."
    carry_out(on_sqlite, 3)
    assert len(on_sqlite.alerts()) == 1


def test_an_alert_goes_on_while_others_fail_than_those_it_names(on_sqlite: World) -> None:
    until_open(on_sqlite, KEYS[:3])
    on_sqlite.apply(page([canary(key) for key in KEYS[3:]], rules=[REGRESSION]))
    carry_out(on_sqlite, 2, KEYS[3:12])
    assert [one["state"] for one in on_sqlite.alerts()] == ["firing"]


def test_an_alert_ends_when_the_check_has_another_suite(on_sqlite: World) -> None:
    until_open(on_sqlite, KEYS[:3])
    on_sqlite.apply(page([canary(key) for key in KEYS], suite="second", rules=[REGRESSION]))
    carry_out(on_sqlite, 1, KEYS[:3])
    assert _retired_reason(on_sqlite) == "suite_changed: the check has another suite since."
    carry_out(on_sqlite, LEARNED)
    assert present(baselines.show(on_sqlite.store, CHECK).learned).runs == LEARNED


def test_with_another_k_everything_begins_anew(on_sqlite: World) -> None:
    carry_out(on_sqlite, 2)
    define(on_sqlite, k=3)
    (run,) = carry_out(on_sqlite, 1)
    row = seen(on_sqlite)[run.id]
    assert (row.evidence, row.baseline_id) == (None, None)
    assert "1 of 20 identical runs" in row.body["warming"]
    carry_out(on_sqlite, LEARNED - 1)
    assert present(baselines.show(on_sqlite.store, CHECK).learned).first_run == str(run.id)
    expect_retraced(on_sqlite)


def test_with_another_k_an_alert_that_stands_is_neither_resolved_nor_learned(on_sqlite: World) -> None:
    until_open(on_sqlite, KEYS[:3])
    define(on_sqlite, k=4)
    runs = carry_out(on_sqlite, LEARNED + 3, KEYS[:3])
    assert [alert["state"] for alert in on_sqlite.alerts()] == ["firing"]
    assert not any(seen(on_sqlite)[run.id].learns for run in runs)
    why = f"measured otherwise since run {runs[0].id} (k 5 -> 4)"
    note = present(present(baselines.show(on_sqlite.store, CHECK).warm_up).note)
    assert note.startswith(f"the baseline is frozen while alert regression is open; {why}; no baseline yet")
    carry_out(on_sqlite, 3)  # what was lost is back
    (rule,) = explanations.explain_rules(on_sqlite.store, CHECK, now=on_sqlite.clock())["rules"][:1]
    assert present(rule["to_close"]).startswith(f"It does not resolve by itself: {why}, so a regression cannot be")
    page = Site(world=on_sqlite).page(f"/checks/{CHECK}").text
    assert "1 alert is still open. It does not resolve by itself: accept the present as normal once it is." in page
    expect_retraced(on_sqlite)
    transitions.accept_baseline(on_sqlite.store, CHECK, by="ops", note=None, now=on_sqlite.clock.advance(1))
    carry_out(on_sqlite, LEARNED, KEYS[:3])
    assert [alert["state"] for alert in on_sqlite.alerts()] == ["resolved"]
    assert present(baselines.show(on_sqlite.store, CHECK).learned).runs == LEARNED


def test_with_another_k_and_nothing_open_there_is_nothing_to_be_over(on_sqlite: World) -> None:
    define(on_sqlite, k=4)
    (run,) = carry_out(on_sqlite, 1)
    (rule,) = explanations.explain_rules(on_sqlite.store, CHECK, now=on_sqlite.clock())["rules"][:1]
    why = f"measured otherwise since run {run.id} (k 5 -> 4)"
    told = f"{why}, so a regression cannot be judged before a baseline is learned; nothing is open."
    assert present(rule["reason"]).casefold() == told.casefold()


def test_an_alarm_of_the_warm_up_that_ends_resolves_its_alert(on_sqlite: World) -> None:
    define(on_sqlite, k=4)
    carry_out(on_sqlite, 11)
    until_open(on_sqlite, KEYS[:1])
    assert [alert["state"] for alert in on_sqlite.alerts()] == ["firing"]
    carry_out(on_sqlite, 2)
    assert [alert["state"] for alert in on_sqlite.alerts()] == ["resolved"]


def test_a_process_that_remembers_comes_to_the_same_as_one_that_does_not(
    on_sqlite: World, databases: Databases, stores: Callable[..., Store]
) -> None:
    url, clock = learned_world(databases, on_sqlite.store.dialect)
    other = World(store=stores(url), clock=clock)
    planner = Planner(other.store, other.vault)

    def again(missing: Iterable[str]) -> None:
        other.probe.answers = {key: answered(hits("noise", "more-noise")) for key in missing}
        other.clock.advance(60)
        other.wish()
        claimed = other.claim()
        assert claimed is not None
        execute(planner, other.probe, claimed, owner="worker", clock=other.clock, stopping=lambda: False)

    for missing in ((),) * 2 + (KEYS[:2],) * 4 + ((),) * 3:
        carry_out(on_sqlite, 1, missing)
        again(missing)
    assert seen(on_sqlite) == seen(other)
    assert any(row.open for row in seen(other).values())


@pytest.mark.databases
def test_a_baseline_chosen_while_a_run_ends_is_heeded_by_that_run(learned: World) -> None:
    before = seen(learned)
    looks: list[int] = []
    learned.clock = Interrupted(now=learned.clock.now, act=looks.append)
    learned.run()
    last = looks[-1]  # that of the end

    def accept(look: int) -> None:
        if look == last:
            transitions.accept_baseline(learned.store, CHECK, by="somebody", note=None, now=learned.clock.now)

    learned.clock = Interrupted(now=learned.clock.now, act=accept)
    run = learned.run()
    row = seen(learned)[run.id]
    assert len(seen(learned)) == len(before) + 2
    assert (row.baseline_id, row.evidence) == (None, None)
    assert "1 of 20 identical runs" in row.body["warming"]
    expect_retraced(learned)


def test_a_check_without_the_rule_is_watched_all_the_same_but_nobody_is_called(on_sqlite: World) -> None:
    define(on_sqlite, rules=[{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.1}}])
    broken = until_open(on_sqlite, KEYS[:3])
    assert on_sqlite.alerts() == []
    assert regressed(on_sqlite, broken[-1]) <= set(KEYS[:3])
    expect_retraced(on_sqlite)


def test_a_suite_that_expects_nothing_has_no_detector(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([{"key": "moon", "query": "moon", "category": "negative"}], rules=[REGRESSION]))
    world.run()
    with sqlite_store.read() as connection:
        assert detection.newest_detections(connection) == {}


def test_documents_are_groups_as_categories_and_tags_are() -> None:
    panel = Panel(
        [
            Canary(key="a", query="a", judgments=(Judgment(document="handbook"),), tags=("eu",)),
            Canary(key="none", query="n", category=Category.NEGATIVE, tags=("eu",)),
            Canary(
                key="b", query="b", judgments=(Judgment(id="1", document="handbook"), Judgment(id="2")), tags=("eu",)
            ),
        ]
    )
    members = watched_members(panel, [11, 12, 13])
    assert members.keys == (11, 13)
    groups = {name: places.tolist() for name, places in members.groups.items()}
    assert groups == {"category:simple_factual": [0, 1], "tag:eu": [0, 1], "document:handbook": [0, 1]}
