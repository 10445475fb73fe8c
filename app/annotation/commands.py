"""`coalmine corpus`: texts of an index, from which tasks draw random negatives."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from app.annotation.documents import read_corpus
from app.annotation.service import tasks
from app.annotation.views import CorpusView
from app.base import terminal
from app.base.commands import DataDir, ServerUrl, examples, now
from app.base.documents.fields import SLUG
from app.base.documents.parsing import file_source
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Source, counted, plain
from app.definitions.client import Server
from app.definitions.commands.resources import connect_server, open_database

app = typer.Typer(rich_markup_mode=None)

_PART: Final = 4_000_000
"""Characters that are sent at a time."""


@app.command("corpus", epilog=examples("coalmine corpus corpus.jsonl --name handbook"))
def send_corpus(
    file: Annotated[Path, typer.Argument(metavar="FILE", help='JSON lines, BEIR\'s: {"_id": ..., "text": ...}.')],
    *,
    name: Annotated[str | None, typer.Option(help="Name of the corpus; default: that of the file.")] = None,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Add texts to a corpus, from which annotation tasks draw random negatives; the same text twice is one."""
    slug = name if name is not None else file.name.partition(".")[0].lower().replace("_", "-").replace(" ", "-")
    if not re.fullmatch(SLUG, slug):
        raise InvalidInputError([Problem(path="--name", message=f"'{plain(slug)}' is no name: a-z, 0-9 and -, to 64")])
    size = file.stat().st_size if file.exists() else 0
    with terminal.reading([(f"reading {file.name}", size)]) as bar:
        total = sum(1 for _ in read_corpus([file_source(file, bar(0))]))
    source, done = file_source(file), 0
    with terminal.counting("adding texts") as moved:

        def added(count: int) -> None:
            nonlocal done
            done += count
            moved(done, total)

        added(0)
        if server is None:
            with open_database(data_dir) as (_, store):
                answer = tasks.add_texts(store, slug, [source], now=now(), added=added)
        else:
            answer = _upload(connect_server(server), slug, source, added)
    held = f"{answer['texts']:,} distinct" if answer["texts"] != 1 else "1 distinct"
    typer.echo(f"{counted(total, 'text')} read: corpus {plain(answer['name'])} has {held}")


def _upload(client: Server, slug: str, source: Source, added: Callable[[int], None]) -> CorpusView:
    """Send texts part by part; a part that arrived before adds nothing. Raises CoalmineError."""
    part: list[str] = []
    size = 0
    for chunk, text in read_corpus([source]):
        line = json.dumps({"_id": chunk, "text": text})
        if part and size + len(line) > _PART:
            client.add_texts(slug, "\n".join(part))
            added(len(part))
            part, size = [], 0
        part.append(line)
        size += len(line)
    answer = client.add_texts(slug, "\n".join(part))
    added(len(part))
    return answer
