"""Counts in words."""

import pytest

from app.base.texts import counted, plural


@pytest.mark.parametrize(
    ("count", "noun", "told"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (1, "canary", "1 canary"),
        (2, "measured canary", "2 measured canaries"),
        (2, "key", "2 keys"),
        (1_200, "judgment", "1,200 judgments"),
    ],
)
def test_one_is_told_from_many(count: int, noun: str, told: str) -> None:
    assert counted(count, noun) == told


def test_the_noun_alone_follows_a_count_that_is_written_elsewhere() -> None:
    assert (plural(1, "hit"), plural(3, "hit")) == ("hit", "hits")
