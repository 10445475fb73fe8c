"""What facts of the index say of the cause of a run: that they support it, or do not."""

from typing import Any

import pytest

from app.base.values import RunCauseKind
from app.diagnosis.domain.run_causes import RunCause, read_run_cause, with_index
from app.index_facts.domain import EXACT_RECALL, Fact, KnownFact, PastValue


def known(value: float, past: float, name: str = "vectors", high: float | None = None) -> KnownFact:
    """Return a fact that was the same in four runs before."""
    fact = Fact(name=name, value=value, high=high, low=None if high is None else value - 0.02, canaries=20)
    return KnownFact(fact=fact, past=[PastValue(run_id=run, value=past, high=past) for run in range(58, 62)])


def said(kind: RunCauseKind, *facts: KnownFact) -> str | None:
    """Return what the facts say of a cause."""
    cause = with_index(RunCause(kind=kind, since_run=62, before_run=61, shape="a shape"), facts)
    assert cause is not None
    return cause.index


RETURNED = "the index returned {} % of what exact search finds (95 % between {} % and {} %, 20 canaries)"
FELL, HELD = known(88_000, 100_000), known(100_000, 100_000)
MISSED = known(0.7, 0.96, EXACT_RECALL, high=0.78)
FOUND = known(0.95, 0.96, EXACT_RECALL, high=0.97)


@pytest.mark.parametrize(
    ("kind", "facts", "text"),
    [
        (RunCauseKind.MISSING, [FELL], "the index has 12 % fewer vectors than in run 61 (88,000 of 100,000)"),
        (
            RunCauseKind.MISSING,
            [HELD],
            "but the index has as many vectors as in run 61 (100,000): they may be filtered, or replaced",
        ),
        (RunCauseKind.MISSING, [MISSED], None),
        (RunCauseKind.SEARCH_MISSES, [HELD], None),
        (
            RunCauseKind.SEARCH_MISSES,
            [HELD, MISSED],
            f"{RETURNED.format(70, 68, 78)}; in run 61 it was 96 %",
        ),
        (
            RunCauseKind.LEFT_OUT,
            [FOUND],
            f"but {RETURNED.format(95, 93, 97)}, as usual: hits are filtered or fell lower",
        ),
        (RunCauseKind.LEFT_OUT, [FELL, FOUND], "the index has 12 % fewer vectors than in run 61 (88,000 of 100,000)"),
        (RunCauseKind.NEW_CHUNKS, [HELD, FOUND], None),
        (RunCauseKind.EMPTY_ANSWERS, [FELL], "the index has 12 % fewer vectors than in run 61 (88,000 of 100,000)"),
    ],
)
def test_facts_confirm_a_cause_or_doubt_it(kind: RunCauseKind, facts: list[KnownFact], text: str | None) -> None:
    assert said(kind, *facts) == text


def test_what_they_say_is_in_the_sentence_and_is_read_back() -> None:
    cause = with_index(
        RunCause(kind=RunCauseKind.MISSING, since_run=62, before_run=61, shape="3 chunks are gone"), [FELL]
    )
    assert cause is not None
    assert cause.reason.endswith("the index has 12 % fewer vectors than in run 61 (88,000 of 100,000)")
    stored: dict[str, Any] = {**cause.as_json}
    assert read_run_cause(stored) == cause
    stored.pop("index")
    assert read_run_cause(stored).index is None
    assert with_index(None, [FELL]) is None
