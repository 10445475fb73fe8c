"""Trials of a retriever: one query with everything between request and hits, and how a canary fares.

Beside it suggested mappings, as people see them, pasted responses read as if received, and warnings. Nothing is stored.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError

from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.texts import ANSWER_LIMITS, counted, parse_cut, parse_json_text
from app.base.values import (
    DEFAULT_MIN_RELEVANCE,
    Answer,
    Canary,
    Exchange,
    Outcome,
    Ranking,
    Step,
    replace,
)
from app.base.views import time_text
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.secrets import parse_with_stored
from app.catalog.service import references
from app.catalog.service.references import load_definition
from app.records.views import judgment_shape
from app.retrievers.documents.retrievers import FIELDS, RetrieverDocument, mapping_fields, mapping_yaml
from app.retrievers.domain.field_guesses import are_ranks, score_order
from app.retrievers.domain.mapping_suggestions import (
    Suggestion,
    likely_scale,
    suggest_mappings,
    suggest_signs,
    usable_scale,
)
from app.retrievers.domain.probes import (
    CanaryMatches,
    ExpectedMatch,
    MappingPreview,
    MappingSuggestion,
    SuggestedScorer,
    TrialHit,
    TrialRequest,
    TrialResponse,
    TrialView,
)
from app.retrievers.domain.retrievers import (
    KEPT_CHARACTERS,
    Probe,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scale,
    Scorer,
    ScorerKind,
    is_external,
    missing_resource,
    score_relevance,
)
from app.scoring.rankings import LEVELS, match, missing_fields, missing_judgments, present_fields
from app.scoring.run_inputs import Panel, RunInputs, SuiteSnapshot, Yardstick
from app.scoring.run_outcomes import build_responses, evaluate
from app.scoring.verdicts import CACHED

SHOWN_CHARACTERS: Final = 20_000
"""Of a request or response, where nobody asks for more."""
NO_ANSWER = Answer(outcome=Outcome.SKIPPED, latency_seconds=0.0, detail="the probe ended without an answer")
LOWER_MINIMUM = "lower their min_relevance_score, choose another scale, or leave the scorer out"
"""Advice where good hits are below the minimum of canaries, in the words of canary files."""
_PLAIN_NAME = re.compile(r"@|[A-Za-z_]\w*", re.ASCII)
_LEAST_HITS, _MAX_ADDRESS = 3, 2_000
_READING_PARTS: Mapping[str, frozenset[str] | None] = {
    "response": None,
    "scorer": frozenset({"kind", "scale", "anchor"}),
    "score_precision": None,
}
"""Parts that may be changed in a trial without scope admin: how responses are read, not what is sent where."""
ReadAnswer = Callable[[Retriever, int, bytes], Answer]
"""Reads a response body by a retriever's mapping; the second argument is k."""


def try_retriever(
    probe: Probe,
    document: RetrieverDocument,
    asked: ProbeQuery,
    *,
    k: int,
    run_id: str,
    suggests: bool = False,
    shows: int = SHOWN_CHARACTERS,
) -> TrialView:
    """Send a retriever one query, once, and return everything; see `answer_view`.

    It takes no longer than the retriever's time-outs allow: there are no retries. `shows` is the number of characters
    of the response. Raises InvalidInputError where it cannot be asked at all; every answer is a result.
    """
    retriever = replace(document.to_domain(), retries=0)
    asking = ProbeContext(retriever=retriever, k=k, run_id=run_id, shows=True)
    with closing(probe(asking, [asked])) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        answers = [answer for batch in batches for _, answer in batch]
    return answer_view(document, answers[0] if answers else NO_ANSWER, asked.query, k=k, suggests=suggests, shows=shows)


def try_answer(
    read: ReadAnswer, document: RetrieverDocument, body: str, query: str, *, k: int, suggests: bool = False
) -> TrialView:
    """Read a pasted response as if the retriever had sent it; nothing is sent."""
    return answer_view(document, read_pasted(read, document, body, k=k), query, k=k, suggests=suggests)


def read_pasted(read: ReadAnswer, document: RetrieverDocument, body: str, *, k: int) -> Answer:
    """Return the answer that a pasted response is, with its exchange."""
    pasted = body.encode(errors="surrogatepass")
    shown = Exchange(method="", url="", response_body=body[:KEPT_CHARACTERS], response_bytes=len(pasted))
    return replace(read(document.to_domain(), k, pasted), http_status=None, exchange=shown)


def stored_retriever(store: Store, vault: Vault, slug: str, overrides: Mapping[str, Any]) -> RetrieverDocument:
    """Return a stored retriever with its secrets and changed parts; `request` is changed key by key.

    Raises NotFoundError, and InvalidInputError for an invalid retriever or where a stored secret would be sent to
    another address than the one it was stored for.
    """
    definition = load_definition(store, "retriever", slug)
    changes = dict(overrides)
    if isinstance(changes.get("request"), Mapping):
        changes["request"] = {**definition.body["request"], **changes["request"]}
    body = {**definition.body, **changes}
    if body["slug"] != slug:
        raise InvalidInputError([Problem(path="slug", message=f"is not the '{slug}' of the address")])
    secrets = vault.decrypt(definition.secrets)
    return parse_with_stored(RetrieverDocument, body, before=definition.body, secrets=secrets)


def suggestion_views(document: RetrieverDocument, answer: Any, query: str) -> list[MappingSuggestion]:
    """Return the suggested mappings of a parsed response, best first, each applied to it."""
    shaped = [_suggestion_view(one, document, answer) for one in suggest_mappings(answer, query=query)]
    return [one for one in shaped if one is not None]


def _suggestion_view(suggestion: Suggestion, document: RetrieverDocument, answer: Any) -> MappingSuggestion | None:
    """Return the view of a suggestion for a retriever; None where it reads no hit.

    Only paths that read something are kept: each is applied to the response. `response` replaces the retriever's; null
    takes out what its preset would fill in again. `reasons` says so where there is no path to an id or a text. `scorer`
    is null where the scores do not imply their scale, or where the retriever measures relevance by other means.
    """
    mapping = _readable_paths(suggestion.mapping, document.response.index_version, answer)
    if mapping.id is None and mapping.text is None:
        return None
    response = mapping_fields(mapping, document)
    signs = suggest_signs(answer)
    kept = {name: getattr(document.response, name) for name in ("error", "partial", "absent", "unwrap")}
    response |= {name: path for name in kept if (path := kept[name] or signs.get(name)) is not None}
    is_own_score = document.scorer.kind not in {ScorerKind.EMBEDDING, ScorerKind.RERANK}
    has_scale = mapping.score is not None and is_own_score
    scorer: SuggestedScorer | None = {"scale": suggestion.scale} if has_scale and suggestion.scale else None
    return {
        "response": response,
        "scorer": scorer,
        "hits": suggestion.hits,
        "reasons": {
            **{name: why for name, why in suggestion.reasons.items() if name == "hits" or name in response},
            **{name: f"no {name} was recognised; write its path" for name in ("id", "text") if not response.get(name)},
        },
        "yaml": mapping_yaml(response, None if scorer is None else {"scale": str(scorer["scale"])}),
    }


def _readable_paths(mapping: ResponseMapping, index_version: str | None, answer: Any) -> ResponseMapping:
    """Return a mapping without the paths that read nothing of the response; those of headers stay."""
    hits = answer if mapping.hits is None else _search(mapping.hits, answer)
    if mapping.hits is not None and not isinstance(hits, list):
        return ResponseMapping(hits=None)
    within = [answer] if mapping.hits is None else hits[:_MOST_HITS]
    paths_by_field = {name: getattr(mapping, name) for name in FIELDS if name != "hits"}
    absent = [
        name
        for name, path in paths_by_field.items()
        if path and not any(_has_value(_search(path, hit)) for hit in within)
    ]
    keeps_version = index_version is not None and (
        index_version.startswith("header:") or _has_value(_search(index_version, answer))
    )
    return replace(mapping, **dict.fromkeys(absent), index_version=index_version if keeps_version else None)


def _search(path: str, value: Any) -> Any:
    try:
        return jmespath.search(path, value)
    except (JMESPathError, RecursionError):
        return None


def _has_value(value: Any) -> bool:
    """Whether there is a value: of a column, in any place."""
    return any(one is not None for one in value) if isinstance(value, list) else value is not None


_MOST_HITS = 200


def changes_request(overrides: Mapping[str, Any]) -> bool:
    """Whether overrides change more than how a response is read: addresses, requests, authentication."""
    for name, value in overrides.items():
        if name not in _READING_PARTS:
            return True
        allowed = _READING_PARTS[name]
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
    """Return the trial of an answer; `hits` are empty unless the outcome is ok, `suggestions` unless they may help.

    They may where a response came that the mapping does not read, or reads no hit or no text from, for example, or
    where they are requested. `remarks` are sentences without full stops on doubtful results.
    """
    retriever = document.to_domain()
    scorer = retriever.scorer
    ranking, exchange = answer.ranking, answer.exchange
    inputs = _inputs(retriever, query, k)
    result = evaluate(inputs, build_responses(inputs, [answer])).results.get(0)
    missing = () if ranking is None else missing_fields(retriever.response, present_fields([ranking]))
    suggests_now = (
        suggests or answer.outcome is Outcome.MALFORMED or (ranking is not None and not ranking) or bool(missing)
    )
    suggestions = _suggestions(document, exchange, query) if suggests_now and exchange is not None else []
    remarks = [f"mapped `{field}` was found in 0 of {counted(len(ranking or ()), 'hit')}" for field in missing]
    remarks += [] if ranking is None else _ranking_remarks(retriever, ranking)
    remarks += [] if answer.cache_sign is None else [f"the answer {CACHED} ({answer.cache_sign})"]
    remarks += [] if exchange is None else [*exchange.remarks, *_endpoint_remarks(retriever, answer, exchange)]
    if (
        suggests_now
        and not suggestions
        and exchange is not None
        and exchange.response_body
        and (suggests or not missing)
    ):
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
    """Return the inputs of a run of a single query that expects nothing."""
    return RunInputs(
        check="",
        suite_slug="",
        suite=SuiteSnapshot.from_canaries([Canary(key="", query=query)]),
        retriever=retriever,
        yardstick=Yardstick.of(k=k, fetch_k=k, cutoffs=(), scorer=retriever.scorer, rules=()),
        config_hash="",
    )


def _ranking_remarks(retriever: Retriever, ranking: Ranking) -> list[str]:
    remarks = []
    if retriever.response.id is not None and len(ranking) >= _LEAST_HITS and are_ranks(ranking.ids):
        remarks.append("the ids only count the hits, as ranks do: in another answer they may be those of other chunks")
    order = score_order([score for score in ranking.scores if score is not None])
    scale = retriever.scorer.scale if retriever.scorer.kind is ScorerKind.SCORE else None
    if order == "in no order":
        remarks.append("the hits are not in order of score: ranks follow the answer's order")
    elif scale is Scale.DISTANCE and order == "falling":
        remarks.append("the largest distances come first: are these scores similarities?")
    elif scale not in {None, Scale.DISTANCE} and order == "rising":
        remarks.append(f"the lowest scores come first, though the scale is {scale}: are they distances?")
    return remarks + _relevance_remarks(retriever.scorer, ranking)


def _relevance_remarks(scorer: Scorer, ranking: Ranking) -> list[str]:
    """Return a remark where the answer degrades canaries without a minimum of their own."""
    if scorer.kind is not ScorerKind.SCORE or not ranking:
        return []
    relevance = [score_relevance(scorer, score) for score in ranking.scores]
    minimum = DEFAULT_MIN_RELEVANCE
    low = sum(one is not None and one < minimum for one in relevance)
    if relevance[0] is None or relevance[0] >= minimum:
        return []
    hits = (
        f"{low} of {counted(len(relevance), 'hit')}, the first among them, {'has' if low == 1 else 'have'} a relevance"
    )
    canaries = f"below {minimum:g}, the minimum of canaries that set none"
    return [f"{hits} {canaries}: such an answer degrades them, even if it is right; {LOWER_MINIMUM}"]


def _endpoint_remarks(retriever: Retriever, answer: Answer, exchange: Exchange) -> list[str]:
    status, target = exchange.http_status or 0, exchange.response_headers.get("location")
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST and target:
        return [f"it points to {target[:_MAX_ADDRESS]}"]
    if status == HTTPStatus.NOT_FOUND:
        missing = missing_resource(retriever.url, retriever.options)
        advice = (
            "check the path of the URL" if missing is None else f"check the {missing[0]} '{missing[1]}' and the URL"
        )
        return [f"HTTP 404 means that there is nothing at this address: {advice}"]
    version = retriever.response.index_version
    is_pasted = version is not None and version.startswith("header:") and not exchange.url
    if version is None or is_pasted or answer.ranking is None or answer.index_version is not None:
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
    found = suggestion_views(document, answer, query)
    if found and found[0]["response"].get("hits"):
        return found
    return _wrapped_suggestions(document, answer, query) or found


def _wrapped_suggestions(document: RetrieverDocument, answer: Any, query: str) -> list[MappingSuggestion]:
    """Return suggestions for the JSON that a text of the answer holds, as proxies of functions wrap it."""
    fields = answer if isinstance(answer, dict) else {"@": answer}
    for name, value in fields.items():
        if not isinstance(value, str) or value.lstrip()[:1] not in {"{", "["}:
            continue
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            continue
        path = name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)
        response = document.response.model_copy(update={"unwrap": path})
        found = suggestion_views(document.model_copy(update={"response": response}), inner, query)
        if found:
            return found
    return []


MAX_CANARIES = 200


def preview(
    read: ReadAnswer,
    document: RetrieverDocument,
    body: str,
    query: str,
    *,
    k: int,
    canary: CanaryDocument | None = None,
    relevance_from: str | None = None,
    decided: bool = True,
) -> MappingPreview:
    """Read a response by a mapping, and say what a run would score.

    Scores outside their scale, which a run would refuse, are shown without relevance. `relevance_from` names the
    service that measures relevance in runs, where that is one which is not asked here. `decided`: the scale was chosen,
    be it that there is none.
    """
    answer, refused = read_pasted(read, document, body, k=k), None
    trial: TrialView = answer_view(document, answer, query, k=k)
    if trial["outcome"] == Outcome.MALFORMED and document.to_domain().scorer.kind is ScorerKind.SCORE:
        unscaled = parse_document(RetrieverDocument, {**document.data(), "scorer": {"kind": "judged"}})
        other = read_pasted(read, unscaled, body, k=k)
        if other.ranking:
            answer, refused = other, trial["detail"]
            trial = {**answer_view(unscaled, other, query, k=k), "scorer": trial["scorer"], "top_score": None}
    warnings = _warnings(document.to_domain(), trial, relevance_from, decided=decided)
    matches = None if canary is None else _match_canary(canary, answer.ranking or EMPTY_RANKING)
    return {**trial, "refused": refused, "warnings": warnings, "matches": matches}


EMPTY_RANKING = Ranking(ids=(), documents=(), texts=(), scores=(), returned=0)


def parse_answer(body: str) -> Any:
    """Parse a response, or of one that was cut off or is too large what came whole; None where that is nothing."""
    try:
        return parse_json_text(body, ANSWER_LIMITS)
    except ValueError:
        return parse_cut(body[:KEPT_CHARACTERS])


def suggested_scale(path: str, hits: Sequence[TrialHit]) -> tuple[str, bool]:
    """Return the likely scale of the scores, "" where none is, and whether good hits are relevant enough on it."""
    scores = [hit["score"] for hit in hits if hit["score"] is not None]
    scale = likely_scale(path, scores)
    return ("", False) if scale is None else (str(scale), usable_scale(path, scores) is not None)


def canary_choices(store: Store) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (key, query) of the first 200 canaries, by suite."""
    left, choices = MAX_CANARIES, []
    for suite in references.load_definitions(store, "suite"):
        rows = references.load_canaries(store, suite.slug, limit=left) if left else []
        if rows:
            choices.append((suite.slug, [(row.key, str(row.body["query"])) for row in rows]))
            left -= len(rows)
    return choices


def load_canary(store: Store, suite: str, key: str) -> CanaryDocument:
    """Return a canary in force. Raises NotFoundError."""
    return CanaryDocument.model_validate(references.load_canary(store, suite, key).body)


def _warnings(retriever: Retriever, trial: TrialView, relevance_from: str | None, *, decided: bool) -> list[str]:
    """Return sentences without full stops on doubtful hits, besides the remarks of the trial."""
    hits, warnings = trial["hits"], []
    if retriever.response.id is None and hits:
        warnings.append("no id is mapped: hits are told apart by their texts, so a corrected text is another chunk")
    if trial["returned"] and trial["returned"] > len(hits):
        again = counted(trial["returned"] - len(hits), "hit")
        warnings.append(
            f"{again} had an id that came before: duplicates are dropped, or the ids are those of documents"
        )
    if hits and retriever.response.text is None:
        warnings.append(
            "no text is mapped: chunks that get another id cannot be recognised, and evidence shows ids alone"
        )
    if relevance_from is not None and hits:
        warnings.append(f"in a run {relevance_from} measures how relevant the first hit is, which is not asked here")
    elif retriever.scorer.kind is ScorerKind.JUDGED and hits and not decided:
        warnings.append("no scale is chosen: the grade of the first hit is its relevance, until “Scores are” says more")
    return warnings


def _match_canary(canary: CanaryDocument, ranking: Ranking) -> CanaryMatches:
    prepared = Panel([canary.to_domain()]).prepared(0)
    result = match(prepared, ranking)
    places = zip(prepared.judgments, result.first, result.first_level, strict=True)
    expected: list[ExpectedMatch] = [
        {**judgment_shape(judgment), "rank": rank, "level": None if rank is None else LEVELS[level - 1]}
        for judgment, rank, level in places
    ]
    return {
        "key": canary.key,
        "expected": expected,
        "missing": len(missing_judgments(prepared, result)),
        "matched_ranks": [rank for rank, grade in enumerate(result.grade, 1) if grade],
    }
