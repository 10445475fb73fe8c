"""Documents of suites, canaries and expected chunks with their validation, and the keys of canaries that state none.

`scoring` judges answers by them.
"""

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final, Self

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from app.base.documents.fields import (
    CANARY_KEY,
    MOST_PROBLEMS,
    CanaryKey,
    Control,
    Document,
    Flag,
    MaxAge,
    MaxLatency,
    Name,
    Place,
    Share,
    Slug,
    Text,
    Whole,
    Widget,
    each_once,
    field_error,
    field_errors,
    parse_document,
)
from app.base.values import (
    DEFAULT_CATEGORY,
    DEFAULT_MIN_RELEVANCE,
    EMPTY,
    MAX_GRADE,
    Canary,
    Category,
    Judgment,
    Segment,
)
from app.catalog.domain import JUDGMENT_SOURCE
from app.retrievers.documents.requests import (
    TurnDocument,
    turns_of,
)
from app.retrievers.documents.retrievers import RetrieverDocument, Vars
from app.scoring.measures import parse_measure


def _allow_short_form(schema: dict[str, Any]) -> None:
    """Let the JSON Schema of a chunk also accept its short form."""
    long_form = dict(schema)
    schema.clear()
    schema["title"] = long_form.pop("title")
    schema["anyOf"] = [{"type": "string", "minLength": 1, "description": "A chunk id."}, long_form]


ChunkIdentity = tuple[str | None, str | None, str | None]
"""Id, document and text of a chunk."""


class ChunkDocument(Document):
    """A chunk by id, document or text; a bare text is its id."""

    id: Annotated[Name | None, Field(title="Id"), Widget(placeholder="id", mono=True)] = None
    document: Annotated[Name | None, Field(title="Document"), Widget(placeholder="document", mono=True)] = None
    text: Annotated[
        Annotated[Text, StringConstraints(max_length=20_000)] | None,
        Field(title="Text"),
        Widget(control=Control.AREA, lines=2, placeholder="text"),
    ] = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        if handler.mode == "validation":
            _allow_short_form(handler.resolve_ref_schema(schema))
        return schema

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"id": value}
        if isinstance(value, bool | int | float):
            raise field_error("must be a chunk id (text) or a mapping, not a number; put it in quotes")
        return value

    @model_validator(mode="after")
    def _has_identity(self) -> Self:
        if self.id is None and self.document is None and self.text is None:
            raise field_error("must have an id, a document or a text")
        return self

    @property
    def identity(self) -> ChunkIdentity:
        """What it is matched by; unique within a list of a canary."""
        return self.id, self.document, self.text

    def to_domain(self) -> Judgment:
        """Return the value the domain works with."""
        return Judgment(id=self.id, document=self.document, text=self.text)


_GRADES: Final = {"1": "1 relevant", "2": "2 good", "3": "3 perfect", "0": "0 known irrelevant"}


class JudgmentDocument(ChunkDocument):
    """An expected chunk and how good it is, 0 (known irrelevant) to 3 (perfect)."""

    grade: Annotated[
        Whole, Field(title="Grade", ge=0, le=MAX_GRADE), Widget(control=Control.CHOICE, choices=_GRADES)
    ] = 1
    source: Annotated[
        Annotated[str, StringConstraints(pattern=JUDGMENT_SOURCE)] | None,
        Field(
            title="Source",
            description="Where it was judged: `task:SLUG`, or `retriever:SLUG` for hits ticked in its answer.",
        ),
        Widget(control=Control.HIDDEN, length=80),
    ] = None

    def to_domain(self) -> Judgment:
        """Return the value the domain works with."""
        source = None if self.source is None else sys.intern(self.source)  # thousands of judgments have the same
        return Judgment(id=self.id, document=self.document, text=self.text, grade=self.grade, source=source)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


class _OrOne:
    """Lets the JSON Schema of a list also accept a single entry."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        listed = handler(core_schema)
        return {"anyOf": [listed, listed["items"]]} if handler.mode == "validation" else listed


_OneOrMany = BeforeValidator(_as_list)
"""Lets a single chunk stand for a list of one."""
_CHUNKS_ONCE = each_once("is listed twice", of=attrgetter("identity"))

Tag = Annotated[Text, StringConstraints(max_length=64)]
_CATEGORIES: Final = {
    Category.SIMPLE_FACTUAL: "simple factual: one question, one passage",
    Category.COMPLEX_FACTUAL: "complex factual: a condition, a consequence, several passages",
    Category.PROCEDURAL: "procedural: how something is done",
    Category.ENTITY_CENTRIC: "entity centric: about one person, product or place",
    Category.COMPARATIVE: "comparative: what differs from what",
    Category.NEGATIVE: "negative: no good answer exists, and none may look good",
}


_SEGMENTS: Final = {
    Segment.FREQUENT: "frequent: among what users ask most",
    Segment.EDGE: "edge: unusual, very short or very long",
    Segment.CHALLENGING: "challenging: compares, or asks two things",
    Segment.TEMPORAL: "temporal: about dates, or new",
}


class CanaryDocument(Document):
    """A standing query and what it should find, or what must not be found.

    Found: `expected_chunks: retention_policy_doc`, or a list, `[retention_policy_doc, {text: "30 days", grade: 3}]`.
    No good answer exists: `category: negative`, with `max_relevance_score: 0.4`.
    Must not return (a tenant's leak, a withdrawn document), by id, document or text:
    `forbidden_chunks: [{document: tenant-b/contract.pdf}, {text: "The old notice period is 14 days"}]`.
    Must return nothing, for example to somebody without access: `expect_empty: true`.
    Asked as somebody: `vars: {tenant: acme}`, for options of the retriever with these names.
    Asked within a conversation: `history: [{role: user, content: "Do you ship to Iceland?"}]`.
    Freshness, where the retriever's response maps `updated`: `max_age: 2d`. Speed: `max_latency: 800ms`.
    """

    key: Annotated[
        CanaryKey, Field(title="Key", description="Permanent name within the suite."), Widget(length=128, mono=True)
    ]
    query: Annotated[Text, StringConstraints(max_length=8_000), Field(title="Query"), Widget()]
    vars: Annotated[
        Vars,
        Field(title="Variables", description="Of the retriever's options, for this canary, such as tenant: acme."),
        Widget(
            hint="Option of the retriever: value, one per line, for example tenant: acme.",
            control=Control.AREA,
            lines=2,
            mono=True,
        ),
    ] = Field(
        default_factory=dict,
        json_schema_extra={"default": {}},  # as of floors
    )
    history: Annotated[
        tuple[TurnDocument, ...],
        Field(
            title="Conversation before the query",
            description="Oldest first; the retriever gets it as {{ history }}.",
            max_length=50,
        ),
        Widget(
            hint='JSON, oldest first: [{"role": "user", "content": "..."}]. The retriever gets it as {{ history }}.',
            control=Control.JSON,
            lines=4,
            mono=True,
        ),
    ] = ()
    expected_chunks: Annotated[
        tuple[JudgmentDocument, ...],
        Field(title="Expected chunks", max_length=5_000),
        _OneOrMany,
        _OrOne(),
        _CHUNKS_ONCE,
        Widget(),
    ] = Field(default=(), validation_alias=AliasChoices("expected_chunks", "expected_top_chunks"))
    forbidden_chunks: Annotated[
        tuple[ChunkDocument, ...],
        Field(title="Forbidden chunks", max_length=1_000),
        _OneOrMany,
        _OrOne(),
        _CHUNKS_ONCE,
        Widget(),
    ] = ()
    expected_answer: Annotated[
        Annotated[Text, StringConstraints(max_length=20_000)] | None,
        Field(title="Expected answer", description="What a generated answer must say; a judge compares it."),
        Widget(control=Control.AREA, lines=3),
    ] = None
    min_relevance_score: Annotated[
        Share,
        Field(title="Minimum relevance", description="Of the first hit, 0 to 1; default 0.5."),
        Widget(placeholder="0.5", length=8),
    ] = DEFAULT_MIN_RELEVANCE
    max_relevance_score: Annotated[
        Share,
        Field(title="Maximum relevance", description="For negative canaries, 0 to 1; default 0.5."),
        Widget(placeholder="0.5", length=8),
    ] = 0.5
    floors: Annotated[
        dict[Annotated[str, StringConstraints(max_length=64)], Share],
        Field(title="Floors of measures", description="Minimum per measure, for example NDCG@10: 0.8.", max_length=20),
        Widget(
            hint="Measure: minimum value, one per line, for example NDCG@10: 0.8.",
            control=Control.AREA,
            lines=2,
            mono=True,
        ),
    ] = Field(
        default_factory=dict,
        json_schema_extra={"default": {}},  # a default of {} would be copied deeply, each time
    )
    expect_empty: Annotated[
        Flag,
        Field(
            title="Expect no hits",
            description="Degraded if anything is returned, for example to somebody without access.",
        ),
        Widget(),
    ] = False
    max_age: Annotated[
        MaxAge | None,
        Field(
            title="Maximum age of the newest hit",
            description="Seconds or a duration such as 2d; needs “Last changed” in the mapping.",
        ),
        Widget(length=12),
    ] = None
    max_latency: Annotated[
        MaxLatency | None,
        Field(title="Maximum latency", description="Seconds or a duration such as 800ms."),
        Widget(length=12),
    ] = None
    category: Annotated[Category, Field(title="Category"), Widget(choices=_CATEGORIES)] = DEFAULT_CATEGORY
    segment: Annotated[
        Segment | None,
        Field(title="Segment", description="Part of the traffic that it stands for."),
        Widget(choices=_SEGMENTS),
    ] = None
    tags: Annotated[
        tuple[Tag, ...],
        Field(title="Tags", description="Groups of the canary, such as billing, headline.", max_length=20),
        each_once("the tag '{}' is listed twice"),
        Widget(),
    ] = ()

    @field_validator("forbidden_chunks")
    @classmethod
    def _not_expected(cls, chunks: tuple[ChunkDocument, ...], info: ValidationInfo) -> tuple[ChunkDocument, ...]:
        expected = {c.identity for c in info.data.get("expected_chunks", ()) if c.grade >= 1}
        both = [place for place, c in enumerate(chunks) if c.identity in expected]
        if both:
            raise field_errors(((place,), "is expected and forbidden at once") for place in both)
        return chunks

    @field_validator("floors")
    @classmethod
    def _measures(cls, floors: dict[str, float]) -> dict[str, float]:
        """Replace aliases by the names of Coalmine."""
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
            raise field_errors(wrong)
        return named

    @model_validator(mode="after")
    def _expect_nothing_of_empty(self) -> Self:
        """Refuse expectations of hits together with `expect_empty`."""
        if self.expect_empty:
            about_hits = {
                "expected_chunks": bool(self.expected_chunks),
                "floors": bool(self.floors),
                "max_age": self.max_age is not None,
            }
            wrong = [name for name, is_set in about_hits.items() if is_set]
            if wrong:
                raise field_errors(
                    ((name,), "cannot be combined with expect_empty: nothing may be found") for name in wrong
                )
        return self

    def to_domain(self) -> Canary:
        """Return the value the domain works with."""
        return Canary(
            key=self.key,
            query=self.query,
            judgments=tuple(chunk.to_domain() for chunk in self.expected_chunks),
            forbidden=tuple(chunk.to_domain() for chunk in self.forbidden_chunks),
            min_relevance_score=self.min_relevance_score,
            max_relevance_score=self.max_relevance_score,
            floors=dict(self.floors) if self.floors else EMPTY,
            expect_empty=self.expect_empty,
            max_age_seconds=self.max_age,
            max_latency_seconds=self.max_latency,
            category=self.category,
            segment=self.segment,
            tags=self.tags,
            expected_answer=self.expected_answer,
            vars=dict(self.vars) if self.vars else EMPTY,
            history=turns_of(self.history),
        )

    def with_judgments(
        self, changed: Mapping[ChunkIdentity, JudgmentDocument], added: Sequence[JudgmentDocument]
    ) -> "CanaryDocument":
        """Return the canary with judgments in the place of those of the same identity, and new ones at the end.

        Raises InvalidInputError where it may not have them.
        """
        chunks = [changed.get(chunk.identity, chunk) for chunk in self.expected_chunks]
        return parse_document(CanaryDocument, {**dict(self), "expected_chunks": (*chunks, *added)})

    def unknown_vars(self, retriever: RetrieverDocument) -> Iterator[tuple[str, str]]:
        """Yield (name, sentence) for each variable that this retriever does not take."""
        yield from retriever.unknown_vars(self.vars)

    def why_not_asked(self, vars_of_check: Mapping[str, str], retriever: RetrieverDocument) -> str | None:
        """Return why this retriever has no credentials to ask it with where neither it nor its check says as whom."""
        by = retriever.asks_by
        if by is None or by in self.vars or by in vars_of_check:
            return None
        why = retriever.why_not_asked({})
        return None if why is None else f"do not set {by}, which then {why}"

    def why_unsent(self, retriever: RetrieverDocument) -> str | None:
        """Return why the conversation is not sent to this retriever; None = it is, or there is none."""
        if not self.history or retriever.takes_history:
            return None
        return f"is not sent: write {{{{ history }}}} in request: json of retriever '{retriever.slug}'"

    def why_undatable(self, retriever: RetrieverDocument) -> str | None:
        """Return why the maximum age cannot be judged with this retriever; None = it can, or there is none."""
        if self.max_age is None or retriever.response.updated is not None:
            return None
        return f"can never be judged: retriever '{retriever.slug}' maps no 'updated' under 'response'"


_BLOCK = 500


def in_blocks(model: type[Document]) -> BeforeValidator:
    """Give the validator of a list of documents, to stand before the list's own.

    Its items come out validated. Of a list with many problems only those of the first blocks are told.
    """

    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) <= _BLOCK:
            return value
        valid: list[Document] = []
        wrong: list[InitErrorDetails] = []
        for start in range(0, len(value), _BLOCK):
            try:
                valid += _adapter(model).validate_python(list(value[start : start + _BLOCK]))
            except ValidationError as error:
                wrong += [_moved(one, start) for one in error.errors(include_url=False)]
            if len(wrong) > MOST_PROBLEMS:
                break
        if wrong:
            raise ValidationError.from_exception_data("list", wrong)
        return valid

    return BeforeValidator(check)


@cache
def _adapter(model: type[Document]) -> TypeAdapter[Any]:
    return TypeAdapter(list[model])  # type: ignore[valid-type] # a variable, which mypy takes for no type


def _moved(error: ErrorDetails, start: int) -> InitErrorDetails:
    """Say an error of a block with its place in the whole list."""
    position, *within = error["loc"]
    kind: Any = error["type"]
    context = error.get("ctx", {})
    if kind == "invalid":  # ours: see fields.field_error
        kind = PydanticCustomError("invalid", "{message}", {"message": error["msg"]})
    return InitErrorDetails(type=kind, loc=(start + int(position), *within), input=error["input"], ctx=context)


class SuiteDocument(Document):
    """A named set of canaries; None = not in this document (only the REST API may leave them out)."""

    slug: Slug
    canaries: Annotated[
        tuple[CanaryDocument, ...] | None,
        in_blocks(CanaryDocument),
        each_once("the key '{}' is used twice", of=attrgetter("key"), below=("key",)),
    ] = None


_KEY = re.compile(CANARY_KEY)
_KEY_WORDS = 48


def derive_key(query: str, queries: Mapping[str, str]) -> str:
    """Return the key of a canary that names none: its query's words, plus a hash where another query has those.

    `queries` are the queries by key of the suite, at least for `possible_keys`: an existing derived key is kept.
    """
    query = query.strip()
    words, hashed, _ = possible_keys(query)
    existing = next((key for key in (words, hashed, query) if queries.get(key) == query), None)
    return existing or (words if words and words not in queries else hashed)


def possible_keys(query: str) -> tuple[str, str, str]:
    """Return the keys that can be derived from a query: words (maybe none), words with a hash, the query itself."""
    query = query.strip()
    words = re.sub(r"[^a-z0-9]+", "-", query.lower()).strip("-")[:_KEY_WORDS].rstrip("-")
    digest = hashlib.sha256(query.encode(errors="replace")).hexdigest()[:8]
    return words, f"{words or 'q'}-{digest}", query


def is_key(text: str) -> bool:
    """Whether a text is a valid canary key."""
    return _KEY.fullmatch(text) is not None


def assign_keys(canaries: Sequence[Any], queries: Mapping[str, str]) -> list[Any]:
    """Return canaries of a request body, with a derived key where one has none: see `derive_key`."""
    queries = {**queries, **{one["key"]: str(one.get("query")) for one in canaries if _names_key(one)}}
    keyed = []
    for one in canaries:
        if lacks_key(one):
            key = derive_key(one["query"], queries)
            queries[key] = one["query"].strip()
            keyed.append({"key": key, **one})
        else:
            keyed.append(one)
    return keyed


def lacks_key(canary: Any) -> bool:
    """Whether a canary has a query and no key."""
    return isinstance(canary, dict) and "key" not in canary and isinstance(canary.get("query"), str)


def _names_key(canary: Any) -> bool:
    return isinstance(canary, dict) and isinstance(canary.get("key"), str)
