"""`coalmine traffic` and `coalmine suggest`: queries of users taken in, and those that no canary stands for."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from app.base import terminal
from app.base.commands import DataDir, ServerUrl, examples, now
from app.base.db.engine import Store
from app.base.documents.texts import Source, Table, plain
from app.base.errors import CoalmineError, ConflictError, NotFoundError
from app.base.terminal import file_source
from app.base.texts import counted
from app.catalog.service import references
from app.definitions.client import Server
from app.definitions.commands.resources import connect_server, open_database
from app.traffic import service as traffic
from app.traffic.documents import ReadTraffic, read_traffic
from app.traffic.domain import SuggestionView

app = typer.Typer(rich_markup_mode=None)

_PART: Final = 2_500
"""Lines sent at a time, which shows progress and is little to send again."""

Suite = Annotated[str | None, typer.Option(help="The suite whose users asked; default: the only one.")]
Retriever = Annotated[str | None, typer.Option(help="The retriever that was asked; default: the only one.")]
_SHOWN: Final = 20


@app.command("traffic", epilog=examples("coalmine traffic queries.csv --suite docs --retriever search"))
def send_traffic(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines or CSV: query[,count,at], or user_query,timestamp.")
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
            answer = traffic.add_traffic(store, suite, retriever, found, now=now())
        new, notes = answer["new"], answer["notes"]
    else:
        client = connect_server(server)
        suite = suite or _only("suite", client.slugs("suites"))
        retriever = retriever or _only("retriever", client.slugs("retrievers"))
        new, notes = _upload(client, suite, retriever, found, upload=_upload_id(file_source(file)))
    typer.echo(f"{counted(len(found.queries), 'distinct query')} read, {new:,} of them new")
    for note in dict.fromkeys(notes):
        times = notes.count(note)
        terminal.note(note if times == 1 else f"{times} parts: {note}")


def _upload(client: Server, suite: str, retriever: str, found: ReadTraffic, *, upload: str) -> tuple[int, list[str]]:
    """Send queries part by part, with progress; how many were new, and notes."""
    new, notes = 0, traffic.left_out_notes(found)
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
                    terminal.note(f"{arrived} Send the same file again within a day: they are not counted twice.")
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
                "retriever with traffic", [one["retriever"] for one in traffic.load_traffic(store, suite)]
            )
            found = traffic.suggest(store, suite, retriever, limit=n)
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
        terminal.note(f"{kind.capitalize()}: {plain(slugs[0])} (the only one)")
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
