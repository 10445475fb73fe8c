"""What to do about an alert, of every kind and cause, and the names of the chunks that were lost."""

from datetime import UTC, datetime

import pytest

from app.alerts.domain.advice import CAUSE_ADVICE, EMBEDDER_ADVICE, alert_advice
from app.alerts.domain.summaries import AlertFacts, ChangedCanaries
from app.alerts.domain.views import Degradation, TransitionType, all_lost_text, chunk_name, lost_chunks, lost_text
from app.base.values import Cause, Judgment, Outcome, Reason, RuleKind, RunCauseKind, Step, replace
from app.diagnosis.domain.cases import advice_on
from app.diagnosis.domain.run_causes import RunCause
from app.retrievers.domain.probes import FailureSummary

CHANGED = ChangedCanaries(count=3, of=9, reasons=[(Reason.MISSING,)] * 3)
FACTS = AlertFacts(check="docs", kind=RuleKind.REGRESSION, changed=CHANGED, at=datetime(2026, 3, 2, tzinfo=UTC))
DOWN = FailureSummary(
    step=Step.RETRIEVER,
    address="10.0.0.5:8001",
    outcome=Outcome.UNREACHABLE,
    http_status=None,
    error="is unreachable",
    count=9,
    failed=9,
    skipped=0,
    total=9,
)
OUTAGE = replace(FACTS, kind=RuleKind.PROBE_ERRORS, failure=DOWN, retriever="search")
WHO = "retriever search at 10.0.0.5:8001"


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_its_advice(cause: Cause) -> None:
    told = alert_advice(replace(FACTS, changed=replace(CHANGED, causes={cause: 3})))
    assert told == CAUSE_ADVICE[cause]
    assert told.endswith(".")
    assert len(told) <= 400


def test_where_only_scores_are_too_low_nobody_is_told_that_accepting_helps() -> None:
    low = [[Reason.LOW_RELEVANCE]] * 3
    told = alert_advice(replace(FACTS, changed=replace(CHANGED, reasons=low, causes={Cause.SCORE_DRIFT: 3})))
    assert "accepting the present as normal changes neither" in told
    mixed = replace(CHANGED, reasons=[*low[:2], [Reason.MISSING]], causes={Cause.SCORE_DRIFT: 3})
    assert alert_advice(replace(FACTS, changed=mixed)) == CAUSE_ADVICE[Cause.SCORE_DRIFT]


def test_of_several_causes_the_two_commonest_have_their_advice() -> None:
    causes = {Cause.UNSTABLE: 1, Cause.OUTRANKED: 2, Cause.MISSING: 5}
    told = alert_advice(replace(FACTS, changed=replace(CHANGED, causes=causes)))
    assert told == f"{CAUSE_ADVICE[Cause.MISSING]} {CAUSE_ADVICE[Cause.OUTRANKED]}"


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (RunCauseKind.RECHUNKED, CAUSE_ADVICE[Cause.RECHUNKED]),
        (RunCauseKind.REINDEXED, CAUSE_ADVICE[Cause.RECHUNKED]),
        (RunCauseKind.RENAMED_DOCUMENTS, CAUSE_ADVICE[Cause.RECHUNKED]),
        (RunCauseKind.EMBEDDER_CHANGED, EMBEDDER_ADVICE),
        (RunCauseKind.SCORES_CHANGED, CAUSE_ADVICE[Cause.SCORE_DRIFT]),
    ],
)
def test_what_explains_the_whole_run_is_told_before_the_advice_of_the_causes_of_single_canaries(
    kind: RunCauseKind, advice: str
) -> None:
    cause = RunCause(kind=kind, since_run=2, before_run=1)
    changed = replace(CHANGED, causes={Cause.MISSING: 3}, shared_cause=cause.phrase, shared_advice=cause.advice)
    assert alert_advice(replace(FACTS, changed=changed)) == advice


@pytest.mark.parametrize(
    ("outcome", "status", "advice"),
    [
        (Outcome.UNREACHABLE, None, f"Check that {WHO} is running and can be reached from Coalmine."),
        (Outcome.TIMEOUT, None, f"Check that {WHO} is running, and how busy it is."),
        (Outcome.REFUSED, 500, f"Check the log of {WHO}."),
        (Outcome.REFUSED, 503, f"Check the log of {WHO}."),
        (Outcome.REFUSED, 401, f"Check the credentials for {WHO}."),
        (Outcome.REFUSED, 403, f"Check the credentials for {WHO}, and what they may read."),
        (Outcome.REFUSED, 404, f"Check the URL of {WHO}, and that its collection exists."),
        (Outcome.REFUSED, 429, f"Lower the concurrency or the rate of the retriever: {WHO} limits requests."),
        (Outcome.REFUSED, 422, f"Send a test request to see what {WHO} rejects."),
        (
            Outcome.REFUSED,
            307,
            f"Set the URL of {WHO} to the address that it redirects to; if that is a sign-in, check the credentials.",
        ),
        (Outcome.REFUSED, None, f"Send a test request to see what {WHO} rejects."),
        (Outcome.MALFORMED, 200, f"Send a test request and compare the answer of {WHO} with the response mapping."),
        (Outcome.BLOCKED, None, f"Correct the URL of {WHO}, or allow its address in COALMINE_RETRIEVER_ALLOW."),
        (Outcome.OVERSIZE, 200, f"Ask {WHO} for fewer or shorter chunks."),
    ],
)
def test_an_outage_says_what_to_do_by_how_probes_fail(outcome: Outcome, status: int | None, advice: str) -> None:
    assert alert_advice(replace(OUTAGE, failure=replace(DOWN, outcome=outcome, http_status=status))) == advice


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        (replace(OUTAGE, failure=None), "Correct what the reason names, and run the check again."),
        (
            replace(FACTS, kind=RuleKind.NO_DATA),
            "See whether a run is under way, slower than its schedule, and if a worker runs: its log shows why.",
        ),
        (
            replace(FACTS, kind=RuleKind.LATENCY, retriever="search at 10.0.0.5:8001"),
            "Check the load of search at 10.0.0.5:8001: CPU, cold caches, a larger index.",
        ),
        (replace(FACTS, kind=RuleKind.EMBEDDING), EMBEDDER_ADVICE),
        (FACTS, "Compare the run with the last healthy one, and diagnose the canaries that changed."),
        (
            replace(FACTS, kind=RuleKind.THRESHOLD, changed=None),
            "Compare the run with the last healthy one, and diagnose the canaries that changed.",
        ),
    ],
)
def test_the_other_kinds_say_what_to_do(facts: AlertFacts, advice: str) -> None:
    assert alert_advice(facts) == advice


def test_one_loss_has_one_advice_whether_a_canary_or_the_whole_run_tells_of_it() -> None:
    assert advice_on(RunCauseKind.MISSING) == CAUSE_ADVICE[Cause.MISSING]


def test_of_what_is_over_there_is_nothing_to_do() -> None:
    for kind in RuleKind:
        assert alert_advice(replace(OUTAGE, kind=kind, change=TransitionType.RESOLVED)) == "", kind


# --- lost chunks ---

A, B, C, D = (Judgment(id=name) for name in "abcd")
KNOWN_BAD = Judgment(id="bad", grade=0)


def test_a_canary_that_finds_nothing_lost_what_it_found_before() -> None:
    lost = lost_chunks([A, B, KNOWN_BAD], [None, None, 1], [2, None, 3], missing=True)
    assert lost == {"lost": ["a"], "lost_total": 1}


def test_a_canary_of_which_nothing_is_known_before_lost_all_it_expects_and_three_are_named() -> None:
    lost = lost_chunks([A, B, C, D, KNOWN_BAD], [None] * 5, None, missing=True)
    assert lost == {"lost": ["a", "b", "c"], "lost_total": 4}
    assert lost_text(lost) == "a, b, c and 1 more"


def test_a_canary_that_still_finds_something_lost_what_is_retrieved_no_more() -> None:
    assert lost_chunks([A, B, C], [1, None, 4], [1, 2, 3], missing=False) == {"lost": ["b"], "lost_total": 1}
    titled = lost_chunks([A, B], [None, None], [2, 1], missing=True, documents=("b.md", "How to export"))
    assert titled == {"lost": ["a", "b"], "lost_total": 2, "lost_documents": ["How to export", None]}  # b.md says b
    assert lost_text(titled) == all_lost_text([titled], 1) == "a (How to export), b"
    assert lost_chunks([A], [3], None, missing=False) == {"lost": [], "lost_total": 0}


def test_a_chunk_is_named_by_its_id_its_document_or_how_its_text_begins() -> None:
    assert chunk_name(Judgment(id="a", document="d.md", text="Text")) == "a"
    assert chunk_name(Judgment(document="d.md", text="Text")) == "d.md"
    assert (
        chunk_name(Judgment(text="We keep\ndata for 30 days. " * 9)) == f"“{('We keep data for 30 days. ' * 9)[:59]}…”"
    )


def test_an_alert_names_the_chunks_of_three_canaries_and_counts_the_others_each_once() -> None:
    listed: list[Degradation] = [{"lost": [f"doc-{number}"], "lost_total": 1} for number in (1, 1, 2, 3, 4)]
    assert all_lost_text(listed, 5) == "doc-1, doc-2 and 2 more"
    assert all_lost_text(listed, 1_200) == "doc-1, doc-2 and 2 more (of the 5 worst of 1,200 canaries)"
    assert all_lost_text([{"lost": ["a", "b", "c"], "lost_total": 7}], 1) == "a, b, c and 4 more"


def test_nothing_is_named_where_nothing_is_known_to_be_lost() -> None:
    recovered_on_retry: Degradation = {"lost": ["a"], "lost_total": 1, "persistent": False}
    stored_by_a_release_before: Degradation = {}
    assert all_lost_text([stored_by_a_release_before, recovered_on_retry], 12) == ""
    assert lost_text(stored_by_a_release_before) == ""
