"""Coalmine itself in numbers: whether it is well, what waits, and what it did in the time shown."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders import stat

from deploy.grafana import queries as q
from deploy.grafana.frame import Panels
from deploy.grafana.panels import (
    ANY_IS_A_WARNING,
    ANY_IS_BAD,
    BAD,
    GOOD,
    NEUTRAL,
    RATIO,
    SECONDS,
    WARN,
    now,
    number,
    paged,
    words,
)

READ = {"0": ("cannot read", BAD), "1": ("reads", GOOD)}
APPLIED = {"0": ("old ones in force", BAD), "1": ("applied", GOOD)}
WORKS = {"0": ("only serves", NEUTRAL), "1": ("works", GOOD)}
UP = ((None, NEUTRAL), (0.0, BAD), (1.0, GOOD))
WAIT = ((None, NEUTRAL), (0.0, GOOD), (300.0, WARN), (3600.0, BAD))
_NOT_SCRAPED = "Unknown: not scraped"


def health() -> Panels:
    """Show whether replicas run, agree and reach what they need."""
    return [
        (
            number(
                101,
                "Replicas up",
                "Replicas that Prometheus can scrape. None: nobody watches, and everything else here is old or empty.",
                now(f"sum({q.series('up', q.JOB)})"),
                steps=UP,
                empty=_NOT_SCRAPED,
            ),
            3,
        ),
        (
            number(
                107,
                "Workers",
                "Replicas that run checks and send notifications. None: checks grow stale and notifications wait.",
                now(f"sum({q.series('coalmine_worker_up', q.JOB)})"),
                steps=UP,
                empty=_NOT_SCRAPED,
            ),
            3,
        ),
        _everywhere(
            102,
            "Store",
            "Whether every replica can read the database. Where one cannot, runs wait and states are unknown; see "
            "/readyz and the database's own log.",
            "coalmine_store_up",
            READ,
        ),
        _everywhere(
            103,
            "Canary files",
            "Whether every replica could apply the canary files when it last read them. Otherwise the old ones stay "
            "in force: run coalmine validate on the files, it says file and line.",
            "coalmine_config_last_reload_successful",
            APPLIED,
        ),
        (
            number(
                108,
                "Configurations in force",
                "1 where all replicas apply the same canary files with the same settings. More: one was not restarted "
                "or reloaded; the table of replicas shows which.",
                now(f"count(count by (hash) ({q.series('coalmine_config_info', q.JOB)}))"),
                steps=((None, NEUTRAL), (1.0, GOOD), (2.0, WARN)),
                empty=_NOT_SCRAPED,
            ),
            4,
        ),
        (_disagreeing(), 3),
        (
            words(
                104,
                "Version",
                "What runs. Two versions side by side are normal during a rolling upgrade only.",
                now(f"count by (version) ({q.series('coalmine_build_info', q.JOB)})", "{{version}}"),
                empty=_NOT_SCRAPED,
            ),
            3,
        ),
    ]


def _everywhere(
    id_: int, title: str, description: str, metric: str, texts: Mapping[str, tuple[str, str]]
) -> tuple[stat.Panel, int]:
    worst = now(f"min({q.series(metric, q.JOB)})")
    return number(id_, title, description, worst, unit="string", steps=UP, texts=texts, empty=_NOT_SCRAPED), 4


def _disagreeing() -> stat.Panel:
    apart = f"{q.state(q.LAST_RUN, q.JOB)} - min by ({', '.join(q.CHECK)}) ({q.series(q.LAST_RUN, q.JOB)})"
    return number(
        106,
        "Replicas disagree",
        "Checks of which one replica knows a run that another has not heard of for a minute. See whether all of "
        "them reach the same database.",
        now(f"sum({apart} > bool 60)"),
        steps=ANY_IS_A_WARNING,
        empty="Unknown: no run yet, or no state",
    )


def waiting() -> Panels:
    """Show what is due and not done."""
    return [
        (
            number(
                105,
                "Scheduler lag",
                "How late the last tick of the latest replica queued its run. Minutes mean that replicas are "
                "overloaded, stopped for a while, or their clocks differ.",
                now(f"max({q.series('coalmine_scheduler_lag_seconds', q.JOB)})"),
                unit=SECONDS,
                steps=WAIT,
                empty=_NOT_SCRAPED,
            ),
            4,
        ),
        (
            number(
                117,
                "Runs waiting",
                "Runs that are due and could begin. Some at the full hour are normal; many for long mean too few "
                "workers.",
                now(q.state("coalmine_runs_waiting", q.JOB, by=())),
            ),
            4,
        ),
        (
            number(
                118,
                "Longest wait of a run",
                "How long the oldest run that could begin has been due. Minutes: no worker works, or all are busy.",
                now(q.state("coalmine_runs_waiting_oldest_seconds", q.JOB, by=())),
                unit=SECONDS,
                steps=WAIT,
            ),
            4,
        ),
        (
            paged(
                number(
                    113,
                    "Outbox",
                    "Notifications not delivered yet. Empty within seconds if all is well; what fails is tried "
                    "again for a day.",
                    now(q.state("coalmine_outbox_pending", q.JOB, by=())),
                    steps=ANY_IS_A_WARNING,
                ),
                "Open deliveries in Coalmine",
                "/deliveries?state=pending",
            ),
            4,
        ),
        (
            paged(
                number(
                    114,
                    "Oldest notification",
                    "Age of the oldest undelivered notification. If old: a hook fails (see below), or no worker runs.",
                    now(q.state("coalmine_outbox_oldest_seconds", q.JOB, by=())),
                    unit=SECONDS,
                    steps=WAIT,
                ),
                "Open deliveries in Coalmine",
                "/deliveries?state=pending",
            ),
            4,
        ),
        (
            paged(
                number(
                    119,
                    "Dead letters",
                    "Deliveries given up after a day or refused for good. Coalmine's page of deliveries shows each and "
                    "can replay it.",
                    now(f"sum({q.state('coalmine_deliveries_dead', q.JOB, by=('hook',))})"),
                    steps=ANY_IS_BAD,
                    empty="No hooks, or no state",
                ),
                "Open deliveries in Coalmine",
                "/deliveries?state=dead",
            ),
            4,
        ),
    ]


def shown() -> Panels:
    """Show what all replicas did in the time shown."""
    over = "$__range"
    failed = q.increase("coalmine_delivery_failures_total", q.JOB, over=over)
    lost = q.increase("coalmine_probes_total", q.JOB, 'outcome!="ok"', over=over)
    unknown = q.increase("coalmine_runs_total", q.JOB, q.has("outcome", "unknown"), over=over)
    return [
        (number(116, "Checks", "Enabled checks.", now(f"count({q.known((q.JOB,))})")), 4),
        (
            number(
                111,
                "Runs",
                "Runs that ended in the time shown, all replicas together.",
                now(q.increase("coalmine_runs_total", q.JOB, over=over)),
                empty=_NOT_SCRAPED,
            ).decimals(0),
            5,
        ),
        (
            number(
                120,
                "Unknown runs",
                "Runs of the time shown that could not be judged: retrievers failed.",
                now(unknown),
                steps=ANY_IS_A_WARNING,
                empty=_NOT_SCRAPED,
            ).decimals(0),
            5,
        ),
        (
            number(
                112,
                "Failed probes",
                "Share of the probes of the time shown that brought no measurement. Which retriever it is stands on "
                "the overview.",
                now(f"{lost} / ({q.increase('coalmine_probes_total', q.JOB, over=over)} > 0)"),
                unit=RATIO,
                steps=((None, NEUTRAL), (0.0, GOOD), (0.01, WARN), (0.5, BAD)),
                empty="No probes in this time",
            ),
            5,
        ),
        (
            paged(
                number(
                    115,
                    "Failed attempts",
                    "Attempts to deliver that failed in the time shown. They are repeated, so all may have arrived.",
                    # Hooks have no series before their first failure: none is zero, as long as somebody answers.
                    now(f"{failed} or 0 * min({q.series('coalmine_store_up', q.JOB)})"),
                    steps=ANY_IS_A_WARNING,
                    empty=_NOT_SCRAPED,
                ).decimals(0),
                "Open deliveries in Coalmine",
                "/deliveries",
            ),
            5,
        ),
    ]
