"""Secrets that a change leaves as they were are those of the definition it changes, whoever changes it meanwhile."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError
from app.catalog import store as catalog
from app.catalog.service import references
from app.catalog.store import API
from app.definitions.service import definitions
from app.definitions.service.definitions import stored_content
from app.retrievers.documents.retrievers import RetrieverDocument
from tests.support.blocking import overtaken
from tests.support.fakes import START

pytestmark = pytest.mark.databases

KEY = "a key for tests alone"
OURS, ELSEWHERE = "https://search.test/", "https://elsewhere.test/"


def described(url: str, token: str | None, **changes: Any) -> dict[str, Any]:
    return {"slug": "search", "preset": "generic", "url": url, "auth": {"kind": "bearer", "token": token}, **changes}


def document(url: str, token: str) -> RetrieverDocument:
    return parse_document(RetrieverDocument, described(url, token))


class Interrupted(Vault):
    """A vault in whose reading somebody else gets a word in, once."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(KEY)
        self._meanwhile: Callable[[], None] | None = meanwhile

    def decrypt(self, token: bytes | None) -> dict[str, Any]:
        """Let the other act, then decrypt."""
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().decrypt(token)


def stored(store: Store) -> tuple[str, Mapping[str, Any]]:
    url = references.load_definition(store, "retriever", "search").body["url"]
    return url, definitions.stored_secrets(store, Vault(KEY), "retriever", "search")


def test_a_secret_read_before_an_address_moved_does_not_move_with_it(store: Store) -> None:
    """Else whoever may change an address has the secret of the old one sent to the new."""
    vault = Vault(KEY)
    definitions.put(store, vault, document(OURS, "hunter2"), now=START)

    def move() -> None:
        definitions.put(store, vault, document(ELSEWHERE, "known"), now=START)

    with pytest.raises(InvalidInputError, match=r"auth\.token"):
        definitions.complete(store, Interrupted(move), RetrieverDocument, described(ELSEWHERE, None, timeout=2))


@pytest.mark.parametrize("meanwhile", ["moved", "renewed", "archived"])
def test_a_change_completed_from_what_is_no_more_is_refused_and_changes_nothing(store: Store, meanwhile: str) -> None:
    vault = Vault(KEY)
    definitions.put(store, vault, document(OURS, "hunter2"), now=START)
    changed, revision = definitions.complete(store, vault, RetrieverDocument, described(OURS, None, timeout=2))
    if meanwhile == "archived":
        definitions.archive(store, "retriever", "search", now=START)
    else:
        put = document(ELSEWHERE, "other") if meanwhile == "moved" else document(OURS, "new")
        definitions.put(store, vault, put, now=START)
    with pytest.raises(ConflictError, match="changed by somebody else"):
        definitions.put(store, vault, changed, now=START, revision=revision)
    if meanwhile == "archived":
        assert references.load_definitions(store, "retriever") == []
    else:
        url, token = (ELSEWHERE, "other") if meanwhile == "moved" else (OURS, "new")
        assert stored(store) == (url, {"auth.token": token})


def test_a_change_waits_for_the_one_it_could_be_overtaken_by(postgresql_store: Store) -> None:
    """Without a lock both would be compared with the same revision, and the second saved over the first."""
    store, vault = postgresql_store, Vault(KEY)
    definitions.put(store, vault, document(OURS, "hunter2"), now=START)
    changed, revision = definitions.complete(store, vault, RetrieverDocument, described(OURS, None, timeout=2))

    def meanwhile(connection: Connection) -> None:
        content = stored_content(vault, document(ELSEWHERE, "other"))
        catalog.save_definition(
            connection, "retriever", "search", content, managed_by=API, source=None, now=to_us(START)
        )

    with pytest.raises(ConflictError):
        overtaken(store, meanwhile, lambda: definitions.put(store, vault, changed, now=START, revision=revision))
    assert stored(store) == (ELSEWHERE, {"auth.token": "other"})
