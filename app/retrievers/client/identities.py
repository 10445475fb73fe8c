"""A retriever asked as several identities, each with its own credentials and nobody else's.

Queries are told apart by the variable that says who asks. Each identity is asked as a retriever of its own, which holds
its credentials alone: whatever sends, repeats, looks up, renews a token or keeps a session has no others at hand, and
connections are never shared. What answers are is left to the probe of the dialect.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final, Protocol

from app.base.addresses import IdentityAuth
from app.base.texts import short_name
from app.base.values import EMPTY, Answer, Outcome, replace
from app.retrievers.client.responses import failed_answer
from app.retrievers.domain.probes import NO_CREDENTIALS
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery, Retriever

Vectors = Mapping[str, Sequence[float]]
Answers = list[tuple[int, Answer]]

AT_ONCE: Final = 8
"""Identities that are asked at the same time; the limits of the retriever hold over all of them."""
POLL_SECONDS: Final = 0.2


class DialectProbe(Protocol):
    """Probes retrievers of one dialect; `vectors` are those of the queries, where a retriever takes them."""

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Answers]:
        """Send every query; see `Probe`."""
        ...


class IdentityProbe:
    """Asks by `probe`: as each identity apart, or at once where all queries have the same credentials.

    `finish` completes the answers of a retriever, which is that of the identity.
    """

    def __init__(
        self, probe: DialectProbe, finish: Callable[[Retriever, Iterator[Answers]], Iterator[Answers]]
    ) -> None:
        self._probe = probe
        self._finish = finish
        self._kept: dict[str, tuple[Retriever, dict[str, Retriever]]] = {}

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Answers]:
        """Send every query; see `Probe`. A query whose identity has no credentials is answered without being sent."""
        retriever, auth = context.retriever, context.retriever.auth
        if not isinstance(auth, IdentityAuth):
            return self._probe(context, queries, vectors)
        of_identity = self._retrievers(retriever, auth)
        if not queries:  # only to see whether it can be asked at all
            first = next(iter(of_identity.values()))
            return self._probe(replace(context, retriever=first), (), vectors)
        apart: dict[str | None, list[ProbeQuery]] = {}
        for item in queries:
            value = item.vars.get(auth.by, retriever.options.get(auth.by))
            own = replace(item, vars={name: one for name, one in item.vars.items() if name != auth.by})
            apart.setdefault(value, []).append(own)
        found = [
            self._finish(one, self._probe(replace(context, retriever=one), own, vectors))
            for value, own in apart.items()
            if value is not None and (one := of_identity.get(value)) is not None
        ]
        unknown = {value: own for value, own in apart.items() if value is None or value not in of_identity}
        return self._all(found, unknown, auth, min(AT_ONCE, context.concurrency))

    def _retrievers(self, retriever: Retriever, auth: IdentityAuth) -> dict[str, Retriever]:
        """Return the retriever of each identity, the same objects as long as the retriever is the same."""
        kept = self._kept.get(retriever.slug) if retriever.is_usual else None
        if kept is None or kept[0] is not retriever:
            of_identity = {
                value: replace(
                    retriever, auth=credentials, asked_as=value, options={**retriever.options, auth.by: value}
                )
                for value, credentials in auth.of.items()
            }
            if not retriever.is_usual:  # must not push out those of the next run
                return of_identity
            kept = self._kept[retriever.slug] = retriever, of_identity
        return kept[1]

    def _all(
        self,
        found: Sequence[Iterator[Answers]],
        unknown: Mapping[str | None, Sequence[ProbeQuery]],
        auth: IdentityAuth,
        at_once: int,
    ) -> Iterator[Answers]:
        """Yield what is answered, then the answers of those not asked: so many failures in a row would end a run."""
        with closing(_merged(found, at_once)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            yield from batches
        for value, queries in unknown.items():
            said = f"{auth.by} is not set" if value is None else f"{auth.by} is '{short_name(value)}'"
            answer = failed_answer(Outcome.BLOCKED, f"{said}{NO_CREDENTIALS}", None)
            yield [(item.position, answer) for item in queries]


def _merged(sources: Sequence[Iterator[Answers]], at_once: int) -> Iterator[Answers]:
    """Yield the batches of several iterators as they come, of which `at_once` are drawn from at a time, in threads."""
    if len(sources) == 1 or at_once == 1:
        for source in sources:
            with closing(source) as batches:  # type: ignore[type-var] # as above
                yield from batches
        return
    drawing = _Drawing(at_once)
    pool = ThreadPoolExecutor(at_once, "identity")
    try:
        for source in sources:
            pool.submit(drawing.draw, source)
        yield from drawing.batches(len(sources))
    finally:
        drawing.stopping.set()
        pool.shutdown(cancel_futures=True)


class _Drawing:
    """What several threads draw from iterators, and one reads."""

    def __init__(self, at_once: int) -> None:
        self.stopping = threading.Event()
        self._came: queue.Queue[Answers | BaseException | None] = queue.Queue(2 * at_once)

    def draw(self, source: Iterator[Answers]) -> None:
        """Hand on what an iterator yields, and what it raises, to its end or until `stopping`."""
        end: BaseException | None = None
        try:
            with closing(source) as batches:  # type: ignore[type-var] # as above
                for batch in batches:
                    if self.stopping.is_set():
                        break
                    if batch:
                        self._put(batch)
        except BaseException as error:  # noqa: BLE001 - raised where the answers are read
            end = error
        self._put(end)

    def batches(self, sources: int) -> Iterator[Answers]:
        """Yield what so many threads draw; an empty batch where nothing came for a while."""
        while sources:
            try:
                one = self._came.get(timeout=POLL_SECONDS)
            except queue.Empty:
                yield []
                continue
            if isinstance(one, BaseException):
                raise one
            if one is None:
                sources -= 1
            else:
                yield one

    def _put(self, one: Answers | BaseException | None) -> None:
        while not self.stopping.is_set():
            try:
                self._came.put(one, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return
