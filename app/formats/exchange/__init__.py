"""Suites from and to other tools' files: text in, values out, each format in a module of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from app.formats.documents import SuiteDocument
from app.formats.exchange import beir, quepid, records, rre, tabular, trec
from app.formats.exchange.gathering import Gathering, Source, Written

__all__ = ["FORMATS", "Format", "Gathering", "Source", "Written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format another tool reads and writes."""

    name: str
    what: str
    read: Callable[[Sequence[Source], Gathering], None]
    write: Callable[[SuiteDocument], Written]


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        one.name: one
        for one in (
            Format(name="trec", what="topics and qrels", read=trec.read, write=trec.write),
            Format(name="beir", what="queries.jsonl, corpus.jsonl, qrels/*.tsv", read=beir.read, write=beir.write),
            Format(name="csv", what="a table, one line a judgment", read=tabular.read, write=tabular.write),
            Format(name="quepid", what="case or book export", read=quepid.read, write=quepid.write),
            Format(name="rre", what="ratings.json", read=rre.read, write=rre.write),
            Format(name="jsonl", what="Ragas or LangSmith samples", read=records.read, write=records.write),
        )
    }
)
