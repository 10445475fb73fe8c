"""What a diagnosis asks the retriever (`questions`), and what the answers hold of the expected chunks (`Evidence`).

`collect_evidence` prepares the answers to the questions for the rules of `canary_causes`. `score_change` compares the
scores of the same chunks then and now, for one canary and for whole runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, zip_longest
from math import isfinite
from statistics import median
from typing import TypeGuard

from app.base.values import Answer, Judgment, Outcome, Ranking, Value, replace
from app.diagnosis.domain.cases import Case, Kind, Question
from app.retrievers.domain.retrievers import Scale, in_scale, scale_relevance
from app.scoring.rankings import Match, Prepared, match, prepare
from app.scoring.words import COMPARABLE, containment, grams

SAME_TEXT = 0.5
"""A chunk with an id of before is another one where neither text has this share of the other's word 3-grams."""
_ANOTHER_TEXT = "\0another text under the id of rank "
_NOWHERE = 1 << 30


class SearchedChunk(Value):
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
                f"{_ANOTHER_TEXT}{place}" if self._is_another(chunk, text) else chunk
                for place, (chunk, text) in enumerate(zip(ranking.ids, ranking.texts, strict=True))
            )
            matchable = ranking if ids == ranking.ids else replace(ranking, ids=ids)
            self.matches[id(ranking)] = ranking, match(self.prepared, matchable)
        return self.matches[id(ranking)][1]

    def _is_another(self, chunk: str, text: str | None) -> bool:
        was = self.texts.get(chunk)
        if was is None or text is None or min(len(grams(was)), len(grams(text))) < COMPARABLE:
            return False
        return max(containment(was, text), containment(text, was)) < SAME_TEXT


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


class Evidence(Value):
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

    def stands_elsewhere(self, place: int) -> bool:
        """Whether an answer of the run to another canary has this expected chunk: then it is in the index."""
        return any(self.search.ranks(ranking)[place] is not None for ranking in self.case.others)

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


# --- scores of the same chunks ---------------------------------------------------------------------------------


class ScoreChange(Value, kw_only=False):
    """How far the scores of the same chunks moved."""

    median: float
    """Of |now - before| / |before|."""
    chunks: int
    in_order: float
    """The share of pairs of chunks that kept their order, in [0, 1]; 1 where there is no pair."""

    def is_large(self, scale: Scale | None) -> bool:
        """Whether it is too large for scores to count as the same."""
        return self.median > (_LARGEST_LEXICAL if scale is Scale.UNBOUNDED else _LARGEST)

    def may_be_content(self, scale: Scale | None) -> bool:
        """Whether scores may have moved only because documents came or went: each a bit, and the order stayed."""
        return scale not in _OF_THE_PAIR_ALONE and self.in_order >= _ORDER_KEPT


MOVED_BY_CONTENT = 0.3
"""What weights of words move by when documents come and go: measured up to this in 19 of 20 cases, the order kept."""


def score_change(before: Ranking, today: Sequence[Ranking]) -> ScoreChange | None:
    """Compare the scores of the chunks found then and now; None = there is none with both."""
    texts = dict(zip(before.ids, before.texts, strict=True))
    now: dict[str, float] = {}
    for ranking in today:
        for chunk, text, score in zip(ranking.ids, ranking.texts, ranking.scores, strict=True):
            # An id that holds another text is another chunk. Where several answers have one, the first counts.
            if _is_number(score) and chunk in texts and (text == texts[chunk] or None in {text, texts[chunk]}):
                now.setdefault(chunk, score)
    then = zip(before.ids, before.scores, strict=True)
    pairs = [(was, now[chunk]) for chunk, was in then if _is_number(was) and chunk in now]
    if not pairs:
        return None
    moved = median(_relative(was, is_) for was, is_ in pairs)
    same_order = [(a - b) * (c - d) >= 0 for (a, c), (b, d) in combinations(pairs[:_MOST_COMPARED], 2)]
    return ScoreChange(moved, len(pairs), sum(same_order) / len(same_order) if same_order else 1.0)


def tell_ranks_alone(before: Ranking, now: Ranking) -> bool:
    """Whether scores are made of ranks, such as 1 / rank: other chunks stand there with the scores of before.

    A chunk that moves then has another score, and nothing about encoder or scoring follows from it.
    """
    scores = list(zip(before.scores, now.scores, strict=False))
    differ = before.ids[: len(scores)] != now.ids[: len(scores)]
    return differ and len(set(before.scores)) > 1 and all(a is not None and a == b for a, b in scores)


def _is_number(score: float | None) -> TypeGuard[float]:
    return score is not None and isfinite(score)


def _relative(was: float, is_: float) -> float:
    if was == is_:
        return 0.0
    return min(abs(is_ - was) / abs(was), _MOST_MOVED) if was else 1.0


_MOST_COMPARED = 100
_MOST_MOVED = 1e6
"""Cap of relative changes; quotients of the smallest floats are infinite."""
_LARGEST = 0.03
_LARGEST_LEXICAL = 0.10
"""Sums of word weights move a little with the collection, without anything being wrong."""
_ORDER_KEPT = 2 / 3
_OF_THE_PAIR_ALONE = frozenset({Scale.COSINE, Scale.DISTANCE, Scale.LOGIT})
"""Scales of scores that depend on query and chunk alone; others may count words over the whole collection."""
