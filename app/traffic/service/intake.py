"""Traffic of a suite: received, summed up and forgotten.

Queries of users are personal data: kept for 30 days after they came, never in metrics, logs or exports, deleted at once
on request.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, cast

from app.base.db.engine import (
    RECEIVED_BEFORE,
    Connection,
    ReceivedPart,
    Store,
    answer_before,
    to_us,
)
from app.base.db.keys import Vault
from app.base.errors import InvalidInputError, NotFoundError, Problem
from app.base.texts import Source, counted
from app.base.values import Value
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.store import require
from app.traffic import store as rows
from app.traffic.documents.exports import TracedCall
from app.traffic.documents.queries import (
    LONGEST_QUERY,
    MOST_READ,
    QueryCounter,
    ReadTraffic,
    TooManyQueriesError,
    read_traffic,
)
from app.traffic.domain import (
    ReceivedTraffic,
    TrafficView,
    normalise_query,
)
from app.traffic.tables import traffic_parts


def name_part(vault: Vault, key: str, content: str) -> ReceivedPart:
    """Name a part by the key it came with and what it holds."""
    return ReceivedPart(key=vault.fingerprint(key), content=vault.fingerprint(content))


MOST_DISTINCT: Final = 100_000
"""Distinct queries that are kept of a suite with a retriever."""
_FORGOTTEN_BLOCK: Final = 2_000


def receive_traffic(
    store: Store,
    vault: Vault,
    suite: str,
    retriever: str,
    sources: Sequence[Source],
    *,
    now: datetime,
    key: str | None = None,
) -> ReceivedTraffic:
    """Add the queries of files to the traffic of a suite with a retriever: all or none.

    Beyond `MOST_DISTINCT` new ones are left out, the least frequent first. What comes with the `key` of what arrived
    within a day is not added again: the answer is that of the first time, with a note. Raises InvalidInputError for
    files that cannot be read, ConflictError where the key came with other queries, and NotFoundError.
    """
    found = read_traffic(sources, now=now)
    # What tells two parts apart is queries and counts: a time that is not given is that of arrival.
    content = json.dumps(sorted((one.query, one.count) for one in found.queries))
    part = None if key is None else name_part(vault, key, content)
    return add_traffic(store, suite, retriever, found, now=now, part=part)


def add_traffic(
    store: Store, suite: str, retriever: str, found: ReadTraffic, *, now: datetime, part: ReceivedPart | None = None
) -> ReceivedTraffic:
    """Add queries that are read already; see `receive_traffic`."""
    with store.read() as connection:
        named = catalog.find_definition(connection, "retriever", retriever)
        if named is None or named.archived_at is not None:
            raise NotFoundError(f"there is no retriever '{retriever}'")
        suite_id = find_suite(connection, suite)
        known = rows.known_digests(connection, suite_id, retriever, found.queries)
        stored = rows.count_distinct(connection, suite_id, retriever)
    fresh = [one for one in found.queries if rows.digest_of(one.query) not in known]
    fresh.sort(key=lambda one: (-one.count, one.query))
    room = max(0, MOST_DISTINCT - stored)
    left_out = {one.query for one in fresh[room:]}
    taken = [one for one in found.queries if one.query not in left_out]
    full = f"{counted(len(left_out), 'query')} left out: a suite keeps at most {MOST_DISTINCT:,} of a retriever"
    notes = [*([full] if left_out else ()), *left_out_notes(found)]
    answer: ReceivedTraffic = {"queries": len(taken), "new": len(fresh) - len(left_out), "notes": notes}
    if not taken and part is None:  # as of most exports of spans: they hold no retrieval
        return answer
    with store.write() as connection:
        if part is not None:
            owner = {"suite_id": suite_id, "retriever": retriever}
            before = answer_before(connection, traffic_parts, owner, part, answer, at=to_us(now))
            if before is not None:
                return cast("ReceivedTraffic", before)
        rows.add_queries(connection, suite_id, retriever, taken, at=to_us(now))
    return answer


class ReceivedSpans(Value):
    """What became of the retrievals of an export: queries that count, spans that do not, and why."""

    counted: int
    rejected: int
    notes: tuple[str, ...]


def receive_spans(
    store: Store,
    vault: Vault,
    suite: str,
    retriever: str | None,
    calls: Iterable[TracedCall],
    *,
    content: bytes,
    now: datetime,
) -> ReceivedSpans:
    """Add the queries of an export to the traffic of a suite; without a `retriever` of the one that its checks ask.

    `content` is what came: an exporter that got no answer sends the same again, which counts once within a day. Raises
    InvalidInputError, and NotFoundError.
    """
    counter = QueryCounter(now)
    try:
        for call in calls:
            counter.add_call(call)
    except TooManyQueriesError:
        message = f"holds more than {MOST_READ:,} distinct queries; send smaller batches"
        raise InvalidInputError([Problem(path="body", message=message)]) from None
    found = counter.result()
    name = sha256(content).hexdigest()
    part = name_part(vault, name, name) if found.queries else None
    answer = add_traffic(store, suite, retriever or _asked_retriever(store, suite), found, now=now, part=part)
    kept = sum(one.count for one in found.queries)
    rejected = found.too_long + found.unclear + len(found.queries) - answer["queries"]
    notes = tuple(note for note in answer["notes"] if note != RECEIVED_BEFORE)
    return ReceivedSpans(counted=kept, rejected=rejected, notes=notes)


def _asked_retriever(store: Store, suite: str) -> str:
    with store.read() as connection:
        find_suite(connection, suite)
        checks = [row.body for row in catalog.list_definitions(connection, "check")]
    found = sorted({body["retriever"] for body in checks if body["suite"] == suite})
    if len(found) != 1:
        which = f"its checks ask {', '.join(found[:_SHOWN_RETRIEVERS])}" if found else "it has no check"
        raise InvalidInputError([Problem(path="retriever", message=f"is missing: say which was asked; {which}")])
    return str(found[0])


_SHOWN_RETRIEVERS: Final = 5


def left_out_notes(found: ReadTraffic) -> list[str]:
    """Return a note for each reason why lines of files were left out."""
    reasons = (
        (found.too_long, "query", f"longer than {LONGEST_QUERY} characters"),
        (found.empty, "query", "without a text"),
        (found.unclear, "span", "whose input names no query"),
        (found.other, "other span", ""),
    )
    return [
        " ".join([counted(number, what), *reason.split(), "left out"]) for number, what, reason in reasons if number
    ]


def load_traffic(store: Store, suite: str) -> list[TrafficView]:
    """Return the traffic of a suite by retriever, without the queries. Raises NotFoundError."""
    with store.read() as connection:
        found = rows.summaries(connection, find_suite(connection, suite))
    return [view_of(TrafficView, one) for one in found]


def forget_traffic(store: Store, suite: str, *, retriever: str | None = None, query: str | None = None) -> int:
    """Delete all traffic of a suite, or of one retriever, or one query of it, at once; how many queries there were.

    A query is found however it is written. What was estimated from deleted traffic goes too, but not for one query.
    Raises NotFoundError for the suite.
    """
    with store.read() as connection:
        suite_id = find_suite(connection, suite)
    if query is not None:
        with store.write() as connection:
            rows.forget_contents(connection, suite_id)
            return rows.forget_query(connection, suite_id, normalise_query(query))
    with store.write() as connection:
        rows.forget_parts(connection, suite_id, retriever)
        rows.forget_reaches(connection, suite_id, retriever)
    deleted = 0
    while True:
        with store.write() as connection:
            block = rows.forget_block(connection, suite_id, retriever, _FORGOTTEN_BLOCK)
        deleted += block
        if block < _FORGOTTEN_BLOCK:
            return deleted


def find_suite(connection: Connection, slug: str) -> int:
    """Return the id of a suite. Raises NotFoundError."""
    return require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'").id
