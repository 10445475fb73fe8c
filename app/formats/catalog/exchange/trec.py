"""TREC: topics, qrels and runs, as trec_eval reads them (https://github.com/usnistgov/trec_eval).

Topics are either `<top>`/`<topic>` elements or lines of id, tab, text. The first line of a file decides its kind.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.domain.errors import InvalidInputError, Problem
from app.formats.catalog.documents import SuiteDocument
from app.formats.catalog.exchange.losses import losses
from app.formats.catalog.exchange.suite_builder import Source, SuiteBuilder, SuiteFiles
from app.formats.fields import one_line

_QREL, _RUN, _TOPIC = 4, 6, 2
_LONGEST_TOPIC = 20_000
_TOPIC_BEGINS = re.compile(r"\s*<top(ic)?[\s>]", re.IGNORECASE)
_NUMBER = re.compile(
    r"""<num>\s*(?:Number:\s*)?([^\s<]+)|<topic\s[^<>]*?\b(?:number|id)\s*=\s*["']([^"'<>]+)""", re.IGNORECASE
)
_TITLE = re.compile(r"<(title|query)>\s*(?:Topic:\s*)?(.*)", re.IGNORECASE | re.DOTALL)


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read topics and qrels; a run has no judgments and is refused."""
    for source in sources:
        first = next((line for line in source.lines() if line.strip()), "")
        fields = first.split()
        if first.lstrip().startswith("<"):
            _tagged_topics(source, builder)
        elif len(fields) == _RUN and fields[1].upper() == "Q0":
            message = "is a run: `coalmine check PATH --rankings FILE` judges it; it does not say what is expected"
            builder.add_problem(source.name, None, message)
        elif len(fields) == _QREL and _whole(fields[3]) and first.strip().count("\t") != 1:  # a topic has one tab
            _qrels(source, builder)
        else:
            _plain_topics(source, builder)


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `topics.tsv` and `qrels.txt`."""
    topics, qrels = [], []
    notes: list[str] = []
    for canary in suite.canaries or ():
        query = " ".join(canary.query.split())
        if query != canary.query:
            notes.append("line breaks and runs of spaces in queries")
        topics.append(f"{canary.key}\t{query}\n")
        for chunk in canary.expected_chunks:
            name = chunk.id or chunk.document
            if name is None:
                notes.append("judgments by text alone")
            elif len(name.split()) != 1:
                notes.append("judgments whose id has spaces in it")
            else:
                qrels.append(f"{canary.key} 0 {name} {chunk.grade}\n")
    lost = losses(suite, fields={"query"}, extra=notes, texts=False, one_identity=True)
    return SuiteFiles(files={"topics.tsv": "".join(topics), "qrels.txt": "".join(qrels)}, notes=lost)


def read_run(source: Source) -> dict[str, list[tuple[str, float]]]:
    """Return a run by topic: (document, score) in trec_eval's order, by falling score and then falling name.

    Raises InvalidInputError with file and line.
    """
    rankings: dict[str, dict[str, float]] = {}
    problems: list[Problem] = []
    for number, line in enumerate(source.lines(), start=1):
        fields = line.split()
        if not fields:
            continue
        score = _number(fields[4]) if len(fields) == _RUN else None
        if score is None:
            message = "is not a line of a run: topic, Q0, document, rank, score, name"
            problems.append(Problem(message=message, file=source.name, line=number))
        elif rankings.setdefault(fields[0], {}).setdefault(fields[2], score) is not score:
            message = f"'{one_line(fields[2])}' is in the ranking of topic '{one_line(fields[0])}' already"
            problems.append(Problem(message=message, file=source.name, line=number))
    if problems or not rankings:
        raise InvalidInputError(problems or [Problem(message="is empty", file=source.name)])
    return {
        topic: sorted(ranking.items(), key=lambda hit: (hit[1], hit[0]), reverse=True)
        for topic, ranking in rankings.items()
    }


def write_run(rankings: Mapping[str, Sequence[str]], name: str) -> Iterator[str]:
    """Yield rankings by topic as lines of a run; scores fall with the rank, since trec_eval sorts by them."""
    tag = re.sub(r"\s+", "-", name) or "coalmine"
    for topic, documents in rankings.items():
        for rank, document in enumerate(documents, start=1):
            if len(document.split()) == 1:
                yield f"{topic} Q0 {document} {rank} {len(documents) - rank + 1} {tag}\n"


def run_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the results of a report as lines of a run, by canary key."""
    rankings = {one["key"]: [hit["id"] for hit in one["ranking"] or ()] for one in report["results"]}
    return write_run(rankings, f"{report['run']['check']}-{report['run']['id']}")


def _qrels(source: Source, builder: SuiteBuilder) -> None:
    for number, line in enumerate(source.lines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != _QREL:
            builder.add_problem(source.name, number, "is not a line of qrels: topic, 0, document, grade")
            continue
        grade = builder.read_grade(fields[3], source.name, number)
        if grade is not None:
            builder.add_judgment(fields[0], source.name, number, grade, id=fields[2])


def _plain_topics(source: Source, builder: SuiteBuilder) -> None:
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        topic, tab, query = line.rstrip("\r\n").partition("\t")
        if not tab or not topic.strip() or not query.strip():
            message = "is neither a topic (id, tab, text), nor a line of qrels (topic, 0, document, grade)"
            builder.add_problem(source.name, number, message)
            continue
        builder.add_canary(topic.strip(), query.strip(), source.name, number)


def _tagged_topics(source: Source, builder: SuiteBuilder) -> None:
    """Read topics between tags, which SGML need not close: a text ends where the next tag begins."""
    for begun, block in _blocks(source.lines()):
        number, title = _NUMBER.search(block), _TITLE.search(block)
        name = (number[1] or number[2]) if number else None
        query = " ".join(title[2].split("<")[0].split()) if title else ""
        if name is None or not query:
            builder.add_problem(source.name, begun, "a topic without a number, or without a title or query")
        else:
            builder.add_canary(name, query, source.name, begun)


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of each `<top>` or `<topic ...>` element, cut to the length a title may have."""
    begun, block = 0, ""
    for number, line in enumerate(lines, start=1):
        if _TOPIC_BEGINS.match(line):
            if begun:
                yield begun, block
            begun, block = number, ""
        if len(block) < _LONGEST_TOPIC:
            block += line[:_LONGEST_TOPIC]
    if begun:
        yield begun, block


def _whole(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0 else None
