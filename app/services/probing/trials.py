"""Trying a retriever: one query put to it, and all that is between the request and the hits, for people to look at.

Nothing is stored. Where the mapping finds nothing, or not all of it, mappings are suggested that would.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from app.domain.counts import counted
from app.domain.errors import InvalidInputError, Problem
from app.domain.model import DEFAULT_MIN_RELEVANCE, Answer, Canary, Exchange, Outcome, Ranking, Step
from app.domain.probing.field_guesses import are_ranks, score_order
from app.domain.probing.mapped_fields import missing_fields, present_fields
from app.domain.probing.mapping_suggestions import suggest_mappings
from app.domain.probing.relevance import is_external, score_relevance
from app.domain.probing.retrievers import (
    Probe,
    ProbeContext,
    ProbeQuery,
    Retriever,
    Scale,
    Scorer,
    ScorerKind,
    missing_resource,
)
from app.domain.probing.views import MappingSuggestion, TrialHit, TrialRequest, TrialResponse, TrialView
from app.domain.runs.evaluation import Yardstick
from app.domain.runs.run_inputs import RunInputs
from app.domain.runs.run_outcomes import evaluate
from app.domain.runs.run_responses import build_responses
from app.domain.runs.suite_snapshot import SuiteSnapshot
from app.formats.catalog.documents import RetrieverDocument
from app.formats.catalog.secret_fields import join_secrets, secret_names
from app.formats.history.shapes import time_text
from app.formats.probing.mapping_yaml import suggestion_view
from app.formats.truncated_json import parse_cut
from app.formats.validation_messages import parse_document
from app.services.catalog.definitions import find, refuse_moving
from app.services.catalog.vault import Vault
from app.store.engine import Store

SHOWN_CHARACTERS = 20_000
"""How much of a body is shown."""
SUGGESTED_FROM = 200_000
"""How many characters of a pasted answer mappings are suggested from; of one that came, the probe gives no more."""
NO_ANSWER = Answer(outcome=Outcome.SKIPPED, latency_seconds=0.0, detail="the probe ended without an answer")
LOWER_MINIMUM = "lower their min_relevance_score, choose another scale, or leave the scorer out"
"""What to do where good answers are less relevant than canaries ask, in the words of canary files."""
_SOME, _LONGEST_ADDRESS = 3, 2_000
_HARMLESS: Mapping[str, frozenset[str] | None] = {
    "response": None,
    "scorer": frozenset({"kind", "scale", "anchor"}),
    "score_precision": None,
}
"""What may be tried otherwise by whoever may not define retrievers: how answers are read, not who is asked what."""

ReadAnswer = Callable[[Retriever, int, bytes], Answer]
"""Reads the body of an answer by a retriever's mapping, asking nobody; the second number is k."""


def try_retriever(
    probe: Probe,
    document: RetrieverDocument,
    query: str,
    *,
    k: int,
    run_id: str,
    suggests: bool = False,
    shows: int = SHOWN_CHARACTERS,
) -> TrialView:
    """Ask a retriever one query, once, and show everything; see `answer_view`.

    It takes no longer than the retriever's time-outs allow: nothing is asked twice. `shows` says how many characters
    of its answer are given. Raises InvalidInputError where it cannot be asked at all; whatever it answers is shown.
    """
    retriever = replace(document.to_domain(), retries=0)
    asking = ProbeContext(retriever=retriever, k=k, run_id=run_id, shows=True)
    with closing(probe(asking, [ProbeQuery(position=0, query=query)])) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        answers = [answer for batch in batches for _, answer in batch]
    return answer_view(document, answers[0] if answers else NO_ANSWER, query, k=k, suggests=suggests, shows=shows)


def try_answer(
    read: ReadAnswer, document: RetrieverDocument, body: str, query: str, *, k: int, suggests: bool = False
) -> TrialView:
    """Read a pasted response as if the retriever had sent it; nothing is sent."""
    return answer_view(document, read_pasted(read, document, body, k=k), query, k=k, suggests=suggests)


def read_pasted(read: ReadAnswer, document: RetrieverDocument, body: str, *, k: int) -> Answer:
    """Return the answer that a pasted response is, with its exchange."""
    pasted = body.encode(errors="surrogatepass")
    shown = Exchange(method="", url="", response_body=body[:SUGGESTED_FROM], response_bytes=len(pasted))
    return replace(read(document.to_domain(), k, pasted), http_status=None, exchange=shown)


def stored_retriever(store: Store, vault: Vault, slug: str, overrides: Mapping[str, Any]) -> RetrieverDocument:
    """Give a retriever in force with its secrets, some of its parts replaced for once; of `request`, key by key.

    Raises NotFoundError, and InvalidInputError for what makes no retriever or would send a stored secret to another
    address than the one it was stored for.
    """
    definition = find(store, "retriever", slug)
    given = dict(overrides)
    if isinstance(given.get("request"), Mapping):
        given["request"] = {**definition.body["request"], **given["request"]}
    body = {**definition.body, **given}
    if body["slug"] != slug:
        raise InvalidInputError([Problem(path="slug", message=f"is not the '{slug}' of the address")])
    kept = vault.decrypt(definition.secrets)
    document = parse_document(RetrieverDocument, join_secrets(body, kept))
    refuse_moving(definition, document, [name for name in secret_names(body) if name in kept])
    return document


def suggestion_views(document: RetrieverDocument, answer: Any, query: str) -> list[MappingSuggestion]:
    """Suggest mappings for a parsed answer, best first, each applied to it; see `suggestion_shape`."""
    shaped = [suggestion_view(one, document, answer) for one in suggest_mappings(answer, query=query)]
    return [one for one in shaped if one is not None]


def changes_request(overrides: Mapping[str, Any]) -> bool:
    """Whether these change more than how an answer is read: where requests go, what they say or prove."""
    for name, value in overrides.items():
        if name not in _HARMLESS:
            return True
        allowed = _HARMLESS[name]
        if allowed is not None and not (isinstance(value, Mapping) and value.keys() <= allowed):
            return True
    return False


def answer_view(
    document: RetrieverDocument,
    answer: Answer,
    query: str,
    *,
    k: int,
    suggests: bool = False,
    shows: int = SHOWN_CHARACTERS,
) -> TrialView:
    """Shape what came of it; `hits` are empty unless the outcome is ok, `suggestions` unless they may help.

    They may where an answer came that the mapping does not read, or reads no hit or no text from, for example, or where
    they were asked for. `remarks` are sentences without full stops on what deserves a second look.
    """
    retriever = document.to_domain()
    scorer = retriever.scorer
    ranking, exchange = answer.ranking, answer.exchange
    inputs = _inputs(retriever, query, k)
    result = evaluate(inputs, build_responses(inputs, [answer])).results.get(0)
    lacks = () if ranking is None else missing_fields(retriever.response, present_fields([ranking]))
    wanted = suggests or answer.outcome is Outcome.MALFORMED or (ranking is not None and not ranking) or bool(lacks)
    suggestions = _suggestions(document, exchange, query) if wanted and exchange is not None else []
    remarks = [f"mapped `{field}` was found in 0 of {counted(len(ranking or ()), 'hit')}" for field in lacks]
    remarks += [] if ranking is None else _doubts(retriever, ranking)
    remarks += [] if exchange is None else [*exchange.remarks, *_whereabouts(retriever, answer, exchange)]
    if wanted and not suggestions and exchange is not None and exchange.response_body and (suggests or not lacks):
        remarks.append("no list of hits was recognised in this answer")
    return {
        "retriever": document.slug,
        "query": query,
        "outcome": answer.outcome,
        "step": Step(answer.step),
        "detail": answer.detail,
        "http_status": answer.http_status,
        "latency_seconds": answer.latency_seconds,
        "index_version": answer.index_version,
        "request": None if exchange is None or not exchange.url else _request_shape(exchange),
        "response": None if exchange is None or exchange.response_body is None else _response_shape(exchange, shows),
        "hits": [] if ranking is None else _hits(ranking, scorer),
        "returned": None if ranking is None else ranking.returned,
        "scorer": {"kind": scorer.kind, "scale": scorer.scale},
        "top_score": None if result is None else result.top_score,
        "unscored": answer.unscored,
        "remarks": remarks,
        "suggestions": suggestions,
    }


def _inputs(retriever: Retriever, query: str, k: int) -> RunInputs:
    """Return what a run of a single query works with that expects nothing."""
    return RunInputs(
        check="",
        suite_slug="",
        suite=SuiteSnapshot.from_canaries([Canary(key="", query=query)]),
        retriever=retriever,
        yardstick=Yardstick.of(k=k, fetch_k=k, cutoffs=(), scorer=retriever.scorer, rules=()),
        config_hash="",
    )


def _doubts(retriever: Retriever, ranking: Ranking) -> list[str]:
    """Say what speaks against ids and scores being what they are mapped as."""
    doubts = []
    if retriever.response.id is not None and len(ranking) >= _SOME and are_ranks(ranking.ids):
        doubts.append("the ids only count the hits, as ranks do: in another answer they may be those of other chunks")
    order = score_order([score for score in ranking.scores if score is not None])
    scale = retriever.scorer.scale if retriever.scorer.kind is ScorerKind.SCORE else None
    if order == "in no order":
        doubts.append("the hits are not in order of score: ranks follow the answer's order")
    elif scale is Scale.DISTANCE and order == "falling":
        doubts.append("the largest distances come first: are these scores similarities?")
    elif scale not in {None, Scale.DISTANCE} and order == "rising":
        doubts.append(f"the lowest scores come first, though the scale is {scale}: are they distances?")
    return doubts + _below_minimum(retriever.scorer, ranking)


def _below_minimum(scorer: Scorer, ranking: Ranking) -> list[str]:
    """Say that canaries that set no minimum of their own are degraded by an answer like this, though it may be good."""
    if scorer.kind is not ScorerKind.SCORE or not ranking:
        return []
    relevance = [score_relevance(scorer, score) for score in ranking.scores]
    least = DEFAULT_MIN_RELEVANCE
    low = sum(one is not None and one < least for one in relevance)
    if relevance[0] is None or relevance[0] >= least:
        return []
    told = (
        f"{low} of {counted(len(relevance), 'hit')}, the first among them, {'has' if low == 1 else 'have'} a relevance"
    )
    told += (
        f" below {least:g}, the minimum of canaries that set none: such an answer degrades them, even if it is right; "
    )
    return [told + LOWER_MINIMUM]


def _whereabouts(retriever: Retriever, answer: Answer, exchange: Exchange) -> list[str]:
    """Say where an answer points instead, and that it does not tell its index version."""
    status, target = exchange.http_status or 0, exchange.response_headers.get("location")
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST and target:
        return [f"it points to {target[:_LONGEST_ADDRESS]}"]
    if status == HTTPStatus.NOT_FOUND:
        missing = missing_resource(retriever.url, retriever.options)
        said = "check the path of the URL" if missing is None else f"check the {missing[0]} '{missing[1]}' and the URL"
        return [f"HTTP 404 means that there is nothing at this address: {said}"]
    version = retriever.response.index_version
    unseen = version is not None and version.startswith("header:") and not exchange.url
    if version is None or unseen or answer.ranking is None or answer.index_version is not None:
        return []
    return [f"mapped `index_version: {version}` was not found"]


def _request_shape(exchange: Exchange) -> TrialRequest:
    body = exchange.request_body
    return {
        "method": exchange.method,
        "url": exchange.url,
        "headers": dict(exchange.request_headers),
        "body": None if body is None else body[:SHOWN_CHARACTERS],
        "cut": body is not None and len(body) > SHOWN_CHARACTERS,
    }


def _response_shape(exchange: Exchange, shows: int) -> TrialResponse:
    body = exchange.response_body or ""
    return {
        "status": exchange.http_status,
        "headers": dict(exchange.response_headers),
        "body": body[:shows],
        "bytes": exchange.response_bytes,
        "cut": len(body) > shows,
    }


def _hits(ranking: Ranking, scorer: Scorer) -> list[TrialHit]:
    times = ranking.updated or (None,) * len(ranking)
    relevance = [score_relevance(scorer, score) for score in ranking.scores]
    if is_external(scorer):
        relevance[:1] = [ranking.relevance] * min(len(ranking), 1)
    columns = zip(ranking.ids, ranking.documents, ranking.texts, ranking.scores, relevance, times, strict=True)
    return [
        {
            "rank": rank,
            "id": named,
            "document": document,
            "text": text,
            "score": score,
            "relevance": relevant,
            "updated": None if at is None else time_text(round(at * 1_000_000)),
        }
        for rank, (named, document, text, score, relevant, at) in enumerate(columns, 1)
    ]


def _suggestions(document: RetrieverDocument, exchange: Exchange, query: str) -> list[MappingSuggestion]:
    try:
        answer = json.loads(exchange.response_body or "")
    except (ValueError, RecursionError):
        answer = parse_cut(exchange.response_body or "")
    return suggestion_views(document, answer, query)
