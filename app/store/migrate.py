"""Bringing a database to the schema of this release, and asking whether it has it."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from app.domain.errors import ConfigurationError
from app.store.engine import Store

_MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
_INSUFFICIENT_PRIVILEGE = "42501"
_LOCK = 0xC0A1  # PostgreSQL advisory lock: replicas that start together migrate one after another


def migrate(store: Store) -> None:
    """Run every migration the database has not seen, in one transaction.

    Raises ConfigurationError where a newer release has been here.
    """
    with store.write() as connection:
        if store.dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")  # the one who migrates may take its time
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        config = _config()
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise ConfigurationError(
                "the database has a schema this release does not know; a newer release has migrated it"
            ) from error
        except sa.exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) != _INSUFFICIENT_PRIVILEGE:
                raise
            url = store.engine.url
            raise ConfigurationError(
                f"the database user may not do what the migration needs ({error.orig}); as the owner of the database: "
                f'GRANT CREATE ON DATABASE "{url.database}" TO "{url.username}", then migrate again'
            ) from error


def is_migrated(store: Store) -> bool:
    """Whether the database has exactly the schema of this release."""
    current, head = revisions(store)
    return current == head


def revisions(store: Store) -> tuple[str | None, str | None]:
    """Name the revision a database has (None = it is empty) and the one this release wants."""
    with store.read() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current, ScriptDirectory.from_config(_config()).get_current_head()


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether something in the database is of our migrations, as Alembic asks: the engine of jobs has its own."""
    return kind != "table" or name is None or not name.startswith("procrastinate_")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s")
    return config
