"""The overview: checks that match a filter, sorted by severity, a page at a time.

It reads one row of every check, and more only for those on the page. Nothing here writes.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from math import inf
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from app.alerts import store as alerts
from app.alerts.domain.between_runs import no_data_due
from app.alerts.domain.views import AlertState
from app.alerts.service.explanations import nothing_watched
from app.alerts.service.transitions import bad_answers
from app.annotation.store import task_rows
from app.answers.domain.generated import unjudged_text
from app.answers.store.answer_rows import read_run_answers
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.documents.fields import nearest_name
from app.base.values import Category, RunStatus, Value, Verdict, replace
from app.catalog import store as catalog
from app.catalog.service.references import schedule_of, unmeasured_answers
from app.catalog.store import Definition, FoundCanary
from app.experiments import store as experiment_rows
from app.hooks import store as outbox
from app.records.store import open_runs, run_rows
from app.records.store.run_rows import Newest, Part, RecentRun
from app.reports.service.check_details import (
    SPARK_RUNS,
    CheckHead,
    next_run,
    open_alerts,
    planted_alerts,
    run_line,
    schedule_text,
    unjudged_clause,
)
from app.runs.service.due_checks import find_overdue

PAGE: Final = 50
"""Number of checks on a page."""
NO_RUN: Final = "none"
"""Verdict shown for a check without an ended run."""
OFF: Final = "off"
"""Verdict shown for a disabled check."""
VERDICTS: Final = (Verdict.HEALTHY, Verdict.DEGRADED, Verdict.UNKNOWN, NO_RUN, OFF)
_MANY: Final = 6
_DEAD_FOR: Final = timedelta(days=3)
"""How long dead letters are shown."""
_ORDER: Final = (Verdict.DEGRADED, Verdict.UNKNOWN, NO_RUN, Verdict.HEALTHY, OFF)


class CheckFilter(Value):
    """Filter of checks; empty = any."""

    text: str = ""
    """Part of the name of the check, its suite or its retriever."""
    suite: str = ""
    retriever: str = ""
    category: str = ""
    """A category of the newest run."""
    tag: str = ""
    verdict: str = ""
    failing: bool = False
    """Enabled, and not healthy, overdue, or with a firing alert."""
    sort: str = ""
    """One of `SORTS`: by what checks are sorted; empty = by severity."""
    group: str = ""
    """One of `GROUPS`: what checks are grouped by; empty = not at all."""


class CheckSummary(CheckHead):
    """A check in one line of the overview."""

    slices: Mapping[str, Part]
    """Results of the newest run for the filter's `category` and `tag`."""
    recent: Sequence[RecentRun] = ()
    """Up to `SPARK_RUNS` ended runs with their coverage, oldest first."""
    group: str = ""
    """The suite, retriever or tag under which it stands."""

    @property
    def since(self) -> datetime | None:
        """End of the first run in a row with the verdict of the newest; None where that began before `recent`."""
        streak = list(takewhile(lambda one: one.verdict == self.recent[-1].verdict, reversed(self.recent)))
        began = streak[-1].finished_at if streak else None
        return None if len(streak) == SPARK_RUNS else began

    @property
    def verdict(self) -> str:
        """Verdict of the newest run, else `NO_RUN` or `OFF`."""
        if not self.enabled:
            return OFF
        return (self.newest.verdict if self.newest else None) or NO_RUN

    @property
    def open_alerts(self) -> int:
        """Number of open alerts."""
        return sum(count for (state, _), count in self.alerts.items() if state != AlertState.PENDING)

    @property
    def recovering(self) -> bool:
        """Whether an enabled check is not failing, and has alerts that are still open."""
        return self.enabled and not self.failing and self.recovery is not None

    @property
    def failing(self) -> bool:
        """Whether an enabled check is degraded, unknown, overdue or has a firing alert."""
        if not self.enabled:
            return False
        firing = any(state == AlertState.FIRING for state, _ in self.alerts)
        return self.verdict in {Verdict.DEGRADED, Verdict.UNKNOWN} or self.overdue or firing


class Overview(Value):
    """A page of checks, with counts and the values of filters."""

    lines: Sequence[CheckSummary]
    groups: Mapping[str, tuple[int, int]]
    """By group, how many checks it has and how many of them are failing."""
    matching: int
    """Number of checks that match the filter, on all pages."""
    total: int
    """Number of all checks."""
    page: int
    pages: int
    verdicts: Mapping[str, int]
    """Number of checks by verdict that match the rest of the filter."""
    suites: Sequence[str]
    retrievers: Sequence[str]
    categories: Sequence[str]
    tags: Sequence[str]
    overdue: int
    """Number of all checks that are overdue."""
    dead: Mapping[str, int]
    """Dead letters of the last days by hook."""
    lately: int
    """Number of incidents that began within the last 24 hours."""
    failing: int
    """Number of all checks that are failing."""
    recovering: int
    """Number of all checks that are healthy again, with alerts that are still open."""
    unmeasured: int
    """Number of those whose newest run is unknown."""
    unrun: int
    """Number of all enabled checks that have not ended a run."""
    active: int
    """Number of all checks that are enabled."""

    @property
    def is_small(self) -> bool:
        """Whether there are too few checks for filters to be useful."""
        return self.total < _MANY


def list_checks(store: Store, check_filter: CheckFilter, now: datetime, *, page: int = 1) -> Overview:
    """Return a page of the checks that match a filter; a page beyond the last is the last."""
    with store.read() as connection:
        checks = {check.slug: check for check in catalog.list_definitions(connection, "check")}
        newest = run_rows.newest_runs(connection)
        everything = _summaries(connection, list(checks.values()), newest, check_filter, now)
        matching_other = [summary for summary in everything if _matches(summary, check_filter)]
        matching = [summary for summary in matching_other if check_filter.verdict in {"", summary.verdict}]
        grouped = _grouped(matching, check_filter.group, {slug: newest.get(one.id) for slug, one in checks.items()})
        pages = max(1, -(-len(grouped) // PAGE))
        page = min(max(page, 1), pages)
        shown = _sorted(grouped, check_filter)[(page - 1) * PAGE : page * PAGE]
        ids = list(dict.fromkeys(checks[summary.slug].id for summary in shown))
        recent = run_rows.recent_runs(connection, ids, limit=SPARK_RUNS)
        bad = {summary.slug: _bad_answers(connection, checks[summary.slug], newest) for summary in shown}
        judged = [one.run.id for summary in shown if (one := newest.get(checks[summary.slug].id)) is not None]
        rated = read_run_answers(connection, judged)
        unjudged = {
            summary.slug: unjudged_clause(
                unjudged_text(rated.get(one.run.id)),
                unmeasured_answers(connection, checks[summary.slug]) if summary.enabled else {},
            )
            for summary in shown
            if (one := newest.get(checks[summary.slug].id)) is not None
        }
        unwatched = {
            summary.slug: nothing_watched(connection, one.run)
            for summary in shown
            if (one := newest.get(checks[summary.slug].id)) is not None
        }
        dead = outbox.dead_letters(connection, to_us(now - _DEAD_FOR))
        lately = alerts.count_incidents(connection, since=to_us(now - timedelta(days=1)))
    parts = [one.slices for check in checks.values() if (one := newest.get(check.id)) is not None]
    measured_categories = {name for part in parts for name in part.categories}
    return Overview(
        lines=[
            replace(
                summary,
                recent=recent[checks[summary.slug].id],
                bad_answers=bad[summary.slug],
                unjudged=unjudged.get(summary.slug, ""),
                unwatched=unwatched.get(summary.slug, ""),
                next_run=next_run(checks[summary.slug], now) if summary.enabled else None,
            )
            for summary in shown
        ],
        groups={
            name: (len(members), sum(one.failing for one in members)) for name, members in _by_group(grouped).items()
        },
        matching=len(matching),
        total=len(checks),
        page=page,
        pages=pages,
        verdicts=Counter(summary.verdict for summary in matching_other),
        suites=sorted({summary.suite for summary in everything}),
        retrievers=sorted({summary.retriever for summary in everything}),
        categories=[str(category) for category in Category if category in measured_categories],
        tags=sorted({name for part in parts for name in part.tags}),
        overdue=sum(summary.overdue for summary in everything),
        dead=dead,
        lately=lately,
        failing=sum(summary.failing for summary in everything),
        recovering=sum(summary.recovering for summary in everything),
        unmeasured=sum(summary.verdict == Verdict.UNKNOWN for summary in everything),
        unrun=sum(summary.verdict == NO_RUN for summary in everything),
        active=sum(summary.enabled for summary in everything),
    )


class Found(NamedTuple):
    """Something that a search found."""

    kind: str
    name: str
    address: str
    about: str = ""


def search(store: Store, text: str) -> list[Found]:
    """Find what a person may look for by a number, a name or words of a question; what is meant exactly comes first."""
    words = text.strip()
    if not words:
        return []
    with store.read() as connection:
        numbered = _numbered(connection, words)
        named = [
            Found(kind, slug, f"/{place}/{quote(slug)}")
            for kind, slug in catalog.search_definitions(connection, words, limit=_MOST_FOUND)
            if (place := _PLACES.get(kind)) is not None
        ]
        listed = (
            ("task", "tasks", task_rows.list_tasks(connection, limit=_MOST_LISTED)),
            ("experiment", "experiments", experiment_rows.list_experiments(connection, limit=_MOST_LISTED)),
            ("promotion", "promotions", experiment_rows.list_promotions(connection, limit=_MOST_LISTED)),
        )
        named += [
            Found(kind, row.slug, f"/{place}/{quote(row.slug)}")
            for kind, place, rows in listed
            for row in rows
            if words.casefold() in row.slug
        ]
        canaries = catalog.search_canaries(connection, words, limit=_MOST_FOUND)
        checks = catalog.list_definitions(connection, "check") if canaries else []
    named.sort(key=lambda one: one.name != words.casefold())
    asking = {check.body["suite"]: check.slug for check in checks}
    return [
        *numbered,
        *named,
        *(Found("canary", one.key, _place_of(one, asking), one.query) for one in canaries),
    ]


def nearest_place(store: Store, path: str) -> tuple[str, str] | None:
    """Return the name nearest to that in an address, and its own: `/checks/dcos` gives that of `docs`; None = none."""
    place, _, rest = path.strip("/").partition("/")
    kind, name = {place: kind for kind, place in _PLACES.items()}.get(place), rest.partition("/")[0]
    if kind is None:
        return None
    with store.read() as connection:
        found = nearest_name(name, [one.slug for one in catalog.list_definitions(connection, kind)])
    return None if found in {None, name} else (str(found), f"/{place}/{found}")


_PLACES: Final[Mapping[str, str]] = {
    "check": "checks",
    "suite": "suites",
    "retriever": "retrievers",
    "judge": "judges",
    "hook": "hooks",
    "silence": "silences",
}
_MOST_FOUND: Final = 20
_MOST_LISTED: Final = 500
_NUMBER: Final = re.compile(r"(?:(run|incident|alert)s?\s*)?#?\s*([0-9]{1,15})", re.IGNORECASE)


def _numbered(connection: Connection, words: str) -> list[Found]:
    """Return the run, incident and alert of a number, or the one that is named with it."""
    asked = _NUMBER.fullmatch(words)
    if asked is None:
        return []
    kind, number = (asked[1] or "").lower(), int(asked[2])
    run = run_rows.find_run(connection, number) if kind in {"", "run"} else None
    incident = alerts.find_incident(connection, number) if kind in {"", "incident"} else None
    alert = alerts.find_alert(connection, number) if kind in {"", "alert"} else None
    return [
        *([Found("run", f"run {number}", f"/runs/{number}", f"of {run.check}")] if run else []),
        *([Found("incident", f"incident {number}", f"/incidents/{number}")] if incident else []),
        *(
            [Found("alert", f"alert {number}", f"/alerts/{number}", f"{alert.rule_key} of {alert.check}")]
            if alert
            else []
        ),
    ]


def _place_of(one: FoundCanary, asking: Mapping[str, str]) -> str:
    """Address of the history of a canary in a check of its suite or, where none asks it, of its definition."""
    check = asking.get(one.suite)
    folder = f"/checks/{quote(check)}" if check is not None else f"/suites/{quote(one.suite)}"
    return f"{folder}/canaries/{quote(one.key)}"


def _summaries(
    connection: Connection,
    checks: Sequence[Definition],
    newest: Mapping[int, Newest],
    check_filter: CheckFilter,
    now: datetime,
) -> list[CheckSummary]:
    unresolved, active = open_alerts(connection), open_runs.under_way(connection, to_us(now))
    planted = planted_alerts(connection)
    return [
        CheckSummary(
            slug=check.slug,
            suite=check.body["suite"],
            retriever=check.body["retriever"],
            schedule=schedule_text(check.body["schedule"]),
            enabled=bool(check.body["enabled"]),
            newest=run_line(ended.run) if (ended := newest.get(check.id)) is not None else None,
            slices=_slices(ended, check_filter),
            active=active.get(check.id),
            overdue=_is_overdue(connection, check, ended, now),
            alerts=unresolved.get(check.id, {}),
            planted=planted.get(check.id),
        )
        for check in checks
    ]


def _slices(newest: Newest | None, check_filter: CheckFilter) -> dict[str, Part]:
    if newest is None:
        return {}
    measured_categories = (
        ("category", check_filter.category, newest.slices.categories),
        ("tag", check_filter.tag, newest.slices.tags),
    )
    return {kind: parts[name] for kind, name, parts in measured_categories if name in parts}


def _bad_answers(connection: Connection, check: Definition, newest: Mapping[int, Newest]) -> list[str]:
    ended = newest.get(check.id)
    return [] if ended is None else bad_answers(connection, check, ended.run)


def _is_overdue(connection: Connection, check: Definition, newest: Newest | None, now: datetime) -> bool:
    """Whether an enabled check is overdue, see `find_overdue`; of a run that was read already no query is made."""
    if not check.body["enabled"]:
        return False
    if newest is not None and (newest.run.finished_at is None or newest.run.status == RunStatus.FAILED):
        return find_overdue(connection, check, now) is not None  # needs the last completed run from the history
    last = None if newest is None or newest.run.finished_at is None else from_us(newest.run.finished_at)
    return no_data_due(schedule_of(check.body), last, now, from_us(check.updated_at)) is not None


def _matches(summary: CheckSummary, check_filter: CheckFilter) -> bool:
    names = f"{summary.slug}\n{summary.suite}\n{summary.retriever}"
    return (
        check_filter.text.strip().lower() in names
        and check_filter.suite in {"", summary.suite}
        and check_filter.retriever in {"", summary.retriever}
        and (not check_filter.category or "category" in summary.slices)
        and (not check_filter.tag or "tag" in summary.slices)
        and (summary.failing or not check_filter.failing)
    )


def _urgency(summary: CheckSummary) -> tuple[bool, bool, bool, int, bool, str]:
    off, well = summary.verdict == OFF, not summary.failing
    return off, well, not summary.recovering, _ORDER.index(summary.verdict), not summary.overdue, summary.slug


def _coverage(summary: CheckSummary) -> float:
    found = None if summary.newest is None else summary.newest.coverage
    return inf if found is None else found


def _degraded(summary: CheckSummary) -> float:
    return -((summary.newest.degraded or 0) if summary.newest is not None else -1)


def _last_run(summary: CheckSummary) -> float:
    ended = None if summary.newest is None else summary.newest.finished_at
    return inf if ended is None else -ended.timestamp()


SORTS: Final[Mapping[str, Callable[[CheckSummary], Any]]] = {
    "name": lambda summary: summary.slug,
    "coverage": _coverage,
    "degraded": _degraded,
    "run": _last_run,
}
"""Keys of what checks may be sorted by, the worst or newest first; by severity without any."""
GROUPS: Final = ("suite", "retriever", "tag")


def _sorted(summaries: Sequence[CheckSummary], check_filter: CheckFilter) -> list[CheckSummary]:
    """Sort checks within their groups, which stand in the order of their most urgent check."""
    key = SORTS.get(check_filter.sort, _urgency)
    ordered = sorted(sorted(summaries, key=_urgency), key=key)
    urgent = {name: min(map(_urgency, members)) for name, members in _by_group(summaries).items()}
    return sorted(ordered, key=lambda summary: (urgent[summary.group][:-1], summary.group))


def _by_group(summaries: Sequence[CheckSummary]) -> dict[str, list[CheckSummary]]:
    groups: dict[str, list[CheckSummary]] = {}
    for summary in summaries:
        groups.setdefault(summary.group, []).append(summary)
    return groups


def _grouped(summaries: Sequence[CheckSummary], group: str, newest: Mapping[str, Newest | None]) -> list[CheckSummary]:
    """Name the group of each check; by tag it stands once under each, with the coverage of its canaries."""
    if group == "tag":
        tags = {slug: one.slices.tags for slug, one in newest.items() if one is not None and one.slices.tags}
        untagged = [summary for summary in summaries if summary.slug not in tags]
        return untagged + [
            replace(summary, group=tag, slices={**summary.slices, "tag": part})
            for summary in summaries
            for tag, part in tags.get(summary.slug, {}).items()
        ]
    return [replace(summary, group=getattr(summary, group) if group else "") for summary in summaries]
