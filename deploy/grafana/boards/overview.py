"""All checks at once: what is wrong now, and since when."""

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from deploy.grafana import queries as q
from deploy.grafana.frame import Board, Panels, Section, many, marks, sources
from deploy.grafana.panels import (
    ANY_IS_A_WARNING,
    ANY_IS_BAD,
    BAD,
    BETTER_HIGH,
    COUNT,
    GOOD,
    MOMENT,
    NEUTRAL,
    ODD,
    OF_THE_ROW,
    RATIO,
    VERDICTS,
    WARN,
    Steps,
    check_links,
    coloured,
    grid,
    lines,
    linked,
    mapped,
    merged,
    now,
    number,
    over_time,
    paged,
    rows,
    setting,
    states,
)

MINE = (q.JOB, q.among("suite", "$suite"), q.among("retriever", "$retriever"), q.among("check", "$check"))
FAILED = q.has("state", "failed")
_COLUMNS = {
    "check": "Check",
    "Value #A": "Verdict",
    "Value #B": "First-hit relevance",
    "Value #C": "Coverage",
    "Value #D": "Degraded canaries",
    "Value #E": "Failed probes",
    "Value #F": "Open alerts",
    "Value #G": "Last run",
    "Value #H": "Overdue",
    "index_version": "Index version",
    "suite": "Suite",
    "retriever": "Retriever",
    "Value #I": "",
    "Value #J": "",
}


def board() -> Board:
    """Describe the board."""
    return Board(
        uid="coalmine-overview",
        title="Coalmine / Overview",
        description="All checks: which are degraded, unknown or overdue, and how health and coverage moved.",
        since="now-24h",
        page=("Open Coalmine", "/"),
        variables=[
            *sources(),
            many("suite", "Suite", "Suites of canaries."),
            many("retriever", "Retriever", "Retrievers that are asked these suites.", within=MINE[:2]),
            many("check", "Check", "Checks of both.", within=MINE[:3]),
        ],
        annotations=marks(*MINE),
        sections=[
            Section(id=100, title="Now", lines=[(4, _numbers()), (10, [(_table(), 24)])]),
            Section(id=200, title="Since when", lines=[(8, [(_verdicts(), 24)]), (9, _quality()), (9, _counts())]),
        ],
    )


def _numbers() -> Panels:
    verdict, known = q.verdict(*MINE, by=q.ONE_CHECK), q.known(MINE)
    return [
        (
            number(
                101,
                "Healthy",
                "Checks whose newest run broke none of their rules and is not long ago: they are not overdue.",
                now(f"count({verdict} == {q.HEALTHY}) or 0 * count({known})"),
                steps=((None, NEUTRAL), (1.0, GOOD)),
            ),
            3,
        ),
        (
            number(
                102,
                "Degraded",
                "Checks whose newest run broke a rule. Open the check to see which canaries, and diagnose one.",
                now(f"count({verdict} == {q.DEGRADED}) or 0 * count({known})"),
                steps=ANY_IS_BAD,
            ),
            3,
        ),
        (
            number(
                103,
                "Unknown",
                "Checks that could not be judged: most probes of the newest run failed, or there was no run yet. "
                "Unknown is never healthy: see whether the retriever answers.",
                now(f"count({known}) - (count({verdict} != {q.UNKNOWN}) or vector(0))"),
                steps=((None, NEUTRAL), (0.0, GOOD), (1.0, ODD)),
            ),
            3,
        ),
        (
            number(
                104,
                "Overdue",
                "Checks whose last run ended more than two intervals ago, or that have not run a quarter of an hour "
                "after they were defined. Is a worker running? See the board of Coalmine itself.",
                now(f"sum({q.overdue(*MINE, by=q.ONE_CHECK)}) or 0 * count({known})"),
                steps=ANY_IS_A_WARNING,
            ),
            3,
        ),
        _alerts(
            105,
            "Open critical alerts",
            "Critical alerts that are not resolved. Coalmine's page of alerts tells why each was opened.",
            severity="critical",
            steps=ANY_IS_BAD,
        ),
        _alerts(
            106,
            "Open warnings",
            "Warnings that are not resolved. They page nobody while a critical alert of their check is open.",
            severity="warning",
            steps=ANY_IS_A_WARNING,
        ),
        (
            number(
                107,
                "Store",
                "Whether every replica can read the database. Where one cannot, all it says of checks is missing "
                "here, which is not the same as healthy.",
                now(f"min({q.series('coalmine_store_up', q.JOB)})"),
                unit="string",
                texts={"0": ("cannot be read", BAD), "1": ("readable", GOOD)},
                steps=((None, NEUTRAL), (0.0, BAD), (1.0, GOOD)),
                empty="Unknown: Coalmine is not scraped",
            ),
            4,
        ),
    ]


def _alerts(id_: int, title: str, description: str, *, severity: str, steps: Steps) -> tuple[stat.Panel, int]:
    opened = f"sum({q.open_alerts(MINE, q.has('severity', severity))})"
    shown = number(id_, title, description, now(opened), steps=steps)
    return paged(shown, "Open alerts in Coalmine", f"/alerts?severity={severity}"), 4


def _table() -> Builder[Panel]:
    index = ("check", "suite", "retriever", "index_version")
    panel = grid(
        110,
        "Checks",
        "One row for each enabled check, as its newest run left it. A cell that says not measured is no zero: that "
        "run could not measure it. Click a check to open it.",
        rows(q.verdict(*MINE)),
        rows(q.state("coalmine_health_score_ratio", *MINE)),
        rows(q.state("coalmine_coverage_ratio", *MINE)),
        rows(q.state("coalmine_degraded_queries", *MINE)),
        rows(q.state("coalmine_canaries", *MINE, FAILED)),
        rows(q.open_alerts(MINE, by=q.CHECK)),
        rows(f"1000 * {q.state(q.LAST_RUN, *MINE)}"),
        rows(q.overdue(*MINE)),
        rows(q.state("coalmine_index_info", *MINE, by=index)),
        rows(q.known(MINE, by=q.CHECK)),
    )
    verdicts = setting("mappings", mapped(VERDICTS))
    ratio = [setting("unit", RATIO), setting("decimals", 1)]
    overdue = setting("mappings", mapped({"0": ("no", GOOD), "1": ("yes", WARN)}))
    linked_checks = [setting("links", check_links(OF_THE_ROW)), setting("custom.width", 220)]
    return (
        panel.transformations(merged(_COLUMNS))
        .override_by_name("Check", linked_checks)
        .override_by_name("Verdict", [verdicts, setting("noValue", "unknown: no run yet"), *coloured(((None, ODD),))])
        .override_by_name("First-hit relevance", [*ratio, *coloured(BETTER_HIGH)])
        .override_by_name("Coverage", [*ratio, *coloured(BETTER_HIGH)])
        .override_by_name("Degraded canaries", coloured(ANY_IS_A_WARNING))
        .override_by_name("Failed probes", coloured(ANY_IS_A_WARNING))
        .override_by_name("Open alerts", coloured(ANY_IS_BAD))
        .override_by_name("Last run", [setting("unit", MOMENT), setting("noValue", "never")])
        .override_by_name("Overdue", [overdue, setting("noValue", "no run yet"), *coloured(((None, NEUTRAL),))])
        .override_by_name("Index version", [setting("noValue", "not reported")])
    )


def _verdicts() -> Builder[Panel]:
    return linked(
        states(
            201,
            "Verdicts",
            "The verdict of each check over time; overdue: it was healthy, but more than two intervals before. A gap "
            "means that Coalmine or its store did not answer then, or that the check had not run: unknown, not "
            "healthy.",
            over_time(q.verdict(*MINE), "{{check}}"),
            VERDICTS,
        )
    )


def _quality() -> Panels:
    return [
        (
            _line(
                202,
                "First-hit relevance",
                "Mean relevance of the first hit, 0 to 1. A step down together with a new index version points at "
                "what was indexed. A gap: that run could not measure.",
                q.state("coalmine_health_score_ratio", *MINE),
                RATIO,
            ),
            12,
        ),
        (
            _line(
                203,
                "Coverage",
                "Share of canaries with an expected chunk in the top k. It falls where chunks are lost, re-cut "
                "under other ids or outranked. A gap: that run could not measure.",
                q.state("coalmine_coverage_ratio", *MINE),
                RATIO,
            ),
            12,
        ),
    ]


def _counts() -> Panels:
    return [
        (
            _line(
                204,
                "Degraded canaries",
                "Canaries of the newest run that found too little, too late or something forbidden. The check's "
                "page names them.",
                q.state("coalmine_degraded_queries", *MINE),
                COUNT,
            ),
            8,
        ),
        (
            _line(
                205,
                "Failed probes",
                "Canaries that could not be asked in the newest run: the retriever timed out, refused or answered "
                "in another shape. They say nothing of quality and enter no mean.",
                q.state("coalmine_canaries", *MINE, FAILED),
                COUNT,
            ),
            8,
        ),
        (
            _line(
                206,
                "Open alerts",
                "Alerts that are not resolved, by check. Coalmine's page of alerts tells why each was opened and "
                "who was told.",
                q.open_alerts(MINE),
                COUNT,
            ),
            8,
        ),
    ]


def _line(id_: int, title: str, description: str, expr: str, unit: str) -> timeseries.Panel:
    return linked(lines(id_, title, description, over_time(expr, "{{check}}"), unit=unit))
