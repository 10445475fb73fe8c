"""`coalmine secrets`: changes the key that stored secrets are encrypted under."""

from typing import Annotated

import typer

from app.base import terminal
from app.base.commands import Commands, DataDir, examples
from app.base.db.files import lock_for_new_key
from app.base.errors import ConfigurationError
from app.base.texts import counted
from app.base.vault import Vault
from app.catalog.service.vault import KEY_FILE, rotate_key_file
from app.catalog.service.vault import rotate as rotate_store
from app.definitions.commands.resources import open_database

app = typer.Typer(cls=Commands, help="Change the key of stored secrets.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def secrets() -> None:
    """Change the key of stored secrets."""


@app.command(
    epilog=examples(
        'COALMINE_SECRET_KEY="new,old" coalmine secrets rotate',
        "coalmine secrets rotate --new-key",
    )
)
def rotate(
    *,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make up a new key for the generated secret.key.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Re-encrypt every stored secret under the first of several keys; afterwards only that key is needed.

    With COALMINE_SECRET_KEY: give every service "new,old" and restart it, rotate, then leave "new" alone. With the
    generated key file: stop the service, and rotate with --new-key; on PostgreSQL rotate once more, without it, when
    every service was restarted. All secrets are changed, or none. Browsers that are signed in have to sign in again.
    """
    with open_database(data_dir) as (settings, store):
        if settings.secret_key is None:
            # A service that runs has read the file already, and could not read what is encrypted under another key.
            file, path = settings.database_file, settings.data_dir / KEY_FILE
            with lock_for_new_key(file):
                rotated = rotate_key_file(store, settings.data_dir, new_key=new_key, shared=file is None)
            note = f"{path} holds that key alone."
            if new_key and file is None:
                note = (
                    f"{path} holds the old key too, for what a service that still runs may store: restart every "
                    "service, then rotate again without --new-key."
                )
        elif new_key:
            raise ConfigurationError(
                f"--new-key is for a generated {KEY_FILE}; here COALMINE_SECRET_KEY says the key: "
                'set it to "new,old" and rotate without --new-key'
            )
        else:
            rotated = rotate_store(store, Vault(settings.secret_key))
            several = "," in settings.secret_key
            note = "Once every service knows it, COALMINE_SECRET_KEY needs no other key." if several else ""
    whose = " and ".join(counted(count, kind) for kind, count in sorted(rotated.moved.items(), reverse=True))
    if whose:
        summary = f"The secrets of {whose} were encrypted anew under the first key, those of their past versions too."
    elif rotated.count:
        summary = "Nothing to rotate: every stored secret was under the first key already."
    else:
        summary = "No secret is stored, so nothing had to be encrypted anew."
    typer.echo(f"{summary} {note}".rstrip())
    if rotated.unreadable:
        them = counted(rotated.unreadable, "past version")
        terminal.note(f"The secrets of {them} open with none of the keys: they were left as they are, and are lost.")
