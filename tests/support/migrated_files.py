"""SQLite files that are migrated already: migrating one takes longer than most tests."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from app.config import Settings
from app.store.engine import Store
from app.store.migrate import migrate
from app.wiring import database_file


def write_migrated(file: Path) -> None:
    """Write a database with the newest schema and nothing in it, for its owner alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(_image())


def prepare_database(settings: Settings) -> None:
    """Write a migrated database where these settings would have a new file made."""
    file = database_file(settings)
    if file is not None and not file.exists():
        write_migrated(file)


@cache
def _image() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "migrated.db"
        store = Store(f"sqlite:///{file}")
        migrate(store)
        store.close()
        return file.read_bytes()
