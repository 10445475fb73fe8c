"""The one command of answers, `coalmine draft`: queries drafted from a corpus by a language model, as proposals."""

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from app.annotation.documents import read_corpus
from app.answers.service.labels import draft_queries
from app.base import terminal
from app.base.commands import DataDir, examples, now
from app.base.terminal import file_source
from app.base.texts import counted
from app.catalog.exchange.csv import escape_formula
from app.catalog.service.vault import open_vault
from app.definitions.commands.resources import open_database, require_own_key
from app.wiring import build_judge_calls

app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("query", "tags", "drafted_from")
TAG = "drafted"


@app.command("draft", epilog=examples("coalmine draft corpus.jsonl --judge local-model --n 30 > drafts.csv"))
def draft(
    file: Annotated[Path, typer.Argument(metavar="FILE", help='JSON lines of a corpus: {"_id": ..., "text": ...}.')],
    *,
    judge: Annotated[str, typer.Option(help="The judge whose endpoint, key and budget are used.")],
    n: Annotated[int, typer.Option("--n", min=1, max=500, help="Texts to draw, one call each.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Decides which texts are drawn.")] = 0,
    data_dir: DataDir = None,
) -> None:
    """Draft queries that texts of a corpus answer, where users have no log, and write them as CSV.

    They are proposals and expect nothing: keep what a user might ask, and have people annotate what that finds.
    """
    texts = [*read_corpus([file_source(file)])]
    with open_database(data_dir) as (settings, store):
        require_own_key(settings)
        vault = open_vault(settings.secret_key, settings.data_dir, store, loopback=True, keep=False, readable=False)
        ask = build_judge_calls(settings)
        found = draft_queries(store, vault, ask, judge, texts, number=n, seed=seed, clock=now)
    written = io.StringIO(newline="")
    table = csv.writer(written, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([escape_formula(query), TAG, escape_formula(name)] for query, name in found.queries)
    typer.echo(written.getvalue(), nl=False)
    ended = ", ".join(f"{times} {outcome}" for outcome, times in found.outcomes.items())
    terminal.note(f"{counted(len(found.queries), 'query')} drafted from {counted(len(texts), 'text')}: {ended}")
    if found.repeated:
        terminal.note(f"{counted(found.repeated, 'query')} left out: drafted before")
    for detail in found.details:
        terminal.note(detail)
