"""REST routes of generated answers: those of a run, feedback of users on them, and judges with their reports."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Response

from app.answers.documents import FeedbackRequest, JudgeDocument
from app.answers.service import answering, labels
from app.answers.views import FeedbackPage, ForgottenFeedback, JudgeReport, ReceivedFeedback, RunAnswersPage
from app.base.api.bodies import After, Content, Limit, Page, answers_with, body_schema
from app.base.api.requests import StoreDep, VaultDep, api_router, needs
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.catalog.service import references
from app.definitions.api import JudgeView, definition_page, definition_shape, put_definition
from app.definitions.service import definitions

router = api_router("generation")


@router.get("/runs/{run_id}/answers")
def get_answers(
    store: StoreDep,
    run_id: str,
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> RunAnswersPage:
    """List the generated answers of a run, the worst by its judge first, with the claims the judge found.

    `status` is `off` where the check watches no answers, and `pending` until those of this run are judged.
    """
    return answering.answers_of_run(store, run_id, after=after, limit=limit)


@router.post("/checks/{slug}/feedback", openapi_extra=body_schema(FeedbackRequest))
def post_feedback(store: StoreDep, slug: str, body: Content) -> ReceivedFeedback:
    """Add what users said of answers: a thumb up or down, or whether their task was done.

    An event is joined to the answer by the key of the canary and the text of the answer, of which only a hash is kept;
    one about an answer that the check has not seen is `unmatched` and not stored. An `event_id` counts once, so that
    events can be sent again.
    """
    return answering.receive_feedback(store, slug, parse_document(FeedbackRequest, body), now=datetime.now(UTC))


@router.get("/checks/{slug}/feedback")
def get_feedback(store: StoreDep, slug: str, after: After = "", limit: Limit = 50) -> FeedbackPage:
    """Show what users said of the answers of a check: in all, and by canary, whichever version of its answer.

    What they said of the present version stands beside it in `GET /v1/runs/{run_id}/answers`.
    """
    return answering.load_feedback(store, slug, after=after, limit=limit)


@router.delete("/checks/{slug}/feedback")
def delete_feedback(store: StoreDep, slug: str) -> ForgottenFeedback:
    """Delete all that users said of the answers of a check, at once."""
    return answering.forget_feedback(store, slug)


@router.get("/judges")
def list_judges(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[JudgeView]:
    """List the judges of answers; secrets are never shown."""
    return definition_page(references.load_definitions(store, "judge", after=after, limit=limit + 1), limit)


@router.get("/judges/{slug}")
def get_judge(store: StoreDep, slug: str) -> JudgeView:
    """Show a judge; secrets are never shown."""
    return definition_shape(references.load_definition(store, "judge", slug))


@router.get("/judges/{slug}/report")
def get_judge_report(store: StoreDep, slug: str) -> JudgeReport:
    """Show how far the numbers of a judge can be trusted: people and judge together, measure by measure.

    Labels come from annotation tasks with `answers`; those of its present model and wording count. A measure is
    calibrated from a lower bound of kappa of .4 on.
    """
    return labels.load_report(store, slug, now=datetime.now(UTC))


@router.put("/judges/{slug}", responses=answers_with(JudgeView, 201), openapi_extra=body_schema(JudgeDocument))
@needs(Scope.ADMIN)
def put_judge(store: StoreDep, vault: VaultDep, response: Response, slug: str, body: Content) -> JudgeView:
    """Create or change a judge, a language model that reads answers. A secret of null keeps the stored one."""
    return put_definition(store, vault, JudgeDocument, slug, body, response)


@router.delete("/judges/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_judge(store: StoreDep, slug: str) -> None:
    """Archive a judge that no check uses; what it said stays."""
    definitions.archive(store, "judge", slug, now=datetime.now(UTC))
