"""`coalmine try`: sends one query to a retriever of canary files, or of a running service, and shows everything."""

import json
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from app import USER_AGENT
from app.base import terminal
from app.base.commands import ServerUrl, Variables, examples, variable_values
from app.base.documents.fields import did_you_mean
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Table, counted, outcome_word, plain, plural, shorten, shown_json
from app.base.values import Outcome
from app.catalog.documents.canary_files import read_files
from app.config import load_settings
from app.definitions.commands.resources import connect_server
from app.retrievers.client.probe import RetrieverProbe, read_pasted
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import (
    ProbeQuery,
    Scale,
    ScorerKind,
)
from app.retrievers.service import trials

NOT_MEASURED = 3
_SHOWN_LINES, _SHOWN_TEXT, _WIDEST = 30, 160, 400

app = typer.Typer(rich_markup_mode=None)


class Format(StrEnum):
    """Format of the output."""

    TEXT = "text"
    JSON = "json"


@app.command(
    "try",
    epilog=examples(
        'coalmine try canaries "How long is data kept?"',
        'coalmine try canaries --retriever docs-search --answer answer.json "How long is data kept?"',
        'coalmine try --server https://coalmine.example --retriever docs-search "How long is data kept?"',
    ),
)
def try_(  # noqa: PLR0913 - options of a command
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Canary files that define the retriever.")
    ] = None,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to ask.")] = ...,  # type: ignore[assignment] # typer's way to say: required
    *,
    retriever: Annotated[
        str | None, typer.Option(metavar="SLUG", help="Which retriever, where there are more.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, max=1_000, help="How many hits to ask for.")] = 10,
    url: Annotated[str | None, typer.Option(help="Where the retriever is, instead of what the files say.")] = None,
    answer: Annotated[Path | None, typer.Option(metavar="FILE", help="Read this answer and ask nobody.")] = None,
    suggest: Annotated[bool, typer.Option("--suggest", help="Suggest mappings though there are hits.")] = False,
    var: Variables = None,
    server: ServerUrl = None,
    form: Annotated[Format, typer.Option("--format", help="What is written to stdout.")] = Format.TEXT,
) -> None:
    """Send a retriever one query and show request, raw answer and mapped hits.

    Where it finds none, or not all that is mapped, mappings that do are suggested as YAML to paste. Of the files only
    the retrievers are looked at. Secrets are masked. Exit code 0: answered, 2:
    unusable input, 3: no answer that could be read.
    """
    body = None if answer is None else answer.read_bytes().decode(errors="replace")
    values = variable_values(var or ())
    if server is not None:
        request = {"query": query, "k": k, "suggest": suggest, **({} if body is None else {"answer": body})}
        request |= {"vars": values} if values else {}
        if url is not None:
            request["retriever"] = {"url": url}
        trial: Mapping[str, Any] = connect_server(server).try_retriever(_server_slug(paths, retriever), request)
    else:
        document = _file_retriever(paths, retriever)
        document = document if url is None else document.at(url)
        if body is not None:
            trial = trials.try_answer(read_pasted, document, body, query, k=k, suggests=suggest)
        else:
            probe = RetrieverProbe(load_settings(os.environ).retriever_addresses, USER_AGENT)
            run_id, asked = f"try-{uuid4().hex}", ProbeQuery(query=query, vars=values)
            trial = trials.try_retriever(probe, document, asked, k=k, run_id=run_id, suggests=suggest)
    if form is Format.JSON:
        typer.echo(_json_text(trial))
    else:
        _print_trial(trial)
    if trial["outcome"] != Outcome.OK:
        raise typer.Exit(NOT_MEASURED)


def _server_slug(paths: Sequence[Path] | None, retriever: str | None) -> str:
    if paths:
        raise InvalidInputError([Problem(message="--server tries what the service has in force; leave out the files")])
    if retriever is None:
        raise InvalidInputError([Problem(path="--retriever", message="say which retriever of the service to try")])
    return retriever


def _file_retriever(paths: Sequence[Path] | None, slug: str | None) -> RetrieverDocument:
    if not paths:
        raise InvalidInputError([Problem(message="name the canary files of the retriever, or a service with --server")])
    retrievers = {
        document.slug: document for document in read_files(paths, os.environ, retrievers_alone=True).retrievers
    }
    if slug is not None and slug not in retrievers:
        message = f"the files define no retriever '{slug}'{did_you_mean(slug, retrievers)}"
        raise InvalidInputError([Problem(path="--retriever", message=message)])
    if slug is None and len(retrievers) != 1:
        message = (
            f"the files define {len(retrievers)} retrievers; name one of: {', '.join(retrievers)}"
            if retrievers
            else ("the files define no retriever")
        )
        raise InvalidInputError([Problem(path="--retriever", message=message)])
    return retrievers[slug] if slug is not None else next(iter(retrievers.values()))


def _print_trial(trial: Mapping[str, Any]) -> None:
    typer.echo(headline(trial))
    for name in ("detail", "unscored"):
        if trial[name]:
            typer.echo(f"  {plain(trial[name])}")
    if trial["index_version"]:
        typer.echo(f"  index version {plain(trial['index_version'])}")
    for remark in trial.get("remarks", ()):
        typer.echo(f"  {plain(remark)}")
    if trial["request"]:
        _section("Request", _request_lines(trial["request"]))
    if trial["response"]:
        _section("Answer", _response_lines(trial["response"]))
    if trial["hits"]:
        typer.echo()
        terminal.show_table(_hits_table(trial["hits"]))
    for number, suggested in enumerate(trial["suggestions"], 1):
        reasons = [f"# {plain(name)}: {plain(reason)}" for name, reason in suggested["reasons"].items()]
        count = plain(str(suggested["hits"]))
        title = f"Suggestion {number} reads {count} {plural(suggested['hits'], 'hit')}; put this under the retriever:"
        _section(title, [*reasons, *map(_without_controls, suggested["yaml"].splitlines())])


def headline(trial: Mapping[str, Any]) -> str:
    """Summary of a trial in one line."""
    status = f", HTTP {plain(str(trial['http_status']))}" if trial["http_status"] else ""
    duration = f" in {trial['latency_seconds'] * 1000:.0f} ms" if trial["latency_seconds"] else ""
    message = f"{plain(trial['retriever'])}: {plain(outcome_word(str(trial['outcome'])))}{status}{duration}"
    if trial["outcome"] != Outcome.OK:
        return message
    hits = len(trial["hits"])
    message += f", {counted(hits, 'hit')}"
    if (trial["returned"] or 0) > hits:
        more = trial["returned"] - hits
        message += f" ({more} more {'was a duplicate' if more == 1 else 'were duplicates'})"
    top, scorer = trial["top_score"], trial["scorer"]
    return (
        message if top is None else f"{message}, top score {top:.3f} by {plain(str(scorer['kind']))}{_by_scale(scorer)}"
    )


def _by_scale(scorer: Mapping[str, Any]) -> str:
    """Note on what a score on a distance scale became: the scores do not show what counts as relevant."""
    if scorer.get("scale") != Scale.DISTANCE or scorer["kind"] != ScorerKind.SCORE:
        return ""
    return " (1 / (1 + distance): at the default minimum of 0.5 a distance up to 1 is relevant)"


def _without_controls(line: str) -> str:
    """Remove control characters and keep the spaces, which mean something in YAML."""
    return " ".join(map(plain, line.split(" ")))


def _json_text(trial: Mapping[str, Any]) -> str:
    """JSON for programs and terminals: characters that are not plain are escaped, which only texts can hold."""
    text = json.dumps(trial, indent=2, ensure_ascii=False)
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def _section(title: str, lines: Sequence[str]) -> None:
    typer.echo(f"\n{title}")
    for line in lines:
        typer.echo(f"  {line}")


def _request_lines(request: Mapping[str, Any]) -> list[str]:
    headers = [f"{plain(name)}: {plain(value)}" for name, value in request["headers"].items()]
    return [f"{plain(request['method'])} {plain(request['url'])}", *headers, *_body_lines(request["body"])]


def _response_lines(response: Mapping[str, Any]) -> list[str]:
    size = f"{response['bytes']:,} bytes"
    status = plain(str(response["status"]))
    return [f"HTTP {status}, {size}" if response["status"] else size, *_body_lines(response["body"])]


def _body_lines(body: str | None) -> list[str]:
    text = shown_json(body or "")
    lines = [" " * (len(line) - len(line.lstrip(" "))) + shorten(line, _WIDEST) for line in text.splitlines()]
    more = len(lines) - _SHOWN_LINES
    return [*lines[:_SHOWN_LINES], f"... {counted(more, 'more line')}; --format json has more"] if more > 0 else lines


def _hits_table(hits: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("rank", "id", "score", "relevance", "document", "updated", "text")
    shown = [name for name in columns if any(hit[name] is not None for hit in hits)]
    rows = [tuple(_cell(hit[name]) for name in shown) for hit in hits]
    return Table(title="Hits", columns=tuple(shown), rows=tuple(rows))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else shorten(str(value), _SHOWN_TEXT)
