"""What a promotion rests on, as it is read: the newest runs of both checks, and what users of its candidate showed.

Of runs: which they are, and whether they are of what their checks ask by now. Of users: what an experiment says by now,
before its shares mismatched, in earlier epochs, and what those of other promotions of the same checks say, or of checks
that ask the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain, product
from typing import Any, Final

from app.alerts import store as alerts
from app.annotation.store.judgment_rows import what_is_asked
from app.answers.domain.judges import JudgeOutcome
from app.answers.store.answer_rows import read_run_answers
from app.base.db.engine import Connection, Store, from_us
from app.base.errors import NotFoundError
from app.base.texts import counted, listed
from app.base.values import Severity, replace
from app.catalog import store as catalog
from app.catalog.service.references import find_check
from app.catalog.service.versions import answers_changed
from app.catalog.store import Definition
from app.comparison.service.outdated import DEPTHS, check_changes
from app.experiments import store as rows
from app.experiments.documents import GuardDocument, PromotionDocument
from app.experiments.domain.experiments import ExperimentState, RateDifference, bucket_us
from app.experiments.domain.promotion_evidence import (
    ExperimentArms,
    ExposureEvidence,
    GuardEvidence,
    HarmElsewhere,
    JudgeEvidence,
    Margin,
)
from app.experiments.service.experiments import CountedEpoch, find_experiment, read_epochs
from app.experiments.store import CountRow, EpochRow, PromotionRow
from app.records.store import run_rows
from app.records.store.run_rows import RunRow


def describe_alerts(store: Store, document: PromotionDocument, experiment: str, until: int | None) -> list[str]:
    """Say while how many of the units that a look is of a critical alert of either check was open, resolved or not.

    The last of them came at `until` at the earliest; without a look nothing is said.
    """
    if until is None:
        return []
    with store.read() as connection:
        epoch = rows.list_epochs(connection, find_experiment(connection, experiment).id)[0]
        counts = [one for one in rows.read_counts(connection, epoch.id) if one.bucket <= until]
        checks = [find_check(connection, slug) for slug in (document.candidate, document.current)]
        return [said for one in checks if (said := _say_alerts(connection, one, epoch, counts))]


def _say_alerts(connection: Connection, check: Definition, epoch: EpochRow, counts: Sequence[CountRow]) -> str:
    """Say while how many of some units a critical alert of a check was open; empty where none was."""
    length = bucket_us(epoch.document.window_us)
    first, last = (pick((one.bucket for one in counts), default=0) for pick in (min, max))
    spans = list(_critical_spans(connection, check.id, first, last + length))
    met = [one for one in counts if any(begin < one.bucket + length and one.bucket <= end for begin, end in spans)]
    if not (number := sum(one.units for one in met)):
        return ""
    of = counted(sum(one.units for one in counts), "unit")
    begin = min(max(begin, first) for begin, _ in spans)
    end = max(min(end, last + length) for _, end in spans)
    alert = "a critical alert was" if len(spans) == 1 else "critical alerts were"
    return (
        f"{alert} open of check '{check.slug}' while about {number:,} of {of} came, from {from_us(begin):{_MINUTE}} to "
        f"{from_us(end):{_MINUTE}} UTC: what they showed may be of that fault"
    )


_MINUTE: Final = "%Y-%m-%d %H:%M"


def _critical_spans(connection: Connection, check_id: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield from when to when alerts of a check were critical within a span of time."""
    found = alerts.alerts_within(connection, check_id, first=first, last=last)
    changes = alerts.list_transitions(connection, [one.id for one in found])
    for alert in found:
        since = next((one.at for one in changes[alert.id] if one.severity == Severity.CRITICAL), None)
        if since is not None:  # it never falls
            yield since, last if alert.resolved_at is None else alert.resolved_at


def describe_change(store: Store, slug: str, experiment: str) -> str:
    """Say how what a check asks has changed since the users of an experiment came; empty where it has not.

    By its last run before the first of them came. Of a check that is younger by its first run, and by what it and its
    retriever were when it was made.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        retriever = catalog.find_definition(connection, "retriever", check.body["retriever"])
        epoch = rows.list_epochs(connection, find_experiment(connection, experiment).id)[0]
        since = rows.first_exposure(connection, epoch.id) or epoch.began_at
        if max(check.updated_at, 0 if retriever is None else retriever.updated_at) <= since:
            return ""
        ended = [run for run in run_rows.ended_runs(connection, check.id, limit=_MOST) if run.aggregates]
        before = [run for run in ended if run.started_at is not None and run.started_at <= since]
        known = before[-1:] or (ended[:1] if check.created_at > since else [])
        how = next((how for run in known if (how := check_changes(connection, run))), "")
        if not how and not before:
            how = next(_changed_since(connection, check, max(since, check.created_at)), "")
    return f"check '{slug}' {how}" if how else ""


def _changed_since(connection: Connection, check: Definition, at: int) -> Iterator[str]:
    """Yield how versions of a check and its retriever that are in force differ from the newest made by a moment.

    Only of versions that were first made after it: others tell nothing of when they came back.
    """
    retriever = catalog.find_definition(connection, "retriever", check.body["retriever"])
    for one in (check, *([] if retriever is None else [retriever])):
        made = rows.versions_made(connection, one.id, after=0, until=one.updated_at)
        older = [version for when, version in made if when <= at]
        if one.version_id not in older:
            yield from filter(
                None,
                (_differs(one, check, catalog.version_body(connection, was).body, by_now=True) for was in older[-1:]),
            )


def describe_edits_since(store: Store, document: PromotionDocument, at: int) -> list[str]:
    """Say of both checks what they asked at a moment, where that is something else than by now."""
    with store.read() as connection:
        checks = [find_check(connection, slug) for slug in (document.candidate, document.current)]
        told = [(one, next(_changed_since(connection, one, at), "")) for one in checks]
    return [f"check '{one.slug}' {how}" for one, how in told if how]


def describe_meanwhile(store: Store, slug: str, experiment: str, until: int | None) -> str:
    """Say what else a check asked while the users came that a look is of; empty where nothing else, or without a look.

    The last of them came at `until` at the earliest. Versions that were first made in that time tell, and runs, which
    know of an older one that came back for a while.
    """
    if until is None:
        return ""
    with store.read() as connection:
        epoch = rows.list_epochs(connection, find_experiment(connection, experiment).id)[0]
        check = find_check(connection, slug)
        told = _other_versions(connection, check, epoch, until)
        return next(chain(told, _other_runs(connection, check, epoch, until)), "")


def describe_changes(store: Store, document: PromotionDocument, experiment: str, until: int | None) -> tuple[str, str]:
    """Say how both checks differ from what the users of an experiment were asked about, and what they asked meanwhile.

    Either is empty where there is nothing to say; `until` as in `describe_meanwhile`.
    """
    compared = (document.candidate, document.current)
    changed = [describe_change(store, one, experiment) for one in compared]
    meanwhile = [
        "" if how else describe_meanwhile(store, check, experiment, until)
        for check, how in zip(compared, changed, strict=True)
    ]
    return "; ".join(filter(None, changed)), "; ".join(filter(None, meanwhile))


def _other_versions(connection: Connection, check: Definition, epoch: EpochRow, until: int) -> Iterator[str]:
    """Yield what a check asked otherwise by its versions, and those of its retriever, while units were exposed."""
    retriever = catalog.find_definition(connection, "retriever", check.body["retriever"])
    last = rows.last_exposure(connection, epoch.id, before=until + bucket_us(epoch.document.window_us))
    for one in (check, *([] if retriever is None else [retriever])):
        made = rows.versions_made(connection, one.id, after=epoch.began_at, until=until if last is None else last)
        for at, version in made:
            how = _differs(one, check, catalog.version_body(connection, version).body)
            seen = rows.last_exposure(connection, epoch.id, before=one.updated_at)
            if how and (last is None or (seen is not None and seen >= at)):  # None = its units are deleted by now
                yield f"while users came, from {from_us(at):%Y-%m-%d %H:%M} UTC on, check '{check.slug}' {how}"


def _differs(one: Definition, check: Definition, then: Mapping[str, Any], *, by_now: bool = False) -> str:
    """Say how a version of a check, or of its retriever, asked something else than it does by now; else empty.

    With `by_now` it says of a check what that is.
    """
    if one is not check:
        changed = answers_changed(then, one.body)
        return f"asked retriever '{one.slug}' with another {listed(changed)}" if changed else ""
    now = one.body
    also = {name: f", which is {now.get(name)} by now" if by_now else "" for name in DEPTHS}
    asks = f", and the check asks '{now['retriever']}' by now" if by_now else ""
    was = [
        *([f"asked retriever '{then['retriever']}'{asks}"] if then["retriever"] != now["retriever"] else []),
        *(f"was of {name} {then[name]}{also[name]}" for name in DEPTHS if then.get(name) != now.get(name)),
    ]
    return listed(was)


def _other_runs(connection: Connection, check: Definition, epoch: EpochRow, until: int) -> Iterator[str]:
    """Yield the runs of a check that asked something else while units were exposed."""
    ended = run_rows.ended_runs(connection, check.id, limit=_MOST)
    meanwhile = [run for run in ended if run.aggregates and epoch.began_at < (run.started_at or 0) <= until]
    for run in {(run.check_version_id, run.retriever_version_id): run for run in meanwhile}.values():
        if how := check_changes(connection, run):
            yield f"while users came, run {run.id} of check '{check.slug}' {how}"


def say_cautions(store: Store, promotion: PromotionRow, users: ExposureEvidence) -> tuple[str, ...]:
    """Say why the users of an experiment that decided may have seen something else than what the checks ask."""
    if users.exposed_until is None:
        return ()
    document = promotion.document
    with store.read() as connection:
        epoch = rows.list_epochs(connection, find_experiment(connection, str(document.experiment)).id)[0]
        others = [one for one in rows.list_promotions(connection, limit=_MOST) if one.id != promotion.id]
        told = [
            f"promotion '{one.slug}' reads the same users for '{one.document.candidate}' in place of "
            f"'{one.document.current}': they saw one of the two"
            for one in others
            if one.document.experiment == document.experiment
            and (one.document.candidate, one.document.current) != (document.candidate, document.current)
            and [_asked(connection, of) for of in (one.document.candidate, one.document.current)]
            != [_asked(connection, of) for of in (document.candidate, document.current)]
        ]
        for slug in (document.candidate, document.current):
            told += _say_unlike(connection, slug, epoch, users.exposed_until)
    return tuple(told)


def _say_unlike(connection: Connection, slug: str, epoch: EpochRow, until: int) -> Iterator[str]:
    """Yield what speaks against that users of an epoch saw what a check asks by now.

    The last of those that it was decided by were exposed at `until` at the earliest.
    """
    check = find_check(connection, slug)
    retriever = catalog.find_definition(connection, "retriever", check.body["retriever"])
    for what, made in ((f"check '{slug}'", check), (f"the retriever of check '{slug}'", retriever)):
        if made is not None and (when := _made_after(connection, made.created_at, epoch, until)):
            yield f"{what} {when} made after the last of these users was exposed: see that they saw what it asks"
            return


def _made_after(connection: Connection, made: int, epoch: EpochRow, until: int) -> str:
    """Say whether something was made after the last users of an epoch were exposed; empty where it was not.

    Users are counted by spans of time, so the unit that came last tells. Where units are deleted by now, the begin of
    the epoch does, but not of a first epoch: its exposures may be dated before it.
    """
    if made <= until:
        return ""
    last = rows.last_exposure(connection, epoch.id, before=until + bucket_us(epoch.document.window_us))
    if last is not None:
        return "was" if made > last else ""
    return "" if epoch.epoch > 1 and made <= epoch.began_at else "may have been"


_MOST: Final = 1_000


def name_shared_retriever(store: Store, runs: Sequence[RunRow]) -> str:
    """Name the retriever that two runs asked alike, or both where only their names differ; else empty."""
    versions = [run.retriever_version_id for run in runs if run.retriever_version_id is not None]
    with store.read() as connection:
        one, other = (catalog.version_body(connection, version).body for version in versions)
    if answers_changed(one, other):
        return ""
    names = list(dict.fromkeys(f"'{body['slug']}'" for body in (one, other)))
    return f"the same retriever, {names[0]}" if len(names) == 1 else f"{listed(names)}, which differ in name alone"


_OLDER: Final = 5
"""Judged runs of each check that are looked at for two that one judge rated."""


def find_judged_pair(store: Store, slugs: Sequence[str]) -> tuple[str, str] | None:
    """Return the newest runs of two checks of which one judge, of one model, rated answers; None = there are none."""
    with store.read() as connection:
        current, candidate = (_judged_runs(connection, slug) for slug in slugs)
    pairs = sorted(product(enumerate(current), enumerate(candidate)), key=lambda pair: pair[0][0] + pair[1][0])
    alike = ((one, other) for (_, (one, by)), (_, (other, by_other)) in pairs if by == by_other)
    return next(alike, None)


def _judged_runs(connection: Connection, slug: str) -> list[tuple[str, tuple[str | None, object]]]:
    """Return the newest runs of a check of which a judge rated answers, the newest first, each with who rated them."""
    ended = run_rows.ended_runs(connection, find_check(connection, slug).id, limit=_LATEST)
    summaries = read_run_answers(connection, [run.id for run in ended])
    found: list[tuple[str, tuple[str | None, object]]] = []
    for run in reversed(ended):
        said = summaries.get(run.id)
        if run.aggregates and said and any(one.get(JudgeOutcome.OK) for one in said["ratings"].values()):
            found.append((str(run.id), (said["judge"], said.get("rated_by"))))
    return found[:_OLDER]


_LATEST: Final = 50


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
    span = bucket_us(current.row.document.window_us)
    arms = _own_arms(current, earlier) if like is None else like.place_in(names)
    is_stopped = current.row.ended_at is not None and not decision.ended
    pending = "" if decision.ended else _say_pending(current)
    if not any(current.exposed) and current.row.ended_at is None:
        pending = "send an exposure for each unit that is served"
    reason = f"experiment '{slug}' was stopped undecided: {current.reason}" if is_stopped else current.reason
    waits = [
        f"epoch {one.row.epoch}: {said}" for one in earlier if (said := _say_pending(one)) and not one.decided.ended
    ]
    reason = "; ".join(filter(None, [reason, pending, *waits]))
    if like is None and names[0] == arms.candidate:
        reason += f"; arm {arms.candidate} stays the candidate's, though the arms changed places"
    before, told = next(_harm_before(current, earlier, arms), (None, ""))
    if decision.state is ExperimentState.MISMATCH and not told and current.decided.ended:
        reason += f"; before the shares mismatched it had shown: {current.decided.reason}"
    return ExposureEvidence(
        difference=_read_by(arms, names, decision.difference),
        later=_read_by(arms, names, decision.later),
        mismatch=decision.state is ExperimentState.MISMATCH,
        reason=reason,
        power=current.power,
        ended=decision.ended or (is_stopped and not pending),
        ended_since=decision.look.at + current.row.document.window_us
        if decision.ended and decision.look is not None
        else current.row.ended_at,
        stopped=is_stopped,
        within=current.row.document.delta if decision.state is ExperimentState.EQUIVALENT else None,
        harm_before=told,
        before=before,
        arms=arms,
        dealt=current.row.dealt or 0,
        exposed_until=decision.look.at - span if decision.ended and decision.look is not None else None,
        newest=_read_by(arms, names, current.newest),
        newest_until=current.looks[-1].at - span if current.looks else None,
        closed=current.row.ended_at is not None and not current.pending[0],
        late=current.late,
    )


def read_users(store: Store, document: PromotionDocument, *, now: datetime) -> ExposureEvidence | str:
    """Return what users of a promotion show, and what those of other promotions of its checks show to be harm.

    Also where they hold what is current here to what is the candidate, and users were served better.
    """
    own = read_exposure(store, document.experiment, now=now)
    elsewhere: list[HarmElsewhere] = []
    for (experiment, is_turned), other in _alike(store, document).items():
        if experiment == document.experiment:
            continue  # the same users, which `say_cautions` tells where they are read otherwise
        found = read_exposure(store, experiment, now=now)
        harm, said = (None, "") if isinstance(found, str) else _harm_of(found, is_turned=is_turned)
        if harm is None:
            continue
        theirs = {other.document.current, other.document.candidate}
        of = "the same checks" if theirs == {document.current, document.candidate} else "checks that ask the same"
        told = f"experiment '{experiment}' of promotion '{other.slug}' of {of} says: {said}"
        if is_turned and not isinstance(found, str) and found.arms is not None:
            told += f", and {found.arms.candidate} is there what is current here"
        elsewhere.append(HarmElsewhere(difference=harm, told=told))
    if not elsewhere:
        return own
    if isinstance(own, str):
        own = ExposureEvidence(difference=None, mismatch=False, reason=own, power="")
    return replace(own, elsewhere=tuple(elsewhere))


def _alike(store: Store, document: PromotionDocument) -> dict[tuple[str | None, bool], PromotionRow]:
    """Return the promotions that asked users about the same two checks, or checks that ask the same, by experiment.

    Beside the experiment stands whether what is current here is the candidate there.
    """
    asked = lru_cache(maxsize=None)(_asked)
    found: dict[tuple[str | None, bool], PromotionRow] = {}
    with store.read() as connection:
        for one in rows.list_promotions(connection, limit=_MOST):
            if one.document.experiment is None:
                continue  # no user of it was asked
            pair, other = ((of.current, of.candidate) for of in (document, one.document))
            if {*pair} != {*other}:
                pair, other = ((asked(connection, of[0]), asked(connection, of[1])) for of in (pair, other))
            if {*pair} == {*other} and len({*pair}) > 1:
                found[one.document.experiment, pair != other] = one
    return found


def _asked(connection: Connection, slug: str) -> str:
    """Return what a check asks, and how deep, as a text: users of a retriever do not see what its check is called."""
    check = catalog.find_definition(connection, "check", slug)
    if check is None:
        return slug
    depths = [check.body.get(name) for name in DEPTHS]
    return json.dumps([what_is_asked(connection, check.body["retriever"]), *depths])


def _harm_of(found: ExposureEvidence, *, is_turned: bool) -> tuple[RateDifference | None, str]:
    """Return by how much users are worse served with the candidate, as another promotion shows it, and in its words."""
    if is_turned:
        return (found.difference.turned, found.reason) if found.difference and found.is_better else (None, "")
    if found.is_worse:
        return found.harm, found.reason
    return (found.before, found.harm_before) if found.harm_before and not found.is_better else (None, "")


def _say_pending(epoch: CountedEpoch) -> str:
    """Say how many units wait for their outcome, and how long; empty where none does."""
    number, until = epoch.pending
    if until is None:
        return ""
    may = "is not final yet and may" if number == 1 else "are not final yet and may"
    return f"{counted(number, 'unit')} {may} still decide it, the last at {from_us(until):%Y-%m-%d %H:%M} UTC"


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
        if one is not current and read[0] is not None and read[0].low > 0 and read[1] is None:
            return  # users were shown to be served better since
        for interval in read:
            if interval is not None and interval.high < 0:
                yield interval, f"{when} had shown: {found.reason}"


# --- guard rails ---------------------------------------------------------------------------------------------


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
