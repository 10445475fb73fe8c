"""Plants: how one goes from put to gone, step by step, what is wrong with it, and what is usual for its check.

A plant is a marked document. Its row is written before anything is sent, so that whoever finds the row knows what may
be in the source. What was not found may still come: it is looked for, and removed again, for a day.
"""

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from typing_extensions import TypedDict

from app.base.texts import plural
from app.base.values import Outcome, TimeText, Value, replace

ID: Final = "id"
MARKER: Final = "marker"
TEXT: Final = "text"

SECOND: Final = 1_000_000
"""Times of plants are microseconds, as they are stored."""


class PlantState(StrEnum):
    """Where a plant is on its way; only `ended` ones are done with."""

    DUE = "due"
    SENDING = "sending"
    AWAITED = "awaited"
    REMOVING = "removing"
    LEAVING = "leaving"
    WATCHED = "watched"
    ENDED = "ended"


class Finding(StrEnum):
    """Whether the question found the document; `unmeasured` says nothing about the source."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    UNMEASURED = "unmeasured"


class PlantProblem(StrEnum):
    """What is wrong with a plant, the gravest first."""

    LEFT_BEHIND = "left_behind"
    NOT_GONE = "not_gone"
    NOT_FOUND = "not_found"
    SLOW = "slow"


PROBLEM_WORDS: Final[Mapping[PlantProblem, str]] = {
    PlantProblem.LEFT_BEHIND: "left behind",
    PlantProblem.NOT_GONE: "not gone",
    PlantProblem.NOT_FOUND: "not found",
    PlantProblem.SLOW: "slow",
}


class Action(StrEnum):
    """What is to be done with a plant next."""

    SEND = "send"
    ASK = "ask"
    REMOVE = "remove"


class PlantTerms(Value):
    """Bounds of a plant and how often its question is asked, in seconds."""

    found_within: float
    gone_within: float
    poll: float


class Plant(Value):
    """A plant as far as it has come. Times are microseconds; None = not yet."""

    state: PlantState
    terms: PlantTerms
    next_at: int
    """When the next step is due."""
    sent_at: int | None = None
    """When the document was sent: from then on it may be in the source."""
    put_at: int | None = None
    """When the source had taken it."""
    missed_at: int | None = None
    """When a question was last answered without the document, before it was found."""
    found_asked_at: int | None = None
    """When the question was sent whose answer had it."""
    found_at: int | None = None
    finding: Finding | None = None
    failure: str | None = None
    """Why it was not measured."""
    removals_failed: int = 0
    """In a row."""
    removal_failure: str | None = None
    """Why the last removal failed; None = it did not."""
    removed_at: int | None = None
    """When the removal was sent that the source took first."""
    taken_at: int | None = None
    """When the source had taken the removal that was sent last."""
    seen_at: int | None = None
    """When the last question after its removal was sent whose answer still had it."""
    absent_asked_at: int | None = None
    """When the question was sent whose answer no longer had it, the first of those in a row."""
    absent_at: int | None = None
    """When the first of the answers in a row came that no longer had it."""
    absent: int = 0
    """How many answers in a row no longer had it."""
    gone_at: int | None = None
    watches: int = 0
    """How often it was looked for since it was gone without having been found."""
    late_at: int | None = None
    """When it appeared although it had been removed."""
    ended_at: int | None = None

    @property
    def found_seconds(self) -> float | None:
        """Seconds from sending the document until it was found, at most; None = it was not, or not measured."""
        if self.finding is not Finding.FOUND or self.found_at is None or self.sent_at is None:
            return None
        return max(0, self.found_at - self.sent_at) / SECOND

    @property
    def gone_seconds(self) -> float | None:
        """Seconds from sending the removal until no answer had the document.

        None = not yet, it never was there, or nobody asked when it went.
        """
        if self.finding is not Finding.FOUND or self.gone_at is None or self.removed_at is None:
            return None
        if not _is_gone_sure(self):
            return None
        return max(0, self.gone_at - self.removed_at) / SECOND

    @property
    def is_open(self) -> bool:
        """Whether the next plant of its check waits for it."""
        return self.state not in {PlantState.WATCHED, PlantState.ENDED}

    @property
    def is_left_behind(self) -> bool:
        """Whether its removal has failed so often that somebody has to know."""
        return self.state is PlantState.REMOVING and self.removals_failed >= LEFT_BEHIND_AFTER


LEFT_BEHIND_AFTER: Final = 3
"""Removals that failed in a row."""
LONGEST_PAUSE: Final = 3600.0
"""Seconds between two removals, or two questions, however often they failed."""
FIRST_PAUSE: Final = 5.0
ABSENT_ANSWERS: Final = 2
"""Answers in a row without the document, until it counts as gone."""
WATCHES: Final = (60.0, 600.0, 3_600.0, 6 * 3_600.0, 24 * 3_600.0)
"""Seconds after a document that was never found is gone, at which it is looked for again: a queue may bring it yet."""
GIVE_UP: Final = 7 * 86_400.0
"""Seconds after which a source that answers no question is asked no more. A removal is never given up."""
_SURE_POLLS: Final = 2.0
"""Polls from an answer to the next question that leave a time sure: more, and somebody did not ask meanwhile."""
_SURE_GAP: Final = 3.0
"""The same in seconds, for short polls: a worker that is busy is that late."""


class Written(Value):
    """How a request to the source ended."""

    failure: str | None = None
    """None = the source took it."""
    outcome: Outcome = Outcome.OK
    http_status: int | None = None

    @property
    def may_be_there(self) -> bool:
        """Whether a document may be in the source: it was sent, and not refused as a request that is wrong."""
        is_wrong = self.http_status is not None and self.http_status in _WRONG
        return self.outcome is not Outcome.BLOCKED and not is_wrong

    @property
    def found_nothing(self) -> bool:
        """Whether a removal found nothing to remove, which is no failure."""
        return self.http_status in _ALREADY_GONE


_ALREADY_GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
"""What a source answers to the removal of what it does not have."""
_WRONG: Final = range(HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)


def next_action(plant: Plant) -> Action | None:
    """Return what is to be done once `next_at` has come; None = nothing ever."""
    match plant.state:
        case PlantState.DUE:
            return Action.SEND
        case PlantState.AWAITED | PlantState.LEAVING | PlantState.WATCHED:
            return Action.ASK
        case PlantState.SENDING | PlantState.REMOVING:
            return Action.REMOVE
        case PlantState.ENDED:
            return None


def before_sending(plant: Plant, at: int) -> Plant:
    """Return a plant that is about to be sent: stored before it is, so that no kill leaves it unknown."""
    return replace(plant, state=PlantState.SENDING, sent_at=at, next_at=at)


def after_sending(plant: Plant, failure: str | None, at: int, *, may_be_there: bool = True) -> Plant:
    """Return a plant that the source took or, with a `failure`, did not; where it may be there it is removed."""
    if failure is not None:
        refused = unmeasured(plant, f"it could not be put: {failure}", at)
        return refused if may_be_there else replace(refused, state=PlantState.ENDED, ended_at=at)
    return replace(plant, state=PlantState.AWAITED, put_at=at, next_at=at)


def unmeasured(plant: Plant, failure: str, at: int) -> Plant:
    """Return a plant of which nothing is said any more; it is removed."""
    return replace(plant, state=PlantState.REMOVING, finding=Finding.UNMEASURED, failure=failure, next_at=at)


def withdrawn(plant: Plant, why: str, at: int) -> Plant:
    """Return a plant that nobody wants any more: removed where it may be in the source, ended where it is not."""
    if plant.state is PlantState.DUE:
        return replace(plant, state=PlantState.ENDED, finding=Finding.UNMEASURED, failure=why, ended_at=at)
    if plant.state in {PlantState.SENDING, PlantState.AWAITED}:
        return unmeasured(plant, why, at)
    return plant


def after_question(
    plant: Plant,
    seen: bool | None,  # noqa: FBT001 - three values
    at: int,
    failure: str | None = None,
    *,
    asked_at: int,
) -> Plant:
    """Return a plant after its question, sent at `asked_at`; `seen` None = there was no answer, which says nothing."""
    match plant.state:
        case PlantState.AWAITED:
            asked = replace(plant, found_asked_at=asked_at) if seen else plant
            return _after_awaiting(asked, seen, at, failure)
        case PlantState.LEAVING:
            return _after_leaving(plant, seen, at, asked_at)
        case PlantState.WATCHED:
            return _after_watching(plant, seen, at)
        case _:
            return plant


def _after_awaiting(plant: Plant, seen: bool | None, at: int, failure: str | None) -> Plant:  # noqa: FBT001 - as above
    terms, sent = plant.terms, plant.sent_at or at
    bound = sent + _us(terms.found_within)
    last = max(plant.missed_at or 0, plant.put_at or 0, sent)
    if seen:
        found = replace(plant, state=PlantState.REMOVING, found_at=at, finding=Finding.FOUND, next_at=at)
        if at > bound and not is_sure(found):
            gap = f"nobody could ask for {seconds_text((at - last) / SECOND)} before it was found"
            return replace(found, finding=Finding.UNMEASURED, failure=gap)
        return found
    if at < bound:
        missed = at if seen is False else plant.missed_at
        return replace(plant, missed_at=missed, next_at=min(at + _us(terms.poll), bound))
    if seen is None:
        return unmeasured(plant, f"the retriever did not answer: {failure or 'no answer'}", at)
    return replace(plant, state=PlantState.REMOVING, finding=Finding.NOT_FOUND, missed_at=at, next_at=at)


def is_sure(plant: Plant) -> bool:
    """Whether the time until it was found is known to two polls: somebody asked all the while."""
    if plant.found_at is None:
        return False
    last = max(plant.missed_at or 0, plant.put_at or 0, plant.sent_at or 0)
    return (plant.found_asked_at or plant.found_at) - last <= _sure_gap(plant.terms.poll)


def _is_gone_sure(plant: Plant) -> bool:
    """Whether somebody asked all the while until it was gone; after `gone_within` questions become rarer."""
    asked, removed = plant.absent_asked_at or plant.gone_at or 0, plant.removed_at or 0
    last = max(plant.seen_at or 0, plant.taken_at or 0, removed)
    return asked - last <= _sure_gap(_pause_of(plant.terms, (last - removed) / SECOND))


def _pause_of(terms: PlantTerms, waited: float) -> float:
    """Return the seconds until it is asked for again, so many after its removal."""
    return terms.poll if waited < terms.gone_within else min(max(terms.poll, waited / 10), LONGEST_PAUSE)


def after_removing(plant: Plant, failure: str | None, sent_at: int, at: int) -> Plant:
    """Return a plant whose removal was sent: the source took it, or it is sent again, later and later."""
    if plant.state is PlantState.SENDING:  # its worker died in between
        plant = replace(plant, finding=Finding.UNMEASURED, failure="Coalmine was interrupted while it was put")
    if failure is not None:
        failed = plant.removals_failed + 1
        pause = min(FIRST_PAUSE * 2 ** min(failed - 1, 20), LONGEST_PAUSE)
        return replace(
            plant,
            state=PlantState.REMOVING,
            removals_failed=failed,
            removal_failure=failure,
            next_at=at + _us(pause),
        )
    return replace(
        plant,
        state=PlantState.LEAVING,
        removed_at=plant.removed_at or sent_at,
        taken_at=at,
        removals_failed=0,
        removal_failure=None,
        absent=0,
        absent_at=None,
        absent_asked_at=None,
        next_at=at,
    )


def _after_leaving(plant: Plant, seen: bool | None, at: int, asked_at: int) -> Plant:  # noqa: FBT001 - as above
    terms, removed = plant.terms, plant.removed_at or at
    waited, bound = (at - removed) / SECOND, removed + _us(terms.gone_within)
    if seen is False:
        if plant.absent == 0:
            plant = replace(plant, absent_at=at, absent_asked_at=asked_at)
        absent = replace(plant, absent=plant.absent + 1)
        if absent.absent < ABSENT_ANSWERS:
            return replace(absent, next_at=at + _us(terms.poll))
        return _gone(replace(absent, gone_at=plant.gone_at or plant.absent_at), at)
    if seen is None and waited > GIVE_UP:
        return replace(plant, state=PlantState.ENDED, ended_at=at, failure="the retriever no longer answers")
    following = at + _us(_pause_of(terms, waited))
    if at < bound:  # one question comes just then: its answer decides
        following = min(following, bound)
    after = replace(plant, absent=0, absent_at=None, absent_asked_at=None, next_at=following)
    if not seen:
        return after
    # Past the bound the source may have lost the removal: it is sent again.
    again = PlantState.REMOVING if at >= bound else PlantState.LEAVING
    return replace(after, state=again, seen_at=asked_at)


def _gone(plant: Plant, at: int) -> Plant:
    """Return a plant that is gone: one that was found is done with, any other may come yet."""
    if plant.found_at is not None or plant.watches >= len(WATCHES):
        return replace(plant, state=PlantState.ENDED, ended_at=at)
    return replace(plant, state=PlantState.WATCHED, next_at=at + _us(WATCHES[plant.watches]))


def _after_watching(plant: Plant, seen: bool | None, at: int) -> Plant:  # noqa: FBT001 - as above
    if seen:
        return replace(plant, state=PlantState.REMOVING, late_at=plant.late_at or at, next_at=at)
    if seen is None:
        if at - (plant.gone_at or at) > _us(GIVE_UP):
            return replace(plant, state=PlantState.ENDED, ended_at=at, failure="the retriever no longer answers")
        return replace(plant, next_at=at + _us(min(WATCHES[min(plant.watches, 1)], LONGEST_PAUSE)))
    return _gone(replace(plant, watches=plant.watches + 1), at)


def problem_of(plant: Plant, usual: "Usual | None" = None) -> PlantProblem | None:
    """Return what is wrong with a plant; None = nothing, as far as it has come."""
    if plant.is_left_behind:
        return PlantProblem.LEFT_BEHIND
    if _is_late_to_go(plant):
        return PlantProblem.NOT_GONE
    seconds = plant.found_seconds
    if plant.finding is Finding.NOT_FOUND or (seconds or 0.0) > plant.terms.found_within + plant.terms.poll:
        return PlantProblem.NOT_FOUND
    is_slow = usual is not None and seconds is not None and is_sure(plant) and seconds > usual.slow_above
    return PlantProblem.SLOW if is_slow else None


def _is_late_to_go(plant: Plant) -> bool:
    """Whether an answer still had it at its bound or later, or it came back although it had been removed."""
    if plant.late_at is not None and plant.is_open:
        return True
    if plant.finding is not Finding.FOUND:
        return False
    seen = _seen_seconds(plant)
    return seen is not None and seen >= plant.terms.gone_within


def _seen_seconds(plant: Plant) -> float | None:
    """Return after how many seconds of its removal it was last asked for and still found; None = never."""
    if plant.seen_at is None or plant.removed_at is None:
        return None
    return (plant.seen_at - plant.removed_at) / SECOND


LEAST_PAST: Final = 10
"""Plants that were found before, until a check has a past to compare with."""
PAST: Final = 50
"""The newest of them that are compared with."""
_FACTOR: Final = 3.0
_ABOVE_HIGH: Final = 1.5
_POLLS_ABOVE: Final = 2.0


class Usual(Value):
    """What is usual for the plants of a check, in seconds."""

    plants: int
    median: float
    high: float
    """Nine of ten were found within."""
    slow_above: float
    """From here on it is far above what is usual."""


def usual_of(found: Sequence[float], poll: float) -> Usual | None:
    """Return what is usual by the times of earlier plants, newest last; None for fewer than `LEAST_PAST`.

    Far above it is more than three times the median, one and a half times what nine of ten take, and two polls above
    the median: a poll is how exact a time is.
    """
    past = sorted(found[-PAST:])
    if len(past) < LEAST_PAST:
        return None
    median = statistics.median(past)
    high = past[min(len(past) - 1, int(0.9 * len(past)))]
    slow = max(_FACTOR * median, _ABOVE_HIGH * high, median + _POLLS_ABOVE * poll)
    return Usual(plants=len(past), median=median, high=high, slow_above=slow)


def problem_sentence(plant: Plant, problem: PlantProblem, usual: Usual | None) -> str:
    """Return what is wrong with a plant, as a sentence without its full stop and what that means behind a colon."""
    usually = "" if usual is None else f" (usually {seconds_text(usual.median)})"
    match problem:
        case PlantProblem.LEFT_BEHIND:
            times = f"{plant.removals_failed} {plural(plant.removals_failed, 'time')}"
            what = "is" if plant.put_at is not None else "may be"
            why = f"its removal failed {times} in a row, {plant.removal_failure}"
            return f"A planted document {what} left behind: {why}"
        case PlantProblem.NOT_GONE:
            if plant.late_at is not None:
                return (
                    "A planted document appeared after it had been removed: the index is behind by more than removals"
                )
            still = f"A planted document was still found {seconds_text(_seen_seconds(plant) or 0.0)} after its removal"
            late, stays = ", and is gone now: removals reach the index late", ": removed documents stay in the index"
            return f"{still}{stays if plant.gone_at is None else late}"
        case PlantProblem.NOT_FOUND:
            seconds = plant.found_seconds
            if seconds is not None:
                return f"A planted document was found after {seconds_text(seconds)}{usually}: indexing lags"
            bound = seconds_text(plant.terms.found_within)
            what = "new documents do not reach the index"
            return f"A planted document was not found after {bound}{usually}: {what}"
        case PlantProblem.SLOW:
            took = seconds_text(plant.found_seconds or 0.0)
            return f"A planted document was found after {took}{usually}: indexing is slower than it was"


def is_found(hits: Sequence[tuple[str, str | None, str | None]], *, key: str, marker: str) -> bool:
    """Whether one of the hits, each (id, document, text), is the planted document or a chunk of it.

    Its id is unique, so an id that contains it is one of its chunks.
    """
    return any(marker in part or key in part for hit in hits for part in hit if part is not None)


def marker_of(key: str) -> str:
    """Return the marker of a plant: one word for tokenisers of all kinds, which people recognise."""
    return f"coalmine{key.replace('-', '')[:16]}"


def _sure_gap(poll: float) -> int:
    return _us(max(_SURE_POLLS * poll, _SURE_GAP))


def _us(seconds: float) -> int:
    return round(seconds * SECOND)


_MINUTE, _HOUR = 60.0, 3600.0


def seconds_text(seconds: float) -> str:
    """Return a time as people read it: `8 s`, `5 min`, `2.5 h`."""
    for size, unit in ((_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


class UsualView(TypedDict):
    """What is usual for the plants of a check."""

    plants: int
    median_seconds: float
    high_seconds: float
    """Nine of ten were found within."""
    slow_above_seconds: float
    """A longer time is far above what is usual."""


class PlantView(TypedDict):
    """A planted document: how far it has come, and how long it took."""

    id: str
    document_id: str
    """Its id in the source."""
    marker: str
    """The word that nothing else has."""
    state: PlantState
    planted_at: TimeText | None
    """When it was sent; null = not yet."""
    finding: Finding | None
    """null = not yet known."""
    found_seconds: float | None
    """From sending it until an answer had it, at most."""
    is_sure: bool
    """Whether somebody asked all the while, so that the time is exact to a few polls."""
    gone_seconds: float | None
    """From sending its removal until no answer had it; null for one that was never found."""
    problem: PlantProblem | None
    sentence: str | None
    """What is wrong, for people."""
    failure: str | None
    """Why it was not measured."""
    removal_failure: str | None
    """Why the last removal failed; it is tried again."""
    ended_at: TimeText | None


class PlantsView(TypedDict):
    """Plants of a check, newest first, with what is usual."""

    items: list[PlantView]
    next: str | None
    usual: UsualView | None
    """null until ten plants were found."""
    next_at: TimeText | None
    """When the next document is planted; null = never, or not while one is left behind."""
    waits_for: str | None
    """Why no document is planted, for people."""


def stored_terms(body: Mapping[str, Any]) -> PlantTerms:
    """Return the terms of a stored plant."""
    return PlantTerms(found_within=body["found_within"], gone_within=body["gone_within"], poll=body["poll"])
