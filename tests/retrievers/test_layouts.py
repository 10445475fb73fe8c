"""What an earlier release stored, which knew fewer measures, reads as it was, and is judged anew by the next run."""

import json

import numpy as np
import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.values import Outcome
from app.records.tables import layouts, vectors
from app.retrievers.domain.retrievers import Scorer, ScorerKind
from app.scoring.run_inputs import Yardstick
from tests.support.fakes import answered, failed, hits
from tests.support.world import World, canary, page


@pytest.fixture
def world(store: Store) -> World:
    """Give a world whose canaries expect chunks by id and by text."""
    world = World(store=store)
    both = [{"id": "doc-ant", "text": "ants live in hills"}]
    world.apply(page([canary("ant", expected_chunks=both), canary("bee")]))
    return world


def _forget_recall_by_id(store: Store) -> None:
    """Leave the layouts and vectors as a release wrote them that did not know R_id and R_passage."""
    with store.write() as connection:
        known = [tuple(row) for row in connection.execute(sa.select(layouts.c.id, layouts.c.names))]
        for layout, text in known:
            names = json.loads(text)
            kept = [place for place, name in enumerate(names) if not name.startswith("R_")]
            if len(kept) == len(names) or "coverage" in names:
                continue
            values = {"names": json.dumps([names[place] for place in kept])}
            connection.execute(sa.update(layouts).where(layouts.c.id == layout).values(**values))
            for row, body in [tuple(row) for row in connection.execute(sa.select(vectors.c.id, vectors.c.body))]:
                shorter = np.frombuffer(body)[kept].tobytes()
                connection.execute(sa.update(vectors).where(vectors.c.id == row).values(body=shorter))


@pytest.mark.both
def test_an_older_run_keeps_its_categories_though_the_measures_have_become_more(world: World) -> None:
    world.probe.answers["ant"] = answered(hits("new", texts={"new": "Ants live in hills."}))
    first = world.run()
    before = world.shown(first)["categories"]["simple_factual"]
    assert (before["coverage"], before["measures"]["R_id@5"], before["measures"]["R_passage@5"]) == (1.0, 0.0, 1.0)
    world.probe.otherwise = lambda _: failed(Outcome.TIMEOUT)
    world.probe.answers.clear()
    world.run()
    _forget_recall_by_id(world.store)
    after = world.shown(first)["categories"]["simple_factual"]
    assert {name for name, value in before["measures"].items() if after["measures"][name] != value} == {
        f"{name}@{k}" for name in ("R_id", "R_passage") for k in (1, 3, 5, 10)
    }
    assert after["measures"]["R_id@5"] is None
    assert (after["coverage"], after["health_score"]) == (before["coverage"], before["health_score"])


def test_a_stored_vector_is_put_into_the_order_of_the_measures_and_what_it_lacks_is_undefined() -> None:
    yardstick = Yardstick.of(k=5, fetch_k=10, cutoffs=(), scorer=Scorer(kind=ScorerKind.JUDGED), rules=())
    reorder_vector = np.frombuffer(
        yardstick.reorder_vector(["RR", "gone", "Hit@5"], np.array([0.25, 0.5, 1.0]).tobytes())
    )
    named = dict(zip(map(str, yardstick.measures), reorder_vector.tolist(), strict=True))
    assert {name: value for name, value in named.items() if value == value} == {"Hit@5": 1.0, "RR": 0.25}  # noqa: PLR0124 - NaN
