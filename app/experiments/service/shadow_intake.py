"""Pairs of shadows that clients send: summed up by the hour, or kept until the candidate is asked.

Neither queries nor rankings are kept, but for the most different pairs of a shadow that somebody defined, and for what
waits for its candidate.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final, cast

from app.base.counts import counted
from app.base.db.engine import Connection, Store, to_us
from app.base.documents.fields import MOST_PROBLEMS
from app.base.errors import InvalidInputError, Problem
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.catalog.service.vault import Vault
from app.experiments.documents.shadow_documents import ShadowPair, domain_hits
from app.experiments.domain.shadow import is_asked
from app.experiments.domain.views import ReceivedPairs
from app.experiments.service.shadow_sums import AnsweredPair, count_pairs, keep_different
from app.experiments.service.shadows import document_of
from app.experiments.store import shadow_parts, shadow_questions
from app.experiments.store import shadows as rows
from app.experiments.store.shadow_questions import NewQuestion
from app.experiments.store.shadows import DefinedShadow
from app.traffic.service.repeated_parts import answer_again, name_part, received_part

MOST_WAITING: Final = 10_000
"""Queries that wait for the candidate of a shadow."""


def receive_pairs(
    store: Store, vault: Vault, slug: str, pairs: Sequence[ShadowPair], *, now: datetime, key: str | None = None
) -> ReceivedPairs:
    """Add pairs to the hour of now, and have the candidate asked a share of the queries that lack its answer.

    All or none. The first pairs of a slug begin a shadow. What comes with the `key` of what arrived within a day is not
    added again: the answer is that of the first time, with a note. Raises InvalidInputError where answers of the
    candidate are missing and nobody said whom to ask, and ConflictError where the key came with other pairs.
    """
    answered = [_answered(pair) for pair in pairs if not pair.waits]
    at = to_us(now)
    with store.write() as connection:
        shadow = rows.find_shadow(connection, slug, lock=True)  # held: what waits is counted, and grows
        chosen = _choose(shadow, slug, pairs)
        room = _room(connection, shadow) if chosen else 0
        answer: ReceivedPairs = {
            "received": len(pairs),
            "compared": len(answered),
            "to_ask": len(chosen[:room]),
            "notes": _notes(left_out=len(chosen[room:])),
        }
        if key is not None:
            part = name_part(vault, key, json.dumps([pair.data() for pair in pairs]))
            if not shadow_parts.remember_part(connection, slug, part.key, received_part(part, answer), at=at):
                return cast("ReceivedPairs", answer_again(shadow_parts.find_part(connection, slug, part.key), part))
        count_pairs(connection, slug, answered, at)
        if shadow is not None:
            keep_different(connection, shadow.id, answered, most=document_of(shadow).keep, at=at)
            shadow_questions.add_questions(connection, shadow.id, chosen[:room], at)
            if chosen[:room]:
                defer(connection, [NewJob(JobKind.SHADOW, shadow.id)])
    return answer


def _choose(shadow: DefinedShadow | None, slug: str, pairs: Sequence[ShadowPair]) -> list[NewQuestion]:
    """Return the queries that the candidate is asked. Raises InvalidInputError where nobody said whom to ask."""
    waiting = [(place, pair) for place, pair in enumerate(pairs) if pair.waits]
    if not waiting:
        return []
    document = None if shadow is None else document_of(shadow)
    if document is None or document.candidate is None:
        reason = (
            "must have the hits of the candidate (b) or `b_failed: true`; for Coalmine to ask the candidate, name it: "
            f"PUT /v1/shadows/{slug} with `candidate`"
        )
        raise InvalidInputError(
            [Problem(path=f"pairs[{place}]", message=reason) for place, _ in waiting[:MOST_PROBLEMS]]
        )
    return [
        NewQuestion(query=pair.query, hits=domain_hits(pair.a), seconds=pair.a_seconds)
        for _, pair in waiting
        if is_asked(slug, pair.query, share=document.share)
    ]


def _room(connection: Connection, shadow: DefinedShadow | None) -> int:
    return 0 if shadow is None else max(0, MOST_WAITING - shadow_questions.count_questions(connection, shadow.id))


def _notes(*, left_out: int) -> list[str]:
    if not left_out:
        return []
    return [f"{counted(left_out, 'query')} left out: {MOST_WAITING:,} wait for the candidate already"]


def _answered(pair: ShadowPair) -> AnsweredPair:
    return AnsweredPair(
        query=pair.query,
        a=domain_hits(pair.a),
        b=None if pair.b is None else domain_hits(pair.b),
        a_seconds=pair.a_seconds,
        b_seconds=pair.b_seconds,
    )
