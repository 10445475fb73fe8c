"""Alerts about generated answers: what page, webhook and mail say when answers get worse, and what to look at."""

import json
import re
from collections.abc import Mapping
from email import message_from_bytes, policy
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.texts import corrected_text
from app.base.values import EMPTY, Answer, replace
from app.comparison.rendering import ComparisonReport, comparison_tables
from app.comparison.service import comparisons
from app.hooks.domain import Hook, HookKind, Mail, MailTls, Notice, NoticeData
from app.hooks.notices import body_of
from app.reports import store as report_rows
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_html, report_markdown
from app.reports.service import check_details
from app.reports.service.reports import DueReports, load_report, write_report
from app.retrievers.domain.retrievers import ProbeQuery
from tests.support.answered_world import JUDGE, SOURCE, TEXTS, Answered, answered_world, answers_page, with_texts
from tests.support.fakes import answered, hits
from tests.support.html_pages import Page
from tests.support.pages_service import Site
from tests.support.two_checks import KEYS, TwoChecks

MAIL = Mail(host="mail.test", port=25, tls=MailTls.NONE, sender="coalmine@example.org", recipients=("ops@example.org",))
FEW = ["ant", "bee", "cat", "dog", "elk", "fox"]
GENERATOR = "Look at the generator (model, prompt, settings)"
CONTEXT = "Look at the context: the generator gets other chunks"
AT_THE_JUDGE = "Look at the judge (model, wording)"
RETRIEVAL = "Look at retrieval: it got worse for the same queries."
OF_RETRIEVAL = ("Improve retrieval", "Re-index", "last healthy one", "canaries that changed")


def notices(it: Answered) -> list[Notice]:
    """Deliver what waits, and return all notices that the hook got."""
    it.world.deliver_all()
    return [json.loads(message.body) for _, message in it.world.send.sent]


def mail_of(notice: Notice) -> tuple[str, str]:
    """Return subject and text of the mail of a notice."""
    body = body_of(Hook(slug="mail", kind=HookKind.EMAIL, mail=MAIL), notice, "message")
    mail = message_from_bytes(body, policy=policy.default)
    text = mail.get_body(("plain",))
    assert text is not None
    return str(mail["subject"]), text.get_content().replace("\r\n", "\n")


def fallen(store: Store, *, measure: str = "faithful", question: str = "faithful") -> tuple[TwoChecks, int]:
    """Label two checks by a rule on a measure, and let more answers of one become lies of which the judge sees all."""
    two = TwoChecks.of(store, question, measure=measure)
    two.label(question)
    two.run("blind")
    two.it.ask_answers.texts = {key: f"A lie about {key}." for key in KEYS[:46]}
    run_id = two.it.world.run("blind").id
    two.it.rate(run_id)
    return two, run_id


def scheduled_report(it: Answered) -> NoticeData:
    """Let a minute pass, and write the report that is due."""
    it.world.clock.advance(61)
    DueReports(it.world.store).queue_due(it.world.clock())
    with it.world.store.read() as connection:
        number = int(connection.execute(sa.select(sa.func.max(report_rows.reports.c.id))).scalar_one())
    assert write_report(it.world.store, number, now=it.world.clock())
    with it.world.store.read() as connection:
        return report_rows.read_content(connection, number)


def few(store: Store, check: Mapping[str, Any] = EMPTY, *, measure: str = "faithful", **rule: Any) -> Answered:
    """Run a check of six answers that are all good, with a rule on a measure by a judge that nobody confirmed."""
    own = {"kind": "threshold", "measure": measure, "warning": {"below": 0.9}, "open": {"bad": 1, "of": 1}, "close": 1}
    document = answers_page(FEW, sample=1.0, rules=[own | rule], schedule={"every": "1d"}, **check)
    it = answered_world(store, {**document, "judges": [{**JUDGE, "questions": ["faithful", "answer_relevance"]}]})
    it.judge.no.add("A lie about")
    it.ask_answers.texts = {key: f"A word about {key}." for key in FEW}
    it.run()
    return it


def lie(it: Answered, count: int) -> None:
    """Let answers become lies, over whatever chunks they get."""
    it.ask_answers.texts = {
        key: f"A {'lie' if place < count else 'word'} about {key}." for place, key in enumerate(FEW)
    }


@pytest.mark.parametrize("measure", ["faithful", "faithful_corrected"])
def test_an_alert_by_peoples_labels_says_so_wherever_it_is_read(sqlite_store: Store, measure: str) -> None:
    two, run_id = fallen(sqlite_store, measure=measure)
    rate = two.it.summary(run_id)["corrected"]["faithful"]
    shown = f"faithful, corrected by people's labels, {corrected_text(rate['value'], rate)}"
    assert f"({rate['low']:.3f} to {rate['high']:.3f}; the judge: 0.582)" in shown
    [notice] = notices(two.it)
    data = notice["data"]
    assert data["summary"] == (
        f"blind: {shown}, below 0.6 since 12:04 UTC (run {run_id}), "
        "40 of 110 answers got worse by the judge: all changed over the same chunks"
    )
    assert data["reason"].startswith(f"{shown} is below 0.6 (critical)")
    assert (data["measure"], data["value"], data["corrected"]) == (measure, rate["value"], rate)
    assert str(data["advice"]).startswith(GENERATOR)
    assert (data["degraded"], data["lost"], data["fleet"], data["changed_total"]) == ([], None, None, None)
    assert data["answers"] is not None
    assert (data["answers"]["worse"], data["answers"]["of"], data["answers"]["changes"]) == (40, 110, {"answer": 40})
    assert data["answers"]["listed"][0] == {
        "key": "q000", "query": "q000", "value_before": 1.0, "value": 0.0, "change": "answer"
    }  # fmt: skip

    subject, text = mail_of(notice)
    assert subject == data["title"] == "blind: 40 of 110 answers got worse by the judge"
    assert f"blind: {shown}, below 0.6" in text
    assert f"Faithful, corrected by people's labels: {corrected_text(rate['value'], rate)} (bound 0.6)\n" in text
    assert f"What to do: {GENERATOR}" in text
    assert "- q000 “q000”: 1.000 → 0.000, changed over the same chunks\n" in text
    assert "and 30 more\n" in text

    page = Site(world=two.it.world).page("/alerts/1")
    assert shown in page.text
    assert GENERATOR in page.one("p", id="advice").text
    assert (
        f"{rate['low']:.3f} to {rate['high']:.3f}; the judge: 0.582"
        in page.one("section", **{"aria-labelledby": "why"}).text
    )
    worse = page.one("section", **{"aria-labelledby": "worse"}).text
    assert "40 of 110 answers got worse" in worse
    assert not page.all("section", **{"aria-labelledby": "degraded"})
    assert not any(word in page.text for word in OF_RETRIEVAL)


@pytest.mark.parametrize("measure", ["faithful", "faithful_corrected"])
def test_labels_that_do_not_confirm_the_judge_leave_its_corrected_rate_uncalibrated(
    sqlite_store: Store, measure: str
) -> None:
    two = TwoChecks.of(sqlite_store, measure=measure)
    two.label(refused={key for place, key in enumerate(KEYS) if place % 4 == 1})
    found = load_report(sqlite_store, str(two.run("blind")))
    site = Site(world=two.it.world)
    assert "Uncalibrated, a hint only: kappa 0.3" in site.page("/judges/reader").text, "there are labels"
    assert "| faithful corrected (uncalibrated) | " in report_markdown(found)
    line = check_details.load_line(sqlite_store, "blind", two.it.world.clock())
    assert make_badge(sqlite_store, line, measure="faithful_corrected").label == (
        "blind faithful corrected (uncalibrated)"
    )
    assert "faithful corrected (uncalibrated)" in site.page("/runs/3").text
    two.run("seen")
    view, _ = comparisons.compare_references(sqlite_store, "check:seen", "check:blind", limit=0)
    [table] = [
        one
        for one in comparison_tables(ComparisonReport(view=view, losses=[], wins=[]))
        if one.title == "Generated answers"
    ]
    assert all(cell.endswith(" (uncalibrated)") for cell in table.rows[0][1:3])
    assert table.rows[0][-1] == "people's labels"

    two.it.ask_answers.texts = {key: f"A lie about {key}." for key in KEYS[:46]}
    run_id = two.it.world.run("blind").id
    two.it.rate(run_id)
    rate = two.it.summary(run_id)["corrected"]["faithful"]
    shown = f"faithful, corrected by people's labels (uncalibrated), {corrected_text(rate['value'], rate)}"
    [notice] = notices(two.it)
    data = notice["data"]
    assert data["summary"].startswith(f"blind: {shown}, below 0.6")
    assert data["reason"].startswith(f"{shown} is below 0.6 (warning)")
    assert data["uncalibrated"] is True
    assert str(data["advice"]).endswith(
        "No labels of people confirm the judge: its page says what to do before you rely on it."
    )
    assert data["title"] == "blind: 40 of 110 answers got worse (by an uncalibrated judge)"
    _, text = mail_of(notice)
    fact = f"aithful, corrected by people's labels (uncalibrated): {corrected_text(rate['value'], rate)} (bound 0.6)"
    assert f"\nF{fact}\n" in text
    assert shown in site.page("/alerts/1").text


@pytest.mark.parametrize("kind", [HookKind.EMAIL, HookKind.SLACK, HookKind.PAGERDUTY])
def test_the_fact_of_a_judge_that_nobody_confirmed_is_marked_in_every_message(
    sqlite_store: Store, kind: HookKind
) -> None:
    it = few(sqlite_store)
    lie(it, 2)
    it.run()
    [notice] = notices(it)
    assert notice["data"]["uncalibrated"] is True
    hook = Hook(slug="out", kind=kind, mail=MAIL if kind is HookKind.EMAIL else None)
    if kind is HookKind.EMAIL:
        body = mail_of(notice)[1]
        assert "Faithful (uncalibrated): 0.667 (bound 0.9)\n" in body
    else:
        body = body_of(hook, notice, "message").decode()
        assert "faithful (uncalibrated)" in body.lower().replace("*", "")
        assert "Faithful: " not in body
        assert '"faithful":' not in body


def test_an_alert_by_the_judges_own_shares_says_so_and_what_people_would_say(sqlite_store: Store) -> None:
    two, run_id = fallen(sqlite_store, measure="faithfulness", question="faithfulness")
    rate = two.it.summary(run_id)["corrected"]["faithfulness"]
    people = f"corrected rate {rate['value']:.3f}, {rate['low']:.3f} to {rate['high']:.3f}"
    shown = f"faithfulness 0.582 (mean share by the judge; {people})"
    [notice] = notices(two.it)
    data = notice["data"]
    assert data["summary"].startswith(f"blind: {shown}, below 0.6 since 12:04 UTC (run {run_id}), ")
    assert data["reason"].startswith(f"{shown} is below 0.6 (critical)")
    assert data["value"] == pytest.approx(64 / 110)
    assert (data["measure"], data["corrected"], data["beside"]) == ("faithfulness", None, rate)
    subject, text = mail_of(notice)
    assert subject == data["title"] == "blind: 40 of 110 answers got worse by the judge"
    assert f"blind: {shown}, below 0.6" in text
    assert f"F{shown[1:].replace('0.582 (', ': 0.582 (').replace(' :', ':')} (bound 0.6)\n" in text
    assert not any(f"\n{name}: " in text for name in ("Degraded", "Coverage", "First-hit relevance"))
    site = Site(world=two.it.world)
    page = site.page("/alerts/1")
    assert shown in page.text
    why = page.one("section", **{"aria-labelledby": "why"}).text
    assert f"0.582 mean share by the judge; {people}" in why
    assert "Judged is the rate corrected by people's labels" not in why
    alert = site.client().get("/v1/alerts/1").json()
    assert alert["evidence"]["window"][-1]["beside"] == rate
    two.run("blind")
    assert "faithfulness 0.873 (mean share by the judge; corrected rate " in notices(two.it)[-1]["data"]["summary"]


def one_canary_missing(item: ProbeQuery) -> Answer:
    """Answer each query with its chunk, but for one."""
    return answered(replace(hits("other"), texts=("Another text.",))) if item.query == "fox" else with_texts(item)


BAD = "faithful (uncalibrated) 0.500 is below 0.9 (warning)"


def test_what_is_watched_already_has_the_rules_on_answers(sqlite_store: Store) -> None:
    bounds = {"coverage": {"critical": {"below": 0.5}}, "faithful": {"warning": {"below": 0.9}}}
    rules = [{"kind": "threshold", "measure": name, **bound} for name, bound in bounds.items()]
    it = answered_world(sqlite_store, answers_page(FEW, sample=1.0, rules=rules))
    it.run()
    said = (
        "Protected now: alerts when coverage falls below 0.5 in 2 of 3 runs or faithful falls below 0.9 in 2 of 3 runs."
    )
    assert said in Site(world=it.world).page("/checks/watch").text


@pytest.mark.parametrize("runs_to_open", [1, 2])
def test_a_run_whose_answers_are_bad_is_nowhere_healthy_by_its_rules(sqlite_store: Store, runs_to_open: int) -> None:
    it = few(sqlite_store, open={"bad": runs_to_open, "of": runs_to_open}, close=3)
    site, client = Site(world=it.world), Site(world=it.world).client()
    assert "No rule is violated in the latest run." in site.page("/checks/watch").text
    it.world.probe.otherwise = one_canary_missing
    lie(it, 3)
    it.run()

    told = site.page("/checks/watch").one("section", class_="recovering").text
    assert f"Healthy by what was retrieved; its answers are bad: {BAD}." in told
    assert "1 of 6 canaries is degraded." in told
    assert "answers bad" in told
    assert ("1 alert is open, and resolves after 3 good runs." in told) == (runs_to_open == 1)
    assert f"Healthy by what was retrieved; its answers are bad: {BAD}." in site.page("/runs/2").text
    row = site.page("/").one("tbody").text
    assert f"answers bad healthy by what was retrieved; its answers are bad: {BAD}" in row.replace("overdue ", "")
    badge = make_badge(sqlite_store, check_details.load_line(sqlite_store, "watch", it.world.clock()))
    assert (badge.value, badge.kind) == ("answers bad", "recovering")
    link = re.search(r"/public/([\w-]{43})", client.post("/checks/watch/public-link").text)
    assert link is not None
    public = site.page(f"/public/{link[1]}").text
    assert "All runs shown are healthy by what was retrieved, since" in public
    assert "healthy by what was retrieved." in public.partition("newest on the right")[2]

    report = load_report(sqlite_store, "2")
    title = "Healthy by what was retrieved, although 1 of 6 canaries is degraded; its answers are bad"
    sentence = f"healthy by what was retrieved; its answers are bad: {BAD}"
    markdown = report_markdown(report)
    assert markdown.startswith(f"# {title}: watch\n- {sentence}\n")
    assert Page(report_html(report)).one("h1").text == f"{title}: watch"
    shown = {form: client.get(f"/v1/runs/2/report?format={form}") for form in ("json", "junit", "html", "markdown")}
    assert (shown["json"].json()["run"]["verdict"], shown["json"].json()["bad_answers"]) == ("healthy", [BAD])
    assert sentence in shown["junit"].text
    assert 'failures="0"' in shown["junit"].text, "the verdict is about retrieval"
    for text in (*(one.text for one in shown.values()), site.page("/").text, site.page("/checks/watch").text, markdown):
        for false in ("ealthy by its rules", "ealthy by the rules", "ealthy in this run", "ealthy in its newest run"):
            assert false not in text
        assert "more good run" not in text.partition("Evaluation of every rule")[0]
        assert "No rule is violated" not in text


def test_a_scheduled_report_says_first_that_answers_are_bad(sqlite_store: Store) -> None:
    it = few(sqlite_store, {"report": {"cron": "* * * * *", "hooks": ["ops"]}})
    lie(it, 3)
    it.run()
    content = scheduled_report(it)
    assert content["summary"].startswith("watch: report, healthy by what was retrieved, answers bad")
    assert content["lines"][0] == f"healthy by what was retrieved; its answers are bad: {BAD}"
    lie(it, 0)
    it.run()
    content = scheduled_report(it)
    assert content["summary"].startswith("watch: report, healthy")
    assert not any("bad" in text for text in (content["summary"], *content["lines"]))


def test_a_service_answers_an_alert_about_answers_as_it_is_described(sqlite_store: Store) -> None:
    two, _ = fallen(sqlite_store)
    client = Site(world=two.it.world).client()
    alert = client.get("/v1/alerts/1").json()
    assert alert["transitions"][0]["evidence"]["answers"]["changes"] == {"answer": 40}
    [listed] = client.get("/v1/alerts").json()["items"]  # is not validated, and a warning of its serializer is an error
    assert listed["transitions"][0]["evidence"] == alert["transitions"][0]["evidence"]


def test_an_alert_by_peoples_labels_that_ends_says_by_which_rate(sqlite_store: Store) -> None:
    two, _ = fallen(sqlite_store)
    notices(two.it)
    run_id = two.run("blind")
    rate = two.it.summary(run_id)["corrected"]["faithful"]
    last = notices(two.it)[-1]
    assert last["type"] == "alert.resolved"
    shown = (
        f"(run {run_id}): faithful, corrected by people's labels, {corrected_text(rate['value'], rate)}; coverage 1.000"
    )
    assert last["data"]["summary"].endswith(shown)
    assert (last["data"]["advice"], last["data"]["answers"]) == (None, None)


def test_an_alert_that_labels_changed_says_that_they_count_now(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.run("blind")
    two.run("seen")
    two.it.ask_answers.texts = {key: f"A lie about {key}." for key in KEYS[:46]}
    two.it.rate(two.it.world.run("blind").id)
    opened = notices(two.it)[-1]
    assert (opened["type"], opened["data"]["corrected"]) == ("alert.opened", None)
    assert "labels of people count now" not in opened["data"]["summary"]
    two.label()
    two.it.rate(two.it.world.run("blind").id)
    changed = notices(two.it)[-1]
    assert changed["data"]["corrected"] is not None
    assert "; labels of people count now, and did not when this was told last" in changed["data"]["summary"]


@pytest.mark.parametrize("measure", ["faithful", "answer_relevance", "utilisation"])
def test_answers_that_change_over_the_same_chunks_point_at_the_generator(sqlite_store: Store, measure: str) -> None:
    it = few(sqlite_store, measure=measure)
    if measure == "utilisation":
        it.ask_answers.texts = {}
        it.run()
    lie(it, 3)
    it.run()
    data = notices(it)[-1]["data"]
    assert str(data["advice"]).startswith(GENERATOR)
    assert not any(word in str(data["advice"]) for word in OF_RETRIEVAL)
    assert data["answers"] is not None
    assert set(data["answers"]["changes"]) == {"answer"}
    judged = measure != "utilisation"
    assert ("(uncalibrated)" in data["summary"]) is judged
    assert ("No labels of people confirm the judge" in str(data["advice"])) is judged


def test_answers_made_of_other_chunks_point_at_the_context(sqlite_store: Store) -> None:
    it = few(sqlite_store)

    def others(item: ProbeQuery) -> Answer:
        found = hits(f"doc-{item.query}", "noise")
        return answered(replace(found, texts=(f"{TEXTS} This is about {item.query}.", "Something else here.")))

    it.world.probe.otherwise = others
    lie(it, 3)
    it.run()
    data = notices(it)[-1]["data"]
    assert data["summary"].endswith("3 of 6 answers got worse by the judge: all made from other chunks")
    assert str(data["advice"]).startswith(CONTEXT)


def test_the_same_chunks_with_other_scores_are_the_same(sqlite_store: Store) -> None:
    it = few(sqlite_store)

    def rescored(item: ProbeQuery) -> Answer:
        found = with_texts(item).ranking
        assert found is not None
        return answered(replace(found, scores=tuple(score - 0.01 for score in found.scores if score is not None)))

    it.world.probe.otherwise = rescored
    lie(it, 3)
    it.run()
    data = notices(it)[-1]["data"]
    assert data["summary"].endswith("3 of 6 answers got worse by the judge: all changed over the same chunks")


def test_the_same_answers_judged_otherwise_point_at_the_judge(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    rule = {
        "kind": "threshold",
        "measure": "faithful",
        "warning": {"below": 0.9},
        "open": {"bad": 1, "of": 1},
        "close": 1,
    }
    document = answers_page(FEW, sample=1.0, rules=[rule])
    questions = ["faithful", "answer_relevance"]
    it.world.apply({**document, "judges": [{**JUDGE, "questions": questions, "model": "smaller"}]})
    it.judge.no.add("A word about")
    it.run()
    data = notices(it)[-1]["data"]
    told = "judge reader rates with smaller, it rated with small"
    assert data["summary"].endswith(f"6 of 6 answers got worse by the judge: {told}; all judged otherwise")
    assert str(data["advice"]).startswith(f"See first what was changed: {told}.")


def test_an_alert_about_answers_that_another_model_ends_says_so(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    lie(it, 4)
    it.run()
    assert [one["type"] for one in notices(it)] == ["alert.opened"]
    put(it, {}, {"model": "smaller"})
    lie(it, 0)
    it.run()
    last = notices(it)[-1]
    assert last["type"] == "alert.resolved"
    assert last["data"]["summary"].endswith("; judge reader rates with smaller, it rated with small")


def test_worse_retrieval_of_the_same_canaries_is_said_and_that_of_others_is_not(sqlite_store: Store) -> None:
    it = few(sqlite_store)

    def lost(item: ProbeQuery) -> Answer:
        if item.query not in {"ant", "bee", "fox"}:
            return with_texts(item)
        return answered(replace(hits("noise", "other"), texts=("Nothing else here.", "Nor here.")))

    it.world.probe.otherwise = lost
    lie(it, 3)
    it.run()
    data = notices(it)[-1]["data"]
    end = "3 of 6 answers got worse by the judge: 2 with worse retrieval, 1 changed over the same chunks"
    assert data["summary"].endswith(end)
    assert str(data["advice"]).startswith(RETRIEVAL)
    assert GENERATOR in str(data["advice"])
    assert data["answers"] is not None
    assert [(one["key"], one["change"]) for one in data["answers"]["listed"]] == [
        ("ant", "retrieval"), ("bee", "retrieval"), ("cat", "answer")
    ]  # fmt: skip
    assert {one["key"] for one in data["degraded"]} == {"ant", "bee", "fox"}
    page = Site(world=it.world).page("/alerts/1")
    assert page.all("section", **{"aria-labelledby": "degraded"})


def test_worse_retrieval_of_other_canaries_is_no_part_of_an_alert_about_answers(sqlite_store: Store) -> None:
    it = few(sqlite_store)

    def lost(item: ProbeQuery) -> Answer:
        return answered(replace(hits("noise"), texts=("Nothing.",))) if item.query == "fox" else with_texts(item)

    it.world.probe.otherwise = lost
    lie(it, 2)
    it.run()
    data = notices(it)[-1]["data"]
    assert data["summary"].endswith("2 of 6 answers got worse by the judge: all changed over the same chunks")
    assert (data["degraded"], data["fleet"], data["degraded_total"]) == ([], None, 1)
    page = Site(world=it.world).page("/alerts/1")
    assert not page.all("section", **{"aria-labelledby": "degraded"})
    assert "chunk" not in page.one("section", **{"aria-labelledby": "history"}).text


def test_an_alert_of_the_first_run_has_nothing_to_compare_with_and_says_what_to_read(sqlite_store: Store) -> None:
    rule = {
        "kind": "threshold",
        "measure": "faithful",
        "warning": {"below": 0.9},
        "open": {"bad": 1, "of": 1},
        "close": 1,
    }
    it = answered_world(sqlite_store, answers_page(FEW, sample=1.0, rules=[rule]))
    it.judge.no.add("A lie about")
    lie(it, 3)
    it.run()
    data = notices(it)[-1]["data"]
    assert data["summary"] == "watch: faithful (uncalibrated) 0.500, below 0.9 since 12:01 UTC (run 1)"
    assert str(data["advice"]).startswith("Read the worst answers of the run beside their chunks")
    assert data["answers"] is None


def test_pages_of_an_open_alert_count_the_answers_of_the_newest_bad_run(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    lie(it, 2)
    it.run()
    data = notices(it)[-1]["data"]
    lie(it, 5)
    it.run()
    site = Site(world=it.world)
    for path in ("/alerts", "/incidents/1", "/alerts/1", f"/checks/{data['check']}"):
        text = site.page(path).text
        assert "5 of 6 answers got worse" in text, path
        assert "2 of 6 answers got worse" not in text, path
    assert "2 of 6 answers got worse" in data["title"]


def put(it: Answered, retriever: Mapping[str, Any], judge: Mapping[str, Any] = EMPTY) -> None:
    """Put the check of `few` in force with another retriever or judge."""
    bound = {"warning": {"below": 0.9}, "open": {"bad": 1, "of": 1}, "close": 1}
    rules = [{"kind": "threshold", "measure": "faithful", **bound}]
    described = answers_page(FEW, sample=1.0, rules=rules, schedule={"every": "1d"})
    [search] = described["retrievers"]
    used = {**search, **retriever}
    checks = [{**described["checks"][0], "retriever": used["slug"]}]
    judges = [{**JUDGE, "questions": ["faithful", "answer_relevance"], **judge}]
    retrievers = [used] if used["slug"] == search["slug"] else [search, used]
    it.world.clock.advance(60)
    it.world.apply({**described, "retrievers": retrievers, "checks": checks, "judges": judges})
    it.world.clock.advance(60)


def test_another_judge_hides_no_change_of_the_texts(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    lie(it, 2)
    it.run()
    before = notices(it)[-1]["data"]
    generator = "Look at the generator (model, prompt, settings): its answers changed, and the chunks it gets did not."
    assert str(before["advice"]).startswith(generator)
    put(it, {}, {"model": "large"})
    lie(it, 4)
    it.run()
    page = Site(world=it.world).page("/alerts/1").text
    told = "judge reader rates with large, it rated with small; all changed over the same chunks"
    assert f"4 of 6 answers got worse by the judge: {told}" in page
    assert "judged otherwise" not in page
    assert "Set it back, or run the check both ways, before you look for a fault." in page
    assert f"The judge does not change texts, and these changed too. {generator}" in page


def test_another_judge_alone_is_told_where_the_texts_stayed(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    put(it, {}, {"url": "http://other.test/v1"})
    it.judge.no.add("notice period")  # this endpoint refuses what the former one accepted
    it.run()
    data = notices(it)[-1]["data"]
    assert data["summary"].endswith("judge reader was edited after run 1; all judged otherwise")
    assert "Look at the generator" not in str(data["advice"])
    assert "these changed too" not in str(data["advice"])


@pytest.mark.parametrize(
    ("retriever", "judge", "told"),
    [
        ({"slug": "other"}, {}, "the check asks retriever other, it asked search"),
        ({"answer": {**SOURCE, "url": "http://other.test/"}}, {}, "retriever search was edited after run 1"),
        ({}, {"url": "http://other.test/v1"}, "judge reader was edited after run 1"),
        ({"timeout": 7}, {"timeout": 7}, ""),
    ],
)
def test_an_alert_names_what_was_changed_of_the_check_before_it_blames_anything_else(
    sqlite_store: Store, retriever: Mapping[str, Any], judge: Mapping[str, Any], told: str
) -> None:
    it = few(sqlite_store)
    put(it, retriever, judge)
    lie(it, 2)
    it.run()
    [notice] = notices(it)
    worse = "2 of 6 answers got worse by the judge: "
    assert f"{worse}{told}; all" in notice["data"]["summary"] if told else f"{worse}all" in notice["data"]["summary"]
    assert str(notice["data"]["advice"]).startswith(f"See first what was changed: {told}." if told else "Look at the ")
    page = Site(world=it.world).page("/alerts/1").text
    assert (f"Meanwhile {told}." in page) == bool(told)
