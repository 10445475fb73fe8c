"""Views of comparisons, as JSON on the wire: of two sides as A and B, and of two runs as before and now."""

from typing_extensions import TypedDict

from app.base.values import Category, Outcome, Reason, TimeText, Verdict
from app.catalog.domain import PooledNote
from app.comparison.domain.outcomes import CautionKind, Change, Claim, ComparisonVerdict, Exclusion, Side, ViolationKind


class ComparedMeasure(TypedDict):
    """A measure over the compared canaries; `difference` is B less A, or now less before."""

    measure: str
    canaries: int
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    """Of the 95 % interval; null below 10 canaries, and where all differ by the same."""
    high: float | None
    p: float | None
    """Of the paired randomisation test; null below 10 canaries."""
    corrected_p: float | None
    """Corrected over the primary measures; null where the measure is not one of them."""
    claim: Claim | None
    """Null where the measure is not primary: nothing is claimed of it."""
    winner: Side | None
    """Null where no difference is claimed."""


class ComparisonCaution(TypedDict):
    """What to mind: recall that may be lost, judgments of one retriever, what canaries rule out, unrated answers.

    Of what is named by check or retriever also what happened since its newest run: edits, and alerts that are open.
    """

    kind: CautionKind
    sentence: str
    measure: str | None
    """The top-heavy one that gained; null but of a loss of recall, as the next three."""
    winner: Side | None
    """The side that gains."""
    recall: str | None
    loss: float | None
    """The largest loss of recall that the interval allows."""
    favours: Side | None
    """The self-judged side, which every measure favours against the other one; null where neither side is, or it was
    edited since, so that whom they favour is not known."""
    retriever: str | None
    """It alone, or in a pool without the other side, brought up much of what is expected; null but of judgments."""
    not_claimed: list[str]
    """Primary measures that are higher on the self-judged side beyond chance; on either side where it was edited."""
    alert_id: str | None
    """Null but of an open alert."""


class ComparedCategory(TypedDict):
    """The primary measures of a category, which decide nothing about the whole."""

    category: Category
    canaries: int
    verdict: ComparisonVerdict
    winner: Side | None
    measures: list[ComparedMeasure]
    cautions: list[ComparisonCaution]
    """What recall may have lost beside claimed gains of top-heavy measures."""


class ExcludedCanaries(TypedDict):
    """Canaries that are not compared, and why; the first 20 keys."""

    reason: Exclusion
    canaries: int
    keys: list[str]
    sentence: str


class ComparedViolations(TypedDict):
    """Canaries that rule out the same in both runs, forbidden chunks or any answer, and those that got it."""

    kind: ViolationKind
    canaries: int
    a: int
    """Number of canaries that got it in A."""
    b: int
    only_a: list[str]
    """The first 20 keys of those that got it in A alone."""
    only_b: list[str]
    p: float
    """Of the sign test."""
    corrected_p: float | None
    """Corrected with the primary measures; null where so few differ that it could not be small enough."""
    winner: Side | None
    """The side that gets less: by the test, or A wherever B returns more forbidden chunks."""
    sentence: str


class ComparisonDecision(TypedDict):
    """What is decided about two runs."""

    verdict: ComparisonVerdict
    sentence: str
    cautions: list[ComparisonCaution]
    canaries: int
    """Number of compared canaries."""
    excluded: list[ExcludedCanaries]
    k: int
    """The smaller k of both, to which recall, precision and coverage are compared."""
    depth: int
    """The smaller number of hits that were asked for, to which all other measures are compared."""
    primary: list[ComparedMeasure]
    exploratory: list[ComparedMeasure]
    violations: list[ComparedViolations]
    """Of canaries that rule out some answers, whether or not they expect one."""
    by_category: list[ComparedCategory]


class RunOutline(TypedDict):
    """One of the two runs, with its versions."""

    id: str
    check: str
    suite: str
    retriever: str
    finished_at: TimeText | None
    index_version: str | None
    verdict: Verdict | None
    suite_hash: str | None
    config_hash: str | None
    measures_version: str | None
    self_judged: bool
    """Whether more than a fifth of what is expected was brought up by its retriever itself: R@k is too high."""
    judged_before_edit: bool
    """Whether that retriever was edited after it had brought that up: R@k may be too high or too low by now."""
    pooled_recall: list[PooledNote]
    """Pooled recall of its retriever over its suite, by k."""


class Sides(TypedDict):
    """A number in both runs; null where a run has none."""

    before: float | None
    now: float | None
    difference: float | None


class PairedSides(Sides):
    """A measure over the compared canaries: the difference with its interval and p value."""

    canaries: int
    low: float | None
    high: float | None
    confidence: float | None
    p: float | None
    """P value of the difference."""


class MeasureDifference(Sides):
    """A measure of the runs, and the same over pairs of canaries."""

    paired: PairedSides | None


class CategoryDifference(TypedDict):
    """A category in both runs."""

    health_score: Sides
    coverage: Sides


class SideResult(TypedDict):
    """A canary in one run."""

    verdict: Verdict
    outcome: Outcome
    reasons: list[Reason]
    rank: int | None
    """Of the first expected chunk."""
    top_score: float | None
    measures: dict[str, float | None]


class CanaryDifference(TypedDict):
    """A canary in both runs; null where a run did not ask it."""

    key: str
    query: str
    category: Category
    tags: list[str]
    change: Change
    difference: float | None
    """Of the measure canaries are ordered by."""
    rbo: float | None
    """Rank-biased overlap of the two rankings, from 0 to 1."""
    before: SideResult | None
    now: SideResult | None


class ComparedRunOutline(RunOutline):
    """One of two compared runs, with how it is judged and the reference it was asked for by."""

    reference: str
    """`run:ID`, `check:SLUG` or `retriever:SLUG`, as asked."""
    k: int
    fetch_k: int


class ComparedCanary(TypedDict):
    """A compared canary, by the measure canaries are ordered by."""

    key: str
    query: str
    category: Category
    tags: list[str]
    winner: Side | None
    """Null where the scores are equal."""
    a: float | None
    b: float | None
    difference: float | None
    rank_a: int | None
    """Of the first expected chunk; null = not found."""
    rank_b: int | None


class CanaryWins(TypedDict):
    """Number of canaries that score higher in A, higher in B, and the same."""

    a: int
    b: int
    ties: int


class JudgedSide(TypedDict):
    """A measure of answers in one run: what its judge says, and what people would say where their labels tell."""

    judge: float | None
    """The judge's own mean: of shares, of all measures but `faithful`."""
    judge_rate: float | None
    """Share of answers that the judge itself says yes of, a share of it when it is 1; beside `corrected` alone."""
    model: str | None
    """Of the judge as it rated the run; null where an earlier release did not keep it."""
    confirmed: bool
    """Whether people confirmed this measure of the judge with that model; else it is marked as uncalibrated."""
    corrected: float | None
    """The share of answers that people would say yes of; null without enough labels of the check."""
    low: float | None
    high: float | None
    labels: int
    labelled: str | None
    """Of what else these labels are than of the judge and its answers, in words; null where they are of these."""
    answers: int
    """Number of canaries whose answers are rated in both runs: those that its numbers are of."""
    asked: int
    """Number of canaries whose answers both runs watch, and that ask the same."""
    unrated: int
    """Answers to these that have no rating: the judge said nothing of them, or they did not come."""


class ComparedAnswers(TypedDict):
    """A measure of generated answers in both runs."""

    measure: str
    a: JudgedSide
    b: JudgedSide
    difference: float | None
    """B less A, of the corrected rates where both have one, else of what the judge says, without an interval.

    Null where two judges or two models of a judge say it.
    """
    low: float | None
    """Of the 95 % interval; null too where more than a tenth of the answers of a side have no rating."""
    high: float | None


class ComparisonView(ComparisonDecision):
    """Two runs or checks compared, the largest losses of B first."""

    a: ComparedRunOutline
    b: ComparedRunOutline
    differences: list[str]
    """Differences of configuration and suite, in sentences."""
    ordered_by: str
    wins: CanaryWins
    answers: list[ComparedAnswers]
    """Measures that both judges were asked for; empty where a run has no judged answers."""
    items: list[ComparedCanary]


class ComparisonPage(ComparisonView):
    """The same with the place of the next page."""

    next: str | None


class RunDiff(TypedDict):
    """Comparison of two runs, the worst canaries first."""

    before: RunOutline
    now: RunOutline
    comparable: bool
    differences: list[str]
    """Differences of configuration and suite, in sentences."""
    changes: dict[Change, int]
    """Number of canaries by change."""
    decision: ComparisonDecision
    """A is the run before, B the run now."""
    measures: dict[str, MeasureDifference]
    categories: dict[str, CategoryDifference]
    ordered_by: str
    items: list[CanaryDifference]


class RunDiffPage(RunDiff):
    """The same with the place of the next page."""

    next: str | None
