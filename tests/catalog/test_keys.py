"""API keys: their text is nowhere at rest, and a revoked one is worth nothing from then on."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidInputError,
    StoreUnavailableError,
    UnauthorizedError,
)
from tests.conftest import Databases
from tests.support.fakes import START
from tests.support.world import World

pytestmark = pytest.mark.databases


def test_a_key_opens_with_its_scope_and_is_stored_only_as_a_hash(store: Store) -> None:
    key = keys.create_key(store, name="ci", scope=Scope.WRITE, now=START)
    identity = keys.identify(store, key, now=START)
    assert (identity.name, identity.scope) == ("ci", Scope.WRITE)
    assert key not in repr(World(store=store).dump())
    assert key.split("_", 2)[2] not in repr(World(store=store).dump())


def test_the_text_of_a_key_is_not_in_the_database_file(databases: Databases) -> None:
    url = databases.sqlite()
    store = Store(url)
    key = keys.create_key(store, name="ci", scope=Scope.ADMIN, now=START)
    keys.identify(store, key, now=START)
    store.close()
    file = Path(url.removeprefix("sqlite:///"))
    raw = b"".join(part.read_bytes() for part in file.parent.glob(f"{file.name}*"))
    assert b"api_keys" in raw
    assert key.encode() not in raw
    assert key.split("_", 2)[2].encode() not in raw


def test_scopes_include_others_and_that_of_annotators_none() -> None:
    allowed = {(have, need) for have in Scope for need in Scope if have.includes(need)}
    annotate, ingest, read, write, admin = Scope
    assert allowed == {
        (annotate, annotate),
        (ingest, ingest),
        (read, read),
        *((write, one) for one in (annotate, ingest, read, write)),
        *((admin, one) for one in Scope),
    }
    with pytest.raises(ForbiddenError, match="scope admin"):
        keys.require(keys.Identity(name="ci", scope=write), admin)


def test_a_use_is_noted_now_and_then_and_never_stands_in_the_way(databases: Databases) -> None:
    url = databases.sqlite()
    store, other = Store(url, busy_milliseconds=10), Store(url)
    key = keys.create_key(store, name="ci", scope=Scope.READ, now=START)
    with other.write():  # somebody writes for longer than we wait
        with pytest.raises(StoreUnavailableError), store.write():
            pass
        assert keys.identify(store, key, now=START).name == "ci"
    assert keys.list_keys(store)[0].last_used_at is None
    keys.identify(store, key, now=START)
    first = keys.list_keys(store)[0].last_used_at
    keys.identify(store, key, now=START + timedelta(seconds=30))
    assert keys.list_keys(store)[0].last_used_at == first
    keys.identify(store, key, now=START + timedelta(seconds=90))
    assert keys.list_keys(store)[0].last_used_at != first
    store.close()
    other.close()


def test_the_bootstrap_file_makes_the_first_admin_key_and_no_other(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        keys.bootstrap_key(store, file, now=START)
    file.write_text("short\n")
    with pytest.raises(ConfigurationError, match="at least 20"):
        keys.bootstrap_key(store, file, now=START)
    file.write_text("  a-long-key-made-by-the-operator\n")
    assert keys.bootstrap_key(store, file, now=START)
    assert keys.identify(store, "a-long-key-made-by-the-operator", now=START).scope is Scope.ADMIN
    assert not keys.bootstrap_key(store, file, now=START)  # a restart
    keys.revoke_key(store, keys.list_keys(store)[0].prefix, now=START)
    assert not keys.bootstrap_key(store, file, now=START)  # a restart does not bring back what was revoked
    with pytest.raises(UnauthorizedError):
        keys.identify(store, "a-long-key-made-by-the-operator", now=START)


def test_a_key_needs_a_name(sqlite_store: Store) -> None:
    with pytest.raises(InvalidInputError):
        keys.create_key(sqlite_store, name="  ", scope=Scope.READ, now=START)
    assert not keys.any_key_ever(sqlite_store)
