"""The schema. Times are integer UTC microseconds; JSON that nobody filters by is TEXT, vectors are bytes.

Grouped as everywhere: catalog (what should be), queue (what is due), history (what happened) and what belongs to it.
`migrations/` builds exactly this; a test holds the two together.
"""

from app.store.tables.annotation import (
    adjudications,
    annotations,
    answer_items,
    corpora,
    corpus_texts,
    pooled_recalls,
    task_canaries,
    task_items,
    tasks,
)
from app.store.tables.base import metadata
from app.store.tables.catalog import (
    api_keys,
    canaries,
    canary_versions,
    definition_versions,
    definitions,
    ended_sessions,
    suite_versions,
)
from app.store.tables.detection import baseline_choices, baselines, detections, detectors
from app.store.tables.diagnosis import diagnoses, reanchors, run_causes
from app.store.tables.embedders import embedder_findings, embedders, run_embedders
from app.store.tables.experiments import (
    experiment_counts,
    experiment_epochs,
    experiment_units,
    experiments,
    promotion_waivers,
    promotions,
    shadow_hours,
)
from app.store.tables.generation import (
    answer_draws,
    answer_texts,
    answers,
    calibrations,
    drawn_verdicts,
    feedback,
    judge_days,
    ratings,
    run_answers,
    staged_answers,
)
from app.store.tables.history import (
    chunks,
    latest,
    layouts,
    marks,
    rankings,
    rollups,
    run_probes,
    scores,
    states,
    vectors,
)
from app.store.tables.jobs import jobs
from app.store.tables.outbox import alerts, attempts, deliveries, incidents, reports, transitions
from app.store.tables.queue import idempotency_keys, next_runs, rates, runs, shards
from app.store.tables.rescoring import rescored_rollups, rescored_runs, rescorings
from app.store.tables.traffic import reaches, traffic_parts, traffic_queries

__all__ = [
    "adjudications",
    "alerts",
    "annotations",
    "answer_draws",
    "answer_items",
    "answer_texts",
    "answers",
    "api_keys",
    "attempts",
    "baseline_choices",
    "baselines",
    "calibrations",
    "canaries",
    "canary_versions",
    "chunks",
    "corpora",
    "corpus_texts",
    "definition_versions",
    "definitions",
    "deliveries",
    "detections",
    "detectors",
    "diagnoses",
    "drawn_verdicts",
    "embedder_findings",
    "embedders",
    "ended_sessions",
    "experiment_counts",
    "experiment_epochs",
    "experiment_units",
    "experiments",
    "feedback",
    "idempotency_keys",
    "incidents",
    "jobs",
    "judge_days",
    "latest",
    "layouts",
    "marks",
    "metadata",
    "next_runs",
    "pooled_recalls",
    "promotion_waivers",
    "promotions",
    "rankings",
    "rates",
    "ratings",
    "reaches",
    "reanchors",
    "reports",
    "rescored_rollups",
    "rescored_runs",
    "rescorings",
    "rollups",
    "run_answers",
    "run_causes",
    "run_embedders",
    "run_probes",
    "runs",
    "scores",
    "shadow_hours",
    "shards",
    "staged_answers",
    "states",
    "suite_versions",
    "task_canaries",
    "task_items",
    "tasks",
    "traffic_parts",
    "traffic_queries",
    "transitions",
    "vectors",
]
