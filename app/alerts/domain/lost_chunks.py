"""Names of the expected chunks that changed canaries lost: what has to come back to the index."""

from collections.abc import Sequence
from typing import Final

from app.alerts.domain.evidence import Degradation
from app.base.number_text import short_name
from app.base.values import Judgment

MOST_NAMES: Final = 3
"""So many chunks are named of a canary."""
_MOST_CANARIES: Final = 3
_LONGEST: Final = 200


def lost_chunks(
    judgments: Sequence[Judgment],
    now: Sequence[int | None],
    before: Sequence[int | None] | None,
    *,
    missing: bool,
    documents: Sequence[str | None] = (),
) -> Degradation:
    """Return the expected chunks that a canary lost, as part of evidence: `lost`, the first of them, and `lost_total`.

    `lost_documents` has the documents, or titles, of those in `lost`, where any is known; `documents` are those of the
    ranking of `before`.

    `now` and `before` are ranks per judgment, `before` from when the canary was healthy; None = unknown. `missing`: no
    expected chunk is in the top k, so it lost what it found before or, where that is unknown, all it expects.
    """
    expected = [place for place, one in enumerate(judgments) if one.grade >= 1]
    had = [place for place in expected if before is not None and before[place] is not None]
    lost = (had or expected) if missing else [place for place in had if now[place] is None]
    ranks = before or ()
    names: dict[str, str | None] = {}
    for place in lost:
        rank = ranks[place] if judgments[place].id and place < len(ranks) else None
        document = documents[rank - 1] if rank is not None and rank <= len(documents) else None
        names.setdefault(chunk_name(judgments[place]), document)
    titles = [_title(name, document) for name, document in list(names.items())[:MOST_NAMES]]
    found: Degradation = {"lost": list(names)[:MOST_NAMES], "lost_total": len(names)}
    if any(titles):
        found["lost_documents"] = titles
    return found


def _title(name: str, document: str | None) -> str | None:
    """Document of a chunk, where it says more than the name of the chunk."""
    return None if document is None or document in name or name in document else short_name(document)


def chunk_name(judgment: Judgment) -> str:
    """Name of an expected chunk: its id, else its document, else the beginning of its text."""
    name = judgment.id or judgment.document
    return short_name(name, _LONGEST) if name else f"\u201c{short_name(judgment.text or '')}\u201d"


def lost_text(canary: Degradation) -> str:
    """Chunks that one canary lost: `retention_doc, sla_doc and 2 more`; empty where none is known."""
    return _with_more(_titled_names(canary), canary.get("lost_total") or 0)


def all_lost_text(canaries: Sequence[Degradation], changed: int | None) -> str:
    """Chunks that the listed canaries of an alert lost, the first by name; `changed` = how many changed in all."""
    losers = [one for one in canaries if one.get("lost") and one.get("persistent") is not False]
    names = list(dict.fromkeys(name for one in losers[:_MOST_CANARIES] for name in _titled_names(one)))
    listed = {name for one in losers for name in one["lost"]}
    total = len(listed) + sum(one["lost_total"] - len(one["lost"]) for one in losers)
    text = _with_more(names, total)
    beyond = changed is not None and changed > len(canaries)
    return f"{text} (of the {len(canaries)} worst of {changed:,} canaries)" if text and beyond else text


def _titled_names(canary: Degradation) -> list[str]:
    """Names of the chunks a canary lost, each with its document in brackets: `bill-004 (Add a tax number)`."""
    names = canary.get("lost") or []
    titles = canary.get("lost_documents") or [None] * len(names)
    return [name if title is None else f"{name} ({title})" for name, title in zip(names, titles, strict=True)]


def _with_more(names: Sequence[str], total: int) -> str:
    more = total - len(names)
    return ", ".join(names) + (f" and {more:,} more" if names and more > 0 else "")
