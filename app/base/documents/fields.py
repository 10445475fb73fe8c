"""Documents: types and widgets of their fields, schedules, and sentences for people of what is wrong in one.

Strict, so that nothing is guessed: `yes` is not true, "5" is not 5. One exception: a text that came out of a
`${VARIABLE}` is read as the number or boolean its field asks for, because an environment holds only text. No message
quotes a value where a secret could stand. Which fields a document has is defined in its own module.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, get_args
from urllib.parse import urlsplit

from annotated_types import GroupedMetadata
from pydantic import (
    AfterValidator,
    AliasChoices,
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from app.base.errors import InvalidInputError, Problem
from app.base.schedules import Schedule, parse_schedule
from app.base.values import Value

MOST_PROBLEMS = 100  # a hostile body can hold millions
Place = tuple[str | int, ...]
"""Keys and list positions in a document, from the outside in."""


class Document(BaseModel):
    """Base of the documents of canary files and the REST API: frozen, no unknown keys, no input in errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema)
        described.update(standard := standard_keywords(described))
        for keyword in described.keys() - standard.keys():
            del described[keyword]
        return schema

    def data(self) -> dict[str, Any]:
        """Return the JSON values under their wire names, every default written out, secrets included."""
        return self.model_dump(mode="json", by_alias=True)

    def json_text(self) -> str:
        """Return `data` as JSON text, in a third of the time that encoding it takes."""
        return self.model_dump_json(by_alias=True)

    def content_hash(self) -> str:
        """Return the SHA-256 (64 hex digits) of a document without secrets; equal however it is written."""
        return hash_content(self, self.model_dump(mode="json", by_alias=True, exclude_defaults=True))


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def hash_content(document: Document, lean: dict[str, Any], secrets: Iterable[str] = ()) -> str:
    """Return the SHA-256 of a document, given its JSON without defaults and the names of the secrets left out of it.

    Independent of the order of keys and sets; without defaults, or a new field in a later release would change all.
    """
    for name in ("tags", "hooks"):
        if isinstance(lean.get(name), list):
            lean[name] = sorted(lean[name])
    meaning = _canonical([type(document).__name__, lean, sorted(secrets)])
    return hashlib.sha256(meaning.encode()).hexdigest()


class SecretPart(Document):
    """Base of `auth` and `tls`: an unknown key there may be a secret in the wrong place, and is never quoted."""

    KNOWN: ClassVar[set[str]] = set()
    """Every key that one of them knows."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_config: Any) -> None:
        """Note the keys of another kind."""
        cls.KNOWN.update(cls.model_fields)


FILE_TWINS: Final = frozenset(
    f"{key}_file"
    for key in (
        *("secret", "routing_key", "headers", "token", "key", "password", "client_secret", "secret_key"),
        *("session_token", "certificate", "authority"),
    )
)
"""Keys of canary files that name a file holding the value of the key without the ending."""


class VariableText(str):
    """Text that came, in whole or in part, from a variable."""

    __slots__ = ()


def field_errors(problems: Iterable[tuple[Place, str]]) -> ValidationError:
    """Return the error of a validator for problems at places below the value it was given."""
    details = [
        InitErrorDetails(type=PydanticCustomError("invalid", "{message}", {"message": message}), loc=place, input=None)
        for place, message in problems
    ]
    return ValidationError.from_exception_data("document", details)


def field_error(message: str) -> PydanticCustomError:
    """Return the error of a validator for the value it was given."""
    return PydanticCustomError("invalid", "{message}", {"message": message})


_LEAST_BEGINNING = 4
DID_YOU_MEAN = "; did you mean "


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the first name that begins so, or the nearest; "" when none is near."""
    near = nearest_name(word, known)
    return f"{DID_YOU_MEAN}'{near}'?" if near else ""


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the first name that begins so, or the nearest; None when none is near."""
    names = list(known)
    begun = [name for name in names if len(word) >= _LEAST_BEGINNING and name.startswith(word)]
    return next(iter(begun or get_close_matches(word, names, n=1)), None)


def check_kind(what: str, value: object, built: Sequence[str]) -> None:
    """Raise for a kind that does not exist; other types are left to their own validation."""
    if not isinstance(value, str) or value in built:
        return
    near = did_you_mean(value, built)
    listed = f"{' B' if near else '; b'}uilt are: {', '.join(built)}"
    raise field_error(f"unknown {what} '{one_line(value)}'{near}{listed}")


def one_line(text: str) -> str:
    """Return the text on one line, cut to at most 60 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


_LONGEST_LINE = 60
INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
NUMBER = re.compile(r"[-+]?(?:\.[0-9]{1,400}|[0-9]{1,400}(?:\.[0-9]{0,400})?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, Any] = {"": None, "~": None} | {
    spelled: value
    for word, value in {"null": None, "true": True, "false": False}.items()
    for spelled in (word, word.capitalize(), word.upper())
}


def parse_scalar(text: str) -> Any:
    """Return what an unquoted YAML 1.2 scalar (core schema, decimal numbers) means: null, boolean, number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        return float(text)
    return text


def from_variable(value: Any) -> Any:
    """Return the scalar that the text of a variable stands for, as if it were written in its place."""
    return parse_scalar(value) if isinstance(value, VariableText) else value


_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def _storable(text: str) -> str:
    """Return the text; raise for control characters and halves of surrogate pairs, which a database cannot take."""
    match = _UNSTORABLE.search(text)
    if match:
        raise field_error(f"must not hold the character U+{ord(match[0]):04X}")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise field_error("must not be blank")
    return text


FromVariable = BeforeValidator(from_variable)
Flag = Annotated[bool, FromVariable, Strict()]
Whole = Annotated[int, FromVariable, Strict()]
Number = Annotated[float, FromVariable, Strict(), Field(allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]

Text = Annotated[str, AfterValidator(_not_blank), AfterValidator(_storable)]
ForeignText = Annotated[str, AfterValidator(partial(_UNSTORABLE.sub, " "))]
"""Text of others: what a database cannot take becomes a space."""
Name = Annotated[Text, StringConstraints(max_length=1024)]
SLUG = r"^[a-z0-9-]{1,64}$"
Slug = Annotated[str, StringConstraints(pattern=SLUG)]
CANARY_KEY = r"^[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}$"
CanaryKey = Annotated[str, StringConstraints(pattern=CANARY_KEY)]
RuleKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9@._:-]{0,127}$")]

PATTERN_TEXTS = {
    SLUG: "1 to 64 lower-case letters, digits and hyphens",
    CANARY_KEY: "1 to 128 letters, digits and . _ : - and not begin with . : or -",
    "^[A-Za-z0-9_][A-Za-z0-9@._:-]{0,127}$": "1 to 128 letters, digits and @ . _ : - and not begin with @ . : or -",
}
LONGEST_SLUG, _LONGEST_KEY, _MOST_READ = 64, 128, 1_000


def suggest_name(pattern: str, text: str) -> str:
    """Return the nearest name a pattern above takes: `my-check` for `My check!`; "" for other scripts."""
    if pattern not in PATTERN_TEXTS:
        return ""
    text = text.strip()[:_MOST_READ]
    if pattern == SLUG:
        return re.sub(r"[^a-z0-9]+", "-", _plain_letters(text.casefold())).strip("-")[:LONGEST_SLUG].rstrip("-")
    kept = re.sub(r"[^A-Za-z0-9@._:-]+" if "@" in pattern else r"[^A-Za-z0-9._:-]+", "-", _plain_letters(text))
    return kept.lstrip("@.:-")[:_LONGEST_KEY].rstrip("-")


def _plain_letters(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Return the seconds of `500ms`, `30s`, `5m`, `1h` or `1d`; ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"'{one_line(text)}' is not a duration; write for example 30s, 5m, 1h or 1d")
    return int(match[1]) * _UNITS[match[2]]


def format_duration(seconds: float) -> str:
    """Return the shortest text `parse_duration` reads back to these seconds, to the millisecond."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{round(seconds / _UNITS[unit])}{unit}"
    return f"{round(seconds * 1000)}ms"


def parse_seconds(value: Any) -> Any:
    """Return the seconds of a duration such as `10s`; numbers are seconds already, other types stay."""
    value = from_variable(value)
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise field_error(str(error)) from None


def check_seconds(
    value: Any, seconds: float, *, least: float, most: float, units: Sequence[str] = tuple(_UNITS)
) -> None:
    """Raise where a duration is out of bounds; of a bare number the error says that it was read as seconds."""
    if least <= seconds <= most:
        return
    bounds = f"must be between {format_duration(least)} and {format_duration(most)}"
    number = from_variable(value)
    if isinstance(number, str):
        raise field_error(bounds)
    fitting = (unit for unit in units if least <= number * _UNITS[unit] <= most)
    meant = next((f": say its unit, for example {number}{unit}" for unit in fitting), "")
    raise field_error(f"{bounds}; {number} is read as {number} s{meant if isinstance(number, int) else ''}")


@dataclass(frozen=True, slots=True)
class Duration(GroupedMetadata):
    """Marks seconds between two bounds, which may also be written as a text such as `10s`; kept to the millisecond."""

    least: float
    most: float
    description: str

    def __iter__(self) -> Iterator[Any]:
        """Yield the validators, and what the JSON Schema says."""
        yield from (BeforeValidator(parse_seconds), Strict(), AllowInfNan(allow_inf_nan=False))
        yield from (AfterValidator(lambda seconds: round(seconds, 3)), WrapValidator(self._check))
        number = {"type": "number", "minimum": self.least, "maximum": self.most}
        text = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}
        yield WithJsonSchema({"anyOf": [number, text], "description": self.description}, mode="validation")

    def _check(self, value: Any, handler: ValidatorFunctionWrapHandler) -> float:
        seconds: float = handler(value)
        check_seconds(value, seconds, least=self.least, most=self.most)
        return seconds


Seconds = Annotated[float, Duration(0.1, 300, "Seconds, or a duration such as 10s.")]
MaxAge = Annotated[
    float, Duration(1, 316_224_000, "How old the newest of the top k hits may be: seconds, or a duration such as 2d.")
]
MaxLatency = Annotated[
    float, Duration(0.001, 300, "How long an answer may take: seconds, or a duration such as 800ms.")
]


def check_url(text: str, *, schemes: Sequence[str] = ("http", "https")) -> str:
    """Return the address, or raise for another scheme or for a user, a placeholder or a fragment in it."""
    if not re.fullmatch(r"[!-~]+", text) or "\\" in text:
        raise field_error("must be one web address without spaces; write other characters as %XX")
    if "{{" in text:
        raise field_error("must not hold a placeholder; put it under request: query or json")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        begins = " or ".join(f"{scheme}://" for scheme in schemes)
        raise field_error(f"must be an address that begins with {begins} and names a host")
    if "@" in parts.netloc:
        raise field_error("must not hold a user name or password; addresses are shown, headers and secrets are not")
    if parts.fragment:
        raise field_error("must not hold a fragment (#...); it would not be sent")
    return text


Url = Annotated[str, StringConstraints(max_length=2048), AfterValidator(check_url)]


def _json_value(value: Any, depth: int = 0) -> Any:
    if depth > 20:  # noqa: PLR2004 - deeper than any request template; keeps recursion harmless
        raise field_error("must not be nested more than 20 levels deep")
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {_storable(key): _json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, depth + 1) for item in value]
    return _json_scalar(value)


def _json_scalar(value: Any) -> Any:
    if isinstance(value, str):
        return _storable(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and value - value == 0:  # neither infinite nor NaN, which JSON does not have
        return value
    raise field_error("must be JSON: texts, numbers of 64 bits, true, false, null, lists and mappings")


FreeJson = Annotated[Any, BeforeValidator(_json_value), WithJsonSchema({})]


def texts_in(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield (place, text) of every text in a JSON value."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_in(item, (*place, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from texts_in(item, (*place, position))


def repeated_positions(values: Iterable[Hashable]) -> Iterator[int]:
    """Yield the positions of values that occurred before."""
    earlier: set[Hashable] = set()
    for position, value in enumerate(values):
        if value in earlier:
            yield position
        earlier.add(value)


def each_once(message: str, *, of: Callable[[Any], Hashable] | None = None, below: Place = ()) -> AfterValidator:
    """Return the validator of a list whose items, or what is `of` them, occur once; `{}` in the message is the item.

    The problem is `below` the place of an item.
    """

    def validate(items: Any) -> Any:
        names = list(items or ()) if of is None else [of(item) for item in items or ()]
        again = list(repeated_positions(names))
        if again:
            raise field_errors(((at, *below), message.format(one_line(str(names[at])))) for at in again)
        return items

    return AfterValidator(validate)


class Control(StrEnum):
    """The HTML control of a field."""

    TEXT = "text"
    AREA = "area"
    CHOICE = "choice"
    CHECKBOX = "checkbox"
    CHECKBOXES = "checkboxes"
    ROWS = "rows"
    DATETIME = "datetime-local"
    PASSWORD = "password"  # noqa: S105 - the name of a control
    JSON = "json"
    HIDDEN = "hidden"


class Widget(Value):
    """Control and words of a field; a field that means another thing in another kind of document has several."""

    control: Control | None = None
    """None = what the type suggests."""
    placeholder: str = ""
    length: int = 2048
    """Most characters of the input, where the type has no bound of its own."""
    lines: int = 1
    mono: bool = False
    keeps_spaces: bool = False
    """Whether white space around the value is part of it."""
    separator: str = ": "
    """Between name and value, where the field is a mapping."""
    choices: Mapping[str, str] | None = None
    """Values with the words people read."""
    kinds: tuple[str, ...] = ()
    """Kinds of the document it is for; empty means all kinds."""
    title: str = ""
    """Label in these kinds, instead of the field's title."""
    hint: str = ""
    """Hint in these kinds, instead of the field's description."""
    secret: bool = False
    """Whether the value is a secret: it is never filled in, and kept where nothing is typed."""


def widgets_of(model: type[BaseModel], kind: str = "") -> dict[str, Widget]:
    """Return the widgets of the fields that documents of a kind have, by wire name."""
    return {
        info.alias or name: widget
        for name, info in model.model_fields.items()
        for widget in [one for one in info.metadata if isinstance(one, Widget) and (not one.kinds or kind in one.kinds)]
    }


_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}
_OF_OBJECTS: Final[Mapping[str, str]] = {"maxLength": "maxProperties", "minLength": "minProperties"}
_VALUES: Final = frozenset({"default", "enum", "const", "examples"})
"""Keywords whose values are no schemas."""
_BY_NAME: Final = frozenset({"properties", "$defs"})
"""Keywords whose values are schemas by name."""


def standard_keywords(schema: Any) -> Any:
    """Return the schema with every constraint under the keyword of JSON Schema."""
    if isinstance(schema, list):
        return [standard_keywords(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    known = {**_BOUNDS, **_OF_OBJECTS} if schema.get("type") == "object" else _BOUNDS
    return {known.get(keyword, keyword): _standard(keyword, value) for keyword, value in schema.items()}


def _standard(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword in _BY_NAME and isinstance(value, dict):
        return {name: standard_keywords(part) for name, part in value.items()}
    return standard_keywords(value)


def duration_text(least: float, most: float) -> BeforeValidator:
    """Read a duration in whole seconds between these bounds; it is kept as the shortest text."""

    def read(value: Any) -> str:
        value = from_variable(value)
        seconds = _schedule(every=str(value) if isinstance(value, str) else value).every_seconds or 0
        check_seconds(value, seconds, least=least, most=most, units=("s", "m", "h", "d"))
        return format_duration(seconds)

    return BeforeValidator(read)


def duration_of(text: str) -> timedelta:
    """Return what a text `duration_text` let through means."""
    return timedelta(seconds=parse_schedule(every=text).every_seconds or 0)


def _cron(text: str) -> str:
    return str(_schedule(cron=text).cron)


def _zone(name: str) -> str:
    return _schedule(cron="* * * * *", timezone=name).timezone


def _schedule(**parts: Any) -> Schedule:
    try:
        return parse_schedule(**parts)
    except ValueError as error:
        raise field_error(str(error)) from None


DURATION_SCHEMA = WithJsonSchema({"type": "string", "pattern": "^([0-9]+[dhms])+$"})
_DAY = 86_400
Interval = Annotated[str, duration_text(10, 31 * _DAY), DURATION_SCHEMA]
RemindAfter = Annotated[str, duration_text(300, 31 * _DAY), DURATION_SCHEMA]
WindowLength = Annotated[str, duration_text(60, 31 * _DAY), DURATION_SCHEMA]
Cron = Annotated[str, StringConstraints(max_length=256), AfterValidator(_cron)]
Zone = Annotated[str, StringConstraints(max_length=64), AfterValidator(_zone)]


class ScheduleDocument(Document):
    """When a check runs: `{every: 5m}`, or `{cron: "*/5 * * * *", timezone: Europe/Berlin}`."""

    every: Annotated[
        Interval | None, Field(title="Interval", description="Such as 5m, 1h or 1d."), Widget(length=20)
    ] = None
    cron: Annotated[
        Cron | None, Field(title="Cron expression", description="Such as */5 8-18 * * mon-fri."), Widget(mono=True)
    ] = None
    timezone: Annotated[
        Zone | None,
        Field(
            title="Time zone",
            description="Time zone of the cron expression, such as Europe/Berlin; default UTC.",
            validate_default=True,
        ),
        Widget(placeholder="UTC"),
    ] = None

    @field_validator("timezone")
    @classmethod
    def _of_a_cron(cls, timezone: str | None, info: ValidationInfo) -> str | None:
        if timezone is not None and info.data.get("every") is not None:
            raise field_error("belongs to 'cron'; an interval has no time zone")
        return "UTC" if timezone is None and info.data.get("cron") is not None else timezone

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.every is None) == (self.cron is None):
            raise field_error("must have either 'every' or 'cron'")
        return self

    def to_domain(self) -> Schedule:
        """Return the value the domain works with."""
        return parse_schedule(every=self.every, cron=self.cron, timezone=self.timezone)


class ReportScheduleDocument(Document):
    """When a report of the newest run is sent, and to which hooks."""

    cron: Annotated[
        Cron, Field(title="Report times", description="Cron expression, such as 0 8 * * mon."), Widget(mono=True)
    ]
    timezone: Annotated[
        Zone,
        Field(title="Report zone", description="Its time zone, such as Europe/Berlin; default UTC."),
        Widget(placeholder="UTC"),
    ] = "UTC"
    hooks: Annotated[
        tuple[Slug, ...],
        Field(
            title="Report recipients",
            description="Names of hooks: email gets the report as HTML, a webhook as Markdown.",
            min_length=1,
            max_length=20,
        ),
        each_once("the hook '{}' is listed twice"),
        Widget(control=Control.CHECKBOXES, hint="Email gets the report as HTML, a webhook as Markdown."),
    ]

    def to_domain(self) -> Schedule:
        """Return the value the domain works with."""
        return parse_schedule(cron=self.cron, timezone=self.timezone)


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
    elif kind in {"too_long", "too_short"} and isinstance(given, str):
        message = _LIMITS[f"string_{kind}"].format_map(limits)
    else:
        message = _LIMITS[kind].format_map(limits) if kind in _LIMITS else error["msg"]
        is_number = isinstance(given, int | float)  # what stands in an address is text
        if kind == "less_than_equal" and limits["le"] == 1 and is_number and _LEAST_PERCENT <= given <= _PERCENT:
            message += _write_instead(given / _PERCENT, f"{given:g}%")
    return message


def _may_be_secret(place: Place) -> bool:
    """Whether the unknown key at the end of a place could be a secret put where its key belongs."""
    key = str(place[-1])
    return place[-2:-1] in {("auth",), ("tls",)} and key not in SecretPart.KNOWN and key not in FILE_TWINS


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
