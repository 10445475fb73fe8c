"""Views made of values: fields by their names, times as RFC 3339 in UTC, ids as texts, rounded numbers.

What answers, pages and commands show is a type, which `view_of` fills in. Absent measurements are None, never 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, TypeVar, Union, cast, get_args, get_origin, get_type_hints, overload

from typing_extensions import is_typeddict

from app.base.errors import NotFoundError
from app.base.values import TimeText

Moment = datetime | int
"""An aware time, or microseconds since 1970 as the store keeps them."""

ViewT = TypeVar("ViewT")

_DIGITS = 6
_MAX_ID_DIGITS = 18
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def view_of(kind: type[ViewT], /, *sources: Any, rounding: bool = False, **given: Any) -> ViewT:
    """Return a view: a field that is not given is that of its name of the first source that has one.

    Sources are values and other views. What lies within becomes a view likewise, microseconds where a `TimeText`
    belongs a time, a word where an enum belongs its member. With `rounding` floats of the sources are rounded. A field
    that none has is left out where it is not required. Raises LookupError for any other.
    """
    view = {
        name: given[name] if name in given else shown(_field(sources, name), rounding)
        for name, shown in _shapers_of(kind).items()  # type: ignore[arg-type] # a class can be hashed
        if name in given or name not in getattr(kind, "__optional_keys__", ()) or _has_field(sources, name)
    }
    return cast("ViewT", view if is_typeddict(kind) else kind(**view))


Shaper = Callable[[Any, bool], Any]
"""Gives a value as a view has it, rounded or not."""


@cache
def _shapers_of(kind: type) -> dict[str, Shaper]:
    return {name: _shaper(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _has_field(sources: Sequence[Any], name: str) -> bool:
    return any(name in one if isinstance(one, Mapping) else hasattr(one, name) for one in sources)


def _field(sources: Sequence[Any], name: str) -> Any:
    for source in sources:
        if isinstance(source, Mapping):
            if name in source:
                return source[name]
        elif hasattr(source, name):
            return getattr(source, name)
    raise LookupError(f"nothing has the field '{name}' of a view")


@cache
def _shaper(hint: Any) -> Shaper:  # noqa: PLR0911 - one for each kind of type
    """Return what shapes values for a field of this type; None stays None."""
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    if get_origin(hint) in {Union, UnionType}:
        *_, hint = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is Annotated and hint != TimeText:
        hint, *_ = get_args(hint)
    if get_origin(hint) in {list, dict}:
        inner = _shaper(get_args(hint)[-1])
        if get_origin(hint) is list:
            return lambda value, rounding: None if value is None else [inner(one, rounding) for one in value]
        return lambda value, rounding: value and {name: inner(one, rounding) for name, one in value.items()}
    if hint is float:
        return lambda value, rounding: rounded_or_none(value) if rounding else value
    if hint == TimeText:
        return lambda value, _: time_text(value) if isinstance(value, int) else value
    if is_typeddict(hint):
        return lambda value, rounding: (
            value if value is None or isinstance(value, Mapping) else view_of(hint, value, rounding=rounding)
        )
    if isinstance(hint, type) and issubclass(hint, StrEnum):  # a newer release may know further words
        return lambda value, _: next((member for member in hint if member == value), value)
    return lambda value, _: value


@overload
def time_text(moment: Moment) -> TimeText: ...
@overload
def time_text(moment: Moment | None) -> TimeText | None: ...
def time_text(moment: Moment | None) -> TimeText | None:
    """Return a time as RFC 3339 in UTC."""
    if moment is None:
        return None
    if isinstance(moment, int):
        moment = _EPOCH + timedelta(microseconds=moment)
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def id_number(opaque: str, kind: str) -> int:
    """Return an id from its text. Raises NotFoundError for an invalid one."""
    number = id_or_none(opaque)
    if number is None:
        raise NotFoundError(f"there is no {kind} '{opaque[:40]}'")
    return number


def id_or_none(text: str) -> int | None:
    """Return an id from its text: up to 18 digits, which fit 64 bits; None for any other text."""
    return int(text) if len(text) <= _MAX_ID_DIGITS and text.isascii() and text.isdecimal() else None


def id_text(number: int | None) -> str | None:
    """Return an id as its text."""
    return None if number is None else str(number)


def rounded_or_none(value: float | None) -> float | None:
    """Return a rounded number; None where there is none, also for NaN."""
    return None if value is None or math.isnan(value) else round(value, _DIGITS)


def rounded(value: float) -> float:
    """Return a rounded number."""
    return round(value, _DIGITS)


def numbers(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return rounded numbers; None for NaN."""
    return {name: rounded_or_none(value) for name, value in values.items()}
