"""Queries of users: `query[,count,at,outcome]`, OpenSearch UBI's `user_query,timestamp`, or exports of tracing tools.

What is kept of them is the query, normalised, how often, and when first and last.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from app.base.documents.fields import Document, Slug, Text, Whole, did_you_mean, one_line
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Source
from app.base.values import Value, replace
from app.catalog.exchange.csv import rows
from app.catalog.exchange.datasets import records
from app.catalog.exchange.suite_builder import SuiteBuilder
from app.traffic.documents.exports import Origin, TracedCall, calls_of, is_export, records_of
from app.traffic.domain import normalise_query

LONGEST_QUERY: Final = 500
"""Most characters of a query; longer ones, mostly pasted texts, are left out."""
_COLUMNS: Final = ("query", "count", "at", "outcome", "user_query", "timestamp")
_QUERY_FIELDS: Final = frozenset({"query", "user_query"})
_MILLISECONDS_FROM: Final = 1e11
"""A number this large counts milliseconds: as seconds it would be the year 5138."""
_MOST: Final = 1_000_000_000
_MOST_PROBLEMS: Final = 100
MOST_READ: Final = 300_000
"""Distinct queries of one upload, which are held in memory; of a suite 100,000 are kept."""


class AskedQuery(Value):
    """A normalised query with how often, and when first and last, users asked it."""

    query: str
    count: int
    first: datetime
    last: datetime


class ReadTraffic(Value):
    """The distinct queries of files, and how many lines or spans were left out, by reason."""

    queries: tuple[AskedQuery, ...]
    too_long: int = 0
    empty: int = 0
    other: int = 0
    """Spans that are not what is counted: no retrievals where there are some, else no beginnings of a trace."""
    unclear: int = 0
    """Spans whose input names no query."""


class TooManyQueriesError(Exception):
    """More distinct queries than an upload may have."""


@dataclass(slots=True)
class _Tier:
    """The queries of one origin."""

    queries: dict[str, AskedQuery] = field(default_factory=dict)
    lines: int = 0
    too_long: int = 0
    empty: int = 0

    def add(self, asked: AskedQuery) -> None:
        self.lines += 1
        if not asked.query:
            self.empty += 1
        elif len(asked.query) > LONGEST_QUERY:
            self.too_long += 1
        else:
            before = self.queries.get(asked.query)
            self.queries[asked.query] = asked if before is None else _sum(before, asked)
            if len(self.queries) > MOST_READ:
                raise TooManyQueriesError


class QueryCounter:
    """Adds queries up. Of the calls of tracing tools those of the surest `Origin` count, and no others."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._plain = _Tier()
        self._traced = {origin: _Tier() for origin in Origin}
        self._asked = set[int]()
        """Of each trace the queries of its retrievals, as hashes."""

    def add(self, asked: AskedQuery) -> None:
        """Add a query that somebody wrote down as one. Raises TooManyQueriesError."""
        self._plain.add(asked)

    def add_call(self, call: TracedCall) -> None:
        """Add what a tool recorded: a query once for each trace; a time that cannot be read is now.

        Raises TooManyQueriesError.
        """
        query = normalise_query(call.text)
        if call.origin is Origin.RETRIEVAL and query and call.trace:
            asked = hash((call.trace, query))
            if asked in self._asked:
                return
            self._asked.add(asked)
        at = moment(call.at, self._now) or self._now
        self._traced[call.origin].add(AskedQuery(query=query, count=1, first=at, last=at))

    def result(self) -> ReadTraffic:
        """Return what was added up."""
        tiers = [self._traced[origin] for origin in Origin if origin is not Origin.OTHER]
        seen = [tier for tier in tiers if tier.lines]
        traced = next((tier for tier in seen if tier.queries), seen[0] if seen else _Tier())
        found = dict(self._plain.queries)
        for query, asked in traced.queries.items():
            found[query] = _sum(found[query], asked) if query in found else asked
        return ReadTraffic(
            queries=tuple(found.values()),
            too_long=self._plain.too_long + traced.too_long,
            empty=self._plain.empty,
            other=sum(tier.lines for tier in self._traced.values()) - traced.lines,
            unclear=traced.empty,
        )


def _sum(before: AskedQuery, asked: AskedQuery) -> AskedQuery:
    return replace(
        before,
        count=min(_MOST, before.count + asked.count),
        first=min(before.first, asked.first),
        last=max(before.last, asked.last),
    )


def read_traffic(sources: Sequence[Source], *, now: datetime) -> ReadTraffic:
    """Read the queries of files; a line without a time was asked now.

    Raises InvalidInputError with file, line, field and reason of every wrong line, at most 100.
    """
    builder = SuiteBuilder()
    problems: list[Problem] = []
    found = QueryCounter(now)
    for source in sources:
        number: int | None = None
        try:
            for number, record in _records(source, builder):
                calls = None if record.keys() & _QUERY_FIELDS else calls_of(record)
                if calls is not None:
                    for call in calls:
                        found.add_call(call)
                    continue
                line = _read_line(record, now)
                if not isinstance(line, Problem):
                    found.add(line)
                    continue
                problems.append(replace(line, file=source.name, line=number))
                if len(problems) >= _MOST_PROBLEMS:
                    raise InvalidInputError(problems)
        except TooManyQueriesError:
            message = f"there are more than {MOST_READ:,} distinct queries up to here; leave rare ones out"
            raise InvalidInputError([Problem(file=source.name, line=number, message=message)]) from None
    problems += builder.problems
    if problems:
        raise InvalidInputError(problems)
    return found.result()


def _records(source: Source, builder: SuiteBuilder) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, fields): of JSON as they are written, of a table `query` even where its cell is empty."""
    first = next((line for line in source.lines() if line.strip()), "")
    plain = first.strip("\ufeff \t\r\n")
    if plain.startswith("[") or (plain.startswith("{") and not plain.endswith("}")):
        yield from records_of(source, builder)
        return
    if plain.startswith("{"):
        yield from records(source, builder)
        return
    header = [name.strip().strip('"').lower() for name in re.split(r"[,;\t]", plain)]
    if not _QUERY_FIELDS & set(header) and is_export(header):
        yield from rows(source, builder, required=(), aliases={"": "index"})  # which data frames write without a name
        return
    query = "user_query" if "user_query" in header else "query"
    if query == "query" and query in header:
        unknown = [name for name in header if name not in _COLUMNS]
        for name in unknown:
            builder.add_problem(source.name, 1, _unknown(name))
        if unknown:
            return
    for number, cells in rows(source, builder, required=(query,), aliases={}):
        yield number, {query: "", **cells}


def _read_line(record: dict[str, Any], now: datetime) -> AskedQuery | Problem:
    """Return a line's query, or what is wrong with which field."""
    name = "user_query" if "user_query" in record else "query"
    if name not in record:
        return Problem(path="query", message="is missing")
    unknown = next((field for field in record if name == "query" and field not in _COLUMNS), None)
    if unknown is not None:
        return Problem(message=_unknown(unknown))
    query = "" if record[name] is None else record[name]
    if not isinstance(query, str):
        return Problem(path=name, message="is not a text")
    count = _count(record.get("count", 1))
    if count is None:
        return Problem(path="count", message=f"'{_shown(record['count'])}' is not a whole number from 1 to {_MOST:,}")
    time = "at" if "at" in record else "timestamp"
    at = moment(record.get(time), now)
    if at is None:
        return Problem(path=time, message=f"'{_shown(record[time])}' is no time of RFC 3339, nor seconds since 1970")
    return AskedQuery(query=normalise_query(query), count=count, first=at, last=at)


def _unknown(field: str) -> str:
    return f"unknown field '{_shown(field)}'{did_you_mean(field, _COLUMNS)}; there are: {', '.join(_COLUMNS)}"


def _shown(value: Any) -> str:
    return one_line(str(value))


def _count(value: Any) -> int | None:
    if (
        isinstance(value, str)
        and value.strip().isascii()
        and value.strip().isdecimal()
        and len(value) <= len(str(_MOST))
    ):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST else None


def moment(value: Any, now: datetime) -> datetime | None:
    """Return a time, also of seconds or milliseconds since 1970; None for anything else. Later than now is now."""
    if value is None or value == "":
        return now
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,16}(?:\.[0-9]{1,9})?", value):
        value = float(value)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if value >= _MILLISECONDS_FROM else value
            at = datetime.fromtimestamp(seconds, UTC)
        elif isinstance(value, str):
            at = datetime.fromisoformat(value.strip())
        else:
            return None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return min(at, now)


class Grouping(Document):
    """Groups documents by the beginning of their names: the first `parts` of what `separator` divides."""

    separator: Annotated[str, StringConstraints(min_length=1, max_length=8)]
    parts: Annotated[Whole, Field(ge=1, le=20)]

    def group(self, document: str) -> str:
        """Return the group of a document."""
        return self.separator.join(document.split(self.separator)[: self.parts])

    @property
    def words(self) -> str:
        """It in words, as an end of "grouped by"."""
        first = "first part" if self.parts == 1 else f"first {self.parts} parts"
        return f"the {first} of their names, which '{self.separator}' divides"


class ReachRequest(Document):
    """A request to ask a sample of the traffic; `group` where documents are as fine as chunks."""

    retriever: Slug
    group: Grouping | None = None


class SuggestionsRequest(Document):
    """Suggestions that are taken up: queries that become canaries, and the name of the task over them."""

    retriever: Slug
    task: Slug
    queries: Annotated[tuple[Annotated[Text, StringConstraints(max_length=LONGEST_QUERY)], ...], Field(max_length=500)]


class ForgetRequest(Document):
    """What to forget of the traffic of a suite: one query, what came of one retriever, or all."""

    retriever: Slug | None = None
    query: Annotated[str, StringConstraints(min_length=1, max_length=10_000)] | None = None
