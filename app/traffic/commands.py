"""`coalmine traffic` and `coalmine suggest`: queries of users taken in, and those that no canary stands for.

And what `coalmine demo` puts in, once: traffic of its users, and a task that two annotators have finished. Only the
shipped suite and retriever get them. What somebody deleted or archived since does not come back.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from app.annotation.documents import TaskDocument
from app.annotation.service import annotations, tasks
from app.annotation.store import task_rows as rows
from app.annotation.views import TaskState
from app.base import terminal
from app.base.commands import DataDir, ServerUrl, examples, note, now
from app.base.db.engine import Store
from app.base.documents.parsing import file_source
from app.base.errors import CoalmineError, ConflictError, NotFoundError
from app.base.texts import Source, Table, counted, plain
from app.catalog import store as catalog
from app.catalog.service import references
from app.definitions.client import Server
from app.definitions.commands.resources import connect_server, open_database
from app.traffic.documents.queries import ReadTraffic, read_traffic
from app.traffic.domain import SuggestionView
from app.traffic.service import intake, reach
from app.traffic.store import find_reach

app = typer.Typer(rich_markup_mode=None)

_PART: Final = 2_500
"""Lines sent at a time, which shows progress and is little to send again."""

Suite = Annotated[str | None, typer.Option(help="The suite whose users asked; default: the only one.")]
Retriever = Annotated[str | None, typer.Option(help="The retriever that was asked; default: the only one.")]
_SHOWN: Final = 20


@app.command("traffic", epilog=examples("coalmine traffic queries.csv --suite docs --retriever search"))
def send_traffic(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV or JSON: query[,count,at]; user_query,timestamp; or an export of a tracing tool."
        ),
    ],
    *,
    suite: Suite = None,
    retriever: Retriever = None,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Add queries of users to the traffic of a suite. They are normalised, kept for 30 days, and never exported."""
    with terminal.reading([(file.name, file.stat().st_size if file.exists() else 0)]) as bar:
        source = file_source(file, bar(0))
        found = read_traffic([source], now=now())
    if server is None:
        with open_database(data_dir) as (_, store):
            suite = suite or _only("suite", _slugs(store, "suite"))
            retriever = retriever or _only("retriever", _slugs(store, "retriever"))
            answer = intake.add_traffic(store, suite, retriever, found, now=now())
        new, notes = answer["new"], answer["notes"]
    else:
        client = connect_server(server)
        suite = suite or _only("suite", client.slugs("suites"))
        retriever = retriever or _only("retriever", client.slugs("retrievers"))
        new, notes = _upload(client, suite, retriever, found, upload=_upload_id(file_source(file)))
    typer.echo(f"{counted(len(found.queries), 'distinct query')} read, {new:,} of them new")
    for line in dict.fromkeys(notes):
        times = notes.count(line)
        note(line if times == 1 else f"{times} parts: {line}")


def _upload(client: Server, suite: str, retriever: str, found: ReadTraffic, *, upload: str) -> tuple[int, list[str]]:
    """Send queries part by part, with progress; how many were new, and notes."""
    new, notes = 0, intake.left_out_notes(found)
    parts = _parts(found)
    with terminal.counting("sending queries") as moved:
        done, total = 0, sum(part.count("\n") + 1 for part in parts)
        moved(0, total)
        for sent, part in enumerate(parts):
            try:
                answer = client.send_traffic(suite, retriever, part, key=f"{upload}-{sent + 1}-of-{len(parts)}")
            except CoalmineError:
                if sent:
                    arrived = f"{sent} of {len(parts)} parts arrived."
                    note(f"{arrived} Send the same file again within a day: they are not counted twice.")
                raise
            new += answer["new"]
            notes += answer["notes"]
            done += part.count("\n") + 1
            moved(done, total)
    return new, notes


@app.command("suggest", epilog=examples("coalmine suggest --suite docs --retriever search --n 30"))
def show_suggestions(
    *,
    suite: Suite = None,
    retriever: Retriever = None,
    n: Annotated[int, typer.Option("--n", min=1, max=500, help="At most so many.")] = 30,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """List queries of users that no canary stands for: one of each group of documents, the most traffic first.

    They carry no expectations. Ask for the reach of the suite first: the page of its traffic has a button.
    """
    found: list[SuggestionView]
    if server is not None:
        client = connect_server(server)
        suite = suite or _only("suite", client.slugs("suites"))
        retriever = retriever or _only("retriever with traffic", [one["retriever"] for one in client.traffic(suite)])
        found = client.suggestions(suite, retriever, limit=n)
    else:
        with open_database(data_dir) as (_, store):
            suite = suite or _only("suite", _slugs(store, "suite"))
            retriever = retriever or _only(
                "retriever with traffic", [one["retriever"] for one in intake.load_traffic(store, suite)]
            )
            found = reach.suggest(store, suite, retriever, limit=n)
    rows = []
    for one in found:
        guesses = [*one["segments"], *(["perhaps negative"] if one["negative_candidate"] else [])]
        rows.append((plain(one["query"]), plain(one["group"]), f"{one['traffic']:,.0f}", ", ".join(guesses)))
    terminal.show_table(
        Table(title="Suggestions", columns=("query", "group", "traffic", "segment, guessed"), rows=tuple(rows))
    )


def _only(kind: str, slugs: Sequence[str]) -> str:
    """Return the only one of these. Raises ConflictError that lists them otherwise."""
    if len(slugs) == 1:
        note(f"{kind.capitalize()}: {plain(slugs[0])} (the only one)")
        return slugs[0]
    if not slugs:
        raise NotFoundError(f"there is no {kind} yet")
    option = kind.partition(" ")[0]
    more = f" and {len(slugs) - _SHOWN:,} more" if len(slugs) > _SHOWN else ""
    raise ConflictError(f"say which with --{option}: {', '.join(map(plain, slugs[:_SHOWN]))}{more}")


def _slugs(store: Store, kind: str) -> list[str]:
    return [one.slug for one in references.load_definitions(store, kind)]


def _upload_id(source: Source) -> str:
    """Return what names a file by its lines: the same file, sent again, is known part by part."""
    digest = hashlib.sha256()
    for line in source.lines():
        digest.update(line.encode())
    return digest.hexdigest()[:32]


def _parts(found: ReadTraffic) -> list[str]:
    """Return JSON lines: of each query its first time, and the rest at its last."""
    lines = [
        json.dumps({"query": one.query, "count": count, "at": at.isoformat()})
        for one in found.queries
        for count, at in ((1, one.first), (one.count - 1, one.last))
        if count
    ]
    return ["\n".join(lines[start : start + _PART]) for start in range(0, len(lines), _PART)]


SUITE: Final = "dataforge"
RETRIEVER: Final = "docs-search"
TASK: Final = "demo"
_KEYS: Final = ("oauth2-setup", "data-retention", "api-rate-limit", "trial-length")
_BY: Final = "demo"


def begin_demo(store: Store, sources: Sequence[Source], *, now: datetime) -> bool:
    """Put traffic and the task in, and ask for reach and pool; whether the task is left to be finished.

    Nothing happens without the shipped suite and retriever, nor where there ever was a task of this slug.
    """
    with store.read() as connection:
        known = rows.documents_of(connection, [TASK])
        task = rows.find_task(connection, TASK)
        suite = catalog.find_definition(connection, "suite", SUITE)
        retriever = catalog.find_definition(connection, "retriever", RETRIEVER)
        keys = set() if suite is None else {row.key for row in catalog.list_canaries(connection, suite.id)}
    if known:
        return task is not None and task.created_by == _BY
    if suite is None or retriever is None or retriever.archived_at is not None or not keys.issuperset(_KEYS):
        return False
    document = TaskDocument(
        slug=TASK, suite=SUITE, retrievers=(RETRIEVER,), keys=_KEYS, pool=5, strata=(), overlap=1.0, seed=0
    )
    if not intake.load_traffic(store, SUITE):
        intake.add_traffic(store, SUITE, RETRIEVER, read_traffic(sources, now=now), now=now)
    with store.read() as connection:
        is_asked = find_reach(connection, suite.id, RETRIEVER) is not None
    if not is_asked:
        reach.request_reach(store, SUITE, RETRIEVER, grouping=None, now=now)
    tasks.put_task(store, document, by=_BY, now=now, only_new=True)
    tasks.request_pool(store, TASK, now=now)
    return True


def finish_demo(store: Store, sources: Sequence[Source], *, now: datetime) -> bool:
    """Add what the annotators said once the pool is there; False = it is not there yet."""
    try:
        with store.read() as connection:
            task = tasks.find_task(connection, TASK)
            is_annotated = bool(rows.list_annotations(connection, task.id))
        if task.state is not TaskState.POOLED:
            if task.pool_requested_at is None:
                tasks.request_pool(store, TASK, now=now)
            return False
        if not is_annotated:
            annotations.import_annotations(store, TASK, sources, now=now)
    except (NotFoundError, ConflictError):  # somebody archived it meanwhile
        return True
    return True


def seed_demo(
    store: Store,
    *,
    traffic_file: Source,
    annotations_file: Source,
    clock: Callable[[], datetime],
    wait: Callable[[], bool],
    wake: Callable[[], None],
) -> None:
    """Put the samples in, and wait for the pool by `wait`, which returns False once it should be given up."""
    if not begin_demo(store, [traffic_file], now=clock()):
        return
    wake()
    while not finish_demo(store, [annotations_file], now=clock()) and wait():
        pass
