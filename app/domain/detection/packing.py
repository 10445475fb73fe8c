"""Detectors and baselines as bytes: a JSON head, then plain arrays. Never pickle: bytes of a database are no program."""

from app.domain.detection.values import Baseline, State


def pack_state(state: State) -> bytes:
    """Write a state; `unpack_state` gives an equal one."""
    raise NotImplementedError


def unpack_state(data: bytes) -> State:
    """Read a state. Raises ValueError where the bytes are none, or of another version."""
    raise NotImplementedError


def pack_baseline(baseline: Baseline) -> tuple[bytes, bytes]:
    """Write a baseline: what each run needs, and the failures, needed only while an alarm is open."""
    raise NotImplementedError


def unpack_baseline(body: bytes, failures: bytes | None = None) -> Baseline:
    """Read a baseline, with its failures if they are given. Raises ValueError as `unpack_state` does."""
    raise NotImplementedError
