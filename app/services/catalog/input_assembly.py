"""Inputs of a run made of its parts, wherever those come from; needs no store."""

from app.domain.catalog.schedules import first_interval
from app.domain.generation.answer_measures import answer_measures
from app.domain.probing.rate_control import run_patience
from app.domain.probing.retrievers import Retriever
from app.domain.runs.run_inputs import RunInputs
from app.domain.runs.suite_snapshot import SuiteSnapshot
from app.formats.catalog.documents import CheckDocument


def build_inputs(suite: SuiteSnapshot, check: CheckDocument, retriever: Retriever, *, config_hash: str) -> RunInputs:
    """Return the inputs of a run of this check."""
    return RunInputs(
        check=check.slug,
        suite_slug=check.suite,
        suite=suite,
        retriever=retriever,
        yardstick=check.yardstick(retriever.scorer),
        patience_seconds=run_patience(first_interval(check.schedule.to_domain()).total_seconds()),
        answer_measures=answer_measures(gives_answers=retriever.gives_answers, judged=check.judge is not None),
        judge=check.judge,
        config_hash=config_hash,
    )
