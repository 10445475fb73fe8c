"""The `coalmine` command: flags and files in, services called, results on stdout, all else on stderr.

Exit codes: 0 done, 1 degraded (`check`), late (`plant`), different (`diff --exit-code`), worse or a trade (`compare`),
2 refused, with every reason on a line, 3 nothing could be measured (`check`, `plant`), 70 a bug, 130 interrupted, 141
nobody reads the result.
The module of a command is imported when the command is run or when its own help is asked for: the whole service takes
seconds to load.
"""

import gc
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_group_from_info
from typer.models import TyperInfo

from app import __version__
from app.base import commands as base
from app.base.commands import Commands, examples

# Looking for plugins of pydantic reads the metadata of every package there is; nobody adds any to a command.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

_ALGEBRA_THREADS = "OPENBLAS_NUM_THREADS"
BUG = 70

_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("app.commands", "Run the API, the web pages, the metrics and, by default, a worker."),
    "work": ("app.commands", "Run a worker without the API and pages; any number may share one PostgreSQL database."),
    "demo": ("app.commands", "Run the demo retriever alone: BM25 over a bundled corpus; POST /fault breaks it."),
    "check": ("app.runs.commands.gate", "Run every canary once and judge the answers, without a server or a database."),
    "plant": (
        "app.plants.commands",
        "Plant one document of a check now, and see it found and gone, without a server or a database.",
    ),
    "comment": (
        "app.runs.commands.comment",
        "Put a comment on the pull request or merge request of this CI job, or renew the one that is there.",
    ),
    "validate": ("app.definitions.commands.canary_files", "List all errors in canary files, each with file and line."),
    "diff": ("app.definitions.commands.resources", "Show what `apply` would change."),
    "apply": (
        "app.definitions.commands.resources",
        "Apply canary files in one transaction; definitions no longer in them are archived.",
    ),
    "export": (
        "app.definitions.commands.resources",
        "Write all definitions as one canary file; secrets become ${VARIABLES}.",
    ),
    "migrate": (
        "app.definitions.commands.resources",
        "Migrate the database to this release's schema; on SQLite `serve` does it at start.",
    ),
    "import": (
        "app.definitions.commands.resources",
        "Import a suite from another tool's queries and judgments, all of it or nothing.",
    ),
    "replay": (
        "app.detection.commands",
        "Run the detector over recorded runs, and print its alarms and the canaries they name.",
    ),
    "rescore": ("app.runs.commands.rescorings", "Re-score past runs by the current judgments, from stored rankings."),
    "reanchor": ("app.diagnosis.commands", "List, accept or reject new judgments proposed for renamed chunks."),
    "quality": ("app.diagnosis.commands", "Report the retrieval quality of a check from stored answers."),
    "compare": (
        "app.comparison.commands",
        "Compare two runs, checks or retrievers, and say whether B is better than A.",
    ),
    "traffic": ("app.traffic.commands", "Add queries of users to the traffic of a suite."),
    "suggest": (
        "app.traffic.commands",
        "List queries of users that no canary stands for: one of each group of documents, the most traffic first.",
    ),
    "corpus": (
        "app.annotation.commands",
        "Add texts to a corpus, from which annotation tasks draw random negatives; the same text twice is one.",
    ),
    "draft": (
        "app.answers.commands",
        "Draft queries that texts answer, where users have no log, and write them as CSV, or with --to as canaries.",
    ),
    "accept": (
        "app.answers.commands",
        "Read each proposal with its text, and say whether users might ask it and the text answers it.",
    ),
    "try": ("app.retrievers.commands", "Send a retriever one query and show request, raw answer and mapped hits."),
    "explain": (
        "app.runs.commands.explain",
        "Ask one query and say why each hit matches or not, how near the expected chunks are, and why the verdict.",
    ),
    "keys": ("app.operation.commands", "Create, list and revoke API keys."),
    "secrets": ("app.definitions.commands.resources", "Change the key of stored secrets."),
}
"""The module that has a command, and the first sentence of its help."""
SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Run": ("serve", "work", "demo", "check", "plant", "comment"),
    "Define": ("validate", "diff", "apply", "export", "import", "try"),
    "Look": ("explain", "quality", "compare", "rescore", "reanchor", "replay"),
    "Annotate": ("traffic", "suggest", "corpus", "draft", "accept"),
    "Administer": ("migrate", "keys", "secrets"),
}
"""The commands by what they are for, in the order of the help."""
_WIDTH: Final = max(map(len, _COMMANDS))
_GROUPS: Final = ("keys",)
"""Commands with commands of their own and a module of theirs alone."""


class LazyCommands(Commands):
    """The commands by name; their modules are imported when they are asked for."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        # What there is to choose from, so that one mistyped is answered with the name that was meant.
        names = (name for names in SECTIONS.values() for name in names)
        known = {name: TyperCommand(name, help=_COMMANDS[name][1]) for name in names}
        self.commands = known | dict(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as typer calls it
        """List the commands as _COMMANDS has them, since importing all their modules takes three seconds."""
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(_WIDTH), _COMMANDS[name][1]) for name in names])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None where there is none of that name."""
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        with _one_thread_of_algebra():
            of_module = import_module(_COMMANDS[cmd_name][0]).app
        _collect_garbage()
        name = cmd_name if cmd_name in _GROUPS else "commands"
        info = TyperInfo(of_module, name=name)
        group = get_group_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None, suggest_commands=True)
        return group if cmd_name in _GROUPS else group.commands[cmd_name]


app = typer.Typer(
    cls=LazyCommands,
    help="Watch retrieval with canaries: standing queries with known good answers.",
    epilog=examples("coalmine serve --with-demo", "coalmine check canaries --url http://127.0.0.1:8001/search"),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; a bug has an exit code of its own, so that it is not taken for a verdict."""
    gc.disable()  # until the modules of the command are there
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


@contextmanager
def _one_thread_of_algebra() -> Iterator[None]:
    """Let the library of linear algebra, where NumPy loads it within the block, start no threads of its own.

    They take a fifth of the time to load NumPy, and memory; no array here is large enough for two. Programs that a
    command starts do not inherit it.
    """
    if _ALGEBRA_THREADS in os.environ:
        yield
        return
    os.environ[_ALGEBRA_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_ALGEBRA_THREADS]


def _collect_garbage() -> None:
    """Collect garbage from now on, but never look through what modules are made of, which stays to the end.

    Loading makes some 400,000 objects and hardly any garbage; looking through them took 0.3 s of a start, and 0.2 s
    of each full collection.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


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
