"""Pages of live traffic: the list, an experiment with its picture, and a promotion whose gates are waived by form."""

import ast
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.base.db.keys import Scope
from app.base.web import pages as rendering
from app.experiments.domain.experiments import USUAL_RATE, RateDifference, units_needed
from app.experiments.pages import HEIGHT, WIDTH, draw_intervals
from app.experiments.views import ExperimentLook
from tests.support.api_service import CHECK, Api, api, bearer
from tests.support.html_pages import Page

HOSTILE = "<script>alert(1)</script>"
ARMS = [{"name": "vector", "share": 0.5}, {"name": HOSTILE, "share": 0.5}]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with an experiment in which the first arm wins, and a promotion."""
    with _service_in(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give the same to tests that change nothing of it."""
    with _service_in(tmp_path_factory.mktemp("seen")) as opened:
        yield opened


@contextmanager
def _service_in(folder: Path) -> Iterator[Api]:
    with api(folder) as opened:
        opened.docs()
        opened.put("/v1/checks/docs-hybrid", {**CHECK, "hooks": []})
        opened.put("/v1/experiments/search", {"arms": ARMS, "window": "1h"})
        for day in (1, 2, 3):
            at = f"2026-11-0{day}T12:00:00Z"
            units = [
                {"unit": f"user-{day}-{number}", "arm": ARMS[number % 2]["name"], "at": at} for number in range(600)
            ]
            assert opened.client.post("/v1/experiments/search/exposures", json=units).is_success
            outcomes = [
                {
                    "event_id": str(number),
                    "unit": one["unit"],
                    "value": int(number % 10 < 6 + 2 * (number % 2 == 0)),
                    "at": at,
                }
                for number, one in enumerate(units)
            ]
            assert opened.client.post("/v1/experiments/search/outcomes", json=outcomes).is_success
        opened.put("/v1/promotions/hybrid", {"current": "docs", "candidate": "docs-hybrid", "experiment": "search"})
        yield opened


def text_of(service: Api, path: str) -> str:
    answer = service.client.get(path)
    assert answer.status_code == 200
    assert HOSTILE not in answer.text
    return Page(answer.text).text


def test_the_list_has_promotions_with_their_gates_and_experiments(seen: Api) -> None:
    text = text_of(seen, "/experiments")
    assert "hybrid" in text
    assert "1,800" in text
    assert "vector wins" in text


def test_an_experiment_shows_its_decision_and_the_interval_over_time(seen: Api) -> None:
    text = text_of(seen, "/experiments/search")
    assert "vector beats" in text
    assert "Difference over time" in text
    assert 'role="img" aria-label="Difference over 3 looks' in seen.client.get("/experiments/search").text
    assert seen.client.get("/experiments/nothing").status_code == 404


@pytest.mark.parametrize(("window", "text"), [("1m", "1 minute"), ("24h", "24 hours"), ("7d", "7 days")])
def test_when_an_outcome_is_final_is_said_in_a_natural_unit(service: Api, window: str, text: str) -> None:
    service.put("/v1/experiments/search", {"arms": ARMS, "window": window})
    assert f"No outcome within {text} counts as 0." in text_of(service, "/experiments/search")


def test_an_experiment_says_how_many_units_are_not_counted_yet(service: Api) -> None:
    assert "not counted yet" not in text_of(service, "/experiments/search")
    assert service.client.post("/v1/experiments/search/exposures", json=[{"unit": "now"}]).is_success
    says = "1 exposed unit is not counted yet: that takes the span of time in which it came, and then the window. All "
    assert f"{says}are by " in text_of(service, "/experiments/search")


def test_a_gate_is_waived_by_form_with_a_name_and_withdrawn(service: Api) -> None:
    assert "fail" in text_of(service, "/promotions/hybrid")
    waive = "/promotions/hybrid/waive"
    answer = service.client.post(waive, data={"gate": "judge", "reason": f"no budget {HOSTILE}"}, follow_redirects=True)
    assert answer.status_code == 200
    text = text_of(service, "/promotions/hybrid")
    assert "inconclusive waived" in text
    assert f": “no budget {HOSTILE}”" in text
    assert "It had found the same when it was waived." in text
    service.run()
    service.run("docs-hybrid")
    text = text_of(service, "/promotions/hybrid")
    assert "When it was waived it had found (inconclusive): check 'docs' has no run with results" in text
    assert "No judge rates the answers of checks 'docs' and 'docs-hybrid': name one as judge of each check" in text
    service.client.post(waive, data={"gate": "judge", "reason": ""})
    gates = service.get("/v1/promotions/hybrid")["gates"]
    assert [gate["waiver"] for gate in gates] == [None, None, None]
    assert service.client.post(waive, data={"gate": "every", "reason": "x"}).status_code == 422


def test_a_promotion_says_at_the_top_which_check_is_the_candidate(seen: Api) -> None:
    text = text_of(seen, "/promotions/hybrid")
    assert text.index("Candidate: check docs-hybrid. Current: check docs. Comparison") < text.index("Decision")


def badge_of(promotion: dict[str, Any]) -> str:
    text = '{% import "experiments/_states.html" as states %}{{ states.promotion(one) }}'
    return rendering._environment().from_string(text).render(one=promotion)


def test_a_promotion_is_green_only_with_all_gates_passed_and_no_critical_alert() -> None:
    passed = {"state": "promote", "gates": 3 * [{"result": "pass"}], "critical_alerts": []}
    assert 'class="badge healthy"' in badge_of(passed)
    waived = {**passed, "gates": [{"result": "pass"}, {"result": "waived"}, {"result": "pass"}]}
    assert 'class="badge warning"' in badge_of(waived)
    assert 'class="badge warning"' in badge_of({**passed, "critical_alerts": [{"check": "docs"}]})
    assert 'class="badge critical"' in badge_of({**passed, "state": "stopped", "critical_alerts": [{"check": "docs"}]})


WHY = "an internal tool with ten users"


def test_harm_that_exposure_has_shown_is_waived_by_an_admin_alone_and_stays_on_the_page(service: Api) -> None:
    waive, sent = "/promotions/hybrid/waive", {"gate": "exposure", "reason": WHY}
    writer = bearer(service.key(Scope.WRITE))
    page = service.client.get("/promotions/hybrid", headers=writer).text
    assert "only a key of scope admin may waive it, and yours is none." in Page(page).text
    for answer in (
        service.client.post(waive, data=sent, headers=writer),
        service.client.put("/v1/promotions/hybrid/waivers/exposure", json={"reason": WHY}, headers=writer),
    ):
        assert answer.status_code == 403
    admin = bearer(service.key(Scope.ADMIN))
    assert service.client.get("/v1/promotions/hybrid", headers=admin).json()["state"] == "stopped"
    unasked = {"current": "docs", "candidate": "docs-hybrid"}
    refused = service.client.put("/v1/promotions/hybrid", json=unasked, headers=writer)
    assert refused.status_code == 403, "leaving the experiment out is no way around it"
    assert "only a key of scope admin may set another experiment" in refused.json()["detail"]
    assert service.client.post(waive, data=sent, headers=admin, follow_redirects=True).is_success
    found = service.client.get("/v1/promotions/hybrid", headers=admin).json()
    exposure = found["gates"][2]
    assert (exposure["result"], exposure["evidence"], exposure["waiver"]["finding"]) == ("waived", "fail", "fail")
    assert exposure["waiver"]["found"] == exposure["reason"]
    for gate in ("offline", "judge"):
        service.client.post(waive, data={"gate": gate, "reason": WHY}, headers=writer)
    text = Page(service.client.get("/promotions/hybrid", headers=admin).text).text
    assert "It may go to all users: a person decided so, against what exposure showed. Offline decided" in text
    assert "promote, by waiver" in text
    assert f"Exposure failed ({exposure['reason']}), waived by" in text
    assert "not asked" not in text


def test_harm_is_not_forgotten_by_a_new_epoch_nor_by_archiving_the_experiment(service: Api) -> None:
    writer = bearer(service.key(Scope.WRITE))
    refused = service.client.delete("/v1/experiments/search", headers=writer)
    assert (refused.status_code, "promotion 'hybrid' reads experiment 'search'" in refused.json()["detail"]) == (
        409,
        True,
    )
    harm = service.client.get("/v1/promotions/hybrid", headers=writer).json()["gates"][2]
    arms = [{**ARMS[0], "share": 0.6}, {**ARMS[1], "share": 0.4}]
    assert service.client.put("/v1/experiments/search", json={"arms": arms, "window": "1h"}, headers=writer).is_success
    found = service.client.get("/v1/promotions/hybrid", headers=writer).json()
    assert found["gates"][2]["evidence"] == "inconclusive"
    shown, _, made = harm["reason"].partition("; check ")
    assert made.count("was made after the last of these users was exposed") == 2
    assert found["gates"][2]["reason"].endswith(f"; epoch 1 had shown: {shown}")
    body = {"reason": WHY}
    assert service.client.put("/v1/promotions/hybrid/waivers/exposure", json=body, headers=writer).status_code == 403
    page = Page(service.client.get("/promotions/hybrid", headers=writer).text)
    assert "only a key of scope admin may waive it, and yours is none." in page.text
    assert not page.all("input", id="f-exposure"), "no form is offered that is refused"
    assert "only a key of scope admin may set another experiment or delete the promotion." in page.text
    refused_buttons = [one for one in page.all("button") if "title" in one.attributes]
    assert {one.attributes["title"] for one in refused_buttons} == {"Only a key of scope admin may do that"}
    short = service.client.put("/v1/promotions/hybrid/waivers/judge", json={"reason": "x"}, headers=writer)
    assert "must be at least 20 characters long" in short.text
    unasked = {"current": "docs", "candidate": "docs-hybrid"}
    assert service.client.put("/v1/promotions/hybrid", json=unasked, headers=writer).status_code == 403
    gone = service.client.delete("/v1/promotions/hybrid", headers=writer)
    assert (gone.status_code, "only a key of scope admin may delete the promotion" in gone.json()["detail"]) == (
        403,
        True,
    )
    assert service.client.delete("/v1/promotions/hybrid", headers=bearer(service.key(Scope.ADMIN))).is_success


def test_a_promotion_is_stopped_by_the_open_critical_alerts_of_its_checks_which_it_names(service: Api) -> None:
    for gate in ("offline", "judge", "exposure"):
        service.client.post("/promotions/hybrid/waive", data={"gate": gate, "reason": WHY})
    assert "critical alert" not in text_of(service, "/promotions/hybrid")
    assert service.get("/v1/promotions/hybrid")["state"] == "promote"
    assert service.get("/v1/promotions/hybrid")["critical_alerts"] == []
    service.retriever.found = {"How long is data kept?": [], "How do I set up OAuth2?": []}
    service.run()
    service.run()
    (alert,) = service.get("/v1/promotions/hybrid")["critical_alerts"]
    assert (alert["check"], alert["rule"]) == ("docs", "threshold-coverage")
    page = Page(service.client.get("/promotions/hybrid").text)
    assert "Check docs has 1 open critical alert: threshold-coverage, opened" in page.text
    assert page.all("a", href=f"/alerts/{alert['alert_id']}")
    found = service.get("/v1/promotions/hybrid")
    assert found["state"] == "stopped"
    assert found["reason"].startswith("stopped while check docs has 1 open critical alert: what was measured")
    found = service.client.put("/v1/promotions/hybrid", json={**found, "stop_on_critical": False}).json()
    assert (found["state"], len(found["critical_alerts"])) == ("stopped", 1), "its waivers are forgotten"
    assert found["reason"].startswith("stopped by exposure: ")
    assert "It goes on all the same, as it is defined" in text_of(service, "/promotions/hybrid")
    service.client.post("/promotions/hybrid/waive", data={"gate": "offline", "reason": WHY})
    assert "check docs had 1 open critical alert then" in text_of(service, "/promotions/hybrid")


def send_even(service: Api, slug: str, *, units: int = 600, every: int = 2, **plan: Any) -> None:
    """Define an experiment of which the first arm gets one unit in `every`; every other pair of units is a success."""
    service.put(f"/v1/experiments/{slug}", {"arms": ARMS, "window": "1h", **plan})
    at = "2026-11-01T12:00:00Z"
    sent = [{"unit": f"user-{one}", "arm": ARMS[int(one % every > 0)]["name"], "at": at} for one in range(units)]
    assert service.client.post(f"/v1/experiments/{slug}/exposures", json=sent).is_success
    values = [
        {"event_id": str(one), "unit": f"user-{one}", "value": int(one % 4 < 2), "at": at} for one in range(units)
    ]
    assert service.client.post(f"/v1/experiments/{slug}/outcomes", json=values).is_success


@pytest.mark.parametrize(
    ("every", "says", "withholds"),
    [
        (2, "One look is no line yet: the difference and its interval stand above.", "is withheld"),
        (3, "The difference is withheld while the arms do not get their shares.", "stand above"),
    ],
)
def test_one_look_points_at_the_difference_only_where_the_page_has_it(
    service: Api, every: int, says: str, withholds: str
) -> None:
    send_even(service, "even", every=every)
    (look,) = service.get("/v1/experiments/even")["looks"]
    assert look["difference"] is not None
    text = text_of(service, "/experiments/even")
    assert says in text
    assert withholds not in text
    assert ("95 % interval" in text) is (every == 2)


def test_no_interval_is_drawn_of_arms_that_do_not_get_their_shares(service: Api) -> None:
    service.put("/v1/experiments/uneven", {"arms": ARMS, "window": "1h"})
    for day in range(1, 4):
        at = f"2026-11-0{day}T12:00:00Z"
        units = [{"unit": f"{day}-{one}", "arm": ARMS[int(one % 3 > 0)]["name"], "at": at} for one in range(600)]
        values = [
            {"event_id": one["unit"], "unit": one["unit"], "value": place % 2, "at": at}
            for place, one in enumerate(units)
        ]
        for what, sent in (("exposures", units), ("outcomes", values)):
            assert service.client.post(f"/v1/experiments/uneven/{what}", json=sent).is_success
    found = service.get("/v1/experiments/uneven")
    assert found["state"] == "mismatch"
    assert found["difference"] is None, "it is withheld here as on the page"
    assert found["power"] == "it shows nothing while the arms get other shares than they should"
    assert sum(one["difference"] is not None for one in found["looks"]) > 1
    page = Page(service.client.get("/experiments/uneven").text)
    assert not page.all("svg", role="img")
    assert "The difference is withheld while the arms do not get their shares." in page.text
    assert "95 % interval" not in page.text
    assert "You may look as often as you like" not in page.text


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"max_units": 400}, "exposure ended without a decision: 600 units of at most 400 came"),
        ({"delta": 0.4}, "exposure ended: no difference larger than 0.4: after 600 units"),
    ],
)
def test_a_promotion_says_that_its_experiment_has_ended(service: Api, plan: dict[str, Any], says: str) -> None:
    send_even(service, "even", **plan)
    service.put("/v1/promotions/hybrid", {"current": "docs", "candidate": "docs-hybrid", "experiment": "even"})
    for gate in ("offline", "judge"):
        service.client.post("/promotions/hybrid/waive", data={"gate": gate, "reason": WHY})
    found = service.get("/v1/promotions/hybrid")
    assert (found["state"], found["gates"][2]["result"]) == ("open", "inconclusive")
    assert found["reason"].startswith(says)
    assert found["reason"].endswith("keep what is current, begin a new epoch, or waive exposure")


def test_a_guard_rail_shows_its_interval_whether_it_passes_or_not(service: Api) -> None:
    send_even(service, "railok", delta=0.4)
    low, high = (service.get("/v1/experiments/railok")["difference"][end] for end in ("low", "high"))
    compared = {"current": "docs", "candidate": "docs-hybrid", "experiment": "search"}
    rails = [{"experiment": "railok", "allowed_loss": loss} for loss in (0.4, 0.02)]
    service.put("/v1/promotions/hybrid", {**compared, "guards": rails})
    text = text_of(service, "/promotions/hybrid")
    assert (
        text.count("A range with signs, such as +0.044 to +0.081, is the 95 % interval of the candidate less what") == 1
    )
    interval = f"experiment railok {low:+.3f} to {high:+.3f}"
    assert (
        f"pass Guard rail experiment railok, which may lose less than 0.400: no loss of more than 0.4: {interval}"
        in text
    )
    unknown = f"a loss of more than 0.02 is not ruled out: {interval} ({HOSTILE} less vector)"
    assert f"{unknown}, and" not in text, "units to come may decide it"
    assert f"inconclusive Guard rail experiment railok, which may lose less than 0.020: {unknown}" in text


def test_a_key_that_may_only_read_sees_the_form_disabled_and_cannot_send_it(service: Api) -> None:
    headers = bearer(service.key(Scope.READ))
    page = service.client.get("/promotions/hybrid", headers=headers).text
    assert "This key may only read" in page
    sent = {"gate": "judge", "reason": "x"}
    assert service.client.post("/promotions/hybrid/waive", data=sent, headers=headers).status_code == 403


def test_promotions_experiments_and_shadows_are_created_by_form(service: Api) -> None:
    def create(kind: str, **fields: str) -> str:
        sent = {"kind": kind, **{f"{kind}.{name}": value for name, value in fields.items()}}
        answer = service.client.post("/experiments", data=sent, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    rails = {"faithfulness": "0.05", "other": "search", "other_loss": "0.01"}
    assert create("promotion", slug="dense", current="docs", candidate="docs-hybrid", **rails) == "/promotions/dense"
    promotion = service.get("/v1/promotions/dense")
    assert promotion["experiment"] is None
    assert promotion["guards"] == [
        {"measure": "faithfulness", "experiment": None, "allowed_loss": 0.05},
        {"measure": None, "experiment": "search", "allowed_loss": 0.01},
    ]
    arms = {"arms[0].name": "old", "arms[1].name": "new", "arms[1].share": "0.1"}
    numbers = {"delta": "0.03", "window": "2h", "max_units": "5000"}
    assert create("experiment", slug="dense", **arms, **numbers) == "/experiments/dense"
    made = service.get("/v1/experiments/dense")
    assert [(arm["name"], arm["share"]) for arm in made["arms"]] == [("old", 0.9), ("new", 0.1)]
    assert (made["delta"], made["window"], made["max_units"]) == (0.03, 7200, 5000)
    assert create("shadow", slug="dense", candidate="search", share="0.2", k="5", keep="7") == "/shadows/dense"
    made = service.get("/v1/shadows/dense")
    assert (made["candidate"], made["share"], made["k"], made["keep"]) == ("search", 0.2, 5, 7)
    assert "dense" in text_of(service, "/experiments")


def test_a_new_experiment_begins_with_what_it_can_show(seen: Api) -> None:
    form = Page(seen.client.get("/experiments").text)
    share, delta, units = (
        float(form.one("input", name=f"experiment.{name}").get("value"))
        for name in ("arms[1].share", "delta", "max_units")
    )
    assert units_needed(delta, rate=USUAL_RATE, share=share) <= units < 1.1 * units_needed(delta, rate=0.5, share=share)
    assert f"in both arms: {units:,.0f} show a difference of {delta:g} at a share of {100 * share:g} %" in form.text
    (row,) = [one.text for one in form.all("tr") if one.text.startswith(f"{100 * share:g} %")]
    assert f"{units_needed(delta, rate=USUAL_RATE, share=share):,}" in row


def test_a_form_with_mistakes_comes_back_with_what_was_typed(seen: Api) -> None:
    sent = {"kind": "experiment", "experiment.slug": "Not a slug", "experiment.arms[0].name": f"old {HOSTILE}"}
    answer = seen.client.post("/experiments", data=sent)
    assert answer.status_code == 422
    assert HOSTILE not in answer.text
    page = Page(answer.text)
    assert "Nothing was saved" in page.text
    assert "not 'Not a slug'; try 'not-a-slug'" in page.one("span", id="wrong-experiment-slug").text
    assert page.one("button", value="not-a-slug").get("data-takes") == "f-experiment.slug"
    for empty in ("arms[1].name", "arms[1].share", "delta", "window", "max_units"):
        assert page.one("input", name=f"experiment.{empty}").get("aria-invalid"), empty
    assert "old &lt;script&gt;" in answer.text
    assert "<details open><summary>New experiment" in answer.text
    taken = {
        "kind": "promotion",
        "promotion.slug": "hybrid",
        "promotion.current": "docs",
        "promotion.candidate": "docs-hybrid",
    }
    answer = seen.client.post("/experiments", data=taken)
    assert answer.status_code == 409
    assert "there is a promotion" in Page(answer.text).text
    assert seen.client.post("/experiments", data={"kind": "war"}).status_code == 422


def looks(*intervals: tuple[float, float] | None) -> Sequence[ExperimentLook]:
    made: list[ExperimentLook] = []
    for day, one in enumerate(intervals, 1):
        found = None if one is None else RateDifference(value=sum(one) / 2, low=one[0], high=one[1])
        made.append({"at": f"2026-11-{day:02}T00:00:00Z", "units": 100 * day, "difference": found})
    return made


def test_the_band_goes_along_the_upper_ends_and_back_along_the_lower_ones() -> None:
    chart = draw_intervals(looks(None, (-0.1, 0.3), (0.0, 0.2)), delta=0.02, decided_at="2026-11-03T00:00:00Z")
    assert chart is not None
    points = [tuple(map(float, point.split(","))) for point in chart.band.split()]
    assert [x for x, _ in points] == [0, WIDTH, WIDTH, 0]
    assert points[0][1] < points[1][1] < points[2][1] < points[3][1]
    assert points[2][1] == chart.zero == HEIGHT / 2
    assert chart.decided == WIDTH
    assert (chart.top, chart.bottom) == ("+0.345", "-0.345")
    assert chart.label == "Difference over 2 looks; at the last one +0.100, 95 % interval 0.000 to +0.200"


def test_wide_first_intervals_are_cut_off_so_that_the_last_one_can_be_seen() -> None:
    chart = draw_intervals(looks((-0.9, 0.9), (-0.01, 0.05)), delta=0.02, decided_at=None)
    assert chart is not None
    assert (chart.top, chart.decided) == ("+0.173", None)
    assert chart.band.startswith("0.0,0.0 ")


def test_fewer_than_two_intervals_are_no_picture() -> None:
    assert draw_intervals(looks(None, (-0.1, 0.3)), delta=0.02, decided_at=None) is None


def test_an_experiment_shows_the_calls_that_send_to_it_with_its_own_names(service: Api) -> None:
    name = """it's "$(touch owned)" `x` \\ \u00e9"""
    arms = [{"name": "vector", "share": 0.5}, {"name": name, "share": 0.5}]
    service.put("/v1/experiments/calls", {"arms": arms, "window": "2h"})
    page = Page(service.client.get("/experiments/calls").text)
    assert "open" in page.one("details", open="").attributes
    # What a shell and Python make of them is what was meant, whatever the name.
    shown = "".join(page.one("pre", id="with-curl").pieces)
    words = shlex.split(shown, comments=True)
    exposures, outcomes = [json.loads(words[place + 1]) for place, word in enumerate(words) if word == "-d"]
    # Between single quotes a shell expands nothing.
    assert [line.count("'") for line in shown.splitlines() if line.startswith("  -d '")] == [2, 2]
    assert exposures == [{"unit": "user-1", "arm": name}]
    python = ast.parse("".join(page.one("pre", id="with-python").pieces))
    calls = [one.value for one in python.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    assert [ast.literal_eval(one.args[0]) for one in calls] == ["exposures", "outcomes"]
    assert [ast.literal_eval(one.args[1]) for one in calls] == [exposures, outcomes]
    assert service.client.post("/v1/experiments/calls/exposures", json=exposures).json()["new"] == 1
    assert service.client.post("/v1/experiments/calls/outcomes", json=outcomes).json()["new"] == 1


def test_an_experiment_is_stopped_started_again_and_archived_on_its_page(service: Api) -> None:
    sent = [{"unit": "late"}]
    page = Page(service.client.get("/experiments/search").text)
    stop = page.one("form", action="/experiments/search/stop")
    assert stop.get("method") == "post"
    counted = service.get("/v1/experiments/search")["arms"]
    assert service.client.post("/experiments/search/stop").url.path == "/experiments/search"
    stopped = service.get("/v1/experiments/search")
    assert stopped["ended_at"]
    assert stopped["arms"] == counted
    assert service.client.post("/v1/experiments/search/stop").json() == stopped
    refused = service.client.post("/v1/experiments/search/exposures", json=sent)
    assert (refused.status_code, "was stopped" in refused.json()["detail"]) == (409, True)
    assert "Stopped" in text_of(service, "/experiments/search")
    assert service.client.post("/experiments/search/restart").is_success
    again = service.get("/v1/experiments/search")
    assert (again["epoch"], again["ended_at"]) == (stopped["epoch"] + 1, None)
    assert again["epochs"][0]["arms"] == counted
    assert service.client.post("/v1/experiments/search/exposures", json=sent).json()["new"] == 1
    assert service.client.post("/experiments/search/archive").status_code == 409, "a promotion reads it"
    assert service.client.delete("/v1/promotions/hybrid").is_success
    assert service.client.post("/experiments/search/archive").url.path == "/experiments"
    assert service.client.get("/experiments/search").status_code == 404


def test_an_undecided_experiment_that_was_stopped_leaves_the_gate_to_a_person(service: Api) -> None:
    service.put("/v1/experiments/young", {"arms": ARMS, "window": "1h"})
    assert service.client.post("/promotions/hybrid/experiment", data={"experiment": "young"}).is_success
    assert service.get("/v1/promotions/hybrid")["experiment"] == "young"
    sent = "see that units are sent to the experiment, and let it run until it decides"
    assert sent in text_of(service, "/promotions/hybrid")
    begins = "no unit was exposed to it so far; send an exposure for each unit that is served; "
    assert service.get("/v1/promotions/hybrid")["gates"][2]["reason"].startswith(begins)
    service.client.post("/experiments/young/stop")
    follows = "more units change nothing: keep what is current, or begin a new epoch of the experiment"
    assert follows in text_of(service, "/promotions/hybrid")
    exposure = service.get("/v1/promotions/hybrid")["gates"][2]
    assert exposure["reason"].startswith("experiment 'young' was stopped undecided: no unit was exposed to it")
    assert service.client.post("/promotions/hybrid/delete").url.path == "/experiments"
    assert service.client.get("/promotions/hybrid").status_code == 404


def test_the_list_helps_to_choose_and_leads_to_every_kind(service: Api) -> None:
    service.put("/v1/interleavings/lists", {"a": "old", "b": HOSTILE})
    page = Page(service.client.get("/experiments").text)
    assert "Which do I need?" in page.text
    for kind in ("shadow", "experiment", "interleaving", "promotion"):
        chosen = Page(service.client.get(page.one("a", href=f"/experiments?new={kind}#{kind}s").get("href")).text)
        [opened] = [one for one in chosen.all("details") if "open" in one.attributes]
        assert f"New {kind}" in opened.text
    shown = Page(service.client.get(page.one("a", href="/interleavings/lists").get("href")).text)
    assert "/v1/interleavings/lists/clicks" in shown.one("pre", id="with-curl").text
    assert f"Prefer {HOSTILE}" in shown.text
    assert service.client.post("/interleavings/lists/delete").url.path == "/experiments"
    assert service.client.get("/interleavings/lists").status_code == 404
