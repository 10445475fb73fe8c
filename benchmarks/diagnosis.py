"""How often the cause of a degraded canary is told right, fault by fault, and for what it is taken else.

    python -m benchmarks.diagnosis [COLLECTION ...]

Without arguments: the demo retriever under its own faults and ours, and xquad_en (with the texts of chunkeval as
distractors) by words and by vectors. A canary counts where it was healthy before, lost what it expects (or is too low
in relevance) under the fault, and the fault touched its chunk: so what is true is known. Prints a Markdown matrix for
each and asserts that 95 % are right.
"""

import hashlib
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from app.base.values import Answer, Canary, Cause, Judgment, Outcome, Ranking, replace
from app.demo.corpus import Chunk, cut, near_copy, read_corpus, terms
from app.demo.faults import Fault, FaultKind, damage_chunks, fails
from app.demo.retriever import Retriever
from app.diagnosis.domain.canary_causes import classify
from app.diagnosis.domain.cases import Case, Diagnosis
from app.diagnosis.domain.evidence import questions
from app.retrievers.domain.retrievers import Scale
from benchmarks.text_indexes import read_lines

Search = Callable[[str, int], Ranking]
"""Answers a query with so many hits."""
CHUNK_CHARACTERS = 400
DIMENSIONS = 200
DATA = Path("../shared/data")
K, FETCH_K = 5, 10
RIGHT = 0.95
TOPICS = 8
MOST = 60
"""Canaries asked about per fault."""
Matrix = dict[tuple[str, Cause], Counter[Cause]]
"""What canaries were told, by fault and its cause."""
Asked = Callable[[str, int], Ranking | None]
"""A search that may fail (None)."""


@dataclass(frozen=True)
class World:
    """Chunks, canaries that expect some of them, and the way to index chunks."""

    name: str
    chunks: tuple[Chunk, ...]
    canaries: tuple[Canary, ...]
    index: Callable[[Sequence[Chunk]], Search]
    other: Callable[[Sequence[Chunk]], dict[str, Search]]
    """Other encoders or scorings of the same chunks, by name."""
    scale: Scale

    @cached_property
    def before(self) -> Search:
        """Answer while all is well."""
        return lru_cache(maxsize=None)(self.index(self.chunks))

    def chance(self, name: str) -> random.Random:
        """Give randomness that is the same every time."""
        return random.Random(f"{self.name}:{name}")  # noqa: S311 - a simulation


@dataclass(frozen=True, slots=True)
class Trial:
    """A retriever under a fault, and what it should be told to have."""

    fault: str
    cause: Cause
    search: Asked
    kept: frozenset[str] | None = None
    """Where chunks were lost, those that were not: a canary counts where all that it found is gone."""
    canaries: tuple[Canary, ...] | None = None
    """Others than the world's, that never passed."""

    def touches(self, canary: Canary, before: Ranking) -> bool:
        """Whether the fault touched what a canary found while all was well."""
        return self.kept is None or self.kept.isdisjoint(_found(canary, before))


NOT_TRIED = {Cause.LOW_RELEVANCE, Cause.WRONG_FIELD, Cause.TEXTS_CHANGED, Cause.LEFT_OUT}
"""A bound and a column that never fit are no faults; lost texts need what is expected by text, and what is left out
without a score needs a retriever that returns none. The matrix shows whether they are told where there are others."""


def main(names: Sequence[str]) -> None:
    """Print and assert."""
    for world in worlds(names):
        started = time.perf_counter()
        matrix: Matrix = defaultdict(Counter)
        untouched = 0
        for trial in trials(world):
            for case, touched in cases(world, trial):
                untouched += not touched
                if touched:
                    matrix[trial.fault, trial.cause][diagnose(case, trial).cause] += 1
        seconds = time.perf_counter() - started
        print(f"\n### {world.name}\n\n{markdown(matrix)}\n\n{confusion(matrix)}")
        right = sum(told[cause] for (_, cause), told in matrix.items())
        total = sum(sum(told.values()) for told in matrix.values())
        print(
            f"\n{right} of {total} right ({right / total:.3f}); {untouched} degraded by side effects; {seconds:.0f} s"
        )
        missed = set(Cause) - {cause for _, cause in matrix} - NOT_TRIED
        assert not missed, f"never tried: {missed}"
        assert right / total >= RIGHT, f"{world.name}: {right / total:.3f}"


def worlds(names: Sequence[str]) -> Iterator[World]:
    """Give the worlds asked for."""
    if not names:
        yield bundled()
    for name in names or ["xquad_en"]:
        distractors = [DATA / "chunkeval/docs.jsonl.gz"] if name == "xquad_en" else []
        for vectors in (False, True):
            yield collection(DATA / name, distractors, vectors=vectors)


def cases(world: World, trial: Trial) -> Iterator[tuple[Case, bool]]:
    """Yield the canaries that were healthy and are degraded, and whether the fault touched them."""
    never, found = trial.canaries is not None, 0
    chosen = list(trial.canaries or world.canaries)
    world.chance(trial.fault).shuffle(chosen)
    for canary in chosen:
        healthy, now = world.before(canary.query, FETCH_K), trial.search(canary.query, FETCH_K)
        if well(canary, now) or not (never or well(canary, healthy)):
            continue
        touched = trial.touches(canary, healthy)
        found += touched
        case = Case(
            canary=canary,
            k=K,
            fetch_k=FETCH_K,
            now=now,
            healthy=None if never else healthy,
            ever_passed=not never,
            scale=world.scale,
            too_low=_too_low(canary, now),
        )
        yield case, touched
        if found >= MOST:
            return


def well(canary: Canary, answer: Ranking | None) -> bool:
    """Whether an expected chunk is in the top k and, in the demo, the first hit relevant enough."""
    if answer is None:
        return False
    expected = {judgment.id for judgment in canary.judgments if judgment.id}
    documents = {judgment.document for judgment in canary.judgments if judgment.document}
    found = expected.intersection(answer.ids[:K]) or documents.intersection(answer.documents[:K])
    return bool(found) and (not canary.min_relevance_score or (answer.scores[0] or 0) >= canary.min_relevance_score)


def _too_low(canary: Canary, answer: Ranking | None) -> float | None:
    score = answer.scores[0] if answer is not None and len(answer) else None
    return score if score is not None and score < canary.min_relevance_score else None


def diagnose(case: Case, trial: Trial) -> Diagnosis:
    """Ask and classify."""
    asked = questions(case)
    rankings = [trial.search(question.query, question.k) for question in asked]
    return classify(case, asked, [_answer(ranking) for ranking in rankings])


def trials(world: World) -> Iterator[Trial]:
    """Break a world in every way there is."""
    yield from _of_content(world)
    for size in range(4):
        yield Trial(f"answers cut to {size}", Cause.TRUNCATED, _cut(world.before, size))
    for name, search in world.other(world.chunks).items():
        yield Trial(name, Cause.SCORE_DRIFT, search)
    for share in (0.1, 0.3):
        for anew, when in ((True, "anew each time"), (False, "always the same")):
            yield Trial(f"{share:.0%} of hits passed over, {when}", Cause.UNSTABLE, _passing_over(world, share, anew))
    yield Trial("30 % of searches fail", Cause.RETRIEVER_ERROR, _failing(world, 0.3))
    yield Trial("every search fails or is too late", Cause.RETRIEVER_ERROR, lambda _query, _k: None)
    yield Trial("expects what it never found", Cause.VOCABULARY_MISMATCH, world.before, canaries=_strangers(world))


def _of_content(world: World) -> Iterator[Trial]:
    """Change the chunks that are indexed: by the demo's faults, and by ours."""
    for share in (0.1, 0.3):
        yield _lost(world, f"{share:.0%} of chunks lost", Fault(kind=FaultKind.LOSS, size=share))
    topics = sorted({chunk.topic for chunk in world.chunks if chunk.topic})
    for topic in topics[:: -(-len(topics) // TOPICS) or 1]:
        yield _lost(world, "a topic lost", Fault(kind=FaultKind.TOPIC, topic=topic))
    for share in (0.1, 0.2):
        flooded = damage_chunks(world.chunks, Fault(kind=FaultKind.DUPLICATES, size=share))
        yield Trial(f"{share:.0%} of chunks flooded x 5", Cause.DUPLICATES, world.index(flooded))
    yield Trial("5 % of chunks flooded x 8", Cause.DUPLICATES, world.index(_flooded(world, 0.05, 8)))
    recut = damage_chunks(world.chunks, Fault(kind=FaultKind.RECHUNK))
    yield Trial("cut anew, longer", Cause.RECHUNKED, world.index(recut))
    yield Trial("cut anew, shorter", Cause.RECHUNKED, world.index(_shorter(world)))
    renamed = [replace(chunk, id=f"new-{number}") for number, chunk in enumerate(world.chunks)]
    yield Trial("ids renamed", Cause.RECHUNKED, world.index(renamed))
    yield Trial("new documents", Cause.OUTRANKED, world.index(_crowded(world)))


def _lost(world: World, name: str, fault: Fault) -> Trial:
    left = damage_chunks(world.chunks, fault)
    return Trial(name, Cause.MISSING, world.index(left), frozenset(chunk.id for chunk in left))


def _strangers(world: World) -> tuple[Canary, ...]:
    """Have questions expect what does not answer them."""
    chance, chosen = world.chance("never"), []
    for canary in world.canaries[: 2 * MOST]:
        stranger = chance.choice(world.chunks)
        if stranger.id not in world.before(canary.query, FETCH_K).ids:
            chosen.append(replace(canary, judgments=(Judgment(id=stranger.id, text=stranger.text),)))
    return tuple(chosen)


def _found(canary: Canary, before: Ranking) -> list[str]:
    """Name the expected chunks that were in the top k."""
    expected = {judgment.id for judgment in canary.judgments}
    documents = {judgment.document for judgment in canary.judgments if judgment.document}
    top = zip(before.ids[:K], before.documents[:K], strict=True)
    return [chunk for chunk, document in top if chunk in expected or document in documents]


def _flooded(world: World, share: float, copies: int) -> list[Chunk]:
    chance = world.chance("flood")
    flooded = [chunk for chunk in world.chunks if chance.random() < share]
    extra = [
        replace(chunk, id=f"{chunk.id}-again-{number}", text=near_copy(chunk.text, number))
        for chunk in flooded
        for number in range(copies)
    ]
    return [*extra, *world.chunks]


def _shorter(world: World) -> list[Chunk]:
    """Cut each chunk in two, about its middle."""
    return [
        replace(chunk, id=f"{chunk.id}/{number}", text=text)
        for chunk in world.chunks
        for number, text in enumerate(cut(chunk.text, max(80, round(0.6 * len(chunk.text)))))
    ]


def _crowded(world: World) -> list[Chunk]:
    """Add six documents about each of a part of the questions: the question within somebody else's text."""
    chance = world.chance("crowd")
    asked = chance.sample(world.canaries, min(60, len(world.canaries) // 8))
    new = []
    for place, canary in enumerate(asked):
        for number in range(6):
            words = canary.query.split()
            chance.shuffle(words)
            filler = chance.choice(world.chunks).text
            text = f"{' '.join(words)} {filler[: len(canary.query)]}"
            new.append(Chunk(id=f"new-{place}-{number}", document=f"new-{place}", title="", topic="", text=text))
    return [*world.chunks, *new]


def _passing_over(world: World, share: float, anew: bool) -> Search:  # noqa: FBT001 - one call site
    """Pass over hits as an approximate index does: by chance, or always the same ones for the same query."""
    calls = count()

    def search(query: str, k: int) -> Ranking:
        found, number = world.before(query, 2 * k + 10), next(calls) if anew else 0
        seen = [place for place, one in enumerate(found.ids) if _uniform(f"{number}:{query}:{one}") >= share]
        return _chosen(found, seen[:k])

    return search


def _failing(world: World, share: float) -> Asked:
    fault, calls = Fault(kind=FaultKind.ERRORS, size=share), count()
    return lambda query, k: None if fails(fault, next(calls)) else world.before(query, k)


def _cut(whole: Search, size: int) -> Search:
    def search(query: str, k: int) -> Ranking:
        found = whole(query, k)
        return _chosen(found, range(min(size, len(found))))

    return search


def _chosen(found: Ranking, places: Sequence[int]) -> Ranking:
    return Ranking(
        ids=tuple(found.ids[place] for place in places),
        documents=tuple(found.documents[place] for place in places),
        texts=tuple(found.texts[place] for place in places),
        scores=tuple(found.scores[place] for place in places),
        returned=len(places),
    )


def _uniform(name: str) -> float:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) / 2**64


def _answer(ranking: Ranking | None) -> Answer:
    if ranking is None:
        return Answer(outcome=Outcome.REFUSED, latency_seconds=0.01, http_status=500)
    return Answer(outcome=Outcome.OK, latency_seconds=0.01, ranking=ranking)


def markdown(matrix: Matrix) -> str:
    """Write the matrix: a row per fault, what it is, how many were told right and as what the others were told."""
    rows = ["| fault | cause | right | of | taken for |", "|---|---|---:|---:|---|"]
    for (fault, cause), told in matrix.items():
        wrong = ", ".join(f"{other} {count}" for other, count in told.most_common() if other is not cause)
        rows.append(f"| {fault} | `{cause}` | {told[cause]} | {sum(told.values())} | {wrong} |")
    return "\n".join(rows)


def confusion(matrix: Matrix) -> str:
    """Write what was told, in columns, by what was true, in rows."""
    told: dict[Cause, Counter[Cause]] = defaultdict(Counter)
    for (_, cause), counts in matrix.items():
        told[cause] += counts
    rows = ["| true, told | " + " | ".join(Cause) + " |", "|---|" + "---:|" * len(Cause)]
    rows += [f"| `{cause}` | " + " | ".join(str(told[cause][other] or "") for other in Cause) + " |" for cause in Cause]
    return "\n".join(rows)


def bundled() -> World:
    """Take the demo as it is shipped: its documentation, its canaries."""
    entries = yaml.safe_load(Path("canaries/dataforge.yaml").read_text(encoding="utf-8"))["canaries"]
    canaries = [
        Canary(
            key=entry["key"],
            query=entry["query"],
            judgments=tuple(Judgment(**(one if isinstance(one, dict) else {"id": one})) for one in expected),
            min_relevance_score=entry.get("min_relevance_score", 0.5),
        )
        for entry in entries
        if (expected := entry.get("expected_chunks")) and entry.get("category") != "negative"
    ]
    chunks = read_corpus()
    return World("demo", chunks, tuple(canaries), by_words, words_otherwise, Scale.SIMILARITY)


def collection(folder: Path, distractors: Sequence[Path], *, vectors: bool, scale: Scale = Scale.COSINE) -> World:
    """Read a public collection: every question a canary that expects the chunks which hold its answer."""
    with_spans = folder.name != "cranfield"
    files = [folder / "docs.jsonl.gz", *distractors]
    chunks = read_corpus(files, chunk_characters=CHUNK_CHARACTERS if with_spans else None)
    within: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        within.setdefault(chunk.document, []).append(chunk)
    canaries = []
    for query in read_lines(folder / "queries.jsonl.gz"):
        if with_spans:
            spans = [text for _, _, text in query["refs"]]
            expected = [chunk.id for chunk in within[query["doc_id"]] if any(span in chunk.text for span in spans)]
        else:
            expected = [name for name in query["qrels"] if name in within]
        judgments = tuple(Judgment(id=name) for name in expected)
        if judgments:
            canaries.append(Canary(key=query["qid"], query=query["text"], judgments=judgments, min_relevance_score=0))
    name = f"{folder.name}, {'vectors' if vectors else 'words'}"
    if vectors:
        encoder = Encoder(chunks)
        return World(name, chunks, tuple(canaries), encoder.index, encoder.otherwise, scale)
    return World(name, chunks, tuple(canaries), by_words, words_otherwise, Scale.SIMILARITY)


def by_words(chunks: Sequence[Chunk]) -> Search:
    """Index chunks as the demo does: BM25."""
    retriever = Retriever(chunks)

    def search(query: str, k: int) -> Ranking:
        hits = retriever.search(query, k)
        return ranking([hit.chunk for hit in hits], [hit.score for hit in hits])

    return search


def words_otherwise(chunks: Sequence[Chunk]) -> dict[str, Search]:
    """Break the scoring of a word index: scores halved, and queries that lost every other word."""
    search = by_words(chunks)

    def halved(query: str, k: int) -> Ranking:
        found = search(query, k)
        return replace(found, scores=tuple(round((score or 0.0) / 2, 6) for score in found.scores))

    def shortened(query: str, k: int) -> Ranking:
        return search(" ".join(terms(query)[::2]), k)

    return {"scores halved": halved, "half the words": shortened}


class Encoder:
    """Latent semantic analysis (Deerwester et al. 1990): tf-idf, then the strongest directions of the collection."""

    def __init__(self, chunks: Sequence[Chunk], seed: int = 1) -> None:
        counted = [Counter(terms(chunk.text)) for chunk in chunks]
        frequencies = Counter(term for counts in counted for term in counts)
        self._words = {term: number for number, term in enumerate(frequencies)}
        self._idf = np.log(len(chunks) / np.array([frequencies[term] for term in self._words]))
        table = np.stack([self._weights(counts) for counts in counted])
        # Halko, Martinsson and Tropp (2011): a random projection, sharpened twice.
        generator = np.random.default_rng(seed)
        basis = generator.standard_normal((table.shape[0], DIMENSIONS + 20), dtype=np.float32)
        for _ in range(3):
            basis, _ = np.linalg.qr(table @ (table.T @ basis))
        _, _, directions = np.linalg.svd(basis.T @ table, full_matrices=False)
        self._directions = directions[:DIMENSIONS].T
        self._vectors = {chunk.text: vector for chunk, vector in zip(chunks, table @ self._directions, strict=True)}

    def vector(self, text: str) -> NDArray[np.float32]:
        """Encode a text."""
        if text not in self._vectors:
            self._vectors[text] = self._weights(Counter(terms(text))) @ self._directions
        vector: NDArray[np.float32] = self._vectors[text]
        return vector

    def index(self, chunks: Sequence[Chunk]) -> Search:
        """Index the vectors of chunks, by cosine."""
        return self._index(chunks, lambda vector: vector)

    def otherwise(self, chunks: Sequence[Chunk]) -> dict[str, Search]:
        """Break the encoder: fewer dimensions, other weights, signs alone, noise in the queries, another model."""
        generator = np.random.default_rng(2)
        turned, _ = np.linalg.qr(generator.standard_normal((DIMENSIONS, DIMENSIONS), dtype=np.float32))
        noise = generator.standard_normal((DIMENSIONS, DIMENSIONS), dtype=np.float32) / DIMENSIONS**0.5
        return {
            "a quarter of the dimensions": self._index(chunks, lambda vector: vector[..., : DIMENSIONS // 4]),
            "signs alone": self._index(chunks, np.sign),
            "queries encoded otherwise": self._index(
                chunks, lambda vector: vector, lambda query: query + query @ noise
            ),
            "queries of another model": self._index(chunks, lambda vector: vector, lambda query: query @ turned),
        }

    def _weights(self, counts: Counter[str]) -> NDArray[np.float32]:
        row = np.zeros(len(self._words), dtype=np.float32)
        for term, times in counts.items():
            if (place := self._words.get(term)) is not None:
                row[place] = (1 + np.log(times)) * self._idf[place]
        return _unit(row)

    def _index(
        self,
        chunks: Sequence[Chunk],
        change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        ask: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda query: query,
    ) -> Search:
        table = _unit(change(np.stack([self.vector(chunk.text) for chunk in chunks])))

        def search(query: str, k: int) -> Ranking:
            scores = table @ _unit(change(ask(self.vector(query))))
            best = np.argsort(-scores, kind="stable")[:k]
            return ranking([chunks[place] for place in best], [round(float(scores[place]), 6) for place in best])

        return search


def ranking(chunks: Sequence[Chunk], scores: Sequence[float]) -> Ranking:
    """Write down an answer."""
    return Ranking(
        ids=tuple(chunk.id for chunk in chunks),
        documents=tuple(chunk.document for chunk in chunks),
        texts=tuple(chunk.text for chunk in chunks),
        scores=tuple(scores),
        returned=len(chunks),
    )


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)
    return unit


if __name__ == "__main__":
    main(sys.argv[1:])
