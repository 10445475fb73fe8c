"""Why a canary degraded, over REST: what was found last, and asking the retriever now."""

from collections.abc import Callable
from datetime import UTC, datetime

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Request

from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.request_limits import expensive
from app.diagnosis.domain.views import DiagnosisView
from app.diagnosis.service import diagnoses
from app.diagnosis.service.on_demand import OnDemand
from app.retrievers.service.diagnosis_queries import ReportProgress
from app.runs.service.plans import Planner

router = APIRouter(prefix="/v1", tags=["diagnosis"], dependencies=[Depends(refuse_unknown_parameters)])

# Not the routes' threads, as with tries: retrievers that hang must not keep others from their pages.
DIAGNOSES = CapacityLimiter(2)


@router.get("/checks/{slug}/canaries/{key}/diagnosis")
def get_diagnosis(store: StoreDep, slug: str, key: str) -> DiagnosisView:
    """Show the last diagnosis of a canary: its cause, evidence and proposals."""
    return diagnoses.show(store, slug, key)


@router.post("/checks/{slug}/canaries/{key}/diagnosis")
@expensive
async def post_diagnosis(request: Request, slug: str, key: str) -> DiagnosisView:
    """Diagnose a canary as of the newest run, by about seven requests to the retriever; takes a minute at most."""
    return await anyio.to_thread.run_sync(run_diagnosis(request, slug, key), limiter=DIAGNOSES)


def run_diagnosis(
    request: Request, slug: str, key: str, *, progress: ReportProgress = lambda _answered, _of: None
) -> Callable[[], DiagnosisView]:
    """Return a function that diagnoses a canary as the sender of the request, to be called in a thread."""
    state = request.app.state
    on_demand: OnDemand = state.diagnoses
    planner = Planner(state.access.store, state.access.vault)
    by = request.state.identity.name
    return lambda: on_demand.ask(
        planner, state.probe, slug, key, by=by, clock=lambda: datetime.now(UTC), progress=progress
    )
