"""The demo's traffic and annotations fit its retriever: one document is not covered, and two grades are disputed."""

import io
from collections import defaultdict
from datetime import UTC, datetime
from functools import partial

import pytest
from fastapi.testclient import TestClient

from app.demo.corpus import read_corpus
from app.demo.retriever import Retriever
from app.demo.server import create_demo
from app.domain.catalog.composition import SEGMENT_TARGETS, CanaryKind, compose
from app.domain.model import Category, Segment
from app.formats.annotation.annotation_csv import read_annotations
from app.formats.annotation.traffic_lines import read_traffic
from app.formats.catalog.exchange import Source
from tests.support import demo_suite

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def retriever() -> Retriever:
    """Give the demo's retriever, healthy."""
    return Retriever(read_corpus())


def sample(name: str) -> list[Source]:
    """Give a file that the demo serves."""
    with TestClient(create_demo()) as demo:
        answer = demo.get(f"/{name}")
    assert answer.is_success
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    return [Source(name=name, lines=partial(io.StringIO, answer.text))]


def test_of_the_traffic_the_command_line_alone_is_not_covered(retriever: Retriever) -> None:
    found = read_traffic(sample("traffic.csv"), now=NOW)
    assert (len(found.queries), found.too_long, found.empty) == (55, 0, 0)
    names = {chunk.id: chunk.document for chunk in retriever.chunks}
    canaries = demo_suite.canaries()
    expected = {chunk.get("id") for canary in canaries for chunk in canary.expected}
    covered = {names[one] for one in expected if one in names}
    for canary in canaries:  # what a passing canary finds first is covered too, however it is expected
        answer = [hit.chunk for hit in retriever.search(canary.query, 5)]
        ranks = [rank for rank in demo_suite.found(answer, canary) if rank is not None]
        covered |= {answer[min(ranks) - 1].document} if ranks else set()
    hits = {one.query: retriever.search(one.query, 1) for one in found.queries}
    left_out = {found[0].chunk.document for found in hits.values() if found and found[0].chunk.document not in covered}
    assert left_out == {"cli/commands"}


def test_two_annotators_graded_the_first_hits_and_dispute_two(retriever: Retriever) -> None:
    grades: dict[tuple[str, str], dict[str, int | None]] = defaultdict(dict)
    for line in read_annotations(sample("annotations.csv"), highest=2):
        grades[line.canary, line.chunk_id][line.annotator] = line.grade
    queries = {canary.key: canary.query for canary in demo_suite.canaries()}
    keys = {canary for canary, _ in grades}
    assert grades.keys() == {(key, hit.chunk.id) for key in keys for hit in retriever.search(queries[key], 5)}
    assert all(said.keys() == {"Ann", "Bob"} for said in grades.values())
    assert sum(len(set(said.values())) > 1 for said in grades.values()) == 2


def test_the_shipped_canaries_satisfy_the_notes_of_the_product() -> None:
    kinds = [
        CanaryKind(
            category=Category(canary["category"]),
            segment=Segment(canary["segment"]) if "segment" in canary else None,
            chunks=len(canary.get("expected_chunks", ())),
        )
        for canary in demo_suite.document()["canaries"]
    ]
    composition = compose(kinds)
    assert composition.notes == ()
    assert all(composition.total(segment) >= target for segment, target in SEGMENT_TARGETS.items())
