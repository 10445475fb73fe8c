"""Questions of a diagnosis: the extra probes for a degraded canary.

Its query three times more and once deeper, and its expected passages; up to eight probes a canary. Retrievers
are asked by query only: a known item, an expected passage as the query, replaces fetching a chunk by id.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from app.diagnosis.domain.expected_chunks import Search, SearchedChunk, find_targets, search_for
from app.diagnosis.domain.text_overlap import grams
from app.diagnosis.domain.values import Case, Kind, Question

REPEATS = 3
DEEP = 50
KNOWN_ITEMS = 3


def questions(case: Case, *, repeats: int = REPEATS, known_items: int = KNOWN_ITEMS) -> tuple[Question, ...]:
    """Questions in order of importance, so that a budget may cut off the end.

    Known items are asked where the run did not retrieve an expected chunk, or only its text under another id, and its
    text is known: first whole, then, as far as there is room, in halves. Halves find a passage that was cut in two, or
    missed by an approximate index, or too long for the retriever. The control is the text of the run's first hit, which
    surely is in the index: it shows whether queries by text work at all.
    """
    query, fetch_k = case.canary.query, max(case.fetch_k, case.k, 1)
    repeated = [Question(kind=Kind.REPEAT, query=query, k=fetch_k) for _ in range(repeats)]
    repeated.insert(1, Question(kind=Kind.DEEP, query=query, k=max(DEEP, fetch_k)))
    items = islice(_known_items(case), max(0, known_items))
    item_questions = [Question(kind=Kind.KNOWN_ITEM, query=text, k=fetch_k, judgment=index) for index, text in items]
    control = [
        Question(kind=Kind.CONTROL, query=_shortened(text), k=fetch_k)
        for text in _control_texts(case)
        if item_questions
    ]
    return (*repeated[:2], *item_questions[:1], *repeated[2:], *item_questions[1:], *control)


def _control_texts(case: Case) -> Sequence[str]:
    text = case.now.texts[0] if case.now is not None and len(case.now) else None
    return [text] if text and grams(text) else []


def _known_items(case: Case) -> Iterator[tuple[int, str]]:
    search = search_for(case)
    passages = [(one.index, passage) for one, passage in _missing_passages(case, search)]
    for index, passage in passages:
        yield index, _shortened(passage)
    for index, passage in passages:
        words = passage.split()
        if len(words) >= _WORTH_HALVING:
            yield index, _shortened(" ".join(words[: len(words) // 2]))
            yield index, _shortened(" ".join(words[len(words) // 2 :]))


def _missing_passages(case: Case, search: Search) -> Iterator[tuple[SearchedChunk, str]]:
    ranks = search.ranks(case.now)
    for place in find_targets(search, case.now, case.k, deep=case.too_low is None):
        one = search.chunks[place]
        if one.passage is not None and (ranks[place] is None or _is_nameless(case, search, one)):
            yield one, one.passage


def _is_nameless(case: Case, search: Search, one: SearchedChunk) -> bool:
    """Whether the run retrieved a passage, but not the chunk that is expected by its id."""
    return one.judgment.id is not None and case.now is not None and not search.match(case.now).first_by_id[one.index]


def _shortened(text: str) -> str:
    """Return a passage on one line, cut after a word: encoders and query strings have limits."""
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    head, _, rest = line[: _LONGEST + 1].rpartition(" ")
    return head or rest[:_LONGEST]


_LONGEST = 1_000
"""Characters; about the 256 word pieces that small encoders take."""
_WORTH_HALVING = 16
