"""The manifests of deploy/kubernetes, read for tests: all of a file, those of a kind, and the pods they describe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
NOT_OF_KUBERNETES: Final = {"kustomization.yaml", "prometheus-scrape.yaml"}

Shape = dict[str, Any]


def documents(name: str = "*.yaml") -> list[tuple[str, Shape]]:
    """Give the documents of files by the name of their file."""
    return [
        (file.name, document)
        for file in sorted(FOLDER.glob(name))
        if file.name not in NOT_OF_KUBERNETES
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]


def of_kind(kind: str) -> dict[str, Shape]:
    """Give the manifests of a kind by their name."""
    found = [document for _, document in documents() if document["kind"] == kind]
    return {document["metadata"]["name"]: document for document in found}


def pods() -> dict[str, Shape]:
    """Give the pod template of every Deployment and Job, by its name."""
    return {name: one["spec"]["template"] for kind in ("Deployment", "Job") for name, one in of_kind(kind).items()}


def container_of(pod: Shape) -> Shape:
    """Give the one container of a pod."""
    (container,) = pod["spec"]["containers"]
    found: Shape = container
    return found


def matching(selector: Mapping[str, str]) -> set[str]:
    """Name the Deployments and Jobs whose pods a selector finds."""
    return {name for name, pod in pods().items() if selector.items() <= pod["metadata"]["labels"].items()}
