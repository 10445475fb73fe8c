"""Sentences for people of pydantic's errors. Values are never quoted where a secret could stand."""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.base.documents.fields import (
    DID_YOU_MEAN,
    MOST_PROBLEMS,
    PATTERN_TEXTS,
    Document,
    Place,
    did_you_mean,
    one_line,
    suggest_name,
)
from app.base.documents.http_fields import AUTH_SECRETS, NAMES, TLS_TEXTS
from app.base.errors import InvalidInputError, Problem

FILE_TWINS = {f"{key}_file": key for key in ("secret", "routing_key", "headers", *AUTH_SECRETS, *TLS_TEXTS)}
"""Keys of canary files that name a file holding the value of the key on the right."""

AnyDocument = TypeVar("AnyDocument", bound=Document)


def parse_document(model: type[AnyDocument], data: Any) -> AnyDocument:
    """Return the document `data` describes, or raise InvalidInputError with every problem and its path."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidInputError(problems_of(model, error.errors(include_url=False))) from None


def problems_of(model: type[BaseModel], errors: Iterable[ErrorDetails]) -> list[Problem]:
    """Return one problem per pydantic error of `model`, each with its path (`rules[0].critical`); at most 100.

    Of one mapping, unknown keys like a known one come first and missing keys last: they are often the same mistake.
    """
    first = list(islice(errors, MOST_PROBLEMS + 1))
    mappings = {place: at for at, place in reversed(list(enumerate(error["loc"][:-1] for error in first)))}
    ranked = [
        (
            mappings[error["loc"][:-1]],
            (error["type"] == "missing") - (error["type"] == "extra_forbidden" and DID_YOU_MEAN in message),
            Problem(message=message, path=path_of(place_of(error)) or None),
        )
        for error in first[:MOST_PROBLEMS]
        for message in (message_of(model, error),)
    ]
    problems = [problem for *_, problem in sorted(ranked, key=lambda one: one[:2])]
    return (
        problems
        if len(first) <= MOST_PROBLEMS
        else [*problems, Problem(message="and more of the kind; mend these first")]
    )


def place_of(error: ErrorDetails) -> Place:
    """Return the place of a pydantic error, without an unknown key beside secrets, which may be one."""
    place = error["loc"]
    return place[:-1] if error["type"] == "extra_forbidden" and _may_be_secret(place) else place


def path_of(place: Place) -> str:
    """Text of a place: `canaries[2].expected_chunks[0].grade`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def message_of(model: type[BaseModel], error: ErrorDetails) -> str:
    """Message of an error, without the path."""
    kind, limits, given = error["type"], error.get("ctx", {}), error["input"]
    if kind == "extra_forbidden":
        place = error["loc"]
        message = _unknown_key(
            str(place[-1]), _fields_at_place(model, place[:-1]), quotes_key=not _may_be_secret(place)
        )
    elif kind == "missing":
        message = f"the key '{error['loc'][-1]}' is missing"
    elif kind in _EXPECTED_TYPES:
        fraction = kind == "int_type" and isinstance(given, float)
        kind_given = "a fraction" if fraction else _type_name(given)
        message = f"must be {_EXPECTED_TYPES[kind]}, not {kind_given}{_type_hint(kind, given)}"
    elif kind in {"enum", "literal_error"}:
        message = _choice_message(str(limits["expected"]), given)
    elif kind == "string_pattern_mismatch":
        value_text = f"'{_printable(given)}'" if given else "empty"
        near = suggest_name(limits["pattern"], given)
        message = f"must be {PATTERN_TEXTS.get(limits['pattern'], 'of the right form')}, not {value_text}"
        message += f"; try '{near}'" if near else ""
    elif kind == "too_long" and isinstance(given, str):
        message = _LIMITS["string_too_long"].format_map(limits)
    else:
        message = _LIMITS[kind].format_map(limits) if kind in _LIMITS else error["msg"]
        if kind == "less_than_equal" and limits["le"] == 1 and _LEAST_PERCENT <= given <= _PERCENT:
            message += _write_instead(given / _PERCENT, f"{given:g}%")
    return message


def _may_be_secret(place: Place) -> bool:
    """Whether the unknown key at the end of a place could be a secret put where its key belongs."""
    key = str(place[-1])
    return place[-2:-1] in {("auth",), ("tls",)} and key not in NAMES and key not in FILE_TWINS


def _unknown_key(key: str, fields: list[list[str]], *, quotes_key: bool) -> str:
    """Message for an unknown key, with the nearest known one, or else all of them."""
    if key in FILE_TWINS:
        return f"'{key}' names a file of this server; only canary files may use it"
    for names in fields:
        if key in names[1:]:
            return f"'{key}' is another name of '{names[0]}'; write one of the two"
    if [key] in fields:
        return f"'{key}' belongs to another kind"
    names_there = [names[0] for names in fields]
    near = did_you_mean(key, names_there) or (f"; known are: {', '.join(names_there)}" if names_there else "")
    return (
        f"unknown key '{_printable(key)}'{near}"
        if quotes_key
        else f"unknown key, not quoted as it may be a secret{near}"
    )


_PERCENT, _LEAST_PERCENT = 100, 5
_NUMBER_TEXT = re.compile(r"([0-9]{1,9})(?:[.,]([0-9]{1,9}))? ?%|([0-9]{1,9}),([0-9]{1,9})")
"""Numbers as people write them, though not as documents have them: `90%`, `0,9`."""
_EXPECTED_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_LIMITS = {
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_long": "must be at most {max_length} characters long",
    "string_too_short": "must be at least {min_length} characters long",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
}


def _type_name(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    for types, name in ((int | float, "a number"), (str, "text"), (list | tuple, "a list"), (Mapping, "a mapping")):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


def _type_hint(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in {"yes", "no", "on", "off", "y", "n"}:
        return f" ('{value}')"
    spelled = _NUMBER_TEXT.fullmatch(value.strip()) if kind == "float_type" and isinstance(value, str) else None
    if spelled:
        number = float(f"{spelled[1] or spelled[3]}.{spelled[2] or spelled[4] or 0}")
        return _write_instead(number / _PERCENT if spelled[1] else number, spelled[0])
    return ""


def _write_instead(number: float, spelled: str) -> str:
    return f"; write {number:.6g} for {spelled}"


def _choice_message(expected: str, value: Any) -> str:
    options = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    near = did_you_mean(value, options) if isinstance(value, str) else ""
    found = f"'{_printable(value)}'" if isinstance(value, str) else _type_name(value)
    return f"must be one of {', '.join(options)}, not {found}{near}"


def _printable(value: Any) -> str:
    return "".join(character if character.isprintable() else "�" for character in one_line(str(value)))


def _fields_at_place(model: type[BaseModel], place: Place) -> list[list[str]]:
    """Return the names of each field of the documents that may stand at `place`, the preferred one first."""
    models = [model]
    for part in place:
        if isinstance(part, str):
            fields = (field for model in models for names, field in _named_fields(model) if part in names)
            models = [inner for field in fields for inner in _nested_models(field.annotation)]
    every = [names for model in models for names, _ in _named_fields(model)]
    return [names for position, names in enumerate(every) if names not in every[:position]]


def _named_fields(model: type[BaseModel]) -> list[tuple[list[str], FieldInfo]]:
    return [
        ([str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [field.alias or name], field)
        for name, field in model.model_fields.items()
        for alias in (field.validation_alias,)
    ]


def _nested_models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _nested_models(inner)]
