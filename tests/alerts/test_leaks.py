"""Chunks that must never be returned: one leak opens a critical alert at once, which says who saw what."""

import json
from typing import Any

import pytest

from app.alerts.domain.conditions import Leak, Leaks, default_leak_rule, judge_leaks
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Answer, Outcome
from app.catalog.documents.check_documents import CheckDocument
from app.retrievers.domain.retrievers import ProbeQuery
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import Site
from tests.support.world import CHECK, RETRIEVER, World, canary, page

RULE = default_leak_rule("leak")
BY_TENANT = {
    **RETRIEVER,
    "options": {"tenant": "acme"},
    "request": {"json": {"q": "{{ query }}", "tenant": "{{ tenant }}"}},
}


def world_of(store: Store, **check: Any) -> World:
    """Give twelve questions of two tenants; the last two of globex must not get what belongs to acme."""
    world = World(store=store)
    world.probe.otherwise = own
    asked = [canary(f"own-{number}", expected_chunks=["doc-acme"]) for number in range(10)]
    asked += [
        canary(key, expected_chunks=["doc-globex"], forbidden_chunks=["doc-acme"], vars={"tenant": "globex"})
        for key in ("payroll", "plans")
    ]
    world.apply({**page(asked, **check), "retrievers": [BY_TENANT]})
    return world


def leaks_of(world: World) -> list[dict[str, Any]]:
    """Give the alerts of the rule that every check has."""
    return [alert for alert in world.alerts() if alert["rule"] == "leak"]


def own(item: ProbeQuery) -> Answer:
    """Answer as a retriever that keeps tenants apart."""
    return answered(hits(f"doc-{item.vars.get('tenant', 'acme')}"))


def leaking(item: ProbeQuery) -> Answer:
    """Answer as one whose filter is gone for one question."""
    return answered(hits("doc-globex", "doc-acme")) if item.key == "payroll" else own(item)


def test_one_leak_is_critical_at_once_and_says_who_saw_what(store: Store) -> None:
    world = world_of(store)
    assert world.shown(world.run())["verdict"] == "healthy"
    world.probe.otherwise = leaking
    shown = world.shown(world.run())
    assert shown["verdict"] == "degraded"
    assert shown["reasons"] == [
        "a forbidden chunk was returned for 1 of 2 canaries that forbid any: payroll (tenant globex) (critical)"
    ]
    [alert] = world.alerts()
    assert (alert["rule"], alert["kind"], alert["severity"], alert["state"]) == ("leak", "leak", "critical", "firing")
    world.deliver_all()
    [(_, message)] = world.send.sent
    told = json.loads(message.body)["data"]
    assert told["summary"] == (
        "watch: a forbidden chunk was returned for 1 of 2 canaries that forbid any: "
        "payroll (tenant globex) got doc-acme at rank 2 since 12:02 UTC (run 2)"
    )
    assert told["title"] == "watch: a chunk that must not be returned was returned"
    assert told["advice"].startswith("Bring back the filter or permission")
    assert told["fleet"] is None, "neither index nor encoder is at fault"
    [leaked] = told["degraded"]
    assert (leaked["asked_as"], leaked["forbidden"]) == (
        {"tenant": "globex"},
        [{"id": "doc-acme", "document": None, "rank": 2}],
    )


def test_a_leak_is_over_after_two_runs_in_which_all_were_asked_and_none_leaked(sqlite_store: Store) -> None:
    world = world_of(sqlite_store)
    world.probe.otherwise = leaking
    world.run()
    world.probe.otherwise = lambda item: failed(Outcome.TIMEOUT) if item.key == "payroll" else own(item)
    world.run()
    world.run()
    assert [alert["state"] for alert in leaks_of(world)] == ["firing"]
    world.probe.otherwise = own
    world.run()
    assert [alert["state"] for alert in leaks_of(world)] == ["recovering"]
    world.run()
    [alert] = leaks_of(world)
    assert (alert["state"], alert["reason"].partition(";")[0]) == (
        "resolved",
        "none of 2 canaries that forbid chunks got one",
    )
    assert "no canary gets a chunk that it forbids" in Site(world=world).page(f"/alerts/{alert['id']}").text


def test_an_unknown_run_is_told_of_what_leaked(sqlite_store: Store) -> None:
    world = world_of(sqlite_store)
    world.probe.otherwise = lambda item: leaking(item) if item.key == "payroll" else failed(Outcome.TIMEOUT)
    shown = world.shown(world.run())
    assert shown["verdict"] == "unknown"
    assert any("for 1 of 2 canaries that forbid any: payroll (tenant globex)" in one for one in shown["reasons"])
    assert [alert["state"] for alert in leaks_of(world)] == ["firing"]


def test_a_canary_that_forbids_nothing_any_more_ends_the_alert(sqlite_store: Store) -> None:
    world = world_of(sqlite_store)
    world.probe.otherwise = leaking
    world.run()
    asked = [canary(key, expected_chunks=["doc-globex"], vars={"tenant": "globex"}) for key in ("payroll", "plans")]
    world.apply({**page(asked), "retrievers": [BY_TENANT]})
    world.run()
    world.run()
    assert [alert["state"] for alert in leaks_of(world)] == ["resolved"]


def test_a_rule_of_ones_own_makes_it_a_warning_or_switches_it_off(sqlite_store: Store) -> None:
    world = world_of(sqlite_store, rules=[{"kind": "leak", "severity": "warning"}])
    world.probe.otherwise = leaking
    world.run()
    assert [alert["severity"] for alert in leaks_of(world)] == ["warning"]
    world.apply(page(rules=[{"kind": "leak", "enabled": False}]))
    world.run()
    assert [alert["state"] for alert in leaks_of(world)] == ["resolved"]
    with pytest.raises(InvalidInputError, match="does not apply to a leak rule"):
        parse_document(CheckDocument, {**page()["checks"][0], "rules": [{"kind": "leak", "margin": 0.1}]})


def test_a_check_whose_own_rule_is_called_leak_keeps_it(sqlite_store: Store) -> None:
    mine = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}, "key": "leak"}
    world = world_of(sqlite_store, rules=[mine])
    world.probe.otherwise = leaking
    world.run()
    assert [alert["rule"] for alert in world.alerts()] == ["leak-default"]


def test_pages_lead_from_the_alert_to_what_the_canary_got(sqlite_store: Store) -> None:
    world = world_of(sqlite_store)
    world.run()
    world.probe.otherwise = leaking
    world.run()
    site = Site(world=world)
    [alert] = world.alerts()
    shown = site.page(f"/alerts/{alert['id']}").text
    assert "a forbidden chunk was returned for 1 of 2 canaries that forbid any" in shown
    assert "payroll (tenant globex) got doc-acme at rank 2" in shown
    assert (
        "a canary gets a chunk that it forbids (critical); opens at once, closes after 2 good runs"
        in site.page(f"/checks/{CHECK}").text
    )


def test_a_suite_that_only_forbids_is_not_said_to_be_protected_by_a_coverage_it_has_not(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.probe.otherwise = own
    world.apply(
        {**page([canary("a", expected_chunks=[], forbidden_chunks=["secret"])], rules=[]), "retrievers": [BY_TENANT]}
    )
    world.run()
    assert "Protected now" not in Site(world=world).page(f"/checks/{CHECK}").text


@pytest.mark.parametrize(
    ("leaks", "unknown", "reason", "severity", "measured"),
    [
        (None, False, "it is not known what leaked", None, False),
        (Leaks(forbidding=0, unmeasured=0), False, "no canary forbids chunks", None, True),
        (Leaks(forbidding=4, unmeasured=0), False, "none of 4 canaries that forbid chunks got one", None, True),
        (Leaks(forbidding=4, unmeasured=0), True, "the run is unknown", None, False),
        (
            Leaks(forbidding=4, unmeasured=2),
            False,
            "2 of 4 canaries that forbid chunks were not measured",
            None,
            False,
        ),
        (
            Leaks(
                forbidding=9,
                unmeasured=3,
                found=[
                    Leak(key="a", asked_as={"n": "1"}),
                    *(Leak(key=key, asked_as={}) for key in "bcde"),
                ],
            ),
            True,
            "a forbidden chunk was returned for 5 of 9 canaries that forbid any: a (n 1), b and 3 more canaries",
            "critical",
            True,
        ),
    ],
)
def test_what_is_not_known_is_not_called_tight(
    leaks: Leaks | None, *, unknown: bool, reason: str, severity: str | None, measured: bool
) -> None:
    found = judge_leaks(RULE, leaks, unknown=unknown)
    assert found.reason.removesuffix(" (critical)") == reason
    assert (found.severity, found.measured) == (severity, measured)
    assert found.good_beyond_margin is (measured and severity is None)
