"""What a run costs, counted and not timed: statements sent, and calls of Python functions for each further canary.

The bounds are the statements that were counted when they were recorded, and a tenth more calls. Where a change exceeds
one, look whether the work has to be done; where it has, record the bound anew in the commit that needs it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.db.files import migrate
from tests.support.fakes import answered, hits
from tests.support.world import World, canary, page

FEW, MANY = 100, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What was counted."""

    statements: int
    calls: int


def counted(store: Store, act: Callable[[], object]) -> Cost:
    """Count the statements sent and the calls of Python functions in this thread."""
    statements = calls = 0

    def sent(*_: object) -> None:
        nonlocal statements
        statements += 1

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sa.event.listen(store.engine, "before_cursor_execute", sent)
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        act()
    finally:
        sys.setprofile(before)
        sa.event.remove(store.engine, "before_cursor_execute", sent)
    return Cost(statements=statements, calls=calls)


def costs(store: Store, canaries: int) -> dict[str, Cost]:
    """Count what runs cost by what changed in them: everything, nothing, a tenth of the answers, all of them."""
    world = World(store=store)
    keys = [f"c{number:03}" for number in range(canaries)]
    world.apply(page([canary(key) for key in keys]))
    changed: set[str] = set()
    turn = 0
    world.probe.otherwise = lambda item: answered(
        hits(f"doc-{item.query}", f"other-{item.query}-{turn if item.query in changed else 0}", "same")
    )
    found = {"first": counted(store, world.run)}
    world.run()  # the first unchanged one fills what is kept in memory
    found["unchanged"] = counted(store, world.run)
    for name, some in (("tenth", keys[::10]), ("all", keys)):
        turn, changed = turn + 1, set(some)
        world.run()
        turn += 1
        found[name] = counted(store, world.run)
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Cost, Cost]]:
    """Return the costs over few canaries and over many."""
    found = []
    for number in (FEW, FEW, MANY):  # at first statements are put together that are kept
        store = Store(f"sqlite:///{tmp_path_factory.mktemp('cost')}/coalmine.db")
        migrate(store)
        found.append(costs(store, number))
        store.close()
    _, few, many = found
    return {name: (few[name], many[name]) for name in few}


@pytest.mark.parametrize(
    ("name", "statements", "calls"), [("first", 93, 247), ("unchanged", 45, 48), ("tenth", 76, 63), ("all", 77, 217)]
)
def test_a_run_costs_no_more_than_was_recorded(
    both: dict[str, tuple[Cost, Cost]], name: str, statements: int, calls: float
) -> None:
    few, many = both[name]
    assert many.statements <= statements
    assert (many.calls - few.calls) / (MANY - FEW) <= calls
