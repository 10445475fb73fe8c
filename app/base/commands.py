"""What all commands share and what costs nothing to import: error output, common options, the end by signals.

What opens a store or a server is in `definitions.commands.resources`: it loads the whole service, which `--version`
does without.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from app.base.errors import CoalmineError, InvalidInputError, Problem

REFUSED, INTERRUPTED, UNREAD = 2, 130, 141


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def flush_output() -> None:
    """Write out the buffered result. Raises BrokenPipeError where nobody reads it any more."""
    sys.stdout.flush()


def discard_output() -> None:
    """Discard the buffered result, since nobody reads it."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.close(sink)


def note(line: str) -> None:
    """Print a line beside the result."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def show_error(error: CoalmineError) -> None:
    """Print every problem on a line: those of files begin with file and line, as editors and CI like it."""
    from app.base.texts import plain  # noqa: PLC0415 - takes as long to load as all the rest

    if isinstance(error, InvalidInputError):
        for problem in error.problems:
            note(f"{plain(str(problem))}")
        return
    for line in str(error).splitlines():
        note(f"coalmine: {plain(line)}")


class Commands(TyperGroup):
    """A group of commands that prints refusals plainly, whichever command they come from."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Parse the arguments, or answer those that are answered at once, such as --help."""
        try:
            return super().make_context(*arguments, **named)
        except BrokenPipeError as error:
            discard_output()
            raise typer.Exit(UNREAD) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CoalmineError as error:
            show_error(error)
            raise typer.Exit(REFUSED) from error
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's word, not one for people
            raise
        except BrokenPipeError as error:
            discard_output()
            raise typer.Exit(UNREAD) from error
        except OSError as error:
            if error.filename is None:
                raise
            show_error(CoalmineError(f"{error.filename}: {error.strerror}"))
            raise typer.Exit(REFUSED) from error
        except KeyboardInterrupt as error:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from error


def examples(*lines: str) -> str:
    """Examples that end a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def variable_values(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of options by name. Raises InvalidInputError for what is not of the form NAME=VALUE."""
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise InvalidInputError([Problem(path="--var", message=f"'{one}' is not NAME=VALUE") for one in wrong])
    return dict(pair.split("=", 1) for pair in pairs)


DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the embedded database; default: COALMINE_DATA_DIR or ./data.")
]
Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Canary files, or folders of them.")]
Variables = Annotated[
    list[str] | None, typer.Option("--var", metavar="NAME=VALUE", help="An option of the retriever, for this query.")
]
ServerUrl = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="A running service instead; the key is taken from COALMINE_API_KEY."),
]


class Ending:
    """The handler of signals: the first begins an orderly end, which the next one cuts short."""

    def __init__(self) -> None:
        self.begun = False

    def __call__(self, _number: int, _frame: FrameType | None) -> NoReturn:
        """Unwind everything by a KeyboardInterrupt."""
        self.begin()
        raise KeyboardInterrupt

    def begin(self) -> None:
        """Note that the end has begun; leave at once where it had."""
        if self.begun:
            os._exit(INTERRUPTED)
        self.begun = True


@contextmanager
def stopped_by_signals() -> Iterator[Ending]:
    """Let Ctrl-C and SIGTERM end the process, by a KeyboardInterrupt that unwinds everything; a second one at once."""
    ending = Ending()
    before = {number: signal.signal(number, ending) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
