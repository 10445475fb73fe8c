"""Decision of a comparison: two runs read with their results and compared, or two reports; and its view.

Pages, API, CLI and diffs share it; `comparisons` shows it. Reports of the gate, a saved one and that of now, hold
scores and no matches: both are compared at the deepest cut-off, up to 10, that both were computed for.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final

import numpy as np

from app.base.db.engine import Connection
from app.base.errors import ConflictError
from app.base.values import Canary, Category, Judgment, Outcome, Verdict
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.domain import Use
from app.catalog.service.references import find_run
from app.catalog.service.snapshots import is_self_judged
from app.comparison.documents import BEFORE_AND_NOW, SideNames, caution_sentence, exclusion_sentence, headline
from app.comparison.domain import (
    COVERAGE,
    ComparisonOutcome,
    Decided,
    Decision,
    Depth,
    Estimate,
    Floats,
    Members,
    Pairing,
    common_depth,
    compare,
    pair_canaries,
    primary_measures,
)
from app.comparison.views import ComparedCategory, ComparedMeasure, ComparisonDecision, RecallLoss, RunOutline
from app.records.service import figures
from app.records.store import results
from app.records.store.queue import Failure
from app.records.store.results import RunRow, StateRow
from app.scoring.matching import Match, match
from app.scoring.measures import CUTOFFS, Measure, mean_name, parse_measure, scores_at_depth
from app.scoring.runs import RunInputs

HEALTH_SCORE: Final = "health_score"
_WHOLE: Final = {"MRR": "RR", "MAP": "AP", "duplicate_ratio": "duplicate_ratio"}
"""Measures of whole rankings, by the names of their means: they depend on how many hits were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run with its results. Positions count along the canaries of its suite version."""

    row: RunRow
    inputs: RunInputs
    states: Sequence[StateRow | None]
    """None = not measured."""
    failures: Mapping[int, Failure]
    outline: RunOutline
    retriever: str
    retriever_version: int | None
    use: Use
    """Of its check at that time."""

    @property
    def canaries(self) -> Sequence[Canary]:
        """The canaries by position."""
        return self.inputs.canaries

    @property
    def base_version(self) -> str | None:
        """The version of the measures by which its rankings were matched: 2 where that of a re-scoring is 2.r7."""
        version = self.row.measures_version
        return None if version is None else version.partition(".r")[0]

    @property
    def members(self) -> Members:
        """The canaries, and whether the run measured them."""
        return Members(canaries=self.canaries, measured=[state is not None for state in self.states])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs compared: pairs, depth, what is decided, and the scores it is decided by."""

    a: ComparedRun
    b: ComparedRun
    pairing: Pairing
    depth: Depth
    outcome: ComparisonOutcome
    scores: tuple[Mapping[str, Floats], Mapping[str, Floats]]
    """Columns of both by the names of means, a row for each pair; NaN = undefined."""

    @property
    def ordering(self) -> str:
        """The measure that canaries are ordered by: the first primary one."""
        return primary_measures(self.depth, self.a.use)[0]


def read_run(connection: Connection, run_id: str, version: str | None = None) -> ComparedRun:
    """Read a run with its results, by another measures version where one is named.

    Raises NotFoundError for a run that is not there, ConflictError for one that has not ended or was never carried out,
    InvalidInputError for a version that is not there.
    """
    row = find_run(connection, run_id)
    if row.status not in results.ENDED:
        raise ConflictError(f"run '{row.id}' has not ended yet")
    if not row.aggregates:
        raise ConflictError(f"run '{row.id}' was never carried out; there is nothing to compare")
    row, anew = figures.load_version(connection, row, version)
    inputs = figures.inputs_of_run(connection, row, anew)
    by_canary = figures.states_of(connection, row, inputs, anew)
    _, failures = results.probes_of(connection, row.id)
    assert row.check_version_id is not None  # noqa: S101 - it has inputs
    check = catalog.version_body(connection, row.check_version_id).body
    return ComparedRun(
        row=row,
        inputs=inputs,
        states=[
            None if place in failures else by_canary.get(member.canary_id)
            for place, member in enumerate(inputs.suite.members)
        ],
        failures=failures,
        outline=view_of(
            RunOutline,
            check,
            row,
            id=str(row.id),
            verdict=None if row.verdict is None else Verdict(row.verdict),
            suite_hash=inputs.suite.hash,
            self_judged=is_self_judged(
                connection, inputs.suite.judgment_sources, check["retriever"], depth=inputs.yardstick.fetch_k
            ),
        ),
        retriever=check["retriever"],
        retriever_version=row.retriever_version_id,
        use=Use(check.get("use", Use.GENERAL)),
    )


def compare_runs(connection: Connection, a: ComparedRun, b: ComparedRun) -> Comparison:
    """Compare two runs over the canaries that both measured and that expect the same, to the depth both have."""
    old, new = a.inputs.yardstick, b.inputs.yardstick
    depth = common_depth(k=(old.k, new.k), fetch_k=(old.fetch_k, new.fetch_k))
    pairing = pair_canaries(a.members, b.members)
    read = partial(
        _columns,
        connection,
        depth=depth,
        cutoffs=sorted({one.k for one in (*old.measures, *new.measures) if one.k} | {depth.k, depth.ndcg}),
        anew=a.base_version != b.base_version,
        with_relevance=old.scorer == new.scorer,
    )
    first, second = (read(one, [pair[side] for pair in pairing.places]) for side, one in enumerate((a, b)))
    outcome = compare(
        first,
        second,
        primaries=primary_measures(depth, a.use),
        categories=[b.canaries[place].category for _, place in pairing.places],
    )
    return Comparison(a=a, b=b, pairing=pairing, depth=depth, outcome=outcome, scores=(first, second))


def stored_columns(connection: Connection, states: Sequence[StateRow | None]) -> dict[str, Floats]:
    """Return the columns of stored vectors by the names of canaries' measures; those of an older layout may lack some.

    NaN = undefined or not measured.
    """
    columns: dict[str, Floats] = {}
    places: dict[int, list[int]] = {}
    for place, state in enumerate(states):
        if state is not None:
            places.setdefault(state.layout_id, []).append(place)
    for layout, positions in sorted(places.items()):
        names = results.layout_names(connection, layout)
        packed = b"".join(state.vector for place in positions if (state := states[place]) is not None)
        table = np.frombuffer(packed).reshape(len(positions), len(names))
        for name, values in zip(names, table.T, strict=True):
            columns.setdefault(name, np.full(len(states), np.nan))[positions] = values
    return columns


def _columns(
    connection: Connection,
    run: ComparedRun,
    places: Sequence[int],
    *,
    depth: Depth,
    cutoffs: Sequence[int],
    anew: bool,
    with_relevance: bool,
) -> dict[str, Floats]:
    """Return the scores of these canaries of a run, by the names of means.

    `anew`: rankings are matched again, since those of the two runs were matched by different versions of the measures.
    """
    states = [state for place in places if (state := run.states[place]) is not None]
    prepared = [run.inputs.panel.prepared(place) for place in places]
    if anew:
        rankings = results.load_rankings(connection, sorted({state.ranking_id for state in states}))
        matches = [match(one, rankings[state.ranking_id]) for one, state in zip(prepared, states, strict=True)]
    else:
        matches = [Match.from_bytes(state.matched) for state in states]
    cut = scores_at_depth(matches, prepared, cutoffs=cutoffs, depth=depth.m)
    columns = {
        f"M{name}" if name.startswith("AP@") else mean_name(parse_measure(name)): column for name, column in cut.items()
    }
    columns[COVERAGE] = cut[str(Measure("Hit", depth.k))]
    if depth.equal and not anew:
        stored = stored_columns(connection, states)
        columns |= {mean: stored[name] for mean, name in _WHOLE.items() if name in stored}
        del columns[f"MAP@{depth.m}"]
    if with_relevance:
        columns[HEALTH_SCORE] = np.array([np.nan if one.top_score is None else one.top_score for one in states])
    return columns


Report = Mapping[str, Any]

_DEEPEST: Final = 10
_DIGITS: Final = 16


def expectation_digest(canary: Canary) -> str:
    """Return a digest of what a canary asks and expects; "" where nothing is expected. The order does not matter."""
    if not canary.expects:
        return ""
    judgments = sorted(json.dumps([one.id, one.document, one.text, one.grade]) for one in canary.judgments)
    return sha256(json.dumps([canary.query, judgments]).encode()).hexdigest()[:_DIGITS]


def decide_reports(before: Report, now: Report, use: Use = Use.GENERAL) -> ComparisonDecision | None:
    """Decide what changed between two reports of one check; None where they cannot be compared at all.

    `use` is that of the check, whose measure comes first.

    They cannot where the measures are of other versions, where no cut-off is in both, where the suite changed and the
    older report does not say what its canaries expected, and where its results are not those of a report.
    """
    if not all(map(_is_result, before["results"])):
        return None
    if before["run"].get("measures_version") != now["run"].get("measures_version"):
        return None
    digests = _digests(before), _digests(now)
    if before["run"].get("suite_hash") == now["run"].get("suite_hash"):
        digests = digests[1] or digests[0], digests[1] or digests[0]
    elif None in digests:
        return None
    depth = _depth(before["results"], now["results"])
    if depth is None:
        return None
    names = _names(now["results"], depth)
    pairing = pair_canaries(_members(before, digests[0]), _members(now, digests[1]))
    old, new = (
        {
            mean: np.array([_score(report["results"][pair[side]], name) for pair in pairing.places], dtype=np.float64)
            for mean, name in names.items()
        }
        for side, report in enumerate((before, now))
    )
    outcome = compare(
        old,
        new,
        primaries=primary_measures(depth, use),
        categories=[now["results"][place]["category"] for _, place in pairing.places],
    )
    return decision_shape(outcome, pairing, depth, BEFORE_AND_NOW)


def same_expectations(before: Report, now: Mapping[str, str]) -> set[str] | None:
    """Return the keys of canaries that a saved report expects the same of as `now`; None = the report does not say."""
    digests = _digests(before)
    return None if digests is None else {key for key, digest in digests.items() if now.get(key) == digest}


def _digests(report: Report) -> Mapping[str, str] | None:
    """Return the digests of a report's canaries by key; None = it was saved by a release that wrote none."""
    found = report.get("expectations")
    return found if isinstance(found, Mapping) and all(isinstance(one, str) for one in found.values()) else None


def _depth(before: Sequence[Report], now: Sequence[Report]) -> Depth | None:
    """Return the depth both reports were computed for: the deepest NDCG that some canary has in each."""
    common = [
        cut
        for cut in CUTOFFS
        if cut <= _DEEPEST
        and all(any(_score(one, f"NDCG@{cut}") is not None for one in side) for side in (before, now))
    ]
    ks = [one["k"] for side in (before, now) for one in side[:1]]
    if not common or len(ks) < 2:  # noqa: PLR2004 - one of each
        return None
    m = max(common)
    return Depth(k=min(*ks, m), m=m, equal=False)


def _members(report: Report, digests: Mapping[str, str] | None) -> Members:
    """Return the canaries of a report; one judgment, equal where they are, stands for all of a canary's."""
    canaries = []
    for one in report["results"]:
        digest = one["key"] if digests is None else digests.get(one["key"], "")
        canaries.append(
            Canary(
                key=one["key"],
                query=one["query"],
                category=Category(one["category"]),
                judgments=(Judgment(id=digest),) if digest else (),
            )
        )
    return Members(canaries=canaries, measured=[one["outcome"] == Outcome.OK for one in report["results"]])


def _is_result(result: Any) -> bool:
    """Whether a saved result has what a comparison reads."""
    known = isinstance(result, Mapping) and isinstance(result.get("measures"), Mapping)
    return (
        known
        and isinstance(result.get("query"), str)
        and isinstance(result.get("k"), int)
        and result.get("outcome") in list(Outcome)
        and result.get("category") in list(Category)
    )


def _names(results: Sequence[Report], depth: Depth) -> Mapping[str, str]:
    """Return the measures of the top hits down to a depth: names of single canaries by the names of their means."""
    measures = [parse_measure(name) for name in dict.fromkeys(name for one in results for name in one["measures"])]
    cut = {mean_name(measure): str(measure) for measure in measures if measure.k is not None and measure.k <= depth.m}
    return {**cut, COVERAGE: f"Hit@{depth.k}"}


def _score(result: Report, name: str) -> float | None:
    score = result.get("measures", {}).get(name)
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else None


_KEYS: Final = 20
"""Number of canaries that are named for each reason why they are not compared."""


def decision_shape(outcome: ComparisonOutcome, pairing: Pairing, depth: Depth, names: SideNames) -> ComparisonDecision:
    """Return the view of a comparison's decision."""
    return {
        "verdict": outcome.verdict,
        "sentence": headline(outcome, names),
        "cautions": _cautions(outcome, depth, names),
        "canaries": outcome.pairs,
        "excluded": [
            {
                "reason": reason,
                "canaries": len(keys),
                "keys": list(keys[:_KEYS]),
                "sentence": exclusion_sentence(reason, keys, names),
            }
            for reason, keys in pairing.excluded.items()
        ],
        "k": depth.k,
        "depth": depth.m,
        "primary": _decided(outcome.decisions),
        "exploratory": [_measure(one) for one in outcome.exploratory],
        "by_category": [
            view_of(
                ComparedCategory,
                one,
                canaries=one.pairs,
                measures=_decided(one.decisions),
                cautions=_cautions(one, depth, names),
            )
            for one in outcome.categories
        ],
    }


def _cautions(outcome: Decided, depth: Depth, names: SideNames) -> list[RecallLoss]:
    return [
        view_of(RecallLoss, one, rounding=True, sentence=caution_sentence(one, names))
        for one in outcome.cautions(depth)
    ]


def _decided(decisions: Sequence[Decision]) -> list[ComparedMeasure]:
    return [_measure(one.estimate, one) for one in decisions]


def _measure(estimate: Estimate, decision: Decision | None = None) -> ComparedMeasure:
    decided = decision or dict.fromkeys(("corrected_p", "claim", "winner"))
    return view_of(ComparedMeasure, estimate, decided, rounding=True, canaries=estimate.pairs)
