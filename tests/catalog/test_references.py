"""What refers to what stays whole: a suite goes with its canaries, and no check is left without its parts."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from app.base.db.engine import Connection, Store
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.values import RunStatus
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references, suites
from app.catalog.store import API, FILE
from app.definitions.service import applying, definitions
from tests.support.blocking import begin, overtaken
from tests.support.fakes import START
from tests.support.world import CHECK, World, canary, documents, page, race

pytestmark = pytest.mark.databases


def _keys(store: Store, suite: str = "suite") -> list[tuple[str, str]]:
    return [(one.key, one.managed_by) for one in references.load_canaries(store, suite)]


def _suite(*canaries: Mapping[str, Any]) -> SuiteDocument:
    return parse_document(SuiteDocument, {"slug": "suite", "canaries": canaries})


# --- suites and their canaries -------------------------------------------------------------------------------


def test_a_suite_put_again_does_not_revive_its_old_canaries(store: Store) -> None:
    suites.put_suite(store, _suite(canary("ant"), canary("bee")), now=START)
    definitions.archive(store, "suite", "suite", now=START)
    suites.put_suite(store, parse_document(SuiteDocument, {"slug": "suite"}), now=START)
    assert _keys(store) == []


def test_the_api_may_have_the_canaries_of_a_suite_the_files_dropped(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")]))
    world.apply({"suite": "other", "canaries": []})
    suites.put_suite(store, _suite(canary("ant"), canary("new")), now=START)
    assert _keys(store) == [("ant", API), ("new", API)]


# --- what a check needs --------------------------------------------------------------------------------------


def _check(**more: Any) -> CheckDocument:
    return parse_document(CheckDocument, {**page(**more)["checks"][0], "slug": "mine", **more})


@pytest.fixture
def shared(store: Store) -> World:
    """Give a world whose suite, retriever and hook a file owns, used by a check of the API too."""
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")]))
    definitions.put(store, world.vault, _check(), now=START)
    return world


def test_files_cannot_drop_what_a_check_of_the_api_uses(shared: World) -> None:
    before, wanted = shared.dump(), documents({"suite": "other", "canaries": []})
    acts: tuple[Callable[[], object], ...] = (
        lambda: applying.diff(shared.store, shared.vault, wanted, managed_by=FILE, now=START),
        lambda: applying.apply(shared.store, shared.vault, wanted, managed_by=FILE, now=START),
    )
    for act in acts:
        with pytest.raises(InvalidInputError) as caught:
            act()
        assert sorted(problem.message for problem in caught.value.problems) == [
            f"{kind} '{slug}' is used by check 'mine' of the API; change or delete that first"
            for kind, slug in (("hook", "ops"), ("retriever", "search"), ("suite", "suite"))
        ]
    assert shared.dump() == before


def test_files_may_drop_their_own_check_and_leave_the_rest_to_the_one_of_the_api(shared: World) -> None:
    kept = {**page([canary("ant"), canary("bee")]), "checks": []}
    assert [change.name for change in shared.apply(kept)] == [CHECK]
    assert shared.run("mine").status is RunStatus.FINISHED


def test_files_may_drop_what_an_archived_check_used(shared: World) -> None:
    definitions.archive(shared.store, "check", "mine", now=START)
    shared.apply({"suite": "other", "canaries": []})
    with pytest.raises(NotFoundError):
        references.load_definition(shared.store, "suite", "suite")


def test_a_difference_nobody_could_apply_is_refused_as_applying_it_is(store: Store) -> None:
    world = World(store=store)
    wanted = documents(page([canary("ant")], hooks=["ops", "nowhere"]))
    with pytest.raises(InvalidInputError, match="there is no hook 'nowhere'"):
        applying.diff(store, world.vault, wanted, managed_by=FILE, now=START)


@pytest.mark.parametrize("kind", ["suite", "retriever", "hook"])
def test_a_check_put_while_its_parts_are_archived_is_refused_or_keeps_them(store: Store, kind: str) -> None:
    world = World(store=store)
    slug = {"suite": "suite", "retriever": "search", "hook": "ops"}[kind]
    for number in range(6):
        parts = {**page([canary("ant")]), "checks": []}
        applying.apply(store, world.vault, documents(parts), managed_by=API, now=START)

        def act(role: int) -> Exception | None:
            try:
                if role == 0:
                    definitions.archive(store, kind, slug, now=START)
                else:
                    definitions.put(store, world.vault, _check(), now=START)
            except (ConflictError, InvalidInputError) as error:
                return error
            return None

        refused = [type(one) for one in race(2, act) if one is not None]
        assert len(refused) == 1, number
        if refused == [ConflictError]:
            references.load_definition(store, kind, slug)
            definitions.archive(store, "check", "mine", now=START)


def test_a_check_put_waits_for_the_archiving_of_what_it_uses(postgresql_store: Store) -> None:
    """Without a lock the check would be saved on a snapshot in which its retriever is still there."""
    world = World(store=postgresql_store)
    applying.apply(
        postgresql_store, world.vault, documents({**page([canary("ant")]), "checks": []}), managed_by=API, now=START
    )
    with pytest.raises(InvalidInputError, match="there is no retriever 'search'"):
        overtaken(
            postgresql_store,
            _take_the_retriever_away,
            lambda: definitions.put(postgresql_store, world.vault, _check(), now=START),
        )


def test_a_form_and_an_apply_that_change_a_check_at_once_do_not_block_each_other(postgresql_store: Store) -> None:
    """Both hold what a check uses before the check itself: else each would wait for what the other holds."""
    world = World(store=postgresql_store)
    applying.apply(postgresql_store, world.vault, documents(page([canary("ant")])), managed_by=API, now=START)
    before = references.load_definition(postgresql_store, "check", CHECK)
    document = parse_document(CheckDocument, {**before.body, "slug": CHECK, "k": 7})

    def put() -> None:
        definitions.put(postgresql_store, world.vault, document, now=START, revision=before.revision)

    with ThreadPoolExecutor(1) as pool, postgresql_store.write() as connection:
        _take_the_retriever_away(connection)
        saved = begin(postgresql_store, pool, put)
        catalog.archive_definition(connection, before.id, 1)
        connection.commit()
        with pytest.raises(InvalidInputError, match="there is no retriever 'search'"):
            saved()


def _take_the_retriever_away(connection: Connection) -> None:
    retriever = catalog.find_definition(connection, "retriever", "search")
    assert retriever is not None
    catalog.archive_definition(connection, retriever.id, 1)


# --- floors --------------------------------------------------------------------------------------------------

UNCOMPUTED = (
    "canary 'suite/ant' has a floor on R@7: R@7 is not computed in check '{}'; add 7 to the cutoffs of the check"
)


def _refused(act: Callable[[], object]) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        act()
    return [str(problem) for problem in caught.value.problems]


def test_a_floor_no_run_computes_is_refused_with_the_files(store: Store) -> None:
    world = World(store=store)
    floored = page([canary("ant", floors={"R@7": 0.9, "NDCG@20": 0.5, "P@5": 0.1})])
    undefined = f"NDCG@20 is undefined in check '{CHECK}'; it needs a fetch_k of at least 20"
    assert _refused(lambda: world.apply(floored)) == [
        f"canaries.yaml:1: floors: {UNCOMPUTED.format(CHECK)}",
        f"canaries.yaml:1: floors: canary 'suite/ant' has a floor on NDCG@20: {undefined}",
    ]
    assert world.count("definitions") == {"definitions": 0}
    enough = {"cutoffs": [1, 5, 7, 20], "fetch_k": 20}
    world.apply(page([canary("ant", floors={"R@7": 0.9, "NDCG@20": 0.5, "MAP": 0.1})], **enough))
    world.probe.all_miss()
    assert "below_floor" in world.results(world.run())["ant"]["reasons"]


def test_a_floor_no_run_computes_is_refused_with_the_check_that_would_not(store: Store) -> None:
    world = World(store=store)
    suites.put_suite(store, _suite(canary("ant", floors={"R@7": 0.9})), now=START)
    parts = {**page(), "suite": None, "checks": []}
    applying.apply(store, world.vault, documents(parts), managed_by=API, now=START)
    put = partial(definitions.put, store, world.vault, now=START)
    assert _refused(lambda: put(_check())) == [f"suite: {UNCOMPUTED.format('mine')}"]
    put(_check(cutoffs=[7]))
    assert _refused(lambda: put(_check())) == [f"suite: {UNCOMPUTED.format('mine')}"]
    assert references.load_definition(store, "check", "mine").body["cutoffs"] == [7]


def test_a_floor_no_run_computes_is_refused_with_the_canary(shared: World) -> None:
    store, before = shared.store, shared.dump()
    floored = canary("eel", floors={"R@7": 0.9})
    told = [f"floors: {UNCOMPUTED.format(slug).replace('ant', 'eel')}" for slug in ("mine", CHECK)]
    one = [parse_document(CanaryDocument, floored)]
    assert _refused(lambda: suites.put_canaries(store, "suite", one, now=START)) == told
    assert _refused(lambda: suites.put_suite(store, _suite(floored), now=START)) == told
    assert shared.dump() == before


def test_a_floor_of_the_api_is_refused_where_files_add_a_check_that_does_not_compute_it(store: Store) -> None:
    world = World(store=store)
    plain = page([canary("bee")])
    world.apply({**plain, "checks": []})
    floored = parse_document(CanaryDocument, canary("ant", floors={"R@7": 0.9}))
    suites.put_canaries(store, "suite", [floored], now=START)
    assert _refused(lambda: world.apply(plain)) == [f"canaries.yaml:1: floors: {UNCOMPUTED.format(CHECK)}"]


def test_a_floor_of_a_suite_nobody_checks_is_nobodys_business(store: Store) -> None:
    World(store=store).apply({"suite": "suite", "canaries": [canary("ant", floors={"R@7": 0.9})]})
    assert _keys(store) == [("ant", FILE)]


# --- secrets under another key -------------------------------------------------------------------------------


def test_a_secret_brought_fresh_takes_the_place_of_one_stored_under_another_key(store: Store) -> None:
    World(store=store, vault=Vault("the key of last year")).apply(page([canary("ant")]))
    world = World(store=store)
    changes = world.apply(page([canary("ant")]))
    assert [(change.name, change.fields) for change in changes] == [("ops", ("secrets",))]
    assert world.apply(page([canary("ant")])) == []
