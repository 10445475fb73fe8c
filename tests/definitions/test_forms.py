"""What was typed into forms, as it is read, and what is wrong with it, as it is said."""

import json
import re
from collections.abc import Mapping
from itertools import takewhile

import pytest

from app.base.db.engine import Store
from app.base.errors import Problem
from app.base.web.forms import Form, label_problems, problems_by_field, read_fields
from app.base.web.pages import joined
from tests.retrievers.test_pages_wizard import fields_of
from tests.support.html_pages import Element, Page
from tests.support.pages_service import Site, page, site
from tests.support.world import canary
from tests.support.world import page as canary_page

CHECK = {"suite": "suite", "retriever": "search", "schedule": "every", "schedule.every": "5m", "k": "5"}
RETRIEVER = {"preset": "generic", "slug": "new", "url": "http://127.0.0.1:9/", "request.method": "POST", "k": "10"}
TAKES = {**RETRIEVER, "request.json": json.dumps({"q": "{{ query }}"}), "response.id": "id"}


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check."""
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("ant")]))
    return made


def test_what_was_typed_is_gathered_in_one_pass_with_every_value_of_a_name() -> None:
    pairs = iter([("check", "a"), ("slug", "night"), ("check", "b")])
    assert read_fields(pairs) == Form(
        texts={"check": "b", "slug": "night"}, lists={"check": ("a", "b"), "slug": ("night",)}
    )


def test_a_place_nobody_sees_a_label_of_is_named_as_it_is() -> None:
    problems = (Problem(path="rules[0].by", message="a"), Problem(path="other", message="b"), Problem(message="c"))
    told = [str(one) for one in label_problems(problems, {"rules": "Rules"})]
    assert told == ["Rules, number 1, by: a", "other: b", "c"]


def test_beside_a_field_of_several_things_it_is_said_which_is_meant() -> None:
    found = {"rules[1].critical.by": "a", "floors.MRR": "b", "rule.coverage.open": "c", "rules": "d", "k": "e"}
    wrong = problems_by_field(
        (Problem(path=path, message=told) for path, told in found.items()), {"rules", "floors", "rule.coverage"}
    )
    assert wrong == {
        "rules": ["number 2, critical, by: a", "d"],
        "floors": ["MRR: b"],
        "rule.coverage": ["c"],
        "k": ["e"],
    }


def test_sentences_behind_one_another_have_one_kind_of_stop() -> None:
    assert joined(["unknown; did you mean 'x'?", "must be at most 1", "`5x` is none."]) == (
        "unknown; did you mean 'x'? Must be at most 1; `5x` is none"
    )
    assert joined([]) == ""


def test_what_is_wrong_with_a_form_is_said_by_the_labels_on_the_page(pages: Site) -> None:
    for path, form, heading, told in [
        (
            "/new-check",
            {**CHECK, "slug": "Bad Name", "k": "x", "schedule.every": "", "do": "save"},
            "Not saved:",
            {"Name": "not 'Bad Name'; try 'bad-name'", "Interval": "", "Hits that count (k)": "must be a whole number"},
        ),
        (
            "/new-check",
            {**CHECK, "rule.coverage": "yes", "rule.coverage.warning": "90%", "rule.coverage.critical": "85"},
            "Not saved:",
            {
                "Coverage threshold, Warning below": "write 0.9 for 90%",
                "Coverage threshold, Critical below": "must be at most 1; write 0.85 for 85%",
            },
        ),
        (
            "/new-check",
            {
                **CHECK,
                "rule.latency": "yes",
                "rule.latency.warning": "fast",
                "rule.coverage": "yes",
                "rule.coverage.warning": "0,9",
                "rules": "- {kind: dro}",
                "do": "yaml",
            },
            "YAML not written:",
            {
                "Coverage threshold, Warning below": "write 0.9 for 0,9",
                "Latency threshold, Warning above": "is not a duration",
                "Rules as YAML, number 1, kind": "did you mean 'drop'? Built are: threshold",
            },
        ),
        (
            "/new-check",
            {**CHECK, "rule.coverage": "yes", "rule.coverage.warning": "1", "rule.coverage.bad": "4"},
            "Not saved:",
            {"Coverage threshold, Bad runs": "must not ask for 4 bad runs of 3"},
        ),
        (
            "/suites/suite/add",
            {"query": "", "key": "a", "min_relevance_score": "80 %", "floors": "MRR: x", "do": "save"},
            "Not saved:",
            {"Query": "", "Minimum relevance": "write 0.8 for 80 %", "Floors of measures, MRR": ""},
        ),
        ("/suites/suite/add", {"query": "?", "key": "-a b", "do": "save"}, "Not saved:", {"Key": "; try 'a-b'"}),
        (
            "/new-retriever",
            {**TAKES, "slug": "My_Docs", "do": "save"},
            "This cannot be used yet:",
            {"Name": "'my-docs'"},
        ),
        (
            "/suites/suite/add",
            {"query": "?", "do": "find"},
            "Request not sent:",
            {"Find them with a retriever": "choose"},
        ),
        (
            "/new-retriever",
            {**TAKES, "slug": "", "url": "x", "timeout": "x", "auth.kind": "bearer", "do": "save"},
            "This cannot be used yet:",
            {"Name": "digits and hyphens, not empty", "URL": "", "Token": "must not be empty", "Timeout": ""},
        ),
        (
            "/new-retriever",
            {**TAKES, "response.hits": "a[", "answer": "[]", "do": "read"},
            "This cannot be used yet:",
            {"List of hits": "is not a JMESPath expression"},
        ),
        ("/import", {"format": "csv", "do": "plan"}, "Not imported:", {"Files": "choose a file"}),
        ("/retrievers/search/try", {"query": "", "k": "0"}, "This cannot be sent:", {"Query": "", "Hits": ""}),
    ]:
        shown = page(pages.client().post(path, data=form), 422)
        alert = shown.one("div", role="alert")
        assert alert.text.startswith(heading), path
        complaints = dict(one.text.split(": ", 1) for one in _inside(shown, alert) if one.tag == "li")
        assert complaints.keys() == told.keys(), path
        for label, words in told.items():
            assert words in complaints[label], path
            seen, places = _labels(shown), label.split(", ")
            assert places[0] in seen, path
            assert set(places[1:]) <= seen | {"number 1", "kind", "MRR"}, path


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("/new-retriever?preset=chroma", {"do": "save"}),
        ("/new-retriever?preset=pgvector", {"do": "ask"}),
        ("/new-hook?kind=webhook", {}),
        ("/new-hook?kind=email", {}),
        ("/new-check", {"do": "save"}),
        ("/checks/api/edit", {"do": "save"}),
        ("/suites/suite/add", {"do": "save"}),
        ("/import", {"do": "plan"}),
    ],
)
def test_a_refused_form_keeps_all_that_was_typed(pages: Site, path: str, action: Mapping[str, str]) -> None:
    assert pages.client().post("/new-check", data={**CHECK, "slug": "api", "do": "save"}).status_code == 303
    shown = pages.page(path)
    form, secrets = dict(fields_of(shown)), set()
    for number, one in enumerate(shown.all("input") + shown.all("textarea")):
        name, kind = one.get("name"), one.get("type")
        if name not in form and kind != "checkbox":
            continue
        if kind == "password":
            secrets.add(name)
        elif kind == "checkbox":
            form[name] = one.get("value") or "on"
        elif kind not in {"hidden", "radio", "file", "submit"} and name != "request.headers":
            form[name] = f"typed {number}"
    refused = page(pages.client().post(path.partition("?")[0], data={**form, **action}), 422)
    kept = fields_of(refused)
    assert {name: kept.get(name) for name in form if name not in secrets} == {
        name: value for name, value in form.items() if name not in secrets
    }


@pytest.mark.parametrize(
    ("path", "form", "wrong"),
    [
        ("/new-hook", {"kind": "email", "slug": "team chat", "tls": "starttls"}, "slug to from host"),
        ("/new-hook", {"kind": "alertmanager", "slug": "A b", "labels": "x"}, "slug url labels"),
        ("/new-hook", {"kind": "email", "slug": "a b", "to": "me", "port": "many"}, "slug to from host port"),
        ("/new-silence", {"when": "once", "for": "", "slug": "a b", "timezone": "Mars"}, "slug timezone ends all"),
        ("/new-silence", {"when": "once", "slug": "", "starts": "soon", "ends": "late"}, "slug starts ends all"),
        ("/new-silence", {"when": "window", "slug": "a b", "cron": "", "duration": "x"}, "slug cron duration all"),
        (
            "/new-check",
            {
                "slug": "a b",
                "k": "x",
                "rules": "- {",
                "schedule": "every",
                "schedule.every": "",
                "rule.coverage": "yes",
                "rule.coverage.warning": "95",
            },
            "slug suite retriever k rules schedule.every rule.coverage.warning",
        ),
        (
            "/suites/suite/add",
            {"do": "save", "query": "", "key": "a b", "floors": "x", "max_age": "x", "category": "simple_factual"},
            "query key floors max_age",
        ),
        ("/new-retriever", {**TAKES, "slug": "a b", "url": "", "do": "save"}, "slug url"),
        ("/suites", {"slug": "a b"}, "slug"),
        ("/tasks", {"slug": "a b", "suite": "suite", "pool": "x", "overlap": "2", "scale": "0-2"}, "slug pool overlap"),
        (
            "/experiments",
            {"kind": "promotion", "promotion.slug": "a b", "promotion.current": "x"},
            "promotion.slug promotion.candidate",
        ),
        ("/experiments", {"kind": "shadow", "shadow.slug": "a b", "shadow.k": "x"}, "shadow.slug shadow.k shadow.keep"),
    ],
)
def test_a_refused_form_says_all_that_is_wrong_beside_its_fields_and_proposes_names(
    pages: Site, path: str, form: Mapping[str, str], wrong: str
) -> None:
    shown = page(pages.client().post(path, data=form), 422)
    for name in wrong.split():
        place = shown.one("span", id=f"wrong-{name.replace('.', '-')}")
        assert place.text, name
        described = [one for one in shown.elements if place.get("id") in one.get("aria-describedby").split()]
        assert [one.get("name") for one in described if one.get("aria-invalid")] == [name], name
    proposals = {one.get("data-takes"): one.get("value") for one in shown.all("button") if one.get("data-takes")}
    typed = {f"f-{name}": text for name, text in form.items() if name.rpartition(".")[2] in {"slug", "key"} and text}
    assert proposals == {name: text.lower().replace(" ", "-") for name, text in typed.items()}


def test_the_form_of_a_check_says_in_a_sentence_that_the_chosen_suite_is_thin(pages: Site) -> None:
    note = "1 canary can miss a loss of 5 % of the index, 60 would notice it."
    assert note in pages.page("/new-check?suite=suite").text
    pages.world.apply(canary_page([canary(f"c{number}") for number in range(60)]))
    assert "is thin" not in pages.page("/new-check?suite=suite").text


def test_what_cannot_be_archived_is_not_said_to_be_unsaved(pages: Site) -> None:
    refused = page(pages.client().post("/suites/suite/canaries/ant/archive"), 409)
    assert "Not archived:" in refused.one("div", role="alert").text
    refused = page(pages.client().post("/checks/watch/archive"), 409)
    assert "Not archived:" in refused.one("div", role="alert").text


def test_a_canary_without_a_key_is_written_with_the_one_it_would_get(pages: Site) -> None:
    form = {"query": "How long are logs kept?", "expected_chunks[0].id": "c1", "do": "yaml"}
    assert "key: how-long-are-logs-kept" in page(pages.client().post("/suites/suite/add", data=form)).one("pre").text


def _inside(shown: Page, alert: Element) -> list[Element]:
    """Give the elements from an alert to the form behind it."""
    place = shown.elements.index(alert)
    return list(takewhile(lambda one: one.tag not in {"form", "section"}, shown.elements[place:]))


def _labels(shown: Page) -> set[str]:
    """Gather what the fields, groups of fields and parts of a page are called."""
    named_by = {one.text for kind in ("label", "legend", "h2", "summary") for one in shown.all(kind)}
    named_by = {one.removeprefix("Point at: ") for one in named_by}
    return named_by | {one.get("aria-label") for one in shown.all("input") if one.get("aria-label")}


def test_a_new_check_has_the_only_hook_ticked_and_a_hook_is_made_without_leaving_the_form(pages: Site) -> None:
    link = pages.page("/new-check").one("a", href="/new-hook")
    assert (link.get("target"), link.text) == ("_blank", "Add another hook")
    assert _ticked_hooks(pages.page("/new-check")) == {"ops": True}
    hook = {"kind": "webhook", "url": "https://ops.example.com/"}
    assert pages.client().put("/v1/hooks/night", json=hook).status_code == 201
    assert _ticked_hooks(pages.page("/new-check")) == {"night": False, "ops": False}


def _ticked_hooks(shown: Page) -> dict[str, bool]:
    """Map the hooks that are offered to whether they are ticked."""
    boxes = [one for one in shown.all("input") if one.get("name") == "hooks"]
    return {str(one.get("value")): "checked" in one.attributes for one in boxes}


def test_how_many_canaries_a_suite_takes_is_said_with_one_number(pages: Site) -> None:
    assert pages.client().post("/suites", data={"slug": "mine"}).status_code in {200, 303}
    assert "60 canaries notice a loss of 5 % of the index" in pages.page("/suites/mine").text
    assert "twenty" not in pages.page("/suites").text + pages.page("/suites/mine").text


def test_a_preset_without_a_vendor_links_to_no_reference(pages: Site) -> None:
    assert "API reference" not in pages.page("/new-retriever?preset=generic").text
    assert "API reference" in pages.page("/new-retriever?preset=chroma").text


def test_the_form_of_a_check_tells_of_the_guard_beside_the_detector(pages: Site) -> None:
    assert "While the detector learns, a temporary rule, guard, compares coverage" in pages.page("/new-check").text


def test_a_canary_links_to_its_form_or_says_where_it_is_changed(pages: Site) -> None:
    pages.world.run()
    owned = pages.page("/checks/watch/canaries/ant").one("a", href="/suites/suite/canaries/ant")
    assert owned.text == "Edit in canaries.yaml:1"
    mine = pages.client().put("/v1/suites/suite/canaries/mine", json={"key": "mine", "query": "Mine?"})
    assert mine.status_code == 201, mine.text
    pages.world.run()
    form = pages.page("/checks/watch/canaries/mine").one("a", href="/suites/suite/canaries/mine")
    assert form.text == "Edit"
    assert pages.page(form.get("href")).one("form", id="canary").get("method") == "post"


WEEKLY = {
    **CHECK,
    "slug": "weekly",
    "schedule": "cron",
    "schedule.cron": "0 8 * * mon",
    "schedule.timezone": "Europe/Berlin",
}


def test_a_cron_is_shown_in_words_with_its_next_dates_also_without_scripts(pages: Site) -> None:
    words = re.compile(
        r"Every Monday at 08:00 \(Europe/Berlin\); next: Mon \d+ \w{3} (\d{4} )?08:00, Mon .* 08:00, Mon .* 08:00$"
    )
    shown = page(pages.client().post("/new-check", data={**WEEKLY, "k": "x", "do": "save"}), 422)
    assert words.match(shown.one("output", **{"data-cron": "schedule.cron"}).text)
    assert pages.client().post("/new-check", data={**WEEKLY, "do": "save"}).status_code == 303
    assert words.match(pages.page("/checks/weekly/edit").one("output", **{"data-cron": "schedule.cron"}).text)
    assert "top 5, every Monday at 08:00 (Europe/Berlin)." in pages.page("/checks/weekly").text


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("cron=0+2+*+*+*&timezone=", r"^Every day at 02:00 \(UTC\); next: (\w{3} \d+ \w{3} (\d{4} )?02:00(, |$)){3}$"),
        ("cron=0+2+*", r"^The cron `0 2 \*` has 3 fields instead of five: minute hour day month weekday\.$"),
        ("cron=0+0+30+2+*", r"never comes due: there is no such date\.$"),
        ("cron=*+*+*+*+*&timezone=<b>", r"^There is no time zone `<b>`"),
        ("cron=+&timezone=Mars", r"^$"),
    ],
)
def test_a_typed_cron_is_answered_as_plain_text(pages: Site, query: str, told: str) -> None:
    response = pages.client().get(f"/cron-words?{query}")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert re.search(told, response.text)
    assert pages.client().get(f"/cron-words?cron={'1,' * 200}").status_code == 422
