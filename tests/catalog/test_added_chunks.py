"""Hits that are ticked in the editor of a canary join its expected chunks, each once."""

from app.base.web.forms import Form
from app.definitions.pages.canary_editor import add_chunks


def texts(form: Form) -> set[str]:
    return {value for value in form.texts.values() if value}


def test_a_ticked_hit_without_an_id_joins_expected_chunks_that_have_none_either() -> None:
    typed = add_chunks(Form(), [{"text": "alpha text"}])
    assert {"alpha text", "beta text"} <= texts(add_chunks(typed, [{"text": "beta text"}]))


def test_a_chunk_that_is_expected_already_is_not_added_again() -> None:
    typed = add_chunks(Form(), [{"id": "c1", "text": "alpha text"}])
    assert "another cut" not in texts(add_chunks(typed, [{"id": "c1", "text": "another cut"}]))
    assert add_chunks(typed, [{"id": "c1", "text": "alpha text"}]).texts == typed.texts
