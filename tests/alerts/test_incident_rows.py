"""Incidents as services write them: one fault is one page per hook and one resolve, over upgrades and replicas too."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from app.alerts import store as alerts
from app.alerts.service import evidence, notifications, shown_alerts
from app.alerts.tables import incidents as incident_table
from app.base.db.engine import Store
from app.base.db.files import migrate
from app.detection import store as detector_rows
from tests.conftest import Databases
from tests.retrievers.test_embedding_canaries import Watch, adapter
from tests.support.embedders import FakeModel
from tests.support.fakes import answered, hits
from tests.support.http_servers import peer
from tests.support.pages_service import Site
from tests.support.watched import KEYS, LEARNED, carry_out, learned_world, until_open
from tests.support.world import HOOK, RETRIEVER, World, canary, page

pytestmark = pytest.mark.databases

AT_ONCE = {"open": {"bad": 1, "of": 1}, "close": 1}
HARSH = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}, **AT_ONCE}
SOFT = {"kind": "threshold", "measure": "degraded_share", "warning": {"above": 0.1}, **AT_ONCE}
BEFORE = "2026_11_22_ended_sessions"


def _messages(world: World, hook: str = "ops") -> list[Mapping[str, Any]]:
    """Deliver what is due and give what a hook got in all."""
    world.deliver_all()
    return [json.loads(message.body) for slug, message in world.send.sent if slug == hook]


def _types(world: World, hook: str = "ops") -> list[str]:
    return [one["type"].removeprefix("alert.") for one in _messages(world, hook)]


def _rules(world: World) -> dict[str, str]:
    return {alert["rule"]: alert["state"] for alert in world.alerts()}


def _broken(store: Store, *rules: Mapping[str, Any], missing: int = 10) -> World:
    """Give a world in which the first canaries are lost and one run has ended."""
    world = World(store=store)
    world.apply(page([canary(key) for key in KEYS], rules=list(rules), remind="1h"))
    _miss(world, missing)
    return world


def _miss(world: World, count: int) -> None:
    world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:count]}
    world.run()


def test_a_swapped_embedder_that_trips_three_critical_rules_is_one_page_per_hook_and_one_resolve(
    sqlite_store: Store,
) -> None:
    model = FakeModel()
    with peer(model) as server:
        watch = Watch(world=World(store=sqlite_store, embed=adapter()), server=server, model=model)
        world = watch.world
        hooks = [HOOK, {**HOOK, "slug": "chat"}]
        described = page([canary(key) for key in KEYS], rules=[HARSH, {"kind": "regression"}], hooks=["ops", "chat"])
        described |= {"retrievers": [{**RETRIEVER, "embedding": watch.embedding()}], "hooks": hooks}
        world.apply(described)
        for _ in range(LEARNED + 1):
            world.run()
        model.model = "two"
        world.probe.answers = {key: answered(hits("noise")) for key in KEYS}
        world.run()
        assert set(_rules(world)) >= {"embedding", "regression", "threshold-coverage"}
        for hook in ("ops", "chat"):
            assert _types(world, hook) == ["opened"]
        opened = _messages(world)[0]["data"]
        assert {one["rule"] for one in opened["alerts"]} >= {"embedding", "regression", "threshold-coverage"}
        assert opened["rule"] == "embedding"  # which names the cause
        model.model = "one"
        world.probe.answers = {}
        for _ in range(8):
            world.run()
        assert set(_rules(world).values()) == {"resolved"}
        for hook in ("ops", "chat"):
            assert _types(world, hook) == ["opened", "resolved"]
        resolved = _messages(world)[-1]["data"]
        assert [opened[name] for name in ("incident_id", "alert_id", "dedupe_key")] == [
            resolved[name] for name in ("incident_id", "alert_id", "dedupe_key")
        ]
        assert resolved["dedupe_key"] == "coalmine/watch/quality"
        assert {one["state"] for one in resolved["alerts"]} == {"resolved"}


@pytest.fixture
def learned(databases: Databases, stores: Callable[..., Store]) -> World:
    """Give twenty watched canaries of which a baseline has just been learned."""
    url, clock = learned_world(databases, "sqlite")
    return World(store=stores(url), clock=clock)


def test_newly_named_culprits_update_an_incident_at_most_once_an_hour(learned: World) -> None:
    until_open(learned, KEYS[:3])
    assert _types(learned) == ["opened"]
    until_named(learned, 6)
    assert _types(learned) == ["opened", "updated"]
    update = _messages(learned)[-1]["data"]
    assert "further canar" in update["reason"]
    until_named(learned, 9)
    assert _types(learned) == ["opened", "updated"]
    change = [one for one in learned.alerts()[0]["transitions"] if one["type"] == "updated"][-1]
    assert change["suppressed"] == "recent_update"
    learned.clock.advance(3600)
    learned.tick()
    assert _types(learned) == ["opened", "updated", "updated"]


def test_a_culprit_first_named_while_an_alert_recovers_is_told_once_it_fires_again(
    learned: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_open(learned, KEYS[:3])
    named_by_detector = detector_rows.culprits_of
    monkeypatch.setattr(detector_rows, "culprits_of", lambda *asked: [*named_by_detector(*asked), KEYS[15]])
    carry_out(learned, 1)
    assert [alert["state"] for alert in learned.alerts()] == ["recovering"]
    assert _types(learned) == ["opened"]
    carry_out(learned, 1, KEYS[:3])
    assert _types(learned) == ["opened", "updated"]
    assert f"1 further canary named: {KEYS[15]}" in _messages(learned)[-1]["data"]["reason"]


def test_culprits_beyond_those_that_are_kept_are_no_news_in_every_run(
    learned: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_open(learned, KEYS[:5])
    monkeypatch.setattr(evidence, "CULPRITS", 5)
    for first in (1, 2, 3):
        monkeypatch.setattr(detector_rows, "culprits_of", lambda *_, first=first: KEYS[first : first + 5])
        carry_out(learned, 1, KEYS[:8])
    (alert,) = learned.alerts()
    assert [change["type"] for change in alert["transitions"]] == ["opened", "updated"]  # the first that named so many


def test_of_many_further_canaries_the_first_five_are_named_and_the_others_counted(
    learned: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_open(learned, KEYS[:5])
    monkeypatch.setattr(detector_rows, "culprits_of", lambda *_: KEYS[:15])
    carry_out(learned, 1, KEYS[:8])
    (alert,) = learned.alerts()
    updated = alert["transitions"][-1]
    assert updated["type"] == "updated"
    further = [key for key in KEYS[:15] if key not in KEYS[:5]]
    told, _, _ = updated["reason"].partition("; ")
    assert told == f"{len(further)} further canaries named: {', '.join(further[:5])} and {len(further) - 5} more"


def test_a_canary_edited_during_an_alarm_is_told_as_such_and_not_by_what_was_lost(learned: World) -> None:
    def define_with(*first: dict[str, Any]) -> None:
        others = [canary(key, tags=["billing" if place < 10 else "legal"]) for place, key in enumerate(KEYS)][3:]
        learned.apply(page([*first, *others], rules=[{"kind": "regression"}]))

    until_open(learned, KEYS[:3])
    define_with(canary(KEYS[1], expected_chunks=[{"id": "another"}]))
    carry_out(learned, 1, KEYS[:3])
    carry_out(learned, 2)  # what was lost is back, and nobody ever found the other chunk
    site = Site(world=learned)
    incident = site.page("/incidents/1")
    assert incident.one("h1").text == "watch: 1 of 18 questions is degraded: changed or added since run 20"
    summary = f"1 of 18 canaries ({KEYS[1]}) does not find its expected chunk: changed or added since run 20; bad since"
    assert summary in incident.text
    assert "It is unknown whether anything is lost" in incident.text
    alert = site.page("/alerts/1")
    assert "no canary of before the alarm is worse; those that were changed or added since never passed" in alert.text
    assert "most in" not in learned.alerts()[0]["reason"]
    assert "changed or added since run 20" in site.page("/checks/watch").text
    define_with(canary(KEYS[1]))
    carry_out(learned, 2)
    assert [alert["state"] for alert in learned.alerts()] == ["resolved"]


def until_named(world: World, count: int) -> None:
    """Lose so many canaries until the detector names more of them than before."""
    before = len(world.alerts()[0]["transitions"])
    for _ in range(8):
        world.probe.answers = {key: answered(hits("noise", "more-noise")) for key in KEYS[:count]}
        world.run()
        if len(world.alerts()[0]["transitions"]) > before:
            return
    raise AssertionError("nobody else is named")


def test_acknowledging_one_alert_acknowledges_its_incident_until_it_is_updated(sqlite_store: Store) -> None:
    world = _broken(sqlite_store, HARSH, SOFT)
    assert _types(world) == ["opened"]
    ids = {alert["rule"]: int(alert["id"]) for alert in world.alerts()}
    notifications.acknowledge(
        sqlite_store, ids["threshold-degraded_share"], by="ada", note=None, now=world.clock.advance(1)
    )
    assert {alert["acknowledged_by"] for alert in world.alerts()} == {"ada"}
    world.clock.advance(7200)
    world.tick()
    assert _types(world) == ["opened"]
    late = {**HARSH, "measure": "health_score", "critical": {"below": 0.99}}
    world.apply(page([canary(key) for key in KEYS], rules=[HARSH, SOFT, late], remind="1h"))
    _miss(world, 10)
    assert _types(world) == ["opened", "updated"]
    assert {alert["acknowledged_by"] for alert in world.alerts()} == {None}
    world.clock.advance(7200)
    world.tick()
    assert _types(world) == ["opened", "updated", "reminded"]


def test_what_is_told_of_an_incident_counts_from_its_first_alert_whichever_speaks(sqlite_store: Store) -> None:
    world = _broken(sqlite_store, SOFT)
    world.clock.advance(7200)
    late = {**HARSH, "measure": "health_score", "critical": {"below": 0.99}}
    world.apply(page([canary(key) for key in KEYS], rules=[SOFT, late], remind="1h"))
    _miss(world, 10)
    assert _types(world) == ["opened", "escalated"]
    world.clock.advance(3600)
    world.tick()
    reminded = _messages(world)[-1]["data"]
    assert reminded["rule"] == "threshold-health_score"
    assert "still firing after 3 h" in reminded["summary"]
    assert "Still firing after 3 hours" in reminded["reason"]


def test_a_warning_that_joins_an_acknowledged_incident_shares_the_acknowledgement(sqlite_store: Store) -> None:
    world = _broken(sqlite_store, HARSH)
    alert = int(world.alerts()[0]["id"])
    notifications.acknowledge(sqlite_store, alert, by="ada", note=None, now=world.clock.advance(1))
    world.apply(page([canary(key) for key in KEYS], rules=[HARSH, SOFT], remind="1h"))
    _miss(world, 10)
    assert {one["rule"]: one["acknowledged_by"] for one in world.alerts()} == {
        "threshold-coverage": "ada",
        "threshold-degraded_share": "ada",
    }


def test_alerts_are_listed_by_incident(sqlite_store: Store) -> None:
    world = _broken(sqlite_store, HARSH, SOFT)
    world.apply(
        page([canary(key) for key in KEYS], rules=[HARSH, SOFT, {"kind": "latency", "critical": {"above": "1ms"}}])
    )
    _miss(world, 10)
    _miss(world, 10)
    of = {alert["incident_id"] for alert in world.alerts()}
    assert len(of) == 2
    first = min(of, key=int)
    found = shown_alerts.list_alerts(sqlite_store, check=None, state=None, before=None, limit=9, incident_id=int(first))
    assert {one["rule"] for one in found} == {"threshold-coverage", "threshold-degraded_share"}


def test_of_two_replicas_that_open_an_incident_one_does(store: Store) -> None:
    _broken(store, HARSH)
    (row,) = _rows(store)
    with store.write() as connection:
        values = {name: getattr(row, name) for name in ("check_id", "incident_class", "dedupe_key", "severity")}
        assert alerts.open_incident(connection, **values, alert_id=row.alert_id, opened_at=row.opened_at) is None
        assert not alerts.end_abandoned(connection, row.check_id, row.incident_class, row.dedupe_key, at=row.opened_at)


def test_the_alert_of_the_slower_replica_enters_the_incident_of_the_faster_at_the_next_tick(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = _broken(sqlite_store, SOFT)
    assert _types(world) == ["opened"]
    (row,) = _rows(sqlite_store)
    world.apply(page([canary(key) for key in KEYS], rules=[SOFT, HARSH], remind="1h"))
    with monkeypatch.context() as unseen:  # the slower one read before the faster one committed
        unseen.setattr(alerts, "open_incidents", lambda *_, **__: [])
        _miss(world, 10)
    late = next(alert for alert in world.alerts() if alert["rule"] == "threshold-coverage")
    assert (late["state"], late["incident_id"]) == ("firing", None)
    assert _types(world) == ["opened"]
    world.tick()
    assert {alert["incident_id"] for alert in world.alerts()} == {str(row.id)}
    assert _types(world) == ["opened", "escalated"]
    assert [one.severity for one in _rows(sqlite_store)] == ["critical"]


def test_an_incident_that_an_older_release_left_behind_keeps_no_new_fault_quiet(sqlite_store: Store) -> None:
    world = _broken(sqlite_store, HARSH)
    _types(world)
    with sqlite_store.write() as connection:  # as a release ends an alert that knows no incidents
        connection.execute(sa.text("UPDATE alerts SET state = 'resolved', resolved_at = opened_at"))
    _miss(world, 10)
    assert _types(world) == ["opened", "opened"]
    assert [row.resolved_at is None for row in _rows(sqlite_store)] == [False, True]


def test_what_was_open_before_the_upgrade_ends_under_the_key_its_receivers_know(store: Store) -> None:
    world = _broken(store, HARSH, SOFT)
    assert _types(world) == ["opened"]
    old = {rule: f"coalmine/watch/{rule}" for rule in ("threshold-coverage", "threshold-degraded_share")}
    _as_before_incidents(store, old)
    migrate(store)
    first = world.alerts()[0]
    assert (first["dedupe_key"], first["incident_id"]) == (old["threshold-coverage"], first["id"])
    _miss(world, 10)  # the warning was held back: it enters what is open of its class
    assert _types(world) == ["opened"]
    assert {alert["incident_id"] for alert in world.alerts()} == {first["id"]}
    _miss(world, 0)
    assert _types(world) == ["opened", "resolved"]
    assert _messages(world)[-1]["data"]["dedupe_key"] == old["threshold-coverage"]
    _miss(world, 10)
    assert _messages(world)[-1]["data"]["dedupe_key"] == "coalmine/watch/quality"
    assert _rows(store)[-1].id > int(first["id"])


@pytest.mark.parametrize("delivered", [True, False])
def test_what_an_older_replica_announces_during_a_rolling_update_is_one_page_and_ends_under_its_key(
    store: Store, *, delivered: bool
) -> None:
    world = _broken(store, HARSH)
    if delivered:
        world.deliver_all()
    key = "coalmine/watch/threshold-coverage"
    _as_announced_without_incidents(store, key)
    if delivered:  # by the older replica
        world.clock.advance(5)
        world.tick()
    (opened,) = _messages(world)
    if not delivered:
        assert (opened["type"], opened["data"]["dedupe_key"]) == ("alert.opened", key)
    _miss(world, 0)
    assert _types(world) == ["opened", "resolved"]
    assert _messages(world)[-1]["data"]["dedupe_key"] == key
    assert [(row.dedupe_key, row.resolved_at is None) for row in _rows(store)] == [(key, False)]


NAMED_AS_A_CLASS = {**HARSH, "key": "latency"}
SLOW = {"kind": "latency", "critical": {"above": "1ms"}, **AT_ONCE}


def test_an_incident_of_before_that_is_named_as_a_class_hides_no_incident_of_that_class(sqlite_store: Store) -> None:
    world = _broken(sqlite_store, NAMED_AS_A_CLASS)
    assert _types(world) == ["opened"]
    _as_before_incidents(sqlite_store, {"latency": "coalmine/watch/latency"})
    migrate(sqlite_store)
    world.apply(page([canary(key) for key in KEYS], rules=[NAMED_AS_A_CLASS, SLOW], remind="1h"))
    _miss(world, 10)
    assert _types(world) == ["opened", "opened"]
    assert [(row.incident_class, row.dedupe_key) for row in _rows(sqlite_store)] == [
        ("quality", "coalmine/watch/latency"),
        ("latency", "coalmine/watch/latency/2"),  # receivers take what comes under the first for the fault they know
    ]
    _miss(world, 0)
    ended = _messages(world)[-1]
    assert (ended["type"], ended["data"]["dedupe_key"]) == ("alert.resolved", "coalmine/watch/latency")
    world.apply(page([canary(key) for key in KEYS], rules=[NAMED_AS_A_CLASS], remind="1h"))  # which ends the other
    world.apply(page([canary(key) for key in KEYS], rules=[NAMED_AS_A_CLASS, SLOW], remind="1h"))
    _miss(world, 0)
    assert [one["data"]["dedupe_key"] for one in _messages(world)[-2:]] == [
        "coalmine/watch/latency/2",
        "coalmine/watch/latency",
    ]


def test_an_alert_named_as_a_class_that_an_older_replica_announces_beside_it_is_an_incident_of_its_own(
    sqlite_store: Store,
) -> None:
    world = _broken(sqlite_store, SLOW)
    world.apply(page([canary(key) for key in KEYS], rules=[SLOW, NAMED_AS_A_CLASS], remind="1h"))
    _miss(world, 10)
    assert _types(world) == ["opened", "opened"]
    with sqlite_store.write() as connection:  # as the older replica writes the second
        quality = next(row.id for row in _rows(sqlite_store) if row.incident_class == "quality")
        connection.execute(
            sa.text("UPDATE alerts SET incident_id = NULL, dedupe_key = :key WHERE incident_id = :id"),
            {"key": "coalmine/watch/latency", "id": quality},
        )
        connection.execute(sa.text("UPDATE deliveries SET incident_id = NULL WHERE incident_id = :id"), {"id": quality})
        connection.execute(sa.text("DELETE FROM incidents WHERE id = :id"), {"id": quality})
    world.clock.advance(5)
    world.tick()
    _miss(world, 0)
    assert _types(world) == ["opened", "opened", "resolved"]
    assert [(row.incident_class, row.dedupe_key, row.resolved_at is None) for row in _rows(sqlite_store)] == [
        ("latency", "coalmine/watch/latency", True),
        ("quality", "coalmine/watch/latency", False),
    ]


def test_the_end_that_an_older_replica_wrote_is_told_as_such(sqlite_store: Store) -> None:
    world = _broken(sqlite_store, HARSH)
    world.deliver_all()
    _miss(world, 0)
    _as_announced_without_incidents(sqlite_store, "coalmine/watch/threshold-coverage")
    assert _types(world) == ["opened", "resolved"]
    assert {one["data"]["check"] for one in _messages(world)} == {"watch"}


def _as_announced_without_incidents(store: Store, key: str) -> None:
    """Leave the one alert and its deliveries as a release writes them that knows no incidents."""
    with store.write() as connection:
        connection.execute(sa.text("UPDATE alerts SET incident_id = NULL, dedupe_key = :key"), {"key": key})
        connection.execute(sa.text("UPDATE deliveries SET incident_id = NULL"))
        connection.execute(sa.text("DELETE FROM incidents"))


def _rows(store: Store) -> list[Any]:
    with store.read() as connection:
        return list(connection.execute(sa.select(incident_table).order_by(incident_table.c.id)))


_SINCE = (
    "public_links",
    "run_notes",
    "interleaving_clicks",
    "interleavings",
    "habit_refusals",
    "pair_items",
    "shadow_parts",
    "shadow_pairs",
    "shadow_questions",
    "shadows",
    "shadow_hours",
    "promotion_waivers",
    "promotions",
    "experiment_counts",
    "experiment_units",
    "experiment_epochs",
    "experiments",
    "feedback",
    "calibrations",
    "drawn_verdicts",
    "answer_draws",
    "answer_items",
    "judge_days",
    "ratings",
    "staged_answers",
    "run_answers",
    "answers",
    "answer_texts",
    "plants",
    "index_facts",
    "traffic_parts",
    "traffic_queries",
    "reaches",
    "reports",
    "pooled_recalls",
    "held_items",
    "adjudications",
    "annotations",
    "task_items",
    "task_canaries",
    "tasks",
    "corpus_texts",
    "corpora",
)
"""Tables that later releases added, those first that refer to others."""


def _as_before_incidents(store: Store, keys: Mapping[str, str]) -> None:
    """Put the database back to what the release before incidents wrote."""
    with store.write() as connection:
        for rule, key in keys.items():
            connection.execute(
                sa.text("UPDATE alerts SET dedupe_key = :key WHERE rule_key = :rule"), {"key": key, "rule": rule}
            )
        kept = "UPDATE transitions SET suppressed = 'critical_firing' WHERE suppressed = 'incident_open'"
        connection.execute(sa.text(kept))
        for index in ("ix_alerts_incident", "ix_deliveries_incident", "ix_deliveries_report"):
            connection.execute(sa.text(f"DROP INDEX {index}"))
        for table in ("alerts", "deliveries"):
            connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN incident_id"))
        for column in ("report_id", "may_be_taken", "taken_by"):
            connection.execute(sa.text(f"ALTER TABLE deliveries DROP COLUMN {column}"))
        connection.execute(sa.text("ALTER TABLE baselines DROP COLUMN median_latency"))
        connection.execute(sa.text("DROP TABLE incidents"))
        for index in ("ix_runs_queued", "ix_scores_vector_id", "ix_latest_run_id"):
            connection.execute(sa.text(f"DROP INDEX {index}"))
        for column in ("attempts", "failure"):
            connection.execute(sa.text(f"ALTER TABLE rescorings DROP COLUMN {column}"))
        for table in (*_SINCE, "next_runs", "jobs", "rates"):
            connection.execute(sa.text(f"DROP TABLE {table}"))
        added = {"shards": "staged_at", "rankings": "content_hash", "runs": "figures"}
        for table, column in {**added, "run_probes": "paces", "detections": "words"}.items():
            connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        if store.dialect == "postgresql":
            connection.execute(sa.text("DROP SCHEMA procrastinate CASCADE"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :before"), {"before": BEFORE})
