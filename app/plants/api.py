"""REST routes of plants: listed for a check, and one planted now."""

from datetime import UTC, datetime

from fastapi import Request

from app.base.api.bodies import Before, Limit, refusals
from app.base.api.requests import StoreDep, api_router, wake
from app.plants.domain import PlantsView, PlantView
from app.plants.service import planting, shown

router = api_router("history")


@router.get("/checks/{slug}/plants")
def list_plants(store: StoreDep, slug: str, before: Before = None, limit: Limit = 50) -> PlantsView:
    """List the planted documents of a check, newest first: how soon each was found, and gone after its removal."""
    return shown.load_plants(store, slug, before=before, limit=limit, now=datetime.now(UTC))


@router.post("/checks/{slug}/plants", status_code=202, responses=refusals(409))
def post_plant(store: StoreDep, request: Request, slug: str) -> PlantView:
    """Plant a document now, in the background. Refused while another of the check may be in the source."""
    plant_id = planting.plant_of(store, slug, now=store.now())
    wake(request)
    return shown.load_plant(store, plant_id)
