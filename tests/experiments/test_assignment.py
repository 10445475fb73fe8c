"""Assignment and interleaving as published: Coalmine's functions and those of the docs, over one file of vectors."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.experiments.domain.experiments import assign_arm, interleave

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "assignment.md").read_text(encoding="utf-8")
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((DOCS / "assignment-vectors.json").read_text(encoding="utf-8"))


def published(language: str) -> str:
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("vector", VECTORS["assignment"], ids=lambda one: f"{one['slug']}:{one['epoch']}:{one['unit']}")
def test_a_unit_gets_the_arm_of_the_vectors(vector: dict[str, Any]) -> None:
    assert assign_arm(vector["slug"], vector["epoch"], vector["unit"], vector["shares"]) == vector["arm"]


@pytest.mark.parametrize("vector", VECTORS["interleaving"], ids=lambda one: f"{one['epoch']}:{one['unit']}")
def test_two_rankings_are_merged_as_in_the_vectors(vector: dict[str, Any]) -> None:
    merged = interleave(vector["slug"], vector["epoch"], vector["unit"], vector["a"], vector["b"])
    assert [[hit.id, hit.team] for hit in merged] == vector["merged"]


def test_python_and_javascript_of_the_docs_give_what_the_vectors_say() -> None:
    names: dict[str, Any] = {}
    exec(published("python"), names)  # noqa: S102 - our own page
    for one in VECTORS["assignment"]:
        assert names["assign"](one["slug"], one["epoch"], one["unit"], one["shares"]) == one["arm"]
    for one in VECTORS["interleaving"]:
        assert names["interleave"](one["slug"], one["epoch"], one["unit"], one["a"], one["b"]) == one["merged"]
    once = published("js").replace('import { createHash } from "node:crypto";\n', "")
    program = f"""
        import {{ createHash }} from "node:crypto";
        {once}
        const vectors = {json.dumps(VECTORS)};
        console.log(JSON.stringify({{
          assignment: vectors.assignment.map((one) => assign(one.slug, one.epoch, one.unit, one.shares)),
          interleaving: vectors.interleaving.map((one) => interleave(one.slug, one.epoch, one.unit, one.a, one.b)),
        }}));
    """
    done = subprocess.run(
        ["node", "--input-type=module"],  # noqa: S607 - wherever it is installed
        input=program,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == {
        "assignment": [one["arm"] for one in VECTORS["assignment"]],
        "interleaving": [one["merged"] for one in VECTORS["interleaving"]],
    }


def test_the_vectors_follow_from_the_hash_alone() -> None:
    for one in VECTORS["assignment"]:
        digest = hashlib.sha256(f"{one['slug']}:{one['epoch']}:{one['unit']}".encode()).hexdigest()
        assert one["u"] == int(digest[:13], 16) / 2**52
        assert (one["u"] < one["shares"][0]) == (one["arm"] == 0)


def test_a_ranking_that_names_a_chunk_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        interleave("search", 1, "u", ["x", "x"], ["y"])
