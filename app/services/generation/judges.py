"""A judge as it is defined now, and the texts that an answer was made of."""

from app.domain.generation.judges import Judge
from app.domain.model import Ranking
from app.formats.catalog.documents import JudgeDocument
from app.formats.catalog.secret_fields import join_secrets
from app.formats.validation_messages import parse_document
from app.services.catalog.vault import Vault
from app.store.catalog import definitions
from app.store.engine import Connection


def load_judge(connection: Connection, vault: Vault, slug: str | None) -> tuple[int | None, Judge | None]:
    """Return id and value of a judge; None = there is none of this name in force."""
    row = None if slug is None else definitions.find_definition(connection, "judge", slug)
    if row is None or row.archived_at is not None:
        return None, None
    whole = join_secrets(row.body, vault.decrypt(row.secrets))
    return row.id, parse_document(JudgeDocument, whole).to_domain()


def contexts_of(ranking: Ranking, k: int) -> tuple[str, ...]:
    """Return the texts of the top k hits; a hit without a text gives the model nothing."""
    return tuple(text for text in ranking.texts[:k] if text is not None)
