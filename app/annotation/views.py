"""Views of annotation, as JSON on the wire. What an annotator gets holds no rank, score, retriever or stratum."""

from enum import StrEnum

from typing_extensions import TypedDict

from app.annotation.domain.agreement import ConsensusState
from app.base.values import TimeText
from app.diagnosis.views import FilePatch


class PooledRecallView(TypedDict):
    """Estimated share of what is relevant that a retriever finds in its first k, from the annotations of a task.

    `value` and its 95 % interval (`low`, `high`) are null where unknown: a sample without a grade.
    """

    retriever: str
    k: int
    value: float | None
    low: float | None
    high: float | None
    found: int
    relevant: float | None
    """Estimated number of relevant texts."""
    queries: int
    frame: str
    """What it is a share of."""
    rest_share: float | None
    """Share of `relevant` that texts which no retriever ranked stand for."""
    uncorrected: float | None
    """With every grade taken as right, over the queries without a dispute; null where `value` is that, or most of the
    queries have one."""
    assumes: str
    """What it takes for granted of the grades, or how it corrects them; empty where `value` is null."""
    task: str
    self_judged: bool
    """Whether it alone brought up what was judged, without random texts of a corpus: `value` is too high."""
    edited_since: bool
    """Whether the retriever was edited after the task asked it, so that it may find other texts now."""


class TaskState(StrEnum):
    """State of a task: nobody has asked for its pool, some canaries have items, all have."""

    CREATED = "created"
    POOLING = "pooling"
    POOLED = "pooled"


class StratumView(TypedDict):
    """A stratum below the pool, or the rest of a corpus; null = it is of the other kind."""

    to: int | None
    sample: int | None
    rest: int | None


class DrawnAnswersView(TypedDict):
    """Answers that people label: rated by this judge, one of each canary and window."""

    judge: str
    question: str
    count: int
    window_hours: int


class DrawnPairsView(TypedDict):
    """Pairs that people compare: the most different ones of this shadow."""

    shadow: str
    count: int


class PoolFailure(TypedDict):
    """A canary whose pool could not be made, and why."""

    canary: str
    reason: str


class TaskView(TypedDict):
    """A task, and how far its pool is."""

    slug: str
    suite: str
    keys: list[str]
    """Of its canaries; none = all of the suite."""
    retrievers: list[str]
    answers: DrawnAnswersView | None
    pairs: DrawnPairsView | None
    """Both null = chunks are graded."""
    pool: int
    strata: list[StratumView]
    corpus: str | None
    scale: str
    overlap: float
    checks: int
    seed: int
    created_at: TimeText
    created_by: str
    state: TaskState
    canaries: int
    """Canaries in the task; 0 until the pool is asked for."""
    pooled: int
    failed: int
    items: int
    """Planted ones too."""
    planted: int
    """Items with a known grade; 0 until the pool is made."""


class TaskDetail(TaskView):
    """The same with the canaries that could not be pooled."""

    failures: list[PoolFailure]
    planted_fewer: str | None
    """Why fewer items were planted than `checks`; null = they were not, or the pool is not made yet."""


class AnswerContext(TypedDict):
    """What an annotator sees beside a generated answer, without what the judge said of it."""

    question: str
    """To be answered with no (0) or yes (1)."""
    expected_answer: str | None
    contexts: list[str]
    """The chunks that the answer was made of."""


class PairContext(TypedDict):
    """Two answers to one query, without which of them is the candidate's: the texts of their first hits."""

    left: list[str]
    right: list[str]


class TurnView(TypedDict):
    """What somebody said before a query."""

    role: str
    content: str


class AskedView(TypedDict):
    """By what a query is to be read, as its canary has it."""

    vars: dict[str, str]
    """As whom, of what or in which language it is asked, such as a tenant; often empty."""
    history: list[TurnView]
    """The conversation before it, oldest first; often empty."""


class ItemView(AskedView):
    """What an annotator sees of an item: no document, which random negatives lack and retrievers name differently."""

    id: str
    query: str
    text: str
    grade: int | None
    """What this annotator said of it; null = nothing, or skipped."""
    answer: AnswerContext | None
    """What a generated answer, the text, is labelled by; null = the item is none."""
    pair: PairContext | None
    """What is compared: 0 = left is better, 1 = no difference, 2 = right; null = the item is no pair."""


class ProgressView(TypedDict):
    """What an annotator has done, and what is left for it."""

    annotator: str
    graded: int
    skipped: int
    left: int
    with_others: int
    """Of these, what others have in hand: one is handed it once they did not grade it within ten minutes."""
    seconds_left: float | None
    """At the annotator's median pace; null = no pace is known yet."""


class NextItem(TypedDict):
    """The next item of an annotator, null when nothing is left but what others have in hand, and the one after it."""

    item: ItemView | None
    following: ItemView | None
    progress: ProgressView


class CoefficientView(TypedDict):
    """A coefficient with its 95 % interval; null where undefined, or with too few items for an interval."""

    value: float | None
    low: float | None
    high: float | None


class _AgreementOfTwo(TypedDict):
    items: int
    raw: CoefficientView
    kappa: CoefficientView
    weighted_kappa: CoefficientView


class PairAgreementView(_AgreementOfTwo):
    """Agreement of two annotators: raw, Cohen's kappa on relevance, and of the grades with quadratic weights."""

    a: str
    b: str


class JudgeAgreementView(_AgreementOfTwo):
    """Agreement of a judge, a machine, with the consensus of people over the items that both graded."""

    judge: str


class AgreementView(TypedDict):
    """Agreement of the annotators of a task over the items with two grades or more; `alpha` is Krippendorff's."""

    items: int
    graded_again: int
    """Chunks with two grades or more that are in none of it: looked at again since one person alone called them
    relevant, they differ more often than the others."""
    annotators: list[str]
    raw: CoefficientView
    alpha: dict[str, CoefficientView]
    pairs: list[PairAgreementView]
    judges: list[JudgeAgreementView]
    """Judges are in nothing else: neither in alpha nor in the consensus."""


class AnnotatorView(TypedDict):
    """What one annotator has done."""

    annotator: str
    graded: int
    skipped: int
    pace_seconds: float | None
    planted_graded: int
    """Planted items that it graded."""
    planted_wrong: int
    """Those of them that it called relevant and are not, or the other way round."""


class PlantedView(TypedDict):
    """Planted items of a task, whose grade is known, and what people said of them."""

    items: int
    graded: int
    """Items with a grade."""
    grades: int
    """Grades of them, several of an item where several people grade it."""
    wrong: int
    """Grades that call relevant what is not, or the other way round."""


class BudgetView(TypedDict):
    """What is done of a task and what is left: items by state, annotations to make, hours at the median pace."""

    items: int
    """Without the planted ones."""
    states: dict[ConsensusState, int]
    annotations_left: int
    """Grades still needed: one for each open item, one of every annotator for each overlap item."""
    pace_seconds: float | None
    hours_left: float | None
    annotators: list[AnnotatorView]
    planted: PlantedView


class DisagreementView(AskedView):
    """A disputed item with everybody's grade."""

    id: str
    canary: str | None
    """Null = a pair, whose query is no canary's: it is one of users, and empty for keys that may only read."""
    query: str
    text: str
    """Of a pair both sides, or empty as the query."""
    document: str | None
    grades: dict[str, int]
    adjudicated: int | None


class UnnamedChunk(TypedDict):
    """A graded chunk that gets no judgment, since nothing names it: its ids, the beginning of its text, its grade."""

    ids: list[str]
    text: str
    grade: int


class AdoptedCanary(TypedDict):
    """A canary that gets judgments of a task: number of graded chunks by grade, of new and changed judgments.

    `kept` of the changed have the same grade, and only come from the task now, whatever brought them up before.
    `undecided` are chunks that nobody has graded or that are disputed; `unnamed` those that no judgment can name.
    """

    canary: str
    grades: dict[int, int]
    added: int
    changed: int
    kept: int
    undecided: int
    unnamed: list[UnnamedChunk]


class CorpusView(TypedDict):
    """A corpus with its number of distinct texts."""

    name: str
    texts: int
    updated_at: TimeText


class RecallView(TypedDict):
    """Pooled recall of the retrievers of a task, over the canaries whose chunks are all graded or skipped."""

    queries: int
    undecided: int
    """Canaries with open chunks."""
    chunks: int
    """Chunks of these queries."""
    skipped: int
    """Those of them that have no grade, as all who saw them skipped them: what they would add is not known."""
    estimates: list[PooledRecallView]
    to_grade_again: int
    """Texts that no retriever ranked and one person alone called relevant, where these texts carry more than a third of
    the estimate, corrected or with every grade taken as right: one wrong grade among them weighs much."""


class GradedAgain(TypedDict):
    """Number of items that everybody is to grade, which one person graded before."""

    items: int


class ImportedAnnotations(TypedDict):
    """Number of annotations that an import stored."""

    annotations: int


class LeftOutCanary(TypedDict):
    """A canary that gets none, and why."""

    canary: str
    reason: str


class AdoptionDoubt(TypedDict):
    """Why the grades of a task are doubtful as judgments; its numbers are null where nothing tells them."""

    wrong: float | None
    """Estimated share of the chunks graded relevant by agreement that are not relevant, with its 95 % interval."""
    low: float | None
    high: float | None
    kappa: float | None
    """The least agreement on relevance of two annotators with ten chunks or more in common."""
    graded_once: int
    """Chunks of one grade alone, of `graded`."""
    graded: int
    sentence: str
    """What is doubtful, and what to do, without a full stop."""


class AdoptionView(TypedDict):
    """What adopting a task did: canaries of the API that were changed, patches for those of files."""

    adopted: list[AdoptedCanary]
    to_commit: list[AdoptedCanary]
    patches: list[FilePatch]
    changes: str
    """Diffs of the changed canaries as YAML, to be read: at most 200 of them, also those of the API."""
    left_out: list[LeftOutCanary]
    doubt: AdoptionDoubt | None
    """Null where more than a tenth of what would be expected is not estimated to be wrong, and people agree enough.

    Where no chunk was graded twice and none was planted, it says that nothing checks the grades.
    """
    checks: list[str]
    """Checks of the suite, whose history can be re-scored by the new judgments."""
