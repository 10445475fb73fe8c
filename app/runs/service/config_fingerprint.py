"""What replicas must agree on, in one word: the canary files a process applied and the settings all should share."""

import hashlib
import json
from collections.abc import Mapping

from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import (
    CheckDocument,
    HookDocument,
    JudgeDocument,
    RetrieverDocument,
    SilenceDocument,
    SuiteDocument,
)
from app.catalog.documents.secret_fields import content_hash

_DIGITS = 12
_Named = SuiteDocument | RetrieverDocument | HookDocument | CheckDocument | SilenceDocument | JudgeDocument


def config_hash(documents: Documents | None, settings: Mapping[str, object]) -> str:
    """Name a configuration by 12 hex digits: the same where the same applies, whatever the order of the files.

    Secrets enter by name alone, as in the hashes of documents: a name that is shown must be no help in guessing them.
    None = no canary files are applied.
    """
    named = None
    if documents is not None:
        by_kind: dict[str, tuple[_Named, ...]] = {
            "suite": documents.suites,
            "retriever": documents.retrievers,
            "check": documents.checks,
            "hook": documents.hooks,
            "silence": documents.silences,
        }
        if documents.judges:  # without any it stays what it was
            by_kind["judge"] = documents.judges
        named = {kind: {one.slug: content_hash(one) for one in documents} for kind, documents in by_kind.items()}
    text = json.dumps([named, dict(settings)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
