"""Texts of the same chunks, compared with what they were: cut, emptied, rewritten, or only edited."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from statistics import median
from typing import Final

from app.base.texts import counted, percent_text
from app.base.values import Level, Ranking, Value
from app.scoring.passages import match_level
from app.scoring.rankings import LEVELS, Match, Prepared
from app.scoring.words import normalise

_HALF: Final = 0.5
_FEWEST: Final = 3
"""Chunks that share a new text, or are rewritten together; fewer were edited."""
_LARGEST: Final = 20_000
"""Characters of a text that are compared."""
_GRAM: Final = 5
_NEARLY: Final = 0.9
_SPREAD: Final = 0.1


class TextChange(StrEnum):
    """How the text of a chunk changed."""

    CUT = "cut"
    """It is a part of what it was."""
    EMPTIED = "empty"
    GARBLED = "garbled"
    """It was read in another charset."""
    REWRITTEN = "rewritten"
    """Less than half of what it was is in it."""
    EDITED = "edited"


DAMAGE: Final = frozenset(TextChange) - {TextChange.EDITED}
"""Changes that an edited document does not explain where many chunks have them."""


class ChangedTexts(Value):
    """How the texts of the chunks changed that canaries retrieved before and now."""

    compared: int = 0
    """Number of chunks with a text before, in the rankings that changed."""
    counts: Mapping[TextChange, int]
    cut_to: str = ""
    """`60 characters`, where texts were cut."""
    lost: tuple[int, ...] = ()
    """Positions of the canaries whose expected chunks are in the top k, none of them with its expected passage."""

    @property
    def damaged(self) -> float:
        """Share of the compared chunks that an edit does not explain."""
        return sum(self.counts.get(one, 0) for one in DAMAGE) / self.compared if self.compared else 0.0

    def __str__(self) -> str:
        """`cut to 60 characters in 100 %, empty in 0 % of 12 chunks compared`; empty where nothing changed."""
        found = {kind for kind, number in self.counts.items() if number}
        if not found:
            return ""
        if found & {TextChange.CUT, TextChange.EMPTIED}:
            found |= {TextChange.CUT, TextChange.EMPTIED}
        words = {TextChange.CUT: f"cut to {self.cut_to}" if self.cut_to else "cut"}
        parts = [
            f"{words.get(kind, str(kind))} in {percent_text(self.counts.get(kind, 0) / self.compared)}"
            for kind in TextChange
            if kind in found
        ]
        return f"{', '.join(parts)} of {counted(self.compared, 'chunk')} compared"


UNCHANGED: Final = ChangedTexts(counts={})


class TextComparison:
    """Compares the rankings of canaries with those in which they were whole, one after the other."""

    def __init__(self) -> None:
        self._changes: dict[str, TextChange | None] = {}
        """By chunk id."""
        self._lengths: list[int] = []
        self._rewritten: Counter[int] = Counter()
        """Chunks by the hash of their new text."""
        self._doubtful: dict[int, list[int | None]] = {}
        """Of canaries that may be lost: for each expected hit None = it is lost, else the hash of its new text."""

    def add(self, position: int, prepared: Prepared, match: Match, before: Ranking, now: Ranking, *, k: int) -> None:
        """Compare a canary's ranking with an earlier one."""
        texts = {chunk: text for chunk, text in zip(before.ids, before.texts, strict=True) if text}
        for chunk, text in zip(now.ids, now.texts, strict=True):
            if chunk in texts and chunk not in self._changes:
                change = self._changes[chunk] = change_of(texts[chunk], text)
                if change is TextChange.CUT and text is not None:
                    self._lengths.append(len(text.rstrip(" .\u2026")))
                elif change is TextChange.REWRITTEN:
                    self._rewritten[_identity(text)] += 1
        hits = [rank for rank in range(min(k, len(match))) if match.grade[rank]]
        fates = [self._fate(prepared, match, rank, texts.get(now.ids[rank]), now.texts[rank]) for rank in hits]
        if fates and all(is_lost for is_lost, _ in fates):
            self._doubtful[position] = [doubt for _, doubt in fates]

    def finish(self) -> ChangedTexts:
        """Return how the texts changed; a chunk that was rewritten alone was edited, and its canary is not lost."""
        counts = Counter(change for change in self._changes.values() if change is not None)
        rewritten, compared = counts[TextChange.REWRITTEN], len(self._changes)
        together = rewritten >= max(_FEWEST, _HALF * compared)
        alone = 0 if together else sum(number for number in self._rewritten.values() if number < _FEWEST)
        counts[TextChange.EDITED] += alone
        counts[TextChange.REWRITTEN] -= alone
        lost = [
            position
            for position, doubts in self._doubtful.items()
            if all(one is None or together or self._rewritten[one] >= _FEWEST for one in doubts)
        ]
        return ChangedTexts(compared=compared, counts=dict(counts), cut_to=self._cut_to(), lost=tuple(lost))

    def _cut_to(self) -> str:
        if not self._lengths:
            return ""
        middle = median(self._lengths)
        near = sum(abs(one - middle) <= max(1, _SPREAD * middle) for one in self._lengths)
        about = "" if near >= _NEARLY * len(self._lengths) else "about "
        return f"{about}{middle:.0f} characters"

    def _fate(
        self, prepared: Prepared, match: Match, rank: int, before: str | None, now: str | None
    ) -> tuple[bool, int | None]:
        """Return whether an expected hit lost its passage, and the hash of its text where that depends on others."""
        level = LEVELS[match.level[rank] - 1]
        if before is None or level in {Level.TEXT, Level.PASSAGE}:
            return False, None
        passages = dict(prepared.passages)
        passage = passages.get(match.judgment[rank])
        if passage is not None and match_level(passage, normalise(before[:_LARGEST])) is not None:
            return match_level(passage, normalise((now or "")[:_LARGEST])) is None, None
        change = change_of(before, now)
        if change is TextChange.REWRITTEN:
            return True, _identity(now)
        return change is TextChange.EMPTIED or (
            change in {TextChange.CUT, TextChange.GARBLED} and _kept_share(before, now or "") < _HALF
        ), None


def change_of(before: str, now: str | None) -> TextChange | None:
    """Return how a text changed; None where only its white space, case or punctuation did."""
    if now == before:
        return None
    was, is_now = normalise(before[:_LARGEST]), normalise((now or "")[:_LARGEST])
    if was == is_now or not was:
        return None
    if not is_now:
        return TextChange.EMPTIED
    if is_now in was:
        return TextChange.CUT if len(is_now) < _NEARLY * len(was) else TextChange.EDITED
    if _is_misread(before, now or ""):
        return TextChange.GARBLED
    return TextChange.REWRITTEN if _kept_share(before, now or "") < _HALF else TextChange.EDITED


def _kept_share(before: str, now: str) -> float:
    """Return the share of a text's character 5-grams that another has, in [0, 1]; of any script."""
    was, is_now = _grams(before), _grams(now)
    return len(was & is_now) / len(was) if was else 1.0


def _grams(text: str) -> frozenset[str]:
    body = normalise(text[:_LARGEST])
    return frozenset(body[at : at + _GRAM] for at in range(max(1, len(body) - _GRAM + 1))) if body else frozenset()


def _is_misread(before: str, now: str) -> bool:
    """Whether a text is UTF-8 that was read as Latin-1 or Windows-1252."""
    for charset in ("latin-1", "cp1252"):
        try:
            body = before.encode().decode(charset, errors="replace")
        except UnicodeError:
            continue
        if not before.isascii() and body[: len(now)].split() == now.split():
            return True
    return not before.isascii() and now.count("\ufffd") > before.count("\ufffd")


def _identity(text: str | None) -> int:
    return hash(normalise((text or "")[:_LARGEST]))
