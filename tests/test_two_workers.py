"""Two workers on one store: every run and every delivery once, in one order, whatever their clocks say."""

from app.domain.model import Trigger
from app.services import definitions, scheduling
from app.store.engine import Store
from tests.world import CHECK, World, canary, page

# --- rows that agree -----------------------------------------------------------------------------------------


def test_an_alert_resolves_though_the_worker_that_opened_it_is_ahead_of_time(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")]))
    world.probe.all_miss()
    world.run()
    world.clock.advance(600)
    world.run()
    world.clock.advance(-600)
    assert [alert["state"] for alert in world.alerts()] == ["firing"]
    world.probe.all_answer()
    world.run()
    world.run()
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]


def test_a_request_that_joins_a_scheduled_run_leaves_its_trigger(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    check = definitions.find(store, "check", CHECK)
    assert scheduling.tick(store, check.id, world.clock()) is not None
    run = world.wish(trigger=Trigger.API)
    assert world.shown(run)["trigger"] == "schedule"
    assert world.wish(trigger=Trigger.UPDATE, index_version="v2") == run
    assert world.wish(trigger=Trigger.API) == run
    assert (world.shown(run)["trigger"], world.shown(run)["index_version"]) == ("update", "v2")
