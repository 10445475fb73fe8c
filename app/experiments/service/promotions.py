"""Promotions: which checks and which experiment a candidate is held to, its gates as they stand, and waivers."""

from collections.abc import Sequence
from datetime import datetime

from app.alerts.domain.alert_state import OPEN, AlertState
from app.alerts.store import alerts
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.values import Severity
from app.catalog.service.lookup import find_check
from app.experiments.documents.promotion_documents import PromotionDocument
from app.experiments.domain.promotion import Gate, GateName, Waiver, decide_promotion
from app.experiments.domain.views import CriticalAlert, GateView, PromotionView, WaiverView
from app.experiments.service.promotion_evidence import compare_judged, compare_offline, read_exposure
from app.experiments.store import experiments
from app.experiments.store import promotions as rows
from app.experiments.store.promotions import PromotionRow, WaiverRow
from app.records import documents as shapes


def put_promotion(store: Store, document: PromotionDocument, *, by: str, now: datetime, only_new: bool = False) -> bool:
    """Create a promotion or change it, which forgets its waivers; whether it is new.

    Raises InvalidInputError where it names what does not exist; with `only_new` ConflictError wherever there is one.
    """
    with store.write() as connection:
        _require_references(connection, document)
        body = document.data()
        if rows.insert_promotion(connection, slug=document.slug, body=body, at=to_us(now), by=by):
            return True
        if only_new:
            raise ConflictError(f"there is a promotion '{document.slug}' already")
        promotion = _find(connection, document.slug)
        if promotion.body != body:
            rows.change_promotion(connection, promotion.id, body)
        return False


def load_promotion(store: Store, slug: str, *, now: datetime) -> PromotionView:
    """Return a promotion with its gates. Raises NotFoundError."""
    with store.read() as connection:
        promotion = _find(connection, slug)
        waivers = rows.list_waivers(connection, promotion.id)
    return _view(store, promotion, waivers, now=now)


def list_promotions(store: Store, *, after: str = "", limit: int, now: datetime) -> list[PromotionView]:
    """List promotions by slug, those behind `after`, each with its gates."""
    with store.read() as connection:
        found = [
            (one, rows.list_waivers(connection, one.id))
            for one in rows.list_promotions(connection, after=after, limit=limit)
        ]
    return [_view(store, promotion, waivers, now=now) for promotion, waivers in found]


def delete_promotion(store: Store, slug: str) -> None:
    """Delete a promotion. Raises NotFoundError."""
    with store.write() as connection:
        rows.delete_promotion(connection, _find(connection, slug).id)


def waive_gate(store: Store, slug: str, gate: GateName, *, reason: str, by: str, now: datetime) -> None:
    """Waive a gate, whatever it says. Raises NotFoundError."""
    with store.write() as connection:
        rows.save_waiver(connection, _find(connection, slug).id, gate, reason=reason, by=by, at=to_us(now))


def withdraw_waiver(store: Store, slug: str, gate: GateName) -> None:
    """Withdraw the waiver of a gate. Raises NotFoundError where there is none."""
    with store.write() as connection:
        if not rows.delete_waiver(connection, _find(connection, slug).id, gate):
            raise NotFoundError(f"gate '{gate}' of promotion '{slug}' is not waived")


def _find(connection: Connection, slug: str) -> PromotionRow:
    promotion = rows.find_promotion(connection, slug)
    if promotion is None:
        raise NotFoundError(f"there is no promotion '{slug}'")
    return promotion


def _view(store: Store, promotion: PromotionRow, waivers: list[WaiverRow], *, now: datetime) -> PromotionView:
    document = PromotionDocument.model_validate(promotion.body)
    decision = decide_promotion(
        compare_offline(store, document.current, document.candidate),
        compare_judged(store, document.current, document.candidate),
        read_exposure(store, document.experiment, now=now),
        {GateName(one.gate): Waiver(by=one.waived_by, reason=one.reason) for one in waivers},
    )
    known: dict[str, WaiverView] = {
        one.gate: {"by": one.waived_by, "reason": one.reason, "at": shapes.time_text(one.waived_at)} for one in waivers
    }
    return {
        "slug": promotion.slug,
        "current": document.current,
        "candidate": document.candidate,
        "experiment": document.experiment,
        "created_at": shapes.time_text(promotion.created_at),
        "created_by": promotion.created_by,
        "state": decision.state,
        "reason": decision.reason,
        "gates": [_gate_view(gate, known.get(gate.name)) for gate in decision.gates],
        "critical_alerts": _critical_alerts(store, (document.candidate, document.current)),
    }


def _critical_alerts(store: Store, checks: Sequence[str]) -> list[CriticalAlert]:
    """List the open critical alerts of these checks, in their order, oldest first."""
    with store.read() as connection:
        return [
            {
                "check": check,
                "alert_id": str(row.id),
                "rule": row.rule_key,
                "opened_at": None if row.opened_at is None else shapes.time_text(row.opened_at),
            }
            for check in dict.fromkeys(checks)
            for row in alerts.open_alerts(connection, find_check(connection, check).id, hold=False)
            if AlertState(row.state) in OPEN and row.severity == Severity.CRITICAL
        ]


def _gate_view(gate: Gate, waiver: WaiverView | None) -> GateView:
    return {
        "gate": gate.name,
        "result": gate.result,
        "reason": gate.reason,
        "evidence": gate.evidence,
        "waiver": waiver,
    }


def _require_references(connection: Connection, document: PromotionDocument) -> None:
    problems = []
    for field, slug in (("current", document.current), ("candidate", document.candidate)):
        try:
            find_check(connection, slug)
        except NotFoundError as error:
            problems.append(Problem(path=field, message=str(error)))
    if document.experiment is not None and experiments.find_experiment(connection, document.experiment) is None:
        problems.append(Problem(path="experiment", message=f"there is no experiment '{document.experiment}'"))
    if problems:
        raise InvalidInputError(problems)
