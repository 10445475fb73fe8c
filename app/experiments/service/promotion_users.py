"""What an experiment says of a promotion's candidate: by now, before its shares mismatched, and in earlier epochs."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from app.base.db.engine import Store
from app.base.errors import NotFoundError
from app.experiments.domain.experiments import ExperimentState, RateDifference
from app.experiments.domain.promotion_evidence import ExperimentArms, ExposureEvidence
from app.experiments.service.experiments import CountedEpoch, find_experiment, read_epochs


def read_exposure(
    store: Store, slug: str | None, *, now: datetime, like: ExperimentArms | None = None
) -> ExposureEvidence | str:
    """Return what an experiment decides in its current epoch; a text says why it decides nothing.

    Its second arm is the candidate, unless an arm is called as one of `like`, those of the promotion's own experiment.
    """
    if slug is None:
        return "no experiment is set: name one as `experiment`"
    try:
        with store.read() as connection:
            current, *earlier = read_epochs(connection, find_experiment(connection, slug).id, now)
    except NotFoundError as error:
        return str(error)
    decision, names = current.decision, current.row.document.plan.names
    arms = _own_arms(current, earlier) if like is None else like.place_in(names)
    is_stopped = current.row.ended_at is not None and not decision.ended
    reason = f"experiment '{slug}' was stopped undecided: {decision.reason}" if is_stopped else decision.reason
    if like is None and names[0] == arms.candidate:
        reason += f"; arm {arms.candidate} stays the candidate's, though the arms changed places"
    before, told = next(_harm_before(current, earlier, arms), (None, ""))
    return ExposureEvidence(
        difference=_read_by(arms, names, decision.difference),
        later=_read_by(arms, names, decision.later),
        mismatch=decision.state is ExperimentState.MISMATCH,
        reason=reason,
        power=current.power,
        ended=decision.ended or is_stopped,
        within=current.row.document.delta if decision.state is ExperimentState.EQUIVALENT else None,
        harm_before=told,
        before=before,
        arms=arms,
        began_at=current.row.began_at,
    )


def _own_arms(current: CountedEpoch, earlier: Sequence[CountedEpoch]) -> ExperimentArms:
    """Return the arms of a promotion's own experiment: who is the candidate stays so, whatever places arms change."""
    names = current.row.document.plan.names
    alike = (one.row.document.plan.names for one in reversed(earlier) if any(one.exposed))
    return ExperimentArms.in_order(next((one for one in alike if set(one) == set(names)), names))


def _read_by(arms: ExperimentArms, names: tuple[str, str], found: RateDifference | None) -> RateDifference | None:
    """Return the difference of an experiment, candidate less current."""
    return found.turned if found is not None and names[0] == arms.candidate else found


def _harm_before(
    current: CountedEpoch, earlier: Sequence[CountedEpoch], arms: ExperimentArms
) -> Iterator[tuple[RateDifference, str]]:
    """Yield by how much the candidate was worse, and that in words: in earlier epochs, and before shares mismatched."""
    for one in (current, *earlier):
        found, names = one.decided, one.row.document.plan.names
        if one is current and one.decision.state is not ExperimentState.MISMATCH:
            continue
        when = "before the shares mismatched it" if one is current else f"epoch {one.row.epoch}"
        read = [_read_by(arms.place_in(names), names, of) for of in (found.difference, found.later)]
        for interval in read:
            if interval is not None and interval.high < 0:
                yield interval, f"{when} had shown: {found.reason}"
