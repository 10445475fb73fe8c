"""Renders a quality report, the plain shape of `services.diagnosis.quality_report`, as Markdown.

Keys of canaries, ids and texts of chunks, and names of tags are hostile here: they are shown literally and cut.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from app.base.documents.texts import UNDEFINED, Table, plain, shorten, table_markdown
from app.base.texts import counted
from app.diagnosis.domain.views import QualityReport, QualitySection
from app.diagnosis.quality.domain.evidence import Mark

TITLES: Final[Mapping[str, str]] = {
    "suite": "Suite",
    "chunk_quality": "Chunk quality",
    "embedding_quality": "Embedding quality",
    "recall": "Recall",
    "precision": "Score separation",
    "vocabulary": "Vocabulary",
    "chunk_boundaries": "Chunk boundaries",
    "slow_drift": "Slow drift",
}
VERDICTS: Final[Mapping[str, str]] = {Mark.GOOD: "good", Mark.REVIEW: "look at this", Mark.UNKNOWN: "unknown"}
_SHOWN = 80


def quality_markdown(report: QualityReport) -> str:
    """Return the report as GitHub-flavoured Markdown: an overview, then each section with numbers and examples."""
    canaries, chunks = report["canaries"], report["chunks"]
    evaluated = f"{counted(canaries['looked_at'], 'canary')} and {counted(chunks['looked_at'], 'chunk')} evaluated"
    overview = Table(
        title=f"Quality, {evaluated}",
        columns=("check", "run", "at"),
        rows=((plain(str(report["check"])), plain(str(report["run"])), plain(str(report["at"]))),),
        quoted=frozenset({0, 1, 2}),
    )
    tables = [overview, _overview(report), *[table for section in report["sections"] for table in _tables(section)]]
    notes = Table(title="Not evaluated", columns=("what",), rows=tuple((plain(str(note)),) for note in report["notes"]))
    return "\n\n".join([table_markdown(table) for table in (*tables, notes) if table.rows]) + "\n"


def _overview(report: QualityReport) -> Table:
    rows = tuple(
        (
            _title(section),
            VERDICTS.get(section["verdict"], UNDEFINED),
            plain(str(section["reason"])),
            plain(str(section["advice"] or UNDEFINED)),
        )
        for section in report["sections"]
    )
    return Table(title="Checklist", columns=("point", "verdict", "why", "advice"), rows=rows)


def _tables(section: QualitySection) -> Iterator[Table]:
    title = _title(section)
    numbers = tuple((plain(str(name)), _number(value)) for name, value in section["numbers"].items())
    yield Table(title=title, columns=("number", "value"), rows=numbers)
    groups = section["groups"]
    names = list(dict.fromkeys(name for numbers in groups.values() for name in numbers))
    yield Table(
        title=f"{title} by group",
        columns=("group", *[plain(str(name)) for name in names]),
        rows=tuple(
            (shorten(str(group), _SHOWN), *[_number(part.get(name)) for name in names])
            for group, part in groups.items()
        ),
        quoted=frozenset({0}),
    )
    yield Table(
        title=f"{title}: examples",
        columns=("canary", "chunk", "what", "text"),
        rows=tuple(
            (
                *[UNDEFINED if name is None else shorten(name, _SHOWN) for name in (one["canary"], one["chunk"])],
                plain(one["told"]),
                UNDEFINED if one["text"] is None else shorten(one["text"], _SHOWN),
            )
            for one in section["examples"]
        ),
        quoted=frozenset({0, 1, 3}),
    )


def _title(section: QualitySection) -> str:
    return TITLES.get(section["name"], plain(str(section["name"])))


def _number(value: float | None) -> str:
    if value is None:
        return UNDEFINED
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


ABOUT: Final[Mapping[str, str]] = {
    "suite": "How small a damage to the index the canaries of the suite would notice at all.",
    "chunk_quality": "What the retrieved chunks are like as texts, whatever was asked: empty, cut, too long, repeated.",
    "embedding_quality": "Whether the embedder puts similar texts closer together than dissimilar ones.",
    "recall": "Whether what is expected is found at all, and how deep in the ranking.",
    "precision": "Whether scores separate relevant hits from others, so that a threshold or a reranker could use them.",
    "vocabulary": "Whether queries share words with what they should find.",
    "chunk_boundaries": "Whether a passage that is expected was cut in two, so that no one chunk holds it.",
    "slow_drift": "Whether the check declines too slowly for a baseline that moves along with it.",
}
"""By the name of the point."""

TO_KNOW: Final[Mapping[str, str]] = {
    "suite": "Add canaries that expect something; three per topic are the least.",
    "chunk_quality": "Texts of hits are needed: map response.text of the retriever, if its answers hold them.",
    "embedding_quality": "Name the embedder in the retriever's document, so that every run asks it for known texts.",
    "recall": "Let canaries expect chunks, and the check run once.",
    "precision": "Map response.score of the retriever, and let canaries expect chunks: both kinds of hits are needed.",
    "vocabulary": "Expect passages by their text, or map response.text: the words of what is expected are needed.",
    "chunk_boundaries": "Expect passages by their text, of eight words or more, and map response.text.",
    "slow_drift": "Let the check run on at least five days.",
}
"""By the name of the point, what to do where it is unknown."""


def number_name(name: str) -> str:
    """Name of a number in words: `found@5` as found in the top 5, `p90` as upper tenth."""
    if match := re.fullmatch(r"found@(\d+)", name):
        return f"found in the top {match[1]}"
    if match := re.fullmatch(r"(relevant|other)_(p10|median|p90)", name):
        return f"{match[1]} hits, {_QUANTILES[match[2]]} score"
    return name.replace("_", " ")


_QUANTILES = {"p10": "lower tenth of the", "median": "median", "p90": "upper tenth of the"}
