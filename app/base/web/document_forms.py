"""Forms of documents: fields as the document describes them, texts of a stored one, the document of submitted ones."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BeforeValidator, StringConstraints
from pydantic.fields import FieldInfo

from app.base.documents.fields import Document, format_duration, parse_seconds
from app.base.documents.json_texts import parse_json_text
from app.base.documents.widgets import Control, Widget, widgets_of
from app.base.errors import InvalidInputError, Problem
from app.base.web.forms import Form, parse_list, parse_number, parse_pairs

_CHECKED: Final = "yes"
MAX_ROWS: Final = 200
_MAX_DIGITS: Final = 4
_EMPTY: Final[tuple[Any, ...]] = ("", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field of a form, for templates and for reading a submitted form."""

    name: str
    label: str
    hint: str
    control: Control
    widget: Widget
    type: "_Type"
    length: int
    choices: Mapping[str, str]
    is_required: bool
    is_cleared: bool
    """Whether an empty field is null; it is else the default."""
    rows: Mapping[str, "FormField"] = field(default_factory=dict)
    optional_part: str = ""
    """Path of the document inside that it belongs to, where that may be missing: it is, if all its fields are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Type:
    """Values of a field by its annotation."""

    shape: type
    """str, float (any number), bool, tuple, dict or a document."""
    item: type = str
    """Of an entry of a list or a value of a mapping."""
    is_nullable: bool = False
    is_duration: bool = False
    length: int | None = None
    choices: tuple[str, ...] = ()


def form_fields(model: type[Document], *, kind: str = "", prefix: str = "") -> dict[str, FormField]:
    """Fields of a form by path, in the order of the document; those of documents inside by their paths in it."""
    fields: dict[str, FormField] = {}
    widgets = widgets_of(model, kind)
    for attribute, info in model.model_fields.items():
        name = info.alias or attribute
        path = prefix + name
        kind_type = _type_of(info)
        if issubclass(kind_type.shape, Document):
            inside = form_fields(kind_type.shape, kind=kind, prefix=f"{path}.")
            if kind_type.is_nullable:
                inside = {at: replace(one, optional_part=one.optional_part or path) for at, one in inside.items()}
            fields |= inside
        if name in widgets:
            fields[path] = _form_field(path, info, kind_type, widgets[name])
    return fields


def field_labels(fields: Mapping[str, FormField]) -> dict[str, str]:
    """Labels of fields by path."""
    return {path: one.label for path, one in fields.items()}


def document_texts(fields: Mapping[str, FormField], body: Mapping[str, Any]) -> Form:
    """Texts of a form that is filled from a stored document; secrets are left empty."""
    texts: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}
    for path, one in fields.items():
        value = _value_at(body, path)
        if one.control is Control.CHECKBOXES:
            lists[one.name] = tuple(map(str, value or ()))
        elif one.control is Control.ROWS:
            texts |= rows_texts(one, value or ())
        else:
            texts[one.name] = "" if one.widget.secret else _field_text(one, value)
    return Form(texts=texts, lists=lists)


def document_body(fields: Mapping[str, FormField], form: Form, *, keeps_secrets: bool = False) -> dict[str, Any]:
    """JSON of a submitted document, for the document to validate; an empty field is left to its default.

    `keeps_secrets`: null, which keeps the stored one, for an empty secret. Raises InvalidInputError for a mapping
    whose lines are no pairs.
    """
    body: dict[str, Any] = {}
    values = {path: field_value(one, form) for path, one in fields.items()}
    parts = {one.optional_part for path, one in fields.items() if values[path] not in _EMPTY}
    for path, one in fields.items():
        value = values[path]
        is_empty = value in _EMPTY
        if one.optional_part not in {"", *parts}:
            continue
        if is_empty and ((one.widget.secret and keeps_secrets) or one.is_cleared):
            value = None
        elif is_empty and not one.is_required:
            continue
        holder = body
        *around, key = path.split(".")
        for part in around:
            holder = holder.setdefault(part, {})
        holder[key] = value
    return body


def rows_texts(one: FormField, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Texts of numbered rows, the first 200 of them."""
    return {
        f"{one.name}[{place}].{name}": _field_text(inner, entry[name])
        for place, entry in enumerate(entries[:MAX_ROWS])
        for name, inner in one.rows.items()
        if entry.get(name) is not None
    }


def read_rows(one: FormField, form: Form) -> list[dict[str, str]]:
    """Rows that have a text, in their order. What an empty row sends too is none: the first value of a choice."""
    text_names = {name for name, inner in one.rows.items() if inner.control not in {Control.CHOICE, Control.HIDDEN}}
    places = {
        int(place)
        for name in form.texts
        if name.startswith(f"{one.name}[")
        for place, _, key in [name.removeprefix(f"{one.name}[").partition("].")]
        if key in text_names
        and place.isdecimal()
        and place.isascii()
        and len(place) <= _MAX_DIGITS
        and form.stripped(name)
    }
    return [
        {name: text for name in one.rows if (text := form.stripped(f"{one.name}[{place}].{name}"))}
        for place in sorted(places)
    ]


def field_value(one: FormField, form: Form) -> Any:
    """Return the JSON of a submitted field, for the document to validate. Raises InvalidInputError."""
    if one.control is Control.JSON:
        return _parse_json(one.name, form.get(one.name)) or ({} if one.type.shape is dict else None)
    if one.control is Control.CHECKBOX:
        return bool(form.get(one.name))
    if one.type.shape is tuple:
        return _entries(one, form)
    if one.type.shape is dict:
        item = parse_number if one.type.item is float else str
        pairs = parse_pairs(one.name, form.get(one.name), one.widget.separator)
        return {name: item(value) for name, value in pairs.items()}
    text = form.get(one.name) if one.widget.keeps_spaces else form.stripped(one.name)
    return parse_number(text) if one.type.shape is float else text


def _entries(one: FormField, form: Form) -> list[Any]:
    if one.control is Control.CHECKBOXES:
        return list(form.all(one.name))
    if one.control is Control.ROWS:
        return [document_body(one.rows, Form(texts=row)) for row in read_rows(one, form)]
    item = parse_number if one.type.item is float else str
    return [item(entry) for entry in parse_list(form.get(one.name))]


def _parse_json(path: str, text: str) -> Any:
    try:
        return parse_json_text(text, parse_constant=_refuse_constant) if text.strip() else None
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except ValueError:
        message = "is not JSON that can be sent"
    raise InvalidInputError([Problem(path=path, message=message)])


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _field_text(one: FormField, value: Any) -> str:
    if value is None or value is False:
        return ""
    if one.control is Control.JSON:
        return json.dumps(value, indent=2, ensure_ascii=False) if value != {} else ""
    if value is True:
        return _CHECKED
    if isinstance(value, Mapping):
        return "\n".join(f"{name}{one.widget.separator}{_number(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ("\n" if one.control is Control.AREA else ", ").join(map(str, value))
    return format_duration(value) if one.type.is_duration else _number(value)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value_at(body: Mapping[str, Any], path: str) -> Any:
    value: Any = body
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _form_field(path: str, info: FieldInfo, kind_type: _Type, widget: Widget) -> FormField:
    rows = form_fields(kind_type.item) if issubclass(kind_type.item, Document) else {}
    choices = widget.choices or {one: one.replace("_", " ") for one in kind_type.choices}
    return FormField(
        name=path,
        label=widget.title or info.title or path,
        hint=widget.hint or info.description or "",
        control=Control.PASSWORD if widget.secret else widget.control or _default_control(kind_type, choices, rows),
        widget=widget,
        type=kind_type,
        length=kind_type.length or widget.length,
        choices=choices,
        is_required=info.is_required(),
        is_cleared=kind_type.is_nullable and info.get_default(call_default_factory=False) is not None,
        rows=rows,
    )


def _default_control(kind_type: _Type, choices: Mapping[str, str], rows: Mapping[str, FormField]) -> Control:
    if rows:
        return Control.ROWS
    if kind_type.shape is bool:
        return Control.CHECKBOX
    if kind_type.shape is dict:
        return Control.AREA
    return Control.CHOICE if choices and kind_type.shape is str else Control.TEXT


def _type_of(info: FieldInfo) -> _Type:
    parts = list(_annotation_parts(info.annotation))
    marks = [*info.metadata, *(mark for _, around in parts for mark in around)]
    plain = [one for one, _ in parts if one is not type(None)]
    shape = plain[0]
    inside = [one for one, _ in _annotation_parts(get_args(shape)[-1])] if get_origin(shape) is dict else []
    if get_origin(shape) is tuple:
        inside = [one for one, _ in _annotation_parts(get_args(shape)[0])]
    lengths = (one.max_length for one in marks if isinstance(one, StringConstraints))
    return _Type(
        shape=_shape(shape),
        item=_shape(inside[0]) if inside else str,
        is_nullable=len(plain) < len(parts),
        is_duration=any(isinstance(one, BeforeValidator) and one.func is parse_seconds for one in marks),
        length=next((one for one in lengths if one is not None), None),
        choices=_choices(shape),
    )


def _annotation_parts(annotation: Any, around: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the types of an annotation, each with its metadata; lists and mappings stay whole."""
    if hasattr(annotation, "__metadata__"):
        yield from _annotation_parts(annotation.__origin__, (*around, *annotation.__metadata__))
    elif get_origin(annotation) in (None, tuple, dict, Literal):
        yield annotation, around
    else:
        for one in get_args(annotation):
            yield from _annotation_parts(one, around)


def _shape(annotation: Any) -> type:
    plain = get_origin(annotation) or annotation
    if plain in (int, float):
        return float
    if plain in (tuple, dict, bool) or (isinstance(plain, type) and issubclass(plain, Document)):
        return plain  # type: ignore[no-any-return] # an annotation may be anything
    return str


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    return tuple(map(str, annotation)) if isinstance(annotation, type) and issubclass(annotation, StrEnum) else ()
