"""Judgments of a canary after people graded its chunks: which change their grade, and which are new."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.annotation.domain.pooling import text_key
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument, JudgmentDocument
from app.diagnosis.documents.judgment_patch import judgment_name
from app.scoring.passages import match_level, normalise, prepare_passage

_LONGEST_TEXT: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedItem:
    """A text with its grade: its identity, the ids of its chunks that name no other text, and itself."""

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
    unnamed: tuple[GradedItem, ...] = ()
    """Items that get no judgment: no id is theirs alone, and their text is empty or too long to name them."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.replaced and not self.added


def adopt_judgments(canary: CanaryDocument, items: Sequence[GradedItem], *, source: str) -> AdoptedJudgments:
    """Return what the grades of these items change in a canary; what they change or add comes from this source.

    So does a judgment with the same grade from another source: what was ticked in one answer is now judged in a pool.
    One that has no source keeps to have none, as somebody knew the document.
    A judgment is of the item of its normalised text, else of the one that has its chunk id and contains its text; one
    by document alone stays as it is. A new one names id and text, so that it is found again under another id; a known
    irrelevant one its id alone. One without an id, or whose id a judgment of another text has, is named by its text.
    """
    lookup = _Lookup.of(items)
    replaced: dict[str, tuple[JudgmentDocument, ...]] = {}
    known: set[str] = set()
    others_ids: set[str] = set()
    for chunk in (*canary.expected_chunks, *canary.forbidden_chunks):
        item = lookup.find_item(chunk)
        if item is not None:
            known.add(item.key)
            if isinstance(chunk, JudgmentDocument) and (
                chunk.grade != item.grade or chunk.source not in {None, source}
            ):
                changed = chunk.model_copy(update={"grade": item.grade, "source": source})
                replaced[judgment_name(chunk)] = (changed,)
        if chunk.id is not None and (item is None or chunk.id not in item.ids):
            others_ids.add(chunk.id)
    new = [(item, _new_judgment(item, others_ids, source)) for item in items if item.key not in known]
    return AdoptedJudgments(
        replaced=replaced,
        added=tuple(one for _, one in new if one is not None),
        unnamed=tuple(item for item, one in new if one is None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    """Items by the identity of their text, and by the ids that name no other."""

    by_key: Mapping[str, GradedItem]
    by_id: Mapping[str, GradedItem]

    @classmethod
    def of(cls, items: Sequence[GradedItem]) -> "_Lookup":
        """Index items."""
        return cls(
            by_key={item.key: item for item in items},
            by_id={chunk: item for item in items for chunk in item.ids},
        )

    def find_item(self, chunk: ChunkDocument) -> GradedItem | None:
        """Return the item that a chunk of a canary is; None = none of them."""
        passage = None if chunk.text is None else prepare_passage(chunk.text)
        if chunk.text is not None and passage is not None:
            item = self.by_key.get(text_key(chunk.text, chunk=""))
            if item is not None:
                return item
        item = None if chunk.id is None else self.by_id.get(chunk.id)
        body = "" if item is None else normalise(item.text)
        if passage is not None and body and match_level(passage, body) is None:
            return None  # the same id of another text
        return item


def _new_judgment(item: GradedItem, others_ids: Collection[str], source: str) -> JudgmentDocument | None:
    """Return the judgment of an item that has none; None = neither an id nor a text can name it."""
    name = next((chunk for chunk in item.ids if chunk not in others_ids), None)
    usable = bool(normalise(item.text)) and len(item.text) <= _LONGEST_TEXT
    text = item.text if usable and (item.grade or name is None) else None
    if name is None and text is None:
        return None
    return JudgmentDocument(id=name, text=text, grade=item.grade, source=source)
