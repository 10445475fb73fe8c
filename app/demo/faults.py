"""Faults of the demo as pure functions: over the chunks before they are indexed, and over an answer.

Everything is deterministic: the same fault breaks the same things on every machine. `server` applies faults.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from types import MappingProxyType

from app.demo.corpus import Chunk, cut, near_copy
from app.demo.retriever import Hit

# Picked among many so that a tenth of the chunks lost already shows clearly in the coverage of the shipped canaries.
_SEED = "seed-230"

_COPIES = 5
_RECUT = 2.1


class FaultKind(StrEnum):
    """Kind of a fault."""

    NONE = "none"
    LOSS = "loss"
    TOPIC = "topic"
    DUPLICATES = "duplicates"
    TRUNCATE = "truncate"
    RESCALE = "rescale"
    RECHUNK = "rechunk"
    LATENCY = "latency"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the size of a kind means, and the values it may take, both ends included."""

    meaning: str
    default: float
    least: float = 0.0
    most: float = 1.0
    whole: bool = False


SIZES: Mapping[FaultKind, Size] = MappingProxyType(
    {
        FaultKind.LOSS: Size(meaning="share of the chunks that is lost", default=0.3),
        FaultKind.DUPLICATES: Size(meaning="share of the chunks flooded by near copies", default=0.2),
        FaultKind.TRUNCATE: Size(meaning="how many hits an answer is cut to", default=2, most=1000, whole=True),
        FaultKind.RESCALE: Size(meaning="what scores are multiplied by", default=0.5),
        FaultKind.LATENCY: Size(meaning="seconds added to every search", default=2.0, most=60.0),
        FaultKind.ERRORS: Size(meaning="share of the searches answered 500", default=0.3),
    }
)
"""The kinds that have a size; the others break everything they touch."""
EFFECTS: Mapping[FaultKind, str] = MappingProxyType(
    {
        FaultKind.NONE: "nothing is broken: heals whatever was",
        FaultKind.LOSS: "chunks are gone from the index, bigger sizes losing more of the same",
        FaultKind.TOPIC: "one topic is filtered away: name one in topic, or the largest goes",
        FaultKind.DUPLICATES: f"{_COPIES} near copies under new ids crowd out a chunk",
        FaultKind.TRUNCATE: "answers are cut short",
        FaultKind.RESCALE: "scores shrink, the ranking stays",
        FaultKind.RECHUNK: "texts are cut anew and every chunk gets a new id",
        FaultKind.LATENCY: "searches take longer",
        FaultKind.ERRORS: "some searches are answered 500",
    }
)
"""What each kind does, in a line for people."""


class BadFaultError(ValueError):
    """There is no such fault; `field` names the part that is wrong."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault in force; `size` is set for the kinds in SIZES, `topic` for the kind `topic`."""

    kind: FaultKind = FaultKind.NONE
    size: float | None = None
    topic: str | None = None

    @property
    def amount(self) -> float:
        """The size, 0 for kinds without one."""
        return self.size or 0.0


def make_fault(kind: str, size: float | None, topic: str | None, chunks: Sequence[Chunk]) -> Fault:
    """Return the requested fault for these chunks, defaults filled in; raise BadFaultError naming the wrong field.

    A size given to a kind without one, and a topic given to a kind other than `topic`, mean nothing and are dropped.
    """
    if kind not in tuple(FaultKind):
        raise BadFaultError("kind", f"no fault is called {kind!r}; the kinds are {', '.join(FaultKind)}")
    selected = FaultKind(kind)
    if selected is FaultKind.TOPIC:
        return Fault(kind=selected, topic=_topic(topic, chunks))
    if selected not in SIZES:
        return Fault(kind=selected)
    allowed = SIZES[selected]
    value = allowed.default if size is None else size
    if not allowed.least <= value <= allowed.most or (allowed.whole and value != int(value)):
        number = "a whole number" if allowed.whole else "a number"
        raise BadFaultError(
            "size",
            f"{value:g} is no size for {selected}: {allowed.meaning}, {number} from {allowed.least:g} to "
            f"{allowed.most:g}; the kinds are {', '.join(FaultKind)}",
        )
    return Fault(kind=selected, size=value)


def damage_chunks(chunks: Sequence[Chunk], fault: Fault) -> tuple[Chunk, ...]:
    """Return the chunks to index under a fault; kinds that only change answers leave them as they are."""
    match fault.kind:
        case FaultKind.LOSS:
            lost = _chunk_share(chunks, fault.amount)
            return tuple(chunk for chunk in chunks if chunk.id not in lost)
        case FaultKind.TOPIC:
            return tuple(chunk for chunk in chunks if chunk.topic != fault.topic)
        case FaultKind.DUPLICATES:
            flooded = _chunk_share(chunks, fault.amount)
            return (*_copies([chunk for chunk in chunks if chunk.id in flooded]), *chunks)
        case FaultKind.RECHUNK:
            return _rechunked(chunks)
    return tuple(chunks)


def distort_hits(hits: Sequence[Hit], fault: Fault) -> list[Hit]:
    """Return the hits of an answer under a fault: fewer, or with other scores in the same order."""
    match fault.kind:
        case FaultKind.TRUNCATE:
            return list(hits[: int(fault.amount)])
        case FaultKind.RESCALE:
            return [replace(hit, score=round(hit.score * fault.amount, 6)) for hit in hits]
    return list(hits)


def delay_seconds(fault: Fault) -> float:
    """Return how long a search is held up."""
    return fault.amount if fault.kind is FaultKind.LATENCY else 0.0


def fails(fault: Fault, number: int) -> bool:
    """Whether the search with this number, counted since the fault was set, is answered 500.

    A fixed sequence without a rhythm, so that an immediate second attempt is as likely to fail as the first.
    """
    return fault.kind is FaultKind.ERRORS and _uniform(f"errors:{number}") < fault.amount


def _topic(name: str | None, chunks: Sequence[Chunk]) -> str:
    sizes = Counter(chunk.topic for chunk in chunks if chunk.topic)
    if not sizes:
        raise BadFaultError("kind", "this corpus has no topics; every other kind works")
    if name is None:
        return min(sizes, key=lambda topic: (-sizes[topic], topic))
    if name not in sizes:
        raise BadFaultError("topic", f"no topic is called {name!r}; the topics are {', '.join(sorted(sizes))}")
    return name


def _chunk_share(chunks: Sequence[Chunk], share: float) -> frozenset[str]:
    """Return the ids of a share of the chunks; a bigger share contains every smaller one."""
    order = sorted((chunk.id for chunk in chunks), key=lambda identity: (_uniform(f"{_SEED}:{identity}"), identity))
    return frozenset(order[: round(share * len(order))])


def _copies(flooded: Sequence[Chunk]) -> list[Chunk]:
    """Copy chunks as a repeated import under new ids would; standing first, they win every tie with their originals."""
    return [
        replace(chunk, id=f"{chunk.id}-copy-{number}", text=near_copy(chunk.text, number))
        for chunk in flooded
        for number in range(1, _COPIES + 1)
    ]


def _rechunked(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Join the chunks of each document and cut them anew, longer by a factor that leaves most of each in one piece."""
    documents: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        documents.setdefault(chunk.document, []).append(chunk)
    characters = round(_RECUT * fmean(len(chunk.text) for chunk in chunks)) if chunks else 0
    return tuple(
        replace(parts[0], id=f"{document}@{number}", text=piece)
        for document, parts in documents.items()
        for number, piece in enumerate(cut(" ".join(part.text for part in parts), characters))
    )


def _uniform(name: str) -> float:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
