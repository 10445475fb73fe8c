"""Lines and tables of a report on what changed since another run of the check."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.base.documents.plain_text import UNDEFINED, Table, number, plain, shorten
from app.base.number_text import change_text
from app.comparison.documents.comparison_sentences import BEFORE_AND_NOW, claim_text
from app.comparison.domain.outcomes import Claim, Side
from app.comparison.domain.run_diff import Change

_COUNTED = (Change.DEGRADED, Change.HEALED, Change.WORSE, Change.BETTER, Change.RERANKED, Change.SAME, Change.UNKNOWN)


def change_lines(report: Mapping[str, Any]) -> list[str]:
    """Return what changed in sentences without full stops: the decision, cautions, canaries, other configuration."""
    since = report.get("since")
    if since is None:
        return []
    decision = since["decision"]
    changed = ", ".join(f"{since['changes'][one]} {one}" for one in _COUNTED if since["changes"].get(one))
    return [
        f"since run {since['before']['id']}: {decision['sentence']}",
        *(caution["sentence"] for caution in decision["cautions"]),
        *([f"canaries since run {since['before']['id']}: {changed}"] if changed else []),
        *since["differences"],
    ]


def change_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return the non-empty tables of what changed: the primary measures, and canaries that degraded or healed."""
    since = report.get("since")
    if since is None:
        return []
    before = f"since run {since['before']['id']}"
    tables = [
        _measures(since["decision"]["primary"], f"Change {before}"),
        _canaries(since["degraded"], f"Degraded {before}"),
        _canaries(since["healed"], f"Healed {before}"),
    ]
    return [table for table in tables if table.rows]


def _measures(primary: Sequence[Mapping[str, Any]], title: str) -> Table:
    columns = ("measure", "before", "now", "difference", "95 % interval", "result")
    rows = tuple(
        (
            str(one["measure"]),
            number(one["a"]),
            number(one["b"]),
            _change(one["difference"]),
            UNDEFINED if one["low"] is None else f"{_signed(one['low'])} to {_signed(one['high'])}",
            claim_text(_member(Claim, one["claim"]), _member(Side, one["winner"]), names=BEFORE_AND_NOW),
        )
        for one in primary
    )
    return Table(title=title, columns=columns, rows=rows)


def _canaries(changed: Sequence[Mapping[str, Any]], title: str) -> Table:
    rows = tuple(
        (
            plain(str(one["key"])),
            shorten(str(one["query"]), 100),
            _rank(one["rank_before"]),
            _rank(one["rank_now"]),
            ", ".join(str(reason).replace("_", " ") for reason in one["reasons"]) or UNDEFINED,
        )
        for one in changed
    )
    columns = ("canary", "query", "rank before", "rank now", "reasons")
    return Table(title=title, columns=columns, rows=rows, quoted=frozenset({0, 1}))


def _member(kind: Any, value: Any) -> Any:
    return None if value is None else kind(value)


def _rank(rank: int | None) -> str:
    return "not found" if rank is None else str(rank)


def _signed(value: float | None) -> str:
    return number(None) if value is None else f"{value:+.3f}"


def _change(difference: float | None) -> str:
    return number(None) if difference is None else change_text(difference)
