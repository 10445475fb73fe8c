"""Plants as people write them: what is refused, and that the form of a check keeps what it shows."""

from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.web.forms import Form
from app.catalog.documents.check_documents import CheckDocument
from app.definitions.pages.check_editor import body_of, form_of
from app.plants.documents import DEFAULT_QUERY, DEFAULT_TEXT, PlantDocument, plant_yaml
from tests.support.embedder import vector
from tests.support.live_suite import CORPUS
from tests.support.planted import PLANT


def refused(**changes: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as error:
        parse_document(PlantDocument, {**PLANT, **changes})
    return [f"{one.path}: {one.message}" for one in error.value.problems]


def test_what_could_not_be_found_or_removed_is_refused() -> None:
    assert refused(put={"url": "/documents", "json": {"id": "{{ id }}"}}) == [
        "put: must hold {{ text }}, or nothing could find the document"
    ]
    assert refused(put={"url": "/documents", "json": {"text": "{{ text }}"}}) == [
        "put: must hold {{ id }} or {{ marker }}, or it could not be removed again"
    ]
    assert refused(remove={"url": "/documents"}) == [
        "remove: must hold {{ id }} or {{ marker }}, or it would remove other documents"
    ]
    assert refused(remove={"sql": "DELETE FROM documents"}) == [
        "remove: must hold {{ id }} or {{ marker }}, or it would remove other documents"
    ]
    assert refused(text="Nothing to find it by") == ["text: must hold {{ marker }}, by which the document is found"]
    assert refused(poll="5m", found_within="1m") == ["poll: must not be longer than found_within"]


def test_the_question_comes_first_to_the_document_for_an_embedder_that_knows_no_marker() -> None:
    corpus = np.array([vector(f"{chunk.title} {chunk.text}") for chunk in CORPUS])
    for number in range(300):
        marker = f"coalmine{blake2b(bytes([number % 256, number // 256]), digest_size=8).hexdigest()}"
        text, question = (one.replace("{{ marker }}", marker) for one in (DEFAULT_TEXT, DEFAULT_QUERY))
        asked = np.array(vector(question))
        assert asked @ vector(text) > (corpus @ asked).max(), marker


def test_a_request_is_over_http_or_sql() -> None:
    assert refused(put={"json": {}}) == ["put: must have one of 'url', 'sql' and 'command'"]
    assert refused(put={"sql": "INSERT INTO t VALUES (:id, :text)", "method": "PUT"}) == [
        "put.method: belongs to a request with a url"
    ]
    assert refused(put={"url": "ftp://x/{{ id }}{{ text }}"})[0].startswith("put.url: must be an address")
    assert refused(put={"url": "/a", "headers": {"authorization": "secret"}})[0].startswith("put.headers: ")


def check(**fields: Any) -> dict[str, Any]:
    whole = {"slug": "docs", "suite": "docs", "retriever": "search", "schedule": {"every": "5m"}, **fields}
    return parse_document(CheckDocument, whole).data()


def test_the_form_of_a_check_shows_and_keeps_its_plant() -> None:
    stored = check(plant=PLANT)
    typed = form_of(stored)
    assert "every: 10m" in typed.get("plant")
    assert "found_within: 60s" not in typed.get("plant")
    body = body_of(typed, stored)
    assert parse_document(CheckDocument, body).data() == stored
    without = Form(texts={**typed.texts, "plant": ""}, lists=typed.lists)
    assert body_of(without, stored)["plant"] is None
    assert plant_yaml(None) == ""


def test_a_rule_on_plants_needs_a_plant() -> None:
    with pytest.raises(InvalidInputError, match="the check has no plant"):
        check(rules=[{"kind": "plant", "enabled": False}])
    kinds = [rule.kind for rule in parse_document(CheckDocument, check(plant=PLANT)).rules_in_force]
    assert "plant" in kinds
    off = check(plant=PLANT, rules=[{"kind": "plant", "enabled": False}])
    assert "plant" not in [rule.kind for rule in parse_document(CheckDocument, off).rules_in_force]
