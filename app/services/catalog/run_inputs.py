"""What runs work with, read from the versions of their suite, their check and their retriever.

Versions never change: what was parsed once is kept. Secrets may be renewed without a new version of the retriever.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from app.domain.errors import ConflictError, InvalidInputError
from app.domain.probing.retrievers import Retriever
from app.domain.runs.evaluation import Yardstick
from app.domain.runs.run_inputs import RunInputs, RunVersions
from app.domain.runs.suite_snapshot import SuiteSnapshot
from app.formats.catalog.documents import CheckDocument, RetrieverDocument
from app.formats.catalog.secret_fields import config_hash, join_secrets, with_placeholders
from app.formats.fields import Document
from app.formats.validation_messages import parse_document
from app.services.catalog.suite_snapshots import load_corrected, load_suite
from app.services.catalog.vault import Vault
from app.store.catalog import definitions
from app.store.engine import Connection, cached

_DOCUMENT_BYTES: Final = 10_000
"""Of a check or a retriever, at most about so much."""

DocumentT = TypeVar("DocumentT", bound=Document)


class UnusableDefinitionError(ConflictError):
    """A stored check or retriever holds what this release refuses."""


def load_inputs(
    connection: Connection, versions: RunVersions, *, vault: Vault | None = None, judged_by: int | None = None
) -> RunInputs:
    """Return what a run of these versions works with; with the judgments of another suite version, where one is named.

    The retriever can be asked only where a `vault` gives its secrets. Raises UnusableDefinitionError and
    UnusableSuiteError.
    """
    check, check_hash = _load_check(connection, versions.check)
    retriever, retriever_hash = _load_retriever(connection, versions.retriever, vault)
    if judged_by is None:
        suite = load_suite(connection, versions.suite)
    else:
        suite = load_corrected(connection, versions.suite, judged_by)
    return inputs_of(suite, check, retriever, config_hash=config_hash(check_hash, retriever_hash))


def inputs_of(suite: SuiteSnapshot, check: CheckDocument, retriever: Retriever, *, config_hash: str) -> RunInputs:
    """Return what a run of this check works with."""
    return RunInputs(
        check=check.slug,
        suite_slug=check.suite,
        suite=suite,
        retriever=retriever,
        yardstick=check.yardstick(retriever.scorer),
        config_hash=config_hash,
    )


def load_yardstick(connection: Connection, check_version: int, retriever_version: int) -> Yardstick:
    """Return what the answers to a version of a check are judged by. Raises UnusableDefinitionError."""
    retriever, _ = _load_retriever(connection, retriever_version, None)
    check, _ = _load_check(connection, check_version)
    return check.yardstick(retriever.scorer)


def _load_check(connection: Connection, version_id: int) -> tuple[CheckDocument, str]:
    """Return a check and its hash."""

    def read() -> tuple[tuple[CheckDocument, str], int]:
        content = definitions.version_body(connection, version_id)
        return (_stored("the check", CheckDocument, content.body), content.hash), _DOCUMENT_BYTES

    return cached(connection, ("check", version_id), read)


def _load_retriever(connection: Connection, version_id: int, vault: Vault | None) -> tuple[Retriever, str]:
    """Return a retriever and its hash; without a vault, placeholders stand for its secrets."""
    content = definitions.version_body(connection, version_id)

    def read() -> tuple[Retriever, int]:
        if vault is None:
            whole = with_placeholders(content.body, secrets_set=True)
        else:
            whole = join_secrets(content.body, vault.decrypt(content.secrets))
        return _stored("the retriever", RetrieverDocument, whole).to_domain(), _DOCUMENT_BYTES

    # Secrets may be renewed without a new version: what they are encrypted to is part of the name.
    return cached(connection, ("retriever", version_id, vault is not None and content.secrets), read), content.hash


def _stored(name: str, model: type[DocumentT], body: Mapping[str, Any]) -> DocumentT:
    """Read a document of the store, where a release may have left it that allowed what this one refuses."""
    try:
        return parse_document(model, body)
    except InvalidInputError as error:
        raise UnusableDefinitionError(f"{name} cannot be used as it is defined: {error}") from None
