"""What should be is applied whole or not at all, owned by one side, versioned, and keeps its secrets."""

from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, NotFoundError
from app.base.values import RunStatus
from app.catalog.documents import canary_export
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.service import references, suites
from app.catalog.service.suites import Change
from app.catalog.service.versions import freeze_suite, load_suite
from app.catalog.store import API, FILE
from app.catalog.tables import definition_versions
from app.definitions.service import applying, definitions
from tests.support.fakes import START
from tests.support.world import CHECK, HOOK, RETRIEVER, SECRET, World, canary, documents, page, race

pytestmark = pytest.mark.databases

TOKEN = "Bearer a-token-nobody-may-read"


@pytest.fixture
def world(store: Store) -> World:
    """Give a world with two canaries, defined by a file."""
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")]))
    return world


def _said(changes: list[Change]) -> list[tuple[str, str, str]]:
    return [(change.action, change.kind, change.name) for change in changes]


def _with_token(token: str, **more: Any) -> dict[str, Any]:
    request = {"method": "POST", "headers": {"authorization": token}, "json": {"q": "{{ query }}"}}
    return {**page([canary("ant")], **more), "retrievers": [{**RETRIEVER, "request": request}]}


# --- whole or not at all -------------------------------------------------------------------------------------


def test_an_error_in_the_last_document_leaves_nothing(store: Store) -> None:
    world = World(store=store)
    before = world.dump()
    with pytest.raises(InvalidInputError) as caught:
        world.apply(page([canary("ant")], hooks=["ops", "nowhere"], retriever="missing"))
    assert [str(problem) for problem in caught.value.problems] == [
        "canaries.yaml:1: retriever: there is no retriever 'missing'",
        "canaries.yaml:1: hooks: there is no hook 'nowhere'",
    ]
    assert world.dump() == before


def test_the_difference_shown_is_the_difference_made(world: World) -> None:
    other = page([canary("bee", min_relevance_score=0.7), canary("cat")], k=3)
    shown = applying.diff(world.store, world.vault, documents(other), managed_by=FILE, now=START)
    made = world.apply(other)
    assert shown == made
    assert _said(made) == [
        ("update", "canary", "suite/bee"),
        ("create", "canary", "suite/cat"),
        ("archive", "canary", "suite/ant"),
        ("update", "check", CHECK),
    ]
    assert made[0].fields == ("min_relevance_score",)
    assert made[3].fields == ("k",)


def test_what_is_absent_from_the_files_is_archived_and_comes_back(world: World) -> None:
    run = world.run()
    gone = world.apply({"suite": "other", "canaries": []})
    assert set(_said(gone)) == {
        ("create", "suite", "other"),
        ("archive", "suite", "suite"),
        ("archive", "canary", "suite/ant"),
        ("archive", "canary", "suite/bee"),
        ("archive", "retriever", "search"),
        ("archive", "hook", "ops"),
        ("archive", "check", CHECK),
    }
    for kind, slug in (("suite", "suite"), ("check", CHECK), ("hook", "ops")):
        with pytest.raises(NotFoundError):
            references.load_definition(world.store, kind, slug)
    assert set(world.results(run)) == {"ant", "bee"}  # history stays
    back = world.apply(page([canary("ant"), canary("bee")]))
    notes = {(change.action, change.kind): change.note for change in back}
    kinds = ("suite", "canary", "retriever", "hook", "check")
    assert notes == {("create", kind): "was archived" for kind in kinds} | {("archive", "suite"): None}
    assert references.load_definition(world.store, "check", CHECK).archived_at is None


def test_replicas_that_start_together_apply_the_same_files_once(store: Store) -> None:
    world = World(store=store)
    wanted = documents(page([canary("ant"), canary("bee")]))
    race(4, lambda _: applying.apply(store, world.vault, wanted, managed_by=FILE, now=START))
    assert world.count("definitions", "definition_versions", "canaries", "canary_versions") == {
        "definitions": 4,
        "definition_versions": 4,
        "canaries": 2,
        "canary_versions": 2,
    }


# --- ownership -----------------------------------------------------------------------------------------------


def test_a_set_that_says_what_the_files_say_changes_nothing_whoever_sends_it(world: World) -> None:
    wanted = documents(page([canary("ant")]))
    assert applying.diff(world.store, world.vault, wanted, managed_by=API, now=START) == []
    assert applying.apply(world.store, world.vault, wanted, managed_by=API, now=START) == []
    assert references.load_canary(world.store, "suite", "ant").managed_by == FILE


def test_canaries_of_the_api_live_in_a_file_managed_suite_and_survive_its_files(world: World) -> None:
    added = parse_document(CanaryDocument, canary("extra"))
    assert suites.put_canaries(world.store, "suite", [added], now=START).saved == 1
    assert suites.put_canaries(world.store, "suite", [added], now=START).saved == 0
    world.apply(page([canary("ant")]))
    assert [row.key for row in references.load_canaries(world.store, "suite")] == ["ant", "extra"]
    assert set(world.results(world.run())) == {"ant", "extra"}
    suites.put_suite(world.store, SuiteDocument(slug="suite", canaries=()), now=START)
    assert [row.key for row in references.load_canaries(world.store, "suite")] == ["ant"]


def test_a_file_takes_over_what_the_api_made(store: Store) -> None:
    world = World(store=store)
    applying.apply(store, world.vault, documents(page([canary("ant")])), managed_by=API, now=START)
    changes = world.apply(page([canary("ant")]))
    assert {change.note for change in changes} == {"taken over from the api"}
    assert references.load_definition(store, "check", CHECK).managed_by == FILE
    assert references.load_canary(store, "suite", "ant").managed_by == FILE


def test_what_the_api_made_is_not_archived_by_files(store: Store) -> None:
    world = World(store=store)
    applying.apply(store, world.vault, documents(page([canary("ant")])), managed_by=API, now=START)
    world.apply({"suite": "other", "canaries": [canary("cat")]})
    assert references.load_definition(store, "check", CHECK).managed_by == API
    assert world.run().status is RunStatus.FINISHED


# --- versions ------------------------------------------------------------------------------------------------


def test_a_version_is_used_again_when_its_content_returns(world: World) -> None:
    versions = {references.load_definition(world.store, "check", CHECK).version_id}
    before = world.count("definition_versions", "canary_versions")
    world.apply(page([canary("ant", tags=["x"]), canary("bee")], k=3))
    versions.add(references.load_definition(world.store, "check", CHECK).version_id)
    world.apply(page([canary("ant"), canary("bee")]))
    assert references.load_definition(world.store, "check", CHECK).version_id in versions
    assert len(versions) == 2
    assert world.count("definition_versions", "canary_versions") == {name: n + 1 for name, n in before.items()}


def test_hashes_do_not_depend_on_order_place_or_defaults_written_out(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant", tags=["a", "b"])], k=5, enabled=True))
    check, ant = (
        references.load_definition(store, "check", CHECK).hash,
        references.load_canary(store, "suite", "ant").hash,
    )
    wanted = page([canary("ant", tags=["b", "a"], category="simple_factual")])
    wanted["checks"] = [dict(reversed(wanted["checks"][0].items()))]
    world.apply({"suite": "zero", "canaries": []}, wanted)
    assert (
        references.load_definition(store, "check", CHECK).hash,
        references.load_canary(store, "suite", "ant").hash,
    ) == (check, ant)


def test_a_suite_is_frozen_once_for_each_revision(world: World) -> None:
    for _ in range(3):
        world.run()
    assert world.count("suite_versions") == {"suite_versions": 1}
    world.apply(page([canary("ant"), canary("bee")], k=3))
    world.run()
    assert world.count("suite_versions") == {"suite_versions": 1}
    world.apply(page([canary("ant"), canary("bee"), canary("cat")]))
    world.run()
    assert world.count("suite_versions") == {"suite_versions": 2}


def test_threads_that_freeze_at_once_freeze_the_same(world: World) -> None:
    suite = references.load_definition(world.store, "suite", "suite").id

    def freeze(number: int) -> tuple[str, list[str]] | None:
        if number == 0:
            added = [parse_document(CanaryDocument, canary(f"extra-{n}")) for n in range(5)]
            suites.put_canaries(world.store, "suite", added, now=START)
            return None
        frozen = freeze_suite(world.store, suite, START)
        with world.store.read() as connection:
            found = load_suite(connection, frozen)
        return found.hash, [member.key for member in found.members]

    frozen = {one[0]: one[1] for one in race(6, freeze) if one is not None}
    assert all(len(keys) in {2, 7} for keys in frozen.values())
    assert len(frozen) <= 2


# --- secrets -------------------------------------------------------------------------------------------------


def test_secrets_are_not_in_the_database(store: Store) -> None:
    world = World(store=store)
    world.apply(_with_token(TOKEN))
    world.run()
    dumped = repr(world.dump())
    assert "authorization" in dumped
    for secret in (TOKEN, SECRET, SECRET.removeprefix("whsec_")):
        assert secret not in dumped


def test_a_renewed_secret_is_no_new_version_and_is_used_by_the_next_run(store: Store) -> None:
    world = World(store=store)
    world.apply(_with_token(TOKEN))
    before = references.load_definition(store, "retriever", "search")
    world.run()
    changes = world.apply(_with_token("Bearer renewed"))
    assert [(change.name, change.fields) for change in changes] == [("search", ("secrets",))]
    after = references.load_definition(store, "retriever", "search")
    assert (after.version_id, after.hash) == (before.version_id, before.hash)
    world.run()
    used = [asking.retriever.headers["authorization"] for asking in world.probe.askings]
    assert used == [TOKEN, "Bearer renewed"]


def test_a_removed_secret_is_gone(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    assert references.load_definition(store, "hook", "ops").secrets is not None
    changes = world.apply({**page([canary("ant")]), "hooks": [{**HOOK, "secret": None}]})
    assert [(change.name, change.fields) for change in changes] == [("ops", ("secrets",))]
    assert references.load_definition(store, "hook", "ops").secrets is None


def test_secrets_of_a_file_are_not_given_to_the_api(world: World) -> None:
    assert definitions.stored_secrets(world.store, world.vault, "hook", "ops") == {}


def test_no_two_versions_in_force_share_a_ciphertext(store: Store) -> None:
    """Fernet draws a nonce for every encryption, so equal secrets do not show as equal."""
    world = World(store=store)
    hooks = [HOOK, {**HOOK, "slug": "twin"}]
    world.apply({**page([canary("ant")]), "hooks": hooks})
    with store.read() as connection:
        secrets = connection.execute(sa.select(definition_versions.c.secrets)).scalars().all()
    tokens = [bytes(one) for one in secrets if one is not None]
    assert len(set(tokens)) == len(tokens) == 2


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_everything_in_force_is_written_without_secrets_however_many_canaries_are_read_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(definitions, "_PAGE", at_once)
    monkeypatch.setattr(canary_export, "_DUMPED_AT_ONCE", at_once)
    text = definitions.write_all(world.store)
    found = yaml.safe_load(text)
    assert found["suite"] == "suite"
    assert [one["key"] for one in found["canaries"]] == ["ant", "bee"]
    assert [check["slug"] for check in found["checks"]] == [CHECK]
    assert SECRET not in text
