"""`coalmine draft`: queries drafted from texts by a language model, as proposals; and `coalmine accept`, of them."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from app.annotation.documents import read_corpus, read_passages
from app.answers.service.labels import DraftedQueries, draft_queries
from app.base.commands import DataDir, examples, note, now
from app.base.documents.parsing import file_source
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.texts import counted, plain
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.exchange.csv import escape_formula
from app.catalog.exchange.suite_builder import SuiteBuilder
from app.catalog.service.vault import open_vault
from app.definitions.commands.resources import open_database, require_own_key
from app.wiring import build_judge_calls

app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("query", "tags", "drafted_from")
TAG = "drafted"
PROPOSED: Final = "proposed"
"""The tag of a drafted canary that nobody has accepted."""
_DOCUMENTS: Final = frozenset({".md", ".markdown", ".rst", ".txt"})
_MOST_FILES: Final = 10_000
_DECISIONS: Final = frozenset("ynq")


@app.command("draft", epilog=examples("coalmine draft corpus.jsonl --judge local-model --n 30 > drafts.csv"))
def draft(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="TEXTS",
            help='JSON lines of a corpus, {"_id": ..., "text": ...}; or a folder of .md, .rst and .txt.',
        ),
    ],
    *,
    judge: Annotated[str, typer.Option(help="The judge whose endpoint, key and budget are used.")],
    n: Annotated[int, typer.Option("--n", min=1, max=500, help="Texts to draw, one call each.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Decides which texts are drawn.")] = 0,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write canaries that expect their text, as proposals.")
    ] = None,
    suite: Annotated[str, typer.Option(help="The suite of these canaries.")] = "drafted",
    data_dir: DataDir = None,
) -> None:
    """Draft queries that texts answer, where users have no log, and write them as CSV, or with --to as canaries.

    They are proposals. Those of the CSV expect nothing: keep what a user might ask, and have people annotate what that
    finds. Canaries expect the text that they were drafted from, which search by words finds too easily: see `accept`.
    """
    texts = [*_read_texts(file)]
    with open_database(data_dir) as (settings, store):
        require_own_key(settings)
        vault = open_vault(settings.secret_key, settings.data_dir, store, loopback=True, keep=False, readable=False)
        ask = build_judge_calls(settings)
        found = draft_queries(store, vault, ask, judge, texts, number=n, seed=seed, clock=now)
    if to is None:
        written = io.StringIO(newline="")
        table = csv.writer(written, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows([escape_formula(query), TAG, escape_formula(name)] for query, name in found.queries)
        typer.echo(written.getvalue(), nl=False)
    elif found.queries:
        is_chunk = not file.is_dir()
        to.write_text(_proposals(suite, found, dict(texts), is_chunk=is_chunk), encoding="utf-8")
    ended = ", ".join(f"{times} {outcome}" for outcome, times in found.outcomes.items())
    note(f"{counted(len(found.queries), 'query')} drafted from {counted(len(texts), 'text')}: {ended}")
    if found.repeated:
        note(f"{counted(found.repeated, 'query')} left out: drafted before")
    for detail in found.details:
        note(detail)
    if to is not None and not found.queries:
        note(f"No reply holds a query, so {to} is not written.")
        raise typer.Exit(2)


def _read_texts(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of a corpus, or of the passages of a folder's documents."""
    if not file.is_dir():
        yield from read_corpus([file_source(file)])
        return
    found = sorted(
        one
        for one in file.rglob("*")
        if one.suffix.lower() in _DOCUMENTS and not any(part.startswith(".") for part in one.relative_to(file).parts)
    )
    if not found or len(found) > _MOST_FILES:
        message = f"has {len(found):,} files of {', '.join(sorted(_DOCUMENTS))}; 1 to {_MOST_FILES:,} can be read"
        raise InvalidInputError([Problem(file=str(file), message=message)])
    for one in found:
        yield from read_passages(file_source(one))


def _proposals(suite: str, found: DraftedQueries, texts: Mapping[str, str], *, is_chunk: bool) -> str:
    """Return a canary file of drafted queries; only the ids of a corpus are those of chunks."""
    builder = SuiteBuilder()
    for query, name in found.queries:
        builder.add_canary(query, query, name, 1, named=False, tags=[TAG, PROPOSED])
        builder.add_judgment(query, name, 1, 1, id=name if is_chunk else None, text=texts[name])
    return write_canary_file(Documents(suites=(builder.build(suite).suite,)))


@app.command("accept", epilog=examples("coalmine accept proposals.yaml --to canaries/drafted.yaml"))
def accept(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Canaries that `coalmine draft --to` wrote.")],
    *,
    to: Annotated[Path, typer.Option("--to", help="The canary file that those you accept are added to.")],
    everything: Annotated[bool, typer.Option("--all", help="Accept all that are left in FILE, unasked.")] = False,
) -> None:
    """Read each proposal with its text, and say whether users might ask it and the text answers it.

    Those accepted go to --to, those dropped are gone, and what is undecided stays in FILE: go on whenever you like.
    """
    suite, proposals = _read_suite(file)
    its, before = _read_suite(to) if to.exists() else (suite, ())
    if its != suite:
        raise ConflictError(f"{to} has canaries of suite '{its}', and {file} those of '{suite}'")
    kept = [*before]
    known = {one.key for one in kept}
    left = [one for one in proposals if one.key not in known]
    dropped = 0
    while left:
        answer = "y" if everything else _decide(left[0], number=len(proposals) - len(left) + 1, of=len(proposals))
        if answer == "q":
            break
        one = left.pop(0)
        dropped += answer == "n"
        if answer == "y":
            tags = tuple(tag for tag in one.tags if tag != PROPOSED)
            kept.append(one.model_copy(update={"tags": tags}))
        if kept:
            _write_suite(to, suite, kept)
        _write_suite(file, suite, left)
    note(f"{counted(len(kept), 'canary')} in {to}, {dropped:,} dropped, {len(left):,} left in {file}")


def _decide(canary: CanaryDocument, *, number: int, of: int) -> str:
    """Show a proposal and return what somebody says: y, n or q; at the end of the input q."""
    text = canary.expected_chunks[0].text if canary.expected_chunks else None
    turns = "".join(f"{plain(one.role)}: {plain(one.content)}\n" for one in canary.history)
    asked = ", ".join(f"{plain(name)}: {plain(value)}" for name, value in canary.vars.items())
    query = f"{turns}{plain(canary.query)}{f' (asked as {asked})' if asked else ''}"
    typer.echo(f"\n{number} of {of}: {query}\n  {plain(text or '')}")
    while True:
        try:
            said = str(typer.prompt("Accept? y, n, or q to stop", default="y")).strip().lower()[:1]
        except typer.Abort:
            return "q"
        if said in _DECISIONS:
            return said


def _read_suite(file: Path) -> tuple[str, Sequence[CanaryDocument]]:
    """Return the one suite of a canary file and its canaries. Raises InvalidInputError."""
    found = read_canary_files([(str(file), file.read_bytes())], os.environ, None)
    if len(found.suites) != 1:
        raise InvalidInputError([Problem(file=str(file), message="must have canaries of one suite")])
    return found.suites[0].slug, found.suites[0].canaries or ()


def _write_suite(file: Path, suite: str, canaries: Sequence[CanaryDocument]) -> None:
    """Write a canary file in one step: whoever breaks off loses nothing."""
    beside = file.with_name(f".{file.name}.part")
    documents = Documents(suites=(SuiteDocument(slug=suite, canaries=tuple(canaries)),))
    beside.write_text(write_canary_file(documents), encoding="utf-8")
    beside.replace(file)
