"""A chunk that no hit could be recognised by is refused where it is written."""

import pytest

from app.base.errors import InvalidInputError
from app.catalog.documents.canary_files import read_canary_files

FILE = """suite: s
canaries:
  - key: a
    query: q
    expected_chunks:
      - {document: d}
      - {text: some words}
      - {id: i, document: d}
retrievers:
  - {slug: r, url: "http://127.0.0.1:9/", response: {hits: hits, id: id, text: text}}
checks:
  - {slug: c, suite: s, retriever: r, schedule: {every: 5m}}
"""


def test_a_chunk_of_an_unmapped_field_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_canary_files([("f.yaml", FILE)], {}, None)

    problem = caught.value.problems[0]
    assert len(caught.value.problems) == 1
    assert (problem.file, problem.line, problem.path) == ("f.yaml", 6, "canaries[0].expected_chunks[0]")
    assert problem.message == (
        "can never be recognised: retriever 'r' maps no 'document' under 'response'; "
        "write response: {document: <path of the document in a hit>}"
    )


def test_a_retriever_that_maps_no_id_is_named_once_for_all_chunks() -> None:
    canaries = "".join(f"  - {{key: c{at}, query: q{at}, expected_chunks: [c{at}]}}\n" for at in range(15))
    with pytest.raises(InvalidInputError) as caught:
        read_canary_files(
            [("f.yaml", f"suite: s\ncanaries:\n{canaries}{FILE[FILE.index('retrievers') :]}".replace("id: id, ", ""))],
            {},
            None,
        )

    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (3, "canaries[0].expected_chunks[0]")
    assert problem.message == (
        "can never be recognised (nor 14 more chunks): retriever 'r' maps no 'id' under 'response'; "
        "write response: {id: <path of the id in a hit>}"
    )


def test_a_chunk_with_one_mapped_identity_is_enough() -> None:
    documents = read_canary_files([("f.yaml", FILE.replace("      - {document: d}\n", ""))], {}, None)

    assert len((documents.suites[0].canaries or ())[0].expected_chunks) == 2
