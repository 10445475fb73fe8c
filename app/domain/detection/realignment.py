"""Realigning: a detector goes on when canaries or groups come, go or change. Whoever is new is unknown."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain.detection.evidence import LOST
from app.domain.detection.learning import LEAST_RATE, usual
from app.domain.detection.values import UNMEASURED, Baseline, Level, Members, State


def realign(state: State, members: Members) -> State:
    """Give the state over other members: what it knows of a key or a group goes along, what is new begins at rest.

    A culprit that is gone is no culprit any more; while an alarm is open whoever is new may be another version of it,
    and is taken for a culprit instead, lest an edit end what nobody healed. The count of runs since the last change of
    members begins anew.
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
    )


def realign_baseline(baseline: Baseline, keys: Sequence[int | str]) -> Baseline:
    """Give the baseline over other canaries, the new ones unknown.

    What is usual is counted again where the failures are there, else it stays.
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
    """Say where each of the new stood among the old; -1 = nowhere."""
    places = {key: place for place, key in enumerate(old)}
    return np.array([places.get(key, -1) for key in new], np.intp)


def _taken(values: NDArray[Any], moved: NDArray[np.intp], new: float) -> NDArray[Any]:
    """Take the last axis along; `new` where there was nothing."""
    realigned = np.full((*values.shape[:-1], len(moved)), new, values.dtype)
    realigned[..., moved >= 0] = values[..., moved[moved >= 0]]
    return realigned


def _level(level: Level, moved: NDArray[np.intp]) -> Level:
    return Level(
        accounts=_taken(level.accounts, moved, 0),
        rises=_taken(level.rises, moved, 0),
        ages=_taken(level.ages, moved, 0),
    )
