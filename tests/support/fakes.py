"""Fakes for the two seams and the clock: a retriever that answers as told, a receiver of news, a clock to be set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from app.base.values import Answer, Outcome, Ranking
from app.hooks.domain import Hook, Message, Receipt
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@dataclass(kw_only=True)
class FakeClock:
    """A clock that stands still until it is moved."""

    now: datetime = START

    def __call__(self) -> datetime:
        """Tell the time."""
        return self.now

    def advance(self, seconds: float) -> datetime:
        """Move on and give the new time."""
        self.now += timedelta(seconds=seconds)
        return self.now


def hits(
    *ids: str, scores: Sequence[float | None] | None = None, texts: Mapping[str, str] | None = None, extra: int = 0
) -> Ranking:
    """Make a ranking of these ids, by default with scores that fall from 0.9; `extra` duplicates were dropped."""
    known = texts or {}
    return Ranking(
        ids=ids,
        documents=(None,) * len(ids),
        texts=tuple(known.get(one) for one in ids),
        scores=tuple(scores) if scores is not None else tuple(round(0.9 - 0.01 * rank, 2) for rank in range(len(ids))),
        returned=len(ids) + extra,
    )


def answered(ranking: Ranking, *, seconds: float = 0.5, index_version: str | None = None) -> Answer:
    """Make the answer that brings a ranking."""
    return Answer(outcome=Outcome.OK, latency_seconds=seconds, ranking=ranking, index_version=index_version)


def failed(outcome: Outcome, *, http_status: int | None = None, detail: str = "as told") -> Answer:
    """Make the answer of a probe that failed."""
    return Answer(outcome=outcome, latency_seconds=0.25, http_status=http_status, detail=detail)


class Crash(BaseException):
    """The process dies here."""


@dataclass(kw_only=True)
class FakeProbe:
    """Answers by query, in batches, the last canary first as a network might; remembers what it was asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    otherwise: Callable[[ProbeQuery], Answer] = field(default=lambda item: answered(hits(f"doc-{item.query}", "noise")))
    batch: int = 25
    before_batch: Callable[[int], None] = field(default=lambda _: None)
    """Called with the number of batches given so far; may raise Crash."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(run id, query), in order of asking."""
    askings: list[ProbeContext] = field(default_factory=list)
    facts: dict[str, float | Answer] = field(default_factory=dict)
    """What the store tells of its index: a number, or how a request for it fails."""
    exact: Callable[[ProbeQuery], Answer] = field(default=lambda item: answered(hits(f"doc-{item.query}", "noise")))
    """What an exact search finds."""
    beside: list[ProbeContext] = field(default_factory=list)
    """Requests for facts and exact searches."""

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Note what is asked and answer it batch by batch."""
        if context.retriever.reads is not None or context.retriever.is_exact:
            self.beside.append(context)
            return self._answer_beside(context, queries)
        self.askings.append(context)
        return self._batches(context, list(reversed(queries)))

    def _batches(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        for number, start in enumerate(range(0, len(queries), self.batch)):
            self.before_batch(number)
            block = queries[start : start + self.batch]
            self.asked += [(context.run_id, item.query) for item in block]
            yield [(item.position, self.answer(item)) for item in block]

    def _answer_beside(
        self, context: ProbeContext, queries: Sequence[ProbeQuery]
    ) -> Iterator[Sequence[tuple[int, Answer]]]:
        reads = context.retriever.reads
        if reads is None:
            yield [(item.position, self.exact(item)) for item in queries]
            return
        found = [self.facts.get(name) for name in reads]
        failure = next((one for one in found if isinstance(one, Answer)), None)
        numbers = [None if isinstance(one, Answer) else one for one in found]
        told = Ranking(
            ids=tuple(reads),
            documents=(None,) * len(reads),
            texts=tuple("there is nothing at it in the answer" if one is None else None for one in numbers),
            scores=tuple(numbers),
            returned=len(reads),
        )
        yield [(item.position, failure or answered(told)) for item in queries]

    def answer(self, item: ProbeQuery) -> Answer:
        """Answer one query."""
        return self.answers.get(item.query) or self.otherwise(item)

    def all_fail(self, outcome: Outcome = Outcome.UNREACHABLE) -> None:
        """Be dead from now on."""
        self.answers.clear()
        self.otherwise = lambda _: failed(outcome)

    def all_answer(self) -> None:
        """Answer every query with its own document from now on."""
        self.answers.clear()
        self.otherwise = lambda item: answered(hits(f"doc-{item.query}", "noise"))

    def all_miss(self) -> None:
        """Answer every query with noise from now on."""
        self.answers.clear()
        self.otherwise = lambda _: answered(hits("noise", "more-noise"))


DELIVERED = Receipt(ok=True, http_status=204, latency_seconds=0.01)


@dataclass(kw_only=True)
class FakeSend:
    """Takes messages and answers with the given receipts, then with success; remembers what it got."""

    receipts: list[Receipt] = field(default_factory=list)
    before: Callable[[Hook, Message], None] = field(default=lambda _hook, _message: None)
    sent: list[tuple[str, Message]] = field(default_factory=list)
    """(hook slug, message), in order of sending."""

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:  # noqa: ARG002 - the protocol's
        """Take the message and answer."""
        self.before(hook, message)
        self.sent.append((hook.slug, message))
        return self.receipts.pop(0) if self.receipts else DELIVERED


@dataclass(frozen=True, kw_only=True)
class ActingSend:
    """Does as told with every message, and answers what that gives."""

    act: Callable[[Hook, Message], Receipt]

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:  # noqa: ARG002 - the protocol's
        """Act."""
        return self.act(hook, message)
