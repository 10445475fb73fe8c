"""Routes of comparisons: of two runs, checks or retrievers as A and B, and of two runs as before and now."""

from typing import Annotated

from fastapi import Query

from app.base.api.bodies import LARGEST_ID, Limit, Version, refusals
from app.base.api.requests import StoreDep, api_router, expensive
from app.comparison.domain.outcomes import Change, Side
from app.comparison.service import comparisons
from app.comparison.views import ComparisonPage, RunDiffPage

router = api_router("history")

Reference = Annotated[
    str, Query(max_length=80, description="`run:ID`, or `check:SLUG` or `retriever:SLUG` for its newest ended run")
]


@router.get("/compare", responses=refusals(404, 409))
@expensive
def compare(
    store: StoreDep,
    a: Reference,
    b: Reference,
    winner: Annotated[Side | None, Query(description="only canaries that score higher there")] = None,
    after: Annotated[int, Query(ge=0, le=LARGEST_ID, description="the `next` of the page before")] = 0,
    limit: Limit = 50,
) -> ComparisonPage:
    """Compare two runs, checks or retrievers: which one is better, by what, and how sure that is.

    `verdict` and `sentence` are about B against A, over the canaries that both measured and that expect the same.
    A difference of a `primary` measure is claimed only if its 95 % interval does not include zero and its p value,
    corrected over all of them, is at most 0.05; nothing is claimed of `exploratory` ones. `by_category` decides
    nothing about the whole. `items` are canaries by what B loses, the most first; those of a `winner` by how much it
    is ahead.
    """
    return comparisons.compare_references(store, a, b, winner=winner, after=after, limit=limit)[0]


@router.get("/runs/{before}/diff/{now}", responses=refusals(409))
@expensive
def diff_runs(
    store: StoreDep,
    before: str,
    now: str,
    change: Change | None = None,
    after: Annotated[int, Query(ge=0, le=LARGEST_ID, description="the `next` of the page before")] = 0,
    limit: Limit = 50,
    version: Version = None,
) -> RunDiffPage:
    """Compare two runs, the older one first: what changed, how sure that is, and who got worse.

    `decision` is what `/v1/compare` says, of before and now. `comparable` is false where suite, k, scorer or measures
    version differ; `differences` lists all of them. Each measure has its mean in both runs and, over the compared
    canaries (`paired`), the bootstrap interval of the difference and its `p` by a randomisation test; only what
    `decision` claims is more than a number. `items` are canaries, the worst first, with their rank before and now and
    how alike the two rankings are (`rbo`, p = 0.9).
    """
    changes = () if change is None else (change,)
    return comparisons.diff(store, before, now, changes=changes, after=after, limit=limit, version=version)
