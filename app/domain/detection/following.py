"""Following a check from run to run: what to keep between two runs, and when to learn. Replay and service share it."""

from collections.abc import Callable
from dataclasses import dataclass

from app.domain.detection.values import Baseline, Fails, Floats, Members, Observation, Reading, Settings, State

Past = Callable[[int], tuple[Fails, Floats]]
"""Gives the newest eligible runs, at most so many, oldest first, the newest being the current one: `lost` (runs, n) and
`ndcg` (runs, n) as in Observation, columns as the members. -1 and NaN where a canary was not measured or not yet what
it is now. Eligible is a run that was observed while no alarm was open, is not part of one (its `since`), and during
which no alert of the check fired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """What is kept of a check between two runs."""

    state: State
    baseline: Baseline | None = None
    """None = it is warming up."""


def follow(members: Members) -> Follower:
    """Begin, or begin anew after a new normal was accepted: nothing is known, nothing is open."""
    raise NotImplementedError


def observe(
    follower: Follower, members: Members, observation: Observation, settings: Settings
) -> tuple[Follower, Reading]:
    """Take in one measured run; realigns first where the members are not those of the last run.

    While an alarm is open (`follower.state.open`) the baseline must have its `failures`. Raises ValueError else.
    """
    raise NotImplementedError


def learn_when_due(follower: Follower, past: Past, settings: Settings, *, eligible: bool) -> Follower:
    """Learn a baseline if it is time to, after `observe`; then the follower has another `baseline` than before.

    `eligible`: whether baselines may be learned of the run just observed: no alarm is open after it and no alert of
    the check is firing. `past` is called only if something is to be learned.
    """
    raise NotImplementedError
