"""Detection: whether canaries fail more than in the baseline, since when, and which.

An e-detector in the Shiryaev-Roberts form (Shin, Ramdas and Rinaldo, "E-detectors", 2022). Values in, values out:
storing, and what follows an alarm, is for services.

    values            inputs, state and readings of a detector
    learning          a baseline from healthy runs
    betting_accounts  the bets on one run
    warm_up           three strikes and the Poisson tail, until there is a baseline
    evidence          the accounts and candidates after one run
    decision          one run: opening, culprits, closing
    habits            alarms that come back alike, which page nobody
    check_tracker     from run to run: when to learn
    serialization     as bytes
"""

from app.detection.domain.sentences import warming_note, warming_summary
from app.detection.domain.serialization import (
    pack_baseline,
    pack_habits,
    pack_state,
    unpack_baseline,
    unpack_habits,
    unpack_state,
)
from app.detection.domain.tracker import Follower, Past, follow, learn_when_due, observe
from app.detection.domain.values import (
    SIGNALS,
    Baseline,
    Change,
    Culprit,
    Habits,
    Key,
    Members,
    Observation,
    Reading,
    Settings,
    Signal,
    State,
)

__all__ = [
    "SIGNALS",
    "Baseline",
    "Change",
    "Culprit",
    "Follower",
    "Habits",
    "Key",
    "Members",
    "Observation",
    "Past",
    "Reading",
    "Settings",
    "Signal",
    "State",
    "follow",
    "learn_when_due",
    "observe",
    "pack_baseline",
    "pack_habits",
    "pack_state",
    "unpack_baseline",
    "unpack_habits",
    "unpack_state",
    "warming_note",
    "warming_summary",
]
