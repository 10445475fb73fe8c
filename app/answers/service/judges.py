"""A judge as it is defined now, and the texts that an answer was made of."""

from app.answers.domain.judges import Judge
from app.base.db.engine import Connection
from app.base.documents.validation_messages import parse_document
from app.base.values import Ranking
from app.catalog.documents.documents import JudgeDocument
from app.catalog.documents.secret_fields import join_secrets
from app.catalog.service.vault import Vault
from app.catalog.store import definitions


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
