"""Detection: whether canaries fail more than they do while all is well, since when, and which.

An e-detector in the Shiryaev-Roberts form (Shin, Ramdas and Rinaldo, "E-detectors", 2022). Values in, values out: who
stores what, and what follows of an alarm, is for services.

    values      what a detector is given, keeps and says
    learning    a baseline from runs that were well
    accounts    the bets on one run
    warming     three strikes and the Poisson tail, before anything is known
    detecting   one run: accounts, opening, culprits, closing
    following   from run to run: when to learn
    packing     as bytes
"""

from app.domain.detection.check_tracker import Follower, Past, follow, learn_when_due, observe
from app.domain.detection.sentences import warming_note, warming_summary
from app.domain.detection.serialization import pack_baseline, pack_state, unpack_baseline, unpack_state
from app.domain.detection.values import (
    SIGNALS,
    Baseline,
    Change,
    Culprit,
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
    "pack_state",
    "unpack_baseline",
    "unpack_state",
    "warming_note",
    "warming_summary",
]
