"""PromQL as the boards write it: which series belong to a board, and how replicas are counted once.

State series are the same on every replica, so they are taken with `max by`; counters are each replica's own, so
they are added with `sum by`; a gauge of a process is shown per instance or as the worst of all.
"""

CHECK = ("check", "suite", "retriever")
"""The labels of a check in state series.

While replicas have not all heard that a check moved to another suite or retriever, it has two sets of them. So checks
are counted, and series with other labels joined, by `ONE_CHECK`.
"""
ONE_CHECK = ("check",)

JOB = 'job="$job"'
RANGE = "$__rate_interval"
INTERVAL = "coalmine_check_interval_seconds"
"""The state series that every enabled check has, whether it ever ran or not."""
LAST_RUN = "coalmine_last_run_timestamp_seconds"
OPEN = 'state=~"firing|recovering"'
"""Alerts that were announced and are not resolved."""

HEALTHY, DEGRADED, UNKNOWN, OVERDUE = 1, 2, 3, 4
"""The codes of `verdict`."""


def state(metric: str, *matchers: str, by: tuple[str, ...] = CHECK) -> str:
    """Select a state series once, whatever the number of replicas; the worst where they differ for a moment."""
    return f"max by ({', '.join(by)}) ({series(metric, *matchers)})"


def increase(metric: str, *matchers: str, by: tuple[str, ...] = (), over: str = RANGE) -> str:
    """Count what all replicas together did in each step, or in all the time shown (`$__range`)."""
    return f"sum{_by(by)} (increase({series(metric, *matchers)}[{over}]))"


def quantile(share: float, metric: str, *matchers: str) -> str:
    """Give a quantile of a histogram over all replicas."""
    return f"histogram_quantile({share}, sum by (le) (rate({series(f'{metric}_bucket', *matchers)}[{RANGE}])))"


def verdict(*matchers: str, by: tuple[str, ...] = CHECK) -> str:
    """Give the verdict of the newest run of checks as a code; `OVERDUE` where it was healthy, but long ago."""
    one, two, three = (
        series("coalmine_verdict", *matchers, has("verdict", name)) for name in ("healthy", "degraded", "unknown")
    )
    newest = f"max by ({', '.join(by)}) ({one} or {DEGRADED} * {two} or {UNKNOWN} * {three})"
    late = f"{age(LAST_RUN, *matchers, by=by)} > 2 * {state(INTERVAL, *matchers, by=by)}"
    return f"({OVERDUE} * ({newest} == {HEALTHY}) and on (check) ({late}) or {newest})"


def open_alerts(matchers: tuple[str, ...], *more: str, by: tuple[str, ...] = ONE_CHECK) -> str:
    """Count the open alerts of the checks these matchers select, by check; 0 where there is none."""
    alerts = state("coalmine_alerts", JOB, OPEN, *more, by=("check", "state", "severity"))
    return f"{known(matchers, by=by)} * on (check) group_left () sum by (check) ({alerts})"


def known(matchers: tuple[str, ...], *, by: tuple[str, ...] = ONE_CHECK, ago: str = "") -> str:
    """Give 1 for each check these matchers select, whether it ever ran or not; with `ago`, if it was there then."""
    return f"group by ({', '.join(by)}) ({series(INTERVAL, *matchers)}{ago and f' offset {ago}'})"


def age(metric: str, *matchers: str, by: tuple[str, ...] = CHECK) -> str:
    """Give the seconds that passed since the time a state series tells."""
    return f"time() - {state(metric, *matchers, by=by)}"


def overdue(*matchers: str, by: tuple[str, ...] = CHECK) -> str:
    """Tell of each check whether it is overdue, 1 or 0, as the alert CoalmineCheckStale sees it.

    One that ran is after two intervals. The first run begins when a check is defined, so one that never ran is after a
    quarter of an hour; until then nothing is said of it.
    """
    missed = f"{age(LAST_RUN, *matchers, by=by)} > bool 2 * {state(INTERVAL, *matchers, by=by)}"
    there, ran = f"{known(matchers, by=by)} and on (check) {known(matchers, ago='15m')}", state(LAST_RUN, *matchers)
    return f"{missed} or {there} unless on (check) {ran}"


def new_index_version(*matchers: str) -> str:
    """Select the index versions that were not there a step ago, of checks that had another one then.

    Neither a scrape that was missed nor a store that comes back is taken for a change: what was there for a moment of
    the last `$__rate_interval` was there. A version that changed in a longer silence is missed.
    """
    labels = (*ONE_CHECK, "index_version")  # a check that moves to another suite sees no other index by that
    now = state("coalmine_index_info", *matchers, by=labels)
    before = f"max_over_time({series('coalmine_index_info', *matchers)}[{RANGE}] offset $__interval)"
    return f"{now} unless max by ({', '.join(labels)}) ({before}) and on (check) max by (check) ({before})"


def named(expression: str) -> str:
    """Add the label `name`, the measure as papers write it: `NDCG@10`, or `MAP` where nothing is cut."""
    return f'label_replace(label_join({expression}, "name", "@", "measure", "k"), "name", "$1", "name", "(.*)@")'


def cut(expression: str) -> str:
    """Say in the label `k` of measures that are not cut that they look at the whole ranking."""
    return f'label_replace({expression}, "k", "whole ranking", "k", "")'


def column(expression: str) -> str:
    """Add the label `column`: retriever and check, for a table with one column for each."""
    return f'label_join({expression}, "column", " / ", "retriever", "check")'


def has(label: str, value: str) -> str:
    """Match one value of a label."""
    return f'{label}="{value}"'


def among(label: str, pattern: str) -> str:
    """Match the values of a label that a pattern tells."""
    return f'{label}=~"{pattern}"'


def series(metric: str, *matchers: str) -> str:
    """Select series."""
    return f"{metric}{{{', '.join(matchers)}}}"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
