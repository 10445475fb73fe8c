"""`coalmine keys`: create, list and revoke API keys."""

from typing import Annotated

import typer

from app.base import terminal
from app.base.commands import Commands, DataDir, examples, note, now
from app.base.db import keys
from app.base.texts import Table, plain
from app.definitions.commands.resources import format_time, open_database

app = typer.Typer(cls=Commands, help="Create, list and revoke API keys.", no_args_is_help=True, rich_markup_mode=None)


@app.command(epilog=examples("coalmine keys create --scope write --name ci"))
def create(
    *,
    scope: Annotated[
        keys.Scope, typer.Option(help="What the key may do: grade chunks, send traffic, or read, write, administer.")
    ],
    name: Annotated[str, typer.Option(help="Whose key it is, for the list.")] = "unnamed",
    data_dir: DataDir = None,
) -> None:
    """Create an API key and show it once, on stdout."""
    with open_database(data_dir, create=True) as (_, store):
        key = keys.create_key(store, name=name, scope=scope, now=now())
    typer.echo(key)
    note("This is shown once. Send it as `Authorization: Bearer KEY`; without a key nothing is open any more.")


@app.command("list", epilog=examples("coalmine keys list"))
def list_keys(*, data_dir: DataDir = None) -> None:
    """List the API keys, revoked ones included."""
    with open_database(data_dir) as (_, store):
        rows = keys.list_keys(store)
    cells = [
        (row.prefix, plain(row.name), row.scope, *map(format_time, (row.created_at, row.last_used_at, row.revoked_at)))
        for row in rows
    ]
    columns = ("id", "name", "scope", "created", "last used", "revoked")
    terminal.show_table(Table(title="API keys", columns=columns, rows=tuple(cells)))


@app.command(epilog=examples("coalmine keys revoke 1f0a3b5c7d"))
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")], *, data_dir: DataDir = None
) -> None:
    """Revoke an API key at once; its sessions end too."""
    with open_database(data_dir) as (_, store):
        keys.revoke_key(store, key, now=now())
    note(f"Key {key} is revoked.")
