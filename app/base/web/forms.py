"""Texts of a submitted form by the path of its field, and its problems by the labels and fields people see."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData

from app.base.api.csrf import CSRF_FIELD, read_form_data
from app.base.api.keys import Scope
from app.base.errors import InvalidInputError, Problem

_MAX_DIGITS = 18
_COMPOUND_FIELDS = frozenset({"rules", "cutoffs", "floors", "options", "request.json", "request.query"})
_ENTRY = re.compile(r"\[([0-9]{1,9})\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Texts of a form by field name."""

    texts: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Every value of a name that may come several times."""

    def get(self, name: str, default: str = "") -> str:
        """Text of a field."""
        return self.texts.get(name, default)

    def stripped(self, name: str) -> str:
        """Text of a field without the white space around it."""
        return self.texts.get(name, "").strip()

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a field."""
        return self.lists.get(name, ())


async def read_form(request: Request) -> Form:
    """Texts of the form of a request, without the CSRF token."""
    return form_texts(await read_form_data(request))


def form_texts(form: FormData) -> Form:
    """Texts of parsed form data, without files and the CSRF token."""
    fields = form.multi_items()
    return read_fields((name, value) for name, value in fields if isinstance(value, str) and name != CSRF_FIELD)


def read_fields(pairs: Iterable[tuple[str, str]]) -> Form:
    """Form made of (name, value) pairs in one pass, as the sender chooses how many there are."""
    texts: dict[str, str] = {}
    lists: dict[str, list[str]] = defaultdict(list)
    for name, value in pairs:
        texts[name] = value
        lists[name].append(value)
    return Form(texts=texts, lists={name: tuple(values) for name, values in lists.items()})


def parse_number(text: str) -> Any:
    """Return the number a text stands for; any other text stays, for the document to refuse."""
    plain = text.strip()
    if len(plain) > _MAX_DIGITS or not plain.isascii():
        return plain
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return plain


def parse_list(text: str) -> list[str]:
    """Entries of a text, one per line or separated by commas."""
    return [part.strip() for part in text.replace(",", "\n").splitlines() if part.strip()]


def parse_pairs(path: str, text: str, separator: str = ": ") -> dict[str, str]:
    """Values by name, of lines `name: value`. Raises InvalidInputError; values are not quoted, they may be secrets."""
    values: dict[str, str] = {}
    for place, line in enumerate(text.splitlines(), 1):
        name, parted, value = line.partition(separator.strip())
        if not line.strip():
            continue
        if not parted or not name.strip():
            raise InvalidInputError(
                [Problem(path=path, message=f"line {place} is not of the form name{separator}value")]
            )
        if name.strip() in values:
            raise InvalidInputError([Problem(path=path, message=f"line {place} repeats a name")])
        values[name.strip()] = value.strip()
    return values


def problems_by_field(problems: Iterable[Problem], fields: Collection[str] = ()) -> dict[str, list[str]]:
    """Messages, with the place in a field of several things, by the innermost of these fields around it."""
    by_field: dict[str, list[str]] = defaultdict(list)
    for problem in problems:
        path = problem.path or ""
        holder = next((one for one in _enclosing_paths(path) if one in fields), path)
        inside = _place_in_field(path, holder) if holder in _COMPOUND_FIELDS else []
        by_field[holder].append(f"{', '.join(inside)}: {problem.message}" if inside else problem.message)
    return dict(by_field)


def label_problems(problems: Iterable[Problem], labels: Mapping[str, str]) -> tuple[Problem, ...]:
    """Problems whose path is the label of the innermost field around it, and the place in that field."""
    return tuple(
        problem if problem.path is None else replace(problem, path=_labelled_path(problem.path, labels))
        for problem in problems
    )


def _labelled_path(path: str, labels: Mapping[str, str]) -> str:
    holder = next((around for around in _enclosing_paths(path) if around in labels), None)
    if holder is None:
        return path
    return ", ".join([labels[holder], *_place_in_field(path, holder)])


def _place_in_field(path: str, holder: str) -> list[str]:
    inside = _ENTRY.sub(lambda entry: f".number {int(entry[1]) + 1}", path[len(holder) :])
    return [part for part in inside.split(".") if part]


def with_revision(form: Form, revision: int) -> Form:
    """Form with the revision of the object it was filled from, for `read_revision` when it comes back."""
    return replace(form, texts={**form.texts, "revision": str(revision)})


def read_revision(form: Form) -> int:
    """Revision a form was filled from: a newer one must not be overwritten. Raises InvalidInputError for none."""
    text = form.stripped("revision")
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise InvalidInputError([Problem(message="the form is incomplete; load the page again")])
    return int(text)


def has_scope(request: Request, scope: Scope) -> bool:
    """Whether the caller has a scope."""
    return bool(request.state.identity.scope.includes(scope))


def is_partial(request: Request) -> bool:
    """Whether a script asks for a part of the page: problems are then no failure of the request."""
    return request.headers.get("hx-request") == "true"


def _enclosing_paths(path: str) -> Iterator[str]:
    yield path
    for place in range(len(path) - 1, 0, -1):
        if path[place] in ".[":
            yield path[:place]
