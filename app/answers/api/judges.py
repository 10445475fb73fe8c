"""REST routes of judges, language models that read generated answers."""

from datetime import UTC, datetime

from fastapi import APIRouter, Depends, Response

from app.answers.domain.judge_report import JudgeReport
from app.answers.service import judge_reports
from app.base.api.answers import answers_with
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, VaultDep, needs, refuse_unknown_parameters
from app.base.api.keys import Scope
from app.base.api.schemas import Page
from app.catalog.api.definitions import After, Limit, body_schema, definition_page, definition_shape, put_definition
from app.catalog.api.views import JudgeView
from app.catalog.documents.documents import JudgeDocument
from app.catalog.service import definitions

router = APIRouter(prefix="/v1", tags=["generation"], dependencies=[Depends(refuse_unknown_parameters)])


@router.get("/judges")
def list_judges(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[JudgeView]:
    """List the judges of answers; secrets are never shown."""
    return definition_page(definitions.list_all(store, "judge", after=after, limit=limit + 1), limit)


@router.get("/judges/{slug}")
def get_judge(store: StoreDep, slug: str) -> JudgeView:
    """Show a judge; secrets are never shown."""
    return definition_shape(definitions.find(store, "judge", slug))


@router.get("/judges/{slug}/report")
def get_judge_report(store: StoreDep, slug: str) -> JudgeReport:
    """Show how far the numbers of a judge can be trusted: people and judge together, measure by measure.

    Labels come from annotation tasks with `answers`; those of its present model and wording count. A measure is
    calibrated from a lower bound of kappa of .4 on.
    """
    return judge_reports.load_report(store, slug, now=datetime.now(UTC))


@router.put("/judges/{slug}", responses=answers_with(JudgeView, 201), openapi_extra=body_schema(JudgeDocument))
@needs(Scope.ADMIN)
def put_judge(store: StoreDep, vault: VaultDep, response: Response, slug: str, body: Content) -> JudgeView:
    """Create or change a judge, a language model that reads answers. A secret of null keeps the stored one."""
    return put_definition(store, vault, "judge", JudgeDocument, slug, body, response)


@router.delete("/judges/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_judge(store: StoreDep, slug: str) -> None:
    """Archive a judge that no check uses; what it said stays."""
    definitions.archive(store, "judge", slug, now=datetime.now(UTC))
