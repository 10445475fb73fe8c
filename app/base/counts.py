"""Counts with their nouns as sentences show them: `1 canary`, `2 canaries`."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 canary`, `2 canaries`, `1,200 runs`; the noun is given in the singular."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Return the form of a noun after a count: `run` after 1, else `runs`."""
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
