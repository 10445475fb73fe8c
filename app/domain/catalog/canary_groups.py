"""What canaries have in common: their category, their tags, and the documents that they expect something of."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.model import DEFAULT_CATEGORY, Canary


class GroupKind(StrEnum):
    """What canaries may have in common."""

    CATEGORY = "category"
    TAG = "tag"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Canaries that have something in common; `name` is as people wrote it."""

    kind: GroupKind
    name: str


def groups_of(canary: Canary) -> list[Group]:
    """Return the groups a canary is in."""
    documents = dict.fromkeys(one.document for one in canary.judgments if one.document is not None)
    return [
        *(Group(kind=GroupKind.CATEGORY, name=str(one)) for one in (canary.category,) if one is not DEFAULT_CATEGORY),
        *(Group(kind=GroupKind.TAG, name=tag) for tag in canary.tags),
        *(Group(kind=GroupKind.DOCUMENT, name=name) for name in documents),
    ]
