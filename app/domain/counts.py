"""How many of something, in words: one canary, two canaries. Everything that tells people counts says them so."""


def counted(count: int, noun: str) -> str:
    """Say how many: `1 canary`, `2 canaries`, `1,200 runs`; the noun is given in the singular."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Give the noun as it follows a count: `run` after 1, else `runs`."""
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
