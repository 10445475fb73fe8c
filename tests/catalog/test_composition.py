"""Composition of a suite: canaries by category and segment, targets, and notes on unusual numbers of chunks."""

from pathlib import Path

import pytest

from app.base.values import Canary, Category, Judgment, Segment
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.secrets import content_hash
from app.scoring.suites import SEGMENT_TARGETS, USUAL_CHUNKS, compose
from tests.support.api_service import api
from tests.support.html_pages import Page


def kind(category: Category, chunks: int, segment: Segment | None = None) -> Canary:
    return Canary(key="", query="", category=category, segment=segment, judgments=(Judgment(grade=1),) * chunks)


def test_canaries_are_counted_by_category_and_segment() -> None:
    simple, procedural = Category.SIMPLE_FACTUAL, Category.PROCEDURAL
    found = compose(
        [
            kind(simple, 1, Segment.EDGE),
            kind(simple, 2, Segment.EDGE),
            kind(procedural, 5, Segment.EDGE),
            kind(simple, 1),
        ]
    )
    assert found.counts == {(simple, Segment.EDGE): 2, (procedural, Segment.EDGE): 1, (simple, None): 1}
    assert (found.total(Segment.EDGE), found.total(Segment.TEMPORAL), found.total(None)) == (3, 0, 1)


def test_segments_below_their_targets_are_noted_once_one_is_stated() -> None:
    edges = [kind(Category.SIMPLE_FACTUAL, 1, Segment.EDGE)] * 3
    assert compose([kind(Category.SIMPLE_FACTUAL, 1)] * 5).notes == ()
    assert compose([*edges, kind(Category.SIMPLE_FACTUAL, 1, Segment.TEMPORAL)]).notes == (
        "0 canaries of segment frequent, 3 or more notice damage to it",
        "0 canaries of segment challenging, 3 or more notice damage to it",
        "1 canary of segment temporal, 3 or more notice damage to it",
    )
    whole = [kind(Category.SIMPLE_FACTUAL, 1, segment) for segment in Segment for _ in range(3)]
    assert compose(whole).notes == ()
    assert SEGMENT_TARGETS.keys() == set(Segment)


@pytest.mark.parametrize("category", Category)
def test_unusual_numbers_of_chunks_are_noted(category: Category) -> None:
    least, most = USUAL_CHUNKS[category]
    assert compose([kind(category, least), kind(category, most)]).notes == ()
    (note,) = compose([kind(category, most + 1), kind(category, most)]).notes
    usual = f"{least} to {most}" if most else "none"
    assert note == f"{category.replace('_', ' ')}: 1 of 2 with more expected chunks than usual ({usual})"
    if least:
        (note,) = compose([kind(category, least - 1)]).notes
        assert "1 of 1 with fewer expected chunks than usual" in note


def test_a_canary_without_a_segment_keeps_its_hash() -> None:
    plain = CanaryDocument(key="a", query="q")
    assert content_hash(plain) == content_hash(CanaryDocument(key="a", query="q", segment=None))
    stated = CanaryDocument(key="a", query="q", segment=Segment.EDGE)
    assert content_hash(stated) != content_hash(plain)
    assert stated.to_domain().is_judged_as(plain.to_domain())


def test_a_segment_goes_through_files_pages_and_the_api(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs(canaries=[{"key": "a", "query": "What is new this year?", "expected_chunks": ["c1"]}])
        assert "No canary has a segment yet" in Page(service.client.get("/suites/docs?show=composition").text).text
        form = Page(service.client.get("/suites/docs/canaries/a").text)
        typed = {
            one.get("name"): one.get("value")
            for one in form.all("input")
            if one.get("name") and one.get("type") not in {"checkbox", "file"}
        }
        saved = service.client.post(
            "/suites/docs/canaries/a",
            data={
                **typed,
                "query": "What is new this year?",
                "segment": "temporal",
                "category": "simple_factual",
                "do": "save",
            },
        )
        assert saved.status_code in {200, 303}, saved.text
        assert service.get("/v1/suites/docs/canaries/a")["segment"] == "temporal"
        found = service.get("/v1/suites/docs/composition")
        assert found["categories"] == [
            {
                "category": "simple_factual",
                "segments": {"frequent": 0, "edge": 0, "challenging": 0, "temporal": 1},
                "not_stated": 0,
            }
        ]
        assert {one["segment"]: one["canaries"] for one in found["segments"]}["temporal"] == 1
        shown = Page(service.client.get("/suites/docs").text)
        assert "simple factual, temporal" in [row.text for row in shown.all("td")]
        shown = Page(service.client.get("/suites/docs?show=composition").text)
        assert "1 canary of segment temporal, 3 or more notice damage to it." in shown.text
        for form_name in ("coalmine", "csv"):
            assert "temporal" in service.client.get(f"/suites/docs/export?format={form_name}").text
        refused = service.client.post(
            "/v1/suites/docs/canaries", json={"key": "b", "query": "q", "segment": "sometimes"}
        )
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["path"] == "canaries[0].segment"
