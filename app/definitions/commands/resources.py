"""`coalmine diff`, `apply`, `export`, `migrate`, `import` and `secrets`: definitions of files, store and services.

Beside them what other commands open too: the database of this machine, or a server.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from app import USER_AGENT
from app.base import terminal
from app.base.commands import Commands, DataDir, Paths, ServerUrl, examples, note, now
from app.base.db.engine import Store, from_us
from app.base.db.files import lock_for_new_key, revisions
from app.base.db.files import migrate as migrate_store
from app.base.db.keys import Vault
from app.base.documents.parsing import file_source
from app.base.errors import CoalmineError, ConfigurationError, InvalidInputError, Problem
from app.base.texts import counted, plain
from app.base.values import asdict
from app.base.views import time_text
from app.catalog.documents.canary_export import import_pages, write_canary_file
from app.catalog.documents.canary_files import Documents, read_files
from app.catalog.documents.warnings import find_warnings, suite_notes
from app.catalog.exchange import FORMATS, archived_note
from app.catalog.exchange.csv import COLUMNS, IGNORED, parse_columns
from app.catalog.exchange.suite_builder import ImportedSuite, SuiteBuilder, parse_grades
from app.catalog.service import suites
from app.catalog.service.vault import KEY_FILE, open_vault, rotate_key_file
from app.catalog.service.vault import rotate as rotate_store
from app.catalog.store import API, FILE
from app.config import Settings, load_settings, read_api_key
from app.definitions.client import Server
from app.definitions.commands import canary_files
from app.definitions.service import applying, definitions
from app.hooks.client.webhook import addresses_of
from app.hooks.service.hooks import notes_on_hooks
from app.wiring import create_database_file, open_store

DIFFERS = 1
_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z0-9_]+)\}")

app = typer.Typer(rich_markup_mode=None)
secrets_app = typer.Typer(
    cls=Commands, help="Change the key of stored secrets.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(secrets_app, name="secrets")


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
        note(f"Written to {path}.")
    variables = dict.fromkeys(_VARIABLE.findall(text))
    if variables:
        note(f"To read it back, set: {', '.join(variables)}")


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
            note(
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
        note(f"Written to {file}.")
    for line in notes:
        note(f"Note: {plain(line)}.")


def _plan(paths: Sequence[Path], server: str | None, data_dir: Path | None, *, dry_run: bool) -> bool:
    documents = read_files(paths, os.environ)
    changes: Sequence[Mapping[str, Any]]
    if server is not None:
        changes, notes = connect_server(server).import_documents(import_pages(documents), dry_run=dry_run)
    else:
        changes, notes, settings = apply_here(documents, data_dir, managed_by=FILE, dry_run=dry_run)
        hooks = [hook.data() for hook in documents.hooks]
        notes += [f"hook {slug}: {note}" for slug, note in notes_on_hooks(settings.hook_addresses, hooks, addresses_of)]
    canary_files.show_plan(changes, applied=not dry_run)
    canary_files.warn(find_warnings(documents))
    for line in notes:
        note(f"Note: {plain(line)}.")
    return bool(changes)


@contextmanager
def open_database(data_dir: Path | None, *, create: bool = False) -> Iterator[tuple[Settings, Store]]:
    """Open the configured database and print its path: a folder is easily mistaken for another."""
    settings = load_settings(os.environ, data_dir=data_dir)
    file = settings.database_file
    is_new = file is not None and not file.exists()
    store = open_store(settings, create=create)
    try:
        note(f"Database: {store.place}{' (new)' if is_new else ''}")
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


_NAMES = "|".join(FORMATS)
_SHOWN = 20
"""Changes that are listed: an import is mostly many of one kind."""


@app.command(
    "import",
    epilog=examples(
        "coalmine import --from trec topics.txt qrels.txt --suite legal",
        "coalmine import --from csv questions.csv --column article=id --suite help",
        "coalmine import --from beir datasets/scifact --suite scifact --to canaries/scifact.yaml",
        "coalmine import --from quepid book.csv --suite shop --server https://coalmine.example",
    ),
)
def import_suite(  # noqa: PLR0913 - options of a command
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="The files, or the folder they are in.")],
    *,
    form: Annotated[str, typer.Option("--from", metavar=_NAMES, help="Whose files they are.")],
    suite: Annotated[str | None, typer.Option(help="Name of the suite; default: that of the first path.")] = None,
    to: Annotated[str | None, typer.Option(metavar="FILE|-", help="Write a canary file, and import nothing.")] = None,
    as_documents: Annotated[
        bool, typer.Option("--as-documents", help="What they call a document is one here too, not a chunk.")
    ] = False,
    split: Annotated[str, typer.Option(help="Of BEIR: which qrels/SPLIT.tsv (or .jsonl).")] = "test",
    grades: Annotated[
        str | None, typer.Option(metavar="MAP", help="What grades mean: 1=0,2=1,3=2,4=3, or their scale, 0-4.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help=f"What a column of a CSV is, such as article=id; may be repeated. COLUMN is one of "
            f"{', '.join(COLUMNS)}; or {IGNORED}.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Import a suite from another tool's queries and judgments, all of it or nothing.

    What the files hold and a suite cannot is said. The canaries are managed by the API afterwards; with --to they
    become a canary file to keep with the code.
    """
    if form not in FORMATS:
        raise typer.BadParameter(f"'{form}' is not a format; there are: {', '.join(FORMATS)}", param_hint="--from")
    builder = SuiteBuilder(
        as_document=as_documents, grades=parse_grades(grades), columns=parse_columns(column or (), form)
    )
    imported = _read(form, _list_files(paths, split), suite or _suite_slug(paths[0]), builder)
    documents = Documents(suites=(imported.suite,))
    changes: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    if to is not None:
        _write_file(to, write_canary_file(documents))
        notes = suite_notes(documents)
    elif server is not None:
        changes, notes = connect_server(server).import_documents(import_pages(documents), dry_run=dry_run)
    else:
        changes, notes, _ = apply_here(documents, data_dir, managed_by=API, dry_run=dry_run)
    if to is None:
        canary_files.show_plan(changes, applied=not dry_run, most=_SHOWN)
        archived = sum(change["action"] == "archive" and change["kind"] == "canary" for change in changes)
        notes = [*notes, archived_note(archived)] if archived else notes
    canary_files.warn(find_warnings(documents))
    for line in (*imported.notes, *notes):
        note(f"Note: {plain(line)}.")
    size = f"{counted(len(imported.suite.canaries or ()), 'canary')}, {counted(imported.judgments, 'judgment')}"
    note(f"Suite {imported.suite.slug}: {size}.")


def _read(form: str, files: Sequence[Path], suite: str, builder: SuiteBuilder) -> ImportedSuite:
    # Each file is looked into before it is read, which moves the bar by a block at most.
    with terminal.reading([(file.name, file.stat().st_size) for file in files]) as bar:
        sources = [file_source(file, bar(number)) for number, file in enumerate(files)]
        FORMATS[form].read(sources, builder)
    return builder.build(suite)


def _list_files(paths: Iterable[Path], split: str) -> list[Path]:
    """Return the files of the paths; of a folder those in it and, for BEIR, the qrels of the split."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inner = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
        qrels = [*sorted((path / "qrels").glob(f"{split}.tsv*")), *sorted((path / "qrels").glob(f"{split}.jsonl*"))][:1]
        if (path / "qrels").is_dir() and not qrels:
            names = ", ".join(sorted(one.name for one in (path / "qrels").iterdir()))
            message = f"has no qrels/{split}.tsv; there are: {names}; choose with --split"
            raise InvalidInputError([Problem(file=str(path), message=message)])
        files += [*inner, *qrels]
        if not inner and not qrels:
            raise InvalidInputError([Problem(file=str(path), message="is an empty folder")])
    return files


def _suite_slug(path: Path) -> str:
    words = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in path.name.split(".")[0].lower())
    slug = "-".join(word for word in words.split("-") if word)[:64]
    if not slug:
        raise typer.BadParameter("say the name of the suite", param_hint="--suite")
    return slug


def _write_file(to: str, text: str) -> None:
    if to == "-":
        typer.echo(text, nl=False)
        return
    if os.path.lexists(to):
        raise InvalidInputError(
            [
                Problem(
                    file=to,
                    message="is there already, so nothing was written; name another file with --to, or remove this",
                )
            ]
        )
    Path(to).write_text(text, encoding="utf-8")
    note(f"Written to {to}.")


@secrets_app.callback()
def secrets() -> None:
    """Change the key of stored secrets."""


@secrets_app.command(
    epilog=examples('COALMINE_SECRET_KEY="new,old" coalmine secrets rotate', "coalmine secrets rotate --new-key")
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
            then = f"{path} holds that key alone."
            if new_key and file is None:
                then = (
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
            then = "Once every service knows it, COALMINE_SECRET_KEY needs no other key." if several else ""
    whose = " and ".join(counted(count, kind) for kind, count in sorted(rotated.moved.items(), reverse=True))
    if whose:
        summary = f"The secrets of {whose} were encrypted anew under the first key, those of their past versions too."
    elif rotated.count:
        summary = "Nothing to rotate: every stored secret was under the first key already."
    else:
        summary = "No secret is stored, so nothing had to be encrypted anew."
    typer.echo(f"{summary} {then}".rstrip())
    if rotated.unreadable:
        them = counted(rotated.unreadable, "past version")
        note(f"The secrets of {them} open with none of the keys: they were left as they are, and are lost.")
