"""Names of the expected chunks that changed canaries lost: what has to come back to the index."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from typing_extensions import TypedDict

from app.domain.model import Judgment
from app.domain.number_text import short_name

MOST_NAMES: Final = 3
"""So many chunks are named of a canary."""
_MOST_CANARIES: Final = 3
_LONGEST: Final = 200


class LostChunks(TypedDict):
    """Evidence of the expected chunks that a canary lost: the first of them by name, and how many there are."""

    lost: list[str]
    lost_total: int


def lost_chunks(
    judgments: Sequence[Judgment],
    now: Sequence[int | None],
    before: Sequence[int | None] | None,
    *,
    missing: bool,
) -> LostChunks:
    """Return the expected chunks that a canary lost, as part of evidence: `lost`, the first of them, and `lost_total`.

    `now` and `before` are ranks per judgment, `before` from when the canary was healthy; None = unknown. `missing`: no
    expected chunk is in the top k, so it lost what it found before or, where that is unknown, all it expects.
    """
    expected = [place for place, one in enumerate(judgments) if one.grade >= 1]
    had = [place for place in expected if before is not None and before[place] is not None]
    lost = (had or expected) if missing else [place for place in had if now[place] is None]
    names = list(dict.fromkeys(chunk_name(judgments[place]) for place in lost))
    return {"lost": names[:MOST_NAMES], "lost_total": len(names)}


def chunk_name(judgment: Judgment) -> str:
    """Name of an expected chunk: its id, else its document, else the beginning of its text."""
    name = judgment.id or judgment.document
    return short_name(name, _LONGEST) if name else f"\u201c{short_name(judgment.text or '')}\u201d"


def lost_text(canary: Mapping[str, Any]) -> str:
    """Chunks that one canary lost: `retention_doc, sla_doc and 2 more`; empty where none is known."""
    return _with_more(canary.get("lost") or [], canary.get("lost_total") or 0)


def all_lost_text(canaries: Sequence[Mapping[str, Any]], changed: int | None) -> str:
    """Chunks that the listed canaries of an alert lost, the first by name; `changed` = how many changed in all."""
    losers = [one for one in canaries if one.get("lost") and one.get("persistent") is not False]
    names = list(dict.fromkeys(name for one in losers[:_MOST_CANARIES] for name in one["lost"]))
    listed = {name for one in losers for name in one["lost"]}
    total = len(listed) + sum(one["lost_total"] - len(one["lost"]) for one in losers)
    text = _with_more(names, total)
    beyond = changed is not None and changed > len(canaries)
    return f"{text} (of the {len(canaries)} worst of {changed:,} canaries)" if text and beyond else text


def _with_more(names: Sequence[str], total: int) -> str:
    more = total - len(names)
    return ", ".join(names) + (f" and {more:,} more" if names and more > 0 else "")
