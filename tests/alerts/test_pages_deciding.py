"""The pages on which somebody decides: why a canary degraded, what took a chunk's place, what is normal."""

from typing import Any

import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Answer
from app.catalog.service import references
from app.detection.service import baselines
from app.diagnosis.service import reanchoring
from app.diagnosis.tables import reanchors
from tests.support.html_pages import Page
from tests.support.library import API, FILE, Diagnosed, shelf
from tests.support.pages_service import HOSTILE, Site, csrf, page

CHECK = "/checks/watch"
KEY, OTHER = (one["key"] for one in shelf()[:2])


def _site(store: Store, *renamed: str, owner: str = API, canaries: list[dict[str, Any]] | None = None) -> Site:
    """Give the pages over a check whose index named these chunks anew, which a run has noticed and asked about."""
    setting = Diagnosed.of(store, canaries or shelf(), owner=owner)
    setting.run()
    for key in renamed:
        setting.library.chunks[f"{key}@2"] = setting.library.chunks.pop(key)
    setting.run()
    return Site(world=setting.world, probe=setting.library)


def _named(shown: Page, section: str) -> str:
    """Give the text of the section with this heading."""
    found = [element.text for element in shown.all("section") if element.get("aria-labelledby") == section]
    assert len(found) == 1, found
    return found[0]


def test_a_canary_is_shown_with_its_cause_its_states_and_what_it_should_find(sqlite_store: Store) -> None:
    shown = _site(sqlite_store, KEY).page(f"{CHECK}/canaries/{KEY}")
    assert "rechunked" in _named(shown, "diagnosis")
    assert "1 new judgment proposed" in _named(shown, "diagnosis")
    assert KEY in _named(shown, "expects")
    states = [row.text for row in shown.all("tr")]
    assert any("degraded" in row and "now" in row for row in states)
    assert any("healthy" in row for row in states)


def test_asking_why_on_the_page_asks_the_retriever_and_comes_back(sqlite_store: Store) -> None:
    site = _site(sqlite_store)
    client = site.client()
    assert "Cause" not in site.page(f"{CHECK}/canaries/{KEY}").text
    answer = client.post(f"{CHECK}/canaries/{KEY}/diagnosis")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{CHECK}/canaries/{KEY}#diagnosis")
    assert "by " in _named(page(client.get(f"{CHECK}/canaries/{KEY}")), "diagnosis")


def test_asking_why_of_what_was_changed_since_is_refused_on_the_page(sqlite_store: Store) -> None:
    site = _site(sqlite_store)
    changed = [{**one, "min_relevance_score": 0.1} for one in shelf()]
    Diagnosed(world=site.world).apply(changed, owner=API)
    shown = page(site.client().post(f"{CHECK}/canaries/{KEY}/diagnosis"), 409)
    assert "run the check, then ask again" in shown.one("p", class_="warning", role="alert").text


def _left_open(store: Store, lost: int) -> Site:
    """Give the pages over an alert about canaries that lost their chunks, of which nobody was asked why."""
    texts = {
        f"topic-{number}": f"about{number} some{number} thing{number} of{number} ours{number} in words for all"
        for number in range(15)
    }
    canaries = [
        {"key": key, "query": text, "expected_chunks": [key], "min_relevance_score": 0.0} for key, text in texts.items()
    ]
    setting = Diagnosed.of(store, canaries, owner=API)
    setting.library.chunks |= texts
    setting.run()
    for key in list(texts)[:lost]:
        del setting.library.chunks[key]
    if lost == len(texts):
        setting.library.chunks.clear()  # those of no canary, too: every answer is empty
    setting.run(diagnosed=False)
    return Site(world=setting.world, probe=setting.library)


def test_what_is_left_open_of_an_alert_is_asked_about_by_a_button_on_its_page(sqlite_store: Store) -> None:
    site = _left_open(sqlite_store, lost=3)
    shown = site.page("/alerts/1")
    assert "3 not diagnosed" in _named(shown, "degraded")
    (button,) = [one for one in shown.all("button") if one.text.startswith("Diagnose")]
    assert button.text == "Diagnose them (about 21 requests)"
    client = site.signed_in(site.key(Scope.WRITE))
    assert client.post("/alerts/1/diagnosis").status_code == 403
    answer = client.post("/alerts/1/diagnosis", data={"csrf": csrf(client)})
    assert (answer.status_code, answer.headers["location"]) == (303, "/alerts/1#degraded")
    asked = page(client.get("/alerts/1"))
    assert "3 missing from the index" in _named(asked, "degraded")
    assert "not explained" not in _named(asked, "degraded")
    assert not [one for one in asked.all("button") if one.text.startswith("Diagnose")]
    refused = page(client.post("/alerts/1/diagnosis", data={"csrf": csrf(client)}), 409)
    assert "is explained already" in refused.one("p", class_="warning", role="alert").text


def test_ten_are_asked_about_at_a_time_and_who_may_only_read_asks_nobody(sqlite_store: Store) -> None:
    site = _left_open(sqlite_store, lost=12)
    shown = site.page("/alerts/1")
    assert "chunks missing from the index" in _named(shown, "title")
    assert (
        "12 are explained only by what changed for the whole run. Diagnose ten of them (about 70 requests)"
        in _named(shown, "degraded")
    )
    reader = site.signed_in(site.key(Scope.READ))
    (button,) = [one for one in page(reader.get("/alerts/1")).all("button") if one.text.startswith("Diagnose")]
    assert "disabled" in button.attributes
    assert reader.post("/alerts/1/diagnosis", data={"csrf": csrf(reader)}).status_code == 403
    writer = site.signed_in(site.key(Scope.WRITE))
    answer = writer.post("/alerts/1/diagnosis", data={"csrf": csrf(writer)})
    assert answer.headers["location"] == "/alerts/1#degraded"
    assert "2 are explained only by what changed for the whole run" in _named(page(writer.get("/alerts/1")), "degraded")


def test_where_a_cause_explains_the_whole_run_the_page_does_not_call_its_canaries_unexplained(
    sqlite_store: Store,
) -> None:
    shown = _left_open(sqlite_store, lost=15).page("/alerts/1")
    assert "every answer is empty" in _named(shown, "title")
    assert "15 are explained only by what changed for the whole run. Diagnose ten of them" in _named(shown, "degraded")


def test_of_a_retriever_that_does_not_answer_in_time_no_cause_is_told(sqlite_store: Store) -> None:
    site = _left_open(sqlite_store, lost=2)
    assert site.client().post("/alerts/99/diagnosis").status_code == 404
    nothing: list[tuple[int, Answer]] = []
    site.probe = lambda _context, _queries: (nothing for _ in range(1))
    refused = page(site.client().post("/alerts/1/diagnosis"), 409)
    assert "answered too little" in refused.one("p", class_="warning", role="alert").text
    assert "2 are not explained yet" in _named(refused, "degraded")


def test_what_is_ticked_is_accepted_and_the_canary_expects_the_new_chunk(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY)
    assert "Review the replacements" in site.page(CHECK).text
    incident = site.page("/incidents/1")
    assert incident.one("p", id="advice").text.endswith("accept those with the same text. Renamed chunks")
    assert incident.one("a", href=f"{CHECK}/reanchors").text == "Renamed chunks"
    (box,) = site.page(f"{CHECK}/reanchors").all("input", name="proposal")
    shown = page(site.client().post(f"{CHECK}/reanchors", data={"proposal": box.get("value"), "answer": "accept"}))
    assert "1 judgment replaced" in shown.one("div", role="status").text
    assert not shown.all("input", name="proposal")
    expected = references.load_canary(sqlite_store, "suite", KEY).body["expected_chunks"]
    assert [chunk["id"] for chunk in expected] == [f"{KEY}@2"]


def test_the_old_text_and_the_new_stand_side_by_side_with_what_both_say_marked(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, shelf(), owner=API)
    setting.run()
    old = setting.library.chunks.pop(KEY)
    setting.library.chunks[f"{KEY}@2"] = f"Before it. {old} After it."
    setting.run()
    shown = Site(world=setting.world, probe=setting.library).page(f"{CHECK}/reanchors")
    assert [one.text for one in shown.all("blockquote")] == [old, f"Before it. {old} After it."]
    assert [one.text for one in shown.all("mark")] == [old, old]
    (told,) = reanchoring.list_all(sqlite_store, "watch", state=None, limit=9)
    assert (told["old_text"], told["new_texts"]) == (old, [f"Before it. {old} After it."])


def test_what_was_decided_stays_listed_with_who_did_it(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY, OTHER)
    client = site.signed_in(site.key(Scope.WRITE))
    for answer in ("accept", "reject"):
        box = page(client.get(f"{CHECK}/reanchors")).all("input", name="proposal")[0]
        told = {"proposal": box.get("value"), "answer": answer}
        assert client.post(f"{CHECK}/reanchors", data={**told, "csrf": csrf(client)}).status_code == 200
    text = _named(page(client.get(f"{CHECK}/reanchors")), "decided")
    answered = {
        key: next(one for one in ("accept", "reject") if f"{key} {one}ed somebody, " in text) for key in (KEY, OTHER)
    }
    assert sorted(answered.values()) == ["accept", "reject"]
    assert all(f"{key}@2" in text for key in answered)


def test_a_proposal_from_before_texts_were_kept_is_shown_without_them(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY)
    with sqlite_store.write() as connection:
        connection.execute(sa.update(reanchors).values(texts=None))
    shown = site.page(f"{CHECK}/reanchors")
    assert "Its text was not stored" in shown.text
    assert shown.all("input", name="proposal")


def test_what_is_rejected_stays_as_it_was(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY)
    (box,) = site.page(f"{CHECK}/reanchors").all("input", name="proposal")
    shown = page(site.client().post(f"{CHECK}/reanchors", data={"proposal": box.get("value"), "answer": "reject"}))
    assert "1 proposal rejected" in shown.one("div", role="status").text
    assert references.load_canary(sqlite_store, "suite", KEY).body["expected_chunks"][0]["id"] == KEY


def test_a_canary_of_a_file_gives_something_to_commit(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY, owner=FILE)
    (box,) = site.page(f"{CHECK}/reanchors").all("input", name="proposal")
    shown = page(site.client().post(f"{CHECK}/reanchors", data={"proposal": box.get("value"), "answer": "accept"}))
    assert f"{KEY}@2" in shown.one("pre", id="patched-1").text
    assert shown.all("input", name="proposal"), "it waits until the file says so"


def test_what_is_no_decision_about_a_proposal_there_is_is_refused_and_nothing_is_changed(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY)
    (box,) = site.page(f"{CHECK}/reanchors").all("input", name="proposal")
    client = site.client()
    found: dict[str, str] = {}
    for proposal in ("999", "9" * 18, "9" * 19, "9" * 30, "9" * 5000, "-1", "\u0661", "one"):
        told = {"proposal": [box.get("value"), proposal], "answer": "accept"}
        shown = page(client.post(f"{CHECK}/reanchors", data=told), 422)
        if "no proposal" not in shown.one("div", role="alert").text or len(shown.all("input", name="proposal")) != 1:
            found[proposal] = shown.text
    for answer in ({}, {"answer": ""}, {"answer": "bogus"}, {"answer": "Accept"}):
        shown = page(client.post(f"{CHECK}/reanchors", data={"proposal": box.get("value"), **answer}), 422)
        if "is 'accept' or 'reject'" not in shown.text:
            found[str(answer)] = shown.text
    assert found == {}
    shown = page(client.post(f"{CHECK}/reanchors", data={"answer": "accept"}))
    assert "tick at least one proposal" in shown.one("div", role="alert").text
    assert len(site.page(f"{CHECK}/reanchors").all("input", name="proposal")) == 1


def test_the_present_is_accepted_with_one_click_and_who_did_it_is_kept(sqlite_store: Store) -> None:
    site = _site(sqlite_store)
    client = site.signed_in(site.key(Scope.WRITE))
    told = {"answer": "accept", "note": "a new model", "csrf": csrf(client)}
    answer = client.post(f"{CHECK}/baseline", data=told)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{CHECK}#detector")
    (choice,) = baselines.show(sqlite_store, "watch").choices
    assert (choice.action, choice.by, choice.note) == ("accepted", "somebody", "a new model")
    shown = _named(page(client.get(CHECK)), "detector")
    assert "new normal accepted" in shown
    assert "a new model" in shown


def test_a_pinned_baseline_follows_the_runs_again(sqlite_store: Store) -> None:
    site = _site(sqlite_store)
    baselines.pin(sqlite_store, "watch", "1", by="Ada", note=None, now=site.world.clock())
    assert "pinned to run 1" in _named(site.page(CHECK), "detector")
    assert site.client().post(f"{CHECK}/baseline", data={"answer": "follow"}).status_code == 303
    assert baselines.show(sqlite_store, "watch").mode == "moving"


def test_a_session_without_its_token_decides_nothing(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY)
    client = site.signed_in(site.key(Scope.ADMIN))
    for path in ("/checks/watch/baseline", "/checks/watch/reanchors", "/alerts/1/acknowledge"):
        assert client.post(path, data={"answer": "accept", "proposal": "1"}).status_code == 403, path
    assert baselines.show(sqlite_store, "watch").choices == []


def test_an_alert_says_what_would_close_it_and_is_acknowledged_there(sqlite_store: Store) -> None:
    site = _site(sqlite_store, KEY)
    (alert,) = site.world.alerts()
    path = f"/alerts/{alert['id']}"
    shown = site.page(path)
    assert "It resolves after 1 good run" in _named(shown, "next")
    assert shown.all("form", action=f"{path}/acknowledge")
    answer = site.client().post(f"{path}/acknowledge")
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    after = site.page(path)
    assert "acknowledged" in after.text
    assert not after.all("form", action=f"{path}/acknowledge")


def test_hostile_names_and_texts_are_only_text_on_these_pages(sqlite_store: Store) -> None:
    canaries = [{**one, "query": f"{one['query']} {HOSTILE}"} for one in shelf()]
    setting = Diagnosed.of(sqlite_store, canaries, owner=API)
    setting.run()
    setting.library.chunks[f"{KEY}{HOSTILE}"] = setting.library.chunks.pop(KEY)
    setting.library.index_version = HOSTILE
    setting.run()
    site = Site(world=setting.world, probe=setting.library)
    for path in (CHECK, f"{CHECK}/canaries/{KEY}", f"{CHECK}/reanchors", "/alerts/1"):
        shown = site.page(path)
        assert "onerror=" in shown.text or "onerror=" in str([one.attributes for one in shown.elements]), path
        assert not shown.all("img", src="x"), path
        assert all(script.get("src").startswith("/static/") for script in shown.all("script")), path
