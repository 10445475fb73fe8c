"""Inputs of a run made of its parts, wherever those come from; needs no store."""

from app.answers.domain.answer_measures import answer_measures
from app.base.rate_control import run_patience
from app.catalog.documents.documents import CheckDocument
from app.catalog.domain.schedules import first_interval
from app.catalog.domain.suite_snapshot import SuiteSnapshot
from app.retrievers.domain.retrievers import Retriever
from app.scoring.run_inputs import RunInputs


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
