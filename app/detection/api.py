"""REST routes of a check's baseline: shown, pinned to a run, accepted as it is now, following new runs again.

Beside them: a habit called not normal, and rules suggested from the baseline.
"""

from datetime import UTC, datetime

from fastapi import Request

from app.alerts.domain.views import SuggestedRules
from app.alerts.service import explanations, transitions
from app.base.api.bodies import BaselineRequest, Content, NotNormalRequest, OptionalContent, body_schema
from app.base.api.requests import StoreDep, api_router
from app.base.documents.fields import parse_document
from app.detection.domain.views import BaselineView
from app.detection.service import baselines

router = api_router("detection")


@router.get("/checks/{slug}/baseline")
def get_baseline(store: StoreDep, slug: str) -> BaselineView:
    """Show the baseline of a check: who chose it, its runs, and the state of the detector."""
    return baselines.show(store, slug)


@router.put("/checks/{slug}/baseline", openapi_extra=body_schema(BaselineRequest))
def put_baseline(store: StoreDep, request: Request, slug: str, body: Content) -> BaselineView:
    """Pin a run, `{"run": "812"}`, or accept the present as normal, `{"accept": true, "note": "new index"}`.

    Accepting resolves the alerts that compare with a baseline at once, and restarts learning. A pinned run takes effect
    with the next run: drops are measured against it, and the detector uses the baseline learned up to it.
    """
    choice = parse_document(BaselineRequest, body)
    by, note, now = request.state.identity.name, choice.note, datetime.now(UTC)
    if choice.run is not None:
        baselines.pin(store, slug, choice.run, by=by, note=note, now=now)
    else:
        transitions.accept_baseline(store, slug, by=by, note=note, now=now)
    return baselines.show(store, slug)


@router.delete("/checks/{slug}/baseline", status_code=204)
def delete_baseline(store: StoreDep, request: Request, slug: str) -> None:
    """Let the baseline follow the runs again; no change where it does already."""
    baselines.follow(store, slug, by=request.state.identity.name, now=datetime.now(UTC))


@router.post("/checks/{slug}/habits/{habit}/not-normal", openapi_extra=body_schema(NotNormalRequest, required=False))
def call_not_normal(store: StoreDep, request: Request, slug: str, habit: str, body: OptionalContent) -> BaselineView:
    """Call a habit not normal: from the next run on its episodes are alarms again. Who said so, and when, is kept.

    `habits` of the baseline lists them with their ids.
    """
    note = parse_document(NotNormalRequest, {} if body is None else body).note
    baselines.refuse(store, slug, habit, by=request.state.identity.name, note=note, now=datetime.now(UTC))
    return baselines.show(store, slug)


@router.get("/checks/{slug}/suggested-rules")
def get_suggested_rules(store: StoreDep, slug: str) -> SuggestedRules:
    """Suggest bounds from the baseline: the 1 % quantile of its runs less 0.02, with the rule and the lines of YAML.

    Empty, with a note, until there is a baseline. `watched_by` is the rule that bounds the measure already.
    """
    return explanations.suggest(store, slug)
