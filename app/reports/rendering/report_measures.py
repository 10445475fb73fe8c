"""Measures of a run for a report: the lead numbers, tables of means with intervals, and lines about recall.

The tables are by cut-off, over whole rankings, by category and by composition. An undefined number is shown as a dash,
never as 0.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from app.base.texts import MEAN_SHARE, Table, beside_text, corrected_label, counted, measure_words, number, plain
from app.base.values import EMPTY, FAITHFUL, ROUNDING, CorrectedRateView, corrected_name, marked_name
from app.catalog.domain import EDITED_SINCE, SELF_JUDGED, judgment_lines, labelled, pooled_condition, pooled_text
from app.scoring.measures import RECALL_BY

CUT_MEASURES = ("Hit", "P", "R", "R_id", "R_passage", "F1", "NDCG", "NDCG_exp", "ERR", "MRR", "Judged")
"""The order of rows in the table over k; others follow."""
ERR_SCALE: Final = "ERR has a scale of its own: a perfect answer of grade 1 has 0.125, one of grade 3 0.875"
"""What is said wherever ERR is shown, without a full stop."""
INTERVAL_NOTE: Final = (
    "in parentheses the 95 % interval over the canaries (bootstrap), "
    "none below 10 canaries and where all score the same"
)
_WORTH_A_NOTE: Final = 0.3
"""Least difference between recall by passage and by id that gets a note."""
_NO_INTERVALS: Final[Mapping[str, Any]] = MappingProxyType({})


def lead_line(report: Mapping[str, Any]) -> str:
    """Return the numbers to read first, `NDCG@10 0.812 (0.750 to 0.871), R@5 0.900`; "" where there are none."""
    return ", ".join(" ".join(filter(None, one)) for one in lead_numbers(report))


def lead_numbers(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, mean and interval ("" = none) of the measures to read first; none of a report without a guide."""
    run, guide = report["run"], report.get("guide")
    if guide is None or not run["canaries"]["measured"]:
        return []
    own, pooled = run.get("self_judged"), run.get("pooled_recall", ())
    return [
        (labelled(name, self_judged=own, pooled=pooled), *_estimate(run, name, _intervals(report)).partition("\n")[::2])
        for name in dict.fromkeys((guide["measure"], guide["recall"]))
    ]


def measure_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return the tables of measures of the whole run and by category; those at every cut-off of each are apart."""
    run = report["run"]
    if not run["canaries"]["measured"]:
        return []
    intervals, guide, confirmed = _intervals(report), report.get("guide"), report.get("confirmed", ())
    rated = report.get("rated", EMPTY)
    return [
        cutoff_table(run, intervals, guide, self_judged=run.get("self_judged")),
        whole_table(run, intervals, confirmed=confirmed, corrected=report.get("corrected", EMPTY), rated=rated),
        category_table(run, report),
    ]


def category_cutoff_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return a table of measures by cut-off for each category that has any, where there are several categories."""
    categories = report["run"].get("categories") or {}
    if len(categories) < 2 or not report["run"]["canaries"]["measured"]:  # noqa: PLR2004 - one alone is the run itself
        return []
    intervals = report.get("intervals", {}).get("categories", {})
    tables = []
    for name, part in categories.items():
        if any("@" in measure and value is not None for measure, value in part["measures"].items()):
            own = report["run"].get("self_judged")
            table = cutoff_table(part, intervals.get(name, _NO_INTERVALS), report.get("guide"), self_judged=own)
            title = plain(name).replace("_", " ")
            tables.append(Table(title=title, columns=table.columns, rows=table.rows))
    return [table for table in tables if table.rows]


def recall_lines(run: Mapping[str, Any]) -> list[str]:
    """Return what to know of the recall of a run: whose judgments it is by, that chunks have other ids."""
    retriever, others = str(run.get("retriever")), run.get("judged_by")
    judged = judgment_lines(
        retriever,
        self_judged=run.get("self_judged"),
        others=others,
        judged_before_edit=run.get("judged_before_edit"),
    )
    return [*judged, *recall_gap_lines(run["measures"])]


def recall_gap_lines(measures: Mapping[str, Any]) -> list[str]:
    """Return a line where recall by passage is well above recall by id at the deepest k: the chunks have other ids."""
    depths = [
        name[len("R_id@") :] for name, value in measures.items() if name.startswith("R_id@") and value is not None
    ]
    if not depths:
        return []
    deepest = max(depths, key=int)
    by_id, by_passage = measures[f"R_id@{deepest}"], measures.get(f"R_passage@{deepest}")
    if by_passage is None or by_passage - by_id < _WORTH_A_NOTE - ROUNDING:
        return []
    return [f"recall by id {by_id:.2f}, by passage {by_passage:.2f}: the expected texts have other ids"]


def pooled_recall_lines(recalls: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line on the estimate at the deepest k of each retriever, with its interval and what it is a share of."""
    deepest: dict[str, Mapping[str, Any]] = {}
    for one in recalls:
        if one["value"] is not None and one["k"] >= deepest.get(one["retriever"], one)["k"]:
            deepest[one["retriever"]] = one
    lines = []
    for one in deepest.values():
        interval = f"({one['low']:.2f} to {one['high']:.2f})"
        labels = [SELF_JUDGED] * bool(one.get("self_judged")) + [EDITED_SINCE] * bool(one.get("edited_since"))
        own = f" ({', '.join(labels)})" if labels else ""
        lines.append(
            f"pooled recall@{one['k']} of {one['retriever']} {one['value']:.2f} {interval}{own} {one['frame']}, "
            f"by {counted(one['queries'], 'query')} of task {one['task']}; {one['assumes']}"
        )
    return lines


def cutoff_table(
    run: Mapping[str, Any],
    intervals: Mapping[str, Any] = _NO_INTERVALS,
    guide: Mapping[str, Any] | None = None,
    *,
    self_judged: bool | None = None,
) -> Table:
    """Return the means of the measures with a cut-off, one row per measure and one column per k.

    `guide`: its measure comes first, then recall, which is labelled where it is `self_judged`; pooled recall stands
    below R where it is known. Those of `RECALL_BY` have a row only where they are defined.
    """
    cells: dict[str, dict[int, Any]] = {}
    for name, value in run["measures"].items():
        base, at, k = name.partition("@")
        if at and k.isdigit():
            cells.setdefault(base, {})[int(k)] = value
    for name in RECALL_BY:
        if all(value is None for value in cells.get(name, {}).values()):
            cells.pop(name, None)
    ks = sorted({k for row in cells.values() for k in row})
    # Columns beyond fetch_k are always empty and left out, unless all are.
    ks = [k for k in ks if any(row.get(k) is not None for row in cells.values())] or ks
    lead = () if guide is None else (guide["measure"].partition("@")[0], guide["recall"].partition("@")[0])
    order = [name for name in dict.fromkeys((*lead, *CUT_MEASURES, *cells)) if name in cells]
    rows = [
        (labelled(name, self_judged=self_judged), *(_estimate(run, f"{name}@{k}", intervals) for k in ks))
        for name in order
    ]
    estimates = run.get("pooled_recall", ())
    pooled = {one["k"]: pooled_text(one, conditional=False) for one in estimates}
    if "R" in order and pooled:
        condition = pooled_condition(estimates)
        name = f"pooled recall ({condition})" if condition else "pooled recall"
        rows.insert(order.index("R") + 1, (name, *(pooled.get(k, "") for k in ks)))
    notes = [INTERVAL_NOTE] * bool(intervals) + [ERR_SCALE] * ("ERR" in cells)
    return Table(title="Measures", columns=("measure", *(f"@{k}" for k in ks)), rows=tuple(rows), note="; ".join(notes))


def whole_table(
    run: Mapping[str, Any],
    intervals: Mapping[str, Any] = _NO_INTERVALS,
    *,
    confirmed: Collection[str] = (),
    corrected: Mapping[str, CorrectedRateView] = EMPTY,
    rated: Mapping[str, str] = EMPTY,
) -> Table:
    """Return the means of the measures over the whole ranking; those of a judge are marked unless `confirmed`.

    Rates `corrected` by labels, by what the judge says, have their interval and the judge's own rate beside them; the
    judge's mean of shares, which is another number, is called so beside such a rate. `rated`: by what the judge says,
    of how many answers it is, where it did not rate all; see `generated.rated_texts`.
    """
    shares = {said for said in corrected if said != FAITHFUL}
    rates = {corrected_name(said): rate for said, rate in corrected.items()}
    whole = [
        (
            measure_words(marked_name(name, confirmed)),
            _estimate(run, name, intervals, _of_judge(name, shares, rated))
            if name not in rates
            else f"{number(run['measures'][name])}\n({beside_text(rates[name])})",
        )
        for name in run["measures"]
        if "@" not in name
    ]
    notes = [
        f"{corrected_label(said)}: by {counted(rate['labels'], 'label')} of task {rate['task']}, in parentheses the "
        f"95 % interval and what the judge says of {counted(rate['answers'], 'answer')}"
        for said, rate in corrected.items()
    ]
    return Table(title="Over the whole ranking", columns=("measure", "value"), rows=tuple(whole), note="; ".join(notes))


def _of_judge(name: str, shares: Collection[str], rated: Mapping[str, str]) -> str:
    return "; ".join(filter(None, (MEAN_SHARE if name in shares else "", rated.get(name, ""))))


def category_table(run: Mapping[str, Any], report: Mapping[str, Any] = _NO_INTERVALS) -> Table:
    """Return one row per category, where there are several: canaries, coverage, first-hit relevance and uncut measures.

    With the guide of a report its measure and recall come before the others.
    """
    categories = run.get("categories") or {}
    guide = report.get("guide") or {}
    intervals = report.get("intervals", {}).get("categories", {})
    lead = [guide[name] for name in ("measure", "recall") if name in guide]
    names = [name for part in categories.values() for name in part["measures"] if "@" not in name]
    columns = tuple(dict.fromkeys([*lead, *names]))
    rows = tuple(
        (
            measure_words(plain(category)),
            str(part["canaries"]),
            *(number(part[name]) for name in ("coverage", "health_score")),
            *(_estimate(part, name, intervals.get(category, _NO_INTERVALS)) for name in columns),
        )
        for category, part in categories.items()
        if len(categories) > 1
    )
    heads = (measure_words(labelled(name, self_judged=run.get("self_judged"))) for name in columns)
    own = ("coverage", measure_words("health_score"))
    return Table(title="Categories", columns=("category", "canaries", *own, *heads), rows=rows)


def composition_table(report: Mapping[str, Any]) -> Table:
    """Return the canaries by category and segment with targets, and notes on unusual numbers of expected chunks.

    Without segments where no canary states its own; no rows where there is nothing to note then.
    """
    found = report.get("composition") or {"categories": [], "segments": [], "notes": []}
    segments = [one["segment"] for one in found["segments"]] if any(s["canaries"] for s in found["segments"]) else []
    note = "; ".join(map(plain, found["notes"]))
    if not segments and not note:
        return Table(title="Composition", columns=(), rows=())
    rows = [
        (
            measure_words(plain(one["category"])),
            *(str(one["segments"][name]) for name in segments),
            str(one["not_stated"] if segments else one["not_stated"] + sum(one["segments"].values())),
        )
        for one in found["categories"]
    ]
    if segments:
        rows.append(("all", *(str(one["canaries"]) for one in found["segments"]), str(found["not_stated"])))
        rows.append(("to have at least", *(str(one["target"]) for one in found["segments"]), ""))
    columns = ("category", *segments, "not stated" if segments else "canaries")
    return Table(title="Composition", columns=columns, rows=tuple(rows), note=note)


def _intervals(report: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = report.get("intervals", {}).get("run", _NO_INTERVALS)
    return found


def _estimate(run: Mapping[str, Any], name: str, intervals: Mapping[str, Any], what: str = "") -> str:
    """Return a mean and, on a line of its own, `what` it is, where that is not plain, and its interval if any."""
    value, interval = run["measures"].get(name), intervals.get(name)
    if value is None:
        return number(value)
    span = "" if interval is None else f"{number(interval['low'])} to {number(interval['high'])}"
    beside = "; ".join(filter(None, (what, span)))
    return f"{number(value)}\n({beside})" if beside else number(value)
