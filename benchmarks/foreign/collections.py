"""Chunks of public collections, questions whose answer is known, and the canaries that a newcomer would write of them.

Three collections of `../shared/data`: paragraphs of Wikipedia (xquad_en, among the documents of chunkeval as
distractors), five long documents (chunkeval, in sections), abstracts (cranfield, whole). Each document has a group (an
article, a topic, a series), which starts its path, and a date. A suite is made for a system: questions whose chunk it
finds, and a quarter of the others.
"""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from app.base.values import replace
from app.demo.corpus import cut, read_corpus
from benchmarks.text_indexes import CHUNK_CHARACTERS, read_collection
from benchmarks.text_indexes import Collection as Texts

DATA: Final = Path("../shared/data")
DEMO: Final = "demo"
"""The shipped corpus and canaries, for a small cut of a trial; the others are in `DATA`."""
_DEMO_CANARIES: Final = Path(__file__).parent.parent.parent / "canaries/dataforge.yaml"
NAMES: Final = ("xquad_en", "chunkeval", "cranfield")
CANARIES: Final = 120
K: Final = 5
_SECTION = 12
"""Chunks of a section of a long document, which is a document of its own here."""
_SERIES = 100
"""Abstracts of a series."""
_RESERVED = 0.05
_FIRST_DAY: Final = date(2024, 1, 1)
_DAYS: Final = 600
_PASSAGE_CHARACTERS: Final = 400
_LARGE_GROUP: Final = 0.25
"""A group with more of the canaries than this is not one of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a document, as it is indexed."""

    id: str
    document: str
    text: str
    updated: str
    """The day of its document."""

    @property
    def group(self) -> str:
        """The article, topic or series of its document."""
        return self.document.split("/", 1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and the ids of the chunks that answer it."""

    key: str
    text: str
    expected: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What is indexed, what is kept back to be new one day, and the questions in a repeatable random order."""

    name: str
    chunks: tuple[Chunk, ...]
    reserve: tuple[Chunk, ...]
    questions: tuple[Question, ...]

    @cached_property
    def by_id(self) -> dict[str, Chunk]:
        """All chunks that are indexed."""
        return {chunk.id: chunk for chunk in self.chunks}

    @cached_property
    def documents(self) -> dict[str, tuple[Chunk, ...]]:
        """The chunks of each document in their order."""
        return {name: tuple(some) for name, some in groupby(self.chunks, key=lambda chunk: chunk.document)}

    def chance(self, name: str) -> random.Random:
        """Give randomness that is the same every time."""
        return random.Random(f"{self.name}:{name}")  # noqa: S311 - a repeatable choice

    def some_documents(self, share: float, name: str) -> set[str]:
        """Choose a share of the documents."""
        return set(self.chance(name).sample(sorted(self.documents), round(len(self.documents) * share)))

    def groups_by_canaries(self, suite: Sequence[Question]) -> list[str]:
        """List the groups of moderate size, those that most canaries expect something of first."""
        counts = Counter(self.by_id[name].group for question in suite for name in question.expected[:1])
        moderate = [name for name, count in counts.most_common() if count <= _LARGE_GROUP * len(suite)]
        return moderate or [counts.most_common()[-1][0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The canaries of a trial."""

    questions: tuple[Question, ...]
    found: int
    """Of how many the system finds an expected chunk in the top 5 while it is healthy."""

    def documents(self, collection: Collection) -> list[dict[str, Any]]:
        """Write them as canaries: expected by id and text, tagged by the group of the first expected chunk."""
        tagged = collection.name != "cranfield"  # what is relevant to its questions is of many series
        return [
            {
                "key": question.key,
                "query": question.text,
                "expected_chunks": [
                    {"id": name, "text": collection.by_id[name].text[:_PASSAGE_CHARACTERS]}
                    for name in question.expected
                ],
                **({"tags": [collection.by_id[question.expected[0]].group]} if tagged else {}),
            }
            for question in self.questions
        ]


def suite_for(collection: Collection, ids_of: Callable[[str], Sequence[str]]) -> Suite:
    """Choose the canaries for a system, whose top 5 of a query `ids_of` returns: 120 where there are so many."""
    chosen: list[Question] = []
    found = others = 0
    for question in collection.questions:
        if len(chosen) == CANARIES:
            break
        if not set(question.expected).isdisjoint(ids_of(question.text)[:K]):
            found += 1
            chosen.append(question)
        else:
            others += 1
            chosen += [question] if others % 4 == 0 else []
    return Suite(questions=tuple(chosen), found=found)


def read(name: str, data: Path = DATA) -> Collection:
    """Read a collection from the folder of all."""
    if name == DEMO:
        return _demo()
    texts = read_collection(data / name)
    parts = [texts, read_collection(data / "chunkeval")] if name == "xquad_en" else [texts]
    chunks = [chunk for part in parts for chunk in _chunks(part)]
    ids = [chunk.id for chunk in chunks]
    questions = [
        Question(
            key=f"q{number:03}", text=one.text.strip(), expected=tuple(ids[place] for place in sorted(one.relevant))
        )
        for number, one in enumerate(texts.queries)
        if one.relevant and (name == "cranfield" or len(one.relevant) == 1)
    ]
    questions = list({question.text: question for question in questions}.values())
    random.Random(f"{name}:questions").shuffle(questions)  # noqa: S311 - a repeatable choice
    expected = {chunk for question in questions for chunk in question.expected}
    needed = {chunk.document for chunk in chunks if chunk.id in expected}
    free = sorted({chunk.document for chunk in chunks} - needed)
    kept_back = round(_RESERVED * len({chunk.document for chunk in chunks}))
    reserved = set(random.Random(f"{name}:reserve").sample(free, min(kept_back, len(free) // 2)))  # noqa: S311 - as above
    return Collection(
        name=name,
        chunks=tuple(chunk for chunk in chunks if chunk.document not in reserved),
        reserve=tuple(chunk for chunk in chunks if chunk.document in reserved),
        questions=tuple(questions),
    )


def _demo() -> Collection:
    chunks = [
        Chunk(id=one.id, document=f"{one.topic}/{one.document}", text=one.text, updated=_day(one.document))
        for one in sorted(read_corpus(), key=lambda one: (one.topic, one.document))
    ]
    ids = {chunk.id for chunk in chunks}
    canaries = yaml.safe_load(_DEMO_CANARIES.read_text(encoding="utf-8"))["canaries"]
    wanted = [(one["key"], one["query"], one.get("expected_chunks", [])) for one in canaries]
    questions = [
        Question(key=key, text=query, expected=tuple(expected))
        for key, query, expected in wanted
        if expected and all(isinstance(one, str) and one in ids for one in expected)
    ]
    return Collection(name=DEMO, chunks=tuple(chunks), reserve=(), questions=tuple(questions))


def _chunks(texts: Texts) -> Iterable[Chunk]:
    """Name the chunks `{document}#{number}`, and documents as a file system would."""
    numbers: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for name, text in zip(texts.documents, texts.texts, strict=True):
        if texts.name == "cranfield":
            document = f"series-{int(name) // _SERIES:02}/{name}"
        elif texts.name == "xquad_en":
            document = f"article{name[1:3]}/{name}"
        else:
            document = f"{name}/section-{seen[name] // _SECTION:03}"
        seen[name] += 1
        yield Chunk(
            id=f"{document}#{numbers[document]}", document=document, text=text.strip() or name, updated=_day(document)
        )
        numbers[document] += 1


def _day(document: str) -> str:
    number = int.from_bytes(hashlib.sha256(document.encode()).digest()[:4], "big")
    return (_FIRST_DAY + timedelta(days=number % _DAYS)).isoformat()


# --- what is done to chunks ----------------------------------------------------------------------------------


def recut(collection: Collection, characters: int, prefix: str = "") -> list[Chunk]:
    """Cut all documents anew; ids are `{prefix}{document}#{number}`: without a prefix those of before."""
    return [
        replace(some[0], id=f"{prefix}{document}#{number}", text=piece)
        for document, some in collection.documents.items()
        for number, piece in enumerate(cut(" ".join(chunk.text for chunk in some), characters))
    ]


def reworded(text: str, variant: int) -> str:
    """Return a near copy: every ninth word left out, beginning with one that `variant` chooses."""
    words = text.split(" ")
    return " ".join(word for place, word in enumerate(words) if (place + variant) % 9 != 8) or text


def competitors(collection: Collection, share: float) -> list[Chunk]:
    """Write new documents about what the others are about: halves of chunks of one group, one after the other."""
    draw = collection.chance("competitors")
    of_group: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in collection.chunks:
        of_group[chunk.group].append(chunk)
    made = []
    for number, first in enumerate(draw.sample(collection.chunks, round(len(collection.chunks) * share))):
        second = draw.choice(of_group[first.group])
        words, others = first.text.split(), second.text.split()
        text = " ".join(words[: len(words) // 2] + others[len(others) // 2 :])
        document = f"{first.group}/new-{number // 3:04}"
        made.append(Chunk(id=f"{document}#{number % 3}", document=document, text=text, updated="2025-12-01"))
    return made


def shortened(text: str, characters: int) -> str:
    """Cut a text off, as a column that is too narrow does."""
    return text[:characters]


assert _PASSAGE_CHARACTERS >= CHUNK_CHARACTERS  # a chunk is a passage, but for abstracts, which are longer
