"""Resources of commands: the configured database or a running service, and definitions applied to that database."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.base import terminal
from app.base.commands import now
from app.base.db.engine import Store, from_us
from app.base.errors import ConfigurationError
from app.catalog.client.remote_service import Server
from app.catalog.documents.canary_files import Documents
from app.catalog.service import applying, suite_power
from app.catalog.service.references import FILE
from app.catalog.service.vault import KEY_FILE, open_vault
from app.config import Settings, load_settings, read_api_key
from app.probe_wiring import USER_AGENT
from app.records.documents import time_text
from app.wiring import open_store


@contextmanager
def open_database(data_dir: Path | None, *, create: bool = False) -> Iterator[tuple[Settings, Store]]:
    """Open the configured database and print its path: a folder is easily mistaken for another."""
    settings = load_settings(os.environ, data_dir=data_dir)
    file = settings.database_file
    is_new = file is not None and not file.exists()
    store = open_store(settings, create=create)
    try:
        terminal.note(f"Database: {store.place}{' (new)' if is_new else ''}")
        yield settings, store
    finally:
        store.close()


def require_own_key(settings: Settings) -> None:
    """Raise ConfigurationError unless the key of the service is configured or present: a generated one would differ."""
    generated = settings.embedded or (settings.data_dir / KEY_FILE).exists()
    if settings.secret_key is None and not generated:
        raise ConfigurationError("COALMINE_SECRET_KEY must be set to the service's own, or it cannot read the secrets")


def connect_server(url: str) -> Server:
    """Client of a running service, with the key of the environment."""
    return Server(url, read_api_key(os.environ), user_agent=USER_AGENT)


def format_time(microseconds: int | None) -> str:
    """Text of a stored time for a table; "" without one."""
    return (time_text(from_us(microseconds).replace(microsecond=0)) or "") if microseconds is not None else ""


def apply_here(
    documents: Documents, data_dir: Path | None, *, managed_by: str, dry_run: bool
) -> tuple[list[dict[str, Any]], list[str], Settings]:
    """Apply documents to the configured database, or only plan it; returns the changes and notes on them."""
    with open_database(data_dir, create=not dry_run) as (settings, store):
        require_own_key(settings)
        keep = managed_by == FILE and not dry_run
        vault = open_vault(settings.secret_key, settings.data_dir, store, loopback=True, keep=keep, readable=False)
        act = applying.diff if dry_run else applying.apply
        changes = act(store, vault, documents, managed_by=managed_by, now=now())
        notes = suite_power.notes_on_plan(store, documents, managed_by=managed_by)
    return [asdict(change) for change in changes], notes, settings
