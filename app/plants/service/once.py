"""One document planted now and carried to its end, by the steps of `domain` and nothing stored: for `coalmine plant`.

Who does what a step asks for is handed in. Whatever ends it early, `withdraw` removes the document.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from app.plants import domain
from app.plants.domain import (
    SECOND,
    Action,
    Finding,
    Plant,
    PlantProblem,
    PlantState,
    PlantTerms,
    Written,
    next_action,
    problem_of,
)

_MOST_AFTER: Final = 60.0
"""Seconds after `gone_within` for which a document is still asked for: its removal was sent again then."""
_REMOVALS: Final = 3
"""How often a document that is withdrawn is removed, where that fails."""
_PAUSE: Final = 1.0


class PlantVerdict(StrEnum):
    """How the planting of a document ended."""

    IN_TIME = "in_time"
    LATE = "late"
    """Not found or not gone in time, or left behind."""
    NOT_MEASURED = "not_measured"


class Hands(Protocol):
    """Does what the steps of a plant ask for."""

    def put(self) -> Written:
        """Put the document into the source."""
        ...

    def ask(self) -> tuple[bool | None, str | None]:
        """Return whether an answer has the document; None with a reason where there is no answer."""
        ...

    def remove(self) -> Written:
        """Remove the document from the source."""
        ...


@dataclass(slots=True)
class PlantingOnce:
    """A document on its way; `plant` says at each instant whether it may be in the source."""

    plant: Plant
    hands: Hands
    clock: Callable[[], int]
    """Microseconds, as the times of plants."""
    wait: Callable[[float], None]
    stepped: Callable[[Plant, Plant], None]
    """Hears of each step: the plant before and after it."""

    @classmethod
    def of(
        cls,
        terms: PlantTerms,
        hands: Hands,
        *,
        clock: Callable[[], int],
        wait: Callable[[float], None],
        stepped: Callable[[Plant, Plant], None],
    ) -> "PlantingOnce":
        """Return a document that is due."""
        plant = Plant(state=PlantState.DUE, terms=terms, next_at=clock())
        return cls(plant, hands, clock, wait, stepped)

    def run(self) -> None:
        """Do each step when it is due, until the document is gone, left behind or asked for long enough."""
        while not self._is_over():
            pause = self.plant.next_at - self.clock()
            if pause > 0:
                self.wait(pause / SECOND)
            self._step()

    def withdraw(self, why: str) -> None:
        """Remove the document, where it may be in the source; it is not asked for any more."""
        self._save(domain.withdrawn(self.plant, why, self.clock()))
        for attempt in range(_REMOVALS):
            if self.plant.state is not PlantState.REMOVING:
                return
            if attempt:
                self.wait(_PAUSE)
            self._remove()

    @property
    def may_be_left(self) -> bool:
        """Whether the document may be in the source, and nobody removes it any more."""
        if self.plant.state is PlantState.LEAVING:
            return problem_of(self.plant) is PlantProblem.NOT_GONE
        return self.plant.state in {PlantState.SENDING, PlantState.AWAITED, PlantState.REMOVING}

    @property
    def verdict(self) -> PlantVerdict:
        """How it ended."""
        if problem_of(self.plant) is not None:
            return PlantVerdict.LATE
        is_known = self.plant.state is PlantState.ENDED and self.plant.finding is Finding.FOUND
        return PlantVerdict.IN_TIME if is_known else PlantVerdict.NOT_MEASURED

    def _is_over(self) -> bool:
        plant = self.plant
        if not plant.is_open or plant.is_left_behind:
            return True
        if plant.state is not PlantState.LEAVING or plant.removed_at is None:
            return False
        most = plant.terms.gone_within + max(min(plant.terms.gone_within, _MOST_AFTER), 2 * plant.terms.poll)
        return self.clock() - plant.removed_at > most * SECOND

    def _step(self) -> None:
        match next_action(self.plant):
            case Action.SEND:
                self._save(domain.before_sending(self.plant, self.clock()))
                put = self.hands.put()
                self._save(domain.after_sending(self.plant, put.failure, self.clock(), may_be_there=put.may_be_there))
            case Action.ASK:
                asked_at = self.clock()
                seen, failure = self.hands.ask()
                self._save(domain.after_question(self.plant, seen, self.clock(), failure, asked_at=asked_at))
            case Action.REMOVE:
                self._remove()
            case None:
                return

    def _remove(self) -> None:
        sent_at = self.clock()
        removal = self.hands.remove()
        failure = None if removal.found_nothing else removal.failure
        self._save(domain.after_removing(self.plant, failure, sent_at, self.clock()))

    def _save(self, after: Plant) -> None:
        before, self.plant = self.plant, after
        self.stepped(before, after)
