"""Comparison of two runs: paired canaries, which differences are claimed, and the verdict.

Sentence, table and exit code read the same outcome. Five measures tested at .05 each would find a difference between
equals in far more than one comparison of twenty, so their p values are corrected together: Holm, "A simple sequentially
rejective multiple test procedure" (Scandinavian Journal of Statistics 1979).
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from app.base.statistics import CONFIDENCE
from app.base.values import COVERAGE, ROUNDING, Canary, Value, Verdict, replace
from app.catalog.domain import Use, is_top_heavy
from app.comparison.domain.estimates import FEWEST_PAIRS, Estimate, Floats, estimate_all, is_significant


class Exclusion(StrEnum):
    """Why a canary is not compared, in the order of asking."""

    ONLY_IN_A = "only_in_a"
    ONLY_IN_B = "only_in_b"
    OTHER_QUERY = "other_query"
    OTHER_JUDGMENTS = "other_judgments"
    """It expects something else: its scores would differ though nothing was retrieved differently."""
    NOTHING_EXPECTED = "nothing_expected"
    """Its measures are undefined, as those of a negative canary."""
    NOT_MEASURED_IN_A = "not_measured_in_a"
    NOT_MEASURED_IN_B = "not_measured_in_b"
    NOT_MEASURED = "not_measured"
    """Neither run measured it."""


class Members(Value):
    """The canaries of one run, and by the same positions whether their probes measured."""

    canaries: Sequence[Canary]
    measured: Sequence[bool]


class Pairing(Value):
    """The canaries that are compared, by position in both runs, and the keys of the others by reason."""

    places: tuple[tuple[int, int], ...]
    """(position in A, position in B), in the order of A."""
    excluded: Mapping[Exclusion, tuple[str, ...]]
    """Only reasons that some canary has."""

    @property
    def total(self) -> int:
        """Number of different keys in the two runs."""
        return len(self.places) + sum(map(len, self.excluded.values()))


def pair_canaries(a: Members, b: Members) -> Pairing:
    """Pair the canaries that both runs measured: equal key, equal query, equal judgments, and something expected."""
    places: list[tuple[int, int]] = []
    excluded: dict[Exclusion, list[str]] = {}
    others = {canary.key: place for place, canary in enumerate(b.canaries)}
    for place, canary in enumerate(a.canaries):
        other = others.pop(canary.key, None)
        why = Exclusion.ONLY_IN_A if other is None else _exclusion(a, place, b, other)
        if other is not None and why is None:
            places.append((place, other))
        elif why is not None:
            excluded.setdefault(why, []).append(canary.key)
    if others:
        excluded[Exclusion.ONLY_IN_B] = list(others)
    ordered = {why: tuple(excluded[why]) for why in Exclusion if why in excluded}
    return Pairing(places=tuple(places), excluded=ordered)


def expects_the_same(one: Canary, other: Canary) -> bool:
    """Whether two canaries have the same judgments, in whatever order, and are both negative or both not."""
    if one.negative != other.negative:
        return False
    return one.judgments == other.judgments or Counter(one.judgments) == Counter(other.judgments)


def _exclusion(a: Members, place: int, b: Members, other: int) -> Exclusion | None:
    """Return why a canary that both runs have is not compared; None = it is."""
    one, two = a.canaries[place], b.canaries[other]
    if one.asked != two.asked:
        return Exclusion.OTHER_QUERY
    if not expects_the_same(one, two):
        return Exclusion.OTHER_JUDGMENTS
    if not one.expects:
        return Exclusion.NOTHING_EXPECTED
    return _UNMEASURED.get((a.measured[place], b.measured[other]))


_UNMEASURED: Final[Mapping[tuple[bool, bool], Exclusion]] = {
    (False, True): Exclusion.NOT_MEASURED_IN_A,
    (True, False): Exclusion.NOT_MEASURED_IN_B,
    (False, False): Exclusion.NOT_MEASURED,
}


_NDCG_DEPTH: Final = 10
"""Depth of NDCG where both runs are that deep."""


class Depth(Value):
    """Number of hits that count in both runs."""

    k: int
    """For measures of a check's own k: the smaller of both."""
    m: int
    """For all others: the smaller number of hits that was asked for."""
    equal: bool
    """Whether both asked for as many, so that measures of whole rankings may be compared as they are."""

    @property
    def ndcg(self) -> int:
        """Depth of NDCG."""
        return min(_NDCG_DEPTH, self.m)


def common_depth(*, k: tuple[int, int], fetch_k: tuple[int, int]) -> Depth:
    """Return the depth that two runs have in common, given the k and the `fetch_k` of each."""
    m = min(fetch_k)
    return Depth(k=min(*k, m), m=m, equal=fetch_k[0] == fetch_k[1])


def primary_measures(depth: Depth, use: Use = Use.GENERAL) -> tuple[str, ...]:
    """Return the measures that a verdict is about, by the names of their means: at most five, and no two the same.

    That of the `use` of A's check comes first: sentences begin with it, and canaries are ordered by it.
    """
    k = depth.k
    ndcg, recall, precision, rank = f"NDCG@{depth.ndcg}", f"R@{k}", f"P@{k}", f"MRR@{depth.m}"
    if use is Use.GRADED:
        ndcg = f"NDCG@{k}"
    first = {Use.COMPLETENESS: recall, Use.PRECISION: precision, Use.SINGLE_ANSWER: rank}.get(use, ndcg)
    return tuple(dict.fromkeys([first, ndcg, recall, precision, rank, COVERAGE]))


class Change(StrEnum):
    """Change of a canary between two runs."""

    DEGRADED = "degraded"
    WORSE = "worse"
    BETTER = "better"
    RERANKED = "reranked"
    """Its measures are the same, its ranking is not."""
    SAME = "same"
    HEALED = "healed"
    UNKNOWN = "unknown"
    """Either run did not measure it."""
    REWRITTEN = "rewritten"
    """Its query changed: there is nothing to compare."""
    REJUDGED = "rejudged"
    """Its judgments changed: its verdicts and scores are of different things."""
    ADDED = "added"
    REMOVED = "removed"


_ORDER: Final = {change: place for place, change in enumerate(Change)} | dict.fromkeys(
    (Change.WORSE, Change.BETTER, Change.RERANKED, Change.SAME), 1
)
"""Order of changes, the worst first; ties by the difference."""


class RunSide(Value):
    """Results of one run, by position of its canary list."""

    keys: Sequence[str]
    queries: Sequence[str]
    verdicts: Sequence[Verdict]
    rankings: Sequence[int | None]
    """Identity of a ranking; None = not measured."""
    scores: Floats
    """Of the measure pairs are ordered by; NaN = not compared."""


class Pair(Value):
    """One canary in both runs: its positions, None where a run did not have it, and its change."""

    key: str
    before: int | None
    now: int | None
    change: Change
    difference: float | None
    """Of the measure pairs are ordered by, now less before."""


def pair_up(before: RunSide, now: RunSide, *, rejudged: Collection[str] = ()) -> list[Pair]:
    """Pair the canaries of two runs by key, the worst first; `rejudged` has the keys that expect something else."""
    then = {key: place for place, key in enumerate(before.keys)}
    changed = frozenset(rejudged)
    pairs: list[Pair] = []
    for place, key in enumerate(now.keys):
        old = then.pop(key, None)
        change, difference = (Change.ADDED, None) if old is None else _change(before, old, now, place)
        if key in changed:
            change, difference = Change.REJUDGED, None
        pairs.append(Pair(key=key, before=old, now=place, change=change, difference=difference))
    pairs += [
        Pair(key=key, before=place, now=None, change=Change.REMOVED, difference=None) for key, place in then.items()
    ]
    return sorted(pairs, key=lambda pair: (_ORDER[pair.change], 0.0 if pair.difference is None else pair.difference))


def _change(before: RunSide, old: int, now: RunSide, new: int) -> tuple[Change, float | None]:
    if before.queries[old] != now.queries[new]:
        return Change.REWRITTEN, None
    was, is_ = before.verdicts[old], now.verdicts[new]
    if Verdict.UNKNOWN in {was, is_}:
        return Change.UNKNOWN, None
    gain = float(now.scores[new] - before.scores[old])
    difference = None if math.isnan(gain) else gain
    if was is not is_:
        return (Change.DEGRADED if is_ is Verdict.DEGRADED else Change.HEALED), difference
    if difference is not None and abs(difference) > ROUNDING:
        return (Change.WORSE if difference < 0 else Change.BETTER), difference
    return (Change.SAME if before.rankings[old] == now.rankings[new] else Change.RERANKED), difference


RECALL_LOSS: Final = -0.02
"""A recall that may have fallen by more than this is told beside the gain of a top-heavy measure."""


class Side(StrEnum):
    """One of the two things compared."""

    A = "a"
    B = "b"


class Claim(StrEnum):
    """What is said of the difference of a primary measure."""

    CLAIMED = "claimed"
    NOT_AFTER_CORRECTION = "not_claimed_after_correction"
    """Its interval does not include zero, but so it would by chance for one of several measures too often."""
    SELF_JUDGED = "self_judged"
    """It would be claimed, but is in favour of a side that brought up much of what is expected: it may come of that."""
    NOT_SHOWN = "not_shown"
    TOO_FEW = "too_few"


MISSING_SHARE: Final = 0.1
"""Share of canaries that one run alone measured above which the others do not stand for them, as of failed probes."""


def missing_canaries(excluded: Mapping[Exclusion, int], compared: int) -> dict[Side, int]:
    """Return by side how many canaries it alone did not answer, where those that are compared do not stand for them.

    `excluded`: numbers of canaries that are not compared.
    """
    reasons = {Side.A: Exclusion.NOT_MEASURED_IN_A, Side.B: Exclusion.NOT_MEASURED_IN_B}
    found = {side: excluded.get(reason, 0) for side, reason in reasons.items()}
    return {side: count for side, count in found.items() if compared and count > MISSING_SHARE * (compared + count)}


class CautionKind(StrEnum):
    """What a caution beside a verdict is about."""

    RECALL_LOSS = "recall_loss"
    """A top-heavy measure gained, and recall may have fallen."""
    JUDGMENTS = "judgments"
    """One retriever alone brought up much of what is expected."""
    VIOLATIONS = "violations"
    """Canaries got in B what they rule out, and not in A."""
    ANSWERS = "answers"
    """Much of a side's generated answers has no rating, so a difference stands for the rated ones alone."""
    LABELS = "labels"
    """Labels that correct what is said of answers are of something else than the judge or the answers by now."""
    OUTDATED = "outdated"
    """The newest run of a side is of something else than what is asked by now."""
    EDITED = "edited"
    """Some canaries of the suite were edited, added or archived since both runs."""
    ALERT = "alert"
    """An alert of the check of a side is open."""
    ARCHIVED = "archived"
    """The check of a side is archived: no newer run comes, and no alert tells of a fault."""


class ViolationKind(StrEnum):
    """What canaries rule out."""

    FORBIDDEN = "forbidden"
    """A forbidden chunk, or any hit where none may be returned."""
    ANSWERED = "answered"
    """A hit of high relevance for a negative canary."""


class ComparisonVerdict(StrEnum):
    """What a comparison says of B against A."""

    BETTER = "better"
    WORSE = "worse"
    TRADE = "trade"
    """One primary measure is claimed up and another one down."""
    NO_DIFFERENCE_SHOWN = "no_difference_shown"
    TOO_FEW = "too_few"


class Decision(Value):
    """A primary measure: its estimate, and what is said of it."""

    estimate: Estimate
    corrected_p: float | None
    """Corrected by Holm over its family; None with too few pairs."""
    claim: Claim

    @property
    def winner(self) -> Side | None:
        """The side with the higher mean where that is claimed, as every primary measure grows with quality."""
        return _higher(self.estimate) if self.claim is Claim.CLAIMED else None


class RecallCaution(Value):
    """What recall may have lost beside the claimed gain of a top-heavy measure."""

    measure: str
    """The one that gained."""
    winner: Side
    recall: str
    loss: float
    """The largest loss of recall that the interval allows, above 0."""
    claimed: float | None = None
    """The loss itself where it is claimed, above 0."""


class BroughtUp(Value):
    """A retriever that alone brought up much of what is expected."""

    retriever: str
    side: Side | None = None
    """None = neither side is this retriever."""
    edited_since: bool = False
    """Whether it was edited since: whom its judgments favour by now is not known."""
    pooled: bool = False
    """Whether it was pooled with others, and the other side is none of them."""


class JudgmentsCaution(Value):
    """A retriever that alone brought up much of what is expected, where two others, or it and another, are compared."""

    favours: Side | None
    """Its side; None = neither side is this retriever, or it was edited since."""
    retriever: str
    not_claimed: tuple[str, ...]
    """Primary measures that are higher on its side beyond chance; on either side where it was edited."""
    edited: Side | None = None
    """Its side, where it was edited since."""
    pooled: bool = False
    """Whether it was pooled with others, and the other side is none of them."""


class Violations(Value):
    """Canaries that rule out the same in both runs, and those that got it."""

    kind: ViolationKind
    canaries: int
    a: int
    """Number of canaries that got it in A."""
    b: int
    only_a: tuple[str, ...]
    """Keys of those that got it in A alone."""
    only_b: tuple[str, ...]
    corrected_p: float | None = None
    """Corrected by Holm with the primary measures; None where no p value could be small enough."""

    @property
    def p(self) -> float:
        """P value of the sign test: which run a canary got it in is a coin where the two do not differ."""
        count, least = len(self.only_a) + len(self.only_b), min(len(self.only_a), len(self.only_b))
        tail = sum(math.comb(count, number) for number in range(least + 1))
        return min(1.0, 2.0 * tail * 0.5**count)

    @property
    def is_tested(self) -> bool:
        """Whether so many differ that the smallest p value of as many is significant; else it corrects no other."""
        return is_significant(2 * 0.5 ** (len(self.only_a) + len(self.only_b)), CONFIDENCE)

    @property
    def winner(self) -> Side | None:
        """The side that gets less of it.

        More forbidden chunks in B are no matter of chance: one leak is a leak, and the question is whether B may take
        the place of A. All else is claimed by the test.
        """
        if self.kind is ViolationKind.FORBIDDEN and self.b > self.a:
            return Side.A
        if self.corrected_p is None or self.a == self.b or not is_significant(self.corrected_p, CONFIDENCE):
            return None
        return Side.A if self.b > self.a else Side.B


def count_violations(
    kind: ViolationKind, keys: Sequence[str], a: Sequence[bool], b: Sequence[bool]
) -> Violations | None:
    """Count the canaries that got what they rule out, given for each key whether it did; None without a canary."""
    if not keys:
        return None
    sides = list(zip(keys, a, b, strict=True))
    return Violations(
        kind=kind,
        canaries=len(keys),
        a=sum(a),
        b=sum(b),
        only_a=tuple(key for key, old, new in sides if old and not new),
        only_b=tuple(key for key, old, new in sides if new and not old),
    )


class Decided(Value):
    """The decisions about the primary measures, in their order, and what they amount to."""

    decisions: tuple[Decision, ...]
    violations: tuple[Violations, ...] = ()
    """What canaries rule out, whether or not they expect something."""

    @property
    def pairs(self) -> int:
        """Number of canaries that are compared."""
        return max((one.estimate.pairs for one in self.decisions), default=0)

    @property
    def verdict(self) -> ComparisonVerdict:
        """Verdict over these canaries."""
        found = [*(one.winner for one in self.decisions), *(one.winner for one in self.violations)]
        winners = frozenset(winner for winner in found if winner is not None)
        if not winners and max(self.pairs, *(one.canaries for one in self.violations), 0) < FEWEST_PAIRS:
            return ComparisonVerdict.TOO_FEW
        return _VERDICTS[winners]

    @property
    def winner(self) -> Side | None:
        """The better side; None where none is shown, or each is better in another measure."""
        return _WINNERS.get(self.verdict)

    def cautions(self, depth: Depth) -> tuple[RecallCaution, ...]:
        """Return what recall at k may have lost, for each claimed gain of a top-heavy measure."""
        name = f"R@{depth.k}"
        decision = next((one for one in self.decisions if one.estimate.measure == name), None)
        if decision is None or decision.estimate.lower is None or decision.estimate.upper is None:
            return ()
        least = {Side.B: decision.estimate.lower, Side.A: -decision.estimate.upper}
        return tuple(
            RecallCaution(
                measure=one.estimate.measure,
                winner=winner,
                recall=name,
                loss=-least[winner],
                # What the winner is claimed to lose by recall.
                claimed=None if decision.winner in {None, winner} else abs(decision.estimate.difference or 0.0),
            )
            for one in self.decisions
            if (winner := one.winner) is not None
            and is_top_heavy(one.estimate.measure, depth.k)
            and least[winner] < RECALL_LOSS
        )


class CategoryOutcome(Decided):
    """The primary measures of one category, which decide nothing about the whole."""

    category: str


class ComparisonOutcome(Decided):
    """Everything that is said of two runs."""

    categories: tuple[CategoryOutcome, ...]
    exploratory: tuple[Estimate, ...]
    """Of all other measures; nothing is claimed of them."""
    judgments: tuple[JudgmentsCaution, ...] = ()
    self_judged: bool = False
    """Whether recall of a side is self-judged, which sentences say of it."""

    @property
    def claimed(self) -> tuple[Decision, ...]:
        """Decisions that claim a difference."""
        return tuple(one for one in self.decisions if one.claim is Claim.CLAIMED)

    @property
    def tests(self) -> int:
        """Number of tests that the p values of the primary measures are corrected for."""
        measures = {one.estimate.pattern for one in self.decisions if one.estimate.p is not None}
        return len(measures) + sum(one.is_tested for one in self.violations)


def compare(
    a: Mapping[str, Floats],
    b: Mapping[str, Floats],
    *,
    primaries: Sequence[str],
    categories: Sequence[str],
    brought_up: Collection[BroughtUp] = (),
    self_judged: bool = False,
    violations: Sequence[Violations] = (),
) -> ComparisonOutcome:
    """Compare two runs by columns of scores, a row for each pair of canaries; NaN = undefined.

    `categories` has that of each row. Measures beside the primary ones are exploratory. `brought_up` has the
    retrievers that alone, or in a pool without the other side, brought up much of what is expected, with their sides.
    Nothing is claimed in favour of such a side; what is claimed against it stands all the more. Where it was edited
    since, nothing is claimed at all: it may be like what it was, or may not find what that found. `self_judged`:
    whether recall of a side is. `violations` are of all canaries that rule something out, and are tested with the
    primary measures.
    """
    favoured = {one.side for one in brought_up if one.side is not None}
    if any(one.side is not None and one.edited_since for one in brought_up):
        favoured = set(Side)
    whole = estimate_all([*primaries, *(name for name in a if name not in primaries)], a, b)
    rows_of: dict[str, list[int]] = {}
    for row, category in enumerate(categories):
        rows_of.setdefault(category, []).append(row)
    parts = {
        category: estimate_all(
            primaries,
            {name: a[name][rows] for name in primaries if name in a},
            {name: b[name][rows] for name in primaries if name in b},
        )
        for category, rows in sorted(rows_of.items())
    }
    primary = [whole[name] for name in primaries if name in whole]
    tested = [one for one in violations if one.is_tested]
    [decisions] = decide_family([primary], favoured, beside=[one.p for one in tested])
    measured = {one.pattern: one.p for one in primary if one.p is not None}
    corrected = holm([*measured.values(), *(one.p for one in tested)])[len(measured) :]
    decided = {one.kind: replace(one, corrected_p=p) for one, p in zip(tested, corrected, strict=True)}
    inner = decide_family([list(part.values()) for part in parts.values()], favoured)
    return ComparisonOutcome(
        decisions=decisions,
        violations=tuple(decided.get(one.kind, one) for one in violations),
        categories=tuple(
            CategoryOutcome(category=category, decisions=found) for category, found in zip(parts, inner, strict=True)
        ),
        exploratory=tuple(one for name, one in whole.items() if name not in primaries),
        judgments=tuple(
            JudgmentsCaution(
                favours=None if judge.edited_since else judge.side,
                retriever=judge.retriever,
                not_claimed=tuple(
                    one.estimate.measure
                    for one in decisions
                    if one.claim is Claim.SELF_JUDGED
                    and judge.side is not None
                    and (judge.edited_since or _higher(one.estimate) is judge.side)
                ),
                edited=judge.side if judge.edited_since else None,
                pooled=judge.pooled,
            )
            for judge in brought_up
        ),
        self_judged=self_judged,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p values of a family of tests: each may then be held against the level of the whole family."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def decide_family(
    family: Sequence[Sequence[Estimate]], self_judged: Collection[Side] = (), *, beside: Sequence[float] = ()
) -> list[tuple[Decision, ...]]:
    """Decide a family of estimates, given by groups of canaries, each at the confidence of its interval.

    Of two runs that do not differ at all, in at most 1 - confidence of comparisons any difference is claimed.
    Estimates with too few pairs are not tested and correct no other. Measures of a group that differ in proportion on
    every pair, as R@5 and P@5 where each canary expects one chunk, are one test and count once: exchanging scores keeps
    them so, and the p values hold just as well given which measures are one. Nothing is claimed in favour of a side
    that is `self_judged`. `beside` are the p values of other tests of the family.
    """
    tests = {(group, one.pattern): one.p for group, part in enumerate(family) for one in part if one.p is not None}
    corrected = dict(zip(tests, holm([*tests.values(), *beside])[: len(tests)], strict=True))
    return [
        tuple(_decision(one, corrected.get((group, one.pattern)), self_judged) for one in part)
        for group, part in enumerate(family)
    ]


def _decision(one: Estimate, corrected_p: float | None, self_judged: Collection[Side]) -> Decision:
    if corrected_p is None:
        claim = Claim.TOO_FEW
    elif not one.excludes_zero:
        claim = Claim.NOT_SHOWN
    elif not is_significant(corrected_p, one.confidence):
        claim = Claim.NOT_AFTER_CORRECTION
    else:
        claim = Claim.SELF_JUDGED if _higher(one) in self_judged else Claim.CLAIMED
    return Decision(estimate=one, corrected_p=corrected_p, claim=claim)


def _higher(one: Estimate) -> Side | None:
    """Return the side with the higher mean; None where there is no difference."""
    if not one.difference:
        return None
    return Side.B if one.difference > 0 else Side.A


_VERDICTS: Final[Mapping[frozenset[Side], ComparisonVerdict]] = {
    frozenset(): ComparisonVerdict.NO_DIFFERENCE_SHOWN,
    frozenset({Side.B}): ComparisonVerdict.BETTER,
    frozenset({Side.A}): ComparisonVerdict.WORSE,
    frozenset({Side.A, Side.B}): ComparisonVerdict.TRADE,
}
_WINNERS: Final = {ComparisonVerdict.BETTER: Side.B, ComparisonVerdict.WORSE: Side.A}
