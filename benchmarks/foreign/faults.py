"""What goes wrong, how it is made, what may be told of it: 36 faults, ten of them twice: statistics refitted and kept.

A fault has the causes that are right, those that may stand beside one, and whether it must page at all. `CAUSES` are
the words by which a sentence names a cause; `told` reads them in their order. Who is truly hurt is computed from the
system's own answers before and after: by id or by text an expected chunk left the top 5, NDCG@10 fell, or the first hit
is less relevant than a canary asks for.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2
from statistics import median
from typing import Final

from app.base.values import DEFAULT_MIN_RELEVANCE, replace
from benchmarks.foreign.collections import (
    Chunk,
    Collection,
    K,
    Question,
    Suite,
    competitors,
    recut,
    reworded,
    shortened,
)
from benchmarks.foreign.systems import Build, Front, Hit, System

FETCHED: Final = 10
_FELL_BY: Final = 0.05
_HELD: Final = 0.5
_SCORES_MOVED: Final = 0.7
_GRAM: Final = 3
_GONE_SINCE: Final = "2025-06-01"

CAUSES: Final[Mapping[str, str]] = {
    "missing": r"missing from|missing chunks|chunks? (?:is|are) missing|\bgone\b|no longer in the index|\d missing\b"
    r"|deleted",
    "filter": r"filter",
    "replicas": r"replica|alternat|two states|two indexes|A/B",
    "unstable": r"unstable|passed over by the search|left out|come and go|comes and goes",
    "ann": r"approximate|ef_search|nprobe|vector search misses|recall of the (?:vector )?index",
    "embedder": r"embedder(?! (?:of \S+ )?at \S+ answers)|embedding model|another model|other vectors"
    r"|(?:query|index) vectors|another encoder(?! or)",
    "models": r"vectors of two models",
    "encoder": r"another encoder or",
    "scores": r"other scores|scores of the same chunks changed|scoring changed|ranking changed",
    "analyzer": r"analy[sz]er|stemm|tokeni[sz]",
    "rechunked": r"re-?cut|re-?chunked|cut differently",
    "ids": r"under other ids|chunks renamed|ids? (?:were |was )?(?:changed|renamed)|new ids",
    "documents": r"documents renamed",
    "texts": r"texts? of the same chunks|texts? (?:were |was |are )?(?:cut|emptied|empty|shortened|truncated)"
    r"|without their texts",
    "duplicates": r"near cop|duplicate|copies",
    "truncated": r"\bcut off\b|fewer results|fewer hits|at most \d+ (?:hits|results|chunks)|limit of \d",
    "threshold": r"threshold|minimum score|score (?:bound|floor)|hits? (?:scoring )?(?:below|beyond a distance)",
    "relevance": r"scored too low",
    "empty": r"every answer is empty|answers? (?:is|are|was|were|came) empty|empty answers?|no hits at all"
    r"|returns? nothing",
    "partial": r"partial|not whole|timed.out",
    "error": r"HTTP 5\d\d|not measurable|probes? fail|not answered|could not be measured|queries fail|unanswered",
    "latency": r"latency|slower|slow\b",
    "outranked": r"outranked|new (?:documents|chunks)|stand before",
}
"""How a sentence names each cause. A joint phrase is one of its own: "another encoder or another scoring"."""
_OPEN: Final = re.compile(r"not explained")


def told(sentence: str) -> tuple[str, ...]:
    """Return the causes that a sentence names, in its order; a word that is part of a longer name counts for that."""
    found: list[tuple[int, int, str]] = [
        (match.start(), match.end(), cause)
        for cause, words in CAUSES.items()
        for match in re.finditer(words, sentence, re.IGNORECASE)
    ]
    whole: list[tuple[int, int, str]] = []
    for start, end, cause in sorted(found, key=lambda one: (one[0], -one[1])):
        if not whole or start >= whole[-1][1]:
            whole.append((start, end, cause))
    ordered = [cause for _, _, cause in whole]
    for longer, part in (("rechunked", "ids"), ("encoder", "scores"), ("models", "embedder")):
        # "re-cut under other ids" is one cause
        if longer in ordered:
            ordered = [cause for cause in ordered if cause != part]
    return tuple(dict.fromkeys(ordered))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A system under trial, its canaries, and how it answered them while it was healthy."""

    system: System
    collection: Collection
    suite: Suite
    healthy: Mapping[str, Sequence[Hit]]

    def break_index(self, chunks: Sequence[Chunk], *, refit: bool) -> None:
        """Answer from an index of these chunks."""
        self.system.break_by(Build(chunks=tuple(chunks), refit=refit))

    def break_build(self, **changes: object) -> None:
        """Answer from an index of the healthy chunks that is made otherwise."""
        self.system.break_by(replace(self.system.healthy, **changes))  # type: ignore[arg-type] # fields of Build

    def break_front(self, front: Front) -> None:
        """Change answers on their way."""
        self.system.break_by(front=front)

    def alternate(self, **changes: object) -> None:
        """Answer every second request from an index that is made otherwise."""
        healthy = self.system.healthy
        self.system.break_by(healthy, replace(healthy, **changes))  # type: ignore[arg-type] # fields of Build

    @property
    def usual_score(self) -> float:
        """The median score of the expected chunks that are found."""
        scores = [
            hit.score
            for question in self.suite.questions
            for hit in self.healthy[question.key][:K]
            if hit.chunk.id in question.expected
        ]
        return median(scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, and what is true of it."""

    name: str
    make: Callable[[Bench], None]
    causes: tuple[str, ...] = ()
    """Any of these is right as the first cause that is told; empty = no page is wanted, whatever it does."""
    beside: tuple[str, ...] = ()
    """These may be told after it."""
    needs: tuple[str, ...] = ()
    """What a system may lack."""
    names_canaries: bool = True
    may_be_quiet: bool = False
    """Whether people lose nothing by it, since the passages come as before: judged only where it pages."""
    group: Callable[[Bench], str] | None = None
    """What all damage has in common, to be named."""

    @property
    def pages(self) -> bool:
        """Whether it must page where it hurts."""
        return bool(self.causes)

    def verdict(self, summary: str, further: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Judge what was told: the headline, and where it names no cause the sentences after it.

        `right`: the first cause is, all others fit, two are named at most and nobody is left "not explained".
        `partly`: a right one is named, among others. `wrong`, or `none`.
        """
        causes = next((found for sentence in (summary, *further) if (found := told(sentence))), ())
        if not causes:
            return "none", ()
        fits = set(causes) <= {*self.causes, *self.beside}
        if causes[0] in self.causes and fits and len(causes) <= 2 and not _OPEN.search(summary):
            return "right", causes
        return ("partly" if set(causes) & set(self.causes) else "wrong"), causes

    def why_not(self, system: System) -> str | None:
        """Why a system cannot have it, in a word; None where it can."""
        return next((system.lacks[need] for need in self.needs if need in system.lacks), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hurt:
    """The canaries that a fault truly hurts."""

    lost: frozenset[str]
    """Neither by id nor by text is anything expected in the top 5 any more, where it was."""
    worse: frozenset[str]
    """All that lost something, rank it lower, or whose first hit is not relevant any more, these included."""
    better: frozenset[str]
    """Found now and not before."""
    thinner: frozenset[str]
    """The top 5 hold less of the expected text than they did: cut, reworded or lower, though half or more may be there.
    To list them is right, to leave them out is no mistake."""

    @property
    def is_noticeable(self) -> bool:
        """Whether anything is to be noticed at all: three canaries, of which the noise of an index is no part."""
        return len(self.lost) >= 2 or len(self.worse) >= 3


def hurt(bench: Bench) -> Hurt:
    """Ask the broken system itself."""
    lost, worse, better, thinner = set(), set(), set(), set()
    for question in bench.suite.questions:
        before = _standing(question, bench.healthy[question.key], bench)
        for hits in bench.system.rankings(question.text, FETCHED):
            now = _standing(question, hits, bench)
            if before.found and not now.found and not now.found_by_text:
                lost.add(question.key)
            if (
                (before.found and not (now.found and now.found_by_text))
                or (before.relevant and not now.relevant)
                or before.ndcg - now.ndcg > _FELL_BY
                or before.ndcg_by_text - now.ndcg_by_text > _FELL_BY
            ):
                worse.add(question.key)
            if now.found_by_text and not before.found_by_text:
                better.add(question.key)
            if now.held < before.held:
                thinner.add(question.key)
    return Hurt(
        lost=frozenset(lost), worse=frozenset(worse), better=frozenset(better - worse), thinner=frozenset(thinner)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    found: bool
    found_by_text: bool
    held: float
    """The largest share of an expected text that one of the top 5 holds."""
    relevant: bool
    """Whether the first hit is, by the scorer of the retriever and the minimum that a canary has by default."""
    ndcg: float
    ndcg_by_text: float


def _standing(question: Question, hits: Sequence[Hit], bench: Bench) -> _Standing:
    expected = [_grams(bench.collection.by_id[name].text) for name in question.expected]
    by_id = [hit.chunk.id in question.expected for hit in hits]
    shares = [
        max((len(wanted & held) / len(wanted) for wanted in expected), default=0.0)
        for held in (_grams(hit.chunk.text) for hit in hits)
    ]
    by_text = [share >= _HELD for share in shares]
    return _Standing(
        found=any(by_id[:K]),
        found_by_text=any(by_text[:K]),
        held=max(shares[:K], default=0.0),
        relevant=any((bench.system.relevance(hit) or 0) >= DEFAULT_MIN_RELEVANCE for hit in hits[:1]),
        ndcg=_ndcg(by_id, len(expected)),
        ndcg_by_text=_ndcg(by_text, len(expected)),
    )


def _ndcg(gains: Sequence[bool], expected: int) -> float:
    ideal = sum(1 / log2(rank + 2) for rank in range(min(expected, FETCHED)))
    return min(1.0, sum(1 / log2(rank + 2) for rank, gain in enumerate(gains[:FETCHED]) if gain) / ideal)


def _grams(text: str) -> frozenset[tuple[str, ...]]:
    words = text.lower().split()
    return frozenset(zip(*(words[place:] for place in range(_GRAM)), strict=False)) or frozenset({tuple(words)})


# --- the list ------------------------------------------------------------------------------------------------


def faults() -> tuple[Fault, ...]:
    """List all faults in their order."""
    return (*_losses(), *_additions(), *_models(), *_renamings(), *_texts(), *_answers(), *_changing())


def _both(
    name: str,
    change: Callable[[Bench], Sequence[Chunk]],
    *,
    causes: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
    adds: bool = False,
    group: Callable[[Bench], str] | None = None,
) -> Iterator[Fault]:
    """Make a fault of the index twice: with statistics learned anew from what is left, and with those of before."""
    for refit in (True, False):

        def make(bench: Bench, *, refit: bool = refit) -> None:
            bench.break_index(change(bench), refit=refit)

        needs = ("refit",) if refit else ("kept", "adding") if adds else ("kept",)
        word = "refitted" if refit else "kept"
        yield Fault(name=f"{name}, {word}", make=make, causes=causes, beside=beside, needs=needs, group=group)


def _index(
    name: str, change: Callable[[Bench], Sequence[Chunk]], causes: tuple[str, ...], beside: tuple[str, ...] = ()
) -> Fault:
    """Make a fault of the index once, with the statistics that the system would have."""

    def make(bench: Bench) -> None:
        bench.break_index(change(bench), refit="refit" not in bench.system.lacks)

    return Fault(name=name, make=make, causes=causes, beside=beside)


def _losses() -> Iterator[Fault]:
    aside = ("scores", "outranked")  # where statistics are refitted, some of the others move
    yield from _both(
        "5 % of the documents lost",
        lambda one: _without(one, one.collection.some_documents(0.05, "lost")),
        causes=("missing",),
        beside=(*aside, "filter"),
    )
    yield from _both(
        "stale copy, 15 % missing",
        lambda one: _stale(one, 0.15),
        causes=("missing",),
        beside=(*aside, "texts"),
        adds=True,
    )
    filtered = ("missing", "filter")
    yield from _both(
        "one group filtered away",
        lambda one: _without_groups(one, _groups(one)[:1]),
        causes=filtered,
        beside=aside,
        group=lambda one: _groups(one)[0],
    )
    yield from _both(
        "three groups filtered away", lambda one: _without_groups(one, _groups(one)[:3]), causes=filtered, beside=aside
    )
    yield from _both(
        "all after a date gone",
        lambda one: [chunk for chunk in one.collection.chunks if chunk.updated < _GONE_SINCE],
        causes=filtered,
        beside=aside,
    )
    yield from _both(
        "half of the shards lost", lambda one: one.collection.chunks[::2], causes=("missing",), beside=aside
    )


def _additions() -> Iterator[Fault]:
    yield from _both(
        "20 % near copies", _with_copies, causes=("duplicates",), beside=("scores", "outranked"), adds=True
    )
    yield from _both(
        "originals replaced by copies", _replaced, causes=("ids", "rechunked", "missing"), beside=("scores",), adds=True
    )
    yield from _both(
        "30 % competing documents",
        lambda one: [*one.collection.chunks, *competitors(one.collection, 0.3)],
        causes=("outranked",),
        beside=("scores", "duplicates"),
        adds=True,
    )
    yield from _both(
        "5 % new documents",
        lambda one: [*one.collection.chunks, *one.collection.reserve],
        causes=("outranked",),
        beside=("scores",),
        adds=True,
    )


def _models() -> Iterator[Fault]:
    swapped = ("embedder", "encoder")
    yield Fault(
        name="query model swapped",
        make=lambda one: one.break_build(other_query_model=True),
        causes=swapped,
        beside=("scores",),
        needs=("vectors",),
    )
    yield Fault(
        name="index model swapped",
        make=lambda one: one.break_build(other_index_model=True),
        causes=swapped,
        beside=("scores",),
        needs=("vectors",),
    )
    yield Fault(
        name="both models swapped",
        make=lambda one: one.break_build(other_index_model=True, other_query_model=True),
        causes=swapped,
        beside=("scores",),
        needs=("vectors",),
    )
    yield Fault(
        name="vectors cut to 16 dimensions",
        make=lambda one: one.break_build(dimensions=16),
        causes=(*swapped, "scores"),
        beside=("ann",),
        needs=("vectors",),
    )
    yield Fault(
        name="vectors of one bit",
        make=lambda one: one.break_build(one_bit=True),
        causes=(*swapped, "scores"),
        beside=("ann",),
        needs=("vectors",),
    )
    changed = ("analyzer", "encoder", "scores")
    yield Fault(
        name="stemmer changed",
        make=lambda one: one.break_build(other_analyzer=True),
        causes=changed,
        needs=("analyzer",),
    )
    yield Fault(
        name="scoring changed", make=lambda one: one.break_build(other_scoring=True), causes=changed, needs=("scoring",)
    )
    yield Fault(
        name="ef_search 3",
        make=lambda one: one.break_build(ef_search=3),
        causes=("ann", "unstable", "truncated"),
        needs=("ef_search",),
    )


def _renamings() -> Iterator[Fault]:
    yield _index("re-cut under new ids", lambda one: recut(one.collection, 250, "v2-"), ("rechunked",), ("scores",))
    yield _index("re-cut under old ids", lambda one: recut(one.collection, 250), ("rechunked", "texts"), ("scores",))
    renamed = _index(
        "ids renamed", lambda one: [replace(c, id=f"{n:06x}") for n, c in enumerate(one.collection.chunks)], ("ids",)
    )
    yield replace(renamed, may_be_quiet=True)
    yield _index(
        "documents renamed",
        lambda one: [replace(c, document=f"archive/{c.document}") for c in one.collection.chunks],
        (),
    )


def _texts() -> Iterator[Fault]:
    for characters in (120, 60):
        yield _index(
            f"texts cut to {characters} in the index",
            partial(_cut, characters=characters),
            ("texts",),
            ("missing", "scores"),
        )
    for name, characters in (("texts cut to 60 in answers", 60), ("texts emptied in answers", 0)):
        yield Fault(name=name, make=partial(Bench.break_front, front=Front(characters=characters)), causes=("texts",))


def _answers() -> Iterator[Fault]:
    yield Fault(
        name="3 hits at most", make=lambda one: one.break_front(Front(limit=3)), causes=("truncated",), needs=("limit",)
    )
    yield Fault(
        name="score threshold",
        make=lambda one: one.break_front(Front(threshold=one.usual_score)),
        causes=("threshold", "truncated"),
        beside=("empty",),
        needs=("limit",),
    )
    yield Fault(name="every answer empty", make=lambda one: one.break_front(Front(empty_every=1)), causes=("empty",))
    yield Fault(
        name="a fifth of the answers empty",
        make=lambda one: one.break_front(Front(empty_every=5)),
        causes=("empty", "partial"),
        beside=("unstable", "truncated"),
    )
    yield Fault(
        name="half of the answers HTTP 500",
        make=lambda one: one.break_front(Front(fail_every=2)),
        causes=("error",),
        names_canaries=False,
    )
    yield Fault(
        name="embedder HTTP 500",
        make=lambda one: one.break_front(Front(embedder_fails=True)),
        causes=("error",),
        needs=("endpoint",),
        names_canaries=False,
    )
    yield Fault(
        name="1.2 s slower",
        make=lambda one: one.break_front(Front(seconds=1.2)),
        causes=("latency",),
        names_canaries=False,
    )
    yield Fault(name="scores rescaled", make=lambda one: one.break_front(Front(scale=_SCORES_MOVED)), needs=("limit",))


def _changing() -> Iterator[Fault]:
    yield Fault(
        name="every second answer of a stale replica",
        make=lambda one: one.alternate(chunks=tuple(_stale(one, 0.3))),
        causes=("replicas",),
        beside=("missing", "unstable"),
    )
    yield Fault(
        name="another model for every second query",
        make=lambda one: one.alternate(other_query_model=True),
        causes=("replicas", "models"),
        beside=("embedder", "encoder", "scores"),
        needs=("vectors",),
    )


def _without(bench: Bench, documents: set[str]) -> list[Chunk]:
    return [chunk for chunk in bench.collection.chunks if chunk.document not in documents]


def _groups(bench: Bench) -> list[str]:
    return bench.collection.groups_by_canaries(bench.suite.questions)


def _without_groups(bench: Bench, groups: Sequence[str]) -> list[Chunk]:
    return [chunk for chunk in bench.collection.chunks if chunk.group not in groups]


def _stale(bench: Bench, share: float) -> list[Chunk]:
    """Leave out a share of the documents, and take a twentieth of the others as they were worded before."""
    older = bench.collection.some_documents(0.05, "older")
    return [
        replace(chunk, text=reworded(chunk.text, 3)) if chunk.document in older else chunk
        for chunk in _without(bench, bench.collection.some_documents(share, "stale"))
    ]


def _with_copies(bench: Bench) -> list[Chunk]:
    """Add seven near copies each of the chunks of a fifth of the documents."""
    doubled = bench.collection.some_documents(0.2, "doubled")
    chunks = bench.collection.chunks
    copies = [
        replace(chunk, id=f"import-{number}/{chunk.id}", text=reworded(chunk.text, number))
        for chunk in chunks
        if chunk.document in doubled
        for number in range(7)
    ]
    return [*chunks, *copies]


def _replaced(bench: Bench) -> list[Chunk]:
    """Replace the chunks of a fifth of the documents by near copies under other ids."""
    replaced = bench.collection.some_documents(0.2, "replaced")
    return [
        replace(chunk, id=f"import/{chunk.id}", text=reworded(chunk.text, 2)) if chunk.document in replaced else chunk
        for chunk in bench.collection.chunks
    ]


def _cut(bench: Bench, characters: int) -> list[Chunk]:
    return [replace(chunk, text=shortened(chunk.text, characters)) for chunk in bench.collection.chunks]
