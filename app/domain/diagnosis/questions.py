"""Which extra probes tell why a canary degraded: its query thrice more and once deep, and its expected passages.

Up to eight probes a canary by default. What their answers mean is causes'. Retrievers are asked by query only, none is
described by how it fetches a chunk by id: the known item, an expected passage as the query, stands in for that.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from app.domain.diagnosis.expected_chunks import Search, SearchedChunk, search_for, targets
from app.domain.diagnosis.text_overlap import grams
from app.domain.diagnosis.values import Case, Kind, Question

REPEATS = 3
DEEP = 50
KNOWN_ITEMS = 3


def questions(case: Case, *, repeats: int = REPEATS, known_items: int = KNOWN_ITEMS) -> tuple[Question, ...]:
    """Say what to ask, most important first, so that a budget may cut the end off.

    Known items are asked for where an expected chunk is nowhere in what the run retrieved, or only its text under
    another id, and its text is known: each
    whole, then, as long as there is room for more, in halves. Those find a passage that was cut in two, or that an
    approximate index happened to miss, or whose whole is longer than the retriever takes. What their silence is worth,
    the control says: the text of the run's first hit, which surely is in the index.
    """
    query, fetch_k = case.canary.query, max(case.fetch_k, case.k, 1)
    repeated = [Question(kind=Kind.REPEAT, query=query, k=fetch_k) for _ in range(repeats)]
    repeated.insert(1, Question(kind=Kind.DEEP, query=query, k=max(DEEP, fetch_k)))
    items = islice(_known_items(case), max(0, known_items))
    known = [Question(kind=Kind.KNOWN_ITEM, query=text, k=fetch_k, judgment=index) for index, text in items]
    control = [Question(kind=Kind.CONTROL, query=_shortened(text), k=fetch_k) for text in _surely_there(case) if known]
    return (*repeated[:2], *known[:1], *repeated[2:], *known[1:], *control)


def _surely_there(case: Case) -> Sequence[str]:
    text = case.now.texts[0] if case.now is not None and len(case.now) else None
    return [text] if text and grams(text) else []


def _known_items(case: Case) -> Iterator[tuple[int, str]]:
    search = search_for(case)
    passages = [(one.index, passage) for one, passage in _unseen(case, search)]
    for index, passage in passages:
        yield index, _shortened(passage)
    for index, passage in passages:
        words = passage.split()
        if len(words) >= _WORTH_HALVING:
            yield index, _shortened(" ".join(words[: len(words) // 2]))
            yield index, _shortened(" ".join(words[len(words) // 2 :]))


def _unseen(case: Case, search: Search) -> Iterator[tuple[SearchedChunk, str]]:
    ranks = search.ranks(case.now)
    for place in targets(search, case.now, case.k, deep=case.too_low is None):
        one = search.wanted[place]
        if one.passage is not None and (ranks[place] is None or _is_nameless(case, search, one)):
            yield one, one.passage


def _is_nameless(case: Case, search: Search, one: SearchedChunk) -> bool:
    """Whether what the run retrieved holds a passage, but not the chunk that is expected by its id."""
    return one.judgment.id is not None and case.now is not None and not search.match(case.now).first_by_id[one.index]


def _shortened(text: str) -> str:
    """Put a passage on one line and cut it after a word: encoders and query strings end somewhere."""
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    head, _, rest = line[: _LONGEST + 1].rpartition(" ")
    return head or rest[:_LONGEST]


_LONGEST = 1_000
"""Characters; about the 256 word pieces that small encoders take."""
_WORTH_HALVING = 16
