"""Values that several subjects share: canaries, judgments, rankings, answers, rules, and the enums of stored text.

Decisions about them are made in the subjects: `scoring` judges answers, `alerts` rules, `diagnosis` causes.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NotRequired, TypeAlias

from msgspec import Struct, StructMeta, structs
from msgspec import field as field  # noqa: PLC0414 - values of every subject are made of them
from typing_extensions import TypedDict, dataclass_transform


class _Frozen(StructMeta):
    """Makes the classes of `Value` immutable and their fields keyword arguments."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> "_Frozen":
        return super().__new__(mcs, name, bases, namespace, **{"frozen": True, "kw_only": True, **options})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True, kw_only=True, metaclass=_Frozen):
    """An immutable value of named fields, equal where its class and all its fields are.

    A frozen dataclass is written in Python a second time for each class as it is imported, which takes a fifth of a
    start; use one only where a field is left out of comparisons, or pydantic has to serialize it.
    """


class Confidential(Value):
    """A value whose text, which may reach a log, leaves out what its class names `hidden`: what is secret or long."""

    hidden: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, one) for name, one in asdict(self).items() if name not in self.hidden]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={one!r}' for name, one in self.__rich_repr__())})"


if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - of it the types of changes are checked
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return a copy of a value, or of a dataclass, with other fields. Raises TypeError for one it does not have."""
        copied = structs.replace if isinstance(value, Struct) else dataclasses.replace
        return copied(value, **changes)


def asdict(value: Value) -> dict[str, Any]:
    """Return the fields of a value by name; values within it stay values."""
    return structs.asdict(value)


EMPTY: Mapping[str, Any] = MappingProxyType({})


def empty_mapping() -> Mapping[str, Any]:
    """Return the default of a mapping field (a mapping proxy itself is unhashable before Python 3.12)."""
    return EMPTY


MAX_GRADE = 3


class Category(StrEnum):
    """What kind of question a canary is."""

    SIMPLE_FACTUAL = "simple_factual"
    COMPLEX_FACTUAL = "complex_factual"
    PROCEDURAL = "procedural"
    ENTITY_CENTRIC = "entity_centric"
    COMPARATIVE = "comparative"
    NEGATIVE = "negative"


class Segment(StrEnum):
    """What part of the traffic a canary stands for; its category says what kind of question it is."""

    FREQUENT = "frequent"
    EDGE = "edge"
    CHALLENGING = "challenging"
    TEMPORAL = "temporal"


DEFAULT_CATEGORY: Final = Category.SIMPLE_FACTUAL
"""Category of a canary whose source states none; findings do not name it as something canaries have in common."""

DEFAULT_MIN_RELEVANCE: Final = 0.5
"""Minimum relevance of the first hit for a canary that states none."""


class Outcome(StrEnum):
    """How one probe ended. Only `ok` is a measurement."""

    OK = "ok"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    MALFORMED = "malformed"
    BLOCKED = "blocked"
    OVERSIZE = "oversize"
    PARTIAL = "partial"
    """The answer itself says that it is not whole, or holds an error."""
    SKIPPED = "skipped"


class Level(StrEnum):
    """How a hit was matched to an expected chunk, in the order of trying."""

    ID = "id"
    DOCUMENT = "document"
    TEXT = "text"
    PASSAGE = "passage"


class Verdict(StrEnum):
    """The health of a run or of a canary. Unknown is never healthy."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"


class Reason(StrEnum):
    """Why a canary is degraded; a closed list."""

    LOW_RELEVANCE = "low_relevance"
    MISSING = "missing"
    BELOW_FLOOR = "below_floor"
    FORBIDDEN = "forbidden"
    ANSWERED = "answered"
    REGRESSED = "regressed"
    STALE = "stale"
    SLOW = "slow"


class Trigger(StrEnum):
    """What started a run."""

    SCHEDULE = "schedule"
    API = "api"
    UPDATE = "update"
    CLI = "cli"
    PAGE = "page"


class RunStatus(StrEnum):
    """State of a run: `finished` attempted every probe, `partial` ended early, `failed` could not be executed."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    PARTIAL = "partial"
    FAILED = "failed"


class Severity(StrEnum):
    """Severity of a rule's alerts."""

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """An expected (or forbidden) chunk: by chunk id, document id or URL, or text passage, and its grade 0-3.

    At least one of `id`, `document` and `text` is set. Grade 0 = known irrelevant, 1 = relevant.
    """

    id: str | None = None
    document: str | None = None
    text: str | None = None
    grade: int = 1
    source: str | None = dataclasses.field(default=None, compare=False)
    """Where it comes from, see `catalog.domain`; it changes no score. None = nobody said."""


class Turn(Value):
    """What somebody said before a query: a turn of its conversation."""

    role: str
    content: str


class Canary(Value):
    """A standing query and what it should find (IR: a topic with its qrels)."""

    key: str
    query: str
    judgments: tuple[Judgment, ...] = ()
    forbidden: tuple[Judgment, ...] = ()
    min_relevance_score: float = DEFAULT_MIN_RELEVANCE
    max_relevance_score: float = 0.5
    floors: Mapping[str, float] = field(default_factory=empty_mapping)
    """The lowest value each named measure may take, for example `{"R@5": 0.8}`."""
    category: Category = DEFAULT_CATEGORY
    segment: Segment | None = None
    tags: tuple[str, ...] = ()
    expect_empty: bool = False
    """Nothing at all may be returned, for example to somebody without access."""
    max_age_seconds: float | None = None
    """How old the newest of the top k hits may be (freshness)."""
    max_latency_seconds: float | None = None
    expected_answer: str | None = None
    vars: Mapping[str, str] = field(default_factory=empty_mapping)
    """Values for the templates of the retriever, by the names of its options: as whom, of what, in which language."""
    history: tuple[Turn, ...] = ()
    """The conversation before the query, oldest first."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Words that numbers are sliced by: its tags, and its variables such as `tenant:acme`."""
        return (*self.tags, *(f"{name}:{value}" for name, value in self.vars.items())) if self.vars else self.tags

    @property
    def asked(self) -> tuple[str, Mapping[str, str], tuple[Turn, ...]]:
        """What it asks, as whom and after what: canaries that differ in this get different answers."""
        return self.query, self.vars, self.history

    @property
    def negative(self) -> bool:
        """Whether no good answer exists to this query."""
        return self.category is Category.NEGATIVE

    @property
    def expects(self) -> bool:
        """Whether it has an expected chunk; else its IR measures are undefined."""
        return not self.negative and any(judgment.grade >= 1 for judgment in self.judgments)

    def finds_as(self, other: "Canary") -> bool:
        """Whether both ask the same and expect the same, whatever limits they set: a detector takes them for one."""
        mine, others = ((one.asked, one.judgments, one.negative) for one in (self, other))
        return mine == others

    def is_judged_as(self, other: "Canary") -> bool:
        """Whether rankings of both get the same judgment: of what only labels it, `negative` alone matters."""
        alike = replace(
            self, **{name: getattr(other, name) for name in ("category", "segment", "tags", "expected_answer")}
        )
        return self.negative == other.negative and alike == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What one probe retrieved, in the order of the answer, as parallel columns; duplicates already dropped.

    `scores` are the retriever's own. `returned` counts the hits of the answer before duplicates were dropped.
    """

    ids: tuple[str, ...]
    documents: tuple[str | None, ...]
    texts: tuple[str | None, ...]
    scores: tuple[float | None, ...]
    returned: int
    updated: tuple[float | None, ...] | None = None
    """When each hit was last changed, seconds since 1970 in UTC; None = the response mapping has no such field."""
    relevance: float | None = None
    """Relevance of the first hit, in [0, 1], from a scorer outside the retriever; None = none measured it."""
    fingerprint: bytes | None = dataclasses.field(default=None, compare=False)
    """Equal for equal rankings; set once the scores are rounded, see rankings."""
    content_fingerprint: bytes | None = dataclasses.field(default=None, compare=False)
    """Equal where all but scores and relevance is; set with the other."""

    def __len__(self) -> int:
        """Count the distinct hits."""
        return len(self.ids)

    @property
    def duplicate_ratio(self) -> float:
        """Share of the returned hits that repeat the id of an earlier one."""
        return (self.returned - len(self.ids)) / self.returned if self.returned else 0.0


class Step(StrEnum):
    """Endpoint that a probe depends on."""

    RETRIEVER = "retriever"
    EMBEDDER = "embedder"
    LOOKUP = "lookup"
    """What is fetched once a run before the first request, such as the id of a collection."""
    AUTHENTICATION = "authentication"
    """The endpoint that gives tokens."""


class Exchange(Value):
    """One request and its response, to be shown: secrets masked, bodies capped."""

    method: str
    url: str
    request_headers: Mapping[str, str] = field(default_factory=empty_mapping)
    request_body: str | None = None
    http_status: int | None = None
    response_headers: Mapping[str, str] = field(default_factory=empty_mapping)
    response_body: str | None = None
    response_bytes: int = 0
    """Size of the body before it was capped."""
    remarks: tuple[str, ...] = ()
    """Remarks on the connection itself; sentences without full stops."""


class Slowing(Value):
    """By how much a peer that refuses requests slowed those who ask it."""

    rate: float | None
    """The lowest rate, in requests a second; None = requests were sent again later, at no lower rate."""
    status: int
    """HTTP status of the refusals."""
    refusals: int = 0
    """Requests that were refused and sent again."""


class Answer(Confidential):
    """Outcome of one probe. `ranking` is set exactly when the outcome is `ok`."""

    hidden: ClassVar = ("exchange",)

    outcome: Outcome
    latency_seconds: float
    ranking: Ranking | None = None
    http_status: int | None = None
    detail: str | None = None
    """One sentence for people: why the outcome is not `ok`. Never holds a secret or a piece of a body."""
    index_version: str | None = None
    cache_sign: str | None = None
    """The header line by which a cache before the retriever says that the answer is its own; None where none does."""
    generated: str | None = None
    """The text that the retriever generated from its hits, where its mapping has one."""
    retry_after_seconds: float | None = None
    """Retry-After of the retriever, where that is longer than the run waits."""
    refused_seconds: float | None = None
    """For how long the retriever had refused every request, where that is longer than the run waits."""
    slowing: Slowing | None = None
    """By how much the retriever slowed the run, where it refused requests."""
    step: Step = Step.RETRIEVER
    """The endpoint whose outcome it is: an embedder, for example, may fail before the retriever gets a request."""
    address: str | None = None
    """Host and port of the endpoint that failed, without secrets; None where none failed."""
    unscored: str | None = None
    """One sentence why a scorer outside the retriever could not measure relevance, though there were hits."""
    exchange: Exchange | None = None
    """Request and response, where the caller asked to record them."""


class EmbedderChange(StrEnum):
    """Change of an embedder's vectors for fixed texts, compared with the stored ones. The first two are harmless."""

    SAME = "same"
    DRIFTED = "drifted"
    TRUNCATED = "truncated"
    SWAPPED = "swapped"
    COLLAPSED = "collapsed"


class RuleKind(StrEnum):
    """What a rule evaluates."""

    THRESHOLD = "threshold"
    DROP = "drop"
    REGRESSION = "regression"
    CANARY = "canary"
    LATENCY = "latency"
    PROBE_ERRORS = "probe_errors"
    NO_DATA = "no_data"
    EMBEDDING = "embedding"
    GUARD = "guard"
    SLOWER = "slower"
    LEAK = "leak"
    PLANT = "plant"
    INDEX = "index"


class Percentile(StrEnum):
    """Latency of a run that a rule watches: median, 95th percentile, maximum."""

    P50 = "p50"
    P95 = "p95"
    MAX = "max"


class Bound(Value):
    """Where a value is bad: strictly below, strictly above, or at least `by` so much below its baseline."""

    below: float | None = None
    above: float | None = None
    by: float | None = None


OPEN_BAD, OPEN_OF = 2, 3
"""An alert opens on so many bad runs of the last so many, where its rule says nothing else."""
DETECTOR_CLOSE = 2
"""The detector ends an alarm on so many good runs in a row, where no rule says otherwise."""


class Rule(Value):
    """Condition under which a check opens an alert. `key` is its identity: texts and bounds may change under it."""

    key: str
    kind: RuleKind
    measure: str | None = None
    """`health_score`, `coverage`, `degraded_share` or an aggregate measure such as `R@5`."""
    category: str | None = None
    warning: Bound | None = None
    critical: Bound | None = None
    open_bad: int = OPEN_BAD
    open_of: int = OPEN_OF
    close: int = 2
    margin: float = 0.0
    """A value must be this far on the good side of its bound to count towards closing."""
    failed_share: float | None = None
    """For `probe_errors`: a run is bad when a larger share of its probes failed; None = 0.1 and at least two."""
    outage_share: float | None = None
    """For `latency` and `slower`: `failed_share` of the check's `probe_errors`; what is bad by it is not judged."""
    factor: float | None = None
    """For `slower`: times the baseline's median latency that a run must exceed; None = 3."""
    rise: float | None = None
    """For `slower`: seconds above the baseline's median latency that a run must exceed too; None = 0.2."""
    canary: str | None = None
    """For `canary`: its key."""
    severity: Severity = Severity.CRITICAL
    """For `canary`, `leak` and `index`: the severity of the alert."""
    percentile: Percentile | None = None
    """For `latency`; its bounds and its margin are seconds, as is the margin of `slower`."""
    confidence: float = 0.95
    """For `drop`: confidence of the interval that must exclude zero."""
    detector_close: int = DETECTOR_CLOSE
    """For `regression`: after how many good runs in a row the detector ends its alarm; the alert then ends at once."""
    fact: str | None = None
    """For `index`: the fact of the index; None = those that count what it holds, and recall against exact search."""
    minimum: float | None = None
    """For `index`: a value below it is bad."""
    maximum: float | None = None
    """For `index`: a value above it is bad."""
    fall: float | None = None
    """For `index`: the share by which a bad value is lower than usual; None = 0.1, where nothing else bounds it."""


class Cause(StrEnum):
    """Why a canary degraded, in the order in which the causes are considered."""

    # The docstring is in the description of the API. All but LOW_RELEVANCE stand in the order of `RULES` in
    # `diagnosis.domain.canary_causes`; of equally common causes headlines name the earlier one here first.

    RETRIEVER_ERROR = "retriever_error"
    WRONG_FIELD = "wrong_field"
    TRUNCATED = "truncated"
    TEXTS_CHANGED = "texts_changed"
    SCORE_DRIFT = "score_drift"
    RECHUNKED = "rechunked"
    MISSING = "missing"
    VOCABULARY_MISMATCH = "vocabulary_mismatch"
    DUPLICATES = "duplicates"
    UNSTABLE = "unstable"
    LEFT_OUT = "left_out"
    LOW_RELEVANCE = "low_relevance"
    OUTRANKED = "outranked"


class RunCauseKind(StrEnum):
    """Kind of change of a whole run."""

    RECHUNKED = "rechunked"
    """The same texts, cut differently, under other ids."""
    REINDEXED = "reindexed"
    """The same chunks, under other ids."""
    RENAMED_DOCUMENTS = "renamed_documents"
    """The same chunks, of documents by other names."""
    EMBEDDER_CHANGED = "embedder_changed"
    """The embedder returns other vectors for the reference texts."""
    TEXTS_CHANGED = "texts_changed"
    """The same chunks, under the same ids, have other texts: cut, emptied, rewritten."""
    SCORES_CHANGED = "scores_changed"
    """The same chunks have other scores: the encoder or the scoring changed."""
    EMPTY_ANSWERS = "empty_answers"
    """Answers that had hits have none."""
    LIMITED = "limited"
    """No answer has more than a few hits, those that were the first."""
    SCORE_THRESHOLD = "score_threshold"
    """Hits below a score are not returned any more."""
    MISSING = "missing"
    """Chunks are in no answer any more, and the others closed up."""
    REPLICAS_DIFFER = "replicas_differ"
    """Some answers are as they were, the others come from another index."""
    SEARCH_MISSES = "search_misses"
    """Chunks are missed here and there, in no pattern, as an approximate search does."""
    LEFT_OUT = "left_out"
    """Answers lack their first hits, and nothing else changed: a filter, or what was pinned is not any more."""
    NEAR_COPIES = "near_copies"
    """Near copies of what was found rank above it."""
    NEW_CHUNKS = "new_chunks"
    """Other new chunks do."""
    OTHER_VECTORS = "other_vectors"
    """Hardly an answer has a hit in common with before."""
    RANKING_CHANGED = "ranking_changed"
    """The same chunks in another order, everywhere."""


class DeliveryState(StrEnum):
    """State of a delivery. `dead` can be replayed by hand; `cancelled` was withdrawn before its first attempt."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELLED = "cancelled"


FIRST_YEAR: Final = 1971
LAST_YEAR: Final = 9998
"""First and last year of times that people write: a year of room at either end for arithmetic and time zones."""
ROUNDING: Final = 1e-9
"""Tolerance for sums of floats: a mean of exactly 0.9 is not below 0.9."""


TimeText: TypeAlias = Annotated[str, "RFC 3339"]
"""A time as RFC 3339 in UTC; views make it of microseconds."""


class ListedWords(Value, kw_only=False):
    """Marks a text that is a word of an enumeration, which the description of the API lists beside the field."""

    words: type[StrEnum]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the schema of the field, for which pydantic asks."""
        return {**handler(schema), "enum": [str(word) for word in self.words]}


class LatencyView(TypedDict):
    """Latency of measured probes in seconds; null where nothing was measured."""

    p50: float | None
    p95: float | None
    max: float | None


class ProbeSummary(TypedDict):
    """How the probes of a run ended: by outcome, failures before the retriever by step, and the latency."""

    probes: dict[str, int]
    probes_by_step: dict[str, dict[str, int]]
    latency_seconds: LatencyView


ReportProgress = Callable[[int, int], None]
"""Called with the number of answered questions and of all; at first with 0."""

COVERAGE: Final = "coverage"
DEGRADED_SHARE: Final = "degraded_share"
"""Degraded canaries over measured ones."""
OWN_MEASURES: Final = ("health_score", COVERAGE, DEGRADED_SHARE)
"""Numbers that every run has beside the means of its measures."""
ANSWERED_RATIO: Final = "answered_ratio"
"""Share of negative canaries that got a confident answer or, where nothing may be returned, any hit at all. Canaries of
which this is not known are left out. An entry of the category `negative` alone."""

GROUNDING: Final = ("utilisation", "chunks_used")
"""Measured without a judge."""
FAITHFUL: Final = "faithful"
"""The one measure of a judge that is yes or no."""
JUDGED: Final = (FAITHFUL, "faithfulness", "answer_relevance", "correctness")
"""What a judge says."""
CORRECTED: Final = tuple(f"{measure}_corrected" for measure in JUDGED)
"""What people would say by their labels of a check's answers: the share of its answers of which they would say yes."""
ANSWER_MEASURES: Final = (*GROUNDING, *JUDGED, *CORRECTED)
BY_LABELS: Final = frozenset({FAITHFUL, *CORRECTED})
"""What rules judge by people's labels where these tell; the others of a judge are means of shares, another number."""


CorrectedRate = tuple[float, float, float]
"""Such a rate, and the ends of its 95 % interval."""


class CorrectedInterval(TypedDict):
    """What stands beside such a rate wherever it is shown: its 95 % interval, and the rate of the judge alone.

    Where more than a tenth of the answers have no rating, it holds whatever people would say of these.
    """

    low: float
    high: float
    judge_rate: float
    """Share of the answers that the judge itself says yes of."""
    answers: int
    """Of which the judge says something: the rate is of these alone."""
    unrated: NotRequired[int]
    """Watched answers that did not come or have no rating; absent = none."""
    edited_since: NotRequired[bool]
    """Whether the judge asked another endpoint when the labelled answers were drawn; absent = it did not."""
    labelled_of: NotRequired[str]
    """Retriever whose answers people labelled; absent = the one that the run asked."""
    labelled_before_edit_of: NotRequired[str]
    """The retriever that the run asked, where it was edited after its answers were labelled; absent = it was not."""


class CorrectedRateView(CorrectedInterval):
    """The judge's rate of a run, corrected by labels of answers of its check."""

    value: float
    labels: int
    task: str
    """Whose labels these are."""


def corrected_name(measure: str) -> str:
    """Return the name of the rate that labels of people make of what a judge says."""
    return CORRECTED[JUDGED.index(measure)]


def judged_name(measure: str | None) -> str | None:
    """Return what a judge says that a measure is, or is the corrected rate of; None for any other measure."""
    if measure in CORRECTED:
        return JUDGED[CORRECTED.index(measure)]
    return measure if measure in JUDGED else None


def marked_name(measure: str, confirmed: Collection[str]) -> str:
    """Return the name of a measure, marked where a judge says it that people have not confirmed, corrected or not."""
    said = judged_name(measure)
    return measure if said is None or said in confirmed else f"{measure} (uncalibrated)"


class Slice(Value):
    """Aggregates of some of a run's canaries: those of one category or one tag."""

    canaries: int
    measured: int
    health_score: float | None
    coverage: float | None
    measures: Mapping[str, float | None] = field(default_factory=empty_mapping)


class Aggregates(Value):
    """Numbers of a whole run. None = nothing was measured, never zero."""

    total: int
    measured: int
    failed: int
    undefined: int
    """Measured canaries with nothing expected: outside every mean."""
    degraded: int
    expecting: int = 0
    """Canaries that expect something, measured or not."""
    health_score: float | None
    coverage: float | None
    measures: Mapping[str, float | None] = field(default_factory=empty_mapping)
    """Means over the measured canaries that expect something, by measure name (`MRR` and `MAP` for RR and AP)."""
    categories: Mapping[str, Slice] = field(default_factory=empty_mapping)
    tags: Mapping[str, Slice] = field(default_factory=empty_mapping)
    probes: Mapping[str, int] = field(default_factory=empty_mapping)
    """How many probes ended with each outcome."""
    embedder: EmbedderChange | None = None
    """Finding of the embedding canaries; None = there is no embedder or, with a reason, it did not answer."""
    embedder_reason: str | None = None
    """A sentence without its full stop."""
    unknown_reason: str | None = None
    """Why the verdict is unknown, once that is decided; a sentence without its full stop."""
