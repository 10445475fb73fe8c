"""Routers of the API, in the order of the description."""

from app.api import service
from app.api.alerts import silences
from app.api.annotation import annotating, corpora, tasks, traffic
from app.api.catalog import definitions, exchange, suites
from app.api.comparison import comparisons
from app.api.detection import baselines
from app.api.diagnosis import diagnoses, quality, reanchors
from app.api.experiments import experiments, interleavings, promotions, shadows
from app.api.generation import answers, judges
from app.api.history import history
from app.api.probing import embedders, trials
from app.api.runs import progress, rescoring

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
