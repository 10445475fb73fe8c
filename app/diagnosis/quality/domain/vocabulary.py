"""Vocabulary: whether queries share words with what they should find."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from app.base.texts import percent_text
from app.diagnosis.quality.domain.evidence import EXAMPLES, Answered, Chunk, Example, Mark, Section, unknown
from app.diagnosis.quality.domain.near_copies import words_of

NAME: Final = "vocabulary"
LITTLE: Final = 0.2
"""Share of a query's words in the expected text below which both use different words."""
_LETTERS = 6
"""First letters of words that are compared, so that most endings do not matter."""
_READ = 20_000


def vocabulary(answered: Sequence[Answered], chunks: Sequence[Chunk], *, k: int) -> Section:
    """Compare the content words of each query with those of the best expected text: found canaries against missed.

    An expected text is the one the judgment has or, for one by id, the text of that chunk if any canary retrieved it.
    Only English function words are left out. Good where no missed canary lacks its words; that of a missed canary no
    text is known is unknown.
    """
    texts = {chunk.id: chunk.text for chunk in chunks if chunk.text is not None}
    shared = _shared(answered, texts)
    found_overlaps: list[float] = []
    missed_overlaps: list[tuple[float, str]] = []
    unread = 0
    for one in answered:
        if not one.canary.expects:
            continue
        rank = one.match.first_relevant
        lost = rank is None or rank > k
        overlap = _overlap(one, texts, shared)
        if overlap is None:
            unread += lost
        elif lost:
            missed_overlaps.append((overlap, one.canary.key))
        else:
            found_overlaps.append(overlap)
    numbers = {
        "found_canaries": len(found_overlaps),
        "found_mean_overlap": _mean(found_overlaps),
        "missed_canaries": len(missed_overlaps),
        "missed_mean_overlap": _mean([overlap for overlap, _ in missed_overlaps]),
        "missed_without_text": unread,
    }
    strange = sorted(one for one in missed_overlaps if one[0] < LITTLE)
    numbers["missed_with_little_overlap"] = len(strange)
    if not found_overlaps and not missed_overlaps:
        return unknown(NAME, "of no canary the expected text is known", **numbers)
    if unread and not strange:
        return unknown(NAME, f"of {unread:,} missed canaries the expected text is not known", **numbers)
    if not missed_overlaps:
        common = percent_text(_mean(found_overlaps) or 0.0)
        note = f"no canary is missed; queries share {common} of their words with what they expect"
    elif not strange:
        note = f"the {len(missed_overlaps):,} missed canaries share words with what they expect"
    else:
        note = (
            f"{len(strange):,} of {len(missed_overlaps):,} missed canaries share next to no word with what they expect"
        )
    return Section(
        name=NAME,
        mark=Mark.REVIEW if strange else Mark.GOOD,
        reason=note,
        numbers=numbers,
        examples=[
            Example(note=f"{percent_text(overlap)} of the query's words are in the expected text", canary=key)
            for overlap, key in strange[:EXAMPLES]
        ],
        advice="Expand queries, add synonyms or put the users' words into the documents." if strange else None,
    )


def content_words(text: str) -> frozenset[str]:
    """Content words of a text, cut to their first six letters."""
    return frozenset(word[:_LETTERS] for word in words_of(text[:_READ]) if word not in _FUNCTION_WORDS)


def word_overlap(query: str, texts: Iterable[str]) -> float | None:
    """Share of a query's content words in the one of these texts that has most of them; None = unknown.

    Below `LITTLE` query and text count as using different words, here and in the causes of single canaries.
    """
    query_words = content_words(query)
    shares = [len(query_words & content_words(text)) / len(query_words) for text in texts] if query_words else []
    return max(shares, default=None)


def _shared(answered: Sequence[Answered], texts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """By expected text, those of its words that a query with this expectation has."""
    queries_by_word: defaultdict[str, set[str]] = defaultdict(set)
    for one in answered:
        words = content_words(one.canary.query)
        for text in _expected(one, texts):
            queries_by_word[text] |= words
    return {text: content_words(text) & words for text, words in queries_by_word.items()}


def _overlap(one: Answered, texts: Mapping[str, str], shared: Mapping[str, frozenset[str]]) -> float | None:
    """Share of the query's content words in the expected text that has most of them; None = unknown."""
    query_words = content_words(one.canary.query)
    expected = _expected(one, texts)
    if not query_words or not expected:
        return None
    return max(len(query_words & shared[text]) for text in expected) / len(query_words)


def _expected(one: Answered, texts: Mapping[str, str]) -> list[str]:
    return [text for _, judgment in one.expected if (text := judgment.text or texts.get(judgment.id or ""))]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


_FUNCTION_WORDS = frozenset(
    words_of(
        "a about after all am an and any are as at be been before being but by can could did do does doing "
        "for from had has have having he her him his how i if in into is it its just me more most my no not "
        "of off on or our out over own she should so some such than that the their them then there these they "
        "this those to too under up us very was we were what when where which while who whom whose why will "
        "with would you your"
    )
)
