"""What a hostile client or definition can try: floods of mistakes, moved secrets, metadata services, telling reprs."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.base.addresses import hook_policy, retriever_policy
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.net.transfer import Request
from app.catalog.documents.canary_documents import SuiteDocument
from app.retrievers.domain.retrievers import ResponseMapping, Retriever, Scorer, ScorerKind
from tests.support.api_service import RETRIEVER, Api, api

METADATA = [
    "169.254.169.254",
    "169.254.42.42",
    "169.254.0.23",
    "169.254.169.252",
    "192.0.0.192",
    "fe80::a9fe:a9fe",
    "fd00:42::42",
    "fd00:c1::a9fe:a9fe",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
]


@pytest.mark.parametrize("address", METADATA)
def test_metadata_services_are_out_of_reach_of_retrievers_and_hooks(address: str) -> None:
    assert retriever_policy().check(address, "host") is not None
    assert hook_policy().check(address, "host") is not None


def test_a_flood_of_mistakes_is_told_in_part() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_document(SuiteDocument, {"slug": "s", "canaries": [[]] * 5_000})

    assert len(caught.value.problems) == 101
    assert caught.value.problems[-1].message == "and more of the kind; mend these first"


def test_an_object_of_too_many_keys_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with api(tmp_path_factory.mktemp("flood")) as service:
        answer = service.client.put("/v1/suites/s", json={f"k{number}": 1 for number in range(3_000)})

    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"path": "body", "message": "has an object of more than 2,000 keys"}]


def test_a_stored_header_is_not_sent_to_another_address(tmp_path_factory: pytest.TempPathFactory) -> None:
    with api(tmp_path_factory.mktemp("moved")) as service:
        secret = {
            **RETRIEVER,
            "request": {"json": {"q": "{{ query }}"}, "headers": {"Authorization": "Bearer hunter2"}},
        }
        kept = {**RETRIEVER, "request": {"json": {"q": "{{ query }}"}, "headers": {"Authorization": None}}}
        assert _put(service, secret) == 201
        assert _put(service, kept) == 200
        assert _put(service, {**kept, "url": "http://127.0.0.1:9/elsewhere"}) == 422
        assert _put(service, {**secret, "url": "http://127.0.0.1:9/elsewhere"}) == 200


def test_values_that_carry_headers_do_not_show_them() -> None:
    retriever = Retriever(
        slug="r",
        url="http://127.0.0.1/",
        headers={"Authorization": "hunter2"},
        response=ResponseMapping(hits="@", id="id"),
        scorer=Scorer(kind=ScorerKind.JUDGED),
    )

    assert "hunter2" not in repr(retriever)
    request = Request(
        url="http://127.0.0.1/", headers=(b"authorization: hunter2",), timeout_seconds=1, max_body_bytes=1
    )
    assert "hunter2" not in repr(request)


def _put(service: Api, body: Mapping[str, Any]) -> int:
    return service.client.put("/v1/retrievers/moving", json=body).status_code
