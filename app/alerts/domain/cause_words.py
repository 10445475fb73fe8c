"""Words for causes in sentences: after a count of canaries, and where all canaries share one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.base.values import Cause


@dataclass(frozen=True, slots=True)
class CauseWords:
    """The words for a cause."""

    counted: str
    """After a count of canaries: `5 missing from the index`."""
    shared: str
    """Where all of them share it: `chunks missing from the index`."""
    brief: str = ""
    """After a count in a headline, where that is shorter: `5 missing`."""

    @property
    def headline(self) -> str:
        """After a count in a headline."""
        return self.brief or self.counted


CAUSE_WORDS: Final[Mapping[Cause, CauseWords]] = {
    Cause.RETRIEVER_ERROR: CauseWords("not answered when repeated", "probes fail when repeated", "not answered"),
    Cause.WRONG_FIELD: CauseWords(
        "expecting ids as documents or the reverse", "the suite expects ids as documents, or documents as ids"
    ),
    Cause.TRUNCATED: CauseWords("cut off", "fewer results than asked for, or none"),
    Cause.TEXTS_CHANGED: CauseWords("without their texts", "texts of the same chunks changed"),
    Cause.SCORE_DRIFT: CauseWords("with other scores", "the same chunks have other scores"),
    Cause.RECHUNKED: CauseWords("re-cut under other ids", "chunks re-cut under other ids"),
    Cause.MISSING: CauseWords("missing from the index", "chunks missing from the index", "missing"),
    Cause.VOCABULARY_MISMATCH: CauseWords("never found", "never found by these queries"),
    Cause.DUPLICATES: CauseWords("crowded out by near copies", "crowded out by near copies"),
    Cause.UNSTABLE: CauseWords("unstable", "found again when repeated"),
    Cause.LOW_RELEVANCE: CauseWords("found but scored too low", "found but scored too low"),
    Cause.OUTRANKED: CauseWords("outranked", "outranked by other chunks"),
}
