"""What brought judgments up: the pools of tasks and ticked hits, each with what its retrievers asked at that time.

What a retriever asks is a text that is the same of two that differ in name and limits alone.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.tables import task_items, tasks
from app.base.db.engine import cached
from app.base.values import Value
from app.catalog.domain import asked_text
from app.catalog.store import Definition, find_definition, read_body, version_body
from app.catalog.tables import canaries, canary_versions, definition_versions


def what_is_asked(connection: Connection, slug: str, *, version_id: int | None = None, at: int | None = None) -> str:
    """Return what a retriever asks: by this version of it, or as it was `at` a time; else as it is in force.

    One that is not there asks nothing: its slug.
    """
    if version_id is not None:
        content = version_body(connection, version_id)
        return asked_text(slug, content.body, has_secrets=content.secrets is not None)
    found = find_definition(connection, "retriever", slug)
    if found is None:
        return slug
    now = asked_text(slug, found.body, has_secrets=found.secrets is not None)
    if at is None or found.updated_at <= at:
        return now
    return _asked_at(_versions_of(connection, found), found.version_id, [at])[0]


def _versions_of(connection: Connection, retriever: Definition) -> list[tuple[int, int, str]]:
    """Return (time, id, what is asked) of each version of a retriever, the oldest first."""

    def read() -> tuple[list[tuple[int, int, str]], int]:
        versions = definition_versions.c
        rows = connection.execute(
            sa.select(versions.created_at, versions.id, versions.body, versions.secrets)
            .where(versions.definition_id == retriever.id)
            .order_by(versions.created_at, versions.id)
        ).all()
        found: list[tuple[int, int, str]] = []
        for row in rows:
            body = read_body("retriever", row.body, secrets_set=row.secrets is not None)
            asked = asked_text(retriever.slug, body, has_secrets=row.secrets is not None)
            found.append((row.created_at, row.id, asked))
        return found, sum(len(asked) + 100 for _, _, asked in found)

    return cached(connection, ("versions of a retriever", retriever.id, retriever.revision), read)


def _asked_at(versions: list[tuple[int, int, str]], in_force: int, times: Iterable[int]) -> list[str]:
    """Return what was asked at each of these times.

    When an old version came back into force is not recorded: one that is in force and was made before is taken to have
    been so. Before the first version it is that one.
    """
    now = next((made, asked) for made, version_id, asked in versions if version_id == in_force)
    found: list[str] = []
    for at in times:
        before = [asked for made, _, asked in versions if made <= at] or [versions[0][2]]
        found.append(before[-1] if now[0] > at else now[1])
    return found


class Pool(Value):
    """A pool of chunks: those of its retrievers that brought something up, with what each asked then."""

    slug: str
    brought_up: Mapping[str, str]


def pools_of(connection: Connection, slugs: Collection[str]) -> list[Pool]:
    """Return the pools of tasks of chunks by slug, archived ones too: a slug may have been used again."""
    if not slugs:
        return []
    columns = (tasks.c.id, tasks.c.slug, tasks.c.body, tasks.c.pool_requested_at, tasks.c.pooled_at)
    rows = connection.execute(sa.select(*columns).where(tasks.c.slug.in_(sorted(slugs)))).all()
    return [
        Pool(
            slug=row.slug,
            brought_up=who_brought_up(
                connection, row.id, json.loads(row.body).get("retrievers") or (), row.pool_requested_at, row.pooled_at
            ),
        )
        for row in rows
    ]


def who_brought_up(
    connection: Connection, task_id: int, retrievers: Collection[str], requested_at: int | None, pooled_at: int | None
) -> dict[str, str]:
    """Return those retrievers of a task that brought a chunk up, with what each asked then; all until it is pooled."""
    found = retrievers if pooled_at is None else _with_chunks(connection, task_id, retrievers, pooled_at)
    return {slug: what_is_asked(connection, slug, at=requested_at) for slug in found}


def _with_chunks(connection: Connection, task_id: int, retrievers: Collection[str], pooled_at: int) -> list[str]:
    if len(retrievers) == 1:
        return list(retrievers)

    def read() -> tuple[list[str], int]:
        def has_chunk(slug: str) -> bool:
            ranked = task_items.c.ranks.contains(f"{json.dumps(slug)}:", autoescape=True)
            some = sa.select(task_items.c.id).where(task_items.c.task_id == task_id, ranked).limit(1)
            return connection.execute(some).first() is not None

        return [slug for slug in retrievers if has_chunk(slug)], 200

    return cached(connection, ("who brought up", task_id, pooled_at), read)


def ticked(connection: Connection, suite: str, retriever: str) -> dict[str, float]:
    """Return which share of the canaries with ticked hits of a retriever were ticked when it asked what.

    A canary was ticked when a version of it first had such a hit. Empty where there is nothing to tell apart.
    """
    asked, owner = (
        find_definition(connection, kind, slug) for kind, slug in (("retriever", retriever), ("suite", suite))
    )
    if asked is None or owner is None:
        return {}
    versions = _versions_of(connection, asked)
    if len({text for _, _, text in versions}) == 1:
        return {}

    def read() -> tuple[list[int], int]:
        source = json.dumps(f"retriever:{retriever}")
        statement = (
            sa.select(sa.func.min(canary_versions.c.created_at))
            .join(canaries, canaries.c.id == canary_versions.c.canary_id)
            .where(canaries.c.suite_id == owner.id, canaries.c.archived_at.is_(None))
            .where(canary_versions.c.body.contains(source, autoescape=True))
            .group_by(canaries.c.id)
        )
        times = list(connection.execute(statement).scalars())
        return times, 32 * len(times) + 100

    times = cached(connection, ("ticked", owner.id, owner.revision, retriever), read)
    counts = Counter(_asked_at(versions, asked.version_id, times))
    return {text: count / len(times) for text, count in counts.items()}
