"""A run that is planned while its check moves to another suite works with the one or the other, and never fails."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.services.runs import plans
from app.store.catalog import suites
from app.store.engine import Store
from tests.support.world import World, canary, page

pytestmark = pytest.mark.databases


def test_a_check_that_moves_to_another_suite_while_its_run_is_planned_is_run(
    postgresql_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, moves = World(store=postgresql_store), ["moved"]
    world.apply(page([canary("ant")]))

    def freeze(*arguments: Any) -> int:
        if moves:
            world.apply(page([canary("ant")], suite=moves.pop()))  # by another replica, between two statements
        return suites.freeze_suite(*arguments)

    world.wish()
    claimed = world.claim()
    assert claimed is not None
    monkeypatch.setattr(plans, "suites", SimpleNamespace(freeze_suite=freeze))
    ended = world.execute(claimed)
    assert ended is not None
    assert (ended.status, ended.verdict, ended.suite) == ("finished", "healthy", "moved")
