"""Cause that a whole run shares: chunks re-cut or re-indexed, documents renamed, scores or the embedder changed.

The value with its texts; it is found in `run_cause_search`. Causes of single canaries are in `causes`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, cast

from app.alerts.domain.advice import CAUSE_ADVICE, EMBEDDER_ADVICE
from app.alerts.domain.cause_words import CAUSE_WORDS
from app.alerts.domain.views import RunCauseView
from app.base.counts import counted
from app.base.number_text import percent_text
from app.base.values import Cause

HALF = 0.5


class RunCauseKind(StrEnum):
    """Kind of change of the whole index or encoder."""

    RECHUNKED = "rechunked"
    """The same texts, cut differently, under other ids."""
    REINDEXED = "reindexed"
    """The same chunks, under other ids."""
    RENAMED_DOCUMENTS = "renamed_documents"
    """The same chunks, of documents by other names."""
    EMBEDDER_CHANGED = "embedder_changed"
    """The embedder returns other vectors for the reference texts."""
    TEXTS_CHANGED = "texts_changed"
    """The same chunks, under the same ids, have other texts: cut, emptied, rewritten."""
    SCORES_CHANGED = "scores_changed"
    """The same chunks have other scores: the encoder or the scoring changed."""


RENAMING = frozenset({RunCauseKind.RECHUNKED, RunCauseKind.REINDEXED, RunCauseKind.RENAMED_DOCUMENTS})
"""Kinds after which judgments are to be re-anchored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCause:
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
    quiet_runs: int = 0
    """Number of runs in a row, up to now, that have it without any loss."""

    @property
    def is_harmful(self) -> bool:
        """Whether it loses something: expected chunks by their names, or scores and vectors that no longer fit."""
        return self.affected > 0 or self.kind not in {*RENAMING, RunCauseKind.TEXTS_CHANGED}

    def is_reportable(self, run_id: int) -> bool:
        """Whether it is reported for a run: for the first one, and as long as it is harmful."""
        return run_id == self.since_run or self.quiet_runs == 0

    @property
    def phrase(self) -> str:
        """Its name with figures, for the first line of an alert: `chunks re-cut under other ids (...)`."""
        texts = self.detail if self.kind is RunCauseKind.TEXTS_CHANGED else None
        figures = texts or self._recall or self._score or self._unseen
        return f"{self._name} ({figures})" if figures else self._name

    @property
    def reason(self) -> str:
        """A sentence without its full stop, for the run's page."""
        text = f"{self._name[0].upper()}{self._name[1:]} since run {self.since_run}"
        parts = [one for one in (self._recall, self._unseen, self._split, self._score, self.detail) if one]
        return f"{text}: {'; '.join(parts)}" if parts else text

    @property
    def advice(self) -> str:
        """What to do about it."""
        return EMBEDDER_ADVICE if self.cause is None else CAUSE_ADVICE[self.cause]

    @property
    def cause(self) -> Cause | None:
        """The cause of the single canaries that it explains; None = they keep their own."""
        if self.kind in RENAMING:
            return Cause.RECHUNKED
        if self.kind is RunCauseKind.TEXTS_CHANGED:
            return Cause.TEXTS_CHANGED
        return Cause.SCORE_DRIFT if self.kind is RunCauseKind.SCORES_CHANGED else None

    def overrules(self, cause: Cause) -> bool:
        """Whether it replaces the cause of a single canary: another model makes chunks look missing."""
        return self.kind is RunCauseKind.EMBEDDER_CHANGED and cause not in {Cause.SCORE_DRIFT, Cause.RETRIEVER_ERROR}

    @property
    def as_json(self) -> RunCauseView:
        """All fields and texts as JSON; `read_run_cause` reads it back."""
        whole = {**asdict(self), "kind": str(self.kind), "phrase": self.phrase, "reason": self.reason}
        return cast("RunCauseView", whole)

    @property
    def _name(self) -> str:
        same_ids = self.kind is RunCauseKind.RECHUNKED and (self.unseen_ids or 0.0) < HALF
        return "chunks re-cut under their old ids" if same_ids else _PHRASES[self.kind]

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


def read_run_cause(stored: Mapping[str, Any]) -> RunCause:
    """Read a run cause from `as_json`; fields of later releases are left out."""
    fields = {name: stored[name] for name in RunCause.__dataclass_fields__ if name in stored}
    return RunCause(**{**fields, "kind": RunCauseKind(stored["kind"])})


def _shown(values: Iterable[float | None]) -> list[str]:
    return ["" if value is None else f"{value:.2f}" for value in values]


def _moved(name: str, before: float | None, now: float | None) -> str:
    return f"{name} {before:.2f} -> {now:.2f}" if before is not None and now is not None else ""


_PHRASES = {
    RunCauseKind.RECHUNKED: CAUSE_WORDS[Cause.RECHUNKED].shared,
    RunCauseKind.REINDEXED: "chunks re-indexed under other ids",
    RunCauseKind.RENAMED_DOCUMENTS: "documents renamed",
    RunCauseKind.EMBEDDER_CHANGED: "embedder changed",
    RunCauseKind.TEXTS_CHANGED: CAUSE_WORDS[Cause.TEXTS_CHANGED].shared,
    RunCauseKind.SCORES_CHANGED: "scores of the same chunks changed",
}
