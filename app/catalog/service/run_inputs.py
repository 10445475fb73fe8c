"""Loads the inputs of runs from the versions of their suite, check and retriever.

Versions never change, so parsed ones are cached; secrets of a retriever may change without a new version.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from app.base.db.engine import Connection, cached
from app.base.documents.fields import Document
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError, InvalidInputError
from app.catalog.documents.documents import CheckDocument, RetrieverDocument
from app.catalog.documents.secret_fields import config_hash, join_secrets, with_placeholders
from app.catalog.domain.measure_guide import MeasureGuide
from app.catalog.service.input_assembly import build_inputs
from app.catalog.service.suite_snapshots import load_corrected, load_suite
from app.catalog.service.vault import Vault
from app.catalog.store import definitions
from app.retrievers.domain.retrievers import Retriever
from app.scoring.evaluation import Yardstick
from app.scoring.run_inputs import RunInputs, RunVersions

_DOCUMENT_BYTES: Final = 10_000
"""Approximate size of a check or a retriever in the cache."""

DocumentT = TypeVar("DocumentT", bound=Document)


class UnusableDefinitionError(ConflictError):
    """A stored check or retriever is invalid in this release."""


def load_inputs(
    connection: Connection, versions: RunVersions, *, vault: Vault | None = None, judged_by: int | None = None
) -> RunInputs:
    """Return the inputs of a run of these versions; with the judgments of the suite version `judged_by`, if given.

    Without a `vault` the retriever has placeholders for its secrets. Raises UnusableDefinitionError and
    UnusableSuiteError.
    """
    check, check_hash = _load_check(connection, versions.check)
    retriever, retriever_hash = _load_retriever(connection, versions.retriever, vault)
    if judged_by is None:
        suite = load_suite(connection, versions.suite)
    else:
        suite = load_corrected(connection, versions.suite, judged_by)
    return build_inputs(suite, check, retriever, config_hash=config_hash(check_hash, retriever_hash))


def load_yardstick(connection: Connection, check_version: int, retriever_version: int) -> Yardstick:
    """Return the yardstick of versions of a check and a retriever. Raises UnusableDefinitionError."""
    retriever, _ = _load_retriever(connection, retriever_version, None)
    check, _ = _load_check(connection, check_version)
    return check.yardstick(retriever.scorer)


def load_guide(connection: Connection, check_version: int) -> MeasureGuide:
    """Return which measure to read first of runs of this version of a check. Raises UnusableDefinitionError."""
    return _load_check(connection, check_version)[0].guide


def _load_check(connection: Connection, version_id: int) -> tuple[CheckDocument, str]:
    """Return a check and its hash."""

    def read() -> tuple[tuple[CheckDocument, str], int]:
        content = definitions.version_body(connection, version_id)
        return (_parse_stored("the check", CheckDocument, content.body), content.hash), _DOCUMENT_BYTES

    return cached(connection, ("check", version_id), read)


def _load_retriever(connection: Connection, version_id: int, vault: Vault | None) -> tuple[Retriever, str]:
    """Return a retriever and its hash; without a vault, with placeholders for its secrets."""
    content = definitions.version_body(connection, version_id)

    def read() -> tuple[Retriever, int]:
        if vault is None:
            whole = with_placeholders(content.body, secrets_set=True)
        else:
            whole = join_secrets(content.body, vault.decrypt(content.secrets))
        return _parse_stored("the retriever", RetrieverDocument, whole).to_domain(), _DOCUMENT_BYTES

    # Secrets may change without a new version, so their ciphertext is part of the cache key.
    return cached(connection, ("retriever", version_id, vault is not None and content.secrets), read), content.hash


def _parse_stored(name: str, model: type[DocumentT], body: Mapping[str, Any]) -> DocumentT:
    """Return a stored document, which may be invalid if an older release stored it."""
    try:
        return parse_document(model, body)
    except InvalidInputError as error:
        raise UnusableDefinitionError(f"{name} cannot be used as it is defined: {error}") from None
