"""Parameters of addresses that several pages take."""

from typing import Annotated, TypeVar

from fastapi import Query

from app.domain.errors import InvalidInputError, Problem
from app.domain.model import Category, Outcome, Reason, Verdict

Version = Annotated[str, Query(alias="measures_version", max_length=40)]
ChoiceT = TypeVar("ChoiceT", Verdict, Category, Reason, Outcome)


def chosen(kind: type[ChoiceT], text: str, path: str) -> ChoiceT | None:
    """Read one of our own words; an empty text is no choice. Raises InvalidInputError with the `path`."""
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise InvalidInputError([Problem(path=path, message=f"is one of {', '.join(kind)}")]) from None
