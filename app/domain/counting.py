"""How many of something, in words: one canary, two canaries. Everything that tells people counts says them so."""

from collections.abc import Mapping
from typing import Final

_PLURALS: Final[Mapping[str, str]] = {"canary": "canaries", "query": "queries", "delivery": "deliveries"}


def counted(count: int, noun: str) -> str:
    """Say how many: `1 canary`, `2 canaries`, `1,200 runs`; the noun is given in the singular."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Give the noun as it follows a count: `run` after 1, else `runs`."""
    return noun if count == 1 else _PLURALS.get(noun, f"{noun}s")
