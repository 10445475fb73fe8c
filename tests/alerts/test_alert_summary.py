"""What alerts say in one sentence, of every kind of rule: check, what happened, how much, since when, and the cause."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from app.alerts.domain.advice import REDEFINED_BRIEF
from app.alerts.domain.incidents import incident_title
from app.alerts.domain.summaries import AlertFacts, ChangedCanaries, alert_summary, causes_text
from app.alerts.domain.views import AnswerChange, SinceView, TransitionType, WorseAnswers
from app.base.texts import bound_text, duration_text, ratio_text, seconds_text
from app.base.values import Cause, CorrectedRateView, Outcome, Percentile, Reason, RuleKind, Severity, Step, replace
from app.catalog.domain import PooledNote
from app.retrievers.domain.probes import FailureSummary

OPENED = datetime(2026, 3, 2, 14, 5, tzinfo=UTC)
MISSING = (Reason.MISSING,)
LOST = ChangedCanaries(count=7, of=113, failing_before=30, reasons=[MISSING] * 7, causes={Cause.MISSING: 7})
SINCE: SinceView = {
    "run_id": "61",
    "index_version": None,
    "index_version_before": None,
    "runs_after": None,
    "text": "since run 61",
}
FACTS = AlertFacts(
    check="handbook",
    kind=RuleKind.REGRESSION,
    change=TransitionType.OPENED,
    run_id=64,
    since=SINCE,
    opened_at=OPENED,
    began_at=OPENED,
    at=OPENED + timedelta(minutes=1),
)
INDEX: SinceView = {
    "run_id": "61",
    "index_version": "v42",
    "index_version_before": "v41",
    "runs_after": 0,
    "text": "since run 61, when index version v41 -> v42",
}
REGRESSION = replace(FACTS, since=INDEX, changed=LOST)
LATENCY = replace(FACTS, kind=RuleKind.LATENCY, value=1.3071, threshold=0.8)
COVERAGE = replace(FACTS, kind=RuleKind.THRESHOLD, measure="coverage", value=0.8300001, threshold=0.9)
HTTP_500 = FailureSummary(
    step=Step.EMBEDDER,
    address="127.0.0.1:8220",
    outcome=Outcome.REFUSED,
    http_status=500,
    error="answers HTTP 500",
    count=143,
    failed=143,
    skipped=0,
    total=143,
)
OUTAGE = replace(FACTS, kind=RuleKind.PROBE_ERRORS, failure=HTTP_500, unknown=True)


@pytest.mark.parametrize(
    ("facts", "summary"),
    [
        (
            REGRESSION,
            (
                "handbook: 7 of 113 canaries lost their expected chunk since 14:05 UTC (run 61, index v42): "
                "chunks missing from the index"
            ),
        ),
        (
            replace(REGRESSION, since={**INDEX, "runs_after": 2}),
            (
                "handbook: 7 of 113 canaries lost their expected chunk since 14:05 UTC (run 61, "
                "2 runs after index v42): chunks missing from the index"
            ),
        ),
        (
            OUTAGE,
            "handbook: not measurable since 14:05 UTC, embedder at 127.0.0.1:8220 answers HTTP 500 (143 of 143 probes)",
        ),
        (
            replace(OUTAGE, unknown_since_first=False),  # some probes were answered then
            (
                "handbook: not measurable; probes fail since 14:05 UTC, embedder at 127.0.0.1:8220 answers HTTP 500 "
                "(143 of 143 probes)"
            ),
        ),
        (
            replace(REGRESSION, changed=replace(LOST, since_first=False)),  # others were worse then
            (
                "handbook: 7 of 113 canaries lost their expected chunk: chunks missing from the index; "
                "bad since 14:05 UTC (run 61, index v42)"
            ),
        ),
        (
            replace(REGRESSION, changed=replace(LOST, since_run=64)),  # another fault joined the alarm
            (
                "handbook: 7 of 113 canaries lost their expected chunk since run 64: chunks missing from the index; "
                "bad since 14:05 UTC (run 61, index v42)"
            ),
        ),
        (
            replace(OUTAGE, retriever="docs-search"),
            (
                "handbook: not measurable since 14:05 UTC, embedder of docs-search at 127.0.0.1:8220 answers HTTP 500 "
                "(143 of 143 probes)"
            ),
        ),
        (
            replace(OUTAGE, retriever="docs-search", failure=replace(HTTP_500, step=Step.RETRIEVER)),
            (
                "handbook: not measurable since 14:05 UTC, retriever docs-search at 127.0.0.1:8220 answers HTTP 500 "
                "(143 of 143 probes)"
            ),
        ),
        (
            replace(OUTAGE, retriever="docs", failure=replace(HTTP_500, count=40, failed=40), unknown=False),
            "handbook: 40 of 143 probes fail since 14:05 UTC, embedder of docs at 127.0.0.1:8220 answers HTTP 500",
        ),
        (
            replace(OUTAGE, failure=replace(HTTP_500, count=40, failed=40), unknown=False),
            "handbook: 40 of 143 probes fail since 14:05 UTC, embedder at 127.0.0.1:8220 answers HTTP 500",
        ),
        (
            replace(OUTAGE, failure=None, reason="the run could not be carried out: no key."),
            "handbook: not measurable since 14:05 UTC, the run could not be carried out: no key",
        ),
        (
            replace(OUTAGE, at=OPENED + timedelta(days=2)),
            (
                "handbook: not measurable since 2026-03-02 14:05 UTC, embedder at 127.0.0.1:8220 answers HTTP 500 "
                "(143 of 143 probes)"
            ),
        ),
        (LATENCY, "handbook: p95 latency 1.31 s, above 800 ms since 14:05 UTC (run 61)"),
        (
            replace(LATENCY, percentile=Percentile.P50, value=0.80004),
            "handbook: median latency 800.04 ms, above 800 ms since 14:05 UTC (run 61)",
        ),
        (COVERAGE, "handbook: coverage 0.830, below 0.9 since 14:05 UTC (run 61)"),
        (
            replace(COVERAGE, escalated=True),  # it was bad by a milder bound before
            "handbook: coverage 0.830, below 0.9; bad since 14:05 UTC (run 61)",
        ),
        (
            replace(COVERAGE, value=0.89996, category="complex_factual", changed=LOST),
            (
                "handbook: coverage of complex factual 0.89996, below 0.9 since 14:05 UTC (run 61), "
                "7 of 113 canaries lost their expected chunk: chunks missing from the index"
            ),
        ),
        (
            replace(COVERAGE, changed=replace(LOST, compared=False)),
            "handbook: coverage 0.830, below 0.9 since 14:05 UTC (run 61)",
        ),
        (
            replace(COVERAGE, kind=RuleKind.DROP, baseline=0.974),
            "handbook: coverage fell from 0.974 to 0.830 since 14:05 UTC (run 61)",
        ),
        (
            replace(FACTS, kind=RuleKind.CANARY, canary="refunds", changed=replace(LOST, count=1, reasons=[MISSING])),
            "handbook: canary refunds lost its expected chunk since 14:05 UTC (run 61): chunks missing from the index",
        ),
        (
            replace(
                FACTS,
                kind=RuleKind.EMBEDDING,
                reason="the embedder at e.test answers with vectors of another model (cosine of known texts -0.19, "
                "1.00 expected) (critical); bad in 1 of 1.",
            ),
            (
                "handbook: embedder changed since 14:05 UTC (run 61): e.test answers with vectors of another model "
                "(cosine of known texts -0.19, 1.00 expected)"
            ),
        ),
        (
            replace(FACTS, kind=RuleKind.NO_DATA, due_at=OPENED + timedelta(minutes=10)),
            "handbook: no run completed since 14:05 UTC, two scheduled runs were due by 14:15 UTC",
        ),
    ],
)
def test_every_kind_of_alert_says_what_happened_how_much_since_when_and_why(facts: AlertFacts, summary: str) -> None:
    assert alert_summary(facts) == summary


@pytest.mark.parametrize("kind", RuleKind)
def test_the_summary_of_no_kind_of_rule_names_a_severity(kind: RuleKind) -> None:
    for severity, change in product(Severity, [None, *TransitionType]):
        for reason in (
            f"7 of 9 are bad ({severity})",
            f"7 of 9 are bad ({severity}); bad in 1 of 1.",
            f"bad ({severity}).",
        ):
            summary = alert_summary(replace(FACTS, kind=kind, change=change, canary="refunds", reason=reason))
            assert f"({severity})" not in summary
            assert not summary.endswith((" ", ".", ":")), summary


@pytest.mark.parametrize(
    ("facts", "summary"),
    [
        (replace(REGRESSION, changed=replace(LOST, count=0), coverage=0.9650001), "coverage 0.965, {none}"),
        (
            replace(REGRESSION, changed=replace(LOST, count=1), coverage=0.95),
            "coverage 0.950, 1 canary is worse than before the alert",
        ),
        (replace(COVERAGE, value=0.97), "coverage 0.970, {none}"),
        (
            replace(FACTS, kind=RuleKind.THRESHOLD, measure="faithful", value=0.807, threshold=0.6, coverage=1.0),
            "faithful (the judge alone) 0.807; coverage 1.000",
        ),
        (replace(LATENCY, value=0.0612), "p95 latency 61 ms"),
        (replace(OUTAGE, failure=None, measured=140, total=143), "140 of 143 probes answered"),
        (replace(FACTS, kind=RuleKind.NO_DATA), "a run completed"),
        (replace(FACTS, kind=RuleKind.CANARY, canary="refunds"), "canary refunds is healthy"),
        (replace(FACTS, kind=RuleKind.EMBEDDING), "the embedder answers as it did before"),
    ],
)
def test_every_resolve_says_after_how_long_at_which_run_and_how_it_is_now(facts: AlertFacts, summary: str) -> None:
    over = replace(facts, change=TransitionType.RESOLVED, run_id=75, at=OPENED + timedelta(minutes=42))
    told = summary.format(none="no canary is worse than before the alert")
    assert alert_summary(over) == f"handbook: recovered after 42 min (run 75): {told}"


def test_an_alert_that_ends_without_a_good_run_says_so() -> None:
    over = replace(FACTS, change=TransitionType.RESOLVED, retired="the rule was removed from the check")
    assert alert_summary(over) == "handbook: closed after 1 min: the rule was removed from the check"


def test_a_reminder_says_for_how_long_it_has_been_firing() -> None:
    again = replace(LATENCY, change=TransitionType.REMINDED, at=OPENED + timedelta(hours=3, minutes=5))
    assert alert_summary(again) == (
        "handbook: still firing after 3 h 5 min: p95 latency 1.31 s, above 800 ms since 14:05 UTC (run 61)"
    )


def test_a_cause_of_the_whole_run_stands_in_the_place_of_those_of_single_canaries() -> None:
    shared = replace(REGRESSION, changed=replace(LOST, shared_cause="chunks re-cut under other ids"))
    assert alert_summary(shared).endswith("since 14:05 UTC (run 61, index v42): chunks re-cut under other ids")


@pytest.mark.parametrize(
    ("causes", "text"),
    [
        ({Cause.MISSING: 7}, "chunks missing from the index"),
        ({Cause.OUTRANKED: 2, Cause.MISSING: 5}, "5 missing from the index, 2 outranked"),
        ({Cause.MISSING: 3}, "3 missing from the index, 4 others not explained yet"),
        ({}, ""),
    ],
)
def test_causes_are_grouped_and_never_claim_more_canaries_than_were_diagnosed(
    causes: dict[Cause, int], text: str
) -> None:
    assert causes_text(causes, 7) == text


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        ([[Reason.MISSING, Reason.REGRESSED], [Reason.MISSING]], "2 of 9 canaries lost their expected chunk"),
        ([[Reason.REGRESSED], [Reason.REGRESSED]], "2 of 9 canaries rank an expected chunk lower"),
        (
            [[Reason.MISSING, Reason.REGRESSED], [Reason.REGRESSED]],
            "2 of 9 canaries lost their expected chunk (1) or rank it lower (1)",
        ),
        ([[Reason.MISSING], [Reason.LOW_RELEVANCE]], "2 of 9 canaries degraded"),
        ([[Reason.FORBIDDEN]], "1 of 9 canaries (a key) began to return a forbidden chunk"),
    ],
)
def test_what_the_canaries_do_is_what_all_of_them_do(reasons: list[list[Reason]], told: str) -> None:
    changed = ChangedCanaries(count=len(reasons), of=9, reasons=reasons, name="a\nkey" if len(reasons) == 1 else "")
    assert alert_summary(replace(FACTS, changed=changed)) == f"handbook: {told} since 14:05 UTC (run 61)"


def test_numbers_are_written_as_people_read_them() -> None:
    assert [ratio_text(number) for number in (0.874, 0.8999, 1.0, 3.98e-10, -3.98e-10)] == [
        "0.874",
        "0.900",
        "1.000",
        "0.000",
        "0.000",
    ]
    assert ratio_text(0.8999, 0.9) == "0.8999"
    assert [bound_text(number) for number in (0.9, 1.0, 0.375, 1.1 / 3)] == ["0.9", "1", "0.375", "0.367"]
    assert [seconds_text(number) for number in (0.061, 0.8, 1.3125, 30.0)] == ["61 ms", "800 ms", "1.31 s", "30 s"]
    spans = [timedelta(seconds=40), timedelta(minutes=42), timedelta(hours=3, minutes=5), timedelta(days=2, hours=4)]
    assert [duration_text(span) for span in spans] == ["40 s", "42 min", "3 h 5 min", "2 d 4 h"]
    assert duration_text(timedelta(seconds=112)) == "2 min"


WORSE: WorseAnswers = {"worse": 40, "of": 110, "changes": {AnswerChange.ANSWER: 40}, "listed": []}
FAITHFUL = replace(FACTS, kind=RuleKind.THRESHOLD, measure="faithful", value=0.58, threshold=0.6, answers=WORSE)
BY_LABELS = CorrectedRateView(value=0.58, low=0.4, high=0.7, judge_rate=0.5, answers=110, labels=110, task="labels")
POOLED: PooledNote = {
    "k": 5, "value": 0.776, "low": 0.139, "high": 1.0, "task": "truth", "assumes": "corrected for wrong grades",
    "self_judged": False, "edited_since": False, "queries": 40, "asked_queries": 40, "few_queries": False,
}  # fmt: skip
TITLED = {
    "handbook: 7 of 113 questions got worse: chunks missing from the index": REGRESSION,
    "handbook-weekly: 7 of 113 questions got worse": replace(
        REGRESSION, check="handbook-weekly", changed=replace(LOST, causes={})
    ),
    "handbook-weekly: 7 of 113 questions got worse: missing from the index": replace(
        REGRESSION, check="handbook-weekly"
    ),
    "handbook: 7 of 113 questions got worse: 5 missing, 2 outranked": replace(
        REGRESSION, changed=replace(LOST, causes={Cause.MISSING: 5, Cause.OUTRANKED: 2})
    ),
    "handbook-of-all-teams: 7 of 113 questions got worse": replace(
        REGRESSION,
        check="handbook-of-all-teams",
        changed=replace(
            LOST,
            causes={Cause.UNSTABLE: 7},
            shared_cause="hits are gone from within answers here and there",
        ),
    ),
    "handbook: 7 of 113 questions are degraded: missing from the index": replace(
        COVERAGE, changed=replace(LOST, compared=False)
    ),
    "handbook: 7 of 113 questions are degraded: edited in the suite": replace(
        COVERAGE,
        changed=replace(
            LOST,
            causes={},
            compared=False,
            edited=True,
            shared_cause="longer than a title is " * 9,
            shared_brief=REDEFINED_BRIEF,
        ),
    ),
    "handbook: coverage 0.830, below 0.9": COVERAGE,
    "handbook: R@5 (self-judged) 0.830, below 0.9": replace(COVERAGE, measure="R@5", self_judged=True),
    "handbook: coverage fell from 0.974 to 0.830": replace(COVERAGE, kind=RuleKind.DROP, baseline=0.974),
    "handbook: question refunds got worse": replace(FACTS, kind=RuleKind.CANARY, canary="refunds"),
    "handbook: it got worse": FACTS,
    "handbook: 7 of 87 canaries without an expected chunk": replace(
        FACTS, reason="7 of 87 canaries without an expected chunk; 3 canaries newly fail (critical)."
    ),
    "handbook: 40 of 110 answers got worse by the judge": FAITHFUL,
    "handbook: 40 of 110 answers of both runs got worse by the judge": replace(
        FAITHFUL, answers={**WORSE, "came": 140}
    ),
    "handbook: R@5 (pooled 0.776 (0.139 to 1.000)) 0.830, below 0.9": replace(
        COVERAGE, measure="R@5", pooled_recall=[POOLED]
    ),
    "a-handbook: R@5 (self-judged) 0.830, below 0.9": replace(
        COVERAGE, check="a-handbook", measure="R@5", self_judged=True, pooled_recall=[POOLED]
    ),  # there is no room for both
    "handbook: 40 of 110 answers got worse (by an uncalibrated judge)": replace(FAITHFUL, uncalibrated=True),
    "handbook: faithful (the judge alone) 0.580, below 0.6": replace(FAITHFUL, answers=None),
    "handbook: faithfulness (mean share by the judge) 0.580, below 0.6": replace(
        FAITHFUL, answers=None, measure="faithfulness"
    ),
    "handbook: faithful corrected (uncalibrated) 0.580, below 0.6": replace(
        FAITHFUL, answers=None, uncalibrated=True, corrected=BY_LABELS
    ),
    "handbook: p95 latency 1.31 s, above 800 ms": LATENCY,
    "handbook: p95 latency 1.31 s, usually 400 ms": replace(LATENCY, baseline=0.4),
    "handbook: answers take too long": replace(LATENCY, kind=RuleKind.SLOWER, value=None),
    "handbook: it cannot be measured: embedder answers HTTP 500": OUTAGE,
    "handbook: it cannot be measured: embedder answers HTTP 503": replace(
        OUTAGE, failure=replace(HTTP_500, error="answers HTTP 503: “the shard that holds these documents is away”")
    ),
    "handbook: it cannot be measured": replace(OUTAGE, failure=None),
    "handbook: 40 of 143 probes failed": replace(
        OUTAGE, failure=replace(HTTP_500, count=40, failed=40, error="answers HTTP 500 " * 4), unknown=False
    ),
    "handbook: 45 of 143 probes failed: retriever answers HTTP 500": replace(
        OUTAGE,
        failure=replace(
            HTTP_500, step=Step.RETRIEVER, count=45, failed=45, error="answers HTTP 500: “told to fail, now”"
        ),
        unknown=False,
    ),
    "handbook: no run completed for 2 h": replace(FACTS, kind=RuleKind.NO_DATA, at=OPENED + timedelta(hours=2)),
    "handbook: the embedding model changed": replace(FACTS, kind=RuleKind.EMBEDDING),
    "handbook: still: 7 of 113 questions got worse: missing from the index": replace(
        REGRESSION, change=TransitionType.REMINDED
    ),
    "handbook: updated: 7 of 113 questions got worse": replace(REGRESSION, change=TransitionType.UPDATED),
    "handbook: now critical: 7 of 113 questions got worse": replace(REGRESSION, change=TransitionType.ESCALATED),
    "handbook-daily: 7 of 113 questions got worse: missing from the index": replace(
        REGRESSION,
        check="handbook-daily",
        changed=replace(LOST, causes={}, shared_cause="chunks missing from the index"),
    ),
    "handbook: acknowledged: 7 of 113 questions got worse": replace(REGRESSION, change=TransitionType.ACKNOWLEDGED),
    "handbook: recovered after 3 min": replace(
        REGRESSION, change=TransitionType.RESOLVED, at=OPENED + timedelta(minutes=3), changed=None
    ),
    "handbook: recovered after 3 min, but 7 questions are worse": replace(
        REGRESSION, change=TransitionType.RESOLVED, at=OPENED + timedelta(minutes=3)
    ),
    "handbook: closed after 3 min: its rule was removed": replace(
        REGRESSION, change=TransitionType.RESOLVED, at=OPENED + timedelta(minutes=3), retired="its rule was removed"
    ),
}


@pytest.mark.parametrize(("title", "facts"), TITLED.items())
def test_a_title_says_what_happened_in_few_words(title: str, facts: AlertFacts) -> None:
    assert incident_title(facts) == title


@pytest.mark.parametrize("check", ["a", "handbook", "x" * 64])
@pytest.mark.parametrize("facts", TITLED.values())
def test_a_title_is_never_longer_than_a_list_of_mails_shows(facts: AlertFacts, check: str) -> None:
    for change in (None, *TransitionType):
        title = incident_title(replace(facts, check=check, change=change, canary="k" * 64))
        assert len(title) < 70
        assert len(title.split()) <= 20
        assert title.startswith(check[:20])
