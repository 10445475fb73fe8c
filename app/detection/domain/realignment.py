"""Realignment: carries a detector over to changed canaries or groups. New ones are unknown."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.detection.domain.evidence import LOST
from app.detection.domain.learning import LEAST_RATE, usual
from app.detection.domain.values import UNMEASURED, Baseline, Level, Members, State


def realign(state: State, members: Members) -> State:
    """Return the state for other members: known keys and groups keep theirs, new ones begin at rest.

    A removed canary is no culprit any more; while an alarm is open a new one may be another version of it, and becomes
    a culprit instead, so that an edit does not end the alarm. The count of runs since the last change of members is
    reset.
    """
    moved = _moved(state.keys, members.keys)
    culprits = _taken(state.culprits, moved, 0)
    if state.open and np.count_nonzero(culprits) < np.count_nonzero(state.culprits):
        culprits[moved < 0] = LOST
    between = _moved(state.groups, tuple(members.groups))
    last = _taken(state.last, moved, UNMEASURED)
    return replace(
        state,
        keys=members.keys,
        groups=tuple(members.groups),
        canaries=_level(state.canaries, moved),
        grouped=_level(state.grouped, between),
        last=last,
        passes=_taken(state.passes, moved, 0),
        misses=_taken(state.misses, moved, 0),
        streak=_taken(state.streak, moved, 0),
        lately=_taken(state.lately, moved, np.nan),
        failing=int((last[0] == 1).sum()),
        fresh=state.fresh if state.keys == members.keys else 0,
        culprits=culprits,
        struck=_taken(state.struck, moved, False),
        named=_taken(state.named, moved, 0),
        recent=_taken(state.recent, moved, 0),
    )


def realign_baseline(baseline: Baseline, keys: Sequence[int | str]) -> Baseline:
    """Return the baseline for other canaries, the new ones unknown.

    `usual` is computed again where the failures are loaded, else it stays.
    """
    moved = _moved(baseline.keys, keys)
    known = _taken(baseline.known, moved, False)
    failures = None if baseline.failures is None else _taken(baseline.failures, moved, False)
    counts = baseline.usual if failures is None else (usual(failures[0][:, known]), usual(failures[1][:, known]))
    return replace(
        baseline,
        keys=tuple(keys),
        known=known,
        rates=_taken(baseline.rates, moved, 1 - LEAST_RATE),
        floors=_taken(baseline.floors, moved, np.nan),
        last=_taken(baseline.last, moved, UNMEASURED),
        usual=counts,
        failures=failures,
        usual_lost=max(baseline.usual_lost, baseline.usual[0]),
    )


def _moved(old: Sequence[Hashable], new: Sequence[Hashable]) -> NDArray[np.intp]:
    """Old position of each new member; -1 = none."""
    places = {key: place for place, key in enumerate(old)}
    return np.array([places.get(key, -1) for key in new], np.intp)


def _taken(values: NDArray[Any], moved: NDArray[np.intp], new: float) -> NDArray[Any]:
    """Values with a realigned last axis; `new` for new members."""
    realigned = np.full((*values.shape[:-1], len(moved)), new, values.dtype)
    realigned[..., moved >= 0] = values[..., moved[moved >= 0]]
    return realigned


def _level(level: Level, moved: NDArray[np.intp]) -> Level:
    return Level(
        accounts=_taken(level.accounts, moved, 0),
        rises=_taken(level.rises, moved, 0),
        ages=_taken(level.ages, moved, 0),
    )
