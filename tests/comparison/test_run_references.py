"""Which run a reference stands for: of a retriever, one in which it was asked."""

import pytest

from app.base.db.engine import Store
from app.base.errors import ConflictError
from app.comparison.service import compared_runs, comparisons
from tests.support.fakes import answered, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, page


def test_a_retriever_stands_for_a_run_in_which_it_was_asked(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    made = page([canary(f"c{number:02}", expected_chunks=["c1"]) for number in range(12)], rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "first"}, {**RETRIEVER, "slug": "second"}]
    made["checks"].append({**made["checks"][0], "slug": "candidate", "retriever": "first"})
    world.apply(made)
    world.probe.otherwise = lambda _: answered(hits("c1"))
    world.run()
    of_first = world.run("candidate").id
    made["checks"][1]["retriever"] = "second"
    world.apply(made)
    with pytest.raises(ConflictError, match="no check of retriever 'second' has a run with results"):
        compared_runs.resolve(sqlite_store, "retriever:second", "b")
    of_second = world.run("candidate").id
    assert compared_runs.resolve(sqlite_store, "retriever:second", "b") == str(of_second) != str(of_first)
    assert compared_runs.resolve(sqlite_store, "check:candidate", "b") == str(of_second)
    page_, _ = comparisons.compare_references(sqlite_store, f"check:{CHECK}", "retriever:second", limit=0)
    assert page_["b"]["retriever"] == "second"
