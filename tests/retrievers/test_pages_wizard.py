"""The mapping wizard without scripts: paste or ask, point, see what would be scored, save or copy; friend and foe."""

import json
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import pytest

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.documents.http_fields import AUTH_KINDS, AUTH_SECRETS
from app.base.values import Answer, Outcome
from app.catalog.documents.canary_files import read_canary_files, read_secret
from app.catalog.service import references
from app.definitions.service import definitions
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import Dialect
from app.retrievers.presets import PRESETS
from tests.retrievers.test_pages_try import exchanged
from tests.support.fakes import FakeProbe, answered, failed, hits
from tests.support.html_pages import Page
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.pages_service import HOSTILE, Bench, Site, csrf, page, site
from tests.support.world import RETRIEVER, canary
from tests.support.world import page as canary_page

NEW = "/new-retriever"
MAP = "/retrievers/search/map"
QUERY = "How long are logs kept?"
PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
ANSWER: Mapping[str, Any] = {
    "took": 3,
    "found": [
        {"key": f"doc-{name}", "closeness": 0.9 - place / 10, "body": f"{PROSE} Part {name}.", "of": {"file": "a.md"}}
        for place, name in enumerate("abc")
    ],
    "version": "v7",
}
FIELDS = {"slug": "docs", "preset": "generic", "url": "http://search.test/ask", "k": "10", "query": QUERY}
FIELDS |= {"request.method": "POST", "request.json": '{"q": "{{ query }}"}', "answer": json.dumps(ANSWER)}
MAPPED = {**FIELDS, "response.hits": "found", "response.id": "key", "response.score": "closeness"}
MAPPED |= {"response.text": "body", "scorer": "similarity"}


@pytest.fixture
def empty(sqlite_store: Store) -> Site:
    """Give the pages over nothing yet."""
    return Bench(world=site(sqlite_store).world, probe=FakeProbe())


@pytest.fixture
def pages(empty: Site) -> Site:
    """Give the pages over a suite and a file-managed retriever."""
    empty.world.apply(canary_page([canary("a"), canary("z")]))
    return empty


def sent(pages: Site, status: int = 200, path: str = NEW, /, **more: Any) -> Page:
    """Send the form of a new retriever as somebody on the open service."""
    return page(pages.client().post(path, data={**FIELDS, **more}), status)


def typed(shown: Page) -> dict[str, str]:
    """Give the mapping that stands in the fields of a page."""
    named = [one for one in shown.all("input") if one.get("name").startswith("response.")]
    return {one.get("name").removeprefix("response."): one.get("value") for one in named if one.get("value")}


def chosen(shown: Page, name: str) -> str:
    """Give what is selected in a select: the first option where none is said to be."""
    start = shown.elements.index(shown.one("select", name=name))
    options = list(takewhile(lambda one: one.tag in {"option", "optgroup"}, shown.elements[start + 1 :]))
    values = [one for one in options if one.tag == "option"]
    return next((one for one in values if "selected" in one.attributes), values[0]).get("value")


def test_a_new_retriever_begins_with_what_it_is(empty: Site) -> None:
    shown = empty.page(NEW)
    links = {link.get("href") for link in shown.all("a")}
    assert {f"{NEW}?preset={name}" for name in ("generic", "chroma", "pgvector", "mcp")} <= links
    assert NEW in {link.get("href") for link in empty.page("/retrievers").all("a")}


def test_a_preset_brings_its_own_fields(empty: Site) -> None:
    chroma = empty.page(f"{NEW}?preset=chroma")
    assert chroma.one("input", name="options.tenant").get("value") == "default_tenant"
    assert chroma.all("input", name="embedding.url")
    assert typed(chroma) == dict(PRESETS["chroma"].response)
    assert typed(empty.page(f"{NEW}?preset=generic")) == {}  # nothing to point into yet
    sql = empty.page(f"{NEW}?preset=pgvector")
    assert chosen(sql, "auth.kind") == "basic"
    assert "SELECT" in sql.one("textarea", name="request.sql").text
    empty.page(f"{NEW}?preset=nothing", 422)


def test_every_option_of_a_preset_has_its_field_and_a_missing_one_is_named_there(empty: Site) -> None:
    for preset in PRESETS.values():
        shown = empty.page(f"{NEW}?preset={preset.name}")
        for one in preset.options:
            field = shown.one("input", name=f"options.{one.name}")
            assert (field.get("value"), field.get("placeholder")) == (one.default or "", one.example), preset
            assert shown.one("label", **{"for": f"f-options.{one.name}"}).text == one.label, preset
            assert shown.one("span", id=f"hint-options-{one.name}").text == f"used as {{{{ {one.name} }}}}", preset
        expected = {} if preset.response_as_one else dict(preset.response)
        absent = expected.pop("absent", "")
        assert not absent or chosen(shown, "response.absent") == absent, preset
        assert typed(shown) == expected, preset
        form = {**fields_of(shown), "slug": "docs", "url": preset.example_url, "do": "save"}
        if not any(one.required for one in preset.options):
            continue
        refused = page(empty.client().post(NEW, data=form), 422)
        for one in (one for one in preset.options if one.required):
            told = f"is missing; preset {preset.name} needs option `{one.name}`, for example {one.example}"
            assert refused.one("span", id=f"wrong-options-{one.name}").text == told, preset
            assert f"{one.label}: {told}" in refused.one("div", id="problems").text, preset
        assert fields_of(refused) == {name: value for name, value in form.items() if name != "do"}, preset


@pytest.mark.parametrize(("chosen_text", "stored"), [("empty", "empty"), ("", None)])
def test_what_an_absent_list_means_is_saved_as_it_is_chosen(empty: Site, chosen_text: str, stored: str | None) -> None:
    form = fields_of(empty.page(f"{NEW}?preset=vespa"))
    filled = {**form, "slug": "docs", "url": PRESETS["vespa"].example_url, "options.source": "docs", "do": "save"}
    answer = empty.client().post(NEW, data={**filled, "response.absent": chosen_text})
    assert answer.status_code == 303
    assert references.load_definition(empty.world.store, "retriever", "docs").body["response"]["absent"] == stored


def test_what_a_preset_knows_of_its_authentication_is_filled_in_chosen_or_not(empty: Site) -> None:
    for preset in [one for one in PRESETS.values() if one.auth]:
        shown = empty.page(f"{NEW}?preset={preset.name}")
        fields = {one.get("name"): one.get("value") for one in shown.all("input")}
        kind, *known = preset.auth.items()
        prefix = f"auth.{kind[1]}"
        assert {name: fields[f"{prefix}.{name}"] for name, _ in known} == dict(known), preset
        assert (chosen(shown, "auth.kind") == kind[1]) is (preset.needs_auth or preset.dialect is Dialect.SQL), preset


def test_a_collection_that_is_not_there_is_told_by_its_name_and_host(empty: Site) -> None:
    def answer(seen: Seen) -> Reply:
        if seen.target == "/v1/embeddings":
            return reply(b'{"data": [{"index": 0, "embedding": [0.1, 0.2]}]}')
        return reply(b'{"error": "NotFoundError"}', 404)

    empty.probe = RetrieverProbe(retriever_policy(), "coalmine/test")
    with peer(answer) as server:
        form = fields_of(empty.page(f"{NEW}?preset=chroma"))
        form |= {"url": server.url, "options.collection": "docs", "query": QUERY, "do": "ask"}
        form |= {"embedding.url": f"{server.url}/v1", "embedding.model": "small"}
        shown = page(empty.client().post(NEW, data=form))
        host = server.url.removeprefix("http://")
        assert f"{host} has no collection 'docs' (HTTP 404). Check the collection name." in shown.text
        form = fields_of(empty.page(f"{NEW}?preset=elasticsearch"))
        form |= {"url": server.url, "options.index": "docs", "query": QUERY, "do": "ask"}
        shown = page(empty.client().post(NEW, data=form))
        assert "nothing at this address: check the index 'docs' and the URL" in shown.text


def test_a_form_without_fields_for_the_mapping_takes_that_of_its_preset(empty: Site) -> None:
    fields = fields_of(empty.page(f"{NEW}?preset=elasticsearch"))
    form = {name: value for name, value in fields.items() if not name.startswith("response.")}
    form |= {"slug": "docs", "url": "http://es.test", "options.index": "docs", "do": "save"}
    assert empty.client().post(NEW, data=form).status_code == 303
    stored = references.load_definition(empty.world.store, "retriever", "docs").body
    assert stored["response"]["hits"] == "hits.hits"


def test_a_pasted_answer_is_shown_as_a_tree_with_suggestions(empty: Site) -> None:
    shown = sent(empty, do="read")
    tree = shown.all("button", name="point")
    assert [one.text for one in tree][:3] == ["3 fields", "took 3", "found list of 3"]
    assert "3 hits" in shown.one("details", class_="suggested").text
    assert isinstance(empty.probe, FakeProbe)
    assert empty.probe.asked == []


def test_a_suggestion_without_a_text_says_so(empty: Site) -> None:
    bare = {"found": [{"key": key, "closeness": 0.5} for key in "abc"]}
    told = "no text was recognised: point at it"
    assert told in sent(empty, do="read", answer=json.dumps(bare)).one("details", class_="suggested").text
    assert told not in sent(empty, do="read").one("details", class_="suggested").text


def test_a_suggestion_fills_the_paths_and_the_scale(empty: Site) -> None:
    shown = sent(empty, use="0")
    assert typed(shown) | {"document": "of.file"} == {
        "hits": "found",
        "id": "key",
        "score": "closeness",
        "text": "body",
        "document": "of.file",
    }
    assert chosen(shown, "scorer") == "similarity"
    assert "3 hits" in shown.one("section", **{"aria-labelledby": "step-4"}).text


def test_pointing_writes_the_paths_and_leads_from_field_to_field(empty: Site) -> None:
    mapping: dict[str, str] = {}
    for pointing, place, path in (
        ("hits", ["found"], "found"),
        ("id", ["found", 0, "key"], "key"),
        ("score", ["found", 1, "closeness"], "closeness"),
        ("text", ["found", 0, "body"], "body"),
        ("document", ["found", 0, "of", "file"], "of.file"),
        ("index_version", ["version"], "version"),
    ):
        shown = sent(empty, pointing=pointing, point=json.dumps(place), **mapping)
        assert typed(shown)[pointing] == path
        mapping = {f"response.{name}": one for name, one in typed(shown).items()}
        mapping["scorer"] = chosen(shown, "scorer")
        following = [one for one in shown.all("input", type="radio") if "checked" in one.attributes]
        assert following[0].get("value") != pointing or pointing == "index_version"
    assert mapping["scorer"] == "similarity"
    scored = shown.one("section", **{"aria-labelledby": "step-4"}).text
    for told in ("3 hits", "top score 0.900", "doc-a", "a.md", "v7"):
        assert told in scored
    assert "List of hits" in shown.one("button", value='["found"]').text


def test_pointing_outside_the_hits_is_refused_in_words(empty: Site) -> None:
    shown = sent(empty, pointing="id", point='["version"]', **{"response.hits": "found"})
    assert "this is not in a hit: the list of hits is found" in shown.one("p", class_="said").text
    assert "is no place in the answer" in sent(empty, pointing="id", point='["x", 1]').one("p", class_="said").text
    assert "is no place in the answer" in sent(empty, pointing="id", point="{{ 7*7").one("p", class_="said").text


def test_typed_paths_are_previewed_and_wrong_ones_told_at_their_field(empty: Site) -> None:
    shown = sent(empty, **{"response.hits": "found", "response.id": "key"})
    assert "doc-a" in shown.one("table", class_="ranking").text
    shown = sent(empty, 422, **{"response.hits": "found[", "response.id": "key"})
    assert "is not a JMESPath expression" in shown.one("span", id="wrong-response-hits").text
    assert shown.one("input", name="response.hits").get("value") == "found["
    assert shown.one("input", name="response.hits").get("aria-invalid") == "true"


def test_what_is_odd_about_a_mapping_is_said(empty: Site) -> None:
    for more, said in [
        ({"response.id": "", "response.text": "body"}, "no id is mapped"),
        ({"response.id": "of.file"}, "2 hits had an id that came before"),
        ({"response.text": ""}, "no text is mapped"),
        ({"scorer": ""}, "no scale is chosen"),
        ({"scorer": "distance"}, "are these scores similarities?"),
        ({"response.text": "nothing"}, "was found in 0 of 3 hits"),
    ]:
        shown = page(empty.client().post(NEW, data={**MAPPED, **more}))
        assert said in shown.one("ul", class_="remarks").text.lower(), more


FAR = json.dumps(
    {
        "found": [
            {"key": "a", "distance": 1.3, "body": PROSE},
            {"key": "b", "distance": 1.5, "body": "Access is granted by the owner of a workspace."},
        ]
    }
)


def test_a_suggestion_taken_over_is_not_warned_of_and_the_pointer_goes_on(empty: Site) -> None:
    fresh = {"preset": "generic", "answer": FAR, "pointing": "hits", "response.hits": "results", "use": "0"}
    shown = page(empty.client().post(NEW, data=fresh))
    assert shown.one("input", name="response.hits").get("value") == "found"
    assert chosen(shown, "scorer") == "judged"
    assert not shown.all("ul", class_="remarks")
    (aimed,) = [one for one in shown.all("input", name="pointing") if "checked" in one.attributes]
    assert aimed.get("value") == "document"


def test_a_scale_that_is_pointed_at_is_chosen_where_good_answers_reach_what_canaries_ask(empty: Site) -> None:
    typed = {
        "preset": "generic",
        "answer": FAR,
        "response.hits": "found",
        "response.id": "key",
        "response.text": "body",
    }
    point = {"point": json.dumps(["found", 0, "distance"]), "pointing": "score"}
    shown = page(empty.client().post(NEW, data={**typed, **point}))
    assert chosen(shown, "scorer") == "judged"
    assert "the scores look like distances" in shown.one("p", class_="said").text
    assert "less relevant than most canaries ask" in shown.one("p", class_="said").text
    assert not shown.all("ul", class_="remarks")
    barely = page(empty.client().post(NEW, data={**typed, **point, "answer": FAR.replace("1.3", "0.9")}))
    assert chosen(barely, "scorer") == "judged"  # other questions' good answers are farther away
    near = page(empty.client().post(NEW, data={**typed, **point, "answer": FAR.replace("1.3", "0.3")}))
    assert chosen(near, "scorer") == "distance"


def test_a_warning_of_scores_speaks_the_words_of_the_form(empty: Site) -> None:
    typed = {
        "preset": "generic",
        "answer": FAR,
        "response.hits": "found",
        "response.id": "key",
        "response.text": "body",
    }
    shown = page(empty.client().post(NEW, data={**typed, "response.score": "distance", "scorer": "distance"}))
    told = shown.one("ul", class_="remarks").text
    assert "choose another scale under “Scores are”, or “not on a scale: judgments alone tell”" in told
    assert "lower the canaries' “Minimum relevance”" in told
    assert "min_relevance_score" not in told
    assert "scorer" not in told


def test_scores_outside_their_scale_are_shown_with_what_a_run_would_do(empty: Site) -> None:
    grown = json.dumps({"found": [{"key": "a", "closeness": 17.5, "body": PROSE}]})
    shown = page(empty.client().post(NEW, data={**MAPPED, "answer": grown}))
    assert "A run would refuse this response: found[0].closeness: outside the declared scale" in shown.text
    assert "17.5" in shown.one("table", class_="ranking").text
    scored = page(
        empty.client().post(NEW, data={**MAPPED, "answer": grown, "scorer": "unbounded", "scorer.anchor": "17.5"})
    )
    assert "top score 0.500" in scored.text


def test_scores_are_previewed_by_the_scale_that_saving_would_put_in_force(empty: Site) -> None:
    form = {**MAPPED, "preset": "pinecone", "scorer": "", "url": "http://index.test/query"}
    shown = page(empty.client().post(NEW, data=form))
    assert "as the preset says: cosines, -1 to 1" in shown.one("select", name="scorer").text
    assert "top score 0.900" in shown.one("section", **{"aria-labelledby": "step-4"}).text
    assert "no scale is chosen" not in shown.text
    assert empty.client().post(NEW, data={**form, "do": "save"}).status_code == 303
    assert references.load_definition(empty.world.store, "retriever", "docs").body["scorer"]["scale"] == "cosine"


def test_relevance_that_a_run_measures_outside_is_not_said_to_be_undecided(empty: Site) -> None:
    embedder = {"embedding.url": "http://embedder.test/v1", "embedding.model": "m"}
    told = page(empty.client().post(NEW, data={**MAPPED, **embedder, "scorer": "embedding"})).text
    assert "In a run the embedder measures how relevant the first hit is, which is not asked here." in told
    assert "no scale is chosen" not in told.lower()


def test_scores_are_shown_as_the_retriever_gave_them(empty: Site) -> None:
    found = [{"key": "a", "closeness": 12345.6, "body": PROSE}, {"key": "b", "closeness": 0.673398, "body": PROSE}]
    form = {**MAPPED, "answer": json.dumps({"found": found}), "scorer": "unbounded", "scorer.anchor": "9"}
    shown = page(empty.client().post(NEW, data=form)).one("table", class_="ranking").text
    assert "12345.6" in shown
    assert "0.673398" in shown


def test_a_canary_says_which_of_its_chunks_the_mapping_finds(pages: Site) -> None:
    shown = page(pages.client().post(NEW, data={**MAPPED, "canary": "suite/a"}))
    assert "everything it expects is found" in shown.text
    assert "rank 1, by id" in shown.text
    assert shown.all("tr", class_="match")
    missed = page(pages.client().post(NEW, data={**MAPPED, "canary": "suite/z"}))
    assert "1 of its 1 expected chunk is not among the hits" in missed.text
    gone = page(pages.client().post(NEW, data={**MAPPED, "canary": "suite/gone"}), 422)
    assert "has no canary 'gone'" in gone.text


def test_asking_puts_the_answer_into_the_form(empty: Site) -> None:
    body = json.dumps(ANSWER)
    empty.probe = FakeProbe(otherwise=lambda _: exchanged(failed(Outcome.MALFORMED), body))
    shown = sent(empty, do="ask", answer="")
    assert shown.one("textarea", name="answer").text == body
    assert "HTTP 200" in shown.text
    assert shown.all("button", value='["found"]')
    assert [asked for _, asked in empty.probe.asked] == [QUERY]
    assert empty.probe.askings[0].retriever.url == "http://search.test/ask"


def test_a_canary_lends_its_query(pages: Site) -> None:
    pages.probe = FakeProbe(otherwise=lambda _: exchanged(failed(Outcome.MALFORMED), "{}"))
    sent(pages, do="ask", answer="", query="", canary="suite/z")
    assert [asked for _, asked in pages.probe.asked] == ["z"]


def test_a_long_answer_is_kept_as_far_as_it_came_whole(empty: Site) -> None:
    whole = json.dumps({"found": [{"key": f"k{place}", "body": PROSE * 40} for place in range(200)]})
    cut = exchanged(answered(hits("a")), whole[:250_000])
    empty.probe = FakeProbe(otherwise=lambda _: cut)
    shown = sent(empty, do="ask", answer="", **{"response.hits": "found", "response.id": "key"})
    kept = json.loads(shown.one("textarea", name="answer").text)
    assert 50 < len(kept["found"]) < 100
    assert "only the beginning is shown" in shown.text


def test_an_endpoint_that_fails_is_told_as_probes_tell_it(empty: Site) -> None:
    empty.probe = FakeProbe(otherwise=lambda _: failed(Outcome.BLOCKED, detail="the address is not allowed"))
    shown = sent(empty, do="ask", answer="")
    assert "No response: blocked" in shown.text
    assert "The address is not allowed." in shown.text


def test_what_cannot_be_saved_is_said_at_its_field_and_nothing_is_stored(pages: Site) -> None:
    for more, field in [
        ({"url": "ftp://x"}, "url"),
        ({"url": ""}, "url"),
        ({"slug": "Not A Slug"}, "slug"),
        ({"request.json": "{"}, "request-json"),
        ({"request.json": '{"q": "the same for all"}'}, "request"),
        ({"request.headers": "no colon"}, "request-headers"),
        ({"timeout": "never"}, "timeout"),
        ({"auth.kind": "bearer"}, "auth-bearer-token"),
        ({"scorer": "unbounded"}, "scorer"),
    ]:
        before = pages.world.dump()
        shown = page(pages.client().post(NEW, data={**MAPPED, "do": "save", **more}), 422)
        assert shown.one("span", id=f"wrong-{field}").text, more
        assert shown.one("input", name="response.id").get("value") == "key", more
        assert pages.world.dump() == before, more


def test_a_retriever_is_saved_as_the_api_would_and_its_secret_never_shown(empty: Site) -> None:
    secret = "a-token-nobody-may-see"
    form = {
        **MAPPED,
        "do": "save",
        "auth.kind": "bearer",
        "auth.bearer.token": secret,
        "request.headers": "X-Key: xyzzy-1",
    }
    answer = empty.client().post(NEW, data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/retrievers/docs?saved=yes")
    stored = references.load_definition(empty.world.store, "retriever", "docs")
    assert stored.managed_by == "api"
    assert stored.body["response"]["hits"] == "found"
    assert stored.body["scorer"]["scale"] == "similarity"
    for path in ("/retrievers/docs?saved=yes", "/retrievers/docs/map", "/retrievers"):
        text = empty.client().get(path).text
        assert secret not in text
        assert "xyzzy-1" not in text
    shown = empty.page("/retrievers/docs?saved=yes")
    assert "X-Key, auth.token" in shown.text
    assert "60 canaries notice a loss of 5 % of the index" in shown.text
    steps = shown.one("ol", class_="setup")
    names = [one.text.partition(": ")[0] for one in shown.all("li") if one.text in steps.text]
    assert names == ["Done", "A suite of canaries", "A hook", "A check"]
    assert "who is notified of an alert" in steps.text
    assert {"/suites", "/new-check?retriever=docs", "/new-hook"} <= {link.get("href") for link in shown.all("a")}
    assert shown.one("li", **{"aria-current": "step"}).text.startswith("A suite of canaries")


def test_a_saved_retriever_that_a_check_uses_names_no_further_step(pages: Site) -> None:
    assert not pages.page("/retrievers/search?saved=yes").all("ol", class_="setup")


_TICKED = {"radio", "checkbox"}


def fields_of(shown: Page) -> dict[str, str]:
    """Give what the wizard's form sends when its fields are left as they are."""
    found: dict[str, str] = {}
    start = shown.elements.index(shown.one("form", class_="editor"))
    for one in shown.elements[start:]:
        name = one.get("name")
        if one.tag == "input" and name and (one.get("type") not in _TICKED or "checked" in one.attributes):
            found[name] = one.get("value")
        elif one.tag == "textarea":
            found[name] = "".join(one.pieces).removeprefix("\n")
        elif one.tag == "select":
            found[name] = chosen(shown, name)
    return found


def test_saving_a_retriever_as_it_stands_changes_nothing(empty: Site) -> None:
    secret = "a-token-nobody-may-see"
    form = {**MAPPED, "do": "save", "auth.kind": "bearer", "auth.bearer.token": secret, "timeout": "2.5"}
    assert empty.client().post(NEW, data=form).status_code == 303
    before = references.load_definition(empty.world.store, "retriever", "docs")
    form = {**fields_of(empty.page("/retrievers/docs/map")), "do": "save"}
    assert form["auth.bearer.token"] == ""
    assert empty.client().post("/retrievers/docs/map", data=form).status_code == 303
    after = references.load_definition(empty.world.store, "retriever", "docs")
    assert after.revision == before.revision
    assert empty.world.vault.decrypt(after.secrets) == {"auth.token": secret}


def test_an_api_key_goes_into_the_usual_header_unless_its_preset_says_another(empty: Site) -> None:
    shown = empty.page(f"{NEW}?preset=generic")
    assert shown.one("input", name="auth.api_key.header").get("value") == "X-Api-Key"
    assert shown.one("input", name="auth.api_key.query").get("value") == ""
    assert "instead of a header" in shown.text
    qdrant = empty.page(f"{NEW}?preset=qdrant")
    assert qdrant.one("input", name="auth.api_key.header").get("value") == "api-key"
    typed = {**fields_of(shown), **MAPPED, "do": "save", "auth.kind": "api_key", "auth.api_key.key": "k-1"}
    assert empty.client().post(NEW, data=typed).status_code == 303
    stored = references.load_definition(empty.world.store, "retriever", "docs").body["auth"]
    assert (stored["header"], stored.get("query")) == ("X-Api-Key", None)


@pytest.mark.parametrize(("header", "query"), [("", ""), ("X-Api-Key", "key")])
def test_an_api_key_without_one_place_is_refused_at_its_header_by_the_labels(
    empty: Site, header: str, query: str
) -> None:
    places = {"auth.api_key.header": header, "auth.api_key.query": query}
    typed = {**MAPPED, "auth.kind": "api_key", "auth.api_key.key": "k-1", **places}
    for action in ("save", "ask"):
        refused = page(empty.client().post(NEW, data={**typed, "query": "logs?", "do": action}), 422)
        told = refused.one("span", id="wrong-auth-api_key-header").text
        assert told == "fill in either Header or Query parameter: the key goes to one of them"
        assert f"Header: {told}" in refused.one("div", id="problems").text
        assert refused.one("input", name="auth.api_key.header").get("value") == header


def test_an_emptied_limit_is_the_default_again_and_a_prefix_keeps_its_space(empty: Site) -> None:
    key = {
        "auth.kind": "api_key",
        "auth.api_key.key": "k-1",
        "auth.api_key.header": "X-K",
        "auth.api_key.prefix": "ApiKey ",
    }
    form = {**MAPPED, **key, "do": "save", "timeout": "2.5", "requests_per_second": "3", "concurrency": "2"}
    assert empty.client().post(NEW, data=form).status_code == 303
    stored = references.load_definition(empty.world.store, "retriever", "docs").body
    assert stored["auth"]["prefix"] == "ApiKey "
    fields = fields_of(empty.page("/retrievers/docs/map"))
    assert (fields["timeout"], fields["requests_per_second"], fields["concurrency"]) == ("2500ms", "3", "2")
    emptied = {**fields, "do": "save", "timeout": "", "requests_per_second": ""}
    assert empty.client().post("/retrievers/docs/map", data=emptied).status_code == 303
    after = references.load_definition(empty.world.store, "retriever", "docs").body
    assert (after["timeout"], after["requests_per_second"], after["concurrency"]) == (10.0, None, 2)


def test_each_kind_of_authentication_has_a_field_for_all_that_its_document_takes(empty: Site) -> None:
    for kind in AUTH_KINDS:
        group = empty.page(f"{NEW}?preset=generic")
        inputs = {
            one.get("name"): one.get("type")
            for one in group.all("input")
            if one.get("name").startswith(f"auth.{kind}.")
        }
        without_field = {
            "kind",
            "tls",
        }  # certificates are written in files and over REST, as those of the retriever are
        names = [name for name in AUTH_KINDS[kind].model_fields if name not in without_field]
        assert inputs == {f"auth.{kind}.{name}": "password" if name in AUTH_SECRETS else "text" for name in names}, kind


def test_no_step_sends_back_a_secret_and_each_field_of_one_says_so(empty: Site) -> None:
    """Without scripts every step loads the page anew, and what is sent back is kept by caches and histories."""
    token, key, pasted = "a-token-nobody-may-see", "xyzzy-1", "Bearer plugh-2"
    form = {**MAPPED, "auth.kind": "bearer", "auth.bearer.token": token, "embedding.auth.token": token}
    form |= {"embedding.url": "http://embed.test/v1", "request.headers": f"X-Key: {key}\n{pasted}"}
    for more in ({"do": "ask"}, {"do": "read"}, {"do": "save"}, {"use": "0"}, {"point": '["found"]'}, {}):
        text = empty.client().post(NEW, data={**form, **more}).text
        assert [secret for secret in (token, key, "plugh-2") if secret in text] == []
        shown = Page(text)
        assert shown.one("textarea", name="request.headers").text == "X-Key:"
        again = [one.text for one in shown.all("noscript") if "Type it again before each step" in one.text]
        assert len(again) == len(shown.all("input", type="password")) + 1  # and at the headers


def test_a_header_whose_value_was_not_typed_again_is_asked_for_and_none_is_saved_empty(empty: Site) -> None:
    form = {**MAPPED, "do": "save", "request.headers": "X-Key: xyzzy-1\nX-Other:"}
    shown = page(empty.client().post(NEW, data=form), 422)
    assert "say the value of X-Other" in shown.one("span", id="wrong-request-headers").text
    assert references.load_definitions(empty.world.store, "retriever") == []
    form |= {"request.headers": "X-Key: xyzzy-1"}
    assert empty.client().post(NEW, data=form).status_code == 303
    stored = {**fields_of(empty.page("/retrievers/docs/map")), "do": "save", "timeout": "3"}
    assert stored["request.headers"] == "X-Key:"
    assert empty.client().post("/retrievers/docs/map", data=stored).status_code == 303  # what is stored stays
    secrets = definitions.stored_secrets(empty.world.store, empty.world.vault, "retriever", "docs")
    assert secrets == {"request.headers.X-Key": "xyzzy-1"}


def test_a_stored_secret_goes_to_no_other_address(empty: Site) -> None:
    form = {**MAPPED, "do": "save", "auth.kind": "bearer", "auth.bearer.token": "a-token-nobody-may-see"}
    assert empty.client().post(NEW, data=form).status_code == 303
    moved = {**fields_of(empty.page("/retrievers/docs/map")), "url": "http://evil.test/", "query": QUERY}
    for wish in ("save", "ask"):
        shown = page(empty.client().post("/retrievers/docs/map", data={**moved, "do": wish}), 422)
        assert "not sent to another address" in shown.text
    assert isinstance(empty.probe, FakeProbe)
    assert empty.probe.asked == []


def test_a_new_retriever_can_be_a_canary_file_instead(empty: Site) -> None:
    shown = page(
        empty.client().post(NEW, data={**MAPPED, "auth.kind": "bearer", "auth.bearer.token": "a-secret-token"})
    )
    text = "".join(shown.one("pre", id="yaml").pieces).removeprefix("\n")
    assert "a-secret-token" not in text
    environment = {"RETRIEVER_DOCS_AUTH_TOKEN": "a-secret-token"}
    (read,) = read_canary_files([("docs.yaml", text)], environment, read_secret).retrievers
    assert (read.slug, read.response.hits, str(read.scorer.scale)) == ("docs", "found", "similarity")


def test_a_retriever_of_a_file_is_mapped_for_the_file(pages: Site) -> None:
    assert "url: http" in pages.page(MAP).one("pre", id="yaml").text
    shown = pages.page(f"{MAP}?draft=yes")
    assert "canaries.yaml:1" in shown.text
    assert typed(shown) == {"hits": "hits", "id": "id", "score": "score"}
    assert not shown.all("input", name="url")
    form = {
        "query": QUERY,
        "k": "5",
        "answer": json.dumps(ANSWER),
        **{name: value for name, value in MAPPED.items() if "response" in name},
    }
    form["scorer"] = "cosine"
    shown = page(pages.client().post(MAP, data=form))
    yaml = "".join(shown.one("pre", id="yaml").pieces)
    assert "hits: found" in yaml
    assert "scale: cosine" in yaml
    assert not shown.all("button", value="save")
    before = pages.world.dump()
    refused = page(pages.client().post(MAP, data={**form, "do": "save"}), 409)
    assert "is managed by canaries.yaml:1" in refused.text
    assert pages.world.dump() == before


def test_asking_by_a_changed_mapping_is_for_everybody_who_may_write(pages: Site) -> None:
    pages.probe = FakeProbe(otherwise=lambda _: exchanged(answered(hits("a")), "{}"))
    client = pages.signed_in(pages.key(Scope.WRITE))
    action = page(client.get(f"{MAP}?draft=yes")).one("form", class_="editor").get("action")
    form = {
        "csrf": csrf(client),
        "do": "ask",
        "query": QUERY,
        "k": "5",
        "response.hits": "other",
        "response.id": "id",
        "response.score": "score",
    }
    assert client.post(action, data=form).status_code == 200
    assert [asking.retriever.response.hits for asking in pages.probe.askings] == ["other"]


def test_only_admins_define_and_readers_press_nothing(pages: Site) -> None:
    admin = pages.client()
    assert admin.post(NEW, data={**MAPPED, "do": "save"}).status_code == 303
    for scope in (Scope.READ, Scope.WRITE):
        client = pages.signed_in(pages.key(scope))
        token = csrf(client)
        for path in (NEW, "/retrievers/docs/map"):
            form = {**MAPPED, "do": "save", "slug": "mine", "url": "http://elsewhere.test/"}
            assert client.post(path, data={**form, "csrf": token}).status_code == 403
            ask = client.post(path, data={**form, "do": "ask", "csrf": token})
            assert ask.status_code == 403
        shown = page(client.get("/retrievers/docs/map"))
        assert "disabled" in shown.one("button", value="save").attributes
        assert ("disabled" in shown.one("button", value="ask").attributes) is (scope is Scope.READ)
        assert "disabled" in page(client.get(f"{NEW}?preset=generic")).one("button", value="ask").attributes
    assert isinstance(pages.probe, FakeProbe)
    assert pages.probe.asked == []
    assert [one.slug for one in references.load_definitions(pages.world.store, "retriever")] == ["docs", "search"]


def test_a_script_that_asks_for_a_part_is_answered_in_kind(empty: Site) -> None:
    client = empty.client(**{"hx-request": "true"})
    wrong = client.post(NEW, data={**MAPPED, "do": "save", "url": ""})
    assert wrong.status_code == 200
    assert page(wrong).one("span", id="wrong-url").text
    saved = client.post(NEW, data={**MAPPED, "do": "save"})
    assert (saved.status_code, saved.headers["hx-redirect"]) == (200, "/retrievers/docs?saved=yes")


def test_everything_but_saving_stores_nothing(pages: Site) -> None:
    pages.probe = FakeProbe(otherwise=lambda _: exchanged(answered(hits("a")), json.dumps(ANSWER)))
    before = pages.world.dump()
    for more in (
        {"do": "ask"},
        {"do": "read"},
        {"do": "preview"},
        {"use": "0"},
        {"pointing": "id", "point": '["took"]'},
    ):
        sent(pages, **more)
    assert pages.world.dump() == before


HALF = '{"found": [{"\\ud800": "\\udfff", "key": "a\\ud800", "body": "\\ud83d"}]}'
HOSTILE_ANSWERS = {
    "tags": json.dumps(
        {HOSTILE: [{HOSTILE: HOSTILE, "key": HOSTILE, "body": HOSTILE * 40}] * 3, "found": [{"key": HOSTILE}]}
    ),
    "half": HALF,
    "deep": '{"found": ' + '[{"a": ' * 50_000,
    "list": "[" * 100_000,
    "wide": json.dumps({f"k{place}": {"a": "b" * 50} for place in range(10_000)}),
    "long": json.dumps({"found": [{"key": f"c{place}", "body": "x" * 900} for place in range(1_100)]}),
    "digits": '{"found": [{"key": ' + "9" * 10_000 + "}]}",
    "numbers": '{"found": [{"key": 1e999, "body": NaN}]}',
    "text": HOSTILE,
}


@pytest.mark.parametrize("name", HOSTILE_ANSWERS)
def test_hostile_answers_are_inert_and_bounded(empty: Site, name: str) -> None:
    answer = HOSTILE_ANSWERS[name]
    form = {
        **FIELDS,
        "answer": answer,
        "response.hits": "found",
        "response.id": "key",
        "pointing": "id",
        "point": '["found"]',
    }
    response = empty.client().post(NEW, data=form)
    shown = page(response)
    assert not shown.all("img", src="x")
    assert all(script.get("src").startswith("/static/") for script in shown.all("script"))
    assert not [one for one in shown.elements if any(key.startswith("on") or key == "style" for key in one.attributes)]
    assert len(shown.all("button", name="point")) <= 400
    # The answer itself stands in the form once, escaped; everything made of it is bounded.
    assert len(response.text) < 6 * len(answer) + 400_000
    page(empty.client().post(NEW, data={**form, "use": "0"}))


def test_an_answer_the_retriever_gives_may_be_as_hostile(empty: Site) -> None:
    for body in HOSTILE_ANSWERS.values():
        hostile: Answer = exchanged(failed(Outcome.MALFORMED, detail=HOSTILE), body[:200_000])
        empty.probe = FakeProbe(answers={HOSTILE: hostile})
        shown = sent(empty, do="ask", answer="", query=HOSTILE, slug=HOSTILE[:20], url="http://search.test/")
        assert not shown.all("img", src="x")


def test_the_page_of_a_retriever_says_it_in_words(pages: Site) -> None:
    shown = pages.page("/retrievers/search")
    for told in (
        "http://search.test/",
        "generic",
        "canaries.yaml:1",
        "similarities, 0 to 1",
        "Method POST",
        "watch",
        "none yet",
    ):
        assert told in shown.text
    pages.world.run()
    shown = pages.page("/retrievers/search")
    assert "2 ok" in shown.text
    assert "2 ok" in pages.page("/retrievers").text
    pages.page("/retrievers/nobody", 404)


def test_a_retriever_in_use_is_not_archived(pages: Site) -> None:
    put = pages.client().put(
        "/v1/retrievers/spare", json={name: RETRIEVER[name] for name in RETRIEVER if name != "slug"}
    )
    assert put.status_code == 201
    assert pages.client().post("/retrievers/spare/archive").headers["location"] == "/retrievers"
    pages.page("/retrievers/spare", 404)
    assert "is managed by canaries.yaml:1" in page(pages.client().post("/retrievers/search/archive"), 409).text
