"""Suggested mappings as part of a retriever document: what to put under its slug, as YAML ready to paste."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jmespath
import yaml
from jmespath.exceptions import JMESPathError

from app.base.documents.yaml_source import escape_dollars
from app.retrievers.documents.retriever_documents import RetrieverDocument
from app.retrievers.domain.answer_outline import WHOLE_FIELDS
from app.retrievers.domain.mapping_suggestions import Suggestion, suggest_signs
from app.retrievers.domain.retrievers import ResponseMapping, ScorerKind
from app.retrievers.domain.views import MappingSuggestion, SuggestedScorer
from app.retrievers.presets import PRESETS

_MOST_HITS = 200
FIELDS = ("hits", "id", "score", "text", "document", "updated")


def suggestion_view(suggestion: Suggestion, document: RetrieverDocument, answer: Any) -> MappingSuggestion | None:
    """Return the view of a suggestion for a retriever; None where it reads no hit.

    Only paths that read something are kept: each is applied to the response. `response` replaces the retriever's; null
    takes out what its preset would fill in again. `reasons` says so where there is no path to an id or a text. `scorer`
    is null where the scores do not imply their scale, or where the retriever measures relevance by other means.
    """
    is_external = document.scorer.kind in {ScorerKind.EMBEDDING, ScorerKind.RERANK}
    mapping = _readable_paths(suggestion.mapping, document.response.index_version, answer)
    if mapping.id is None and mapping.text is None:
        return None
    response = _response_fields(mapping, document)
    signs = suggest_signs(answer)
    kept = {name: getattr(document.response, name) for name in ("error", "partial", "absent", "unwrap")}
    response |= {name: path for name in kept if (path := kept[name] or signs.get(name)) is not None}
    has_scale = mapping.score is not None and not is_external
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


def response_fields(mapping: ResponseMapping, document: RetrieverDocument) -> dict[str, str | None]:
    """Return a mapping as the `response` of a document, which keeps what it has of the whole response."""
    kept = {name: getattr(document.response, name) for name in WHOLE_FIELDS}
    return _response_fields(replace(mapping, **kept), document)


def _response_fields(mapping: ResponseMapping, document: RetrieverDocument) -> dict[str, str | None]:
    preset = PRESETS[document.preset]
    preset_response: Mapping[str, Any] = {} if preset.response_as_one else preset.response
    paths = {name: getattr(mapping, name) for name in (*FIELDS, *WHOLE_FIELDS)}
    return {name: path for name, path in paths.items() if path is not None or name in preset_response}


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


def mapping_yaml(response: Mapping[str, str | None], scorer: Mapping[str, str | float] | None) -> str:
    """YAML of these parts of a retriever, as a canary file has them."""
    parts = {"response": response, **({"scorer": scorer} if scorer else {})}
    escaped = {
        part: {name: escape_dollars(value) if isinstance(value, str) else value for name, value in fields.items()}
        for part, fields in parts.items()
    }
    return str(yaml.safe_dump(escaped, sort_keys=False, allow_unicode=True, width=110))
