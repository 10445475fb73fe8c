"""Suggested mappings as part of a retriever document: what to put under its slug, as YAML ready to paste."""

from collections.abc import Mapping
from typing import Any

import yaml

from app.domain.retrievers import ResponseMapping, ScorerKind
from app.domain.suggesting import Suggestion
from app.formats.presets import PRESETS
from app.formats.retriever_documents import RetrieverDocument
from app.formats.yaml_source import escape_dollars

FIELDS = ("hits", "id", "score", "text", "document", "updated")


def suggestion_shape(suggestion: Suggestion, document: RetrieverDocument) -> dict[str, Any]:
    """Shape a suggestion for a retriever: `response, scorer, hits, reasons, yaml`.

    `response` takes the place of the retriever's; null takes out what its preset would fill in again. `scorer` is null
    where the scores do not say their scale, or where the retriever's own measures relevance by other means.
    """
    outside = document.scorer.kind in {ScorerKind.EMBEDDING, ScorerKind.RERANK}
    response = response_part(suggestion.mapping, document)
    scorer = None if outside or suggestion.scale is None else {"scale": str(suggestion.scale)}
    return {
        "response": response,
        "scorer": scorer,
        "hits": suggestion.hits,
        "reasons": dict(suggestion.reasons),
        "yaml": parts_yaml(response, scorer),
    }


def response_part(mapping: ResponseMapping, document: RetrieverDocument) -> dict[str, str | None]:
    """Write a mapping as the `response` of a document; the index version stays where the document says it is."""
    preset = PRESETS[document.preset]
    filled: Mapping[str, Any] = {} if preset.response_as_one else preset.response
    paths = {name: getattr(mapping, name) for name in FIELDS} | {"index_version": document.response.index_version}
    return {name: path for name, path in paths.items() if path is not None or name in filled}


def parts_yaml(response: Mapping[str, str | None], scorer: Mapping[str, str | float] | None) -> str:
    """Write these parts of a retriever as a canary file has them."""
    parts = {"response": response, **({"scorer": scorer} if scorer else {})}
    escaped = {
        part: {name: escape_dollars(value) if isinstance(value, str) else value for name, value in fields.items()}
        for part, fields in parts.items()
    }
    return str(yaml.safe_dump(escaped, sort_keys=False, allow_unicode=True, width=110))
