"""Preview of a response mapping: hits, relevance, warnings, and the chunks of a canary. Nothing is stored."""

from collections.abc import Sequence
from typing import Any

from app.base.counts import counted
from app.base.db.engine import Store
from app.base.documents.json_texts import parse_json_text
from app.base.documents.truncated_json import parse_cut
from app.base.documents.validation_messages import parse_document
from app.base.json_size import ANSWER_LIMITS
from app.base.values import Outcome, Ranking
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.documents import RetrieverDocument
from app.catalog.service import definitions, suite_definitions
from app.records.documents import judgment_shape
from app.retrievers.domain.mapping_suggestions import likely_scale, usable_scale
from app.retrievers.domain.retrievers import Retriever, ScorerKind
from app.retrievers.domain.views import CanaryMatches, ExpectedMatch, MappingPreview, TrialHit, TrialView
from app.retrievers.service.trials import SUGGESTED_FROM, ReadAnswer, answer_view, read_pasted
from app.scoring.evaluation import Panel
from app.scoring.matching import LEVELS, match, missing_judgments

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
        return parse_cut(body[:SUGGESTED_FROM])


def suggested_scale(path: str, hits: Sequence[TrialHit]) -> tuple[str, bool]:
    """Return the likely scale of the scores, "" where none is, and whether good hits are relevant enough on it."""
    scores = [hit["score"] for hit in hits if hit["score"] is not None]
    scale = likely_scale(path, scores)
    return ("", False) if scale is None else (str(scale), usable_scale(path, scores) is not None)


def canary_choices(store: Store) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (key, query) of the first 200 canaries, by suite."""
    left, choices = MAX_CANARIES, []
    for suite in definitions.list_all(store, "suite"):
        rows = suite_definitions.list_canaries(store, suite.slug, limit=left) if left else []
        if rows:
            choices.append((suite.slug, [(row.key, str(row.body["query"])) for row in rows]))
            left -= len(rows)
    return choices


def load_canary(store: Store, suite: str, key: str) -> CanaryDocument:
    """Return a canary in force. Raises NotFoundError."""
    return CanaryDocument.model_validate(suite_definitions.find_canary(store, suite, key).body)


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
