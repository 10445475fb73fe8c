"""What all commands share: how refusals are said, the options many have, and opening the store or a server."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from app import terminal
from app.adapters.remote import Server
from app.config import Settings, load_settings, read_api_key
from app.domain.errors import CoalmineError, ConfigurationError
from app.formats.canary_files import Documents, read_canary_files
from app.formats.files import canary_texts, read_secret
from app.formats.reports import plain
from app.formats.shapes import time_text
from app.main import USER_AGENT, database_file, open_store
from app.services.vault import KEY_FILE
from app.store.engine import Store, from_us

REFUSED, INTERRUPTED, UNREAD = 2, 130, 141


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


DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the embedded database; default: COALMINE_DATA_DIR or ./data.")
]
Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Canary files, or folders of them.")]
ServerUrl = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="A running service instead; the key is taken from COALMINE_API_KEY."),
]


def read_files(paths: Sequence[Path], *, retrievers_alone: bool = False) -> Documents:
    """Read canary files and folders of them, or the retrievers in them. Raises InvalidInputError with every problem."""
    texts = {name: text for path in paths for name, text in canary_texts(path)}  # a file once, however often named
    return read_canary_files(list(texts.items()), os.environ, read_secret, retrievers_alone=retrievers_alone)


@contextmanager
def opened(data_dir: Path | None, *, create: bool = False) -> Iterator[tuple[Settings, Store]]:
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


def server_at(url: str) -> Server:
    """Speak to a running service, with the key of the environment."""
    return Server(url, read_api_key(os.environ), user_agent=USER_AGENT)


def at_text(microseconds: int | None) -> str:
    """Write a stored time for a table; nothing where there is none."""
    return (time_text(from_us(microseconds).replace(microsecond=0)) or "") if microseconds is not None else ""


def now() -> datetime:
    """Tell the time."""
    return datetime.now(UTC)
