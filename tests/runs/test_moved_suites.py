"""A run that is planned while its check or its suite changes works with what was or with what is, and never fails."""

from collections.abc import Callable, Iterator

import pytest

from app.base.db.engine import Store
from app.catalog.service.versions import freeze_suite
from app.catalog.store import frozen_version
from tests.support.world import World, canary, page, statements

pytestmark = pytest.mark.databases


def before_the_first(part: str, change: Callable[[], object]) -> Callable[[str], None]:
    """Make a change, as another replica would, before the first statement with these words."""
    changes = [change]

    def listen(statement: str) -> None:
        if part in statement and changes:
            changes.pop()()

    return listen


@pytest.fixture
def other(store: Store) -> Iterator[World]:
    """Give another replica on the same database."""
    second = Store(store.engine.url.render_as_string(hide_password=False))
    yield World(store=second)
    second.close()


def test_a_check_that_moves_to_another_suite_while_its_run_is_planned_is_run(store: Store, other: World) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    world.run()
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    move = before_the_first("FROM suite_versions", lambda: other.apply(page([canary("ant")], suite="moved")))
    with statements(store, move):
        ended = world.execute(claimed)
    assert ended is not None
    assert (ended.status, ended.verdict, ended.suite) == ("finished", "healthy", "suite")
    assert world.run().suite == "moved"


def test_a_suite_that_is_edited_while_it_is_frozen_is_listed_again(store: Store, other: World) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    with store.read() as connection:
        suite_id = connection.exec_driver_sql("SELECT id FROM definitions WHERE kind = 'suite'").scalar_one()
    edit = before_the_first("FROM canaries", lambda: other.apply(page([canary("ant"), canary("bee")])))
    with statements(store, edit):
        version_id = freeze_suite(store, suite_id, world.clock())
    with store.read() as connection:
        assert len(frozen_version(connection, version_id).members) == 2
    assert world.count("suite_versions") == {"suite_versions": 1}
