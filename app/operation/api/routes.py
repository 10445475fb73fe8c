"""Routers of the API, in the order of the description."""

from app.alerts.silences import api as silences
from app.annotation import api as annotation
from app.answers import api as answers
from app.comparison import api as comparisons
from app.definitions import api as catalog
from app.definitions import exchange_api
from app.detection import api as baselines
from app.diagnosis import api as diagnoses
from app.experiments import api as experiments
from app.operation.api import service
from app.reports import api as history
from app.retrievers import api as retrievers
from app.runs import api as runs
from app.traffic import api as traffic

ROUTERS = (
    service.probes,
    service.router,
    catalog.router,
    exchange_api.router,
    history.router,
    runs.router,
    comparisons.router,
    baselines.router,
    diagnoses.quality_router,
    retrievers.router,
    retrievers.findings_router,
    silences.router,
    annotation.router,
    traffic.router,
    diagnoses.router,
    answers.router,
    experiments.router,
)
