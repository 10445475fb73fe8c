"""`coalmine traffic` and `coalmine suggest`: queries of users taken in, and those that no canary stands for."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Final

import typer

from app import terminal
from app.commands.base import DataDir, ServerUrl, examples
from app.commands.imports import file_source
from app.commands.resources import connect_server, now, open_database
from app.domain.annotation.views import SuggestionView
from app.domain.counts import counted
from app.domain.errors import CoalmineError
from app.formats.annotation.traffic_lines import ReadTraffic, read_traffic
from app.formats.catalog.exchange import Source
from app.formats.plain_text import Table, plain
from app.services.annotation import reach, traffic

app = typer.Typer(rich_markup_mode=None)

_PART: Final = 2_500
"""Lines sent at a time: of 500 characters, escaped twice, and a body has at most 10 MB."""

Suite = Annotated[str, typer.Option(help="The suite whose users asked.")]
Retriever = Annotated[str, typer.Option(help="The retriever that was asked.")]


@app.command("traffic", epilog=examples("coalmine traffic queries.csv --suite docs --retriever search"))
def send_traffic(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines or CSV: query[,count,at], or user_query,timestamp.")
    ],
    *,
    suite: Suite,
    retriever: Retriever,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Add queries of users to the traffic of a suite. They are normalised, kept for 30 days, and never exported."""
    source = file_source(file)
    found = read_traffic([source], now=now())
    if server is None:
        with open_database(data_dir) as (_, store):
            answer = traffic.add_traffic(store, suite, retriever, found, now=now())
        new, notes = answer["new"], answer["notes"]
    else:
        new, notes = 0, traffic.left_out_notes(found)
        client, parts, upload = connect_server(server), _parts(found), _upload_id(source)
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
    typer.echo(f"{counted(len(found.queries), 'distinct query')} read, {new:,} of them new")
    for note in dict.fromkeys(notes):
        times = notes.count(note)
        terminal.note(note if times == 1 else f"{times} parts: {note}")


@app.command("suggest", epilog=examples("coalmine suggest --suite docs --retriever search --n 30"))
def show_suggestions(
    *,
    suite: Suite,
    retriever: Retriever,
    n: Annotated[int, typer.Option("--n", min=1, max=500, help="At most so many.")] = 30,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """List queries of users that no canary stands for: one of each group of documents, the most traffic first.

    They carry no expectations. Ask for the reach of the suite first: the page of its traffic has a button.
    """
    if server is not None:
        found: list[SuggestionView] = connect_server(server).suggestions(suite, retriever, limit=n)
    else:
        with open_database(data_dir) as (_, store):
            found = reach.suggest(store, suite, retriever, limit=n)
    rows = [
        (plain(one["query"]), plain(one["group"]), f"{one['traffic']:,.0f}", ", ".join(one["segments"]))
        for one in found
    ]
    terminal.show_table(
        Table(title="Suggestions", columns=("query", "group", "traffic", "segment, guessed"), rows=tuple(rows))
    )


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
