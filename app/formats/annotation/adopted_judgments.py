"""Judgments of a canary after people graded its chunks: which change their grade, and which are new."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.annotation.pooling import text_key
from app.formats.catalog.canary_documents import CanaryDocument, JudgmentDocument
from app.formats.diagnosis.judgment_patch import judgment_name

_LONGEST_TEXT: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedItem:
    """A text with its grade: its identity, the ids of its chunks, and itself."""

    key: str
    ids: tuple[str, ...]
    text: str
    grade: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedJudgments:
    """What adopting changes in the judgments of a canary."""

    replaced: dict[str, tuple[JudgmentDocument, ...]]
    """Judgments with another grade, by the name of the old one; see `judgment_name`."""
    added: tuple[JudgmentDocument, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.replaced and not self.added


def adopt_judgments(canary: CanaryDocument, items: Sequence[GradedItem]) -> AdoptedJudgments:
    """Return what the grades of these items change in a canary.

    A judgment is of an item whose chunk id or normalised text it names; one by document alone stays as it is. A new one
    names id and text, so that it is found again under another id; a known irrelevant one its id alone.
    """
    replaced: dict[str, tuple[JudgmentDocument, ...]] = {}
    added: list[JudgmentDocument] = []
    taken = {chunk.identity for chunk in (*canary.expected_chunks, *canary.forbidden_chunks)}
    for item in items:
        known = [chunk for chunk in canary.expected_chunks if _is_of(chunk, item)]
        for chunk in known:
            if chunk.grade != item.grade:
                replaced[judgment_name(chunk)] = (chunk.model_copy(update={"grade": item.grade}),)
        if not known and (new := _new_judgment(item)) is not None and new.identity not in taken:
            taken.add(new.identity)
            added.append(new)
    return AdoptedJudgments(replaced=replaced, added=tuple(added))


def _is_of(chunk: JudgmentDocument, item: GradedItem) -> bool:
    if chunk.id is not None and chunk.id in item.ids:
        return True
    return chunk.text is not None and text_key(chunk.text, chunk="") == item.key


def _new_judgment(item: GradedItem) -> JudgmentDocument | None:
    name = next(iter(item.ids), None)
    text = item.text if item.text.strip() and len(item.text) <= _LONGEST_TEXT and (item.grade or name is None) else None
    if name is None and text is None:
        return None
    return JudgmentDocument(id=name, text=text, grade=item.grade)
