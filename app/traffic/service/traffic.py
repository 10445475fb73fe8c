"""Traffic of a suite: queries of users taken in, summed up, and forgotten.

They are personal data: kept for 30 days after they came, never in metrics, logs or exports, deleted at once on request.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final, cast

from app.annotation.domain.views import ReceivedTraffic, TrafficView
from app.base.counts import counted
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import NotFoundError
from app.catalog.exchange import Source
from app.catalog.service.references import require
from app.catalog.service.vault import Vault
from app.catalog.store import definitions
from app.records import documents as shapes
from app.traffic.documents.traffic_lines import LONGEST, AskedQuery, ReadTraffic, normalise_query, read_traffic
from app.traffic.service.repeated_parts import PartName, answer_again, name_part, received_part
from app.traffic.store import traffic as rows
from app.traffic.store import traffic_parts
from app.traffic.store.traffic import ReceivedQuery

MOST_DISTINCT: Final = 100_000
"""Distinct queries that are kept of a suite with a retriever."""
_BLOCK: Final = 2_000


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
    part = None if key is None else name_part(vault, key, _content(found))
    return add_traffic(store, suite, retriever, found, now=now, part=part)


def add_traffic(
    store: Store, suite: str, retriever: str, found: ReadTraffic, *, now: datetime, part: PartName | None = None
) -> ReceivedTraffic:
    """Add queries that are read already; see `receive_traffic`."""
    with store.read() as connection:
        suite_id = _require(connection, suite, retriever)
        known = rows.known_digests(connection, suite_id, retriever)
    fresh = [one for one in found.queries if rows.digest_of(one.query) not in known]
    fresh.sort(key=lambda one: (-one.count, one.query))
    room = max(0, MOST_DISTINCT - len(known))
    left_out = {one.query for one in fresh[room:]}
    taken = [_received(one) for one in found.queries if one.query not in left_out]
    full = f"{counted(len(left_out), 'query')} left out: a suite keeps at most {MOST_DISTINCT:,} of a retriever"
    notes = [*([full] if left_out else ()), *left_out_notes(found)]
    answer: ReceivedTraffic = {"queries": len(taken), "new": len(fresh) - len(left_out), "notes": notes}
    with store.write() as connection:
        if part is not None:
            received = received_part(part, answer)
            if not traffic_parts.remember_part(connection, suite_id, retriever, part.key, received, at=to_us(now)):
                before = traffic_parts.find_part(connection, suite_id, retriever, part.key)
                return cast("ReceivedTraffic", answer_again(before, part))
        rows.add_queries(connection, suite_id, retriever, taken, at=to_us(now))
    return answer


def _content(found: ReadTraffic) -> str:
    """Return what tells two parts apart: queries and counts, for a time that is not given is that of arrival."""
    return json.dumps(sorted((one.query, one.count) for one in found.queries))


def left_out_notes(found: ReadTraffic) -> list[str]:
    """Return a note for each reason why lines of files were left out."""
    reasons = ((found.too_long, f"longer than {LONGEST} characters"), (found.empty, "without a text"))
    return [f"{counted(number, 'query')} {reason} left out" for number, reason in reasons if number]


def load_traffic(store: Store, suite: str) -> list[TrafficView]:
    """Return the traffic of a suite by retriever, without the queries. Raises NotFoundError."""
    with store.read() as connection:
        found = rows.summaries(connection, find_suite(connection, suite))
    return [
        {
            "retriever": one.retriever,
            "distinct": one.distinct,
            "traffic": one.traffic,
            "first_seen": shapes.time_text(one.first_seen),
            "last_seen": shapes.time_text(one.last_seen),
        }
        for one in found
    ]


def forget_traffic(store: Store, suite: str, *, retriever: str | None = None, query: str | None = None) -> int:
    """Delete all traffic of a suite, or of one retriever, or one query of it, at once; how many queries there were.

    A query is found however it is written. What was estimated from deleted traffic goes too, but not for one query.
    Raises NotFoundError for the suite.
    """
    with store.read() as connection:
        suite_id = find_suite(connection, suite)
    if query is not None:
        with store.write() as connection:
            traffic_parts.forget_contents(connection, suite_id)
            return rows.forget_query(connection, suite_id, normalise_query(query))
    with store.write() as connection:
        traffic_parts.forget_parts(connection, suite_id, retriever)
        rows.forget_reaches(connection, suite_id, retriever)
    deleted = 0
    while True:
        with store.write() as connection:
            block = rows.forget_block(connection, suite_id, retriever, _BLOCK)
        deleted += block
        if block < _BLOCK:
            return deleted


def _received(one: AskedQuery) -> ReceivedQuery:
    return ReceivedQuery(query=one.query, count=one.count, first_seen=to_us(one.first), last_seen=to_us(one.last))


def find_suite(connection: Connection, slug: str) -> int:
    """Return the id of a suite. Raises NotFoundError."""
    return require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'").id


def _require(connection: Connection, suite: str, retriever: str) -> int:
    """Return the id of a suite. Raises NotFoundError where it or the retriever is not in force."""
    found = definitions.find_definition(connection, "retriever", retriever)
    if found is None or found.archived_at is not None:
        raise NotFoundError(f"there is no retriever '{retriever}'")
    return find_suite(connection, suite)
