"""The newest run of a check in numbers."""

from grafana_foundation_sdk.models import common as c

from deploy.grafana import queries as q
from deploy.grafana.frame import Panels
from deploy.grafana.panels import (
    ANY_IS_A_WARNING,
    ANY_IS_BAD,
    BETTER_HIGH,
    MOMENT,
    NOT_MEASURED,
    RATIO,
    SECONDS,
    VERDICTS,
    now,
    number,
    paged,
    words,
)

MINE = (q.JOB, q.has("check", "$check"))


def first_numbers() -> Panels:
    """Show how good it was."""
    score = now(q.state("coalmine_health_score_ratio", *MINE))
    coverage = now(q.state("coalmine_coverage_ratio", *MINE))
    return [
        (
            number(
                101,
                "Verdict",
                "Healthy: no rule of the check was broken. Degraded: one was; Coalmine's page of the check says which. "
                "Unknown: fewer than half of the probes could be measured. Overdue: it was healthy, but more than two "
                "intervals ago.",
                now(q.verdict(*MINE)),
                unit="string",
                texts=VERDICTS,
                empty="Unknown: no run yet, or no state",
            ).color_mode(c.BigValueColorMode.BACKGROUND),
            5,
        ),
        (
            number(
                103,
                "Coverage",
                "Share of canaries with an expected chunk in the top k. The missing rest is listed on the check's "
                "page under degraded canaries.",
                coverage,
                unit=RATIO,
                steps=BETTER_HIGH,
                empty=NOT_MEASURED,
            ),
            5,
        ),
        (
            number(
                104,
                "Degraded canaries",
                "Canaries that found too little, too late or something forbidden. One alone does not make the run "
                "degraded unless a rule says so.",
                now(q.state("coalmine_degraded_queries", *MINE)),
                steps=ANY_IS_A_WARNING,
                empty=NOT_MEASURED,
            ),
            4,
        ),
        (
            number(
                102,
                "First-hit relevance",
                "Mean relevance of the first hit, 0 to 1, as the retriever's scorer sees it.",
                score,
                unit=RATIO,
                steps=BETTER_HIGH,
                empty=NOT_MEASURED,
            ),
            5,
        ),
        (
            paged(
                number(
                    105,
                    "Open alerts",
                    "Alerts of this check that are not resolved. Coalmine's page tells why each was opened.",
                    now(q.open_alerts(MINE)),
                    steps=ANY_IS_BAD,
                ),
                "Open alerts in Coalmine",
                "/alerts?check=${check}",
            ),
            5,
        ),
    ]


def second_numbers() -> Panels:
    """Show how fresh it is, and of which index."""
    index = ("check", "suite", "retriever", "index_version")
    return [
        (
            number(
                111,
                "Last run",
                "When the newest run ended.",
                now(f"1000 * {q.state(q.LAST_RUN, *MINE)}"),
                unit=MOMENT,
                empty="never, or no state",
            ),
            5,
        ),
        (
            number(
                112,
                "Last known verdict",
                "When the newest run ended that could be judged. Much older than the last run: the retriever fails.",
                now(f"1000 * {q.state('coalmine_last_success_timestamp_seconds', *MINE)}"),
                unit=MOMENT,
                empty="never, or no state",
            ),
            5,
        ),
        (
            number(
                113,
                "Interval",
                "Seconds between scheduled runs.",
                now(q.state(q.INTERVAL, *MINE)),
                unit=SECONDS,
            ),
            5,
        ),
        (
            number(
                114,
                "Failed probes",
                "Canaries that could not be asked in the newest run. They say nothing of quality and enter no mean; "
                "see whether the retriever answers.",
                now(q.state("coalmine_canaries", *MINE, q.has("state", "failed"))),
                steps=ANY_IS_A_WARNING,
                empty=NOT_MEASURED,
            ),
            4,
        ),
        (
            words(
                115,
                "Index version",
                "What the retriever said of its index in the newest run.",
                now(q.state("coalmine_index_info", *MINE, by=index), "{{index_version}}"),
                empty="not reported",
            ),
            5,
        ),
    ]
