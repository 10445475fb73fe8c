"""The routers of all subjects, REST and pages, and the words that templates of all subjects use."""

from app.alerts import api as alerts_api
from app.alerts import pages as alerts
from app.alerts.silences import api as silences_api
from app.alerts.silences import pages as silences
from app.annotation import api as annotation_api
from app.annotation import pages as annotation
from app.answers import api as answers_api
from app.answers import pages as answers
from app.base.web.pages import add_words
from app.catalog.domain import POOLED_FRAME, pooled_condition, recall_label
from app.comparison import api as comparison_api
from app.comparison import pages as comparisons
from app.definitions import api as definitions_api
from app.definitions import exchange_api
from app.definitions.pages import canary_editor, check_editor, importing, suites
from app.detection import api as detection_api
from app.diagnosis import api as diagnosis_api
from app.diagnosis import pages as diagnosis
from app.experiments import api as experiments_api
from app.experiments import pages as experiments
from app.hooks import api as hooks_api
from app.hooks import pages as hooks
from app.index_facts import api as index_facts_api
from app.index_facts import pages as index_facts
from app.operation import api as operation_api
from app.operation import pages as operation
from app.plants import api as plants_api
from app.plants import pages as plants
from app.records.views import first_expected, not_returned, starter, why_degraded
from app.reports import api as reports_api
from app.reports.pages import checks, documentation, navigation, overviews, public
from app.reports.pages.overviews import grave_issues, nearest, open_incidents
from app.reports.rendering.report_measures import ERR_SCALE
from app.retrievers import api as retrievers_api
from app.retrievers.pages import retrievers, wizard
from app.runs import api as runs_api
from app.runs import pages as runs
from app.traffic import api as traffic_api
from app.traffic import pages as traffic

ROUTERS = (
    operation_api.probes,
    operation_api.router,
    definitions_api.router,
    exchange_api.router,
    reports_api.router,
    reports_api.pictures,
    alerts_api.router,
    hooks_api.router,
    runs_api.router,
    index_facts_api.router,
    comparison_api.router,
    detection_api.router,
    diagnosis_api.quality_router,
    retrievers_api.router,
    retrievers_api.findings_router,
    silences_api.router,
    annotation_api.router,
    plants_api.router,
    traffic_api.router,
    traffic_api.spans,
    diagnosis_api.router,
    answers_api.router,
    experiments_api.router,
)
"""Routers of REST, in matching order."""

PAGES = tuple(
    pages.router
    for pages in (
        overviews,
        navigation,
        documentation,
        public,
        check_editor,
        checks,
        diagnosis,
        runs,
        comparisons,
        alerts,
        hooks,
        silences,
        wizard,
        retrievers,
        suites,
        canary_editor,
        importing,
        annotation,
        plants,
        index_facts,
        traffic,
        answers,
        experiments,
        operation,
    )
)
"""Routers of the pages, in matching order."""


add_words(
    filters={
        **alerts.FILTERS,
        **hooks.FILTERS,
        **index_facts.FILTERS,
        "bound": alerts.bound,
        "why": lambda result, own=False: why_degraded(result, self_judged=own),
        "rank": first_expected,
        "absent": not_returned,
        "starter": starter,
        "pooled_condition": lambda one: pooled_condition([one]),
        "recall_label": lambda measure, own, pooled=(), of_part=False: recall_label(
            measure, self_judged=own, pooled=pooled, of_part=of_part
        ),
    },
    constants={"err_scale": ERR_SCALE, "pooled_frame": POOLED_FRAME, "menu": navigation.MENU},
    values={"issues": grave_issues, "open_incidents": open_incidents, "help": navigation.help_address},
    nearest=nearest,
)
