"""Jobs as values: what waits to be done, and what a process has taken. Their rows are in `local` and `postgresql`."""

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from app.base.values import Value

AT_ONCE: Final = 0
"""Due by every clock."""


class JobKind(StrEnum):
    """What there is to do; the key of a job names the row it is about."""

    RUN = "run"
    """Begin a run or carry out all of it; the key is its id."""
    SHARD = "shard"
    """Ask the canaries of one shard of a run; the part is the lane."""
    DELIVERY = "delivery"
    """Send what is due to a hook; the key is the id of the hook."""
    DIAGNOSIS = "diagnosis"
    """Find out why canaries of a run are degraded; the key is the id of the run."""
    RESCORING = "rescoring"
    """Judge recorded runs by corrected judgments; the key is the id of the re-scoring."""
    POOL = "pool"
    """Ask the retrievers of an annotation task; the key is its id."""
    REPORT = "report"
    """Write a report that is due and put it into the outbox; the key is its id."""
    RECALL = "recall"
    """Compute the pooled recall of an annotation task; the key is its id."""
    DRAWING = "drawing"
    """Draw what people label in a task, answers or pairs, and ask the judge about padded copies; the key is its id."""
    CALIBRATION = "calibration"
    """Compute how far the labels of a task confirm its judge; the key is the id of the task."""
    REACH = "reach"
    """Ask a sample of the traffic of a suite; the key is its id."""
    ANSWERS = "answers"
    """Have the generated answers of a run judged; the key is the id of the run."""
    SHADOW = "shadow"
    """Ask the candidate of a shadow what users asked; the key is the id of the shadow."""
    PLANT = "plant"
    """Carry on a planted document: put, asked for, removed; the key is its id."""
    RETENTION = "retention"
    """Delete what has expired; there is one, with the key 0."""


class NewJob(NamedTuple):
    """A job to be deferred. Of those with the same kind, key and part one waits at most: the earliest."""

    kind: JobKind
    key: int
    part: int = 0
    lock: str | None = None
    """Of the jobs with the same lock one is done at a time; None = of those with the same kind, key and part."""
    run_at: int = AT_ONCE
    """Not before, in microseconds since 1970."""

    @property
    def name(self) -> str:
        """What it is known by while it waits."""
        return f"{self.kind}:{self.key}:{self.part}"


class JobsWaiting(NamedTuple):
    """Jobs that a worker could take at once, were one free."""

    number: int
    oldest_seconds: float
    """For how long the oldest of them could have been taken, by the clock of the database; 0 = there is none."""


class Job(Value):
    """A job that this process has taken."""

    id: int
    kind: JobKind
    key: int
    part: int
    attempt: int
    """How often it had been taken before."""


class Room(NamedTuple):
    """How many more jobs of some kinds a process can do."""

    kinds: Collection[JobKind]
    most: int
