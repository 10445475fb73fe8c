"""Pages of judges and answers: the judges, how far one can be trusted, the answers of a run, and the newest of all.

The page of a judge has the form that draws answers to label.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response

from app.annotation.pages import open_task
from app.annotation.views import CoefficientView
from app.answers.domain.judges import Question
from app.answers.domain.trust import CORRECTING_LABELS, LEAST_KAPPA, ProportionView, RateView
from app.answers.service import answering, labels
from app.answers.views import CalibrationView
from app.base.api.requests import StoreDep, page_router, takes_form
from app.base.db.engine import Store
from app.base.errors import Problem
from app.base.values import Value, replace
from app.base.web.forms import Form, FormInput, follow_form, parse_number, place_problems, refuse_other
from app.base.web.pages import render
from app.catalog.service import references
from app.definitions.pages.suites import file_page
from app.definitions.service import definitions
from app.records.service import run_views

router = page_router()

_MEANINGS: Final = {
    Question.FAITHFUL: "Are all claims of the answer supported by its chunks? Yes or no.",
    Question.FAITHFULNESS: "The share of the claims of an answer that its chunks support; yes is all of them.",
    Question.ANSWER_RELEVANCE: "The share of the claims of an answer that help with the query; yes is all of them.",
    Question.CORRECTNESS: "The share of the claims of the expected answer that the answer makes; yes is all of them.",
}
_NEW = Form(texts={"count": "200", "window_hours": "24", "overlap": "0.2"})


class Interval(Value):
    """A figure with its 95 % interval, drawn from `least` to 1; `mark` is where another value or a bound stands."""

    name: str
    hint: str
    value: float | None
    low: float | None
    high: float | None
    mark: float | None = None
    mark_name: str = ""
    least: float = 0.0

    @classmethod
    def of(cls, found: RateView | CoefficientView | ProportionView, name: str, hint: str, **more: Any) -> "Interval":
        """Return the figure of a value with its interval."""
        return cls(name=name, hint=hint, value=found["value"], low=found["low"], high=found["high"], **more)


@router.get("/judges")
def show_judges(request: Request, store: StoreDep) -> HTMLResponse:
    """Show the judges, and which of their measures people confirmed."""
    return render(request, "answers/judges.html", judges=labels.list_reports(store, now=datetime.now(UTC)))


@router.get("/judges/{slug}")
def show_judge(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show how far the numbers of a judge can be trusted, and what to do next."""
    return _judge(request, store, slug, _NEW)


@router.get("/judges/{slug}/edit")
def show_edit(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show a judge as YAML, and where it is edited; there is no form for it."""
    judge = references.load_definition(store, "judge", slug)
    crumbs = {"Judges": "/judges", slug: f"/judges/{quote(slug)}"}
    return file_page(request, judge, definitions.write_one(judge), name=slug, crumbs=crumbs)


@router.post("/judges/{slug}/tasks")
@takes_form(fields=8)
def draw_answers(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Create a task of answers and have them drawn."""
    described = {
        "slug": form.stripped("slug"),
        "suite": form.stripped("suite"),
        "answers": {
            "judge": slug,
            "question": form.stripped("question"),
            "count": parse_number(form.get("count")),
            "window_hours": parse_number(form.get("window_hours")),
        },
        "overlap": parse_number(form.get("overlap")),
    }
    return follow_form(lambda: open_task(request, store, described), partial(_judge, request, store, slug, form))


def _judge(
    request: Request, store: Store, slug: str, form: Form, *, problems: Sequence[Problem] = (), status: int = 200
) -> HTMLResponse:
    report = labels.load_report(store, slug, now=datetime.now(UTC))
    of_answers = "answers."
    renamed = [replace(one, path=(one.path or "slug").removeprefix(of_answers)) for one in problems]
    wrong, others = place_problems(renamed, {*_NEW.texts, "slug", "suite", "question"})
    return render(
        request,
        "answers/judge.html",
        status=status,
        definition=references.load_definition(store, "judge", slug),
        questions=[(one["measure"], one["measure"].replace("_", " ")) for one in report["measures"]],
        report=report,
        intervals={
            one["measure"]: [] if one["calibration"] is None else intervals_of(one["calibration"])
            for one in report["measures"]
        },
        suites=[(one, one) for one in labels.suites_of(store, report["checks"])],
        meanings=_MEANINGS,
        least_kappa=LEAST_KAPPA,
        correcting_labels=CORRECTING_LABELS,
        typed=form,
        wrong=wrong,
        problems=others,
    )


def intervals_of(found: CalibrationView) -> list[Interval]:
    """Return the figures of a measure to draw, rates and shares in [0, 1], kappa and length from -1 on."""
    rate, kappa, bias = found["rate"], found["kappa"], found["length_bias"]
    basis = "people and judge together" if rate["basis"] == "people_and_judge" else "people's labels alone"
    figures = [
        Interval.of(rate, "Rate of yes", basis, mark=rate["judge_rate"], mark_name="the judge alone"),
        Interval.of(
            kappa,
            "Cohen's kappa",
            "agreement beyond chance",
            mark=LEAST_KAPPA,
            mark_name="needed at the lower end",
            least=-1.0,
        ),
        Interval.of(found["sensitivity"], "Sensitivity", "of what people accept, accepted"),
        Interval.of(found["specificity"], "Specificity", "of what people refuse, refused"),
    ]
    if bias is not None:
        length: CoefficientView = {"value": bias["difference"], "low": bias["low"], "high": bias["high"]}
        hint = "share of YES padded minus plain"
        figures.append(Interval.of(length, "Length bias", hint, mark=0.0, mark_name="no bias", least=-1.0))
    return figures


@router.get("/answers")
def show_newest(request: Request, store: StoreDep) -> HTMLResponse:
    """Show of every check that watches answers what those of its newest run came to."""
    return render(request, "answers/newest.html", found=answering.newest_of_checks(store))


_SHOWN, _BAD = 25, "bad"


@router.get("/runs/{run_id}/answers")
def show_answers(
    request: Request,
    store: StoreDep,
    run_id: str,
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    show: str = "",
) -> HTMLResponse:
    """Show the answers of a run, the worst by its judge first: all, or those in which it found something."""
    refuse_other(show, ("", _BAD), "show")
    page = answering.answers_of_run(store, run_id, after=after, limit=_SHOWN, only_bad=show == _BAD)
    return render(
        request,
        "answers/answers.html",
        run=run_views.run(store, run_id),
        page=page,
        confirmed=page["confirmed"],
        after=after,
        show=show,
    )
