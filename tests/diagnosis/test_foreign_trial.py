"""The trial on retrievers of others: its judge is strict, and a small cut of it runs on SQLite FTS5 over the demo."""

from pathlib import Path

import pytest

from benchmarks.foreign.collections import DEMO, read
from benchmarks.foreign.endpoints import Fts5
from benchmarks.foreign.faults import faults, told
from benchmarks.foreign.trial import Plan, read_rows, try_pair

FAULTS = {fault.name: fault for fault in faults()}
LOSS = FAULTS["5 % of the documents lost, refitted"]


@pytest.mark.parametrize(
    ("summary", "verdict"),
    [
        ("4 canaries lost their expected chunk: chunks missing from the index", "right"),
        ("4 canaries degraded: 3 missing from the index, 1 with other scores", "right"),
        ("4 canaries degraded: 3 missing from the index, 9 others not explained yet", "partly"),
        ("9 canaries degraded: 7 missing from the index, 6 with other scores, 6 outranked", "partly"),
        ("9 canaries degraded: 7 with other scores, 2 missing from the index", "partly"),
        ("9 canaries degraded: scores of the same chunks changed: another encoder or another scoring", "wrong"),
        ("9 canaries degraded", "none"),
    ],
)
def test_cause_is_right_only_if_it_leads_and_nothing_misleads_beside_it(summary: str, verdict: str) -> None:
    assert LOSS.verdict(summary, [])[0] == verdict


def test_name_within_a_longer_name_is_no_cause_of_its_own() -> None:
    assert told("chunks re-cut under other ids") == ("rechunked",)
    assert told("scores of the same chunks changed (by 5 %: another encoder or another scoring)") == ("encoder",)


def test_each_fault_has_a_name_and_a_system_that_can_have_it() -> None:
    assert len(FAULTS) == len(faults()) >= 36


@pytest.mark.systems
def test_small_cut_of_the_trial_is_noticed_named_and_healed(tmp_path: Path) -> None:
    names = [
        "texts cut to 60 in answers",
        "scores rescaled",
        "half of the shards lost, refitted",
        "every answer empty",
        "every second answer of a stale replica",
    ]
    out = tmp_path / "rows.jsonl"
    try_pair(Fts5, read(DEMO), Plan(faults=[FAULTS[name] for name in names], healthy_runs=24, out=out))
    healthy, cut, rescaled, *others = read_rows(out)
    assert (healthy.false_pages, rescaled.false_pages) == (0, 0)
    assert (cut.right, cut.wrong, cut.missing) == (10, 0, 0)
    assert [row.noticed for row in (cut, *others[:-1])] == [1, 1, 1]  # which run asks the lagging replica is chance
    for row in (cut, *others):
        assert (row.verdict, row.pages, row.resolves) == ("right", 1, 1), (row.fault, row.summary)
