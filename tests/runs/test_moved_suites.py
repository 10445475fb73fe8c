"""A run that is planned while its check moves to another suite works with the one or the other, and never fails."""

from typing import Any

import pytest

from app.services.runs import plans
from app.store.catalog import definitions
from app.store.engine import Store
from tests.support.world import World, canary, page

pytestmark = pytest.mark.databases


def test_a_check_that_moves_to_another_suite_while_its_run_is_planned_is_run(
    postgresql_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, suites = World(store=postgresql_store), ["moved"]
    world.apply(page([canary("ant")]))

    def find(*arguments: Any) -> Any:
        if suites:
            world.apply(page([canary("ant")], suite=suites.pop()))
        return definitions.find_definition(*arguments)

    world.wish()
    claimed = world.claim()
    assert claimed is not None
    with monkeypatch.context() as patched:
        patched.setattr(plans, "definitions", _Patched(find))
        ended = world.execute(claimed)
    assert ended is not None
    assert (ended.status, ended.verdict) == ("finished", "healthy")


class _Patched:
    """The module of definitions, with another way to find one."""

    def __init__(self, find: Any) -> None:
        self.find_definition = find

    def __getattr__(self, name: str) -> Any:
        """Give what is not found otherwise."""
        return getattr(definitions, name)
