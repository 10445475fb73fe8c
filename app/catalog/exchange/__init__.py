"""Import and export of suites in other tools' formats, one module per format."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType

from app.base.documents.texts import Source
from app.base.texts import counted
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange import beir, csv, elasticsearch, json_lines, llamaindex, opensearch, quepid, rre, trec
from app.catalog.exchange.suite_builder import Limits, SuiteBuilder, SuiteFiles

__all__ = ["FORMATS", "Format", "Limits", "Source", "SuiteBuilder", "SuiteFiles", "archived_note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of another tool; `files` matches the names of the files it writes."""

    name: str
    what: str
    files: re.Pattern[str]
    read: Callable[[Sequence[Source], SuiteBuilder], None]
    write: Callable[[SuiteDocument], SuiteFiles]


def _format(name: str, what: str, files: str, module: ModuleType) -> Format:
    return Format(name=name, what=what, files=re.compile(files), read=module.read, write=module.write)


_SLUG = "[a-z0-9-]{1,64}"
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        one.name: one
        for one in (
            _format("trec", "topics and qrels", r"topics\.tsv|qrels\.txt", trec),
            _format("beir", "queries, corpus and qrels", r"(queries|corpus)\.jsonl|qrels/test\.tsv", beir),
            _format("csv", "a table, one line a judgment", rf"{_SLUG}\.csv", csv),
            _format("quepid", "case or book export", rf"{_SLUG}\.csv", quepid),
            _format("rre", "ratings.json", r"ratings\.json", rre),
            _format("jsonl", "Ragas, LangSmith, Langfuse or DeepEval", rf"{_SLUG}\.jsonl", json_lines),
            _format("elasticsearch", "body of _rank_eval", r"rank-eval\.json", elasticsearch),
            _format("opensearch", "judgments of Search Relevance", r"judgments\.json", opensearch),
            _format("llamaindex", "question-context pairs", r"dataset\.json", llamaindex),
        )
    }
)


def archived_note(count: int) -> str:
    """Say that an import archives canaries, and how to keep them."""
    return (
        f"{counted(count, 'canary')} of the suite not in these files: archived, as an import replaces all canaries of "
        "its suite; to keep them, import all files at once, or these as another suite"
    )
