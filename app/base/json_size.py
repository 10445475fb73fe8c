"""The size of a JSON text, counted on its bytes before anything is built of it.

A text of 9 MB can hold three million objects, and building them takes gigabytes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_QUOTE = ord('"')
_COMMA, _OPEN, _CLOSE = 1, 2, 3
_KINDS = np.zeros(256, dtype=np.uint8)
_KINDS[ord(",")] = _COMMA
_KINDS[[ord("["), ord("{")]] = _OPEN
_KINDS[[ord("]"), ord("}")]] = _CLOSE


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """How much a JSON text may hold."""

    depth: int
    """Lists and objects within each other."""
    values: int
    """Texts, numbers and the like, lists and objects, all together."""
    entries: int
    """Those of one list or object."""


REQUEST_LIMITS: Final = JsonLimits(depth=40, values=1_000_000, entries=100_000)
"""Of a request, and of JSON within its texts; the documents need 25 levels."""
ANSWER_LIMITS: Final = JsonLimits(depth=1_000, values=1_000_000, entries=1_000_000)
"""Of an answer of another service, however large a body it may have; Python's parsers go no deeper either."""


def excess_of(text: bytes, limits: JsonLimits) -> str | None:
    """Say what a JSON text holds too much of; None = it is within the limits.

    Nothing is missed that a parser would build up to where the text stops being JSON. Time and memory are linear in
    the bytes, whatever they are.
    """
    if len(text) <= min(limits.values, limits.entries) and text.count(b"[") + text.count(b"{") <= limits.depth:
        return None  # a value takes a byte, a level a bracket
    kinds = _structure(text)
    # A value is the whole text, or follows an opening bracket or a comma.
    if 1 + np.count_nonzero(kinds != _CLOSE) > limits.values:
        return f"holds more than {limits.values:,} values; send it in parts"
    depths = _depths(kinds)
    if depths.max(initial=0) > limits.depth:
        return f"is nested more than {limits.depth:,} levels deep"
    longest = _longest(kinds, depths) if limits.entries < limits.values else 0
    if longest > limits.entries:
        return f"has a list or object of {longest:,} entries, the limit is {limits.entries:,}; send it in parts"
    return None


def excess_of_answer(body: bytes) -> str | None:
    """Say what the answer of another service holds too much of, whatever size is permitted; None = nothing."""
    excess = excess_of(body, ANSWER_LIMITS)
    return None if excess is None else f"the answer {excess.partition(';')[0]}"


def _structure(text: bytes) -> NDArray[np.uint8]:
    """Give the brackets and commas outside of strings, in order."""
    plain = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")  # JSON has backslashes within strings only
    characters = np.frombuffer(plain, dtype=np.uint8)
    kinds = _KINDS[characters]
    within = np.cumsum(characters == _QUOTE, dtype=np.uint8)  # wraps at 256, and its last bit stays right
    within &= 1
    kinds[within == 1] = 0
    structural: NDArray[np.uint8] = kinds[kinds != 0]
    return structural


def _depths(kinds: NDArray[np.uint8]) -> NDArray[np.int32]:
    steps = np.zeros(len(kinds), dtype=np.int32)
    steps[kinds == _OPEN] = 1
    steps[kinds == _CLOSE] = -1
    return np.cumsum(steps, dtype=np.int32)


def _longest(kinds: NDArray[np.uint8], depths: NDArray[np.int32]) -> int:
    """Count the entries of the longest container: the commas of its own level, and one."""
    longest = 0
    for level in range(1, int(depths.max(initial=0)) + 1):
        here = depths == level
        commas = np.cumsum(here & (kinds == _COMMA), dtype=np.int32)
        begun = np.flatnonzero(here & (kinds == _OPEN))
        counted = np.diff(commas[begun], append=commas[-1:])
        longest = max(longest, int(counted.max(initial=0)) + 1)
    return longest
