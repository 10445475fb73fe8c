"""Pages of judges and of generated answers: what is confirmed, what is not, and how people come to label."""

import pytest

from app.annotation.service import annotations, tasks
from app.answers.domain.judges import JudgeOutcome
from app.base.db.engine import Store
from app.base.db.keys import Scope
from tests.support.answered_world import answered_world, answers_page
from tests.support.html_pages import Page
from tests.support.labelled_answers import KEYS, Labelled
from tests.support.pages_service import HOSTILE, Site
from tests.support.pages_service import site as site_of
from tests.support.present import present


def words(page: Page) -> str:
    """Give the words of a page."""
    return " ".join(page.text.split())


@pytest.fixture
def labelled(sqlite_store: Store) -> Labelled:
    """Give a check whose answers are judged."""
    return Labelled.of(sqlite_store)


def test_a_judge_that_nobody_confirmed_is_said_to_be_a_hint(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    shown = words(site.page("/judges/reader"))
    assert "People have not confirmed this judge. Its numbers are a hint only, and rules on them are warnings." in shown
    assert "Next: Draw about 200 answers below and let people label them." in shown
    assert "uncalibrated" in words(site.page("/judges"))


def test_from_the_page_of_a_judge_to_its_confirmation(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    fields = {"slug": "labels", "suite": "suite", "question": "faithful", "count": "20", "window_hours": "24"}
    made = site.client().post("/judges/reader/tasks", data={**fields, "overlap": "0"})
    assert (made.status_code, made.headers["location"]) == (303, "/tasks/labels")
    assert "Answers are being drawn." in words(site.page("/tasks/labels"))
    labelled.draw()
    assert "Drawn at random up to 20" in words(site.page("/tasks/labels"))
    labelled.label(wrong=2)
    shown = words(site.page("/judges/reader"))
    assert "People confirmed every measure of this judge. Rules on them may be critical." in shown
    assert "20 labels" in shown
    found = site.client().get("/v1/judges/reader/report").json()["measures"][0]["calibration"]
    yes, no = found["sensitivity"], found["specificity"]
    told = f"Judge against people, in 20 answers People Judge says yes Judge says no People say yes {yes['count']} "
    counts = [yes["successes"], yes["count"] - yes["successes"], no["count"] - no["successes"], no["successes"]]
    assert sum(counts) == 20
    assert told in shown
    table = site.page("/judges/reader")
    cells = [
        int(one.text.split()[0]) for one in table.all("td") if {"agreed", "parted"} & set(one.get("class").split())
    ]
    assert cells == counts
    assert "Cohen's kappa" in shown.replace("&#39;", "'")
    again = site.client().post("/judges/reader/tasks", data={**fields, "overlap": "0"})
    assert again.status_code == 409
    wrong = site.client().post("/judges/reader/tasks", data={**fields, "slug": "other", "count": "many"})
    assert wrong.status_code == 422


def test_an_annotator_sees_answer_question_and_chunks_but_no_verdict(labelled: Labelled) -> None:
    labelled.put()
    labelled.draw()
    site = Site(world=labelled.it.world)
    client = site.signed_in(site.key(Scope.ANNOTATE))
    shown = client.get("/tasks/labels/annotate").text
    assert "Are all claims of the answer supported by the chunks?" in shown
    assert "Nothing else here." in shown
    assert "answer-" not in shown
    assert not any(word in shown for word in ("reader", "faithful", "verdict"))
    assert client.get("/judges/reader").status_code == 403
    assert client.get("/v1/judges/reader/report").status_code == 403


def test_the_answers_of_a_run_stand_with_chunks_and_verdicts(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    run_id = labelled.it.run()
    shown = words(site.page(f"/runs/{run_id}/answers"))
    assert "faithful (uncalibrated)" in shown
    assert "A lie about q00." in shown
    assert "2 chunks it was made of" in shown
    assert "No API gives attention weights" in shown
    assert shown.index("A lie about") < shown.index("The notice period"), "the worst come first"
    assert "Every answer" in words(site.page("/checks/watch"))
    assert "Every answer" in words(site.page(f"/runs/{run_id}"))


def test_answers_are_narrowed_to_those_in_which_the_judge_found_something(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    run_id = labelled.it.run()
    every, bad = (site.page(f"/runs/{run_id}/answers{asked}") for asked in ("", "?show=bad"))
    assert 0 < len(bad.all("article")) < len(every.all("article"))
    assert "A lie about q00." in words(bad)
    rated = [one.text for one in bad.all("ul", class_="ratings")]
    assert all("no faithful" in text or "0." in text for text in rated), rated
    assert site.client().get(f"/runs/{run_id}/answers?show=good").status_code == 422


def test_the_newest_answers_of_every_check_stand_on_one_page(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    shown = site.page("/answers")
    newest = site.client().get("/v1/checks/watch/health").json()["id"]
    assert shown.all("a", href=f"/runs/{newest}/answers")
    assert "faithful (uncalibrated)" in words(shown)
    assert shown.all("a", href="/answers", **{"aria-current": "page"})


def test_answers_are_among_the_tiles_of_their_check(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    tiles = site.page("/checks/watch").one("dl", class_="tiles").text
    newest = site.client().get("/v1/checks/watch/health").json()["id"]
    rate = site.client().get(f"/v1/runs/{newest}/answers").json()["summary"]["measures"]["faithful"]
    assert f"Answers {rate:.3f} faithful (uncalibrated), " in tiles


def test_without_answers_it_is_said_what_comes_first(sqlite_store: Store) -> None:
    shown = site_of(sqlite_store).page("/answers")
    assert "No answers yet" in words(shown)
    assert shown.all("a", href="/judges")


def test_what_people_confirmed_is_marked_no_more(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    run_id = labelled.it.run()
    paths = ("/checks/watch", f"/runs/{run_id}/answers", f"/v1/runs/{run_id}/report?format=markdown")
    for path in paths:
        assert "faithful (uncalibrated)" in site.client().get(path).text, path
    labelled.put()
    labelled.draw()
    labelled.label()
    for path in paths:
        assert "faithful (uncalibrated)" not in site.client().get(path).text, path


@pytest.mark.parametrize("outcome", [JudgeOutcome.JUDGE_TIMEOUT, JudgeOutcome.JUDGE_REFUSED, JudgeOutcome.OVER_BUDGET])
def test_an_outcome_is_said_in_place_of_a_number(sqlite_store: Store, outcome: JudgeOutcome) -> None:
    it = answered_world(sqlite_store, answers_page(["ant"]))
    it.judge.outcome = outcome
    shown = words(Site(world=it.world).page(f"/runs/{it.run()}/answers"))
    assert str(outcome).replace("_", " ") in shown
    assert "faithful (uncalibrated) \N{EN DASH}" in shown


def test_hostile_answers_are_harmless(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(KEYS))
    it.ask_answers.texts |= dict.fromkeys(KEYS, HOSTILE)
    labelled = Labelled(it=it)
    run_id = it.run()
    labelled.put()
    labelled.draw()
    site = Site(world=it.world)
    for path in (f"/runs/{run_id}/answers", "/tasks/labels", "/judges/reader"):
        assert "<script>alert" not in site.client().get(path).text, path
    item = present(annotations.next_item(sqlite_store, "labels", annotator="Ann", now=it.world.clock())["item"])
    assert item["text"] == HOSTILE
    assert tasks.load_task(sqlite_store, "labels")["items"] == 20


def test_a_judge_shows_its_yaml_and_where_it_is_edited(labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    button = site.page("/judges/reader").one("a", href="/judges/reader/edit")
    edited = site.page("/judges/reader/edit")
    assert button.text.startswith("Edit")
    assert "slug: reader" in edited.one("pre", id="yaml").text
    assert "there is no form for it" in edited.text or "change it there and apply" in edited.text
