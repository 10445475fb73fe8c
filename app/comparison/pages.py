"""The page of a comparison: two runs, checks or retrievers side by side, and one canary in both. They only read."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.answers.domain.trust import CORRECTING_LABELS
from app.base.api.requests import StoreDep, expensive, page_router
from app.base.documents.fields import did_you_mean
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.texts import shorten
from app.base.values import Value
from app.base.web.forms import Version, refuse_other
from app.base.web.pages import render
from app.comparison.domain.outcomes import Change, Claim, Side
from app.comparison.domain.sentences import A_AND_B, BEFORE_AND_NOW, RULED_OUT, SideNames, claim_text
from app.comparison.rendering import answers_basis, hint_mark, is_corrected, rated_text
from app.comparison.service import compared_runs, comparisons
from app.comparison.service.comparisons import RankPair, SideBySide
from app.comparison.views import CanaryDifference, ComparedMeasure
from app.records.service import run_views
from app.reports.service import check_details

router = page_router()

KINDS: Final = {"run": "runs", "check": "checks", "retriever": "retrievers"}
"""What may be compared: kind of a reference -> label."""
_FELL: Final = (Change.DEGRADED, Change.WORSE)
_ROSE: Final = (Change.HEALED, Change.BETTER)
SHOWN: Final[Mapping[str, tuple[Change, ...]]] = {
    "": (),
    "worse": _FELL,
    "better": _ROSE,
    "changed": tuple(change for change in Change if change is not Change.SAME),
}
"""Filters of canaries: parameter -> changes, none = all."""
_FORMER: Final = {"a": "worse", "b": "better"}
"""Filters as earlier releases named them."""
_CANARIES: Final = 25
_STATUS: Final = {InvalidInputError: 422, NotFoundError: 404, ConflictError: 409}
Reference = Annotated[str, Query(max_length=80)]


@router.get("/compare", response_model=None)
@expensive
def show_comparison(
    *,
    request: Request,
    store: StoreDep,
    a: Reference = "",
    b: Reference = "",
    what: str = "",
    show: str = "",
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    version: Version = "",
) -> Response:
    """Show two runs, checks or retrievers side by side; before both are chosen, only what to choose from."""
    refuse_other(show, (*SHOWN, *_FORMER), "show")
    refuse_other(what, ("", *KINDS), "what")
    wanted = {side: _reference(text, what) for side, text in (("a", a), ("b", b))}
    if what and all(wanted.values()):
        return RedirectResponse(f"/compare?{urlencode(wanted)}", status_code=303)
    show = _FORMER.get(show, show)
    kind = what or _kind_of(b or a) or "check"
    template = partial(render, request, "comparison/compare.html", kinds=KINDS, kind=kind, what=what, chosen=version)
    near = [text.partition(":")[2] for text in wanted.values() if text.startswith("run:")]
    typed = {side: _typed(text, kind) for side, text in wanted.items()}
    choices = run_views.list_choices(store, kind, near)
    if not (a or b) and kind != "run" and len(choices) == len(typed):  # there is nothing else to choose
        typed = {side: one.name for side, one in zip(typed, choices, strict=True)}
    form = partial(template, found=None, typed=typed, choices=choices)
    if not all(wanted.values()):
        return form(refused="")
    if wanted["a"] == wanted["b"]:
        return form(refused=f"both sides are {kind} {typed['a']}; choose another one to compare it with", status=422)
    try:
        found = comparisons.show_side_by_side(
            store,
            a,
            b,
            changes=SHOWN[show],
            gains_first=show == "better",
            after=after,
            limit=_CANARIES,
            version=version or None,
        )
    except (InvalidInputError, NotFoundError, ConflictError) as error:
        meant = _did_you_mean(kind, wanted.values(), choices) if isinstance(error, NotFoundError) else ""
        return form(refused=f"{error}{meant}", status=_STATUS[type(error)])
    of_one_check = found.names is BEFORE_AND_NOW
    runs = [found.a["id"], found.b["id"]]
    more = {"measures_version": version} if version else {}
    return template(
        found=found,
        typed=typed,
        choices=choices,
        of_one_check=of_one_check,
        notes=run_views.read_notes(store, runs),
        others=_others(run_views.find_candidates(store, runs[1]), runs) if of_one_check else (),
        names=(found.names.title[Side.A], found.names.title[Side.B]),
        within=(found.names.within[Side.A], found.names.within[Side.B]),
        won=found.names.won,
        won_of={"worse": _none_won(found.names, Side.A), "better": _none_won(found.names, Side.B)},
        claim=partial(claim_text, names=found.names),
        answers_basis=answers_basis,
        is_corrected=is_corrected,
        rated_text=rated_text,
        hint_mark=hint_mark,
        ruled_out=RULED_OUT,
        forest=draw_forest(found.decision["primary"]),
        forest_width=FOREST_WIDTH,
        ranks=count_ranks(found.ranks),
        bar_width=BAR_WIDTH,
        slopes=draw_slopes(found.ranks, found.names),
        slopes_width=SLOPES_WIDTH,
        slopes_left=SLOPES_LEFT,
        slopes_right=SLOPES_RIGHT,
        rows=_rows(found),
        show=show,
        shown={
            "": "all",
            "worse": found.names.won[Side.A],
            "better": found.names.won[Side.B],
            "changed": "changed",
        },
        counts={word: sum(found.changes[change] for change in SHOWN[word] or Change) for word in SHOWN},
        after=after,
        page_size=_CANARIES,
        here=f"/compare?{urlencode({'a': a, 'b': b, **more})}",
        swapped=f"/compare?{urlencode({'a': b, 'b': a, **more})}",
        canary_link=_canary_link(runs, more),
        correcting_labels=CORRECTING_LABELS,
    )


def _none_won(names: SideNames, side: Side) -> str:
    return f"No canary {names.won[side]}." if names is BEFORE_AND_NOW else f"Of no canary {names.won[side]}."


def _kind_of(reference: str) -> str:
    kind = reference.partition(":")[0]
    return kind if kind in KINDS else ""


_RUN_NUMBER: Final = re.compile(r"(?:run\s*)?[:#]?\s*([0-9]{1,18})", re.IGNORECASE)


def _reference(text: str, what: str) -> str:
    """Return the reference that somebody typed into the field of a kind: 62, run 62 or #62 as run:62."""
    text = text.strip()
    if not what or not text or text.partition(":")[0] in KINDS:
        return text
    number = _RUN_NUMBER.fullmatch(text) if what == "run" else None
    return f"run:{number[1]}" if number else f"{'check' if what == 'run' else what}:{text}"


def _typed(reference: str, kind: str) -> str:
    """Return what stands for a reference in the field of a kind."""
    return reference.removeprefix(f"{kind}:")


def _did_you_mean(kind: str, wanted: Iterable[str], choices: Sequence[run_views.Choice]) -> str:
    """Return what is like the first name that is none of those to choose from; "" = nothing is."""
    names = [one.name for one in choices]
    typed = (_typed(one, kind) for one in wanted if _kind_of(one) == kind != "run")
    return next((did_you_mean(one, names) for one in typed if one not in names), "")


class OtherRun(Value):
    """A run that the one of now may be compared with too."""

    run: str
    text: str
    shown: bool
    """Whether it is what it is compared with."""


def _others(found: run_views.ComparisonCandidates, runs: Sequence[str]) -> list[OtherRun]:
    named = {found.previous: "the run before", found.healthy: "the last healthy run", found.baseline: "the baseline"}
    return [OtherRun(run=run, text=f"With {text}, {run}", shown=run == runs[0]) for run, text in named.items() if run]


def _canary_link(runs: Sequence[str], more: Mapping[str, str]) -> Callable[[str], str]:
    """Return what gives the address of a canary in both runs."""
    pair = {"a": compared_runs.run_reference(runs[0]), "b": compared_runs.run_reference(runs[1])}
    return lambda key: f"/compare/canary?{urlencode({**pair, 'key': key, **more})}"


class CanaryRow(Value):
    """A canary in the table of a comparison."""

    item: CanaryDifference
    text: str
    """What became of it."""
    side: str
    """The side it is better on, `a` or `b`; "" = neither."""
    a: float | None
    b: float | None


def _rows(found: SideBySide) -> list[CanaryRow]:
    rows = []
    for item in found.items:
        change = item["change"]
        side = Side.A if change in _FELL else Side.B if change in _ROSE else None
        text = str(change) if side is None or change in {Change.DEGRADED, Change.HEALED} else found.names.won[side]
        scores = found.scores.get(item["key"], (None, None))
        rows.append(CanaryRow(item=item, text=text, side=side or "", a=scores[0], b=scores[1]))
    return rows


@router.get("/compare/canary")
@expensive
def show_canary(
    *,
    request: Request,
    store: StoreDep,
    a: Reference,
    b: Reference,
    key: Annotated[str, Query(max_length=200)],
    version: Version = "",
) -> HTMLResponse:
    """Show what two runs, checks or retrievers retrieved for one canary, side by side."""
    runs = compared_runs.resolve_pair(store, a, b)
    results = [
        next(iter(run_views.results(store, run, keys={key}, limit=1, version=version or None)[0]), None) for run in runs
    ]
    if results == [None, None]:
        raise NotFoundError(f"neither run has a canary '{key[:40]}'")
    shown = [run_views.run(store, run) for run in runs]
    names = BEFORE_AND_NOW if shown[0]["check"] == shown[1]["check"] else A_AND_B
    more = {"measures_version": version} if version else {}
    return render(
        request,
        "comparison/canary.html",
        key=key,
        query=next(one["query"] for one in results if one is not None),
        runs=shown,
        names=(names.title[Side.A], names.title[Side.B]),
        of_one_check=names is BEFORE_AND_NOW,
        results=results,
        judged_by_relevance=[
            check_details.keys_judged_by_relevance(
                store, run, [key] if result is not None else [], version=version or None
            )
            for run, result in zip(runs, results, strict=True)
        ],
        back=f"/compare?{urlencode({'a': a, 'b': b, **more})}",
    )


# Charts, drawn as SVG by their templates


FOREST_WIDTH: Final = 240
_BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Where the axis of differences may end, on either side of zero."""
_INSET: Final = 8
"""Between the end of an axis and the edge, so that no dot is cut off."""


class ForestRow(Value):
    """A difference in the units of the drawing."""

    at: float | None
    low: float | None
    high: float | None
    side: str
    """The side it is claimed for, `a` or `b`; "" = nothing is claimed."""


class Forest(Value):
    """The differences of measures with their intervals, along one axis with zero in its middle."""

    bound: float
    """The difference at the right end of the axis."""
    rows: Mapping[str, ForestRow]
    """By measure."""


def draw_forest(measures: Sequence[ComparedMeasure]) -> Forest:
    """Draw the differences of measures with their intervals."""
    ends = [one[end] for one in measures for end in ("low", "high", "difference")]
    largest = max((abs(end) for end in ends if end is not None), default=0.0)
    bound = next((one for one in _BOUNDS if largest <= one), _BOUNDS[-1])
    place = partial(_across, bound=bound)
    return Forest(
        bound=bound,
        rows={
            one["measure"]: ForestRow(
                at=place(one["difference"]),
                low=place(one["low"]),
                high=place(one["high"]),
                side=(one["winner"] or "") if one["claim"] == Claim.CLAIMED else "",
            )
            for one in measures
        },
    )


def _across(difference: float | None, *, bound: float) -> float | None:
    half = FOREST_WIDTH / 2
    return None if difference is None else round(half + (half - _INSET) * difference / bound, 1)


BAR_WIDTH: Final = 1000
_BUCKETS: Final = ((1, 1, "1"), (2, 3, "2-3"), (4, 5, "4-5"), (6, 10, "6-10"), (11, 10**9, "over 10"))
_ALWAYS: Final = 4
"""Number of buckets that are shown though they are empty."""


class RankBucket(Value):
    """The canaries whose first expected chunk has one of these ranks, in both runs."""

    label: str
    level: int
    """From the best one, 0, on; 5 = not found."""
    counts: tuple[int, int]
    starts: tuple[float, float]
    """Where it begins in the bar of each run, in the units of the drawing."""
    widths: tuple[float, float]


def count_ranks(ranks: Sequence[RankPair]) -> list[RankBucket]:
    """Return the distribution of ranks in both runs; empty where nothing is compared."""
    sides = [[one.a for one in ranks], [one.b for one in ranks]]
    rows = [
        (label, level, [sum(rank is not None and low <= rank <= high for rank in side) for side in sides])
        for level, (low, high, label) in enumerate(_BUCKETS)
    ]
    rows = [row for row in rows if row[1] < _ALWAYS or any(row[2])]
    rows.append(("not found", len(_BUCKETS), [side.count(None) for side in sides]))
    done = [0, 0]
    buckets = []
    for label, level, counts in rows if ranks else ():
        scale = BAR_WIDTH / len(ranks)
        buckets.append(
            RankBucket(
                label=label,
                level=level,
                counts=(counts[0], counts[1]),
                starts=(round(done[0] * scale, 1), round(done[1] * scale, 1)),
                widths=(round(counts[0] * scale, 1), round(counts[1] * scale, 1)),
            )
        )
        done = [done[side] + counts[side] for side in (0, 1)]
    return buckets


SLOPES_WIDTH: Final = 360
SLOPES_LEFT: Final = 90
SLOPES_RIGHT: Final = 270
_DEEPEST: Final = 10
_MOST_SLOPES: Final = 60
_LABEL: Final = 120
"""Length of a question in the label of a line."""
_DOT: Final = 10.0
"""Between the dots of one rank."""
_BAND: Final = 24.0
"""Height of a rank without more dots than fit into it."""


class Slope(Value):
    """A canary that moved: a line from its rank in A to that in B, in the units of the drawing."""

    key: str
    label: str
    side: str
    """The side its rank is better on."""
    left: float
    right: float


class RankLevel(Value):
    """A rank along both axes."""

    label: str
    top: float
    middle: float
    height: float


class Slopes(Value):
    """The canaries whose expected chunk moved."""

    lines: Sequence[Slope]
    levels: Sequence[RankLevel]
    height: float
    moved: int
    """Number of canaries that moved, of which only the first may be drawn."""


def draw_slopes(ranks: Sequence[RankPair], names: SideNames) -> Slopes:
    """Draw the canaries whose first expected chunk has another rank, those that moved furthest first."""
    moved = [one for one in ranks if one.a != one.b]
    drawn = sorted(moved, key=lambda one: -abs(_level(one.b) - _level(one.a)))[:_MOST_SLOPES]
    present = {_level(rank) for one in drawn for rank in (one.a, one.b)}
    deepest = max((level for level in present if level <= _DEEPEST), default=0)
    shown = [level for level in _LEVELS if level <= deepest or level in present]
    ends = {
        level: (
            sorted((one for one in drawn if _level(one.a) == level), key=lambda one: (_level(one.b), one.key)),
            sorted((one for one in drawn if _level(one.b) == level), key=lambda one: (_level(one.a), one.key)),
        )
        for level in shown
    }
    levels: list[RankLevel] = []
    places: tuple[dict[str, float], dict[str, float]] = ({}, {})
    top = 0.0
    for level in shown:
        height = max(_BAND, _DOT * (1 + max(map(len, ends[level]))))
        levels.append(RankLevel(label=_LEVELS[level], top=top, middle=top + height / 2, height=height))
        for side, members in zip(places, ends[level], strict=True):
            first = top + (height - _DOT * (len(members) - 1)) / 2
            side.update({one.key: first + _DOT * place for place, one in enumerate(members)})
        top += height
    return Slopes(
        lines=[
            Slope(
                key=one.key,
                label=f"{shorten(one.query, _LABEL)}: {_moved_text(one, names)}",
                side=Side.A if _level(one.b) > _level(one.a) else Side.B,
                left=places[0][one.key],
                right=places[1][one.key],
            )
            for one in sorted(drawn, key=lambda one: places[0][one.key])
        ],
        levels=levels,
        height=top,
        moved=len(moved),
    )


_NOT_FOUND: Final = _DEEPEST + 2
_LEVELS: Final = {
    **{rank: str(rank) for rank in range(1, _DEEPEST + 1)},
    _DEEPEST + 1: f"over {_DEEPEST}",
    _NOT_FOUND: "not found",
}
"""Places along the axis of ranks: level -> label."""


def _level(rank: int | None) -> int:
    return _NOT_FOUND if rank is None else min(rank, _DEEPEST + 1)


def _moved_text(one: RankPair, names: SideNames) -> str:
    return ", ".join(f"{_rank_text(rank)} {names.within[side]}" for side, rank in ((Side.A, one.a), (Side.B, one.b)))


def _rank_text(rank: int | None) -> str:
    return "not found" if rank is None else f"rank {rank}"
