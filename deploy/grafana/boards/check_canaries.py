"""The canaries of a check one by one, where the check opted in to series of its own."""

from deploy.grafana import queries as q
from deploy.grafana.boards.check_numbers import MINE
from deploy.grafana.frame import Panels
from deploy.grafana.panels import BAD, GOOD, NOT_MEASURED, RATIO, lines, now, number, over_time, states

_LABELS = (*q.CHECK, "canary")
_NONE = "This check shows no single canaries in metrics"


def canaries() -> Panels:
    """Show how single canaries fared."""
    degraded = q.state("coalmine_canary_degraded", *MINE, by=_LABELS)
    scores = q.state("coalmine_canary_top_score_ratio", *MINE, by=_LABELS)
    return [
        (
            states(
                351,
                "Canaries",
                "Which canaries were degraded when, a lane each. A gap: it could not be asked. Coalmine's page of the "
                "check has this for every canary, and why.",
                over_time(degraded, "{{canary}}"),
                {"0": ("well", GOOD), "1": ("degraded", BAD)},
            ).no_value(_NONE),
            10,
        ),
        (
            lines(
                352,
                "Relevance of first hits",
                "Relevance of the first hit of each canary, 0 to 1.",
                over_time(scores, "{{canary}}"),
                unit=RATIO,
            ).no_value(_NONE),
            10,
        ),
        (
            number(
                353,
                "Canaries not shown",
                "Canaries of the check beyond the number it shows one by one in metrics. Coalmine's own page has all.",
                now(q.state("coalmine_canaries_omitted", *MINE)),
                empty=NOT_MEASURED,
            ).no_value(_NONE),
            4,
        ),
    ]
