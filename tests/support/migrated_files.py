"""SQLite files that are migrated already: migrating one takes longer than most tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from alembic.config import Config
from alembic.script import ScriptDirectory

from app.base.db.engine import Store
from app.base.db.files import migrate
from app.config import Settings


def write_migrated(file: Path) -> None:
    """Write a database with the newest schema and nothing in it, for its owner alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(_image())


def prepare_database(settings: Settings) -> None:
    """Write a migrated database where these settings would have a new file made."""
    file = settings.database_file
    if file is not None and not file.exists():
        write_migrated(file)


@contextmanager
def read_once() -> Iterator[None]:
    """Let Alembic read the files of the migrations once, and not for each service that is opened."""
    read = ScriptDirectory.from_config
    known: dict[str | None, ScriptDirectory] = {}

    def from_config(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location")
        if location not in known:
            known[location] = read(config)
        return known[location]

    with patch.object(ScriptDirectory, "from_config", from_config):
        yield


@cache
def _image() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "migrated.db"
        store = Store(f"sqlite:///{file}")
        migrate(store)
        store.close()
        return file.read_bytes()
