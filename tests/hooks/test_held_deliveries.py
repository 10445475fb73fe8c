"""What another transaction holds on PostgreSQL: what must see its outcome waits for it."""

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.tables import incidents
from app.base.db.engine import Store, to_us
from app.base.errors import ConflictError
from app.hooks import store as outbox
from app.hooks.service import deliveries, hooks
from app.hooks.tables import deliveries as rows
from tests.support.blocking import overtaken
from tests.support.fakes import answered, hits
from tests.support.world import COVERAGE, HOOK, World, canary, page

pytestmark = pytest.mark.databases

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
HOOKS = [{**HOOK, "slug": slug} for slug in ("one", "two")]


@pytest.fixture
def world(postgresql_store: Store) -> World:
    """Give a world with a test message to each of two hooks, the older one to the first."""
    world = World(store=postgresql_store)
    world.apply({**page([canary("ant")], rules=[AT_ONCE], hooks=["one", "two"]), "hooks": HOOKS})
    for hook in ("one", "two"):
        deliveries.send_test(world.store, hook, now=world.clock.advance(1))
    return world


def test_a_replay_waits_for_the_transaction_that_ends_its_incident_and_sees_its_resolve(world: World) -> None:
    world.deliver_all()
    world.probe.answers["ant"] = answered(hits("noise"))
    world.run()
    with world.store.write() as connection:
        connection.execute(sa.update(rows).where(rows.c.state == "pending").values(state="dead", attempts=3))
    (dead, _) = world.deliveries(state="dead")

    def end(connection: Connection) -> None:
        trigger = outbox.find_delivery(connection, int(dead["id"]))
        assert trigger is not None
        connection.execute(sa.select(incidents.c.id).where(incidents.c.id == trigger.incident_id).with_for_update())
        assert trigger.incident_id is not None
        outbox.enqueue_deliveries(
            connection,
            [trigger.hook_id],
            message="msg_end",
            type="alert.resolved",
            alert_id=trigger.alert_id,
            incident_id=trigger.incident_id,
            at=to_us(world.clock()),
        )

    with pytest.raises(ConflictError, match="a later delivery about this incident"):
        overtaken(world.store, end, lambda: hooks.replay(world.store, int(dead["id"]), now=world.clock.advance(1)))
