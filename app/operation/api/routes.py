"""Routers of the API, in the order of the description."""

from app.alerts.silences import api as silences
from app.annotation.api import annotating, corpora, tasks
from app.answers.api import answers, judges
from app.catalog.api import definitions, exchange, suites
from app.comparison import api as comparisons
from app.detection import api as baselines
from app.diagnosis.api import diagnoses, reanchors
from app.diagnosis.quality import api as quality
from app.experiments.api import experiments, interleavings, promotions, shadows
from app.operation.api import service
from app.reports.api import history
from app.retrievers.api import embedders, trials
from app.runs.api import progress, rescoring
from app.traffic import api as traffic

ROUTERS = (
    service.probes,
    service.router,
    definitions.router,
    suites.router,
    exchange.router,
    history.router,
    progress.router,
    comparisons.router,
    rescoring.router,
    baselines.router,
    quality.router,
    trials.router,
    embedders.router,
    silences.router,
    tasks.router,
    annotating.router,
    corpora.router,
    traffic.router,
    diagnoses.router,
    answers.router,
    judges.router,
    reanchors.router,
    experiments.router,
    promotions.router,
    shadows.router,
    interleavings.router,
)
