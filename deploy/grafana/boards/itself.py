"""Coalmine itself: whether it runs, sees its store, keeps its schedule and gets its news out."""

from deploy.grafana import queries as q
from deploy.grafana.boards.itself_work import deliveries, durations, outbox, probes, runs
from deploy.grafana.frame import Board, Panels, Section, marks, sources
from deploy.grafana.panels import (
    ANY_IS_A_WARNING,
    BAD,
    COUNT,
    GOOD,
    NEUTRAL,
    RATIO,
    SECONDS,
    WARN,
    bars,
    coloured,
    grid,
    lines,
    linked,
    logarithmic,
    mapped,
    merged,
    now,
    number,
    over_time,
    rows,
    setting,
    states,
    words,
)

MINE = (q.JOB,)
_SHOWN = "$__range"
_READ = {"0": ("cannot read", BAD), "1": ("reads", GOOD)}
_APPLIED = {"0": ("old ones in force", BAD), "1": ("applied", GOOD)}
_UP = ((None, NEUTRAL), (0.0, BAD), (1.0, GOOD))
_WAIT = ((None, NEUTRAL), (0.0, GOOD), (300.0, WARN), (3600.0, BAD))


def board() -> Board:
    """Describe the board."""
    return Board(
        uid="coalmine-itself",
        title="Coalmine / Itself",
        description="Replicas, store, runs, probes, scheduler, outbox and hooks of Coalmine: who watches the watcher.",
        since="now-6h",
        page=("Open Coalmine", "/"),
        variables=sources(),
        annotations=marks(*MINE),
        sections=[
            Section(id=100, title="Is it well?", lines=[(4, _health()), (4, _work())]),
            Section(id=200, title="Replicas", lines=[(7, _replicas()), (7, _scrapes())]),
            Section(id=300, title="Runs and probes", lines=[(8, runs()), (8, durations()), (8, probes())]),
            Section(id=400, title="Scheduler", lines=[(8, _scheduler())]),
            Section(id=500, title="News", lines=[(8, outbox()), (8, deliveries())]),
            Section(id=600, title="Detectors and embedders", lines=[(8, _detectors())]),
        ],
    )


def _health() -> Panels:
    last = "coalmine_last_run_timestamp_seconds"
    apart = f"{q.state(last, *MINE)} - min by ({', '.join(q.CHECK)}) ({q.series(last, *MINE)})"
    return [
        (
            number(
                101,
                "Replicas up",
                "Replicas that Prometheus can scrape. None: nobody watches, and everything else here is old or empty.",
                now(f"sum({q.series('up', q.JOB)})"),
                steps=_UP,
                empty="Unknown: not scraped",
            ),
            4,
        ),
        (
            number(
                102,
                "Store",
                "Whether every replica can read the database. Where one cannot, runs wait and states are unknown; see "
                "/readyz and the database's own log.",
                now(f"min({q.series('coalmine_store_up', q.JOB)})"),
                unit="string",
                steps=_UP,
                texts=_READ,
                empty="Unknown: not scraped",
            ),
            4,
        ),
        (
            number(
                103,
                "Canary files",
                "Whether every replica could apply the canary files when it last read them. Otherwise the old ones "
                "stay in force: run coalmine validate on the files, it says file and line.",
                now(f"min({q.series('coalmine_config_last_reload_successful', q.JOB)})"),
                unit="string",
                steps=_UP,
                texts=_APPLIED,
                empty="Unknown: not scraped",
            ),
            4,
        ),
        (
            words(
                104,
                "Version",
                "What runs. Two versions side by side are normal during a rolling upgrade only.",
                now(f"count by (version) ({q.series('coalmine_build_info', q.JOB)})", "{{version}}"),
                empty="Unknown: not scraped",
            ),
            4,
        ),
        (
            number(
                105,
                "Scheduler lag",
                "How late the last tick of the latest replica queued its run. Minutes mean that replicas are "
                "overloaded, stopped for a while, or their clocks differ.",
                now(f"max({q.series('coalmine_scheduler_lag_seconds', q.JOB)})"),
                unit=SECONDS,
                steps=_WAIT,
                empty="Unknown: not scraped",
            ),
            4,
        ),
        (
            number(
                106,
                "Replicas disagree",
                "Checks of which one replica knows a run that another has not heard of for a minute. Does each reach "
                "the same database?",
                now(f"sum({apart} > bool 60)"),
                steps=ANY_IS_A_WARNING,
                empty="Unknown: no run yet, or no state",
            ),
            4,
        ),
    ]


def _work() -> Panels:
    failed = q.increase("coalmine_delivery_failures_total", q.JOB, over=_SHOWN)
    lost = q.increase("coalmine_probes_total", q.JOB, 'outcome!="ok"', over=_SHOWN)
    return [
        (
            number(
                111,
                "Runs",
                "Runs that ended in the time shown, all replicas together.",
                now(q.increase("coalmine_runs_total", q.JOB, over=_SHOWN)),
                empty="Unknown: not scraped",
            ),
            4,
        ),
        (
            number(
                112,
                "Failed probes",
                "Share of the probes of the time shown that brought no measurement. Which retriever it is stands on "
                "the overview.",
                now(f"{lost} / {q.increase('coalmine_probes_total', q.JOB, over=_SHOWN)}"),
                unit=RATIO,
                steps=((None, NEUTRAL), (0.0, GOOD), (0.01, WARN), (0.5, BAD)),
                empty="No probes in this time",
            ),
            4,
        ),
        (
            number(
                113,
                "Outbox",
                "News that is not delivered yet. It should be empty within seconds; deliveries that fail are tried "
                "again for a day.",
                now(q.state("coalmine_outbox_pending", q.JOB, by=())),
                steps=ANY_IS_A_WARNING,
            ),
            4,
        ),
        (
            number(
                114,
                "Oldest news",
                "Age of the oldest undelivered news. Old news mean a hook that fails (see below) or no running worker.",
                now(q.state("coalmine_outbox_oldest_seconds", q.JOB, by=())),
                unit=SECONDS,
                steps=_WAIT,
            ),
            4,
        ),
        (
            number(
                115,
                "Failed attempts",
                "Attempts to deliver that failed in the time shown. They are repeated, so news may still have arrived.",
                # Hooks have no series before their first failure: none is zero, as long as somebody answers.
                now(f"{failed} or 0 * min({q.series('coalmine_store_up', q.JOB)})"),
                steps=ANY_IS_A_WARNING,
                empty="Unknown: not scraped",
            ),
            4,
        ),
        (
            number(
                116,
                "Checks",
                "Enabled checks.",
                now(f"count({q.known(MINE)})"),
            ),
            4,
        ),
    ]


def _replicas() -> Panels:
    columns = {
        "instance": "Replica",
        "version": "Version",
        "Value #B": "Store",
        "Value #C": "Canary files",
        "Value #D": "Scheduler lag",
        "Value #E": "Series",
        "Value #A": "",
    }
    table = grid(
        201,
        "Replicas",
        "One row for each replica. States of checks are the same on all; what is here is each one's own.",
        rows(f"max by (instance, version) ({q.series('coalmine_build_info', q.JOB)})"),
        rows(f"min by (instance) ({q.series('coalmine_store_up', q.JOB)})"),
        rows(f"min by (instance) ({q.series('coalmine_config_last_reload_successful', q.JOB)})"),
        rows(f"max by (instance) ({q.series('coalmine_scheduler_lag_seconds', q.JOB)})"),
        rows(f"max by (instance) ({q.series('scrape_samples_scraped', q.JOB)})"),
        empty="unknown",
    )
    return [
        (
            table.transformations(merged(columns))
            .override_by_name("Store", [setting("mappings", mapped(_READ)), *coloured(_UP)])
            .override_by_name("Canary files", [setting("mappings", mapped(_APPLIED)), *coloured(_UP)])
            .override_by_name("Scheduler lag", [setting("unit", SECONDS), *coloured(_WAIT)]),
            12,
        ),
        (
            states(
                202,
                "Store as each replica sees it",
                "A replica that cannot read the store exports no states. All at once: the database. One: its network.",
                over_time(f"min by (instance) ({q.series('coalmine_store_up', q.JOB)})", "{{instance}}"),
                _READ,
            ),
            12,
        ),
    ]


def _scrapes() -> Panels:
    return [
        (
            lines(
                203,
                "Series of each replica",
                "How many series a replica exports: it grows with checks, measures and categories, not with canaries. "
                "It falls to a few dozen while the store cannot be read.",
                over_time(f"max by (instance) ({q.series('scrape_samples_scraped', q.JOB)})", "{{instance}}"),
                unit=COUNT,
            ),
            12,
        ),
        (
            lines(
                204,
                "Duration of scrapes",
                "A scrape never asks the store, so it stays fast when the store is slow.",
                over_time(f"max by (instance) ({q.series('scrape_duration_seconds', q.JOB)})", "{{instance}}"),
                unit=SECONDS,
            ),
            12,
        ),
    ]


def _scheduler() -> Panels:
    late = q.age("coalmine_last_run_timestamp_seconds", q.JOB)
    interval = q.state(q.INTERVAL, q.JOB)
    return [
        (
            lines(
                401,
                "Scheduler lag",
                "How late the last tick of each replica queued its run. A check that starts anew counts from the "
                "instant it should have run.",
                over_time(f"max by (instance) ({q.series('coalmine_scheduler_lag_seconds', q.JOB)})", "{{instance}}"),
                unit=SECONDS,
            ),
            12,
        ),
        (
            linked(
                lines(
                    402,
                    "Age of last runs, in intervals",
                    "Up to 1 is on time; above 2 a check is overdue: no worker runs, or its runs take too long.",
                    over_time(f"({late}) / {interval}", "{{check}}"),
                    unit="none",
                )
            ),
            12,
        ),
    ]


def _detectors() -> Panels:
    pair = (*q.CHECK, "pair", "similar")
    average = q.state("coalmine_detector_evidence", q.JOB, q.has("scope", "average"))
    cosine = q.state("coalmine_embedding_canary_cosine", q.JOB, by=pair)
    return [
        (
            linked(
                lines(
                    601,
                    "Detector evidence",
                    "What the regression detector of each check holds against it, on average; it alarms at 10,000. A "
                    "check without a line warms up (20 identical or 300 runs) or has no such rule.",
                    over_time(average, "{{check}}"),
                    unit=COUNT,
                )
                .scale_distribution(logarithmic())
                .decimals(1)
                .no_value("All warm up, or none has a regression rule")
            ),
            8,
        ),
        (
            linked(
                lines(
                    602,
                    "Embedding canaries",
                    "Cosine of known pairs of texts as embedders answer. A step means another model.",
                    over_time(cosine, "{{check}}: {{pair}} (similar: {{similar}})"),
                    unit="none",
                ).no_value("All retrievers embed by themselves")
            ),
            8,
        ),
        (
            bars(
                603,
                "Embedders asked",
                "How often embedders were asked for known texts, by outcome.",
                over_time(q.increase("coalmine_embedding_canaries_total", q.JOB, by=("outcome",)), "{{outcome}}"),
            ),
            8,
        ),
    ]
