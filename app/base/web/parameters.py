"""Query parameters that several pages share."""

from collections.abc import Collection
from typing import Annotated, TypeVar

from fastapi import Query

from app.base.errors import InvalidInputError, Problem
from app.base.values import Category, Outcome, Reason, Verdict

Version = Annotated[str, Query(alias="measures_version", max_length=40)]
ChoiceT = TypeVar("ChoiceT", Verdict, Category, Reason, Outcome)


def refuse_other(text: str, choices: Collection[str], path: str) -> None:
    """Raise InvalidInputError at `path` unless a text is one of these."""
    if text not in choices:
        raise InvalidInputError([choice_problem(choices, path)])


def choice_problem(choices: Collection[str], path: str) -> Problem:
    """Return the problem of a value at a path that is none of these; "" among them means it may be left out."""
    left_out = ", or left out" if "" in choices else ""
    return Problem(path=path, message=f"is one of {', '.join(filter(None, choices))}{left_out}")


def parse_choice(kind: type[ChoiceT], text: str, path: str) -> ChoiceT | None:
    """Return the member of an enum; None for an empty text. Raises InvalidInputError at `path`."""
    if not text:
        return None
    refuse_other(text, [str(one) for one in kind], path)
    return kind(text)
