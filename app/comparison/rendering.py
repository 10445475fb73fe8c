"""Renders a comparison of two runs, checks or retrievers as tables for a terminal and as Markdown.

Keys, queries, slugs and index versions are hostile here: they are shown literally and cut.
"""

from collections.abc import Sequence
from typing import Final

from app.base.texts import UNDEFINED, Table, change_text, judge_alone, number, plain, prose, shorten, table_markdown
from app.base.values import Value, Verdict
from app.catalog.domain import labelled
from app.comparison.domain.outcomes import Side, ViolationKind
from app.comparison.domain.sentences import A_AND_B, RULED_OUT, claim_text
from app.comparison.views import (
    ComparedAnswers,
    ComparedCanary,
    ComparedMeasure,
    ComparedRunOutline,
    ComparedViolations,
    ComparisonPage,
    JudgedSide,
)

_SHOWN: Final = 80
_SMALLEST: Final = 0.001
_NO_WINNER: Final = "none"


class ComparisonReport(Value):
    """A comparison, and the canaries that each side wins by most."""

    view: ComparisonPage
    losses: Sequence[ComparedCanary]
    """Those that score higher in A, the largest difference first."""
    wins: Sequence[ComparedCanary]
    """Those that score higher in B, likewise."""


def comparison_markdown(report: ComparisonReport) -> str:
    """Return a comparison as GitHub-flavoured Markdown."""
    parts = [f"# {prose(comparison_headline(report.view))}"]
    notes = comparison_notes(report.view)
    if notes:
        parts.append("\n".join(f"- {prose(note)}" for note in notes))
    parts += [table_markdown(table) for table in comparison_tables(report)]
    return "\n\n".join(parts) + "\n"


def comparison_headline(view: ComparisonPage) -> str:
    """Return the sentence of a comparison with a capital letter and a full stop."""
    return _sentence(view["sentence"])


def comparison_notes(view: ComparisonPage) -> list[str]:
    """Return the sentences beside the headline: what recall may have lost, what differs, who is not compared."""
    notes = [one["sentence"] for one in view["cautions"]]
    if len(view["by_category"]) > 1:
        # A service of an earlier release says nothing of recall within categories.
        parts = ((part["category"], one) for part in view["by_category"] for one in part.get("cautions", ()))
        notes += [f"{category.replace('_', ' ')}: {one['sentence']}" for category, one in parts]
    notes += view["differences"]
    notes += [one["sentence"] for one in view["excluded"]]
    return [_sentence(note) for note in notes]


def comparison_tables(report: ComparisonReport) -> tuple[Table, ...]:
    """Return the tables of a comparison that have rows: sides, primary measures, categories, losses and wins."""
    view = report.view
    own = view["a"]["self_judged"] or view["b"]["self_judged"]
    labels = {one["measure"]: labelled(one["measure"], self_judged=own) for one in view["primary"]}
    sides = Table(
        title="Compared",
        columns=("", "check", "run", "retriever", "index version", "k", "fetch_k", "verdict"),
        rows=(_side("A", view["a"]), _side("B", view["b"])),
        quoted=frozenset({1, 2, 3, 4}),
    )
    measures = Table(
        title=f"Primary measures, canaries: {view['canaries']}",
        columns=("measure", "A", "B", "difference", "95 % interval", "p, corrected", "result"),
        rows=tuple((labels[one["measure"]], *_measure(one)) for one in view["primary"]),
    )
    violations = Table(
        title="Ruled out",
        columns=("canaries got", "of", "A", "B", "p, corrected", "result"),
        # A service of an earlier release says nothing of them.
        rows=tuple(map(_violations, view.get("violations", ()))),
    )
    answers = Table(
        title="Generated answers",
        columns=("measure", "A", "B", "difference", "95 % interval", "answers in A", "answers in B", "by"),
        rows=tuple(map(_answers, view.get("answers", ()))),  # a service of an earlier release says nothing of them
    )
    categories = Table(
        title="Categories",
        columns=("category", "canaries", "better", *(labels[one["measure"]] for one in view["primary"])),
        rows=tuple(
            (
                one["category"],
                str(one["canaries"]),
                _NO_WINNER if one["winner"] is None else one["winner"].upper(),
                *(difference_text(measure["difference"]) for measure in one["measures"]),
            )
            for one in view["by_category"]
        ),
    )
    wins = ((Side.A, report.losses), (Side.B, report.wins))
    canaries = tuple(_canaries(view, side, rows, own=own) for side, rows in wins)
    return tuple(table for table in (sides, measures, violations, answers, categories, *canaries) if table.rows)


def _violations(one: ComparedViolations) -> tuple[str, ...]:
    """Return the row of what canaries rule out; keys of those that got it stand in the notes."""
    return (
        RULED_OUT[ViolationKind(one["kind"])],
        *(str(number) for number in (one["canaries"], one["a"], one["b"])),
        _p_text(one["corrected_p"]),
        "no difference shown" if one["winner"] is None else "more in B" if one["winner"] == Side.A else "fewer in B",
    )


def _answers(one: ComparedAnswers) -> tuple[str, ...]:
    """Return the row of a measure of answers: by people's labels where both sides have them."""
    corrected = is_corrected(one)
    return (
        one["measure"],
        *(
            f"{number(side['corrected'] if corrected else side['judge'])}{hint_mark(side)}"
            for side in (one["a"], one["b"])
        ),
        difference_text(one["difference"]),
        interval_text(one["low"], one["high"]),
        *(rated_text(side) for side in (one["a"], one["b"])),
        answers_basis(one),
    )


def is_corrected(one: ComparedAnswers) -> bool:
    """Whether people's labels correct the numbers of both sides."""
    return one["a"]["corrected"] is not None and one["b"]["corrected"] is not None


def rated_text(side: JudgedSide) -> str:
    """Return how many answers stand behind the number of a side, and how many have no rating: `70, 70 not rated`."""
    if "answers" not in side:  # a service of an earlier release does not say
        return UNDEFINED
    return f"{side['answers']:,}" + (f", {side['unrated']:,} not rated" if side["unrated"] else "")


def answers_basis(one: ComparedAnswers) -> str:
    """Return who says the numbers of a measure of answers, and what they are where its name does not tell."""
    if is_corrected(one):
        return "people's labels"
    return judge_alone(one["measure"])


def hint_mark(side: JudgedSide) -> str:
    """Return what stands behind the number of a side's judge that people have not confirmed; else nothing."""
    # A service of an earlier release does not say whether they did.
    is_hint = side["judge"] is not None and not side.get("confirmed", True)
    return " (uncalibrated)" if is_hint else ""


def _side(name: str, run: ComparedRunOutline) -> tuple[str, ...]:
    index = UNDEFINED if run["index_version"] is None else shorten(run["index_version"], _SHOWN)
    texts = (run["check"], run["id"], run["retriever"])
    numbers = (str(run["k"]), str(run["fetch_k"]), str(run["verdict"] or Verdict.UNKNOWN))
    return (name, *map(plain, texts), index, *numbers)


def _measure(one: ComparedMeasure) -> tuple[str, ...]:
    return (
        number(one["a"]),
        number(one["b"]),
        difference_text(one["difference"]),
        interval_text(one["low"], one["high"]),
        _p_text(one["corrected_p"]),
        claim_text(one["claim"], one["winner"], names=A_AND_B),
    )


def _p_text(p: float | None) -> str:
    return f"under {_SMALLEST}" if p is not None and p < _SMALLEST else number(p)


def _canaries(view: ComparisonPage, side: Side, rows: Sequence[ComparedCanary], *, own: bool) -> Table:
    total = view["wins"]["a" if side is Side.A else "b"]
    shown = f", the first {len(rows)}" if total > len(rows) else ""
    return Table(
        title=f"{A_AND_B.won[side]} by {labelled(view['ordered_by'], self_judged=own)}: {total}{shown}",
        columns=("canary", "query", "A", "B", "difference", "rank in A", "rank in B"),
        rows=tuple(
            (
                plain(one["key"]),
                shorten(one["query"], _SHOWN),
                number(one["a"]),
                number(one["b"]),
                difference_text(one["difference"]),
                rank_text(one["rank_a"]),
                rank_text(one["rank_b"]),
            )
            for one in rows
        ),
        quoted=frozenset({0, 1}),
    )


def _sentence(text: str) -> str:
    line = plain(text)
    return f"{line[:1].upper()}{line[1:]}."


def rank_text(rank: int | None) -> str:
    """Return a rank, or that there is none."""
    return "not found" if rank is None else str(rank)


def interval_text(low: float | None, high: float | None) -> str:
    """Return an interval of differences, `-0.070 to -0.012`; undefined where there is none."""
    return UNDEFINED if low is None or high is None else f"{low:+.3f} to {high:+.3f}"


def difference_text(difference: float | None) -> str:
    """Return a difference with its sign; undefined where there is none."""
    return UNDEFINED if difference is None else change_text(difference)
