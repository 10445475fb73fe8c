"""Parts of logs that are sent again with the same `Idempotency-Key`: counted once, answered as the first time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.base.db.received_parts import ReceivedPart
from app.base.errors import ConflictError
from app.catalog.service.vault import Vault

RECEIVED_BEFORE: Final = "Received before with the same Idempotency-Key: not counted again."
"""Note of an answer to what arrived before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartName:
    """What a part is known by: keyed hashes, as its `Idempotency-Key` may be made of the queries."""

    key: str
    content: str


def name_part(vault: Vault, key: str, content: str) -> PartName:
    """Name a part by the key it came with and what it holds."""
    return PartName(key=vault.fingerprint(key), content=vault.fingerprint(content))


def received_part(part: PartName, answer: Mapping[str, Any]) -> ReceivedPart:
    """Return a part that is arriving, with its answer."""
    return ReceivedPart(content_hash=part.content, answer=json.dumps(answer))


def answer_again(known: ReceivedPart | None, part: PartName) -> dict[str, Any]:
    """Return the first answer to a part that arrived before, with a note. Raises ConflictError for other content."""
    if known is None or known.content_hash not in {None, part.content}:
        raise ConflictError("this Idempotency-Key was used with other queries")
    answer: dict[str, Any] = json.loads(known.answer)
    return {**answer, "notes": [*answer["notes"], RECEIVED_BEFORE]}
