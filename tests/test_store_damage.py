"""A database file that is damaged, or none at all, is said to be so in one sentence."""

import os
from pathlib import Path

import pytest

from app.domain.errors import StoreUnavailableError
from app.store.engine import Store
from app.store.migrate import migrate


def test_a_file_that_is_no_database_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "coalmine.db"
    file.write_text("This is a letter to my grandmother. " * 100, encoding="utf-8")
    store = Store(f"sqlite:///{file}")

    with pytest.raises(StoreUnavailableError, match="file is not a database"):
        migrate(store)

    store.close()


def test_a_damaged_database_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "coalmine.db"
    store = Store(f"sqlite:///{file}")
    migrate(store)
    store.close()
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(os.urandom(file.stat().st_size - 4096))
    store = Store(f"sqlite:///{file}")

    with pytest.raises(StoreUnavailableError, match="malformed"):
        migrate(store)

    store.close()
