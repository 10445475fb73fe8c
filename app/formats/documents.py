"""The documents that canary files and the REST API both speak: what a user says should be.

Retrievers, hooks and rules have modules of their own. Hashing and secrets live in `secret_fields`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from app.domain.judging import Yardstick
from app.domain.measures import CUTOFFS, parse_measure
from app.domain.model import MAX_GRADE, Canary, Category, Judgment
from app.domain.retrievers import Scorer
from app.domain.schedules import Schedule, parse_schedule
from app.formats.fields import (
    CanaryKey,
    Document,
    Flag,
    Name,
    Place,
    Share,
    Slug,
    Text,
    Whole,
    complaint,
    complaints,
    format_duration,
    repeated,
    shortened,
)
from app.formats.hook_documents import HookDocument
from app.formats.retriever_documents import RetrieverDocument
from app.formats.rule_documents import RuleDocument, problems_of_rules, rules_in_force, why_uncomputed

__all__ = [
    "CanaryDocument",
    "CheckDocument",
    "ChunkDocument",
    "HookDocument",
    "JudgmentDocument",
    "RetrieverDocument",
    "RuleDocument",
    "ScheduleDocument",
    "SuiteDocument",
]


def _or_text(schema: dict[str, Any]) -> None:
    """Let the JSON Schema of a chunk also accept its short form."""
    long_form = dict(schema)
    schema.clear()
    schema["title"] = long_form.pop("title")
    schema["anyOf"] = [{"type": "string", "minLength": 1, "description": "A chunk id."}, long_form]


class ChunkDocument(Document, json_schema_extra=_or_text):
    """A chunk by id, document or text; a bare text is its id."""

    id: Name | None = None
    document: Name | None = None
    text: Annotated[Text, StringConstraints(max_length=20_000)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"id": value}
        if isinstance(value, bool | int | float):
            raise complaint("must be a chunk id (text) or a mapping, not a number; put it in quotes")
        return value

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.id is None and self.document is None and self.text is None:
            raise complaint("must have an id, a document or a text")
        return self

    def to_domain(self) -> Judgment:
        """Return the value the domain works with."""
        return Judgment(id=self.id, document=self.document, text=self.text)


class JudgmentDocument(ChunkDocument):
    """An expected chunk and how good it is, 0 (known irrelevant) to 3 (perfect)."""

    grade: Annotated[Whole, Field(ge=0, le=MAX_GRADE)] = 1

    def to_domain(self) -> Judgment:
        """Return the value the domain works with."""
        return Judgment(id=self.id, document=self.document, text=self.text, grade=self.grade)


Tag = Annotated[Text, StringConstraints(max_length=64)]


class CanaryDocument(Document):
    """A standing query and what it should find."""

    key: CanaryKey
    query: Annotated[Text, StringConstraints(max_length=8_000)]
    expected_chunks: Annotated[tuple[JudgmentDocument, ...], Field(max_length=5_000)] = Field(
        default=(), validation_alias=AliasChoices("expected_chunks", "expected_top_chunks")
    )
    forbidden_chunks: Annotated[tuple[ChunkDocument, ...], Field(max_length=1_000)] = ()
    min_relevance_score: Share = 0.5
    max_relevance_score: Share = 0.5
    floors: Annotated[dict[Annotated[str, StringConstraints(max_length=64)], Share], Field(max_length=20)] = Field(
        default={}
    )
    category: Category = Category.SIMPLE_FACTUAL
    tags: Annotated[tuple[Tag, ...], Field(max_length=20)] = ()

    @field_validator("expected_chunks", "forbidden_chunks")
    @classmethod
    def _each_once(cls, chunks: tuple[ChunkDocument, ...]) -> tuple[ChunkDocument, ...]:
        again = [((place,), "is listed twice") for place in repeated((c.id, c.document, c.text) for c in chunks)]
        if again:
            raise complaints(again)
        return chunks

    @field_validator("forbidden_chunks")
    @classmethod
    def _not_expected(cls, chunks: tuple[ChunkDocument, ...], info: ValidationInfo) -> tuple[ChunkDocument, ...]:
        expected = {(c.id, c.document, c.text) for c in info.data.get("expected_chunks", ()) if c.grade >= 1}
        both = [place for place, c in enumerate(chunks) if (c.id, c.document, c.text) in expected]
        if both:
            raise complaints(((place,), "is expected and forbidden at once") for place in both)
        return chunks

    @field_validator("floors")
    @classmethod
    def _measures(cls, floors: dict[str, float]) -> dict[str, float]:
        """Name the measures as Coalmine does, whatever alias was written."""
        named: dict[str, float] = {}
        wrong: list[tuple[Place, str]] = []
        for text, value in floors.items():
            try:
                name = str(parse_measure(text))
            except ValueError as error:
                wrong.append(((text,), str(error)))
                continue
            if name in named:
                wrong.append(((text,), f"{name} has a floor already"))
            named[name] = value
        if wrong:
            raise complaints(wrong)
        return named

    @field_validator("tags")
    @classmethod
    def _tags_once(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        again = [((place,), f"the tag '{shortened(tags[place])}' is listed twice") for place in repeated(tags)]
        if again:
            raise complaints(again)
        return tags

    def to_domain(self) -> Canary:
        """Return the value the domain works with."""
        return Canary(
            key=self.key,
            query=self.query,
            judgments=tuple(chunk.to_domain() for chunk in self.expected_chunks),
            forbidden=tuple(chunk.to_domain() for chunk in self.forbidden_chunks),
            min_relevance_score=self.min_relevance_score,
            max_relevance_score=self.max_relevance_score,
            floors=dict(self.floors),
            category=self.category,
            tags=self.tags,
        )


class SuiteDocument(Document):
    """A named set of canaries. None = this document does not say which (only the REST API may leave them out)."""

    slug: Slug
    canaries: tuple[CanaryDocument, ...] | None = None

    @field_validator("canaries")
    @classmethod
    def _keys_once(cls, canaries: tuple[CanaryDocument, ...] | None) -> tuple[CanaryDocument, ...] | None:
        keys = [canary.key for canary in canaries or ()]
        again = [((place, "key"), f"the key '{keys[place]}' is used twice") for place in repeated(keys)]
        if again:
            raise complaints(again)
        return canaries


def _interval(value: Any) -> str:
    seconds = _schedule(every=str(value) if isinstance(value, str) else value).every_seconds or 0
    if not 10 <= seconds <= 31 * 86_400:  # noqa: PLR2004 - the two ends are said in the message
        raise complaint("must be between 10s and 31d")
    return format_duration(seconds)


def _cron(text: str) -> str:
    return str(_schedule(cron=text).cron)


def _zone(name: str) -> str:
    return _schedule(cron="* * * * *", timezone=name).timezone


def _schedule(**parts: Any) -> Schedule:
    try:
        return parse_schedule(**parts)
    except ValueError as error:
        raise complaint(str(error)) from None


Interval = Annotated[
    str, BeforeValidator(_interval), WithJsonSchema({"type": "string", "pattern": "^([0-9]+[dhms])+$"})
]


class ScheduleDocument(Document):
    """When a check runs: `{every: 5m}`, or `{cron: "*/5 * * * *", timezone: Europe/Berlin}`."""

    every: Interval | None = None
    cron: Annotated[str, StringConstraints(max_length=256), AfterValidator(_cron)] | None = None
    timezone: Annotated[
        Annotated[str, StringConstraints(max_length=64), AfterValidator(_zone)] | None, Field(validate_default=True)
    ] = None
    """Of a cron; filled with UTC when it is not said."""

    @field_validator("timezone")
    @classmethod
    def _of_a_cron(cls, timezone: str | None, info: ValidationInfo) -> str | None:
        if timezone is not None and info.data.get("every") is not None:
            raise complaint("belongs to 'cron'; an interval has no time zone")
        return "UTC" if timezone is None and info.data.get("cron") is not None else timezone

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.every is None) == (self.cron is None):
            raise complaint("must have either 'every' or 'cron'")
        return self

    def to_domain(self) -> Schedule:
        """Return the value the domain works with."""
        return parse_schedule(every=self.every, cron=self.cron, timezone=self.timezone)


Cutoff = Annotated[Whole, Field(ge=1, le=100)]
_FetchK = Annotated[
    Whole,
    Field(ge=1, le=1000),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 1000}, {"type": "null"}]}),
]


class CheckDocument(Document):
    """A suite put to a retriever on a schedule, with rules, and hooks for the news."""

    slug: Slug
    suite: Slug
    retriever: Slug
    schedule: ScheduleDocument
    k: Cutoff = 5
    fetch_k: _FetchK = Field(default=None, validate_default=True)
    """How many hits to ask for; filled with max(k, 10) when it is not said."""
    cutoffs: Annotated[tuple[Cutoff, ...], Field(min_length=1, max_length=20)] = CUTOFFS
    rules: Annotated[tuple[RuleDocument, ...], Field(max_length=100)] = ()
    hooks: Annotated[tuple[Slug, ...], Field(max_length=20)] = ()
    enabled: Flag = True

    @field_validator("fetch_k", mode="before")
    @classmethod
    def _fill_fetch_k(cls, fetch_k: Any, info: ValidationInfo) -> Any:
        return max(info.data.get("k", 1), 10) if fetch_k is None else fetch_k

    @field_validator("fetch_k")
    @classmethod
    def _at_least_k(cls, fetch_k: int, info: ValidationInfo) -> int:
        k: int = info.data.get("k", 1)
        if fetch_k < k:
            raise complaint(f"must be at least k, which is {k}")
        return fetch_k

    @field_validator("cutoffs")
    @classmethod
    def _ascending(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(cutoffs)))

    @field_validator("rules")
    @classmethod
    def _rules(cls, rules: tuple[RuleDocument, ...], info: ValidationInfo) -> tuple[RuleDocument, ...]:
        # When one of the three did not validate there is no saying what a run will compute.
        known = {"k", "fetch_k", "cutoffs"} <= info.data.keys()
        cutoffs = {*info.data["cutoffs"], info.data["k"]} if known else None
        wrong = list(problems_of_rules(rules, cutoffs, info.data.get("fetch_k")))
        if wrong:
            raise complaints(wrong)
        return rules

    @field_validator("hooks")
    @classmethod
    def _hooks_once(cls, hooks: tuple[str, ...]) -> tuple[str, ...]:
        again = [((place,), f"the hook '{hooks[place]}' is listed twice") for place in repeated(hooks)]
        if again:
            raise complaints(again)
        return hooks

    def why_uncomputed(self, measure: str) -> str | None:
        """Say why the check's runs have no such IR measure; None = they have it."""
        return why_uncomputed(measure, {*self.cutoffs, self.k}, self.fetch_k, check=self.slug)

    def uncomputed_floors(self, floors: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
        """Yield (key, sentence) for floors, measures by canary key, that no run could hold an answer against."""
        for key, measures in floors.items():
            for measure in measures:
                why = self.why_uncomputed(measure)
                if why is not None:
                    yield key, f"canary '{self.suite}/{key}' has a floor on {measure}: {why}"

    def yardstick(self, scorer: Scorer) -> Yardstick:
        """Return what the answers of a retriever with this scorer are judged by."""
        return Yardstick.of(
            k=self.k, fetch_k=self.fetch_k, cutoffs=self.cutoffs, scorer=scorer, rules=rules_in_force(self.rules)
        )
