"""What is known of the guard rails of a promotion: by what the judge says, or by users of an experiment."""

from datetime import datetime

from app.base.db.engine import Store
from app.base.texts import counted
from app.base.values import replace
from app.experiments.documents import GuardDocument, PromotionDocument
from app.experiments.domain.experiments import RateDifference
from app.experiments.domain.promotion_evidence import (
    ExperimentArms,
    ExposureEvidence,
    GuardEvidence,
    JudgeEvidence,
    Margin,
)
from app.experiments.service.promotion_evidence import describe_alerts, describe_changes, read_exposure


def read_guard(
    store: Store,
    document: PromotionDocument,
    guard: GuardDocument,
    judged: JudgeEvidence | str,
    arms: ExperimentArms | None,
    *,
    now: datetime,
) -> GuardEvidence:
    """Return what is known of a guard rail of a promotion; `arms` are those of its own experiment."""
    if guard.experiment is not None:
        users = read_exposure(store, guard.experiment, now=now, like=arms)
        return _read_users(store, document, guard, guard.experiment, users)
    name = str(guard.measure)
    if isinstance(judged, str):
        return GuardEvidence(name=name, allowed_loss=guard.allowed_loss, found=judged)
    return GuardEvidence(
        name=name,
        allowed_loss=guard.allowed_loss,
        found=judged.measures[name],
        outdated=judged.outdated,
        behind=judged.behind,
    )


def _read_users(
    store: Store, document: PromotionDocument, guard: GuardDocument, experiment: str, users: ExposureEvidence | str
) -> GuardEvidence:
    """Return what users of an experiment show of a guard rail, by the newest look."""
    name = f"experiment {experiment}"
    if isinstance(users, str):
        return GuardEvidence(name=name, allowed_loss=guard.allowed_loss, found=users)
    is_other = experiment != document.experiment
    found: Margin | str = users.reason
    notes: tuple[str, ...] = ()
    changed: tuple[str, str] = ("", "")
    if users.dealt and is_other:
        found = (
            f"{counted(users.dealt, 'unit')} came without `arm`, so that this experiment dealt the arm, and users "
            "may have seen the other one: begin a new epoch, and send with each exposure the arm that it saw"
        )
    elif users.arms is not None and (shown := _margin_of(users, guard.allowed_loss)) is not None:
        found = Margin(low=shown.low, high=shown.high, basis=f"{users.arms.candidate} less {users.arms.current}")
        if is_other:  # else exposure tells that
            alerted = describe_alerts(store, document, experiment, users.newest_until)
            notes = tuple(filter(None, [users.late, *alerted]))
        changed = describe_changes(store, document, experiment, users.newest_until)
    users = replace(users, changed=changed[0], meanwhile=changed[1])
    said = users.asked_otherwise
    if is_other:  # those of the promotion's own experiment are told by exposure, in the same words
        said = [one.replace("begin a new epoch", f"begin a new epoch of experiment {experiment}") for one in said]
    return GuardEvidence(
        name=name,
        allowed_loss=guard.allowed_loss,
        found=found,
        ended=users.closed,
        harm_before=users.harm_before,
        before=users.before,
        asked_otherwise=tuple(said),
        notes=notes,
    )


def _margin_of(users: ExposureEvidence, allowed_loss: float) -> RateDifference | None:
    """Return the interval that a guard rail is held against: that of the newest look, which holds whenever it is read.

    A loss that an experiment was decided by stays until a new epoch, also where the newest look shows less of it: what
    its units are counted of has changed meanwhile, and is not known.
    """
    decided, newest = users.difference, users.newest
    is_lost = decided is not None and decided.high <= -allowed_loss
    return decided if is_lost and newest is not None and newest.high > -allowed_loss else newest
