"""REST routes of facts of the index: of one run, and over the runs of a check."""

from app.base.api.bodies import Before, Limit
from app.base.api.requests import StoreDep, api_router
from app.index_facts import service
from app.index_facts.domain import IndexSeriesView, RunFactsView

router = api_router("history")


@router.get("/runs/{run_id}/facts")
def get_run_facts(store: StoreDep, run_id: str) -> RunFactsView:
    """Show what a run read of the index: its size, and how much of what exact search finds it returned."""
    return service.load_run_facts(store, run_id)


@router.get("/checks/{slug}/facts")
def list_facts(store: StoreDep, slug: str, before: Before = None, limit: Limit = 50) -> IndexSeriesView:
    """List what the runs of a check read of the index, newest first; runs that read nothing are left out."""
    return service.load_series(store, slug, before=before, limit=limit)
