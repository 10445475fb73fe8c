"""Forms as they were typed: texts by name, and what is wrong with them, by the labels people see and beside the fields.

A field is named by its path in the document it becomes (`auth.token`, `expected_chunks[0].id`), as problems are.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData

from app.api.csrf import CSRF_FIELD, read_form_data
from app.domain.errors import InvalidInputError, Problem
from app.services.catalog.api_keys import Scope

_LONGEST_NUMBER = 18
_OF_SEVERAL = frozenset({"rules", "cutoffs", "floors", "options", "request.json", "request.query"})
_ENTRY = re.compile(r"\[([0-9]{1,9})\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What a form holds."""

    texts: Mapping[str, str] = field(default_factory=dict)
    many: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Every value of a name that may come several times."""

    def get(self, name: str, otherwise: str = "") -> str:
        """Give a text as it was typed."""
        return self.texts.get(name, otherwise)

    def stripped(self, name: str) -> str:
        """Give a text without the white space around it."""
        return self.texts.get(name, "").strip()

    def all(self, name: str) -> tuple[str, ...]:
        """Give every value of a name."""
        return self.many.get(name, ())


async def read_form(request: Request) -> Typed:
    """Return the texts of a form, without the token of the session."""
    return typed_texts(await read_form_data(request))


def typed_texts(form: FormData) -> Typed:
    """Return the texts of a form, without its files and without the token of the session."""
    return typed((name, value) for name, value in form.multi_items() if isinstance(value, str) and name != CSRF_FIELD)


def typed(pairs: Iterable[tuple[str, str]]) -> Typed:
    """Gather what was typed, in one pass: whoever sends it chooses how much there is."""
    texts: dict[str, str] = {}
    many: dict[str, list[str]] = defaultdict(list)
    for name, value in pairs:
        texts[name] = value
        many[name].append(value)
    return Typed(texts=texts, many={name: tuple(values) for name, values in many.items()})


def number(text: str) -> Any:
    """Read what was typed into a field of numbers; what is none stays text, for the document to complain about."""
    plain = text.strip()
    if len(plain) > _LONGEST_NUMBER or not plain.isascii():
        return plain
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return plain


def lines(text: str) -> list[str]:
    """Read one entry per line, or several between commas."""
    return [part.strip() for part in text.replace(",", "\n").splitlines() if part.strip()]


def pairs(path: str, text: str, separator: str = ": ") -> dict[str, str]:
    """Read `name: value`, one per line. Raises InvalidInputError; values are not quoted, they may be secrets."""
    found: dict[str, str] = {}
    for place, line in enumerate(text.splitlines(), 1):
        name, parted, value = line.partition(separator.strip())
        if not line.strip():
            continue
        if not parted or not name.strip():
            raise InvalidInputError(
                [Problem(path=path, message=f"line {place} is not of the form name{separator}value")]
            )
        if name.strip() in found:
            raise InvalidInputError([Problem(path=path, message=f"line {place} repeats a name")])
        found[name.strip()] = value.strip()
    return found


def beside(problems: Iterable[Problem], fields: Collection[str] = ()) -> dict[str, list[str]]:
    """Sort what is wrong by the field it is about: the innermost of these fields that holds its place.

    Of a field that holds several things it is said which is meant.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for problem in problems:
        path = problem.path or ""
        field_around = next((around for around in _around(path) if around in fields), path)
        inside = _inside(path, field_around) if field_around in _OF_SEVERAL else []
        found[field_around].append(f"{', '.join(inside)}: {problem.message}" if inside else problem.message)
    return dict(found)


def named(problems: Iterable[Problem], labels: Mapping[str, str]) -> tuple[Problem, ...]:
    """Say where problems are by the labels people see: that of the innermost field around, and the place in it."""
    return tuple(
        problem if problem.path is None else replace(problem, path=_name(problem.path, labels)) for problem in problems
    )


def _name(path: str, labels: Mapping[str, str]) -> str:
    field_around = next((around for around in _around(path) if around in labels), None)
    if field_around is None:
        return path
    return ", ".join([labels[field_around], *_inside(path, field_around)])


def _inside(path: str, field_around: str) -> list[str]:
    """Say where in a field a place is, in words from the outside in."""
    inside = _ENTRY.sub(lambda entry: f".number {int(entry[1]) + 1}", path[len(field_around) :])
    return [part for part in inside.split(".") if part]


def opened_with(form: Typed, revision: int) -> Typed:
    """Say in a form which version of a thing it is filled from, for `revision_of` to read when it comes back."""
    return replace(form, texts={**form.texts, "revision": str(revision)})


def revision_of(form: Typed) -> int:
    """Read which version of a thing a form was opened with: what came since is not to be saved over.

    Raises InvalidInputError where the form does not say.
    """
    text = form.stripped("revision")
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise InvalidInputError([Problem(message="the form is incomplete; load the page again")])
    return int(text)


def may(request: Request, scope: Scope) -> bool:
    """Whether whoever asks has a scope."""
    return bool(request.state.identity.scope.includes(scope))


def is_partial(request: Request) -> bool:
    """Whether a script asks for a part of the page: problems are then no failure of the request."""
    return request.headers.get("hx-request") == "true"


def _around(path: str) -> Iterator[str]:
    yield path
    for place in range(len(path) - 1, 0, -1):
        if path[place] in ".[":
            yield path[:place]
