"""Commands on what a service keeps: canary files against its definitions, its API keys, its schema.

They work on the store of the settings or, where that makes sense, on a running service over its API.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from app import terminal
from app.adapters.remote import Server
from app.config import Settings, load_settings, read_api_key
from app.domain.errors import CoalmineError, ConfigurationError
from app.formats.canary_export import import_pages, write_canary_file
from app.formats.canary_files import Documents, read_canary_files
from app.formats.files import canary_texts, read_secret
from app.formats.reports import Table, plain
from app.formats.shapes import time_text
from app.main import USER_AGENT, database_file, make_room, open_store
from app.services import applying, exporting, keys
from app.services.references import FILE
from app.services.vault import KEY_FILE, open_vault
from app.store.engine import Store, from_us
from app.store.migrate import migrate as migrate_store
from app.store.migrate import revisions

DIFFERS, REFUSED, INTERRUPTED, UNREAD = 1, 2, 130, 141
_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z0-9_]+)\}")


class Commands(TyperGroup):
    """A group of commands that says refusals plainly, whichever command they come from."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Read the arguments, or answer those that are answered at once, such as --help."""
        try:
            return super().make_context(*arguments, **named)
        except BrokenPipeError as error:
            terminal.drop()
            raise typer.Exit(UNREAD) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CoalmineError as error:
            terminal.complain(error)
            raise typer.Exit(REFUSED) from error
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's word, not one for people
            raise
        except BrokenPipeError as error:
            terminal.drop()
            raise typer.Exit(UNREAD) from error
        except OSError as error:
            if error.filename is None:
                raise
            terminal.note(f"coalmine: {plain(str(error.filename))}: {error.strerror}")
            raise typer.Exit(REFUSED) from error
        except KeyboardInterrupt as error:
            terminal.note("Interrupted.")
            raise typer.Exit(INTERRUPTED) from error


def examples(*lines: str) -> str:
    """Write the examples that end a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


app = typer.Typer(cls=Commands, rich_markup_mode=None)
key_commands = typer.Typer(
    cls=Commands, help="Create, list and revoke API keys.", no_args_is_help=True, rich_markup_mode=None
)
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the embedded database; default: COALMINE_DATA_DIR or ./data.")
]
Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Canary files, or folders of them.")]
ServerUrl = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="A running service instead; the key is taken from COALMINE_API_KEY."),
]


@app.command(epilog=examples("coalmine validate canaries"))
def validate(paths: Paths) -> None:
    """Say everything that is wrong with canary files, each with file and line."""
    terminal.show_documents(read_files(paths))


@app.command(epilog=examples("coalmine diff canaries", "coalmine diff canaries --server https://coalmine.example"))
def diff(
    paths: Paths,
    *,
    server: ServerUrl = None,
    data_dir: DataDir = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when something would change.")] = False,
) -> None:
    """Show what `apply` would change, changing nothing.

    Exit code 0 whether or not something would change, but for --exit-code; 2: unusable input.
    """
    if _plan(paths, server, data_dir, dry_run=True) and exit_code:
        raise typer.Exit(DIFFERS)


@app.command(epilog=examples("coalmine apply canaries", "coalmine apply canaries --server https://coalmine.example"))
def apply(paths: Paths, *, server: ServerUrl = None, data_dir: DataDir = None) -> None:
    """Put canary files in force, all of them or none; what they no longer hold is archived.

    With --server the objects are managed by the API afterwards, and nothing of others is archived.
    """
    _plan(paths, server, data_dir, dry_run=False)


@app.command(epilog=examples("coalmine export > canaries.yaml", "coalmine export backup.yaml"))
def export(
    path: Annotated[str, typer.Argument(metavar="[PATH|-]", help="File to write; - is stdout.")] = "-",
    *,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Write everything in force as a canary file; secrets become ${VARIABLES} to be set."""
    if server is not None:
        text = _server(server).export()
    else:
        with _opened(data_dir) as (_, store):
            text = write_canary_file(exporting.in_force(store))
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
    """Bring the database to the schema of this release; `serve` does it by itself on SQLite."""
    settings = load_settings(os.environ, data_dir=data_dir, auto_migrate=False)
    make_room(settings)
    store = Store(settings.database)
    try:
        before, wanted = revisions(store)
        migrate_store(store)
        moved = "has the schema already" if before == wanted else f"migrated from {before or 'nothing'}"
        typer.echo(f"{store.place}: {moved}, now at {wanted}")
    finally:
        store.close()


@key_commands.command(epilog=examples("coalmine keys create --scope write --name ci"))
def create(
    *,
    scope: Annotated[keys.Scope, typer.Option(help="What the key may do; each includes those before it.")],
    name: Annotated[str, typer.Option(help="Whose key it is, for the list.")] = "unnamed",
    data_dir: DataDir = None,
) -> None:
    """Create an API key and show it, for the only time, on stdout."""
    with _opened(data_dir, create=True) as (_, store):
        key = keys.create_key(store, name=name, scope=scope, now=_now())
    typer.echo(key)
    terminal.note("This is shown once. Send it as `Authorization: Bearer KEY`; without a key nothing is open any more.")


@key_commands.command("list", epilog=examples("coalmine keys list"))
def list_keys(*, data_dir: DataDir = None) -> None:
    """List the API keys, revoked ones included."""
    with _opened(data_dir) as (_, store):
        rows = keys.list_keys(store)
    cells = [
        (row.prefix, plain(row.name), row.scope, *map(_at, (row.created_at, row.last_used_at, row.revoked_at)))
        for row in rows
    ]
    columns = ("id", "name", "scope", "created", "last used", "revoked")
    terminal.show_table(Table(title="API keys", columns=columns, rows=tuple(cells)))


@key_commands.command(epilog=examples("coalmine keys revoke 1f0a3b5c7d"))
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")], *, data_dir: DataDir = None
) -> None:
    """Revoke an API key at once; its sessions end too."""
    with _opened(data_dir) as (_, store):
        keys.revoke_key(store, key, now=_now())
    terminal.note(f"Key {key} is revoked.")


def read_files(paths: Sequence[Path]) -> Documents:
    """Read canary files and folders of them. Raises InvalidInputError with every problem."""
    texts = {name: text for path in paths for name, text in canary_texts(path)}  # a file once, however often named
    return read_canary_files(list(texts.items()), os.environ, read_secret)


def _plan(paths: Sequence[Path], server: str | None, data_dir: Path | None, *, dry_run: bool) -> bool:
    """Show what files change, or would; whether that is anything."""
    documents = read_files(paths)
    changes: Sequence[Mapping[str, Any]]
    if server is not None:
        changes = _server(server).import_documents(import_pages(documents), dry_run=dry_run)
    else:
        with _opened(data_dir, create=not dry_run) as (settings, store):
            expect_own_key(settings)
            vault = open_vault(
                settings.secret_key, settings.data_dir, store, loopback=True, keep=not dry_run, readable=False
            )
            if dry_run:
                found = applying.diff(store, vault, documents, managed_by=FILE)
            else:
                found = applying.apply(store, vault, documents, managed_by=FILE, now=_now())
        changes = [asdict(change) for change in found]
    terminal.show_plan(changes, applied=not dry_run)
    return bool(changes)


@contextmanager
def _opened(data_dir: Path | None, *, create: bool = False) -> Iterator[tuple[Settings, Store]]:
    """Open the database of the settings and say which it is: a folder is easily mistaken for another."""
    settings = load_settings(os.environ, data_dir=data_dir)
    file = database_file(settings)
    made = file is not None and not file.exists()
    store = open_store(settings, create=create)
    try:
        terminal.note(f"Database: {store.place}{' (new)' if made else ''}")
        yield settings, store
    finally:
        store.close()


def expect_own_key(settings: Settings) -> None:
    """Refuse to make up a key that would be of no use to a service on another machine. Raises ConfigurationError."""
    generated = settings.embedded or (settings.data_dir / KEY_FILE).exists()
    if settings.secret_key is None and not generated:
        raise ConfigurationError("COALMINE_SECRET_KEY must be set to the service's own, or it cannot read the secrets")


def _server(url: str) -> Server:
    return Server(url, read_api_key(os.environ), user_agent=USER_AGENT)


def _at(microseconds: int | None) -> str:
    return (time_text(from_us(microseconds).replace(microsecond=0)) or "") if microseconds is not None else ""


def _now() -> datetime:
    return datetime.now(UTC)


app.add_typer(key_commands, name="keys")
