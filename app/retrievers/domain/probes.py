"""The probes of a retriever: what people see of them, why those of a run failed, and when a run asks no more.

In this order: views of failures, trials, mappings and embedders; the failures of a run, each summarized in a sentence
that names step, address and error as people know it: `embedder at 127.0.0.1:8220 answers HTTP 500`; percentiles of
latencies; the texts of errors; the address of a URL, and as which peer the limits know a retriever. Last the circuit
breaker that ends a run early, and `ask_in_turn`, which asks until it opens.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NotRequired, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

import numpy as np
from typing_extensions import TypedDict

from app.base.limits import Limits, Peer
from app.base.texts import counted, plural
from app.base.values import EMPTY, Answer, EmbedderChange, Level, Outcome, Step, TimeText, Value, asdict, field, replace
from app.retrievers.domain.retrievers import PLACEHOLDER, Probe, ProbeContext, ProbeQuery, Scale, ScorerKind


class FailureView(TypedDict):
    """The failure that most failed probes of a run share, and how many failed, were not sent, and were in all."""

    step: Step
    address: str | None
    outcome: Outcome
    http_status: int | None
    error: str
    count: int
    failed: int
    skipped: int
    total: int
    text: str


class UnmeasuredView(TypedDict):
    """Canaries of a run that were not measured for the same reason."""

    step: Step
    outcome: Outcome
    http_status: int | None
    error: str
    """Who failed and how, with the server's own words, secrets masked."""
    count: int
    """Number of canaries."""
    canaries: list[str]
    """Keys of the first twenty."""


class TrialRequest(TypedDict):
    """Request that was sent, secrets masked."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None
    cut: bool
    """Only the beginning of the body is shown."""


class TrialResponse(TypedDict):
    """Response that was received, secrets masked."""

    status: int | None
    headers: dict[str, str]
    body: str
    bytes: int
    cut: bool


class TrialHit(TypedDict):
    """A hit as the mapping read it."""

    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    relevance: float | None
    updated: TimeText | None


class TrialScorer(TypedDict):
    """Source of relevance."""

    kind: ScorerKind
    scale: Scale | None


class SuggestedScorer(TypedDict):
    """How relevance would be told, as documents write it."""

    scale: Scale


class MappingSuggestion(TypedDict):
    """A mapping that would find hits in the answer."""

    response: dict[str, str | None]
    scorer: SuggestedScorer | None
    hits: int
    reasons: dict[str, str]
    yaml: str


class TrialView(TypedDict):
    """One query sent to a retriever, and everything between the request and the hits."""

    retriever: str
    query: str
    outcome: Outcome
    step: Step
    detail: str | None
    http_status: int | None
    latency_seconds: float | None
    index_version: str | None
    request: TrialRequest | None
    response: TrialResponse | None
    hits: list[TrialHit]
    returned: int | None
    scorer: TrialScorer
    top_score: float | None
    unscored: str | None
    remarks: list[str]
    suggestions: list[MappingSuggestion]


class ExpectedMatch(TypedDict):
    """A judgment, with the rank and the level of its best hit."""

    id: NotRequired[str]
    document: NotRequired[str]
    text: NotRequired[str]
    grade: int
    rank: int | None
    level: Level | None


class CanaryMatches(TypedDict):
    """Expected chunks of a canary among the hits of a trial."""

    key: str
    expected: list[ExpectedMatch]
    missing: int
    matched_ranks: list[int]
    """Ranks of hits with a grade of at least 1."""


class MappingPreview(TrialView):
    """A trial of a response mapping."""

    refused: str | None
    """Why a run would refuse the response."""
    warnings: list[str]
    matches: CanaryMatches | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderReference:
    """Vectors of known texts that later answers of an embedder are compared with."""

    run: str | None
    at: TimeText | None
    dimensions: int
    texts: int


class StoredPair(TypedDict):
    """Cosines of two known texts, now and by the reference."""

    key: str
    similar: bool
    cosine: float
    reference: float
    agreement: float


class StoredFinding(TypedDict):
    """Finding of a run about an embedder."""

    outcome: Outcome
    http_status: int | None
    kind: EmbedderChange | None
    reason: str
    dimensions: int | None
    pairs: list[StoredPair]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderView:
    """Last finding about the embedder of a retriever; nulls where no run has asked one."""

    retriever: str
    model: str | None
    reference: EmbedderReference | None
    finding: StoredFinding | None
    run: str | None
    at: TimeText | None
    since_run: str | None
    since: TimeText | None


_Kind: TypeAlias = tuple[Step, str | None, Outcome, int | None]
"""Step, address, outcome and HTTP status: probes that agree in them failed alike."""


class FailedProbe(Protocol):
    """A probe without a measurement, as it was stored, or the answer by which it just ended."""

    @property
    def outcome(self) -> str: ...  # noqa: D102 - said below
    @property
    def step(self) -> str: ...  # noqa: D102 - said below
    @property
    def address(self) -> str | None: ...  # noqa: D102 - said below
    @property
    def http_status(self) -> int | None: ...  # noqa: D102 - said below
    @property
    def detail(self) -> str | None: ...  # noqa: D102 - said below


_ADVICE: Final[Mapping[Outcome, str]] = {
    Outcome.UNREACHABLE: "Check that {who} is running and can be reached from Coalmine.",
    Outcome.TIMEOUT: "Check that {who} is running, and how busy it is.",
    Outcome.REFUSED: "Send a test request to see what {who} rejects.",
    Outcome.MALFORMED: "Send a test request and compare the answer of {who} with the response mapping.",
    Outcome.BLOCKED: "Correct the URL of {who}, or allow its address in COALMINE_RETRIEVER_ALLOW.",
    Outcome.PARTIAL: "Look at the message of {who}: a part of it failed or was too slow (shards, time limits, load).",
    Outcome.OVERSIZE: "Ask {who} for fewer or shorter chunks.",
}
_STATUSES: Final[Mapping[int, str]] = {
    401: "Check the credentials for {who}.",
    403: "Check the credentials for {who}, and what they may read.",
    404: "Check the URL of {who}, and that its collection exists.",
    429: "Lower the concurrency or the rate of the retriever: {who} limits requests.",
}
_DATABASE: Final[Mapping[str, str]] = {
    "28": "Check the credentials for {who}.",
    "42501": "Check the grants of the database user of {who}: it may not read what the statement names.",
    "3D000": "Check the URL of {who}, and that its database exists.",
    "3F": "Check that the schema in the statement exists, at {who}.",
    "42": "Check the tables, columns and functions that the statement names, at {who}.",
    "53300": "Lower the concurrency of the retriever, or allow more connections: {who} has none left.",
    "53": "Check memory and disk of {who}.",
    "57P": "Check that {who} is running; it is starting, stopping or was shut down.",
}
_SQLSTATE: Final = re.compile(r"the database answered ([0-9A-Z]{5})\b")
_REDIRECT: Final = (
    "Set the URL of {who} to the address that it redirects to; if that is a sign-in, check the credentials."
)
_FIRST_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = "Check the log of {who}."
_FIRST_SERVER_ERROR: Final = 500


class FailureSummary(Value):
    """The failure that most failed probes of a run share."""

    step: Step
    address: str | None
    outcome: Outcome
    http_status: int | None
    error: str
    """What went wrong, as the end of a sentence that begins with who failed: `answers HTTP 500`."""
    count: int
    failed: int
    """Probes that were sent and failed, in any way."""
    skipped: int
    """Probes that were not sent, since the run ended first."""
    total: int

    def who(self, retriever: str = "") -> str:
        """Name of what failed: `embedder at 127.0.0.1:8220`; `retriever` is the name of the retriever."""
        name = _NAMES[self.step]
        if retriever:
            name += f" {retriever}" if self.step is Step.RETRIEVER else f" of {retriever}"
        return f"{name} at {self.address}" if self.address else name

    @property
    def what(self) -> str:
        """What failed and how: `embedder at 127.0.0.1:8220 answers HTTP 500`."""
        return f"{self.who()} {self.error}"

    @property
    def counts(self) -> str:
        """Numbers of probes: `143 of 143 probes`, and how many failed otherwise or were not sent."""
        others = [f"{self.failed - self.count:,} failed otherwise"] if self.failed > self.count else []
        others += [f"{self.skipped:,} {'was' if self.skipped == 1 else 'were'} not sent"] if self.skipped else []
        return ", ".join([f"{self.count:,} of {self.total:,} {plural(self.total, 'probe')}", *others])

    def __str__(self) -> str:
        """Write it as a sentence without its full stop."""
        return f"{self.what} ({self.counts})"

    def advice(self, retriever: str = "") -> str:
        """Return what to do next, in a sentence; `retriever` as for `who`."""
        text = _ADVICE.get(self.outcome, _SERVER_ERROR)
        state = _SQLSTATE.search(self.error)
        if state is not None:
            text = next((advice for start, advice in _DATABASE.items() if state[1].startswith(start)), text)
        elif self.error.endswith(NO_CREDENTIALS):
            text = "Add the credentials of that identity under auth: of, or correct the variable of its canaries."
        elif "TLS" in self.error:
            text = "Check the TLS settings and the certificate of {who}."
        if self.outcome is Outcome.REFUSED and self.http_status is not None:
            other = _REDIRECT if self.http_status < _FIRST_CLIENT_ERROR else text
            other = _SERVER_ERROR if self.http_status >= _FIRST_SERVER_ERROR else other
            text = _STATUSES.get(self.http_status, other)
        return text.format(who=self.who(retriever))

    def as_json(self) -> FailureView:
        """JSON of the summary, as evidence."""
        return cast("FailureView", {**asdict(self), "text": str(self)})

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "FailureSummary":
        """Summary from the JSON of `as_json`."""
        values = {name: stored[name] for name in FailureSummary.__struct_fields__}
        return cls(**values | {"step": Step(stored["step"]), "outcome": Outcome(stored["outcome"])})


def summarize_failures(failures: Iterable[FailedProbe], total: int) -> FailureSummary | None:
    """Return the failure most of these probes share; None where none was sent and failed."""
    return next(iter(failure_kinds(failures, total)), None)


def failure_reasons(kinds: Sequence[FailureSummary], reasons: Sequence[str]) -> list[str]:
    """Return a sentence without a full stop for each kind of failure that no reason of the run names yet."""
    return [
        f"{kind.what} ({kind.count:,} of {kind.total:,} {plural(kind.total, 'probe')})"
        for kind in kinds
        if not any(kind.what in reason for reason in reasons)
    ]


def failure_kinds(failures: Iterable[FailedProbe], total: int) -> list[FailureSummary]:
    """Return every kind of failure among these probes that were sent, the commonest first.

    Probes fail alike that failed at the same step and address, with the same outcome and HTTP status. Of two equally
    common kinds of failure the first one comes first.
    """
    kinds: Counter[_Kind] = Counter()
    details: dict[_Kind, Counter[str | None]] = {}
    skipped = 0
    for one in failures:
        kind = _kind_of(one)
        if kind[2] is Outcome.SKIPPED:
            skipped += 1
            continue
        kinds[kind] += 1
        details.setdefault(kind, Counter())[one.detail] += 1
    return [
        FailureSummary(
            step=kind[0],
            address=kind[1],
            outcome=kind[2],
            http_status=kind[3],
            error=error_text(kind[2], kind[3], details[kind].most_common(1)[0][0]),
            count=count,
            failed=kinds.total(),
            skipped=skipped,
            total=total,
        )
        for kind, count in kinds.most_common()
    ]


def unmeasured_canaries(failures: Iterable[tuple[str, FailedProbe]]) -> list[UnmeasuredView]:
    """Return the canaries that were not measured, by kind of failure, the commonest first.

    `failures`: of keys of canaries. Those that were not asked, since the run ended first, are a kind too.
    """
    kinds: dict[_Kind, list[tuple[str, str | None]]] = {}
    for key, one in failures:
        kinds.setdefault(_kind_of(one), []).append((key, one.detail))
    views: list[UnmeasuredView] = []
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        step, address, outcome, http_status = kind
        detail = Counter(detail for _, detail in found).most_common(1)[0][0]
        name = _NAMES[step] + (f" at {address}" if address else "")
        views.append(
            {
                "step": step,
                "outcome": outcome,
                "http_status": http_status,
                "error": f"{name} {error_text(outcome, http_status, detail)}",
                "count": len(found),
                "canaries": [key for key, _ in found[:_NAMED_CANARIES]],
            }
        )
    return views


def _kind_of(failure: FailedProbe) -> _Kind:
    return Step(failure.step), failure.address, Outcome(failure.outcome), failure.http_status


def latency_summary(latencies: Sequence[float]) -> dict[str, float | None]:
    """Return median, 95th percentile and maximum of measured latencies, None where nothing was measured."""
    if not latencies:
        return {"p50": None, "p95": None, "max": None}
    places = np.array([0.5, 0.95, 1.0]) * (len(latencies) - 1)  # as np.percentile, which imports masked arrays for it
    p50, p95, most = np.interp(places, np.arange(len(latencies)), np.sort(np.asarray(latencies))).tolist()
    return {"p50": round(p50, 6), "p95": round(p95, 6), "max": round(most, 6)}


def error_text(outcome: Outcome, http_status: int | None, detail: str | None) -> str:
    """Text of an error, as the end of a sentence that begins with what failed."""
    if outcome is Outcome.REFUSED and http_status is not None:
        return f"answers HTTP {http_status}{_ANSWERED.sub('', _plain_detail(detail))}"
    if outcome is Outcome.PARTIAL and detail:
        return _plain_detail(detail).replace("answered", "answers", 1)
    why = _plain_detail(detail)
    return f"{_ERRORS[outcome]}: {why}" if why and outcome in _EXPLAINED else _ERRORS[outcome]


def outcome_text(outcome: Outcome, http_status: int | None) -> str:
    """Text of a failure in two words at most: `HTTP 500`, `timeout`."""
    return f"HTTP {http_status}" if outcome is Outcome.REFUSED and http_status is not None else str(outcome)


def url_address(url: str, options: Mapping[str, str]) -> str | None:
    """Host and, unless the scheme says it, port of a URL or of a template with these options; None for none."""
    filled = PLACEHOLDER.sub(lambda match: options.get(match[1], match[0]), url)
    try:
        parts = urlsplit(filled)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or not _HOST.fullmatch(host):
        return None
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def peer_of(context: ProbeContext, limits: Limits) -> Peer:
    """Give the retriever as a peer in these limits, by slug and address.

    The address, since definitions that are only tried often have the same slug.
    """
    retriever = context.retriever
    address = url_address(retriever.url, retriever.options) or retriever.url
    name = f"{retriever.slug} at {address}"
    if context.lane is None:
        return Peer(limits=limits, name=name, defined_at=context.defined_at, patience=context.patience)
    in_lane = f"{name}, lane {context.lane.number}"
    return Peer(
        limits=limits,
        name=in_lane,
        defined_at=context.defined_at,
        reserve=context.lane.reserve,
        rate_name=name,
        patience=context.patience,
    )


def _plain_detail(detail: str | None) -> str:
    """Detail without the words that name the step, which the sentence has already."""
    text = _STEP_WORDS.sub("", detail or "")
    return text if len(text) <= _LONGEST_DETAIL else f"{text[: _LONGEST_DETAIL - 1]}\u2026"


_NAMES = {
    Step.RETRIEVER: "retriever",
    Step.EMBEDDER: "embedder",
    Step.LOOKUP: "collection lookup",
    Step.AUTHENTICATION: "token endpoint",
}
_ERRORS = {
    Outcome.OK: "answers",
    Outcome.TIMEOUT: "does not answer in time",
    Outcome.UNREACHABLE: "is unreachable",
    Outcome.REFUSED: "rejects the request",
    Outcome.MALFORMED: "answers in a form that cannot be read",
    Outcome.BLOCKED: "is blocked",
    Outcome.OVERSIZE: "answers with too many bytes",
    Outcome.PARTIAL: "answers in part",
    Outcome.SKIPPED: "was not asked",
}
_EXPLAINED = frozenset({Outcome.UNREACHABLE, Outcome.REFUSED, Outcome.MALFORMED, Outcome.BLOCKED})
_STEP_WORDS = re.compile(r"^(?:the (?:embedder|token endpoint|lookup of [^:]*): )?(?:connection failed: )?")
_HOST = re.compile(r"[\w.:%~-]{1,253}")
_ANSWERED = re.compile(r"^(?:answered \d{3}[^;:\u201c]*|[^;:\u201c]*$|(?!answered ).*)", re.DOTALL)
_LONGEST_DETAIL = 400
_NAMED_CANARIES = 20
NO_CREDENTIALS: Final = ", for which auth: of has no credentials, so nobody was asked"
"""How the detail of an answer ends whose identity has no credentials of its own."""
ENDED_FIRST: Final = "the run ended first"
"""Detail of a probe that was not sent."""


class CircuitBreaker(Value):
    """Counts failed probes in a row, in the order of their answers; once open it stays open. Immutable."""

    limit: int | None
    """Failures in a row that open it; None = it never opens."""
    arrived: int = 0
    failures: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """Number of failures in a row, by kind."""
    retry_after_seconds: float | None = None
    """`Retry-After` of the retriever, where it is longer than a run waits: opens the breaker at once."""
    refused_seconds: float | None = None
    """For how long it had refused every request, where that is longer than a run waits: likewise."""

    def after(self, answers: Iterable[Answer]) -> "CircuitBreaker":
        """Breaker after these answers; what follows the failure that opened it is not counted."""
        arrived, failures = self.arrived, dict(self.failures)
        retry_after, refused = self.retry_after_seconds, self.refused_seconds
        opened, ok = self.is_open, Outcome.OK  # looked up once: of an enumeration that is slow
        for answer in answers:
            arrived += 1
            if opened:
                continue
            if answer.outcome is ok:
                failures.clear()
                continue
            kind = _failure_text(answer)
            failures[kind] = failures.get(kind, 0) + 1
            retry_after, refused = answer.retry_after_seconds, answer.refused_seconds
            opened = self._opens(failures, retry_after, refused)
        return replace(
            self, arrived=arrived, failures=failures, retry_after_seconds=retry_after, refused_seconds=refused
        )

    @property
    def is_open(self) -> bool:
        """Whether no more queries may be sent."""
        return self._opens(self.failures, self.retry_after_seconds, self.refused_seconds)

    @property
    def reason(self) -> str:
        """Why it is open, as a sentence without a full stop."""
        if self.retry_after_seconds is not None:
            return (
                f"the run was ended early: the retriever asked to be left alone for {self.retry_after_seconds:,.0f} s"
            )
        if self.refused_seconds is not None:
            return f"the run was ended early: the retriever refused every request for {self.refused_seconds:,.0f} s"
        kinds = sorted(self.failures.items(), key=lambda kind: (-kind[1], kind[0]))
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds)
        return f"the run was ended early: {counted(sum(self.failures.values()), 'probe')} in a row failed ({counts})"

    def _opens(
        self, failures: Mapping[str, int], retry_after_seconds: float | None, refused_seconds: float | None
    ) -> bool:
        if self.limit is None:
            return False
        is_refused = retry_after_seconds is not None or refused_seconds is not None
        return is_refused or sum(failures.values()) >= self.limit


def _failure_text(answer: Answer) -> str:
    """Text of a failure and, where it was not the retriever's, the step that failed."""
    at = "" if answer.step is Step.RETRIEVER else f" at the {answer.step}"
    return f"{outcome_text(answer.outcome, answer.http_status)}{at}"


def ask_in_turn(
    probe: Probe,
    context: ProbeContext,
    queries: Sequence[ProbeQuery],
    breaker: CircuitBreaker,
    *,
    stopping: Callable[[], bool] = lambda: False,
    answered: Callable[[int], None] = lambda _: None,
) -> tuple[dict[int, Answer], CircuitBreaker]:
    """Answers by position, and the breaker after them; no more come once it is open, or `stopping`.

    `answered` hears of how many more there are.
    """
    answers: dict[int, Answer] = {}
    with closing(probe(context, queries)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            answers.update(batch)
            answered(len(batch))
            breaker = breaker.after(answer for _, answer in batch)
            if stopping() or breaker.is_open:
                break
    return answers, breaker
