"""Forms: submitted texts, read back into a document, and the fields as the document describes them.

Problems are sorted to the fields they are about. Which fields a page shows, and where, is its own.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from fastapi import Depends, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import StringConstraints
from pydantic.fields import FieldInfo
from starlette.datastructures import FormData

from app.base.api.requests import CSRF_FIELD, read_form_data
from app.base.db.keys import Scope
from app.base.documents.fields import (
    AnyDocument,
    Control,
    Document,
    Duration,
    Widget,
    format_duration,
    parse_document,
    widgets_of,
)
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.texts import parse_json_text
from app.base.values import Category, Outcome, Reason, Value, Verdict, field, replace
from app.base.views import id_or_none

_MAX_NUMBER_LENGTH = 18
_COMPOUND_FIELDS = frozenset({"rules", "cutoffs", "floors", "options", "vars", "request.json", "request.query"})
_STAND_IN: Final = "x"
"""A valid name, while the rest of a document is checked."""
_KEY_MISSING = re.compile("^the key '[^']*' is missing$")
_ENTRY = re.compile(r"\[([0-9]{1,9})\]")


class Form(Value):
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


FormInput = Annotated[Form, Depends(read_form)]
"""The form of a request, for a route that is a plain function and so runs in a thread of its own."""


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


def follow_form(act: Callable[[], str], show: Callable[..., Response]) -> Response:
    """Do what a form says and lead to the address that this returns, or show its page again with what is wrong.

    `show` takes `problems` and `status`: 422 for what the form says, 409 for what stands in its way.
    """
    try:
        return RedirectResponse(act(), status_code=303)
    except InvalidInputError as error:
        return show(problems=error.problems, status=422)
    except ConflictError as error:
        return show(problems=(Problem(message=str(error)),), status=409)


def parse_form(model: type[AnyDocument], body: Mapping[str, Any], others: Iterable[Problem] = ()) -> AnyDocument:
    """Return the document that a form describes. Raises InvalidInputError with all its problems, `others` among them.

    Those of a field that could not be read come in place of what is said of the text that stands for it.
    """
    problems = list(others)
    try:
        document = parse_document(model, body)
    except InvalidInputError as error:
        unread = {one.path for one in problems}
        problems += [one for one in with_hidden(model, body, error.problems) if one.path not in unread]
        raise InvalidInputError(problems) from None
    if problems:
        raise InvalidInputError(problems)
    return document


def with_hidden(model: type[Document], body: Mapping[str, Any], problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems of a form and what they hide, as a document is checked as a whole if its fields are valid.

    It is checked again without the invalid ones. Where more than its name is invalid, only what is then missed in
    an empty field counts: the rest may depend on what was left out.
    """
    wrong = {_outermost(one) for one in problems}
    required = {info.alias or name for name, info in model.model_fields.items() if info.is_required()}
    rest = {name: value for name, value in body.items() if name not in wrong}
    try:
        parse_document(model, rest | dict.fromkeys(wrong & required, _STAND_IN))
    except InvalidInputError as error:
        hidden = [one for one in error.problems if _outermost(one) not in wrong]
        filled = {"", *wrong, *(name for name, value in body.items() if value not in _EMPTY)}
        return (*problems, *(one for one in hidden if wrong <= {"slug", "key"} or _outermost(one) not in filled))
    return tuple(problems)


def _outermost(problem: Problem) -> str:
    return re.split(r"[.\[]", problem.path or "", maxsplit=1)[0]


def safe_path(path: str) -> str:
    """Return where to redirect after signing in: a path on this host, else the overview."""
    plain = path.isprintable() and "\\" not in path and path.startswith("/") and not path.startswith("//")
    return path if plain else "/"


def parse_number(text: str) -> Any:
    """Return the number a text stands for; any other text stays, for the document to refuse."""
    plain = text.strip()
    if len(plain) > _MAX_NUMBER_LENGTH or not plain.isascii():
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
        message = _KEY_MISSING.sub("must not be empty", problem.message)
        by_field[holder].append(f"{', '.join(inside)}: {message}" if inside else message)
    return dict(by_field)


def place_problems(problems: Iterable[Problem], fields: Collection[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Messages by field as `problems_by_field`, and those of them that are beside none of these fields."""
    wrong = problems_by_field(problems, fields)
    return wrong, [message for path, messages in wrong.items() if path not in fields for message in messages]


def label_problems(problems: Iterable[Problem], labels: Mapping[str, str]) -> tuple[Problem, ...]:
    """Problems whose path is the label of the innermost field around it, and the place in that field."""
    return tuple(
        problem
        if problem.path is None
        else replace(
            problem,
            path=_labelled_path(problem.path, labels),
            message=_KEY_MISSING.sub("must not be empty", problem.message),
        )
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
    revision = id_or_none(form.stripped("revision"))
    if revision is None:
        raise InvalidInputError([Problem(message="the form is incomplete; load the page again")])
    return revision


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


_CHECKED: Final = "yes"
MAX_ROWS: Final = 200
_MAX_DIGITS: Final = 4
_EMPTY: Final[tuple[Any, ...]] = ("", [], {})


class FormField(Value):
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


class _Type(Value):
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


def default_text(model: type[Document], attribute: str) -> str:
    """Text that a written-out form begins with: the default that the document gives a field."""
    return _number(model.model_fields[attribute].default)


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


def document_body(
    fields: Mapping[str, FormField], form: Form, *, keeps_secrets: bool = False, unread: list[Problem] | None = None
) -> dict[str, Any]:
    """JSON of a submitted document, for the document to validate; an empty field is left to its default.

    `keeps_secrets`: null, which keeps the stored one, for an empty secret. Raises InvalidInputError for a mapping
    whose lines are no pairs, unless its problems are to be added to `unread`, for `parse_form`: its text stays then.
    """
    body: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for path, one in fields.items():
        try:
            values[path] = field_value(one, form)
        except InvalidInputError as error:
            if unread is None:
                raise
            unread += error.problems
            values[path] = form.get(one.name)
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
        nothing: Any = {} if one.type.shape is dict else [] if one.type.shape is tuple else None
        return _parse_json(one.name, form.get(one.name)) or nothing
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
        is_duration=any(isinstance(one, Duration) for one in marks),
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
