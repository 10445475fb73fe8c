"""The migrations build exactly the schema the tables describe, once, whoever starts first."""

import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from app.domain.errors import ConfigurationError, StoreUnavailableError
from app.store.engine import Store
from app.store.migrate import is_migrated, migrate
from app.store.tables import metadata

Opener = Callable[..., Store]


def test_migrating_an_empty_database_gives_exactly_the_tables(empty_database_url: str, stores: Opener) -> None:
    store = stores(empty_database_url)
    assert not is_migrated(store)
    migrate(store)
    assert is_migrated(store)
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_unique_and_partial_indexes_are_the_same_as_the_tables_create(empty_database_url: str, stores: Opener) -> None:
    """Autogenerate does not compare the conditions of indexes, and these are our locks."""
    store = stores(empty_database_url)
    with store.write() as connection:
        metadata.create_all(connection)
        created = _index_definitions(connection)
        metadata.drop_all(connection)
    migrate(store)
    with store.read() as connection:
        migrated = _index_definitions(connection)
    assert migrated == created
    partial = {name for name, definition in migrated.items() if " where " in definition}
    assert {"uq_runs_queued", "uq_runs_running", "uq_states_open", "uq_alerts_open"} <= partial


def test_migrating_twice_changes_nothing(store: Store) -> None:
    with store.read() as connection:
        before = _index_definitions(connection)
    migrate(store)
    assert is_migrated(store)
    with store.read() as connection:
        assert _index_definitions(connection) == before


def test_processes_that_start_together_migrate_once(empty_database_url: str, stores: Opener) -> None:
    """Threads with stores of their own share nothing but the database, just as processes do."""
    failures: list[Exception] = []
    together = threading.Barrier(4)

    def start() -> None:
        store = stores(empty_database_url)
        together.wait(20)
        try:
            migrate(store)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test reports it
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert is_migrated(stores(empty_database_url))


def test_a_database_of_a_newer_release_is_refused_in_words(store: Store) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'from_the_future'")
    assert not is_migrated(store)
    with pytest.raises(ConfigurationError, match="newer release"):
        migrate(store)


def test_a_failing_migration_leaves_nothing_behind(empty_database_url: str, stores: Opener) -> None:
    store = stores(empty_database_url)
    with store.write() as connection:
        connection.exec_driver_sql("CREATE TABLE attempts (id integer)")  # in the way of the last table
    with pytest.raises((sa.exc.ProgrammingError, StoreUnavailableError), match="attempts"):
        migrate(store)
    with store.read() as connection:
        assert sa.inspect(connection).get_table_names() == ["attempts"]


def _index_definitions(connection: sa.Connection) -> dict[str, str]:
    if connection.dialect.name == "sqlite":
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    else:
        query = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
    rows = connection.exec_driver_sql(query).all()
    return {name: " ".join(sql.lower().split()) for name, sql in rows if name != "alembic_version_pkc"}
