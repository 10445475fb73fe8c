"""TREC: topics, qrels and runs, as trec_eval reads them (https://github.com/usnistgov/trec_eval).

Topics are either `<top>`/`<topic>` elements or lines of id, tab, text. The first line of a file decides its kind.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_float
from typing import Any

from app.base.documents.fields import MOST_PROBLEMS, one_line
from app.base.documents.texts import Source
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, losses, parse_number

_QREL, _RUN, _MS_MARCO = 4, 6, 3
_LONGEST_TOPIC = 20_000
_TOPIC_BEGINS = re.compile(r"(?=<top(?:ic)?[\s>])", re.IGNORECASE)
_NUMBER = re.compile(
    r"""<num(?:ber)?>\s*(?:Number:\s*)?([^\s<]+)|<top(?:ic)?\s[^<>]*?\b(?:number|id)\s*=\s*["']([^"'<>]+)""",
    re.IGNORECASE,
)
_TITLE = re.compile(r"<(?:[a-z]{2}-)?(?:title|query)>\s*(?:Topic:\s*)?(.*)", re.IGNORECASE | re.DOTALL)
_BODY = re.compile(r"<topic\s[^<>]*>([^<]*)", re.IGNORECASE)
"""A topic that is its text alone, as those of clinical trials."""
_ENTITY = re.compile(r"&#?[A-Za-z0-9]{1,31};")


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read topics and qrels; a run has no judgments and is refused."""
    for source in sources:
        first = next((line for line in source.lines() if line.strip() and not _is_comment(line)), "")
        fields = first.split()
        if first.lstrip().startswith("<"):
            _tagged_topics(source, builder)
        elif len(fields) == _RUN and fields[1].upper() == "Q0":
            message = "is a run: `coalmine check PATH --rankings FILE` judges it; it does not say what is expected"
            builder.add_problem(source.name, None, message)
        elif _qrel_fields(first) is not None and first.strip().count("\t") != 1:  # a topic has one tab
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

    As there, scores are compared as 32-bit floats: those that differ by less tie.
    Raises InvalidInputError with file and line.
    """
    rankings: dict[str, dict[str, float]] = {}
    problems: list[Problem] = []
    for number, line in enumerate(source.lines(), start=1):
        fields = line.split()
        if not fields:
            continue
        wrong = _run_problem(fields)
        if wrong is not None:
            problems.append(Problem(message=wrong, file=source.name, line=number))
            if len(problems) >= MOST_PROBLEMS:
                break
            continue
        score = float(fields[4])
        if rankings.setdefault(fields[0], {}).setdefault(fields[2], score) is not score:
            message = f"'{one_line(fields[2])}' is in the ranking of topic '{one_line(fields[0])}' already"
            problems.append(Problem(message=message, file=source.name, line=number))
    if problems or not rankings:
        raise InvalidInputError(problems or [Problem(message="is empty", file=source.name)])
    return {
        topic: sorted(ranking.items(), key=lambda hit: (c_float(hit[1]).value, hit[0]), reverse=True)
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
        if not line.strip() or _is_comment(line):
            continue
        fields = line.strip().split("\t") if line.strip().count("\t") == _QREL - 1 else line.split()
        if len(fields) != _QREL:
            builder.add_problem(source.name, number, "is not a line of qrels: topic, 0, document, grade")
            continue
        grade = builder.read_grade(fields[3], source.name, number)
        if grade is not None:
            builder.add_judgment(fields[0].strip(), source.name, number, grade, id=fields[2].strip() or None)


def _plain_topics(source: Source, builder: SuiteBuilder) -> None:
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip() or _is_comment(line):
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
        plain = _without_cdata(block)
        number, title = _NUMBER.search(plain), _TITLE.search(plain) or _BODY.match(plain)
        name = next((one for one in number.groups() if one), None) if number else None
        query = " ".join(_decoded(title[1].split("<")[0]).split()) if title else ""
        if name is None:
            message = "a topic without a number: it has no <num>, no <number>, and no attribute number or id"
            builder.add_problem(source.name, begun, message)
        elif not query:
            message = f"topic '{one_line(name)}' has no <title> and no <query>, or an empty one"
            builder.add_problem(source.name, begun, message)
        else:
            builder.add_canary(_decoded(name), query, source.name, begun)


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of each `<top>` or `<topic ...>` element, cut to the length a title may have."""
    begun, block = 0, ""
    for number, line in enumerate(lines, start=1):
        for part in _TOPIC_BEGINS.split(line):  # there may be several in a line
            if _TOPIC_BEGINS.match(part):
                if begun:
                    yield begun, block
                begun, block = number, ""
            if len(block) < _LONGEST_TOPIC:
                block += part[:_LONGEST_TOPIC]
    if begun:
        yield begun, block


def _without_cdata(block: str) -> str:
    """Return the text with its CDATA sections written as entities."""
    before, *sections = block.split("<![CDATA[")
    parts = [before]
    for section in sections:
        inner, _, after = section.partition("]]>")
        parts += [html.escape(inner), after]
    return "".join(parts)


def _decoded(text: str) -> str:
    """Return the text without entities; an ampersand that begins none stays, as SGML topics write it."""
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


def _is_comment(line: str) -> bool:
    stripped = line.strip()
    if not stripped.startswith("#") or _qrel_fields(line) is not None:
        return False
    return "\t" not in stripped or len(stripped.split("\t")[0]) == 1


def _qrel_fields(line: str) -> list[str] | None:
    """Return the fields of a line of qrels, separated by tabs where there are three; None where it is none."""
    stripped = line.strip()
    fields = stripped.split("\t") if stripped.count("\t") == _QREL - 1 else stripped.split()
    return fields if len(fields) == _QREL and _number(fields[3]) is not None else None


def _number(text: str) -> float | None:
    try:
        value = parse_number(text)
    except ValueError:
        return None
    return value if value - value == 0 else None


def _run_problem(fields: Sequence[str]) -> str | None:
    """Return which field of a line of a run is wrong; None where all are right."""
    form = "a line of a run has six: topic, Q0, document, rank, score, name"
    if len(fields) == _RUN - 1 and _number(fields[4]) is not None:
        return f"has 5 fields; {form}. The name of the run at the end is missing"
    if len(fields) == _MS_MARCO:
        return f"has 3 fields, as runs of MS MARCO (topic, document, rank), which hold no scores; {form}"
    if len(fields) != _RUN:
        hint = ". Topics, documents and names have no spaces" if len(fields) > _RUN else ""
        return f"has {len(fields)} fields; {form}{hint}"
    if _number(fields[4]) is None:
        comma = "; write a point for the comma" if re.fullmatch(r"-?[0-9]+,[0-9]+", fields[4]) else ""
        return f"the score '{one_line(fields[4])}' (field 5) is not a finite number{comma}"
    return None
