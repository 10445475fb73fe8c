"""Groups of canaries: by category, by tag, and by expected document."""

from dataclasses import dataclass
from enum import StrEnum

from app.base.values import DEFAULT_CATEGORY, Canary


class GroupKind(StrEnum):
    """Kind of a group."""

    CATEGORY = "category"
    TAG = "tag"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of canaries; `name` is spelled as in the suite."""

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
