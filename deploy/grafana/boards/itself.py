"""Coalmine itself: whether it runs, sees its store, keeps its schedule and gets its news out."""

from deploy.grafana import queries as q
from deploy.grafana.boards.itself_numbers import APPLIED, READ, UP, WAIT, WORKS, health, shown, waiting
from deploy.grafana.boards.itself_work import deliveries, durations, outbox, probes, runs
from deploy.grafana.frame import Board, Panels, Section, marks, sources
from deploy.grafana.panels import (
    COUNT,
    MOMENT,
    PLAIN,
    SECONDS,
    bars,
    coloured,
    grid,
    lines,
    linked,
    logarithmic,
    mapped,
    merged,
    over_time,
    rows,
    setting,
    states,
)

MINE = (q.JOB,)


def board() -> Board:
    """Describe the board."""
    return Board(
        uid="coalmine-itself",
        title="Coalmine / Service",
        description="Replicas, store, runs, probes, scheduler, outbox and hooks of Coalmine: who watches the watcher.",
        since="now-6h",
        page=("Open Coalmine", "/"),
        variables=sources(),
        annotations=marks(*MINE),
        sections=[
            Section(id=100, title="Health", lines=[(4, health()), (4, waiting()), (4, shown())]),
            Section(id=200, title="Replicas", lines=[(7, _replicas()), (7, _scrapes())], folded=True),
            Section(id=300, title="Runs and probes", lines=[(8, runs()), (8, durations()), (8, probes())], folded=True),
            Section(id=400, title="Scheduler", lines=[(8, _scheduler())], folded=True),
            Section(id=500, title="Notifications", lines=[(8, outbox()), (8, deliveries())], folded=True),
            Section(id=600, title="Detectors and embedders", lines=[(8, _detectors())], folded=True),
            Section(id=700, title="Traces", lines=[(8, _traces())], folded=True),
        ],
    )


def _replicas() -> Panels:
    applied = "coalmine_config_last_reload_success_timestamp_seconds"
    columns = {
        "instance": "Replica",
        "version": "Version",
        "Value #B": "Store",
        "Value #C": "Worker",
        "Value #D": "Canary files",
        "hash": "Configuration",
        "Value #F": "Applied",
        "Value #G": "Scheduler lag",
        "Value #H": "Series",
        "Value #A": "",
        "Value #E": "",
    }
    table = grid(
        201,
        "Replicas",
        "One row for each replica. States of checks are the same on all; what is here is each one's own. Replicas with "
        "another configuration than the rest read other canary files or have other settings.",
        rows(f"max by (instance, version) ({q.series('coalmine_build_info', q.JOB)})"),
        rows(f"min by (instance) ({q.series('coalmine_store_up', q.JOB)})"),
        rows(f"min by (instance) ({q.series('coalmine_worker_up', q.JOB)})"),
        rows(f"min by (instance) ({q.series('coalmine_config_last_reload_successful', q.JOB)})"),
        rows(f"max by (instance, hash) ({q.series('coalmine_config_info', q.JOB)})"),
        rows(f"1000 * max by (instance) ({q.series(applied, q.JOB)})"),
        rows(f"max by (instance) ({q.series('coalmine_scheduler_lag_seconds', q.JOB)})"),
        rows(f"max by (instance) ({q.series('scrape_samples_scraped', q.JOB)})"),
        empty="unknown",
    )
    return [
        (
            table.transformations(merged(columns))
            .override_by_name("Store", [setting("mappings", mapped(READ)), *coloured(UP)])
            .override_by_name("Canary files", [setting("mappings", mapped(APPLIED)), *coloured(UP)])
            .override_by_name("Worker", [setting("mappings", mapped(WORKS)), *coloured(PLAIN)])
            .override_by_name("Applied", [setting("unit", MOMENT)])
            .override_by_name("Scheduler lag", [setting("unit", SECONDS), *coloured(WAIT)]),
            15,
        ),
        (
            states(
                202,
                "Store as each replica sees it",
                "A replica that cannot read the store exports no states. All at once: the database. One: its network.",
                over_time(f"min by (instance) ({q.series('coalmine_store_up', q.JOB)})", "{{instance}}"),
                READ,
            ),
            9,
        ),
    ]


def _scrapes() -> Panels:
    issues = f"max by (issue) ({q.series('coalmine_self_issue', q.JOB)})"
    return [
        (
            bars(
                205,
                "Issues of its own",
                "Something wrong with Coalmine itself, on one replica or more: its clock was set, its heartbeat fails, "
                "due runs wait for a worker, descriptors or memory are out, or the database takes no writes.",
                over_time(issues, "{{issue}}"),
            ),
            8,
        ),
        (
            lines(
                203,
                "Series of each replica",
                "How many series a replica exports: it grows with checks, measures and categories, not with canaries. "
                "It falls to a few dozen while the store cannot be read.",
                over_time(f"max by (instance) ({q.series('scrape_samples_scraped', q.JOB)})", "{{instance}}"),
                unit=COUNT,
            ),
            8,
        ),
        (
            lines(
                204,
                "Duration of scrapes",
                "A scrape never asks the store, so it stays fast when the store is slow.",
                over_time(f"max by (instance) ({q.series('scrape_duration_seconds', q.JOB)})", "{{instance}}"),
                unit=SECONDS,
            ),
            8,
        ),
    ]


def _scheduler() -> Panels:
    waiting_seconds = q.state("coalmine_runs_waiting_oldest_seconds", q.JOB, by=())
    job_seconds = q.state("coalmine_jobs_waiting_oldest_seconds", q.JOB, by=())
    late = q.age(q.LAST_RUN, q.JOB)
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
            8,
        ),
        (
            lines(
                403,
                "Waiting of the oldest run and job",
                "How long the oldest run that could begin has been due, and on PostgreSQL the oldest job of any kind. "
                "A slope: no worker works, or all are busy.",
                over_time(waiting_seconds, "oldest run"),
                over_time(job_seconds, "oldest job"),
                unit=SECONDS,
            ),
            8,
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
            8,
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


def _traces() -> Panels:
    return [
        (
            bars(
                701,
                "Spans received",
                "Spans that exporters sent, by outcome: retrievals whose query counts, those that do not, all others.",
                over_time(q.increase("coalmine_trace_spans_total", q.JOB, by=("outcome",)), "{{outcome}}"),
            ),
            24,
        ),
    ]
