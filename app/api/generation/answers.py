"""The generated answers of a run over REST, and what was said of them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.api.deps import StoreDep, refuse_unknown_parameters
from app.domain.generation.views import RunAnswersPage
from app.services.generation import answer_views

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
