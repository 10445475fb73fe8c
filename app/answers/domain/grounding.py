"""Lexical grounding: which sentences of an answer are worded like a retrieved chunk, and which chunks were so used.

No API gives attention weights, so what a model used cannot be seen; what can be seen is whose words it repeats. So an
answer that says the same in other words is not grounded, and one that copies a chunk and adds "not" is. It costs no
call and needs no judge.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.diagnosis.domain.text_overlap import grams, words_of

SHARED: Final = 0.6
"""A sentence is grounded if one chunk has at least this share of its distinct word 3-grams."""
FEWEST_WORDS: Final = 3
"""A shorter sentence has no 3-gram and is not counted."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]\u2019\u201d]*\s+|(?<=[\u3002\uff01\uff1f\u0964])|[\r\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A counted sentence; `chunks` are the places (from 0) of the chunks that ground it."""

    text: str
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounding:
    """Lexical grounding of an answer in its contexts; a share is None where there is nothing to divide by."""

    sentences: tuple[Sentence, ...]
    short: int
    """Sentences that are not counted, having fewer than three words."""
    chunks: int
    """Retrieved chunks, empty ones included."""

    @property
    def grounded_share(self) -> float | None:
        """Share of the counted sentences that are grounded, in [0, 1]: the measure `utilisation`."""
        grounded = sum(bool(sentence.chunks) for sentence in self.sentences)
        return grounded / len(self.sentences) if self.sentences else None

    @property
    def used_share(self) -> float | None:
        """Share of the chunks that ground a sentence, in [0, 1]; copies of one chunk are all used or all not."""
        used = {place for sentence in self.sentences for place in sentence.chunks}
        return len(used) / self.chunks if self.chunks and self.sentences else None


def ground_answer(answer: str, contexts: Sequence[str]) -> Grounding:
    """Lexical grounding of an answer in the chunks that it was made of.

    Words are compared as diagnosis compares them: without case, punctuation and formatting; in scripts without spaces
    (Chinese, Japanese, Thai) each character is a word, so three characters in a row are a 3-gram. Of a chunk or a
    sentence the first 4,000 words count.
    """
    sentences = split_sentences(answer)
    counted = [text for text in sentences if len(words_of(text)) >= FEWEST_WORDS]
    chunks = [grams(text) for text in contexts]
    found = []
    for text in counted:
        own = grams(text)
        places = [place for place, chunk in enumerate(chunks) if len(own & chunk) >= SHARED * len(own)]
        found.append(Sentence(text=text, chunks=tuple(places)))
    return Grounding(sentences=tuple(found), short=len(sentences) - len(counted), chunks=len(contexts))


def split_sentences(text: str) -> list[str]:
    """Sentences of a text in order: what ends in `.`, `!`, `?` and white space, in their full-width forms, or a line.

    A dot after an abbreviation splits too; the parts are then looked at one by one.
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if words_of(part)]
