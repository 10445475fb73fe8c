"""Alerts of planted documents: they open at once, say what is wrong, and recover when the next is in time."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.alerts.service import explanations
from app.base.db.engine import Store
from app.plants.domain import PlantProblem
from tests.plants.test_planting import Planted, described
from tests.support.planted import retriever_of, source
from tests.support.world import CHECK, World

pytestmark = pytest.mark.databases


@pytest.fixture
def planted(store: Store) -> Iterator[Planted]:
    with source() as (held, served):
        world = World(store=store)
        whole = described(retriever_of(served))
        whole["checks"][0]["hooks"] = ["ops"]
        world.apply(whole)
        world.clock.advance(600)
        yield Planted(world=world, source=held)


def plant(planted: Planted, *, seconds: float = 120.0) -> None:
    """Plant a document, and carry it on."""
    planted.world.clock.advance(600)
    assert planted.due() == 1
    planted.walk(seconds)


def alerts_of(planted: Planted) -> list[tuple[str, str, str]]:
    found = planted.world.alerts()
    return [(one["rule"], one["severity"], one["state"]) for one in found]


def test_not_found_in_time_opens_at_once_and_the_next_in_time_resolves(planted: Planted) -> None:
    plant(planted)
    assert alerts_of(planted) == []
    planted.source.stopped = True
    plant(planted)
    assert alerts_of(planted) == [("plant", "critical", "firing")]
    (one,) = planted.world.alerts()
    assert one["reason"] == "A planted document was not found after 1 min: new documents do not reach the index."
    planted.world.deliver_all()
    missed = planted.row().id
    planted.source.stopped = False
    planted.source.work()
    plant(planted)
    assert alerts_of(planted) == [("plant", "critical", "resolved")]
    for _ in range(100):  # the one that was not found is looked for, for a day: it says nothing again
        planted.world.clock.advance(900)
        planted.carry_on(missed)
    assert alerts_of(planted) == [("plant", "critical", "resolved")]
    planted.world.deliver_all()
    assert planted.world.received() == ["alert.opened", "alert.resolved"]


def test_a_notice_names_the_document_and_leads_to_its_page(planted: Planted) -> None:
    planted.source.stopped = True
    plant(planted)
    planted.world.deliver_all()
    one = planted.newest()
    opened = _last(planted)
    assert opened["plant"] == {"id": one["id"], "document_id": one["document_id"], "marker": one["marker"]}
    assert opened["links"]["plants"] == f"http://coalmine.test/checks/{CHECK}/plants"
    planted.source.stopped = False
    planted.source.work()
    plant(planted)
    planted.world.deliver_all()
    resolved = _last(planted)
    assert "plant" not in resolved
    assert "plants" in resolved["links"]


def test_left_behind_is_critical_and_said(planted: Planted) -> None:
    planted.source.refusing = {"DELETE"}
    plant(planted)
    assert alerts_of(planted) == [("plant", "critical", "firing")]
    assert "left behind" in planted.world.alerts()[0]["reason"]
    planted.source.refusing = set()
    planted.walk(3600, every=60)
    plant(planted)
    assert alerts_of(planted) == [("plant", "critical", "resolved")]


def test_far_slower_than_it_was_is_a_warning(planted: Planted) -> None:
    for _ in range(10):
        plant(planted)
    planted.source.stopped = True
    planted.world.clock.advance(600)
    planted.due()
    planted.walk(30)
    planted.source.stopped = False
    planted.source.work()
    planted.walk(60)
    assert planted.newest()["problem"] is PlantProblem.SLOW
    assert alerts_of(planted) == [("plant", "warning", "firing")]
    assert planted.world.alerts()[0]["reason"] == (
        "A planted document was found after 35 s (usually 0 s): indexing is slower than it was."
    )
    plant(planted)
    assert alerts_of(planted) == [("plant", "warning", "resolved")]


def test_unmeasured_changes_nothing(planted: Planted) -> None:
    planted.source.stopped = True
    plant(planted)
    planted.source.refusing = {"search"}
    planted.world.clock.advance(3600)
    planted.walk(300)
    assert alerts_of(planted) == [("plant", "critical", "firing")]


def test_a_run_neither_judges_nor_resolves_it(planted: Planted) -> None:
    planted.source.stopped = True
    plant(planted)
    planted.world.run()
    assert ("plant", "critical", "firing") in alerts_of(planted)


def test_why_it_alerts_is_explained(planted: Planted) -> None:
    said = [one for one in _explained(planted) if one["rule"] == "plant"]
    assert [(one["state"], one["reason"]) for one in said] == [("unknown", "No planted document was found yet.")]
    plant(planted)
    said = [one for one in _explained(planted) if one["rule"] == "plant"]
    assert [(one["state"], one["to_close"]) for one in said] == [("ok", None)]


def _explained(planted: Planted) -> list[dict[str, object]]:
    return [
        dict(one) for one in explanations.explain_rules(planted.world.store, CHECK, now=planted.world.clock())["rules"]
    ]


def _last(planted: Planted) -> dict[str, Any]:
    _, message = planted.world.send.sent[-1]
    data: dict[str, Any] = json.loads(message.body)["data"]
    return data
