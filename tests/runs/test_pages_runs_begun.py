"""A page that is made while its run is begun follows that run all the same."""

import pytest

from app.base.db.engine import Store
from app.records.store import open_runs
from tests.support.pages_service import Site
from tests.support.world import CHECK, World, canary, page


@pytest.mark.parametrize("seen", ["queued", None])
def test_a_run_that_began_between_two_reads_of_its_page_is_followed(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, seen: str | None
) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary("ant")]))
    run_id = world.wish()
    claimed = world.claim()
    assert claimed is not None
    found = {} if seen is None else {claimed.check_id: seen}
    monkeypatch.setattr(open_runs, "under_way", lambda _connection, _now: found)
    shown = Site(world=world).page(f"/checks/{CHECK}")
    assert [one.get("data-follows") for one in shown.all("div", class_="progress") if one.get("data-follows")] == [
        f"/v1/runs/{run_id}/events"
    ]
