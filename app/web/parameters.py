"""Parameters of addresses that several pages take."""

from collections.abc import Collection
from typing import Annotated, TypeVar

from fastapi import Query

from app.domain.errors import InvalidInputError, Problem
from app.domain.model import Category, Outcome, Reason, Verdict

Version = Annotated[str, Query(alias="measures_version", max_length=40)]
ChoiceT = TypeVar("ChoiceT", Verdict, Category, Reason, Outcome)


def refuse_other(text: str, known: Collection[str], path: str) -> None:
    """Raise InvalidInputError with the `path` where a text is none of these; an empty one among them says nothing."""
    if text not in known:
        raise InvalidInputError([other_than(known, path)])


def other_than(known: Collection[str], path: str) -> Problem:
    """Say that what stands at a path is none of these."""
    left_out = ", or left out" if "" in known else ""
    return Problem(path=path, message=f"is one of {', '.join(filter(None, known))}{left_out}")


def chosen(kind: type[ChoiceT], text: str, path: str) -> ChoiceT | None:
    """Read one of our own words; an empty text is no choice. Raises InvalidInputError with the `path`."""
    if not text:
        return None
    refuse_other(text, [str(one) for one in kind], path)
    return kind(text)
