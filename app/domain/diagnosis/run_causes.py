"""A cause that the whole run shares: chunks re-cut or re-indexed, documents renamed, scores or the embedder changed.

Recognised from stored rankings alone: what each canary retrieved before and what it retrieves now. Why a single canary
degraded is causes'; what a run's degraded canaries have in common besides is fleet's.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from statistics import median
from typing import Any

from app.domain.alerts.advice import CAUSE_ADVICE, EMBEDDER_ADVICE
from app.domain.alerts.cause_words import CAUSE_WORDS
from app.domain.counts import counted
from app.domain.diagnosis.expected_chunks import MOSTLY, Search, SearchedChunk, search_for
from app.domain.diagnosis.reanchoring import reanchor
from app.domain.diagnosis.score_changes import by_content, change_of, limit_of
from app.domain.diagnosis.text_overlap import alike, held
from app.domain.diagnosis.values import Case
from app.domain.model import Canary, Cause, Ranking
from app.domain.number_text import percent_text
from app.domain.probing.retrievers import Scale

FEWEST = 3
"""Canaries or judgments; fewer are told one by one."""
SHARE = 0.1
"""Of the judgments that were found by name, the share that must be gone for the whole run to be concerned."""
HALF = 0.5


class RunCauseKind(StrEnum):
    """What happened to the index or the encoder as a whole."""

    RECHUNKED = "rechunked"
    """The texts are there, cut otherwise, under other ids."""
    REINDEXED = "reindexed"
    """The same chunks, under other ids."""
    RENAMED_DOCUMENTS = "renamed_documents"
    """The same chunks, of documents by other names."""
    EMBEDDER_CHANGED = "embedder_changed"
    """The embedder answers known texts otherwise than it did."""
    SCORES_CHANGED = "scores_changed"
    """The same chunks have other scores: the encoder or the scoring changed."""


RENAMING = frozenset({RunCauseKind.RECHUNKED, RunCauseKind.REINDEXED, RunCauseKind.RENAMED_DOCUMENTS})
"""Kinds after which judgments are to be re-anchored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCause:
    """Why a run is not as it was, as far as one cause explains all of it. Shares and recalls are in [0, 1]."""

    kind: RunCauseKind
    since_run: int
    """The first run that showed it."""
    before_run: int
    """The run it was compared with, the last one before."""
    canaries: int = 0
    """How many canaries were compared, a sample of large suites."""
    affected: int = 0
    """How many of them have an expected chunk that is not found by its name any more, or has another score."""
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
    """What else is known, a sentence without its full stop."""
    quiet_runs: int = 0
    """How many runs in a row showed it, up to now, without that anything is lost by it."""

    @property
    def is_harmful(self) -> bool:
        """Whether something is lost by it: expected chunks by their names, or scores and vectors that no longer fit."""
        return self.affected > 0 or self.kind not in RENAMING

    def is_told(self, run_id: int) -> bool:
        """Whether it is worth telling of a run: the first that shows it, and as long as it does harm."""
        return run_id == self.since_run or self.quiet_runs == 0

    @property
    def phrase(self) -> str:
        """Name it with its figures, for the first line of an alert: `chunks re-cut under other ids (...)`."""
        figures = self._recall or self._score or self._unseen
        return f"{self._name} ({figures})" if figures else self._name

    @property
    def reason(self) -> str:
        """Say it in a sentence without its full stop, for people who read the run."""
        text = f"{self._name[0].upper()}{self._name[1:]} since run {self.since_run}"
        told = [one for one in (self._recall, self._unseen, self._split, self._score, self.detail) if one]
        return f"{text}: {'; '.join(told)}" if told else text

    @property
    def advice(self) -> str:
        """What to do about it."""
        return EMBEDDER_ADVICE if self.cause is None else CAUSE_ADVICE[self.cause]

    @property
    def cause(self) -> Cause | None:
        """The cause of the single canaries that it explains; None = they are told by their own."""
        if self.kind in RENAMING:
            return Cause.RECHUNKED
        return Cause.SCORE_DRIFT if self.kind is RunCauseKind.SCORES_CHANGED else None

    def overrules(self, cause: Cause) -> bool:
        """Whether it explains what a single canary's cause contradicts: another model makes chunks look missing."""
        return self.kind is RunCauseKind.EMBEDDER_CHANGED and cause not in {Cause.SCORE_DRIFT, Cause.RETRIEVER_ERROR}

    @property
    def as_json(self) -> dict[str, Any]:
        """Write all of it, and its texts; `read_run_cause` reads it back."""
        return {**asdict(self), "kind": str(self.kind), "phrase": self.phrase, "reason": self.reason}

    @property
    def _name(self) -> str:
        same_ids = self.kind is RunCauseKind.RECHUNKED and (self.unseen_ids or 0.0) < HALF
        return "chunks re-cut under their old ids" if same_ids else _PHRASES[self.kind]

    @property
    def _recall(self) -> str:
        by_id = ""  # where it did not move, it tells nothing; recall by passage that stood is what tells the cause
        if _shown([self.recall_by_id_before]) != _shown([self.recall_by_id_now]):
            by_id = _moved("recall by id", self.recall_by_id_before, self.recall_by_id_now)
        by_passage = _moved("by passage", self.recall_by_passage_before, self.recall_by_passage_now)
        told = (self.recall_by_id_before, self.recall_by_passage_before)
        if _shown(told) == _shown((self.recall_by_id_now, self.recall_by_passage_now)):
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


def read_run_cause(told: Mapping[str, Any]) -> RunCause:
    """Read what `as_json` wrote; fields of later releases are left out."""
    known = {name: told[name] for name in RunCause.__dataclass_fields__ if name in told}
    return RunCause(**{**known, "kind": RunCauseKind(told["kind"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What a canary that expects something retrieved before, and what it retrieves now."""

    canary: Canary
    before: Ranking
    now: Ranking


def recognise(
    pairs: Sequence[Pair], *, k: int, scale: Scale | None, since_run: int, before_run: int
) -> RunCause | None:
    """Recognise what happened to all of a run's canaries; None where nothing that they share explains it.

    Chunks are under other names where a tenth of the judgments that were found by name is not any more (three at
    least), or half of what stood in the top k, and half of these or more are found by their texts, in chunks that no
    canary had retrieved before. Scores changed where those of the same chunks moved for half of the canaries, by more
    than documents that come and go explain.
    """
    known = {hit for pair in pairs for hit in zip(pair.before.ids, pair.before.texts, strict=True)}
    before_ids = {chunk for chunk, _ in known}
    names = [[_name(pair, one, k, known) for one in _wanted(pair, k)] for pair in pairs]
    judged = [one for some in names for one in some]
    kinds = _renamed_judgments(judged) or _renamed_hits(pairs, k, known)
    figures = RunCause(
        kind=RunCauseKind.SCORES_CHANGED, since_run=since_run, before_run=before_run, canaries=len(pairs)
    )
    if kinds:
        return replace(
            figures,
            kind=max(_ORDER, key=lambda kind: kinds[kind]),
            affected=sum(any(one.lost for one in some) for some in names),
            recall_by_id_before=_share(one.by_name_before for one in judged if one.named),
            recall_by_id_now=_share(one.by_name_now for one in judged if one.named),
            recall_by_passage_before=_share(one.found_before for one in judged),
            recall_by_passage_now=_share(one.found_now for one in judged),
            unseen_ids=_share(chunk not in before_ids for pair in pairs for chunk in pair.now.ids),
            split=sum(one.renaming.split for one in judged if one.renaming is not None),
        )
    changes = [change for pair in pairs if (change := change_of(pair.before, [pair.now])) is not None]
    far = [one.median for one in changes if one.median > limit_of(scale) and not by_content(scale, one)]
    if len(far) >= max(FEWEST, HALF * len(pairs)):
        return replace(figures, affected=len(far), score_change=round(median(far), 4))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """A judgment that is not found by its name any more though its text is there."""

    kind: RunCauseKind
    split: bool
    """Its passage is spread over several chunks."""


_Hits = Collection[tuple[str, str | None]]
"""Chunks by id and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """How a judgment is found by name, its id or document, and by its text."""

    named: bool
    """It has a name of its own; of others the chunk that stood for them has."""
    by_name_before: bool
    by_name_now: bool
    found_before: bool
    found_now: bool
    lost: bool
    renaming: Renaming | None


def _renamed_judgments(judged: Sequence[_Name]) -> Counter[RunCauseKind]:
    """Count what became of the judgments that are lost by name; nothing where too few are, or their texts are gone."""
    lost = sum(one.lost for one in judged)
    kinds = Counter(one.renaming.kind for one in judged if one.renaming is not None)
    enough = lost >= max(FEWEST, SHARE * sum(one.by_name_before for one in judged))
    return kinds if enough and kinds.total() >= HALF * lost else Counter()


def _renamed_hits(pairs: Sequence[Pair], k: int, known: _Hits) -> Counter[RunCauseKind]:
    """Count what became of the chunks in the top k, whatever is expected; nothing where most are still there."""
    before = [(pair, place) for pair in pairs for place, text in enumerate(pair.before.texts[:k]) if text]
    there = [frozenset(zip(pair.now.ids, pair.now.texts, strict=True)) for pair in pairs]
    of = dict(zip(map(id, pairs), there, strict=True))
    gone = [
        (pair, place)
        for pair, place in before
        if (pair.before.ids[place], pair.before.texts[place]) not in of[id(pair)]
    ]
    if len(pairs) < FEWEST or not gone or len(gone) < HALF * len(before):
        return Counter()
    found = (_hit_kind(pair, place, known) for pair, place in gone)
    kinds = Counter(kind for kind in found if kind is not None)
    return kinds if kinds.total() >= HALF * len(gone) else Counter()


def _hit_kind(pair: Pair, place: int, known: _Hits) -> RunCauseKind | None:
    """Say under which other name a chunk stands that was retrieved before; None = its text is not there."""
    text = pair.before.texts[place] or ""
    homes = [
        rank
        for rank, hit in enumerate(zip(pair.now.ids, pair.now.texts, strict=True))
        if hit not in known and hit[1] and alike(text, hit[1]) >= MOSTLY
    ]
    return _kind(pair, place, homes)


def _kind(pair: Pair, place: int, homes: Sequence[int]) -> RunCauseKind | None:
    """Tell re-cut chunks from renamed ones, given the places where the text of one stands now, the best first."""
    text = pair.before.texts[place]
    whole = [home for home in homes if _same(text, pair.now.texts[home])]
    if not homes or (whole and sum(_same(text, other) for other in pair.now.texts) > 1):
        return None  # copies beside one another crowd it out; nothing was renamed
    if not whole:
        return RunCauseKind.RECHUNKED
    documents = {pair.before.documents[place], pair.now.documents[whole[0]]}
    renamed = None not in documents and len(documents) > 1
    return RunCauseKind.RENAMED_DOCUMENTS if renamed else RunCauseKind.REINDEXED


def _wanted(pair: Pair, k: int) -> Sequence[SearchedChunk]:
    return _search(pair, pair.canary, k).wanted


def _search(pair: Pair, canary: Canary, k: int) -> Search:
    return search_for(Case(canary=canary, k=k, fetch_k=k, now=pair.now, healthy=pair.before, ever_passed=True))


def _name(pair: Pair, one: SearchedChunk, k: int, known: _Hits) -> _Name:
    """Look for a judgment by its name and by its text."""
    judgment = replace(one.judgment, text=one.passage or one.judgment.text)
    search = _search(pair, replace(pair.canary, judgments=(judgment,)), k)
    before, now = search.match(pair.before), search.match(pair.now)
    rank, found = before.first_by_id[0] or one.before, now.first[0]
    document = one.judgment.document
    named = one.judgment.id is not None or document is not None
    if named:
        was = before.first_by_id[0] is not None or (document is not None and document in pair.before.documents)
        stands = now.first_by_id[0] is not None or (document is not None and document in pair.now.documents)
    else:  # another cut that still holds a text does no harm
        was, stands = one.before is not None and one.before <= k, found is not None and found <= k
    lost = was and not stands
    return _Name(
        named=named,
        by_name_before=was,
        by_name_now=stands,
        found_before=one.before is not None,
        found_now=found is not None,
        lost=lost,
        renaming=_renaming(pair, one, rank - 1, found, known) if lost and rank is not None else None,
    )


def _renaming(pair: Pair, one: SearchedChunk, place: int, found: int | None, known: _Hits) -> Renaming | None:
    """Find where the text of a lost judgment stands now; None = nowhere, or in chunks that were there before."""
    moved = reanchor(one, [pair.now], pair.before, pieces=True)
    homes = [pair.now.ids.index(home.id) for home in moved.found] if moved is not None else []
    if not homes and found is not None:
        homes = [found - 1]
    by_document = one.judgment.id is None and one.judgment.document is not None
    fresh = [home for home in homes if by_document or (pair.now.ids[home], pair.now.texts[home]) not in known]
    kind = _kind(pair, place, fresh)
    return None if kind is None else Renaming(kind=kind, split=len(homes) > 1)


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and min(held(one, other), held(other, one)) >= _EQUAL


def _share(values: Iterable[bool]) -> float | None:
    listed = list(values)
    return round(sum(listed) / len(listed), 4) if listed else None


def _shown(values: Iterable[float | None]) -> list[str]:
    return ["" if value is None else f"{value:.2f}" for value in values]


def _moved(name: str, before: float | None, now: float | None) -> str:
    return f"{name} {before:.2f} -> {now:.2f}" if before is not None and now is not None else ""


_ORDER = (RunCauseKind.RECHUNKED, RunCauseKind.RENAMED_DOCUMENTS, RunCauseKind.REINDEXED)
"""Of kinds that are as frequent the first is told."""
_PHRASES = {
    RunCauseKind.RECHUNKED: CAUSE_WORDS[Cause.RECHUNKED].shared,
    RunCauseKind.REINDEXED: "chunks re-indexed under other ids",
    RunCauseKind.RENAMED_DOCUMENTS: "documents renamed",
    RunCauseKind.EMBEDDER_CHANGED: "embedder changed",
    RunCauseKind.SCORES_CHANGED: "scores of the same chunks changed",
}
_EQUAL = 0.9
