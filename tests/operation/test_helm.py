"""The chart of deploy/helm: Helm renders what the plain manifests have, Kubernetes takes it, and values are checked."""

import json
import re
import subprocess
from dataclasses import fields
from typing import Any, Final

import jsonschema
import kubernetes_validate
import pytest
import yaml

from app import __version__
from app.config import PREFIX, Settings
from tests.support import kubernetes_manifests as plain
from tests.support.doc_pages import pages
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.processes import ROOT
from tests.support.servers import PROGRAMS, installed

CHART: Final = ROOT / "deploy/helm/coalmine"
TEMPLATES: Final = "".join(file.read_text(encoding="utf-8") for file in sorted((CHART / "templates").iterdir()))
EVERYTHING: Final = {
    "image": {"tag": "1.2.3+build", "pullSecrets": [{"name": "registry"}]},
    "settings": {"COALMINE_RETENTION_DAYS": 30},
    "canaries": {"files": {"a.yaml": "suite: s\ncanaries: []\n"}, "configMaps": ["team-a"], "label": ""},
    "work": {"autoscaling": {"enabled": True}},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "x", "operator": "Exists"}],
}

Shape = dict[str, Any]


def values() -> Shape:
    found: Shape = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return found


def ask_helm(*given: Shape, **more: Any) -> Shape:
    """Lint the chart and render it with each of these values."""
    request = {"chart": str(CHART), "values": given, **more}
    python = installed("python")
    if not list((python.parents[1] / "lib").glob("python*/site-packages/helm_python")):
        pytest.skip("needs helm-python-sdk, which has no wheel for this machine")
    ran = subprocess.run(  # noqa: S603 - a program we installed
        [python, PROGRAMS / "helm_render.py"], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    answer: Shape = json.loads(ran.stdout)
    return answer


def rendered(given: Shape, **more: Any) -> dict[tuple[str, str], Shape]:
    """Give what the chart makes, by kind and name."""
    (one,) = ask_helm(given, **more)["rendered"]
    assert "files" in one, one
    texts = [text for name, text in one["files"].items() if not name.endswith(".txt")]
    found = [document for text in texts for document in yaml.safe_load_all(text) if document]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


# --- without Helm --------------------------------------------------------------------------------------------


def test_the_chart_is_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_value_has_a_schema_is_used_and_those_of_the_docs_exist() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values(), schema)
    assert set(schema["properties"]) - {"global"} == set(values())
    used = set(re.findall(r"\.Values\.(\w+)", TEMPLATES))
    assert used == set(values())
    for path in set(re.findall(r"\.Values\.([\w.]+)", TEMPLATES)):
        here: Any = values()
        for name in path.split("."):
            assert name in here, path
            here = here[name]
    section = pages()["docs/operations.md"].partition("\n### Helm\n")[2].partition("\n## ")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("| `"))
    for path in re.findall(r"`([a-z]\w+(?:\.\w+)+)`", "\n".join(row.split("|")[1] for row in rows.splitlines())):
        here = values()
        for name in path.split("."):
            assert name in here, path
            here = here[name]


def test_settings_of_the_chart_are_settings_and_secrets_are_files_of_the_secret() -> None:
    configured = re.findall(r"(?m)^  (COALMINE_\w+):", (CHART / "templates/configuration.yaml").read_text())
    names = {*configured, *values()["settings"]}
    known = {PREFIX + field.name.upper() for field in fields(Settings)}
    assert {name for name in names if not {name, name.removesuffix("_FILE")} & known} == set()
    by_hand = plain.of_kind("ConfigMap")["coalmine"]["data"]
    assert names == set(by_hand)
    assert values()["settings"] == {name: by_hand[name] for name in values()["settings"]}


# --- by Helm -------------------------------------------------------------------------------------------------


def alike(document: Shape) -> Shape:
    """Give a document without what a chart and plain manifests say each in its own way."""
    text = json.dumps(document)
    for pair in (
        '"app.kubernetes.io/instance": "coalmine", ', ', "app.kubernetes.io/instance": "coalmine"',
        '"imagePullPolicy": "IfNotPresent", ',
    ):  # fmt: skip
        text = text.replace(pair, "")
    text = text.replace("registry.example/coalmine:", "coalmine:")
    found: Shape = json.loads(text)
    found["metadata"] = {"name": found["metadata"]["name"]}
    spec = found.get("spec", {})
    if isinstance(spec.get("template"), dict):
        spec["template"]["metadata"].pop("annotations", None)
        inner = spec["template"]["spec"]
        inner["volumes"] = sorted((one for one in inner["volumes"] if one["name"] != "canaries"), key=str)
        for container in inner["containers"]:
            container["volumeMounts"] = sorted(container["volumeMounts"], key=str)
    if found["kind"] == "Service":
        spec.pop("type", None)
    return found


@pytest.mark.systems(seconds=40)
def test_with_its_defaults_it_makes_what_the_plain_manifests_have() -> None:
    made = rendered({})
    by_hand = {
        (document["kind"], document["metadata"]["name"]): document
        for file, document in plain.documents()
        if not file.startswith("autoscale")
    }
    assert set(made) == set(by_hand)
    for name, document in made.items():
        assert alike(document) == alike(by_hand[name]), name


@pytest.mark.systems(seconds=40)
def test_helm_finds_nothing_and_kubernetes_takes_everything() -> None:
    assert ask_helm()["lint"] == []
    for given in ({}, EVERYTHING):
        for (kind, name), document in rendered(given).items():
            if kind != "ServiceMonitor":
                kubernetes_validate.validate(document, "1.32", strict=True)
                kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
            assert re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", name), name


@pytest.mark.systems(seconds=40)
def test_what_is_switched_on_is_wired_to_the_pods() -> None:
    made = rendered(EVERYTHING)
    serve, work = made["Deployment", "coalmine-serve"], made["Deployment", "coalmine-work"]
    assert "replicas" not in work["spec"]
    assert made["HorizontalPodAutoscaler", "coalmine-work"]["spec"]["scaleTargetRef"]["name"] == "coalmine-work"
    pod = serve["spec"]["template"]
    (canaries,) = [one for one in pod["spec"]["volumes"] if one["name"] == "canaries"]
    sources = [one["configMap"]["name"] for one in canaries["projected"]["sources"]]
    assert sources == ["coalmine-files", "team-a"]
    assert made["ConfigMap", "coalmine-files"]["data"] == EVERYTHING["canaries"]["files"]  # type: ignore[index] # it is a mapping
    assert made["ConfigMap", "coalmine"]["data"]["COALMINE_RETENTION_DAYS"] == "30"
    assert pod["spec"]["containers"][0]["image"] == "registry.example/coalmine:1.2.3+build"
    assert (pod["spec"]["nodeSelector"], pod["metadata"]["annotations"]["a"]) == ({"disk": "ssd"}, "b")
    monitor = made["ServiceMonitor", "coalmine"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "coalmine", "key": "metrics_token"}
    selector = monitor["spec"]["selector"]["matchLabels"].items()
    services = {name: one for (kind, name), one in made.items() if kind == "Service"}
    assert {name for name, one in services.items() if selector <= one["metadata"]["labels"].items()} == {
        "coalmine",
        "coalmine-work",
    }
    for service in services.values():
        (port,) = service["spec"]["ports"]
        assert port["name"] == endpoint["port"]
        chosen = service["spec"]["selector"].items()
        found = [one for one in (serve, work) if chosen <= one["spec"]["template"]["metadata"]["labels"].items()]
        assert len(found) == 1
        (container,) = found[0]["spec"]["template"]["spec"]["containers"]
        assert port["targetPort"] in {one["name"] for one in container["ports"]}
    backend = made["Ingress", "coalmine"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "coalmine", "port": {"name": "http"}}


@pytest.mark.systems(seconds=40)
def test_mistyped_values_are_refused_and_changes_replace_pods() -> None:
    wrong: list[Shape] = [
        {"replicas": 3},
        {"serve": {"replica": 3}},
        {"settings": {"RETENTION_DAYS": "30"}},
        {"canaries": {"files": {"a.txt": ""}}},
        {"serviceMonitor": {"interval": "often"}},
    ]
    assert all("error" in one for one in ask_helm(*wrong)["rendered"])

    def annotations(given: Shape) -> Shape:
        found: Shape = rendered(given)["Deployment", "coalmine-serve"]["spec"]["template"]["metadata"]["annotations"]
        return found

    before = annotations({})
    assert (
        annotations({"settings": {"COALMINE_RETENTION_DAYS": 30}})["coalmine/settings"] != before["coalmine/settings"]
    )
    changed = annotations({"canaries": {"files": {"a.yaml": "suite: s\n"}}})
    assert changed["coalmine/canaries"] != before["coalmine/canaries"]


@pytest.mark.systems(seconds=40)
def test_config_maps_with_the_label_are_looked_up_and_mounted() -> None:
    """By a server that answers as that of Kubernetes does where Helm looks."""
    labels = {"team-b": {"coalmine/canaries": "true"}, "other": {}, "team-c": {"coalmine/canaries": ""}}
    labelled: list[Shape] = [
        {"metadata": {"name": name, "namespace": "coalmine", "labels": own}, "data": {f"{name}.yaml": "x"}}
        for name, own in labels.items()
    ]

    def kubernetes(seen: Seen) -> Reply:
        path = seen.target.partition("?")[0]
        one = next((one for one in labelled if path.endswith(f"/configmaps/{one['metadata']['name']}")), None)
        core = {"name": "configmaps", "singularName": "", "namespaced": True, "kind": "ConfigMap", "verbs": ["list"]}
        answers: dict[str, Shape] = {
            "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [core]},
            "/api/v1/namespaces/coalmine/configmaps": {
                "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {},
                "items": [{"kind": "ConfigMap", "apiVersion": "v1", **one} for one in labelled],
            },
        }  # fmt: skip
        if one is not None:
            return reply(json.dumps({"kind": "ConfigMap", "apiVersion": "v1", **one}).encode())
        return reply(json.dumps(answers[path]).encode()) if path in answers else reply(b"{}", status=404)

    with peer(kubernetes) as server:
        context = {"cluster": "c", "user": "u"}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": context}],
        }  # fmt: skip
        access = {"apiserver": server.url, "kubeconfig": json.dumps(config)}
        made = rendered({"canaries": {"label": "coalmine/canaries"}}, **access)
        labelled[0]["data"]["team-b.yaml"] = "changed"
        changed = rendered({"canaries": {"label": "coalmine/canaries"}}, **access)
    pod = made["Deployment", "coalmine-serve"]["spec"]["template"]
    (canaries,) = [one for one in pod["spec"]["volumes"] if one["name"] == "canaries"]
    assert [one["configMap"]["name"] for one in canaries["projected"]["sources"]] == ["team-b", "team-c"]
    other = changed["Deployment", "coalmine-serve"]["spec"]["template"]
    assert pod["metadata"]["annotations"] != other["metadata"]["annotations"], "pods are replaced"
