"""What refers to what stays whole: a suite goes with its canaries, and no check is left without its parts."""

from collections.abc import Mapping
from typing import Any

from app.formats.complaints import parse_document
from app.formats.documents import SuiteDocument
from app.services import definitions
from app.services.references import API
from app.store.engine import Store
from tests.fakes import START
from tests.world import World, canary, page


def _keys(store: Store, suite: str = "suite") -> list[tuple[str, str]]:
    return [(one.key, one.managed_by) for one in definitions.list_canaries(store, suite)]


def _suite(*canaries: Mapping[str, Any]) -> SuiteDocument:
    return parse_document(SuiteDocument, {"slug": "suite", "canaries": canaries})


# --- suites and their canaries -------------------------------------------------------------------------------


def test_a_suite_put_again_does_not_revive_its_old_canaries(store: Store) -> None:
    definitions.put_suite(store, _suite(canary("ant"), canary("bee")), now=START)
    definitions.archive(store, "suite", "suite", now=START)
    definitions.put_suite(store, parse_document(SuiteDocument, {"slug": "suite"}), now=START)
    assert _keys(store) == []


def test_the_api_may_have_the_canaries_of_a_suite_the_files_dropped(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")]))
    world.apply({"suite": "other", "canaries": []})
    definitions.put_suite(store, _suite(canary("ant"), canary("new")), now=START)
    assert _keys(store) == [("ant", API), ("new", API)]
