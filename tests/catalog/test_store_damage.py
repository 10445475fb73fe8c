"""A database file that is damaged, or none at all, is said to be so in one sentence."""

import os
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.errors import StoreUnavailableError


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


def test_a_database_whose_file_is_taken_away_is_not_worked_on_until_it_is_back(tmp_path: Path) -> None:
    folder, aside = tmp_path / "data", tmp_path / "aside"
    folder.mkdir()
    store = Store(f"sqlite:///{folder / 'coalmine.db'}")
    migrate(store)
    with store.write() as connection:  # which the pool keeps open: SQLite itself would go on with it unseen
        connection.execute(sa.text("CREATE TABLE kept (one INTEGER)"))

    folder.rename(aside)
    for use in (store.read, store.write):
        with pytest.raises(StoreUnavailableError, match="is gone while it was open; put it back"), use() as connection:
            connection.execute(sa.text("SELECT 1"))
    aside.rename(folder)
    with store.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM kept")).scalar_one() == 0

    shutil.copy(folder / "coalmine.db", tmp_path / "copy.db")
    (tmp_path / "copy.db").replace(folder / "coalmine.db")
    with pytest.raises(StoreUnavailableError, match="was replaced while it was open"), store.read() as connection:
        connection.execute(sa.text("SELECT 1"))

    store.close()
