"""How well, and how fast, expected passages are recognised once a corpus was chunked anew.

    python -m benchmarks.matching [FOLDER]

FOLDER (default ../shared/data/chunkeval) holds docs.jsonl.gz {doc_id, text} and queries.jsonl.gz {refs: [[start, end,
text]], doc_id}. The corpus is chunked twice: packed with sentences (A, what was there before) and cut every 480
characters into windows of 600 (B, what a retriever returns now). Expected are the evidence spans, and the whole old
chunks that hold one. What is true is known from where they stand in the documents, at every place that repeats them
word for word: a new chunk holds a span of which it covers 95 %, and answers for an old chunk where they share two
thirds of the shorter; below half it does not. What lies between is neither right nor wrong and counted apart. Held
against each are those, their neighbours and the ten chunks that BM25 finds likest. And each span is held against its
chunks with one of its numbers changed, as a new version of the document would have it: spans of up to 300 characters,
which are compared by their letters, and longer ones, which are not held to their numbers.
"""

import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import bm25s

from app.scoring.passages import Passage, match_level, prepare_passage
from app.scoring.words import normalise
from benchmarks.text_indexes import read_lines

SENTENCES, WINDOW, STEP = 700, 600, 480
COVERED, SHARED, HALF = 0.95, 2 / 3, 0.5
LIKEST = 10
ROUNDING = 5e-4
NOT_WORSE = {("spans", "clean"): (0.970, 1.0), ("spans", "1.5 % OCR errors"): (0.982, 0.987)}
"""Precision and recall that were measured when the cascade was chosen."""
CHANGED = 0.01
"""The share of spans of up to 300 characters that may be recognised though a number was changed."""
BY_LETTERS = 300


Says = Callable[[int, int], bool]
"""Whether this expected text (its place) is recognised in this hit (its place)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a document."""

    document: str
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def of(self, documents: Mapping[str, str]) -> str:
        """Read its text."""
        return documents[self.document][self.start : self.end]

    def shared(self, other: "Piece") -> int:
        """Count the characters both cover."""
        return max(0, min(self.end, other.end) - max(self.start, other.start)) * (self.document == other.document)


@dataclass(frozen=True, slots=True)
class Task:
    """What is expected, and the pairs (expected, new chunk, whether it is true; None = in between) to tell apart."""

    name: str
    expected: Sequence[str]
    pairs: Sequence[tuple[int, int, bool | None]]


def main(folder: str = "../shared/data/chunkeval") -> None:
    """Print precision and recall for each kind of damage, then microseconds."""
    documents = {one["doc_id"]: one["text"] for one in read_lines(Path(folder) / "docs.jsonl.gz")}
    spans = [
        Piece(one["doc_id"], start, end)
        for one in read_lines(Path(folder) / "queries.jsonl.gz")
        for start, end, _ in one["refs"]
    ]
    new = [Piece(name, *cut) for name, text in documents.items() for cut in windows(text)]
    old = [Piece(name, *cut) for name, text in documents.items() for cut in sentences(text)]
    old = [chunk for chunk in old if any(chunk.shared(span) == len(span) for span in spans)]
    texts = [chunk.of(documents) for chunk in new]
    tasks = [
        build("spans", documents, new, spans, lambda span, chunk: span.shared(chunk) / len(span), COVERED),
        build("chunks", documents, new, old, lambda a, b: a.shared(b) / min(len(a), len(b)), SHARED),
    ]
    for task in tasks:
        true = [holds for _, _, holds in task.pairs]
        print(f"{task.name}: {len(true)} pairs, {true.count(True)} true, {true.count(None)} in between", end="; ")
    print(f"{len(new)} new chunks\n{'precision / recall':24}" + "".join(f"{name:>26}" for name in DAMAGES))
    for task in tasks:
        for name, matcher in (("expected in hit", _contained), ("cascade", _recognised)):
            cells, between = [], []
            for damage, hurt in DAMAGES.items():
                precision, recall, yes = measure(task, matcher(task.expected, [hurt(text) for text in texts]))
                cells.append(f"{precision:.3f} / {recall:.3f}")
                between.append(f"{yes}")
                floors = NOT_WORSE.get((task.name, damage), (0, 0)) if matcher is _recognised else (0, 0)
                assert precision >= floors[0] - ROUNDING, (damage, precision)
                assert recall >= floors[1] - ROUNDING, (damage, recall)
            print(f"{task.name + ', ' + name:24}" + "".join(f"{cell:>26}" for cell in cells), flush=True)
        print(f"{'  yes in between':24}" + "".join(f"{cell:>26}" for cell in between))
    _print_changed(documents, new, spans)
    for task in tasks:
        _print_times(task, [scanned(text) for text in texts])


def build(
    name: str,
    documents: Mapping[str, str],
    new: Sequence[Piece],
    expected: Sequence[Piece],
    share: Callable[[Piece, Piece], float],
    enough: float,
) -> Task:
    """Pair what is expected with the new chunks that hold it, their neighbours, and what looks like it."""
    wanted = list(dict.fromkeys(piece.of(documents) for piece in expected))
    index = bm25s.BM25()
    index.index(bm25s.tokenize([chunk.of(documents) for chunk in new], show_progress=False), show_progress=False)
    likest, _ = index.retrieve(bm25s.tokenize(wanted, show_progress=False), k=LIKEST, show_progress=False)
    pairs: list[tuple[int, int, bool | None]] = []
    for number, (text, found) in enumerate(zip(wanted, likest.tolist(), strict=True)):
        stands = _places(text, documents)
        shares = [max(share(piece, chunk) for piece in stands) for chunk in new]
        true = [place for place, shared in enumerate(shares) if shared >= enough]
        near = [place + step for place in true for step in (-1, 1) if 0 <= place + step < len(new)]
        pairs += [
            (number, place, None if HALF <= shares[place] < enough else shares[place] >= enough)
            for place in sorted({*true, *near, *found})
        ]
    return Task(name, wanted, pairs)


def _places(text: str, documents: Mapping[str, str]) -> list[Piece]:
    """Find a text wherever it stands."""
    return [
        Piece(name, found.start(), found.end())
        for name, whole in documents.items()
        for found in re.finditer(re.escape(text), whole)
    ]


def measure(task: Task, says: Says) -> tuple[float, float, int]:
    """Measure precision and recall over the clear pairs of a task, and count the yes to those in between."""
    told = [(says(number, place), true) for number, place, true in task.pairs]
    right = sum(said for said, true in told if true)
    wrong = sum(said for said, true in told if true is False)
    return (
        right / max(1, right + wrong),
        right / sum(bool(true) for _, true in told),
        sum(said for said, _ in told) - right - wrong,
    )


def _print_changed(documents: Mapping[str, str], new: Sequence[Piece], spans: Sequence[Piece]) -> None:
    """Print how often a span is still recognised though its hit says another number, as a new version of it would."""
    pairs = changed_numbers(documents, new, spans)
    matcher = [(_prepared(text), text, body) for text, body in pairs]
    below = [len(normalise(text)) <= BY_LETTERS for text, _ in pairs]
    cells = []
    for hurt in DAMAGES.values():
        told = [match_level(passage, normalise(hurt(body))) is not None for passage, _, body in matcher]
        short = [said for said, is_short in zip(told, below, strict=True) if is_short]
        assert sum(short) <= CHANGED * len(short), sum(short)
        cells.append(f"{sum(short)} of {len(short)}, {sum(told) - sum(short)} of {len(told) - len(short)}")
    print(f"{'a number changed, yes':24}" + "".join(f"{cell:>26}" for cell in cells))


def changed_numbers(
    documents: Mapping[str, str], new: Sequence[Piece], spans: Sequence[Piece]
) -> list[tuple[str, str]]:
    """Give (span, a new chunk that holds it with one of its numbers changed): one for each number and way."""
    pairs = []
    for span in dict.fromkeys(spans):
        text = span.of(documents)
        for found in re.finditer(r"\d+", text):
            chance = random.Random(f"{text}{found.start()}")  # noqa: S311 - noise, not a secret
            for way in CHANGES[:1] if YEAR.fullmatch(found[0]) else CHANGES:
                other = way(found[0], chance)
                at = span.start + found.start()
                for chunk in new:
                    if chunk.shared(span) == len(span):
                        whole = chunk.of(documents)
                        place = at - chunk.start
                        body = whole[:place] + other + whole[place + len(found[0]) :]
                        if text not in body:  # it may say so twice
                            pairs.append((text, body))
    return pairs


def _another_digit(number: str, chance: random.Random) -> str:
    at = chance.randrange(len(number))
    return number[:at] + chance.choice([one for one in "123456789" if one != number[at]]) + number[at + 1 :]


CHANGES: Sequence[Callable[[str, random.Random], str]] = (
    _another_digit,
    lambda number, chance: number + chance.choice("0123456789"),
    lambda number, _: number[:-1] if len(number) > 1 else "1" + number,
)
"""Another digit, one more, one less (or before a lone one, another one more)."""
YEAR = re.compile(r"(?:19|20)\d\d")
"""A new version of a document names another year, but none of three or five digits."""


def _contained(expected: Sequence[str], hits: Sequence[str]) -> Says:
    return lambda number, place: expected[number] in hits[place]


def _recognised(expected: Sequence[str], hits: Sequence[str]) -> Says:
    passages, bodies = [_prepared(text) for text in expected], [normalise(text) for text in hits]
    return lambda number, place: match_level(passages[number], bodies[place]) is not None


def _prepared(text: str) -> Passage:
    passage = prepare_passage(text)
    assert passage is not None
    return passage


def _print_times(task: Task, hits: Sequence[str]) -> None:
    """Print CPU microseconds: for what is done once per text, then per comparison, of texts with OCR errors."""
    used = [hits[place] for place in sorted({place for _, place, _ in task.pairs})]
    prepare = statistics.mean(_microseconds(_prepared, text) for text in task.expected)
    ready = statistics.mean(_microseconds(normalise, f"{text} ") for text in used)  # none that is remembered
    passages, bodies = [_prepared(text) for text in task.expected], [normalise(text) for text in hits]
    times: dict[bool, list[float]] = {False: [], True: []}
    for number, place, _ in task.pairs:
        compare = partial(match_level, passages[number])
        said = compare(bodies[place]) is not None  # also remembers what is worked out once per hit
        times[said].append(_microseconds(compare, bodies[place]))
    compared = ", ".join(
        f"{word} {statistics.median(times[said]):.1f} (mean {statistics.mean(times[said]):.1f})"
        for said, word in ((False, "no"), (True, "yes"))
    )
    print(
        f"{task.name}, us: prepare {prepare:.0f} per expected text, normalise {ready:.0f} per hit; "
        f"compare, median by answer: {compared}"
    )


def _microseconds(run: Callable[[str], object], text: str) -> float:
    start = time.process_time_ns()
    run(text)
    return (time.process_time_ns() - start) / 1e3


def sentences(text: str) -> list[tuple[int, int]]:
    """Cut a text into chunks of whole sentences, as many as fit; what is too long is cut."""
    chunks: list[tuple[int, int]] = []
    for found in re.finditer(r"\S.*?(?:[.!?](?=\s)|\n\n|$)", text, re.DOTALL):
        start, end = found.span()
        if chunks and end - chunks[-1][0] <= SENTENCES:
            chunks[-1] = chunks[-1][0], end
        else:
            chunks += [(at, min(at + SENTENCES, end)) for at in range(start, end, SENTENCES)]
    return chunks


def windows(text: str) -> list[tuple[int, int]]:
    """Cut a text into windows that overlap, wherever they fall."""
    return [(start, min(start + WINDOW, len(text))) for start in range(0, max(1, len(text) - (WINDOW - STEP)), STEP)]


def reformatted(text: str) -> str:
    """Set a text as a PDF would: other line breaks, typographic quotes, dashes and ligatures."""
    text = re.sub(r'"([^"]*)"', "\u201c\\1\u201d", " ".join(text.split()))
    for plain, set_as in (("'", "\u2019"), (" - ", " \u2014 "), ("ffi", "\ufb03"), ("fi", "\ufb01"), (". ", ".  ")):
        text = text.replace(plain, set_as)
    return re.sub(r"(.{1,72})(?:\s|$)", "\\1\n", text)


def hyphenated(text: str) -> str:
    """Break words at line ends, a line every 60 characters."""
    broken, column = [], 0
    for place, sign in enumerate(text):
        inside = text[place - 1 : place + 1]
        if column >= 60 and len(inside) == 2 and inside.isalpha():
            broken.append("-\n")
            column = 0
        broken.append(sign)
        column += 1
    return "".join(broken)


def scanned(text: str) -> str:
    """Lose, add or change 1.5 % of the characters."""
    chance = random.Random(text)  # noqa: S311 - noise, not a secret
    letters = "etaoinshrdlu cm.,1l"
    garbled = []
    for sign in text:
        if chance.random() >= 0.015:
            garbled.append(sign)
        else:
            garbled.append(chance.choice(["", sign + chance.choice(letters), chance.choice(letters)]))
    return "".join(garbled)


DAMAGES: dict[str, Callable[[str], str]] = {
    "clean": str,
    "reformatted": reformatted,
    "words broken at line ends": hyphenated,
    "1.5 % OCR errors": scanned,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
