"""The migrations build exactly the schema the tables describe, once, whoever starts first."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import app.site  # noqa: F401 - which imports the tables of every subject: `metadata` has those alone
from app.alerts.documents import rules_in_force
from app.base.db.engine import Store
from app.base.db.files import _config, is_migrated, is_ours, migrate, revisions
from app.base.db.rows import metadata
from app.base.errors import ConfigurationError, StoreUnavailableError
from app.base.values import Outcome
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.secrets import content_hash
from app.catalog.store import FILE, Content
from tests.conftest import Databases
from tests.support.fakes import answered, failed, hits
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.databases

Opener = Callable[..., Store]


def test_migrating_an_empty_database_gives_exactly_the_tables(empty_database_url: str, stores: Opener) -> None:
    store = stores(empty_database_url)
    assert not is_migrated(store)
    migrate(store)
    assert is_migrated(store)
    with store.read() as connection:
        wanted = {"compare_type": True, "compare_server_default": True, "include_name": is_ours}
        context = MigrationContext.configure(connection, opts=wanted)
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


def test_the_newest_migration_is_the_one_that_alembic_would_run_last(empty_database_url: str, stores: Opener) -> None:
    """It is found in their texts, since Alembic takes a tenth of a second to load."""
    assert revisions(stores(empty_database_url)) == (None, ScriptDirectory.from_config(_config()).get_current_head())


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


def test_a_user_who_may_not_create_the_schema_of_the_jobs_is_told_what_to_grant(
    databases: Databases, stores: Opener
) -> None:
    url = sa.make_url(databases.postgresql(migrated=False))
    with databases.admin.connect() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS modest")
        connection.exec_driver_sql("CREATE ROLE modest LOGIN")
    with stores(url.render_as_string(hide_password=False)).write() as connection:
        connection.exec_driver_sql("GRANT ALL ON SCHEMA public TO modest")
    modest = stores(url.set(username="modest").render_as_string(hide_password=False))
    with pytest.raises(ConfigurationError, match=f'GRANT CREATE ON DATABASE "{url.database}" TO "modest"'):
        migrate(modest)
    with modest.read() as connection:
        assert sa.inspect(connection).get_table_names() == []


def _index_definitions(connection: sa.Connection) -> dict[str, str]:
    if connection.dialect.name == "sqlite":
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    else:
        query = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
    rows = connection.exec_driver_sql(query).all()
    return {name: " ".join(sql.lower().split()) for name, sql in rows if name != "alembic_version_pkc"}


# --- what a release changes in what is stored ---

OLD_RULE = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}}
QUIET = {"kind": "no_data", "enabled": False}
ERRORS = {"kind": "probe_errors", "failed_share": 0.1, "open": {"bad": 1}}
OWN = {"kind": "latency", "critical": {"above": 2}}


def test_checks_stored_without_rules_get_the_old_default_written_out(empty_database_url: str, stores: Opener) -> None:
    store = stores(empty_database_url)
    _migrate_to(store, "2026_11_22_run_probes")
    stored: dict[str, list[Mapping[str, Any]]] = {"none": [], "quiet": [QUIET, ERRORS], "own": [OWN]}
    with store.write() as connection:
        for slug, rules in stored.items():
            _store_check(connection, slug, rules)
        _store_check(connection, "returned", [OLD_RULE], [])
    migrate(store)
    with store.read() as connection:
        found = {row.slug: row for row in catalog.list_definitions(connection, "check")}
    documents = {slug: CheckDocument.model_validate(row.body) for slug, row in found.items()}
    wanted: dict[str, list[Mapping[str, Any]]] = {
        "none": [OLD_RULE],
        "quiet": [OLD_RULE, QUIET, ERRORS],
        "own": [OWN],
        "returned": [OLD_RULE],
    }
    assert {slug: document.rules for slug, document in documents.items()} == {
        slug: _check(slug, rules).rules for slug, rules in wanted.items()
    }
    assert {slug: row.hash for slug, row in found.items()} == {
        slug: content_hash(document) for slug, document in documents.items()
    }
    assert {slug: row.revision for slug, row in found.items()} == {"none": 2, "quiet": 2, "own": 1, "returned": 3}


def test_a_file_without_rules_is_planned_as_a_change_of_the_rules_after_the_upgrade(
    empty_database_url: str, stores: Opener
) -> None:
    store = stores(empty_database_url)
    _migrate_to(store, "2026_11_22_run_probes")
    world = World(store=store)
    files = page([canary("one")], rules=[], hooks=[])
    with store.write() as connection:
        _store_check(connection, CHECK, [])
    migrate(store)
    assert ("check", CHECK, ("rules",)) in {(one.kind, one.name, one.fields) for one in world.apply(files)}
    with store.read() as connection:
        check = catalog.find_definition(connection, "check", CHECK)
    assert check is not None
    in_force = rules_in_force(CheckDocument.model_validate(check.body).rules)
    assert [rule.key for rule in in_force] == [
        "regression",
        "guard",
        "probe_errors",
        "no_data",
        "embedding",
        "leak",
        "slower",
        "index",
    ]
    assert not [one for one in world.apply(files) if one.kind == "check"]


def _migrate_to(store: Store, revision: str) -> None:
    with store.write() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def _check(slug: str, rules: Sequence[Mapping[str, Any]]) -> CheckDocument:
    fields = {"slug": slug, "suite": "suite", "retriever": "search", "schedule": {"every": "5m"}, "rules": rules}
    return CheckDocument.model_validate(fields)


ADDED_SINCE = {"vars", "use", "report", "judge", "sample", "plant"}
"""Fields of checks that the release before the default rules did not write."""
ADDED_TO_RULES = {"factor", "rise", "fact", "minimum", "maximum", "fall"}
"""Fields of rules that it did not write."""


def _store_check(connection: sa.Connection, slug: str, *versions: Sequence[Mapping[str, Any]]) -> None:
    """Store a check of a file with these rules, one version after the other, as that release wrote it."""
    for rules in versions:
        document = _check(slug, rules)
        body = {name: value for name, value in document.data().items() if name not in ADDED_SINCE}
        body["rules"] = [
            {name: value for name, value in rule.items() if name not in ADDED_TO_RULES} for rule in body["rules"]
        ]
        content = Content(hash=content_hash(document), public=body)
        catalog.save_definition(connection, "check", slug, content, managed_by=FILE, source="canaries.yaml:1", now=1)


def test_baselines_in_force_get_the_latencies_of_their_runs(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("one"), canary("two")], rules=[], hooks=[]))
    for number in range(30):
        seconds = 0.1 if number == 7 else 0.02
        world.probe.answers = {"one": answered(hits("doc-one"), seconds=seconds), "two": failed(Outcome.TIMEOUT)}
        if number != 4:  # a run of which no probe failed stores its latencies in another form
            world.probe.answers["two"] = answered(hits("doc-two"), seconds=seconds)
        world.run()
    script = ScriptDirectory.from_config(_config()).get_revision("2026_11_27_baseline_latency")
    assert script is not None
    read = sa.text("SELECT median_latency FROM baselines")
    with store.write() as connection:
        learned = connection.execute(read).scalar_one()
        connection.execute(sa.text("ALTER TABLE baselines DROP COLUMN median_latency"))
        with Operations.context(MigrationContext.configure(connection)):
            script.module.upgrade()
        assert connection.execute(read).scalar_one() == learned
    assert learned == pytest.approx(0.1, abs=1e-3)
