"""Suggested mappings as parts of a document: every path in one finds something in the answer it was made of."""

import json
from typing import Any

import jmespath

from app.base.values import Outcome
from app.retrievers.client.probe import read_pasted
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.service.trials import suggestion_views, try_answer
from tests.retrievers.test_preset_shapes import SHAPES

QUERY = "How long are logs kept?"
PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
FOUND = [{"key": f"doc-{name}", "closeness": 0.9, "body": f"{PROSE} Part {name}."} for name in "abc"]
ANSWERS: dict[str, Any] = {"plain": {"found": FOUND}, **{name: shape.answer for name, shape in SHAPES.items()}}


def document(**more: Any) -> RetrieverDocument:
    """Give a retriever of the generic preset, whose own mapping names `index` as the index version."""
    return RetrieverDocument.model_validate({"slug": "docs", "url": "http://search.test/", **more})


def test_a_suggestion_names_only_paths_that_are_in_the_answer() -> None:
    for name, answer in ANSWERS.items():
        for one in suggestion_views(document(), answer, QUERY):
            paths = {field: path for field, path in one["response"].items() if path is not None}
            hits = paths.pop("hits", None)
            version = paths.pop("index_version", None)
            signs = [path for field in ("error", "partial") for path in paths.pop(field, "").split(" || ") if path]
            assert all(path.split(".")[0] in answer for path in signs), signs
            within = [answer] if hits is None else jmespath.search(hits, answer)
            assert version is None or jmespath.search(version, answer) is not None, name
            for path in paths.values():
                assert any(jmespath.search(path, hit) not in (None, []) for hit in within), path
            missing = {name: f"no {name} was recognised; write its path" for name in {"id", "text"} - paths.keys()}
            assert one["reasons"].keys() <= {"hits", *paths, *missing}, name
            assert missing.items() <= one["reasons"].items(), name


def test_the_index_version_of_the_preset_is_suggested_only_where_the_answer_has_it() -> None:
    (bare, *_) = suggestion_views(document(), {"found": FOUND}, QUERY)
    assert "index_version" not in bare["response"]
    assert "index" not in bare["yaml"]
    (with_it, *_) = suggestion_views(document(), {"found": FOUND, "index": "v7"}, QUERY)
    assert with_it["response"]["index_version"] == "index"
    own = document(response={"id": "id", "index_version": "header:x-index"})
    assert suggestion_views(own, {"found": FOUND}, QUERY)[0]["response"]["index_version"] == "header:x-index"


def test_the_first_suggestion_reads_the_answer_without_a_remark() -> None:
    (first, *_) = suggestion_views(document(), {"found": FOUND}, QUERY)
    read = document(response=first["response"], scorer=first["scorer"] or {})
    trial = try_answer(read_pasted, read, json.dumps({"found": FOUND}), QUERY, k=5)
    assert (trial["outcome"], len(trial["hits"]), trial["remarks"]) == (Outcome.OK, 3, [])
