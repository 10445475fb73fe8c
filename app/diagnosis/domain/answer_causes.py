"""Causes of a whole run that its answers tell, from stored rankings alone.

Answers are compared with those of a healthy run, hit by hit, for all canaries, also those that did not change: each
cause predicts what is lost and gained, and where. A deletion takes its chunks out of every answer, and what is left
closes up in its order; new chunks push others down and take nothing away; another model does both alike; replicas that
differ leave some answers as they were. `weigh` counts, `find_answer_causes` returns the causes that fit, the one that
explains most first. Chunks that are re-cut or renamed are told by their texts, in `run_causes`, which makes one cause
of both; the kinds of causes and their words are in `cases`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.texts import counted, percent_text
from app.base.values import Ranking, RunCauseKind, Value
from app.diagnosis.domain.cases import FEWEST, MAJORITY, PHRASES
from app.diagnosis.domain.run_groups import RankedChunk, name_chunks
from app.scoring.words import LIKE, containment

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Answers(Value):
    """The answers of canaries to compare, as parallel lists."""

    before: Sequence[Ranking]
    """Of the last healthy run."""
    now: Sequence[Ranking]
    earlier: Sequence[Ranking | None]
    """Of the run before this one, where it was not healthy either; None = there is none."""


class Hits(Value):
    """The hits of answers, flat: (hits,), by canary and rank."""

    canary: Ints
    rank: Ints
    code: Ints
    """Of the chunk, the same in both runs."""
    other: Ints
    """The chunk's rank in the other answer of the canary; -1 = it is not in it."""

    @property
    def alone(self) -> Bools:
        """Hits that the canary's other answer does not have."""
        return self.other < 0


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What changed, counted; arrays are (n,), by canary, but for hits."""

    answers: Answers
    before: Hits
    now: Hits
    sizes_before: Ints
    sizes_now: Ints
    absent: Bools
    """(codes,): chunks of the healthy run that no answer has any more."""
    unseen: Bools
    """(codes,): chunks that no answer of the healthy run had."""
    kept: Ints
    in_order: NDArray[np.float64]
    """Share of the neighbours among the kept hits that kept their order; 1 where there are none."""
    dropped: Bools
    """Hits of before that are gone although one that ranked lower was kept."""
    pushing: Bools
    """Hits of now that are new and rank above one that was kept."""

    @property
    def same(self) -> Bools:
        """Canaries whose answer is as it was."""
        whole = (self.kept == self.sizes_before) & (self.kept == self.sizes_now)
        return np.asarray(whole & (self.in_order == 1))

    @cached_property
    def lost(self) -> "Turnover":
        """How well it explains what was lost that chunks are gone from the index."""
        return fit_turnover(self.before, np.ones(len(self.kept), np.bool_), len(self.absent))

    @cached_property
    def came(self) -> "Turnover":
        """How well it explains what came that chunks are new in the index: a deletion, read backwards."""
        return fit_turnover(self.now, np.ones(len(self.kept), np.bool_), len(self.absent))

    @cached_property
    def is_scored(self) -> bool:
        """Whether hits have scores."""
        return any(score is not None for one in self.answers.now for score in one.scores)

    @cached_property
    def moved(self) -> float:
        """By how much the scores of kept hits changed, in the median, relative to what they were; 0 without any."""
        step = -(-len(self.kept) // _MOST_SCORED) or 1
        before, now = (
            np.array(list(chain.from_iterable([one.scores for one in some[::step]])), np.float64)  # None is NaN
            for some in (self.answers.before, self.answers.now)
        )
        first_before, first_now = (
            np.cumsum(sizes[::step]) - sizes[::step] for sizes in (self.sizes_before, self.sizes_now)
        )
        kept = ~self.before.alone & (self.before.canary % step == 0)
        answer = self.before.canary[kept] // step
        was = before[first_before[answer] + self.before.rank[kept]]
        stands = now[first_now[answer] + self.before.other[kept]]
        known = np.isfinite(was) & np.isfinite(stands) & (was != 0)
        return float(np.median(np.abs(stands - was)[known] / np.abs(was)[known])) if known.any() else 0.0


_MOST_SCORED: Final = 250
"""Answers whose scores are compared; more have the same median."""


def weigh(answers: Answers) -> Counts:
    """Count what changed."""
    codes = defaultdict[str, int](count().__next__)
    was, sizes_before = _flat(answers.before, codes)
    is_, sizes_now = _flat(answers.now, codes)
    number, known = len(answers.before), len(codes)
    _, kept_before, kept_now = np.intersect1d(
        was.canary * known + was.code, is_.canary * known + is_.code, assume_unique=True, return_indices=True
    )
    was.other[kept_before], is_.other[kept_now] = is_.rank[kept_now], was.rank[kept_before]
    in_before, in_now = np.zeros(known, np.bool_), np.zeros(known, np.bool_)
    in_before[was.code], in_now[is_.code] = True, True
    kept_was, kept_now = ~was.alone, ~is_.alone
    last_before, last_now = np.full(number, -1), np.full(number, -1)
    np.maximum.at(last_before, was.canary[kept_was], was.rank[kept_was])
    np.maximum.at(last_now, is_.canary[kept_now], is_.rank[kept_now])
    return Counts(
        answers=answers,
        before=was,
        now=is_,
        sizes_before=sizes_before,
        sizes_now=sizes_now,
        absent=in_before & ~in_now,
        unseen=in_now & ~in_before,
        kept=np.bincount(was.canary[kept_was], minlength=number),
        in_order=_in_order(was.canary[kept_was], was.other[kept_was], number),
        dropped=was.alone & (was.rank < last_before[was.canary]),
        pushing=is_.alone & (is_.rank < last_now[is_.canary]),
    )


def _flat(some: Sequence[Ranking], codes: Mapping[str, int]) -> tuple[Hits, Ints]:
    """Return the hits of answers, none of which is in another one yet, and the sizes of these."""
    ids = [one.ids for one in some]
    sizes = np.fromiter(map(len, ids), np.intp, len(ids))
    total = int(sizes.sum())
    code = np.fromiter(map(codes.__getitem__, chain.from_iterable(ids)), np.intp, total)
    rank = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Hits(canary=np.repeat(np.arange(len(ids)), sizes), rank=rank, code=code, other=np.full(total, -1)), sizes


def _in_order(canary: Ints, rank: Ints, count: int) -> NDArray[np.float64]:
    neighbours = canary[1:] == canary[:-1]
    total = np.bincount(canary[1:][neighbours], minlength=count)
    rising = np.bincount(canary[1:][neighbours & (rank[1:] > rank[:-1])], minlength=count)
    return np.where(total > 0, rising / np.maximum(total, 1), 1.0)


class AnswerCause(Value):
    """A cause that fits what changed."""

    kind: RunCauseKind
    affected: Bools
    """(n,): the canaries whose answers it explains."""
    phrase: str
    """For a headline, with its figures."""
    evidence: str
    """What is seen, in numbers; a sentence without its full stop."""
    against: str = ""
    """What it does not explain; a clause, empty where there is nothing."""


_MOST: Final = 0.9
_IN_ORDER: Final = 0.95
"""Share of pairs of hits whose order stayed, above which a ranking did."""


def find_answer_causes(answers: Answers) -> list[AnswerCause]:
    """Return the causes that fit, the one that explains most first: two at most, empty where none does.

    Answers that are shorter than they were are explained first, since nothing else can be said of what is not there.
    """
    counts = weigh(answers)
    changes = [one for rule in (_above_threshold, _empty, _limited) if (one := rule(counts)) is not None][:1]
    left = ~counts.same if not changes else ~counts.same & ~changes[0].affected
    if left.sum() < FEWEST or (changes and left.sum() < (1 - _MOST) * len(left)):
        return changes
    for rule in _OF_WHOLE_ANSWERS:
        found = rule(counts)
        if found is not None:
            return [*changes, found]
    return changes


# --- shorter answers -----------------------------------------------------------------------------------------


def _empty(counts: Counts) -> AnswerCause | None:
    had = counts.sizes_before > 0
    empty = had & (counts.sizes_now == 0)
    number, of = int(empty.sum()), int(had.sum())
    if number < min(FEWEST, of) or not number:
        return None
    same = int((had & ~empty & counts.same).sum())
    rest = f"; of the others {same:,} are as before" if number < of else ", and no error is told"
    return AnswerCause(
        kind=RunCauseKind.EMPTY_ANSWERS,
        affected=empty,
        phrase="every answer is empty" if number == of else f"{number:,} of {of:,} answers are empty",
        evidence=f"{number:,} of {counted(of, 'answer')} that had hits have none{rest}",
    )


def _limited(counts: Counts) -> AnswerCause | None:
    answered = counts.sizes_now > 0
    if not answered.any():
        return None
    limit = int(counts.sizes_now.max())
    longer = answered & (counts.sizes_before > limit)
    cut = longer & (counts.sizes_now == limit) & (counts.kept == limit)
    if cut.sum() < max(FEWEST, _MOST * longer.sum()) or longer.sum() < MAJORITY * answered.sum():
        return None
    before = int(np.median(counts.sizes_before[longer]))
    return AnswerCause(
        kind=RunCauseKind.LIMITED,
        affected=cut,
        phrase=f"at most {counted(limit, 'hit')} returned",
        evidence=f"{int(cut.sum()):,} of {counted(int(longer.sum()), 'answer')} that had {before} hits have {limit}",
    )


def _above_threshold(counts: Counts) -> AnswerCause | None:
    """Find that hits are gone from the ends of answers, with worse scores than any that is left.

    Worse is lower or, of distances, larger. Without scores it is told by the lengths, which differ: a limit makes them
    alike, and lost chunks let others rise.
    """
    shorter = (counts.sizes_now < counts.sizes_before) & (counts.sizes_before > 0)
    ends = shorter & (counts.kept == counts.sizes_now) & (counts.in_order == 1)
    if (ends & (counts.sizes_now > 0)).sum() < FEWEST or ends.sum() < max(_MOST * shorter.sum(), MAJORITY * len(ends)):
        return None
    if len(np.unique(counts.sizes_now[ends])) == 1:
        return None
    bound = _score_bound(counts, ends)
    if bound is None and counts.is_scored:
        return None
    lengths = f"{int(ends.sum()):,} answers end earlier, at different lengths, with the first hits of before"
    empty = f", and {int((ends & (counts.sizes_now == 0)).sum()):,} are empty"
    return AnswerCause(
        kind=RunCauseKind.SCORE_THRESHOLD,
        affected=ends,
        phrase=f"hits {bound or 'below a score threshold, it seems,'} are not returned",
        evidence=f"{lengths}{f'; those that are gone were {bound}, and none of now is' if bound else empty}",
    )


def _score_bound(counts: Counts, ends: Bools) -> str | None:
    """Say beyond which score hits are gone from the ends of answers; None where most of them were not beyond it."""
    left = [score for one in counts.answers.now for score in one.scores if score is not None]
    gone = [
        score
        for before, now, is_cut in zip(counts.answers.before, counts.answers.now, ends.tolist(), strict=True)
        if is_cut
        for score in before.scores[len(now.ids) :]
        if score is not None
    ]
    if not left or not gone:
        return None
    if _are_distances(counts.answers.before):
        words, bound = "beyond a distance", max(left)
        is_beyond = np.array(gone) > bound
    else:
        words, bound = "below a score", min(left)
        is_beyond = np.array(gone) < bound
    return f"{words} of {bound:.3g}" if is_beyond.mean() >= _MOST else None


def _are_distances(answers: Sequence[Ranking]) -> bool:
    """Whether smaller scores are better, by a vote of answers: most have a smaller one at their first hit than last.

    The declared scale is not asked: many retrievers declare none, and the order of hits counts here whatever they do.
    """
    scored = [[score for score in one.scores if score is not None] for one in answers if None not in one.scores]
    firsts_and_lasts = [(scores[0], scores[-1]) for scores in scored if len(scores) > 1]
    return sum(first >= last for first, last in firsts_and_lasts) < MAJORITY * len(firsts_and_lasts)


# --- whole answers -------------------------------------------------------------------------------------------


class Turnover(Value):
    """How well it explains hits that one of two answers has alone that some chunks are in one index alone.

    Each chunk is gone with a chance `share`; one that is not is missed by each answer with a chance that depends on its
    rank alone, `missed`. Both are fitted by expectation and maximisation (Dempster, Laird and Rubin, 1977).
    """

    share: float
    missed: Floats
    """(10,), by rank."""
    missed_first: float
    """How many first hits were missed so."""
    gain: float
    """By how much it is likelier than that none is gone, as a natural logarithm."""
    chance: Floats
    """(codes,): that a chunk is gone."""
    is_found: Bools
    """(codes,): chunks that are not gone, for an answer still has them."""

    @property
    def is_sure(self) -> Bools:
        """(codes,): chunks that are gone."""
        return np.asarray(self.chance > _GONE)

    @property
    def fits(self) -> bool:
        """Whether what is not gone is found as it was, in the first ranks at least."""
        first = self.missed[0] <= _MISSED_FIRST or self.missed_first <= _CHANCE_MISSES  # one of a few is no share
        return bool(first and self.missed[4] <= _MISSED_FIFTH)


def fit_turnover(hits: Hits, of: Bools, known: int) -> Turnover:
    """Fit it to the answers of some canaries; `known`: number of codes."""
    mine = of[hits.canary]
    code, gone = hits.code[mine], hits.alone[mine]
    rank = np.minimum(hits.rank[mine], _RANKS - 1)
    is_found = np.bincount(code[~gone], minlength=known) > 0
    left = is_found[code]  # a chunk that any answer has is not gone: numbers by rank are enough of these
    there, missing = (np.bincount(rank[left & one], minlength=_RANKS) for one in (~gone, gone))
    is_absent = (np.bincount(code, minlength=known) > 0) & ~is_found
    absent, chunk = np.flatnonzero(is_absent), np.cumsum(is_absent)[code[~left]] - 1
    hits_of = np.bincount(chunk * _RANKS + rank[~left], minlength=len(absent) * _RANKS).reshape(-1, _RANKS) * 1.0
    # Chunks with as many hits at each rank as others are fitted once: `_APART` makes of each row a number of its own.
    _, one_of, kind, number = np.unique(hits_of @ _APART, return_index=True, return_inverse=True, return_counts=True)
    hits_of = hits_of[one_of]
    found, of_all = int(is_found.sum()), int(is_found.sum()) + len(absent)

    def missed_by_rank(weight: Floats) -> Floats:
        lost = np.asarray(missing + (number * weight) @ hits_of, np.float64)
        return (lost + 0.5) / (there + lost + 1)

    def missed_alike(missed: Floats) -> tuple[float, Floats]:
        """How likely it is of the chunks that are found and, by kind, of those that may be gone, as logarithms."""
        each = np.asarray(hits_of @ np.log(missed), np.float64)
        return float(missing @ np.log(missed) + there @ np.log1p(-missed)), each

    missed = missed_by_rank(np.ones(len(number)))
    rest, each = missed_alike(missed)
    none = rest + number @ each
    share, missed = _FIRST_SHARE, missed / 2
    for _ in range(_STEPS):
        rest, each = missed_alike(missed)
        whole = np.maximum((1 - share) * np.exp(each) + share, _TINY)
        fitted = rest + found * np.log(max(1 - share, _TINY)) + number @ np.log(whole)
        chance = share / whole
        before, share = share, float(number @ chance / max(of_all, 1))
        missed = missed_by_rank(1 - chance)
        if abs(share - before) <= _SETTLED * before:
            break
    by_code = np.zeros(known)
    by_code[absent] = chance[kind]
    return Turnover(
        share=share,
        missed=missed,
        missed_first=float(missing[0] + (number * (1 - chance)) @ hits_of[:, 0]),
        gain=float(fitted - none),
        chance=by_code,
        is_found=is_found,
    )


_RANKS: Final = 10
_APART: Final = np.log([2, 3, 5, 7, 11, 13, 17, 19, 23, 29])
"""Logarithms of the first primes, one by rank. Numbers of hits times these sum to the logarithm of a product of primes,
and a product has one factorisation: equal sums are equal rows, and numbers are sorted faster than rows."""
_GONE: Final = 0.5
"""Chance above which a chunk is taken for gone."""
_TINY: Final = 1e-300
_FIRST_SHARE: Final = 0.05
_STEPS: Final = 25
_SETTLED: Final = 0.003
_GAIN: Final = 10.0
"""Chunks are told as gone or new where it is e^10 times likelier: the largest gain without any was 9.8, of another
model."""
_GAIN_AGAINST_ALL: Final = 100.0
"""The same, where scores or ranks moved further, or as much came as went, as after another model."""
_SOME_GAIN: Final = 3.0
"""The same, where scores moved as they do where contents change, and nothing is gone."""
_TWICE: Final = 2
_MISSED_FIRST: Final = 0.08
_MISSED_FIFTH: Final = 0.45
"""Largest share of the first and fifth hits that answers miss by themselves while chunks are told as gone: refitted
statistics move the lower ranks, another model or analyzer the first ones too."""
_CHANCE_MISSES: Final = 1.5
"""So many first hits say nothing: of fewer than 18 a single one is more than that share."""
_MISSED_FIFTH_UNSCORED: Final = 0.2
_MOVED_BY_CONTENT: Final = 0.05
"""Scores of the same chunks move up to this in the median where others come or go and statistics are learned anew, and
by a tenth of the share of those: .038 at most beside that tenth, over three collections; .061 at least where the model
or the analyzer was another."""
_MOVED_BY_SHARE: Final = 0.1


def _is_moved_by_content(counts: Counts, one: Turnover) -> bool:
    return counts.moved <= _MOVED_BY_CONTENT + _MOVED_BY_SHARE * one.share


def _is_turnover(one: Turnover, counts: Counts, other_side: Callable[[], Turnover]) -> bool:
    """Whether chunks went, or came; another model takes away and brings alike.

    That the model is the same is vouched for by scores that hardly moved or, where there are none, by ranks.
    """
    if not one.fits or one.gain < _GAIN:
        return False
    if one.gain >= _GAIN_AGAINST_ALL:
        return True
    settled = _is_moved_by_content(counts, one) if counts.is_scored else one.missed[4] <= _MISSED_FIFTH_UNSCORED
    return settled and one.gain >= _TWICE * other_side().gain


def _alternating(counts: Counts) -> AnswerCause | None:
    """Find that answers which had changed in the run before are as they were, and others changed in their place."""
    known = np.array([earlier is not None for earlier in counts.answers.earlier])
    if not known.any():
        return None
    pairs = zip(counts.answers.earlier, counts.answers.before, strict=True)
    then = np.array([earlier is not None and earlier.ids != before.ids for earlier, before in pairs])
    came, went = int((then & counts.same).sum()), int((known & ~then & ~counts.same).sum())
    if min(came, went) < max(FEWEST, _FEWEST_OF_A_STATE * max(came, went)):
        return None
    return AnswerCause(
        kind=RunCauseKind.REPLICAS_DIFFER,
        affected=~counts.same,
        phrase=PHRASES[RunCauseKind.REPLICAS_DIFFER],
        evidence=f"{came:,} answers that had changed in the run before are as they were, to the last hit, and {went:,} "
        "others changed in their place",
    )


def _two_states(counts: Counts, evidence_of: Callable[[Counts, Bools, Bools], str | None]) -> AnswerCause | None:
    """Find that some answers are as before, to the last hit, and the others come from another index."""
    same, changed = counts.same & (counts.sizes_before > 0), ~counts.same
    if min(same.sum(), changed.sum()) < max(FEWEST, _FEWEST_OF_A_STATE * len(same)):
        return None
    evidence = evidence_of(counts, same, changed)
    if evidence is None:
        return None
    return AnswerCause(
        kind=RunCauseKind.REPLICAS_DIFFER,
        affected=changed,
        phrase=PHRASES[RunCauseKind.REPLICAS_DIFFER],
        evidence=evidence,
    )


def _gone_from_others(counts: Counts, same: Bools, changed: Bools) -> str | None:
    """Say that chunks are gone from the answers that changed, and there in those that did not; None = they are not."""
    known = len(counts.absent)
    part = fit_turnover(counts.before, changed, known)
    gone = part.is_sure
    in_changed = counts.before.alone & changed[counts.before.canary] & gone[counts.before.code]
    held = same[counts.before.canary] & gone[counts.before.code]
    if held.sum() < max(FEWEST, _FEWEST_HELD * in_changed.sum()) or not _is_turnover(
        part, counts, lambda: fit_turnover(counts.now, changed, known)
    ):
        return None
    where = _where(counts.before, counts.answers.before, gone, part.is_found)
    doubtful = _chunks(counts.before.code[same[counts.before.canary]], counts) & ~part.is_found & ~gone
    doubtful &= _chunks(counts.before.code[changed[counts.before.canary]], counts)
    chunks = _chunks_are(gone, at_least=bool(doubtful.any()))
    return (
        f"{chunks} gone from the {int(changed.sum()):,} answers that changed, "
        f"and stand {int(held.sum()):,} times in the {int(same.sum()):,} that are as before, to the last hit{where}"
    )


def _much_changed(counts: Counts, same: Bools, changed: Bools) -> str | None:
    """Say that the answers that changed did so much; None where it may be by chance, which changes most a bit.

    Hits that are lost at random, so many that a share of the answers keeps all, are few in the others (Poisson).
    """
    share = same.sum() / len(same)
    gone = (counts.sizes_before - counts.kept)[changed]
    by_chance = -np.log(share) / (1 - share)
    added = gone.sum() < _MOST * counts.sizes_before[changed].sum() and counts.in_order[changed].mean() > _IN_ORDER
    few = min(same.sum(), changed.sum()) < _FEWEST_HELD * len(same)
    if few or added or gone.mean() < _TWICE * by_chance or (gone <= 1).mean() > 1 - _MOST:
        return None
    return (
        f"{int(same.sum()):,} answers are as before, to the last hit, and the {int(changed.sum()):,} others lost "
        f"{gone.mean():.1f} hits each; by chance it would be {by_chance:.1f}"
    )


_FEWEST_OF_A_STATE: Final = 0.15
_FEWEST_HELD: Final = 0.25
"""Of a chunk that a replica lacks, as many hits are left as the others answer; a quarter of those that are lost."""


def _missing(counts: Counts) -> AnswerCause | None:
    gone = counts.lost.is_sure & counts.absent
    if not _is_turnover(counts.lost, counts, lambda: counts.came) or not gone.any():
        return None
    moved = bool(counts.in_order[~counts.same].mean() < _MOST)
    if not moved:
        gone = gone | _left_without_cause(counts)
    affected = _canaries(counts.before.canary[counts.before.alone & gone[counts.before.code]], counts)
    where = _where(counts.before, counts.answers.before, gone, counts.lost.is_found)
    at_least = bool((counts.absent & ~gone).any())
    return AnswerCause(
        kind=RunCauseKind.MISSING,
        affected=affected,
        phrase=f"{PHRASES[RunCauseKind.MISSING]}{where}",
        evidence=f"{_chunks_are(gone, at_least=at_least, of=affected)} in no answer any more, "
        f"{_about(counts.lost.share)} of all; what is left "
        f"{'moved, as it does where statistics are learned anew' if moved else 'kept its order'}",
        against=_unexplained(counts, affected),
    )


def _left_without_cause(counts: Counts) -> Bools:
    """(codes,): chunks in no answer any more, of which one had it that kept what was below, or got nothing above it.

    Too few answers had them for the fit to be sure; yet where what is left kept its order, nothing else explains it.
    """
    pushed = _canaries(counts.now.canary[counts.pushing], counts)
    unpushed = counts.before.alone & (counts.dropped | ~pushed[counts.before.canary])
    return counts.absent & _chunks(counts.before.code[unpushed], counts)


def _misses(counts: Counts) -> AnswerCause | None:
    """Find hits that are lost while all others keep their order and nothing new rises: here and there, or first ones.

    An approximate search passes over hits at any rank.
    """
    dropped, pushing = int(counts.dropped.sum()), int(counts.pushing.sum())
    changed = ~counts.same
    ordered = counts.in_order[changed].mean()
    if dropped < max(FEWEST, _MOST * (dropped + pushing)) or ordered < _IN_ORDER:
        return None
    missed = np.unique(counts.before.code[counts.dropped])
    found = int((~counts.absent[missed]).sum())
    if found < FEWEST or counts.lost.gain >= _SOME_GAIN:
        return None  # they may as well be gone from the index
    first = int((counts.before.rank[counts.dropped] == 0).sum())
    kind = RunCauseKind.LEFT_OUT if first > MAJORITY * dropped else RunCauseKind.SEARCH_MISSES
    firsts = f", {'all' if first == dropped else f'{first:,}'} of them first hits" if first else ""
    return AnswerCause(
        kind=kind,
        affected=changed,
        phrase=PHRASES[kind],
        evidence=f"{dropped:,} hits are gone from {int(changed.sum()):,} answers{firsts}; what ranked below them is "
        f"there and kept its order; an approximate search passes over hits so, a filter hides them, or they fell below "
        f"the last one; {found:,} of {counted(len(missed), 'chunk')} are still in other answers",
    )


def _copies_above(counts: Counts) -> AnswerCause | None:
    """Find that near copies of what was found, which no answer had before, push it down."""
    new = _new_above(counts)
    if new is None or (alike := _copied(counts, new)) < MAJORITY:
        return None
    affected = _canaries(counts.now.canary[new], counts)
    where = _where(counts.now, counts.answers.now, counts.unseen, ~counts.unseen)
    return AnswerCause(
        kind=RunCauseKind.NEAR_COPIES,
        affected=affected,
        phrase=f"{PHRASES[RunCauseKind.NEAR_COPIES]}{where}",
        evidence=f"{int(new.sum()):,} hits that no answer had before rank above known ones in {int(affected.sum()):,} "
        f"answers; {percent_text(alike)} of them are near copies of hits of before",
    )


def _new_chunks(counts: Counts) -> AnswerCause | None:
    """Find that other chunks which no answer had before do, in the first ranks too."""
    came = counts.came
    new = counts.pushing & came.is_sure[counts.now.code]
    learned = (
        came.fits
        and came.gain - max(counts.lost.gain, 0) >= _SOME_GAIN
        and counts.moved > 0
        and _is_moved_by_content(counts, came)
    )
    if not (_is_turnover(came, counts, lambda: counts.lost) or learned) or not new.any():
        return None
    affected = _canaries(counts.now.canary[new], counts)
    where = _where(counts.now, counts.answers.now, came.is_sure, came.is_found)
    return AnswerCause(
        kind=RunCauseKind.NEW_CHUNKS,
        affected=affected,
        phrase=f"{PHRASES[RunCauseKind.NEW_CHUNKS]}{where}",
        evidence=f"{counted(int(new.sum()), 'hit')} that no answer had before {'ranks' if new.sum() == 1 else 'rank'} "
        f"above known ones in {counted(int(affected.sum()), 'answer')}, {_about(came.share)} of all",
        against=_unexplained(counts, affected),
    )


def _new_above(counts: Counts) -> Bools | None:
    """Hits that no answer had before and that rank above known ones; None where most that rose are known."""
    new = counts.pushing & counts.unseen[counts.now.code]
    return new if new.sum() >= max(FEWEST, _MOSTLY_UNSEEN * counts.pushing.sum()) else None


def _canaries(of: Ints, counts: Counts) -> Bools:
    return np.bincount(of, minlength=len(counts.kept)) > 0


def _chunks(of: Ints, counts: Counts) -> Bools:
    return np.bincount(of, minlength=len(counts.absent)) > 0


_MOSTLY_UNSEEN: Final = 0.7
_MOST_NEW: Final = 60
"""New hits whose texts are compared."""


def _copied(counts: Counts, new: Bools) -> float:
    """Share of new hits whose text is mostly that of a hit of before, of the same canary; of some of them."""
    places = np.flatnonzero(new)
    places = places[:: -(-len(places) // _MOST_NEW)]
    judged = alike = 0
    for canary, rank in zip(counts.now.canary[places].tolist(), counts.now.rank[places].tolist(), strict=True):
        text = counts.answers.now[canary].texts[rank]
        olds = [one for one in counts.answers.before[canary].texts if one]
        if text and olds:
            judged += 1
            alike += any(containment(text, old) > LIKE for old in olds)
    return alike / judged if judged else 0.0


def _other_vectors(counts: Counts) -> AnswerCause | None:
    """Find that hardly an answer has anything in common with before."""
    both = (counts.sizes_before > 0) & (counts.sizes_now > 0)
    common = counts.kept[both].sum() / max(int(counts.sizes_before[both].sum()), 1)
    if (both & ~counts.same).sum() < max(FEWEST, MAJORITY * both.sum()) or common > _HARDLY:
        return None
    return AnswerCause(
        kind=RunCauseKind.OTHER_VECTORS,
        affected=both & ~counts.same,
        phrase=PHRASES[RunCauseKind.OTHER_VECTORS],
        evidence=f"{percent_text(common)} of the hits of before are still found, in {int(both.sum()):,} answers",
    )


def _reordered(counts: Counts) -> AnswerCause | None:
    """Find that answers changed everywhere, in what they have and in what order."""
    both = (counts.sizes_before > 0) & (counts.sizes_now > 0)
    changed = both & ~counts.same
    disturbed = changed & ((counts.in_order < 1) | _canaries(counts.now.canary[counts.pushing], counts))
    if disturbed.sum() < max(FEWEST, MAJORITY * both.sum()):
        return None
    common = counts.kept[both].sum() / counts.sizes_before[both].sum()
    if common > _MOST and counts.in_order[changed].mean() > _IN_ORDER:
        return None  # a few hits came and went
    return AnswerCause(
        kind=RunCauseKind.RANKING_CHANGED,
        affected=changed,
        phrase=PHRASES[RunCauseKind.RANKING_CHANGED],
        evidence=f"{int(changed.sum()):,} of {int(both.sum()):,} answers have another order or other hits; "
        f"{percent_text(common)} of the hits of before are still found",
    )


_HARDLY: Final = 0.15

_OF_WHOLE_ANSWERS: Final[Sequence[Callable[[Counts], AnswerCause | None]]] = (
    _alternating,
    partial(_two_states, evidence_of=_gone_from_others),  # what half of the answers still have is not missing
    _missing,
    partial(_two_states, evidence_of=_much_changed),
    _misses,
    _copies_above,
    _other_vectors,
    _new_chunks,
    _reordered,
)


def _chunks_are(some: Bools, *, at_least: bool, of: Bools | None = None) -> str:
    """Return the number of chunks as a subject with its verb: `at least 3 chunks that 6 answers had are`."""
    number = int(some.sum())
    had = f" that {counted(int(of.sum()), 'answer')} had" if of is not None else ""
    return f"{'at least ' if at_least else ''}{counted(number, 'chunk')}{had} {'is' if number == 1 else 'are'}"


def _about(share: float) -> str:
    text = percent_text(share)
    return text if text.startswith("under") else f"about {text}"


def _unexplained(counts: Counts, affected: Bools) -> str:
    others = int((~counts.same & ~affected).sum())
    return f"{counted(others, 'other answer')} changed without one of these chunks" if others else ""


def _where(hits: Hits, answers: Sequence[Ranking], chosen: Bools, others: Bools) -> str:
    """Say after a comma what chosen chunks have in common and others have not; empty where that is nothing."""
    place = np.full(len(chosen), -1)
    place[hits.code] = np.arange(len(hits.code))  # any of a chunk's hits will do

    def chunks(of: Bools) -> tuple[list[RankedChunk], int]:
        found = place[of & (place >= 0)]
        step = -(-len(found) // _MOST_NAMED) or 1
        pairs = zip(hits.canary[found[::step]].tolist(), hits.rank[found[::step]].tolist(), strict=True)
        return [RankedChunk(answers[canary], rank) for canary, rank in pairs], step

    (mine, own_step), (theirs, step) = chunks(chosen), chunks(others)
    named = name_chunks(mine, theirs, each=step / own_step)
    return f", {named}" if named else ""


_MOST_NAMED: Final = 200
"""Chunks that are looked at for what they have in common; more say the same."""
