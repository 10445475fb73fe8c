"""Mapping an answer step by step: what a mapping reads of it, how relevant that is, what is odd, and what it matches.

Like `trials`, on which it stands, it stores nothing.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.counts import counted
from app.domain.model import Judgment, Outcome, Ranking
from app.domain.probing.mapping_suggestions import likely_scale, usable_scale
from app.domain.probing.retrievers import Retriever, ScorerKind
from app.domain.runs.matching import LEVELS, match, missing_judgments, prepare
from app.formats.catalog.canary_documents import CanaryDocument
from app.formats.catalog.documents import RetrieverDocument
from app.formats.truncated_json import parse_cut
from app.formats.validation_messages import parse_document
from app.services.catalog import definitions
from app.services.probing.trials import SUGGESTED_FROM, ReadAnswer, try_answer
from app.store.engine import Store

MAX_CANARIES = 200
"""How many canaries are offered to ask with."""


def parse_answer(body: str) -> Any:
    """Parse an answer, or of one that was cut off what came whole; None where that is nothing."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return parse_cut(body[:SUGGESTED_FROM])


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
) -> dict[str, Any]:
    """Read an answer by a mapping and say what would be scored: a trial (see `trials`) with `warnings` and `matches`.

    Where scores do not lie on their scale the hits are shown without relevance, which would refuse them in a run:
    `refused` says why. `matches` are what a canary expects, with where each was found; None without a canary.
    `relevance_from` names who measures relevance in runs, where that is a service which is not asked here. `decided`:
    somebody chose what scores are, be it that they are on no scale.
    """
    trial = try_answer(read, document, body, query, k=k)
    refused = None
    if trial["outcome"] == Outcome.MALFORMED and document.to_domain().scorer.kind is ScorerKind.SCORE:
        unscaled = _without_scale(document)
        other = try_answer(read, unscaled, body, query, k=k)
        if other["hits"]:
            trial, refused = {**other, "scorer": trial["scorer"], "top_score": None}, trial["detail"]
    matches = None if canary is None else _matched(trial["hits"], canary)
    warnings = _warnings(document.to_domain(), trial, relevance_from, decided=decided)
    return {**trial, "refused": refused, "warnings": warnings, "matches": matches}


def suggested_scale(path: str, preview: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the scale the scores of a preview look like, empty where that cannot be said, and whether it fits.

    One on which the first hit would be less relevant than most canaries ask does not: see `fitting_scale`.
    """
    scores = [hit["score"] for hit in preview["hits"] if hit["score"] is not None]
    scale = likely_scale(path, scores)
    return ("", False) if scale is None else (str(scale), usable_scale(path, scores) is not None)


def canary_choices(store: Store) -> list[tuple[str, list[tuple[str, str]]]]:
    """List canaries to ask with, (key, query) by suite: the first 200."""
    left, found = MAX_CANARIES, []
    for suite in definitions.list_all(store, "suite"):
        rows = definitions.list_canaries(store, suite.slug, limit=left) if left else []
        if rows:
            found.append((suite.slug, [(row.key, str(row.body["query"])) for row in rows]))
            left -= len(rows)
    return found


def load_canary(store: Store, suite: str, key: str) -> CanaryDocument:
    """Read a canary in force. Raises NotFoundError."""
    return CanaryDocument.model_validate(definitions.find_canary(store, suite, key).body)


def ranking_of(hits: Sequence[Mapping[str, Any]]) -> Ranking:
    """Make hits, as a trial shapes them, a ranking again."""
    return Ranking(
        ids=tuple(hit["id"] for hit in hits),
        documents=tuple(hit["document"] for hit in hits),
        texts=tuple(hit["text"] for hit in hits),
        scores=tuple(hit["score"] for hit in hits),
        returned=len(hits),
    )


def _without_scale(document: RetrieverDocument) -> RetrieverDocument:
    return parse_document(RetrieverDocument, {**document.data(), "scorer": {"kind": "judged"}})


def _warnings(
    retriever: Retriever, trial: Mapping[str, Any], relevance_from: str | None, *, decided: bool
) -> list[str]:
    """Say in sentences without full stops what is odd about the hits; what a trial remarks on is not said again."""
    hits, found = trial["hits"], []
    if retriever.response.id is None and hits:
        found.append("no id is mapped: hits are told apart by their texts, so a corrected text is another chunk")
    if trial["returned"] and trial["returned"] > len(hits):
        again = counted(trial["returned"] - len(hits), "hit")
        found.append(f"{again} had an id that came before: duplicates are dropped, or the ids are those of documents")
    if hits and retriever.response.text is None:
        found.append("no text is mapped: chunks that get another id cannot be recognised, and evidence shows ids alone")
    if relevance_from is not None and hits:
        found.append(f"in a run {relevance_from} measures how relevant the first hit is, which is not asked here")
    elif retriever.scorer.kind is ScorerKind.JUDGED and hits and not decided:
        found.append("no scale is chosen: the grade of the first hit is its relevance, until “Scores are” says more")
    return found


def _matched(hits: Sequence[Mapping[str, Any]], canary: CanaryDocument) -> dict[str, Any]:
    """Say which of the expected chunks are among the hits, at which rank and by which level."""
    judgments = [chunk.to_domain() for chunk in canary.expected_chunks]
    prepared = prepare(judgments)
    found = match(prepared, ranking_of(hits))
    gone = missing_judgments(prepared, found)
    return {
        "key": canary.key,
        "query": canary.query,
        "expected": [
            {
                **_judgment(judgment),
                "rank": rank,
                "level": str(LEVELS[found.first_level[place] - 1]) if rank is not None else None,
            }
            for place, (judgment, rank) in enumerate(zip(judgments, found.first, strict=True))
        ],
        "missing": len(gone),
        "by_rank": {rank: grade for rank, grade in enumerate(found.grade, 1) if grade},
    }


def _judgment(judgment: Judgment) -> dict[str, Any]:
    said = {"id": judgment.id, "document": judgment.document, "text": judgment.text}
    return {**{name: value for name, value in said.items() if value is not None}, "grade": judgment.grade}
