"""One check in full: quality by measure and category, the detector, alerts, the index behind it."""

from deploy.grafana import queries as q
from deploy.grafana.boards.check_canaries import canaries
from deploy.grafana.boards.check_numbers import MINE, first_numbers, second_numbers
from deploy.grafana.frame import Board, Panels, Section, many, marks, one, sources
from deploy.grafana.panels import (
    COUNT,
    RATIO,
    SECONDS,
    VERDICTS,
    bars,
    grid,
    lines,
    logarithmic,
    matrix,
    over_time,
    paged,
    rows,
    states,
)

_CHOSEN = (q.among("measure", "$measure"), q.among("k", "$k"))
_NAMED = ("measure", "k")


def board() -> Board:
    """Describe the board."""
    retrievers = (q.JOB, q.among("suite", "$suite"))
    checks = (*retrievers, q.among("retriever", "$retriever"))
    measures = "coalmine_measure_ratio"
    return Board(
        uid="coalmine-check",
        title="Coalmine / Check",
        description="One check: its newest run, every measure over time, its categories, detector, alerts and index.",
        since="now-24h",
        page=("Open this check in Coalmine", "/checks/${check}"),
        variables=[
            *sources(),
            many("suite", "Suite", "Narrows the checks."),
            many("retriever", "Retriever", "Narrows the checks.", within=retrievers),
            one("check", "Check", "The check to show.", within=checks),
            many("measure", "Measure", "Measures to draw.", of=measures, within=MINE, preferred=("NDCG", "R")),
            many(
                "k",
                "k",
                "Where measures are cut. All shows those without a cut too.",
                of=measures,
                within=(*MINE, _CHOSEN[0]),
                preferred=("5",),
                all_value=".*",
            ),
            many("category", "Category", "Categories of canaries.", of="coalmine_category_measure_ratio", within=MINE),
        ],
        annotations=marks(*MINE),
        sections=[
            Section(id=100, title="The newest run", lines=[(4, first_numbers()), (4, second_numbers())]),
            Section(id=200, title="Quality", lines=[(9, _quality()), (9, _measures())]),
            Section(id=300, title="Categories", lines=[(9, _categories())]),
            Section(id=350, title="Single canaries", lines=[(9, canaries())]),
            Section(id=400, title="Detector and alerts", lines=[(9, _detection())]),
            Section(id=450, title="Planted documents", lines=[(8, _plants())]),
            Section(id=470, title="Index", lines=[(8, _index())]),
            Section(id=500, title="Runs and index", lines=[(6, _states()), (8, _runs())]),
        ],
    )


def _quality() -> Panels:
    recall = q.state("coalmine_recall_ratio", *MINE, _CHOSEN[1], by=("check", "k", "level"))
    return [
        (
            lines(
                201,
                "Coverage and first-hit relevance",
                "Both of each run. Where coverage falls and the score stays, expected chunks are gone while something "
                "similar is found. A gap: that run could not measure.",
                over_time(q.state("coalmine_health_score_ratio", *MINE), "first-hit relevance"),
                over_time(q.state("coalmine_coverage_ratio", *MINE), "coverage"),
                unit=RATIO,
            ),
            12,
        ),
        (
            lines(
                202,
                "Recall by id and by passage",
                "Of the chunks expected by id and by text. Passage high while id is low: the documents were re-cut or "
                "re-numbered, not lost; accept the new ids on the canary's page. Only where canaries expect both.",
                over_time(recall, "by {{level}}, k {{k}}"),
                unit=RATIO,
            ).no_value("No canary expects a chunk by id and by text"),
            12,
        ),
    ]


def _measures() -> Panels:
    every = q.named(q.state("coalmine_measure_ratio", *MINE, *_CHOSEN, by=_NAMED))
    table = q.state("coalmine_measure_ratio", *MINE, by=_NAMED)
    return [
        (
            lines(
                203,
                "Measures",
                "The chosen measures at the chosen k: means over the canaries that expect something. Choose others "
                "above. MAP, MRR and duplicate_ratio have no cut: choose all k.",
                over_time(every, "{{name}}"),
                unit=RATIO,
            ),
            14,
        ),
        (
            grid(
                204,
                "All measures of the newest run",
                "A row for each measure, a column for each k it is cut at; MAP and the like look at the whole ranking.",
                rows(q.cut(table)),
                unit=RATIO,
            ).transformations(matrix("measure", "k")),
            10,
        ),
    ]


def _categories() -> Panels:
    labels = ("category", "measure", "k")
    mine = (*MINE, q.among("category", "$category"))
    table = q.among("measure", "coverage|health_score|degraded_share")
    chosen = q.named(q.state("coalmine_category_measure_ratio", *mine, *_CHOSEN, by=labels))
    coverage = q.state("coalmine_category_measure_ratio", *mine, q.has("measure", "coverage"), by=("category",))
    return [
        (
            grid(
                301,
                "Categories now",
                "Coverage, first-hit relevance and share of degraded canaries by category. Negative canaries expect "
                "nothing, so they have no coverage. One category low: look at what it asks for.",
                rows(q.state("coalmine_category_measure_ratio", *mine, table, by=("category", "measure"))),
                unit=RATIO,
            ).transformations(matrix("category", "measure")),
            8,
        ),
        (
            lines(
                302,
                "Coverage by category",
                "Share of the canaries of a category with an expected chunk in the top k.",
                over_time(coverage, "{{category}}"),
                unit=RATIO,
            ),
            8,
        ),
        (
            lines(
                303,
                "Chosen measures by category",
                "The measures chosen above, by category.",
                over_time(chosen, "{{category}} {{name}}"),
                unit=RATIO,
            ),
            8,
        ),
    ]


def _detection() -> Panels:
    evidence = q.state("coalmine_detector_evidence", *MINE, by=("check", "scope"))
    alerts = q.state("coalmine_alerts", *MINE, by=("check", "state", "severity"))
    cosine = q.state("coalmine_embedding_canary_cosine", *MINE, by=("pair", "similar"))
    return [
        (
            lines(
                401,
                "Detector evidence",
                "What the regression detector holds against each part of the suite. It alarms when the average reaches "
                "10,000; below 1 means nothing speaks for a loss. Empty while it warms up, or without such a rule.",
                over_time(evidence, "{{scope}}"),
                unit=COUNT,
            )
            .scale_distribution(logarithmic())
            .decimals(1)
            .no_value("Warming up, or no regression rule"),
            9,
        ),
        (
            paged(
                bars(
                    402,
                    "Alerts",
                    "Alerts of this check by state: pending ones may yet pass, recovering ones wait for good runs.",
                    over_time(alerts, "{{severity}}, {{state}}"),
                ),
                "Open alerts in Coalmine",
                "/alerts?check=${check}",
            ),
            8,
        ),
        (
            lines(
                403,
                "Embedding canaries",
                "Cosine of known pairs of texts as the retriever's embedder answers. Similar pairs that come apart, or "
                "a sudden step of all, mean another model or another version of it.",
                over_time(cosine, "{{pair}} (similar: {{similar}})"),
                unit="none",
            ).no_value("The retriever embeds by itself"),
            7,
        ),
    ]


def _plants() -> Panels:
    problems = q.state("coalmine_plant_problem", *MINE, by=("check", "problem"))
    return [
        (
            paged(
                lines(
                    451,
                    "Until found, and gone",
                    "How long the newest planted document took to be found, and to be gone after its removal. A gap in "
                    "the first: it was not found, so new documents do not reach the index.",
                    over_time(q.state("coalmine_plant_found_seconds", *MINE), "found"),
                    over_time(q.state("coalmine_plant_gone_seconds", *MINE), "gone"),
                    unit=SECONDS,
                ).no_value("The check plants no documents"),
                "Planted documents in Coalmine",
                "/checks/${check}/plants",
            ),
            14,
        ),
        (
            states(
                452,
                "Problems",
                "What was wrong with the newest planted document. Left behind: its removal fails, and is tried again.",
                over_time(problems, "{{problem}}"),
                {"0": ("well", "green"), "1": ("wrong", "red")},
            ).no_value("The check plants no documents"),
            10,
        ),
    ]


def _index() -> Panels:
    facts = q.state("coalmine_index_fact", *MINE, 'fact!="exact_recall"', by=("check", "fact"))
    recall = q.state("coalmine_index_fact", *MINE, q.has("fact", "exact_recall"))
    return [
        (
            paged(
                lines(
                    471,
                    "Facts of the index",
                    "What the store tells: how much the index holds, in how many segments. A step down is a loss, and "
                    "a re-index ends where it began.",
                    over_time(facts, "{{fact}}"),
                    unit="short",
                ).no_value("The retriever tells no facts of its index"),
                "Index in Coalmine",
                "/checks/${check}/facts",
            ),
            14,
        ),
        (
            lines(
                472,
                "Recall against exact search",
                "Share of what an exact search finds that the index returned. Where it falls, the approximate index "
                "misses hits: raise ef_search, nprobe or num_candidates, or rebuild it.",
                over_time(recall, "exact recall"),
                unit=RATIO,
            ).no_value("Nothing is compared with an exact search"),
            10,
        ),
    ]


def _states() -> Panels:
    index = ("index_version",)
    return [
        (
            states(
                501,
                "Verdict",
                "The verdict over time. A gap means that Coalmine or its store did not answer then: unknown, not "
                "healthy.",
                over_time(q.verdict(*MINE), "verdict"),
                VERDICTS,
            ),
            8,
        ),
        (
            states(
                502,
                "Index versions",
                "Which version of the index the newest run saw, a lane each. What degrades with the start of a lane "
                "came with that index.",
                over_time(q.state("coalmine_index_info", *MINE, by=index), "{{index_version}}"),
                {"1": ("in use", "blue")},
            ).no_value("The retriever reports no version of its index"),
            8,
        ),
        (
            states(
                506,
                "Where judgments come from",
                "Self-judged: this retriever itself brought up more than a fifth of what is expected, so its recall is "
                "too high by what it misses. Judge a pool over several retrievers.",
                over_time(q.state("coalmine_recall_self_judged", *MINE, by=("check",)), "recall"),
                {"0": ("judged beyond its own hits", "blue"), "1": ("self-judged", "orange")},
            ),
            8,
        ),
    ]


def _runs() -> Panels:
    canaries = q.state("coalmine_canaries", *MINE, by=("check", "state"))
    age = q.age(q.LAST_RUN, *MINE)
    latency = q.state("coalmine_probe_latency_seconds", *MINE, by=("check", "percentile"))
    return [
        (
            bars(
                503,
                "Canaries of the newest run",
                "Measured, failed (could not be asked) and undefined (expect nothing: no measure speaks of them).",
                over_time(canaries, "{{state}}"),
            ),
            8,
        ),
        (
            lines(
                505,
                "Latency of probes",
                "Half, 95 % and all of the measured probes of a run took no longer. A rule of kind latency alerts.",
                over_time(latency, "{{percentile}}"),
                unit=SECONDS,
            ),
            8,
        ),
        (
            lines(
                504,
                "Age of the last run",
                "A saw whose teeth are as high as the interval. Higher: runs are late or missing, for instance because "
                "no worker runs.",
                over_time(age, "since the last run"),
                over_time(q.state(q.INTERVAL, *MINE), "interval"),
                unit=SECONDS,
            ),
            8,
        ),
    ]
