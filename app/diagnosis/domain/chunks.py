"""Chunks of a diagnosis: what to ask the retriever, where its answers have the missing texts, and under which name.

`collect_evidence` prepares the answers to the questions for the rules of `chunk_causes`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, groupby, islice, zip_longest
from operator import itemgetter

from app.base.values import Answer, Judgment, Outcome, Ranking
from app.diagnosis.domain import Case, FoundChunk, Kind, Question, Reanchor
from app.retrievers.domain.retrievers import in_scale, scale_relevance
from app.scoring.passages import FIRST_UNSPACED, normalise
from app.scoring.rankings import Match, Prepared, match, prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedChunk:
    """A judgment of grade 1 or better, with the text, rank and score of its chunk."""

    index: int
    """Its place in the canary's judgments."""
    judgment: Judgment
    passage: str | None
    """Its text: the judgment's own or, without one, that of the chunk when last retrieved; None = never retrieved."""
    before: int | None
    """Its rank when the canary was last healthy."""
    score: float | None
    """Its score then."""


@dataclass(frozen=True, slots=True)
class Search:
    """The expected chunks of a case, prepared for matching with answers. Made by `search_for`."""

    prepared: Prepared
    chunks: tuple[SearchedChunk, ...]
    texts: dict[str, str]
    """Texts of the expected chunks, by id."""
    matches: dict[int, tuple[Ranking, Match]] = field(default_factory=dict, compare=False, repr=False)
    """Cached matches of answers, by identity."""

    def ranks(self, ranking: Ranking | None) -> tuple[int | None, ...]:
        """Rank of each expected chunk; None = not retrieved.

        A chunk with the same id and another text is not the expected one: chunks numbered within their document keep
        their ids when they are re-cut.
        """
        if ranking is None:
            return (None,) * len(self.chunks)
        first = self.match(ranking).first
        return tuple(first[one.index] for one in self.chunks)

    def match(self, ranking: Ranking) -> Match:
        """Match an answer with all judgments; a chunk with another text than before is not matched by its id."""
        if id(ranking) not in self.matches:
            ids = tuple(
                f"{_RENAMED}{place}" if self._is_another(chunk, text) else chunk
                for place, (chunk, text) in enumerate(zip(ranking.ids, ranking.texts, strict=True))
            )
            matchable = ranking if ids == ranking.ids else replace(ranking, ids=ids)
            self.matches[id(ranking)] = ranking, match(self.prepared, matchable)
        return self.matches[id(ranking)][1]

    def _is_another(self, chunk: str, text: str | None) -> bool:
        was = self.texts.get(chunk)
        if was is None or text is None or min(len(grams(was)), len(grams(text))) < COMPARABLE:
            return False
        return max(containment(was, text), containment(text, was)) < MOSTLY


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
    text = case.now.texts[0] if case.now is not None and len(case.now) else None
    asks_control = item_questions and text and grams(text)
    control = [Question(kind=Kind.CONTROL, query=_shortened(text), k=fetch_k)] if asks_control and text else []
    return (*repeated[:2], *item_questions[:1], *repeated[2:], *item_questions[1:], *control)


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


def search_for(case: Case) -> Search:
    """Return the expected chunks of a case, in the order of its judgments; empty where the canary is negative."""
    prepared = prepare(case.canary.judgments)
    if not case.canary.expects:
        return Search(prepared, (), {})
    healthy = case.healthy
    first = match(prepared, healthy).first if healthy is not None else (None,) * len(prepared.judgments)
    chunks, items = list[SearchedChunk](), dict[str, str]()
    for index, judgment in enumerate(prepared.judgments):
        if judgment.grade < 1:
            continue
        rank = first[index]
        text = case.texts.get(judgment.id) if judgment.id is not None else None
        if healthy is not None and rank is not None:
            text = healthy.texts[rank - 1] or text
        if judgment.id is not None and text:
            items[judgment.id] = text
        passage = judgment.text if judgment.text and grams(judgment.text) else text
        chunks.append(
            SearchedChunk(
                index=index,
                judgment=judgment,
                passage=passage if passage and grams(passage) else None,
                before=rank,
                score=healthy.scores[rank - 1] if healthy is not None and rank is not None else None,
            )
        )
    return Search(prepared, tuple(chunks), items)


MOSTLY = 0.5
"""From this share of its word 3-grams on, a passage counts as found in a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A case and its answers, without failed ones; ranks are those of `search.chunks`."""

    case: Case
    search: Search
    targets: tuple[int, ...]
    """Places in `search.chunks` of the chunks that fell, the most important first."""
    repeats: tuple[Ranking, ...]
    deep: Ranking | None
    item_answers: Mapping[int, tuple[Ranking, ...]]
    """Answers to known items, by the judgment's place in the canary."""
    control: Ranking | None
    """The answer to the text of the run's first hit."""
    failures: tuple[tuple[Kind, Answer], ...]
    """Questions without an answer."""
    asked_counts: Mapping[Kind, int]

    def ranks_of(self, ranking: Ranking | None) -> tuple[int | None, ...]:
        """Rank of each target; None = not retrieved."""
        ranks = self.search.ranks(ranking)
        return tuple(ranks[place] for place in self.targets)

    @property
    def reported_places(self) -> Sequence[int]:
        """Places in `search.chunks` whose ranks are reported: the targets or, where nothing fell, all."""
        return self.targets or range(len(self.search.chunks))

    def best_rank(self, ranking: Ranking | None) -> int | None:
        """Best rank of the reported chunks."""
        ranks = self.search.ranks(ranking)
        return min((rank for place in self.reported_places if (rank := ranks[place]) is not None), default=None)

    @property
    def before(self) -> int | None:
        """Best rank of the reported chunks when the canary was last healthy."""
        ranks = (self.search.chunks[place].before for place in self.reported_places)
        return min((rank for rank in ranks if rank is not None), default=None)

    @property
    def today(self) -> Sequence[Ranking]:
        """Answers to the canary's own query, the repeats first; without any, the run's."""
        now = self.case.now
        answers = (*self.repeats, *([self.deep] if self.deep is not None else ()))
        return answers if answers or now is None else (now,)

    @property
    def shown(self) -> Ranking | None:
        """Current answer to the query: the first repeat or, without one, the run's."""
        return next((one for one in (*self.repeats, self.case.now, self.deep) if one is not None), None)

    def fails(self, ranking: Ranking) -> bool:
        """Whether an answer has the fault that degraded the canary."""
        now, k = self.case.now, self.case.k
        if self.search.chunks and is_lost(self.search, now, k):
            return is_lost(self.search, ranking, k)
        if self.targets:
            ranks = zip(self.ranks_of(ranking), self.targets, strict=True)
            return any(rank is None or rank > (self.search.chunks[place].before or k) for rank, place in ranks)
        if self.case.too_low is not None and (relevance := self._relevance(ranking)) is not None:
            return relevance < self.case.canary.min_relevance_score
        return now is None or (ranking.ids[:k], ranking.scores[:1]) == (now.ids[:k], now.scores[:1])

    def _relevance(self, ranking: Ranking) -> float | None:
        """Relevance of the first hit of an answer; None where its score has no scale."""
        scale, score = self.case.scale, ranking.scores[0] if len(ranking) else None
        if scale is None or score is None or not in_scale(scale, score):
            return None
        return scale_relevance(scale, score, self.case.anchor)

    @property
    def misses_own_texts(self) -> bool:
        """Whether the control failed: the run's first hit is not found by its own text."""
        now, control = self.case.now, self.control
        return now is not None and len(now) > 0 and control is not None and now.ids[0] not in control.ids

    def lacks_name(self, place: int) -> bool:
        """Whether an expected chunk was retrieved when last healthy, and no answer has it by the name of then."""
        healthy, one = self.case.healthy, self.search.chunks[place]
        if healthy is None or one.before is None:
            return False
        answers = [ranking for rankings in self.item_answers.values() for ranking in rankings]
        answers += [*self.today, *([self.case.now] if self.case.now is not None else ())]
        judgment, index = one.judgment, one.index
        if judgment.document is not None:
            if any(judgment.document in ranking.documents for ranking in answers):
                return False
            if judgment.id is None:
                return True
        if judgment.id is not None:
            named = self.search.match(healthy).first_by_id[index] is not None
            return named and all(self.search.match(ranking).first_by_id[index] is None for ranking in answers)
        was = healthy.ids[one.before - 1], healthy.texts[one.before - 1]
        return not any(was in zip(ranking.ids, ranking.texts, strict=True) for ranking in answers)

    def answers_for(self, place: int) -> Iterator[Ranking]:
        """Yield every answer that should have this expected chunk, the most conclusive first."""
        yield from self.item_answers.get(self.search.chunks[place].index, ())
        yield from reversed(self.today)


def collect_evidence(case: Case, questions: Sequence[Question], answers: Sequence[Answer | None]) -> Evidence:
    """Collect answers, given in the order of the questions, by kind of question; None = it was not asked."""
    search = search_for(case)
    repeats, item_rankings, failures = list[Ranking](), dict[int, list[Ranking]](), list[tuple[Kind, Answer]]()
    deep = control = None
    counts = dict.fromkeys(Kind, 0)
    for question, answer in zip_longest(questions, answers[: len(questions)]):
        if answer is None:
            continue
        counts[question.kind] += 1
        ranking = answer.ranking if answer.outcome is Outcome.OK else None
        if ranking is None:
            failures.append((question.kind, answer))
        elif question.kind is Kind.REPEAT:
            repeats.append(ranking)
        elif question.kind is Kind.DEEP:
            deep = ranking
        elif question.kind is Kind.CONTROL:
            control = ranking
        elif question.judgment is not None:
            item_rankings.setdefault(question.judgment, []).append(ranking)
    return Evidence(
        case=case,
        search=search,
        targets=find_targets(search, case.now, case.k, deep=case.too_low is None),
        repeats=tuple(repeats),
        deep=deep,
        item_answers={index: tuple(rankings) for index, rankings in item_rankings.items()},
        control=control,
        failures=tuple(failures),
        asked_counts=counts,
    )


def is_lost(search: Search, ranking: Ranking | None, k: int) -> bool:
    """Whether no expected chunk is in the top k."""
    return not any(rank is not None and rank <= k for rank in search.ranks(ranking))


def find_targets(search: Search, now: Ranking | None, k: int, *, deep: bool = True) -> tuple[int, ...]:
    """Places in `search.chunks` of the chunks that a diagnosis is about, the best ranked before first.

    Where no expected chunk is in the top k: those that were there before, else those below it, else all. Otherwise
    those that fell from the top k, else, with `deep`, from below it, which measures of depth 10 include. Empty where
    none fell: then the canary degraded for another reason.
    """
    everything = range(len(search.chunks))
    ranks = search.ranks(now)
    found_before = [place for place in everything if search.chunks[place].before is not None]
    was = [place for place in found_before if (search.chunks[place].before or _NOWHERE) <= k]
    if is_lost(search, now, k):
        chosen: Sequence[int] = was or found_before or everything
    else:
        fell = [place for place in found_before if (ranks[place] or _NOWHERE) > (search.chunks[place].before or 0)]
        chosen = [place for place in fell if place in was] or (fell if deep else ())
    one = search.chunks
    return tuple(sorted(chosen, key=lambda at: (one[at].before or _NOWHERE, -one[at].judgment.grade, one[at].index)))


_NOWHERE = 1 << 30
_RENAMED = "\0another text under the id of rank "
COMPARABLE = 6
"""Texts with fewer 3-grams, such as headings, are too short to compare."""
Grams = frozenset[tuple[str, ...]]


def containment(passage: str, text: str) -> float:
    """Share of a passage's word 3-grams that a text has, in [0, 1] (Broder 1997: containment)."""
    passage_grams = grams(passage)
    return len(passage_grams & grams(text)) / len(passage_grams) if passage_grams else 0.0


def overlap(one: str, other: str) -> float:
    """Share of the shorter text's word 3-grams that are in both, in [0, 1]; 0 where either has none."""
    a, b = grams(one), grams(other)
    shorter = min(len(a), len(b))
    return len(a & b) / shorter if shorter else 0.0


@lru_cache(maxsize=64)  # the texts of one case; each may hold a megabyte
def grams(text: str) -> Grams:
    """List each three words in a row of the first 4,000 words; a text of one or two words is one gram."""
    words = words_of(text)[:_MOST_WORDS]
    if not words:
        return frozenset()
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset([tuple(words)])


def words_of(text: str) -> list[str]:
    """Split a normalised text into words; in scripts without spaces, each character is one."""
    body = normalise(text)
    return body.split() if max(body, default="") < FIRST_UNSPACED else _WORDS.findall(body)


def split_by_overlap(passage: str, text: str) -> list[tuple[str, bool]]:
    """Split a passage into parts that a text has and parts that it does not, in order and complete.

    A word is common where it is part of a 3-gram of both, and so is the white space between two common words.
    """
    tokens, words, owner = _word_tokens(passage)
    passage_grams, size = grams(text), min(3, len(words))
    common_tokens = {
        owner[place]
        for at in range(len(words) - size + 1)
        if size and tuple(words[at : at + size]) in passage_grams
        for place in range(at, at + size)
    }
    pieces, end, before = list[tuple[str, bool]](), 0, False
    for place, token in enumerate(tokens):
        now = place in common_tokens
        pieces += [(passage[end : token.start()], before and now), (token.group(), now)]
        end, before = token.end(), now
    pieces.append((passage[end:], False))
    joined = [("".join(text for text, _ in run), now) for now, run in groupby(pieces, key=itemgetter(1))]
    return [(text, now) for text, now in joined if text]


def _word_tokens(passage: str) -> tuple[list[re.Match[str]], list[str], list[int]]:
    """Split a passage: its tokens, their words, and for each word the place of its token."""
    tokens = list(_TOKEN.finditer(passage))
    words = [(word, place) for place, token in enumerate(tokens) for word in words_of(token.group())]
    return tokens, [word for word, _ in words], [place for _, place in words]


def longest_common_part(passage: str, text: str) -> str | None:
    """Longest part of a passage whose words are part of 3-grams of a text, as it is written; None = there is none."""
    tokens, words, owner = _word_tokens(passage)
    passage_grams, size = grams(text), min(3, len(words))
    longest, start, end = (0, 0), -1, -1
    for at in range(len(words) - size + 1):
        if not size or tuple(words[at : at + size]) not in passage_grams:
            continue
        start = start if at <= end else at
        end = at + size
        longest = max(longest, (end - start, -start))
    length, first = longest[0], -longest[1]
    if not length:
        return None
    return passage[tokens[owner[first]].start() : tokens[owner[first + length - 1]].end()]


_MOST_WORDS = 4_000
_TOKEN = re.compile(r"\S+")
_WORDS = re.compile(f"[^\\s{FIRST_UNSPACED}-\U0010ffff]+|[{FIRST_UNSPACED}-\U0010ffff]")
LIKE = 0.7
TOP = 5


@dataclass(frozen=True, slots=True)
class NearCopies:
    """Two hits with nearly the same text."""

    one: str
    other: str
    similarity: float


def near_copies(ranking: Ranking, before: Ranking | None) -> Sequence[NearCopies]:
    """List the pairs among the top 5 of which more than 0.7 of the shorter text's word 3-grams are in both.

    At least one of a pair is new: two overlapping neighbours that were always retrieved crowd out nothing.
    """
    old = frozenset(before.ids) if before is not None else frozenset()
    hits = [(chunk, text) for chunk, text in zip(ranking.ids[:TOP], ranking.texts[:TOP], strict=True) if text]
    pairs = [
        NearCopies(one, other, overlap(a, b))
        for (one, a), (other, b) in combinations(hits, 2)
        if not (one in old and other in old)
    ]
    return [pair for pair in pairs if pair.similarity > LIKE]


TOGETHER = 0.8
"""Pieces that hold less than half of a passage each must hold this share of it together."""
MOST_PIECES = 3
MOST_CANDIDATES = 60
"""Chunks compared at most; an answer may have hundreds of long ones."""


def reanchor(
    searched: SearchedChunk, answers: Iterable[Ranking], before: Ranking | None, *, pieces: bool = False
) -> Reanchor | None:
    """Find the chunk that holds a passage now, or the few that hold it together; None = there is none.

    Chunks that were retrieved with the expected one when it was healthy, with the same text, do not count: they are
    neighbours that overlap with it. With `pieces`, where the whole index was re-cut, retrieved pieces count even if
    they hold little of a long passage; but not a few common words, nor a piece of a document retrieved before.
    """
    if searched.passage is None:
        return None
    whole = grams(searched.passage)
    candidates = _candidates(whole, answers, before)
    cover = _cover(whole, candidates)
    share = _share(cover, whole)
    if not cover or (cover[0].chunk.similarity < MOSTLY and share < TOGETHER):
        cover = _cover(whole, _pieces(searched, whole, candidates, before) if pieces else [])
        share = _share(cover, whole)
    if not cover:
        return None
    chunks = [one.chunk for one in cover]
    return Reanchor(
        index=searched.index,
        judgment=searched.judgment,
        passage=searched.passage,
        proposals=tuple(_proposal(searched, one, alone=len(chunks) == 1) for one in chunks),
        chunks=tuple(chunks),
        similarity=round(share, 3),
    )


def is_back(old: Judgment, passage: str | None, ranking: Ranking) -> bool:
    """Whether a ranking has, at any rank, what a proposal would replace: the chunk, the document or the text.

    A chunk counts under its id with its text, `passage`; a document by its name alone, its text may be in another.
    """
    if old.id is not None:
        text = ranking.texts[ranking.ids.index(old.id)] if old.id in ranking.ids else None
        return passage is not None and text is not None and containment(passage, text) >= MOSTLY
    named = Judgment(text=old.text) if old.document is None else Judgment(document=old.document)
    return match(prepare([named]), ranking).first[0] is not None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A chunk, and the 3-grams it has in common with the passage."""

    chunk: FoundChunk
    common: Grams
    is_piece: bool
    """Most of its text is from the passage."""


def _candidates(whole: Grams, answers: Iterable[Ranking], before: Ranking | None) -> list[_Candidate]:
    """List the chunks that hold a part of a passage, among the 60 best ranked of all answers."""
    hits_before = set(zip(before.ids, before.texts, strict=True)) if before is not None else set()
    hits = [
        (rank, place, chunk, document, text)
        for place, ranking in enumerate(answers)
        for rank, (chunk, document, text) in enumerate(zip(ranking.ids, ranking.documents, ranking.texts, strict=True))
        if text and (chunk, text) not in hits_before
    ]
    first: dict[str, tuple[int, int, str, str | None, str]] = {}
    for hit in sorted(hits, key=lambda one: one[:2]):
        first.setdefault(hit[2], hit)
    candidates: list[_Candidate] = []
    # Answers come most telling first, which decides where two chunks hold as much.
    for _, _, chunk, document, text in sorted(
        islice(first.values(), MOST_CANDIDATES), key=lambda one: (one[1], one[0])
    ):
        own = grams(text)
        both = whole & own
        if both:
            share = round(len(both) / len(whole), 3)
            is_piece = len(both) >= MOSTLY * len(own)
            candidates.append(
                _Candidate(FoundChunk(id=chunk, document=document, text=text, similarity=share), both, is_piece)
            )
    return candidates


def _pieces(
    searched: SearchedChunk, whole: Grams, candidates: Sequence[_Candidate], before: Ranking | None
) -> list[_Candidate]:
    """Keep the chunks that are mostly text of the passage, and have enough of it to prove that they were cut from it.

    For a judgment by document, none of a document that was retrieved already when the canary was healthy.
    """
    least = max(_PIECE * len(whole), min(COMPARABLE, len(whole)))
    by_document = searched.judgment.id is None and searched.judgment.document is not None
    documents_before = frozenset(before.documents) if before is not None and by_document else frozenset()
    return [
        one
        for one in candidates
        if one.is_piece and len(one.common) >= least and one.chunk.document not in documents_before
    ]


def _share(taken: Sequence[_Candidate], whole: Grams) -> float:
    common = frozenset[tuple[str, ...]]().union(*(one.common for one in taken))
    return len(common) / len(whole) if whole else 0.0


def _cover(whole: Grams, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
    """Take the chunk that holds most of a passage, then those that add most, as long as each adds a fifth."""
    cover, left, rest = list[_Candidate](), whole, list(candidates)
    while rest and left and len(cover) < MOST_PIECES:
        best = max(rest, key=lambda one: (len(left & one.common), one.chunk.similarity))
        gained = left & best.common
        if cover and len(gained) < _WORTH_ADDING * len(whole):
            break
        cover.append(best)
        rest.remove(best)
        left -= gained
    return cover


def _proposal(searched: SearchedChunk, chunk: FoundChunk, *, alone: bool) -> Judgment:
    """Build the proposed judgment with the identities of the old one: an additional document would widen it."""
    old = searched.judgment
    text = old.text if alone or old.text is None else longest_common_part(old.text, chunk.text)
    if old.id is None and old.document is not None and chunk.document is not None:
        return replace(old, document=chunk.document, text=text)
    if old.id is None and text is not None:
        return replace(old, text=text)
    return replace(old, id=chunk.id, document=None if old.document is None else chunk.document, text=text)


_WORTH_ADDING = 0.2
_PIECE = 0.1
"""The least share of a passage that a piece of it holds."""
