"""Routes of run comparison."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.api.answers import refusals
from app.api.catalog.definitions import Limit
from app.api.deps import StoreDep, refuse_unknown_parameters
from app.api.schemas import LARGEST_ID, Version
from app.domain.comparison.run_diff import Change
from app.domain.comparison.views import RunDiffPage
from app.services.comparison import run_comparison

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])


@router.get("/runs/{before}/diff/{now}", responses=refusals(409))
def diff_runs(
    store: StoreDep,
    before: str,
    now: str,
    change: Change | None = None,
    after: Annotated[int, Query(ge=0, le=LARGEST_ID, description="the `next` of the page before")] = 0,
    limit: Limit = 50,
    version: Version = None,
) -> RunDiffPage:
    """Compare two runs, of one check or of two: what differs, whether it may be chance, and who got worse.

    `comparable` is false where suite, k, scorer or measures version differ; `differences` lists all of them.
    Each measure has its mean in both runs and, over the canaries both asked (`paired`), the bootstrap interval of the
    difference and the chance `p` of one as large by a randomisation test. `items` are canaries, the worst first, with
    their rank before and now and how alike the two rankings are (`rbo`, p = 0.9).
    """
    changes = () if change is None else (change,)
    found, following = run_comparison.diff(
        store, before, now, changes=changes, after=after, limit=limit, version=version
    )
    return {**found, "next": None if following is None else str(following)}
