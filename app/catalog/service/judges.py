"""Who brought up what is expected, and what to know of recall by it: self-judged, and pooled recall beside it.

Retrievers that ask the same are as good as one. One that was edited is another one than it was when it brought up what
is expected: by now its recall may be too high or too low by it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from app.annotation.store import recall_rows, task_rows
from app.annotation.store.judgment_rows import pools_of, ticked, what_is_asked
from app.base.db.engine import Connection, cached
from app.base.values import Value
from app.base.views import view_of
from app.catalog.domain import PooledNote, lone_judges, task_source
from app.catalog.service.references import require_suite
from app.catalog.service.versions import load_suite_in_force
from app.scoring.run_inputs import UnusableSuiteError


class Judge(Value):
    """A retriever that alone brought up much of what is expected."""

    retriever: str
    asked: str
    """What it asked then, as a text."""
    edited_since: bool = False
    """Whether it asks something else by now."""


def find_judges(
    connection: Connection,
    shares: Mapping[str, float],
    retrievers: Mapping[str, int | None] = MappingProxyType({}),
    *,
    suite: str,
) -> list[Judge]:
    """Return the retrievers each of which alone brought up much of what is expected, by the shares of the sources.

    A task counts where only one of the retrievers that it pooled brought something up, also under several names; one
    that is not there does not count. `retrievers`: those that no source names, which count where they ask what was
    asked then, each by a version of it, None = as it is in force.
    """
    named = [one.partition(":") for one in shares]
    brought_up: dict[str, list[Mapping[str, str]]] = {}
    for pool in pools_of(connection, [slug for kind, _, slug in named if kind == "task"]):
        brought_up.setdefault(task_source(pool.slug), []).append(pool.brought_up)
    parts, pools, names = dict(shares), dict[str, str](), dict[str, set[str]]()
    for source, found in brought_up.items():
        if all(found) and len(asked := {text for one in found for text in one.values()}) == 1:
            pools[source] = asked.pop()
            names.setdefault(pools[source], set()).update(*found)
    for source, (kind, _, slug) in zip(shares, named, strict=True):
        if kind == "retriever":
            then = ticked(connection, suite, slug) or {what_is_asked(connection, slug): 1.0}
            share = parts.pop(source)
            for place, (text, part) in enumerate(then.items()):
                parts[f"{source} {place}"] = share * part
                pools[f"{source} {place}"] = text
                names.setdefault(text, set()).add(slug)
    judges = lone_judges(parts, pools)
    known = dict.fromkeys((slug for text in judges for slug in names[text]), None) | dict(retrievers)
    now = {slug: what_is_asked(connection, slug, version_id=one) for slug, one in known.items()} if judges else {}
    found_now = [Judge(retriever=slug, asked=text) for slug, text in now.items() if text in judges]
    same = {one.retriever for one in found_now}
    edited = {
        slug: Judge(retriever=slug, asked=text, edited_since=True)
        for text in judges
        for slug in names[text]
        if slug not in same
    }
    return sorted([*found_now, *edited.values()], key=lambda one: one.retriever)


def pooled_share(connection: Connection, shares: Mapping[str, float], asked: str, *, suite: str) -> float:
    """Return the share of what is expected that was judged among hits of what a retriever asks, or in pools with them.

    `shares`: of the sources. A task whose slug was used again counts where it is part of all of its pools.
    """
    members: dict[str, list[bool]] = {}
    for pool in pools_of(connection, [one.removeprefix("task:") for one in shares if one.startswith("task:")]):
        members.setdefault(task_source(pool.slug), []).append(asked in pool.brought_up.values())
    pooled = sum(share for source, share in shares.items() if all(members.get(source, [False])))
    own = {source: source.removeprefix("retriever:") for source in shares if source.startswith("retriever:")}
    return pooled + sum(shares[one] * ticked(connection, suite, slug).get(asked, 0.0) for one, slug in own.items())


def judging_retrievers(connection: Connection, shares: Mapping[str, float], *others: str, suite: str = "") -> list[str]:
    """Return the slugs of `find_judges`, with `others` that ask what was asked then."""
    return [one.retriever for one in find_judges(connection, shares, dict.fromkeys(others), suite=suite)]


def is_self_judged(connection: Connection, shares: Mapping[str, float], retriever: str, *, suite: str = "") -> bool:
    """Whether much of what is expected was brought up by a retriever itself, edited since or not."""
    return retriever in judging_retrievers(connection, shares, retriever, suite=suite)


def pooled_notes(
    connection: Connection, suite: str, retriever: str, *, version_id: int | None = None
) -> list[PooledNote]:
    """Return the pooled recall of a retriever over a suite, the deepest k first; none where no task estimates it.

    `version_id`: that of the retriever which a run asked, beside which it stands.
    """
    rows = recall_rows.list_recalls(connection, suite=suite, retriever=retriever)
    if not rows:
        return []
    asked, expecting = _count_asked(connection, suite, rows[0].task_id)
    few = 2 * min(asked, rows[0].queries) < expecting
    notes = [
        view_of(PooledNote, row, rounding=True, asked_queries=min(asked, row.queries), few_queries=few) for row in rows
    ]
    at = rows[0].pool_requested_at
    if version_id is None or at is None:
        return notes
    now, then = what_is_asked(connection, retriever), what_is_asked(connection, retriever, at=at)
    unlike = what_is_asked(connection, retriever, version_id=version_id) != then
    for note in notes:
        note["edited_since"] = unlike and now != then
        if unlike and now == then:
            note["asked_otherwise"] = True
    return notes


def _count_asked(connection: Connection, slug: str, task_id: int) -> tuple[int, int]:
    """Return how many of the graded queries of a task canaries of a suite still ask, and how many expect something.

    As the suite is now; none where it cannot be read.
    """
    suite = require_suite(connection, slug)
    said = task_rows.version_of_grades(connection, task_id)

    def count() -> tuple[tuple[int, int], int]:
        members = load_suite_in_force(connection, suite).members
        now = {one.canary_id: one.canary.query for one in members if one.canary.expects}
        graded = recall_rows.graded_queries(connection, task_id)
        return (sum(now.get(canary) == query for canary, query in graded.items()), len(now)), 1

    try:
        return cached(connection, ("asked of a task", suite.id, suite.revision, said), count)
    except UnusableSuiteError:
        return 0, 0
