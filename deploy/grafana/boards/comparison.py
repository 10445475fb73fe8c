"""Several retrievers side by side, asked the same suite."""

from grafana_foundation_sdk.builders import bargauge, timeseries

from deploy.grafana import queries as q
from deploy.grafana.frame import Board, Panels, Section, many, marks, one, sources
from deploy.grafana.panels import (
    BETTER_HIGH,
    COUNT,
    RATIO,
    VERDICTS,
    grid,
    levels,
    lines,
    linked,
    matrix,
    now,
    over_time,
    rows,
    states,
)

MINE = (q.JOB, q.has("suite", "$suite"), q.among("retriever", "$retriever"))
_CHOSEN = (q.has("measure", "$measure"), q.has("k", "$k"))
_NAME = "{{retriever}} / {{check}}"


def board() -> Board:
    """Describe the board."""
    measures, cuts = "coalmine_measure_ratio", (*MINE, _CHOSEN[0])
    return Board(
        uid="coalmine-comparison",
        title="Coalmine / Retrievers compared",
        description="Several retrievers that are asked the same suite: which finds more, where, and since when.",
        since="now-7d",
        page=("Open Coalmine", "/"),
        variables=[
            *sources(),
            one("suite", "Suite", "The suite all are asked."),
            many("retriever", "Retriever", "The retrievers to compare.", within=MINE[:2]),
            one("measure", "Measure", "What to compare by.", of=measures, within=MINE, preferred="NDCG"),
            one("k", "k", "Where the measure is cut; none for MAP.", of=measures, within=cuts, preferred="5"),
            many("category", "Category", "Categories of canaries.", of="coalmine_category_measure_ratio", within=MINE),
        ],
        annotations=marks(*MINE),
        sections=[
            Section(id=100, title="Now", lines=[(8, _levels()), (12, _tables())]),
            Section(id=200, title="Since when", lines=[(9, _lines()), (9, _gaps())]),
            Section(id=300, title="What else differs", lines=[(6, _states()), (8, _counts())]),
        ],
    )


def _levels() -> Panels:
    return [
        (
            _level(
                101,
                "First-hit relevance",
                "Mean relevance of the first hit. It comes from each retriever's own scorer: compare retrievers by "
                "it only where they score alike.",
                q.state("coalmine_health_score_ratio", *MINE),
            ),
            8,
        ),
        (
            _level(
                102,
                "Coverage",
                "Share of canaries with an expected chunk in the top k of the check. Comparable where the checks "
                "have the same k.",
                q.state("coalmine_coverage_ratio", *MINE),
            ),
            8,
        ),
        (
            _level(
                103,
                "$measure at $k",
                "The chosen measure of the newest runs: same suite, same definition, same k. Where judgments come from "
                "stands below; those of one retriever favour it.",
                q.state("coalmine_measure_ratio", *MINE, *_CHOSEN),
            ),
            8,
        ),
    ]


def _tables() -> Panels:
    # The empty alternative keeps the measures without a cut.
    measures = q.state("coalmine_measure_ratio", *MINE, q.among("k", "$k|"), by=(*q.CHECK, "measure", "k"))
    categories = q.state(
        "coalmine_category_measure_ratio", *MINE, *_CHOSEN, q.among("category", "$category"), by=(*q.CHECK, "category")
    )
    return [
        (
            grid(
                110,
                "Measures at $k",
                "A row for each measure, a column for each retriever and its check.",
                rows(q.column(q.named(measures))),
                unit=RATIO,
            ).transformations(matrix("name", "column")),
            12,
        ),
        (
            grid(
                111,
                "$measure at $k by category",
                "Where a retriever is weaker than the others: a row for each category, a column for each retriever.",
                rows(q.column(categories)),
                unit=RATIO,
                steps=BETTER_HIGH,
            ).transformations(matrix("category", "column")),
            12,
        ),
    ]


def _lines() -> Panels:
    return [
        (
            _line(
                201,
                "Coverage",
                "Share of canaries with an expected chunk in the top k, by retriever. A gap: could not measure.",
                q.state("coalmine_coverage_ratio", *MINE),
                RATIO,
            ),
            12,
        ),
        (
            _line(
                202,
                "$measure at $k",
                "The chosen measure by retriever. A gap: could not measure.",
                q.state("coalmine_measure_ratio", *MINE, *_CHOSEN),
                RATIO,
            ),
            12,
        ),
    ]


def _gaps() -> Panels:
    chosen = q.state("coalmine_measure_ratio", *MINE, *_CHOSEN)
    best = q.state("coalmine_measure_ratio", *MINE, *_CHOSEN, by=("suite",))
    recall = q.state("coalmine_recall_ratio", *MINE, q.has("k", "$k"), by=(*q.CHECK, "level"))
    return [
        (
            _line(
                203,
                "Behind the best",
                "How far each retriever is behind the best one at that time, by the chosen measure: 0 is the best.",
                f"{best} - on (suite) group_right () {chosen}",
                RATIO,
            ),
            12,
        ),
        (
            linked(
                lines(
                    204,
                    "Recall by id and by passage",
                    "Of the chunks expected by id and by text, at the chosen k. A retriever with another way of "
                    "cutting documents finds the passages and not the ids.",
                    over_time(recall, f"{_NAME}, by {{{{level}}}}"),
                    unit=RATIO,
                ).no_value("No canary expects a chunk by id and by text")
            ),
            12,
        ),
    ]


def _states() -> Panels:
    index = (*q.CHECK, "index_version")
    return [
        (
            linked(
                states(
                    301,
                    "Verdicts",
                    "The verdict of each check. The rules of each check decide, so they compare only where the rules "
                    "are the same. A gap is unknown, not healthy.",
                    over_time(q.verdict(*MINE), _NAME),
                    VERDICTS,
                )
            ),
            8,
        ),
        (
            linked(
                states(
                    302,
                    "Index versions",
                    "Which version of its index each retriever reported. Different documents explain different scores.",
                    over_time(q.state("coalmine_index_info", *MINE, by=index), "{{retriever}}: {{index_version}}"),
                    {"1": ("in use", "blue")},
                ).no_value("No retriever reports a version of its index")
            ),
            8,
        ),
        (
            linked(
                states(
                    305,
                    "Where judgments come from",
                    "Self-judged: this retriever itself brought up more than a fifth of what is expected, so every "
                    "measure of expected chunks favours it against the others. Judge a pool over all of them.",
                    over_time(q.state("coalmine_recall_self_judged", *MINE), _NAME),
                    {"0": ("judged beyond its own hits", "blue"), "1": ("self-judged", "orange")},
                )
            ),
            8,
        ),
    ]


def _counts() -> Panels:
    failed = q.state("coalmine_canaries", *MINE, q.has("state", "failed"))
    return [
        (
            _line(
                303,
                "Degraded canaries",
                "Canaries that found too little, too late or something forbidden.",
                q.state("coalmine_degraded_queries", *MINE),
                COUNT,
            ),
            12,
        ),
        (
            _line(
                304,
                "Failed probes",
                "Canaries that could not be asked. A retriever that fails often is measured on fewer canaries.",
                failed,
                COUNT,
            ),
            12,
        ),
    ]


def _level(id_: int, title: str, description: str, expr: str) -> bargauge.Panel:
    return linked(levels(id_, title, description, now(expr, _NAME), steps=BETTER_HIGH))


def _line(id_: int, title: str, description: str, expr: str, unit: str) -> timeseries.Panel:
    return linked(lines(id_, title, description, over_time(expr, _NAME), unit=unit))
