"""Renders a quality report, the plain shape of `services.diagnosis.quality_report`, as Markdown.

Keys of canaries, ids and texts of chunks, and names of tags are hostile here: they are shown literally and cut.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from app.base.counts import counted
from app.base.documents.plain_text import UNDEFINED, Table, plain, shorten, table_markdown
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
