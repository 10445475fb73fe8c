"""The generated answers of a run over REST, and what was said of them."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.answers.documents.feedback_documents import FeedbackRequest
from app.answers.domain.views import ForgottenFeedback, ReceivedFeedback, RunAnswersPage
from app.answers.service import answer_views, feedback
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import body_schema

router = APIRouter(prefix="/v1", tags=["generation"], dependencies=[Depends(refuse_unknown_parameters)])


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
    return answer_views.answers_of_run(store, run_id, after=after, limit=limit)


@router.post("/checks/{slug}/feedback", openapi_extra=body_schema(FeedbackRequest))
def post_feedback(store: StoreDep, slug: str, body: Content) -> ReceivedFeedback:
    """Add what users said of answers: a thumb up or down, or whether their task was done.

    An event is joined to the answer by the key of the canary and the text of the answer, of which only a hash is kept;
    one about an answer that the check has not seen is `unmatched` and not stored. An `event_id` counts once, so that
    events can be sent again.
    """
    return feedback.receive_feedback(store, slug, parse_document(FeedbackRequest, body), now=datetime.now(UTC))


@router.delete("/checks/{slug}/feedback")
def delete_feedback(store: StoreDep, slug: str) -> ForgottenFeedback:
    """Delete all that users said of the answers of a check, at once."""
    return feedback.forget_feedback(store, slug)
