"""Reads stored bodies of definitions; fields that an older release did not have get their defaults."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from app.base.documents.fields import Document
from app.catalog.documents.documents import (
    CanaryDocument,
    CheckDocument,
    ChunkDocument,
    HookDocument,
    JudgeDocument,
    JudgmentDocument,
    RetrieverDocument,
    SilenceDocument,
)
from app.catalog.documents.secret_fields import split_secrets, with_placeholders

_DOCUMENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Document]]] = {
    "retriever": RetrieverDocument.model_validate,
    "check": CheckDocument.model_validate,
    "hook": HookDocument.model_validate,
    "judge": JudgeDocument.model_validate,
    "silence": SilenceDocument.stored,
}
"""By kind. A suite is only a slug, and canaries are completed without validation: there may be 50,000."""

_CANARY: Final = CanaryDocument(key="any", query="any").data()
_CHUNKS: Final = {
    "expected_chunks": {**JudgmentDocument(id="any").data(), "id": None},
    "forbidden_chunks": {**ChunkDocument(id="any").data(), "id": None},
}


def read_body(kind: str, text: str, secrets_set: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a `BodyReader`
    """Return the body of a definition or a canary, with defaults for missing fields.

    A body that is invalid in this release is returned as stored; executing it reports the problem.
    """
    if kind == "canary":
        return _complete_canary(json.loads(text))
    if kind not in _DOCUMENTS:
        return dict(json.loads(text))
    return dict(json.loads(_complete(kind, text, secrets_set)))


@lru_cache(maxsize=2048)
def _complete(kind: str, text: str, secrets_set: bool) -> str:  # noqa: FBT001 - part of the cache's key
    try:
        document = _DOCUMENTS[kind](with_placeholders(json.loads(text), secrets_set=secrets_set))
    except ValidationError:
        return text
    return json.dumps(split_secrets(document)[0])


def _complete_canary(body: dict[str, Any]) -> dict[str, Any]:
    whole = body if body.keys() >= _CANARY.keys() else {**_CANARY, **body}
    for name, defaults in _CHUNKS.items():
        if not all(chunk.keys() >= defaults.keys() for chunk in whole[name]):
            whole[name] = [{**defaults, **chunk} for chunk in whole[name]]
    return whole
