"""A PostgreSQL that listens on TCP, and asks for passwords, for retrievers that are databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from tests.conftest import PostgreSQL, running_postgresql
from tests.support.processes import free_ports

READER, PASSWORD = "reader", "hunter2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where it is, and a way in for whoever owns it."""

    port: int
    owner: psycopg.Connection[Any]
    folder: Path

    @property
    def url(self) -> str:
        """Its address as a retriever's document says it."""
        return f"postgresql://127.0.0.1:{self.port}/docs"

    def retriever(self, **changes: Any) -> dict[str, Any]:
        """Describe a retriever of the preset, as the role that may only read."""
        auth = {"kind": "basic", "user": READER, "password": PASSWORD}
        return {"slug": "docs", "preset": "pgvector", "url": self.url, "auth": auth, **changes}


@contextmanager
def database() -> Iterator[Database]:
    """Run a server with the database `docs`, the extension pgvector and a reader."""
    with running_postgresql() as server:
        socket = str(sa.make_url(server.url).query["host"])
        port = free_ports()
        _listen(server, Path(socket), port)
        owner = _connect(socket, port, "postgres")
        owner.execute(f"CREATE ROLE {READER} LOGIN PASSWORD '{PASSWORD}'")
        owner.execute("CREATE DATABASE docs")
        owner.close()
        owner = _connect(socket, port, "docs")
        owner.execute("CREATE EXTENSION vector")
        owner.execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {READER}")
        try:
            yield Database(port=port, owner=owner, folder=Path(socket))
        finally:
            owner.close()


def _listen(server: PostgreSQL, folder: Path, port: int) -> None:
    options = f"-h 127.0.0.1 -p {port} -k {folder}"
    (folder / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n", "utf-8")
    server.stop()
    server._control("start", "-o", options, "-l", f"{folder}/log")


def _connect(socket: str, port: int, name: str) -> psycopg.Connection[Any]:
    return psycopg.connect(host=socket, port=port, dbname=name, user="postgres", autocommit=True)
