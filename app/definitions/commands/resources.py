"""`coalmine diff`, `apply`, `export` and `migrate`: definitions of canary files, of the store, of a running service.

Below them what other commands open too: the database of this machine, or a server.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from app.base import terminal
from app.base.commands import DataDir, Paths, ServerUrl, examples, now
from app.base.db.engine import Store, from_us
from app.base.db.files import migrate as migrate_store
from app.base.db.files import revisions
from app.base.documents.texts import plain
from app.base.errors import CoalmineError, ConfigurationError
from app.catalog.documents.canary_export import import_pages
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.warnings import find_warnings
from app.catalog.exchange import FORMATS
from app.catalog.service import suites
from app.catalog.service.references import FILE
from app.catalog.service.vault import KEY_FILE, open_vault
from app.config import Settings, load_settings, read_api_key
from app.definitions.client import Server
from app.definitions.commands import canary_files
from app.definitions.commands.canary_files import read_files
from app.definitions.service import applying, definitions
from app.hooks.client.webhook import addresses_of
from app.hooks.service.hooks import notes_on_hooks
from app.probe_wiring import USER_AGENT
from app.records.documents import time_text
from app.wiring import create_database_file, hook_addresses, open_store

DIFFERS = 1
_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z0-9_]+)\}")

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog=examples("coalmine diff canaries", "coalmine diff canaries --server https://coalmine.example"))
def diff(
    paths: Paths,
    *,
    server: ServerUrl = None,
    data_dir: DataDir = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when something would change.")] = False,
) -> None:
    """Show what `apply` would change.

    Exit code 0 whether or not something would change, but for --exit-code; 2: unusable input.
    """
    if _plan(paths, server, data_dir, dry_run=True) and exit_code:
        raise typer.Exit(DIFFERS)


@app.command(epilog=examples("coalmine apply canaries", "coalmine apply canaries --server https://coalmine.example"))
def apply(paths: Paths, *, server: ServerUrl = None, data_dir: DataDir = None) -> None:
    """Apply canary files in one transaction; definitions no longer in them are archived.

    With --server the objects are managed by the API afterwards, and nothing of others is archived.
    """
    _plan(paths, server, data_dir, dry_run=False)


@app.command(
    epilog=examples(
        "coalmine export > canaries.yaml",
        "coalmine export backup.yaml",
        "coalmine export --to beir --suite docs exported",
    )
)
def export(
    path: Annotated[
        str, typer.Argument(metavar="[PATH|-]", help="File (with --to: folder) to write; - is stdout.")
    ] = "-",
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="|".join(FORMATS), help="Write another tool's files.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="With --to: which suite.")] = None,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Write all definitions as one canary file; secrets become ${VARIABLES}.

    With --to one suite is written as another tool's files; what these cannot hold is said.
    """
    if to is not None:
        _export_suite(path, to, suite, server, data_dir)
        return
    if server is not None:
        text = connect_server(server).export()
    else:
        with open_database(data_dir) as (_, store):
            text = definitions.write_all(store)
    if path == "-":
        typer.echo(text, nl=False)
    else:
        Path(path).write_text(text, encoding="utf-8")
        terminal.note(f"Written to {path}.")
    variables = dict.fromkeys(_VARIABLE.findall(text))
    if variables:
        terminal.note(f"To read it back, set: {', '.join(variables)}")


@app.command(epilog=examples("COALMINE_DATABASE_URL=postgresql://user@db/coalmine coalmine migrate"))
def migrate(*, data_dir: DataDir = None) -> None:
    """Migrate the database to this release's schema; on SQLite `serve` does it at start.

    Where there is no database file of SQLite yet, an empty one is made and said to be new.
    """
    settings = load_settings(os.environ, data_dir=data_dir, auto_migrate=False)
    file = settings.database_file
    is_new = file is not None and not file.exists()
    create_database_file(settings)
    store = Store(settings.database)
    try:
        before, target = revisions(store)
        migrate_store(store)
        summary = "has the schema already" if before == target else f"migrated from {before or 'nothing'}"
        typer.echo(f"{store.place}: {summary}, now at {target}")
        if is_new:
            terminal.note(
                f"NEW: there was no database at {file}, so an empty one was made. If one was to be upgraded, it is "
                "elsewhere: --data-dir or COALMINE_DATA_DIR say where"
            )
    finally:
        store.close()


def _export_suite(path: str, to: str, suite: str | None, server: str | None, data_dir: Path | None) -> None:
    if to not in FORMATS:
        raise typer.BadParameter(f"'{to}' is not a format; there are: {', '.join(FORMATS)}", param_hint="--to")
    files: Mapping[str, str]
    notes: Sequence[str]
    if server is not None:
        files, notes = connect_server(server).export_suite(to, suite)
    else:
        with open_database(data_dir) as (_, store):
            written = FORMATS[to].write(definitions.load_suite_document(store, suite))
        files, notes = written.files, written.notes
    if path == "-" and len(files) > 1:
        raise typer.BadParameter(f"{to} is {len(files)} files; say the folder to write them to", param_hint="PATH")
    unexpected = [name for name in files if not FORMATS[to].files.fullmatch(name)]
    if unexpected:  # a service elsewhere may be anybody's
        raise CoalmineError(
            f"the service names a file that is none of {to}'s: {plain(unexpected[0])}; nothing was written"
        )
    for name, text in files.items():
        if path == "-":
            typer.echo(text, nl=False)
            continue
        file = Path(path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
        terminal.note(f"Written to {file}.")
    for line in notes:
        terminal.note(f"Note: {plain(line)}.")


def _plan(paths: Sequence[Path], server: str | None, data_dir: Path | None, *, dry_run: bool) -> bool:
    documents = read_files(paths)
    changes: Sequence[Mapping[str, Any]]
    if server is not None:
        changes, notes = connect_server(server).import_documents(import_pages(documents), dry_run=dry_run)
    else:
        changes, notes, settings = apply_here(documents, data_dir, managed_by=FILE, dry_run=dry_run)
        hooks = [hook.data() for hook in documents.hooks]
        notes += [
            f"hook {slug}: {note}" for slug, note in notes_on_hooks(hook_addresses(settings), hooks, addresses_of)
        ]
    canary_files.show_plan(changes, applied=not dry_run)
    canary_files.warn(find_warnings(documents))
    for line in notes:
        terminal.note(f"Note: {plain(line)}.")
    return bool(changes)


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
        notes = suites.notes_on_plan(store, documents, managed_by=managed_by)
    return [asdict(change) for change in changes], notes, settings
