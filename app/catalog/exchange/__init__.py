"""Import and export of suites in other tools' formats: a format is an entry here, its reader and its writer."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from app.base.texts import Source, counted
from app.base.values import Value
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange import csv, datasets, workbenches
from app.catalog.exchange.suite_builder import Limits, SuiteBuilder, SuiteFiles

__all__ = ["FORMATS", "Format", "Limits", "Source", "SuiteBuilder", "SuiteFiles", "archived_note"]


Read: TypeAlias = Callable[[Sequence[Source], SuiteBuilder], None]
Write: TypeAlias = Callable[[SuiteDocument], SuiteFiles]


class Format(Value):
    """A format of another tool; `files` matches the names of the files it writes."""

    name: str
    what: str
    files: re.Pattern[str]
    read: Read
    write: Write


def _format(name: str, what: str, files: str, read: Read, write: Write) -> Format:
    return Format(name=name, what=what, files=re.compile(files), read=read, write=write)


_SLUG = "[a-z0-9-]{1,64}"
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        one.name: one
        for one in (
            _format("trec", "topics and qrels", r"topics\.tsv|qrels\.txt", datasets.read, datasets.write),
            _format(
                "beir",
                "queries, corpus and qrels",
                r"(queries|corpus)\.jsonl|qrels/test\.tsv",
                datasets.read_beir,
                datasets.write_beir,
            ),
            _format("csv", "a table, one line a judgment", rf"{_SLUG}\.csv", csv.read, csv.write),
            _format(
                "quepid", "case or book export", rf"{_SLUG}\.csv", workbenches.read_quepid, workbenches.write_quepid
            ),
            _format("rre", "ratings.json", r"ratings\.json", workbenches.read_rre, workbenches.write_rre),
            _format(
                "jsonl",
                "Ragas, LangSmith, Langfuse or DeepEval",
                rf"{_SLUG}\.jsonl",
                datasets.read_json_lines,
                datasets.write_json_lines,
            ),
            _format(
                "elasticsearch",
                "body of _rank_eval",
                r"rank-eval\.json",
                workbenches.read_elasticsearch,
                workbenches.write_elasticsearch,
            ),
            _format(
                "opensearch",
                "judgments of Search Relevance",
                r"judgments\.json",
                workbenches.read_opensearch,
                workbenches.write_opensearch,
            ),
            _format(
                "llamaindex",
                "question-context pairs",
                r"dataset\.json",
                datasets.read_llamaindex,
                datasets.write_llamaindex,
            ),
        )
    }
)


def archived_note(count: int) -> str:
    """Say that an import archives canaries, and how to keep them."""
    return (
        f"{counted(count, 'canary')} of the suite not in these files: archived, as an import replaces all canaries of "
        "its suite; to keep them, import all files at once, or these as another suite"
    )
