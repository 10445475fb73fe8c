"""What an alert names first is what reports and pages name first."""

import pytest

from app.formats import shapes
from app.services import evidence, reading
from app.store.engine import Store
from tests.fakes import answered, hits
from tests.world import World, canary, page


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world whose retriever brings scores with some answers only."""
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog")]))
    return world


def test_the_worst_canaries_stand_in_the_order_of_reports(world: World) -> None:
    world.probe.answers = {
        "ant": answered(hits("noise", scores=[None])),  # no top score: not the worst of scores
        "bee": answered(hits("noise", scores=[0.9])),
        "cat": answered(hits("noise", scores=[0.6])),
        "dog": answered(hits("noise", scores=[0.1])),  # of low relevance too
    }
    run = world.run()
    with world.store.read() as connection:
        check = reading.find_check(connection, "watch")
        named = evidence.worst_canaries(connection, check.id, run.id)
    assert [one["key"] for one in named] == ["dog", "cat", "bee", "ant"]
    reported = shapes.worst_first(list(world.results(run).values()))
    assert [one["key"] for one in named] == [one["key"] for one in reported]
