"""Differences between two runs besides their answers: suite, configuration, measures. Values in, sentences out."""

from dataclasses import dataclass

from app.comparison.service.compared_runs import ComparedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """A sentence without its full stop, and whether it prevents a strict comparison of the runs' own numbers."""

    sentence: str
    strict: bool


def differences(a: ComparedRun, b: ComparedRun) -> list[RunDifference]:
    """Return what differs between two runs besides their answers; each sentence names the first run first."""
    old, new = a.inputs.yardstick, b.inputs.yardstick
    found = [
        (a.row.id == b.row.id, False, "both are one and the same run"),
        (
            a.outline["suite_hash"] != b.outline["suite_hash"],
            True,
            "the suites differ: only canaries with the same key, query and judgments are compared",
        ),
        (
            a.row.measures_version != b.row.measures_version,
            True,
            f"the numbers are of measures versions {a.row.measures_version} and {b.row.measures_version}",
        ),
        (
            old.k != new.k,
            True,
            f"k is {old.k} and {new.k}, which coverage and who is degraded depend on: compared at {min(old.k, new.k)}",
        ),
        (
            old.fetch_k != new.fetch_k,
            False,
            f"fetch_k differs, {old.fetch_k} and {new.fetch_k}: compared by {min(old.fetch_k, new.fetch_k)} hits",
        ),
        (old.scorer != new.scorer, True, "relevance is measured in different ways, which the health score depends on"),
        (
            a.row.check_id != b.row.check_id,
            False,
            f"the runs are of different checks, {a.row.check} and {b.row.check}",
        ),
        (
            a.retriever != b.retriever,
            False,
            f"different retrievers were asked, {a.retriever} and {b.retriever}",
        ),
        (
            a.retriever == b.retriever and a.retriever_version != b.retriever_version,
            False,
            f"retriever {b.retriever} was configured differently",
        ),
        (
            a.row.index_version != b.row.index_version,
            False,
            f"the index versions are {a.row.index_version or 'unknown'} and {b.row.index_version or 'unknown'}",
        ),
    ]
    return [RunDifference(sentence=sentence, strict=strict) for differs, strict, sentence in found if differs]
