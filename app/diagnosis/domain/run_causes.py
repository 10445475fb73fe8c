"""The one cause that a whole run shares, and which of several explains most of it.

`find_run_cause` lets causes compete: what shape the changed answers have (`answer_causes`), whether their chunks are
there under other ids, whether their scores moved; `comparison_basis` says with which run it is compared, and
`prevailing_cause` weighs the result against embedders and texts. Causes of single canaries are in `canary_causes`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache, partial
from operator import gt
from statistics import median
from typing import Any, cast

from app.alerts.domain.views import RunCauseView
from app.base.texts import counted, percent_text
from app.base.values import Canary, Cause, Ranking, RunCauseKind, Value, asdict, replace
from app.diagnosis.domain.answer_causes import AnswerCause, Answers, find_answer_causes
from app.diagnosis.domain.cases import (
    BRIEFS,
    CAUSES,
    FEWEST,
    MAJORITY,
    OTHER_ANALYZER,
    PHRASES,
    SAME_IDS,
    Case,
    advice_on,
)
from app.diagnosis.domain.evidence import (
    MOVED_BY_CONTENT,
    Search,
    SearchedChunk,
    score_change,
    search_for,
    tell_ranks_alone,
)
from app.diagnosis.domain.reanchors import reanchor
from app.diagnosis.domain.run_groups import common_group
from app.index_facts.domain import KnownFact, recall_clauses, size_clauses
from app.retrievers.domain.retrievers import Scale
from app.scoring.rankings import match, prepare
from app.scoring.text_changes import ChangedTexts
from app.scoring.words import containment, overlap

RENAMING = frozenset({RunCauseKind.RECHUNKED, RunCauseKind.REINDEXED, RunCauseKind.RENAMED_DOCUMENTS})
"""Kinds after which judgments are to be re-anchored."""
SHORTER = frozenset({RunCauseKind.EMPTY_ANSWERS, RunCauseKind.LIMITED, RunCauseKind.SCORE_THRESHOLD})
"""Kinds of which answers have fewer hits: what is not there says nothing else."""
LEAVING_OUT = frozenset({RunCauseKind.SEARCH_MISSES, RunCauseKind.LEFT_OUT})
"""Kinds of which hits are gone: those may stand below the depth of a run, which only a deeper question shows."""


class RunCause(Value):
    """One cause that explains the change of a whole run. Shares and recalls are in [0, 1]."""

    kind: RunCauseKind
    since_run: int
    """The first run with it."""
    before_run: int
    """The run it was compared with, the last one before."""
    canaries: int = 0
    """Number of compared canaries, a sample of large suites."""
    affected: int = 0
    """Number of them with an expected chunk that is not found by its name any more, or has another score."""
    recall_by_id_before: float | None = None
    """The share of the judgments with an id or a document that were found by it; None = no judgment has one."""
    recall_by_id_now: float | None = None
    recall_by_passage_before: float | None = None
    """The share of the judgments found by any level, the text a chunk had in `before_run` standing for its id."""
    recall_by_passage_now: float | None = None
    unseen_ids: float | None = None
    """The share of the retrieved chunks whose id no compared canary had retrieved in `before_run`."""
    split: int = 0
    """Judgments whose passage is spread over several chunks now."""
    score_change: float | None = None
    """By how much scores of the same chunks changed, in the median."""
    detail: str | None = None
    """Further details, a sentence without its full stop."""
    losing: int = 0
    """Number of compared canaries that find less now than they did in `before_run`."""
    quiet_runs: int = 0
    """Number of runs in a row, up to now, that have it while neither the detector nor a rule minds."""
    shape: str | None = None
    """The phrase of a cause that `answer_causes` told, with its figures."""
    evidence: str | None = None
    """What is seen of it, in numbers; a sentence without its full stop."""
    against: str | None = None
    """What it does not explain, as a clause; None = there is nothing."""
    beside: str | None = None
    """The phrase of a second cause, of other answers."""
    index: str | None = None
    """What the facts of the index say of it: that they support it, or that they do not; clauses."""

    @property
    def is_harmful(self) -> bool:
        """Whether it loses something by itself: expected chunks by their names, or vectors that no longer fit."""
        if self.shape is not None or self.kind is RunCauseKind.SCORES_CHANGED:  # see `counted_on`
            return False
        return self.affected > 0 or self.kind not in {*RENAMING, RunCauseKind.TEXTS_CHANGED}

    @property
    def did_no_harm(self) -> bool:
        """Whether nothing fell while it stood; one with a shape is told only where something fell."""
        return self.quiet_runs > 0 and self.shape is None

    def is_reportable(self, run_id: int) -> bool:
        """Whether it is reported for a run: for the first one, and as long as it takes something away, or is minded."""
        return run_id == self.since_run or self.quiet_runs == 0 or self.losing > 0

    def counted_on(self, losing: int, *, is_alarm: bool, is_bad: bool) -> "RunCause | None":
        """Return it with what a run adds; None where that is one run too many in which nobody minded.

        `losing`: canaries that find less than before it. `is_alarm`: whether the detector's alarm is open, `is_bad`
        whether a rule about what canaries find is broken, which opens alerts where the detector knows no baseline yet:
        that is its doing where it takes something away, or where rules minded it from its first run on.
        """
        minded = is_alarm or (is_bad and (losing > 0 or not self.quiet_runs))
        quiet = 0 if self.is_harmful or minded else self.quiet_runs + 1
        return None if quiet > QUIET_RUNS else replace(self, losing=losing, quiet_runs=quiet)

    @property
    def phrase(self) -> str:
        """Its name with figures, for the first line of an alert: `chunks re-cut under other ids (...)`."""
        if self.shape is not None:
            return " and ".join(one for one in (self.shape, self.beside) if one)
        texts = self.detail if self.kind is RunCauseKind.TEXTS_CHANGED else None
        figures = texts or self._recall or self._score or self._unseen
        return f"{self._name} ({figures})" if figures else self._name

    @property
    def brief(self) -> str:
        """Its name in few words; empty where there are none."""
        return BRIEFS.get(self.kind, "")

    @property
    def reason(self) -> str:
        """A sentence without its full stop, for the run's page."""
        name = self.phrase if self.shape is not None else self._name
        text = f"{name[0].upper()}{name[1:]} since run {self.since_run}"
        figures = (
            self._recall,
            self._unseen,
            self._split,
            self._score,
            self.evidence,
            self.index,
            self.against,
            self.detail,
        )
        parts = [one for one in figures if one]
        return f"{text}: {'; '.join(parts)}" if parts else text

    @property
    def advice(self) -> str:
        """What to do about it."""
        return advice_on(self.kind)

    @property
    def cause(self) -> Cause | None:
        """The cause of the single canaries that it explains; None = they keep their own."""
        return CAUSES.get(self.kind)

    def overrules(self, cause: Cause) -> bool:
        """Whether it replaces the cause of a single canary: another model makes chunks look missing."""
        if self.kind is RunCauseKind.MISSING:  # scores move with a collection; what else is found stands
            return cause in {Cause.SCORE_DRIFT, Cause.UNSTABLE}
        if self.kind is RunCauseKind.EMBEDDER_CHANGED:
            return cause not in {Cause.SCORE_DRIFT, Cause.RETRIEVER_ERROR}
        kept = {self.cause, Cause.RETRIEVER_ERROR}
        if self.kind in LEAVING_OUT:
            kept |= {Cause.OUTRANKED, Cause.LEFT_OUT}
        return self.shape is not None and cause not in kept

    def is_refuted(self, diagnosed: Iterable[tuple[Cause, int | None]]) -> bool:
        """Whether it says that hits are left out, and most diagnosed canaries, (cause, rank now), have them lower."""
        lower = [cause is Cause.OUTRANKED and rank is not None for cause, rank in diagnosed]
        return self.kind in LEAVING_OUT and sum(lower) > MAJORITY * len(lower)

    @property
    def as_json(self) -> RunCauseView:
        """All fields and texts as JSON; `read_run_cause` reads it back."""
        whole = {**asdict(self), "kind": str(self.kind), "phrase": self.phrase, "reason": self.reason}
        return cast("RunCauseView", whole)

    @property
    def _name(self) -> str:
        same_ids = self.kind is RunCauseKind.RECHUNKED and (self.unseen_ids or 0.0) < MAJORITY
        return SAME_IDS if same_ids else PHRASES[self.kind]

    @property
    def _recall(self) -> str:
        by_id = ""  # left out where it did not change
        if _shown([self.recall_by_id_before]) != _shown([self.recall_by_id_now]):
            by_id = _moved("recall by id", self.recall_by_id_before, self.recall_by_id_now)
        by_passage = _moved("by passage", self.recall_by_passage_before, self.recall_by_passage_now)
        before = (self.recall_by_id_before, self.recall_by_passage_before)
        if _shown(before) == _shown((self.recall_by_id_now, self.recall_by_passage_now)):
            return ""  # what is expected by document, or by a text that is still whole, suffers little
        return ", ".join(
            one for one in (by_id, by_passage if by_id or not by_passage else f"recall {by_passage}") if one
        )

    @property
    def _unseen(self) -> str:
        if self.unseen_ids is None:
            return ""
        return f"{percent_text(self.unseen_ids)} of the retrieved ids were not there in run {self.before_run}"

    @property
    def _split(self) -> str:
        verb = "is" if self.split == 1 else "are"
        return f"{counted(self.split, 'expected passage')} {verb} split over several chunks" if self.split else ""

    @property
    def _score(self) -> str:
        if self.score_change is None:
            return ""
        return f"by {percent_text(self.score_change)} in the median: another encoder or another scoring"


def with_index(cause: RunCause | None, facts: Sequence[KnownFact]) -> RunCause | None:
    """Return a cause with what the facts of the index say of it.

    Documents that are missing are confirmed by an index that holds less, and doubted by one that holds as much as it
    did; hits that are left out by recall against exact search, which alone tells whether the search misses them.
    """
    smaller, as_large = size_clauses(facts)
    if cause is None:
        return None
    if cause.kind in LEAVING_OUT:
        worse, usual = recall_clauses(facts)
        clauses = [*worse, *smaller] or [f"but {one}: hits are filtered or fell lower" for one in usual[:1]]
    elif cause.kind is RunCauseKind.MISSING:
        clauses = smaller or [f"but {one}: they may be filtered, or replaced" for one in as_large[:1]]
    else:
        clauses = smaller
    return replace(cause, index="; ".join(clauses)) if clauses else cause


def read_run_cause(stored: Mapping[str, Any]) -> RunCause:
    """Read a run cause from `as_json`; fields of later releases are left out."""
    fields = {name: stored[name] for name in RunCause.__struct_fields__ if name in stored}
    return RunCause(**{**fields, "kind": RunCauseKind(stored["kind"])})


def _shown(values: Iterable[float | None]) -> list[str]:
    return ["" if value is None else f"{value:.2f}" for value in values]


def _moved(name: str, before: float | None, now: float | None) -> str:
    return f"{name} {before:.2f} -> {now:.2f}" if before is not None and now is not None else ""


QUIET_RUNS = 20
"""After so many runs a cause that nobody minded is how things are."""
SHARE = 0.1
"""Least share of the judgments found by name before that must be lost for a cause of the whole run."""
_ORDER = (RunCauseKind.RECHUNKED, RunCauseKind.RENAMED_DOCUMENTS, RunCauseKind.REINDEXED)
"""Of equally frequent kinds the first is reported."""
_MOSTLY_UNSEEN = 0.9
"""Share of the retrieved ids that were not there before, from which on no other model explains it."""
_FEWEST_FOUND = 0.25
"""Share of the lost judgments that must be found by their texts then, instead of half: small pieces of long chunks do
not all come back."""
_ALL = 0.9
"""Share of the canaries from which on scores moved everywhere."""
_DOUBTFUL = 0.25
"""Of a sample of the hits that are gone; where more than this share of it is found again, and more than this share is
not, all are looked for."""
_SAME_TEXT = 0.9
"""Share of either text's word 3-grams in the other, from which on both are the same text."""
_FOUND_AGAIN = 0.5
"""Share of the shorter text's word 3-grams in both, from which on a chunk of before is found under another name."""
_HOLDING = 0.5
"""Share of a chunk's word 3-grams that another must have to count as one that holds it."""
_MOST_HOLDERS = 2
"""Chunks of a cut that hold most of the same text, where they overlap; of more, some are copies."""


class RankingPair(Value):
    """Rankings of a canary before and now."""

    canary: Canary
    before: Ranking
    now: Ranking
    earlier: Ranking | None = None
    """Of the run before this one, where that was not healthy either."""


def find_run_cause(
    pairs: Sequence[RankingPair], *, k: int, scale: Scale | None, since_run: int, before_run: int
) -> RunCause | None:
    """Return the cause that the canaries of a run share; None where there is none.

    Answers that became shorter come first. Chunks were renamed where a tenth of the judgments found by name before are
    not any more (three at least), or half of the hits of the top k, and at least half of these are found by their
    texts, in chunks that no canary retrieved before. Then counts what `answer_causes` tells of whole answers. Scores
    changed where those of the same chunks moved for half of the canaries, by more than new or deleted documents
    explain.
    """
    figures = RunCause(
        kind=RunCauseKind.SCORES_CHANGED, since_run=since_run, before_run=before_run, canaries=len(pairs)
    )
    answers = Answers(
        before=[pair.before for pair in pairs],
        now=[pair.now for pair in pairs],
        earlier=[pair.earlier for pair in pairs],
    )
    changes = find_answer_causes(answers)
    if changes and changes[0].kind in SHORTER:
        return _of_changes(figures, changes, pairs, k, scale)
    return (
        _renamed(figures, pairs[:: -(-len(pairs) // _MOST_PAIRS) or 1], k)
        or _of_changes(figures, changes, pairs, k, scale)
        or _other_scores(figures, pairs, scale)
    )


class Basis(StrEnum):
    """What a run is compared with to find its cause."""

    STANDING = "standing"
    """The run before the cause that stands."""
    ALARM = "alarm"
    """The run before the alarm that is open."""
    NEWEST = "newest"
    """The run before."""


def comparison_basis(
    standing: RunCause | None, *, is_changed: bool, is_alarm: bool, has_opened: bool, is_widespread: bool
) -> Basis | None:
    """Return what a run is compared with; None = with nothing.

    `standing`: the cause that stands; only those that answers show are looked for again. `is_changed`: whether any
    answer is another one, `is_widespread` whether so many are, or find so much less, that there may be a cause.
    """
    if standing is not None and standing.kind not in _SHOWN_BY_OTHERS:
        return Basis.STANDING
    if is_alarm and (is_changed or has_opened):
        return Basis.ALARM
    return Basis.NEWEST if is_widespread else None


def prevailing_cause(
    compared: RunCause | None,
    *,
    of_embedder: RunCause | None,
    of_texts: RunCause | None,
    texts: ChangedTexts,
    named: int,
    is_alarm: bool,
) -> RunCause | None:
    """Return the cause that explains most of a run.

    What is known of the embedder explains more than other vectors do; an index cut anew more than its chunks' texts,
    and texts that were all cut more than anything, see `texts_explain_more`.
    """
    yields = compared is None or compared.kind in _OF_MODELS
    cause = of_embedder if yields and of_embedder is not None else compared
    if of_texts is None:
        return cause
    if cause is None:
        return of_texts if of_texts.affected or not is_alarm else None  # a few edits are no cause of an alarm
    return of_texts if texts_explain_more(of_texts, cause, texts, named=named) else cause


_SHOWN_BY_OTHERS = frozenset({RunCauseKind.EMBEDDER_CHANGED, RunCauseKind.TEXTS_CHANGED})
"""Kinds that answers do not show by themselves."""
_OF_MODELS = frozenset({RunCauseKind.OTHER_VECTORS, RunCauseKind.RANKING_CHANGED, RunCauseKind.SCORES_CHANGED})


def texts_explain_more(of_texts: RunCause, cause: RunCause, texts: ChangedTexts, *, named: int) -> bool:
    """Whether lost texts explain a run better than the cause that answers show.

    Not an index cut anew, in which texts are under ids never seen: it has other pieces under the same ids, too; where
    nearly all are but parts of what they were, texts were cut. A run after the one in which they were lost has no texts
    to compare: they explain it unless the detector names more than twice as many canaries (`named`, 0 = none).
    """
    if not of_texts.affected or cause.kind is RunCauseKind.EMBEDDER_CHANGED:
        return False
    if texts.damaged >= _CUT:
        return True
    if cause.kind in RENAMING and (cause.unseen_ids or 0.0) >= SHARE:
        return False
    return texts.damaged >= MAJORITY if texts.compared else of_texts.affected >= MAJORITY * named


_CUT = 0.8
"""Share of damaged texts from which on texts were cut, whatever else there is."""
_MOST_PAIRS = 200
"""Canaries whose texts are compared; a sample of more would say the same."""
_FEW_HITS = 100
"""Of the hits that are gone so many are looked for by their texts first, and all where these leave a doubt."""


def _of_changes(
    figures: RunCause, changes: Sequence[AnswerCause], pairs: Sequence[RankingPair], k: int, scale: Scale | None
) -> RunCause | None:
    if not changes:
        return None
    first, *others = changes
    if first.kind in {RunCauseKind.RANKING_CHANGED, RunCauseKind.OTHER_VECTORS}:
        first = replace(first, evidence=f"{first.evidence}; {_moves(pairs, k)}")
        if scale is Scale.UNBOUNDED:  # a sum of word weights has no vectors
            first = replace(first, kind=RunCauseKind.RANKING_CHANGED, phrase=OTHER_ANALYZER)
    if group := common_group([pair.canary for pair in pairs], first.affected.tolist()):
        phrase = f"{first.phrase}, {group}" if first.kind in SHORTER else first.phrase
        first = replace(first, phrase=phrase, evidence=f"{first.evidence}; {group.figures}")
    return replace(
        figures,
        kind=first.kind,
        affected=int(first.affected.sum()),
        shape=first.phrase,
        evidence=first.evidence,
        against=first.against or None,
        beside=others[0].phrase if others else None,
    )


def _moves(pairs: Sequence[RankingPair], k: int) -> str:
    """How many canaries rank their first expected chunk better, lower, and outside the top k where it was inside.

    Of a canary whose first one is not lower another may be, which lowers its measures too.
    """
    better = lower = lost = others = 0
    for pair in pairs:
        if pair.before.ids != pair.now.ids and pair.canary.expects:
            ranks_before, ranks_now = _expected_ranks(pair.canary, pair.before), _expected_ranks(pair.canary, pair.now)
            was, stands = min(ranks_before, default=_NOWHERE), min(ranks_now, default=_NOWHERE)
            better += stands < was
            lost += was <= k < stands
            lower += was < stands and not was <= k < stands
            others += stands <= was and any(map(gt, ranks_now, ranks_before))
    first = f"better for {counted(better, 'canary')}, lower for {lower:,}, and {lost:,} lost it"
    another = f"; another one ranks lower, or is gone, for {others:,}" if others else ""
    return f"the first expected chunk ranks {first}{another}"


def _expected_ranks(canary: Canary, ranking: Ranking) -> list[int]:
    """Rank of each expected chunk, by id alone where all have one, which is enough and cheaper."""
    wanted = [one for one in canary.judgments if one.grade >= 1]
    if all(one.id is not None for one in wanted):
        places = {chunk: rank for rank, chunk in reversed(list(enumerate(ranking.ids, 1)))}
        return [places.get(one.id or "", _NOWHERE) for one in wanted]
    ranks = zip(match(prepare(canary.judgments), ranking).first, canary.judgments, strict=True)
    return [rank or _NOWHERE for rank, one in ranks if one.grade >= 1]


_NOWHERE = 1_000_000


def _renamed(figures: RunCause, pairs: Sequence[RankingPair], k: int) -> RunCause | None:
    hits_before = {hit for pair in pairs for hit in zip(pair.before.ids, pair.before.texts, strict=True)}
    before_ids = {chunk for chunk, _ in hits_before}
    unseen = _share(chunk not in before_ids for pair in pairs for chunk in pair.now.ids)
    all_names = cache(partial(_names, pairs, k, hits_before))  # which compares texts: most runs can do without
    lost = [one for one in _names([pair for pair in pairs if not _is_settled(pair)], k, hits_before) if one.lost]
    kinds = Counter(one.renaming.kind for one in lost if one.renaming is not None)
    least = MAJORITY if (unseen or 0.0) < _MOSTLY_UNSEEN else _FEWEST_FOUND
    if (
        len(lost) < FEWEST
        or kinds.total() < least * len(lost)
        or len(lost) < SHARE * sum(one.by_name_before for one in all_names())
    ):
        kinds = _renamed_hits(pairs, k, hits_before)
    if not kinds:
        return None
    return replace(
        figures,
        kind=max(_ORDER, key=lambda kind: kinds[kind]),
        affected=len({one.pair for one in all_names() if one.lost}),
        recall_by_id_before=_share(one.by_name_before for one in all_names() if one.named),
        recall_by_id_now=_share(one.by_name_now for one in all_names() if one.named),
        recall_by_passage_before=_share(one.is_found_before for one in all_names()),
        recall_by_passage_now=_share(one.is_found_now for one in all_names()),
        unseen_ids=unseen,
        split=sum(one.renaming.split for one in all_names() if one.renaming is not None),
    )


def _other_scores(figures: RunCause, pairs: Sequence[RankingPair], scale: Scale | None) -> RunCause | None:
    moved = [
        pair
        for pair in pairs
        if (pair.before.ids, pair.before.scores) != (pair.now.ids, pair.now.scores)
        and not tell_ranks_alone(pair.before, pair.now)
    ]
    changes = [
        (change, pair.before.ids == pair.now.ids)
        for pair in moved
        if (change := score_change(pair.before, [pair.now])) is not None
    ]
    far = [one.median for one, _ in changes if one.is_large(scale) and not one.may_be_content(scale)]
    rescaled = [one.median for one, has_same_ids in changes if has_same_ids and one.median > MOVED_BY_CONTENT]
    if len(rescaled) >= _ALL * len(pairs):  # what comes and goes moves some of them, and other hits
        far = rescaled
    if len(far) >= max(FEWEST, MAJORITY * len(pairs)):
        return replace(figures, affected=len(far), score_change=round(median(far), 4))
    return None


class Renaming(Value):
    """Kind of renaming of a judgment whose text is found under another name."""

    kind: RunCauseKind
    split: bool
    """Its passage is spread over several chunks."""


_Hits = Collection[tuple[str, str | None]]
"""Chunks by id and text."""


class _Name(Value):
    """How a judgment is found by name, its id or document, and by its text."""

    pair: int
    named: bool
    """Whether the judgment has an id or document; else its chunk of before has."""
    by_name_before: bool
    by_name_now: bool
    is_found_before: bool
    is_found_now: bool
    lost: bool
    renaming: Renaming | None


def _renamed_hits(pairs: Sequence[RankingPair], k: int, hits_before: _Hits) -> Counter[RunCauseKind]:
    """Return the counts by kind of renaming of the chunks in the top k; empty where most are still there."""
    before = [(pair, place) for pair in pairs for place, text in enumerate(pair.before.texts[:k]) if text]
    there = [frozenset(zip(pair.now.ids, pair.now.texts, strict=True)) for pair in pairs]
    of = dict(zip(map(id, pairs), there, strict=True))
    gone = [
        (pair, place)
        for pair, place in before
        if (pair.before.ids[place], pair.before.texts[place]) not in of[id(pair)]
    ]
    if len(pairs) < FEWEST or not gone or len(gone) < MAJORITY * len(before):
        return Counter()
    for some in (gone[:: -(-len(gone) // _FEW_HITS)], gone):
        found = (_hit_kind(pair, place, hits_before) for pair, place in some)
        kinds = Counter(kind for kind in found if kind is not None)
        if not _DOUBTFUL < kinds.total() / len(some) < 1 - _DOUBTFUL:
            break  # the others would not make it another answer
    return kinds if kinds.total() >= MAJORITY * len(some) else Counter()


def _hit_kind(pair: RankingPair, place: int, hits_before: _Hits) -> RunCauseKind | None:
    """Kind of renaming of a chunk that was retrieved before; None = its text is not found."""
    text = pair.before.texts[place] or ""
    homes = [
        rank
        for rank, hit in enumerate(zip(pair.now.ids, pair.now.texts, strict=True))
        if hit not in hits_before and hit[1] and overlap(text, hit[1]) >= _FOUND_AGAIN
    ]
    return _renaming_kind(pair, place, homes)


def _renaming_kind(pair: RankingPair, place: int, homes: Sequence[int]) -> RunCauseKind | None:
    """Kind of renaming of a chunk, given the places where its text is now, the best first; None = it has none."""
    text, texts_now = pair.before.texts[place] or "", [one or "" for one in pair.now.texts]
    if not homes or sum(containment(text, one) >= _HOLDING for one in texts_now) > _MOST_HOLDERS:
        return None  # nothing was renamed where copies crowd it out
    whole = [rank for rank, one in enumerate(texts_now) if _is_same(text, one)]
    home = next((rank for rank in homes if rank in whole), None)
    if home is None:
        return RunCauseKind.RECHUNKED
    if len(whole) > 1:
        return None  # copies again
    documents = {pair.before.documents[place], pair.now.documents[home]}
    is_known = None not in documents
    return RunCauseKind.RENAMED_DOCUMENTS if is_known and len(documents) > 1 else RunCauseKind.REINDEXED


def _is_settled(pair: RankingPair) -> bool:
    """Whether nothing of a canary can be lost by name: it has names alone, and none that went or has another text."""
    before, now = (dict(zip(one.ids, one.texts, strict=True)) for one in (pair.before, pair.now))
    was, stands = frozenset(pair.before.documents), frozenset(pair.now.documents)
    return all(
        (one.document is not None and one.document in stands)
        or (one.id in now and one.id in before and now[one.id] == before[one.id])
        or ((one.id or one.document) is not None and one.id not in before and one.document not in was - {None})
        for one in pair.canary.judgments
    )


def _names(pairs: Sequence[RankingPair], k: int, hits_before: _Hits) -> list["_Name"]:
    """How the judgments of canaries are found, before and now."""
    return [
        _name(place, pair, one, k, hits_before)
        for place, pair in enumerate(pairs)
        for one in _search(pair, pair.canary, k).chunks
    ]


def _search(pair: RankingPair, canary: Canary, k: int) -> Search:
    return search_for(Case(canary=canary, k=k, fetch_k=k, now=pair.now, healthy=pair.before, ever_passed=True))


def _name(place: int, pair: RankingPair, one: SearchedChunk, k: int, hits_before: _Hits) -> _Name:
    """Whether a judgment is found by its name and by its text, before and now."""
    judgment = replace(one.judgment, text=one.passage or one.judgment.text)
    search = _search(pair, replace(pair.canary, judgments=(judgment,)), k)
    before, now = search.match(pair.before), search.match(pair.now)
    rank, found = before.first_by_id[0] or one.before, now.first[0]
    document = one.judgment.document
    named = one.judgment.id is not None or document is not None
    if named:
        was = before.first_by_id[0] is not None or (document is not None and document in pair.before.documents)
        stands = now.first_by_id[0] is not None or (document is not None and document in pair.now.documents)
    else:  # a new cut that still has the text is harmless
        was, stands = one.before is not None and one.before <= k, found is not None and found <= k
    lost = was and not stands
    return _Name(
        pair=place,
        named=named,
        by_name_before=was,
        by_name_now=stands,
        is_found_before=one.before is not None,
        is_found_now=found is not None,
        lost=lost,
        renaming=_renaming(pair, one, rank - 1, found, hits_before) if lost and rank is not None else None,
    )


def _renaming(
    pair: RankingPair, one: SearchedChunk, place: int, found: int | None, hits_before: _Hits
) -> Renaming | None:
    """Return the renaming of a lost judgment; None = its text is gone, or in chunks that were there before."""
    moved = reanchor(one, [pair.now], pair.before, pieces=True)
    homes = [pair.now.ids.index(home.id) for home in moved.chunks] if moved is not None else []
    if not homes and found is not None:
        homes = [found - 1]
    by_document = one.judgment.id is None and one.judgment.document is not None
    fresh = [home for home in homes if by_document or (pair.now.ids[home], pair.now.texts[home]) not in hits_before]
    kind = _renaming_kind(pair, place, fresh)
    return None if kind is None else Renaming(kind=kind, split=len(homes) > 1)


def _is_same(one: str, other: str) -> bool:
    return min(containment(one, other), containment(other, one)) >= _SAME_TEXT


def _share(values: Iterable[bool]) -> float | None:
    listed = list(values)
    return round(sum(listed) / len(listed), 4) if listed else None
