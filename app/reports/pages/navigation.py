"""The menu, the chapter of the documentation about each page, and the search.

The search finds by numbers and names of what there is, by what people call a page or a task, and by words of the
documentation's headings.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain, islice
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response

from app.base.api.requests import StoreDep, page_router, route_path
from app.base.db.engine import Store
from app.base.values import Value
from app.base.web.pages import render
from app.catalog.service import references
from app.reports.pages import documentation
from app.reports.service import overview
from app.reports.service.overview import Found

router = page_router()


class Place(Value):
    """A page: its address, its name, and what else people call it or what is done there.

    An address with `{suite}` or `{check}` stands for one of each.
    """

    address: str
    name: str
    within: tuple[str, ...] = ()
    """How the addresses begin of pages that are reached by it."""
    also: str = ""
    """Other names, separated by commas."""


MENU: Final[Mapping[str, tuple[Place, ...]]] = {
    "Status": (
        Place(
            address="/",
            name="Checks",
            within=("/checks/", "/runs/", "/rescorings/", "/new-check"),
            also="overview, dashboard, home, health, monitors, runs, failing canaries, queries, questions",
        ),
        Place(
            address="/alerts",
            name="Incidents",
            within=("/alerts/", "/incidents/"),
            also="alerts, alarms, outages, acknowledge, on call, fire, fired, last night, what broke",
        ),
        Place(
            address="/answers",
            name="Answers",
            also="are answers true, generated answers, faithful, hallucinations, supported, groundedness, quality",
        ),
    ),
    "Questions": (
        Place(
            address="/suites",
            name="Suites",
            within=("/suites/", "/import"),
            also="canaries, questions, queries, test set, golden set, data set",
        ),
        Place(
            address="/traffic",
            name="Traffic",
            also="coverage by traffic, reach, uncovered questions of users, what users ask, blind spots, not covered",
        ),
        Place(
            address="/tasks",
            name="Annotation",
            within=("/tasks/",),
            also="tasks, label, grade, rate, judgments, annotators, relevance, people, pooled recall, adopt",
        ),
    ),
    "Compare": (
        Place(
            address="/compare",
            name="Compare",
            within=("/compare/",),
            also="comparison, difference, diff, two runs, two retrievers, significance",
        ),
    ),
    "Experiments": (
        Place(
            address="/experiments",
            name="Experiments",
            within=("/experiments/", "/promotions/", "/shadows/", "/interleavings/"),
            also="A/B test, AB test, split test, promote, promotions, shadows, interleavings, candidate, roll out",
        ),
    ),
    "Notify": (
        Place(
            address="/hooks",
            name="Hooks",
            within=("/hooks/", "/new-hook"),
            also="notifications, destinations, Slack, Teams, Discord, mail, email, PagerDuty, Alertmanager, webhooks, "
            "channels, receivers, settings",
        ),
        Place(
            address="/reports",
            name="Reports",
            also="weekly report, daily report, monthly report, scheduled reports, mail, email, digest, summary",
        ),
        Place(
            address="/deliveries",
            name="Deliveries",
            also="sent notifications, messages, dead letters, replay, outbox",
        ),
        Place(
            address="/silences",
            name="Silences",
            within=("/silences/", "/new-silence"),
            also="mute, maintenance, snooze, downtime, pause",
        ),
    ),
    "Set up": (
        Place(
            address="/retrievers",
            name="Retrievers",
            within=("/retrievers/", "/new-retriever"),
            also="endpoints, search API, vector database, index, connections, settings",
        ),
        Place(
            address="/judges",
            name="Judges",
            within=("/judges/",),
            also="LLM as a judge, calibration, trust, kappa, settings",
        ),
        Place(
            address="/keys",
            name="Keys",
            within=("/keys/",),
            also="API keys, tokens, people, users, access, rotate, revoke, scopes, settings",
        ),
        Place(address="/docs", name="API", also="REST, OpenAPI, Swagger, reference"),
    ),
}
"""The menu: what people come for, and the pages of each."""
TASKS: Final[Sequence[Place]] = (
    Place(address="/new-check", name="New check", also="create, add, monitor, interval, schedule"),
    Place(address="/new-silence", name="New silence", also="mute, maintenance window, snooze, downtime, pause"),
    Place(
        address="/new-hook", name="New hook", also="add notifications, Slack, Teams, mail, email, PagerDuty, webhook"
    ),
    Place(address="/new-retriever", name="Connect a retriever", also="new, add, create, endpoint, search API"),
    Place(
        address="/import",
        name="Import canaries",
        also="import CSV, upload, questions, suite, TREC, BEIR, Quepid, Ragas, LangSmith, Langfuse, JSON",
    ),
    Place(address="/keys?scope=annotate", name="Invite an annotator", also="invitation, people, link, grader, labeler"),
    Place(address="/?wall=1", name="Wall of checks", also="tiles, TV, screen, kiosk"),
    Place(address="/experiments#promotions", name="Promotions", also="promote a candidate, gates, waive, roll out"),
    Place(address="/compare?what=retriever", name="Compare two retrievers", also="which is better"),
    Place(address="/metrics", name="Metrics", also="Prometheus, Grafana, scrape"),
    Place(address="/help", name="Help", also="documentation, docs, manual, guide, runbooks, how to"),
    Place(address="/suites/{suite}/add", name="Add a canary to {suite}", also="new question, query, create"),
    Place(
        address="/suites/{suite}?show=export",
        name="Export {suite}",
        also="download, backup, YAML, CSV, TREC, BEIR, Quepid, Ragas, archive",
    ),
    Place(address="/suites/{suite}?show=composition", name="Composition of {suite}", also="categories, segments"),
    Place(
        address="/checks/{check}/edit",
        name="Edit {check}",
        also="change interval, how often it runs, schedule, thresholds, alert rules, settings",
    ),
    Place(address="/checks/{check}/quality", name="Retrieval quality report of {check}", also="why, causes"),
    Place(address="/checks/{check}#public", name="Share {check}", also="public status page, badge, link"),
)
"""Pages and parts of pages that the menu does not name."""
CHAPTERS: Final[Mapping[str, str]] = {
    "/": "pages#looking",
    "/search": "pages",
    "/docs": "api",
    "/keys": "operations#security",
    "/login": "operations#security",
    "/new-check": "canary-files#checks",
    "/checks/*/edit": "canary-files#checks",
    "/checks/*/plants": "plants",
    "/checks/*/facts": "index-facts",
    "/checks/*/quality": "diagnosis#where-to-look",
    "/checks/*/reanchors": "diagnosis#renamed-chunks",
    "/checks/*/canaries/*": "diagnosis#causes",
    "/checks/*": "detection",
    "/runs/*/answers": "answers#measures",
    "/runs/compare": "diagnosis#comparing-runs",
    "/runs/*/diff/*": "diagnosis#comparing-runs",
    "/runs/*": "measures#which-measure-for-what",
    "/rescorings/*": "canary-files#correcting-a-judgment",
    "/compare": "diagnosis#comparing-runs",
    "/compare/canary": "diagnosis#comparing-runs",
    "/alerts": "rules#when-an-alert-opens-and-closes",
    "/alerts/*": "rules#why-did-this-not-alert",
    "/incidents/*": "rules#notifications",
    "/silences*": "rules#silences-and-maintenance-windows",
    "/new-silence": "rules#silences-and-maintenance-windows",
    "/hooks*": "hooks",
    "/new-hook": "hooks#kinds",
    "/deliveries": "hooks#when-the-receiver-is-unwell",
    "/reports": "hooks#reports-on-a-schedule",
    "/retrievers/*/try": "presets#trying-one",
    "/retrievers/*/map": "pages#your-own-retriever-in-the-browser",
    "/new-retriever": "pages#your-own-retriever-in-the-browser",
    "/retrievers*": "presets",
    "/suites/*/traffic": "traffic#reach",
    "/traffic": "traffic",
    "/suites*": "canary-files#canaries",
    "/import": "canary-files#from-and-to-other-tools",
    "/annotate": "annotation#annotating",
    "/tasks/*/annotate": "annotation#annotating",
    "/tasks*": "annotation#a-task",
    "/answers": "answers",
    "/judges": "answers#a-judge",
    "/judges/*": "answers#how-far-to-believe-a-judge",
    "/experiments": "experiments",
    "/experiments/*": "experiments#an-experiment",
    "/promotions/*": "experiments#promotion",
    "/shadows/*": "experiments#a-shadow",
    "/interleavings/*": "experiments#interleaving",
}
"""The chapter of the documentation about each page: by the first of these that its address is like."""


def help_address(request: Request) -> str:
    """Return the address of the chapter about the page of a request, else of the first; "" where there is none."""
    if not documentation.files():
        return ""
    path = route_path(request.scope)
    chapter = next((one for pattern, one in CHAPTERS.items() if fnmatchcase(path, pattern)), "")
    return f"{documentation.HELP}/{chapter}" if chapter else documentation.HELP


@router.get("/search")
def show_search(request: Request, store: StoreDep, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show what was found, or go where only one thing is meant; without a word, every page and task.

    Headings of the documentation stand below all else, and are not what a search goes to.
    """
    found, slugs = overview.search(store, q), cache(partial(_slugs, store))
    exact = [one for one in found if one.name.casefold() == q.strip().casefold()]
    found = list(dict.fromkeys([*exact, *_find_places(slugs, q), *found]))
    if len(found) == 1:
        return RedirectResponse(found[0].address, status_code=303)
    every = {} if q.strip() else {**MENU, "Tasks": TASKS}
    listed = {
        group: [(name, at, place.also) for place in places for name, at, _ in islice(_fill(slugs, place), _MOST_OF_ONE)]
        for group, places in every.items()
    }
    chapters = [*islice(_find_chapters(q), _MOST_OF_ONE)]
    return render(request, "reports/search.html", q=q.strip(), found=found, chapters=chapters, listed=listed)


_WORD: Final = re.compile(r"\w+")
_OF_ONE: Final = re.compile(r"\{(suite|check)\}")
_FILLERS: Final = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "by",
        "did",
        "do",
        "does",
        "for",
        "how",
        "i",
        "in",
        "is",
        "it",
        "last",
        "my",
        "of",
        "on",
        "our",
        "the",
        "to",
        "what",
        "which",
        "why",
    ]
)
_MOST_OF_ONE: Final = 5
"""Pages of one kind that are found: of a hundred checks the form of each would hide the rest."""


def _find_places(slugs: Callable[[str], Sequence[str]], text: str) -> Iterator[Found]:
    """Yield the pages that are called what was typed: those whose own name says it first, then by the other names.

    A word may also be of the suite or the check that a page is of: not every word, as that is a search for it alone.
    """
    words = _stems(text)
    ranked = []
    for group, place in chain(
        ((group, place) for group, places in MENU.items() for place in places), (("", place) for place in TASKS)
    ):
        own, called = _stems(_OF_ONE.sub("", place.name)), _stems(place.also)
        rest = [word for word in words if not _says([*own, *called], word)]
        if len(rest) == len(words):
            continue
        rank = 0 if own == words else 1 if all(_says(own, word) for word in words) else 2
        filled = (one for one in _fill(slugs, place) if all(_says(one[2], word) for word in rest))
        about = f"under {group}" if group else ""
        ranked += [(rank, Found("page", name, at, about)) for name, at, _ in islice(filled, _MOST_OF_ONE)]
    yield from (found for _, found in sorted(ranked, key=lambda one: one[0]))


def _find_chapters(text: str) -> Iterator[Found]:
    """Yield the headings of the documentation that say every word, if need be with the title of their page.

    Titles of pages come first, then those of the fewest words: they are about nothing else.
    """
    words = _stems(text)
    ranked = []
    for page in documentation.pages() if words else ():
        title = _stems(page.title)
        for heading in page.headings:
            own = _stems(heading.text)
            is_said = all(_says([*own, *title], word) for word in words)
            if is_said and any(_says(own, word) for word in words):
                missing = sum(not _says(own, word) for word in words)
                about = f"in {page.title}" if heading.level > 1 else ""
                rank = (missing, heading.level > 1, len(own))
                ranked.append((rank, Found("help", heading.text, heading.address, about)))
    yield from (found for _, found in sorted(ranked, key=lambda one: one[0]))


def _says(names: Sequence[str], word: str) -> bool:
    """Whether one of the names begins with a word; with a single letter it begins only if it is that."""
    return any(name == word or (len(word) > 1 and name.startswith(word)) for name in names)


def _fill(slugs: Callable[[str], Sequence[str]], place: Place) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield name and address of a page, once for each suite or check that it is of, with the words of that name."""
    kind = _OF_ONE.search(place.address)
    if kind is None:
        yield place.name, place.address, ()
        return
    for slug in slugs(kind[1]):
        yield place.name.format(**{kind[1]: slug}), place.address.format(**{kind[1]: quote(slug)}), _stems(slug)


def _slugs(store: Store, kind: str) -> Sequence[str]:
    return [one.slug for one in references.load_definitions(store, kind)]


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.casefold()) if word not in _FILLERS]


def _stem(word: str) -> str:
    """Return a word without the ending of a plural: silence is found by silences, and the other way round."""
    return word.removesuffix("s") if len(word) > 3 else word  # noqa: PLR2004 - TREC and yes are none
