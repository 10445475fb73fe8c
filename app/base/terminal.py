"""Output of commands, texts of others drawn literally. Results on stdout, all else on stderr."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from app.base.texts import UNDEFINED, Table, plain

_PIPED_WIDTH = 160  # where there is no terminal to ask, wide enough for a log or a pager


def show_table(table: Table) -> None:
    """Show a table by itself."""
    draw(open_console(), table)


@contextmanager
def progress(sizes: Sequence[tuple[str, int]]) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Draw a bar for each (name, size); yields the function that returns the one that advances the n-th."""
    with _bars("MofNCompleteColumn") as bars:
        tasks = [bars.add_task(plain(name), total=size) for name, size in sizes]
        yield lambda number: lambda count: bars.advance(tasks[number], count)


@contextmanager
def counting(name: str) -> Iterator[Callable[[int, int], None]]:
    """Draw one bar; yields the function that sets how much of how much is done."""
    with _bars("MofNCompleteColumn") as bars:
        task = bars.add_task(plain(name), total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def reading(sizes: Sequence[tuple[str, int]]) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Draw a bar of bytes for each (file, size); yields the function that returns the one that advances the n-th."""
    with _bars("DownloadColumn") as bars:
        tasks = [bars.add_task(plain(name), total=size) for name, size in sizes]
        yield lambda number: lambda count: bars.advance(tasks[number], count)


class _NoBars:
    """Bars that nobody would see."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End."""

    def add_task(self, name: str, total: int | None) -> int:
        """Add nothing."""
        del name, total
        return 0

    def advance(self, task: Any, count: int) -> None:
        """Advance nothing."""

    def update(self, task: Any, *, completed: int, total: int) -> None:
        """Set nothing."""


def _bars(amount: str) -> Any:
    """Return bars with a column of this kind of rich's; without a terminal none, and rich's are not loaded."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        return _NoBars()
    from rich import progress  # noqa: PLC0415 - a gate in a pipeline starts sooner without

    name = progress.TextColumn("{task.description}", markup=False)
    columns = (name, progress.BarColumn(), getattr(progress, amount)(), progress.TimeElapsedColumn())
    return progress.Progress(*columns, console=console, transient=True)


class _Console(Console):
    """Leaves a closed pipe to the command, which knows the exit code; rich would exit with that of a degraded check."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def open_console() -> Console:
    """Return a console on stdout, as wide as its terminal or, piped, as a log likes it."""
    console = _Console(highlight=False)
    if console.is_terminal or os.environ.get("COLUMNS"):
        return console
    return _Console(highlight=False, width=_PIPED_WIDTH)


def draw(console: Console, table: Table) -> None:
    """Draw a table, its note below it; where words would be broken for want of room, a record for each row instead."""
    if not table.rows:
        console.print(Text(f"{table.title}: none" if table.title else "none"))
        return
    title = Text(table.title, style="bold") if table.title else None
    if _least_width(table) > console.width:
        _draw_records(console, table)
        return
    rich_table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        rich_table.add_column(Text(column), overflow="fold")
    for row in table.rows:
        rich_table.add_row(*[Text(cell) for cell in row])
    console.print(rich_table)
    _print_note(console, table)


def _least_width(table: Table) -> int:
    """Return how wide a table is at the least, with no word broken."""
    columns = [(name, *(row[place] for row in table.rows)) for place, name in enumerate(table.columns)]
    return sum(max(cell_len(word) for cell in column for word in cell.split() or [""]) + 2 for column in columns)


def _draw_records(console: Console, table: Table) -> None:
    if table.title:
        console.print(Text(table.title, style="bold"))
    for row in table.rows:
        console.print(Text(row[0], style="bold"))
        for name, cell in zip(table.columns[1:], row[1:], strict=True):
            if cell.strip(UNDEFINED):
                console.print(Padding(Text(f"{name}: {cell}"), (0, 0, 0, 2)))
    _print_note(console, table)


def _print_note(console: Console, table: Table) -> None:
    if table.note:
        console.print(Text(f"{table.note[:1].upper()}{table.note[1:]}.", style="dim"), soft_wrap=True)
