"""What names an adopted judgment whose grade changes."""

from app.annotation.domain.pools import PoolItem, text_key
from app.annotation.service.annotations import adopt_judgments
from app.catalog.documents.canary_documents import CanaryDocument


def test_a_chunk_that_was_known_as_irrelevant_gets_its_text_once_it_is_relevant() -> None:
    described = {"key": "a", "query": "a", "expected_chunks": [{"id": "c1", "grade": 0}, {"id": "c2", "grade": 1}]}
    items = [
        PoolItem(key=text_key(f"Text {one}.", chunk=""), text=f"Text {one}.", chunks=(("r", f"c{one}"),))
        for one in (1, 2)
    ]
    found = adopt_judgments(CanaryDocument.model_validate(described), [(one, 2) for one in items], source="task:t")
    named = {one.id: (one.text, one.grade) for one in found.changed.values()}
    assert named == {"c1": ("Text 1.", 2), "c2": (None, 2)}
