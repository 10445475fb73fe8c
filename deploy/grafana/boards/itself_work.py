"""What Coalmine does: runs, probes, and news it brings out."""

from grafana_foundation_sdk.builders import table

from deploy.grafana import queries as q
from deploy.grafana.frame import Panels
from deploy.grafana.panels import (
    ANY_IS_A_WARNING,
    ANY_IS_BAD,
    BAD,
    COALMINE,
    COUNT,
    GOOD,
    ODD,
    PLAIN,
    SECONDS,
    bars,
    buckets,
    coloured,
    grid,
    heat,
    in_colour,
    lines,
    mapped,
    merged,
    over_time,
    rows,
    setting,
)


def runs() -> Panels:
    """Show how runs and probes ended."""
    return [
        (
            bars(
                301,
                "Runs by verdict",
                "Runs that ended, by their verdict, all replicas together. Many unknown ones: retrievers fail.",
                over_time(q.increase("coalmine_runs_total", q.JOB, by=("outcome",)), "{{outcome}}"),
            )
            .override_by_name("healthy", in_colour(GOOD))
            .override_by_name("degraded", in_colour(BAD))
            .override_by_name("unknown", in_colour(ODD)),
            12,
        ),
        (
            bars(
                302,
                "Probes by outcome",
                "Probes of ended runs. Timeout and unreachable: the network or a retriever that is down; refused: a "
                "key or a limit; malformed: the answer or the mapping changed; blocked: the address is not allowed.",
                over_time(q.increase("coalmine_probes_total", q.JOB, by=("outcome",)), "{{outcome}}"),
            ).override_by_name("ok", in_colour(GOOD)),
            12,
        ),
    ]


def durations() -> Panels:
    """Show how long runs took."""
    run = "coalmine_run_duration_seconds"
    return [
        (
            heat(
                303,
                "Duration of runs",
                "From the start to the verdict. Dots are single runs: click one to open it in Coalmine.",
                buckets(q.increase(f"{run}_bucket", q.JOB, by=("le",))),
            ),
            12,
        ),
        (
            lines(
                304,
                "Duration of runs, quantiles",
                "Half and 95 % of runs took no longer. Near the interval of a check, runs begin to be skipped.",
                over_time(q.quantile(0.5, run, q.JOB), "median", exemplars=True),
                over_time(q.quantile(0.95, run, q.JOB), "95 %", exemplars=True),
                unit=SECONDS,
            ),
            12,
        ),
    ]


def probes() -> Panels:
    """Show how long probes took."""
    probe = "coalmine_probe_duration_seconds"
    return [
        (
            heat(
                305,
                "Duration of probes",
                "How long answered probes took, of all retrievers. Dots are single probes: click one to open its run.",
                buckets(q.increase(f"{probe}_bucket", q.JOB, by=("le",))),
            ),
            12,
        ),
        (
            lines(
                306,
                "Duration of probes, quantiles",
                "Half, 95 % and 99 % of answered probes took no longer. A rule of kind latency can watch one check.",
                over_time(q.quantile(0.5, probe, q.JOB), "median", exemplars=True),
                over_time(q.quantile(0.95, probe, q.JOB), "95 %", exemplars=True),
                over_time(q.quantile(0.99, probe, q.JOB), "99 %", exemplars=True),
                unit=SECONDS,
            ),
            12,
        ),
    ]


def outbox() -> Panels:
    """Show what is not delivered yet."""
    return [
        (
            lines(
                501,
                "Outbox",
                "Notifications that are not delivered yet. They are kept over restarts.",
                over_time(q.state("coalmine_outbox_pending", q.JOB, by=()), "pending"),
                unit=COUNT,
            ),
            12,
        ),
        (
            lines(
                502,
                "Age of the oldest notification",
                "A slope that does not end means a hook that never answers well, or that no worker runs.",
                over_time(q.state("coalmine_outbox_oldest_seconds", q.JOB, by=()), "oldest"),
                unit=SECONDS,
            ),
            12,
        ),
    ]


def deliveries() -> Panels:
    """Show what hooks took and what they refused."""
    delivered, failed = "coalmine_deliveries_total", "coalmine_delivery_failures_total"
    return [
        (
            bars(
                503,
                "Deliveries by hook",
                "Received by hooks. The first one of a hook after a restart is in the table only: a counter that "
                "begins has not grown yet.",
                over_time(q.increase(delivered, q.JOB, by=("hook",)), "{{hook}}"),
            ).no_value("No notifications since the start"),
            8,
        ),
        (
            bars(
                504,
                "Failed attempts by hook and reason",
                "Each is repeated for a day, with growing pauses. Coalmine's page of deliveries shows every attempt "
                "and lets you replay.",
                over_time(q.increase(failed, q.JOB, by=("hook", "reason")), "{{hook}}: {{reason}}"),
            ).no_value("No failure since the start"),
            8,
        ),
        (
            _hooks(delivered, failed),
            8,
        ),
    ]


def _hooks(delivered: str, failed: str) -> table.Panel:
    hook = ("hook",)
    columns = {
        "hook": "Hook",
        "Value #A": "State",
        "Value #B": "Retrying",
        "Value #C": "Dead",
        "Value #D": "Delivered",
        "Value #E": "Failed attempts",
    }
    panel = grid(
        505,
        "Hooks",
        "What each hook owes and did. Disabled: its receiver said that it is gone; enable it on Coalmine's page of "
        "hooks. Delivered and failed attempts count since running replicas were started.",
        rows(q.state("coalmine_hook_disabled", q.JOB, by=hook)),
        rows(q.state("coalmine_deliveries_retrying", q.JOB, by=hook)),
        rows(q.state("coalmine_deliveries_dead", q.JOB, by=hook)),
        rows(f"sum by (hook) ({q.series(delivered, q.JOB)})"),
        rows(f"sum by (hook) ({q.series(failed, q.JOB)})"),
        empty="none",
    )
    page = {
        "title": "Open the hook in Coalmine",
        "url": f"{COALMINE}/hooks/${{__data.fields.Hook}}",
        "targetBlank": True,
    }
    disabled = setting("mappings", mapped({"0": ("enabled", GOOD), "1": ("disabled", BAD)}))
    return (
        panel.transformations(merged(columns))
        .override_by_name("Hook", [setting("links", [page])])
        .override_by_name("State", [disabled, setting("noValue", "unknown"), *coloured(PLAIN)])
        .override_by_name("Retrying", coloured(ANY_IS_A_WARNING))
        .override_by_name("Dead", coloured(ANY_IS_BAD))
    )
