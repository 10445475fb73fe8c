"""The `coalmine` command: flags and files in, services called, results on stdout, all else on stderr.

Exit codes: 0 done, 1 degraded (`check`), different (`diff --exit-code`), worse or a trade (`compare`), 2 refused, with
every reason on a line, 3 nothing could be measured (`check`), 70 a bug, 130 interrupted, 141 nobody reads the result.
The module of a command is imported when the command is run or when the help lists it: the whole service takes seconds
to load.
"""

import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.main import get_group_from_info
from typer.models import TyperInfo

from app import __version__
from app.commands import base
from app.commands.base import Commands, examples

BUG = 70

_MODULES: Final[Mapping[str, str]] = {
    "serve": "service",
    "work": "service",
    "demo": "service",
    "check": "gate",
    "validate": "validation",
    "diff": "catalog",
    "apply": "catalog",
    "export": "catalog",
    "migrate": "catalog",
    "import": "imports",
    "replay": "replays",
    "rescore": "rescorings",
    "reanchor": "reanchors",
    "quality": "quality",
    "compare": "comparing",
    "traffic": "traffic",
    "suggest": "traffic",
    "corpus": "corpora",
    "draft": "drafts",
    "try": "trials",
    "keys": "keys",
    "secrets": "secrets",
}
"""The module of `app.commands` that has a command, in the order of the help."""
_GROUPS: Final = ("keys", "secrets")
"""Commands with commands of their own."""


class LazyCommands(Commands):
    """The commands by name; their modules are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands in the order of the help."""
        return [*_MODULES, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None where there is none of that name."""
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        of_module = import_module(f"app.commands.{_MODULES[cmd_name]}").app
        name = cmd_name if cmd_name in _GROUPS else "commands"
        info = TyperInfo(of_module, name=name)
        group = get_group_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None, suggest_commands=True)
        return group if cmd_name in _GROUPS else group.commands[cmd_name]


app = typer.Typer(
    cls=LazyCommands,
    help="Watch retrieval with canaries: standing queries with known good answers.",
    epilog=examples("coalmine serve --with-demo", "coalmine check canaries --url http://127.0.0.1:8001/search"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; a bug has an exit code of its own, so that it is not taken for a verdict."""
    try:
        try:
            app()
        finally:
            base.flush_output()
    except BrokenPipeError:
        base.discard_output()
        sys.exit(base.UNREAD)
    except Exception:  # noqa: BLE001 - whatever it is, it is a bug
        traceback.print_exc()
        sys.exit(BUG)


def _version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        typer.echo(f"coalmine {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Take what goes before a command."""
    del version  # its callback has dealt with it


if __name__ == "__main__":
    main()
